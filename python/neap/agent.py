"""Attaches this process, so that `neap info`, `clear`, `reset` and `fraction` reach PyTorch's allocator in it.

    agent's thread (C)  --request-->  a daemon thread, waiting in C without Python's lock
                                        --pending call-->  the main thread: collects, empties, limits, and answers
                        <--answer---

The main thread does the work, between two of its bytecodes, where the program could have done it itself. If it is in a long
call, nothing is done, and after 2 s the peer gets the answer "busy". During the capture of a CUDA graph, and while the
interpreter ends, requests are refused.
"""

from __future__ import annotations

import _thread
import atexit
import collections
import ctypes
import os
import sys
import threading
import time
from typing import Any

from . import _abi, _allocator, _counters, _events, _library, _notes, _races, _sources, _watch, memory
from ._fraction import Change, Fraction
from ._limits import limit_of, watch

_WAIT_MS = 250
_UNKNOWN = (1 << 64) - 1
_TEXT = 8000
_CONTEXT_LOOKS = 20  # how often the driver is asked for a context's size, until neap leaves it unknown

_Pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


_POOLED = [(metric, pool, value) for metric in _counters.METRICS for pool in _counters.POOLS for value in _counters.VALUES]
_OVERSIZE = [(name, value) for name in ("oversize_allocations", "oversize_segments") for value in _counters.VALUES]
_PLAIN = ("num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams", "num_device_alloc", "num_device_free")
_NONE: dict[str, Any] = {}


def _fill_stats(stats: _abi.Stats, nested: dict[str, Any]) -> None:
    """PyTorch's counters, which have the same names, in the order of struct neap_stats. Counters that this torch lacks are zero."""
    counts = [nested.get(metric, _NONE).get(pool, _NONE).get(value, 0) for metric, pool, value in _POOLED]
    counts += [nested.get(name, _NONE).get(value, 0) for name, value in _OVERSIZE]
    counts += [nested.get(name, 0) for name in _PLAIN]
    (ctypes.c_int64 * len(counts)).from_buffer(stats)[:] = counts


def _or_unknown(count: int | None) -> int:
    return _UNKNOWN if count is None else count


def _number(name: str) -> int:
    """Returns a whole number from the environment; -1 if there is none."""
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def _place() -> tuple[_abi.ProcessRole, int, int, int]:
    """Returns the place of this process in a distributed training, as far as known: role, rank, local rank, number of ranks."""
    rank = _number("RANK")
    local_rank = _number("LOCAL_RANK")
    ranks = _number("WORLD_SIZE")
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank = int(distributed.get_rank())
        ranks = int(distributed.get_world_size())
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        return _abi.ProcessRole.WORKER, rank, local_rank, ranks
    return _abi.ProcessRole.PLAIN if rank < 0 else _abi.ProcessRole.RANK, rank, local_rank, ranks


