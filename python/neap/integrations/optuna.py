"""Prunes trials of Optuna that run out of memory, and keeps trials that cannot fit from starting:

    from neap.integrations.optuna import prune_out_of_memory
    @prune_out_of_memory
    def objective(trial): ...
    study.optimize(objective, n_trials=100)
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from .. import hunt, memory
from .._units import parse_size


def prune_out_of_memory(objective: Callable[..., float]) -> Callable[..., float]:
    """Wraps the objective: if device memory runs out, its trial is pruned (optuna.TrialPruned), and the study continues. Before
    that, drops the traceback's variables and empties the cache, so that the next trial has the memory. Other errors pass
    through."""
    pruned: Any = importlib.import_module("optuna").TrialPruned

    @functools.wraps(objective)
    def run(trial: Any, *rest: Any, **named: Any) -> float:
        failure = ""
        try:
            return objective(trial, *rest, **named)
        except Exception as error:
            if not memory.is_out_of_memory(error):
                raise
            hunt.forget_frames(error)
            failure = str(error).split("\n", 1)[0]
        # Only here is the error released: inside `except` Python would still hold it.
        memory.clear_gpu_memory()
        trial.set_user_attr("out_of_memory", failure)
        raise pruned(f"ran out of device memory: {failure}")

    return run


def fits(needs: str | int, device: int = 0) -> bool:
    """Returns whether that much device memory ("12 GiB", or bytes) is available to PyTorch in this process now: the driver's free
    bytes, plus the bytes that PyTorch's allocator has cached. `device`: CUDA's number. Call it in an objective before it allocates:

        if not fits("12 GiB"): raise optuna.TrialPruned("12 GiB are not free")

    `neap estimate` finds how much the model needs. Raises ValueError if `needs` is no size, and PyTorch's error if there is no such
    device. It initialises CUDA on the device, as the trial would."""
    wanted = parse_size(needs)
    cuda: Any = importlib.import_module("torch").cuda
    free, _ = cuda.mem_get_info(device)
    return int(free) + int(cuda.memory_reserved(device)) - int(cuda.memory_allocated(device)) >= wanted
