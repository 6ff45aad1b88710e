"""The whole book: built, true, whole, and looked at in a browser.

The page is built once, by a small model of a few steps; the real one, with its time and size, has a test of its own.
"""

import json
import re
import resource
from pathlib import Path

import pytest
from browsing import Visit
from pages import Page, assert_on_its_own
from sweeps import shared_sweep

from minilm.lab import book_sources
from minilm.lab.book import main
from minilm.lab.claims_lookup import article
from minilm.lab.example import exact
from minilm.lab.recall import Outcome

pytestmark = pytest.mark.slow
GOLDEN = Path(__file__).parent / "golden"
WIDTHS = {"phone": 375, "narrow": 320, "desktop": 1280}


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    """With a sweep and a measurement of distance; not to be written to."""
    folder = tmp_path_factory.mktemp("book")
    outcomes = [
        Outcome(rival, gap, 0, 500, accuracy, 0.1, 1000, 1.0)._asdict()
        for gap in (8, 16)
        for rival, accuracy in (("attention", 0.987), ("recurrence", 0.654))
    ]
    (folder / "distance.json").write_text(json.dumps(outcomes), encoding="utf-8")
    training = {**book_sources.SMALL["training"], "steps": 12, "evaluate_every": 4, "warmup": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(book_sources.SMALL, "training", training)
        sweep = shared_sweep(tmp_path_factory)
        words = ["--ablation", str(sweep), "--distance", str(folder / "distance.json")]
        assert main(["--out", str(folder / "book.html"), *words]) == 0
    return folder / "book.html"


@pytest.fixture(scope="module")
def page(book) -> Page:
    return Page(book.read_text(encoding="utf-8"))


@pytest.fixture
def seen(open_page, book) -> Visit:
    return open_page(book)


def test_it_is_built_in_two_minutes_of_two_cores_and_no_larger_than_a_page_should_be(run_cli, tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run_cli("minilm", "book", "--out", "my.html", cwd=tmp_path, timeout=600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"my.html: [\d.]+ MB, built in \d+ s\n", done.stdout)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2 * 120
    assert (tmp_path / "my.html").stat().st_size < 6_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["my.html"]
    text = Page((tmp_path / "my.html").read_text(encoding="utf-8")).text
    assert "This page was built without a sweep" in text
    assert "python -m minilm distance --keep distance.json" in text


def test_it_stands_on_its_own_and_its_links_lead_somewhere(page):
    assert_on_its_own(page)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [a["href"][1:] for a in page.all("a")] + [a["xlink:href"][1:] for a in page.all("use")]
    assert set(targets) <= set(ids)
    cited = {
        attributes["id"] for _, attributes in page.elements if re.fullmatch(r"[a-z]+\d{4}", attributes.get("id", ""))
    }
    assert cited == {target for target in targets if re.fullmatch(r"[a-z]+\d{4}", target)}  # all references are used
    assert [a["id"] for a in page.all("section")] == [*(f"chapter-{n}" for n in range(1, 14)), "references"]


def test_nothing_of_the_templates_is_left(page):
    # But for what the model writes, which can be anything.
    shown = Page(re.sub(r'<ul class="sample">.*?</ul>', "", page.raw, flags=re.DOTALL)).text
    for left in ("{{", "{%", "```", "undefined", " nan "):
        assert left not in shown
    assert all(a.get("aria-label") for a in page.all("svg"))


def test_the_numbers_are_the_golden_ones(page):
    for name in ("lookup", "lookup_masked"):
        lines = [" ".join(line.split()) for line in (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").split("\n")]
        shown = lines[3:36] if name == "lookup" else [line for line in lines if re.fullmatch(r"\w+: .* -> .*", line)]
        assert [line for line in shown if line and line not in page.text] == []
    mixture = exact(article())[0].mixture
    assert f"comes out as ({mixture[0]:.3f}, {mixture[1]:.3f})" in page.text


def test_what_was_given_is_told(page):
    assert "This page was built without a sweep" not in page.text
    assert "no_mask, against base: model.causal true -> false." in page.text
    assert "0.987" in page.text
    assert "distance --keep" not in page.text


def test_it_opens_from_disk_says_nothing_and_asks_for_nothing(seen, book):
    seen.page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    seen.page.wait_for_load_state("networkidle")
    assert seen.said == []
    assert [url for url in seen.requests if not url.startswith("data:image/png;base64,")] == [book.as_uri()]
    assert seen.page.locator("img").evaluate_all("all => all.filter(image => !image.naturalWidth).length") == 0


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_nothing_is_wider_than_the_screen(open_page, book, width):
    seen = open_page(book, viewport={"width": width, "height": 800})
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(open_page, book, scheme):
    seen = open_page(book, color_scheme=scheme)
    places = {
        **{"text": "section p", "question": "blockquote p", "link": "section a", "caption": "figcaption"},
        **{"number": ".number strong", "keyword": ".code .k", "string": ".code .sd", "comment": ".code .c1"},
        **{"holds": ".claim.holds b", "sharper": ".claim.sharper b", "fails": ".claim.fails b"},
        **{"tick": "svg text", "label": ".plane .small", "readout": ".readout"},
    }
    seen.assert_readable(places, scheme)


def weights_shown(seen: Visit) -> list[str]:
    return seen.page.locator(".words td output").all_inner_texts()


def test_a_word_that_is_moved_moves_the_weights(seen):
    example = article()
    assert weights_shown(seen) == [f"{w:.3f}" for w in exact(example)[0].weights]
    seen.page.locator(".words .masked").check()
    masked = exact(example, masked=True)[0]
    assert weights_shown(seen) == [*(f"{w:.3f}" for w in masked.weights), "hidden"]
    assert seen.page.locator(".mix").inner_text() == f"({masked.mixture[0]:.3f}, {masked.mixture[1]:.3f})"
    seen.page.locator(".words .masked").uncheck()
    seen.page.locator(".words .scaled").uncheck()
    assert weights_shown(seen) == [f"{w:.3f}" for w in exact(example, scaled=False)[0].weights]
    seen.page.locator(".words .reset").click()
    assert weights_shown(seen) == [f"{w:.3f}" for w in exact(example)[0].weights]


def test_a_word_is_dragged_by_hand_and_moved_by_keys(seen):
    start = weights_shown(seen)
    river = seen.page.locator(".plane .word").nth(1)
    river.scroll_into_view_if_needed()
    box = river.locator(".grip").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    seen.page.mouse.move(x, y)
    seen.page.mouse.down()
    seen.page.mouse.move(x - 60, y - 40)
    seen.page.mouse.up()
    dragged = weights_shown(seen)
    assert float(dragged[1]) < float(start[1])
    assert seen.page.locator(".words tbody tr").nth(1).locator("td").first.inner_text() < "1.00"
    river.focus()
    seen.page.keyboard.press("ArrowLeft")
    assert float(weights_shown(seen)[1]) < float(dragged[1])
    assert seen.said == []


def test_the_softmax_collapses_as_the_key_widens(seen):
    slider = seen.page.locator(".softmax input")

    def largest() -> list[float]:
        return [float(text) for text in seen.page.locator(".softmax .largest").all_inner_texts()]

    def passed() -> list[float]:
        return [float(text) for text in seen.page.locator(".softmax .passed").all_inner_texts()]

    start = largest(), passed()
    slider.fill("9")
    assert seen.page.locator(".softmax .width").inner_text() == "512"
    assert largest()[1] > start[0][1]
    assert passed()[1] < start[1][1]
    assert (largest()[0], passed()[0]) == (start[0][0], start[1][0])  # divided, nothing moves
    slider.fill("0")
    assert largest()[1] < 0.5
    # As the page had it before its script ran: the same numbers from Python.
    slider.fill("6")
    assert (largest(), passed()) == start


def test_pointing_at_a_character_shows_what_a_head_reads(seen):
    start = int(seen.reading.get_attribute("data-place"))
    seen.assert_shows(start)
    seen.reading.locator(".asker button").nth(5).hover()
    seen.assert_shows(5)
    assert seen.said == []


def test_it_stands_without_its_script(open_page, book):
    seen = open_page(book, java_script_enabled=False)
    assert weights_shown(seen) == [f"{w:.3f}" for w in exact(article())[0].weights]
    assert seen.page.locator(".words .masked").is_disabled()
    heights = seen.page.locator(".half").nth(1).locator(".bars i").evaluate_all("all => all.map(i => i.offsetHeight)")
    assert max(heights) > 50
    assert seen.page.locator("section svg").first.is_visible()
