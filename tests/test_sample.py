"""Does `python -m minilm sample` write what the model says, and refuse in one line what it cannot do?"""

import pytest
import torch

from minilm.generation import generate
from minilm.runs import load_run
from minilm.sample import main
from minilm.streams import generator


@pytest.fixture
def sample(capsys):
    """(text, notes) that `sample WORDS` prints."""

    def call(*words) -> tuple[str, str]:
        assert main(list(map(str, words))) == 0
        return capsys.readouterr()

    return call


def written(folder, prompt: str, length: int, seed: int = 0, **chosen) -> str:
    run = load_run(folder)
    tokens = run.vocabulary.encode(prompt)[None]
    draws = generate(run.model, tokens, length, generator=generator(seed, "sampling"), **chosen)
    return run.vocabulary.decode(torch.cat(list(draws)))


def test_text_is_prompt_and_what_the_model_adds(finished, sample):
    text, notes = sample(finished, "--prompt", "the q", "--length", 30, "--temperature", 0.5, "--seed", 3)
    assert text == "the q" + written(finished, "the q", 30, seed=3, temperature=0.5) + "\n"
    assert notes == ""


def test_flags_reach_the_draw(finished, sample):
    words = (finished, "--prompt", "fox", "--length", 30)
    greedy = written(finished, "fox", 30, temperature=0.0)
    for wish in (("--temperature", 0), ("--temperature", 1e-8), ("--top-k", 1), ("--top-p", 1e-9)):
        assert sample(*words, *wish)[0] == f"fox{greedy}\n"
    assert sample(*words, "--temperature", 0, "--seed", 5)[0] == f"fox{greedy}\n"
    assert sample(*words, "--temperature", 1)[0] != f"fox{greedy}\n"
    free = sample(*words)
    assert sample(*words, "--top-k", 200) == sample(*words, "--top-p", 1) == free
    assert sample(*words, "--no-cache") == free
    assert sample(*words, "--seed", 1) != free


def test_out_file_holds_the_text_exactly(finished, sample, tmp_path):
    text, _ = sample(finished, "--prompt", "dog.\n", "--length", 20, "--out", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_bytes().decode() + "\n" == text


def test_prompt_from_a_file_is_taken_as_it_is(finished, sample, tmp_path):
    for content in (b"lazy dog.\n", b"\xef\xbb\xbflazy dog.\n"):
        (tmp_path / "prompt.txt").write_bytes(content)
        text, _ = sample(finished, "--prompt-file", tmp_path / "prompt.txt", "--length", 5)
        assert text == "lazy dog.\n" + written(finished, "lazy dog.\n", 5, temperature=0.8) + "\n"


def test_checkpoints_can_be_chosen(copied, sample):
    (copied / "best").rename(copied / "kept")
    assert sample(copied, "--which", "last", "--length", 5) == sample(copied, "--length", 5)
    assert sample(copied / "kept", "--length", 5) == sample(copied / "last", "--length", 5)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--temperature", "-1"], "temperature is -1.0, wanted a number from 0 (greedy) upwards"),
        (["--temperature", "nan"], "temperature is nan, wanted a number from 0 (greedy) upwards"),
        (["--temperature", "inf"], "temperature is inf, wanted a number from 0 (greedy) upwards"),
        (["--top-k", "0"], "top-k is 0, wanted at least 1"),
        (["--top-p", "0"], "top-p is 0.0, wanted above 0 and up to 1"),
        (["--length", "-5"], "length is -5, wanted from 0 to 100000000"),
        (["--device", "gpu0x"], "device 'gpu0x': there is no such kind; use auto, cpu, cuda, cuda:1 or mps"),
        (["--prompt", "x", "--prompt-file", "x"], "--prompt and --prompt-file: give one of them"),
        (["--prompt-file", "none"], "none: cannot be read: No such file or directory"),
    ],
)
def test_bad_wish_is_refused(finished, refusal, words, says):
    assert refusal(main, [str(finished), *words]).startswith(says)


def test_all_bad_wishes_are_told_at_once(finished, refusal):
    assert len(refusal(main, [str(finished), "--temperature=-1", "--top-k=0", "--top-p=2"]).split("\n")) == 3


def test_folder_that_is_no_run_is_refused(tmp_path, refusal):
    assert refusal(main, [str(tmp_path / "none")]).startswith(f"{tmp_path / 'none'}: there is no such run folder")


def test_file_that_cannot_be_written_is_refused(finished, refusal, tmp_path):
    message = refusal(main, [str(finished), "--length", "1", "--out", str(tmp_path)])
    assert message == f"{tmp_path}: cannot be written: Is a directory"


def test_prompt_file_that_is_not_utf_8_is_refused(finished, refusal, tmp_path):
    (tmp_path / "prompt.txt").write_bytes(b"abc\xff")
    message = refusal(main, [str(finished), "--prompt-file", str(tmp_path / "prompt.txt")])
    assert message == f"{tmp_path / 'prompt.txt'}: byte 3 is not UTF-8; save it as UTF-8"


def test_model_whose_scores_are_no_numbers_is_refused(copied, refusal, monkeypatch):
    monkeypatch.setattr(
        "minilm.model.LanguageModel.forward", lambda self, x, **_: torch.full((*x.shape, 29), torch.nan)
    )
    assert (
        refusal(main, [str(copied)]) == f"{copied}: cannot write: some of the model's scores are infinite or no numbers"
    )
