"""The end of a program that is a notebook. A kernel does not end by SystemExit: the cell fails, and with it `jupyter nbconvert` or
papermill. So the cell counts as done, and the later ones run nothing."""

from __future__ import annotations

import sys
from typing import Any


def _shell() -> Any:
    """IPython's, where this process is a kernel; else None."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell if hasattr(shell, "kernel") else None


def end_cells() -> None:
    """To be called once, before SystemExit is raised in a cell. Nothing where this process is no kernel."""
    shell = _shell()
    if shell is None:
        return

    def succeed(result: Any) -> None:
        if isinstance(result.error_in_exec, SystemExit):
            result.error_in_exec = None

    shell.events.register("post_run_cell", succeed)
    shell.input_transformers_cleanup.append(lambda lines: [])


__all__ = ["end_cells"]
