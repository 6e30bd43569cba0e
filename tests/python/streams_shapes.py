"""More programs for test_streams.py: one for each shape that streams_programs.py lacks."""

from streams_programs import Template

TEMPLATES = (
    Template(
        "generator",
        """
def ahead(hosts):
    side = torch.cuda.Stream()
    def load(host):
        with torch.cuda.stream(side):
            return host.to("cuda", non_blocking=True)  #@ copy
    following = load(next(hosts))
    for host in hosts:
        torch.cuda.current_stream().wait_stream(side)  #! copy>use
        batch, following = following, load(host)
        batch.record_stream(torch.cuda.current_stream())  #! use>copy
        yield batch
    torch.cuda.current_stream().wait_stream(side)
    yield following

weight = torch.ones(1 << 12, device="cuda")
pinned = [torch.full((1 << 12,), float(i)).pin_memory() for i in range(5)]
for batch in ahead(iter(pinned)):
    weight = weight + batch  #@ use
    del batch
torch.cuda.synchronize()
""",
    ),
    Template(
        "pinned memory that comes again",
        """
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
total = torch.zeros(256, device="cuda")
for i in range(24):
    host = $MAKE
    host.fill_(float(i))
    with torch.cuda.stream(side):
        batch = host.to("cuda", non_blocking=True)  #@ copy
    main.wait_stream(side)  #! copy>use
    total = total + batch  #@ use
    batch.record_stream(main)
    back = total.to("cpu", non_blocking=True)
    del batch
torch.cuda.synchronize()
""",
        ({"MAKE": "torch.empty(256, pin_memory=True)"}, {"MAKE": "torch.zeros(256).pin_memory()"}),
    ),
    Template(
        "pinned buffer by NumPy's view",
        """
buffer = torch.empty(1 << 12, pin_memory=True)
view = buffer.numpy()
x = torch.zeros(1 << 12, device="cuda")
copied = torch.cuda.Event()
for i in range(8):
    copied.synchronize()  #! copy>fill
    host = torch.from_numpy(view)
    host.fill_(float(i))  #@ fill
    x.copy_(host, non_blocking=True)  #@ copy
    copied.record()
torch.cuda.synchronize()
""",
    ),
    Template(
        "new pinned memory by NumPy's view",
        """
total = torch.zeros(256, device="cuda")
copied = torch.cuda.Event()
for i in range(32):
    host = $MAKE
    view = $VIEW
    view.fill_(float(i))
    total += view.to("cuda", non_blocking=True)  #@ copy
copied.record()
copied.synchronize()  #! copy>fill
view.fill_(0.0)  #@ fill
torch.cuda.synchronize()
""",
        (
            {"MAKE": "torch.empty(256, pin_memory=True)", "VIEW": "torch.from_dlpack(host)"},
            {"MAKE": "torch.zeros(256).pin_memory()", "VIEW": "torch.from_numpy(host.numpy())"},
        ),
    ),
    Template(
        "record_stream of a view",
        """
side = torch.cuda.Stream()
x = torch.ones(64, 256, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x[3:5].t().sum()  #@ use
x[3:5, 7:].record_stream(side)  #! use>again: x[3:5, 7:].clone().record_stream(side)
del x
z = torch.zeros(64, 256, device="cuda")  #@ again
torch.cuda.synchronize()
""",
    ),
    Template(
        "event recorded too early",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
x = torch.ones(1 << 12, device="cuda")
side.wait_stream(main)
done = torch.cuda.Event()
with torch.cuda.stream(side):
    done.record()
    y = x * 3  #@ work
    done.record()  #! work>use
main.wait_event(done)
z = y + 1  #@ use
y.record_stream(main)
torch.cuda.synchronize()
""",
    ),
    Template(
        "two events",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
a, b = torch.zeros(1 << 12, device="cuda"), torch.zeros(1 << 12, device="cuda")
first, second = torch.cuda.Event(), torch.cuda.Event()
side.wait_stream(main)
with torch.cuda.stream(side):
    a.add_(1)
    first.record()
    b.add_(2)  #@ work
    second.record()
main.wait_event(second)  #! work>use: main.wait_event(first)
total = a + b  #@ use
torch.cuda.synchronize()
""",
    ),
    Template(
        "an event used again",
        """
side, other = torch.cuda.Stream(), torch.cuda.Stream()
main = torch.cuda.current_stream()
x = torch.zeros(1 << 12, device="cuda")
event = torch.cuda.Event()
side.wait_stream(main)
with torch.cuda.stream(side):
    x.add_(1)
event.record(side)
other.wait_event(event)
with torch.cuda.stream(other):
    x.mul_(2)  #@ work
event.record(other)  #! work>use: event.record(side)
main.wait_event(event)
total = x.sum()  #@ use
torch.cuda.synchronize()
""",
    ),
    Template(
        "host function",
        """
import ctypes, threading
cuda = ctypes.CDLL("libcuda.so.1")
side = torch.cuda.Stream()
host = torch.empty(1 << 12, pin_memory=True)
x = torch.ones(1 << 12, device="cuda")
done = threading.Event()
kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
call = kind(lambda _: done.set())
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    host.copy_(x, non_blocking=True)  #@ copy
assert cuda.cuLaunchHostFunc(ctypes.c_void_p(side.cuda_stream), call, None) == 0
done.wait()  #! copy>read
total = host.sum()  #@ read
torch.cuda.synchronize()
""",
    ),
    Template(
        "pinned buffer used again",
        """
hosts = [torch.zeros(1 << 12, pin_memory=True) for _ in range(2)]
copied = [torch.cuda.Event() for _ in hosts]
for i in range(6):
    copied[i % 2].synchronize()  #! copy>fill
    hosts[i % 2].copy_(torch.full((1 << 12,), float(i)))  #@ fill
    x = hosts[i % 2].to("cuda", non_blocking=True)  #@ copy
    copied[i % 2].record()
    y = x * 2
torch.cuda.synchronize()
""",
    ),
    Template(
        "graph with a side stream",
        """
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
other = torch.cuda.Stream()
static = torch.zeros(1 << 12, device="cuda")
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        left = static * 2
    right = static + 1
    torch.cuda.current_stream().wait_stream(side)
    result = left + right  #@ replay
for i in range(3):
    static.fill_(float(i))
    graph.replay()
    other.wait_stream(main)  #! replay>use
    with torch.cuda.stream(other):
        out = result.clone()  #@ use
    main.wait_stream(other)  #! use>replay
torch.cuda.synchronize()
""",
    ),
    Template(
        "external stream",
        """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
raw = ctypes.c_void_p()
x = torch.ones(1 << 12, device="cuda")
assert cuda.cuStreamCreate(ctypes.byref(raw), 1) == 0
side = torch.cuda.ExternalStream(raw.value)
x.fill_(3)  #@ make
side.wait_stream(torch.cuda.current_stream())  #! make>work
with torch.cuda.stream(side):
    y = x * 2  #@ work
torch.cuda.current_stream().wait_stream(side)  #! work>use
z = y.sum()  #@ use
torch.cuda.synchronize()
del y
""",
    ),
    Template(
        "freed in a thread",
        """
import queue, threading
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
todo = queue.Queue()
def worker():
    while (x := todo.get()) is not None:
        with torch.cuda.stream(side):
            y = x.mul(2)  #@ use
        x.record_stream(side)  #! use>again
        del x
        todo.task_done()
thread = threading.Thread(target=worker)
thread.start()
for i in range(3):
    x = torch.full((1 << 12,), 1.0, device="cuda")
    side.wait_stream(main)
    todo.put(x)
    del x
    todo.join()
    z = torch.zeros(1 << 12, device="cuda")  #@ again
    del z
todo.put(None)
thread.join()
torch.cuda.synchronize()
""",
    ),
    Template(
        "freed by __del__",
        """
side = torch.cuda.Stream()
class Holder:
    def __init__(self):
        self.x = torch.ones(1 << 12, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.y = self.x.exp()  #@ use
    def __del__(self):
        torch.cuda.current_stream().wait_stream(side)  #! use>again
        self.x = self.y = None
for i in range(3):
    holder = Holder()
    del holder
    z = torch.zeros(1 << 12, device="cuda")  #@ again
    del z
torch.cuda.synchronize()
""",
    ),
    Template(
        "DataLoader with pinned memory",
        """
from torch.utils.data import DataLoader, TensorDataset
side = torch.cuda.Stream()
weight = torch.ones(64, device="cuda")
loader = DataLoader(TensorDataset(torch.arange(1024.0).view(16, 64)), batch_size=4, pin_memory=True)
for (batch,) in loader:
    with torch.cuda.stream(side):
        x = batch.to("cuda", non_blocking=True)  #@ copy
    torch.cuda.current_stream().wait_stream(side)  #! copy>use
    loss = (x * weight).sum()  #@ use
    x.record_stream(torch.cuda.current_stream())  #! use>copy
    del x
torch.cuda.synchronize()
""",
    ),
    Template(
        "nested streams",
        """
outer, inner = torch.cuda.Stream(), torch.cuda.Stream()
x = torch.ones(1 << 12, device="cuda")
outer.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(outer):
    y = x + 1  #@ made
    inner.wait_stream(outer)  #! made>work
    with torch.cuda.stream(inner):
        z = y * 2  #@ work
    outer.wait_stream(inner)  #! work>back
    w = z + y  #@ back
torch.cuda.current_stream().wait_stream(outer)
total = w.sum()
torch.cuda.synchronize()
""",
    ),
    Template(
        "priorities",
        """
low, high = torch.cuda.Stream(priority=0), torch.cuda.Stream(priority=-1)
x = torch.zeros(1 << 12, device="cuda")
low.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(low):
    x.add_(1)  #@ first
high.wait_stream(low)  #! first>second
with torch.cuda.stream(high):
    x.mul_(3)  #@ second
high.synchronize()
total = x.sum().item()
""",
    ),
    Template(
        "a second device's default stream",
        """
second = torch.device("cuda", 1)
side = torch.cuda.Stream(second)
x = torch.zeros(1 << 12, device=second)
with torch.cuda.device(1):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)  #@ work
    torch.cuda.current_stream().wait_stream(side)  #! work>use
y = x * 2  #@ use
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
""",
    ),
    Template(
        "synchronized the wrong device",
        """
second = torch.device("cuda", 1)
with torch.cuda.device(1):
    side = torch.cuda.Stream()
    x = torch.zeros(1 << 12, device=second)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)  #@ work
torch.cuda.synchronize(1)  #! work>use: torch.cuda.synchronize(0)
y = x * 2  #@ use
torch.cuda.synchronize(1)
""",
    ),
    Template(
        "a pool of its own",
        """
pool = torch.cuda.MemPool()
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
with torch.cuda.use_mem_pool(pool):
    x = torch.ones(1 << 12, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y = x * 2  #@ use
    main.wait_stream(side)  #! use>again
    del x
    z = torch.zeros(1 << 12, device="cuda")  #@ again
torch.cuda.synchronize()
del z, y, pool
""",
        since="2.5",
    ),
    Template(
        "key and value caches",
        """
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
layers = 4
caches = [torch.full((2, 256), float(i)).pin_memory() for i in range(layers)]
slots = [torch.zeros(2, 256, device="cuda") for _ in range(2)]
loaded = [torch.cuda.Event() for _ in slots]
used = [torch.cuda.Event() for _ in slots]
side.wait_stream(main)
def fetch(layer):
    slot = layer % 2
    with torch.cuda.stream(side):
        side.wait_event(used[slot])  #! attend>copy
        slots[slot].copy_(caches[layer], non_blocking=True)  #@ copy
        loaded[slot].record()
query = torch.ones(256, device="cuda")
for token in range(3):
    fetch(0)
    for layer in range(layers):
        if layer + 1 < layers:
            fetch(layer + 1)
        main.wait_event(loaded[layer % 2])  #! copy>attend
        query = query + (slots[layer % 2] * query).sum(0)  #@ attend
        used[layer % 2].record()
torch.cuda.synchronize()
""",
    ),
    Template(
        "checkpoint on a side stream",
        """
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
layer = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32)).cuda()
x = torch.ones(4, 32, device="cuda", requires_grad=True)
side.wait_stream(main)
with torch.cuda.stream(side):
    y = checkpoint(layer, x, use_reentrant=False)
    loss = y.square().sum()  #@ work
main.wait_stream(side)  #! work>use
shown = loss * 2  #@ use
with torch.cuda.stream(side):
    loss.backward()
    grads = [p.grad for p in layer.parameters()]
main.wait_stream(side)
norm = sum(g.sum() for g in grads)
torch.cuda.synchronize()
""",
    ),
    Template(
        "backward joins by itself",
        """
torch.manual_seed(0)
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
left, right = torch.nn.Linear(32, 32).cuda(), torch.nn.Linear(32, 32).cuda()
x = torch.ones(4, 32, device="cuda")
optimizer = torch.optim.SGD([*left.parameters(), *right.parameters()], lr=0.1)
for step in range(3):
    side.wait_stream(main)  #! step>right
    with torch.cuda.stream(side):
        b = right(x)  #@ right
    a = left(x)
    main.wait_stream(side)  #! right>sum
    loss = (a * b).sum()  #@ sum
    b.record_stream(main)
    loss.backward()
    optimizer.step()  #@ step
    optimizer.zero_grad()
    del a, b, loss
torch.cuda.synchronize()
""",
    ),
    Template(
        "item reads the current stream alone",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
x = torch.ones(1 << 12, device="cuda")
side.wait_stream(main)
with torch.cuda.stream(side):
    total = x.sum()  #@ work
main.wait_stream(side)  #! work>read
value = total.item()  #@ read
""",
    ),
    Template(
        "asked until done",
        """
import time
side = torch.cuda.Stream()
x = torch.ones(1 << 12, device="cuda")
host = torch.empty(1 << 12, pin_memory=True)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    host.copy_(x, non_blocking=True)  #@ copy
    done = torch.cuda.Event()
    done.record()
while not done.query(): time.sleep(0)  #! copy>read
value = host[5].item()  #@ read
""",
    ),
    Template(
        "a stream asked until done",
        """
import time
side = torch.cuda.Stream()
x = torch.ones(1 << 12, device="cuda")
host = torch.empty(1 << 12, pin_memory=True)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    host.copy_(x, non_blocking=True)  #@ copy
while not side.query(): time.sleep(0)  #! copy>read
value = host.numpy().sum()  #@ read
""",
    ),
    Template(
        "out=",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
a, b, c = (torch.ones(1 << 12, device="cuda") for _ in range(3))
side.wait_stream(main)
with torch.cuda.stream(side):
    torch.add(a, b, out=c)  #@ work
main.wait_stream(side)  #! work>use
d = c + a  #@ use
main.synchronize()
""",
    ),
    Template(
        "halves without an order",
        """
left, right = torch.cuda.Stream(), torch.cuda.Stream()
main = torch.cuda.current_stream()
buffer = torch.zeros(2, 1 << 12, device="cuda")
left.wait_stream(main)
right.wait_stream(main)
for i in range(3):
    with torch.cuda.stream(left):
        buffer[0].add_(1)  #@ left
    with torch.cuda.stream(right):
        buffer[1].mul_(2)
main.wait_stream(right)
main.wait_stream(left)  #! left>both
total = buffer.sum()  #@ both
torch.cuda.synchronize()
""",
    ),
    Template(
        "autograd function with a stream",
        """
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2  #@ forward
        torch.cuda.current_stream().wait_stream(side)  #! forward>use
        y.record_stream(torch.cuda.current_stream())
        return y
    @staticmethod
    def backward(ctx, grad):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            g = grad * 2  #@ backward
        torch.cuda.current_stream().wait_stream(side)  #! backward>after
        g.record_stream(torch.cuda.current_stream())
        return g
w = torch.ones(1 << 12, device="cuda", requires_grad=True)
x = w * 3
y = Double.apply(x)
loss = y.sum()  #@ use
loss.backward()  #@ after
torch.cuda.synchronize()
""",
    ),
    Template(
        "threads with streams of their own",
        """
import threading
main = torch.cuda.current_stream()
x = torch.ones(1 << 12, device="cuda")
parts = [None] * 3
streams = [torch.cuda.Stream() for _ in range(3)]
def worker(k):
    with torch.cuda.stream(streams[k]):
        streams[k].wait_stream(main)
        parts[k] = x * k  #@ work
threads = [threading.Thread(target=worker, args=(k,)) for k in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for stream in streams: main.wait_stream(stream)  #! work>sum
total = parts[0] + parts[1] + parts[2]  #@ sum
torch.cuda.synchronize()
""",
    ),
    Template(
        "DLPack",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
x = torch.zeros(1 << 12, device="cuda")
x.add_(1)  #@ made
capsule = x.__dlpack__(stream=side.cuda_stream)  #! made>use: capsule = x.__dlpack__(stream=-1)
with torch.cuda.stream(side):
    y = torch.utils.dlpack.from_dlpack(capsule)
    z = y * 2  #@ use
main.wait_stream(side)
total = z.sum()
torch.cuda.synchronize()
""",
    ),
    Template(
        "freed by a swap",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
weight = torch.nn.Parameter(torch.ones(1 << 12, device="cuda"))
side.wait_stream(main)
with torch.cuda.stream(side), torch.no_grad():
    copy = weight.detach().half()  #@ use
main.wait_stream(side)  #! use>again
weight.data = torch.empty(0, device="cuda")
z = torch.zeros(1 << 12, device="cuda")  #@ again
torch.cuda.synchronize()
""",
    ),
    Template(
        "the cache emptied",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
x = torch.ones(32 << 20, dtype=torch.uint8, device="cuda")
side.wait_stream(main)
with torch.cuda.stream(side):
    y = x + 1  #@ use
del x
torch.cuda.empty_cache()
z = torch.zeros(32 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
""",
    ),
    Template(
        "indices on another stream",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
table = torch.zeros(64, 32, device="cuda")
at = torch.arange(8, device="cuda")
side.wait_stream(main)
with torch.cuda.stream(side):
    table.index_add_(0, at, torch.ones(8, 32, device="cuda"))  #@ work
main.wait_stream(side)  #! work>look
rows = torch.nn.functional.embedding(at, table)  #@ look
torch.cuda.synchronize()
""",
    ),
    Template(
        "made graphed callables",
        """
torch.manual_seed(0)
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
layer = torch.nn.Linear(32, 32).cuda()
x = torch.ones(4, 32, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(layer, (x,))
inputs = torch.zeros(4, 32, device="cuda", requires_grad=True)
for step in range(3):
    side.wait_stream(main)
    with torch.cuda.stream(side), torch.no_grad():
        inputs.fill_(float(step))  #@ fill
    main.wait_stream(side)  #! fill>forward
    graphed(inputs).sum().backward()  #@ forward
torch.cuda.synchronize()
""",
    ),
    Template(
        "saved on the CPU",
        """
torch.manual_seed(0)
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
layer = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Sigmoid(), torch.nn.Linear(32, 1)).cuda()
x = torch.ones(4, 32, device="cuda")
saved = []
def pack(t):
    host = torch.empty(t.shape, dtype=t.dtype, pin_memory=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(t, non_blocking=True)  #@ out
    t.record_stream(side)
    return host
def unpack(host):
    with torch.cuda.stream(side):
        t = host.to("cuda", non_blocking=True)  #@ back
    torch.cuda.current_stream().wait_stream(side)  #! back>grad
    t.record_stream(torch.cuda.current_stream())
    return t
for step in range(2):
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = layer(x).sum()
    loss.backward()  #@ grad
torch.cuda.synchronize()
""",
    ),
    Template(
        "from pageable memory",
        """
side = torch.cuda.Stream()
host = torch.zeros(1 << 12)
for i in range(3):
    host.fill_(float(i))
    with torch.cuda.stream(side):
        x = host.to("cuda", non_blocking=True)  #@ copy
    torch.cuda.current_stream().wait_stream(side)  #! copy>use
    y = x + 1  #@ use
    x.record_stream(torch.cuda.current_stream())
torch.cuda.synchronize()
""",
    ),
    Template(
        "a compiled part",
        """
torch.manual_seed(0)
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
f = torch.compile(lambda x: (x * 2 + 1).relu(), backend="aot_eager")  #@ work
x = torch.ones(1 << 12, device="cuda")
side.wait_stream(main)
with torch.cuda.stream(side):
    y = f(x)
main.wait_stream(side)  #! work>use
z = y.sum()  #@ use
torch.cuda.synchronize()
""",
    ),
    Template(
        "graphs that a compiler makes",
        """
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
compiled = torch.compile(model, backend="cudagraphs")
for i in range(5):
    torch.compiler.cudagraph_mark_step_begin()
    loss = compiled(torch.full((8, 64), float(i), device="cuda")).square().mean()
    loss.backward()
    model.zero_grad()
torch.cuda.synchronize()
""",
    ),
    Template(
        "a stream method before a with",
        """
side = torch.cuda.Stream()
main = torch.cuda.current_stream()
x = torch.ones(1 << 12, device="cuda")
torch.cuda.set_stream(side)
side.wait_stream(main)
y = x * 2  #@ work
torch.cuda.set_stream(main)
side.synchronize()  #! work>use: main.synchronize()
z = y * 2  #@ use
torch.cuda.synchronize()
""",
    ),
    Template(
        "scaler and clip beside",
        """
torch.manual_seed(0)
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
model = torch.nn.Linear(32, 32).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda")
norms = []
for step in range(3):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.ones(4, 32, device="cuda")).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))  #@ norm
    main.wait_stream(side)  #! norm>clear
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=False)  #@ clear
torch.cuda.synchronize()
""",
        since="2.6",
    ),
    Template(
        "hook with a future",
        """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)).cuda()
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
def hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0].div_(2))
parallel.register_comm_hook(None, hook)
for step in range(3):
    optimizer.zero_grad()
    parallel(torch.ones(4, 16, device="cuda")).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "functional collectives",
        """
import torch.distributed._functional_collectives as functional
x = torch.ones(1 << 12, device="cuda")
for step in range(3):
    y = functional.all_reduce(x, "sum", dist.group.WORLD)
    z = y * 2
    x = functional.all_gather_tensor(z, 0, dist.group.WORLD)[: 1 << 12].clone()
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "collective on a side stream",
        """
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
for step in range(3):
    x = torch.full((1 << 12,), float(step), device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        work = dist.all_reduce(x, async_op=True)  #@ reduce
    work.wait()  #! reduce>use: pass
    y = x * 2  #@ use
    x.record_stream(side)
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "collective whose end the watchdog could see",
        """
import time
x = torch.ones(1 << 12, device="cuda")
work = dist.all_reduce(x, async_op=True)  #@ reduce
time.sleep(1.5)
$WAIT  #! reduce>use: pass
y = x * 2  #@ use
torch.cuda.synchronize()
""",
        ({"WAIT": "work.wait()"}, {"WAIT": "while not work.is_completed(): time.sleep(0.1)"}),
        ranks=2,
    ),
    Template(
        "work waited on another stream",
        """
main = torch.cuda.current_stream()
side = torch.cuda.Stream()
x = torch.ones(1 << 12, device="cuda")
work = dist.all_reduce(x, async_op=True)  #@ reduce
with torch.cuda.stream(side):
    work.wait()
    y = x + 1
main.wait_stream(side)  #! reduce>use
z = x * 2  #@ use
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "coalesced",
        """
x = [torch.ones(1 << 10, device="cuda") for _ in range(3)]
for step in range(2):
    with dist._coalescing_manager(async_ops=True) as works:  #@ reduce
        for one in x:
            dist.all_reduce(one)
    works.wait()  #! reduce>use
    total = x[0] + x[1]  #@ use
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "FSDP1 with offload",
        """
import warnings; warnings.simplefilter("ignore")
from torch.distributed.fsdp import FullyShardedDataParallel, CPUOffload
torch.manual_seed(0)
model = FullyShardedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)).cuda(), cpu_offload=CPUOffload(True))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    model(torch.ones(4, 32, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "FSDP2 with offload and prefetch",
        """
from torch.distributed.fsdp import fully_shard, CPUOffloadPolicy, MixedPrecisionPolicy
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
for layer in model:
    fully_shard(layer, offload_policy=CPUOffloadPolicy(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
fully_shard(model, offload_policy=CPUOffloadPolicy())
for before, after in zip(model, list(model)[1:]):
    before.set_modules_to_forward_prefetch([after])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(3):
    model(torch.ones(4, 32, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "ZeRO",
        """
from torch.distributed.optim import ZeroRedundancyOptimizer
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32).cuda(), gradient_as_bucket_view=True)
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 32, device="cuda")).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "tensor parallel",
        """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel, RowwiseParallel
torch.manual_seed(0)
mesh = init_device_mesh("cuda", (2,))
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)).cuda()
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    model(torch.ones(4, 32, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "async checkpoint",
        """
