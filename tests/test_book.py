"""The book's parts: what is shown is what is there, and a name that is gone ends the build with a message."""

import inspect
import math
import re

import pytest
import torch
from markupsafe import Markup

from minilm.attention import dot_product
from minilm.lab import book_code, book_figures, book_prose, book_tables, book_values, book_widgets
from minilm.lab.book import main
from minilm.lab.book_code import MissingError, excerpt, output, source
from minilm.lab.book_prose import FOLDER, blocks, note, read_chapters, settings_of, side_by_side, to_html
from minilm.lab.claims import checks
from minilm.lab.finding import HOLDS
from minilm.lab.heads import passes

CHAPTERS = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))]
TEXT = "\n".join(CHAPTERS)


def words_of(html: str) -> str:
    return Markup(html).striptags()


def fenced(name: str) -> list[tuple[str, dict[str, str]]]:
    """The words and settings of every block of that name."""
    found = re.findall(rf"^```{name} ?([^\n]*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [(words, settings_of(content)) for words, content in found]


def test_every_chapter_has_its_question_code_number_picture_and_exercise():
    assert len(CHAPTERS) == 13
    for number, text in enumerate(CHAPTERS, start=1):
        assert re.match(r"# .+\n\n> .+\?\n", text), number
        assert re.search(r"^```(source|file|shell)", text, re.MULTILINE), number
        assert "```number\n" in text, number
        assert re.search(r"^```(figure|widget)", text, re.MULTILINE), number
        assert text.count("```exercise") == text.count(f"```exercise {number}\n") == 1


def test_code_that_is_shown_is_the_code_that_runs():
    whole = words_of(source("minilm.attention:dot_product"))
    assert " ".join(inspect.getsource(dot_product).split()) in whole
    assert "minilm/attention.py, dot_product, from line" in whole
    for words, settings in fenced("source"):
        assert source(words, settings.get("from"), settings.get("to"))
    for words, _ in fenced("file"):
        assert book_code.settings_file(words)


@pytest.mark.parametrize(
    "name", ["minilm.attention:gone", "minilm.gone:attention", "minilm.attention", "minilm.attention:dot_product.gone"]
)
def test_code_that_is_gone_is_missed(name):
    with pytest.raises(MissingError, match="there is no such piece of code"):
        source(name)


def test_a_line_that_is_gone_is_missed():
    assert excerpt(["a", "b", "c", "d"], "b", "c", "") == (1, ["b", "c"])
    for first, last in (("x", None), (None, "x"), ("b", "a")):
        with pytest.raises(MissingError, match="no line holds"):
            excerpt(["a", "b"], first, last, "")


def test_what_a_command_prints_is_what_the_golden_files_have(request):
    golden = request.path.parent / "golden"
    for command, file in {"lookup": "lookup", "lookup --masked": "lookup_masked"}.items():
        assert list(output(command)) == (golden / f"{file}.txt").read_text(encoding="utf-8").rstrip().split("\n")
    with pytest.raises(MissingError, match="no such command"):
        output("gone")


def test_each_claim_that_is_said_too_simply_has_its_note():
    noted = {words for words, _ in fenced("claim")}
    known = {check.__name__ for check in checks()}
    assert noted <= known
    # Those that hold as they are said need none.
    assert all(book_values.finding(name).verdict == HOLDS for name in known - noted)


def test_a_note_says_whether_it_holds():
    for check, start in {
        "bank_leaves_on_the_water_side": "Said, and so:",
        "every_row_is_largest_on_river": "Said too simply:",
        "the_word_that_decides_stands_two_to_the_left": "Said, and not so:",
    }.items():
        assert words_of(note(check)).startswith(start)
    with pytest.raises(MissingError, match="no such check"):
        note("gone")


def test_figures_have_a_caption_and_words_for_who_cannot_see_them():
    assert len(fenced("figure")) >= 13
    for words, settings in fenced("figure"):
        assert settings["alt"], words
        assert settings["caption"], words
    with pytest.raises(MissingError, match="no alt text"):
        book_prose.figure(Markup("<svg></svg>"), {"caption": "x"})


def test_numbers_that_are_gone_are_missed():
    for call in (
        lambda: book_values.found("weights_sum_to_one", "gone"),
        lambda: book_values.found("gone", "x"),
        lambda: book_values.look("gone", "weights"),
        lambda: book_values.cite("gone2000"),
        lambda: book_widgets.widget("gone", None),
        lambda: book_tables.table("gone", None, {}),
        lambda: to_html("```gone\n```\n", {}),
    ):
        with pytest.raises(MissingError, match="gone"):
            call()


def test_a_chapter_with_a_name_that_is_gone_is_named(monkeypatch, tmp_path, refusal):
    monkeypatch.setattr(book_prose, "values", lambda sources: {})
    monkeypatch.setattr(book_prose, "FOLDER", tmp_path)
    for text in ("# A\n{{ gone }}", "# A\n```source minilm.model:gone\n```", "# A\n{% gone %}"):
        (tmp_path / "01_a.md").write_text(text, encoding="utf-8")
        message = refusal(read_chapters, None)
        assert "01_a.md: the book cannot be built" in message
        assert "gone" in message


def test_no_number_of_ours_is_typed_in():
    """Prose may count, name a year or a section, and repeat the example; what was measured has three digits or more."""
    prose = re.sub(r"```(?!number).*?^```$|\{[{%].*?[}%]\}|`[^`]*`", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    typed = set(re.findall(r"\b\d[\d,.]*\d{2}\b", prose))
    assert typed <= {"0.500", "0.01", "1e-45", "512", "128", "4,096"}, typed


def test_a_listing_stands_beside_its_paragraph():
    pieces = [("paragraph_open", "a"), ("source", "b"), ("file", "c"), ("heading_open", "d"), ("source", "e")]
    marked = [(kind, Markup(html)) for kind, html in pieces]
    assert list(side_by_side(marked)) == ['<div class="beside">a<div>bc</div></div>', "d", "e"]


def test_html_in_prose_stays_text():
    assert "&lt;script&gt;" in to_html("a <script>\n", {})
    assert len(blocks([])) == 0
    assert "&lt;b&gt;" in book_tables.grid([("x", "y"), ("<b>", "1")])


def test_what_became_of_an_arm_follows_from_its_record():
    claim = {"missing": None, "expected": "loss: above 1", "measured": "2 [1, 3]", "holds": "5 of 5"}
    record = {"verdict": "shown", "claims": [claim], "notes": []}
    assert book_values.told(record).startswith("All that was expected came.\n\n- expected loss: above 1: measured 2")
    for verdict in ("not shown", "opposite", "diverged", "no verdict", "preliminary"):
        said = book_values.told({**record, "verdict": verdict, "notes": ["one seed"]})
        assert "All that was expected came" not in said
        assert "One seed." in said
    missing = {**claim, "missing": "which not all have"}
    assert "not judged, which not all have" in book_values.told({**record, "claims": [missing]})


def test_the_softmax_of_the_page_is_that_of_the_probes():
    flat = book_widgets.softmax_side(torch.zeros(16))
    assert flat["passed"] == pytest.approx(1)
    assert flat["largest"] == pytest.approx(1 / 16)
    scores = torch.tensor([1.0, 2.0, 0.0])
    expected = passes(scores.softmax(-1)[None, None, None], torch.tensor([3])).item()
    assert book_widgets.softmax_side(scores)["passed"] == expected


def test_slope_through_the_gap_is_that_of_the_command():
    near, far = book_values.slope("recurrence", 8), book_values.slope("recurrence", 32)
    assert 0 < far < near
    assert math.isfinite(book_values.slope("attention", 8))


def test_bars_tell_their_figures():
    figure = book_figures.draw_bars({"a": 1000, "b": 3}, "things")
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["1,000", "3"]


@pytest.mark.parametrize(
    "words",
    [
        ["--out", "{tmp}"],
        ["--out", "{tmp}/gone/book.html"],
        ["--run", "{tmp}/gone"],
        ["--ablation", "{tmp}/gone"],
        ["--distance", "{tmp}/gone.json"],
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_is_trained(words, tmp_path, refusal, monkeypatch):
    monkeypatch.setattr("minilm.lab.book_sources.train_small", lambda folder: pytest.fail("it trained"))
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) in refusal(main, [word.format(tmp=tmp_path) for word in words])
    assert not list(tmp_path.iterdir())


def test_a_run_on_another_text_is_refused(finished, refusal):
    assert "trained on Riverbank" in refusal(main, ["--run", str(finished)])
