"""Sets up what `neap run` needs in a Python program, once torch is imported. The program must not notice it.

    torch imported     -> ends of optimizer steps are counted; uncaught out-of-memory errors leave their evidence
    CUDA first used    -> the process is attached, PyTorch's out-of-memory observer registered, NEAP_FRACTION applied, and
                          PyTorch's allocations are recorded (_watch.py)
    fork               -> the child starts again when it uses CUDA itself

Each part is independent: a part that fails (because this PyTorch lacks it, for example) becomes a note (_notes.py), and is skipped.
"""

from __future__ import annotations

import collections
import functools
import inspect
import os
import re
import sys
import time
import traceback
import types
import weakref
from typing import Any, Callable

from . import (
    _advice,
    _allocator,
    _divide,
    _efficient,
    _estimate,
    _events,
    _forwards,
    _history,
    _library,
    _limits,
    _microbatch,
    _needs,
    _notes,
    _sources,
    _watch,
    memory,
)
from .agent import agent

_LARGEST = (1 << 64) - 1
_OTHERS = 16  # updates of other optimizers between two of the optimizer that counts
_monotonic = time.monotonic


class _State:
    """State of this process."""

    ooms = 0  # out-of-memory errors in the recording
    optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
    optimizers_seen = False
    in_batch = False  # the program is working on a batch of a DataLoader
    others = 0  # updates of other optimizers since the stepper's update number `others_after`
    others_after = 0
    attends = False  # models must still be switched to memory-efficient attention
    steps_hook: Any = None  # PyTorch's handle of ours
    pid = 0
    previous_hook: Callable[..., Any] | None = None


