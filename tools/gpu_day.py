#!/usr/bin/env python3
"""Runs what a GPU is wanted for, part by part, and continues where the last command stopped. Start it by tools/gpu_day.sh.

A part is begun if it has no result yet and enough seconds are left for it; it ends by itself or is ended in time. `day.jsonl` says
how each ended: passed, failed (its results tell why), continues (more is left of it), cut (it was ended: begun again, twice at most).
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tools"))
import gpu_day_page

KEPT = SOURCE / "build-gpu-day"
CARRY_MOST = 64 << 20
MARGIN = 8  # seconds at the end of a command, to write and copy
CUT_MOST = 2


@dataclasses.dataclass
class Setting:
    """Where a part runs, and with which programs."""

    python: str
    build: pathlib.Path
    out: pathlib.Path
    dry: bool = False
    every: bool = True  # a dry run runs all programs

    @property
    def neap(self):
        return str(self.build / "src" / "neap")

    def environment(self):
        found = {k: v for k, v in os.environ.items() if not k.startswith(("NEAP_SIM", "NEAP_DEVICE"))}
        found.update(PYTHONPATH=str(self.build / "python"), PYTHONDONTWRITEBYTECODE="1", PYTHON=self.python)
        if self.dry:
            runtime = self.build / "sim" / "runtime"
            found.update(NEAP_DEVICE="sim", NEAP_SIM_PATH=str(self.build / "sim" / "driver"), NEAP_SIM_RUNTIME=str(runtime),
                         NEAP_SIM=f"h100-80gb,backing=none,world=day-{os.getpid()}", NEAP_BUILD=str(self.build),
                         PYTHONPATH=f"{self.build / 'python' / 'launch'}:{self.build / 'python'}", CUDA_VISIBLE_DEVICES="0",
                         TORCHINDUCTOR_COMPILE_THREADS="1")  # fmt: skip
        return found


@dataclasses.dataclass
class Part:
    name: str
    file: str  # what it writes
    least: float  # with fewer seconds left the part is not begun
    most: float
    command: Callable[[Setting, float], list[str]]
    stdout: bool = False  # its output is its result


DRY_PROGRAMS = "phases,workspaces,gpt_bf16,resnet50_amp_last,llama_lora,gpt_lengths,lstm,serving,runs_out,ddp_one_rank,hf_gpt2_bf16"


def tests(setting, seconds):
    return ["env", f"NEAP_GPU_SECONDS={seconds:.0f}", "tests/gpu.sh", *(["--dry-run"] if setting.dry else [])]


def driver(setting, seconds):
    program = str(setting.build / "bench" / "gpu_driver")
    names = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    done = {row.get("part") for row in gpu_day_page.lines(setting.out / "driver.jsonl")}
    return [program, "--out", str(setting.out / "driver.jsonl"), *(name for name in names if name not in done)]


def truth(setting, seconds):
    more = ["--only", DRY_PROGRAMS] if setting.dry and not setting.every else []
    return [setting.python, "bench/gpu_truth.py", "--out", str(setting.out / "truth.jsonl"), "--seconds", f"{seconds:.0f}", *more,
            *(["--case-seconds", "600"] if setting.dry else [])]  # fmt: skip


def allocators(setting, seconds):
    more = ["--steps", "6", "--only", "GPT"] if setting.dry else []
    out = str(setting.out / "allocators.jsonl")
    return [setting.python, "bench/torch_allocators.py", "--real", out, "--seconds", f"{seconds:.0f}", *more]


def live(setting, seconds):
    out = str(setting.out / "live.jsonl")
    return [setting.python, "bench/gpu_live.py", "--neap", setting.neap, "--out", out, "--seconds", f"{seconds:.0f}"]


PARTS = [
    Part("tests", "tests.md", 60, 420, tests, stdout=True),
    Part("driver", "driver.jsonl", 60, 120, driver),
    Part("truth", "truth.jsonl", 40, 420, truth),
    Part("allocators", "allocators.jsonl", 40, 300, allocators),
    Part("live", "live.jsonl", 60, 300, live),
]


def states(out):
    """How each part last ended, and how often it was cut."""
    found = {}
    for row in gpu_day_page.lines(out / "day.jsonl"):
        cuts = found.get(row["part"], ("", 0))[1] + (row["status"] == "cut")
        found[row["part"]] = (row["status"], cuts)
    return found


def wanted(state):
    status, cuts = state
    return status in ("", "continues") or (status == "cut" and cuts < CUT_MOST)


def copy_results(of, to):
    """Copies files that are newer or missing; each whole or not at all."""
    if of == to or not of.is_dir():
        return
    to.mkdir(parents=True, exist_ok=True)
    for file in of.iterdir():
        other = to / file.name
        if file.is_file() and not (other.exists() and other.stat().st_mtime >= file.stat().st_mtime):
            half = to / f".{file.name}.half"
            shutil.copyfile(file, half)
            half.replace(other)


def execute(command, part, setting, bound, kept):
    """The exit status; None if it was ended after `bound` seconds. Its stderr goes into day.log, and so does its stdout unless that
    is the result."""
    with open(setting.out / "day.log", "a") as log:
        log.write(f"\n== {time.strftime('%H:%M:%S')} {part.name}: {' '.join(command)}\n")
        log.flush()
        result = open(setting.out / part.file, "w") if part.stdout else log
        process = subprocess.Popen(command, cwd=SOURCE, env=setting.environment(), stdout=result, stderr=log, start_new_session=True)
        end = time.monotonic() + bound
        copied = time.monotonic()
        try:
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
                if time.monotonic() - copied > 5:
                    copied = time.monotonic()
                    copy_results(setting.out, kept)
            return process.poll()
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            if part.stdout:
                result.close()


def run(parts, setting, seconds, kept=KEPT, clock=time.monotonic, execute=execute, say=print):
    """Runs parts for one command. Exit status: 0 all parts passed, 1 all ended and one failed, 75 more is left."""
    began = clock()
    setting.out.mkdir(parents=True, exist_ok=True)
    copy_results(kept, setting.out)
    for part in parts:
        if not wanted(states(setting.out).get(part.name, ("", 0))):
            continue
        left = seconds - MARGIN - (clock() - began)
        if left < part.least:
            say(f"{part.name}: not begun: {max(left, 0):.0f} s are left, it wants {part.least:.0f}")
            continue
        bound = left if setting.dry else min(left, part.most)  # times on a simulator say nothing about a GPU
        started = clock()
        try:
            status = execute(part.command(setting, bound - 5), part, setting, bound, kept)
        except OSError as error:  # the program to start is missing
            say(f"{part.name}: {error}")
            status = 127
        word = {None: "cut", 0: "passed", 75: "continues", 124: "cut"}.get(status, "failed")
        row = {"part": part.name, "status": word, "exit": status, "seconds": round(clock() - started, 1), "date": time.strftime("%F %T")}
        with open(setting.out / "day.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")
        copy_results(setting.out, kept)
        say(f"{clock() - began:5.0f} s  {part.name}: {word} (exit status {status}), {row['seconds']:.0f} s")
    found = states(setting.out)
    if any(wanted(found.get(part.name, ("", 0))) for part in parts):
        say("more is left: the same command continues")
        return 75
    return int(any(found[part.name][0] != "passed" for part in parts))


def again(out, names):
    """Forgets the failures of these parts, so that they are run again."""
    for part in PARTS:
        if part.name not in names:
            continue
        path = out / part.file
        rows = gpu_day_page.lines(path) if path.suffix == ".jsonl" else []
        kept = [row for row in rows if "failed" not in row and row.get("passed", True)]
        path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in kept))
        with open(out / "day.jsonl", "a") as file:
            file.write(json.dumps({"part": part.name, "status": "", "exit": 0, "seconds": 0, "date": time.strftime("%F %T")}) + "\n")


def carry(results):
    """The files to copy along with the tree: 64 MiB at most."""
    if results:
        copy_results(pathlib.Path(results), KEPT)
    folders = [SOURCE / "build-gpu", *([KEPT] if KEPT.is_dir() else [])]
    size = sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
    names = " ".join(folder.name for folder in folders)
    if not (SOURCE / "build-gpu" / "prepared").exists() or size > CARRY_MOST:
        print(f"gpu_day.sh: {names} is not whole or larger than {CARRY_MOST >> 20} MiB ({size >> 20} MiB)", file=sys.stderr)
        return 1
    print(f"Copy along with the tree ({size / (1 << 20):.1f} MiB): {names}\n"
          "There, until it exits with 0 or 1 (75: more is left), ten minutes each: tools/gpu_day.sh\n"
          "Then here, with what came back: tools/gpu_day.sh --read DIR")  # fmt: skip
    return 0


def usable(build):
    """Returns build-gpu if its programs, built elsewhere, run here; else tests/gpu.sh, whose first line is `tests`, builds the tree
    here."""
    program = build / "bench" / "gpu_driver"
    works = program.exists() and subprocess.run([program, "--list"], capture_output=True, check=False).returncode == 0
    if not works and (build / "prepared").exists():
        print("gpu_day.sh: build-gpu does not run here: tests/gpu.sh builds it again", file=sys.stderr)
        shutil.rmtree(build)
    return build


def read(folder, page, simulated, real=True):
    """Fills the page."""
    section = gpu_day_page.section(folder, simulated)
    text = gpu_day_page.fill(page.read_text(), section, real)
    page.write_text(text)
    print(f"{page}: {section.splitlines()[0].lstrip('# ')}")
    return 0


def dry_run(setting, seconds):
    """All of it on the simulator: the parts, a second recording that must be the same, the page, and the test on the data."""
    status = run(PARTS, setting, seconds, kept=setting.out)
    for row in gpu_day_page.lines(setting.out / "day.jsonl"):
        if row["status"] == "failed":
            print((setting.out / "day.log").read_text()[-6000:], file=sys.stderr)
    if status:
        return status
    page = setting.out / "gpu-results.md"
    shutil.copyfile(SOURCE / "docs" / "gpu-results.md", page)
    recorded = str(setting.out / "truth.jsonl")
    check = [setting.python, "tests/python/test_gpu_truth.py", "--recorded", recorded, "--build", str(setting.build)]
    same = subprocess.run([*check, "--keep", str(setting.out / "simulated.jsonl")], cwd=SOURCE, env=setting.environment(), check=False)
    spoilt = subprocess.run([*check, "--spoil"], cwd=SOURCE, env=setting.environment(), capture_output=True, text=True, check=False)
    found = spoilt.returncode == 1 and "equal in order" in spoilt.stdout
    print(f"the test on the data: exit status {same.returncode}; it {'finds' if found else 'does not find'} an event that is changed")
    read(setting.out, page, setting.out / "simulated.jsonl", real=False)
    return int(same.returncode != 0 or not found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carry", nargs="?", const="", metavar="DIR")
    parser.add_argument("--read", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--page", type=pathlib.Path, default=SOURCE / "docs" / "gpu-results.md")
    parser.add_argument("--simulated", type=pathlib.Path, help="with --read: the same programs' truth.jsonl on the simulator, to compare")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--every", action="store_true", help="with --dry-run: every program of gpu_truth.py, not a dozen")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT") or KEPT))
    parser.add_argument("--build", type=pathlib.Path, help="default: build-gpu; with --dry-run build")
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--again", default="", help="names of parts, with commas between them: what failed of them is run again")
    options = parser.parse_args()
    if options.carry is not None:
        return carry(options.carry)
    if options.read:
        simulated = options.simulated or options.read / "simulated.jsonl"
        return read(options.read, options.page, simulated)
    build = (options.build or SOURCE / ("build" if options.dry_run else "build-gpu")).resolve()
    setting = Setting(os.environ.get("PYTHON") or sys.executable, build, options.out.resolve(), options.dry_run, options.every)
    if options.dry_run:
        return dry_run(setting, max(options.seconds, 7200))
    copy_results(KEPT, setting.out)
    if options.again:
        again(setting.out, options.again.split(","))
    usable(build)
    return run(PARTS, setting, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
