"""The programs of bench/gpu_truth.py: training of the kinds that run on one GPU, each a function of a `Run`.

No program reads a value that decides a size, so that the simulator, which computes nothing, makes the same requests.
Weights are made here; nothing is downloaded. The programs that tell most come first.
"""

import copy
import os
import random
import warnings

import gpu_models as models
import torch
from torch import nn
from torch.nn import functional as F

PROGRAMS = {}
BF16 = torch.bfloat16


def add(name, function, **words):
    PROGRAMS[name] = lambda run: function(run, **words)


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def language(run, make=models.GPT, batch=8, length=512, letters=50257, amp=None, pure=None, accumulate=1, lengths=None, scaler=False,
             optimizer="AdamW", compiled=False, settings="", wrap=None, more=None, **words):  # fmt: skip
    """A language model's training: next tokens, cross entropy, an optimizer."""
    if settings:
        torch.cuda.memory._set_allocator_settings(settings)
    torch.manual_seed(0)
    model = make(letters=letters, **words).cuda()
    model = model.to(pure) if pure else model
    model = wrap(model) if wrap else model
    run.phase("model")
    call = torch.compile(model) if compiled else model
    update = getattr(torch.optim, optimizer)([p for p in model.parameters() if p.requires_grad], lr=1e-4, **(more or {}))
    scale = torch.amp.GradScaler("cuda", init_scale=128.0, enabled=scaler)
    count = [0]

    def step():
        for _ in range(accumulate):
            tokens = lengths[count[0] % len(lengths)] if lengths else length
            count[0] += 1
            ids = torch.randint(0, letters, (batch, tokens), device="cuda")
            with torch.autocast("cuda", amp, enabled=amp is not None):
                loss = F.cross_entropy(call(ids).flatten(0, 1), ids.flatten()) / accumulate
            scale.scale(loss).backward()
        scale.step(update)
        scale.update()
        update.zero_grad(set_to_none=True)

    run.steps(step, tokens=batch * length * accumulate)


def vision(run, make, shape, classes=1000, amp=None, last=False, benchmark=False, optimizer="SGD", clip=False, **words):
    torch.backends.cudnn.benchmark = benchmark
    torch.manual_seed(0)
    form = torch.channels_last if last else torch.contiguous_format
    model = make().cuda().to(memory_format=form)
    run.phase("model")
    update = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3, **words)

    def step():
        x = torch.randn(shape, device="cuda").contiguous(memory_format=form)
        with torch.autocast("cuda", amp, enabled=amp is not None):
            y = model(x)
            wanted = torch.zeros(shape[0], dtype=torch.long, device="cuda")
            loss = F.cross_entropy(y, wanted) if classes else y.float().square().mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        update.zero_grad()

    run.steps(step, tokens=shape[0])


def compiled(model):
    model.compile()
    return model


@program
def phases(run):
    """Shows how much memory each library takes: a phase for each library's first call."""
    x = torch.randn(1024, 1024, device="cuda")
    (x @ x).sum()
    run.phase("cuBLAS, fp32")
    (x.bfloat16() @ x.bfloat16()).sum()
    run.phase("cuBLAS, bf16")
    F.linear(x.bfloat16(), x.bfloat16(), x[0].bfloat16()).sum()
    run.phase("cuBLASLt")
    F.conv2d(torch.randn(8, 64, 56, 56, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda"), padding=1)
    run.phase("cuDNN, convolution")
    nn.LSTM(256, 256).cuda()(torch.randn(16, 8, 256, device="cuda"))
    run.phase("cuDNN, LSTM")
    for amp in (torch.float32, BF16):
        q = torch.randn(2, 8, 256, 64, device="cuda", dtype=amp, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        run.phase(f"attention, {str(amp).split('.')[-1]}")
    torch.linalg.cholesky(torch.eye(256, device="cuda") + 0.01 * x[:256, :256] @ x[:256, :256].T)
    run.phase("cuSOLVER")
    torch.fft.rfft(x)
    run.phase("cuFFT")
    torch.sparse_coo_tensor(torch.zeros(2, 8, dtype=torch.long), torch.ones(8), (64, 64)).cuda().to_dense()
    run.phase("sparse")
    pinned = torch.randn(1 << 20).pin_memory()
    pinned.cuda(non_blocking=True)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (x @ x).sum()
    run.phase("a second stream")
    one_rank()
    torch.distributed.all_reduce(x)
    run.phase("NCCL, all_reduce on one rank")
    torch.distributed.all_gather_into_tensor(torch.empty_like(x), x)
    run.phase("NCCL, all_gather")
    torch.distributed.destroy_process_group()
    run.phase("NCCL destroyed")
    torch.compile(lambda a: (a.sin() + a.cos()).sum())(x)
    run.phase("compile")


def one_rank():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 40000), RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))


