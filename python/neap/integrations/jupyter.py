"""neap in a notebook:

    %load_ext neap.integrations.jupyter
    %neap                       the memory of this notebook's process, as a table
    %neap clear                 the same after giving cached memory back (neap.clear_gpu_memory)
    %neap analyze trace.pickle  any command of neap's: its text; of `analyze`, `compare` and `estimate` also the page

Summaries (neap.get_gpu_memory_stats() and others) show as tables by themselves.
"""

from __future__ import annotations

import html
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from typing import Any

from .. import memory
from .._notes import harmless
from ..agent import agent

_WAIT_S = 0.02
_PAGES = ("analyze", "compare", "estimate")


class Output:
    """The text that a command printed, and the page that it made; a notebook shows the page in a frame above the text."""

    def __init__(self, text: str, page: str = "") -> None:
        self.text = text
        self.page = page

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        frame = f'<iframe srcdoc="{html.escape(self.page)}" style="width:100%;height:640px;border:0"></iframe>' if self.page else ""
        return f"{frame}<pre>{html.escape(self.text)}</pre>"


def neap_magic(line: str) -> Any:
    """The line magic %neap. Returns the object for the notebook to show: a MemoryStats, a ClearResult, or an Output."""
    words = shlex.split(line)
    if not words:
        return memory.get_gpu_memory_stats()
    if words == ["clear"]:
        return memory.clear_gpu_memory()
    return _command(words)


def _command(words: list[str]) -> Output:
    """Runs a command of neap, and returns what it prints on both streams."""
    program = os.environ.get("NEAP") or shutil.which("neap")
    if not program:
        return Output("neap: the command is not on PATH: install it (pip install neap, or README.md of its sources)")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "page.html")
        wanted = ["--html", path] if words[0] in _PAGES and "--html" not in words and "--json" not in words else []
        command = [program, words[0], *wanted, *words[1:]]
        status, printed = _run(command, os.path.join(folder, "output"))
        page = ""
        if wanted and os.path.exists(path):
            with open(path, encoding="utf-8") as source:
                page = source.read()
    text = "\n".join(one for one in printed.splitlines() if path not in one).rstrip()
    return Output(text if status == 0 else f"{text}\n[exit status {status}]", page)


def _run(command: list[str], path: str) -> tuple[int, str]:
    """Runs it with its output in that file. Returns its exit status and its output. It sees this process's memory as it is now, and
    its requests to this process (`%neap reset`) are served: the main thread does that, between two of these waits."""
    harmless("figures")(agent.publish)()
    with open(path, "w+", encoding="utf-8", errors="replace") as output:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process:
            while process.poll() is None:
                time.sleep(_WAIT_S)
        output.seek(0)
        return process.returncode, output.read()


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython for %load_ext neap.integrations.jupyter."""
    shell.register_magic_function(neap_magic, "line", "neap")
