"""What is recorded about PyTorch's own allocator in a program that knows nothing of it: every event, compared with
PyTorch's own history of the same run; stacks; and that nothing changes for the program."""

import json
import os
import pathlib
import re
import shutil
import struct
import sys
import time
import unittest

import torch
from neap import _compiled, _watch
from running import MIB, Case

HERE = pathlib.Path(__file__).resolve().parent
FIRST_STACK = 65536
KINDS = {1: "alloc", 2: "free_requested", 3: "free_completed", 5: "segment_alloc", 6: "segment_free", 7: "segment_map", 8: "segment_unmap"}
FREE = 9
TORCH = os.path.dirname(torch.__file__) + os.sep
STEP = 25


def events(path):
    """The events of a recording: kind, device, payload; those of the journal and of the allocation ring, oldest
    first."""
    data = path.read_bytes()
    journal, allocations = struct.unpack_from("=2Q", data, 40)
    rings = []
    at = 16384
    for capacity in (journal, allocations):
        found = []
        for slot in range(capacity):
            time_ns, sequence, kind, device, *payload = struct.unpack_from("=QIHH6Q", data, at + slot * 64)
            if kind:
                found.append((time_ns, sequence, kind, device, payload))
        rings.append([(kind, device, payload) for _, _, kind, device, payload in sorted(found)])
        at += capacity * 64
    return rings


def trace(ring):
    """In the form of PyTorch's traces: action, address, size, the stream's number; and the stack's number, or
    None."""
    found = []
    for kind, _, payload in ring:
        for action in ("free_requested", "free_completed") if kind == FREE else (KINDS[kind],):
            if action.startswith("segment"):
                found.append((action, payload[3], payload[4], payload[2], None))
            else:
                tag = payload[2] & 0xFFFFFFFF
                found.append((action, payload[3], payload[4], payload[2] >> 32, tag - FIRST_STACK if tag >= FIRST_STACK else None))
    return found


def shortened(frames):
    """In the form of a written stack: without control bytes; of more than 32 frames without PyTorch's innermost, then
    without the outermost."""
    surplus = len(frames) - 32
    found = []
    for file, line, name in frames:
        if surplus > 0 and file.startswith(TORCH):
            surplus -= 1
        else:
            found.append(("".join("?" if ord(c) < 32 else c for c in file), line, name))
    return found[:32]


class Watch(Case):
    def setUp(self):
        super().setUp()
        self.environment["NEAP_SIM"] = f"mem=2GiB,backing=none,world={self.world}"

    def watched(self, *words, **more):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        done = self.command("run", "--folder", "run", *words, **more)
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    def stacks(self):
        (path,) = (self.folder / "run").glob("stacks.*")
        head, *lines = path.read_text().splitlines()
        found = []
        for number, line in enumerate(lines):
            first, *parts = line.split("\t")
            self.assertEqual(int(first), number)
            found.append(list(zip(parts[0::3], map(int, parts[1::3]), parts[2::3])))
        return head, found


