#!/usr/bin/env python3
"""oom_cards.py NEAP: the card of failures at the edges. The test makes snapshots as PyTorch writes them and
recordings as neap writes them; each card's cause, figures, first fix and sentences must follow from how
the failure was made."""
import json
import pickle
import struct
import subprocess
import sys
import tempfile

NEAP = sys.argv[1]
MIB = 1 << 20
GIB = 1 << 30
BASE = 0x7F0000000000
NO_LIMIT = 2**64 - 1
STACK = [{"filename": "/home/user/job/model.py", "line": 20, "name": "forward"}]
FOLDER = tempfile.TemporaryDirectory()


class Device:
    """One device of a snapshot: its events, and its state at the end."""

    def __init__(self, number=0):
        self.number = number
        self.segments = {}
        self.trace = []

    def event(self, action, addr, size, stream=0, frames=STACK):
        event = {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 10 * (len(self.trace) + 1)}
        self.trace.append(dict(event, frames=frames) if frames else event)

    def segment(self, addr, size, stream=0, pool=(0, 0), recorded=True):
        self.segments[addr] = {"size": size, "stream": stream, "pool": pool, "blocks": {}}
        if recorded:
            self.event("segment_alloc", addr, size, stream)

    def home(self, addr):
        return next(s for at, s in self.segments.items() if at <= addr < at + s["size"])

    def alloc(self, addr, size, recorded=True):
        home = self.home(addr)
        home["blocks"][addr] = size
        if recorded:
            self.event("alloc", addr, size, home["stream"])

    def free(self, addr):
        home = self.home(addr)
        size = home["blocks"].pop(addr)
        self.event("free_requested", addr, size, home["stream"])
        self.event("free_completed", addr, size, home["stream"])

    def oom(self, size, free, stream=0, frames=STACK):
        self.event("oom", free, size, stream, frames)
        return self

    def state(self):
        for at, segment in sorted(self.segments.items()):
            blocks = []
            next_at = at
            live = sum(segment["blocks"].values())
            for addr, size in sorted(segment["blocks"].items()) + [(at + segment["size"], 0)]:
                if addr > next_at:
                    blocks.append({"address": next_at, "size": addr - next_at, "requested_size": 0, "state": "inactive"})
                if size:
                    blocks.append({"address": addr, "size": size, "requested_size": size, "state": "active_allocated",
                                   "frames": STACK})
                next_at = addr + size
            yield {"device": self.number, "address": at, "total_size": segment["size"], "allocated_size": live,
                   "active_size": live, "requested_size": live, "stream": segment["stream"], "segment_type": "large",
                   "segment_pool_id": segment["pool"], "is_expandable": False, "frames": [], "blocks": blocks}


