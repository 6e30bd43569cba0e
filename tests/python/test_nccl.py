"""Ranks that train together over NCCL's stand-in, by torchrun, each on a simulated device of its own.

No kernel runs, so gradients are zeros. Data that programs send each other arrives: objects, flags, lengths, sums of
uploaded numbers. Each rank's memory is PyTorch's own, and is compared with the sum of everything the rank must hold:
parameters, gradients, buckets, shards, states.

`test_nccl.py rank FOLDER` is one rank: it runs the scenarios in turn and writes what it saw to FOLDER/RANK.json.
"""

import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

warnings.filterwarnings("ignore")
WIDTH = 1024
LAYERS = 4
LAYER = 4 * WIDTH * WIDTH  # bytes
PARAMETERS = LAYERS * LAYER
WORKSPACE = 32 << 20  # of cuBLAS on an H100
BOUND = 500  # seconds; only a guard against hanging

SCENARIOS = {}


def scenario(*worlds):
    """Runs in worlds of these sizes."""

    def register(function):
        SCENARIOS[function.__name__] = (function, worlds)
        return function

    return register


if sys.argv[1:2] == ["rank"]:
    import torch
    import torch.distributed as dist
    from neap import _values
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    RANK = int(os.environ["RANK"])
    WORLD = int(os.environ["WORLD_SIZE"])


def layers(count=LAYERS):
    return [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count)]


def train(model, optimizer=None, steps=2):
    for _ in range(steps):
        model(torch.zeros(8, WIDTH, device="cuda")).sum().backward()
        if optimizer:
            optimizer.step()
    torch.cuda.synchronize()


def held():
    gc.collect()
    return torch.cuda.memory_allocated()


def rows(*numbers):
    return torch.tensor(numbers).cuda()


# -- what ranks tell each other -----------------------------------------------------------------------------------


@scenario(2, 4, 8)
def values():
    """Tensors that were uploaded."""
    seen = {}
    t = rows(1.0 + RANK, 2.0)
    dist.all_reduce(t)
    seen["sum"] = t.tolist()
    t = rows(RANK == 1)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    seen["flag"] = t.tolist()
    t = torch.tensor([1.5, RANK], dtype=torch.bfloat16).cuda()
    dist.all_reduce(t, op=dist.ReduceOp.AVG)
    seen["average"] = t.tolist()
    t = rows(RANK * 7)
    dist.broadcast(t, WORLD - 1)
    seen["broadcast"] = t.tolist()
    there = [rows(0) for _ in range(WORLD)]
    dist.all_gather(there, rows(RANK))
    seen["gathered"] = [t.item() for t in there]
    sent = torch.arange(2 * WORLD).add(100 * RANK).cuda()
    t = torch.empty_like(sent)
    dist.all_to_all_single(t, sent)
    seen["exchanged"] = t.tolist()
    t = torch.empty(2, dtype=torch.long, device="cuda")
    dist.reduce_scatter_tensor(t, sent)
    seen["scattered"] = t.tolist()
    return seen


@scenario(2, 4, 8)
def objects():
    seen = {}
    everyone = [None] * WORLD
    dist.all_gather_object(everyone, {"rank": RANK, "text": "x" * RANK * 1000})
    seen["all"] = [len(one["text"]) for one in everyone]
    listed = [None, None] if RANK else [{"a": 1}, "b"]
    dist.broadcast_object_list(listed, 0)
    seen["list"] = listed
    gathered = [None] * WORLD if RANK == 0 else None
    dist.gather_object(RANK, gathered, 0)
    seen["gathered"] = gathered
    return seen


@scenario(2, 4)
def messages():
    """A chain: each rank passes on what it received. Then a ring in one batch."""
    t = rows(41.0)
    if RANK > 0:
        t = rows(0.0)
        dist.recv(t, RANK - 1)
    if RANK < WORLD - 1:
        dist.send(t, RANK + 1)
    there = rows(0)
    sending = dist.P2POp(dist.isend, rows(RANK), (RANK + 1) % WORLD)
    for work in dist.batch_isend_irecv([sending, dist.P2POp(dist.irecv, there, (RANK - 1) % WORLD)]):
        work.wait()
    return t.item(), there.item()


@scenario(4)
def groups():
    """Subgroups, made by all ranks."""
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicas", "shards"))
    seen = []
    for dimension in "replicas", "shards":
        t = rows(2**RANK)
        dist.all_reduce(t, group=mesh.get_group(dimension))
        seen.append(t.item())
    return seen


@scenario(2)
def late_results():
    """A result that was not read does not show in the next tensor at its address."""
    seen = []
    for _ in range(3):
        t = torch.full((4,), 1.0 + RANK).cuda()
        dist.all_reduce(t)
        del t
        t = torch.tensor([5.0, 6.0, 7.0, 8.0]).cuda()
        torch.cuda.synchronize()
        seen.append(t.tolist())
        del t
    return seen


