"""How long does training take to reach a certain loss?

Speed is not what one wants to know: a step that is quick and teaches little is no gain. So train
until the loss on the whole validation part is at the target or under it, from several seeds. The
clock is the training loop's own, which stands still while it evaluates and saves.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from minilm.config import Config
from minilm.errors import UserError
from minilm.lab.bench_options import read_bench
from minilm.lab.drawing import COLOURS, new_figure, save, tidy
from minilm.lab.options import print_json
from minilm.lab.spread import Spread, in_columns, spread, told
from minilm.options import File, Flag, optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minilm.corpus import Corpus

PROG = "python -m minilm bench time-to-loss"
DESCRIPTION = """Seconds and tokens of training until the loss on the whole validation part is reached.

$ python -m minilm bench time-to-loss 1.8857 my.txt
$ python -m minilm bench time-to-loss 0.25 configs/base.toml --every 25 --repeats 5
"""


@dataclass(frozen=True)
class Options:
    """What is to be reached, and with what."""

    target: Annotated[tyro.conf.Positional[float], optional("TARGET")] = math.nan
    """loss to reach, in nats per character"""
    inputs: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        optional("[SETTINGS.toml] [TEXT ...]", "settings (shakespeare.toml), texts (its own)"),
    ] = ()
    every: int = 50
    """steps between evaluations, so also how finely the time is known"""
    repeats: int = 3
    """runs, from as many seeds"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot: File = None
    """draw the loss against the time into this .svg, .png or .pdf"""


class Point(NamedTuple):
    """One evaluation."""

    step: int
    tokens: int
    seconds: float  # of training
    loss: float


class Attempt(NamedTuple):
    """One run, to the target or to its last step."""

    seed: int
    curve: list[Point]
    wall: float  # seconds, with the evaluations
    note: str

    def reached(self, target: float) -> Point | None:
        """The evaluation at which it was there."""
        return next((point for point in self.curve if point.loss <= target), None)


def main(argv: list[str] | None = None) -> int:
    """The command; 0 also when the target is not reached, which is a result."""
    options, config = read_bench(Options, argv, prog=PROG, description=DESCRIPTION, check=check)
    from minilm.corpus import load_corpus
    from minilm.device import choose_device, choose_precision, type_name
    from minilm.lab.machine import heading, machine

    precision = type_name(choose_precision(config.training.precision, choose_device(config.training.device)))
    corpus = load_corpus(config.corpus, context=config.model.context, seed=config.training.seed)
    here = machine(config.training.device)
    attempts = [
        attempt(seeded(config, number, options.every, corpus), corpus, options.target)
        for number in range(options.repeats)
    ]
    if options.json:
        print_json({"machine": here, "precision": precision, **as_data(options, config, corpus, attempts)})
    else:
        lines = heading(
            here,
            f"matrix products of training in {precision}, all else in float32",
            f"{options.repeats}, a seed each",
        )
        print("\n".join([*lines, *page(options, config, corpus, attempts)]))
    if options.plot:
        save(draw(options, attempts), options.plot)
    return 0


def check(options: Options) -> None:
    """A UserError with all that is wrong with what was asked for."""
    problems = [
        f"--{name} {value}: must be at least 1"
        for name, value in (("every", options.every), ("repeats", options.repeats))
        if value < 1
    ]
    if not 0 < options.target < math.inf:
        problems.append("give the loss to reach, in nats per character, first: bench time-to-loss 1.8857 my.txt")
    if problems:
        raise UserError("\n".join(problems))


def seeded(config: Config, number: int, every: int, corpus: Corpus) -> Config:
    """The settings of run `number`, which evaluates on all there is and writes no samples on the way."""
    changes = {
        "seed": config.training.seed + number,
        "evaluate_every": every,
        "evaluation_characters": len(corpus.validation),
        "sample_every": config.training.steps,
    }
    return config.model_copy(update={"training": config.training.model_copy(update=changes)})