def backward_of(y, *inputs):
    """Returns a call of the backward pass that keeps the gradients. (torch.autograd.grad's own thread frees results at any
    moment.)"""
    gradient = torch.ones_like(y)

    def call():
        for x in inputs:
            x.grad = None
        y.backward(gradient, retain_graph=True)

    return call


def call_list():
    """(name, function) of calls whose workspaces matter: each is run twice, and its allocations are noted."""
    calls = []

    def note(name, function):
        calls.append((name, function))

    def convolve(name, dimensions, shape, weight, kind="conv", amp=torch.float32, last=False, backward=True, benchmark=False, **words):
        def call():
            torch.backends.cudnn.benchmark = benchmark
            form = (torch.channels_last, torch.channels_last_3d)[dimensions == 3] if last else torch.contiguous_format
            x = torch.randn(shape, device="cuda", dtype=amp).contiguous(memory_format=form).requires_grad_(backward)
            w = torch.randn(weight, device="cuda", dtype=amp).contiguous(memory_format=form).requires_grad_(backward)
            function = getattr(F, f"conv{'_transpose' if kind == 'transpose' else ''}{dimensions}d")

            def forward():
                return function(x, w, **words)

            yield "forward", forward
            if backward:
                yield "backward", backward_of(forward(), x, w)

        note(name, call)

    for amp in (torch.float32, BF16, torch.float16):
        for last in (False, True):
            kind = f"{str(amp).split('.')[-1]}{' channels_last' if last else ''}"
            convolve(f"3x3 64 of 2x64x128x128 {kind}", 2, (2, 64, 128, 128), (64, 64, 3, 3), amp=amp, last=last, padding=1)
            convolve(f"3x3 256 of 32x256x28x28 {kind}", 2, (32, 256, 28, 28), (256, 256, 3, 3), amp=amp, last=last, padding=1)
            words = {"amp": amp, "last": last}
            convolve(f"3x3 stride 2 512 of 32x512x28x28 {kind}", 2, (32, 512, 28, 28), (512, 512, 3, 3), padding=1, stride=2, **words)
            convolve(f"1x1 1024 of 32x256x14x14 {kind}", 2, (32, 256, 14, 14), (1024, 256, 1, 1), **words)
            convolve(f"7x7 stride 2 64 of 32x3x224x224 {kind}", 2, (32, 3, 224, 224), (64, 3, 7, 7), padding=3, stride=2, **words)
            convolve(f"7x7 depthwise 96 of 16x96x56x56 {kind}", 2, (16, 96, 56, 56), (96, 1, 7, 7), padding=3, groups=96, **words)
    for amp in (torch.float32, BF16):
        kind = str(amp).split(".")[-1]
        convolve(f"3x3 of 32x256x28x28 {kind} benchmark", 2, (32, 256, 28, 28), (256, 256, 3, 3), amp=amp, benchmark=True, padding=1)
        convolve(f"3x3x3 32 of 2x32x24x56x56 {kind}", 3, (2, 32, 24, 56, 56), (32, 32, 3, 3, 3), amp=amp, padding=1)
        convolve(f"3x3x3 128 of 1x128x32x64x64 {kind}", 3, (1, 128, 32, 64, 64), (128, 128, 3, 3, 3), amp=amp, padding=1)
        convolve(f"transposed 2x2 64 of 8x128x64x64 {kind}", 2, (8, 128, 64, 64), (128, 64, 2, 2), "transpose", amp=amp, stride=2)
        convolve(f"1d 11 256 of 16x80x800 {kind}", 1, (16, 80, 800), (256, 80, 11), amp=amp, padding=5)
        for rows, inner, columns in ((4096, 768, 3072), (8192, 4096, 4096), (17, 4096, 32000), (1, 4096, 4096)):

            def multiply(rows=rows, inner=inner, columns=columns, amp=amp):
                a = torch.randn(rows, inner, device="cuda", dtype=amp)
                b = torch.randn(columns, inner, device="cuda", dtype=amp)
                bias = torch.randn(columns, device="cuda", dtype=amp)
                yield "plain", lambda: F.linear(a, b)
                yield "with bias", lambda: F.linear(a, b, bias)

            note(f"{rows}x{inner} by {inner}x{columns} {kind}", multiply)
        for heads, length, width in ((12, 1024, 64), (32, 2048, 128), (8, 333, 96)):

            def attend(heads=heads, length=length, width=width, amp=amp):
                q, k, v = (torch.randn(2, heads, length, width, device="cuda", dtype=amp, requires_grad=True) for _ in range(3))
                yield "forward", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
                yield "backward", backward_of(F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)

            note(f"attention of {heads} heads, {length}, {width} {kind}", attend)

    def others():
        x = torch.randn(4096, 4096, device="cuda")
        yield "sum", lambda: x.sum()
        yield "softmax", lambda: x.softmax(-1)
        yield "layer norm", lambda: F.layer_norm(x, (4096,))
        yield "topk", lambda: x.topk(8)
        yield "sort", lambda: x.sort()
        yield "cumsum", lambda: x.cumsum(0)
        yield "norm of many", lambda: torch._foreach_norm([x, x, x])
        yield "randperm", lambda: torch.randperm(100000, device="cuda")

    note("others", others)
    return calls


