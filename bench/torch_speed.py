#!/usr/bin/env python3
"""How long a malloc and free takes: neap's allocator, the same as PyTorch's allocator, without and with the recorder, PyTorch's own
with and without expandable segments, and glibc's malloc, in nanoseconds of processor time, in the same minutes.

    eval "$(NEAP_DEVICE=sim neap sim env)"; python bench/torch_speed.py NEAP [--rounds N] [--realtime]

NEAP is the command: its `bench alloc` gives the columns neap and glibc. The others are calls of c10's allocator from C++, which
is compiled here against the installed PyTorch. Each figure is the median of 7 runs of 20 ms, and the middle one of N rounds in
which the allocators take turns, each in a process of its own. Only the column "recorded" runs under `neap run`: there PyTorch's own
allocator would pay for neap's tracker.

On the simulator each block of PyTorch's is reported to the runtime, which then forgets the block's contents. No
column may pay for that: with backing=none nothing is stored. The last line tells what a report costs, measured in
each process after its runs, and what PyTorch's same call costs without the simulator.

--realtime measures with a real-time priority (as root): on a busy machine two threads otherwise seldom run at the same time, and what
they cost each other does not show.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch
from neap import _allocator, _compiled

KINDS = {"hit": 0, "threads": 0, "batch": 1, "replacement": 2, "shapes": 3}
CASES = [*(("hit", size, 100, 1) for size in (512, 4096, 1 << 20, 64 << 20)), ("hit", 512, 100000, 1), ("batch", 4096, 100, 1),
         ("threads", 4096, 100, 1), ("threads", 4096, 100, 2),
         *((name, 0, live, 1) for name in ("shapes", "replacement") for live in (1000, 10000, 100000))]  # fmt: skip
ALLOCATORS = ("neap", "recorded", "torch", "expandable")


def compile_speed(folder):
    here = pathlib.Path(__file__).resolve().parent
    main = str(_compiled.sources(_allocator.UNIT) / _allocator.UNIT.main)
    command = _compiled.command(torch, _allocator.UNIT)
    words = [str(here / "torch_speed.cpp") if word == main else word for word in command]
    subprocess.run([*words, "-o", f"{folder}/torch_speed.so"], check=True)
    return f"{folder}/torch_speed.so"


def hurry(wanted):
    if wanted:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def measure(allocator, library, case, realtime):
    """Measures one case in a process of its own."""
    name, size, live, threads = case
    os.environ["NEAP_SIM"] = f"mem=2TiB,reserved=0,context=0,backing=none,world=speed{os.getpid()}"
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if allocator == "neap":
                import neap

                neap.install_allocator()
            elif allocator == "expandable":
                torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
            torch.cuda.init()
            figures = (ctypes.c_double * 5)()
            speed = ctypes.CDLL(library).torch_speed
            speed.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint, ctypes.c_void_p]
            hurry(realtime)
            speed(KINDS[name], size, live, threads, figures)
            os.write(writing, json.dumps(list(figures)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    text = os.read(reading, 4096).decode()
    os.close(reading)
    os.waitpid(pid, 0)
    if not text:
        raise SystemExit(f"{allocator}: {case} failed")
    figures = json.loads(text)
    return figures[0], *figures[3:]


class Recorded:
    """A process under `neap run`, where processes that it forks are recorded. The bench asks it for cases through two pipes."""

    def __init__(self, command, folder, library, realtime):
        self._ends = [f"{folder}/{name}" for name in ("cases", "figures")]
        for end in self._ends:
            os.mkfifo(end)
        words = [command, "run", "--quiet", "--", sys.executable, __file__, command, "--serve", folder, library]
        self._process = subprocess.Popen(words + ["--realtime"] * realtime)
        self._cases, self._figures = open(self._ends[0], "w"), open(self._ends[1])

    def measure(self, case):
        print(json.dumps(case), file=self._cases, flush=True)
        text = self._figures.readline()
        if not text:
            raise SystemExit(f"recorded: {case} failed")
        return json.loads(text)

    def end(self):
        self._cases.close()
        self._process.wait()


def serve(folder, library, realtime):
    with open(f"{folder}/cases") as cases, open(f"{folder}/figures", "w") as figures:
        for line in cases:
            print(json.dumps(measure("neap", library, json.loads(line), realtime)), file=figures, flush=True)


def measure_command(command, realtime):
    """{case: (neap, glibc)} of `neap bench alloc`."""
    environment = {name: value for name, value in os.environ.items() if name != "NEAP_SIM"}
    words = [command, "bench", "alloc", "--json"]
    for name in KINDS:
        words += ["--case", name]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True, env=environment,
                                      preexec_fn=lambda: hurry(realtime)).stdout)  # fmt: skip
    return {(row["case"], row["size"] or 0, row["live_blocks"], row["threads"]): (row["ns_per_pair"], row["glibc_ns_per_pair"])
            for row in found["results"]}  # fmt: skip


def middle(figures):
    known = [figure for figure in figures if figure is not None]
    return f"{statistics.median(known):10.1f}" if known else f"{'-':>10}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("neap")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(*options.serve, options.realtime)
    reports = []
    columns = {column: {case: [] for case in CASES} for column in ("alone", *ALLOCATORS, "glibc")}
    with tempfile.TemporaryDirectory() as folder:
        library = compile_speed(folder)
        recorded = Recorded(options.neap, folder, library, options.realtime)
        for _ in range(options.rounds):
            alone = measure_command(options.neap, options.realtime)
            for case in CASES:
                columns["alone"][case].append(alone[case][0])
                columns["glibc"][case].append(alone[case][1])
                for allocator in ALLOCATORS:
                    if allocator == "recorded":
                        pair, *report = recorded.measure(case)
                    else:
                        pair, *report = measure(allocator, library, case, options.realtime)
                    columns[allocator][case].append(pair)
                    reports.append(report)
        recorded.end()
    print(f"PyTorch {torch.__version__}; nanoseconds per malloc and free, the median of {options.rounds} rounds")
    titles = ("neap", "in PyTorch", "recorded", "PyTorch", "expandable", "glibc")
    print(f"{'case':12} {'size':>9} {'live':>7} {'threads':>7}", *(f"{title:>10}" for title in titles))
    for case in CASES:
        name, size, live, threads = case
        print(f"{name:12} {size or 'many':>9} {live:7} {threads:7}",
              *(middle(columns[column][case]) for column in columns))  # fmt: skip
    ours, theirs = ([report[which] for report in reports] for which in (0, 1))
    print(f"an empty pair, the two reports alone: {statistics.median(ours):.1f} ns, at most {max(ours):.1f}; "
          f"PyTorch's own function {statistics.median(theirs):.1f}, at most {max(theirs):.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
