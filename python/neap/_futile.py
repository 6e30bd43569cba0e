"""Finds cleanups in a row that only slow a program: they gave nothing back, or the bytes were reserved again before the next
one."""

from __future__ import annotations

import logging
import time

from . import _units

log = logging.getLogger("neap")

_IN_A_ROW = 3
_KEPT_SHARE = 0.1  # of the bytes given back: a cleanup is useful if at least this share stays given back
_COST_SHARE = 0.02  # of the time: cleanups that gave bytes back and cost less than this do no harm


class Row:
    """The cleanups of one origin. One thread at a time."""

    def __init__(self, words: str) -> None:
        self._words = words  # where the cleanups happen: "after each step"
        self._left = 0  # reserved bytes after the last one
        self._gave = 0  # bytes given back by the last one
        self._began = 0.0
        self._begin(0)

    def _begin(self, reserved: int) -> None:
        self._count = self._freed = self._again = 0
        self._seconds = 0.0
        self._left = reserved
        self._gave = 0
        self._next = _IN_A_ROW

    def add(self, before: int, after: int, seconds: float, now: float) -> None:
        """Adds a cleanup that took `seconds` and ended at `now` (time.monotonic()), with the reserved bytes before and after it.
        Warns after three in a row, and again after each tenfold number."""
        again = min(self._gave, max(before - self._left, 0))
        if self._gave - again > self._gave * _KEPT_SHARE:  # the last one was useful
            self._begin(after)
        if self._count == 0:
            self._began = now - seconds
        gave = max(before - after, 0)
        self._count += 1
        self._freed += self._gave
        self._again += again
        self._seconds += seconds
        self._left = after
        self._gave = gave
        judged = self._count - (gave > 0)  # whether its bytes are reserved again shows only at the next one
        if judged >= self._next and (not self._freed or self._seconds >= (now - self._began) * _COST_SHARE):
            self._next = judged * 10
            self._warn(judged, now - self._began)

    def _warn(self, count: int, elapsed: float) -> None:
        gave = "nothing back"
        if self._freed:
            gave = f"{_units.size(self._freed)} back ({_units.size(self._again)} of it were reserved again)"
        log.warning(
            "%d cleanups in a row %s gave %s and took %.1f ms themselves, of %.1f ms since the first: they only slow the program, "
            "leave them out",
            count,
            self._words,
            gave,
            self._seconds * 1000,
            elapsed * 1000,
        )


_direct = Row("by clear_gpu_memory()")


def direct(before: int, after: int, seconds: float) -> None:
    """Adds a cleanup that the program itself called for."""
    _direct.add(before, after, seconds, time.monotonic())
