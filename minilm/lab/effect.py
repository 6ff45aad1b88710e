"""Do the characters that a model reads most decide its answer?

The seed article calls attention weights evidence, not an explanation. Here is the test: hide
one position at a time from every head of every layer, and set the change of the answer's
log-probability beside the weight that the position had (leave-one-out, as in Jain and Wallace
2019, "Attention is not Explanation").
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from minilm.lab.heads import rank_correlation
from minilm.lab.trace import lookups, trace
from minilm.model import LanguageModel
from minilm.modes import evaluating

SPAN = 64  # the most characters before an answer that are hidden one by one


class Effect(NamedTuple):
    """The positions before the one that asks, in order."""

    weights: list[float]  # mean over layers and heads
    changes: list[float]  # nats by which the answer becomes less likely when the position is hidden

    @property
    def rank_correlation(self) -> float:
        """Spearman's, of the weight with the size of the change; NaN where one of them is constant."""
        return rank_correlation(self.weights, [abs(change) for change in self.changes])

    @property
    def agree(self) -> bool:
        """Whether the position with the most weight is the one that matters most."""
        sizes = [abs(change) for change in self.changes]
        return self.weights.index(max(self.weights)) == sizes.index(max(sizes))


def effect(model: LanguageModel, prefix: Tensor, answer: int) -> Effect:
    """Hide each position before the last of `prefix` (T), which asks for `answer`.

    The asking position itself is never hidden: it knows its character without attention.
    """
    tokens = prefix[-SPAN:]
    others = len(tokens) - 1
    seen = trace(model, tokens[None])
    weights = torch.stack([lookup.weights[0, :, -1, :-1].mean(0) for lookup in lookups(model, seen)]).mean(0)
    shown = ~torch.eye(others, len(tokens), dtype=torch.bool)  # (T - 1, T): each row hides one
    with evaluating(model), torch.no_grad():
        hidden = model(tokens.expand(others, -1), padding=shown)[:, -1].log_softmax(-1)[:, answer]
    usual = seen.logits[0, -1].log_softmax(-1)[answer]
    return Effect(weights.tolist(), (usual - hidden).tolist())


def choose_answers(inputs: Tensor, targets: Tensor, asked: Tensor | None, most: int) -> list[tuple[Tensor, int]]:
    """Up to `most` prefixes with the character that comes next: the latest one asked for in each window.

    Args:
        inputs, targets: (n, T) each.
        asked: (n, T), True where a target answers a question; None takes each window's last.
    """
    chosen = []
    for row in range(len(inputs)):
        last = inputs.shape[1] - 1
        places = [last] if asked is None else asked[row].nonzero().flatten().tolist()
        if places and places[-1] >= max(2, last // 2):  # enough past to choose from
            chosen.append((inputs[row, : places[-1] + 1], int(targets[row, places[-1]])))
        if len(chosen) == most:
            break
    return chosen
