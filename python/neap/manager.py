"""MemoryManager: cleans up between trials in one process, names tensors whose number grows, and keeps checkpoints in bounds."""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
from collections.abc import Collection
from typing import Any

from . import _abi, _events, _units, hunt, memory
from ._cleanups import Cleanups
from ._growth import Growing as Growing
from ._growth import Growth
from ._options import frequency
from .checkpoints import CheckpointCleanup, cleanup_checkpoints

log = logging.getLogger("neap")

_KEPT = 100


@dataclasses.dataclass(frozen=True, repr=False)
class TrialResult:
    """The memory that a trial left behind, in bytes, after the cleanup at its end.

    >>> with neap.MemoryManager().trial("lr=0.1") as trial:
    ...     trained = True
    >>> trial.result.clean, trial.result.peak
    (True, 0)
    """

    name: str
    baseline: memory.MemoryStats
    after: memory.MemoryStats
    peak: int  # highest allocated bytes inside
    survivors: tuple[hunt.Lingering, ...]  # tensors that were not there before
    failed: str  # the exception's text; "" for none

    @property
    def clean(self) -> bool:
        """Whether memory is back at the baseline."""
        return not self.survivors and self.after.allocated <= self.baseline.allocated

    def __repr__(self) -> str:
        left = max(self.after.allocated - self.baseline.allocated, 0)
        end = "clean" if self.clean else f"left {_units.size(left)}, {len(self.survivors)} tensors named"
        failed = f", failed: {self.failed}" if self.failed else ""
        return f"<TrialResult {self.name}: peak {_units.size(self.peak)}, {end}{failed}>"


