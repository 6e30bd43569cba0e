"""The sources of this process's device memory: PyTorch's allocator, if torch is imported and has used CUDA, and neap's own.

Nothing here imports torch, and nothing creates a CUDA context: a device on which the process has no context is not asked.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

from . import _abi, _counters, _library, _limits, _peaks
from ._library import NeapError


def item(figures: Any, name: str) -> Any:
    """Returns a figure by its name, as a dictionary does. Raises KeyError, which lists all names."""
    names = [n for n in dir(figures) if not n.startswith("_")]
    if name not in names:
        raise KeyError(f"{name!r} is none of {', '.join(names)}")
    return getattr(figures, name)


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """The memory that this process holds on one device, in bytes. `source`: the allocator with these figures, "torch" or "neap"."""

    index: int
    name: str
    source: str
    allocated: int  # in live allocations
    reserved: int  # held from the driver
    max_allocated: int  # since the program reset the peaks
    max_reserved: int
    free: int | None  # of the whole device, from the driver; None if it does not report them
    total: int | None

    @property
    def cached(self) -> int:
        """Bytes held from the driver that are in no live allocation: a clear can give them back."""
        return self.reserved - self.allocated

    @property
    def used(self) -> int | None:
        """Bytes of the whole device in use, by all processes."""
        return None if self.free is None or self.total is None else self.total - self.free

    def __getitem__(self, name: str) -> Any:
        """Returns the same figure by its name: info["allocated"]. Raises KeyError."""
        return item(self, name)


class OutOfMemory(NeapError):
    """Raised if the device, or the limit set on it, is out of memory. The text has the figures."""


class Source(Protocol):
    """An allocator of this process, over all its devices."""

    def devices(self) -> list[DeviceMemory]:
        """Returns the bytes it holds, by device."""

    def capturing(self) -> bool:
        """Returns whether a CUDA graph is being captured, so that nothing may be given back."""

    def empty(self, force: bool) -> None:
        """Gives cached memory back to the driver; with force also a library's workspaces."""

    def reset_peaks(self) -> None:
        """Resets the peaks, as the program's own reset does."""

    def begin_scope(self) -> None:
        """Resets the peaks for a scope (_peaks.py), but keeps and still shows the old ones."""

    def note_scopes(self) -> None:
        """Reports the peaks to the scopes under way."""

    def set_fraction(self, fraction: float, index: int | None) -> dict[int, int | None]:
        """Limits how much may be reserved on one device or all. Returns the limited devices, each with its total bytes."""

    def limits(self) -> dict[Any, float]:
        """Returns the share of its device that each allocator may reserve (1: no limit), by what names it to set_limit."""

    def set_limit(self, of: Any, fraction: float) -> None:
        """Limits one of them."""

    def memory_stats(self, index: int | None) -> dict[str, Any]:
        """Returns the counters of one device (None: the one in use), under PyTorch's names; {}: it holds nothing there."""

    def memory_summary(self, index: int | None, abbreviated: bool) -> str:
        """Returns the same as a table in PyTorch's layout; "": it holds nothing there."""


_ALLOCATED_BYTES = _counters.METRICS.index("allocated_bytes")
_ALL = _counters.POOLS.index("all")
_backends = {"default": 0, "cuda": 1, "sim": 2}
_allocators: weakref.WeakSet[Allocator] = weakref.WeakSet()


class _Closed:
    peak = 0  # the highest bytes in live allocations of an Allocator that is closed


def closed_peak(begin_anew: bool = False) -> int:
    """Returns the highest live bytes of an Allocator that was closed since the last reset."""
    peak = _Closed.peak
    if begin_anew:
        _Closed.peak = 0
    return peak


