"""Finds and loads libneap. Loading it creates no CUDA context, starts no thread and attaches nothing.

It searches, in this order: NEAP_LIBRARY, beside the package, the build tree that holds the package, the library folders of the
prefix that holds the package, and the dynamic linker's folders.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any

from . import _abi

NAME = "libneap.so.0"


class NeapError(RuntimeError):
    """A call of libneap failed. `status` has the kind of failure, the text what was attempted and on what.

    >>> try:
    ...     neap.restore_checkpoints("/nowhere")
    ... except neap.NeapError as error:
    ...     error.status == neap.Status.ENOENT
    True
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        try:
            self.status: _abi.Status | int = _abi.Status(status)
        except ValueError:  # from a newer library
            self.status = status


def _candidates() -> list[str]:
    here = pathlib.Path(__file__).resolve().parent
    asked = os.environ.get("NEAP_LIBRARY")
    if asked:
        return [asked]
    paths = [here / NAME, here.parent.parent / "src" / NAME]
    installed = here / "libraries"  # the path from here to their folder
    if installed.is_file():
        paths.append(here / installed.read_text().strip() / NAME)
    return [str(path) for path in paths if path.is_file()] + [NAME]


def _open() -> ctypes.CDLL:
    failures = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            for name, (result, arguments) in _abi.FUNCTIONS.items():
                function = getattr(library, name)
                function.restype = result
                function.argtypes = list(arguments)
            return library
        except (OSError, AttributeError) as error:
            failures.append(f"{path}: {error}")
    raise ImportError(
        "neap: its library could not be loaded (" + "; ".join(failures) + "). Build neap, or name the library in NEAP_LIBRARY"
    )


_loaded: ctypes.CDLL | None = None


def library() -> Any:
    """Returns libneap, loaded once; each function of _abi.FUNCTIONS is an attribute."""
    global _loaded
    if _loaded is None:
        _loaded = _open()
    return _loaded


def call(name: str, *arguments: Any) -> None:
    """Calls a function whose last argument is a struct neap_error *. Raises NeapError if it fails."""
    error = _abi.Error()
    status = getattr(library(), name)(*arguments, ctypes.byref(error))
    if status != _abi.Status.OK:
        message = error.message.decode("utf-8", "replace") or library().neap_status_name(status).decode()
        raise NeapError(status, message)


def version() -> str:
    """Returns libneap's version. Raises ImportError if libneap cannot be loaded.

    >>> neap.version() == neap.__version__
    True
    """
    text: bytes = library().neap_version()
    return text.decode()
