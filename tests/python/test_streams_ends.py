"""Races between streams: programs that fail, fork, end, or have an allocator that reports nothing about its blocks;
and tests under pytest."""

import json
import unittest

from streams_case import CORRECT, RACE, StreamsCase, function

SMALL = """
import torch
x = torch.ones(1000, device="cuda") * 2
torch.cuda.synchronize()
"""
# The child has none of its parent's files.
FORKING = SMALL + """
import os, sys
from neap import _races
from running_files import of
assert _races.is_on() and of("races.") and of("places.")
child = os.fork()
if not child:
    os._exit(3 if of("races.") or of("places.") or _races.is_on() else 0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
FILES = """
import os
def of(name):
    links = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return [link for link in map(os.readlink, filter(os.path.lexists, links)) if os.path.basename(link).startswith(name)]
"""
# Each new line is a new stack.
ENDING = SMALL + """
import os, sys
places = os.path.join(os.environ["NEAP_RUN_DIR"], f"places.{os.getpid()}")
before = os.path.getsize(places)
y = x * 3
assert os.path.getsize(places) > before
sys.modules["neap.agent"].agent.end()
before = os.path.getsize(places)
y = x * 4
assert os.path.getsize(places) == before
"""
# A race, and then the process restarts in place; there everything is late: an assertion of the device, after a copy
# by the driver's API.
RESTARTING = """
import ctypes, os, sys
if len(sys.argv) > 1:
    import torch
    cuda, side = ctypes.CDLL("libcuda.so.1"), torch.cuda.Stream()
    with torch.cuda.stream(side):
        table, host = torch.arange(8, device="cuda") * 2, (ctypes.c_int64 * 8)()
        asked = cuda.cuMemcpyDtoHAsync_v2(host, ctypes.c_uint64(table.data_ptr()), ctypes.c_size_t(64), ctypes.c_void_p(side.cuda_stream))
        assert (asked, cuda.cuStreamSynchronize(ctypes.c_void_p(side.cuda_stream)), list(host)) == (0, 0, list(range(0, 16, 2)))
        torch.nn.functional.embedding(torch.tensor([1, 9], device="cuda"), torch.ones(4, 4, device="cuda"))
        try:
            side.synchronize()
        except RuntimeError as error:
            assert "device-side assert" in str(error)
            os._exit(0)
    os._exit(3)
""" + RACE + """
os.execv(sys.executable, [sys.executable, __file__, "again"])
"""
# Each part's code is at the address at which the code of the part before was.
PARTS = f"""
for i in range(20):
    exec(compile({RACE!r}, f"part{{i:02}}.py", "exec"), {{}})
"""
CASES = f"""
import unittest
import pytest, torch

{function("race", RACE)}
class Unsafe(unittest.TestCase):
    @pytest.mark.gpu_streams
    def test_unsafe(self):
        race()

    @pytest.mark.gpu_streams
    def test_safe(self):
        torch.ones(1 << 20, device="cuda").sum().item()
"""


# A test that runs again, and a test whose race is in another process, which this one never sees.
MARKED = f"""
import pytest, subprocess, sys

{function("correct", CORRECT)}
{function("race", RACE)}
@pytest.mark.gpu_streams
def test_safe():
    correct()

@pytest.mark.gpu_streams
@pytest.mark.parametrize("again", range(2))
def test_unsafe(again):
    race()

@pytest.mark.gpu_streams
def test_child():
    subprocess.run([sys.executable, "program.py"], check=True)

def test_unmarked():
    race()

@pytest.mark.gpu_streams
def test_none():
    pass
"""


class Ends(StreamsCase):
    def test_code_in_the_place_of_ended_code(self):
        done = self.check(PARTS, "--json")
        sides = [(race["first"], race["second"]) for race in json.loads(done.stdout)["races"]]
        places = sorted([(side["place"]["file"], side["place"]["line"]) for side in both] for both in sides)
        self.assertEqual(places, [[(f"part{i:02}.py", 7), (f"part{i:02}.py", 10)] for i in range(20)])

    def test_another_allocator(self):
        done = self.check(SMALL, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        self.assertEqual((done.returncode, done.stdout), (69, ""), done.stderr)
        self.assertIn("nothing was seen", done.stderr)

    def test_fork(self):
        (self.folder / "running_files.py").write_text(FILES)
        self.assertEqual(self.check(FORKING).returncode, 0)

    def test_restart(self):
        done = self.check(RESTARTING, "--streams=delay")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("neap check: FAILED: 1 race between streams\n", done.stdout)

    def test_interpreter_ends(self):
        done = self.check(ENDING)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_failed(self):
        done, _ = self.run_script(SMALL + "raise SystemExit(3)", "--streams", check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        line = "neap check: incomplete: no race between streams; the run "
        path = self.folder / "run" / "result.json"
        result = json.loads(path.read_text())
        for change, status, words in (
            ({}, 3, "failed with exit status 3"),
            ({"outcome": "timeout", "exit_status": 143}, 143, "'s time limit passed"),
            ({"outcome": "timeout", "exit_status": 0}, 69, "'s time limit passed"),
        ):
            path.write_text(json.dumps({**result, **change}))
            done = self.command("check", "--streams", "run", check=False)
            self.assertEqual((done.returncode, done.stdout), (status, (line + words + "\n").replace(" 's", "'s")))
        done = self.command("check", "--streams", "run", "--json", check=False)
        self.assertEqual((done.returncode, json.loads(done.stdout)["ok"]), (69, None))
        path.unlink()
        done = self.command("check", "--streams", "run", check=False)
        self.assertEqual((done.returncode, done.stdout), (69, line + "has no result\n"))
        done = self.check(SMALL + "raise SystemExit(3)")
        self.assertEqual((done.returncode, done.stdout), (3, line + "failed with exit status 3\n"))


class Pytest(StreamsCase):
    def test_marker(self):
        self.program(RACE)
        done = self.pytest(MARKED)
        self.assertIn("3 failed, 3 passed", done.stdout)
        self.assertEqual(done.stdout.count("test_marked.py:22 in race: aten::mul reads it on stream"), 2, done.stdout)
        self.assertEqual(done.stdout.count("program.py:7 in <module>: aten::mul reads it on stream 1"), 1)

    def test_cases_of_unittest(self):
        done = self.pytest(CASES)
        self.assertIn("1 failed, 1 passed", done.stdout)
        self.assertIn("aten::mul reads it on stream", done.stdout)


if __name__ == "__main__":
    unittest.main()
