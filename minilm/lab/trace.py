"""What does a model compute on the way to its answer?

A model is watched through hooks, so that what is seen is what its own `forward` does, in every
arm. Nothing is changed by looking: no dropout, no gradients, every part left in its mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from minilm.attention import Lookup, MultiHeadAttention
from minilm.model import LanguageModel
from minilm.modes import evaluating


class Trace(NamedTuple):
    """One pass through a model of L blocks."""

    logits: Tensor  # (B, T, V)
    streams: list[Tensor]  # L + 1 of (B, T, D): before each block and after the last
    inputs: list[Tensor]  # L of (B, T, D): what each block's attention is given


def trace(model: LanguageModel, tokens: Tensor) -> Trace:
    """Run the model on (B, T) integers and keep what passes by."""
    streams: list[Tensor] = []
    inputs: list[Tensor] = []

    def keep(kept: list[Tensor]) -> Any:
        def hook(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            kept.append(args[0])

        return hook

    watched = [(block, streams) for block in (*model.blocks, model.final_norm)]
    watched += [(attention, inputs) for attention in attentions(model)]
    hooks = [part.register_forward_pre_hook(keep(kept)) for part, kept in watched]
    try:
        with evaluating(model), torch.no_grad():
            return Trace(model(tokens), streams, inputs)
    finally:
        for hook in hooks:
            hook.remove()


def lookups(model: LanguageModel, seen: Trace) -> Iterator[Lookup]:
    """What each layer's attention looked up, by the explicit formula: one layer at a time.

    Weights of all layers together would be L H T^2 numbers for each window.
    """
    for attention, x in zip(attentions(model), seen.inputs, strict=True):
        with torch.no_grad():
            found = attention.lookup(x)
        yield found


def attentions(model: LanguageModel) -> list[MultiHeadAttention]:
    """Each block's attention, from the bottom up."""
    return [cast(MultiHeadAttention, block.attention) for block in model.blocks]
