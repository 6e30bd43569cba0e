"""What a training tells the recording of its process: include/neap/trace.h has the meaning of each event's fields.

Nothing is told where the process is not attached. What is marked harmless never raises, a training must not end for its
record: its failures are notes (_notes.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from typing import Collection, Iterator, Optional

from . import _abi, _library, _sources
from ._ladder import Split, rung_bits
from ._notes import harmless

_UNKNOWN = (1 << 64) - 1
_STOP = 1  # NEAP_TRAIN_STOP
_SMALL_SEGMENT = 2 << 20  # what PyTorch asks the driver for, for any request up to 1 MiB; for larger ones it asks for more


class _State:
    """Of the process."""

    last_peak = 0  # the allocator's, when the last step ended
    trainings = 0  # Training.train under way: it tells of its steps itself
    steps = 0  # optimizer updates


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Around a Training: its steps are told by itself."""
    _State.trainings += 1
    try:
        yield
    finally:
        _State.trainings -= 1


def in_training() -> bool:
    """Whether a Training is under way."""
    return _State.trainings > 0


def held() -> tuple[int, int, int, int]:
    """Allocated and reserved bytes of this process's devices together, and the highest there were, cheaply."""
    torch = _sources.torch_with_cuda()
    if torch is not None:
        cuda, found = torch.cuda, [0, 0, 0, 0]
        for i in range(cuda.device_count()):
            stats = cuda.memory_stats(i)
            for n, (of, value) in enumerate((o, v) for v in ("current", "peak") for o in ("allocated", "reserved")):
                found[n] += stats.get(f"{of}_bytes.all.{value}", 0)
        return found[0], found[1], found[2], found[3]
    devices = [d for source in _sources.sources() for d in source.devices()]
    return (
        sum(d.allocated for d in devices),
        sum(d.reserved for d in devices),
        sum(d.max_allocated for d in devices),
        sum(d.max_reserved for d in devices),
    )


def name(text: str) -> int:
    """The recording's number for a name; 0 where there is no recording."""
    number: int = _library.library().neap_external_name(text.encode("utf-8", "replace"))
    return number


def emit(kind: _abi.EventKind, **fields: int) -> None:
    """One event. May raise."""
    event = _abi.Event(kind=kind, **fields)
    _library.library().neap_external_emit(ctypes.byref(event))


@harmless("recording marks")
def mark(which: _abi.Mark, text: str, value: int = 0) -> None:
    """A milestone."""
    allocated, reserved, _, _ = held()
    emit(_abi.EventKind.MARK, tag=name(text), address=which, size=value, a=allocated, b=reserved)


@harmless("what this process is")
def process(role: _abi.Role, rank: int, local_rank: int, ranks: int, parent: int, device: str) -> None:
    """What this process is among those of its run. Below 0: unknown."""
    known = [_UNKNOWN if n < 0 else n for n in (rank, local_rank, ranks, parent)]
    tag = name(device) if device else 0
    emit(_abi.EventKind.PROCESS, tag=tag, block=role, address=known[0], size=known[1], a=known[2], b=known[3])


@harmless("recording marks")
def held_mark(text: str, allocated: int, reserved: int) -> None:
    """A mark with these figures instead of what is held now."""
    emit(_abi.EventKind.MARK, tag=name(text), address=_abi.Mark.USER, a=allocated, b=reserved)


@harmless("recording the split")
def split(now: Split, rungs: Collection[_abi.Rung] = ()) -> None:
    """The split, and the rungs, in force."""
    allocated, reserved, _, _ = held()
    emit(
        _abi.EventKind.SPLIT,
        address=now.micro_batch,
        size=now.accumulate,
        block=now.ranks,
        stream=rung_bits(rungs),
        a=allocated,
        b=reserved,
    )


