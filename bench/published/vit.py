"""Fine-tuning of torchvision's ViT-L/16 for 10 classes of images of 224 x 224.

usage: vit.py [--batch N] [--precision fp32|fp16-mixed|bf16] [--optimizer adam|sgd] [--accumulate N]

Does what rasbt/pytorch-memory-optim measures, with Lightning Fabric's precisions. An evaluation of a batch follows
the updates. Prints the peaks.
"""

import argparse
import contextlib

import torch
import torch.nn.functional as F
import torchvision


def build(options):
    model = torchvision.models.vit_l_16()
    model.heads.head = torch.nn.Linear(1024, 10)
    if options.precision == "bf16":
        model.to(torch.bfloat16)
    return model.to("cuda").train()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=["fp32", "fp16-mixed", "bf16"], default="fp32")
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--accumulate", type=int, default=1)
    options = parser.parse_args()
    model = build(options)
    optimizer = (torch.optim.Adam if options.optimizer == "adam" else torch.optim.SGD)(model.parameters(), lr=5e-5)
    scaler = torch.amp.GradScaler("cuda", enabled=options.precision == "fp16-mixed")

    def mixed():
        return torch.autocast("cuda", torch.float16) if scaler.is_enabled() else contextlib.nullcontext()

    def batch():
        images = torch.empty(options.batch, 3, 224, 224)
        return images.to("cuda"), torch.zeros(options.batch, dtype=torch.long).to("cuda")

    weights = next(model.parameters()).dtype
    for i in range(5 * options.accumulate):
        images, labels = batch()
        with mixed():
            logits = model(images.to(weights)).float()
            loss = F.cross_entropy(logits, labels) / options.accumulate
        if options.accumulate == 1:
            optimizer.zero_grad()
        scaler.scale(loss).backward()
        if i % options.accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            if options.accumulate > 1:
                optimizer.zero_grad()
    model.eval()
    with torch.no_grad(), mixed():
        model(batch()[0].to(weights))
    print("max_memory_allocated", torch.cuda.max_memory_allocated())
    print("max_memory_reserved", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
