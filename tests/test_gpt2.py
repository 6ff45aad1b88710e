"""Is the model, weight for weight, the GPT-2 of transformers, an independent implementation?"""

import pytest
import torch
from test_model import T, random_tokens, shake, small
from torch import nn
from torch.nn import functional as F

from minilm.model import LanguageModel, loss


def as_gpt2(model: LanguageModel, n_heads: int) -> nn.Module:
    """The same weights in the GPT-2 of transformers, an independent implementation."""
    transformers = pytest.importorskip("transformers")
    vocabulary, width = model.embedding.token_embedding.weight.shape
    config = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_positions=model.context,
        n_embd=width,
        n_layer=len(model.blocks),
        n_head=n_heads,
        activation_function="gelu",
        tie_word_embeddings=False,
        attn_implementation="eager",
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    theirs = transformers.GPT2LMHeadModel(config).to(next(model.parameters()).dtype).eval()
    weights = {"transformer.wte.weight": model.embedding.token_embedding.weight}
    weights["transformer.wpe.weight"] = model.embedding.position_embedding
    for i, block in enumerate(model.blocks):
        parts = (block.attention.query, block.attention.key, block.attention.value)
        linear = {
            "attn.c_attn": (torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])),
            "attn.c_proj": (block.attention.output.weight, block.attention.output.bias),
            "mlp.c_fc": (block.feed_forward.up.weight, block.feed_forward.up.bias),
            "mlp.c_proj": (block.feed_forward.down.weight, block.feed_forward.down.bias),
        }
        # GPT-2 keeps its matrices the other way round.
        weights |= {f"transformer.h.{i}.{name}.weight": weight.T for name, (weight, _) in linear.items()}
        weights |= {f"transformer.h.{i}.{name}.bias": bias for name, (_, bias) in linear.items()}
        for name, norm in (("ln_1", block.attention_norm), ("ln_2", block.feed_forward_norm)):
            weights |= {f"transformer.h.{i}.{name}.{key}": value for key, value in norm.state_dict().items()}
    weights |= {f"transformer.ln_f.{key}": value for key, value in model.final_norm.state_dict().items()}
    weights["lm_head.weight"] = model.head.weight
    theirs.load_state_dict(weights)
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
