#!/usr/bin/env python3
"""How close predicted peaks are: charlm is run plain in many shapes; what neap says each change would save is compared
with a run that has the change.

    bench/predictions.py [BUILD FOLDER]

Prints a line per shape and change, then for each change the median and the worst error, in percent of the measured peak,
and how often the measured peak lay within the stated interval.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
neap, charlm = build / "src" / "neap", build / "examples" / "charlm" / "charlm"
changes = {
    "memory-efficient attention": "--efficient-attention",
    "mixed precision": "--mixed-precision",
    "gradient checkpointing": "--checkpointing",
}
shapes = [
    (batch, layers, width, context)
    for batch, layers, width, context in (
        (8, 1, 32, 16), (8, 2, 64, 32), (16, 2, 64, 64), (16, 4, 32, 32), (32, 1, 64, 32), (32, 2, 32, 64),
        (32, 3, 64, 16), (64, 1, 32, 32), (64, 2, 64, 32), (64, 2, 32, 16), (8, 4, 64, 64), (4, 6, 32, 128),
    )
]  # fmt: skip
units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def run(folder, shape, *options):
    """The result of one run of two steps."""
    arguments = [f"--{name}={value}" for name, value in zip(("batch", "layers", "width", "context"), shape)]
    subprocess.run([neap, "run", "--quiet", "--folder", folder, "--", charlm, "--steps", "2", *arguments, *options],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((pathlib.Path(folder) / "result.json").read_text())


def predictions(result):
    """name -> (saving, half-width) in bytes, of the result's text."""
    size = r"([\d.]+) ([KMG]?i?B)"
    found = {}
    for name in changes:
        match = re.search(re.escape(name) + " " + size + "(?: ± " + size + ")?", result["savings"] or "")
        if match:
            number, unit, half, half_unit = match.groups()
            found[name] = (float(number) * units[unit], float(half or 0) * units[half_unit or "B"])
    return found


def main():
    errors = {name: [] for name in changes}
    inside = {name: 0 for name in changes}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(NEAP_DEVICE="sim", NEAP_SIM=f"mem=1GiB,world=predictions-{os.getpid()}",
                          XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder)
        print(f"{'batch layers width context':28} {'change':28} {'plain':>10} {'predicted':>10} {'measured':>10}   error")
        for number, shape in enumerate(shapes):
            plain = run(f"{folder}/{number}-plain", shape)
            peak = plain["peak_allocated_bytes"]
            for name, (saving, half) in predictions(plain).items():
                changed = run(f"{folder}/{number}-{changes[name]}", shape, changes[name], "on")
                measured = changed["peak_allocated_bytes"]
                error = 100 * (peak - saving - measured) / measured
                errors[name].append(error)
                rounding = 0.005 * saving  # the text has three digits
                inside[name] += abs(peak - saving - measured) <= half + rounding
                figures = " ".join(f"{bytes_ / 2**20:6.2f} MiB" for bytes_ in (peak, peak - saving, measured))
                print(f"{'%5d %6d %5d %7d' % shape:28} {name:28} {figures}  {error:+5.1f} %")
    print()
    for name, of_name in errors.items():
        sizes = [abs(error) for error in of_name]
        print(f"{name:28} {len(sizes)} shapes: median error {statistics.median(sizes):.1f} %, worst {max(sizes):.1f} %; "
              f"within the stated interval {inside[name]} times")


if __name__ == "__main__":
    main()
