"""Checkpoints the activations of chosen modules, so that forward and backward fit into a budget.

    dry run        each layer: bytes that it keeps for backward, milliseconds of its forward, the peak of its backward
    choose (pure)  the layers whose forward takes the fewest milliseconds among those that bring the predicted peak within
                   the budget: a knapsack, solved by dynamic programming
    check          a run with the choice; if its peak is still above the budget, one more layer, and again

The prediction: the bytes that a chosen layer would keep are free until its own backward. So

    peak = max(peak of forward - savings of the chosen, for each layer: peak of its backward - savings of the chosen before it)
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _efficient, _sources, _units, memory

log = logging.getLogger("neap")

_GRAINS = 1 << 12  # grains of all savings together, in choose()


@dataclasses.dataclass(frozen=True)
class Layer:
    """The figures of a layer that may be computed again, from a dry run."""

    name: str
    saving: int  # bytes that it keeps for backward, beside its inputs and outputs
    milliseconds: float  # of its forward
    peak: int  # the highest bytes from the beginning of its backward to that of the layer before


@dataclasses.dataclass(frozen=True)
class CheckpointPlan:
    """The result of checkpoint_within. All bytes are of `what`."""

    what: str  # "allocated on cuda:0"; on the CPU "kept for backward"
    budget: int
    before: int | None  # the peak without checkpointing; None: it does not fit on the device, and every layer is chosen
    predicted: int | None
    measured: int
    chosen: tuple[Layer, ...]
    layers: int  # how many it could choose from

    @property
    def fits(self) -> bool:
        """Whether the measured peak is within the budget."""
        return self.measured <= self.budget

    @property
    def milliseconds(self) -> float:
        """The cost of a step: the forward of the chosen layers once more."""
        return sum(layer.milliseconds for layer in self.chosen)

    def __str__(self) -> str:
        before = "did not fit before" if self.before is None else f"{_units.size(self.before)} before"
        predicted = "" if self.predicted is None else f", {_units.size(self.predicted)} predicted"
        cost = "" if self.before is None else f" ({self.milliseconds:.1f} ms a step)"
        over = "" if self.fits else f": the budget cannot be met, {_units.size(self.measured - self.budget)} are missing"
        return (
            f"{len(self.chosen)} of {self.layers} layers are computed again{cost}; {self.what}: "
            f"{before}, budget {_units.size(self.budget)}{predicted}, {_units.size(self.measured)} measured{over}"
        )


def predicted_peak(layers: Sequence[Layer], forward: int, chosen: set[int]) -> int:
    """Predicts the peak, as described at the top. `forward`: the peak of forward without checkpointing."""
    saved = 0
    highest = forward - sum(layers[i].saving for i in chosen)
    for i, layer in enumerate(layers):
        highest = max(highest, layer.peak - saved)
        saved += layer.saving if i in chosen else 0
    return highest


def choose(layers: Sequence[Layer], forward: int, budget: int) -> set[int]:
    """Returns the layers to compute again: the cheapest ones for which predicted_peak is within the budget; every one that saves
    something, if the budget cannot be met.

    Layer by layer, `ways` holds the bytes saved so far, with the least milliseconds for them. A way is dropped if it saves less and
    costs more than another, or if it saved too little before a layer's backward. Savings count in grains, rounded down."""
    grain = sum(layer.saving for layer in layers if layer.saving > 0) // _GRAINS + 1
    ways: list[tuple[int, float, int]] = [(0, 0.0, 0)]  # grains saved, milliseconds, the chosen ones as bits
    for i, layer in enumerate(layers):
        ways = [way for way in ways if layer.peak - way[0] * grain <= budget]
        if layer.saving > 0:
            also = [(saved + layer.saving // grain, cost + layer.milliseconds, bits | 1 << i) for saved, cost, bits in ways]
            ways = _not_dominated([*ways, *also])
    ways = [way for way in ways if forward - way[0] * grain <= budget]
    if not ways:
        return {i for i, layer in enumerate(layers) if layer.saving > 0}
    bits = min(ways, key=lambda way: way[1])[2]
    return {i for i in range(len(layers)) if bits >> i & 1}


def _not_dominated(ways: list[tuple[int, float, int]]) -> list[tuple[int, float, int]]:
    """Returns the ways that cost less than every other way that saves as much."""
    kept: list[tuple[int, float, int]] = []
    for way in sorted(ways, key=lambda way: (-way[0], way[1])):
        if not kept or way[1] < kept[-1][1]:
            kept.append(way)
    return kept


class _Dry:
    """Watches one run: what each layer keeps, and how long its forward takes."""

    def __init__(self, model: Any, layers: dict[str, Any], torch: Any) -> None:
        self._torch = torch
        self._layers = layers
        self._weights = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
        self._inside: list[str] = []
        self._began: list[float] = []
        self._outer: dict[str, set[int]] = {name: set() for name in layers}  # storages of inputs and outputs
        self.kept: dict[str, dict[int, int]] = {"": {}, **{name: {} for name in layers}}
        self.milliseconds = dict.fromkeys(layers, 0.0)

    def tensors(self, values: Any) -> Iterator[Any]:
        if self._torch.is_tensor(values):
            yield values
        elif isinstance(values, dict):
            for value in values.values():
                yield from self.tensors(value)
        elif isinstance(values, (list, tuple)):
            for value in values:
                yield from self.tensors(value)

    def _wait(self) -> None:
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()

    def _enter(self, name: str, values: Any) -> None:
        self._outer[name] |= {t.untyped_storage().data_ptr() for t in self.tensors(values)}
        self._inside.append(name)
        self._wait()
        self._began.append(time.perf_counter())

    def _leave(self, name: str, values: Any) -> None:
        self._wait()
        self.milliseconds[name] += 1000 * (time.perf_counter() - self._began.pop())
        self._inside.pop()
        self._outer[name] |= {t.untyped_storage().data_ptr() for t in self.tensors(values)}

    def _pack(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._weights:
            self.kept[self._inside[-1] if self._inside else ""].setdefault(storage.data_ptr(), storage.nbytes())
        return tensor.detach()  # the tensor itself would keep its graph alive, and the graph the tensor

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        handles = []
        for name, layer in self._layers.items():
            before = layer.register_forward_pre_hook(
                lambda _, inputs, named, name=name: self._enter(name, (inputs, named)), with_kwargs=True
            )
            after = layer.register_forward_hook(lambda _, inputs, output, name=name: self._leave(name, output))
            handles += [before, after]
        try:
            with self._torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def saving(self, name: str) -> int:
        """Bytes that the layer keeps besides its inputs and outputs."""
        return sum(size for at, size in self.kept[name].items() if at not in self._outer[name])

    def total(self) -> int:
        """All bytes kept for backward, each storage once."""
        return sum({at: size for kept in self.kept.values() for at, size in kept.items()}.values())


class Runs:
    """Runs forward and backward without a trace: gradients, buffers and random numbers stay as they were."""

    def __init__(self, model: Any, loss: Callable[[], Any], torch: Any) -> None:
        self._model = model
        self._loss = loss
        self._torch = torch
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError("checkpoint_within: the model has no parameter that needs a gradient")
        self._parameters = parameters
        self.device = parameters[0].device
        self.on_cuda = self.device.type == "cuda"

    def _run(self) -> None:
        loss = self._loss()
        self._torch.autograd.grad(loss, self._parameters, allow_unused=True)

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        kept = [(buffer, buffer.detach().clone()) for buffer in self._model.buffers()]
        with self._torch.random.fork_rng(devices=[self.device] if self.on_cuda else []):
            yield
        with self._torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)

    def peak(self, layers: dict[str, Any]) -> int:
        """Returns the highest allocated bytes of a run; on the CPU, the bytes that it keeps for backward."""
        if not self.on_cuda:
            dry = _Dry(self._model, layers, self._torch)
            with self._unchanged(), dry.watching():
                self._loss()
            return dry.total()
        with self._unchanged():
            self._torch.cuda.synchronize(self.device)
            self._torch.cuda.reset_peak_memory_stats(self.device)
            self._run()
            self._torch.cuda.synchronize(self.device)
            return int(self._torch.cuda.max_memory_allocated(self.device))

    def peaks(self, layers: dict[str, Any], dry: _Dry) -> dict[str, int]:
        """Returns the peak of forward, under "", and of each layer's backward. On the CPU, the bytes kept for backward at that
        time."""
        if not self.on_cuda:
            kept = dry.total() - sum(dry.saving(name) for name in layers)
            found = {"": dry.total()}
            for name in layers:
                kept += dry.saving(name)
                found[name] = kept
            return found
        cuda = self._torch.cuda
        found = dict.fromkeys(["", *layers], 0)
        now = [""]

        def begin(name: str) -> None:
            found[now[0]] = max(found[now[0]], int(cuda.max_memory_allocated(self.device)))
            cuda.reset_peak_memory_stats(self.device)
            now[0] = name

        def produced(name: str, output: Any) -> None:
            for tensor in dry.tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(lambda _: begin(name))
                    return

        handles = [
            layer.register_forward_hook(lambda _, __, output, name=name: produced(name, output)) for name, layer in layers.items()
        ]
        try:
            with self._unchanged():
                cuda.reset_peak_memory_stats(self.device)
                self._run()
                begin("")
        finally:
            for handle in handles:
                handle.remove()
        return found

    def dry(self, layers: dict[str, Any]) -> _Dry:
        dry = _Dry(self._model, layers, self._torch)
        with self._unchanged(), dry.watching():
            self._loss()
        return dry


def checkpoint_within(model: Any, budget: int | str, loss: Callable[[], Any]) -> CheckpointPlan:
    """Makes as few layers as possible compute their activations again, so that forward and backward stay within `budget` ("20GiB"),
    and reports the result.

        plan = neap.checkpoint_within(model, "20GiB", loss=lambda: criterion(model(inputs), targets))
        print(plan)

    `loss` computes the loss of a batch as large as the training's. It is called a few times, with backward; gradients, buffers and
    random numbers stay as they were. The layers are the children of the model's outermost lists (ModuleList, Sequential) that have
    parameters; neap measures what they save per millisecond. The optimizer's state is in the figures once it exists: call this
    after the first update, or leave room for it. On the CPU the figures are bytes kept for backward. If the budget cannot be met,
    every layer that helps is chosen, `plan.fits` is False, and a warning is logged. If the model does not fit on the device without
    checkpointing, every layer is chosen, and `plan.before` is None. Raises ValueError for a model without parameters to train, and
    if torch was not imported; exceptions of `loss` pass through."""
    torch = _sources.torch_module()
    if torch is None:
        raise ValueError("checkpoint_within: torch is not imported")
    limit = budget if isinstance(budget, int) else _units.parse_size(budget)
    inner = _efficient.unwrapped(model, torch)
    names = {id(module): name for name, module in inner.named_modules()}
    layers = {names[id(layer)]: layer for layer in _efficient.unchecked(inner, torch)}
    runs = Runs(inner, loss, torch)
    what = f"allocated on {runs.device}" if runs.on_cuda else "kept for backward"
    before = peak_or_none(runs, layers)
    plan = _all(runs, layers, what, limit) if before is None else _choose(runs, layers, what, limit, before)
    if not plan.fits:
        log.warning("checkpoint_within: %s", plan)
    return plan


def _choose(runs: Runs, layers: dict[str, Any], what: str, limit: int, before: int) -> CheckpointPlan:
    dry = runs.dry(layers)
    peaks = runs.peaks(layers, dry)
    found = [Layer(name, dry.saving(name), dry.milliseconds[name], peaks[name]) for name in layers]
    chosen = choose(found, peaks[""], limit)
    measured = _check(runs, layers, found, chosen, limit) if chosen else before
    picked = tuple(layer for i, layer in enumerate(found) if i in chosen)
    return CheckpointPlan(what, limit, before, predicted_peak(found, peaks[""], chosen), measured, picked, len(found))


def peak_or_none(runs: Runs, layers: dict[str, Any]) -> int | None:
    """Returns the peak of a run; None if memory runs out."""
    try:
        runs.peak(layers)  # the first run is slower, and allocates memory that stays
        return runs.peak(layers)
    except Exception as error:
        if not memory.is_out_of_memory(error):
            raise
    return None


def _all(runs: Runs, layers: dict[str, Any], what: str, limit: int) -> CheckpointPlan:
    """Plans to compute every layer again, if the model does not fit otherwise: then nothing can measure what one layer saves."""
    for layer in layers.values():
        _efficient.recompute(layer)
    measured = runs.peak(layers)
    return CheckpointPlan(what, limit, None, None, measured, tuple(Layer(name, 0, 0.0, 0) for name in layers), len(layers))


def _check(runs: Runs, layers: dict[str, Any], found: Sequence[Layer], chosen: set[int], limit: int) -> int:
    """Switches the chosen ones on and measures; adds layers while the peak is above the limit."""
    for i in chosen:
        _efficient.recompute(layers[found[i].name])
    measured = runs.peak(layers)
    left = sorted(set(range(len(found))) - chosen, key=lambda i: found[i].saving / max(found[i].milliseconds, 1e-6))
    while measured > limit and left:
        i = left.pop()
        if found[i].saving <= 0:
            continue
        chosen.add(i)
        _efficient.recompute(layers[found[i].name])
        measured = runs.peak(layers)
    return measured


__all__ = ["CheckpointPlan", "Layer", "checkpoint_within", "choose", "predicted_peak"]
