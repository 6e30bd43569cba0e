#!/usr/bin/env python3
"""make_traces.py FOLDER [--kind KIND...] [--seeds N] [--first-seed N] [--events N] [--same-steps] [--no-marks] [--check NEAP]:
made-up training.

Writes FOLDER/KIND-SEED.txt in neap's text form (docs/traces.md), nine kinds of program, at least 100 000 events each:

    varlen      a transformer trained on batches of variable length
    accum       gradients accumulated over micro-batches
    lora        adapters on a frozen model, activations computed again in the backward pass
    cnn         a convolutional network, with evaluation between epochs
    moe         a mixture of experts, each with as many tokens as the router sends it
    rlhf        generation with a growing cache, then training, in turns
    serving     requests that come and go, each with a cache that grows
    fsdp        a sharded transformer on four streams, with record_stream
    longlived   small blocks that live for very different times beside large ones

With --same-steps each step draws the same lengths, shares and workspaces as the one before: all of accum, fsdp, lora, moe, rlhf
and varlen from the third step on, and cnn's between two ends of an epoch. KIND-same-SEED.txt is the file. --no-marks leaves
out the marks of the steps: KIND-unmarked-SEED.txt, KIND-same-unmarked-SEED.txt.

A seed gives the same trace everywhere. --check prints, with the command NEAP, by how much the smallest device that
the model of PyTorch's default policy needs exceeds the requested peak, and the waste that a trace must show to be
worth measuring; exits 1 if a trace shows less.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
from collections.abc import Callable, Iterable

KIB = 1 << 10
MIB = 1 << 20

# How much PyTorch's default policy wasted on nine traces of these kinds, measured with PyTorch itself, in percent.
LEAST_WASTE = {"varlen": 12.0, "accum": 3.0, "lora": 16.0, "cnn": 3.4, "moe": 9.0, "rlhf": 8.0, "serving": 4.0, "fsdp": 1.6,
               "longlived": 28.0}


class Trace:
    """The lines of a trace, as a program would cause them."""

    def __init__(self, seed: int, same_steps: bool) -> None:
        self.seed = seed
        self.same_steps = same_steps
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.events = 0
        self.last_id = 0

    def alloc(self, size: float, stream: int = 0) -> int:
        self.last_id += 1
        self.lines.append(f"a {self.last_id} {max(1, int(size))} {stream}")
        self.events += 1
        return self.last_id

    def free(self, *blocks: int) -> None:
        for block in blocks:
            self.lines.append(f"f {block}")
        self.events += len(blocks)

    def temporary(self, *sizes: float) -> None:
        """Blocks that are freed before the operation ends."""
        self.free(*[self.alloc(size) for size in sizes])

    def record_stream(self, block: int, stream: int) -> None:
        self.lines.append(f"r {block} {stream}")
        self.events += 1

    def step(self) -> None:
        self.lines.append("s")
        if self.same_steps:
            self.random.seed(self.seed)


class Transformer:
    """The parameters of a decoder in bfloat16, and its passes. Sizes in elements until they are allocated."""

    def __init__(self, trace: Trace, layers: int, hidden: int, vocabulary: int, heads: int) -> None:
        self.trace = trace
        self.layers = layers
        self.hidden = hidden
        self.vocabulary = vocabulary
        self.heads = heads
        per_layer = [3 * hidden * hidden, 3 * hidden, hidden * hidden, hidden, 4 * hidden * hidden, 4 * hidden,
                     4 * hidden * hidden, hidden, hidden, hidden, hidden, hidden]
        self.shapes = [vocabulary * hidden] + per_layer * layers + [hidden, hidden]
        self.weights = [trace.alloc(2 * shape) for shape in self.shapes]

    def optimizer_state(self) -> None:
        for shape in self.shapes:
            self.trace.alloc(4)
            self.trace.alloc(4 * shape)
            self.trace.alloc(4 * shape)

    def forward_layer(self, batch: int, length: int) -> list[int]:
        trace = self.trace
        width = 2 * batch * length * self.hidden
        tokens = batch * length
        saved = [trace.alloc(width), trace.alloc(4 * tokens), trace.alloc(4 * tokens), trace.alloc(3 * width)]
        trace.temporary(width, width)
        saved += [trace.alloc(width), trace.alloc(4 * batch * self.heads * length), trace.alloc(16), trace.alloc(16)]
        projected = trace.alloc(width)
        saved.append(trace.alloc(width // 2))  # the dropout's mask
        saved.append(trace.alloc(width))
        trace.free(projected)
        saved += [trace.alloc(width), trace.alloc(4 * tokens), trace.alloc(4 * tokens), trace.alloc(4 * width)]
        saved.append(trace.alloc(4 * width))
        down = trace.alloc(width)
        saved.append(trace.alloc(width))
        trace.free(down)
        return saved

    def backward_layer(self, batch: int, length: int, saved: list[int], gradient: int, layer: int,
                       gradients: dict[int, int] | None) -> int:
        """Frees what the layer saved, from its end; returns the gradient of its input. `gradients` get the layer's."""
        trace = self.trace
        width = 2 * batch * length * self.hidden

        def parameter(index: int) -> None:
            if gradients is None:
                return
            number = 1 + layer * 12 + index
            fresh = trace.alloc(2 * self.shapes[number])
            if number in gradients:
                trace.free(fresh)  # it was added to the sum
            else:
                gradients[number] = fresh

        wide = trace.alloc(4 * width)
        parameter(6)
        parameter(7)
        trace.free(saved.pop(), saved.pop())
        inner = trace.alloc(4 * width)
        trace.free(wide, saved.pop())
        narrow = trace.alloc(width)
        parameter(4)
        parameter(5)
        trace.free(inner)
        normed = trace.alloc(width)
        parameter(8)
        parameter(9)
        trace.free(narrow, saved.pop(), saved.pop(), saved.pop(), saved.pop(), gradient)
        attention = trace.alloc(width)
        parameter(2)
        parameter(3)
        queries = trace.alloc(3 * width)
        trace.temporary(4 * batch * self.heads * length, 2 * width)
        trace.free(attention)
        back = trace.alloc(width)
        parameter(0)
        parameter(1)
        trace.free(queries)
        result = trace.alloc(width)
        parameter(10)
        parameter(11)
        trace.free(back, normed, *reversed(saved))
        saved.clear()
        return result

    def loss(self, batch: int, length: int) -> tuple[int, list[int]]:
        """The output layer forward and back: the gradient of its input, and what its own backward still holds."""
        trace = self.trace
        tokens = batch * length
        logits = trace.alloc(2 * tokens * self.vocabulary)
        wide = trace.alloc(4 * tokens * self.vocabulary)
        logarithms = trace.alloc(4 * tokens * self.vocabulary)
        trace.free(wide)
        value = trace.alloc(4)
        back = trace.alloc(4 * tokens * self.vocabulary)
        trace.free(logarithms)
        half = trace.alloc(2 * tokens * self.vocabulary)
        trace.free(back, logits)
        gradient = trace.alloc(2 * tokens * self.hidden)
        return gradient, [half, value]

    def train(self, batch: int, length: int, gradients: dict[int, int] | None, recompute: bool = False) -> None:
        trace = self.trace
        width = 2 * batch * length * self.hidden
        ids = [trace.alloc(8 * batch * length), trace.alloc(8 * batch * length)]
        held = [[trace.alloc(width)]]
        for _ in range(self.layers):
            saved = self.forward_layer(batch, length)
            if recompute:
                output = saved.pop()
                trace.free(*saved)
                saved = [output]
            held.append(saved)
        gradient, rest = self.loss(batch, length)
        if gradients is not None:
            fresh = trace.alloc(2 * self.shapes[0])
            if 0 in gradients:
                trace.free(fresh)
            else:
                gradients[0] = fresh
        trace.free(*rest)
        for layer in reversed(range(self.layers)):
            saved = held.pop()
            if recompute:
                outer, saved = saved, self.forward_layer(batch, length)
                gradient = self.backward_layer(batch, length, saved, gradient, layer, gradients)
                trace.free(*outer)
            else:
                gradient = self.backward_layer(batch, length, saved, gradient, layer, gradients)
        trace.free(gradient, *held.pop(), *ids)

    def update(self, gradients: dict[int, int]) -> None:
        """Updates groups of parameters at once, as such an optimizer does, then drops the gradients."""
        trace = self.trace
        trace.temporary(*[4] * 8, 4 * len(gradients))
        order = list(gradients)
        for start in range(0, len(order), 48):
            group = [trace.alloc(4 * self.shapes[number]) for number in order[start:start + 48]]
            trace.free(*group)
        trace.free(*gradients.values())
        gradients.clear()


