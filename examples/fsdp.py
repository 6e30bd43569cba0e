"""An ordinary distributed script: a transformer whose parameters, gradients and optimizer state are sharded over the ranks by
PyTorch's FSDP (fully_shard). It knows nothing of neap:

    neap estimate --gpu 8xa100-40gb -- torchrun --nproc-per-node 8 examples/fsdp.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a rank")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    layer = nn.TransformerEncoderLayer(options.width, options.width // 64, 4 * options.width, batch_first=True)
    model = nn.TransformerEncoder(layer, options.layers)
    for block in model.layers:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(1, options.steps + 1):
        x = torch.randn(options.batch, options.context, options.width, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
