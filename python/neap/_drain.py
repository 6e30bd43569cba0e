"""Waits until the memory of ended processes is free again (neap/drain.h), before the next experiment begins."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Collection

from . import _abi, _library, _units

_LOOK_MS = 100  # how long a Ctrl-C waits at most
_MOST = 256  # the most devices that are read


@dataclasses.dataclass(frozen=True)
class Drained:
    """The result of a wait for memory."""

    drained: bool | None  # None: unknown
    seconds: float
    note: str  # "" when it is free


class Drain:
    """Create it before the processes begin; use it until they have ended and were waited for. Reads every device, and raises
    nothing of its own: if no device can be read, the result says why."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        self._why = ""
        try:
            _library.call("neap_drain_begin", ctypes.byref(self._handle))
        except _library.NeapError as error:
            self._why = str(error)

    def wait(self, pids: Collection[int], uuids: Collection[bytes] | None, limit: float) -> Drained:
        """Waits at most `limit` seconds until the memory of these processes is free again. `uuids`: the devices that they used;
        None: unknown."""
        if not self._handle:
            return Drained(None, 0.0, self._why)
        array = (ctypes.c_int * max(len(pids), 1))(*pids)
        text = None if uuids is None else b"".join(uuids)
        ended = _abi.DrainEnded(array, len(pids), text, len(uuids or ()), _LOOK_MS)
        left = ctypes.c_uint64()
        began = time.monotonic()
        while True:
            ended.limit_ms = min(_LOOK_MS, max(int((limit - (time.monotonic() - began)) * 1000), 0))
            try:
                _library.call("neap_drain_wait", self._handle, ctypes.byref(ended), ctypes.byref(left))
            except _library.NeapError as error:
                return Drained(None, time.monotonic() - began, str(error))
            seconds = time.monotonic() - began
            if not left.value:
                return Drained(True, seconds, "")
            if seconds >= limit:
                return Drained(False, seconds, f"{_units.size(left.value)} still held after {seconds:.1f} s")

    def memory(self) -> tuple[list[tuple[int, int]], str]:
        """Returns used and free bytes of each device now, as nvidia-smi reports them, and why they are unknown."""
        if not self._handle:
            return [], self._why
        found = (_abi.DrainMemory * _MOST)()
        count = ctypes.c_size_t()
        try:
            _library.call("neap_drain_read", self._handle, found, _MOST, ctypes.byref(count))
        except _library.NeapError as error:
            return [], str(error)
        return [(one.used_bytes, one.free_bytes) for one in found[: count.value]], ""

    def __enter__(self) -> Drain:
        return self

    def __exit__(self, *_: object) -> None:
        _library.library().neap_drain_end(ctypes.byref(self._handle))
