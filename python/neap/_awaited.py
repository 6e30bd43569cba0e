"""Changes classes of other libraries before the program sees them. Imports nothing for that: changes a class when the program first
reads it from its module.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

_Change = Callable[[Any], Any]
_changes: dict[str, tuple[str, _Change]] = {}  # by module: the class to change


def change(module: str, name: str, make: _Change) -> None:
    """Calls `make` with the class `name` of `module`. At most one class for each module; `make` must not raise."""
    if not _changes:
        sys.meta_path.insert(0, _Finder())
    _changes[module] = name, make
    imported = sys.modules.get(module)
    if imported is not None:
        _await(imported)


def _await(module: types.ModuleType) -> None:
    """The module is imported, or is just importing torch. Waits until the program reads the class from it."""
    wanted, make = _changes[module.__name__]

    plain: Any = type(module)

    class Awaited(plain):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            value = plain.__getattribute__(self, name)
            if name == wanted:
                self.__class__ = plain
                make(value)
            return value

    module.__class__ = Awaited


class _Finder:
    """Finds these modules in the ordinary way."""

    busy = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Python's."""
        if name not in _changes or self.busy:
            return None
        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        except Exception:  # the next finder raises it again
            return None
        finally:
            self.busy = False
        loader = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def run_and_await(module: Any) -> None:
                run(module)
                _await(module)

            loader.exec_module = run_and_await  # type: ignore[method-assign]
        return spec


__all__ = ["change"]