def attempt(config: Config, corpus: Corpus, target: float) -> Attempt:
    """Train until the target is reached or the steps are done; the loop's own lines go to stderr."""
    from minilm.lab.timed import Until, start
    from minilm.runs import read_metrics
    from minilm.training import characters_per_step, train

    note = ""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        run = start(config, corpus, Path(folder))
        began = time.perf_counter()
        try:
            train(run, Until(lambda: run.best is not None and run.best["loss"] <= target))
        except FloatingPointError as error:
            note = str(error)
        wall = time.perf_counter() - began
        records = read_metrics(Path(folder) / "metrics.jsonl")
    curve: list[Point] = []
    step, seconds = 0, 0.0
    for record in records:
        if "validation" in record:
            learned = (record["step"] - step) * characters_per_step(config)
            step, seconds = record["step"], seconds + learned / record["characters_per_second"]
            curve.append(Point(step, step * characters_per_step(config), seconds, record["validation"]["loss"]))
    return Attempt(config.training.seed, curve, wall, note)


def medians(options: Options, attempts: Sequence[Attempt]) -> dict[str, Spread]:
    """Over all runs; one that did not reach the target took longer than any, so its figures are infinite."""
    there = [a.reached(options.target) for a in attempts]
    return {
        name: spread([getattr(point, name) if point else math.inf for point in there])
        for name in ("seconds", "tokens", "step")
    }


def page(options: Options, config: Config, corpus: Corpus, attempts: Sequence[Attempt]) -> list[str]:
    """The table for people."""
    table = [("seed", "seconds", "tokens", "step", "loss there", "lowest loss", "with evaluations, s")]
    for a in attempts:
        point = a.reached(options.target)
        found = (f"{point.seconds:.1f}", f"{point.tokens:,}", f"{point.step}", f"{point.loss:.4f}") if point else None
        lowest = f"{min(point.loss for point in a.curve):.4f}" if a.curve else "-"
        table.append((str(a.seed), *(found or ("not reached", "-", "-", "-")), lowest, f"{a.wall:.1f}"))
    missed = sum(a.reached(options.target) is None for a in attempts)
    lines = [
        f"Training until the validation loss is {options.target:g} or less, on {corpus.description}",
        f"Evaluated every {options.every} steps of at most {config.training.steps}, on the whole validation part "
        f"({len(corpus.validation):,} characters).",
        "Seconds are of training alone: from the first step, evaluations left out. The last column has them in.",
        "",
        *in_columns(table),
        "",
        *(f"seed {a.seed}: {a.note}" for a in attempts if a.note),
    ]
    if missed:
        lines.append(f"{missed} of {len(attempts)} runs did not reach it; they count as longer than any.")
    if missed * 2 < len(attempts):
        figures = medians(options, attempts)
        lines.append(f"median: {told(figures['seconds'], '.1f')} s, {told(figures['tokens'], ',.0f')} tokens")
    return lines


def as_data(options: Options, config: Config, corpus: Corpus, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """What `--json` prints; null stands where the target was not reached."""
    return {
        "target": options.target,
        "every": options.every,
        "settings": config.model_dump(),
        "corpus": corpus.description,
        "validation_characters": len(corpus.validation),
        "runs": [
            {
                "seed": a.seed,
                "reached": point._asdict() if (point := a.reached(options.target)) else None,
                "seconds_with_evaluations": a.wall,
                "note": a.note,
                "curve": [p._asdict() for p in a.curve],
            }
            for a in attempts
        ],
        **{name: figure._asdict() for name, figure in medians(options, attempts).items()},
    }


def draw(options: Options, attempts: Sequence[Attempt]) -> Figure:
    """The loss of each run against its seconds of training, and the target."""
    figure = new_figure()
    axes = figure.add_subplot()
    for number, a in enumerate(attempts):
        colour = COLOURS[number % len(COLOURS)]
        times, losses = [p.seconds for p in a.curve], [p.loss for p in a.curve]
        axes.plot(times, losses, color=colour, marker=".", label=f"seed {a.seed}")
    axes.axhline(options.target, color="black", linestyle="--", linewidth=1, label=f"target, {options.target:g}")
    tidy(axes, "Time to a loss", "seconds of training", "validation loss, nats per character")
    axes.legend(frameon=False)
    return figure
