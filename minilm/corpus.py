"""How does text become numbers to train on?

Every distinct character gets a number, its rank by code point. The text becomes one long row
of numbers; its end is kept to validate on. A training example is a window of the row and the
same window one character later.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from minilm.config import CorpusConfig
from minilm.errors import UserError
from minilm.riverbank import Riverbank
from minilm.sources import Source, open_source

PIECE = 1 << 20  # tokens handled at a time where a whole corpus of int64 would be too much
CONTROL_NAMES = {"\n": "newline", "\r": "carriage return", "\t": "tab"}


def code_points(text: str) -> np.ndarray:
    """One uint32 per character."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


@dataclass(frozen=True)
class Vocabulary:
    """The characters a model knows, sorted; a character's number is its place."""

    characters: str

    def __len__(self) -> int:
        return len(self.characters)

    @cached_property
    def _table(self) -> np.ndarray:
        """The number of every code point up to the largest known one, -1 for the unknown and for the one after."""
        known = code_points(self.characters)
        table = np.full(int(known.max(initial=0)) + 2, -1, np.int32)
        table[known] = np.arange(len(known))
        return table

    def numbers(self, text: str, what: str) -> np.ndarray:
        """`encode`, as int32."""
        numbers = self._table[np.minimum(code_points(text), len(self._table) - 1)]
        if numbers.min(initial=0) < 0:
            raise UserError(self._explain_unknown(text, np.flatnonzero(numbers < 0), what))
        return numbers

    def encode(self, text: str, *, what: str = "text") -> Tensor:
        """The number of each character, as int64: T characters -> (T,).

        Raises:
            UserError: a character is not known; `what` says what the text is, such as "prompt".
        """
        return torch.from_numpy(self.numbers(text, what).astype(np.int64))

    def decode(self, numbers: Tensor | Sequence[int]) -> str:
        """The text that the numbers stand for."""
        places = torch.as_tensor(numbers, dtype=torch.int64).cpu().numpy()
        return code_points(self.characters)[places].tobytes().decode("utf-32-le", "surrogatepass")

    def _explain_unknown(self, text: str, places: np.ndarray, what: str) -> str:
        """One line on the distinct unknown characters of `text`, each with its first place."""
        _, first = np.unique(code_points(text)[places], return_index=True)
        names = [f"{describe(text[place])} at position {place}" for place in np.sort(places[first])]
        message = f"{what}: the model has never seen {some(names)} (counting from 0)"
        for form in ("NFC", "NFD"):
            # The same letters can be spelled by other code points, which look alike.
            if set(unicodedata.normalize(form, text)) <= set(self.characters):
                message += f"; in Unicode form {form} every character of it is known"
        return message


def describe(character: str) -> str:
    """A character for people: itself where it can be seen, its code point, its name."""
    code = f"U+{ord(character):04X}"
    if 0xDC80 <= ord(character) <= 0xDCFF:  # how Python passes on a byte of a command line that is not UTF-8
        return f"byte 0x{ord(character) - 0xDC00:02X} ({code}, not UTF-8)"
    seen = repr(character) if unicodedata.combining(character) == 0 else ascii(character)
    name = unicodedata.name(character, CONTROL_NAMES.get(character, "no name"))
    return f"{seen} ({code}, {name})"


def some(names: Sequence[str], most: int = 5) -> str:
    """A list for people, cut where it gets long."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text as numbers, in two parts."""

    vocabulary: Vocabulary
    train: Tensor  # (N,) uint8, int16 or int32, the smallest that holds V - 1
    validation: Tensor  # (M,) likewise
    description: str
    sha256: str  # of the text as UTF-8
    language: Riverbank | None  # whose truth is known, if it is
    notes: tuple[str, ...]  # what is worth knowing before a long run


def load_corpus(config: CorpusConfig, *, context: int, seed: int) -> Corpus:
    """Read the text, number its characters, split it, and check that it can be trained on.

    Raises:
        UserError: all that is wrong with it.
    """
    source = open_source(config, seed)
    vocabulary, tokens, sha256 = number_text(source)
    split = len(tokens) - round(len(tokens) * config.validation_fraction)
    train, validation = tokens[:split], tokens[split:]
    check(source.name, vocabulary, {"train": train, "validation": validation}, context, config.validation_fraction)
    untrained = vocabulary.decode((counts(train, len(vocabulary)) == 0).nonzero().flatten())
    names = some([describe(character) for character in untrained])
    notes = (f"never trained on, since only in the validation part: {names}",) if untrained else ()
    description = f"{source.name}, {len(tokens):,} characters"
    return Corpus(vocabulary, train, validation, description, sha256, source.language, notes)


