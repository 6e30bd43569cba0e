"""A long training under `neap run` while several clients send it every request without a pause. Its losses are byte
for byte those of an undisturbed training, and its memory does not grow.

    soak.py NEAP CHARLM

NEAP_LONG=1: some minutes; otherwise some seconds. The clients' rounds, not a clock, end the test: the training writes
its losses into a pipe that is read only at the end.
"""
import collections
import fcntl
import json
import os
import subprocess
import sys
import threading
import time

from place import BOUND_S, Place

NEAP, CHARLM = map(os.path.abspath, sys.argv[1:3])
LONG = os.environ.get("NEAP_LONG") == "1"
STEPS, ROUNDS, CLIENTS = (20000, 150, 4) if LONG else (600, 1, 2)
HELD_BACK = 16384  # bytes of losses: more than fit into the pipe and the program's buffer
TRAINING_S = 3600
GROWTH_KIB = 256  # the training's own host memory may grow by this, however often it is asked
F_SETPIPE_SZ = 1031
OPTIONS = ["--layers", "1", "--width", "32", "--heads", "2", "--log-every", "0", "--batch", "8", "--micro-batch", "4",
           "--steps", str(STEPS)]


def ask(place, folder, pid, asked):
    """One round: sends every verb and checks its answer."""
    def one(*words):
        answer = place.json(*words, "--pid", pid)
        (process,) = answer["processes"]
        assert process["error"] is None and process["devices"][0].get("error") is None, answer
        asked[words[0]] += 1
        return process["devices"][0]

    assert one("clear")["allocated"] > 0
    one("clear", "--force")
    one("clear", "--stats-only")
    device = one("reset")
    assert device["allocated"] <= device["reserved_now"], device
    assert one("fraction", "0.5")["limit"] > 0
    assert one("fraction", "1")["limit"] is None
    info = place.json("info")
    ledger = dict(info["devices"][0]["ledger"])
    assert ledger.pop("total") == sum(ledger.values()), info
    assert [(process["pid"], process["attached"]) for process in info["processes"]] == [(int(pid), True)], info
    assert "charlm" in place.neap("info", "--summary")
    asked["info"] += 2
    recording = place.json("analyze", f"{folder}/record.{pid}")  # the ring is being written meanwhile
    assert recording["source"] == "recording" and recording["events"] > 0, recording
    asked["analyze"] += 1


def clients(work):
    """Several threads at once, each runs `work()` to its end; the first error is raised here."""
    wrong = []

    def guarded():
        try:
            work()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def host_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


def open_files(pid, expected=None):
    """How many descriptors it has. With `expected`: waits until it has no more, since the server closes a client's
    after the client does."""
    deadline = time.monotonic() + BOUND_S
    while True:
        count = len(os.listdir(f"/proc/{pid}/fd"))
        if expected is None or count <= expected or time.monotonic() > deadline:
            return count


def soak(place):
    plain = place.root + "/plain"
    pipe = place.root + "/pipe"
    folder = place.root + "/run"
    subprocess.run([CHARLM, *OPTIONS, "--losses", plain], env=place.environment, check=True, capture_output=True,
                   timeout=TRAINING_S)
    expected = open(plain, "rb").read()
    assert expected.count(b"\n") == STEPS
    os.mkfifo(pipe)
    with open(place.root + "/out", "w") as out:
        run = place.start(NEAP, "run", "--quiet", "--folder", folder, "--", CHARLM, *OPTIONS, "--losses", pipe,
                          env=place.environment, stderr=out)
    losses = bytearray()
    enough = threading.Event()
    with open(pipe, "rb", buffering=0) as stream:
        fcntl.fcntl(stream, F_SETPIPE_SZ, 4096)
        losses += stream.read(64)
        (pid,) = [str(process["pid"]) for process in place.json("info")["processes"]]
        baseline = open_files(pid)

        def read_on():
            while piece := stream.read(min(4096, max(0, len(expected) - HELD_BACK - len(losses)))):
                losses.extend(piece)
            enough.set()

        asked = collections.Counter()
        clients(lambda: ask(place, folder, pid, asked))  # now everything that is made once exists
        warm = host_kib(pid)
        reader = threading.Thread(target=read_on, daemon=True)
        reader.start()

        def hammer():
            rounds = 0
            while rounds < ROUNDS or not enough.is_set():
                ask(place, folder, pid, asked)
                rounds += 1

        try:
            clients(hammer)
        except BaseException:
            run.terminate()  # ends the training with it
            print(open(place.root + "/out").read(), file=sys.stderr)
            raise
        reader.join()
        files = open_files(pid, baseline)
        kib = host_kib(pid)
        print(f"{STEPS} steps, {CLIENTS} clients: " + ", ".join(f"{count} {verb}" for verb, count in sorted(asked.items())))
        print(f"descriptors {baseline}, then {files}; memory of its own on the host {warm} KiB, then {kib} KiB")
        assert files <= baseline, os.listdir(f"/proc/{pid}/fd")
        assert kib <= warm + GROWTH_KIB, (warm, kib)
        while piece := stream.read(65536):
            losses += piece
    assert run.wait(BOUND_S) == 0, open(place.root + "/out").read()
    assert bytes(losses) == expected, "the losses are not those of the training left alone"
    recording = place.json("analyze", f"{folder}/record.{pid}")
    assert recording["events"] > 0 and recording["steps"] > 0, recording
    assert json.load(open(folder + "/result.json"))["outcome"] == "ok"
    print(f"{STEPS} losses as of the training left alone; the recording's last {recording['steps']} steps are read")


with Place(NEAP) as place:
    soak(place)
