"""The reports of a Training: milestones, rungs, the result."""

from __future__ import annotations

import dataclasses

from . import _units, memory
from ._growth import Growing
from ._ladder import Split
from ._leaks import Leak
from ._strategies import Strategy


@dataclasses.dataclass(frozen=True)
class Milestone:
    """An instant, with the bytes held then."""

    name: str
    step: int
    stats: memory.MemoryStats
    before: memory.MemoryStats | None = None  # at the previous milestone

    @property
    def delta(self) -> int:
        """Change of allocated bytes, over all devices; 0 for the first milestone."""
        return self.stats.allocated - self.before.allocated if self.before else 0

    @property
    def host_delta(self) -> int:
        """Change of this process's resident set."""
        return self.stats.host - self.before.host if self.before else 0

    def __str__(self) -> str:
        return (
            f"{self.name} (step {self.step}): {_units.gb(self.stats.allocated)} allocated ({_units.delta_gb(self.delta)}), "
            f"{_units.gb(self.stats.host)} on the host ({_units.delta_gb(self.host_delta)})"
        )


@dataclasses.dataclass(frozen=True)
class RungTaken:
    """A step down the ladder. The peaks are measured, in allocated bytes: since the previous rung up to this one, and in the first
    step that succeeded with it (None: none did, or there is no device)."""

    step: int
    what: str
    why: str
    split: Split  # in force from then on
    peak_before: int | None = None
    peak_after: int | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class TrainingResult:
    """The result of a training."""

    steps: int
    epochs: int  # completed epochs
    losses: tuple[float, ...]  # one per step, the mean over this rank's samples
    ooms: int
    rungs: tuple[RungTaken, ...]
    split: Split  # in force at the end
    milestones: tuple[Milestone, ...]
    cleanups: int
    cleanup_freed: int  # bytes given back
    cleanup_seconds: float
    growing: tuple[Growing, ...]
    stopped: str  # why it stopped early; "" otherwise
    seconds: float
    peak: int  # highest allocated bytes, over all devices
    leak: Leak | None = None  # the last finding of the leak watch
    recommendations: tuple[str, ...] = ()  # for the next run, if memory ran out
    checkpoints: tuple[str, ...] = ()  # paths in the folder of SavingOptions, newest first
    strategies: tuple[Strategy, ...] = ()  # measured strategies: see WatchOptions, and gradient_checkpointing="20GiB"

    def __repr__(self) -> str:
        loss = f", last loss {self.losses[-1]:.4g}" if self.losses else ""
        ooms = f", out of memory {self.ooms} times, now {self.split}" if self.ooms else ""
        peak = f", peak {_units.size(self.peak)}" if self.peak else ""
        stopped = f", stopped: {self.stopped}" if self.stopped else ""
        return f"<TrainingResult: {self.steps} steps, {self.epochs} epochs in {self.seconds:.1f} s{loss}{ooms}{peak}{stopped}>"