def number_text(source: Source) -> tuple[Vocabulary, Tensor, str]:
    """The vocabulary of the whole text, the text as numbers (N,), and the hash of the text.

    The text is kept as UTF-8 until its vocabulary is known, since a `str` takes four bytes for
    every character as soon as one is an emoji; each piece is let go when it is numbered.
    """
    seen = np.zeros(0x110000, dtype=bool)
    digest = hashlib.sha256()
    pieces: list[bytes] = []
    length = 0
    for piece in source.pieces:
        seen[code_points(piece)] = True
        pieces.append(piece.encode())
        digest.update(pieces[-1])
        length += len(piece)
    vocabulary = Vocabulary("".join(map(chr, np.flatnonzero(seen))))
    fitting = next(kind for kind in (np.uint8, np.int16, np.int32) if len(vocabulary) - 1 <= np.iinfo(kind).max)
    tokens = np.empty(length, fitting)
    while pieces:  # from the end, where memory that is let go can go back to the system
        numbers = vocabulary.numbers(pieces.pop().decode(), source.name)
        length -= len(numbers)
        tokens[length : length + len(numbers)] = numbers
    return vocabulary, torch.from_numpy(tokens), digest.hexdigest()


def check(name: str, vocabulary: Vocabulary, parts: dict[str, Tensor], context: int, fraction: float) -> None:
    """Refuse, all at once, what would only fail or teach nothing later."""
    if len(vocabulary) == 0:
        raise UserError(f"{name}: holds no text")
    problems = []
    if len(vocabulary) == 1:
        problems.append(f"the whole text is made of {describe(vocabulary.characters)}: there is nothing to learn")
    least = context + 1
    needed = math.ceil(least / min(fraction, 1 - fraction))
    for part, tokens in parts.items():
        if len(tokens) < least:
            problems.append(
                f"the {part} part has {len(tokens)} characters, fewer than one window (the context, {context}, "
                f"and one to predict): give a longer text (about {needed} characters), a smaller "
                f"--model.context, or another --corpus.validation-fraction (now {fraction:g})"
            )
    if problems:
        raise UserError("\n".join(f"{name}: {problem}" for problem in problems))


def batch(tokens: Tensor, *, context: int, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Windows from random places, and the same one character later: (N,) -> (B, T), (B, T) int64.

    Every place from 0 to N - T - 1 is as likely: the last window's last target is the last token.
    """
    windows = tokens.unfold(0, context + 1, 1)  # (N - T, T + 1), a view
    places = torch.randint(len(windows), (batch_size,), generator=generator)
    chosen = windows[places.to(tokens.device)].long()  # (B, T + 1)
    return chosen[:, :-1], chosen[:, 1:]


def evaluation_windows(tokens: Tensor, *, context: int, max_characters: int) -> tuple[Tensor, Tensor]:
    """The same windows each time, side by side from the start: (N,) -> (n, T), (n, T) int64.

    Every target is scored once. What is left over at the end, less than a window, is not
    scored; nor is what lies past `max_characters`, but one window there always is.
    """
    windows = tokens.unfold(0, context + 1, context)[: max(1, max_characters // context)].long()  # (n, T + 1)
    return windows[:, :-1], windows[:, 1:]


def counts(tokens: Tensor, size: int) -> Tensor:
    """How often each number occurs: (N,) -> (V,)."""
    return torch.stack([torch.bincount(piece, minlength=size) for piece in tokens.split(PIECE)]).sum(0)


def pair_counts(tokens: Tensor, size: int) -> sparse.csr_matrix:
    """How often each number follows each: (N,) -> (V, V), sparse since V may be large."""
    pairs = sparse.csr_matrix((size, size))
    for start in range(0, len(tokens) - 1, PIECE):
        piece = tokens[start : start + PIECE + 1].int().numpy()
        ones = np.ones(len(piece) - 1)
        pairs += sparse.csr_matrix((ones, (piece[:-1], piece[1:])), shape=(size, size))
    return pairs


def baselines(corpus: Corpus) -> dict[str, float]:
    """What models that need no training lose on the validation part, in nats per character.

    `uniform` gives every character the same chance; `unigram` its share of the training part,
    every count raised by one; `bigram` its share of what follows the character before, where
    every row starts with one sighting, divided as the unigram is.
    """
    size = len(corpus.vocabulary)
    unigram = counts(corpus.train, size).numpy() + 1.0
    unigram /= unigram.sum()
    seen = pair_counts(corpus.train, size)
    asked = pair_counts(corpus.validation, size).tocoo()
    followers = np.asarray(seen.sum(axis=1)).ravel()[asked.row]
    together = np.asarray(seen[asked.row, asked.col]).ravel()
    bigram = (together + unigram[asked.col]) / (followers + 1)
    share = asked.data / asked.data.sum()
    return {
        "uniform": math.log(size),
        "unigram": -float(share @ np.log(unigram[asked.col])),
        "bigram": -float(share @ np.log(bigram)),
    }
