"""Every driver call and every host allocation of a short charlm run made to fail, one run for each.

    faults.py CHARLM FAILING_MALLOC_LIBRARY every|sampled|thread

A driver call fails with out-of-memory and with an unknown error, a host allocation with ENOMEM; each once, and for good
from there on, in this run and in a second one, on a device so small that it takes two rungs of the ladder. Without a sanitizer
every instant of both, with NEAP_LONG=1 (./test --long) alone. Whatever fails, and whenever, the run ends by itself in bounded time.
It succeeds with the losses and the checkpoint of a run that nothing disturbed (to a
tolerance after a rung of the ladder), or it says what failed and exits with a failure's status. The device's memory is
given back call for call, nothing illegal or unordered touches it, no file is left behind, no checkpoint is torn. Under the
sanitizers 100 instants of each and 30 of the second run are tried, and these look for leaks and wild accesses besides; the thread
sanitizer's variant leaves host allocations alone.
"""

import collections
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

charlm, failing_malloc = map(os.path.abspath, sys.argv[1:3])
how = sys.argv[3]
SAMPLED = how != "every"
if not SAMPLED and os.environ.get("NEAP_LONG") != "1":
    print("skipped: without a sanitizer only with NEAP_LONG=1")
    sys.exit(77)
HOST_TOO = how != "thread"
ROOMY = "64MiB"
OPTIONS = ["--steps", "2", "--batch", "24", "--context", "32", "--width", "32", "--heads", "2", "--layers", "1", "--checkpoint-every", "1",
           "--device-warn", "1KiB", "--device-stop", "1KiB", "--host-stop", "1KiB", "--clear-memory-on-start"]
TIGHT = "8MiB"
TIGHT_OPTIONS = ["--steps", "2", "--batch", "2", "--context", "256", "--width", "32", "--heads", "2", "--layers", "3", "--checkpoint-every", "1"]
BOUND_S = 60
OUT_OF_MEMORY = 2
UNKNOWN = 999
# What was taken, and the call that gives it back. One cuMemUnmap serves many pages, so these are not counted:
# cuMemAddressFree is refused while a page is still mapped.
PAIRS = {"cuMemCreate": "cuMemRelease", "cuMemAddressReserve": "cuMemAddressFree",
         "cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease", "cuCtxPushCurrent": "cuCtxPopCurrent"}

root = tempfile.mkdtemp(prefix="neap-faults-")
numbers = iter(range(1 << 30))
problems = []
tally = collections.Counter()
Run = collections.namedtuple("Run", "status out err losses checkpoint calls allocations left seconds_out")


def read(path, mode="r"):
    try:
        with open(path, mode) as file:
            return file.read()
    except FileNotFoundError:
        return None


