"""Do the failures that others met with their settings happen here?

Each name starts with the case it retells.
"""

import tomllib

import pytest

from minilm.settings import load_config

BAD_VALUES = {
    "model.n-heads": ["0", "-1"],
    "model.n-layers": ["0", "-1"],
    "model.width": ["0"],
    "model.context": ["0"],
    "model.dropout": ["1.0", "1.5", "-0.1", "nan"],
    "training.steps": ["0"],
    "training.batch-size": ["0"],
    "training.accumulation": ["0"],
    "training.evaluate-every": ["0"],
    "training.evaluation-characters": ["0"],
    "training.learning-rate": ["0", "-1", "nan", "inf"],
    "training.beta2": ["1"],
    "training.clip": ["0"],
    "training.seed": ["-1", str(2**63)],
    "corpus.validation-fraction": ["0", "1"],
    "corpus.characters": ["0"],
}


@pytest.fixture
def no_work(monkeypatch):
    """Make it fail to go as far as the text or the model."""

    def refuse(*args, **kwargs):
        raise AssertionError("the run began")

    monkeypatch.setattr("minilm.session.start_run", refuse)
    monkeypatch.setattr("minilm.session.read_text", refuse)


@pytest.fixture
def printed(train_py, capsys):
    """The settings that a command line leads to."""

    def call(*words) -> dict:
        assert train_py(*words, "--print-config") == 0
        return tomllib.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def refused_by_tyro(train_py, capsys, no_work, refusal):
    """What is said to a value that is not of the wanted type: as any other refusal, without tyro's box."""

    def call(*words) -> str:
        message = refusal(train_py, *words)
        assert capsys.readouterr() == ("", "")
        assert message.endswith("\npython train.py --help tells what it takes")
        assert not set(message) & set("│╭╰─")
        return message.split("\n")[0]

    return call


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("learning_rat = 1e-3\n", "learning_rat: no such setting; did you mean training.learning_rate?"),
        ("[model]\nlr = 1e-3\n", "model.lr: no such setting; did you mean training.learning_rate?"),
        ("[model]\nn-head = 2\n", "model.n-head: no such setting; did you mean model.n_heads?"),
        ("[model.deeper]\nwidth = 2\n", "model.deeper: no such setting"),
        ("[corpus]\nsource = 'fiel'\n", "corpus.source = 'fiel': must be 'riverbank', 'file', 'hub' or 'none'"),
    ],
)
def test_cfg_1_misspelled_setting_in_a_file_is_refused(tmp_path, train_py, refusal, no_work, text, says):
    file = tmp_path / "settings.toml"
    file.write_text(text, encoding="utf-8")
    assert refusal(train_py, file) == f"{file}: {says}"


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("--n_layre=4", "--model.n-layers"),
        ("--model.n_layre=4", "--model.n-layers"),
        ("--lr=1", "--training.learning-rate"),
        ("--steps", "--training.steps"),
        ("--model.seed=1", "--training.seed"),
        ("--overwrit", "--overwrite"),
        ("--no-model.causal", "--model.causal"),
    ],
)
def test_cfg_1_misspelled_flag_is_refused(train_py, refusal, no_work, word, near):
    assert refusal(train_py, word) == f"{word}: no such flag; did you mean {near}?"


def test_cfg_1_all_misspelled_flags_are_told_at_once(train_py, refusal, no_work):
    assert len(refusal(train_py, "--lr=1", "--model.widht", "4", "--zzz").split("\n")) == 3


def test_cfg_1_bad_choice_is_refused(refused_by_tyro):
    message = refused_by_tyro("--model.position=learnt")
    assert "invalid choice 'learnt' for argument '--model.position'" in message
    assert "('learned', 'sinusoidal', 'rotary', 'none')" in message


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *((word, False) for word in ("False", "false", "0", "no", "off", "OFF")),
        *((word, True) for word in ("True", "true", "1", "yes", "on")),
    ],
)
@pytest.mark.parametrize("form", ["--model.causal={}", "--model.causal {}"])
def test_cfg_2_false_means_false(printed, tmp_path, word, value, form):
    assert printed(*form.format(word).split())["model"]["causal"] is value
    file = tmp_path / "off.toml"
    file.write_text("[model]\ncausal = false\n", encoding="utf-8")
    assert printed(file, *form.format(word).split())["model"]["causal"] is value


@pytest.mark.parametrize("word", ["maybe", "2", ""])
def test_cfg_2_word_that_is_no_switch_is_refused(refused_by_tyro, word):
    assert f"--model.causal: {word!r} is neither true nor false" in refused_by_tyro(f"--model.causal={word}")


def test_cfg_2_bare_switch_is_refused_plainly(refused_by_tyro):
    assert "Missing value for argument '--model.causal'" in refused_by_tyro("--model.causal")


