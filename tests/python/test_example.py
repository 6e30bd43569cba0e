"""examples/train_torch.py through `neap run`, unchanged; and what neap relies on in the real PyTorch."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

NEAP = os.environ["NEAP"]
SOURCE = os.environ["NEAP_SOURCE"]
DROPPED = ("PYTHONPATH", "NEAP_ATTACH", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
BOUND = 1000  # for a program that imports PyTorch, even on a busy machine
SCRIPT = os.path.join(SOURCE, "examples", "train_torch.py")


class Example(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "runtime").mkdir(mode=0o700)
        self.environment = {
            **{k: v for k, v in os.environ.items() if k not in DROPPED},
            "NEAP_DEVICE": "sim",
            "NEAP_SIM": f"mem=1GiB,world=example-{os.getpid()}",
            "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "OMP_NUM_THREADS": "1",
        }

        self.addCleanup(self.forget_world)

    def forget_world(self):
        for path in pathlib.Path("/dev/shm").glob(f"neap-sim-*-example-{os.getpid()}"):
            path.unlink(missing_ok=True)

    def run_neap(self, *words, options=()):
        command = [NEAP, "run", "--folder", str(self.folder / "run"), *options, "--", sys.executable, *words]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=BOUND)

    def test_it_goes_through_unchanged(self):
        small = ["--steps", "10", "--batch", "2", "--accumulate", "2", "--width", "16", "--layers", "1", "--context", "8"]
        command = [sys.executable, SCRIPT, *small]
        # Without neap, except for the stand-ins: without them this PyTorch cannot be imported.
        alone = {**self.environment, **{name: os.environ[name] for name in ("PYTHONPATH", "NEAP_SIM_RUNTIME")}}
        plain = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=BOUND, check=True)
        done = self.run_neap(SCRIPT, *small)
        self.assertEqual((done.returncode, done.stdout), (0, plain.stdout), done.stderr)
        self.assertRegex(done.stdout, r"^step 1: loss \d\.\d{4}\nstep 10: loss \d\.\d{4}\n10 steps on cpu\n$")
        self.assertNotIn("note ", done.stderr)

    def test_the_ladder_on_a_real_exception(self):
        script = (
            "import sys, torch\n"
            "assert all(map(hasattr, (torch.cuda, torch._C, torch.cuda, torch.cuda), ('_lazy_call', "
            "'_cuda_attach_out_of_memory_observer', 'memory_snapshot', 'is_current_stream_capturing')))\n"
            "batch, accumulate = map(int, sys.argv[1:])\n"
            "torch.ones(1, requires_grad=True).sum().backward()\n"
            "if batch > 4: raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')\n"
            "print(batch, accumulate)\n"
        )
        ladder = ["--param", "b=8", "--param", "a=1", "--on-oom", "halve b, double a"]
        done = self.run_neap("-c", script, "{b}", "{a}", options=ladder)
        self.assertEqual((done.returncode, done.stdout), (0, "4 2\n"), done.stderr)
        result = json.loads((self.folder / "run" / "result.json").read_text())
        self.assertEqual((result["outcome"], result["retries"], result["ooms"]), ("ok", 1, 1))

    def test_a_training_tells_of_itself(self):
        script = self.folder / "train.py"
        script.write_text(
            "import sys\n"
            "import torch, neap\n"
            "from torch import nn\n"
            "class Tight(nn.Linear):\n"
            "    def forward(self, x):\n"
            "        if len(x) > 4: raise torch.OutOfMemoryError('CUDA out of memory.')\n"
            "        return super().forward(x)\n"
            "model = Tight(4, 1)\n"
            "neap.attach()\n"
            "data = (torch.zeros(24, 4), torch.zeros(24, 1))\n"
            "neap.Training(model, torch.optim.SGD(model.parameters(), lr=1.0), nn.functional.mse_loss, data, batch_size=8).train()\n"
        )
        done = self.run_neap(str(script))
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads((self.folder / "run" / "result.json").read_text())
        self.assertEqual((result["steps"], result["rungs"], result["attached"]), (3, 1, True))
        self.assertGreater(result["last_loss"], 0)
        self.assertEqual(result["rung"], "micro_batch 8 -> 4, accumulate 1 -> 2")

    def torchrun(self, text, *words, options=()):
        """Two ranks of a script, without a network."""
        script = self.folder / "ranks.py"
        script.write_text("import sys, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n" + text)
        self.environment["GLOO_SOCKET_IFNAME"] = "lo"
        here = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]  # 0: a port that is free
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", *here]
        return self.run_neap(*torchrun, str(script), *words, options=options)

    def test_a_rank_that_runs_out_ends_all_and_each_reports_it(self):
        done = self.torchrun(
            "import neap\n"
            "neap.attach()\n"  # the first use of CUDA does this
            "dist.all_reduce(torch.ones(1))\n"
            "if dist.get_rank() == 1: raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')\n"
            "dist.all_reduce(torch.ones(1))\n"  # the other rank waits here for a rank that has exited
            "print('done')\n"
        )
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        result = json.loads((self.folder / "run" / "result.json").read_text())
        self.assertEqual(result["outcome"], "oom")
        self.assertIn("CUDA out of memory. Tried to allocate 2.00 GiB.", result["evidence"])
        self.assertEqual([(r["role"], r["rank"], r["local_rank"]) for r in result["ranks"]], [("rank", 0, 0), ("rank", 1, 1)])
        self.assertRegex(done.stderr, r"\n  rank 1    \d+: peak 0 B allocated")

    @unittest.skipUnless(os.environ.get("NEAP_LONG"), "six processes that import PyTorch: in ./test --long")
    def test_after_a_rank_ran_out_the_ladder_goes_on_with_all(self):
        done = self.torchrun(
            "batch = int(sys.argv[1])\n"
            "if dist.get_rank() == 1 and batch > 4:\n"
            "    raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')\n"
            "dist.all_reduce(torch.ones(1))\n"
            "if dist.get_rank() == 0: print('done', batch, flush=True)\n",
            "{b}",
            options=["--param", "b=8", "--on-oom", "halve b"],
        )
        self.assertEqual((done.returncode, done.stdout), (0, "done 4\n"), done.stderr)


class Documented(unittest.TestCase):
    """The first things that docs/python.md shows exist and work as it says."""

    def setUp(self):
        self.text = pathlib.Path(SOURCE, "docs", "python.md").read_text(encoding="utf-8")

    def test_the_five_lines(self):
        (lines,) = re.findall(r"^```python\n(import neap\n.*?)^```$", self.text, re.M | re.S)
        self.assertEqual(len(lines.splitlines()), 5)
        code = (
            "import torch\nfrom torch import nn\n"
            "model = nn.Linear(4, 1)\noptimizer = torch.optim.AdamW(model.parameters())\nloss_fn = nn.functional.mse_loss\n"
            "data = (torch.zeros(64, 4), torch.ones(64, 1))\n" + lines + "assert set(torch.load('model.pt')) >= {'model', 'optimizer'}\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=BOUND)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no CUDA device", done.stdout)

    def test_the_table(self):
        import neap

        table = self.text[self.text.index("| what you used to write by hand |") :].split("\n\n")[0]
        names = set()
        commands = set()
        for row in table.splitlines()[2:]:
            for span in re.findall(r"`([^`]+)`", row.split("|")[2]):
                if span.startswith("neap "):
                    commands.add(span)
                elif span.startswith("neap.integrations."):
                    path = pathlib.Path(neap.__file__).parent / "integrations" / (span.split(".")[2] + ".py")
                    self.assertIn("class " + span.split(".")[3], path.read_text(encoding="utf-8"))
                elif span.startswith("@pytest.mark."):
                    self.assertIn("gpu_memory", pathlib.Path(neap.__file__).with_name("pytest_plugin.py").read_text(encoding="utf-8"))
                elif span != "except":
                    names.add(span)
        self.assertGreater(len(names), 15)
        for span in names:
            first, *rest = [name for name in re.findall(r"([A-Za-z_]\w*)\(", span)]
            self.assertTrue(callable(getattr(neap, first)), span)
            for name in rest:
                self.assertTrue(callable(getattr(getattr(neap, first), name)), span)
        self.assertGreater(len(commands), 3)
        for command in commands:
            shown = subprocess.run([NEAP, "help", command.split()[1]], capture_output=True, text=True, check=True).stdout
            for option in re.findall(r"--[\w-]+", command):
                self.assertIn(option, shown)


if __name__ == "__main__":
    unittest.main()
