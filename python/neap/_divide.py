"""`neap run --on-oom auto` for a program that knows nothing of it: divides the batch of transformers and of Lightning into parts.

    transformers' TrainingArguments, made       per_device_train_batch_size / N, gradient_accumulation_steps x N
    Lightning's Trainer, at fit                 batch_size of the DataLoader, or of the DataModule or model
                                                that makes it, / N,
                                                accumulate_grad_batches x N, and so the other counts of batches

N is NEAP_BATCH_PARTS: 1 at the first start, which only notes the batch, and twice as much after each out-of-memory error. If N does
not divide a batch, the batch is halved as often as possible. Batch x accumulation stays the same. The program writes both to
RUN/batch.PID (src/run/auto_ladder.h). Nothing else changes.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

from . import _awaited, _notes

_COUNTS = ("limit_train_batches", "val_check_interval")  # of a Trainer, they count batches if they are whole numbers
_Change = Callable[[Any], None]


class _State:
    """State of this process."""

    parts = 0
    made: set[tuple[int, int]] = set()  # batch and accumulation of arguments that are divided already


def _tell(batch: str, accumulate: str, asked: tuple[int, int], now: tuple[int, int]) -> None:
    lines = [f"{name}={value}\n" for pair in (asked, now) for name, value in zip((batch, accumulate), pair)]
    with open(os.path.join(os.environ["NEAP_RUN_DIR"], f"batch.{os.getpid()}"), "w", encoding="ascii") as file:
        file.writelines(lines)


def _divided(batch: Any, accumulate: Any) -> tuple[tuple[int, int], int]:
    """Returns the divided batch and accumulation, and the divisor. Raises TypeError for values that are no counts."""
    if not isinstance(batch, int) or not isinstance(accumulate, int) or min(batch, accumulate) < 1:
        raise TypeError(f"a batch of {batch!r} with accumulation {accumulate!r} is left as it is")
    parts = math.gcd(batch, _State.parts)
    return (batch // parts, accumulate * parts), parts


# transformers.


def _change_arguments(kind: Any) -> None:
    original = kind.__post_init__

    @functools.wraps(original)
    def divide_first(arguments: Any, *more: Any, **named: Any) -> Any:
        _notes.harmless("--on-oom auto")(_divide_arguments)(arguments)
        return original(arguments, *more, **named)

    kind.__post_init__ = divide_first


def _divide_arguments(arguments: Any) -> None:
    asked = arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps
    if asked in _State.made:  # a copy of divided arguments
        return
    now, _ = _divided(*asked)
    arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps = now
    if now != asked:
        _State.made.add(now)
    _tell("per_device_train_batch_size", "gradient_accumulation_steps", asked, now)


# Lightning.


def _change_trainer(kind: Any) -> None:
    original = kind.fit

    @functools.wraps(original)
    def divide_first(trainer: Any, model: Any, train_dataloaders: Any = None, *more: Any, **named: Any) -> Any:
        source = named.get("datamodule", more[1] if len(more) > 1 else None)
        _notes.harmless("--on-oom auto")(_divide_fit)(trainer, model, train_dataloaders, source)
        return original(trainer, model, train_dataloaders, *more, **named)

    kind.fit = divide_first


def _divide_fit(trainer: Any, model: Any, loader: Any, source: Any) -> None:
    if not getattr(model, "automatic_optimization", True):
        raise TypeError("a model that optimizes by itself is left as it is")
    size, change = _batch_of(model, loader if source is None else source)
    asked = size, trainer.accumulate_grad_batches
    now, parts = _divided(*asked)
    if parts > 1:
        change(now[0])
        trainer.accumulate_grad_batches = now[1]
        for name in _COUNTS:
            count = getattr(trainer, name, None)
            if isinstance(count, int) and count > 0:
                setattr(trainer, name, count * parts)
    _tell("batch_size", "accumulate_grad_batches", asked, now)


def _batch_of(model: Any, given: Any) -> tuple[Any, _Change]:
    """Returns the batch of the model that is fitted, and a function that changes it. Raises TypeError if there is no batch that can
    be changed."""
    loader = sys.modules["torch"].utils.data.DataLoader
    if isinstance(given, loader):
        return given.batch_size, functools.partial(_change_loader, given)
    owner = model if given is None else given
    hparams = getattr(owner, "hparams", None)
    if not hasattr(owner, "train_dataloader"):
        raise TypeError(f"a {type(owner).__name__} in place of a DataLoader is left as it is")
    if hasattr(owner, "batch_size"):
        return owner.batch_size, functools.partial(setattr, owner, "batch_size")
    if isinstance(hparams, MutableMapping) and "batch_size" in hparams:
        return hparams["batch_size"], functools.partial(hparams.__setitem__, "batch_size")
    raise TypeError(f"{type(owner).__name__} makes its DataLoader, and has no batch_size")


def _change_loader(loader: Any, size: int) -> None:
    sampler = loader.batch_sampler
    if type(sampler) is not sys.modules["torch"].utils.data.BatchSampler:
        raise TypeError(f"a DataLoader with a {type(sampler).__name__} is left as it is")
    sampler.batch_size = size
    loader.__dict__["batch_size"] = size  # PyTorch refuses the plain assignment


# When the libraries are imported.


_CHANGES: dict[str, tuple[str, _Change]] = {
    "transformers.training_args": ("TrainingArguments", _change_arguments),
    "lightning.pytorch.trainer.trainer": ("Trainer", _change_trainer),
    "pytorch_lightning.trainer.trainer": ("Trainer", _change_trainer),
}


def watch() -> None:
    """Called when torch was imported. Acts only in a program that `neap run --on-oom auto` asks for its batch."""
    text = os.environ.get("NEAP_BATCH_PARTS", "")
    if not text.isascii() or not text.isdigit() or not os.environ.get("NEAP_RUN_DIR"):
        return
    _State.parts = int(text)
    for module, (name, change) in _CHANGES.items():
        _awaited.change(module, name, _notes.harmless("--on-oom auto")(change))


__all__ = ["watch"]
