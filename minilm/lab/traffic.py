"""How many numbers move between slow and fast memory when attention is computed?

The model of Dao et al. 2022, section 3.2: fast memory holds M numbers, all inputs and outputs
lie in slow memory, and each read and write of a number there costs one. Counted by walking
the loops, forward, without a mask.
"""

from __future__ import annotations

from typing import NamedTuple

TILES = (16, 32, 64, 128, 256, 512)


class Traffic(NamedTuple):
    """Numbers moved for T positions of width K, with square tiles."""

    tile: int
    fast: int  # numbers that fast memory must hold: tiles of query, key, value and mixture, and of the scores
    explicit: int
    paper: int  # the paper's loops: a tile of keys is read once, the running sums again and again
    tiled: int  # ours: a tile of queries is read once and its sums never leave, the keys again and again


def traffic(length: int, width: int, tile: int) -> Traffic:
    """Count the reads and writes of the three ways to compute the same mixture."""
    from minilm.kernels import Tiling

    tiling = Tiling(length, length, (tile, tile), 1.0, causal=False, padding=None, dropout=0.0, seed=0)
    every = slice(0, length)
    row = width  # a query, key, value or mixture
    # Read query and key, write scores; read scores, write weights; read weights and value, write the mixture.
    explicit = 4 * length**2 + 4 * length * row
    paper = ours = 0
    for columns in tiling.tiles(every):
        paper += 2 * row * size(columns)  # read keys and values
        for rows in tiling.strips():
            paper += (row + row + 2) * size(rows)  # read queries, mixtures, their largest scores and totals
            paper += (row + 2) * size(rows)  # write all of them back but the queries
    for rows in tiling.strips():
        ours += row * size(rows)  # read queries
        for columns in tiling.tiles(rows):
            ours += 2 * row * size(columns)  # read keys and values
        ours += (row + 1) * size(rows)  # write mixtures, and the log of the totals for the backward pass
    side = min(tile, length)
    return Traffic(tile, 4 * side * row + side**2, explicit, paper, ours)


def size(part: slice) -> int:
    return part.stop - part.start
