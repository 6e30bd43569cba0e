"""`neap run` on PyTorch programs, and its hooks inside them, with PyTorch's real CUDA allocator over neap's
stand-ins: what a run knows of its processes and their memory, its bounds, errors without a device, and hooks that
fail. test_launcher.py tests how a program is attached, test_live.py what the command does to a running one."""

import signal
import sys
import unittest

from running import LONG, MIB, Case

USES_CUDA = """
import os, sys, torch
kept = torch.zeros(100 << 20, dtype=torch.uint8, device="cuda")
gone = torch.zeros(200 << 20, dtype=torch.uint8, device="cuda")
del gone
opt = torch.optim.SGD([torch.zeros(4, requires_grad=True)], lr=0.1)
"""


class Bounds(Case):
    def test_a_bound_of_steps_ends_it_there_and_not_its_child(self):
        code = USES_CUDA + """
opt.step()
child = os.fork()
if child == 0:
    for _ in range(9): opt.step()
    sys.exit(0)
print(os.waitpid(child, 0)[1])
try:
    for step in range(1000):
        opt.step()
        print("went on after", step)
finally:
    print("cleaned up")
print("never here")
"""
        done, result = self.run_script(code, "--max-steps", "3")
        self.assertEqual(done.stdout, "0\nwent on after 0\ncleaned up\n")
        self.assertEqual((result["outcome"], result["evidence"], result["steps"]), ("stopped early", "the 3 steps of --max-steps", 3))
        self.assertIn("stopped early (the 3 steps of --max-steps), exit status 0", done.stderr)

    @LONG
    def test_below_it_nothing_ends_and_the_run_knows_what_was_held(self):
        done, result = self.run_script(USES_CUDA + "opt.step(); opt.step()\ntorch.cuda.empty_cache()\nprint('here')", "--max-steps", "3")
        self.assertEqual((done.stdout, result["outcome"], result["steps"], result["attached"]), ("here\n", "ok", 2, True))
        self.assertEqual((result["peak_allocated_bytes"], result["peak_reserved_bytes"]), (300 * MIB, 300 * MIB))

    def test_it_holds_where_the_script_catches_all(self):
        code = "while True:\n    try:\n        opt.step()\n        print('on')\n    except BaseException:\n        pass\n"
        done, result = self.run_script(USES_CUDA + code, "--max-steps", "2")
        self.assertEqual((done.stdout, result["outcome"]), ("on\n", "stopped early"))
        done = self.command("run", "--max-steps", "0", "--", "true", check=False)
        self.assertEqual((done.returncode, "--max-steps: expected a number above 0" in done.stderr), (64, True))


class Values(Case):
    def test_they_are_computed_from_the_first_operation_on_where_pythonpath_was_replaced(self):
        (self.folder / "double.py").write_text("import torch\nprint((torch.ones(2, device='cuda') * 2).tolist())\n")
        done = self.command("run", "--no-history", "--", "sh", "-c", f"PYTHONPATH=. {sys.executable} double.py")
        self.assertEqual(done.stdout, "[2.0, 2.0]\n", done.stderr)


