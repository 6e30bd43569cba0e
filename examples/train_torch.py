"""An ordinary PyTorch script: a small character-level transformer, trained on a text. It knows nothing of neap:

    neap run -- python examples/train_torch.py
    neap run --param batch=64 --param accumulate=1 --on-oom 'halve batch, double accumulate' -- \\
        python examples/train_torch.py --batch {batch} --accumulate {accumulate}

On the GPU where there is one, else on the CPU.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, letters, context, width, layers, heads):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters)

    def forward(self, x):
        x = self.letters(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=16, help="sequences in a micro-batch")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches in a step")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    options = parser.parse_args()

    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with open(options.text, encoding="utf-8") as file:
        text = file.read()
    letters = sorted(set(text))
    data = torch.tensor([letters.index(letter) for letter in text], device=device)
    model = Model(len(letters), options.context, options.width, options.layers, options.heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(2)

    began = time.monotonic()
    for step in range(1, options.steps + 1):
        total = 0.0
        optimizer.zero_grad(set_to_none=True)
        for _ in range(options.accumulate):
            begins = torch.randint(len(data) - options.context - 1, (options.batch,), generator=generator).tolist()
            x = torch.stack([data[i : i + options.context] for i in begins])
            y = torch.stack([data[i + 1 : i + options.context + 1] for i in begins])
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / options.accumulate
            loss.backward()
            total += loss.item()
        optimizer.step()
        if step == 1 or step % 10 == 0:
            print(f"step {step}: loss {total:.4f}", flush=True)
    print(f"{options.steps} steps on {device}", flush=True)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
