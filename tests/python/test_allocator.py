"""neap as PyTorch's allocator: compares everything that a program can observe under PyTorch's default settings, its
expandable segments and neap. One process for each (allocator_areas.py). Only addresses, segments and reserved bytes
may differ.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import torch
from forked import Forks
from running import LONG, MIB, Case

HERE = pathlib.Path(__file__).resolve().parent
os.environ["NEAP_SIM"] = f"mem=2GiB,gpus=2,context=64MiB,reserved=16MiB,values=none,world=allocator-{os.getpid()}"
FORKS = Forks()
SETTINGS = {"default": "", "expandable": "expandable_segments:True", "neap": ""}
if not os.environ.get("NEAP_LONG"):
    del SETTINGS["expandable"]


def python(*words, **environment):
    return subprocess.run([sys.executable, "-W", "ignore", *map(str, words)], env={**os.environ, **environment}, text=True, capture_output=True, timeout=500)  # fmt: skip


def seen(which, *areas):
    done = python(HERE / "allocator_areas.py", which, *areas, PYTORCH_CUDA_ALLOC_CONF=SETTINGS.get(which, ""))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


class Parity(unittest.TestCase):
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        cls.results = {which: seen(which) for which in SETTINGS}

    def test_it_is_neap(self):
        self.assertEqual({w: found["backend"] for w, found in self.results.items()}, {w: "neap" if w == "neap" else "native" for w in SETTINGS})

    def test_every_area(self):
        areas = [a for a, found in self.results["default"].items() if isinstance(found, dict)]
        self.assertGreater(len(areas), 30)
        for area in areas:
            with self.subTest(area=area):
                self.assertFalse(self.results["neap"][area].get("failed"), self.results["neap"][area].get("failed"))
                self.assertEqual(self.results["neap"][area], self.results["default"][area])

    @LONG
    def test_expandable_segments_see_the_same(self):
        """If PyTorch's own two kinds of segments agree, neap agrees with both; otherwise it agrees with one."""
        for area, found in self.results["expandable"].items():
            if isinstance(found, dict) and found == self.results["default"][area]:
                with self.subTest(area=area):
                    self.assertEqual(self.results["neap"][area], found)


SHARES = torch.__version__ >= (2, 5)  # before, the interface has no handles of the allocator's own


class Shared(unittest.TestCase):
    """Tensors for other processes (CUDA IPC)."""

    @unittest.skipUnless(SHARES, "this PyTorch's interface shares cudaMalloc's memory alone")
    def test_a_tensor_goes_to_another_process_and_back(self):
        found = {}
        for which in SETTINGS:
            done = python(HERE / "shared_tensors.py", which, PYTORCH_CUDA_ALLOC_CONF=SETTINGS[which])
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            found[which] = json.loads(done.stdout.splitlines()[-1])
            self.assertEqual(found[which].pop("backend"), "neap" if which == "neap" else "native")
        self.assertEqual(found["neap"], found["default"])
        if "expandable" in SETTINGS:
            self.assertEqual(found["neap"], found["expandable"])
        known, likely, computed = found["neap"]["unknown"]
        self.assertTrue(likely and not known if computed else not (likely or known))
        self.assertEqual(found["neap"]["sizes"][0], [[1000, [0, 1, 2, 3], [228, 229, 230, 231]], [4, 3, 2, 1, 4, 5]])

    @unittest.skipUnless(SHARES, "this PyTorch's interface shares cudaMalloc's memory alone")
    def test_a_sender_that_is_gone_is_named(self):
        code = """
import struct, neap, torch
neap.install_allocator()
kept = torch.zeros(1000, dtype=torch.uint8, device="cuda")
device, handle, size, offset, *rest = kept.untyped_storage()._share_cuda_()
for place, pid in ((handle.index(b"neap-1"), 1 << 30), (0, 0)):
    changed = handle[: place + 8] + struct.pack("q", pid) + handle[place + 16 :] if pid else handle[:-16] + bytes(16)
    try:
        torch.UntypedStorage._new_shared_cuda(device, changed, size, offset, *rest[:-1], False)
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""
        done = FORKS.run(code)
        self.assertEqual(
            done.stdout.splitlines(),
            ["neap: process 1073741824, which shared this tensor, cannot be reached: Connection refused",
             "neap: this is not the handle of a shared block"],
            done.stderr,
        )  # fmt: skip

    @unittest.skipUnless(SHARES, "this PyTorch's interface shares cudaMalloc's memory alone")
    def test_what_a_program_does_to_its_descriptors_and_its_peers(self):
        done = python(HERE / "shared_descriptors.py")
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(
            json.loads(done.stdout.splitlines()[-1]),
            {"first": [3_000_000, 1], "in the fork": 0, "beside stalled receivers": [3_000_000, 2],
             "after its listener was closed": [3_000_000, 3], "its own connection": True, "the name": True, "child": 0},
        )  # fmt: skip

    def test_what_it_cannot_share_it_refuses_in_words(self):
        found = seen("neap", "shared")["shared"]
        self.assertEqual(seen("default", "shared")["shared"]["plain"], "")
        self.assertEqual(found.get("of a pool", ""), "")
        if SHARES:
            self.assertEqual(found["plain"], "")
        else:
            self.assertRegex(found["plain"], "neap's memory is mapped page by page")


class Table(unittest.TestCase):
    """docs/allocator.md is complete, and each "works" has its area."""

    def setUp(self):
        text = (pathlib.Path(os.environ["NEAP_SOURCE"]) / "docs" / "allocator.md").read_text()
        self.rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]

    def test_it_lists_every_function(self):
        """Public or not: a new function in PyTorch makes this fail."""
        named = {name for row in self.rows for name in re.findall(r"`(\w+)`", row[0])}
        memory = torch.cuda.memory
        defined = {n for n, v in vars(memory).items() if callable(v) and getattr(v, "__module__", "") == memory.__name__}
        self.assertEqual(sorted((defined | set(memory.__all__)) - named), [])
        self.assertGreater(len(defined), 25)

    def test_it_lists_every_area(self):
        program = (HERE / "allocator_areas.py").read_text()
        areas = set(re.findall(r"@area\ndef (\w+)", program)) | {"backend"}
        shown = {name for row in self.rows for name in re.findall(r"`(\w+)`", row[-1])}
        self.assertEqual(sorted(areas ^ shown), [])
        self.assertEqual([row for row in self.rows if "works" in row[1] and not re.findall(r"`(\w+)`", row[-1])], [])

    def test_every_function_of_the_interface_is_implemented(self):
        header = pathlib.Path(torch.__file__).parent / "include" / "c10" / "cuda" / "CUDACachingAllocator.h"
        interface = re.search(r"\nclass (?:\w+ )?CUDAAllocator\b.*?\n};", header.read_text(), re.S)[0]
        wanted = set(re.findall(r"virtual [^;{(]*?(\w+)\(", interface)) | set(re.findall(r"(\w+)\([^;{}]*\)[^;{}]*override", interface))
        wanted -= {"getMemoryInfo"}  # it asks the driver
        own = "".join(path.read_text() for path in (pathlib.Path(os.environ["NEAP_SOURCE"]) / "src" / "torch").glob("*.h"))
        self.assertEqual(sorted(wanted - set(re.findall(r"(\w+)\(", own))), [])
        self.assertGreater(len(wanted), 25)


class Run(Case):
    """neap run --allocator neap: an unchanged script."""

    SCRIPT = """
