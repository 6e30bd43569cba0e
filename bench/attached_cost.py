#!/usr/bin/env python3
"""What being attached costs a step of a PyTorch program: nanoseconds, measured in one process that is attached and not in turn.

    bench/attached_cost.py [--steps N] [--blocks N] [--layers N] [--devices N]

    eval "$(build/src/neap sim env)"; NEAP_SIM=8xh100-80gb bench/attached_cost.py     without a GPU, eight of them visible

A step is forward, backward and update of a small model, without a synchronisation. --devices: on how many devices the process
has memory (1). Printed are the median step, the mean step and the mean of the processor time of all threads, each as the median
over all blocks, and as the median of the differences within a pair of blocks, so that what else the machine does counts for
little: least in processor time. The means include the readings that are made every 50 ms and the figures that a thread publishes
four times a second. At last the parts alone: the hook, which nearly every step pays, and what
is done now and then. Target: 10 us a step.

--trace measures what it costs to record each allocation instead: steps of some 2500 allocations and of some 100, as nothing of
neap's is in the process, as it is attached without (NEAP_TRACE=0), and with it, each in a process of its own, in turn. A figure is the
processor time of all threads for the fastest block of steps in a process: the least that other processes have disturbed. What is
printed is the fastest process, and the median of the differences within a round. Target: 2 % of 2500, 100 us of 100.
"""

import argparse
import gc
import json
import os
import statistics
import tempfile
import time

import torch
from neap import _events, _watch, hooks
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


KINDS = {"plain": None, "attached": "0", "traced": "1"}  # NEAP_TRACE


def trainee(allocations):
    """A step of about so many allocations."""
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


def measure_child(kind, allocations, blocks):
    """Nanoseconds a step, and its allocations."""
    if KINDS[kind] is not None:
        os.environ.update(NEAP_ATTACH="1", NEAP_RUN_DIR=tempfile.mkdtemp(prefix="neap-cost-"), NEAP_TRACE=KINDS[kind])
        hooks.torch_imported(torch)
    torch.set_num_threads(1)
    step = trainee(allocations)
    for _ in range(5):
        step()
    if _watch._State.running != (kind == "traced"):
        raise SystemExit("the recorder of allocations is not compiled yet: once more")
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    step()
    made = torch.cuda.memory_stats()["allocation.all.allocated"] - before
    gc.collect()
    gc.disable()
    found = []
    for _ in range(blocks):
        spent = time.process_time_ns()
        for _ in range(4):
            step()
        found.append((time.process_time_ns() - spent) / 4)
    return min(found), made


def in_child(*arguments):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, json.dumps(measure_child(*arguments)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    text = os.read(reading, 4096)
    os.close(reading)
    os.waitpid(pid, 0)
    return json.loads(text)


def measure_trace(rounds):
    for allocations, blocks in ((2500, 12), (100, 200)):
        found = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind in KINDS:
                ns, made = in_child(kind, allocations, blocks)
                found[kind].append(ns)
        print(f"a step of {made} allocations, {rounds} rounds: plain {min(found['plain']) / 1000:.0f} us")
        for kind in ("attached", "traced"):
            apart = statistics.median(a - b for a, b in zip(found[kind], found["plain"]))
            least = min(found[kind]) - min(found["plain"])
            print(
                f"  {kind:9} {least / 1000:7.1f} us more ({100 * least / min(found['plain']):.2f} %), "
                f"median of rounds {apart / 1000:.1f} us ({100 * apart / statistics.median(found['plain']):.2f} %)"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 300), ("blocks", 20), ("layers", 4), ("devices", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--trace", type=int, metavar="ROUNDS")
    options = parser.parse_args()
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
        """Nanoseconds of this thread's processor time, the median."""
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
