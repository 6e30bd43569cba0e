#!/usr/bin/env python3
"""The command with a real trainer on a GPU: checks that tests/gpu.sh does not make.

    gpu_live.py --neap PATH --out FILE [--only NAME,...] [--seconds 300]

FILE gets a line of JSON for each check when it ends: {"check", "passed", "measured": [[what, text]]}; a check that has a line there
is not made again. The trainer is transformers' own (GPT-2 from its configuration), where transformers is installed, else
examples/train_torch.py. Exit status: 0 all passed, 1 one failed, 75 time ran out first. On the simulator (NEAP_DEVICE=sim) times
and computed values mean nothing.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_nvml

SOURCE = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
SIMULATED = os.environ.get("NEAP_DEVICE") == "sim"
BOUND = 900 if SIMULATED else 150  # seconds, of one command
LAYERS = 2 if SIMULATED else 12  # of the trainer's GPT-2
CHECKS = {}

TRAINER = """
import os, sys
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import torch, transformers
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
class Notes(transformers.TrainerCallback):
    def on_step_end(self, arguments, state, control, **more):
        with open("steps", "w") as file:
            file.write(str(state.global_step))
        if os.path.exists("stop"):
            control.should_training_stop = True
steps, batch, layers = map(int, sys.argv[1:])
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers))
rows = [{"input_ids": row, "labels": row} for row in torch.randint(50257, (512, 256))]
arguments = transformers.TrainingArguments("trained", max_steps=steps, per_device_train_batch_size=batch, bf16=True, save_strategy="no",
                                           logging_strategy="no", report_to=[])
transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[Notes()]).train()
"""


def check(function):
    CHECKS[function.__name__] = function
    return function


def mib(count):
    return f"{count / MIB:.1f} MiB"


class Place:
    """A folder, the command that runs in it, and the measured figures."""

    def __init__(self, neap, stack):
        self.neap = neap
        self.stack = stack
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu-live-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "runtime").mkdir(mode=0o700)
        dropped = ("NEAP_ATTACH", "NEAP_RUN_DIR", "NEAP_RUN_ID")
        self.environment = {k: v for k, v in os.environ.items() if k not in dropped}
        self.environment.update(XDG_RUNTIME_DIR=str(self.folder / "runtime"), XDG_STATE_HOME=str(self.folder / "state"))
        self.measured = []
        (self.folder / "trainer.py").write_text(TRAINER)

    def note(self, what, text):
        self.measured.append([what, text])

    def command(self, *words, status=(0,)):
        command = [self.neap, *map(str, words)]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=BOUND)
        if done.returncode not in status:
            raise AssertionError(f"neap {' '.join(map(str, words))}: exit status {done.returncode}: {done.stderr[-600:]}")
        return done

    def ask(self, *words):
        """Asks, and asks again if the program was too busy to answer."""
        for _ in range(200 if SIMULATED else 30):
            done = self.command(*words, "--json", status=(0, 75))
            if done.returncode == 0:
                return json.loads(done.stdout)
        raise AssertionError(f"neap {words[0]}: the program did not answer: {done.stderr[-300:]}")

    def start(self, *words):
        log = self.stack.enter_context(open(self.folder / "log", "w"))
        process = subprocess.Popen([self.neap, *map(str, words)], cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        self.stack.callback(end, process)
        return process

    def wait(self, what, true, process=None):
        limit = time.monotonic() + BOUND
        while not (found := true()):
            if process and process.poll() is not None:
                raise AssertionError(f"{what}: it ended: {(self.folder / 'log').read_text()[-600:]}")
            if time.monotonic() > limit:
                raise AssertionError(f"{what}: not within {BOUND} s")
            time.sleep(0.05)
        return found

    def steps(self):
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "steps").read_text())
        return 0

    def trainer(self, steps, batch=8):
        if importlib.util.find_spec("transformers"):
            return [sys.executable, "trainer.py", steps, batch, LAYERS]
        script = SOURCE / "examples" / "train_torch.py"
        size = ["--width", 768, "--layers", LAYERS, "--heads", 12, "--context", 256]
        return [sys.executable, script, "--steps", steps, "--batch", batch, *size]

    def training(self):
        """A trainer under neap run, in its fourth step or later; and its PID."""
        process = self.start("run", "--folder", "run", "--", *self.trainer(10**6))
        if importlib.util.find_spec("transformers"):
            self.wait("the trainer's steps", lambda: self.steps() > 3, process)
        else:
            self.wait("the trainer's steps", lambda: "step 10:" in (self.folder / "log").read_text(), process)
        return process, int(next((self.folder / "run").glob("record.*")).name.split(".")[1])

    def serve(self):
        """The address of a `neap serve`."""
        command = [self.neap, "serve", "--listen", "127.0.0.1:0", "--every", "200ms"]
        server = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.stack.callback(end, server)
        for line in server.stdout:
            if found := re.search(r"http://[\d.:]+", line):
                return found.group()
        raise AssertionError("neap serve ended without an address")

    def result(self, folder="run"):
        return json.loads((self.folder / folder / "result.json").read_text())


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def smi(query, of="gpu"):
    if SIMULATED or not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", f"--query-{of}={query}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return [line.split(", ") for line in done.stdout.splitlines()] if done.returncode == 0 else None


@check
def info_beside_nvidia_smi(place):
    """The ledger sums to the total and agrees with NVML to the byte, as long as nothing changes meanwhile."""
    process, pid = place.training()
    nvml = gpu_nvml.Nvml()

    def steady():
        before = nvml.memory()
        processes = nvml.processes()
        found = place.ask("info")
        return (found, before, processes) if nvml.memory() == before and nvml.processes() == processes else None

    found, (used, free, reserved), processes = place.wait("two equal readings of NVML", steady, process)
    (device,) = [d for d in found["devices"] if d["ledger"]["allocated"]]
    ledger = device["ledger"]
    parts = ("driver_reserved", "contexts", "allocated", "cached", "not_attached", "unexplained", "free")
    place.note("`neap info`, its ledger", ", ".join(f"{part} {mib(ledger[part])}" for part in (*parts, "total")))
    place.note("NVML at that instant", f"used {used}, free {free}, reserved {reserved} bytes; processes {processes}, the trainer is {pid}")
    rows = smi("memory.used,memory.free,memory.total")
    if rows:
        place.note("nvidia-smi", f"used, free, total {rows[0]} MiB; processes {smi('pid,used_memory', 'compute-apps')}")
        assert abs(int(rows[0][1]) - ledger["free"] // MIB) <= 1, (rows, ledger)
    assert sum(ledger[part] for part in parts) == ledger["total"], ledger
    assert (ledger["free"], ledger["driver_reserved"]) == (free, reserved), (ledger, free, reserved)
    listed = [p for p in found["processes"] if p["pid"] == pid]
    assert listed, f"neap info does not list {pid}: {found['processes']}"


@check
def verbs_while_it_trains(place):
    """clear, reset, fraction and a forced clear, while steps continue."""
    process, pid = place.training()
    for words in (["clear"], ["reset"], ["fraction", "0.5"], ["fraction", "1"], ["clear", "--force"]):
        before = place.steps()
        began = time.monotonic()
        (device,) = place.ask(*words, "--pid", pid)["processes"][0]["devices"]
        seconds = time.monotonic() - began
        freed = f"gave back {mib(device.get('freed') or 0)}"
        did = {"clear": freed, "fraction": f"limit {mib(device.get('limit') or 0)}"}.get(words[0], "done")
        place.note(f"`neap {' '.join(words)}` while it trains", f"{did}, {seconds * 1000:.0f} ms")
        if before:
            place.wait("steps after it", lambda before=before: place.steps() > before + 1, process)
    (place.folder / "stop").touch()


@check
def top_and_serve(place):
    process, pid = place.training()
    screen = place.command("top", "--once", "--width", "120", "--ascii").stdout
    assert str(pid) in screen, screen
    place.note("`neap top --once`", screen.splitlines()[0].strip())
    address = place.serve()
    text = urllib.request.urlopen(f"{address}/metrics", timeout=20).read().decode()
    served = json.loads(urllib.request.urlopen(f"{address}/api", timeout=20).read())
    (device,) = [d for d in served["devices"] if d["ledger"]["allocated"]]
    place.note("`neap serve`", f"{len(text.splitlines())} lines of metrics; /api: allocated {mib(device['ledger']['allocated'])}")
    assert f'pid="{pid}"' in text, text[:2000]


@check
def kill_and_drain(place):
    process, pid = place.training()
    began = time.monotonic()
    place.command("kill", "--pid", pid, "--yes")
    process.wait(BOUND)
    result = place.result()
    assert result["outcome"] == "killed", result["outcome"]
    drain = f"free again after {result['drain_ns'] / 1e6:.1f} ms" if result["drained"] else result["drain_note"]
    seconds = time.monotonic() - began
    place.note("`neap kill` of the trainer", f"{seconds:.2f} s in all; its {mib(result['peak_device_bytes'])} were {drain}")


@check
def card_of_a_full_device(place):
    """Checks the card if the device itself is full, without a limit."""
    code = "import torch\nkept = []\nwhile True: kept.append(torch.empty(1 << 30, dtype=torch.uint8, device='cuda'))\n"
    place.command("run", "--folder", "run", "--", sys.executable, "-c", code, status=(1,))
    result = place.result()
    assert (result["outcome"], result["ooms"]) == ("oom", 1), result["outcome"]
    place.note("the card of a full device", result["oom_card"].strip().split("\n", 1)[0])
    place.note("memory used then", f"{mib(result['peak_device_bytes'])} of {mib(result['device_total_bytes'])} by NVML")


SERIES = """name: five
defaults: {{needs: device, time_limit: 3m}}
experiments:
  - {{name: small, command: "{python} {script} --steps 20 --batch 16"}}
  - {{name: wide, command: "{python} {script} --steps 5 --batch 16 --width 768 --layers 8 --heads 12 --context 256"}}
  - name: too-large
    command: "{python} {script} --steps 2 --batch {{batch}} --accumulate {{accumulate}} --width 1024 --layers 12 --heads 16 --context 256"
    params: {{batch: {batch}, accumulate: 1}}
    on_oom: halve batch, double accumulate
  - {{name: fails, command: "{python} -c 'raise SystemExit(3)'"}}
  - {{name: last, command: "{python} {script} --steps 20 --batch 16"}}
