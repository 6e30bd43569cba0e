#!/usr/bin/env python3
"""How long `neap estimate` takes, compared with the program's own time for the same updates on the simulator; for one
GPU and for seven.

    bench/estimate_time.py [--rounds N] [--updates N] NEAP SCRIPT [ARGUMENT...]

In each round three commands follow each other: `neap run --max-steps`, `neap estimate` for one GPU, and for its list
of seven. Prints medians of elapsed seconds and of processor seconds, which count all processes of a command: on a
busy machine only these can be compared. The first round is not counted: it reads the files of PyTorch. The script
runs with the Python that runs this.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

GPU = "h100-80gb"


def measure(argv: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """The elapsed seconds, and the processor's."""
    began = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(argv)}: exit status {done.returncode}\n{done.stderr}")
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", default="3")
    parser.add_argument("neap")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    program = ["--", sys.executable, *options.script]
    estimate = [options.neap, "estimate", "--steps", options.updates]
    simulated = {**os.environ, "NEAP_DEVICE": "sim", "NEAP_SIM": GPU}
    commands = {
        "the program": ([options.neap, "run", "--no-history", "--max-steps", options.updates, *program], simulated),
        "estimate, 1 GPU": ([*estimate, "--gpu", GPU, *program], dict(os.environ)),
        "estimate, 7 GPUs": ([*estimate, *program], dict(os.environ)),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(options.rounds + 1):
        for name, (argv, environment) in commands.items():
            took = measure(argv, environment)
            if turn:
                found[name].append(took)
    print(f"{' '.join(options.script)}, {options.updates} updates, {options.rounds} rounds on {os.cpu_count()} processors")
    middle = {name: [statistics.median(column) for column in zip(*took, strict=True)] for name, took in found.items()}
    for name, (passed, processor) in middle.items():
        shares = [value / base for value, base in zip((passed, processor), middle["the program"], strict=True)]
        print(f"{name:<16} {passed:6.1f} s {shares[0]:5.2f}    of a processor {processor:6.1f} s {shares[1]:5.2f}")


if __name__ == "__main__":
    main()
