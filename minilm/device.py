"""Where does the model run, and how exact are its products?

Matrix products are most of the work. In bfloat16 they take half the time or less on hardware
that is made for it, and longer on hardware that is not, so `auto` asks the hardware. Weights,
sums, the loss and every evaluation stay in float32.
"""

from __future__ import annotations

import math
import os

import torch

from minilm.errors import UserError


def choose_device(name: str) -> torch.device:
    """The device called `name`; `auto` is CUDA, else MPS, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.mps.is_available() else "cpu")
    if name.partition(":")[0] not in ("cpu", "cuda", "mps"):
        raise UserError(f"device {name!r}: there is no such kind; use auto, cpu, cuda, cuda:1 or mps")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device {name!r}: there is none here ({reason}); use auto or cpu") from None


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether the hardware multiplies bfloat16 faster than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return bool(known.get("avx512_bf16") or known.get("amx_bf16"))
    return False


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The type in which training multiplies: `float32`, `bfloat16`, or `auto`, what is fast here."""
    if name == "auto":
        name = "bfloat16" if has_fast_bfloat16(device) else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def type_name(precision: torch.dtype) -> str:
    """ "bfloat16" for torch.bfloat16."""
    return str(precision).removeprefix("torch.")


def multiply_in(precision: torch.dtype, device: torch.device) -> torch.autocast:
    """A context in which matrix products are taken in `precision`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == torch.bfloat16)


def physical_memory() -> float:
    """Bytes of memory that the machine has, or infinity where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch asked for more memory than there is; on the CPU it says so in words only."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)
