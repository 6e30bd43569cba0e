"""Convolutions of public reports to PyTorch, one layer or two each.

usage: convolutions.py volume|frames|video|widths N
"""

import re
import sys

import torch
from torch import nn


def volume(size):
    x = torch.empty(1, 64, size, 370, 251, device="cuda", dtype=torch.half)
    layer = nn.Conv3d(64, 32, 3, 1, 1, device="cuda", dtype=torch.half)
    with torch.no_grad():
        layer(x)


def frames(count):
    torch.backends.cudnn.deterministic = True
    layer = nn.Conv3d(256, 64, 3, device="cuda")
    x = torch.empty(1, 256, count, 1090, 1922, device="cuda")
    print("memory_allocated", torch.cuda.memory_allocated())
    layer(x)


def video(channels):
    layer = nn.Conv3d(3, channels, 3, 1, 1, device="cuda", dtype=torch.bfloat16)
    x = torch.empty(1, 3, 24, 740, 1316, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        layer(x)


def widths(count):
    layer = nn.Conv2d(256, 256, 3, 1, 1, device="cuda", dtype=torch.half)
    for width in range(1024, 1024 + 128 * count, 128):
        x = torch.empty(1, 256, 2048, width, device="cuda", dtype=torch.half)
        layer(x)
        print(f"memory_reserved.{width}", torch.cuda.memory_reserved())
        torch.cuda.empty_cache()


def main():
    try:
        {"volume": volume, "frames": frames, "video": video, "widths": widths}[sys.argv[1]](int(sys.argv[2]))
    except torch.OutOfMemoryError as error:
        print("asked_for", float(re.search("Tried to allocate ([0-9.]+) GiB", str(error))[1]) * 2**30)
    for name in "max_memory_allocated", "max_memory_reserved":
        print(name, getattr(torch.cuda, name)())


if __name__ == "__main__":
    main()
