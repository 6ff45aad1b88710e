"""Is the cost that is counted that of the modules, and what does `python -m minilm cost` print?"""

import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from minilm.attention import MultiHeadAttention
from minilm.errors import UserError
from minilm.lab import cost
from minilm.lab.cost import Shape, dot_products, even_length, memory, parts
from minilm.model import LanguageModel


@pytest.mark.parametrize("shape", [Shape(12, 2, 2, 16, 9, 3), Shape(7, 1, 4, 8, 5, 1), Shape(5, 3, 1, 6, 4, 2)])
def test_operations_and_weights_are_those_of_the_model(shape):
    model = LanguageModel(
        shape.vocabulary,
        width=shape.width,
        context=shape.context,
        n_layers=shape.layers,
        n_heads=shape.heads,
        backend="explicit",
    )
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(shape.batch, shape.context, dtype=torch.long))
    assert 2 * sum(part.products for part in parts(shape)) == counter.get_total_flops()
    assert sum(part.weights for part in parts(shape)) == sum(p.numel() for p in model.parameters() if p.dim() == 2)
    weights = MultiHeadAttention(shape.width, shape.heads).lookup(torch.zeros(shape.batch, shape.context, shape.width))
    assert memory(shape)["weights T x T, one layer"] == 4 * weights.weights.numel()


def test_the_quadratic_part_outweighs_the_rest_from_the_even_length_on():
    for length, larger in ((round(even_length(Shape()) * 0.99), False), (round(even_length(Shape()) * 1.01), True)):
        table = {part.name: part.products for part in parts(Shape(context=length))}
        quadratic = table["attention: scores"] + table["attention: mixture"]
        assert (quadratic > sum(table.values()) - quadratic) == larger


def test_causal_dot_products_are_those_below_the_diagonal():
    for length in (1, 2, 9):
        assert dot_products(length, causal=True) == int(torch.ones(length, length).tril().sum())


def test_the_page_of_cost(capsys, tmp_path):
    cost.main(["--plot", str(tmp_path / "cost.svg")])
    assert capsys.readouterr().out == (Path(__file__).parent / "golden" / "cost.txt").read_text(encoding="utf-8")
    assert (tmp_path / "cost.svg").stat().st_size > 1000
    cost.main(["--json", "--context", "4096"])
    assert json.loads(capsys.readouterr().out)["dot_products"] == {"all_pairs": 16_777_216, "causal": 8_390_656}


def test_cost_of_a_settings_file(capsys, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[model]\nwidth = 12\nn_heads = 3\nfeed_forward = "none"\nposition = "none"\n', encoding="utf-8")
    cost.main([str(path), "--json", "--vocabulary", "7", "--layers", "2"])
    data = json.loads(capsys.readouterr().out)
    assert (data["shape"]["width"], data["shape"]["heads"], data["shape"]["layers"]) == (12, 3, 2)
    table = {part["name"]: part for part in data["parts"]}
    assert table["feed-forward"]["weights"] == 0
    assert table["embedding"]["weights"] == 7 * 12


def test_impossible_shapes_are_refused():
    with pytest.raises(UserError, match=r"(?s)--layers 0: must be at least 1.*--batch -1"):
        cost.main(["--layers", "0", "--batch", "-1"])
    with pytest.raises(UserError, match="width 512 cannot be split into 7 heads"):
        cost.main(["--heads", "7"])


@pytest.mark.parametrize(("file", "what"), [("recurrent", "a recurrent model"), ("additive", "the additive score")])
def test_what_has_no_dot_products_is_refused(file, what):
    with pytest.raises(UserError, match=f"{file}.toml: {what} costs otherwise"):
        cost.main([f"configs/{file}.toml"])
