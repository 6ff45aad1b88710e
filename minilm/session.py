"""How do settings become a finished run: checked before anything is touched, trained, and told of?

Whatever can be refused is refused before the folder is touched.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from minilm import runs
from minilm.checkpoint import read_checkpoint
from minilm.config import Config
from minilm.corpus import baselines, evaluation_windows, number_text, read_text
from minilm.device import choose_device, choose_precision, is_out_of_memory, physical_memory, type_name
from minilm.distributed import Team, join, restarts
from minilm.errors import UserError
from minilm.evaluation import bits_per_byte, share_in_language
from minilm.optim import restore_optimizers
from minilm.parameters import parameter_table
from minilm.settings import validate
from minilm.training import Run, Stop, sample, train
from minilm.vocabulary import read_units

# Settings that may differ when a run goes on: they change how long it runs and what is shown.
FREE_ON_RESUME = (
    "steps",
    "evaluate_every",
    "evaluation_characters",
    "sample_every",
    "sample_length",
    "device",
    "threads",
)


def start_run(
    config: Config,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    log: str = "none",
    settings: str = "given",
) -> int:
    """Train in `folder`, with event files where `log` is "tensorboard"; returns the exit code.

    `settings` says where these come from.
    0 when finished, 1 when the numbers ran away, 128 + the signal's number when stopped by one.
    """
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    if restarts() > 0 and runs.is_used(folder):
        resume, overwrite = True, False  # torchrun gives the words that we were first started with
    team, device = join(choose_device(config.training.device))
    if not team.first:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (as long as we run)
    # In the lab, which the package is complete without: so it is imported here, when asked for; and before
    # the folder is touched, since the library that it needs may not be there.
    events = importlib.import_module("minilm.lab.events") if log == "tensorboard" else None
    if events:
        events.check_library()
    run = prepare(config, folder, resume=resume, overwrite=overwrite, team=team, device=device)
    if events:
        run.record = events.Events
    print(f"settings    {settings}\n{opening(run)}")
    with Stop() as stop:
        try:
            train(run, stop)
        except FloatingPointError as error:
            print(f"{error}.\n{advice(run)}", file=sys.stderr)
            return 1
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise UserError(
                f"out of memory at step {run.step + 1}: {str(error).splitlines()[0]}\n"
                "try a smaller --training.batch-size (--training.accumulation makes up for it) or --model.context"
            ) from None
        if stop.signal is not None:
            name = signal.Signals(stop.signal).name
            print(f"{name}: stopped after step {run.step}, which is saved; the same command with --resume goes on.")
            return 128 + stop.signal
    if team.first:
        print(closing(run))
    team.leave()
    return 0


def prepare(
    config: Config,
    folder: Path,
    *,
    resume: bool,
    overwrite: bool,
    team: Team | None = None,
    device: torch.device | None = None,
) -> Run:
    """All that training needs, with the folder made or the checkpoint restored."""
    team = team or Team()
    team.first_does(lambda: runs.check_folder(folder, resume=resume, overwrite=overwrite))
    team.first_does(lambda: check_share(config, team))
    device = device or choose_device(config.training.device)
    # A run that was killed before its first save is resumed from its start.
    checkpoint = read_checkpoint(folder / "last", optimizer=True) if resume and (folder / "last").is_dir() else None
    if checkpoint:
        check_settings(config, checkpoint.state, folder)
    state = checkpoint.state if checkpoint else {}
    wanted = config.training.precision
    # A run goes on in the precision that it began with, whatever hardware it is on now.
    precision = choose_precision(state.get("precision", wanted) if wanted == "auto" else wanted, device)
    text = read_text(config.corpus, seed=config.training.seed)
    if text.sha256 != state.get("corpus_sha256", text.sha256):
        raise UserError(f"{folder}: cannot go on: the text is not the one that the run began with ({text.name})")
    kept = read_units(config.corpus.unit, state["vocabulary"], folder / "last") if state else None
    corpus = number_text(text, config.corpus, context=config.model.context, vocabulary=kept)
    check_memory(config, len(corpus.vocabulary))
    model = runs.build_model(config, len(corpus.vocabulary)).to(device)
    if checkpoint is None:
        team.first_does(lambda: runs.start(folder, config, corpus, model, device, precision))
        return Run(config, folder, corpus, model, device, precision, team=team)
    runs.load_weights(model, checkpoint.weights, str(folder / "last"))
    run = Run(config, folder, corpus, model, device, precision, team=team)
    restore_optimizers(model, run.optimizers, checkpoint.optimizer)
    run.step, run.best = state["step"], state.get("best")
    if "corpus_sha256" not in state:  # imported, and now has a text
        team.first_does(lambda: runs.describe(folder, config, corpus, model, device, precision))
    began_with = state.get("processes", team.size)
    if began_with != team.size and team.first:
        print(f"note: {began_with} processes began this run and {team.size} go on: sums round differently")
    return run


def check_memory(config: Config, n_characters: int) -> None:
    """Refuse a model of which weights, gradients and the optimizer's memory alone are more than the machine holds."""
    needed = 3 * 4 * runs.least_size(config, n_characters)
    if needed > (there := physical_memory()):
        raise UserError(
            f"the model needs {needed / 1e9:,.0f} GB at least, and this machine has {there / 1e9:,.0f}: "
            "try a smaller --model.width or --model.n-layers"
        )


