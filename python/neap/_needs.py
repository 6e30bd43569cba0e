"""Computes how much memory a model needs whatever its batch: parameters, gradients, optimizer state, including those not allocated
yet.

    parameters + gradients + state          in every step; if the device has less, no smaller micro-batch helps
    update                                  what an update also takes, for a moment: PyTorch's foreach kernels make
                                            temporaries of all parameters at once
"""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
from collections.abc import Iterable
from typing import Any

from . import _limits, _microbatch, _units
from ._abi import OomPhase

# State, in copies of the parameters, by the name of the optimizer's class or one of its base classes.
_COPIES = {
    "ASGD": 1.0, "Adadelta": 2.0, "Adafactor": 0.0, "Adagrad": 1.0, "Adam": 2.0, "Adam8bit": 0.5, "AdamW": 2.0, "AdamW8bit": 0.5,
    "Adamax": 2.0, "Lion": 1.0, "Lion8bit": 0.25, "Muon": 1.0, "NAdam": 2.0, "RAdam": 2.0, "RMSprop": 1.0, "Rprop": 2.0, "SGD": 0.0,
    "SparseAdam": 2.0,
}  # fmt: skip
# Options that add a copy if they are on.
_MORE = {"amsgrad", "centered", "momentum"}
_FOLDER = os.path.dirname(__file__)
_GRAPH = 1000  # nodes of a graph that are followed from a loss to a parameter, at most
_IN_PLACE = {"Adafactor", "Lion", "Muon", "SGD"}  # their foreach kernels make no copy


@dataclasses.dataclass(frozen=True)
class Needs:
    """The needs, in bytes."""

    parameters: int
    gradients: int
    state: int | None  # None: the optimizer is unknown
    update: int = 0

    @property
    def alone(self) -> int:
        """The part that does not depend on the batch; a lower bound if the state is unknown."""
        return self.parameters + self.gradients + (self.state or 0)

    def __str__(self) -> str:
        state = "unknown" if self.state is None else _units.size(self.state)
        return f"parameters {_units.size(self.parameters)}, gradients {_units.size(self.gradients)}, optimizer state {state}"


