#!/usr/bin/env python3
"""Records what programs allocate on this GPU, event by event: the truth that estimates are compared with.

    gpu_truth.py --out FILE [--only NAME,...] [--seconds 540]      every program (bench/gpu_programs.py) in a process of its own
    gpu_truth.py --out FILE --simulate h100-80gb --build build     the same on the simulator, with the same PyTorch
    gpu_truth.py --compare FILE FILE [--differences 3]             a table: real beside simulated
    gpu_truth.py --join FILE OUT                                   one JSON of all that FILE holds, to be kept

FILE has a line of JSON for each program, written when the program ends: peaks, each event of PyTorch's allocator
(bench/gpu_events.py), the memory of the process and of the device by NVML after each phase, allocations of single calls, and the
time of each step. A program that has a result there is not run again, so that the next command continues; one that failed or took
too long is, with --again. Needs PyTorch; programs whose packages are missing say so. Nothing is downloaded.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_events
import gpu_nvml

FORMAT = 1
PACKAGES = ("torch", "triton", "transformers", "peft", "timm", "torchvision", "accelerate", "lightning", "nvidia-cudnn-cu13",
            "nvidia-cublas", "nvidia-nccl-cu13")  # fmt: skip
PHASE = ("name", "process", "device_used", "device_free", "device_reserved", "cuda_free", "allocated", "reserved", "allocations",
         "seconds")  # fmt: skip
LEAST_SECONDS = 15  # with less left, no program is begun


class Run:
    """One program, its phases, its steps, and the memory and time that they took."""

    def __init__(self):
        import torch

        self.torch = torch
        self.began = time.monotonic()
        self.nvml = self._nvml()
        self.phases = []
        self.times = []
        self.calls = []
        self.notes = {}
        self.tokens = None
        self.total = None
        self.phase("before CUDA")
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()
        torch.cuda.memory._record_memory_history(max_entries=1000000, context=None)
        self.total = torch.cuda.get_device_properties(0).total_memory
        self.phase("context")
        torch.zeros(1, device="cuda").add_(1)
        self.phase("first kernel")

    def _nvml(self):
        try:
            return gpu_nvml.Nvml()
        except (OSError, AttributeError):
            return None

    def phase(self, name):
        """Notes the memory once all work is done."""
        cuda = self.torch.cuda
        process = None
        device = (None, None, None)
        free = None
        allocated = None
        reserved = None
        allocations = None
        if cuda.is_initialized():
            cuda.synchronize()
            stats = cuda.memory_stats()
            free = cuda.mem_get_info()[0] if self.total else None  # this call makes a context
            allocated = cuda.memory_allocated()
            reserved = cuda.memory_reserved()
            allocations = stats.get("allocation.all.allocated", 0)
        if self.nvml:
            process = self.nvml.own_bytes()
            device = self.nvml.memory()
        self.phases.append([name, process, *device, free, allocated, reserved, allocations, round(time.monotonic() - self.began, 3)])

    def steps(self, step, count=6, tokens=None):
        self.tokens = tokens
        for number in range(count):
            self.torch.cuda.synchronize()
            began = time.monotonic()
            step()
            self.torch.cuda.synchronize()
            self.times.append(round(time.monotonic() - began, 6))
            if number < 3 or number == count - 1:
                self.phase("end" if number == count - 1 else f"step {number + 1}")

    @contextlib.contextmanager
    def call(self, name):
        """Notes the allocations that are made inside."""
        before = self._counts()
        yield
        self.torch.cuda.synchronize()
        self.calls.append([name, before, self._counts()])

    def _counts(self):
        stats = self.torch.cuda.memory_stats()
        return stats.get("allocation.all.allocated", 0), stats.get("allocation.all.freed", 0)

    def note(self, name, text):
        self.notes[name] = text

    def result(self):
        torch = self.torch
        stats = torch.cuda.memory_stats()
        events = gpu_events.from_trace(torch.cuda.memory._snapshot()["device_traces"][0])
        return {
            "gpu": torch.cuda.get_device_name(), "capability": list(torch.cuda.get_device_capability()), "total": self.total,
            "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count,
            "requested_peak": stats["requested_bytes.all.peak"], "allocated_peak": stats["allocated_bytes.all.peak"],
            "reserved_peak": stats["reserved_bytes.all.peak"], "retries": stats["num_alloc_retries"], "ooms": stats["num_ooms"],
            "segments": stats["segment.all.allocated"], "step_seconds": self.times, "tokens": self.tokens, "phases": self.phases,
            "calls": workspaces(events, self.calls), "notes": self.notes, "events": gpu_events.pack(events),
        }  # fmt: skip


def workspaces(events, calls):
    """For each call (name, allocations and frees before it, after it) the sizes that it allocated and freed again, and those that
    it kept. Frees may be counted twice (requested, completed): the statistics count the completed ones."""
    allocated = []  # [size, number of its free]
    live = {}
    freed = 0
    for action, size, _, address in events:
        if action == "alloc":
            live[address] = [size, None]
            allocated.append(live[address])
        elif action == "free_completed":
            if address in live:
                live.pop(address)[1] = freed
            freed += 1
    total = calls[-1][2] if calls else (0, 0)
    unseen = max(0, total[0] - len(allocated))  # before the history began
    found = []
    for name, before, after in calls:
        mine = allocated[before[0] - unseen : after[0] - unseen]
        gone = [number is not None and number < after[1] - unseen for _, number in mine]
        found.append([name, *([size for (size, _), out in zip(mine, gone) if out == wanted] for wanted in (True, False))])
    return found


def versions():
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def work(name):
    """Runs one program here, and returns its result."""
    import gpu_programs
    import torch

    result = {"case": name, "torch": torch.__version__}
    try:
        run = Run()
        gpu_programs.PROGRAMS[name](run)
        result |= run.result()
    except ImportError as error:
        result["skipped"] = f"{type(error).__name__}: {error}"[:200]
    except Exception as error:  # a program that fails is a result
        result |= {"failed": f"{type(error).__name__}: {error}"[:400], "where": traceback.format_exc()[-1500:]}
    return result


def add_line(path, value):
    with open(path, "a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # the last command was killed while it wrote
                file.write(b"\n")
        file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")


def read(path):
    """The newest result of each name, and the first line's facts about all of them. Leaves out a line that was cut off."""
    head = {}
    results = {}
    text = pathlib.Path(path).read_text() if os.path.exists(path) else ""
    if text.startswith("{") and "\n" not in text.strip() and '"cases"' in text:
        whole = json.loads(text)
        return whole["head"], {case["case"]: case for case in whole["cases"]}
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if "case" in value:
            results[value["case"]] = value
        else:
            head = value
    return head, results