class Errors(Case):
    def test_one_that_is_come_through_is_no_failure(self):
        code = USES_CUDA + """
try:
    torch.zeros(3 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    opt.step()
raise SystemExit(3)
"""
        done, result = self.run_script(code, check=False)
        self.assertEqual((done.returncode, result["outcome"], result["ooms"]), (3, "failed", 1))

    def test_the_exception_that_ended_it_is_known_without_its_stderr(self):
        code = "import os, sys\nos.close(2)\nimport torch\nraise ValueError('bad rate\\nand more')\n"
        # Without this variable Python ends with 120: it cannot flush the data that it buffers for the closed
        # descriptor.
        done, result = self.run_script(code, check=False, PYTHONUNBUFFERED="1")
        self.assertEqual((done.returncode, result["evidence"]), (1, "exit status 1: ValueError: bad rate"))
        done, result = self.run_script("import torch\nraise SystemExit(4)\n", check=False)
        self.assertEqual((done.returncode, result["evidence"], result["error_line"]), (4, "exit status 4", ""))

    def test_the_ladder_for_an_error_without_a_device(self):
        code = """
import os, sys, torch
sys.stderr = open(os.devnull, "w")  # hides Python's message about it
before = sys.excepthook
def mine(kind, error, trace):
    print("mine", kind.__name__)
    before(kind, error, trace)
sys.excepthook = mine
batch, accumulate = int(sys.argv[1]), int(sys.argv[2])
if batch > 2:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
                                 "1.00 GiB of which 512.00 MiB is free.")
print(batch, accumulate)
"""
        options = ["--param", "batch=4", "--param", "accumulate=1", "--on-oom", "halve batch, double accumulate"]
        done, result = self.run_script(code, *options, arguments=("{batch}", "{accumulate}"))
        self.assertEqual(done.stdout, "mine OutOfMemoryError\n2 2\n")  # the program's own hook is called
        self.assertEqual((result["outcome"], result["retries"], result["ooms"]), ("ok", 1, 1))
        self.assertEqual((result["oom_card"], self.recordings()), ("", []))  # only the text is known
        _, result = self.run_script(code, check=False, arguments=("8", "1"))
        self.assertEqual(result["outcome"], "oom")
        self.assertIn("CUDA out of memory. Tried to allocate 2.00 GiB.", result["evidence"])

    @LONG
    def test_an_error_that_ended_a_child_is_evidence(self):
        code = """
import os, sys
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import torch
def work(rank):
    if sys.argv[1] == "8":
        raise torch.OutOfMemoryError(sys.argv[2])
if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=1)
    print("done")
"""
        options = ["--param", "b=8", "--on-oom", "halve b"]
        done, result = self.run_script(code, *options, arguments=("{b}", "CUDA out of memory. Tried"))
        self.assertEqual((done.stdout, result["outcome"], result["retries"]), ("done\n", "ok", 1))
        # Without its stderr: a line there that names the error would be evidence.
        code = "import os\nos.close(2)\nimport torch\nraise Exception('-- Process 1 terminated:\\nTraceback ...\\nRuntimeError: Not CUDA out of memory')"
        _, result = self.run_script(code, check=False)
        self.assertEqual(result["outcome"], "failed")


class Processes(Case):
    def test_each_process_is_its_own_however_it_begins(self):
        code = """
import multiprocessing, os, subprocess, sys, torch

def take(mib):
    kept = torch.zeros(mib << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()

if __name__ == "__main__":
    pid = os.fork()
    if pid == 0:
        take(10)
        sys.exit(0)
    statuses = [os.waitpid(pid, 0)[1]]
    for mib, method in ((20, "fork"), (30, "spawn"), (40, "forkserver")):
        child = multiprocessing.get_context(method).Process(target=take, args=(mib,))
        child.start()
        child.join()
        statuses.append(child.exitcode)
    code = "import torch\\nkept = torch.zeros(50 << 20, dtype=torch.uint8, device='cuda')"
    statuses.append(subprocess.run([sys.executable, "-c", code]).returncode)
    take(60)
    pid = os.fork()
    if pid == 0:
        print("child", flush=True)
        os._exit(0)
    statuses.append(os.waitpid(pid, 0)[1])
    print(statuses)
"""
        done, result = self.run_script(code)
        self.assertEqual(done.stdout, f"child\n{[0] * 6}\n")
        ranks = result["ranks"]
        self.assertEqual({(r["role"], r["rank"]) for r in ranks}, {("process", None)})
        self.assertEqual(sorted(r["peak_allocated_bytes"] for r in ranks), [n * MIB for n in (10, 20, 30, 40, 50, 60)])
        self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("  process  ")]), 6)
        self.assertEqual(len(self.recordings()), 6)

    @LONG
    def test_ranks_and_what_they_start_are_told_apart(self):
        rank = """
import os, subprocess, sys, torch
mib = int(os.environ["RANK"]) + 1

class Uses(torch.utils.data.Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        kept = torch.zeros(mib << 20, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        return 0

if __name__ == "__main__":
    kept = torch.zeros(mib << 20, dtype=torch.uint8, device="cuda")
    if sys.argv[1] == "rank":
        list(torch.utils.data.DataLoader(Uses(), num_workers=1, multiprocessing_context="spawn"))
        subprocess.run([sys.executable, "rank.py", "helper"])  # with RANK in its environment
"""
        (self.folder / "rank.py").write_text(rank)
        code = """
import os, subprocess, sys
def start(rank):
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
    return subprocess.Popen([sys.executable, "rank.py", "rank"], env={**os.environ, **names})
for process in [start("1"), start("0")]: process.wait()
"""
        done, result = self.run_script(code)
        ranks = result["ranks"]
        self.assertEqual(
            [(r["role"], r["rank"], r["local_rank"]) for r in ranks],
            [("rank", 0, 0), ("rank", 1, 1), ("process", 0, 0), ("worker", 0, 0), ("process", 1, 1), ("worker", 1, 1)],
            done.stderr,
        )
        self.assertEqual([r["peak_allocated_bytes"] for r in ranks], [MIB, 2 * MIB, MIB, MIB, 2 * MIB, 2 * MIB])
        self.assertEqual({r["device"] for r in ranks}, {self.ask("info")["devices"][0]["uuid"]})
        lines = [line for line in done.stderr.splitlines() if " on GPU-" in line]
        self.assertRegex(lines[1], r"^  rank 1    \d+: peak 2\.00 MiB allocated, 20\.0 MiB reserved on GPU-\S+; 1 steps, ran out 0 times$")
        self.assertEqual(len(lines), 6)
        self.assertRegex(lines[3], r"^  worker    \d+ of rank 0: peak ")
        (kept,) = self.ask("history")["runs"]
        self.assertEqual(kept["ranks"], ranks)
        shown = self.command("history", kept["run_id"]).stdout
        self.assertEqual(shown[shown.index("\nProcesses\n") + 11 :].splitlines()[: len(lines) + 1], [*lines, ""])


