"""Does every settings file that we ship load, and take a step?"""

import pytest
import torch
from conftest import ROOT, TEXT, trained_run

from minilm.runs import build_model
from minilm.settings import load_config, validate

FILES = sorted((ROOT / "configs").glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_settings_file_takes_a_step(file, tmp_path):
    config = load_config(file)
    tables = config.model_dump()
    tables["training"] |= {
        "device": "cpu",
        "evaluation_characters": 1,
        "batch_size": min(8, config.training.batch_size),
    }
    tables["corpus"] |= {"characters": min(config.corpus.characters, 20_000)}
    if config.corpus.source == "hub":
        text = tmp_path / "text.txt"
        text.write_text(TEXT * 5, encoding="utf-8")
        tables["corpus"] |= {"source": "file", "path": (str(text),)}
    run = trained_run(validate(tables, {}), tmp_path / "run", until=1)
    assert run.step == 1
    initial = build_model(config, len(run.corpus.vocabulary)).state_dict()
    moved = [name for name, p in run.model.named_parameters() if not torch.equal(p, initial[name])]
    # All but biases of keys, which shift all scores of a row alike and so have no slope.
    assert set(initial) - set(moved) <= {name for name in initial if name.endswith("key.bias")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_settings_file_says_what_it_is_for(file):
    assert file.read_text(encoding="utf-8").startswith("# ")