@program
def workspaces(run):
    """Notes the allocations of one call after another: the sizes that it freed, and those that it kept (its result, its caches)."""
    for name, parts in call_list():
        try:
            for part, function in parts():
                for again in ("first", "second"):
                    with run.call(f"{name}, {part}, {again} time"):
                        y = function()
                    del y
        except RuntimeError as error:
            run.note(name, f"{type(error).__name__}: {str(error)[:200]}")


add("gpt_bf16", language, amp=BF16)
add("llama_bf16", language, make=models.Llama, letters=32000, amp=BF16, batch=4, length=1024)
add("resnet50_amp_last", vision, make=models.resnet50, shape=(64, 3, 224, 224), amp=BF16, last=True, momentum=0.9)
add("llama_lora", language, make=models.Llama, letters=32000, amp=BF16, batch=4, width=2048, inner=5632, lora=True)
add("gpt", language)
add("resnet50", vision, make=models.resnet50, shape=(32, 3, 224, 224), momentum=0.9)
add("gpt_checkpointing", language, amp=BF16, checkpointing=True)
add("gpt_lengths", language, amp=BF16, lengths=[64, 500, 300, 180, 410, 96, 257])
add("gpt_compiled", language, amp=BF16, compiled=True, layers=4)
add("convnext", vision, make=models.convnext, shape=(32, 3, 224, 224), optimizer="AdamW", clip=True)


@program
def diffusion(run):
    """A U-Net that predicts noise, with an average of its weights."""
    torch.manual_seed(0)
    model = models.UNet().cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    run.phase("model")
    update = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        x = torch.randn(16, 3, 128, 128, device="cuda")
        time = torch.rand(16, 1, device="cuda")
        with torch.autocast("cuda", BF16):
            loss = F.mse_loss(model(x + torch.randn_like(x) * time[:, :, None, None], time), x)
        loss.backward()
        update.step()
        update.zero_grad()
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)

    run.steps(step, tokens=16)


add("lstm", vision, make=lambda: models.Recurrent(nn.LSTM, 256, 1024, 2, 1000), shape=(32, 256, 256), classes=0, optimizer="Adam")
add("vit", vision, make=models.ViT, shape=(32, 3, 224, 224), amp=BF16, optimizer="AdamW")


@program
def serving(run):
    """Requests come and go; each keeps keys and values that grow by a token in every step."""
    draw = random.Random(3)
    model = models.GPT(layers=6, width=512, heads=8, letters=16384).cuda().requires_grad_(False)
    run.phase("model")
    live = []

    def step():
        for _ in range(8):
            while len(live) < 12:
                shape = (draw.choice((1, 2, 4)), 8, draw.randrange(64, 1500), 64)
                live.append([draw.randrange(4, 40), [[torch.zeros(shape, device="cuda") for _ in "kv"] for _ in model.blocks]])
            for request in list(live):
                batch = request[1][0][0].shape[0]
                x = model.tokens(torch.zeros(batch, 1, dtype=torch.long, device="cuda"))
                for block, past in zip(model.blocks, request[1]):
                    q, k, v = (t.view(batch, 1, 8, 64).transpose(1, 2) for t in block.qkv(block.norm(x)).chunk(3, -1))
                    past[0] = torch.cat((past[0], k), 2)
                    past[1] = torch.cat((past[1], v), 2)
                    y = F.scaled_dot_product_attention(q, past[0], past[1])
                    x = x + block.out(y.transpose(1, 2).reshape(batch, 1, 512))
                    x = x + block.down(F.gelu(block.up(block.norm2(x))))
                model.head(x)
                request[0] -= 1
                if not request[0]:
                    live.remove(request)

    with torch.inference_mode():
        run.steps(step)


