"""On a real GPU, with a real PyTorch: run by tests/gpu.sh. Prints what it measured, one line a figure, for
docs/gpu-results.md. NEAP: the command, where it is built; else what needs it is skipped."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import torch
from torch import nn
from torch.nn import functional as F

import neap

sys.path.insert(0, os.path.join(os.environ["NEAP_SOURCE"], "examples"))
from train_torch import Model  # noqa: E402

NEAP = os.environ.get("NEAP")
MIB = 1 << 20


def told(name, text):
    print(f"{name}: {text}", flush=True)


def mib(count):
    return f"{count / MIB:.1f} MiB"


def fresh():
    neap.clear_gpu_memory()
    torch.cuda.reset_peak_memory_stats()


@unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
class Gpu(unittest.TestCase):
    def setUp(self):
        fresh()

    def test_statistics_are_pytorchs(self):
        kept = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
        gone = torch.zeros(192 * MIB, dtype=torch.uint8, device="cuda")
        del gone
        found = neap.get_cuda_memory_info()
        self.assertEqual(found.allocated, torch.cuda.memory_allocated())
        self.assertEqual(found.reserved, torch.cuda.memory_reserved())
        self.assertEqual(found.max_allocated, torch.cuda.max_memory_allocated())
        result = neap.clear_gpu_memory()
        self.assertGreaterEqual(result.freed, 192 * MIB)
        self.assertEqual(result.after.allocated, torch.cuda.memory_allocated())
        told("clear", f"gave back {mib(result.freed)} in {result.seconds * 1000:.1f} ms")
        del kept

    def test_what_pins_memory_is_released(self):
        def fail():
            activations = torch.zeros(256 * MIB, dtype=torch.uint8, device="cuda")
            raise ValueError(len(activations))

        try:
            fail()
        except ValueError as error:
            saved = error
        result = neap.clear_gpu_memory(force=True)
        self.assertGreaterEqual(result.released, 256 * MIB)
        self.assertIn("activations of", str(result.lingering[0]))
        told("clear --force", str(result.lingering[0]))
        del saved

    def test_a_fraction_limits(self):
        (done,) = neap.set_memory_fraction(0.1)
        try:
            with self.assertRaises(torch.OutOfMemoryError):
                torch.zeros(done.limit + 64 * MIB, dtype=torch.uint8, device="cuda")
        finally:
            neap.set_memory_fraction(1)

    def test_saving_takes_no_device_memory(self):
        model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8))).cuda()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with tempfile.TemporaryDirectory() as folder:
            saved = neap.save_checkpoint(os.path.join(folder, "model.pt"), model)
            loaded = torch.load(saved.path)
        rise = torch.cuda.max_memory_allocated() - before
        self.assertEqual(loaded["model"]["0.weight"].device.type, "cpu")
        self.assertEqual(rise, 0)
        told("save_checkpoint", f"{mib(saved.bytes)} written, device memory rose by {mib(rise)}")

    def test_offloading_gives_everything_back(self):
        model = nn.Linear(8192, 8192).cuda()
        model(torch.ones(1, 8192, device="cuda")).sum().backward()
        weight, before = model.weight.detach().cpu(), torch.cuda.memory_allocated()
        with neap.offloaded(model):
            self.assertEqual(model.weight.device.type, "cpu")
            told("offloaded", f"{mib(before)} before, {mib(torch.cuda.memory_allocated())} inside")
            self.assertLess(torch.cuda.memory_allocated(), before // 8)
        self.assertEqual((model.weight.device.type, model.weight.grad.device.type), ("cuda", "cuda"))
        self.assertTrue(torch.equal(model.weight.detach().cpu(), weight))

    def peak_of_a_step(self, **options):
        torch.manual_seed(1)
        model = Model(96, 256, 384, 6, 6).cuda()
        data = (torch.randint(96, (64, 256)), torch.randint(96, (64, 256)))
        loss = lambda out, wanted: F.cross_entropy(out.flatten(0, 1), wanted.flatten())
        fresh()
        training = neap.Training(model, torch.optim.AdamW(model.parameters()), loss, data, epochs=3, batch_size=64, **options)
        result = training.train()
        return torch.cuda.max_memory_allocated(), result

    def test_measured_savings_on_a_model_of_nanogpts_size(self):
        plain, first = self.peak_of_a_step()
        for name in ("mixed_precision", "gradient_checkpointing"):
            peak, result = self.peak_of_a_step(**{name: True})
            self.assertLess(peak, plain)
            self.assertLess(abs(result.losses[0] - first.losses[0]), 0.05)
            told(name, f"peak {mib(peak)} instead of {mib(plain)} (-{100 * (plain - peak) / plain:.0f} %)")

    def test_running_out_is_come_through(self):
        torch.manual_seed(1)
        model = Model(96, 256, 384, 6, 6).cuda()
        data = (torch.randint(96, (256, 256)), torch.randint(96, (256, 256)))
        loss = lambda out, wanted: F.cross_entropy(out.flatten(0, 1), wanted.flatten())
        total = torch.cuda.get_device_properties(0).total_memory
        fresh()
        try:
            training = neap.Training(
                model, torch.optim.AdamW(model.parameters()), loss, data, batch_size=256, memory_limit=min(3 << 30, total) / total
            )
            result = training.train()
        finally:
            neap.set_memory_fraction(1)
        self.assertGreater(result.ooms, 0)
        self.assertEqual((result.steps, result.split.effective), (1, 256))
        told("out of memory", f"{result.ooms} times, then {result.split}")


LIVE = """
import os, time, torch
kept = torch.zeros(128 << 20, dtype=torch.uint8, device="cuda")
gone = torch.zeros(512 << 20, dtype=torch.uint8, device="cuda")
del gone
open("ready", "w").close()
end = time.monotonic() + 120
while time.monotonic() < end:
    time.sleep(0.02)
