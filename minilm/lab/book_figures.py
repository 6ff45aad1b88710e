"""Which pictures does the book show?

Those of the lab where there are any; the others are drawn here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from minilm.lab import collapse, cost, distance, lookup, plot, saturation
from minilm.lab.book_code import MissingError
from minilm.lab.book_sources import Sources
from minilm.lab.book_values import base, block_weights, slope
from minilm.lab.claims_lookup import article
from minilm.lab.drawing import COLOURS, line, new_figure, tidy
from minilm.lab.example import exact
from minilm.lab.inline import chart, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The two that most lines have are too dark for a dark page, which has others like them.
ON_PAGE = {COLOURS[0].lower(): "var(--control)", COLOURS[1].lower(): "var(--arm)"}
GAPS = (8, 16, 32, 64, 128, 256, 512)


def figure(name: str, sources: Sources) -> Markup:
    """An <svg> whose label is left empty, for the prose to fill in."""
    trained = sources.trained
    pictures: dict[str, Callable[[], Figure]] = {
        "lookup": lambda: lookup.draw(article(), exact(article())[1]),
        "masked": lambda: lookup.draw(article(), exact(article(), masked=True)[1]),
        "saturation": saturation.draw,
        "places": draw_places,
        "collapse": collapse.draw,
        "parameters": lambda: draw_bars(parameters(sources), "parameters"),
        "baselines": lambda: draw_bars(baseline_bars(sources), "nats per character"),
        "rate": draw_rate,
        "curve": lambda: plot.draw({"model": trained.metrics}, "log"),
        "facets": lambda: draw_facets(trained.metrics),
        "slopes": draw_slopes,
        "distance": lambda: distance.draw(sources.outcomes),
        "cost": lambda: cost.draw(cost.Shape()),
        "sizes": lambda: draw_bars(block_weights(), "weights in the blocks"),
    }
    if name == "ablations":
        return ablations(sources)
    if name not in pictures:
        raise MissingError(f"{name}: there is no such figure")
    svg = picture(f"book-{name}", "", pictures[name])
    for colour, own in ON_PAGE.items():
        svg = svg.replace(colour, own)
    return svg


def ablations(sources: Sources) -> Markup:
    """A chart for each arm of the sweep, beside its control."""
    from minilm.lab.report_charts import draw_curves

    sweep = sources.sweep
    if sweep is None:
        raise MissingError("ablations: there is no sweep to draw")
    charts = [
        chart(
            f"arm-{number}", f"excess of {arm} and {control}", draw_curves, "excess", sweep.of(arm), sweep.of(control)
        )
        for number, (arm, control) in enumerate(sweep.pairs)
    ]
    return Markup('<div class="charts" role="group" aria-label="">{}</div>').format(Markup("").join(charts))


def parameters(sources: Sources) -> dict[str, float]:
    """Of the base on Riverbank, part by part."""
    from minilm.parameters import parameter_table
    from minilm.runs import build_model

    model = build_model(base(), len(sources.trained.corpus.vocabulary))
    return {part.name: part.weights + part.biases for part in parameter_table(model) if part.weights + part.biases}


def baseline_bars(sources: Sources) -> dict[str, float]:
    """What counting loses, what the model loses, and the floor."""
    from minilm.corpus import baselines

    trained = sources.trained
    return {
        **baselines(trained.corpus),
        "the model": plot.comparable(trained.last),
        "floor": trained.last["floor"],
    }


def draw_bars(figures: Mapping[str, float], what: str) -> Figure:
    """A bar for each name, the first on top, with its figure."""
    from matplotlib.ticker import EngFormatter

    drawn = new_figure(6.4, 0.9 + 0.36 * len(figures))
    axes = drawn.add_subplot()
    axes.barh(range(len(figures)), list(figures.values()), color=COLOURS[0])
    for place, value in enumerate(figures.values()):
        told = f" {value:,}" if isinstance(value, int) else f" {value:.3f}"
        axes.annotate(told, (value, place), va="center", fontsize=9)
    axes.set_yticks(range(len(figures)), list(figures))
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    axes.margins(x=0.18)
    if all(isinstance(value, int) for value in figures.values()):
        axes.xaxis.set_major_formatter(EngFormatter())
    tidy(axes, "", what, "")
    return drawn


def draw_places() -> Figure:
    """The cosine of the angle between the vectors of two places, against how far they are apart."""
    from torch.nn import functional as F

    from minilm.embedding import sinusoids

    model = base().model
    table = F.normalize(sinusoids(model.context, model.width), dim=-1)
    drawn = new_figure(6.4, 3.2)
    axes = drawn.add_subplot()
    line(axes, range(model.context), (table @ table[0]).tolist(), 0, "")
    tidy(axes, "", "places apart", "cosine")
    return drawn


def draw_rate() -> Figure:
    """The learning rate of the base as a share of its peak."""
    from minilm.optim import learning_rate_factor

    training = base().training
    drawn = new_figure(6.4, 2.8)
    axes = drawn.add_subplot()
    axes.plot(range(training.steps), [learning_rate_factor(step, training) for step in range(training.steps)])
    axes.lines[0].set_color(COLOURS[0])
    tidy(axes, "", "step", "share of the peak")
    return drawn


def draw_facets(metrics: list[dict[str, Any]]) -> Figure:
    """Excess at the answers of each kind of question, against the step."""
    judged = [record for record in metrics if "facets" in record.get("validation", {})]
    drawn = new_figure(6.4, 3.6)
    axes = drawn.add_subplot()
    for number, name in enumerate(judged[-1]["validation"]["facets"]):
        there = [record for record in judged if name in record["validation"]["facets"]]
        steps = [record["step"] for record in there]
        line(axes, steps, [record["validation"]["facets"][name] for record in there], number, name)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    tidy(axes, "", "step", "excess, nats per character")
    axes.legend(frameon=False)
    return drawn


def draw_slopes() -> Figure:
    """What of the slope comes through a gap, in untrained models."""
    drawn = new_figure(6.4, 3.6)
    axes = drawn.add_subplot()
    for number, rival in enumerate(("attention", "recurrence")):
        line(axes, GAPS, [slope(rival, gap) for gap in GAPS], number, rival)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(GAPS, [str(gap) for gap in GAPS])
    tidy(axes, "", "characters between fact and question", "slope at the facts over slope at the question")
    axes.legend(frameon=False)
    return drawn
