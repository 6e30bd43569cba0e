"""Finds what grows: tensors whose number rises at every sample, of one shape, or of any shapes in one container.

    sample    1    2    3    4    5
    shape    10   12   14   16   18     more at each sample: this shape grows
    list      .    a    ab   abc  abcd  each sample finds a new tensor that stays, whatever its shape: this list grows

Counting shapes sees every leak whose tensors look alike, also those that no Python object leads to. The second test is for
the others: it remembers, by weak references, in which sample each tensor was first seen, and finds what holds those that stayed.
"""

from __future__ import annotations

import dataclasses
import re
import weakref
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from . import _units, hunt

_POINTS = 5  # samples that are compared
_INDEX = re.compile(r"\[[^\[\]]*\]")


@dataclasses.dataclass(frozen=True)
class Growing:
    """Tensors whose number rises at every sample: of one kind, or of several shapes in one container."""

    shape: tuple[int, ...]  # () if there are several
    dtype: str
    device: str
    counts: tuple[int, ...]  # in the last samples; for several shapes, how many were added since the first of these samples
    bytes_per_look: float
    holders: tuple[str, ...]  # of one of the tensors; for several shapes, of all
    saved_per_look: float = 0.0  # the part of these bytes that their graphs keep for a backward pass
    shapes: int = 1

    def __str__(self) -> str:
        held = "; ".join(self.holders) or "nothing that can be seen"
        saved = f" ({_units.size(int(self.saved_per_look))} of it saved for a backward pass)" if self.saved_per_look > 0 else ""
        what = f"{self.dtype} {list(self.shape)}" if self.shapes == 1 else f"tensors of {self.shapes} shapes"
        return (
            f"{what} on {self.device}: {self.counts[0]} -> {self.counts[-1]} in "
            f"{len(self.counts)} looks, {_units.size(int(self.bytes_per_look))} a look{saved}; held by {held}"
        )


class _Count(NamedTuple):
    """The count of tensors of one kind."""

    tensors: int = 0
    bytes: int = 0
    saved: int = 0  # bytes that their graphs keep for a backward pass


_Kind = tuple[tuple[int, ...], str, str]


def _kind(tensor: Any) -> _Kind:
    return tuple(int(n) for n in tensor.shape), str(tensor.dtype).replace("torch.", ""), str(tensor.device)


class Growth:
    """The samples of one watch. One thread at a time."""

    def __init__(self, device_types: Collection[str]) -> None:
        self._device_types = device_types
        self._looks = 0
        self._history: list[dict[_Kind, _Count]] = []
        self._totals: list[int] = []  # storages in each sample
        self._born: dict[int, tuple[Any, int]] = {}  # by id: a weak reference, and the sample that first saw it

    def look(self) -> tuple[Growing, ...]:
        """Counts the tensors and compares with earlier samples. Returns what grows, once there were five samples."""
        self._looks += 1
        census: dict[_Kind, _Count] = {}
        sample: dict[_Kind, Any] = {}
        born: dict[int, tuple[Any, int]] = {}
        young: dict[Any, set[_Kind]] = {}  # storages first seen in one of these samples, except the first
        stores = hunt.storages(self._device_types)
        for storage in stores:
            kinds = {_kind(tensor) for tensor in storage.tensors}
            for kind in kinds:
                count = census.get(kind, _Count())
                census[kind] = _Count(count.tensors + 1, count.bytes + storage.bytes, count.saved + storage.saved)
                sample[kind] = storage.key
            if min(self._birth(tensor, born) for tensor in storage.tensors) > max(self._looks - _POINTS + 1, 1):
                young[storage.key] = kinds
        self._born = born
        self._totals = (self._totals + [len(stores)])[-_POINTS:]
        self._history = (self._history + [census])[-_POINTS:]
        del stores
        if len(self._history) < _POINTS:
            return ()
        rising = {kind for kind in census if self._rises(kind)}
        others = {key for key, kinds in young.items() if not kinds & rising}
        return (*(self._of_kind(kind, sample[kind]) for kind in census if kind in rising), *self._of_any_shapes(others))

    def _birth(self, tensor: Any, born: dict[int, tuple[Any, int]]) -> int:
        """Returns the sample that first saw this tensor, not an earlier tensor at its address."""
        known = self._born.get(id(tensor))
        born[id(tensor)] = known if known and known[0]() is tensor else (weakref.ref(tensor), self._looks)
        return born[id(tensor)][1]

    # One shape.

    def _counts(self, kind: _Kind) -> Sequence[_Count]:
        return [look.get(kind, _Count()) for look in self._history]

    def _rises(self, kind: _Kind) -> bool:
        counts = self._counts(kind)
        return all(later.tensors > earlier.tensors for earlier, later in zip(counts, counts[1:]))

    def _of_kind(self, kind: _Kind, storage: Any) -> Growing:
        counts = self._counts(kind)
        held = hunt.lingering(self._device_types, only={storage})
        return Growing(
            *kind,
            tuple(count.tensors for count in counts),
            (counts[-1].bytes + counts[-1].saved - counts[0].bytes - counts[0].saved) / (len(counts) - 1),
            held[0].holders if held else (),
            (counts[-1].saved - counts[0].saved) / (len(counts) - 1),
        )

    # Any shapes.

    def _of_any_shapes(self, keys: set[Any]) -> tuple[Growing, ...]:
        """Returns containers that got a tensor between all samples and kept it. If the total number of tensors does not rise (a
        sliding window), no container grows."""
        rise = self._totals[-1] - self._totals[0]
        births = range(self._looks - _POINTS + 2, self._looks + 1)
        if len(keys) < len(births) or rise < len(births):
            return ()
        groups: dict[str, list[tuple[int, hunt.Account]]] = {}
        for account in hunt.accounts(self._device_types, keys):
            tensors = [ref() for ref in account.refs]
            looks = [self._born[id(t)][1] for t in tensors if t is not None and id(t) in self._born]
            del tensors
            for text in dict.fromkeys(_INDEX.sub("[...]", holder) for holder in account.holders):
                if looks and "[...]" in text:
                    groups.setdefault(text, []).append((min(looks), account))
        found = [(text, group) for text, group in groups.items() if {look for look, _ in group}.issuperset(births)]
        return tuple(self._of_container(text, group, births) for text, group in found if 2 * rise >= len(group))

    def _of_container(self, text: str, group: list[tuple[int, hunt.Account]], births: range) -> Growing:
        accounts = [account for _, account in group]
        saved = sum(account.saved for account in accounts)
        return Growing(
            (),
            accounts[0].facts[1],
            accounts[0].facts[2],
            (0, *(sum(look <= birth for look, _ in group) for birth in births)),
            (sum(account.facts[3] for account in accounts) + saved) / len(births),
            (text,),
            saved / len(births),
            len({account.facts[0] for account in accounts}),
        )
