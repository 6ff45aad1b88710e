"""Are settings read as they are written, and is everything that is wrong told at once?"""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from minilm.config import Config
from minilm.errors import UserError
from minilm.settings import load_config, nearest, to_toml, validate


def written(folder, text: str, name: str = "settings.toml"):
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_empty_file_means_the_defaults(tmp_path):
    assert load_config(written(tmp_path, "")) == Config()


def test_settings_cannot_change():
    with pytest.raises(ValidationError, match="frozen"):
        Config().model.width = 5


def test_file_lies_over_its_base_key_by_key(tmp_path):
    (tmp_path / "below").mkdir()
    written(tmp_path, "[model]\nwidth = 8\nn_layers = 1\n[training]\nsteps = 30\n", "below/bottom.toml")
    written(tmp_path, 'base = "bottom.toml"\n[model]\nn_layers = 2\n', "below/middle.toml")
    config = load_config(written(tmp_path, 'base = "below/middle.toml"\n[training]\nsteps = 40\n'))
    assert (config.model.width, config.model.n_layers, config.training.steps) == (8, 2, 40)


def test_base_that_leads_in_a_circle_is_refused(tmp_path, refusal):
    one = written(tmp_path, 'base = "two.toml"', "one.toml")
    written(tmp_path, 'base = "./one.toml"', "two.toml")
    message = refusal(load_config, one)
    assert "base leads in a circle" in message
    assert message.endswith(f"{one} -> {tmp_path / 'two.toml'} -> {one}")
    own = written(tmp_path, 'base = "own.toml"', "own.toml")
    assert f"{own}: base leads in a circle" in refusal(load_config, own)


def test_two_files_may_share_a_base(tmp_path):
    written(tmp_path, "[model]\nwidth = 8\n", "bottom.toml")
    written(tmp_path, 'base = "bottom.toml"', "middle.toml")
    assert load_config(written(tmp_path, 'base = "middle.toml"')).model.width == 8


def test_base_is_looked_for_beside_the_file_and_then_among_those_that_come_with_us(tmp_path, monkeypatch, configs):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = written(tmp_path, 'base = "configs/shakespeare.toml"\n')
    assert load_config(file) == configs["shakespeare"]
    (tmp_path / "configs").mkdir()
    written(tmp_path, "[model]\nwidth = 8\n", "configs/shakespeare.toml")
    assert load_config(file).model.width == 8


def test_name_of_what_comes_with_us_without_its_folder_is_advised(tmp_path, refusal):
    file = written(tmp_path, 'base = "no_mask.toml"')
    advice = "did you mean configs/no_mask.toml, which comes with minilm?"
    assert refusal(load_config, file) == f"{tmp_path / 'no_mask.toml'}: there is no such file; {advice}"
    file = written(tmp_path, 'base = "pyproject.toml"')  # comes with us too, and is no settings file
    assert refusal(load_config, file) == f"{tmp_path / 'pyproject.toml'}: there is no such file"


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"\xff\xfe[\x00m", "byte 0 is not UTF-8; save the file as UTF-8"),
        (b"[model\n", "not TOML: "),
        (b"[model]\n[model]\n", "not TOML: "),
        (b"a = " + b"[" * 5000, "not TOML: "),
        (b"[" + b".".join([b"a"] * 3000) + b"]\nx = 1\n", "a: no such setting"),
        (b"base = 5\n", "base is 5, wanted the name of a file in quotes"),
        (b"model = 5\n", "model = 5: must be a valid dictionary"),
        (b"[corpus]\npath = [1]\n", "corpus.path.0 = 1: must be a valid string"),
        (b"[corpus]\nsource = 'file'\n", 'corpus: source "file" needs a path'),
        (b"[corpus]\nsource = 'hub'\n", 'corpus: source "hub" needs the name of a dataset'),
    ],
)
def test_unreadable_file_is_named_with_the_reason(tmp_path, refusal, content, advice):
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    message = refusal(load_config, file)
    assert message.startswith(f"{file}: {advice}")
    assert "\n" not in message


def test_missing_file_missing_base_and_folder_are_named(tmp_path, refusal):
    assert refusal(load_config, tmp_path / "none.toml") == f"{tmp_path / 'none.toml'}: there is no such file"
    file = written(tmp_path, 'base = "none.toml"')
    assert refusal(load_config, file) == f"{tmp_path / 'none.toml'}: there is no such file"
    assert refusal(load_config, tmp_path).startswith(f"{tmp_path}: cannot be read: ")


def test_byte_order_mark_is_no_obstacle(tmp_path):
    file = tmp_path / "bom.toml"
    file.write_bytes("[model]\nwidth = 8\n".encode("utf-8-sig"))
    assert load_config(file).model.width == 8


