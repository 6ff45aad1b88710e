"""Curves of runs: drawn from what the runs wrote down, refused where there is nothing to draw."""

import pytest

from minilm.errors import UserError
from minilm.lab.plot import comparable, draw, main

RECORDS = [
    {"step": 1, "loss": 3.0},
    {"step": 2, "loss": 2.0},
    {"step": 2, "validation": {"loss": 2.5, "floor": 0.2, "excess": 1.9}},
]


def test_the_points_are_of_characters_whose_floor_is_known():
    axes = draw({"a $ <b>": RECORDS}).axes[0]
    training, validation, floor = axes.get_lines()
    assert list(training.get_ydata()) == [3.0, 2.0]
    assert list(validation.get_ydata()) == [pytest.approx(2.1)]
    assert set(floor.get_ydata()) == {0.2}
    assert comparable({"loss": 2.5}) == 2.5


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        main([str(tmp_path), "--out", str(tmp_path / "x.svg")])


def test_two_runs_of_one_name_are_told_apart(tmp_path):
    for parent in "ab":
        (tmp_path / parent / "base").mkdir(parents=True)
        (tmp_path / parent / "base" / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n', encoding="utf-8")
    out = tmp_path / "curves.svg"
    assert main([str(tmp_path / "a" / "base"), str(tmp_path / "b" / "base"), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").count("<svg") == 1
