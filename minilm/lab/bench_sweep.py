"""How does the time of a training step grow with the model's width and its context?

Each as a power: p in time = c D^p or c T^p, beside the same power of the operations counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minilm.config import Config
from minilm.lab.drawing import line, tidy
from minilm.lab.effort import operations_per_token
from minilm.lab.spread import Spread, in_columns, told, whisker
from minilm.settings import merge, validate

WIDTHS, CONTEXTS = (64, 128, 256, 512), (64, 128, 256, 512, 1024)
AXES = {"width": "D", "context": "T"}


class Point(NamedTuple):
    """One size along one axis; all else is as in the settings."""

    axis: str
    size: int


class Step(NamedTuple):
    """One step at a point."""

    point: Point
    seconds: Spread
    operations: float


def points(config: Config, widths: Sequence[int], contexts: Sequence[int]) -> dict[Point, Config]:
    """The settings of every point, or a UserError about the first that cannot be."""
    sizes = [Point("width", width) for width in widths] + [Point("context", context) for context in contexts]
    changed = {p: merge(config.model_dump(), {"model": {p.axis: p.size}}) for p in dict.fromkeys(sizes)}
    return {p: validate(tables, {}, f"--{p.axis}s {p.size}") for p, tables in changed.items()}


def steps(settings: Mapping[Point, Config], tokens: Mapping[Point, Spread], vocabulary: int) -> list[Step]:
    """Times of steps from tokens per second, whose most is the least time."""
    found = []
    for point, config in settings.items():
        n = config.training.batch_size * config.training.accumulation * config.model.context
        speed = tokens[point]
        seconds = Spread(n / speed.median, n / speed.high, n / speed.low)
        found.append(Step(point, seconds, n * operations_per_token(config.model, vocabulary)))
    return found


def powers(found: Sequence[Step], axis: str) -> dict[str, float]:
    """Of time and of operations, over all sizes and over the two largest."""
    from minilm.lab.measures import slope

    mine = sorted((step for step in found if step.point.axis == axis), key=lambda step: step.point.size)
    fits = {}
    for name, some in (("all", mine), ("two largest", mine[-2:])):
        sizes = [step.point.size for step in some]
        fits[f"time, {name}"] = slope(sizes, [step.seconds.median for step in some])
        fits[f"operations, {name}"] = slope(sizes, [step.operations for step in some])
    return fits


def sweep_page(found: Sequence[Step], config: Config) -> list[str]:
    """The tables for people."""
    lines = ["", "", f"One training step of {config.training.batch_size} windows, settings as they are but for:"]
    for axis, letter in AXES.items():
        table = [(axis, "ms", "GFLOP", "GFLOP/s")]
        for point, seconds, operations in (step for step in found if step.point.axis == axis):
            ms = Spread(*(1000 * value for value in seconds))
            speed = operations / seconds.median / 1e9
            table.append((str(point.size), told(ms, ".1f"), f"{operations / 1e9:.2f}", f"{speed:.0f}"))
        fit = powers(found, axis)
        lines += ["", *in_columns(table)]
        for name in ("all", "two largest"):
            time, counted = fit[f"time, {name}"], fit[f"operations, {name}"]
            lines.append(f"{name}: time grows as {letter}^{time:.2f}, operations as {letter}^{counted:.2f}")
    return [
        *lines,
        "",
        "What a call costs however small its matrices are grows with nothing (power 0); norms, bends and sums grow",
        "as D and T (1), weights times activations as D^2 and T, scores and mixtures as D and T^2, Muon as D^3 and",
        "not with T. Where time grows less than operations, larger products use the machine better; where more,",
        "something that is not counted, such as memory that no longer fits into a cache, takes its share.",
    ]


def as_sweep_data(found: Sequence[Step]) -> dict[str, Any]:
    """What `--json` prints."""
    rows = [
        {"axis": s.point.axis, "size": s.point.size, "seconds": s.seconds._asdict(), "operations": s.operations}
        for s in found
    ]
    return {"steps": rows, "powers": {axis: powers(found, axis) for axis in AXES}}


def draw_sweep(charts: Sequence[Any], found: Sequence[Step]) -> None:
    """Time against each axis, with the slope that the operations have."""
    for axes, (axis, letter) in zip(charts, AXES.items(), strict=True):
        mine = [step for step in found if step.point.axis == axis]
        sizes, times = [step.point.size for step in mine], [step.seconds for step in mine]
        line(axes, sizes, [t.median for t in times], 0, "time")
        axes.errorbar(sizes, [t.median for t in times], yerr=whisker(times), fmt="none", ecolor="0.2", capsize=2)
        most = max(mine, key=lambda step: step.operations / step.seconds.median)
        rate = most.operations / most.seconds.median
        line(axes, sizes, [step.operations / rate for step in mine], 1, "operations, at the best rate seen here")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        tidy(axes, f"One step against {axis}", f"{axis} {letter}", "seconds")
        axes.legend(frameon=False)
