"""neap's callbacks inside the real Lightning and transformers, which train on "cuda": PyTorch's own CUDA allocator,
over neap's stand-ins for NVIDIA's libraries. No kernel runs, so memory, checkpoints, errors and instants are
compared, but no values. Also the pytest marker."""

import csv
import gc
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

if __name__ == "__main__":
    os.environ["NEAP_SIM"] = f"mem=2GiB,world=integrations-{os.getpid()}"
warnings.filterwarnings("ignore")
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import lightning.pytorch as pl
import neap
import torch
import transformers
import yaml
from neap.integrations import jupyter
from neap.integrations import lightning as for_lightning
from neap.integrations import transformers as for_transformers
from torch import nn

logging.disable(logging.WARNING)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
MIB = 1 << 20
LONG = unittest.skipUnless(os.environ.get("NEAP_LONG"), "only with NEAP_LONG=1: ./test has little time")


def names(callback):
    return [name for name, _ in callback.watch.marks]


def figures():
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()


def marked(callback, *wanted):
    """PyTorch's figures, as the callback had them at these instants."""
    return [(m.allocated, m.reserved, m.max_allocated) for name, m in callback.watch.marks if name in wanted]


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name


class Case(Folder):
    """Brings the device back to its first state."""

    def setUp(self):
        super().setUp()
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


