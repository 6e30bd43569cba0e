"""Computes operations that PyTorch has only for CUDA on the host: name -> a function of CPU tensors.

    CUDA's function, blind --> results of the right sizes, nothing in them
    the twin                --> the values, from CPU tensors over the same bytes; stored into those results

A twin gets the operation's arguments, tensors of the device as CPU tensors, and returns the operation's result: a tensor or a
tuple, with None for a result that stays as it is. Results that are missing at the end stay, too. A twin may write into its
arguments, as the operation does. If its first parameter is `call`, it gets a Call there: CUDA's results to write into, and seeds.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TWINS: dict[str, Callable[..., Any]] = {}


replaced: list[Any] = []  # replaces torch.ops.neap_values if there is no compiler


def helpers_of(torch: Any) -> Any:
    return replaced[0] if replaced else torch.ops.neap_values


captured: list[Callable[[], Any]] = []  # the calls of twins in the graph that is being captured, in order
failed: dict[str, str] = {}  # operations whose twin could not compute them, and why


@dataclass
class Call:
    """One call of an operation."""

    torch: Any
    device: int
    results: Any  # CUDA's results, as CPU tensors over the same bytes

    def seed(self) -> int:
        """Returns a seed for the random numbers of this call. The same program with the same seed gets the same numbers."""
        return int(helpers_of(self.torch).seed(self.device))


def twin(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function is the twin of these operations: "aten::cudnn_batch_norm", with ".overload" if there is one."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        TWINS.update(dict.fromkeys(names, function))
        return function

    return enter


def names(torch: Any) -> list[str]:
    """Returns the operations of this PyTorch that have a twin."""
    from . import _twins_attention, _twins_norms, _twins_products, _twins_recurrent  # noqa: F401

    there = set(torch._C._dispatch_get_all_op_names())
    return [name for name in TWINS if name in there]


def operator(torch: Any, name: str) -> Any:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def _device(torch: Any, values: Any) -> int:
    """Returns the device of the first tensor that is on one; -1: there is none."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_cuda and not torch._C._dispatch_keys(value).has(torch._C.DispatchKey.Python):
            return int(value.device.index)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
            found = _device(torch, value)
            if found >= 0:
                return found
    return -1


def kernel(torch: Any, name: str, operator: Any, function: Callable[..., Any], key: Any, otherwise: Any = None) -> Callable[..., Any]:
    """Computes one operation. `otherwise`: called if CUDA's function fails, blind."""
    from torch.utils._pytree import tree_leaves, tree_map

    helpers = helpers_of(torch)
    keys = torch._C.DispatchKeySet(key)
    with_call = next(iter(inspect.signature(function).parameters), "") == "call"

    def on_host(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return helpers.host(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def store(results: Any, computed: Any) -> Any:
        if isinstance(results, torch.Tensor):
            return helpers.store(results, computed) if computed is not None else results
        if not isinstance(results, (list, tuple)):
            return results if computed is None else computed
        for at, one in enumerate(computed or ()):
            if isinstance(one, torch.Tensor):
                helpers.store(results[at], one)
            elif isinstance(one, (list, tuple)):
                store(results[at], one)
        return results

    def forget(result: Any) -> Any:
        if isinstance(result, torch.Tensor) and result.is_cuda:
            helpers.mark_unknown(result, False)
        return result

    def tensors(values: Any) -> list[Any]:
        return [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]

    def compute(device: int, results: Any, arguments: Any, named: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if not helpers.decide(name, tensors((arguments, named)), tensors(results)):
                return results
            given = tree_map(on_host, arguments)
            given_named = tree_map(on_host, named)
            try:
                if with_call:
                    given = (Call(torch, device, tree_map(on_host, results)), *given)
                return store(results, function(*given, **given_named))
            except Exception as error:  # the results are unknown then, and the report names the operation
                failed.setdefault(name, str(error).partition("\n")[0])
                return tree_map(forget, results)

    def call(*arguments: Any, **named: Any) -> Any:
        device = _device(torch, (*arguments, *named.values()))
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if device < 0 or not helpers.is_on():
                return operator(*arguments, **named)
            try:
                helpers.blind(True)
                results = operator(*arguments, **named)
            except Exception as error:
                if otherwise is None:
                    raise
                return otherwise(error, arguments, named)
            finally:
                helpers.blind(False)
            if helpers.capture_twin():
                captured.append(functools.partial(compute, device, *tree_map(on_host, (results, arguments, named))))
                return results
        return compute(device, results, arguments, named)

    return call


def alone(torch: Any, function: Callable[..., Any], shapes: Any, arguments: Any, named: Any) -> Any:
    """Calls a twin without CUDA's function. Returns CPU tensors of these shapes: zeros for a result that the twin leaves out."""
    from torch.utils._pytree import tree_map

    def empty(like: Any) -> Any:
        made = isinstance(like, torch.Tensor)
        return torch.zeros(like.shape, dtype=like.dtype) if made else like

    results = tree_map(empty, shapes)
    if next(iter(inspect.signature(function).parameters), "") == "call":
        arguments = (Call(torch, torch.cuda.current_device(), results), *arguments)
    computed = function(*arguments, **named)
    if isinstance(results, torch.Tensor):
        return results if computed is None else computed
    given = [*computed, *[None] * (len(results) - len(computed))]
    return tuple(one if value is None else value for value, one in zip(given, results))


_DIVIDES = ("aten::div", "aten::floor_divide", "aten::remainder", "aten::fmod", "aten::lcm")


def mended(torch: Any, name: str, arguments: Any) -> Any:
    """Does the same as mend_division of values.cpp: dividing the lowest whole number by -1 would end the process. None: nothing to
    correct."""
    base = name.partition(".")[0].removesuffix("_")
    if base not in _DIVIDES or (base != "aten::lcm" and isinstance(arguments[1], (int, float)) and arguments[1] != -1):
        return None
    kind = torch.result_type(arguments[0], arguments[1])
    if kind not in (torch.int32, torch.int64):
        return None
    whole, by = (torch.as_tensor(one).to(kind) for one in arguments[:2])
    least = torch.iinfo(kind).min
    overflows = (whole == least) & (by == -1) if base != "aten::lcm" else (whole == least) | (by == least)
    if not overflows.any():
        return None
    if base == "aten::lcm":
        raise RuntimeError("the result has no place in its type")
    return (arguments[0], torch.where(overflows, torch.ones_like(by), by), *arguments[2:])


libraries: list[Any] = []  # a registration lasts as long as its library


def register(torch: Any, there: list[str], key: str) -> None:
    parsed = torch._C._parse_dispatch_key(key)
    for name in there:
        namespace, _, rest = name.partition("::")
        library = torch.library.Library(namespace, "IMPL")
        libraries.append(library)
        library.impl(rest, kernel(torch, name, operator(torch, name), TWINS[name], parsed), key)
