"""Programs with several streams for test_streams.py: each correct, and the same program without one of its orders.

A line that ends with "#! FIRST>SECOND" makes an order. Without any one of these lines the program has a race, which
must be reported with the lines of these numbers (the empty line at the text's beginning is 1) or names ("#@ NAME"
ends such a line); with all of them it has none. In "#! FIRST>SECOND: OTHER" the text OTHER takes the line's place.
$NAME is replaced by each of the variants' values. A program runs with `torch` imported (and torch.distributed as
`dist`), on `ranks` processes, from PyTorch `since` on.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator

_MARK = re.compile(r"\s*#! (\w+)>(\w+)(?:: (.*))?$")
_NAME = re.compile(r"\s*#@ (\w+)$")


@dataclasses.dataclass(frozen=True)
class Template:
    name: str
    text: str
    variants: tuple[dict[str, str], ...] = ({},)
    ranks: int = 1
    since: str = "2.4"


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    text: str
    removed: str  # the line that is left out; "": none, the program is correct
    lines: tuple[int, int]  # of its race
    ranks: int
    since: str


def _variants(**values: tuple[object, ...]) -> tuple[dict[str, str], ...]:
    names = list(values)
    return tuple(dict(zip(names, map(str, one))) for one in itertools.product(*values.values()))


_SIZES = _variants(N=(1 << 10, 1 << 18), KIND=("float32", "bfloat16"))
_FEW = _variants(N=(1 << 12, 1 << 17))
_MORE = _variants(N=(1 << 8, 1 << 12, 1 << 17))

TEMPLATES = (
    Template(
        "prefetcher",
        """
class Prefetcher:
    def __init__(self, batches):
        self.batches = iter(batches)
        self.side = torch.cuda.Stream()
        self.load()

    def load(self):
        host = next(self.batches, None)
        with torch.cuda.stream(self.side):
            self.batch = None if host is None else host.to("cuda", non_blocking=True)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.side)  #! 11>24
        batch = self.batch
        if batch is not None:
            batch.record_stream(torch.cuda.current_stream())  #! 24>11
        self.load()
        return batch

weight = torch.ones($N, device="cuda", dtype=torch.$KIND)
prefetcher = Prefetcher([torch.full(($N,), float(i), dtype=torch.$KIND).pin_memory() for i in range(6)])
while (batch := prefetcher.next()) is not None:
    loss = (batch * weight).sum()
    del batch
