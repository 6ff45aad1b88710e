"""Is every run of a sweep made once and alike, and does a sweep go on where it was left?"""

import json
import shutil
from pathlib import Path

import torch
from ablating import EXPECT, ablate, bytes_of, lines, written
from conftest import ROOT, StopAfter

from minilm import checkpoint
from minilm.corpus import batch
from minilm.lab.ablation import main
from minilm.lab.arms import DEFAULT, default_files, read_arms, read_texts
from minilm.lab.sweep import plan
from minilm.runs import build_model
from minilm.session import prepare
from minilm.settings import load_config
from minilm.streams import generator
from minilm.training import train


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


def test_predictions_come_before_results(files, swept_copy, capsys):
    ablate(*files, out=swept_copy)
    out = capsys.readouterr().out
    assert out.index("model.causal true -> false") < out.index("It leaks.") < out.index("| arm")
    assert "loses     no parameters and no operations a window" in out
    assert "change of earlier scores by a later character: above 0" in out


def test_finished_runs_are_not_repeated(files, swept_copy):
    before = bytes_of(swept_copy)
    assert ablate(*files, out=swept_copy) == 0
    assert bytes_of(swept_copy) == before


def test_more_seeds_add_to_what_is_there(files, swept_copy):
    before = bytes_of(swept_copy)
    assert ablate(*files, out=swept_copy, seeds=3) == 0
    assert len(lines(swept_copy)) == 6
    assert bytes_of(swept_copy).items() >= before.items()


def test_unfinished_run_goes_on_from_its_last_checkpoint(files, swept, swept_copy):
    """Stopped at step 3, it ends with the same numbers as the run that was never stopped."""
    folder = swept_copy / "no_mask" / "seed-1"
    shutil.rmtree(folder)
    job = plan(read_arms([Path(f) for f in files], {}), 2, swept_copy)[3]
    run = prepare(job.config, folder, resume=False, overwrite=False)
    train(run, StopAfter(run, 3))
    assert ablate(*files, out=swept_copy) == 0
    assert "resumed     after step 3" in (folder / "log.txt").read_text(encoding="utf-8")
    drop = {"seconds"}
    assert [{k: v for k, v in line.items() if k not in drop} for line in lines(swept_copy)] == [
        {k: v for k, v in line.items() if k not in drop} for line in lines(swept)
    ]


def test_run_that_was_killed_before_its_first_save_is_made_anew(files, swept_copy):
    folder = swept_copy / "base" / "seed-0"
    for name in ("last", "best"):
        shutil.rmtree(folder / name)
    (folder / "result.json").unlink()
    assert ablate(*files, out=swept_copy) == 0


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


def test_overwrite_makes_the_runs_anew(files, swept_copy):
    assert ablate(*files, "--training.steps=4", "--overwrite", out=swept_copy) == 0
    assert [line["steps"] for line in lines(swept_copy)] == [4] * 4


def test_one_seed_is_run_and_not_judged(files, swept_copy, capsys):
    assert ablate(*files, out=swept_copy, seeds=1) == 0
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


def test_full_disk_is_told_and_what_was_saved_goes_on(files, swept_copy, monkeypatch, refusal):
    folder = swept_copy / "no_mask" / "seed-1"
    shutil.rmtree(folder)
    usual = checkpoint.write_checkpoint

    def no_room(folder, weights, optimizer, state):
        if state["step"] > 2:
            raise OSError(28, "No space left on device")
        usual(folder, weights, optimizer, state)

    with monkeypatch.context() as patch:
        patch.setattr("minilm.training.write_checkpoint", no_room)
        message = refusal(ablate, *files, out=swept_copy)
    assert message.startswith("no_mask, seed 1: ")
    assert "No space left on device" in message
    assert "the same command goes on" in message
    assert len(lines(swept_copy)) == 3
    assert ablate(*files, out=swept_copy) == 0
    assert "resumed     after step 2" in (folder / "log.txt").read_text(encoding="utf-8")
    assert len(lines(swept_copy)) == 4


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


def test_self_check_reads_recorded_runs_only(files, swept_copy, capsys, refusal):
    assert "2 recorded runs of base; four are needed" in refusal(ablate, *files, "--self-check", out=swept_copy)
    assert ablate(files[0], out=swept_copy, seeds=4) == 0
    before = bytes_of(swept_copy)
    assert ablate(files[0], "--self-check", out=swept_copy, seeds=4) == 0
    assert "%  excess over the floor" in capsys.readouterr().out
    assert bytes_of(swept_copy) == before


def test_default_arms_are_the_base_the_four_and_their_controls():
    arms = read_arms(default_files(), {})
    assert [arm.name for arm in arms] == list(DEFAULT)
    assert {arm.name for arm in arms} >= {"base", "no_scale", "no_mask", "no_position", "no_mlp"}
    assert all(arm.claims for arm in arms if arm.control)
