"""schemas.py NEAP SOURCE HOLD TARGET: each command's --json, run once on made data, is what docs/reference/json promises.

An output has every field that its schema requires, of the types it says, and none that the schema lacks. `schemas.py NEAP SOURCE`
does the same of neap estimate, for which NEAP_TORCH_PYTHON is a Python with torch. Skipped without Debian's python3-jsonschema.
"""

import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    import jsonschema
except ImportError:
    print("skipped: python3-jsonschema is not installed")
    sys.exit(77)

NEAP, SOURCE, *STAND_INS = map(os.path.abspath, sys.argv[1:])
SCHEMAS = pathlib.Path(SOURCE, "docs", "reference", "json")


def closed(schema):
    """The schema, which allows no other fields than those it names: a release may add fields, this one has none."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(part) for key, part in schema.items()}
    if isinstance(schema.get("properties"), dict):
        result["additionalProperties"] = False
    return result


def undescribed(schema, path=""):
    """Paths of fields without a description."""
    for name, field in schema.get("properties", {}).items():
        if not field.get("description"):
            yield f"{path}.{name}"
        yield from undescribed(field, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from undescribed(schema["items"], path + "[]")
    for name, part in schema.get("$defs", {}).items():
        yield from undescribed(part, f"$defs.{name}")


class Checked:
    """The schemas, and how many outputs each has passed."""

    def __init__(self):
        self.schemas = {path.name.partition(".")[0]: json.loads(path.read_text()) for path in SCHEMAS.glob("*.schema.json")}
        self.validators = {}
        self.counts = dict.fromkeys(self.schemas, 0)
        self.failures = []
        for name, schema in self.schemas.items():
            jsonschema.Draft202012Validator.check_schema(schema)
            self.validators[name] = jsonschema.Draft202012Validator(closed(copy.deepcopy(schema)))
            self.failures += [f"{name}: no description: {path}" for path in undescribed(schema)]

    def hold(self, name, output, what):
        self.counts[name] += 1
        try:
            wrong = list(self.validators[name].iter_errors(json.loads(output)))
        except ValueError as error:
            self.failures.append(f"{what}: {error}: {output[:80]!r}")
            return
        self.failures += [f"{what}: {error.json_path}: {error.message[:200]}" for error in wrong]

    def run(self, *arguments, status=0, schema=None):
        done = subprocess.run([NEAP, *arguments], capture_output=True, text=True)
        what = f"neap {' '.join(arguments)}"
        if done.returncode != status:
            self.failures.append(f"{what}: exit status {done.returncode}: {done.stderr[-300:]}")
        else:
            self.hold(schema or arguments[0], done.stdout, what)


def running_processes(checked, target_path):
    """The verbs that ask processes on devices: one attached, one not."""
    checked.run("info", "--json")
    target = subprocess.Popen([target_path, "4", "8"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    plain = subprocess.Popen([target_path, "--plain", "4", "8"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        target.stdout.readline()
        plain.stdout.readline()
        checked.run("info", "--json")
        checked.run("fraction", "0.5", "--pid", str(target.pid), "--json")
        checked.run("clear", "--pid", str(target.pid), "--json")
        checked.run("reset", "--pid", str(target.pid), "--json")
        checked.run("explain", "--pid", str(target.pid), "--json")
        checked.run("kill", "--dry-run", "--pid", str(plain.pid), "--json")
        checked.run("kill", "--yes", "--pid", str(plain.pid), "--json")
    finally:
        for process in (target, plain):
            process.kill()
            process.communicate()


def repeated(checked):
    """neap info --every, and neap serve's JSON."""
    with subprocess.Popen([NEAP, "info", "--json", "--every", "20ms"], stdout=subprocess.PIPE, text=True) as info:
        for _ in range(2):
            checked.hold("info", info.stdout.readline(), "neap info --json --every")
        info.terminate()
    with subprocess.Popen([NEAP, "serve", "--listen", "127.0.0.1:0", "--every", "100ms"], stdout=subprocess.PIPE, text=True) as server:
        address = server.stdout.readline().split()[2].rstrip("/")
        for path, schema in (("/api", "info"), ("/api/history", "curves")):
            with urllib.request.urlopen(address + path) as answer:
                checked.hold(schema, answer.read().decode(), path)
        server.terminate()