@scenario(2)
def many():
    """Further ahead than the ranks' log has room for."""
    t = rows(0)
    for i in range(3000):
        t = rows(i)
        dist.all_reduce(t)
    return t.item()


@scenario(2)
def large():
    """More than one piece of 32 MiB; then data that one rank does not know, and so no rank knows afterwards."""
    t = torch.arange(5 << 20, device="cuda") + RANK
    dist.all_reduce(t)
    seen = [bool((t == 2 * torch.arange(5 << 20, device="cuda") + 1).all())]
    there = torch.empty(2, 5 << 20, dtype=torch.long, device="cuda")
    dist.all_gather_into_tensor(there, t + RANK)
    seen.append(bool((there == torch.stack((t, t + 1))).all()))
    t = torch.ones(9 << 20, device="cuda")
    dist.all_reduce(t)
    seen += [_values.known(t), t.min().item()]
    if RANK:
        torch.ops.neap_values.mark_unknown(t, False)
    dist.all_reduce(t)
    return [*seen, _values.known(t), t.min().item() > 0]


# -- memory -------------------------------------------------------------------------------------------------------


def ddp(**options):
    before = held()
    model = nn.Sequential(*layers()).cuda()
    model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], **options)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return held() - before


@scenario(2, 8)
def ddp_plain():
    return ddp()


@scenario(2, 8)
def ddp_views():
    return ddp(gradient_as_bucket_view=True)


@scenario(2)
def ddp_static():
    return ddp(static_graph=True)


@scenario(2)
def ddp_static_views():
    return ddp(static_graph=True, gradient_as_bucket_view=True)


