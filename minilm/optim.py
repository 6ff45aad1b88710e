"""How far, and in which direction, does one step move each weight?

Matrices inside blocks go to Muon (muon.py), everything else to AdamW (Loshchilov and Hutter
2019). The learning rate is a pure function of the step, so a resumed run needs to know the
step and nothing else.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from minilm.config import TrainingConfig
from minilm.muon import Muon


def learning_rate_factor(step: int, training: TrainingConfig) -> float:
    """The share of the peak learning rate used in `step`, counted from 0.

    Rises in a line over `warmup` steps, the first of which already moves, stays at the peak
    until a share `decay` of the steps is left, then falls to `final_fraction`, where it stays
    for any step beyond the last.
    """
    if step < training.warmup:
        return (step + 1) / training.warmup
    start = max(training.warmup, round((1 - training.decay) * training.steps))
    falling = training.steps - start
    done = min(1.0, max(0, step - start) / falling) if falling > 0 else float(step >= training.steps)
    shape = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[training.schedule]
    return training.final_fraction + (1 - training.final_fraction) * shape


def make_optimizers(
    model: nn.Module, training: TrainingConfig, precision: torch.dtype = torch.float32
) -> list[torch.optim.Optimizer]:
    """The optimizers that together own every parameter once; each group knows its `peak`."""
    named = list(model.named_parameters())
    matrices = [p for name, p in named if training.optimizer == "muon" and "blocks." in name and p.ndim == 2]
    taken = set(map(id, matrices))
    others = [p for _, p in named if id(p) not in taken]
    # A norm or bias pulled to zero would lose its meaning, so only matrices decay.
    groups = [
        {"params": [p for p in others if p.ndim == 2], "weight_decay": training.weight_decay},
        {"params": [p for p in others if p.ndim != 2], "weight_decay": 0.0},
    ]
    rate = training.learning_rate
    adamw = torch.optim.AdamW(
        [{**group, "peak": rate} for group in groups if group["params"]],
        lr=rate,
        betas=(0.9, training.beta2),
        fused=others[0].device.type != "mps",
    )
    if not matrices:
        return [adamw]
    rate = training.muon_learning_rate
    groups = [{"params": matrices, "peak": rate}]
    return [Muon(groups, rate, weight_decay=training.weight_decay, precision=precision), adamw]


def set_learning_rate(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Set every group to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group["peak"]


def optimizer_tensors(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """All that the optimizers remember, by parameter name: {"head.weight/exp_avg": tensor, ...}."""
    return {
        f"{name}/{key}": value
        for optimizer in optimizers
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizers(model: nn.Module, optimizers: list[torch.optim.Optimizer], tensors: dict[str, Tensor]) -> None:
    """Give back what `optimizer_tensors` took."""
    parameters = dict(model.named_parameters())
    owner = {id(p): o for o in optimizers for group in o.param_groups for p in group["params"]}
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        parameter = parameters[name]
        # AdamW counts its steps in a tensor that stays in float32 on the parameter's device.
        owner[id(parameter)].state[parameter][key] = value.to(parameter.device)
