"""The end of a process that `neap estimate` records, with signals at any instant of it: no hang, and whole files. Without PyTorch."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

BEGIN = """
import itertools, json, os, signal, sys, threading, time, types
from neap import _estimate
State = _estimate._State
FOLDER = os.environ["NEAP_RUN_DIR"]

def dump(path):
    with open(path, "w") as file:
        file.write("whole")

torch = types.ModuleType("torch")
torch.__file__, torch.__version__ = "/nowhere/torch/__init__.py", "2.0"
torch.version = types.SimpleNamespace(cuda="13.0")
memory = types.SimpleNamespace(_dump_snapshot=lambda path: dump(path))
torch.cuda = types.SimpleNamespace(memory=memory, get_arch_list=list, device_count=int)
State.torch, State.recording = torch, True

def read():  # at the line of its caller
    _estimate._count("item", "value")
"""

# Each signal is a new end of a new process, as far as _estimate knows, that interrupts the main thread where it counts reads.
MANY = """
signals = 0

def end(*_):
    global signals
    State.finished = State.written = False
    State.tickets = [None]
    for name in ("snapshot.{}.pickle", "estimate.{}.json"):  # a file that is replaced goes to the disk first, which is slow
        if signals:
            os.unlink(os.path.join(FOLDER, name.format(os.getpid())))
    _estimate.finish()
    signals += 1
    if signals < 3000:
        signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + signals % 7))

signal.signal(signal.SIGALRM, end)
signal.setitimer(signal.ITIMER_REAL, 1e-5)
while signals < 3000:
    read()
print(signals)
"""

INSIDE = """
def dump(path):
    with open(path, "w") as file:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass
        file.write("whole")

_estimate._finish_on_sigterm()
_estimate.finish()
"""

# The handler runs in the main thread while another one writes.
BESIDE = """
def dump(path):
    os.kill(os.getpid(), signal.SIGTERM)
    while not State.ended_by:
        time.sleep(0.001)
    with open(path, "w") as file:
        file.write("whole")

_estimate._finish_on_sigterm()
threading.Thread(target=_estimate.finish).start()
while True:  # short: Python misses a signal that arrives just before a sleep until the sleep is over
    time.sleep(0.01)
"""

CHILD = """
_estimate._finish_on_sigterm()
read()
if os.fork():
    sys.exit(os.WTERMSIG(os.wait()[1]))
assert not State.lines
os.kill(os.getpid(), signal.SIGTERM)
while True:
    time.sleep(1000)
"""

THREADS = """
def count():
    for _ in range(5000):
        read()

threads = [threading.Thread(target=count) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for line in range(300):
    exec(compile(chr(10) * line + "read()", "made.py", "exec"))
_estimate.finish()
"""


class End(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def run_program(self, text: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "NEAP_RUN_DIR": str(self.folder)}
        environment.pop("NEAP_ATTACH", None)
        program = self.folder / "program.py"
        program.write_text(BEGIN + text)
        # One that hangs is ended.
        return subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=100)

    def about(self) -> dict:
        [path] = self.folder.glob("estimate.*.json")
        [snapshot] = self.folder.glob("snapshot.*.pickle")
        self.assertEqual(snapshot.read_text(), "whole")
        return json.loads(path.read_text())

    def test_signals_while_reads_are_counted(self) -> None:
        done = self.run_program(MANY)
        self.assertEqual((done.returncode, done.stdout), (0, "3000\n"), done.stderr)
        self.about()

    def test_a_signal_while_it_writes(self) -> None:
        done = self.run_program(INSIDE)
        self.assertEqual(done.returncode, -signal.SIGTERM, done.stderr)
        self.about()

    def test_a_signal_while_another_thread_writes(self) -> None:
        done = self.run_program(BESIDE)
        self.assertEqual(done.returncode, -signal.SIGTERM, done.stderr)
        self.about()

    def test_a_forked_child_writes_nothing(self) -> None:
        done = self.run_program(CHILD)
        self.assertEqual(done.returncode, signal.SIGTERM, done.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["program.py"])

    def test_each_read_counts_once(self) -> None:
        """Of several threads; and those of lines beyond the first 200 are counted together."""
        done = self.run_program(THREADS)
        self.assertEqual(done.returncode, 0, done.stderr)
        about = self.about()
        self.assertEqual(about["reads"][0]["count"], 20000)
        self.assertEqual(len(about["reads"]), 200)
        self.assertEqual(sum(read["count"] for read in about["reads"][1:]) + about["reads_lost"], 300)


if __name__ == "__main__":
    unittest.main()
