"""Processes that earlier runs of this user left on a device: include/neap/train.h has what is done about them."""

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
    """On the device of this UUID (16 bytes): those that neap started and whose run is over are ended (SIGTERM, 2 s, SIGKILL)
    and their memory is waited for; others of this user are named in the log. Takes 6 s at most, and nothing noticeable
    where nothing is to be ended. What fails is logged."""
    try:
        _library.call("neap_clear_leftovers", uuid, ctypes.byref(_SINK))
    except _library.NeapError as error:
        log.warning("Leftovers of earlier runs were not looked for: %s", error)
