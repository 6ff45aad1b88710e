"""Do the failures that others met with their texts happen here?

Each name starts with the case it retells.
"""

import codecs
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_corpus import load, refusal, text_of, written

from minilm import sources
from minilm.config import CorpusConfig
from minilm.corpus import load_corpus
from minilm.sources import read_text

LINES = "a\nb\r\nc\rd\u2028\u2029\x85\x0c" + "e\n\n\nlast, with \ufeff inside"


def python(code: str, *arguments: object, cwd: Path, options: tuple[str, ...] = (), **environment: str):
    """Run `code` in a fresh interpreter that starts in `cwd`."""
    command = [sys.executable, *options, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", check=False)


LOAD_FILE = """
import sys
from minilm.config import CorpusConfig
from minilm.corpus import load_corpus
corpus = load_corpus(CorpusConfig(source="file", path=(sys.argv[1],)), context=8, seed=0)
print(ascii(corpus.vocabulary.characters), corpus.sha256, "datasets" in sys.modules)
"""
NO_NETWORK = """
import socket
def refuse(*args, **kwargs):
    raise SystemExit("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
"""


def test_data_2_and_7_machine_encoding_network_and_cache_do_not_matter(tmp_path):
    file = written(tmp_path, "café — 😀\n" * 50)
    (tmp_path / "datasets").mkdir()
    machine = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "HF_HOME": str(file / "not a folder")}
    run = python(NO_NETWORK + LOAD_FILE, file, cwd=tmp_path, options=("-X", "warn_default_encoding"), **machine)
    corpus = load(file)
    assert run.stdout == f"{corpus.vocabulary.characters!a} {corpus.sha256} False\n", run.stderr
    assert corpus.vocabulary.characters == "\n acfé—😀"
    assert "EncodingWarning" not in "\n".join(line for line in run.stderr.splitlines() if "minilm" in line)


