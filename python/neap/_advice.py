"""Advice for a training that ran out of memory: only steps that are possible and were not taken yet."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection
from typing import Any

from . import _limits, _sources, _units, memory
from ._abi import Rung
from ._growth import Growing
from ._ladder import Split
from ._leaks import Leak
from ._needs import Needs

_SHARE = 10  # share of the whole: only a larger part is worth a sentence


@dataclasses.dataclass(frozen=True)
class Ways:
    """How a training could continue with less."""

    ladder: bool  # the ladder may take rungs
    can_checkpoint: bool  # the model has layers that could be checkpointed, and are not
    mixed: bool  # mixed precision is in force
    split: Split
    leak: Leak | None = None  # found by the watch
    growing: tuple[Growing, ...] = ()


def _settings(torch: Any) -> str:
    """The allocator's settings as PyTorch has them; before 2.10, from the environment."""
    ask = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    if ask is not None:
        return str(ask())
    text = os.environ.get("PYTORCH_CUDA_ALLOC_CONF")  # PyTorch reads this first, even if it is empty
    if text is None and tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2]) >= (2, 9):
        text = os.environ.get("PYTORCH_ALLOC_CONF")  # older releases ignore this one
    return text or ""


def grows(torch: Any) -> bool:
    """Returns whether PyTorch's segments grow in place."""
    return "expandable_segments:true" in _settings(torch).lower().replace(" ", "")


def at_the_end(ways: Ways, cached: int) -> tuple[str, ...]:
    """Advice for a training that gives up. `cached`: bytes that were reserved but not allocated when memory ran out."""
    found = []
    if ways.leak is not None:
        held = f" ({ways.growing[0]})" if ways.growing else ""
        return (f"mend the leak first: {ways.leak}{held}",)  # a batch that fits today will not fit later
    if not ways.ladder and ways.split.micro_batch > 1:
        found.append("ladder=True computes each step in smaller micro-batches and keeps the effective batch")
    if ways.can_checkpoint:
        found.append("gradient_checkpointing=True keeps fewer activations and computes each layer again")
    if not ways.mixed:
        found.append("mixed_precision=True about halves activations, and changes numerics")
    return (*found, *_of_devices(cached))


def without_batch(needs: Needs, room: int) -> tuple[str, ...]:
    """Advice for a model that does not fit whatever its batch: a smaller micro-batch or fewer activations would not help."""
    found = []
    without = needs.parameters + needs.gradients
    if needs.alone <= room:
        found.append(f"foreach=False in the optimizer: an update takes {_units.size(needs.update)} less at once")
    elif needs.state and without <= room:
        found.append(
            f"an optimizer with less state than {_units.size(needs.state)}: SGD with momentum keeps {_units.size(needs.gradients)}, "
            f"Adam in 8 bits half of that"
        )
        found.append("the optimizer's state offloaded to the host's memory")
    found.append("a model that is sharded over several devices (FSDP, ZeRO)")
    found.append(f"a model with at most {int(100 * room / max(needs.alone, 1))} % of the parameters, less what a batch takes")
    return (*found, *_of_devices(0))


def _of_devices(cached: int) -> list[str]:
    """Advice from the devices' figures, read after the failed step was dropped."""
    found = []
    torch = _sources.torch_with_cuda()
    stats = memory.get_gpu_memory_stats()
    for d in stats.devices:
        limit = None if torch is None else _limits.limit_of(torch, d.index)
        others = 0 if d.total is None or d.free is None else d.total - d.free - d.reserved
        if limit is not None and d.total is not None:
            found.append(f"this process is limited to {_units.size(limit)} of the {_units.size(d.total)} of GPU {d.index}: raise the limit")
        if others * _SHARE > (d.total or 0):
            found.append(f"{_units.size(others)} of GPU {d.index} are other processes' and CUDA's: `neap info` shows whose")
    if torch is not None and cached * _SHARE > stats.max_reserved > 0 and not grows(torch):
        found.append(
            f"{_units.size(cached)} were reserved and not in use when it ran out: start with `neap run --enable`, or "
            f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        )
    return found


def next_time(split: Split, taken: Collection[Rung], by_loader: bool) -> tuple[str, ...]:
    """Advice for the next run of a training that succeeded with these rungs."""
    words = []
    if Rung.SPLIT in taken:
        size = f"batches of {split.micro_batch} from the DataLoader" if by_loader else f"batch_size={split.micro_batch}"
        words.append(f"{size}, accumulate={split.accumulate}")
    if Rung.MIXED_PRECISION in taken:
        words.append("mixed_precision=True")
    if Rung.CHECKPOINTING in taken:
        words.append("gradient_checkpointing=True")
    if not words:
        return ()
    whole = split.micro_batch * split.accumulate * split.ranks
    other = f" (an effective batch of {whole} instead of {split.effective})" if whole != split.effective else ""
    return (f"begin with {', '.join(words)}{other}: that held, and no step is made twice",)
