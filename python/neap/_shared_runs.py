"""Runs of one estimate for several GPUs, which share the import of PyTorch and, if they allocate alike, the run itself.

    first run    torch imported -- CUDA first used: forks -- runs to its end -- lets the others go on, as many as processors
    keeper of an other run                            \\- waits --------------- forks the run, and reports how it ended
    other run                                                                  \\- with its own GPU, folder and view of the
                                                                                  files, to its end, or for two updates, if
                                                                                  these are a run's

NEAP_ESTIMATE_SHARED asks for it: the seconds that all runs together may take, then for each other run its folder and its NEAP_SIM.
A complete other run leaves in its folder the same files as a run of its own. Two runs are alike if in the first two updates their
allocators' statistics are the same, they used the same kernels, and their programs read the same facts about the GPU. If a fork
would not be safe, or an other run fails, its folder is removed, and the GPU gets a run of its own. The keepers are not children of
the program, which may wait for all of its children; they end with it, and end their runs.

An other run's view (src/estimate/view_forks.c) starts with what the program had written when it forked. The keeper owns the
connection to the process that makes the view; the view ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import multiprocessing
import os
import re
import resource
import select
import shutil
import signal
import socket
import stat
import sys
import threading
import time
from typing import Any, NamedTuple

from . import _notes, _values

_UPDATES = 2  # after the second one the optimizer's state exists
_POLL_SECONDS = 0.05
_VIEW_SECONDS = 60.0  # for a view to be made: longer, and the GPU gets a run of its own
_AT_ONCE = 8  # at most, as in src/estimate/runs.c
_GO = b"g"  # sent to a keeper
_WHOLE = b"w"  # received from a keeper
_OPENS_ONLY = os.O_CREAT | os.O_EXCL | os.O_TRUNC  # the flags of open(2) that act once


class _Other(NamedTuple):
    folder: str
    keeper: socket.socket


class _Opened(NamedTuple):
    """A file on a disk that is open when the process forks: later its place is where the first run has come to."""

    number: int
    path: str
    flags: int
    place: int


class _State:
    """State of this process."""

    torch: Any = None
    asked: list[tuple[str, str]] = []  # folder and NEAP_SIM of each other run
    until = 0.0
    others: list[_Other] = []
    opened: list[_Opened] = []
    first = ""  # of an other run: the folder of the first
    updates: list[dict[str, int]] = []  # the allocators' statistics after each, up to _UPDATES
    told: dict[str, None] = {}  # the facts about the GPU that the program read
    asking = threading.local()


def watch(torch: Any) -> None:
    """Called when torch is imported. Only the first process of the program that imports it shares its run."""
    text = os.environ.pop("NEAP_ESTIMATE_SHARED", "")
    if not text:
        return
    seconds, *lines = text.split("\n")
    _State.torch = torch
    _State.until = time.monotonic() + float(seconds)
    os.register_at_fork(after_in_child=_forget)
    _State.asked = [(folder, spec) for folder, _, spec in (line.partition("\t") for line in lines) if spec]
    _watch_answers(torch)
    _fork_before_cuda(torch)


# Facts about the GPU that the program read.


def _watch_answers(torch: Any) -> None:
    cuda = torch.cuda
    _tell(cuda, "is_bf16_supported", repr)
    _tell(cuda, "get_device_properties", lambda found: f"{found.major}.{found.minor}, {found.multi_processor_count}, {found.total_memory}")


def _tell(owner: Any, name: str, text: Any) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def told(*arguments: Any, **named: Any) -> Any:
        outer = not getattr(_State.asking, "now", False)
        _State.asking.now = True
        try:
            found = real(*arguments, **named)
        finally:
            _State.asking.now = not outer
        if outer and _is_of_program(sys._getframe(1)):
            _State.told.setdefault(f"{name}: {text(found)}")
        return found

    setattr(owner, name, told)


def _is_of_program(frame: Any) -> bool:
    """Returns whether the frame is the program's: not neap's, nor PyTorch's while it initialises CUDA."""
    if getattr(_State.torch.cuda._tls, "is_initializing", False):
        return False
    while frame is not None and frame.f_code.co_filename.startswith(os.path.dirname(_State.torch.__file__) + os.sep):
        frame = frame.f_back
    return frame is None or not frame.f_code.co_filename.startswith(os.path.dirname(__file__) + os.sep)


# The fork.


