"""neap's callback in a Lightning training. The training keeps a row of activations from every batch, by mistake: the
callback names it.

    neap run -- python examples/with_lightning.py
"""

import logging
import warnings

import lightning.pytorch as pl
import torch
from neap.integrations.lightning import MemoryCallback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", module="lightning")


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU())
        self.head = nn.Linear(4096, 10)
        self.seen = []

    def training_step(self, batch, index):
        images, labels = batch
        features = self.hidden(images)
        self.seen.append(features[:1].detach())  # the mistake: a view keeps all of `features`
        return nn.functional.cross_entropy(self.head(features), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    data = DataLoader(TensorDataset(torch.randn(6400, 784), torch.randint(10, (6400,))), batch_size=128)
    callback = MemoryCallback(cleanup_every_epochs=1, leak_watch_every_steps=20)
    trainer = pl.Trainer(max_epochs=3, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False, callbacks=[callback])
    trainer.fit(Classifier(), data)
    for name, stats in callback.watch.marks:
        print(f"{name:8} allocated {stats.allocated >> 20:4} MiB, reserved {stats.reserved >> 20:4} MiB, "
              f"peak {stats.max_allocated >> 20:4} MiB")
    for cleanup in callback.watch.cleanups:
        print(cleanup)


if __name__ == "__main__":
    main()
