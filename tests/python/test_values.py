"""Trainings on the simulator with true values (values=full) have the CPU's losses. Their peaks of memory are those
that they have without values, if no size depends on a value.

`test_values.py peaks` trains with the values that NEAP_SIM asks for, and prints the peaks.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

if not sys.argv[1:] or sys.argv[1] not in ("peaks", "large", "host"):
    os.environ["NEAP_SIM"] = f"h100-80gb,values=full,world=values-{os.getpid()}"
warnings.simplefilter("ignore")

import torch
import torch.nn.functional as F
from neap import _large, _values
from torch import nn
from torch.distributions import Categorical, Normal

STEPS = 20
CLOSE = 1e-4


def draw(*sizes, seed=0):
    """The same numbers on each device."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def train(device, model, loss_of, optimizer=torch.optim.Adam, **options):
    """`loss_of(model, step)` for each step."""
    model.to(device)
    optimizer = optimizer([one for one in model.parameters() if one.requires_grad], **{"lr": 1e-3, **options})
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def transformer(device):
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = nn.ModuleDict({"words": nn.Embedding(50, 32), "body": nn.TransformerEncoder(layer, 2), "head": nn.Linear(32, 50)})
    words = torch.randint(0, 50, (4, 16), generator=torch.Generator().manual_seed(1)).to(device)
    padded = (torch.arange(16) >= torch.tensor([[16], [12], [9], [16]])).to(device)

    def loss_of(model, step):
        found = model["head"](model["body"](model["words"](words), src_key_padding_mask=padded))
        return F.cross_entropy(found[:, :-1].flatten(0, 1), words[:, 1:].masked_fill(padded[:, 1:], -100).flatten())

    return train(device, model, loss_of, torch.optim.AdamW, fused=True)


def gpt2(device):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    words = torch.randint(0, 64, (2, 24), generator=torch.Generator().manual_seed(2)).to(device)
    return train(device, model, lambda model, step: model(input_ids=words, labels=words).loss, torch.optim.AdamW)


def convolutional(device):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    images = draw(8, 3, 12, 12).to(device)
    labels = (torch.arange(8) % 5).to(device)
    options = {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}
    return train(device, model, lambda model, step: F.cross_entropy(model(images), labels), torch.optim.SGD, **options)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 10, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(20, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, batch, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(batch, lengths, batch_first=True, enforce_sorted=False)
        found, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(self.gru(found.transpose(0, 1))[1][0])


def recurrent(device):
    batch = draw(4, 7, 6).to(device)
    wanted = draw(4, 1, seed=1).to(device)
    lengths = torch.tensor([7, 3, 5, 6])
    return train(device, Recurrent(), lambda model, step: F.mse_loss(model(batch, lengths), wanted), lr=1e-2)


class Lora(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.whole = whole.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(4, whole.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(whole.out_features, 4))

    def forward(self, given):
        return self.whole(given) + given @ self.down.t() @ self.up.t()


def lora(device):
    model = nn.Sequential(Lora(nn.Linear(12, 24)), nn.GELU(), Lora(nn.Linear(24, 12)))
    given = draw(16, 12).to(device)
    return train(device, model, lambda model, step: F.huber_loss(model(given), given.flip(1)), torch.optim.RAdam, lr=1e-2)


def adversarial(device):
    maker = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2)).to(device)
    critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)).to(device)
    steps = [torch.optim.Adam(one.parameters(), lr=2e-3, betas=(0.5, 0.999)) for one in (maker, critic)]
    losses = []
    for step in range(STEPS):
        real = (draw(16, 2, seed=step) * 0.3 + 1).to(device)
        made = maker(draw(16, 4, seed=100 + step).to(device))
        ones = torch.ones(16, 1, device=device)
        zeros = torch.zeros_like(ones)
        bad = F.binary_cross_entropy_with_logits(critic(real), ones) + F.binary_cross_entropy_with_logits(critic(made.detach()), zeros)
        steps[1].zero_grad()
        bad.backward()
        steps[1].step()
        good = F.binary_cross_entropy_with_logits(critic(made), ones)
        steps[0].zero_grad()
        good.backward()
        steps[0].step()
        losses.append(bad.item() + good.item())
    return losses


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 16), nn.Tanh())
        self.steer = nn.Linear(16, 4)
        self.push = nn.Linear(16, 1)
        self.worth = nn.Linear(16, 1)

    def forward(self, state):
        found = self.body(state)
        return Categorical(logits=self.steer(found), validate_args=True), Normal(self.push(found)[:, 0], 0.5), self.worth(found)[:, 0]


