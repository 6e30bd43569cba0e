"""Clears, shows and limits memory: the helpers that everyone writes by hand, which do the real thing and report what they did.

All functions work on PyTorch's allocator, if torch is imported and has used CUDA, and on neap's own Allocators. Without either they
do nothing, and report that: `stats.devices` is empty and `stats.note` is the reason. None of them creates a CUDA context. Sizes are
bytes, times seconds. Log lines go to the logger "neap" at level INFO. Any thread may call them; the figures are of the whole
process, and include what other threads allocate meanwhile. If a CUDA error is pending, the call that finds it raises it as
PyTorch's RuntimeError.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import resource
import sys
import time
import types
from collections.abc import Collection, Sequence
from typing import Any, Callable, TextIO

from . import _allocator, _futile, _html, _limits, _logging, _peaks, _sources, _units, hunt
from ._drain import Drain
from ._sources import DeviceMemory
from .hunt import Lingering

log = logging.getLogger("neap")

# How such a RuntimeError begins: of older PyTorch; of the driver, called by a library; of cuBLAS's workspace.
_RAN_OUT = ("CUDA out of memory", "CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED")


@dataclasses.dataclass(frozen=True, repr=False)
class MemoryStats:
    """The memory that this process holds at one instant."""

    devices: tuple[DeviceMemory, ...]
    host: int  # resident set of this process
    note: str  # why there are no devices; "": there are some

    @property
    def available(self) -> bool:
        """Whether this process uses a device."""
        return bool(self.devices)

    @property
    def allocated(self) -> int:
        """Allocated bytes, over all devices."""
        return sum(d.allocated for d in self.devices)

    @property
    def reserved(self) -> int:
        """Reserved bytes, over all devices."""
        return sum(d.reserved for d in self.devices)

    @property
    def cached(self) -> int:
        """Cached bytes, over all devices."""
        return self.reserved - self.allocated

    @property
    def max_allocated(self) -> int:
        """Sum of the devices' peaks of allocated bytes."""
        return sum(d.max_allocated for d in self.devices)

    @property
    def max_reserved(self) -> int:
        """Sum of the devices' peaks of reserved bytes."""
        return sum(d.max_reserved for d in self.devices)

    def __getitem__(self, name: str) -> Any:
        """Returns the same figure by its name: stats["allocated"]. Raises KeyError."""
        return _sources.item(self, name)

    def __repr__(self) -> str:
        held = [f"GPU {d.index}: {_units.size(d.allocated)} allocated, {_units.size(d.reserved)} reserved" for d in self.devices]
        return f"<MemoryStats: {'; '.join(held) or self.note}; host: {_units.size(self.host)}>"

    def _repr_html_(self) -> str:
        heads = ("", "name", "allocated", "cached", "reserved", "peak allocated")
        sizes = [map(_units.size, (d.allocated, d.cached, d.reserved, d.max_allocated)) for d in self.devices]
        rows = [(f"GPU {d.index}", d.name, *of) for d, of in zip(self.devices, sizes)]
        return _html.table(heads, rows, f"{self.note} Host: {_units.size(self.host)}")


@dataclasses.dataclass(frozen=True, repr=False)
class ClearResult:
    """The effect of a clear."""

    before: MemoryStats
    after: MemoryStats
    seconds: float
    collected: int  # unreachable objects the garbage collector found
    lingering: tuple[Lingering, ...]  # with force: the tensors that hold memory, and their holders; released ones are marked
    refused: str  # why nothing was given back (a graph is being captured); "" otherwise

    @property
    def freed(self) -> int:
        """Bytes given back to the driver."""
        return self.before.reserved - self.after.reserved

    @property
    def released(self) -> int:
        """Bytes that were live before and are not any more."""
        return self.before.allocated - self.after.allocated

    def __repr__(self) -> str:
        if self.refused:
            return f"<ClearResult: refused: {self.refused}>"
        named = f", {len(self.lingering)} lingering" if self.lingering else ""
        return (
            f"<ClearResult: gave back {_units.size(self.freed)} in {self.seconds * 1000:.1f} ms, "
            f"{_units.size(self.after.reserved)} reserved now{named}>"
        )

    def _repr_html_(self) -> str:
        rows = [(_units.size(one.bytes), one.what or f"{one.dtype} {list(one.shape)}", "; ".join(one.holders)) for one in self.lingering]
        return _html.table(("bytes", "what pins memory", "held by"), rows, repr(self).strip("<>"))


