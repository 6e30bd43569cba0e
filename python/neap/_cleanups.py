"""The cleanups of one training: counted, recorded, and reported when they are useless."""

from __future__ import annotations

import logging

from . import _abi, _events, _leftovers, _sources, memory

log = logging.getLogger("neap")

_IN_A_ROW = 3
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
    """One after another. One thread at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.freed = 0
        self.seconds = 0.0  # bytes given back
        self._useless: dict[_abi.CleanupReason, list[float]] = {}  # seconds of each in a row, by reason

    def run(self, reason: _abi.CleanupReason, force: bool = False) -> memory.ClearResult:
        """Collects garbage, empties the caches, logs."""
        result = memory.clear_gpu_memory(force)
        freed = max(result.freed, 0)
        self.count, self.freed, self.seconds = self.count + 1, self.freed + freed, self.seconds + result.seconds
        _events.cleanup(reason, freed, result.seconds)
        self._judge(reason, result)
        return result

    def _judge(self, reason: _abi.CleanupReason, result: memory.ClearResult) -> None:
        """Says once a row that they only slow the training; where there is no device, it says nothing."""
        if result.freed > 0 or not result.after.devices:
            self._useless.pop(reason, None)
            return
        row = self._useless.setdefault(reason, [])
        row.append(result.seconds)
        if len(row) == _IN_A_ROW:
            log.warning(
                "%d cleanups in a row %s gave nothing back and took %.1f ms: they only slow the training, leave them out",
                len(row),
                _WORDS[reason],
                sum(row) * 1000,
            )
        del row[_IN_A_ROW + 1 :]  # once a row


def leftovers() -> None:
    """What earlier runs of this user left on the devices that PyTorch uses here is found; what neap started is ended."""
    torch = _sources.torch_with_cuda()
    for index in _sources.TorchSource(torch).indices() if torch is not None else ():
        uuid = _sources.device_uuid(torch, index)
        if uuid is not None:
            _leftovers.clear(uuid)
