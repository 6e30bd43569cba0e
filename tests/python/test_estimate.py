"""`neap estimate` on real PyTorch programs: its figures are those of `neap run`, and its predictions for a smaller
device come true on one."""

import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from running import LONG, MIB, NEAP

DROPPED = ("NEAP_ATTACH", "NEAP_RUN", "NEAP_MAX", "NEAP_FRACTION", "NEAP_SIM", "NEAP_ESTIMATE", "RANK", "LOCAL_RANK", "WORLD_SIZE")
KEPT = ("NEAP_SIM_PATH", "NEAP_SIM_RUNTIME")

TRAINING = """
import sys, torch
from torch import nn
batch, width = int(sys.argv[1]), int(sys.argv[2])
model = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(50):
    loss = model(torch.ones(batch, width, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if loss:
        pass
    print(loss.item())
"""

# Ends by itself, and needs no optimizer, whose import takes as long as PyTorch's. A sample takes 128 MiB.
SAMPLES = """
import sys
count = int(sys.argv[1])
import torch
x = torch.ones(count << 25, device="cuda")
print((x.reshape(-1, 1024) @ torch.ones(1024, 8, device="cuda")).sum().item())
"""

# 40 blocks of 30 MiB with 8 MiB between them that stay, then blocks of 60 MiB, which the freed ones cannot serve.
FRAGMENTED = """
import torch
large, small = [], []
for _ in range(40):
    large.append(torch.empty(30 << 20, dtype=torch.uint8, device="cuda"))
    small.append(torch.empty(11 << 20, dtype=torch.uint8, device="cuda"))
    del large[-1]
    large.append(torch.empty(16 << 20, dtype=torch.uint8, device="cuda"))
for i in range(0, 40):
    del large[0]
    small.append(torch.empty(40 << 20, dtype=torch.uint8, device="cuda"))
"""


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in KEPT or not k.startswith(DROPPED)}
    return {**kept, "PYTHONPATH": "", **more}


def setUpModule() -> None:
    """The byte code that Python makes during an estimate is dropped with everything else. So a run makes PyTorch's,
    once for all tests."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = "import torch._dynamo, torch._inductor.compile_fx\n"
        (pathlib.Path(folder) / "train.py").write_text(compiler + TRAINING)
        subprocess.run(
            [NEAP, "run", "--quiet", "--no-history", "--folder", "run", "--max-steps", "1", "--", sys.executable, "train.py", "1", "8"],
            cwd=folder, env=environment(NEAP_DEVICE="sim", NEAP_SIM="h100-80gb,backing=none"), capture_output=True,
        )



class Estimate(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "train.py").write_text(TRAINING)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.base = environment(TMPDIR=str(self.temporary), XDG_STATE_HOME=str(self.folder / "state"))

    def call(self, *arguments: str, code: "int | None" = 0, **more: str) -> "subprocess.CompletedProcess[str]":
        """`code`: the exit status that it must have; None: any."""
        done = subprocess.run([NEAP, *arguments], cwd=self.folder, env={**self.base, **more}, capture_output=True, text=True)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def estimate(self, *arguments: str, options: "tuple[str, ...]" = (), code: int = 0) -> dict:
        """Without the values of its operations, unless `options` ask for them: they take time, but no memory."""
        if "--values" not in options:
            options = (*options, "--values", "none")
        done = self.call("estimate", "--json", *options, "--", sys.executable, *arguments, code=code)
        return json.loads(done.stdout)

    def printed(self, text: str) -> bool:
        """Whether a program of a running estimate printed this: its files are in its own view."""
        try:
            return any(text in log.read_text() for log in self.temporary.glob("neap-*/*/stdout.log"))
        except OSError:
            return False  # of an estimate that has ended

    def ends(self, bytes_for_torch: int, *arguments: str) -> str:
        """How a run ends on a device that leaves PyTorch this much."""
        folder = self.folder / f"run-{bytes_for_torch}"
        sim = f"h100-80gb,mem={bytes_for_torch + 512 * MIB},reserved=0,context={512 * MIB},backing=none,world=estimate-{os.getpid()}"
        subprocess.run(
            [NEAP, "run", "--quiet", "--no-history", "--max-steps", "3", "--folder", folder, "--", sys.executable, *arguments],
            cwd=self.folder, env={**self.base, "NEAP_DEVICE": "sim", "NEAP_SIM": sim}, capture_output=True,
        )
        return json.loads((folder / "result.json").read_text())["outcome"]


class Figures(Estimate):
    def test_are_those_of_a_run(self) -> None:
        found = self.estimate("train.py", "256", "512", options=("--gpu", "h100-80gb", "--values", "auto"))
        sim = f"h100-80gb,backing=none,world=estimate-{os.getpid()}"
        self.call("run", "--quiet", "--no-history", "--max-steps", "3", "--folder", "run", "--", sys.executable, "train.py", "256",
                  "512", NEAP_DEVICE="sim", NEAP_SIM=sim)
        result = json.loads((self.folder / "run" / "result.json").read_text())
        self.assertEqual(found["allocated_peak"], result["peak_allocated_bytes"])
        self.assertEqual(found["reserved_peak"], result["peak_reserved_bytes"])
        self.assertEqual(found["steps"], 5)
        self.assertTrue(found["exact"])
        self.assertEqual(found["backend"], "sim")
        context = found["context"]
        parts = {part["name"]: part for part in context["parts"]}
        for end in ("low", "high"):
            self.assertEqual(context[end], sum(part[end] for part in parts.values()))
        self.assertEqual(context["code_assumed"], sum(part["high"] for part in parts.values() if part["source"] == "assumed"))
        self.assertIn("profile h100-80gb", context["source"]["low"])
        self.assertIn("assumed", context["source"]["high"])
        self.assertEqual(parts["code"]["source"], "computed")
        self.assertRegex(parts["code"]["text"], r"^computed: \d+ kernels, or all of the \d+ modules that they are in, of libtorch_cuda.so$")
        self.assertGreater(parts["code"]["low"], 64 << 10)
        self.assertLess(parts["code"]["low"], 8 * MIB)
        self.assertGreater(parts["code"]["high"], 10 * MIB)
        self.assertLess(parts["code"]["high"], 200 * MIB)
        self.assertLess(parts["cuBLAS code"]["high"], 400 * MIB)
        self.assertGreater(found["requested_peak"], 40 * MIB)
        self.assertEqual(list(self.temporary.glob("neap*")), [], "the runs' folder is gone")
        self.tell_what_it_was_for(found)

    def tell_what_it_was_for(self, found: dict) -> None:
        parameters = 4 * (512 * 2048 + 2048 + 2048 * 512 + 512)
        if tuple(map(int, found["torch"].split(".")[:2])) < (2, 6):
            return  # its snapshots do not show where steps end
        self.assertEqual(found["categories"]["parameters"], parameters)
        self.assertAlmostEqual(found["categories"]["optimizer state"], 2 * parameters, delta=65536)
        self.assertTrue(any("train.py:5 <module>" in line["text"] and line["bytes"] == parameters for line in found["lines"]))

    @LONG
    def test_of_forward_passes(self) -> None:
        """A program without an optimizer can be ended after a few passes; one with an optimizer is not."""
        lines = "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(64, 64)).cuda()\nkept = []\nfor i in range(50):\n" \
            "    kept.append(torch.empty(4 << 20, dtype=torch.uint8, device='cuda'))\n    model(torch.ones(8, 64, device='cuda'))\n"
        (self.folder / "infer.py").write_text(lines)
        found = self.estimate("infer.py", options=("--gpu", "h100-80gb", "--forwards", "3"))
        self.assertEqual((found["forwards"], found["steps"]), (3, 0))
        self.assertTrue(12 * MIB < found["requested_peak"] < 60 * MIB, found["requested_peak"])
        found = self.estimate("train.py", "8", "64", options=("--gpu", "h100-80gb", "--forwards", "1"))
        self.assertEqual((found["forwards"], found["steps"]), (0, 5))

    def test_follow_the_architecture(self) -> None:
        (self.folder / "samples.py").write_text(SAMPLES)
        found = self.estimate("samples.py", "1", options=("--gpu", "h100-80gb,a100-40gb,h200-141gb"))
        hopper, ampere, other = found["gpus"]
        self.assertEqual(hopper["reserved_peak"], other["reserved_peak"])
        self.assertGreater(hopper["allocated_peak"], ampere["allocated_peak"] + 20 * MIB)  # cuBLAS's workspace
        self.assertEqual((hopper["architecture"], ampere["architecture"]), ("sm_90", "sm_80"))


# Convolutions and attention, mixed.
MIXED = """
import torch
from torch import nn
model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(2), nn.Linear(36, 64), nn.TransformerEncoderLayer(64, 4, batch_first=True))
model = model.cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(50):
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(torch.ones(16, 3, 8, 8, device="cuda")).float().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ASKING = TRAINING.replace("optimizer =", "torch.cuda.get_device_capability()\noptimizer =")
ADAPTING = TRAINING.replace("int(sys.argv[2])", "torch.cuda.get_device_properties(0).multi_processor_count")
WRITING = ASKING.replace("model =", "log = open('log', 'w')\nlog.write('begun')\nmodel =").replace("    optimizer.zero_grad()", """
    optimizer.zero_grad()
    log.write(f" {step}")
    log.flush()
    torch.save(model.state_dict(), f"{step}.pt")
    assert open("log").read() == " ".join(["begun", *map(str, range(step + 1))]), open("log").read()
    assert not __import__("os").path.exists(f"{step + 1}.pt")""")
