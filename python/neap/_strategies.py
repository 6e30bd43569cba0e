"""Mixed precision and memory-efficient attention for a program's own loop, with their predicted and measured savings.

    before      the peak of forward and backward without it
    predicted   `before`, less the bytes that forward no longer keeps for backward with it
    measured    the peak of forward and backward with it
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from . import _efficient, _recompute, _sources, _step, _units


@dataclasses.dataclass(frozen=True)
class Strategy:
    """The effect of one strategy, in bytes. None: without it, the run did not fit on the device."""

    name: str
    before: int | None
    predicted: int | None
    measured: int

    def __str__(self) -> str:
        before = "did not fit before" if self.before is None else f"{_units.size(self.before)} before"
        predicted = "" if self.predicted is None else f", {_units.size(self.predicted)} predicted"
        return f"{self.name}: {before}{predicted}, {_units.size(self.measured)} measured"


class EfficientForward(contextlib.AbstractContextManager):  # type: ignore[type-arg]
    """The result of efficient_forward: a context for the forward pass, like torch.autocast, and its savings."""

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
    """Returns the peak of a run, and the bytes that its forward keeps for backward."""
    return runs.peak({}), runs.dry({}).total()


def _figures_or_none(runs: _recompute.Runs) -> tuple[int, int] | None:
    """The same; None if the run does not fit."""
    peak = _recompute.peak_or_none(runs, {})
    return None if peak is None else (peak, runs.dry({}).total())


def _strategy(name: str, before: tuple[int, int] | None, now: tuple[int, int]) -> Strategy:
    if before is None:
        return Strategy(name, None, None, now[0])
    return Strategy(name, before[0], before[0] - (before[1] - now[1]), now[0])


def efficient_forward(
    model: Any, loss: Callable[[], Any], mixed_precision: bool | str = False, efficient_attention: bool = True
) -> EfficientForward:
    """Switches on memory-efficient attention and mixed precision for the program's own loop, and reports what each saves.

        forward = neap.efficient_forward(model, lambda: criterion(model(inputs), targets), mixed_precision="bf16")
        print(forward)
        for inputs, targets in data:
            with forward:
                loss = criterion(model(inputs), targets)
            loss.backward()

    `loss` computes the loss of a batch as large as the training's. It is called a few times, with backward. Gradients, buffers and
    random numbers stay as they were. Attention: scaled_dot_product_attention may choose its flash and memory-efficient kernels, and
    a model of transformers that computes attention itself ("eager") uses it; `efficient_attention=False` leaves it as it is. It
    stays on. Mixed precision as in Training; "fp16" needs a GradScaler in the loop. On the CPU the figures are bytes kept for
    backward. Raises ValueError if torch was not imported; exceptions of `loss` pass through."""
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
    """Returns `loss`, with its forward under the context."""

    def under() -> Any:
        with forward:
            return loss()

    return under


class Strategies:
    """The strategies of a Training. Attention is efficient from the first step on. With a budget, all layers are checkpointed in
    the first step; before the second, when the optimizer's state exists, the layers are chosen."""

    def __init__(self, torch: Any, model: Any, efficient_attention: bool, checkpointing: bool | int | str, measure: bool) -> None:
        self._torch = torch
        self._model = model
        self._attention = efficient_attention
        self._measure = measure
        self._budget = None if isinstance(checkpointing, bool) else _units.parse_size(checkpointing)
        self._layers = _efficient.unchecked(model, torch) if self._budget is not None else []
        for layer in self._layers:
            _efficient.recompute(layer)
        if efficient_attention and not measure:
            _efficient.efficient_attention(torch, model)
        self.found: tuple[Strategy, ...] = ()

    def due(self, step: int) -> bool:
        """Returns whether before_step has work before the step with this number, from 1."""
        return (step == 1 and self._measure) or (step == 2 and bool(self._layers))

    def before_step(self, loss: Callable[[], Any], mixed_precision: bool | str, held: int) -> None:
        """Called before a step. `loss`: of a micro-batch, without autocast. `held`: other bytes that a step holds, such as
        gradients of other parts."""
        if self._measure:
            self._measure = False
            forward = efficient_forward(self._model, loss, mixed_precision, self._attention)
            self.found = forward.strategies
            return
        device = next(self._model.parameters()).device
        dtype = _step.precision(self._torch, device, mixed_precision)
        layers, self._layers = self._layers, []
        for layer in layers:
            _efficient.keep(layer)
        under = forward_loss(EfficientForward(self._torch, device.type, dtype, ()), loss)
        assert self._budget is not None
        plan = _recompute.checkpoint_within(self._model, max(self._budget - held, 0), under)
        missed = "" if plan.fits else f"; the budget of {_units.size(self._budget)} cannot be met"
        name = f"gradient checkpointing ({len(plan.chosen)} of {plan.layers} layers{missed})"
        self.found = (*self.found, Strategy(name, plan.before, plan.predicted, plan.measured))


__all__ = ["EfficientForward", "Strategies", "Strategy", "efficient_forward"]
