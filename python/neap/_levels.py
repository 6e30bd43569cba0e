"""Measures how much memory is left on the device and on the host; libneap decides what to do if it is short."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _abi, _library, _sources, _units, memory
from ._limits import limit_of

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