def forked(function, bound):
    """Runs function() in a child for at most `bound` seconds, and returns its result, or why there is none. What it prints goes to
    stderr."""
    with tempfile.TemporaryDirectory(prefix="gpu-truth-") as folder:
        return _forked(function, bound, pathlib.Path(folder) / "result")


def _forked(function, bound, one):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()  # processes that it starts end with it
            os.dup2(2, 1)
            result = function()
            one.write_text(json.dumps(result))
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + bound
    why = None
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > end:
            why = f"took longer than {bound:.0f} s"
            break
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if why:
        _, status = os.waitpid(child, 0)
    try:
        return json.loads(one.read_text()) if not why else {"failed": why, "cut": True}
    except (OSError, ValueError):
        return {"failed": f"its process ended with {os.waitstatus_to_exitcode(status)}"}


def finished(result, again):
    return result is not None and not (again and "failed" in result)


def every(names, out, seconds, case_seconds, again, run=work, say=print, clock=time.monotonic):
    """Runs the programs that have no result yet, while there is time. Returns the names that are left."""
    began = clock()
    _, results = read(out)
    left = [name for name in names if not finished(results.get(name), again)]
    while left and clock() - began < seconds - min(LEAST_SECONDS, seconds / 2):
        name = left.pop(0)
        bound = min(case_seconds, seconds - (clock() - began))
        result = {"case": name, **forked(lambda name=name: run(name), bound)}
        if result.pop("cut", False) and bound < case_seconds:
            left.insert(0, name)  # no time was left: the next command begins it again
            break
        add_line(out, result)
        say(f"{clock() - began:5.0f} s  {name}: {line(result)}")
    return left


