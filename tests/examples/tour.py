"""docs/tour.md and README.md, typed: every command that they show works, and prints lines of the shape that they show.

    tour.py DOCUMENT BUILD

(`neap estimate` needs PyTorch: tests/python/test_estimate.py.)
The commands after "$ " run in one shell, in the order of the page. Figures differ from machine to machine, so a shown line is
compared by its words: each number, unit, time, PID and identifier stands for any other. The lines of one command must come in
their order; "..." stands for lines that are left out.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

document, build = map(pathlib.Path, sys.argv[1:3])
source = next(folder for folder in document.resolve().parents if (folder / "examples").is_dir())
home = tempfile.mkdtemp(prefix="neap-tour-")
problems = 0


def commands(text):
    """(command, shown lines) of each "$ " in the fenced blocks."""
    found = []
    for block in re.findall(r"^```\n(.*?)^```", text, re.S | re.M):
        for line in block.splitlines() if block.startswith("$ ") else []:
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found and found[-1][0].endswith("\\"):
                found[-1] = (found[-1][0] + "\n" + line, [])
            elif found:
                found[-1][1].append(line)
    return found


def shape(line):
    """The line with its figures taken out."""
    line = re.sub(r"GPU-[0-9a-f-]{36}", "UUID", line)
    line = re.sub(r"\d{8}-\d{6}-\d+-\d+", "RUN", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME", line)
    line = re.sub(r"[+-]?\d+(\.\d+)?", "N", line)
    line = re.sub(r"\bN ?(B|KiB|MiB|GiB|ns|us|ms|s|m|h|d)\b", "N", line)
    return re.sub(r"[ ~-]+", " ", line).strip()


def missing(shown, printed):
    """The first shown line that does not come, in order; None when all do."""
    at = 0
    shapes = [shape(line) for line in printed]
    for line in shown:
        if not line.strip() or line.strip() == "...":
            continue
        try:
            at = shapes.index(shape(line), at) + 1
        except ValueError:
            return line
    return None


class Shell:
    """One bash for the whole page; the end of each command's output is marked."""

    MARK = "end-of-the-command"

    def __init__(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NEAP", "CUDA"))}
        environment.update(HOME=home, XDG_STATE_HOME=f"{home}/state", XDG_RUNTIME_DIR=home, NO_COLOR="1")
        environment["PATH"] = f"{build}/src:{build}/examples/charlm:{environment['PATH']}"
        self.bash = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     text=True, cwd=home, env=environment, start_new_session=True)

    def run(self, command):
        self.bash.stdin.write(f"{command}\necho \"{self.MARK} $?\"\n")
        self.bash.stdin.flush()
        lines = []
        for line in self.bash.stdout:
            found = re.match(rf"(.*){self.MARK} (\d+)$", line)
            if found:
                return lines + ([found[1]] if found[1] else []), int(found[2])
            lines.append(line.rstrip("\n"))
        sys.exit(f"FAILED: the shell ended in: {command}")

    def end(self):
        try:
            os.killpg(self.bash.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.bash.wait()


def settled(shell):
    """Waits until the training that runs in the background is attached; its PID."""
    for _ in range(600):
        lines, _ = shell.run("neap info --json 2>/dev/null")
        pid = re.search(r'"pid": ?(\d+)', "\n".join(lines))
        if pid and re.search(r'"attached": ?true', "\n".join(lines)):
            return pid[1]
        time.sleep(0.1)
    sys.exit("FAILED: the training in the background is not attached")


shell = Shell()
try:
    shell.run(f"ln -s {source}/examples examples")
    pid = None
    shown_pid = None
    for command, shown in commands(document.read_text(encoding="utf-8")):
        shown_pid = shown_pid or next((found[1] for line in shown if (found := re.match(r"Process (\d+) ", line))), None)
        if pid and re.match(r"neap kill \d+", command):
            command = re.sub(r"\d+", pid, command, count=1)
        if command.startswith(("export PATH=", "neap estimate ")):
            continue  # the page's PATH is for the folder of the sources
        printed, status = shell.run(command)
        if command.endswith("&"):
            pid = settled(shell)
        failed = status and not command.endswith("&")
        line = missing(shown, printed)
        if failed or line is not None:
            problems += 1
            problem = f"exit status {status}" if failed else f"this line does not come: {line}"
            print(f"FAILED: {command}\n  {problem}\n  printed:\n    " + "\n    ".join(printed[:60]))
        else:
            print(f"ok: {command}")
finally:
    shell.end()
    shutil.rmtree(home, ignore_errors=True)
sys.exit(1 if problems else 0)