@dataclasses.dataclass(frozen=True)
class FractionResult:
    """The limit in force on one device, in bytes; `fraction` is its share of the device's total."""

    device: int
    fraction: float
    limit: int | None  # bytes that may be reserved
    reserved: int  # now; above the limit if live memory is


@dataclasses.dataclass(frozen=True)
class Settings:
    """What enable_memory_efficient_settings did: each setting with "set", "was active" or the reason why it could not be set."""

    applied: dict[str, str]

    def __str__(self) -> str:
        return "\n".join(f"{name}: {what}" for name, what in self.applied.items())


def host_bytes() -> int:
    """Returns the resident set of this process; its peak if /proc is missing."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def host_available_bytes() -> int:
    """Returns the bytes that the host can still give without swapping, by its kernel's estimate."""
    try:
        with open("/proc/meminfo", encoding="ascii") as meminfo:
            for line in meminfo:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * resource.getpagesize()


def get_gpu_memory_stats() -> MemoryStats:
    """Returns the memory that this process holds on every device it uses, and on the host. Collects and releases nothing. Raises
    nothing of its own.

    >>> with neap.Allocator() as allocator:
    ...     address = allocator.malloc(5 << 20)
    ...     neap.get_gpu_memory_stats().allocated
    5242880
    """
    devices = tuple(d for source in _sources.sources() for d in source.devices())
    return MemoryStats(devices, host_bytes(), "" if devices else _sources.why_none())


def get_cuda_memory_info(device: Any = None) -> DeviceMemory | None:
    """Returns one device's figures, in bytes: of `device` (a number, "cuda:1" or a torch.device), or of the first that this process
    uses. None: it uses none. Raises ValueError for anything that is not a CUDA device.

    >>> with neap.Allocator() as allocator:
    ...     neap.get_cuda_memory_info("cuda:0").name
    'Simulated GPU ... MiB'
    """
    device = _sources.device_index(device)
    for found in get_gpu_memory_stats().devices:
        if device is None or found.index == device:
            return found
    return None


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Returns the allocator's counters on one device, under PyTorch's own keys, like torch.cuda.memory_stats: bytes, or numbers.
    They are PyTorch's if it has memory there, else those of neap's own Allocators there (the sum, if there are several). `device`:
    as for get_cuda_memory_info; None: PyTorch's current one, or the first Allocator's. {}: this process holds nothing there. Raises
    ValueError if `device` is no CUDA device.

    >>> with neap.Allocator() as allocator:
    ...     address = allocator.malloc(5 << 20)
    ...     neap.memory_stats()["allocated_bytes.all.current"]
    5242880
    """
    index = _sources.device_index(device)
    return next(filter(None, (source.memory_stats(index) for source in _sources.sources())), {})


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Returns the same counters as a table, in the layout of torch.cuda.memory_summary; `abbreviated`: without the small and the
    large pool. If this process holds nothing on the device, returns a sentence that says why. Raises ValueError if `device` is no
    CUDA device.

    >>> print(neap.memory_summary())
    torch is not imported...
    """
    index = _sources.device_index(device)
    tables = (source.memory_summary(index, abbreviated) for source in _sources.sources())
    return next(filter(None, tables), "") or (_nothing_on(index) + "\n")


def _nothing_on(index: int | None) -> str:
    stats = get_gpu_memory_stats()
    return stats.note or f"this process does not use GPU {index}"


