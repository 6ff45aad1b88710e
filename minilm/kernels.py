"""Can attention be computed without ever holding the T x S weights?

Yes, and the numbers stay the same. `tiled` shows how: it walks over the square of scores tile
by tile and keeps only running sums (FlashAttention, Dao et al. 2022; the online softmax is
Milakov and Gimelshein 2018). The arithmetic stays quadratic; the memory becomes linear.
`fused` hands the whole formula to PyTorch's `scaled_dot_product_attention`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from minilm.attention import dot_product, visible
from minilm.streams import stream_seed

SHORT = 256  # the longest window whose weights, all at once, take less time than tiles of them


def at_once(query: Tensor, key: Tensor, value: Tensor, *, scale: float, causal: bool, dropout: float) -> Tensor:
    """`explicit` without padding, in the fewest passes over the weights: four products and a softmax."""
    mask = visible(query.shape[-2], key.shape[-2], causal=causal, padding=None, device=query.device)
    hidden = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, torch.finfo(query.dtype).min)
    weights = ((scale * query) @ key.mT + hidden).softmax(dim=-1)  # (B, H, T, S)
    return F.dropout(weights, dropout) @ value


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    causal: bool,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`scaled_dot_product_attention` as a back end: (B, H, T, K), 2 x (B, H, S, K) -> (B, H, T, K)."""
    if torch.bfloat16 in (query.dtype, value.dtype) and query.device.type == "cpu":
        # There the backward pass of PyTorch's kernel takes several times as long in bfloat16 as in float32.
        if padding is None and query.shape[-2] == key.shape[-2] <= SHORT:
            return at_once(query, key, value, scale=scale, causal=causal, dropout=dropout)
        with torch.autocast("cpu", enabled=False):
            exact = [x.float() for x in (query, key, value)]
            return fused(*exact, scale=scale, causal=causal, padding=padding, dropout=dropout).to(value.dtype)
    n_query, n_key = query.shape[-2], key.shape[-2]
    hides = causal and n_query > 1  # the last position alone may read all, as in writing
    if padding is None and (n_query == n_key or not hides):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=hides, scale=scale)
    mask = visible(n_query, n_key, causal=causal, padding=padding, device=query.device)
    # PyTorch's kernels differ on rows that may read nothing, some giving NaN. Such a row is
    # let read everything, and its answer replaced by zeros.
    empty = ~mask.any(dim=-1, keepdim=True)
    mixture = F.scaled_dot_product_attention(query, key, value, attn_mask=mask | empty, dropout_p=dropout, scale=scale)
    return mixture.masked_fill(empty, 0.0)


@dataclass(frozen=True)
class Tiling:
    """How the T x S square is cut, and what each tile holds: all that forward and backward must agree on."""

    n_query: int  # T
    n_key: int  # S
    tile: tuple[int, int]  # rows and columns of a tile
    scale: float
    causal: bool
    padding: Tensor | None  # (B, S), True at real tokens
    dropout: float
    seed: int  # of the weights that are left out

    def strips(self) -> Iterator[slice]:
        """The square in strips of rows, from the top."""
        for start in range(0, self.n_query, self.tile[0]):
            yield slice(start, min(start + self.tile[0], self.n_query))

    def tiles(self, rows: slice) -> Iterator[slice]:
        """The columns of each tile in a strip. A causal strip ends where its last row does, so half are skipped."""
        end = min(self.n_key, rows.stop + self.n_key - self.n_query) if self.causal else self.n_key
        for start in range(0, end, self.tile[1]):
            yield slice(start, min(start + self.tile[1], end))

    def scores(self, query: Tensor, key: Tensor, rows: slice, columns: slice) -> Tensor:
        """The scaled scores of one tile (B, H, rows, columns), -inf where nothing may be read."""
        scores = self.scale * dot_product(query[..., rows, :], key[..., columns, :])
        if self.causal:
            # The queries are the last T of S positions, so row 0 stands at column S - T.
            row = torch.arange(rows.start, rows.stop, device=query.device) + self.n_key - self.n_query
            column = torch.arange(columns.start, columns.stop, device=query.device)
            scores = scores.masked_fill(column > row[:, None], -torch.inf)
        if self.padding is not None:
            scores = scores.masked_fill(~self.padding[:, None, None, columns], -torch.inf)
        return scores

    def drop(self, weights: Tensor, rows: slice, columns: slice) -> Tensor:
        """Leave out weights of one tile, the same ones each time it is called."""
        if not self.dropout:
            return weights
        # Keeping which weights were left out would take T x S memory: draw them anew from the place.
        seed = stream_seed(self.seed, f"tile/{rows.start}/{columns.start}")
        chance = torch.rand(
            weights.shape, generator=torch.Generator(weights.device).manual_seed(seed), device=weights.device
        )
        return weights * (chance >= self.dropout) / (1 - self.dropout)


