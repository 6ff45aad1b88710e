"""Is the model, weight for weight, the GPT-2 of transformers, an independent implementation?"""

import pytest
import torch
from test_model import T, random_tokens, shake, small
from torch import nn
from torch.nn import functional as F

from minilm.config import ModelConfig
from minilm.interop import gpt2_settings, to_gpt2
from minilm.model import LanguageModel, loss


def as_gpt2(model: LanguageModel, n_heads: int) -> nn.Module:
    """The same weights in the GPT-2 of transformers, an independent implementation."""
    transformers = pytest.importorskip("transformers")
    vocabulary, width = model.embedding.token_embedding.weight.shape
    shape = ModelConfig(n_layers=len(model.blocks), n_heads=n_heads, width=width, context=model.context)
    config = transformers.GPT2Config(**gpt2_settings(shape, vocabulary), attn_implementation="eager")
    theirs = transformers.GPT2LMHeadModel(config).to(next(model.parameters()).dtype).eval()
    theirs.load_state_dict(to_gpt2(model.state_dict(), len(model.blocks)))
    return theirs


@pytest.mark.parametrize("backend", ["explicit", "fused", "tiled"])
def test_same_as_gpt2_of_transformers(backend):
    model = small(n_heads=4, backend=backend).double()
    shake(model)
    theirs = as_gpt2(model, n_heads=4)
    tokens, targets = random_tokens(3, T), random_tokens(3, T).flip(0)
    ours = model(tokens)
    expected = theirs(tokens).logits
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    loss(ours, targets).backward()
    F.cross_entropy(expected.transpose(1, 2), targets).backward()
    theirs_gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for i, block in enumerate(model.blocks):
        expected_gradient = theirs_gradients[f"transformer.h.{i}.attn.c_attn.weight"].T
        parts = (block.attention.query, block.attention.key, block.attention.value)
        found = torch.cat([part.weight.grad for part in parts])
        torch.testing.assert_close(found, expected_gradient, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(
        model.embedding.token_embedding.weight.grad, theirs_gradients["transformer.wte.weight"], rtol=1e-9, atol=1e-10
    )


def test_same_as_gpt2_of_transformers_with_padding():
    model = small(position="learned").double()
    shake(model)
    tokens = random_tokens(2, T)
    padding = torch.tensor([[True] * T, [True] * 5 + [False] * 3])
    expected = as_gpt2(model, n_heads=2)(tokens, attention_mask=padding.long()).logits
    torch.testing.assert_close(model(tokens, padding=padding)[padding], expected[padding], rtol=1e-10, atol=1e-10)
