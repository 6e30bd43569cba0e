"""The cleanups of one training: counted, recorded, and reported when they are useless."""

from __future__ import annotations

import time

from . import _abi, _events, _futile, _leftovers, _sources, memory

_WORDS = {
    _abi.CleanupReason.START: "at the start",
    _abi.CleanupReason.END: "at the end",
    _abi.CleanupReason.FAILURE: "after a failure",
    _abi.CleanupReason.SAVED: "after a checkpoint",
    _abi.CleanupReason.EPOCH: "after an epoch",
    _abi.CleanupReason.EVERY_STEP: "after each step",
    _abi.CleanupReason.PERIODIC: "every so many steps",
    _abi.CleanupReason.OOM: "after memory ran out",
    _abi.CleanupReason.LOW: "because memory is low",
    _abi.CleanupReason.LEAK: "because memory leaks",
}


class Cleanups:
    """Runs one cleanup after another. One thread at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.freed = 0  # bytes given back
        self.seconds = 0.0
        self._rows: dict[_abi.CleanupReason, _futile.Row] = {}

    def run(self, reason: _abi.CleanupReason, force: bool = False) -> memory.ClearResult:
        """Collects garbage, empties the caches, logs."""
        began = time.monotonic()
        result = memory.clear_and_log(force)
        now = time.monotonic()
        freed = max(result.freed, 0)
        self.count, self.freed, self.seconds = self.count + 1, self.freed + freed, self.seconds + now - began
        _events.cleanup(reason, freed, result.seconds)
        if result.after.devices:
            row = self._rows.setdefault(reason, _futile.Row(_WORDS[reason]))
            row.add(result.before.reserved, result.after.reserved, now - began, now)
        return result


def leftovers() -> None:
    """Finds processes that earlier runs of this user left on the devices that PyTorch uses here, and ends those that neap
    started."""
    torch = _sources.torch_with_cuda()
    for index in _sources.TorchSource(torch).indices() if torch is not None else ():
        uuid = _sources.device_uuid(torch, index)
        if uuid is not None:
            _leftovers.clear(uuid)
