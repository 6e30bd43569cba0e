"""One step of a training: micro-batches, exchange of gradients, update. If memory runs out, the step is undone, and nothing of it
stays in memory.

    make the samples -> zero_grad -> (forward, backward) for each micro-batch -> the ranks agree -> exchange -> update
      an out-of-memory error here ....................................| becomes a word of this rank, outside the `except`
                                                                        (whose traceback would pin the step's tensors)
"""

from __future__ import annotations

import inspect
import itertools
from typing import Any, Callable, NamedTuple

from . import _batches, _events, memory
from ._ladder import parts
from ._ranks import FINE, OUT, OVER, Ranks


class TrainingOutOfMemory(RuntimeError):
    """Raised if memory ran out and no rung is left, or if the update was half done. The text says what was tried, what is in force,
    and what may help. The exception holds no tensor.

        try:
            training.train()
        except neap.TrainingOutOfMemory as error:
            print(error, *error.recommendations, sep="\n")
    """

    recommendations: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """The result of an attempt: FINE, OUT or OVER, of the rank that fared worst."""

    word: int
    loss: float
    reason: str  # if OUT
    cached: int = 0  # if OUT: bytes that were reserved but not allocated then


def _one_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]


def _cached() -> int:
    allocated, reserved, _, _ = _events.held()
    return max(reserved - allocated, 0)


def check_optimizer(optimizer: Any) -> None:
    """Raises TypeError or ValueError for an optimizer that a Training cannot use."""
    if not all(hasattr(optimizer, name) for name in ("step", "zero_grad", "param_groups", "state")):
        raise TypeError(f"optimizer: a {type(optimizer).__name__} is not a torch.optim.Optimizer")
    try:
        closure = inspect.signature(optimizer.step).parameters.get("closure")
    except (TypeError, ValueError):  # its parameters are unknown
        return
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            f"optimizer: {type(optimizer).__name__}.step needs a closure that computes the loss again and again: such an "
            f"update cannot be made again after memory ran out, and is not supported"
        )


def precision(torch: Any, place: Any, wanted: bool | str) -> Any:
    """Returns the type for mixed precision: bfloat16, or float16 if a GPU lacks that; None: no mixed precision."""
    named = {"bf16": torch.bfloat16, "bfloat16": torch.bfloat16, "fp16": torch.float16, "float16": torch.float16}
    if isinstance(wanted, str):
        if wanted not in named:
            raise ValueError(f"mixed_precision {wanted!r}: expected True, False, 'bf16' or 'fp16'")
        return named[wanted]
    if not wanted:
        return None
    if place.type == "cuda" and torch.cuda.get_device_capability(place) < (8, 0):
        return torch.float16
    return torch.bfloat16


