"""How are the words of a command line read, so that all commands answer alike to good words and to bad ones?"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from minilm.errors import UserError
from minilm.settings import nearest

Options = TypeVar("Options")
HELP = ("-h", "--help")
RULE = re.compile(r"[\u2500-\u257f\s-]+")  # the characters that tyro draws boxes with
EDGE = re.compile(r"^(\u2502 |  )|[\u2502 ]+$")


def optional(metavar: str | None = None, about: str | None = None) -> Any:
    """Of an option that may be left out: no "(default: None)" behind it."""
    return tyro.conf.arg(metavar=metavar, help=about, help_behavior_hint="")


Input = Annotated[Path | None, tyro.conf.Positional, optional("[FILE]")]
File = Annotated[Path | None, optional("FILE")]
Folder = Annotated[Path | None, optional("FOLDER")]
Text = Annotated[str | None, optional("TEXT")]
Number = Annotated[int | None, optional("N")]
Decimal = Annotated[float | None, optional("X")]
Flag = Annotated[bool, optional()]
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]

REGISTRY = ConstructorRegistry()
WANTED = {int: ("INT", "a whole number"), float: ("FLOAT", "a number")}


@REGISTRY.primitive_rule
def plain_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers, also such as may be left out: what is none gets a word for people, and no class or base."""
    kind = next((kind for kind in WANTED if info.type in (kind, kind | None)), None)
    if kind is None:
        return None
    metavar, wanted = WANTED[kind]

    def read(words: list[str]) -> Any:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"{words[0]!r} is not {wanted}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: value is None or type(value) in (kind, int),
        str_from_instance=lambda value: [str(value)],
    )


def read_options(options: type[Options], command: str, argv: list[str] | None) -> Options:
    """The options of `python -m minilm COMMAND`; their docstring is the help.

    Raises:
        UserError: what is wrong with the words.
    """
    prog = f"python -m minilm {command}"
    known: list[tuple[str, ...]] = [(name,) for name in inspect.signature(options).parameters]
    read, unknown = ask(options, argv, known, prog=prog, description=inspect.getdoc(options) or "")
    if unknown:
        raise UserError(f"{' '.join(unknown)}: more than it takes; {prog} --help tells what it does")
    return read


def ask(
    options: type[Options], argv: list[str] | None, known: list[tuple[str, ...]], *, prog: str, description: str
) -> tuple[Options, list[str]]:
    """One pass of tyro: the options, and the words that are left over.

    Args:
        known: the path of every option that there is.

    Raises:
        UserError: what tyro refuses, and the flags that are not known.
    """
    words = sys.argv[1:] if argv is None else argv
    said = io.StringIO()
    helped = any(word in HELP for word in words)
    try:
        with REGISTRY, contextlib.nullcontext() if helped else unwrapped(said):
            read, unknown = tyro.cli(
                options,
                args=words,
                prog=prog,
                description=description,
                return_unknown_args=True,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as end:
        if not end.code or helped:
            raise
        refuse_unknown([word for word in words if word.startswith("--") and not is_known(word, known)], known)
        raise UserError(f"{unboxed(said.getvalue())}\n{prog} --help tells what it takes") from None
    refuse_unknown([word for word in unknown if word.startswith("-")], known)
    return read, unknown


@contextlib.contextmanager
def unwrapped(said: io.StringIO) -> Iterator[None]:
    """Catch what is told on stderr, in lines of any length."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        with contextlib.redirect_stderr(said):
            yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def unboxed(said: str) -> str:
    """What tyro says is wrong, without its box, and without what its help says better."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", said)  # colours
    _, *lines = [EDGE.sub("", line) for line in plain.splitlines()]
    blocks = ["\n".join(block) for ruled, block in groupby(lines, is_rule) if not ruled]
    return blocks[0].strip().removeprefix("Error parsing ")


def is_rule(line: str) -> bool:
    return bool(line.strip() and RULE.fullmatch(line))


def path_of(flag: str) -> tuple[str, ...]:
    """The table and name that a flag means: "--model.n-layers=3" -> ("model", "n_layers")."""
    return tuple(flag.partition("=")[0].lstrip("-").replace("-", "_").split("."))


def is_known(flag: str, known: list[tuple[str, ...]]) -> bool:
    *table, name = path_of(flag)
    return any((*table, spelled) in known for spelled in (name, name.removeprefix("no_")))


def refuse_unknown(flags: list[str], known: list[tuple[str, ...]]) -> None:
    """A UserError with a line for each of these flags."""
    if flags:
        raise UserError("\n".join(unknown_flag(word, known) for word in flags))


def unknown_flag(word: str, known: list[tuple[str, ...]]) -> str:
    """One line of advice."""
    near = nearest(path_of(word), known)
    advice = f"did you mean --{'.'.join(near).replace('_', '-')}?" if near else "--help lists them all"
    return f"{word}: no such flag; {advice}"