def _fork_before_cuda(torch: Any) -> None:
    """Forks before CUDA is used; asking whether there is a GPU does not use it yet."""
    real = torch.cuda._lazy_init
    count = torch._C._cuda_getDeviceCount

    @functools.wraps(real)
    def lazy_init() -> Any:
        _fork()
        return real()

    @functools.wraps(count)
    def device_count() -> int:
        words = os.environ.get("NEAP_SIM", "").split(",")[0].partition("x")
        if _State.asked and "CUDA_VISIBLE_DEVICES" not in os.environ and words[0].isdecimal():
            return int(words[0])
        _fork()
        return int(count())

    torch._C._cuda_getDeviceCount = device_count
    for module in [module for name, module in list(sys.modules.items()) if name.startswith("torch")]:
        if vars(module).get("_lazy_init") is real:
            module._lazy_init = lazy_init  # type: ignore[attr-defined]


@_notes.harmless("runs for other GPUs")
def _fork() -> None:
    asked, _State.asked = _State.asked, []
    if not asked:
        return
    if not _may_fork():
        return
    import torch._dynamo  # noqa: F401 the first optimizer imports it: import it once for all runs

    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    first = os.environ["NEAP_RUN_DIR"]
    _State.opened = _opened()
    for folder, spec in asked:
        path = os.path.join(first, folder)
        os.mkdir(path, 0o700)
        view, maker = _ask_for_view(first, folder)
        keeper = _start_keeper(view) if maker else None
        view.close()
        if keeper is not None:
            _State.others.append(_Other(path, keeper))
        elif maker:
            _become_other(first, path, spec, maker)
            return


def _forget() -> None:
    """Called in any forked child, such as a worker of the program: the other runs belong to its parent."""
    others, _State.others, _State.asked, _State.first = _State.others, [], [], ""
    for one in others:
        one.keeper.close()


def _ask_for_view(first: str, folder: str) -> tuple[socket.socket, int]:
    """Returns the connection to the process that makes the view, and its PID; 0: there is no view."""
    view = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    at = os.open(first, os.O_PATH)
    try:
        view.settimeout(_VIEW_SECONDS)
        view.connect(f"/proc/self/fd/{at}/views")
        view.send(folder.encode())
        maker = int(view.recv(16) or 0)
        view.settimeout(None)
        return view, maker
    except BaseException:
        view.close()
        raise
    finally:
        os.close(at)


def _start_keeper(view: socket.socket) -> socket.socket | None:
    """Starts a keeper. Returns None in the other run, once it may continue."""
    here, there = socket.socketpair()
    between = os.fork()
    if between:
        there.close()
        with contextlib.suppress(ChildProcessError):  # the program ignores SIGCHLD
            os.waitpid(between, 0)
        return here
    try:
        here.close()
        if os.fork() or _keep(there, view):
            os._exit(0)
    except BaseException:  # do not let the program handle it
        os._exit(1)
    there.close()
    return None


def _keep(first: socket.socket, view: socket.socket) -> bool:
    """The keeper: forks the other run once the first run lets it. Returns False in that run. The first run's end, or its word, ends
    both."""
    if first.recv(1) != _GO:
        return True
    run = os.fork()
    if not run:
        return False
    ended = (0, 0)
    while not ended[0]:
        if select.select([first], [], [], _POLL_SECONDS)[0]:
            os.kill(run, signal.SIGKILL)
        ended = os.waitpid(run, os.WNOHANG)
    view.shutdown(socket.SHUT_WR)
    view.recv(1)  # what the run wrote has been counted
    if not ended[1]:
        first.send(_WHOLE, socket.MSG_NOSIGNAL)
    return True


def _may_fork() -> bool:
    """Returns whether a child could do everything that this process may do: the child would lack the other threads, and share open
    files."""
    if threading.active_count() > 1 or multiprocessing.active_children() or threading.current_thread() is not threading.main_thread():
        return False
    run = os.environ["NEAP_RUN_DIR"]
    if os.environ.get("TMPDIR", "").startswith(run) or not os.path.exists(f"{run}/views"):  # no view of its own: it would write there
        return False
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        if any(" rw-s " in line and " /" in line and not re.search(" (/dev/|/memfd:)", line) for line in maps):
            return False
    for number in _descriptors():
        mode = os.fstat(number).st_mode
        if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode):  # by a folder of the first run's view it would write there
            return False
    return all(_opens_again(file) for file in _opened())