class Allocator:
    """neap's own allocator on one device, for programs that use the driver API (on a GPU, or on the simulator).

    PyTorch does not use it. Close it, or use it as a context manager; live blocks go with it.
    Raises NeapError if there is no such device.

    >>> with neap.Allocator() as allocator:
    ...     address = allocator.malloc(5 << 20)
    ...     allocator.memory().allocated
    5242880
    """

    def __init__(self, device: int = 0, backend: str = "default", fraction: float | None = None) -> None:
        if backend not in _backends:
            raise ValueError(f"backend {backend!r}: expected one of {', '.join(_backends)}")
        self._driver, self._device, self._alloc = (ctypes.c_void_p() for _ in range(3))
        self._pid = os.getpid()
        try:
            _library.call("neap_driver_open", _backends[backend], ctypes.byref(self._driver))
            _library.call("neap_device_open", self._driver, device, ctypes.byref(self._device))
            options = _abi.AllocOptions(fraction=fraction or 0.0)
            _library.call("neap_alloc_create", self._device, ctypes.byref(options), ctypes.byref(self._alloc))
        except BaseException:
            self.close()
            raise
        info = _library.library().neap_device_info(self._device).contents
        self.index: int = info.ordinal
        self.name: str = info.name.decode("utf-8", "replace")
        self.uuid = bytes(info.uuid)
        self._kept = _abi.Stats()  # peaks from before a scope, unless the program has reset them since
        _allocators.add(self)

    def malloc(self, size_bytes: int, stream: int = 0) -> int:
        """Allocates a block, and returns its address. Raises OutOfMemory."""
        address = ctypes.c_uint64()
        try:
            _library.call("neap_malloc", self._live(), size_bytes, stream or None, ctypes.byref(address))
        except NeapError as error:
            if error.status == _abi.Status.EOOM:
                raise OutOfMemory(error.status, str(error)) from None
            raise
        return address.value

    def free(self, address: int) -> None:
        """Frees a live block. Raises NeapError if no live block starts at the address."""
        status = _library.library().neap_free(self._live(), address)
        if status != _abi.Status.OK:
            raise NeapError(status, f"freeing {address:#x}: it is not the start of a live block")

    def empty_cache(self) -> int:
        """Gives cached memory back to the driver. Returns the number of bytes."""
        freed = ctypes.c_uint64()
        _library.call("neap_empty_cache", self._live(), ctypes.byref(freed))
        return freed.value

    def set_fraction(self, fraction: float) -> None:
        """Limits how much may be reserved to this share of the device; 1 removes the limit."""
        _library.call("neap_set_fraction", self._live(), fraction)

    def reset_peak_stats(self) -> None:
        """Resets the peaks."""
        self._note_scopes()
        self._kept = _abi.Stats()
        _library.library().neap_reset_peak_stats(self._live())

    def _read(self) -> _abi.Stats:
        stats = _abi.Stats()
        _library.library().neap_get_stats(self._live(), ctypes.byref(stats))
        return stats

    def counters(self) -> _abi.Stats:
        """Returns the counters as libneap keeps them, with the peaks since they were last reset. Raises ValueError if it is
        closed."""
        return _higher(self._read(), self._kept)

    def _begin_scope(self) -> None:
        self._note_scopes()
        self._kept = self.counters()
        _library.library().neap_reset_peak_stats(self._live())

    def _note_scopes(self) -> None:
        _peaks.note(id(self), self._read().metric[_ALLOCATED_BYTES][_ALL].peak)

    def memory_stats(self) -> dict[str, int]:
        """Returns the counters under PyTorch's 122 names (torch.cuda.memory_stats), in bytes or numbers."""
        return _named(self.counters())

    def memory_summary(self, abbreviated: bool = False) -> str:
        """Returns the counters in the layout of torch.cuda.memory_summary; `abbreviated`: without the two pools."""
        return _summary(self.counters(), self.index, abbreviated)

    def memory(self) -> DeviceMemory:
        """Returns the bytes it holds, and the driver's figures of the device."""
        stats = self.memory_stats()
        free = ctypes.c_uint64()
        total = ctypes.c_uint64()
        known = True
        try:
            _library.call("neap_device_memory", self._device, ctypes.byref(free), ctypes.byref(total))
        except NeapError:
            known = False
        return DeviceMemory(
            self.index,
            self.name,
            "neap",
            stats["allocated_bytes.all.current"],
            stats["reserved_bytes.all.current"],
            stats["allocated_bytes.all.peak"],
            stats["reserved_bytes.all.peak"],
            free.value if known else None,
            total.value if known else None,
        )

    def close(self) -> None:
        """Gives everything back. Idempotent."""
        _allocators.discard(self)
        if self._pid != os.getpid():  # the driver does not survive a fork
            return
        library = _library.library()
        if self._alloc.value:
            self._note_scopes()
            _Closed.peak = max(_Closed.peak, self.memory_stats()["allocated_bytes.all.peak"])
        for handle, end in (
            (self._alloc, library.neap_alloc_destroy),
            (self._device, library.neap_device_close),
            (self._driver, library.neap_driver_close),
        ):
            if handle.value:
                end(handle)
                handle.value = None

    def _live(self) -> ctypes.c_void_p:
        if not self._alloc.value or self._pid != os.getpid():
            raise ValueError("this allocator is closed, or was inherited through a fork")
        return self._alloc

    def __enter__(self) -> Allocator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_driver", None) is not None and self._driver.value and not sys.is_finalizing():
            self.close()


