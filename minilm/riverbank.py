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
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minilm.errors import UserError
from minilm.paths import packaged
from minilm.settings import read_toml
from minilm.streams import stream_seed

PLACEHOLDER = re.compile(r"\{([a-z_]+?)(\d*)\}")
ANSWER = re.compile(r"<([^<>]+)>")
MARKS = re.compile(r"[<>{}\n]")  # what words and filler cannot hold
KINDS = {"facet": (str, "a name in quotes"), "weight": (int, "a whole number"), "texts": (list, "a list of texts")}
NO_FACET = -1


class Score(NamedTuple):
    """What is known of a text, one number per character."""

    nats: np.ndarray  # float64: -log p(character | sentence so far); NaN where not known
    facets: np.ndarray  # int8: index into Riverbank.facets, or NO_FACET


class Riverbank:
    """The language: all its sentences with their exact probabilities.

    Args:
        templates: (facet, weight, sentences) for each template, answers still in "<...>";
            weights are whole numbers, sentences of one template are equally likely, none is there twice.
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
                before = [len(re.sub("[<>]", "", mark[: m.start()])) for m in re.finditer("<", mark)]
                self._answers[sentence] = (before, self.facets.index(facet))
                for end in range(len(sentence) + 1):
                    self._mass[sentence[:end]] += share
        self._scores = {sentence: self._walk(sentence) for sentence in self._answers}

    @classmethod
    def load(cls, path: str | Path | None = None, gap: int = 0) -> Riverbank:
        """Read a language from TOML (the packaged one by default), with `gap` characters of filler."""
        file = Path(path) if path else packaged("data/riverbank.toml")
        return cls(expand_templates(read_toml(file), gap, str(file)))

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


def expand_templates(source: dict[str, Any], gap: int, file: str) -> list[tuple[str, int, list[str]]]:
    """Every template with all its sentences written out; a UserError lists all that is wrong."""
    problems = [f"{key}: no such key" for key in sorted(source.keys() - {"filler", "words", "template"})]
    problems += wrong_words(source, gap)
    templates = source.get("template")
    if not (templates and isinstance(templates, list) and all(isinstance(template, dict) for template in templates)):
        problems.append("has no [[template]]")
        templates = []
    names = {"gap", *(source["words"] if isinstance(source.get("words"), dict) else ())}
    for number, template in enumerate(templates, start=1):
        problems += [f"template {number}: {problem}" for problem in wrong_template(template, names)]
    refuse(problems, file)
    words = {**source.get("words", {}), "gap": [filler_of(source.get("filler", ""), gap)]}
    expanded = []
    for number, template in enumerate(templates, start=1):
        made = [expand_text(text, words) for text in template["texts"]]
        short = [text for text, sentences in zip(template["texts"], made, strict=True) if not sentences]
        problems += [f"template {number}: {text!r}: a list has fewer words than this wants of it" for text in short]
        expanded.append((template["facet"], template["weight"], list(itertools.chain(*made))))
    ways = Counter(ANSWER.sub(r"\1", sentence) for _, _, sentences in expanded for sentence in sentences)
    problems += [f"{sentence!r} can be made in {n} ways" for sentence, n in ways.items() if n > 1]
    refuse(problems, file)
    return expanded


def refuse(problems: list[str], file: str) -> None:
    """Raise a UserError if there are any."""
    if problems:
        raise UserError("\n".join(f"{file}: {problem}" for problem in problems))


def wrong_words(source: dict[str, Any], gap: int) -> list[str]:
    """All that is wrong with the lists of words and with the filler."""
    problems = []
    words, filler = source.get("words", {}), source.get("filler", "")
    if not isinstance(filler, str) or MARKS.search(filler):
        problems.append("filler: wanted a text in quotes, without < > { } and line breaks")
    elif gap and not filler:
        problems.append("filler: there is none to fill the gap that was asked for")
    if not isinstance(words, dict):
        return [*problems, "words: wanted a table of lists"]
    for name, items in words.items():
        if name == "gap":
            problems.append("words.gap: this is how the filler is called")
        elif not is_texts(items) or any(map(MARKS.search, items)):
            problems.append(f"words.{name}: wanted a list of words in quotes, without < > {{ }} and line breaks")
        elif len({item[0] for item in items}) < len(items):
            problems.append(f"words.{name}: two words start with the same letter")
    return problems


def wrong_template(template: dict[str, Any], names: set[str]) -> list[str]:
    """All that is wrong with one template, where there are lists of words called `names`."""
    problems = [f"{key}: no such key" for key in sorted(template.keys() - KINDS.keys())]
    for key, (kind, wanted) in KINDS.items():
        if type(template.get(key)) is not kind:
            problems.append(f"{key}: wanted {wanted}" + (f", not {template[key]!r}" if key in template else ""))
        elif kind is int and not 0 < template[key] <= 1_000_000:
            problems.append(f"{key}: wanted 1 to 1,000,000, not {template[key]}")
        elif kind is list and not is_texts(template[key]):
            problems.append(f"{key}: wanted one or more, each a text in quotes")
    for text in template["texts"] if is_texts(template.get("texts")) else []:
        unknown = {name for name, _ in PLACEHOLDER.findall(text)} - names
        if unknown:
            problems.append(f"{text!r}: no list of words is called {', '.join(sorted(unknown))}")
        plain, n_answers = ANSWER.subn("", PLACEHOLDER.sub("word", text))
        if not n_answers or MARKS.search(plain):
            problems.append(f"{text!r}: wanted a line with answers marked as <...> and words named as {{name1}}")
    return problems


def is_texts(items: Any) -> bool:
    """Whether this is a list of one text or more, none empty."""
    return isinstance(items, list) and bool(items) and all(isinstance(item, str) and item for item in items)


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
    return (filler * (length // max(1, len(filler)) + 1))[:length]
