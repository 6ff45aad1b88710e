"""How fast is it here? `python -m minilm bench WHAT` measures this machine with the package's own code."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Literal

import tyro

from minilm.options import read_options


@dataclass(frozen=True)
class Options:
    """Measure this machine: medians over repeats that take turns, with the least and the most.

    - throughput: tokens per second of training, and the share of the machine's peak
    - time-to-loss: seconds of training until a validation loss is reached
    - generate: characters per second of writing, with and without the cache
    - attention: time and memory of the three back ends against the length
    - startup: seconds until --help answers, and until the first step

    `python -m minilm bench WHAT --help` tells the options of one.
    """

    what: tyro.conf.Positional[Literal["throughput", "time-to-loss", "generate", "attention", "startup"]]
    """what is measured"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    first, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    options = read_options(Options, "bench", [first])
    # Each module brings its own options and is imported only when called.
    return importlib.import_module(f"minilm.lab.bench_{options.what.replace('-', '_')}").main(rest)