class TiledAttention(torch.autograd.Function):
    """The softmax over a row needs its sum, which is known only at the end: so keep a sum that can be corrected."""

    @staticmethod
    def forward(ctx, query: Tensor, key: Tensor, value: Tensor, tiling: Tiling) -> Tensor:
        """For each row: the largest score so far, and relative to it the sum of exponentials and the mixture."""
        mixture = value.new_empty(*query.shape[:-1], value.shape[-1])  # (B, H, T, K)
        log_total = query.new_empty(*query.shape[:-1], 1)  # (B, H, T, 1)
        for rows in tiling.strips():
            # The lowest finite number, not -inf, which would give -inf - -inf in a row with nothing to read.
            largest = torch.full_like(log_total[..., rows, :], torch.finfo(query.dtype).min)
            total, mixed = torch.zeros_like(largest), torch.zeros_like(mixture[..., rows, :])
            for columns in tiling.tiles(rows):
                scores = tiling.scores(query, key, rows, columns)
                before, largest = largest, torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
                # What was summed relative to the old maximum shrinks to what it is relative to the new one.
                shrink = (before - largest).exp()
                exponentials = (scores - largest).exp()
                total = shrink * total + exponentials.sum(dim=-1, keepdim=True)
                mixed = shrink * mixed + tiling.drop(exponentials, rows, columns) @ value[..., columns, :]
            total = total.masked_fill(total == 0, 1.0)  # a row with nothing to read stays zero
            mixture[..., rows, :] = mixed / total
            log_total[..., rows, :] = largest + total.log()
        ctx.tiling = tiling
        ctx.save_for_backward(query, key, value, mixture, log_total)
        return mixture

    @staticmethod
    @once_differentiable
    def backward(ctx, d_mixture: Tensor) -> tuple[Tensor | None, ...]:
        """Compute each tile of weights again, now in one go since the total is known, and use it at once.

        With w = softmax(s): dL/ds_j = w_j (dL/dw_j - sum_i w_i dL/dw_i), and that sum over a whole
        row is the product of the mixture and its gradient, which needs no tile.
        """
        query, key, value, mixture, log_total = ctx.saved_tensors
        tiling = ctx.tiling
        mean = (mixture * d_mixture).sum(dim=-1, keepdim=True)  # (B, H, T, 1)
        d_query, d_key, d_value = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
        for rows in tiling.strips():
            for columns in tiling.tiles(rows):
                weights = (tiling.scores(query, key, rows, columns) - log_total[..., rows, :]).exp()
                d_value[..., columns, :] += tiling.drop(weights, rows, columns).mT @ d_mixture[..., rows, :]
                d_weights = tiling.drop(d_mixture[..., rows, :] @ value[..., columns, :].mT, rows, columns)
                d_scores = tiling.scale * weights * (d_weights - mean[..., rows, :])
                d_query[..., rows, :] += d_scores @ key[..., columns, :]
                d_key[..., columns, :] += d_scores.mT @ query[..., rows, :]
        return d_query, d_key, d_value, None


def tiled(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    causal: bool,
    padding: Tensor | None = None,
    dropout: float = 0.0,
    tile: tuple[int, int] = (128, 128),
) -> Tensor:
    """The tiles as a back end: (B, H, T, K), 2 x (B, H, S, K) -> (B, H, T, K).

    `dropout` leaves out other weights than `explicit` does from the same seed: which ones depends
    on the tile. Sums are kept in float32 or wider. No gradients of gradients.
    """
    # One number from torch's global generator, so that the dropout stream decides here as everywhere.
    seed = int(torch.randint(2**62, ())) if dropout else 0
    tiling = Tiling(query.shape[-2], key.shape[-2], tile, scale, causal, padding, dropout, seed)
    wide = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        return TiledAttention.apply(query.to(wide), key.to(wide), value.to(wide), tiling).to(query.dtype)
