#!/usr/bin/env python3
"""What PyTorch's allocator had for convolutional programs on GPUs, by public reports, beside the same programs on the simulator:

    bench/convolutions.py [--build BUILD] [--python PYTHON]

PYTHON: an interpreter with PyTorch (the one that runs this). Each program runs on the report's device, in a process of its own. Exits
with 1 if a figure is further off than its row allows. Figures that depend on the release are left out where PYTHON has another one.
"""

import argparse
import json
import os
import subprocess
import sys

GIB = 2**30

# Report of pytorch/pytorch, device, releases of PyTorch before which it holds (None: all), program, what is compared, bytes published,
# how far off they may be: half a unit of the last digit that was published, or as said.
# 512: cuDNN 8 took 512 bytes less; 0.03 GiB: published as "~".
ROWS = [
    ("#95024", "a100-80gb", None, "volume(361)", "max_memory_allocated", 12_874_233_344, 512),
    ("#95024", "a100-80gb", None, "volume(361)", "max_memory_reserved", 12_880_707_584, 0),
    ("#95024", "a100-80gb", (2, 5), "volume(362)", "asked for", 108.21 * GIB, 0.005 * GIB),
    ("#95024", "a100-80gb", (2, 5), "volume(362)", "max_memory_allocated", 6.01 * GIB, 0.005 * GIB),
    ("#128947", "a100-80gb", None, "frames(4)", "memory_allocated before", 7.993362903594971 * GIB, 2**20),
    ("#128947", "a100-80gb", None, "frames(4)", "max_memory_allocated", 17 * GIB, 0.5 * GIB),
    ("#128947", "a100-80gb", (2, 5), "frames(5)", "asked for", 161.37 * GIB, 0.005 * GIB),
    ("#132300", "h100-80gb", (2, 5), "video()", "max_memory_allocated", 9.26 * GIB, 0.03 * GIB),
    *[
        ("#123533", "a100-80gb", None, "widths(10)", f"memory_reserved, {1024 + 128 * i} wide", reserved * GIB, 0.005 * GIB)
        for i, reserved in enumerate([4.02, 5.52, 6.15, 6.77, 7.40, 8.02, 8.65, 9.27, 9.90, 10.52])
    ],
]

PROGRAMS = '''
import json, re, sys, torch
from torch import nn
found = {"release": [int(part) for part in torch.__version__.split("+")[0].split(".")[:2]]}

def volume(x):
    input = torch.empty(1, 64, x, 370, 251, device="cuda", dtype=torch.half)
    layer = nn.Conv3d(64, 32, 3, 1, 1, device="cuda", dtype=torch.half)
    with torch.no_grad():
        layer(input)

def frames(count):
    torch.backends.cudnn.deterministic = True
    layer = nn.Conv3d(256, 64, 3, device="cuda")
    input = torch.empty(1, 256, count, 1090, 1922, device="cuda")
    found["memory_allocated before"] = torch.cuda.memory_allocated()
    layer(input)

def video():
    layer = nn.Conv3d(3, 128, 3, 1, 1, device="cuda", dtype=torch.bfloat16)
    input = torch.empty(1, 3, 24, 740, 1316, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        layer(input)

def widths(count):
    layer = nn.Conv2d(256, 256, 3, 1, 1, device="cuda", dtype=torch.half)
    for width in range(1024, 1024 + 128 * count, 128):
        input = torch.empty(1, 256, 2048, width, device="cuda", dtype=torch.half)
        layer(input)
        found[f"memory_reserved, {width} wide"] = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()

try:
    eval(sys.argv[1])
except torch.OutOfMemoryError as error:
    found["asked for"] = float(re.search("Tried to allocate ([0-9.]+) GiB", str(error))[1]) * 2**30
for name in "max_memory_allocated", "max_memory_reserved":
    found[name] = getattr(torch.cuda, name)()
print(json.dumps(found))
'''


def simulated(build):
    """The environment of a program on the simulator."""
    text = subprocess.run([os.path.join(build, "src", "neap"), "sim", "env"], capture_output=True, text=True, check=True).stdout
    shown = subprocess.run(["sh", "-c", f'{text}\nexec env -0'], capture_output=True, text=True, check=True).stdout
    return dict(item.split("=", 1) for item in shown.split("\0") if "=" in item)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build"))
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    environment = simulated(options.build)
    runs = {}
    wrong = 0
    print(f"{'report':9}{'device':11}{'program':13}{'figure':31}{'GPU, MiB':>12}{'here, MiB':>12}{'error':>10}")
    for report, device, before, program, figure, published, allowed in ROWS:
        if (device, program) not in runs:
            environment["NEAP_SIM"] = f"{device},values=none,world=convolutions-{os.getpid()}"
            words = [options.python, "-c", PROGRAMS, program]
            done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            runs[device, program] = json.loads(done.stdout)
        found = runs[device, program]
        if before and tuple(found["release"]) >= before:
            continue
        off = found[figure] - published
        wrong += abs(off) > allowed
        numbers = f"{published / 2**20:12.1f}{found[figure] / 2**20:12.1f}{100 * off / published:+9.3f}%"
        print(f"{report:9}{device:11}{program:13}{figure:31}{numbers}{'' if abs(off) <= allowed else '  WRONG'}", flush=True)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
