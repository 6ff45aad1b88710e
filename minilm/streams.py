"""Where does every random number come from?

One seed feeds several named streams: `init`, `batches`, `dropout`, `sampling`. A stream's
generator at a step is seeded from a hash of (seed, stream, step), so

- nothing has to be remembered to resume a run but the step,
- evaluating or sampling more often cannot change what is trained on,
- two models that share a parameter name start with the same numbers in it.
"""

from __future__ import annotations

import hashlib

import torch


def stream_seed(seed: int, stream: str, step: int = 0) -> int:
    """A 63-bit seed for `stream` at `step`, the same on every platform."""
    digest = hashlib.sha256(f"{seed}/{stream}/{step}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(seed: int, stream: str, step: int = 0) -> torch.Generator:
    """A CPU generator at the start of `stream` at `step`."""
    return torch.Generator().manual_seed(stream_seed(seed, stream, step))
