"""One update of Qwen 3.5's text model (transformers, made from its sizes): all weights, LoRA or QLoRA, on one GPU or sharded.

usage: qwen.py --size 0.8|2 --method full|lora|qlora [--sequence N] [--checkpointing] [--accumulate N] [--nested]
               [--shard fsdp|fsdp2]

Does what FakeGPU's published measurements do (docs/llm-sft-memory-estimation.md of FanBB2333/FakeGPU): bfloat16,
batch 1, labels for the second half of the tokens, AdamW one tensor at a time, LoRA of rank 8 in float32 beside every
linear layer but the output's. QLoRA keeps two codes a byte with a scale for 64 weights, and makes one layer's weights
at a time. Prints the peak since the model was loaded.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen3_5ForCausalLM
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

SIZES = {"0.8": {"hidden_size": 1024, "intermediate_size": 3584}, "2": {"hidden_size": 2048, "intermediate_size": 6144}}


class Lora(nn.Module):
    """The two matrices of LoRA as peft computes them: in float32, scaled."""

    def __init__(self, inputs, outputs, rank=8):
        super().__init__()
        self.a = nn.Parameter(torch.empty(rank, inputs))
        self.b = nn.Parameter(torch.zeros(outputs, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x):
        return F.linear(F.linear(x.to(self.a.dtype), self.a), self.b)


class LoraLinear(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.lora = Lora(base.in_features, base.out_features)

    def forward(self, x):
        result = self.base(x)
        return (result + self.lora(x) * 2).to(result.dtype)


class Unpacked(torch.autograd.Function):
    """A product with weights that exist only while it is computed, in both directions."""

    @staticmethod
    def forward(ctx, x, packed):
        ctx.packed = packed
        return F.linear(x, packed.weights(x.dtype))

    @staticmethod
    def backward(ctx, gradient):
        return torch.matmul(gradient, ctx.packed.weights(gradient.dtype)), None


class Packed(nn.Module):
    """A frozen linear layer of 4 bits a weight; nested: its scales have 8 bits, with a scale of 32 bits for 256 of
    them."""

    def __init__(self, base, nested):
        super().__init__()
        self.shape = base.weight.shape
        scales = base.weight.numel() // 64
        self.nested = nested
        self.register_buffer("codes", torch.zeros(base.weight.numel() // 2, dtype=torch.uint8))
        self.register_buffer("pairs", torch.zeros(256, 2, dtype=base.weight.dtype))
        self.register_buffer("scales", torch.zeros(scales, dtype=torch.uint8 if nested else torch.float32))
        if nested:
            self.register_buffer("outer", torch.zeros(-(-scales // 256)))
            self.register_buffer("offset", torch.zeros(()))
            self.register_buffer("levels", torch.zeros(256, 1))
        self.lora = Lora(base.in_features, base.out_features)

    def scale(self):
        if not self.nested:
            return self.scales
        codes = self.scales.to(torch.int32)
        values = F.embedding(codes, self.levels).reshape(-1)
        del codes
        outer = self.outer.repeat_interleave(256)[: self.scales.numel()]
        return values.mul_(outer).add_(self.offset)

    def weights(self, dtype):
        scales = self.scale().to(dtype)
        codes = self.codes.to(torch.int32)
        values = F.embedding(codes, self.pairs).reshape(-1)
        del codes
        return (values.view(-1, 64) * scales.unsqueeze(1)).view(self.shape)

    def forward(self, x):
        result = Unpacked.apply(x, self)
        return result + self.lora(x).to(result.dtype) * 2


def adapt(model, method, nested):
    """Puts LoRA beside every linear layer but the output's."""
    model.requires_grad_(False)
    for module in list(model.model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, LoraLinear(child) if method == "lora" else Packed(child, nested))


def build(options):
    config = Qwen3_5TextConfig(
        vocab_size=248320, num_hidden_layers=24, num_attention_heads=8, num_key_value_heads=2, head_dim=256,
        linear_num_key_heads=16, linear_num_value_heads=16, tie_word_embeddings=True, use_cache=False, **SIZES[options.size])
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = Qwen3_5ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.to_empty(device="cpu")  # weights as a checkpoint's: nothing is drawn
    model.tie_weights()
    if options.method != "full":
        adapt(model, options.method, options.nested)
    if options.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if options.method != "full":
            model.enable_input_require_grads()
    return model.train()


def shard(model, how):
    torch.distributed.init_process_group()
    layers = model.model.layers
    if how == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        return FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({type(layers[0])}), device_id=torch.device("cuda", 0),
            sharding_strategy=ShardingStrategy.FULL_SHARD, backward_prefetch=None, forward_prefetch=False, limit_all_gathers=True)
    from torch.distributed.fsdp import fully_shard

    model.to("cuda")
    for layer in layers:
        fully_shard(layer, reshard_after_forward=True)
    return fully_shard(model, reshard_after_forward=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--method", choices=["full", "lora", "qlora"], required=True)
    parser.add_argument("--sequence", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--nested", action="store_true")
    parser.add_argument("--shard", choices=["fsdp", "fsdp2"])
    options = parser.parse_args()
    model = build(options)
    model = shard(model, options.shard) if options.shard else model.to("cuda")
    batches = []
    for _ in range(options.accumulate):
        words = torch.randint(100, 248320, (1, options.sequence))
        labels = words.clone()
        labels[:, : options.sequence // 2] = -100
        places = torch.arange(options.sequence).view(1, 1, -1).expand(3, 1, -1).clone()
        batches.append({"input_ids": words.to("cuda"), "labels": labels.to("cuda"), "position_ids": places.to("cuda")})
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, foreach=False)
    torch.cuda.reset_peak_memory_stats()
    for i, batch in enumerate(batches):
        outputs = model(**batch, use_cache=False)
        loss = outputs.loss / options.accumulate
        loss.backward()
        loss.detach().float().cpu().item()
        if i + 1 < len(batches):
            del outputs, loss
    optimizer.step()
    print("max_memory_allocated", torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main()
