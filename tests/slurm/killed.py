#!/usr/bin/env python3
"""neap series --slurm, killed at random writes of its journal and just after it has started one of Slurm's commands,
then resumed, while every fourth task is killed too: every experiment ends once and never runs twice at once, and only
killed tasks lose their attempt.

usage: killed.py NEAP KILLER.SO. The seed is printed; NEAP_TEST_SEED repeats one. NEAP_LONG=1: ten times as many kills.

This file also plays Slurm, under the names sbatch, squeue and scontrol: it runs the tasks of an array one after
another, in the background, whatever happens to neap.
"""

import fcntl
import json
import os
import random
import subprocess
import sys
import tempfile
import time

EXPERIMENTS = 4
KILLS = 100 if os.environ.get("NEAP_LONG") == "1" else 10
DEADLINE_S = 1800 if os.environ.get("NEAP_LONG") == "1" else 200
MODES = ("before", "torn", "written", "synced", "fork")


def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def tasks_of(text):
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def sbatch(words):
    if "--test-only" in words:
        return
    with open("lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = 1 + max([int(name.split("_")[0]) for name in os.listdir("states") if name[0].isdigit()], default=0)
        array = next(word[len("--array="):] for word in words if word.startswith("--array="))
        for task in tasks_of(array):
            write(f"states/{job}_{task}", "PENDING")
    if os.fork() == 0:
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.environ.pop("LD_PRELOAD", None)
        output = next(word[len("--output="):] for word in words if word.startswith("--output="))
        for task in tasks_of(array):
            write(f"states/{job}_{task}", "RUNNING")
            run(words[-1], job, task, output.replace("%A", str(job)).replace("%a", str(task)))
            write(f"states/{job}_{task}", "OVER")
        os._exit(0)
    print(job)


def run(script, job, task, output):
    chance = random.Random(f"{os.environ['NEAP_TEST_SEED']} {job} {task}")
    with open(output, "a") as log:
        process = subprocess.Popen([script], stdout=log, stderr=log,
                                   env=dict(os.environ, SLURM_ARRAY_JOB_ID=str(job), SLURM_ARRAY_TASK_ID=str(task),
                                            SLURMD_NODENAME="n"))
        if chance.random() < 0.25:
            try:
                process.wait(chance.random() * 0.15)
            except subprocess.TimeoutExpired:
                process.kill()
                write(f"killed/{job}_{task}", "")
        process.wait()


def squeue():
    for name in os.listdir("states"):
        if not name.endswith(".new"):
            with open(f"states/{name}") as state:
                if state.read() != "OVER":
                    print(name)


SERIES = """\
name: s
experiments:
- name: e
  command: >-
    sh -c 'exec 9>> ran/{0}-{{i}}.lock; flock -n 9 || echo {0}-{{i}} >> ran/twice; echo x >> ran/{0}-{{i}}; sleep 0.02 9>&-'
  needs: none
  grid: {{i: [{1}]}}
"""


def records(folder):
    with open(f"{folder}/journal") as journal:
        return [json.loads(line[9:]) for line in journal]


def check(number):
    """Each experiment has one end and a run for it; every other attempt was lost."""
    entries = records(f"s{number}")
    for i in range(EXPERIMENTS):
        own = [r["type"] for r in entries if r.get("experiment") == f"e-i={i}"]
        ended = own.count("end")
        lost = own.count("lost")
        unbegun = own.count("unbegun")
        runs = 0
        if os.path.exists(f"ran/{number}-{i}"):
            with open(f"ran/{number}-{i}") as ran:
                runs = ran.read().count("x")
        outcomes = [r["outcome"] for r in entries if r.get("experiment") == f"e-i={i}" and r["type"] == "end"]
        if (ended + own.count("give_up") != 1 or own.count("start") != ended + lost or not ended <= runs <= ended + lost
                or own.count("give_up") != (lost + unbegun == 3) or set(outcomes) - {"ok"}):
            sys.exit(f"killed.py: series {number}, experiment {i}: ran {runs} times, journal {own} {outcomes}")
    if os.path.exists("ran/twice"):
        with open("ran/twice") as twice:
            sys.exit(f"killed.py: ran twice at once: {twice.read()}")
    return sum(r["type"] in ("lost", "unbegun") for r in entries), sum(r["type"] == "submit" for r in entries)


def main(neap, killer):
    seed = int(os.environ.get("NEAP_TEST_SEED") or time.time_ns() % 10**9)
    print("seed", seed)
    chance = random.Random(seed)
    began = time.monotonic()
    kills = dict.fromkeys(MODES, 0)
    number = losses = submits = 0
    os.mkdir("bin")
    for name in ("sbatch", "squeue", "scontrol"):
        os.symlink(os.path.abspath(__file__), f"bin/{name}")
    for name in ("states", "ran", "killed"):
        os.mkdir(name)
    os.environ.update(PATH=f"{os.getcwd()}/bin:{os.environ['PATH']}", FAKE_CLUSTER=os.getcwd(), HOME=os.getcwd(),
                      XDG_STATE_HOME=f"{os.getcwd()}/state", NEAP_DEVICE="sim", NEAP_TEST_SEED=str(seed),
                      LD_PRELOAD=killer)
    while sum(kills.values()) < KILLS:
        write("s.yaml", SERIES.format(number, ", ".join(map(str, range(EXPERIMENTS)))))
        code = None
        while code not in (0, 1):
            if time.monotonic() - began > DEADLINE_S:
                sys.exit(f"killed.py: not done within {DEADLINE_S} s")
            mode = chance.choice(MODES)
            order = f"{mode}:{chance.randint(1, 4 if mode == 'fork' else 10)}:{chance.randint(0, 200)}"
            done = subprocess.run([neap, "series", "s.yaml", "--slurm", "--resume", "--folder", f"s{number}"],
                                  env=dict(os.environ, NEAP_KILLER=order), capture_output=True, text=True)
            code = done.returncode
            if code == -9:
                kills[mode] += 1
            elif code not in (0, 1, 75):
                sys.exit(f"killed.py: {order}: exit status {code}\n{done.stderr}")
            if code == 75:
                time.sleep(0.02)
        counts = check(number)
        losses, submits = losses + counts[0], submits + counts[1]
        number += 1
    print(f"{number} series, {sum(kills.values())} kills {kills}, {submits} arrays known, {losses} attempts lost")
    if losses > len(os.listdir("killed")):
        sys.exit(f"killed.py: {losses} attempts lost, but only {len(os.listdir('killed'))} tasks were killed")
    # Late tasks of forgotten arrays change nothing.
    while any(open(f"states/{name}").read() != "OVER" for name in os.listdir("states")
              if not name.endswith(".new")):
        if time.monotonic() - began > DEADLINE_S + 60:
            sys.exit("killed.py: the forgotten arrays do not end")
        time.sleep(0.05)
    for one in range(number):
        check(one)


if __name__ == "__main__":
    if os.path.basename(sys.argv[0]) == "sbatch":
        os.chdir(os.environ["FAKE_CLUSTER"])
        sbatch(sys.argv[1:])
    elif os.path.basename(sys.argv[0]) == "squeue":
        os.chdir(os.environ["FAKE_CLUSTER"])
        squeue()
    elif os.path.basename(sys.argv[0]) == "scontrol":
        sys.exit(1)
    else:
        paths = [os.path.abspath(path) for path in sys.argv[1:3]]
        with tempfile.TemporaryDirectory(prefix="neap-killed-") as folder:
            os.chdir(folder)
            try:
                main(*paths)
            finally:
                os.chdir("/")