def run(variables, resumed=None):
    """One run in a world and folders of its own; it resumes from a checkpoint if one is given."""
    folder = f"{root}/{next(numbers)}"
    for name in ("", "/runtime", "/state", "/work"):
        os.mkdir(folder + name, 0o700)
    environment = dict(os.environ, NEAP_ATTACH="1", NEAP_SIM=f"mem={memory},context=2MiB,reserved=2MiB,world=faults-{os.path.basename(root)}-"
                       f"{os.path.basename(folder)}", XDG_RUNTIME_DIR=folder + "/runtime",
                       XDG_STATE_HOME=folder + "/state", NEAP_SIM_LOG=folder + "/log", **variables)
    if "FAILING_MALLOC" in variables:
        environment.update(LD_PRELOAD=failing_malloc, FAILING_MALLOC_COUNT=folder + "/count",
                           **({"FAILING_MALLOC_MAIN_THREAD": "1"} if SAMPLED else {}))
    if resumed is not None:
        with open(folder + "/work/state", "wb") as file:
            file.write(resumed)
    process = subprocess.Popen([charlm, *options, *(["--resume"] if resumed is not None else []), "--checkpoint",
                                "state", "--losses", "losses"], env=environment,
                               cwd=folder + "/work", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        out, err = process.communicate(timeout=BOUND_S)
        late = False
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        late = True
    left = set(os.listdir(folder + "/work")) - {"state", "losses"}
    if os.path.isdir(folder + "/runtime/neap"):
        # The recording is there to be read after the end.
        left |= set(os.listdir(folder + "/runtime/neap")) - {f"{process.pid}.record"}
    result = Run(process.returncode, out, err, (read(folder + "/work/losses") or "").split(),
                 read(folder + "/work/state", "rb"), [line.split()[2:4] for line in (read(folder + "/log") or "").splitlines()],
                 int(read(folder + "/count") or 0), left, late)
    shutil.rmtree(folder)
    return result


def check(result, code, once):
    """What is wrong with a run in which something failed: a list of texts."""
    wrong = []
    if result.seconds_out:
        return [f"it hung: no end in {BOUND_S} s"]
    rung = "going on with" in result.err
    if result.status == 0:
        if len(result.losses) != len(plain.losses):
            wrong.append("success, but not all losses")
    elif result.status == 1 or 64 <= result.status <= 78:
        words = {OUT_OF_MEMORY: "memory", UNKNOWN: "999|UNKNOWN|unknown", None: "memory"}[code]
        last = [line for line in result.err.splitlines() if line.startswith("charlm: ")]
        if not last:
            wrong.append("it failed without a word")
        elif not re.search(words, last[-1]) and not last[-1].startswith("charlm: loading neap's simulator"):
            # (The dynamic linker has its own words for a library that it has no memory for.)
            wrong.append(f"the error does not say what failed: {last[-1]}")
    else:
        wrong.append(f"exit status {result.status}")
    if "the allocator's books are wrong" in result.err:
        wrong.append("a broken invariant (neap_alloc_check)")
    if "Sanitizer" in result.err or "runtime error:" in result.err:
        wrong.append("the sanitizer found something")
    for mine, undisturbed in zip(result.losses, plain.losses):
        if mine != undisturbed and not (rung and abs(float(mine) - float(undisturbed)) <= 1e-5):
            wrong.append(f"loss {mine}, not {undisturbed}")
    if result.checkpoint is not None and not (
            result.checkpoint in checkpoints or (rung and len(result.checkpoint) == len(plain.checkpoint))):
        wrong.append("a torn or different checkpoint")
    if result.status == 0 and not rung and result.checkpoint != plain.checkpoint:
        wrong.append("success, but not the last checkpoint")
    if result.left:
        wrong.append(f"left behind: {sorted(result.left)}")
    done = collections.Counter(call for call, returned in result.calls if returned == "CUDA_SUCCESS")
    failed = {call for call, returned in result.calls if returned != "CUDA_SUCCESS"}
    if once:
        for take, give in PAIRS.items():
            if done[take] != done[give] and give not in failed:
                wrong.append(f"{take} {done[take]} times, {give} {done[give]}")
    if any(returned in ("CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_INVALID_VALUE") for _, returned in result.calls):
        wrong.append("the simulator found an illegal or unordered use of memory")
    return wrong


def attempt(kind, number, code, once):
    count = 1 if once else 0
    if kind == "call":
        result = run({"NEAP_SIM_FAULT": f"*:skip={number}:count={count}:code={code}"})
    else:
        result = run({"FAILING_MALLOC": str(number + 1), **({} if once else {"FAILING_MALLOC_FOR_GOOD": "1"})})
    wrong = check(result, code, once)
    if kind == "call" and once and code == OUT_OF_MEMORY and number < len(plain.calls):
        # The device's memory is short for a moment: the run continues. But if the device holds half an update, or a
        # checkpoint is being written, it ends with a clear message.
        if result.status and "optimizer created" in result.err and not re.search(
                '"adamw"|saving checkpoint', result.err.splitlines()[-1]):
            wrong.append("no second try and no rung when the device's memory ran out")
    name = f"{kind} {number + 1}{' (' + plain.calls[number][0] + ')' if kind == 'call' else ''}, code {code}, " \
           f"{'once' if once else 'for good'}"
    tally[f"{kind}s"] += 1
    tally["went on down the ladder" if "going on with" in result.err and result.status == 0 else
          "absorbed" if result.status == 0 else "refused with an error"] += 1
    if wrong:
        problems.append(name)
        print(f"FAILED: {name}: {'; '.join(wrong)} (status {result.status})")
        if len(problems) <= 8:
            print("    " + "\n    ".join(result.err.splitlines()[-(40 if "Sanitizer" in result.err else 4):]))
        sys.stdout.flush()


def sweep(kind, total, codes, budget):
    """`budget`: this many runs, spread over all instants; otherwise every instant, once and for good."""
    step = 1 if not SAMPLED else max(1, total * 2 * len(codes) // budget)
    # Each of the four sweeps begins elsewhere, so that sampled sweeps share no instant.
    jobs = [(kind, number, code, once) for i, (code, once) in
            enumerate((code, once) for code in codes for once in (True, False))
            for number in range(i * step // (2 * len(codes)), total, step)]
    with concurrent.futures.ThreadPoolExecutor(max(2, min(4, os.cpu_count() or 2))) as pool:
        for _ in pool.map(lambda job: attempt(*job), jobs):
            pass


def scenario(name, budget):
    """Sweeps over the run that `memory` and `options` describe."""
    global plain, checkpoints
    tally.clear()
    plain = run({"FAILING_MALLOC": "0"} if HOST_TOO else {})
    if plain.status or len(plain.losses) != 2 or not plain.calls or plain.allocations == 0 and HOST_TOO or plain.left:
        sys.exit(f"FAILED: the undisturbed run: status {plain.status}, {len(plain.calls)} calls, "
                 f"{plain.allocations} allocations, left {plain.left}\n{plain.err}")
    if plain.err.count("going on with") != (0 if name == "roomy" else 2):
        sys.exit(f"FAILED: the {name} run took {plain.err.count('going on with')} rungs\n{plain.err}")
    # The checkpoint of the first step, from a run that is stopped in the second save. It is a good one: the run
    # continues from it to the same end.
    saved = len(plain.calls) - 30
    half = run({"NEAP_SIM_FAULT": f"*:skip={saved}:code={UNKNOWN}"}).checkpoint
    after = run({}, half)
    if half == plain.checkpoint or (after.status, after.losses, after.checkpoint) != (
            0, plain.losses[1:], plain.checkpoint):
        sys.exit(f"FAILED: resumed from the first step's checkpoint: status {after.status}, {after.losses}\n{after.err}")
    checkpoints = [half, plain.checkpoint]
    sweep("call", len(plain.calls), (OUT_OF_MEMORY, UNKNOWN), budget)
    # One more than there are: nothing may fail any more.
    if HOST_TOO:
        sweep("allocation", plain.allocations + 1, (None,), budget)
    print(f"{name}: {len(plain.calls)} driver calls, {plain.allocations} host allocations in the undisturbed run; runs: "
          + ", ".join(f"{number} {what}" for what, number in tally.items()), flush=True)
    if not tally["went on down the ladder"]:
        problems.append("no run went down the ladder")
        print("FAILED: no run went down the ladder")


try:
    memory = ROOMY
    options = OPTIONS
    scenario("roomy", 100)
    memory = TIGHT
    options = TIGHT_OPTIONS
    scenario("tight", 30)
    sys.exit(1 if problems else 0)
finally:
    shutil.rmtree(root)
