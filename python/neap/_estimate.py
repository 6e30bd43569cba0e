"""Records inside a PyTorch program, for `neap estimate`: every allocation with its stack, and the lines that read values back.

    torch imported   -> watch(torch): the functions that read values from the device count their callers
    CUDA first used  -> PyTorch records its allocator from before the first allocation on
    the end          -> finish(): RUN/snapshot.PID.pickle, then RUN/estimate.PID.json, each whole

The end is the exit of the process, the step bound of `--max-steps`, or the SIGTERM that ends a run at its time limit. That signal's
handler may interrupt any line of this file. So this file takes no lock, which the interrupted thread could hold, and uses only
single operations on lists, dictionaries and counters. Only the call that takes the one ticket writes; a signal that interrupts the
writing ends the process afterwards.

The program's behaviour does not change: a failure here is a note (_notes.py), and the wrapped functions return what PyTorch's
own return. A value that is read back but was not computed (_values.py) is a likely one, or zero: a program that branches on it, or
takes a size from it, may allocate other memory on a GPU. The parent names these lines.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import itertools
import json
import os
import signal
import sys
import sysconfig
import threading
import types
from collections.abc import Iterator
from typing import Any, Callable

from . import _notes, _shared_runs, _steady, _values

_SCHEMA = 1
_LINES_MOST = 200

# How a line may use a value it reads. A size decides how much memory is allocated; a branch may decide that, too.
_METHODS = {
    "item": "value",
    "tolist": "value",
    "cpu": "value",
    "__int__": "value",
    "__float__": "value",
    "__complex__": "value",
    "__index__": "size",
    "__bool__": "branch",
    "nonzero": "size",
    "masked_select": "size",
    "unique": "size",
    "unique_consecutive": "size",
    "argwhere": "size",
    "equal": "branch",
    "allclose": "branch",
}
# These read only in some calls: see _reads.
_SOMETIMES = {
    "to": "value",
    "repeat_interleave": "size",
    "where": "size",
    "one_hot": "size",
}
_FUNCTIONS = {
    "nonzero": "size",
    "masked_select": "size",
    "unique": "size",
    "unique_consecutive": "size",
    "argwhere": "size",
    "bincount": "size",
    "equal": "branch",
    "allclose": "branch",
}


class _State:
    """State of this process."""

    torch: Any = None
    recording = False
    tickets = [None]  # finish() takes the ticket; a call that finds none writes nothing
    written = False  # also if writing was given up
    ended_by = 0  # the signal that ends the process after the writing
    waited: tuple[str, str, int] | None = None  # the main thread's line then
    optimizer = False  # the program has created one
    at_optimizer: Callable[[], None] | None = None  # called when the program creates its first optimizer
    lines: dict[tuple[str, str, str, int, str], Iterator[int]] = {}
    lost: Iterator[int] = itertools.count()  # reads by lines beyond _LINES_MOST
    compiling = False  # torch.compile has begun to compile
    compiled_in: dict[int, None] = {}  # updates, from 1, in which it compiled
    launches = 0  # launches of loaded kernels until then
    graphs_ran = False  # without Triton, graphs that torch.compile captured have run
    forwards = 0  # forward passes, if their number is bounded
    wrapped: list[tuple[Any, str, Any]] = []  # owner, name, original function
    reading = threading.local()  # a function that PyTorch calls inside another reading one is not counted again


def is_asked() -> bool:
    """Returns whether this process must be recorded."""
    return os.environ.get("NEAP_ESTIMATE") == "1" and bool(os.environ.get("NEAP_RUN_DIR"))


def watch(torch: Any) -> None:
    """Called once torch is imported."""
    _State.torch = torch
    _wrap_readers(torch)
    _watch_compile(torch)
    _watch_optimizers(torch)
    forwards = _number("NEAP_ESTIMATE_FORWARDS")
    if forwards:
        _bound_forwards(torch, forwards)
    ranks = _number("NEAP_ESTIMATE_RANKS")
    if ranks:
        _pretend_ranks(torch, ranks)
    torch.cuda._lazy_call(_notes.harmless("recording of allocations")(_record))
    _notes.harmless("runs for other GPUs")(_shared_runs.watch)(torch)


# Recording.


def _record() -> None:
    """Called while CUDA is initialized, before the first allocation."""
    memory = _State.torch.cuda.memory
    known = inspect.signature(memory._record_memory_history).parameters
    if "stacks" not in known and "kwargs" not in known:
        raise NotImplementedError("this PyTorch cannot record its allocations with stacks")
    memory._record_memory_history(enabled="all", context="all", stacks="all", max_entries=sys.maxsize)
    _State.recording = True
    atexit.register(finish)
    _finish_in_children()
    _finish_on_sigterm()


def _finish_in_children() -> None:
    """Makes children of multiprocessing finish, too: they end without atexit."""
    from multiprocessing import util

    util.Finalize(None, finish, exitpriority=0)


def _finish_on_sigterm() -> None:
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def end(number: int, frame: Any) -> None:
        _State.ended_by = number
        _note_wait(frame)
        finish()
        _end_if_asked()

    signal.signal(signal.SIGTERM, end)


@_notes.harmless("where the program waited")
def _note_wait(frame: Any) -> None:
    if _State.recording and frame is not None:
        _State.waited = _place(frame)


def finish() -> None:
    """Writes the snapshot and the other findings, once. Does nothing if CUDA was not used."""
    if not _State.recording:
        return
    try:
        _State.tickets.pop()
    except IndexError:
        return
    try:
        _write()
        _shared_runs.end(lambda: _State.ended_by)
    finally:
        _State.written = True
        _end_if_asked()


def _end_if_asked() -> None:
    """Ends the process by the signal that asked for it. While finish() is writing, does nothing: finish() calls this at its end."""
    number = _State.ended_by
    if not number or (_State.recording and not _State.written):
        return
    if threading.current_thread() is threading.main_thread():
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)  # from another thread: the handler comes back here in the main thread


def show_step() -> None:
    """Appends a byte to RUN/steps.PID, by which `neap estimate` shows how many updates the program has made."""
    with contextlib.suppress(OSError):
        file = os.open(f"{os.environ['NEAP_RUN_DIR']}/steps.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, b".")
        finally:
            os.close(file)
    _shared_runs.step()


@_notes.harmless("snapshot")
def _write() -> None:
    base = os.path.join(os.environ["NEAP_RUN_DIR"], "{}." + str(os.getpid()))
    snapshot = base.format("snapshot") + ".pickle"
    with _without_compiler(_State.torch):
        _State.torch.cuda.memory._dump_snapshot(snapshot + ".part")
    os.replace(snapshot + ".part", snapshot)
    about = base.format("estimate") + ".json"
    with open(about + ".part", "w", encoding="utf-8", errors="replace") as file:
        json.dump(_about(), file)
    os.replace(about + ".part", about)


@contextlib.contextmanager
def _without_compiler(torch: Any) -> Iterator[None]:
    """PyTorch looks for stacks of compiled code in each snapshot. Newer versions import the compiler for that, if the program has
    not, which takes a second. Within this context they find no compiler instead."""
    if "torch._inductor" in sys.modules or "_inductor" in vars(torch):
        yield
        return
    none = types.ModuleType("torch._inductor")
    torch._inductor = none
    try:
        yield
    finally:
        if vars(torch).get("_inductor") is none:
            del torch._inductor


def _about() -> dict[str, Any]:
    torch = _State.torch
    names = ("file", "function", "reader", "line", "use")
    counts = {place: next(counter) for place, counter in list(_State.lines.items())}
    return {
        "schema": _SCHEMA,
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "architectures": list(torch.cuda.get_arch_list()),
        "triton": _has_triton(),
        "compiled": _has_compiled(),
        "compiled_updates": list(_State.compiled_in),
        "computed": _values.is_on(),
        "not_computed": [name for name, _ in _values.unknown()],
        "reads_hidden": _State.compiling,
        "rank": _number("RANK"),
        "local_rank": _number("LOCAL_RANK"),
        "ranks": _number("WORLD_SIZE"),
        "steps": _steps(),
        "grew_at": _steady.growth.at,
        "grew_requested": _steady.growth.requested,
        "grew_reserved": _steady.growth.reserved,
        "forwards": _State.forwards,
        "optimizer": _State.optimizer,
        "waited": dict(zip(("file", "function", "line"), _State.waited)) if _State.waited else None,
        "devices": [_device(torch, index) for index in range(torch.cuda.device_count())],
        "reads": [
            dict(zip(names, place), count=count)
            for place, count in sorted(counts.items(), key=lambda item: -item[1])
        ],
        "reads_lost": next(_State.lost),
        **_shared_runs.about(),
    }


def _device(torch: Any, index: int) -> dict[str, Any]:
    figures = torch.cuda.memory_stats(index)
    properties = torch.cuda.get_device_properties(index)
    place = os.environ.get("CUDA_VISIBLE_DEVICES", "") + f":{index}"  # if this PyTorch does not report it
    about = {"name": properties.name, "uuid": str(getattr(properties, "uuid", place))}
    for kind in ("requested", "allocated", "reserved"):
        about[kind + "_peak"] = int(figures.get(f"{kind}_bytes.all.peak", 0))
    return about


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _steps() -> int:
    from . import _events

    return _events.steps_done()


def _has_triton() -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec("triton") is not None
    except (ImportError, ValueError):
        return False


# Forward passes.


def _bound_forwards(torch: Any, most: int) -> None:
    """Ends a program that has no optimizer after so many forward passes of its outermost module, as sys.exit() there would. The
    outermost module is the one that is called first. A program that creates an optimizer is bounded by its updates instead."""
    modules = torch.nn.modules.module
    compiling = torch.compiler.is_compiling
    handles: list[Any] = []
    root: list[Any] = []

    def began(module: Any, _: Any) -> None:
        if not compiling() and not root:
            root.append(module)

    def ended(module: Any, *_: Any) -> None:
        if compiling() or not root or module is not root[0]:
            return
        _State.forwards += 1
        if _State.forwards >= most:
            remove()
            raise SystemExit(0)

    def remove() -> None:
        while handles:
            handles.pop().remove()

    def made() -> None:
        _State.forwards = 0
        remove()

    _State.at_optimizer = made
    began.of_neap = ended.of_neap = True  # type: ignore[attr-defined]
    handles += [modules.register_module_forward_pre_hook(began), modules.register_module_forward_hook(ended)]


def _watch_optimizers(torch: Any) -> None:
    """Notices whether the program creates an optimizer: then the program is measured by its updates."""
    real = torch.optim.Optimizer.__init__

    @functools.wraps(real)
    def made(*arguments: Any, **named: Any) -> None:
        _State.optimizer = True
        at_optimizer, _State.at_optimizer = _State.at_optimizer, None
        if at_optimizer:
            at_optimizer()
        real(*arguments, **named)

    torch.optim.Optimizer.__init__ = made


# Values read back.


def _reads(name: str, arguments: tuple[Any, ...], named: dict[str, Any], torch: Any) -> bool:
    """Returns whether this call reads values, of a function that does so only in some calls."""
    if name == "to":
        target = named.get("device", arguments[1] if len(arguments) > 1 else None)
        return isinstance(target, (str, torch.device)) and str(target).startswith("cpu")
    if name == "where":  # finds the places of elements that are not zero
        return len(arguments) + len(named) == 1
    if name == "one_hot":  # makes as many classes as the highest value
        return bool(named.get("num_classes", arguments[1] if len(arguments) > 1 else -1) == -1)
    repeats = named.get("repeats", arguments[1] if len(arguments) > 1 else arguments[0])
    return isinstance(repeats, torch.Tensor) and named.get("output_size") is None


def _wrap_readers(torch: Any) -> None:
    for name, use in _METHODS.items():
        _wrap(torch.Tensor, name, use, torch)
    for name, use in _FUNCTIONS.items():
        _wrap(torch, name, use, torch)
    sometimes = ((torch.Tensor, "to"), (torch.Tensor, "repeat_interleave"), (torch, "repeat_interleave"), (torch, "where"))
    for owner, name in (*sometimes, (torch.nn.functional, "one_hot")):
        _wrap(owner, name, _SOMETIMES[name], torch)
    # __getitem__ set on the class makes tensors sequences in Python's C API, and torch.tensor() of a list of scalars fails.
    if _values.asked() == "none":
        _wrap_mask(torch)


def _wrap(owner: Any, name: str, use: str, torch: Any) -> None:
    real = getattr(owner, name, None)
    if real is None:
        return
    Tensor = torch.Tensor
    inside = _State.reading

    @functools.wraps(real)
    def reader(*arguments: Any, **named: Any) -> Any:
        if getattr(inside, "deep", False) or not arguments or not isinstance(arguments[0], Tensor) or not _on_device(arguments[0]):
            return real(*arguments, **named)
        if name in _SOMETIMES and not _reads(name, arguments, named, torch):
            return real(*arguments, **named)
        if not _values.known(arguments[0]):
            _count(name, use)
        inside.deep = True
        try:
            return real(*arguments, **named)
        finally:
            inside.deep = False

    setattr(owner, name, reader)
    _State.wrapped.append((owner, name, real))
    scripted = torch.jit._builtins  # where TorchScript finds functions
    operation = scripted._find_builtin(real)
    if operation is not None:
        scripted._register_builtin(reader, operation)


def _wrap_mask(torch: Any) -> None:
    """Counts x[mask], whose size depends on the mask's values."""
    real = torch.Tensor.__getitem__
    Tensor = torch.Tensor
    masks = (torch.bool, torch.uint8)

    @functools.wraps(real)
    def reader(self: Any, index: Any) -> Any:
        for part in index if type(index) is tuple else (index,):
            if isinstance(part, Tensor) and part.dtype in masks and _on_device(part) and not getattr(_State.reading, "deep", False):
                if not _values.known(part):
                    _count("x[mask]", "size")
                break
        return real(self, index)

    torch.Tensor.__getitem__ = reader
    _State.wrapped.append((Tensor, "__getitem__", real))