class Module(pl.LightningModule):
    """Keeps 16 KiB for each sample and layer for its backward pass, in 32 bits."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 4096), nn.Sigmoid(), nn.Linear(4096, 1))
        self.seen = set()
        self.figures = []  # PyTorch's, at the instants of the callback's marks
        self.fails_at = None

    def training_step(self, batch, index):
        if self.global_step == self.fails_at:
            raise RuntimeError("on purpose")
        self.seen.add((batch[0].device.type, torch.is_autocast_enabled() and torch.get_autocast_gpu_dtype()))
        return self.layers(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)

    def on_train_start(self):
        self.figures.append(figures())

    def on_train_epoch_end(self):
        self.figures.append(figures())


class Lightning(Case):
    def fit(self, callback, batch=4, samples=16, epochs=2, resume=None, module=None, callbacks=(), **options):
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(samples, 64)), batch_size=batch)
        trainer = pl.Trainer(
            max_epochs=epochs, accelerator="gpu", devices=1, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=self.folder, callbacks=[callback, *callbacks], **{"logger": False, **options},
        )
        trainer.fit(module or Module(), data, ckpt_path=resume)
        return trainer

    def test_instants_and_figures(self):
        logger = pl.loggers.CSVLogger(self.folder, flush_logs_every_n_steps=1)
        options = {"cleanup_every_steps": 2, "cleanup_every_epochs": 2, "clear_memory_after_save": True, "track_every_steps": 2}
        callback = for_lightning.MemoryCallback(**options)
        module = Module()
        trainer = self.fit(callback, module=module, accumulate_grad_batches=2, logger=logger)
        with open(os.path.join(logger.log_dir, "metrics.csv"), encoding="utf-8") as file:
            tracked = [row for row in csv.DictReader(file) if row.get("memory/gpu0/allocated_mib")]
        self.assertEqual([row["step"] for row in tracked], ["2", "4"])
        self.assertGreater(float(tracked[-1]["memory/gpu0/allocated_mib"]), sum(p.nbytes for p in module.parameters()) / MIB)
        self.assertEqual((trainer.strategy.root_device.type, module.seen), ("cuda", {("cuda", False)}))
        self.assertEqual(names(callback), ["start", "epoch 1", "saved", "epoch 2", "saved", "end"])
        self.assertEqual(len(callback.watch.cleanups), 1 + 2 + 1 + 2 + 1)  # 4 steps: 2 updates an epoch
        self.assertEqual(marked(callback, "start", "epoch 1", "epoch 2"), module.figures)
        model = sum(-(-p.nbytes // 512) * 512 for p in module.parameters())
        start, *epochs = (allocated for allocated, _, _ in module.figures)
        self.assertEqual(start, model)
        for epoch in epochs:  # with gradients, Adam's two moments, and a loss
            self.assertLessEqual(abs(epoch - 4 * model), 2 * MIB)

    def test_cleanups_give_the_cache_back(self):
        class Takes(Module):
            def on_train_batch_end(self, *_):
                torch.empty(256 * MIB, dtype=torch.uint8, device=self.device)

        callback = for_lightning.MemoryCallback(cleanup_every_epochs=1)
        self.fit(callback, module=Takes(), enable_checkpointing=False)
        freed = [cleanup.freed for cleanup in callback.watch.cleanups]
        self.assertEqual([count >= 256 * MIB for count in freed], [False, True, True, False])  # start, two epochs, end
        self.assertLess(callback.watch.cleanups[-1].after.reserved, 256 * MIB)

    def test_checkpoints_are_saved_pruned_and_loaded(self):
        keeps = pl.callbacks.ModelCheckpoint(dirpath=self.folder, save_top_k=-1, filename="{epoch}")
        self.fit(for_lightning.MemoryCallback(), epochs=3, callbacks=[keeps])
        done = neap.cleanup_checkpoints(self.folder, max_checkpoints=2)
        self.assertEqual((done.moved, len(done.kept), done.kept[0]), (1, 2, "epoch=2.ckpt"))
        self.assertEqual([c.torn for c in done.checkpoints], [""] * 3)
        path = os.path.join(self.folder, "epoch=2.ckpt")
        saved = torch.load(path, weights_only=False)["state_dict"]
        module = Module()
        callback = for_lightning.MemoryCallback()
        with unittest.mock.patch.object(Module, "on_train_start", lambda self: self.figures.append(self.layers[0].weight.cpu())):
            trainer = self.fit(callback, epochs=4, module=module, resume=path, enable_checkpointing=False)
        self.assertEqual((names(callback), trainer.global_step), (["start", "epoch 4", "end"], 4 * 4))
        self.assertTrue(torch.equal(module.figures[0], saved["layers.0.weight"].cpu()))

    def test_mixed_precision(self):
        peaks = {}
        for precision, kind in (("32-true", False), ("16-mixed", torch.float16), ("bf16-mixed", torch.bfloat16)):
            torch.cuda.reset_peak_memory_stats()
            callback = for_lightning.MemoryCallback()
            module = Module()
            self.fit(callback, batch=8192, samples=8192, epochs=1, module=module, precision=precision, enable_checkpointing=False)
            self.assertEqual((module.seen, names(callback)), ({("cuda", kind)}, ["start", "epoch 1", "end"]))
            peaks[kind] = marked(callback, "end")[0][2]
        self.assertGreater(peaks[False] - peaks[torch.float16], 100 * MIB)
        self.assertLess(abs(peaks[torch.bfloat16] - peaks[torch.float16]), MIB)

    def test_an_out_of_memory_error_and_half_the_batch_after_it(self):
        callback = for_lightning.MemoryCallback()
        (limit,) = neap.set_memory_fraction(0.4)
        with self.assertRaises(torch.OutOfMemoryError):
            self.fit(callback, batch=24576, samples=24576, enable_checkpointing=False)
        self.assertEqual(names(callback), ["start", "oom"])
        after = callback.watch.out_of_memory.after.devices[0]
        self.assertGreater(callback.watch.out_of_memory.freed, 24576 * 4096 * 4)
        self.assertLess(after.reserved, 64 * MIB)  # only the step's batch is kept
        callback = for_lightning.MemoryCallback()  # like the callback's advice
        trainer = self.fit(callback, batch=12288, samples=24576, accumulate_grad_batches=2, enable_checkpointing=False)
        self.assertEqual((names(callback)[-1], trainer.global_step, callback.watch.out_of_memory), ("end", 2, None))
        self.assertLess(marked(callback, "end")[0][2], limit.limit)

    def test_other_errors_are_the_programs(self):
        callback = for_lightning.MemoryCallback()
        module = Module()
        module.fails_at = 1
        with self.assertRaisesRegex(RuntimeError, "on purpose"):
            self.fit(callback, module=module, enable_checkpointing=False)
        self.assertEqual((names(callback), callback.watch.out_of_memory), (["start"], None))

    def test_what_fails_of_ours_is_a_note(self):
        callback = for_lightning.MemoryCallback(cleanup_every_steps=1)
        with unittest.mock.patch.object(neap.memory, "clear_and_log", lambda *_, **__: 1 / 0):
            self.fit(callback)
        self.assertEqual((callback.watch.cleanups, names(callback)[-1]), ([], "end"))
        self.assertIn("callback: ZeroDivisionError: division by zero", neap.describe())

    def test_wrong_options(self):
        with self.assertRaises(ValueError):
            for_lightning.MemoryCallback(cleanup_every_steps=-1)


class Figures(transformers.TrainerCallback):
    """PyTorch's figures at the instants of the callback's marks. It comes after the callback, whose cleanup at the
    start is over."""

    def __init__(self):
        self.found = []

    def on_train_begin(self, *_, **__):
        self.found.append(figures())

    def on_epoch_end(self, *_, **__):
        self.found.append(figures())


class HuggingFace(Case):
    def trainer(self, callback, samples=16, layers=2, callbacks=(), **options):
        config = transformers.GPT2Config(
            n_layer=layers, n_head=4, n_embd=128, vocab_size=512, n_positions=128, bos_token_id=0, eos_token_id=0
        )
        ids = torch.arange(128)
        data = [{"input_ids": ids, "labels": ids}] * samples
        options = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "save_strategy": "no", **options}
        arguments = transformers.TrainingArguments(
            output_dir=self.folder, report_to=[], disable_tqdm=True, logging_strategy="no", dataloader_pin_memory=True, **options
        )
        model = transformers.GPT2LMHeadModel(config)
        callbacks = [callback, *callbacks]
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:4], callbacks=callbacks)
        trainer.remove_callback(transformers.PrinterCallback)
        return trainer

    def test_instants_and_figures(self):
        callback = for_transformers.MemoryCallback(cleanup_every_steps=2)
        seen = Figures()
        trainer = self.trainer(
            callback, callbacks=[seen], per_device_train_batch_size=2, gradient_accumulation_steps=2, save_strategy="epoch"
        )
        trainer.train()
        self.assertEqual((trainer.model.device.type, trainer.state.global_step), ("cuda", 8))
        self.assertEqual(names(callback), ["start", "epoch 1", "saved", "epoch 2", "saved", "end"])
        self.assertEqual(len(callback.watch.cleanups), 1 + 4 + 1)
        self.assertEqual(marked(callback, "start", "epoch 1", "epoch 2"), seen.found)
        self.assertGreater(seen.found[1][0], 2.9 * seen.found[0][0])  # with Adam's moments

    def test_precision_and_checkpointing(self):
        peaks = []
        for options in ({}, {"fp16": True}, {"bf16": True}, {"bf16": True, "gradient_checkpointing": True}):
            torch.cuda.reset_peak_memory_stats()
            callback = for_transformers.MemoryCallback()
            trainer = self.trainer(callback, num_train_epochs=1, per_device_train_batch_size=16, layers=6, **options)
            trainer.train()
            self.assertEqual((names(callback)[-1], trainer.state.global_step), ("end", 1))
            peaks.append(marked(callback, "end")[0][2])
            del trainer
            gc.collect()
        whole, half, brain, checkpointed = peaks
        self.assertLess(half, whole - 16 * MIB)
        self.assertLess(brain, whole - 16 * MIB)
        self.assertLess(checkpointed, brain - 16 * MIB)

    def test_checkpoints_are_saved_pruned_and_loaded(self):
        epochs = {"eval_strategy": "epoch", "save_strategy": "epoch", "metric_for_best_model": "loss", "load_best_model_at_end": True}
        self.trainer(for_transformers.MemoryCallback(), num_train_epochs=4, **epochs).train()
        done = neap.cleanup_checkpoints(self.folder, max_checkpoints=2)
        self.assertRegex(done.source, r"^Hugging Face's Trainer recorded it in checkpoint-16/trainer_state\.json$")
        (best,) = (c.name for c in done.checkpoints if c.recorded)
        self.assertEqual((done.moved, len(done.kept), {"checkpoint-16", best} - {*done.kept}), (2, 2, set()))
        callback = for_transformers.MemoryCallback()
        seen = Figures()
        trainer = self.trainer(callback, num_train_epochs=5, callbacks=[seen], **{**epochs, "load_best_model_at_end": False})
        trainer.train(resume_from_checkpoint=True)
        self.assertEqual((names(callback), trainer.state.global_step), (["start", "epoch 5", "saved", "end"], 20))

    def test_an_out_of_memory_error_and_half_the_batch_after_it(self):
        callback = for_transformers.MemoryCallback()
        torch.cuda.set_per_process_memory_fraction(0.25)
        trainer = self.trainer(callback, samples=128, num_train_epochs=1, per_device_train_batch_size=128)
        try:
            trainer.train()
        except torch.OutOfMemoryError as error:
            callback.watch.failed(error)
        self.assertEqual(names(callback), ["start", "oom"])
        self.assertGreater(callback.watch.out_of_memory.freed, 200 * MIB)
        del trainer
        callback = for_transformers.MemoryCallback()
        trainer = self.trainer(callback, samples=128, num_train_epochs=1, per_device_train_batch_size=32, gradient_accumulation_steps=4)
        trainer.train()
        self.assertEqual((names(callback)[-1], trainer.state.global_step), ("end", 1))

    @LONG
    def test_beside_the_trainers_own_search_for_a_batch(self):
        callback = for_transformers.MemoryCallback()
        torch.cuda.set_per_process_memory_fraction(0.25)
        trainer = self.trainer(callback, samples=128, num_train_epochs=1, per_device_train_batch_size=128, auto_find_batch_size=True)
        trainer.train()
        tries = names(callback).count("start")
        self.assertEqual(names(callback), ["start"] * tries + ["epoch 1", "end"])
        self.assertGreater(tries, 1)
        self.assertLess(trainer.state.train_batch_size, 128)


class Notebook(Case):
    def test_a_command_sees_this_process_as_it_is_and_reaches_it(self):
        neap.attach()
        self.addCleanup(neap.detach)
        kept = []
        for _ in range(3):  # each at once after the figures changed
            kept.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
            (own,) = (one for one in json.loads(repr(jupyter.neap_magic("info --json")))["processes"] if one["pid"] == os.getpid())
            self.assertEqual(own["allocated"], torch.cuda.memory_allocated())
        kept.clear()
        shown = repr(jupyter.neap_magic(f"clear --pid {os.getpid()}"))
        self.assertNotIn("exit status", shown)
        self.assertLess(torch.cuda.memory_reserved(), 64 * MIB)


LIGHTNING = """
import sys, warnings
warnings.filterwarnings("ignore")
import lightning.pytorch as pl, torch
from neap.integrations.lightning import MemoryCallback
batch, accumulate = 32768, 1

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.Sigmoid(), torch.nn.Linear(4096, 1))
    def training_step(self, batch, index):
        return self.layers(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(32768, 64)), batch_size=batch)
