"""What does a kernel that never holds the T x T weights save, and what not?

`python -m minilm kernels` measures the three back ends against the length: the time stays
quadratic in all, the memory only in the explicit one. It also counts what moves between slow
and fast memory, as Dao et al. 2022 do: the reason why tiles are faster on a GPU.

Each measurement is a process of its own. Memory is measured twice there: as the peak of what
torch allocates (its profiler's events), and as the growth of the process (ru_maxrss).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from minilm.errors import UserError
from minilm.lab.drawing import check_picture, line, new_figure, save, tidy
from minilm.lab.options import print_json
from minilm.lab.traffic import TILES, Traffic, traffic
from minilm.options import File, Flag, read_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BACKENDS = ("explicit", "tiled", "fused")
MIB = 2**20


@dataclass(frozen=True)
class Options:
    """Time and memory of explicit, tiled and fused attention against the length.

    Example: python -m minilm kernels --lengths 512 1024 2048 --plot kernels.svg
    """

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192)
    """lengths T to measure, forward and backward, causal"""
    width: int = 64
    """key width K of the one head"""
    tile: int = 128
    """rows and columns of a tile"""
    threads: int = 1
    """CPU threads"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot: File = None
    """draw time, memory and traffic into this .svg, .png or .pdf"""


class Measurement(NamedTuple):
    """One back end at one length, forward and backward."""

    backend: str
    length: int
    seconds: float
    allocated: int  # bytes, peak of torch's allocations beyond the inputs
    grown: int  # bytes, growth of the process


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "kernels", argv)
    check_picture(options.plot)
    check(options)
    todo = [(backend, length) for length in options.lengths for backend in BACKENDS]
    runs = [
        measure_apart(backend, length, options.width, options.tile, options.threads)
        for backend, length in tqdm(todo, desc="measuring", leave=False, disable=None)
    ]
    moved = [traffic(max(options.lengths), options.width, tile) for tile in TILES]
    if options.json:
        print_json(as_data(runs, moved))
    else:
        print("\n".join(page(options, runs, moved)))
    if options.plot:
        save(draw(options, runs, moved), options.plot)
    return 0


def check(options: Options) -> None:
    """A UserError with all that is wrong with the numbers given."""
    numbers = {"--width": options.width, "--tile": options.tile, "--threads": options.threads}
    numbers |= {f"--lengths {length}": length for length in options.lengths}
    problems = [f"{name}: {value} is not at least 1" for name, value in numbers.items() if value < 1]
    if len(set(options.lengths)) < 2:
        problems.append("--lengths: an exponent takes two different lengths at least")
    if problems:
        raise UserError("\n".join(problems))


def measure_apart(backend: str, length: int, width: int, tile: int, threads: int) -> Measurement:
    """`measure` in a process of its own, so that no measurement sees the memory of another."""
    numbers = f"{backend!r}, {length}, {width}, {tile}, {threads}"
    program = f"import json; from minilm.lab.kernels import measure; print(json.dumps(measure({numbers})._asdict()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["it was ended, probably for want of memory"]
        raise UserError(f"{backend} at length {length}: {reason[0]}; leave the largest of --lengths out")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def measure(backend: str, length: int, width: int, tile: int, threads: int) -> Measurement:
    """One back end at one length: the growth of this process, the best of some times, the peak of torch."""
    import resource

    import torch

    torch.set_num_threads(threads)
    run = step(backend, tile)
    run(*make_inputs(2 * tile, width))  # loads what is loaded at the first call
    inputs = make_inputs(length, width)
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = [stopwatch(run, inputs)]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit
    while sum(times) < 0.3:
        times.append(stopwatch(run, inputs))
    peak = allocated_peak(lambda: run(*inputs))
    return Measurement(backend, length, min(times), peak, grown)


def stopwatch(run: Callable[..., None], inputs: list[Any]) -> float:
    """Seconds of one forward and backward pass."""
    start = time.perf_counter()
    run(*inputs)
    return time.perf_counter() - start


def make_inputs(length: int, width: int) -> list[Any]:
    """Query, key and value, each (1, 1, T, K), float32."""
    from minilm.lab.finding import normal

    return [normal(name, 1, 1, length, width).float().requires_grad_() for name in ("query", "key", "value")]


