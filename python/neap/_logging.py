"""Shows lines that a program requested by a call, whether or not it has configured logging.

    logging configured  --> the logger "neap", at INFO
    not                 --> stderr, like libneap's own log lines; levels below NEAP_LOG_LEVEL (`neap run --log-level`) are dropped
"""

from __future__ import annotations

import logging
import os
import sys
import time

log = logging.getLogger("neap")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def least_level() -> int | None:
    """Returns the level of NEAP_LOG_LEVEL; None: not set. Called for each line, as in libneap."""
    return _LEVELS.get(os.environ.get("NEAP_LOG_LEVEL", ""))


def show(text: str, *arguments: object) -> None:
    """Shows one line at level INFO."""
    least = least_level()
    if least is not None and least > logging.INFO:
        return
    if log.hasHandlers():
        log.info(text, *arguments)
    elif sys.stderr is not None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        # One call, so that lines of several threads and processes do not mix.
        sys.stderr.write(f"{stamp},{int(now % 1 * 1000):03d} neap INFO {text % arguments}\n")
