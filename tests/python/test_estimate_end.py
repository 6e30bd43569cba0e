"""The end of a process that `neap estimate` records, with signals at any instant: no hang, and whole files. Without
PyTorch."""

import json
import mmap
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

from neap import _shared_runs

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

def read():  # attributed to the line of its caller
    _estimate._count("item", "value")
"""

# Each signal interrupts the main thread while it counts reads. For _estimate each looks like the end of a new
# process.
MANY = """
signals = 0

def end(*_):
    global signals
    State.finished = State.written = False
    State.tickets = [None]
    for name in ("snapshot.{}.pickle", "estimate.{}.json"):  # a replaced file goes to the disk first, which is slow
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

# The handler runs in the main thread while another thread writes.
BESIDE = """
def dump(path):
    os.kill(os.getpid(), signal.SIGTERM)
    while not State.ended_by:
        time.sleep(0.001)
    with open(path, "w") as file:
        file.write("whole")

_estimate._finish_on_sigterm()
threading.Thread(target=_estimate.finish).start()
while True:  # short: Python does not handle a signal that arrives just before a sleep until the sleep is over
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


# A program that forks runs for three other GPUs; the second fails. Its argument says how it ends itself. Each run has
# the program's own view: tests/live/view.py tests views.
SHARED = """
import socket
def ask(first, folder):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.close()
    return here, os.getpid()

open(FOLDER + "/views", "w").close()
_estimate._shared_runs._ask_for_view, _estimate._shared_runs._join_view = ask, int
runs, torch.cuda.memory_stats, torch.set_num_threads, torch._dynamo = _estimate._shared_runs, dict, id, torch
sys.modules.update({"torch": torch, "torch._dynamo": torch})
os.register_at_fork(after_in_child=runs._forget)
runs._State.torch, runs._State.until = torch, time.monotonic() + 60
runs._State.asked = [(f"other.{i}", str(i)) for i in range(3)]
runs._fork()
if runs._State.first:
    open(os.environ["NEAP_RUN_DIR"] + "/found", "w").write(os.environ["NEAP_SIM"])
    os._exit(os.environ["NEAP_SIM"] == "1")
try:
    print(os.wait())
except ChildProcessError:
    print("no children", flush=True)
if sys.argv[1] == "by finish":
    if os.fork():  # a worker: its end is not theirs
        os.wait()
    runs.end(int)
"""


class End(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def run_program(self, text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "NEAP_RUN_DIR": str(self.folder)}
        environment.pop("NEAP_ATTACH", None)
        program = self.folder / "program.py"
        program.write_text(BEGIN + text)
        # A program that hangs is ended.
        return subprocess.run([sys.executable, program, *arguments], env=environment, capture_output=True, text=True, timeout=100)

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

    def test_other_runs_are_no_children_and_end_with_the_program(self) -> None:
        for way, left in (("by finish", {"other.0": "0", "other.2": "2"}), ("at once", dict.fromkeys(("other.0", "other.1", "other.2")))):
            done = self.run_program(SHARED, way)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "no children\n", ""))
            found = {path.name: path / "found" for path in self.folder.glob("other.*")}
            self.assertEqual({name: path.read_text() if path.exists() else None for name, path in found.items()}, left, way)
            for name in found:
                shutil.rmtree(self.folder / name)

    def test_as_many_other_runs_as_have_memory(self) -> None:
        for free, peak, room in ((8 << 30, 3 << 30, 2), (1 << 30, 3 << 30, 1), (1 << 50, 1, 8)):
            self.assertEqual(_shared_runs._room(free, peak), min(room, os.cpu_count()))


class Alike(unittest.TestCase):
    """Whether a run on one architecture counts for another."""

    def run_of(self, **changes: object) -> "_shared_runs._Run":
        updates = [{"0 requested_bytes.all.allocated": 8}, {"0 requested_bytes.all.allocated": 16}]
        found = {"updates": updates, "told": [], **{key: changes[key] for key in changes.keys() & {"updates", "told"}}}
        code = changes.get("code", ["device 90\n", "kernel a\n", "kernel b\n", "kernel c\n"])
        return _shared_runs._Run(found, "", code, changes.get("gaps", {"workspace cublas create": ["2", "0", "8"]}))

    def test_where_all_is_the_same(self) -> None:
        mine = self.run_of(code=["device 80\n", "kernel b\n", "kernel a\n"], gaps={"workspace cublas create": ["1", "0", "4"]})
        self.assertTrue(_shared_runs._are_alike(mine, self.run_of()))

    def test_not_where_anything_differs(self) -> None:
        for change in (
            {"updates": [{"0 requested_bytes.all.allocated": 8}, {"0 requested_bytes.all.allocated": 24}]},
            {"told": ["get_device_properties: 8.0, 108, 42949672960"]},
            {"code": ["device 80\n", "kernel a\n", "kernel d\n"]},
            {"gaps": {}},
        ):
            self.assertFalse(_shared_runs._are_alike(self.run_of(**change), self.run_of()), change)

    def test_no_view_comes(self) -> None:
        """The program does not wait for a process that makes no view."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
            silent.bind(f"{folder}/views")
            silent.listen()
            with unittest.mock.patch.object(_shared_runs, "_VIEW_SECONDS", 0.01), self.assertRaisesRegex(OSError, "timed out"):
                _shared_runs._ask_for_view(folder, "other.0")

    def test_a_process_with_threads_pipes_or_open_folders_does_not_fork(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        folder = holder.name
        os.environ["NEAP_RUN_DIR"] = folder
        self.addCleanup(os.environ.pop, "NEAP_RUN_DIR")
        descriptors = _shared_runs._descriptors
        inherited = descriptors()
        ours = unittest.mock.patch.object(_shared_runs, "_descriptors", lambda: [number for number in descriptors() if number not in inherited])
        ours.start()
        self.addCleanup(ours.stop)
        self.assertFalse(_shared_runs._may_fork())  # nobody makes views
        pathlib.Path(folder, "views").touch()
        self.assertTrue(_shared_runs._may_fork())
        with tempfile.TemporaryFile() as file:
            self.assertFalse(_shared_runs._may_fork(), file)  # the file has no path
        with open(f"{folder}/log", "w+") as file:
            self.assertTrue(_shared_runs._may_fork())
            file.truncate(4096)
            with mmap.mmap(file.fileno(), 4096):
                self.assertFalse(_shared_runs._may_fork())  # memory that the other process would write, too
        for opened in (os.pipe(), [os.open(folder, os.O_RDONLY)]):
            self.assertFalse(_shared_runs._may_fork(), opened)
            for number in opened:
                os.close(number)
        going = threading.Event()
        thread = threading.Thread(target=going.wait)
        thread.start()
        self.assertFalse(_shared_runs._may_fork())
        going.set()
        thread.join()
        self.assertTrue(_shared_runs._may_fork())


if __name__ == "__main__":
    unittest.main()