GPUS = ("h100-80gb", "rtx5090-32gb", "a100-40gb", "l4-24gb")


class Shared(Estimate):
    """One command for several GPUs imports PyTorch once, and runs once for all GPUs on which the program does the
    same."""

    def several(self, script: str, *arguments: str, gpus: tuple[str, ...] = GPUS) -> int:
        """Each GPU's part equals an estimate for it alone. Returns how many had a run of their own."""
        runs = self.folder / "runs"
        (self.folder / "train.py").write_text(script)
        command = ("train.py", *arguments)
        found = self.estimate(*command, options=("--gpu", ",".join(gpus), "--folder", str(runs)))
        for gpu, part in zip(gpus, found["gpus"]):
            alone = self.estimate(*command, options=("--gpu", gpu))
            self.assertEqual(part, alone["gpus"][0], gpu)
        abouts = [json.loads(file.read_text()) for file in runs.glob("*/estimate.*.json")]
        self.assertEqual(len(abouts), len(gpus))
        self.forked = len(gpus) - len(list(runs.glob("*/spec.json")))  # `neap run` writes these
        shutil.rmtree(runs)
        return sum(not about.get("shared") for about in abouts)

    @LONG
    def test_where_it_does_the_same(self) -> None:
        self.assertEqual(self.several(TRAINING, "8", "64", gpus=GPUS[:2]), 1)

    @LONG
    def test_each_is_as_a_run_of_its_own(self) -> None:
        """MIXED uses attention, whose kernels depend on the GPU's shared memory: those runs are not shared."""
        self.assertEqual(self.several(MIXED), 4)
        self.assertEqual(self.forked, 3)

    @LONG
    def test_not_with_what_the_gpu_decides(self) -> None:
        for script in (ASKING, ADAPTING):
            self.assertEqual(self.several(script, "8", "64", gpus=GPUS[:2]), 2)
            self.assertEqual(self.forked, 1)

    @LONG
    def test_each_finds_only_what_it_wrote_itself(self) -> None:
        self.assertEqual(self.several(WRITING, "8", "64", gpus=GPUS[:2]), 2)
        self.assertEqual(self.forked, 1)


class Fits(Estimate):
    def test_comes_true(self) -> None:
        """In the smallest memory that the replay finds PyTorch completes, with one page less it does not."""
        arguments = ("train.py", "4096", "1024")
        found = self.estimate(*arguments, options=("--gpu", "h100-80gb"))["gpus"][0]
        self.assertIs(found["fits"], True)
        self.assertEqual(self.ends(found["smallest_memory"], *arguments), "stopped early")
        self.assertEqual(self.ends(found["smallest_memory"] - 2 * MIB, *arguments), "oom")

    @LONG
    def test_is_said_of_a_limit(self) -> None:
        (self.folder / "samples.py").write_text(SAMPLES)
        arguments = ("samples.py", "5")
        found = self.estimate(*arguments, options=("--max-memory", "20GiB"))["gpus"][0]
        self.assertEqual((found["total"], found["fits"]), (20 << 30, True))
        needed = found["smallest_memory"] + found["context"]["high"]
        self.assertEqual(found["headroom"], (20 << 30) - needed)
        found = self.estimate(*arguments, options=("--max-memory", str(needed)))["gpus"][0]
        self.assertEqual((found["fits"], found["headroom"]), (True, 0))
        found = self.estimate(*arguments, options=("--max-memory", str(needed - 2 * MIB)))["gpus"][0]
        self.assertEqual((found["fits"], found["headroom"]), (None, -2 * MIB))
        least = found["smallest_memory"] + found["context"]["low"] - 2 * MIB
        found = self.estimate(*arguments, options=("--max-memory", str(least)), code=1)["gpus"][0]
        self.assertIs(found["fits"], False)

    @LONG
    def test_other_settings_are_replayed(self) -> None:
        (self.folder / "fragmented.py").write_text(FRAGMENTED)
        found = self.estimate("fragmented.py", options=("--gpu", "h100-80gb"))
        gpu = found["gpus"][0]
        self.assertGreater(gpu["smallest_memory"], found["requested_peak"] + 500 * MIB)
        limit = gpu["smallest_memory"] - 200 * MIB + gpu["context"]["high"]
        tight = self.estimate("fragmented.py", options=("--max-memory", str(limit)))["gpus"][0]
        self.assertIsNone(tight["fits"])
        self.assertIn("expandable_segments:True", tight["fits_with"])
        self.assertNotIn("max_split_size_mb:128", tight["fits_with"])

    def test_a_workspace_may_be_what_is_missing(self) -> None:
        """No setting is offered that leaves no memory for the workspace: the defaults end there as well."""
        lines = "import torch\nlast = {'memory_format': torch.channels_last}\nx = torch.zeros(64, 64, 64, 64, device='cuda').to(**last)\n" \
            "torch.nn.Sequential(*[torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(2)]).cuda().to(**last)(x)\n"
        (self.folder / "convolution.py").write_text(lines)
        roomy = self.estimate("convolution.py", options=("--gpu", "t4-16gb"))
        limit = roomy["gpus"][0]["process"]["high"] - roomy["workspace_not_modelled"] // 2
        options = ("--gpu", "t4-16gb", "--max-memory", str(limit))
        found = self.estimate("convolution.py", options=options)
        gpu = found["gpus"][0]
        self.assertEqual((gpu["fits"], gpu["doubt"], gpu["fits_with"]), (None, "workspace", []))
        self.assertTrue(-found["workspace_not_modelled"] <= gpu["headroom"] < 0, gpu["headroom"])
        text = " ".join(self.call("estimate", *options, "--", sys.executable, "convolution.py").stdout.split())
        self.assertRegex(text, r"what may be missing is a workspace whose size only NVIDIA's library knows: up to \d+ MiB")
        self.assertNotIn("PYTORCH_CUDA_ALLOC_CONF", text)

    @LONG
    def test_more_than_any_gpu_has_is_run_with_more(self) -> None:
        found = self.estimate("train.py", "4096", "1024", options=("--gpu", "rtx4060-8gb"))["gpus"][0]
        self.assertIs(found["fits"], True)
        (self.folder / "large.py").write_text("import torch\nx = [torch.empty(1 << 30, device='cuda') for _ in range(5)]\n")
        found = self.estimate("large.py", options=("--gpu", "rtx4060-8gb"), code=1)
        self.assertEqual(found["requested_peak"], 20 << 30)
        self.assertIs(found["gpus"][0]["fits"], False)
        self.assertLess(found["gpus"][0]["headroom"], -(12 << 30))


