"""Do the failures that others met with their machine, their language and their screen happen here?

Each name starts with the case it retells; DET is also what is promised of determinism.
"""

import ast
import json
from pathlib import Path

import pytest
from conftest import ROOT, TINY, tiny_config, trained_run
from test_resume import what_matters

from minilm.checkpoint import STATE
from minilm.lab.plot import main as plot
from minilm.sample import main as sample

SOURCES = [ROOT / "train.py", *(ROOT / "minilm").rglob("*.py")]


def test_det_3_and_data_2_hash_seed_folder_and_locale_change_nothing(run_cli, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_bytes("déjà ― 😀 vu\n".encode() * 60)
    corpus = {"source": "file", "path": (str(text),)}
    config = tiny_config(corpus=corpus, training={"steps": 4, "evaluate_every": 2, "threads": 1})
    trained_run(config, tmp_path / "here")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    flags = [f"--training.{key.replace('_', '-')}={value}" for key, value in config.training.model_dump().items()]
    flags += [f"--model.{key.replace('_', '-')}={value}" for key, value in TINY["model"].items()]
    machine = {"PYTHONHASHSEED": "7", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done = run_cli(
        *("train.py", text, *flags, "--out", tmp_path / "there"),
        cwd=elsewhere,
        env=machine,
        python=("-X", "warn_default_encoding"),
    )
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "EncodingWarning" in line and "minilm" in line]
    assert what_matters(tmp_path / "here") == what_matters(tmp_path / "there")
    states = [json.loads((tmp_path / name / "last" / STATE).read_text("utf-8")) for name in ("here", "there")]
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert states[0]["sha256"][name] == states[1]["sha256"][name]
    written = []
    for name in ("here", "there"):
        capsys.readouterr()
        assert sample([str(tmp_path / name), "--length=20"]) == 0
        written.append(capsys.readouterr().out)
    assert written[0] == written[1]


def test_gen_5_our_own_lines_are_plain_ascii():
    """What the program says of itself shows on any console; only what it quotes may be other."""
    strings = [
        (file.name, node.lineno, node.value)
        for file in [ROOT / "train.py", *(ROOT / "minilm").glob("*.py")]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and not node.value.replace("\ufeff", "").isascii()  # the mark is taken off texts, never shown
    ]
    assert strings == []


def test_ckpt_4_nothing_runs_what_it_reads():
    """No pickle, no eval or exec, no torch.load, no code of a dataset."""
    for file in SOURCES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & {"eval", "exec", "compile"}, file
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, file
        called = {(getattr(n.value, "id", ""), n.attr) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        assert not called & {("torch", "load"), ("torch", "save"), ("os", "system"), ("np", "load")}, file
        keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
        assert not keywords & {"trust_remote_code", "allow_pickle"}, file


@pytest.fixture
def marked_run(tmp_path) -> Path:
    """A run whose text and name hold what a drawing or a page could take for its own language."""
    text = tmp_path / "text.txt"
    text.write_bytes("<script>$\\frac{x</script> 😀\n".encode() * 40)
    config = tiny_config(model={"n_layers": 1}, corpus={"source": "file", "path": (str(text),)}, training={"steps": 2})
    folder = tmp_path / "$\\frac{ <b>"
    trained_run(config, folder)
    return folder


@pytest.mark.filterwarnings("ignore:Glyph")  # the font has no such sign, and a box stands for it
def test_vis_1_pictures_need_no_screen_and_take_any_name(marked_run, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "TkAgg")
    monkeypatch.delenv("DISPLAY", raising=False)
    for name in ("loss.svg", "loss.png"):
        assert plot([str(marked_run), "--out", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.slow
def test_vis_1_without_matplotlib_training_works_and_pictures_say_what_to_install(run_cli, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n", encoding="utf-8")
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox\n" * 60, encoding="utf-8")
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    flags = ["--training.steps=2", "--model.context=8", "--model.width=8", "--model.n-heads=2", "--model.n-layers=1"]
    done = run_cli("train.py", text, *flags, "--out", "run", cwd=tmp_path, env=path)
    assert done.returncode == 0, done.stderr
    done = run_cli("minilm", "plot", "run", cwd=tmp_path, env=path)
    assert (done.returncode, done.stderr) == (2, "error: pictures need matplotlib: pip install matplotlib\n")