class Agent:
    """The agent of this process."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._pid = 0
        self.fraction = Fraction()
        self._attached = False
        self._pending: _abi.ExternalRequest | None = None
        self._call = _Pending(self._serve)  # kept alive as long as the interpreter uses it
        self._ended = False
        self._contexts: dict[int, int] = {}  # by device, the bytes of the process's context there
        self._context_looks: dict[int, int] = {}
        # By device, the out-of-memory errors in the recording. None: they are not recorded.
        self.told_ooms: collections.Counter[int] | None = None
        self._told_peak = 0
        self._told_place: tuple[_abi.ProcessRole, int, int, int] | None = None
        self._told_devices: set[str] = set()
        self._interrupted = False

    # Attaching and detaching.

    def attach(self) -> None:
        """Attaches, and serves requests from then on. Idempotent. Raises NeapError."""
        if self._attached and self._pid == os.getpid():
            return
        _library.call("neap_attach")
        _library.call("neap_external_open", b"PyTorch")
        if self._pid != os.getpid():  # the first time, or in a fork's child
            self.fraction.forget()
            self._contexts.clear()
            self._context_looks.clear()
            self._told_peak = 0
            self._told_place = None
            self._told_devices.clear()
        self._pid = os.getpid()
        self._attached = True
        torch = _sources.torch_module()
        if torch is not None:
            watch(torch)
            _notes.harmless("allocations")(_watch.begin_again)(torch)
        self._tell_place(None)
        _notes.show()
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:  # its children end without atexit
            processes.Finalize(None, self.end, exitpriority=-100)
        self._thread = threading.Thread(target=self._wait, name="neap", daemon=True)
        self._thread.start()

    def detach(self) -> None:
        """Detaches. Idempotent."""
        if not self._attached or self._pid != os.getpid():
            return
        self._attached = False
        _events.sampled.until = 0.0
        _library.library().neap_external_close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)
        _watch.end()
        _library.library().neap_detach()

    def end(self) -> None:
        """Called when the interpreter ends: serves no more requests. The recording and the page stay to the end."""
        self._ended = True
        _watch.interpreter_ends()
        _races.interpreter_ends()
        if self._attached and self._pid == os.getpid():
            _notes.harmless("figures at the end")(self.publish)()
            _library.library().neap_external_close()
            if self._thread is not None:
                self._thread.join(1)

    @property
    def attached(self) -> bool:
        """Whether this process is attached."""
        return self._attached and self._pid == os.getpid()

    # The daemon thread.

    def _wait(self) -> None:
        library = _library.library()
        request = _abi.ExternalRequest()
        error = _abi.Error()
        pid = os.getpid()
        unpublished = False
        while self._pid == pid and not self._ended:
            status = library.neap_external_next(_WAIT_MS, ctypes.byref(request), ctypes.byref(error))
            if status == _abi.Status.ECANCELED:
                return
            if self._interrupted:  # a Ctrl-C that came during a request, and could not leave the pending call
                self._interrupted = False
                _thread.interrupt_main()
            try:
                if status == _abi.Status.OK:
                    self._pending = _abi.ExternalRequest.from_buffer_copy(request)
                    if ctypes.pythonapi.Py_AddPendingCall(self._call, None) != 0:
                        self._refuse(request, _abi.Status.EBUSY, "the interpreter's queue of pending calls is full")
                elif not unpublished:
                    self.publish()
            except Exception as exception:
                unpublished = True  # requests are still served
                _notes.note("figures", exception)

    def publish(self) -> None:
        """Writes the memory that PyTorch holds to the statistics page. Asks only devices on which PyTorch has memory."""
        torch = _sources.torch_with_cuda()
        if torch is None or not self.attached:
            return
        _events.flush_step()
        if _allocator.installed():
            return  # libneap publishes the memory of its own allocators
        indices = _sources.TorchSource(torch).indices()
        self._tell_peaks(ending=self._ended)
        for index in indices:
            stats = torch.cuda.memory_stats_as_nested_dict(index)
            self.fraction.follow(torch, index)
            uuid = _sources.device_uuid(torch, index)
            if uuid is None:
                raise RuntimeError("this PyTorch does not tell a device's UUID")
            counters = _abi.Published(limit_bytes=_or_unknown(limit_of(torch, index)))
            counters.device_uuid[:] = uuid
            counters.context_bytes = self._context(torch, index, counters.device_uuid)
            _fill_stats(counters.stats, stats)
            if self.told_ooms is not None:  # `neap run` reads the recording when this number rises
                counters.stats.num_ooms = min(counters.stats.num_ooms, self.told_ooms[index])
            _library.call("neap_external_publish", ctypes.byref(counters))
            self._tell_place(uuid)

    def _context(self, torch: Any, index: int, uuid: Any) -> int:
        """Returns the bytes that the driver reports for the process on a device, less PyTorch's: measured once, when nothing is
        allocated meanwhile. 0: unknown."""
        looks = self._context_looks.get(index, 0)
        if index not in self._contexts and looks < _CONTEXT_LOOKS:
            self._context_looks[index] = looks + 1
            held = ctypes.c_uint64()
            error = _abi.Error()
            before = torch.cuda.memory_reserved(index)
            status = _library.library().neap_external_held(bytes(uuid), ctypes.byref(held), ctypes.byref(error))
            if status == _abi.Status.OK and torch.cuda.memory_reserved(index) == before <= held.value:
                self._contexts[index] = held.value - before
        return self._contexts.get(index, 0)

    def context_bytes(self, index: int) -> int:
        """Returns the bytes of the process's context on a device; 0: not known (yet)."""
        return self._contexts.get(index, 0)

    def _tell_place(self, device: bytes | None) -> None:
        """Records the role of this process in its run, and a device that it uses: once, and when it changes."""
        try:
            place = _place()
        except Exception:  # torch.distributed is being set up
            return
        d = "" if device is None else device.hex()
        uuid = d and f"GPU-{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}"
        if place == self._told_place and (not uuid or uuid in self._told_devices):
            return
        if self._told_place is not None and (place[1] < 0 or self._told_place[0] == _abi.ProcessRole.WORKER):
            place = self._told_place  # the group was destroyed, or the worker's loop has ended: keep the old role
        self._told_place = place
        if uuid:
            self._told_devices.add(uuid)
        _events.process(*place, os.getppid(), uuid)

    def _tell_peaks(self, ending: bool) -> None:
        """Records a new peak, so that a short run's peak is known as well: at the instant it is noticed, followed by the bytes held
        now. Skips rises below about a percent."""
        allocated, reserved, peak, reserved_peak = _events.held()
        if peak > self._told_peak * 1.01 or (ending and peak > self._told_peak):
            self._told_peak = peak
            _events.held_mark("peak", peak, max(reserved_peak, reserved))
            _events.held_mark("held", allocated, reserved)

    # In the main thread.

    def _refuse(self, request: _abi.ExternalRequest, status: _abi.Status, text: str) -> None:
        error = _abi.Error()
        encoded = text.encode("utf-8", "replace")
        _library.library().neap_external_answer(request.id, status, encoded, None, 0, ctypes.byref(error))

    def _serve(self, _: Any) -> int:
        """Runs as the pending call. Must not raise."""
        request, self._pending = self._pending, None
        if request is None or self._pid != os.getpid():
            return 0
        try:
            if _library.library().neap_external_begin(request.id, None) != _abi.Status.OK:
                return 0  # too late: do nothing
            torch = _sources.torch_with_cuda()
            if self._ended or sys.is_finalizing():
                self._refuse(request, _abi.Status.ESTATE, "the program is ending")
            elif torch is not None and _sources.TorchSource(torch).capturing():
                self._refuse(request, _abi.Status.EBUSY, "a CUDA graph is being captured: try again")
            else:
                self._answer(request, torch)
        except BaseException as exception:
            self._failed(request, exception)
        return 0

    def _failed(self, request: _abi.ExternalRequest, exception: BaseException) -> None:
        """Answers the peer; if that fails too, or the peer has gone, leaves a note."""
        _notes.note("a request", exception)
        try:
            self._refuse(request, _abi.Status.EINTERNAL, f"{type(exception).__name__}: {exception}")
        except BaseException as another:
            _notes.note("a request's answer", another)
        self._interrupted = isinstance(exception, KeyboardInterrupt)

    def _answer(self, request: _abi.ExternalRequest, torch: Any) -> None:
        # If PyTorch's allocator is neap's, libneap does its part after this one.
        source = None if torch is None or _allocator.installed() else _sources.TorchSource(torch)
        lines: list[str] = []
        change = Change([], {}, set(), lines)
        began = time.monotonic_ns()
        before = {} if source is None else {d.index: d for d in source.devices()}
        if request.kind == _abi.ExternalKind.CLEAR:
            result = memory.clear(bool(request.force), only=[] if source is None else [source])  # libneap clears its own allocators
            lines += [str(item) for item in result.lingering]
            if request.force and not lines:
                lines.append("no tensor lingers on a device")
        elif request.kind == _abi.ExternalKind.RELEASE and source is not None:
            torch.cuda.empty_cache()  # another process is out of memory, and waits: no garbage collection
        elif request.kind == _abi.ExternalKind.RESET_PEAK and source is not None:
            source.reset_peaks()
        elif request.kind == _abi.ExternalKind.FRACTION and not _allocator.installed():
            change = self.fraction.change(torch, request.fraction)
        took = time.monotonic_ns() - began
        after = [] if source is None else [source.device(i) for i in sorted({*source.indices(), *change.devices})]
        answers = (_abi.DeviceAnswer * max(len(after), 1))()
        for answer, now in zip(answers, after):
            was = before.get(now.index, now)
            self._fill(answer, torch, was, now, was if request.kind == _abi.ExternalKind.RESET_PEAK else now)
            answer.limit_before = _or_unknown(change.before.get(now.index))
            answer.emptied = now.index in change.emptied
            answer.nanoseconds = took
        text = "\n".join(change.lines).encode("utf-8", "replace")[:_TEXT]
        self.publish()  # before the answer: readers of the page then see the effect
        error = _abi.Error()
        _library.library().neap_external_answer(request.id, _abi.Status.OK, text, answers, len(after), ctypes.byref(error))

    @staticmethod
    def _fill(answer: Any, torch: Any, was: _sources.DeviceMemory, now: _sources.DeviceMemory, peaks: _sources.DeviceMemory) -> None:
        """Fills in one device's part of an answer. A reset's peaks are those before it."""
        answer.uuid[:] = _sources.device_uuid(torch, now.index) or bytes(16)
        answer.ordinal = now.index
        answer.name = now.name.encode("utf-8", "replace")[:95]
        answer.total = torch.cuda.get_device_properties(now.index).total_memory if now.total is None else now.total
        answer.allocated = now.allocated
        answer.reserved = now.reserved
        answer.max_allocated = peaks.max_allocated
        answer.max_reserved = peaks.max_reserved
        answer.allocated_before = was.allocated
        answer.reserved_before = was.reserved
        answer.free_before = _or_unknown(was.free)
        answer.free = _or_unknown(now.free)
        answer.limit = _or_unknown(limit_of(torch, now.index))
        answer.freed = max(was.reserved - now.reserved, 0)


