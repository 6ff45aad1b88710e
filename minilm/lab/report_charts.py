"""How do the figures of a sweep look?"""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from minilm.lab import drawing
from minilm.lab.drawing import visible_word
from minilm.lab.inline import ARM, CONTROL, TEXT, chart
from minilm.lab.report_data import Evidence, Sweep

COLOURS = (*drawing.COLOURS[:-1], TEXT)  # what is black on paper is as the text here
STROKES = ("-", "--", ":")  # of the first seven arms, of the next, of the rest
NEAR_ZERO = 0.01  # excess is drawn on a logarithmic scale outside of this


def curves(sweep: Sweep) -> list[dict[str, Any]]:
    """For each arm two charts beside its control: loss with the floor, and excess where there is one."""
    shown = []
    for number, (arm, control) in enumerate(sweep.pairs):
        both = f"{arm} and {control}"
        runs = sweep.of(arm), sweep.of(control)
        charts = [chart(f"loss-{number}", f"loss of {both}", draw_curves, "loss", *runs)]
        if any("excess" in line["validation"] for run in sweep.of(arm) for line in run.curve):
            charts.append(chart(f"excess-{number}", f"excess of {both}", draw_curves, "excess", *runs))
        shown.append({"arm": arm, "control": control, "charts": charts})
    return shown


def draw_curves(axes: Any, figure: str, arm: list[Evidence], control: list[Evidence]) -> None:
    """One figure of the evaluations against the step: mean over seeds, and a band from the least to the largest."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    for runs, colour, stroke in ((control, CONTROL, "--"), (arm, ARM, "-")):
        whole = [points(run, figure) for run in runs if not run.diverged]
        steps = sorted(set.intersection(*(set(run) for run in whole))) if whole else []
        if steps:
            values = np.array([[run[step] for step in steps] for run in whole])
            axes.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0)
            label = visible_word(runs[0].arm)
            axes.plot(steps, values.mean(0), stroke, color=colour, marker="o", markersize=3, label=label)
        for run in runs:
            line = points(run, figure)
            if run.diverged and line:
                label = f"{visible_word(run.arm)} seed {run.seed}, diverged"
                axes.plot(line.keys(), line.values(), ":", color=colour, marker="x", markersize=4, label=label)
    if figure == "loss":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        floors = [line["validation"]["floor"] for run in control for line in run.curve if "floor" in line["validation"]]
        if floors:
            axes.axhline(np.mean(floors), color=TEXT, linewidth=1, linestyle=(0, (1, 2)), label="floor")
        drawing.tidy(axes, "loss", "step", "nats per character")
    else:
        axes.set_yscale("symlog", linthresh=NEAR_ZERO)
        axes.axhline(0, color=TEXT, linewidth=1, linestyle=(0, (1, 2)), label="floor")
        drawing.tidy(axes, "excess: loss above the floor", "step", "nats per character")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, fontsize=8)


def points(run: Evidence, figure: str) -> dict[int, float]:
    """A figure of the evaluations by step."""
    return {line["step"]: line["validation"][figure] for line in run.curve if figure in line["validation"]}


def facet_bars(sweep: Sweep) -> list[Markup]:
    """For each facet a bar for each arm: what is left to learn at the end."""
    names = {name: None for run in sweep.runs for name in run.result["validation"].get("facets") or {}}
    height = 0.8 + 0.26 * len(sweep.arms)
    return [
        chart(f"facet-{number}", f"excess in {name} of each arm", draw_bars, sweep, name, height=height)
        for number, name in enumerate(names)
    ]


def draw_bars(axes: Any, sweep: Sweep, facet: str) -> None:
    """Means over seeds, each with a line from the least to the largest."""
    roots = set(sweep.arms) - {arm for arm, _ in sweep.pairs}
    for place, arm in enumerate(sweep.arms):
        facets = [run.result["validation"].get("facets") or {} for run in sweep.of(arm) if not run.diverged]
        values = [found[facet] for found in facets if facet in found]
        if not values:
            axes.text(0, place, " diverged" if not facets else " not known", va="center", fontsize=8)
            continue
        axes.barh(place, np.mean(values), height=0.7, color=CONTROL if arm in roots else ARM)
        axes.plot([min(values), max(values)], [place, place], color=TEXT, linewidth=1.2)
        after = {"xytext": (4, 0), "textcoords": "offset points"}
        axes.annotate(f"{np.mean(values):.3f}", (max(*values, 0), place), va="center", fontsize=8, **after)
    axes.set_yticks(range(len(sweep.arms)), [visible_word(arm) for arm in sweep.arms])
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    axes.margins(x=0.15)
    drawing.tidy(axes, visible_word(facet), "excess, nats", "")


def probe_lines(sweep: Sweep) -> list[Markup]:
    """All arms over one another: what a shuffle of the past costs, and what is left of the stream."""
    kinds = (
        ("orders", "loss when all that lies further back is shuffled", "characters left in place", "nats lost"),
        ("ranks", "effective rank of the stream", "blocks passed", "rank"),
    )
    return [
        chart(name, title, draw_lines, sweep, name, (title, x, y), width=4.8, height=3.6)
        for name, title, x, y in kinds
        if any(run.probes.get(name) for run in sweep.runs)
    ]


def draw_lines(axes: Any, sweep: Sweep, name: str, words: tuple[str, str, str]) -> None:
    """A line for each arm: the mean over its seeds of one of the probes' lists."""
    ticks: list[int] = []
    for number, arm in enumerate(sweep.arms):
        probes = [run.probes for run in sweep.of(arm) if run.probes.get(name)]
        if probes:
            means = np.array([probe[name] for probe in probes], dtype=float).mean(axis=0)
            own = probes[0]["order_distances"] if name == "orders" else list(range(len(means)))
            ticks = max(ticks, own, key=len)
            style = {"color": COLOURS[number % len(COLOURS)], "marker": drawing.MARKERS[number % len(drawing.MARKERS)]}
            stroke = STROKES[number // len(COLOURS) % len(STROKES)]
            axes.plot(range(len(means)), means, label=visible_word(arm), markersize=4, linestyle=stroke, **style)
    axes.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
    drawing.tidy(axes, *words)
    axes.legend(frameon=False, fontsize=8)
