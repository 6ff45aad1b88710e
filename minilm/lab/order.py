"""How far back does the order of the characters matter?

Shuffle everything that lies further back than some distance and see what the answer loses
(Khandelwal et al. 2018, "Sharp nearby, fuzzy far away").
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from minilm.model import LanguageModel
from minilm.modes import evaluating
from minilm.streams import generator


def distances(length: int) -> list[int]:
    """1, 2, 4, ... as long as two characters lie further back."""
    return [2**i for i in range(length.bit_length()) if length - 2**i >= 2]


def order_sensitivity(model: LanguageModel, inputs: Tensor, targets: Tensor, seed: int) -> list[float]:
    """Nats that the last target loses by the shuffle, for each of `distances`: (n, T), (n, T) -> means over n.

    At distance 1 all but the asking character is shuffled. A model that cannot see order loses
    nothing at all; one that uses only the nearest characters loses nothing further out.
    """
    draw = generator(seed, "probes/order")
    target = targets[:, -1]
    lost = []
    with evaluating(model), torch.no_grad():
        usual = F.cross_entropy(model(inputs)[:, -1], target)
        for distance in distances(inputs.shape[1]):
            far = inputs.shape[1] - distance
            order = torch.rand(len(inputs), far, generator=draw).argsort(dim=-1)
            shuffled = torch.cat([inputs[:, :far].gather(1, order), inputs[:, far:]], dim=1)
            lost.append((F.cross_entropy(model(shuffled)[:, -1], target) - usual).item())
    return lost
