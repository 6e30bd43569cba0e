"""GPT-2's smallest model as a textbook writes it, trained, evaluated and made to write a sentence, in grades of optimisation.

usage: gpt.py [--mask buffer|made] [--fused] [--bf16] [--native] [--flash]

Does what chapter 5's "PyTorch Performance Tips for Faster LLM Training" of rasbt/LLMs-from-scratch measures: 12
layers of width 768, 1024 tokens, dropout 0.1, AdamW, an evaluation every 15 updates, a sentence of 50 words at the
end of an epoch (of 51 updates there, of 17 here). Prints the bytes allocated and reserved then.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

WORDS = 50257
BATCH = 8
CONTEXT = 1024
WIDTH = 768
HEADS = 12
DROPOUT = 0.1


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.shift = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = x.var(-1, keepdim=True, unbiased=False)
        normed = (x - mean) / torch.sqrt(variance + 1e-5)
        return self.scale * normed + self.shift


class Gelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(torch.sqrt(torch.tensor(2.0 / math.pi)) * (x + 0.044715 * torch.pow(x, 3))))


class Attention(nn.Module):
    """Attention with its scores in memory."""

    def __init__(self, mask):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        if mask == "buffer":
            self.register_buffer("mask", torch.triu(torch.ones(CONTEXT, CONTEXT), diagonal=1))

    def masked(self, length, device):
        if hasattr(self, "mask"):
            return self.mask.bool()[:length, :length]
        return torch.triu(torch.ones(length, length, dtype=torch.bool, device=device), diagonal=1)

    def forward(self, x):
        key, query, value = (layer(x) for layer in (self.key, self.query, self.value))
        key, query, value = (part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in (key, query, value))
        scores = query @ key.transpose(2, 3)
        masked = self.masked(x.shape[1], x.device)
        scores.masked_fill_(masked, -torch.inf)
        weights = torch.softmax(scores / key.shape[-1] ** 0.5, dim=-1)
        weights = self.dropout(weights)
        mixed = (weights @ value).transpose(1, 2)
        mixed = mixed.reshape(x.shape)
        return self.out(mixed)


class FlashAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.all = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        query, key, value = self.all(x).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=DROPOUT if self.training else 0.0, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous().view(x.shape)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.attention = FlashAttention() if options.flash else Attention(options.mask)
        gelu = nn.GELU(approximate="tanh") if options.native else Gelu()
        self.inner = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), gelu, nn.Linear(4 * WIDTH, WIDTH))
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH) if options.native else Norm() for _ in range(2))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        kept = x
        x = self.norm1(x)
        x = self.attention(x)
        x = self.dropout(x)
        x = x + kept
        kept = x
        x = self.norm2(x)
        x = self.inner(x)
        x = self.dropout(x)
        return x + kept


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*[Block(options) for _ in range(12)])
        self.norm = nn.LayerNorm(WIDTH) if options.native else Norm()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        embedded = self.words(words)
        places = self.places(torch.arange(words.shape[1], device=words.device))
        x = embedded + places
        x = self.dropout(x)
        x = self.blocks(x)
        x = self.norm(x)
        return self.head(x)


def loss_of(model, words, targets):
    words, targets = words.to("cuda"), targets.to("cuda")
    logits = model(words)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def evaluate(model, batch):
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            loss_of(model, *batch).item()
    model.train()


def write(model):
    model.eval()
    words = torch.randint(0, WORDS, (1, 4)).to("cuda")
    with torch.no_grad():
        for _ in range(50):
            with torch.no_grad():
                logits = model(words)
            logits = logits[:, -1, :]
            following = torch.argmax(logits, dim=-1, keepdim=True)
            words = torch.cat((words, following), dim=1)
    model.train()


def build(options):
    model = Model(options)
    model.to("cuda")
    if options.bf16:
        model.to(torch.bfloat16)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mask", choices=["buffer", "made"], default="buffer")
    for name in "fused", "bf16", "native", "flash":
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    model = build(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.1, fused=options.fused or None)
    batch = [torch.randint(0, WORDS, (BATCH, CONTEXT)) for _ in range(2)]
    for update in range(17):
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        if update % 15 == 0:
            evaluate(model, batch)
    write(model)
    print("memory_allocated", torch.cuda.memory_allocated())
    print("memory_reserved", torch.cuda.memory_reserved())


if __name__ == "__main__":
    main()
