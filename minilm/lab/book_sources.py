"""What is the book told from, beside the code itself?

A trained model, and two experiments that take longer than a page can wait for: a sweep of
ablations and a measurement of recall against distance, if they are there.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minilm.cli import lay_over
from minilm.config import Config
from minilm.corpus import Corpus, load_corpus
from minilm.errors import UserError
from minilm.lab.distance import read_kept
from minilm.lab.recall import Outcome
from minilm.lab.report_data import Sweep, read_sweep
from minilm.paths import packaged
from minilm.riverbank import Riverbank
from minilm.runs import LoadedRun, load_run, read_metrics
from minilm.session import prepare
from minilm.settings import read_layers
from minilm.training import Stop, train

# Laid over configs/base.toml. Enough to find a name again and take what stood beside it, in well under a minute.
SMALL: dict[str, Any] = {
    "model": {"n_layers": 2, "n_heads": 2, "width": 64, "context": 64},
    "corpus": {"characters": 200_000},
    "training": {"steps": 400, "evaluate_every": 50, "evaluation_characters": 20_000, "sample_every": 400},
}


@dataclass(frozen=True)
class Trained:
    """A model, its text, and how it learned."""

    run: LoadedRun
    corpus: Corpus
    metrics: list[dict[str, Any]]
    seconds: float | None  # that training took, if it was trained for the page

    @property
    def config(self) -> Config:
        return self.run.config

    @property
    def language(self) -> Riverbank:
        """Of which the floor is known."""
        if self.corpus.language is None:
            raise ValueError("the book speaks of a model of Riverbank")
        return self.corpus.language

    @property
    def last(self) -> dict[str, Any]:
        """The last evaluation."""
        return next(line["validation"] for line in reversed(self.metrics) if "validation" in line)


@dataclass(frozen=True)
class Sources:
    """All that the chapters can tell of; what is not there is None or empty."""

    trained: Trained
    folder: Path | None  # of the run, if it was given
    sweep: Sweep | None
    outcomes: list[Outcome]


@contextlib.contextmanager
def gather(run: Path | None, ablation: Path | None, distance: Path | None) -> Iterator[Sources]:
    """Read what was named, before anything is trained."""
    if distance is not None and not distance.is_file():
        raise UserError(f"{distance}: there is no such file; `python -m minilm distance --keep {distance}` makes it")
    outcomes = read_kept(distance)
    sweep = read_sweep(ablation) if ablation else None
    if run is not None:
        yield Sources(read_run(run), run, sweep, outcomes)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Sources(train_small(Path(folder) / "book"), None, sweep, outcomes)


def read_run(folder: Path) -> Trained:
    """A run that was made before; it has to be one of attention on Riverbank, of which the chapters speak."""
    run = load_run(folder, "last")
    if (run.config.model.architecture, run.config.corpus.source) != ("transformer", "riverbank"):
        raise UserError(f"{folder}: the book speaks of a transformer trained on Riverbank, and this is another run")
    if not (folder / "metrics.jsonl").is_file():
        raise UserError(f"{folder}: holds no metrics.jsonl; name the folder of a run, not of a checkpoint")
    metrics = read_metrics(folder / "metrics.jsonl")
    if not any("validation" in line for line in metrics):
        raise UserError(f"{folder}: was never evaluated; train it for longer")
    corpus = load_corpus(run.config.corpus, context=run.config.model.context, seed=run.config.training.seed)
    return Trained(run, corpus, metrics, None)


def train_small(folder: Path) -> Trained:
    """Train a small model for the page, saying nothing but how far it is."""
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        config = lay_over(*read_layers(packaged("configs/base.toml")), SMALL)
        run = prepare(config, folder, resume=False, overwrite=False)
        train(run, Stop())
    seconds = time.perf_counter() - began
    metrics = read_metrics(folder / "metrics.jsonl")
    return Trained(load_run(folder, "last"), run.corpus, metrics, seconds)
