"""Moves tensors and models to the host and back, and saves checkpoints without a spike of device memory."""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import ctypes
import dataclasses
import os
import pickle
from collections.abc import Iterator
from typing import Any, Callable, Union

from . import _efficient, _library, _sources, memory

_Path = Union[str, "os.PathLike[str]"]


def _torch() -> Any:
    torch = _sources.torch_module()
    if torch is None:
        raise RuntimeError("neap: torch is not imported in this process")
    return torch


class _Mover:
    """Converts each tensor in a value once, so that sharing stays: of a tensor in two places, and of two tensors that are the same
    part of one storage (tied weights in a state_dict)."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert
        self._tensor = _torch().Tensor
        self._memo: dict[Any, tuple[Any, Any]] = {}  # keeps the value, so that its id and its storage are not reused

    def move(self, value: Any) -> Any:
        """Returns the converted value; the same object if it holds no tensor."""
        key = self._key(value)
        if key not in self._memo:
            self._memo[key] = (value, value)  # for a container that holds itself
            self._memo[key] = (value, self._moved(value))
        return self._memo[key][1]

    def _key(self, value: Any) -> Any:
        if isinstance(value, self._tensor) and value.layout == _torch().strided and value.numel():
            # A lazily conjugated or negated view differs from its base only in a bit.
            reading = (value.dtype, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg())
            return (value.data_ptr(), value.device, *reading) if value.data_ptr() else id(value)
        return id(value)

    def _moved(self, value: Any) -> Any:
        if isinstance(value, self._tensor):
            return self._convert(value)
        if isinstance(value, collections.abc.Mapping):
            moved = {k: self.move(v) for k, v in value.items()}
            return value if all(moved[k] is value[k] for k in moved) else self._mapping(value, moved)
        if isinstance(value, (list, tuple, set, frozenset)):
            parts = [self.move(v) for v in value]
            if all(new is old for new, old in zip(parts, value)):
                return value
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            before = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
            after = {name: self.move(part) for name, part in before.items()}
            return value if all(after[name] is before[name] for name in after) else dataclasses.replace(value, **after)
        return value

    def _mapping(self, value: Any, moved: dict[Any, Any]) -> Any:
        if type(value) is dict:
            return moved
        try:
            result = copy.copy(value)  # with its other attributes: a defaultdict's factory, a state_dict's _metadata
            for key, part in moved.items():
                result[key] = part
            return result
        except TypeError:  # the copy cannot be changed
            return moved


def safe_tensor_to_cpu(value: Any) -> Any:
    """Returns the same value with every tensor in it detached and on the CPU, also in nested mappings, lists, tuples, sets, named
    tuples and dataclasses. Shared tensors stay shared. A container without tensors is returned as it is, and so are other objects
    (a module is not searched). A tensor that is on the CPU already is detached, but not copied. Raises RuntimeError if torch was
    not imported. The device's memory is not given back as long as your own references hold it.

    >>> import torch
    >>> neap.safe_tensor_to_cpu({"loss": [torch.ones(1, requires_grad=True) * 2]})
    {'loss': [tensor([2.])]}
    """
    return _Mover(lambda tensor: tensor.detach().to("cpu")).move(value)


class Atomic:
    """A file that appears whole or not at all: libneap writes it beside the path, flushes it, renames it and flushes the
    folder."""

    def __init__(self, path: _Path) -> None:
        self._checkpoint = ctypes.c_void_p()
        self.bytes = 0
        _library.call("neap_checkpoint_begin", os.fsencode(path), ctypes.byref(self._checkpoint))

    def write(self, data: Any) -> int:
        """Called by torch.save."""
        view = memoryview(data).cast("B")
        raw = bytes(view) if view.readonly else view
        pointer: Any = raw if isinstance(raw, bytes) else (ctypes.c_char * len(raw)).from_buffer(raw)
        _library.call("neap_checkpoint_write", self._checkpoint, pointer, len(view))
        self.bytes += len(view)
        return len(view)

    def flush(self) -> None:
        """Does nothing: commit flushes."""

    def commit(self) -> None:
        """Publishes the file."""
        checkpoint, self._checkpoint = self._checkpoint, ctypes.c_void_p()
        _library.call("neap_checkpoint_commit", checkpoint)

    def abort(self) -> None:
        """Drops the new file; the old one stays."""
        _library.library().neap_checkpoint_abort(self._checkpoint)
        self._checkpoint = ctypes.c_void_p()


@dataclasses.dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint on disk."""

    path: str
    bytes: int


