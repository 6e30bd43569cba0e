"""Computes the attention of the CUDA backends (flash, efficient, cuDNN) by PyTorch's CPU kernel if that can do it, else by the
formula:

    scores = query key' * scale + bias       logsumexp = log of the sum of exp(scores)
    output = dropped(exp(scores - logsumexp)) value

Inside, tensors are (batch, heads, length, head size). Dropout follows from a seed, which forward leaves in the tensor that backward
gets from it (philox_seed, rng_state). The formula takes a few heads at a time, so that the scores stay small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from ._twins import Call, twin

SCORES_AT_ONCE = 1 << 24  # elements
Gradients = tuple[Any, Any, Any, Any]


@dataclass
class How:
    """The settings that forward and backward share."""

    scale: float
    bias: Any = None  # added to the scores; (batch, heads, query, key), or a shape that broadcasts to it
    causal: bool = False  # aligned to the top left corner
    dropout: float = 0.0
    seed: int = 0

    def fast(self, query: Any, key: Any, value: Any) -> bool:
        sizes = query.numel() and key.numel()
        return bool(not self.dropout and sizes and query.size(-1) == value.size(-1) and query.dtype == key.dtype)

    def mask(self, query: Any) -> Any:
        """The bias in the form of PyTorch's CPU kernel."""
        return self.bias if self.bias is None or self.bias.dtype == query.dtype else self.bias.to(torch.float32)


def grouped(query: Any, keys: Any) -> Any:
    """Repeats keys or values so that each of the query's heads has one."""
    times = query.size(1) // max(1, keys.size(1))
    return keys if times == 1 else keys.repeat_interleave(times, 1)


def ungrouped(gradient: Any, keys: Any) -> Any:
    if gradient.size(1) == keys.size(1):
        return gradient
    return gradient.unflatten(1, (keys.size(1), -1)).sum(2)


def parts(query: Any, keys: int) -> Iterator[tuple[int, slice]]:
    batch, heads, length, _ = query.shape
    step = max(1, SCORES_AT_ONCE // max(1, length * keys))
    for one in range(batch):
        for first in range(0, heads, step):
            yield one, slice(first, min(first + step, heads))


class Scores:
    """Computes one part at a time: its scores, and its factors of dropout (0 or 1 / kept)."""

    def __init__(self, query: Any, key: Any, how: How) -> None:
        self.query = query
        self.key = key
        self.how = how
        shape = (query.size(0), query.size(1), query.size(2), key.size(2))
        self.bias = None if how.bias is None else how.bias.expand(shape)
        self.future = torch.ones(shape[2:], dtype=torch.bool).triu(1) if how.causal else None
        self.generator = torch.Generator().manual_seed(how.seed)

    def of(self, at: tuple[int, slice]) -> tuple[Any, Any]:
        scores = self.query[at].float() @ self.key[at].float().transpose(-2, -1) * self.how.scale
        if self.bias is not None:
            scores += self.bias[at]
        if self.future is not None:
            scores.masked_fill_(self.future, -math.inf)
        if not self.how.dropout:
            return scores, None
        kept = 1.0 - self.how.dropout
        factors = torch.empty_like(scores).bernoulli_(kept, generator=self.generator)
        return scores, factors / kept if kept else factors


def forward(query: Any, key: Any, value: Any, how: How) -> tuple[Any, Any]:
    """Returns (output, logsumexp)."""
    key, value = grouped(query, key), grouped(query, value)
    if how.fast(query, key, value):
        output, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, how.causal, attn_mask=how.mask(query), scale=how.scale
        )
        return output, sums
    output = query.new_empty((*query.shape[:-1], value.size(-1)))
    sums = torch.empty(query.shape[:-1])
    scores = Scores(query, key, how)
    for at in parts(query, key.size(2)):
        score, factors = scores.of(at)
        sums[at] = score.logsumexp(-1)
        weights = score.softmax(-1).nan_to_num_(0.0)
        output[at] = ((weights if factors is None else weights * factors) @ value[at].float()).to(output.dtype)
    return output, sums


