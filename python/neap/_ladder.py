"""The split of a batch, and the next smaller one, which libneap chooses (neap_ladder_next)."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import NamedTuple

from . import _abi, _library
from ._abi import Rung


class Split(NamedTuple):
    """How each rank cuts the samples of a step: into `accumulate` parts of at most `micro_batch` samples each."""

    micro_batch: int
    accumulate: int
    ranks: int = 1
    batch: int = 0  # samples of a step on each rank, if the parts differ in size; 0: they do not

    @property
    def samples(self) -> int:
        """Samples of a step on each rank."""
        return self.batch or self.micro_batch * self.accumulate

    @property
    def effective(self) -> int:
        """The batch that the optimizer sees."""
        return self.samples * self.ranks

    def __str__(self) -> str:
        least = self.samples // self.accumulate
        micro_batch = f"{self.micro_batch} or {least}" if self.batch and least < self.micro_batch else f"{self.micro_batch}"
        return f"micro-batch {micro_batch} x accumulation {self.accumulate} x ranks {self.ranks} = {self.effective}"


def parts(count: int, most: int) -> list[int]:
    """Cuts `count` samples into as few parts as possible, of at most `most` each. Their sizes differ by at most one, and the
    largest come first."""
    number = -(-count // most)
    return [count // number + (index < count % number) for index in range(number)]


def next_rung(split: Split, active: Collection[Rung], offered: Collection[Rung]) -> tuple[Rung, Split]:
    """Returns the next of the offered rungs, and the split with it; Rung.STOP at the end. The effective batch stays."""
    now = _abi.TrainSettings(_abi.Split(*split), rung_bits(active))
    after = _abi.TrainSettings()
    rung = Rung(_library.library().neap_ladder_next(ctypes.byref(now), rung_bits(offered), ctypes.byref(after)))
    micro_batch = after.split.micro_batch
    accumulate = after.split.accumulate
    batch = after.split.batch
    if rung != Rung.SPLIT:
        return rung, split
    return rung, Split(micro_batch, accumulate, split.ranks, batch if batch % accumulate else 0)


def next_split(split: Split) -> Split | None:
    """Returns a split with about half the micro-batch and the same effective batch. If the batch cannot be divided evenly, parts
    differ by one sample. None at the end, which is micro-batch 1. Raises ValueError for numbers below 1. A pure function.

    >>> neap.next_split(neap.Split(micro_batch=32, accumulate=2))
    Split(micro_batch=16, accumulate=4, ranks=1, batch=0)
    """
    split = Split(*split)
    if min(split[:3]) < 1 or split.batch < 0:
        raise ValueError(f"a split of {split}: each is at least 1")
    rung, after = next_rung(split, (), (Rung.SPLIT,))
    return after if rung == Rung.SPLIT else None


def rung_name(rung: Rung) -> str:
    """Returns the name of a rung."""
    text: bytes = _library.library().neap_rung_name(rung)
    return text.decode()


def rung_bits(rungs: Collection[Rung]) -> int:
    """Returns a set of rungs as libneap's bits."""
    return sum(1 << rung for rung in set(rungs))
