#!/usr/bin/env python3
"""Does `neap analyze` find a leak in a trace, and name the line that leaks? Generates training runs whose truth is
known, writes them as PyTorch's snapshots (with stacks) and as text traces (without), and analyses them.

    bench/leak_sites.py [BUILD FOLDER [RUNS [SEED]]]

RUNS (100) leaking and as many sound runs, of 60 steps each. Every run mixes memory that grows or swings without being
a leak: optimizer state made in the first step, workspaces that come during a warm-up, a cache that fills, batches of
variable length, the next batch read ahead, gradient accumulation, an evaluation every few steps with its outputs kept
during it. A leak is one line that keeps what it allocates: in each step, each micro-batch or each evaluation, in one
or several pieces, 256 KiB to 4 MiB per step; the same line also allocates blocks that are freed. Exits 1 if fewer
than 99 % of the leaks are found, 99 % of them by the right line (in a text trace: the right class of sizes), or with
more than 1 % false alarms.
"""

import json
import math
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))
build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
runs = int(sys.argv[2]) if len(sys.argv) > 2 else 100
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
STEPS = 60
KIB = 2**10
MIB = 2**20
LEAK_LINE = 77


class Recorder:
    """The events of a process, as its program makes them."""

    def __init__(self):
        self.events = []
        self.marks = []
        self.clock = 10**15
        self.address = 1 << 40
        self.free_addresses = {}
        self.blocks = 0
        self.frames = {}

    def stack(self, line, name):
        key = (line, name)
        if key not in self.frames:
            inner = {"filename": "/home/user/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"}
            own = {"filename": f"/home/user/train/{'loop' if line == LEAK_LINE else 'model'}.py", "line": line, "name": name}
            self.frames[key] = [inner, own, {"filename": "/home/user/train/main.py", "line": 3, "name": "main"}]
        return self.frames[key]

    def add(self, action, address, size, frames):
        self.clock += 10
        self.events.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.clock, "frames": frames})

    def alloc(self, line, name, size):
        size = max(int(size), 1)
        rounded = -(-size // 512) * 512
        if self.free_addresses.get(rounded):
            address = self.free_addresses[rounded].pop()
        else:
            address, self.address = self.address, self.address + rounded
        self.add("alloc", address, size, self.stack(line, name))
        return address, size, line, name

    def free(self, block):
        address, size, line, name = block
        for action in ("free_requested", "free_completed"):
            self.add(action, address, size, self.stack(line, name))
        self.free_addresses.setdefault(-(-size // 512) * 512, []).append(address)

    def step(self, number, begin):
        self.clock += 10
        self.marks.append({"stage": "START" if begin else "END", "name": f"iter {number}", "device": 0, "time_us": self.clock,
                           "event": len(self.events)})

    def snapshot(self):
        marks = [{key: value for key, value in mark.items() if key != "event"} for mark in self.marks]
        return {"segments": [], "device_traces": [self.events], "external_annotations": marks,
                "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""}}

    def text(self):
        ends = {}
        for mark in self.marks:
            if mark["stage"] == "END":
                ends.setdefault(mark["event"], []).append("s\n")
        lines = []
        ids = {}
        number = 0
        for index, event in enumerate(self.events):
            lines += ends.pop(index, [])
            if event["action"] == "alloc":
                number += 1
                ids[event["addr"]] = number
                lines.append(f"a {number} {event['size']} 0\n")
            elif event["action"] == "free_requested":
                lines.append(f"f {ids.pop(event['addr'])}\n")
        return "".join(lines + [line for rest in ends.values() for line in rest])


def train(random_, leaks):
    """One run. Returns its recorder and the size of one leaked piece."""
    pick = random_.choice
    uniform = random_.uniform
    out = Recorder()
    layers = pick((2, 4, 6))
    width = pick((1, 4, 16)) * MIB
    varies = uniform(0, 0.8)
    accumulate = pick((1, 1, 2, 4))
    evaluate = pick((0, 5, 10, 20))
    warm_up = pick((0, 3, 10))
    cache = pick((0, 40, 200)) * MIB
    ahead = pick((8 * KIB, 256 * KIB, 6 * MIB))
    fill = uniform(2, 8)
    pieces = pick((1, 1, 3))
    per = pick(("step", "step", "micro-batch") + (("evaluation",) if 0 < evaluate <= 10 else ()))
    per_step = 2 ** uniform(18, 22)
    often = {"step": 1, "micro-batch": accumulate, "evaluation": 1 / max(evaluate, 1)}[per]
    piece = max(int(per_step / often / pieces), 512)
    cached = 0
    workspaces = []
    kept = []
    batch = None

    parameters = [out.alloc(10 + layer, "__init__", width) for layer in range(layers)]
    state = []

    def leak():
        passing = out.alloc(LEAK_LINE, "collect", piece)
        for _ in range(pieces if leaks else 0):
            kept.append(out.alloc(LEAK_LINE, "collect", piece))
        out.free(passing)

    def forward(scale):
        live = []
        for layer in range(layers):
            live.append(out.alloc(30 + layer, "forward", width * scale))
            live.append(out.alloc(50 + layer, "attention", 4 * width * scale * scale))
            out.free(out.alloc(60, "softmax", width * scale))
        return live

    for step in range(STEPS):
        out.step(step, True)
        if step < warm_up:
            workspaces.append(out.alloc(20, "workspace", uniform(1, 16) * MIB))
        wanted = cache * (1 - math.exp(-step / fill))
        if wanted - cached > MIB:
            kept.append(out.alloc(21, "lookup", wanted - cached))
            cached = wanted
        gradients = []
        for micro in range(accumulate):
            scale = 1 - uniform(0, varies)
            if batch:
                out.free(batch)
            batch = out.alloc(22, "next_batch", ahead * scale)
            live = forward(scale)
            if per in ("step", "micro-batch") and (micro == 0 or per == "micro-batch"):
                leak()
            for block in reversed(live):
                if micro == 0 and len(gradients) < layers:
                    gradients.append(out.alloc(70, "backward", width))
                out.free(block)
        if not state:
            state = [out.alloc(80, "optimizer", 2 * width) for _ in parameters]
        for block in gradients:
            out.free(block)
        if evaluate and step % evaluate == evaluate - 1:
            outputs = []
            for _ in range(3):
                for block in forward(1):
                    out.free(block)
                outputs.append(out.alloc(90, "outputs", width / 2))
            if per == "evaluation":
                leak()
            for block in outputs:
                out.free(block)
        out.step(step, False)
    return out, piece


def judge(path):
    """The verdict, and the names of the growing holders, the steepest first."""
    said = subprocess.run([build / "src" / "neap", "analyze", path, "--json"], check=True, stdout=subprocess.PIPE).stdout
    trends = json.loads(said)["steps_trends"]
    return trends["leak"]["verdict"] == "leak", [holder["text"] for holder in trends["growing"]]


def names(kind, piece):
    """The texts that the leak's name must contain."""
    if kind == "snapshot":
        return f"loop.py:{LEAK_LINE} collect"
    power = 2 ** int(math.log2(piece))
    size = power // MIB if power >= MIB else power // KIB
    text = f"{size:#.3g}".rstrip(".")
    return f"blocks of {text} {'MiB' if power >= MIB else 'KiB'} to "


def main():
    random_ = random.Random(seed)
    failed = False
    print(f"seed {seed}, {runs} leaking runs and {runs} without a leak, {STEPS} steps each\n")
    print(f"{'written as':12} {'leaks found':>12} {'named first':>12} {'named':>8} {'false alarms':>14} {'precision':>10}")
    found, first, named, false = ({"snapshot": 0, "text": 0} for _ in range(4))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2 * runs):
            leaks = number % 2 == 0
            out, piece = train(random_, leaks)
            for kind in found:
                path = pathlib.Path(folder) / kind
                path.write_bytes(pickle.dumps(out.snapshot(), protocol=4) if kind == "snapshot" else out.text().encode())
                leak, growing = judge(path)
                if not leaks:
                    false[kind] += leak
                    continue
                found[kind] += leak
                first[kind] += bool(growing) and names(kind, piece) in growing[0]
                named[kind] += any(names(kind, piece) in text for text in growing)
    for kind in found:
        percent = [100 * count / runs for count in (found[kind], first[kind], named[kind], false[kind])]
        precision = 100 * found[kind] / max(found[kind] + false[kind], 1)
        print("%-12s %10.1f %% %10.1f %% %6.1f %% %12.1f %% %8.1f %%" % (kind, *percent, precision))
        failed |= percent[0] < 99 or percent[1] < 99 or percent[3] > 1
    sys.exit(failed)


if __name__ == "__main__":
    main()