def _unwrap() -> None:
    """Restores the original functions: torch.compile would break its graphs at ours."""
    while _State.wrapped:
        setattr(*_State.wrapped.pop())


def _on_device(tensor: Any) -> bool:
    try:
        return bool(tensor.is_cuda)
    except Exception:
        return False


@functools.cache
def _library_folders() -> tuple[str, str, str]:
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    torch = os.path.dirname(_State.torch.__file__)
    return torch + os.sep, os.path.join(own, "neap") + os.sep, sysconfig.get_path("stdlib") + os.sep


def _is_library(file: str) -> bool:
    """Returns whether the file is torch's, Python's own, or no file at all."""
    torch, own, standard = _library_folders()
    if file.startswith((torch, own, "<")):
        return True
    return file.startswith(standard) and "site-packages" not in file and "dist-packages" not in file


def _place(frame: Any) -> tuple[str, str, int]:
    """Returns the innermost line of the program: file, function, number."""
    while frame.f_back is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_code.co_name, int(frame.f_lineno)


def _count(name: str, use: str) -> None:
    """Counts the innermost line of the program."""
    try:
        file, function, line = _place(sys._getframe(2))
        place = (file, function, name, line, use)
        counter = _State.lines.get(place)
        if counter is None:
            counter = _State.lines.setdefault(place, itertools.count()) if len(_State.lines) < _LINES_MOST else _State.lost
        next(counter)
    except Exception as error:
        _notes.note("values read back", error)