def varlen(trace: Trace, events: int) -> None:
    model = Transformer(trace, 12, 1536, 50304, 12)
    first = True
    while trace.events < events:
        gradients: dict[int, int] = {}
        model.train(16, trace.random.randrange(128, 2049), gradients)
        if first:
            model.optimizer_state()
            first = False
        model.update(gradients)
        trace.step()


def accum(trace: Trace, events: int) -> None:
    model = Transformer(trace, 24, 1792, 32000, 14)
    first = True
    while trace.events < events:
        gradients: dict[int, int] = {}
        for _ in range(8):
            model.train(4, 64 * trace.random.randrange(4, 13), gradients)
        if first:
            model.optimizer_state()
            first = False
        model.update(gradients)
        trace.step()


def lora(trace: Trace, events: int) -> None:
    model = Transformer(trace, 12, 2560, 32000, 20)
    rank = 16
    adapters = [trace.alloc(4 * rank * model.hidden) for _ in range(4 * 2 * model.layers)]
    state = False
    while trace.events < events:
        batch = 8
        length = trace.random.randrange(256, 2049)
        model.train(batch, length, None, recompute=True)
        gradients = [trace.alloc(4 * rank * model.hidden) for _ in adapters]
        if not state:
            for _ in adapters:
                trace.alloc(4 * rank * model.hidden)
                trace.alloc(4 * rank * model.hidden)
            state = True
        trace.temporary(*[4 * rank * model.hidden] * 32)
        trace.free(*gradients)
        trace.step()


