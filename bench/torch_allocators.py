#!/usr/bin/env python3
"""Real PyTorch scripts under PyTorch's default allocator, its expandable segments and neap: the smallest simulated device on
which each completes, driver calls, host time.

    NEAP_DEVICE=sim neap run --quiet -- python bench/torch_allocators.py [--only NAME] [--within PERCENT]
    python bench/torch_allocators.py --real FILE [--only NAME] [--seconds S]     on a GPU: real time

Each try is a forked process: torch is imported once, the device is made for the try (NEAP_SIM mem=...), and the try
tells whether the script ran out of memory. The smallest device is found by bisection between the peak of the
requested bytes, below which nothing can complete, and a device on which every allocator has enough memory; four
larger devices are tried, too.

Calls are the simulator's count of those that allocate, map, free and synchronise: per step of the second half on a device 5 %
larger than the requested peak (or the smallest one, if that is larger), and of the whole run on the roomy device. Host time is
processor time of a step on the roomy device: the median of its second half, then of rounds in which the allocators alternate,
so that other programs disturb it little.

--real measures what a person notices, in the time of the clock: tokens (images) a second, the median and the worst step, driver
calls, and stalls (waits for the whole device, and retries after an emptied cache); with all of the device, and limited to 1.05
times the requested peak. FILE gets a line of JSON for each row when it is measured, and rows that it has are not measured again;
exit status 75: time ran out first. gpu_day.py prints it as a table.
"""

import argparse
import ctypes
import json
import os
import random
import signal
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch
import torch._dynamo  # the first step of an optimizer imports it
import torch.distributed.fsdp
from gpu_models import LoRA
from neap import _library
from torch import nn

MIB = 1 << 20
ALLOCATORS = ("default", "expandable", "neap")
CALLS = ("cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemAddressReserve",
         "cuCtxSynchronize", "cuStreamSynchronize")  # fmt: skip
OUT_OF_MEMORY = 3
ROOMY = 16384  # MiB; every allocator has room


# The scripts. Each makes its state, and returns a function that does one step and returns its tokens or images.


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, past=None):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return (x, (k, v)) if past is not None else x


