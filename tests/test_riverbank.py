"""Is the truth that Riverbank tells about its text true?"""

import hashlib
import math
import re
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilm.riverbank import NO_FACET, Riverbank, expand_text, filler_of

TOML = """
filler = " and on"
[words]
name = ["ann", "bob", "cid"]
thing = ["tea", "ale"]
[[template]]
facet = "order"
weight = 3
texts = ["{name1} met {name2} so <{name2}> saw {name1}."]
[[template]]
facet = "recall"
weight = 1
texts = ["{name1} {thing1}, {name2} {thing2}{gap}; {name1} <{thing1}>, {name2} <{thing2}>."]
[[template]]
facet = "order"
weight = 2
texts = ["odd is <odd>.", "even is <even>."]
"""


def written(folder, text: str):
    file = folder / "language.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Riverbank:
    return Riverbank.load(written(tmp_path_factory.mktemp("language"), TOML))


@pytest.fixture(scope="module")
def packaged() -> Riverbank:
    return Riverbank.load()


@pytest.fixture(params=["small", "packaged"])
def language(request) -> Riverbank:
    return request.getfixturevalue(request.param)


def probabilities(small: Riverbank) -> dict[str, float]:
    """Of every sentence, worked out from the TOML by hand."""
    names = ("ann", "bob", "cid")
    pairs = [(a, b) for a in names for b in names if a != b]
    found = {f"{a} met {b} so {b} saw {a}.": 3 / 6 / 6 for a, b in pairs}
    drinks = (("tea", "ale"), ("ale", "tea"))
    found |= {f"{a} {x}, {b} {y}; {a} {x}, {b} {y}.": 1 / 6 / 12 for a, b in pairs for x, y in drinks}
    return found | {"odd is odd.": 2 / 6 / 2, "even is even.": 2 / 6 / 2}


def test_language_has_the_sentences_of_its_templates(small):
    assert sorted(small.sentences) == sorted(probabilities(small))
    assert all(sentence in small for sentence in small.sentences)
    for other in ("ann met ann so ann saw ann.", "odd is even.", "odd is odd", "", "odd is odd.\n"):
        assert other not in small
    assert small.facets == ("order", "recall")


def test_log_p_summed_over_a_sentence_is_that_of_the_sentence(small):
    for sentence, probability in probabilities(small).items():
        assert small.score(sentence + "\n").nats.sum() == pytest.approx(-math.log(probability))


def test_sentences_are_all_there_is(language):
    assert sum(math.exp(-language.score(s + "\n").nats.sum()) for s in language.sentences) == pytest.approx(1)


def continuations(language: Riverbank, prefix: str) -> dict[str, float]:
    """The probability of every character after `prefix`."""
    characters = {character for sentence in language.sentences for character in sentence} | {"\n"}
    return {c: math.exp(-language.score(prefix + c).nats[-1]) for c in characters}


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_probabilities_of_all_continuations_sum_to_one(small, packaged, data):
    for language in (small, packaged):
        sentence = data.draw(st.sampled_from(language.sentences))
        prefix = sentence[: data.draw(st.integers(0, len(sentence)))]
        assert sum(continuations(language, prefix).values()) == pytest.approx(1, abs=1e-9)


def test_probability_of_a_character_is_its_share_of_what_goes_on(small):
    # After "ann " come, of all text that starts so, 2/12 met (3/6 of 2/6) and 4/12 tea or ale.
    met, drink = 3 / 6 * 2 / 6, 1 / 6 * 4 / 12
    found = continuations(small, "ann ")
    assert found["m"] == pytest.approx(met / (met + drink))
    assert found["t"] == found["a"] == pytest.approx(drink / 2 / (met + drink))
    assert found["b"] == 0


def test_what_is_certain_has_no_nats(language):
    for sentence in language.sentences[:50]:
        nats = language.score(sentence + "\n").nats
        assert (nats >= 0).all()
        assert nats[-1] == 0  # after the full stop always comes the end of the line


def test_floor_is_what_endless_text_loses(language):
    text = language.generate(400_000, seed=7)
    assert language.score(text).nats.mean() == pytest.approx(language.entropy, rel=0.01)


def test_entropy_is_nats_per_sentence_over_characters_per_sentence(small):
    truth = probabilities(small)
    nats = -sum(p * math.log(p) for p in truth.values())
    characters = sum(p * (len(sentence) + 1) for sentence, p in truth.items())
    assert small.entropy == pytest.approx(nats / characters)


def test_sentences_come_as_often_as_they_should(small):
    lines = small.generate(300_000, seed=3).splitlines()
    counts = Counter(lines)
    truth = probabilities(small)
    assert set(counts) == set(truth)
    for sentence, p in truth.items():
        # Five standard errors of a share.
        assert abs(counts[sentence] / len(lines) - p) < 5 * math.sqrt(p * (1 - p) / len(lines))


def test_text_is_the_same_for_a_seed_everywhere(small):
    text = small.generate(10_000, seed=5)
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "0eb7f7b9f59bba2ea69ccdc9846751e9d534a3fe074f0031ae8a12e31f5295ad"
    )
    assert small.generate(10_000, seed=6) != text
    assert small.generate(20_000, seed=5).startswith(text)


