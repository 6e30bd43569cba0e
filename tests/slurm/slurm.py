#!/usr/bin/env python3
"""neap series --slurm against a real Slurm.

usage: slurm.py NEAP HOLD. Exit status 77 if Slurm's packages are not installed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster  # noqa: E402  (it is beside this file)
from cluster import wait_for  # noqa: E402

NEAP, HOLD = map(os.path.abspath, sys.argv[1:3])

# Six experiments. Five end by themselves: successful, down the ladder, failed, at their own time limit. MaxArraySize
# is 4: three tasks an array.
SERIES = f"""\
name: s
slurm: {{mem: 20MiB, sbatch: [--nice=0, "--comment=a 'comment'"]}}
defaults: {{needs: 100M, env: {{WORD: "two words"}}}}
experiments:
- {{name: fine, command: "sh -c 'echo $WORD; exec {HOLD} 100M'"}}
- name: large
  command: "{HOLD} {{gib}}G"
  params: {{gib: 8, parts: 1}}
  on_oom: halve gib, double parts
- {{name: wrong, command: "sh -c 'exit 3'", needs: none}}
- {{name: late, command: sleep 300, needs: none, time_limit: 1s, grace: 1s}}
- name: held
  command: "sh -c 'echo x >> begun; until [ -e go ]; do sleep 0.1; done'"
  needs: none
