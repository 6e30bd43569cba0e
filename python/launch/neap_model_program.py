"""The program that `neap estimate --model` runs: a training loop, or generation, like that of a user's script. The model's library
creates the model from its configuration. The program knows nothing of neap. It also runs on a GPU, where it prints PyTorch's own
peaks:

    neap estimate --model gpt2 --print-script > model.py
    python model.py --model=gpt2 --batch=4

MODEL is a name on the Hub, a folder with config.json, or a file like that, for transformers; timm:NAME; torchvision:NAME;
diffusers:NAME for the UNet of a pipeline (on the Hub, or a folder), or a folder with a UNet's config.json.

No weight is downloaded, read or initialised: parameters are allocated on the GPU without contents, in the order of
model.to("cuda"). So the peak does not include the extra memory that from_pretrained takes while it loads a checkpoint.

    --precision    weights                                    computes in
    fp32           float32                                    float32
    bf16, fp16     float32; frozen ones 16 bits, with LoRA's  autocast to it; fp16 with a GradScaler. Without training, and
                   matrices float32; to infer 16 bits         with FSDP, 16 bits without autocast
    bf16-true      bfloat16, and so gradients and state       bfloat16
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    print(f"this Python cannot import torch, which the program needs: {error} ({sys.executable})", file=sys.stderr)
    sys.exit(69)

LORA_RANK = 16  # beside each linear layer but the output's; alpha is twice the rank, and there is no dropout
NEW_TOKENS = 16  # are generated: the prompt is so much shorter than --sequence, which the cache holds at the end
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "bf16-true": torch.bfloat16}
USAGE = 64  # exit statuses, from sysexits.h
NO_MODEL = 66
UNAVAILABLE = 69


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--task", choices=("train", "lora", "qlora", "infer"), default="train")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, help="tokens of a sample; default: 2048, or the most that the model takes")
    parser.add_argument("--image", type=int, help="pixels along the side of an image; default: the model's own")
    parser.add_argument("--precision", choices=TYPES, default="bf16")
    parser.add_argument("--optimizer", choices=("adamw", "adamw8bit", "sgd", "adafactor"), default="adamw")
    parser.add_argument("--checkpointing", type=int, choices=(0, 1), default=0)
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches of an update")
    parser.add_argument("--shard", choices=("none", "ddp", "fsdp"), default="none")
    parser.add_argument("--steps", type=int, help="optimizer updates (default: 50), or batches to infer (default: 3)")
    return parser.parse_args()


def refuse(code, sentence):
    """Ends the program with one sentence."""
    print(" ".join(str(sentence).split())[:300], file=sys.stderr, flush=True)
    sys.exit(code)


def need(name, user):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        refuse(UNAVAILABLE, f"{user} needs {name}, which this Python cannot import: {error}")


def refuse_model(model, library, error):
    """Distinguishes a model that does not exist, a Hub that cannot be reached, and a config that the library does not accept."""
    causes = ""
    cause = error
    while cause is not None:
        causes += f"{type(cause).__name__}: {cause} "
        cause = cause.__cause__ or cause.__context__
    if "GatedRepo" in causes:
        refuse(NO_MODEL, f"{model}: on the Hub, its owner has to admit you first (then set HF_TOKEN)")
    if any(word in causes for word in ("RepositoryNotFound", "RemoteEntryNotFound", "RevisionNotFound", "HFValidationError")):
        refuse(NO_MODEL, f"{model}: no such model on the Hub, and no such file or folder here")
    if any(word in causes for word in ("ConnectError", "ConnectionError", "Timeout", "OfflineMode", "LocalEntryNotFound", "ProxyError")):
        refuse(UNAVAILABLE, f"{model}: no such file or folder here, the Hub cannot be reached, and its cache does not have the config")
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = " ".join(line.strip() for line in lines[: 2 if lines[0].rstrip().endswith(":") else 1])
    refuse(NO_MODEL, f"{model}: {library} does not take it: {reason.partition('. ')[0]}")


# --- models without memory ---


class Job:
    """A model on the device "meta"; batch(device) returns its arguments and a target; loss takes its result and the target."""

    def __init__(self, model, batch, loss, head=None, generates=False):
        self.model = model
        self.batch = batch
        self.loss = loss
        self.head = head  # the output's linear layer
        self.generates = generates


def from_transformers(options, dtype):
    transformers = need("transformers", options.model)
    transformers.utils.logging.set_verbosity_error()
    try:
        config = transformers.AutoConfig.from_pretrained(options.model, trust_remote_code=False)
        if getattr(config, "quantization_config", None) is not None:
            raise ValueError("its weights are quantized (name the model that they were made from, with --task qlora)")
        for token in ("pad_token_id", "decoder_start_token_id"):  # configs may lack a tokenizer's ids
            if getattr(config, token, None) is None:
                setattr(config, token, 0)
        config.use_cache = options.task == "infer"
        with torch.device("meta"):
            model = model_of(transformers, config, dtype)
    except Exception as error:
        refuse_model(options.model, "transformers", error)
    if options.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if model.main_input_name == "pixel_values":
        side = getattr(config, "image_size", None) or 224
        size = getattr(config, "num_channels", 3), side if isinstance(side, int) else side[0], config.num_labels
        return images(options, model, "pixel_values", *size)
    if model.main_input_name != "input_ids":
        refuse(NO_MODEL, f"{options.model}: a {type(model).__name__} takes {model.main_input_name}, not tokens or images")
    return tokens(options, model, config)


def model_of(transformers, config, dtype):
    """Creates the model of the class that the config names. If the config names no class with an output, takes the first class that
    accepts it."""
    kinds = (
        ("ForCausalLM", transformers.AutoModelForCausalLM),
        ("LMHeadModel", transformers.AutoModelForCausalLM),
        ("ForMaskedLM", transformers.AutoModelForMaskedLM),
        ("ForSequenceClassification", transformers.AutoModelForSequenceClassification),
        ("ForImageClassification", transformers.AutoModelForImageClassification),
        ("ForConditionalGeneration", transformers.AutoModelForSeq2SeqLM),
        ("ForConditionalGeneration", transformers.AutoModelForImageTextToText),  # gets only text
    )
    named = [kind for name in config.architectures or () for end, kind in kinds if name.endswith(end)]
    for kind in named or [kind for _, kind in kinds]:
        try:
            return kind.from_config(config, dtype=dtype, trust_remote_code=False)
        except ValueError as error:
            if "Unrecognized configuration class" not in str(error):
                raise
    refuse(NO_MODEL, f"{config.name_or_path}: neap's program does not know a model as {(config.architectures or [config.model_type])[0]}")


def tokens(options, model, config):
    if options.image:
        refuse(USAGE, f"--image: {options.model} takes tokens")
    text = config.get_text_config()
    most = getattr(text, "max_position_embeddings", None) or sys.maxsize
    length = options.sequence or min(2048, most)
    if length > most:
        refuse(USAGE, f"--sequence: {options.model} takes at most {most} tokens")
    generates = options.task == "infer" and model.can_generate()
    if generates:
        model.generation_config.update(max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0)
        length -= NEW_TOKENS
        if length < 1:
            refuse(USAGE, f"--sequence: above {NEW_TOKENS}, which are generated")

    def batch(device):
        inputs = {"input_ids": torch.randint(text.vocab_size, (options.batch, length), device=device)}
        if options.task != "infer" and type(model).__name__.endswith("ForSequenceClassification"):
            inputs["labels"] = torch.randint(config.num_labels, (options.batch,), device=device)
        elif options.task != "infer":
            inputs["labels"] = inputs["input_ids"]
        return inputs, None

    return Job(model, batch, lambda out, _: out.loss, model.get_output_embeddings(), generates)


def images(options, model, argument, channels, side, classes):
    if options.sequence:
        refuse(USAGE, f"--sequence: {options.model} takes images")
    side = options.image or side

    def batch(device):
        pixels = torch.randn(options.batch, channels, side, side, device=device)
        if options.task == "infer":
            pixels = pixels.to(TYPES[options.precision])
        return {argument: pixels}, torch.randint(classes, (options.batch,), device=device)

    def loss(out, target):
        return functional.cross_entropy(getattr(out, "logits", out), target)

    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return Job(model, batch, loss, linear[-1] if linear else None)


def from_timm(options, dtype):
    timm = need("timm", options.model)
    try:
        with torch.device("meta"):
            model = timm.create_model(options.model.partition(":")[2], pretrained=False).to(dtype)
        channels, side, _ = model.default_cfg["input_size"]
        if options.checkpointing:
            model.set_grad_checkpointing(True)
    except Exception as error:
        refuse_model(options.model, "timm", error)
    return images(options, model, "x", channels, side, model.num_classes)


def from_torchvision(options, dtype):
    models = need("torchvision", options.model).models
    name = options.model.partition(":")[2]
    if name not in models.list_models(module=models):
        refuse(NO_MODEL, f"{options.model}: torchvision has no classifier of images of this name")
    with torch.device("meta"):
        model = models.get_model(name, weights=None).to(dtype)
    if options.checkpointing:
        refuse(USAGE, f"--checkpointing: torchvision's {type(model).__name__} has none")
    return images(options, model, "x", 3, 299 if type(model).__name__ == "Inception3" else 224, 1000)


def from_diffusers(options, dtype):
    """A UNet that learns the noise of latents. The text encoder and the VAE, which are frozen, are not created."""
    name = options.model.partition(":")[2]
    diffusers = need("diffusers", options.model)
    try:
        alone = os.path.isfile(os.path.join(name, "config.json"))
        config = diffusers.UNet2DModel.load_config(name, subfolder=None if alone else "unet")
        if config.get("_class_name") not in ("UNet2DModel", "UNet2DConditionModel"):
            raise ValueError(f"it is a {config.get('_class_name')}, not a UNet2DModel or UNet2DConditionModel")
        with torch.device("meta"):
            model = getattr(diffusers, config["_class_name"]).from_config(config).to(dtype)
        if options.checkpointing:
            model.enable_gradient_checkpointing()
    except Exception as error:
        refuse_model(options.model, "diffusers", error)
    config = model.config
    side = options.image or config.sample_size or 64

    def batch(device):
        def normal(*sizes):
            return torch.randn(options.batch, *sizes, device=device, dtype=dtype)

        inputs = {"sample": normal(config.in_channels, side, side), "timestep": torch.randint(1000, (options.batch,), device=device)}
        if "encoder_hid_dim" in config:
            inputs["encoder_hidden_states"] = normal(options.sequence or 77, config.encoder_hid_dim or config.cross_attention_dim)
        if config.get("addition_embed_type") == "text_time":
            width = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
            inputs["added_cond_kwargs"] = {"text_embeds": normal(width), "time_ids": normal(6)}
        return inputs, normal(config.out_channels, side, side)

    return Job(model, batch, lambda out, noise: functional.mse_loss(out.sample.float(), noise.float()))


MAKERS = {"timm": from_timm, "torchvision": from_torchvision, "diffusers": from_diffusers}


# --- LoRA ---


class Lora(nn.Module):
    """A frozen layer and, beside it, two small matrices that learn: computed as peft does."""

    def __init__(self, frozen, dtype):
        super().__init__()
        inputs, outputs = (frozen.in_features, frozen.out_features) if isinstance(frozen, nn.Linear) else frozen.weight.shape
        self.frozen = frozen
        self.down = nn.Linear(inputs, LORA_RANK, bias=False, dtype=dtype, device="meta")
        self.up = nn.Linear(LORA_RANK, outputs, bias=False, dtype=dtype, device="meta")

    def forward(self, x):
        result = self.frozen(x)
        dtype = result.dtype
        in_4_bits = type(self.frozen).__name__ == "Linear4bit"
        if in_4_bits:
            result = result.clone()
        if not (in_4_bits and torch.is_autocast_enabled()):
            x = x.to(self.down.weight.dtype)
        result = result + self.up(self.down(x)) * 2.0
        return result.to(dtype)


def linear_layers(job):
    """Returns (parent, name, layer) of all linear layers but the output's: torch's, and those of transformers' GPT-2."""
    for parent in list(job.model.modules()):
        for name, layer in list(parent.named_children()):
            if (isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D") and layer is not job.head:
                yield parent, name, layer


def add_lora(options, job, dtype):
    job.model.requires_grad_(False)
    layers = list(linear_layers(job))
    if not layers:
        refuse(USAGE, f"--task {options.task}: {options.model} has no linear layers beside its output's")
    for parent, name, layer in layers:
        if options.task == "qlora":
            layer = quantize(options, layer, dtype)
        setattr(parent, name, Lora(layer, dtype if options.precision == "bf16-true" else torch.float32))


def quantize(options, layer, dtype):
    """Quantizes a layer to NF4, and its scales, too. Until then the weight is on the GPU in 16 bits, as transformers loads it."""
    bitsandbytes = need("bitsandbytes", "--task qlora")
    if not isinstance(layer, nn.Linear):
        refuse(USAGE, f"--task qlora: {options.model} has layers that bitsandbytes cannot quantize ({type(layer).__name__})")
    made = bitsandbytes.nn.Linear4bit(
        layer.in_features, layer.out_features, layer.bias is not None, dtype, quant_type="nf4", device="meta"
    )
    made.weight = bitsandbytes.nn.Params4bit(
        torch.empty_like(layer.weight, device="cuda"), requires_grad=False, quant_type="nf4", module=made
    )._quantize("cuda")
    made.bias = layer.bias
    return made


# --- on the GPU ---


def allocate(model):
    """Allocates the tensors like model.to("cuda"), without contents. A tensor with several names is allocated once."""
    made = {}

    def move(tensor):
        if tensor.device.type != "meta":
            return tensor
        if tensor not in made:
            made[tensor] = torch.empty_like(tensor, device="cuda")
        return made[tensor]

    model._apply(move)
    if hasattr(model, "tie_weights"):
        model.tie_weights()


def blocks(module):
    """The layers of a transformer: the members of each outermost list of equal modules."""
    for child in module.children():
        members = list(child.children())
        if isinstance(child, (nn.ModuleList, nn.Sequential)) and len(members) > 1 and len(set(map(type, members))) == 1:
            yield from members
        else:
            yield from blocks(child)


def place(options, model):
    """Allocates the model, and returns what the loop calls."""
    if options.shard == "none":
        allocate(model)
        return model
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl")
    if options.shard == "ddp":
        allocate(model)
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=TYPES[options.precision], reduce_dtype=torch.float32)
    for block in blocks(model):
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    allocate(model)
    return model


