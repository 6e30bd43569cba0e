"""Finds the peak inside a scope, although each allocator of the process keeps only one peak, since it was last reset.

    the program's own peak  |=====================>   the kept peak or the current one, whichever is higher
    a scope's                     |=====|             the current peak
                                  ^ here the peaks are reset, and the old ones are kept

PyTorch's peaks belong to the program: torch.cuda.max_memory_allocated() and other readers of these counters must show the same as
without the scope. So while peaks are kept, neap replaces PyTorch's functions that read these counters (to show the higher peak) and
that reset them (to drop the kept peaks). Without scopes, PyTorch's own functions are in place.

Threads: any. Peaks are the process's: they include what other threads allocate meanwhile.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

_READ = ("_cuda_memoryStats", "_accelerator_getDeviceStats")
_RESET = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
_lock = threading.RLock()


class Scope:
    """One scope under way: the highest bytes allocated since it began, by allocator and device."""

    def __init__(self) -> None:
        self._peaks: dict[Any, int] = {}

    def note(self, where: Any, allocated: int) -> None:
        """Notes that this much was allocated there at some instant inside."""
        self._peaks[where] = max(self._peaks.get(where, 0), allocated)

    @property
    def allocated(self) -> int:
        """Sum of the peaks."""
        return sum(self._peaks.values())


_scopes: list[Scope] = []


def note(where: Any, allocated: int) -> None:
    """Notes, for all scopes under way, that this much was allocated there at some instant."""
    with _lock:
        for scope in _scopes:
            scope.note(where, allocated)


def covers(counters: dict[str, Any], kept: dict[str, Any]) -> bool:
    """Returns whether every peak of the first is at least as high as in the second."""
    for name, value in kept.items():
        if isinstance(value, dict):
            if not covers(counters.get(name, {}), value):
                return False
        elif name == "peak" and counters.get(name, 0) < value:
            return False
    return True


def higher(counters: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Raises the peaks of the first counters to those of the second, in place: nested as in PyTorch."""
    for name, value in kept.items():
        if isinstance(value, dict) and isinstance(counters.get(name), dict):
            higher(counters[name], value)
        elif name == "peak":
            counters[name] = max(counters.get(name, 0), value)
    return counters


class _Torch:
    """PyTorch's counters while some of their peaks are kept."""

    def __init__(self, torch: Any) -> None:
        self.c = torch._C
        self._originals: dict[str, Callable[..., Any]] = {}
        self._kept: dict[int, dict[str, Any]] = {}

    def read(self, index: int) -> dict[str, Any]:
        """Returns the counters as PyTorch has them."""
        found: dict[str, Any] = self._originals.get(_READ[0], self.c._cuda_memoryStats)(index)
        return found

    def note(self, index: int) -> dict[str, Any]:
        """Notes the counters in the scopes under way, and returns them."""
        stats = self.read(index)
        note(index, int(stats["allocated_bytes"]["all"]["peak"]) if stats else 0)
        return stats

    def begin(self, indices: list[int]) -> None:
        """Begins the peaks of these devices for a scope."""
        for index in indices:
            stats = self.note(index)
            self._kept[index] = higher(stats, self._kept.get(index, {}))
        if indices:
            self._stand_in()
        for index in indices:
            self._originals[_RESET[0]](index)

    def _reset(self, index: int) -> None:
        """Called when the program resets its peaks."""
        self.note(index)
        self._drop(index)

    def _drop(self, index: int) -> None:
        self._kept.pop(index, None)
        if not self._kept:
            self._stand_back()

    def settle(self) -> None:
        """Called outside of scopes: drops the kept peaks of each device whose current peaks in PyTorch are as high by now."""
        for index in list(self._kept):
            if covers(self.read(index), self._kept[index]):
                self._drop(index)

    def _stand_in(self) -> None:
        for name in _READ + _RESET:
            original = getattr(self.c, name, None)
            if original is not None and name not in self._originals:
                self._originals[name] = original
                setattr(self.c, name, self._reader(original) if name in _READ else self._resetter(original))

    def _stand_back(self) -> None:
        for name, original in self._originals.items():
            setattr(self.c, name, original)
        self._originals.clear()

    def _reader(self, original: Callable[[int], dict[str, Any]]) -> Callable[[int], dict[str, Any]]:
        def read_with_kept_peaks(index: int) -> dict[str, Any]:
            with _lock:
                return higher(original(index), self._kept.get(index, {}))

        return read_with_kept_peaks

    def _resetter(self, original: Callable[[int], None]) -> Callable[[int], None]:
        def reset_kept_peaks_too(index: int) -> None:
            with _lock:
                self._reset(index)
                original(index)

        return reset_kept_peaks_too


_torch: _Torch | None = None


def _of(torch: Any) -> _Torch:
    global _torch
    if _torch is None:
        _torch = _Torch(torch)
    return _torch


def begin_torch(torch: Any, indices: list[int]) -> None:
    """Begins PyTorch's peaks on these devices for a scope."""
    with _lock:
        _of(torch).begin(indices)


def note_torch(torch: Any, indices: list[int]) -> None:
    """Notes PyTorch's peaks in the scopes under way."""
    with _lock:
        for index in indices:
            _of(torch).note(index)


def enter(begin: Callable[[], None]) -> Scope:
    """Begins a scope, after `begin` has begun the peaks of each allocator."""
    with _lock:
        begin()
        scope = Scope()
        _scopes.append(scope)
        return scope


def leave(scope: Scope, note_all: Callable[[], None]) -> None:
    """Ends a scope, after `note_all` has noted the peaks of each allocator."""
    with _lock:
        try:
            note_all()
        finally:
            _scopes.remove(scope)
            if _torch is not None and not _scopes:
                _torch.settle()
