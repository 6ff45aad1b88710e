"""How many operations does training take, and how many can this machine do?

A multiplication and an addition are two operations.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from minilm.config import ModelConfig
from minilm.lab.cost import dot_products, parts, shape_in

if TYPE_CHECKING:
    import torch

SQUARES = ("attention: scores", "attention: mixture")


def operations_per_token(model: ModelConfig, vocabulary: int) -> float:
    """Of the matrix products forward, and twice as many backward.

    The least that the task takes: pairs that a causal model hides are not counted, whether a back
    end computes them or not, and neither is the optimizer.
    """
    shape = replace(shape_in(model), vocabulary=vocabulary)
    seen = dot_products(shape.context, causal=model.causal) / dot_products(shape.context)
    products = sum(part.products * (seen if part.name in SQUARES else 1) for part in parts(shape))
    return 3 * 2 * products / shape.context


def operations_per_second(precision: str, device: torch.device, seconds: float) -> float:
    """Of the quickest product of two large square matrices, in some `seconds` of trying."""
    import torch

    size = 2048 if device.type == "cpu" else 8192
    left, right = torch.randn(2, size, size, dtype=getattr(torch, precision), device=device)
    times: list[float] = []
    while len(times) < 2 or sum(times) < seconds:  # the first also sets things up
        began = time.perf_counter()
        (left @ right)[0, 0].item()  # a number is only known when the device is done
        times.append(time.perf_counter() - began)
    return 2 * size**3 / min(times)
