"""How do several processes train one model?

`torchrun --nproc-per-node 2 train.py` starts the same program twice and tells each its number.
The windows of a step are drawn as for one process, each process takes its share of them, and
torch's DistributedDataParallel averages the gradients: so all have the same model after every
step, and it is the model that one process would have, up to the rounding of sums.

The first process alone writes files and prints. A process that fails takes the others with it,
since they wait for it in the next exchange, whose connection is gone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from minilm.errors import UserError


@dataclass(frozen=True)
class Team:
    """All processes that train one model; by default this one alone."""

    rank: int = 0  # number of this process
    size: int = 1
    device: str = "cpu"  # of what is exchanged

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with gradients that are averaged over all processes."""
        return model if self.size == 1 else DistributedDataParallel(model)

    def share(self, windows: Tensor) -> Tensor:
        """The windows of this process: (n, T) -> (n / size, T)."""
        return windows[self.rank :: self.size]

    def own(self, stream: str) -> str:
        """The name of this process's own stream of random numbers; alone, or first, that of one process."""
        return f"{stream}/{self.rank}" if self.rank else stream

    def averaging(self, network: nn.Module, now: bool) -> AbstractContextManager[object]:
        """For the forward pass: gradients are averaged in the last pass of a step, and only added up before."""
        return nullcontext() if self.size == 1 or now else network.no_sync()  # type: ignore[operator]

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a number that each process has its own of."""
        if self.size > 1:
            dist.all_reduce(value)
            value /= self.size
        return value

    def agreed(self, signal: int | None) -> int | None:
        """The signal that any process got: all have to stop after the same step."""
        if self.size == 1:
            return signal
        number = torch.tensor(signal or 0, device=self.device)
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return int(number) or None

    def rows(self, score: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """`score(inputs, targets)`, (n, T) on the CPU, each process doing its share of the rows."""
        if self.size == 1 or len(inputs) < self.size:
            return score(inputs, targets)
        mine = score(self.share(inputs), self.share(targets))
        longest = -(-len(inputs) // self.size)  # all send equally much
        padded = mine.new_zeros(longest, *mine.shape[1:], device=self.device)
        padded[: len(mine)] = mine
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        whole = mine.new_empty(len(inputs), *mine.shape[1:])
        for rank, part in enumerate(parts):
            whole[rank :: self.size] = part[: len(whole[rank :: self.size])].cpu()
        return whole

    def first_does(self, action: Callable[[], None]) -> None:
        """Have the first process do it while the others wait; if it refuses, all end, and one tells why."""
        error: UserError | None = None
        if self.first:
            try:
                action()
            except UserError as caught:
                error = caught
        if self.size > 1:
            refused = [error is not None]
            dist.broadcast_object_list(refused, device=torch.device(self.device))
            if refused[0] and not self.first:
                sys.exit(2)
        if error:
            raise error

    def leave(self) -> None:
        """No more exchanges."""
        if self.size > 1:
            dist.destroy_process_group()


def join(device: torch.device) -> tuple[Team, torch.device]:
    """The team that torchrun has started, and the device of this process: on CUDA one for each."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Team(), device
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # After a restart torchrun's store still holds the addresses of the processes before: keep them apart,
    # or who comes first reads one of those and waits for somebody who is gone.
    store, rank, size = next(dist.rendezvous("env://"))
    store = dist.PrefixStore(f"restart {restarts()}", store)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=size)
    return Team(dist.get_rank(), size, str(device) if device.type == "cuda" else "cpu"), device


def restarts() -> int:
    """How often torchrun has started us anew after a failure (--max-restarts)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


class NoMetrics:
    """What a process that writes no files has in place of metrics.jsonl."""

    def write(self, **record: Any) -> None:
        """Nothing."""

    def sample(self, step: int, text: str) -> None:
        """Nothing."""

    def __enter__(self) -> NoMetrics:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing either."""
