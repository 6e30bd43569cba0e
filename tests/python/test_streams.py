"""Races between streams, found without a GPU (`neap check --streams`): programs that lack an order are reported with
the line, and correct ones are not.

`test_streams.py programs COUNT OUT` runs one in COUNT programs of streams_programs.py after the other in this
process, also those with several ranks, and writes the reports to OUT.
"""

import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import streams_programs
import streams_shapes

SHARE = 5  # ./test runs one in this many programs


def chosen(every, ranks):
    """One in `every` programs."""
    import torch

    programs = list(streams_programs.programs(streams_programs.TEMPLATES + streams_shapes.TEMPLATES))
    return [one for at, one in enumerate(programs) if one.ranks == ranks and at % every == 0 and torch.__version__ >= one.since]


def run_one(program, at, folder):
    """The report on it: for each race its kind and its two lines in the program's file."""
    import torch
    import torch.distributed as dist
    from neap import _races

    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    _races.again()
    code = compile(program.text, f"/programs/program_{at}.py", "exec")
    exec(code, {"torch": torch, "dist": dist, "__name__": "program"})
    gc.collect()
    torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(dir=folder) as copy:
        _races.copy(copy)
        told = subprocess.run([os.environ["NEAP"], "check", "--streams", "--json", copy], capture_output=True, text=True)
    places = [(race["kind"], race["first"]["place"], race["second"]["place"]) for race in json.loads(told.stdout)["races"]]
    return [(kind, *(one and (os.path.basename(one["file"]), one["line"]) for one in both)) for kind, *both in places]


def run_programs(every, out):
    import torch
    import torch.distributed as dist
    from neap import _races

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.zeros(1, device="cuda")
    assert _races.is_on(), "races are not looked for"
    if ranks > 1:
        dist.init_process_group("nccl")
    results = []
    for at, program in enumerate(chosen(every, ranks)):
        found = run_one(program, at, pathlib.Path(out).parent)
        expected = [(f"program_{at}.py", line) for line in program.lines] if program.removed else None
        results.append({"name": program.name, "expected": expected, "found": found})
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()
    pathlib.Path(out + "." + os.environ.get("RANK", "0")).write_text(json.dumps(results))


if sys.argv[1:2] == ["programs"]:
    run_programs(int(sys.argv[2]), sys.argv[3])
    sys.exit()

from running import LONG, NEAP  # noqa: E402
from streams_case import CORRECT, RACE, StreamsCase  # noqa: E402

SECONDS = 1500  # against hanging alone

# As meta-pytorch/torchrec#4218 describes it: weights are copied to the host on a stream of their own, and their storage is freed at once.
STASH = """
import torch
copying = torch.cuda.Stream()
weights = [torch.full((1 << 16,), 1.0, device="cuda") for _ in range(2)]
hosts = [torch.empty(1 << 16, pin_memory=True) for _ in weights]
copying.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(copying):
    for weight, host in zip(weights, hosts):
        host.copy_(weight, non_blocking=True)
for weight in weights:
    weight.untyped_storage().resize_(0)
forward = [torch.zeros(1 << 16, device="cuda") for _ in range(2)]
torch.cuda.synchronize()
"""
# As the benchmark of #4231 shows it: the next tensor of the default stream gets the block, and the copy brings its -1.
BENCHMARK = """
import torch
copying = torch.cuda.Stream()
source = torch.rand(1 << 18, device="cuda")
buffer = torch.empty(1 << 18, pin_memory=True)
with torch.cuda.stream(copying):
    copying.wait_stream(torch.cuda.default_stream())
    buffer.copy_(source, non_blocking=True)
source.untyped_storage().resize_(0)
others = [torch.empty(1 << 18, device="cuda").fill_(-1.0) for _ in range(3)]
copying.synchronize()
assert buffer.min() >= 0
"""


