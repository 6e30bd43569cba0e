"""neap's callback in a training with transformers' Trainer, which catches an out-of-memory error and continues with half the batch.
GPT-2 is made from its configuration alone, so that nothing is downloaded.

    neap run -- python examples/with_transformers.py
"""

import os
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import torch
import transformers
from neap.integrations.transformers import MemoryCallback

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def train(batch, accumulation):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=8192))
    tokens = torch.randint(8192, (512, 256))
    callback = MemoryCallback(cleanup_every_epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, num_train_epochs=2, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
            save_strategy="no", logging_strategy="no", report_to=[])
        trainer = transformers.Trainer(model, arguments, callbacks=[callback],
                                       train_dataset=[{"input_ids": row, "labels": row} for row in tokens])
        try:
            trainer.train()
        except torch.OutOfMemoryError as error:
            callback.watch.failed(error)  # frees what the traceback holds, and empties the cache
    return callback.watch


def main():
    batch = 64
    accumulation = 1
    while (watch := train(batch, accumulation)).out_of_memory:
        print(f"batch {batch} does not fit; the cleanup after it: {watch.out_of_memory}")
        batch, accumulation = batch // 2, accumulation * 2
    print(f"batch {batch} with accumulation {accumulation} fits:")
    for name, stats in watch.marks:
        print(f"{name:8} allocated {stats.allocated >> 20:4} MiB, reserved {stats.reserved >> 20:4} MiB, "
              f"peak {stats.max_allocated >> 20:4} MiB")


if __name__ == "__main__":
    main()
