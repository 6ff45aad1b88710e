"""The exercises of the book: the right answer passes, a wrong one gets a hint, and what is no answer is refused."""

import math

import pytest

from minilm.lab.check import main, number
from minilm.lab.exercises import base, exercise, exercises
from minilm.riverbank import Riverbank

TRAINING = base().training
# Worked out by hand, so that a fault in our functions shows.
ANSWERS = {
    1: "0.306",
    2: "16",
    3: "0.434",
    4: "80,000",
    5: "6",
    6: "18",
    7: "49984",
    8: f"{math.exp(Riverbank.load().entropy):.2f}",
    9: f"{TRAINING.learning_rate * (1 - 0.99 * (0.75 - (1 - TRAINING.decay)) / TRAINING.decay):.3g}",
    10: "no_mask",
    11: "3000",
    12: "50_005_000",
    13: "85e6",
}
WRONG = dict.fromkeys(ANSWERS, "7") | {10: "no_scale", 2: "256", 3: "0.325"}


def test_there_is_one_for_each_chapter():
    assert list(exercises()) == list(ANSWERS)


@pytest.mark.parametrize("chapter", ANSWERS)
def test_the_right_answer_passes(chapter, capsys):
    assert main([str(chapter), ANSWERS[chapter]]) == 0
    assert capsys.readouterr().out.startswith("Right. ")


@pytest.mark.parametrize("chapter", WRONG)
def test_a_wrong_answer_fails_with_a_hint(chapter, capsys):
    assert main([str(chapter), WRONG[chapter]]) == 1
    said = capsys.readouterr().out
    assert said.startswith("Not so. ")
    assert " ".join(said.split()) == f"Not so. {exercise(chapter).hint}"


def test_a_hint_does_not_give_the_answer_away():
    assert not [n for n, asked in exercises().items() if ANSWERS[n] in asked.hint.replace(",", "")]


def test_the_list_and_a_single_one_are_asked(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"{chapter:2}. " in listed for chapter in ANSWERS)
    assert main(["2"]) == 0
    assert "python -m minilm check 2 ANSWER" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["0"], ["14", "1"], ["1", "plenty"], ["1", "nan"], ["1", "0,306"], ["10", "4"]])
def test_what_is_no_answer_is_refused(words, refusal):
    assert refusal(main, words)


def test_it_exits_2_for_what_is_no_answer(run_cli, tmp_path):
    done = run_cli("minilm", "check", "1", "plenty", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("text", "value"), [("0.25", 0.25), ("1e-3", 0.001), ("80,000", 80_000), ("-1", -1)])
def test_numbers_are_read_as_people_write_them(text, value):
    assert number(text) == value
