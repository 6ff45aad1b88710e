"""Is the model the transformer that it says it is, and is each arm that model with one thing removed?"""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from minilm.embedding import Embedding, sinusoids
from minilm.model import Block, FeedForward, LanguageModel, loss
from minilm.parameters import parameter_table
from minilm.streams import generator

V, D, T = 7, 16, 8
ARMS = {
    "base": {},
    "no_scale": {"scaled": False},
    "no_mask": {"causal": False},
    "no_position": {"position": "none"},
    "sinusoidal": {"position": "sinusoidal"},
    "rotary": {"position": "rotary"},
    "no_mlp": {"feed_forward": "none"},
    "squared_relu": {"feed_forward": "squared_relu"},
    "linear_mlp": {"feed_forward": "linear"},
    "no_residual": {"residual": False},
    "no_norm": {"norm": False},
    "no_mlp_no_norm_no_position": {"feed_forward": "none", "norm": False, "position": "none"},
    "dropout": {"dropout": 0.5},
    "four_heads": {"n_heads": 4},
    "explicit": {"backend": "explicit"},
    "additive": {"score": "additive"},
}


def small(vocabulary: int = V, **settings) -> LanguageModel:
    return LanguageModel(vocabulary, **{"width": D, "context": T, "n_layers": 2, "n_heads": 2, "seed": 1, **settings})


def random_tokens(rows: int, columns: int, vocabulary: int = V) -> torch.Tensor:
    return torch.randint(vocabulary, (rows, columns), generator=torch.Generator().manual_seed(0))


def shake(model: nn.Module) -> None:
    """Large random values in every parameter, biases and norms too, so that no part can hide."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(generator=generator(0, name))


def test_attention_has_four_squares_and_the_feed_forward_twice_as_many():
    for width in (16, 96):
        model = small(width=width, n_layers=1)
        table = {part.name: part for part in parameter_table(model)}
        assert table["attention"].weights == 4 * width**2
        assert table["feed forward"].weights == 8 * width**2 == 2 * table["attention"].weights
        assert (table["attention"].biases, table["feed forward"].biases) == (4 * width, 5 * width)


@pytest.mark.parametrize("arm", ARMS)
def test_parameter_table_sums_to_the_whole(arm):
    model = small(**ARMS[arm])
    table = parameter_table(model)
    assert sum(part.weights + part.biases for part in table) == sum(p.numel() for p in model.parameters())
    counted = {part.name: part.weights + part.biases for part in table}
    assert counted["token embedding"] == counted["head"] == V * D
    assert counted["position embedding"] == (T * D if ARMS[arm].get("position", "learned") == "learned" else 0)


@pytest.mark.parametrize("vocabulary", [2, 25, 65, 300])
@pytest.mark.parametrize("arm", ["base", "no_position", "no_mlp", "no_scale", "no_mask", "no_norm"])
def test_loss_at_the_start_is_that_of_knowing_nothing(arm, vocabulary):
    model = small(vocabulary, width=96, context=64, **ARMS[arm])
    tokens, targets = random_tokens(8, 64, vocabulary), random_tokens(8, 64, vocabulary).flip(0)
    assert loss(model(tokens), targets).item() == pytest.approx(math.log(vocabulary), rel=0.05)


def test_loss_is_the_mean_of_minus_log_p():
    logits, targets = torch.randn(2, 3, V, generator=torch.Generator().manual_seed(0)), random_tokens(2, 3)
    p = logits.exp() / logits.exp().sum(-1, keepdim=True)
    each = [-math.log(p[b, t, targets[b, t]]) for b in range(2) for t in range(3)]
    assert loss(logits, targets).item() == pytest.approx(sum(each) / 6, rel=1e-6)


@pytest.mark.parametrize("arm", ARMS)
def test_same_named_weights_start_equal_in_every_arm(arm):
    base = dict(small().named_parameters())
    found = dict(small(**ARMS[arm]).named_parameters())
    added = found.keys() - base.keys()
    assert bool(added) == (arm == "additive")
    assert all(".score." in name for name in added)
    assert all(torch.equal(found[name], base[name]) for name in found.keys() & base.keys())


def test_layers_share_their_draws_with_a_shallower_model():
    deep, shallow = (dict(small(n_layers=n).named_parameters()) for n in (2, 1))
    for name, parameter in shallow.items():
        # What is added to the stream starts smaller, by the root of the number of additions.
        factor = math.sqrt(2) if name.endswith(("output.weight", "down.weight")) else 1
        torch.testing.assert_close(parameter, factor * deep[name])


def test_weights_follow_the_seed_and_nothing_else():
    one = small().state_dict()
    torch.manual_seed(5)
    other = small().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["head.weight"], small(seed=2).state_dict()["head.weight"])


def test_queries_and_keys_of_a_normalised_input_have_unit_variance():
    attention = small(width=256, context=8, n_heads=4).blocks[1].attention
    x = F.layer_norm(torch.randn(8, 64, 256, generator=torch.Generator().manual_seed(0)), (256,))
    query, key, _ = attention.project(x)
    assert query.var().item() == pytest.approx(1, rel=0.05)
    assert key.var().item() == pytest.approx(1, rel=0.05)
    scores = query @ key.transpose(-2, -1)
    assert scores.std().item() == pytest.approx(math.sqrt(64), rel=0.05)
    assert (attention.scale * scores).std().item() == pytest.approx(1, rel=0.05)


def prefix_logits(arm: dict, changed_from: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the positions before `changed_from`, with one end of the text and with another."""
    model = small(**arm).eval()
    shake(model)
    tokens = random_tokens(1, T)
    other = tokens.clone()
    other[:, changed_from:] = (other[:, changed_from:] + 1) % V
    return model(tokens)[:, :changed_from], model(other)[:, :changed_from]