class Programs(StreamsCase):
    """Each program without one of its orders is reported, and no correct one is."""

    def run_all(self, every, ranks, **more):
        out = self.folder / f"out{ranks}"
        words = [sys.executable, *(["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else [])]
        spec = f"{max(ranks, 2)}xh100-80gb,mem=2GiB,world={self.world}"
        words = [NEAP, "run", "--quiet", "--no-history", "--streams", "--folder", self.folder / f"run{ranks}", "--",
                 *words, __file__, "programs", every, out]  # fmt: skip
        environment = {**self.environment, "NEAP_SIM": spec, **more}
        done = subprocess.run(list(map(str, words)), env=environment, capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        seen = [json.loads((self.folder / f"{out.name}.{rank}").read_text()) for rank in range(ranks)]
        for of_ranks in zip(*seen):
            found = [race for one in of_ranks for race in one["found"]]
            with self.subTest(of_ranks[0]["name"]):
                if of_ranks[0]["expected"]:
                    self.assertIn(of_ranks[0]["expected"], [lines for _, *lines in found], "not reported, or not these lines")
                else:
                    self.assertEqual(found, [], "reported falsely")
        return seen[0]

    def test_share(self):
        self.run_all(SHARE, 1)

    @LONG
    def test_all(self):
        both = self.run_all(1, 1) + self.run_all(1, 2)
        print(sum(bool(one["expected"]) for one in both), "without an order,", sum(not one["expected"] for one in both), "correct")

    @LONG
    def test_all_with_neaps_allocator(self):
        self.run_all(1, 1, NEAP_ALLOCATOR="neap")
        self.run_all(1, 2, NEAP_ALLOCATOR="neap")


class Command(StreamsCase):
    def test_correct(self):
        done = self.check(CORRECT)
        self.assertEqual((done.returncode, done.stdout), (0, "neap check: ok: no race between streams\n"), done.stderr)

    def test_lifetime(self):
        done = self.check(RACE + 'print("the program\'s own")\n', "--json")
        self.assertIn("the program's own", done.stderr)
        self.assertEqual(done.returncode, 1, done.stderr)
        (race,) = json.loads(done.stdout)["races"]
        self.assertEqual(race["kind"], "lifetime")
        self.assertIn("record_stream(stream 1)", race["order"])
        self.assertEqual((race["first"]["place"]["line"], race["first"]["operation"], race["first"]["stream"]), (7, "aten::mul", 1))
        self.assertEqual((race["second"]["place"]["line"], race["second"]["stream"]), (10, 0))
        self.assertEqual((race["block"]["bytes"], race["block"]["allocated"]["line"], race["block"]["freed"]["line"]), (1 << 22, 4, 9))
        known = self.folder / "known"
        known.write_text(f"# the prefetcher\n{race['key']}\n")
        done = self.check(RACE, "--accept", known)
        self.assertEqual((done.returncode, done.stdout), (0, "neap check: ok: no race between streams, and 1 accepted\n"))

    def test_interrupted(self):
        path = self.program(RACE + 'print("ready", flush=True)\nimport time\ntime.sleep(600)\n')
        words = list(map(str, [NEAP, "check", "--streams", "--", sys.executable, path]))
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True, env=self.environment) as process:
            ready = process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
            out, _ = process.communicate(timeout=SECONDS)
        self.assertEqual((ready, process.returncode), ("ready\n", 130), out)
        self.assertIn("1. lifetime race", out)
        self.assertIn("neap check: FAILED: 1 race between streams; the run was interrupted\n", out)

    def test_delay(self):
        """A race gives the wrong number that it stands for; a program with its orders gives its own numbers."""
        shown = "print(y.sum().item(), (y * torch.arange(1 << 20, device='cuda')).std().item())\n"
        numbers = [self.check(text + shown, how).stdout.split("\n")[0] for text, how in
                   ((CORRECT, "--streams"), (CORRECT, "--streams=delay"), (CORRECT, "--streams=delay:1"), (RACE, "--streams"))]  # fmt: skip
        self.assertEqual(set(numbers), {numbers[0]})
        done = self.check(RACE + shown, "--streams=delay")
        self.assertEqual((done.returncode, done.stdout.split("\n")[0]), (1, "0.0 0.0"), done.stderr)

    def test_public_bugs(self):
        for name, text, first, second in (("4218", STASH, 9, 12), ("4231", BENCHMARK, 8, 10)):
            done = self.check(text, "--json")
            races = json.loads(done.stdout)["races"]
            with self.subTest(name):
                self.assertEqual({race["kind"] for race in races}, {"lifetime"}, done.stdout)
                self.assertEqual({(race["first"]["place"]["line"], race["second"]["place"]["line"]) for race in races}, {(first, second)})
                self.assertEqual({race["first"]["operation"] for race in races}, {"aten::copy_"})

    def test_host(self):
        """The host reads memory that a copy may still write."""
        host = self.check("""
import torch
x = torch.ones(1000, device="cuda")
y = x.to("cpu", non_blocking=True)
total = y.sum().item()
import ctypes, threading  # a function of the host that comes after a copy tells that it is there
done = threading.Event()
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: done.set())
z = x.to("cpu", non_blocking=True)
stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
assert ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(stream, call, None) == 0
done.wait()
total += z.sum().item()
""", "--json")
        (race,) = json.loads(host.stdout)["races"]
        self.assertEqual((race["kind"], race["second"]["stream"], race["second"]["place"]["line"]), ("host", None, 5))

    def test_run(self):
        path = self.program(RACE)
        done = self.execute(NEAP, "run", "--streams", "--no-history", "--folder", self.folder / "run", "--", sys.executable, path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("  streams   1 race between streams\n", done.stderr)
        again = self.command("check", "--streams", self.folder / "run", check=False)
        self.assertIn("program.py:7 in <module>: aten::mul reads it on stream 1", again.stdout)
        self.assertEqual(again.returncode, 1)
        (self.folder / "known").write_text("# none yet\n\nprefetch.py:6\n")
        again = self.command("check", "--streams", "--accept", "known", "run", check=False)
        self.assertEqual((again.returncode, again.stderr), (65, "neap check: known, line 3: not the key of a race\n"))

    def test_words(self):
        for words in (["--streams", "--max-peak", "1GiB", "--", "true"], ["--accept", "x", "--max-peak", "1", "--", "true"]):
            self.assertEqual(self.command("check", *words, check=False).returncode, 64)
        self.assertEqual(self.command("run", "--streams", "--", "true", check=False, NEAP_DEVICE="cuda").returncode, 64)
        self.assertEqual(self.command("check", "--streams", self.folder / "none", check=False).returncode, 66)


if __name__ == "__main__":
    unittest.main()