def print_cuda_memory_info(device: Any = None, file: TextIO | None = None) -> None:
    """Prints the memory that this process holds, one line per device, or why there is nothing to print, to `file` (None:
    sys.stdout). `device`: as for get_cuda_memory_info; None: each that it uses. Raises ValueError for what is no CUDA device.

    >>> with neap.Allocator() as allocator:
    ...     neap.print_cuda_memory_info()
    GPU 0 (Simulated GPU ... MiB): 0 B allocated, 0 B cached, 0 B allocated at most, ... free
    """
    device = _sources.device_index(device)
    stats = get_gpu_memory_stats()
    shown = [d for d in stats.devices if device is None or d.index == device]
    for d in shown:
        whole = "" if d.free is None or d.total is None else f", {_units.size(d.free)} of {_units.size(d.total)} free"
        print(
            f"GPU {d.index} ({d.name}): {_units.size(d.allocated)} allocated, {_units.size(d.cached)} cached, "
            f"{_units.size(d.max_allocated)} allocated at most{whole}",
            file=file,
        )
    if not shown:
        print(_nothing_on(device), file=file)


class _Logged:
    """The last logged figures of this process."""

    last: MemoryStats | None = None


def log_gpu_memory_stats(prefix: str = "", since: MemoryStats | None = None) -> MemoryStats:
    """Logs host and device memory, in the customary "GB" of 2**30 bytes, with the peak, and the change since `since` (None: since
    the last call in this process). With a prefix, each line begins with "PREFIX: ". Returns the figures. A program that has not
    configured logging gets the lines on stderr, unless NEAP_LOG_LEVEL (`neap run --log-level`) is "warning" or "error". Raises
    nothing of its own.

    >>> stats = neap.log_gpu_memory_stats("epoch 1")
    >>> stats.host > 0
    True
    """
    return log_stats(_logging.show, prefix, since)


def log_stats(write: Callable[..., None], prefix: str, since: MemoryStats | None = None) -> MemoryStats:
    """Does the same, by `write` (a logger's method)."""
    stats = get_gpu_memory_stats()
    head = f"{prefix}: " if prefix else ""
    since, _Logged.last = since or _Logged.last, stats
    write("%sMemory usage: %s%s", head, _units.gb(stats.host), f" ({_units.delta_gb(stats.host - since.host)})" if since else "")
    for d in stats.devices:
        change = "" if since is None else f" ({_change(d, since)})"
        write("%sGPU memory: %s%s%s", head, _held(d.allocated, d.cached, d.max_allocated), change, _which(stats, d))
    if not stats.devices:
        write("%sGPU memory: %s", head, stats.note)
    return stats


def _held(allocated: int, cached: int, peak: int) -> str:
    return f"{_units.gb(allocated)} allocated, {_units.gb(cached)} cached, {_units.gb(peak)} at most"


def _change(d: DeviceMemory, since: MemoryStats) -> str:
    """ Returns "Δ+1.5 GB, Δ-0.2 GB": the changes of allocated and cached memory on this device."""
    allocated, cached = next(((b.allocated, b.cached) for b in since.devices if (b.index, b.source) == (d.index, d.source)), (0, 0))
    return f"{_units.delta_gb(d.allocated - allocated)}, {_units.delta_gb(d.cached - cached)}"


def _which(stats: MemoryStats, d: DeviceMemory) -> str:
    return f" (GPU {d.index})" if len(stats.devices) > 1 else ""


def _customary(count: int) -> str:
    return f"{count / _units.GIB:.2f}GB"