@pytest.mark.parametrize("arm", [name for name in ARMS if name != "no_mask"])
def test_future_character_cannot_change_the_past(arm):
    for changed_from in range(1, T):
        before, after = prefix_logits(ARMS[arm], changed_from)
        torch.testing.assert_close(before, after, rtol=1e-5, atol=1e-5)


def test_future_character_changes_the_past_without_the_mask():
    for changed_from in range(1, T):
        before, after = prefix_logits(ARMS["no_mask"], changed_from)
        assert ((before - after).abs().amax(-1) > 1e-3).all()


def last_logits(tokens: torch.Tensor, **settings) -> torch.Tensor:
    model = small(**settings).double().eval()
    shake(model)
    return model(tokens)[:, -1]


def test_one_layer_without_position_is_blind_to_order():
    tokens = random_tokens(1, T)
    shuffled = torch.cat([tokens[:, :-1].flip(-1), tokens[:, -1:]], dim=-1)
    assert not torch.equal(tokens, shuffled)
    blind = {"position": "none", "n_layers": 1}
    torch.testing.assert_close(last_logits(tokens, **blind), last_logits(shuffled, **blind))
    # Each of these alone is enough to see the order: a position, or the mask of a second layer.
    for seeing in ({"n_layers": 1}, {"position": "sinusoidal", "n_layers": 1}, {"position": "none", "n_layers": 2}):
        assert not torch.allclose(last_logits(tokens, **seeing), last_logits(shuffled, **seeing))
    # Without the mask no number of layers helps.
    blind = {"position": "none", "n_layers": 2, "causal": False}
    torch.testing.assert_close(last_logits(tokens, **blind), last_logits(shuffled, **blind))


