"""Writes events of a training into the recording of its process: include/neap/event.h describes them.

Nothing is recorded if the process is not attached. A function marked harmless never raises, since a training must not end because
of its record: its failures become notes (_notes.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Collection, Iterator
from typing import Any, Callable

from . import _abi, _endings, _estimate, _library, _limits, _sources, _steady
from ._ladder import Split, rung_bits
from ._needs import Needs, Place
from ._notes import harmless

UNKNOWN = (1 << 64) - 1
_STOP = 1  # NEAP_TRAIN_STOP
_SMALL_SEGMENT = 2 << 20  # what PyTorch asks the driver for, for any request up to 1 MiB; for larger ones it asks for more


class _State:
    """State of the process."""

    last_peak: dict[int, int] = {}  # by device: the allocator's peak when a step's figures were last read
    figures: dict[int, tuple[int, int, int]] = {}  # read then: allocated and reserved, and the highest inside the step
    home: int | None = None
    trainings = 0  # calls of Training.train under way: they report their steps themselves
    steps = 0  # optimizer updates
    ended = 0  # the step at which a bound ended the program; 0: it did not


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Use it around a Training, which reports its steps itself."""
    _State.trainings += 1
    sampled.until = 0.0
    try:
        yield
    finally:
        _State.trainings -= 1


def in_training() -> bool:
    """Returns whether a Training is under way."""
    return _State.trainings > 0


def held_on(torch: Any, index: int) -> tuple[int, int, int, int]:
    """Returns PyTorch's allocated and reserved bytes on one device, and their peaks."""
    stats = torch.cuda.memory_stats_as_nested_dict(index)
    if not stats:
        return 0, 0, 0, 0
    allocated = stats["allocated_bytes"]["all"]
    reserved = stats["reserved_bytes"]["all"]
    return allocated["current"], reserved["current"], allocated["peak"], reserved["peak"]


def held() -> tuple[int, int, int, int]:
    """Returns the allocated and reserved bytes of all this process's devices, and their peaks, cheaply."""
    torch = _sources.torch_with_cuda()
    if torch is not None:
        found = [held_on(torch, i) for i in _sources.used(torch)]
        return (sum(f[0] for f in found), sum(f[1] for f in found), sum(f[2] for f in found), sum(f[3] for f in found))
    devices = [d for source in _sources.sources() for d in source.devices()]
    return (
        sum(d.allocated for d in devices),
        sum(d.reserved for d in devices),
        sum(d.max_allocated for d in devices),
        sum(d.max_reserved for d in devices),
    )


def name(text: str) -> int:
    """Returns the recording's number for a name; 0 if there is no recording."""
    number: int = _library.library().neap_external_name(text.encode("utf-8", "replace"))
    return number


def _home() -> int:
    """Returns the device under which events of the whole process are recorded: the first that it uses."""
    if _State.home is None:
        torch = _sources.torch_with_cuda()
        _State.home = next(iter(_sources.used(torch)), None) if torch is not None else None
    return _State.home or 0


def emit(payload: _abi.EventPayload, device: int | None = None) -> None:
    """Writes one event of a device, or of the whole process. May raise."""
    event = _abi.Event(kind=payload.kind, device=_home() if device is None else device)
    ctypes.memmove(event.payload, ctypes.byref(payload), ctypes.sizeof(payload))
    _library.library().neap_external_emit(ctypes.byref(event))


def _held() -> _abi.EventHeld:
    return _abi.EventHeld(*held()[:2])


@harmless("recording marks")
def mark(which: _abi.Mark, text: str, value: int = 0) -> None:
    """Writes a milestone."""
    emit(_abi.EventMark(held=_held(), name=name(text), mark=which, value=value))


@harmless("what this process is")
def process(role: _abi.ProcessRole, rank: int, local_rank: int, ranks: int, parent: int, device: str) -> None:
    """Writes the role of this process in its run. Values below 0: unknown."""
    known = [UNKNOWN if n < 0 else n for n in (rank, local_rank, ranks, parent)]
    emit(_abi.EventProcess(name(device) if device else 0, role, *known))


@harmless("recording marks")
def held_mark(text: str, allocated: int, reserved: int) -> None:
    """Writes a mark with these figures instead of the current ones."""
    emit(_abi.EventMark(held=_abi.EventHeld(allocated, reserved), name=name(text), mark=_abi.Mark.USER))