def check_share(config: Config, team: Team) -> None:
    """Every process has to get the same number of windows, for the mean of means to be the mean."""
    total = config.training.batch_size * config.training.accumulation
    if total % team.size:
        raise UserError(
            f"training.batch_size {config.training.batch_size} x training.accumulation "
            f"{config.training.accumulation} = {total} windows cannot be shared evenly by {team.size} processes"
        )


def check_settings(config: Config, state: dict[str, Any], folder: Path) -> None:
    """A run goes on with the settings that it began with, but for a few; an imported one has begun with nothing."""
    began = validate(state["config"], {}, str(folder / "last" / "state.json")).model_dump()
    free = {("training", key) for key in FREE_ON_RESUME}
    if began["corpus"]["source"] == "none":
        free |= {("training", key) for key in began["training"]}
        free |= {("corpus", key) for key in began["corpus"] if key != "unit"} | {("model", "dropout")}
    problems = [
        f"{folder}: cannot go on: {table}.{key} was {began[table][key]!r} and is now {value!r}"
        for table, values in config.model_dump().items()
        for key, value in values.items()
        if value != began[table][key] and (table, key) not in free
    ]
    if config.training.steps < state["step"]:
        problems.append(
            f"{folder}: cannot go on: {state['step']} steps are done, and --training.steps asks for "
            f"{config.training.steps} in all"
        )
    if problems:
        raise UserError("\n".join([*problems, "give the same settings, or start anew with --overwrite or --out"]))


def opening(run: Run) -> str:
    """What is about to happen."""
    parts = [part for part in parameter_table(run.model) if part.weights + part.biases]
    total = sum(part.weights + part.biases for part in parts)
    lines = [
        f"text        {run.corpus.description}, {len(run.corpus.vocabulary)} different ones",
        *(f"note        {note}" for note in run.corpus.notes),
        f"model       {total:,} parameters: "
        + ", ".join(f"{part.name} {part.weights + part.biases:,}" for part in parts),
        f"baselines   {baselines_line(run)}",
        f"run         {run.folder}, seed {run.config.training.seed}, {run.device} "
        f"({torch.get_num_threads()} threads), products in {type_name(run.precision)}, torch {torch.__version__}",
    ]
    if run.step:
        lines.append(f"resumed     after step {run.step} of {run.config.training.steps}")
    return "\n".join(lines)


def baselines_line(run: Run) -> str:
    """The losses to beat, in nats, and the one that cannot be beaten."""
    losses = baselines(run.corpus)
    line = ", ".join(f"{name} {value:.3f}" for name, value in losses.items())
    language = run.corpus.language
    return line + (f"; floor {language.entropy:.3f}" if language else "") + f" (nats per {run.corpus.vocabulary.noun})"


def advice(run: Run) -> str:
    """What to do about a loss that is no number."""
    last = run.folder / "last"
    kept = f"The last good checkpoint is {last}." if last.is_dir() else "No checkpoint had been saved yet."
    return f"{kept} Try smaller learning rates (--training.learning-rate, --training.muon-learning-rate)."


def closing(run: Run) -> str:
    """What the model writes, how good it is, and what can be done with it."""
    lines = ["", sample(run), ""]
    if run.corpus.language is not None:
        share = share_in_language(run.model, run.corpus, seed=run.config.training.seed)
        lines.append(f"{share:.1%} of the sentences that the model writes are in the language.")
    best = run.best or {}
    loss = best.get("loss", float("nan"))
    _, targets = evaluation_windows(
        run.corpus.validation,
        context=run.model.context,
        max_characters=run.config.training.evaluation_characters,
    )
    bits = bits_per_byte(loss, targets, run.corpus.vocabulary.sizes)
    lines.append(f"best validation loss {loss:.4f} at step {best.get('step')} ({bits:.4f} bits per byte)")
    lines.append(f"write more: python -m minilm sample {run.folder} --length 500")
    return "\n".join(lines)
