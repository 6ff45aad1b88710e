"""Do a cluster's workers make the same sweep, also when one of them dies, and what is told when they cannot?"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ablating import BASE, bytes_of, lines, written
from conftest import tiny_config

from minilm.errors import UserError
from minilm.lab import jobs
from minilm.lab.ablation import main
from minilm.lab.engines import library, ticket
from minilm.lab.jobs import Job, read_result, run_there

LONG = ("--training.steps=400", "--training.evaluate-every=20")


def folder_of(out: Path, line: dict) -> Path:
    return out / line["arm"] / f"seed-{line['seed']}"


@pytest.fixture
def files(tmp_path, monkeypatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    arm = 'base = "base.toml"\n[model]\ncausal = false\n[expect]\nformula = "f"\nsymptom = "s"\n'
    claims = 'claims = [{ figure = "leak", above = 0 }]\n'
    return [written(tmp_path, "base", BASE), written(tmp_path, "no_mask", arm + claims)]


@pytest.fixture(scope="module")
def cluster():
    """Two processes that work for a scheduler, and are started anew when they die."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster


@pytest.mark.slow
def test_a_dask_worker_dies_and_every_run_is_made_once(files, cluster, tmp_path):
    out = tmp_path / "there"
    killed = []

    def kill_one_at_work():
        while not killed:
            for last in out.glob("*/seed-*/last"):
                if not (last.parent / "result.json").exists():
                    worker = next(nanny.pid for nanny in cluster.workers.values())
                    os.kill(worker, signal.SIGKILL)
                    killed.append(last.parent)
                    return
            time.sleep(0.05)

    killer = threading.Thread(target=kill_one_at_work, daemon=True)
    killer.start()
    words = [*files, *LONG, "--seeds", "2"]
    assert main([*words, "--out", str(out), "--engine", "dask", "--address", cluster.scheduler_address]) == 0
    assert killed
    assert len(lines(out)) == 4
    logs = [(folder_of(out, line) / "log.txt").read_text(encoding="utf-8") for line in lines(out)]
    assert [log.count("\nstep   400  ") for log in logs] == [1] * 4
    assert sum(log.count("resumed     after") for log in logs) == 1  # the one that died was gone on with
    assert not (out / "ticket.txt").exists()

    assert main([*words, "--out", str(tmp_path / "here"), "--jobs", "2"]) == 0  # the same without a cluster
    for there, here in zip(lines(out), lines(tmp_path / "here"), strict=True):
        assert there["validation"] == here["validation"]
        assert there["probes"] == here["probes"]


@pytest.mark.slow
def test_what_a_dask_worker_refuses_is_told_with_arm_and_seed(files, cluster, tmp_path, refusal):
    out = tmp_path / "out"
    (out / "no_mask").mkdir(parents=True)
    (out / "no_mask" / "seed-0").write_text("a file where a folder should be", encoding="utf-8")
    message = refusal(
        main, [*files, "--seeds", "1", "--out", str(out), "--engine", "dask", "--address", cluster.scheduler_address]
    )
    assert "no_mask, seed 0" in message
    assert "the same command goes on" in message