def test_data_2_bad_byte_is_refused_with_its_place(tmp_path):
    file = tmp_path / "bad.txt"
    file.write_bytes(b"1234567\xff" + b"rest" * 9)
    assert refusal(load, file).startswith(f"{file}: byte 0xFF at offset 7 is not UTF-8 (invalid start byte)")
    file.write_bytes(codecs.BOM_UTF8 + b"1234" + "é".encode()[:1])
    assert "byte 0xC3 at offset 7 is not UTF-8 (unexpected end of data)" in refusal(load, file)


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 5, 1000])
@pytest.mark.parametrize(("before", "bad"), [("é😀", b"\xff"), ("a" * 9, b"\xe2\x28\xa1"), ("", b"\xf0\x9f\x98")])
def test_data_2_place_of_a_bad_byte_holds_across_pieces(tmp_path, monkeypatch, piece, before, bad):
    monkeypatch.setattr(sources, "PIECE", piece)
    file = tmp_path / "bad.txt"
    file.write_bytes(before.encode() + bad)
    assert f"byte 0x{bad[0]:02X} at offset {len(before.encode())} " in refusal(lambda: list(read_text(file)))


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30), piece=st.integers(1, 9))
def test_data_5_text_is_exact_across_pieces(tmp_path_factory, text, piece):
    file = written(tmp_path_factory.mktemp("texts"), "\ufeff" + text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PIECE", max(3, piece))
        assert "".join(read_text(file)) == text


def test_data_5_line_breaks_are_kept_and_the_library_agrees_but_for_carriage_returns(tmp_path):
    from datasets import load_dataset

    file = written(tmp_path, LINES)
    ours = text_of(load(file, context=1))
    assert ours == LINES
    rows = load_dataset("text", data_files=str(file), sample_by="document", cache_dir=tmp_path / "cache", split="train")
    assert rows["text"][:] == [ours.replace("\r\n", "\n").replace("\r", "\n")]


@pytest.mark.parametrize("length", [0, 1, 10, 160])
def test_data_3_part_shorter_than_a_window_is_refused(tmp_path, length):
    message = refusal(load, written(tmp_path, "ab" * (length // 2) + "c" * (length % 2)), context=16)
    expected = {
        0: ["the file is empty"],
        1: ["nothing to learn", "the train part has 1 characters", "the validation part has 0 characters"],
        10: ["the train part has 9 characters", "the validation part has 1 characters"],
        160: ["the validation part has 16 characters, fewer than one window (the context, 16, and one to predict)"],
    }[length]
    assert len(message.splitlines()) == len(expected)
    assert all(part in line for part, line in zip(expected, message.splitlines(), strict=True))
    if length == 160:
        assert "about 170 characters" in message
        assert "--corpus.validation-fraction (now 0.1)" in message


def test_data_3_part_of_one_window_works(tmp_path):
    corpus = load(written(tmp_path, "ab" * 85), context=16)
    assert (len(corpus.train), len(corpus.validation)) == (153, 17)


def test_data_3_text_of_one_character_is_refused(tmp_path):
    message = refusal(load, written(tmp_path, "\n" * 500))
    assert message == "my.txt: the whole text is made of '\\n' (U+000A, newline): there is nothing to learn"


def test_data_6_byte_order_mark_is_dropped_at_the_start_of_each_file(tmp_path):
    plain = load(written(tmp_path, "abc\n" * 40 + "d\ufeffe"))
    marked = load(written(tmp_path, "\ufeff" + "abc\n" * 40 + "d\ufeffe", "marked.txt"))
    assert marked.sha256 == plain.sha256
    assert text_of(marked).count("\ufeff") == 1
    two = load(tmp_path / "marked.txt", tmp_path / "marked.txt")
    assert text_of(two) == 2 * text_of(plain)
    assert "holds no text" in refusal(load, written(tmp_path, "\ufeff"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_data_6_utf_16_is_refused_by_name(tmp_path, encoding):
    (tmp_path / "my.txt").write_bytes("A café, and so on.\r\n".encode(encoding) * 20)
    assert refusal(load, tmp_path / "my.txt").endswith("my.txt: looks like UTF-16; save the text as UTF-8")


def test_data_6_binary_is_refused_with_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "PIECE", 4)
    (tmp_path / "my.txt").write_bytes(b"a text, but\0then not")
    assert "holds a NUL byte at offset 11, so it is not a text" in refusal(load, tmp_path / "my.txt")
    (tmp_path / "my.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    assert "byte 0x89 at offset 0 is not UTF-8" in refusal(load, tmp_path / "my.png")


ROWS = ["007", "two\nlines\r\nand more", "", " NA", "NA", "caf\u00e9 \u2028 \ufeff 😀"]


def write_tables(folder: Path) -> list[Path]:
    """The same rows as .jsonl, .csv, .parquet and .arrow, in a folder whose name looks like a pattern."""
    import pyarrow as pa
    from pyarrow import csv, ipc, parquet

    folder = folder / "rows [1] *"
    folder.mkdir()
    table = pa.table({"n": range(len(ROWS)), "text": ROWS})
    written(folder, "".join(json.dumps(row) + "\n" for row in table.to_pylist()), "rows.jsonl")
    csv.write_csv(table, folder / "rows.csv")
    parquet.write_table(table, folder / "rows.parquet")
    with ipc.new_stream(str(folder / "rows.arrow"), table.schema) as stream:
        stream.write(table)
    return sorted(folder.iterdir())


def test_data_7_tables_are_read_exactly_and_without_the_network(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: asked.append(args))
    monkeypatch.setattr(socket.socket, "connect", lambda *args: asked.append(args))
    files = write_tables(tmp_path)
    assert [text_of(load(file, context=1)) for file in files] == ["\n".join(ROWS)] * 4
    monkeypatch.setattr(sources, "ROWS", 2)
    assert text_of(load(files[0].parent, context=1)) == "\n".join(ROWS * 4)
    note = written(tmp_path, "a note")
    assert text_of(load(note, note, files[0], note, context=1)) == "a notea note\n" + "\n".join(ROWS) + "\na note"
    assert asked == []


@pytest.mark.parametrize("name", ["my.txt", "my.jsonl"])
def test_data_7_a_changed_character_is_seen(tmp_path, name):
    text = json.dumps({"text": "abc " * 30}) + "\n"
    before = load(written(tmp_path, text, name))
    kept = (tmp_path / name).stat()
    written(tmp_path, text.replace("abc", "abd", 1), name)
    os.utime(tmp_path / name, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    after = load(tmp_path / name)
    assert before.sha256 != after.sha256
    assert text_of(after).replace("abd", "abc", 1) == text_of(before)


def test_data_7_bad_tables_are_refused_by_name(tmp_path):
    rows = written(tmp_path, '{"text": "a", "n": 1}\n{"text": null, "n": 2}\n', "my.jsonl")
    assert "my.jsonl: no column 'body'; there is text, n (set --corpus.column)" in refusal(load, rows, column="body")
    assert "my.jsonl: row 1 of column 'n' is int, not text" in refusal(load, rows, column="n")
    assert "my.jsonl: row 2 of column 'text' is NoneType, not text" in refusal(load, rows)
    assert "my.parquet: cannot be read as parquet: " in refusal(load, written(tmp_path, "junk", "my.parquet"))
    assert "my.csv: holds no text" in refusal(load, written(tmp_path, "text,n\n", "my.csv"))


def hub(**chosen) -> CorpusConfig:
    return CorpusConfig(source="hub", name="someone/something", **chosen)


def test_data_7_hub_is_streamed_up_to_a_cap(monkeypatch):
    from datasets import IterableDataset

    read, asked = [], []

    def rows():
        for i in range(10_000):
            read.append(i)
            yield {"body": f"row {i} of many"}

    def load_dataset(*args, **kwargs):
        asked.append((args, kwargs))
        return IterableDataset.from_generator(rows)

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    config = hub(config="plain", split="test", revision="v1", column="body", characters=500)
    corpus = load_corpus(config, context=8, seed=0)
    assert text_of(corpus) == "\n".join(f"row {i} of many" for i in range(100))[:500]
    assert asked == [(("someone/something", "plain"), {"split": "test", "revision": "v1", "streaming": True})]
    assert len(read) < 2500
    assert corpus.description == "someone/something, 500 characters"


@pytest.mark.parametrize(
    ("error", "offline", "advice"),
    [
        (ConnectionError("Couldn't reach it"), "0", ["--corpus.source file --corpus.path FILE"]),
        (ConnectionError("Couldn't reach it"), "1", ["--corpus.path FILE", "HF_HUB_OFFLINE is set"]),
        (RuntimeError("Dataset scripts are no longer supported"), "0", ["--corpus.revision refs/convert/parquet"]),
        (ValueError("Bad split: train"), "0", ["Bad split: train"]),
    ],
)
def test_data_7_hub_out_of_reach_says_what_to_do(monkeypatch, error, offline, advice):
    def load_dataset(*args, **kwargs):
        raise error

    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    message = refusal(load_corpus, hub(), context=8, seed=0)
    assert message.startswith("dataset someone/something, split train: cannot be read: " + type(error).__name__)
    assert all(part in message for part in advice)
    assert ("HF_HUB_OFFLINE is set" in message) == (offline == "1")


@pytest.mark.parametrize(("size", "kind"), [(256, "uint8"), (257, "int16"), (300, "int16"), (66_000, "int32")])
def test_data_8_wide_vocabularies_come_back(tmp_path, size, kind):
    text = "".join(map(chr, range(0x10000, 0x10000 + size))) * 2
    corpus = load(written(tmp_path, text))
    assert text_of(corpus) == text
    assert len(corpus.vocabulary) == size
    assert corpus.train.max() == size - 1
    assert str(corpus.train.dtype) == f"torch.{kind}"


PEAK = """
import resource, sys, time
import torch
from minilm.config import CorpusConfig
from minilm.corpus import load_corpus
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
start = time.perf_counter()
load_corpus(CorpusConfig(source="file", path=(sys.argv[1],)), context=64, seed=0)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "emoji", "plain with an emoji", "wide"])
def test_data_8_fifty_megabytes_take_seconds_and_little_memory(tmp_path, kind):
    plain = "How it was said, word by word.\n" * 33_000
    emoji = "".join(random.Random(0).choices([chr(0x1F300 + i) for i in range(700)], k=250_000))
    wide = "".join(map(chr, range(0x10000, 0x10000 + 66_000)))
    text = {"plain": plain, "emoji": emoji, "plain with an emoji": plain + "😀", "wide": plain + wide}[kind]
    file = written(tmp_path, text * (50_000_000 // len(text.encode()) + 1))
    run = python(PEAK, file, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    seconds, peak = map(float, run.stdout.split())
    assert seconds < 10
    assert peak < 6 * file.stat().st_size


def test_env_2_folder_called_datasets_is_named_or_does_no_harm(tmp_path):
    rows = written(tmp_path, json.dumps({"text": "abc " * 30}) + "\n", "my.jsonl")
    (tmp_path / "data").mkdir()
    (tmp_path / "datasets").mkdir()
    run = python(LOAD_FILE, rows, cwd=tmp_path, HF_HOME=str(rows / "not a folder"))
    assert run.stdout.endswith("True\n"), run.stderr
    module = written(tmp_path / "datasets", "", "__init__.py")
    run = python(LOAD_FILE, rows, cwd=tmp_path)
    assert run.returncode != 0
    assert f"Python found {module} under that name: if that is yours, rename it" in run.stderr
