"""Notes neap's own failures inside a program: they are not raised there, but shown by commands that inspect the process.

    a hook fails -> note("optimizer steps", error) -> `neap info` (while attached), the end of `neap run`, neap.describe()

One note for each part and kind of error, however often it fails, and at most a fixed number of parts. May be called from any thread
and from a pending call that interrupted it: no lock, only single operations on a dictionary.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Callable, TypeVar

from . import _library

_MOST = 16
_ROOM = 190  # the size of neap_attach_note
_LINE = 400

_found: dict[tuple[str, str], str] = {}
_F = TypeVar("_F", bound=Callable[..., Any])


def note(part: str, error: BaseException) -> None:
    """Remembers and shows that this part failed. Never raises; keeps the text, not the error."""
    tell(part, type(error).__name__, error)


def tell(part: str, kind: str, more: object = "") -> None:
    """The same for anything else that a user should know: a text in place of a kind of error. Never raises."""
    try:
        if (part, kind) in _found or len(_found) >= _MOST:
            return
        text = " ".join(": ".join(filter(None, (part, kind, str(more)))).split())[:_LINE]
        if _found.setdefault((part, kind), text) is not text:
            return
        show()
        folder = os.environ.get("NEAP_RUN_DIR")
        if folder and os.environ.get("NEAP_ATTACH") == "1":
            with open(os.path.join(folder, f"note.{os.getpid()}"), "a", encoding="utf-8", errors="replace") as file:
                file.write(text + "\n")
    except Exception:  # there is nowhere left to report it
        pass


def show() -> None:
    """Writes the notes to the page that `neap info` reads; does nothing while the process is not attached."""
    if _found:
        _library.library().neap_attach_note(text().encode("utf-8", "replace")[:_ROOM])


def text() -> str:
    """Returns all notes in one line; "" for none."""
    return "; ".join(list(_found.values()))


def harmless(part: str) -> Callable[[_F], _F]:
    """A decorator for functions that must not disturb the program: an exception becomes a note, and the result None."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            except Exception as error:
                note(part, error)
                return None

        return wrapped  # type: ignore[return-value]

    return decorate