torch.cuda.synchronize()
""",
        _SIZES,
    ),
    Template(
        "prefetcher with events",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
weight = torch.ones($N, device="cuda")
host = [torch.full(($N,), float(i)).pin_memory() for i in range(6)]
queue = []
for i in range(6):
    with torch.cuda.stream(side):
        batch = host[i].to("cuda", non_blocking=True)
        loaded = torch.cuda.Event()
        loaded.record(side)
    queue.append((batch, loaded))
    if len(queue) > 1:
        batch, loaded = queue.pop(0)
        main.wait_event(loaded)  #! 9>17
        batch.record_stream(main)  #! 17>9
        out = batch * weight
        del batch
torch.cuda.synchronize()
""",
        _MORE,
    ),
    Template(
        "side computation",
        """
side = torch.cuda.Stream()
for i in range(4):
    x = torch.full(($N,), float(i), device="cuda", dtype=torch.$KIND)
    side.wait_stream(torch.cuda.current_stream())  #! 4>7
    with torch.cuda.stream(side):
        y = x * 2
    x.record_stream(side)  #! 7>10
    del x
    z = torch.ones($N, device="cuda", dtype=torch.$KIND)
    torch.cuda.current_stream().wait_stream(side)  #! 7>12
    total = (y + z).sum()
    y.record_stream(torch.cuda.current_stream())
    del y, z
torch.cuda.synchronize()
""",
        _variants(N=(1 << 10, 1 << 18), KIND=("float32",)),
    ),
    Template(
        "double buffers",
        """
copying = torch.cuda.Stream()
main = torch.cuda.current_stream()
buffers = [torch.zeros($N, device="cuda") for _ in range($B)]
ready = [torch.cuda.Event() for _ in range($B)]
free = [torch.cuda.Event() for _ in range($B)]
host = [torch.full(($N,), float(i)).pin_memory() for i in range(4 * $B)]
copying.wait_stream(main)  #! 4>13
for i in range(4 * $B):
    k = i % $B
    with torch.cuda.stream(copying):
        copying.wait_event(free[k])  #! 16>13
        buffers[k].copy_(host[i], non_blocking=True)
        ready[k].record(copying)
    main.wait_event(ready[k])  #! 13>16
    total = buffers[k].sum()
    free[k].record(main)
torch.cuda.synchronize()
""",
        _variants(N=(1 << 12, 1 << 17), B=(2, 3)),
    ),
    Template(
        "offloading",
        """
out = torch.cuda.Stream()
back = torch.cuda.Stream()
main = torch.cuda.current_stream()
kept = []
x = torch.ones($N, device="cuda")
for i in range(4):
    x = x * 1.5
    host = torch.empty($N, pin_memory=True)
    out.wait_stream(main)  #! 8>12
    with torch.cuda.stream(out):
        host.copy_(x, non_blocking=True)
        saved = torch.cuda.Event()
        saved.record(out)
    x.record_stream(out)  #! 12>8
    kept.append((host, saved))
    x = x + 1
for host, saved in reversed(kept):
    with torch.cuda.stream(back):
        back.wait_event(saved)  #! 12>21
        again = host.to("cuda", non_blocking=True)
    main.wait_stream(back)  #! 21>24
    again.record_stream(main)  #! 24>21
    x = x + again
    del again
torch.cuda.synchronize()
""",
        _FEW,
    ),
    Template(
        "host reads",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
x = torch.arange($N, device="cuda", dtype=torch.float32)
host = torch.empty($N, pin_memory=True)
for i in range(3):
    x = x * 2
    side.wait_stream(main)
    with torch.cuda.stream(side):
        host.copy_(x, non_blocking=True)
    main.wait_stream(side)
    $WAIT  #! 10>13
    value = $READ
""",
        _variants(
            N=(1 << 10,),
            WAIT=("side.synchronize()", "torch.cuda.synchronize()"),
            READ=("host.sum().item()", "host.numpy().copy()", "host[3].item()", "host.tolist()"),
        ),
    ),
    Template(
        "host writes",
        """
side = torch.cuda.Stream()
staging = torch.zeros($N, pin_memory=True)
batch = torch.empty($N, device="cuda")
copied = torch.cuda.Event()
side.wait_stream(torch.cuda.current_stream())
for i in range(4):
    copied.synchronize()  #! 11>9
    staging.fill_(float(i))
    with torch.cuda.stream(side):
        batch.copy_(staging, non_blocking=True)
        copied.record(side)
torch.cuda.synchronize()
""",
        _FEW,
    ),
    Template(
        "pipeline",
        """
stages = [torch.cuda.Stream() for _ in range($S)]
main = torch.cuda.current_stream()
weights = [torch.full(($N,), 1.0 + i, device="cuda") for i in range($S)]
for stage in stages:
    stage.wait_stream(main)  #! 4>13
results = []
for micro in range(4):
    with torch.cuda.stream(stages[0]):
        x = torch.full(($N,), float(micro), device="cuda")
    for k in range($S):
        with torch.cuda.stream(stages[k]):
            y = x * weights[k]
        sent = torch.cuda.Event()
        sent.record(stages[k])
        if k + 1 < $S:
            stages[k + 1].wait_event(sent)  #! 13>13
            y.record_stream(stages[k + 1])  #! 13>13
        x = y
        del y
    results.append((x, sent))
    del x
for x, sent in results:
    main.wait_event(sent)  #! 13>25
    total = x.sum()
torch.cuda.synchronize()
""",
        _variants(N=(1 << 12,), S=(2, 3, 4)),
    ),
    Template(
        "branches",
        """
main = torch.cuda.current_stream()
streams = [torch.cuda.Stream() for _ in range($S)]
x = torch.ones($N, device="cuda")
for i in range(3):
    x = x + 1
    parts = []
    for k, stream in enumerate(streams):
        stream.wait_stream(main)  #! 6>11
        with torch.cuda.stream(stream):
            parts.append(x * (k + 2))
    for k, stream in enumerate(streams):
        main.wait_stream(stream)  #! 11>14
    x = sum(parts)
    for stream, part in zip(streams, parts):
        part.record_stream(main)
    del parts, part
torch.cuda.synchronize()
""",
        _variants(N=(1 << 12, 1 << 16), S=(2, 3)),
    ),
    Template(
        "optimizer beside",
        """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear($D, $D), torch.nn.ReLU(), torch.nn.Linear($D, 1)).cuda()
