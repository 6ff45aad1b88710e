"""Is a checkpoint whole or not there, and is one that is neither ours nor whole refused by name?"""

import json
import re
from contextlib import suppress

import pytest
import torch

from minilm import checkpoint
from minilm.checkpoint import MODEL, OPTIMIZER, STATE, read_checkpoint, recover, sealed, sha256, write_checkpoint
from minilm.errors import UserError
from minilm.runs import check_folder, load_run
from minilm.session import prepare, start_run

STATE_OF = {"step": 3, "config": {}, "vocabulary": "ab"}


def write(folder, number: float = 1.0, **state) -> None:
    write_checkpoint(folder, {"a": torch.full((2,), number)}, {"a/m": torch.zeros(3)}, {**STATE_OF, **state})


def rewrite_state(folder, **changes) -> None:
    """Change the JSON of a checkpoint, hash and all, as whoever tampers on purpose would; `...` removes the key."""
    file = folder / STATE
    state = {**json.loads(file.read_text("utf-8")), **changes}
    state = {key: value for key, value in state.items() if value is not ...}
    state = sealed(state) if isinstance(state.get("sha256"), dict) else state
    file.write_text(json.dumps(state), encoding="utf-8")


def bless(folder) -> None:
    """Write down the hashes of what is there now."""
    rewrite_state(folder, sha256={name: sha256(folder / name) for name in (MODEL, OPTIMIZER)})


def test_what_is_written_is_read(tmp_path):
    weights = {"a": torch.randn(3, 4), "b": torch.randn(2, 5).T, "c": torch.tensor(1, dtype=torch.int64)}
    memory = {"a/m": torch.randn(3).bfloat16()}
    write_checkpoint(tmp_path / "last", weights, memory, {**STATE_OF, "vocabulary": "\né😀"})
    found = read_checkpoint(tmp_path / "last", optimizer=True)
    for expected, tensors in ((weights, found.weights), (memory, found.optimizer)):
        assert expected.keys() == tensors.keys()
        assert all(torch.equal(expected[name], tensors[name]) for name in expected)
    assert found.state["vocabulary"] == "\né😀"
    assert sorted(file.name for file in (tmp_path / "last").iterdir()) == sorted([MODEL, OPTIMIZER, STATE])
    assert [file.name for file in tmp_path.iterdir()] == ["last"]
    assert read_checkpoint(tmp_path / "last").optimizer == {}


def test_a_second_one_replaces_the_first(tmp_path):
    write(tmp_path / "last", 1.0)
    write(tmp_path / "last", 2.0, step=4)
    found = read_checkpoint(tmp_path / "last")
    assert (found.state["step"], found.weights["a"].tolist()) == (4, [2.0, 2.0])
    assert [file.name for file in tmp_path.iterdir()] == ["last"]


@pytest.mark.parametrize("name", ["save_file", "sha256", "flush"])
@pytest.mark.parametrize("existing", [True, False])
def test_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch, name, existing):
    if existing:
        write(tmp_path / "last", 1.0)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, name, full)
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path / "last", 2.0)
    assert [file.name for file in tmp_path.iterdir()] == (["last"] if existing else [])
    if existing:
        assert read_checkpoint(tmp_path / "last").weights["a"].tolist() == [1.0, 1.0]
    write(tmp_path / "last", 3.0)
    assert read_checkpoint(tmp_path / "last").weights["a"].tolist() == [3.0, 3.0]


def test_write_that_is_killed_between_its_renames_is_finished_later(tmp_path):
    write(tmp_path / "last", 1.0)
    (tmp_path / "last").rename(tmp_path / ".last.old")
    write(tmp_path / "other", 2.0)
    (tmp_path / "other").rename(tmp_path / ".last.new")
    assert read_checkpoint(tmp_path / "last").weights["a"].tolist() == [1.0, 1.0]
    # Killed after the second rename, the old one is merely left over.
    (tmp_path / "last").rename(tmp_path / ".last.old")
    write(tmp_path / "last", 3.0)
    recover(tmp_path / "last")
    assert read_checkpoint(tmp_path / "last").weights["a"].tolist() == [3.0, 3.0]
    assert not (tmp_path / ".last.old").exists()


