"""Does the package work where people put it: in their Python, and in any folder?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, environment

SHORT = ["--training.steps=4", "--training.evaluate-every=2", "--corpus.characters=20000", "--training.batch-size=4"]


def test_importing_the_package_imports_no_torch(run_cli, tmp_path):
    code = "import sys, minilm; minilm.__version__; dir(minilm); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "False\n"


def test_names_of_the_package_are_what_they_say():
    """Also `attention`, which is the name of a module too."""
    import minilm.attention  # must not shadow the function
    from minilm import LanguageModel, attention, generate, load_run, probe
    from minilm.generation import generate as same_generate
    from minilm.lab.probes import probe_run
    from minilm.runs import load_run as same_load_run

    assert attention is sys.modules["minilm.attention"].attention
    assert LanguageModel is sys.modules["minilm.model"].LanguageModel
    assert (generate, load_run, probe) == (same_generate, same_load_run, probe_run)
    assert set(minilm.__all__) <= set(dir(minilm))
    with pytest.raises(AttributeError, match="nothing"):
        minilm.nothing  # noqa: B018


def test_the_readme_s_python_runs(finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path / "runs" / "my")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert blocks
    for block in blocks:
        names = {}
        exec(block.replace("Once", "the "), names)
        assert len(names["text"]) == 50
        assert names["leaks"] is False
        assert re.fullmatch(r"<run: [\d,]+ parameters, 29 characters, step 8, validation loss .*>", repr(names["run"]))


def test_types_are_ours_to_be_relied_on():
    assert (ROOT / "minilm" / "py.typed").exists()


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder of the wheel and of the source distribution."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=environment(PYTHONPATH=""))
    return out


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The folder of the programs of a Python that has the wheel, and all else from this one."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    wheel = next(built.glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*pip, "--ignore-installed", str(wheel)], check=True, capture_output=True)
    return folder / "bin"


@pytest.mark.slow
def test_both_distributions_hold_what_is_needed(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    for name in ("py.typed", "configs/base.toml", "data/riverbank.toml", "lab/templates/report.html.j2", "train.py"):
        assert f"minilm/{name}" in names
    assert not [name for name in names if name.startswith(("tests/", "configs/", "data/"))]
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
    assert {"train.py", "configs/base.toml", "minilm/model.py", "tests/conftest.py", "README.md"} <= inside


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="programs lie elsewhere")
def test_an_installed_wheel_works_from_any_folder(installed, tmp_path):
    """Also from one whose folders are called as the ones that we look for."""
    for name in ("data", "configs", "datasets"):
        (tmp_path / name).mkdir()

    def call(*words: str) -> str:
        done = subprocess.run(
            [installed / "minilm", *words],
            cwd=tmp_path,
            env=environment(PYTHONPATH=""),
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = [installed / "python", "-c", "import minilm; print(minilm.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment(PYTHONPATH=""), capture_output=True, encoding="utf-8")
    assert found.stdout.startswith(str(installed.parent))
    assert "usage:" in call("--help")
    assert "river" in call("lookup")
    assert "best validation loss" in call("train", *SHORT)
    call("ablate", "configs/base.toml", "configs/no_mask.toml", "--seeds", "1", "--jobs", "1", *SHORT)
    assert (tmp_path / "runs" / "ablation" / "report.html").exists()
