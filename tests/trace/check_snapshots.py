#!/usr/bin/env python3
"""check_snapshots.py TOOL: snapshots made here, in every layout and protocol, are read as Python reads them. A
written snapshot loads in Python with the same values, with no instruction that PyTorch's viewer does not know."""
import functools
import os
import pickle
import pickletools
import random
import struct
import subprocess
import sys
import tempfile

STATES = {"active_allocated": 1, "active_pending_free": 2, "active_awaiting_free": 2, "inactive": 3}
VIEWER = """PROTO FRAME MARK STOP EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST APPEND APPENDS SETITEM SETITEMS TUPLE TUPLE1
TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE MEMOIZE BINPUT
LONG_BINPUT BINGET LONG_BINGET""".split()


@functools.cache
def clean(text):
    """The part of a text that the reader keeps."""
    return "".join("?" * len(c.encode("utf-8", "surrogatepass")) if ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000
                   else c for c in text)


def stack(frames):
    return "".join(" <%s:%d:%s>" % (clean(f["filename"]), f["line"], clean(f["name"])) for f in frames or [])


def live_before(snapshot, device, trace):
    """What was live before the first event."""
    out = []
    seen = set()
    for e in trace:
        if e["action"] == "alloc":
            seen.add(e["addr"])
        elif e["action"] in ("free_requested", "free_completed"):
            if e["addr"] not in seen:
                out.append((device, e["addr"], e["size"], 1 if e["action"] == "free_requested" else 2))
            seen.add(e["addr"])
    for s in snapshot["segments"]:
        at = s["address"]
        for b in s["blocks"] if s["device"] == device else []:
            at = b.get("address", at)
            if b["state"] != "inactive" and at not in seen:
                out.append((device, at, requested_of(b), STATES[b["state"]]))
            at += b["size"]
    return ["before %d %d %d %d" % line for line in out]


def requested_of(block):
    history = block.get("history") or [{}]
    return block.get("requested_size", history[0].get("real_size", block["size"]))


def event_line(whose, e):
    pool = e.get("pool_id", (0, 0))
    return "%s %s %d %d %d %d %d,%d" % (whose, e["action"], e.get("addr", e.get("device_free", 0)), e["size"], e.get("time_us", 0),
                                        e["stream"], *pool) + stack(e.get("frames"))


def annotation_lines(device, trace):
    """Texts attached to blocks, each with the number of the next event."""
    out = []
    index = 0
    for e in trace:
        if e["action"] == "annotate":
            out.append("annotation %d %d %d %d %d %s %d %d,%d" % (
                device, index, e["addr"], e["size"], e["time_us"], clean(e["user_metadata"]), e["stream"], *e.get("pool_id", (0, 0)))
                + stack(e.get("frames")))
        index += e["action"] != "annotate"
    return out