@scenario(2, 4)
def zero_redundancy():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    before = held()
    model = DistributedDataParallel(nn.Sequential(*layers()).cuda(), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    train(model, optimizer)
    return held() - before


@scenario(2, 4)
def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel

    before = held()
    model = FullyShardedDataParallel(nn.Sequential(*layers()), device_id=torch.cuda.current_device())
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    optimizer.zero_grad()
    return held() - before


def fsdp2(**options):
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    before = held()
    model = nn.Sequential(*(fully_shard(layer.cuda(), **options) for layer in layers()))
    fully_shard(model, **options)
    optimizer = torch.optim.AdamW(model.parameters())
    torch.cuda.reset_peak_memory_stats()
    train(model, optimizer)
    peak = torch.cuda.max_memory_allocated() - before
    optimizer.zero_grad()
    return held() - before, peak


@scenario(2, 4, 8)
def fsdp2_shards():
    return fsdp2()


@scenario(4)
def fsdp2_replicas():
    return fsdp2(mesh=init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicas", "shards")))


@scenario(2, 4)
def tensor_parallel():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    before = held()
    model = nn.Sequential(*layers(2)).cuda()
    parallelize_module(model, init_device_mesh("cuda", (WORLD,)), {"0": ColwiseParallel(), "1": RowwiseParallel()})
    train(model)
    return held() - before


@scenario(4)
def pipeline():
    """A layer for each rank: activations forward, gradients back."""
    before = held()
    layer = layers(1)[0].cuda()
    for _ in range(3):
        x = torch.zeros(8, WIDTH, device="cuda", requires_grad=True)
        if RANK > 0:
            dist.recv(x.data, RANK - 1)
        y = layer(x)
        gradient = torch.zeros_like(y)
        if RANK < WORLD - 1:
            dist.send(y.detach(), RANK + 1)
            dist.recv(gradient, RANK + 1)
        y.backward(gradient)
        if RANK > 0:
            dist.send(x.grad, RANK - 1)
        del x, y, gradient
    return held() - before


def warm_up():
    """Memory that a process allocates once: cuBLAS's workspaces, for this thread and for autograd's."""
    layer = nn.Linear(64, 64, bias=False).cuda()
    layer(torch.zeros(4, 64, device="cuda")).sum().backward()
    torch.cuda.synchronize()


def be_a_rank(folder):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    warm_up()
    dist.init_process_group("nccl")
    dist.barrier()
    seen = {}
    for name, (function, worlds) in SCENARIOS.items():
        if WORLD in worlds:
            before = held()
            seen[name] = function()
            seen[name + " left"] = held() - before
    dist.barrier()
    pathlib.Path(folder, f"{RANK}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


# -- the tests ----------------------------------------------------------------------------------------------------


def environment(**more):
    dropped = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC", "NCCL_", "TORCH_NCCL", "CUDA_VISIBLE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**clean, "OMP_NUM_THREADS": "1", "NEAP_SIM": f"8xh100-80gb,world=nccl-{os.getpid()}", **more}


def program(*command, **more):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BOUND,
    )
    return done.returncode, done.stdout


LONG = unittest.skipUnless(os.environ.get("NEAP_LONG"), "many processes that import PyTorch: only with NEAP_LONG=1")


def torchrun(ranks, *arguments, **more):
    return program("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *arguments, **more)


class Ranks:
    """One run of torchrun for all tests of a world."""

    ranks = 0

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="neap-nccl-") as folder:
            code, cls.output = torchrun(cls.ranks, __file__, "rank", folder)
            files = [pathlib.Path(folder, f"{rank}.json") for rank in range(cls.ranks)] if code == 0 else []
            cls.seen = [json.loads(file.read_text()) for file in files]

    def setUp(self):
        self.assertTrue(self.seen, self.output[-4000:])

    def each(self, name):
        """What each rank saw in a scenario."""
        return [seen[name] for seen in self.seen]

    def near(self, got, wanted):
        """A counter or two may come on top of the counted bytes."""
        self.assertTrue(0 <= got - wanted <= 2048, (got, wanted))

    def every_rank_holds(self, name, wanted):
        for got in self.each(name):
            self.near(got, wanted)

    def test_nothing_is_left(self):
        for name in self.seen[0]:
            if name.endswith(" left") and not name.startswith("fsdp"):  # PyTorch keeps shards of an FSDP module that is gone
                self.assertEqual(self.each(name), [0] * self.ranks, name)

    def test_values(self):
        total = sum(range(self.ranks))
        for rank, seen in enumerate(self.each("values")):
            self.assertEqual(seen["sum"], [total + self.ranks, 2.0 * self.ranks])
            self.assertEqual(seen["flag"], [True])
            self.assertEqual(seen["average"], [1.5, total / self.ranks])
            self.assertEqual(seen["broadcast"], [7 * (self.ranks - 1)])
            self.assertEqual(seen["gathered"], list(range(self.ranks)))
            exchanged = [100 * i + 2 * rank + j for i in range(self.ranks) for j in range(2)]
            self.assertEqual(seen["exchanged"], exchanged)
            self.assertEqual(seen["scattered"], [100 * total + self.ranks * (2 * rank + j) for j in range(2)])

    def test_objects(self):
        for rank, seen in enumerate(self.each("objects")):
            self.assertEqual(seen["all"], [1000 * i for i in range(self.ranks)])
            self.assertEqual(seen["list"], [{"a": 1}, "b"])
            self.assertEqual(seen["gathered"], None if rank else list(range(self.ranks)))

    def test_fsdp2(self):
        """A shard of the parameters and of both states of AdamW. At the peak also a shard of the gradients, two
        layers whole with the buffers for their gather and scatter, and cuBLAS's workspace if PyTorch allocates it for
        each product.
        """
        for held_bytes, peak in self.each("fsdp2_shards"):
            self.near(held_bytes, 3 * PARAMETERS // self.ranks)
            self.assertGreaterEqual(peak, 4 * PARAMETERS // self.ranks + 2 * LAYER)
            self.assertLess(peak, 4 * PARAMETERS // self.ranks + 5 * LAYER + WORKSPACE)


class TwoRanks(Ranks, unittest.TestCase):
    ranks = 2

    def test_large(self):
        self.assertEqual(self.each("large"), [[True, True, True, 2.0, False, True]] * 2)

    def test_messages(self):
        self.assertEqual(self.each("messages"), [[41.0, 1], [41.0, 0]])

    def test_far_ahead(self):
        self.assertEqual(self.each("many"), [2 * 2999] * 2)

    def test_late_results(self):
        self.assertEqual(self.each("late_results"), [[[5.0, 6.0, 7.0, 8.0]] * 3] * 2)

    def test_ddp(self):
        """Parameters, gradients, and buckets, unless the gradients are views of them."""
        self.every_rank_holds("ddp_plain", 3 * PARAMETERS)
        self.every_rank_holds("ddp_views", 2 * PARAMETERS)
        self.every_rank_holds("ddp_static", 3 * PARAMETERS)
        self.every_rank_holds("ddp_static_views", 2 * PARAMETERS)

    def test_zero_redundancy(self):
        self.every_rank_holds("zero_redundancy", 2 * PARAMETERS + 2 * PARAMETERS // 2)

    def test_fsdp1(self):
        self.every_rank_holds("fsdp1", 3 * PARAMETERS // 2)

    def test_tensor_parallel(self):
        self.every_rank_holds("tensor_parallel", 2 * 2 * LAYER // 2)


@LONG
class FourRanks(Ranks, unittest.TestCase):
    ranks = 4

    def test_messages(self):
        self.assertEqual(self.each("messages"), [[41.0, 3], [41.0, 0], [41.0, 1], [41.0, 2]])

    def test_groups(self):
        self.assertEqual(self.each("groups"), [[1 + 4, 1 + 2], [2 + 8, 1 + 2], [1 + 4, 4 + 8], [2 + 8, 4 + 8]])

    def test_zero_redundancy(self):
        self.every_rank_holds("zero_redundancy", 2 * PARAMETERS + 2 * PARAMETERS // 4)

    def test_fsdp1(self):
        self.every_rank_holds("fsdp1", 3 * PARAMETERS // 4)

    def test_fsdp2_replicas(self):
        for held_bytes, _ in self.each("fsdp2_replicas"):
            self.near(held_bytes, 3 * PARAMETERS // 2)

    def test_tensor_parallel(self):
        self.every_rank_holds("tensor_parallel", 2 * 2 * LAYER // 4)

    def test_pipeline(self):
        self.every_rank_holds("pipeline", 2 * LAYER)


@LONG
class EightRanks(Ranks, unittest.TestCase):
    ranks = 8

    def test_ddp(self):
        self.every_rank_holds("ddp_plain", 3 * PARAMETERS)
        self.every_rank_holds("ddp_views", 2 * PARAMETERS)


DATA_PARALLEL = """
import os
import torch
from torch import nn
from torch.cuda import comm
model = nn.DataParallel(nn.Linear(1024, 1024, bias=False).cuda(), device_ids=[0, 1])
x = torch.zeros(64, 1024, device="cuda")
for _ in range(3):
    y = model(x)
    assert y.shape == (64, 1024) and y.device.index == 0
    y.sum().backward()
torch.cuda.synchronize(0), torch.cuda.synchronize(1)
layer = 4 * 1024 * 1024
assert torch.cuda.memory_allocated(0) >= 2 * layer, torch.cuda.memory_allocated(0)
assert torch.cuda.max_memory_allocated(1) >= 2 * layer, torch.cuda.max_memory_allocated(1)
there = comm.broadcast(torch.arange(10.0).cuda(0), devices=[0, 1])
print([t.device.index for t in there], there[1].tolist(), flush=True)
os._exit(0)  # PyTorch's threads of the backward pass may still hold objects: Python ends them inside C++, which aborts
"""

ON_ONE_DEVICE = """
import torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
dist.all_reduce(torch.ones(1).cuda())
torch.cuda.synchronize()
"""

BEGIN = """
import datetime, os, signal, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=4))
t = torch.ones(3).cuda()
dist.all_reduce(t)
torch.cuda.synchronize()
"""

OTHER_SHAPES = BEGIN + """
from torch import nn
try:
    nn.parallel.DistributedDataParallel(nn.Linear(8, 8 + rank).cuda())
    signal.pause()  # torchrun ends this rank, whose parameters the other one compared with its own
except RuntimeError as error:
    print("error:", error, flush=True)
    os._exit(3)
"""

NEVER_CALLS = BEGIN + """
if rank == 1:
    signal.pause()
print("complete:", dist.all_reduce(t, async_op=True).is_completed(), flush=True)
torch.cuda.synchronize()
signal.pause()  # PyTorch's watchdog ends this
"""

DIES = BEGIN + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        dist.all_reduce(t)
        torch.cuda.synchronize()
except RuntimeError as error:
    print("error:", error, flush=True)
    os._exit(3)
"""


class Alone(unittest.TestCase):
    def run_script(self, ranks, code, **more):
        with tempfile.TemporaryDirectory(prefix="neap-nccl-") as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(code)
            return torchrun(ranks, str(script), **more)

    def test_data_parallel(self):
        """A batch over two devices of one process."""
        code, output = program("-c", DATA_PARALLEL)
        self.assertEqual(code, 0, output)
        self.assertIn("[0, 1] [0.0, 1.0, 2.0", output)

    @LONG
    def test_two_ranks_on_one_device(self):
        code, output = self.run_script(2, ON_ONE_DEVICE, NCCL_DEBUG="WARN")
        self.assertNotEqual(code, 0)
        self.assertIn("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device", output)

    @LONG
    def test_ddp_compares_shapes(self):
        code, output = self.run_script(2, OTHER_SHAPES)
        self.assertNotEqual(code, 0)
        self.assertRegex(output, "error: .*(shape|sizes)")

    def test_a_rank_that_never_calls(self):
        """PyTorch's watchdog ends the wait, as on a GPU."""
        code, output = self.run_script(2, NEVER_CALLS)
        self.assertNotEqual(code, 0)
        self.assertIn("complete: False", output)
        self.assertRegex(output, "(?i)timed out|timeout")

    def test_a_rank_that_dies(self):
        code, output = self.run_script(2, DIES)
        self.assertNotEqual(code, 0)
        self.assertRegex(output, "rank 1 has died|another rank failed or ended|ncclRemoteError")


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        be_a_rank(sys.argv[2])
    else:
        unittest.main()