trainer = pl.Trainer(max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_progress_bar=False, accumulate_grad_batches=accumulate,
                     enable_model_summary=False, callbacks=[MemoryCallback(cleanup_every_epochs=1)])
trainer.fit(Module(), data)
print("trained", data.batch_size, trainer.accumulate_grad_batches, trainer.global_step)
"""

TRANSFORMERS = """
from transformers import Trainer, TrainingArguments # before torch
import torch, transformers
from neap.integrations.transformers import MemoryCallback
config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=256, vocab_size=8192, n_positions=128, bos_token_id=0, eos_token_id=0)
data = [{"input_ids": torch.arange(128), "labels": torch.arange(128)}] * 64
arguments = TrainingArguments(output_dir="saved", num_train_epochs=2, per_device_train_batch_size=64, disable_tqdm=True,
                              save_strategy="epoch", report_to=[])
trainer = Trainer(model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=data,
                               callbacks=[MemoryCallback(cleanup_every_epochs=1)])
trainer.train()
print("trained", arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps, trainer.state.global_step)
"""


class Runs(Folder):
    """`neap run --on-oom auto` on scripts that contain only neap's callback: it starts them again with half the
    batch."""

    def run_it(self, code, batch, names):
        pathlib.Path(self.folder, "script.py").write_text(code)
        os.mkdir(os.path.join(self.folder, "runtime"), 0o700)
        environment = {**os.environ, "XDG_RUNTIME_DIR": f"{self.folder}/runtime", "XDG_STATE_HOME": f"{self.folder}/state"}
        command = [os.environ["NEAP"], "run", "--folder", "run", "--fraction", "0.6", "--on-oom", "auto", "--", sys.executable, "script.py", "{kept}"]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(pathlib.Path(self.folder, "run", "result.json").read_text())
        self.assertEqual((result["outcome"], result["attached"], result["steps"]), ("ok", True, 2))
        self.assertEqual(result["retries"], 1)
        self.assertRegex(done.stdout, rf"(?m)^trained {batch // 2} 2 2$")
        self.assertIn("Cause: the limit.", result["oom_card"])
        self.assertEqual(result["rung"], f"{names[0]} {batch} -> {batch // 2}, {names[1]} 1 -> 2")
        self.assertIn(f"starting again (1 of 8) with {result['rung']}", done.stderr)
        self.assertNotIn("\n  note", done.stderr)
        return result

    def test_lightning(self):
        marks = [mark[1] for mark in self.run_it(LIGHTNING, 32768, ("batch_size", "accumulate_grad_batches"))["marks"] if mark[1] not in ("peak", "held")]
        self.assertEqual(marks, ["start", "epoch 1", "saved", "epoch 2", "saved", "end"])

    @LONG
    def test_transformers(self):
        result = self.run_it(TRANSFORMERS, 64, ("per_device_train_batch_size", "gradient_accumulation_steps"))
        marks = [mark[1] for mark in result["marks"] if mark[1] not in ("peak", "held")]
        self.assertEqual(marks, ["start", "epoch 1", "saved", "epoch 2", "saved", "end"])
        self.assertIn("(now 32, TrainingArguments.per_device_train_batch_size)", result["advice"])


PYTEST = """
import neap, pytest

@pytest.fixture
def allocator():
    with neap.Allocator() as allocator:
        kept = allocator.malloc(100 << 20)
        yield allocator

@pytest.mark.gpu_memory(max_peak="64 MiB")
def test_within(allocator):
    allocator.free(allocator.malloc(60 << 20))

@pytest.mark.gpu_memory(max_peak="64 MiB")
def test_over(allocator):
    allocator.free(allocator.malloc(70 << 20))

@pytest.mark.gpu_memory(max_peak="64 MiB")
def test_fails_by_itself(allocator):
    allocator.free(allocator.malloc(70 << 20))
    assert 1 == 2

@pytest.mark.gpu_memory(max_peak="64 MiB")
def test_over_and_closed(allocator):
    with neap.Allocator() as another:
        another.malloc(80 << 20)

@pytest.mark.gpu_memory(max_peak="64 MiB")
def test_closes_what_was_there(allocator):
    allocator.close()

@pytest.mark.gpu_memory(max_peak="1 B", max_growth=0)
def test_without_a_device():
    pass

@pytest.mark.gpu_memory(max_peak="much")
def test_wrong():
    pass

@pytest.mark.gpu_memory(most="1 GiB")
def test_unknown():
    pass

@pytest.mark.gpu_memory(max_growth=0)
def test_keeps_nothing(allocator):
    allocator.free(allocator.malloc(70 << 20))