def line(result):
    if "events" not in result:
        return result.get("skipped") or result.get("failed")
    process = result["phases"][-1][1]
    times = result["step_seconds"]
    step = f", step {statistics.median(times) * 1e3:.1f} ms" if times else ""
    return (f"allocated {result['allocated_peak'] / 2**20:.1f} MiB, reserved {result['reserved_peak'] / 2**20:.0f}, "
            f"process {'-' if process is None else round(process / 2**20)}, {result['events']['count']} events{step}")  # fmt: skip


def summarise(results):
    """Rows of (name, its error or None, peaks and their errors in percent, gpu_events.Comparison), of pairs of results."""
    for name, (real, simulated) in results.items():
        if "events" not in real or "events" not in simulated:
            why = simulated.get("failed") or real.get("failed") or real.get("skipped") or simulated.get("skipped")
            yield name, why or "no result", {}, None
            continue
        errors = {kind: (real[f"{kind}_peak"], simulated[f"{kind}_peak"]) for kind in ("requested", "allocated", "reserved")}
        yield name, None, errors, gpu_events.compare(gpu_events.unpack(real["events"]), gpu_events.unpack(simulated["events"]))


def percent(real, simulated):
    return 100 * (simulated / real - 1) if real else 0.0


def compare(real_path, simulated_path, differences):
    real_head, real = read(real_path)
    simulated_head, simulated = read(simulated_path)
    for text, head in (("first", real_head), ("second", simulated_head)):
        kind = f" ({head['simulated']} of the simulator)" if head.get("simulated") else ""
        print(f"{text}: {head.get('gpu')}{kind}, PyTorch {head.get('packages', {}).get('torch')}, driver {head.get('driver')}")
    print(f"{'program':20} {'allocated':>14} {'error %':>8} {'reserved':>14} {'error %':>8} {'events':>8} {'equal %':>8} {'placed %':>8}"
          "  beside the allocator")  # fmt: skip
    pairs = {name: (result, simulated[name]) for name, result in real.items() if name in simulated}
    for name, why, errors, found in summarise(pairs):
        if why:
            print(f"{name:20} {why}"[:160])
            continue
        last = real[name]["phases"][-1]
        beside = "-" if last[1] is None else f"{(last[1] - last[7]) / 2**20:.0f} MiB"
        share = 100 * found.equal / max(found.events, found.others, 1)
        placed = 100 * found.placed / max(found.placements, 1)
        print(f"{name:20} {errors['allocated'][0]:14} {percent(*errors['allocated']):+8.3f} {errors['reserved'][0]:14} "
              f"{percent(*errors['reserved']):+8.3f} {found.events:8} {share:8.3f} {placed:8.2f}  {beside}")  # fmt: skip
        for place, ours, other, theirs in found.gaps[:differences]:
            print(f"    event {place}: real {_short(ours)}; simulated ({other}) {_short(theirs)}")
        for gap in call_differences(real[name], simulated[name])[:differences]:
            print(f"    {gap}")
    print(f"{len(pairs)} programs in both, {len(real) - len(pairs)} only real")


def _short(events):
    text = ", ".join(f"{action} {size} on {stream}" for action, size, stream in events[:3])
    return f"{text or 'nothing'}{' ...' if len(events) > 3 else ''}"


def call_differences(real, simulated):
    theirs = {name: (freed, kept) for name, freed, kept in simulated["calls"]}
    return [f"{name}: real {freed} freed, {kept} kept; simulated {theirs[name][0]}, {theirs[name][1]}"
            for name, freed, kept in real["calls"] if name in theirs and theirs[name] != (freed, kept)]  # fmt: skip


