"""Fine-tuning of timm's ViTs for 45 classes of images of 224 x 224, with optimizers of 32 and of 8 bits.

usage: adam.py MODEL [--batch N] [--optimizer adam|adamw|adamw8bit] [--bf16] [--checkpointing]

Does what pytorch/ao's benchmark of low-bit optimizers does, with autocast to bfloat16; --bf16: weights, gradients and
state in bfloat16. Prints the peak of four updates.
"""

import argparse
import contextlib
import functools

import timm
import torch
import torch.nn.functional as F


def choose(name):
    if name == "adam":
        return torch.optim.Adam
    if name == "adamw":
        return functools.partial(torch.optim.AdamW, fused=True)
    import bitsandbytes

    return bitsandbytes.optim.AdamW8bit


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--optimizer", choices=["adam", "adamw", "adamw8bit"], default="adamw")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--checkpointing", action="store_true")
    options = parser.parse_args()
    model = timm.create_model(options.model, num_classes=45, img_size=224)
    model.set_grad_checkpointing(options.checkpointing)
    kind = torch.bfloat16 if options.bf16 else torch.float32
    model = model.to(kind).to("cuda").train()
    optimizer = choose(options.optimizer)(model.parameters(), lr=1e-4, weight_decay=0)
    for _ in range(4):
        images = torch.empty(options.batch, 3, 224, 224, dtype=kind)
        labels = torch.zeros(options.batch, dtype=torch.long)
        with contextlib.nullcontext() if options.bf16 else torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(images.to("cuda")), labels.to("cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("max_memory_allocated", torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main()
