"""Limits this process to a share of each device: NEAP_FRACTION (`neap run --fraction`), then `neap fraction`.

If a limit that the program has set itself is raised, a line reports that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _sources, _units
from ._limits import limit, limit_of


class Change(NamedTuple):
    """The effect of a new limit."""

    devices: list[int]  # devices that are limited now
    before: dict[int, int | None]  # their limits before
    emptied: set[int]  # those of them that had to give back cached memory
    lines: list[str]  # other lines to show


class Fraction:
    """The limits of this process."""

    def __init__(self) -> None:
        self._share: float | None = None  # of each device, once it is used
        self._done: set[int] = set()  # devices whose limit was decided
        self._own: dict[int, int] = {}  # by device, in bytes

    def forget(self) -> None:
        """Called in a fork's child: no device is limited yet."""
        self._done.clear()
        self._own.clear()

    def begin(self, torch: Any, fraction: float) -> None:
        """Applies NEAP_FRACTION when PyTorch begins to use CUDA. If there are several devices, limits each only once it has memory:
        setting a limit on another would create a context there (for example, each of torchrun's ranks on the first device)."""
        self._share = fraction
        if torch.cuda.device_count() == 1:
            self.follow(torch, 0)

    def follow(self, torch: Any, index: int) -> None:
        """Called when a device is used for the first time: limits it, unless the program's own limit is as low."""
        if self._share is None or index in self._done:
            return
        self._done.add(index)
        wanted = int(self._share * torch.cuda.get_device_properties(index).total_memory)
        now = limit_of(torch, index)
        if now is None or now > wanted:
            limit(torch, self._share, index)
            self._own[index] = wanted

    def change(self, torch: Any, fraction: float) -> Change:
        """Carries out `neap fraction`: limits each used device at once, the others when they are used. `torch`: None before PyTorch
        has used CUDA."""
        self._share = fraction if fraction < 1 else None
        self._done.clear()
        source = None if torch is None else _sources.TorchSource(torch)
        devices = [] if source is None else source.indices() or _idle(torch)
        before = {i: limit_of(torch, i) for i in devices}
        emptied = set()
        lines = []
        for i in devices:
            reserved = torch.cuda.memory_reserved(i)
            total = source.set_fraction(fraction, i)[i] if source is not None else 0
            now = None if fraction >= 1 else int(fraction * (total or 0))
            if now is not None and now < reserved:
                emptied.add(i)
            lines += self._raised(i, before[i], now)
            self._done.add(i)
            self._own.pop(i, None)
            if now is not None:
                self._own[i] = now
        return Change(devices, before, emptied, lines or ([] if devices else _later(fraction)))

    def _raised(self, index: int, before: int | None, now: int | None) -> list[str]:
        if before is None or before == self._own.get(index) or (now is not None and now <= before):
            return []
        what = "raises it" if now is not None else "takes it away"
        return [f"the program itself had set the limit of {_units.size(before)} on CUDA device {index}; this {what}"]


def _idle(torch: Any) -> list[int]:
    """Returns the device that is limited before PyTorch has memory on any device: the only one, or the current one, if it has a
    context."""
    current = int(torch.cuda.current_device())
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return [current] if torch.cuda.device_count() == 1 or (has_context is not None and has_context(current)) else []


def _later(fraction: float) -> list[str]:
    if _sources.torch_module() is None:
        return []
    if fraction >= 1:
        return ["PyTorch uses no device yet: none will be limited by neap"]
    return [f"PyTorch uses no device yet: each is limited to {fraction:g} of its memory when it comes into use"]
