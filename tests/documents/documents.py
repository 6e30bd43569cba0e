"""A document, typed: every command that it shows works, and prints lines of the shape that it shows.

    documents.py DOCUMENT BUILD

The commands run in one shell, in the order of the page, in an empty folder with examples/ and build/ in it. They find neap
and charlm by the page's own line that sets PATH, wherever it stands; a page without one has neap installed. Figures differ from
machine to machine, so a shown line is compared by its words: each number, unit, time, PID and identifier stands for any other.
The lines of one command must come in their order; "..." stands for lines that are left out.

What is special about a document stands in documents_table.py: commands that are not run, with the reason, and what a command
needs. A command line that can neither be run nor is listed there fails; so does an entry that the document has no longer.
NEAP_LONG=1 also runs what needs PyTorch.
"""

import getpass
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import documents_table

document, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
source = next(folder for folder in document.parents if (folder / "examples").is_dir())
table = documents_table.TABLE.get(str(document.relative_to(source)), documents_table.Document())
venv = pathlib.Path(os.environ.get("NEAP_VENV", "~/.cache/neap/python-3.11")).expanduser()
with_torch = os.environ.get("NEAP_LONG") == "1" and (venv / "bin/python").exists()
home = tempfile.mkdtemp(prefix="neap-document-")
problems = 0
unused = {*table.not_run, *table.torch, *table.fails, *table.before, *table.output}

COMMAND = re.compile(r"neap |export |meson |ninja |pip |packaging/|cc |\./run|\./test|NEAP_\w+=")


def entry(entries, line):
    """The entry that the line begins with, or None."""
    found = next((start for start in entries if line.startswith(start)), None)
    unused.discard(found)
    return found


def blocks(text):
    """The lines of each fenced block without a language."""
    fence = None
    lines = []
    for line in text.splitlines():
        if not line.startswith("```"):
            lines.append(line)
        elif fence is None:
            fence = line
            lines = []
        else:
            if fence == "```":
                yield lines
            fence = None


def commands(text):
    """(command, shown lines) of each "$ " in the blocks, and of each line of a block of commands."""
    found = []
    for lines in blocks(text):
        prompts = lines[0].startswith("$ ")
        if not prompts and (entry(table.output, lines[0]) or not COMMAND.match(lines[0])):
            if entry(table.output, lines[0]) is None:
                sys.exit(f"FAILED: neither commands nor output of a command, as far as the table knows:\n{lines[0]}")
            continue
        for line in lines:
            begun = found and (found[-1][0].endswith(("\\", "|")) or (prompts and line.startswith("> ") and not found[-1][1]))
            if line.startswith("$ ") or not (prompts or begun):
                found.append((line.removeprefix("$ "), []))
            elif begun:
                found[-1] = (found[-1][0] + "\n" + line.removeprefix("> "), [])
            else:
                found[-1][1].append(line)
    return found


def shape(line):
    """The line without its figures."""
    line = re.sub(rf"(?<!\S)({re.escape(getpass.getuser())}|root)(?=/|\s)", "USER", line)
    line = re.sub(r"GPU-[0-9a-f-]{36}", "UUID", line)
    line = re.sub(r"(?<=\ds) \(\d+:\d\d:\d\d\)", "", line)  # those of pytest, for a minute or more
    line = re.sub(r"\d{8}-\d{6}-\d+-\d+", "RUN", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d(,\d+)?)?", "TIME", line)
    line = re.sub(r"\b\d+(:\d\d)+\b", "TIME", line)
    line = re.sub(r"0x[0-9a-f]+", "N", line)
    line = re.sub(r"World \S+:", "World NAME:", line)
    line = re.sub(r"(\S*/)?\.\.\./|(\S*/)?" + re.escape(home.rpartition("/")[2]) + "/", "HERE/", line)
    line = re.sub(r"\S*/neap/runs/", "RUNS/", line)
    line = re.sub(r"\S*/record\.\d+", "RECORD", line)
    line = re.sub(r"[+-]?\d+(\.\d+)?", "N", line)
    line = re.sub(r"\bN ?(B|KiB|MiB|GiB|[KMG]|ns|us|ms|s|m|h|d)\b", "N", line)
    line = re.sub(r"(?<!\S)(\S)\1{2,}|([=.#cr])\2{1,}", "", line)  # bars
    return re.sub(r"[ ~-]+", " ", line).strip()


def missing(shown, printed):
    """The first shown line that is missing, in order; None if all are there."""
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


def with_own_worlds(command):
    """The command with each NEAP_SIM in a world of its own; the same settings give the same world."""
    return re.sub(
        r"NEAP_SIM=([^ ;\n]+)",
        lambda found: f"{found[0]},world=document-{os.getpid()}-{hashlib.sha1(found[1].encode()).hexdigest()[:8]}",
        command,
    )


