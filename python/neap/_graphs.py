"""Finds what autograd graphs keep: tensors saved for a backward pass, to which no Python object refers.

    history.append(loss)          4 bytes, whose holder the collector knows ...
      loss.grad_fn -> node -> node -> AccumulateGrad
                       |       |           |
                     saved   saved      parameter             ... and what else only its graph holds

Each saved tensor is counted once, for the first tensor that leads to it. Among tensors that a Python object holds, that is the
oldest one, so that a history of losses is shown to grow. Among variables of running functions, it is the newest one, so that it is
the loss and not an intermediate result. Memory that a Python object also holds (parameters, for example) is not counted: it is
found without a graph.

The graph is read and never run: if hooks have packed a saved tensor (for a checkpoint, or to put it on the host), it is not
unpacked. If another thread runs a backward pass meanwhile, which would free tensors while they are read here, nothing is counted.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Callable

_NODES = 500_000  # nodes of all graphs together: some seconds
_PREFIX = "_raw_saved_"
_SWITCH_SECONDS = 10.0  # no other thread interrupts the walk for this long, unless the walk itself releases Python's lock


def _in_backward(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.endswith(("torch/autograd/__init__.py", "torch/autograd/graph.py")):
            return True
        frame = frame.f_back
    return False


def _quiet(torch: Any) -> bool:
    """Returns whether no backward pass runs, as far as Python knows."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    if task is None or task() != -1 or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    own = threading.get_ident()
    return not any(_in_backward(frame) for thread, frame in sys._current_frames().items() if thread != own)


def tells(torch: Any) -> bool:
    """Returns whether this PyTorch shows a saved tensor without unpacking it (since 2.7)."""
    return hasattr(getattr(torch._C._autograd, "SavedTensor", None), "data")


def _packs(item: object) -> bool:
    """Returns whether this belongs to hooks that pack saved tensors, for a PyTorch that cannot show a saved tensor without them."""
    if isinstance(item, types.FunctionType):
        return "unpack" in item.__name__ and "<locals>" in item.__qualname__
    return type(item).__name__ == "_Holder" and type(item).__module__ == "torch.utils.checkpoint"


def _tensors_in(torch: Any, packed: Any) -> Iterator[Any]:
    for item in packed if isinstance(packed, (tuple, list)) else (packed,):
        if isinstance(item, torch.Tensor):
            yield item


class Walk:
    """Walks the graphs of one sample. `known`: keys of storages that Python objects hold; `key`: the key of a tensor's."""

    def __init__(
        self, torch: Any, device_types: Collection[str], known: Collection[Any], key: Callable[[Any], Any], objects: Iterable[Any]
    ) -> None:
        self._torch = torch
        self._types = device_types
        self._key = key
        self._known = set(known)
        self.counted: set[Any] = set()  # keys of the storages that are in the figures
        self._nodes: dict[int, Any] = {}  # kept, so that each stays the same object
        self._names: dict[type, list[str]] = {}
        self._tells = tells(torch)
        self._reads = self._tells or not any(_packs(item) for item in objects)

    def saved(self, roots: list[Any], oldest_first: bool) -> list[tuple[Any, int]]:
        """Returns each of these tensors, with the bytes saved in its graph and in no graph before it."""
        found: list[tuple[Any, int]] = []
        if not self._reads or not _quiet(self._torch):
            return found
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            for root in sorted(roots, key=lambda root: int(root.grad_fn._sequence_nr()), reverse=not oldest_first):
                if self._key(root) not in self.counted:
                    found.append((root, sum(self._bytes(node) for node in self._reached(root.grad_fn))))
        finally:
            sys.setswitchinterval(before)
        return found

    def _reached(self, node: Any) -> Iterator[Any]:
        """Yields the nodes of a graph that were not reached before."""
        todo = [node]
        while todo and len(self._nodes) < _NODES:
            node = todo.pop()
            if node is None or id(node) in self._nodes:
                continue
            self._nodes[id(node)] = node
            yield node
            todo += [following for following, _ in node.next_functions]

    def _bytes(self, node: Any) -> int:
        total = 0
        for tensor in self._of(node):
            key = self._key(tensor)
            if key[2] and key not in self._known and key not in self.counted and tensor.device.type in self._types:
                self.counted.add(key)
                total += key[2]
        return total

    def _of(self, node: Any) -> Iterator[Any]:
        """Yields the tensors that a node has saved; none if they were freed."""
        kind = type(node)
        if kind.__name__ == "AccumulateGrad":
            yield node.variable
            return
        if kind not in self._names:
            self._names[kind] = [name for name in dir(kind) if name.startswith(_PREFIX)]
        for name in self._names[kind]:
            try:
                if self._tells:
                    raw = getattr(node, name)
                    packed = [one.data for one in (raw if isinstance(raw, tuple) else (raw,))]
                else:
                    packed = getattr(node, "saved_tensors" if name == _PREFIX + "tensors" else name.replace("_raw", "", 1))
                for one in packed if isinstance(packed, (tuple, list)) else (packed,):
                    yield from _tensors_in(self._torch, one)
            except Exception:  # freed after a backward pass, or changed in place since
                continue