def step(backend: str, tile: int) -> Callable[..., None]:
    """Forward and backward through a back end, causal."""
    from functools import partial

    from minilm.attention import backend_named

    attend = backend_named(backend)
    attend = partial(attend, tile=(tile, tile)) if backend == "tiled" else attend

    def run(*inputs) -> None:
        mixture = attend(*inputs, scale=inputs[0].shape[-1] ** -0.5, causal=True, padding=None)
        mixture.sum().backward()
        for tensor in inputs:
            tensor.grad = None

    return run


def allocated_peak(work: Callable[[], None]) -> int:
    """The most bytes that torch held at once during `work`, beyond what it held before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler says on stderr that it starts and stops
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    memory = sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"])
    held = [e["args"]["Total Allocated"] for e in memory]
    return max(held) - (held[0] - memory[0]["args"]["Bytes"])


def exponents(runs: list[Measurement], what: str) -> dict[str, float]:
    """For each back end the power of the length with which a figure grows."""
    from minilm.lab.measures import slope

    fits = {}
    for backend in BACKENDS:
        mine = [run for run in runs if run.backend == backend]
        fits[backend] = slope([run.length for run in mine], [getattr(run, what) for run in mine])
    return fits


def page(options: Options, runs: list[Measurement], moved: list[Traffic]) -> list[str]:
    """All that the command prints."""
    lines = [
        f"Attention forward and backward, causal, one head, K = {options.width}, float32, threads: {options.threads}",
        "",
        f"{'':8}{'time, ms':^30}{'peak of torch, MiB':^30}{'growth of process, MiB':^30}",
        f"{'T':>8}" + f"{'explicit':>10}{'tiled':>10}{'fused':>10}" * 3,
    ]
    for length in options.lengths:
        mine = [run for run in runs if run.length == length]
        cells = [f"{1000 * run.seconds:10.1f}" for run in mine]
        cells += [f"{run.allocated / MIB:10.2f}" for run in mine] + [f"{run.grown / MIB:10.2f}" for run in mine]
        lines.append(f"{length:8}" + "".join(cells))
    powers = [
        fit[backend] for fit in (exponents(runs, "seconds"), exponents(runs, "allocated")) for backend in BACKENDS
    ]
    lines += [f"{'power':>8}" + "".join(f"{power:10.2f}" for power in powers)]
    lines += [
        "The last line is p where a figure grows as T^p.",
        "",
        "The arithmetic stays quadratic in all three: every position still scores every position it may read.",
        "What tiles save is memory, and traffic between slow and fast memory:",
        "",
        f"Numbers moved, forward, T = {max(options.lengths)}, K = {options.width}, no mask (model of Dao et al. 2022)",
        "    tile   fast memory needed        explicit    paper's loops     ours, tiled    explicit / ours",
    ]
    for t in moved:
        ratio = t.explicit / t.tiled
        lines.append(f"{t.tile:8}{t.fast:21,}{t.explicit:16,}{t.paper:17,}{t.tiled:16,}{ratio:19.2f}")
    return [*lines, "Twice the tile, half the traffic; small tiles move more than no tiles at all."]


def as_data(runs: list[Measurement], moved: list[Traffic]) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "measurements": [run._asdict() for run in runs],
        "exponents": {what: exponents(runs, what) for what in ("seconds", "allocated")},
        "traffic": [t._asdict() for t in moved],
    }


def draw(options: Options, runs: list[Measurement], moved: list[Traffic]) -> Figure:
    """Time, memory and traffic side by side."""
    figure = new_figure(12.5, 4.2)
    time_axes, memory_axes, traffic_axes = figure.subplots(1, 3)
    for number, backend in enumerate(BACKENDS):
        mine = [run for run in runs if run.backend == backend]
        line(time_axes, options.lengths, [run.seconds for run in mine], number, backend)
        line(memory_axes, options.lengths, [run.allocated / MIB for run in mine], number, backend)
    for number, name, label in (
        (0, "explicit", "explicit"),
        (1, "tiled", "ours, tiled"),
        (3, "paper", "paper's loops"),
    ):
        line(traffic_axes, TILES, [getattr(t, name) for t in moved], number, label)
    tidy(time_axes, "Time", "length T", "seconds, forward and backward")
    tidy(memory_axes, "Peak memory", "length T", "MiB")
    tidy(
        traffic_axes,
        f"Slow memory, T = {max(options.lengths)}",
        "rows and columns of a tile",
        "numbers read or written",
    )
    for axes, ticks in ((time_axes, options.lengths), (memory_axes, options.lengths), (traffic_axes, TILES)):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.yaxis.set_minor_formatter("")
        axes.legend(frameon=False)
    return figure
