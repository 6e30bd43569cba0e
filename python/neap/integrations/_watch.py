"""Shared by the callbacks: when to clean up, what to log, and the advice after an out-of-memory error. A failure in it becomes
a note (`neap info`, neap.describe()), and the training continues."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from .. import _abi, _cleanups, _events, hunt, memory
from .._notes import harmless
from ..manager import Growing, MemoryManager
from .trackers import Tracked

log = logging.getLogger("neap")

_KEPT = 1000  # of cleanups and marks, the last ones are kept


class Watch:
    """Options and effects; a callback calls its methods. Steps are optimizer updates.

    `clear_memory_on_start` (which also ends what earlier runs of neap left on the device), `clear_memory_on_end`,
    `clear_memory_after_save`: when to clean up. `cleanup_every_steps`, `cleanup_every_epochs`, `leak_watch_every_steps`: 0 is
    never. `track_every_steps`: how often memory figures go to `trackers` (see trackers.py), and with Lightning also to the
    trainer's own loggers; 0: never. `cleanups`, `marks` and `growing` have the effects and findings, `out_of_memory` the cleanup
    after an out-of-memory error.
    """

    def __init__(
        self,
        clear_memory_on_start: bool = True,
        clear_memory_on_end: bool = True,
        clear_memory_after_save: bool = False,
        cleanup_every_steps: int = 0,
        cleanup_every_epochs: int = 0,
        leak_watch_every_steps: int = 200,
        trackers: Sequence[Any] = (),
        track_every_steps: int = 0,
    ) -> None:
        if min(cleanup_every_steps, cleanup_every_epochs, leak_watch_every_steps, track_every_steps) < 0:
            raise ValueError("a period is a number of steps or epochs; 0: never")
        self._on_start = clear_memory_on_start
        self._on_end = clear_memory_on_end
        self._after_save = clear_memory_after_save
        self._steps = cleanup_every_steps
        self._epochs = cleanup_every_epochs
        self._look = leak_watch_every_steps
        self._track = track_every_steps
        self._trackers = tuple(trackers)
        self._manager = MemoryManager()
        self._cleaner = _cleanups.Cleanups()
        self.cleanups: list[memory.ClearResult] = []
        self.marks: list[tuple[str, memory.MemoryStats]] = []
        self.out_of_memory: memory.ClearResult | None = None

    @property
    def growing(self) -> tuple[Growing, ...]:
        """Kinds of tensors whose number grew in each sample."""
        return self._manager.growing

    @harmless("callback")
    def begin(self) -> None:
        """Call it when training begins: the model and the optimizer exist."""
        if self._on_start:
            _cleanups.leftovers()
            self._clear(_abi.CleanupReason.START)
        self._mark(_abi.Mark.START, "start")

    @harmless("callback")
    def step(self, number: int) -> None:
        """Call it after an optimizer update, with the framework's step number; acts once per number."""
        if self._steps and number % self._steps == 0:
            self._clear(_abi.CleanupReason.EVERY_STEP if self._steps == 1 else _abi.CleanupReason.PERIODIC)
        if self._look and number % self._look == 0:
            self._manager.look()

    def tracked(self, number: int, *more: Any) -> None:
        """Call it after an optimizer update: passes memory figures to the trackers, and to the framework's own in `more`, once per
        period."""
        if self._track:
            Tracked(*self._trackers, *more, every_steps=self._track).step(number)

    @harmless("callback")
    def epoch(self, number: int) -> None:
        """Call it after an epoch; the first is 1."""
        self._mark(_abi.Mark.EPOCH_END, f"epoch {number}", number)
        if self._epochs and number % self._epochs == 0:
            self._clear(_abi.CleanupReason.EPOCH)

    @harmless("callback")
    def saved(self, step: int) -> None:
        """Call it after a checkpoint was saved."""
        self._mark(_abi.Mark.SAVED, "saved", step)
        if self._after_save:
            self._clear(_abi.CleanupReason.SAVED)

    @harmless("callback")
    def failed(self, error: BaseException) -> None:
        """Call it if training ends with an exception. Releases the tensors that the traceback of an out-of-memory error holds."""
        if not memory.is_out_of_memory(error):
            return
        self._mark(_abi.Mark.OOM, "oom")
        hunt.forget_frames(error)
        self._clear(_abi.CleanupReason.OOM)
        log.warning(
            "Out of memory. Halve the batch and double the accumulation (the effective batch stays), switch on gradient "
            "checkpointing, or start with `neap run --on-oom`, which does so and starts again"
        )

    @harmless("callback")
    def end(self) -> None:
        """Call it when training is over."""
        self._mark(_abi.Mark.END, "end")
        if self._on_end:
            self._clear(_abi.CleanupReason.END)

    def _mark(self, mark: _abi.Mark, name: str, value: int = 0) -> None:
        self.marks = [*self.marks[-_KEPT:], (name, memory.log_stats(log.info, name))]
        _events.mark(mark, name, value)

    def _clear(self, reason: _abi.CleanupReason) -> None:
        self.cleanups = [*self.cleanups[-_KEPT:], self._cleaner.run(reason)]
        if reason == _abi.CleanupReason.OOM:
            self.out_of_memory = self.cleanups[-1]
