"""Whether a program's memory is steady: for `--max-steps steady`, which `neap estimate` runs programs with.

It is once neither the most that was requested nor the most that was reserved has grown, on any device, for three optimizer updates.
Ranks of one training have to end after the same update, since each waits for the others in the next: they end after the third.
"""

from __future__ import annotations

import os
import sys

from . import _sources

STEADY = "steady"  # the value of --max-steps
MOST = 50  # updates
_STILL = 3  # updates without growth
_RANKED = 3  # updates of a training of several ranks


class Growth:
    """Of the peaks of this process, by updates."""

    def __init__(self) -> None:
        self.peaks: dict[tuple[int, str], int] = {}
        self.at = 0  # the last update in which one grew
        self.requested = self.reserved = 0  # bytes by which they grew in it, over all devices

    def step(self, number: int) -> None:
        """Update `number` is done."""
        found = _peaks()
        grown = {key: peak - self.peaks.get(key, 0) for key, peak in found.items() if peak > self.peaks.get(key, 0)}
        self.peaks.update(found)
        if grown:
            self.at = number
            self.requested = sum(more for (_, kind), more in grown.items() if kind == "requested")
            self.reserved = sum(more for (_, kind), more in grown.items() if kind == "reserved")


growth = Growth()


def _peaks() -> dict[tuple[int, str], int]:
    torch = _sources.torch_with_cuda()
    if torch is None:
        devices = [device for source in _sources.sources() for device in source.devices()]
        return {(0, "requested"): sum(d.max_allocated for d in devices), (0, "reserved"): sum(d.max_reserved for d in devices)}
    peaks = {}
    for index in _sources.used(torch):
        stats = torch.cuda.memory_stats(index)
        for kind in ("requested", "reserved"):
            peaks[index, kind] = int(stats.get(f"{kind}_bytes.all.peak", 0))
    return peaks


def _ranks() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    ranks = os.environ.get("WORLD_SIZE", "")
    return int(ranks) if ranks.isascii() and ranks.isdigit() else 1


def reached(number: int) -> bool:
    """Whether the program may end after its update `number`, which growth.step was told of."""
    return number >= _RANKED if _ranks() > 1 else number - growth.at >= _STILL
