"""Do made-up results get the verdicts that they deserve?"""

import pytest

from minilm.config import Claim, Config, ExpectConfig
from minilm.lab.arms import Arm
from minilm.lab.figures import problem_with, value_of
from minilm.lab.table import table
from minilm.lab.verdicts import judge

BASE = [0.010, 0.012, 0.009, 0.011, 0.013]
WOBBLE = [1.0, 1.1, 0.9, 1.05, 0.95]


def arm(name: str = "arm", *claims: Claim, control: str | None = "base") -> Arm:
    expect = ExpectConfig(formula="f", symptom="s", claims=claims) if claims else None
    return Arm(name, Config(expect=expect), control)


ROOT = arm("base", control=None)


def excess(bound: float, compare: str = "ratio") -> Claim:
    return Claim(figure="excess", compare=compare, above=bound)


def results(name: str, values: list[float], **changes) -> list[dict]:
    return [
        {"arm": name, "seed": seed, "status": "finished", "early": {}, "probes": {"leak": 0.0}}
        | changes
        | {"validation": {"loss": 0.2 + value, "excess": value, "facets": {"order": 2 * value}}}
        for seed, value in enumerate(values)
    ]


def times(factor: float) -> list[float]:
    return [factor * b * w for b, w in zip(BASE, WOBBLE, strict=True)]


def verdict(*arms: Arm, runs: list[dict], preliminary: bool = False) -> dict:
    return judge([ROOT, *arms], [*results("base", BASE), *runs], preliminary=preliminary)[-1]


@pytest.mark.parametrize(("factor", "expected"), [(5, "shown"), (2, "not shown"), (1, "not shown"), (0.3, "opposite")])
def test_verdict_follows_the_bound(factor, expected):
    record = verdict(arm("arm", excess(3)), runs=results("arm", times(factor)))
    assert record["verdict"] == expected
    assert record["seeds"] == [0, 1, 2, 3, 4]
    assert record["claims"][0]["mean"] == pytest.approx(factor, rel=0.03)


def test_every_claim_has_to_hold():
    both = arm("arm", excess(3), Claim(figure="facets.order", compare="difference", above=1))
    record = verdict(both, runs=results("arm", times(5)))
    assert record["verdict"] == "not shown"
    assert record["p"] == max(claim["p"] for claim in record["claims"])


def test_more_arms_ask_for_more_evidence():
    claim = excess(4.3)
    alone = verdict(arm("arm", claim), runs=results("arm", times(5)))
    assert alone["verdict"] == "shown"
    others = [arm(f"other{i}", excess(3)) for i in range(9)]
    runs = [run for other in others for run in results(other.name, times(1))]
    together = verdict(*others, arm("arm", claim), runs=[*runs, *results("arm", times(5))])
    assert together["p"] == pytest.approx(10 * alone["p"])
    assert together["verdict"] == "not shown"


def test_one_seed_gets_no_verdict_and_says_so():
    record = judge(
        [ROOT, arm("arm", excess(3))], [*results("base", [0.01]), *results("arm", [0.09])], preliminary=False
    )[0]
    assert (record["verdict"], record["p"]) == ("no verdict", None)
    assert "one seed" in record["notes"][0]
    assert record["differences"]["excess"] == {"arm": 0.09, "control": 0.01}


def test_diverged_run_is_told_and_not_judged():
    runs = results("arm", times(5))
    runs[3] |= {"status": "diverged", "probes": {}}
    record = verdict(arm("arm", excess(3)), runs=runs)
    assert record["verdict"] == "diverged"
    assert record["notes"] == ["diverged: arm seed 3"]


def test_control_that_diverged_is_told_too():
    base = results("base", BASE)
    base[0]["status"] = "diverged"
    record = judge([ROOT, arm("arm", excess(3))], [*base, *results("arm", times(5))], preliminary=False)[0]
    assert (record["verdict"], record["notes"]) == ("diverged", ["diverged: base seed 0"])


def test_nothing_expected_nothing_judged_but_the_difference_is_told():
    record = verdict(arm("arm"), runs=results("arm", times(5)))
    assert record["verdict"] == "no verdict"
    assert record["differences"]["excess"]["p"] < 0.01


def test_figure_that_a_text_has_not_is_named_and_the_rest_is_judged():
    claims = (excess(3), Claim(figure="leak", below=0.1))
    runs = [*results("base", BASE), *results("arm", times(5))]
    for run in runs:
        run["validation"] = {"loss": run["validation"]["loss"]}
    record = judge([ROOT, arm("arm", *claims)], runs, preliminary=False)[0]
    assert record["verdict"] == "shown"
    assert record["notes"] == ["not judged: excess over the floor, which not all of these runs have"]
    assert record["claims"][0]["missing"]
    only = judge([ROOT, arm("arm", claims[0])], runs, preliminary=False)[0]
    assert only["verdict"] == "no verdict"
    page = "\n".join(table([record], runs, preliminary=False))
    assert "no floor is known" in page
    assert "which not all of these runs have" in page


def test_ratio_of_what_is_not_above_zero_is_not_shown():
    """A model that cheats has an excess below zero, which is no multiple of anything."""
    record = verdict(arm("arm", excess(3)), runs=results("arm", [-0.1] * 5))
    assert (record["verdict"], record["p"]) == ("not shown", 1.0)


def test_quick_verdicts_are_preliminary():
    record = verdict(arm("arm", excess(3)), runs=results("arm", times(5)), preliminary=True)
    assert record["verdict"] == "preliminary"
    assert record["notes"] == ["1 of 1 claims hold in every seed"]
    weak = verdict(arm("arm", excess(3), excess(4.9)), runs=results("arm", times(5)), preliminary=True)
    assert weak["notes"] == ["1 of 2 claims hold in every seed"]


def test_only_seeds_that_both_have_are_compared():
    record = verdict(arm("arm", excess(3)), runs=results("arm", times(5))[1:])
    assert record["seeds"] == [1, 2, 3, 4]


def test_table_is_markdown_with_verdicts_first():
    record = verdict(arm("arm", excess(3)), runs=results("arm", times(5)))
    lines = table([record], results("arm", times(5)), preliminary=False)
    tables = [line for line in lines if line.startswith("|")]
    assert "shown" in tables[2]
    assert all(line.count("|") == tables[0].count("|") for line in tables[:3])
    assert any("not tuned anew" in line for line in lines)
    assert any("excess over the floor, over base's: above 3" in line for line in tables)


def test_figures_are_found_or_refused_by_name():
    run = results("base", [0.5])[0] | {"early": {"excess": 0.7, "facets": {"order": 3}}}
    assert value_of(run, "excess") == 0.5
    assert value_of(run, "facets.order") == 1.0
    assert value_of(run, "early.facets.order") == 3.0
    assert value_of(run, "facets.parity") is None
    assert value_of(run, "rank") is None
    assert problem_with("excess") is None
    assert "did you mean excess?" in str(problem_with("exces"))
    assert "there are loss, excess" in str(problem_with("weather"))
