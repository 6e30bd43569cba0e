"""Shared by the tests of live processes: a world and folders of their own, and the processes in it."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback

BOUND_S = 60  # of the test itself: the command's own limit is half of it


class Place:
    """A world and folders of its own, and the processes in it, which end with it."""

    def __init__(self, neap, subject=None):
        self.command = neap
        self.program = subject
        self.root = tempfile.mkdtemp(prefix="neap-live-")
        os.mkdir(self.root + "/runtime", 0o700)
        self.runtime = self.root + "/runtime/neap"
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.root + "/runtime", XDG_STATE_HOME=self.root + "/state",
                                HOME=self.root, NEAP_SIM=f"mem=256MiB,context=8MiB,reserved=2MiB,world={os.path.basename(self.root)}")
        for variable in ("NEAP_ATTACH", "NEAP_RUN_DIR", "NEAP_RUN_ID", "NEAP_SERIES", "NEAP_PEERS", "NEAP_FRACTION"):
            self.environment.pop(variable, None)
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()
        shutil.rmtree(self.root)
        for file in os.listdir("/dev/shm"):
            if file.endswith(os.path.basename(self.root)):
                os.unlink("/dev/shm/" + file)

    def neap(self, *words, expect=0):
        done = subprocess.run([self.command, *words], env=self.environment, capture_output=True, text=True, timeout=BOUND_S,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == expect, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def json(self, *words, expect=0):
        done = subprocess.run([self.command, *words, "--json"], env=self.environment, capture_output=True, text=True,
                              timeout=BOUND_S, stdin=subprocess.DEVNULL)
        assert done.returncode == expect, (words, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def start(self, *words, **more):
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)
        self.processes.append(process)
        return process

    def subject(self, attach="1", **environment):
        subject = self.start(self.program, env=dict(self.environment, NEAP_ATTACH=attach, **environment))
        assert subject.stdout.readline() == "ready\n"
        return subject

    def connect(self, pid):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(BOUND_S)
        peer.connect(f"{self.runtime}/{pid}.sock")
        return peer


def tell(subject, command):
    subject.stdin.write(command + "\n")
    subject.stdin.flush()
    return subject.stdout.readline().rstrip("\n")


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    while open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "T":
        pass


def go_on(pid):
    os.kill(pid, signal.SIGCONT)


def run_tests(scope, only):
    """Runs the functions of the scope that begin with test_, or those of `only`, and ends the process: with 1 if one
    failed."""
    failed = 0
    for name, test in list(scope.items()):
        if name.startswith("test_") and (not only or name in only):
            try:
                test()
                print("ok  ", name, flush=True)
            except Exception:
                traceback.print_exc()
                print("FAIL", name, flush=True)
                failed += 1
    sys.exit(1 if failed else 0)
