"""Finds memory that is used too late, on the simulator (`neap run --streams`): src/torch/races.cpp, within the object of
_values.py.

    NEAP_STREAMS, CUDA first used --> start(): RUN/races.PID gets a line of JSON for each race, RUN/places.PID Python's stacks
                                        --> the command reads both

The dispatcher reports operations, the allocator blocks, the simulator streams and events. This module reports the rest: that the
program asked whether work has finished, that the host reads without an operation, where a backward pass begins, and kernels that
the program launches itself.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import json
import os
import shutil
from collections.abc import Callable, Iterable
from typing import Any

from . import _allocator, _awaited, _frames, _notes

_MARK = "_neap_races"


class _State:
    """State of this process."""

    built: Any = None
    operations: Any = None
    folders: tuple[bytes, bytes] = (b"", b"")  # C keeps pointers to them
    read: dict[str, int] = {}  # files, and how many of their bytes belong to earlier tests


def asked() -> bool:
    """Returns whether `neap run --streams` started this process, or a test asked for races."""
    return bool(os.environ.get("NEAP_STREAMS")) and bool(os.environ.get("NEAP_RUN_DIR"))


@_notes.harmless("races between streams")
def start(torch: Any, path: str, operations: Any) -> None:
    """Called when values begin to be computed. `path`: of the loaded object that computes them."""
    if not asked() or _State.built is not None:
        return
    backend = torch.cuda.get_allocator_backend()
    if backend != "native" and not _allocator.installed():
        _notes.tell("races between streams", "not looked for", f"the allocator '{backend}' does not tell of its blocks")
        return
    built = ctypes.PyDLL(path)  # its functions are short, and one reads frames: keep Python's lock
    built.neap_races_layout.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    built.neap_races_layout.restype = None
    built.neap_races_text.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    built.neap_races_text.restype = ctypes.c_size_t
    built.neap_values_races.restype = ctypes.c_void_p
    built.neap_races_start.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_bool]
    built.neap_races_start.restype = ctypes.c_bool
    built.neap_races_delay.argtypes = [ctypes.c_uint64]
    built.neap_races_delay.restype = ctypes.c_bool
    for name in ("neap_races_backward", "neap_races_asks", "neap_races_saw_stream", "neap_races_again"):
        getattr(built, name).restype = None
    built.neap_races_asks.argtypes = [ctypes.c_bool]
    built.neap_races_saw_stream.argtypes = [ctypes.c_uint64, ctypes.c_int]
    _State.folders = (_folder(__file__), _folder(torch.__file__))
    _State.operations = operations
    _read_frames(built)
    folder = os.environ["NEAP_RUN_DIR"]
    places = os.path.join(folder, f"places.{os.getpid()}")
    found = os.path.join(folder, f"races.{os.getpid()}")
    header = f"neap-stacks 1\ttorch {torch.__version__}\tconf \n".encode("utf-8", "replace")
    calls = built.neap_values_races()
    if not calls or not built.neap_races_start(calls, os.fsencode(places), header, os.fsencode(found), _allocator.installed()):
        raise RuntimeError(f"{found} cannot be written, or the allocator does not tell of its blocks")
    _State.built = built
    how, _, seed = os.environ["NEAP_STREAMS"].partition(":")
    if how == "delay" and not built.neap_races_delay(int(seed or 0)):
        raise RuntimeError("values cannot come late")
    _watch_questions(torch, built)
    _watch_host(torch, operations)
    _watch_backward(torch, built)
    _watch_captures(torch, built)
    _watch_kernels(torch)


def _folder(file: str) -> bytes:
    return os.path.join(os.path.dirname(os.path.abspath(file)), "").encode("utf-8", "replace")


@_notes.harmless("places of races")
def _read_frames(built: Any) -> None:
    """From now on stacks can be read; without this, races have no lines."""
    try:
        layout = _frames.find()
        built.neap_races_layout(ctypes.byref(layout), *_State.folders)
        _frames.check(built.neap_races_text)
    except Exception:
        built.neap_races_layout(None, None, None)
        raise


def _wrap(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    real = getattr(owner, name, None)
    if real is None or hasattr(real, _MARK):
        return
    wrapped = functools.wraps(real)(around(real))
    setattr(wrapped, _MARK, True)
    setattr(owner, name, wrapped)


def _watch_questions(torch: Any, built: Any) -> None:
    """Reports the program's queries: it may rely on the answer that work has finished. PyTorch's own queries order nothing."""

    def of_event(real: Callable[..., Any]) -> Callable[..., Any]:
        def query(self: Any) -> Any:
            built.neap_races_asks(True)
            try:
                return real(self)
            finally:
                built.neap_races_asks(False)

        return query

    def of_stream(real: Callable[..., Any]) -> Callable[..., Any]:
        def query(self: Any) -> Any:
            finished = real(self)
            if finished:
                built.neap_races_saw_stream(self.cuda_stream, self.device_index)
            return finished

        return query

    _wrap(torch.cuda.Event, "query", of_event)
    _wrap(torch.cuda.Stream, "query", of_stream)
    if torch.distributed.is_available():
        _wrap(torch._C._distributed_c10d.Work, "is_completed", of_event)


def _watch_host(torch: Any, operations: Any) -> None:
    """Reports functions that read a tensor's bytes without an operation."""

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def read(self: Any, *arguments: Any, **named: Any) -> Any:
            if self.device.type == "cpu" and not torch._C._dispatch_keys(self).has(torch._C.DispatchKey.Python):
                operations.races_read(self.detach())
            return real(self, *arguments, **named)

        return read

    for name in ("numpy", "tolist", "__array__"):
        _wrap(torch.Tensor, name, around)