- {{name: again, command: "sh -c 'test -e second || {{ touch second; exit 3; }}'", needs: none, retry_failed: 1}}
"""

# The fields of each result that must be the same for a local series and one by Slurm.
SAME = ("name", "outcome", "exit_status", "command", "parameters", "rung", "retries", "evidence", "leak_verdict", "attached",
        "backend", "peak_allocated_bytes")


def neap(*words, **options):
    return subprocess.run([NEAP, "series", *words], capture_output=True, text=True, timeout=300, **options)


def check(condition, *shown):
    if not condition:
        raise AssertionError("\n".join(str(one) for one in shown))


def expect(done, status):
    check(done.returncode == status, f"exit status {done.returncode}, not {status}", done.args, done.stdout, done.stderr)
    return done


def read(path):
    try:
        with open(path) as text:
            return text.read()
    except FileNotFoundError:
        return ""


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def result(folder, run):
    return json.loads(read(f"{folder}/runs/{run}/result.json"))


def records(folder):
    return [json.loads(line[9:]) for line in read(f"{folder}/journal").splitlines()]


def count(folder, kind, experiment):
    return sum(r["type"] == kind and r["experiment"] == experiment for r in records(folder) if "experiment" in r)


def job_of(folder, submission):
    return next(r["job"] for r in records(folder) if r["type"] == "submit" and r["submission"] == submission)


def place_of(folder, experiment):
    """The number and the task of the array with which an experiment was first submitted."""
    array = next(r for r in records(folder) if r["type"] == "array" and experiment in r["experiments"])
    return f'{job_of(folder, array["submission"])}_{array["experiments"].index(experiment) + 1}'


def columns(table):
    """The table without the columns that depend on the clock."""
    rows = {}
    for line in table.splitlines():
        words = re.split(r"  +", line.strip())
        if len(words) > 8:
            rows[words[0]] = [words[1]] + words[6:9]  # outcome, retries, rung, leak
    return rows


def gather_until_ended(*words, status):
    """The loop that a user would write. It never reports the end too early."""
    while True:
        done = neap(*words)
        if done.returncode != 75:
            return expect(done, status)
        check("continue with: neap series" in done.stderr or "gather   neap series" in done.stdout, done.stdout, done.stderr)
        time.sleep(0.2)


def test_whole(slurm):
    """The complete course: submitted in two arrays, one task cancelled and run again, and the report of a local
    series."""
    write("s.yaml", SERIES)
    before = len(slurm.states())
    plan = expect(neap("s.yaml", "--slurm", "--dry-run", "--folder", "s"), 0).stdout
    check("--array=1-2 " in plan and "--array=1-3 " in plan and "--array=1 " in plan, plan)
    check("series.yaml' --folder" in plan and not os.path.exists("s")
          and len(slurm.states()) == before, plan)
    submitted = expect(neap("s.yaml", "--slurm", "--folder", "s"), 0)
    check("follow   squeue --array --jobs=" in submitted.stdout and "\ncancel   scancel " in submitted.stdout
          and "\ngather   neap series s.yaml --slurm --resume --folder s" in submitted.stdout, submitted.stdout)
    busy = neap("s.yaml", "--folder", "s", "--resume")  # not on this machine
    check(busy.returncode == 75 and "submitted to Slurm" in busy.stderr and "left" not in busy.stderr, busy.stderr)
    wait_for("the task that is to be cancelled", lambda: read("begun"))
    task = place_of("s", "held")
    check(slurm.states()[task] == "RUNNING", slurm.states())
    slurm.ask("scancel", task)
    wait_for("the cancelled task's end", lambda: slurm.states()[task] == "CANCELLED")
    looked = expect(neap("s.yaml", "--slurm", "--folder", "s"), 75)
    check("held: attempt 1: its task was cancelled (scancel)" in looked.stderr
          and "to be submitted again" in looked.stderr, looked.stderr)
    check(sum("held" in r.get("experiments", ()) for r in records("s")) == 1, "without --resume nothing is submitted")
    write("go", "")
    done = gather_until_ended("s.yaml", "--slurm", "--resume", "--folder", "s", status=1)
    check(read("begun") == "x\nx\n" and count("s", "start", "held") == 2, read("begun"))
    check(count("s", "retry", "again") == 1 and result("s", "again-2")["outcome"] == "ok", records("s"))
    check(read("s/runs/fine-1/stdout.log") == "two words\n", read("s/runs/fine-1/stdout.log"))
    check(result("s", "large-1")["rung"] == "gib 8 -> 2, parts 1 -> 4", result("s", "large-1")["rung"])
    check(records("s")[-1]["type"] == "finish", records("s")[-1])

    os.remove("second")
    local = expect(neap("s.yaml", "--folder", "local"), 1)
    for name, run in (("fine", 1), ("large", 1), ("wrong", 1), ("late", 1), ("again", 2)):
        here = result("local", f"{name}-{run}")
        there = result("s", f"{name}-{run}")
        check(all(here[key] == there[key] for key in SAME), name, {key: (here[key], there[key]) for key in SAME})
    check(result("s", "held-2")["outcome"] == "ok", result("s", "held-2"))
    check(columns(done.stdout) == columns(local.stdout) and len(columns(local.stdout)) == 7, done.stdout, local.stdout)
    for name in ("fine", "large", "wrong", "late", "held", "again"):
        check(name in read("s/report.html") and name in read("local/report.html"), name)
    check(sorted(set(os.listdir("s/runs/fine-1")) - {"claim"}) ==
          sorted(set(re.sub(r"record\.\d+", "record.1", entry) for entry in os.listdir("local/runs/fine-1"))
                 - {"supervisor"}) or any(e.startswith("record.") for e in os.listdir("s/runs/fine-1")),
          os.listdir("s/runs/fine-1"))

    # Both ways of seeing it again show the same.
    for words in (("--slurm", "--resume"), ("--resume",)):
        check(expect(neap("s.yaml", "--folder", "s", *words), 1).stdout == done.stdout, words)
    history = subprocess.run([NEAP, "history", "--json"], capture_output=True, text=True, timeout=60).stdout
    ids = [r["run_id"] for r in records("s") if r["type"] == "start"]
    check(all(history.count(f'"{one}"') == 1 for one in ids), ids, history)


def test_parallel(_slurm):
    """With `parallel: 1`, one runs at a time."""
    write("o.yaml", "name: o\nparallel: 1\nexperiments:\n- name: e\n  needs: none\n  grid: {i: [1, 2, 3]}\n"
                    "  command: \"sh -c 'echo begin >> o-log; sleep 0.2; echo end >> o-log'\"\n")
    done = expect(neap("o.yaml", "--slurm", "--wait", "--folder", "o"), 0)
    check("as job" in done.stderr and "--array=1-3%1" in done.stderr, done.stderr)
    check(read("o-log").split() == ["begin", "end"] * 3, read("o-log"))


def test_refused(slurm):
    """The user reads sbatch's own error, and nothing has started: another file can start the series."""
    write("r.yaml", "name: r\nslurm: {partition: nowhere}\nexperiments:\n- {name: e, command: 'true', needs: none}\n")
    before = len(slurm.states())
    done = expect(neap("r.yaml", "--slurm", "--folder", "r"), 69)
    check("sbatch refused: " in done.stderr and "artition" in done.stderr and "continue with" not in done.stderr, done.stderr)
    check(len(slurm.states()) == before and read("r/journal") == "", slurm.states())
    write("r.yaml", "name: r\nexperiments:\n- {name: e, command: 'true', needs: none}\n")
    done = expect(neap("r.yaml", "--slurm", "--wait", "--folder", "r"), 0)
    check(done.stdout.splitlines()[-1] == "r/report.html", done.stdout)


REAL_SBATCH = shutil.which("sbatch")


def with_sbatch(folder, script):
    """An environment whose sbatch is this one."""
    os.makedirs(folder)
    write(f"{folder}/sbatch", script.replace("REAL", REAL_SBATCH or ""))
    os.chmod(f"{folder}/sbatch", 0o755)
    return dict(os.environ, PATH=f"{os.path.abspath(folder)}:{os.environ['PATH']}")


