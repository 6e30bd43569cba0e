"""neap.checkpoint_within: which layers are computed again under a budget; equal values, predicted and measured peaks."""

import dataclasses
import itertools
import os
import random
import sys
import unittest
import warnings

os.environ.setdefault("NEAP_SIM", f"mem=4GiB,world=recompute-{os.getpid()}")
warnings.filterwarnings("ignore")
import neap
import torch
from neap import _recompute
from neap._recompute import Layer
from torch import nn

MIB = 1 << 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Wide(nn.Module):
    """Keeps `width` activations for a sample."""

    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(64, width)
        self.down = nn.Linear(width, 64)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(torch.tanh(self.up(x))))


def make(widths):
    torch.manual_seed(5)
    model = nn.Sequential(*(Wide(width) for width in widths), nn.Sequential(nn.Flatten(), nn.Linear(64, 3))).to(DEVICE)
    inputs = torch.randn(4096, 64, device=DEVICE)
    return model, lambda: model(inputs).square().mean()


class Choice(unittest.TestCase):
    """Pure: layers, the rest and a budget."""

    # 40 stay; each backward pass begins with what the layers up to its own keep.
    LAYERS = [Layer("a", 100, 10.0, 140), Layer("b", 100, 1.0, 240), Layer("c", 50, 1.0, 290), Layer("d", 10, 0.01, 300)]

    def test_nothing_within_the_budget(self):
        self.assertEqual(_recompute.choose(self.LAYERS, 300, 300), set())

    def test_the_cheapest_bytes_first_and_none_too_many(self):
        self.assertEqual(_recompute.choose(self.LAYERS, 300, 250), {1})  # d is even cheaper, but not needed besides b
        self.assertEqual(_recompute.choose(self.LAYERS, 300, 200), {0})  # b would come back while a is kept

    def test_it_is_the_cheapest_of_all_choices(self):
        draw = random.Random(8)
        met = 0
        for _ in range(300):
            layers = [Layer(str(i), draw.randrange(0, 200), draw.uniform(0.1, 9), 0) for i in range(draw.randrange(1, 8))]
            kept = 0
            for i, layer in enumerate(layers):
                kept += layer.saving
                layers[i] = dataclasses.replace(layer, peak=kept + draw.randrange(0, 100))
            forward = kept + draw.randrange(0, 100)
            budget = draw.randrange(forward // 3, forward + 1)
            chosen = _recompute.choose(layers, forward, budget)
            costs = [sum(layers[i].milliseconds for i in some)
                     for n in range(len(layers) + 1) for some in itertools.combinations(range(len(layers)), n)
                     if _recompute.predicted_peak(layers, forward, set(some)) <= budget]  # fmt: skip
            if costs:
                met += 1
                self.assertLessEqual(_recompute.predicted_peak(layers, forward, chosen), budget)
                self.assertAlmostEqual(sum(layers[i].milliseconds for i in chosen), min(costs))
        self.assertGreater(met, 100)

    def test_many_layers_of_large_size(self):
        layers = [Layer(str(i), 300 * MIB + 7 * i, 1.0 + i % 3, (i + 1) * 300 * MIB + 9000) for i in range(96)]
        forward = 96 * 300 * MIB + 9000
        chosen = _recompute.choose(layers, forward, forward // 2)
        self.assertLessEqual(_recompute.predicted_peak(layers, forward, chosen), forward // 2)
        self.assertEqual(len([i for i in chosen if i % 3 == 0]), 32 - (95 - max(chosen)) // 3)  # all cheap ones that can help

    def test_a_layer_comes_back_for_its_own_backward(self):
        self.assertEqual(_recompute.predicted_peak(self.LAYERS, 300, set()), 300)
        self.assertEqual(_recompute.predicted_peak(self.LAYERS, 300, {0, 1, 2, 3}), 140)
        self.assertEqual(_recompute.predicted_peak(self.LAYERS, 300, {1}), 240)  # a, and b for a moment

    def test_what_cannot_be_met(self):
        self.assertEqual(_recompute.choose(self.LAYERS, 300, 10), {0, 1, 2, 3})


class Model(unittest.TestCase):
    def test_within_a_budget(self):
        model, loss = make([1024, 512] * 5)
        free = neap.checkpoint_within(model, 1 << 50, loss)
        self.assertEqual((free.chosen, free.measured, free.layers, free.fits), ((), free.before, 11, True))
        budget = free.before - 40 * MIB
        plan = neap.checkpoint_within(model, budget, loss)
        self.assertTrue(plan.fits, plan)
        self.assertTrue(0 < len(plan.chosen) < 9, plan)
        self.assertLessEqual(abs(plan.predicted - plan.measured), 0.15 * plan.before, plan)
        self.assertEqual(plan.before, free.before)
        self.assertIn(f"{len(plan.chosen)} of 11 layers are computed again", str(plan))

    def test_a_budget_that_cannot_be_met_is_said(self):
        model, loss = make([512, 512])
        with self.assertLogs("neap", "WARNING") as logged:
            plan = neap.checkpoint_within(model, "1MiB", loss)
        self.assertFalse(plan.fits)
        self.assertRegex(str(plan), r": the budget cannot be met, .* are missing$")
        self.assertIn(str(plan), logged.output[0])
        self.assertGreater(plan.measured, MIB)
        self.assertGreaterEqual(len(plan.chosen), 2)

    def test_values_stay_equal_and_nothing_is_left_behind(self):
        model, loss = make([1024, 1024])
        twin, its_loss = make([1024, 1024])
        state = torch.random.get_rng_state()
        plan = neap.checkpoint_within(model, 1, loss)
        self.assertTrue(plan.chosen)
        self.assertTrue(torch.equal(state, torch.random.get_rng_state()))
        self.assertTrue(all(p.grad is None for p in model.parameters()))
        results = []
        for run in (loss, its_loss):
            torch.manual_seed(9)
            value = run()
            value.backward()
            results.append(value.item())
        self.assertEqual(*results)
        if DEVICE == "cpu":  # the simulator runs no kernel
            for one, other in zip(model.parameters(), twin.parameters()):
                self.assertTrue(torch.equal(one.grad, other.grad))

    def test_what_it_cannot_work_on(self):
        with self.assertRaisesRegex(ValueError, "no parameter that needs a gradient"):
            neap.checkpoint_within(nn.Sequential(nn.ReLU()), "1GiB", lambda: None)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
