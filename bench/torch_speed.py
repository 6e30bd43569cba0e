#!/usr/bin/env python3
"""How long a malloc and free takes: neap's allocator, the same as PyTorch's allocator, PyTorch's own with and without expandable
segments, and glibc's malloc, in nanoseconds of processor time, in the same minutes.

    NEAP_DEVICE=sim neap run --quiet -- python bench/torch_speed.py NEAP [--rounds N]

NEAP is the command: its `bench alloc` gives the columns neap and glibc. The others are calls of c10's allocator from C++, which
is compiled here against the installed PyTorch. Each figure is the median of 7 runs of 20 ms, and the middle one of N rounds in
which the allocators take turns, each in a process of its own.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch
from neap import _allocator, _compiled

KINDS = {"hit": 0, "threads": 0, "batch": 1, "replacement": 2, "shapes": 3}
CASES = [*(("hit", size, 100, 1) for size in (512, 4096, 1 << 20, 64 << 20)), ("hit", 512, 100000, 1), ("batch", 4096, 100, 1),
         ("threads", 4096, 100, 1), ("threads", 4096, 100, 2),
         *((name, 0, live, 1) for name in ("shapes", "replacement") for live in (1000, 10000, 100000))]  # fmt: skip
ALLOCATORS = ("neap", "torch", "expandable")


def compile_speed(folder):
    here = pathlib.Path(__file__).resolve().parent
    main = str(_compiled.sources(_allocator.UNIT) / _allocator.UNIT.main)
    command = _compiled.command(torch, _allocator.UNIT)
    words = [str(here / "torch_speed.cpp") if word == main else word for word in command]
    subprocess.run([*words, "-o", f"{folder}/torch_speed.so"], check=True)
    return f"{folder}/torch_speed.so"


def measure(allocator, library, case):
    """One case in a process of its own."""
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
            figures = (ctypes.c_double * 3)()
            speed = ctypes.CDLL(library).torch_speed
            speed.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint, ctypes.c_void_p]
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
    return json.loads(text)[0]


def measure_command(command):
    """{case: (neap, glibc)} of `neap bench alloc`."""
    environment = {name: value for name, value in os.environ.items() if name != "NEAP_SIM"}
    words = [command, "bench", "alloc", "--json"]
    for name in KINDS:
        words += ["--case", name]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout)
    return {(row["case"], row["size"] or 0, row["live_blocks"], row["threads"]): (row["ns_per_pair"], row["glibc_ns_per_pair"])
            for row in found["results"]}  # fmt: skip


def middle(figures):
    known = [figure for figure in figures if figure is not None]
    return f"{statistics.median(known):10.1f}" if known else f"{'-':>10}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("neap")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    columns = {column: {case: [] for case in CASES} for column in ("alone", *ALLOCATORS, "glibc")}
    with tempfile.TemporaryDirectory() as folder:
        library = compile_speed(folder)
        for _ in range(options.rounds):
            alone = measure_command(options.neap)
            for case in CASES:
                columns["alone"][case].append(alone[case][0])
                columns["glibc"][case].append(alone[case][1])
                for allocator in ALLOCATORS:
                    columns[allocator][case].append(measure(allocator, library, case))
    print(f"PyTorch {torch.__version__}; nanoseconds per malloc and free, the median of {options.rounds} rounds")
    print(f"{'case':12} {'size':>9} {'live':>7} {'threads':>7} {'neap':>10} {'neap in':>10} {'PyTorch':>10} {'expandable':>10} "
          f"{'glibc':>10}\n{'':47} {'PyTorch':>10}")  # fmt: skip
    for case in CASES:
        name, size, live, threads = case
        print(f"{name:12} {size or 'many':>9} {live:7} {threads:7}",
              *(middle(columns[column][case]) for column in columns))  # fmt: skip


if __name__ == "__main__":
    main()
