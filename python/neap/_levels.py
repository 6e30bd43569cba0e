"""Measures how much memory is left on the device and on the host; libneap decides what to do if it is short."""

from __future__ import annotations

import ctypes
import logging
from typing import Any

from . import _abi, _library, _notes, _sources, _units, memory
from ._limits import limit_of

log = logging.getLogger("neap")

_UNKNOWN = (1 << 64) - 1


def _limit(index: int, total: int) -> int:
    """Returns how much may be reserved on a device in all."""
    torch = _sources.torch_with_cuda()
    known = None if torch is None else limit_of(torch, index)
    return total if known is None else known


def rooms() -> dict[int, int]:
    """Returns the bytes that this process could still allocate on each of its devices: the free bytes and its cache, within its
    limit. Omits devices for which the driver reports nothing."""
    known = [d for d in memory.get_gpu_memory_stats().devices if d.free is not None and d.total is not None]
    return {d.index: max(min((d.free or 0) + d.reserved, _limit(d.index, d.total or 0)) - d.allocated, 0) for d in known}


def device_left() -> int:
    """Returns the bytes that this process could still have allocated at the peak since the peaks were reset, on the fullest of its
    devices: the free bytes and its cache, within its limit. All ones if the driver reports nothing."""
    left = _UNKNOWN
    for d in memory.get_gpu_memory_stats().devices:
        if d.free is not None and d.total is not None:
            most = min(d.free + d.reserved, _limit(d.index, d.total))
            left = min(left, max(most - d.max_allocated, 0))
    return left


class Limit:
    """A training's limit on what may be reserved. It ends with the training: each allocator gets the limit back that it had before."""

    def __init__(self, limit: Any) -> None:
        """`limit`: a share (float), a size, or None."""
        if isinstance(limit, bool) or (isinstance(limit, float) and not 0 < limit <= 1):
            raise ValueError(f"Training: limit={limit!r}: a share is above 0 and at most 1")
        self._limit: float | int | None = _units.parse_size(limit) if isinstance(limit, (int, str)) else limit
        self._before: list[tuple[_sources.Source, dict[Any, float], dict[Any, float]]] = []  # the shares before, and the training's

    def begin(self) -> None:
        """Sets it on each device that is in use."""
        if self._limit is None:
            return
        before = [(source, source.limits()) for source in _sources.sources()]
        try:
            self._set(self._limit)
        finally:
            self._before = [(source, shares, source.limits()) for source, shares in before]

    def _set(self, limit: float | int) -> None:
        if isinstance(limit, float):
            memory.set_memory_fraction(limit)  # which warns if that limits nothing
            return
        totals = {d.index: d.total for d in memory.get_gpu_memory_stats().devices if d.total}
        for index, total in totals.items():
            memory.set_memory_fraction(max(min(limit / total, 1.0), 1e-9), index)
        if not totals:
            log.warning("No memory was limited: %s", _sources.why_none())

    @_notes.harmless("the limit from before a training")
    def end(self) -> None:
        """Sets the limits from before again, except where another caller, as `neap fraction`, has changed the limit since."""
        before, self._before = self._before, []
        for source, shares, limited in before:
            now = source.limits()
            for of, share in limited.items():
                if now.get(of) == share != shares.get(of, 1.0):
                    source.set_limit(of, shares.get(of, 1.0))


class Level:
    """The thresholds of one kind of memory; 0: none."""

    def __init__(self, name: str, warn: Any = None, degrade: Any = None, stop: Any = None) -> None:
        sizes = [0 if size is None else _units.parse_size(size) for size in (warn, degrade, stop)]
        asked = [size for size in sizes if size]
        if asked != sorted(asked, reverse=True):
            raise ValueError(f"thresholds of {name}: expected to warn at least as early as to degrade, and that as to stop")
        self.name = name
        self._levels = _abi.Levels(*sizes)
        self._seen = _abi.Threshold()
        self.asked = bool(asked)

    def decide(self, left: int, rung_left: bool, step: int) -> _abi.ThresholdAct:
        """Decides for the end of this step."""
        decide = _library.library().neap_threshold_decide
        act: int = decide(ctypes.byref(self._seen), ctypes.byref(self._levels), left, rung_left, step)
        return _abi.ThresholdAct(act)

    @property
    def stops_below(self) -> int:
        """The threshold of stops, in bytes."""
        return int(self._levels.stop_bytes)

    def degrades_at(self, left: int) -> bool:
        """Returns whether so little memory calls for a rung."""
        return left != _UNKNOWN and left < int(self._levels.degrade_bytes)

    def message(self, act: _abi.ThresholdAct, left: int, rung_left: bool) -> str:
        """ "device memory below 1.00 GiB (312 MiB left)" """
        warns = _library.library().neap_threshold_warns_below(ctypes.byref(self._levels), rung_left)
        of = {_abi.ThresholdAct.STOP: self._levels.stop_bytes, _abi.ThresholdAct.DEGRADE: self._levels.degrade_bytes}
        rest = "" if left == _UNKNOWN else f" ({_units.size(left)} left)"
        return f"{self.name} below {_units.size(int(of.get(act, warns)))}{rest}"
