#!/usr/bin/env python3
"""make_trace.py FILE EVENTS: writes a snapshot in PyTorch's layout of about that many events, and prints as JSON what a
page of it has to show: places in it, each with the allocation that is there.

The trace is a training run: parameters, then steps of forward (activations, and buffers of a moment) and backward. A
caching allocator of fixed segments gives out the addresses. In the middle one block of 3 GiB, the landmark, lives for a
while. A few names are hostile: markup, and characters that turn the direction of writing.

The pickle is written as it is made, opcode by opcode, so that a million events need little memory.
"""
import json
import random
import struct
import sys

MIB = 1 << 20
BASE = 0x7F4000000000
START_US = 1795223039510504
LAYERS = 12
PLACES = 8
HOSTILE = ["</script><img src=x onerror=alert(1)>", "a\u202egnp.exe", "\"'&lt;b>&amp;", "${alert(1)}`'); //"]


def short_text(text):
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value):
    return b"J" + struct.pack("<i", value) if value < 1 << 31 else b"\x8a\x08" + struct.pack("<q", value)


KEYS = """device_traces segments allocator_settings external_annotations action addr size stream time_us frames name filename
line device address total_size allocated_size active_size requested_size segment_type segment_pool_id is_expandable blocks
state PYTORCH_CUDA_ALLOC_CONF max_split_size expandable_segments stage""".split()


class Writer:
    """Protocol 2. Keys, actions and stacks are put once and then got by their number; keys before anything else."""

    def __init__(self, file):
        self.file = file
        self.memo = {}

    def once(self, key, made):
        if key in self.memo:
            return b"j" + struct.pack("<I", self.memo[key])
        data = made()  # which may put others first
        self.memo[key] = len(self.memo)
        return data + b"r" + struct.pack("<I", self.memo[key])

    def text(self, text):
        return self.once(text, lambda: short_text(text))

    def map(self, items):
        return b"}(" + b"".join(self.text(key) + value for key, value in items) + b"u"

    def frame(self, frame):
        return self.once(frame, lambda: self.map((("name", self.text(frame[0])), ("filename", self.text(frame[1])),
                                                  ("line", number(frame[2])))))

    def stack(self, stack):
        return self.once(("stack",) + stack, lambda: b"](" + b"".join(map(self.frame, stack)) + b"e")


