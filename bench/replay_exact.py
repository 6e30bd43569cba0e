#!/usr/bin/env python3
"""Is the replay of neap's own allocator exact? charlm trains in many shapes, each also on a device where memory runs
out and the session goes down the ladder; some clean up every step, or leak. bench/replay_exact.c replays each
recording's requests, and compares every block and segment with what the allocator did on the simulated device.

    bench/replay_exact.py [BUILD FOLDER [RUNS [SEED]]]

Prints a line per run that differs, then sums. Exits 1 if one differs.
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))
build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
runs = int(sys.argv[2]) if len(sys.argv) > 2 else 60
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
neap, charlm, exact = (build / path for path in ("src/neap", "examples/charlm/charlm", "bench/replay_exact"))


def options_of(random_):
    """A run's shape and settings."""
    pick = random_.choice
    options = [f"--batch={pick((16, 32, 64))}", f"--layers={pick((1, 2, 3))}", f"--width={pick((32, 64))}",
               f"--context={pick((16, 32, 64))}", f"--steps={pick((2, 4, 6))}", f"--seed={random_.randrange(1000)}"]
    for name in ("efficient-attention", "mixed-precision", "checkpointing"):
        options.append(f"--{name}={pick(('on', 'allow', 'off'))}")
    return options + pick(([], ["--cleanup=step"], ["--cleanup-every-ticks=1"], ["--leak-per-step=300KiB"], ["--micro-batch=4"]))


def run(where, options, mebibytes):
    """Trains and replays. Returns the counts, then both peaks. A run that runs out of memory counts like any
    other."""
    os.environ["NEAP_SIM"] = f"mem={mebibytes}MiB,world=exact-{os.getpid()}-{where.name}"
    subprocess.run([neap, "run", "--quiet", "--folder", where, "--", charlm, *options],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    (record,) = where.glob("record.*")
    said = subprocess.run([exact, record], stdout=subprocess.PIPE, check=True).stdout
    return list(map(int, said.split()))


def main():
    random_ = random.Random(seed)
    sums = [0] * 6
    different = 0
    full = 0
    peak = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(NEAP_DEVICE="sim", XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder)
        for number in range(runs):
            if number % 2 == 0:  # a device with enough memory, and one with less than that run took
                options = options_of(random_)
                mebibytes = 1024
            else:
                mebibytes = max(16, int(peak * random_.uniform(0.35, 0.9) / 2**20) + 4)
            *counts, peak, peak_again = run(pathlib.Path(folder) / str(number), options, mebibytes)
            sums = [a + b for a, b in zip(sums, counts)]
            full += counts[4] > 0
            if counts[0::2] != counts[1::2] or peak != peak_again:
                different += 1
                print(f"{mebibytes} MiB, charlm {' '.join(options)}: blocks {counts[1]} of {counts[0]}, segment events "
                      f"{counts[3]} of {counts[2]}, failures {counts[5]} of {counts[4]}, reserved {peak} and {peak_again}")
    print(f"seed {seed}: {runs - different} of {runs} runs replayed exactly, {full} of them ran out of memory on their way")
    print(f"blocks {sums[1]} of {sums[0]}, segment events {sums[3]} of {sums[2]}, failures {sums[5]} of {sums[4]}")
    sys.exit(different > 0)


main()
