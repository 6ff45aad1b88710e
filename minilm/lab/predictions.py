"""What is about to be taken out, what does it save, and what is expected to happen?"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

from minilm.config import Claim, Config, CorpusConfig
from minilm.corpus import Corpus
from minilm.lab.arms import Arm, changes
from minilm.lab.cost import parts, shape_in
from minilm.lab.figures import find
from minilm.runs import build_model

WIDTH = 110


def predictions(arms: Sequence[Arm], texts: Mapping[CorpusConfig, Corpus]) -> list[str]:
    """A paragraph for each arm that is compared with another."""
    by_name = {arm.name: arm for arm in arms}
    lines = []
    for arm in arms:
        if arm.control is not None:
            lines += paragraph(arm, by_name[arm.control], len(texts[arm.config.corpus].vocabulary))
    return lines


def paragraph(arm: Arm, control: Arm, vocabulary: int) -> list[str]:
    """All that is said of one arm beforehand."""
    own, full = size(arm.config, vocabulary), size(control.config, vocabulary)
    sizes = [loss(*three) for three in zip(own, full, ("parameters", "operations a window"), strict=True)]
    differences = ", ".join(map(str, changes(arm.config, control.config))) or "nothing"
    rows = [("changes", differences), ("loses", " and ".join(sizes))]
    if arm.config.expect:
        rows += [("formula", arm.config.expect.formula), ("symptom", arm.config.expect.symptom)]
        rows += [("expected", sentence(claim, control.name)) for claim in arm.claims]
    wrapped = [
        textwrap.fill(text, WIDTH, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12) for name, text in rows
    ]
    return [f"{arm.name}, against {control.name}", *wrapped, ""]


def loss(have: int, had: int, what: str) -> str:
    """How much less there is, or more."""
    if have == had:
        return f"no {what}"
    return f"{had - have:,} of {had:,} {what} ({1 - have / had:.1%})"


def sentence(claim: Claim, control: str) -> str:
    """A claim in words."""
    against = {"alone": "", "difference": f", minus {control}'s", "ratio": f", over {control}'s"}[claim.compare]
    return f"{find(claim.figure).words}{against}: {'above' if claim.above is not None else 'below'} {claim.bound:g}"


def size(config: Config, vocabulary: int) -> tuple[int, int]:
    """Parameters, and operations of a forward pass over one window (see cost.py)."""
    operations = 2 * sum(part.products for part in parts(replace(shape_in(config.model), vocabulary=vocabulary)))
    return sum(parameter.numel() for parameter in build_model(config, vocabulary).parameters()), operations