def _entries(stats: _abi.Stats) -> Iterator[_abi.Stat]:
    for pools in stats.metric:
        yield from pools
    yield from (stats.oversize_allocations, stats.oversize_segments)


def _higher(stats: _abi.Stats, kept: _abi.Stats) -> _abi.Stats:
    """Raises the first's peaks to the second's, in place, and returns it."""
    for entry, before in zip(_entries(stats), _entries(kept)):
        entry.peak = max(entry.peak, before.peak)
    return stats


def _named(stats: _abi.Stats) -> dict[str, int]:
    found: dict[str, int] = {}
    for m, metric in enumerate(_counters.METRICS):
        for p, pool in enumerate(_counters.POOLS):
            for value in _counters.VALUES:
                found[f"{metric}.{pool}.{value}"] = getattr(stats.metric[m][p], value)
    for name, kind in _abi.Stats._fields_[1:]:  # type: ignore[misc]
        entry = getattr(stats, name)
        if kind is _abi.Stat:
            found.update({f"{name}.{value}": getattr(entry, value) for value in _counters.VALUES})
        else:
            found[name] = entry
    return dict(sorted(found.items()))


def _sum(several: list[_abi.Stats]) -> _abi.Stats:
    """Adds up several allocators of one device. A peak is the sum of their peaks; the splitting limit is the first one's."""
    total = _abi.Stats()
    words = ctypes.sizeof(total) // 8
    into = (ctypes.c_int64 * words).from_buffer(total)
    for stats in several:
        for at, count in enumerate((ctypes.c_int64 * words).from_buffer(stats)):
            into[at] += count
    total.max_split_size = several[0].max_split_size
    return total


def _summary(stats: _abi.Stats, index: int, abbreviated: bool) -> str:
    text = ctypes.create_string_buffer(_abi.SUMMARY_ROOM)
    title = f"neap CUDA memory summary, device ID {index}".encode()
    status = _library.library().neap_stats_summary(ctypes.byref(stats), title, abbreviated, text)
    if status != _abi.Status.OK:
        raise NeapError(status, f"the summary of device {index} could not be made")
    return text.value.decode("utf-8", "replace")


class NeapSource:
    """The open Allocators of this process."""

    def _open(self) -> list[Allocator]:
        return sorted((a for a in list(_allocators) if a._pid == os.getpid()), key=lambda a: a.index)

    def devices(self) -> list[DeviceMemory]:
        return [a.memory() for a in self._open()]

    def capturing(self) -> bool:
        return False  # the allocator itself refuses then

    def empty(self, force: bool) -> None:
        for a in self._open():
            a.empty_cache()

    def reset_peaks(self) -> None:
        for a in self._open():
            a.reset_peak_stats()

    def begin_scope(self) -> None:
        for a in self._open():
            a._begin_scope()

    def note_scopes(self) -> None:
        for a in self._open():
            a._note_scopes()

    def set_fraction(self, fraction: float, index: int | None) -> dict[int, int | None]:
        for a in self._open():
            if index is None or a.index == index:
                a.set_fraction(fraction)
        return {d.index: d.total for d in self.devices() if index is None or d.index == index}

    def limits(self) -> dict[Any, float]:
        return {a: _library.library().neap_get_fraction(a._live()) or 1.0 for a in self._open()}

    def set_limit(self, of: Any, fraction: float) -> None:
        of.set_fraction(fraction)

    def _counters(self, index: int | None) -> tuple[int, list[_abi.Stats]]:
        open_ones = self._open()
        chosen = open_ones[0].index if index is None and open_ones else index
        return chosen or 0, [a.counters() for a in open_ones if a.index == chosen]

    def memory_stats(self, index: int | None) -> dict[str, Any]:
        _, found = self._counters(index)
        return dict(_named(_sum(found))) if found else {}

    def memory_summary(self, index: int | None, abbreviated: bool) -> str:
        chosen, found = self._counters(index)
        return _summary(_sum(found), chosen, abbreviated) if found else ""


