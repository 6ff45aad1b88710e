"""Which runs are compared with which?

An arm is a settings file that changes one value of another, its control. What it is expected to
show stands in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from minilm.cli import lay_over, read_over
from minilm.config import Claim, Config, CorpusConfig
from minilm.corpus import Corpus, load_corpus
from minilm.errors import UserError
from minilm.lab.figures import facet_of, problem_with
from minilm.paths import packaged

ROOT = "base"  # the control of whoever names none
# Base, the four pieces that a transformer cannot do without, and two of them once more in a model of one
# layer, where no other layer can make up for what is missing.
ONE_LAYER = ("one_layer", "one_layer_no_position", "one_layer_no_mlp")
DEFAULT = ("base", "no_scale", "no_mask", "no_position", "no_mlp", *ONE_LAYER)


@dataclass(frozen=True)
class Arm:
    """One settings file of the experiment."""

    name: str
    config: Config
    control: str | None  # None for the root, which is compared with nothing

    @property
    def claims(self) -> tuple[Claim, ...]:
        return self.config.expect.claims if self.config.expect else ()


def default_files() -> list[Path]:
    """What is run when no file is named."""
    return [packaged(f"configs/{name}.toml") for name in DEFAULT]


def read_arms(files: list[Path], flags: dict[str, Any]) -> list[Arm]:
    """The arms of `files`, each with `flags` laid over it, or a UserError with all that does not fit."""
    arms = []
    for file in files:
        config = lay_over(*read_over(file, packaged("configs/base.toml")), flags)
        arms.append(Arm(file.stem, config, config.control or (None if file.stem == ROOT else ROOT)))
    problems = check(arms)
    if problems:
        raise UserError("\n".join(problems))
    return arms


def check(arms: list[Arm]) -> list[str]:
    """What keeps the arms from being compared."""
    names = [arm.name for arm in arms]
    problems = [f"{name}: named {names.count(name)} times" for name in dict.fromkeys(names) if names.count(name) > 1]
    for arm in arms:
        found = [problem_with(claim.figure) for claim in arm.claims]
        if arm.control == arm.name:
            found.append("is its own control")
        elif arm.control is not None and arm.control not in names:
            found.append(f"its control, {arm.control}, is not among {', '.join(names)}: add {arm.control}.toml")
        elif arm.control is not None:
            found += not_comparable(arm, arms[names.index(arm.control)])
        problems += [f"{arm.name}: {problem}" for problem in found if problem]
    return problems


def not_comparable(arm: Arm, control: Arm) -> list[str]:
    """Differences from the control that leave no batch to share."""
    return [
        f"{change}, against its control {control.name}: the two must see the same windows of the same text"
        for change in changes(arm.config, control.config)
        if change.setting == "model.context" or change.setting.startswith("corpus.")
    ]


def read_texts(arms: list[Arm]) -> dict[CorpusConfig, Corpus]:
    """The text of every arm, each read once; a UserError if a claim is about a facet that its language has not."""
    texts: dict[CorpusConfig, Corpus] = {}
    problems = []
    for arm in arms:
        config = arm.config
        if config.corpus not in texts:
            texts[config.corpus] = load_corpus(config.corpus, context=config.model.context, seed=config.training.seed)
        language = texts[config.corpus].language
        asked = [facet for claim in arm.claims if (facet := facet_of(claim.figure))]
        problems += [
            f"{arm.name}: expect.claims: the language has no facet {facet}; it has {', '.join(language.facets)}"
            for facet in asked
            if language is not None and facet not in language.facets
        ]
    if problems:
        raise UserError("\n".join(problems))
    return texts


class Change(NamedTuple):
    """A setting in which an arm differs from its control."""

    setting: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.setting} {spoken(self.before)} -> {spoken(self.now)}"


def spoken(value: Any) -> str:
    """A value as it is written in a settings file, but without quotes."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def changes(arm: Config, control: Config) -> list[Change]:
    """All settings in which two runs differ."""
    ours, theirs = arm.model_dump(), control.model_dump()
    return [
        Change(f"{table}.{key}", theirs[table][key], value)
        for table, values in ours.items()
        for key, value in values.items()
        if value != theirs[table][key]
    ]
