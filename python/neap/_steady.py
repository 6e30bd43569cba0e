"""Finds whether a program's memory is steady, for `--max-steps steady`, with which `neap estimate` runs programs.

Memory is steady once the peaks of requested, allocated and reserved bytes have not grown on any device for three optimizer updates,
and every parameter of an optimizer was updated. The processes of one training must end after the same update, since each waits for
the others in the next one: they end after the third.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

from . import _needs, _sources

STEADY = "steady"  # the value of --max-steps
MOST = 50  # updates
_STILL = 3  # updates without growth
_RANKED = 3  # updates of a training of several processes
_KINDS = ("requested", "allocated", "reserved")
_COUNTS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")  # numbers of processes, set by launchers


class Growth:
    """The growth of this process's peaks over its updates."""

    def __init__(self) -> None:
        self.peaks: dict[tuple[int, str], int] = {}
        self.at = 0  # the last update in which a peak grew
        self.requested = self.reserved = 0  # bytes by which they grew in that update, over all devices

    def step(self, number: int) -> None:
        """Called after update `number`."""
        grown = {}
        for key, peak in _peaks().items():
            if peak > self.peaks.get(key, 0):  # the program may have reset it
                grown[key] = peak - self.peaks.get(key, 0)
                self.peaks[key] = peak
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
        for kind in _KINDS:
            peaks[index, kind] = int(stats.get(f"{kind}_bytes.all.peak", 0))
    return peaks


def _has_others() -> bool:
    """Returns whether other processes may wait for this one. The --ranks of an estimate do not exist."""
    if os.environ.get("NEAP_ESTIMATE_RANKS"):
        return False
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return True
    counts = [os.environ.get(name, "") for name in _COUNTS]
    return multiprocessing.parent_process() is not None or any(count.isdigit() and int(count) > 1 for count in counts)


def _all_updated(updated: Any) -> bool:
    """Returns whether these optimizers have every parameter of all optimizers. A wrapper of an optimizer has the same
    parameters."""
    torch = _sources.torch_module()
    if torch is None:
        return True
    there = _needs.find_optimizers(torch)
    done, wanted = ({id(p) for one in some for group in one.param_groups for p in group["params"]} for some in (updated, there))
    return wanted <= done


def reached(number: int, updated: Any) -> bool:
    """Returns whether the program may end after its update `number`, for which growth.step was called. `updated`: its optimizers
    that made an update."""
    if _has_others():
        return number >= _RANKED
    return number - growth.at >= _STILL and _all_updated(updated)