def _settings(now: Split, rungs: Collection[_abi.Rung]) -> _abi.EventSettings:
    """Returns the rungs in force, how many of the parts have a sample less, and the split."""
    return _abi.EventSettings(rung_bits(rungs), -now.samples % now.accumulate, now.micro_batch, now.accumulate)


@harmless("recording the split")
def split(now: Split, rungs: Collection[_abi.Rung] = ()) -> None:
    """Writes the split and the rungs in force."""
    emit(_abi.EventSplit(held=_held(), settings=_settings(now, rungs), ranks=now.ranks))


@harmless("recording the micro-batch")
def batch(source: _abi.BatchSource, size: int, accumulate: int, other: _abi.BatchSource, other_size: int) -> None:
    """Writes the micro-batch of a program without a Training, as far as known, and how much this process may reserve."""
    torch = _sources.torch_with_cuda()
    if torch is None:
        return
    distributed = getattr(torch, "distributed", None)
    ranks = distributed.get_world_size() if distributed is not None and distributed.is_available() and distributed.is_initialized() else 1
    for index in _sources.used(torch):
        emit(_abi.EventBatch(size, accumulate, source, ranks, other, other_size), index)
        room(torch, index)


def room(torch: Any, index: int) -> None:
    """Writes how much this process may reserve on a device now. May raise."""
    allocated, reserved, _, _ = held_on(torch, index)
    free, total = torch.cuda.mem_get_info(index)
    limit = _limits.limit_of(torch, index)
    least = min(free + reserved, UNKNOWN if limit is None else limit)
    held = _abi.EventHeld(allocated, reserved)
    emit(_abi.EventRoom(held, 0, total, least, UNKNOWN if limit is None else limit), index)


@harmless("recording rungs")
def rung(kind: _abi.Rung, before: Split, after: Split, rungs: Collection[_abi.Rung]) -> None:
    """Writes that a rung was taken."""
    emit(
        _abi.EventRung(
            settings=_settings(after, rungs),
            rung=kind,
            micro_batch_before=before.micro_batch,
            accumulate_before=before.accumulate,
        )
    )
    split(after, rungs)


def step(number: int, loss: float, now: Split) -> None:
    """Records one optimizer update of a Training. Raises only SystemExit, at the bound of `neap run --max-steps`."""
    _record_step(number, loss, now)
    _count_step()


class Sampled:
    """Counts the optimizer updates of a program without a Training. After the first ones, it reads and records figures only now and
    then: short steps must cost next to nothing. A step in the recording also stands for the unrecorded ones before it.

    If allocations are recorded, the recorder (_watch.py) marks the steps, each with its true peak. At first it marks every
    step."""

    until = 0.0  # before this time.monotonic(), updates of `stepper` are only counted
    steps = 0  # of this training
    recorded = 0  # the last one in the recording
    exact = 0  # each step up to this number is recorded, by `native`
    native: Callable[[int, int, int], None] | None = None  # records steps: number, how many steps it stands for, name (_watch.py)
    what = ""  # what the steps are: BATCH, FORWARD; "": updates
    name = 0  # the recording's number for it
    lock = threading.RLock()  # guards `recorded`: the daemon thread records as well
    updated: Any = ()  # the optimizers that made an update

    @staticmethod
    def stepper() -> Any:
        """Returns the optimizer whose updates are the steps; a weak reference to it replaces this function."""
        return None

    def follow(self, optimizer: Any) -> None:
        """From now on the updates of this optimizer are the steps. Another training begins with step 1, unless the old optimizer
        made only a few steps and is gone: a program may create an optimizer for each step."""
        self.stepper = weakref.ref(optimizer)  # type: ignore[method-assign]
        self.until = 0.0
        if self.steps >= _SHORT or self.what:
            self.begin("")
        else:
            self.record_natively(self.native)

    def begin(self, what: str) -> None:
        """From now on, counts these as the steps, from step 1."""
        flush_step()
        self.what = what
        self.name = name(what) if what else 0
        self.steps = self.recorded = 0
        self.record_natively(self.native)

    def record_natively(self, native: Callable[[int, int, int], None] | None) -> None:
        """From now on, marks steps by this function; None: no longer."""
        self.native = native
        self.exact = 0 if native is None else self.steps + _EACH_STEP


def exact_step() -> None:
    """Marks an update that is otherwise only counted, if allocations are recorded: so that a leak is known for each step."""
    number = sampled.steps
    since = number - sampled.recorded
    if since > 0 and sampled.native is not None:
        sampled.recorded = number
        sampled.native(number, since, sampled.name)