RANKS = """
import os, sys, torch
x = torch.empty(int(sys.argv[2]) << 20, dtype=torch.uint8, device=f"cuda:{int(os.environ['LOCAL_RANK']) * int(sys.argv[1])}")
"""


class Ranks(Estimate):
    def ranks(self, apart: int, mib: int, gpu: str, code: int = 0) -> dict:
        (self.folder / "ranks.py").write_text(RANKS)
        command = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "ranks.py", str(apart), str(mib))
        return self.estimate(*command, options=("--gpu", gpu), code=code)

    @LONG
    def test_each_has_its_figures(self) -> None:
        found = self.ranks(1, 4096, "2xrtx4060-8gb")
        self.assertEqual([process["rank"] for process in found["processes"]], [0, 1])
        self.assertEqual([process["reserved_peak"] for process in found["processes"]], [4 << 30] * 2)
        self.assertIs(found["gpus"][0]["fits"], True)

    def sharded(self) -> None:
        lines = "import torch, torch.distributed as dist\nfrom torch.distributed.fsdp import fully_shard\n" \
            "dist.init_process_group('nccl')\nmodel = torch.nn.Linear(4096, 8192, bias=False)\nfully_shard(model)\n" \
            "optimizer = torch.optim.SGD(model.parameters())\nmodel(torch.ones(1, 4096, device='cuda')).sum().backward()\noptimizer.step()\n"
        (self.folder / "sharded.py").write_text(lines)
        if not hasattr(__import__("torch.distributed.fsdp").distributed.fsdp, "fully_shard"):
            self.skipTest("this PyTorch has no fully_shard")

    def test_more_than_can_be_started(self) -> None:
        """Sharded over twice as many ranks, half of the parameters is on each."""
        self.sharded()
        found = self.estimate("sharded.py", options=("--gpu", "h100-80gb", "--ranks", "64"))
        shards = [line["bytes"] for line in found["lines"] if "sharded.py:5 " in line["text"]]
        self.assertEqual(shards, [4 * 4096 * 8192 // 64], found["lines"])

    @LONG
    def test_more_than_can_be_started_in_the_words_of_the_report(self) -> None:
        self.sharded()
        text = self.call("estimate", "--gpu", "h100-80gb", "--ranks", "128", "--", sys.executable, "sharded.py").stdout
        self.assertIn("rank 0 of 128", text)
        self.assertRegex(text, r"1\.00 MiB .*sharded\.py:5 ")

    @LONG
    def test_those_that_share_a_gpu_are_added_up(self) -> None:
        found = self.ranks(0, 4096, "rtx4060-8gb", code=1)
        self.assertIs(found["gpus"][0]["fits"], False)
        self.assertIs(self.ranks(0, 3072, "rtx4060-8gb")["gpus"][0]["fits"], True)

    @LONG
    def test_more_than_there_are_gpus(self) -> None:
        (self.folder / "ranks.py").write_text(RANKS)
        command = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "ranks.py", "1", "64")
        done = self.call("estimate", "--gpu", "h100-80gb", "--", sys.executable, *command, code=1)
        self.assertIn("--gpu 8xh100-80gb", done.stderr)


class Help(Estimate):
    @LONG
    def test_fewer_samples_are_predicted(self) -> None:
        """The predicted share of the samples fits when it is run; half as many again do not fit."""
        full = self.estimate("train.py", "65536", "1024", options=("--max-memory", "2GiB"), code=1)["gpus"][0]
        self.assertIs(full["fits"], False)
        share = full["predicted"]["samples_share"]
        self.assertTrue(0.1 < share < 0.6, share)
        changes = [saving["change"] for saving in full["predicted"]["savings"]]
        self.assertIn("gradient checkpointing", changes)
        part = self.estimate("train.py", str(int(65536 * share * 0.95)), "1024", options=("--max-memory", "2GiB"))["gpus"][0]
        self.assertEqual((part["fits"], part["predicted"]), (True, None))
        more = self.estimate("train.py", str(int(65536 * share * 1.6)), "1024", options=("--max-memory", "2GiB"))["gpus"][0]
        self.assertIsNone(more["fits"])
        self.assertLess(more["headroom"], 0)


    def test_changes_are_measured(self) -> None:
        """Each value is run: its figures are those of an estimate with that value. A value with which the program
        fails is reported."""
        (self.folder / "samples.py").write_text(SAMPLES)
        options = ("--max-memory", "2GiB", "--param", "batch=25", "--try", "batch=5", "--try", "batch=many")
        found = self.estimate("samples.py", "{batch}", options=options, code=1)["gpus"][0]
        small = self.estimate("samples.py", "5", options=("--max-memory", "2GiB"))["gpus"][0]
        self.assertIs(found["fits"], False)
        fits, fails = found["tries"]
        for key in ("fits", "headroom", "requested_peak", "allocated_peak", "reserved_peak"):
            self.assertEqual(fits[key], small[key], key)
        self.assertEqual(fits["change"], "batch=5")
        self.assertIs(fits["fits"], True)
        self.assertEqual((fails["failed"], fails["fits"], fails["reserved_peak"]), (True, False, None))

    @LONG
    def test_changes_in_the_words_of_the_report(self) -> None:
        (self.folder / "samples.py").write_text(SAMPLES)
        options = ("--max-memory", "2GiB", "--param", "batch=25", "--try", "batch=5", "--try", "batch=many")
        text = " ".join(self.call("estimate", *options, "--", sys.executable, "samples.py", "{batch}", code=1).stdout.split())
        self.assertRegex(text, r"measured: with batch=5 it fits: [\d.]+ MiB reserved \([\d.]+ GiB less\), [\d.]+ [GM]iB left")
        self.assertIn("measured: with batch=many the program fails", text)

    def test_wrong_tries(self) -> None:
        for options in (("--try", "batch=3"), ("--param", "batch=4", "--try", "batch"), ("--param", "b=4", "--try", "b=3")):
            self.call("estimate", *options, "--", "true", "{batch}", code=64)


class Fit(Estimate):
    def test_the_largest_value_is_found_and_confirmed(self) -> None:
        (self.folder / "samples.py").write_text(SAMPLES)
        options = ("--max-memory", "3GiB", "--fit", "batch", "--param", "batch=10")
        found = self.estimate("samples.py", "{batch}", options=options)
        value = found["gpus"][0]["fit_value"]
        points = {point["value"]: point for point in found["fit"]["points"]}
        self.assertGreater(value, 12)
        self.assertIn(value, points)
        above = min(other for other in points if other > value)
        self.assertEqual(above, value + 1)
        fits, over = (self.estimate("samples.py", str(n), options=options[:2])["gpus"][0] for n in (value, above))
        self.assertEqual((fits["fits"], over["fits"]), (True, None))
        self.assertEqual(points[value]["reserved_peak"], fits["reserved_peak"])
        self.assertLess(points[10]["reserved_peak"], points[value]["reserved_peak"])

    @LONG
    def test_of_large_values_it_is_found_to_a_thousandth(self) -> None:
        options = ("--max-memory", "3GiB", "--fit", "batch", "--param", "batch=100")
        found = self.estimate("train.py", "{batch}", "1024", options=options)
        value = found["gpus"][0]["fit_value"]
        self.assertGreater(value, 10000)
        above = min(point["value"] for point in found["fit"]["points"] if point["value"] > value)
        self.assertLessEqual(above, value + 1 + value // 1024)
        fits, over = (self.estimate("train.py", str(n), "1024", options=options[:2])["gpus"][0] for n in (value, above))
        self.assertEqual((fits["fits"], over["fits"]), (True, None))

    @LONG
    def test_the_page_has_the_curve(self) -> None:
        options = ("--max-memory", "2GiB", "--fit", "batch", "--param", "batch=8192", "--html", "page.html")
        self.call("estimate", *options, "--", sys.executable, "train.py", "{batch}", "1024")
        page = (self.folder / "page.html").read_text()
        self.assertIn("Memory over batch", page)
        self.assertRegex(page, r"<title>8192: [\d.]+ [MG]iB reserved")
        self.assertRegex(page, r'<section class="answer \w+">\n<h2>(Fits on|Does not fit)')
        self.assertIn("What it was for, at the peak of requested memory", page)
        self.assertTrue(page.rstrip().endswith("</html>"))

    def test_wrong_options(self) -> None:
        for options in ((), ("--param", "batch=x"), ("--param", "batch=0"), ("--param", "other=3")):
            self.call("estimate", "--fit", "batch", *options, "--", "true", "{batch}", code=64)
        self.call("estimate", "--fit", "batch", "--param", "batch=3", "--", "true", code=64)


class Plan(Estimate):
    def test_each_way_is_run_at_its_edge(self) -> None:
        """Two ways, by a parameter that doubles what a sample takes."""
        (self.folder / "samples.py").write_text(SAMPLES.replace("int(sys.argv[1])", "int(sys.argv[1]) * int(sys.argv[2])"))
        options = ("--max-memory", "3GiB", "--plan", "24", "--param", "batch=1", "--param", "times=1", "--try", "times=2")
        found = self.estimate("samples.py", "{batch}", "{times}", options=(*options, "--html", "page.html"))["plan"]
        self.assertEqual((found["parameter"], found["samples"], found["processes"], found["cut_short"]), ("batch", 24, 1, False))
        self.assertLessEqual(found["runs"], 10)
        (gpu,) = found["gpus"]
        ways = {" ".join(way["changes"]): way for way in gpu["ways"]}
        self.assertEqual(list(ways), ["", "times=2"])  # the larger micro-batch first
        for way in ways.values():
            self.assertEqual((way["largest"]["fits"], way["open"]), ("yes", False))
            self.assertEqual(way["largest"]["value"] * way["largest"]["accumulation"], 24)
            self.assertIn((way["largest"]["value"], way["next"]["value"]), ((3, 4), (4, 6), (6, 8), (8, 12), (12, 24)))
            self.assertNotEqual(way["next"]["fits"], "yes")
        self.assertGreaterEqual(ways[""]["largest"]["value"], 2 * ways["times=2"]["largest"]["value"] - 4)
        page = (self.folder / "page.html").read_text()
        self.assertIn('<table class="sorts">', page)
        self.assertEqual(page.count("<td>times=2"), 1)

    def test_wrong_options(self) -> None:
        for options in (("0",), ("x", "--param", "batch=1"), ("8",), ("8", "--param", "batch=x"), ("8", "--fit", "size", "--param", "size=1")):
            self.call("estimate", "--plan", *options, "--", "true", "{batch}", code=64)
        (self.folder / "config.json").write_text("{}")
        self.call("estimate", "--plan", "8", "--task", "infer", "--model", "config.json", code=64)


EXTENSION = """
import ctypes, torch

class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]

x = torch.zeros(1024, device="cuda") + 1
runtime = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line))
stub = ctypes.cast(ctypes.CDLL("libm.so.6").cos, ctypes.c_void_p)
register = runtime.__getattr__("__cudaRegisterFatBinary")
register.restype = ctypes.c_void_p
function = runtime.__getattr__("__cudaRegisterFunction")
name = ctypes.create_string_buffer(b"_ZN3ops5scaleEPfi")
function(ctypes.c_void_p(register(stub)), stub, name, name, -1, None, None, None, None, None)
launch = runtime.cudaLaunchKernel
launch.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
for _ in range(3):
    assert launch(stub, Dim3(1, 1, 1), Dim3(32, 1, 1), None, 0, None) == 0
"""


BACKEND = """
import ctypes, sys, torch

PTX = b".version 9.0\\n.target sm_90\\n.address_size 64\\n.visible .entry scale()\\n{\\nret;\\n}\\n"

def launch():
    cuda = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"scale") == 0
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0

def backend(graph, _):
    def run(*arguments):
        if int(sys.argv[1]):
            launch()
        return graph.forward(*arguments)
    return run

x = torch.ones(8, device="cuda")
launch()  # the program's own
torch.compile(lambda x: x + 1, backend=backend)(x)
"""


class Trust(Estimate):
    def test_values_read_back_are_named(self) -> None:
        lines = "import torch\nx = torch.zeros(8, device='cuda')\n" \
            "y = x[x > 0]\nn = x.nonzero()\nif x.sum():\n    pass\ntorch.unique(x)\n" \
            "i = x.long()\nx.cpu()\nx.to('cpu'), x.to('cuda'), x.to(torch.half)\ntorch.where(x), torch.where(x > 0, x, x)\n" \
            "torch.repeat_interleave(x, i), x.repeat_interleave(2)\n" \
            "torch.nn.functional.one_hot(i), torch.nn.functional.one_hot(i, 3)\n" \
            "if __import__('neap')._values.asked() != 'none':\n    torch.tensor([x[0], x[1]])\n" \
            "@torch.jit.script\ndef scripted(x):\n    return torch.where(x > 0, x, -x)\nscripted(x)\n"
        (self.folder / "reads.py").write_text(lines)
        found = self.estimate("reads.py", options=("--gpu", "h100-80gb"))["reads"]
        self.assertEqual(self.estimate("reads.py", options=("--gpu", "h100-80gb", "--values", "auto"))["reads"], [])
        self.assertEqual(
            sorted((read["line"], read["reader"], read["use"], read["count"]) for read in found),
            [(3, "x[mask]", "size", 1), (4, "nonzero", "size", 1), (5, "__bool__", "branch", 1), (7, "unique", "size", 1),
             (9, "cpu", "value", 1), (10, "to", "value", 1), (11, "where", "size", 1), (12, "repeat_interleave", "size", 1),
             (13, "one_hot", "size", 1)],
        )

    def test_a_program_that_fails_by_a_value_that_was_not_computed(self) -> None:
        (self.folder / "asserts.py").write_text(
            "import torch\nx = torch.ones(8192, 8192, device='cuda')\nfor _ in range(3): x = x @ x\nassert x.mean().item() > 2\n")
        done = self.call("estimate", "--gpu", "h100-80gb", "--", sys.executable, "asserts.py", code=1)
        first = next(line for line in done.stderr.splitlines() if "still at run" not in line)
        self.assertRegex(first, r"read a value that was not computed here, only a likely one: .*asserts\.py:4 <module>: item\. --values full")

    @LONG
    def test_values_read_back_in_the_words_of_the_report(self) -> None:
        (self.folder / "branches.py").write_text("import torch\nx = torch.zeros(8, device='cuda').sum()\nfor _ in range(2):\n    if x: pass\n")
        text = self.call("estimate", "--gpu", "h100-80gb", "--values", "none", "--", sys.executable, "branches.py").stdout
        self.assertRegex(text, r"branches.py:4 <module>: __bool__, 2 times; the program branches on it")

    def test_kernels_of_extensions_are_counted_and_named(self) -> None:
        """Registered and launched as a CUDA extension does, at addresses of a library that is not PyTorch's;
        PyTorch's own kernels do not count."""
        (self.folder / "extension.py").write_text(EXTENSION)
        found = self.estimate("extension.py", options=("--gpu", "h100-80gb"))
        kernels = [gap for gap in found["unmodelled"] if gap["kind"] == "kernel"]
        self.assertEqual([(gap["library"], gap["function"], gap["calls"]) for gap in kernels], [("libm", "ops::scale", 3)])

    @LONG
    def test_kernels_of_extensions_in_the_words_of_the_report(self) -> None:
        (self.folder / "extension.py").write_text(EXTENSION)
        text = " ".join(self.call("estimate", "--gpu", "h100-80gb", "--", sys.executable, "extension.py").stdout.split())
        self.assertIn("kernel of an extension, which did nothing: libm ops::scale, 3 calls", text)

    def test_a_convolution_whose_workspace_has_no_bound(self) -> None:
        """The convolution of pytorch#166790, which asked for 27 GiB on 24: with the usual workspace it fits."""
        lines = "import torch\nx = torch.zeros(1, 32, 256, 256, 256, device='cuda', dtype=torch.half)\n" \
            "torch.nn.Conv3d(32, 16, 3, padding=1).cuda().half()(x)\n"
        (self.folder / "volume.py").write_text(lines)
        options = ("--gpu", "rtx4090-24gb", "--values", "none", "--", sys.executable, "volume.py")
        found = json.loads(self.call("estimate", "--json", *options).stdout)
        gpu = found["gpus"][0]
        self.assertEqual((gpu["fits"], gpu["doubt"], gpu["predicted"]["savings"]), (None, "convolution", []))
        [gap] = [gap for gap in found["unmodelled"] if gap["kind"] == "workspace" and gap["library"] == "cudnn"]
        usual = 2 * (32 + 16) * 256**3 + 2 * 16 * 32 * 27 + 512
        self.assertEqual((gap["low"], gap["high"]), (usual, None))
        self.assertRegex(found["convolution"].pop("line"), r"/volume\.py:3 <module>$")
        self.assertEqual(found["convolution"], {"usual_workspace": usual})
        self.assertEqual(found["requested_peak"], 2 * usual - 512 + 2 * 16)  # the operands, and the bias
        self.assertEqual(found["workspace_not_modelled"], 0)

    @LONG
    def test_a_convolution_without_a_bound_in_the_words_of_the_report(self) -> None:
        (self.folder / "small.py").write_text("import torch\ntorch.nn.Conv2d(8, 8, 3).cuda()(torch.ones(1, 8, 9, 9, device='cuda'))\n")
        text = " ".join(self.call("estimate", "--gpu", "rtx4090-24gb", "--", sys.executable, "small.py").stdout.split())
        self.assertRegex(text, r"rtx4090-24gb .* probably ")
        self.assertRegex(text, r"probably: no bound is known for .* convolutions, the largest at \S*/small\.py:2 <module>, where [\d.]+ KiB is")

    def test_workspaces_that_only_cudnn_knows_are_an_interval(self) -> None:
        lines = "import torch\nx = torch.zeros(8, 64, 64, 64, device='cuda').to(memory_format=torch.channels_last)\n" \
            "torch.nn.Conv2d(64, 64, 3, padding=1).cuda().to(memory_format=torch.channels_last)(x)\n"
        (self.folder / "convolution.py").write_text(lines)
        found = self.estimate("convolution.py", options=("--gpu", "h100-80gb", "--values", "auto"))
        [gap] = [gap for gap in found["unmodelled"] if gap["kind"] == "workspace" and gap["library"] == "cudnn"]
        self.assertGreater(gap["high"], MIB)
        self.assertNotIn("values", [gap["kind"] for gap in found["unmodelled"]])  # neap computes them without cuDNN
        self.assertEqual(found["workspace_not_modelled"], gap["high"])
        gpu = found["gpus"][0]
        self.assertEqual(gpu["process"]["high"], gpu["context"]["high"] + gpu["reserved_peak"] + gap["high"])

    @LONG
    def test_torch_compile_is_eager_without_triton(self) -> None:
        lines = "import sys, torch\nsys.modules['triton'] = None; model = torch.nn.Linear(64, 64).cuda()\n" \
            "compiled = torch.compile(model, mode='max-autotune')\n" \
            "x = torch.ones(8, 64, device='cuda')\nx.sum().item()\ncompiled(x).sum().backward()\nx.sum().item()\n"
        (self.folder / "compiled.py").write_text(lines)
        options = ("--gpu", "h100-80gb", "--values", "none", "--", sys.executable, "compiled.py")
        text = " ".join(self.call("estimate", *options).stdout.split())
        self.assertIn("Triton is not installed, so what it compiles ran eagerly", text)
        self.assertIn("read back after torch.compile first compiled are not listed", text)
        found = json.loads(self.call("estimate", "--json", *options).stdout)
        self.assertEqual((found["compiled"], found["reads_hidden"]), (True, True))
        self.assertEqual([(read["line"], read["count"]) for read in found["reads"]], [(5, 1)])

    def test_torch_compile_of_what_is_never_called(self) -> None:
        """A library that decorates its functions has compiled nothing."""
        lines = "import torch\n@torch.compile\ndef unused(x):\n    return x + 1\n" \
            "x = torch.zeros(8, device='cuda')\nif x.sum():\n    pass\nprint(x.sum().item())\n"
        (self.folder / "unused.py").write_text(lines)
        options = ("--gpu", "h100-80gb", "--values", "none", "--", sys.executable, "unused.py")
        found = json.loads(self.call("estimate", "--json", *options).stdout)
        self.assertEqual((found["compiled"], found["reads_hidden"]), (False, False))
        self.assertEqual([(read["line"], read["reader"]) for read in found["reads"]], [(6, "__bool__"), (8, "item")])
        if os.environ.get("NEAP_LONG"):
            self.assertNotIn("torch.compile", self.call("estimate", *options).stdout)

    @LONG
    def test_kernels_of_torch_compile_are_those_that_were_launched(self) -> None:
        """With a Triton in name only, and a backend that loads and launches a kernel as Triton does, or does not."""
        (self.folder / "triton").mkdir()
        (self.folder / "triton" / "__init__.py").write_text("raise ImportError('in name alone')\n")
        (self.folder / "backend.py").write_text(BACKEND)
        for launches in (0, 1):
            command = ("estimate", "--json", "--gpu", "h100-80gb", "--", sys.executable, "backend.py", str(launches))
            found = json.loads(self.call(*command).stdout)
            self.assertEqual((found["compiled"], found["reads_hidden"]), (launches == 1, True))

    def test_a_gpu_without_kernels(self) -> None:
        text = "import torch\ntorch.cuda.get_arch_list = lambda: ['sm_80', 'sm_90']\nx = torch.empty(1 << 20, device='cuda')\n"
        (self.folder / "old.py").write_text(text)
        found = self.estimate("old.py", options=("--gpu", "t4-16gb,l4-24gb"))["gpus"]
        self.assertEqual([(gpu["supported"], gpu["fits"]) for gpu in found], [(False, False), (True, True)])


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512,
         "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}
# As Meta published it.
LLAMA_8B = {**LLAMA, "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 1000}

# A script by someone who has never heard of neap, and the one that peft computes.
BY_HAND = """
import sys, torch
from transformers import AutoConfig, AutoModelForCausalLM

class Lora(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base_layer = base
        self.lora_A = torch.nn.Linear(base.in_features, 16, bias=False)
        self.lora_B = torch.nn.Linear(16, base.out_features, bias=False)
        torch.nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        result = self.base_layer(x)
        dtype = result.dtype
        x = x.to(self.lora_A.weight.dtype)
        result = result + self.lora_B(self.lora_A(x)) * 2.0
        return result.to(dtype)

config = AutoConfig.from_pretrained("llama", use_cache=False)
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).requires_grad_(False)
for name, module in list(model.model.layers.named_modules()):
    if isinstance(module, torch.nn.Linear):
        parent = model.model.layers.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], Lora(module))
model.to("cuda").train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, fused=True)
for step in range(50):
    tokens = torch.randint(1000, (4, 512), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

# Runs neap's program once for each line of arguments. Returns the status and the peak of each. Importing PyTorch
# takes the time.
MANY = """
import contextlib, io, json, sys
sys.path.insert(0, sys.argv[1])
import torch, neap_model_program as program
for line in sys.stdin:
    sys.argv = ["program", *line.split(), "--batch=2", "--steps=2"]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    code, out, err = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program.main()
        except SystemExit as error:
            code = error.code
        except Exception as error:
            code = repr(error)
    print(json.dumps([line.strip(), code, err.getvalue().splitlines()[-1:], torch.cuda.max_memory_allocated()]), flush=True)
"""


WITH_TRANSFORMERS = unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")


class Model(Estimate):
    def setUp(self) -> None:
        super().setUp()
        self.base["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        self.config("llama", **LLAMA)

    def config(self, name: str, **values: object) -> None:
        (self.folder / name).mkdir()
        (self.folder / name / "config.json").write_text(json.dumps(values))

    @WITH_TRANSFORMERS
    def test_takes_what_a_script_takes(self) -> None:
        """To the byte. --try changes a choice, with NEAP_LONG=1."""
        options = ("--gpu", "h100-80gb", "--model", "llama", "--task", "lora", "--batch", "4", "--sequence", "512")
        tries = ("--try", "checkpointing=1") if os.environ.get("NEAP_LONG") else ()
        found = json.loads(self.call("estimate", "--json", *options, *tries).stdout)
        (self.folder / "by_hand.py").write_text(BY_HAND)
        by_hand = self.estimate("by_hand.py", options=("--gpu", "h100-80gb", "--values", "auto"))
        for figure in ("requested_peak", "allocated_peak", "reserved_peak", "categories", "steps"):
            self.assertEqual(found[figure], by_hand[figure], figure)
        self.assertIn("task=lora batch=4 sequence=512 precision=bf16", found["command"])
        if tries:
            self.assertLess(found["gpus"][0]["tries"][0]["reserved_peak"], found["reserved_peak"])

    @WITH_TRANSFORMERS
    def test_says_in_one_sentence_what_it_lacks(self) -> None:
        elsewhere = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(self.folder)}
        self.config("nonsense", model_type="nonsense")
        for code, words, *arguments in (
            (69, "the Hub cannot be reached", "no/such-model"),
            (66, "transformers does not take it", "nonsense"),
            (69, "cannot import torch", "llama", "--", sys.executable, "-S"),
        ):
            done = self.call("estimate", "--gpu", "t4-16gb", "--model", *arguments, code=code, **elsewhere)
            said = [line for line in done.stderr.splitlines() if "still at" not in line and "ignores" not in line]
            self.assertEqual(len(said), 1, done.stderr)
            self.assertIn(words, said[0])
            self.assertEqual(done.stdout, "")

    @WITH_TRANSFORMERS
    def test_kinds_of_models_and_tasks(self) -> None:
        """In one process. Each peak is compared with that of an earlier line."""
        (self.folder / "evil.py").write_text("open('EVIL', 'w')\nclass C: pass\n")
        self.config("evil", **{**LLAMA, "model_type": "evil"}, auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.C"})
        (self.folder / "evil.py").rename(self.folder / "evil" / "evil.py")
        self.config("llama8b", **LLAMA_8B)
        self.config("tied", **LLAMA, tie_word_embeddings=True)
        self.config("vast", **{**LLAMA, "hidden_size": 10**12})
        self.config("word", **{**LLAMA, "hidden_size": "many"})
        self.config("bert", model_type="bert", architectures=["BertForMaskedLM"], **SMALL)
        self.config("vit", model_type="vit", architectures=["ViTForImageClassification"], **SMALL)
        self.config("t5", model_type="t5", architectures=["T5ForConditionalGeneration"], num_layers=2, d_model=64, num_heads=2, d_kv=32,
                    d_ff=128, vocab_size=1000)
        self.config("gpt2", model_type="gpt2", n_layer=2, n_embd=64, n_head=2, vocab_size=1000, n_positions=128)
        self.config("whisper", model_type="whisper", architectures=["WhisperForConditionalGeneration"])
        (self.folder / "list.json").write_text("[1, 2]")
        (self.folder / "text.json").write_text("no JSON")
        (self.folder / "file.json").write_text(json.dumps(LLAMA))
        rows = [
            ("--model=llama --sequence=512", 0, ""),
            ("--model=file.json --sequence=512", 0, "="),
            ("--model=tied --sequence=512", 0, "<"),
            ("--model=llama --sequence=512 --checkpointing=1", 0, "<"),
            ("--model=llama --sequence=512 --precision=fp32", 0, ">"),
            ("--model=llama --sequence=512 --precision=bf16-true --optimizer=sgd", 0, "<"),
            ("--model=llama --sequence=512 --precision=fp16 --optimizer=adafactor", 0, ">"),
            ("--model=llama --sequence=512 --task=infer", 0, "<"),
            ("--model=llama8b --sequence=64 --task=infer", 0, ">"),
            ("--model=llama8b --sequence=64 --task=lora", 0, ">"),
            ("--model=bert", 0, ""),
            ("--model=bert --task=infer", 0, "<"),
            ("--model=vit", 0, ""),
            ("--model=vit --task=lora --image=224", 0, ""),
            ("--model=t5", 0, ""),
            ("--model=t5 --task=infer --sequence=64", 0, "<"),
            ("--model=gpt2 --task=lora", 0, ""),
            ("--model=gpt2 --sequence=129", 64, "at most 128 tokens"),
            ("--model=gpt2 --image=64", 64, "takes tokens"),
            ("--model=vit --sequence=64", 64, "takes images"),
            ("--model=llama --task=infer --sequence=16", 64, "above 16"),
            ("--model=whisper", 66, "does not know"),
            ("--model=vast", 66, "transformers does not take it"),
            ("--model=word", 66, "transformers does not take it"),
            ("--model=list.json", 66, "transformers does not take it"),
            ("--model=text.json", 66, "transformers does not take it"),
            ("--model=evil", 66, "custom code"),
            ("--model=../nowhere", 66, "no such"),
        ]
        for name, model in (("timm", "resnet18"), ("torchvision", "resnet18"), ("diffusers", "llama")):
            there = importlib.util.find_spec(name) is not None
            rows.append((f"--model={name}:{model}", 69, f"needs {name}") if not there else (f"--model={name}:nowhere", 66, "nowhere"))
        launch = os.environ["PYTHONPATH"].split(os.pathsep)[0]
        done = subprocess.run(
            [sys.executable, "-c", MANY, launch], input="\n".join(row[0] for row in rows), cwd=self.folder, text=True,
            env={**os.environ, "NEAP_SIM": f"h100-80gb,mem=4TiB,world=model-{os.getpid()}", "HF_HUB_OFFLINE": "1"}, capture_output=True,
        )
        before = 0
        peaks = {}
        for (line, code, words), found in zip(rows, map(json.loads, done.stdout.splitlines()), strict=True):
            self.assertEqual(found[:2], [line, code], (found, done.stderr))
            peak = found[3]
            if code:
                self.assertIn(words, " ".join(found[2]), line)
                self.assertFalse(" ".join(found[2]).endswith(":"), found)  # the reason is there
            else:
                self.assertTrue({"": True, "=": peak == before, "<": peak < before, ">": peak > before}[words], (line, peak, before))
                before = peak
            peaks[line] = peak
        weights = 2 * 8030261248  # the published number of its parameters
        self.assertEqual(peaks["--model=llama8b --sequence=64 --task=infer"] // weights, 1)
        self.assertLess(peaks["--model=llama8b --sequence=64 --task=infer"], 1.01 * weights)
        self.assertFalse((self.folder / "EVIL").exists())

    @LONG
    @WITH_TRANSFORMERS
    def test_is_one_of_several_ranks(self) -> None:
        """DDP has buckets of all gradients besides; FSDP's shard is an eighth of them."""
        found = {}
        for shard in ("ddp", "fsdp"):
            options = ("--gpu", "h100-80gb", "--model", "llama", "--sequence", "64", "--ranks", "8", "--shard", shard)
            found[shard] = json.loads(self.call("estimate", "--json", *options).stdout)["categories"]["optimizer state"]
        self.assertAlmostEqual(found["ddp"] / found["fsdp"], 8, delta=0.1)

    def test_prints_its_script(self) -> None:
        shown = self.call("estimate", "--model", "llama", "--batch", "4", "--print-script").stdout
        source = pathlib.Path(os.environ["NEAP_SOURCE"], "python", "launch", "neap_model_program.py").read_text()
        first, _, rest = shown.partition("\n")
        self.assertEqual(rest, source)
        self.assertIn("--model=llama --task=train --batch=4 --precision=bf16", first)

    def test_wrong_options(self) -> None:
        os.mkfifo(self.folder / "fifo")
        (self.folder / "empty").mkdir()
        for code, words, *arguments in (
            (64, "goes with --model", "--batch", "4", "--", "true"),
            (64, "goes with --model", "--print-script", "--", "true"),
            (64, "--param does not go", "--model", "llama", "--param", "batch=4"),
            (64, "expected one of train lora qlora infer", "--model", "llama", "--task", "dance"),
            (64, "expected one of", "--model", "llama", "--optimizer", "adamw sgd"),
            (64, "whole number", "--model", "llama", "--batch", "0"),
            (64, "whole number", "--model", "llama", "--sequence", "4294967297"),
            (64, "goes with --ranks", "--model", "llama", "--shard", "ddp"),
            (64, "task infer", "--model", "llama", "--task", "infer", "--checkpointing"),
            (64, "task infer", "--model", "llama", "--task", "infer", "--ranks", "2"),
            (64, "--shard ddp", "--model", "llama", "--task", "qlora", "--ranks", "2"),
            (64, "without braces", "--model", "{batch}"),
            (64, "without braces", "--model", ""),
            (64, "needs --image N", "--model", "llama", "--fit", "image"),
            (64, "needs --image,", "--model", "llama", "--try", "image=3"),
            (66, "no such file or folder", "--model", "./nowhere"),
            (66, "no such file or folder", "--model", "nowhere.json"),
            (66, "has no config.json", "--model", "empty"),
            (66, "has no config.json", "--model", "diffusers:empty"),
            (66, "neither a file nor a folder", "--model", "fifo"),
        ):
            done = self.call("estimate", *arguments, code=code)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


class Failures(Estimate):
    def test_a_script_that_fails(self) -> None:
        (self.folder / "bad.py").write_text("import torch\ntorch.zeros(1, device='cuda')\nraise ValueError('the reason')\n")
        done = self.call("estimate", "--", sys.executable, "bad.py", code=1)
        self.assertIn("ValueError: the reason", done.stderr)
        self.assertIn("exit status 1", done.stderr)
        self.assertEqual(done.stdout, "")
        launcher = f"{sys.executable} bad.py; seq 20 >&2; exit 1"  # its own last lines hide the error
        done = self.call("estimate", "--", "sh", "-c", launcher, code=1)
        self.assertIn("failed (failed, exit status 1): ValueError: the reason. The last it wrote:\n9\n", done.stderr)

    def test_a_script_without_a_gpu(self) -> None:
        (self.folder / "cpu.py").write_text("import torch\ntorch.zeros(1)\n")
        self.assertIn("without using the GPU", self.call("estimate", "--", sys.executable, "cpu.py", code=1).stderr)

    def test_a_command_that_is_not_there(self) -> None:
        self.assertIn("nowhere", self.call("estimate", "--", "./nowhere", code=127).stderr)

    def test_wrong_options(self) -> None:
        for options in (("--gpu", "h101"), ("--gpu", "mem=3GiB"), ("--steps", "0"), ("--max-memory", "3"), ("--time-limit", "x")):
            self.call("estimate", *options, "--", "true", code=64)
        self.call("estimate", code=64)

    def test_until_memory_is_steady(self) -> None:
        """Three updates must take no more than those before them; a program that still grows in the last leaves "yes"
        open."""
        lines = (
            "import torch, sys\nmodel = torch.nn.Linear(64, 64).cuda()\nsgd = torch.optim.SGD(model.parameters())\nkept = []\n"
            "for i in range(1, 100):\n    model(torch.ones(8, 64, device='cuda')).sum().backward()\n    sgd.step()\n"
            "    if i < 6:\n        kept.append(torch.zeros(1 << 20, device='cuda'))\n"
        )
        (self.folder / "grows.py").write_text(lines)
        command = ("estimate", "--in-place", "--json", "--gpu", "h100-80gb")
        found = json.loads(self.call(*command, "--", sys.executable, "grows.py").stdout)
        process = found["processes"][0]
        self.assertEqual((found["steps"], process["grew_at"], found["growing"], found["gpus"][0]["fits"]), (9, 6, False, True))
        found = json.loads(self.call(*command, "--steps", "4", "--folder", "runs", "--", sys.executable, "grows.py").stdout)
        (shown,) = (self.folder / "runs").glob("*/steps.*")
        self.assertEqual(shown.read_text(), "....")
        process = found["processes"][0]
        self.assertEqual((found["steps"], process["grew_at"], process["grew_requested"]), (4, 4, 4 << 20))
        self.assertEqual((found["gpus"][0]["fits"], found["gpus"][0]["doubt"]), (None, "growing"))

    def cut_short(self, lines: str, *options: str) -> dict:
        """A real estimate whose time limit ends the program once it has written the file `at`."""
        (self.folder / "long.py").write_text(lines)
        for limit in ("8s", "30s", "120s"):  # longer, in case a busy machine ended it before it got there
            command = ("estimate", "--in-place", "--json", "--gpu", "h100-80gb", "--time-limit", limit, *options)
            done = self.call(*command, "--", sys.executable, "long.py", code=None)
            if (self.folder / "at").exists():
                break
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_a_time_limit(self) -> None:
        """Before the first update it is open whether the program fits, and the estimate names the place where it
        waited."""
        lines = "import torch, time\nx = torch.zeros(1 << 20, device='cuda')\ndef wait():\n    open('at', 'w').close()\n    time.sleep(600)\nwait()\n"
        found = self.cut_short(lines)
        self.assertEqual((found["outcome"], found["requested_peak"], found["steps"]), ("timeout", 4 << 20, 0))
        self.assertEqual((found["cut_short"], found["gpus"][0]["fits"], found["gpus"][0]["doubt"]), (True, None, "time limit"))
        self.assertEqual(found["waited_at"], {"file": str((self.folder / "long.py").resolve()), "line": 5, "function": "wait"})

    @LONG
    def test_a_time_limit_in_the_words_of_the_report(self) -> None:
        lines = "import torch, time\nx = torch.nn.Linear(8, 8).cuda()\noptimizer = torch.optim.SGD(x.parameters())\n" \
            "open('at', 'w').close()\ntime.sleep(600)\n"
        (self.folder / "long.py").write_text(lines)
        for limit in ("10s", "30s", "120s"):
            options = ("--in-place", "--gpu", "h100-80gb", "--time-limit", limit, "--fit", "batch", "--param", "batch=4")
            done = self.call("estimate", *options, "--", sys.executable, "long.py", "{batch}", code=None)
            if (self.folder / "at").exists():
                break
        text = " ".join(done.stdout.split())
        self.assertRegex(text, r"probably at most: the time limit ended the program after 0 optimizer updates, at \S*/long.py:5 <module>;")
        self.assertNotIn("--forwards", text)  # it has an optimizer
        self.assertIn("--fit batch: not searched, the program was ended by the time limit after 0 optimizer updates", done.stderr)
        self.assertEqual(done.returncode, 0)

    @LONG
    def test_a_time_limit_after_what_was_enough(self) -> None:
        """Two updates, or two of the forward passes that were asked for, show what the program takes."""
        model = "import torch, time\nmodel = torch.nn.Linear(8, 8).cuda()\nx = torch.ones(8, 8, device='cuda')\n"
        for passes, cut_short in ((1, True), (2, False)):
            wait = "open('at', 'w').close()\ntime.sleep(600)\n"
            found = self.cut_short(model + f"for _ in range({passes}):\n    model(x)\n" + wait, "--forwards", "9")
            self.assertEqual((found["forwards"], found["cut_short"]), (passes, cut_short))
            (self.folder / "at").unlink()
            update = f"optimizer = torch.optim.SGD(model.parameters())\nfor _ in range({passes}):\n    model(x).sum().backward()\n    optimizer.step()\n"
            found = self.cut_short(model + update + wait)
            self.assertEqual((found["steps"], found["cut_short"], found["gpus"][0]["fits"]), (passes, cut_short, None if cut_short else True))
            (self.folder / "at").unlink()

    @LONG
    def test_an_optimizer_that_makes_no_update(self) -> None:
        lines = "import torch\ndef main():\n    model = torch.nn.Linear(8, 8).cuda()\n    torch.optim.SGD(model.parameters())\nmain()\n"
        (self.folder / "idle.py").write_text(lines)
        text = " ".join(self.call("estimate", "--gpu", "h100-80gb", "--", sys.executable, "idle.py").stdout.split())
        self.assertIn("the whole program, 0 optimizer updates", text)
        self.assertIn("made an optimizer, which made no update", text)

    def test_a_long_run_is_heard_of_without_a_terminal(self) -> None:
        (self.folder / "wait.sh").write_text("printf ... >$NEAP_RUN_DIR/steps.1; until [ -e go ]; do sleep 0.05; done\n")
        with subprocess.Popen([NEAP, "estimate", "--in-place", "--gpu", "h100-80gb", "--", "sh", "wait.sh"], cwd=self.folder, env=self.base,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            (self.folder / "go").touch()
            rest = process.stderr.read()
        self.assertRegex(line, r"^neap estimate: still at run 1 of 1: sm_90, 132 multiprocessors, 3 updates, \d+ s\n$")
        self.assertIn("ended without using the GPU", rest)
        self.assertEqual(process.returncode, 1)

    def test_an_interrupt(self) -> None:
        (self.folder / "long.py").write_text("import torch, time\nx = torch.zeros(1, device='cuda')\nprint('at', flush=True)\ntime.sleep(600)\n")
        process = subprocess.Popen([NEAP, "estimate", "--", sys.executable, "long.py"], cwd=self.folder, env=self.base,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not self.printed("at\n") and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (130, ""), err)
        self.assertIn("stopped", err)
        self.assertEqual(list(self.temporary.glob("neap*")), [])

    def test_an_interrupt_while_gpus_are_judged(self) -> None:
        """On a terminal that shows it has come so far: the runs have ended by then."""
        lines = "import torch, random\nrandom.seed(1)\nlive = []\nfor i in range(4000):\n" \
            "    live.append(torch.empty(random.randrange(1, 40) << 18, dtype=torch.uint8, device='cuda'))\n" \
            "    if len(live) > 99:\n        del live[random.randrange(99)]\n"
        (self.folder / "many.py").write_text(lines)
        terminal, end = os.openpty()
        command = [NEAP, "estimate", "--gpu", ",".join(["h100-80gb"] * 32), "--", sys.executable, "many.py"]
        process = subprocess.Popen(command, cwd=self.folder, env={**self.base, "TERM": "xterm"}, stdout=subprocess.PIPE, stderr=end)
        os.close(end)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal's end
            while part := os.read(terminal, 4096):
                if b"GPU 1 of 32" not in shown and b"GPU 1 of 32" in shown + part:
                    process.send_signal(signal.SIGINT)
                shown += part
        os.close(terminal)
        self.assertEqual((process.communicate(timeout=60)[0], process.returncode), (b"", 130), shown)
        self.assertEqual(shown.split(b"\x1b[K")[-1], b"neap estimate: stopped\r\n")


if __name__ == "__main__":
    unittest.main()
