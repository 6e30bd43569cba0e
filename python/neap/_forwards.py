"""The steps of a program that has neither an optimizer nor a DataLoader: each lasts from one forward of a model to the next.

    armed --outermost module is called--> _begin: the step before is done; disarmed, so that modules inside cost nothing
      ^                                     |
      +---- the forward's arguments are freed, which PyTorch holds exactly as long as the forward runs

Armed means: PyTorch calls us before each forward. Nothing is put into a model: it is copied, saved and compiled as ever. The forwards
of one model count, the first that is called; another one's as soon as they are many between two of the first one's. At the first
update of an optimizer, or batch of a DataLoader, this ends.
"""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from typing import Any

from . import _events, _needs, _notes, _sources
from .agent import agent

_OTHERS = 16  # forwards of other models between two of the one whose forwards are the steps


class _State:
    """Of this process."""

    hooks: Any = None  # PyTorch's, called before each forward; None: nothing is watched
    hook: Any = None
    key = 0  # of `hook` among them
    under_way = False  # a step
    will_update: bool | None = None  # None: not looked yet
    thread = 0  # that called it last
    others = 0

    @staticmethod
    def model() -> Any:
        """The model whose forwards are the steps. A weak reference to it takes this function's place."""
        return None


class _Arguments(tuple[Any, ...]):
    """Of the outermost forward under way."""

    __slots__ = ()

    def __del__(self, state: Any = _State) -> None:
        if state.hooks is not None:
            state.hooks[state.key] = state.hook


def watch(torch: Any) -> None:
    """CUDA was used: from now on forwards are counted."""
    compiling = torch.compiler.is_compiling

    def begins(module: Any, arguments: Any) -> Any:
        return None if compiling() else _begins(torch, module, arguments)

    begins.of_neap = True  # type: ignore[attr-defined]
    modules = torch.nn.modules.module
    _State.key = modules.register_module_forward_pre_hook(begins).id
    _State.hook = begins
    _State.hooks = modules._global_forward_pre_hooks
    _hide(modules)


def _hide(modules: Any) -> None:
    """torch.compile warns of hooks for all modules. Of ours it need not: they do nothing in what it compiles."""
    real: Any = getattr(modules, "_has_any_global_hook", None)

    def has_others() -> bool:
        kinds = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_pre_hooks", "_global_backward_hooks")
        hooks = [hook for kind in kinds for hook in getattr(modules, kind, {}).values()]
        return bool(real()) and not (hooks and all(getattr(hook, "of_neap", False) for hook in hooks))

    if real is not None:
        modules._has_any_global_hook = has_others


def end() -> None:
    """Stops counting forward passes: another source reports the steps."""
    if _State.hooks is not None and not _compiles():  # what is compiled depends on there being a hook
        _State.hooks.pop(_State.key, None)
    _State.hooks = None
    _State.under_way = False


def failed() -> None:
    """Memory ran out: the step under way will not be done."""
    _State.under_way = False


def _compiles() -> bool:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters.get("frames"))


@_notes.harmless("forwards")
def _begins(torch: Any, module: Any, arguments: Any) -> Any:
    if _State.hooks is None or not (module._parameters or module._modules):  # a loss, say
        return None
    if module._backward_hooks or module._backward_pre_hooks:  # PyTorch does not hold the arguments then
        end()
        return None
    thread = threading.get_ident()
    other = _State.model() is not module
    if other and _State.model() is not None and thread != _State.thread:  # maybe in the middle of its forward
        return None
    _State.thread = thread
    if not other or _follows(module):
        if _State.under_way and not _is_done(torch):
            return None
        _State.others = 0
        _State.under_way = agent.attached and not _events.in_training()
    _State.hooks.pop(_State.key, None)
    return _Arguments(arguments)


def _follows(module: Any) -> bool:
    """Whether another model's forwards are the steps now."""
    _State.others += 1
    if _State.model() is not None and _State.others <= _OTHERS:
        return False
    _State.model = weakref.ref(module)  # type: ignore[method-assign]
    return True


def will_update(torch: Any) -> bool:
    """Whether there is an optimizer, though none has made an update: then forwards and batches are parts of a step. Looks once."""
    if _State.will_update is None:
        _State.will_update = bool(_needs.find_optimizers(torch))
    return _State.will_update


def _is_done(torch: Any) -> bool:
    """Records the step under way. False: it is none."""
    if will_update(torch):
        end()
        return False
    _events.unoptimized_step(_events.FORWARD)
    return True


@atexit.register
@_notes.harmless("forwards")
def _finish() -> None:
    """The last step has no next forward."""
    torch = _sources.torch_with_cuda()
    if _State.under_way and torch is not None and _State.key in _State.hooks:
        _is_done(torch)


__all__ = ["end", "failed", "watch", "will_update"]
