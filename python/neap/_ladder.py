"""The split of a batch, and the next one down: libneap decides (neap_ladder_next), here it is carried."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Optional

from neap import _abi, _library


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


def next_split(split: Split) -> Optional[Split]:
    """The next smaller micro-batch with the same effective batch; None at the end."""
    now, after = _abi.Split(*split), _abi.Split()
    rung = _library.library().neap_ladder_next(ctypes.byref(now), ctypes.byref(after))
    if rung != _abi.Rung.SPLIT:
        return None
    return Split(after.micro_batch, after.accumulate, after.ranks)
