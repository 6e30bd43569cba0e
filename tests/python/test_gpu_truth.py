"""Estimates against a GPU, event by event: the recordings that bench/gpu_truth.py made there, compared with the same
programs on the simulator of that GPU, with the same PyTorch. The recordings are in tests/python/gpu_truth; without
one this is skipped. Never put a simulator's recording there.

    test_gpu_truth.py [--recorded FILE] [--build BUILD] [--keep FILE] [--spoil]

--recorded: use this recording instead. --spoil: change one event of it first; then the test must fail. --keep: keep
the simulated recording. NEAP_LONG=1 runs every program, otherwise the first dozen.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "bench"))
import gpu_events
import gpu_truth

DATA = SOURCE / "tests" / "python" / "gpu_truth"
PROGRAMS = 12
# Programs that are known to differ, and why: {name: (cause, least share of equal events, largest error of a peak in
# percent)}.
KNOWN = {
    # From run to run of the same program as well: some 3 of 10 652 events change places.
    "ddp_one_rank": ("a thread of the reducer's frees its bucket while the other allocates", 0.99, 0.0),
}
PROFILES = {("H100", 80): "h100-80gb", ("H200", 141): "h200-141gb"}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def profile(head):
    for (name, _), found in PROFILES.items():
        if name in head["gpu"]:
            return found
    return None


def simulate(head, names, build, out):
    """The programs' results on the simulator. Continues until none is left."""
    command = [sys.executable, str(SOURCE / "bench" / "gpu_truth.py"), "--out", str(out), "--only", ",".join(names), "--seconds", "3000",
               "--case-seconds", "600", "--simulate", profile(head), "--build", str(build)]  # fmt: skip
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise SystemExit(f"bench/gpu_truth.py on the simulator: exit status {done.returncode}")
    return gpu_truth.read(out)[1]


def differences(real, simulated):
    """Lines about programs that differ otherwise than KNOWN says."""
    for name, why, errors, found in gpu_truth.summarise({name: (real[name], simulated.get(name, {})) for name in real}):
        if why:
            if "events" in real[name]:
                yield f"{name}: {why}"
            continue
        cause, least, within = KNOWN.get(name, ("", 1.0, 0.0))
        share = found.equal / max(found.events, found.others, 1)
        for kind, (recorded, other) in errors.items():
            if abs(gpu_truth.percent(recorded, other)) > within:
                yield f"{name}: {kind} peak {recorded} on the GPU, {other} simulated{f' ({cause})' if cause else ''}"
        if share < least:
            yield f"{name}: {found.events} events on the GPU, {found.others} simulated, {found.equal} equal in order"
            for place, ours, _, theirs in found.gaps[:3]:
                yield f"    event {place}: GPU {ours[:3]}, simulated {theirs[:3]}"


def spoil(real):
    name, result = next((name, result) for name, result in real.items() if "events" in result)
    events = gpu_events.unpack(result["events"])
    action, size, stream, address = events[len(events) // 2]
    events[len(events) // 2] = (action, size + 512, stream, address)
    return {name: {**result, "events": gpu_events.pack(events)}}


def test(path, options, folder):
    head, real = gpu_truth.read(path)
    ours = gpu_truth.versions()
    if head["packages"]["torch"].split("+")[0] != ours.get("torch", "none").split("+")[0]:
        return [], f"{path.name} is of PyTorch {head['packages']['torch']}, not {ours.get('torch')}"
    if head.get("simulated") and not options.recorded:
        return [f"{path.name} was recorded on a simulator"], None
    if not profile(head):
        return [f"{path.name}: there is no profile of {head['gpu']}"], None
    same = all(head["packages"].get(name) == ours.get(name) for name in ("transformers", "peft", "timm"))
    names = [name for name in real if same or not name.startswith(("hf_", "timm_"))]
    if not os.environ.get("NEAP_LONG") and not options.recorded:
        names = names[:PROGRAMS]
    real = {name: real[name] for name in names}
    if options.spoil:
        real = spoil(real)
    return list(differences(real, simulate(head, list(real), options.build, options.keep or folder / path.name))), None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recorded", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("NEAP_SIM_PATH", "build/sim/driver")).parent.parent)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--spoil", action="store_true")
    options = parser.parse_args()
    paths = [options.recorded] if options.recorded else sorted(DATA.glob("*.json"))
    if not paths:
        skip("there is no recording of a GPU yet: tools/gpu_day.sh makes one (bench/README.md)")
    found = []
    skipped = []
    with tempfile.TemporaryDirectory(prefix="gpu-truth-") as folder:
        for path in paths:
            lines, why = test(path, options, pathlib.Path(folder))
            found += lines
            skipped += [why] if why else []
    if skipped and len(skipped) == len(paths):
        skip("; ".join(skipped))
    print("\n".join(found) or f"{', '.join(path.name for path in paths)}: every event is equal")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