def save_checkpoint(path: _Path, model: Any = None, optimizer: Any = None, **more: Any) -> SavedCheckpoint:
    """Writes {"model": state_dict, "optimizer": state_dict, **more} with torch.save: a crash or a full disk leaves the old file,
    and device memory does not rise: tensors are copied to the host one after another (which takes their size in host memory), and
    nothing is gathered on the device first. Tied weights are written once. `model` and `optimizer`: any object with a state_dict,
    or the state itself; None: left out. Load the file with load_checkpoint, or torch.load(path). Raises NeapError for errors of the
    file system, RuntimeError if torch was not imported, and errors of pickling; the old file then stays.

    >>> import torch
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.pt")
    >>> model = torch.nn.Linear(8, 4)
    >>> neap.save_checkpoint(path, model, epoch=3).bytes > 0
    True
    >>> neap.load_checkpoint(path, model).more["epoch"]
    3
    """
    torch = _torch()
    if model is None and optimizer is None and not more:
        raise ValueError("save_checkpoint: neither a model, an optimizer nor anything else was given")
    state = dict(more)
    for name, part in (("model", model), ("optimizer", optimizer)):
        if part is not None:
            state[name] = part.state_dict() if hasattr(part, "state_dict") else part
    file = Atomic(path)
    try:
        with torch.no_grad():
            torch.save(safe_tensor_to_cpu(state), file)
        file.commit()
    except BaseException:
        file.abort()
        raise
    return SavedCheckpoint(os.fspath(path), file.bytes)


@dataclasses.dataclass(frozen=True, repr=False)
class LoadedCheckpoint:
    """The contents of a checkpoint, and the entries that do not fit the model."""

    path: str
    more: dict[str, Any]  # besides the model and the optimizer: epoch, step, ...
    missing: tuple[str, ...]  # in the model, but not in the file
    unexpected: tuple[str, ...]  # in the file, but not in the model
    mismatched: tuple[str, ...]  # of another shape: "head.weight: [10, 8] in the file, [12, 8] in the model"

    def __repr__(self) -> str:
        counts = (("missing", self.missing), ("unexpected", self.unexpected), ("mismatched", self.mismatched))
        odd = [f"{len(names)} {what}" for what, names in counts if names]
        return f"<LoadedCheckpoint {self.path}: {', '.join(odd) or 'all of the model'}; also {', '.join(self.more) or 'nothing'}>"


_PREFIXES = ("module.", "_orig_mod.")  # of DistributedDataParallel, and of torch.compile


def _bare(state: Any) -> dict[str, Any]:
    """Returns a model's state under its author's names."""
    found = dict(state)
    for prefix in _PREFIXES * 2:
        if found and all(str(name).startswith(prefix) for name in found):
            found = {name[len(prefix) :]: value for name, value in found.items()}
    return found


def _load_model(path: str, model: Any, found: dict[str, Any], strict: bool) -> tuple[tuple[str, ...], ...]:
    own = model.state_dict()
    missing = tuple(name for name in own if name not in found)
    unexpected = tuple(name for name in found if name not in own)
    shapes = {n: (list(found[n].shape), list(own[n].shape)) for n in own if n in found and hasattr(own[n], "shape")}
    mismatched = tuple(f"{n}: {file} in the file, {mine} in the model" for n, (file, mine) in shapes.items() if file != mine)
    if strict and (missing or unexpected or mismatched):
        kinds = (("missing in the file", missing), ("unknown to the model", unexpected), ("of another shape", mismatched))
        differences = [f"{len(names)} {what} ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})" for what, names in kinds if names]
        raise ValueError(f"{path} does not fit the model: {'; '.join(differences)}. strict=False loads what fits")
    wrong = {text.split(": ", 1)[0] for text in mismatched}
    model.load_state_dict({n: v for n, v in found.items() if n in own and n not in wrong}, strict=False)
    return missing, unexpected, mismatched


