"""How long does one wait before anything happens?

Each measurement is a process of its own, from its start: what bare Python takes, what importing
takes, what `--help` takes, and how long until the first step of a run stands in its metrics.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from minilm.errors import UserError
from minilm.lab.drawing import check_picture, new_figure, save, tidy
from minilm.lab.options import print_json
from minilm.lab.spread import Spread, bars, in_columns, spread, take_turns, told
from minilm.options import File, Flag, Input, read_options
from minilm.paths import PACKAGE, packaged
from minilm.settings import load_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POLL = 0.002  # seconds between two looks at the metrics, so also how finely the first step is known


@dataclass(frozen=True)
class Options:
    """Seconds until Python is there, until --help answers, and until the first step of training is done.

    Example: python -m minilm bench startup configs/shakespeare.toml --repeats 10
    """

    settings: Input = None
    """settings of the run whose first step is awaited (configs/base.toml)"""
    repeats: int = 5
    """processes of each"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot: File = None
    """draw the figures into this .svg, .png or .pdf"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "bench startup", argv)
    check_picture(options.plot)
    if options.repeats < 1:
        raise UserError(f"--repeats {options.repeats}: must be at least 1")
    script = PACKAGE.parent / "train.py"
    if not script.is_file():
        raise UserError(f"{script}: is not there; start-up is measured in a source tree, which has train.py")
    settings = options.settings or packaged("configs/base.toml")
    load_config(settings)  # refused here, where its problems are told as they should be
    from minilm.lab.machine import heading, machine, turns

    here = machine()
    python = [sys.executable]
    works: dict[str, Callable[[], float]] = {
        "bare python": partial(seconds_of, [*python, "-c", "pass"]),
        "import minilm": partial(seconds_of, [*python, "-c", "import minilm"]),
        "import torch": partial(seconds_of, [*python, "-c", "import torch"]),
        "train.py --help": partial(seconds_of, [*python, str(script), "--help"]),
        "first step": partial(seconds_to_first_step, [*python, str(script), str(settings)]),
    }
    times = {name: spread(values) for name, values in take_turns(works, options.repeats).items()}
    if options.json:
        data = {name: time._asdict() for name, time in times.items()}
        print_json({"machine": here, "settings": str(settings), "repeats": options.repeats, "seconds": data})
    else:
        lines = heading(here, f"of the first step as {settings.name} says", turns(options.repeats))
        print("\n".join([*lines, *page(times, settings)]))
    if options.plot:
        save(draw(times), options.plot)
    return 0


def seconds_of(command: list[str]) -> float:
    """From the start of a process to its end."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    elapsed = time.perf_counter() - began
    if done.returncode:
        raise UserError(failure(command, done.stderr))
    return elapsed


def seconds_to_first_step(command: list[str]) -> float:
    """From the start of train.py to the first line of its metrics; the run is ended then."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        metrics = Path(folder) / "run" / "metrics.jsonl"
        began = time.perf_counter()
        process = subprocess.Popen([*command, "--out", str(metrics.parent)], stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while not (metrics.is_file() and metrics.stat().st_size):
                if process.poll() is not None:
                    errors.seek(0)
                    raise UserError(failure(command, errors.read()))
                time.sleep(POLL)
            return time.perf_counter() - began
        finally:
            process.kill()
            process.wait()


def failure(command: list[str], said: str) -> str:
    reason = said.strip().splitlines()[-1:] or ["it said nothing"]
    return f"{' '.join(command[1:])}: did not get there: {reason[0]}"


def page(times: Mapping[str, Spread], settings: Path) -> list[str]:
    """The table for people."""
    bare = times["bare python"].median
    table = [("from the start of the process", "seconds", "beyond bare python")]
    table += [(name, told(time, ".2f"), f"{time.median - bare:.2f}") for name, time in times.items()]
    return [*in_columns(table), "", f"The first step is of `python train.py {settings.name}`, done and written down."]


def draw(times: Mapping[str, Spread]) -> Figure:
    """A bar for each."""
    figure = new_figure(6.4, 2.8)
    axes = figure.add_subplot()
    bars(axes, dict(times))
    tidy(axes, "Start-up", "seconds from the start of the process", "")
    return figure
