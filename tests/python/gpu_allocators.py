"""A program for test_gpu.py: trains with inputs of changing length under one allocator, and prints what it observed
as JSON.

    gpu_allocators.py default | expandable | neap | plugin STEPS      (expandable: by PYTORCH_CUDA_ALLOC_CONF)
"""

import json
import os
import statistics
import sys
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.environ["NEAP_SOURCE"], "examples"))
from train_torch import Model  # noqa: E402

BATCH = 32
LONGEST = 256
WORDS = 96


def train(steps):
    """The losses, and the seconds of each step."""
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = Model(WORDS, LONGEST, 384, 6, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    lengths = torch.randint(LONGEST // 4, LONGEST + 1, (steps,), generator=torch.Generator().manual_seed(2)).tolist()
    losses = []
    seconds = []
    for length in lengths:
        began = time.monotonic()
        data = torch.randint(WORDS, (2, BATCH, length)).cuda()
        loss = F.cross_entropy(model(data[0]).flatten(0, 1).float(), data[1].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - began)
    return losses, seconds


def main():
    which = sys.argv[1]
    if which in ("neap", "plugin"):
        import neap

        neap.install_allocator(plugin=which == "plugin")
    losses, seconds = train(int(sys.argv[2]))
    stats = torch.cuda.memory_stats()
    found = {
        "backend": torch.cuda.get_allocator_backend(),
        "losses": losses,
        "ms": statistics.median(seconds[len(seconds) // 2 :]) * 1000,
        "requested": stats["requested_bytes.all.peak"],
        "allocated": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
        "allocations": stats["allocation.all.allocated"],
        "calls": stats["num_device_alloc"] + stats["num_device_free"],
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