def _log_clear(after: MemoryStats, before: MemoryStats, seconds: float) -> None:
    for d in after.devices:
        log.info(
            "CUDA memory stats after cleanup: allocated=%s, max_allocated=%s, reserved=%s, max_reserved=%s%s",
            _customary(d.allocated),
            _customary(d.max_allocated),
            _customary(d.reserved),
            _customary(d.max_reserved),
            _which(after, d),
        )
    log.info("Asking the driver for GPU memory (as nvidia-smi reports it)...")
    known = [(d.used or 0, d.free or 0) for d in after.devices if d.free is not None and d.used is not None]
    why = after.note or "it would not tell"
    if not after.devices and log.isEnabledFor(logging.INFO):  # this process uses no device: report all devices
        with Drain() as drain:
            known, why = drain.memory()
    if known:
        log.info("NVIDIA-SMI report:")
        log.info("memory.used [MiB], memory.free [MiB]")
        for used, free in known:
            log.info("%d, %d", used // _units.MIB, free // _units.MIB)
    else:
        log.info("The driver does not say: %s", why)
    log.info(
        "Cleanup gave back %s in %.1f ms", _units.size(max(before.reserved - after.reserved, 0)), seconds * 1000
    )


def clear_gpu_memory(force: bool = False, device_types: Collection[str] = ("cuda",)) -> ClearResult:
    """Collects garbage and returns cached memory to the driver, on every device this process uses.

    With `force` it also finds what holds memory: it names tensors (on devices of these types) in saved tracebacks, closures,
    reference cycles, globals and elsewhere, with size, shape and holder. It releases those in tracebacks and cycles (saved
    tracebacks keep their text and lose their local variables), and library workspaces.

    It does not release live tensors, the CUDA context, and memory that libraries took outside the allocator. It waits for the
    devices' work, so one call per step slows a training. While a CUDA graph is being captured, it does nothing, and `refused` says
    so. Raises nothing of its own.

    >>> with neap.Allocator() as allocator:
    ...     allocator.free(allocator.malloc(64 << 20))
    ...     neap.clear_gpu_memory().freed
    67108864
    """
    began = time.monotonic()
    result = clear_and_log(force, device_types)
    if result.after.devices and not result.refused:
        _futile.direct(result.before.reserved, result.after.reserved, time.monotonic() - began)
    return result


def clear_and_log(force: bool = False, device_types: Collection[str] = ("cuda",)) -> ClearResult:
    """clear_gpu_memory, for callers that judge themselves whether it was useful."""
    log.info("Cleaning up CUDA memory...")
    log.info("Clearing CUDA cache...")
    result = clear(force, device_types)
    if result.refused:
        log.warning("The cache was not emptied: %s", result.refused)
        return result
    _log_clear(result.after, result.before, result.seconds)
    for item in result.lingering:
        log.info("%s", item)
    return result


def clear(
    force: bool = False,
    device_types: Collection[str] = ("cuda",),
    only: Sequence[_sources.Source] | None = None,
) -> ClearResult:
    """clear_gpu_memory without its log lines; for all the process's allocators, or only for these."""
    sources = _sources.sources() if only is None else only
    before = get_gpu_memory_stats()
    if any(source.capturing() for source in sources):
        return ClearResult(before, before, 0.0, 0, (), "a CUDA graph is being captured")
    began = time.monotonic()
    lingering: tuple[Lingering, ...] = ()
    if force:
        collected, lingering = hunt.release(device_types)
    else:
        collected = gc.collect()
    for source in sources:
        source.empty(force)
    seconds = time.monotonic() - began
    after = get_gpu_memory_stats()
    return ClearResult(before, after, seconds, collected, lingering, "")


def clear_cuda_memory(force: bool = False) -> ClearResult:
    """An older name of clear_gpu_memory, for programs that use it; new ones should call clear_gpu_memory. Raises nothing of its
    own.

    >>> neap.clear_cuda_memory().refused
    ''
    """
    return clear_gpu_memory(force)


def reset_peak_memory_stats() -> MemoryStats:
    """Resets the peaks of every device that this process uses, and returns the figures with the old peaks. Other counters stay, and
    no memory is released. Raises nothing of its own.

    >>> before = neap.reset_peak_memory_stats()
    >>> before.max_allocated
    0
    """
    before = get_gpu_memory_stats()
    for source in _sources.sources():
        source.reset_peaks()
    return before


def set_memory_fraction(fraction: float, device: Any = None) -> list[FractionResult]:
    """Limits how much this process's allocators may reserve to this share of one device, or of each device that it uses.

    The share is above 0 and at most 1 (no limit); else it raises ValueError. If more is cached, the cache is emptied first; live
    memory is never touched. The limit does not count the CUDA context, and memory that libraries take outside the allocator.

    If PyTorch has not used CUDA yet, the limit is set when it does, on `device` or on the current one, and the list is empty. If
    there is no device to limit, the list is empty, too, and that is logged.

    >>> with neap.Allocator() as allocator:
    ...     [result.fraction for result in neap.set_memory_fraction(0.5)]
    [0.5]
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction {fraction}: expected more than 0 and at most 1")
    fraction = float(fraction)  # PyTorch accepts no int
    device = _sources.device_index(device)
    results = []
    for source in _sources.sources():
        totals = source.set_fraction(fraction, device)
        reserved = {d.index: d.reserved for d in source.devices()}
        for index, total in totals.items():
            limit = None if total is None else int(fraction * total)
            results.append(FractionResult(index, fraction, limit, reserved.get(index, 0)))
    if not _limit_when_used(fraction, device) and not results:
        log.warning("No memory was limited: %s", _sources.why_none())
    return results


def _limit_when_used(fraction: float, device: int | None) -> bool:
    """Sets the limit once PyTorch uses CUDA, if it can and has not yet; setting the limit now would initialise CUDA."""
    torch = _sources.torch_module()
    try:
        if torch is None or torch.cuda.is_initialized() or not torch.cuda.is_available():
            return False
    except Exception:
        return False

    def limit() -> None:
        _limits.limit(torch, fraction, torch.cuda.current_device() if device is None else device)

    torch.cuda._lazy_call(limit)
    return True


def install_allocator(plugin: bool = False) -> None:
    """Makes neap PyTorch's allocator in this process: call it before CUDA is used, right after `import torch`. Idempotent.

    It is compiled once for each PyTorch, which takes seconds and needs a C++ compiler; afterwards it comes from the cache
    (XDG_CACHE_HOME/neap/allocator). `neap run --allocator neap` does the same for an unchanged script. Imports
    torch. Raises NeapError, whose text says what is missing; PyTorch's own allocator then stays. docs/allocator.md says what
    works.

    With `plugin` neap comes in through PyTorch's documented plug-in instead (`neap run --allocator plugin`). It compiles nothing,
    but serves no CUDA graphs, no MemPool and no memory history, and memory that runs out is a RuntimeError, which
    is_out_of_memory() recognises.

        import torch, neap
        neap.install_allocator()          # before the first tensor on a GPU
    """
    _allocator.install(plugin)


def enable_memory_efficient_settings() -> Settings:
    """Switches on settings that cost no accuracy: memory-efficient attention, and expandable segments, if it is not too late.

    PyTorch reads the allocator's settings when CUDA is first used: after that they are reported as too late, with advice (`neap run
    --enable`, or PYTORCH_CUDA_ALLOC_CONF). Raises nothing of its own.

    >>> neap.enable_memory_efficient_settings().applied["PYTORCH_CUDA_ALLOC_CONF"]
    'set'
    """
    applied: dict[str, str] = {}
    name = "PYTORCH_CUDA_ALLOC_CONF"
    other = "PYTORCH_ALLOC_CONF"
    wanted = "expandable_segments:True"
    # PyTorch reads the first and, if that is not set at all, the second; before 2.9 only the first.
    present = {n: os.environ[n] for n in (name, other) if n in os.environ}
    if name in present and all(wanted in settings.split(",") for settings in present.values()):
        applied[name] = "was active"
    elif _sources.torch_with_cuda() is not None:
        applied[name] = f"too late: PyTorch has used CUDA already; start with `neap run --enable` or {name}={wanted}"
    else:
        present.setdefault(name, present.get(other, ""))
        for variable, settings in present.items():
            kept = [s for s in settings.split(",") if s and not s.strip().startswith("expandable_segments:")]
            os.environ[variable] = ",".join(kept + [wanted])
        applied[name] = "set"
    torch = _sources.torch_module()
    for kind in ("flash", "mem_efficient"):
        if torch is None:
            applied[f"{kind}_sdp"] = "torch is not imported: it is on by default there"
            continue
        backend = torch.backends.cuda
        was = getattr(backend, f"{kind}_sdp_enabled")()
        if not was:
            getattr(backend, f"enable_{kind}_sdp")(True)
        applied[f"{kind}_sdp"] = "was active" if was else "set"
    return Settings(applied)


class GPUMemoryContext:
    """A scope that reports what happened inside it, on the host and on the devices:

        with neap.GPUMemoryContext("evaluation") as scope: ...
        scope.peak, scope.delta

    At its end it logs two lines by `write` (None: as log_gpu_memory_stats does), and with `clear` collects garbage and empties the
    cache first. Scopes may lie inside each other. The peak is the one inside the scope. For that, the allocators' peaks are reset
    at the beginning, and the old ones are kept. So torch.cuda.max_memory_allocated() and the like show the program the same as
    without the scope: the highest since the program itself last reset them.
    """

    def __init__(self, name: str = "scope", clear: bool = False, *, write: Callable[..., None] | None = None) -> None:
        self._write = write or _logging.show
        self._scope = _peaks.Scope()
        self.name = name
        self._clear = clear
        self.before: MemoryStats | None = None
        self.after: MemoryStats | None = None
        self.seconds = 0.0
        self._began = 0.0

    @property
    def delta(self) -> int:
        """Change of allocated bytes."""
        return 0 if self.before is None or self.after is None else self.after.allocated - self.before.allocated

    @property
    def peak(self) -> int:
        """Highest allocated bytes inside, once the scope has ended; with several devices, the sum of their peaks."""
        return 0 if self.after is None else self._scope.allocated

    def __enter__(self) -> GPUMemoryContext:
        self.before = get_gpu_memory_stats()
        self.after = None
        self._began = time.monotonic()
        self._scope = _peaks.enter(_sources.begin_scope)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        try:
            if self._clear:
                clear_gpu_memory()
        finally:
            _peaks.leave(self._scope, _sources.note_scopes)
        self.after = get_gpu_memory_stats()
        self.seconds = time.monotonic() - self._began
        before = self.before or self.after
        after = self.after
        self._write("%s: Memory usage: %s (%s)", self.name, _units.gb(after.host), _units.delta_gb(after.host - before.host))
        if after.devices:
            self._write(
                "GPU memory: %s (%s, %s)",
                _held(after.allocated, after.cached, self.peak),
                _units.delta_gb(after.allocated - before.allocated),
                _units.delta_gb(after.cached - before.cached),
            )
        else:
            self._write("GPU memory: %s", after.note)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Returns whether this error means that device memory ran out: PyTorch's exception, its older wording, the driver's or cuBLAS's
    own words in a RuntimeError, or neap's error. An error of cuDNN, or Python's MemoryError, does not. None: False. Raises nothing.

    >>> with neap.Allocator() as allocator:
    ...     try:
    ...         allocator.malloc(1 << 50)
    ...     except neap.OutOfMemory as error:
    ...         neap.is_out_of_memory(error)
    True
    """
    if error is None:
        return False
    if isinstance(error, _sources.OutOfMemory):
        return True
    torch = sys.modules.get("torch")
    kinds: list[Any] = [getattr(torch, "OutOfMemoryError", None), getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)]
    if any(isinstance(kind, type) and isinstance(error, kind) for kind in kinds):
        return True
    return isinstance(error, RuntimeError) and str(error).startswith(_RAN_OUT)