def _bytes(tensors: Iterable[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _copies(optimizer: Any, group: dict[str, Any]) -> float | None:
    """Returns the copies by the optimizer's name and options."""
    for kind in type(optimizer).__mro__:
        if kind.__name__ in _COPIES:
            return _COPIES[kind.__name__] + sum(1 for option in _MORE if group.get(option))
    return None


def _measured(torch: Any, optimizer: Any) -> float | None:
    """Returns the copies by the state that exists already; the newest may lack a part."""
    states = [(p, s) for p, s in list(optimizer.state.items()) if torch.is_tensor(p) and s]
    states = states[:-1] if len(states) > 1 else []
    parameters = _bytes(p for p, _ in states)
    # The state's count of steps is a scalar.
    held = _bytes(v for _, s in states for v in s.values() if torch.is_tensor(v) and v.dim() > 0)
    return held / parameters if parameters else None


def _state(torch: Any, optimizer: Any, group: dict[str, Any], size: int) -> int | None:
    copies = _measured(torch, optimizer)
    if copies is None:
        copies = _copies(optimizer, group)
    return None if copies is None else int(copies * size)


def _temporaries(optimizer: Any, group: dict[str, Any], size: int) -> int:
    foreach = group.get("foreach", False)  # None: PyTorch chooses it for tensors of a GPU
    if foreach is False or group.get("fused"):
        return 0
    in_place = any(kind.__name__ in _IN_PLACE for kind in type(optimizer).__mro__)
    return 0 if in_place and not group.get("weight_decay") else size


def of_optimizers(torch: Any, optimizers: Iterable[Any], device: Any, model: Any = None) -> Needs:
    """Returns what the parameters of these optimizers take on a device, and the untrained ones of `model`. Counts each once."""
    parameters = gradients = update = 0
    state: int | None = 0
    seen: set[int] = set()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            new = [p for p in group["params"] if id(p) not in seen and p.device == device]
            seen.update(map(id, new))
            size = _bytes(new)
            trained = _bytes(p for p in new if p.requires_grad)
            own = _state(torch, optimizer, group, trained)
            parameters += size
            gradients += trained
            state = None if own is None or state is None else state + own
            update += _temporaries(optimizer, group, trained)
    if model is not None:
        parameters += _bytes(p for p in model.parameters() if id(p) not in seen and p.device == device)
    return Needs(parameters, gradients, state, update)


def find_optimizers(torch: Any) -> list[Any]:
    """Returns all optimizers of the process, also those that have not stepped yet."""
    kind = torch.optim.Optimizer
    return [thing for thing in gc.get_objects() if kind in type(thing).__mro__]


@dataclasses.dataclass
class Place:
    """What the program was doing, by the frames of the calling thread."""

    phase: OomPhase = OomPhase.UNKNOWN
    model: Any = None  # the outermost model that was moving to the device, or whose forward was running
    done: float = 0.0  # of that forward: the share of modules that had run
    evaluates: bool = False  # of that forward: the model is in evaluation mode, and no input needs a gradient
    graph: bool = False  # of that forward: autograd keeps its results
    samples: int = 0  # of that forward: the first dimension that its inputs share; 0: not known
    batch: list[Any] = dataclasses.field(default_factory=list)  # its inputs that are its batch


def _share(outermost: Any, innermost: Any) -> float:
    modules = list(outermost.modules())
    where = next((i for i, m in enumerate(modules) if m is innermost), 0)
    return where / len(modules)


def _own_file(frame: Any) -> str:
    """Returns the file of a frame; if it is PyTorch's own, from PyTorch's folder on."""
    _, torch, own = frame.f_code.co_filename.replace("\\", "/").rpartition("/torch/")
    return own if torch else ""


def _is_loss(file: str, name: str) -> bool:
    return file == "nn/functional.py" and (name.endswith("_loss") or "entropy" in name)


def _find_model(torch: Any, output: Any) -> Any:
    """Returns a module whose parameter this tensor was computed with; None: none was found."""
    node = getattr(output, "grad_fn", None)
    for _ in range(_GRAPH):
        parameter = getattr(node, "variable", None)
        if parameter is not None or node is None:
            break
        node = next((found for found, _ in reversed(node.next_functions) if found is not None), None)
    else:
        return None
    kind = torch.nn.Module
    modules = (thing for thing in gc.get_objects() if kind in type(thing).__mro__)
    return next((m for m in modules if any(p is parameter for p in m.__dict__.get("_parameters", {}).values())), None)


def _is_of_batch(tensor: Any) -> bool:
    """Returns whether an input of a forward has its memory alone and was computed by no other forward."""
    try:
        return tensor.grad_fn is None and bool(tensor.untyped_storage().nbytes() == _bytes([tensor]))
    except Exception:  # a sparse tensor has no such storage
        return False


def _judge_forward(torch: Any, place: Place, model: Any, inputs: Any) -> None:
    """Sets in `place` whether this forward is part of an evaluation, its batch, and whether autograd makes a graph."""
    given = [*inputs[0], *inputs[1].values()]
    place.batch = [tensor for tensor in _microbatch.tensors(given) if _is_of_batch(tensor)]
    place.evaluates = not model.training and not any(getattr(one, "requires_grad", False) for one in given)
    place.samples = 0 if place.evaluates else _microbatch.shared_size(given)
    place.graph = torch.is_grad_enabled() and any(p.requires_grad for p in model.parameters())


def find_place(torch: Any) -> Place:
    """Finds what the calling thread was doing. Reads the locals of PyTorch's own frames only: a frame that stays alive would keep
    its tensors."""
    place = Place()
    owners: dict[str, list[Any]] = {"_apply": [], "_call_impl": []}
    inputs: Any = ((), {})  # of the outermost forward
    computed: Any = None  # computed by a model, for its loss
    update = loss = False
    file = "autograd/"  # autograd's threads have no Python frames, or only those of a function's backward
    frame: Any = sys._getframe(1)
    while frame is not None and os.path.dirname(frame.f_code.co_filename) == _FOLDER:
        frame = frame.f_back
    while frame is not None:
        file = _own_file(frame)
        name = frame.f_code.co_name
        update = update or file.startswith("optim/")
        if _is_loss(file, name):
            loss = True
            computed = frame.f_locals.get("input")
        if file == "nn/modules/module.py" and name in owners:
            owners[name].append(frame.f_locals.get("self"))
            inputs = frame.f_locals.get("args", ()), frame.f_locals.get("kwargs", {})
        frame = frame.f_back
    running = owners["_call_impl"]
    if owners["_apply"]:
        place.phase = OomPhase.MODEL
        place.model = owners["_apply"][-1]
    elif update:
        place.phase = OomPhase.UPDATE
    elif file.startswith(("autograd/", "utils/checkpoint.py")):  # the outermost
        place.phase = OomPhase.BACKWARD
    elif running or loss:
        place.phase = OomPhase.FORWARD
        place.model = running[-1] if running else None
        place.done = 1.0 if loss else _share(running[-1], running[0])
        if running and not loss:
            _judge_forward(torch, place, running[-1], inputs)
        else:
            model = _find_model(torch, computed)
            if model is not None:
                _judge_forward(torch, place, model, ((), {}))
    return place


def of_model(model: Any) -> Needs:
    """Returns the needs of a model that no optimizer trains yet. Its state is unknown."""
    tensors = {id(t): t for t in [*model.parameters(), *model.buffers()]}.values()
    trained = _bytes(p for p in model.parameters() if p.requires_grad) if model.training else 0
    return Needs(_bytes(tensors), trained, None if trained else 0)


def now(torch: Any, optimizers: Iterable[Any], device: Any) -> tuple[Needs, Place]:
    """Returns the needs on a device, and what the calling thread is doing."""
    place = find_place(torch)
    needs = of_optimizers(torch, optimizers, device, place.model)
    if place.model is not None and needs.gradients == 0:
        needs = of_model(place.model)
    return needs, place


def too_large(torch: Any, model: Any, optimizer: Any, device: Any) -> tuple[Needs, int] | None:
    """Returns the needs of a model without any batch, and how much this process can have of its device, if that is less."""
    if device.type != "cuda":
        return None
    needs = of_optimizers(torch, [optimizer], device, model)
    limit = _limits.limit_of(torch, device.index)
    room = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    room = room if limit is None else min(room, limit)
    return (needs, room) if needs.alone + needs.update > room else None


__all__ = ["Needs", "Place", "find_optimizers", "find_place", "now", "of_optimizers", "too_large"]