def lines(snapshot):
    """What the tool prints about it, without the warnings."""
    out = []
    times = []
    traces = snapshot.get("device_traces", [])
    annotations = []
    for device, trace in enumerate(traces):
        events = [e for e in trace if e["action"] != "annotate"]
        times.append([e.get("time_us", 0) for e in events])
        for e in events:
            out.append(event_line("event %d" % device, e))
            beside = [e.get("user_metadata", ""), e.get("internal_metadata", ""), e.get("compile_context", "").replace("N/A", "")]
            if any(beside):
                out.append("beside " + "|".join(clean(text) for text in beside))
        annotations += annotation_lines(device, trace)
        out += live_before(snapshot, device, events)
    for device in range(len(traces), max([s["device"] + 1 for s in snapshot["segments"]], default=1)):
        out += live_before(snapshot, device, [])
    for s in sorted(snapshot["segments"], key=lambda s: s["device"]) + snapshot.get("host_segments", []):
        out.append("segment %d %d %d %d %d %d %s %d %d %d,%d" % (
            s["device"], s["address"], s["total_size"], s["allocated_size"], s["active_size"],
            s.get("requested_size", s["allocated_size"]), s["segment_type"], s.get("is_expandable", False), s["stream"],
            *s.get("segment_pool_id", (0, 0))) + stack(s.get("frames")))
        at = s["address"]
        for b in s["blocks"]:
            at = b.get("address", at)
            history = b.get("history") or [{}]
            out.append("block %d %d %d %d" % (at, b["size"], requested_of(b), STATES[b["state"]])
                       + stack(b.get("frames", history[0].get("frames"))))
            at += b["size"]
    out += annotations
    out += [event_line("host", e) for e in snapshot.get("host_traces", [])]
    settings = snapshot.get("allocator_settings")
    if settings:
        out.append("settings 1 %d %.17g %d %s" % (settings["max_split_size"], settings["garbage_collection_threshold"],
                                                  settings["expandable_segments"], settings["PYTORCH_CUDA_ALLOC_CONF"]))
        out.append("".join("%d " % n for n in settings["roundup_power2_divisions"].values()))
        out += ["setting %s %s" % (k, v) for k, v in settings.items() if k in ("release_lock_on_cudamalloc", "threads", "share")]
    else:
        out += ["settings 0 -1 0 0 ", "0 " * 16]
    for m in snapshot.get("external_annotations", []):
        before = next((i for i, t in enumerate(times[m["device"]]) if t >= m["time_us"]), len(times[m["device"]]))
        out.append("mark %d %d %d %d %s" % (m["device"], {"START": 2, "END": 3}[m["stage"]], m["time_us"], before, m["name"]))
    return out


def frame_makers(rng):
    names = ["forward", "backward", "caf\u00e9", "torch::autograd::Engine::run(" + "x" * 300 + ")", "bad\x01\x7fname", "<module>"]
    shared = [{"name": rng.choice(names), "filename": "/src/%d.py" % rng.randrange(5), "line": rng.randrange(3000)} for _ in range(40)]
    known = []

    def make():
        if known and rng.random() < 0.4:
            return rng.choice(known[-20:])  # one list, used twice
        depth = rng.choice([0, 1, 2, 5, 12])
        if len(known) == 50:
            depth = 2001  # three batches, the last of one
        known.append([rng.choice(shared) if rng.random() < 0.9 else dict(rng.choice(shared)) for _ in range(depth)])
        return known[-1]

    return make


