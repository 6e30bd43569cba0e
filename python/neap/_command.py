"""The `neap` of a wheel: starts the command, which lies beside the modules, if its libraries were there when the wheel was
built."""

from __future__ import annotations

import os
import pathlib
import sys

_MISSING = "@missing@"  # Debian packages that were missing when this was built


def main() -> int:
    """Becomes the command."""
    command = pathlib.Path(__file__).resolve().parent / "neap"
    if not command.is_file():
        print(
            f"neap: only the Python package is installed here: when it was built, what the command needs was missing. Install "
            f"the Debian packages {_MISSING}, and then neap again (pip install --force-reinstall)",
            file=sys.stderr,
        )
        return 69
    os.execv(command, [sys.argv[0], *sys.argv[1:]])
