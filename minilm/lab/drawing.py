"""How are pictures drawn, so that they look alike, need no display and can be read by the colour-blind?"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minilm.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinct under every common form of colour-blindness (Okabe and Ito 2008); lines differ in marker too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "x")
FORMATS = (".svg", ".png", ".pdf")


def new_figure(width: float = 6.4, height: float = 4.2) -> Figure:
    """An empty figure, in inches. No pyplot: nothing is shown, kept or set for the whole program."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def check_picture(path: Path | None) -> None:
    """Refuse what would keep a picture from being written, before anything is computed."""
    if path is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("pictures need matplotlib: pip install matplotlib")
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"{path}: a picture's name ends in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first")


def save(figure: Figure, path: Path) -> None:
    """Write the figure in the format that the name ends in; the same figure gives the same bytes."""
    import matplotlib

    undated = {"Date": None} if path.suffix.lower() == ".svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "minilm"}):
        try:
            figure.savefig(path, dpi=150, metadata=undated)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def line(axes: Any, x: Sequence[float], y: Sequence[float], number: int, label: str, **style: Any) -> None:
    """One line of a chart, in the colour and with the marker of its number."""
    axes.plot(x, y, color=COLOURS[number], marker=MARKERS[number], markersize=5, label=label, **style)


def tidy(axes: Any, title: str, x: str, y: str) -> None:
    """Title, axis names, a faint grid and no box."""
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def name_ticks(axes: Any, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Words along both axes of a map, as they are: a $ is no formula, and a space can be seen."""
    axes.set_xticks(range(len(columns)), [visible_word(w) for w in columns], parse_math=False)
    axes.set_yticks(range(len(rows)), [visible_word(w) for w in rows], parse_math=False)


def visible_word(word: str) -> str:
    """A word as it is, or in quotes with escapes if one could not see it."""
    return word if word.strip() == word and word.isprintable() and word else ascii(word)
