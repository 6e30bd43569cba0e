"""neap among people's tools, without the tools and without torch: objects with the methods that the tools document.
docs/python.md says what the tools themselves do with it, with their versions."""

import os
import sys
import types
import unittest

import neap
from neap.integrations import jupyter, trackers

MIB = 1 << 20
DEVICE = neap.DeviceMemory(1, "GPU <b>", "torch", 3 * MIB, 8 * MIB, 5 * MIB, 8 * MIB, None, None)


class Recorder:
    """One of the methods through which trackers take figures."""

    def __init__(self, method):
        self.calls = []
        setattr(self, method, lambda *values, **named: self.calls.append((*values, *named.values())))


class People(unittest.TestCase):
    def setUp(self):
        found = neap.memory.get_gpu_memory_stats
        self.addCleanup(setattr, neap.memory, "get_gpu_memory_stats", found)
        self.stats = neap.MemoryStats((DEVICE,), 7 * MIB, "")
        neap.memory.get_gpu_memory_stats = lambda: self.stats

    def test_trackers(self):
        figures = {"memory/host_mib": 7, "memory/gpu1/allocated_mib": 3, "memory/gpu1/reserved_mib": 8, "memory/gpu1/max_allocated_mib": 5}
        board, mlflow, wandb = (Recorder(method) for method in ("add_scalar", "log_metrics", "log"))
        tracked = trackers.Tracked(board, mlflow, wandb, every_steps=10)
        for step in range(1, 21):
            tracked.step(step)
        self.assertEqual([step for _, step in mlflow.calls], [10, 20])
        self.assertEqual(mlflow.calls[0], (figures, 10))
        self.assertEqual(wandb.calls, [({**figures, "memory/step": step},) for step in (10, 20)])
        self.assertEqual({name: value for name, value, step in board.calls if step == 20}, figures)
        self.assertRaises(TypeError, trackers.log_to, object(), figures, 1)
        self.assertRaises(ValueError, trackers.Tracked, every_steps=0)

    def test_the_trackers_of_an_accelerator(self):
        board = Recorder("log")
        board.name = "tensorboard"
        wandb = Recorder("log")
        wandb.name = "wandb"
        accelerator = types.SimpleNamespace(trackers=[board, wandb], log=lambda *_, **__: self.fail("it does not know the steps"))
        trackers.log_to(accelerator, {"a": 1}, 10)
        self.assertEqual(board.calls, [({"a": 1}, 10)])
        self.assertEqual(wandb.calls, [({"a": 1, "memory/step": 10},)])

    def test_a_tracker_that_fails_fails_alone(self):
        broken = types.SimpleNamespace(log=lambda *_, **__: 1 / 0)
        whole = Recorder("log")
        trackers.Tracked(broken, whole, every_steps=1).step(1)
        self.assertEqual(len(whole.calls), 1)
        self.assertIn("division", neap.describe())

    def test_optuna(self):
        class Pruned(Exception):
            pass

        sys.modules["optuna"] = types.SimpleNamespace(TrialPruned=Pruned)
        self.addCleanup(sys.modules.pop, "optuna")
        from neap.integrations.optuna import prune_out_of_memory

        trial = types.SimpleNamespace(attributes={}, set_user_attr=lambda name, value: trial.attributes.update({name: value}))
        kept = []

        def objective(trial, error):
            kept.append(trial)
            if error:
                raise error
            return 0.5

        tried = prune_out_of_memory(objective)
        self.assertEqual(tried(trial, None), 0.5)
        self.assertRaises(KeyError, tried, trial, KeyError("x"))
        with self.assertRaises(Pruned) as caught:
            tried(trial, RuntimeError("CUDA out of memory. Tried to allocate 2 GiB\nmore"))
        self.assertEqual(trial.attributes, {"out_of_memory": "CUDA out of memory. Tried to allocate 2 GiB"})
        self.assertIsNone(caught.exception.__context__)  # nothing of the error lives on

    def test_notebooks(self):
        shown = self.stats._repr_html_()
        self.assertIn("<td>GPU 1</td><td>GPU &lt;b&gt;</td><td>3.00 MiB</td><td>5.00 MiB</td><td>8.00 MiB</td>", shown)
        self.assertIs(jupyter.neap_magic(""), self.stats)
        made = {}
        jupyter.load_ipython_extension(types.SimpleNamespace(register_magic_function=lambda f, kind, name: made.update({(kind, name): f})))
        self.assertEqual(made, {("line", "neap"): jupyter.neap_magic})
        self.assertIn("neap", repr(jupyter.neap_magic("--version")))
        self.assertIn("[exit status 66]", repr(jupyter.neap_magic("analyze /no/such/file")))
        with open("people.txt", "w", encoding="utf-8") as out:
            out.write("a 1 1048576 0\nf 1\n")
        self.addCleanup(os.remove, "people.txt")
        analyzed = jupyter.neap_magic("analyze people.txt")
        self.assertNotIn("page.html", repr(analyzed))
        self.assertIn('<iframe srcdoc="&lt;!DOCTYPE html&gt;', analyzed._repr_html_())


if __name__ == "__main__":
    unittest.main()
