"""Does the text come back whatever it is cut into, and do units compare?"""

from __future__ import annotations

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from conftest import tiny_config, trained_run
from hypothesis import given, settings
from hypothesis import strategies as st

from minilm.config import CorpusConfig
from minilm.corpus import load_corpus
from minilm.evaluation import bits_per_byte
from minilm.lab.probes import probe_run
from minilm.runs import load_run, read_metrics
from minilm.sample import main as sample
from minilm.vocabulary import Pieces, at_words, learn_pairs, read_units

pytest.importorskip("tokenizers")
FOX = "the quick brown fox jumps over the lazy dog.\n" * 40
PAIRS = learn_pairs([FOX], 300)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.mark.parametrize("vocabulary", [Pieces(), PAIRS], ids=["byte", "bpe"])
@given(text=texts)
@settings(max_examples=40, deadline=None)
def test_any_text_comes_back_whole_and_streamed(vocabulary, text):
    numbers = vocabulary.encode(text)
    assert vocabulary.decode(numbers) == text
    assert "".join(vocabulary.stream(numbers.tolist())) == text
    assert int(vocabulary.sizes[numbers].sum()) == len(text.encode())


@given(numbers=st.lists(st.integers(0, 255), max_size=20))
@settings(max_examples=40, deadline=None)
def test_bytes_that_make_no_text_stream_as_they_decode(numbers):
    assert "".join(Pieces().stream(numbers)) == Pieces().decode(numbers)


@given(text=st.text(st.sampled_from("ab' \n\t.1é\u3000"), max_size=60), length=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_cutting_a_long_text_changes_no_number(text, length):
    whole = PAIRS._tokenizer.encode(text).ids
    parts = list(at_words(text, length))
    assert "".join(parts) == text
    assert [number for part in parts for number in PAIRS._tokenizer.encode(part).ids] == whole


def test_pairs_are_learned_again_the_same_and_kept_as_text():
    assert learn_pairs([FOX], 300) == PAIRS
    assert read_units("bpe", PAIRS.definition, Path()).encode(FOX).tolist() == PAIRS.encode(FOX).tolist()
    assert 256 < len(PAIRS) <= 300
    assert len(PAIRS.encode(FOX)) < len(FOX) / 2
    assert json.loads(PAIRS.definition)["model"]["type"] == "BPE"


def test_pairs_are_learned_on_the_training_part_alone(tmp_path):
    file = tmp_path / "two.txt"
    file.write_text("ab " * 300 + "xyzzy " * 20, encoding="utf-8")
    config = CorpusConfig(source="file", path=(str(file),), unit="bpe", vocabulary=300, validation_fraction=0.12)
    corpus = load_corpus(config, context=4, seed=0)
    pieces = corpus.vocabulary.pieces
    assert any(b"ab" in piece for piece in pieces)
    assert not any(b"xy" in piece for piece in pieces)
    assert corpus.vocabulary.decode(corpus.train) + corpus.vocabulary.decode(corpus.validation) == file.read_text()


def test_validation_can_be_a_text_of_its_own(tmp_path, tiny_text, refusal):
    own = tmp_path / "own.txt"
    own.write_text("a lazy zebra ", encoding="utf-8")
    config = CorpusConfig(source="file", path=(str(tiny_text),), validation=(str(own),))
    corpus = load_corpus(config, context=4, seed=0)
    assert corpus.vocabulary.decode(corpus.validation) == "a lazy zebra "
    assert corpus.vocabulary.decode(corpus.train) == tiny_text.read_text(encoding="utf-8")
    assert corpus.sha256 != load_corpus(config.model_copy(update={"validation": ()}), context=4, seed=0).sha256
    message = refusal(load_corpus, config, context=40, seed=0)
    assert "the validation part has 13 characters" in message
    assert "fraction" not in message


def test_bits_per_byte_of_a_uniform_guess():
    """Bytes: 8 bits each. Characters: log2 V bits, spread over the bytes that a character has."""
    assert math.isclose(bits_per_byte(math.log(256), Pieces().encode("aé€")[None], Pieces().sizes), 8)
    letters = read_units("char", "aé€", Path())
    assert math.isclose(bits_per_byte(math.log(3), letters.encode("aé€")[None], letters.sizes), 3 * math.log2(3) / 6)


@pytest.fixture(scope="module", params=["byte", "bpe"])
def run(request, tmp_path_factory, tiny_text):
    """The folder of a run that was stopped and resumed; not to be written to."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    corpus = {"source": "file", "path": (str(tiny_text),), "unit": request.param, "vocabulary": 300}
    config = tiny_config(corpus=corpus, training={"evaluation_characters": 100_000})
    trained_run(config, folder, until=3)
    trained_run(config, folder, resume=True)
    return folder


def test_a_run_samples_and_is_probed_in_its_units(run, capsys):
    assert sample([str(run), "--prompt", "Été 😀", "--length", "20"]) == 0
    assert capsys.readouterr().out.startswith("Été 😀")
    probed = probe_run(run)
    shown = probed["texts"][0]
    assert len(shown["text"]) == len(shown["maps"][0][0])
    assert "".join(shown["text"]) in FOX
    assert probed["facets"] is None


def test_units_compare_by_bits_per_byte(run):
    lines = [line["validation"] for line in read_metrics(run / "metrics.jsonl") if "validation" in line]
    sizes = load_run(run).vocabulary.sizes.double()
    for line in lines:
        # A token has as many bits as its bytes have together.
        per_token = line["loss"] / math.log(2)
        assert per_token / sizes.max() - 1e-9 <= line["bits_per_byte"] <= per_token / sizes.min() + 1e-9
    assert all(later["bits_per_byte"] < sooner["bits_per_byte"] for sooner, later in pairwise(lines))


def test_an_exported_run_writes_the_same_text_in_transformers(run, tmp_path):
    transformers = pytest.importorskip("transformers")
    from minilm.export import main as export
    from minilm.generation import generate
    from minilm.streams import generator

    assert export([str(run), str(tmp_path / "out")]) == 0
    loaded, prompt = load_run(run), "the dog"
    tokens = loaded.vocabulary.encode(prompt)[None]
    draws = generate(loaded.model, tokens, 6, generator=generator(0, "x"), temperature=0)
    ours = prompt + loaded.vocabulary.decode(torch.cat(list(draws)))
    write = transformers.pipeline("text-generation", str(tmp_path / "out"))
    assert write(prompt, max_new_tokens=6, do_sample=False)[0]["generated_text"] == ours


def test_resuming_is_exact_in_any_unit(run, tiny_text, tmp_path):
    config = load_run(run).config
    straight = trained_run(config, tmp_path / "run")
    for name, weights in load_run(run, "last").model.state_dict().items():
        assert torch.equal(weights, straight.model.state_dict()[name])


def test_a_changed_text_or_unit_is_not_gone_on_with(run, tmp_path, refusal):
    copy = shutil.copytree(run, tmp_path / "copy")
    config = load_run(copy).config
    char = config.model_copy(update={"corpus": config.corpus.model_copy(update={"unit": "char"})})
    assert "corpus.unit was" in refusal(trained_run, char, copy, resume=True)


def test_riverbank_stays_with_characters(refusal):
    assert 'it takes unit "char"' in refusal(tiny_config, corpus={"unit": "bpe"})
