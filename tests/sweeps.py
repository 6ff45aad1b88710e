"""Small sweeps for the tests of the report: trained, probed and judged as a real one is."""

import json
from pathlib import Path

import pytest
from conftest import tiny_config

from minilm.config import Claim, ExpectConfig
from minilm.lab import probes
from minilm.lab.arms import Arm
from minilm.lab.jobs import run_job
from minilm.lab.sweep import plan
from minilm.lab.verdicts import judge

ARMS = {"base": {}, "no_mask": {"causal": False}}


def make_sweep(out: Path, *, seeds: int = 2, arms: dict[str, dict] = ARMS, preliminary: bool = False, **tables) -> Path:
    """Arms of a few steps; the first is the control of the others, which expect that they leak and lose."""
    made = []
    for name, model in arms.items():
        training = {"evaluation_characters": 2000, **tables.get("training", {})}
        config = tiny_config(
            **{
                **tables,
                "training": training,
                "model": {"width": 16, "context": 48, **tables.get("model", {}), **model},
            }
        )
        claims = (Claim(figure="leak", above=0.01), Claim(figure="excess", compare="ratio", above=1.0))
        expect = None if not made else ExpectConfig(formula="Q K^T", symptom="It <b>cheats</b>.", claims=claims)
        made.append(Arm(name, config.model_copy(update={"expect": expect}), made[0].name if made else None))
    with pytest.MonkeyPatch.context() as patch:
        for budget, little in {
            "CHARACTERS": 1024,
            "PREFIXES": 4096,
            "ANSWERS": 4,
            "JUDGED": 400,
            "SAMPLE": 160,
        }.items():
            patch.setattr(probes, budget, little)
        results = [run_job(job) for job in plan(made, seeds, out)]
    (out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in results), encoding="utf-8")
    verdicts = {"preliminary": preliminary, "arms": judge(made, results, preliminary=preliminary)}
    (out / "verdicts.json").write_text(json.dumps(verdicts), encoding="utf-8")
    return out


def shared_sweep(factory: pytest.TempPathFactory) -> Path:
    """One sweep for all tests of a session; not to be written to, but for its report."""
    folder = factory.getbasetemp() / "shared-sweep"
    return folder if folder.exists() else make_sweep(folder)


def edit(path: Path, change) -> None:
    """Lay `change(content)` over a JSON file, or over each line of a .jsonl."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        new = "".join(json.dumps(change(json.loads(line))) + "\n" for line in text.splitlines())
    else:
        new = json.dumps(change(json.loads(text)))
    path.write_text(new, encoding="utf-8")


ALERT = "<script>window.hit=1</script><img src=x onerror=window.hit=1>"
NAME = '"><img src=x onerror=window.hit=1>$\\frac{'


def poison(sweep: Path) -> None:
    """Put markup into everything that a report says: names, texts, prompts, notes, versions."""

    def rename(value):
        return NAME if value == "no_mask" else value

    (sweep / "no_mask").rename(sweep / NAME)
    edit(sweep / "results.jsonl", lambda line: {**line, "arm": rename(line["arm"])})
    edit(
        sweep / "verdicts.json",
        lambda found: {
            "preliminary": True,
            "arms": [
                {**record, "arm": NAME, "notes": [ALERT], "symptom": ALERT, "formula": ALERT}
                for record in found["arms"]
            ],
        },
    )
    for run in sweep.glob("*/seed-*"):
        edit(run / "manifest.json", lambda found: {**found, "torch": ALERT, "corpus": ALERT, "corpus_sha256": ALERT})
        edit(run / "probes.json", poisoned_probes)


def poisoned_probes(found: dict) -> dict:
    texts = [{**text, "name": ALERT, "text": ALERT[: len(text["text"])]} for text in found["texts"]]
    return {**found, "texts": texts, "sample": [{"text": ALERT, "right": False}, {"text": ALERT, "right": None}]}
