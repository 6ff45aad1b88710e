"""Over what distance can a fact be carried, and over what distance can it be looked up?

`python -m minilm distance` trains small models on sentences that state two facts, wander off for
a while, and ask for them (see recall.py). What grows is the gap. The rivals get as many weights,
the same sentences and the same steps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from tqdm import tqdm

from minilm.errors import UserError
from minilm.lab.drawing import COLOURS, check_picture, line, new_figure, tidy
from minilm.lab.drawing import save as save_picture
from minilm.lab.options import print_json
from minilm.options import File, Flag, Number, optional, read_options
from minilm.paths import replace_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minilm.lab.recall import Outcome

GAPS: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
QUICK_GAPS: tuple[int, ...] = (8, 128)
SEEDS, QUICK_SEEDS = 3, 1
Rival = Literal["attention", "additive", "recurrence"]


@dataclass(frozen=True)
class Options:
    """Recall against the distance to what is recalled: attention, and a recurrence with as many weights.

    Example: python -m minilm distance --quick --plot distance.svg
    """

    gaps: Annotated[tuple[int, ...], optional("N [N ...]")] = ()
    """characters between facts and questions (8 16 32 64 128 256 512)"""
    rivals: Annotated[tuple[Rival, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = ("attention", "recurrence")
    """who takes part: attention, additive (which takes long beyond a gap of 64), recurrence"""
    seeds: Number = None
    """runs of each, from seed 0 up (3)"""
    quick: Flag = False
    """gaps 8 and 128 and one seed, where these are not given: a minute or two"""
    steps: int = 500
    """training steps, of 8 sentences each"""
    jobs: Number = None
    """runs at a time, each on one thread (as many as there are cores)"""
    keep: File = None
    """write each run that is done into this file (.json), and do not do again what is there"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot: File = None
    """draw accuracy against the gap into this .svg, .png or .pdf"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "distance", argv)
    check_picture(options.plot)
    usual_gaps, usual_seeds = (QUICK_GAPS, QUICK_SEEDS) if options.quick else (GAPS, SEEDS)
    gaps = tuple(sorted(set(options.gaps or usual_gaps)))
    seeds = usual_seeds if options.seeds is None else options.seeds
    jobs = (os.cpu_count() or 1) if options.jobs is None else options.jobs
    check(options, gaps, seeds, jobs)
    # The longest first, so that at the end no core waits long for another.
    runs = [
        (rival, gap, seed, options.steps)
        for gap in reversed(gaps)
        for seed in range(seeds)
        for rival in dict.fromkeys(options.rivals)
    ]
    outcomes = compare(runs, jobs, options.keep)
    if options.json:
        print_json([outcome._asdict() for outcome in outcomes])
    else:
        print("\n".join(page(outcomes)))
    if options.plot:
        save_picture(draw(outcomes), options.plot)
    return 0


def check(options: Options, gaps: tuple[int, ...], seeds: int, jobs: int) -> None:
    """A UserError with all that is wrong with what was given."""
    numbers = {"--seeds": seeds, "--steps": options.steps, "--jobs": jobs}
    numbers |= {f"--gaps {gap}": gap for gap in gaps}
    problems = [f"{name}: {value} is not at least 1" for name, value in numbers.items() if value < 1]
    problems += [] if options.rivals else ["--rivals: name at least one"]
    if options.keep and not options.keep.parent.is_dir():
        problems.append(f"--keep: there is no folder {options.keep.parent}; make it first")
    if problems:
        raise UserError("\n".join(problems))


def compare(runs: Sequence[tuple[str, int, int, int]], jobs: int, keep: Path | None) -> list[Outcome]:
    """Do each run (rival, gap, seed, steps) that `keep` does not hold, `jobs` at a time; sorted by gap."""
    from joblib import Parallel, delayed, parallel_config

    from minilm.lab.recall import run

    kept = {outcome[:4]: outcome for outcome in read_kept(keep)}
    todo = [wanted for wanted in runs if wanted not in kept]
    with parallel_config("loky", n_jobs=min(jobs, max(1, len(todo))), inner_max_num_threads=1):
        calls = Parallel(return_as="generator_unordered", batch_size=1)(delayed(run)(*wanted) for wanted in todo)
        for outcome in tqdm(calls, total=len(todo), desc="training", unit="run", leave=False, disable=None):
            kept[outcome[:4]] = outcome
            write_kept(keep, list(kept.values()))
    rivals = list(dict.fromkeys(rival for rival, *_ in runs))
    return sorted((kept[wanted] for wanted in runs), key=lambda o: (o.gap, rivals.index(o.rival), o.seed))


def read_kept(path: Path | None) -> list[Outcome]:
    """What an earlier command left."""
    from minilm.lab.recall import Outcome

    if path is None or not path.exists():
        return []
    try:
        return [Outcome(**found) for found in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: is not what --keep wrote ({error}); give another name") from None


def write_kept(path: Path | None, outcomes: list[Outcome]) -> None:
    """Put all outcomes in place of those before, at once, so that a kill leaves one or the other."""
    if path is not None:
        replace_text(path, json.dumps([outcome._asdict() for outcome in outcomes], indent=1))


def page(outcomes: list[Outcome]) -> list[str]:
    """All that the command prints."""
    from minilm.lab.recall import BATCH, chance

    seeds = len({outcome.seed for outcome in outcomes})
    # The last of each is that of the largest gap, which has all characters of the filler.
    sizes = {outcome.rival: f"{outcome.rival} {outcome.parameters:,}" for outcome in outcomes}
    lines = [
        f"Two facts, a gap, two questions; {outcomes[0].steps} steps of {BATCH} sentences; seeds: {seeds}",
        f"Parameters: {', '.join(sizes.values())}",
        f"Accuracy of the answers: mean (lowest to highest seed); {chance(1):.3f} without the facts",
        "",
        f"{'gap':>6}" + "".join(f"{rival:>24}" for rival in sizes),
    ]
    gaps = sorted({outcome.gap for outcome in outcomes})
    for gap in gaps:
        cells = [accuracies(outcomes, rival, gap) for rival in sizes]
        lines.append(f"{gap:6}" + "".join(f"{fmean(a):7.3f} ({min(a):.3f} to {max(a):.3f})" for a in cells))
    lines += [
        "",
        "Slope that comes through the gap before training, over that at the question (float32 ends near 1e-45):",
    ]
    for gap in gaps:
        cells = [[o.slope for o in outcomes if (o.rival, o.gap) == (rival, gap)] for rival in sizes]
        lines.append(f"{gap:6}" + "".join(f"{fmean(cell):24.1e}" for cell in cells))
    return lines


def accuracies(outcomes: list[Outcome], rival: str, gap: int) -> list[float]:
    """Of every seed."""
    return [outcome.accuracy for outcome in outcomes if (outcome.rival, outcome.gap) == (rival, gap)]


def draw(outcomes: list[Outcome]) -> Figure:
    """Accuracy against the gap: the mean as a line, every seed as a point."""
    from minilm.lab.recall import chance

    figure = new_figure()
    axes = figure.add_subplot()
    gaps = sorted({outcome.gap for outcome in outcomes})
    for number, rival in enumerate(dict.fromkeys(outcome.rival for outcome in outcomes)):
        line(axes, gaps, [fmean(accuracies(outcomes, rival, gap)) for gap in gaps], number, rival)
        mine = [outcome for outcome in outcomes if outcome.rival == rival]
        axes.scatter([o.gap for o in mine], [o.accuracy for o in mine], s=14, color=COLOURS[number], alpha=0.4)
    axes.axhline(chance(1), color="0.5", linewidth=1, linestyle=":")
    axes.text(gaps[0], chance(1), "without the facts", va="bottom", color="0.4", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(gaps, [str(gap) for gap in gaps])
    axes.set_ylim(0, 1.05)
    tidy(axes, "Recall against distance", "characters between fact and question", "share of answers that are right")
    axes.legend(frameon=False)
    return figure