class Shell:
    """One bash for the whole page; the end of each command's output is marked."""

    MARK = "end-of-the-command"

    def __init__(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NEAP", "CUDA"))}
        environment.update(HOME=home, XDG_STATE_HOME=f"{home}/.state", XDG_RUNTIME_DIR=home, NO_COLOR="1", LC_ALL="C.UTF-8")
        own_path = re.search(r"export PATH=[^`\n]*", document.read_text(encoding="utf-8"))
        installed = [] if own_path else [f"{build}/src"]
        environment["PATH"] = ":".join([*installed, *([str(venv / "bin")] if with_torch else []), environment["PATH"]])
        self.bash = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
            env=environment,
            start_new_session=True,
        )
        if own_path:
            self.run(own_path[0])

    def run(self, command):
        self.bash.stdin.write(f'{command}\necho "{self.MARK} $?"\n')
        self.bash.stdin.flush()
        lines = []
        for line in self.bash.stdout:
            found = re.match(rf"(.*){self.MARK} (\d+)$", line)
            if found:
                return lines + ([found[1]] if found[1] else []), int(found[2])
            lines.append(line.rstrip("\n"))
        sys.exit(f"FAILED: the shell ended in: {command}")

    def end(self):
        """Ends the shell and everything that it has started, also in the background: a supervisor that is asked to
        end ends its command."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.bash.pid, number)
                for _ in range(100):
                    self.bash.poll()
                    os.killpg(self.bash.pid, 0)
                    time.sleep(0.1)
            except ProcessLookupError:
                break
        self.bash.wait()


def settled(shell):
    """Waits until the training in the background is attached. Returns its PID."""
    for _ in range(600):
        lines, _ = shell.run("neap info --json 2>/dev/null")
        pid = re.search(r'"pid": ?(\d+)', "\n".join(lines))
        if pid and re.search(r'"attached": ?true', "\n".join(lines)):
            return pid[1]
        time.sleep(0.1)
    sys.exit("FAILED: the training in the background is not attached")


def write_shown(command, shown):
    """The file that `cat FILE` or `fold FILE` shows, if only the page has its contents."""
    found = re.fullmatch(r"(cat|fold) (?:.* )?(\S+\.(?:yaml|log))", command)
    if found and not os.path.exists(f"{home}/{found[2]}"):
        with open(f"{home}/{found[2]}", "w", encoding="utf-8") as file:
            file.write("\n".join(shown) + "\n" if found[1] == "cat" else "".join(f"{line} " for line in shown).strip() + "\n")


def run(shell, command, shown, pid, fails):
    """What is wrong with the command, or None; and what it printed."""
    before = entry(table.before, command)
    if before:
        shell.run(with_own_worlds(table.before[before]))
        pid = settled(shell) if "&\n" in table.before[before] else pid
    if table.pid and pid:
        command = re.sub(rf"\b{table.pid}\b", pid, command)
    command = with_own_worlds(command)
    write_shown(command, shown)
    printed, status = shell.run(command)
    if not command.endswith("&") and bool(status) != fails:
        return f"exit status {status}", printed
    line = missing(shown, printed)
    return (None if line is None else f"this line does not come: {line}"), printed


signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # a test that takes too long
shell = Shell()
try:
    for name in ("examples", "bench"):
        os.symlink(source / name, f"{home}/{name}")
    os.symlink(build, f"{home}/build")
    pid = None
    for command, shown in commands(document.read_text(encoding="utf-8")):
        excuse = entry(table.not_run, command)
        needs_torch = entry(table.torch, command) is not None
        fails = entry(table.fails, command) is not None
        if excuse is not None or (needs_torch and not with_torch):
            print(f"not run: {command}\n  {table.not_run[excuse] if excuse is not None else 'needs PyTorch, and NEAP_LONG=1'}")
            continue
        began = time.monotonic()
        wrong, printed = run(shell, command, shown, pid, fails)
        if command.endswith("&"):
            pid = settled(shell)
        if wrong:
            problems += 1
            print(f"FAILED: {command}\n  {wrong}\n  printed:\n    " + "\n    ".join(printed[:60]))
        else:
            print(f"ok: {command} ({time.monotonic() - began:.1f} s)")
finally:
    shell.end()
    shutil.rmtree(home, ignore_errors=True)
if document.name == "README.md":
    tested = (pathlib.Path(__file__).parent / "meson.build").read_text(encoding="utf-8")
    for path in sorted((source / "docs").glob("*.md")):
        if f"'docs/{path.name}'" not in tested:
            problems += 1
            print(f"FAILED: tests/documents/meson.build does not name docs/{path.name}")
for line in sorted(unused):
    problems += 1
    print(f"FAILED: the table has a line that {document.name} has not: {line}")
sys.exit(1 if problems else 0)
