"""A report as its tests look at it: elements, ids and text, and whether it stands on its own."""

import base64
import hashlib
from html.parser import HTMLParser
from pathlib import Path

from minilm.lab.report import write_report


class Page(HTMLParser):
    """A page as elements, ids and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.raw = text
        self.elements: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def all(self, tag: str, **attributes: str) -> list[dict]:
        """The attributes of every such element."""
        return [a for t, a in self.elements if t == tag and all(a.get(k) == v for k, v in attributes.items())]


def page_of(folder: Path) -> Page:
    return Page(write_report(folder).read_text(encoding="utf-8"))


def assert_on_its_own(page: Page) -> None:
    """Nothing is fetched, and nothing runs but our script."""
    for _, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,")), attributes
        assert not [name for name in attributes if name.startswith("on")]
    assert "@import" not in page.raw
    assert "url(" not in page.raw.replace("url(#", "")
    scripts = page.raw.split("<script>")[1:]
    assert len(scripts) == len(page.all("script")) == 1
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    digest = base64.b64encode(hashlib.sha256(scripts[0].split("</script>")[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy["content"]
    assert policy["content"].startswith("default-src 'none'")
