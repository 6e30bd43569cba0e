"""Clears processes that earlier runs of this user left on a device: see neap_clear_leftovers in include/neap/train.h."""

from __future__ import annotations

import ctypes
import logging

from . import _abi, _library

log = logging.getLogger("neap")

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)  # enum neap_log_level


def _line(_: int | None, level: int, text: bytes) -> None:
    log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.INFO, "%s", text.decode("utf-8", "replace"))


_SINK = _abi.LogSink(line=ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(_line))


def clear(uuid: bytes) -> None:
    """Clears the device of this UUID (16 bytes): ends processes that neap started and whose run is over (SIGTERM, 2 s, SIGKILL),
    and waits for their memory; names others of this user in the log. Takes at most 6 s, and almost no time if there is nothing to
    end. Failures are logged, never raised."""
    try:
        _library.call("neap_clear_leftovers", uuid, ctypes.byref(_SINK))
    except _library.NeapError as error:
        log.warning("Leftovers of earlier runs were not looked for: %s", error)
