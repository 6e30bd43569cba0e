"""Figures that others published about a GPU's memory, and the program here that does the same. bench/published.py
runs them.

Each row's source states the program and the figure, and most state the release. A figure is as it was printed, and
may be off by half a unit of its last digit. If a row allows more, it says why (cause).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    source: str  # a key of SOURCES
    place: str  # where in it
    kind: str  # of the model and the training
    device: str  # as published
    profile: str  # of neap, the same architecture
    torch: str  # as published; "": not stated
    program: str  # in bench/published, and its arguments
    published: str  # with its unit
    figure: str = "max_memory_allocated"  # what the program prints, or else a peak of the estimate
    before: tuple[int, int] | None = None  # releases of PyTorch for which it holds: before this one
    needs: tuple[str, ...] = ()  # packages that it needs besides PyTorch
    environment: str = ""
    ranks: int = 1
    within: float = 0.5  # percent, beyond the printed digits
    cause: str = ""


# A row's source names the page, and the commit or day that was read.
SOURCES = {
    "pytorch": "https://github.com/pytorch/pytorch/issues (its number)",
    "LLMs": "https://github.com/rasbt/LLMs-from-scratch, ch05/10_llm-training-speed/README.md",
    "mmaction2": "https://github.com/open-mmlab/mmaction2, configs/recognition/*/README.md at 3f3ad9ca (gpu_mem)",
    "torchtitan": "https://github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md",
    "memory": "https://github.com/rasbt/pytorch-memory-optim, logs.md",
    "torchao": "https://github.com/pytorch/ao, torchao/prototype/low_bit_optim/README.md at 03cf0ade",
    "FakeGPU": "https://github.com/FanBB2333/FakeGPU, docs/llm-sft-memory-estimation.md at 7d5cf83",
}


def convolution(issue, device, profile, program, figure, published, before=None, within=0.05, cause=""):
    return Row(
        "pytorch", issue, "convolution", device, profile, "", f"convolutions.py {program}", published, figure, before, within=within,
        cause=cause)


CONVOLUTIONS = [
    convolution("#95024", "A100", "a100-80gb", "volume 361", "max_memory_allocated", "12874233344 B"),
    convolution("#95024", "A100", "a100-80gb", "volume 361", "max_memory_reserved", "12880707584 B"),
    convolution("#95024", "A100", "a100-80gb", "volume 362", "asked_for", "108.21 GiB", (2, 5)),
    convolution("#95024", "A100", "a100-80gb", "volume 362", "max_memory_allocated", "6.01 GiB", (2, 5)),
    convolution("#128947", "A100", "a100-80gb", "frames 4", "memory_allocated", "7.993362903594971 GiB"),
    convolution("#128947", "A100", "a100-80gb", "frames 4", "max_memory_allocated", "17 GiB"),
    convolution("#128947", "A100", "a100-80gb", "frames 5", "asked_for", "161.37 GiB", (2, 5)),
    convolution("#132300", "not told", "h100-80gb", "video 128", "max_memory_allocated", "9.26 GiB", (2, 5)),
    *[
        convolution("#123533", "not told", "a100-80gb", "widths 10", f"memory_reserved.{1024 + 128 * i}", f"{reserved} GiB")
        for i, reserved in enumerate(["4.02", "5.52", "6.15", "6.77", "7.40", "8.02", "8.65", "9.27", "9.90", "10.52"])
    ],
]


def qwen(place, kind, arguments, published, device="RTX PRO 5000", **more):
    profile, torch = ("rtx5090-32gb", "2.8.0") if device == "RTX PRO 5000" else ("rtx3090-24gb", "2.12.1")
    return Row("FakeGPU", place, kind, device, profile, torch, f"qwen.py {arguments}", published, needs=("transformers",), **more)


QWEN_ONE = [
    qwen("RTX PRO 5000 matrix", kind, arguments, published)
    for kind, arguments, published in [
        ("decoder, full, accumulation", "--size 0.8 --method full --accumulate 2", "6.626 GiB"),
        ("decoder, full", "--size 0.8 --method full --sequence 128", "6.687 GiB"),
        ("decoder, full, checkpointing", "--size 0.8 --method full --sequence 128 --checkpointing", "6.679 GiB"),
        ("decoder, LoRA", "--size 0.8 --method lora", "1.756 GiB"),
        ("decoder, LoRA", "--size 0.8 --method lora --sequence 128", "2.696 GiB"),
        ("decoder, LoRA, checkpointing", "--size 0.8 --method lora --sequence 128 --checkpointing", "1.876 GiB"),
        ("decoder, full, accumulation", "--size 2 --method full --accumulate 2", "15.939 GiB"),
        ("decoder, LoRA", "--size 2 --method lora", "3.868 GiB"),
        ("decoder, LoRA", "--size 2 --method lora --sequence 128", "4.959 GiB"),
        ("decoder, LoRA, checkpointing", "--size 2 --method lora --sequence 128 --checkpointing", "3.974 GiB"),
        ("decoder, QLoRA", "--size 0.8 --method qlora", "1.072 GiB"),
        ("decoder, QLoRA", "--size 0.8 --method qlora --sequence 128", "2.007 GiB"),
        ("decoder, QLoRA, checkpointing", "--size 0.8 --method qlora --sequence 128 --checkpointing", "1.192 GiB"),
        ("decoder, QLoRA", "--size 2 --method qlora", "2.039 GiB"),
        ("decoder, QLoRA, checkpointing", "--size 2 --method qlora --sequence 128 --checkpointing", "2.136 GiB"),
        ("decoder, QLoRA", "--size 0.8 --method qlora --nested", "1.051 GiB"),
        ("decoder, QLoRA", "--size 0.8 --method qlora --nested --sequence 128", "1.986 GiB"),
        ("decoder, QLoRA, checkpointing", "--size 0.8 --method qlora --nested --sequence 128 --checkpointing", "1.171 GiB"),
        ("decoder, QLoRA", "--size 2 --method qlora --nested", "1.979 GiB"),
        ("decoder, QLoRA, checkpointing", "--size 2 --method qlora --nested --sequence 128 --checkpointing", "2.077 GiB"),
    ]
] + [
    qwen("Ampere and Blackwell", kind, arguments, published, "RTX 3090 Ti")
    for kind, arguments, published in [
        ("decoder, full", "--size 0.8 --method full", "6.630 GiB"),
        ("decoder, LoRA, checkpointing", "--size 0.8 --method lora --sequence 128 --checkpointing", "1.876 GiB"),
        ("decoder, QLoRA", "--size 0.8 --method qlora --nested", "1.051 GiB"),
        ("decoder, QLoRA, checkpointing", "--size 0.8 --method qlora --nested --sequence 128 --checkpointing", "1.171 GiB"),
    ]
]

QWEN_RANKS = [
    qwen("Two-rank FSDP", "decoder, full, FSDP", f"--size 0.8 --method full --shard fsdp --sequence {sequence}", published, device,
         ranks=2)
    for sequence, published in [(16, "3.308 GiB"), (128, "3.357 GiB")]
    for device in ["RTX PRO 5000", "RTX 3090 Ti"]
] + [
    qwen("FSDP2 LoRA", "decoder, LoRA, FSDP2", f"--size 0.8 --method lora --shard fsdp2 --sequence {sequence}", published, device,
         ranks=ranks)
    for ranks, sequence, blackwell, ampere in [
        (2, 16, "1.961 GiB", "1.961 GiB"), (4, 16, "1.593 GiB", "1.594 GiB"), (4, 64, "1.801 GiB", "1.803 GiB"),
        (2, 128, "2.689 GiB", "2.687 GiB"), (4, 128, "2.324 GiB", "2.322 GiB")]
    for device, published in [("RTX PRO 5000", blackwell), ("RTX 3090 Ti", ampere)]
]


def gpt(place, kind, arguments, published, figure="memory_reserved", **more):
    program = f"gpt.py {arguments}".strip()
    return Row("LLMs", place, f"decoder, {kind}", "A100", "a100-80gb", "2.6.0", program, published, figure, **more)


OPEN_EPOCH = "open: 4.7 MiB more are alive at the end of their epoch; all peaks are equal"
NATIVE = "--mask made --fused --bf16 --native"
GPT = [
    gpt("Baseline", "fp32", "", "26.2617 GiB"),
    gpt("Baseline", "fp32", "", "2.5069 GiB", "memory_allocated", within=0.2, cause=OPEN_EPOCH),
    gpt("1", "fp32", "--mask made", "26.2422 GiB"),
    gpt("3", "fp32, fused AdamW", "--mask made --fused", "26.2422 GiB"),
    gpt("5", "bf16", "--mask made --fused --bf16", "13.7871 GiB"),
    gpt("6", "bf16", NATIVE, "11.5645 GiB"),
    gpt("7", "bf16, flash", f"{NATIVE} --flash", "5.9004 GiB"),
]


VIT = [
    Row("memory", place, f"encoder, {kind}", "A100", "a100-40gb", "2.1.0", f"vit.py {arguments}", published, "max_memory_reserved",
        needs=("torchvision",), within=17, cause="open: a nightly build of 2.1, older than any release that neap supports")
    for place, kind, arguments, published in [
        ("01_pytorch-vit", "full, fp32", "--batch 64", "26.79 GB"),
        ("02_mixed-precision", "full, fp16 mixed", "--batch 64 --precision fp16-mixed", "18.21 GB"),
        ("03_bfloat16", "full, bf16", "--batch 64 --precision bf16", "13.82 GB"),
        ("04_lower-batchsize", "full, bf16", "--batch 16 --precision bf16", "5.69 GB"),
        ("05_gradient-accum", "bf16, accumulation", "--batch 4 --precision bf16 --accumulate 4", "3.91 GB"),
        ("06_sgd", "bf16, SGD", "--batch 4 --precision bf16 --accumulate 4 --optimizer sgd", "2.02 GB"),
    ]
]


def video(place, arguments, published, **more):
    return Row("mmaction2", place, "CNN, DDP", "not told", "v100-16gb", "", f"vision.py {arguments} --ddp", published, ranks=8,
               needs=("torchvision",), **more)


OLDER = "open: a release before 1.9, with cuDNN 7 or 8; the difference is that of one batch of images"
VIDEOS = [
    video("tsn_r50_1x1x3", "resnet50 --batch 32 --frames 3", "8344 MiB", within=0.7, cause=OLDER),
    video("tsm_r50_1x1x8", "tsm --batch 8 --frames 8", "7079 MiB"),
    video("i3d_r50_32x2x1", "i3d --batch 8 --frames 32", "5170 MiB"),
    video("slowonly_r50_4x16x1", "slowonly --batch 8 --frames 4", "3168 MiB"),
    video("slowonly_r50_8x8x1", "slowonly --batch 8 --frames 8", "5820 MiB"),
    video("c3d_16x1x1", "c3d --batch 30 --frames 16 --size 112 --classes 101", "6053 MiB"),
]


def titan(table, kind, arguments, published, ranks):
    program = f"llama.py {arguments}".strip()
    return Row("torchtitan", table, f"decoder, full, {kind}", "H100 96GB", "h200-141gb", "2.6.0", program, published, "max_memory_reserved",
               environment="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", ranks=ranks, within=4,
               cause="open: of reserved; torch's fake backend is in the place of NCCL, a release in that of a nightly build")


TITAN = [
    titan("Table 1", "FSDP2", "", "82.4 GiB", 8),
    titan("Table 1", "FSDP2, compile", "--compile", "77.0 GiB", 8),
    titan("Table 3", "FSDP2", "", "67.0 GiB", 128),
    titan("Table 3", "FSDP2, compile", "--compile", "62.0 GiB", 128),
]

def optimizers(place, kind, arguments, published, *needs):
    return Row("torchao", place, f"encoder, {kind}", "RTX 4070 Ti S", "rtx4090-24gb", "", f"adam.py {arguments}", published,
               needs=("timm", *needs))


OPTIMIZERS = [
    optimizers("Benchmarks", "full, bf16 mixed", "vit_huge_patch14_224 --optimizer adam", "12.94 GB"),
    optimizers("Benchmarks", "8-bit Adam, bf16 mixed", "vit_huge_patch14_224 --optimizer adamw8bit", "8.31 GB", "bitsandbytes"),
    optimizers("Optimizer CPU offload", "bf16, checkpointing", "vit_giant_patch14_dinov2 --batch 32 --bf16 --checkpointing", "9.82 GB"),
]

ROWS = [*CONVOLUTIONS, *QWEN_ONE, *QWEN_RANKS, *GPT, *VIT, *VIDEOS, *OPTIMIZERS, *TITAN]
