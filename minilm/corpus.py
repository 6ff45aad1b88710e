"""How does text become numbers to train on?

Text is cut into pieces (vocabulary.py), each of which has a number: a character, unless asked
otherwise, by its rank by code point. The text becomes one long row of numbers; its end, or a
text of its own, is kept to validate on. A training example is a window of the row and the same
window one number later.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from minilm.config import CorpusConfig
from minilm.errors import UserError
from minilm.riverbank import Riverbank
from minilm.sources import Source, open_source, open_validation
from minilm.vocabulary import Pieces, Units, Vocabulary, code_points, describe, learn_pairs, some

PIECE = 1 << 17  # tokens handled at a time where a whole corpus of int64 would be too much


@dataclass
class Text:
    """A text that was read, in two parts.

    Kept as UTF-8, since a `str` takes four bytes for every character as soon as one is an emoji.
    """

    name: str
    train: list[bytes]
    validation: list[bytes]
    characters: int
    sha256: str  # of the text as UTF-8
    language: Riverbank | None = None
    notes: tuple[str, ...] = ()  # on where it comes from

    @property
    def carriage_returns(self) -> int:
        return sum(piece.count(b"\r") for piece in (*self.train, *self.validation))


def read_text(config: CorpusConfig, *, seed: int) -> Text:
    """The text, whole and in its two parts."""
    source = open_source(config, seed)
    digest = hashlib.sha256()
    train, length = read_pieces(source, digest)
    if config.validation:
        kept = open_validation(config)
        validation, more = read_pieces(kept, digest)
        notes = (*source.notes, *kept.notes)
        return Text(source.name, train, validation, length + more, digest.hexdigest(), notes=notes)
    split = length - round(length * config.validation_fraction)
    train, validation = cut(train, split)
    return Text(source.name, train, validation, length, digest.hexdigest(), source.language, source.notes)


def read_pieces(source: Source, digest: hashlib._Hash) -> tuple[list[bytes], int]:
    """All of a source as UTF-8, and how many characters it has."""
    pieces, length = [], 0
    for piece in source.pieces:
        pieces.append(piece.encode())
        digest.update(pieces[-1])
        length += len(piece)
    return pieces, length


def cut(pieces: list[bytes], place: int) -> tuple[list[bytes], list[bytes]]:
    """The pieces before and after the character number `place`."""
    for i, piece in enumerate(pieces):
        text = piece.decode()
        if place < len(text):
            return [*pieces[:i], text[:place].encode()], [text[place:].encode(), *pieces[i + 1 :]]
        place -= len(text)
    return pieces, []


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text as numbers, in two parts."""

    vocabulary: Units
    train: Tensor  # (N,) uint8, int16 or int32, the smallest that holds V - 1
    validation: Tensor  # (M,) likewise
    description: str
    sha256: str  # of the text as UTF-8
    language: Riverbank | None  # whose truth is known, if it is
    notes: tuple[str, ...]  # what is worth knowing before a long run

    def __repr__(self) -> str:
        return f"<corpus: {self.description}, {len(self.vocabulary)} different ones>"


def load_corpus(config: CorpusConfig, *, context: int, seed: int) -> Corpus:
    """Read the text, number its pieces, split it, and check that it can be trained on.

    Raises:
        UserError: all that is wrong with it.
    """
    return number_text(read_text(config, seed=seed), config, context=context)


def number_text(text: Text, config: CorpusConfig, *, context: int, vocabulary: Units | None = None) -> Corpus:
    """The text, which is used up, as a corpus; in the vocabulary given, or in its own."""
    vocabulary = vocabulary or make_vocabulary(text, config)
    notes = text.notes + notes_on_returns(text.carriage_returns)
    parts = {"validation": numbered(vocabulary, text.validation, text.name)}
    parts = {"train": numbered(vocabulary, text.train, text.name), **parts}
    check(text.name, vocabulary, parts, context, None if config.validation else config.validation_fraction)
    description = f"{text.name}, {text.characters:,} characters"
    if isinstance(vocabulary, Pieces):
        description += f" in {sum(map(len, parts.values())):,} {vocabulary.noun}s"
    notes += () if isinstance(vocabulary, Pieces) else notes_on(parts["train"], vocabulary)
    return Corpus(vocabulary, parts["train"], parts["validation"], description, text.sha256, text.language, notes)


def make_vocabulary(text: Text, config: CorpusConfig) -> Units:
    """Every character there is; or the 256 bytes; or byte pairs, learned on the training part alone."""
    if config.unit == "byte":
        return Pieces()
    if config.unit == "bpe":
        return learn_pairs([b"".join(text.train).decode()], config.vocabulary)
    seen = np.zeros(0x110000, dtype=bool)
    for piece in (*text.train, *text.validation):
        seen[code_points(piece.decode())] = True
    return Vocabulary("".join(map(chr, np.flatnonzero(seen))))


def numbered(vocabulary: Units, pieces: list[bytes], name: str) -> Tensor:
    """Text as numbers, in the smallest type that holds them: (N,). Each piece is let go when it is numbered."""
    if vocabulary.unit == "bpe":
        pieces[:] = [b"".join(pieces)]  # no pair may be cut in two
    fitting = next(kind for kind in (np.uint8, np.int16, np.int32) if len(vocabulary) - 1 <= np.iinfo(kind).max)
    found = [np.zeros(0, fitting)]
    pieces.reverse()  # memory that is let go at the end can go back to the system
    while pieces:
        found.append(vocabulary.numbers(pieces.pop().decode(), name).astype(fitting))
    return torch.from_numpy(np.concatenate(found))


def notes_on_returns(number: int) -> tuple[str, ...]:
    """On the line ends of Windows, which are kept as all else is."""
    return (
        f"{number:,} carriage returns (U+000D), as Windows ends its lines, are kept and learned like any character; "
        "to train without, save the text with line ends LF (dos2unix FILE)",
    ) * (number > 0)


def notes_on(train: Tensor, vocabulary: Vocabulary) -> tuple[str, ...]:
    """What is worth knowing before a long run."""
    untrained = vocabulary.decode((counts(train, len(vocabulary)) == 0).nonzero().flatten())
    names = some([describe(character) for character in untrained])
    return (f"never trained on, since only in the validation part: {names}",) if untrained else ()


def check(name: str, vocabulary: Units, parts: dict[str, Tensor], context: int, fraction: float | None) -> None:
    """Refuse, all at once, what would only fail or teach nothing later."""
    if not any(map(len, parts.values())):
        raise UserError(f"{name}: holds no text")
    problems = []
    if len(vocabulary) == 1:
        problems.append(f"the whole text is made of {describe(vocabulary.decode([0]))}: there is nothing to learn")
    least = context + 1
    for part, tokens in parts.items():
        if len(tokens) < least:
            problem = (
                f"the {part} part has {len(tokens)} {vocabulary.noun}s, fewer than one window (the context, {context}, "
                "and one to predict): give a longer text"
            )
            if fraction is None:
                problems.append(f"{problem} or a smaller --model.context")
            else:
                needed = math.ceil(least / min(fraction, 1 - fraction))
                problems.append(
                    f"{problem} (about {needed} {vocabulary.noun}s), a smaller --model.context, "
                    f"or another --corpus.validation-fraction (now {fraction:g})"
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
    """What models that need no training lose on the validation part, in nats for each number.

    `uniform` gives every one the same chance; `unigram` its share of the training part,
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
