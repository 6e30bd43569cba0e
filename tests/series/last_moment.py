#!/usr/bin/env python3
"""Supervisors that are killed near the end of their command: an experiment that had ended is never run again, and one
that had not ended never counts as finished.

usage: last_moment.py NEAP ENDS. Each experiment of a series says when its command will end; its supervisor gets SIGKILL at an
instant between 20 ms before and 5 ms after that. 40 kills; NEAP_LONG=1: 1000. NEAP_TEST_SEED repeats one.

The kernel tells how the command ended: its pidfd keeps the exit status (Linux 6.15); without that, it is known only
if the command ended before the kill.
"""

import collections
import fcntl
import json
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

NEAP, ENDS = map(os.path.abspath, sys.argv[1:3])
KILLS = 1000 if os.environ.get("NEAP_LONG") == "1" else 40
EACH = 40  # experiments of a series
EARLIEST_S = -0.020
LATEST_S = 0.005
DEADLINE_S = 120  # of one step

# linux/pidfd.h: PIDFD_GET_INFO, PIDFD_INFO_EXIT, struct pidfd_info
GET_INFO = 0xC040FF0B
INFO_EXIT = 8
INFO_BYTES = 64
INFO_STATUS_AT = 60


def die(text):
    sys.exit(f"last_moment.py: {text}")


def wait_for(path):
    end = time.monotonic() + DEADLINE_S
    while not os.path.exists(path):
        if time.monotonic() > end:
            die(f"{path} does not come")
        time.sleep(0.0005)
    with open(path) as file:
        return [int(word) for word in file.read().split()]


def has_ended(pidfd):
    return bool(select.select([pidfd], [], [], 0)[0])


def exit_status(pidfd):
    """The wait status of a process that has been reaped, or None if the kernel does not keep it."""
    info = bytearray(struct.pack("Q", INFO_EXIT).ljust(INFO_BYTES, b"\0"))
    try:
        fcntl.ioctl(pidfd, GET_INFO, info)
    except OSError:
        return None
    kept = struct.unpack_from("Q", info)[0] & INFO_EXIT
    return struct.unpack_from("i", info, INFO_STATUS_AT)[0] if kept else None


def kill_one(rng, folder, name):
    """Kills the supervisor of the first attempt. Returns the command's pidfd, and whether it had ended before. None:
    we were too late, on a busy machine."""
    pid, end_ns = wait_for(f"at/{name}")
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    supervisor = wait_for(f"{folder}/runs/{name}-1/supervisor")[0]
    time.sleep(max(0, end_ns / 1e9 + rng.uniform(EARLIEST_S, LATEST_S) - time.monotonic()))
    ended = has_ended(pidfd)
    try:
        os.kill(supervisor, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it was quicker
    return pidfd, ended


def run_series(rng, number, count):
    """A series of `count` experiments. Returns how each experiment ended whose supervisor was killed."""
    folder = f"s{number}"
    names = [f"e{number}-i={i}" for i in range(count)]
    with open(f"{folder}.yaml", "w") as file:
        file.write(f"name: {folder}\nexperiments:\n- name: e{number}\n  needs: none\n")
        file.write(f"  grid: {{i: {list(range(count))}}}\n  command: {ENDS} e{number}-i={{i}} 60\n")
    with open(f"{folder}.err", "w") as err:
        series = subprocess.Popen([NEAP, "series", f"{folder}.yaml", "--folder", folder], stdout=err, stderr=err)
    killed = {name: kill_one(rng, folder, name) for name in names}
    if series.wait(timeout=DEADLINE_S):
        die(f"the series ended with {series.returncode}: {open(f'{folder}.err').read()[-3000:]}")
    records = [json.loads(line[9:]) for line in open(f"{folder}/journal")]
    return [judge(name, records, *killed[name]) for name in names if killed[name]]


def judge(name, records, pidfd, ended):
    kinds = collections.Counter(record["type"] for record in records if record.get("experiment") == name)
    ends = [record for record in records if record.get("experiment") == name and record["type"] == "end"]
    ran = len(open(f"ran/{name}").readlines())
    status = exit_status(pidfd)
    os.close(pidfd)
    if len(ends) != 1 or ends[0]["outcome"] != "ok" or kinds["start"] != 1 + kinds["lost"]:
        die(f"{name}: {dict(kinds)}, {ends}")
    finished = status == 0 if status is not None else ended
    if ran == 1 and not os.path.exists(f"done/{name}"):
        die(f"{name} did not finish, and was taken as finished")
    if finished and ran > 1:
        return "finished, and run again"
    return "finished before" if ended else "finished meanwhile" if ran == 1 else "not finished, and run again"


def main():
    seed = int(os.environ.get("NEAP_TEST_SEED") or random.randrange(1 << 31))
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    folder = os.path.realpath(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    os.chdir(folder)
    os.environ.update(
        HOME=folder, XDG_STATE_HOME=f"{folder}/state", XDG_RUNTIME_DIR=f"{folder}/runtime", NEAP_ATTACH="0",
        NEAP_SIM=f"mem=1GiB,world=last-{os.getpid()}",
    )
    for name in ("runtime", "ran", "at", "done"):
        os.mkdir(name, 0o700)
    counts = collections.Counter()
    try:
        number = 0
        while counts.total() < KILLS:
            counts.update(run_series(rng, number, min(EACH, KILLS - counts.total())))
            number += 1
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
        for name in os.listdir("/dev/shm"):
            if f"last-{os.getpid()}" in name:
                os.unlink(f"/dev/shm/{name}")
    print(f"{KILLS} supervisors killed, from 20 ms before their command's end to 5 ms after it:")
    for kind, count in sorted(counts.items()):
        print(f"  {count:4} {kind}")
    if counts["finished, and run again"]:
        die(f"{counts['finished, and run again']} of {KILLS} experiments that had ended were run again")


main()
