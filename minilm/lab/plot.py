"""How did it learn? Curves of one run or several over one another, with the floor where it is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from minilm.errors import UserError
from minilm.lab.drawing import COLOURS, check_picture, new_figure, save, tidy
from minilm.options import optional, read_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Options:
    """Draw the losses of runs over their steps.

    Example: python -m minilm plot runs/base runs/no_mask --out curves.svg
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], optional("RUN [RUN ...]")]
    """folders of runs"""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("loss.svg")
    """picture to write: .svg, .png or .pdf"""
    scale: Literal["linear", "log"] = "linear"
    """scale of the loss"""


def main(argv: list[str] | None = None) -> int:
    options = read_options(Options, "plot", argv)
    if not options.runs:
        raise UserError("name at least one run, such as runs/base")
    check_picture(options.out)
    from minilm.runs import read_metrics

    curves = {}
    for folder in options.runs:
        path = folder / "metrics.jsonl"
        if not path.is_file():
            raise UserError(f"{path}: there is no such file, so {folder} is not the folder of a run")
        name = folder.name if [f.name for f in options.runs].count(folder.name) == 1 else str(folder)
        curves[name] = read_metrics(path)
    save(draw(curves, options.scale), options.out)
    print(f"wrote {options.out}")
    return 0


def draw(curves: dict[str, list[dict[str, Any]]], scale: str = "linear") -> Figure:
    """Training loss as a thin line, validation as points, the floor dashed; one colour a run.

    Where there is a floor the points are of the characters for which it is known: a window cut
    out of the text begins in mid-sentence, and of that first piece no model could know enough.
    """
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    floor = None
    for number, (name, records) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        steps = [r for r in records if "loss" in r]
        judged = [r for r in records if "validation" in r]
        axes.plot([r["step"] for r in steps], [r["loss"] for r in steps], color=colour, alpha=0.35, linewidth=0.8)
        axes.plot(
            [r["step"] for r in judged],
            [comparable(r["validation"]) for r in judged],
            color=colour,
            marker="o",
            markersize=4,
            label=f"{name}, validation (thin: training)",
        )
        floor = next((r["validation"]["floor"] for r in judged if "floor" in r["validation"]), floor)
    if floor is not None:
        axes.axhline(floor, color="black", linestyle="--", linewidth=1, label=f"floor of the language, {floor:.3f}")
    tidy(axes, "", "step", "loss, nats per character")
    axes.set_yscale(scale)
    axes.legend(frameon=False)
    return figure


def comparable(validation: dict[str, Any]) -> float:
    """The loss on the characters whose floor is known, or on all where none is."""
    return validation["floor"] + validation["excess"] if "floor" in validation else validation["loss"]
