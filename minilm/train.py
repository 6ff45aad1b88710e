"""What does the command line of training mean?"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from minilm.cli import parse, split_inputs
from minilm.options import Flag, optional
from minilm.paths import packaged
from minilm.settings import to_toml

DESCRIPTION = """Train a character language model.

$ python train.py                              the default: Riverbank, two minutes on a laptop
$ python train.py my.txt                       your own text
$ python train.py configs/no_mask.toml         an ablation
$ python train.py my.txt --model.n-layers 6    any setting is a flag
$ python train.py --resume                     go on where the last run stopped"""


@dataclass(frozen=True)
class Options:
    """A run."""

    inputs: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        optional("[SETTINGS.toml] [TEXT ...]", "a settings file, texts to train on, both or neither"),
    ] = ()
    out: Annotated[str | None, optional("FOLDER")] = None
    """folder of the run; unless given, runs/NAME, after the last settings file or text, or runs/base"""
    resume: Flag = False
    """continue the run in that folder from its last checkpoint"""
    overwrite: Flag = False
    """remove the run that is in that folder first"""
    log: Literal["none", "tensorboard"] = "none"
    """also write event files for TensorBoard, into the folder's events/"""
    print_config: Flag = False
    """print the resolved settings and stop"""


def default_settings(inputs: tuple[str, ...]) -> Path:
    """Riverbank's settings, or those for ordinary text where texts are given."""
    _, texts = split_inputs(inputs)
    return packaged("configs/shakespeare.toml" if texts else "configs/base.toml")


def source_of(inputs: tuple[str, ...]) -> str:
    """Where the settings come from, but for flags."""
    files, _ = split_inputs(inputs)
    default = f"configs/{default_settings(inputs).name}"
    return f"{files[0]}; what it leaves out is that of {default}" if files else default


def main(argv: list[str] | None = None, prog: str = "python -m minilm train") -> int:
    """The command; `prog` is how it was called."""
    argv = sys.argv[1:] if argv is None else argv
    description = DESCRIPTION.replace("python train.py", prog)
    options, config = parse(Options, argv, default_settings, prog=prog, description=description)
    if options.print_config:
        print(to_toml(config), end="")
        return 0
    from minilm.session import start_run  # imports torch, which --help has no need of

    name = Path(options.inputs[-1]).stem if options.inputs else "base"
    folder = Path(options.out) if options.out else Path("runs") / name
    return start_run(
        config,
        folder,
        resume=options.resume,
        overwrite=options.overwrite,
        log=options.log,
        settings=source_of(options.inputs),
    )
