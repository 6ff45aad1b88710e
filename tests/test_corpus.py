"""Does text become the numbers it should, and do windows start and end where they should?"""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minilm.config import CorpusConfig
from minilm.corpus import Corpus, baselines, batch, evaluation_windows, load_corpus
from minilm.errors import UserError
from minilm.streams import generator
from minilm.vocabulary import Vocabulary


def load(*paths: Path, context: int = 8, **chosen) -> Corpus:
    config = CorpusConfig(source="file", path=tuple(map(str, paths)), **chosen)
    return load_corpus(config, context=context, seed=0)


def written(folder: Path, text: str, name: str = "my.txt") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


def text_of(corpus: Corpus) -> str:
    return corpus.vocabulary.decode(torch.cat([corpus.train, corpus.validation]))


def refusal(action, *args, **kwargs) -> str:
    with pytest.raises(UserError) as caught:
        action(*args, **kwargs)
    return str(caught.value)


def corpus_of(train: str, validation: str) -> Corpus:
    vocabulary = Vocabulary("".join(sorted(set(train + validation))))
    return Corpus(vocabulary, vocabulary.encode(train), vocabulary.encode(validation), "", "", None, ())


@settings(deadline=None)
@given(st.text(max_size=50))
def test_decode_undoes_encode(text):
    vocabulary = Vocabulary("".join(sorted(set(text))))
    numbers = vocabulary.encode(text)
    assert numbers.dtype == torch.int64
    assert vocabulary.decode(numbers) == text
    assert [vocabulary.characters[number] for number in numbers] == list(text)


def test_vocabulary_is_sorted_and_of_the_whole_text(tmp_path):
    corpus = load(written(tmp_path, "banana split\n" * 20 + "z"))
    assert corpus.vocabulary.characters == "".join(sorted(set("banana split\nz")))
    assert corpus.description == "my.txt, 261 characters"
    assert corpus.notes == ("never trained on, since only in the validation part: 'z' (U+007A, LATIN SMALL LETTER Z)",)


def test_validation_part_is_the_end_of_the_text(tmp_path):
    text = "".join(chr(97 + i % 26) for i in range(100))
    corpus = load(written(tmp_path, text), validation_fraction=0.3)
    assert corpus.vocabulary.decode(corpus.train) == text[:70]
    assert corpus.vocabulary.decode(corpus.validation) == text[70:]
    assert corpus.notes == ()


@pytest.mark.parametrize("unit", ["char", "byte"])
def test_line_ends_of_windows_are_kept_and_told_of(tmp_path, unit):
    text = "to be\r\nor not\r\n" * 30
    corpus = load(written(tmp_path, text), unit=unit)
    assert text_of(corpus) == text
    assert len(corpus.notes) == 1
    assert corpus.notes[0].startswith("60 carriage returns (U+000D), as Windows ends its lines, are kept")
    assert "dos2unix" in corpus.notes[0]


def test_riverbank_comes_with_its_language():
    corpora = [load_corpus(CorpusConfig(characters=2000), context=8, seed=seed) for seed in (1, 1, 2)]
    text = text_of(corpora[0])
    assert len(text) >= 2000
    assert text.split("\n")[0] in corpora[0].language
    assert corpora[0].description == f"riverbank, {len(text):,} characters"
    assert corpora[0].sha256 == corpora[1].sha256 != corpora[2].sha256


def starts_and_targets(length: int, context: int) -> tuple[Counter, set[int]]:
    x, y = batch(torch.arange(length), context=context, batch_size=2000, generator=generator(0, "batches"))
    assert x.shape == y.shape == (2000, context)
    assert torch.equal(y, x + 1)
    assert torch.equal(x, x[:, :1] + torch.arange(context))
    return Counter(x[:, 0].tolist()), set(y.flatten().tolist())


@pytest.mark.parametrize("length", [9, 10, 11, 40])
def test_windows_start_from_0_to_length_minus_context_minus_1(length):
    starts, targets = starts_and_targets(length, 8)
    assert set(starts) == set(range(length - 8))
    assert targets == set(range(1, length))
    expected = 2000 / (length - 8)
    assert all(abs(count - expected) <= 5 * math.sqrt(expected) for count in starts.values())


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32])
def test_batches_depend_on_their_generator_only(kind):
    tokens = torch.arange(100).to(kind)
    one, same, other = (
        batch(tokens, context=4, batch_size=5, generator=generator(0, "batches", step)) for step in (1, 1, 2)
    )
    assert one[0].dtype == one[1].dtype == torch.int64
    assert torch.equal(one[0], same[0])
    assert not torch.equal(one[0], other[0])


