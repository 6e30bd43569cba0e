"""A callback for the Hugging Face Trainer:

    from neap.integrations.transformers import MemoryCallback
    trainer = transformers.Trainer(..., callbacks=[MemoryCallback(cleanup_every_steps=500)])

The Trainer does not pass exceptions to its callbacks: call `callback.watch.failed(error)` where you catch it.
"""

from __future__ import annotations

import importlib
from typing import Any

from ._watch import Watch

_Callback: Any = importlib.import_module("transformers").TrainerCallback


class MemoryCallback(_Callback):  # type: ignore[misc]
    """Cleans up, logs and watches for leaks at the Trainer's instants. Options: see Watch. `watch` has the findings."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.watch = Watch(**options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the Trainer."""
        self.watch.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the Trainer after each optimizer update."""
        self.watch.step(int(state.global_step))
        self.watch.tracked(int(state.global_step))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the Trainer."""
        self.watch.epoch(round(state.epoch))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the Trainer."""
        self.watch.saved(int(state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the Trainer."""
        self.watch.end()