def cnn_pass(trace: Trace, convolutions: list[tuple[int, int, int]], batch: int, train: bool, weights: list[int]) -> None:
    image = trace.alloc(4 * batch * 3 * 224 * 224)
    held: list[tuple[int, ...]] = []
    previous = image
    for channels, side, kernel in convolutions:
        size = 4 * batch * channels * side * side
        workspace = trace.alloc(512 + (kernel > 1) * trace.random.choice((1, 3, 7, 25)) * 8 * MIB)
        output = trace.alloc(size)
        trace.free(workspace)
        statistics = trace.alloc(4 * channels), trace.alloc(4 * channels)
        normed = trace.alloc(size)
        if train:
            held.append((output, *statistics, normed))
        else:
            trace.free(output, *statistics)
            if previous != image:
                trace.free(previous)
            previous = normed
    if not train:
        trace.free(previous, image)
        return
    logits = trace.alloc(4 * batch * 1000)
    gradient = trace.alloc(4 * batch * convolutions[-1][0] * convolutions[-1][1] ** 2)
    trace.free(logits)
    gradients = []
    for index, (channels, side, kernel) in reversed(list(enumerate(convolutions))):
        size = 4 * batch * channels * side * side
        inner = trace.alloc(size)
        trace.free(gradient)
        workspace = trace.alloc(512 + (kernel > 1) * trace.random.choice((1, 4, 9, 31)) * 12 * MIB)
        gradients.append(trace.alloc(weights[index]))
        trace.free(workspace)
        below = convolutions[index - 1] if index else (3, 224, 1)
        gradient = trace.alloc(4 * batch * below[0] * below[1] ** 2)
        trace.free(inner, *held.pop())
    trace.free(gradient, image, *gradients)