def simulate(profile, build, arguments):
    """Starts this program again, on the simulator of this build."""
    build = pathlib.Path(build).resolve()
    environment = {k: v for k, v in os.environ.items() if k not in ("NEAP_SIM", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")}
    environment.update(NEAP_DEVICE="sim", NEAP_SIM_PATH=str(build / "sim/driver"), NEAP_SIM_RUNTIME=str(build / "sim/runtime"),
                       PYTHONPATH=f"{build / 'python/launch'}:{build / 'python'}", TORCHINDUCTOR_COMPILE_THREADS="1",
                       NEAP_SIM=f"{profile},backing=none,world=truth-{os.getpid()}")  # fmt: skip
    os.execve(sys.executable, [sys.executable, __file__, *arguments], environment)


def remove_world():
    name = dict(word.split("=", 1) for word in os.environ.get("NEAP_SIM", "").split(",") if "=" in word).get("world")
    if os.environ.get("NEAP_DEVICE") == "sim" and name:
        for file in pathlib.Path("/dev/shm").glob(f"neap-sim-*{name}"):
            file.unlink(missing_ok=True)


def write_head(out):
    """Writes once, in the first line, where this was recorded. Asked in a child, so that this process makes no context."""
    if read(out)[0]:
        return

    def ask():
        import torch

        try:
            driver = gpu_nvml.Nvml().driver_version()
        except (OSError, AttributeError):
            driver = None
        return {"format": FORMAT, "gpu": torch.cuda.get_device_name(), "total": torch.cuda.get_device_properties(0).total_memory,
                "driver": driver, "cuda": torch.version.cuda, "python": sys.version.split()[0], "packages": versions(), "phase": PHASE,
                "simulated": os.environ.get("NEAP_SIM", "").split(",")[0] if os.environ.get("NEAP_DEVICE") == "sim" else None,
                "date": time.strftime("%Y-%m-%d")}  # fmt: skip

    head = forked(ask, 120)
    if "failed" in head:
        sys.exit(f"gpu_truth.py: no device: {head['failed']}")
    add_line(out, head)


def join(path, out):
    head, results = read(path)
    text = json.dumps({"head": head, "cases": list(results.values())}, separators=(",", ":"))
    pathlib.Path(out).write_text(text + "\n")
    print(f"{out}: {len(results)} programs, {len(text) / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out")
    parser.add_argument("--only", default="", help="names, with commas between them")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--case-seconds", type=float, default=90, help="for one program")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--simulate", metavar="PROFILE")
    parser.add_argument("--build", default="build")
    parser.add_argument("--compare", nargs=2, metavar="FILE")
    parser.add_argument("--differences", type=int, default=0)
    parser.add_argument("--join", nargs=2, metavar="FILE")
    options = parser.parse_args()
    if options.compare:
        return compare(*options.compare, options.differences)
    if options.join:
        return join(*options.join)
    if not options.out:
        parser.error("--out FILE is missing")
    if options.simulate:
        at = sys.argv.index("--simulate") if "--simulate" in sys.argv else None
        if at is None:
            parser.error("--simulate PROFILE: two words")
        return simulate(options.simulate, options.build, [*sys.argv[1:at], *sys.argv[at + 2 :]])
    began = time.monotonic()
    import gpu_programs  # torch is imported once, in this process; each program runs in a fork of it, which has no context yet

    unknown = [name for name in options.only.split(",") if name and name not in gpu_programs.PROGRAMS]
    if unknown:
        parser.error(f"no program is called {', '.join(unknown)}: {', '.join(gpu_programs.PROGRAMS)}")
    write_head(options.out)
    names = [name for name in gpu_programs.PROGRAMS if not options.only or name in options.only.split(",")]
    left = every(names, options.out, options.seconds - (time.monotonic() - began), options.case_seconds, options.again,
                 say=lambda text: print(text, flush=True))  # fmt: skip
    remove_world()
    if left:
        print(f"{len(left)} left for want of time:", *left)
    return 75 if left else 0


if __name__ == "__main__":
    sys.exit(main())