def proximal(device):
    """PPO. The environment is a walk that rewards the centre; the random numbers come from the host, so that they are
    the same everywhere."""
    policy = Policy().to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3, eps=1e-5)
    state = draw(8, 3).to(device)
    moves = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]], device=device)
    losses = []
    for step in range(STEPS):
        seen = []
        with torch.no_grad():
            for turn in range(4):
                steer, push, worth = policy(state)
                assert steer.sample().max() < 4 and push.sample().isfinite().all()
                chance = torch.rand(8, 1, generator=torch.Generator().manual_seed(step * 10 + turn)).to(device)
                turned = (steer.probs.cumsum(1) < chance).sum(1).clamp_(max=3)
                pushed = push.mean + 0.5 * draw(8, seed=step * 10 + turn).to(device)
                seen.append((state, turned, pushed, steer.log_prob(turned) + push.log_prob(pushed), worth, -state.norm(dim=1)))
                state = (state + 0.3 * moves[turned] * pushed.unsqueeze(1)).clamp(-2, 2)
        states, turned, pushed, before, worth, reward = (torch.stack(one) for one in zip(*seen, strict=True))
        returns = reward.flip(0).cumsum(0).flip(0)
        gain = returns - worth
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        for _ in range(2):
            steer, push, worth = policy(states.flatten(0, 1))
            ratio = (steer.log_prob(turned.flatten()) + push.log_prob(pushed.flatten()) - before.flatten()).exp()
            least = torch.min(ratio * gain.flatten(), ratio.clamp(0.8, 1.2) * gain.flatten())
            loss = -least.mean() + 0.5 * F.mse_loss(worth, returns.flatten()) - 0.01 * steer.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(4))

    def forward(self, tokens):
        shares, chosen = self.router(tokens).softmax(-1).topk(2, -1)
        found = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            found.index_add_(0, rows, expert(tokens[rows]) * shares[rows, place, None])
        used = F.one_hot(chosen, 4).float().mean((0, 1))
        return found, used.square().sum()


def experts(device):
    tokens = draw(40, 8).to(device)

    def loss_of(model, step):
        found, uneven = model(tokens)
        return F.mse_loss(found, tokens.roll(1, 1)) + 0.1 * uneven

    return train(device, Experts(), loss_of, lr=1e-2)


def kept(boxes, scores, most=0.5):
    """Non-maximum suppression."""
    left = scores.argsort(descending=True)
    found = []
    while left.numel():
        best, left = left[0], left[1:]
        found.append(best)
        low = torch.maximum(boxes[best, :2], boxes[left, :2])
        high = torch.minimum(boxes[best, 2:], boxes[left, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        left = left[shared / (areas[best] + areas[left] - shared) <= most]
    return torch.stack(found)


def detector(device):
    model = nn.Conv2d(3, 6, 3, stride=2, padding=1)
    image = draw(1, 3, 16, 16).to(device)
    corners = (torch.stack(torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij"), -1).flatten(0, 1) * 2.0).to(device)

    def loss_of(model, step):
        found = model(image)[0].flatten(1).t()
        likely = found[:, 4].sigmoid()
        (at,) = (likely > likely.mean()).nonzero(as_tuple=True)
        boxes = torch.cat((corners[at], corners[at] + 2 + found[at, 2:4].exp()), 1)
        best = kept(boxes.detach(), likely[at].detach())
        kinds, counts = (found[at, 5] * 2).detach().round().unique(return_counts=True)
        penalty = (kinds * counts).sum() / counts.sum()
        return F.smooth_l1_loss(boxes[best], boxes[best].detach().round()) - likely[at][best].log().mean() + 0.01 * penalty

    return train(device, model, loss_of, lr=1e-2)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.begin = nn.Conv2d(1, 8, 3, padding=1)
        self.down = nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1))
        self.time = nn.Linear(8, 16)
        self.up = nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU(), nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1))
        self.end = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, image, time):
        waves = time.unsqueeze(1) * torch.arange(1, 5, device=time.device)
        first = self.begin(image)
        low = self.down(first) + self.time(torch.cat((waves.sin(), waves.cos()), 1))[:, :, None, None]
        return self.end(torch.cat((first, F.interpolate(self.up(low), scale_factor=1.0)), 1))