@settings(deadline=None)
@given(length=st.integers(9, 100), cap=st.integers(1, 120))
def test_evaluation_scores_each_target_once(length, cap):
    x, y = evaluation_windows(torch.arange(length, dtype=torch.uint8), context=8, max_characters=cap)
    assert x.dtype == y.dtype == torch.int64
    assert y.flatten().tolist() == list(range(1, 1 + y.numel()))
    assert torch.equal(y, x + 1)
    assert y.numel() == max(8, min(cap, length - 1) // 8 * 8)


def test_baselines_by_hand():
    found = baselines(corpus_of(train="aabab", validation="abb"))
    unigram = {"a": 4 / 7, "b": 3 / 7}  # 3 + 1 and 2 + 1
    bigram = {"ab": (2 + 3 / 7) / (3 + 1), "bb": (0 + 3 / 7) / (1 + 1)}
    assert found["uniform"] == math.log(2)
    assert found["unigram"] == pytest.approx(-math.log(unigram["b"]))
    assert found["bigram"] == pytest.approx(-math.log(bigram["ab"] * bigram["bb"]) / 2)


def test_baselines_of_a_large_vocabulary_stay_small():
    text = "".join(map(chr, range(0x10000, 0x10000 + 66_000)))
    found = baselines(corpus_of(train=text, validation=text[:20]))
    assert found["bigram"] < 1 < found["unigram"]


def test_baselines_see_pairs_across_their_pieces(monkeypatch):
    corpus = corpus_of(train="the cat and the hat and the bat " * 3, validation="the rat and the cat")
    whole = baselines(corpus)
    monkeypatch.setattr("minilm.corpus.PIECE", 3)
    assert baselines(corpus) == pytest.approx(whole)
    assert whole["bigram"] < whole["unigram"] < whole["uniform"]


def test_two_thousand_batches_cost_no_memory():
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("needs /proc")
    tokens = torch.zeros(1_000_000, dtype=torch.uint8)

    def pages_after(steps: int) -> int:
        for step in range(steps):
            batch(tokens, context=64, batch_size=12, generator=generator(0, "batches", step))
        return int(statm.read_text(encoding="ascii").split()[1])

    warm = pages_after(200)
    assert pages_after(2000) - warm < 512  # 2 MB


def test_unknown_character_is_named_with_its_place():
    vocabulary = Vocabulary("\nab")
    message = refusal(vocabulary.encode, "a?b??", what="prompt")
    assert message == "prompt: the model has never seen '?' (U+003F, QUESTION MARK) at position 1 (counting from 0)"
    assert vocabulary.encode("").tolist() == []
    many = refusal(vocabulary.encode, "a0123456789", what="prompt")
    assert "'0' (U+0030, DIGIT ZERO) at position 1, '1'" in many
    assert "and 5 more" in many


def test_unknown_newline_and_bad_byte_are_named():
    assert "'\\n' (U+000A, newline) at position 2" in refusal(Vocabulary("ab").encode, "ab\n")
    assert "byte 0xFF (U+DCFF, not UTF-8) at position 1" in refusal(Vocabulary("ab").encode, "a\udcff")
    assert "'\\ud83d' (U+D83D, no name)" in refusal(Vocabulary("ab").encode, "\ud83d")


@pytest.mark.parametrize(
    ("known", "typed", "unknown"),
    [
        ("caf\u00e9", "cafe\u0301", "'e' (U+0065, LATIN SMALL LETTER E) at position 3, '\\u0301' (U+0301, COMBINING"),
        ("cafe\u0301", "caf\u00e9", "(U+00E9, LATIN SMALL LETTER E WITH ACUTE) at position 3"),
    ],
)
def test_look_alikes_are_told_apart(known, typed, unknown):
    message = refusal(Vocabulary("".join(sorted(set(known)))).encode, typed)
    assert unknown in message
    form = "NFC" if len(known) == 4 else "NFD"
    assert message.endswith(f"; in Unicode form {form} every character of it is known")


def test_all_problems_of_paths_come_at_once(tmp_path):
    empty = written(tmp_path, "", "empty.txt")
    (tmp_path / "folder").mkdir()
    written(tmp_path / "folder", "x", "picture.png")
    message = refusal(load, tmp_path / "missing.txt", tmp_path / "folder", empty)
    lines = message.splitlines()
    assert len(lines) == 3
    assert "missing.txt: there is no such file" in lines[0]
    assert "folder: a folder without a .txt, .jsonl, .csv, .parquet, .arrow file" in lines[1]
    assert "empty.txt: the file is empty" in lines[2]


def test_files_are_joined_as_they_are_in_the_order_given(tmp_path):
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    b = written(tmp_path, "two lines\nhere", "b.md")
    written(tmp_path / "folder", "\r\nthen ", "1.txt")
    written(tmp_path / "folder" / "deep", "the end of it", "2.TXT")
    written(tmp_path / "folder", "not this", "notes.md")
    corpus = load(b, tmp_path / "folder", validation_fraction=0.5)
    assert text_of(corpus) == "two lines\nhere\r\nthen the end of it"
    assert corpus.description == "b.md, folder, 34 characters"


def test_empty_files_of_a_folder_are_left_out_and_told_of(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    full = written(folder, "abcdefgh" * 30, "b.txt")
    written(folder, "", "a.txt")
    written(folder, "", "c.jsonl")
    corpus = load(folder)
    assert text_of(corpus) == full.read_text(encoding="utf-8")
    assert corpus.notes == (f"left out, since empty: {folder / 'a.txt'} and 1 more",)
    corpus = load(full, validation=(str(folder),))
    assert corpus.notes == (f"left out, since empty: {folder / 'a.txt'} and 1 more",)
    full.write_bytes(b"")
    assert refusal(load, folder) == f"{folder}: a folder of empty files only"
