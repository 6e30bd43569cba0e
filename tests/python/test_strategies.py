"""neap.efficient_forward, and the strategies of Training: the memory that each saves, predicted and measured; equal
losses."""

import gc
import os
import sys
import unittest
import unittest.mock
import warnings

os.environ.setdefault("NEAP_SIM", f"mem=4GiB,values=none,world=strategies-{os.getpid()}")
warnings.filterwarnings("ignore")
import neap
import torch
from neap import _recompute
from torch import nn

MIB = 1 << 20
torch.set_num_threads(1)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Attending(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.up = nn.Linear(width, 8 * width)
        self.down = nn.Linear(8 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        x = x + nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        return x + self.down(torch.tanh(self.up(x)))


def make(layers=4, length=512):
    torch.manual_seed(5)
    model = nn.Sequential(*(Attending() for _ in range(layers))).to(DEVICE)
    inputs = torch.randn(4, length, 128, device=DEVICE)
    return model, lambda: model(inputs).square().mean()


class Attention:
    """PyTorch's choice of attention as a test wants it, put back afterwards."""

    def __init__(self, efficient):
        self.efficient = efficient

    def __enter__(self):
        backend = torch.backends.cuda
        self.before = backend.flash_sdp_enabled(), backend.mem_efficient_sdp_enabled()
        backend.enable_flash_sdp(self.efficient)
        backend.enable_mem_efficient_sdp(self.efficient)

    def __exit__(self, *_):
        torch.backends.cuda.enable_flash_sdp(self.before[0])
        torch.backends.cuda.enable_mem_efficient_sdp(self.before[1])


def peak(model, loss):
    """A step of the program's own."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    torch.autograd.grad(loss(), list(model.parameters()))
    return torch.cuda.max_memory_allocated()


class Forward(unittest.TestCase):
    def check(self, strategy, name):
        self.assertEqual(strategy.name, name)
        self.assertLess(strategy.measured, 0.9 * strategy.before, strategy)
        self.assertLessEqual(abs(strategy.predicted - strategy.measured), 0.15 * strategy.before, strategy)
        self.assertIn(" predicted, ", str(strategy))

    def own_peak(self, forward, model, loss):
        def under():
            with forward:
                return loss()

        return peak(model, under)

    def test_mixed_precision(self):
        model, loss = make()
        forward = neap.efficient_forward(model, loss, mixed_precision="bf16")
        self.check(forward.strategies[-1], "mixed precision (bfloat16)")
        with forward:
            self.assertEqual(model[0].up(torch.randn(3, 128, device=DEVICE)).dtype, torch.bfloat16)
        self.assertEqual(model[0].up(torch.randn(3, 128, device=DEVICE)).dtype, torch.float32)
        if DEVICE == "cuda":  # the loop's own peak is what was reported
            self.assertLessEqual(abs(self.own_peak(forward, model, loss) - forward.strategies[-1].measured), MIB)

    def test_attention(self):
        model, loss = make()
        with Attention(efficient=False):
            forward = neap.efficient_forward(model, loss)
            self.check(forward.strategies[0], "memory-efficient attention")
            self.assertEqual(len(forward.strategies), 1)
            self.assertTrue(torch.backends.cuda.mem_efficient_sdp_enabled())
            self.assertEqual(neap.efficient_forward(model, loss).strategies, ())  # it is on already
        with Attention(efficient=False):
            neap.efficient_forward(model, loss, efficient_attention=False)
            self.assertFalse(torch.backends.cuda.mem_efficient_sdp_enabled())

    def test_both_and_equal_values(self):
        model, loss = make()
        state = torch.random.get_rng_state()
        plain = loss().item()
        with Attention(efficient=False):
            forward = neap.efficient_forward(model, loss, mixed_precision=True)
            first, second = forward.strategies
            self.assertEqual(second.before, first.measured)
            with forward:
                found = loss().item()
            efficient = loss().item()
        self.assertTrue(torch.equal(state, torch.random.get_rng_state()))
        self.assertTrue(all(p.grad is None for p in model.parameters()))
        self.assertAlmostEqual(efficient, plain, places=5)
        self.assertAlmostEqual(found, plain, delta=0.02 * abs(plain))  # bfloat16 has 8 bits

    def test_a_model_of_transformers_that_computes_attention_itself(self):
        try:
            import transformers
        except ImportError:
            self.skipTest("no transformers")
        sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 128, "n_positions": 512, "attn_pdrop": 0.0}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, attn_implementation="eager")).to(DEVICE)
        if not callable(getattr(model, "set_attn_implementation", None)):
            self.skipTest("this transformers cannot change a model's attention")
        tokens = torch.zeros(2, 512, dtype=torch.long, device=DEVICE)
        forward = neap.efficient_forward(model, lambda: model(tokens, labels=tokens).loss)
        self.check(forward.strategies[0], "memory-efficient attention")
        self.assertEqual(model.config._attn_implementation, "sdpa")

    @unittest.skipIf(DEVICE == "cpu", "memory does not run out on the CPU")
    def test_what_did_not_fit_before(self):
        model, loss = make(length=1024)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        with Attention(efficient=False):
            limit = 0.75 * peak(model, loss)
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
            forward = neap.efficient_forward(model, loss)
        self.assertIsNone(forward.strategies[0].before)
        self.assertIn("did not fit before", str(forward))
        self.assertLess(forward.strategies[0].measured, limit)


@unittest.skipIf(DEVICE == "cpu" and not os.environ.get("NEAP_LONG"), "it computes for a minute: only with NEAP_LONG=1")
class Trained(unittest.TestCase):
    """The same by Training."""

    DATA = (torch.randn(32, 256, 128), torch.randn(32, 256, 128))

    def train(self, **options):
        gc.collect()  # an earlier training would be part of the figures
        model, _ = make(layers=6)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        options = {"batch_size": 8, "cleanup": neap.CleanupOptions(on_start=False), **options}
        return neap.Training(model, optimizer, nn.functional.mse_loss, self.DATA, **options).train()

    def test_checkpointing_within_a_budget(self):
        plain = self.train()
        self.assertEqual(plain.strategies, ())
        every = self.train(gradient_checkpointing="1MiB").strategies[0]
        self.assertIn("6 of 6 layers; the budget of 1.00 MiB cannot be met", str(every))
        budget = (every.before + every.measured) // 2
        result = self.train(gradient_checkpointing=budget)
        (found,) = result.strategies
        self.assertRegex(found.name, r"gradient checkpointing \([1-5] of 6 layers\)")
        self.assertLessEqual(found.measured, budget)
        self.assertLessEqual(abs(found.predicted - found.measured), 0.15 * found.before, found)
        self.assertEqual(result.losses, plain.losses)
        if DEVICE == "cuda":
            self.assertLess(result.peak, plain.peak)
            self.assertLessEqual(result.peak, max(found.measured, every.measured) + MIB)  # the program's own steps

    def test_a_budget_for_accumulated_gradients(self):
        budgets = []
        for accumulate in (1, 2):
            with unittest.mock.patch.object(_recompute, "checkpoint_within", wraps=_recompute.checkpoint_within) as within:
                self.train(gradient_checkpointing="64MiB", accumulate=accumulate)
            budgets.append(within.call_args.args[1])
        gradients = sum(p.nbytes for p in make(layers=6)[0].parameters())  # of the first half, during the second
        self.assertEqual(budgets, [64 * MIB, 64 * MIB - gradients])

    def test_measured_precision_and_attention(self):
        with Attention(efficient=False):
            result = self.train(mixed_precision=True, efficient_attention=True, watch=neap.WatchOptions(measure_strategies=True))
        names = [found.name for found in result.strategies]
        self.assertEqual(names, ["memory-efficient attention", "mixed precision (bfloat16)"])
        for found in result.strategies:
            self.assertLess(found.measured, found.before, found)
        if DEVICE == "cuda":
            self.assertLess(result.peak, result.strategies[0].before)

    def test_attention_without_measuring(self):
        with Attention(efficient=False):
            result = self.train(efficient_attention=True)
            self.assertTrue(torch.backends.cuda.mem_efficient_sdp_enabled())
        self.assertEqual(result.strategies, ())

    def test_a_size_that_is_none(self):
        with self.assertRaises(ValueError):
            self.train(gradient_checkpointing="much")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
