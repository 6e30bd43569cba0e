#!/usr/bin/env python3
"""Writes a snapshot in PyTorch's layout, of about the size asked for, with Python's own pickler.

    make_snapshot.py FILE MEGABYTES [none|python|all]

The trace is a training run of a transformer of variable length: parameters, then steps that allocate activations on
the way forward, free them on the way back, and keep nothing. Stacks are those that _record_memory_history keeps:
none, Python's frames (8 or so), or C++ and Python (25 or so). As in PyTorch, every allocation has its own list of
shared frames, and a completed free shares its request's list.
"""
import pickle
import random
import sys

BYTES_PER_EVENT = {"none": 42.6, "python": 64, "all": 88}
BASE = 139637976727552


def frames(kind):
    """A function from a layer and a place in it to a new list of shared frames."""
    if kind == "none":
        return lambda layer, place: None
    native = [
        {"name": f"c10::cuda::CUDACachingAllocator::Native::step_{i}(unsigned long, CUstream_st*)", "filename": "??", "line": 0}
        for i in range(18)
    ]
    outer = [{"name": f"run_{i}", "filename": "/workspace/train/loop.py", "line": 40 + i} for i in range(4)]
    inner = {}

    def stack(layer, place):
        key = (layer, place)
        if key not in inner:
            inner[key] = [
                {"name": f"op_{place}", "filename": "/workspace/train/ops.py", "line": 10 + place},
                {"name": "forward", "filename": "/workspace/train/layer.py", "line": 100 + place},
                {"name": f"layer_{layer}", "filename": "/workspace/train/model.py", "line": 200 + layer},
            ]
        return (native if kind == "all" else []) + inner[key] + outer

    return stack


def events(count, kind):
    random.seed(7)
    stack = frames(kind)
    clock = 1795223039510504
    address = BASE
    trace = []
    free = {}

    def record(action, addr, size, shared):
        nonlocal clock
        clock += random.choice((1, 2, 3, 8, 40))
        event = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": clock}
        if shared is not None:
            event["frames"] = shared
        trace.append(event)

    def allocate(size, layer, place):
        nonlocal address
        rounded = (size + 511) // 512 * 512
        if free.get(rounded):
            addr = free[rounded].pop()
        else:
            addr, address = address, address + (rounded + (2 << 20) - 1) // (2 << 20) * (2 << 20)
        record("alloc", addr, size, stack(layer, place))
        return addr, size, layer, place

    def release(block):
        addr, size, layer, place = block
        shared = stack(layer, place + 20)
        record("free_requested", addr, size, shared)
        record("free_completed", addr, size, shared)
        free.setdefault((size + 511) // 512 * 512, []).append(addr)

    layers = 24
    for layer in range(layers):
        for place in range(12):
            allocate(random.choice((3072, 9216, 4718592, 14155776)), layer, place)
    while len(trace) < count:
        tokens = random.randrange(128, 1024) * 8
        live = []
        for layer in range(layers):
            for place in range(12):
                live.append(allocate(tokens * (768 if place % 3 else 3072) * 2, layer, place))
                if place % 4 == 3:
                    release(allocate(tokens * 12 * 64, layer, place + 12))
        for block in reversed(live):
            release(block)
    return trace


def main():
    path = sys.argv[1]
    megabytes = float(sys.argv[2])
    kind = sys.argv[3] if len(sys.argv) > 3 else "python"
    trace = events(int(megabytes * 1e6 / BYTES_PER_EVENT[kind]), kind)
    segment = {
        "device": 0, "address": BASE, "total_size": 2 << 20, "allocated_size": 2 << 20, "active_size": 2 << 20,
        "requested_size": 2 << 20, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
        "is_expandable": False, "frames": [],
        "blocks": [{"address": BASE, "size": 2 << 20, "requested_size": 2 << 20, "state": "active_allocated", "frames": []}],
    }
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
    with open(path, "wb") as file:
        pickle.dump({"segments": [segment], "device_traces": [trace], "allocator_settings": settings,
                     "external_annotations": []}, file, protocol=4)


main()
