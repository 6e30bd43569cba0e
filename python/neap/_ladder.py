"""The split of a batch, and the next one down: libneap decides (neap_ladder_next), here it is carried."""

from __future__ import annotations

import ctypes
from typing import Collection, NamedTuple, Optional

from . import _abi, _library
from ._abi import Rung


class Split(NamedTuple):
    """micro_batch x accumulate x ranks = effective batch, always."""

    micro_batch: int
    accumulate: int
    ranks: int = 1

    @property
    def effective(self) -> int:
        """What the optimizer sees."""
        return self.micro_batch * self.accumulate * self.ranks

    def __str__(self) -> str:
        return f"micro-batch {self.micro_batch} x accumulation {self.accumulate} x ranks {self.ranks} = {self.effective}"


def next_rung(split: Split, active: Collection[Rung], offered: Collection[Rung]) -> tuple[Rung, Split]:
    """The next rung of those that are offered, and the split then; Rung.STOP at the end. The effective batch stays."""
    now, after = _abi.TrainSettings(_abi.Split(*split), rung_bits(active)), _abi.TrainSettings()
    rung = Rung(_library.library().neap_ladder_next(ctypes.byref(now), rung_bits(offered), ctypes.byref(after)))
    return rung, Split(after.split.micro_batch, after.split.accumulate, after.split.ranks)


def next_split(split: Split) -> Optional[Split]:
    """The next smaller micro-batch with the same effective batch: divided by its smallest divisor, the accumulation multiplied
    by it. None at the end, which is micro-batch 1. Raises ValueError for what is below 1. A pure function."""
    split = Split(*split)
    if min(split) < 1:
        raise ValueError(f"a split of {split}: each is at least 1")
    rung, after = next_rung(split, (), (Rung.SPLIT,))
    return after if rung == Rung.SPLIT else None


def rung_name(rung: Rung) -> str:
    """A rung in words."""
    text: bytes = _library.library().neap_rung_name(rung)
    return text.decode()


def rung_bits(rungs: Collection[Rung]) -> int:
    """As libneap wants a set of rungs."""
    return sum(1 << rung for rung in set(rungs))
