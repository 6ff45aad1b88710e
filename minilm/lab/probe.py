"""What goes on inside a trained model? `python -m minilm probe RUN` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from minilm.errors import UserError
from minilm.lab.drawing import save
from minilm.lab.options import print_json
from minilm.options import Flag, Folder, RunFolder, Text, read_options


@dataclass(frozen=True)
class Options:
    """What goes on inside a trained model: every probe of the lab, on one checkpoint.

    Example: python -m minilm probe runs/base --text "the river bank" --plot-dir .
    """

    run: RunFolder
    """folder of a run, or of one of its checkpoints"""
    text: Text = None
    """text whose attention maps are shown; sentences of the corpus unless given"""
    which: Literal["best", "last"] = "last"
    """the checkpoint with the lowest validation loss, or the last one"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot_dir: Folder = None
    """draw the map of every head into this folder, as .svg"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "probe", argv)
    if options.plot_dir is not None and not options.plot_dir.is_dir():
        raise UserError(f"{options.plot_dir}: there is no such folder; make it first")
    from minilm.lab.probes import probe_run
    from minilm.lab.probes_page import page

    result = probe_run(options.run, options.which, text=options.text)
    if options.json:
        print_json(result)
    else:
        print("\n".join(page(str(options.run), result)))
    if options.plot_dir is not None:
        draw_maps(result, options.plot_dir)
    return 0


def draw_maps(result: dict[str, Any], folder: Path) -> None:
    """NAME-layer-1-head-1.svg and so on: one picture at a time, so that few are held."""
    import torch

    from minilm.lab.maps import draw_map

    for shown in result["texts"]:
        for layer, maps in enumerate(shown["maps"], start=1):
            for head, weights in enumerate(maps, start=1):
                name = f"{shown['name']}-layer-{layer}-head-{head}"
                save(draw_map(shown["text"], torch.tensor(weights), name), folder / f"{name}.svg")
