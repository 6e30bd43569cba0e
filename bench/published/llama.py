"""Llama 3.1 8B as torchtitan trains it: FSDP2, checkpoints that keep chosen operations, compiled blocks.

usage: llama.py [--batch N] [--sequence N] [--compile]

Does what benchmarks/llama3_h100_202412_torchtitan.md of pytorch/torchtitan measures, at the commits that it names:
float32 weights, gathered in bfloat16, gradients reduced in float32, AdamW, norms of gradients clipped. The process is
rank 0 of all. Prints the most memory reserved after the model was made.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 4096
LAYERS = 32
HEADS = 32
KEYS = 8
BETWEEN = 14336
WORDS = 128256


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def normed(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)

    def forward(self, x):
        return self.normed(x.float()).type_as(x) * self.weight


def turn(x, angles):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles[: x.shape[1]].view(1, x.shape[1], 1, -1)).flatten(3)


def repeat(x, times):
    batch, length, heads, width = x.shape
    return x[:, :, :, None].expand(batch, length, heads, times, width).reshape(batch, length, heads * times, width)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = WIDTH // HEADS
        self.times = HEADS // KEYS
        self.wq = linear(WIDTH, WIDTH)
        self.wk = linear(WIDTH, KEYS * self.head)
        self.wv = linear(WIDTH, KEYS * self.head)
        self.wo = linear(WIDTH, WIDTH)

    def rotated(self, q, k, angles):
        q_turned = turn(q, angles)
        k_turned = turn(k, angles)
        return q_turned.type_as(q), k_turned.type_as(k)

    def forward(self, x, angles):
        batch, length, _ = x.shape
        q, k, v = (layer(x) for layer in (self.wq, self.wk, self.wv))
        q, k, v = (part.view(batch, length, -1, self.head) for part in (q, k, v))
        q, k = self.rotated(q, k, angles)
        keys = repeat(k, self.times)
        values = repeat(v, self.times)
        q, k, v = (part.transpose(1, 2) for part in (q, keys, values))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous()
        mixed = mixed.view(batch, length, -1)
        return self.wo(mixed)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = linear(WIDTH, BETWEEN)
        self.w2 = linear(BETWEEN, WIDTH)
        self.w3 = linear(WIDTH, BETWEEN)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.feed_forward = FeedForward()
        self.attention_norm = Norm()
        self.ffn_norm = Norm()

    def forward(self, x, angles):
        h = x + self.attention(self.attention_norm(x), angles)
        return h + self.feed_forward(self.ffn_norm(h))


class Model(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
        self.register_buffer("angles", torch.zeros(length, WIDTH // HEADS // 2, dtype=torch.complex64))
        self.layers = nn.ModuleDict({str(i): Block() for i in range(LAYERS)})
        self.norm = Norm()
        self.output = linear(WIDTH, WORDS)

    def forward(self, x):
        h = self.tok_embeddings(x)
        for layer in self.layers.values():
            h = layer(h, self.angles)
        return self.output(self.norm(h))


def kept_operations():
    """A context in which a checkpoint keeps attention, sums of all ranks, and every second product of matrices."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    aten = torch.ops.aten
    kept = {aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_flash_attention.default,
            torch.ops._c10d_functional.reduce_scatter_tensor.default, aten.abs.default, aten.max.default}
    products = {False: 0, True: 0}

    def policy(context, function, *arguments, **named):
        keep = function in kept
        if function == aten.mm.default:
            products[context.is_recompute] += 1
            keep = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def shard(model):
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for i, block in enumerate(model.layers.values()):
        fully_shard(block, mp_policy=policy, reshard_after_forward=i < len(model.layers) - 1)
    fully_shard(model, mp_policy=policy, reshard_after_forward=True)


def build(options):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    with torch.device("meta"):
        model = Model(options.sequence)
    for name, block in model.layers.items():
        block = checkpoint_wrapper(block, preserve_rng_state=False, context_fn=kept_operations)
        model.layers[name] = torch.compile(block, fullgraph=True) if options.compile else block
    shard(model)
    model.to_empty(device="cuda")
    return model.train()


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=8192)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.distributed.init_process_group()
    model = build(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        words, targets = (torch.randint(0, WORDS, (options.batch, options.sequence)).to("cuda") for _ in range(2))
        optimizer.zero_grad()
        logits = model(words)
        loss = loss_of(logits, targets)
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
    print("max_memory_reserved", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
