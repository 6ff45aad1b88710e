"""What does the model write, and which of its sentences does the language not have?"""

from __future__ import annotations

from typing import NamedTuple

from minilm.corpus import Corpus
from minilm.generation import generate
from minilm.model import LanguageModel
from minilm.streams import generator


class Line(NamedTuple):
    """A line that the model wrote."""

    text: str
    right: bool | None  # whether the language has it; None where that is not known or the line is not finished


def write(model: LanguageModel, corpus: Corpus, *, seed: int, length: int) -> list[Line]:
    """Draw `length` characters at temperature 1 from a new line on; arms that share a seed share the draws.

    Raises:
        FloatingPointError: the model's scores are no numbers.
    """
    prompt = corpus.vocabulary.encode(corpus.vocabulary.start)[None]
    draws = generate(model, prompt, length, generator=generator(seed, "sampling/probe"))
    *whole, unfinished = corpus.vocabulary.decode([int(draw) for draw in draws]).split("\n")
    language = corpus.language
    return [Line(line, None if language is None else line in language) for line in whole] + [Line(unfinished, None)]