def held(size, parts=1):
    """A device that holds `size` bytes in `parts` blocks."""
    device = Device()
    for part in range(parts):
        device.segment(BASE + part * 64 * GIB, size // parts)
        device.alloc(BASE + part * 64 * GIB, size // parts)
    return device


def write_snapshot(path, devices, conf):
    settings = {"PYTORCH_CUDA_ALLOC_CONF": conf, "max_split_size": -1, "garbage_collection_threshold": 0.0,
                "expandable_segments": "expandable_segments:True" in conf,
                "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}
    with open(path, "wb") as file:
        pickle.dump({"segments": [s for d in devices for s in d.state()], "device_traces": [d.trace for d in devices],
                     "allocator_settings": settings, "external_annotations": []}, file)


def write_recording(path, size, free, total, held_bytes=0, limit=NO_LIMIT, context=0, flags=0, tags=(), largest=0, cached=0,
                    tag=""):
    """An OOM as the journal records it; see include/neap/event.h."""
    names = ["", "parameters", "activations and other"]

    def event(number, kind, payload):
        return struct.pack("<QIHH48s", number * 1000, number, kind, 0, payload)

    reserved = held_bytes + max(cached, largest)
    journal = [event(1, 21, struct.pack("<QQIIQQQ", held_bytes, reserved, names.index(tag), flags, free, size, size)),
               event(2, 22, struct.pack("<QQQQQQ", context, total, limit, largest, total - free - reserved, 0))]
    journal += [event(3 + i, 23, struct.pack("<QQQQ", names.index(tag), 1, live, live)) for i, (tag, live) in enumerate(tags)]
    header = struct.pack("<8sIIQQQQQQQII", b"NEAPREC1", 3, 16384, 4242, 1, 0, len(journal), 1, len(journal), 0, len(names), 0)
    header += b"".join(name.encode().ljust(48, b"\0") for name in names)
    with open(path, "wb") as file:
        file.write(header.ljust(16384, b"\0") + b"".join(journal) + bytes(64))


def ask(command):
    text = subprocess.run([NEAP] + command, check=True, stdout=subprocess.PIPE, timeout=120).stdout.decode()
    found = json.loads(subprocess.run([NEAP] + command + ["--json"], check=True, stdout=subprocess.PIPE, timeout=120).stdout)["oom"]
    return " ".join(text[text.index("Out of device memory"):].split()), found


def snapshot(*devices, conf="", more=()):
    path = FOLDER.name + "/snapshot.pickle"
    write_snapshot(path, devices, conf)
    return ask(["analyze", path, *more])


def recording(*args, **named):
    path = FOLDER.name + "/record.1"
    write_recording(path, *args, **named)
    return ask(["explain", "--record", path])


def expect(card, cause, missing, first=None, says=(), never=()):
    """The first fix is enough by itself; None: no fix is."""
    text, found = card
    enough = [fix["kind"] for fix in found["fixes"] if fix["sufficient"] and not fix["active_already"]]
    assert (found["cause"], found["missing"]) == (cause, missing), text
    assert (enough[0] if enough else None) == first, text
    assert not enough or found["fixes"][0]["sufficient"], text
    for words in says:
        assert words in text, (words, text)
    for words in ("this device can hold", *never):
        assert words not in text, (words, text)
    return found


def first_request():
    """No fix comes before it."""
    alone = "This one request, 30.0 GiB, is 7.00 GiB larger than all that this process could have here, 23.0 GiB:"
    expect(snapshot(Device().oom(30 * GIB, 23 * GIB)), "capacity", 7 * GIB,
           says=[alone, "a smaller request, or a device with more room", "--memory with the size of the device",
                 "the smallest device that fits: a lower bound, 30.0 GiB"], never=["already in use"])
    expect(snapshot(Device().oom(30 * GIB, 23 * GIB, frames=None)), "capacity", 7 * GIB,
           says=["30.0 GiB for a request without a stack at event 0"])
    expect(snapshot(Device().oom(512, 0)), "capacity", 512, says=["Nothing of the device was free", "whom nvidia-smi names"],
           never=["replayed"])
    found = expect(snapshot(Device().oom(4 * GIB, 20 * GIB)), "limit", 4 * GIB, "higher limit",
                   says=["a fraction set on the process, or something like it, refused it", "a limit of 4.00 GiB at least:"])
    assert found["smallest_memory"] == 4 * GIB and not found["settings"]
    # First PyTorch's own allocator: the recording has none of its allocations. Then neap's.
    found = expect(recording(30 * GIB, 23 * GIB, 24 * GIB, flags=1), "capacity", 7 * GIB,
                   says=[alone, "Out of device memory: 30.0 GiB for a request before any step ended", "PyTorch's own allocator held nothing"],
                   never=["already in use", "micro-batch", "other processes on this device end"])
    assert found["fixes"] == [] and found["settings"] == [] and found["not_recorded"] and found["other_allocator"]
    found = expect(recording(30 * GIB, 23 * GIB, 24 * GIB, context=500 * MIB, tag="parameters"), "capacity", 7 * GIB, "smaller model",
                   says=[alone, "neap's allocator not tried: already in use"])
    assert not found["other_allocator"] and not found["not_recorded"]
    said = subprocess.run([NEAP, "analyze", FOLDER.name + "/record.1"], check=True, stdout=subprocess.PIPE, timeout=120).stdout
    assert b"Peaks: none, no allocation is in it" in said and b"by replay under" not in said, said
    expect(recording(4 * GIB, 23 * GIB, 24 * GIB, limit=2 * GIB, flags=1), "limit", 2 * GIB, "higher limit",
           says=["over the 2.00 GiB that this process may reserve"], never=["micro-batch"])


def in_pieces():
    """PyTorch's cache is in pieces: expandable segments would help, unless they are already on."""
    for flags, first in ((1, "expandable segments"), (3, None)):
        text, found = recording(3 * GIB, 300 * MIB, 24 * GIB, 18 * GIB, cached=4 * GIB, largest=GIB, flags=flags)
        enough = [fix["kind"] for fix in found["fixes"] if fix["sufficient"] and fix["kind"] == "expandable segments"]
        struck = [fix["kind"] for fix in found["fixes"] if fix["active_already"]]
        assert found["cause"] == "fragmentation" and "the largest free piece has 1.00 GiB" in text, text
        assert (enough, struck) == (([first], []) if first else ([], ["expandable segments"])), text


def one_rule():
    """The cause of a snapshot follows the same rule as a recording's: a segment is missing, and a limit refuses it,
    however much is free."""
    # PyTorch asks the driver for 20 MiB to serve 3 MiB: with 10 MiB free, 10 MiB are missing. neap's allocator asks for less.
    found = expect(snapshot(held(2 * GIB).oom(3 * MIB, 10 * MIB)), "fragmentation", 10 * MIB, "setting of the allocator")
    assert found["fixes"][0]["apply"] == {"allocator": "neap"}
    # Less than the segment is free, and the limit withholds most of that: even without other processes it would
    # refuse.
    limit = int(0.35 * 24 * GIB)
    found = expect(snapshot(held(8 * GIB, 4).oom(GIB, 900 * MIB), conf="per_process_memory_fraction:0.35", more=["--memory", "24GiB"]),
                   "capacity", 9 * GIB - limit, says=["614 MiB more than the 8.40 GiB that this process could"],
                   never=["Others hold", "other processes on this device end"])
    assert found["room"] == found["memory"] == limit
    # With such a limit the request would have succeeded: another limit refused it.
    found = expect(snapshot(held(2 * GIB).oom(GIB, 5 * GIB), conf="per_process_memory_fraction:0.9", more=["--memory", "80GiB"]),
                   "limit", GIB, "higher limit", says=["allowed the 2.00 GiB reserved, but not this."])
    assert found["limit"] is None and found["room"] == 2 * GIB
    # The device is as large as the user says, even if a limit refused.
    found = expect(snapshot(held(8 * GIB, 4).oom(4 * GIB, 15 * GIB), more=["--memory", "6GiB"]), "limit", 6 * GIB, "higher limit")
    assert found["room"] == found["memory"] == 6 * GIB


def larger_than_the_device():
    for conf, struck in (("", False), ("expandable_segments:True", True)):
        text, found = snapshot(held(2 * GIB).oom(40 * GIB, 21 * GIB), conf=conf)
        expect((text, found), "capacity", 19 * GIB,
               says=["40.0 GiB, is 17.0 GiB larger than all", "none of the settings that were tried is enough"],
               never=["No whole step came before"])
        assert [fix["active_already"] for fix in found["fixes"]] == [True] * struck
    expect(recording(40 * GIB, 21 * GIB, 24 * GIB, 2 * GIB, flags=1, tags=[("activations and other", 2 * GIB)]), "capacity",
           19 * GIB, "smaller micro-batch", says=["perhaps enough for this request", "The stacks of a snapshot tell."],
           never=["probably enough", "neap_tag_set", "other processes on this device end"])


def limits():
    """The program has set it: it is the cheapest fix, and the replay uses the memory that it left."""
    device = held(8 * GIB, 4).oom(4 * GIB, 15 * GIB)
    found = expect(snapshot(device), "limit", 4 * GIB, "higher limit",
                   says=["allowed the 8.00 GiB reserved, but not this.",
                         "1. a lower bound: a limit of 12.0 GiB at least, instead of about 8.00 GiB: torch.cuda.set_per_process_memory_fraction"])
    assert found["memory"] == 8 * GIB and found["smallest_memory"] == 12 * GIB
    found = expect(snapshot(device, conf="per_process_memory_fraction:0.35"), "limit", 4 * GIB, "higher limit",
                   says=["1. a lower bound: per_process_memory_fraction:0.53 instead of 0.35: a limit of 12.0 GiB at least"])
    assert found["settings"][0]["first_oom_event"] == 8 and found["smallest_memory"] == 12 * GIB
    found = expect(snapshot(device, conf="per_process_memory_fraction:0.35", more=["--memory", "24GiB"]), "limit",
                   12 * GIB - int(0.35 * 24 * GIB), "higher limit",
                   says=["limit set on this process 8.40 GiB", "to 12.0 GiB (fraction 0.50)", "others: the rest of its use 1.00 GiB"])
    assert found["limit"] == int(0.35 * 24 * GIB)


def neighbours():
    """Others hold the rest: a snapshot cannot show it, but the size of the device does."""
    device = held(2 * GIB).oom(GIB, 200 * MIB)
    expect(snapshot(device), "capacity", 824 * MIB,
           says=["are 824 MiB more than the 2.20 GiB that this process could have here", "--memory with the size of the device"])
    found = expect(snapshot(device, more=["--memory", "24GiB"]), "neighbours", 824 * MIB, "end other processes",
                   says=["Others hold 21.8 GiB of this device", "fails at event 2"], never=["--memory with the size"])
    assert found["others"] == 24 * GIB - 2 * GIB - 200 * MIB
    expect(snapshot(Device().oom(4 * GIB, GIB), more=["--memory", "24GiB"]), "neighbours", 3 * GIB, "end other processes")
    expect(recording(4 * GIB, GIB, 24 * GIB, flags=1), "neighbours", 3 * GIB, "end other processes",
           says=["our context, whose size is not known, is in it"])
    # Memory that may all be the context and the driver is attributed to nobody.
    for room in ([], ["--memory", "24GiB"]):
        expect(snapshot(held(20 * GIB).oom(4 * GIB, 3 * GIB), more=room), "capacity", GIB, never=["other processes on this"])
    expect(recording(3 * GIB, 300 * MIB, 24 * GIB, 20 * GIB, largest=2764 * MIB, flags=1,
                     tags=[("activations and other", 20 * GIB)]), "capacity", 8 * MIB, "smaller micro-batch",
           says=["micro-batch divided by 2,"])
    # Not a byte is free, and this process does not hold them.
    expect(recording(512 * MIB, 0, 24 * GIB, 2 * GIB, flags=1, tags=[("parameters", 2 * GIB)]), "neighbours", 512 * MIB,
           "end other processes", says=["Others hold 22.0 GiB"])


def beginnings():
    """The ring has lost the beginning, or the history began late."""
    device = Device()
    for number in range(6):
        device.segment(BASE + 4 * number * GIB, 2 * GIB, recorded=False)
        device.alloc(BASE + 4 * number * GIB, 2 * GIB, recorded=False)
    device.free(BASE)
    device.alloc(BASE, GIB)
    words = "12.0 GiB were live before the trace begins. Under other settings they are placed again"
    found = expect(snapshot(device.oom(3 * GIB, GIB)), "capacity", GIB, says=["11.0 GiB live and 3.00 GiB asked for", words])
    assert found["live_before"] == 12 * GIB and found["largest_free"] == GIB
    device = Device()
    device.segment(BASE, 20 * GIB, recorded=False)
    device.alloc(BASE, 20 * GIB, recorded=False)
    found = expect(snapshot(device.oom(4 * GIB, 3 * GIB)), "capacity", GIB, says=["20.0 GiB were live before the trace begins"])
    assert not found["settings"][0]["fits"] and found["smallest_memory"] == 24 * GIB


def pools():
    """Free memory in another pool or stream cannot serve this request: three graphs, each with its pool."""
    device = held(2 * GIB)
    for number in range(8, 20, 4):
        addr = BASE + number * GIB
        device.segment(addr, 2 * GIB, stream=7, pool=(0, number))
        device.alloc(addr, 2 * GIB)
        device.free(addr)
        device.alloc(addr, 256 * MIB)
    text, found = snapshot(device.oom(1536 * MIB, 512 * MIB))
    expect((text, found), "fragmentation", GIB, "setting of the allocator",
           says=["largest free piece for it 0 B, elsewhere 1.75 GiB", "one of 1.75 GiB belongs to another stream or pool",
                 "5.25 GiB lie free in private pools of captured graphs"])
    assert found["largest_free"] == 0 and found["largest_free_elsewhere"] == 1792 * MIB
    # No event names its pool, but the replay keeps the pools apart: it fails at the same place.
    assert found["settings"][0]["first_oom_event"] == 17, text
    assert [row["fits"] for row in found["settings"] if row["name"] == "expandable_segments:True"] == [False], text
    device = Device()
    device.segment(BASE, 6 * GIB)
    device.alloc(BASE, 6 * GIB)
    device.free(BASE)
    device.alloc(BASE, GIB)
    device.segment(BASE + 32 * GIB, 2 * GIB, stream=7, pool=(0, 1))
    device.alloc(BASE + 32 * GIB, 2 * GIB)
    expect(snapshot(device.oom(1536 * MIB, 512 * MIB, stream=7)), "fragmentation", GIB, "setting of the allocator",
           says=["one of 5.00 GiB belongs to another stream or pool"], never=["lie free in private pools"])


def several_devices():
    """The card is about the device that ran out of memory, whichever device is the busiest."""
    first = held(2 * GIB)
    second = Device(1)
    for _ in range(9):
        first.free(BASE)
        first.alloc(BASE, 2 * GIB)
    second.segment(BASE + 256 * GIB, 2 * GIB)
    second.alloc(BASE + 256 * GIB, 2 * GIB)
    found = expect(snapshot(first, second.oom(GIB, 200 * MIB)), "capacity", 824 * MIB, says=["at event 2 on CUDA device 1"])
    assert found["device"] == 1
    write_snapshot(FOLDER.name + "/two.pickle", [first, second], "")
    other = subprocess.run([NEAP, "analyze", FOLDER.name + "/two.pickle", "--device", "0"], check=True, stdout=subprocess.PIPE)
    assert b"device 1 ran out of memory: --device 1" in other.stdout and b"Out of device memory" not in other.stdout


for test in (first_request, in_pieces, one_rule, larger_than_the_device, limits, neighbours, beginnings, pools, several_devices):
    test()
    print("ok", test.__name__)