def load_checkpoint(path: _Path, model: Any = None, optimizer: Any = None, *, strict: bool = True) -> LoadedCheckpoint:
    """Loads a file of save_checkpoint into a model and an optimizer, each on its own device; None: left out. It is safe: only
    tensors and plain values are read (torch.load with weights_only), and no code of the file runs. The file is read to the host, so
    that device memory does not rise. Ignores the prefixes that DistributedDataParallel or torch.compile put before a model's names.

    Raises ValueError, and leaves the model as it was, if the file has no such part, or does not fit the model: the text lists
    entries that are missing, unknown or of another shape. With `strict` False, loads the entries that fit, and lists the others in
    the result. Also raises ValueError if the file holds other objects than tensors and plain values; FileNotFoundError; and
    torch.load's error for a torn file.

    >>> import torch
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.pt")
    >>> saved = neap.save_checkpoint(path, torch.nn.Linear(8, 4))
    >>> neap.load_checkpoint(path, torch.nn.Linear(8, 2), strict=False).mismatched
    ('weight: [4, 8] in the file, [2, 8] in the model', 'bias: [4] in the file, [2] in the model')
    """
    torch = _torch()
    name = os.fspath(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        what = str(error).split("\n", 1)[0]
        what = f"holds more than tensors and plain values, or is not a checkpoint: nothing of it was loaded: {what}"
        raise ValueError(f"{name} {what}") from error
    if not isinstance(state, dict):
        raise ValueError(f"{name} holds a {type(state).__name__}: expected what save_checkpoint writes, a dict")
    for part, wanted in (("model", model), ("optimizer", optimizer)):
        if wanted is not None and part not in state:
            raise ValueError(f"{name} has no {part!r}; it has {', '.join(map(str, list(state)[:10])) or 'nothing'}")
    odd: tuple[tuple[str, ...], ...] = ((), (), ())
    if model is not None:
        odd = _load_model(name, _efficient.unwrapped(model, torch), _bare(state["model"]), strict)
    if optimizer is not None:
        optimizer.load_state_dict(state["optimizer"])
    return LoadedCheckpoint(name, {k: v for k, v in state.items() if k not in ("model", "optimizer")}, *odd)


def _optimizer_tensors_to(optimizer: Any, device_of: Any) -> None:
    for parameter, state in optimizer.state.items():
        for key, value in list(state.items()):
            if _torch().is_tensor(value) and value.device.type != "cpu":
                state[key] = value.to(device_of(parameter))


def cleanup_model_memory(model: Any, optimizer: Any = None) -> memory.ClearResult:
    """Frees the device memory of a model before a switch to another: drops gradients, moves parameters, buffers and optimizer state
    to the host, then clears. The model and the optimizer stay usable (on the CPU); drop your references to free their host memory,
    too. Raises RuntimeError if torch was not imported.

    >>> import torch
    >>> model = torch.nn.Linear(8, 4)
    >>> freed = neap.cleanup_model_memory(model).freed         # bytes; none on the CPU
    """
    if optimizer is not None:
        optimizer.zero_grad(set_to_none=True)
        _optimizer_tensors_to(optimizer, lambda _: "cpu")
    for parameter in model.parameters():
        parameter.grad = None
    model.to("cpu")
    return memory.clear_and_log()


@contextlib.contextmanager
def offloaded(model: Any, optimizer: Any = None) -> Iterator[Any]:
    """Within this context, the model, its gradients and the optimizer's state are on the host, and their device memory is given
    back. Afterwards each tensor is back in its place, even if an exception passes through. The parameters stay the same objects.
    Needs the same number of bytes of host memory. If the device has not enough memory for them at the end, raises PyTorch's
    out-of-memory error, and everything stays on the host, gradients included. Use it from one thread, and not while the model is
    used.

    >>> import torch
    >>> model = torch.nn.Linear(8, 4)
    >>> with neap.offloaded(model):
    ...     next(model.parameters()).device
    device(type='cpu')
    """
    torch = _torch()
    places: list[tuple[Any, Any]] = []
    parameters = list(model.parameters())
    gradients = [parameter.grad for parameter in parameters]
    inside = False
    states = [value for state in optimizer.state.values() for value in state.values()] if optimizer is not None else []
    try:
        with torch.no_grad():
            _give(parameters, [None] * len(parameters))  # a gradient must be on its parameter's device
            for tensor in (*parameters, *gradients, *model.buffers(), *filter(torch.is_tensor, states)):
                if tensor is not None and tensor.device.type != "cpu":
                    device = tensor.device
                    tensor.data = tensor.data.to("cpu")
                    places.append((tensor, device))
            _give(parameters, gradients)
        inside = True
        memory.clear_and_log()
        yield model
    finally:
        with torch.no_grad():
            if inside:  # the program may have made new ones
                gradients = [parameter.grad for parameter in parameters]
            known = {id(tensor) for tensor, _ in places}
            places += [(gradient, device) for gradient, device in zip(gradients, _devices(parameters, places))
                       if gradient is not None and id(gradient) not in known]
            _give(parameters, [None] * len(parameters))
            try:
                _move_back(places)
            finally:
                _give(parameters, gradients)


def _devices(parameters: list[Any], places: list[tuple[Any, Any]]) -> list[Any]:
    """Returns the original device of each parameter, in order."""
    before = {id(tensor): device for tensor, device in places}
    return [before.get(id(parameter), parameter.device) for parameter in parameters]


def _move_back(places: list[tuple[Any, Any]]) -> None:
    """Moves each tensor to its device; if one does not fit, moves all of them to the host."""
    try:
        for tensor, device in places:
            tensor.data = tensor.data.to(device)
    except BaseException:
        for tensor, _ in places:
            tensor.data = tensor.data.to("cpu")
        raise


def _give(parameters: list[Any], gradients: list[Any]) -> None:
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient
