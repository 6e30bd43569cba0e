"""Commands that print JSON, while one host allocation fails: each in turn.

    starved.py NEAP FAILING_MALLOC_LIBRARY HOLD every|sampled

Whatever fails, either the command says so on stderr and exits with a failure's status, or it prints what it prints
undisturbed. It never prints incomplete JSON with exit status 0, and never calls a good file damaged. With NEAP_LONG=1
(./test --long) every allocation is tried, otherwise a share.
"""

import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

neap, library, hold = map(os.path.abspath, sys.argv[1:4])
# For each command, at most this many allocations.
INSTANTS = 60 if sys.argv[4] != "every" else 100000 if os.environ.get("NEAP_LONG") == "1" else 240

root = tempfile.mkdtemp(prefix="neap-starved-")
world = os.path.basename(root)
os.environ.update(HOME=root, XDG_STATE_HOME=root, XDG_RUNTIME_DIR=root, NEAP_SIM=f"mem=1GiB,world={world}")
numbers = iter(range(1 << 30))
problems = 0


def run(words, instant):
    count = f"{root}/count-{next(numbers)}"
    environment = dict(os.environ, LD_PRELOAD=library, FAILING_MALLOC=str(instant), FAILING_MALLOC_COUNT=count)
    done = subprocess.run([neap, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", timeout=120, cwd=root)
    try:
        with open(count) as file:
            allocations = int(file.read())
        os.unlink(count)
    except (OSError, ValueError):
        allocations = 0
    return done, allocations


def shape(text):
    """What has to be there: the JSON without figures that differ from sample to sample."""
    def plain(value):
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return type(value) is str
    return plain(json.loads(text))


def sweep(name, words, ends=(0,), check=shape):
    global problems
    undisturbed, total = run(words, 0)
    if undisturbed.returncode not in ends or not total:
        sys.exit(f"FAILED: {name}, undisturbed: {undisturbed}, {total} allocations")
    whole = check(undisturbed.stdout)

    def attempt(instant):
        done, _ = run(words, instant)
        wrong = ""
        if "Sanitizer" in done.stderr or done.returncode < 0:
            wrong = "it crashed"
        elif "damaged" in done.stderr or "is lost" in done.stderr:
            wrong = "a want of memory is called damage"
        elif done.returncode in ends:
            try:
                if check(done.stdout) != whole:
                    wrong = "success, but not all is there"
            except ValueError:
                wrong = "success, but what it printed is no JSON"
        elif not done.stderr.strip():
            wrong = "it failed without a word"
        return instant, done, wrong

    step = max(1, total // INSTANTS)
    refused = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for instant, done, wrong in pool.map(attempt, range(1, total + 1, step)):
            refused += done.returncode not in ends
            if wrong:
                problems += 1
                if problems < 12:
                    print(f"FAILED: {name}, allocation {instant}: {wrong} (status {done.returncode})\n{done.stderr[-1500:]}{done.stdout[-300:]}")
    print(f"{name}: {total} allocations, every {step}. made to fail: {refused} refused, the others as undisturbed", flush=True)


def run_out(instants):
    """A run whose command runs out of device memory is reported as that, whatever its supervisor had no memory
    for."""
    global problems

    def attempt(instant):
        folder = f"{root}/oom-{instant}"
        done, total = run(["run", "--no-history", "--folder", folder, "--", "/usr/bin/env", "-u", "LD_PRELOAD", hold, "6G"], instant)
        try:
            with open(f"{folder}/result.json") as file:
                result = json.load(file)
        except FileNotFoundError:
            result = None
        return instant, done, total, result

    _, _, total, _ = attempt(0)
    step = max(1, total // instants)
    reported = 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # the first allocations fail in the program that starts the command, too
        for instant, done, _, result in pool.map(attempt, range(60, total + 1, step)):
            reported += result is not None
            if "memory exhausted" in done.stderr:  # env's own
                continue
            if "Sanitizer" in done.stderr or done.returncode < 0 or (result and result["outcome"] != "oom") or (
                    result is None and not done.stderr.strip()):
                problems += 1
                print(f"FAILED: a run that ran out, allocation {instant}: {result and (result['outcome'], result['evidence'])} "
                      f"(status {done.returncode})\n{done.stderr[-1500:]}")
    print(f"a run that ran out: {total} allocations, every {step}. made to fail: {reported} have a result, which says so", flush=True)


def resume(instants):
    """A series that finds a whole result takes it now or later: it never runs the experiment again."""
    global problems
    with open(f"{root}/one.yaml", "w") as file:
        file.write("name: one\ndefaults: {needs: none}\nexperiments:\n- {name: e, command: [sh, -c, 'echo x >> ran']}\n")
    subprocess.run([neap, "series", "one.yaml", "--quiet", "--folder", "one"], check=True, cwd=root, capture_output=True)
    with open(f"{root}/one/journal") as file:
        begun = file.readlines()[:2]
    os.unlink(f"{root}/one/report.html")

    def attempt(instant):
        folder = f"{root}/one-{instant}"
        shutil.copytree(f"{root}/one", folder)
        with open(f"{folder}/journal", "w") as file:
            file.writelines(begun)
        done, total = run(["series", "one.yaml", "--resume", "--folder", folder], instant)
        with open(f"{folder}/journal") as file:
            journal = file.read()
        shutil.rmtree(folder)
        return instant, done, total, journal

    _, _, total, _ = attempt(0)
    step = max(1, total // instants)
    ended = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for instant, done, _, journal in pool.map(attempt, range(1, total + 1, step)):
            ended += '"end"' in journal
            if "Sanitizer" in done.stderr or done.returncode < 0 or '"lost"' in journal or '"cancel"' in journal or (
                    done.returncode == 0 and '"finish"' not in journal) or (done.returncode and not done.stderr.strip()):
                problems += 1
                print(f"FAILED: a series taken up, allocation {instant} (status {done.returncode})\n{journal}{done.stderr[-1500:]}")
    with open(f"{root}/ran") as file:
        if file.read() != "x\n":
            problems += 1
            print("FAILED: the experiment was run again")
    print(f"a series taken up: {total} allocations, every {step}. made to fail: {ended} took the result, the others left it", flush=True)


def lines(text):
    return [line for line in text.splitlines() if "report.html" not in line]


try:
    for number in range(3):
        subprocess.run([neap, "run", "--quiet", "--name", f"run {number}", "--", hold, "--looks", "2", "64M"], check=True, cwd=root)
    with open(f"{root}/s.yaml", "w") as file:
        file.write("name: s\ndefaults: {needs: none}\nexperiments:\n- {name: e, command: \"true\", grid: {i: [0, 1, 2]}}\n")
    subprocess.run([neap, "series", "s.yaml", "--quiet", "--folder", "s"], check=True, cwd=root, capture_output=True)
    holder = subprocess.Popen([hold, "--until", "never", "64M"], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while "processes" not in (out := subprocess.run([neap, "info", "--json"], capture_output=True, text=True).stdout) or not json.loads(out)["processes"]:
        if holder.poll() is not None:
            sys.exit("FAILED: the holder ended")
    sweep("info", ["info", "--json"])
    sweep("kill", ["kill", "--pid", str(holder.pid), "--dry-run", "--json"])
    sweep("history", ["history", "--json"])
    sweep("history, for people", ["history"], check=lines)
    sweep("history of one", ["history", "run 1", "--json"])
    with open(f"{root}/s/journal", "rb") as file:
        journal = file.read()
    sweep("series, finished", ["series", "s.yaml", "--resume", "--folder", "s", "--quiet"], check=lines)
    with open(f"{root}/s/journal", "rb") as file:
        if file.read() != journal:
            problems += 1
            print("FAILED: the journal was changed")
    resume(INSTANTS)
    run_out(INSTANTS // 2)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
finally:
    shutil.rmtree(root, ignore_errors=True)
    for name in os.listdir("/dev/shm"):
        if world in name:
            os.unlink(f"/dev/shm/{name}")
sys.exit(1 if problems else 0)
