"""The same attention, computed by other routes to the same numbers.

`fused` hands the whole formula to PyTorch's `scaled_dot_product_attention`.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from minilm.attention import visible


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
    n_query, n_key = query.shape[-2], key.shape[-2]
    if padding is None and (n_query == n_key or not causal):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal, scale=scale)
    mask = visible(n_query, n_key, causal=causal, padding=padding, device=query.device)
    # PyTorch's kernels differ on rows that may read nothing, some giving NaN. Such a row is
    # let read everything, and its answer replaced by zeros.
    empty = ~mask.any(dim=-1, keepdim=True)
    mixture = F.scaled_dot_product_attention(query, key, value, attn_mask=mask | empty, dropout_p=dropout, scale=scale)
    return mixture.masked_fill(empty, 0.0)
