"""Logs a run's memory to TensorBoard, Weights & Biases and MLflow, through their own objects:

    from neap.integrations.trackers import Tracked
    tracked = Tracked(SummaryWriter(), wandb.init(), mlflow, every_steps=50)
    for step, batch in enumerate(batches):
        ...
        tracked.step(step)

The callbacks for Lightning and transformers take the same objects (`trackers=`); Lightning's own loggers get the figures anyway. An
`accelerate.Accelerator` with trackers can be passed, too. Nothing is imported here, and only the objects upload anything.
"""

from __future__ import annotations

from typing import Any

from .. import memory
from .._notes import harmless
from .._units import MIB


def memory_figures(prefix: str = "memory/") -> dict[str, float]:
    """Returns the memory that this process holds now, in MiB: allocated, reserved and the peak of allocated (max_allocated) of each
    device that it uses ("memory/gpu0/allocated_mib"), and its host memory ("memory/host_mib"). Collects and releases nothing.

    >>> memory_figures()["memory/host_mib"] > 0
    True
    """
    stats = memory.get_gpu_memory_stats()
    figures = {f"{prefix}host_mib": stats.host / MIB}
    for device in stats.devices:
        for name in ("allocated", "reserved", "max_allocated"):
            figures[f"{prefix}gpu{device.index}/{name}_mib"] = getattr(device, name) / MIB
    return figures


def log_to(tracker: Any, figures: dict[str, float], step: int) -> None:
    """Passes the figures to one object, by the method that its library documents: add_scalar (a SummaryWriter of TensorBoard),
    log_metrics (mlflow, and Lightning's loggers) or log (a run of W&B, wandb itself), with the step as a figure of its own,
    "memory/step". Passes them to each tracker of an Accelerator, with the step. Raises TypeError if it has none of these methods, and
    the object's own exceptions."""
    if isinstance(getattr(tracker, "trackers", None), list):
        for one in tracker.trackers:  # its own log() would pass all of them the same step, or none
            if getattr(one, "name", "") == "wandb":
                log_to(one, figures, step)
            else:
                one.log(figures, step=step)
    elif callable(getattr(tracker, "add_scalar", None)):
        for name, value in figures.items():
            tracker.add_scalar(name, value, step)
    elif callable(getattr(tracker, "log_metrics", None)):
        tracker.log_metrics(figures, step=step)
    elif callable(getattr(tracker, "log", None)):
        tracker.log({**figures, "memory/step": float(step)})  # W&B's own step may count something else, and can only rise
    else:
        raise TypeError(f"{type(tracker).__name__}: no tracker: it has none of add_scalar, log_metrics and log")


class Tracked:
    """Passes this process's memory figures to trackers, every `every_steps` steps (1 or more; else ValueError). A tracker's failure
    becomes a note (`neap info`, neap.describe()), and the training continues."""

    def __init__(self, *trackers: Any, every_steps: int = 50) -> None:
        if every_steps < 1:
            raise ValueError("every_steps: a number of steps, 1 or more")
        self.trackers = trackers
        self.every_steps = every_steps

    def step(self, number: int) -> None:
        """Call it after a training step; does nothing between the periods."""
        if number % self.every_steps == 0:
            self.log(number)

    def log(self, number: int) -> None:
        """Logs at once, whatever the period."""
        figures = memory_figures() if self.trackers else {}
        for tracker in self.trackers:
            _log(tracker, figures, number)


@harmless("tracker")
def _log(tracker: Any, figures: dict[str, float], step: int) -> None:
    log_to(tracker, figures, step)
