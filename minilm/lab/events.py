"""How does a run look in TensorBoard?

`python train.py --log tensorboard` writes event files into RUN/events beside what every run
writes: all figures of metrics.jsonl, the samples, and who reads whom in one text of the corpus.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import torch

from minilm import runs
from minilm.errors import UserError
from minilm.lab.maps import attention_maps, texts_to_show
from minilm.training import Run

FOLDER = "events"
ENLARGED = 4  # pixels for one weight


def check_library() -> None:
    """A UserError if there is no TensorBoard to write for."""
    try:
        importlib.import_module("torch.utils.tensorboard")
    except ImportError:
        raise UserError("--log tensorboard needs that library: pip install tensorboard") from None


class Events(runs.Metrics):
    """metrics.jsonl, and the same for TensorBoard."""

    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        super().__init__(run.folder, run.step)
        self.run = run
        # A resumed run does the steps after its last save again; what was shown of them is hidden.
        self.writer = SummaryWriter(str(run.folder / FOLDER), purge_step=run.step + 1)

    def write(self, **record: Any) -> None:
        super().write(**record)
        step = record.pop("step")
        for name, value in figures(record):
            self.writer.add_scalar(name, value, step)
        if "validation" in record and self.run.config.model.architecture == "transformer":
            self.draw(step)

    def sample(self, step: int, text: str) -> None:
        self.writer.add_text("sample", text, step)  # four spaces before each line: Markdown's code

    def draw(self, step: int) -> None:
        """One picture for each head: white is read, a row for each position that asks."""
        model, corpus = self.run.model, self.run.corpus
        text, _ = next(iter(texts_to_show(corpus, model.context).values()))
        tokens = corpus.vocabulary.encode(text)[: model.context].to(self.run.device)
        was_training = model.training
        model.eval()
        with torch.no_grad():
            maps = attention_maps(model, tokens).cpu()  # (L, H, T, T)
        model.train(was_training)
        large = maps.repeat_interleave(ENLARGED, -1).repeat_interleave(ENLARGED, -2)
        for layer, heads in enumerate(large, start=1):
            for head, weights in enumerate(heads, start=1):
                self.writer.add_image(f"attention/layer-{layer}-head-{head}", weights, step, dataformats="HW")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.writer.close()


def figures(record: dict[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a record, those of a table after its name: validation/loss."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from figures(value, f"{before}{name}/")
        elif isinstance(value, int | float):
            yield f"{before}{name}", value
