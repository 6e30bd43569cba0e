"""An ordinary script with transformers: GPT-2, made from its configuration alone, so that nothing is downloaded; whole, or as
a LoRA fine-tuning, in which the model is frozen and small matrices beside its projections learn. It knows nothing of neap:

    neap estimate -- python examples/gpt2.py --batch 8
    neap estimate -- python examples/gpt2.py --batch 8 --lora 16
"""

import argparse

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


class Lora(nn.Module):
    """A frozen projection, and beside it a low-rank one that learns."""

    def __init__(self, frozen, inputs, outputs, rank):
        super().__init__()
        self.frozen = frozen
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.frozen(x) + self.up(self.down(x))


def add_lora(model, rank):
    model.requires_grad_(False)
    width = model.config.n_embd
    for block in model.transformer.h:
        block.attn.c_attn = Lora(block.attn.c_attn, width, 3 * width, rank)
        block.attn.c_proj = Lora(block.attn.c_proj, width, width, rank)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--lora", type=int, default=0, help="rank; 0: the whole model learns")
    parser.add_argument("--checkpointing", type=int, choices=(0, 1), default=0)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT2LMHeadModel(GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=options.width // 64))
    if options.lora:
        add_lora(model, options.lora)
    if options.checkpointing:
        model.gradient_checkpointing_enable()
    model.to(device).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    for step in range(1, options.steps + 1):
        tokens = torch.randint(model.config.vocab_size, (options.batch, options.context), device=device)
        with torch.autocast(device, torch.bfloat16, enabled=options.precision == "bf16"):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
