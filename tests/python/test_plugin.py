"""neap through PyTorch's documented plug-in: what works equals PyTorch's own, and what does not is refused with a
message."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import torch
from forked import Forks
from running import MIB, Case

HERE = pathlib.Path(__file__).resolve().parent
os.environ["NEAP_SIM"] = f"mem=2GiB,gpus=2,context=64MiB,reserved=16MiB,values=none,world=plugin-{os.getpid()}"
# Areas of allocator_areas.py that give the same under the plug-in as under PyTorch's own allocator.
SAME = ("counters", "totals", "summary", "snapshot", "record_stream", "streams", "retried", "threads", "training", "others")
# Areas in which only the type of the error differs, or the allocator that found a pointer wrong.
NEARLY = ("keys", "fraction", "raw", "devices")
FORKS = Forks()
BELOW_PYTHON = "with torch.cuda.stream(torch.cuda.Stream()): torch._C._CUDAGraph.capture_begin(torch.cuda.CUDAGraph(), None, 'global')"


def python(*words):
    return subprocess.run([sys.executable, "-W", "ignore", *map(str, words)], text=True, capture_output=True, timeout=500)


def seen(which):
    done = python(HERE / "allocator_areas.py", which, *SAME, *NEARLY)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


class Plugin(unittest.TestCase):
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        cls.found = seen("plugin")
        cls.own = seen("default")

    def test_it_is_the_plugin(self):
        self.assertEqual((self.found["backend"], self.own["backend"]), ("pluggable", "native"))

    def test_what_works_equals_pytorchs(self):
        for area in SAME:
            with self.subTest(area=area):
                self.assertEqual(self.found[area], self.own[area])

    def test_what_differs_in_words(self):
        self.assertEqual(set(self.own["keys"]["keys"]) - set(self.found["keys"]["keys"]) - {"num_oom_rejections"}, set())
        self.assertEqual(self.found["fraction"]["limited"], "RuntimeError: CUDA out of memory")
        self.assertEqual({**self.found["fraction"], "limited": ""}, {**self.own["fraction"], "limited": ""})
        self.assertEqual({**self.found["raw"], "wrong": ""}, {**self.own["raw"], "wrong": ""})
        self.assertEqual(self.found["raw"]["wrong"], "Trying to free a pointer not allocated here")
        self.assertEqual(self.found["devices"], self.own["devices"])

    def refused(self, code):
        """The last line of the error, in a process of its own."""
        done = FORKS.run(f"import neap, torch\nneap.install_allocator(plugin=True)\nx = torch.zeros(64, device='cuda')\n{code}")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return done.stderr.strip().splitlines()[-1]

    def test_what_the_interface_forbids_is_refused(self):
        for code, words in (
            ("with torch.cuda.graph(torch.cuda.CUDAGraph()): x + 1", "serves no CUDA graphs .*g\\+\\+"),
            (BELOW_PYTHON, "serves no CUDA graph and no MemPool .*g\\+\\+"),
            ("torch.cuda.memory._record_memory_history()", "does not yet support recordHistory"),
            ("from torch.multiprocessing.reductions import reduce_tensor; reduce_tensor(x)", "mapped page by page|shareIPcHandle"),
        ):
            with self.subTest(code=code):
                self.assertRegex(self.refused(code), words)

    @unittest.skipUnless(hasattr(torch.cuda, "MemPool") and torch.__version__ >= (2, 12), "this PyTorch's MemPool takes no allocator")
    def test_a_mempool_is_refused(self):
        self.assertRegex(self.refused("torch.cuda.MemPool()"), "does not yet support createOrIncrefPool")

    def test_a_graph_that_was_refused_changes_nothing(self):
        done = FORKS.run("""
import neap, torch
neap.install_allocator(plugin=True)
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        pass
except RuntimeError:
    pass
print(torch.randn(8, device="cuda").shape, torch.cuda.is_current_stream_capturing())
""")
        self.assertEqual(done.stdout.strip(), "torch.Size([8]) False", done.stderr)

    @unittest.skipUnless(hasattr(torch.cuda, "get_per_process_memory_fraction"), "this PyTorch does not say the fraction")
    def test_the_fraction(self):
        """All calls before the first allocation, without a limit; a limit of 0 allows nothing."""
        done = FORKS.run("""
import neap, torch
neap.install_allocator(plugin=True)
print(torch.cuda.get_per_process_memory_fraction())
torch.cuda.set_per_process_memory_fraction(0.0)
try:
    torch.empty(1, device="cuda")
except RuntimeError as error:
    print(str(error).split(".")[0])
torch.cuda.set_per_process_memory_fraction(1.0)
print(torch.empty(1, device="cuda").numel())
""")
        self.assertEqual(done.stdout.splitlines(), ["1.0", "CUDA out of memory", "1"], done.stderr)

    def test_too_late_is_refused(self):
        done = FORKS.run("import neap, torch\nx = torch.zeros(1, device='cuda')\nneap.install_allocator(plugin=True)")
        self.assertIn("must be installed before CUDA is used", done.stderr)


class Run(Case):
    """neap run --allocator plugin: an unchanged script, without a compiler."""

    SCRIPT = """
import json, os, subprocess, time, torch, neap

def ask(*words):
    for _ in range(30):  # tries again if the machine was too busy for an answer within 2 s
        verb = subprocess.Popen([os.environ["NEAP"], *words, "--json"], stdout=subprocess.PIPE, text=True)
        while verb.poll() is None:
            time.sleep(0.01)  # the main thread serves the request
        if verb.returncode != 75:
            break
    return json.load(verb.stdout)["processes"][0]["devices"][0]

kept = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
gone = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
del gone
freed = ask("clear")["freed"]
try:
    torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
except RuntimeError as error:
    text, known = str(error), neap.is_out_of_memory(error)
stats = neap.memory_stats()
print(json.dumps([torch.cuda.get_allocator_backend(), freed, known, text, stats["allocated_bytes.all.current"], stats["num_ooms"],
                  neap.memory_summary() == torch.cuda.memory_summary(), torch.cuda.memory_reserved()]))
torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
"""

    def test_attached_and_out_of_memory(self):
        done, result = self.run_script(self.SCRIPT, "--allocator", "plugin", check=False, CXX="/nowhere/c++")
        lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
        self.assertEqual(len(lines), 1, done.stderr)
        backend, freed, known, text, allocated, ooms, same, reserved = json.loads(lines[0])
        self.assertEqual((backend, freed, known, allocated, ooms, same), ("pluggable", 32 * MIB, True, 64 * MIB, 1, True))
        self.assertGreaterEqual(reserved, allocated)
        self.assertRegex(text, "^CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of ")
        self.assertIn("64.00 MiB is allocated by PyTorch", text)
        self.assertEqual(result["outcome"], "oom")
        (self.folder / "log").write_text(f"RuntimeError: {text}\n")
        explained = self.command("explain", "log").stdout
        self.assertIn("asked of the driver", explained)
        self.assertIn("Cause: ", explained)
        self.assertNotIn("Cause: unknown", explained)


if __name__ == "__main__":
    unittest.main()