def runs(checked, hold):
    """A run that ends well and one that runs out of memory, the history and the queue."""
    for folder, size in (("well", "64M"), ("out", "8G")):
        subprocess.run([NEAP, "run", "--folder", folder, "--", hold, size], capture_output=True)
        checked.hold("run", pathlib.Path(folder, "result.json").read_text(), f"{folder}/result.json")
    checked.run("explain", "out", "--json")
    checked.run("history", "--json")
    checked.run("queue", "--json")
    holds = subprocess.Popen([NEAP, "run", "--folder", "holds", "--needs", "3G", "--", hold, "--until", "end", "64M"],
                             stderr=subprocess.DEVNULL)  # fmt: skip
    subprocess.run([NEAP, "queue", "add", "--needs", "3G", "--", "true"], capture_output=True, check=True)
    checked.run("queue", "--json")
    pathlib.Path("end").touch()
    holds.wait()
    until = time.monotonic() + 60
    while json.loads(subprocess.check_output([NEAP, "queue", "--json"]))["tickets"] and time.monotonic() < until:
        time.sleep(0.1)


def version(checked):
    output = subprocess.check_output([NEAP, "--version", "--json"], text=True)
    checked.hold("version", output, "neap --version --json")
    source = pathlib.Path(SOURCE, "meson.build").read_text()
    if f"version: '{json.loads(output)['version']}'" not in source:
        checked.failures.append("neap --version --json: not the version of meson.build")


def traces(checked):
    steps = "".join(f"a {i} 3145728 0\na 99 67108864 0\nf 99\ns\n" for i in range(40))
    pathlib.Path("steps.txt").write_text(steps)
    pathlib.Path("one.txt").write_text("a 1 8388608 0\na 2 16777216 0\nf 2\na 3 4096 1\ns\n")
    for trace in ("steps.txt", "one.txt", "well", "out"):
        checked.run("analyze", trace, "--json")
        checked.run("analyze", trace, "--memory", "64GiB", "--json")
    checked.run("compare", "one.txt", "steps.txt", "--json")
    checked.run("check", "one.txt", "--max-peak", "1GiB", "--json")
    checked.run("check", "steps.txt", "--max-growth", "1MiB", "--json", status=1)
    for policy in ("neap", "torch"):
        checked.run("replay", "steps.txt", "--policy", policy, "--smallest", "--json")
    checked.run("explain", os.path.join(SOURCE, "examples", "oom.log"), "--json")


def races(checked):
    """A run's folder with one race, one kernel that is not seen, and one limit."""
    side = {"name": "aten::mul", "place": 1, "use": "reads", "stream": 1, "device": 0}
    block = {"address": 512, "bytes": 64, "allocated": 1, "freed": 0, "stream": 0, "device": 0}
    race = {"kind": "lifetime", "first": side, "second": {**side, "stream": None, "place": 0}, "bytes": 4, "address": 512, "block": block}
    lines = [{"lost": 0, "of": ""}, race, {"not_seen": "kernel"}, {"limit": "races"}]
    pathlib.Path("raced").mkdir()
    pathlib.Path("raced", "races.1").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pathlib.Path("raced", "places.1").write_text("neap-stacks 1\ttorch\tconf \n0\tprogram.py\t7\tstep\n")
    checked.run("check", "--streams", "raced", "--json", status=1, schema="check_streams")


def checkpoints(checked):
    for step in range(100, 700, 100):
        pathlib.Path("saved", f"step_{step}.pt").parent.mkdir(exist_ok=True)
        pathlib.Path("saved", f"step_{step}.pt").write_bytes(bytes(1000))
    checked.run("checkpoints", "saved", "--max", "2", "--dry-run", "--json")


def main():
    checked = Checked()
    folder = tempfile.mkdtemp(prefix="neap-schemas-")
    os.chdir(folder)
    os.environ.setdefault("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))  # neap estimate compiles once
    os.environ |= {"HOME": folder, "XDG_STATE_HOME": folder + "/state", "XDG_RUNTIME_DIR": folder, "LC_ALL": "C.UTF-8"}
    os.environ["NEAP_SIM"] = f"mem=4GiB,world=schemas-{os.getpid()}"
    os.environ.pop("LD_LIBRARY_PATH", None)
    if STAND_INS:
        hold, target = STAND_INS
        running_processes(checked, target)
        runs(checked, hold)
        repeated(checked)
        version(checked)
        traces(checked)
        checkpoints(checked)
        races(checked)
        checked.run("bench", "alloc", "--case", "hit", "--size", "4KiB", "--json")
    else:
        script = os.path.join(SOURCE, "examples", "train_torch.py")
        checked.run("estimate", "--gpu", "l4-24gb", "--json", "--", os.environ["NEAP_TORCH_PYTHON"], script)
    os.chdir("/")
    shutil.rmtree(folder)
    unused = [name for name, count in checked.counts.items() if not count and (name == "estimate") != bool(STAND_INS)]
    checked.failures += [f"{name}: no output was checked" for name in unused]
    print("\n".join(checked.failures) or f"{len(checked.schemas)} schemas, {sum(checked.counts.values())} outputs")
    sys.exit(bool(checked.failures))


main()
