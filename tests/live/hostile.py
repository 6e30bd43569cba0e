"""Live processes under hostile conditions: the command answers within its bound, with the documented exit code, and the
training is not disturbed.

    hostile.py NEAP CHARLM SUBJECT

SUBJECT is subject.c: an attached process that does what its stdin asks. Each test has a world and folders of its own.
"""
import concurrent.futures
import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time

from place import BOUND_S, Place, go_on, run_tests, stop, tell

NEAP, CHARLM, SUBJECT = map(os.path.abspath, sys.argv[1:4])
HELLO = struct.pack("<4sHHIII", b"NEAP", 1, 1, 7, 0, 0)
F_SETPIPE_SZ = 1031


SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--log-every", "0", "--batch", "8", "--micro-batch", "4"]


def flood(place, pid):
    """Twice as many peers as there are places send part of a frame and stay; one peer asks without a pause and reads
    nothing; one sends bytes without end that are no frame."""
    peers = [place.connect(pid) for _ in range(126)]
    for i, peer in enumerate(peers):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server has closed it already
            peer.sendall(HELLO[:i % len(HELLO)])
    greedy = place.connect(pid)
    greedy.setblocking(False)
    with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
        for _ in range(10000):
            greedy.send(HELLO)
    liar = place.connect(pid)
    liar.setblocking(False)
    with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
        for _ in range(10000):
            liar.send(b"x" * 4096)
    return peers + [greedy, liar]


def verbs_while_stopped(place, pid):
    """What each verb answers about a stopped process, from the documentation."""
    stop(pid)
    (process,) = [p for p in place.json("info")["processes"] if p["pid"] == pid]
    assert process["attached"] and process["allocated"] > 0, process
    for verb in ("clear", "reset"):
        printed = place.neap(verb, "--pid", str(pid), expect=75)
        assert f"process {pid} (" in printed and "is stopped and cannot answer; nothing was changed" in printed, printed
    assert place.json("fraction", "1", "--pid", str(pid))["processes"][0]["left_with_stopped"] is True
    assert "export" in place.neap("enable")
    assert place.json("kill", "--pid", str(pid), "--dry-run")["processes"][0]["pid"] == pid
    for _ in range(20):
        place.neap("fraction", "1", "--pid", str(pid))
    go_on(pid)
    assert place.json("clear", "--pid", str(pid))["processes"][0]["error"] is None


def test_a_training_under_attack_keeps_its_losses():
    with Place(NEAP, SUBJECT) as place:
        options = [*SMALL, "--steps", "600"]
        plain = place.root + "/plain"
        pipe = place.root + "/pipe"
        subprocess.run([CHARLM, *options, "--losses", plain], env=place.environment, check=True, capture_output=True,
                       timeout=BOUND_S)
        os.mkfifo(pipe)
        with open(place.root + "/out", "w") as out:
            run = place.start(NEAP, "run", "--quiet", "--folder", place.root + "/run", "--", CHARLM, *options, "--losses",
                              pipe, env=place.environment, stderr=out)
        # A pipe so small that the training cannot end before the test reads it to its end.
        with open(pipe, "rb", buffering=0) as stream:
            fcntl.fcntl(stream, F_SETPIPE_SZ, 4096)
            losses = stream.read(64)
            (pid,) = [p["pid"] for p in place.json("info")["processes"]]
            peers = flood(place, pid)
            assert place.json("clear", "--pid", str(pid))["processes"][0]["error"] is None
            # 64 commands at once, while the silent peers are still there
            with concurrent.futures.ThreadPoolExecutor(64) as pool:
                answers = list(pool.map(lambda _: place.json("clear", "--force", "--pid", str(pid)), range(64)))
            assert all(answer["processes"][0]["error"] is None for answer in answers)
            verbs_while_stopped(place, pid)
            for peer in peers:
                peer.close()
            verbs_while_stopped(place, pid)
            while piece := stream.read(65536):
                losses += piece
        assert run.wait(BOUND_S) == 0, open(place.root + "/out").read()
        assert losses == open(plain, "rb").read() and losses.count(b"\n") == 600


def test_a_limit_left_with_a_stopped_process_holds_when_it_goes_on():
    with Place(NEAP, SUBJECT) as place:
        subject = place.subject()
        assert tell(subject, "take 4") == "taken"
        stop(subject.pid)
        printed = place.neap("fraction", "0.5", "--pid", str(subject.pid))
        printed = place.neap("fraction", "0.02", "--pid", str(subject.pid))
        assert f"Process {subject.pid} (" in printed and "takes effect as soon as the process continues" in printed, printed
        go_on(subject.pid)
        place.neap("clear", "--stats-only", "--pid", str(subject.pid))  # answered after the frames that were left before it
        printed = tell(subject, "take 8")
        assert printed.startswith("failed: CUDA out of memory") and "limit 5.08 MiB" in printed, printed
        assert place.json("fraction", "1", "--pid", str(subject.pid))["processes"][0]["left_with_stopped"] is False
        assert tell(subject, "take 8") == "taken"


