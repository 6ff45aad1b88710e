"""How do code and commands get into the book so that they cannot differ from what is run?

Code is taken from the modules by name, output from the commands by running them. A name that is
not there any more, or a line that an excerpt starts or ends with, is an error.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import shlex
import textwrap
from functools import cache
from pathlib import Path

from markupsafe import Markup, escape

from minilm.__main__ import COMMANDS
from minilm.paths import PACKAGE, packaged


class MissingError(LookupError):
    """Something that the prose names and that is not there."""


def source(name: str, first: str | None = None, last: str | None = None) -> Markup:
    """The source of "minilm.model:Block.forward", from the line that holds `first` to one that holds `last`."""
    module, _, path = name.partition(":")
    try:
        found = importlib.import_module(module)
        file = inspect.getsourcefile(found)
        for part in path.split("."):
            found = getattr(found, part)
        lines, start = inspect.getsourcelines(found)
    except (ImportError, AttributeError, TypeError, OSError):
        raise MissingError(f"{name}: there is no such piece of code") from None
    place, lines = excerpt([line.rstrip("\n") for line in lines], first, last, name)
    where = f"{Path(file or '').resolve().relative_to(PACKAGE.parent).as_posix()}, {path}, from line {start + place}"
    return listing(textwrap.dedent("\n".join(lines)), "python", where)


def settings_file(name: str) -> Markup:
    """A settings file that comes with the package, whole."""
    path = packaged(name)
    if not path.is_file():
        raise MissingError(f"{name}: there is no such file")
    return listing(path.read_text(encoding="utf-8").rstrip(), "toml", name)


def excerpt(lines: list[str], first: str | None, last: str | None, name: str) -> tuple[int, list[str]]:
    """The lines from the one that holds `first` to the next that holds `last`, and where they begin."""
    start, end = 0, len(lines)
    if first is not None:
        start = next((i for i, line in enumerate(lines) if first in line), -1)
    if last is not None and start >= 0:
        end = next((i + 1 for i, line in enumerate(lines) if i >= start and last in line), -1)
    if start < 0 or end < 0:
        raise MissingError(f"{name}: no line holds {(first if start < 0 else last)!r}")
    return start, lines[start:end]


def listing(code: str, language: str, where: str) -> Markup:
    """Code in colour, with where it stands."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    shown = highlight(code, get_lexer_by_name(language), HtmlFormatter(nowrap=True))
    label = Markup("<figcaption>{}</figcaption>").format(where)
    return Markup(f'<figure class="listing">{label}<pre class="code" tabindex="0">{shown}</pre></figure>')


@cache
def output(command: str) -> tuple[str, ...]:
    """The lines that `python -m minilm COMMAND` prints."""
    name, *words = shlex.split(command)
    if name not in COMMANDS:
        raise MissingError(f"{name}: there is no such command")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        importlib.import_module(COMMANDS[name][0]).main(words)
    return tuple(printed.getvalue().rstrip("\n").split("\n"))


def run(command: str, first: str | None = None, last: str | None = None) -> Markup:
    """What a command prints, or a part of it."""
    _, lines = excerpt(list(output(command)), first, last, command)
    label = Markup("<figcaption>$ python -m minilm {}</figcaption>").format(command)
    text = escape(textwrap.dedent("\n".join(lines)))
    return Markup(f'<figure class="listing">{label}<pre tabindex="0">{text}</pre></figure>')