# Ranks that do not exist.


def _pretend_ranks(torch: Any, ranks: int) -> None:
    """The process is rank 0 of so many: torch's own backend "fake" takes part in every collective in place of the others. Shards
    have their true size; data from other ranks is missing."""
    import torch.distributed as distributed

    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    real = distributed.init_process_group

    @functools.wraps(real)
    def init_process_group(*_: Any, **__: Any) -> Any:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        return real(backend="fake", store=FakeStore(), rank=0, world_size=ranks)

    for module in (distributed, distributed.distributed_c10d, sys.modules.get("torch.distributed.device_mesh")):
        if module is not None and hasattr(module, "init_process_group"):
            module.init_process_group = init_process_group
    _reduce_buckets(torch)


def _reduce_buckets(torch: Any) -> None:
    """Gives DDP each bucket itself, by a hook, unless the program has its own hook. DDP takes reduced gradients from the
    reduction's future, which newer versions of "fake" leave empty."""
    owner = torch.nn.parallel.DistributedDataParallel
    real = owner.forward

    def reduced(_: Any, bucket: Any) -> Any:
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    reduced.__annotations__ = {}  # DDP accepts only its own types, or none

    @functools.wraps(real)
    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        if not getattr(self, "_comm_hooks", True):
            self.register_comm_hook(None, reduced)
        return real(self, *arguments, **named)

    owner.forward = forward


