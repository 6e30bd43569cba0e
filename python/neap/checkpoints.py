"""Checkpoints kept by rules that compose (include/neap/checkpoint.h): the best and the newest always stay, and deleted ones can be
restored for a day."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Union

from . import _abi, _library
from ._units import parse_size

_Path = Union[str, "os.PathLike[str]"]
_DAY_NS = 86_400 * 10**9
_UNKNOWN_STEP = (1 << 64) - 1
_REASON_ROOM = 256


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a folder, and what was decided about it."""

    name: str  # of its file or folder; if it has several, the model's
    bytes: int  # of all its files
    step: int | None
    reason: str  # why it stays, or goes
    goes: bool
    done: str  # "" (it stays, or a dry run), "moved", "gone", "changed", "failed: ..."
    parts: tuple[str, ...] = ()  # all its files and folders, which stay or go together: model, optimizer, shards, ...
    torn: str = ""  # why it is not whole ("it is empty"): it counts neither as the newest nor as one of the best
    recorded: bool = False  # its trainer recorded that it is the best


@dataclasses.dataclass(frozen=True, repr=False)
class CheckpointCleanup:
    """The decisions and effects of a cleanup."""

    folder: str
    checkpoints: tuple[Checkpoint, ...]  # newest first
    metric: str  # by which the best were chosen; "": none, so the newest took their place
    dry_run: bool
    moved: int  # checkpoints, into FOLDER/.neap-trash
    moved_bytes: int
    deleted: int  # from the trash, because their time was over
    source: str = ""  # where the best is recorded ("Lightning recorded it in last.ckpt"); "": nowhere

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of those that stay."""
        return tuple(c.name for c in self.checkpoints if not c.goes)

    def __str__(self) -> str:
        going = [c for c in self.checkpoints if c.goes]
        verb = "would move" if self.dry_run else "moved"
        count = len(going) if self.dry_run else self.moved
        return f"{self.folder}: {len(self.kept)} kept, {verb} {count} to the trash"

    def __repr__(self) -> str:
        return f"<CheckpointCleanup {self}>"


def _done(entry: Any) -> str:
    try:
        done = _abi.RetentionDone(entry.done)
    except ValueError:
        return f"unknown ({entry.done})"
    if done == _abi.RetentionDone.FAILED:
        return f"failed: {os.strerror(entry.cause)}"
    return "" if done == _abi.RetentionDone.NOTHING else done.name.lower()


_MOST = {"older_than_days": 100_000, "trash_days": 3650}  # nanoseconds fit 64 bits up to 213503 days


def _check(**numbers: float) -> None:
    for name, value in numbers.items():
        most = _MOST.get(name, 1_000_000)
        if not 0 <= value <= most:  # NaN too
            raise ValueError(f"{name}={value!r}: expected a number from 0 to {most}")


def cleanup_checkpoints(
    folder: _Path,
    keep_best: int | None = None,
    older_than_days: float | None = None,
    *,
    max_checkpoints: int | None = None,
    keep_last: int = 0,
    keep_every_steps: int = 0,
    metric: str | None = None,
    mode: str | None = None,
    pins: str | Sequence[str] = (),
    max_total_size: int | str | None = None,
    delete_rest: bool = False,
    grace_minutes: float | None = None,
    trash_days: float = 1,
    dry_run: bool = False,
) -> CheckpointCleanup:
    """Moves checkpoints of this folder that are older than so many days (7) into its trash: never the best N (5, by the metric that
    their trainer recorded, or that is found beside them; the newest N if there is no metric), the newest, nor one that is open,
    pinned, linked to, or young. With `max_checkpoints`, at most so many stay, whatever their age: the newest, and the best.

    `keep_best`, `keep_last`: counts. `max_checkpoints` and `max_total_size` (bytes, or "20 GiB"): the oldest go until the limit is
    kept, then the worst of the best, unless `keep_best` was given; with a limit, other rules hold only if they are given.
    `keep_every_steps`: checkpoints whose step is a multiple of it stay (0: no such rule). `metric`: its name beside the checkpoints
    (None: the one recorded or found there); `mode`: "min" or "max", if the name does not show it. `pins`: names or patterns of
    names. `delete_rest`: all others go, whatever their age. `grace_minutes`: a checkpoint younger than this stays (10 minutes; with
    a limit 0). Deleted checkpoints stay in FOLDER/.neap-trash for `trash_days`, where restore_checkpoints finds them; a later
    cleanup deletes them for good. `dry_run`: only reports what would go.

    Raises ValueError for invalid arguments. Raises NeapError, and moves nothing, if there is no such folder, or if the best cannot
    be determined (every value is NaN, or two records disagree). Failures of single checkpoints are in their `done`.

    >>> folder = tempfile.mkdtemp()
    >>> for step in (100, 200, 300):
    ...     saved = pathlib.Path(folder, f"step_{step}.pt").write_bytes(bytes(1000))
    >>> done = neap.cleanup_checkpoints(folder, max_checkpoints=2, dry_run=True)
    >>> done.kept
    ('step_300.pt', 'step_200.pt')
    """
    if max_checkpoints is not None and max_checkpoints < 1:
        raise ValueError(f"max_checkpoints={max_checkpoints!r}: expected a number from 1")
    limited = max_checkpoints is not None or max_total_size is not None
    best = keep_best if keep_best is not None else max_checkpoints if max_checkpoints is not None else 5
    days = older_than_days if older_than_days is not None else 0 if limited else 7
    grace = grace_minutes if grace_minutes is not None else 0 if limited else 10
    _check(keep_best=best, keep_last=keep_last, keep_every_steps=keep_every_steps, max_checkpoints=max_checkpoints or 0)
    _check(older_than_days=days, grace_minutes=grace, trash_days=trash_days)
    pins = (pins,) if isinstance(pins, str) else pins
    modes = {None: 0, "min": 1, "max": 2}
    if mode not in modes:
        raise ValueError(f"mode {mode!r}: expected 'min' or 'max'")
    texts = (ctypes.c_char_p * max(len(pins), 1))(*(os.fsencode(pin) for pin in pins))
    options = _abi.RetentionOptions(
        keep_best=best,
        keep_last=keep_last,
        keep_every_steps=keep_every_steps,
        grace_ns=int(grace * 60e9),
        metric=metric.encode() if metric else None,
        mode=modes[mode],
        newest_for_best=metric is None,
        pins=texts,
        pin_count=len(pins),
        older_than_ns=int(days * _DAY_NS),
        max_checkpoints=max_checkpoints or 0,
        best_yields=keep_best is None,
        max_total_bytes=0 if max_total_size is None else parse_size(max_total_size),
        delete_rest=delete_rest,
        trash_ns=int(trash_days * _DAY_NS),
    )
    plan = _abi.RetentionPlan()
    result = _abi.RetentionResult()
    _library.call("neap_retention_plan_make", os.fsencode(folder), ctypes.byref(options), 0, ctypes.byref(plan))
    try:
        if not dry_run:
            try:
                _library.call("neap_retention_apply", ctypes.byref(plan), ctypes.byref(options), ctypes.byref(result))
            except _library.NeapError:
                if result.failed_count == 0:  # each failure is in its entry
                    raise
        return _cleanup(os.fspath(folder), plan, options, result, dry_run)
    finally:
        _library.library().neap_retention_plan_fini(ctypes.byref(plan))


def _cleanup(folder: str, plan: Any, options: Any, result: Any, dry_run: bool) -> CheckpointCleanup:
    found = []
    text = ctypes.create_string_buffer(_REASON_ROOM)
    for index in range(plan.count):
        entry = plan.entries[index]
        reason = _library.library().neap_retention_reason_text(
            ctypes.byref(plan), ctypes.byref(options), index, text, _REASON_ROOM
        )
        step = None if entry.step == _UNKNOWN_STEP else int(entry.step)
        name = os.fsdecode(entry.name)
        parts = tuple(os.fsdecode(entry.parts[k].name) for k in range(entry.part_count))
        found.append(
            Checkpoint(
                name,
                entry.bytes,
                step,
                reason.decode("utf-8", "replace"),
                entry.drop,
                _done(entry),
                parts,
                (entry.torn or b"").decode(),
                bool(entry.facts & _abi.CheckpointFact.RECORDED),
            )
        )
    metric = plan.metric.decode("utf-8", "replace")
    return CheckpointCleanup(
        folder,
        tuple(found),
        metric,
        dry_run,
        result.moved_count,
        result.moved_bytes,
        result.deleted_count,
        plan.source.decode("utf-8", "replace"),
    )


def find_checkpoint_folders(folder: _Path) -> list[str]:
    """Returns the folders below this one that hold checkpoints, such as folders of runs, sorted by path. Does not enter folders
    that are themselves a checkpoint, hidden folders and links. Raises NeapError if there is no such folder.

    >>> neap.find_checkpoint_folders(tempfile.mkdtemp())
    []
    """
    options = _abi.RetentionOptions()
    found = _abi.RetentionFolders()
    _library.call(
        "neap_retention_find_folders", os.fsencode(folder), ctypes.byref(options), 0, ctypes.byref(found)
    )
    try:
        return [os.fsdecode(found.at[i].path) for i in range(found.count) if found.at[i].count > 0]
    finally:
        _library.library().neap_retention_folders_fini(ctypes.byref(found))


def restore_checkpoints(folder: _Path, pattern: str = "*") -> int:
    """Restores every checkpoint of the folder's trash whose name matches. Returns how many. Raises NeapError if there is none.

        neap.restore_checkpoints("runs/1", "step_100*")       # what a cleanup moved today
    """
    result = _abi.RetentionResult()
    _library.call("neap_retention_restore", os.fsencode(folder), os.fsencode(pattern), ctypes.byref(result))
    return int(result.restored_count)
