"""The leak watch of a training: predicts at which step memory will end, and reports when it is time to act.

    allocated bytes at each step's end --> libneap's test (neap/leak.h), every 20 steps, at first every 5
    found in two tests in a row        --> forecast: step, and the interval of its slope
    Pieces that PyTorch's allocator has left over between kept tensors cannot be used any more. So the floor that rises until the
    end is the allocated bytes plus these pieces, at the steeper slope of the two. step + margin >= the earliest end, and the
    training needs more steps than that --> it is time to act

Each device is watched by itself; the one whose memory ends first counts. On the CPU nothing is watched.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import math
from typing import Any, NamedTuple

from . import _abi, _events, _levels, _library, _sources, _units

log = logging.getLogger("neap")

_MOST = 1024  # steps that are kept
_EVERY = 20
_EARLY_STEPS = 60
_EARLY_EVERY = 5  # a steep leak ends memory soon
_NEVER = (1 << 64) - 1


@dataclasses.dataclass(frozen=True)
class Leak:
    """Memory that grows with the steps, and when it will end: between `earliest` and `latest` with 99 % confidence."""

    device: int
    bytes_per_step: float
    confidence: float  # 0 to 0.9999
    steps: int  # how many steps were tested
    ends: int | None  # a step; None: memory does not end at this slope
    earliest: int | None
    latest: int | None

    def end(self) -> str:
        """ "step 310 (300 to 320, 99 %)" """
        if self.latest is None:
            return f"step {self.ends} ({self.earliest} at the earliest, 99 %)"
        return f"step {self.ends}" + ("" if self.earliest == self.latest else f" ({self.earliest} to {self.latest}, 99 %)")

    def __str__(self) -> str:
        percent = math.floor(self.confidence * 10000) / 100  # cut, not rounded: 99.999 % is not certainty
        return f"memory grows by {_units.size(int(self.bytes_per_step))} per step (confidence {percent:.2f} %, over {self.steps} steps)"


class _Mark(NamedTuple):
    """The figures of a step, in bytes."""

    allocated: int  # at the step's end
    pieces: int  # left over between allocated blocks
    tooth: int  # how much more was allocated inside the step


def _read(torch: Any, index: int) -> _Mark | None:
    stats = torch.cuda.memory_stats_as_nested_dict(index)
    if not stats:
        return None
    allocated = stats["allocated_bytes"]["all"]
    pieces = int(stats.get("inactive_split_bytes", {}).get("all", {}).get("current", 0))
    return _Mark(allocated["current"], pieces, max(allocated["peak"] - allocated["current"], 0))


def _test(lows: list[int], room: int) -> _abi.Leak:
    leak = _abi.Leak()
    array = (ctypes.c_uint64 * len(lows))(*lows)
    _library.library().neap_leak_test(array, len(lows), room, ctypes.byref(leak))
    return leak


class LeakWatch:
    """The leak watch of one training. `every`: the caller's period of tests, at most 20 steps; `total`: the steps of the training,
    0 unknown."""

    def __init__(self, every: int, total: int) -> None:
        self._every = min(every, _EVERY)
        self._total = total
        self._margin = (self._every + 1) // 2
        self._marks: dict[int, list[_Mark]] = {}  # by device: the marks of each step
        self._suspected: set[int] = set()
        self._forecasts: dict[int, Leak] = {}
        self._reported = self._acted = False
        self.found: Leak | None = None  # the last finding

    def step(self, step: int) -> bool:
        """Called after each step. Returns whether a test ran and suspects a leak."""
        torch = _sources.torch_with_cuda()
        for index in _sources.used(torch) if torch is not None else ():
            mark = _read(torch, index)
            if mark is not None:
                self._marks[index] = [*self._marks.get(index, ())[-_MOST:], mark]
        known = max(map(len, self._marks.values()), default=0)
        every = min(self._every, _EARLY_EVERY) if known <= _EARLY_STEPS else self._every
        if not known or step % every:
            return False
        rooms = _levels.rooms()
        for index, marks in self._marks.items():
            if index in rooms:
                self._look(step, index, marks, rooms[index])
        self._tell(step)
        return bool(self._suspected)

    def _look(self, step: int, index: int, marks: list[_Mark], room: int) -> None:
        """Tests one device. A cache that fills looks like a leak for a while, so two tests in a row must find the leak."""
        leak = _test([mark.allocated for mark in marks], room)
        found = leak.verdict == _abi.LeakVerdict.FOUND
        self._forecasts.pop(index, None)
        if found and index in self._suspected:
            self._forecasts[index] = self._forecast(step, index, marks[-leak.steps :], room, leak)
        (self._suspected.add if found else self._suspected.discard)(index)

    def _forecast(self, step: int, index: int, marks: list[_Mark], room: int, leak: _abi.Leak) -> Leak:
        """Predicts the end: memory ends when the extra memory of a step no longer fits above the rising floor."""
        teeth = [mark.tooth for mark in marks]
        floor = _test([mark.allocated + mark.pieces for mark in marks], room)

        def end(room: int, slope: float) -> int | None:
            steps = max(room, 0) / slope if slope > 0 else math.inf
            return step + int(steps) if steps < 9e18 else None

        least = room - marks[-1].pieces - max(teeth)
        most = room - min(teeth)
        slope = max(leak.bytes_per_step, floor.bytes_per_step)
        highest = max(leak.high_bytes_per_step, floor.high_bytes_per_step)
        return Leak(
            index,
            leak.bytes_per_step,
            leak.confidence,
            leak.steps,
            end(least, slope),
            end(least, highest),
            end(most, leak.low_bytes_per_step),
        )

    def _tell(self, step: int) -> None:
        if not self._forecasts:
            return
        self.found = leak = min(self._forecasts.values(), key=lambda one: _NEVER if one.earliest is None else one.earliest)
        if not self._reported:
            _events.leak(leak.bytes_per_step, leak.confidence)
        _events.forecast(*(_NEVER if end is None else end for end in (leak.ends, leak.earliest, leak.latest)))
        if self._reported:
            return
        self._reported = True
        if self._total and (leak.ends is None or leak.ends >= self._total):
            last = f"enough memory is left for all {self._total} steps"
        else:
            last = f"memory will end at {leak.end()}" + (f" of {self._total}" if self._total else "")
        log.warning("Step %d: %s: %s", step, leak, last)

    def due(self, step: int) -> Leak | None:
        """Returns the leak that will end memory before the next test, unless the training acts now. Returns it once, until
        `forget`."""
        leak = self.found
        if not self._forecasts or self._acted or leak is None or leak.earliest is None:
            return None
        if (self._total and leak.earliest >= self._total) or step + self._margin < leak.earliest:
            return None
        self._acted = True
        return leak

    def forget(self) -> None:
        """Restarts the watch, after memory was released."""
        self._marks.clear()
        self._suspected.clear()
        self._forecasts.clear()
        self._acted = False
