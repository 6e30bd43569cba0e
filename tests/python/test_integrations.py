"""The callbacks inside the real Lightning and transformers, on the CPU; the pytest marker over the simulator."""

import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

warnings.filterwarnings("ignore")
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", CUDA_VISIBLE_DEVICES="", TOKENIZERS_PARALLELISM="false")
import torch

logging.disable(logging.WARNING)


def names(callback):
    return [name for name, _ in callback.watch.marks]


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name


class Lightning(Folder):
    def fit(self, callback, fails=False, **options):
        import lightning.pytorch as pl

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def training_step(self, batch, index):
                if fails and self.global_step == 1:
                    raise torch.OutOfMemoryError("CUDA out of memory.")
                return self.layer(batch[0]).pow(2).mean()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(8, 4)), batch_size=2)
        trainer = pl.Trainer(
            max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=not fails, default_root_dir=self.folder, callbacks=[callback], **options,
        )
        trainer.fit(Module(), data)

    def test_instants(self):
        from neap.integrations.lightning import MemoryCallback

        callback = MemoryCallback(cleanup_every_steps=2, cleanup_every_epochs=2, clear_memory_after_save=True)
        self.fit(callback, accumulate_grad_batches=2)
        self.assertEqual([n for n in names(callback) if n != "saved"], ["start", "epoch 1", "epoch 2", "end"])
        self.assertIn("saved", names(callback))
        saves = names(callback).count("saved")
        self.assertEqual(len(callback.watch.cleanups), 1 + 2 + 1 + saves + 1)  # 4 steps: 2 updates an epoch

    def test_out_of_memory(self):
        from neap.integrations.lightning import MemoryCallback

        callback = MemoryCallback()
        with self.assertRaises(torch.OutOfMemoryError):
            self.fit(callback, fails=True)
        self.assertIsNotNone(callback.watch.out_of_memory)
        self.assertEqual(names(callback), ["start", "oom"])

    def test_what_fails_of_ours_is_a_note(self):
        import neap
        from neap.integrations.lightning import MemoryCallback

        callback = MemoryCallback(cleanup_every_steps=1)
        with unittest.mock.patch.object(neap.memory, "clear_gpu_memory", lambda: 1 / 0):
            self.fit(callback)
        self.assertEqual((callback.watch.cleanups, names(callback)[-1]), ([], "end"))
        self.assertIn("callback: ZeroDivisionError: division by zero", neap.describe())

    def test_wrong_options(self):
        from neap.integrations.lightning import MemoryCallback

        with self.assertRaises(ValueError):
            MemoryCallback(cleanup_every_steps=-1)


class HuggingFace(Folder):
    def test_instants(self):
        import transformers

        from neap.integrations.transformers import MemoryCallback

        config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8)
        samples = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(8)]
        callback = MemoryCallback(cleanup_every_steps=2)
        arguments = transformers.TrainingArguments(
            output_dir=self.folder, num_train_epochs=2, per_device_train_batch_size=2, gradient_accumulation_steps=2,
            save_strategy="epoch", report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no",
        )
        model = transformers.GPT2LMHeadModel(config)
        transformers.Trainer(model=model, args=arguments, train_dataset=samples, callbacks=[callback]).train()
        self.assertEqual(names(callback), ["start", "epoch 1", "saved", "epoch 2", "saved", "end"])
        self.assertEqual(len(callback.watch.cleanups), 1 + 2 + 1)


PYTEST = """
import neap, pytest

@pytest.fixture
def allocator():
    with neap.Allocator() as allocator:
        kept = allocator.malloc(100 << 20)
        yield allocator

@pytest.mark.neap_limit("64 MiB")
def test_within(allocator):
    allocator.free(allocator.malloc(60 << 20))

@pytest.mark.neap_limit("64 MiB")
def test_over(allocator):
    allocator.free(allocator.malloc(70 << 20))

@pytest.mark.neap_limit("64 MiB")
def test_fails_by_itself(allocator):
    allocator.free(allocator.malloc(70 << 20))
    assert 1 == 2

@pytest.mark.neap_limit("64 MiB")
def test_over_and_closed(allocator):
    with neap.Allocator() as another:
        another.malloc(80 << 20)

@pytest.mark.neap_limit("64 MiB")
def test_closes_what_was_there(allocator):
    allocator.close()

@pytest.mark.neap_limit("1 B")
def test_without_a_device():
    pass

@pytest.mark.neap_limit("much")
def test_wrong():
    pass

def test_unlimited(allocator):
    allocator.malloc(70 << 20)
"""


class Pytest(Folder):
    def test_the_marker(self):
        pathlib.Path(self.folder, "test_it.py").write_text(PYTEST)
        command = [sys.executable, "-m", "pytest", "-p", "neap.pytest_plugin", "-p", "no:cacheprovider", "-rA", "--strict-markers"]
        environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        environment = {**environment, "NEAP_DEVICE": "sim", "NEAP_SIM": f"mem=1GiB,world=pytest-{os.getpid()}", "COLUMNS": "200"}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        for path in pathlib.Path("/dev/shm").glob(f"neap-sim-*-pytest-{os.getpid()}"):
            path.unlink(missing_ok=True)
        for name in ("within", "closes_what_was_there", "without_a_device", "unlimited"):
            self.assertIn(f"PASSED test_it.py::test_{name}", done.stdout)
        self.assertIn("FAILED test_it.py::test_over - Failed: held 70.0 MiB of device memory at once, over its limit of 64.0 MiB", done.stdout)
        self.assertIn("FAILED test_it.py::test_over_and_closed - Failed: held 80.0 MiB of device memory at once", done.stdout)
        self.assertIn("FAILED test_it.py::test_fails_by_itself - assert 1 == 2", done.stdout)
        self.assertIn("neap_limit: size 'much': expected a number and a unit", done.stdout)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