# torch.compile.


def _watch_compile(torch: Any) -> None:
    """Notices whether the program compiles: torch.compile only decorates a function, which may never be called. Without Triton,
    PyTorch's own compiler fails at the first call: then the graph is captured as requested, and run uncompiled."""
    real: Callable[..., Any] | None = getattr(torch, "compile", None)
    if real is None:
        return

    @functools.wraps(real)
    def compile(*arguments: Any, **named: Any) -> Any:
        if not _has_triton() and named.get("backend", "inductor") == "inductor":
            named = {name: value for name, value in named.items() if name not in ("mode", "options")}
            named["backend"] = _run_graph
        made = real(*arguments, **named)
        _watch_dynamo(torch)
        return made

    torch.compile = compile


@_notes.harmless("torch.compile")
def _watch_dynamo(torch: Any) -> None:
    dynamo = sys.modules.get("torch._dynamo")  # torch.compile imports it, if it will compile
    if dynamo is not None and _begin_compiling not in dynamo.callback_handler.start_callbacks:
        dynamo.callback_handler.register_start_callback(_begin_compiling)


def _begin_compiling(*_: Any) -> None:
    """Called when a frame is about to be traced. From the first one on, values that are read back are not counted."""
    if _State.optimizer:
        _State.compiled_in.setdefault(_steps() + 1)
    if _State.compiling:
        return
    _State.compiling = True
    _State.launches = _loaded_launches()
    _unwrap()


def _run_graph(graph: Any, _: Any) -> Callable[..., Any]:
    """A backend like "eager"."""

    def run(*arguments: Any) -> Any:
        _State.graphs_ran = True
        return graph.forward(*arguments)

    return run


def _loaded_launches() -> int:
    """Returns the launches so far of kernels that are not PyTorch's own: Triton loads the compiler's kernels as modules of the
    driver."""
    import ctypes

    count: Any = getattr(ctypes.CDLL("libcuda.so.1"), "neap_sim_get_loaded_launches", None)
    if count is None:
        return 0
    count.restype = ctypes.c_uint64
    return int(count())


def _has_compiled() -> bool:
    """Returns whether code that torch.compile made has run."""
    if not _State.compiling:
        return False
    return _loaded_launches() > _State.launches if _has_triton() else _State.graphs_ran


def _forked() -> None:
    """In a fork's child: its history and counts are its own, and it has not used CUDA yet."""
    _State.recording = _State.written = False
    _State.tickets = [None]
    _State.ended_by = 0
    _State.waited = None
    _State.lines = {}
    _State.lost = itertools.count()
    _State.compiled_in = {}


os.register_at_fork(after_in_child=_forked)

__all__ = ["finish", "is_asked", "watch"]
