"""Is what we export the same model for transformers, weight by weight and word by word?"""

from __future__ import annotations

import json

import pytest
import torch

from minilm.config import ModelConfig
from minilm.export import main, write_folder
from minilm.generation import generate
from minilm.interop import refuse_unheld
from minilm.runs import load_run
from minilm.streams import generator

transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def exported(finished, tmp_path_factory):
    """The folder that the finished run makes; not to be written to."""
    out = tmp_path_factory.mktemp("exported") / "fox"
    assert main([str(finished), str(out), "--to", "gpt2"]) == 0
    return out


@torch.no_grad()
def logits_differ_by(run, folder) -> float:
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    context = run.config.model.context
    tokens = torch.randint(len(run.vocabulary), (4, context), generator=torch.Generator().manual_seed(0))
    return float((run.model(tokens) - theirs(tokens).logits).abs().max())


def test_same_logits(finished, exported):
    assert logits_differ_by(load_run(finished), exported) < 1e-5


@pytest.mark.parametrize("arm", [{"scaled": False}, {"feed_forward": "linear"}, {"dropout": 0.2, "n_heads": 4}])
def test_same_logits_of_an_arm_that_gpt2_can_hold(arm, on_text, train_in, tmp_path):
    train_in(on_text(model=arm, training={"steps": 2, "evaluate_every": 2}), tmp_path / "run")
    run = load_run(tmp_path / "run")
    for parameter in run.model.parameters():
        parameter.data.mul_(3)  # far from the start, where nothing saturates
    write_folder(run, tmp_path / "out")
    assert logits_differ_by(run, tmp_path / "out") < 1e-4


def test_same_text(finished, exported):
    run = load_run(finished)
    prompt = "the quick\n"
    draws = generate(run.model, run.vocabulary.encode(prompt)[None], 6, generator=generator(0, "x"), temperature=0)
    ours = prompt + "".join(run.vocabulary.decode(draw) for draw in draws)
    write = transformers.pipeline("text-generation", str(exported))
    assert write(prompt, max_new_tokens=6, do_sample=False)[0]["generated_text"] == ours


def test_tokenizer_numbers_as_we_do_and_refuses_what_we_refuse(finished, exported):
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    text = "the dog. \n jumps\n\nover "
    assert tokenizer(text)["input_ids"] == load_run(finished).vocabulary.encode(text).tolist()
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    with pytest.raises(Exception, match="UNK"):
        tokenizer("THE")


def test_settings_say_that_the_head_is_a_matrix_of_its_own(exported):
    settings = json.loads((exported / "config.json").read_text(encoding="utf-8"))
    assert settings["tie_word_embeddings"] is False
    assert settings["activation_function"] == "gelu"


def test_the_card_is_one_that_the_hub_reads(exported):
    card = pytest.importorskip("huggingface_hub").ModelCard.load(exported / "README.md")
    assert card.data.pipeline_tag == "text-generation"
    assert card.data.library_name == "transformers"
    assert "minilm" in card.data.tags
    assert "fox.txt" in card.text
    assert card.text.strip().startswith("# fox\n")  # the folder's name, which is the model's on the hub


def test_the_example_of_the_card_runs_as_it_stands(exported, monkeypatch, capsys):
    monkeypatch.chdir(exported.parent)
    card = (exported / "README.md").read_text(encoding="utf-8")
    example = card.split("```python\n")[1].split("```")[0]
    exec(example, {})
    assert len(capsys.readouterr().out) == 16 + 1  # a whole context, and the end of the line that print adds


def test_all_that_gpt2_cannot_hold_is_refused_by_name(refusal):
    arm = ModelConfig(position="sinusoidal", causal=False, score="additive", feed_forward="none", norm=False)
    message = refusal(refuse_unheld, arm, "runs/odd")
    assert len(message.splitlines()) == 5
    for name in ("position", "causal", "score", "feed_forward", "norm"):
        assert f"GPT-2 cannot hold model.{name} = " in message
    assert "recurrent" in refusal(refuse_unheld, ModelConfig(architecture="recurrent"), "runs/gru")


def test_a_folder_that_is_there_is_left_alone(finished, tmp_path, refusal):
    assert "is there already" in refusal(main, [str(finished), str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
