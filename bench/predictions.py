#!/usr/bin/env python3
"""How close predicted peaks are. Runs charlm plain in many shapes; compares what neap says each change would save
with a run that has the change. On a device with some room left, the run's report advises a micro-batch and predicts
the headroom: runs charlm with it, too.

    bench/predictions.py [BUILD FOLDER]

Prints a line per shape and change, then for each change the median and the worst error in percent of the measured
peak, and how often the measured peak was within the stated interval.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))
build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
neap = build / "src" / "neap"
charlm = build / "examples" / "charlm" / "charlm"
changes = {
    "memory-efficient attention": "--efficient-attention",
    "mixed precision": "--mixed-precision",
    "gradient checkpointing": "--checkpointing",
}
shapes = [
    (batch, micro, layers, width, context)
    for batch, micro, layers, width, context in (
        (8, 8, 1, 32, 16), (8, 8, 2, 64, 32), (16, 16, 2, 64, 64), (16, 16, 4, 32, 32), (32, 32, 1, 64, 32),
        (32, 32, 2, 32, 64), (32, 32, 3, 64, 16), (64, 64, 1, 32, 32), (64, 64, 2, 64, 32), (64, 64, 2, 32, 16),
        (8, 8, 4, 64, 64), (4, 4, 6, 32, 128), (64, 16, 2, 64, 32), (64, 8, 3, 32, 64), (32, 8, 2, 128, 32),
        (16, 4, 4, 64, 64), (24, 24, 2, 96, 32), (48, 12, 3, 64, 32), (2, 2, 8, 64, 64), (12, 12, 5, 32, 64),
        (96, 96, 1, 64, 16), (16, 16, 3, 128, 32), (8, 2, 6, 64, 32), (40, 40, 2, 64, 48),
    )
]  # fmt: skip
units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def run(folder, shape, *options):
    """The result of one run of two steps."""
    names = ("batch", "micro-batch", "layers", "width", "context")
    arguments = [f"--{name}={value}" for name, value in zip(names, shape)]
    subprocess.run([neap, "run", "--quiet", "--folder", folder, "--", charlm, "--steps", "2", *arguments, *options],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((pathlib.Path(folder) / "result.json").read_text())


def predictions(result):
    """name -> (saving, half-width) in bytes, from the result's text."""
    size = r"([\d.]+) ([KMG]?i?B)"
    found = {}
    for name in changes:
        match = re.search(re.escape(name) + " " + size + "(?: ± " + size + ")?", result["savings"] or "")
        if match:
            number, unit, half, half_unit = match.groups()
            found[name] = (float(number) * units[unit], float(half or 0) * units[half_unit or "B"])
    return found


def halve(folder, shape, plain):
    """On a device that is a little too small: how many bytes half the micro-batch saves by the OOM card, and how many
    it really saves of the peak. None: the card says something else."""
    batch, micro, *rest = shape
    record = next(pathlib.Path(folder).glob("record.*"))
    analysis = json.loads(subprocess.run([neap, "analyze", record, "--json", "--memory", str(plain["peak_reserved_bytes"] - 1)],
                                         check=True, stdout=subprocess.PIPE).stdout)
    for fix in (analysis["oom"] or {"fixes": []})["fixes"]:
        if fix["text"].startswith("micro-batch divided by 2,"):
            half = run(f"{folder}-half", (batch, micro // 2, *rest))
            return fix["saving"], plain["peak_allocated_bytes"] - half["peak_allocated_bytes"]
    return None


def advise(folder, shape, peak_reserved):
    """For the advised micro-batch the predicted and the measured headroom in bytes, and its reserved peak; None: no
    larger one fits."""
    os.environ["NEAP_SIM"] = f"mem={int(peak_reserved * 1.8 / 2**20) + 8}MiB,world=predictions-{os.getpid()}-{pathlib.Path(folder).name}"
    result = run(f"{folder}-room", shape)
    if not result["advised_micro_batch"]:
        return None
    _, _, layers, width, context = shape
    at = run(f"{folder}-at", (result["advised_micro_batch"], result["advised_micro_batch"], layers, width, context))
    return result["advised_headroom_bytes"], at["headroom_bytes"], at["peak_reserved_bytes"]


def main():
    errors = {name: [] for name in changes}
    inside = {name: 0 for name in changes}
    advised = []
    halved = []
    at_least = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(NEAP_DEVICE="sim", XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder)
        print(f"{'batch micro layers width context':34} {'change':28} {'plain':>10} {'predicted':>10} {'measured':>10}   error")
        for number, shape in enumerate(shapes):
            os.environ["NEAP_SIM"] = f"mem=1GiB,world=predictions-{os.getpid()}"
            where = "%5d %5d %6d %5d %7d" % shape
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
                print(f"{where:34} {name:28} {figures}  {error:+5.1f} %")
            if said := halve(f"{folder}/{number}-plain", shape, plain):
                halved.append(100 * (said[1] - said[0]) / (peak - said[1]))
                at_least += said[1] >= said[0]
                figures = " ".join(f"{bytes_ / 2**20:6.2f} MiB" for bytes_ in (peak, peak - said[0], peak - said[1]))
                print(f"{where:34} {'half the micro-batch':28} {figures}  {halved[-1]:+5.1f} %")
            if said := advise(f"{folder}/{number}", shape, plain["peak_reserved_bytes"]):
                predicted, measured, reserved = said
                advised.append(100 * (measured - predicted) / reserved)
                figures = " ".join(f"{bytes_ / 2**20:6.2f} MiB" for bytes_ in (predicted, measured))
                print(f"{where:34} {'headroom at advised batch':28} {'':10} {figures}  {advised[-1]:+5.1f} %")
    print()
    for name, of_name in errors.items():
        sizes = [abs(error) for error in of_name]
        print(f"{name:28} {len(sizes)} shapes: median error {statistics.median(sizes):.1f} %, worst {max(sizes):.1f} %; "
              f"within the stated interval {inside[name]} times")
    sizes = [abs(error) for error in halved]
    print(f"{'half the micro-batch':28} {len(sizes)} shapes: median error {statistics.median(sizes):.1f} %, worst {max(sizes):.1f} %; "
          f"saved at least what was predicted {at_least} times")
    sizes = [abs(error) for error in advised]
    print(f"{'advised micro-batch':28} {len(sizes)} shapes: all completed; headroom off by {statistics.median(sizes):.1f} % of what "
          f"was reserved in the median, {max(sizes):.1f} % at worst")


if __name__ == "__main__":
    main()