def backward(query: Any, key: Any, value: Any, how: How, gradient: Any, output: Any, sums: Any, with_bias: bool) -> Gradients:
    wide_key = grouped(query, key)
    wide_value = grouped(query, value)
    if not with_bias and how.fast(query, key, value):
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient,
            query,
            wide_key,
            wide_value,
            output,
            sums.transpose(1, 2).contiguous().transpose(1, 2),
            0.0,
            how.causal,
            attn_mask=how.mask(query),
            scale=how.scale,
        )
        return found[0], ungrouped(found[1], key), ungrouped(found[2], value), None
    of_query, of_key, of_value = (torch.empty(one.shape) for one in (query, wide_key, wide_value))
    of_bias = torch.empty((*query.shape[:-1], key.size(2))) if with_bias else None
    scores = Scores(query, wide_key, how)
    for at in parts(query, key.size(2)):
        score, factors = scores.of(at)
        weights = (score - sums[at].unsqueeze(-1)).exp_().nan_to_num_(0.0)
        coming = gradient[at].float()
        of_weights = coming @ wide_value[at].float().transpose(-2, -1)
        dropped = weights
        if factors is not None:
            of_weights, dropped = of_weights * factors, weights * factors
        of_score = weights * (of_weights - (coming * output[at].float()).sum(-1, keepdim=True))
        of_value[at] = dropped.transpose(-2, -1) @ coming
        of_query[at] = of_score @ wide_key[at].float() * how.scale
        of_key[at] = of_score.transpose(-2, -1) @ query[at].float() * how.scale
        if of_bias is not None:
            of_bias[at] = of_score
    return of_query, ungrouped(of_key, key), ungrouped(of_value, value), of_bias


def scale_of(query: Any, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.size(-1)) if scale is None else scale


def added(bias: Any) -> Any:
    """Returns the bias as numbers to add to the scores: -inf where a mask is false, so that those elements get no weight."""
    if bias is None or bias.dtype != torch.bool:
        return bias
    return torch.zeros(bias.shape).masked_fill_(bias.logical_not(), -math.inf)


def leave(seed: int, place: Any) -> None:
    if place is not None and place.numel():
        place.view(torch.int64).view(-1)[0] = seed


def left(place: Any) -> int:
    return int(place.view(torch.int64).view(-1)[0]) if place is not None and place.numel() else 0


def put_sums(into: Any, sums: Any) -> None:
    """Stores the sums into CUDA's tensor, which may be longer (by the kernel's tiles), have a last dimension of 1, or be empty."""
    if into is not None and into.numel():
        into.fill_(math.inf)
        into.reshape(*into.shape[:2], -1)[..., : sums.size(-1)].copy_(sums)


def sums_of(query: Any, kept: Any) -> Any:
    return kept.reshape(*kept.shape[:2], -1)[..., : query.size(2)]


def seed_of(call: Call, dropout: float, place: Any) -> int:
    """Returns a fresh seed, and leaves it in a result of the operation."""
    if not dropout:
        return 0
    seed = call.seed()
    leave(seed, place)
    return seed


# -- scaled_dot_product_attention's own ------------------------------------------------------------------------------------


def forward_into(call: Call, query: Any, key: Any, value: Any, how: How, sums: Any) -> tuple[Any]:
    output, found = forward(query, key, value, how)
    put_sums(sums, found)
    return (output,)


@twin("aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention")
def biased(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,  # cuDNN's
    *,
    scale: float | None = None,
) -> Any:
    seed = seed_of(call, dropout_p, call.results[2 if len(call.results) == 4 else 6])
    how = How(scale_of(query, scale), added(attn_bias), is_causal, dropout_p, seed)
    return forward_into(call, query, key, value, how, call.results[1])


