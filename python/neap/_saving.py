"""Saves a training: in one file that is replaced, and in a folder of the best checkpoints.

    FOLDER/step-300.json  {"epoch": 3, "metric": 0.21, "saved_by": "neap.Training"}   written first
    FOLDER/step-300.pt    the checkpoint, whole or not there
    then checkpoints beyond the best N, the newest and the size limit are deleted for good

Checkpoints of other programs are never deleted: a folder with such checkpoints is refused.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from typing import Any

from . import _units
from ._library import NeapError
from ._options import SavingOptions
from .checkpoints import cleanup_checkpoints
from .moving import Atomic, save_checkpoint

log = logging.getLogger("neap")

_BY = "neap.Training"


def _is_ours(folder: str, name: str) -> bool:
    if not re.fullmatch(r"step-\d+\.pt", name):
        return False
    try:
        with open(os.path.join(folder, name[:-3] + ".json"), encoding="utf-8") as file:
            return bool(json.load(file).get("saved_by") == _BY)
    except (OSError, ValueError, AttributeError):
        return False


class Saver:
    """The checkpoints of one training."""

    def __init__(self, options: SavingOptions) -> None:
        if options.mode not in ("min", "max"):
            raise ValueError(f"Training: mode={options.mode!r}: expected 'min' or 'max'")
        self._path = None if options.path is None else os.fspath(options.path)
        self._folder = None if options.folder is None else os.fspath(options.folder)
        self._keep = options.keep_best
        self._days = options.older_than_days
        self._mode = options.mode
        self._max_size = None if options.max_size is None else _units.parse_size(options.max_size)
        self.kept: tuple[str, ...] = ()  # paths in the folder, newest first

    @property
    def path(self) -> bool:
        """Whether there is one file to replace."""
        return self._path is not None

    @property
    def folder(self) -> bool:
        """Whether there is a folder."""
        return self._folder is not None

    def begin(self) -> None:
        """Makes the folder. Raises ValueError if it holds checkpoints of another program, OSError, NeapError."""
        if self._folder is None:
            return
        os.makedirs(self._folder, exist_ok=True)
        there = cleanup_checkpoints(self._folder, dry_run=True).checkpoints
        others = [c.name for c in there if not _is_ours(self._folder, c.name)]
        if others:
            raise ValueError(
                f"{self._folder} has checkpoints that no Training saved ({', '.join(others[:3])}): give a folder "
                f"of its own, since all but the best are deleted there"
            )

    def save(self, model: Any, optimizer: Any, epoch: int, step: int) -> None:
        """Saves to the one file."""
        if self._path is not None:
            save_checkpoint(self._path, model, optimizer, epoch=epoch, step=step)

    def save_ranked(self, model: Any, optimizer: Any, epoch: int, step: int, metric: float) -> None:
        """Saves to the folder. A checkpoint whose metric is not a number counts as the worst."""
        assert self._folder is not None
        facts = {"epoch": epoch, "saved_by": _BY, **({"metric": metric} if math.isfinite(metric) else {})}
        name = os.path.join(self._folder, f"step-{step}")
        beside = Atomic(name + ".json")
        try:
            beside.write(json.dumps(facts).encode())
            beside.commit()
        except BaseException:
            beside.abort()
            raise
        save_checkpoint(name + ".pt", model, optimizer, epoch=epoch, step=step)
        self._tidy()

    def _tidy(self) -> None:
        assert self._folder is not None
        try:
            if self._days is not None:
                cleanup_checkpoints(self._folder, 1, self._days, metric="metric", mode=self._mode, grace_minutes=0, trash_days=0)
            done = cleanup_checkpoints(
                self._folder,
                max_checkpoints=self._keep + 1,
                max_total_size=self._max_size,
                metric="metric",
                mode=self._mode,
                trash_days=0,
            )
        except NeapError as error:  # no metric can be compared: nothing is deleted
            log.warning("No checkpoint was deleted: %s", error)
            return
        self.kept = tuple(os.path.join(self._folder, name) for name in done.kept)
        for one in done.checkpoints:
            if one.done.startswith("failed"):
                log.warning("Checkpoint %s could not be deleted: %s", one.name, one.done)
