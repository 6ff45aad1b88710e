"""Is a file of a run or of a sweep that was cut, garbled or swapped ever misread, or met with a traceback?

Bytes are flipped at random. What is refused names the file, in one message; what is read must be
what was written, or figures that no one can tell from such.
"""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
import torch
from conftest import tiny_config
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minilm.checkpoint import MODEL, OPTIMIZER, STATE
from minilm.errors import UserError
from minilm.lab import ablation, plot, probe, report
from minilm.runs import load_run
from minilm.sample import main as sample
from minilm.session import prepare

CHECKPOINT = [f"{which}/{name}" for which in ("last", "best") for name in (MODEL, OPTIMIZER, STATE)]
RUN = [*CHECKPOINT, "config.toml", "manifest.json", "metrics.jsonl", "samples.txt"]
SWEEP = ["results.jsonl", "verdicts.json", "table.md"]
SWEEP += [f"no_mask/seed-1/{name}" for name in ("result.json", "probes.json", *RUN)]

damages = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 0.999)),
    st.tuples(
        st.just("flip"), st.lists(st.tuples(st.floats(0, 0.999999), st.integers(1, 255)), min_size=1, max_size=4)
    ),
    st.tuples(st.just("swap"), st.sampled_from(RUN)),
)


def damaged(content: bytes, kind: str, detail, folder: Path) -> bytes:
    """The bytes of a file after something went wrong with them."""
    if kind == "cut":
        return content[: int(detail * len(content))]
    if kind == "swap":
        return (folder / detail).read_bytes() if (folder / detail).exists() else b""
    flipped = bytearray(content)
    for place, change in detail:
        if flipped:
            flipped[int(place * len(flipped))] ^= change
    return bytes(flipped)


@contextlib.contextmanager
def damage(folder: Path, name: str, how) -> None:
    """The folder with one file damaged, for a while."""
    file = folder / name
    whole = file.read_bytes()
    file.write_bytes(damaged(whole, *how, folder))
    try:
        yield
    finally:
        file.write_bytes(whole)


def refused(action, *arguments) -> str | None:
    """The message of a refusal, or None where there was none; anything else that goes wrong fails the test."""
    try:
        action(*arguments)
    except UserError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def broken(finished, tmp_path_factory) -> Path:
    """A copy of the finished run in which files are damaged one at a time."""
    folder = Path(shutil.copytree(finished, tmp_path_factory.mktemp("broken") / "run"))
    (folder / "samples.txt").write_text("--- step 8\nfox\n", encoding="utf-8")
    return folder


class Unshown(dict):
    """One that is too long for a failure's message."""

    def __repr__(self) -> str:
        return "..."


@pytest.fixture(scope="module")
def weights(finished) -> dict:
    return Unshown({which: load_run(finished, which).model.state_dict() for which in ("last", "best")})


@settings(deadline=None, max_examples=50)
@given(name=st.sampled_from(RUN), how=damages)
@example(name=f"last/{STATE}", how=("flip", [(0.5, 1)]))
def test_run_with_a_damaged_file_is_refused_by_name_or_read_as_it_was(broken, weights, tiny_text, name, how):
    config = tiny_config(corpus={"source": "file", "path": (str(tiny_text),)})
    with damage(broken, name, how):
        before = (broken / name).read_bytes()
        for which in ("last", "best"):
            message = refused(load_run, broken, which)
            needed = name in (f"{which}/{MODEL}", f"{which}/{STATE}")
            if message is None:
                found = load_run(broken, which).model.state_dict()
                assert all(torch.equal(tensor, weights[which][key]) for key, tensor in found.items())
            else:
                assert needed
                assert message.startswith(str(broken / name))
        message = refused(lambda: prepare(config, broken, resume=True, overwrite=False))
        if message is None and name.startswith("last/"):
            assert before == (broken / name).read_bytes()
        assert message is None or message.startswith(str(broken / name))
        if name == "metrics.jsonl":
            message = refused(plot.main, [str(broken), "--out", str(broken.parent / "loss.svg")])
            assert message is None or message.startswith(str(broken / name))
        if refused(load_run, broken, "last"):
            for command in (sample, probe.main):
                assert refused(command, [str(broken), "--which", "last"]).startswith(str(broken / name))


@pytest.fixture(scope="module")
def broken_sweep(swept, tmp_path_factory) -> Path:
    return Path(shutil.copytree(swept, tmp_path_factory.mktemp("broken") / "sweep"))


@pytest.mark.slow
@settings(deadline=None, max_examples=int(os.environ.get("MINILM_FUZZ", 10)))
@given(name=st.sampled_from(SWEEP), how=damages)
def test_sweep_with_a_damaged_file_is_refused_by_name_or_reported(broken_sweep, files, name, how):
    if not (broken_sweep / name).exists():
        return
    with damage(broken_sweep, name, how):
        message = refused(report.main, [str(broken_sweep)])
        assert message is None or str(broken_sweep / name) in message
    whole = {file: (broken_sweep / file).read_bytes() for file in SWEEP if (broken_sweep / file).exists()}
    with damage(broken_sweep, name, how):
        words = ["--out", str(broken_sweep), "--seeds", "2", "--jobs", "1"]
        message = refused(ablation.main, [*files, *words])
        assert message is None or str(Path(name).parent) in message
    for file, content in whole.items():
        (broken_sweep / file).write_bytes(content)
