"""On a real GPU with a real PyTorch; tests/gpu.sh runs it. Prints a section for docs/gpu-results.md: what was
measured, and which tests passed. NEAP: the command, if it is built; without it the tests that need it are skipped.

NEAP_GPU_DRY=1 runs the same on a simulated GPU: PyTorch's real allocator on neap's stand-ins. Times and computed
values then mean nothing: no section is printed, and a graph computes zeros.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import neap
import torch
from torch import nn
from torch.nn import functional as F

SOURCE = os.environ["NEAP_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "examples"))
from train_torch import Model  # noqa: E402

NEAP = os.environ.get("NEAP")
SIMULATED = os.environ.get("NEAP_GPU_DRY") == "1"
DEVICE = "cuda"
MIB = 1 << 20
BOUND = 200  # of one process
figures = []


def add_row(name, text):
    figures.append((name, text))
    print(f"{name}: {text}", file=sys.stderr, flush=True)


def mib(count):
    return f"{count / MIB:.1f} MiB"


def fresh():
    neap.clear_gpu_memory()
    torch.cuda.reset_peak_memory_stats()


def peak():
    return torch.cuda.max_memory_allocated()


def bytes_on_device(count):
    return torch.zeros(count, dtype=torch.uint8, device=DEVICE)


class Inside(unittest.TestCase):
    """The package, in this process."""

    def setUp(self):
        fresh()

    def test_statistics_are_pytorchs(self):
        kept = bytes_on_device(64 * MIB)
        gone = bytes_on_device(192 * MIB)
        del gone
        found = neap.get_cuda_memory_info()
        self.assertEqual(found.allocated, torch.cuda.memory_allocated())
        self.assertEqual(found.reserved, torch.cuda.memory_reserved())
        self.assertEqual(found.max_allocated, torch.cuda.max_memory_allocated())
        self.assertEqual(found.max_reserved, torch.cuda.max_memory_reserved())
        self.assertEqual((found.total - found.free, found.total), (found.used, torch.cuda.mem_get_info()[1]))
        result = neap.clear_gpu_memory()
        self.assertGreaterEqual(result.freed, 192 * MIB)
        self.assertEqual(result.after.allocated, torch.cuda.memory_allocated())
        add_row("`clear_gpu_memory()`", f"gave back {mib(result.freed)} in {result.seconds * 1000:.1f} ms")
        neap.reset_peak_memory_stats()
        self.assertEqual(torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated())
        del kept

    def test_what_pins_memory_is_released(self):
        def fail():
            activations = bytes_on_device(256 * MIB)
            raise ValueError(len(activations))

        try:
            fail()
        except ValueError as error:
            saved = error
        result = neap.clear_gpu_memory(force=True)
        self.assertGreaterEqual(result.released, 256 * MIB)
        self.assertIn("activations of", str(result.lingering[0]))
        add_row("`clear_gpu_memory(force=True)`", str(result.lingering[0]))
        del saved

    def test_a_fraction_limits(self):
        (done,) = neap.set_memory_fraction(0.1)
        try:
            with self.assertRaises(torch.OutOfMemoryError):
                bytes_on_device(done.limit + 64 * MIB)
        finally:
            neap.set_memory_fraction(1)
        add_row("`set_memory_fraction(0.1)`", f"limit {mib(done.limit)}; a request 64 MiB above it fails")

    def test_saving_takes_no_device_memory(self):
        width = 4096
        model = nn.Sequential(*(nn.Linear(width, width) for _ in range(8))).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, width, device=DEVICE)).sum().backward()
        optimizer.step()
        fresh()
        before = torch.cuda.memory_allocated()
        with tempfile.TemporaryDirectory() as folder:
            saved = neap.save_checkpoint(os.path.join(folder, "model.pt"), model, optimizer)
            loaded = torch.load(saved.path)
        rise = peak() - before
        self.assertEqual(loaded["model"]["0.weight"].device.type, "cpu")
        self.assertEqual(rise, 0)
        add_row("`save_checkpoint()`", f"{mib(saved.bytes)} written; device memory rose by {mib(rise)}")

    def test_offloading_gives_everything_back(self):
        width = 8192
        model = nn.Linear(width, width).to(DEVICE)
        model(torch.ones(1, width, device=DEVICE)).sum().backward()
        weight = model.weight.detach().cpu().clone()
        before = torch.cuda.memory_allocated()
        with neap.offloaded(model):
            self.assertEqual(model.weight.device.type, "cpu")
            inside = torch.cuda.memory_allocated()
            add_row("`offloaded(model)`", f"{mib(before)} before, {mib(inside)} inside")
            self.assertLess(inside, before // 8)
        self.assertEqual((model.weight.device.type, model.weight.grad.device.type), (DEVICE, DEVICE))
        self.assertTrue(torch.equal(model.weight.detach().cpu(), weight))

    def training(self, sequences, **options):
        """A model of nanoGPT's smallest size (its "shakespeare_char": 6 layers, 6 heads, 384 wide, context 256)."""
        torch.manual_seed(1)
        context = 256
        width = 384
        layers = 6
        heads = 6
        model = Model(96, context, width, layers, heads).to(DEVICE)
        data = (torch.randint(96, (sequences, context)), torch.randint(96, (sequences, context)))
        loss = lambda out, wanted: F.cross_entropy(out.flatten(0, 1).float(), wanted.flatten())  # noqa: E731
        fresh()
        return neap.Training(model, torch.optim.AdamW(model.parameters()), loss, data, batch_size=sequences, **options)

    def test_measured_savings_on_a_model_of_nanogpts_size(self):
        def measure(**options):
            result = self.training(64, epochs=5, **options).train()
            return peak(), result, result.seconds / result.steps

        plain, first, seconds = measure()
        add_row("a step of 64 x 256 tokens, 6 layers of 384, fp32", f"peak {mib(plain)}, {seconds * 1000:.0f} ms a step")
        for name, options in (
            ("mixed precision", {"mixed_precision": True}),
            ("gradient checkpointing", {"gradient_checkpointing": True}),
            ("both", {"mixed_precision": True, "gradient_checkpointing": True}),
        ):
            found, result, seconds = measure(**options)
            self.assertLess(abs(result.losses[0] - first.losses[0]), 0.05)
            self.assertLess(found, plain)
            share = 100 * (plain - found) / plain
            add_row(f"the same with {name}", f"peak {mib(found)} (-{share:.0f} %), {seconds * 1000:.0f} ms a step")

    def test_running_out_is_come_through(self):
        training = self.training(512)
        total = torch.cuda.get_device_properties(0).total_memory
        neap.set_memory_fraction(min(3 << 30, total // 2) / total)
        try:
            result = training.train()
        finally:
            neap.set_memory_fraction(1)
        self.assertGreater(result.ooms, 0)
        self.assertEqual((result.steps, result.split.effective), (1, 512))
        add_row("out of memory inside `Training`", f"{result.ooms} times, then {result.split}; the effective batch stayed")


class NeapsAllocator(unittest.TestCase):
    """libneap's own allocator on the driver: each block keeps its bytes, and the counters agree."""

    def test_random_blocks_keep_their_bytes(self):
        seed = int(os.environ.get("NEAP_TEST_SEED", "7"))
        rng = random.Random(seed)
        folder = os.environ.get("NEAP_SIM_PATH", "") if SIMULATED else ""
        cuda = ctypes.CDLL(os.path.join(folder, "libcuda.so.1") if folder else "libcuda.so.1")
        context = ctypes.c_void_p()
        self.assertEqual(cuda.cuInit(0), 0)
        self.assertEqual(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.addCleanup(cuda.cuDevicePrimaryCtxRelease_v2, 0)
        self.assertEqual(cuda.cuCtxSetCurrent(context), 0)
        most = (64 << 20) if SIMULATED else (2 << 30)  # simulated memory is the host's
        largest = most // 8
        blocks = []
        live = 0
        operations = 600
        back = ctypes.create_string_buffer(16)
        with neap.Allocator() as allocator:

            def check(block):
                address, size, byte = block
                for at in (0, size // 2, size - 1):
                    self.assertEqual(cuda.cuMemcpyDtoH_v2(back, ctypes.c_uint64(address + at), ctypes.c_size_t(1)), 0)
                    self.assertEqual(back.raw[0], byte, f"seed {seed}: block {address:#x} of {size}, byte {at}")

            began = time.monotonic()
            for number in range(operations):
                if blocks and (rng.random() < 0.45 or live > most):
                    block = blocks.pop(rng.randrange(len(blocks)))
                    check(block)
                    allocator.free(block[0])
                    live -= block[1]
                else:
                    size = 1 + int(largest ** rng.random())
                    address = allocator.malloc(size)
                    byte = number % 251
                    filled = cuda.cuMemsetD8_v2(ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(size))
                    self.assertEqual(filled, 0)
                    blocks.append((address, size, byte))
                    live += size
                if number % 97 == 0:
                    allocator.empty_cache()
                found = allocator.memory()
                self.assertLessEqual(live, found.allocated)
                self.assertLessEqual(found.allocated, found.reserved)
            for block in blocks:
                check(block)
                allocator.free(block[0])
            seconds = time.monotonic() - began
            highest = allocator.memory()
            allocator.empty_cache()
            self.assertEqual((allocator.memory().allocated, allocator.memory().reserved), (0, 0))
            allocator.set_fraction(0.01)
            with self.assertRaises(neap.OutOfMemory):
                allocator.malloc((highest.total or 1 << 40) // 50)
            add_row(
                "neap's allocator on the driver",
                f"{operations} operations, checked by reading back, in {seconds:.2f} s; at most {mib(highest.max_allocated)} "
                f"allocated, {mib(highest.max_reserved)} reserved",
            )


@unittest.skipIf(SIMULATED and not os.environ.get("NEAP_LONG"), "on a simulated GPU only with NEAP_LONG=1")
class UnderPyTorch(unittest.TestCase):
    """neap as PyTorch's allocator: the same training, and everything that a program can observe, compared with
    PyTorch's own."""

    SETTINGS = {"default": "", "expandable": "expandable_segments:True", "neap": "", "plugin": ""}
    HERE = pathlib.Path(__file__).resolve().parent

    def setUp(self):
        if os.environ.get("CXX") or any(map(shutil.which, ("c++", "g++", "clang++"))):
            return
        self.skipTest("no C++ compiler, by which neap's allocator is compiled against PyTorch (Debian: apt install g++)")

    def program(self, name, which, *words):
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": self.SETTINGS[which], "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        command = [sys.executable, "-W", "ignore", str(self.HERE / name), which, *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BOUND)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return json.loads(done.stdout.splitlines()[-1])

    def test_the_same_training_under_each(self):
        chosen = ("default", "neap") if SIMULATED else tuple(self.SETTINGS)
        found = {which: self.program("gpu_allocators.py", which, "4" if SIMULATED else "60") for which in chosen}
        own = found["default"]
        for which, one in found.items():
            add_row(
                f"{len(one['losses'])} steps of changing length, {which} ({one['backend']})",
                f"peak {mib(one['requested'])} requested, {mib(one['allocated'])} allocated, {mib(one['reserved'])} reserved; "
                f"{one['calls']} driver calls for {one['allocations']} allocations; {one['ms']:.2f} ms a step (median of the last "
                f"half); last loss {one['losses'][-1]:.6f}",
            )
        for which, one in found.items():
            with self.subTest(allocator=which):
                if not SIMULATED:  # the simulator runs no kernel
                    self.assertEqual(one["losses"], own["losses"])
                self.assertEqual((one["requested"], one["allocations"]), (own["requested"], own["allocations"]))

    @unittest.skipIf(SIMULATED, "tests/python/test_allocator.py does it on the simulator")
    def test_what_a_program_can_see(self):
        alone = torch.cuda.device_count() < 2
        program = (self.HERE / "allocator_areas.py").read_text()
        areas = [a for a in re.findall(r"@area\ndef (\w+)", program) if a != "shared" and not (alone and a == "devices")]
        own = self.program("allocator_areas.py", "default", *areas)
        neaps = self.program("allocator_areas.py", "neap", *areas)
        differ = [a for a in areas if own[a] != neaps[a]]
        add_row("what a program can see, under PyTorch's allocator and neap's", f"{len(areas)} areas, {', '.join(differ) or 'none'} differ")
        for area in areas:
            with self.subTest(area=area):
                self.assertEqual(neaps[area], own[area])


TAKES = """
import json, os, sys, time, torch
held = []
def take(count):
    if hasattr(torch.cuda, "take"): torch.cuda.take(count)
    else: held.append(torch.zeros(count, dtype=torch.uint8, device="cuda"))
def drop(count):
    if hasattr(torch.cuda, "drop"): torch.cuda.drop(count)
    else: del held[-1]
def wait(go="go", ready="ready"):
    open(ready, "w").close()
    end = time.monotonic() + 190
    while not os.path.exists(go) and time.monotonic() < end: time.sleep(0.02)
"""


@unittest.skipUnless(NEAP, "the command is not built (NEAP)")
class Live(unittest.TestCase):
    """The command, on other processes."""

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.stack = stack
        self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        dropped = ("NEAP_ATTACH", "NEAP_RUN_DIR", "NEAP_RUN_ID", "LD_LIBRARY_PATH" if SIMULATED else "")
        self.environment = {k: v for k, v in os.environ.items() if k not in dropped}
        runtime = self.folder / "runtime"
        runtime.mkdir(mode=0o700)
        self.environment.update(XDG_RUNTIME_DIR=str(runtime), XDG_STATE_HOME=str(self.folder / "state"))

    def command(self, *words, check=True):
        command = [str(w) for w in (NEAP, *words)]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=BOUND)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def ask(self, *words):
        """Tries again if the machine was too busy for the program to answer within 2 s."""
        for _ in range(30):
            done = self.command(*words, check=False)
            if done.returncode != 75:
                break
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def start(self, code):
        """A run of this code, and its PID once it waits."""
        command = [NEAP, "run", "--folder", "run", "--", sys.executable, "-c", TAKES + code]
        log = self.stack.enter_context(open(self.folder / "log", "w+"))
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        self.stack.callback(lambda: process.poll() is None and (process.terminate(), process.wait(BOUND)))
        end = time.monotonic() + BOUND
        while not (self.folder / "ready").exists():
            self.assertIsNone(process.poll(), (self.folder / "log").read_text())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        (recording,) = (self.folder / "run").glob("record.*")
        return process, recording.name.split(".")[1]

    def result(self):
        return json.loads((self.folder / "run" / "result.json").read_text())

    def test_the_verbs_on_a_live_process(self):
        process, pid = self.start(
            "take(128 << 20); take(512 << 20); drop(512 << 20)\n"
            "open('stats', 'w').write(json.dumps([torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]))\n"
            "wait()\n"
        )
        allocated, reserved = json.loads((self.folder / "stats").read_text())
        end = time.monotonic() + BOUND
        while True:  # the page is written four times a second
            (device,) = [d for d in self.ask("info", "--json")["devices"] if d["ledger"]["allocated"]] or [None]
            ledger = device["ledger"] if device else {}
            if (ledger.get("allocated"), ledger.get("cached")) == (allocated, reserved - allocated):
                break
            self.assertLess(time.monotonic(), end, ledger)
            time.sleep(0.1)
        parts = ("driver_reserved", "contexts", "allocated", "cached", "not_attached", "unexplained", "free")
        self.assertEqual(sum(ledger[part] for part in parts), ledger["total"])
        add_row("`neap info`, as PyTorch says in the process itself", f"allocated {mib(allocated)}, reserved {mib(reserved)}")
        add_row("`neap info`, its ledger", ", ".join(f"{part} {mib(ledger[part])}" for part in (*parts, "total")))

        (device,) = self.ask("clear", "--pid", pid, "--json")["processes"][0]["devices"]
        self.assertGreaterEqual(device["freed"], 512 * MIB)
        self.assertEqual(device["allocated"], allocated)
        add_row("`neap clear` on a live process", f"gave back {mib(device['freed'])}")
        self.ask("clear", "--pid", pid, "--force", "--json")
        self.ask("reset", "--pid", pid, "--json")
        (device,) = self.ask("clear", "--pid", pid, "--stats-only", "--json")["processes"][0]["devices"]
        self.assertEqual(device["max_allocated"], allocated)
        (device,) = self.ask("fraction", "0.2", "--pid", pid, "--json")["processes"][0]["devices"]
        self.assertAlmostEqual(device["limit"] / device["total"], 0.2, places=3)
        add_row("`neap fraction 0.2` on a live process", f"limit {mib(device['limit'])}")

        self.command("kill", "--pid", pid, "--yes")
        process.wait(BOUND)
        result = self.result()
        self.assertEqual(result["outcome"], "killed")
        self.assertEqual(result["peak_reserved_bytes"], reserved)
        drain = f"its memory was free again after {result['drain_ns'] / 1e6:.0f} ms" if result["drained"] else result["drain_note"]
        add_row("`neap kill` on a live process", drain)

    def test_not_while_a_graph_is_captured(self):
        process, pid = self.start(
            "x = torch.ones(4, device='cuda')\n"
            "side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()\n"
            "x + 1; torch.cuda.synchronize()\n"
            "with torch.cuda.graph(graph, capture_error_mode='thread_local'):\n"
            "    y = x + 1\n"
            "    wait()\n"
            "graph.replay(); torch.cuda.synchronize(); print('replayed', y.tolist())\n"
        )
        done = self.command("clear", "--pid", pid, check=False)
        (self.folder / "go").touch()
        process.wait(BOUND)
        log = (self.folder / "log").read_text()
        self.assertIn("replayed [0.0, 0.0, 0.0, 0.0]" if SIMULATED else "replayed [2.0, 2.0, 2.0, 2.0]", log)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertIn("a CUDA graph is being captured", done.stderr)
        add_row("`neap clear` during the capture of a CUDA graph", "refused (exit status 75); the graph replays")

    def fraction_of(self, count):
        return count / torch.cuda.get_device_properties(0).total_memory

    def test_an_error_makes_the_card(self):
        code = TAKES + "take(512 << 20)\ntake(900 << 20)\n"
        limit = f"{self.fraction_of(1 << 30):.6f}"
        done = self.command("run", "--folder", "run", "--fraction", limit, "--", sys.executable, "-c", code, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        result = self.result()
        self.assertEqual((result["outcome"], result["ooms"]), ("oom", 1))
        self.assertIn("Out of device memory: 900 MiB", result["oom_card"])  # the observer's arguments are as neap expects them
        self.assertRegex(result["oom_card"], r"allocated: live here +512 MiB")
        add_row("the OOM card of a PyTorch script", result["oom_card"].split("\n", 1)[0])

    def test_a_card_names_the_lines_that_hold_the_memory(self):
        try:
            neap._compiled.compiled(torch, neap._watch.UNIT)
            way = "each allocation recorded"
        except neap.NeapError:  # there is no compiler
            way = "from PyTorch's own history"
        script = [os.path.join(SOURCE, "examples", "train_torch.py"), "--steps", "3", "--context", "256", "--width", "384"]
        script += ["--layers", "6", "--heads", "6", "--batch", "128"]
        limit = f"{self.fraction_of(3 << 30):.6f}"
        done = self.command("run", "--folder", "run", "--fraction", limit, "--", sys.executable, *script, check=False)
        self.assertEqual((done.returncode, self.result()["ooms"]), (1, 1), done.stderr)
        (recording,) = (self.folder / "run").glob("record.*")
        oom = self.ask("explain", "--record", recording, "--json")["oom"]
        named = sum(h["live"] for h in oom["holders"] if re.search(r"\.py:\d+ ", h["text"]))
        self.assertGreaterEqual(named / oom["allocated"], 0.95, oom["holders"])
        replayed = [s["fits"] for s in oom["settings"] if s["as_it_was"]]
        self.assertEqual(replayed, [False], oom["settings"])
        add_row(f"who holds it, in the OOM card of an unchanged script, {way}",
                f"lines for {named / oom['allocated']:.1%} of {mib(oom['allocated'])}; first fix: {oom['fixes'][0]['text'] if oom['fixes'] else 'none'}")

    def test_the_ladder_of_an_unchanged_script(self):
        batch = 128
        ladder = ["--param", f"batch={batch}", "--param", "accumulate=1", "--on-oom", "halve batch, double accumulate"]
        limit = f"{self.fraction_of(3 << 30):.6f}"
        script = [os.path.join(SOURCE, "examples", "train_torch.py"), "--steps", "2", "--context", "256", "--width", "384"]
        script += ["--layers", "6", "--heads", "6", "--batch", "{batch}", "--accumulate", "{accumulate}"]
        done = self.command("run", "--folder", "run", "--fraction", limit, *ladder, "--", sys.executable, *script)
        result = self.result()
        self.assertIn("2 steps on cuda", done.stdout)
        self.assertGreater(result["retries"], 0)
        names = dict(word.split("=") for word in result["parameters"].split())
        self.assertEqual(int(names["batch"]) * int(names["accumulate"]), batch)
        add_row("`neap run --on-oom` on `examples/train_torch.py`", f"{result['retries']} restarts, then {result['parameters']}")

    def test_torchruns_ranks(self):
        script = self.folder / "ranks.py"
        script.write_text(
            "import torch, torch.distributed as dist\n"
            "dist.init_process_group('gloo')\n"
            "x = torch.zeros((dist.get_rank() + 1) << 28, dtype=torch.uint8, device='cuda:0')\n"
            "dist.barrier()\n"
        )
        self.environment["GLOO_SOCKET_IFNAME"] = "lo"
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
        self.command("run", "--folder", "run", "--", sys.executable, *torchrun)
        ranks = self.result()["ranks"]
        self.assertEqual([(r["role"], r["rank"], r["peak_allocated_bytes"]) for r in ranks], [("rank", 0, 1 << 28), ("rank", 1, 1 << 29)])
        self.assertEqual(len({r["device"] for r in ranks}), 1)
        add_row("`neap run -- torchrun`, two ranks on one device", ", ".join(f"rank {r['rank']}: {mib(r['peak_allocated_bytes'])}" for r in ranks))


def cells(*texts):
    """A row of a table in markdown."""
    return "| " + " | ".join(str(text).replace("|", "\\|").replace("\n", " ") for text in texts) + " |"


def section(result, seconds):
    print(f"## {time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name(0)}\n")
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False
    ).stdout.split("\n")[0] if any(os.access(os.path.join(p, "nvidia-smi"), os.X_OK) for p in os.environ.get("PATH", "").split(":")) else ""
    print(f"Driver {driver or 'unknown'}, PyTorch {torch.__version__}, Python {sys.version.split()[0]}, neap {neap.version()}. "
          f"`tests/gpu.sh` took {seconds:.0f} s: {result.testsRun} tests, {len(result.failures) + len(result.errors)} failed, "
          f"{len(result.skipped)} skipped.\n")
    print(cells("what", "measured"))
    print(cells("---", "---"))
    for name, text in figures:
        print(cells(name, text))
    for kind, found in (("failed", result.failures + result.errors), ("skipped", result.skipped)):
        for test, text in found:
            print(f"\n- {kind}: `{test.id().split('.', 1)[-1]}`: {text.strip().splitlines()[-1]}")


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        sys.exit(69)
    began = time.monotonic()
    program = unittest.main(exit=False, verbosity=2)
    if not SIMULATED:
        section(program.result, time.monotonic() - began)
    sys.exit(not program.result.wasSuccessful())