class Stepper:
    """Makes steps with one model and optimizer."""

    def __init__(
        self,
        torch: Any,
        model: Any,
        optimizer: Any,
        loss_fn: Any,
        compute: Any,
        place: Any,
        ranks: Ranks,
        tick: Callable[[], None],
    ) -> None:
        self._tick = tick  # called after each micro-batch
        self._torch = torch
        self._model = model
        self._optimizer = optimizer
        self._ranks = ranks
        self._place = place
        self._loss_fn: Callable[..., Any] | None = loss_fn
        self._compute: Callable[[Any, Any], Any] | None = compute
        self.precision(False)

    def precision(self, wanted: bool | str) -> None:
        """Switches mixed precision on or off for the next steps."""
        self._wanted = wanted
        self._dtype = precision(self._torch, self._place, wanted)
        # float16 loses small gradients unless the loss is scaled; otherwise the scaler does nothing.
        kind = getattr(self._torch.amp, "GradScaler", None)
        enabled = self._dtype is self._torch.float16
        # Before PyTorch 2.3 there is only CUDA's.
        self._scaler = kind(self._place.type, enabled=enabled) if kind else self._torch.cuda.amp.GradScaler(enabled=enabled)

    def attempt(self, make: Callable[[], list[Any]] | None, micro_batch: int) -> Outcome:
        """Makes one step over the batches that `make` gives; None: this rank has no more data. FINE: the update is done. Otherwise
        the step is undone, and holds no memory: call it again with less (OUT), or not (OVER). Other exceptions pass through."""
        word = FINE if make else OVER
        reason = "memory ran out on another rank"
        loss = 0.0
        count = 0
        cached = 0
        try:
            if make:
                loss, count = self._gradients(make(), micro_batch)
        except Exception as error:
            if not memory.is_out_of_memory(error):
                raise
            word = OUT
            reason = _one_line(error)
            cached = _cached()
        agreed, counts = self._ranks.agree(word, count, gradients=True)
        if agreed == FINE:
            out = self._complete()
            agreed, reason = (FINE, "") if out is None else (OUT, out)
        if agreed == FINE:
            self._ranks.exchange(count / max(sum(counts), 1))
            out = self._update()
            agreed, reason = (FINE, "") if out is None else (OUT, out)
        return Outcome(agreed, loss, reason, cached)

    def _gradients(self, batches: list[Any], micro_batch: int) -> tuple[float, int]:
        """Computes the gradients of the whole step, part by part; each sample weighs the same. Returns the mean loss, and the
        number of samples."""
        torch = self._torch
        total = 0.0
        counts = [_batches.length(batch) for batch in batches]
        self._optimizer.zero_grad(set_to_none=True)
        for batch, count in zip(batches, counts):
            ends = list(itertools.accumulate(parts(count, micro_batch)))
            for begin, end in zip([0, *ends], ends):
                piece = _batches.cut(batch, begin, end, count, self._placed)
                with torch.autocast(self._place.type, dtype=self._dtype or torch.bfloat16, enabled=self._dtype is not None):
                    loss = self._loss(piece) * ((end - begin) / sum(counts))
                self._scaler.scale(loss).backward()
                total += float(loss.detach())
                del piece, loss
                self._tick()
        return total, sum(counts)

    def first_loss(self, batch: Any, micro_batch: int) -> Callable[[], Any]:
        """Computes the loss of the first part of a batch, without mixed precision; changes nothing."""
        count = _batches.length(batch)
        piece = _batches.cut(batch, 0, parts(count, micro_batch)[0], count, self._placed)
        return lambda: self._loss(piece)

    def _placed(self, value: Any) -> Any:
        torch = self._torch
        if torch.is_tensor(value):
            return value.to(self._place, non_blocking=True)
        return torch.as_tensor(value).to(self._place) if _batches.is_tensor(value) else value.to(self._place)

    def _loss(self, piece: Any) -> Any:
        if self._compute is not None:
            loss = self._compute(self._model, piece)
        else:
            if not isinstance(piece, (tuple, list)) or len(piece) != 2:
                what = f"{len(piece)} parts" if isinstance(piece, (tuple, list)) else f"type {type(piece).__name__}"
                raise TypeError(f"a batch of {what} is not an (input, target): say how its loss is computed with compute=")
            inputs, target = piece
            output = self._model(inputs)
            if self._torch.is_tensor(target) and self._torch.is_tensor(output):
                target = target.to(output.device)  # the model may be on several devices
            assert self._loss_fn is not None
            loss = self._loss_fn(output, target)
        if not self._torch.is_tensor(loss) or loss.numel() != 1:
            shape = f"a tensor of shape {list(loss.shape)}" if self._torch.is_tensor(loss) else type(loss).__name__
            raise TypeError(f"the loss is {shape}: expected one number in a tensor, the mean over the samples")
        return loss

    def _complete(self) -> str | None:
        """Adds zeros for gradients that only other ranks have, so that all exchange the same ones. Returns why it could not; None:
        done."""
        missing = self._ranks.missing()
        word = FINE
        reason = "memory ran out on another rank"
        if missing is None:
            return None
        try:
            for parameter in missing:
                parameter.grad = self._torch.zeros_like(parameter)
        except Exception as error:
            if not memory.is_out_of_memory(error):
                raise
            word = OUT
            reason = _one_line(error)
        return None if self._ranks.agree(word)[0] == FINE else reason

    # The update.

    def _versions(self) -> dict[int, tuple[Any, int]]:
        torch = self._torch
        found = {id(p): (p, p._version) for group in self._optimizer.param_groups for p in group["params"]}
        for state in self._optimizer.state.values():
            found.update({id(v): (v, v._version) for v in state.values() if torch.is_tensor(v)})
        return found

    def _update(self) -> str | None:
        """Calls optimizer.step. Returns why it ran out of memory before it changed anything; None: done."""
        before = self._versions()
        known = {key: set(state) for key, state in self._optimizer.state.items()}
        try:
            self._scaler.step(self._optimizer)
            self._scaler.update()
            return None
        except Exception as error:
            if not memory.is_out_of_memory(error):
                raise
            reason = _one_line(error)
        scale = self._scaler.state_dict()
        self.precision(self._wanted)  # a new scaler, which does not take the next gradients for ones it has seen
        self._scaler.load_state_dict(scale)
        after = self._versions()
        if any(version != before.get(key, (None, 0))[1] for key, (_, version) in after.items()):
            raise TrainingOutOfMemory(
                "memory ran out in the middle of the optimizer's update, which cannot be made again: start from the last "
                "checkpoint, with foreach=False in the optimizer or a smaller model"
            )
        if self._ranks.size > 1:
            raise TrainingOutOfMemory(
                f"memory ran out in the optimizer's update, which other ranks may have made: {reason}. Start from the last "
                f"checkpoint, with foreach=False in the optimizer or a smaller model"
            )
        for key, state in list(self._optimizer.state.items()):  # state that is half made: an optimizer would take it for complete
            for name in set(state) - known.get(key, set()):
                del state[name]
        return reason