"""


@check
def series_of_five(place):
    """One of five runs out of memory and continues with less, one fails: the others run, and the table says so."""
    script = SOURCE / "examples" / "train_torch.py"
    (place.folder / "five.yaml").write_text(SERIES.format(python=sys.executable, script=script, batch=1024))
    done = place.command("series", "five.yaml", "--folder", "series", status=(1,))
    for line in done.stdout.splitlines():
        if line.strip():
            place.note("`neap series`", line.strip()[:160])
    results = {r["name"]: r for r in (json.loads(p.read_text()) for p in (place.folder / "series").glob("**/result.json"))}
    assert len(results) >= 5, sorted(results)
    outcomes = [r["outcome"] for r in results.values()]
    assert outcomes.count("ok") == 4, {n: r["outcome"] for n, r in results.items()}
    assert any(r["retries"] > 0 for r in results.values()), {n: r["retries"] for n, r in results.items()}


@check
def estimates_beside_runs(place):
    """Compares neap estimate's answers with real runs."""
    runtime = pathlib.Path(place.neap).resolve().parent.parent / "sim" / "runtime"
    if not any(runtime.glob("libcudart.so.*")):
        place.note("`neap estimate` beside the run", "skipped: no stand-ins for CUDA's runtime in this build")
        return
    train = SOURCE / "examples" / "train_torch.py"
    programs = {"GPT-2 by transformers' Trainer": place.trainer(6),
                "examples/train_torch.py": [sys.executable, train, "--steps", 6, "--batch", 32, "--width", 384, "--layers", 6, "--heads", 6,
                                            "--context", 256]}  # fmt: skip
    gpu = os.environ.get("NEAP_SIM", "").split(",")[0] if SIMULATED else "here"
    for number, (name, words) in enumerate(programs.items()):
        estimate = json.loads(place.command("estimate", "--gpu", gpu, "--json", "--", *words, status=(0, 1)).stdout)
        place.command("run", "--folder", f"run{number}", "--", *words)
        result = place.result(f"run{number}")
        (found,) = estimate["gpus"]
        pairs = [(kind, found[f"{kind}_peak"], result[f"peak_{kind}_bytes"]) for kind in ("allocated", "reserved")]
        text = "; ".join(f"{kind}: estimated {e}, then {r} ({100 * (e / r - 1):+.3f} %)" for kind, e, r in pairs)
        bounds = found["process"]
        then = f"process: estimated {mib(bounds['low'])} to {mib(bounds['high'])}, then {mib(result['peak_device_bytes'])} (NVML)"
        place.note(f"`neap estimate`, {name}", f"{text}; {then}")
        assert all(abs(e / r - 1) < 0.01 for _, e, r in pairs), pairs


def read(path):
    """The checks that have a line; a line that was cut off does not count."""
    if not path.exists():
        return {}
    return {row["check"]: row for row in map(json.loads, path.read_text().split("\n")[:-1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neap", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    began = time.monotonic()
    done = read(options.out)
    left = [n for n in CHECKS if n not in done and (not options.only or n in options.only.split(","))]
    while left and time.monotonic() - began < options.seconds - 20:
        name = left.pop(0)
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            place = Place(os.path.abspath(options.neap), stack)
            row = {"check": name, "passed": True}
            try:
                CHECKS[name](place)
            except Exception as error:  # a check that fails is a result
                row.update(passed=False, why=f"{type(error).__name__}: {error}"[:1500], where=traceback.format_exc()[-600:])
        row.update(measured=place.measured, seconds=round(time.monotonic() - started, 1))
        done[name] = row
        with open(options.out, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{time.monotonic() - began:5.0f} s  {name}: {'passed' if row['passed'] else row['why'][:300]}", flush=True)
    if left:
        return 75
    return 0 if all(row["passed"] for row in done.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