optimizer = torch.optim.$OPTIMIZER(model.parameters(), lr=0.01)
updating = torch.cuda.Stream()
main = torch.cuda.current_stream()
for step in range(3):
    loss = model(torch.ones(4, $D, device="cuda")).square().mean()
    loss.backward()
    updating.wait_stream(main)  #! 9>12
    with torch.cuda.stream(updating):
        optimizer.step()
    main.wait_stream(updating)  #! 12>8
    optimizer.zero_grad()
torch.cuda.synchronize()
""",
        _variants(D=(16, 64), OPTIMIZER=("SGD", "Adam")),
    ),
    Template(
        "moving average",
        """
torch.manual_seed(0)
model = torch.nn.Linear($D, $D).cuda()
average = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, $D, device="cuda")).sum().backward()
    optimizer.step()
    side.wait_stream(main)  #! 11>14
    with torch.cuda.stream(side), torch.no_grad():
        torch._foreach_lerp_(average, list(model.parameters()), 0.1)
    main.wait_stream(side)  #! 14>11
check = sum(a.sum() for a in average)
torch.cuda.synchronize()
""",
        _variants(D=(8, 32, 128)),
    ),
    Template(
        "graph",
        """
static = torch.zeros($N, device="cuda")
warm = torch.cuda.Stream()
warm.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm):
    y = static * 2
torch.cuda.current_stream().wait_stream(warm)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = (static * 2 + 1).square()
main = torch.cuda.current_stream()
loading = torch.cuda.Stream()
reading = torch.cuda.Stream()
host = [torch.full(($N,), float(i)).pin_memory() for i in range(4)]
for i in range(4):
    loading.wait_stream(main)  #! 11>19
    with torch.cuda.stream(loading):
        static.copy_(host[i], non_blocking=True)
    main.wait_stream(loading)  #! 19>11
    main.wait_stream(reading)  #! 25>11
    graph.replay()
    reading.wait_stream(main)  #! 11>25
    with torch.cuda.stream(reading):
        total = result.sum()
torch.cuda.synchronize()
""",
        _MORE,
    ),
    Template(
        "two graphs",
        """
shared = torch.zeros($N, device="cuda")
source = torch.ones($N, device="cuda")
torch.cuda.synchronize()
writes, reads = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(writes):
    shared.copy_(source + 1)
with torch.cuda.graph(reads):
    total = shared.sum()
first, second = torch.cuda.Stream(), torch.cuda.Stream()
torch.cuda.synchronize()
for i in range(3):
    first.wait_stream(second)  #! 9>7
    with torch.cuda.stream(first):
        writes.replay()
    second.wait_stream(first)  #! 7>9
    with torch.cuda.stream(second):
        reads.replay()
torch.cuda.synchronize()
""",
        _FEW,
    ),
    Template(
        "metrics",
        """
main = torch.cuda.current_stream()
logging = torch.cuda.Stream()
pending = []
history = []
x = torch.ones($N, device="cuda")
for step in range(6):
    x = x * 1.01
    loss = x.mean()
    logging.wait_stream(main)  #! 9>12
    with torch.cuda.stream(logging):
        host = loss.to("cpu", non_blocking=True)
        done = torch.cuda.Event()
        done.record(logging)
    loss.record_stream(logging)  #! 12>8
    del loss
    pending.append((host, done))
    if len(pending) > 1:
        host, done = pending.pop(0)
        done.synchronize()  #! 12>21
        history.append(host.item())
