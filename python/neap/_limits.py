"""The limit on how much PyTorch may reserve on a device. Each device has one: the last that any caller set.

The program can set it (torch.cuda.set_per_process_memory_fraction, per_process_memory_fraction in PYTORCH_ALLOC_CONF,
neap.set_memory_fraction), and so can `neap run --fraction` and `neap fraction` (_fraction.py). PyTorch since 2.8 reports it; for
older releases, neap follows the calls that set it.
"""

from __future__ import annotations

import functools
from typing import Any

_set: dict[int, float] = {}  # by device, as it was set: for a PyTorch that does not report it


def watch(torch: Any) -> None:
    """Follows the limits that the program sets from now on, if this PyTorch does not report them."""
    c = torch._C
    original = getattr(c, "_cuda_setMemoryFraction", None)
    if original is None or hasattr(c, "_cuda_getMemoryFraction") or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def set_and_remember(fraction: float, index: int) -> None:
        original(fraction, index)
        _set[index] = fraction

    c._cuda_setMemoryFraction = set_and_remember


def fraction_of(torch: Any, index: int) -> float:
    """Returns the share of a device that PyTorch may reserve, by any caller's limit; 1: no known limit. Only for a device that has a
    context: PyTorch asks the driver about it."""
    ask = getattr(torch._C, "_cuda_getMemoryFraction", None)
    if ask is None:
        return _set.get(index, 1.0)
    with torch.cuda.device(index):  # PyTorch asks the driver about the current device
        return float(ask(index))


def limit_of(torch: Any, index: int) -> int | None:
    """Returns the same in bytes; None: no known limit."""
    fraction = fraction_of(torch, index)
    total = torch.cuda.get_device_properties(index).total_memory
    return None if fraction >= 1 else int(fraction * total + 1e-3)  # some versions report their bytes as a share of the total


def limit(torch: Any, fraction: float, index: int) -> None:
    """Limits how much PyTorch may reserve on a device. Unlike PyTorch's own function, keeps the current device."""
    watch(torch)
    with torch.cuda.device(index):
        torch.cuda.set_per_process_memory_fraction(fraction, index)