def torch_module() -> Any:
    """Returns torch if this process has imported it completely, else None. Never imports it."""
    torch = sys.modules.get("torch")
    spec = getattr(torch, "__spec__", None)
    return None if torch is None or getattr(spec, "_initializing", False) else torch


def torch_with_cuda() -> Any:
    """Returns torch if this process has used CUDA through it, else None."""
    torch = torch_module()
    try:
        return torch if torch is not None and torch.cuda.is_initialized() else None
    except Exception:
        return None


_used: list[int] = []  # PyTorch's devices that were in use at the last check


def used(torch: Any) -> list[int]:
    """Returns PyTorch's devices in use, cheaply: if the process is attached, as of at most a quarter of a second ago."""
    return _used or TorchSource(torch).indices()


class TorchSource:
    """PyTorch's allocator."""

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda
        self._torch = torch

    def indices(self) -> list[int]:
        """Returns the devices on which PyTorch has, or had, memory in this process. Asking the driver about another device would
        create a context there."""
        has_context = getattr(self._torch._C, "_cuda_hasPrimaryContext", None)
        found = []
        for i in range(self._cuda.device_count()):
            if has_context is None or has_context(i):
                reserved = self._cuda.memory_stats_as_nested_dict(i).get("reserved_bytes", {}).get("all", {})
                if any(reserved.get(value, 0) for value in ("current", "peak", "allocated")):
                    found.append(i)
        _used[:] = found
        return found

    def devices(self) -> list[DeviceMemory]:
        return [self.device(i) for i in self.indices()]

    def device(self, i: int) -> DeviceMemory:
        """Returns the memory of one of indices(), or of another device with a context."""
        cuda = self._cuda
        free: int | None = None
        total: int | None = None
        try:
            free, total = cuda.mem_get_info(i)
        except Exception:  # the driver refuses at this moment
            pass
        stats = cuda.memory_stats(i)

        def held(what: str, value: str) -> int:
            return int(stats.get(f"{what}_bytes.all.{value}", 0))

        return DeviceMemory(
            i,
            cuda.get_device_name(i),
            "torch",
            held("allocated", "current"),
            held("reserved", "current"),
            held("allocated", "peak"),
            held("reserved", "peak"),
            free,
            total,
        )

    def capturing(self) -> bool:
        for i in self.indices():
            with self._cuda.device(i):
                if self._cuda.is_current_stream_capturing():
                    return True
        return False

    def empty(self, force: bool) -> None:
        if force:
            clear = getattr(self._torch._C, "_cuda_clearCublasWorkspaces", None)
            if clear is not None:
                clear()
        self._cuda.empty_cache()

    def reset_peaks(self) -> None:
        for i in self.indices():
            self._cuda.reset_peak_memory_stats(i)

    def begin_scope(self) -> None:
        _peaks.begin_torch(self._torch, self.indices())

    def note_scopes(self) -> None:
        _peaks.note_torch(self._torch, self.indices())

    def set_fraction(self, fraction: float, index: int | None) -> dict[int, int | None]:
        totals: dict[int, int | None] = {}
        chosen = (self.indices() or [self._cuda.current_device()]) if index is None else [index]
        for i in chosen:
            total = self._cuda.get_device_properties(i).total_memory
            if fraction * total < self._cuda.memory_reserved(i):
                self._cuda.empty_cache()  # the limit is below the cached bytes: first give these back
            _limits.limit(self._torch, fraction, i)
            totals[i] = total
        return totals

    def limits(self) -> dict[Any, float]:
        return {i: _limits.fraction_of(self._torch, i) for i in self.indices()}

    def set_limit(self, of: Any, fraction: float) -> None:
        self.set_fraction(fraction, of)

    def _used(self, index: int | None) -> int:
        return int(self._cuda.current_device()) if index is None else index

    def memory_stats(self, index: int | None) -> dict[str, Any]:
        chosen = self._used(index)
        return dict(self._cuda.memory_stats(chosen)) if chosen in self.indices() else {}

    def memory_summary(self, index: int | None, abbreviated: bool) -> str:
        chosen = self._used(index)
        return str(self._cuda.memory_summary(chosen, abbreviated)) if chosen in self.indices() else ""


