"""Is attention as dear as the article says, and are its heads free?

The counts are taken while the real modules run (torch's FLOP counter), not from formulas.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from minilm.attention import MultiHeadAttention, attention, dot_product
from minilm.lab.cost import dot_products
from minilm.lab.finding import Finding
from minilm.lab.measures import distance_to_hull
from minilm.model import Block


def operations(module: nn.Module, length: int, width: int) -> int:
    """Multiplications and additions of one forward pass over a text."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.zeros(1, length, width))
    return counter.get_total_flops()


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def matrices(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.dim() == 2)


def eight_heads_cost_as_much_as_one() -> Finding:
    many, one = (MultiHeadAttention(512, n_heads, backend="explicit") for n_heads in (8, 1))
    length = 128
    key_width = many.project(torch.zeros(1, 1, 512))[1].shape[-1]
    work, work_one = operations(many, length, 512), operations(one, length, 512)
    shares, shares_one = (layer.lookup(torch.zeros(1, length, 512)).weights.numel() for layer in (many, one))
    return Finding(
        "Eight heads of width 64 in a model of width 512 cost as much as one head of width 512.",
        {
            "width of each of 8 heads": key_width,
            "parameters, 8 heads": parameters(many),
            "parameters, 1 head": parameters(one),
            f"operations at T = {length}, 8 heads": work,
            f"operations at T = {length}, 1 head": work_one,
            "weights to exponentiate and keep, 8 heads": shares,
            "weights to exponentiate and keep, 1 head": shares_one,
        },
        as_stated=parameters(many) == parameters(one) and work == work_one and shares == shares_one,
        core=8 * key_width == 512 and parameters(many) == parameters(one) and work == work_one,
        precisely="As many parameters, and as many multiplications and additions. But eight times as many weights, "
        "with their exponentials and their memory.",
    )


def two_heads_hold_what_one_cannot() -> Finding:
    """One head takes the first component from "a", the other the second from "b"."""
    values = torch.eye(2, dtype=torch.float64)  # of a and of b
    query = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)  # head 1 asks for a, head 2 for b
    everything = torch.ones(1, 2, dtype=torch.bool)
    _, weights = attention(query, values.expand(2, 2, 2), values.expand(2, 2, 2), scale=50.0, mask=everything)
    joined = torch.stack([weights[0, 0] @ values[:, 0], weights[1, 0] @ values[:, 1]])
    distance = distance_to_hull(joined, values)
    return Finding(
        "Several softmaxes hold several distributions where one cannot.",
        {
            "first component of the two heads together": joined[0].item(),
            "second component": joined[1].item(),
            "furthest component of the nearest mixture by one softmax": distance,
        },
        as_stated=distance > 0.4,
        core=True,
        precisely="Two heads can return (1, 1) from the values (1, 0) and (0, 1). The weights of one sum to one, so "
        "its answers sum to one as well.",
    )


class Counted:
    """The dot product, counting how many it makes."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        scores = dot_product(query, key)
        self.made += scores.numel()
        return scores


def dot_products_are_the_square_of_the_length() -> Finding:
    made = {}
    for length in (4, 4096):
        counted, x = Counted(), torch.zeros(length, 1)
        attention(x, x, x, scale=1.0, mask=torch.ones(1, 1, dtype=torch.bool), score=counted)
        made[length] = counted.made
    needed = int(torch.ones(4096, 4096, dtype=torch.bool).tril().sum())
    return Finding(
        "The number of dot products is the square of the length: 16 for four words, 16,777,216 for 4,096 positions, "
        "for each head, layer and pass.",
        {
            "made by attention() for 4": made[4],
            "made for 4,096": made[4096],
            "that a causal mask leaves to be read": needed,
            "as a share": needed / made[4096],
        },
        as_stated=made == {4: 16, 4096: 16_777_216},
        core=needed == dot_products(4096, causal=True),
        precisely="A causal model needs only half of them, T (T + 1) / 2; kernels that skip the others save that half.",
    )


def feed_forward_has_twice_the_parameters() -> Finding:
    block = Block(512, n_heads=8)
    ratio = matrices(block.feed_forward) / matrices(block.attention)
    with_biases = parameters(block.feed_forward) / parameters(block.attention)
    return Finding(
        "The part next to attention has twice as many parameters as attention.",
        {
            "weights of attention at D = 512": matrices(block.attention),
            "weights of the feed-forward part": matrices(block.feed_forward),
            "ratio": ratio,
            "ratio with biases": with_biases,
        },
        as_stated=ratio == 2,
        core=abs(with_biases - 2) < 0.01,
        precisely="8 D^2 against 4 D^2 weights, if it widens four times as is usual; biases make it a little less.",
    )
