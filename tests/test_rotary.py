"""Does turning by the place leave the distance, and nothing but the distance, in the scores?"""

import pytest
import torch
from test_model import T, random_tokens, shake, small

from minilm.config import ModelConfig
from minilm.errors import UserError
from minilm.rotary import rotate
from minilm.settings import validate


def vectors(n: int, width: int = 8) -> torch.Tensor:
    return torch.randn(2, 3, n, width, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def test_same_as_the_rotation_of_transformers():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=24, num_attention_heads=3, max_position_embeddings=32)
    query, key = vectors(20), vectors(20)
    places = torch.arange(5, 25)[None]
    cos, sin = llama.LlamaRotaryEmbedding(config)(query, places)
    expected = llama.apply_rotary_pos_emb(query, key, cos, sin)
    torch.testing.assert_close(tuple(rotate(query, key, start=5)), expected, rtol=1e-6, atol=1e-6)


def test_scores_depend_on_the_distance_only():
    query, key = vectors(1).expand(2, 3, 9, 8), vectors(2)[..., :1, :].expand(2, 3, 9, 8)
    turned_query, turned_key = rotate(query, key, start=3)
    scores = turned_query @ turned_key.mT  # (2, 3, 9, 9): one query and one key at all pairs of places
    for distance in range(-8, 9):
        along = scores.diagonal(distance, dim1=-2, dim2=-1)
        torch.testing.assert_close(along, along[..., :1].expand_as(along), rtol=1e-5, atol=1e-6)
    assert scores.std() > 0.1


def test_length_stays_and_the_first_place_is_not_turned():
    x = vectors(6)
    (turned,) = rotate(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(turned[..., 0, :], x[..., 0, :])


def test_a_rotary_model_sees_order_with_nothing_added_to_the_stream():
    model = small(position="rotary", n_layers=1).double()
    shake(model)
    tokens = random_tokens(1, T)
    shuffled = torch.cat([tokens[:, :-1].flip(1), tokens[:, -1:]], dim=1)
    assert not model.embedding.position_embedding.any()
    assert (model(tokens)[:, -1] - model(shuffled)[:, -1]).abs().max() > 1e-3


def test_an_odd_head_is_refused():
    with pytest.raises(UserError, match='"rotary" turns numbers in pairs, and width 9 / n_heads 3 is odd'):
        validate({"model": {"position": "rotary", "width": 9, "n_heads": 3}}, {})
    assert ModelConfig(position="rotary", width=12, n_heads=3).position == "rotary"