def _part(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Runs one part; a failure is a note."""
    _notes.harmless(name)(function)(*arguments)


def torch_imported(torch: Any) -> None:
    """Called once torch is imported. Only raises if neap's library cannot be loaded."""
    _library.library()
    _State.pid = os.getpid()
    if _estimate.is_asked():
        _part("recording for neap estimate", _estimate.watch, torch)
    _part("limits", _limits.watch, torch)
    allocator = os.environ.get("NEAP_ALLOCATOR")
    if allocator in ("neap", "plugin"):
        _part(f"--allocator {allocator}, so PyTorch's own is in use", _allocator.install, allocator == "plugin")
    _part("NEAP_ATTENTION", _attend, torch)
    _part("optimizer steps", _hook_steps)
    _part("batches", _hook_batches)
    if _watch.in_run():
        _part("the micro-batch", _microbatch.watch, torch)
    _part("--on-oom auto", _divide.watch)
    _part("uncaught errors", _hook_errors)
    _part("CUDA", lambda: torch.cuda._lazy_call(lambda: _part("CUDA", _cuda_used, torch)))


# CUDA.


def _cuda_used(torch: Any) -> None:
    agent.attach()
    if not _allocator.installed():  # libneap records its own failures
        _part("out-of-memory observer", _observe, torch)
    _part("NEAP_FRACTION", _limit, torch)
    _part("allocations", _watch.begin, torch)
    if not _State.optimizers_seen:
        _part("forwards", _forwards.watch, torch)


def _observe(torch: Any) -> None:
    told: collections.Counter[int] = collections.Counter()

    def ran_out(device: int, requested: int, allowed: int, free: int) -> None:
        _part("out-of-memory observer", _tell_oom, torch, int(device), int(requested), int(allowed), int(free))
        told[int(device)] += 1
        _part("figures", agent.publish)

    agent.told_ooms = told
    torch._C._cuda_attach_out_of_memory_observer(ran_out)


def _limit(torch: Any) -> None:
    text = os.environ.get("NEAP_FRACTION")
    if not text:
        return
    fraction = float(text)
    if not 0 < fraction <= 1:
        raise ValueError(f"{text!r} is not a fraction above 0 and at most 1")
    agent.fraction.begin(torch, fraction)


def _attend(torch: Any) -> None:
    """Carries out `neap enable`: makes attention memory-efficient from the first use of CUDA on; after the first update, also in
    models of transformers that compute it themselves."""
    if os.environ.get("NEAP_ATTENTION") == "efficient":
        _State.attends = True
        torch.cuda._lazy_call(lambda: _part("NEAP_ATTENTION", _efficient.allow_efficient_kernels, torch))


# Out of memory.


def _segments(torch: Any) -> list[Any] | None:
    """Returns PyTorch's own list of its segments, without the history of allocations, which can be hundreds of MB and take a
    second. None for an older PyTorch, which gives both or neither."""
    snapshot = torch.cuda.memory_snapshot
    if "include_traces" in inspect.signature(snapshot).parameters:
        found: list[Any] = snapshot(include_traces=False)
        return found
    recorded = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return None if recorded is not None and recorded() else list(snapshot())


def _largest_free(torch: Any, device: int) -> dict[str, int] | None:
    """Returns the largest free piece of cached memory in the pool of small requests and in that of large ones; None: unknown."""
    segments = _segments(torch)
    if segments is None:
        return None
    largest = {"small": 0, "large": 0}
    for segment in segments:
        if segment.get("device") != device:
            continue
        pool = "small" if segment.get("segment_type") == "small" else "large"
        for block in segment.get("blocks", ()):
            if block.get("state") == "inactive":
                largest[pool] = max(largest[pool], int(block.get("size", 0)))
    return largest


def _bytes_of(tensors: Any, device: int) -> tuple[int, int]:
    total = count = 0
    for tensor in tensors:
        if tensor is not None and tensor.device.type == "cuda" and tensor.device.index == device:
            total, count = total + tensor.untyped_storage().nbytes(), count + 1
    return total, count


@_notes.harmless("holders of memory")
def _find_holders(torch: Any, device: int, allocated: int, optimizers: list[Any], batch: list[Any]) -> list[tuple[str, int, int]]:
    """Returns names, bytes and blocks of parameters, gradients, optimizer state and batch, and of the rest, such as activations."""
    parameters = {id(p): p for o in optimizers for g in o.param_groups for p in g["params"]}
    states = [v for o in optimizers for s in o.state.values() for v in s.values() if torch.is_tensor(v)]
    named = {
        "parameters": _bytes_of(parameters.values(), device),
        "gradients": _bytes_of((p.grad for p in parameters.values()), device),
        "optimizer": _bytes_of(states, device),
        "batch": _bytes_of({id(t): t for t in batch}.values(), device),
    }
    rest = allocated - sum(live for live, _ in named.values())
    named["activations and other" if optimizers else "all"] = (max(rest, 0), 0)
    return [(tag, live, count) for tag, (live, count) in named.items() if live]


def _device_total(torch: Any, device: int) -> int:
    """Returns the device's total bytes, which PyTorch has just read from the driver."""
    try:
        return int(torch.cuda.mem_get_info(device)[1])
    except Exception:  # the driver refuses at this moment
        return int(torch.cuda.get_device_properties(device).total_memory)


def _tell_oom(torch: Any, device: int, requested: int, allowed: int, free: int) -> None:
    """Records an out-of-memory error. `allowed`: the limit in force if there is one, else the device's total. Slow work comes
    before the events, so that these are together."""
    _State.ooms += 1
    _forwards.failed()
    _part("history of allocations", _history.tell, torch)
    # Before the first step, the optimizers are unknown.
    optimizers = list(_State.optimizers) or _needs.find_optimizers(torch)
    needed = _find_needs(torch, device, optimizers)
    batch = needed[1].batch if needed is not None else []
    holders = _find_holders(torch, device, torch.cuda.memory_allocated(device), optimizers, batch)
    total = _device_total(torch, device)
    largest: dict[str, int] | None = None
    try:
        largest = _largest_free(torch, device)
    finally:
        limit = allowed if allowed < total else _LARGEST
        context = agent.context_bytes(device)
        _events.out_of_memory(device, requested, free, total, limit, largest, context, _advice.grows(torch), _watch.asked(device))
    if needed is not None:
        _events.needs_of_model(device, *needed)
        _part("the micro-batch", _microbatch.failed, needed[1].samples)
    for tag, live, count in holders or ():
        _events.tag_bytes(device, tag, live, count)


@_notes.harmless("what the model needs")
def _find_needs(torch: Any, device: int, optimizers: list[Any]) -> tuple[_needs.Needs, _needs.Place]:
    return _needs.now(torch, optimizers, torch.device("cuda", device))


def _out_of_memory_line(error: BaseException) -> str:
    """Returns an error's line about memory that ran out; "": none."""
    if memory.is_out_of_memory(error):
        return f"{type(error).__name__}: {error}".split("\n", 1)[0]
    # torch.multiprocessing.spawn raises a child's error here: its traceback, as text.
    found = re.search(r"^[\w.]*(OutOfMemoryError|RuntimeError): CUDA out of memory.*", str(error), re.MULTILINE)
    return found[0] if found else ""


def _leave(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, f"{name}.{os.getpid()}"), "w", encoding="utf-8", errors="replace") as file:
        file.write(text[:4000] + "\n")


