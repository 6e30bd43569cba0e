"""A textbook decoder-only transformer, with every operation written out: RMSNorm, rotary positions, attention with
its scores in memory, SwiGLU, and an AdamW that makes new tensors in each update. bench/estimate.py compares its
memory on neap's simulator with recordings of such a model on real GPUs.
"""

import argparse
import contextlib
import math

import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.weight)


class Embedding(nn.Module):
    def __init__(self, letters, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(letters, width))

    def forward(self, tokens):
        return self.weight[tokens, :]


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        given = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(given)


class Rotary(nn.Module):
    def __init__(self, context, width):
        super().__init__()
        frequencies = 10000 ** -(torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(context), frequencies)
        self.register_buffer("table", torch.stack((torch.cos(angles), torch.sin(angles))), persistent=False)

    def forward(self, x):
        first, second = x.reshape(*x.shape[:-1], -1, 2).movedim(-1, 0)
        cos, sin = self.table[:, : x.shape[-2]]
        turned = cos * first - sin * second
        other = sin * first + cos * second
        return torch.stack((turned, other), dim=-1).reshape(x.shape)


def softmax(x):
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    powers = torch.exp(shifted)
    return powers / torch.sum(powers, dim=-1, keepdim=True)


def attend(query, key, value, mask):
    scores = torch.einsum("...qd,...kd->...qk", query, key) / math.sqrt(key.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, value)


class Attention(nn.Module):
    def __init__(self, width, heads, rotary):
        super().__init__()
        self.heads = heads
        self.rotary = rotary
        self.query, self.key, self.value, self.out = (Linear(width, width) for _ in range(4))

    def forward(self, x):
        q = self.query(x)
        k = self.key(x)
        v = self.value(x)
        q, k, v = (part.reshape(*part.shape[:-1], self.heads, -1).transpose(-3, -2) for part in (q, k, v))
        q = self.rotary(q)
        k = self.rotary(k)
        places = torch.arange(x.shape[-2], device=x.device)
        mask = places[:, None] >= places[None, :]
        attended = attend(q, k, v, mask[None, None])
        attended = attended.transpose(-3, -2).reshape(x.shape)
        return self.out(attended)


def silu(x):
    return x * torch.sigmoid(x)


class SwiGLU(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate = Linear(width, inner)
        self.down = Linear(inner, width)
        self.up = Linear(width, inner)

    def forward(self, x):
        return self.down(silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width, heads, inner, rotary):
        super().__init__()
        self.attention = Attention(width, heads, rotary)
        self.mlp = SwiGLU(width, inner)
        self.norm1 = RMSNorm(width)
        self.norm2 = RMSNorm(width)

    def forward(self, x):
        attended = self.attention(self.norm1(x))
        between = x + attended
        inner = self.mlp(self.norm2(between))
        return between + inner


class Model(nn.Module):
    def __init__(self, letters, context, width, layers, heads, inner):
        super().__init__()
        self.rotary = Rotary(context, width // heads)
        self.embedding = Embedding(letters, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner, self.rotary) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = Linear(width, letters)

    def forward(self, tokens):
        embedded = self.embedding(tokens)  # held to the end, as in the recorded runs
        x = embedded
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x)


def log_softmax(x):
    highest = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - highest
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def cross_entropy(logits, targets):
    shares = -log_softmax(logits)
    return torch.gather(shares, -1, targets.unsqueeze(-1)).mean()


class AdamW(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-3})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                gradient = p.grad.data
                p.data -= p.data * 1e-5
                first = state.get("first", torch.zeros_like(gradient))
                second = state.get("second", torch.zeros_like(gradient))
                new_first = 0.9 * first + 0.1 * gradient
                new_second = 0.999 * second + 0.001 * gradient**2
                p.data -= 1e-3 * new_first / (torch.sqrt(new_second) + 1e-8)
                state["first"] = new_first
                state["second"] = new_second


def train(model, optimizer, precision, tokens, targets):
    optimizer.zero_grad()
    with precision:
        logits = model(tokens)
        loss = cross_entropy(logits, targets)
    loss.backward()
    optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--inference", action="store_true")
    options = parser.parse_args()
    model = Model(10000, options.context, 1024, 24, 16, 4096).to("cuda")
    optimizer = AdamW(model.parameters())
    tokens, targets = (torch.randint(0, 10000, (options.batch, options.context), device="cuda") for _ in range(2))
    model.requires_grad_(not options.inference)  # autocast keeps copies of parameters that require gradients
    precision = torch.autocast("cuda", torch.bfloat16) if options.bf16 else contextlib.nullcontext()
    for _ in range(options.steps):
        if options.inference:
            with torch.no_grad(), precision:
                model(tokens)
        else:
            train(model, optimizer, precision, tokens, targets)


if __name__ == "__main__":
    main()
