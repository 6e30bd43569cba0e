"""torch.compile on the simulator, with empty caches: in `neap run`, in its ranks, and in `neap estimate`. Its losses
are those of eager mode."""

import importlib.util
import json
import sys
import unittest

import running

running.BOUND = 400  # two ranks compile, and so do their workers

TRAINING = """
import copy, os, sys, torch
from torch import nn
ranks = int(os.environ.get("WORLD_SIZE", "0"))
torch.manual_seed(0)
x = torch.randn(32, 64)

class Model(nn.Module):  # PyTorch compiles none of its own classes within DDP
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64))

    def forward(self, x):
        return self.body(x)


def train(model, x):
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for step in range(3):
        optimizer.zero_grad()
        part = x[:16] if step == 1 and not ranks else x
        loss = (model(part) - part).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

model = Model()
eager = train(copy.deepcopy(model), x) if "compare" in sys.argv else None
if ranks:
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model, x = model.cuda(), x.cuda()
if ranks:
    model = nn.parallel.DistributedDataParallel(model)
losses = train(torch.compile(model, mode=sys.argv[1], dynamic=False), x)
if eager:
    torch.testing.assert_close(losses, eager, rtol=1e-4, atol=1e-5)
if ranks:
    torch.distributed.destroy_process_group()
sys.stdout.write("the end\\n")
"""


# As in pytorch#193193: two passes through the same checkpointed blocks in one compiled graph, whose backward recomputes several at once.
TWICE = """
import sys, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x, other):
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, -1, 64).transpose(1, 2)
        k, v = self.kv(other).view(batch, length, 2, -1, 64).permute(2, 0, 3, 1, 4)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x, context=None):
        first = self.norms[0](x)
        x = x + self.attend(first, first)
        if context is not None:
            x = x + self.attend(self.norms[1](x), context)
        return x + self.down(nn.functional.gelu(self.up(self.norms[2](x))))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(1024) for _ in range(4))

    def once(self, x, context=None):
        for block in self.blocks:
            x = checkpoint(block, x, context, use_reentrant=False)
        return x.float().square().mean()

    def forward(self, x, context):
        return self.once(x) + self.once(x, context)

model = Model().cuda()
step = torch.compile(model) if "compiled" in sys.argv else model
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, context = torch.randn(BATCH, 256, 1024, device="cuda"), torch.randn(BATCH, 256, 1024, device="cuda")
for _ in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        loss = step(x, context)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@unittest.skipUnless(importlib.util.find_spec("triton"), "Triton is not installed: tools/python_env.sh installs it")
class Compile(running.Case):
    def setUp(self):
        super().setUp()
        (self.folder / "train.py").write_text(TRAINING)
        self.environment.update(
            NEAP_SIM=f"h100-80gb,gpus=2,world={self.world}",
            TORCHINDUCTOR_CACHE_DIR=str(self.folder / "inductor"),
            TRITON_CACHE_DIR=str(self.folder / "triton"),
            PYTHONWARNINGS="error:Using `torch.compile(module)` when there are global hooks",
        )

    def train(self, *command, ranks):
        """Compile workers do not count as processes of the program; they end with it."""
        done = self.command("run", "--folder", "run", "--", sys.executable, *command, "compare")
        self.assertEqual(done.stdout, "the end\n" * ranks, done.stderr)
        self.assertEqual(len(self.recordings()), ranks, done.stderr)
        self.assertNotIn("outside", done.stderr)
        self.assertRegex(done.stderr, "  compiling without what torch.compile took to compile and to choose kernels")
        self.assertTrue(any((self.folder / "inductor").iterdir()))

    def test_ranks(self):
        self.train("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py", "default", ranks=2)

    @running.LONG
    def test_graphs(self):
        self.train("train.py", "reduce-overhead", ranks=1)

    def test_estimate(self):
        """The first two updates compile, each for another size. Memory for timing kernels is not there later."""
        command = ("estimate", "--json", "--gpu", "h100-80gb", "--", sys.executable, "train.py", "default")
        found = json.loads(self.command(*command, TORCHINDUCTOR_COMPILE_THREADS="1").stdout)
        self.assertEqual((found["compiled"], found["compiled_updates"]), (True, [1, 2]))
        without = found["without_compiling"]
        for kind in ("requested_peak", "allocated_peak", "reserved_peak"):
            self.assertGreater(found[kind] - without[kind], 10 * running.MIB)
        self.assertGreater(without["requested_peak"], 32 * running.MIB)  # cuBLAS's workspace stays

    @running.LONG
    def test_report_of_two_checkpointed_passes(self):
        """In eager mode it fits a GPU that the compiled program, as reported, does not fit."""
        (self.folder / "twice.py").write_text(TWICE.replace("BATCH", "160"))
        command = ("estimate", "--json", "--values", "none", "--gpu", "rtx4060-8gb", "--", sys.executable, "twice.py")
        self.assertIs(json.loads(self.command(*command).stdout)["gpus"][0]["fits"], True)
        self.assertIs(json.loads(self.command(*command, "compiled", check=False).stdout)["gpus"][0]["fits"], False)


if __name__ == "__main__":
    unittest.main()
