"""Training: a loop that stays inside memory. When memory runs out, it continues with less, and keeps the effective batch.

    step:  samples -> micro-batches (forward, backward) -> [ranks agree, exchange gradients] -> update      _step.py
             | out of memory: drops what the step allocated, outside the `except` (whose traceback would keep it) +-> clear -> one
             rung down -> the same samples again

Rungs, from the gentlest: a smaller micro-batch with more accumulation, memory-efficient attention, gradient checkpointing,
and, only if requested, mixed precision (it changes numerics). libneap chooses (include/neap/train.h). With torch.distributed, all
ranks take a rung together, and if one fails, all do: no rank waits for one that has exited (_ranks.py).
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from typing import Any, Callable

from . import _abi, _advice, _cleanups, _efficient, _events, _levels, _needs, _notes, _ranks, _sources, _step, _strategies, _units, memory
from ._abi import Rung, ThresholdAct
from ._batches import Batches
from ._ladder import Split, next_rung, rung_name
from ._leaks import Leak, LeakWatch
from ._options import (
    CallbackOptions,
    CleanupOptions,
    LadderOptions,
    MemoryOptions,
    Options,
    SavingOptions,
    WatchOptions,
    check_counts,
)
from ._ranks import OUT, OVER
from ._results import Milestone, RungTaken, TrainingResult
from ._saving import Saver
from ._step import TrainingOutOfMemory
from .manager import MemoryManager

log = logging.getLogger("neap")


def _check_model(torch: Any, model: Any) -> None:
    if not isinstance(model, torch.nn.Module) or not any(True for _ in model.parameters()):
        raise TypeError(f"Training: model: a {type(model).__name__} is not a torch.nn.Module with parameters")
    kinds = {type(module).__name__ for module in model.modules()}
    if "FullyShardedDataParallel" in kinds or any(hasattr(p, "device_mesh") for p in model.parameters()):
        raise ValueError("Training: a model that is sharded over ranks exchanges inside its forward: not supported")


def _is_maker(value: Any, method: str) -> bool:
    """Returns whether this is a function that makes an object with this method, not the object itself or its class."""
    return callable(value) and not hasattr(value, method) and not isinstance(value, type)


def _make(torch: Any, model: Any, optimizer: Any) -> tuple[Any, Any, list[Milestone]]:
    """Calls the functions that make them, and takes the milestones there; none if both are ready."""
    made: list[Milestone] = []

    def mark(which: _abi.Mark, name: str) -> None:
        before = made[-1].stats if made else None
        made.append(Milestone(name, 0, memory.log_stats(log.info, name, before), before))
        _events.mark(which, name)

    makes_model = _is_maker(model, "parameters")
    makes_optimizer = _is_maker(optimizer, "zero_grad")
    if makes_model or makes_optimizer:
        mark(_abi.Mark.START, "start")
    if makes_model:
        model = model()
        mark(_abi.Mark.MODEL_READY, "model ready")
    _check_model(torch, model)
    if makes_optimizer:
        optimizer = optimizer(model)
        mark(_abi.Mark.OPTIMIZER_READY, "optimizer ready")
    _step.check_optimizer(optimizer)
    return model, optimizer, made


class Training:
    """Trains a model; the text at the top of the module describes the loop.

        result = neap.Training(model, optimizer, nn.functional.cross_entropy, dataset, epochs=3, batch_size=64).train()

    Data. `data`: a tuple or dict of tensors of the same length, or a map-style dataset: each step takes `batch_size` x `accumulate`
    samples (on each rank, which has its own samples; the last samples that make no whole step of all ranks are left out). They are
    shuffled again each epoch by `seed`, unless `shuffle` is False. Or data in batches (a DataLoader, an iterable of batches; each
    rank has its own, as by a DistributedSampler): each step takes `accumulate` of them; `batch_size` is that of the batches, and
    `shuffle` and `seed` are not used. A torch IterableDataset is put in batches of `batch_size`.

    Loss. `loss_fn(model(input), target)` for batches of (input, target), or `compute(model, batch)` for any other, as
    `compute=lambda model, batch: model(**batch).loss` (then `loss_fn` is not used and may be None). Either must be a mean over its
    samples: each sample of a step weighs the same, even if the last batch is smaller.

    Model. `model` is on its device, or devices, already, or a function that makes it there. The optimizer may be a function, too,
    which makes it from the model (`lambda model: AdamW(model.parameters())`). Then "start", "model ready" and "optimizer ready" are
    milestones, each taken when it happens; if both are ready, only "start", by train(). `model.train()` is called when an epoch
    starts. If the model is a DistributedDataParallel, its module is trained, and gradients are averaged here; without it, ranks
    begin with the weights of rank 0. A model that exchanges data inside its forward (SyncBatchNorm) waits there for a rank that ran
    out of memory, until the process group's own limit ends it. `mixed_precision`: bfloat16 (float16 with a scaled loss on a GPU
    that lacks it), or "bf16", "fp16". `efficient_attention`: scaled_dot_product_attention may choose its memory-efficient kernels,
    and a model of transformers with eager attention uses it. `gradient_checkpointing`: True: activations of each child of a
    Sequential or ModuleList are computed again; a size ("20GiB"): only of the cheapest layers that keep forward and backward within
    it, chosen before the second step (checkpoint_within; all layers in the first step). The result's `strategies` have the
    predicted and measured figures.

    Optimizer. One whose step needs a closure (LBFGS) is refused. A schedule of the learning rate goes into a callback.

    Options by theme: `cleanup`, `memory`, `ladder` (also True or False), `saving`, `watch`, `callbacks`: see CleanupOptions,
    MemoryOptions, LadderOptions, SavingOptions, WatchOptions, CallbackOptions. Three have MemoryManager's names: `max_checkpoints`
    (how many stay in the folder of `saving`: the newest and the best), `cleanup_older_than_days` (older ones go from there as
    well), and `memory_cleanup_frequency`: a cleanup every so many epochs (a number), or "10 steps".

    Ranks wait for each other `rank_timeout` seconds. Use it from one thread; the process's peak statistics are reset by
    train() and at each rung. Raises ValueError or TypeError for invalid arguments, RuntimeError if torch was not imported.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss_fn: Callable[..., Any] | None,
        data: Any,
        epochs: int = 1,
        *,
        batch_size: int = 32,
        accumulate: int = 1,
        mixed_precision: bool | str = False,
        efficient_attention: bool = False,
        gradient_checkpointing: bool | int | str = False,
        shuffle: bool = True,
        seed: int = 0,
        compute: Callable[[Any, Any], Any] | None = None,
        rank_timeout: float = 600,
        cleanup: CleanupOptions | None = None,
        memory: MemoryOptions | None = None,
        ladder: bool | LadderOptions = True,
        saving: SavingOptions | None = None,
        watch: WatchOptions | None = None,
        callbacks: CallbackOptions | None = None,
        **named: Any,
    ) -> None:
        torch = _sources.torch_module()
        if torch is None:
            raise RuntimeError("Training needs torch to be imported")
        check_counts(epochs=epochs, batch_size=batch_size, accumulate=accumulate)
        groups = {"cleanup": cleanup, "memory": memory, "ladder": ladder, "saving": saving, "watch": watch, "callbacks": callbacks}
        self._options = options = Options(groups, named)
        if not callable(loss_fn) and not callable(compute):
            raise TypeError("Training: loss_fn or compute: one of them says how the loss is computed")
        if not rank_timeout > 0:
            raise ValueError(f"Training: rank_timeout={rank_timeout!r}: expected seconds above 0")
        self._set_levels(options.memory)
        self._saver = Saver(options.saving)
        model, optimizer, made = _make(torch, model, optimizer)
        wrapped = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        self.model = model.module if wrapped else model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.data = data
        self.epochs = epochs
        self._torch = torch
        self._same_weights = wrapped
        self._made = made
        self._ranks = _ranks.Ranks(torch, rank_timeout)
        split = Split(batch_size, accumulate, self._ranks.size)
        self._batches = Batches(torch, data, split, self._ranks.rank, shuffle, seed)
        self.split = self._batches.split
        self.mixed_precision = mixed_precision
        self._place = next(self.model.parameters()).device
        self._stepper = _step.Stepper(
            torch, self.model, optimizer, loss_fn, compute, self._place, self._ranks, self._ticked
        )
        self._stepper.precision(mixed_precision)
        self._manager = MemoryManager(memory_threshold_mb=options.memory.threshold_mb or 0, device_types=(self._place.type,))
        self._active: set[Rung] = {Rung.MIXED_PRECISION} if mixed_precision else set()
        self._taken: set[Rung] = set()
        self._begin()
        measure = options.watch.measure_strategies
        self._strategies = _strategies.Strategies(torch, self.model, efficient_attention, gradient_checkpointing, measure)
        if gradient_checkpointing is True:
            self._active.add(Rung.CHECKPOINTING)
            if not _efficient.checkpoint_layers(model, torch):
                log.warning("gradient_checkpointing: the model has no list of layers to checkpoint, or does it already")

    def _set_levels(self, of: MemoryOptions) -> None:
        self._limit = _levels.Limit(of.limit)
        self._device_level = _levels.Level("device memory", of.warn_below, of.degrade_below, of.stop_below)
        self._host_level = _levels.Level("host memory", of.host_warn_below, of.host_degrade_below, of.host_stop_below)

    def _begin(self) -> None:
        self._step = 0
        self._epoch = 0
        self._ooms = 0
        self._stopped = ""
        self._peak = 0
        self._ticks = 0
        self._losses: list[float] = []
        self._epoch_began = 0
        self._rungs: list[RungTaken] = []
        self._milestones: list[Milestone] = []
        self._cleanups = _cleanups.Cleanups()
        self._leaks = LeakWatch(self._options.watch.leaks_every_steps, self._batches.count_steps() * self.epochs)

    # One step.

    def _one_step(self, make: Callable[[], list[Any]] | None) -> bool:
        """Makes one step, and takes rungs as needed. Returns False if this or another rank has no more data."""
        self.split = self._batches.fitted(make, self.split, Rung.SPLIT in self._taken)
        if make is not None and self._strategies.due(self._step + 1):
            self._measure_strategies(make)
        while True:
            done = self._attempt(make)
            if done.word != OUT:
                break
            # Outside any `except`: no traceback pins the step's tensors any more.
            self._ooms += 1
            self.optimizer.zero_grad(set_to_none=True)
            log.warning("Out of memory at step %d: %s", self._step + 1, done.reason)
            self._mark(_abi.Mark.OOM, "oom")
            self._cleanups.run(_abi.CleanupReason.OOM)
            too_large = self._too_large(self._step + 1, done.reason)
            if self._ranks.agree(number=int(too_large is not None))[1].count(1):
                raise too_large or self._give_up(self._step + 1, "the model is too large on another rank", done.cached)
            self._take(self._step + 1, done.reason, done.cached)
        if done.word == OVER:
            self.optimizer.zero_grad(set_to_none=True)
            if make is not None:
                log.warning("Another rank has no more data: the epoch ends for all, %d steps in", self._step)
            return False
        self._step += 1
        self._losses.append(done.loss)
        self._measure_rungs()
        _events.step(self._step, done.loss, self.split)
        if self._options.callbacks.on_step is not None:
            self._options.callbacks.on_step(self._step, done.loss)
        return True

    def _attempt(self, make: Callable[[], list[Any]] | None) -> _step.Outcome:
        try:
            return self._stepper.attempt(make, self.split.micro_batch)
        except TrainingOutOfMemory as error:  # raised during an update
            raise self._too_large(self._step + 1, str(error)) or error from None

    def _measure_strategies(self, make: Callable[[], list[Any]]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._begin_peaks()
        loss = self._stepper.first_loss(make()[0], self.split.micro_batch)
        gradients = sum(p.numel() * p.element_size() for p in self.model.parameters() if p.requires_grad)
        before = len(self._strategies.found)
        self._strategies.before_step(loss, self.mixed_precision, gradients if self.split.accumulate > 1 else 0)
        for found in self._strategies.found[before:]:
            log.info("%s", found)
        memory.reset_peak_memory_stats()

    def _ticked(self) -> None:
        self._ticks += 1
        if self._options.cleanup.every_ticks and self._ticks % self._options.cleanup.every_ticks == 0:
            self._cleanups.run(_abi.CleanupReason.PERIODIC)

    # The ladder.

    def _next_rung(self) -> tuple[Rung, Split]:
        """Returns the rung that libneap chooses among those that this loop can take."""
        offered = {Rung.SPLIT}
        if self._place.type == "cuda" and not _efficient.attention_is_efficient(self._torch, self.model):
            offered.add(Rung.EFFICIENT_ATTENTION)
        if self._options.ladder.allow_mixed_precision:
            offered.add(Rung.MIXED_PRECISION)
        if self._options.ladder.allow_checkpointing and _efficient.can_checkpoint(self.model, self._torch):
            offered.add(Rung.CHECKPOINTING)
        return next_rung(self.split, self._active, offered) if self._options.ladder.enabled else (Rung.STOP, self.split)

    def _recommend(self, cached: int = 0) -> tuple[str, ...]:
        can_checkpoint = _efficient.can_checkpoint(self.model, self._torch)
        ways = _advice.Ways(
            self._options.ladder.enabled,
            can_checkpoint,
            bool(self.mixed_precision),
            self.split,
            self._leaks.found,
            self._manager.growing,
        )
        return _advice.at_the_end(ways, cached)

    def _give_up(self, step: int, why: str, cached: int) -> TrainingOutOfMemory:
        found = self._recommend(cached)
        error = TrainingOutOfMemory(
            f"memory ran out at step {step} and {'no rung is left' if self._options.ladder.enabled else 'the ladder is off'}: "
            f"{why.rstrip('.')}. In force: {self.split}, mixed precision {'on' if self.mixed_precision else 'off'}; taken: "
            f"{', '.join(r.what for r in self._rungs) or 'none'}. "
            + (f"What may help: {'; '.join(found)}" if found else "A smaller model or a larger device is needed")
        )
        error.recommendations = found
        return error

    def _too_large(self, step: int, why: str) -> TrainingOutOfMemory | None:
        """Returns the final error if the model alone does not fit: no rung makes it smaller."""
        found = _needs.too_large(self._torch, self.model, self.optimizer, self._place)
        if found is None:
            return None
        needs, room = found
        update = f", and an update takes {_units.size(needs.update)} beside" if needs.alone <= room else ""
        recommended = _advice.without_batch(needs, room)
        error = TrainingOutOfMemory(
            f"memory ran out at step {step}, and no rung of the ladder would help: the model alone takes {_units.size(needs.alone)} "
            f"({needs}){update}; this process can have {_units.size(room)}. {why.rstrip('.')}. What may help: {'; '.join(recommended)}"
        )
        error.recommendations = recommended
        return error

    def _take(self, step: int, why: str, cached: int = 0) -> None:
        """Takes the next rung, or raises the final error. `cached`: bytes that were cached, not allocated, when memory ran out."""
        before = self.split
        rung, split = self._next_rung()
        if rung == Rung.STOP:
            raise self._give_up(step, why, cached)
        what = rung_name(rung)
        self._taken.add(rung)
        if rung == Rung.SPLIT:
            self.split = split = self._batches.parted(split)
            what = f"micro_batch {split.micro_batch}, accumulate {split.accumulate}"
        else:
            self._active.add(rung)
        if rung == Rung.EFFICIENT_ATTENTION:
            _efficient.efficient_attention(self._torch, self.model)
        elif rung == Rung.MIXED_PRECISION:
            self.mixed_precision = True
            self._stepper.precision(True)
        elif rung == Rung.CHECKPOINTING:
            _efficient.checkpoint_layers(self.model, self._torch)
        self._rungs.append(RungTaken(step, what, why, self.split, self._begin_peaks()))
        _events.rung(rung, before, self.split, self._active)
        log.warning("Going on with less: %s (effective batch %d stays)", what, self.split.effective)

    def _begin_peaks(self) -> int | None:
        """Resets the peak statistics; returns the earlier peak if there is a device."""
        stats = memory.reset_peak_memory_stats()
        self._peak = max(self._peak, stats.max_allocated)
        return stats.max_allocated if stats.available else None

    def _measure_rungs(self) -> None:
        if self._rungs and self._rungs[-1].peak_after is None:
            stats = memory.get_gpu_memory_stats()
            if stats.available:
                peak = stats.max_allocated
                self._rungs[-1] = dataclasses.replace(self._rungs[-1], peak_after=peak)
                before = self._rungs[-1].peak_before or 0
                log.info("%s: at most %s allocated, %s before", self._rungs[-1].what, _units.size(peak), _units.size(before))

    # Thresholds.

    def _thresholds(self) -> None:
        """Warns, degrades or stops, by the memory left on the device and on the host. If one rank must act, all do."""
        if self._device_level.asked:
            self._threshold(self._device_level, _levels.device_left)
        if self._host_level.asked and not self._stopped:
            self._threshold(self._host_level, memory.host_available_bytes)

    def _threshold(self, level: _levels.Level, look: Callable[[], int]) -> None:
        left = look()
        rung_left = self._next_rung()[0] != Rung.STOP
        own = level.decide(left, rung_left, self._step)
        act = ThresholdAct(max(self._ranks.agree(number=own)[1]))
        if act == ThresholdAct.NOTHING:
            return
        what = level.message(act, left, rung_left) if own == act else f"another rank: {level.name} is low"
        if act == ThresholdAct.STOP:
            self._stop(what, level.name, left_bytes=left, threshold_bytes=level.stops_below)
        elif act == ThresholdAct.WARN:
            if own == act:
                log.warning("Low: %s%s", what, "" if rung_left else "; no rung of the ladder is left")
        else:
            self._degrade(level, look, what)

    def _degrade(self, level: _levels.Level, look: Callable[[], int], what: str) -> None:
        log.warning("Low: %s: cleaning up", what)
        self._cleanups.run(_abi.CleanupReason.LOW)
        still = level.degrades_at(look())
        if not any(self._ranks.agree(number=still)[1]):
            log.info("The cleanup was enough: no rung is taken")
        elif self._next_rung()[0] != Rung.STOP:
            self._take(self._step, f"low: {what}")

    # Leaks.

    def _watch_leaks(self) -> None:
        """Samples the tensors while a leak is suspected, until it can name what grows; does `on_leak` before memory ends. If one
        rank stops, all do."""
        if self._leaks.step(self._step) and not self._manager.growing:
            self._manager.look()
        due = self._leaks.due(self._step)
        if self._options.watch.on_leak == "stop":
            if any(self._ranks.agree(number=int(due is not None))[1]):
                what = f"memory leaks and will end at {due.end()}" if due else "another rank: memory leaks"
                earliest, latest = (due.earliest, due.latest) if due else (None, None)
                self._stop(what, "leak", low_step=earliest or self._step, high_step=latest or _events.UNKNOWN)
        elif due is not None:
            log.warning("Memory will end at %s; this is step %d", due.end(), self._step)
            if self._options.watch.on_leak == "clear":
                self._clear_leak(due)

    def _clear_leak(self, leak: Leak) -> None:
        released = self._cleanups.run(_abi.CleanupReason.LEAK, force=True).released
        steps = int(max(released, 0) / max(leak.bytes_per_step, 1))
        log.warning("Cleared by force: %s less are allocated, room for %d more steps", _units.size(max(released, 0)), steps)
        self._leaks.forget()

    def _stop(self, what: str, kind: str, **reason: int) -> None:
        """Requests a stop after this step."""
        self._stopped = f"{what} after step {self._step}"
        _events.stop(kind, **reason)

    # Around the steps.

    def _mark(self, mark: _abi.Mark, name: str, value: int = 0) -> None:
        before = self._milestones[-1].stats if self._milestones else None
        self._milestones.append(Milestone(name, self._step, memory.log_stats(log.info, name, before), before))
        _events.mark(mark, name, value)

    def _after_step(self) -> None:
        if self._options.cleanup.every_steps and self._step % self._options.cleanup.every_steps == 0:
            self._cleanups.run(_abi.CleanupReason.EVERY_STEP if self._options.cleanup.every_steps == 1 else _abi.CleanupReason.PERIODIC)
        if self._options.watch.milestone_every_steps and self._step % self._options.watch.milestone_every_steps == 0:
            self._mark(_abi.Mark.EVERY_N, f"step {self._step}")
        if self._options.watch.leaks_every_steps and self._step % self._options.watch.leaks_every_steps == 0:
            self._manager.look()
        if self._options.memory.threshold_mb is not None:
            self._manager.warn_if_above()
        if self._options.watch.leaks_every_steps:
            self._watch_leaks()
        if not self._stopped:
            self._thresholds()

    def _after_epoch(self, epoch: int) -> None:
        self._mark(_abi.Mark.EPOCH_END, f"epoch {epoch}", epoch)
        if self._options.cleanup.every_epochs and epoch % self._options.cleanup.every_epochs == 0:
            self._cleanups.run(_abi.CleanupReason.EPOCH)
        self._save()
        metric = None if self._options.callbacks.on_epoch is None else self._options.callbacks.on_epoch(epoch)
        self._save_ranked(metric)

    def _save(self) -> None:
        if self._saver.path and self._ranks.rank == 0:
            self._saver.save(_efficient.unwrapped(self.model, self._torch), self.optimizer, self._epoch, self._step)
            self._saved()

    def _save_ranked(self, metric: Any = None) -> None:
        """Saves a checkpoint, ranked by the result of `on_epoch`, or by the mean loss of the epoch's steps."""
        if self._saver.folder and self._ranks.rank == 0:
            losses = self._losses[self._epoch_began :] or [math.nan]
            value = sum(losses) / len(losses) if metric is None else float(metric)
            inner = _efficient.unwrapped(self.model, self._torch)
            self._saver.save_ranked(inner, self.optimizer, self._epoch, self._step, value)
            self._saved()

    def _saved(self) -> None:
        self._mark(_abi.Mark.SAVED, "saved", self._step)
        if self._options.cleanup.after_save:
            self._cleanups.run(_abi.CleanupReason.SAVED)

    def _one_epoch(self) -> None:
        self.model.train()
        self._mark(_abi.Mark.USER, f"epoch {self._epoch + 1} starts", self._epoch + 1)
        if self._options.callbacks.on_epoch_start is not None:
            self._options.callbacks.on_epoch_start(self._epoch + 1)
        steps = self._batches.epoch(self._epoch)
        before = self._step
        self._epoch_began = len(self._losses)
        while self._one_step(next(steps, None)):
            self._after_step()
            if self._stopped:
                return
        if self._step == before:
            raise ValueError(
                f"data: it gave no batch in epoch {self._epoch + 1}; what can be gone through once only (a generator) is good "
                f"for one epoch: give a DataLoader or a list"
            )
        self._epoch += 1
        self._after_epoch(self._epoch)

    def train(self) -> TrainingResult:
        """Trains to the end, or to a threshold (`stopped` says which). Raises TrainingOutOfMemory at the ladder's end, after it
        dropped gradients and cleaned up; RankFailed if another rank failed; and errors of the model, the data and the callbacks. If
        called again, it trains as many epochs more, with the rungs in force."""
        with _events.training():
            try:
                return self._train()
            except BaseException as error:
                self._ranks.leave()
                if isinstance(error, Exception):
                    self._failed(error)
                raise
            finally:
                self._ranks.close()
                self._limit.end()

    @_notes.harmless("cleanup after a failure")
    def _failed(self, error: Exception) -> None:
        if isinstance(error, (TrainingOutOfMemory, _ranks.RankFailed)) or memory.is_out_of_memory(error):
            self.optimizer.zero_grad(set_to_none=True)
        else:
            _events.mark(_abi.Mark.FAILED, "failed")
        self._cleanups.run(_abi.CleanupReason.FAILURE)
        if memory.is_out_of_memory(error):  # raised by a callback or the data, outside the ladder
            for one in self._recommend():
                log.warning("Out of memory outside a step. What may help: %s", one)

    def _train(self) -> TrainingResult:
        began = time.monotonic()
        self._begin()
        facts = {"split": tuple(self.split[1:]), "epochs": self.epochs, "thresholds": (self._device_level.asked, self._host_level.asked)}
        facts["on_leak"] = self._options.watch.on_leak if self._options.watch.leaks_every_steps else None
        self._ranks.open(self.model, facts, self._same_weights)
        if self._ranks.rank == 0:
            self._saver.begin()
        if self._options.cleanup.on_start:
            _cleanups.leftovers()
            self._cleanups.run(_abi.CleanupReason.START)
        self._limit.begin()
        self._begin_peaks()
        self._peak = 0
        if self._made:
            self._milestones, self._made = self._made, []
        else:
            self._mark(_abi.Mark.START, "start")
        _events.split(self.split, self._active)
        while self._epoch < self.epochs and not self._stopped:
            self._one_epoch()
        if self._stopped:
            self._save()
            self._save_ranked()
        if self._options.cleanup.on_end:
            self._cleanups.run(_abi.CleanupReason.END)
        self._mark(_abi.Mark.END, "end")
        self._ranks.agree()  # all ranks came to the end
        if self._stopped:
            log.warning("Stopped early: %s", self._stopped)
        recommended = _advice.next_time(self.split, self._taken, self._batches.of_loader) if self._ooms else ()
        for one in recommended:
            log.warning("Next time %s", one)
        return TrainingResult(
            self._step,
            self._epoch,
            tuple(self._losses),
            self._ooms,
            tuple(self._rungs),
            self.split,
            tuple(self._milestones),
            self._cleanups.count,
            self._cleanups.freed,
            self._cleanups.seconds,
            self._manager.growing,
            self._stopped,
            time.monotonic() - began,
            max(self._peak, memory.get_gpu_memory_stats().max_allocated),
            self._leaks.found,
            recommended,
            self._saver.kept,
            self._strategies.found,
        )
