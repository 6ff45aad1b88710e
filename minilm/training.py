"""How does the model learn?

Take some windows of text, score every next character, and move each weight against the slope
of the loss. The rest is care: one source for every random number, a fixed set of windows to
judge by, a save at each judgement, and a clean stop when a number or a person says so.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from minilm import runs
from minilm.checkpoint import write_checkpoint
from minilm.config import Config
from minilm.corpus import Corpus, batch
from minilm.device import multiply_in, type_name
from minilm.distributed import NoMetrics, Team
from minilm.errors import UserError
from minilm.evaluation import evaluate, make_windows
from minilm.generation import generate
from minilm.model import LanguageModel, loss
from minilm.optim import learning_rate_factor, make_optimizers, optimizer_tensors, set_learning_rate
from minilm.streams import generator, stream_seed


def metrics_of(run: Run) -> runs.Metrics:
    """metrics.jsonl, open at the step that the run is at."""
    return runs.Metrics(run.folder, run.step)


@dataclass
class Run:
    """A model in training and all that belongs to it."""

    config: Config
    folder: Path
    corpus: Corpus
    model: LanguageModel
    device: torch.device
    precision: torch.dtype = torch.float32  # of matrix products in training
    step: int = 0  # steps done
    best: dict[str, float] | None = None  # {"step", "loss"} of the lowest validation loss
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    team: Team = field(default_factory=Team)  # the processes that train it together
    record: Callable[[Run], runs.Metrics] = metrics_of  # opens what is written down of each step

    def __post_init__(self) -> None:
        self.network = self.team.wrap(self.model)  # what is trained; a wrapper where there are several
        self.optimizers = make_optimizers(self.model, self.config.training, self.precision)

    def save(self, name: str, **extra: Any) -> None:
        """Write the checkpoint `name`; the one before it stays whole if that fails."""
        if not self.team.first:
            return
        state = {
            "step": self.step,
            "best": self.best,
            "precision": type_name(self.precision),
            "processes": self.team.size,
            **extra,
            "config": self.config.model_dump(),
            "vocabulary": self.corpus.vocabulary.definition,
            "corpus_sha256": self.corpus.sha256,
        }
        memory = optimizer_tensors(self.model, self.optimizers)
        try:
            write_checkpoint(self.folder / name, self.model.state_dict(), memory, state)
        except OSError as error:
            size = sum(tensor.nbytes for tensor in (*self.model.state_dict().values(), *memory.values()))
            advice = "what was saved before stands. Make room or rights, then go on with --resume"
            raise UserError(
                f"{self.folder / name}: step {self.step} ({size / 1e6:.1f} MB) could not be saved: "
                f"{error.strerror or error}; "
                + (advice if self.folder.is_dir() else f"{self.folder} is gone, and with it what was saved before")
            ) from None

    def keep(self, validation_loss: float) -> None:
        """Save as `last`, and as `best` if no loss was lower.

        `best` first: killed in between, the run goes on from the `last` before and writes both anew.
        """
        improved = self.best is None or validation_loss < self.best["loss"]
        if improved:
            self.best = {"step": self.step, "loss": validation_loss}
        for name in ("best", "last") if improved else ("last",):
            self.save(name, loss=validation_loss)


class Stop:
    """Remembers that a signal asked for a stop, so that the step in hand can be finished."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> Stop:
        # Only the main thread may choose what a signal does; in another, someone else asks (lab/jobs.py).
        numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        self.before = {number: signal.signal(number, self.ask) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def ask(self, number: int, _: object) -> None:
        self.signal = self.signal or number


def train(run: Run, stop: Stop) -> None:
    """Do the steps that are left, evaluating and saving on the way.

    Raises:
        FloatingPointError: the loss, the gradient or the model's scores are no longer numbers.
    """
    settings, model = run.config.training, run.model
    windows = make_windows(run.corpus, context=model.context, max_characters=settings.evaluation_characters)
    interval = 0.5 if sys.stderr.isatty() else 10  # a log file needs fewer lines than a terminal
    bar = tqdm(
        total=settings.steps,
        initial=run.step,
        unit="step",
        mininterval=interval,
        ascii=True,
        disable=not run.team.first,
    )
    with bar, run.record(run) if run.team.first else NoMetrics() as metrics:
        model.train()
        began, counted, asked = time.perf_counter(), 0, None
        while run.step < settings.steps and (asked := run.team.agreed(stop.signal)) is None:
            # Dropout draws from torch's own generator, which nothing else uses in a step.
            torch.manual_seed(stream_seed(settings.seed, run.team.own("dropout"), run.step))
            factor = learning_rate_factor(run.step, settings)
            set_learning_rate(run.optimizers, factor)
            step_loss = backward(run)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip).item()
            rate = factor * settings.learning_rate
            refuse_non_finite(run.step + 1, rate, {"loss": step_loss, "gradient's norm": norm})
            for optimizer in run.optimizers:
                optimizer.step()
                optimizer.zero_grad()
            run.step, counted = run.step + 1, counted + 1
            metrics.write(step=run.step, loss=step_loss, learning_rate=rate, norm=norm)
            bar.set_postfix(loss=f"{step_loss:.3f}", refresh=False)
            bar.update()

            last = run.step == settings.steps
            if last or run.step % settings.evaluate_every == 0:
                speed = counted * characters_per_step(run.config) / (time.perf_counter() - began)
                result = evaluate(model, windows, run.team)
                # Good gradients can still have thrown the weights too far: these must not be saved.
                refuse_non_finite(run.step, rate, {"validation loss": result["loss"]})
                metrics.write(step=run.step, validation=result, characters_per_second=round(speed))
                bar.write(describe(run.step, step_loss, result, f"{speed:,.0f} {run.corpus.vocabulary.noun}s/s"))
                run.keep(result["loss"])
                began, counted = time.perf_counter(), 0
            if run.step % settings.sample_every == 0 and not last and run.team.first:
                text = sample(run)
                metrics.sample(run.step, text)
                bar.write(text)
        if stop.signal is None and asked is not None:
            stop.signal = asked  # another process was asked
        # What was judged and saved, or resumed from, at this very step stands, with its loss.
        if stop.signal is not None and (counted or run.step == 0):
            run.save("last")