def test_every_problem_is_told_with_its_file_and_its_key(tmp_path, refusal):
    below = written(tmp_path, "[model]\ndropout = 1.5\n[training]\nbeta3 = 0.9\n", "below.toml")
    text = """
        base = "below.toml"
        learning_rat = 1e-3
        [model]
        lr = 1e-3
        n-head = 2
        width = "wide"
        [modle]
        width = 3
        [training]
        steps = 0
        causal = true
        [corpus]
        path = "x"
    """
    file = written(tmp_path, text)
    assert sorted(refusal(load_config, file).split("\n")) == sorted(
        [
            f"{below}: model.dropout = 1.5: must be less than 1",
            f"{below}: training.beta3: no such setting; did you mean training.beta2?",
            f"{file}: learning_rat: no such setting; did you mean training.learning_rate?",
            f"{file}: model.lr: no such setting; did you mean training.learning_rate?",
            f"{file}: model.n-head: no such setting; did you mean model.n_heads?",
            f"{file}: model.width = 'wide': must be a valid integer",
            f"{file}: modle: no such setting; did you mean model?",
            f"{file}: training.steps = 0: must be greater than or equal to 1",
            f"{file}: training.causal: no such setting; did you mean model.causal?",
            f"{file}: corpus.path = 'x': must be a valid tuple",
        ]
    )


def test_impossible_pair_names_every_file_that_has_a_part_in_it(tmp_path, refusal):
    below = written(tmp_path, "[model]\nn_heads = 5\n", "below.toml")
    file = written(tmp_path, 'base = "below.toml"\n[model]\nwidth = 12\n')
    assert refusal(load_config, file) == (
        f"{below}, {file}: model: width 12 cannot be split into n_heads 5: 12 % 5 = 2; n_heads may be 1, 2, 3, 4, 6, 12"
    )


def test_nearest_setting():
    known = [("model",), ("model", "n_layers"), ("training", "learning_rate"), ("training", "steps")]
    assert nearest(("n_layre",), known) == ("model", "n_layers")
    assert nearest(("model", "n-layer"), known) == ("model", "n_layers")
    assert nearest(("lr",), known) == ("training", "learning_rate")
    assert nearest(("mode",), known) == ("model",)
    assert nearest(("weather",), known) is None


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
corpora = st.fixed_dictionaries({"source": st.just("file"), "path": st.lists(names, min_size=1, max_size=3)})
models = st.fixed_dictionaries(
    {"n_layers": st.integers(1, 9), "dropout": st.floats(0, 0.99), "causal": st.booleans()},
    optional={"position": st.sampled_from(["learned", "sinusoidal", "rotary", "none"])},
)
fits = st.fixed_dictionaries({"learning_rate": st.floats(1e-300, 1e300), "seed": st.integers(0, 2**63 - 1)})


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpus=corpora, model=models, training=fits)
def test_printed_settings_are_read_back_the_same(tmp_path, corpus, model, training):
    config = validate({"corpus": corpus, "model": model, "training": training}, {})
    assert load_config(written(tmp_path, to_toml(config))) == config


def test_printed_settings_hold_every_setting():
    tables = tomllib.loads(to_toml(Config()))
    assert list(tables) == ["model", "corpus", "training"]  # and not what a run is for
    for name in tables:
        table = getattr(Config(), name)
        missing = set(type(table).model_fields) - tables[name].keys()
        assert missing == {key for key, value in table if value is None}


WHAT_FOR = """
control = "other"
[expect]
formula = "x instead of y"
symptom = "It goes wrong."
claims = [{ figure = "excess", compare = "ratio", above = 3 }]
"""


def test_what_a_run_is_for_is_read_but_not_taken_over_from_a_base(tmp_path):
    own = load_config(written(tmp_path, WHAT_FOR, "own.toml"))
    assert own.control == "other"
    assert own.expect is not None
    assert own.expect.claims[0].bound == 3
    assert load_config(written(tmp_path, 'base = "own.toml"')) == Config()
    # A part of it that is written over it is not filled up from below either.
    file = written(tmp_path, 'base = "own.toml"\n[expect]\nformula = "z"\n')
    with pytest.raises(UserError) as caught:
        load_config(file)
    assert str(caught.value).startswith(f"{file}: expect.symptom")


@pytest.mark.parametrize(
    ("claim", "advice"),
    [
        ("", "needs one bound, either above or below"),
        (", above = 1, below = 2", "needs one bound, either above or below"),
        (', compare = "ratio", below = 0', "a ratio is compared with a factor above 0, not 0"),
        (', compare = "times", below = 1', "must be 'alone', 'difference' or 'ratio'"),
        (", over = 1", "expect.claims.0.over: no such setting"),
    ],
)
def test_claim_that_cannot_be_judged_is_refused(tmp_path, refusal, claim, advice):
    table = f'[expect]\nformula = "f"\nsymptom = "s"\nclaims = [{{ figure = "excess"{claim} }}]\n'
    file = written(tmp_path, table)
    assert advice in refusal(load_config, file)


def test_misspelled_part_of_an_expectation_is_named(tmp_path, refusal):
    file = written(tmp_path, WHAT_FOR.replace("symptom", "symptoms"))
    assert "expect.symptoms: no such setting; did you mean expect.symptom?" in refusal(load_config, file)
