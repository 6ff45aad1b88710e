"""What happens, number by number, when "bank" looks for its meaning?

`python -m minilm lookup` prints one lookup as one would write it on paper, from the same
`attention` that trains the language model, then the table of all lookups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minilm.errors import UserError
from minilm.lab.drawing import check_picture, name_ticks, new_figure, save
from minilm.lab.example import Example, Steps, Table, by_hand, choose, exact
from minilm.lab.example_file import read_example
from minilm.lab.lookup_page import page, show
from minilm.lab.options import print_json
from minilm.options import File, Flag, Input, Text, read_options
from minilm.paths import packaged


@dataclass(frozen=True)
class Options:
    """One word looks up the others: every number on the way, then the table of all words.

    Example: python -m minilm lookup --word bank --masked --by-hand
    """

    file: Input = None
    """TOML file with your own words and matrices, like data/lookup.toml; without it, the four words of the article"""
    word: Text = None
    """the word that asks"""
    words: Text = None
    """words to keep, and their order, as in: flooded,bank,river,the"""
    no_scale: Flag = False
    """leave out the division by the square root of the key width"""
    masked: Flag = False
    """hide the words that come after the one that asks"""
    by_hand: Flag = False
    """round every step to three decimals, as on paper, and mark the digits that differ from exact ones"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot: File = None
    """draw the table of weights into this .svg, .png or .pdf"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "lookup", argv)
    check_picture(options.plot)
    example = read_example(options.file or packaged("data/lookup.toml"))
    example = choose(example, options.words, options.word)
    how = {"scaled": not options.no_scale, "masked": options.masked}
    steps, table = exact(example, **how)
    pencil = [hand(example.asked_by(i), **how) for i in range(len(example.words))] if options.by_hand else []
    if options.json:
        print_json(as_data(example, steps, table, pencil, how))
    else:
        print("\n".join(page(example, steps, table, pencil, how)))
    if options.plot:
        save(draw(example, table), options.plot)
    return 0


def hand(example: Example, **how: bool) -> Steps:
    """`by_hand`, or why it cannot be done."""
    try:
        return by_hand(example, **how)
    except ArithmeticError:
        raise UserError("these scores are too large for arithmetic by hand; leave out --by-hand") from None


def as_data(example: Example, steps: Steps, table: Table, pencil: list[Steps], how: dict[str, bool]) -> dict[str, Any]:
    """What `--json` prints."""
    data = {
        "words": example.words,
        "asks": example.words[example.place],
        **how,
        "lookup": plain(steps),
        "table": {"weights": table.weights.tolist(), "flatness": table.flatness, "mixtures": table.mixtures},
    }
    return {**data, "by_hand": plain(pencil[example.place])} if pencil else data


def plain(steps: Steps) -> dict[str, Any]:
    """The steps with decimals turned into floats, and the slips as a list."""

    def floats(numbers: Any) -> Any:
        return [floats(n) for n in numbers] if isinstance(numbers, Sequence) else float(numbers)

    data = {name: floats(numbers) for name, numbers in steps._asdict().items() if name != "slips"}
    slips = [{"step": step, "place": i, "follows": float(digits)} for (step, i), digits in steps.slips.items()]
    return {**data, "slips": slips}


def draw(example: Example, table: Table) -> Any:
    """The table of weights as a map, darker for less."""
    figure = new_figure(1.6 + 0.9 * len(example.words), 1.4 + 0.75 * len(example.words))
    axes = figure.add_subplot()
    image = axes.imshow(table.weights.numpy(), cmap="cividis", vmin=0)
    for i, row in enumerate(table.weights.tolist()):
        for j, weight in enumerate(row):
            colour = "white" if weight < table.weights.max() / 2 else "0.1"
            axes.text(j, i, show(weight) if weight else "", ha="center", va="center", color=colour, fontsize=9)
    name_ticks(axes, example.words, example.words)
    axes.set(title="Who reads whom", xlabel="is read", ylabel="asks")
    figure.colorbar(image, ax=axes, label="weight")
    return figure
