"""Makes neap PyTorch's allocator through the documented plug-in, torch.cuda.memory.CUDAPluggableAllocator: nothing is compiled.

    install(torch) --> libneap's functions (neap/plugin.h) as the plug-in's alloc, free and hooks
                   --> torch._C's functions of statistics, which the plug-in refuses: answered from libneap

torch.cuda.memory_stats and functions built on it, memory_snapshot and get_per_process_memory_fraction then work. Other functions
raise an error, either PyTorch's or neap's (docs/allocator.md lists them).
"""

from __future__ import annotations

import ctypes
import pathlib
from typing import Any

from . import _abi, _counters, _library

# c10::detail::torchCheckFail(char const*, char const*, unsigned int, char const*): it throws an exception that becomes a
# RuntimeError.
_THROW = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
_HOOKS = {
    "set_reset_fn": "neap_plugin_empty_cache",
    "set_memory_fraction_fn": "neap_plugin_set_fraction",
    "set_base_alloc_fn": "neap_plugin_base",
    "set_record_stream_fn": "neap_plugin_record_stream",
    "set_begin_allocate_to_pool": "neap_plugin_refuse_pool",
}
_STATES = {
    _abi.BlockState.LIVE: "active_allocated",
    _abi.BlockState.PENDING: "active_awaiting_free",
    _abi.BlockState.CACHED: "inactive",
}


def _address(library: Any, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def install(torch: Any) -> None:
    """Raises AttributeError or OSError if this PyTorch lacks a part of the plug-in, RuntimeError if PyTorch refuses it."""
    library = _library.library()
    core = ctypes.CDLL(str(pathlib.Path(torch.__file__).resolve().parent / "lib" / "libc10.so"))
    library.neap_plugin_start(ctypes.c_void_p(_address(core, _THROW)))
    memory = torch.cuda.memory
    allocator = memory.CUDAPluggableAllocator(library._name, "neap_plugin_malloc", "neap_plugin_free")
    for setter, function in _HOOKS.items():
        getattr(allocator.allocator(), setter)(_address(library, function))
    memory.change_current_allocator(allocator)
    _answer(torch)
    torch.cuda.CUDAGraph.capture_begin = _refuse  # refuse before PyTorch begins a capture, which older versions do not undo


def _refuse(*_: Any, **__: Any) -> None:
    raise RuntimeError(
        "neap's allocator serves no CUDA graphs through PyTorch's plug-in. Install a C++ compiler (Debian: apt install g++) and use "
        "neap.install_allocator() or neap run --allocator neap, or use PyTorch's own allocator"
    )


def _answer(torch: Any) -> None:
    """Replaces the functions that the plug-in refuses. PyTorch's Python functions call them by these names."""
    c = torch._C

    def snapshot(*_: Any) -> dict[str, Any]:
        devices = range(torch.cuda.device_count())
        segments = [segment for device in devices for segment in _segments(device)]
        return {"segments": segments, "device_traces": [[] for _ in devices], "allocator_settings": {}}

    c._cuda_memoryStats = _stats
    c._cuda_resetPeakMemoryStats = lambda device: _reset("neap_reset_peak_stats", device)
    c._cuda_resetAccumulatedMemoryStats = lambda device: _reset("neap_reset_accumulated_stats", device)
    c._cuda_memorySnapshot = snapshot
    if hasattr(c, "_cuda_getMemoryFraction"):
        c._cuda_getMemoryFraction = _fraction


def _alloc(device: int) -> int | None:
    found: int | None = _library.library().neap_plugin_alloc(device)
    return found


def _stats(device: int) -> dict[str, Any]:
    """Returns the counters like torch.cuda.memory_stats_as_nested_dict."""
    stats = _abi.Stats()
    alloc = _alloc(device)
    if alloc is not None:
        _library.library().neap_get_stats(alloc, ctypes.byref(stats))
    else:
        stats.max_split_size = -1
    found: dict[str, Any] = {}
    for metric, pools in zip(_counters.METRICS, stats.metric):
        found[metric] = {pool: _values(stat) for pool, stat in zip(_counters.POOLS, pools)}
    for name, kind in _abi.Stats._fields_[1:]:  # type: ignore[misc]
        entry = getattr(stats, name)
        found[name] = _values(entry) if kind is _abi.Stat else entry
    return found


def _values(stat: _abi.Stat) -> dict[str, int]:
    return {value: getattr(stat, value) for value in _counters.VALUES}


def _reset(function: str, device: int) -> None:
    alloc = _alloc(device)
    if alloc is not None:
        getattr(_library.library(), function)(alloc)


def _fraction(device: int) -> float:
    alloc = _alloc(device)
    fraction: float = 0.0 if alloc is None else _library.library().neap_get_fraction(alloc)
    return fraction if fraction > 0 else 1.0


def _blocks(device: int) -> list[_abi.BlockInfo]:
    library = _library.library()
    count = 0
    while True:  # other threads may allocate meanwhile
        room = count
        blocks = (_abi.BlockInfo * room)()
        count = library.neap_plugin_blocks(device, blocks, room)
        if count <= room:
            return list(blocks[:count])


def _segments(device: int) -> list[dict[str, Any]]:
    """Returns each stretch of mapped pages as a segment, like PyTorch's expandable ones."""
    found: list[dict[str, Any]] = []
    end = segment = 0
    for block in _blocks(device):
        if block.state == _abi.BlockState.UNMAPPED:
            continue
        if block.address != end or block.segment_address != segment:
            found.append(_segment(device, block))
        _add(found[-1], block)
        end = block.address + block.bytes
        segment = block.segment_address
    return found


def _segment(device: int, block: _abi.BlockInfo) -> dict[str, Any]:
    sizes = dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size"), 0)
    return {
        "device": device,
        "address": block.address,
        "stream": block.stream or 0,
        "segment_type": "small" if block.small_pool else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": True,
        "frames": [],
        "blocks": [],
        **sizes,
    }


def _add(segment: dict[str, Any], block: _abi.BlockInfo) -> None:
    live = block.state == _abi.BlockState.LIVE
    active = live or block.state == _abi.BlockState.PENDING
    requested = block.requested_bytes if active else 0
    segment["blocks"].append(
        {
            "address": block.address,
            "size": block.bytes,
            "requested_size": requested,
            "state": _STATES[_abi.BlockState(block.state)],
            "frames": [],
        }
    )
    segment["total_size"] += block.bytes
    segment["requested_size"] += requested
    segment["allocated_size"] += block.bytes if live else 0
    segment["active_size"] += block.bytes if active else 0