def diffusion(device):
    model = Unet()
    average = torch.optim.swa_utils.AveragedModel(model.to(device), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    images = draw(4, 1, 8, 8).to(device)

    def loss_of(model, step):
        average.update_parameters(model)
        time = torch.rand(4, generator=torch.Generator().manual_seed(step)).to(device)
        noise = draw(4, 1, 8, 8, seed=50 + step).to(device)
        noisy = images * (1 - time)[:, None, None, None].sqrt() + noise * time[:, None, None, None].sqrt()
        with torch.no_grad():
            steady = F.mse_loss(average(noisy, time), noise)
        return F.mse_loss(model(noisy, time), noise) + 0.1 * steady

    return train(device, model, loss_of, torch.optim.AdamW, lr=3e-3)


FIXED = (transformer, gpt2, convolutional, recurrent, lora, adversarial, diffusion)
BY_VALUES = (experts, detector, proximal)  # torch.distributions refuses the numbers that there are without values


def peaks():
    """By training: its losses, and its peaks in bytes: allocated, reserved, requested."""
    found = {}
    for training in FIXED:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.manual_seed(0)
        losses = training("cuda")
        statistics = torch.cuda.memory_stats()
        names = ("allocated_bytes", "reserved_bytes", "requested_bytes")
        found[training.__name__] = losses, [statistics[f"{name}.all.peak"] for name in names]
    return found


def state_of(tensor):
    """The state of its bytes: 0: computed, 1: likely, 2: missing."""
    loaded = _values._State.loaded
    return loaded.neap_values_state(tensor.data_ptr(), tensor.nbytes) if _values.is_on() else 0


def resident():
    """The host memory behind the simulated devices."""
    lines = iter(pathlib.Path("/proc/self/smaps").read_text().splitlines())
    return sum(int(next(two for two in lines if two.startswith("Rss:")).split()[1]) << 10 for one in lines if "memfd:neap-sim-memory" in one)


def threads():
    """The thread counts of this process: before a brief operation, after it, after a long one, and the one that an
    operation may use. And the last one set before a thread begins, in that thread after a brief operation."""
    counts = []
    before = torch.get_num_threads()
    for size in (1, 1 << 16, 1 << 22):
        torch.ones(size, device="cuda") * 2
        counts.append(len(os.listdir("/proc/self/task")))
    torch.set_num_threads(before + 1)
    with concurrent.futures.ThreadPoolExecutor(1) as one:
        kept = one.submit(lambda: (torch.ones(1 << 16, device="cuda") * 2, torch.get_num_threads())[1]).result()
    torch.set_num_threads(before)
    return [*counts, before, kept]


def large():
    """The values that a model reads that is too large to compute; state 0: computed, 1: likely, 2: missing."""
    counts = threads()
    model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(6)]).to("cuda", torch.bfloat16)
    x = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)
    small = torch.ones(8, device="cuda").cumsum(0)
    y = model(x)
    loss = F.cross_entropy(y.float(), y.argmax(-1))
    loss.backward()
    for size in (1024, 512, 256, 128, 64):  # products that take the whole second
        middle = torch.ones(size, size, device="cuda")
        for _ in range(9):
            middle @ middle
    mask = torch.arange(100000, dtype=torch.float32, device="cuda") * 2 >= 150000
    gone = y.flatten()[:50000].float()  # missing, and where the next result will be
    del gone
    met = mask.nonzero()
    tensors = (("x", x), ("loss", loss), ("small", small), ("met", met))
    states = {name: state_of(one) for name, one in tensors}
    grown = (y[:8, :1024].float() @ torch.ones(1024, 8, device="cuda")).max().item()  # cheap, from likely values
    rows = y.argmax(-1)[:8].tolist()
    finite = bool(torch.isfinite(y).all() and torch.isfinite(model[0].weight.grad).all())
    total = F.softmax(y[0].float(), -1).sum().item()
    peaks = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    brought = y.view(-1)[-3:]  # missing: nothing has read it
    torch.distributed.all_gather_into_tensor(brought, torch.full_like(brought, 7))
    states["brought"] = (brought + 0).tolist()
    states["repeated"] = model[1].weight.grad[0, :4].expand(3, 4).float().tolist()  # missing, one element at three places
    torch.distributed.destroy_process_group()
    unknown = [name for name, _ in _values.unknown()]
    states |= {"resident": resident(), "unknown": unknown, "threads": counts}
    return {**states, "found": met.shape[0], "value": loss.item(), "rows": rows, "finite": finite, "sum": total, "peaks": peaks, "grown": grown}