import json, os, subprocess, time, torch

def ask(*words):
    # The main thread runs on, because it serves the request. Tries again if the machine was too busy for an answer
    # within 2 s.
    for _ in range(30):
        verb = subprocess.Popen([os.environ["NEAP"], *words, "--json"], stdout=subprocess.PIPE, text=True)
        while verb.poll() is None:
            time.sleep(0.01)
        if verb.returncode != 75:
            break
    return json.load(verb.stdout)

kept = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
gone = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
del gone
(ledger,) = [device["ledger"] for device in ask("info")["devices"] if device["ledger"]["allocated"]]
cleared = ask("clear")
ask("fraction", "0.25")
print(json.dumps([torch.cuda.get_allocator_backend(), torch.cuda.memory_reserved() >> 20, ledger, cleared["processes"][0]["devices"][0],
                  torch.cuda.get_per_process_memory_fraction() if hasattr(torch.cuda, "get_per_process_memory_fraction") else 0.25]))
torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
"""

    def test_attached_and_out_of_memory(self):
        done, result = self.run_script(self.SCRIPT, "--allocator", "neap", check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
        self.assertEqual(len(lines), 1, done.stderr)
        backend, reserved, ledger, cleared, limit = json.loads(lines[0])
        self.assertEqual((backend, reserved, limit), ("neap", 64, 0.25))
        self.assertEqual(cleared["freed"], 32 * MIB)
        self.assertEqual((ledger["contexts"], ledger["unexplained"]), (32 * MIB, 0))  # PyTorch's context, measured
        self.assertEqual(result["outcome"], "oom")
        self.assertIn("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB.", done.stderr)
        self.assertIn("recorded: process", done.stderr)  # by libneap, with every allocation until then

    def without_compiler(self, **environment):
        """The note in the report of a run that used PyTorch's own allocator."""
        script = "import torch; torch.zeros(1, device='cuda'); print(torch.cuda.get_allocator_backend())"
        done, _ = self.run_script(script, "--allocator", "neap", XDG_CACHE_HOME=str(self.folder / "cache"), **environment)
        self.assertIn("native", done.stdout)
        self.assertIn("--allocator neap, so PyTorch's own is in use: AllocatorUnavailable", done.stderr)
        self.assertIn("--allocator plugin", done.stderr)
        return done.stderr

    def test_without_a_compiler_a_note_says_so(self):
        self.assertIn("/nowhere/c++", self.without_compiler(CXX="/nowhere/c++"))

    def test_without_a_compiler_on_path_the_note_names_the_package(self):
        self.assertIn("apt install g++", self.without_compiler(CXX="", PATH=str(self.folder / "empty")))


if __name__ == "__main__":
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        print("skipped: neap's allocator is compiled, and there is no C++ compiler on PATH (Debian: apt install g++)")
        sys.exit(77)
    unittest.main()
