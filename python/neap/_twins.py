"""How operations that PyTorch has for CUDA alone are computed on the host: name -> a function of CPU tensors.

    CUDA's function, blind --> results of the right sizes, nothing in them
    the twin                --> the values, from CPU tensors over the same bytes; stored into those results

A twin gets the operation's arguments, tensors of the device as CPU tensors, and returns what the operation returns: a tensor or a
tuple; None in place of a result that stays as it is. It may write into its arguments, as the operation does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TWINS: dict[str, Callable[..., Any]] = {}


def twin(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function is that of these operations: "aten::cudnn_batch_norm", with ".overload" where there is one."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        TWINS.update(dict.fromkeys(names, function))
        return function

    return enter


def names(torch: Any) -> list[str]:
    """The operations with a twin that this PyTorch has."""
    there = set(torch._C._dispatch_get_all_op_names())
    return [name for name in TWINS if name in there]


def _operator(torch: Any, name: str) -> Any:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def _kernel(torch: Any, name: str, function: Callable[..., Any], key: Any) -> Callable[..., Any]:
    from torch.utils._pytree import tree_leaves, tree_map

    operator = _operator(torch, name)

    helpers = torch.ops.neap_values
    keys = torch._C.DispatchKeySet(key)

    def on_host(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return helpers.host(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def tensors(values: Any) -> list[Any]:
        return [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]

    def kernel(*arguments: Any, **named: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if not helpers.is_on():
                return operator(*arguments, **named)
            helpers.blind(True)
            try:
                results = operator(*arguments, **named)
            finally:
                helpers.blind(False)
            if not helpers.decide(name, tensors((arguments, named)), tensors(results)):
                return results
            computed = function(*tree_map(on_host, arguments), **tree_map(on_host, named))
            if isinstance(results, torch.Tensor):
                return helpers.store(results, computed) if computed is not None else results
            for at, one in enumerate(computed or ()):
                if isinstance(one, torch.Tensor):
                    helpers.store(results[at], one)
            return results

    return kernel


_libraries: list[Any] = []  # a registration lasts as long as its library


def register(torch: Any, there: list[str], key: str) -> None:
    parsed = torch._C._parse_dispatch_key(key)
    for name in there:
        namespace, _, rest = name.partition("::")
        library = torch.library.Library(namespace, "IMPL")
        _libraries.append(library)
        library.impl(rest, _kernel(torch, name, TWINS[name], parsed), key)
