"""Tensors to the host and back, models put away, checkpoints saved without a spike of device memory."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import os
from typing import Any, Iterator, Optional, Union

from . import _library, _sources, memory

_Path = Union[str, "os.PathLike[str]"]


def _torch() -> Any:
    torch = _sources.torch_module()
    if torch is None:
        raise RuntimeError("neap: torch is not imported in this process")
    return torch


def _move(value: Any, convert: Any, memo: dict[int, Any]) -> Any:
    """`value` with each tensor converted, once per tensor, so that what was shared is shared."""
    torch = _torch()
    key = id(value)
    if key in memo:
        return memo[key][1]
    result: Any
    if isinstance(value, torch.Tensor):
        result = convert(value)
    elif isinstance(value, dict):
        moved = {k: _move(v, convert, memo) for k, v in value.items()}
        try:
            result = type(value)(moved) if type(value) is not dict else moved
        except TypeError:  # a dict of its own mind (a defaultdict, ...)
            result = value.copy()
            result.update(moved)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        result = type(value)(*(_move(v, convert, memo) for v in value))
    elif isinstance(value, (list, tuple, set, frozenset)):
        result = type(value)(_move(v, convert, memo) for v in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _move(getattr(value, f.name), convert, memo) for f in dataclasses.fields(value) if f.init}
        result = dataclasses.replace(value, **fields)
    else:
        return value
    memo[key] = (value, result)  # the value too: its id must stay its own
    return result


def safe_tensor_to_cpu(value: Any) -> Any:
    """The same value with every tensor in it on the CPU: detached, in nested dicts, lists, tuples, sets, named tuples and
    dataclasses too. What was shared stays shared; what holds no tensor is returned as it is. A tensor that is on the CPU
    already is detached and not copied."""

    def convert(tensor: Any) -> Any:
        return tensor.detach().to("cpu")

    return _move(value, convert, {})


class _Atomic:
    """A file that appears whole or not at all: libneap writes it beside the path, flushes it, renames it and flushes the
    folder."""

    def __init__(self, path: _Path) -> None:
        self._checkpoint = ctypes.c_void_p()
        self.bytes = 0
        _library.call("neap_checkpoint_begin", os.fsencode(path), ctypes.byref(self._checkpoint))

    def write(self, data: Any) -> int:
        """What torch.save calls."""
        view = memoryview(data).cast("B")
        raw = bytes(view) if view.readonly else view
        pointer: Any = raw if isinstance(raw, bytes) else (ctypes.c_char * len(raw)).from_buffer(raw)
        _library.call("neap_checkpoint_write", self._checkpoint, pointer, len(view))
        self.bytes += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing to do before the commit."""

    def commit(self) -> None:
        """Makes it the file."""
        checkpoint, self._checkpoint = self._checkpoint, ctypes.c_void_p()
        _library.call("neap_checkpoint_commit", checkpoint)

    def abort(self) -> None:
        """Drops it; the old file stays."""
        _library.library().neap_checkpoint_abort(self._checkpoint)
        self._checkpoint = ctypes.c_void_p()


@dataclasses.dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint on disk."""

    path: str
    bytes: int


def save_checkpoint(path: _Path, model: Any = None, optimizer: Any = None, **more: Any) -> SavedCheckpoint:
    """Writes {"model": state_dict, "optimizer": state_dict, **more} with torch.save: a crash or a full disk leaves the old
    file, and device memory does not rise: tensors are copied to the host one after another, and nothing is gathered on the
    device first. Load it with torch.load(path)."""
    torch = _torch()
    state = dict(more)
    for name, part in (("model", model), ("optimizer", optimizer)):
        if part is not None:
            state[name] = part.state_dict() if hasattr(part, "state_dict") else part
    file = _Atomic(path)
    try:
        with torch.no_grad():
            torch.save(safe_tensor_to_cpu(state), file)
        file.commit()
    except BaseException:
        file.abort()
        raise
    return SavedCheckpoint(os.fspath(path), file.bytes)


def _optimizer_tensors_to(optimizer: Any, device_of: Any) -> None:
    for parameter, state in optimizer.state.items():
        for key, value in list(state.items()):
            if _torch().is_tensor(value) and value.device.type != "cpu":
                state[key] = value.to(device_of(parameter))


def cleanup_model_memory(model: Any, optimizer: Any = None) -> memory.ClearResult:
    """Lets go of a model when switching to another: gradients dropped, parameters, buffers and optimizer state moved to the
    host, then a clear. The model and the optimizer stay usable (on the CPU); drop your references to be rid of them."""
    if optimizer is not None:
        optimizer.zero_grad(set_to_none=True)
        _optimizer_tensors_to(optimizer, lambda _: "cpu")
    for parameter in model.parameters():
        parameter.grad = None
    model.to("cpu")
    return memory.clear_gpu_memory()


@contextlib.contextmanager
def offloaded(model: Any, optimizer: Any = None) -> Iterator[Any]:
    """Within it the model, its gradients and the optimizer's state are on the host and their device memory is given back;
    afterwards each tensor is where it was, also when an exception passes through. The parameters stay the same objects."""
    torch = _torch()
    places: list[tuple[Any, Any]] = []

    def put_away(tensor: Optional[Any]) -> None:
        if tensor is not None and tensor.device.type != "cpu":
            places.append((tensor, tensor.device))
            tensor.data = tensor.data.to("cpu")

    with torch.no_grad():
        for parameter in model.parameters():
            put_away(parameter)
            grad, parameter.grad = parameter.grad, None  # a gradient must be where its parameter is
            if grad is not None:
                put_away(grad)
                parameter.grad = grad
        for buffer in model.buffers():
            put_away(buffer)
        for state in optimizer.state.values() if optimizer is not None else ():
            for value in state.values():
                if torch.is_tensor(value):
                    put_away(value)
    gc.collect()
    memory.clear_gpu_memory()
    try:
        yield model
    finally:
        with torch.no_grad():
            for tensor, device in places:
                tensor.data = tensor.data.to(device)
