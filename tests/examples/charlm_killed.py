"""Kills charlm before calls that write (open, write, fsync, rename, unlink, mkdir) and resumes it: the end is the same to
the bit. Usage: charlm_killed.py CHARLM FAILING_CALLS [INSTANTS]

The run saves after every step and keeps few, so most calls are those of saving and of removing. Each instant is a run of
its own: killed there, killed again somewhere in what is left, then left alone; most are calls other than write(2), the
ones that a directory sees. It must go on from the last save each time. NEAP_TEST_SEED chooses the instants.
"""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

charlm, failing_calls = (os.path.realpath(path) for path in sys.argv[1:3])
instants = int(sys.argv[3]) if len(sys.argv) > 3 else 45
seed = int(os.environ.get("NEAP_TEST_SEED", "1"))
random.seed(seed)

STEPS = 6
COMMON = f"--text text --layers 1 --width 16 --heads 2 --context 16 --batch 8 --steps {STEPS} --log-every 0".split()


def run(options, resume=True, **variables):
    environment = dict(os.environ, NEAP_LOG_LEVEL="info", **variables)
    if variables:
        environment["LD_PRELOAD"] = failing_calls
        environment["ASAN_OPTIONS"] = "verify_asan_link_order=0:" + environment.get("ASAN_OPTIONS", "")
    command = [charlm, *COMMON, *options, *(["--resume"] if resume else [])]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def checkpoints(path):
    """The whole checkpoints, oldest first."""
    if path.is_dir():
        return sorted(path.glob("step=*.ckpt"))
    return [path] if path.exists() else []


def count_calls(options, path):
    done = run(options, FAILING_CALLS_COUNT="count")
    if done.returncode != 0:
        sys.exit(f"FAILED: undisturbed: {done.returncode}\n{done.stderr}")
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    total, *others = map(int, pathlib.Path("count").read_text(encoding="ascii").split())
    return total, others


def saved(done):
    """The step of the last save that had ended with the run, by its log; 0: none."""
    return max(map(int, re.findall(r"charlm: saved (\d+)", done.stderr)), default=0)


def resumed(done, before, what):
    """Complains unless the run continued from the last save before it, or from a save that a kill let end but not be
    reported."""
    found = re.search(r"^resumed after step (\d+)", done.stdout, re.M)
    step = int(found[1]) if found else 0
    if done.stdout and not before <= step <= before + 2:
        sys.exit(f"FAILED: {what}: step {before} was saved, but this is where it resumed: {step}\n{done.stderr}")
    return max(step, saved(done))


def kill_at(call, options, before):
    """Runs until that call. Returns whether it was killed there, and what is saved then."""
    done = run(options, FAILING_CALLS_KILL=str(call))
    if done.returncode not in (0, -9):
        sys.exit(f"FAILED: call {call}: exit status {done.returncode}\n{done.stderr}")
    # Its output may have been lost with it.
    return done.returncode != 0, max(before, saved(done)) if done.returncode else resumed(done, before, f"call {call}")


def try_layout(name, options, path, chosen):
    undisturbed = run(options, resume=False)
    if undisturbed.returncode != 0:
        sys.exit(f"FAILED: undisturbed: {undisturbed.returncode}\n{undisturbed.stderr}")
    expected = [(file.name, file.read_bytes()) for file in checkpoints(path)]
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    calls, others = count_calls(options, path)
    tried = set(random.sample(others, min(chosen, len(others)))) | set(random.sample(range(1, calls + 1), 5))
    kills = 0
    for call in sorted(tried):
        what = f"{name}: killed before call {call}"
        killed, step = kill_at(call, options, 0)
        if not killed:
            sys.exit(f"FAILED: {name}: call {call} of {calls} was not reached")
        again, step = kill_at(random.randrange(1, calls - call + 2), options, step)
        kills += 1 + again
        last = run(options)
        if last.returncode != 0:
            sys.exit(f"FAILED: {what}: resuming: {last.returncode}\n{last.stderr}")
        resumed(last, step, what)
        end = [(file.name, file.read_bytes()) for file in checkpoints(path)]
        if not end or end[-1] != expected[-1]:
            sys.exit(f"FAILED: {what}: the weights at the end differ")
        # A checkpoint that should have gone may still be there if the run was over; none that stays may be missing or
        # differ.
        if any(file not in end for file in expected):
            sys.exit(f"FAILED: {what}: {[file for file, _ in end]} are kept")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        for left in pathlib.Path().glob("*.tmp-*"):
            left.unlink()
    print(f"{name}: {calls} writing calls, {len(others)} of them not write(2); killed at {kills} instants of {len(tried)} runs (seed {seed}); bit-equal ends")


folder = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
try:
    os.chdir(folder)
    pathlib.Path("text").write_text("".join(f"the {i % 7} cats of step {i} sat on mat {i * i % 11}.\n" for i in range(600)),
                                    encoding="ascii")
    os.makedirs("runtime", 0o700)
    os.environ.update(NEAP_SIM=f"mem=64MiB,world=charlm-killed-{os.getpid()}", XDG_RUNTIME_DIR=f"{folder}/runtime",
                      XDG_STATE_HOME=f"{folder}/state")
    one = pathlib.Path("state.bin")
    try_layout("one file", ["--checkpoint", str(one), "--checkpoint-every", "1"], one, instants * 2 // 5)
    several = pathlib.Path("kept")
    try_layout("a folder, the best 2 and the newest 2 kept",
               ["--checkpoint", str(several), "--checkpoint-every", "1", "--keep-last", "2", "--keep-best", "2"], several,
               instants - instants * 2 // 5)
finally:
    shutil.rmtree(folder)