@program
def runs_out(run):
    """The program reaches a limit: the cache is flushed, the request tried again, an error caught, and half the batch
    taken."""
    torch.cuda.set_per_process_memory_fraction(3 * (1 << 30) / run.total)
    torch.manual_seed(0)
    model = models.GPT(layers=6, width=512, heads=8, letters=16384).cuda()
    update = torch.optim.AdamW(model.parameters(), lr=1e-4)
    run.phase("model")
    batch = [64]
    length = [512]

    def step():
        length[0] = 512 if length[0] == 384 else 384
        while True:
            try:
                ids = torch.randint(0, 16384, (batch[0], length[0]), device="cuda")
                F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
                break
            except torch.OutOfMemoryError:
                failed = True
            assert failed
            batch[0] //= 2
            update.zero_grad(set_to_none=True)
        update.step()
        update.zero_grad(set_to_none=True)

    run.steps(step)


add("moe", language, make=models.Mixture, letters=16384, amp=BF16)
add("gpt_fp16_scaler", language, amp=torch.float16, scaler=True)
add("encoder", language, causal=False, dropout=0.1, length=384)
add("gpt_accumulate", language, amp=BF16, accumulate=4, batch=4)
add("gpt_expandable", language, amp=BF16, lengths=[64, 500, 300, 180, 410, 96, 257], settings="expandable_segments:True")
add("resnet50_benchmark", vision, make=models.resnet50, shape=(32, 3, 224, 224), benchmark=True, momentum=0.9)
add("conv3d", vision, make=models.volumes, shape=(2, 8, 48, 112, 112), classes=0)
add("encoder_decoder", language, make=models.Translator, letters=32000, batch=16, length=128)


def distributed(run, kind):
    def wrap(model):
        one_rank()
        run.phase("NCCL")
        if kind == "ddp":
            return nn.parallel.DistributedDataParallel(model)
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        language(run, layers=6, width=512, heads=8, letters=16384, amp=BF16, wrap=wrap)
    torch.distributed.destroy_process_group()


add("ddp_one_rank", distributed, kind="ddp")
add("fsdp2_one_rank", distributed, kind="fsdp2")


