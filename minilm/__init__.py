"""minilm: a transformer language model small enough to see why every piece is there.

>>> from minilm import LanguageModel, attention, generate, load_run, probe
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minilm.attention import attention as attention
    from minilm.generation import generate as generate
    from minilm.lab.probes import probe_run as probe
    from minilm.model import LanguageModel as LanguageModel
    from minilm.runs import load_run as load_run

__version__ = "0.1.0"
__all__ = ["LanguageModel", "attention", "generate", "load_run", "probe"]

# Imported when asked for, since torch takes a second.
WHERE = {
    "LanguageModel": ("minilm.model", "LanguageModel"),
    "generate": ("minilm.generation", "generate"),
    "load_run": ("minilm.runs", "load_run"),
    "probe": ("minilm.lab.probes", "probe_run"),
}


def __getattr__(name: str) -> Any:
    if name not in WHERE:
        raise AttributeError(f"module 'minilm' has no attribute {name!r}")
    module, inside = WHERE[name]
    return getattr(importlib.import_module(module), inside)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class Package(ModuleType):
    """Has `attention` mean the function, although importing the module of that name sets it to the module."""

    @property
    def attention(self) -> Any:
        return importlib.import_module("minilm.attention").attention

    @attention.setter
    def attention(self, module: ModuleType) -> None:
        """What the import system does after importing the module."""


sys.modules[__name__].__class__ = Package
