"""How do time and memory of attention grow with the length, and how well do they repeat?

`python -m minilm kernels` measures each back end and length once, in a process of its own. Here
that is done several times, taking turns, and its page is printed for the medians.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from minilm.errors import UserError
from minilm.lab import kernels
from minilm.lab.drawing import check_picture, save
from minilm.lab.kernels import BACKENDS, MIB, Measurement, measure_apart
from minilm.lab.options import print_json
from minilm.lab.spread import in_columns, spread, take_turns, told
from minilm.lab.traffic import TILES, traffic
from minilm.options import read_options

Runs = Mapping[tuple[int, str], Sequence[Measurement]]
UNITS = {"seconds": 1e-3, "allocated": MIB, "grown": MIB}  # of the table's figures


@dataclass(frozen=True)
class Options(kernels.Options):
    """Time and memory of explicit, tiled and fused attention against the length, several times each.

    Example: python -m minilm bench attention --lengths 512 1024 2048 --repeats 3 --plot attention.svg
    """

    repeats: int = 5
    """processes for each back end and length"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "bench attention", argv)
    check_picture(options.plot)
    kernels.check(options)
    if options.repeats < 1:
        raise UserError(f"--repeats {options.repeats}: must be at least 1")
    from minilm.lab.machine import heading, machine, turns

    here = machine(threads=options.threads)
    works = {
        (length, backend): partial(measure_apart, backend, length, options.width, options.tile, options.threads)
        for length in dict.fromkeys(options.lengths)
        for backend in BACKENDS
    }
    runs = take_turns(works, options.repeats)
    medians = [median(some) for some in runs.values()]
    moved = [traffic(max(options.lengths), options.width, tile) for tile in TILES]
    if options.json:
        print_json({"machine": here, "precision": "float32", **as_data(runs), **kernels.as_data(medians, moved)})
    else:
        lines = [
            *heading(here, "float32", turns(options.repeats)),
            *kernels.page(options, medians, moved),
            "",
            *page(runs),
        ]
        print("\n".join(lines))
    if options.plot:
        save(kernels.draw(options, medians, moved), options.plot)
    return 0


def median(some: Sequence[Measurement]) -> Measurement:
    """The median of each figure of one back end at one length."""
    seconds, allocated, grown = (spread([getattr(run, name) for run in some]).median for name in UNITS)
    return Measurement(some[0].backend, some[0].length, seconds, round(allocated), round(grown))


def page(runs: Runs) -> list[str]:
    """How far the repeats lie apart."""
    table = [("back end", "T", "time, ms", "peak of torch, MiB", "growth of process, MiB")]
    for (length, backend), some in runs.items():
        times, peaks, growths = (spread([getattr(run, name) / unit for run in some]) for name, unit in UNITS.items())
        table.append((backend, str(length), told(times, ".1f"), told(peaks, ".2f"), told(growths, ".2f")))
    told_above = "Above are the medians; each time is the best of some in one process. How they repeat:"
    return [told_above, "", *in_columns(table)]


def as_data(runs: Runs) -> dict[str, Any]:
    """What `--json` prints besides what `kernels` does."""
    return {"repeats": [run._asdict() for some in runs.values() for run in some]}
