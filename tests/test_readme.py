"""The README is true: its table is the tree's, its commands run, its picture is there."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

# In this order one reads; each module imports only what stands above it, or the foundations.
FOUNDATIONS = ("errors", "paths", "streams", "modes", "rotary", "parameters")
READING_ORDER = (
    "attention",
    "embedding",
    "model",
    "config",
    "settings",
    "options",
    "cli",
    "riverbank",
    "sources",
    "vocabulary",
    "corpus",
    "device",
    "distributed",
    "muon",
    "optim",
    "checkpoint",
    "generation",
    "evaluation",
    "runs",
    "training",
    "session",
    "train",
    "sample",
    "kernels",
    "interop",
    "export",
    "adopt",
)


def source(name: str) -> str:
    return (ROOT / "minilm" / f"{name}.py").read_text(encoding="utf-8")


def reading_table() -> str:
    """The table as it should stand in the README."""
    rows = []
    for name in READING_ORDER:
        first = source(name).split("\n")[0].strip('"')
        rows.append(f"| `{name}.py` | {len(source(name).splitlines())} | {first} |")
    return "\n".join(rows)


def test_the_reading_order_names_every_module_with_its_length():
    modules = {path.stem for path in (ROOT / "minilm").glob("*.py")} - {"__init__", "__main__"}
    assert modules == {*READING_ORDER, *FOUNDATIONS}
    assert reading_table() in README, f"README.md should have\n{reading_table()}"


@pytest.mark.parametrize("name", [*FOUNDATIONS, *READING_ORDER])
def test_arrows_go_one_way(name):
    """attention.py picks its back end from kernels.py: the one exception."""
    order = [*FOUNDATIONS[:-1], "attention", "embedding", "parameters", *READING_ORDER[2:]]
    imported = set()
    for node in ast.walk(ast.parse(source(name))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minilm"):
            parts = (node.module or "").split(".")
            imported |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names} - {"__version__"}
    imported -= {"kernels"} if name == "attention" else set()
    assert not {m for m in imported if order.index(m) >= order.index(name)}


def test_three_files_show_a_transformer():
    assert sum(len(source(name).splitlines()) for name in ("attention", "embedding", "model")) <= 370


def test_no_file_is_long():
    files = [ROOT / "train.py", *(ROOT / "minilm").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert not [file.name for file in files if len(file.read_text(encoding="utf-8").splitlines()) > 300]


def test_pictures_and_settings_that_the_readme_names_exist():
    named = re.findall(r"\]\(([\w/.]+)\)", README) + re.findall(r"`(configs/[\w.]+)`", README)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def commands() -> list[str]:
    """Every python command that stands in the README, but for the set-up."""
    blocks = re.findall(r"```\n(.*?)```", README, re.S) + re.findall(r"`(python [^`]+)`", README)
    lines = [line.strip() for block in blocks for line in block.split("\n")]
    return [line for line in dict.fromkeys(lines) if line.startswith("python ")]


# Minutes each; what they do is tested where they are.
LONG = ("ablate", "bench", "book", "distance", "kernels")


@pytest.mark.slow
def test_the_commands_run_in_the_order_given(run_cli, tmp_path):
    """Shortened by flags where they train; from another folder, as an installed user would."""
    (tmp_path / "data").mkdir()
    (tmp_path / "my.txt").write_text("Once upon a time there was a bank.\n" * 100, encoding="utf-8")
    short = ["--training.steps", "4", "--training.evaluate-every", "2", "--corpus.characters", "20000"]
    first = run_cli("train.py", *short, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert len(commands()) >= 8
    for command in commands():
        words = shlex.split(command)[1:]
        words = words[1:] if words[0] == "-m" else words
        if words[0] == "train.py" and "--help" not in words:
            words += short
        if words[1] in LONG:
            words += ["--help"]
        done = run_cli(*words, cwd=tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


if __name__ == "__main__":  # brings the table of the README up to date
    rows = r"(\| module \| lines \| question \|\n\|---\|---\|---\|\n).*?\n\n"
    table = re.sub(rows, lambda m: f"{m[1]}{reading_table()}\n\n", README, count=1, flags=re.S)
    (ROOT / "README.md").write_text(table, encoding="utf-8")