def host_peak():
    """The most host memory that this process's own pages, and those of its files, took."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def host():
    """A model of 256 MiB that is built on the host, changed there, moved to the device in another type, and trained."""
    before = host_peak()
    torch.manual_seed(0)
    layers = [nn.Linear(2048, 4096) for _ in range(8)]
    for size, dtype in ((1 << 20, torch.float64), ((1 << 20) + 3, torch.bfloat16), ((1 << 20) + 5, torch.float32)):
        torch.empty(size, dtype=dtype).normal_()
    last = layers[-1].weight
    random = torch.rand(4).tolist()
    nn.init.trunc_normal_(torch.empty(1 << 20), a=-0.5, b=0.001)
    found = {"random": random, "bias": layers[-1].bias[:4].tolist(), "norm": last.norm().item()}
    doubled = last.detach().double().mul_(2)
    whole = torch.full((1 << 18,), 7)  # no large tensor of whole numbers is lent
    try:
        doubled.copy_(torch.ones(3))
    except RuntimeError as error:
        found["error"] = str(error)
    found |= {"doubled": [str(doubled.dtype), *doubled.shape], "whole": whole.unique().tolist(), "host": host_peak() - before}
    path = os.path.join(os.environ["NEAP_RUN_DIR"], "weights.pt")
    torch.save({"weight": torch.arange(1 << 22, dtype=torch.float32)}, path)
    loaded = [torch.load(path)["weight"] for _ in range(6)]  # 96 MiB
    found |= {"loaded": [one.sum().item() for one in loaded], "mapped": path in pathlib.Path("/proc/self/maps").read_text()}
    model = nn.Sequential(*[one for layer in layers for one in (layer, nn.Linear(4096, 2048))]).to("cuda", torch.bfloat16)
    found["states"] = [state_of(model[i].weight) for i in (0, -2)]
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        loss = model(torch.ones(8, 2048, device="cuda", dtype=torch.bfloat16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    back = model[-2].weight.cpu()
    found |= {"back": [str(back.dtype), *back.shape], "loss": loss.item()}
    statistics = torch.cuda.memory_stats()
    found["peaks"] = [statistics[f"{name}_bytes.all.peak"] for name in ("allocated", "reserved", "requested")]
    return found | {"unknown": [name for name, _ in _values.unknown()]}


class Values(unittest.TestCase):
    def assert_losses(self, name, losses, training):
        torch.manual_seed(0)
        right = training("cpu")
        self.assertGreater(len(set(right)), STEPS // 2, name)
        for step, (one, other) in enumerate(zip(losses, right, strict=True)):
            self.assertLessEqual(abs(one - other), CLOSE * abs(other), f"{name}, step {step}: {one}, the CPU's {other}")

    def test_losses_and_peaks(self):
        with_values = peaks()
        for training in FIXED:
            with self.subTest(training.__name__):
                self.assert_losses(training.__name__, with_values[training.__name__][0], training)
        others = ({"NEAP_SIM": f"h100-80gb,values=none,world=peaks-{os.getpid()}"},)
        with tempfile.TemporaryDirectory() as cache:  # where nothing was compiled, and nothing can be
            others += ({"CXX": os.path.join(cache, "c++"), "XDG_CACHE_HOME": cache},)
            for environment in others:
                call = [sys.executable, __file__, "peaks"]
                done = subprocess.run(call, env={**os.environ, **environment}, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                found = json.loads(done.stdout)
                self.assertEqual({name: one[1] for name, one in found.items()}, {name: one[1] for name, one in with_values.items()})
        for training in FIXED:
            with self.subTest(training.__name__, compiled=False):
                self.assert_losses(training.__name__, found[training.__name__][0], training)

    def test_losses_that_need_values(self):
        for training in BY_VALUES:
            with self.subTest(training.__name__):
                torch.manual_seed(0)
                self.assert_losses(training.__name__, training("cuda"), training)

    def test_scaler_of_gradients(self):
        """AMP: in float16 close to float32; a step that overflows is skipped, and the scale halved."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 1)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cuda", init_scale=1024, growth_interval=5)
        scales = []
        losses = []
        for step in range(STEPS):
            with torch.autocast("cuda", torch.float16):
                found = model(draw(16, 8, seed=step).cuda())
                loss = F.mse_loss(found.float(), draw(16, 1, seed=step).cuda() + 2)
            before = [one.detach().clone() for one in model.parameters()]
            optimizer.zero_grad()
            scaler.scale(loss * (1e9 if step == 7 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            same = all(torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))
            self.assertEqual(same, step == 7)
            scales.append(scaler.get_scale())
            losses.append(loss.item())
        self.assertEqual(scales, [1024] * 4 + [2048] * 3 + [1024] * 5 + [2048] * 5 + [4096] * 3)
        self.assertLess(losses[-1], losses[0])

    def test_errors_stay_the_programs(self):
        """The CPU would compute these; a GPU does not."""
        there = torch.ones(3, 3, device="cuda")
        whole = torch.ones(2, 2, dtype=torch.long, device="cuda")
        shrunk = torch.ones(4, device="cuda")
        shrunk.untyped_storage().resize_(0)
        for wrong in (lambda: there + torch.ones(3, 3), lambda: nn.Linear(3, 3)(there), lambda: whole @ whole, lambda: shrunk * 2):
            self.assertRaises(RuntimeError, wrong)
        # CUDA's functions fail where they read sizes that are not computed yet.
        self.assertEqual(there.mode().values.tolist(), [1, 1, 1])
        self.assertEqual(torch.isin(torch.tensor([1, 2]).cuda(), torch.tensor([2]).cuda()).tolist(), [False, True])

    def test_what_a_type_or_gaps_leave_as_they_are(self):
        torch.ones(3, device="cuda", dtype=torch.complex32).sum(0)  # the CPU has no such sum
        self.assertEqual(torch.ones(3, 4, device="cuda").sum(0).tolist(), [3] * 4)  # but still this one
        self.assertEqual(torch.ldexp(torch.ones(3, device="cuda"), torch.arange(3, device="cuda")).tolist(), [1, 2, 4])
        gaps = torch.full((2, 3, 4, 2), float("nan"), device="cuda")
        gaps[..., 0] = torch.arange(24.0).view(2, 3, 4)
        ones = torch.ones(3, device="cuda")
        mean = torch.native_batch_norm(gaps[..., 0], ones, ones, ones.clone(), ones.clone(), True, 0.5, 1e-5)[1]
        self.assertEqual(mean.tolist(), [7.5, 11.5, 15.5])

    def test_each_replay_of_a_graph_computes(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4)).cuda()
        x = torch.zeros(4, 8, device="cuda")
        q = torch.zeros(2, 4, 16, 8, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            model(x)
            F.scaled_dot_product_attention(q, q, q)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.no_grad():
            y = model(x)
            z = F.scaled_dot_product_attention(q, q, q) * 2  # CUDA's own, with a twin
            dropped = F.dropout(torch.ones(1000, device="cuda"))
        masks = []
        for seed in (1, 2):
            x.copy_(draw(4, 8, seed=seed))
            q.copy_(draw(2, 4, 16, 8, seed=seed))
            graph.replay()
            plain = q.cpu()
            torch.testing.assert_close(y.cpu(), model(x).detach().cpu())
            torch.testing.assert_close(z.cpu(), F.scaled_dot_product_attention(plain, plain, plain) * 2)
            masks.append(dropped.tolist())
        self.assertNotEqual(*masks)
        self.assertTrue(all(400 < sum(one > 0 for one in mask) < 600 for mask in masks))

    def test_what_is_left_out_is_likely(self):
        """values=auto: a step with products of 137 billion operations each, in no more than some seconds."""
        found = {}
        for values in ("auto", "none", "full,values_memory=64MiB"):
            environment = {**os.environ, "NEAP_SIM": f"h100-80gb,values={values},world=values-{values[:4]}-{os.getpid()}"}
            done = subprocess.run([sys.executable, __file__, "large"], env=environment, capture_output=True, text=True, check=True, timeout=120)
            found[values] = json.loads(done.stdout)
        self.assertEqual(found["auto"]["peaks"], found["none"]["peaks"])
        auto = found["auto"]
        self.assertEqual((auto["x"], auto["loss"], auto["small"]), (0, 2, 0))  # computed; missing until it is read; computed
        self.assertEqual((auto["met"], auto["found"]), (0, 25000))  # small, and of values that are known
        self.assertEqual(auto["brought"], [7, 7, 7])
        self.assertTrue(auto["repeated"] == [auto["repeated"][0]] * 3 and min(auto["repeated"][0]) > 0, auto["repeated"])
        self.assertTrue(0 < auto["value"] <= 2 and auto["finite"], auto)
        self.assertTrue(0 < auto["grown"] <= 1, auto["grown"])
        self.assertGreater(len(set(auto["rows"])), 3)
        self.assertTrue(all(0 <= row < 4096 for row in auto["rows"]), auto)
        self.assertAlmostEqual(auto["sum"], 1, places=4)
        before, brief, long, most, kept = auto["threads"]
        self.assertEqual((brief, long, kept), (before, before + most - 1, most + 1))
        bounded = found["full,values_memory=64MiB"]
        self.assertEqual(bounded["peaks"], auto["peaks"])
        self.assertTrue(16 << 20 < bounded["resident"] <= 66 << 20, bounded)
        self.assertEqual((bounded["x"], bounded["loss"], bounded["small"]), (2, 2, 0))  # the weights came first
        self.assertTrue(0 < bounded["value"] <= 2 and bounded["finite"], bounded)
        self.assertEqual(bounded["unknown"], ["results beyond 64.0 MiB of host memory (values_memory= in NEAP_SIM)"])
        self.assertGreater(auto["resident"], 66 << 20)
        self.assertEqual(auto["unknown"], [])

    def test_what_is_large_on_the_host(self):
        """Beyond values_memory= its large tensors have no bytes, and nothing else about the program changes."""
        with tempfile.TemporaryDirectory() as folder:
            found = []
            for more in ("", ",values_memory=80MiB"):
                environment = {**os.environ, "NEAP_SIM": f"h100-80gb,world=host-{os.getpid()}{more}", "NEAP_RUN_DIR": folder}
                done = subprocess.run([sys.executable, __file__, "host"], env=environment, capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                found.append(json.loads(done.stdout))
        whole, lent = found
        for name in ("random", "bias", "error", "doubled", "whole", "loaded", "back", "peaks"):
            self.assertEqual(lent[name], whole[name], name)
        self.assertEqual((whole["unknown"], whole["states"]), ([], [0, 0]))
        self.assertEqual((whole["mapped"], lent["mapped"]), (False, True))
        self.assertEqual(lent["states"], [0, 2])  # the first stayed below the bound
        self.assertRegex(lent["unknown"][-1], r"^\d+ MiB of tensors on the host beyond 80.0 MiB, which were not written \(values_memory= in")
        self.assertTrue(0 < lent["norm"] < 1e6 and 0 < lent["loss"] < 1e6, lent)
        self.assertGreater(whole["host"], 256 << 20)
        self.assertLess(lent["host"], 190 << 20)  # 64 MiB of them behind all that is lent

    def test_weights_that_are_not_there(self):
        """Checkpoints in a folder, and in the Hub's cache: shapes and types are those of the whole checkpoint; none
        is made up."""
        import transformers

        owner = transformers.PreTrainedModel
        sizes = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        self.addCleanup(setattr, owner, "from_pretrained", owner.__dict__["from_pretrained"])
        self.addCleanup(_large._State.absent.clear)
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root, "models--neap--small", "snapshots", "one")
            config = transformers.LlamaConfig(**sizes, dtype="bfloat16", tie_word_embeddings=True)
            transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="20KB")
            (folder.parent.parent / "refs").mkdir()
            (folder.parent.parent / "refs" / "main").write_text("one")
            load = transformers.AutoModelForCausalLM.from_pretrained
            whole = {key: one.clone() for key, one in load(folder).state_dict().items()}  # of files that are mapped
            kept, pointer, *others = sorted(folder.glob("*.safetensors"))
            self.assertTrue(others)
            pointer.unlink()
            pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
            for path in others:
                path.unlink()
            with self.assertRaises(Exception):  # noqa: B017 - transformers' own
                load(folder)
            _large.watch_pretrained(owner)
            index = json.loads((folder / "model.safetensors.index.json").read_text())
            for name, more in ((str(folder), {}), ("neap/small", {"cache_dir": root, "local_files_only": True})):
                model = load(name, **more)
                found = model.state_dict()
                self.assertEqual({key: (one.shape, one.dtype) for key, one in found.items()},
                                 {key: (one.shape, one.dtype) for key, one in whole.items()})  # fmt: skip
                for key, file in index["weight_map"].items():
                    self.assertEqual(file == kept.name, torch.equal(found[key], whole[key]), key)
                self.assertEqual(model.name_or_path, name)
            self.assertEqual(len([one for one, _ in _large.unknown() if "of weights of" in one and "not there" in one]), 2)
            self.assertEqual(load(folder, dtype=torch.float32).lm_head.weight.dtype, torch.float32)
            index["metadata"]["total_size"] += 2
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
            with self.assertRaises(Exception):  # noqa: B017
                load(folder)

    def test_free_memory_within_limits(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertGreater(_values._free_bytes(), 1 << 20)
            for name, text in {
                "proc/meminfo": "MemTotal: 99 kB\nMemAvailable:   9000 kB\n",
                "proc/self/cgroup": "5:cpu,memory:/one/two\n4:cpuset:/none\n0::/\n",
                "sys/fs/cgroup/memory/one/memory.limit_in_bytes": "7000000\n",
                "sys/fs/cgroup/memory/one/memory.usage_in_bytes": "3000000\n",
                "sys/fs/cgroup/memory/one/memory.stat": "inactive_file 1\ntotal_inactive_file 1000\n",
                "sys/fs/cgroup/memory.max": "max\n",
                "sys/fs/cgroup/memory.current": "8000000\n",
                "sys/fs/cgroup/memory.stat": "inactive_file 0\n",
            }.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            self.assertEqual(_values._free_bytes(root), 4001000)
            pathlib.Path(root, "sys/fs/cgroup/memory.max").write_text("9000000\n")
            self.assertEqual(_values._free_bytes(root), 1000000)
            pathlib.Path(root, "proc/self/cgroup").unlink()
            self.assertEqual(_values._free_bytes(root), 9000 << 10)

    def test_nothing_was_unknown(self):
        self.assertEqual(_values.unknown(), [])


if __name__ == "__main__":
    if sys.argv[1:] in (["large"], ["host"]):
        print(json.dumps(large() if sys.argv[1] == "large" else host()))
        sys.exit(0)
    if sys.argv[1:] == ["peaks"]:
        print(json.dumps(peaks()))
    else:
        unittest.main(warnings="ignore")
