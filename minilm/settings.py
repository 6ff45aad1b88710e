"""How do settings files, which stand on one another, become one set of settings?

A TOML file holds what differs from its `base`, which is another file, looked for beside it and
then among those that come with us. One without a base stands on what its command would use without
it. Files lie under a command line's flags (see cli.py). Every way of going wrong is collected and
told at once, with the file or flag and the key.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import ValidationError

from minilm.config import Config, Settings
from minilm.errors import UserError
from minilm.paths import shipped

WHAT_FOR = ("control", "expect")
Origins = dict[tuple[str, ...], str]


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of one file, or a UserError that says why it cannot be read."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        ours = f"configs/{path.name}"
        advice = f"; did you mean {ours}, which comes with minilm?" if shipped(ours) else ""
        raise UserError(f"{path}: there is no such file{advice}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:  # not all of ValueError is TOMLDecodeError: a number of 5000 digits
        raise UserError(f"{path}: not TOML: {error or 'nested too deep'}") from None


def merge(low: dict[str, Any], high: dict[str, Any]) -> dict[str, Any]:
    """`high` over `low`, table by table."""
    both = {key: merge(low[key], high[key]) for key in low.keys() & high.keys() if is_tables(low[key], high[key])}
    return {**low, **high, **both}


def is_tables(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


def leaves(tables: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of every value; what stands in a table of a table counts as one, since no setting is there."""
    found: list[tuple[str, ...]] = []
    for key, value in tables.items():
        is_table = isinstance(value, dict) and not prefix
        found += leaves(value, (key,)) if is_table else [(*prefix, key)]
    return found


def find(name: str | Path, folder: Path) -> Path:
    """The file `name` seen from `folder`; the settings that come with us have their name in any folder."""
    ours = shipped(str(name))
    return ours if ours and not (folder / name).exists() else folder / name


Layers = tuple[dict[str, Any], Origins]  # tables, and which file each of their values came from


def read_layers(path: Path, above: tuple[Path, ...] = ()) -> Layers:
    """A file merged over its chain of bases, and which file each value came from."""
    try:
        resolved = path.resolve()
    except (ValueError, OSError) as error:  # such as a NUL in it
        raise UserError(f"{str(path)!r}: is no name of a file: {error}") from None
    if resolved in above:
        chain = " -> ".join(str(p) for p in (*above, resolved))
        raise UserError(f"{path}: base leads in a circle: {chain}")
    path = find(path, Path())
    own = read_toml(path)
    base = own.pop("base", None)
    origins = dict.fromkeys(leaves(own), str(path))
    if base is None:
        return own, origins
    if not isinstance(base, str):
        raise UserError(f"{path}: base is {shown(base)}, wanted the name of a file in quotes")
    return stacked(read_layers(find(base, path.parent), (*above, resolved)), (own, origins))


def stacked(low: Layers, high: Layers) -> Layers:
    """`high` over `low`, without what `low` is run for."""
    below = {name: table for name, table in low[0].items() if name not in WHAT_FOR}
    return merge(below, high[0]), {**{key: file for key, file in low[1].items() if key[0] in below}, **high[1]}


def validate(tables: dict[str, Any], origins: Origins, source: str = "settings") -> Config:
    """The config that `tables` describe, or one UserError with every problem."""
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        problems = [describe(problem, origins, source) for problem in error.errors()]
        raise UserError("\n".join(problems)) from None


def describe(problem: Any, origins: Origins, source: str) -> str:
    """One line of advice for one problem that pydantic found."""
    where = tuple(str(part) for part in problem["loc"])
    parts = {key: origin for key, origin in origins.items() if key[: len(where)] == where[: len(key)]}
    # Of a whole table, only the settings that the reason speaks of have a part in it.
    spoken_of = {key: origin for key, origin in parts.items() if key[-1] in problem["msg"]}
    named = set((spoken_of if problem["type"] == "value_error" and spoken_of else parts).values())
    origin = ", ".join(sorted(named)) or source
    key = ".".join(where) or "settings"
    if problem["type"] == "extra_forbidden":
        near = nearest(where, all_keys())
        return f"{origin}: {key}: no such setting" + (f"; did you mean {'.'.join(near)}?" if near else "")
    if problem["type"] == "value_error":
        return f"{origin}: {key}: {problem['ctx']['error']}"
    message = problem["msg"].removeprefix("Input ").replace("should be", "must be")
    return f"{origin}: {key} = {shown(problem['input'])}: {message}"


def shown(value: Any, most: int = 200) -> str:
    """A value as it was given, cut where it gets long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= most else f"{text[:most]}..."


def nearest(where: tuple[str, ...], known: list[tuple[str, ...]]) -> tuple[str, ...] | None:
    """The known path that was most likely meant: the same name elsewhere, else one spelled alike, here or elsewhere."""
    *table, name = (part.replace("-", "_") for part in where)
    siblings = {key[-1]: key for key in known if list(key[:-1]) == table}
    by_name = {key[-1]: key for key in known}
    by_initials = {"".join(word[0] for word in name.split("_")): key for name, key in by_name.items() if "_" in name}
    elsewhere = {**by_initials, **by_name}  # "lr" is meant for learning_rate
    for names, cutoff in ((elsewhere, 1.0), (siblings, 0.6), (elsewhere, 0.8)):
        for match in difflib.get_close_matches(name, names, n=1, cutoff=cutoff):
            return names[match]
    return None


def all_keys() -> list[tuple[str, ...]]:
    """The path of every table and value that there is."""
    keys: list[tuple[str, ...]] = []
    for name, table in Config.model_fields.items():
        keys.append((name,))
        for kind in (table.annotation, *get_args(table.annotation)):
            if isinstance(kind, type) and issubclass(kind, Settings):
                keys += [(name, key) for key in kind.model_fields]
    return keys


def load_config(path: str | Path) -> Config:
    """Read a TOML file with its bases."""
    tables, origins = read_layers(Path(path))
    return validate(tables, origins, str(path))


def to_toml(config: Config) -> str:
    """The resolved settings as TOML that `load_config` reads back."""
    return tomli_w.dumps(config.model_dump(exclude_none=True))
