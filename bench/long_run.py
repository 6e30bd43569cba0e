#!/usr/bin/env python3
"""A run as long as two hours of training, under `neap run`: the size of its recording, and the host memory that
recording takes.

    NEAP_DEVICE=sim bench/long_run.py NEAP [--steps N] [--blocks N] [--every SECONDS] [--folder RUN]

Makes N steps (72 000: two hours of ten a second) without a pause. Each allocates N blocks (400) through PyTorch's own
allocator, whose sizes vary with the length of a sequence; every tenth leaves a block for ever, and after every 1000
an evaluation follows. Every few seconds prints the steps done, the disk space of RUN/record.PID with RUN/kept.PID and
of RUN/stacks.PID, the resident memory of recording in the program (the mapped recording, and the recorder with its
table of stacks) and the most that `neap run` has taken; at last which steps are whole, and what `neap analyze RUN`
prints. The Python must have PyTorch, in the environment of `neap sim env`; NEAP_SIM=mem=80GiB,backing=none spares the
memory of a simulated device.

Targets: 64 MiB of file, 32 MiB of host memory, in the program and in `neap run` each."""

import argparse
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import textwrap
import time

FILE_BYTES = 64 << 20
MEMORY_BYTES = 32 << 20
STEP = 25
ALLOC = 1


def train(steps, blocks, done):
    import torch

    parameter = torch.nn.Parameter(torch.zeros(1 << 18, device="cuda"))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    choose = random.Random(1)
    sizes = [choose.choice((3000, 70_000, 300_000, 1_500_000, 6_000_000)) for _ in range(64)]
    kept = []

    def forward(length, count):
        held = [torch.empty(sizes[i & 63] * length >> 9, dtype=torch.uint8, device="cuda") for i in range(count)]
        while held:
            held.pop()

    for step in range(1, steps + 1):
        length = min(int(choose.lognormvariate(5.5, 0.35)), 1024)
        for _ in range(4):  # like activations of four parts: this bounds the live bytes
            forward(length, blocks // 4)
        optimizer.step()
        if step % 10 == 0:
            kept.append(torch.empty(100, device="cuda"))
        if step % 1000 == 0:
            forward(700, blocks // 2)
        if step % 50 == 0:
            done.write_text(str(step))


def zeroed(path):
    """How many bytes of a shared object are zeroed data: its segments are longer in memory than in the file by this
    much."""
    data = path.read_bytes()
    (at,) = struct.unpack_from("=Q", data, 32)
    size, count = struct.unpack_from("=2H", data, 54)
    headers = [struct.unpack_from("=2I6Q", data, at + i * size) for i in range(count)]
    return sum(memory - file for kind, _, _, _, _, file, memory, _ in headers if kind == 1)


def resident(pid):
    """Resident bytes of the mapped recording and of the recorder. All of the recorder's table counts, resident or not."""
    total = 0
    counted = False
    objects = set()
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        mapping = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)", line)
        if mapping:
            counted = mapping[1].endswith((f"/record.{pid}", "/neap_watch.so"))
            if mapping[1].endswith("/neap_watch.so"):
                objects.add(mapping[1])
        elif counted and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total + sum(zeroed(pathlib.Path(path)) for path in objects)


def peak_of(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) << 10


def taken(path):
    return path.stat().st_blocks * 512


def steps_of(path):
    """The steps of a recording that have a mark, in order, each with the allocations since the previous mark."""
    data = path.read_bytes()
    capacities = struct.unpack_from("=2Q", data, 40)
    events = []
    for at in range(16384, 16384 + sum(capacities) * 64, 64):
        time_ns, sequence, kind, _, *payload = struct.unpack_from("=QIHH6Q", data, at)
        if kind in (STEP, ALLOC):
            events.append((time_ns, kind, sequence, payload))
    found = []
    allocations = 0
    for time_ns, kind, _, payload in sorted(events):
        if kind == ALLOC:
            allocations += 1
        else:
            found.append((time_ns, payload[3], payload[2] >> 32, allocations))
            allocations = 0
    return found


def watch(options, folder, done):
    command = [options.neap, "run", "--quiet", "--folder", str(folder), "--", sys.executable, __file__, options.neap, "--train", str(done)]
    command += ["--steps", str(options.steps), "--blocks", str(options.blocks)]
    run = subprocess.Popen(command)
    began = time.monotonic()
    rows = []
    print("seconds    steps  record+kept  stacks  in the program  neap run, peak   MiB")
    while run.poll() is None:
        time.sleep(options.every)
        try:
            (stacks,) = folder.glob("stacks.*")
            pid = stacks.suffix[1:]
            files = sum(taken(p) for p in folder.glob(f"*.{pid}") if p.name.startswith(("record.", "kept.")))
            program = resident(pid)
            row = (files, taken(stacks), program, peak_of(run.pid))
        except (OSError, ValueError, TypeError):  # the run has not begun, or has just ended
            continue
        rows.append(row)
        seconds = time.monotonic() - began
        print(f"{seconds:7.0f} {int(done.read_text() or 0):8} " + " ".join(f"{n / (1 << 20):12.1f}" for n in row), flush=True)
    return run.returncode, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("neap")
    for name, default in (("steps", 72000), ("blocks", 400), ("every", 30)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--train", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.steps, options.blocks, options.train)
        return
    folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="neap-long-")) / "run"
    done = pathlib.Path(f"{folder}.steps")
    done.write_text("0")
    code, rows = watch(options, folder, done)
    (recording,) = folder.glob("record.*")
    steps = steps_of(recording)
    whole = [step for step in steps if step[3] >= options.blocks * step[2]]
    began = whole[0][0]
    times = [f"{number} ({(at - began) / 60e9:.1f})" for at, number, _, _ in whole]
    size = recording.stat().st_size / (1 << 20)
    print(f"exit {code}, {size:.1f} MiB: {len(steps)} marks of {steps[-1][1]} steps; {len(whole)} steps are whole (minutes):")
    print(textwrap.fill(", ".join(times), 120))
    for name, at, target in (("file", 0, FILE_BYTES), ("memory in the program", 2, MEMORY_BYTES), ("memory of neap run", 3, MEMORY_BYTES)):
        most = max(row[at] for row in rows)
        print(f"{name}: at most {most / (1 << 20):.1f} MiB, target {target >> 20}: {'met' if most <= target else 'missed'}")
    sys.stdout.flush()
    subprocess.run([options.neap, "analyze", str(folder)], check=False)


main()
