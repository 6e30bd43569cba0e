"""Computes values on the simulator (values=auto or full): PyTorch's CUDA operations run on the host, over the device's own bytes.

    import torch on the stand-ins --> begin(): src/torch/values.cpp, compiled once, loaded; the twins (_twins.py) beside it
    each thread of Python's       --> includes the dispatch key that brings operations there (autograd's threads inherit it)

Nothing here changes what PyTorch's allocator does.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import functools
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

from . import _compiled, _large, _notes, _races, _twins, _units, _values_compiled, _values_python, _values_triton

UNIT = _compiled.Unit(
    name="values",
    title="neap's values for the simulator",
    main="values.cpp",
    sources=("values*.cpp", "values*.h", "races.*", "watch_stacks.*"),
    object="neap_values.so",
    advice="Until then they are computed in Python, which adds some 0.1 ms to each operation. What TorchScript, graphs and torch.compile "
    "launch, sparse tensors, and a program's own kernels are not computed then, and not named",
)
KEY = "CustomRNGKeyId"  # as in values.cpp
_GROUP_FILES = ("memory.max", "memory.current", "inactive_file")  # of cgroup v2


class _State:
    """State of this process."""

    loaded: Any = None
    operations: Any = None  # torch.ops.neap_values
    on = False


def _setting(key: str, default: str) -> str:
    """Returns a setting of NEAP_SIM; the last word counts. The simulator has checked the settings once CUDA is initialised."""
    words = os.environ.get("NEAP_SIM", "").split(",")
    return [default, *(word.partition("=")[2] for word in words if word.startswith(key + "="))][-1]


def asked() -> str:
    """Returns the setting of values in NEAP_SIM: none, auto or full; auto if it is not set."""
    return "none" if _setting("backing", "memory") == "none" else _setting("values", "auto")


def _most_bytes() -> int:
    """Returns the most bytes of host memory for the values of this process."""
    most = _setting("values_memory", "")
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return _units.parse_size(most) if most else _free_bytes() // 2 // (int(ranks) if ranks.isdecimal() and int(ranks) else 1)


def begin(torch: Any) -> str:
    """Called when torch was imported on the stand-ins. Returns a problem that the user should know; "": none."""
    if _State.loaded is not None:
        return ""
    if asked() == "none":
        _values_compiled.watch(torch, None)
        return ""
    try:
        path = str(_compiled.compiled(torch, UNIT))
        loaded = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except _compiled.Unavailable as error:
        _begin_without_compiler(torch)
        return f"values: {error}"
    loaded.neap_values_register.argtypes = [ctypes.c_char_p]
    loaded.neap_values_register.restype = None
    loaded.neap_values_start.argtypes = [ctypes.c_bool, ctypes.c_uint64]
    loaded.neap_values_start.restype = ctypes.c_bool
    loaded.neap_values_state.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    loaded.neap_values_step.restype = None
    _State.loaded = loaded
    _State.operations = torch.ops.neap_values
    twins = _twins.names(torch)
    loaded.neap_values_register("\n".join(twins).encode())
    _twins.register(torch, twins, KEY)
    _include(torch)
    if os.environ.get("NEAP_RUN_DIR"):  # then a report will list them
        _large.begin(torch, loaded, _most_bytes())
    _watch_graphs(torch)
    _watch_shares(torch)
    _values_compiled.watch(torch, torch._C._parse_dispatch_key(KEY))
    _values_triton.watch(torch, is_on)
    _call_at_start(torch, lambda: _start(torch, path))
    return ""


def _call_at_start(torch: Any, function: Callable[[], Any]) -> None:
    """Calls the function once CUDA is initialised. If that is happening now, this thread may hold the lock that `_lazy_call`
    takes."""
    lock = getattr(torch.cuda, "_initialization_lock", None)
    if lock is not None and lock.locked():
        function()
    else:
        torch.cuda._lazy_call(function)


def _begin_without_compiler(torch: Any) -> None:
    operations = _values_python.Operations(torch)
    _State.loaded = _State.operations = operations
    _twins.replaced.append(operations)
    twins = _twins.names(torch)
    _values_python.begin(torch, operations, KEY)
    _twins.register(torch, twins, KEY)
    _include(torch)
    _values_triton.watch(torch, is_on)
    _call_at_start(torch, lambda: _start_without_compiler(operations))


@_notes.harmless("values")
def _start_without_compiler(operations: _values_python.Operations) -> None:
    if operations.start(asked() == "full"):
        _State.on = True
        atexit.register(_tell)


@_notes.harmless("values")
def _start(torch: Any, path: str) -> None:
    """Called when CUDA is initialised, and no device memory is in use yet."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    if _State.loaded.neap_values_start(asked() == "full", _most_bytes()):
        _State.on = True
        atexit.register(_tell)
        register_optimizer_step_post_hook(lambda *_: step())
        _races.start(torch, path, _State.operations)


@_notes.harmless("values")
def _tell() -> None:
    """Called at the end: lists the operations that were not computed, for the report of `neap run`."""
    names = sorted({name for name, _ in unknown()})
    if names:
        _notes.tell("values", "not computed", ", ".join(names))


