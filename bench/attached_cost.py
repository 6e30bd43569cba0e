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
"""

import argparse
import statistics
import time

import torch
from neap import _events, hooks
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 300), ("blocks", 20), ("layers", 4), ("devices", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()

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
