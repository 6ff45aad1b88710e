"""Do the failures that others met when writing happen here?

Each name starts with the case it retells.
"""

import io
import os
import subprocess
import sys

import pytest
from conftest import command_line, environment, tiny_config, trained_run

from minilm.errors import run_main
from minilm.sample import main

ODD = "déjà ― 😀 vu\n" * 60


def trained_on(folder, text: str):
    """The folder of a run on `text`."""
    file = folder / "text.txt"
    file.write_bytes(text.encode())
    config = tiny_config(
        corpus={"source": "file", "path": (str(file),)},
        model={"context": 8, "n_layers": 1},
        training={"steps": 2},
    )
    trained_run(config, folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def odd_run(tmp_path_factory):
    """A run on text that not every console can show."""
    return trained_on(tmp_path_factory.mktemp("odd"), ODD)


def test_gen_1_unknown_character_is_named_with_its_place(tmp_path, refusal):
    folder = trained_on(tmp_path, "ab\n" * 200)
    message = refusal(main, [str(folder), "--prompt", "a?b"])
    assert message == "prompt: the model has never seen '?' (U+003F, QUESTION MARK) at position 1 (counting from 0)"


def test_gen_1_look_alikes_are_told_apart(tmp_path, refusal):
    folder = trained_on(tmp_path, "caf\u00e9\n" * 200)
    message = refusal(main, [str(folder), "--prompt", "cafe\u0301"])
    assert "(U+0065, LATIN SMALL LETTER E) at position 3" in message
    assert "(U+0301, COMBINING ACUTE ACCENT) at position 4" in message
    assert message.endswith("in Unicode form NFC every character of it is known")


# GEN-2, temperature and top-k at their edges, is in test_generation.py and test_sample.py.


@pytest.mark.parametrize("length", [5, 8, 9, 40])
def test_gen_3_prompt_longer_than_the_context(tmp_path_factory, odd_run, capsys, length):
    prompt = ODD[:length]
    words = [str(odd_run), "--prompt", prompt, "--length", "30", "--temperature", "0"]
    out = tmp_path_factory.mktemp("out") / "out.txt"
    assert main([*words, "--out", str(out)]) == 0
    text, notes = capsys.readouterr()
    assert out.read_bytes().decode() == text.removesuffix("\n")
    assert text.startswith(prompt)
    assert len(text) == length + 30 + 1
    unseen = {5: None, 8: None, 9: 4, 40: 32}[length]
    cut = f"note: the model sees 8 characters at most, so not the prompt's first {unseen}\n"
    assert notes == ("" if unseen is None else cut)
    assert main([*words, "--no-cache"]) == 0
    assert capsys.readouterr().out == text


def test_gen_4_text_without_newline_and_space_is_written_from_no_prompt(tmp_path, capsys, refusal):
    folder = trained_on(tmp_path, "abc" * 200)
    capsys.readouterr()
    for words in ([], ["--prompt="]):
        assert main([str(folder), "--length", "9", *words]) == 0
        text = capsys.readouterr().out
        assert len(text) == 10
        assert set(text) <= set("abc\n")
    assert main([str(folder), "--prompt", "abca", "--length", "0"]) == 0
    assert capsys.readouterr().out == "abca\n"
    (tmp_path / "prompt.txt").write_bytes(b"abc\n")
    message = refusal(main, [str(folder), "--prompt-file", str(tmp_path / "prompt.txt")])
    assert message == "prompt: the model has never seen '\\n' (U+000A, newline) at position 3 (counting from 0)"


def test_gen_5_console_that_cannot_show_a_character(odd_run, run_cli, tmp_path):
    words = ("--prompt", "déjà ― 😀 vu", "--length", 20, "--out", tmp_path / "out.txt")
    done = run_cli("minilm", "sample", odd_run, *words, cwd=tmp_path, env={"PYTHONIOENCODING": "ascii"}, encoding=None)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out.txt").read_bytes().decode()
    assert text.startswith("déjà ― 😀 vu")
    assert done.stdout == f"{text}\n".encode("ascii", "backslashreplace")


@pytest.fixture
def shown(monkeypatch):
    """(exit code, bytes of stdout, bytes of stderr) of `sample WORDS` on a console of some encoding."""

    def call(encoding: str, *words: object) -> tuple[int, bytes, bytes]:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit) as caught:
            run_main(lambda: main(list(map(str, words))))
        for stream in streams:
            stream.flush()
        return caught.value.code, *(stream.buffer.getvalue() for stream in streams)

    return call


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_gen_5_characters_that_a_console_lacks_are_escaped(odd_run, shown, tmp_path, encoding):
    out_file = tmp_path / "out.txt"
    code, out, err = shown(encoding, odd_run, "--prompt", "déjà ― 😀 vu", "--length", 20, "--out", out_file)
    assert (code, err) == (0, b"note: the model sees 8 characters at most, so not the prompt's first 4\n")
    assert out == (out_file.read_bytes().decode() + "\n").encode(encoding, "backslashreplace")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_gen_5_byte_of_the_command_line_that_is_not_utf_8(odd_run, shown, encoding):
    says = "error: prompt: the model has never seen byte 0xFF (U+DCFF, not UTF-8) at position 1 (counting from 0)\n"
    assert shown(encoding, odd_run, "--prompt", "d\udcff") == (2, b"", says.encode())


def test_gen_5_prompt_in_a_locale_that_is_not_utf_8(odd_run, capsys):
    for prompt in ("déjà", "d\udcc3\udca9j\udcc3\udca0"):
        assert main([str(odd_run), "--prompt", prompt, "--length", "0"]) == 0
        assert capsys.readouterr().out == "déjà\n"


def test_gen_5_reader_that_leaves(odd_run, tmp_path):
    words = command_line("minilm", "sample", odd_run, "--length", 100_000)
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert len(os.read(process.stdout.fileno(), 5)) > 0
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 141
