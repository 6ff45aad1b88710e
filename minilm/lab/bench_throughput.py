"""How many tokens does a second of training take in, and how much of the machine does that use?

Whole steps of the real loop, for every precision, back end, optimizer and batch size. Beside them
stands the largest matrix product per second that the machine was seen to do in the same minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import tyro

from minilm.cli import split_inputs
from minilm.config import Config
from minilm.errors import UserError
from minilm.lab.bench_options import read_bench
from minilm.lab.bench_sweep import CONTEXTS, WIDTHS, Point, Step, as_sweep_data, draw_sweep, points, steps, sweep_page
from minilm.lab.drawing import new_figure, save, tidy
from minilm.lab.effort import operations_per_second, operations_per_token
from minilm.lab.options import print_json
from minilm.lab.spread import Spread, bars, in_columns, spread, take_turns, told
from minilm.options import File, Flag, optional

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

PROG = "python -m minilm bench throughput"
DESCRIPTION = """Tokens per second of training, and the share of this machine's peak, on random characters.

$ python -m minilm bench throughput --batch-sizes 12 48
$ python -m minilm bench throughput configs/base.toml --backends fused --sweep --plot speed.svg
"""
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Options:
    """What is compared."""

    inputs: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        optional("[SETTINGS.toml]", "settings of the model and its training (shakespeare.toml)"),
    ] = ()
    precisions: tuple[Precision, ...] = ("float32", "bfloat16")
    """precisions of matrix products"""
    backends: tuple[Literal["explicit", "tiled", "fused"], ...] = ("explicit", "tiled", "fused")
    """back ends of attention"""
    optimizers: tuple[Literal["muon", "adamw"], ...] = ("muon", "adamw")
    """optimizers"""
    batch_sizes: Annotated[tuple[int, ...], optional()] = ()
    """windows in one step (as the settings say)"""
    vocabulary: int = 65
    """number of different characters"""
    sweep: Flag = False
    """also measure a step against width and context, with the settings as they are"""
    widths: tuple[int, ...] = WIDTHS
    """model widths of the sweep"""
    contexts: tuple[int, ...] = CONTEXTS
    """contexts of the sweep"""
    seconds: float = 1.0
    """of each turn"""
    repeats: int = 5
    """turns of each"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot: File = None
    """draw the figures into this .svg, .png or .pdf"""


class Variant(NamedTuple):
    """One way to train."""

    precision: str
    backend: str
    optimizer: str
    batch_size: int


class Peak(NamedTuple):
    """The largest product in one precision."""

    precision: str


class Row(NamedTuple):
    """What was measured of one variant."""

    variant: Variant
    tokens: Spread  # per second
    share: Spread  # of the peak in the same round


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options, config = read_bench(Options, argv, prog=PROG, description=DESCRIPTION, check=check)
    from minilm.device import choose_device, choose_precision, type_name
    from minilm.lab.machine import heading, machine, turns

    swept = points(config, options.widths, options.contexts) if options.sweep else {}
    device = choose_device(config.training.device)
    own = type_name(choose_precision(config.training.precision, device))
    here = machine(config.training.device)
    figures = measure(options, config, swept, device)
    rows = [row(variant, figures, config, options.vocabulary) for variant in variants(options, config)]
    peaks = {key.precision: spread(values) for key, values in figures.items() if isinstance(key, Peak)}
    found = steps(swept, {point: spread(figures[point]) for point in swept}, options.vocabulary)
    if options.json:
        more = {"sweep": as_sweep_data(found)} if found else {}
        print_json({"machine": here, **as_data(config, options, rows, peaks), **more})
    else:
        lines = heading(here, f"float32 but for matrix products, see below (auto: {own})", turns(options.repeats))
        lines += page(config, options, rows, peaks)
        lines += sweep_page(found, config) if found else []
        print("\n".join(lines))
    if options.plot:
        save(draw(rows, found), options.plot)
    return 0


def check(options: Options) -> None:
    """A UserError with all that is wrong with what was asked for."""
    numbers = [("--repeats", options.repeats, 1), ("--vocabulary", options.vocabulary, 2)]
    numbers += [("--batch-sizes", size, 1) for size in options.batch_sizes]
    problems = [f"{name} {value}: must be at least {least}" for name, value, least in numbers if value < least]
    if options.seconds <= 0:
        problems.append(f"--seconds {options.seconds:g}: must be above 0")
    lists = {"--precisions": options.precisions, "--backends": options.backends, "--optimizers": options.optimizers}
    problems += [f"{name}: name at least one" for name, chosen in lists.items() if not chosen]
    problems += [f"{word}: trains on random characters and takes no text" for word in split_inputs(options.inputs)[1]]
    if options.sweep and min(len(set(options.widths)), len(set(options.contexts))) < 2:
        problems.append("--widths, --contexts: an exponent takes two different sizes at least")
    if problems:
        raise UserError("\n".join(problems))


