"""What would a perfect model of the text score?

For most text nobody knows. Riverbank is a toy language for which it is known: its sentences
are independent, finitely many, and drawn with known weights, so the exact probability of
every next character follows from a trie of all sentences. The mean of -log p is the floor,
under which no honest model can get; what a model loses above it is its excess. Characters
that answer a sentence's question carry a facet, so that excess can be had per question too.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minilm.errors import UserError
from minilm.paths import packaged
from minilm.streams import stream_seed

PLACEHOLDER = re.compile(r"\{([a-z_]+?)(\d*)\}")
NO_FACET = -1


class Score(NamedTuple):
    """What is known of a text, one number per character."""

    nats: np.ndarray  # float64: -log p(character | sentence so far); NaN where not known
    facets: np.ndarray  # int8: index into Riverbank.facets, or NO_FACET


class Riverbank:
    """The language: all its sentences with their exact probabilities.

    Args:
        templates: (facet, weight, sentences) for each template, answers still in "<...>";
            weights are whole numbers, sentences of one template are equally likely.
    """

    def __init__(self, templates: list[tuple[str, int, list[str]]]) -> None:
        self.facets = tuple(dict.fromkeys(facet for facet, _, _ in templates))
        self._weights = np.cumsum([weight for _, weight, _ in templates], dtype=np.uint64)
        self._sentences = [[re.sub("[<>]", "", s) + "\n" for s in sentences] for _, _, sentences in templates]
        self._mass: defaultdict[str, float] = defaultdict(float)  # prefix -> probability: the trie
        self._answers: dict[str, tuple[list[int], int]] = {}  # sentence -> places of its answers, facet
        for (facet, weight, marked), plain in zip(templates, self._sentences, strict=True):
            share = weight / int(self._weights[-1]) / len(plain)
            for mark, sentence in zip(marked, plain, strict=True):
                if sentence in self._answers:
                    raise UserError(f"riverbank: two templates make the sentence {sentence.strip()!r}")
                before = [len(re.sub("[<>]", "", mark[: m.start()])) for m in re.finditer("<", mark)]
                self._answers[sentence] = (before, self.facets.index(facet))
                for end in range(len(sentence) + 1):
                    self._mass[sentence[:end]] += share
        self._scores = {sentence: self._walk(sentence) for sentence in self._answers}

    @classmethod
    def load(cls, path: str | Path | None = None, gap: int = 0) -> Riverbank:
        """Read a language from TOML (the packaged one by default), with `gap` characters of filler."""
        file = Path(path) if path else packaged("data/riverbank.toml")
        try:
            source = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UserError(f"{file}: cannot be read as a language: {error}") from error
        return cls(expand_templates(source, gap, str(file)))

    def __contains__(self, sentence: str) -> bool:
        """Whether the language has this sentence (written without its newline)."""
        return sentence + "\n" in self._answers

    @property
    def sentences(self) -> list[str]:
        """Every sentence, without its newline."""
        return [sentence[:-1] for sentence in self._answers]

    @property
    def entropy(self) -> float:
        """The floor: mean -log p in nats per character of endless text."""
        nats = sum(self._mass[s] * score.nats.sum() for s, score in self._scores.items())
        return nats / sum(self._mass[s] * len(s) for s in self._scores)

    def generate(self, n_characters: int, seed: int) -> str:
        """Whole sentences, at least `n_characters` of them together; the same for a seed everywhere."""
        # Raw 64-bit draws, since only they are promised to stay the same in every NumPy.
        bits = np.random.PCG64(stream_seed(seed, "riverbank"))
        pieces: list[str] = []
        length = 0
        while length < n_characters:
            draws = bits.random_raw(2 * 1024).reshape(2, -1)
            templates = np.searchsorted(self._weights, draws[0] % self._weights[-1], side="right")
            for template, draw in zip(templates.tolist(), draws[1].tolist(), strict=True):
                sentences = self._sentences[template]
                pieces.append(sentences[draw % len(sentences)])
                length += len(pieces[-1])
                if length >= n_characters:
                    break
        return "".join(pieces)

    def score(self, text: str) -> Score:
        """Exact -log p and facet of every character of `text`, which starts at a sentence's start.

        A character that the language does not allow has -log p of infinity, and the rest of
        its line NaN, since nothing is known after it.
        """
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)
        scores = [self._scores.get(line) or self._walk(line) for line in lines]
        if not scores:
            return Score(np.empty(0), np.empty(0, np.int8))
        return Score(*(np.concatenate(part) for part in zip(*scores, strict=True)))

    def score_window(self, text: str) -> Score:
        """Like `score` for a window cut out anywhere: NaN up to its first newline."""
        start = text.find("\n") + 1 or len(text)
        known = self.score(text[start:])
        return Score(
            np.concatenate([np.full(start, np.nan), known.nats]),
            np.concatenate([np.full(start, NO_FACET, np.int8), known.facets]),
        )

    def _walk(self, line: str) -> Score:
        nats = np.full(len(line), np.nan)
        facets = np.full(len(line), NO_FACET, np.int8)
        for i in range(len(line)):
            if line[: i + 1] not in self._mass:
                nats[i] = math.inf
                return Score(nats, facets)
            nats[i] = math.log(self._mass[line[:i]] / self._mass[line[: i + 1]])
        # A line that is cut off has the answers of any sentence that it begins.
        places, facet = self._answers.get(line) or next(
            answers for sentence, answers in self._answers.items() if sentence.startswith(line)
        )
        facets[[place for place in places if place < len(line)]] = facet
        return Score(nats, facets)


def expand_templates(source: dict, gap: int, file: str) -> list[tuple[str, int, list[str]]]:
    """Every template with all its sentences written out; a UserError lists all that is wrong."""
    problems: list[str] = []
    words = {**source.get("words", {}), "gap": [filler_of(source.get("filler", ""), gap)]}
    for name, items in words.items():
        if len({item[:1] for item in items}) < len(items):
            problems.append(f"words.{name}: two words start with the same letter")
    expanded = []
    for number, template in enumerate(source.get("template", []), start=1):
        where = f"template {number}"
        missing = {"facet", "weight", "texts"} - template.keys()
        if missing:
            problems.append(f"{where}: has no {', '.join(sorted(missing))}")
            continue
        if not isinstance(template["weight"], int) or template["weight"] < 1:
            problems.append(f"{where}: weight is {template['weight']!r}, wanted a whole number from 1")
        sentences: list[str] = []
        for text in template["texts"]:
            unknown = {name for name, _ in PLACEHOLDER.findall(text)} - words.keys()
            if unknown:
                problems.append(f"{where}: no list of words is called {', '.join(sorted(unknown))}")
            elif not re.fullmatch("([^<>]*<[^<>]+>)+[^<>]*", text):
                problems.append(f"{where}: {text!r} does not mark its answers with <...>")
            else:
                sentences += expand_text(text, words)
        expanded.append((template["facet"], template["weight"], sentences))
    if not expanded:
        problems.append("has no [[template]]")
    if problems:
        raise UserError("\n".join(f"{file}: {problem}" for problem in problems))
    return expanded


def expand_text(text: str, words: dict[str, list[str]]) -> list[str]:
    """All sentences of one text; placeholders of one list with different digits get different words."""
    slots = list(dict.fromkeys(PLACEHOLDER.findall(text)))
    sentences = []
    for chosen in itertools.product(*(words[name] for name, _ in slots)):
        taken = {(name, word) for (name, _), word in zip(slots, chosen, strict=True)}
        if len(taken) == len(slots):
            filled = text
            for (name, digit), word in zip(slots, chosen, strict=True):
                filled = filled.replace(f"{{{name}{digit}}}", word)
            sentences.append(filled)
    return sentences


def filler_of(filler: str, length: int) -> str:
    """`filler` repeated and cut to `length` characters."""
    if length and not filler:
        raise UserError("riverbank: a gap was asked for, and the language has no filler")
    return (filler * (length // max(1, len(filler)) + 1))[:length]