@pytest.mark.slow
def test_a_cluster_that_is_not_there_or_has_no_workers(files, tmp_path, refusal, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("minilm.lab.engines.CONNECTING", 2)
    words = [*files, "--seeds", "1", "--out", str(tmp_path / "out"), "--engine", "dask", "--address"]
    assert "no Dask scheduler answers there" in refusal(main, [*words, "tcp://127.0.0.1:9"])
    assert "no Dask scheduler answers there" in refusal(main, [*words, "no address"])
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        assert "has no workers; start them with" in refusal(main, [*words, cluster.scheduler_address])
    assert not list(tmp_path.glob("out/*/seed-*"))


@pytest.mark.slow
def test_interrupted_with_dask_the_workers_save_and_stop(files, cluster, tmp_path):
    out = tmp_path / "out"
    words = [*files, "--training.steps=100000", "--training.evaluate-every=10", "--seeds", "1", "--out", str(out)]
    where = ["--engine", "dask", "--address", cluster.scheduler_address]
    process = subprocess.Popen(
        [sys.executable, "-m", "minilm", "ablate", *words, *where], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    until(lambda: len(list(out.glob("*/seed-*/last"))) == 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
    time.sleep(3 * jobs.LOOK)
    before = bytes_of(out)
    time.sleep(1)
    assert bytes_of(out) == before
    assert not list(out.glob("*/seed-*/result.json"))


@pytest.fixture
def ray_head(monkeypatch):
    """HOST:PORT of a Ray cluster of two workers."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else a token left by an earlier use of Ray turns it on
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ray = str(Path(sys.executable).with_name("ray"))
    command = [ray, "start", "--head", "--block", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as head:
        try:
            for line in head.stdout:
                if "Ray runtime started" in line:
                    break
            yield f"127.0.0.1:{port}"
        finally:
            head.terminate()


@pytest.mark.slow
def test_ray_makes_the_same_sweep(files, ray_head, tmp_path):
    words = [*files, "--seeds", "1"]
    out = tmp_path / "there"
    assert main([*words, "--out", str(out), "--engine", "ray", "--address", ray_head]) == 0
    assert not (out / "ticket.txt").exists()
    assert main([*words, "--out", str(tmp_path / "here"), "--jobs", "2"]) == 0
    for there, here in zip(lines(out), lines(tmp_path / "here"), strict=True):
        assert there["validation"] == here["validation"]


@pytest.mark.slow
def test_a_ray_cluster_that_is_not_there_is_told_of_at_once(files, tmp_path, refusal):
    pytest.importorskip("ray")
    words = [*files, "--seeds", "1", "--out", str(tmp_path / "out"), "--engine", "ray", "--address"]
    start = time.monotonic()
    assert "no Ray cluster answers there" in refusal(main, [*words, "127.0.0.1:9"])
    assert "no Ray cluster answers there" in refusal(main, [*words, "no address"])
    assert time.monotonic() - start < 20  # Ray's own patience is two minutes


def until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--engine", "dask"], "--engine dask: needs the cluster's --address"),
        (["--address", "tcp://a:1"], "--address tcp://a:1: needs --engine dask or --engine ray"),
        (["--engine", "ray", "--address", "a:1", "--jobs", "2"], "the cluster's workers decide"),
    ],
)
def test_words_that_do_not_go_together(words, told, refusal):
    assert told in refusal(main, words)


def test_a_library_that_is_not_there_is_named_with_its_extra():
    with pytest.raises(UserError, match=r"pip install 'minilm\[dask\]'"):
        library("no_such_library", "dask")


def job_in(folder: Path) -> Job:
    return Job("base", 0, tiny_config(training={"steps": 2}), folder)


def test_a_worker_that_sees_another_disk_is_told_what_to_share(tmp_path):
    with pytest.raises(UserError, match=r"does not see .*ticket\.txt as of now: all workers need the folder"):
        run_there(job_in(tmp_path / "run"), str(tmp_path), tmp_path / "ticket.txt", "token")
    assert not (tmp_path / "run").exists()


def test_a_worker_with_two_threads_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ticket(tmp_path) as held, jobs.ONE_AT_A_TIME, pytest.raises(UserError, match="one thread each"):
        run_there(job_in(tmp_path / "run"), *held)


def test_a_run_that_is_done_is_read_and_not_made_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = job_in(tmp_path / "run")
    job.folder.mkdir()
    job.result.write_text(json.dumps({"arm": "base", "seed": 0}), encoding="utf-8")
    with ticket(tmp_path) as held:
        assert run_there(job, *held) == read_result(job)


def test_a_run_stops_and_saves_when_its_sweep_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "LOOK", 0.05)
    job = Job("base", 0, tiny_config(training={"steps": 1_000_000, "evaluate_every": 1_000_000}), tmp_path / "run")
    with ticket(tmp_path) as held:
        threading.Timer(1.0, held[1].unlink).start()
        with pytest.raises(UserError, match="base, seed 0: stopped after a step that is saved"):
            run_there(job, *held)
    assert (job.folder / "last").is_dir()
    assert not job.result.exists()
