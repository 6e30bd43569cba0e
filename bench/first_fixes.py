#!/usr/bin/env python3
"""How often the first fix of an out-of-memory card works: small PyTorch programs that run out of memory on a simulated device,
under `neap run`, with PyTorch's own allocator. The card's first fix is applied as it says, and the program runs again.

    bench/first_fixes.py [--seed N] [--programs N] [--build FOLDER] [--python PYTHON] [--only FAMILY] [--keep FOLDER] [--verbose]

PYTHON has PyTorch; without it: that of tools/python_env.sh. Families: transformers, CNNs, LSTMs, accumulation, variable lengths,
evaluation inside training, a leak, a limit, neighbours, a second process, a model that is itself too large. Their sizes are
random; a program that does not run out of memory gets larger batches until it does. FOLDER keeps recordings, cards and results;
programs that it has a result of are not run again, so that a bench that was ended continues there.

Prints a line for each program: its family, the cause and the first fix that the card named; "worked", "failed" or
"failed, perhaps" (the card had said perhaps); and the share of the live bytes whose purpose the card names. Then the
same by family, and the shares of purposes and of lines. Exit status 1 unless 95 of 100 worked and the card said perhaps for the rest.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
MIB = 1 << 20
DEVICE_MIB = 2048
CONTEXT_MIB = 64
SHARES = {"transformer": 16, "cnn": 14, "lstm": 10, "accumulation": 10, "lengths": 12, "evaluation": 8, "leak": 8, "limit": 8,
          "neighbours": 5, "second": 4, "too large": 5}  # fmt: skip
AT_ONCE = 20  # programs under one `neap run`: they share the import of PyTorch
EXPANDABLE = "expandable_segments:True"
ATTEMPTS = 8  # tries to make a program run out of memory


# The programs.


def make_spec(family, rng):
    """Describes a program as data."""
    spec = {"family": family, "model": rng.choice(["transformer", "cnn", "lstm", "mlp"]), "steps": 6, "accumulate": 1,
            "optimizer": rng.choice(["AdamW", "AdamW", "Adam", "SGD", "momentum"]), "foreach": None, "seed": rng.randrange(1 << 30),
            "batch": rng.choice([96, 128, 192, 256]), "layers": rng.choice([2, 4, 6, 8]), "width": rng.choice([128, 192, 256, 384]),
            "length": rng.choice([64, 128, 256]), "fused_attention": rng.random() < 0.5, "fraction": 1.0, "leak": False,
            "neighbour": 0, "second": False, "checkpointing": False, "mixed": False, "evaluate": 0, "no_grad": True,
            "conf": "", "allocator": None}  # fmt: skip
    if family in ("transformer", "cnn", "lstm"):
        spec["model"] = family
    elif family == "accumulation":
        spec.update(accumulate=rng.choice([2, 4]))
    elif family == "lengths":
        spec.update(model="transformer", steps=12, varied=True)
    elif family == "evaluation":
        spec.update(evaluate=rng.choice([2, 4, 8]), no_grad=rng.random() < 0.5)
    elif family == "leak":
        spec.update(leak=True, steps=rng.choice([60, 80]), layers=2, width=128, length=64, batch=8,
                    model=rng.choice(["mlp", "lstm", "transformer"]), leak_mib=rng.choice([40, 50, 60]))  # fmt: skip
    elif family == "limit":
        spec.update(fraction=rng.choice([0.3, 0.4, 0.5]), batch=rng.choice([48, 64, 96]))
    elif family == "neighbours":
        spec.update(neighbour=rng.choice([1000, 1200, 1400]))
    elif family == "second":
        spec.update(second=True)
    elif family == "too large":
        spec.update(model="mlp", layers=rng.choice([8, 12, 16]), width=rng.choice([2560, 3072, 3584]), batch=16, grow="layers",
                    optimizer=rng.choice(["AdamW", "Adam"]))  # fmt: skip
    return spec


def grow(spec, round_):
    """Makes a program larger that completed."""
    if spec.get("grow") == "layers":
        spec["layers"] += 4
    else:
        spec["batch"] = int(spec["batch"] * (3 if round_ < 2 else 2))


def models(torch):
    """Defined here, so that the bench can be read without PyTorch."""
    nn = torch.nn
    functional = nn.functional

    class Block(nn.Module):
        def __init__(self, spec):
            super().__init__()
            width = spec["width"]
            self.heads = 4
            self.fused = spec["fused_attention"]
            self.norm1 = nn.LayerNorm(width)
            self.norm2 = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            if self.fused:
                attended = functional.scaled_dot_product_attention(q, k, v)
            else:
                attended = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(width), dim=-1) @ v
            x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Transformer(nn.Module):
        def __init__(self, spec):
            super().__init__()
            self.embedding = nn.Embedding(1000, spec["width"])
            self.blocks = nn.ModuleList(Block(spec) for _ in range(spec["layers"]))
            self.head = nn.Linear(spec["width"], 1000)
            self.checkpointing = spec["checkpointing"]

        def forward(self, x):
            x = self.embedding(x)
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
            return self.head(x)

    class Cnn(nn.Module):
        def __init__(self, spec):
            super().__init__()
            width = max(spec["width"] // 8, 8)
            layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
            for i in range(spec["layers"]):
                wider = width * 2 if i % 2 else width
                layers += [nn.Conv2d(width, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU()]
                layers += [nn.MaxPool2d(2)] if i % 2 else []
                width = wider
            self.features = nn.Sequential(*layers)
            self.head = nn.Linear(width, 1000)

        def forward(self, x):
            return self.head(self.features(x).mean((2, 3)))

    class Lstm(nn.Module):
        def __init__(self, spec):
            super().__init__()
            self.embedding = nn.Embedding(1000, spec["width"])
            self.lstm = nn.LSTM(spec["width"], spec["width"], max(spec["layers"] // 2, 1), batch_first=True)
            self.head = nn.Linear(spec["width"], 1000)

        def forward(self, x):
            return self.head(self.lstm(self.embedding(x))[0])

    class Mlp(nn.Module):
        def __init__(self, spec):
            super().__init__()
            width = spec["width"]
            self.first = nn.Linear(64, width)
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(spec["layers"]))
            self.last = nn.Linear(width, 1000)

        def forward(self, x):
            x = torch.relu(self.first(x))
            for layer in self.layers:
                x = torch.relu(layer(x))
            return self.last(x)

    return {"transformer": Transformer, "cnn": Cnn, "lstm": Lstm, "mlp": Mlp}


def small_adam(torch):
    """Adam with its state in 8 bits, as far as memory goes."""

    class Adam8bit(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if not self.state[p]:
                        for name in ("first", "second"):
                            self.state[p][name] = torch.zeros(p.numel(), dtype=torch.uint8, device=p.device)
                    p.data.add_(p.grad, alpha=-0.1)

    return Adam8bit


def optimizer_of(torch, spec, parameters):
    kind = spec["optimizer"]
    if kind == "SGD":
        return torch.optim.SGD(parameters, lr=0.1, foreach=spec["foreach"])
    if kind == "momentum":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=spec["foreach"])
    if kind == "Adam8bit":
        return small_adam(torch)(parameters)
    return getattr(torch.optim, kind)(parameters, lr=1e-3, foreach=spec["foreach"])


def make_batch(torch, spec, count, length):
    if spec["model"] == "cnn":
        side = 32 if length < 128 else 48
        return torch.zeros(count, 3, side, side, device="cuda"), torch.zeros(count, dtype=torch.long, device="cuda")
    if spec["model"] == "mlp":
        return torch.zeros(count * 8, 64, device="cuda"), torch.zeros(count * 8, dtype=torch.long, device="cuda")
    tokens = torch.zeros(count, length, dtype=torch.long, device="cuda")
    return tokens, tokens


def train(torch, spec):
    """Trains one program."""
    rng = random.Random(spec["seed"])
    if spec["fraction"] < 1:
        torch.cuda.set_per_process_memory_fraction(spec["fraction"])
    model = models(torch)[spec["model"]](spec).cuda()
    optimizer = optimizer_of(torch, spec, model.parameters())
    kept = []

    def loss_of(count, length):
        inputs, targets = make_batch(torch, spec, count, length)
        with torch.autocast("cuda", torch.bfloat16, enabled=spec["mixed"]):
            output = model(inputs)
            return torch.nn.functional.cross_entropy(output.view(-1, output.shape[-1]), targets.view(-1))

    for step in range(spec["steps"]):
        length = rng.choice([spec["length"] // 4, spec["length"] // 2, spec["length"]]) if spec.get("varied") else spec["length"]
        for _ in range(spec["accumulate"]):
            loss = loss_of(spec["batch"], length)
            (loss / spec["accumulate"]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if spec["leak"]:
            kept.append(torch.zeros(spec["leak_mib"] * MIB // 4, device="cuda"))
        if spec["evaluate"] and step % 3 == 2:
            model.eval()
            with torch.set_grad_enabled(not spec["no_grad"]):
                kept_loss = loss_of(max(int(spec["batch"] * spec["evaluate"] // spec.get("eval_divisor", 1)), 1), length)
            del kept_loss
            model.train()


# The children: all programs of one `neap run`, one after another.


def fork(work):
    """Starts a child that does the work. Returns its PID, and the end of a pipe through which it says that it is ready."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 4
        try:
            os.close(reading)
            code = work(writing)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    return pid, reading


