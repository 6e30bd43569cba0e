#!/usr/bin/env python3
"""Compares what others published about the memory of trainings on GPUs with neap's estimate of the same training,
written by us.

usage: published.py [--neap PATH] [--python PATH]... [--only PATTERN]... [--json] [--jobs N] [--cause]

The rows are in bench/published/rows.py with their sources, the programs beside it. A row runs with the first --python
that has its release of PyTorch and the packages it needs; if none has the release, with the nearest, which the table
marks with "~". A row that no --python can run is listed with what they lack. --only takes rows whose source, place,
kind or program contain one of the patterns. Exits 1 if a row is off by more than its printed digits, 0.5 % and what
it allows for a known cause.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "published")
sys.path.insert(0, PROGRAMS)
from rows import ROWS, SOURCES

UNITS = {"B": 1, "MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
PEAKS = {"max_memory_allocated": "allocated_peak", "max_memory_reserved": "reserved_peak"}


def published(row):
    """The row's figure in bytes, and half a unit of its last digit."""
    number, unit = row.published.split()
    digits = len(number.partition(".")[2])
    return float(number) * UNITS[unit], 0.5 * 10**-digits * UNITS[unit]


class Python:
    """An interpreter, its release of PyTorch, and the packages that it has."""

    def __init__(self, path):
        self.path = path
        code = "import importlib.metadata as m; print(m.version('torch'), *(d.metadata['Name'] for d in m.distributions()))"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{path}: no PyTorch: {done.stderr.strip().splitlines()[-1]}")
        version, *self.packages = done.stdout.split()
        self.release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])

    def fits(self, row):
        return (row.before is None or self.release < row.before) and all(package in self.packages for package in row.needs)


def choose(row, pythons):
    """The interpreter for a row (None: none fits), and whether it has the published release. True, too, if the source states none."""
    fitting = [python for python in pythons if python.fits(row)]
    if not fitting or not row.torch:
        return (fitting or [None])[0], True
    wanted = tuple(int(part) for part in row.torch.split(".")[:2])
    nearest = min(fitting, key=lambda python: (abs(python.release[1] - wanted[1]), -python.release[1]))
    return nearest, nearest.release == wanted


def lacks(row):
    """The packages and the release that a row needs."""
    release = [f"a PyTorch before {row.before[0]}.{row.before[1]}"] if row.before else []
    return "needs " + ", ".join([*release, *row.needs])


def run(neap, python, row):
    """The figures that a row's program prints and those of its estimate, by name, in bytes; a text if it failed."""
    program, *arguments = row.program.split()
    with tempfile.TemporaryDirectory() as folder:
        command = [neap, "estimate", "--json", "--values", "none", "--steps", "1000", "--time-limit", "1h", "--gpu", row.profile]
        command += ["--folder", os.path.join(folder, "runs")]
        if row.ranks > 1:
            command += ["--ranks", str(row.ranks)]
        command += ["--", python.path, os.path.join(PROGRAMS, program), *arguments]
        environment = dict(os.environ, **dict(part.split("=", 1) for part in shlex.split(row.environment)))
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if not done.stdout.startswith("{"):
            return done.stderr.strip()
        told = json.loads(done.stdout)
        if told["outcome"] != "ok":
            return f"outcome {told['outcome']}: {done.stderr.strip()[-300:]}"
        found = {name: told[peak] for name, peak in PEAKS.items()}
        for folder_path, _, names in os.walk(folder):
            if "stdout.log" in names:
                with open(os.path.join(folder_path, "stdout.log"), encoding="utf-8", errors="replace") as file:
                    found.update((m[1], float(m[2])) for m in re.finditer(r"^([\w.]+) ([\d.]+)$", file.read(), re.MULTILINE))
        return found


def shown(row, python, exact):
    release = ".".join(str(part) for part in python.release)
    return f"{row.torch or '?':7}{' ' if exact else '~'}{release:6}"


def compare(row, found):
    """A row's value here, its error in percent, and whether the error is allowed."""
    want, half = published(row)
    value = found[row.figure]
    return value, 100 * (value - want) / want, abs(value - want) <= half + want * row.within / 100


def summary(results):
    """Lines that say how far off the allocated and the reserved peaks are."""
    for word in "allocated", "reserved":
        errors = [abs(result["error"]) for result in results if word in result["figure"]]
        if errors:
            beyond = sum(error > 0.5 for error in errors)
            print(f"{word}: {len(errors)} rows, error {statistics.median(errors):.3f} % in the median, {max(errors):.2f} % at worst,"
                  f" more than 0.5 % in {beyond}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neap", default=os.environ.get("NEAP") or os.path.join(HERE, "..", "build", "src", "neap"))
    parser.add_argument("--python", action="append")
    parser.add_argument("--only", action="append")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cause", action="store_true", help="a line beneath each row that is off, with the cause")
    options = parser.parse_args()
    pythons = [Python(path) for path in options.python or [sys.executable]]
    rows = [row for row in ROWS if not options.only or any(
        only in f"{row.source} {row.place} {row.kind} {row.program}" for only in options.only)]
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    started = {}
    for row in rows:
        python, exact = choose(row, pythons)
        if python:
            key = (row.profile, row.program, row.environment, row.ranks, python.path)
            started.setdefault(key, pool.submit(run, options.neap, python, row))
    results = []
    wrong = skipped = 0
    if not options.json:
        print(f"{'source':11}{'kind':33}{'GPU':14}{'PyTorch, here':15}{'figure':22}{'published':>19}{'neap, MiB':>11}{'error':>10}")
    for row in rows:
        python, exact = choose(row, pythons)
        if not python:
            skipped += 1
            print(f"{row.source:11}{row.kind:33}{row.program}: not run, {lacks(row)}", file=sys.stderr if options.json else sys.stdout)
            continue
        found = started[row.profile, row.program, row.environment, row.ranks, python.path].result()
        if isinstance(found, str) or row.figure not in found:
            wrong += 1
            print(f"{row.source} {row.program}: {found if isinstance(found, str) else 'does not print ' + row.figure}", file=sys.stderr)
            continue
        value, error, right = compare(row, found)
        wrong += not right
        results.append({"source": SOURCES[row.source], "place": row.place, "kind": row.kind, "device": row.device, "profile": row.profile,
                        "torch": row.torch, "release": python.release, "same_release": exact, "program": row.program,
                        "ranks": row.ranks, "figure": row.figure, "published": row.published, "bytes": value, "error": error,
                        "right": right, "cause": row.cause})
        if options.json:
            continue
        print(f"{row.source:11}{row.kind:33}{row.device:14}{shown(row, python, exact)}{row.figure.replace('max_memory_', ''):22}"
              f"{row.published[:19]:>19}{value / 2**20:11.1f}{error:+9.3f}%{'' if right else '  WRONG'}", flush=True)
        if options.cause and row.cause:
            print(f"{'':11}{row.cause}")
    if options.json:
        json.dump(results, sys.stdout, indent=1)
    else:
        summary(results)
        print(f"{len(results)} of {len(rows)} rows, {skipped} not run for want of an interpreter")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
