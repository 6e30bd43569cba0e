"""Finds the micro-batch of a program without a Training while it makes its first updates, and records it with its source.

    NEAP_MICRO_BATCH                      the user names it
    transformers' TrainingArguments       per_device_train_batch_size
    a DataLoader, of Lightning's as well  its batch_size; batches an update: the accumulation
    the model's inputs                    the first dimension that they share; forwards an update: the accumulation

Updates must agree on it; if memory runs out earlier, the findings so far count. Only weak references to the program's batches and
models are kept. Once the micro-batch is found, or the search has lasted long enough, nothing is watched any more. Until then a
batch costs about a microsecond.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from . import _events, _notes, _sources
from ._abi import BatchSource
from ._batches import is_tensor

_LOOKS = 12  # updates after which the search is given up
_WITHOUT_LOADER = 4  # updates after which the model's inputs are examined
_DEEP = 4  # depth of containers in a batch that are examined


@dataclasses.dataclass(frozen=True)
class Found:
    """The findings; a number of 0 is unknown."""

    source: BatchSource
    size: int = 0
    accumulate: int = 0
    other: BatchSource = BatchSource.UNKNOWN  # a source with another value
    other_size: int = 0


class _Inputs:
    """A hook of one model, between two updates: notes the model's arguments."""

    def __init__(self) -> None:
        self.calls = 0
        self.shared: set[int] = set()

    def __call__(self, module: Any, arguments: Any) -> None:
        try:
            if module.training:
                self.calls += 1
                self.shared.add(shared_size(arguments))
        except Exception:  # the model has its own kind of input
            self.shared.add(0)

    def __reduce__(self) -> Any:
        """If the model is copied or saved whole meanwhile, the copy has a hook that does nothing and does not need neap."""
        return getattr, ({}, "get")


class _State:
    """State of this process."""

    done = False
    looks = 0
    counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # number of batches, by the sampler of a loader
    shared: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # the largest first dimension so far
    history: collections.deque[tuple[int, dict[int, int]]] = collections.deque(maxlen=3)  # updates, and the counts then by id
    loader: tuple[int, int] = (0, 0)  # the sampler that last gave a whole number of batches per update: its id, and the number
    models: weakref.WeakSet[Any] = weakref.WeakSet()  # modules that are not part of another module
    inputs: _Inputs | None = None
    handle: Any = None
    calls: tuple[int, int] = (0, 0)  # forwards in the previous update, and the dimension that its inputs shared
    unhook: list[Any] = []


def tensors(batch: Any, deep: int = _DEEP) -> Iterator[Any]:
    """Gives the tensors of a batch."""
    if is_tensor(batch):
        yield batch
    elif deep:
        parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
        for part in parts:
            yield from tensors(part, deep - 1)


def shared_size(batch: Any) -> int:
    """Returns the first dimension that all tensors share, except those without dimensions; 0: none."""
    sizes = {int(tensor.shape[0]) for tensor in tensors(batch) if len(tensor.shape)}
    return sizes.pop() if len(sizes) == 1 else 0


# Watching.


def watch(torch: Any) -> None:
    """Called when torch was imported: from now on, counts batches and registers models."""
    kind = torch.utils.data.dataloader._BaseDataLoaderIter
    original = kind.__next__

    @functools.wraps(original)
    def count_and_give(iterator: Any) -> Any:
        batch = original(iterator)
        if not _State.done:
            _count(iterator, batch)
        return batch

    def give_back() -> None:
        if kind.__next__ is count_and_give:
            kind.__next__ = original

    kind.__next__ = count_and_give
    _State.unhook.append(give_back)
    modules = torch.nn.modules.module
    _State.unhook.append(modules.register_module_module_registration_hook(_part_of).remove)
    _State.unhook.append(modules.register_module_parameter_registration_hook(_has_parameter).remove)


def _count(iterator: Any, batch: Any) -> None:
    try:
        sampler = iterator._index_sampler  # the loader's own sampler: an iterator lives only for an epoch
        _State.counts[sampler] = _State.counts.get(sampler, 0) + 1
        _State.shared[sampler] = max(_State.shared.get(sampler, 0), shared_size(batch))
    except Exception:  # an unknown kind of sampler or batch
        pass


def _part_of(module: Any, _: str, part: Any) -> None:
    if part is not None:
        _State.models.discard(part)
    _State.models.add(module)


def _has_parameter(module: Any, _: str, __: Any) -> None:
    _State.models.add(module)  # if it becomes a part of another module, that is noticed then


# Conclusions.


def look(optimizer: Any) -> None:
    """Called after each update of the optimizer whose updates count as steps. Never raises."""
    if _State.done:
        return
    try:
        _look(optimizer)
    except Exception as error:  # for example, a model that accepts no hook
        _notes.note("the micro-batch", error)
        _notes.harmless("the micro-batch")(_end)()


def _look(optimizer: Any) -> None:
    torch = _sources.torch_with_cuda()
    if torch is None or torch.cuda.is_current_stream_capturing():  # a query of the driver would break the capture
        return
    _State.looks += 1
    found = _decide(optimizer)
    if _State.looks == 1:  # for a program that ends before the micro-batch is found
        _record(_named(0) or _from_arguments() or Found(BatchSource.UNKNOWN))
    if found is not None:
        _record(found)
    if found is not None or _State.looks >= _LOOKS:
        _end()
    else:
        _events.sampled.until = 0.0  # examine the next update, too


