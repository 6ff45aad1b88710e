"""What does a run leave behind, and how is it found again?

config.toml     the resolved settings          last/    checkpoint of the last save
manifest.json   versions, corpus, threads      best/    checkpoint of the lowest validation loss
metrics.jsonl   one line per step and per evaluation
samples.txt     what the model wrote on the way
"""

from __future__ import annotations

import importlib
import json
import platform
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from minilm import __version__
from minilm.checkpoint import CHECKPOINT_FILES, read_checkpoint, recover
from minilm.config import ATTENTION_ONLY, Config
from minilm.corpus import Corpus
from minilm.device import type_name
from minilm.errors import UserError
from minilm.model import LanguageModel
from minilm.paths import PACKAGE, replace_text
from minilm.settings import to_toml, validate
from minilm.vocabulary import Units, read_units

FILES = ("config.toml", "manifest.json", "metrics.jsonl", "samples.txt")
CHECKPOINTS = ("last", "best")


def is_used(folder: Path) -> bool:
    """Whether a run has been in this folder."""
    return any((folder / name).exists() for name in (*FILES, *CHECKPOINTS))


def check_folder(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that the wish does not fit, before anything is written."""
    if resume and overwrite:
        raise UserError("--resume keeps the run and --overwrite removes it: give one of them")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file, and a run needs a folder; choose another with --out")
    for name in CHECKPOINTS:
        recover(folder / name)
    if resume and not is_used(folder):
        raise UserError(f"{folder}: there is nothing to resume: it holds no run")
    if resume or not is_used(folder):
        return
    strangers = not_ours(folder)
    if strangers:
        raise UserError(
            f"{folder}: {', '.join(strangers)} would be replaced, and no run of minilm's made that; "
            "choose another folder with --out"
        )
    if not overwrite:
        raise UserError(
            f"{folder}: holds a run already; "
            "--resume goes on with it, --overwrite replaces it, --out names another folder"
        )


def not_ours(folder: Path) -> list[str]:
    """Files that bear the names of a run's and are not one's, so that nothing of anybody's is lost."""
    try:
        made_by_us = "minilm" in json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        made_by_us = False
    names = [name for name in FILES if (folder / name).exists() and not made_by_us]
    for name in CHECKPOINTS:
        names += [name] if (folder / name).is_file() else []
        names += [f"{name}/{file.name}" for file in (folder / name).glob("*") if file.name not in CHECKPOINT_FILES]
    return names


def clear(folder: Path) -> None:
    """Remove a run's own files and nothing else."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    for name in CHECKPOINTS:
        aside, old = folder / f".{name}.new", folder / f".{name}.old"
        for path in (aside, old):
            shutil.rmtree(path, ignore_errors=True)
        if (folder / name).is_dir():  # gone at once: whoever is killed here leaves no half of a checkpoint
            (folder / name).rename(aside)
            shutil.rmtree(aside, ignore_errors=True)


def start(
    folder: Path, config: Config, corpus: Corpus, model: LanguageModel, device: torch.device, precision: torch.dtype
) -> None:
    """Make the folder, empty but for what `describe` writes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear(folder)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to: {error.strerror}") from None
    describe(folder, config, corpus, model, device, precision)


def describe(
    folder: Path, config: Config, corpus: Corpus, model: LanguageModel, device: torch.device, precision: torch.dtype
) -> None:
    """Write down the run's settings, and what it is made with."""
    try:
        # The manifest first, since it marks the folder as ours.
        text = json.dumps(manifest(config, corpus, model, device, precision), indent=1, ensure_ascii=False)
        (folder / "manifest.json").write_text(text, encoding="utf-8")
        (folder / "config.toml").write_text(to_toml(config), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to: {error.strerror}") from None


def manifest(
    config: Config, corpus: Corpus, model: LanguageModel, device: torch.device, precision: torch.dtype
) -> dict[str, Any]:
    """What one needs to know to repeat a run."""
    return {
        "seed": config.training.seed,
        "device": str(device),
        "precision": type_name(precision),
        "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "corpus": corpus.description,
        "corpus_sha256": corpus.sha256,
        "vocabulary": len(corpus.vocabulary),
        "minilm": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git_commit": git_commit(),
    }


def git_commit() -> str | None:
    """The commit of the source tree that runs, if it is one."""
    command = ["git", "-C", str(PACKAGE.parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


class Metrics:
    """metrics.jsonl, appended line by line."""

    def __init__(self, folder: Path, step: int) -> None:
        """Open it, without the lines of steps after `step`, which a resumed run will do again."""
        self.path = folder / "metrics.jsonl"
        kept = [line for line in self._lines() if line["step"] <= step]
        try:
            replace_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
            self.file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise self._refusal(error) from None

    def _lines(self) -> list[dict[str, Any]]:
        return read_metrics(self.path) if self.path.exists() else []

    def write(self, **record: Any) -> None:
        try:
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()
        except OSError as error:
            raise self._refusal(error) from None

    def sample(self, step: int, text: str) -> None:
        """Samples stand in samples.txt; a record of another kind may show them too."""

    def _refusal(self, error: OSError) -> UserError:
        advice = "what was saved before stands. Make room or rights, then go on with --resume"
        return UserError(f"{self.path}: cannot be written: {error.strerror}; {advice}")

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # of a line that could not be written, which `write` has told of
            self.file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a metrics.jsonl; a last one that was cut off in mid-write is left out."""
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        records = [None]
    if not all(map(is_record, records)):
        raise UserError(f"{path}: is damaged: a line is not JSON with a step and its numbers")
    return records


def is_record(record: Any) -> bool:
    """Whether this is a line of metrics as it was written: a step and numbers, of an evaluation with its loss."""
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        return False
    figures = {name: value for name, value in record.items() if name != "validation"}
    if "validation" in record:
        judged = record["validation"]
        if not isinstance(judged, dict) or not isinstance(judged.get("facets", {}), dict) or "loss" not in judged:
            return False
        if ("floor" in judged) != ("excess" in judged):
            return False
        figures = {**figures, **judged, **judged.get("facets", {})}
        figures.pop("facets", None)
    return all(type(value) in (int, float) and abs(value) < 1e100 for value in figures.values())


class LoadedRun(NamedTuple):
    """A trained model and what belongs to it."""

    model: LanguageModel
    vocabulary: Units
    config: Config
    step: int
    loss: float | None

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        loss = "none yet" if self.loss is None else f"{self.loss:.4f}"
        units = f"{len(self.vocabulary)} {self.vocabulary.noun}s"
        return f"<run: {parameters:,} parameters, {units}, step {self.step}, validation loss {loss}>"


def load_run(path: str | Path, which: str = "best") -> LoadedRun:
    """Load a run's folder, or one checkpoint's, onto the CPU in evaluation mode.

    Args:
        which: `best` (the lowest validation loss; `last` if there is none yet) or `last`.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such run folder; `python train.py` makes runs/base")
    if not (folder / "state.json").exists():
        for name in CHECKPOINTS:
            recover(folder / name)
        folder = folder / which if (folder / which).is_dir() else folder / "last"
    try:
        checkpoint = read_checkpoint(folder)
    except UserError as error:
        other = folder.with_name("last")
        whole = folder.name == "best" and (other / "state.json").exists()
        raise UserError(f"{error}; --which last takes {other} instead" if whole else str(error)) from None
    config = validate(checkpoint.state["config"], {}, str(folder / "state.json"))
    vocabulary = read_units(config.corpus.unit, checkpoint.state["vocabulary"], folder)
    if least_size(config, len(vocabulary)) > sum(tensor.numel() for tensor in checkpoint.weights.values()):
        raise UserError(f"{folder}: state.json has the settings of a larger model than model.safetensors holds")
    model = build_model(config, len(vocabulary))
    load_weights(model, checkpoint.weights, str(folder))
    return LoadedRun(model.eval(), vocabulary, config, checkpoint.state["step"], checkpoint.state.get("loss"))


def least_size(config: Config, n_characters: int) -> int:
    """No more parameters than the model has, known before it takes any memory."""
    shape = config.model
    places = shape.context if shape.architecture == "transformer" and shape.position == "learned" else 0
    return shape.width * (n_characters + places + 2 * shape.n_layers * shape.width)


def build_model(config: Config, n_characters: int) -> LanguageModel:
    """The model that the settings describe, with its initial weights."""
    settings = config.model.model_dump(exclude={"architecture"})
    if config.model.architecture == "transformer":
        return LanguageModel(n_characters, seed=config.training.seed, **settings)
    settings = {name: value for name, value in settings.items() if name not in ATTENTION_ONLY}
    # The rival lives in the lab, which the package is complete without: so it is imported here, when asked for.
    rivals = importlib.import_module("minilm.lab.rivals")
    return rivals.RecurrentModel(n_characters, seed=config.training.seed, **settings)


def load_weights(model: LanguageModel, weights: dict[str, torch.Tensor], where: str) -> None:
    """Copy `weights` into the model: all of them, and each of the right shape, or a UserError."""
    own = model.state_dict()
    problems = [f"lacks {name}" for name in own.keys() - weights.keys()]
    problems += [f"has {name}, which the model lacks" for name in weights.keys() - own.keys()]
    problems += [
        f"has {name} of shape {tuple(weights[name].shape)}, wanted {tuple(own[name].shape)}"
        for name in own.keys() & weights.keys()
        if own[name].shape != weights[name].shape
    ]
    if problems:
        raise UserError("\n".join(f"{where}: {problem}" for problem in sorted(problems)))
    model.load_state_dict(weights)