def _watch_backward(torch: Any, built: Any) -> None:
    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            built.neap_races_backward()
            return real(*arguments, **named)

        return run

    for owner in (torch.autograd, torch.autograd.graph):
        _wrap(owner, "_engine_run_backward", around)


def _watch_captures(torch: Any, built: Any) -> None:
    """Reports that the host has seen the stream of a capture, since PyTorch 2.4 itself sets the graph's random state there, and
    again on the stream of each replay, with no order."""

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*arguments: Any, **named: Any) -> Any:
            result = real(*arguments, **named)
            stream = torch.cuda.current_stream()
            built.neap_races_saw_stream(stream.cuda_stream, stream.device_index)
            return result

        return begin

    _wrap(torch.cuda.CUDAGraph, "capture_begin", around)


def kernel(name: str, tensors: Iterable[Any]) -> None:
    """Reports that a kernel of the program was launched with these tensors, and may use all of their bytes."""
    given = [one.detach() for one in tensors if one.is_cuda]
    if _State.built is not None and given:
        _State.operations.races_kernel(name, given)


@_notes.harmless("kernels of Inductor's")
def _watch_kernels(torch: Any) -> None:
    """Reports Inductor's launches; _values_triton.py reports kernels that the program wrote itself."""

    def launches(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *arguments: Any, **named: Any) -> Any:
            kernel(str(getattr(self.fn, "__name__", "a kernel")), (one for one in arguments if isinstance(one, torch.Tensor)))
            return real(self, *arguments, **named)

        return run

    _awaited.change("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", lambda owner: _wrap(owner, "run", launches))


def is_on() -> bool:
    """Returns whether races are searched for in this process."""
    return _State.built is not None


def again() -> None:
    """Called when a test begins: races that were found before can be found again, and earlier findings do not belong to the
    test."""
    if _State.built is not None:
        _State.built.neap_races_again()
    os.environ["NEAP_STREAMS_OF"] = str(os.getpid())  # for processes that this one starts
    _State.read = {path: os.path.getsize(path) for path in _files()}


def _files() -> list[str]:
    """Returns the files of this process and of all processes that descend from it."""
    paths = glob.glob(os.path.join(glob.escape(os.environ.get("NEAP_RUN_DIR", "/")), "races.*"))
    return [path for path in paths if path.endswith(f".{os.getpid()}") or _first(path).get("of") == str(os.getpid())]


def _parsed(line: str) -> dict[str, Any]:
    """Parses one line of a file. A half line, which another process is just writing, gives nothing."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _first(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return _parsed(file.readline())


def copy(folder: str) -> bool:
    """Copies the findings since `again` into this folder, as of a run. False: there is no race, and all work was watched."""
    any_race = False
    for path in _files():
        with open(path, encoding="utf-8", errors="replace") as file:
            head = file.readline()
            file.seek(max(file.tell(), _State.read.get(path, 0)))
            lines = [line for line in file if line.endswith("\n")]
        with open(os.path.join(folder, os.path.basename(path)), "w", encoding="utf-8") as file:
            file.writelines([head, *lines])
        places = path.replace("/races.", "/places.")
        if os.path.exists(places):
            shutil.copy(places, folder)
        found = [_parsed(line) for line in [head, *lines]]
        any_race = any_race or any("kind" in line or "limit" in line or line.get("lost") for line in found)
    return any_race


def interpreter_ends() -> None:
    """Called when threads' frames are about to vanish. Races are still reported afterwards, without lines."""
    if _State.built is not None:
        _State.built.neap_races_layout(None, None, None)


def _forked() -> None:
    _State.built = None


os.register_at_fork(after_in_child=_forked)
