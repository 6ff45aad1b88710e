"""How does a model that scores the next character write a text?

Draw a character from its scores, append it, ask again. Keys and values of earlier positions
do not change, so they are kept (the KV cache) and each new character costs one position.

When the context is full the window jumps: it drops its first half and goes on. So a text of
any length can be written, each character sees at least the last half context, and the cache
is rebuilt once in half a context instead of at every character.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from minilm.model import LanguageModel
from minilm.modes import evaluating

LONGEST = 10**8  # characters in one call, which keeps them all


class KeyValueCache:
    """One layer's keys and values, in buffers of full size from the start."""

    def __init__(self, context: int) -> None:
        self.context = context
        self.length = 0
        self.buffers: tuple[Tensor, Tensor] | None = None  # each (B, H, context, K)

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep (B, H, T, K) more of each; returns all that is kept, each (B, H, S, K)."""
        if self.buffers is None:
            shape = (*key.shape[:2], self.context, key.shape[-1])
            self.buffers = key.new_empty(shape), value.new_empty(shape)
        start, self.length = self.length, self.length + key.shape[2]
        for buffer, new in zip(self.buffers, (key, value), strict=True):
            buffer[:, :, start : self.length] = new
        return self.buffers[0][:, :, : self.length], self.buffers[1][:, :, : self.length]


def window_start(n_tokens: int, context: int) -> int:
    """Where the window begins that predicts token number `n_tokens`, counted from 0."""
    jump = max(1, context // 2)
    return max(0, math.ceil((n_tokens - context) / jump)) * jump


def filtered(logits: Tensor, *, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    """The probabilities to draw from: (B, V) -> (B, V), float64.

    Args:
        temperature: above 0; divides the logits.
        top_k: keep just the k likeliest characters; exactly k, also where there are ties.
        top_p: keep the fewest likeliest characters that hold this much probability together.
    """
    logits = logits.double()
    # With the largest at 0, no division, however small the temperature, can overflow upwards.
    logits = (logits - logits.amax(-1, keepdim=True)) / temperature
    probabilities = logits.softmax(-1)
    if top_k is None and top_p is None:
        return probabilities
    probabilities, order = probabilities.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        probabilities[:, top_k:] = 0
    if top_p is not None:
        before = probabilities.cumsum(-1) - probabilities
        probabilities[before >= top_p * probabilities.sum(-1, keepdim=True)] = 0
    kept = torch.zeros_like(probabilities).scatter(-1, order, probabilities)
    return kept / kept.sum(-1, keepdim=True)


def choose(
    logits: Tensor, *, temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator
) -> Tensor:
    """One character for each row: (B, V) -> (B,). Temperature 0 takes the likeliest.

    Raises:
        FloatingPointError: a logit is no number, or the largest is infinite. One of -inf is never drawn.
    """
    logits = logits.float().cpu()
    if not logits.amax(-1).isfinite().all():
        raise FloatingPointError("some of the model's scores are infinite or no numbers")
    if temperature == 0:
        return logits.argmax(-1)
    probabilities = filtered(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)


def check_sampling(temperature: float, top_k: int | None, top_p: float | None, length: int) -> list[str]:
    """What is wrong with these settings, one line each."""
    problems = []
    if not (math.isfinite(temperature) and temperature >= 0):
        problems.append(f"temperature is {temperature}, wanted a number from 0 (greedy) upwards")
    if top_k is not None and top_k < 1:
        problems.append(f"top-k is {top_k}, wanted at least 1")
    if top_p is not None and not 0 < top_p <= 1:
        problems.append(f"top-p is {top_p}, wanted above 0 and up to 1")
    if not 0 <= length <= LONGEST:
        problems.append(f"length is {length}, wanted from 0 to {LONGEST}")
    return problems


@torch.inference_mode()
def generate(
    model: LanguageModel,
    prompt: Tensor,
    length: int,
    *,
    generator: torch.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    cached: bool = True,
) -> Iterator[Tensor]:
    """Yield `length` characters, one at a time, as (B,) integers on the CPU.

    Args:
        prompt: (B, P) integers, P at least 1; of more than a context its end is seen.
        generator: a CPU generator.
        cached: keep keys and values; gives the same characters, sooner. A model that is not
            causal has none to keep, since there an old position changes with each new one.
    """
    problems = check_sampling(temperature, top_k, top_p, length)
    if problems or prompt.shape[-1] == 0:
        raise ValueError("; ".join(problems) or "the prompt is empty")
    with evaluating(model):
        device = next(model.parameters()).device
        cached = cached and model.causal
        given = prompt.shape[-1]
        tokens = torch.cat([prompt, prompt.new_empty(len(prompt), length)], dim=-1).to(device)
        # A model that is no transformer says itself what it keeps.
        new_cache = getattr(model, "new_cache", KeyValueCache)
        start, caches = -1, list[Any]()
        for end in range(given, given + length):
            window = window_start(end, model.context)
            if cached and window == start:
                logits = model(tokens[:, end - 1 : end], caches=caches, start=end - 1 - start)
            else:
                start = window
                caches = [new_cache(model.context) for _ in model.blocks] if cached else []
                logits = model(tokens[:, start:end], caches=caches)
            chosen = choose(logits[:, -1], temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
            tokens[:, end] = chosen.to(device)
            yield chosen
