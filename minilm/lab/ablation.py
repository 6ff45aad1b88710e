"""What is each piece for? Take it out, predict what will break, and see whether it does.

`python -m minilm ablate` trains the base and its arms on the same batches from the same weights,
seed by seed, and judges what each settings file said it would show.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from minilm.cli import corpus_of, read_flags, show_help, split_inputs
from minilm.errors import UserError
from minilm.options import HELP, Flag, Folder, Number, Text, optional
from minilm.paths import packaged, replace_text
from minilm.settings import load_config, merge

if TYPE_CHECKING:
    from minilm.lab.arms import Arm
    from minilm.lab.engines import Engine
    from minilm.lab.jobs import Job

PROG = "python -m minilm ablate"
DESCRIPTION = """Arms x seeds: what each piece of the model is for, predicted, measured, judged.

$ python -m minilm ablate                           base and the four required arms, five seeds
$ python -m minilm ablate --quick                   two seeds, shorter: a first look
$ python -m minilm ablate configs/base.toml configs/one_head.toml
$ python -m minilm ablate --corpus.path my.txt      on your own text
"""
SEEDS, QUICK_SEEDS = 5, 2
QUICK = {"training": {"steps": 200, "evaluate_every": 50}}
OUTPUTS = RESULTS, VERDICTS, TABLE, REPORT = "results.jsonl", "verdicts.json", "table.md", "report.html"


@dataclass(frozen=True)
class Options:
    """A sweep."""

    inputs: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        optional("[ARM.toml ...] [TEXT ...]", "settings files (base and the required arms), texts"),
    ] = ()
    seeds: Number = None
    """runs of each arm (5, or 2 with --quick)"""
    jobs: Number = None
    """runs at a time, one thread each (as many as there are cores)"""
    engine: Literal["local", "dask", "ray"] = "local"
    """where: on this machine, or by the workers of a cluster (see the README)"""
    address: Text = None
    """the cluster's: tcp://HOST:PORT of a Dask scheduler, HOST:PORT of a Ray head"""
    quick: Flag = False
    """fewer seeds and steps, for a first look; verdicts are preliminary"""
    out: Folder = None
    """folder of the sweep (runs/ablation, or runs/ablation-quick)"""
    overwrite: Flag = False
    """make the runs anew that are in that folder already"""
    self_check: Flag = False
    """run nothing: how often do the recorded runs of the base differ from each other?"""


def main(argv: list[str] | None = None) -> int:
    """The command; 0 when all runs are there, whatever they show."""
    argv = sys.argv[1:] if argv is None else argv
    words = [word for word in argv if word not in HELP]
    options, flags = read_flags(Options, words, prog=PROG, description=DESCRIPTION)
    if len(words) < len(argv):
        show_help(Options, load_config(packaged("configs/base.toml")), prog=PROG, description=DESCRIPTION)
    seeds, out = read_numbers(options)
    files, texts = split_inputs(options.inputs)
    flags = merge(merge(QUICK if options.quick else {}, corpus_of(texts)), flags)
    from minilm.lab.arms import default_files, read_arms, read_texts  # imports torch, which --help has no need of
    from minilm.lab.predictions import predictions
    from minilm.lab.sweep import check_folders, clear, plan

    arms = read_arms([Path(file) for file in files] or default_files(), flags)
    jobs = plan(arms, seeds, out)
    if options.self_check:
        return self_check(arms, jobs)
    check_out(out)
    expected = predictions(arms, read_texts(arms))
    if options.overwrite:
        for job in jobs:
            clear(job)
    check_folders(jobs)
    print("\n".join(expected), flush=True)
    try:
        results = run(jobs, make_engine(options, out), out)
    except KeyboardInterrupt:
        print(f"\nstopped; what was done is kept in {out}, and the same command goes on", file=sys.stderr)
        return 130
    conclude(arms, results, out, preliminary=options.quick)
    return 0