# After the hooks are installed, and before CUDA is used.
MISSING = """
import os, subprocess, time, torch
import neap
from neap import _sources
del torch._C._cuda_attach_out_of_memory_observer
_sources.device_uuid = lambda torch, index: None
kept = torch.zeros(100 << 20, dtype=torch.uint8, device="cuda")
end = time.monotonic() + 100
while "figures" not in neap.describe() and time.monotonic() < end:  # four times a second
    time.sleep(0.01)
print(subprocess.run([os.environ["NEAP"], "info"], stdout=subprocess.PIPE, text=True).stdout)
print(neap.describe())
"""

NOTES = """
import os, subprocess, sys, torch, neap
from neap import _abi, _events, _library, _notes, _sources, hooks
from neap.agent import agent

def broken(*_, **__):
    raise ValueError("broken on purpose")

hooks.torch_imported(torch)
opt = torch.optim.SGD([torch.zeros(4, device="cuda", requires_grad=True)], lr=0.1)
assert neap.describe() == "attached", neap.describe()
emit, _events.emit = _events.emit, broken
split, rungs = neap.Split(4, 1), {_abi.Rung.SPLIT}
calls = {
    "recording marks": lambda: _events.mark(_abi.Mark.START, "start"),
    "recording the split": lambda: _events.split(split, rungs),
    "recording rungs": lambda: _events.rung(_abi.Rung.SPLIT, split, split, rungs),
    "recording steps": lambda: _events.step(1, 0.5, split),
    "recording cleanups": lambda: _events.cleanup(_abi.CleanupReason.END, 1, 0.1),
    "recording an out-of-memory error": lambda: _events.tag_bytes(0, "all", 1, 1),
}
for part, call in calls.items():
    _notes._found.clear()
    call()
    call()
    assert _notes.text() == part + ": ValueError: broken on purpose", (part, _notes.text())
_notes._found.clear()
_events.out_of_memory(0, 1, 1, 1, 1, None, 0, False, 0)
_events.held_mark("peak", 1, 1)
assert list(_notes._found) == [("recording an out-of-memory error", "ValueError"), ("recording marks", "ValueError")]
_events.emit = emit
_notes._found.clear()

hooks._events.in_training = broken
opt.step()
hooks.memory.is_out_of_memory, folder = broken, os.environ.pop("NEAP_RUN_DIR", None)
os.environ.update(NEAP_RUN_DIR=sys.argv[1], NEAP_ATTACH="1")
sys.__excepthook__ = lambda *_: None
hooks._State.previous_hook = None
sys.excepthook(MemoryError, MemoryError(), None)
torch.cuda.memory_snapshot = broken
try:
    torch.zeros(3 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
agent.publish = broken
agent.end()
expected = ["optimizer steps", "uncaught error", "out-of-memory observer", "figures at the end"]
assert [part for part, _ in _notes._found] == expected, _notes.text()
with open(os.path.join(sys.argv[1], "note.%d" % os.getpid())) as file:
    assert [line.split(":")[0] for line in file] == expected[1:], "each once"
shown = subprocess.run([os.environ["NEAP"], "info"], capture_output=True, text=True).stdout
assert "optimizer steps: ValueError: broken on purpose; uncaught error" in shown, shown
assert neap.describe().startswith("attached; optimizer steps: ValueError"), neap.describe()
for n in range(100):
    _notes.note("part %d" % n, ValueError("x" * 10000))
assert len(_notes._found) == 16 and len(_notes.text()) < 16 * 402
print("fine")
"""

