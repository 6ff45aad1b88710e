"""On what was it measured? A figure without its machine cannot be compared with any other."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from minilm import __version__
from minilm.device import choose_device, choose_precision, type_name


def machine(device: str = "cpu", threads: int = 0) -> dict[str, Any]:
    """All that a reader of a figure needs to know.

    `threads` is how many the measured process uses, where that is not this one.
    """
    import joblib

    place = choose_device(device)
    return {
        "processor": torch.cuda.get_device_name(place) if place.type == "cuda" else processor(),
        "device": str(place),
        "cores": joblib.cpu_count(),
        "threads": threads or torch.get_num_threads(),
        "precision of auto": type_name(choose_precision("auto", place)),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "minilm": __version__,
    }


def processor() -> str:
    """What the CPU calls itself."""
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return known.get("cpu_name") or platform.processor() or platform.machine()


def heading(here: dict[str, Any], precision: str, repeats: str) -> list[str]:
    """The first lines of every table. `load` counts all that wants a core, so 0 is a quiet machine."""
    load = "" if here["load"] is None else f", load {here['load']:.1f} before"
    threads = f"{here['threads']} thread{'s' * (here['threads'] != 1)}"
    return [
        f"machine    {here['processor']} ({here['device']}), {here['cores']} cores, {threads}{load}",
        f"system     {here['platform']}",
        f"software   minilm {here['minilm']}, torch {here['torch']}, Python {here['python']}",
        f"precision  {precision}",
        f"repeats    {repeats}; median (least..most)",
        "",
    ]


def turns(repeats: int) -> str:
    """How most figures are repeated (see spread.take_turns)."""
    return f"{repeats}, taking turns"
