"""Is the answer to an exercise of the book right?

`python -m minilm check` lists the exercises, `check 2` asks one, `check 2 ANSWER` checks an answer.
"""

from __future__ import annotations

import math
import re
import textwrap
from dataclasses import dataclass
from typing import Annotated

import tyro

from minilm.errors import UserError
from minilm.lab.exercises import Exercise, exercise, exercises
from minilm.options import optional, read_options

RIGHT, WRONG = 0, 1  # exit codes


@dataclass(frozen=True)
class Options:
    """The exercises of the book: list them, ask one, or check an answer.

    Example: python -m minilm check 2 0.5
    """

    chapter: Annotated[tyro.conf.Positional[int | None], optional("[CHAPTER]")] = None
    """chapter of the book; without it all exercises are listed"""
    answer: Annotated[tyro.conf.Positional[str | None], optional("[ANSWER]")] = None
    """a number or a word; without it the exercise is asked"""


def main(argv: list[str] | None = None) -> int:
    """The command; 0 for a right answer, 1 for a wrong one."""
    options = read_options(Options, "check", argv)
    if options.chapter is None:
        for number, asked in exercises().items():
            print(wrapped(f"{number:2}. ", asked.question))
        return RIGHT
    asked = exercise(options.chapter)
    if options.answer is None:
        print(f"{wrapped('', asked.question)}\npython -m minilm check {options.chapter} ANSWER")
        return RIGHT
    right = is_right(asked, options.answer)
    print(wrapped("Right. " if right else "Not so. ", asked.why if right else asked.hint))
    return RIGHT if right else WRONG


def is_right(asked: Exercise, given: str) -> bool:
    """Whether an answer is the right one; a UserError if it cannot be one."""
    answer = asked.answer()
    if isinstance(answer, str):
        word = re.sub(r"[\s-]+", "_", given.strip().lower()).removesuffix(".toml")
        if not re.search(r"[a-z]", word):
            raise UserError(f"{given!r}: is no answer; the exercise asks for a word")
        return word == answer
    return math.isclose(number(given), answer, rel_tol=max(asked.tolerance, 1e-9))


def number(given: str) -> float:
    """A number as people write it: 0.25, 1e-3, 80000, 80_000, 80,000."""
    text = given.strip()
    if re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{given!r}: is no number; write it like 0.25 or 80000")
    return value


def wrapped(start: str, text: str) -> str:
    return textwrap.fill(text, 100, initial_indent=start, subsequent_indent=" " * len(start))
