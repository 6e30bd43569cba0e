"""Computes products, convolutions and the like that cuBLAS, cuDNN and CUTLASS have, and PyTorch's CPU lacks or names otherwise.

Narrow floating-point types are multiplied in float32, as those libraries accumulate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ._twins import Call, twin
from ._twins_norms import wide

# -- products with a type of their own for the result ----------------------------------------------------------------------


def product(first: Any, second: Any, dtype: Any = None) -> Any:
    found = wide(first) @ wide(second) if first.is_floating_point() else first.int() @ second.int()
    return found.to(first.dtype if dtype is None else dtype)


@twin("aten::mm.dtype", "aten::mm.dtype_out", "aten::bmm.dtype", "aten::bmm.dtype_out")
def mm(self: Any, mat2: Any, out_dtype: Any, *, out: Any = None) -> Any:
    return product(self, mat2, out_dtype)


@twin("aten::addmm.dtype", "aten::addmm.dtype_out", "aten::baddbmm.dtype", "aten::baddbmm.dtype_out")
def addmm(self: Any, mat1: Any, mat2: Any, out_dtype: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
    found = alpha * product(mat1, mat2, torch.float32)
    return (found if beta == 0 else wide(self) * beta + found).to(out_dtype)


def groups(first: Any, second: Any, ends: list[int]) -> Iterator[tuple[Any, ...]]:
    """Yields for each group its factors, and the places of its rows, of its columns and of its part of the inner dimension."""
    whole = slice(None)
    for at, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        part = slice(begin, end)
        if first.dim() == 2 and second.dim() == 2:
            yield first[:, part], second[part], at, whole, whole
        elif first.dim() == 2:
            yield first[part], second[at], at, part, whole
        else:
            yield first[at], second[:, part], at, whole, part


@twin("aten::_scaled_grouped_mm")
def scaled_grouped_mm(
    call: Call,
    self: Any,
    mat2: Any,
    scale_a: Any,
    scale_b: Any,
    offs: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """Multiplies with a scale for each row of the first factor and each column of the second; if the inner dimension is cut into
    groups, for each group."""
    if scale_a.dtype != torch.float32:
        raise NotImplementedError("scales of blocks")
    if offs is None:
        return (self.float() * scale_a.unsqueeze(-1)) @ (mat2.float() * scale_b.unsqueeze(-2))
    found = torch.zeros(call.results.shape)
    inner = found.dim() == 3
    for first, second, at, rows, columns in groups(self, mat2, offs.tolist()):
        of_rows = scale_a.view(len(offs), -1)[at] if inner else scale_a[rows] if scale_a.dim() == 1 else scale_a[at]
        of_columns = scale_b.view(len(offs), -1)[at] if inner else scale_b[columns] if scale_b.dim() == 1 else scale_b[at]
        place = found[at] if inner else found[rows, columns]
        place.copy_((first.float() * of_rows.unsqueeze(-1)) @ (second.float() * of_columns))
    return found


# -- weights in four bits, and with half of their elements zero ------------------------------------------------------------


@twin("aten::_convert_weight_to_int4pack")
def pack_int4(call: Call, self: Any, innerKTiles: int) -> Any:
    """Packs the bytes in their own order; CUDA's kernel puts them into the order of its tiles."""
    call.results.view(torch.uint8).view(-1).copy_(self.reshape(-1))


@twin("aten::_weight_int4pack_mm")
def int4_mm(self: Any, mat2: Any, qGroupSize: int, qScaleAndZeros: Any) -> Any:
    packed = mat2.view(torch.uint8).view(mat2.size(0) * 8, -1)
    weight = torch.stack((packed >> 4, packed & 15), -1).flatten(1).float() - 8
    scales, zeros = (one.t().repeat_interleave(qGroupSize, 1) for one in wide(qScaleAndZeros).unbind(-1))
    return wide(self) @ (weight * scales + zeros).t()


def dense_of(sparse: Any, meta: Any) -> Any:
    from torch.sparse import _semi_structured_conversions

    conversions: Any = _semi_structured_conversions
    return conversions.sparse_semi_structured_to_dense_cutlass(sparse, meta)


@twin("aten::_sparse_semi_structured_mm")
def semi_structured_mm(mat1: Any, mat1_meta: Any, mat2: Any, *, out_dtype: Any = None) -> Any:
    return product(dense_of(mat1, mat1_meta), mat2, out_dtype)


@twin("aten::_sparse_semi_structured_addmm")
def semi_structured_addmm(input: Any, mat1: Any, mat1_meta: Any, mat2: Any, *, alpha: Any = 1, beta: Any = 1, out_dtype: Any = None) -> Any:
    return wide(input).unsqueeze(1) * beta + alpha * wide(semi_structured_mm(mat1, mat1_meta, mat2, out_dtype=out_dtype))


@twin("aten::_sparse_semi_structured_linear")
def semi_structured_linear(
    input: Any, weight: Any, meta: Any, *, bias: Any = None, activation: str | None = None, out_dtype: Any = None
) -> Any:
    found = wide(product(input, dense_of(weight, meta).t(), out_dtype))
    found = found if bias is None else found + wide(bias)
    return getattr(torch.nn.functional, activation)(found) if activation in ("relu", "silu") else found


