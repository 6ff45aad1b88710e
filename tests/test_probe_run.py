"""All probes on a run: what they give, what the command prints, what is refused."""

import json
from pathlib import Path

import pytest
import torch
from conftest import tiny_config, trained_run

from minilm.corpus import load_corpus
from minilm.evaluation import share_in_language
from minilm.lab import probe as command
from minilm.lab.figures import FIGURES, value_of
from minilm.lab.maps import attention_maps, place_of, texts_to_show
from minilm.lab.probes import probe, probe_run
from minilm.lab.writing import write
from minilm.runs import build_model, load_run


@pytest.fixture(scope="module")
def river(tmp_path_factory) -> Path:
    """A run on Riverbank, with room for a whole sentence; not to be written to."""
    folder = tmp_path_factory.mktemp("river") / "run"
    corpus = {"characters": 20_000}
    trained_run(tiny_config(model={"width": 16, "context": 48}, corpus=corpus), folder)
    return folder


@pytest.fixture(scope="module")
def found(river) -> dict:
    return probe_run(river)


def test_the_probes_of_a_run_are_json_with_every_figure_that_a_claim_can_be_about(found):
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    result = {"probes": found, "validation": {}, "early": {}}
    of_probes = [name for name, figure in FIGURES.items() if figure.path[0] == "probes"]
    assert of_probes
    assert [name for name in of_probes if value_of(result, name) is None] == []


def test_probes_agree_with_what_else_is_known_of_the_run(river, found):
    run = load_run(river, "last")
    corpus = load_corpus(run.config.corpus, context=48, seed=0)
    assert found["step"] == run.step == 8
    assert found["leaks"] is False
    assert found["honest_loss"] == pytest.approx(found["loss"], abs=1e-5)
    assert found["honest_excess"] == pytest.approx(found["excess"], abs=1e-5)
    assert found["in_language"] == share_in_language(run.model, corpus, seed=0, n_characters=1600)
    assert set(found["facets"]) <= {"sense", "order", "parity", "recall"}
    fresh = build_model(run.config, len(run.vocabulary))
    assert found["flatness_start"] != found["flatness"]
    again = probe(fresh, fresh, corpus, seed=0)
    assert again["flatness"] == again["flatness_start"] == found["flatness_start"]


def test_each_facet_has_a_sentence_that_asks_where_its_answer_comes_next(river):
    run = load_run(river)
    corpus = load_corpus(run.config.corpus, context=64, seed=0)
    shown = texts_to_show(corpus, 64)
    assert list(shown) == ["sense", "order", "parity", "recall"]
    for name, (text, place) in shown.items():
        assert text[0] == "\n"
        assert text[1:] in corpus.language
        facets = corpus.language.score(text[1:] + "\n").facets
        assert corpus.language.facets[facets[place]] == name
        assert place == max(i for i in range(len(facets)) if facets[i] >= 0)
    assert all(len(text) <= 20 and place < 20 for text, place in texts_to_show(corpus, 20).values())


def test_what_is_written_is_judged_line_by_line(river):
    run = load_run(river)
    corpus = load_corpus(run.config.corpus, context=48, seed=0)
    lines = write(run.model, corpus, seed=0, length=300)
    assert len("\n".join(line.text for line in lines)) == 300
    assert all(line.right == (line.text in corpus.language) for line in lines[:-1])
    assert lines[-1].right is None


def test_a_text_of_ones_own_has_no_floor_no_facets_and_no_sentences(finished):
    found = probe_run(finished)
    assert [name for name in ("excess", "honest_excess", "facets", "in_language") if found[name] is not None] == []
    assert found["honest_loss"] == pytest.approx(found["loss"], abs=1e-5)
    assert [text["name"] for text in found["texts"]] == ["text"]
    assert {line["right"] for line in found["sample"]} == {None}


def test_the_page_shows_the_map_of_the_text_that_is_asked_for(river, capsys):
    assert command.main([str(river), "--text", "odd plus even is odd."]) == 0
    page = capsys.readouterr().out
    assert "future leak       none" in page
    assert "     odd_plus_even_is_odd." in page
    assert "layer 2 head 2" in page
    assert place_of("odd.") == 2
    assert "What decides '.' after 'odd plus even is odd'" in page


def test_numbers_for_programs_are_the_same_each_time(river, found, capsys):
    assert command.main([str(river), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_a_picture_of_every_head(finished, tmp_path, capsys):
    assert command.main([str(finished), "--text", "the fox", "--plot-dir", str(tmp_path)]) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"text-layer-{layer}-head-{head}.svg" for layer in (1, 2) for head in (1, 2)]


def test_what_cannot_be_probed_is_refused(finished, copied, tmp_path, refusal):
    assert "no such run folder" in refusal(probe_run, tmp_path / "none")
    assert "has 0 characters, wanted 1 to 16" in refusal(probe_run, finished, text="")
    assert "has 17 characters" in refusal(probe_run, finished, text="t" * 17)
    assert "never seen 'é' (U+00E9" in refusal(probe_run, finished, text="thé")
    assert "make it first" in refusal(command.main, [str(finished), "--plot-dir", str(tmp_path / "none")])
    other = load_corpus(tiny_config(corpus={"characters": 4000}).corpus, context=16, seed=0)
    assert "is not the one that the run was trained on" in refusal(probe_run, copied, corpus=other)


def test_a_run_whose_text_has_changed_is_refused(tmp_path, refusal):
    """Also where all its characters are known: the floor and what was trained on would be another's."""
    text = tmp_path / "my.txt"
    text.write_text("the quick brown fox\n" * 60)
    trained_run(tiny_config(corpus={"source": "file", "path": (str(text),)}), tmp_path / "run")
    assert probe_run(tmp_path / "run" / "best")["step"] > 0
    text.write_text("the brown quick fox\n" * 60)
    assert "is not the one that the run was trained on" in refusal(probe_run, tmp_path / "run")


def test_a_context_of_one_has_nothing_to_look_at(on_text, tmp_path, refusal):
    trained_run(on_text(model={"context": 1}), tmp_path / "run")
    assert "a context of 1" in refusal(probe_run, tmp_path / "run")


def test_a_recurrent_run_has_no_attention_to_look_into(on_text, tmp_path, refusal):
    trained_run(on_text(model={"architecture": "recurrent"}), tmp_path / "run")
    assert "a recurrent model has no attention" in refusal(probe_run, tmp_path / "run")


@pytest.mark.parametrize("arm", [
    {"causal": False}, {"scaled": False}, {"position": "none"}, {"feed_forward": "none"}, {"residual": False},
    {"norm": False}, {"score": "additive"}, {"n_heads": 1}, {"context": 2}, {"context": 3},
])  # fmt: skip
def test_every_arm_can_be_probed(arm, tiny_text):
    config = tiny_config(model=arm, corpus={"source": "file", "path": (str(tiny_text),)})
    corpus = load_corpus(config.corpus, context=config.model.context, seed=0)
    model = build_model(config, len(corpus.vocabulary))
    found = probe(model, model, corpus, seed=0)
    assert found["leaks"] is (arm == {"causal": False})
    assert 0 < found["flatness"] <= 1
    assert len(found["ranks"]) == 3


def test_maps_have_a_row_for_each_character(finished):
    run = load_run(finished)
    maps = attention_maps(run.model, run.vocabulary.encode("the fox"))
    assert maps.shape == (2, 2, 7, 7)
    assert torch.allclose(maps.sum(-1), torch.ones(()), atol=1e-5)
