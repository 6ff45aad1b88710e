"""What are a model's numbers, and what do they start as?

Both follow from the names of the parameters, so neither knows more of a model than those.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn

from minilm.embedding import LOUDNESS, quiet_sinusoids
from minilm.streams import generator


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Draw every weight from the stream that bears its name, so that arms share what they share.

    Queries and keys of a normalised input start with unit variance (std 1/sqrt(D)), the
    premise of the argument for the scale (Vaswani et al. 2017, footnote 4). What is added to
    the stream starts smaller, by the number of additions (Radford et al. 2019). The head
    starts small, so the loss starts near ln V. Places start as sinusoids, by which near
    places are alike, so that a head that needs "just before" finds it for all places at once
    rather than for each alone; a quarter of their variance is noise, by which they differ.
    """
    n_blocks = len({name.split(".")[1] for name, _ in model.named_parameters() if name.startswith("blocks.")})
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        elif is_bias(name):
            parameter.zero_()
        else:
            std = 1 / math.sqrt(parameter.shape[-1])
            if "embedding" in name or name == "head.weight":
                std = LOUDNESS
            if name.endswith(("output.weight", "down.weight")):
                std /= math.sqrt(2 * n_blocks)
            noise = torch.empty(parameter.shape).normal_(generator=generator(seed, f"init/{name}"))
            parameter.copy_(std * noise)
            if name.endswith("position_embedding"):
                parameter.mul_(0.5).add_(math.sqrt(0.75) * quiet_sinusoids(*parameter.shape))


def is_bias(name: str) -> bool:
    """Whether a parameter of this name is a bias; a GRU calls its own "gru.bias_ih_l0"."""
    return name.rpartition(".")[-1].startswith("bias")


class Part(NamedTuple):
    """One row of the parameter table."""

    name: str
    weights: int
    biases: int


def parameter_table(model: nn.Module) -> list[Part]:
    """Where the parameters are, part by part; the rows sum to all that the model has."""
    kinds = ("token_embedding", "position_embedding", "norm", "attention", "recurrence", "feed_forward", "head")
    table = {kind: [0, 0] for kind in kinds}
    for name, parameter in model.named_parameters():
        kind = next(kind for kind in kinds if kind in name)
        table[kind][is_bias(name)] += parameter.numel()
    return [Part(kind.replace("_", " "), *counts) for kind, counts in table.items()]
