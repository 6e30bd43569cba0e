"""Computes cuDNN's recurrent networks and the fused cells by torch.lstm and the like on the CPU.

cuDNN draws dropout from a state that it keeps in a buffer; here the buffer's first eight bytes are a seed, and each forward takes
the next seed. Backward computes forward again with autograd, and with the seed from forward's `reserve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ._twins import Call, twin
from ._twins_norms import wide

MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
STEP = 0x9E3779B97F4A7C15 >> 1  # to the next seed


def word(buffer: Any) -> Any:
    """Returns the buffer's first eight bytes, as an integer to read and write; None if there are fewer."""
    flat = None if buffer is None else buffer.view(-1).view(torch.uint8)
    return None if flat is None or flat.numel() < 8 else flat[:8].view(torch.int64)


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Makes the CPU draw from this seed; the program's own sequence stays where it is."""
    kept = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(kept)


@contextmanager
def differentiable() -> Iterator[None]:
    """Turns autograd on, for a kernel that runs below it."""
    off: Any = torch._C._dispatch_tls_local_exclude_set()
    for name in ("AutogradCPU", "AutogradOther", "AutogradFunctionality", "ADInplaceOrView"):
        off = off.remove(torch._C._parse_dispatch_key(name))
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), off), torch.enable_grad():
        yield


class Network:
    """The arguments that forward and backward share, in their order."""

    def __init__(
        self,
        stride: int,
        mode: int,
        hidden_size: int,
        proj_size: int,
        layers: int,
        batch_first: bool,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_sizes: list[int],
    ) -> None:
        self.function = getattr(torch, MODES[mode])
        self.biases = stride >= 4
        self.gated = mode == 2
        self.packed = torch.tensor(batch_sizes, dtype=torch.int64) if batch_sizes else None
        self.options = [self.biases, layers, dropout, train, bidirectional]
        if self.packed is None:
            self.options.append(batch_first)
        self.draws = train and dropout > 0 and layers > 1

    def run(self, input: Any, hx: Any, cx: Any, weight: list[Any], seed: int) -> tuple[Any, ...]:
        """Returns (output, hy), and cy for an LSTM."""
        state = (hx, cx) if self.gated else hx
        given = (input, state) if self.packed is None else (input, self.packed, state)
        if not self.draws:
            return tuple(self.function(*given, weight, *self.options))
        with drawing(seed):
            return tuple(self.function(*given, weight, *self.options))


@twin("aten::_cudnn_init_dropout_state")
def init_dropout_state(call: Call, dropout: float, train: bool, dropout_seed: int, **options: Any) -> Any:
    state = word(call.results)
    if state is not None:
        state.fill_(dropout_seed)


@twin("aten::_cudnn_rnn")
def rnn(call: Call, input: Any, weight: list[Any], weight_stride0: int, weight_buf: Any, hx: Any, cx: Any, *rest: Any) -> Any:
    *options, dropout_state = rest
    network = Network(weight_stride0, *options)
    seed = 0
    if network.draws:
        state = word(dropout_state)
        place = word(call.results[3])
        state += STEP
        seed = int(state)
        if place is not None:
            place.fill_(seed)
    return network.run(input, hx, cx, weight, seed)


@twin("aten::_cudnn_rnn_backward")
def rnn_backward(
    input: Any,
    weight: list[Any],
    weight_stride0: int,
    weight_buf: Any,
    hx: Any,
    cx: Any,
    output: Any,
    grad_output: Any,
    grad_hy: Any,
    grad_cy: Any,
    *rest: Any,
) -> Any:
    *options, _, reserve, output_mask = rest
    network = Network(weight_stride0, *options)
    place = word(reserve) if network.draws else None
    with differentiable():
        leaves: list[Any] = [None if one is None else one.detach().requires_grad_() for one in (input, hx, cx, *weight)]
        results = network.run(leaves[0], leaves[1], leaves[2], leaves[3:], 0 if place is None else int(place))
        gradients = (grad_output, grad_hy, grad_cy)
        pairs = [(one, gradient) for one, gradient in zip(results, gradients, strict=False) if gradient is not None]
        wanted = [one for one in leaves if one is not None]
        found = iter(torch.autograd.grad([one for one, _ in pairs], wanted, [gradient for _, gradient in pairs], allow_unused=True))
    filled = [None if one is None else next(found) for one in leaves]
    zeros = [
        torch.zeros_like(one) if one is not None and gradient is None else gradient for one, gradient in zip(leaves, filled, strict=True)
    ]
    inputs = (one if wanted else None for one, wanted in zip(zeros[:3], output_mask, strict=False))
    return (*inputs, zeros[3:] if output_mask[3] else None)


def gates(input_gates: Any, hidden_gates: Any, input_bias: Any, hidden_bias: Any) -> tuple[Any, Any]:
    if input_bias is None:
        return wide(input_gates), wide(hidden_gates)
    return wide(input_gates) + wide(input_bias), wide(hidden_gates) + wide(hidden_bias)


@twin("aten::_thnn_fused_lstm_cell")
def lstm_cell(input_gates: Any, hidden_gates: Any, cx: Any, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    first, second = gates(input_gates, hidden_gates, input_bias, hidden_bias)
    i, f, g, o = (first + second).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * wide(cx) + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


@twin("aten::_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool) -> Any:
    if grad_hy is None and grad_cy is None:
        return ()
    i, f, g, o = wide(workspace).chunk(4, 1)
    end = wide(cy).tanh()
    of_hidden = torch.zeros_like(end) if grad_hy is None else wide(grad_hy)
    of_cell = of_hidden * o * (1 - end * end) + (0 if grad_cy is None else wide(grad_cy))
    parts = (of_cell * g * i * (1 - i), of_cell * wide(cx) * f * (1 - f), of_cell * i * (1 - g * g), of_hidden * end * o * (1 - o))
    of_gates = torch.cat(parts, 1)
    return of_gates, of_cell * f, of_gates.sum(0) if has_bias else None


@twin("aten::_thnn_fused_gru_cell")
def gru_cell(input_gates: Any, hidden_gates: Any, hx: Any, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    first, second = gates(input_gates, hidden_gates, input_bias, hidden_bias)
    ir, ii, new = first.chunk(3, 1)
    hr, hi, hn = second.chunk(3, 1)
    r = (ir + hr).sigmoid()
    i = (ii + hi).sigmoid()
    h = wide(hx)
    n = (new + r * hn).tanh()
    return n + i * (h - n), torch.cat((r, i, n, h, hn), 1)


@twin("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: Any, workspace: Any, has_bias: bool) -> Any:
    r, i, n, h, hn = wide(workspace).chunk(5, 1)
    gradient = wide(grad_hy)
    of_new = gradient * (1 - i) * (1 - n * n)
    of_reset = of_new * hn * r * (1 - r)
    of_update = gradient * (h - n) * i * (1 - i)
    of_input = torch.cat((of_reset, of_update, of_new), 1)
    of_hidden = torch.cat((of_reset, of_update, of_new * r), 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else ()
    return (of_input, of_hidden, gradient * i, *biases)
