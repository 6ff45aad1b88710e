"""Does `python -m minilm distance` measure recall, and are the rivals treated alike?"""

import json
import os

import pytest
import torch
from torch import nn

from minilm.lab import distance, recall
from minilm.lab.recall import RIVALS, Outcome
from minilm.vocabulary import Vocabulary

GAP = 5


@pytest.fixture
def language():
    return recall.language_with(GAP)


class Oracle(nn.Module):
    """Gives the next character of sentences that it knows by heart, or a constant one."""

    def __init__(self, text: recall.Sentences, size: int, answer: int | None = None) -> None:
        super().__init__()
        self.size, self.answer = size, answer
        self.known = {tuple(row.tolist()): target for row, target in zip(text.inputs, text.targets, strict=True)}

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        told = torch.stack([self.known[tuple(row.tolist())] for row in tokens])
        told = told if self.answer is None else torch.full_like(told, self.answer)
        return nn.functional.one_hot(told, self.size).float()


@pytest.mark.parametrize("gap", [1, 8, 100])
def test_only_the_gap_grows(gap):
    found = recall.language_with(gap).sentences
    near = recall.language_with(1).sentences
    assert len(found) == 24
    assert {len(s) for s in found} == {len(near[0]) + gap - 1}
    filler = (" and the rain fell" * 10)[:gap]
    assert {s.replace(filler, " ", 1) for s in found} == set(near)


def test_rows_are_whole_sentences_and_what_follows_each_character(language):
    text = recall.sentences(language, 20, seed=3)
    vocabulary = Vocabulary(recall.characters(language))
    for inputs, targets, answers in zip(*text, strict=True):
        sentence = vocabulary.decode(targets)
        assert sentence.endswith("\n")
        assert sentence[:-1] in language
        assert vocabulary.decode(inputs) == "\n" + sentence[:-1]
        facts = dict(sentence[:5].split(" ")[i] for i in (0, 1))
        asked = [i for i, there in enumerate(answers.tolist()) if there]
        assert len(asked) == 2
        assert [sentence[i] for i in asked] == [facts[sentence[i - 1]] for i in asked]
        assert asked[0] > 17 + GAP  # behind the gap


def test_new_sentences_are_drawn_for_the_test_and_for_each_seed(language):
    draws = [recall.sentences(language, 50, seed, drawn).targets for seed in (0, 1) for drawn in ("training", "test")]
    assert torch.equal(draws[0], recall.sentences(language, 50, 0, "training").targets)
    assert not any(torch.equal(draws[i], draws[j]) for i in range(4) for j in range(i))


def test_accuracy_is_that_of_the_answers_alone(language):
    text, size = recall.sentences(language, 40, seed=0), len(recall.characters(language))
    assert recall.accuracy(Oracle(text, size), text) == 1
    three = Vocabulary(recall.characters(language)).encode("3").item()
    expected = (text.targets[text.answers] == three).double().mean().item()
    assert recall.accuracy(Oracle(text, size, three), text) == pytest.approx(expected, abs=1e-12)


def test_chance_is_worked_out_by_hand():
    # One of four numbers; then one of the three that are left.
    assert recall.chance(GAP) == pytest.approx((1 / 4 + 1 / 3) / 2, abs=1e-12)


def test_rivals_are_equally_large_and_the_same_seed_gives_the_same_run():
    runs = {rival: recall.run(rival, 1, seed=0, steps=2) for rival in RIVALS}
    width, layers = recall.SHAPE["width"], recall.SHAPE["n_layers"]
    assert runs["recurrence"].parameters - runs["attention"].parameters == layers * width
    assert runs["recurrence"].parameters < 1.01 * runs["attention"].parameters
    again = recall.run("attention", 1, seed=0, steps=2)
    assert again[:-1] == runs["attention"][:-1]


def test_slope_reaches_over_the_gap_in_attention_and_dies_in_the_recurrence():
    slopes = {}
    for rival in ("attention", "recurrence"):
        slopes[rival] = [recall.run(rival, gap, seed=0, steps=1).slope for gap in (8, 64)]
    near, far = slopes["attention"]
    assert far > 0.1 * near
    near, far = slopes["recurrence"]
    assert far < 1e-3 * near


def outcomes() -> list[Outcome]:
    table = {("attention", 8): (1.0, 0.5), ("recurrence", 8): (0.75, 0.25), ("attention", 64): (0.5, 0.5)}
    table["recurrence", 64] = (0.25, 0.25)
    return [
        Outcome(rival, gap, seed, 500, accuracy, 10.0**-gap, 1000, 1.0)
        for (rival, gap), found in table.items()
        for seed, accuracy in enumerate(found)
    ]


def test_page_has_a_row_for_each_gap_with_mean_and_range():
    lines = distance.page(outcomes())
    assert "     8  0.750 (0.500 to 1.000)  0.500 (0.250 to 0.750)" in lines
    assert "    64  0.500 (0.500 to 0.500)  0.250 (0.250 to 0.250)" in lines
    assert "    64                 1.0e-64                 1.0e-64" in lines
    assert "Parameters: attention 1,000, recurrence 1,000" in lines
    assert lines[0] == "Two facts, a gap, two questions; 500 steps of 8 sentences; seeds: 2"


