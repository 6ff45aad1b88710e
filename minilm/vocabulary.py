"""What are the pieces that a text is cut into?

Characters, each of which stands for itself. Or bytes, of which any text is made. Or byte pairs
(Sennrich et al. 2016): bytes joined, again and again, to the pair that is most frequent, so
that a piece holds more text and a window reaches further. Whatever the pieces, each has a
number, and numbers are all that a model sees.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from minilm.errors import UserError

CONTROL_NAMES = {"\n": "newline", "\r": "carriage return", "\t": "tab"}
PIECE = 1 << 16  # characters handed to the tokenizer at a time


def code_points(text: str) -> np.ndarray:
    """One uint32 per character."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


@dataclass(frozen=True)
class Vocabulary:
    """The characters a model knows, sorted; a character's number is its place."""

    characters: str
    unit: ClassVar = "char"
    noun: ClassVar = "character"

    @property
    def definition(self) -> str:
        """All that has to be kept to make it again."""
        return self.characters

    @property
    def start(self) -> str:
        """What an empty prompt stands for: a new line, or the first character known where none is."""
        return "\n" if "\n" in self.characters else self.characters[0]

    @cached_property
    def sizes(self) -> Tensor:
        """How many bytes each character has in UTF-8: (V,)."""
        return torch.tensor([len(character.encode("utf-8", "surrogatepass")) for character in self.characters])

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

    def names(self, numbers: Tensor) -> list[str]:
        """What each number stands for alone."""
        return list(self.decode(numbers))

    def stream(self, numbers: Iterable[int]) -> Iterator[str]:
        """The text of numbers that come one by one, as early as it is certain."""
        return (self.characters[number] for number in numbers)

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


@dataclass(frozen=True)
class Pieces:
    """Bytes, or pieces of several bytes: a vocabulary that no text is strange to.

    Args:
        definition: of byte pairs, the JSON of a `tokenizers.Tokenizer` that works on bytes; of bytes nothing.
    """

    definition: str = ""

    @property
    def unit(self) -> str:
        return "bpe" if self.definition else "byte"

    @property
    def noun(self) -> str:
        return "token" if self.definition else "byte"

    start: ClassVar = "\n"

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes that each number stands for."""
        if not self.definition:
            return [bytes([byte]) for byte in range(256)]
        numbers = self._tokenizer.get_vocab(with_added_tokens=True)
        of_sign = {sign: bytes([byte]) for byte, sign in enumerate(byte_signs())}
        by_number = {n: b"".join(of_sign.get(c, c.encode()) for c in name) for name, n in numbers.items()}
        return [by_number.get(number, b"") for number in range(max(by_number) + 1)]

    @cached_property
    def sizes(self) -> Tensor:
        """How many bytes each piece has: (V,)."""
        return torch.tensor([len(piece) for piece in self.pieces])

    @cached_property
    def _tokenizer(self) -> Any:
        return import_tokenizers().Tokenizer.from_str(self.definition)

    def numbers(self, text: str, what: str) -> np.ndarray:
        """`encode`, as int32."""
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{what}: {describe(text[error.start])} at position {error.start} is no text") from None
        if not self.definition:
            return np.frombuffer(data, np.uint8).astype(np.int32)
        parts = (self._tokenizer.encode(part, add_special_tokens=False).ids for part in at_words(text, PIECE))
        return np.concatenate([np.zeros(0, np.int32), *(np.array(part, np.int32) for part in parts)])

    def encode(self, text: str, *, what: str = "text") -> Tensor:
        """The number of each piece, as int64: (T,)."""
        return torch.from_numpy(self.numbers(text, what).astype(np.int64))

    def decode(self, numbers: Tensor | Sequence[int]) -> str:
        """The text that the numbers stand for; bytes that make no character become U+FFFD."""
        places = torch.as_tensor(numbers, dtype=torch.int64).tolist()
        return b"".join(self.pieces[place] for place in places).decode("utf-8", "replace")

    def names(self, numbers: Tensor) -> list[str]:
        """What each number stands for alone."""
        return [self.decode([number]) for number in numbers.tolist()]

    def stream(self, numbers: Iterable[int]) -> Iterator[str]:
        """The text of numbers that come one by one, as early as it is certain."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for number in numbers:
            yield decoder.decode(self.pieces[number])
        yield decoder.decode(b"", final=True)


Units = Vocabulary | Pieces


def read_units(unit: str, definition: str, where: Path) -> Units:
    """The vocabulary that was kept as `definition` in the checkpoint `where`."""
    units = Vocabulary(definition) if unit == "char" else Pieces(definition)
    try:
        len(units)
    except UserError:
        raise
    except Exception as error:  # the library raises nothing finer
        raise UserError(f"{where / 'state.json'}: its vocabulary cannot be read: {error}") from None
    return units


def learn_pairs(texts: Iterable[str], size: int) -> Pieces:
    """Byte pairs of a text: at most `size` pieces, the first of which are the 256 bytes."""
    tokenizers = import_tokenizers()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    # As GPT-2 does: no pair reaches over the end of a word, and a space belongs to the word after it.
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, initial_alphabet=byte_signs(), show_progress=False)
    tokenizer.train_from_iterator((part for text in texts for part in at_words(text, PIECE)), trainer)
    return Pieces(tokenizer.to_str())


def at_words(text: str, length: int) -> Iterator[str]:
    """Parts of about `length`, cut before white space after a word, where no piece can reach over the cut."""
    start = 0
    while start < len(text):
        cut = re.compile(r"(?<=\S)[ \n]").search(text, start + length)
        end = cut.start() if cut else len(text)
        yield text[start:end]
        start = end


def byte_signs() -> list[str]:
    """The visible character by which GPT-2's tokenizer writes each byte."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte if byte in visible else 256 + hidden.index(byte)) for byte in range(256)]


def import_tokenizers() -> Any:
    """The library, or a UserError that says how to get it."""
    try:
        import tokenizers
    except ImportError:
        raise UserError("byte pairs are made by the library `tokenizers`: pip install tokenizers") from None
    return tokenizers
