"""Which character reads which?

The weights of a head as a map over the real characters: a row for each position that asks, a
column for each that is read. In the terminal as marks, as a picture in shades.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from minilm.corpus import Corpus
from minilm.lab.drawing import name_ticks, new_figure
from minilm.lab.trace import lookups, trace
from minilm.model import LanguageModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = ((0.75, "@"), (0.5, "#"), (0.25, "*"), (0.1, "+"), (0.05, ":"), (0.02, "."))  # weight from which on, mark
LEGEND = "@ 75% and more  # 50%  * 25%  + 10%  : 5%  . 2%"
LONGEST = 64  # characters of a text of which maps are made


def attention_maps(model: LanguageModel, tokens: Tensor) -> Tensor:
    """The weights of every head on one text: (T,) -> (L, H, T, T)."""
    return torch.stack([lookup.weights[0] for lookup in lookups(model, trace(model, tokens[None]))])


def place_of(text: Sequence[str]) -> int:
    """Where a text of no known structure is looked at: where it asks for its last character."""
    return max(0, len(text) - 2)


def texts_to_show(corpus: Corpus, context: int) -> dict[str, tuple[str, int]]:
    """Texts with a name each, and the place whose reading is most telling: the one that asks for an answer.

    A sentence for each facet where the language is known, else the start of the validation part.
    """
    size = min(context, LONGEST)
    if corpus.language is None:
        text = corpus.vocabulary.decode(corpus.validation[:size])
        return {"text": (text, place_of(text))}
    by_facet: dict[str, list[tuple[str, list[int]]]] = {}
    for line in corpus.language.sentences:
        facets = corpus.language.score(line + "\n").facets
        answers = (facets >= 0).nonzero()[0].tolist()
        by_facet.setdefault(corpus.language.facets[facets.max()], []).append((line, answers))
    # One from the middle, since the first few have their words in the order of the lists.
    chosen = {name: lines[len(lines) // 2] for name, lines in by_facet.items()}
    # A new line before each, so that an answer at place i of the line is asked for at place i of the text.
    return {name: (("\n" + line)[:size], min(answers[-1], size - 1)) for name, (line, answers) in chosen.items()}


def visible_character(character: str) -> str:
    """A character as one can see it on an axis: itself, a sign for a space or a new line, else its code.

    Of a piece of several characters, each.
    """
    if len(character) > 1:
        return "".join(map(visible_character, character))
    signs = {" ": "\N{OPEN BOX}", "\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"}
    if character in signs:
        return signs[character]
    plain = character.isprintable() and ord(character) < 0x2500 and not unicodedata.combining(character)
    return character if plain else ascii(character)[1:-1]  # beyond that, matplotlib's font has gaps


def column_head(character: str) -> str:
    """One column of a terminal for one character, or the first of several."""
    character = character[:1]
    return "_" if character == " " else character if character.isascii() and character.isprintable() else "?"


def terminal_map(text: Sequence[str], weights: Tensor) -> list[str]:
    """Lines of marks, for (T, T) weights; a row reads its columns."""
    names = [visible_row(character) for character in text]
    indent = max(map(len, names))
    lines = [" " * (indent + 2) + "".join(map(column_head, text))]
    for name, row in zip(names, weights.tolist(), strict=True):
        lines.append(f"{name:>{indent}}  " + "".join(mark(weight) for weight in row).rstrip())
    return lines


def visible_row(character: str) -> str:
    return character if character.isascii() and character.isprintable() and character != " " else ascii(character)


def mark(weight: float) -> str:
    return next((mark for bound, mark in MARKS if weight >= bound), " ")


def draw_map(text: Sequence[str], weights: Tensor, title: str) -> Figure:
    """One map, darker for less: (T, T)."""
    inches = 1.2 + 0.16 * len(text)
    figure = new_figure(inches + 1, inches)
    axes = figure.add_subplot()
    image = axes.imshow(weights.numpy(), cmap="cividis", vmin=0, vmax=1)
    names = [visible_character(character) for character in text]
    name_ticks(axes, names, names)
    axes.tick_params(labelsize=7)
    for label in axes.get_xticklabels():
        label.set_rotation(90 if len(label.get_text()) > 2 else 0)  # a code is wider than its column
    axes.set(title=title, xlabel="is read", ylabel="asks")
    figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
    return figure