torch.cuda.synchronize()
""",
        _MORE,
    ),
    Template(
        "cache",
        """
main = torch.cuda.current_stream()
moving = torch.cuda.Stream()
keys = torch.zeros(8, $N, device="cuda")
store = torch.zeros(8, $N, pin_memory=True)
torch.cuda.synchronize()
for token in range(8):
    keys[token].fill_(float(token))
    if token % 2:
        moving.wait_stream(main)  #! 8>12
        with torch.cuda.stream(moving):
            store[token - 1 : token + 1].copy_(keys[token - 1 : token + 1], non_blocking=True)
main.wait_stream(moving)  #! 12>14
keys.zero_()
moving.wait_stream(main)  #! 14>17
with torch.cuda.stream(moving):
    keys.copy_(store, non_blocking=True)
main.wait_stream(moving)  #! 17>19
total = keys.sum()
torch.cuda.synchronize()
""",
        _FEW,
    ),
    Template(
        "stashed weights",
        """
main = torch.cuda.current_stream()
stash, restore = torch.cuda.Stream(), torch.cuda.Stream()
weights = [torch.full(($N,), float(i), device="cuda") for i in range(3)]
hosts = [torch.empty($N, pin_memory=True) for _ in weights]
for step in range(2):
    stash.wait_stream(main)  #! 4>10
    with torch.cuda.stream(stash):
        for weight, host in zip(weights, hosts):
            host.copy_(weight, non_blocking=True)
    for weight in weights:
        weight.record_stream(stash)  #! 10>14
        weight.untyped_storage().resize_(0)
    dense = [torch.zeros($N, device="cuda") for _ in range(4)]
    stashed = torch.cuda.Event()
    stashed.record(stash)
    del dense
    for weight in weights:
        weight.untyped_storage().resize_(4 * $N)
        weight.zero_()
    restore.wait_event(stashed)  #! 10>25
    restore.wait_stream(main)  #! 20>25
    with torch.cuda.stream(restore):
        for weight, host in zip(weights, hosts):
            weight.copy_(host, non_blocking=True)
    main.wait_stream(restore)  #! 25>28
    stash.wait_stream(restore)
    torch._foreach_add_(weights, 1)
torch.cuda.synchronize()
""",
        _FEW,
    ),
    Template(
        "gradients to the host",
        """
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear($D, $D) for _ in range(3)]).cuda()
main = torch.cuda.current_stream()
moving = torch.cuda.Stream()
hosts = [torch.zeros_like(p, device="cpu").pin_memory() for p in model.parameters()]
for step in range(3):
    model(torch.ones(4, $D, device="cuda")).square().sum().backward()
    moving.wait_stream(main)  #! 8>12
    with torch.cuda.stream(moving):
        for p, host in zip(model.parameters(), hosts):
            host.copy_(p.grad, non_blocking=True)
            p.grad.record_stream(moving)  #! 12>17
            p.grad = None
    moved = torch.cuda.Event()
    moved.record(moving)
    other = [torch.zeros($D, $D, device="cuda") for _ in range(4)]
    moved.synchronize()  #! 12>19
    norm = sum(float(host.norm()) for host in hosts)
torch.cuda.synchronize()
""",
        _variants(D=(16, 64, 256)),
    ),
    Template(
        "random augmentation",
        """
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
images = torch.ones(4, 3, $N, $N, device="cuda")
torch.cuda.synchronize()
for step in range(4):
    with torch.cuda.stream(side):
        noise = torch.randn(4, 3, $N, $N, device="cuda")
        mask = noise $CUT
    main.wait_stream(side)  #! 8>11
    view = torch.where(mask, images, noise)
    noise.record_stream(main)  #! 11>8
    mask.record_stream(main)
    del noise, mask
torch.cuda.synchronize()
""",
        _variants(N=(8, 64), CUT=("> 0", ".abs() < 1")),
    ),
    Template(
        "views of one buffer",
        """
