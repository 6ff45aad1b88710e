"""A page of ours as a browser shows it."""

import base64
from pathlib import Path

import numpy as np


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
        """On all sides, to the roundings of a shade."""
        assert self.asking() == place
        for side in range(self.reading.locator(".side").count()):
            assert np.abs(self.shades(side) - np.sqrt(self.weights(side)[place])).max() < 0.01

    def assert_readable(self, places: dict[str, str], scheme: str) -> None:
        """Text at each selector has a contrast of 4.5 (WCAG AA) with the page, which is light or dark as asked."""
        colour = "([name, where]) => [name, getComputedStyle(document.querySelector(where)).color]"
        styles = self.page.evaluate(f"places => Object.fromEntries(Object.entries(places).map({colour}))", places)
        paper = light(self.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert (paper > 0.5) is (scheme == "light")
        for name, found in styles.items():
            high, low = max(light(found), paper), min(light(found), paper)
            assert (high + 0.05) / (low + 0.05) >= 4.5, name


def light(colour: str) -> float:
    """Relative luminance of "rgb(1, 2, 3)"."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(", ")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
