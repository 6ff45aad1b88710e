"""The report in a browser: it opens from disk, asks for nothing, and shows what a character reads.

Needs a browser: see the fixture `browser`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from browsing import Visit
from sweeps import ALERT, poison, shared_sweep

from minilm.lab.report import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    return write_report(shared_sweep(tmp_path_factory))


@pytest.fixture
def visit(open_page, report) -> Callable[..., Visit]:
    return lambda file=report, **context: open_page(file, **context)


def test_it_opens_from_disk_says_nothing_and_asks_for_nothing(visit, report):
    seen = visit()
    seen.page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    seen.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    seen.page.wait_for_load_state("networkidle")
    assert seen.said == []
    # Maps are in the page itself, so nothing but the file is read from anywhere.
    assert [url for url in seen.requests if not url.startswith("data:image/png;base64,")] == [report.as_uri()]
    assert seen.page.locator("h1").is_visible()
    assert seen.page.locator("#verdicts table").is_visible()
    broken = seen.page.locator("img").evaluate_all("all => all.filter(image => !image.naturalWidth).length")
    assert broken == 0


def test_pointing_at_a_character_shows_what_it_reads(visit):
    seen = visit()
    start = int(seen.reading.get_attribute("data-place"))
    seen.assert_shows(start)
    before = seen.reading.locator(".readout span").all_inner_texts()
    seen.reading.locator(".asker button").nth(5).hover()
    seen.assert_shows(5)
    assert seen.reading.locator(".readout span").all_inner_texts() != before
    best = int(seen.weights(0)[5].argmax())
    assert f" at {best}: " in seen.reading.locator(".readout span").first.inner_text().split(",")[0]
    # What decides was measured for the first place only.
    assert not seen.reading.locator(".effect").first.is_visible()
    seen.reading.locator(".asker button").nth(start).hover()
    seen.assert_shows(start)
    assert seen.reading.locator(".effect").first.is_visible()
    assert seen.reading.locator(".readout span").all_inner_texts() == before
    assert seen.said == []


def test_the_keyboard_does_the_same(visit):
    seen = visit()
    start = int(seen.reading.get_attribute("data-place"))
    seen.page.locator("#reading summary").first.focus()
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.closest('.asker') !== null")
    seen.assert_shows(start)
    for key, place in (("ArrowLeft", start - 1), ("ArrowLeft", start - 2), ("ArrowRight", start - 1), ("Home", 0)):
        seen.page.keyboard.press(key)
        seen.assert_shows(place)
    seen.page.keyboard.press("ArrowLeft")
    seen.assert_shows(0)
    seen.page.keyboard.press("Tab")  # one stop for a line: the next is another line
    assert seen.page.evaluate("document.activeElement.closest('.reading')") is not None
    assert (
        seen.page.evaluate(
            "[...document.querySelectorAll('.reading')].indexOf(document.activeElement.closest('.reading'))"
        )
        == 1
    )
    assert seen.said == []


def test_a_finger_does_the_same(visit):
    seen = visit(viewport={"width": 375, "height": 800}, has_touch=True)
    seen.reading.locator(".asker button").nth(4).tap()
    seen.assert_shows(4)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(visit, scheme):
    """Also the faint and the marked."""
    seen = visit(color_scheme=scheme)
    names = {
        **{"page": "body", "small": "th small", "chip": ".chip", "wrong": "del", "arm": ".side.arm h5"},
        **{"control": ".side.control h5", "link": "nav a", "tick": "svg text"},
    }
    seen.assert_readable(names, scheme)


@pytest.mark.parametrize("width", [320, 375, 1280])
def test_nothing_is_wider_than_the_screen(visit, width):
    seen = visit(viewport={"width": width, "height": 800})
    seen.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_all_of_it_is_there_but_the_pointing(visit):
    seen = visit(java_script_enabled=False)
    assert seen.page.locator("#verdicts table").is_visible()
    assert seen.page.locator("#curves svg").first.is_visible()
    assert seen.reading.locator(".readout").first.inner_text().startswith("reads most")
    assert seen.reading.locator(".maps img").first.is_visible()
    seen.page.locator("#settings summary").first.click()
    assert seen.page.locator("#settings pre").is_visible()


def test_markup_in_what_is_reported_does_not_run(visit, report, tmp_path):
    folder = Path(shutil.copytree(report.parent, tmp_path / "out"))
    poison(folder)
    seen = visit(write_report(folder))
    seen.reading.locator(".asker button").nth(3).hover()
    seen.assert_shows(3)
    assert seen.page.evaluate("window.hit") is None
    assert seen.said == []
    assert [url for url in seen.requests if not url.startswith(("data:image/png;base64,", "file:"))] == []
    assert ALERT in seen.page.locator("#verdicts").inner_text()
