"""Programs that are larger than this machine, on the simulator under `neap run` and `neap estimate`. Their devices take no memory of
the host; with this, beyond the bound for values, what they build or read on the host takes none either.

    tensors on the host     lent memory (src/torch/values_host.h)
    torch.load of a file    mapped, as with mmap=True: the same values, read where something reads them
    safetensors             maps its files itself
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from . import _units

_LENT = (5 << 44, (5 << 44) + (4 << 40))  # addresses, as in values_host.h
_ZIP = b"PK\x03\x04"  # what torch.save writes


class _State:
    """Of this process."""

    loaded: Any = None  # src/torch/values.cpp; None: nothing is lent
    bound = 0  # bytes of host memory
    read = 0  # bytes of the files that torch.load has read


def begin(torch: Any, loaded: ctypes.CDLL, bound: int) -> None:
    """torch has been imported on the stand-ins."""
    loaded.neap_values_lend.argtypes = [ctypes.c_uint64]
    loaded.neap_values_lend.restype = None
    loaded.neap_values_lent.restype = ctypes.c_uint64
    loaded.neap_values_lend(bound)
    _State.loaded = loaded
    _State.bound = bound
    _draw_once(torch)
    _map_files(torch)


def unknown() -> list[tuple[str, str]]:
    """As _values.unknown."""
    lent = _State.loaded.neap_values_lent() if _State.loaded else 0
    if not lent:
        return []
    words = f"{_units.size(lent)} of tensors on the host beyond {_units.size(_State.bound)}"
    return [(f"{words}, which were not written (values_memory= in NEAP_SIM)", "no room")]


def _draw_once(torch: Any) -> None:
    """Newer versions of trunc_normal_ draw again what is too far from the mean, for ever where nothing is written."""
    real = torch.nn.init._no_grad_trunc_normal_

    @functools.wraps(real)
    def draw(tensor: Any, mean: float, std: float, *arguments: Any, **named: Any) -> Any:
        if not _is_lent(tensor):
            return real(tensor, mean, std, *arguments, **named)
        with torch.no_grad():
            return tensor.uniform_()  # as many numbers as those that draw once

    torch.nn.init._no_grad_trunc_normal_ = draw


def _is_lent(tensor: Any) -> bool:
    try:
        return bool(_LENT[0] <= tensor.data_ptr() < _LENT[1])
    except Exception:  # a tensor without bytes
        return False


def _map_files(torch: Any) -> None:
    real = torch.load

    @functools.wraps(real)
    def load(file: Any, *arguments: Any, **named: Any) -> Any:
        if named.get("mmap") is None and _is_beyond(file):
            return real(os.fspath(file), *arguments, **{**named, "mmap": True})
        return real(file, *arguments, **named)

    torch.load = torch.serialization.load = load


def _is_beyond(file: Any) -> bool:
    """Whether the file, with those before it, takes more than the bound."""
    try:
        with open(os.fspath(file), "rb") as opened:
            if opened.read(len(_ZIP)) != _ZIP:
                return False
            _State.read += os.fstat(opened.fileno()).st_size
    except (OSError, TypeError):  # PyTorch's own error is the program's; or no path
        return False
    return _State.read > _State.bound


__all__ = ["begin", "unknown"]