def killed_after(folder, options):
    """An sbatch that submits, and kills neap before that can journal the job's number."""
    return with_sbatch(folder, "#!/bin/sh\ncase \"$*\" in *--test-only*) exec REAL \"$@\";; esac\n"
                               f"REAL {options} \"$@\" > {folder}/job && kill -KILL $PPID\n")


ONCE = "name: {0}\nexperiments:\n- {{name: a, command: \"sh -c 'echo a >> {0}-ran'\", needs: none}}\n" \
       "- {{name: b, command: \"sh -c 'echo b >> {0}-ran'\", needs: none}}\n"


def test_killed_begun(slurm):
    """Killed between sbatch and the journal; the tasks have run meanwhile."""
    write("k.yaml", ONCE.format("k"))
    check(neap("k.yaml", "--slurm", "--folder", "k", env=killed_after("kbin", "")).returncode == -9, "not killed")
    job = read("kbin/job").strip()
    wait_for("both tasks", lambda: slurm.states().get(f"{job}_1") == slurm.states().get(f"{job}_2") == "COMPLETED")
    gather_until_ended("k.yaml", "--slurm", "--resume", "--folder", "k", status=0)
    check(sorted(read("k-ran").split()) == ["a", "b"] and count("k", "start", "a") == 1, read("k-ran"))
    check(sum(r["type"] == "array" for r in records("k")) == 1, "submitted again what had run")


def test_killed_pending(slurm):
    """The same, but the tasks had not started: others are submitted, and the first ones find nothing left to do."""
    write("p.yaml", ONCE.format("p"))
    check(neap("p.yaml", "--slurm", "--folder", "p", env=killed_after("pbin", "--hold")).returncode == -9, "not killed")
    job = read("pbin/job").strip()
    expect(neap("p.yaml", "--slurm", "--wait", "--folder", "p"), 0)
    slurm.ask("scontrol", "release", job)
    wait_for("the forgotten tasks' end",
             lambda: slurm.states().get(f"{job}_1") == slurm.states().get(f"{job}_2") == "COMPLETED")
    check("nothing to do" in read(f"p/slurm/{job}-1.out"), read(f"p/slurm/{job}-1.out"))
    check(sorted(read("p-ran").split()) == ["a", "b"] and result("p", "a-1")["outcome"] == "ok", read("p-ran"))


def test_both(slurm):
    """The same, but the first tasks start while the others wait: they share the work."""
    write("b.yaml", ONCE.format("b"))
    check(neap("b.yaml", "--slurm", "--folder", "b", env=killed_after("bbin", "--hold")).returncode == -9, "not killed")
    job = read("bbin/job").strip()
    again = neap("b.yaml", "--slurm", "--resume", "--folder", "b",
                 env=with_sbatch("hbin", "#!/bin/sh\nexec REAL --hold \"$@\"\n"))
    expect(again, 75)
    slurm.ask("scontrol", "release", f"{job}_1")
    wait_for("the first array's task", lambda: slurm.states().get(f"{job}_1") == "COMPLETED")
    second = job_of("b", 2)
    slurm.ask("scontrol", "release", str(second))
    gather_until_ended("b.yaml", "--slurm", "--resume", "--folder", "b", status=0)
    check(sorted(read("b-ran").split()) == ["a", "b"], read("b-ran"))
    check(read("b/runs/a-1/claim").startswith(f"job {job} task 1 ")
          and read("b/runs/b-1/claim").startswith(f"job {second} task "), read("b/runs/b-1/claim"))
    slurm.ask("scancel", job)


REQUEUED = """\
name: q
experiments:
- name: e
  needs: none
  command: "sh -c 'echo x >> q-begun; test $(wc -l < q-begun) -ge 2 || exec sleep 300'"
"""


def test_requeued(slurm):
    """A task that Slurm requeues continues with the next attempt of the same submission."""
    write("q.yaml", REQUEUED)
    expect(neap("q.yaml", "--slurm", "--folder", "q"), 0)
    task = place_of("q", "e")
    wait_for("the first start", lambda: read("q-begun"))
    slurm.ask("scontrol", "requeue", task)
    wait_for("the requeued task", lambda: slurm.states()[task] == "PENDING")
    hastened = set()

    def begins_again():
        """Slurm would wait two minutes. It drops a start in the same second as the last end, so the test tries once
        more."""
        shown = slurm.ask("scontrol", "show", "job", task)
        restarts = "".join(re.findall(r"JobState=PENDING.*Restarts=(\d+)", shown, re.S))
        if restarts and restarts not in hastened and not hastened.add(restarts):
            slurm.ask("scontrol", "update", f"JobId={task}", "StartTime=now+3seconds")
        return len(read("q-begun")) > 2

    wait_for("its second start", begins_again)
    done = gather_until_ended("q.yaml", "--slurm", "--resume", "--folder", "q", status=0)
    check(read("q-begun") == "x\nx\n" and result("q", "e-2")["outcome"] == "ok", read("q-begun"))
    starts = [r for r in records("q") if r["type"] == "start"]
    check(len(starts) == 2 and starts[0]["run_id"] != starts[1]["run_id"], starts)
    check(sum(r["type"] == "array" for r in records("q")) == 1, "submitted again what Slurm had requeued")
    check(count("q", "cancel", "e") == 1 and result("q", "e-2")["run_id"] == starts[1]["run_id"], done.stderr)


