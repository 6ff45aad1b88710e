"""Does attention without the T x T weights give the same answer, and what stays quadratic?"""

from __future__ import annotations

from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

from minilm.attention import backend_named
from minilm.lab.finding import Finding, normal
from minilm.lab.kernels import allocated_peak, make_inputs, step
from minilm.lab.measures import slope
from minilm.lab.traffic import TILES, traffic


def tiles_give_the_same_attention() -> Finding:
    inputs = [normal(f"same/{name}", 2, 2, 100, 16).requires_grad_() for name in ("query", "key", "value")]
    upstream = normal("same/upstream", 2, 2, 100, 16)
    answers, gradients = [], []
    for backend, settings in (("explicit", {}), ("tiled", {"tile": (16, 24)})):
        answers.append(backend_named(backend)(*inputs, scale=0.25, causal=True, padding=None, **settings))
        gradients.append(torch.cat(torch.autograd.grad(answers[-1], inputs, upstream)))
    off, off_gradient = ((a - b).abs().max().item() for a, b in (answers, gradients))
    return Finding(
        "Tiling produces the same attention as before.",
        {"furthest apart, float64": off, "gradients furthest apart": off_gradient},
        as_stated=off < 1e-10 and off_gradient < 1e-8,
        core=True,
        precisely="To rounding: the sums are taken in another order.",
    )


def tiles_move_fewer_numbers() -> Finding:
    moved = {tile: traffic(4096, 64, tile) for tile in TILES}
    better = [tile for tile, t in moved.items() if t.paper < t.explicit]
    return Finding(
        "Tiling needs fewer accesses to slow memory than standard attention.",
        {
            "numbers moved at T = 4096, K = 64, standard": moved[TILES[0]].explicit,
            **{f"with tiles of {tile}": t.paper for tile, t in moved.items()},
            "smallest tile that moves fewer": min(better),
            "numbers that fast memory then holds": moved[min(better)].fast,
            "power of the tile with which they fall": slope(TILES, [t.paper for t in moved.values()]),
        },
        as_stated=len(better) == len(moved),
        core=moved[128].paper < moved[128].explicit,
        precisely="If fast memory holds tiles that are wide enough against the key width; twice the tile, half the "
        "traffic. With small tiles it moves more.",
    )


def time_and_memory_are_quadratic() -> Finding:
    lengths = [256, 512, 1024]
    grows = {}
    for backend in ("explicit", "tiled"):
        run, operations, peaks = step(backend, 64), [], []
        for length in lengths:
            inputs = make_inputs(length, 64)
            with FlopCounterMode(display=False) as counter:
                run(*inputs)
            operations.append(counter.get_total_flops())
            peaks.append(allocated_peak(partial(run, *make_inputs(length, 64))))
        grows[backend] = slope(lengths, operations), slope(lengths, peaks)
    return Finding(
        "The time and the memory of attention are quadratic in the length; tiling takes away only traffic.",
        {
            "operations grow with T to the power of, explicit": grows["explicit"][0],
            "operations, tiled": grows["tiled"][0],
            "peak memory, explicit": grows["explicit"][1],
            "peak memory, tiled": grows["tiled"][1],
        },
        as_stated=all(power > 1.8 for pair in grows.values() for power in pair),
        core=min(grows["explicit"]) > 1.8 and grows["tiled"][0] > 1.8 and grows["tiled"][1] <= 1.1,
        precisely="The operations are, in every kernel (one that skips hidden tiles gets there from below). The memory "
        "is only where the weights are held: with tiles it is linear. `python -m minilm kernels` measures more.",
    )
