"""Does a command line end in the right settings, or in one message and the right exit code?"""

import io
import os
import signal
import sys
import tomllib

import pytest

from minilm.__main__ import COMMANDS, main, usage
from minilm.errors import UserError, run_main
from minilm.settings import load_config

HEAVY = ("torch", "datasets", "scipy", "matplotlib", "transformers")
WHAT_IS_IMPORTED = f"""
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print("imported:", [name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


def raising(error: BaseException):
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("main_of_a_command", "code", "says"),
    [
        (lambda: 0, 0, ""),
        (lambda: 1, 1, ""),
        (raising(UserError("a.txt: is wrong\nb.txt: too")), 2, "error: a.txt: is wrong\nb.txt: too\n"),
        (raising(OSError(36, "File name too long", "aaa")), 2, "error: aaa: File name too long\n"),
        (raising(OSError("something else")), 2, "error: something else\n"),
        (raising(KeyboardInterrupt()), 130, ""),
        (raising(SystemExit(2)), 2, ""),
    ],
)
def test_command_ends_with_a_code_and_one_message(monkeypatch, main_of_a_command, code, says):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), "utf-8"))
    with pytest.raises(SystemExit) as caught:
        run_main(main_of_a_command)
    assert caught.value.code == code
    sys.stderr.flush()
    assert sys.stderr.buffer.getvalue().decode() == says
    assert sys.stdout.buffer.getvalue() == b""


def test_fault_of_ours_is_not_hidden(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), "utf-8"))
    with pytest.raises(ZeroDivisionError):
        run_main(raising(ZeroDivisionError()))


@pytest.fixture
def minilm(monkeypatch):
    """`python -m minilm WORDS` in this process."""

    def call(*words) -> int:
        monkeypatch.setattr(sys, "argv", ["minilm", *map(str, words)])
        return main()

    return call


@pytest.mark.parametrize("words", [("train.py", "--help"), ("train.py", "-h"), ("train.py", "--print-config")])
def test_help_does_not_import_torch(run_cli, tmp_path, words):
    script = tmp_path / "what_is_imported.py"
    script.write_text(WHAT_IS_IMPORTED, encoding="utf-8")
    done = run_cli("train.py", *words[1:], cwd=tmp_path, python=(str(script),))
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("imported: []\n")
    if "--print-config" not in words:
        assert "--model.n-layers INT" in done.stdout
        assert "--resume" in done.stdout
        usage = [line for line in done.stdout.splitlines() if line.startswith("$ python train.py")]
        assert len(usage) >= 5  # an example a line
    assert [file.name for file in tmp_path.iterdir()] == [script.name]


def test_help_shows_the_values_of_the_settings_that_are_given(train_py, capsys, tmp_path):
    file = tmp_path / "wide.toml"
    file.write_text("[model]\nwidth = 512\n", encoding="utf-8")
    for words in ((file, "--help"), ("-h", file)):
        with pytest.raises(SystemExit) as caught:
            train_py(*words)
        assert caught.value.code == 0
        assert "default: 512" in capsys.readouterr().out


def test_flags_lie_over_the_file(train_py, capsys, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[model]\nwidth = 8\nn_layers = 1\n", encoding="utf-8")
    for words in ((file, "--model.n-layers", "2"), ("--model.n-layers=2", file), ("--model.n_layers=2", file)):
        assert train_py(*words, "--print-config") == 0
        model = tomllib.loads(capsys.readouterr().out)["model"]
        assert (model["width"], model["n_layers"]) == (8, 2)


def test_flag_that_repeats_a_default_still_lies_over_the_file(train_py, capsys, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[model]\nn_layers = 1\ncausal = false\n", encoding="utf-8")
    assert train_py(file, "--model.n-layers=3", "--model.causal", "true", "--print-config") == 0
    model = tomllib.loads(capsys.readouterr().out)["model"]
    assert (model["n_layers"], model["causal"]) == (3, True)


def test_printed_settings_are_a_settings_file(train_py, capsys, tmp_path):
    assert train_py("--model.width=8", "--corpus.language", 'it\'s \\ a "path".toml', "--print-config") == 0
    file = tmp_path / "printed.toml"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    config = load_config(file)
    assert (config.model.width, config.corpus.language) == (8, 'it\'s \\ a "path".toml')


def test_texts_become_the_corpus(train_py, capsys, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text("[model]\nwidth = 8\n", encoding="utf-8")
    assert train_py(settings, "a.txt", "b.csv", "--print-config") == 0
    tables = tomllib.loads(capsys.readouterr().out)
    assert (tables["corpus"]["source"], tables["corpus"]["path"]) == ("file", ["a.txt", "b.csv"])
    assert tables["model"]["width"] == 8


def test_a_text_alone_gets_the_settings_for_texts(train_py, capsys, configs):
    assert train_py("my.txt", "--print-config") == 0
    tables = tomllib.loads(capsys.readouterr().out)
    assert tables["corpus"]["path"] == ["my.txt"]
    assert tables["model"] == configs["shakespeare"].model.model_dump()


def test_what_a_file_leaves_out_is_what_the_command_has_without_it(train_py, capsys, configs, tmp_path):
    (tmp_path / "good.toml").write_text("[model]\nwidth = 64\n", encoding="utf-8")
    for texts, base in (((), "base"), (("my.txt",), "shakespeare")):
        tables = []
        for words in (("good.toml", *texts), texts):
            assert train_py(*(tmp_path / word for word in words), "--print-config") == 0
            tables.append(tomllib.loads(capsys.readouterr().out))
        expected = configs[base].model_copy(update={"model": configs[base].model.model_copy(update={"width": 64})})
        assert tables[0]["model"] == expected.model.model_dump()
        assert tables[0]["training"] == configs[base].training.model_dump() == tables[1]["training"]
        assert tables[0]["corpus"] == tables[1]["corpus"]


@pytest.mark.parametrize("name", ["base", "tiny", "shakespeare", "shakespeare_fast", "no_mask"])
def test_what_comes_with_us_is_complete_so_that_a_text_changes_nothing_but_the_text(train_py, capsys, configs, name):
    for words in ((), ("my.txt",)):
        assert train_py(f"configs/{name}.toml", *words, "--print-config") == 0
        tables = tomllib.loads(capsys.readouterr().out)
        assert (tables["model"], tables["training"]) == (
            configs[name].model.model_dump(),
            configs[name].training.model_dump(),
        )


def test_an_own_text_brings_nothing_of_another_text(train_py, capsys, configs):
    assert train_py("my.txt", "--print-config") == 0
    corpus = tomllib.loads(capsys.readouterr().out)["corpus"]
    assert corpus["source"] == "file"
    assert not {"name", "revision"} & corpus.keys()


def test_two_settings_files_are_refused(train_py, refusal):
    assert "one settings file at a time" in refusal(train_py, "one.toml", "two.toml")


def test_word_that_is_not_utf_8_is_refused(train_py, refusal):
    # A byte that is not UTF-8 comes as a lone surrogate, which no settings file could hold.
    assert (
        refusal(train_py, "bad\udcff.txt", "café.txt") == "'bad\\udcff.txt': is not UTF-8, in which settings are kept"
    )
    assert len(refusal(train_py, "--corpus.path", "bad\udcff", "--out", "\udc80").split("\n")) == 2


def test_run_is_named_after_the_last_input(train_py, monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr("minilm.session.start_run", lambda config, folder, **flags: found.append((folder, flags)) or 0)
    settings = tmp_path / "settings.toml"
    settings.write_text("", encoding="utf-8")
    assert train_py() == 0
    assert train_py(settings) == 0
    assert train_py(settings, "texts/my.txt", "--resume") == 0
    assert train_py(settings, "--out", "elsewhere", "--overwrite") == 0
    assert [folder.as_posix() for folder, _ in found] == ["runs/base", "runs/settings", "runs/my", "elsewhere"]
    left_out = f"{settings}; what it leaves out is that of configs"
    assert [flags.pop("settings") for _, flags in found] == [
        "configs/base.toml",
        f"{left_out}/base.toml",
        f"{left_out}/shakespeare.toml",
        f"{left_out}/base.toml",
    ]
    assert found[2][1] == {"resume": True, "overwrite": False, "log": "none"}
    assert found[3][1] == {"resume": False, "overwrite": True, "log": "none"}


def test_commands_are_listed(minilm, capsys):
    for words in ((), ("--help",), ("-h",)):
        assert minilm(*words) == 0
        assert capsys.readouterr().out == usage() + "\n"
    assert all(name in usage() for name in COMMANDS)


def test_unknown_command_gets_the_nearest(minilm, refusal):
    assert refusal(minilm, "sampel").startswith("sampel: no such command; did you mean sample?\nusage: ")
    assert refusal(minilm, "zzz").startswith("zzz: no such command\nusage: ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(minilm, capsys, name):
    with pytest.raises(SystemExit) as caught:
        minilm(name, "--help")
    assert caught.value.code == 0
    assert f"python -m minilm {name}" in capsys.readouterr().out


def test_command_help_does_not_import_torch(run_cli, tmp_path):
    script = tmp_path / "what_is_imported.py"
    script.write_text(WHAT_IS_IMPORTED.replace("run_path(sys.argv[0]", "run_module('minilm'"), encoding="utf-8")
    done = run_cli("train.py", "sample", "--help", cwd=tmp_path, python=(str(script),))
    assert done.returncode == 0, done.stderr
    assert "--temperature FLOAT" in done.stdout
    assert done.stderr.endswith("imported: []\n")


def test_a_path_or_a_name_alone_says_which_source_is_meant(train_py, capsys):
    def corpus(*flags: str) -> dict:
        assert train_py("--print-config", *flags) == 0
        return tomllib.loads(capsys.readouterr().out)["corpus"]

    assert corpus("--corpus.path", "my.txt")["source"] == "file"
    assert corpus("--corpus.name", "someone/something")["source"] == "hub"
    assert corpus("--corpus.path", "my.txt", "--corpus.source", "riverbank")["source"] == "riverbank"
    assert corpus()["source"] == "riverbank"


def test_what_a_run_is_for_is_no_flag(train_py, refusal):
    assert "--control: no such flag" in refusal(train_py, "--control", "base")
    assert "--expect.formula: no such flag" in refusal(train_py, "--expect.formula", "f")


def test_a_value_of_the_wrong_type_is_told_in_words_for_people(train_py, minilm, refusal):
    help_of = "--help tells what it takes"
    said = refusal(train_py, "--training.steps", "many", "configs/shakespeare.toml")
    assert said == f"--training.steps: 'many' is not a whole number\npython train.py {help_of}"
    for words, says in (
        (("sample", "x", "--top-k", "two"), "--top-k: 'two' is not a whole number"),
        (("sample", "x", "--top-p", "much"), "--top-p: 'much' is not a number"),
        (("check", "two", "1"), "[CHAPTER]: 'two' is not a whole number"),
    ):
        assert refusal(minilm, *words) == f"{says}\npython -m minilm {words[0]} {help_of}"


def test_a_long_word_is_told_whole_and_the_console_keeps_its_width(train_py, refusal, monkeypatch):
    for width in (None, "40"):
        monkeypatch.delenv("COLUMNS", raising=False)
        if width:
            monkeypatch.setenv("COLUMNS", width)
        assert f"'{'x' * 300}' is not a whole number" in refusal(train_py, "--training.steps", "x" * 300)
        assert os.environ.get("COLUMNS") == width


def test_what_is_missing_or_too_much_is_named(minilm, refusal):
    said = refusal(minilm, "sample")
    assert said.startswith("Missing from python -m minilm sample:\n    RUN\n        folder of a run")
    assert refusal(minilm, "sample", "a", "b", "c").startswith("b c: more than it takes")
    assert refusal(minilm, "sample", "a", "--lenght", "3") == "--lenght: no such flag; did you mean --length?"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_free_of_types_and_of_defaults_that_are_none(minilm, capsys, name):
    with pytest.raises(SystemExit):
        minilm(name, "--help")
    said = capsys.readouterr().out
    for jargon in ("{None}", "(default: None)", "(default: )", "(default: False)", "(default: '')"):
        assert jargon not in said


def test_inputs_may_stand_before_and_behind_the_flags(train_py, capsys, tmp_path):
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("x" * 2000, encoding="utf-8")
    one, two = str(tmp_path / "one.txt"), str(tmp_path / "two.txt")
    train_py("configs/tiny.toml", one, "--training.steps", "7", two, "--print-config")
    settings = tomllib.loads(capsys.readouterr().out)
    assert settings["corpus"]["path"] == [one, two]
    assert settings["training"]["steps"] == 7