def failed(samples: int) -> None:
    """Called when memory ran out before the micro-batch was found: records the findings so far. `samples`: the first dimension of
    the inputs of the forward that failed; 0: not known."""
    if _State.done:
        return
    samplers = list(_State.counts.items())
    sampler = max(samplers, key=lambda item: item[1])[0] if samplers else None
    found = _named(0)
    if found is None and sampler is not None:
        found = _from_loader(sampler, 0)
    if found is None or (found.size == 0 and samples):
        found = Found(BatchSource.INPUTS if samples else BatchSource.UNKNOWN, samples)
    _record(found)


def _record(found: Found) -> None:
    _events.batch(found.source, found.size, found.accumulate, found.other, found.other_size)


def _end() -> None:
    _State.done = True
    _release()
    while _State.unhook:
        _State.unhook.pop()()
    _State.models.clear()


def _release() -> None:
    if _State.handle is not None:
        _State.handle.remove()
        _State.handle = None


def _named(accumulate: int) -> Found | None:
    text = os.environ.get("NEAP_MICRO_BATCH", "")
    return Found(BatchSource.NAMED, int(text), accumulate) if text.isascii() and text.isdigit() and int(text) > 0 else None


def _decide(optimizer: Any) -> Found | None:
    sampler, accumulate = _of_loader()
    if sampler is not None:
        return _named(accumulate) or _from_loader(sampler, accumulate)
    size, accumulate = _of_model(optimizer)
    if accumulate:
        return _named(accumulate) or (Found(BatchSource.INPUTS, size, accumulate) if size else None)
    return None


def _of_loader() -> tuple[Any, int]:
    """Returns the sampler of a loader that twice gave the same number of batches per update, and that number; None: none yet.
    Counts over two updates each time: a loader that reads ahead gives one batch more in the first update of an epoch, and one less
    in the last."""
    samplers = list(_State.counts.items())
    _State.history.append((_events.sampled.steps, {id(sampler): count for sampler, count in samplers}))
    if len(_State.history) < 3:
        return None, 0
    steps, before = _State.history[0]
    updates = _State.history[-1][0] - steps
    last, _State.loader = _State.loader, (0, 0)
    for sampler, count in samplers:
        given = count - before.get(id(sampler), count)
        if updates > 0 and given > 0 and given % updates == 0:
            _State.loader = (id(sampler), given // updates)
            if _State.loader == last:
                return sampler, last[1]
    return None, 0


def _from_loader(sampler: Any, accumulate: int) -> Found:
    size = getattr(sampler, "batch_size", None)
    shared = _State.shared.get(sampler, 0)
    if not isinstance(size, int) or size < 1:
        return Found(BatchSource.INPUTS if shared else BatchSource.UNKNOWN, shared, accumulate)
    source = BatchSource.LIGHTNING if _instance(_LIGHTNING) is not None else BatchSource.LOADER
    arguments = _instance(_TRANSFORMERS)
    of_arguments = getattr(arguments, "per_device_train_batch_size", size)
    if arguments is not None and of_arguments == size:
        source = BatchSource.TRANSFORMERS
    elif of_arguments != size and isinstance(of_arguments, int):
        return Found(source, size, accumulate, BatchSource.TRANSFORMERS, of_arguments)
    if shared and shared != size:
        return Found(source, size, accumulate, BatchSource.INPUTS, shared)
    return Found(source, size, accumulate)


_TRANSFORMERS = (("transformers.training_args", "TrainingArguments"),)
_LIGHTNING = (("lightning.pytorch.trainer.trainer", "Trainer"), ("pytorch_lightning.trainer.trainer", "Trainer"))


def _instance(names: tuple[tuple[str, str], ...]) -> Any:
    """Returns an object of one of these classes, if their modules are imported."""
    kinds = tuple(k for k in (getattr(sys.modules.get(module), name, None) for module, name in names) if isinstance(k, type))
    return next((o for o in gc.get_objects() if issubclass(type(o), kinds)), None) if kinds else None


def _from_arguments() -> Found | None:
    """Returns the micro-batch that transformers' Trainer was asked for."""
    arguments = _instance(_TRANSFORMERS)
    size = getattr(arguments, "per_device_train_batch_size", 0)
    accumulate = getattr(arguments, "gradient_accumulation_steps", 0)
    whole = isinstance(size, int) and size > 0 and isinstance(accumulate, int)
    return Found(BatchSource.TRANSFORMERS, size, accumulate) if whole else None


def _of_model(optimizer: Any) -> tuple[int, int]:
    """Returns the first dimension of the model's inputs, and its forwards in each of two updates; 0: not known yet."""
    inputs, _State.inputs = _State.inputs, None
    _release()
    if inputs is not None and inputs.calls:
        shared = inputs.shared.pop() if len(inputs.shared) == 1 else 0
        last, _State.calls = _State.calls, (inputs.calls, shared)
        if _State.calls == last:
            return shared, inputs.calls
    if _State.looks >= _WITHOUT_LOADER and not _compiles():
        model = _model_of(optimizer)
        if model is not None:
            _State.inputs = _Inputs()
            _State.handle = model.register_forward_pre_hook(_State.inputs)
    return 0, 0


def _compiles() -> bool:
    """Returns whether torch.compile has compiled something: its graphs have no place for a hook."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters.get("frames"))


def _model_of(optimizer: Any) -> Any:
    wanted = next((p for group in optimizer.param_groups for p in group["params"]), None)
    for model in list(_State.models):
        if any(parameter is wanted for parameter in model.parameters()):
            return model
    return None


def _forked() -> None:
    _State.done = True  # a child rarely trains, and has its own loaders


os.register_at_fork(after_in_child=_forked)

__all__ = ["Found", "failed", "look", "shared_size", "tensors", "watch"]
