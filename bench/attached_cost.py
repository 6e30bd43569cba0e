#!/usr/bin/env python3
"""Measures what being attached costs a step of a PyTorch program, in nanoseconds: in one process that is attached and
detached in turn.

    bench/attached_cost.py [--steps N] [--blocks N] [--layers N] [--devices N]

    eval "$(build/src/neap sim env)"; NEAP_SIM=8xh100-80gb bench/attached_cost.py     without a GPU, eight of them visible

A step is forward, backward and update of a small model, without a synchronisation. --devices: on how many devices the
process has memory (1). Prints the median step, the mean step and the mean of the processor time of all threads, each
as the median over all blocks and as the median of the differences within a pair of blocks, so that other load on the
machine counts for little: least in processor time. The means include the readings that are made every 50 ms and the
figures that a thread publishes four times a second. At last the parts alone: the hook, which nearly every step pays,
and the work that is done now and then. Target: 10 us a step.

--trace N measures what recording each allocation costs instead, in N rounds, in steps of some 2500 allocations and of
some 100. In one process, on the same data, turns of a few steps follow each other: without neap; attached without
recording allocations, where neap reads each of the first 256 steps and few later ones; and recording them. A turn's
figure is the lower quartile of its steps' processor time, of all threads. Prints the median of the differences from
the turn without neap in the same round, with its 95 % interval. PyTorch keeps the tracker that it was given once, and
makes an entry for it three times a pair of allocation and free, even if nothing is recorded: this part is not in
these figures.

--shares SECONDS measures the same on a busy machine. `perf record` samples the running function for SECONDS, in a
process without neap and in one that records. The functions that recording calls (neap's libraries, PyTorch's
record_trace with its entries and their strings) get more samples in the second; the figure is how many more, for
equal numbers of samples elsewhere. Other load slows both processes alike. It sees neither the kernel nor the cache
lines that recording takes from the program. Figures have their 95 % interval, by the number of samples. Target: 2 %
of a step of 2500 allocations, 100 us of a step of 100.
"""

import argparse
import gc
import math
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from neap import _compiled, _events, _watch, hooks
from neap.agent import agent
from torch import nn


def switch(attached):
    """As `neap run` attaches a process, or not at all."""
    if not attached:
        agent.detach()
        hooks._State.steps_hook.remove()
    elif hooks._State.pid == 0:
        hooks.torch_imported(torch)
    else:
        agent.attach()
        hooks._hook_steps()


