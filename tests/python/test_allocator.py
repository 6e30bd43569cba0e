"""neap as PyTorch's allocator: everything that a program can see, under PyTorch's default settings, its expandable segments and
neap, and compared. One process for each (allocator_areas.py); addresses, segments and reserved bytes may differ, nothing else.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
os.environ["NEAP_SIM"] = f"mem=2GiB,gpus=2,context=64MiB,reserved=16MiB,world=allocator-{os.getpid()}"
SETTINGS = {"default": "", "expandable": "expandable_segments:True", "neap": ""}


def python(*words, **environment):
    return subprocess.run([sys.executable, "-W", "ignore", *map(str, words)], env={**os.environ, **environment}, text=True, capture_output=True, timeout=500)  # fmt: skip


def seen(which):
    done = python(HERE / "allocator_areas.py", which, PYTORCH_CUDA_ALLOC_CONF=SETTINGS.get(which, ""))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def setUpModule():
    global results
    results = {which: seen(which) for which in SETTINGS}


class Parity(unittest.TestCase):
    maxDiff = 4000

    def test_it_is_neap(self):
        self.assertEqual([results[w]["backend"] for w in ("default", "expandable", "neap")], ["native", "native", "neap"])

    def test_every_area(self):
        areas = [a for a, found in results["default"].items() if isinstance(found, dict)]
        self.assertGreater(len(areas), 30)
        for area in areas:
            with self.subTest(area=area):
                self.assertFalse(results["neap"][area].get("failed"), results["neap"][area].get("failed"))
                self.assertEqual(results["neap"][area], results["default"][area])

    def test_expandable_segments_see_the_same(self):
        """Where PyTorch's own two kinds of segments agree, neap agrees with both; where they do not, it is one of them."""
        for area, found in results["expandable"].items():
            if isinstance(found, dict) and found == results["default"][area]:
                with self.subTest(area=area):
                    self.assertEqual(results["neap"][area], found)


if __name__ == "__main__":
    unittest.main()