import tempfile, torch.distributed.checkpoint as dcp
model = torch.nn.Linear(32, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if dist.get_rank() == 0:
    for step in range(2):
        model(torch.ones(4, 32, device="cuda")).sum().backward()
        hosts = {name: torch.empty_like(p, device="cpu").pin_memory() for name, p in model.state_dict().items()}
        for name, p in model.state_dict().items():
            hosts[name].copy_(p, non_blocking=True)  #@ copy
        torch.cuda.current_stream().synchronize()  #! copy>save
        total = sum(h.sum().item() for h in hosts.values())  #@ save
        optimizer.step()
torch.cuda.synchronize()
""",
        ranks=2,
    ),
    Template(
        "DataParallel",
        """
torch.manual_seed(0)
model = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)).cuda(), device_ids=[0, 1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    model(torch.ones(8, 32, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
""",
    ),
    Template(
        "model over two devices",
        """
torch.manual_seed(0)
a, b = torch.nn.Linear(32, 32).cuda(0), torch.nn.Linear(32, 32).cuda(1)
optimizer = torch.optim.Adam([*a.parameters(), *b.parameters()], lr=0.01)
for step in range(3):
    out = []
    for x in torch.ones(8, 32, device="cuda:0").chunk(4):
        out.append(b(a(x).to("cuda:1", non_blocking=True)).to("cuda:0", non_blocking=True))
    torch.cat(out).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
""",
    ),
    Template(
        "copies between devices beside",
        """
side = torch.cuda.Stream(0)
main = torch.cuda.current_stream(0)
x = torch.ones(1 << 12, device="cuda:0")
for i in range(3):
    side.wait_stream(main)  #! change>copy
    with torch.cuda.stream(side):
        y = x.to("cuda:1", non_blocking=True)  #@ copy
    main.wait_stream(side)  #! copy>change
    x.add_(1)  #@ change
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
""",
    ),
    Template(
        "streams of the pool come again",
        """
main = torch.cuda.current_stream()
x = torch.ones(1 << 12, device="cuda")
streams = [torch.cuda.Stream() for _ in range(40)]
streams[0].wait_stream(main)
with torch.cuda.stream(streams[0]):
    y = x * 2  #@ work
with torch.cuda.stream(streams[32]):
    z = y + 1
main.wait_stream(streams[0])  #! work>use
total = z + y  #@ use
torch.cuda.synchronize()
""",
    ),
    Template(
        "a warm-up for a graph",
        """
torch.manual_seed(0)
model = torch.nn.Linear(32, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.ones(4, 32, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(x).sum().backward()
        optimizer.step()  #@ warm
torch.cuda.current_stream().wait_stream(side)  #! warm>fill
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.no_grad():
    model.weight.mul_(1)  #@ fill
with torch.cuda.graph(graph):
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
for i in range(3):
    x.copy_(torch.full((4, 32), float(i)))
    graph.replay()
    value = loss.item()
""",
    ),
)
