"""How does a figure become a part of a page?

Drawn by matplotlib, inlined as SVG: text stays text, and colours are the page's own, so that a
chart is light or dark with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from minilm.lab import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Stand for colours that the page decides; none of them is used for anything else.
TEXT, RULE, ARM, CONTROL = "#010203", "#040506", "#070809", "#0a0b0c"
PAGE = {
    **{TEXT: "currentColor", RULE: "var(--rule)", ARM: "var(--arm)", CONTROL: "var(--control)"},
    # What is black or grey on paper: lines, and the greys 0.3, 0.4 and 0.5 of notes in a figure.
    **{"stroke: #000000": "stroke: currentColor"},
    **dict.fromkeys(("#4c4c4c", "#4d4d4d", "#666666", "#7f7f7f", "#808080"), "var(--faint)"),
}
STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a $ in a name is no formula
    "axes.formatter.use_mathtext": False,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "grid.color": RULE,
    "axes.titlesize": 11,
}


def chart(
    name: str, title: str, draw: Callable[..., None], *args: Any, width: float = 4.4, height: float = 3.0
) -> Markup:
    """An <svg> with what `draw(axes, *args)` draws; `width` and `height` are in inches, see `picture`."""

    def whole() -> Figure:
        figure = drawing.new_figure(width, height)
        draw(figure.add_subplot(), *args)
        return figure

    return picture(name, title, whole)


def picture(name: str, title: str, draw: Callable[..., Figure], *args: Any) -> Markup:
    """An <svg> of the figure that `draw(*args)` makes. The page stretches it.

    Args:
        name: a word that is unique in the page, put before every id.
        title: said by screen readers.
    """
    import matplotlib
    from matplotlib.ticker import LogFormatter, LogLocator, NullFormatter

    with matplotlib.rc_context(STYLE | {"svg.hashsalt": name}):
        figure, file = draw(*args), StringIO()
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                if isinstance(axis.get_major_formatter(), LogFormatter):  # which would write powers as formulas
                    low, high = axis.get_view_interval()
                    if high < 100 * low:
                        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                    axis.set_major_formatter("{x:g}")
                    axis.set_minor_formatter(NullFormatter())
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    return inline(file.getvalue(), name, title)


def inline(text: str, name: str, title: str) -> Markup:
    """An SVG file as an element of a page: ids of its own, the page's colours, font and width."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\1{name}-", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)  # older matplotlib
    text = re.sub(r"font-family: [^;\"]*;?", "", text)
    text = re.sub(r'<svg([^>]*?) width="[^"]*" height="[^"]*"', r"<svg\1", text)
    for stand_in, colour in PAGE.items():
        text = text.replace(stand_in, colour)
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1))
