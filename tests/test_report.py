"""The report: all there, true to the files, one page on its own, and nothing in it but what we put there."""

import base64
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pages import Page, assert_on_its_own, page_of
from sweeps import ALERT, NAME, edit, make_sweep, poison, shared_sweep

from minilm.lab.report import main, write_report
from minilm.lab.report_reading import MOST_HEADS, rows_of


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    """Base and no_mask, two seeds; not to be written to."""
    return shared_sweep(tmp_path_factory)


@pytest.fixture(scope="module")
def page(sweep) -> Page:
    return Page(write_report(sweep).read_text(encoding="utf-8"))


@pytest.fixture
def copy(sweep, tmp_path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(sweep, tmp_path / "copy"))


def probes_of(sweep: Path, arm: str, seed: int = 0) -> dict:
    return json.loads((sweep / arm / f"seed-{seed}" / "probes.json").read_text(encoding="utf-8"))


def test_the_page_stands_on_its_own_with_verdicts_first(page, sweep):
    assert_on_its_own(page)
    assert [a["id"] for a in page.all("section")] == [
        *("verdicts", "expected", "curves", "facets", "reading", "writing", "probes", "settings"),
    ]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for a in page.all("a")} | {a["xlink:href"][1:] for a in page.all("use")}
    assert targets <= set(ids)
    assert (sweep / "report.html").stat().st_size < 5_000_000


def test_made_anew_it_is_the_same(page, copy, capsys):
    (copy / "report.html").unlink()
    assert main([str(copy)]) == 0
    assert capsys.readouterr().out.strip() == str(copy / "report.html")
    assert (copy / "report.html").read_text(encoding="utf-8") == page.raw


def test_verdicts_say_what_was_changed_expected_and_found(page, sweep):
    (record,) = json.loads((sweep / "verdicts.json").read_text())["arms"]
    chips = [a["class"] for a in page.all("span") if a.get("class", "").startswith("chip")]
    assert chips == [f"chip {record['verdict'].replace(' ', '-')}"] * 2
    assert "model.causal true -> false" in page.text
    gap = record["differences"]["excess"]
    assert f"excess {gap['mean']:.3g} [{gap['low']:.3g}, {gap['high']:.3g}]" in page.text
    assert "change of earlier scores by a later character: above 0.01" in page.text
    assert "formula Q K^T" in page.text
    assert "It <b>cheats</b>." in page.text  # as it is written, not as markup
    assert not [a for a in page.all("b") if a]
    assert "Learning rates are those of the base" in page.text


def test_each_arm_has_its_curves_with_the_floor_and_each_facet_its_bars(page):
    labels = [a["aria-label"] for a in page.all("svg")]
    assert labels[:2] == ["loss of no_mask and base", "excess of no_mask and base"]
    assert [label for label in labels if "of each arm" in label] == [
        f"excess in {facet} of each arm" for facet in ("sense", "order", "parity", "recall")
    ]
    assert page.text.count("floor") >= 2


def test_a_line_of_a_chart_is_the_mean_over_seeds(sweep):
    from minilm.lab.drawing import new_figure
    from minilm.lab.report_charts import draw_curves
    from minilm.lab.report_data import read_sweep

    data = read_sweep(sweep)
    axes = new_figure().add_subplot()
    draw_curves(axes, "loss", data.of("no_mask"), data.of("base"))
    lines = {line.get_label(): line for line in axes.get_lines()}
    losses = []
    for seed in (0, 1):
        text = (sweep / "no_mask" / f"seed-{seed}" / "metrics.jsonl").read_text()
        losses.append([r["validation"]["loss"] for r in map(json.loads, text.splitlines()) if "validation" in r])
    assert np.allclose(lines["no_mask"].get_ydata(), np.mean(losses, axis=0))
    assert list(lines["no_mask"].get_xdata()) == [4, 8]
    floors = [line["validation"]["floor"] for run in data.of("base") for line in run.curve]
    assert lines["floor"].get_ydata()[0] == pytest.approx(np.mean(floors))


