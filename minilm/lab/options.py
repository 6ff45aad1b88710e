"""How do the lab's commands read their options and hand their numbers to other programs?"""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

Options = TypeVar("Options")

# Options that may be left out, without "(default: None)" behind each.
Input = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]", help_behavior_hint="")]
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")]
Text = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
Number = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")]
Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]


def read_options(options: type[Options], command: str, argv: list[str] | None) -> Options:
    """The options of `python -m minilm COMMAND`; their docstring is the help."""
    return tyro.cli(
        options,
        prog=f"python -m minilm {command}",
        description=inspect.getdoc(options),
        args=argv,
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def print_json(data: Any) -> None:
    """One line of JSON."""
    print(json.dumps(speakable(data), allow_nan=False))


def speakable(value: Any) -> Any:
    """As it is but for what is not a number (0/0, or an overflow): None, as JSON has no word for it."""
    if isinstance(value, dict):
        return {key: speakable(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [speakable(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