@pytest.mark.gpu_memory(max_peak="64 MiB", max_growth="1 MiB")
def test_keeps(allocator):
    allocator.malloc(70 << 20)

def test_unlimited(allocator):
    allocator.malloc(70 << 20)
"""


DEVICES = """
import ctypes, os, pytest, sys, torch

def test_values():
    assert torch.cuda.device_count() == 2 and torch.arange(6.0, device="cuda").mul(2).sum() == 30
    assert os.environ["NEAP_SIM"] == f"2xt4-16gb,values=full,world=pytest-{os.getpid()},release_delay=0s"
    assert os.environ["PYTHONPATH"].split(":")[0] in sys.path  # compile workers get sys.path
    open("pid", "w").write(str(os.getpid()))

@pytest.mark.gpu_memory(max_peak="1 MiB")
def test_memory():
    torch.empty(2 << 20, dtype=torch.uint8, device="cuda")

def test_not_computed():
    some = torch.ones(3, device="cuda")
    torch.ops.neap_values.mark_unknown(some, True)
    assert some.sum() == 4

def test_refused():
    assert ctypes.CDLL(f"libcudart.so.{torch.version.cuda[:2]}").cudaMallocArray(None, None, 1, 1, 0) != 0
"""


class Pytest(Folder):
    def pytest(self, *words, code=None, status=0, **more):
        """As a user types it, outside the simulator's environment."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("NEAP", "CUDA"))}
        environment.update(PYTHONPATH=str(pathlib.Path(neap.__file__).parents[1]), PYTEST_PLUGINS="neap.pytest_plugin", COLUMNS="200", TMPDIR=self.folder, **more)
        start = ["-c", code] if code else ["-m", "pytest"]
        command = [sys.executable, *start, "-p", "no:cacheprovider", *words]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_devices(self):
        """By the command that docs/ci.md has for other people's CI."""
        text = pathlib.Path(os.environ["NEAP_SOURCE"], "docs", "ci.md").read_text(encoding="utf-8")
        blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
        jobs = [job for block in blocks if isinstance(block, dict) for job in block.get("jobs", {}).values()]
        (words,) = [step["run"].split() for job in jobs for step in job["steps"] if step.get("run", "").startswith("pytest ")]
        self.assertEqual(words, ["pytest", "--neap-gpu=2xh100-80gb"])
        pathlib.Path(self.folder, "test_it.py").write_text(DEVICES)
        shown = self.pytest("--neap-gpu=2xt4-16gb", "-rA", status=1, CUDA_VISIBLE_DEVICES="GPU-1")
        self.assertIn("neap: simulated Tesla T4 \N{MULTIPLICATION SIGN}2, values full\n", shown)
        self.assertIn("PASSED test_it.py::test_values", shown)
        self.assertIn("FAILED test_it.py::test_memory - Failed: held 2.00 MiB of device memory at once", shown)
        self.assertIn("\nsome of test_not_computed (test_it.py:17), cuda:0\n", shown)
        self.assertRegex(shown, r"=== neap: not computed by the simulator ===+\ncudart cudaMallocArray: not supported\nA test that passed")
        self.assertEqual(list(pathlib.Path(self.folder).glob("neap-pytest-*")), [])
        self.assertEqual(list(pathlib.Path("/dev/shm").glob("neap-sim-*-pytest-" + pathlib.Path(self.folder, "pid").read_text())), [])

    def test_what_is_no_device(self):
        for spec, why in {
            "h100-81gb": "'h100-81gb' is neither a profile (see `neap sim profiles`) nor key=value; profiles: h100-80gb, h200-141gb, ",
            "": "nothing is named; profiles: h100-80gb, h200-141gb, ",
            "h100-80gb,": "an empty word; expected a profile or key=value",
            "99xh100-80gb": "'99xh100-80gb': expected 1 to 16 devices",
            "mem=1GiB,world=../x": "'world=../x': a world's name is 1 to 63 of A-Z a-z 0-9",
            "values=some": "'values=some': expected none, auto or full",
        }.items():
            with self.subTest(spec=spec):
                self.assertIn(f"ERROR: --neap-gpu={spec}: {why}", self.pytest("--neap-gpu", spec, status=4))

    def test_too_late(self):
        code = "import pytest, sys, types; sys.modules['torch'] = types.ModuleType('torch'); sys.exit(pytest.main(['--neap-gpu=t4-16gb']))"
        self.assertIn('type this first, in the same shell: eval "$(neap sim env)"', self.pytest(code=code, status=4))

    def test_the_marker(self):
        pathlib.Path(self.folder, "test_it.py").write_text(PYTEST)
        command = [sys.executable, "-m", "pytest", "-p", "neap.pytest_plugin", "-p", "no:cacheprovider", "-rA", "--strict-markers"]
        environment = {**os.environ, "NEAP_SIM": f"mem=1GiB,world=pytest-{os.getpid()}", "COLUMNS": "200"}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        for path in pathlib.Path("/dev/shm").glob(f"neap-sim-*-pytest-{os.getpid()}"):
            path.unlink(missing_ok=True)
        for name in ("within", "keeps_nothing", "closes_what_was_there", "without_a_device", "unlimited"):
            self.assertIn(f"PASSED test_it.py::test_{name}", done.stdout)
        self.assertIn("FAILED test_it.py::test_over - Failed: held 70.0 MiB of device memory at once, over its limit of 64.0 MiB", done.stdout)
        self.assertIn("FAILED test_it.py::test_over_and_closed - Failed: held 80.0 MiB of device memory at once", done.stdout)
        self.assertIn("FAILED test_it.py::test_fails_by_itself - assert 1 == 2", done.stdout)
        self.assertIn("gpu_memory: size 'much': expected a number and a unit", done.stdout)
        both = "held 70.0 MiB of device memory at once, over its limit of 64.0 MiB; keeps 70.0 MiB of device memory, over its limit of 1.00 MiB"
        self.assertIn(f"FAILED test_it.py::test_keeps - Failed: {both}", done.stdout)
        self.assertIn("test_unknown: gpu_memory takes max_peak='2 GiB', max_growth=0, or both", done.stdout)
        self.assertEqual(done.returncode, 1)


