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
from typing import Any

from .. import memory

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
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        page = ""
        if wanted and os.path.exists(path):
            with open(path, encoding="utf-8") as source:
                page = source.read()
    text = "\n".join(one for one in done.stdout.splitlines() if path not in one).rstrip()
    return Output(text if done.returncode == 0 else f"{text}\n[exit status {done.returncode}]", page)


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython for %load_ext neap.integrations.jupyter."""
    shell.register_magic_function(neap_magic, "line", "neap")
