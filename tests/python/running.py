"""Shared by the tests of the command on PyTorch programs: a folder, a simulated device and the command in them."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

NEAP = os.environ["NEAP"]
MIB = 1 << 20
BOUND = 150
LONG = unittest.skipUnless(os.environ.get("NEAP_LONG"), "only with NEAP_LONG=1: ./test has little time")
# Variables of the caller that place a program in a distributed training, or in a run.
_DROPPED = (
    "NEAP_ATTACH",
    "NEAP_RUN",
    "NEAP_SERIES",
    "NEAP_PEERS",
    "NEAP_MAX",
    "NEAP_FRACTION",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "CUDA_VISIBLE_DEVICES",
    "PYTORCH",
)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="neap-running-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "runtime").mkdir(mode=0o700)
        self.world = f"running-{os.getpid()}-{self._testMethodName}"[:60]
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)},
            "NEAP_SIM": f"mem=2GiB,world={self.world}",
            "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        self.addCleanup(lambda: [p.unlink(missing_ok=True) for p in pathlib.Path("/dev/shm").glob(f"neap-sim-*{self.world}")])

    def execute(self, *words, **more):
        return subprocess.run([str(w) for w in words], cwd=self.folder, env={**self.environment, **more},
                              capture_output=True, text=True, timeout=BOUND)  # fmt: skip

    def command(self, *words, check=True, **more):
        done = self.execute(NEAP, *words, **more)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def ask(self, *words):
        """Tries again if the machine was too busy for the program to answer within 2 s."""
        for _ in range(30):
            done = self.command(*words, "--json", check=False)
            if done.returncode != 75:
                break
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def device(self, verb, *words):
        """A verb's answer about the only device of the only process."""
        return self.ask(verb, *words)["processes"][0]["devices"][0]

    def run_script(self, code, *options, check=True, arguments=(), **more):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        (self.folder / "script.py").write_text(code)
        done = self.command("run", "--folder", "run", *options, "--", sys.executable, "script.py", *arguments, check=check, **more)
        return done, self.result()

    def result(self):
        return json.loads((self.folder / "run" / "result.json").read_text())

    def recordings(self):
        return sorted((self.folder / "run").glob("record.*"))

    def recording(self):
        (found,) = self.recordings()
        return found
