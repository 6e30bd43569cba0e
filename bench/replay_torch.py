#!/usr/bin/env python3
"""Is the replay of PyTorch's allocator exact? Random programs run on PyTorch's own allocator, over neap's stand-ins for
NVIDIA's libraries; each leaves a snapshot, and the allocator's own statistics beside it. `neap replay` has to choose the same
block for every request, make, map, unmap and free the same segments at the same places, and come to the same figures.

    bench/replay_torch.py [--build FOLDER] [--python PYTHON] [--programs N] [--seed N] [--only N] [--keep FOLDER]

PYTHON has torch; --only runs only the program of that number, --keep keeps the snapshots of those that differ. Prints
a line for each program that differs, then sums. Exits 1 if one differs, 77 if PYTHON has no torch.
"""

import argparse
import collections
import ctypes
import glob
import json
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import sys
import tempfile

MIB = 2**20


# --- what a program is: settings, a device, and operations -------------------------------------------------------------


def random_settings(pick, release):
    """Random settings for PYTORCH_CUDA_ALLOC_CONF, of those that this release knows."""
    settings = {}
    if pick.random() < 0.35:
        settings["expandable_segments"] = "True"
    elif pick.random() < 0.35:
        settings["max_split_size_mb"] = pick.choice((20 if release >= 10 else 21, 32, 64, 200))
        if release >= 6 and pick.random() < 0.4:
            settings["max_non_split_rounding_mb"] = pick.choice((21, 32, 100))
    if release >= 11 and pick.random() < 0.25:
        settings["large_segment_size_mb"] = pick.choice((12, 16, 20, 32, 64))
        if "max_split_size_mb" in settings:
            settings["max_split_size_mb"] = max(settings["max_split_size_mb"], settings["large_segment_size_mb"])
        if "max_non_split_rounding_mb" in settings:
            settings["max_non_split_rounding_mb"] = max(settings["max_non_split_rounding_mb"], settings["large_segment_size_mb"])
    if pick.random() < 0.25:
        settings["roundup_power2_divisions"] = pick.choice(("4", "8", "2", "[1:4,4:2,>:8]", "[2:8,64:4,>:1]", "[16:2,32:4]"))
    if pick.random() < 0.3:
        settings["garbage_collection_threshold"] = pick.choice((0.3, 0.6, 0.8))
    if release >= 10 and pick.random() < 0.2:
        settings["per_process_memory_fraction"] = pick.choice((0.3, 0.55, 0.8, 1.0))
    if release >= 12 and pick.random() < 0.12:
        settings["throw_on_cudamalloc_oom"] = "True"
    if release >= 15 and "expandable_segments" in settings and pick.random() < 0.2:
        settings["expandable_segments_reserve"] = pick.choice(("0.5", "0.25", "1G", "2"))
    if release >= 9 and pick.random() < 0.15:
        settings["graph_capture_record_stream_reuse"] = "True"
    order = ["large_segment_size_mb"] + [key for key in settings if key != "large_segment_size_mb"]
    return ",".join(f"{key}:{settings[key]}" for key in order if key in settings)


def random_size(pick):
    kind = pick.random()
    if kind < 0.45:
        return pick.choice((1, 512, 513, 4096, 70000, MIB // 2, MIB - 1, MIB, pick.randrange(1, MIB)))
    if kind < 0.8:
        return pick.choice((MIB + 1, 2 * MIB, 3 * MIB + 7, 10 * MIB - 512, 10 * MIB, pick.randrange(MIB, 12 * MIB)))
    return pick.choice((12 * MIB, 20 * MIB, 22 * MIB, 31 * MIB, 64 * MIB, pick.randrange(10 * MIB, 90 * MIB)))


def random_operations(pick, release, count, graphs):
    """[(verb, arguments...)]: blocks, pools and graphs by number. The run finds out which of them exist. Before 2.12 events do not
    name their private pool: only graphs that stay to the end can be identified."""
    operations = []
    sizes = [random_size(pick) for _ in range(pick.choice((4, 9, 30)))]
    streams = pick.choice((1, 1, 2, 4))
    pools = release >= 12 and pick.random() < 0.4
    graphs = graphs and pick.random() < 0.3
    keep = pick.choice((4, 15, 60))  # how many blocks are live at a time
    made = 0
    for _ in range(count):
        kind = pick.random()
        size = pick.choice(sizes) if pick.random() < 0.7 else random_size(pick)
        if kind < 0.5:
            operations.append(("alloc", made, size, pick.randrange(streams)))
            made += 1
        elif kind < 0.9:
            operations.append(("free", pick.randrange(max(0, made - keep), made + 1)))
        elif kind < 0.93:
            operations.append(("record", pick.randrange(max(0, made - 8), made + 1), pick.randrange(streams)))
        elif kind < 0.94:
            operations.append(("work", pick.randrange(streams)))
        elif kind < 0.95:
            operations.append(("empty",))
        elif kind < 0.955:
            operations.append(("free_all", pick.randrange(1, 5)))
        elif kind < 0.96:
            operations.append(("metadata", pick.choice(("", "layer 1", "layer 2"))))
        elif pools and kind < 0.985:
            operations.append(pick.choice((
                ("pool", pick.randrange(3), pick.random() < 0.3, pick.random() < 0.3),
                ("enter", pick.randrange(3)), ("enter", pick.randrange(3)), ("leave",), ("leave",),
                ("drop_pool", pick.randrange(3)))))
        elif graphs:
            inner = random_operations(pick, 0, pick.randrange(1, 12), False)
            graph = ("graph", pick.randrange(2), pick.random() < 0.4, inner)
            operations.append(pick.choice((graph, ("drop_graph", pick.randrange(2)))) if release >= 12 else graph)
    return operations


def random_program(seed, release):
    pick = random.Random(seed)
    settings = random_settings(pick, release)
    graphs = "max_split_size_mb" not in settings  # with it PyTorch 2.15 calls cudaFree in a capture, which breaks both
    program = {"seed": seed, "settings": settings, "memory": pick.choice((96, 160, 300, 600, 1200, 4000)) * MIB,
               "contexts": pick.choice((None, "state", "alloc", "all")), "marks": pick.random() < 0.7, "fraction": None,
               "operations": random_operations(pick, release, pick.choice((60, 200, 500)), graphs)}
    if "per_process_memory_fraction" not in settings and pick.random() < 0.3:
        program["fraction"] = pick.choice((0.25, 0.5, 0.75, 1.0, pick.uniform(0.2, 1)))
    # Some recordings begin midway, or their ring wraps. These have no garbage collection, since its ages would be unknown.
    program["begin"] = 0
    program["ring"] = 2**62
    if "garbage" not in settings and pick.random() < 0.2:
        if pick.random() < 0.5:
            program["begin"] = pick.randrange(len(program["operations"]))
        else:
            program["ring"] = pick.choice((20, 100, 400))
    return program


# --- running one, in the Python that has torch -------------------------------------------------------------------------


class Run:
    """A program under way. It skips operations that fail (out of memory, a missing pool)."""

    def __init__(self, torch, release, program):
        self.torch = torch
        self.release = release
        self.program = program
        self.blocks = {}
        self.pools = {}
        self.graphs = {}
        self.entered = []
        self.streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(3))]
        self.unseen_flushes = self.unclear_flushes = self.rejections = 0
        self.lost = False  # a pool is gone, which older releases' events do not show

    def alloc(self, number, size, stream):
        torch = self.torch
        try:
            with torch.cuda.stream(self.streams[stream]):
                self.blocks[number] = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            self.rejections += "preemptively" in str(error)
            if not isinstance(number, int) and self.release < 12:  # in a capture, which the event does not say
                self.unclear_flushes += 1

    def free(self, number):
        self.blocks.pop(number, None)

    def free_all(self, every):
        for number in list(self.blocks):
            if isinstance(number, int) and number % every == 0:
                del self.blocks[number]

    def record(self, number, stream):
        if number in self.blocks:
            self.blocks[number].record_stream(self.streams[stream])
            if "garbage" in self.program["settings"]:  # the program may wait for a free to complete, or poll and collect it
                self.unclear_flushes += 1

    def work(self, stream):
        with self.torch.cuda.stream(self.streams[stream]):
            self.torch.cuda._sleep(2_000_000)

    def flushes(self):
        return self.torch.cuda.memory_stats()["num_sync_all_streams"]

    def freed(self):
        return self.torch.cuda.memory_stats()["num_device_free"]

    def unseen(self, what):
        """Runs an operation that may flush the cache. If it freed nothing, no recording can show it. If a request that flushes
        follows at once, the flush may be the request's: a snapshot in between, or the frees' stacks, show which it was."""
        freed = self.freed()
        flushes = self.flushes()
        what()
        if self.freed() == freed:
            self.unseen_flushes += self.flushes() - flushes
        elif self.program["marks"]:
            self.torch.cuda.memory_snapshot()
        elif self.program["contexts"] != "all":
            self.unclear_flushes += 1

    def empty(self):
        self.unseen(self.torch.cuda.empty_cache)

    def metadata(self, text):
        if self.release >= 15:
            self.torch.cuda.memory._set_memory_metadata(text)

    def pool(self, number, on_oom, no_split):
        if number in self.pools:
            return
        options = {}
        if self.release >= 8 and on_oom:
            options["use_on_oom"] = True
        if self.release >= 10 and no_split:
            options["no_split"] = True
        self.pools[number] = self.torch.cuda.MemPool(**options)
        if "no_split" in options:  # these blocks show it, whatever follows
            self.enter(number)
            for size in (1, MIB + 1):
                self.alloc(("witness", len(self.blocks), size), size, 0)
            self.leave()
        if on_oom:  # no event tells whether a request tried the pool last or belongs to it
            self.unclear_flushes += 1

    def enter(self, number):
        if number in self.pools and number not in [pool for pool, _ in self.entered]:
            scope = self.torch.cuda.use_mem_pool(self.pools[number])
            scope.__enter__()
            self.entered.append((number, scope))

    def leave(self):
        if self.entered:
            self.entered.pop()[1].__exit__(None, None, None)

    def drop_pool(self, number):
        if number not in [pool for pool, _ in self.entered]:
            self.unseen(lambda: self.pools.pop(number, None))

    def graph(self, number, share, operations):
        if number in self.graphs or self.entered:
            return
        self.empty()
        self.unseen(lambda: self.capture(number, share, operations))  # torch.cuda.graph empties the cache again

    def capture(self, number, share, operations):
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        before = set(self.blocks)
        pool = next(iter(self.graphs.values())).pool() if share and self.graphs else None
        try:
            with torch.cuda.graph(graph, pool=pool, stream=self.streams[1]):
                for verb, *arguments in operations:
                    inner = [key for key in self.blocks if key not in before]
                    if verb == "alloc":
                        self.alloc(("graph", number, len(self.blocks), arguments[0]), arguments[1], 1)
                    elif verb == "free" and inner:
                        self.free(inner[arguments[0] % len(inner)])
                    elif verb == "record" and inner:
                        self.record(inner[arguments[0] % len(inner)], 2)
            self.graphs[number] = graph
        except RuntimeError:
            self.lost = self.lost or self.release < 12

    def drop_graph(self, number):
        if number in self.graphs:
            self.graphs.pop(number).reset()

    def everything(self):
        for i, (verb, *arguments) in enumerate(self.program["operations"]):
            if i == self.program["begin"]:
                self.torch.cuda.memory._record_memory_history(context=self.program["contexts"], stacks="python",
                                                              max_entries=self.program["ring"])
            getattr(self, verb)(*arguments)
        while self.entered:
            self.leave()