main = torch.cuda.current_stream()
workers = [torch.cuda.Stream() for _ in range(4)]
buffer = torch.zeros(4, $N, device="cuda")
for step in range(3):
    for k, worker in enumerate(workers):
        worker.wait_stream(main)  #! 4>9
        with torch.cuda.stream(worker):
            buffer[k].add_(k)
    for worker in workers:
        main.wait_stream(worker)  #! 9>12
    buffer.mul_(0.5)
torch.cuda.synchronize()
""",
        _variants(N=(1 << 8, 1 << 12, 1 << 16)),
    ),
    Template(
        "columns",
        """
main = torch.cuda.current_stream()
left, right = torch.cuda.Stream(), torch.cuda.Stream()
matrix = torch.zeros($R, 64, device="cuda")
for step in range(3):
    left.wait_stream(main)  #! 4>9
    right.wait_stream(main)  #! 4>11
    with torch.cuda.stream(left):
        matrix[:, :32].add_(1)
    with torch.cuda.stream(right):
        matrix[:, 32:].add_(2)
    main.wait_stream(left)  #! 9>14
    main.wait_stream(right)  #! 11>14
    total = matrix.sum()
    matrix.zero_()
torch.cuda.synchronize()
""",
        _variants(R=(4, 60)),
    ),
    Template(
        "evaluation beside training",
        """
torch.manual_seed(0)
main = torch.cuda.current_stream()
evaluating = torch.cuda.Stream()
model = torch.nn.Sequential(torch.nn.Linear($D, $D), torch.nn.$ACTIVATION(), torch.nn.Linear($D, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
held_out = torch.ones(16, $D, device="cuda")
for step in range(3):
    evaluating.wait_stream(main)  #! 7>11
    with torch.cuda.stream(evaluating), torch.no_grad():
        score = model(held_out).mean()
    main.wait_stream(evaluating)  #! 11>15
    optimizer.zero_grad()
    model(held_out[:4]).sum().backward()
    optimizer.step()
    score.record_stream(main)
    print(end="" if score.item() == score.item() else "?")
torch.cuda.synchronize()
""",
        _variants(D=(16, 64), ACTIVATION=("ReLU", "GELU")),
    ),
    Template(
        "two devices",
        """
first, second = torch.device("cuda", 0), torch.device("cuda", 1)
side = torch.cuda.Stream(second)
weight = torch.ones($N, device=second)
torch.cuda.synchronize(second)
for i in range(3):
    x = torch.full(($N,), float(i), device=first)
    y = x.to(second)
    side.wait_stream(torch.cuda.current_stream(second))  #! 8>11
    with torch.cuda.stream(side):
        z = y * weight
    y.record_stream(side)  #! 11>14
    del y
    w = torch.zeros($N, device=second)
    torch.cuda.current_stream(second).wait_stream(side)  #! 11>16
    total = z.sum()
    z.record_stream(torch.cuda.current_stream(second))
torch.cuda.synchronize(second)
""",
        _FEW,
    ),
    Template(
        "gradients by hand",
        """
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear($D, $D) for _ in range(3)]).cuda()
for step in range(3):
    model(torch.ones(4, $D, device="cuda")).sum().backward()
    works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    for work in works:
        work.wait()  #! 6>11
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.01 * p.grad
            p.grad = None
torch.cuda.synchronize()
""",
        _variants(D=(8, 32, 64)),
        ranks=2,
    ),
    Template(
        "DDP with a hook",
        """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear($D, $D), torch.nn.Linear($D, $D)).cuda()
parallel = torch.nn.parallel.DistributedDataParallel(model)
side = torch.cuda.Stream()
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)

def hook(state, bucket):
    buffer = bucket.buffer()
    side.wait_stream(torch.cuda.current_stream())  #! 22>12
    with torch.cuda.stream(side):
        halved = buffer.$HOW
        buffer.copy_(halved)
    torch.cuda.current_stream().wait_stream(side)  #! 13>22
    done = torch.futures.Future()
    done.set_result(buffer)
    return done

