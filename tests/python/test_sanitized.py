"""PyTorch with neap's allocator on the sanitized libneap, simulator and runtime: every area of allocator_areas.py, compiled and
as the plug-in, without a report. NEAP_PRELOAD: the sanitizers' libraries, which an ordinary interpreter lacks.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PLUGIN = ("counters", "totals", "snapshot", "record_stream", "streams", "retried", "threads", "fraction", "devices", "training")


class Sanitized(unittest.TestCase):
    def areas(self, *words):
        environment = {
            **os.environ,
            "LD_PRELOAD": os.environ["NEAP_PRELOAD"],
            # Memory that PyTorch and Python keep to their end is not neap's.
            "ASAN_OPTIONS": "detect_leaks=0:protect_shadow_gap=0",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            "NEAP_SIM": f"mem=2GiB,gpus=2,context=64MiB,reserved=16MiB,world=sanitized-{os.getpid()}",
        }
        command = [sys.executable, "-W", "ignore", str(HERE / "allocator_areas.py"), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500)
        self.assertEqual(done.returncode, 0, done.stderr[-6000:])
        self.assertNotRegex(done.stderr, "Sanitizer|runtime error")
        found = json.loads(done.stdout.splitlines()[-1])
        for area, one in found.items():
            with self.subTest(area=area):
                self.assertFalse(isinstance(one, dict) and one.get("failed"), one)
        return found

    def test_compiled(self):
        found = self.areas("neap")
        self.assertEqual(found["backend"], "neap")
        self.assertGreater(len(found), 30)

    def test_as_the_plugin(self):
        self.assertEqual(self.areas("plugin", *PLUGIN)["backend"], "pluggable")


if __name__ == "__main__":
    unittest.main()
