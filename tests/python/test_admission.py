"""Estimates before a run starts: `neap estimate --gpu here`, `neap run --estimate`, `neap series --estimate`."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

from running import LONG, MIB, NEAP
from test_estimate import SAMPLES, Estimate


class Admission(Estimate):
    def setUp(self) -> None:
        super().setUp()
        self.base.update(NEAP_DEVICE="sim", NEAP_SIM=f"rtx4060-8gb,backing=none,world=admission-{os.getpid()}")

    def records(self) -> "list[dict]":
        lines = (self.folder / "s" / "journal").read_text().splitlines()
        return [json.loads(line.split(" ", 1)[1]) for line in lines]

    def test_here_is_this_machines_gpu(self) -> None:
        sim = self.base["NEAP_SIM"] + "-two,gpus=2,mem=5GiB"
        (self.folder / "samples.py").write_text(SAMPLES)
        done = self.call("estimate", "--json", "--gpu", "here,h100-80gb", "--", sys.executable, "samples.py", "1", NEAP_SIM=sim)
        here, other = json.loads(done.stdout)["gpus"]
        self.assertEqual((here["name"], here["total"], here["architecture"]), ("rtx4060-8gb", 5 << 30, "sm_89"))
        self.assertEqual(other["name"], "h100-80gb")

    def test_a_series_uses_what_was_estimated(self) -> None:
        (self.folder / "s.yaml").write_text(
            "name: s\nexperiments:\n"
            f"- {{name: told, command: '{sys.executable} train.py 8 64', needs: 1GiB}}\n"
            f"- {{name: small, command: '{sys.executable} ../train.py {{batch}} 64', params: {{batch: 8}}, directory: tmp}}\n"
            f"- {{name: large, command: '{sys.executable} train.py 600000 1024'}}\n"
            f"- {{name: broken, command: '{sys.executable} -c \"raise ValueError(7)\"'}}\n"
            f"- {{name: hangs, command: '{sys.executable} hangs.py'}}\n"
        )
        (self.folder / "hangs.py").write_text(
            "import os, time\nif not os.path.exists('go'):\n    print('at', flush=True)\n    time.sleep(600)\n")
        series = [NEAP, "series", "s.yaml", "--estimate", "--folder", "s"]
        process = subprocess.Popen(series, cwd=self.folder, env=self.base, stderr=subprocess.PIPE, text=True)
        while not self.printed("at\n") and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143, err)
        self.assertNotIn("told: estimating", err)
        self.assertRegex(err, r"small: estimated in [^:]*: \d+ MiB to \d+ MiB on rtx4060-8gb\n")
        self.assertIn("large: estimated", err)
        self.assertIn("which may not have as much: it gets a whole device", err)
        self.assertIn("broken: not estimated: the program failed (failed, exit status 1). The last it wrote: ValueError: 7", err)
        needs = {record["experiment"]: record for record in self.records() if record["type"] == "needs"}
        self.assertEqual(set(needs), {"small", "large"})
        self.assertEqual((needs["large"]["needs"], needs["small"]["origin"]), ("device", "estimated"))
        self.assertTrue(100 * MIB < needs["small"]["low"] < int(needs["small"]["needs"]) < 2048 * MIB, needs)
        (self.folder / "go").touch()
        done = self.call("series", "s.yaml", "--estimate", "--resume", "--folder", "s", code=1)
        self.assertNotIn("small: estimat", done.stderr)
        self.assertNotIn("large: estimat", done.stderr)
        self.assertIn("hangs: not estimated: the program ended without using the GPU", done.stderr)
        self.assertRegex(done.stderr, r"small: attempt 1, needs \d+ MiB, as estimated\n")
        self.assertRegex(done.stderr, r"large: attempt 1, needs the whole device, as estimated\n")
        starts = {record["experiment"]: record["needs"] for record in self.records() if record["type"] == "start"}
        self.assertEqual(starts, {"told": "1GiB", "small": needs["small"]["needs"], "large": "device", "broken": "device", "hangs": "device"})
        taken = json.loads((self.folder / "s" / "runs" / "small-1" / "result.json").read_text())["peak_device_bytes"]
        self.assertTrue(needs["small"]["low"] <= taken <= needs["small"]["high"], (taken, needs["small"]))

    @LONG
    def test_a_run_is_warned_of(self) -> None:
        """On a small device: the estimate comes first, then the run in any case; with =refuse only if it may fit."""
        sim = self.base["NEAP_SIM"] + "-small,mem=2GiB"
        command = ("--no-history", "--param", "batch={}", "--", sys.executable, "train.py", "{batch}", "1024")
        large, small = ([word.format(n, batch="{batch}") for word in command] for n in (65536, 64))
        done = self.call("run", "--estimate", *large, code=1, NEAP_SIM=sim)
        warned = done.stderr.split("OutOfMemoryError")[0]
        ran = done.stderr
        self.assertRegex(warned, r"neap run: estimate: it does not fit: 3\.\d+ GiB to 4\.\d+ GiB of the 2\.00 GiB on rtx4060-8gb; [\d.]+ GiB are missing\n")
        self.assertRegex(warned, r"\n  predicted: gradient checkpointing .* \(saves .*\)\n")
        self.assertRegex(warned, r"\n  predicted: \d+ % of the samples at once fit\n")
        self.assertIn("CUDA out of memory", ran)
        done = self.call("run", "--estimate=refuse", "--quiet", *large, code=69, NEAP_SIM=sim)
        self.assertIn("not run (--estimate=refuse)", done.stderr)
        self.assertNotIn("OutOfMemoryError", done.stderr)
        done = self.call("run", "--estimate=refuse", "--max-steps", "1", *small, NEAP_SIM=sim)
        self.assertRegex(done.stderr, r"estimate: it fits: \d+ MiB to \d+ MiB of the 2\.00 GiB")
        done = self.call("run", "--estimate=refuse", "--quiet", "--no-history", "--", "true", NEAP_SIM=sim)
        self.assertEqual(done.stderr, "neap run: not estimated: the program ended without using the GPU through PyTorch\n")
        self.call("run", "--estimate=maybe", "--", "true", code=64)

    @LONG
    def test_tasks_of_slurm_get_what_was_estimated(self) -> None:
        """With an sbatch that accepts everything."""
        commands = self.folder / "bin"
        commands.mkdir()
        for name, line in {"sbatch": "echo 101", "squeue": "echo 101_1", "scontrol": "echo MaxArraySize = 100"}.items():
            (commands / name).write_text(f"#!/bin/sh\n{line}\n")
            (commands / name).chmod(0o755)
        (self.folder / "s.yaml").write_text(f"name: s\nexperiments:\n- {{name: a, command: '{sys.executable} train.py 8 64'}}\n")
        done = self.call("series", "s.yaml", "--slurm", "--estimate=a100-40gb", "--folder", "s",
                         PATH=f"{commands}:{os.environ['PATH']}")
        self.assertIn("on a100-40gb", done.stderr)
        needs, array = (next(record for record in self.records() if record["type"] == kind) for kind in ("needs", "array"))
        self.assertEqual((array["experiments"], array["needs"]), (["a"], [needs["needs"]]))
        self.assertEqual(needs["needs"], str(needs["high"]))

    def test_a_series_needs_a_gpu_to_estimate_for(self) -> None:
        (self.folder / "s.yaml").write_text("name: s\nexperiments:\n- {name: a, command: 'true'}\n")
        self.call("series", "s.yaml", "--estimate=h101", "--folder", "s", code=64)
        done = self.call("series", "s.yaml", "--estimate", "--folder", "s", code=64, NEAP_DEVICE="sim", NEAP_SIM="bad=1")
        self.assertIn("--estimate=h100-80gb", done.stderr)
        self.assertFalse((self.folder / "s").exists())


if __name__ == "__main__":
    unittest.main()
