"""Where does the text come from?

From Riverbank, from files, or from the hub. Each source hands its text over in pieces, so that
a large one need not be held twice. Characters stay what they are: newlines of every kind are
kept, nothing is normalised, only a byte order mark at the start of a file is dropped.

What stands between: between two text files nothing; between two rows of a table, and between a
table and its neighbour, one newline.
"""

from __future__ import annotations

import codecs
import glob
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minilm.config import CorpusConfig
from minilm.errors import UserError
from minilm.riverbank import Riverbank

TABLES = {".jsonl": "json", ".csv": "csv", ".parquet": "parquet", ".arrow": "arrow"}  # suffix -> loader of `datasets`
PIECE = 1 << 18  # bytes read at a time
ROWS = 1000  # rows read at a time


@dataclass(frozen=True)
class Source:
    """A text that can be read once."""

    name: str
    pieces: Iterable[str]
    language: Riverbank | None = None
    notes: tuple[str, ...] = ()  # what is worth knowing of it


def open_source(config: CorpusConfig, seed: int) -> Source:
    """The text that `config` asks for. Bad paths are refused here, bad contents while reading."""
    if config.source == "riverbank":
        language = Riverbank.load(config.language)
        return Source("riverbank", [language.generate(config.characters, seed)], language)
    if config.source == "none":
        raise UserError("there is no text yet: name one to train on; what was imported came without")
    if config.source == "hub":
        return Source(str(config.name), read_hub(config))
    return open_files(config.path, config.column)


def open_validation(config: CorpusConfig) -> Source:
    """The text of its own that is kept to validate on."""
    return open_files(config.validation, config.column)


def open_files(paths: tuple[str, ...], column: str) -> Source:
    """The texts in files and folders, one after the other."""
    names = ", ".join(Path(path).name or path for path in paths)
    files, empty = find_files(paths)
    more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
    notes = (f"left out, since empty: {empty[0]}{more}",) if empty else ()
    return Source(names, read_files(files, column), notes=notes)


def find_files(paths: Iterable[str]) -> tuple[list[Path], list[Path]]:
    """The files meant by `paths`, and the empty ones that are left out.

    A folder stands for the texts and tables in it, in order of name. An empty file is a mistake
    where it was named and a bystander in a folder.
    """
    files: list[Path] = []
    empty: list[Path] = []
    problems = []
    for path in map(Path, paths):
        inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in (".txt", *TABLES) and file.is_file())
        full = [file for file in inside if not is_empty(file)]
        if not path.exists():
            problems.append(f"{path}: there is no such file (looked in {Path.cwd()})")
        elif path.is_dir() and not inside:
            problems.append(f"{path}: a folder without a .txt, {', '.join(TABLES)} file; name other files one by one")
        elif path.is_dir() and not full:
            problems.append(f"{path}: a folder of empty files only")
        elif is_empty(path):
            problems.append(f"{path}: the file is empty")
        else:
            files += full if path.is_dir() else [path]
            empty += [file for file in inside if file not in full]
    if problems:
        raise UserError("\n".join(problems))
    return files, empty


def is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def read_files(files: list[Path], column: str) -> Iterator[str]:
    """All files, in the order given."""
    after_table = False
    for i, file in enumerate(files):
        kind = TABLES.get(file.suffix.lower())
        if i > 0 and (kind or after_table):
            yield "\n"
        after_table = kind is not None
        yield from read_table(file, kind, column) if kind else read_text(file)