class _Trial:
    def __init__(self, manager: MemoryManager, name: str) -> None:
        self._manager = manager
        self._name = name
        self.result: TrialResult | None = None

    def __enter__(self) -> _Trial:
        gc.collect()
        self._scope = memory.GPUMemoryContext(self._name, write=log.info)
        self._scope.__enter__()
        self._known = {storage.key for storage in hunt.storages(self._manager.device_types)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            hunt.forget_frames(error)
        memory.clear_and_log()
        self._scope.__exit__(None, None, None)
        survivors = hunt.lingering(self._manager.device_types, skip=self._known)
        before = self._scope.before
        after = self._scope.after
        assert before is not None and after is not None
        failed = "" if error is None else f"{type(error).__name__}: {error}"
        self.result = TrialResult(self._name, before, after, self._scope.peak, survivors, failed)
        self._manager.trials.append(self.result)
        for item in survivors:
            log.warning("Trial %s left behind: %s", self._name, item)


class MemoryManager:
    """Keeps one process inside memory over many trials and many steps.

        manager = neap.MemoryManager()
        with manager.trial("lr=0.1") as trial: train(...)
        trial.result.survivors            # what it left on the devices, named
        manager.step()                    # once per optimizer update
        manager.epoch()                   # once per epoch

    It warns if reserved memory passes `memory_threshold_mb` (2**20 bytes) at the end of a step or epoch, and again after it was
    below. Every `memory_cleanup_frequency` steps (a number) or epochs ("2 epochs"), it checks two things. Above the threshold, it
    cleans up if at least a tenth of the reserved bytes is cached. And it compares the existing tensors: it warns of a shape that
    had more tensors in each of five samples, and of a list that kept more tensors of any shapes in each, with its holders
    (`growing`). Use it from one thread.
    """

    def __init__(
        self,
        max_checkpoints: int = 5,
        cleanup_older_than_days: float = 7,
        memory_threshold_mb: int = 1000,
        memory_cleanup_frequency: int | str = 10,
        device_types: Collection[str] = ("cuda",),
    ) -> None:
        if max_checkpoints < 1 or cleanup_older_than_days < 0 or memory_threshold_mb < 0:
            raise ValueError("MemoryManager: at least one checkpoint, no negative age or threshold")
        self._every_steps, self._every_epochs = frequency(memory_cleanup_frequency)
        self.max_checkpoints = max_checkpoints
        self.cleanup_older_than_days = cleanup_older_than_days
        self.memory_threshold = memory_threshold_mb * _units.MIB
        self.memory_cleanup_frequency = memory_cleanup_frequency
        self.device_types = hunt.kinds_of(device_types)
        self.trials: list[TrialResult] = []
        self.growing: tuple[Growing, ...] = ()
        self.cleanups: list[memory.ClearResult] = []  # the last ones
        self._cleaner = Cleanups()
        self._steps = 0
        self._epochs = 0
        self._above = False  # whether the last reading of reserved memory was above the threshold
        self._growth = Growth(self.device_types)
        self._warned: set[Any] = set()

    def __repr__(self) -> str:
        number, unit = (self._every_steps, "steps") if self._every_steps else (self._every_epochs, "epochs")
        return (
            f"<MemoryManager: looks every {number} {unit}, threshold {_units.size(self.memory_threshold)}; keeps "
            f"{self.max_checkpoints} checkpoints of at most {self.cleanup_older_than_days:g} days>"
        )

    def trial(self, name: str = "trial") -> _Trial:
        """A scope: at its end, failed or not, it cleans up, and names tensors that are left and were not there before. If an
        exception passes through, it drops the variables that the traceback keeps alive (its text stays), so that the next trial can
        start."""
        return _Trial(self, name)

    def cleanup_checkpoints(self, folder: str | os.PathLike[str], dry_run: bool = False) -> CheckpointCleanup:
        """Moves checkpoints beyond `max_checkpoints`, and those older than `cleanup_older_than_days`, into the folder's
        trash; the newest, then the best, stay, and so do those in use. See neap.cleanup_checkpoints for other rules."""
        done = cleanup_checkpoints(
            folder,
            older_than_days=self.cleanup_older_than_days,
            max_checkpoints=self.max_checkpoints,
            dry_run=dry_run,
        )
        log.info("%s", done)
        return done

    def step(self) -> memory.ClearResult | None:
        """Call it after each optimizer update. Returns the cleanup, if it was time for one."""
        self._steps += 1
        return self._tidy(bool(self._every_steps) and self._steps % self._every_steps == 0)

    def epoch(self) -> memory.ClearResult | None:
        """Call it after each epoch. Returns the cleanup, if it was time for one."""
        self._epochs += 1
        return self._tidy(bool(self._every_epochs) and self._epochs % self._every_epochs == 0)

    def _tidy(self, due: bool) -> memory.ClearResult | None:
        self.warn_if_above()
        if not due:
            return None
        self.look()
        return self.cleanup_if_needed()

    def warn_if_above(self) -> None:
        """Warns if reserved memory has passed the threshold since the last call."""
        allocated, reserved, _, _ = _events.held()
        above = reserved > self.memory_threshold
        if above and not self._above:
            log.warning(
                "Reserved GPU memory passed the threshold of %s: %s reserved, %s of it allocated",
                _units.size(self.memory_threshold),
                _units.size(reserved),
                _units.size(allocated),
            )
        self._above = above

    def cleanup_if_needed(self) -> memory.ClearResult | None:
        """Cleans up if more than the threshold is reserved, and at least a tenth of that is only cached."""
        stats = memory.get_gpu_memory_stats()
        if stats.reserved <= self.memory_threshold or stats.cached * 10 < stats.reserved:
            return None
        self.cleanups = [*self.cleanups[-_KEPT:], self._cleaner.run(_abi.CleanupReason.PERIODIC)]
        return self.cleanups[-1]

    def look(self) -> tuple[Growing, ...]:
        """Compares the tensors with those of earlier samples. Returns what grows, and names it once in the log."""
        self.growing = self._growth.look()
        for item in self.growing:
            kind = (item.shape, item.dtype, item.device, item.holders if item.shapes > 1 else ())
            if kind not in self._warned:
                self._warned.add(kind)
                log.warning("Growing: %s", item)
        return self.growing