def cnn(trace: Trace, events: int) -> None:
    stages = [(64, 56, 3), (128, 28, 4), (256, 14, 6), (512, 7, 3)]
    convolutions = [(64, 112, 7)]
    for channels, side, blocks in stages:
        for _ in range(blocks):
            convolutions += [(channels, side, 1), (channels, side, 3), (4 * channels, side, 1)]
    weights = []
    for index, (channels, _, kernel) in enumerate(convolutions):
        weights.append(4 * channels * kernel * kernel * (convolutions[index - 1][0] if index else 3))
        for _ in range(2):
            trace.alloc(weights[-1])
            trace.alloc(4 * channels)
            trace.alloc(4 * channels)
    while trace.events < events:
        for _ in range(12):
            cnn_pass(trace, convolutions, 128, True, weights)
            trace.step()
        cnn_pass(trace, convolutions, trace.random.randrange(17, 128), True, weights)  # the last batch of the epoch
        trace.step()
        for _ in range(4):
            cnn_pass(trace, convolutions, 200, False, weights)


def moe_layer(trace: Trace, tokens: int, hidden: int, experts: int) -> list[int]:
    width = 2 * tokens * hidden
    saved = [trace.alloc(width), trace.alloc(3 * width), trace.alloc(width), trace.alloc(4 * tokens * experts),
             trace.alloc(8 * tokens * 2)]
    shares = [trace.random.expovariate(1) ** 2 + 0.02 for _ in range(experts)]
    scale = 2 * tokens / sum(shares)
    for share in shares:
        rows = max(1, int(share * scale))
        gathered = trace.alloc(2 * rows * hidden)
        inner = [trace.alloc(2 * rows * 4 * hidden), trace.alloc(2 * rows * 4 * hidden)]
        trace.temporary(2 * rows * hidden)
        saved += [gathered, *inner]
    saved.append(trace.alloc(width))
    return saved


def moe(trace: Trace, events: int) -> None:
    layers = 8
    hidden = 1024
    experts = 8
    shapes = [32000 * hidden] + ([4 * hidden * hidden, hidden, hidden] + [4 * hidden * hidden] * 2 * experts) * layers
    for shape in shapes:
        trace.alloc(2 * shape)
    first = True
    while trace.events < events:
        tokens = 16384
        held = [moe_layer(trace, tokens, hidden, experts) for _ in range(layers)]
        logits = trace.alloc(2 * tokens * 32000)
        trace.temporary(4 * tokens * 32000)
        gradient = trace.alloc(2 * tokens * hidden)
        trace.free(logits)
        gradients = [trace.alloc(2 * shapes[0])]
        number = len(shapes)
        for saved in reversed(held):
            while saved:
                if len(saved) > 6 and trace.random.random() < 0.5:
                    number = max(1, number - 1)
                    gradients.append(trace.alloc(2 * shapes[number]))
                back = trace.alloc(2 * tokens * hidden)
                trace.free(saved.pop())
                trace.free(gradient)
                gradient = back
        trace.free(gradient)
        if first:
            for shape in shapes:
                trace.alloc(4 * shape)
                trace.alloc(4 * shape)
            first = False
        trace.temporary(*[4 * shape for shape in shapes[1:40]])
        trace.free(*gradients)
        trace.step()


def generate(trace: Trace, batch: int, prompt: int, length: int, layers: int, hidden: int) -> None:
    """Makes tokens one after another; each time copies each layer's cache to a longer one."""
    row = 2 * batch * hidden
    caches = [[trace.alloc(prompt * row), trace.alloc(prompt * row)] for _ in range(layers)]
    for position in range(prompt + 8, prompt + length, 8):
        hidden_state = trace.alloc(row)
        for cache in caches:
            trace.temporary(3 * row, 4 * batch * 16 * position)
            for side in range(2):
                longer = trace.alloc(position * row)
                trace.free(cache[side])
                cache[side] = longer
        logits = trace.alloc(4 * batch * 32000)
        trace.temporary(4 * batch * 32000)
        trace.free(logits, hidden_state)
    for cache in caches:
        trace.free(*cache)


