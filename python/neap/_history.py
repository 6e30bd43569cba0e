"""PyTorch's own history of allocations, for a process whose allocations nothing else records: _watch.py, which would, is compiled
for each PyTorch and is not there yet, or never if there is no compiler.

    CUDA first used  -> begin(): PyTorch keeps a history
    memory runs out  -> tell(): what is in it, as events in RUN/record.PID, stacks in RUN/history.PID

The events begin with the blocks that were live before them. This costs the program about a microsecond per allocation, and a run
whose memory suffices has no events.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

from . import _abi, _library

_ENTRIES = 30000  # entries that PyTorch keeps; each takes some 1 KB with its stack
_ROUNDING = 512
_MOST_FRAMES = 32
_MOST_STACKS = 1 << 16  # of a file: src/trace/stacks.h reads at most these
_MOST_BYTES = 16 << 20
_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_KINDS = {
    "alloc": _abi.EventKind.ALLOC,
    "free_requested": _abi.EventKind.FREE_REQUESTED,
    "free_completed": _abi.EventKind.FREE_COMPLETED,
    "segment_alloc": _abi.EventKind.SEGMENT_ALLOC,
    "segment_free": _abi.EventKind.SEGMENT_FREE,
    "segment_map": _abi.EventKind.SEGMENT_MAP,
    "segment_unmap": _abi.EventKind.SEGMENT_UNMAP,
}
_Entry = dict[str, Any]


class _Device:
    """The state of one device after the events so far."""

    def __init__(self) -> None:
        self.live: dict[int, _Entry] = {}  # live blocks, and whether their free was requested
        self.ranges: dict[int, _Entry] = {}  # mapped ranges: segments, or parts of one that grows
        self.streams: dict[int, int] = {0: 0}
        self.allocated = self.reserved = 0
        self.last_us = 0


class _State:
    """State of this process."""

    pid = 0  # the process that keeps a history for us; 0: none
    devices: dict[int, _Device] = {}
    stacks: dict[tuple[tuple[str, int, str], ...], int] = {}


def begin(torch: Any) -> None:
    """Called when the process is attached. If the program itself asked for a history, leaves it alone."""
    if torch._C._cuda_isHistoryEnabled():
        return
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=_ENTRIES)
    _State.pid = os.getpid()
    _State.devices = {}
    _State.stacks = {}


def begin_again() -> None:
    """Called when another recording begins: its events begin with the live blocks."""
    _State.devices = {}


def tell(torch: Any) -> None:
    """Called when memory has run out: records the contents of the history."""
    if _State.pid != os.getpid() or not torch._C._cuda_isHistoryEnabled():
        return
    snapshot = torch.cuda.memory._snapshot()
    with open(os.path.join(os.environ["NEAP_RUN_DIR"], f"history.{os.getpid()}"), "ab") as file:
        writer = _Writer(torch, file)
        for index, trace in enumerate(snapshot["device_traces"]):
            segments = [s for s in snapshot["segments"] if s["device"] == index]
            if trace or segments:
                writer.device(index, [e for e in trace if e["action"] in _KINDS], segments)


class _Writer:
    def __init__(self, torch: Any, file: Any) -> None:
        self._torch_folder = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
        self._file = file
        self._zero_us = (time.time_ns() - time.monotonic_ns()) // 1000  # PyTorch uses the wall clock
        self._observer = _library.library().neap_attach_observer()
        if not _State.stacks:
            conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or ""
            self._line(f"neap-stacks 1\ttorch {torch.__version__}\tconf {' '.join(conf.split())}")

    def _line(self, text: str) -> None:
        self._file.write(text.encode("utf-8", "replace") + b"\n")
        self._file.flush()

    def device(self, index: int, trace: list[_Entry], segments: list[_Entry]) -> None:
        device = _State.devices.setdefault(index, _Device())
        first_us = trace[0]["time_us"] if trace else time.time_ns() // 1000
        if device.last_us < first_us:  # entries in between are lost, or there were none
            live, ranges = _before(trace, segments)
            for entry in (*_ends(device), *ranges, *live):
                self._tell(index, device, {**entry, "time_us": first_us})
        for entry in trace:
            if entry["time_us"] > device.last_us:
                self._tell(index, device, entry)
        device.last_us = trace[-1]["time_us"] if trace else first_us

    def _tell(self, index: int, device: _Device, entry: _Entry) -> None:
        kind = _KINDS[entry["action"]]
        stream = device.streams.setdefault(entry["stream"], len(device.streams))
        account = _account_range if entry["action"].startswith("segment") else _account_block
        account(device, entry)
        held = _abi.EventHeld(device.allocated, device.reserved)
        payload: ctypes.Structure
        if account is _account_range:
            first, second = entry.get("pool_id", (0, 0))
            payload = _abi.EventSegment(held, stream, entry["addr"], entry["size"], first << 32 | second)
        else:
            stack = self._stack(entry) if kind == _abi.EventKind.ALLOC else 0
            payload = _abi.EventAllocation(held, stack, stream, entry["addr"], entry["size"], _rounded(entry["size"]))
        event = _abi.Event(time_ns=max(entry["time_us"] - self._zero_us, 0) * 1000, kind=kind, device=index)
        ctypes.memmove(event.payload, ctypes.byref(payload), ctypes.sizeof(payload))
        self._observer.contents.event(self._observer.contents.context, ctypes.byref(event))

    def _stack(self, entry: _Entry) -> int:
        """Returns the tag of a stack, whose line is in the file; 0: none."""
        frames = [(f["filename"], f["line"], f["name"]) for f in entry.get("frames", ()) if not f["filename"].startswith(_OWN)]
        surplus = len(frames) - _MOST_FRAMES
        for frame in [f for f in frames if f[0].startswith(self._torch_folder)][: max(surplus, 0)]:
            frames.remove(frame)
        key = tuple(frames[:_MOST_FRAMES])
        if not key:
            return 0
        number = _State.stacks.get(key)
        if number is None:
            if len(_State.stacks) >= _MOST_STACKS or self._file.tell() >= _MOST_BYTES:
                return 0
            number = _State.stacks[key] = len(_State.stacks)
            fields = [str(number)]
            for file, line, name in key:
                fields += [_printable(file), str(line), _printable(name)]
            self._line("\t".join(fields))
        return _abi.EVENT_FIRST_STACK + number


def _printable(text: str) -> str:
    return "".join("?" if ord(c) < 32 or ord(c) == 127 else c for c in text)


def _rounded(size: int) -> int:
    return -(-size // _ROUNDING) * _ROUNDING


def _account_block(device: _Device, entry: _Entry) -> None:
    address = entry["addr"]
    action = entry["action"]
    if action == "alloc":
        device.live[address] = {**entry, "requested": False}
        device.allocated += _rounded(entry["size"])
    elif action == "free_requested":
        device.live.get(address, {})["requested"] = True
        device.allocated -= _rounded(entry["size"])
    else:
        device.live.pop(address, None)


def _account_range(device: _Device, entry: _Entry) -> None:
    if entry["action"] in ("segment_alloc", "segment_map"):
        device.ranges[entry["addr"]] = entry
        device.reserved += entry["size"]
    else:
        _cut(device.ranges, entry)
        device.reserved -= entry["size"]


def _cut(ranges: dict[int, _Entry], out: _Entry) -> None:
    """Cuts a range out of those that it overlaps."""
    begin = out["addr"]
    end = begin + out["size"]
    for address, there in list(ranges.items()):
        there_end = address + there["size"]
        if there_end <= begin or end <= address:
            continue
        del ranges[address]
        if address < begin:
            ranges[address] = {**there, "size": begin - address}
        if end < there_end:
            ranges[end] = {**there, "addr": end, "size": there_end - end}


def _now(segments: list[_Entry]) -> tuple[dict[int, _Entry], dict[int, _Entry]]:
    """Returns the live blocks and the mapped ranges of a snapshot, by address."""
    live: dict[int, _Entry] = {}
    ranges: dict[int, _Entry] = {}
    for segment in segments:
        action = "segment_map" if segment.get("is_expandable") else "segment_alloc"
        where = {"stream": segment["stream"], "pool_id": segment.get("segment_pool_id", (0, 0))}
        ranges[segment["address"]] = {"action": action, "addr": segment["address"], "size": segment["total_size"], **where}
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                freed = block["state"] != "active_allocated"
                more = {"frames": block.get("frames", ()), "stream": segment["stream"], "requested": freed}
                live[block["address"]] = {"action": "alloc", "addr": block["address"], "size": block["requested_size"], **more}
    return live, ranges


def _before(trace: list[_Entry], segments: list[_Entry]) -> tuple[list[_Entry], list[_Entry]]:
    """Returns the blocks and ranges that were live and mapped before the first entry, as entries: the snapshot with the history
    undone."""
    live, ranges = _now(segments)
    for entry in reversed(trace):
        action = entry["action"]
        address = entry["addr"]
        if action == "alloc":
            live.pop(address, None)
        elif action in ("free_requested", "free_completed"):
            live[address] = {**entry, "action": "alloc", "requested": action == "free_completed"}
        elif action in ("segment_alloc", "segment_map"):
            _cut(ranges, entry)
        else:
            ranges[address] = {**entry, "action": "segment_map" if action == "segment_unmap" else "segment_alloc"}
    found = []
    for block in live.values():
        found.append(block)
        if block["requested"]:
            found.append({**block, "action": "free_requested"})
    return found, list(ranges.values())


def _ends(device: _Device) -> list[_Entry]:
    """Returns entries that end everything that the events have so far."""
    found = []
    for block in device.live.values():
        if not block["requested"]:
            found.append({**block, "action": "free_requested"})
        found.append({**block, "action": "free_completed"})
    for there in device.ranges.values():
        found.append({**there, "action": "segment_unmap" if there["action"] == "segment_map" else "segment_free"})
    return found


__all__ = ["begin", "begin_again", "tell"]