def run_program(torch, release, program, folder):
    """Runs a program in a child. Leaves the snapshot and the allocator's own statistics."""
    torch.cuda.init()
    if program["fraction"]:
        torch.cuda.set_per_process_memory_fraction(program["fraction"])
    run = Run(torch, release, program)
    run.everything()
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    with open(folder / "snapshot.pickle", "wb") as file:
        pickle.dump(snapshot, file)
    whole = program["begin"] == 0 and len(snapshot["device_traces"][0]) < program["ring"]
    truth = {"whole": whole, "stats": {key: value for key, value in stats.items() if isinstance(value, int)},
             "lost": run.lost, "rejections": run.rejections,
             "unseen_flushes": run.unseen_flushes, "unclear_flushes": run.unclear_flushes,
             "memory": torch.cuda.mem_get_info()[1]}
    (folder / "truth.json").write_text(json.dumps(truth))


def load_stand_ins(build, major):
    """The simulated driver and NVIDIA's libraries, before torch would find its own."""
    mode = ctypes.RTLD_GLOBAL
    ready = [build / "sim/driver/libcuda.so.1", build / "sim/driver/libnvidia-ml.so.1", build / f"sim/runtime/libcudart.so.{major}"]
    others = [path for path in glob.glob(str(build / "sim/runtime/lib*.so.*"))
              if path.rsplit(".", 1)[1].isdigit() and "libcudart" not in path]
    for path in ready:
        ctypes.CDLL(str(path), mode)
    for path in sorted(others):
        try:
            ctypes.CDLL(path, mode)
        except OSError:  # the library is of CUDA's other major version
            pass