def make_snapshot(seed, layout):
    rng = random.Random(seed)
    frames = frame_makers(rng)
    traces = []
    for _ in range(rng.choice([1, 2, 3])):
        trace = []
        now = 1795223039510504
        for _ in range(rng.choice([0, 1, 999, 1000, 1001, 2500])):
            now += rng.choice([0, 1, 50, 100000])
            event = {"action": rng.choice(["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
                                           "segment_map", "segment_unmap", "snapshot", "oom"])}
            event["device_free" if event["action"] == "oom" else "addr"] = rng.choice(
                [0, 255, 65535, 65536, 2**31 - 1, 2**31, 2**47 - 512, 2**63, 2**64 - 512, rng.randrange(2**48) & ~511])
            event["size"] = rng.choice([1, 512, 2**31 - 1, 2**31, 2**40, rng.randrange(2**34)])
            event["stream"] = rng.choice([0, 0, 0, 7, 94561234567890])
            if layout != "old":
                event["time_us"] = now
            if layout == "new":
                event["compile_context"] = rng.choice(["N/A", "0/0"])
                event["user_metadata"] = rng.choice(["", "", "layer 1"])
                if rng.random() < 0.1:
                    event["internal_metadata"] = "mallocWithAddress"
                event["pool_id"] = rng.choice([(0, 0), (0, 1), (7, 0)])
            if layout != "plain":
                event["frames"] = frames()
            trace.append(event)
            if layout == "new" and rng.random() < 0.05:
                trace.append(dict(event, action="annotate", addr=2**45, user_metadata="weights of %d" % len(trace)))
                trace[-1].pop("device_free", None), trace[-1].pop("internal_metadata", None)
        traces.append(trace)
    segments = []
    for i in range(rng.choice([0, 1, 30])):
        segment = {"device": rng.randrange(len(traces)), "address": 2**46 + i * 2**30, "stream": rng.choice([0, 5]),
                   "segment_type": rng.choice(["small", "large"]), "blocks": []}
        at = segment["address"]
        for _ in range(rng.choice([1, 2, 1001])):
            block = {"address": at, "size": rng.randrange(1, 2000) * 512, "requested_size": rng.randrange(1, 900000),
                     "state": rng.choice(list(STATES)), "frames": frames()}
            at += block["size"]
            if layout == "old":
                del block["address"], block["frames"], block["requested_size"]
                if block["state"] != "inactive":
                    block["history"] = [{"addr": 1, "real_size": block["size"] - 1, "frames": frames()},
                                        {"addr": 2, "real_size": 5}]
            segment["blocks"].append(block)
        segment.update(total_size=at - segment["address"], allocated_size=rng.randrange(2**40), active_size=rng.randrange(2**40))
        if layout != "old":
            segment.update(requested_size=5, segment_pool_id=rng.choice([(0, 0), (0, 3), [0, 0]]),
                           is_expandable=rng.random() < 0.5, frames=frames())
        segments.append(segment)
    if layout == "list":
        return segments
    snapshot = {"segments": segments, "device_traces": traces}
    if layout == "new":
        block = {"address": 2**47, "size": 4194304, "requested_size": 4194304, "state": "active_allocated", "frames": frames()}
        snapshot["host_segments"] = [{
            "device": -1, "address": 2**47, "total_size": 4194304, "allocated_size": 4194304, "active_size": 4194304,
            "requested_size": 4194304, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": frames(), "blocks": [block]}] * rng.choice([1, 1, 0])
        snapshot["host_traces"] = [{
            "action": action, "addr": 2**47, "size": 4194304, "stream": 0, "time_us": 1795223039510504 + i, "compile_context": "",
            "user_metadata": "", "pool_id": (0, 0), "frames": frames()} for i, action in enumerate(("segment_alloc", "alloc"))]
    if layout != "old":
        snapshot["allocator_settings"] = {
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128", "max_split_size": rng.choice([-1, 2**27]),
            "garbage_collection_threshold": rng.choice([0.0, 0.8]), "expandable_segments": rng.random() < 0.5,
            "threads": 1, "release_lock_on_cudamalloc": False, "share": 0.25,
            "roundup_power2_divisions": {str(2**i): rng.choice([0, 4]) for i in range(16)}}
        marks = [{"stage": rng.choice(["START", "END"]), "name": "iter %d" % i, "device": i % len(traces),
                  "time_us": 1795223039510504 + i * 1000000} for i in range(20)]
        snapshot["external_annotations"] = sorted(marks, key=lambda m: m["device"])
    return snapshot


def dump_like_cpp(value):
    """Protocol 2 as PyTorch's own C++ pickler writes it: an object is put into the memo when it is complete, and a list's
    items come between one MARK and one APPENDS."""
    out = [b"\x80\x02"]
    memo = {}

    def put(key):
        memo[key] = len(memo)
        out.append(b"q" + bytes([memo[key]]) if memo[key] < 256 else b"r" + struct.pack("<I", memo[key]))

    def write(v):
        key = ("s", v) if isinstance(v, str) else ("i", id(v)) if isinstance(v, (dict, list)) else None
        if key in memo:
            out.append(b"h" + bytes([memo[key]]) if memo[key] < 256 else b"j" + struct.pack("<I", memo[key]))
        elif isinstance(v, bool):
            out.append(b"\x88" if v else b"\x89")
        elif isinstance(v, int):
            out.append(b"K" + bytes([v]) if 0 <= v < 256 else b"\x8a" + bytes([9]) + v.to_bytes(9, "little", signed=True))
        elif isinstance(v, float):
            out.append(b"G" + struct.pack(">d", v))
        elif isinstance(v, str):
            out.append(b"X" + struct.pack("<I", len(v.encode())) + v.encode())
        elif isinstance(v, tuple):
            out.append(b"(")
            for item in v:
                write(item)
            out.append(b"t")
        else:
            out.append((b"}" if isinstance(v, dict) else b"]") + b"(")
            for item in ([x for pair in v.items() for x in pair] if isinstance(v, dict) else v):
                write(item)
            out.append(b"u" if isinstance(v, dict) else b"e")
        if key and key not in memo:
            put(key)

    write(value)
    return b"".join(out) + b"."


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60)
    if done.returncode:
        sys.exit("%s failed: %s" % (" ".join(command), done.stderr))
    return done.stdout.split("\n")[:-1]


def compare(what, got, expected):
    known = ("there is no history", "no free was requested") + (("blocks without an address",) if " old " in what else ())
    odd = [line for line in got if line.startswith("warning ") and not line.startswith(tuple("warning " + k for k in known))]
    if odd:
        sys.exit("%s: %s" % (what, odd))
    got = [line for line in got if not line.startswith("warning ")]
    for number, (a, b) in enumerate(zip(got + ["(end)"], expected + ["(end)"])):
        if a != b:
            sys.exit("%s, line %d:\n  read      %s\n  expected  %s" % (what, number + 1, a[:300], b[:300]))


def check_written(tool, path, folder, expected):
    """The snapshot that is written from `path`, by Python and by us."""
    written = os.path.join(folder, "written")
    run(tool, path, "snapshot", written)
    with open(written, "rb") as file:
        data = file.read()
    counts = [0]  # of values above each MARK
    for code, argument, position in pickletools.genops(data):
        if code.name == "MARK":
            counts.append(0)
        elif code.name in ("APPENDS", "SETITEMS"):
            if counts.pop() > (1000 if code.name == "APPENDS" else 2000):
                sys.exit("a batch of more than 1000 items at byte %d of a written snapshot" % position)
        elif code.name == "TUPLE2":
            counts[-1] -= 1
        elif code.stack_after and code.name not in ("MEMOIZE", "APPEND", "SETITEM"):
            counts[-1] += 1
        if code.name not in VIEWER or (code.name == "PROTO" and argument != 4):
            sys.exit("%s at byte %d of a written snapshot" % (code.name, position))
    snapshot = pickle.loads(data)
    compare("a written snapshot, as Python loads it", lines(snapshot), expected)
    compare("a written snapshot, read again", run(tool, written), expected)
    for trace in snapshot["device_traces"]:
        for event in trace:
            assert {"action", "device_free" if event["action"] == "oom" else "addr", "size", "stream", "time_us"} <= set(event), event
    for segment in snapshot["segments"]:
        assert set(segment) == {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream",
                                "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"}, segment
        assert isinstance(segment["segment_pool_id"], tuple)
        for block in segment["blocks"]:
            assert set(block) == {"address", "size", "requested_size", "state", "frames"}, block


def main():
    tool = sys.argv[1]
    count = 0
    with tempfile.TemporaryDirectory(prefix="neap-snapshots-") as folder:
        path = os.path.join(folder, "snapshot")
        for seed in range(2):
            for layout in ("usual", "new", "plain", "old", "list"):
                snapshot = make_snapshot(seed * 10 + len(layout), layout)
                whole = snapshot if layout != "list" else {"segments": snapshot}
                expected = lines(whole)
                for protocol in (2, 3, 4, 5, "cpp"):
                    with open(path, "wb") as file:
                        file.write(dump_like_cpp(snapshot) if protocol == "cpp" else pickle.dumps(snapshot, protocol))
                    compare("seed %d, %s layout, protocol %s" % (seed, layout, protocol), run(tool, path), expected)
                    count += 1
                check_written(tool, path, folder, expected)
    print("%d snapshots read as Python reads them" % count)


main()
