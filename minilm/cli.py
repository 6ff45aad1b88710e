"""How do a file, some texts and some flags become one set of settings?

Every field of `Config` is a typed flag (`--model.n-layers 4`), made by tyro from the same
pydantic models that check the files. Flags lie over texts, texts over the TOML file, and the
whole is checked once, so that all problems are told together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from pydantic import BaseModel

from minilm.config import Config
from minilm.errors import UserError
from minilm.options import HELP, ask
from minilm.settings import Layers, Origins, leaves, merge, read_layers, stacked, validate

Options = TypeVar("Options")
SWITCH = {**dict.fromkeys(("true", "1", "yes", "on"), True), **dict.fromkeys(("false", "0", "no", "off"), False)}


def read_switch(words: list[str]) -> bool:
    """ "false" means false; a word that is neither is refused."""
    if words[0].lower() not in SWITCH:
        raise ValueError(f"{words[0]!r} is neither true nor false")
    return SWITCH[words[0].lower()]


Switch = Annotated[
    bool,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="{true,false}",
        instance_from_str=read_switch,
        is_instance=lambda value: isinstance(value, bool),
        str_from_instance=lambda value: [str(value).lower()],
    ),
    tyro.conf.FlagConversionOff,
]


def flags_of(settings: BaseModel, *, told: bool) -> Any:
    """A plain dataclass with the fields, types, help and values of `settings`, for tyro.

    Plain, because a pydantic model would check its ranges while tyro is still reading, and
    stop at the first table that has a problem.
    """
    fields: list[tuple[str, Any, Any]] = []
    for name, info in type(settings).model_fields.items():
        if info.exclude:
            continue
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            table = flags_of(value, told=told)
            fields.append((name, type(table), dataclasses.field(default=table)))
        else:
            kind: Any = Switch if info.annotation is bool else info.annotation
            metavar = "STR" if info.annotation == str | None else None
            hint = None if told and value not in (None, ()) else ""
            flag = Annotated[kind, tyro.conf.arg(help=info.description, metavar=metavar, help_behavior_hint=hint)]
            fields.append((name, flag, dataclasses.field(default=value)))
    twin = dataclasses.make_dataclass(type(settings).__name__, fields, frozen=True)
    twin.__doc__ = type(settings).__doc__
    return twin()


def parse(
    options: type[Options],
    argv: list[str],
    default: Callable[[tuple[str, ...]], Path],
    *,
    prog: str,
    description: str,
) -> tuple[Options, Config]:
    """Read a command line into the command's own options and the settings that it asks for.

    Args:
        options: a frozen dataclass of the flags that are not settings, among them `inputs`.
        default: the settings file to start from, given the inputs; what the one they name leaves out is its.
    """
    words = [word for word in argv if word not in HELP]
    read: Any
    read, flags = read_flags(options, words, prog=prog, description=description)
    tables, origins = gather(read.inputs, default(read.inputs))
    if len(words) < len(argv):
        show_help(options, validate(tables, origins), prog=prog, description=description)
    return read, lay_over(tables, origins, flags)


def read_flags(
    options: type[Options], words: list[str], *, prog: str, description: str
) -> tuple[Options, dict[str, Any]]:
    """The command's own options, and the tables of the settings that are given as flags."""
    strange = [word for word in words if word.encode(errors="ignore").decode() != word]
    if strange:
        raise UserError("\n".join(f"{word!a}: is not UTF-8, in which settings are kept" for word in strange))
    read = read_with(options, Config(), words, prog, description, told=False)
    flags: dict[str, Any] = {}
    for word in words:
        table, dot, key = word.removeprefix("--").partition("=")[0].replace("-", "_").partition(".")
        if dot and word.startswith("--"):
            flags = merge(flags, {table: {key: getattr(getattr(read, table), key)}})
    # What only one source has a use for tells that source.
    for key, source in (("path", "file"), ("name", "hub")):
        if key in flags.get("corpus", {}):
            flags["corpus"].setdefault("source", source)
    return read, flags


def lay_over(tables: dict[str, Any], origins: Origins, flags: dict[str, Any]) -> Config:
    """The settings of a file with those of a command line over them."""
    return validate(merge(tables, flags), origins | dict.fromkeys(leaves(flags), "command line"))


def show_help(options: type, config: Config, *, prog: str, description: str) -> None:
    """Print the help, with the values of `config` as defaults, and exit as tyro does."""
    read_with(options, config, ["--help"], prog, description)


def read_with(options: type, config: Config, argv: list[str], prog: str, description: str, *, told: bool = True) -> Any:
    """One pass of tyro over `argv`, with the values of `config` as defaults, which help and errors tell if asked."""
    tables = flags_of(config, told=told)
    fields = [(f.name, f.type, dataclasses.field(default=getattr(tables, f.name))) for f in dataclasses.fields(tables)]
    command = dataclasses.make_dataclass("Command", fields, bases=(options,), frozen=True)
    read: Any
    known = [(field.name,) for field in dataclasses.fields(options)] + leaves(config.model_dump())
    read, unknown = ask(command, argv, known, prog=prog, description=description)
    # What is left over are inputs that stand behind a flag.
    return dataclasses.replace(read, inputs=(*read.inputs, *unknown))


def gather(inputs: tuple[str, ...], default: Path) -> Layers:
    """The tables of the TOML file among `inputs` over those of `default`, and its texts as corpus."""
    files, texts = split_inputs(inputs)
    if len(files) > 1:
        raise UserError(f"one settings file at a time, not {', '.join(files)}; a file can name another as its base")
    for word in texts:
        if "=" in word and not Path(word).exists():
            raise UserError(f"{word}: there is no such file; flags start with two dashes, as in --{word}")
    tables, origins = read_over(Path(files[0]) if files else None, default, own_text=bool(texts))
    corpus = corpus_of(texts)
    return merge(tables, corpus), origins | dict.fromkeys(leaves(corpus), "command line")


def read_over(file: Path | None, default: Path, *, own_text: bool = False) -> Layers:
    """A settings file over `default`, which is what its command uses without one; but for its text, given another."""
    tables, origins = read_layers(default)
    low = {name: table for name, table in tables.items() if name != "corpus" or not own_text}, origins
    return stacked(low, read_layers(file)) if file else low


def split_inputs(inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The settings files among the words of a command line, and the texts."""
    files = [word for word in inputs if word.endswith(".toml")]
    return files, [word for word in inputs if not word.endswith(".toml")]


def corpus_of(texts: list[str]) -> dict[str, Any]:
    """The tables of settings that ask for these texts, if there are any."""
    return {"corpus": {"source": "file", "path": texts}} if texts else {}
