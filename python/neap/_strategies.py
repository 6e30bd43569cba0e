"""Mixed precision and memory-efficient attention for a program's own loop, with what they save: predicted and measured.

    before      the peak of forward and backward without it
    predicted   `before`, less the bytes that a forward under it does not keep for backward any more
    measured    the peak of forward and backward with it
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from . import _efficient, _recompute, _sources, _step, _units, memory


@dataclasses.dataclass(frozen=True)
class Strategy:
    """What one way to need less memory came to, in bytes. None: without it the run did not fit on the device."""

    name: str
    before: int | None
    predicted: int | None
    measured: int

    def __str__(self) -> str:
        before = "did not fit before" if self.before is None else f"{_units.size(self.before)} before"
        predicted = "" if self.predicted is None else f", {_units.size(self.predicted)} predicted"
        return f"{self.name}: {before}{predicted}, {_units.size(self.measured)} measured"


class EfficientForward(contextlib.AbstractContextManager):  # type: ignore[type-arg]
    """What efficient_forward returns: a context for the forward pass, as torch.autocast is, and what it saves."""

    def __init__(self, torch: Any, device: str, dtype: Any, strategies: tuple[Strategy, ...]) -> None:
        self._torch = torch
        self._device = device
        self._dtype = dtype
        self._entered: list[Any] = []
        self.strategies = strategies

    def __enter__(self) -> EfficientForward:
        context = self._torch.autocast(self._device, dtype=self._dtype or self._torch.bfloat16, enabled=self._dtype is not None)
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    def __str__(self) -> str:
        return "\n".join(map(str, self.strategies))


def _figures(runs: _recompute.Runs) -> tuple[int, int]:
    """The peak of a run, and what its forward keeps for backward."""
    return runs.peak({}), runs.dry({}).total()


def _figures_or_none(runs: _recompute.Runs) -> tuple[int, int] | None:
    """Likewise; None where it does not fit."""
    try:
        runs.peak({})  # the first run allocates what then stays
        return _figures(runs)
    except Exception as error:
        if not memory.is_out_of_memory(error):
            raise
    return None


def _strategy(name: str, before: tuple[int, int] | None, now: tuple[int, int]) -> Strategy:
    if before is None:
        return Strategy(name, None, None, now[0])
    return Strategy(name, before[0], before[0] - (before[1] - now[1]), now[0])


def efficient_forward(
    model: Any, loss: Callable[[], Any], mixed_precision: bool | str = False, efficient_attention: bool = True
) -> EfficientForward:
    """Switches on memory-efficient attention and mixed precision for a loop of the program's own, and says what each saves.

        forward = neap.efficient_forward(model, lambda: criterion(model(inputs), targets), mixed_precision="bf16")
        print(forward)
        for inputs, targets in data:
            with forward:
                loss = criterion(model(inputs), targets)
            loss.backward()

    `loss` makes the loss of a batch as large as the training's; it is run a few times, with backward. Gradients, buffers and random
    numbers stay as they were. Attention: scaled_dot_product_attention may choose its flash and memory-efficient kernels, and a model
    of transformers that computes attention itself ("eager") uses it; `efficient_attention=False` leaves it as it is. It stays on.
    Mixed precision as in Training; "fp16" needs a GradScaler in the loop. On the CPU the figures are bytes kept for backward.
    """
    torch = _sources.torch_module()
    if torch is None:
        raise ValueError("efficient_forward: torch is not imported")
    inner = _efficient.unwrapped(model, torch)
    runs = _recompute.Runs(inner, loss, torch)
    dtype = _step.precision(torch, runs.device, mixed_precision)
    strategies = []
    now = _figures_or_none(runs)
    if efficient_attention and _efficient.efficient_attention(torch, inner):
        before, now = now, _figures_or_none(runs)
        if now is not None:
            strategies.append(_strategy("memory-efficient attention", before, now))
    forward = EfficientForward(torch, runs.device.type, dtype, ())
    if dtype is not None:
        name = f"mixed precision ({str(dtype).removeprefix('torch.')})"
        under = _recompute.Runs(inner, forward_loss(forward, loss), torch)
        strategies.append(_strategy(name, now, _figures(under)))
    forward.strategies = tuple(strategies)
    return forward


def forward_loss(forward: EfficientForward, loss: Callable[[], Any]) -> Callable[[], Any]:
    """`loss`, its forward under the context."""

    def under() -> Any:
        with forward:
            return loss()

    return under


__all__ = ["EfficientForward", "Strategy", "efficient_forward"]
