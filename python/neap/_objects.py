"""Exchanges Python objects between simulated ranks (torch.distributed's all_gather_object and the like, over NCCL).

PyTorch pickles an object into a tensor on the device, and computes there: the largest size, the sum of sizes, one tensor of
several. On the simulator no kernel runs, so the sizes would be 0. Here the same functions compute on the host, and only
the transfer goes through the device:

    object --pickle--> CPU tensor --copy--> device tensor --NCCL--> device tensor --copy--> CPU tensor --unpickle--> object

The stand-ins move bytes that were copied to the device, so the objects arrive. For a moment the device holds as much memory as it
would on a GPU.
"""

from __future__ import annotations

import functools
import inspect
import threading
from typing import Any, Callable

# Of torch.distributed.distributed_c10d; those that a version lacks are left out.
_OBJECTS = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list", "recv_object_list",
)
_TRANSFERS = ("all_gather", "all_gather_into_tensor", "all_gather_single", "broadcast", "gather", "scatter", "send", "recv")

# Names of the function that returns the device for a group's objects; the newer name first.
_DEVICES = ("_get_object_coll_device", "_get_pg_default_device")

_inside = threading.local()  # .device: the device for the transfers of an object


def _on_host(torch: Any, function: Callable[..., Any], device_of: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function for objects, with its tensors on the host."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if getattr(_inside, "device", None) is not None:
            return function(*arguments, **named)
        bound = signature.bind(*arguments, **named)
        device = device_of(bound.arguments.get("group"))
        if torch.device(device).type != "cuda":
            return function(*arguments, **named)
        bound.arguments.pop("device", None)
        _inside.device = device
        try:
            return function(*bound.args, **bound.kwargs)
        finally:
            _inside.device = None

    return call


def _through_device(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a collective: for an object, it sends CPU tensors through the device."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        device = getattr(_inside, "device", None)
        if device is None:
            return function(*arguments, **named)
        pairs: list[tuple[Any, Any]] = []

        def stage(value: Any) -> Any:
            if torch.is_tensor(value) and value.device.type == "cpu":
                pairs.append((value, value.to(device)))
                return pairs[-1][1]
            return [stage(one) for one in value] if isinstance(value, list) else value

        result = function(*[stage(value) for value in arguments], **{name: stage(value) for name, value in named.items()})
        for host, staged in pairs:
            host.copy_(staged)
        return result

    return call


def install(torch: Any) -> None:
    """Call it once, after torch is imported in a simulated process."""
    distributed = getattr(torch, "distributed", None)
    c10d = getattr(distributed, "distributed_c10d", None)
    if c10d is None or getattr(c10d, "_neap_objects", False):
        return
    name_of_device = next(name for name in _DEVICES if hasattr(c10d, name))
    device_of = getattr(c10d, name_of_device)

    def device_of_objects(group: Any = None) -> Any:
        return "cpu" if getattr(_inside, "device", None) is not None else device_of(group)

    replaced = {name: _on_host(torch, getattr(c10d, name), device_of) for name in _OBJECTS if hasattr(c10d, name)}
    replaced.update({name: _through_device(torch, getattr(c10d, name)) for name in _TRANSFERS if hasattr(c10d, name)})
    for name, replacement in replaced.items():
        if getattr(distributed, name, None) is getattr(c10d, name):
            setattr(distributed, name, replacement)
        setattr(c10d, name, replacement)
    setattr(c10d, name_of_device, device_of_objects)
    c10d._neap_objects = True


__all__ = ["install"]
