"""Training of networks for images and videos: CNNs of torchvision, alone or under DDP, and of a few layers of their own.

usage: vision.py NETWORK [--batch N] [--frames N] [--size N] [--classes N] [--ddp]

NETWORK: one of those with which mmaction2's model zoo recognises videos: a ResNet-50 over frames (resnet50, and tsm
with shifted channels), one made of volumes (i3d, slowonly), and c3d. SGD with momentum, gradients clipped, as in its
configurations. Prints the peak of three updates.
"""

import argparse

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class Segments(nn.Module):
    """A network for images, over the frames of a video: the mean of its outputs for each."""

    def __init__(self, network, classes, frames):
        super().__init__()
        self.frames = frames
        self.body = nn.Sequential(*list(network.children())[:-2])
        self.dropout = nn.Dropout(0.4)
        self.head = nn.Linear(2048, classes)

    def forward(self, x):
        x = self.body(x.reshape(-1, *x.shape[2:]))
        x = F.adaptive_avg_pool2d(x, 1)
        x = x.reshape(-1, self.frames, *x.shape[1:]).mean(1)
        x = self.dropout(x)
        return self.head(x.view(x.shape[0], -1))


class Shift(nn.Module):
    """A convolution before which an eighth of the channels moves to the next frame, and an eighth to the one before."""

    def __init__(self, layer, frames):
        super().__init__()
        self.layer = layer
        self.frames = frames

    def forward(self, x):
        count, channels, height, width = x.shape
        x = x.view(-1, self.frames, channels, height * width)
        first, second, rest = x.split([channels // 8, channels // 8, channels - channels // 8 * 2], 2)
        first = torch.cat((first[:, 1:], (first - first)[:, :1]), 1)
        second = torch.cat(((second - second)[:, :1], second[:, :-1]), 1)
        return self.layer(torch.cat((first, second, rest), 2).view(count, channels, height, width))


class Volume(nn.Module):
    """Turns a network for images into one for volumes. `times`: how many frames the kernels of the stem and of each block's first
    layer span."""

    def __init__(self, network, classes, stem, times, halved):
        super().__init__()
        times = iter([stem, *times])
        for name, layer in list(network.named_modules()):
            parent = network.get_submodule(name.rpartition(".")[0])
            if isinstance(layer, nn.Conv2d):
                time = next(times) if name.endswith("conv1") else 1
                setattr(parent, name.rpartition(".")[2], nn.Conv3d(
                    layer.in_channels, layer.out_channels, (time, *layer.kernel_size),
                    (2 if halved and name == "conv1" else 1, *layer.stride), (time // 2, *layer.padding), bias=False))
            elif isinstance(layer, nn.BatchNorm2d):
                setattr(parent, name.rpartition(".")[2], nn.BatchNorm3d(layer.num_features))
        network.maxpool = nn.MaxPool3d((1, 3, 3), (2 if halved else 1, 2, 2), (0, 1, 1))
        if halved:
            network.layer1.append(nn.MaxPool3d((2, 1, 1), (2, 1, 1)))
        self.body = nn.Sequential(*list(network.children())[:-2])
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(2048, classes)

    def forward(self, x):
        x = F.adaptive_avg_pool3d(self.body(x), 1)
        x = self.dropout(x)
        return self.head(x.view(x.shape[0], -1))


def frames_of(options, shift=False):
    network = torchvision.models.resnet50()
    if shift:
        for stage in network.layer1, network.layer2, network.layer3, network.layer4:
            for block in stage:
                block.conv1 = Shift(block.conv1, options.frames)
    return Segments(network, options.classes, options.frames), (options.batch, options.frames, 3, options.size, options.size)


def volume_of(options, stem, times, halved=False):
    return Volume(torchvision.models.resnet50(), options.classes, stem, times, halved), (
        options.batch, 3, options.frames, options.size, options.size)


def i3d(options):
    return volume_of(options, 5, [3, 3, 3, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 1, 3, 1], True)


def slowonly(options):
    return volume_of(options, 1, [1] * 7 + [3] * 9)


def c3d(options):
    layers = []
    inputs = 3
    for outputs, pool in [(64, (1, 2, 2)), (128, 2), (256, 0), (256, 2), (512, 0), (512, 2), (512, 0), (512, 2)]:
        layers += [nn.Conv3d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
        if pool:
            layers.append(nn.MaxPool3d(pool, pool))
        inputs = outputs
    layers[-1] = nn.MaxPool3d(2, 2, padding=(0, 1, 1))
    head = [nn.Flatten(), nn.Linear(8192, 4096), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, *head, nn.Dropout(0.5), nn.Linear(4096, options.classes)), (
        options.batch, 3, options.frames, options.size, options.size)


NETWORKS = {"resnet50": frames_of, "tsm": lambda options: frames_of(options, True), "i3d": i3d, "slowonly": slowonly, "c3d": c3d}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    for name, default in [("batch", 32), ("frames", 3), ("size", 224), ("classes", 400)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ddp", action="store_true")
    options = parser.parse_args()
    model, shape = NETWORKS[options.network](options)
    model.to("cuda").train()
    if options.ddp:
        torch.distributed.init_process_group()
        model = nn.parallel.DistributedDataParallel(model, device_ids=[0], broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    for _ in range(3):
        images = torch.empty(shape).to("cuda")
        labels = torch.zeros(options.batch, dtype=torch.long).to("cuda")
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 40)
        optimizer.step()
    print("max_memory_allocated", torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main()