parallel.register_comm_hook(None, hook)
for step in range(3):
    optimizer.zero_grad()
    parallel(torch.ones(4, $D, device="cuda")).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
""",
        _variants(D=(16, 32), HOW=("mul(0.5)", "bfloat16().float()")),
        ranks=2,
    ),
    Template(
        "sharded by hand",
        """
main = torch.cuda.current_stream()
gathering = torch.cuda.Stream()
rank, world = dist.get_rank(), dist.get_world_size()
shards = [torch.full(($N,), float(rank + i), device="cuda") for i in range(3)]
x = torch.ones($N * world, device="cuda")
gathering.wait_stream(main)  #! 5>12
for step in range(2):
    for shard in shards:
        with torch.cuda.stream(gathering):
            whole = torch.empty($N * world, device="cuda")
            dist.all_gather_into_tensor(whole, shard)
            gathered = torch.cuda.Event()
            gathered.record(gathering)
        main.wait_event(gathered)  #! 12>16
        x = x * whole
        whole.record_stream(main)  #! 16>12
        del whole
torch.cuda.synchronize()
""",
        _FEW,
        ranks=2,
    ),
    Template(
        "reduce and scatter",
        """
main = torch.cuda.current_stream()
reducing = torch.cuda.Stream()
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(4):
    gradient = torch.full(($N * world,), float(rank), device="cuda")
    reducing.wait_stream(main)  #! 6>10
    with torch.cuda.stream(reducing):
        shard = torch.empty($N, device="cuda")
        dist.reduce_scatter_tensor(shard, gradient)
    gradient.record_stream(reducing)  #! 10>13
    del gradient
    other = torch.zeros($N * world, device="cuda")
    main.wait_stream(reducing)  #! 10>15
    total = shard.sum()
    shard.record_stream(main)
torch.cuda.synchronize()
""",
        _FEW,
        ranks=2,
    ),
    Template(
        "stages over ranks",
        """
rank = dist.get_rank()
for micro in range(3):
    x = torch.full(($N,), float(micro), device="cuda")
    if rank == 0:
        x = x + 1
        work = dist.isend(x, 1)
        work.wait()
    else:
        work = dist.irecv(x, 0)
        work.wait()  #! 10>12
        total = (x * 2).sum()
torch.cuda.synchronize()
""",
        _FEW,
        ranks=2,
    ),
    Template(
        "FSDP2",
        """
from torch.distributed.fsdp import fully_shard
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear($D, $D) for _ in range(3)]).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
average = [p.to_local().detach().clone() for p in model.parameters()]
for step in range(3):
    model(torch.ones(4, $D, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    side.wait_stream(main)  #! 14>19
    with torch.cuda.stream(side), torch.no_grad():
        for a, p in zip(average, model.parameters()):
            a.lerp_(p.to_local(), 0.1)
    main.wait_stream(side)  #! 19>14
torch.cuda.synchronize()
""",
        _variants(D=(16, 64)),
        ranks=2,
    ),
)


def programs(templates: tuple[Template, ...] = TEMPLATES) -> Iterator[Program]:
    """For each template and variant the correct program, then those without one of its orders."""
    for template in templates:
        for variant in template.variants:
            text = template.text
            for name, value in variant.items():
                text = text.replace(f"${name}", value)
            name = " ".join([template.name, *(f"{key}={value}" for key, value in variant.items())])
            lines = text.splitlines()
            named = {found[1]: at for at, line in enumerate(lines, 1) if (found := _NAME.search(line))}
            yield Program(name, text, "", (0, 0), template.ranks, template.since)
            for at, line in enumerate(lines):
                mark = _MARK.search(line)
                if mark:
                    order = line[: mark.start()].strip()
                    indent = line[: len(line) - len(line.lstrip())]
                    without = "\n".join([*lines[:at], f"{indent}{mark[3] or 'pass'}  # without {order}", *lines[at + 1 :]]) + "\n"
                    first, second = (named.get(place) or int(place) for place in mark.groups()[:2])
                    yield Program(f"{name} without {order}", without, order, (first, second), template.ranks, template.since)
