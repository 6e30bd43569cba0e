"""Computes batch norm of cuDNN and of SyncBatchNorm, RMS norm's gradient, and the parts of dropout that only CUDA has."""

from __future__ import annotations

from typing import Any

import torch

from ._twins import Call, twin


@twin("aten::cudnn_batch_norm")
def batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    exponential_average_factor: float,
    epsilon: float,
) -> Any:
    found = torch.native_batch_norm(input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon)
    return found if training else found[:1]


@twin("aten::cudnn_batch_norm_backward")
def batch_norm_backward(
    input: Any,
    grad_output: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_var: Any,
    epsilon: float,
    reserve: Any,
) -> Any:
    return torch.ops.aten.native_batch_norm_backward(
        grad_output.contiguous(), input, weight, running_mean, running_var, save_mean, save_var, True, epsilon, [True, True, True]
    )


def wide(tensor: Any) -> Any:
    return tensor.to(torch.float32) if tensor.dtype in (torch.half, torch.bfloat16) else tensor


def channels(input: Any, values: Any) -> Any:
    """Returns one value for each channel, in a shape that broadcasts to the input."""
    return values.view(1, -1, *[1] * (input.dim() - 2))


def but_channels(input: Any) -> list[int]:
    return [at for at in range(input.dim()) if at != 1]


@twin("aten::batch_norm_stats")
def stats(input: Any, eps: float) -> Any:
    variance, mean = torch.var_mean(wide(input), but_channels(input), correction=0)
    return mean, (variance + eps).rsqrt()


@twin("aten::batch_norm_elemt", "aten::batch_norm_elemt.out")
def elements(input: Any, weight: Any, bias: Any, mean: Any, invstd: Any, eps: float, *, out: Any = None) -> Any:
    found = (wide(input) - channels(input, mean)) * channels(input, invstd)
    found = found if weight is None else found * channels(input, weight)
    return found if bias is None else found + channels(input, bias)


@twin("aten::batch_norm_gather_stats_with_counts")
def gather_stats(input: Any, mean: Any, invstd: Any, running_mean: Any, running_var: Any, momentum: float, eps: float, counts: Any) -> Any:
    shares = counts.view(-1, 1).to(mean.dtype)
    total = shares.sum()
    whole = (mean * shares).sum(0) / total
    squares = ((invstd.pow(-2) - eps + (mean - whole).square()) * shares).sum(0)
    for running, now in ((running_mean, whole), (running_var, squares / (total - 1))):
        if running is not None:
            running.mul_(1 - momentum).add_(now * momentum)
    return whole, (squares / total + eps).rsqrt()


@twin("aten::batch_norm_gather_stats")
def gather_stats_alike(
    input: Any, mean: Any, invstd: Any, running_mean: Any, running_var: Any, momentum: float, eps: float, count: int
) -> Any:
    counts = torch.full((mean.size(0),), float(count))
    return gather_stats(input, mean, invstd, running_mean, running_var, momentum, eps, counts)


@twin("aten::batch_norm_backward_reduce")
def backward_reduce(grad_out: Any, input: Any, mean: Any, invstd: Any, weight: Any, input_g: bool, weight_g: bool, bias_g: bool) -> Any:
    gradient = wide(grad_out)
    sums = gradient.sum(but_channels(input))
    products = (gradient * (wide(input) - channels(input, mean))).sum(but_channels(input))
    inputs = (sums, products) if input_g else (None, None)
    return (*inputs, products * invstd if weight_g else None, sums if bias_g else None)


@twin("aten::batch_norm_backward_elemt")
def backward_elements(grad_out: Any, input: Any, mean: Any, invstd: Any, weight: Any, sum_dy: Any, sum_dy_xmu: Any, count: Any) -> Any:
    total = count.sum().to(mean.dtype)
    centred = wide(input) - channels(input, mean)
    found = wide(grad_out) - channels(input, sum_dy / total) - centred * channels(input, invstd.square() * sum_dy_xmu / total)
    return found * channels(input, invstd if weight is None else invstd * weight)


@twin("aten::_fused_rms_norm_backward")
def rms_norm_backward(grad_out: Any, input: Any, normalized_shape: list[int], rstd: Any, weight: Any, output_mask: list[bool]) -> Any:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    gradient = wide(grad_out)
    normed = wide(input) * rstd
    scaled = gradient if weight is None else gradient * wide(weight)
    of_input = (scaled - normed * (scaled * normed).mean(dims, keepdim=True)) * rstd if output_mask[0] else None
    of_weight = (gradient * normed).sum_to_size(normalized_shape) if weight is not None and output_mask[1] else None
    return of_input, of_weight


@twin("aten::_fused_dropout")
def fused_dropout(call: Call, self: Any, p: float, generator: Any = None) -> Any:
    kept = torch.empty(self.shape).bernoulli_(p, generator=torch.Generator().manual_seed(call.seed()))
    return self * kept / p, kept


@twin("aten::_masked_scale")
def masked_scale(self: Any, mask: Any, scale: float) -> Any:
    return self * mask * scale
