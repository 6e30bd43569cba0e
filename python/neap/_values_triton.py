"""Watches kernels that the program wrote in Triton, or for torch.cuda.jiterator. They are not computed: the values that they write
are unknown, and the report names the kernels. The launches are blind: otherwise the driver's launch would count each argument of a
kernel as written (values_launch.cpp).

Triton's own text of a kernel (ttir) shows which tensors it reads and writes: a load's or a store's address comes from an argument.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from . import _awaited, _notes, _races, _twins

_RESULT = re.compile(r"^\s*%(\w+)(?::\d+)? = (.*)")
_NAME = re.compile(r"%(\w+)")
_STORES = re.compile(r"\btt\.(?:store|atomic_\w+) (.*)")
_LOADS = re.compile(r"\btt\.(?:load|atomic_\w+) (.*)")
_OPAQUE = ("tt.call", "descriptor_store", "descriptor_reduce")  # they write to places that no argument's name shows

failed: dict[str, str] = {}  # kernels, and why


def watch(torch: Any, is_on: Callable[[], bool]) -> None:
    """Call it once; it does not import Triton."""

    def change(kind: Any) -> None:
        run = kind.run

        @functools.wraps(run)
        def launched(self: Any, *arguments: Any, **named: Any) -> Any:
            if not is_on():
                return run(self, *arguments, **named)
            kernel = _blind(torch, lambda: run(self, *arguments, **named))
            if not named.get("warmup") and not _is_pytorchs(self):
                _forget(torch, self, kernel, arguments, named)
            return kernel

        kind.run = launched

    _awaited.change("triton.runtime.jit", "JITFunction", _notes.harmless("kernels in Triton")(change))
    _watch_jiterator(torch, is_on)


def _watch_jiterator(torch: Any, is_on: Callable[[], bool]) -> None:
    launch = getattr(torch._C, "_cuda_jiterator_compile_and_launch_kernel", None)
    if launch is None:
        return

    @functools.wraps(launch)
    def launched(code: str, name: str, *more: Any) -> Any:
        if not is_on():
            return launch(code, name, *more)
        results = _blind(torch, lambda: launch(code, name, *more))
        failed.setdefault(name, "a kernel for jiterator")
        for one in [results] if isinstance(results, torch.Tensor) else results:
            _twins.helpers_of(torch).mark_unknown(one.detach(), False)
        return results

    torch._C._cuda_jiterator_compile_and_launch_kernel = launched


def _is_pytorchs(function: Any) -> bool:
    """Returns whether an operation of PyTorch's launches it (since 2.12: bmm). The values of those are computed."""
    return str(getattr(function.fn, "__module__", "")).startswith("torch._native.")


def _blind(torch: Any, call: Callable[[], Any]) -> Any:
    helpers = _twins.helpers_of(torch)
    helpers.blind(True)
    try:
        return call()
    finally:
        helpers.blind(False)


@_notes.harmless("values of kernels in Triton")
def _forget(torch: Any, function: Any, kernel: Any, arguments: Any, named: Any) -> None:
    given = {**dict(zip(function.arg_names, arguments)), **named}
    tensors = [given[name] for name in function.arg_names if isinstance(given.get(name), torch.Tensor)]
    helpers = _twins.helpers_of(torch)
    _races.kernel(function.fn.__name__, tensors)
    failed.setdefault(function.fn.__name__, "a kernel in Triton")
    read, written = _uses(kernel.asm["ttir"], len(tensors))
    for at in written:
        helpers.mark_unknown(tensors[at].detach(), at in read)


@functools.lru_cache(maxsize=256)
def _uses(text: str, count: int) -> tuple[set[int], set[int]]:
    """Returns, by number, the tensors that a kernel reads and those that it writes; all of them, if that is not clear."""
    everything = set(range(count))
    head = next((line for line in text.splitlines() if "tt.func public" in line), "")
    pointers = re.findall(r"%(\w+): !tt\.ptr", head)
    comes_from: dict[str, set[str]] = {}
    for line in text.splitlines():
        found = _RESULT.match(line)
        if found and "tt.load" not in line:  # a loaded value is no address of an argument
            comes_from.setdefault(found[1], set()).update(_NAME.findall(found[2]))
        for inner, outer in re.findall(r"%(\w+) = %(\w+)", line):  # in a loop
            comes_from.setdefault(inner, set()).add(outer)

    def arguments(operands: str) -> set[int]:
        reached: set[str] = set()
        open_names = _NAME.findall(operands)[:1]
        while open_names:
            name = open_names.pop()
            if name not in reached:
                reached.add(name)
                open_names += comes_from.get(name, ())
        found = {at for at, name in enumerate(pointers) if name in reached}
        return found or everything

    if len(pointers) != count or any(part in text for part in _OPAQUE):
        return everything, everything
    read = [arguments(operands) for operands in _LOADS.findall(text)]
    written = [arguments(operands) for operands in _STORES.findall(text)]
    return set().union(*read), set().union(*written)


__all__ = ["failed", "watch"]