"""


@unittest.skipUnless(torch.cuda.is_available() and NEAP, "no CUDA device, or the command is not built (NEAP)")
class Live(unittest.TestCase):
    def test_the_verbs_on_a_live_process(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            environment = {k: v for k, v in os.environ.items() if k not in ("NEAP_ATTACH", "NEAP_DEVICE")}
            environment.update(XDG_RUNTIME_DIR=folder, XDG_STATE_HOME=folder)
            command = [NEAP, "run", "--folder", "run", "--", sys.executable, "-c", LIVE]
            process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
            stack.callback(process.kill)
            while not pathlib.Path(folder, "ready").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            (recording,) = pathlib.Path(folder, "run").glob("record.*")
            pid = recording.name.split(".")[1]

            def ask(*words):
                done = subprocess.run([NEAP, *words], env=environment, capture_output=True, text=True, check=True)
                return json.loads(done.stdout)

            (device,) = ask("clear", "--pid", pid, "--json")["processes"][0]["devices"]
            self.assertGreaterEqual(device["freed"], 512 * MIB)
            told("neap clear", f"gave back {mib(device['freed'])}")
            (device,) = ask("reset", "--pid", pid, "--json")["processes"][0]["devices"]
            (device,) = ask("fraction", "0.2", "--pid", pid, "--json")["processes"][0]["devices"]
            self.assertAlmostEqual(device["limit"] / device["total"], 0.2, places=3)
            ledger = ask("info", "--json")["devices"][0]["ledger"]
            parts = ("driver_reserved", "contexts", "allocated", "cached", "not_attached", "unexplained", "free")
            self.assertEqual(sum(ledger[part] for part in parts), ledger["total"])
            told("neap info", json.dumps(ledger))
            subprocess.run([NEAP, "kill", "--pid", pid, "--yes"], env=environment, check=True)
            process.wait(60)
            result = json.loads(pathlib.Path(folder, "run", "result.json").read_text())
            self.assertEqual(result["outcome"], "killed")
            self.assertGreaterEqual(result["peak_reserved_bytes"], 640 * MIB)


if __name__ == "__main__":
    print(f"# {time.strftime('%Y-%m-%d')}, ", end="")
    print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no CUDA device", f", PyTorch {torch.__version__}", sep="")
    unittest.main()
