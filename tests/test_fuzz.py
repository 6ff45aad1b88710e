"""Does whatever anybody gives end in the right reading or in one message: settings, texts, prompts?

A few dozen of each here. MINILM_FUZZ=1000 asks for so many settings and half as many texts and
prompts; MINILM_SEED repeats a trial.
"""

import codecs
import contextlib
import io
import os
import time
import tomllib

import pytest
import tomli_w
from conftest import TINY, tiny_config
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from minilm.config import Config, ModelConfig, TrainingConfig
from minilm.corpus import load_corpus
from minilm.errors import UserError
from minilm.sample import main as sample
from minilm.session import start_run
from minilm.settings import validate

MANY = int(os.environ.get("MINILM_FUZZ", 30))
SEED = int(os.environ.get("MINILM_SEED", time.time_ns() % 2**32))
SMALL = {**TINY["training"], "steps": 2, "evaluate_every": 2, "sample_every": 1}


def fuzzed(count: int):
    """So many examples, from a seed that is shown where one fails."""
    return lambda test: seed(SEED)(settings(deadline=None, max_examples=count)(test))


def outcome(action, *arguments) -> str:
    """What a person gets to read: what was printed, or the message of a refusal. All but those fails the test."""
    print(f"MINILM_SEED={SEED}")
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = action(*arguments)
        except UserError as error:
            return f"refused: {error}"
        except OSError as error:  # which run_main tells in one line
            return f"refused: {error}"
        except SystemExit as end:  # tyro's way to refuse
            code = end.code
    if code == 2:
        return f"refused: {err.getvalue()}"
    assert code in (0, 1, None)  # 1 where the numbers ran away
    return out.getvalue()


words = st.one_of(st.text(max_size=12), st.sampled_from(["", "\0", "\u0301", "😀", "base.toml", "muon", "1e3", "nan"]))
numbers = st.one_of(
    st.integers(-3, 70),
    st.integers(),
    st.sampled_from([2**31, 2**63, 2**64, 10**30, -(10**400), 16**5000]),
    st.floats(),
    st.floats(0, 2),
)
scalars = st.one_of(numbers, numbers, st.booleans(), words, st.dates())
values = st.one_of(scalars, scalars, st.lists(scalars, max_size=3), st.dictionaries(words, scalars, max_size=2))
names = st.one_of(st.sampled_from([*ModelConfig.model_fields]), st.sampled_from([*TrainingConfig.model_fields]), words)
tables = st.dictionaries(
    st.one_of(st.sampled_from(["model", "model", "training", "training", "corpus", "base", "expect"]), words),
    st.one_of(st.dictionaries(names, values, max_size=3), st.dictionaries(names, values, max_size=3), values),
    max_size=3,
)


def toml_of(found: dict) -> str:
    """As TOML; numbers too long for decimals in hexadecimals, which the language allows."""
    text = tomli_w.dumps(replaced(found))
    return text.replace('"TOO LONG"', hex(16**5000))


def replaced(value):
    if isinstance(value, dict):
        return {key: replaced(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner) for inner in value]
    return "TOO LONG" if type(value) is int and value == 16**5000 else value


def is_quick(config: Config) -> bool:
    """Whether a run of it takes no time."""
    model, training = config.model, config.training
    sizes = (model.width, model.context, training.batch_size * training.accumulation, training.sample_length)
    return max(sizes) <= 70 and model.n_layers * training.steps <= 8 and training.threads <= 1


@fuzzed(MANY)
@given(found=tables)
def test_settings_are_read_as_given_or_refused(found, train_script, tiny_text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    file = folder / "settings.toml"
    base = {"model": TINY["model"], "training": SMALL, "corpus": {"source": "file", "path": [str(tiny_text)]}}
    (folder / "base.toml").write_text(tomli_w.dumps(base), encoding="utf-8")
    file.write_text(toml_of({"base": "base.toml", **found}), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["train.py", str(file), "--print-config"])
        printed = outcome(train_script.main)
        if printed.startswith("refused: "):
            assert len(printed) > len("refused: ")
            return
        config = validate(tomllib.loads(printed), {})
        for table, values_ in found.items():
            if table in ("model", "training", "corpus"):
                for key, value in values_.items():
                    assert getattr(getattr(config, table), key) == (tuple(value) if isinstance(value, list) else value)
        if is_quick(config):
            outcome(start_run, config, folder / "run")


texts = st.one_of(
    st.text(max_size=60).map(str.encode),
    st.text("ab\r\n\u2028\x85é😀", min_size=14, max_size=40).map(str.encode),
    st.text("ab\n", min_size=14, max_size=24).map(lambda text: codecs.BOM_UTF8 + text.encode()),
    st.text(min_size=1, max_size=40).map(lambda text: text.encode("utf-16", "surrogatepass")),
    st.binary(max_size=60),
)


@fuzzed(MANY // 2)
@given(content=texts, unit=st.sampled_from(["char", "char", "byte"]))
def test_texts_are_read_exactly_or_refused(content, unit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    file = folder / "text.txt"
    file.write_bytes(content)
    corpus = {"source": "file", "path": (str(file),), "validation_fraction": 0.5, "unit": unit}
    config = tiny_config(model={"n_layers": 1, "width": 8, "context": 8}, training={**SMALL, "steps": 1}, corpus=corpus)
    printed = outcome(start_run, config, folder / "run")
    if printed.startswith("refused: "):
        assert str(file) in printed or "text.txt" in printed
        return
    read = load_corpus(config.corpus, context=8, seed=0)
    text = read.vocabulary.decode(read.train) + read.vocabulary.decode(read.validation)
    assert text == content.decode("utf-8-sig")


wishes = st.fixed_dictionaries(
    {},
    optional={
        "--prompt": st.one_of(st.text("the quick\n", max_size=40), words, st.just("d\udcff")),
        "--length": st.one_of(st.integers(-2, 40), words, st.just(10**30)),
        "--temperature": st.one_of(st.floats(), st.sampled_from(["0", "5e-324", "1e308", "-0.0", "nan", "x"])),
        "--top-k": st.one_of(st.integers(-2, 40), st.sampled_from([2**63, 10**30]), words),
        "--top-p": st.one_of(st.floats(), st.floats(0, 1), words),
        "--seed": st.one_of(st.integers(), words),
        "--which": st.sampled_from(["best", "last", "first"]),
        "--device": st.sampled_from(["cpu", "cpu:7", "cuda:99", "x"]),
    },
)


@fuzzed(MANY // 2)
@given(wish=wishes)
def test_prompts_and_ways_of_drawing_are_followed_or_refused(wish, finished):
    printed = outcome(sample, [str(finished), "--length=5", *(f"{flag}={value}" for flag, value in wish.items())])
    if printed.startswith("refused: "):
        assert len(printed) > len("refused: ")
        return
    prompt = str(wish.get("--prompt", ""))
    assert printed.startswith(prompt)
    assert len(printed) == len(prompt) + int(wish.get("--length", 5)) + 1
