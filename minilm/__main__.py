"""The commands: `python -m minilm NAME ...`."""

from __future__ import annotations

import difflib
import importlib
import sys

from minilm.errors import UserError, run_main

# Each module brings its own options in `main(argv)` and is imported only when called.
COMMANDS = {
    "train": ("minilm.train", "train a model; `python train.py` in a source tree does the same"),
    "sample": ("minilm.sample", "write with a trained model"),
    "lookup": ("minilm.lab.lookup", "the four-word lookup, step by step, with every number"),
    "claims": ("minilm.lab.claims", "every claim of the article, measured"),
    "cost": ("minilm.lab.cost", "what attention costs: dot products, operations, memory"),
    "probe": ("minilm.lab.probe", "what goes on inside a trained model"),
    "ablate": ("minilm.lab.ablation", "arms x seeds: what each piece is for, predicted, measured, judged"),
    "report": ("minilm.lab.report", "the page of an ablation, made anew from its folder"),
    "bench": ("minilm.lab.bench", "how fast it is here: training, time to a loss, writing, attention, start-up"),
    "kernels": ("minilm.lab.kernels", "explicit, tiled and fused attention: time and memory against length"),
    "distance": ("minilm.lab.distance", "recall against distance: attention, and a recurrence of equal size"),
    "import": ("minilm.adopt", "a GPT-2 folder as a run that can be sampled and trained further"),
    "export": ("minilm.export", "a trained model as a folder that transformers loads"),
    "book": ("minilm.lab.book", "all of it as one page to read, with every number on it made anew"),
    "check": ("minilm.lab.check", "the exercises of the book, and whether an answer is right"),
    "plot": ("minilm.lab.plot", "curves of runs over one another, with the floor"),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python -m minilm COMMAND [OPTIONS]",
            "",
            *lines,
            "",
            "python -m minilm COMMAND --help tells the options of one.",
        ]
    )


def main() -> int:
    argv = sys.argv[1:]
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    if argv[0] not in COMMANDS:
        near = difflib.get_close_matches(argv[0], COMMANDS, n=1)
        advice = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"{argv[0]}: no such command{advice}\n{usage()}")
    return importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:])


def run() -> None:
    """The console script `minilm`."""
    run_main(main)


if __name__ == "__main__":
    run_main(main)
