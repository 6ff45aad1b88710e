"""The worked example: every digit, both ways; and what is printed."""

import importlib
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
import torch

from minilm.lab import example as example_module
from minilm.lab.example import by_hand, choose, exact
from minilm.lab.example_file import read_example
from minilm.lab.lookup import main
from minilm.lab.lookup_page import show
from minilm.paths import packaged

GOLDEN = Path(__file__).parent / "golden"
ARTICLE = packaged("data/lookup.toml")


@pytest.fixture
def article():
    return read_example(ARTICLE)


def digits(numbers):
    return " ".join(show(n) for n in numbers)


# Every figure of the article, to the printed digit: exact arithmetic, then by hand.


def test_the_figures_in_exact_arithmetic(article):
    steps, table = exact(article)
    assert digits(steps.query) == "0.750 0.750"
    assert [digits(key) for key in steps.keys] == ["0.200 0.100", "2.000 0.000", "1.000 0.500", "1.600 0.200"]
    assert digits(steps.scores) == "0.225 1.500 1.125 1.350"
    assert digits(steps.scaled) == "0.159 1.061 0.795 0.955"
    assert digits(steps.exponentials) == "1.172 2.888 2.216 2.598"
    assert digits(steps.total) == "8.874"
    assert digits(steps.weights) == "0.132 0.325 0.250 0.293"
    assert digits(steps.mixture) == "0.698 0.197"
    assert digits(table.weights[0].tolist()) == "0.222 0.266 0.252 0.260"
    assert digits(table.flatness) == "0.998 0.939 0.966 0.951"
    assert table.weights.argmax(dim=-1).tolist() == [1, 1, 1, 1]


def test_the_figures_by_hand_are_those_of_the_article(article):
    steps = by_hand(article)
    assert digits(steps.scores) == "0.225 1.500 1.125 1.350"
    assert digits(steps.scaled) == "0.159 1.061 0.795 0.955"
    assert digits(steps.exponentials) == "1.172 2.889 2.214 2.599"
    assert digits(steps.total) == "8.875"
    assert digits(steps.weights) == "0.132 0.326 0.250 0.293"
    assert digits(steps.mixture) == "0.698 0.197"
    assert digits(by_hand(article.asked_by(0)).weights) == "0.222 0.266 0.252 0.260"


def test_the_slips_of_the_article_are_found(article):
    steps = by_hand(article)
    assert dict(steps.slips) == {
        ("total", 0): Decimal("8.874"),  # 1.172 + 2.889 + 2.214 + 2.599
        ("weights", 2): Decimal("0.249"),  # 2.214 / 8.875 = 0.24946
        ("whole", 0): Decimal("1.001"),  # 0.132 + 0.326 + 0.250 + 0.293
    }
    assert not by_hand(article, masked=True).slips


def test_the_figures_with_the_future_hidden(article):
    steps, pencil = exact(article, masked=True)[0], by_hand(article, masked=True)
    assert digits(steps.total) == "6.276"
    assert digits(pencil.total) == "6.275"
    for way in (steps, pencil):
        assert digits(way.weights) == "0.187 0.460 0.353"
        assert digits(way.mixture) == "0.655 0.195"


def test_the_figures_without_the_scale_and_eight_times_larger(article):
    steps, _ = exact(article, scaled=False, factor=8.0)
    assert digits(steps.scores) == "1.800 12.000 9.000 10.800"
    assert digits(steps.weights) == "0.00003 0.740 0.037 0.223"


def test_by_hand_without_printed_digits_goes_on_from_its_own(article):
    pencil = by_hand(article.asked_by(1).asked_by(2))  # the way there and back forgets what is printed
    assert digits(pencil.total) == "8.874"
    assert digits(pencil.weights) == "0.132 0.326 0.249 0.293"
    assert not pencil.slips


def test_it_is_the_attention_that_trains(article, monkeypatch):
    module = importlib.import_module("minilm.attention")
    calls = []
    real = module.attention
    monkeypatch.setattr(module, "attention", lambda *a, **k: calls.append(a) or real(*a, **k))
    steps, table = exact(article)
    assert len(calls) == 1
    weights = torch.tensor(steps.exponentials) / steps.total[0]
    torch.testing.assert_close(table.weights[2], weights.double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.000"),
        (-0.0, "0.000"),
        (0.0005, "0.001"),
        (0.00002751, "0.00003"),
        (1.3e-20, "1e-20"),
        (-1.5, "-1.500"),
        (1234567.0, "1.235e+06"),
        (Decimal("0.0132"), "0.013"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_are_shown_to_three_decimals_or_one_digit(number, text):
    assert show(number) == text


def test_a_word_that_stands_twice_asks_from_its_last_place(article):
    chosen = choose(article, "the,river,the", "the")
    assert (chosen.place, chosen.words) == (2, ("the", "river", "the"))
    assert len(exact(chosen, masked=True)[0].weights) == 3


def test_reordered_words_have_no_printed_digits(article):
    assert choose(article, "the,river,bank,flooded", "bank").printed == article.printed
    assert not choose(article, "river,the,bank,flooded", None).printed
    assert not choose(article, None, "river").printed


def test_every_step_is_named_once():
    assert set(example_module.STEPS) <= set(example_module.Steps._fields)


# The printed page. To write a page anew: python -m minilm lookup FLAGS > tests/golden/NAME.txt

PAGES = {
    "lookup": [],
    "lookup_by_hand": ["--by-hand"],
    "lookup_masked": ["--masked"],
    "lookup_masked_by_hand": ["--masked", "--by-hand"],
    "lookup_no_scale": ["--no-scale"],
    "lookup_other_words": ["--word", "the", "--words", "flooded,the,river", "--by-hand"],
    "lookup_first_word_masked": ["--word", "the", "--masked"],
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page(name, capsys):
    assert main(PAGES[name]) == 0
    assert capsys.readouterr().out == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_json_says_the_same(capsys, article):
    main(["--json", "--by-hand", "--masked"])
    data = json.loads(capsys.readouterr().out)
    steps, table = exact(article, masked=True)
    assert data["asks"] == "bank"
    assert data["lookup"]["weights"] == steps.weights
    assert data["by_hand"]["total"] == [6.275]
    assert data["table"]["flatness"][0] is None  # the first word has no choice: 0 / 0
    assert data["table"]["weights"] == table.weights.tolist()
    main(["--json", "--by-hand"])
    slips = json.loads(capsys.readouterr().out)["by_hand"]["slips"]
    assert {"step": "total", "place": 0, "follows": 8.874} in slips


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_picture(suffix, tmp_path, capsys):
    path = tmp_path / f"weights.{suffix}"
    main(["--plot", str(path)])
    first = path.read_bytes()
    assert first.startswith(b"<?xml" if suffix == "svg" else b"\x89PNG")
    main(["--plot", str(path)])
    assert path.read_bytes() == first


def test_help_is_quick_and_loads_no_torch():
    program = "import sys; from minilm.lab.lookup import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    done = subprocess.run(
        [sys.executable, "-c", program + "assert not {'torch', 'matplotlib', 'scipy'} & set(sys.modules)"],
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert "--by-hand" in done.stdout
    assert "Example: python -m minilm lookup" in done.stdout