def _tell_uncaught(error: BaseException) -> None:
    """Called when an error ends the program: leaves its line for `neap run`, which shows it even if it does not read stderr (a
    terminal). If no observer recorded an out-of-memory error (made by a test or a library), its text is the evidence."""
    folder = os.environ.get("NEAP_RUN_DIR")
    if not folder or os.environ.get("NEAP_ATTACH") != "1":
        return
    _leave(folder, "error", traceback.format_exception_only(type(error), error)[-1].split("\n", 1)[0])
    text = "" if _State.ooms else _out_of_memory_line(error)
    if text:
        _leave(folder, "oom", text)


def _hook_errors() -> None:
    _State.previous_hook = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        _part("uncaught error", _tell_uncaught, error)
        previous = _State.previous_hook or sys.__excepthook__
        previous(kind, error, trace)

    sys.excepthook = hook


# Steps.


def _hook_steps() -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    _State.steps_hook = register_optimizer_step_post_hook(_stepped)


def _stepped(optimizer: Any, *_: Any) -> None:
    """After an optimizer's update. It costs every step of every program (bench/attached_cost.py measures it), so nearly always
    it only counts."""
    sampled = _events.sampled
    if _monotonic() < sampled.until and sampled.stepper() is optimizer:
        sampled.steps += 1
        if sampled.steps <= sampled.exact:
            _events.exact_step()
    else:
        _look_at_step(optimizer)


@_notes.harmless("optimizer steps")
def _look_at_step(optimizer: Any) -> None:
    """Chooses the optimizer whose updates are the steps: the first one, as long as it makes updates between those of the others.
    Otherwise another training has begun."""
    if not agent.attached or _sources.torch_with_cuda() is None:
        return
    _State.optimizers.add(optimizer)
    if not _State.optimizers_seen:
        _State.optimizers_seen = True
        _forwards.end()
    if _State.attends:
        _State.attends = False
        _part("NEAP_ATTENTION", _efficient.efficient_models, _sources.torch_module())
    sampled = _events.sampled
    stepper = sampled.stepper()
    if stepper is not optimizer:
        _State.others = _State.others + 1 if _State.others_after == sampled.steps else 1
        _State.others_after = sampled.steps
    if stepper is None or (stepper is not optimizer and _State.others > _OTHERS):
        sampled.follow(optimizer)
        _State.others = 0
    sampled.updated = _State.optimizers
    if sampled.stepper() is optimizer and not _events.in_training():
        _events.sampled_step()
        _microbatch.look(optimizer)


# Batches.


def _hook_batches() -> None:
    """Counts steps in a program without an optimizer: a step lasts from one batch of a DataLoader to the next."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    plain = _BaseDataLoaderIter.__next__

    @functools.wraps(plain)
    def following(self: Any) -> Any:
        if not _State.optimizers_seen:
            _batch_ends()
        _State.in_batch = False
        batch = plain(self)
        _State.in_batch = True
        return batch

    _BaseDataLoaderIter.__next__ = following  # type: ignore[method-assign]


@_notes.harmless("batches")
def _batch_ends() -> None:
    torch = _sources.torch_with_cuda()
    if _State.in_batch and agent.attached and torch is not None and not _events.in_training() and not _forwards.will_update(torch):
        _forwards.end()
        _events.unoptimized_step(_events.BATCH)


# Forks.


def _forked() -> None:
    _State.ooms = 0


os.register_at_fork(after_in_child=_forked)

__all__ = ["torch_imported"]