def read_text(file: Path) -> Iterator[str]:
    """Decode one file as UTF-8, whatever the machine's own encoding is.

    Bytes are decoded here since text mode turns every newline into "\n", and cannot tell
    at which byte of the file it stumbled.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    place = 0  # of the piece, in bytes
    try:
        with file.open("rb") as stream:
            while True:
                data = stream.read(PIECE)
                refuse_binary(file, data, place)
                held = len(decoder.getstate()[0])  # bytes of a character that the last piece cut in two
                try:
                    text = decoder.decode(data, final=not data)
                except UnicodeDecodeError as error:
                    bad = f"byte 0x{error.object[error.start]:02X} at offset {place - held + error.start}"
                    raise UserError(f"{file}: {bad} is not UTF-8 ({error.reason}); save the text as UTF-8") from error
                yield text.removeprefix("\ufeff") if place == 0 else text
                if not data:
                    return
                place += len(data)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error}") from error


def refuse_binary(file: Path, data: bytes, place: int) -> None:
    """NUL is valid UTF-8 but stands in no text; in every second byte it betrays UTF-16."""
    head = data if place == 0 else b""
    few, many = sorted((head[0::2].count(0), head[1::2].count(0)))
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if marked or (many > 10 * few and many > len(head) / 3):
        raise UserError(f"{file}: looks like UTF-16; save the text as UTF-8")
    if 0 in data:
        raise UserError(f"{file}: holds a NUL byte at offset {place + data.index(0)}, so it is not a text")


def read_table(file: Path, kind: str, column: str) -> Iterator[str]:
    """The rows of one column of a local .jsonl, .csv, .parquet or .arrow file.

    Streamed through a cache folder of its own: no stale copy, nothing written to the user's cache.
    """
    load_dataset = import_load_dataset()
    # A cell of a .csv is text, also when it reads 007 or NA.
    options = {"converters": {column: str}, "keep_default_na": False} if kind == "csv" else {}
    try:
        with tempfile.TemporaryDirectory() as cache:
            # Escaped, since `datasets` takes a path for a pattern, and one that matches nothing for no rows.
            path = glob.escape(str(file.resolve()))
            rows = load_dataset(kind, data_files=path, split="train", streaming=True, cache_dir=cache, **options)
            yield from join_rows(rows, column, str(file))
    except UserError:
        raise
    except Exception as error:  # the library lets through whatever its parsers raise
        raise UserError(f"{file}: cannot be read as {kind}: {type(error).__name__}: {error}") from error


def read_hub(config: CorpusConfig) -> Iterator[str]:
    """The first `config.characters` characters of one column of a dataset on the hub, streamed."""
    load_dataset = import_load_dataset()
    where = f"dataset {config.name}, split {config.split}"
    missing = config.characters
    try:
        rows = load_dataset(config.name, config.config, split=config.split, revision=config.revision, streaming=True)
        for piece in join_rows(rows, config.column, where):
            yield piece[:missing]
            missing -= len(piece)
            if missing <= 0:
                return
    except UserError:
        raise
    except Exception as error:  # the library lets through whatever its parsers and the network raise
        raise UserError(f"{where}: cannot be read: {type(error).__name__}: {error}\n{hub_advice(error)}") from error


def hub_advice(error: Exception) -> str:
    """What to try when a dataset does not come."""
    if "script" in str(error):  # the hub keeps a copy without code of many such datasets
        return "datasets made by a script are not run here; try --corpus.revision refs/convert/parquet"
    advice = "without a connection, use a text on this disk: --corpus.source file --corpus.path FILE"
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        advice += "\nHF_HUB_OFFLINE is set, so the hub is not asked; unset it to allow that"
    return advice


def join_rows(rows: Any, column: str, where: str) -> Iterator[str]:
    """The texts of a streamed dataset's `column`, with a newline between each two."""
    count = 0
    for batch in rows.iter(batch_size=ROWS):
        if column not in batch:
            raise UserError(f"{where}: no column {column!r}; there is {', '.join(batch)} (set --corpus.column)")
        for number, row in enumerate(batch[column], start=count + 1):
            if not isinstance(row, str):
                raise UserError(f"{where}: row {number} of column {column!r} is {type(row).__name__}, not text")
        yield "\n" * (count > 0) + "\n".join(batch[column])
        count += len(batch[column])


def import_load_dataset() -> Callable[..., Any]:
    """`datasets.load_dataset`; the library takes a second to import, so only when it is needed.

    Raises:
        UserError: the library is not there, or something else of that name stands before it.
    """
    try:
        from datasets import config, load_dataset
    except Exception as error:
        spec = importlib.util.find_spec("datasets")
        if spec is None:
            raise UserError("this corpus is read by the library `datasets`: pip install datasets") from error
        found = spec.origin or ", ".join(spec.submodule_search_locations or ())
        raise UserError(
            f"the library `datasets` cannot be used ({error}); Python found {found} under that name: "
            "if that is yours, rename it or start elsewhere, else reinstall the library"
        ) from error
    config.HF_UPDATE_DOWNLOAD_COUNTS = False  # else even a file on this disk is announced to the hub
    return load_dataset
