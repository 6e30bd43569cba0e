"""examples/train_torch.py through `neap run`, unchanged; and what neap relies on in the real PyTorch."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

NEAP, SOURCE = os.environ["NEAP"], os.environ["NEAP_SOURCE"]
SCRIPT = os.path.join(SOURCE, "examples", "train_torch.py")


class Example(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "runtime").mkdir(mode=0o700)
        self.environment = {
            **{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NEAP_ATTACH")},
            "NEAP_DEVICE": "sim",
            "NEAP_SIM": f"mem=1GiB,world=example-{os.getpid()}",
            "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "OMP_NUM_THREADS": "1",
        }

    def run_neap(self, *words, options=()):
        command = [NEAP, "run", "--folder", str(self.folder / "run"), *options, "--", sys.executable, *words]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120)

    def test_it_goes_through_unchanged(self):
        small = ["--steps", "10", "--batch", "2", "--accumulate", "2", "--width", "16", "--layers", "1", "--context", "8"]
        command = [sys.executable, SCRIPT, *small]
        plain = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, check=True)
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


if __name__ == "__main__":
    unittest.main()