def test_a_new_image_is_reached_or_said_not_to_be():
    with Place(NEAP, SUBJECT) as place:
        subject = place.subject()
        pid = str(subject.pid)
        assert tell(subject, "take 4") == "taken"
        assert tell(subject, "exec 1") == "ready"
        assert tell(subject, "take 2") == "taken"
        (process,) = place.json("info")["processes"]
        assert process["attached"] and process["allocated"] == 2 << 20, process  # nothing of the old image is left
        place.neap("clear", "--pid", pid)
        assert tell(subject, "exec 0") == "ready"
        assert "is not attached" in place.neap("clear", "--pid", pid, expect=69)
        assert "is not attached" in place.neap("fraction", "0.5", "--pid", pid, expect=69)
        place.neap("info")
        assert not [name for name in os.listdir(place.runtime) if name.endswith((".sock", ".page"))]
        (process,) = place.json("info")["processes"]
        assert not process["attached"], process


def test_a_forked_child_is_not_attached_and_its_parent_is():
    with Place(NEAP, SUBJECT) as place:
        subject = place.subject()
        assert tell(subject, "take 4") == "taken"
        child = tell(subject, "fork")
        assert "is not attached" in place.neap("clear", "--pid", child, expect=69)
        assert [p["pid"] for p in place.json("clear", "--all")["processes"]] == [subject.pid]
        os.kill(int(child), signal.SIGKILL)


def test_a_target_that_ends_in_the_middle_of_a_request():
    with Place(NEAP, SUBJECT) as place:
        subject = place.subject()
        assert tell(subject, "die") == "ok"
        printed = place.neap("clear", "--force", "--pid", str(subject.pid), expect=66)
        assert f"process {subject.pid} ended before it answered" in printed, printed


def test_a_target_that_is_stopped_in_the_middle_of_a_request():
    with Place(NEAP, SUBJECT) as place:
        subject = place.subject()
        assert tell(subject, "halt") == "ok"
        began = time.monotonic()
        printed = place.neap("clear", "--force", "--pid", str(subject.pid), expect=75)
        assert f"process {subject.pid} was stopped before it answered" in printed and "kill -CONT" in printed, printed
        assert time.monotonic() - began < 20  # noticed, not waited for to the bound of 30 s
        go_on(subject.pid)
        place.neap("clear", "--pid", str(subject.pid))


def test_a_target_in_the_middle_of_a_capture():
    with Place(NEAP, SUBJECT) as place:
        subject = place.subject()
        assert tell(subject, "take 4") == "taken" and tell(subject, "capture") == "ok"
        pid = str(subject.pid)
        assert "not emptied" in place.neap("clear", "--pid", pid, expect=75)
        place.neap("reset", "--pid", pid, expect=75)
        printed = place.neap("fraction", "0.01", "--pid", pid, expect=75)
        assert "the limit is in force, but the cache was not emptied" in printed, printed
        place.neap("fraction", "1", "--pid", pid)
        assert place.json("info")["processes"][0]["allocated"] == 5 << 20
        assert tell(subject, "end") == "ok"
        place.neap("clear", "--pid", pid)


def test_a_stale_socket():
    with Place(NEAP, SUBJECT) as place:
        gone = place.subject()
        gone.kill()
        gone.wait()
        assert os.path.exists(f"{place.runtime}/{gone.pid}.sock")
        place.neap("clear", "--pid", str(gone.pid), expect=66)
        plain = place.subject(attach="0")
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(f"{place.runtime}/{plain.pid}.sock")
        assert "is not attached" in place.neap("clear", "--pid", str(plain.pid), expect=69)
        place.neap("info")
        assert not os.path.exists(f"{place.runtime}/{gone.pid}.sock")


def test_runtime_folders_that_are_not_safely_ours():
    def others(place):
        os.mkdir(place.runtime, 0o700)
        os.chown(place.runtime, 65534, 65534)

    def open_to_all(place):
        os.mkdir(place.runtime)
        os.chmod(place.runtime, 0o777)

    def link(place):
        os.symlink("/tmp", place.runtime)

    for make in [open_to_all, link] + ([others] if os.geteuid() == 0 else []):
        with Place(NEAP, SUBJECT) as place:
            losses = []
            for attach in "0", "1":
                subprocess.run([CHARLM, *SMALL, "--steps", "5", "--losses", place.root + "/losses"], check=True,
                               env=dict(place.environment, NEAP_ATTACH=attach), capture_output=True, timeout=BOUND_S)
                losses.append(open(place.root + "/losses").read())
                if attach == "0":
                    make(place)
            assert losses[0] == losses[1] and losses[0].count("\n") == 5
            for verb in (["info"], ["clear"], ["reset"], ["fraction", "0.5"]):
                assert place.runtime in place.neap(*verb, expect=77)
            assert set(os.listdir(place.root + "/runtime")) == {"neap"}


run_tests(globals(), sys.argv[4:])