def backward(run: Run) -> float:
    """Add up the gradients of one step's windows, this process's share of them; returns the mean loss of all."""
    settings = run.config.training
    size = settings.batch_size * settings.accumulation
    draw = generator(settings.seed, "batches", run.step)
    inputs, targets = batch(run.corpus.train, context=run.model.context, batch_size=size, generator=draw)
    inputs, targets = run.team.share(inputs), run.team.share(targets)
    passes = list(zip(inputs.split(settings.batch_size), targets.split(settings.batch_size), strict=True))
    total = torch.zeros((), device=run.device)
    for number, (x, y) in enumerate(passes, start=1):
        with multiply_in(run.precision, run.device), run.team.averaging(run.network, now=number == len(passes)):
            logits = run.network(x.to(run.device))  # (batch, T, V)
        part = loss(logits.float(), y.to(run.device)) / (len(inputs) / len(x))
        part.backward()
        total += part.detach()
    return run.team.mean(total).item()


def refuse_non_finite(step: int, rate: float, figures: dict[str, float]) -> None:
    """Raise FloatingPointError if one of the figures, by name, is infinite or no number."""
    if not all(map(math.isfinite, figures.values())):
        told = " and ".join(f"the {name} is {value}" for name, value in figures.items())
        raise FloatingPointError(f"stopped at step {step}: {told}, at learning rate {rate:.3g}")


def characters_per_step(config: Config) -> int:
    """How many characters one optimizer step learns from."""
    return config.training.batch_size * config.training.accumulation * config.model.context


def describe(step: int, step_loss: float, result: dict[str, Any], speed: str) -> str:
    """One line on an evaluation."""
    line = f"step {step:>5}  loss {step_loss:.3f}  validation {result['loss']:.4f}"
    if "excess" in result:
        line += f"  excess {result['excess']:.4f}  "
        line += "  ".join(f"{name} {value:.2f}" for name, value in result["facets"].items())
    else:
        line += f"  bits per byte {result['bits_per_byte']:.3f}"
    return f"{line}  {speed}"


def sample(run: Run) -> str:
    """A text by the model as it is now, also kept in samples.txt."""
    settings, vocabulary = run.config.training, run.corpus.vocabulary
    prompt = vocabulary.encode(vocabulary.start)[None]
    draw = generator(settings.seed, "sampling", run.step)
    try:
        tokens = torch.cat(list(generate(run.model, prompt, settings.sample_length, generator=draw)))
    except FloatingPointError as error:
        raise FloatingPointError(f"stopped at step {run.step}: {error}") from None
    text = vocabulary.decode(tokens)
    file = run.folder / "samples.txt"
    try:
        with file.open("a", encoding="utf-8", newline="") as stream:
            stream.write(f"--- step {run.step}\n{text}\n")
    except OSError as error:  # no run should end for a sample
        tqdm.write(f"note: {file}: cannot be written: {error.strerror}", file=sys.stderr)
    return "\n".join(f"    | {line}" for line in text.split("\n"))
