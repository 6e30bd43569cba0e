"""A callback for Lightning:

    from neap.integrations.lightning import MemoryCallback
    trainer = lightning.pytorch.Trainer(callbacks=[MemoryCallback(cleanup_every_epochs=1)])

It also works with the older package name, pytorch_lightning, if the program has imported that one.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ._watch import Watch

_name = "pytorch_lightning" if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules else "lightning.pytorch"
_Callback: Any = importlib.import_module(_name).Callback


class MemoryCallback(_Callback):  # type: ignore[misc]
    """Cleans up, logs and watches for leaks at Lightning's instants. Options: see Watch. `watch` has the findings."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.watch = Watch(**options)
        self._step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self.watch.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Called by Lightning after each micro-batch: it is a step only if the optimizer was updated."""
        if trainer.global_step != self._step:
            self._step = trainer.global_step
            self.watch.step(self._step)
            self.watch.tracked(self._step, *trainer.loggers)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self.watch.epoch(trainer.current_epoch + 1)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Called by Lightning."""
        self.watch.saved(trainer.global_step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Called by Lightning."""
        self.watch.failed(exception)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self.watch.end()