@twin("aten::_cslt_compress")
def cslt_compress(call: Call, input: Any) -> Any:
    """Stores two elements of each four, and then their places, two bits each. cuSPARSELt's own order is not documented."""
    fours = input.reshape(-1, 4)
    places = (fours == 0).to(torch.uint8).argsort(stable=True, dim=1)[:, :2].sort(1).values
    kept = fours.gather(1, places).reshape(-1)
    bits = places.reshape(-1, 4).to(torch.uint8) << torch.tensor([0, 2, 4, 6], dtype=torch.uint8)
    into = call.results.view(-1)
    into[: kept.numel()] = kept
    packed = bits.sum(1).to(torch.uint8)
    into.view(torch.uint8)[kept.numel() * kept.element_size() :][: packed.numel()] = packed


def cslt_dense(compressed: Any, columns: int) -> Any:
    sixteenths = 9 if compressed.element_size() > 1 else 10
    count = compressed.numel() * 16 // sixteenths // 2
    bits = compressed.view(-1).view(torch.uint8)[count * compressed.element_size() :][: count // 4]
    places = bits.unsqueeze(1) >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8) & 3
    found = compressed.new_zeros((count // 2, 4))
    found.scatter_(1, places.reshape(-1, 2).long(), compressed.view(-1)[:count].view(-1, 2))
    return found.view(-1, columns)


@twin("aten::_cslt_sparse_mm")
def cslt_mm(
    compressed_A: Any,
    dense_B: Any,
    bias: Any = None,
    alpha: Any = None,
    out_dtype: Any = None,
    transpose_result: bool = False,
    alg_id: int = 0,
    split_k: int = 1,
    split_k_mode: int = -1,
) -> Any:
    found = product(cslt_dense(compressed_A, dense_B.size(0)), dense_B, torch.float32)
    found = found if alpha is None else found * alpha.float().view(-1, 1)
    found = found if bias is None else found + bias.float().unsqueeze(1)
    return found.t() if transpose_result else found


# -- convolutions ----------------------------------------------------------------------------------------------------------


@twin("aten::cudnn_convolution", "aten::cudnn_convolution.out")
def convolution(self: Any, weight: Any, padding: Any, stride: Any, dilation: Any, groups: int, *options: bool, out: Any = None) -> Any:
    return torch.convolution(self, weight, None, stride, padding, dilation, False, [0] * len(padding), groups)


@twin("aten::cudnn_convolution_transpose")
def convolution_transpose(
    self: Any, weight: Any, padding: Any, output_padding: Any, stride: Any, dilation: Any, groups: int, *options: bool
) -> Any:
    return torch.convolution(self, weight, None, stride, padding, dilation, True, output_padding, groups)


@twin("aten::cudnn_convolution_relu")
def convolution_relu(self: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    return torch.convolution(self, weight, bias, stride, padding, dilation, False, [0] * len(padding), groups).relu_()


@twin("aten::cudnn_convolution_add_relu")
def convolution_add_relu(
    self: Any, weight: Any, z: Any, alpha: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    found = torch.convolution(self, weight, bias, stride, padding, dilation, False, [0] * len(padding), groups)
    return found.add_(z, alpha=1 if alpha is None else alpha).relu_()


@twin("aten::_conv_depthwise2d", "aten::_conv_depthwise2d.out", "aten::conv_depthwise3d")
def depthwise(self: Any, weight: Any, kernel_size: Any, bias: Any, stride: Any, padding: Any, dilation: Any, *, out: Any = None) -> Any:
    return torch.convolution(self, weight, bias, stride, padding, dilation, False, [0] * len(padding), self.size(1))


# -- grids, and connectionist temporal classification ----------------------------------------------------------------------


@twin("aten::cudnn_grid_sampler")
def grid_sampler(self: Any, grid: Any) -> Any:
    return torch.grid_sampler_2d(self, grid, 0, 0, True)


@twin("aten::cudnn_grid_sampler_backward")
def grid_sampler_backward(self: Any, grid: Any, grad_output: Any) -> Any:
    return torch.ops.aten.grid_sampler_2d_backward(grad_output, self, grid, 0, 0, True, [True, True])


@twin("aten::cudnn_affine_grid_generator")
def affine_grid(theta: Any, N: int, C: int, H: int, W: int) -> Any:
    return torch.affine_grid_generator(theta, [N, C, H, W], True)


@twin("aten::cudnn_affine_grid_generator_backward")
def affine_grid_backward(grad: Any, N: int, C: int, H: int, W: int) -> Any:
    return torch.ops.aten.affine_grid_generator_backward(grad, [N, C, H, W], True)


@twin("aten::_cudnn_ctc_loss", "aten::_cudnn_ctc_loss.Tensor")
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int, deterministic: bool, zero_infinity: bool
) -> Any:
    """Returns (the losses, their gradient)."""
    rows, columns = (list(one) if isinstance(one, (list, tuple)) else one.tolist() for one in (input_lengths, target_lengths))
    loss, alpha = torch._ctc_loss(log_probs, targets, rows, columns, blank, zero_infinity)
    ones = torch.ones_like(loss)
    return loss, torch.ops.aten._ctc_loss_backward(ones, log_probs, targets, rows, columns, loss, alpha, blank, zero_infinity)
