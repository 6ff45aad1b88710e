"""What did the arms show? One page to look at, from the files of a sweep.

`python -m minilm report OUT` makes OUT/report.html anew. It is one file that needs no network:
verdicts first, then the curves, what is left to learn per facet, what base and arm read in the
same sentence and what they write, the probes, and all that it takes to repeat the sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from minilm.lab import one_page
from minilm.options import read_options

REPORT = "report.html"


@dataclass(frozen=True)
class Options:
    """Make the report of a sweep anew, from what is in its folder.

    Example: python -m minilm report runs/ablation
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """folder of the sweep"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    print(write_report(read_options(Options, "report", argv).folder))
    return 0


def write_report(folder: Path) -> Path:
    """Write report.html into the sweep's folder, whole or not at all; returns its path."""
    from minilm.lab.report_data import read_sweep

    path = folder / REPORT
    one_page.write(path, render(read_sweep(folder)))
    return path


def render(sweep: Any) -> str:
    """The page."""
    from minilm.lab import report_charts, report_reading, report_tables

    return one_page.render(
        "report.html.j2",
        styles=["page.css"],
        scripts=["reading.js"],
        sweep=sweep,
        notes=report_tables.notes(sweep),
        verdicts=report_tables.verdicts(sweep),
        curves=report_charts.curves(sweep),
        facets=report_charts.facet_bars(sweep),
        readings=report_reading.readings(sweep),
        samples=report_reading.samples(sweep),
        probes=report_tables.probes(sweep),
        flatness=report_tables.flatness(sweep),
        probe_lines=report_charts.probe_lines(sweep),
        settings=report_tables.settings(sweep),
    )