def read_numbers(options: Options) -> tuple[int, Path]:
    """Seeds and folder, with what stands for those that are not given.

    Raises:
        UserError: of these and of what says where to run, all that is wrong.
    """
    seeds = options.seeds if options.seeds is not None else QUICK_SEEDS if options.quick else SEEDS
    given = {"seeds": seeds, "jobs": options.jobs}
    problems = [f"--{name} {n}: must be at least 1" for name, n in given.items() if n is not None and n < 1]
    if options.engine == "local" and options.address is not None:
        problems.append(f"--address {options.address}: needs --engine dask or --engine ray")
    if options.engine != "local" and options.address is None:
        problems.append(f"--engine {options.engine}: needs the cluster's --address")
    if options.engine != "local" and options.jobs is not None:
        problems.append(f"--jobs {options.jobs}: with --engine {options.engine} the cluster's workers decide")
    if problems:
        raise UserError("\n".join(problems))
    return seeds, options.out or Path("runs/ablation-quick" if options.quick else "runs/ablation")


def make_engine(options: Options, out: Path) -> Engine:
    """What makes the runs."""
    import joblib

    from minilm.lab.engines import Dask, Local, Ray

    if options.address is None:
        return Local(options.jobs or joblib.cpu_count())
    return (Dask if options.engine == "dask" else Ray)(options.address, out)


def check_out(out: Path) -> None:
    """Refuse a folder that is something else's."""
    from minilm.runs import is_used

    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file, and a sweep needs a folder; choose another with --out")
    if is_used(out):
        raise UserError(f"{out}: is the folder of a single run; choose another with --out")
    strangers = [name for name in OUTPUTS if (out / name).exists() and not (out / RESULTS).exists()]
    if strangers:
        raise UserError(
            f"{out}: {', '.join(strangers)} would be replaced, and no sweep made that; choose another --out"
        )


def run(jobs: Sequence[Job], engine: Engine, out: Path) -> list[dict[str, Any]]:
    """All results in the order of the jobs, written down as they come."""
    from tqdm import tqdm

    from minilm.lab.sweep import sweep

    results: dict[tuple[str, int], dict[str, Any]] = {}
    with tqdm(total=len(jobs), unit="run", ascii=True) as bar:
        for result in sweep(list(jobs), engine, bar.write):
            results[result["arm"], result["seed"]] = result
            in_order = [results[job.arm, job.seed] for job in jobs if (job.arm, job.seed) in results]
            write_text(out / RESULTS, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in in_order))
            bar.set_postfix_str(f"{result['arm']} seed {result['seed']} {result['status']}")
            bar.update()
    return in_order


def conclude(arms: Sequence[Arm], results: list[dict[str, Any]], out: Path, *, preliminary: bool) -> None:
    """Judge, write down the verdicts, the table and the report, and print what they say."""
    from minilm.lab.report import write_report
    from minilm.lab.table import table
    from minilm.lab.verdicts import judge

    records = judge(arms, results, preliminary=preliminary)
    write_text(out / VERDICTS, json.dumps({"preliminary": preliminary, "arms": records}, indent=1, ensure_ascii=False))
    lines = table(records, results, preliminary=preliminary)
    write_text(out / TABLE, "\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"\nreport      {write_report(out)}")


def write_text(path: Path, text: str) -> None:
    """Write a file of the sweep whole or not at all."""
    try:
        replace_text(path, text)
    except OSError as error:
        reason = f"{path}: cannot be written: {error.strerror}"
        raise UserError(f"{reason}; the runs are kept, and the same command goes on") from None


def self_check(arms: Sequence[Arm], jobs: Sequence[Job]) -> int:
    """Print how often runs of the base are told apart when they only bear other seeds' names."""
    from minilm.lab.figures import FIGURES, value_of
    from minilm.lab.jobs import read_result
    from minilm.lab.statistics import false_alarms

    root = next((arm.name for arm in arms if arm.control is None), arms[0].name)
    results = [read_result(job) for job in jobs if job.arm == root and job.result.exists()]
    if len(results) < 4:
        raise UserError(f"--self-check: {len(results)} recorded runs of {root}; four are needed, and ten are better")
    print(f"{root} against itself, {len(results)} runs, 200 times with other seeds' names: told apart at p < 0.05 in")
    for name in FIGURES:
        values = [value for result in results if (value := value_of(result, name)) is not None]
        if len(values) == len(results):
            print(f"  {false_alarms(values):6.1%}  {FIGURES[name].words}")
    return 0
