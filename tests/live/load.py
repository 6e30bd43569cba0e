"""Many at once on one device: attached processes, clients of each, and runs that write one history.

    load.py NEAP SUBJECT

NEAP_LONG=1: 64 processes, 64 clients at once, 64 runs; otherwise 12.
"""
import concurrent.futures
import os
import subprocess
import sys

from place import Place, tell

NEAP, SUBJECT = map(os.path.abspath, sys.argv[1:3])
LONG = os.environ.get("NEAP_LONG") == "1"
MANY = 64 if LONG else 12
MIB = 1 << 20


def processes(place):
    """All of them work at once, and as many clients send every verb to all of them."""
    subjects = [place.subject() for _ in range(MANY)]
    for subject in subjects:
        assert tell(subject, "take 1") == "taken"
    pids = sorted(subject.pid for subject in subjects)

    def held(answer, allocated=MIB):
        assert sorted(process["pid"] for process in answer["processes"]) == pids, answer
        for process in answer["processes"]:
            assert process.get("allocated", allocated) == allocated, process

    def info():
        answer = place.json("info")
        held(answer)
        ledger = dict(answer["devices"][0]["ledger"])
        assert ledger.pop("total") == sum(ledger.values()), ledger
        assert ledger["allocated"] == MANY * MIB and ledger["contexts"] == MANY * 8 * MIB, ledger

    def all_of_them(*words):
        answer = place.json(*words, "--all")
        held(answer)
        for process in answer["processes"]:
            assert process["error"] is None and process["devices"][0]["allocated"] == MIB, process

    verbs = [info, lambda: all_of_them("clear", "--force"), lambda: all_of_them("reset"), lambda: all_of_them("fraction", "1")]
    with concurrent.futures.ThreadPoolExecutor(MANY) as pool:
        for done in [pool.submit(verbs[i % len(verbs)]) for i in range(MANY)]:
            done.result()
    all_of_them("fraction", "0.0001")
    printed = tell(subjects[-1], "take 8")
    assert printed.startswith("failed: CUDA out of memory"), printed
    all_of_them("fraction", "1")
    assert tell(subjects[-1], "take 8") == "taken"
    for subject in subjects:
        subject.stdin.close()
    for subject in subjects:
        assert subject.wait(60) == 0
    assert place.json("info")["processes"] == []
    print(f"{MANY} attached processes, {MANY} commands to them at once")


def runs(place):
    """Each run ends with its own command's status and is in the history once."""
    def one(number):
        done = subprocess.run([NEAP, "run", "--quiet", "--name", f"load-{number}", "--", "sh", "-c", f"exit {number % 3}"],
                              env=place.environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        assert done.returncode == number % 3, done
        assert done.stderr == "", done

    with concurrent.futures.ThreadPoolExecutor(MANY) as pool:
        for done in [pool.submit(one, number) for number in range(MANY)]:
            done.result()
    names = sorted(run["name"] for run in place.json("history", "--limit", "0")["runs"])
    assert names == sorted(f"load-{number}" for number in range(MANY)), names
    print(f"{MANY} runs at once, each once in the history")


with Place(NEAP, SUBJECT) as place:
    place.environment["NEAP_SIM"] = place.environment["NEAP_SIM"].replace("mem=256MiB", "mem=4GiB")
    processes(place)
    runs(place)