def _opened() -> list[_Opened]:
    found = []
    for number in _descriptors():
        path = os.readlink(f"/proc/self/fd/{number}")
        if stat.S_ISREG(os.fstat(number).st_mode) and not path.startswith(("/memfd:", "/dev/shm/")):
            with open(f"/proc/self/fdinfo/{number}", encoding="ascii") as file:
                about = dict(line.split(":", 1) for line in file)
            found.append(_Opened(number, path, int(about["flags"], 8), int(about["pos"])))
    return found


def _opens_again(file: _Opened) -> bool:
    """Whether its path still leads to it. Without one it can be read again all the same, through /proc."""
    same = os.path.exists(file.path) and os.path.samestat(os.stat(file.path), os.fstat(file.number))
    return same or file.flags & os.O_ACCMODE == os.O_RDONLY


def _descriptors() -> list[int]:
    """Returns the open descriptors above the standard ones, without the one that lists them."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}"):
            found.append(int(name))
    return found


def _become_other(first: str, folder: str, spec: str, maker: int) -> None:
    """This process is a run of its own now."""
    try:
        _join_view(maker)
        _open_again()
        _begin_other(first, folder, spec)
    except BaseException:  # half of it would write as the first run
        os._exit(1)


def _join_view(maker: int) -> None:
    """Of another user namespace this process gets no right."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.getcwd()
    root = os.open(f"/proc/{maker}/root", os.O_PATH | os.O_CLOEXEC)
    names = [name for name in ("user", "mnt") if os.readlink(f"/proc/self/ns/{name}") != os.readlink(f"/proc/{maker}/ns/{name}")]
    for joined in [os.open(f"/proc/{maker}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]:
        if libc.setns(joined, 0):
            raise OSError(ctypes.get_errno(), "joining a view")
        os.close(joined)
    os.fchdir(root)
    os.chroot(".")
    os.chdir(here)
    os.close(root)
    if "user" in names:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
        none = (ctypes.c_uint32 * 6)()
        if libc.capset(header, none) or libc.prctl(4, 1, 0, 0, 0):  # PR_SET_DUMPABLE, or else /proc/self is root's
            raise OSError(ctypes.get_errno(), "giving up rights")


def _open_again() -> None:
    """The files of these names in this run's view, at its own places in them."""
    for file in _State.opened:
        path = file.path if os.path.exists(file.path) else f"/proc/self/fd/{file.number}"
        again = os.open(path, file.flags & ~_OPENS_ONLY | os.O_CLOEXEC)
        os.lseek(again, file.place, os.SEEK_SET)
        os.dup2(again, file.number, inheritable=os.get_inheritable(file.number))
        os.close(again)


def _begin_other(first: str, folder: str, spec: str) -> None:
    """Makes this process a run of its own."""
    os.environ.update(NEAP_SIM=spec, NEAP_RUN_DIR=folder)
    for number, name in ((1, "stdout.log"), (2, "stderr.log")):
        output = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, number)
        os.close(output)
    _State.first = first
    _State.torch.set_num_threads(1)  # OpenMP's other threads are the parent's


# Updates.


@_notes.harmless("runs that are alike")
def step() -> None:
    """Called after each update."""
    torch = _State.torch
    if torch is None or len(_State.updates) == _UPDATES:
        return
    devices = [(index, torch.cuda.memory_stats(index)) for index in range(torch.cuda.device_count())]
    _State.updates.append({f"{index} {key}": value for index, stats in devices for key, value in stats.items()})
    if _State.first and len(_State.updates) == _UPDATES:
        _end_if_alike()


def about() -> dict[str, Any]:
    """Returns the part of this run's file that is compared with other runs."""
    return {"updates": _State.updates, "told": list(_State.told)} if _State.torch is not None else {}


def _runs() -> list[str]:
    """Returns the folders of the first run, which has ended, and of the others that have ended."""
    return [_State.first, *(entry.path for entry in os.scandir(_State.first) if entry.is_dir())]


class _Run(NamedTuple):
    """The findings of a run so far."""

    found: dict[str, Any]  # estimate.PID.json
    snapshot: str
    code: list[str]  # lines of code.PID: the architecture, then each kernel as it was first used
    gaps: dict[str, list[str]]  # of simulated.PID, by function: calls, and the bounds of the bytes


def _lines(path: str) -> list[str]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.readlines()


def _run_in(folder: str, pid: str, found: dict[str, Any]) -> _Run:
    gaps = {" ".join(words[:3]): words[3:] for words in (line.split() for line in _lines(f"{folder}/simulated.{pid}"))}
    return _Run(found, f"{folder}/snapshot.{pid}.pickle", _lines(f"{folder}/code.{pid}"), gaps)


def _are_alike(mine: _Run, theirs: _Run) -> bool:
    """Returns whether two runs are alike. `mine` has made _UPDATES, `theirs` has ended. Differences that only a later update would
    show are unknown."""
    same = all(mine.found[key] == theirs.found.get(key) for key in ("updates", "told"))
    return same and sorted(mine.code[1:]) == sorted(theirs.code[1 : len(mine.code)]) and mine.gaps.keys() == theirs.gaps.keys()


def _end_if_alike() -> None:
    own = os.environ["NEAP_RUN_DIR"]
    mine = _run_in(own, str(os.getpid()), about())
    for folder in _runs():
        for name in os.listdir(folder):
            if name.startswith("estimate.") and name.endswith(".json"):
                with open(f"{folder}/{name}", encoding="utf-8") as file:
                    theirs = _run_in(folder, name.split(".")[1], json.load(file))
                if _are_alike(mine, theirs):
                    _adopt(mine, theirs)


def _adopt(mine: _Run, theirs: _Run) -> None:
    """Writes that run's findings as this run's, with the parts that this GPU's architecture decides, and ends."""
    from . import _estimate

    base = os.path.join(os.environ["NEAP_RUN_DIR"], "{}." + str(os.getpid()))
    os.link(theirs.snapshot, base.format("snapshot") + ".pickle")
    with open(base.format("code"), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(mine.code[:1] + theirs.code[1:])
    if mine.gaps:
        with open(base.format("simulated"), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.writelines(f"{name} {' '.join(theirs.gaps[name][:1] + bounds[1:])}\n" for name, bounds in mine.gaps.items())
    found = {key: value for key, value in theirs.found.items() if key != "updates"}  # others are compared with that run itself
    for index, device in enumerate(found["devices"]):
        own = _estimate._device(_State.torch, index)
        device.update(name=own["name"], uuid=own["uuid"])
    with open(base.format("estimate") + ".json", "w", encoding="utf-8", errors="replace") as file:
        json.dump({**found, "shared": True}, file)
    os._exit(0)


# The end.


@_notes.harmless("runs for other GPUs")
def end(interrupted: Any) -> None:
    """Called when the first run has written its findings: lets the others continue, until they have ended, all time is used, or
    `interrupted()`."""
    if _State.first and any(_State.torch.cuda.memory_stats(index).get("num_ooms") for index in range(_State.torch.cuda.device_count())):
        os._exit(1)  # it needs a run of its own in more memory
    waiting, _State.others = _State.others, []
    if not waiting:
        return
    running: list[_Other] = []
    may_run = getattr(sys, "last_value", None) is None
    room = _room(_values._free_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
    try:
        while may_run and (waiting or running) and not interrupted() and time.monotonic() < _State.until:
            while waiting and len(running) < room:
                running.append(waiting.pop(0))
                with contextlib.suppress(BrokenPipeError):  # the keeper was killed
                    running[-1].keeper.send(_GO, socket.MSG_NOSIGNAL)
            over = select.select([one.keeper for one in running], [], [], _POLL_SECONDS)[0]
            for one in [one for one in running if one.keeper in over]:
                running.remove(one)
                _leave(one)
    finally:
        for one in waiting + running:
            _leave(one)


def _room(free_bytes: int, peak_bytes: int) -> int:
    """Returns how many runs fit side by side, like room_for of src/estimate/runs.c: the first run stays, and each is assumed to
    take as much memory as that one."""
    return max(1, min(os.cpu_count() or 1, _AT_ONCE, free_bytes // 4 * 3 // max(peak_bytes, 1)))


def _leave(one: _Other) -> None:
    """Ends the run if it still goes on. Keeps its folder only if it had ended well."""
    with contextlib.suppress(OSError):  # the keeper has exited
        one.keeper.shutdown(socket.SHUT_WR)
    if one.keeper.recv(1) != _WHOLE:
        shutil.rmtree(one.folder, ignore_errors=True)
    one.keeper.close()


__all__ = ["about", "end", "step", "watch"]
