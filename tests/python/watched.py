"""A program for test_torch_watch.py that allocates in many ways. With `history` it lets PyTorch record its own
history and prints the trace; without, PyTorch's statistics. One JSON object."""

import json
import os
import sys
import threading

import torch
from torch import nn

MIB = 1 << 20
HISTORY = sys.argv[1] == "history"
CUDA = torch.device("cuda", 0)
kept = []


def block(size):
    return torch.empty(size, dtype=torch.uint8, device=CUDA)


class Model:
    def large(self):
        kept.append(block(3 * MIB))

    def small(self):
        kept.append([block(n) for n in range(1, 3000, 10)])


class Allocates(nn.Module):
    def forward(self, x):
        kept.append(block(7 * MIB))
        return x


def deep(levels):
    """More frames than a stack holds: the program's own, with PyTorch's between them."""
    if levels:
        deep(levels - 1)
    else:
        kept.append(block(4 * MIB))
        modules = Allocates()
        for _ in range(15):
            modules = nn.Sequential(modules)
        modules(None)


def streams():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        first = block(2 * MIB)
        kept.append(block(1000))
    first.record_stream(torch.cuda.current_stream())
    del first
    torch.cuda.synchronize()
    block(2 * MIB)


def threads():
    def work(n):
        for i in range(100):
            held = block(MIB + n * 512 + i)
            block(1000 * n + i + 1)
            del held

    all_of_them = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()


def graph():
    captured = torch.cuda.CUDAGraph()
    still = block(4 * MIB)
    with torch.cuda.graph(captured):
        inside = still + 1
        kept.append(inside.float())
    captured.replay()
    kept.append(captured)


def out_of_memory():
    try:
        block(1 << 40)
    except torch.cuda.OutOfMemoryError:
        kept.append(block(5 * MIB))


def train():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.zeros(256, 1024, device=CUDA)
    for _ in range(20):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    kept.append(optimizer)


def fork():
    child = os.fork()
    if child == 0:
        kept.clear()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def everything():
    model = Model()
    for _ in range(3):
        model.large()
    model.small()
    deep(40)
    streams()
    graph()
    out_of_memory()
    train()
    fork()
    del kept[:5]
    torch.cuda.empty_cache()


torch.cuda.init()
if HISTORY:
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=100000)
everything()
if HISTORY:
    threads()
    exec(compile("def é():\n\n    kept.append(block(6 * MIB))\né()", "/日本/a\tü.py", "exec"))
    snapshot = torch.cuda.memory._snapshot()
    entries = [e for e in snapshot["device_traces"][0] if e["action"] not in ("oom", "snapshot")]
    found = {
        "trace": [[e[field] for field in ("action", "addr", "size", "stream")] for e in entries],
        "pools": [e.get("pool_id") for e in entries if e["action"].startswith("segment")],
        "frames": [[[f["filename"], f["line"], f["name"]] for f in e.get("frames", ())] for e in entries],
        "segments": sum(s["total_size"] for s in snapshot["segments"]),
    }
else:
    found = {"stats": torch.cuda.memory_stats(0), "allocator": torch.cuda.get_allocator_backend()}
print(json.dumps(found))
if HISTORY:
    sys.stdout.flush()
    os._exit(0)  # what the end frees is not in the history
