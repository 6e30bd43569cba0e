#!/usr/bin/env python3
"""A night: a series whose experiments end in every way, while its runner and supervisors are killed at random
instants and restarted. Its report accounts for every experiment.

usage: night.py NEAP HOLD. NEAP_LONG=1: 200 experiments; otherwise 20. NEAP_TEST_SEED repeats one.
"""

import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NEAP, HOLD = map(os.path.abspath, sys.argv[1:3])
LONG = os.environ.get("NEAP_LONG") == "1"
EACH, KILLS = (40, 60) if LONG else (4, 8)
DEADLINE_S = 1200 if LONG else 500  # the test runner allows less time, which is enough on a machine that is not busy

# kind: (the outcome that its experiments have, starts of the command in one attempt)
KINDS = {"ok": ("ok", 1), "oom": ("oom", 1), "ladder": ("ok", 3), "crash": ("signaled", 1), "hang": ("timeout", 1)}

TRAIN = """#!/bin/sh
echo start >> ran/$1-$2
case $1 in
ok) exec HOLD 50M ;;
oom) exec HOLD 80G ;;
ladder) exec HOLD ${3}G ;;
crash) kill -SEGV $$ ;;
hang) trap '' TERM; while :; do sleep 0.05; done ;;
esac
"""


def series_file(parallel):
    numbers = ", ".join(str(i) for i in range(EACH))
    text = f"name: night\nparallel: {parallel}\n" + "defaults: {needs: none, time_limit: 5m, grace: 100ms}\nexperiments:\n"
    for kind in KINDS:
        text += f"- name: {kind}\n  grid: {{i: [{numbers}]}}\n"
        if kind == "ladder":
            text += "  params: {gib: 80}\n  on_oom: set gib=50; set gib=1\n  command: ./train ladder {i} {gib}\n"
        else:
            text += f"  command: ./train {kind} {{i}}\n"
        if kind == "hang":
            text += "  time_limit: 500ms\n"
    return text


def die(text):
    sys.exit(f"night.py: {text}")


def supervisor(folder):
    """The supervisor of the newest attempt, if it is running, or None."""
    runs = sorted(os.scandir(f"{folder}/runs"), key=lambda entry: entry.stat().st_mtime)
    if not runs or os.path.exists(f"{runs[-1].path}/result.json"):
        return None
    try:
        pid, ticks = open(f"{runs[-1].path}/supervisor").read().split()
        if open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19] == ticks:
            return int(pid)
    except (OSError, ValueError):
        pass
    return None


def run_to_the_end(rng, deadline):
    """Starts the series, kills it, starts it again, until it ends. Returns counts of kills."""
    killed = collections.Counter()
    while True:
        with open("out", "w") as out, open("err", "a") as err:
            runner = subprocess.Popen(
                [NEAP, "series", "night.yaml", "--resume", "--quiet", "--folder", "night"], stdout=out, stderr=err
            )
        give_s = deadline - time.monotonic()
        if killed["runner"] < KILLS:
            give_s = rng.uniform(0.01, 0.8)
        try:
            return runner.wait(timeout=max(give_s, 1 if killed["runner"] >= KILLS else 0)), killed
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                runner.kill()
                die("the series does not come to its end")
        victim = supervisor("night") if os.path.isdir("night/runs") and rng.random() < 0.25 else None
        if victim:
            os.kill(victim, signal.SIGKILL)
            killed["supervisor"] += 1
        runner.kill()
        runner.wait()
        killed["runner"] += 1


def check_journal(killed):
    """Each has exactly one end; every start has an outcome."""
    counts = collections.defaultdict(collections.Counter)
    outcomes = {}
    for line in open("night/journal"):
        record = json.loads(line[9:])
        if "experiment" in record:
            counts[record["experiment"]][record["type"]] += 1
            if record["type"] == "end":
                outcomes[record["experiment"]] = record["outcome"]
    names = {f"{kind}-i={i}" for kind in KINDS for i in range(EACH)}
    if set(counts) != names:
        die(f"not in the journal: {sorted(names - set(counts))}")
    for name, count in counts.items():
        kind = name.split("-")[0]
        file = f"ran/{name.replace('-i=', '-')}"
        ran = len(open(file).readlines()) if os.path.exists(file) else 0
        if count["end"] + count["give_up"] != 1 or count["start"] != count["end"] + count["lost"] + count["cancel"]:
            die(f"{name}: {dict(count)}")
        if count["give_up"] and count["lost"] != 3:
            die(f"{name}: given up: {dict(count)}")
        if count["end"] and outcomes[name] != KINDS[kind][0]:
            die(f"{name}: {outcomes[name]}, not {KINDS[kind][0]}")
        least = KINDS[kind][1] if kind != "hang" else 0  # its time may be over before it has written
        if count["end"] and not least <= ran <= KINDS[kind][1] * count["start"]:
            die(f"{name}: the command was started {ran} times in {count['start']} attempts")
    lost = sum(count["lost"] for count in counts.values())
    if lost > killed["supervisor"]:
        die(f"{lost} attempts were lost by {dict(killed)}")
    return counts, lost


def check_reports(counts):
    page = open("night/report.html").read()
    table = open("out").read()
    history = json.loads(subprocess.check_output([NEAP, "history", "--json", "--limit", "1000"]))
    rows = collections.Counter(run["name"] for run in history["runs"])
    for name, count in counts.items():
        if name not in page or not re.search(rf"^\W*\d*\W*{re.escape(name)}\s", table, re.M):
            die(f"{name} is not in the report")
        if rows[name] != count["end"]:
            die(f"{name} is {rows[name]} times in the history")


def check_nothing_is_left(folder):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = open(f"/proc/{pid}/environ", "rb").read()
        except OSError:
            continue
        if f"NEAP_RUN_DIR={folder}/night".encode() in environment:
            die(f"process {pid} is left: {open(f'/proc/{pid}/cmdline').read()}")


def main():
    seed = int(os.environ.get("NEAP_TEST_SEED") or random.randrange(1 << 31))
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    folder = os.path.realpath(tempfile.mkdtemp())
    os.chdir(folder)
    world = f"night-{os.getpid()}"
    os.environ.update(
        HOME=folder, XDG_STATE_HOME=f"{folder}/state", XDG_RUNTIME_DIR=f"{folder}/runtime",
        NEAP_SIM=f"mem=8GiB,world={world}",
    )
    os.mkdir("runtime", 0o700)
    os.mkdir("ran")
    with open("train", "w") as file:
        file.write(TRAIN.replace("HOLD", HOLD))
    os.chmod("train", 0o755)
    with open("night.yaml", "w") as file:
        parallel = rng.randrange(1, 5)
        file.write(series_file(parallel))
    try:
        code, killed = run_to_the_end(rng, time.monotonic() + DEADLINE_S)
        if code != 1:
            die(f"the series ended with {code}: {open('err').read()[-2000:]}")
        counts, lost = check_journal(killed)
        check_reports(counts)
        check_nothing_is_left(folder)
        given_up = sum(count["give_up"] for count in counts.values())
        print(
            f"{len(counts)} experiments, {parallel} at a time: {EACH} each of {', '.join(KINDS)}; the runner was killed {killed['runner']} "
            f"times, a supervisor {killed['supervisor']} times; {lost} attempts lost, {given_up} experiments given up; "
            "every experiment is in the journal, the table, the page and the history once"
        )
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
        for name in os.listdir("/dev/shm"):
            if world in name:
                os.unlink(f"/dev/shm/{name}")


main()
