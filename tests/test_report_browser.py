"""The report in a browser: it opens from disk, asks for nothing, and shows what a character reads.

Needs Chromium and playwright. Without them these tests are skipped, or fail if MINILM_REQUIRE_BROWSER=1.
"""

import base64
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sweeps import ALERT, poison, shared_sweep

from minilm.lab.report import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """Headless Chromium."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None or importlib.util.find_spec("playwright") is None:
        lacks = "no browser is installed" if program is None else "playwright is not installed"
        message = (
            f"{lacks}: the report was not looked at in a browser (apt-get install chromium; pip install playwright)"
        )
        if os.environ.get("MINILM_REQUIRE_BROWSER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # A container's root user has no sandbox; the only pages opened are our own.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    return write_report(shared_sweep(tmp_path_factory))


class Visit:
    """A page that was opened, and all that it said and asked for."""

    def __init__(self, browser, file: Path, **context) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.reading = self.page.locator(".reading").first

    def weights(self, side: int) -> np.ndarray:
        """The mean over all heads of one side, as it was packed: (T, T)."""
        packed = self.reading.locator(".side").nth(side).get_attribute("data-weights")
        length = self.reading.locator(".asker button").count()
        return np.frombuffer(base64.b64decode(packed), dtype=np.uint8).reshape(-1, length, length)[0] / 255

    def shades(self, side: int) -> np.ndarray:
        """What is shown of them: (T)."""
        cells = self.reading.locator(".side").nth(side).locator(".row").first.locator("i")
        shades = cells.evaluate_all("cells => cells.map(cell => Number(cell.style.getPropertyValue('--w')))")
        return np.array(shades) / 100

    def asking(self) -> int:
        """The place whose reading is shown."""
        states = self.reading.locator(".asker button").evaluate_all(
            "buttons => buttons.map(button => button.getAttribute('aria-pressed'))"
        )
        assert states.count("true") == 1
        return states.index("true")

    def assert_shows(self, place: int) -> None:
        """On both sides, to the roundings of a shade."""
        assert self.asking() == place
        for side in (0, 1):
            assert np.abs(self.shades(side) - np.sqrt(self.weights(side)[place])).max() < 0.01


@pytest.fixture
def visit(browser, report) -> Iterator:
    opened: list[Visit] = []

    def open_page(file: Path = report, **context) -> Visit:
        opened.append(Visit(browser, file, **context))
        return opened[-1]

    yield open_page
    for one in opened:
        one.context.close()


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
    """Contrast of 4.5 (WCAG AA) of text, also the faint and the marked, on the page."""
    seen = visit(color_scheme=scheme)
    styles = seen.page.evaluate(
        """() => Object.fromEntries([['page', 'body'], ['small', 'th small'], ['chip', '.chip'], ['wrong', 'del'],
           ['arm', '.side.arm h5'], ['control', '.side.control h5'], ['link', 'nav a'], ['tick', 'svg text']]
           .map(([name, where]) => [name, getComputedStyle(document.querySelector(where)).color])
           .concat([['paper', getComputedStyle(document.body).backgroundColor]]))"""
    )

    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(", ")]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    paper = light(styles.pop("paper"))
    assert (paper > 0.5) is (scheme == "light")
    for name, colour in styles.items():
        high, low = max(light(colour), paper), min(light(colour), paper)
        assert (high + 0.05) / (low + 0.05) >= 4.5, name


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
