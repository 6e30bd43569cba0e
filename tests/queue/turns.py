#!/usr/bin/env python3
"""Runs that take turns, killed at random instants: commands that were added to a queue of two simulated GPUs, and
runs that wait in the queue beside them. Their supervisors, the runner and the commands that change the queue are
killed, stopped, paused and moved. No command is lost, none runs twice, and the queue never promises more than there
is.

usage: turns.py NEAP HOLD. NEAP_LONG=1: 1000 arrivals and kills, 40 added commands; otherwise 60 and 12. NEAP_TEST_SEED repeats one.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NEAP, HOLD = map(os.path.abspath, sys.argv[1:3])
LONG = os.environ.get("NEAP_LONG") == "1"
EVENTS = 1000 if LONG else 60
JOBS = 40 if LONG else 12
DEADLINE_S = 1200 if LONG else 300
SIZES = ["300M", "900M", "1500M", "2500M", "3600M"]  # what a run holds; it needs a little more for its context

# One after another, never two runs of one job at once: the lock shows it.
TRAIN = """#!/bin/sh
exec 9>lock-$1
flock -n 9 || { echo $1 >>twice; exit 9; }
HOLD --for $2 $3 9>&-
"""


def die(text):
    sys.exit(f"turns.py: {text}")


stopped = []  # PIDs


def go_on():
    while stopped:
        send(stopped.pop(), signal.SIGCONT)


def queue(*arguments, check=True):
    """A process that was stopped while it had the queue's lock is named, and holds up everybody. A process that was
    stopped while it had the lock of the simulated GPUs, which no real driver has, holds up whatever reads these."""
    try:
        done = subprocess.run([NEAP, "queue", *arguments], capture_output=True, text=True, timeout=30 if stopped else 120)
    except subprocess.TimeoutExpired:
        if not stopped:
            raise
        go_on()
        return queue(*arguments, check=check)
    if done.returncode == 75 and stopped and f"by process {next((p for p in stopped if f' {p}:' in done.stderr), 0)}:" in done.stderr:
        go_on()
        return queue(*arguments, check=check)
    if check and done.returncode:
        die(f"neap queue {arguments}: {done.returncode}: {done.stderr}")
    return done


def tickets():
    """The tickets. Also checks the promises: those of a device never exceed its memory."""
    shown = json.loads(queue("--json").stdout)
    for device in shown["devices"]:
        holders = [t for t in shown["tickets"] if t["state"] == "runs" and device["uuid"] in t["devices"]]
        promised = sum(t["needs"] for t in holders if t["needs"] != "device")
        if promised > device["total"] or (len(holders) > 1 and any(t["needs"] == "device" for t in holders)):
            die(f"more promised than there is on GPU {device['index']}: {holders}")
    return shown["tickets"]


def runners(folder):
    """The PIDs of the runners of this test's queue."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{name}/environ", "rb") as file:
                here = f"XDG_STATE_HOME={folder}/state".encode() in file.read().split(b"\0")
            if here and words[1:3] == [b"queue", b"run"]:
                found.append(int(name))
    return found


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def needs_of(size):
    return f"{int(size[:-1]) + 100}M"


