"""The command on live PyTorch programs, with the real CUDA allocator over neap's stand-ins for NVIDIA's libraries:
what it reports about a program and does to it at every point of a step; limits; out-of-memory errors; the report of
`neap run`."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
import unittest

from running import BOUND, LONG, MIB, NEAP, Case

# Reads the name of a phase, makes a step that waits in it until the file go.N exists, and prints what it did.
TRAINER = """
import json, os, sys, threading, time, torch
from torch import nn
import neap

count, phase = 0, sys.argv[1]

def wait(where):
    if where == phase:
        open(f"at.{count}", "w").close()
        while not os.path.exists(f"go.{count}"):
            time.sleep(0.005)

class Waits(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        if index == 1:
            wait("loader")
        return torch.ones(256)

torch.cuda.init()
wait("initialized")
model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 256)).cuda()
model[1].register_forward_hook(lambda *_: wait("forward"))
optimizer = torch.optim.Adam(model.parameters())
optimizer.register_step_pre_hook(lambda *_: wait("optimizer"))
lock = threading.Lock()

def hold():
    with lock:
        held.set()
        wait("lock")

def step():
    for x in torch.utils.data.DataLoader(Waits(), num_workers=int(phase == "loader")):
        out = model(x.cuda())
        out.register_hook(lambda gradient: wait("backward"))
        out.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

def capture():
    graph, x = torch.cuda.CUDAGraph(), torch.ones(64, device="cuda")
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        y = x + 1
        wait("capture")
    graph.replay()
    torch.cuda.synchronize()