def test_picture_has_a_line_for_each_rival():
    (axes,) = distance.draw(outcomes()).axes
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert list(drawn["attention"]) == [0.75, 0.5]
    assert list(drawn["recurrence"]) == [0.5, 0.25]


def test_command_runs_what_was_asked_and_hands_over_its_numbers(monkeypatch, capsys, tmp_path):
    asked = []

    def compare(runs, jobs, keep):
        asked.append(([r[0] for r in runs], [r[1] for r in runs], {r[2] for r in runs}, {r[3] for r in runs}, jobs))
        return outcomes()

    monkeypatch.setattr(distance, "compare", compare)
    picture = tmp_path / "distance.svg"
    assert distance.main(["--json", "--plot", str(picture), "--jobs", "1"]) == 0
    assert [Outcome(**found) for found in json.loads(capsys.readouterr().out)] == outcomes()
    assert picture.read_text(encoding="utf-8").startswith("<?xml")
    distance.main(["--quick", "--jobs", "3"])
    distance.main(["--quick", "--gaps", "4", "2", "--seeds", "2", "--steps", "7", "--rivals", "recurrence"])
    usual = ["attention", "recurrence"]
    longest_first = [gap for gap in reversed(distance.GAPS) for _ in range(6)]
    assert asked[0] == (21 * usual, longest_first, {0, 1, 2}, {500}, 1)
    assert asked[1] == (2 * usual, [128, 128, 8, 8], {0}, {500}, 3)
    assert asked[2] == (["recurrence"] * 4, [4, 4, 2, 2], {0, 1}, {7}, os.cpu_count())


@pytest.fixture
def counted(monkeypatch) -> list:
    """The runs that were done, none of them really."""
    done = []

    def run(rival, gap, seed, steps):
        done.append((rival, gap, seed, steps))
        return Outcome(rival, gap, seed, steps, 0.5, 1.0, 1000, 1.0)

    monkeypatch.setattr(recall, "run", run)
    return done


def test_what_is_kept_is_not_done_again(counted, tmp_path):
    keep, runs = tmp_path / "kept.json", [("recurrence", 2, 0, 9), ("attention", 2, 0, 9), ("attention", 1, 0, 9)]
    first = distance.compare(runs[:2], 1, keep)
    assert counted == runs[:2]
    both = distance.compare(runs, 1, keep)
    assert counted == runs
    assert [outcome[:4] for outcome in both] == [runs[2], runs[0], runs[1]]
    assert both[1:] == first
    distance.compare([("attention", 1, 0, 10)], 1, keep)
    assert len(counted) == len(json.loads(keep.read_text(encoding="utf-8"))) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


def test_runs_that_were_done_before_a_failure_are_kept(counted, monkeypatch, tmp_path):
    fine = recall.run

    def run(rival, gap, seed, steps):
        if gap == 3:
            raise KeyboardInterrupt
        return fine(rival, gap, seed, steps)

    monkeypatch.setattr(recall, "run", run)
    with pytest.raises(KeyboardInterrupt):
        distance.compare([("attention", gap, 0, 9) for gap in (1, 2, 3)], 1, tmp_path / "kept.json")
    assert [outcome.gap for outcome in distance.read_kept(tmp_path / "kept.json")] == [1, 2]


@pytest.mark.parametrize("content", ["", "{", '[{"gap": 1}]', "[1]"])
def test_strange_file_of_what_was_kept_is_refused(content, tmp_path, refusal):
    file = tmp_path / "kept.json"
    file.write_text(content, encoding="utf-8")
    assert "is not what --keep wrote" in refusal(distance.compare, [("attention", 1, 0, 9)], 1, file)
    assert file.read_text(encoding="utf-8") == content


def test_all_that_is_wrong_is_told_at_once(refusal):
    words = "--gaps 0 8 --seeds 0 --steps -1 --jobs 0 --keep nowhere/kept.json --rivals"
    message = refusal(distance.main, words.split())
    assert message.splitlines() == [
        "--seeds: 0 is not at least 1",
        "--steps: -1 is not at least 1",
        "--jobs: 0 is not at least 1",
        "--gaps 0: 0 is not at least 1",
        "--rivals: name at least one",
        "--keep: there is no folder nowhere; make it first",
    ]


def test_picture_of_an_unknown_kind_is_refused_before_anything_is_trained(refusal, monkeypatch):
    monkeypatch.setattr(distance, "compare", None)
    assert "picture's name ends in" in refusal(distance.main, ["--plot", "distance.gif"])


@pytest.mark.slow
def test_attention_recalls_over_a_gap_that_the_recurrence_does_not_carry_over(run_cli, tmp_path):
    words = ("distance", "--gaps", 8, 64, "--seeds", 1, "--jobs", 1, "--json")
    run = run_cli("minilm", *words, cwd=tmp_path, timeout=300)
    assert run.returncode == 0, run.stderr
    found = {(o["rival"], o["gap"]): o["accuracy"] for o in json.loads(run.stdout)}
    assert found["attention", 8] >= 0.95
    assert found["recurrence", 8] >= 0.95
    assert found["attention", 64] >= 0.95
    assert found["recurrence", 64] <= 0.65
