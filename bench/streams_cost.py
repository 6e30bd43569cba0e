"""The cost of looking for races between streams (`neap run --streams`): training steps on the simulator with and
without it.

    eval "$(neap sim env)"; NEAP_SIM=h100-80gb python bench/streams_cost.py [--rounds N] [--steps N]

Runs a process with and one without, in turns. Prints for each program the median of processor time (all threads), in milliseconds
a step, and their ratio.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import values_cost


def prefetcher():
    """Copies batches on a stream of their own while the previous step computes."""
    side = torch.cuda.Stream()
    hosts = [torch.randn(64, 256, pin_memory=True) for _ in range(2)]
    weights = [torch.randn(256, 256, device="cuda") for _ in range(4)]

    def load(host):
        with torch.cuda.stream(side):
            return host.to("cuda", non_blocking=True)

    def step():
        ahead = load(hosts[0])
        for at in range(20):
            torch.cuda.current_stream().wait_stream(side)
            batch = ahead
            batch.record_stream(torch.cuda.current_stream())
            ahead = load(hosts[at % 2])
            for weight in weights:
                batch = (batch @ weight).relu()
        torch.cuda.synchronize()

    return step


PROGRAMS = {
    "transformer": lambda: values_cost.trainer(values_cost.transformer, "cuda"),
    "convolutions": lambda: values_cost.trainer(values_cost.convolutional, "cuda"),
    "prefetcher": prefetcher,
    "small": lambda: values_cost.trainer(values_cost.small, "cuda"),
}


def measure(steps):
    taken = {}
    for name, make in PROGRAMS.items():
        step = make()
        for _ in range(3):
            step()
        begin = time.process_time()
        for _ in range(steps):
            step()
        taken[name] = 1e3 * (time.process_time() - begin) / steps
    print(json.dumps(taken))


def measured(steps, *options):
    """Measures in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="neap-streams-") as folder:
        words = [os.environ.get("NEAP", "neap"), "run", "--quiet", "--no-history", *options, "--folder", pathlib.Path(folder) / "run"]
        words += ["--", sys.executable, __file__, "--measure", "--steps", str(steps)]
        done = subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.steps)
        return
    print(f"PyTorch {torch.__version__}, {arguments.rounds} rounds of {arguments.steps} steps, milliseconds of a processor a step")
    print(f"{'program':14} {'without':>9} {'--streams':>9} {'ratio':>6}")
    rounds = [(measured(arguments.steps), measured(arguments.steps, "--streams")) for _ in range(arguments.rounds)]
    for name in PROGRAMS:
        without, looked = (statistics.median(one[side][name] for one in rounds) for side in (0, 1))
        print(f"{name:14} {without:9.2f} {looked:9.2f} {looked / without:6.2f}")


if __name__ == "__main__":
    main()
