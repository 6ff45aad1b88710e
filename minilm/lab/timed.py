"""How is the training that people run timed, and not a copy of it?

Before each step the loop asks whether it is to stop. Whoever is asked can look at the clock or at
the loss, and say when. So a step is all that `python train.py` does in one: its batch, forward and
backward pass, clipping, optimizers, its line of metrics and its bar. Only saving is left out.
"""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from minilm.config import Config
from minilm.corpus import Corpus
from minilm.device import choose_device, choose_precision
from minilm.errors import UserError
from minilm.runs import build_model
from minilm.streams import generator
from minilm.training import Run, Stop, characters_per_step, train
from minilm.vocabulary import Vocabulary

WARM_UP = 2  # steps of each turn that are not timed: the turn before left its own data in the caches
ENDLESS = 10**9  # steps


class UnsavedRun(Run):
    """A run that leaves no checkpoint behind."""

    def save(self, name: str, **extra: Any) -> None:
        """Nothing is written; the folder is thrown away."""


class Until(Stop):
    """Stops training as soon as `done` says so, which is asked before each step."""

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done = done

    @property
    def signal(self) -> int | None:  # type: ignore[override]
        return signal.SIGTERM if self.done() else None


class Timer:
    """Counts steps after a warm-up until `seconds` have passed; done when called after those.

    Args:
        wait: waits until the device has done what it was asked to.
    """

    def __init__(self, seconds: float, wait: Callable[[], None]) -> None:
        self.seconds, self.wait = seconds, wait
        self.steps, self.began, self.elapsed = -WARM_UP, 0.0, 0.0

    def __call__(self) -> bool:
        """Whether the time is over; called before each step, and any number of times after the last."""
        if self.elapsed:
            return True
        if self.steps == 0:
            self.wait()
            self.began = time.perf_counter()
        elif self.steps > 0 and time.perf_counter() - self.began >= self.seconds:
            self.wait()
            self.elapsed = time.perf_counter() - self.began
            return True
        self.steps += 1
        return False


def random_corpus(n_characters: int, context: int) -> Corpus:
    """A long text of `n_characters` different characters by chance: for speed, any text will do."""
    vocabulary = Vocabulary("".join(map(chr, range(0x100, 0x100 + n_characters))))
    kind = torch.uint8 if n_characters <= 256 else torch.int32
    draw = generator(0, "bench")
    train_part = torch.randint(n_characters, (2**20 + context,), generator=draw).to(kind)
    return Corpus(vocabulary, train_part, train_part[: context + 1], "random characters", "", None, ())


def start(config: Config, corpus: Corpus, folder: Path) -> UnsavedRun:
    """A run at step 0 on the device and in the precision that its settings ask for."""
    device = choose_device(config.training.device)
    precision = choose_precision(config.training.precision, device)
    folder.mkdir(parents=True, exist_ok=True)
    model = build_model(config, len(corpus.vocabulary)).to(device)
    return UnsavedRun(config, folder, corpus, model, device, precision)


def without_end(config: Config) -> Config:
    """The same settings with nothing between the steps."""
    changes = {"steps": ENDLESS, "evaluate_every": ENDLESS, "sample_every": ENDLESS, "evaluation_characters": 1}
    return config.model_copy(update={"training": config.training.model_copy(update=changes)})


def tokens_per_second(run: UnsavedRun, seconds: float) -> float:
    """Train on for about so long."""
    timer = Timer(seconds, torch.accelerator.synchronize if run.device.type != "cpu" else lambda: None)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            train(run, Until(timer))
    except FloatingPointError as error:
        rates = "--training.learning-rate, --training.muon-learning-rate"
        raise UserError(f"{error}: there is no speed to tell; give smaller learning rates ({rates})") from None
    return timer.steps * characters_per_step(run.config) / timer.elapsed