def forget_world():
    for path in pathlib.Path("/dev/shm").glob(f"neap-sim-*-integrations-{os.getpid()}"):
        path.unlink(missing_ok=True)


@LONG
class Examples(Folder):
    """examples/with_lightning.py and with_transformers.py print what docs/python.md shows."""

    def run_example(self, name, memory):
        script = pathlib.Path(os.environ["NEAP_SOURCE"], "examples", name)
        environment = {**os.environ, "NEAP_SIM": f"mem={memory},world=example-{os.getpid()}"}
        done = subprocess.run([sys.executable, script], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=500)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_lightning(self):
        shown = self.run_example("with_lightning.py", "2GiB")
        self.assertIn("epoch 3  allocated  606 MiB, reserved  710 MiB, peak  683 MiB\n", shown)
        self.assertEqual(shown.count("<ClearResult: gave back 66.0 MiB"), 3, shown)

    def test_transformers(self):
        shown = self.run_example("with_transformers.py", "1GiB")
        self.assertIn("batch 32 does not fit; the cleanup after it: <ClearResult: gave back 966 MiB", shown)
        self.assertIn("batch 16 with accumulation 4 fits:\nstart ", shown)


if __name__ == "__main__":
    unittest.addModuleCleanup(forget_world)
    unittest.main(warnings="ignore")
