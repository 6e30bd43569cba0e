"""Models that bench/gpu_programs.py trains: written out here, so that no version of another package decides what they allocate."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class GPTBlock(nn.Module):
    def __init__(self, width, heads, causal=True, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.dropout = dropout
        self.norm = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout, self.training)


class GPT(nn.Module):
    """A decoder; with causal=False an encoder."""

    def __init__(self, layers=8, width=768, heads=12, letters=50257, checkpointing=False, causal=True, dropout=0.0):
        super().__init__()
        self.checkpointing = checkpointing
        self.tokens = nn.Embedding(letters, width)
        self.places = nn.Embedding(2048, width)
        self.blocks = nn.ModuleList(GPTBlock(width, heads, causal, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.head(self.norm(x))


class LoRA(nn.Module):
    def __init__(self, linear, rank=16):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups, inner):
        super().__init__()
        self.heads = heads
        self.groups = groups
        self.norm = nn.RMSNorm(width)
        self.norm2 = nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * width * groups // heads, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def turned(self, x):
        """Rotary places: halves are turned by an angle that grows with the place."""
        half = x.shape[-1] // 2
        rates = 10000 ** -(torch.arange(half, device=x.device) / half)
        angles = torch.outer(torch.arange(x.shape[-2], device=x.device), rates)
        cosine = angles.cos().to(x.dtype)
        sine = angles.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.norm(x)
        q = self.q(y).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = (t.view(batch, length, self.groups, -1).transpose(1, 2) for t in self.kv(y).chunk(2, -1))
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=self.groups != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers=8, width=1024, heads=16, groups=4, inner=2816, letters=32000, checkpointing=False, lora=False):
        super().__init__()
        self.checkpointing = checkpointing
        self.tokens = nn.Embedding(letters, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, letters, bias=False)
        if lora:
            self.requires_grad_(False)
            for block in self.blocks:
                block.q, block.kv = LoRA(block.q), LoRA(block.kv)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.head(self.norm(x))


class Experts(nn.Module):
    """A mixture of experts in which each expert takes a fixed number of tokens, so that no size depends on a value."""

    def __init__(self, width, inner, count=8, chosen=2):
        super().__init__()
        self.count = count
        self.chosen = chosen
        self.router = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, inner) * 0.02)
        self.down = nn.Parameter(torch.randn(count, inner, width) * 0.02)

    def forward(self, x):
        tokens = x.flatten(0, -2)
        share = self.router(tokens).softmax(-1)
        capacity = len(tokens) * self.chosen // self.count
        weight, place = share.t().topk(capacity, -1)
        taken = torch.bmm(F.gelu(torch.bmm(tokens[place.flatten()].view(self.count, capacity, -1), self.up)), self.down)
        mixed = torch.zeros_like(tokens).index_add(0, place.flatten(), (taken * weight.unsqueeze(-1)).flatten(0, 1).to(tokens.dtype))
        return mixed.view_as(x)


class Mixture(nn.Module):
    def __init__(self, layers=6, width=512, heads=8, letters=16384):
        super().__init__()
        self.tokens = nn.Embedding(letters, width)
        self.blocks = nn.ModuleList(GPTBlock(width, heads) for _ in range(layers))
        self.experts = nn.ModuleList(Experts(width, 4 * width) for _ in range(layers))
        self.head = nn.Linear(width, letters, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block, experts in zip(self.blocks, self.experts):
            x = block(x)
            x = x + experts(x)
        return self.head(x)


class Translator(nn.Module):
    """An encoder and a decoder."""

    def __init__(self, width=512, letters=32000):
        super().__init__()
        self.tokens = nn.Embedding(letters, width)
        self.body = nn.Transformer(width, 8, 4, 4, 2048, 0.1, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.body(self.tokens(ids), self.tokens(ids), tgt_mask=mask, tgt_is_causal=True))


class ViT(nn.Module):
    def __init__(self, layers=12, width=768, heads=12, out=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.ModuleList(GPTBlock(width, heads, causal=False) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, out)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def convolution(width, out, kernel, stride=1, groups=1, act=True):
    layers = [nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out)]
    return nn.Sequential(*layers, *([nn.ReLU(True)] if act else []))


class Bottleneck(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        inner = out // 4
        self.body = nn.Sequential(convolution(width, inner, 1), convolution(inner, inner, 3, stride), convolution(inner, out, 1, act=False))
        self.side = convolution(width, out, 1, stride, act=False) if stride > 1 or width != out else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.side(x))


def resnet50(counts=(3, 4, 6, 3)):
    layers = [convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for out, count, stride in zip((256, 512, 1024, 2048), counts, (1, 2, 2, 2)):
        for i in range(count):
            layers.append(Bottleneck(width, out, stride if i == 0 else 1))
            width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


class Inverted(nn.Module):
    """MobileNet's and MnasNet's block: wide, depthwise, narrow; with a squeeze where EfficientNet has one."""

    def __init__(self, width, out, kernel, stride, wider, squeeze):
        super().__init__()
        inner = width * wider
        self.wide = convolution(width, inner, 1)
        self.depth = convolution(inner, inner, kernel, stride, groups=inner)
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, width // 4, 1), nn.SiLU(),
                                     nn.Conv2d(width // 4, inner, 1), nn.Sigmoid()) if squeeze else None  # fmt: skip
        self.narrow = convolution(inner, out, 1, act=False)
        self.same = stride == 1 and width == out

    def forward(self, x):
        y = self.depth(self.wide(x))
        if self.squeeze is not None:
            y = y * self.squeeze(y)
        y = self.narrow(y)
        return x + y if self.same else y


def inverted(squeeze=False):
    layers = [convolution(3, 32, 3, 2), convolution(32, 32, 3, groups=32), convolution(32, 16, 1, act=False)]
    width = 16
    for out, count, stride, kernel in ((24, 3, 2, 3), (40, 3, 2, 5), (80, 3, 2, 5), (96, 2, 1, 3), (192, 4, 2, 5), (320, 1, 1, 3)):
        for i in range(count):
            layers.append(Inverted(width, out, kernel, stride if i == 0 else 1, 6, squeeze))
            width = out
    return nn.Sequential(*layers, convolution(width, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depth = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


def convnext():
    layers = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)]
    for width, count in ((96, 3), (192, 3), (384, 9), (768, 3)):
        layers += [NextBlock(width) for _ in range(count)]
        if width < 768:
            layers += [ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, 1000))


def vgg16():
    layers = []
    width = 3
    for out in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        layers += [nn.Conv2d(width, out, 3, padding=1), nn.ReLU(True)] if out else [nn.MaxPool2d(2, 2)]
        width = out or width
    head = [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(True)]
    return nn.Sequential(*layers, *head, nn.Linear(4096, 1000))


class UNet(nn.Module):
    """The U-Net of a diffusion model: three levels, group norm, attention at the lowest level, an input for the time step."""

    class Stage(nn.Module):
        def __init__(self, width, out):
            super().__init__()
            self.norm = nn.GroupNorm(min(8, width), width)
            self.first = nn.Conv2d(width, out, 3, padding=1)
            self.time = nn.Linear(256, out)
            self.norm2 = nn.GroupNorm(8, out)
            self.second = nn.Conv2d(out, out, 3, padding=1)
            self.side = nn.Conv2d(width, out, 1)

        def forward(self, x, time):
            y = self.first(F.silu(self.norm(x))) + self.time(F.silu(time))[:, :, None, None]
            return self.side(x) + self.second(F.silu(self.norm2(y)))

    def __init__(self, channels=3):
        super().__init__()
        stage = UNet.Stage
        self.time = nn.Sequential(nn.Linear(1, 256), nn.SiLU(), nn.Linear(256, 256))
        self.enter = nn.Conv2d(channels, 64, 3, padding=1)
        self.down = nn.ModuleList((stage(64, 64), stage(64, 128), stage(128, 256)))
        self.attention = nn.MultiheadAttention(256, 4, batch_first=True)
        self.up = nn.ModuleList((stage(384, 128), stage(192, 64)))
        self.leave = nn.Conv2d(64, channels, 3, padding=1)

    def forward(self, x, time):
        time = self.time(time)
        a = self.down[0](self.enter(x), time)
        b = self.down[1](F.avg_pool2d(a, 2), time)
        c = self.down[2](F.avg_pool2d(b, 2), time)
        flat = c.flatten(2).transpose(1, 2)
        c = c + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(c.shape)
        b = self.up[0](torch.cat((F.interpolate(c, scale_factor=2), b), 1), time)
        return self.leave(self.up[1](torch.cat((F.interpolate(b, scale_factor=2), a), 1), time))


def volumes():
    return nn.Sequential(nn.Conv3d(8, 32, 3, padding=1), nn.BatchNorm3d(32), nn.ReLU(), nn.Conv3d(32, 32, 3, padding=1), nn.ReLU(),
                         nn.Conv3d(32, 64, 2, 2), nn.ReLU(), nn.ConvTranspose3d(64, 8, 2, 2))  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self, kind, width, inner, layers, out, **more):
        super().__init__()
        self.body = kind(width, inner, layers, batch_first=True, **more)
        self.head = nn.Linear(inner * (2 if more.get("bidirectional") else 1), out)

    def forward(self, x):
        return self.head(self.body(x)[0])


class Speech(nn.Module):
    """Convolutions over time, a recurrent layer, letters for CTC."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Sequential(nn.Conv1d(80, 256, 11, 2, 5), nn.ReLU(), nn.Conv1d(256, 256, 11, 1, 5), nn.ReLU())
        self.body = nn.LSTM(256, 512, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(1024, 40)

    def forward(self, x):
        return self.head(self.body(self.enter(x).transpose(1, 2))[0]).log_softmax(-1)


class Graph(nn.Module):
    """Messages along edges: gathered, and added where they arrive."""

    def __init__(self, width=128, layers=3):
        super().__init__()
        self.enter = nn.Linear(64, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 40)

    def forward(self, x, source, target):
        x = self.enter(x)
        for layer in self.layers:
            x = F.relu(x + torch.zeros_like(x).index_add(0, target, layer(x)[source]))
        return self.head(x)
