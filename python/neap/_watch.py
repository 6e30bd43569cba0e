"""Records the events of PyTorch's own allocator: src/torch/watch.cpp, compiled once against the installed PyTorch, loaded and
started.

    CUDA first used -> begin(): the object in the cache --> neap_watch_start --> events in RUN/record.PID, stacks in RUN/stacks.PID
                                if there is none --> a job for `neap run`, which compiles it during this run or after it;
                                _history.py

A program never waits for a compiler. Missing parts become notes (_notes.py).
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any

from . import _allocator, _compiled, _estimate, _events, _frames, _history, _library, _notes

UNIT = _compiled.Unit(
    name="watch",
    title="neap's recorder of PyTorch's allocations",
    main="watch.cpp",
    sources=("watch*.cpp", "watch*.h"),
    object="neap_watch.so",
    advice="Meanwhile PyTorch's own history explains an out-of-memory error, and no more; neap run --no-trace does without both",
)
_MESSAGE_ROOM = 512


class _Options(ctypes.Structure):
    """struct neap_watch_options of src/torch/watch.cpp."""

    _fields_ = [
        ("observer", ctypes.c_void_p),
        ("path", ctypes.c_char_p),
        ("header", ctypes.c_char_p),
        ("devices", ctypes.c_uint64),
    ]


class _State:
    """State of this process."""

    built: Any = None
    folders: tuple[bytes, bytes] = (b"", b"")  # neap's and PyTorch's; C keeps pointers to them
    running = False


def in_run() -> bool:
    """Returns whether `neap run` started this process, and attaches to it."""
    return os.environ.get("NEAP_ATTACH") == "1" and bool(os.environ.get("NEAP_RUN_DIR"))


def _is_wanted() -> bool:
    return in_run() and os.environ.get("NEAP_TRACE") != "0" and not _allocator.installed() and not _estimate.is_asked()


def begin(torch: Any) -> None:
    """Called when CUDA was initialized, and the process is attached. Raises Unavailable if nothing can be recorded."""
    if not _is_wanted() or torch.cuda.get_allocator_backend() != "native":
        return
    if _State.built is None:
        made = _compiled.cached(torch, UNIT)
        if made is None:
            _history.begin(torch)
            _compiled.leave_job(torch, UNIT)
            _notes.tell("allocations", "PyTorch's are recorded from the next run on: what records them is being compiled")
            return
        _load(torch, made)
    _start(torch)


def begin_again(torch: Any) -> None:
    """Called when the process is attached, perhaps for a second time: records into a new recording."""
    _history.begin_again()
    if _State.built is not None and not _State.running:
        begin(torch)


def _load(torch: Any, made: pathlib.Path) -> None:
    built = ctypes.PyDLL(str(made))  # its functions are short, and one reads frames: keep Python's lock
    built.neap_watch_start.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    built.neap_watch_layout.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    built.neap_watch_layout.restype = None
    built.neap_watch_stop.restype = None
    built.neap_watch_text.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    built.neap_watch_text.restype = ctypes.c_size_t
    built.neap_watch_step.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32]
    built.neap_watch_step.restype = None
    built.neap_watch_failed.restype = ctypes.c_uint32
    _State.folders = (_folder(__file__), _folder(torch.__file__))
    _State.built = built


def _folder(file: str) -> bytes:
    return os.path.join(os.path.dirname(os.path.abspath(file)), "").encode("utf-8", "replace")


@_notes.harmless("stacks of allocations")
def _read_frames() -> None:
    """From now on stacks can be read; without this, events have none."""
    built = _State.built
    try:
        layout = _frames.find()
        built.neap_watch_layout(ctypes.byref(layout), *_State.folders)
        _frames.check(built.neap_watch_text)
    except Exception:
        built.neap_watch_layout(None, None, None)
        raise


def _start(torch: Any) -> None:
    _read_frames()
    observer = ctypes.cast(_library.library().neap_attach_observer(), ctypes.c_void_p)
    path = os.path.join(os.environ["NEAP_RUN_DIR"], f"stacks.{os.getpid()}")
    conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or ""
    header = f"neap-stacks 1\ttorch {torch.__version__}\tconf {' '.join(conf.split())}\n"
    options = _Options(observer, os.fsencode(path), header.encode("utf-8", "replace"), torch.cuda.device_count())
    message = ctypes.create_string_buffer(_MESSAGE_ROOM)
    if _State.built.neap_watch_start(ctypes.byref(options), message, _MESSAGE_ROOM) != 0:
        raise RuntimeError(message.value.decode("utf-8", "replace"))
    _State.running = True
    _events.sampled.record_natively(_State.built.neap_watch_step)


def asked(device: int) -> int:
    """Returns the tag of the stack whose request has just failed in this thread; 0: unknown."""
    return int(_State.built.neap_watch_failed(device)) if _State.running else 0


def end() -> None:
    """Called when the process detaches."""
    if _State.running:
        _State.running = False
        _events.sampled.record_natively(None)
        _State.built.neap_watch_stop()


def interpreter_ends() -> None:
    """Called when threads' frames are about to vanish; events of the allocator are recorded to the end."""
    if _State.running:
        _State.built.neap_watch_layout(None, None, None)
        if _State.built.neap_watch_full():
            _notes.tell("allocations", "there were more stacks than are recorded: later allocations are without")


def _forked() -> None:
    _State.running = False


os.register_at_fork(after_in_child=_forked)
