"""Is every run of a sweep made once and alike, whatever is asked wrongly or gets in between?"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT, StopAfter, environment

from minilm import checkpoint
from minilm.config import load_config
from minilm.corpus import batch
from minilm.errors import UserError
from minilm.lab.ablation import main
from minilm.lab.arms import DEFAULT, default_files, read_arms, read_texts
from minilm.lab.sweep import plan, run_job
from minilm.runs import build_model
from minilm.session import prepare
from minilm.streams import generator
from minilm.training import train

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


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> list[str]:
    """base.toml and no_mask.toml, tiny; not to be written to."""
    folder = tmp_path_factory.mktemp("arms")
    return [
        written(folder, "base", BASE),
        written(folder, "no_mask", f'base = "base.toml"\n{EXPECT}[model]\ncausal = false'),
    ]


def written(folder: Path, name: str, text: str) -> str:
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.fixture(scope="session")
def swept(tmp_path_factory, files) -> Path:
    """The folder of a finished sweep; not to be written to."""
    out = tmp_path_factory.mktemp("swept") / "sweep"
    assert ablate(*files, out=out) == 0
    return out


@pytest.fixture
def copied(swept, tmp_path) -> Path:
    return Path(shutil.copytree(swept, tmp_path / "copied"))


def ablate(*words: object, out: Path, seeds: int = 2, jobs: int = 1) -> int:
    return main([*map(str, words), "--out", str(out), "--seeds", str(seeds), "--jobs", str(jobs)])


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]


def bytes_of(out: Path) -> dict[str, tuple[int, bytes]]:
    """All files of the runs, with when they were written."""
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(out.glob("*/seed-*/**/*")) if p.is_file()}


def test_sweep_leaves_runs_results_verdicts_and_a_table(swept):
    assert [(line["arm"], line["seed"], line["status"]) for line in lines(swept)] == [
        ("base", 0, "finished"),
        ("no_mask", 0, "finished"),
        ("base", 1, "finished"),
        ("no_mask", 1, "finished"),
    ]
    for line in lines(swept):
        folder = swept / line["arm"] / f"seed-{line['seed']}"
        assert load_config(folder / "config.toml").training.seed == line["seed"]
        assert line["probes"]["leak"] == json.loads((folder / "probes.json").read_text(encoding="utf-8"))["leak"]
        assert line["validation"]["excess"] > 0
        assert line["early"] != line["validation"]
        assert "step     6" in (folder / "log.txt").read_text(encoding="utf-8")
    verdicts = json.loads((swept / "verdicts.json").read_text(encoding="utf-8"))
    assert [record["arm"] for record in verdicts["arms"]] == ["no_mask"]
    assert "| no_mask" in (swept / "table.md").read_text(encoding="utf-8")


def test_predictions_come_before_results(files, copied, capsys):
    ablate(*files, out=copied)
    out = capsys.readouterr().out
    assert out.index("model.causal true -> false") < out.index("It leaks.") < out.index("| arm")
    assert "loses     no parameters and no operations a window" in out
    assert "change of earlier scores by a later character: above 0" in out


def test_finished_runs_are_not_repeated(files, copied):
    before = bytes_of(copied)
    assert ablate(*files, out=copied) == 0
    assert bytes_of(copied) == before


def test_more_seeds_add_to_what_is_there(files, copied):
    before = bytes_of(copied)
    assert ablate(*files, out=copied, seeds=3) == 0
    assert len(lines(copied)) == 6
    assert bytes_of(copied).items() >= before.items()


def test_unfinished_run_goes_on_from_its_last_checkpoint(files, swept, copied):
    """Stopped at step 3, it ends with the same numbers as the run that was never stopped."""
    folder = copied / "no_mask" / "seed-1"
    shutil.rmtree(folder)
    job = plan(read_arms([Path(f) for f in files], {}), 2, copied)[3]
    run = prepare(job.config, folder, resume=False, overwrite=False)
    train(run, StopAfter(run, 3))
    assert ablate(*files, out=copied) == 0
    assert "resumed     after step 3" in (folder / "log.txt").read_text(encoding="utf-8")
    drop = {"seconds"}
    assert [{k: v for k, v in line.items() if k not in drop} for line in lines(copied)] == [
        {k: v for k, v in line.items() if k not in drop} for line in lines(swept)
    ]


def test_run_that_was_killed_before_its_first_save_is_made_anew(files, copied):
    folder = copied / "base" / "seed-0"
    for name in ("last", "best"):
        shutil.rmtree(folder / name)
    (folder / "result.json").unlink()
    assert ablate(*files, out=copied) == 0


def test_base_and_arms_share_batches_and_weights_of_the_same_name():
    """All arms that we ship: what differs is what the settings file says."""
    arms = read_arms([*default_files(), ROOT / "configs/linear_mlp.toml"], {"corpus": {"characters": 20_000}})
    corpus = next(iter(read_texts(arms).values()))
    base = build_model(arms[0].config, len(corpus.vocabulary)).state_dict()
    first = {}
    for arm in arms:
        training, model = arm.config.training, arm.config.model
        draw = generator(training.seed, "batches", 7)
        first[arm.name] = batch(corpus.train, context=model.context, batch_size=training.batch_size, generator=draw)[0]
        own = build_model(arm.config, len(corpus.vocabulary)).state_dict()
        # What is added to the stream starts smaller the more blocks there are.
        same_depth = model.n_layers == arms[0].config.model.n_layers
        shared = [n for n in own.keys() & base.keys() if same_depth or not n.endswith(("output.weight", "down.weight"))]
        assert len(shared) > 10
        assert all(torch.equal(own[name], base[name]) for name in shared)
    assert all(torch.equal(rows, first["base"]) for rows in first.values())


def test_same_seed_and_settings_under_another_name_give_the_same_run(files, tmp_path):
    """Two arms that differ in nothing but their name differ in nothing."""
    twin = written(tmp_path, "twin", f'base = "{files[0]}"')
    assert ablate(files[0], twin, out=tmp_path / "sweep", seeds=1) == 0
    one, other = ({k: v for k, v in line.items() if k not in ("arm", "seconds")} for line in lines(tmp_path / "sweep"))
    assert one == other


@pytest.mark.parametrize("change", ["--training.steps=8", "--model.width=32", "--corpus.characters=13000"])
def test_sweep_with_other_settings_is_refused_by_name(files, copied, refusal, change):
    before = bytes_of(copied)
    message = refusal(ablate, *files, change, out=copied)
    name = change.removeprefix("--").partition("=")[0]
    assert f"{copied / 'base' / 'seed-0'}: {name} was" in message
    assert "--overwrite" in message
    assert bytes_of(copied) == before


def test_overwrite_makes_the_runs_anew(files, copied):
    assert ablate(*files, "--training.steps=4", "--overwrite", out=copied) == 0
    assert [line["steps"] for line in lines(copied)] == [4] * 4


def test_run_of_another_version_is_refused_and_kept(files, copied, refusal):
    manifest = copied / "base" / "seed-1" / "manifest.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**content, "minilm": "0.0.1"}), encoding="utf-8")
    settings = copied / "no_mask" / "seed-0" / "config.toml"
    settings.write_text("[model]\nwidht = 3\n", encoding="utf-8")
    before = bytes_of(copied)
    message = refusal(ablate, *files, out=copied)
    assert f"{manifest.parent}: was made by minilm 0.0.1" in message
    assert f"{settings.parent}: its settings cannot be read" in message
    assert bytes_of(copied) == before


def test_damaged_result_is_named(files, copied, refusal):
    (copied / "base" / "seed-0" / "result.json").write_text("{", encoding="utf-8")
    assert f"{copied / 'base' / 'seed-0'}: its manifest.json or result.json cannot be read" in refusal(
        ablate, *files, out=copied
    )


def test_folder_of_something_else_is_refused(files, swept, tmp_path, refusal):
    assert "is the folder of a single run" in refusal(ablate, *files, out=swept / "base" / "seed-0")
    (tmp_path / "table.md").write_text("mine", encoding="utf-8")
    assert "table.md would be replaced" in refusal(ablate, *files, out=tmp_path)
    assert "is a file" in refusal(ablate, *files, out=tmp_path / "table.md")


def test_arms_that_cannot_be_compared_are_refused_by_name(files, tmp_path, refusal):
    base = files[0]
    short = written(tmp_path, "short", f'base = "{base}"\n[model]\ncontext = 8\n')
    other = written(tmp_path, "other", f'base = "{base}"\n[corpus]\ncharacters = 15000\n')
    lost = written(tmp_path, "lost", f'base = "{base}"\ncontrol = "nobody"\n')
    own = written(tmp_path, "own", f'base = "{base}"\ncontrol = "own"\n')
    odd = written(tmp_path, "odd", f'base = "{base}"\n{EXPECT.replace("leak", "leek")}')
    message = refusal(ablate, base, short, other, lost, own, odd, base, out=tmp_path / "sweep")
    for line in (
        "base: named 2 times",
        "short: model.context 16 -> 8, against its control base",
        "other: corpus.characters 12000 -> 15000, against its control base",
        "lost: its control, nobody, is not among base, short, other, lost, own, odd, base: add nobody.toml",
        "own: is its own control",
        "odd: expect.claims: leek: no such figure; did you mean leak?",
    ):
        assert line in message
    assert not (tmp_path / "sweep").exists()


def test_arm_without_its_control_is_refused(files, tmp_path, refusal):
    assert "no_mask: its control, base, is not among no_mask: add base.toml" in refusal(
        ablate, files[1], out=tmp_path / "sweep"
    )


def test_claim_about_a_facet_that_the_language_has_not_is_refused(files, tmp_path, refusal):
    arm = written(tmp_path, "arm", f'base = "{files[0]}"\n{EXPECT.replace("leak", "facets.rhyme")}')
    message = refusal(ablate, files[0], arm, out=tmp_path / "sweep")
    assert message == "arm: expect.claims: the language has no facet rhyme; it has sense, order, parity, recall"


@pytest.mark.parametrize("flag", ["--seeds", "--jobs"])
def test_numbers_below_one_are_refused(tmp_path, refusal, flag):
    assert f"{flag} 0: must be at least 1" in refusal(main, [flag, "0", "--out", str(tmp_path / "sweep")])


def test_one_seed_is_run_and_not_judged(files, copied, capsys):
    assert ablate(*files, out=copied, seeds=1) == 0
    assert "one seed says nothing of the scatter between seeds" in capsys.readouterr().out


def test_run_that_diverges_is_kept_and_marked(files, tmp_path, capsys):
    wild = written(tmp_path, "wild", f'base = "{files[0]}"\n[training]\nlearning_rate = 1e38\n{EXPECT}')
    assert ablate(files[0], wild, out=tmp_path / "sweep") == 0
    assert [line["status"] for line in lines(tmp_path / "sweep")] == ["finished", "diverged"] * 2
    out = capsys.readouterr().out
    assert "diverged: wild seed 0, wild seed 1" in out
    folder = tmp_path / "sweep" / "wild" / "seed-0"
    before = bytes_of(folder.parent)
    assert ablate(files[0], wild, out=tmp_path / "sweep") == 0
    assert bytes_of(folder.parent) == before


def test_full_disk_is_told_and_what_was_saved_goes_on(files, copied, monkeypatch, refusal):
    folder = copied / "no_mask" / "seed-1"
    shutil.rmtree(folder)
    usual = checkpoint.write_checkpoint

    def no_room(folder, weights, optimizer, state):
        if state["step"] > 2:
            raise OSError(28, "No space left on device")
        usual(folder, weights, optimizer, state)

    with monkeypatch.context() as patch:
        patch.setattr("minilm.training.write_checkpoint", no_room)
        message = refusal(ablate, *files, out=copied)
    assert message.startswith("no_mask, seed 1: ")
    assert "No space left on device" in message
    assert "the same command goes on" in message
    assert len(lines(copied)) == 3
    assert ablate(*files, out=copied) == 0
    assert "resumed     after step 2" in (folder / "log.txt").read_text(encoding="utf-8")
    assert len(lines(copied)) == 4


def test_own_text_has_no_floor_and_the_table_says_so(files, tiny_text, tmp_path, capsys):
    assert ablate(*files, "--corpus.path", tiny_text, out=tmp_path / "sweep") == 0
    out = capsys.readouterr().out
    assert "no floor is known" in out
    assert "not judged: excess over the floor" in out
    assert all("excess" not in line["validation"] for line in lines(tmp_path / "sweep"))
    assert ablate(*files, tiny_text, out=tmp_path / "sweep") == 0  # the same, as an input


def test_quick_is_shorter_and_preliminary(files, tmp_path, capsys):
    assert main([*files, "--quick", "--training.steps=4", "--jobs=1", "--out", str(tmp_path / "sweep")]) == 0
    assert [line["steps"] for line in lines(tmp_path / "sweep")] == [4] * 4
    out = capsys.readouterr().out
    assert "| preliminary |" in out
    assert "1 of 2 claims hold in every seed" in out


def test_self_check_reads_recorded_runs_only(files, copied, capsys, refusal):
    assert "2 recorded runs of base; four are needed" in refusal(ablate, *files, "--self-check", out=copied)
    assert ablate(files[0], out=copied, seeds=4) == 0
    before = bytes_of(copied)
    assert ablate(files[0], "--self-check", out=copied, seeds=4) == 0
    assert "%  excess over the floor" in capsys.readouterr().out
    assert bytes_of(copied) == before


def test_default_arms_are_the_base_the_four_and_their_controls():
    arms = read_arms(default_files(), {})
    assert [arm.name for arm in arms] == list(DEFAULT)
    assert {arm.name for arm in arms} >= {"base", "no_scale", "no_mask", "no_position", "no_mlp"}
    assert all(arm.claims for arm in arms if arm.control)


def test_worker_error_names_arm_and_seed(files, tmp_path):
    job = plan(read_arms([Path(f) for f in files], {}), 1, tmp_path / "sweep")[1]
    job.folder.mkdir(parents=True)
    (job.folder / "metrics.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"no_mask, seed 0: .*metrics.jsonl would be replaced"):
        run_job(job)
    assert (job.folder / "metrics.jsonl").read_text(encoding="utf-8") == "mine"


def start(out: Path, files: list[str]) -> subprocess.Popen[str]:
    """A sweep of two workers, long enough to be killed, in a process group of its own."""
    words = [*files, "--seeds=2", "--jobs=2", "--training.steps=300", "--training.evaluate-every=20", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "minilm", "ablate", *words],
        cwd=ROOT,
        env=environment(),
        encoding="utf-8",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_for(found, process: subprocess.Popen[str], seconds: float = 60) -> None:
    """Until `found` says so; a sweep that ended before that has failed."""
    end = time.monotonic() + seconds
    while not found():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that hold a run's log open."""
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if path.readlink().name == "log.txt" and os.getsid(int(path.parts[2])) == process.pid:
                found.append(int(path.parts[2]))
    return found


LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks into /proc")


@pytest.mark.slow
@LINUX
def test_killed_sweep_leaves_no_workers_and_goes_on(files, tmp_path):
    out = tmp_path / "sweep"
    process = start(out, files)
    wait_for(lambda: len(list(out.glob("*/seed-*/last"))) == 2, process)
    workers = workers_of(process)
    assert len(workers) == 2
    process.kill()
    process.communicate(timeout=20)  # waits for whoever else could write to its pipes
    assert not workers_of(process)
    again = start(out, files)
    assert again.wait(120) == 0, again.communicate()
    assert len(lines(out)) == 4
    assert "resumed" in (out / "base" / "seed-0" / "log.txt").read_text(encoding="utf-8")


@pytest.mark.slow
@LINUX
def test_killed_worker_takes_only_its_last_steps_with_it(files, tmp_path):
    out = tmp_path / "sweep"
    process = start(out, files)
    wait_for(lambda: (out / "results.jsonl").exists() and workers_of(process), process)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "a worker was killed; going on with" in printed
    assert len(lines(out)) == 4


@pytest.mark.slow
def test_stopped_sweep_says_how_to_go_on(files, tmp_path):
    out = tmp_path / "sweep"
    process = start(out, files)
    wait_for(lambda: len(list(out.glob("*/seed-*/last"))) == 2, process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
