"""Counts the steps of a program that has neither an optimizer nor a DataLoader: each step lasts from one forward of a model to the
next.

    armed --outermost module is called--> _begin: the step before is done; disarmed, so that modules inside cost nothing
      ^                                     |
      +---- the forward's arguments are freed, which PyTorch holds exactly as long as the forward runs

Armed means: PyTorch calls us before each forward. Nothing is put into a model: it can be copied, saved and compiled as before. Only
the forwards of one model count: the first model that is called, until another model has many forwards between two of the first
model's. This ends at the first update of an optimizer, or batch of a DataLoader.
"""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from typing import Any

from . import _events, _needs, _notes, _sources
from .agent import agent

_OTHERS = 16  # forwards of other models between two of the counted model


class _State:
    """State of this process."""

    hooks: Any = None  # PyTorch's, called before each forward; None: nothing is watched
    hook: Any = None
    key = 0  # the key of `hook` among them
    under_way = False  # whether a step is under way
    will_update: bool | None = None  # None: not checked yet
    thread = 0  # the thread that called it last
    others = 0

    @staticmethod
    def model() -> Any:
        """Returns the model whose forwards are the steps. A weak reference to it replaces this function."""
        return None


class _Arguments(tuple[Any, ...]):
    """The arguments of the outermost forward under way."""

    __slots__ = ()

    def __del__(self, state: Any = _State) -> None:
        if state.hooks is not None:
            state.hooks[state.key] = state.hook


def watch(torch: Any) -> None:
    """Called when CUDA was used: from now on, counts forwards."""
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
    """Hides our hooks from torch.compile, which warns of hooks for all modules: ours do nothing in compiled code."""
    real: Any = getattr(modules, "_has_any_global_hook", None)

    def has_others() -> bool:
        kinds = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_pre_hooks", "_global_backward_hooks")
        hooks = [hook for kind in kinds for hook in getattr(modules, kind, {}).values()]
        return bool(real()) and not (hooks and all(getattr(hook, "of_neap", False) for hook in hooks))

    if real is not None:
        modules._has_any_global_hook = has_others


def end() -> None:
    """Stops counting forward passes: another source reports the steps."""
    if _State.hooks is not None and not _compiles():  # compiled code depends on whether there is a hook
        _State.hooks.pop(_State.key, None)
    _State.hooks = None
    _State.under_way = False


def failed() -> None:
    """Called when memory ran out: the step under way will not complete."""
    _State.under_way = False


def _compiles() -> bool:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters.get("frames"))


@_notes.harmless("forwards")
def _begins(torch: Any, module: Any, arguments: Any) -> Any:
    if _State.hooks is None or not (module._parameters or module._modules):  # a loss function, for example
        return None
    if module._backward_hooks or module._backward_pre_hooks:  # PyTorch does not hold the arguments then
        end()
        return None
    thread = threading.get_ident()
    other = _State.model() is not module
    if other and _State.model() is not None and thread != _State.thread:  # perhaps in the middle of its forward
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
    """Returns whether another model's forwards are the steps now."""
    _State.others += 1
    if _State.model() is not None and _State.others <= _OTHERS:
        return False
    _State.model = weakref.ref(module)  # type: ignore[method-assign]
    return True


def will_update(torch: Any) -> bool:
    """Returns whether there is an optimizer, though none has made an update yet: then forwards and batches are parts of a step.
    Checks only once."""
    if _State.will_update is None:
        _State.will_update = bool(_needs.find_optimizers(torch))
    return _State.will_update


def _is_done(torch: Any) -> bool:
    """Records the step under way. False: there is none."""
    if will_update(torch):
        end()
        return False
    _events.unoptimized_step(_events.FORWARD)
    return True


@atexit.register
@_notes.harmless("forwards")
def _finish() -> None:
    """Finishes the last step, which no forward follows."""
    torch = _sources.torch_with_cuda()
    if _State.under_way and torch is not None and _State.key in _State.hooks:
        _is_done(torch)


__all__ = ["end", "failed", "watch", "will_update"]