class GPT(nn.Module):
    def __init__(self, layers=6, width=512, letters=16384):
        super().__init__()
        self.embedding = nn.Embedding(letters, width)
        self.blocks = nn.ModuleList(Block(width, 8) for _ in range(layers))
        self.head = nn.Linear(width, letters, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _language_step(model, optimizer, batch, lengths):
    def step(number):
        tokens = torch.zeros(batch, lengths[number % len(lengths)], dtype=torch.long, device="cuda")
        logits = model(tokens)
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return tokens.numel()

    return step


def gpt2_variable_length():
    with torch.device("cuda"):
        model = GPT()
    lengths = random.Random(1).choices(range(64, 1024, 8), k=64)
    return _language_step(model, torch.optim.AdamW(model.parameters()), 8, lengths)


def lora():
    with torch.device("cuda"):
        model = GPT(layers=8, width=768).requires_grad_(False)
        for block in model.blocks:
            block.qkv, block.out = LoRA(block.qkv), LoRA(block.out)
    lengths = random.Random(2).choices(range(96, 768, 8), k=64)
    return _language_step(model, torch.optim.AdamW(p for p in model.parameters() if p.requires_grad), 8, lengths)


class Residual(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, out // 4, 1, bias=False), nn.BatchNorm2d(out // 4), nn.ReLU(True),
                                  nn.Conv2d(out // 4, out // 4, 3, stride, 1, bias=False), nn.BatchNorm2d(out // 4), nn.ReLU(True),
                                  nn.Conv2d(out // 4, out, 1, bias=False), nn.BatchNorm2d(out))  # fmt: skip
        self.side = nn.Identity()
        if stride > 1 or width != out:
            self.side = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.side(x))


def resnet():
    with torch.device("cuda"):
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
        width = 64
        for out, count, stride in ((256, 3, 1), (512, 4, 2), (1024, 6, 2), (2048, 3, 2)):
            for i in range(count):
                layers.append(Residual(width, out, stride if i == 0 else 1))
                width = out
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    sizes = (160, 176, 192, 208, 224)

    def step(number):
        side = sizes[number * 3 % len(sizes)]
        loss = nn.functional.cross_entropy(model(torch.zeros(16, 3, side, side, device="cuda")),
                                           torch.zeros(16, dtype=torch.long, device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return 16

    return step


def serving():
    """Requests come and go; each keeps keys and values that grow by a token in every step."""
    with torch.device("cuda"):
        model = GPT().requires_grad_(False)
    draw = random.Random(3)
    live = []

    def step(number):
        while len(live) < 12:
            batch = draw.choice((1, 2, 4))
            length = draw.randrange(64, 1500)
            shape = (batch, 8, length, 64)
            past = [(torch.zeros(shape, device="cuda"), torch.zeros(shape, device="cuda")) for _ in model.blocks]
            live.append([batch, draw.randrange(4, 40), past])
        made = 0
        for request in list(live):
            made += request[0]
            x = model.embedding(torch.zeros(request[0], 1, dtype=torch.long, device="cuda"))
            for i, block in enumerate(model.blocks):
                x, request[2][i] = block(x, request[2][i])
            model.head(x)
            request[1] -= 1
            if not request[1]:
                live.remove(request)
        return made

    return step


def fsdp_4_ranks():
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = GPT()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        nn.init.normal_(parameter.to_local())
    lengths = random.Random(4).choices(range(128, 768, 8), k=64)
    return _language_step(model, torch.optim.AdamW(model.parameters()), 4, lengths)


SCRIPTS = {"GPT-2, variable length": (gpt2_variable_length, 16, 1), "LoRA": (lora, 16, 1), "ResNet-50": (resnet, 10, 1),
           "serving, growing KV": (serving, 40, 1), "FSDP, 4 ranks": (fsdp_4_ranks, 8, 4)}  # fmt: skip


# One try.


class _Simulator:
    """The simulator's count of driver calls."""

    class _Table(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32),
                    *((name, ctypes.c_void_p) for name in ("launch", "now_ns", "hold", "step", "fault", "latency")),
                    ("calls", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p))]  # fmt: skip

    def __init__(self):
        library = ctypes.CDLL(_library.library()._name)
        driver = ctypes.c_void_p()
        _library.call("neap_driver_open", 2, ctypes.byref(driver))
        library.neap_driver_sim.restype = ctypes.POINTER(self._Table)
        library.neap_driver_sim.argtypes = [ctypes.c_void_p]
        self._table = library.neap_driver_sim(driver).contents

    def count(self):
        return sum(self._table.calls(name.encode()) for name in CALLS)


def _install(allocator):
    if allocator == "neap":
        import neap

        neap.install_allocator()
    elif allocator == "expandable":
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")


def _work(script, allocator, steps, rank, ranks, port):
    _install(allocator)
    torch.cuda.set_device(rank)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
        torch.distributed.init_process_group("nccl")
    simulator = _Simulator()
    step = script()
    times = []
    calls = []
    for number in range(steps):
        before = simulator.count()
        began = time.process_time()
        step(number)
        torch.cuda.synchronize()
        times.append(time.process_time() - began)
        calls.append(simulator.count() - before)
    stats = torch.cuda.memory_stats()
    later = slice(steps // 2, None)
    return {"milliseconds": 1000 * statistics.median(times[later]), "calls": sum(calls[later]) / len(calls[later]),
            "all_calls": simulator.count(), "requested": stats["requested_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"],
            "retries": stats["num_alloc_retries"]}  # fmt: skip


def attempt(script, allocator, mebibytes, steps, ranks):
    """The figures of a run on such a device, of its first rank; None: it ran out of memory."""
    _attempts[0] += 1
    world = f"bench{os.getpid()}n{_attempts[0]}"
    os.environ["NEAP_SIM"] = f"mem={mebibytes}MiB,gpus={ranks},reserved=0,context=0,backing=none,world={world}"
    children = []
    port = 20000 + (os.getpid() * 37 + _attempts[0]) % 40000
    for rank in range(ranks):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                os.write(writing, json.dumps(_work(script, allocator, steps, rank, ranks, port)).encode())
                status = 0
            except torch.OutOfMemoryError:
                status = OUT_OF_MEMORY
            except BaseException as error:
                os.write(writing, f"{type(error).__name__}: {error}".encode()[:400])
            finally:
                os._exit(status)
        os.close(writing)
        children.append((pid, reading))
    found = []
    statuses = []
    while children:  # a rank that ran out of memory leaves the others waiting for it
        pid, status = os.wait()
        reading = dict(children)[pid]
        statuses.append(os.waitstatus_to_exitcode(status))
        found.append(os.read(reading, 65536).decode())
        os.close(reading)
        children = [c for c in children if c[0] != pid]
        if statuses[-1] != 0:
            for other, _ in children:
                os.kill(other, 9)
    if OUT_OF_MEMORY in statuses:
        return None
    if any(statuses):
        raise SystemExit(f"{allocator}: {[text for text, status in zip(found, statuses) if status]}")
    return json.loads(found[0])


_attempts = [0]


def smallest(script, allocator, low, high, within, steps, ranks):
    """The smallest device in MiB on which the script completes, and on four larger ones too: `high` is large enough,
    `low` may be too small. (Near the end it can complete on one device and not on the next larger one, on which
    blocks have other places.)"""
    top = high
    grain = max(2, int(low * within / 100))
    while high - low > grain:
        middle = (low + high) // 2
        if attempt(script, allocator, middle, steps, ranks) is None:
            low = middle
        else:
            high = middle
    for more in (1, 2, 4, 8):
        if high + more * grain < top and attempt(script, allocator, high + more * grain, steps, ranks) is None:
            return smallest(script, allocator, high + more * grain, top, within, steps, ranks)
    return high


def measure(name, within, rounds):
    """The peak of the requested bytes in MiB, and a row for each allocator."""
    script, steps, ranks = SCRIPTS[name]
    rows = {}
    times = {allocator: [] for allocator in ALLOCATORS}
    for _ in range(rounds):
        for allocator in ALLOCATORS:
            rows[allocator] = attempt(script, allocator, ROOMY, steps, ranks)
            times[allocator].append(rows[allocator]["milliseconds"])
    requested = rows["default"]["requested"] // MIB
    for allocator in ALLOCATORS:
        row = rows[allocator]
        row["milliseconds"] = statistics.median(times[allocator])
        row["ratio"] = statistics.median(own / other for own, other in zip(times[allocator], times["default"]))
        row["smallest"] = smallest(script, allocator, requested, int(row["reserved"] / MIB * 1.02) + 64, within, steps, ranks)
        tight = attempt(script, allocator, max(int(requested * 1.05), row["smallest"]), steps, ranks)
        row["tight"] = tight["calls"] if tight else float("nan")
    return requested, rows


# In real time.


def _real_work(script, allocator, steps, limit):
    _install(allocator)
    total = torch.cuda.get_device_properties(0).total_memory
    if limit:
        torch.cuda.set_per_process_memory_fraction(limit / total)
    step = script()
    counted = ("num_device_alloc", "num_device_free", "num_sync_all_streams", "num_alloc_retries")
    times = []
    counts = []
    made = 0
    for number in range(steps):
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()
        began = time.monotonic()
        did = step(number)
        torch.cuda.synchronize()
        times.append(time.monotonic() - began)
        after = torch.cuda.memory_stats()
        counts.append([after[key] - before[key] for key in counted])
        made += did if number >= steps // 2 else 0
    later = counts[steps // 2 :]
    stats = torch.cuda.memory_stats()
    return {"backend": torch.cuda.get_allocator_backend(), "steps": steps, "per_second": made / sum(times[steps // 2 :]),
            "median_ms": 1000 * statistics.median(times[steps // 2 :]), "worst_ms": 1000 * max(times[steps // 2 :]),
            "first_half_seconds": sum(times[: steps // 2]), "calls": stats["num_device_alloc"] + stats["num_device_free"],
            "calls_a_step": sum(row[0] + row[1] for row in later) / len(later),
            "stalls": sum(row[2] + row[3] for row in counts), "stalls_later": sum(row[2] + row[3] for row in later),
            "requested": stats["requested_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"], "limit": limit}  # fmt: skip


def _forked(function, bound):
    """The result of a forked call, or {"failed": why}. The call is ended after `bound` seconds."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            signal.alarm(max(1, int(bound)))
            os.dup2(2, 1)
            try:
                result = function()
            except torch.OutOfMemoryError:
                result = {"failed": "out of memory"}
            except Exception as error:
                result = {"failed": f"{type(error).__name__}: {error}"[:300]}
            os.write(writing, json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return json.loads(text) if text else {"failed": f"took longer than {bound:.0f} s" if status == -14 else f"ended with {status}"}


def real_rows(names, path, seconds, steps):
    """Measures rows that the file lacks. Returns the names of those that there was no time for."""
    end = time.monotonic() + seconds
    rows = {}
    if os.path.exists(path):
        with open(path) as file:
            for line in file.read().split("\n")[:-1]:  # a line that was cut off does not count
                row = json.loads(line)
                rows[row["script"], row["allocator"], row["memory"]] = row
    left = []
    for name in names:
        script, _, _ = SCRIPTS[name]
        for memory in ("all", "1.05 of the peak"):
            for allocator in ALLOCATORS:
                roomy = rows.get((name, "default", "all"), {})
                if (name, allocator, memory) in rows or (memory != "all" and "requested" not in roomy):
                    continue
                if time.monotonic() > end - 10:
                    left.append((name, allocator, memory))
                    continue
                limit = None if memory == "all" else int(1.05 * roomy["requested"])
                found = _forked(lambda w=(script, allocator, steps[name], limit): _real_work(*w), min(60, end - time.monotonic()))
                row = {"script": name, "allocator": allocator, "memory": memory, **found}
                rows[name, allocator, memory] = row
                with open(path, "a") as file:
                    file.write(json.dumps(row) + "\n")
    return left


REAL_STEPS = {"GPT-2, variable length": 192, "LoRA": 192, "ResNet-50": 100, "serving, growing KV": 160}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--real", metavar="FILE", help="on a GPU, in real time")
    parser.add_argument("--seconds", type=float, default=500, help="with --real: for all of it")
    parser.add_argument("--steps", type=int, help="with --real: fewer")
    parser.add_argument("--only", action="append", help="a script's name, or the beginning of it")
    parser.add_argument("--within", type=float, default=0.1, help="how exact the smallest device is, in percent")
    parser.add_argument("--rounds", type=int, default=5, help="of the time per step")
    options = parser.parse_args()
    if options.real:
        names = [name for name in REAL_STEPS if not options.only or any(name.startswith(beginning) for beginning in options.only)]
        steps = {name: options.steps or REAL_STEPS[name] for name in names}
        return 75 if real_rows(names, options.real, options.seconds, steps) else 0
    print("| script | requested peak | allocator | smallest device | calls a step, 1.05 × | calls of the run, roomy | host ms a step |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in SCRIPTS:
        if options.only and not any(name.startswith(beginning) for beginning in options.only):
            continue
        requested, rows = measure(name, options.within, options.rounds)
        for allocator, row in rows.items():
            more = 100 * (row["smallest"] / requested - 1)
            print(f"| {name} | {requested} MiB | {allocator} | {row['smallest']} MiB (+{more:.1f} %) | {row['tight']:.1f} "
                  f"| {row['all_calls']} | {row['milliseconds']:.1f} ({row['ratio']:.2f} ×) |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
