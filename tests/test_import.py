"""Does a GPT-2 of transformers become a run of ours: the same scores, samples, training, and the way back?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import TEXT, trained_run
from safetensors.torch import load_file

from minilm.adopt import main as adopt
from minilm.config import CorpusConfig
from minilm.export import main as export
from minilm.lab.probes import probe_run
from minilm.runs import load_run
from minilm.sample import main as sample
from minilm.settings import load_config

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    """A small GPT-2 as transformers saves it: tied head, tanh GELU, byte pairs; not to be written to."""
    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([TEXT], vocab_size=290, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    size = {"vocab_size": tokenizer.get_vocab_size(), "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, initializer_range=0.3))
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def adopted(gpt2, tmp_path) -> Path:
    assert adopt([str(gpt2), "--out", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


@torch.no_grad()
def test_same_logits(gpt2, adopted):
    run = load_run(adopted)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(gpt2).eval()
    tokens = torch.randint(len(run.vocabulary), (4, 16), generator=torch.Generator().manual_seed(0))
    expected = theirs(tokens).logits
    assert expected.std() > 1
    torch.testing.assert_close(run.model(tokens), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_same_numbers_for_a_text(gpt2, adopted):
    theirs = tokenizers.Tokenizer.from_file(str(gpt2 / "tokenizer.json"))
    text = TEXT[:200] + "<|endoftext|>Été 😀"
    assert load_run(adopted).vocabulary.encode(text).tolist() == theirs.encode(text).ids
    assert load_run(adopted).vocabulary.decode(theirs.encode(text).ids) == text


def test_an_adopted_run_samples_trains_is_probed_and_goes_back(adopted, tiny_text, tmp_path, capsys):
    assert sample([str(adopted), "--prompt", "the", "--length", "5"]) == 0
    before = load_run(adopted)
    config = load_config(adopted / "config.toml")
    training = config.training.model_copy(update={"steps": 4, "evaluate_every": 2, "evaluation_characters": 100})
    corpus = CorpusConfig(source="file", path=(str(tiny_text),), unit="bpe")
    config = config.model_copy(update={"training": training, "corpus": corpus})
    trained_run(config, adopted, resume=True, until=2)
    run = trained_run(config, adopted, resume=True)
    assert run.step == 4
    assert load_config(adopted / "config.toml").corpus == corpus
    after = load_run(adopted, "last")
    assert after.vocabulary == before.vocabulary
    assert not torch.equal(after.model.head.weight, before.model.head.weight)
    assert probe_run(adopted)["step"] == 4
    assert export([str(adopted), str(tmp_path / "back"), "--which", "last"]) == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    assert torch.equal(theirs.lm_head.weight, after.model.head.weight)


@pytest.mark.parametrize("unit", ["char", "byte", "bpe"])
def test_round_trip_is_equal_to_the_bit(unit, on_text, tmp_path):
    config = on_text(training={"steps": 2, "evaluate_every": 2})
    corpus = config.corpus.model_copy(update={"unit": unit, "vocabulary": 280})
    trained_run(config.model_copy(update={"corpus": corpus}), tmp_path / "run")
    assert export([str(tmp_path / "run"), str(tmp_path / "gpt2")]) == 0
    # Through transformers too, which must keep what it reads.
    transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "gpt2").save_pretrained(tmp_path / "saved")
    (tmp_path / "gpt2" / "tokenizer.json").rename(tmp_path / "saved" / "tokenizer.json")
    assert adopt([str(tmp_path / "saved"), "--out", str(tmp_path / "back")]) == 0
    ours, back = load_run(tmp_path / "run"), load_run(tmp_path / "back")
    assert back.vocabulary.encode(TEXT).tolist() == ours.vocabulary.encode(TEXT).tolist()
    assert back.vocabulary.unit == unit
    assert back.config.model == ours.config.model
    for name, weights in ours.model.state_dict().items():
        assert torch.equal(weights, back.model.state_dict()[name]), name
    files = [tmp_path / name / "model.safetensors" for name in ("gpt2", "saved")]
    assert load_file(files[0]).keys() == load_file(files[1]).keys()


def test_rows_without_a_token_are_left_out(gpt2, tmp_path, capsys):
    model = transformers.AutoModelForCausalLM.from_pretrained(gpt2)
    model.resize_token_embeddings(300)
    model.save_pretrained(tmp_path / "wide")
    (tmp_path / "wide" / "tokenizer.json").write_bytes((gpt2 / "tokenizer.json").read_bytes())
    assert adopt([str(tmp_path / "wide"), "--out", str(tmp_path / "run")]) == 0
    assert "have no token and are left out" in capsys.readouterr().out
    assert len(load_run(tmp_path / "run").vocabulary) <= 290


def test_what_we_cannot_hold_is_refused_all_at_once(gpt2, tmp_path, refusal):
    folder = tmp_path / "odd"
    folder.mkdir()
    settings = json.loads((gpt2 / "config.json").read_text(encoding="utf-8"))
    settings |= {"activation_function": "silu", "n_inner": 40, "scale_attn_by_inverse_layer_idx": True}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    message = refusal(adopt, [str(folder), "--out", str(tmp_path / "other")])
    for name in ("activation_function 'silu'", "n_inner 40", "scale_attn_by_inverse_layer_idx True"):
        assert name in message
    (folder / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    assert "is of a llama" in refusal(adopt, [str(folder), "--out", str(tmp_path / "other")])
    assert not (tmp_path / "run").exists()


def test_pickles_are_not_read(gpt2, tmp_path, refusal):
    folder = tmp_path / "old"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((gpt2 / name).read_bytes())
    (folder / "pytorch_model.bin").write_bytes(b"x")
    assert "holds no .safetensors file" in refusal(adopt, [str(folder), "--out", str(tmp_path / "other")])


def test_without_a_text_it_is_neither_trained_nor_probed(adopted, refusal):
    config = load_config(adopted / "config.toml")
    assert "there is no text yet" in refusal(trained_run, config, adopted, resume=True)
    assert "there is no text yet" in refusal(probe_run, adopted)


def test_a_used_folder_and_a_name_of_the_hub_are_refused_with_what_can_be_done(adopted, gpt2, tmp_path, refusal):
    message = refusal(adopt, [str(gpt2), "--out", str(adopted)])
    assert message == f"{adopted}: holds a run already; name another folder with --out"
    assert "hf download OWNER/NAME --local-dir FOLDER" in refusal(adopt, ["gpt2", "--out", str(tmp_path / "other")])