def device_uuid(torch: Any, index: int) -> bytes | None:
    """Returns the device's UUID for CUDA and NVML, 16 bytes; None if neither this torch nor the driver reports it. For a process
    that has used CUDA."""
    text = str(getattr(torch.cuda.get_device_properties(index), "uuid", "") or "")
    digits = text.removeprefix("GPU-").replace("-", "")
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raw = b""
    return raw if len(raw) == 16 else _driver_uuid(index)


def _driver_uuid(index: int) -> bytes | None:
    """Returns the UUID of the driver's device of the same number, for a torch that does not report it (before 2.4 or so); for a MIG
    instance, its own."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")  # the process has loaded it already
        ask = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
        device = ctypes.c_int()
        raw = (ctypes.c_ubyte * 16)()
        known = cuda.cuDeviceGet(ctypes.byref(device), index) == 0 and ask(ctypes.byref(raw), device) == 0
    except (OSError, AttributeError):
        return None
    return bytes(raw) if known else None


def device_index(device: Any) -> int | None:
    """Returns the number of a device given as a number, as "cuda:1", or as a torch.device; None for None and for "cuda". Raises
    ValueError for anything that is not a CUDA device."""
    number = getattr(device, "index", None) if hasattr(device, "type") else device
    kind = getattr(device, "type", "cuda")
    if isinstance(device, str):
        kind, _, text = device.partition(":")
        number = int(text) if text.isdigit() else None if not text else -1
    if kind != "cuda" or isinstance(number, bool) or not (number is None or (isinstance(number, int) and number >= 0)):
        raise ValueError(f"device {device!r}: expected a number of a CUDA device, 'cuda:N' or a torch.device of it")
    return number


def sources() -> list[Source]:
    """Returns every allocator of this process that may hold device memory."""
    found: list[Source] = []
    torch = torch_with_cuda()
    if torch is not None:
        found.append(TorchSource(torch))
    if len(_allocators):
        found.append(NeapSource())
    return found


def used_uuids() -> tuple[bytes, ...]:
    """Returns the UUIDs of the devices that this process uses; () if one of them is unknown."""
    torch = torch_with_cuda()
    found = {allocator.uuid for allocator in list(_allocators)}
    for index in TorchSource(torch).indices() if torch is not None else ():
        uuid = device_uuid(torch, index)
        if uuid is None:
            return ()
        found.add(uuid)
    return tuple(found)


def begin_scope() -> None:
    """Resets the peaks of every allocator of this process for a scope (_peaks.py)."""
    for source in sources():
        source.begin_scope()


def note_scopes() -> None:
    """Gives the peaks of every allocator to the scopes under way."""
    for source in sources():
        source.note_scopes()


def why_none() -> str:
    """Returns a sentence that says why there is no device memory."""
    torch = torch_module()
    if torch is None:
        return "torch is not imported, and neap's own allocator is not in use: this process holds no device memory"
    if not getattr(torch.version, "cuda", None):
        return "no CUDA device: this torch was built without CUDA"
    try:
        available = torch.cuda.is_available()
    except Exception:
        available = False
    if not available:
        return "no CUDA device"
    return "PyTorch has allocated nothing on a CUDA device yet: this process holds no device memory"
