#!/usr/bin/env python3
"""How far `neap estimate` is from real GPUs: compares peaks that were recorded on them with those of the same program
on the simulator.

usage: estimate.py [--neap PATH] [--python PATH]... [--only TEXT] [--within PERCENT]

The recordings are of bench/estimate_transformer.py's model (24 layers of width 1024, 16 heads, SwiGLU of 4096, 10 000
tokens, batch 4, float32 parameters) on a GPU of sm_80 with PyTorch 2.11: four trainings and an inference. For one
training and the inference every peak is known, for the others only the allocated bytes. With --python PATH the
program runs with that interpreter's PyTorch: errors with another version than 2.11 come from PyTorch's own changes.
Exits 1 if an allocated peak is off by more than --within (default 0.05 %).
"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "estimate_transformer.py")
MIB = 1 << 20
# Arguments of the program; the recorded figures in bytes: requested, allocated, reserved (None: not known).
RECORDED = [
    (["--context", "128"], (7013335044, 7026606592, 7235174400)),
    (["--context", "256"], (None, round(8691.2 * MIB), None)),
    (["--context", "512", "--bf16"], (None, round(11858.5 * MIB), None)),
    (["--context", "1024", "--bf16"], (None, round(23092.2 * MIB), None)),
    (["--context", "512", "--bf16", "--inference"], (1949343744, 1951309824, 1981808640)),
]
KINDS = ("requested_peak", "allocated_peak", "reserved_peak")


def estimate(neap, python, arguments):
    command = [neap, "estimate", "--json", "--gpu", "a100-80gb", "--", python, PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def cell(recorded, found):
    if recorded is None:
        return f"{found / MIB:10.1f} {'':9}"
    return f"{found / MIB:10.1f} {100 * (found - recorded) / recorded:+7.3f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neap", default=os.environ.get("NEAP") or os.path.join(HERE, "..", "build", "src", "neap"))
    parser.add_argument("--python", action="append")
    parser.add_argument("--only", default="")
    parser.add_argument("--within", type=float, default=0.05)
    options = parser.parse_args()
    worst = 0.0
    print(f"{'program':35} {'PyTorch':13} {'requested MiB, error':>20} {'allocated MiB, error':>20} {'reserved MiB, error':>20}")
    for python in options.python or [sys.executable]:
        for arguments, recorded in RECORDED:
            name = " ".join(arguments)
            if options.only not in name:
                continue
            found = estimate(options.neap, python, arguments)
            cells = [cell(recorded[i], found[kind]) for i, kind in enumerate(KINDS)]
            print(f"{name:35} {found['torch']:13} {' '.join(cells)}", flush=True)
            worst = max(worst, abs(found["allocated_peak"] - recorded[1]) / recorded[1])
    print(f"allocated: {100 * worst:.3f} % at worst, {options.within:g} % are allowed")
    return 0 if 100 * worst <= options.within else 1


if __name__ == "__main__":
    sys.exit(main())
