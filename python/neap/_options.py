"""The options of a Training, by theme.

    neap.Training(..., memory=neap.MemoryOptions(limit=0.9, warn_below="2 GiB"), saving=neap.SavingOptions(folder="run"))
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Union

if TYPE_CHECKING:
    import os

Size = Union[int, str]  # bytes, or text such as "2 GiB"


@dataclasses.dataclass(frozen=True)
class CleanupOptions:
    """When to clean up. A cleanup at every step slows training (it synchronises, and memory is allocated again); the result has its
    cost."""

    on_start: bool = True  # also ends processes that earlier runs of neap left on the device
    on_end: bool = False
    after_save: bool = False
    every_steps: int = 0  # 0: never
    every_epochs: int = 0
    every_ticks: int = 0  # micro-batches


@dataclasses.dataclass(frozen=True)
class MemoryOptions:
    """How much memory to use, and what to do when little is left. `..._below`: the device memory left at the peak, or the available
    host memory, below which to warn; to clean up and take a rung; to stop early and cleanly. Rungs and stops need two steps in a
    row below; after a rung, the training waits eight steps."""

    limit: float | Size | None = None  # a share of the device (a float, 0 < f <= 1), or a size; for this training alone
    threshold_mb: int | None = None  # (2**20 bytes) warns if reserved memory passes it
    warn_below: Size | None = None
    degrade_below: Size | None = None
    stop_below: Size | None = None
    host_warn_below: Size | None = None
    host_degrade_below: Size | None = None
    host_stop_below: Size | None = None


@dataclasses.dataclass(frozen=True)
class LadderOptions:
    """What the training may do to continue with less memory. True in place of these options: the defaults; False: nothing."""

    enabled: bool = True
    allow_checkpointing: bool = True
    allow_mixed_precision: bool = False  # it changes numerics


@dataclasses.dataclass(frozen=True)
class SavingOptions:
    """What rank 0 saves after each epoch and at an early stop: "model", "optimizer", "epoch", "step" (load_checkpoint reads it).
    The best are those with the lowest mean loss in their epoch or, if `on_epoch` returns a number, the lowest number."""

    path: str | os.PathLike[str] | None = None  # one file, replaced as a whole
    folder: str | os.PathLike[str] | None = None  # one file per checkpoint; the folder must hold nothing of other programs
    keep_best: int = 5  # this many of the folder stay besides the newest; the others are deleted
    max_size: Size | None = None  # of all of them together
    mode: str = "min"  # "max": the highest are the best
    older_than_days: float | None = None  # older ones in the folder are deleted, too; the best and the newest stay


@dataclasses.dataclass(frozen=True)
class WatchOptions:
    """What the training watches. If allocated memory grows with the steps, the log says at which step it will end, and what grows,
    and in time the training does `on_leak`: "warn"; "clear" (a cleanup by force, which releases what only tracebacks and reference
    cycles hold); "stop" (early and cleanly, with a checkpoint if saving is on)."""

    leaks_every_steps: int = 200  # 0: no watch
    on_leak: str = "warn"
    milestone_every_steps: int = 0  # 0: never
    measure_strategies: bool = False  # runs the first micro-batch without and with efficient attention and mixed precision


@dataclasses.dataclass(frozen=True)
class CallbackOptions:
    """The program's own functions, called by every rank. An exception from one ends the training."""

    on_step: Callable[[int, float], Any] | None = None  # (step, loss), after each update
    on_epoch: Callable[[int], Any] | None = None  # (epoch), from 1, after each; may return a number to rank it by
    on_epoch_start: Callable[[int], Any] | None = None  # (epoch), before each


_ARGUMENTS = (
    *("epochs", "batch_size", "accumulate", "mixed_precision", "efficient_attention", "gradient_checkpointing", "shuffle", "seed"),
    *("compute", "rank_timeout"),
)
_KINDS = {
    "cleanup": CleanupOptions,
    "memory": MemoryOptions,
    "ladder": LadderOptions,
    "saving": SavingOptions,
    "watch": WatchOptions,
    "callbacks": CallbackOptions,
}


_NAMES = ("max_checkpoints", "cleanup_older_than_days", "memory_cleanup_frequency")  # as MemoryManager and others name them