sampled = Sampled()
_SHORT = 20  # steps of a training: too few to find a leak
_EACH_STEP = 4096  # steps of a training that are each recorded; later ones as often as in a program that is not watched
_FIRST = 256  # steps of a program that is not watched that are each read, so that a steep leak is found
_READ_SECONDS = 0.05  # between two readings. One takes some 10 us for each device in use


def sampled_step() -> None:
    """Handles an update that is not only counted, because it is time to read figures, or because steps are bounded."""
    sampled.steps += 1
    now = time.monotonic()
    if now >= sampled.until:
        sampled.until = 0.0 if _bound() else _next_reading(now)
        _read_step()
    _count_step()


def _next_reading(now: float) -> float:
    each = sampled.native is None and sampled.steps < _FIRST
    return 0.0 if each else now + _READ_SECONDS


BATCH = "batch of a DataLoader"  # as NEAP_STEP_BATCH and NEAP_STEP_FORWARD in include/neap/event.h
FORWARD = "forward of a model"


def unoptimized_step(what: str) -> None:
    """Called when a program without optimizer updates has finished a batch or a forward: that is its step, until an optimizer makes
    an update."""
    if sampled.what != what:
        sampled.begin(what)
    sampled.steps += 1
    now = time.monotonic()
    if now >= sampled.until:
        sampled.until = _next_reading(now)
        _read_step()
    elif sampled.steps <= sampled.exact:
        exact_step()


@harmless("recording steps")
def _read_step() -> None:
    _read_figures()
    exact_step()
    flush_step()


@harmless("recording steps")
def flush_step() -> None:
    """Records the last step, if it was not recorded, with the newest figures. Any thread may call this, even before the first
    figures were read, or between the end of a step and its record."""
    with sampled.lock:
        if sampled.steps <= sampled.exact:
            exact_step()
        number = sampled.steps
        since = sampled.steps - sampled.recorded
        if since <= 0 or not _State.figures:
            return
        sampled.recorded = number
        _emit_step(number, since)


def _emit_step(number: int, micro_batches: int) -> None:
    for device, (allocated, reserved, inside) in _State.figures.items():
        emit(
            _abi.EventStep(
                held=_abi.EventHeld(allocated, reserved),
                name=sampled.name,
                micro_batches=micro_batches,
                number=number,
                peak_bytes=inside,
                lowest_bytes=allocated,
            ),
            device,
        )


def _read_figures() -> None:
    """Reads the figures of each device or, if there is none, the sum of neap's own allocators. The highest bytes inside a step are
    known only if they were a new peak of the process; else the bytes at its end stand in, as a lower bound. The lowest bytes are
    those at its end."""
    torch = _sources.torch_with_cuda()
    found = {} if torch is None else {i: held_on(torch, i) for i in _sources.used(torch)}
    figures = {}
    for device, (allocated, reserved, peak, _) in (found or {0: held()}).items():
        inside = peak if peak > _State.last_peak.get(device, 0) else allocated
        _State.last_peak[device] = peak
        figures[device] = (allocated, reserved, max(inside, allocated))
    _State.figures = figures


@functools.cache
def _bound() -> int:
    """Returns the bound on optimizer updates, from `neap run --max-steps`; 0: none."""
    bound = os.environ.get("NEAP_MAX_STEPS", "") if os.environ.get("NEAP_ATTACH") == "1" else ""
    if bound == _steady.STEADY:
        return _steady.MOST
    return int(bound) if bound.isascii() and bound.isdigit() else 0


def steps_done() -> int:
    """Returns the optimizer updates of this process, if they are bounded."""
    return _State.steps


def _count_step() -> None:
    _State.steps += 1
    bound = _bound()
    if bound and _estimate.is_asked():
        _estimate.show_step()
    if bound and (_is_steady() or _State.steps >= bound):
        _end()


@harmless("waiting for memory to be steady")
def _is_steady() -> bool:
    _steady.growth.step(_State.steps)
    return os.environ["NEAP_MAX_STEPS"] == _steady.STEADY and _steady.reached(_State.steps, sampled.updated)


def _end() -> None:
    """Ends the program as sys.exit() in its loop would. If the program catches that and makes another step, it is ended at once."""
    flush_step()
    _State.ended = _State.ended or _State.steps
    _record_bound(_State.ended)
    if _State.steps > _State.ended:
        if _estimate.is_asked():
            _estimate.finish()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)
    _prepare_end()
    raise SystemExit(0)