agent = Agent()
atexit.register(agent.end)


def attach() -> None:
    """Attaches this process, as `neap run` does automatically: then neap's commands reach it. Idempotent. Starts one thread in C
    and one in Python, creates no CUDA context. Raises NeapError (for example, if NEAP_ATTACH=0 forbids it).

    >>> neap.attach()
    >>> neap.describe()
    'attached...'
    >>> neap.detach()
    """
    agent.attach()


def detach() -> None:
    """Undoes attach. Idempotent. Raises nothing of its own.

    >>> neap.detach()
    """
    agent.detach()


def describe() -> str:
    """Returns one line: whether this process is attached, or why not; then, after a semicolon, each of neap's own failures that was
    not raised, so that the program continues (for example, a hook that this PyTorch lacks). `neap info` shows the same for an
    attached process. Any thread may call it. Raises only ImportError, if libneap cannot be loaded.

    >>> neap.describe()
    'not attached: this process is not attached'
    """
    error = _abi.Error()
    state = "attached"
    if _library.library().neap_attach_state(ctypes.byref(error)) != _abi.Status.OK:
        state = f"not attached: {error.message.decode('utf-8', 'replace')}"
    return "; ".join(filter(None, (state, _notes.text())))


__all__ = ["Agent", "agent", "attach", "describe", "detach"]