@harmless("recording rungs")
def rung(kind: _abi.Rung, before: Split, after: Split, rungs: Collection[_abi.Rung]) -> None:
    """A rung was taken."""
    emit(
        _abi.EventKind.RUNG,
        block=kind,
        address=after.micro_batch,
        size=after.accumulate,
        a=before.micro_batch,
        b=before.accumulate,
        stream=rung_bits(rungs),
    )
    split(after, rungs)


def step(number: int, loss: float, now: Split) -> None:
    """One optimizer update is done. Raises SystemExit at the bound that `neap run --max-steps` sets, and nothing else."""
    _record_step(number, loss, now)
    _State.steps += 1
    bound = os.environ.get("NEAP_MAX_STEPS", "") if os.environ.get("NEAP_ATTACH") == "1" else ""
    if bound.isascii() and bound.isdigit() and _State.steps >= int(bound):
        _end(int(bound))


def _end(bound: int) -> None:
    """Ends the program as sys.exit() in its loop would. One that catches this and makes another step is ended at once."""
    _record_bound(bound)
    if _State.steps > bound:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)
    raise SystemExit(0)


@harmless("recording the end")
def _record_bound(bound: int) -> None:
    emit(_abi.EventKind.WISH, block=_STOP, tag=name("--max-steps"), address=_State.steps, size=bound)


def _forked() -> None:
    _State.steps = 0


os.register_at_fork(after_in_child=_forked)


@harmless("recording steps")
def _record_step(number: int, loss: float, now: Split) -> None:
    """The highest bytes inside it are known where they were a new peak of the process; else
    what is held at its end stands in: a lower bound. Its lowest bytes are those at its end."""
    allocated, reserved, peak, _ = held()
    inside = peak if peak > _State.last_peak else allocated
    _State.last_peak = peak
    emit(
        _abi.EventKind.STEP,
        address=number,
        size=max(inside, allocated),
        block=allocated,
        stream=now.accumulate,
        a=allocated,
        b=reserved,
    )
    if loss == loss:
        bits = struct.unpack("<Q", struct.pack("<d", loss))[0]
        emit(_abi.EventKind.METRIC, tag=name("loss"), address=bits, size=number, a=allocated, b=reserved)


@harmless("recording cleanups")
def cleanup(reason: _abi.Reason, freed: int, seconds: float) -> None:
    """A cleanup ran."""
    allocated, reserved, _, _ = held()
    nanoseconds = int(seconds * 1e9)
    emit(_abi.EventKind.CLEANUP, size=freed, address=nanoseconds, block=reason, a=allocated, b=reserved)


@harmless("recording an out-of-memory error")
def tag_bytes(device: int, tag: str, live: int, blocks: int) -> None:
    """After an OOM: how much of this there is."""
    emit(_abi.EventKind.TAG_BYTES, device=device, tag=name(tag), a=live, b=live, size=blocks)


@harmless("recording an out-of-memory error")
def out_of_memory(
    device: int,
    requested: int,
    free: int,
    total: int,
    limit: int,
    largest_free: Optional[dict[str, int]],
    context: int,
    grows: bool,
) -> None:
    """A request that failed; `requested` as the allocator asked the driver. `largest_free`: of PyTorch's pool of small requests
    and of its pool of large ones; None: not known. `context`: bytes, 0 where not known. `grows`: segments grow in place."""
    allocated, reserved, _, _ = held()
    emit(
        _abi.EventKind.OOM,
        device=device,
        flags=_abi.OOM_OTHER | (_abi.OOM_GROWS if grows else 0),
        size=requested,
        block=requested,
        address=free,
        a=allocated,
        b=reserved,
    )
    emit(
        _abi.EventKind.OOM_LIMITS,
        device=device,
        size=limit,
        address=total,
        block=_UNKNOWN if largest_free is None else max(largest_free.values()),
        a=max(total - free - reserved, 0),
        stream=context >> 20,
    )
    if largest_free is not None:
        small = requested <= _SMALL_SEGMENT
        emit(
            _abi.EventKind.OOM_POOLS, device=device, address=small, size=largest_free["small"], block=largest_free["large"]
        )
