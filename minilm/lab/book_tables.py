"""Which tables does the book show?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from markupsafe import Markup

from minilm.__main__ import COMMANDS
from minilm.lab import saturation
from minilm.lab.arms import changes
from minilm.lab.book_code import MissingError
from minilm.lab.book_figures import parameters
from minilm.lab.book_sources import Sources
from minilm.lab.book_values import block_weights
from minilm.lab.distance import accuracies
from minilm.lab.maps import texts_to_show
from minilm.lab.traffic import TILES, traffic
from minilm.lab.writing import write

Rows = Sequence[Sequence[Any]]  # the first is the heading; the first cell of each is its name
SAMPLE = 320  # characters
LONG = 80  # characters of a cell, from which on it is a sentence


def table(name: str, sources: Sources, known: dict[str, Any]) -> Markup:
    """One of the tables, as a <table>."""
    tables: dict[str, Callable[[], Markup]] = {
        "saturation": lambda: grid(saturation_rows()),
        "parameters": lambda: grid(parameter_rows(sources)),
        "facets": lambda: grid(facet_rows(sources)),
        "sample": lambda: sample(sources),
        "expected": lambda: grid(expected_rows(known["arms"])),
        "verdicts": lambda: grid(verdict_rows(known["verdicts"])),
        "distance": lambda: grid(distance_rows(sources)),
        "traffic": lambda: grid(traffic_rows()),
        "sizes": lambda: grid([("", "weights"), *((n, f"{w:,}") for n, w in block_weights().items())]),
        "commands": lambda: grid([("command", "what it does"), *((n, about) for n, (_, about) in COMMANDS.items())]),
    }
    if name not in tables:
        raise MissingError(f"{name}: there is no such table")
    return tables[name]()


def grid(rows: Rows) -> Markup:
    """Rows as HTML; what is not Markup is escaped. Where cells hold sentences, a phone shows each row as a card."""
    heading, *body = rows
    long = any(len(str(cell)) > LONG for row in body for cell in row)
    html = Markup('<table class="{}"><thead><tr>').format("cards" if long else "figures")
    html += Markup("").join(Markup('<th scope="col">{}</th>').format(cell) for cell in heading)
    html += Markup("</tr></thead><tbody>")
    for first, *cells in body:
        html += Markup('<tr><th scope="row">{}</th>').format(first)
        for name, cell in zip(heading[1:], cells, strict=True):
            html += Markup('<td data-label="{}">{}</td>').format(name, cell)
        html += Markup("</tr>")
    return html + Markup("</tbody></table>")


def saturation_rows() -> Rows:
    rows: list[Sequence[Any]] = [
        ("K", "spread, divided", "raw", "slope in the middle row, divided", "raw", "dead rows, divided", "raw")
    ]
    for width in saturation.WIDTHS:
        two = saturation.saturation(width, True), saturation.saturation(width, False)
        rows.append(
            (
                width,
                *(f"{run.std:.2f}" for run in two),
                *(f"{run.median:.3f}" for run in two),
                *(f"{run.dead:.0%}" for run in two),
            )
        )
    return rows


def parameter_rows(sources: Sources) -> Rows:
    counted = parameters(sources)
    total = sum(counted.values())
    rows = [(name, f"{count:,}", f"{count / total:.1%}") for name, count in counted.items()]
    return [("part", "parameters", "share"), *rows, ("all", f"{total:,}", "100%")]


def facet_rows(sources: Sources) -> Rows:
    """A sentence of each kind; its answers marked by their first letter, which is what decides."""
    trained = sources.trained
    facets = trained.last["facets"]
    rows: list[Sequence[Any]] = [("kind", "a sentence, its answers marked", "excess")]
    for name, (text, _) in texts_to_show(trained.corpus, trained.run.model.context).items():
        sentence = text.strip("\n")
        answers = trained.language.score(sentence + "\n").facets >= 0
        marked = Markup("").join(
            Markup("<mark>{}</mark>").format(c) if asked else c for c, asked in zip(sentence, answers, strict=False)
        )
        rows.append((name, marked, f"{facets[name]:.3f}" if name in facets else "-"))
    return rows


def sample(sources: Sources) -> Markup:
    """What the model writes, line by line."""
    trained = sources.trained
    lines = write(trained.run.model, trained.corpus, seed=trained.config.training.seed, length=SAMPLE)
    html = Markup("")
    for text, right in lines:
        kinds = {
            True: '<span class="right">{}</span>',
            False: "<del>{}</del>",
            None: '<span class="unjudged">{}</span>',
        }
        html += Markup("<li>" + kinds[right] + "</li>").format(text or "(empty line)")
    return Markup('<ul class="sample">{}</ul>').format(html)


def expected_rows(arms: Sequence[Any]) -> Rows:
    by_name = {arm.name: arm for arm in arms}
    rows = [("arm", "changes", "the formula becomes", "what was expected")]
    for arm in arms:
        if arm.control is not None and arm.config.expect is not None:
            changed = ", ".join(map(str, changes(arm.config, by_name[arm.control].config)))
            expect = arm.config.expect
            rows.append((arm.name, f"{changed} (against {arm.control})", expect.formula, expect.symptom))
    return rows


def verdict_rows(verdicts: Sequence[dict[str, Any]]) -> Rows:
    rows: list[Sequence[Any]] = [("arm", "verdict", "p (Holm)", "excess", "its control's", "difference")]
    for record in verdicts:
        chip = Markup('<span class="chip {}">{}</span>').format(record["kind"], record["verdict"])
        gap = next((gap for gap in record["differences"] if gap["name"] == "excess"), None)
        cells = (gap["arm"], gap["control"], gap["spread"]) if gap else ("-", "-", "-")
        rows.append((record["arm"], chip, record["p"], *cells))
    return rows


def distance_rows(sources: Sources) -> Rows:
    outcomes = sources.outcomes
    rivals = list(dict.fromkeys(outcome.rival for outcome in outcomes))
    rows: list[Sequence[Any]] = [("gap", *rivals)]
    for gap in sorted({outcome.gap for outcome in outcomes}):
        found = [accuracies(outcomes, rival, gap) for rival in rivals]
        rows.append((gap, *(f"{fmean(shares):.3f}" if shares else "-" for shares in found)))
    return rows


def traffic_rows() -> Rows:
    rows: list[Sequence[Any]] = [("tile", "numbers in fast memory", "explicit", "the paper's loops", "ours")]
    for tile in TILES:
        moved = traffic(4096, 64, tile)
        rows.append((tile, *(f"{n:,}" for n in (moved.fast, moved.explicit, moved.paper, moved.tiled))))
    return rows