@pytest.mark.parametrize("length", [1, 2, 100, 12_345])
def test_text_is_whole_sentences_and_no_more_than_were_asked_for(language, length):
    text = language.generate(length, seed=0)
    assert text.endswith("\n")
    assert all(line in language for line in text.splitlines())
    assert len(text) >= length > len(text) - len(text.splitlines()[-1]) - 1


def test_a_million_characters_take_less_than_a_second(packaged):
    began = time.process_time()
    packaged.generate(1_000_000, seed=0)
    assert time.process_time() - began < 1


def test_facets_stand_at_the_first_letter_of_each_answer(small):
    def marked(sentence: str) -> list[tuple[int, str]]:
        facets = small.score(sentence + "\n").facets
        return [(place, small.facets[facets[place]]) for place in np.flatnonzero(facets != NO_FACET)]

    assert marked("ann met bob so bob saw ann.") == [(15, "order")]
    assert marked("odd is odd.") == [(7, "order")]
    assert marked("cid tea, ann ale; cid tea, ann ale.") == [(22, "recall"), (31, "recall")]


def test_packaged_answers_can_be_known_and_have_rivals(packaged):
    assert packaged.facets == ("sense", "order", "parity", "recall")
    for facet in range(4):
        nats = [
            float(nats)
            for sentence in packaged.sentences
            for nats, found in zip(*packaged.score(sentence + "\n"), strict=True)
            if found == facet
        ]
        # One of two words that fit, where the sense leaves two; else a single one.
        assert max(nats) <= math.log(2) + 1e-9
        assert len(nats) >= 4


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_cut_off_sentence_is_scored_as_the_whole_one(small, packaged, data):
    for language in (small, packaged):
        sentence = data.draw(st.sampled_from(language.sentences)) + "\n"
        end = data.draw(st.integers(1, len(sentence)))
        whole, part = language.score(sentence), language.score(sentence[:end])
        assert part.nats.tolist() == whole.nats[:end].tolist()
        assert part.facets.tolist() == whole.facets[:end].tolist()


def test_several_lines_are_scored_one_by_one(small):
    lines = ["odd is odd.\n", "ann met bob so bob saw ann.\n", "cid te"]
    found = small.score("".join(lines))
    expected = [small.score(line) for line in lines]
    assert found.nats.tolist() == [n for score in expected for n in score.nats]
    assert found.facets.tolist() == [f for score in expected for f in score.facets]
    assert len(small.score("").nats) == len(small.score("").facets) == 0


def test_character_that_cannot_be_is_infinitely_unlikely(small):
    nats = small.score("odd is even.\nodd").nats
    assert (nats[:7] < math.inf).all()
    assert nats[7] == math.inf
    assert np.isnan(nats[8:13]).all()  # what follows in that line means nothing
    assert np.isfinite(nats[13:]).all()
    assert small.score("\n").nats.tolist() == [math.inf]
    assert small.score("odd is odd.x\n").nats[11] == math.inf


def test_window_is_known_from_its_first_newline_on(small):
    text = small.generate(500, seed=1)
    whole = small.score(text)
    for start in (1, 7, 30):
        window = text[start : start + 100]
        found = small.score_window(window)
        first = window.index("\n") + 1
        assert np.isnan(found.nats[:first]).all()
        assert (found.facets[:first] == NO_FACET).all()
        assert found.nats[first:].tolist() == whole.nats[start + first : start + 100].tolist()
        assert found.facets[first:].tolist() == whole.facets[start + first : start + 100].tolist()
    for window in ("", "dd is o", "dd is odd.\n"):
        found = small.score_window(window)
        assert np.isnan(found.nats).all()
        assert len(found.nats) == len(found.facets) == len(window)


@pytest.mark.parametrize("gap", [0, 1, 7, 20])
def test_gap_moves_what_is_asked_for_away(tmp_path, gap):
    language = Riverbank.load(written(tmp_path, TOML), gap=gap)
    asked = [sentence for sentence in language.sentences if ";" in sentence]
    assert {len(sentence) for sentence in asked} == {35 + gap}
    assert all(filler_of(" and on", gap) in sentence for sentence in asked)
    assert language.score(asked[0] + "\n").nats.sum() == pytest.approx(math.log(6 * 12))


def test_filler_is_repeated_and_cut():
    assert [filler_of("abc", n) for n in (0, 2, 3, 7)] == ["", "ab", "abc", "abcabca"]


def test_words_of_one_list_with_other_digits_are_others():
    words = {"a": ["x", "y"], "b": ["x"]}
    assert expand_text("{a1}{a2}{a1}", words) == ["xyx", "yxy"]
    assert expand_text("{a1}{a1}", words) == ["xx", "yy"]
    assert sorted(expand_text("{a1}{b}", words)) == ["xx", "yx"]
    assert expand_text("{b1}{b2}", words) == []
    assert expand_text("plain", words) == ["plain"]


def test_packaged_language_is_as_its_file_says():
    # Words of a list start with different letters, so the first letter of an answer decides.
    sentences = Riverbank.load().sentences
    assert len(sentences) == len(set(sentences))
    assert all(re.fullmatch(r"[^\n<>{}]+\.", sentence) for sentence in sentences)
