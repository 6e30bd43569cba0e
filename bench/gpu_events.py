"""Events of PyTorch's allocator, packed, and compared in order. For bench/gpu_truth.py; needs no PyTorch.

An event is (action, bytes, stream, address); streams are numbered in the order in which they appear. Packed, each of the four is a
column of indices into a table of the values that occur, deflated and in base64: some 2 bytes an event in steps that repeat.
"""

import base64
import bisect
import dataclasses
import zlib

SEGMENTS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")


def from_trace(trace):
    """The events of one device of torch.cuda.memory._snapshot()["device_traces"]."""
    streams = {}
    events = []
    for entry in trace:
        if entry["action"] == "snapshot":
            continue
        stream = streams.setdefault(entry.get("stream", 0), len(streams))
        events.append((entry["action"], entry["size"], stream, entry.get("addr", entry.get("device_free", 0))))
    return events


def _write(numbers):
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return bytes(out)


def _read(data, at, count):
    numbers = []
    for _ in range(count):
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        numbers.append(number)
    return numbers, at


def _indices(values, table):
    place = {value: index for index, value in enumerate(table)}
    return [place[value] for value in values]


def pack(events):
    """Packs the events into a value for JSON."""
    actions, sizes, streams, addresses = ([event[column] for event in events] for column in range(4))
    names = sorted(set(actions))
    known_sizes = list(dict.fromkeys(sizes))
    known_addresses = sorted(set(addresses))
    steps = [after - before for before, after in zip([0, *known_addresses], known_addresses)]
    data = _write([len(events), len(known_sizes), len(known_addresses), *known_sizes, *steps])
    for column in (_indices(actions, names), _indices(sizes, known_sizes), streams, _indices(addresses, known_addresses)):
        data += _write(column)
    return {"count": len(events), "actions": names, "columns": base64.b64encode(zlib.compress(data, 9)).decode()}


def unpack(packed):
    data = zlib.decompress(base64.b64decode(packed["columns"]))
    (count, size_count, address_count), at = _read(data, 0, 3)
    sizes, at = _read(data, at, size_count)
    steps, at = _read(data, at, address_count)
    addresses = []
    for step in steps:
        addresses.append(step + (addresses[-1] if addresses else 0))
    columns = []
    for _ in range(4):
        column, at = _read(data, at, count)
        columns.append(column)
    names = packed["actions"]
    return [(names[a], sizes[b], c, addresses[d]) for a, b, c, d in zip(*columns)]


@dataclasses.dataclass
class Comparison:
    """Two sequences of events, settled and without their addresses."""

    events: int  # of the first
    others: int  # of the second
    equal: int  # events that both have, in the same order
    placed: int  # allocations among these in the same segment (by the order of segments) at the same offset
    placements: int  # allocations among the equal events
    gaps: list  # (place in the first, its events there, place in the second, its events there)

    @property
    def same(self):
        return self.equal == self.events == self.others


def _resynchronise(a, b, i, j, window, anchor):
    """How many events to skip in each, fewest first, until `anchor` of them are equal again; or None."""
    for total in range(1, window):
        for skip in range(total + 1):
            x = i + skip
            y = j + total - skip
            if x < len(a) and y < len(b) and a[x] == b[y] and a[x : x + anchor] == b[y : y + anchor]:
                return skip, total - skip
    return None


def settled(events):
    """Sorts each run of consecutive frees: autocast drops its copies of weights in the order of a hash of their addresses, which
    differs from run to run."""
    sorted_events = []
    run = []
    for event in events:
        if event[0].startswith("free_"):
            run.append(event)
            continue
        sorted_events += [*sorted(run), event]
        run = []
    return sorted_events + sorted(run)


def compare(real, simulated, window=400, anchor=6):
    real = settled(real)
    simulated = settled(simulated)
    a = [event[:3] for event in real]
    b = [event[:3] for event in simulated]
    places = (_places(real), _places(simulated))
    found = Comparison(len(a), len(b), 0, 0, 0, [])
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            found.equal += 1
            if a[i][0] == "alloc":
                found.placements += 1
                found.placed += places[0][i] == places[1][j]
            i += 1
            j += 1
            continue
        skips = _resynchronise(a, b, i, j, window, anchor)
        if skips is None:
            break
        found.gaps.append((i, a[i : i + skips[0]], j, b[j : j + skips[1]]))
        i += skips[0]
        j += skips[1]
    if i < len(a) or j < len(b):
        found.gaps.append((i, a[i:], j, b[j:]))
    return found


def _places(events):
    """The place of each allocation: its segment's number, and its offset there. None: its segment is not known."""
    starts = []
    segments = {}  # by its beginning: its number, its size
    count = 0
    places = []
    for action, size, _, address in events:
        place = None
        if action in ("segment_alloc", "segment_map"):
            if address not in segments:
                bisect.insort(starts, address)
            segments[address] = (count, size)
            count += 1
        elif action in ("segment_free", "segment_unmap") and address in segments:
            starts.remove(address)
            del segments[address]
        elif action == "alloc" and starts:
            at = bisect.bisect_right(starts, address) - 1
            if at >= 0 and address < starts[at] + segments[starts[at]][1]:
                place = (segments[starts[at]][0], address - starts[at])
        places.append(place)
    return places


def peaks(events):
    """The most bytes of blocks and of segments, by the events: the rest of a record must agree with them."""
    allocated = reserved = 0
    most = [0, 0]
    for action, size, _, _ in events:
        if action == "alloc":
            allocated += size
        elif action == "free_completed":
            allocated -= size
        elif action in ("segment_alloc", "segment_map"):
            reserved += size
        elif action in ("segment_free", "segment_unmap"):
            reserved -= size
        most = [max(most[0], allocated), max(most[1], reserved)]
    return tuple(most)
