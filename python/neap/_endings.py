"""Ends a program inside tools that take SystemExit for a failure. In a notebook's kernel it would fail the cell, and with it
`jupyter nbconvert` or papermill: so the cell counts as done, and later cells run nothing. A worker of Ray Train reports everything
that its function raises: so SystemExit counts as the function's return.
"""

from __future__ import annotations

import sys
from typing import Any


def _shell() -> Any:
    """Returns IPython's shell if this process is a kernel, else None."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell if hasattr(shell, "kernel") else None


def end_cells() -> None:
    """Call it once, before SystemExit is raised in a cell. Does nothing if this process is no kernel."""
    shell = _shell()
    if shell is None:
        return

    def succeed(result: Any) -> None:
        if isinstance(result.error_in_exec, SystemExit):
            result.error_in_exec = None

    shell.events.register("post_run_cell", succeed)
    shell.input_transformers_cleanup.append(lambda lines: [])


_RAY = "ray.train.v2._internal.execution.worker_group.thread_runner"


def end_worker() -> None:
    """Call it once, before SystemExit is raised in a worker's function. Does nothing if this process is no worker of Ray Train."""
    runner = sys.modules.get(_RAY)
    if runner is None:
        return
    describe = runner.construct_user_exception_with_traceback

    def failure(error: BaseException, *arguments: Any, **named: Any) -> Any:
        return None if isinstance(error, SystemExit) and not error.code else describe(error, *arguments, **named)

    runner.construct_user_exception_with_traceback = failure  # type: ignore[attr-defined]


__all__ = ["end_cells", "end_worker"]