@program
def graph_capture(run):
    """A whole training step in a CUDA graph, in a pool of its own, beside eager work."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2048, 8192), nn.GELU(), nn.Linear(8192, 2048)).cuda()
    update = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(512, 2048, device="cuda")
    run.phase("model")

    def work():
        update.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        update.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    run.phase("captured")
    run.steps(lambda: (graph.replay(), model(x).sum().item()))


@program
def gan(run):
    """Two models and two optimizers that take turns."""
    torch.manual_seed(0)
    up = [nn.ConvTranspose2d(100, 512, 4), nn.BatchNorm2d(512), nn.ReLU(True)]
    down = []
    for width in (512, 256, 128, 64):
        up += [nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.BatchNorm2d(width // 2), nn.ReLU(True)]
        down = [nn.Conv2d(width // 2, width, 4, 2, 1), nn.BatchNorm2d(width), nn.LeakyReLU(0.2, True), *down]
    maker = nn.Sequential(*up, nn.Conv2d(32, 3, 3, padding=1), nn.Tanh()).cuda()
    judge = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *down, nn.Conv2d(512, 1, 4)).cuda()
    run.phase("model")
    updates = [torch.optim.Adam(m.parameters(), lr=2e-4) for m in (maker, judge)]

    def step():
        fake = maker(torch.randn(64, 100, 1, 1, device="cuda"))
        real = torch.randn(64, 3, 64, 64, device="cuda")
        judge.zero_grad()
        (F.softplus(judge(fake.detach())) + F.softplus(-judge(real))).mean().backward()
        updates[1].step()
        maker.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        updates[0].step()

    run.steps(step)


@program
def speech(run):
    torch.manual_seed(0)
    model = models.Speech().cuda()
    update = torch.optim.AdamW(model.parameters(), lr=1e-4)
    run.phase("model")

    def step():
        x = torch.randn(16, 80, 800, device="cuda")
        lengths = torch.full((16,), 400, dtype=torch.long)
        F.ctc_loss(model(x).transpose(0, 1), torch.randint(1, 40, (16, 60)), lengths, torch.full((16,), 60)).backward()
        update.step()
        update.zero_grad()

    run.steps(step)


@program
def graph_network(run):
    torch.manual_seed(0)
    model = models.Graph().cuda()
    update = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(50000, 64, device="cuda")
    edges = torch.randint(0, 50000, (2, 800000), device="cuda")
    run.phase("model")

    def step():
        F.cross_entropy(model(x, *edges), torch.zeros(50000, dtype=torch.long, device="cuda")).backward()
        update.step()
        update.zero_grad()

    run.steps(step)


@program
def contrastive(run):
    """Two towers, images and text, and the matrix of their similarity."""
    torch.manual_seed(0)
    image = models.ViT(layers=6, width=512, heads=8, out=256).cuda()
    text = models.GPT(layers=6, width=512, heads=8, letters=256, causal=False).cuda()
    update = torch.optim.AdamW([*image.parameters(), *text.parameters()], lr=1e-4)
    run.phase("model")

    def step():
        with torch.autocast("cuda", BF16):
            a = F.normalize(image(torch.randn(64, 3, 224, 224, device="cuda")).float(), dim=-1)
            b = F.normalize(text(torch.randint(0, 256, (64, 77), device="cuda"))[:, 0].float(), dim=-1)
            likeness = 20 * a @ b.T
            wanted = torch.arange(64, device="cuda")
            loss = F.cross_entropy(likeness, wanted) + F.cross_entropy(likeness.T, wanted)
        loss.backward()
        update.step()
        update.zero_grad()

    run.steps(step)


add("gru", vision, make=lambda: models.Recurrent(nn.GRU, 256, 512, 1, 10, bidirectional=True), shape=(64, 128, 256), classes=0, amp=BF16)
add("mobile", vision, make=models.inverted, shape=(64, 3, 224, 224))
add("mobile_squeeze_amp", vision, make=lambda: models.inverted(squeeze=True), shape=(64, 3, 224, 224), amp=BF16)
add("vgg16", vision, make=models.vgg16, shape=(32, 3, 224, 224))
add("resnet50_amp", vision, make=models.resnet50, shape=(64, 3, 224, 224), amp=BF16)
add("resnet_compiled", vision, make=lambda: compiled(models.resnet50((1, 1, 1, 1))), shape=(32, 3, 224, 224), amp=BF16)
add("llama_checkpointing", language, make=models.Llama, letters=32000, amp=BF16, batch=4, length=2048, checkpointing=True)
add("llama_pure_bf16", language, make=models.Llama, letters=32000, pure=BF16, batch=4, length=1024, more={"fused": True})
add("gpt_fused", language, more={"fused": True})
add("gpt_sgd", language, optimizer="SGD", more={"momentum": 0.9})
add("gpt_adafactor", language, optimizer="Adafactor")


@program
def gpt_inference(run):
    model = models.GPT().cuda().eval()
    run.phase("model")

    def step():
        with torch.inference_mode(), torch.autocast("cuda", BF16):
            model(torch.randint(0, 50257, (8, 512), device="cuda"))

    run.steps(step, tokens=8 * 512)


def hugging(run, kind, config, batch=4, length=256, amp=None, lora=None, **settings):
    """Trains a model of the installed transformers, made from a configuration."""
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**settings))
    if lora:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules=lora))
    model = model.cuda().train()
    run.phase("model")
    update = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)

    def step():
        ids = torch.randint(5, 1000, (batch, length), device="cuda")
        with torch.autocast("cuda", amp, enabled=amp is not None):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        update.step()
        update.zero_grad()

    run.steps(step, tokens=batch * length)


LLAMA = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 8, "num_attention_heads": 16}
add("hf_gpt2_bf16", hugging, kind="GPT2LMHeadModel", config="GPT2Config", amp=BF16, batch=8)
add("hf_llama_lora", hugging, kind="LlamaForCausalLM", config="LlamaConfig", amp=BF16, length=512, lora=["q_proj", "v_proj"], **LLAMA)
add("hf_bert", hugging, kind="BertForMaskedLM", config="BertConfig", batch=8)
add("hf_t5", hugging, kind="T5ForConditionalGeneration", config="T5Config", decoder_start_token_id=0)


@program
def timm_efficientnet(run):
    import timm

    vision(run, make=lambda: timm.create_model("efficientnet_b0"), shape=(64, 3, 224, 224), amp=BF16)
