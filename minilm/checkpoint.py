"""How is a model kept so that nothing is ever half there?

A checkpoint is a folder: weights and optimizer memory as safetensors, everything else as
JSON with the hashes of all three. No pickle, so a stranger's checkpoint can run no code. A folder is
written under another name, flushed to disk, and renamed into place.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from minilm.errors import UserError

FORMAT = 2
CHECKPOINT_FILES = MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
WRAPPERS = ("module.", "_orig_mod.")  # put before a name by DDP and by torch.compile


class Checkpoint(NamedTuple):
    """What one folder holds."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]  # step, loss, best, config, vocabulary, ...


def write_checkpoint(
    folder: Path, weights: dict[str, Tensor], optimizer: dict[str, Tensor], state: dict[str, Any]
) -> None:
    """Write `folder`, or leave what stands there as it was.

    Raises OSError where the disk does not take it.
    """
    aside, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        for name, tensors in ((MODEL, weights), (OPTIMIZER, optimizer)):
            save_file({key: t.detach().cpu().contiguous() for key, t in tensors.items()}, aside / name)
        hashes = {name: sha256(aside / name) for name in (MODEL, OPTIMIZER)}
        content = sealed({"format": FORMAT, **state, "sha256": hashes})
        (aside / STATE).write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
        for name in (MODEL, OPTIMIZER, STATE):
            flush(aside / name)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise error if isinstance(error, OSError) else OSError(str(error)) from error
    # A folder cannot be renamed over another, so the old one steps aside first. Should we die
    # between the two renames, `recover` finds it there.
    recover(folder)
    if folder.exists():
        folder.rename(old)
    aside.rename(folder)
    flush(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Finish a write that was cut short between its two renames."""
    old = folder.with_name(f".{folder.name}.old")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        old.rename(folder)


def flush(path: Path) -> None:
    """Have the disk hold what was written to a file or folder."""
    if os.name == "nt" and path.is_dir():  # Windows opens no folders
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(state: dict[str, Any]) -> dict[str, Any]:
    """`state` with, among its hashes, that of all else it says: one changed letter can change a model's answers."""
    hashes = {name: value for name, value in state["sha256"].items() if name != STATE}
    content = json.dumps({**state, "sha256": hashes}, sort_keys=True)
    return {**state, "sha256": {**hashes, STATE: hashlib.sha256(content.encode()).hexdigest()}}


def read_state(folder: Path) -> dict[str, Any]:
    """The JSON part of a checkpoint, checked for what every reader needs."""
    file = folder / STATE
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{file}: is damaged (not JSON)") from None
    kinds = {"format": int, "step": int, "config": dict, "vocabulary": str, "sha256": dict}
    state = state if isinstance(state, dict) else {}
    wrong = [key for key, kind in kinds.items() if type(state.get(key)) is not kind]
    wrong += ["loss"] if type(state.get("loss", 0.0)) is not float else []
    wrong += ["best"] if not is_best(state.get("best")) else []
    if wrong:
        raise UserError(f"{file}: is not a minilm checkpoint's: {', '.join(wrong)} missing or of another kind")
    if state["format"] != FORMAT:
        raise UserError(f"{file}: format {state['format']}, but this minilm reads format {FORMAT}")
    if sealed(state)["sha256"] != state["sha256"]:
        raise UserError(f"{file}: is damaged or was changed: what it says does not have the SHA-256 that it names")
    return state


def is_best(value: Any) -> bool:
    """Whether this is what a run knows of its best step: nothing yet, or its number and loss."""
    known = isinstance(value, dict) and (type(value.get("step")), type(value.get("loss"))) == (int, float)
    return value is None or known


def read_checkpoint(folder: Path, *, optimizer: bool = False) -> Checkpoint:
    """Read a checkpoint, with the optimizer's memory if asked; a UserError names the file at fault."""
    recover(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no checkpoint")
    state = read_state(folder)
    weights = read_tensors(folder / MODEL, state["sha256"].get(MODEL))
    memory = read_tensors(folder / OPTIMIZER, state["sha256"].get(OPTIMIZER)) if optimizer else {}
    return Checkpoint({unwrapped(name): tensor for name, tensor in weights.items()}, memory, state)


def read_tensors(file: Path, expected: Any) -> dict[str, Tensor]:
    """The tensors of one file, whose hash must be the one that was written down.

    From bytes, since `load_file` takes a Ctrl-C that comes while it reads for a fault of the file.
    """
    try:
        data = file.read_bytes()
        if hashlib.sha256(data).hexdigest() != expected:
            raise UserError(f"{file}: is damaged or was changed: its SHA-256 is not the one in {STATE}")
        return load(data)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError) as error:
        raise UserError(f"{file}: is not a safetensors file: {error}") from None


def unwrapped(name: str) -> str:
    """A parameter's name without what wrappers put before it, however many there are."""
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return name