REFUSED = """
import os, subprocess, time, torch, neap
from neap import _cleanups, _leftovers, _sources, hooks, memory

def interrupted(*_, **__):
    raise KeyboardInterrupt

hooks.torch_imported(torch)
found, clear = [], memory.clear
_leftovers.clear = found.append
_cleanups.leftovers()
assert found == []
torch.zeros(1 << 20, device="cuda")
_cleanups.leftovers()
assert found == [_sources.device_uuid(torch, 0)] and found[0], found
memory.clear = interrupted
ask = 'for i in $(seq 30); do "$NEAP" clear --pid "$0"; [ $? = 75 ] || break; done'  # 75: the machine was too busy for it
asking = subprocess.Popen(["sh", "-c", ask, str(os.getpid())], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
try:
    for _ in range(6000):
        time.sleep(0.01)
except KeyboardInterrupt:
    print("the interrupt arrived")
print("KeyboardInterrupt" in asking.communicate(timeout=120)[1], "a request: KeyboardInterrupt" in neap.describe())
"""

LIMITS = """
import torch, neap
from neap import _limits, hooks
from neap.agent import agent
_limits.watch(torch)
first = neap.set_memory_fraction(0.5), neap.set_memory_fraction(0.5, 1)
print(*first, torch.cuda.is_initialized())
torch.cuda.init()
total = torch.cuda.mem_get_info(0)[1]
def shares():
    limits = [_limits.limit_of(torch, index) for index in range(4)]
    return [limit and limit / total for limit in limits]
print(shares())
print([r.limit == total // 4 for r in neap.set_memory_fraction(0.25, 0)], [r.limit == total // 8 for r in neap.set_memory_fraction(0.125, 2)])
agent.fraction._share = 0.75
agent.fraction.follow(torch, 3)
print(shares(), torch.cuda.current_device())
"""


class Hooks(Case):
    """In a program of its own. neap's own failures are swallowed and reported."""

    def program(self, code, *arguments, **more):
        done = self.execute(sys.executable, "-c", code, *arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_parts_that_a_pytorch_does_not_have(self):
        done, result = self.run_script(MISSING)
        self.assertRegex(done.stdout, r"(?m)^attached; out-of-memory observer: AttributeError.*; figures: RuntimeError: this PyTorch does not")
        self.assertEqual(done.stdout.count("out-of-memory observer: AttributeError"), 2, done.stdout)  # and in neap info
        self.assertRegex(done.stderr, r"note      process \d+: out-of-memory observer: AttributeError")
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual((result["outcome"], result["peak_allocated_bytes"]), ("ok", 100 * MIB))

    def test_each_that_fails(self):
        done = self.program(NOTES, self.folder)
        self.assertEqual((done.stdout, done.stderr), ("fine\n", ""))

    def test_a_request_that_fails_keeps_no_interrupt(self):
        self.assertEqual(self.program(REFUSED).stdout, "the interrupt arrived\nTrue True\n")

    def test_limits_before_cuda_is_used_and_on_other_devices_than_the_current(self):
        done = self.program(LIMITS, NEAP_SIM=f"mem=1GiB,gpus=4,world={self.world}")
        after = "[0.25, 0.5, 0.125, 0.75]"
        self.assertEqual(done.stdout, f"[] [] False\n[0.5, 0.5, None, None]\n[True] [True]\n{after} 0\n")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a script ignores it
    unittest.main()
