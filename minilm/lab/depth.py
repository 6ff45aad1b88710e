"""Does the stream keep telling positions apart on its way up?

Attention alone averages, and averages of averages become alike: a stack without a residual
stream loses its rank with depth (Dong et al. 2021, "Attention is not all you need").
"""

from __future__ import annotations

import torch
from torch import Tensor

from minilm.lab.measures import residual
from minilm.lab.trace import trace
from minilm.model import LanguageModel


def effective_rank(x: Tensor) -> Tensor:
    """In how many directions the rows of each window spread: (B, T, D) -> (B).

    The exponential of the entropy of the singular values, as shares of their sum (Roy and
    Vetterli 2007), after taking off the mean row. Between 1 and the smaller of T - 1 and D.
    """
    values = torch.linalg.svdvals(x - x.mean(dim=1, keepdim=True))
    shares = values / values.sum(-1, keepdim=True)
    return torch.special.entr(shares).sum(-1).exp()


def ranks(model: LanguageModel, tokens: Tensor) -> tuple[list[float], list[float]]:
    """Effective rank, and the share that positions do not have in common, at the L + 1 depths of the stream.

    Means over the windows, (B, T).
    """
    streams = trace(model, tokens).streams
    rank = [effective_rank(x).mean().item() for x in streams]
    apart = [sum(residual(window) for window in x) / len(x) for x in streams]
    return rank, apart
