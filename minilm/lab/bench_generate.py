"""How fast does a model write, and what does the cache of keys and values save?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from minilm.cli import split_inputs
from minilm.config import Config
from minilm.errors import UserError
from minilm.lab.bench_options import read_bench
from minilm.lab.drawing import line, new_figure, save, tidy
from minilm.lab.options import print_json
from minilm.lab.spread import Spread, in_columns, spread, take_turns, told, whisker
from minilm.options import File, Flag, optional
from minilm.settings import merge, validate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minilm.model import LanguageModel

PROG = "python -m minilm bench generate"
DESCRIPTION = """Characters per second that a model of these settings writes, with random weights.

$ python -m minilm bench generate --contexts 64 256 --length 1000
$ python -m minilm bench generate configs/base.toml --batch 8 --json
"""


@dataclass(frozen=True)
class Options:
    """What is written."""

    inputs: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        optional("[SETTINGS.toml]", "settings of the model (shakespeare.toml)"),
    ] = ()
    contexts: tuple[int, ...] = (64, 256)
    """contexts of the model"""
    length: int = 1000
    """characters of each text"""
    batch: int = 1
    """texts at once"""
    vocabulary: int = 65
    """number of different characters"""
    repeats: int = 5
    """texts of each"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot: File = None
    """draw the figures into this .svg, .png or .pdf"""


class Row(NamedTuple):
    """Characters per second at one context."""

    context: int
    cached: Spread
    uncached: Spread
    ratio: Spread  # of the two in the same round


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options, config = read_bench(Options, argv, prog=PROG, description=DESCRIPTION, check=check)
    configs = {context: with_context(config, context) for context in dict.fromkeys(options.contexts)}
    from minilm.lab.machine import heading, machine, turns

    here = machine(config.training.device)
    rows = measure(options, configs)
    if options.json:
        print_json({"machine": here, "precision": "float32", **as_data(options, config, rows)})
    else:
        print("\n".join([*heading(here, "float32", turns(options.repeats)), *page(options, config, rows)]))
    if options.plot:
        save(draw(rows), options.plot)
    return 0


def check(options: Options) -> None:
    """A UserError with all that is wrong with what was asked for."""
    numbers = [("--length", options.length, 1), ("--batch", options.batch, 1), ("--repeats", options.repeats, 1)]
    numbers.append(("--vocabulary", options.vocabulary, 2))
    problems = [f"{name} {value}: must be at least {least}" for name, value, least in numbers if value < least]
    problems += [f"{word}: weights are random, so no text is read" for word in split_inputs(options.inputs)[1]]
    if not options.contexts:
        problems.append("--contexts: name at least one")
    if problems:
        raise UserError("\n".join(problems))


def with_context(config: Config, context: int) -> Config:
    tables = merge(config.model_dump(), {"model": {"context": context}})
    return validate(tables, {}, f"--contexts {context}")


def measure(options: Options, configs: Mapping[int, Config]) -> list[Row]:
    """All contexts, cached and not, taking turns."""
    from minilm.device import choose_device
    from minilm.runs import build_model

    works = {}
    for context, config in configs.items():
        model = build_model(config, options.vocabulary).to(choose_device(config.training.device))
        for cached in (True, False):
            works[context, cached] = partial(
                characters_per_second, model, options.length, batch=options.batch, cached=cached
            )
            characters_per_second(model, 2, batch=options.batch, cached=cached)  # sets up what the first call does
    speeds = take_turns(works, options.repeats)
    rows = []
    for context in configs:
        with_cache, without = speeds[context, True], speeds[context, False]
        ratios = [a / b for a, b in zip(with_cache, without, strict=True)]
        rows.append(Row(context, spread(with_cache), spread(without), spread(ratios)))
    return rows


def characters_per_second(model: LanguageModel, length: int, *, batch: int, cached: bool) -> float:
    """Of all texts together, each from one character on; drawing the characters is part of it."""
    import torch

    from minilm.generation import generate
    from minilm.streams import generator

    prompt = torch.zeros(batch, 1, dtype=torch.int64)
    began = time.perf_counter()
    for _ in generate(model, prompt, length, generator=generator(0, "bench"), cached=cached):
        pass  # each character is on the CPU when it comes, so the device has done its work
    return batch * length / (time.perf_counter() - began)


def page(options: Options, config: Config, rows: list[Row]) -> list[str]:
    """The table for people."""
    model = config.model
    table = [("context", "cached, characters/s", "not cached, characters/s", "times faster")]
    for context, cached, uncached, ratio in rows:
        table.append((str(context), told(cached, ",.0f"), told(uncached, ",.0f"), told(ratio, ".1f")))
    return [
        f"{options.batch} x {options.length:,} characters: {model.n_layers} layers, {model.n_heads} heads, width "
        f"{model.width}, vocabulary {options.vocabulary}, random weights",
        "",
        *in_columns(table, words=0),
        "",
        "A text that is longer than the context goes on from its last half each time that is full, cached or not.",
        *(() if model.causal else ("This model is not causal, so it has nothing to keep and both are the same.",)),
    ]


def as_data(options: Options, config: Config, rows: list[Row]) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "model": config.model.model_dump(exclude={"context"}),
        **{name: getattr(options, name) for name in ("length", "batch", "vocabulary", "repeats")},
        "contexts": [
            {
                "context": row.context,
                "cached_characters_per_second": row.cached._asdict(),
                "uncached_characters_per_second": row.uncached._asdict(),
                "times_faster": row.ratio._asdict(),
            }
            for row in rows
        ],
    }


def draw(rows: list[Row]) -> Figure:
    """Speed against context, cached and not."""
    figure = new_figure()
    axes = figure.add_subplot()
    contexts = [row.context for row in rows]
    for number, (name, speeds) in enumerate(
        (("cached", [row.cached for row in rows]), ("not cached", [row.uncached for row in rows]))
    ):
        line(axes, contexts, [speed.median for speed in speeds], number, name)
        heights = [speed.median for speed in speeds]
        axes.errorbar(contexts, heights, yerr=whisker(speeds), fmt="none", ecolor="0.2", capsize=2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(contexts, [str(context) for context in contexts])
    axes.set_ylim(bottom=0)
    tidy(axes, "Writing", "context", "characters per second")
    axes.legend(frameon=False)
    return figure