class Play:
    def __init__(self, rng, folder):
        self.rng = rng
        self.folder = folder
        self.jobs = 0
        self.direct = []
        self.counts = {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def add(self):
        if self.jobs == JOBS:
            return
        self.count("added")
        size = self.rng.choice(SIZES)
        ms = str(self.rng.choice([20, 100, 300, 1000]))
        needs = ["--gpus", "2"] if self.rng.random() < 0.1 else ["--needs", needs_of(size)]
        queue("add", *needs, "--name", f"job-{self.jobs}", "--", "./train", str(self.jobs), ms, size)
        self.jobs += 1

    def run_directly(self):
        self.direct = [run for run in self.direct if run.poll() is None]
        if len(self.direct) < 4:
            self.count("direct")
            size = self.rng.choice(SIZES)
            command = [NEAP, "run", "--quiet", "--name", "direct", "--needs", needs_of(size), "--", HOLD, "--for", "100", size]
            self.direct.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def kill(self):
        found = [t["pid"] for t in tickets() if t["pid"]]
        if found:
            self.count("killed")
            send(self.rng.choice(found), signal.SIGKILL)

    def kill_runner(self):
        for pid in runners(self.folder):
            self.count("runner killed")
            send(pid, signal.SIGKILL)

    def kill_command(self):
        """A command that changes the queue, killed at any instant: it may have the queue's lock."""
        words = self.rng.choice([["--json"], ["pause"], ["resume"], []])
        process = subprocess.Popen([NEAP, "queue", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(self.rng.random() * 0.02)
        process.kill()
        process.wait()
        self.count("command killed")

    def stop(self):
        found = [t["pid"] for t in tickets() if t["pid"]]
        if found and len(stopped) < 3:
            stopped.append(self.rng.choice(found))
            send(stopped[-1], signal.SIGSTOP)

    def change(self):
        found = [t["id"] for t in tickets() if t["added"]]
        if found:
            number = str(self.rng.choice(found))
            words = [["pause", number], ["resume", number], ["move", number, "first"], ["move", number, "last"], ["move", number, "2"]]
            queue(*self.rng.choice(words), check=False)  # it may have started, or ended

    def event(self):
        acts = [(self.add, 150 * JOBS / EVENTS), (self.run_directly, 15), (self.kill, 30), (self.kill_runner, 5)]
        acts += [(self.kill_command, 5), (self.stop, 4), (go_on, 8), (self.change, 10)]
        self.rng.choices([act for act, _ in acts], [weight for _, weight in acts])[0]()
        time.sleep(self.rng.random() * 0.05)


def results(folder):
    """Outcomes by job: those of all runs that have a result."""
    found = {}
    for entry in os.scandir(f"{folder}/state/neap/runs"):
        with contextlib.suppress(FileNotFoundError):
            with open(f"{entry.path}/result.json") as file:
                result = json.load(file)
            found.setdefault(result["name"], []).append(result["outcome"])
    return found


def finish(play):
    """The remaining runs are served."""
    end = time.monotonic() + DEADLINE_S
    while play.jobs < JOBS:
        play.add()
    while True:
        go_on()
        queue("resume")
        left = tickets()
        if not left:
            return
        if time.monotonic() > end:
            die(f"still in the queue: {left}")
        time.sleep(0.1)


def check(play, folder):
    found = results(folder)
    if os.path.exists("twice"):
        die(f"two at once of job {open('twice').read()}")
    for job in range(play.jobs):
        if found.get(f"job-{job}", []) != ["ok"]:
            die(f"job {job}: {found.get(f'job-{job}')}")
    if "oom" in found.get("direct", []):
        die("a run beside them ran out of the memory that it was promised")
    where = os.path.dirname(json.loads(queue("--json").stdout)["folder"] + "/")
    rest = [name for name in os.listdir(where) if name.isdigit()]
    if rest:
        die(f"tickets were left behind: {rest}")


def main():
    seed = int(os.environ.get("NEAP_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"NEAP_TEST_SEED={seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="neap-turns-")
    os.mkdir(f"{folder}/runtime", 0o700)
    os.environ.update(XDG_STATE_HOME=f"{folder}/state", XDG_RUNTIME_DIR=f"{folder}/runtime", HOME=folder)
    os.environ["NEAP_SIM"] = f"mem=4GiB,gpus=2,world=turns-{os.getpid()}"
    for name in ("NEAP_QUEUE", "NEAP_LEASE", "NEAP_RUN_DIR", "NEAP_RUN_ID"):
        os.environ.pop(name, None)
    os.chdir(folder)
    with open("train", "w") as file:
        file.write(TRAIN.replace("HOLD", HOLD))
    os.chmod("train", 0o755)
    play = Play(random.Random(seed), folder)
    try:
        while sum(play.counts.values()) < EVENTS:
            play.event()
        finish(play)
        check(play, folder)
        print(f"{play.jobs} added commands, each run once: {play.counts}")
    finally:
        go_on()
        play.kill_runner()
        for ticket in json.loads(queue("--json", check=False).stdout or '{"tickets": []}')["tickets"]:
            if ticket["pid"]:
                send(ticket["pid"], signal.SIGKILL)
        play.kill_runner()
    shutil.rmtree(folder, ignore_errors=True)


main()