def test_what_is_read_is_what_the_probes_found(page, sweep):
    """Both models, in the order control, arm: all weights for the script, and shades for the place that asks."""
    sides = [a for a in page.all("div") if a.get("class") in ("side control", "side arm") and "data-weights" in a]
    texts = probes_of(sweep, "base")["texts"]
    assert len(sides) == 2 * len(texts)
    for number, side in enumerate(sides):
        text = probes_of(sweep, ("base", "no_mask")[number % 2])["texts"][number // 2]
        length = len(text["text"])
        packed = np.frombuffer(base64.b64decode(side["data-weights"]), dtype=np.uint8).reshape(-1, length, length)
        maps = np.array(text["maps"]).reshape(-1, length, length)
        assert np.abs(packed[1:] / 255 - maps).max() < 0.002
        assert np.abs(packed[0] / 255 - maps.mean(axis=0)).max() < 0.002
    first = [int(a["style"].removeprefix("--w:")) for a in page.all("i") if "style" in a][: len(texts[0]["text"])]
    weights = np.array(texts[0]["maps"])[:, :, texts[0]["place"]].mean(axis=(0, 1))
    assert np.abs(np.array(first) - 100 * np.sqrt(weights)).max() <= 0.5001


def test_each_line_of_characters_is_one_stop_of_the_keyboard(page, sweep):
    buttons = page.all("button")
    assert len(buttons) == sum(len(text["text"]) for text in probes_of(sweep, "base")["texts"])
    assert len([a for a in buttons if a["tabindex"] == "0"]) == len(probes_of(sweep, "base")["texts"])
    assert all(a["aria-label"] for a in buttons)


def test_wrong_sentences_are_marked_and_no_other(page, sweep):
    lines = [line for arm in ("base", "no_mask") for line in probes_of(sweep, arm)["sample"]]
    assert len(page.all("del")) == 1 + sum(line["right"] is False for line in lines)  # one is in the explanation
    assert len(page.all("span", **{"class": "right"})) == sum(line["right"] is True for line in lines)


def test_probes_stand_beside_each_other(page, sweep):
    assert "LEAKS" in page.text
    mean = np.mean([probes_of(sweep, "base", seed)["honest_loss"] for seed in (0, 1)])
    assert f"{mean:.3g}" in page.text
    start, end = (
        np.mean([probes_of(sweep, "base", s)[name] for s in (0, 1)]) for name in ("flatness_start", "flatness")
    )
    assert f"{start:.3g} \N{RIGHTWARDS ARROW} {end:.3g}" in page.text


def test_all_that_it_takes_to_repeat_it_is_there(page, sweep):
    state = json.loads((sweep / "no_mask" / "seed-1" / "last" / "state.json").read_text())
    manifest = json.loads((sweep / "no_mask" / "seed-1" / "manifest.json").read_text())
    for word in (state["sha256"]["model.safetensors"], manifest["corpus_sha256"], manifest["torch"], "batch_size = 4"):
        assert word in page.text


def test_markup_in_names_texts_and_notes_is_shown_and_does_nothing(copy):
    poison(copy)
    page = page_of(copy)
    assert_on_its_own(page)
    assert {tag for tag, _ in page.elements} <= {
        *("html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "article", "script"),
        *(
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "p",
            "a",
            "b",
            "i",
            "small",
            "span",
            "div",
            "br",
            "ul",
            "li",
            "del",
            "code",
            "pre",
        ),
        *("table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "img", "details", "summary", "button"),
        *("dl", "dt", "dd", "svg", "g", "path", "use", "defs", "clippath", "rect", "text", "tspan"),
    }
    assert page.text.count(ALERT) >= 6  # note, formula, symptom, sample, version, text
    assert page.text.count(NAME) >= 6
    assert page.raw.count("<script") == 1
    assert all(a["src"].startswith("data:image/png") for a in page.all("img"))


def test_of_a_text_of_ones_own_and_one_seed_it_says_what_is_missing(tmp_path, tiny_text):
    corpus = {"source": "file", "path": (str(tiny_text),)}
    page = page_of(make_sweep(tmp_path / "out", seeds=1, corpus=corpus))
    assert "One seed" in page.text
    assert "no floor is known" in page.text
    assert "excess over the floor, over base's: above 1 not judged" in page.text
    assert "facets" not in [a["id"] for a in page.all("section")]
    assert next(a["aria-label"] for a in page.all("svg")) == "loss of no_mask and base"
    assert "excess of no_mask and base" not in page.raw
    assert "chip no-verdict" in page.raw
    assert not page.all("span", **{"class": "right"})
    assert len(page.all("del")) == 0


def test_a_preliminary_sweep_says_so(copy):
    edit(copy / "verdicts.json", lambda found: {**found, "preliminary": True})
    assert "Preliminary" in page_of(copy).text


def test_a_diverged_run_is_marked_and_is_in_no_mean(copy):
    def diverge(line):
        wrecked = {"status": "diverged", "note": "stopped at step 3", "validation": {}, "probes": {}}
        return {**line, **wrecked} if (line["arm"], line["seed"]) == ("no_mask", 1) else line

    edit(copy / "results.jsonl", diverge)
    page = page_of(copy)
    assert "Diverged: no_mask, seed 1: stopped at step 3." in page.text
    assert "no_mask seed 1, diverged" in page.text  # its curve, as far as it came
    leak = probes_of(copy, "no_mask", 0)["leak"]
    assert f"LEAKS, {leak:.3g}" in page.text


def test_an_arm_of_which_all_runs_diverged_leaves_a_page(copy):
    wrecked = {"status": "diverged", "note": None, "validation": {}, "probes": {}}
    edit(copy / "results.jsonl", lambda line: {**line, **wrecked} if line["arm"] == "no_mask" else line)
    for run in (copy / "no_mask").iterdir():
        shutil.rmtree(run / "last")
        (run / "metrics.jsonl").write_text("")
    page = page_of(copy)
    assert page.text.count("Diverged: no_mask") == 2
    assert "reading" not in [a["id"] for a in page.all("section")]


def test_what_is_not_there_is_named(copy):
    (copy / "verdicts.json").unlink()
    (copy / "base" / "seed-0" / "metrics.jsonl").unlink()
    (copy / "base" / "seed-1" / "probes.json").write_text("{")
    shutil.rmtree(copy / "no_mask" / "seed-0")
    page = page_of(copy)
    for missing in (
        "No verdicts",
        "base, seed 0: there is no metrics.jsonl",
        "base, seed 1:",
        "no_mask, seed 0: there is no probes.json",
        "no_mask, seed 0: there is no config.toml",
        "There are no verdicts yet.",
    ):
        assert missing in page.text
    # What is there is shown, beside the base.
    assert [a["aria-label"] for a in page.all("svg")][:2] == ["loss of no_mask and base", "excess of no_mask and base"]


def test_what_is_no_sweep_is_refused(copy, tmp_path, refusal):
    assert "there is no such folder" in refusal(write_report, tmp_path / "none")
    assert "no run of a sweep has finished" in refusal(write_report, tmp_path)
    (copy / "verdicts.json").write_text("[]")
    assert "verdicts.json: is damaged" in refusal(write_report, copy)
    (copy / "results.jsonl").write_text('{"arm": 3}\n')
    assert "line 1 is not the result of a run" in refusal(write_report, copy)
    (copy / "results.jsonl").write_text("{")
    assert "cannot be read" in refusal(write_report, copy)
    (copy / "results.jsonl").write_text("")
    assert "no run has finished yet" in refusal(write_report, copy)


def test_where_the_page_cannot_be_written_it_says_so_and_the_old_one_stays(copy, refusal):
    before = (copy / "report.html").read_text(encoding="utf-8")
    (copy / ".report.html.new").mkdir()
    assert "cannot be written" in refusal(write_report, copy)
    assert (copy / "report.html").read_text(encoding="utf-8") == before


def test_of_many_heads_each_layers_mean_is_shown():
    few, many = np.full((2, 2, 3, 3), 1 / 3), np.full((12, 12, 3, 3), 1 / 3)
    assert rows_of(few)[0] == ["all", "1.1", "1.2", "2.1", "2.2"]
    names, rows = rows_of(many)
    assert MOST_HEADS < 12 * 12
    assert (names[:3], len(rows)) == (["all", "1", "2"], 13)