@twin("aten::_scaled_dot_product_efficient_attention_backward")
def efficient_backward(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any,
    out: Any,
    logsumexp: Any,
    philox_seed: Any,
    philox_offset: Any,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    with_bias = attn_bias is not None and grad_input_mask[3]
    how = How(scale_of(query, scale), added(attn_bias), is_causal, dropout_p, left(philox_seed))
    found = backward(query, key, value, how, gradient, out, sums_of(query, logsumexp), with_bias)
    return (*found[:3], found[3].sum_to_size(attn_bias.shape) if with_bias else None)


@twin("aten::_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    philox_seed: Any,
    philox_offset: Any,
    attn_bias: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> Any:
    how = How(scale_of(query, scale), added(attn_bias), is_causal, dropout_p, left(philox_seed))
    return backward(query, key, value, how, gradient, out, sums_of(query, logsumexp), False)[:3]


@twin("aten::_scaled_dot_product_flash_attention")
def flash(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    how = banded(query, key, How(scale_of(query, scale), None, False, dropout_p, seed_of(call, dropout_p, call.results[6])), is_causal)
    return forward_into(call, query, key, value, how, call.results[1])


@twin("aten::_scaled_dot_product_flash_attention_backward")
def flash_backward(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Any,
    philox_offset: Any,
    *,
    scale: float | None = None,
) -> Any:
    how = banded(query, key, How(scale_of(query, scale), None, False, dropout_p, left(philox_seed)), is_causal)
    return backward(query, key, value, how, gradient, out, sums_of(query, logsumexp), False)[:3]


# -- the layer below: (batch, length, heads, head size), or sequences of several lengths in one -----------------------------


def banded(query: Any, key: Any, how: How, causal: bool, before: int | None = None, after: int | None = None, slopes: Any = None) -> How:
    """Adds a bias that keeps only the elements within a window and a causal mask aligned to the bottom right corner, and linear
    biases."""
    rows = query.size(2)
    columns = key.size(2)
    before = None if before is None or before < 0 else before
    after = 0 if causal else None if after is None or after < 0 else after
    if before is None and slopes is None and (after is None or (causal and rows == columns)):
        return replace(how, causal=how.causal or causal)
    distance = torch.arange(columns) - torch.arange(rows).unsqueeze(1) - (columns - rows)
    bias = torch.zeros(rows, columns)
    if slopes is not None:
        bias = -slopes.reshape(-1, slopes.size(-1), 1, 1).float() * distance.abs()
    if after is not None:
        bias = bias.masked_fill(distance > after, -math.inf)
    if before is not None:
        bias = bias.masked_fill(distance < -before, -math.inf)
    return replace(how, bias=bias if how.bias is None else how.bias + bias)


Piece = tuple[slice, slice, slice]


def pieces(query: Any, starts_q: Any, starts_k: Any, used_k: Any) -> list[Piece]:
    """Returns for each sequence its place in the batch, its queries and its keys."""
    whole = slice(None)
    used = None if used_k is None else used_k.tolist()
    if starts_q is None:
        return [(whole, whole, whole)] if used is None else [(slice(i, i + 1), whole, slice(0, n)) for i, n in enumerate(used)]
    first = starts_q.tolist()
    keys = first if starts_k is None else starts_k.tolist()
    ends = keys[1:] if used is None else [begin + n for begin, n in zip(keys, used, strict=False)]
    return [(slice(0, 1), slice(first[i], first[i + 1]), slice(keys[i], end)) for i, end in enumerate(ends)]


def cut(tensor: Any, at: slice, rows: slice) -> Any:
    """Returns a piece of the tensor as (batch, heads, length, head size)."""
    return (tensor if tensor.dim() == 4 else tensor.unsqueeze(0))[at, rows].transpose(1, 2)


def sums_at(sums: Any, several: bool, number: int, at: slice, rows: slice) -> Any:
    """Returns a piece's place in a tensor of logsumexp: (batch, heads, length) or, with several lengths, (heads, all) or by
    sequence."""
    if not several:
        return sums[at]
    return sums[:, rows].unsqueeze(0) if sums.dim() == 2 else sums[number : number + 1, :, : rows.stop - rows.start]


@dataclass
class Band:
    """The masks of one call, for each of its pieces."""

    causal: bool = False
    before: int | None = None
    after: int | None = None
    slopes: Any = None

    def on(self, how: How, query: Any, key: Any, at: slice, rows: slice, columns: slice) -> How:
        slopes = self.slopes if self.slopes is None or self.slopes.dim() == 1 else self.slopes[at]
        if how.bias is not None and how.bias.dim() == 4:
            how = replace(how, bias=how.bias[at if how.bias.size(0) > 1 else slice(None), :, : query.size(2), : key.size(2)])
        return banded(query, key, how, self.causal, self.before, self.after, slopes)


def forward_pieces(query: Any, key: Any, value: Any, how: How, band: Band, cuts: list[Piece], several: bool, sums: Any) -> Any:
    output = query.new_zeros((*query.shape[:-1], value.size(-1)))
    if sums is not None:
        sums.fill_(math.inf)
    for number, (at, rows, columns) in enumerate(cuts):
        q = cut(query, at, rows)
        k, v = (cut(one, at, columns) for one in (key, value))
        found, found_sums = forward(q, k, v, band.on(replace(how, seed=how.seed + number), q, k, at, rows, columns))
        cut(output, at, rows).copy_(found)
        if sums is not None and sums.numel():
            sums_at(sums, several, number, at, rows)[..., : q.size(2)].copy_(found_sums)
    return output


def backward_pieces(
    query: Any, key: Any, value: Any, how: How, band: Band, cuts: list[Piece], several: bool, coming: tuple[Any, Any, Any], with_bias: bool
) -> Gradients:
    gradient, output, sums = coming
    into = [torch.zeros_like(one) for one in (query, key, value)]
    of_bias = torch.zeros(how.bias.shape) if with_bias else None
    for number, (at, rows, columns) in enumerate(cuts):
        q = cut(query, at, rows)
        k, v = (cut(one, at, columns) for one in (key, value))
        here = band.on(replace(how, seed=how.seed + number), q, k, at, rows, columns)
        past = sums_at(sums, several, number, at, rows)[..., : q.size(2)]
        found = backward(q, k, v, here, cut(gradient, at, rows), cut(output, at, rows), past, with_bias)
        for place, one, part in zip(into, found[:3], (rows, columns, columns), strict=True):
            cut(place, at, part).copy_(one)
        if of_bias is not None:
            whole = of_bias[at] if of_bias.size(0) > 1 else of_bias
            whole[..., : q.size(2), : k.size(2)] += found[3].sum_to_size(whole[..., : q.size(2), : k.size(2)].shape)
    return (*into, of_bias)  # type: ignore[return-value]


@twin("aten::_flash_attention_forward")
def flash_forward_below(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Any = None,
    alibi_slopes: Any = None,
    block_table: Any = None,
    num_splits: int | None = None,
) -> Any:
    if block_table is not None:
        raise NotImplementedError("attention over a table of blocks")
    how = How(scale_of(query, scale), dropout=dropout_p, seed=seed_of(call, dropout_p, call.results[2]))
    band = Band(is_causal, window_size_left, window_size_right, alibi_slopes)
    cuts = pieces(query, cum_seq_q, cum_seq_k, seqused_k)
    return (forward_pieces(query, key, value, how, band, cuts, cum_seq_q is not None, call.results[1]),)


@twin("aten::_flash_attention_backward")
def flash_backward_below(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Any,
    unused: Any,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> Any:
    how = How(scale_of(query, scale), dropout=dropout_p, seed=left(rng_state))
    band = Band(is_causal, window_size_left, window_size_right)
    cuts = pieces(query, cum_seq_q, cum_seq_k, None)
    return backward_pieces(query, key, value, how, band, cuts, cum_seq_q is not None, (gradient, out, logsumexp), False)[:3]


def band_of(mask_type: int, window: int | None) -> Band:
    """Returns the band of the efficient kernels' mask type: 0 none, 1 causal, aligned to the top left corner (How.causal), 2 to the
    bottom right one."""
    return Band(mask_type == 2, window - 1 if window else None)


@twin("aten::_efficient_attention_forward")
def efficient_forward_below(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: Any = None,
    window_size: int | None = None,
) -> Any:
    seed = seed_of(call, dropout_p, call.results[2])
    how = How(scale_of(query, scale), added(bias), custom_mask_type == 1, dropout_p, seed)
    cuts = pieces(query, cu_seqlens_q, cu_seqlens_k, seqlen_k)
    band = band_of(custom_mask_type, window_size)
    return (forward_pieces(query, key, value, how, band, cuts, cu_seqlens_q is not None, call.results[1]),)


@twin("aten::_efficient_attention_backward")
def efficient_backward_below(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    out: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    logsumexp: Any,
    dropout_p: float,
    philox_seed: Any,
    philox_offset: Any,
    custom_mask_type: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    num_splits_key: int | None = None,
    window_size: int | None = None,
    shared_storage_dqdkdv: bool = False,
) -> Any:
    how = How(scale_of(query, scale), added(bias), custom_mask_type == 1, dropout_p, left(philox_seed))
    cuts = pieces(query, cu_seqlens_q, cu_seqlens_k, None)
    band = band_of(custom_mask_type, window_size)
    with_bias = bias is not None and bias_requires_grad
    return backward_pieces(query, key, value, how, band, cuts, cu_seqlens_q is not None, (gradient, out, logsumexp), with_bias)
