"""Is a sweep that cannot be compared, or that would harm what is there, refused by name?"""

import json
from pathlib import Path

import pytest
from ablating import EXPECT, ablate, bytes_of, written

from minilm.errors import UserError
from minilm.lab.ablation import main
from minilm.lab.arms import read_arms
from minilm.lab.jobs import run_job
from minilm.lab.sweep import plan


@pytest.mark.parametrize("change", ["--training.steps=8", "--model.width=32", "--corpus.characters=13000"])
def test_sweep_with_other_settings_is_refused_by_name(files, swept_copy, refusal, change):
    before = bytes_of(swept_copy)
    message = refusal(ablate, *files, change, out=swept_copy)
    name = change.removeprefix("--").partition("=")[0]
    assert f"{swept_copy / 'base' / 'seed-0'}: {name} was" in message
    assert "--overwrite" in message
    assert bytes_of(swept_copy) == before


def test_run_of_another_version_is_refused_and_kept(files, swept_copy, refusal):
    manifest = swept_copy / "base" / "seed-1" / "manifest.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**content, "minilm": "0.0.1"}), encoding="utf-8")
    settings = swept_copy / "no_mask" / "seed-0" / "config.toml"
    settings.write_text("[model]\nwidht = 3\n", encoding="utf-8")
    before = bytes_of(swept_copy)
    message = refusal(ablate, *files, out=swept_copy)
    assert f"{manifest.parent}: was made by minilm 0.0.1" in message
    assert f"{settings.parent}: its settings cannot be read" in message
    assert bytes_of(swept_copy) == before


def test_damaged_result_is_named(files, swept_copy, refusal):
    (swept_copy / "base" / "seed-0" / "result.json").write_text("{", encoding="utf-8")
    assert f"{swept_copy / 'base' / 'seed-0'}: its manifest.json or result.json cannot be read" in refusal(
        ablate, *files, out=swept_copy
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


def test_worker_error_names_arm_and_seed(files, tmp_path):
    job = plan(read_arms([Path(f) for f in files], {}), 1, tmp_path / "sweep")[1]
    job.folder.mkdir(parents=True)
    (job.folder / "metrics.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"no_mask, seed 0: .*metrics.jsonl would be replaced"):
        run_job(job)
    assert (job.folder / "metrics.jsonl").read_text(encoding="utf-8") == "mine"


def test_arms_that_come_with_us_have_their_name_in_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arms = read_arms([Path("configs/base.toml"), Path("configs/no_mask.toml")], {})
    assert [(arm.name, arm.control) for arm in arms] == [("base", None), ("no_mask", "base")]


def test_an_arm_without_a_base_stands_on_that_of_the_ablations(tmp_path, configs):
    arm = written(tmp_path, "arm", "[model]\ncausal = false\n")
    config = read_arms([Path("configs/base.toml"), Path(arm)], {})[1].config
    assert config.model_dump(exclude={"model": {"causal"}}) == configs["base"].model_dump(exclude={"model": {"causal"}})


def test_a_recurrent_run_in_a_sweep_is_trained_and_not_probed(files, tmp_path):
    recurrent = written(tmp_path, "recurrent", f'base = "{files[0]}"\n[model]\narchitecture = "recurrent"\n')
    ablate(files[0], recurrent, out=tmp_path / "out", seeds=1)
    result = json.loads((tmp_path / "out" / "recurrent" / "seed-0" / "result.json").read_text(encoding="utf-8"))
    assert (result["status"], result["probes"]) == ("finished", {})
    assert "no attention" in result["note"]
    assert (tmp_path / "out" / "report.html").is_file()