step()
gone = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
del gone
for line in sys.stdin:
    count, phase = count + 1, line.strip()
    cached = torch.zeros(128 << 20, dtype=torch.uint8, device="cuda")
    del cached
    if phase == "idle":
        wait("idle")
    elif phase == "limited":
        torch.cuda.set_per_process_memory_fraction(0.25)
        wait("limited")
    elif phase == "over":
        try:
            torch.zeros(1200 << 20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        wait("over")
    elif phase == "capture":
        capture()
    elif phase == "lock":
        held = threading.Event()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        with lock:
            pass
        thread.join()
    step()
    figures = torch.cuda.memory_stats()
    print(json.dumps({"phase": phase, "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
                      "ooms": figures["num_ooms"], "notes": neap.describe()}), flush=True)
"""


LEAKS = """
import torch, neap
from torch import nn
model, kept = nn.Linear(64, 64).cuda(), []
data = (torch.randn(12800, 64), torch.randn(12800, 64))
result = neap.Training(
    model, torch.optim.SGD(model.parameters(), lr=0.1), nn.functional.mse_loss, data, batch_size=64,
    watch=neap.WatchOptions(on_leak="stop"), memory=neap.MemoryOptions(limit="512 MiB"),
    callbacks=neap.CallbackOptions(on_step=lambda step, loss: kept.append(torch.zeros(8 << 20, dtype=torch.uint8, device="cuda"))),
).train()
print(result.leak.earliest)
"""


class Live(Case):
    def start(self, code=TRAINER, options=(), phase="", **more):
        """A trainer, which makes a first step by itself."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        for old in (*self.folder.glob("at.*"), *self.folder.glob("go.*")):
            old.unlink()
        (self.folder / "script.py").write_text(code)
        words = [NEAP, "run", "--quiet", "--folder", "run", *options, "--", sys.executable, "script.py", phase]
        process = subprocess.Popen(words, cwd=self.folder, env={**self.environment, **more}, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        self.addCleanup(self.give_up, process)
        return process

    def end(self, process):
        """Its exit status, once it has nothing more to do."""
        with contextlib.suppress(OSError):
            process.stdin.close()
        return process.wait(BOUND)

    def give_up(self, process):
        if process.poll() is None:
            process.terminate()
        self.end(process)
        process.stdout.close()
        process.stderr.close()

    def wait_for(self, name, process):
        end = time.monotonic() + BOUND
        while not (self.folder / name).exists():
            self.assertIsNone(process.poll(), "it ended")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)

    def begin(self, process, count, phase):
        """The program makes a step and waits in this phase of it."""
        process.stdin.write(phase + "\n")
        process.stdin.flush()
        self.wait_for(f"at.{count}", process)

    def go_on(self, process, count):
        (self.folder / f"go.{count}").touch()
        return json.loads(process.stdout.readline())

    def test_a_training_that_stops_before_a_leak_ends_memory(self):
        done, result = self.run_script(LEAKS)
        why = f"memory leaks: it would have ended at step {done.stdout.strip()} at the earliest"
        self.assertEqual((result["outcome"], result["evidence"]), ("stopped early", why), done.stderr)
        self.assertIn(f"neap run: python: stopped early ({why}), exit status 0", done.stderr)

    # At every point of a step.

    def test_the_verbs_at_every_point_of_a_step(self):
        process = self.start()
        plain = None
        # If the main thread is in a call that does not end, nothing is done. During a graph capture nothing may be
        # done.
        for count, phase in enumerate(("idle", "forward", "optimizer", "backward", "lock", "capture", "loader"), 1):
            with self.subTest(phase):
                self.begin(process, count, phase)
                try:
                    if phase in ("idle", "forward", "optimizer"):
                        self.act_on_it()
                    else:
                        self.be_refused(phase)
                finally:
                    after = self.go_on(process, count)
                plain = plain or after
                # The training continues undisturbed: the same tensors are live after each step.
                self.assertEqual((after["allocated"], after["ooms"], after["notes"]), (plain["allocated"], 0, "attached"))
        self.assertEqual(self.end(process), 0)
        self.assertEqual((self.result()["outcome"], self.result()["steps"]), ("ok", 2 * 8))

    def act_on_it(self):
        device = self.device("clear", "--stats-only")
        cleared = self.device("clear")
        self.assertGreaterEqual(cleared["freed"], 128 * MIB)
        self.assertEqual((cleared["allocated"], cleared["max_allocated"]), (device["allocated"], device["max_allocated"]))
        forced = self.device("clear", "--force")
        self.assertLessEqual(forced["allocated"], device["allocated"])  # cuBLAS's workspaces are freed, if PyTorch keeps them
        self.assertEqual(self.device("reset")["max_allocated"], device["max_allocated"])
        self.assertEqual(self.device("clear", "--stats-only")["max_allocated"], forced["allocated"])
        limited = self.device("fraction", "0.5")
        self.assertEqual((limited["limit_before"], limited["limit"]), (None, limited["total"] // 2))
        self.assertIsNone(self.device("fraction", "1")["limit"])

    def be_refused(self, phase):
        """Or the request is answered: a thread that waits for a data loader's worker wakes up about every 5 s."""
        reason = "a CUDA graph is being captured" if phase == "capture" else "PyTorch is busy"
        for words in (["clear"], ["fraction", "0.5"]):
            done = self.command(*words, check=False)
            if phase != "loader" or done.returncode != 0:
                self.assertEqual(done.returncode, 75, done.stdout)
                self.assertIn(reason, done.stderr)
        if phase == "loader":
            self.command("fraction", "1", check=False)

    def kill(self, process, count, phase):
        """In this phase: the memory comes back, and the run knows why the program ended."""
        self.begin(process, count, phase)
        (device,) = self.ask("info")["devices"]
        self.assertGreater(device["ledger"]["allocated"], 0)
        self.command("kill", "--pid", self.recording().name.split(".")[1], "--yes")
        process.wait(BOUND)
        self.assertEqual((self.result()["outcome"], self.result()["drained"]), ("killed", True))
        (device,) = self.ask("info")["devices"]
        self.assertEqual((device["ledger"]["allocated"], device["ledger"]["not_attached"], device["ledger"]["contexts"]), (0, 0, 0))

    @LONG
    def test_a_kill_during_a_capture(self):
        self.kill(self.start(), 1, "capture")

    # Info and limits.

    def test_info_and_limits_from_before_the_first_allocation_to_a_kill(self):
        process = self.start(phase="initialized")
        self.wait_for("at.0", process)
        printed = self.command("fraction", "0.5").stdout
        self.assertRegex(printed, r"(?m)^GPU 0: Simulated GPU.*\n  limit +none before, +1016 MiB after \(0\.5 of 1\.98 GiB\)$")
        self.assertNotIn("nothing was limited", printed)
        (self.folder / "go.0").touch()
        self.begin(process, 1, "idle")
        self.info_is_what_pytorch_says_and_what_the_driver_says()
        self.assertEqual(self.go_on(process, 1)["ooms"], 0)
        self.begin(process, 2, "over")
        self.assertEqual(self.go_on(process, 2)["ooms"], 1)  # it is limited
        self.begin(process, 3, "limited")
        printed = self.command("fraction", "0.5").stdout
        self.assertIn("  the program itself had set the limit of 508 MiB on CUDA device 0; this raises it\n", printed)
        self.go_on(process, 3)
        self.kill(process, 4, "backward")

    def info_is_what_pytorch_says_and_what_the_driver_says(self):
        pid = int(self.recording().name.split(".")[1])
        end = time.monotonic() + BOUND
        while True:  # the page is written four times a second
            printed = self.ask("info")
            device, = printed["devices"]
            row, = printed["processes"]
            if row["contexts"] and row["cached"] >= 128 * MIB:
                break
            self.assertLess(time.monotonic(), end, printed)
            time.sleep(0.05)
        figures = self.device("clear", "--stats-only")
        self.assertEqual((row["pid"], row["attached"]), (pid, True))
        self.assertEqual((row["allocated"], row["allocated"] + row["cached"]), (figures["allocated"], figures["reserved"]))
        context = row["bytes"] - figures["reserved"]  # as NVML reports it
        self.assertEqual((row["contexts"], context > 0), (context, True))
        ledger = device["ledger"]
        self.assertEqual((ledger["contexts"], ledger["unexplained"], row["unexplained"]), (context, 0, 0))
        self.assertEqual(sum(value for name, value in ledger.items() if name != "total"), ledger["total"])
        limited = self.device("fraction", "0.5")
        self.assertEqual((limited["context"], limited["other"]), (context, 0))

    @LONG
    def test_of_several_devices_each_is_limited_when_it_comes_into_use(self):
        code = "import torch, time, os, json\ntorch.cuda.init()\nopen('at.0', 'w').close()\n"
        code += "while not os.path.exists('go.0'): time.sleep(0.005)\n"
        code += "x = torch.zeros(10, device='cuda:1')\n"
        code += "from neap import _limits\nend = time.monotonic() + 100\n"
        code += "while _limits.limit_of(torch, 1) is None and time.monotonic() < end: time.sleep(0.01)\n"
        code += "print(json.dumps([_limits.limit_of(torch, 1), torch.cuda.mem_get_info(1)[1], torch._C._cuda_hasPrimaryContext(0)]))\n"
        process = self.start(code, NEAP_SIM=f"mem=1GiB,gpus=2,world={self.world}")
        self.wait_for("at.0", process)
        printed = self.command("fraction", "0.5").stdout
        self.assertIn("  PyTorch uses no device yet: each is limited to 0.5 of its memory when it comes into use\n", printed)
        limit, total, has_context = self.go_on(process, 0)
        self.assertEqual((limit, has_context), (total // 2, False))

    def test_a_limit_of_the_programs_own_below_that_of_the_run(self):
        process = self.start(options=["--fraction", "0.75"])
        self.begin(process, 1, "limited")
        (answer,) = self.ask("fraction", "0.2")["processes"]
        (device,) = answer["devices"]
        self.assertEqual((device["limit_before"], device["limit"]), (int(0.25 * device["total"]), int(0.2 * device["total"])))
        self.assertNotIn("lines", answer)  # it is lowered
        self.assertEqual(self.device("fraction", "0.3")["limit_before"], int(0.2 * device["total"]))  # neap's own by now
        self.go_on(process, 1)
        self.kill(process, 2, "loader")

    # Out of memory.

    def cards(self):
        count = int(self.result()["ooms"])
        return [json.loads(self.command("explain", "--record", self.recording(), "--number", n + 1, "--json").stdout)["oom"]
                for n in range(count)]  # fmt: skip

    def test_cards_name_the_limit_whoever_set_it(self):
        code = """
import torch, neap
def out(mib):
    try:
        torch.zeros(mib << 20, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return
    raise AssertionError(mib)
total = torch.cuda.mem_get_info()[1]
torch.cuda.set_per_process_memory_fraction(0.25)
kept = torch.zeros(300 << 20, dtype=torch.uint8, device="cuda")
out(400)
neap.set_memory_fraction(0.5)
out(800)
del kept
torch.cuda.empty_cache()
neap.set_memory_fraction((64 << 20) / total)
four = [torch.zeros(4 << 20, dtype=torch.uint8, device="cuda") for _ in range(5)]  # one segment of 20 MiB
del four[1:]
filled = torch.zeros(44 << 20, dtype=torch.uint8, device="cuda")
try:
    torch.zeros(100, device="cuda")
    raise AssertionError
except torch.OutOfMemoryError:
    pass
neap.set_memory_fraction(1)
out(2000)
"""
        done, result = self.run_script(code)
        self.assertEqual((result["outcome"], result["ooms"]), ("ok", 4), done.stderr)
        total = 2032 * MIB
        cards = self.cards()
        self.assertEqual([card["cause"] for card in cards], ["limit", "limit", "limit", "capacity"])
        self.assertEqual([card["limit"] for card in cards], [total // 4, total // 2, 64 * MIB, None])
        self.assertEqual([(card["allocated"], card["reserved"]) for card in cards[:2]], [(300 * MIB, 300 * MIB)] * 2)
        small = cards[2]
        self.assertEqual((small["asked"], small["asked_pool"], small["largest_free"]), (2 * MIB, "small", 0))
        self.assertEqual((small["largest_free_elsewhere"], small["largest_free_elsewhere_pool"]), (16 * MIB, "large"))
        self.assertIn("of the small pool\n         holds the 2.00 MiB asked for, and the largest, 16.0 MiB, belongs to the large pool", done.stderr)

    @LONG
    def test_a_limit_in_pytorchs_settings(self):
        code = "import torch\nassert hasattr(torch.cuda, 'get_per_process_memory_fraction')\n"
        code += "print(torch.cuda.get_per_process_memory_fraction())\ntorch.zeros(1200 << 20, dtype=torch.uint8, device='cuda')"
        done, result = self.run_script(code, check=False, PYTORCH_ALLOC_CONF="per_process_memory_fraction:0.5")
        if done.stdout != "0.5\n":
            self.skipTest("this PyTorch has no such setting")
        self.assertEqual((result["outcome"], result["ooms"]), ("oom", 1))
        (card,) = self.cards()
        self.assertEqual((card["cause"], card["limit"]), ("limit", 1016 * MIB))

    @LONG
    def test_the_history_of_allocations_is_not_copied_for_a_card(self):
        code = """
import inspect, torch
asked = []
original = torch._C._cuda_memorySnapshot
def snapshot(*arguments):
    asked.append(arguments)
    return original(*arguments)
torch._C._cuda_memorySnapshot = snapshot
for history in (None, "all"):
    torch.cuda.memory._record_memory_history(history)
    kept = []
    torch.cuda.empty_cache()
    kept = [torch.zeros(3 << 20, dtype=torch.uint8, device="cuda") for _ in range(7)]
    del kept[::2]
    try:
        torch.zeros(3000 << 20, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
if "include_traces" in inspect.signature(torch.cuda.memory_snapshot).parameters:
    assert [found[0][2] for found in asked] == [False, False], asked
    print("without")
else:
    assert len(asked) == 1, asked
    print("not known")
"""
        done, result = self.run_script(code)
        self.assertEqual(result["ooms"], 2, done.stderr)
        largest = [card["largest_free"] for card in self.cards()]
        self.assertGreater(largest[0], 0)
        self.assertIn(done.stdout, ("without\n", "not known\n"))
        self.assertEqual(largest[1], largest[0])  # an older PyTorch does not tell it then; the recorded allocations show it

    def test_the_ladder_of_an_unchanged_script(self):
        code = """
import sys, torch
from torch import nn
batch, accumulate = int(sys.argv[1]), int(sys.argv[2])
model = nn.Linear(1024, 4096).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    for _ in range(accumulate):
        model(torch.ones(batch, 1024, device="cuda")).exp().sum().backward()
    optimizer.step()
print(batch, accumulate)
"""
        options = ["--param", "batch=4096", "--param", "accumulate=1", "--on-oom", "halve batch, double accumulate"]
        done, result = self.run_script(code, "--fraction", "0.12", *options, arguments=("{batch}", "{accumulate}"))
        batch, accumulate = map(int, done.stdout.split())
        self.assertEqual((batch * accumulate, result["outcome"], result["steps"]), (4096, "ok", 2))
        self.assertEqual((result["retries"], accumulate), (1, 2))
        self.assertIn("Cause: the limit.", done.stderr)

    def test_one_that_ends_it_is_the_runs(self):
        code = "import torch\nfrom torch import nn\nm = nn.Linear(8, 8).cuda()\no = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        code += "for _ in range(3):\n    m(torch.ones(4, 8, device='cuda')).sum().backward(); o.step()\n"
        code += "torch.zeros(4000 << 20, dtype=torch.uint8, device='cuda')"
        done, result = self.run_script(code, check=False)
        self.assertEqual((done.returncode, result["outcome"], result["ooms"], result["steps"]), (1, "oom", 1, 3))
        self.assertIn("OutOfMemoryError: CUDA out of memory", done.stderr)  # Python's own traceback
        self.assertRegex(result["oom_card"], r'Out of device memory: 3.91 GiB for "[^"]*script.py:7 <module>" in the 4th\s+step\s+on\s+CUDA\s+device 0')
        self.assertIn("parameters", result["oom_card"])

    def test_short_steps_are_counted_and_seldom_recorded(self):
        code = "import torch\nfrom torch import nn\nm = nn.Linear(8, 8).cuda()\no = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        code += "for _ in range(1000):\n    m.weight.grad = torch.ones(8, 8, device='cuda'); o.step()\n"
        _, result = self.run_script(code)
        self.assertEqual((result["outcome"], result["steps"], result["peak_allocated_bytes"] > 0), ("ok", 1000, True))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a script ignores it
    unittest.main()