def trainee(allocations):
    """Makes a step with about this many allocations."""
    if allocations == 100:
        model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8))).cuda()
        x = torch.randn(1024, 512, device="cuda")
    else:
        model = nn.Sequential(*(nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True) for _ in range(26))).cuda()
        x = torch.randn(8, 512, 768, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def turn(step, steps):
    """The lower quartile of the steps' processor time, of all threads."""
    found = []
    for _ in range(steps):
        spent = time.process_time_ns()
        step()
        found.append(time.process_time_ns() - spent)
    return sorted(found)[steps // 4]


def off():
    _watch.end()
    hooks._State.steps_hook.remove()


def attached():
    hooks._hook_steps()
    _events.sampled.steps = _events._FIRST


def first_steps():
    hooks._hook_steps()
    _events.sampled.steps = 0
    _events.sampled.until = 0.0


def traced():
    hooks._hook_steps()
    for path in pathlib.Path(os.environ["NEAP_RUN_DIR"]).glob("stacks.*"):
        path.unlink()  # a single file would fill up after some turns
    _watch._start(torch)


KINDS = {"plain": lambda: None, "attached, first 256": first_steps, "attached": attached, "traced": traced}


def interval(differences):
    """The median of the differences, and the bounds of its 95 % interval, by rank."""
    ordered = sorted(differences)
    aside = max(0, int(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return statistics.median(ordered), ordered[aside], ordered[-1 - aside]


def begin_tracing():
    os.environ.update(NEAP_ATTACH="1", NEAP_RUN_DIR=tempfile.mkdtemp(prefix="neap-cost-"), NEAP_TRACE="1")
    _compiled.compiled(torch, _watch.UNIT)
    hooks.torch_imported(torch)


def measure_trace(rounds):
    torch.set_num_threads(1)
    begin_tracing()
    torch.zeros(1, device="cuda")
    off()
    for allocations, steps in ((2500, 6), (100, 60)):
        measure_steps(allocations, steps, rounds)
        torch.cuda.empty_cache()


def measure_steps(allocations, steps, rounds):
    step = trainee(allocations)
    for _ in range(5):
        step()
    made = torch.cuda.memory_stats()["allocation.all.allocated"]
    step()
    made = torch.cuda.memory_stats()["allocation.all.allocated"] - made
    gc.collect()
    gc.disable()
    found = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in random.sample(list(KINDS), len(KINDS)):
            KINDS[kind]()
            turn(step, max(2, steps // 8))  # new stacks are written, and caches filled
            found[kind].append(turn(step, steps))
            if kind != "plain":
                off()
    gc.enable()
    plain = statistics.median(found["plain"])
    print(f"a step of {made} allocations, {rounds} rounds: {plain / 1000:.0f} us")
    for kind in list(KINDS)[1:]:
        middle, low, high = interval([a - b for a, b in zip(found[kind], found["plain"])])
        print(f"  {kind:19} {middle / 1000:7.1f} us more ({low / 1000:.1f} to {high / 1000:.1f}): {100 * middle / plain:.2f} %", flush=True)


NEAPS = ("neap_watch.so", "libneap.so")
# PyTorch's entries for a tracker, and their strings; of libc10_cuda.so.
ENTRIES = re.compile(r"\[\.\] (c10::cuda::CUDACachingAllocator::.*::record_trace\b|(void )?std::(__cxx11::)?basic_string<)")


def sampled_child(allocations, seconds, kind, control):
    """Steps, with samples of them once they are warm. Prints the processor's nanoseconds a step."""
    torch.set_num_threads(1)
    if kind == "traced":
        begin_tracing()
    step = trainee(allocations)
    for _ in range(40):
        step()
    gc.collect()
    gc.disable()
    with open(control, "w") as fifo:
        fifo.write("enable\n")
    time.sleep(0.3)
    steps = 0
    spent = time.process_time_ns()
    until = time.process_time() + seconds
    while time.process_time() < until:
        step()
        steps += 1
    print((time.process_time_ns() - spent) / steps)


def samples(allocations, seconds, kind):
    """The number of samples: all, in functions that recording calls, and in neap's libraries; and the nanoseconds a step."""
    folder = tempfile.mkdtemp(prefix="neap-cost-")
    control = os.path.join(folder, "control")
    data = os.path.join(folder, "perf.data")
    os.mkfifo(control)
    recorder = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "4000", "-D", "-1", f"--control=fifo:{control}", "-o", data]
    child = [sys.executable, "-W", "ignore", __file__, "--sampled", str(allocations), kind, control, "--shares", str(seconds)]
    done = subprocess.run([*recorder, *child], capture_output=True, text=True, check=True)
    report = ["perf", "report", "-i", data, "--stdio", "-q", "-F", "sample,dso,sym", "-t", ";"]
    lines = subprocess.run(report, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [(int(parts[0]), parts[1].strip(), parts[2]) for parts in (line.split(";") for line in lines) if len(parts) == 3]
    shutil.rmtree(folder)
    every = sum(n for n, _, _ in found)
    neaps = sum(n for n, dso, _ in found if dso.startswith(NEAPS))
    entries = sum(n for n, dso, symbol in found if dso == "libc10_cuda.so" and ENTRIES.match(symbol))
    return every, neaps + entries, neaps, float(done.stdout.split()[-1])


def measure_shares(seconds):
    for allocations in (2500, 100):
        every, touched, _, plain_ns = samples(allocations, seconds, "plain")
        all_traced, touched_traced, neaps, _ = samples(allocations, seconds, "traced")
        rest = every - touched
        rest_traced = all_traced - touched_traced
        more = (touched_traced / rest_traced - touched / rest) * rest / every
        error = 1.96 * math.sqrt(touched_traced * all_traced / rest_traced**3 + touched * every / rest**3) * rest / every
        print(f"steps of {allocations} allocations, {plain_ns / 1000:.0f} us, {every} and {all_traced} samples")
        print(f"  recording takes {100 * more:.2f} % +- {100 * error:.2f}, {more * plain_ns / 1000:.1f} us;", end=" ")
        print(f"the part in neap's libraries is {100 * neaps / all_traced:.2f} %", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 300), ("blocks", 20), ("layers", 4), ("devices", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--trace", type=int, metavar="N")
    parser.add_argument("--shares", type=float, metavar="SECONDS")
    parser.add_argument("--sampled", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sampled:
        sampled_child(int(options.sampled[0]), options.shares, *options.sampled[1:])
        return
    if options.shares:
        measure_shares(options.shares)
        return
    if options.trace:
        measure_trace(options.trace)
        return

    torch.set_num_threads(1)
    held = [torch.zeros(1 << 20, device=f"cuda:{i}") for i in range(options.devices)]
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(options.layers))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 64, device="cuda")

    def step():
        began = time.perf_counter_ns()
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter_ns() - began

    def block(attached):
        switch(attached)
        for _ in range(20):
            step()
        spent = time.process_time_ns()
        times = [step() for _ in range(options.steps)]
        spent = time.process_time_ns() - spent
        return statistics.median(times), statistics.fmean(times), spent / options.steps

    def cost(function, times):
        """The median nanoseconds of this thread's processor time."""
        found = []
        for _ in range(times):
            began = time.thread_time_ns()
            function()
            found.append(time.thread_time_ns() - began)
        return statistics.median(found)

    def count_100():
        for _ in range(100):
            hooks._stepped(optimizer)

    pairs = [(block(True), block(False)) for _ in range(options.blocks)]
    print(f"{torch.cuda.device_count()} visible, {len(held)} in use, {options.blocks} pairs of {options.steps} steps")
    for at, name in enumerate(("median", "mean", "processor")):
        on, off = ([pair[which][at] for pair in pairs] for which in (0, 1))
        apart = statistics.median(a - b for a, b in zip(on, off))
        print(f"{name:9}  attached {statistics.median(on):9.0f} ns, not attached {statistics.median(off):9.0f} ns, apart {apart:7.0f} ns")
    switch(True)
    step()
    hook = cost(count_100, 1000) / 100
    reading = cost(_events._read_figures, 300)
    publishing = cost(agent.publish, 100)
    print(f"each step: the hook {hook:.0f} ns; every 50 ms: figures read, {reading:.0f} ns; every 250 ms: published, {publishing:.0f} ns")
    print(f"together {100 * (reading / 50e6 + publishing / 250e6):.2f} % of the time, beside the hook")


main()
