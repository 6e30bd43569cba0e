"""Gives the samples of a training, step by step, and cuts batches that are too large into micro-batches.

    a tuple or dict of tensors, a map-style dataset    -> indices -> one batch a step, made when it is needed, and again if
                                                          memory ran out while it was made
    a DataLoader, an iterable of batches               -> `accumulate` of its batches a step

A batch is a tensor, or a container of tensors (tuple, list, dict, named tuple) whose first dimension is the samples. Other values,
and tensors with another first dimension, are passed whole to each micro-batch; a list with one entry per sample is cut as well.
"""

from __future__ import annotations

import collections.abc
import itertools
import random
from collections.abc import Iterator
from typing import Any, Callable

from ._ladder import Split, parts


def is_tensor(value: Any) -> bool:
    """Returns whether this is a tensor, or an array with a shape."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _parts(batch: Any) -> list[Any] | None:
    """The contents of a container; None if it is not a container."""
    if isinstance(batch, collections.abc.Mapping):
        return list(batch.values())
    return list(batch) if isinstance(batch, (list, tuple)) else None


def _first_length(batch: Any) -> int | None:
    if is_tensor(batch):
        return int(batch.shape[0]) if len(batch.shape) else None
    return next((n for n in map(_first_length, _parts(batch) or ()) if n is not None), None)


def _is_list_of_samples(batch: Any, count: int) -> bool:
    return isinstance(batch, (list, tuple)) and len(batch) == count and not any(is_tensor(p) or _parts(p) for p in batch)


def length(batch: Any) -> int:
    """Returns the number of samples: the first dimension of the first tensor, else the length of the first list; 1 if there is
    neither."""
    found = _first_length(batch)
    if found is None:
        lists = [batch] if isinstance(batch, (list, tuple)) else [p for p in _parts(batch) or () if isinstance(p, (list, tuple))]
        found = len(lists[0]) if lists else 1
    return found


def cut(batch: Any, begin: int, end: int, count: int, place: Callable[[Any], Any]) -> Any:
    """Returns samples begin..end of a batch of `count`, with each tensor moved by `place`."""
    if is_tensor(batch):
        return place(batch[begin:end] if len(batch.shape) and batch.shape[0] == count else batch)
    if _is_list_of_samples(batch, count):
        return batch[begin:end]
    if isinstance(batch, collections.abc.Mapping):
        parts = {key: cut(value, begin, end, count, place) for key, value in batch.items()}
        return parts if type(batch) is dict else _like(batch, parts)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(cut(value, begin, end, count, place) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(cut(value, begin, end, count, place) for value in batch)
    return place(batch) if hasattr(batch, "to") else batch


def _like(mapping: Any, parts: dict[Any, Any]) -> Any:
    try:
        return type(mapping)(parts)
    except TypeError:  # the constructor of this mapping takes other arguments
        return parts


class Batches:
    """The steps of one rank. `split`: the split at the beginning; data that comes in batches has its own split."""

    def __init__(self, torch: Any, data: Any, split: Split, rank: int, shuffle: bool, seed: int) -> None:
        self._torch = torch
        self._rank = rank
        self._shuffle = shuffle
        self._seed = seed
        self._loader: Any = None  # gives batches
        self._count = 0
        self._sized = False
        self._data = data
        if isinstance(data, torch.utils.data.IterableDataset):
            each = split.micro_batch
            self._loader = torch.utils.data.DataLoader(data, batch_size=each)
            self._sized = True
        elif isinstance(data, torch.utils.data.DataLoader) or not self._is_map(data):
            if not isinstance(data, collections.abc.Iterable):
                raise TypeError(f"data: a {type(data).__name__} is not a tuple or dict of tensors, dataset, DataLoader or iterable")
            self._loader = data
            split = self._split_of_loader(data, split)
        else:
            self._count = self._length_of_map(data)
            self._refuse_too_few(split)
        self.split = split
        self._largest = 0
        self._fitted = self._loader is None or self._sized
        self._step = split.samples  # of this rank

    # The kind of data.

    def _is_columns(self, data: Any) -> bool:
        parts = list(data.values()) if isinstance(data, dict) else data if isinstance(data, tuple) else ()
        return len(parts) > 0 and all(is_tensor(part) for part in parts)

    def _is_map(self, data: Any) -> bool:
        return self._is_columns(data) or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))

    def _length_of_map(self, data: Any) -> int:
        if not self._is_columns(data):
            return len(data)
        lengths = [len(part) for part in (data.values() if isinstance(data, dict) else data)]
        if min(lengths) != max(lengths):
            raise ValueError(f"data: the tensors have {', '.join(map(str, lengths))} samples: expected as many in each")
        return lengths[0]

    def _split_of_loader(self, loader: Any, split: Split) -> Split:
        size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
        if not isinstance(size, int):
            return split  # known once a batch comes
        self._sized = True
        if split.micro_batch not in (size, 32):
            raise ValueError(
                f"the DataLoader's batches have {size} samples, batch_size is {split.micro_batch}: leave batch_size out, and "
                f"accumulate so many of the loader's batches a step"
            )
        return split._replace(micro_batch=size)

    def _refuse_too_few(self, split: Split) -> None:
        if self._count == 0:
            raise ValueError("data: there are no samples")
        step = split.effective if split.ranks > 1 else 1  # ranks make whole steps only
        if self._count < step:
            raise ValueError(f"data: {self._count} samples are less than one step of all ranks ({split})")

    def fitted(self, make: Callable[[], list[Any]] | None, split: Split, rung_taken: bool) -> Split:
        """The split for a step of batches whose size is not known beforehand: as large as the largest step so far, until a rung is
        taken."""
        if self._fitted or make is None or rung_taken:
            return split
        largest = max(map(length, make()))
        known = self._largest = max(self._largest, largest)
        return split._replace(micro_batch=known)

    @property
    def of_loader(self) -> bool:
        """Whether the program's own loader makes the batches."""
        return self._loader is not None and self._loader is self._data

    def parted(self, split: Split) -> Split:
        """Returns the same split, if each of a step's batches is cut by itself: `accumulate` then counts their parts."""
        number = self.split.accumulate if self._loader is not None else 1  # batches of a step
        if number == 1 or split.samples % number:
            return split
        sizes = parts(split.samples // number, split.micro_batch)
        batch = 0 if sizes[0] == sizes[-1] else split.samples
        return Split(sizes[0], len(sizes) * number, split.ranks, batch)

    # Steps.

    def count_steps(self) -> int:
        """Returns the number of steps of an epoch; 0: unknown."""
        if self._loader is None:
            ranks = self.split.ranks  # all ranks make whole steps only
            return self._count // (self._step * ranks) if ranks > 1 else -(-self._count // self._step)
        try:
            return -(-len(self._loader) // self.split.accumulate)
        except TypeError:
            return 0

    def epoch(self, epoch: int) -> Iterator[Callable[[], list[Any]]]:
        """Yields one step at a time: a function that makes the step's batches, and can be called again if it raised."""
        if self._loader is not None:
            yield from self._of_loader(epoch)
            return
        order = list(range(self._count))
        if self._shuffle:
            random.Random(self._seed * 1_000_003 + epoch).shuffle(order)  # the same on every rank
        ranks = self.split.ranks
        if ranks > 1:  # whole steps only, so that every rank makes the same number
            order = order[: len(order) // (self._step * ranks) * self._step * ranks][self._rank :: ranks]
        for begin in range(0, len(order), self._step):
            chosen = order[begin : begin + self._step]
            yield lambda chosen=chosen: [self._chosen(chosen)]  # type: ignore[misc]

    def _of_loader(self, epoch: int) -> Iterator[Callable[[], list[Any]]]:
        for sampler in (getattr(self._loader, "sampler", None), getattr(self._loader, "batch_sampler", None)):
            set_epoch = getattr(sampler, "set_epoch", None)  # without it a DistributedSampler gives the same order each epoch
            if callable(set_epoch):
                set_epoch(epoch)
        batches = iter(self._loader)
        while True:
            step = list(itertools.islice(batches, self.split.accumulate))
            if not step:
                return
            yield lambda step=step: step  # type: ignore[misc]

    def _chosen(self, chosen: list[int]) -> Any:
        torch = self._torch
        data = self._data
        if not self._is_columns(data):
            return torch.utils.data.default_collate([data[i] for i in chosen])
        index = torch.tensor(chosen)

        def rows(part: Any) -> Any:
            return part[index.to(part.device)] if torch.is_tensor(part) else torch.as_tensor(part[index.numpy()])

        if isinstance(data, dict):
            return {key: rows(part) for key, part in data.items()}
        return tuple(rows(part) for part in data)