def supervisor_of(folder):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = read(f"/proc/{pid}/cmdline").split("\0")
        if words[1:2] == ["run"] and os.path.abspath(folder) in words:
            return int(pid)
    raise AssertionError(f"no supervisor of {folder}")


def test_killed_task(slurm):
    """A task that SIGKILL ends, as the loss of its node would: its attempt is lost, and another one runs."""
    write("l.yaml", "name: l\nexperiments:\n- name: e\n  needs: none\n"
                    "  command: \"sh -c 'echo x >> l-begun; test -e l-go || exec sleep 300'\"\n")
    expect(neap("l.yaml", "--slurm", "--folder", "l"), 0)
    task = place_of("l", "e")
    wait_for("its start", lambda: read("l-begun"))
    os.kill(supervisor_of("l/runs/e-1"), signal.SIGKILL)
    wait_for("its end", lambda: slurm.states()[task] not in ("RUNNING", "COMPLETING"))
    write("l-go", "")
    gather_until_ended("l.yaml", "--slurm", "--resume", "--folder", "l", status=0)
    check(read("l-begun") == "x\nx\n" and count("l", "lost", "e") == 1, records("l"))
    check(result("l", "e-2")["outcome"] == "ok", records("l"))


class TimeLimit:
    """Slurm ends a task at its own time limit. It checks only every half minute: started first, checked last."""

    def __init__(self, slurm):
        write("t.yaml", "name: t\nexperiments:\n- {name: e, command: sleep 600, needs: none}\n")
        expect(neap("t.yaml", "--slurm", "--folder", "t"), 0)
        self.task = place_of("t", "e")
        wait_for("its claim", lambda: read("t/runs/e-1/claim"))
        wait_for("its end's new time", lambda: self.is_to_end(slurm))

    def is_to_end(self, slurm):
        slurm.ask("scontrol", "update", f"JobId={self.task}", "TimeLimit=1", "EndTime=now")
        return "TimeLimit=00:01:00" in slurm.ask("scontrol", "show", "job", self.task)

    def check(self, slurm):
        wait_for("Slurm's time limit", lambda: slurm.states()[self.task] == "TIMEOUT")
        gather_until_ended("t.yaml", "--slurm", "--resume", "--folder", "t", status=1)
        ended = result("t", "e-1")
        check(ended["outcome"] == "timeout" and "Slurm ended it at the job's time limit" in ended["evidence"], ended)


def main():
    absent = cluster.missing()
    if absent:
        print("skipped: Slurm is not installed (Debian: slurmctld slurmd slurm-client munge); missing:", *absent)
        return 77
    with tempfile.TemporaryDirectory(prefix="neap-slurm-") as folder:
        work = os.path.join(folder, "50% of it's")  # neither a pattern of Slurm's nor a word of a shell
        os.mkdir(work)
        os.mkdir(f"{folder}/runtime", 0o700)
        os.chmod(folder, 0o755)
        os.environ.update(XDG_STATE_HOME=f"{folder}/state", XDG_RUNTIME_DIR=f"{folder}/runtime", HOME=folder,
                          NEAP_SIM=f"mem=4GiB,gpus=2,world=slurm-{os.getpid()}")
        os.chdir(work)
        try:
            with cluster.Cluster(f"{folder}/slurm", max_array=4) as slurm:
                try:
                    test_refused(slurm)
                    limit = TimeLimit(slurm)
                    for test in (test_whole, test_parallel, test_killed_begun, test_killed_pending, test_both, test_requeued,
                                 test_killed_task):
                        began = time.monotonic()
                        test(slurm)
                        print(f"ok {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
                    limit.check(slurm)
                except BaseException:
                    print(slurm.logs(), file=sys.stderr)
                    raise
        finally:
            os.chdir("/")
            for name in os.listdir("/dev/shm"):
                if f"slurm-{os.getpid()}" in name:
                    os.remove(f"/dev/shm/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