def _watch_graphs(torch: Any) -> None:
    """Makes operations that a graph captures compute when it is replayed."""
    graph = torch.cuda.CUDAGraph
    begin = graph.capture_begin
    end = graph.capture_end
    replay = graph.replay
    reset = graph.reset

    @functools.wraps(begin)
    def capture_begin(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        if _State.on:
            _twins.captured.clear()
            self._neap = _Graph(_State.operations)

    @functools.wraps(end)
    def capture_end(self: Any, *arguments: Any, **named: Any) -> None:
        if _State.on and getattr(self, "_neap", None) is not None:
            _State.operations.capture_end()
            self._neap.twins += _twins.captured
            _twins.captured.clear()
        end(self, *arguments, **named)

    @functools.wraps(replay)
    def replayed(self: Any, *arguments: Any, **named: Any) -> None:
        replay(self, *arguments, **named)
        if _State.on and getattr(self, "_neap", None) is not None:
            self._neap.replay()

    @functools.wraps(reset)
    def dropped(self: Any) -> None:
        reset(self)
        self._neap = None

    graph.capture_begin = capture_begin
    graph.capture_end = capture_end
    graph.replay = replayed
    graph.reset = dropped


@_notes.harmless("values of shared tensors")
def _watch_shares(torch: Any) -> None:
    """Sends along with a tensor for another process (CUDA IPC) whether its values are known."""
    reductions = torch.multiprocessing.reductions
    reduce = reductions.reduce_tensor

    @functools.wraps(reduce)
    def reduce_tensor(tensor: Any) -> Any:
        found = reduce(tensor)
        if not tensor.is_cuda or not _State.on or known(tensor):
            return found
        _State.operations.decide_cost(0.0, [tensor.detach()], [])  # it gets likely values, if it has none
        return _rebuild_likely, found

    reductions.reduce_tensor = reduce_tensor
    for kind, function in list(ForkingPickler._extra_reducers.items()):  # type: ignore[attr-defined]
        if function is reduce:
            ForkingPickler.register(kind, reduce_tensor)


def _rebuild_likely(rebuild: Callable[..., Any], arguments: Any) -> Any:
    tensor = rebuild(*arguments)
    if _State.on:
        _State.operations.mark_unknown(tensor.detach(), True)
    return tensor


class _Graph:
    """The operations of one graph."""

    def __init__(self, operations: Any) -> None:
        self._operations = operations
        self._number = operations.capture_begin()
        self.twins: list[Callable[[], Any]] = []

    def replay(self) -> None:
        at = self._operations.replay(self._number, 0)
        for twin in self.twins:
            twin()
            at = self._operations.replay(self._number, at)

    @_notes.harmless("values of a graph")  # at the interpreter's end PyTorch may be half gone
    def __del__(self) -> None:
        self._operations.capture_drop(self._number)


def _free_bytes(root: str = "") -> int:
    """Returns the free bytes of host memory: the machine's, within the limits of this process's control groups."""
    with open(root + "/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    return max(0, min([free, *_left_to_groups(root)]))


def _left_to_groups(root: str) -> Iterator[int]:
    """Yields the bytes that each control group still allows, like neap_host_memory_read of src/base/hostmem.c."""
    try:
        lines = pathlib.Path(root + "/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for controllers, group in (line.split(":", 2)[1:] for line in lines):
        mount = root + ("/sys/fs/cgroup/memory" if controllers else "/sys/fs/cgroup")
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file") if controllers else _GROUP_FILES
        if (controllers and "memory" not in controllers.split(",")) or "/.." in group:
            continue
        folder = pathlib.Path(mount + group)
        for place in (folder, *folder.parents):
            if place.is_relative_to(mount):
                with contextlib.suppress(OSError, ValueError, StopIteration):  # no limit is "max"
                    limit, used = (int((place / name).read_text()) for name in names[:2])
                    cached = (line.split() for line in (place / "memory.stat").read_text().splitlines())
                    yield limit - used + next(int(size) for name, size in cached if name == names[2])


def _include(torch: Any) -> None:
    """Includes the key in this thread, and in each that Python starts from now on."""
    key = torch._C._parse_dispatch_key(KEY)
    torch._C._dispatch_tls_set_dispatch_key_included(key, True)
    start: Callable[[Any], None] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
    start_new = _thread.start_new_thread

    def bootstrap(thread: Any) -> None:
        torch._C._dispatch_tls_set_dispatch_key_included(key, True)
        start(thread)

    @functools.wraps(start_new)
    def start_new_thread(function: Callable[..., Any], *more: Any) -> int:
        def included(*arguments: Any, **named: Any) -> Any:
            torch._C._dispatch_tls_set_dispatch_key_included(key, True)
            return function(*arguments, **named)

        return start_new(included, *more)

    threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]
    _thread.start_new_thread = start_new_thread


def step() -> None:
    """Called when a step of a training has ended, or a test begins: values=auto may spend its whole time again."""
    if _State.on:
        _State.loaded.neap_values_step()


def is_loaded() -> bool:
    """Returns whether values can be computed once CUDA is used."""
    return _State.loaded is not None


def is_on() -> bool:
    """Returns whether values are computed in this process."""
    return _State.on


def known(tensor: Any) -> bool:
    """Returns whether the tensor has the values that a GPU would have computed."""
    try:  # without an operation, which the program's own modes and transforms would see
        if not _State.on or _twins.replaced:
            return _State.on and (_State.operations.knows() or not tensor.is_floating_point())
        elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        return bool(_State.loaded.neap_values_state(tensor.data_ptr(), elements * tensor.element_size()) == 0)
    except Exception:
        return False


def unknown() -> list[tuple[str, str]]:
    """Returns the operations that could not be computed so far, and why."""
    if not _State.on:
        return []
    lines = _State.operations.unknown().splitlines()
    found = [(name, why) for name, _, why in (line.partition("\t") for line in lines)]
    most = _State.operations.refused()
    if most:
        found.append((f"results beyond {_units.size(most)} of host memory (values_memory= in NEAP_SIM)", "no room"))
    return [*found, *_large.unknown(), *_twins.failed.items(), *_values_compiled.failed.items(), *_values_triton.failed.items()]
