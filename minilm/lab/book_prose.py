"""How does the prose of the book become pages?

A chapter is Markdown. `{{ ... }}` in it calls the figures of book_values.py; a fenced block whose
first word is one of FENCES is replaced by what its name stands for. Lines `key: value` within it
are its settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from minilm.errors import UserError
from minilm.lab import book_code, book_figures, book_tables, book_widgets
from minilm.lab.book_code import MissingError
from minilm.lab.book_sources import Sources
from minilm.lab.book_values import FILTERS, finding, values
from minilm.lab.exercises import exercise

FOLDER = Path(__file__).parent / "chapters"
CODE = ("source", "file")  # what stands beside the prose before it


@dataclass(frozen=True)
class Chapter:
    number: int
    title: str
    html: Markup


Piece = Callable[[str, dict[str, str]], Markup]  # of the words after the fence's name, and its settings


def read_chapters(sources: Sources) -> list[Chapter]:
    """All chapters, or a UserError that says which name in which of them is not there any more."""
    environment = Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= FILTERS
    known = values(sources)
    chapters = []
    for number, path in enumerate(sorted(FOLDER.glob("*.md")), start=1):
        try:
            text = environment.from_string(path.read_text(encoding="utf-8")).render(known)
            title, _, rest = text.partition("\n")
            chapters.append(Chapter(number, title.removeprefix("# "), to_html(rest, fences(sources, known))))
        except (MissingError, TemplateError) as error:
            raise UserError(f"{path}: the book cannot be built: {error}") from None
    return chapters


def fences(sources: Sources, known: dict[str, Any]) -> dict[str, Piece]:
    """What a fenced block may begin with."""

    def code(show: Callable[..., Markup]) -> Piece:
        return lambda words, settings: show(words, settings.get("from"), settings.get("to"))

    return {
        "source": code(book_code.source),
        "run": code(book_code.run),
        "file": lambda words, _: book_code.settings_file(words),
        "shell": lambda _, settings: Markup('<pre class="shell" tabindex="0">{}</pre>').format(settings[""]),
        "figure": lambda words, settings: figure(book_figures.figure(words, sources), settings),
        "table": lambda words, settings: table(book_tables.table(words, sources, known), settings),
        "widget": lambda words, _: book_widgets.widget(words, sources),
        "number": lambda _, settings: number(settings[""]),
        "claim": lambda words, _: note(words),
        "exercise": lambda words, _: asked(int(words)),
    }


def to_html(text: str, known: dict[str, Piece]) -> Markup:
    """Prose with code beside the paragraphs that speak of it."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    pieces: list[tuple[str, Markup]] = []  # kind and HTML
    for block in blocks(markdown.parse(text)):
        first = block[0]
        if first.type == "fence":
            name, _, words = first.info.partition(" ")
            if name not in known:
                raise MissingError(f"{name}: no block is called so")
            pieces.append((name, known[name](words, settings_of(first.content))))
        else:
            for token in block:
                if token.type.startswith("heading"):
                    token.tag = f"h{int(token.tag[1]) + 1}"  # h1 is the book's, h2 the chapter's
            pieces.append((first.type, Markup(markdown.renderer.render(block, markdown.options, {}))))
    return Markup("").join(side_by_side(pieces))


def side_by_side(pieces: list[tuple[str, Markup]]) -> Iterator[Markup]:
    """Each listing beside the paragraph before it, with further listings that follow at once."""
    place = 0
    while place < len(pieces):
        kind, html = pieces[place]
        place, end = place + 1, place + 1
        while end < len(pieces) and pieces[end][0] in CODE:
            end += 1
        if kind == "paragraph_open" and end > place:
            code = Markup("").join(listing for _, listing in pieces[place:end])
            html = Markup('<div class="beside">{}<div>{}</div></div>').format(html, code)
            place = end
        yield html


def blocks(tokens: list[Token]) -> list[list[Token]]:
    """The tokens of each paragraph, list, heading or fence together."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        found[-1].append(token)
        depth += token.nesting
        if depth == 0:
            found.append([])
    return found[:-1]


def settings_of(content: str) -> dict[str, str]:
    """The lines "from: ...", "to: ...", "alt: ...", "caption: ..." of a fence; all other text under ""."""
    settings = {"": ""}
    for line in content.rstrip("\n").split("\n"):
        found = re.match(r"(from|to|alt|caption): ?(.*)", line)
        if found:
            settings[found[1]] = found[2]
        else:
            settings[""] += line + "\n"
    return settings


def prose(text: str) -> Markup:
    """A line of Markdown within something else."""
    return Markup(MarkdownIt("commonmark", {"html": False}).renderInline(text.strip()))


def figure(picture: Markup, settings: dict[str, str]) -> Markup:
    """A picture with what it shows: for the eye as a caption, for the ear as its label."""
    if not settings.get("alt"):
        raise MissingError("a figure has no alt text")
    picture = Markup(picture.replace('aria-label=""', Markup('aria-label="{}"').format(settings["alt"])))
    return Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(picture, prose(settings["caption"]))


def table(made: Markup, settings: dict[str, str]) -> Markup:
    caption = prose(settings["caption"])
    return Markup('<figure class="wide">{}<figcaption>{}</figcaption></figure>').format(made, caption)


def number(text: str) -> Markup:
    """The one number of a chapter, large, and what it says."""
    first, _, rest = text.strip().partition("\n")
    return Markup('<p class="number"><strong>{}</strong> <span>{}</span></p>').format(prose(first), prose(rest))


def note(check: str) -> Markup:
    """A claim of the article with what became of it; open where it does not hold word for word."""
    found = finding(check)
    kind = {True: "holds", False: "sharper" if found.core else "fails"}[found.as_stated and found.core]
    heading = {"holds": "Said, and so", "sharper": "Said too simply", "fails": "Said, and not so"}[kind]
    return Markup('<aside class="claim {}"><p><b>{}:</b> {}</p><p>{}</p></aside>').format(
        kind, heading, prose(found.claim), prose(found.precisely)
    )


def asked(chapter: int) -> Markup:
    """The exercise of a chapter."""
    command = f"python -m minilm check {chapter} ANSWER"
    return Markup(
        '<aside class="exercise"><h3>Exercise</h3><p>{}</p><pre class="shell" tabindex="0">{}</pre></aside>'
    ).format(exercise(chapter).question, command)