def make_optimizer(options, model):
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if options.optimizer == "adamw8bit":
        return need("bitsandbytes", "--optimizer adamw8bit").optim.AdamW8bit(parameters, lr=1e-4)
    if options.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)
    if options.optimizer == "adafactor":
        return torch.optim.Adafactor(parameters, lr=1e-4)
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)  # as transformers' Trainer does


def train(options, job):
    model = place(options, job.model)
    model.train()
    optimizer = make_optimizer(options, model)
    mixed = options.precision in ("bf16", "fp16") and options.shard != "fsdp"
    scaler = torch.amp.GradScaler("cuda", enabled=options.precision == "fp16")
    for step in range(1, (options.steps or 50) + 1):
        for _ in range(options.accumulation):
            inputs, target = job.batch("cuda")
            with torch.autocast("cuda", TYPES[options.precision], enabled=mixed):
                loss = job.loss(model(**inputs), target)
            if options.accumulation > 1:
                loss = loss / options.accumulation
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(f"update {step}", flush=True)


def infer(options, job):
    model = place(options, job.model)
    model.eval()
    with torch.inference_mode():
        for step in range(1, (options.steps or 3) + 1):
            inputs, _ = job.batch("cuda")
            model.generate(**inputs) if job.generates else model(**inputs)
            print(f"batch {step}", flush=True)


def main():
    options = parse()
    frozen = options.task != "train" and options.precision != "fp32"
    dtype = TYPES[options.precision] if frozen or options.precision == "bf16-true" else torch.float32
    job = MAKERS.get(options.model.partition(":")[0], from_transformers)(options, dtype)
    if options.task in ("lora", "qlora"):
        add_lora(options, job, dtype)
    (infer if options.task == "infer" else train)(options, job)
    print(f"allocated at most {torch.cuda.max_memory_allocated()} bytes, reserved {torch.cuda.max_memory_reserved()}")


if __name__ == "__main__":
    main()
