"""What does the article claim, and what of it is so?

`python -m minilm claims` runs a check for each claim, through the same `attention` that trains
the language model, and prints what was measured and what does hold.
"""

from __future__ import annotations

import importlib
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from minilm.lab.drawing import check_picture, save
from minilm.lab.finding import FAILS, HOLDS, SHARPER, Finding
from minilm.lab.options import print_json
from minilm.options import Flag, Folder, read_options

PICTURES = ("saturation", "collapse")  # the modules of the lab that draw one
NOT_CHECKED = (
    "Not checked: the speed-ups of 15 %, 3 and 2.4 times and the 61.4 % on Path-X that the article quotes from Dao et "
    "al. 2022, which take their models, data and GPUs."
)


@dataclass(frozen=True)
class Options:
    """Every claim of the article with what was measured and whether it holds.

    Example: python -m minilm claims --plot-dir .
    """

    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot_dir: Folder = None
    """folder for the pictures: saturation (gradient against key width) and collapse (rank against depth)"""
    plot_format: Literal["svg", "png", "pdf"] = "svg"
    """format of the pictures"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "claims", argv)
    places = [options.plot_dir / f"{name}.{options.plot_format}" for name in PICTURES] if options.plot_dir else []
    for path in places:
        check_picture(path)
    findings = {check.__name__: check() for check in checks()}
    if options.json:
        print_json({name: {**vars(finding), "verdict": finding.verdict} for name, finding in findings.items()})
    else:
        print("\n".join(page(list(findings.values()))))
    for name, path in zip(PICTURES, places, strict=False):
        save(importlib.import_module(f"minilm.lab.{name}").draw(), path)
    return 0


def checks() -> tuple[Callable[[], Finding], ...]:
    """A check for each claim, in the order of the article."""
    from minilm.lab import claims_cost, claims_kernels, claims_lookup, collapse, geometry, saturation

    return (
        claims_lookup.the_word_that_decides_stands_two_to_the_left,
        claims_lookup.nothing_is_exact_and_nothing_is_missed,
        claims_lookup.weights_sum_to_one,
        claims_lookup.the_digits_printed_follow_from_each_other,
        saturation.scores_grow_with_the_root_of_the_key_width,
        saturation.unscaled_scores_saturate_the_softmax,
        claims_lookup.eight_times_the_scores_is_a_collapse,
        claims_lookup.bank_leaves_on_the_water_side,
        claims_lookup.the_takes_all_alike_and_bank_does_not,
        claims_lookup.every_row_is_largest_on_river,
        geometry.a_big_key_attracts_whatever_is_asked,
        claims_lookup.hiding_flooded_leaves_less_water,
        claims_lookup.hiding_a_word_lifts_all_others,
        claims_lookup.masking_padding_lifts_the_real_tokens,
        claims_cost.eight_heads_cost_as_much_as_one,
        claims_cost.two_heads_hold_what_one_cannot,
        claims_cost.dot_products_are_the_square_of_the_length,
        claims_kernels.time_and_memory_are_quadratic,
        claims_kernels.tiles_give_the_same_attention,
        claims_kernels.tiles_move_fewer_numbers,
        geometry.order_is_invisible,
        geometry.the_answer_lies_within_the_values,
        collapse.stacked_attention_collapses_into_one_layer,
        collapse.something_non_linear_must_stand_beside_attention,
        claims_cost.feed_forward_has_twice_the_parameters,
    )


def page(findings: list[Finding]) -> list[str]:
    """All that the command prints."""
    from minilm.lab import collapse, saturation

    lines: list[str] = []
    for number, finding in enumerate(findings, 1):
        lines += paragraph(f"{number:2}. ", finding.claim)
        lines += [f"    {finding.verdict.upper()}"]
        wide = max(len(name) for name in finding.figures)
        lines += [f"      {name:<{wide}}   {figure(value)}" for name, value in finding.figures.items()]
        lines += [*paragraph("    ", finding.precisely), ""]
    lines += ["What the softmax lets through, against the key width", *saturation.table(), ""]
    lines += ["What sets the positions apart, as a share of their norm, against depth", *collapse.table(), ""]
    counts = Counter(finding.verdict for finding in findings)
    lines += [f"{len(findings)} claims: " + ", ".join(f"{counts[v]} {v}" for v in (HOLDS, SHARPER, FAILS)) + "."]
    return [*lines, *paragraph("", NOT_CHECKED)]


def paragraph(start: str, text: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent=start, subsequent_indent=" " * len(start))


def figure(value: float) -> str:
    """Counts as they are, measured numbers to four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