def run_child(torch, spec):
    def work(_):
        try:
            train(torch, spec)
        except torch.cuda.OutOfMemoryError as error:
            print(spec["number"], str(error).split(". ")[:3], flush=True)
            return 3
        return 0

    return work


def hold(torch, size):
    def work(ready):
        held = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
        os.write(ready, b"x")
        signal.pause()
        return held.numel()

    return work


def children(path):
    """Runs the programs of a file, and writes each one's PID and exit code beside it."""
    import torch

    found = {}
    for spec in json.loads(pathlib.Path(path).read_text()):
        holders = []
        sizes = [spec["neighbour"]] if spec["neighbour"] else []
        sizes += [900] if spec["second"] else []  # it holds the memory that another rank of such a program would hold
        for size in sizes:
            pid, ready = fork(hold(torch, size))
            os.read(ready, 1)
            os.close(ready)
            holders.append(pid)
        pid, ready = fork(run_child(torch, spec))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(ready)
        found[spec["number"]] = [pid, status]
        for holder in holders:
            os.kill(holder, signal.SIGTERM)
            os.waitpid(holder, 0)
    pathlib.Path(path).with_suffix(".done").write_text(json.dumps(found))


# The bench.


class Bench:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.neap = pathlib.Path(arguments.build).resolve() / "src" / "neap"
        self.runs = 0
        build = pathlib.Path(arguments.build).resolve()
        (folder / "runtime").mkdir(mode=0o700, exist_ok=True)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("NEAP", "PYTORCH"))},
            "PYTHONPATH": str(build / "python"), "NEAP_DEVICE": "sim", "NEAP_SIM_PATH": str(build / "sim" / "driver"),
            "NEAP_SIM_RUNTIME": str(build / "sim" / "runtime"), "NEAP_SOURCE": str(HERE.parent.parent), "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_RUNTIME_DIR": str(folder / "runtime"), "XDG_STATE_HOME": str(folder / "state"),
        }  # fmt: skip

    def warm_up(self):
        """The very first run compiles, beside the program, the library that records PyTorch's allocations."""
        spec = dict(make_spec("transformer", random.Random(0)), number=0, batch=1, model="mlp")
        for _ in range(60):
            (recording, _) = self.run([spec])[0]
            if list(recording.parent.glob("stacks.*")):
                return
            time.sleep(5)
        raise SystemExit("PyTorch's allocations are not recorded here: is there a C++ compiler?")

    def run(self, specs, conf="", allocator=None):
        """Runs each program once. Returns its recording and exit code, by the number of its spec."""
        found = {}
        for first in range(0, len(specs), AT_ONCE):
            self.runs += 1
            run = self.folder / f"run-{os.getpid()}-{self.runs}"
            path = self.folder / f"specs-{os.getpid()}-{self.runs}.json"
            path.write_text(json.dumps(specs[first : first + AT_ONCE]))
            sim = f"mem={DEVICE_MIB}MiB,context={CONTEXT_MIB}MiB,backing=none,world=fixes-{os.getpid()}-{self.runs}"
            environment = {**self.environment, "NEAP_SIM": sim, **({"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else {})}
            neap = [self.neap, "run", "--quiet", *(["--allocator", allocator] if allocator else []), "--folder", run]
            done = subprocess.run([*neap, "--", self.arguments.python, HERE, "--children", path],
                                  env=environment, capture_output=True, text=True)  # fmt: skip
            if self.arguments.verbose or not path.with_suffix(".done").exists():
                print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
            for number, (pid, code) in json.loads(path.with_suffix(".done").read_text()).items():
                found[int(number)] = (run / f"record.{pid}", code)
        return found

    def card(self, recording):
        done = subprocess.run([self.neap, "explain", "--record", recording, "--json"], env=self.environment, capture_output=True, text=True)
        text = subprocess.run([self.neap, "explain", "--record", recording], env=self.environment, capture_output=True, text=True)
        return json.loads(done.stdout)["oom"], text.stdout


def apply(spec, fix):
    """The program with the fix; None: this bench cannot apply it."""
    spec = dict(spec)
    how = fix["apply"] or {}
    kind = fix["kind"]
    if kind == "no graph in evaluation":
        spec["no_grad"] = True
    elif kind == "smaller micro-batch" and "divide_evaluation_batch" in how:
        spec["eval_divisor"] = spec.get("eval_divisor", 1) * how["divide_evaluation_batch"]
    elif kind == "smaller micro-batch":
        divisor = how["divide_micro_batch"]
        before = spec["batch"]
        if before < divisor:
            return None
        spec["batch"] = int(before // divisor)
        spec["accumulate"] = spec["accumulate"] * min(math.ceil(before / spec["batch"]), 32)
    elif kind == "setting of the allocator" or kind == "expandable segments":
        spec.update(allocator=how.get("allocator"), conf=how.get("PYTORCH_CUDA_ALLOC_CONF", "" if "allocator" in how else EXPANDABLE))
    elif kind == "higher limit":
        spec["fraction"] = how["fraction"]
    elif kind == "end other processes":
        spec.update(neighbour=0, second=False)
    elif kind == "mend the leak":
        spec["leak"] = False
    elif kind == "optimizer with less state":
        spec["optimizer"] = {1: "momentum", 0.5: "Adam8bit", 0: "SGD"}[how["state_per_parameter"]]
    elif kind == "update without temporaries":
        spec["foreach"] = False
    elif kind == "smaller model":
        spec["width"] = max(int(spec["width"] * math.sqrt(how.get("share_of_parameters", 0.5))) // 8 * 8, 8)
    elif kind == "gradient checkpointing" and spec["model"] == "transformer":
        spec["checkpointing"] = True
    elif kind == "memory-efficient attention":
        spec["fused_attention"] = True
    elif kind == "mixed precision":
        spec["mixed"] = True
    else:
        return None
    return spec


def make_specs(arguments):
    rng = random.Random(arguments.seed)
    names = [name for name, share in SHARES.items() for _ in range(share)]
    names = [names[int(i * len(names) / arguments.programs)] for i in range(arguments.programs)]
    specs = [dict(make_spec(name, rng), number=i) for i, name in enumerate(names)]  # the same ones with and without --only
    return [spec for spec in specs if not arguments.only or spec["family"] == arguments.only]


def measure(bench, specs):
    """Runs programs, and again with the first fix of each. Returns by number: the program, its card, whether it worked."""
    found = {}
    waiting = specs
    for attempt in range(ATTEMPTS):
        results = bench.run(waiting) if waiting else {}
        ended = []
        for spec in waiting:
            recording, code = results[spec["number"]]
            found[spec["number"]] = {"spec": spec, "recording": str(recording), "code": code}
            if code == 3:
                card, text = bench.card(recording)
                found[spec["number"]].update(card=card, text=text)
            elif code == 0:
                grow(spec, attempt)
                ended.append(spec)
        waiting = ended
    again = collections.defaultdict(list)
    for spec in specs:
        first = first_fix(found[spec["number"]].get("card"))
        fixed = apply(spec, first) if first else None
        if fixed:
            again[fixed["conf"], fixed["allocator"]].append(fixed)
    for (conf, allocator), some in again.items():
        for number, (recording, code) in bench.run(some, conf, allocator).items():
            found[number].update(worked=code == 0, fixed=str(recording))
    return found


def measure_all(bench, specs, folder):
    """Measures the programs that the folder has no result of. Prints each one's line. Returns all results by number."""
    found = {}
    for spec in specs:
        path = folder / f"result-{spec['number']}.json"
        if path.exists():
            found[spec["number"]] = json.loads(path.read_text())
    missing = [spec for spec in specs if spec["number"] not in found]
    for number in sorted(found):
        print(line_of(found[number]), flush=True)
    if missing:
        bench.warm_up()
    for first in range(0, len(missing), AT_ONCE):
        for number, result in sorted(measure(bench, missing[first : first + AT_ONCE]).items()):
            found[number] = result
            (folder / f"result-{number}.json").write_text(json.dumps(result, indent=1))
            print(line_of(result), flush=True)
    return found


def first_fix(card):
    fixes = [fix for fix in card["fixes"] if not fix["active_already"]] if card else []
    return fixes[0] if fixes else None


def named(card):
    """The share of the live bytes whose purpose the card names."""
    live = card["allocated"]
    return 1 - card["unknown_purpose"] / live if live else 1


def lined(card):
    """The share of the live bytes for which the card names a line of Python, or autograd's threads."""
    found = [holder["live"] for holder in card["holders"] if ".py:" in holder["text"] or holder["text"].startswith("autograd's threads")]
    return sum(found) / max(card["allocated"], 1)


def word_of(result):
    """How the first fix went; None: the program did not run out of memory."""
    first = first_fix(result.get("card"))
    if "card" not in result:
        return None
    return "worked" if result.get("worked") else "failed, perhaps" if first and first["perhaps"] else "failed"


def line_of(result):
    spec = result["spec"]
    head = f"{spec['number']:3} {spec['family']:13}"
    if "card" not in result:
        return f"{head} did not run out of memory" if result["code"] == 0 else f"{head} failed: {result['code']}"
    card = result["card"]
    first = first_fix(card) or {"kind": "none", "text": "", "perhaps": False}
    perhaps = " (perhaps)" if first["perhaps"] else ""
    head += f" {spec['model']:11} {card['cause']:13} {word_of(result):15} {100 * named(card):5.1f} %"
    return f"{head} {first['text'] or first['kind']}{perhaps}"


def report_named(results):
    """For purpose and line the distribution over all cards, and by family the least."""
    for what, share_of in (("purpose", named), ("line, or autograd's threads", lined)):
        shares = sorted(share_of(result["card"]) for result in results)
        least = {}
        for result in results:
            family = result["spec"]["family"]
            least[family] = min(least.get(family, 1), share_of(result["card"]))
        enough = sum(share >= 0.95 for share in shares)
        print(f"\nof the live bytes the card names the {what}: 95 % or more in {enough} of {len(shares)} cards", end="; ")
        places = (("least", 0), ("a tenth", 0.1), ("median", 0.5))
        print(", ".join(f"{name} {100 * shares[int(at * (len(shares) - 1))]:.1f} %" for name, at in places))
        print("least by family: " + ", ".join(f"{family} {100 * share:.1f} %" for family, share in least.items()))


def report(results):
    sums = collections.defaultdict(collections.Counter)
    failed = [result for result in results if "card" in result]
    for result in failed:
        sums[result["spec"]["family"]][word_of(result)] += 1
    total = sum(sums.values(), collections.Counter())
    print(f"\n{'family':13} {'worked':>7} {'perhaps':>8} {'failed':>7}")
    for family, counts in [*sums.items(), ("all", total)]:
        print(f"{family:13} {counts['worked']:7} {counts['failed, perhaps']:8} {counts['failed']:7}")
    if failed:
        report_named(failed)
    return total["failed"] == 0 and total["worked"] >= 0.95 * sum(total.values())


def main():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--build", default="build")
    parser.add_argument("--python", default=str(cache / "neap" / "python-{}.{}".format(*sys.version_info[:2]) / "bin" / "python"))
    parser.add_argument("--only", choices=SHARES)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--keep", help="a folder for recordings, cards and results, to continue from")
    parser.add_argument("--children", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.children:
        return children(arguments.children)
    folder = pathlib.Path(arguments.keep or tempfile.mkdtemp(prefix="neap-first-fixes-")).resolve()
    folder.mkdir(exist_ok=True)
    found = measure_all(Bench(arguments, folder), make_specs(arguments), folder)
    print(f"recordings, cards and results: {folder}")
    return 0 if report([found[number] for number in sorted(found)]) else 1


if __name__ == "__main__":
    sys.exit(main())
