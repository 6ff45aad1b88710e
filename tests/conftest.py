"""What do many tests need: a small model, a small text, a small run, a process of their own?"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from ablating import BASE, EXPECT, ablate, written

from minilm.config import Config
from minilm.errors import UserError
from minilm.session import prepare
from minilm.settings import load_config, validate
from minilm.training import Run, Stop, train

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TEXT = "the quick brown fox jumps over the lazy dog.\n" * 40
# "tiny" of the failure cases: 2 layers, 2 heads, width 32, context 16, batch 4, CPU, no dropout.
TINY: dict[str, dict[str, Any]] = {
    "model": {"n_layers": 2, "n_heads": 2, "width": 32, "context": 16},
    "training": {
        "steps": 8,
        "batch_size": 4,
        "warmup": 2,
        "evaluate_every": 4,
        "evaluation_characters": 160,
        "sample_every": 100,
        "sample_length": 8,
        "device": "cpu",
        "precision": "float32",  # the same numbers whatever the hardware is good at
    },
}

# A failure in a helper tells both sides, as one in a test does.
pytest.register_assert_rewrite("pages", "browsing")
from browsing import Visit  # noqa: E402

# Bit for bit is promised for one thread count, and the machine's other cores may be busy.
torch.set_num_threads(1)


@pytest.fixture
def tiny() -> Callable[..., Config]:
    """Tiny settings, with whole tables laid over them: tiny(model={"dropout": 0.1})."""
    return tiny_config


def tiny_config(**tables: dict[str, Any]) -> Config:
    merged = {name: {**TINY.get(name, {}), **tables.get(name, {})} for name in {*TINY, *tables}}
    return validate(merged, {})


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory) -> Path:
    """A text file of 1,800 characters; not to be written to."""
    file = tmp_path_factory.mktemp("text") / "fox.txt"
    file.write_bytes(TEXT.encode())
    return file


@pytest.fixture
def on_text(tiny_text) -> Callable[..., Config]:
    """Tiny settings on the tiny text."""
    return lambda **tables: tiny_config(corpus={"source": "file", "path": (str(tiny_text),)}, **tables)


class StopAfter(Stop):
    """A signal that comes in the middle of one certain step."""

    def __init__(self, run: Run, step: int, number: int = 2) -> None:
        self.run, self.last, self.number = run, step, number

    @property
    def signal(self) -> int | None:
        return self.number if self.run.step >= self.last else None


def trained_run(config: Config, folder: Path, *, resume: bool = False, until: int | None = None) -> Run:
    """Train in this process, as far as step `until` or to the end."""
    run = prepare(config, folder, resume=resume, overwrite=False)
    train(run, Stop() if until is None else StopAfter(run, until))
    return run


@pytest.fixture
def train_in() -> Callable[..., Run]:
    return trained_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory, tiny_text) -> Path:
    """The folder of a finished run on the tiny text; not to be written to."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    trained_run(tiny_config(corpus={"source": "file", "path": (str(tiny_text),)}), folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    """A copy of the finished run that a test may break."""
    return Path(shutil.copytree(finished, tmp_path / "copied"))


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> list[str]:
    """base.toml and no_mask.toml, tiny; not to be written to."""
    folder = tmp_path_factory.mktemp("arms")
    return [
        written(folder, "base", BASE),
        written(folder, "no_mask", f'base = "base.toml"\n{EXPECT}[model]\ncausal = false'),
    ]


@pytest.fixture(scope="session")
def swept(tmp_path_factory, files) -> Path:
    """The folder of a finished sweep; not to be written to."""
    out = tmp_path_factory.mktemp("swept") / "sweep"
    assert ablate(*files, out=out) == 0
    return out


@pytest.fixture
def swept_copy(swept, tmp_path) -> Path:
    """A copy of the finished sweep that a test may break."""
    return Path(shutil.copytree(swept, tmp_path / "copied"))


@pytest.fixture
def refusal() -> Callable[..., str]:
    """Call something that must be refused; gives the message."""

    def call(action: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
        with pytest.raises(UserError) as caught:
            action(*args, **kwargs)
        return str(caught.value)

    return call


@pytest.fixture
def configs() -> dict[str, Config]:
    """Every settings file that we ship, by name."""
    return {file.stem: load_config(file) for file in sorted((ROOT / "configs").glob("*.toml"))}


@pytest.fixture(scope="session")
def train_script() -> ModuleType:
    """train.py as a module, to call its main in this process."""
    spec = importlib.util.spec_from_file_location("train", ROOT / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # tyro looks up a dataclass's annotations in the module that it names.
    sys.modules["train"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def train_py(train_script, monkeypatch) -> Callable[..., int]:
    """`python train.py WORDS` in this process; bad input raises UserError, or SystemExit where tyro says so."""

    def call(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["train.py", *map(str, words)])
        return train_script.main()

    return call


def command_line(*words: object, python: tuple[str, ...] = ()) -> list[str]:
    """`train.py ...` or `minilm NAME ...` as the words of a process."""
    name, *rest = map(str, words)
    start = ["-m", "minilm"] if name == "minilm" else [str(ROOT / name)]
    return [sys.executable, *python, *start, *rest]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, with one thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


@pytest.fixture
def run_cli() -> Callable[..., subprocess.CompletedProcess[str]]:
    """run_cli("train.py", ..., cwd=...) or run_cli("minilm", "sample", ...) in a process of its own."""

    def call(*words: object, cwd: Path, env: dict[str, str] | None = None, python: tuple[str, ...] = (), **settings):
        settings = {"encoding": "utf-8", "timeout": 60, **settings}
        return subprocess.run(
            command_line(*words, python=python),
            cwd=cwd,
            env=environment(**env or {}),
            capture_output=True,
            check=False,
            **settings,
        )

    return call


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium. Without it and playwright tests are skipped, or fail if MINILM_REQUIRE_BROWSER=1."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None or importlib.util.find_spec("playwright") is None:
        lacks = "no browser is installed" if program is None else "playwright is not installed"
        message = f"{lacks}: nothing was looked at in a browser (apt-get install chromium; pip install playwright)"
        if os.environ.get("MINILM_REQUIRE_BROWSER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # A container's root user has no sandbox; the only pages opened are our own.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser) -> Iterator[Callable[..., Visit]]:
    """open_page(file, viewport=..., color_scheme=..., ...)."""
    opened: list[Visit] = []

    def call(file: Path, **context: Any) -> Visit:
        opened.append(Visit(browser, file, **context))
        return opened[-1]

    yield call
    for one in opened:
        one.context.close()