class Run:
    def __init__(self, writer, events):
        self.writer = writer
        self.wanted = events
        self.events = 0
        self.clock = START_US
        self.out = []
        self.random = random.Random(7)
        self.segments = []
        self.free = {}
        self.room = 0
        self.at = BASE
        self.live = {}
        self.marks = []
        self.truth = []

    def event(self, action, address, size, stack):
        self.clock += int(self.random.expovariate(0.2)) + (self.random.random() < 0.02) * 200
        writer = self.writer
        self.out.append(writer.map((("action", writer.text(action)), ("addr", number(address)), ("size", number(size)),
                                    ("stream", number(0)), ("time_us", number(self.clock)),
                                    ("frames", writer.stack(stack)))))
        self.events += 1
        if len(self.out) == 1000:
            writer.file.write(b"".join(self.out))
            self.out.clear()

    def new_address(self, rounded, stack):
        """Freed addresses are reused for sizes that round to the same quarter of a power of two."""
        quarter = 1 << max((rounded - 1).bit_length() - 3, 9)
        rounded = (rounded + quarter - 1) // quarter * quarter
        if self.free.get(rounded):
            return self.free[rounded].pop(), rounded
        if rounded > self.room:
            size = max(64 * MIB, (rounded + 2 * MIB - 1) // (2 * MIB) * 2 * MIB)
            self.at = self.segments[-1][0] + self.segments[-1][1] + 32 * MIB if self.segments else BASE
            self.segments.append((self.at, size))
            self.room = size
            self.event("segment_alloc", self.at, size, stack)
        address = self.at
        self.at += rounded
        self.room -= rounded
        return address, rounded

    def allocate(self, size, stack):
        rounded = (size + 511) // 512 * 512
        address, place = self.new_address(rounded, stack)
        self.live[address] = (size, rounded, self.events, stack, place)
        self.event("alloc", address, size, stack)
        return address

    def release(self, address, stack):
        size, _, _, _, place = self.live.pop(address)
        self.event("free_requested", address, size, stack)
        self.event("free_completed", address, size, stack)
        self.free.setdefault(place, []).append(address)

    def note(self, address, what):
        """Remembers where it is in the page, at the event that has just happened."""
        below = 0
        for other, (size, *_) in self.live.items():  # in order of allocation
            if other == address:
                break
            below += size
        size, _, begin, stack, _ = self.live[address]
        self.truth.append({"what": what, "event": self.events - 1, "below": below, "size": size, "begin": begin,
                           "address": hex(address), "name": stack[0][0], "file": stack[0][1], "line": stack[0][2],
                           "frames": len(stack)})

    def step(self, step):
        loop = ("main", "/home/user/train/loop.py", 40)
        self.marks.append((f"iter {step}", "START", self.clock))
        activations = []
        tokens = self.random.randrange(8, 64) * 512
        for layer in range(LAYERS):
            for place in range(PLACES):
                stack = ((f"op_{place}", "/home/user/train/ops.py", 10 + place),
                         ("forward", "/home/user/train/layers.py", 100 + layer),
                         ("forward", "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", 1511), loop)
                activations.append(self.allocate(tokens * 64 * (2 + place) + layer * 512, stack))
                for _ in range(self.random.randrange(3)):
                    self.release(self.allocate(tokens * self.random.randrange(1, 9) * 8, stack), stack)
        if self.events > self.wanted * 0.35 * (1 + sum(place["what"] == "activation" for place in self.truth)):
            self.note(activations[len(activations) // 2], "activation")
        for address in reversed(activations):
            stack = (("backward", "/home/user/train/loop.py", 52), loop)
            gradient = self.allocate(self.live[address][0] // 4, stack)
            self.release(address, stack)
            self.release(gradient, stack)
        self.marks.append((f"iter {step}", "END", self.clock))

    def whole(self):
        loop = ("main", "/home/user/train/loop.py", 12)
        for layer in range(LAYERS):
            for name in ["weight", "bias"] + (HOSTILE if layer == 0 else []):
                address = self.allocate(16 * MIB + layer if name != "bias" else 4096,
                                        ((name, f"/home/user/train/{name}.py", 7 + layer),
                                         ("to", "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", 1100), loop))
                if name == HOSTILE[0]:
                    self.note(address, "hostile")
        parts = [0.4, 0.5, 0.6] # begins, is noted, ends
        step = 0
        while self.events < self.wanted:
            if parts and self.events > self.wanted * parts[0]:
                del parts[0]
                if len(parts) == 2:
                    landmark = self.allocate(3 << 30, (("landmark", "/home/user/train/landmark.py", 77), loop))
                elif len(parts) == 1:
                    self.note(landmark, "landmark")
                else:
                    self.release(landmark, (("forget", "/home/user/train/landmark.py", 99), loop))
                    segment = max(self.segments, key=lambda known: known[1])
                    self.hole = {"address": segment[0] + segment[1] // 2, "low": hex(segment[0]), "size": segment[1],
                                 "event": self.events + self.wanted // 50}
            self.step(step)
            step += 1

    def final_segments(self):
        writer = self.writer
        segments = []
        blocks = sorted((address, rounded, size, stack) for address, (size, rounded, _, stack, _) in self.live.items())
        for low, size in self.segments:
            made = []
            at = low
            live = 0
            for address, rounded, requested, stack in blocks:
                if not low <= address < low + size:
                    continue
                if address > at:
                    made.append((at, address - at, 0, "inactive", ()))
                made.append((address, rounded, requested, "active_allocated", stack))
                at, live = address + rounded, live + rounded
            if at < low + size:
                made.append((at, low + size - at, 0, "inactive", ()))
            segments.append(writer.map((
                ("device", number(0)), ("address", number(low)), ("total_size", number(size)), ("allocated_size", number(live)),
                ("active_size", number(live)), ("requested_size", number(live)), ("stream", number(0)),
                ("segment_type", writer.text("large")), ("segment_pool_id", b"K\0K\0\x86"), ("is_expandable", b"\x89"),
                ("frames", b"]"),
                ("blocks", b"](" + b"".join(writer.map((
                    ("address", number(address)), ("size", number(length)), ("requested_size", number(requested)),
                    ("state", writer.text(state)), ("frames", writer.stack(stack))))
                    for address, length, requested, state, stack in made) + b"e"))))
        return segments


def main():
    path = sys.argv[1]
    events = int(sys.argv[2])
    with open(path, "wb") as file:
        writer = Writer(file)
        run = Run(writer, events)
        file.write(b"\x80\x02" + b"".join(writer.text(key) + b"0" for key in KEYS) + b"}(" + writer.text("device_traces") + b"](](")
        run.whole()
        file.write(b"".join(run.out) + b"ee")
        file.write(writer.text("segments") + b"](" + b"".join(run.final_segments()) + b"e")
        file.write(writer.text("allocator_settings") + writer.map((("PYTORCH_CUDA_ALLOC_CONF", writer.text("")),
                                                                    ("max_split_size", number(-1)),
                                                                    ("expandable_segments", b"\x89"))))
        file.write(writer.text("external_annotations") + b"](" + b"".join(
            writer.map((("name", writer.text(name)), ("stage", writer.text(stage)), ("device", number(0)),
                        ("time_us", number(time)))) for name, stage, time in run.marks) + b"eu.")
    print(json.dumps({"events": run.events, "places": run.truth, "hole": run.hole}))


main()
