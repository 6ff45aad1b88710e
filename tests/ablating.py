"""A small sweep of two arms for the tests of `python -m minilm ablate`: its settings, its command, its files."""

import json
from pathlib import Path

from minilm.lab.ablation import main

BASE = """
[model]
n_layers = 1
n_heads = 2
width = 16
context = 16
[corpus]
characters = 12000
[training]
steps = 6
batch_size = 4
warmup = 1
evaluate_every = 2
evaluation_characters = 800
sample_every = 100
sample_length = 8
device = "cpu"
"""
EXPECT = """
[expect]
formula = "f"
symptom = "It leaks."
claims = [{ figure = "leak", above = 0 }, { figure = "excess", compare = "ratio", above = 3 }]
"""


def written(folder: Path, name: str, text: str) -> str:
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def ablate(*words: object, out: Path, seeds: int = 2, jobs: int = 1) -> int:
    return main([*map(str, words), "--out", str(out), "--seeds", str(seeds), "--jobs", str(jobs)])


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]


def bytes_of(out: Path) -> dict[str, tuple[int, bytes]]:
    """All files of the runs, with when they were written."""
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(out.glob("*/seed-*/**/*")) if p.is_file()}