def test_attention_without_feed_forward_and_norm_is_linear_in_the_values():
    model = small(position="none", feed_forward="none", norm=False, n_layers=1).double()
    shake(model)
    layer = model.blocks[0].attention
    x = torch.randn(1, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = layer.lookup(x)
    assert (found.mixture.amin(2) >= found.value.amin(2) - 1e-12).all()
    assert (found.mixture.amax(2) <= found.value.amax(2) + 1e-12).all()


@pytest.mark.parametrize("arm", ["base", "no_mlp"])
def test_one_batch_can_be_overfitted(arm):
    model = small(**ARMS[arm], context=16)
    tokens = torch.randint(V, (2, 17), generator=torch.Generator().manual_seed(3))
    tokens[:, 0] = torch.tensor([0, 1])  # else nothing tells the rows apart at first
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    for _ in range(200):
        optimizer.zero_grad()
        found = loss(model(tokens[:, :-1]), tokens[:, 1:])
        found.backward()
        optimizer.step()
    assert found.item() < 0.02


def test_feed_forward_works_on_each_position_alone():
    part = FeedForward(D, nn.GELU())
    x = torch.randn(2, 5, D)
    torch.testing.assert_close(part(x)[:, 2], part(x[:, 2]))
    assert part.up.weight.shape == (4 * D, D)


def test_linear_feed_forward_is_one_matrix():
    part = FeedForward(D, nn.Identity()).double()
    x = torch.randn(5, D, dtype=torch.float64)
    whole = part.down.weight @ part.up.weight
    torch.testing.assert_close(part(x) - part(torch.zeros_like(x)), x @ whole.T)


def test_block_adds_its_parts_to_the_stream_or_replaces_it():
    x = torch.randn(1, 5, D)
    for residual, kept in ((True, x), (False, torch.zeros_like(x))):
        block = Block(D, n_heads=2, residual=residual)
        nn.init.zeros_(block.attention.output.weight)
        nn.init.zeros_(block.attention.output.bias)
        nn.init.zeros_(block.feed_forward.down.weight)
        nn.init.zeros_(block.feed_forward.down.bias)
        torch.testing.assert_close(block(x), kept)


def test_no_feed_forward_adds_nothing():
    block = Block(D, n_heads=2, feed_forward="none")
    x = torch.randn(1, 5, D)
    torch.testing.assert_close(block(x), x + block.attention(block.attention_norm(x)))


def test_checkpoint_holds_parameters_only():
    for arm in ARMS.values():
        model = small(**arm)
        assert model.state_dict().keys() == dict(model.named_parameters()).keys()


def test_logits_for_every_position_up_to_the_context():
    model = small()
    for length in (1, 5, T):
        assert model(random_tokens(2, length)).shape == (2, length, V)
    with pytest.raises(ValueError, match="9 tokens do not fit into the context of 8"):
        model(random_tokens(1, T + 1))
    with pytest.raises(ValueError, match="9 tokens do not fit"):
        model(random_tokens(1, 2), start=T - 1)


def test_embedding_is_token_plus_position():
    for position in ("learned", "sinusoidal", "none"):
        embedding = Embedding(V, D, T, position)
        if position == "learned":
            nn.init.normal_(embedding.position_embedding)
        tokens = random_tokens(2, 3)
        place = torch.zeros(T, D) if position == "none" else embedding.position_embedding
        for start in (0, 5):
            expected = embedding.token_embedding.weight[tokens] + place[start : start + 3]
            torch.testing.assert_close(embedding(tokens, start), expected)


@pytest.mark.parametrize("width", [1, 7, 16])
def test_sinusoids_are_those_of_the_paper(width):
    table = sinusoids(50, width)
    for place in (0, 1, 49):
        for column in range(width):
            angle = place / 10_000 ** (2 * (column // 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[place, column].item() == pytest.approx(expected, abs=1e-5)


def test_distance_between_sinusoids_depends_on_the_distance_alone():
    table = sinusoids(40, 16).double()
    products = table @ table.T
    for gap in (1, 5):
        along = products.diagonal(gap)
        torch.testing.assert_close(along, along[:1].expand_as(along), rtol=0, atol=1e-5)
    assert all(a > b for a, b in pairwise(products[0, :4].tolist()))