class Options:
    """The options of a Training: each group as given, or its defaults. `named`: options by MemoryManager's names."""

    def __init__(self, groups: Mapping[str, Any], named: Mapping[str, Any]) -> None:
        self.cleanup: CleanupOptions = _one("cleanup", groups)
        self.memory: MemoryOptions = _one("memory", groups)
        self.ladder: LadderOptions = _one("ladder", groups)
        self.saving: SavingOptions = _one("saving", groups)
        self.watch: WatchOptions = _one("watch", groups)
        self.callbacks: CallbackOptions = _one("callbacks", groups)
        self._take(named)
        self._check()

    def _take(self, named: Mapping[str, Any]) -> None:
        for name in named:
            if name not in _NAMES:
                raise TypeError(f"Training: got an unexpected keyword argument {name!r}{_near(name)}")
            if name != "memory_cleanup_frequency" and self.saving.folder is None:
                raise ValueError(f"Training: {name} needs a folder of checkpoints: pass saving=SavingOptions(folder=...)")
        if "max_checkpoints" in named:
            check_counts(max_checkpoints=named["max_checkpoints"])
            self.saving = dataclasses.replace(self.saving, keep_best=named["max_checkpoints"] - 1)
        if "cleanup_older_than_days" in named:
            self.saving = dataclasses.replace(self.saving, older_than_days=named["cleanup_older_than_days"])
        if "memory_cleanup_frequency" in named:
            steps, epochs = frequency(named["memory_cleanup_frequency"], "epoch")
            self.cleanup = dataclasses.replace(
                self.cleanup, every_steps=steps or self.cleanup.every_steps, every_epochs=epochs or self.cleanup.every_epochs
            )

    def _check(self) -> None:
        for group, fields in (
            (self.cleanup, ("every_steps", "every_epochs", "every_ticks")),
            (self.watch, ("milestone_every_steps", "leaks_every_steps")),
            (self.saving, ("keep_best",)),
        ):
            check_counts(**{field: getattr(group, field) for field in fields})
        if self.watch.on_leak not in ("warn", "clear", "stop"):
            raise ValueError(f"Training: on_leak={self.watch.on_leak!r}: expected 'warn', 'clear' or 'stop'")


def _near(name: str) -> str:
    """Returns the most likely correction: "; did you mean cleanup=CleanupOptions(every_steps=...)?"."""
    ways = {one: f"{one}=..." for one in (*_NAMES, *_ARGUMENTS)}
    for group, kind in _KINDS.items():
        for field in dataclasses.fields(kind):
            way = f"{group}={kind.__name__}({field.name}=...)"
            ways.update({field.name: way, f"{group}_{field.name}": way, f"{field.name}_{group}": way})
    words = name.split("_")
    near = difflib.get_close_matches(name, ways, 1, 0.7) or [one for one in ways if set(words) <= set(one.split("_"))]
    return f"; did you mean {ways[near[0]]}?" if near else ""


def _one(group: str, groups: Mapping[str, Any]) -> Any:
    kind = _KINDS[group]
    given = groups[group]
    if isinstance(given, bool) and kind is LadderOptions:  # shorthand
        return LadderOptions(given)
    if given is not None and not isinstance(given, kind):
        raise TypeError(f"Training: {group}: a {type(given).__name__} is not a {kind.__name__}")
    return kind() if given is None else given


def frequency(text: int | str, unit: str = "step") -> tuple[int, int]:
    """10, "10 steps", "2 epochs" -> (every so many steps, every so many epochs); 0: never. `unit`: of a number without a word."""
    found = re.fullmatch(r"([1-9]\d{0,8}) *(steps?|epochs?)?", str(text))
    if found is None or isinstance(text, bool):
        raise ValueError(f"memory_cleanup_frequency {text!r}: expected a number of {unit}s from 1, '10 steps' or '2 epochs'")
    number = int(found[1])
    return (0, number) if (found[2] or unit).startswith("epoch") else (number, 0)


def check_counts(**counts: Any) -> None:
    """Raises ValueError for anything that is not a count."""
    for name, value in counts.items():
        least = 1 if name in ("batch_size", "accumulate", "max_checkpoints") else 0
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"Training: {name}={value!r}: expected a whole number, at least {least}")