def rlhf(trace: Trace, events: int) -> None:
    layers = 12
    hidden = 1536
    actor = Transformer(trace, layers, hidden, 50304, 12)
    Transformer(trace, layers, hidden, 50304, 12)  # the reference, frozen
    Transformer(trace, 12, 1024, 32000, 8)  # the reward, frozen
    first = True
    while trace.events < events:
        prompt = 32 * trace.random.randrange(2, 33)
        length = trace.random.randrange(64, 1025)
        for _ in range(2):
            generate(trace, 16, prompt, length, layers, hidden)
        gradients: dict[int, int] = {}
        for _ in range(4):
            actor.train(16, prompt + trace.random.randrange(length // 2, length + 1), gradients)
        if first:
            actor.optimizer_state()
            first = False
        actor.update(gradients)
        trace.step()


def serving(trace: Trace, events: int) -> None:
    layers = 16
    row = 2 * 1024
    Transformer(trace, 16, 3072, 32000, 24)
    running: list[tuple[list[int], list[int]]] = []  # caches; [length, end]
    while trace.events < events:
        if len(running) < 96 and trace.random.random() < 0.5:
            prompt = int(min(6144, 64 * 2 ** trace.random.uniform(0, 6.5)))
            state = trace.alloc(2 * prompt * 3072)
            caches = []
            for _ in range(2 * layers):
                caches.append(trace.alloc(prompt * row))
                trace.temporary(2 * prompt * 3 * 3072)
            trace.free(state)
            running.append((caches, [prompt, prompt + int(32 * 2 ** trace.random.uniform(0, 5))]))
        for caches, progress in trace.random.sample(running, min(2, len(running))):
            progress[0] += 32
            for index, cache in enumerate(caches):
                caches[index] = trace.alloc(progress[0] * row)
                trace.free(cache)
        for request in [request for request in running if request[1][0] >= request[1][1]]:
            trace.free(*request[0])
            running.remove(request)


def fsdp(trace: Trace, events: int) -> None:
    layers = 32
    ranks = 8
    gathering = 1
    reducing = 2
    copying = 3
    hidden = 3072
    whole = 2 * 12 * hidden * hidden
    for _ in range(layers + 1):
        for _ in range(3):
            trace.alloc(2 * whole // ranks)  # the shard and its two moments, in float32
    while trace.events < events:
        batch = 2
        length = trace.random.randrange(1024, 2049)
        width = 2 * batch * length * hidden
        data = trace.alloc(8 * batch * length, copying)
        trace.record_stream(data, 0)
        held = []
        gathered: list[int] = []
        for layer in range(layers + 2):
            if layer < layers:
                shard = trace.alloc(whole // ranks, gathering)
                gathered.append(trace.alloc(whole, gathering))
                trace.free(shard)
            if layer < 2:
                continue
            held.append([trace.alloc(width), trace.alloc(8 * batch * length), trace.alloc(3 * width), trace.alloc(width),
                         trace.alloc(4 * width)])
            trace.temporary(width, 4 * width)
            used = gathered.pop(0)
            trace.record_stream(used, 0)
            trace.free(used)
        logits = trace.alloc(4 * batch * length * 32000)
        trace.temporary(4 * batch * length * 32000)
        gradient = trace.alloc(width)
        trace.free(logits)
        sharded = []
        for _layer in range(layers):
            shard = trace.alloc(whole // ranks, gathering)
            weights = trace.alloc(whole, gathering)
            trace.free(shard)
            full = trace.alloc(whole)
            inner = trace.alloc(4 * width)
            trace.free(*reversed(held.pop()))
            back = trace.alloc(width)
            trace.free(inner, gradient)
            gradient = back
            trace.record_stream(weights, 0)
            trace.free(weights)
            flat = trace.alloc(2 * whole, reducing)
            trace.record_stream(full, reducing)
            trace.free(full)
            sharded.append(trace.alloc(2 * whole // ranks, reducing))
            trace.record_stream(sharded[-1], 0)
            trace.free(flat)
        trace.free(gradient, data)
        for shard in sharded:
            trace.temporary(2 * whole // ranks)
            trace.free(shard)
        trace.step()


def longlived(trace: Trace, events: int) -> None:
    draw = trace.random
    weights = [trace.alloc(6 * MIB) for _ in range(32)]
    live: list[tuple[int, int]] = []  # (the time at which the block is freed, the block)
    now = 0
    while trace.events < events:
        now += 1
        width = draw.randrange(1, 33) * 512 * KIB
        held = [trace.alloc(width) for _ in range(len(weights))]
        for block in reversed(held):
            for _ in range(3):
                size = int(2 ** draw.uniform(9, 20 + 2 * (draw.random() < 0.6)))
                life = int(2 ** draw.uniform(0, 6))
                live.append((now + life, trace.alloc(size)))
            trace.temporary(width, 2 * width)
            trace.free(block)
        gone = [block for until, block in live if until <= now]
        live = [entry for entry in live if entry[0] > now]
        draw.shuffle(gone)
        trace.free(*gone)
        trace.step()


KINDS: dict[str, Callable[[Trace, int], None]] = {
    "varlen": varlen, "accum": accum, "lora": lora, "cnn": cnn, "moe": moe, "rlhf": rlhf, "serving": serving, "fsdp": fsdp,
    "longlived": longlived}


def make(kind: str, seed: int, events: int, same_steps: bool) -> Trace:
    trace = Trace(seed, same_steps)
    KINDS[kind](trace, events)
    return trace


def waste(command: str, path: pathlib.Path) -> tuple[float, int, int]:
    """By how many percent the smallest device under PyTorch's default policy exceeds the requested peak; that peak; the number of
    events."""
    output = subprocess.run([command, "replay", str(path), "--policy", "torch", "--smallest", "--json"], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    result = json.loads(output)
    return (100.0 * (result["smallest_memory"] / result["requested_peak"] - 1), result["requested_peak"], result["events"])


def check(command: str, paths: Iterable[tuple[str, pathlib.Path]]) -> int:
    """Prints the column of PyTorch's default policy. Returns 1 if a trace wastes less than it must."""
    low = 0
    print(f"{'trace':<14} {'events':>8} {'peak GiB':>9} {'default':>9} {'at least':>9}")
    for kind, path in paths:
        percent, peak, events = waste(command, path)
        note = "" if percent >= LEAST_WASTE[kind] else "  too little"
        low += bool(note)
        print(f"{path.stem:<14} {events:>8} {peak / (1 << 30):>9.2f} {percent:>+8.2f}% {LEAST_WASTE[kind]:>+8.1f}%{note}",
              flush=True)
    return 1 if low else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Made-up traces of training.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only this kind; may be given several times")
    parser.add_argument("--seeds", type=int, default=1, help="traces of each kind (1)")
    parser.add_argument("--first-seed", type=int, default=1, help="the seed of the first one (1)")
    parser.add_argument("--events", type=int, default=100000, help="at least as many allocations and frees (100000)")
    parser.add_argument("--same-steps", action="store_true", help="steps that repeat; for kinds that mark steps")
    parser.add_argument("--no-marks", action="store_true", help="leave out the marks of steps")
    parser.add_argument("--check", metavar="NEAP", help="the command; prints what PyTorch's default policy wastes on each")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in arguments.kind or KINDS:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            parts = [kind] + ["same"] * arguments.same_steps + ["unmarked"] * arguments.no_marks + [str(seed)]
            path = arguments.folder / ("-".join(parts) + ".txt")
            trace = make(kind, seed, arguments.events, arguments.same_steps)
            lines = [line for line in trace.lines if line != "s" or not arguments.no_marks]
            path.write_text("\n".join(lines) + "\n", encoding="ascii")
            paths.append((kind, path))
    return check(arguments.check, paths) if arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