def variants(options: Options, config: Config) -> list[Variant]:
    """All that is compared."""
    sizes = options.batch_sizes or (config.training.batch_size,)
    ways = product(sizes, options.optimizers, options.precisions, options.backends)
    return [Variant(precision, backend, optimizer, size) for size, optimizer, precision, backend in ways]


def settings_of(variant: Variant, config: Config) -> Config:
    """The settings that a variant trains with."""
    training = {"precision": variant.precision, "optimizer": variant.optimizer, "batch_size": variant.batch_size}
    return config.model_copy(
        update={
            "model": config.model.model_copy(update={"backend": variant.backend}),
            "training": config.training.model_copy(update=training),
        }
    )


def measure(
    options: Options, config: Config, swept: Mapping[Point, Config], device: torch.device
) -> dict[Variant | Peak | Point, list[float]]:
    """Tokens per second of variants and points, operations per second of peaks; one figure a round."""
    from minilm.lab.timed import random_corpus, start, tokens_per_second, without_end

    settings: list[tuple[Variant | Point, Config]] = [
        *((variant, settings_of(variant, config)) for variant in variants(options, config)),
        *swept.items(),
    ]
    longest = max(setting.model.context for _, setting in settings)
    corpus = random_corpus(options.vocabulary, longest)
    works: dict[Variant | Peak | Point, Callable[[], float]] = {
        Peak(name): partial(operations_per_second, name, device, options.seconds) for name in options.precisions
    }
    with tempfile.TemporaryDirectory() as folder:
        for number, (key, setting) in enumerate(settings):
            run = start(without_end(setting), corpus, Path(folder) / str(number))
            works[key] = partial(tokens_per_second, run, options.seconds)
        return take_turns(works, options.repeats)


def row(variant: Variant, figures: Mapping[Any, list[float]], config: Config, vocabulary: int) -> Row:
    """The peak is that of the same round, so that what slows down both leaves the share alone."""
    each = operations_per_token(config.model, vocabulary)
    peaks = figures[Peak(variant.precision)]
    shares = [each * tokens / peak for tokens, peak in zip(figures[variant], peaks, strict=True)]
    return Row(variant, spread(figures[variant]), spread(shares))


def page(config: Config, options: Options, rows: Sequence[Row], peaks: Mapping[str, Spread]) -> list[str]:
    """The table for people."""
    model = config.model
    table = [("precision", "back end", "optimizer", "batch", "tokens/s", "share of peak, %")]
    for variant, tokens, share in rows:
        percent = Spread(*(100 * value for value in share))
        table.append((*variant[:3], str(variant.batch_size), told(tokens, ",.0f"), told(percent, ".1f")))
    each = operations_per_token(config.model, options.vocabulary)
    return [
        f"Whole training steps: {model.n_layers} layers, {model.n_heads} heads, width {model.width}, context "
        f"{model.context}, vocabulary {options.vocabulary}",
        "",
        *in_columns(table, words=3),
        "",
        *(
            f"Peak in {precision}: {told(Spread(*(value / 1e9 for value in peak)), ',.0f')} GFLOP/s, "
            "the quickest product of two large square matrices"
            for precision, peak in peaks.items()
        ),
        f"A token takes {each / 1e6:.2f} MFLOP forward and backward, optimizer and hidden pairs not counted.",
    ]


def as_data(config: Config, options: Options, rows: Sequence[Row], peaks: Mapping[str, Spread]) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "model": config.model.model_dump(),
        "repeats": options.repeats,
        "operations_per_token": operations_per_token(config.model, options.vocabulary),
        "peak_operations_per_second": {precision: peak._asdict() for precision, peak in peaks.items()},
        "variants": [
            {**r.variant._asdict(), "tokens_per_second": r.tokens._asdict(), "share_of_peak": r.share._asdict()}
            for r in rows
        ],
    }


def draw(rows: Sequence[Row], found: Sequence[Step]) -> Figure:
    """A bar for each variant and, of a sweep, lines against width and context."""
    figure = new_figure(15 if found else 7.2, max(4.0 if found else 2.4, 0.8 + 0.28 * len(rows)))
    first, *others = figure.subplots(1, 3 if found else 1, squeeze=False)[0]
    bars(first, {" ".join(map(str, r.variant)): r.tokens for r in rows})
    tidy(first, "Training", "tokens per second", "precision, back end, optimizer, batch")
    if found:
        draw_sweep(others, found)
    return figure