class Events(Watch):
    def test_they_are_those_of_pytorch_s_own_history(self):
        seen, said = self.watched("--", sys.executable, HERE / "watched.py", "history", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:200")
        self.assertNotIn("note", said)
        journal, ring = events(self.recording())
        found = trace(ring)
        numbers = {}
        wanted = [(action, address, size, numbers.setdefault(stream, len(numbers))) for action, address, size, stream in seen["trace"]]
        self.assertGreater(len(wanted), 3000)
        self.assertGreater(len(numbers), 2)
        self.assertEqual([event[:4] for event in found], wanted)
        pools = [payload[5] for kind, _, payload in ring if kind in KINDS and KINDS[kind].startswith("segment")]
        if None not in seen["pools"]:  # an older PyTorch
            self.assertEqual(pools, [first << 32 | second for first, second in seen["pools"]])
            self.assertGreater(len(set(pools)), 1)
        self.assertEqual({event[0] for event in found}, {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"})
        self.assertEqual(ring[-1][2][1], seen["segments"])
        live = {}
        for action, address, size, *_ in found:
            if action == "alloc":
                live[address] = -(-size // 512) * 512
            elif action == "free_requested":
                del live[address]
        self.assertEqual(ring[-1][2][0], sum(live.values()))
        self.steps(journal)
        self.frames(found, seen["frames"])

    def steps(self, journal):
        steps = [struct.unpack("=II", struct.pack("=Q", payload[2])) + (payload[3],) for kind, _, payload in journal if kind == STEP]
        self.assertEqual([(since, number) for _, since, number in steps], [(1, n + 1) for n in range(20)])

    def frames(self, found, frames):
        head, stacks = self.stacks()
        self.assertRegex(head, r"^neap-stacks 1\ttorch 2\.\S+\tconf max_split_size_mb:200$")
        large = small = program = 0
        for event, theirs in zip(found, frames):
            if event[0] != "alloc":
                continue
            if event[2] >= MIB and any(file.startswith(str(HERE)) for file, _, _ in theirs):
                self.assertIsNotNone(event[4], event)
                program += 1
            if event[4] is None:
                continue
            self.assertEqual(stacks[event[4]], shortened(theirs))
            large, small = large + (event[2] >= MIB), small + (event[2] < MIB)
        self.assertGreater(program, 300)
        self.assertGreater(small, 5)
        self.assertIn([("/日本/a?ü.py", 3, "é")], [stack[1:2] for stack in stacks])

    def test_the_program_sees_none_of_it(self):
        traced, said = self.watched("--", sys.executable, HERE / "watched.py", "plain")
        self.assertTrue(list((self.folder / "run").glob("stacks.*")))
        self.assertNotIn("note", said)
        plain, _ = self.watched("--no-trace", "--", sys.executable, HERE / "watched.py", "plain")
        self.assertEqual(list((self.folder / "run").glob("stacks.*")), [])
        self.assertEqual(events(self.recording())[1], [])
        self.assertEqual(traced, plain)
        self.assertGreater(len(traced["stats"]), 100)

    def test_a_second_recording_begins_with_what_is_held(self):
        code = """
import json, neap, os, torch
MIB = 1 << 20
held = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (3 * MIB, 100, 30 * MIB)]
side = torch.cuda.Stream()
held[0].record_stream(side)
neap.detach()
unseen = torch.empty(7 * MIB, dtype=torch.uint8, device="cuda")
neap.attach()
seen = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
addresses = [t.data_ptr() for t in (*held, unseen, seen)]
del held, unseen
print(json.dumps([addresses, torch.cuda.memory_reserved()]), flush=True)
os._exit(0)
"""
        (self.folder / "script.py").write_text(code)
        (addresses, reserved), _ = self.watched("--", sys.executable, "script.py")
        _, ring = events(self.recording())
        found = trace(ring)
        self.assertEqual({a for action, a, *_ in found[:-8] if action == "alloc"} | {addresses[4]}, set(addresses))
        self.assertEqual({a for action, a, *_ in found if action == "free_requested"}, set(addresses[:4]))
        self.assertEqual(ring[-1][2][:2], [5 * MIB, reserved])
        _, stacks = self.stacks()
        last = next(event for event in found if event[1] == addresses[4])
        self.assertEqual(stacks[last[4]][0][1:], (10, "<module>"))


class Steps(Watch):
    """Trainings one after another on two devices. All their optimizers stay, and the last one leaks until memory
    ends."""

    script = """
import json, time, torch
from torch import nn

MIB = 1 << 20
peaks, kept, alive = [], [], []

def train(device, steps, leak):
    model = nn.Linear(256, 256).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    alive.append((model, optimizer))
    for step in range(1, steps + 1):
        model(torch.zeros(64, 256, device=device)).sum().backward()
        block = torch.empty(3 * MIB + step % 7 * 300000, dtype=torch.uint8, device=device)
        del block
        if leak:
            kept.append(torch.empty(leak, dtype=torch.uint8, device=device))
        if step % 10 == 0:
            time.sleep(0.06)
        optimizer.step()
        if not leak:
            peaks.append(torch.cuda.max_memory_allocated(device))
            torch.cuda.reset_peak_memory_stats(device)
        optimizer.zero_grad()

train("cuda:0", 40, 0)
train("cuda:1", 40, 0)
print(json.dumps(peaks), flush=True)
train("cuda:1", 1000, 32 * MIB)
"""

    def test_each_has_its_peak_and_a_leak_is_exact_and_first_in_the_card(self):
        done, result = self.run_script(self.script, check=False, NEAP_SIM=f"mem=2GiB,gpus=2,backing=none,world={self.world}")
        self.assertNotIn("\n  note", done.stderr)
        peaks = json.loads(done.stdout.splitlines()[0])
        journal, _ = events(self.recording())
        steps = [(device, payload[3], payload[4]) for kind, device, payload in journal if kind == STEP]
        first = [peak for device, number, peak in steps if device == 0][:40]
        self.assertEqual(first, peaks[:40])
        second = [(number, peak) for device, number, peak in steps if device == 1]
        begins = [i for i, (number, _) in enumerate(second) if number == 1]
        self.assertEqual(len(begins), 2)  # the first optimizer's steps have ended: after 16 others the steps are those of others
        self.assertEqual([peak for _, peak in second[: begins[1]]][1:], peaks[-23:])
        self.assertEqual((result["outcome"], result["leak_verdict"]), ("oom", "leak"))
        self.assertAlmostEqual(result["leak_bytes_per_step"], 32 * MIB, delta=1)
        said = " ".join(done.stderr.split())
        failed = int(re.search(r"Out of device memory: .* in the (\d+)(?:st|nd|rd|th) step on CUDA device 1 A leak: ", said)[1])
        self.assertRegex(said, r"A leak: since the (?:1st|2nd) step memory grew by 32\.0 MiB per step, 1\.\d+ GiB in all\. \S*script\.py:17 train keeps "
                               rf"32\.0 MiB more after each step\. At that rate it had to end in the {failed}(?:st|nd|rd|th) step\.")  # fmt: skip
        self.assertLess(done.stderr.index("A leak:"), done.stderr.index("The arithmetic"))


class Meanwhile(Watch):
    """The first step counts even if neap's own thread publishes figures before they were read for it."""

    script = """
import torch
from neap import _events
read = _events._read_figures
def read_late():
    _events.flush_step()
    read()
_events._read_figures = read_late
weight = torch.nn.Parameter(torch.zeros(1000, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(6):
    weight.sum().backward()
    optimizer.step()
"""

    def test_no_step_is_lost(self):
        for options in ([], ["--no-trace"]):
            _, result = self.run_script(self.script, *options)
            self.assertEqual(result["steps"], 6)


class Batches(Watch):
    """A program without optimizer: its steps are the batches of its DataLoader."""

    script = """
import sys, torch
from torch.utils.data import DataLoader

torch.backends.cuda.enable_mem_efficient_sdp(False)

class Eager(torch.nn.Linear):  # like a model of transformers
    _supports_sdpa = True
    config = type("Config", (), {"_attn_implementation": "eager"})
    def set_attn_implementation(self, name):
        self.config._attn_implementation = name

sys.modules["transformers"] = torch
model = Eager(64, 64).cuda()
kept = []
with torch.no_grad():
    for batch in DataLoader(torch.zeros(4 * 60, 64), batch_size=4):
        kept.append(model(batch.cuda()).new_empty(16 << 20, dtype=torch.uint8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.step()
print(torch.backends.cuda.mem_efficient_sdp_enabled(), model.config._attn_implementation)
"""

    def test_they_are_said_and_count_until_there_are_updates(self):
        done, result = self.run_script(self.script, arguments=("0",))
        self.assertEqual((result["steps"], result["steps_are"], result["leak_verdict"]), (60, "batch of a DataLoader", "leak"))
        self.assertAlmostEqual(result["leak_bytes_per_step"], 16 * MIB, delta=1)
        self.assertIn("  steps     60 (no optimizer made an update; each is a batch of a DataLoader), leak: leak, 16.0 MiB a step", done.stderr)
        self.assertEqual(done.stdout, "False eager\n")
        done, result = self.run_script(self.script, "--no-trace", "--enable", arguments=("30",))
        self.assertEqual((result["steps"], result["steps_are"]), (30, ""))
        self.assertEqual(done.stdout, "True sdpa\n")


class Forwards(Watch):
    """In a program without optimizer and DataLoader each forward of the model is a step, but no forward of modules
    inside it or beside it."""

    script = """
import copy, pickle, sys, torch
from torch import nn
from torch.nn.modules.module import _global_forward_pre_hooks as hooks

MIB = 1 << 20
model = nn.Sequential(nn.Linear(64, 64), *[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(20)]).cuda()
second, loss, out = nn.Linear(64, 64).cuda(), nn.MSELoss(), []
scripted = torch.jit.script(copy.deepcopy(model))
assert b"neap" not in pickle.dumps(model)
compiled = torch.compile(lambda x: second(x), backend="eager", fullgraph=True)
with torch.no_grad():
    for n in range(int(sys.argv[1])):
        y = model(torch.zeros(4, 64).cuda())
        loss(compiled(y), y)
        out.append(torch.empty(32 * MIB, dtype=torch.uint8, device="cuda"))
print(len(hooks))
if len(sys.argv) > 2:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(25):
        model(torch.zeros(4, 64).cuda()).sum().backward()
        optimizer.step()
    torch._dynamo.reset()
    print(len(hooks))
"""

    def test_a_leak_of_each_is_said_first(self):
        done, result = self.run_script(self.script, check=False, arguments=("100",))
        self.assertEqual([result[key] for key in ("outcome", "steps_are", "leak_verdict")], ["oom", "forward of a model", "leak"])
        self.assertNotIn("\n  note", done.stderr)
        self.assertEqual(result["leak_bytes_per_step"], 32 * MIB)
        failed = result["steps"] + 1
        said = " ".join(done.stderr.split())
        self.assertIn(f"steps {result['steps']} (no optimizer made an update; each is a forward of a model), leak: leak, 32.0 MiB a step", said)
        self.assertRegex(said, rf"in the {failed}(?:st|nd|rd|th) step on CUDA device 0 A leak: since the 1st step memory grew by 32\.0 MiB per step")

    def test_they_count_to_the_last_and_until_there_are_updates(self):
        done, result = self.run_script(self.script, arguments=("30",))
        self.assertEqual((result["steps"], result["leak_bytes_per_step"]), (30, 32 * MIB))
        _, result = self.run_script(self.script, arguments=("30", "train"))
        self.assertEqual((result["steps"], result["steps_are"]), (25, ""))


class TooLarge(Watch):
    """A model that is too large for the device: no smaller batch helps, and --on-oom auto does not start it again."""

    script = """
import sys, torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.Adam(model.parameters())
model.weight = torch.nn.Parameter(torch.zeros(800 << 18, 1, device="cuda"))
optimizer.add_param_group({"params": [model.weight]})
for batch in torch.utils.data.DataLoader(torch.zeros(32, 1), batch_size=8):
    model.weight.sum().backward()
optimizer.step()
"""

    def test_it_is_said_and_not_tried_again(self):
        options = ["--on-oom", "auto"]
        done, result = self.run_script(self.script, *options, arguments=("--per_device_train_batch_size", "8"), check=False)
        self.assertEqual([result[key] for key in ("outcome", "retries", "steps")], ["oom", 0, 0])
        self.assertIn("no smaller batch helps: parameters, gradients and optimizer state alone are more than there is", done.stderr)


class Purposes(Watch):
    """The purposes of memory, and who holds it: in the card that a run shows, even if finding them takes so long that neap publishes
    figures meanwhile; and in the analysis of the recording."""

    script = """
import time, torch
from neap import _needs
find = _needs.now
def find_slowly(*arguments):
    time.sleep(1)
    return find(*arguments)
_needs.now = find_slowly
model = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for step in range(4):
    model(torch.zeros(256, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
model(torch.zeros(100000, 2048, device="cuda")).sum().backward()
"""

    def test_all_are_known(self):
        done, _ = self.run_script(self.script, check=False)
        card = " ".join(done.stderr.split())
        self.assertEqual(card.count("Out of device memory"), 1)
        self.assertRegex(card, r"What it is for \(by line, lifetime\) live blocks activations .* optimizer 64\.0 MiB 8 parameters 32\.0 MiB 4 ")
        self.assertIn("whole step is predicted to take", card)
        report = json.loads(self.command("analyze", "--json", "--to", "step:4", "run").stdout)
        purposes = {}
        for found in report["categories"]:
            purposes[found["category"]] = purposes.get(found["category"], 0) + found["bytes"]
        model = 2 * (2048 * 2048 + 2048) * 4
        self.assertEqual(purposes["parameters"], model)
        self.assertAlmostEqual(purposes["gradients"], model, delta=8192)  # of a bias
        self.assertLess(purposes.get("unknown", 0), MIB)
        self.assertIn("autograd's threads, no Python line", [holder["text"] for holder in report["holders"]])

    def test_the_batch_of_a_first_step_is_known(self):
        done, _ = self.run_script(self.script.replace("range(4)", "range(0)"), check=False)
        self.assertRegex(" ".join(done.stderr.split()), r"lifetime\) live blocks .*inputs 781 MiB [^W]*(unknown \d+ KiB [^W]*)?Who holds it")


class Exceptions(Watch):
    """A stored exception keeps the tensors of the forward that failed: the next failure's card says so."""

    script = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for samples in (1024, 1 << 17, 1024, 1 << 17, 1024):
    try:
        model(torch.zeros(samples, 1024, device="cuda")).sum().backward()
        optimizer.step()
    except torch.cuda.OutOfMemoryError as error:
        kept.append(error)
"""

    def test_what_they_keep_is_said(self):
        self.run_script(self.script)
        cards = " ".join(self.command("explain", "run").stdout.split())
        self.assertRegex(cards, r"\(number 2 of 2\) Left over: 1\.00 GiB of forwards that ran out of memory before are still held")
        (recording,) = self.recordings()
        oom = json.loads(self.command("explain", "--record", str(recording), "--json").stdout)["oom"]
        self.assertEqual(oom["left_by_failure"], 1 << 30)


class Compiling(Watch):
    script = "import torch; torch.empty(1 << 20, device='cuda'); print(1)"

    def run_small(self, script=script, **more):
        (self.folder / "script.py").write_text(script)
        return self.watched("--", sys.executable, "script.py", XDG_CACHE_HOME=str(self.folder / "cache"), **more)

    def test_the_first_run_does_not_wait_for_it(self):
        """The compiler ends after that run; the run uses the object that was compiled before."""
        compiler = self.folder / "compiler"
        made = _compiled.compiled(torch, _watch.UNIT)
        compiler.write_text(f"#!/bin/sh\nwhile [ ! -e {self.folder}/go ]; do sleep 0.1; done\nfor out; do :; done\nexec cp {made} $out\n")
        compiler.chmod(0o755)
        _, said = self.run_small(CXX=str(compiler))
        (self.folder / "go").touch()
        self.assertIn("PyTorch's are recorded from the next run on", said)
        self.assertNotIn("left running", said)
        for _ in range(600):
            if list((self.folder / "cache").glob("neap/watch/*/neap_watch.so")):
                break
            time.sleep(0.2)
        self.assertNotIn("note", self.run_small(CXX=str(compiler))[1])
        self.assertTrue(list((self.folder / "run").glob("stacks.*")))

    def test_without_a_compiler_pytorch_s_own_history_explains_errors(self):
        script = """
import json, torch
held, live = [], []
def take(mib):
    held.append(torch.empty(mib << 20, dtype=torch.uint8, device="cuda"))
def fill():
    try:
        while True:
            take(50)
    except torch.OutOfMemoryError:
        live.append([torch.cuda.memory_allocated(), len(held)])
torch.cuda.memory.set_per_process_memory_fraction(0.5)
take(1)
side = torch.cuda.Stream()
held[0].record_stream(side)
fill()
del held[1::2]
torch.cuda.empty_cache()
for n in range(35000): # more than the history holds: the events have to begin again
    torch.empty(1000, device="cuda")
take(60)
fill()
print(json.dumps(live))
"""
        done, said = self.run_small(script, CXX="", PATH=str(self.folder / "empty"))
        self.assertIn("apt install g++", said)
        self.assertIn("neap run --no-trace does without both", said)
        for number, (live, blocks) in enumerate(done):
            oom = self.ask("explain", "--record", self.recording(), "--number", number + 1)["oom"]
            self.assertEqual([(oom["allocated"], oom["unknown_purpose"]), live], [(live, live), live])
            self.assertEqual(sum(h["blocks"] for h in oom["holders"]), blocks)
            self.assertEqual({h["text"].split()[-1] for h in oom["holders"]}, {"take"})
            self.assertEqual(oom["cause"], "limit")
            self.assertGreater(oom["smallest_memory"], live)

    def test_without_a_compiler_a_second_recording_begins_with_what_is_held(self):
        script = """
import json, neap, torch
from neap import _history
_history._MOST_STACKS = 2
held = [torch.empty(300 << 20, dtype=torch.uint8, device="cuda")]
def fill():
    try:
        while True:
            held.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
fill()
neap.detach()
neap.attach()
del held[1]
held.append(torch.empty(60 << 20, dtype=torch.uint8, device="cuda"))
fill()
print(json.dumps([torch.cuda.memory_allocated(), len(held)]))
"""
        (live, blocks), _ = self.run_small(script, CXX="", PATH=str(self.folder / "empty"))
        oom = self.ask("explain", "--record", self.recording())["oom"]
        self.assertEqual((oom["allocated"], sum(h["live"] for h in oom["holders"])), (live, live))
        self.assertEqual(sum(h["blocks"] for h in oom["holders"]), blocks)
        (path,) = (self.folder / "run").glob("history.*")
        self.assertEqual(len(path.read_text().splitlines()), 3)  # the third line of the program has no place


class MicroBatch(Watch):
    """A program without a session: its micro-batch is found, and the largest one that fits is predicted from its steps."""

    program = """
import copy, pickle, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
loader, size, accumulate = sys.argv[1] == "loader", *map(int, sys.argv[2:])
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
saved = []

def batches():
    while True:
        yield from DataLoader(TensorDataset(torch.zeros(1, 1024).expand(size * 8, 1024)), batch_size=size) if loader else [[torch.zeros(size, 1024)]] * 9

for n, (x,) in enumerate(batches()):
    model(x.cuda()).square().mean().backward()
    if (n + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
        saved.append(pickle.dumps(model))
        copy.deepcopy(model)(x.cuda())
    if n == 8 * accumulate - 1:
        break
print([len(model._forward_pre_hooks), sum(b"neap" in one for one in saved)])
pickle.loads(saved[-1])(x.cuda())
"""

    def setUp(self):
        super().setUp()
        self.environment["NEAP_SIM"] = f"mem=1GiB,backing=none,world={self.world}"

    def advised(self, *words, **more):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        (self.folder / "script.py").write_text(self.program)
        done = self.command("run", "--folder", "run", "--", sys.executable, "script.py", *words, **more)
        self.assertNotIn("note", done.stderr)
        self.assertEqual(done.stdout, "[0, 0]\n")
        result = self.result()
        return [result[key] for key in ("micro_batch", "accumulate", "advised_micro_batch")], result["advice"]

    def test_a_data_loader_s(self):
        (size, accumulate, largest), text = self.advised("loader", "2000", "2")
        self.assertEqual((size, accumulate), (2000, 2))
        self.assertIn("is the largest predicted to fit (now 2000, the DataLoader's batch_size)", text)
        self.assertGreater(largest, 4000)
        self.assertRegex(text, r"would reserve \d+ MiB of the \d+ MiB that this process can have")
        # The prediction is true: it fits, in no more than was predicted. The user's word counts more than the
        # loader's.
        device = self.result()
        (same, accumulate, again), text = self.advised("loader", str(largest), "2", NEAP_MICRO_BATCH=str(largest))
        self.assertEqual((same, accumulate), (largest, 2))
        self.assertIn(f"(now {largest}, NEAP_MICRO_BATCH)", text)
        self.assertLessEqual(self.result()["peak_reserved_bytes"], device["device_total_bytes"] - device["advised_headroom_bytes"])
        self.assertLess(again, 1.5 * largest)

    def test_before_the_first_update(self):
        (self.folder / "script.py").write_text(self.program)
        words = ("--", sys.executable, "script.py")
        self.command("run", "--folder", "run", *words, "loader", "60000", "1", check=False)
        result = self.result()
        self.assertEqual((result["outcome"], result["steps"], result["micro_batch"]), ("oom", 0, 60000))
        self.assertRegex(result["advice"], r"^micro-batch \d+ perhaps fits \(now 60000, the DataLoader's batch_size\): memory ran out before")
        _, again = self.advised("loader", str(result["advised_micro_batch"]), "1")
        self.assertEqual(self.result()["outcome"], "ok")
        self.assertGreater(self.result()["advised_micro_batch"], result["advised_micro_batch"])
        if "NEAP_LONG" not in os.environ:
            return
        self.command("run", "--folder", "second", *words, "inputs", "60000", "1", check=False)
        advice = json.loads((self.folder / "second" / "result.json").read_text())["advice"]
        self.assertRegex(advice, r"^micro-batch \d+ perhaps fits \(now 60000, the first dimension of the model's inputs\)")

    def test_what_the_run_disproved(self):
        """The first step has no optimizer state yet, so it predicts that the second one fits."""
        (self.folder / "script.py").write_text("""
import torch
layers = [torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU()) for _ in range(6)]
model = torch.nn.Sequential(*layers, torch.nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(16384, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
""")
        self.command("run", "--folder", "run", "--", sys.executable, "script.py", check=False, NEAP_SIM=f"mem=2GiB,world={self.world}")
        result = self.result()
        self.assertEqual((result["outcome"], result["steps"], result["advised_micro_batch"]), ("oom", 1, 0))
        self.assertTrue(result["advice"].startswith("none: memory ran out with micro-batch 16384, "), result["advice"])

    def test_the_tightest_rank(self):
        (self.folder / "script.py").write_text(self.program)
        start = "RANK={0} WORLD_SIZE=2 CUDA_VISIBLE_DEVICES={0} NEAP_FRACTION={1} {2} script.py loader 2000 1"
        both = " & ".join(start.format(rank, fraction, sys.executable) for rank, fraction in ((0, 0.9), (1, 0.6)))
        world = f"mem=1GiB,gpus=2,backing=none,world={self.world}"
        self.command("run", "--folder", "run", "--", "sh", "-c", f"{both} & wait", NEAP_SIM=world)
        text = self.result()["advice"]
        self.assertRegex(text, r"micro-batch \d+ is .* on rank 1, the tightest of 2 \(now 2000, the DataLoader's batch_size\): .* of the 6\d\d MiB that")

    def test_the_inputs_of_a_model(self):
        found, text = self.advised("inputs", "32", "3")
        self.assertEqual(found, [32, 3, 256])
        self.assertIn("256 is predicted to fit, and these steps tell of none larger", text)
        self.assertIn("(now 32, the first dimension of the model's inputs)", text)


if __name__ == "__main__":
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        print("skipped: what records allocations is compiled, and there is no C++ compiler on PATH (Debian: apt install g++)")
        sys.exit(77)
    os.environ.pop("NEAP_TRACE", None)
    unittest.main()
