"""How do the benchmarks that train or write by a settings file begin?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from minilm.cli import parse
from minilm.config import Config
from minilm.lab.drawing import check_picture
from minilm.paths import packaged

Options = TypeVar("Options")


def read_bench(
    options: type[Options],
    argv: list[str] | None,
    *,
    prog: str,
    description: str,
    check: Callable[[Any], None],
) -> tuple[Options, Config]:
    """A benchmark's own options, checked, and its settings, shakespeare.toml's unless given; sets the threads."""
    read: Any
    read, config = parse(
        options, argv or [], lambda _: packaged("configs/shakespeare.toml"), prog=prog, description=description
    )
    check_picture(read.plot)
    check(read)
    if config.training.threads:
        import torch

        torch.set_num_threads(config.training.threads)
    return read, config
