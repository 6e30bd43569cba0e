"""Races between streams in the trainings of others' libraries, and in the examples: correct ones are silent, under PyTorch's
allocator and neap's; with a mistake of the user's own around them they are reported, with its line."""

import json
import os
import pathlib
import sys
import unittest

from running import LONG, NEAP
from streams_case import StreamsCase

# Two DataLoaders, mixed precision, accumulation, checkpoints, averaged weights.
LIGHTNING = """
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))

    def training_step(self, batch, index):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.layers(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        images, labels = batch
        self.log("accuracy", (self.layers(images).argmax(1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

data = TensorDataset(torch.randn(96, 32), torch.randint(10, (96,)))
loaders = [DataLoader(data, batch_size=16, pin_memory=True, num_workers=n, persistent_workers=bool(n)) for n in (2, 0)]
trainer = pl.Trainer(max_epochs=2, accelerator="gpu", devices=1, precision="bf16-mixed", gradient_clip_val=1.0, log_every_n_steps=1,
                     accumulate_grad_batches=2, default_root_dir="lightning", enable_progress_bar=False, enable_model_summary=False,
                     logger=pl.loggers.CSVLogger("lightning"),
                     callbacks=[pl.callbacks.ModelCheckpoint(save_last=True), pl.callbacks.StochasticWeightAveraging(1e-2)])
trainer.fit(Classifier(), *loaders)
trainer.validate(dataloaders=loaders[1], verbose=False)
"""
# Batches that workers prefetch and that are copied without waiting.
ACCELERATE = """
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2,
                          dataloader_config=DataLoaderConfiguration(non_blocking=True))
data = torch.utils.data.TensorDataset(torch.randn(96, 32), torch.randint(10, (96,)))
loader = torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True, num_workers=2, prefetch_factor=4)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(2):
    for images, labels in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        seen = accelerator.gather_for_metrics(loss.detach()).mean().item()
accelerator.save_state("accelerate")
accelerator.load_state("accelerate")
"""
# transformers' Trainer. A class of the user's brings its batches one ahead, on a stream of its own.
TRAINER = """
import torch
import transformers

class Prefetcher:
    def __init__(self, loader):
        self.loader = loader
        self.side = torch.cuda.Stream()

    def __len__(self):
        return len(self.loader)

    def load(self, batches):
        batch = next(batches, None)
        with torch.cuda.stream(self.side):
            return batch and {name: host.to("cuda", non_blocking=True) for name, host in batch.items()}

    def __iter__(self):
        batches = iter(self.loader)
        main = torch.cuda.current_stream()
        ahead = self.load(batches)
        while ahead:
            batch = ahead
            main.wait_stream(self.side)
            for one in batch.values():
                one.record_stream(main)
            ahead = self.load(batches)
            yield batch
            del batch

class Trainer(transformers.Trainer):
    def get_train_dataloader(self):
        return Prefetcher(torch.utils.data.DataLoader(self.train_dataset, batch_size=4, collate_fn=self.data_collator, pin_memory=True))

config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=64, vocab_size=512, n_positions=64, bos_token_id=0, eos_token_id=0)
data = [{"input_ids": row, "labels": row} for row in torch.randint(512, (32, 64))]
arguments = transformers.TrainingArguments(
    "saved", num_train_epochs=2, per_device_train_batch_size=4, gradient_accumulation_steps=2, bf16=True, gradient_checkpointing=True,
    save_strategy="epoch", eval_strategy="epoch", logging_steps=1, disable_tqdm=True, report_to=[], dataloader_num_workers=2)
for kind in (transformers.Trainer, Trainer):
    trainer = kind(transformers.GPT2LMHeadModel(config), arguments, train_dataset=data, eval_dataset=data[:8])
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    trainer.train()
"""
LOAD = TRAINER.split("\n").index(next(line for line in TRAINER.split("\n") if "non_blocking" in line)) + 1
RANKS = """
import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
"""
# Accumulation without synchronisation, buckets that are views, synchronised normalisation.
DDP = RANKS + """
model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)).cuda()
model = nn.parallel.DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model), device_ids=[rank],
                                            gradient_as_bucket_view=True, bucket_cap_mb=0.01)
data = torch.utils.data.TensorDataset(torch.randn(64, 32), torch.randint(10, (64,)))
sampler = torch.utils.data.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler, pin_memory=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for at, (images, labels) in enumerate(loader):
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        if at % 2 == 0:
            with model.no_sync():
                nn.functional.cross_entropy(model(images), labels).backward()
            continue
        nn.functional.cross_entropy(model(images), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        torch.save(model.state_dict(), "ddp.pt")
    dist.barrier()
dist.destroy_process_group()
"""
FSDP2 = RANKS + """
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 4).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model.layers:
    fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    for micro in range(2):
        model.set_requires_gradient_sync(micro == 1)
        model(torch.randn(2, 16, 32).pin_memory().cuda(non_blocking=True)).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
whole = [p.full_tensor().cpu() for p in model.parameters()]
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
torch.save(get_model_state_dict(model, options=options), f"fsdp{rank}.pt")
dist.barrier()
dist.destroy_process_group()
"""
EXAMPLES = pathlib.Path(os.environ["NEAP_SOURCE"], "examples")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}


@LONG
class Libraries(StreamsCase):
    def races(self, text, *words, **more):
        done = self.check(text, "--json", "--gpu", "2xh100-80gb,mem=2GiB", *words, **OFFLINE, **more)
        self.assertIn(done.returncode, (0, 1), done.stderr[-4000:])
        return json.loads(done.stdout)["races"]

    def silent(self, text, *words):
        for allocator in ({}, {"NEAP_ALLOCATOR": "neap"}):
            with self.subTest(**allocator):
                self.assertEqual(self.races(text, *words, **allocator), [], "reported falsely")

    def check(self, text, *words, **more):
        words, ranks = [one for one in words if one != "ranks"], "ranks" in words
        started = [sys.executable, *(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if ranks else [])]
        return self.execute(NEAP, "check", "--streams", *words, "--", *started, self.program(text), **more)

    def test_examples(self):
        for name in ("train_torch.py", "gpt2.py", "resnet.py", "with_lightning.py", "with_transformers.py"):
            self.silent(EXAMPLES.joinpath(name).read_text(), "--steps", "4")

    def test_example_of_ranks(self):
        self.silent(EXAMPLES.joinpath("fsdp.py").read_text(), "--steps", "3", "ranks")

    def test_lightning(self):
        self.silent(LIGHTNING)

    def test_accelerate(self):
        self.silent(ACCELERATE)

    def test_trainer(self):
        self.silent(TRAINER)

    def test_ddp(self):
        self.silent(DDP, "ranks")

    def test_fsdp2(self):
        self.silent(FSDP2, "ranks")

    def test_a_missing_wait(self):
        """Around the Trainer's batches. (The Trainer reads each loss: without record_stream nothing is used too late.)"""
        for allocator in ({}, {"NEAP_ALLOCATOR": "neap"}):
            with self.subTest(**allocator):
                races = self.races(TRAINER.replace("main.wait_stream(self.side)", "pass"), **allocator)
                lines = {race[side]["place"]["line"] for race in races for side in ("first", "second") if race[side]["place"]}
                self.assertIn(LOAD, lines, json.dumps(races, indent=1)[:4000])


if __name__ == "__main__":
    unittest.main()
