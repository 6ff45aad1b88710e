"""What must a file hold to be a worked example, and what can be wrong with it?

`read_example` takes the words, their vectors and the three matrices from a TOML file
(data/lookup.toml shows all it can hold), and tells every problem at once.
"""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

from minilm.errors import UserError
from minilm.lab.example import MATRICES, STEPS, Example, Matrix, suggest
from minilm.settings import read_toml

TABLES = ("word", "dimensions", "words", "matrices", "printed")


def read_example(path: Path) -> Example:
    """The example in a file; a UserError has one line for each problem."""
    reader = Reader(read_toml(path))
    example = reader.example()
    if reader.problems:
        raise UserError("\n".join(f"{path}: {problem}" for problem in reader.problems))
    return example


class Reader:
    """Reads the tables of a file and notes what is wrong instead of stopping at it."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self.tables = tables
        self.problems: list[str] = []

    def example(self) -> Example:
        """All that the file says; only to be used if there are no problems."""
        self.known(self.tables, TABLES, "")
        words = self.table("words", "a vector for each word, as in: river = [1.0, 0.0]")
        matrices = self.table("matrices", "the matrices query, key and value")
        vectors = self.rows(list(words.values()), [f"words.{word}" for word in words])
        width = len(vectors[0]) if vectors else 0
        self.known(matrices, MATRICES, "matrices.")
        made = {name: self.matrix(matrices, name, width) for name in MATRICES}
        if made["query"] and made["key"] and len(made["query"]) != len(made["key"]):
            rows = f"{len(made['query'])} and {len(made['key'])}"
            self.problems.append(f"matrices.query and matrices.key have {rows} rows; a score needs as many in both")
        word = self.tables.get("word", next(reversed(words), ""))
        place = list(words).index(word) if word in list(words) else -1
        if words and place < 0:
            self.problems.append(f"word = {word!r}: not one of the words{suggest(str(word), tuple(words))}")
        names = self.names(len(made["value"]))
        counts = {"plain": len(words), "masked": place + 1}
        printed = {name: self.printed(name, count, len(made["value"])) for name, count in counts.items()}
        self.known(self.tables.get("printed", {}), tuple(counts), "printed.")
        return Example(tuple(words), vectors, **made, place=place, dimensions=names, printed=printed)

    def known(self, table: Any, keys: tuple[str, ...], prefix: str) -> None:
        """Note the keys of a table that mean nothing."""
        if not isinstance(table, dict):
            self.problems.append(f"{prefix.rstrip('.')} = {table!r}: must be a table")
            return
        self.problems += [f"{prefix}{key}: no such setting{suggest(key, keys)}" for key in table if key not in keys]

    def table(self, name: str, wanted: str) -> dict[str, Any]:
        """A table that must be there and hold something."""
        table = self.tables.get(name)
        if isinstance(table, dict) and table:
            return table
        self.problems.append(f"[{name}] is missing or empty; it holds {wanted}")
        return {}

    def numbers(self, value: Any, where: str) -> tuple[Decimal, ...]:
        """A list of finite numbers, each with just the digits that the file has."""
        if not isinstance(value, list) or not value:
            self.problems.append(f"{where} = {value!r}: must be a list of numbers")
            return ()
        odd = [n for n in value if isinstance(n, bool) or not isinstance(n, int | float) or not math.isfinite(n)]
        self.problems += [f"{where} holds {n!r}, which is not a finite number" for n in odd]
        return () if odd else tuple(Decimal(repr(n)) for n in value)

    def rows(self, values: list[Any], places: list[str]) -> Matrix:
        """Lists of numbers, all as long as the first."""
        rows = [self.numbers(value, where) for value, where in zip(values, places, strict=True)]
        width = next((len(row) for row in rows if row), 0)
        for row, where in zip(rows, places, strict=True):
            if row and len(row) != width:
                self.problems.append(f"{where} has {len(row)} numbers where {places[0]} has {width}")
        return tuple(rows)

    def matrix(self, matrices: dict[str, Any], name: str, width: int) -> Matrix:
        """A list of rows, each as long as a word's vector."""
        value = matrices.get(name)
        if not isinstance(value, list) or not value:
            if matrices:
                given = "is missing" if value is None else f"= {value!r}"
                self.problems.append(f"matrices.{name} {given}: must be a list of rows, as in [[1.0, 0.0], [0.0, 1.0]]")
            return ()
        rows = self.rows(value, [f"matrices.{name} row {n + 1}" for n in range(len(value))])
        if width and rows[0] and len(rows[0]) != width:
            self.problems.append(f"matrices.{name} has rows of {len(rows[0])} numbers, the words have {width}")
        return rows

    def names(self, count: int) -> tuple[str, ...]:
        """Names for the rows of the value matrix, numbers if the file has none."""
        names = self.tables.get("dimensions", [str(n + 1) for n in range(count)])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.problems.append(f"dimensions = {names!r}: must be a list of names")
            return ()
        if count and len(names) != count:
            self.problems.append(f"dimensions has {len(names)} names for the {count} rows of matrices.value")
        return tuple(names)

    def printed(self, name: str, readable: int, components: int) -> dict[str, list[Decimal]]:
        """What an article prints for one way of looking up: some of the steps."""
        printed = self.tables.get("printed")
        table = printed.get(name, {}) if isinstance(printed, dict) else {}
        self.known(table, STEPS, f"printed.{name}.")
        steps = {}
        for step, value in table.items() if isinstance(table, dict) else ():
            where = f"printed.{name}.{step}"
            steps[step] = list(self.numbers(value, where))
            wanted = {"total": 1, "whole": 1, "mixture": components}.get(step, readable)
            if steps[step] and wanted and len(steps[step]) != wanted:
                self.problems.append(f"{where} has {len(steps[step])} numbers, wanted {wanted}")
        return steps