def test_cfg_2_switches_of_a_file_are_booleans(tmp_path, refusal):
    file = tmp_path / "settings.toml"
    file.write_text("[model]\ncausal = 'false'\nscaled = 1\n", encoding="utf-8")
    assert refusal(load_config, file).split("\n") == [
        f"{file}: model.causal = 'false': must be a valid boolean",
        f"{file}: model.scaled = 1: must be a valid boolean",
    ]


@pytest.mark.parametrize(("word", "value"), [("1e-3", 0.001), ("1", 1.0), ("0.5", 0.5)])
def test_cfg_3_numbers_are_numbers(printed, tmp_path, word, value):
    file = tmp_path / "settings.toml"
    file.write_text(f"[training]\nlearning_rate = {word}\n", encoding="utf-8")
    for words in ([f"--training.learning-rate={word}"], [f"--training.learning_rate={word}"], [file]):
        found = printed(*words)["training"]["learning_rate"]
        assert found == value
        assert isinstance(found, float)


@pytest.mark.parametrize(
    ("flag", "word", "kind"),
    [
        ("--training.learning-rate", "abc", "a number"),
        ("--training.learning-rate", "", "a number"),
        ("--training.steps", "1e3", "a whole number"),
        ("--training.steps", "1.5", "a whole number"),
        ("--model.n-layers", "two", "a whole number"),
    ],
)
def test_cfg_3_value_of_another_type_is_refused(refused_by_tyro, flag, word, kind):
    assert refused_by_tyro(f"{flag}={word}") == f"{flag}: {word!r} is not {kind}"


def test_cfg_3_flag_without_dashes_is_refused(train_py, refusal, no_work):
    message = refusal(train_py, "learning-rate=1e-3")
    assert message.startswith("learning-rate=1e-3: there is no such file; flags start with two dashes")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('learning_rate = "1e-3"', "training.learning_rate = '1e-3': must be a valid number"),
        ("steps = 1e3", "training.steps = 1000.0: must be a valid integer"),
        ("steps = 1.5", "training.steps = 1.5: must be a valid integer"),
        ("steps = true", "training.steps = True: must be a valid integer"),
        ("steps = 1979-05-27", "training.steps = datetime.date(1979, 5, 27): must be a valid integer"),
    ],
)
def test_cfg_3_value_of_another_type_in_a_file_is_refused(tmp_path, refusal, line, says):
    file = tmp_path / "settings.toml"
    file.write_text(f"[training]\n{line}\n", encoding="utf-8")
    assert refusal(load_config, file) == f"{file}: {says}"


def test_cfg_3_setting_without_a_value_can_be_given_one(printed):
    assert "name" not in printed()["corpus"]
    assert printed("--corpus.name", "someone/something")["corpus"]["name"] == "someone/something"
    assert printed("--corpus.source=file", "--corpus.path", "a.txt", "b.txt")["corpus"]["path"] == ["a.txt", "b.txt"]


def test_cfg_4_width_that_heads_do_not_divide_is_refused_with_those_that_do(train_py, refusal, no_work):
    message = refusal(train_py, "--model.width=1600", "--model.n-heads=48")
    assert "1600 % 48 = 16" in message
    assert "n_heads may be 1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64" in message


@pytest.mark.parametrize(("flag", "word"), [(flag, word) for flag, words in BAD_VALUES.items() for word in words])
def test_cfg_4_impossible_value_is_refused_by_name(train_py, refusal, no_work, flag, word):
    message = refusal(train_py, f"--{flag}={word}")
    assert message.startswith(f"command line: {flag.replace('-', '_')} = ")
    assert "\n" not in message


def test_cfg_4_all_impossible_values_are_told_at_once(train_py, refusal, no_work):
    message = refusal(train_py, *(f"--{flag}={words[0]}" for flag, words in BAD_VALUES.items()))
    assert len(message.split("\n")) == len(BAD_VALUES)


def test_cfg_4_arm_that_leaves_nothing_is_refused(train_py, refusal, no_work):
    assert "leaves nothing" in refusal(train_py, "--model.feed-forward=none", "--model.residual=false")


def test_cfg_4_text_of_one_character_is_refused(tmp_path, train_py, refusal):
    text = tmp_path / "a.txt"
    text.write_text("a" * 5000, encoding="utf-8")
    out = tmp_path / "run"
    assert "nothing to learn" in refusal(train_py, "--corpus.source=file", "--corpus.path", text, "--out", out)
    assert not out.exists()


def test_cfg_4_is_refused_with_assertions_off(run_cli, tmp_path):
    words = ("--model.width=96", "--model.n-heads=5", "--training.batch-size=0")
    done = run_cli("train.py", *words, cwd=tmp_path, python=("-O",))
    assert (done.returncode, done.stdout) == (2, "")
    assert "command line: model: width 96 cannot be split into n_heads 5: 96 % 5 = 1;" in done.stderr
    assert done.stderr.endswith("\ncommand line: training.batch_size = 0: must be greater than or equal to 1\n")
    assert list(tmp_path.iterdir()) == []