def worker(build):
    """Reads programs (a line of JSON each: seed, folder), runs each in a child of its own, answers with a line."""
    import importlib.metadata
    version = importlib.metadata.version("torch")
    release = int(version.split(".")[1])
    load_stand_ins(build, 13 if release >= 11 else 12)
    import torch
    print(json.dumps({"version": torch.__version__, "release": release}), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        folder = pathlib.Path(task["folder"])
        program = random_program(task["seed"], release)
        child = os.fork()
        if child == 0:
            os.environ["NEAP_SIM"] = (f"mem={program['memory'] // MIB}MiB,context=0,reserved=0,backing=none,"
                                      f"world=replay-{os.getpid()}")
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = program["settings"]
            failed = 1
            try:
                sys.stdout = sys.stderr = open(folder / "log", "w", encoding="utf-8", buffering=1)
                os.dup2(sys.stderr.fileno(), 2)
                run_program(torch, release, program, folder)
                failed = 0
            except BaseException:  # pylint: disable=broad-except
                import traceback
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(failed)
        status = os.waitpid(child, 0)[1]
        print(json.dumps({"status": status}), flush=True)


# --- comparing ----------------------------------------------------------------------------------------------------------


def replay(neap, program, truth, folder):
    command = [neap, "replay", folder / "snapshot.pickle", "--json", "--on-oom", "continue", "--memory", str(truth["memory"])]
    if program["fraction"]:
        command += ["--fraction", repr(program["fraction"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (json.loads(done.stdout), None) if done.returncode == 0 else (None, done.stderr.strip())


def differences(release, truth, got):
    """The differences: [(what, PyTorch's, the replay's)]."""
    found = []
    match = got["recording"]
    if match is None:
        return [("comparison", "one", "none")]
    for key, wanted in truth["stats"].items():
        private = key.startswith("reserved_bytes_by_private_pools.")
        if key == "num_oom_rejections" or not private and key not in got["memory_stats"]:
            continue
        if not truth["whole"] and not key.endswith(".current"):
            continue
        if key in ("num_sync_all_streams", "num_alloc_retries") and truth["unclear_flushes"]:
            continue
        if key == "num_sync_all_streams":
            wanted -= truth["unseen_flushes"]
        if key == "max_split_size" and wanted < 0:
            wanted = -1
        have = got["memory_stats"].get(key, 0 if not truth["whole"] else None)  # a pool that was empty when the recording began
        if wanted != have:
            found.append((key, wanted, have))
    extra = [key for key in got["memory_stats"] if key.startswith("reserved_bytes_by_private_pools.") and key not in truth["stats"]]
    if extra and release >= 15:  # the oldest release that is known to have them
        found.append(("statistics", "none", extra[0]))
    if match["first_difference"] is not None:
        found.append(("first different event", "none", match["first_difference"]))
    if match["allocs"] != match["same_block"]:
        found.append(("same blocks", match["allocs"], match["same_block"]))
    if match["segment_events"] != match["same_segment_events"]:
        found.append(("same segment events", match["segment_events"], match["same_segment_events"]))
    low, high = (int(got["torch"][end].split(".")[1]) for end in ("from", "to"))
    if not low <= release <= high:
        found.append(("release", f"2.{release}", f"{got['torch']['from']} to {got['torch']['to']}"))
    return found


class Session:
    def __init__(self, options):
        self.options = options
        self.build = pathlib.Path(options.build).resolve()
        self.worker = subprocess.Popen([options.python, os.path.abspath(__file__), "--worker", "--build", str(self.build)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first = self.worker.stdout.readline()
        if not first:
            sys.exit(77)
        answer = json.loads(first)
        self.version = answer["version"]
        self.release = answer["release"]
        self.sums = collections.Counter()
        self.same = 0
        self.lost = 0
        self.partial = 0

    def run(self, number, folder):
        """Runs a program and compares. Returns the differences; None: the program could not run."""
        program = random_program(self.options.seed * 1_000_003 + number, self.release)
        print(json.dumps({"seed": program["seed"], "folder": str(folder)}), file=self.worker.stdin, flush=True)
        answer = json.loads(self.worker.stdout.readline())
        if answer["status"]:
            log = (folder / "log").read_text(encoding="utf-8").strip().splitlines()
            return program, [("run", "exit 0", log[-1] if log else answer["status"])]
        truth = json.loads((folder / "truth.json").read_text())
        if truth["lost"]:
            self.lost += 1
            return program, []
        got, error = replay(self.build / "src/neap", program, truth, folder)
        if error:
            return program, [("replay", "exit 0", error)]
        stats = truth["stats"]
        self.partial += not truth["whole"]
        self.sums.update(blocks=got["recording"]["allocs"] if got["recording"] else 0, ooms=stats["num_ooms"],
                         retries=stats["num_alloc_retries"], rejections=truth["rejections"],
                         segments=got["recording"]["segment_events"] if got["recording"] else 0)
        return program, differences(self.release, truth, got)

    def all(self):
        options = self.options
        numbers = [options.only] if options.only is not None else range(options.programs)
        for number in numbers:
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                program, found = self.run(number, folder)
                self.same += not found
                if found:
                    print(f"program {number}, settings '{program['settings']}', {program['memory'] // MIB} MiB, "
                          f"fraction {program['fraction']}, stacks {program['contexts']}: {len(found)} differ")
                    for what, wanted, got in found[:6]:
                        print(f"    {what}: PyTorch {wanted}, replay {got}")
                if options.keep and (found or options.only is not None):
                    shutil.copytree(folder, pathlib.Path(options.keep) / f"{self.release}-{options.seed}-{number}",
                                    dirs_exist_ok=True)
        sums = self.sums
        print(f"PyTorch {self.version}, seed {options.seed}: {self.same} of {len(numbers)} programs replayed exactly "
              f"({sums['blocks']} blocks, {sums['segments']} segment events, {sums['ooms']} out of memory, {sums['retries']} "
              f"retries, {sums['rejections']} rejections; {self.partial} recorded in part)")
        if self.lost:
            print(f"{self.lost} of them lost a pool that no event names, and prove nothing")
        self.worker.stdin.close()
        self.worker.wait()
        return self.same != len(numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        sys.exit(worker(pathlib.Path(options.build)))
    sys.exit(Session(options).all())


if __name__ == "__main__":
    main()
