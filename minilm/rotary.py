"""How can a score know how far apart two places are, and not where they stand?

Turn query and key by an angle that grows with the place (RoPE, Su et al. 2021, equation 34). The
dot product of two turned vectors depends on the difference of their angles only, so one pattern,
such as "the character before", serves all places at once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def rotate(*vectors: Tensor, start: int = 0) -> list[Tensor]:
    """Turn vectors (..., T, K), the first of which stand at place `start`; K is even. Float32 or wider.

    The first half of the columns and the second make K/2 pairs. Each pair is turned in its plane,
    by 1 radian a place for the first pair down to 1/10000 for the last.
    """
    n, width = vectors[0].shape[-2:]
    place = torch.arange(start, start + n, device=vectors[0].device, dtype=torch.float32)[:, None]  # (T, 1)
    column = torch.arange(width // 2, device=place.device)
    angle = place * torch.exp(-math.log(10_000) * column / (width // 2))  # (T, K/2)
    cos, sin = angle.cos(), angle.sin()
    pairs = [x.chunk(2, dim=-1) for x in vectors]
    return [torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1) for a, b in pairs]
