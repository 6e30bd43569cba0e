"""The cost of true values (values=full): training steps on the simulator against the same steps on the CPU, in turns
in one process.

    eval "$(neap sim env)"; NEAP_SIM=h100-80gb,values=full python bench/values_cost.py [--rounds N] [MODEL...]

Prints for each model the median of processor time (all threads) and of the clock, in milliseconds, and their ratio.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Words(nn.Module):
    """Embedding, body, logits. `width` of the body's results."""

    def __init__(self, body, width):
        super().__init__()
        self.words = nn.Embedding(2000, width)
        self.body = body
        self.head = nn.Linear(width, 2000)

    def forward(self, words):
        found = self.body(self.words(words))
        return self.head(found[0] if isinstance(found, tuple) else found)


def transformer():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True)
    words = torch.randint(0, 2000, (4, 128))
    return Words(nn.TransformerEncoder(layer, 4), 256), words, words.roll(1, 1)


def lstm():
    words = torch.randint(0, 2000, (8, 32))
    return Words(nn.LSTM(256, 256, 2, batch_first=True), 256), words, words.roll(1, 1)


def convolutional():
    layers = []
    for before, after, stride in ((3, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)):
        layers += [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    return model, torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))


def small():
    """Many operations that compute almost nothing, so that neap's cost for each of them shows."""
    layers = [layer for _ in range(20) for layer in (nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU())]
    return nn.Sequential(*layers), torch.randn(8, 16), torch.randint(0, 16, (8,))


MODELS = (transformer, convolutional, lstm, small)


def trainer(make, device):
    torch.manual_seed(0)
    model, given, wanted = make()
    model.to(device)
    given, wanted = given.to(device), wanted.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(given).flatten(0, -2), wanted.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def measured(step):
    begin = time.process_time(), time.perf_counter()
    loss = step()
    return 1e3 * (time.process_time() - begin[0]), 1e3 * (time.perf_counter() - begin[1]), loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("models", nargs="*", default=[one.__name__ for one in MODELS])
    arguments = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.rounds} rounds, milliseconds a step")
    print(f"{'model':14} {'CPU':>9} {'simulator':>9} {'ratio':>6}    {'clock: CPU':>10} {'simulator':>9} {'ratio':>6}")
    for make in MODELS:
        if make.__name__ not in arguments.models:
            continue
        steps = [trainer(make, device) for device in ("cpu", "cuda")]
        for step in steps * 3:
            step()
        rounds = [[measured(step) for step in steps] for _ in range(arguments.rounds)]
        columns = []
        for kind in (0, 1):
            cpu, simulated = (statistics.median(one[device][kind] for one in rounds) for device in (0, 1))
            columns.append(f"{cpu:9.2f} {simulated:9.2f} {simulated / cpu:6.2f}")
        print(f"{make.__name__:14} {'     '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
