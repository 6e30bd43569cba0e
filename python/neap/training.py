"""Training: a loop that stays inside memory. Steps go on with less when memory runs out, and the effective batch stays.

    step:  zero_grad -> micro-batches (forward, backward) -> [ranks agree] -> optimizer.step
             | out of memory: what the step allocated is dropped, outside the `except` (whose traceback would pin it)
             +-> clear -> one rung down -> the same samples again

Rungs, from the gentlest: a smaller micro-batch with more accumulation, memory-efficient attention, gradient checkpointing,
and, only where asked for, mixed precision (it changes numerics). With torch.distributed, each rank says whether it ran out
before gradients are exchanged: all take the rung, or all fail; none waits for one that is gone.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from typing import Any, Callable, Iterator, Optional, Union

from . import _abi, _efficient, _events, _sources, _units, memory
from ._abi import Rung
from ._ladder import Split, next_rung, rung_name
from .manager import Growing, MemoryManager
from .moving import save_checkpoint

log = logging.getLogger("neap")

_FINE, _OUT, _FAILED = 0, 1, 2  # what a rank says of its part of a step; the highest counts


class TrainingOutOfMemory(RuntimeError):
    """Memory ran out and no rung is left. The text is the last word: what was tried, and what is in force."""


@dataclasses.dataclass(frozen=True)
class Milestone:
    """An instant and what was held then."""

    name: str
    step: int
    stats: memory.MemoryStats


@dataclasses.dataclass(frozen=True)
class RungTaken:
    """A step down the ladder."""

    step: int
    what: str
    why: str
    split: Split  # from then on


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """What became of a training."""

    steps: int
    epochs: int
    losses: tuple[float, ...]  # one per step, the mean over this rank's samples
    ooms: int
    rungs: tuple[RungTaken, ...]
    split: Split  # in force at the end
    milestones: tuple[Milestone, ...]
    cleanups: int
    cleanup_freed: int
    cleanup_seconds: float
    growing: tuple[Growing, ...]
    stopped: str  # why it stopped early; "" otherwise
    seconds: float


def _size(value: Optional[Union[int, str]]) -> Optional[int]:
    return None if value is None else _units.parse_size(value)


def _length(batch: Any) -> int:
    if hasattr(batch, "shape"):
        return int(batch.shape[0])
    parts = batch.values() if isinstance(batch, dict) else batch
    return next(_length(part) for part in parts if hasattr(part, "shape") or isinstance(part, (dict, list, tuple)))


def _cut(batch: Any, begin: int, end: int, place: Callable[[Any], Any]) -> Any:
    """Samples begin..end of a batch, each tensor put in its place."""
    if hasattr(batch, "shape"):
        return place(batch[begin:end])
    if isinstance(batch, dict):
        return {key: _cut(value, begin, end, place) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_cut(value, begin, end, place) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_cut(value, begin, end, place) for value in batch)
    return batch


def _free_bytes() -> Optional[int]:
    """Free memory of the fullest device; None where nobody says."""
    return min((d.free for d in memory.get_gpu_memory_stats().devices if d.free is not None), default=None)


class _Schedule:
    """When to clean up: pure."""

    def __init__(self, every_steps: int, every_epochs: int) -> None:
        self.every_steps, self.every_epochs = every_steps, every_epochs

    def after_step(self, step: int) -> bool:
        return self.every_steps > 0 and step % self.every_steps == 0

    def after_epoch(self, epoch: int) -> bool:
        return self.every_epochs > 0 and epoch % self.every_epochs == 0


class Training:
    """Trains a model; see the module's text.

    `data`: a tuple of tensors of the same length, a map-style dataset of (input, target), or a DataLoader, each of whose
    batches is then one step's samples of this rank. Per step `batch_size` x `accumulate` samples (x ranks).
    `loss_fn(model(input), target)` is a mean over its samples; `compute(model, batch)` replaces that for other models.
    The model is on its device already. Under DistributedDataParallel its module is trained, and gradients are averaged here.

    `memory_limit`: a share of the device (0 < f <= 1), or a size. `warn_below`, `degrade_below`, `stop_below`: free device
    memory at which to warn, to take a rung, to stop early and cleanly; `host_stop_below`: free host memory at which to stop.
    Cleaning up every step slows training (it synchronises and allocates anew): it is offered, and its cost is in the result.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss_fn: Callable[..., Any],
        data: Any,
        epochs: int = 1,
        *,
        batch_size: int = 32,
        accumulate: int = 1,
        mixed_precision: bool = False,
        gradient_checkpointing: bool = False,
        memory_limit: Optional[Union[float, int, str]] = None,
        clear_memory_on_start: bool = True,
        clear_memory_on_end: bool = False,
        clear_memory_after_save: bool = False,
        cleanup_every_steps: int = 0,
        cleanup_every_epochs: int = 0,
        warn_below: Optional[Union[int, str]] = None,
        degrade_below: Optional[Union[int, str]] = None,
        stop_below: Optional[Union[int, str]] = None,
        host_stop_below: Optional[Union[int, str]] = None,
        ladder: bool = True,
        allow_checkpointing: bool = True,
        allow_mixed_precision: bool = False,
        shuffle: bool = True,
        seed: int = 0,
        checkpoint_path: Optional[str] = None,
        milestone_every_steps: int = 0,
        leak_watch_every_steps: int = 200,
        compute: Optional[Callable[[Any, Any], Any]] = None,
        on_step: Optional[Callable[[int, float], None]] = None,
    ) -> None:
        torch = _sources.torch_module()
        if torch is None:
            raise RuntimeError("Training needs torch to be imported")
        if batch_size < 1 or accumulate < 1 or epochs < 0:
            raise ValueError("Training: batch_size and accumulate are at least 1, epochs at least 0")
        if cleanup_every_steps < 0 or cleanup_every_epochs < 0:
            raise ValueError("Training: cleanup_every_steps and cleanup_every_epochs are at least 0 (never)")
        if isinstance(memory_limit, float) and not 0 < memory_limit <= 1:
            raise ValueError(f"Training: memory_limit {memory_limit}: a share is above 0 and at most 1")
        if isinstance(memory_limit, (int, str)):
            memory_limit = _units.parse_size(memory_limit)
        self._torch, self._dist = torch, self._distributed(torch)
        ranks = self._dist.get_world_size() if self._dist else 1
        self._rank = self._dist.get_rank() if self._dist else 0
        wrapped = getattr(torch.nn.parallel, "DistributedDataParallel", ())
        self.model = model.module if wrapped and isinstance(model, wrapped) else model
        self.optimizer, self.loss_fn, self.data, self.epochs = optimizer, loss_fn, data, epochs
        self.split = Split(batch_size, accumulate, ranks)
        self.mixed_precision = mixed_precision
        self._memory_limit: Optional[Union[float, int]] = memory_limit
        self._clear_start, self._clear_end, self._clear_saved = clear_memory_on_start, clear_memory_on_end, clear_memory_after_save
        self._schedule = _Schedule(cleanup_every_steps, cleanup_every_epochs)
        self._warn, self._degrade, self._stop = _size(warn_below), _size(degrade_below), _size(stop_below)
        self._host_stop = _size(host_stop_below)
        self._ladder, self._allow_checkpointing = ladder, allow_checkpointing
        self._allow_mixed, self._shuffle, self._seed = allow_mixed_precision, shuffle, seed
        self._checkpoint_path, self._milestone_every = checkpoint_path, milestone_every_steps
        self._compute, self._on_step = compute, on_step
        self._place = next(self.model.parameters()).device
        self._manager = MemoryManager(
            memory_cleanup_frequency=max(leak_watch_every_steps, 1), device_types=(self._place.type,)
        )
        self._watch_every = leak_watch_every_steps
        self._step, self._ooms, self._stopped, self._warned = 0, 0, "", False
        self._losses: list[float] = []
        self._rungs: list[RungTaken] = []
        self._milestones: list[Milestone] = []
        self._cleanups: list[memory.ClearResult] = []
        self._active: set[Rung] = {Rung.MIXED_PRECISION} if mixed_precision else set()
        if gradient_checkpointing:
            self._active.add(Rung.CHECKPOINTING)
        if gradient_checkpointing and not _efficient.checkpoint_layers(self.model, torch):
            log.warning("gradient_checkpointing: the model has no list of layers to checkpoint, or does it already")
        self._word = torch.zeros(1, device=self._place)  # what the ranks agree in; made while there is memory

    @staticmethod
    def _distributed(torch: Any) -> Any:
        dist = torch.distributed
        return dist if dist.is_available() and dist.is_initialized() else None

    # Data.

    def _batches(self, epoch: int) -> Iterator[Any]:
        """One step's samples of this rank at a time."""
        torch, each = self._torch, self.split.micro_batch * self.split.accumulate
        if isinstance(self.data, torch.utils.data.DataLoader):
            yield from self.data
            return
        tensors = isinstance(self.data, tuple) and all(hasattr(part, "shape") for part in self.data)
        count = len(self.data[0]) if tensors else len(self.data)
        order = list(range(count))
        if self._shuffle:
            random.Random(self._seed * 1_000_003 + epoch).shuffle(order)  # the same on every rank
        if self.split.ranks > 1:  # whole steps only, so that every rank makes the same number
            order = order[: count // (each * self.split.ranks) * each * self.split.ranks]
            order = order[self._rank :: self.split.ranks]
        for begin in range(0, len(order), each):
            chosen = order[begin : begin + each]
            if tensors:
                index = torch.tensor(chosen)
                yield tuple(part[index.to(part.device)] for part in self.data)
            else:
                yield torch.utils.data.default_collate([self.data[i] for i in chosen])

    # One step.

    def _loss(self, piece: Any) -> Any:
        if self._compute is not None:
            return self._compute(self.model, piece)
        inputs, targets = piece
        return self.loss_fn(self.model(inputs), targets)

    def _micro_batches(self, batch: Any) -> float:
        """Gradients of the whole batch, piece by piece; its mean loss."""
        torch, total, count = self._torch, 0.0, _length(batch)
        self.optimizer.zero_grad(set_to_none=True)
        for begin in range(0, count, self.split.micro_batch):
            end = min(begin + self.split.micro_batch, count)
            piece = _cut(batch, begin, end, lambda t: t.to(self._place, non_blocking=True))
            with torch.autocast(self._place.type, dtype=torch.bfloat16, enabled=self.mixed_precision):
                loss = self._loss(piece) * ((end - begin) / count)
            loss.backward()
            total += float(loss.detach())
        return total

    def _agree(self, word: int) -> int:
        """The worst that any rank has to say. Every rank asks at the same places."""
        if self._dist is None:
            return word
        self._word.fill_(float(word))
        self._dist.all_reduce(self._word, op=self._dist.ReduceOp.MAX)
        return int(self._word.item())

    def _exchange(self) -> None:
        if self._dist is None:
            return
        torch, parameters = self._torch, [p for p in self.model.parameters() if p.requires_grad]
        # A parameter that one rank did not use has no gradient there: all have to exchange the same ones, or they wait.
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.float32, device=self._place)
        self._dist.all_reduce(used, op=self._dist.ReduceOp.MAX)
        for parameter, anywhere in zip(parameters, used.tolist()):
            if anywhere:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self._dist.all_reduce(parameter.grad)
                parameter.grad /= self.split.ranks

    def _versions(self) -> dict[int, tuple[Any, int]]:
        torch = self._torch
        found = {id(p): (p, p._version) for group in self.optimizer.param_groups for p in group["params"]}
        for state in self.optimizer.state.values():
            found.update({id(v): (v, v._version) for v in state.values() if torch.is_tensor(v)})
        return found

    def _update(self) -> None:
        """optimizer.step. One that ran out of memory half-way cannot be made again: the update would be applied twice."""
        before = self._versions()
        try:
            self.optimizer.step()
        except Exception as error:
            after = self._versions()
            changed = any(version != before.get(key, (None, 0))[1] for key, (_, version) in after.items())
            if memory.is_out_of_memory(error) and changed:
                raise TrainingOutOfMemory(
                    "memory ran out in the middle of the optimizer's update, which cannot be made again: start from the last "
                    "checkpoint, with foreach=False in the optimizer or a smaller model"
                ) from None
            raise

    def _attempt(self, batch: Any) -> tuple[float, Optional[str]]:
        """The step's loss; or, with the reason, that memory ran out here or on another rank. What the failed step held is
        not held any more once this has returned."""
        word, reason, failure, loss = _FINE, "memory ran out on another rank", None, 0.0
        try:
            loss = self._micro_batches(batch)
        except Exception as error:
            word = _OUT if memory.is_out_of_memory(error) else _FAILED
            reason = str(error).split("\n", 1)[0]
            failure = error if word == _FAILED else None
            del error
        if failure is not None:
            self._agree(_FAILED)
            raise failure
        said = self._agree(word)
        if said == _FAILED:
            raise RuntimeError("another rank failed: this one stops as well")
        if said == _OUT:
            return 0.0, reason
        self._exchange()
        out = self._try_update()
        return loss, out

    def _try_update(self) -> Optional[str]:
        reason = None
        try:
            self._update()
        except Exception as error:
            if not memory.is_out_of_memory(error) or self._dist is not None:
                self._agree(_FAILED)
                raise
            reason = str(error).split("\n", 1)[0]
        if self._dist is not None and self._agree(_FINE) == _FAILED:
            raise RuntimeError("another rank failed in its optimizer: this one stops as well")
        return reason

    def _one_step(self, batch: Any) -> None:
        while True:
            loss, reason = self._attempt(batch)
            if reason is None:
                break
            # Outside any `except`: no traceback pins the step's tensors any more.
            self._ooms += 1
            self.optimizer.zero_grad(set_to_none=True)
            log.warning("Out of memory at step %d: %s", self._step + 1, reason)
            self._mark(_abi.Mark.OOM, "oom")
            self._clear(_abi.Reason.OOM)
            self._rung(reason)
        self._step += 1
        self._losses.append(loss)
        _events.step(self._step, loss, self.split)
        if self._on_step is not None:
            self._on_step(self._step, loss)

    # The ladder.

    def _rung(self, why: str) -> None:
        """Takes the next rung, or raises the last word."""
        before, taken = self.split, self._next_rung()
        if taken is None:
            raise TrainingOutOfMemory(
                f"memory ran out at step {self._step + 1} and no rung is left: {why}. In force: {self.split}, "
                f"mixed precision {'on' if self.mixed_precision else 'off'}; taken: "
                f"{', '.join(r.what for r in self._rungs) or 'none'}. A smaller model or a larger device is needed"
            )
        kind, what = taken
        self._rungs.append(RungTaken(self._step + 1, what, why, self.split))
        _events.rung(kind, before, self.split, self._active)
        log.warning("Going on with less: %s (effective batch %d stays)", what, self.split.effective)

    def _next_rung(self) -> Optional[tuple[Rung, str]]:
        """Takes the next rung that libneap chooses of those this loop can take; None at the ladder's end."""
        offered = {Rung.SPLIT}
        if self._place.type == "cuda" and not _efficient.attention_is_efficient(self._torch):
            offered.add(Rung.EFFICIENT_ATTENTION)
        if self._allow_mixed:
            offered.add(Rung.MIXED_PRECISION)
        if self._allow_checkpointing and _efficient.can_checkpoint(self.model, self._torch):
            offered.add(Rung.CHECKPOINTING)
        rung, split = next_rung(self.split, self._active, offered) if self._ladder else (Rung.STOP, self.split)
        if rung == Rung.STOP:
            return None
        if rung == Rung.SPLIT:
            self.split = split
            return rung, f"micro_batch {split.micro_batch}, accumulate {split.accumulate}"
        self._active.add(rung)
        if rung == Rung.EFFICIENT_ATTENTION:
            _efficient.efficient_attention(self._torch)
        elif rung == Rung.MIXED_PRECISION:
            self.mixed_precision = True
        elif rung == Rung.CHECKPOINTING:
            _efficient.checkpoint_layers(self.model, self._torch)
        return rung, rung_name(rung)

    def _thresholds(self) -> None:
        """Warn, degrade, stop: by the device's free memory, and the host's."""
        wanted = [t for t in (self._warn, self._degrade, self._stop) if t is not None]
        free = _free_bytes() if wanted else None
        if free is not None and self._degrade is not None and free < self._degrade:
            self._clear(_abi.Reason.PERIODIC)
            free = _free_bytes()
        word = _FINE
        if free is not None:
            if self._warn is not None and free < self._warn and not self._warned:
                self._warned = True
                log.warning("Low device memory: %s free", _units.size(free))
            word = _OUT if self._degrade is not None and free < self._degrade else _FINE
            word = _FAILED if self._stop is not None and free < self._stop else word
        if self._host_stop is not None and memory.host_available_bytes() < self._host_stop:
            word = _FAILED
        if not wanted and self._host_stop is None:
            return
        said = self._agree(word)
        if said == _FAILED:
            self._stopped = f"low memory after step {self._step}"
        elif said == _OUT:
            before, taken = self.split, self._next_rung()
            if taken is not None:
                self._rungs.append(RungTaken(self._step, taken[1], "low device memory", self.split))
                _events.rung(taken[0], before, self.split, self._active)
                log.warning("Low device memory: going on with %s", taken[1])

    # Around the steps.

    def _mark(self, mark: _abi.Mark, name: str, value: int = 0) -> None:
        self._milestones.append(Milestone(name, self._step, memory.log_gpu_memory_stats(name)))
        _events.mark(mark, name, value)

    def _clear(self, reason: _abi.Reason) -> None:
        self._cleanups.append(memory.clear_gpu_memory())
        _events.cleanup(reason, max(self._cleanups[-1].freed, 0), self._cleanups[-1].seconds)

    def _limit(self) -> None:
        limit = self._memory_limit
        if limit is None:
            return
        if isinstance(limit, float):
            memory.set_memory_fraction(limit)  # which warns where it limits nothing
            return
        totals = {d.index: d.total for d in memory.get_gpu_memory_stats().devices if d.total}
        for index, total in totals.items():
            memory.set_memory_fraction(min(limit / total, 1.0), index)
        if not totals:
            log.warning("No memory was limited: %s", _sources.why_none())

    def _after_step(self) -> None:
        if self._schedule.after_step(self._step):
            self._clear(_abi.Reason.EVERY_STEP if self._schedule.every_steps == 1 else _abi.Reason.PERIODIC)
        if self._milestone_every and self._step % self._milestone_every == 0:
            self._mark(_abi.Mark.EVERY_N, f"step {self._step}")
        if self._watch_every and self._step % self._watch_every == 0:
            self._manager.look()
        self._thresholds()

    def _after_epoch(self, epoch: int) -> None:
        self._mark(_abi.Mark.EPOCH_END, f"epoch {epoch}", epoch)
        if self._schedule.after_epoch(epoch):
            self._clear(_abi.Reason.EPOCH)
        if self._checkpoint_path and self._rank == 0:
            save_checkpoint(self._checkpoint_path, self.model, self.optimizer, epoch=epoch, step=self._step)
            self._mark(_abi.Mark.SAVED, "saved", self._step)
            if self._clear_saved:
                self._clear(_abi.Reason.SAVED)

    def train(self) -> TrainingResult:
        """Trains to the end, to a threshold, or to the ladder's end (TrainingOutOfMemory, after a cleanup)."""
        with _events.training():
            return self._train()

    def _train(self) -> TrainingResult:
        began, epoch = time.monotonic(), 0
        if self._clear_start:
            self._clear(_abi.Reason.START)
        self._limit()
        self._mark(_abi.Mark.START, "start")
        self._mark(_abi.Mark.MODEL_READY, "model ready")
        self._mark(_abi.Mark.OPTIMIZER_READY, "optimizer ready")
        _events.split(self.split, self._active)
        self.model.train()
        try:
            while epoch < self.epochs and not self._stopped:
                for batch in self._batches(epoch):
                    self._one_step(batch)
                    self._after_step()
                    if self._stopped:
                        break
                else:
                    epoch += 1
                    self._after_epoch(epoch)
        except TrainingOutOfMemory:
            self.optimizer.zero_grad(set_to_none=True)
            self._clear(_abi.Reason.FAILURE)
            raise
        if self._clear_end:
            self._clear(_abi.Reason.END)
        self._mark(_abi.Mark.END, "end")
        if self._stopped:
            log.warning("Stopped early: %s", self._stopped)
        return TrainingResult(
            self._step,
            epoch,
            tuple(self._losses),
            self._ooms,
            tuple(self._rungs),
            self.split,
            tuple(self._milestones),
            len(self._cleanups),
            sum(max(c.freed, 0) for c in self._cleanups),
            sum(c.seconds for c in self._cleanups),
            self._manager.growing,
            self._stopped,
            time.monotonic() - began,
        )