@harmless("ending a notebook or a worker")
def _prepare_end() -> None:
    _endings.end_cells()
    _endings.end_worker()


@harmless("recording the end")
def _record_bound(bound: int) -> None:
    emit(_abi.EventRequest(name=name("--max-steps"), request=_STOP, max_steps=bound))


def _forked() -> None:
    global sampled
    _State.steps = 0
    _State.home = None
    _State.last_peak.clear()
    _State.figures = {}
    sampled = Sampled()


os.register_at_fork(after_in_child=_forked)


@harmless("recording steps")
def _record_step(number: int, loss: float, now: Split) -> None:
    if sampled.native is not None:
        sampled.native(number, now.accumulate, 0)
    else:
        _read_figures()
        _emit_step(number, now.accumulate)
    if loss == loss:
        emit(_abi.EventMetric(held=_held(), name=name("loss"), value=loss, step=number))


@harmless("recording cleanups")
def cleanup(reason: _abi.CleanupReason, freed: int, seconds: float) -> None:
    """Writes that a cleanup ran."""
    emit(_abi.EventCleanup(held=_held(), ns=int(seconds * 1e9), freed_bytes=freed, reason=reason))


@harmless("recording a leak")
def leak(bytes_per_step: float, confidence: float) -> None:
    """Writes that the leak watch found a leak."""
    permille = int(confidence * 1000)
    emit(_abi.EventLeak(held=_held(), bytes_per_step=int(bytes_per_step), confidence_permille=permille))


@harmless("recording a leak")
def forecast(ends: int, earliest: int, latest: int) -> None:
    """Writes that a leak will use up memory in one of these steps."""
    emit(_abi.EventForecast(step=ends, low_step=earliest, high_step=latest))


@harmless("recording the end")
def stop(what: str, **reason: int) -> None:
    """Writes that a Training stops early. `reason`: fields of struct neap_event_request."""
    emit(_abi.EventRequest(name=name(what), request=_STOP, **reason))


@harmless("recording an out-of-memory error")
def tag_bytes(device: int, tag: str, live: int, blocks: int) -> None:
    """Writes, after an OOM, how much memory has this tag."""
    emit(_abi.EventTagBytes(tag=name(tag), live_blocks=blocks, live_bytes=live, peak_bytes=live), device)


@harmless("recording an out-of-memory error")
def needs_of_model(device: int, needs: Needs, place: Place) -> None:
    """Writes, after an OOM, how much a whole step needs, and how far the step was."""
    state = UNKNOWN if needs.state is None else needs.state
    where = (place.phase, int(place.done * 1000), place.evaluates, place.graph)
    emit(_abi.EventOomModel(needs.parameters, needs.gradients, state, needs.update, *where), device)


@harmless("recording an out-of-memory error")
def out_of_memory(
    device: int,
    requested: int,
    free: int,
    total: int,
    limit: int,
    largest_free: dict[str, int] | None,
    context: int,
    grows: bool,
    tag: int,
) -> None:
    """Writes a request that failed; `requested`: as the allocator asked the driver. `largest_free`: of PyTorch's pool of small
    requests and of its pool of large ones; None: unknown. `context`: bytes, 0 if unknown. `grows`: segments grow in place. `tag`:
    of the request."""
    torch = _sources.torch_with_cuda()
    allocated, reserved, _, _ = held() if torch is None else held_on(torch, device)
    flush_step()
    sampled.until = 0.0  # the next step shows whether the program continued
    emit(
        _abi.EventOom(
            held=_abi.EventHeld(allocated, reserved),
            tag=tag,
            flags=_abi.OOM_OTHER | (_abi.OOM_GROWS if grows else 0),
            device_free_bytes=free,
            requested_bytes=requested,
            bytes=requested,
        ),
        device,
    )
    emit(
        _abi.EventOomLimits(
            context_bytes=context,
            device_total_bytes=total,
            limit_bytes=limit,
            largest_free_bytes=UNKNOWN if largest_free is None else max(largest_free.values()),
            others_bytes=max(total - free - reserved, 0),
        ),
        device,
    )
    if largest_free is not None:
        emit(_abi.EventOomPools(requested <= _SMALL_SEGMENT, largest_free["small"], largest_free["large"]), device)