def test_full_disk_ends_the_run_with_advice(on_text, tmp_path, refusal, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("minilm.training.write_checkpoint", full)
    message = refusal(start_run, on_text(), tmp_path / "run")
    size = re.search(r"step 4 \((.*) MB\) could not be saved: No space left on device; what was saved", message)
    assert float(size[1]) == 0.2  # weights and what Muon and AdamW remember of them


def test_best_is_written_before_the_last_that_speaks_of_it(on_text, tmp_path, monkeypatch):
    run = prepare(on_text(), tmp_path / "run", resume=False, overwrite=False)
    names = []
    monkeypatch.setattr(run, "save", lambda name, **_: names.append(name))
    run.keep(1.0)
    run.keep(2.0)
    assert names == ["best", "last", "last"]


@pytest.mark.parametrize("file", [MODEL, OPTIMIZER, STATE])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "garbled", "one bit", "other"])
def test_damaged_file_is_refused_by_name(copied, refusal, on_text, file, damage):
    path = copied / "last" / file
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[-9] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        contents = {"empty": b"", "cut": content[: len(content) // 2], "garbled": bytes(range(256)) * 9}
        contents |= {"one bit": bytes(flipped), "other": (copied / "config.toml").read_bytes()}
        path.write_bytes(contents[damage])
    message = refusal(prepare, on_text(), copied, resume=True, overwrite=False)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    if file != OPTIMIZER:
        assert refusal(load_run, copied, "last") == message
    else:
        load_run(copied, "last")  # does not need it


def test_file_that_was_swapped_for_another_of_ours_is_refused(copied, refusal, on_text):
    (copied / "last" / MODEL).write_bytes((copied / "last" / OPTIMIZER).read_bytes())
    assert "is damaged or was changed" in refusal(load_run, copied, "last")
    bless(copied / "last")
    assert "lacks head.weight" in refusal(load_run, copied, "last")


@pytest.mark.filterwarnings("ignore:clamping frac")  # the bar of a run that begins at step -1
@pytest.mark.parametrize(
    "key", ["format", "step", "precision", "best", "loss", "config", "vocabulary", "sha256", "corpus_sha256"]
)
@pytest.mark.parametrize("value", [..., None, -1, 10**30, 1.5, "x", [], {}, {"model": 5}, [1], True, {"loss": "x"}])
def test_state_with_a_value_of_another_kind_is_read_or_refused(copied, on_text, key, value):
    rewrite_state(copied / "last", **{key: value})
    for action in (
        lambda: load_run(copied, "last"),
        lambda: start_run(on_text(training={"steps": 9}), copied, resume=True),
    ):
        with suppress(UserError):
            action()


@pytest.mark.parametrize("content", ["[]", "5", "null", '"x"', "{}", "[" * 100_000, '{"format": 1e999}', "NaN"])
def test_other_json_is_refused(copied, refusal, content):
    (copied / "last" / STATE).write_text(content, encoding="utf-8")
    assert refusal(load_run, copied, "last").startswith(f"{copied / 'last' / STATE}: ")


def test_format_of_another_version_is_refused(copied, refusal):
    rewrite_state(copied / "last", format=1)
    assert "format 1, but this minilm reads format 2" in refusal(load_run, copied, "last")


def test_config_that_does_not_fit_the_weights_is_refused(copied, refusal):
    state = json.loads((copied / "last" / STATE).read_text("utf-8"))
    state["config"]["model"]["n_layers"] = 1
    rewrite_state(copied / "last", config=state["config"])
    lines = refusal(load_run, copied, "last").split("\n")
    assert all(line.startswith(f"{copied / 'last'}: has blocks.1.") for line in lines)
    assert len(lines) == 16
    state["config"]["model"]["n_lairs"] = 1
    rewrite_state(copied / "last", config=state["config"])
    assert refusal(load_run, copied, "last").startswith(f"{copied / 'last' / STATE}: model.n_lairs: no such setting")


@pytest.mark.parametrize("definition", ["x", "{}", '{"model": {"type": "BPE"}}'])
def test_vocabulary_that_is_none_is_refused(copied, refusal, definition):
    state = json.loads((copied / "last" / STATE).read_text("utf-8"))
    state["config"]["corpus"]["unit"] = "bpe"
    rewrite_state(copied / "last", config=state["config"], vocabulary=definition)
    message = refusal(load_run, copied, "last")
    assert message.startswith(f"{copied / 'last' / STATE}: its vocabulary cannot be read: ")


def test_loaded_run_is_the_one_that_was_trained(finished, on_text, train_in, tmp_path):
    run = train_in(on_text(), tmp_path / "again")
    for which in ("last", "best"):
        found = load_run(finished, which)
        assert not found.model.training
        assert (found.step, found.config) == (8, run.config)
        assert found.loss == run.best["loss"]
        assert found.vocabulary == run.corpus.vocabulary
        assert all(torch.equal(t, run.model.state_dict()[name]) for name, t in found.model.state_dict().items())
    assert load_run(finished / "last").step == 8


def test_what_is_no_run_is_refused(tmp_path, refusal):
    assert "there is no such run folder" in refusal(load_run, tmp_path / "none")
    assert refusal(load_run, tmp_path) == f"{tmp_path / 'last'}: there is no checkpoint"
    (tmp_path / "file").write_bytes(b"")
    assert "there is no such run folder" in refusal(load_run, tmp_path / "file")


def test_run_without_a_best_gives_its_last(on_text, train_in, tmp_path):
    train_in(on_text(), tmp_path / "run", until=2)
    assert load_run(tmp_path / "run").step == 2


def test_used_folder_is_refused(copied, refusal, on_text):
    before = sorted(copied.rglob("*"))
    message = refusal(prepare, on_text(), copied, resume=False, overwrite=False)
    assert message.startswith(f"{copied}: holds a run already; --resume goes on with it, --overwrite replaces it")
    assert sorted(copied.rglob("*")) == before
    both = refusal(prepare, on_text(), copied, resume=True, overwrite=True)
    assert "give one of them" in both
    file = copied / "config.toml"
    assert "is a file, and a run needs a folder" in refusal(check_folder, file, resume=False, overwrite=False)


def test_overwrite_removes_our_own_files_only(copied, on_text, train_in):
    (copied / "notes.txt").write_bytes(b"mine")
    (copied / "plots").mkdir()
    (copied / "plots" / "last").write_bytes(b"mine too")
    (copied / ".last.old").mkdir()
    run = prepare(on_text(), copied, resume=False, overwrite=True)
    assert run.step == 0
    assert sorted(file.name for file in copied.iterdir()) == ["config.toml", "manifest.json", "notes.txt", "plots"]
    assert (copied / "notes.txt").read_bytes() == b"mine"
    assert (copied / "plots" / "last").read_bytes() == b"mine too"


@pytest.mark.parametrize("name", ["config.toml", "samples.txt", "best/photo.jpg", "last/photo.jpg", "last"])
def test_overwrite_refuses_a_folder_with_files_like_ours_that_are_not_ours(tmp_path, refusal, on_text, name):
    file = tmp_path / "project" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"mine")
    message = refusal(prepare, on_text(), tmp_path / "project", resume=False, overwrite=True)
    assert message.startswith(f"{tmp_path / 'project'}: ")
    assert "\n" not in message
    assert file.read_bytes() == b"mine"
    refusal(prepare, on_text(), tmp_path / "project", resume=False, overwrite=False)
    assert file.read_bytes() == b"mine"


def test_refused_settings_leave_an_overwritten_run_as_it_was(copied, refusal, tiny, tmp_path):
    before = {file: file.read_bytes() for file in copied.rglob("*") if file.is_file()}
    missing = tiny(corpus={"source": "file", "path": (str(tmp_path / "none.txt"),)})
    refusal(prepare, missing, copied, resume=False, overwrite=True)
    refusal(prepare, tiny(training={"device": "gpu0x"}), copied, resume=False, overwrite=True)
    assert {file: file.read_bytes() for file in copied.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("content", [b"\xff\n", b"[1, 2]\n", b'{"loss": 1}\n', b'{"step": "x"}\n', b"{}\n", b"x\n"])
def test_damaged_metrics_are_refused_by_name(copied, refusal, on_text, content):
    file = copied / "metrics.jsonl"
    file.write_bytes(file.read_bytes() + content)
    message = refusal(start_run, on_text(), copied, resume=True)
    assert message == f"{file}: is damaged: a line is not JSON with a step and its numbers"


def test_folder_that_cannot_be_made_is_refused(tmp_path, refusal, on_text):
    (tmp_path / "file").write_bytes(b"")
    assert "cannot be written to" in refusal(
        prepare, on_text(), tmp_path / "file" / "run", resume=False, overwrite=False
    )
