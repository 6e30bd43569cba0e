#!/usr/bin/env python3
"""How long a person waits outside a training: for starts, lists, plans. Each is compared with the least that the
system needs.

    waits.py BUILD [RUNS]

`neap run -- true` against `true`; a series of experiments that do nothing, from one's end to the next one's start;
`neap history` of RUNS runs (100000) against a SELECT of the same rows; a plan of 100 000 checkpoints against readdir
and stat (bench_checkpoints); the text of a scrape of 10 000 time series (bench_metrics). Medians; on a busy machine
processor times are comparable, seconds are not. bench/cost.sh runs it.
"""
import glob
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

build = os.path.realpath(sys.argv[1])
runs = int(sys.argv[2]) if len(sys.argv) > 2 else 100000
neap = build + "/src/neap"


def once(command, **how):
    """The elapsed milliseconds, and the processor's."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, **how)
    took = time.perf_counter() - begin
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * took, 1000 * (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)


def median(pairs):
    return [statistics.median(column) for column in zip(*pairs)]


def report(name, ours, least, what, target):
    whole, spent = ours
    print(f"{name:34} {whole:8.1f} ms, {spent:7.1f} of a processor ({what} {least[0]:.1f} and {least[1]:.1f}, "
          f"ratio {spent / max(least[1], 0.01):.1f})   target {target} ms: {'met' if whole <= target else 'missed'}", flush=True)


def run_true():
    ours = []
    least = []
    for _ in range(9):
        ours.append(once([neap, "run", "--", "true"]))
        least.append(once(["/bin/true"]))
    least = median(least)
    ours = median(ours)
    report("neap run -- true, beyond true", [a - b for a, b in zip(ours, least)], least, "true", 10)


def series(folder):
    path = folder + "/series.yaml"
    with open(path, "w", encoding="ascii") as file:
        file.write("name: waits\nexperiments:\n" + "".join(f"  - name: n{i}\n    command: [\"true\"]\n" for i in range(10)))
    once([neap, "series", path], cwd=folder)
    rows = sqlite3.connect(history()).execute("SELECT result FROM runs WHERE series = 'waits'").fetchall()
    results = sorted((json.loads(row[0]) for row in rows), key=lambda result: result["started_wall_ns"])
    gaps = [(then["started_wall_ns"] - now["ended_wall_ns"] - now["drain_ns"]) / 1e6 for now, then in zip(results, results[1:])]
    gap = statistics.median(gaps)
    print(f"{'series: from a drain to a start':34} {gap:8.1f} ms   target 5 ms: {'met' if gap <= 5 else 'missed'}", flush=True)


def history():
    return os.environ["XDG_STATE_HOME"] + "/neap/history.db"


def list_history():
    base = sqlite3.connect(history())
    base.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO runs (series, experiment_key, "
        "run_id, name, outcome, ended_wall_ns, result) SELECT series, experiment_key, run_id || '-' || i, name, outcome, "
        "ended_wall_ns + i, result FROM (SELECT * FROM runs LIMIT 1), n", (runs,))
    base.commit()
    base.close()
    select = "import sqlite3, sys; sum(1 for _ in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]))"
    query = "SELECT run_id, name, outcome, result FROM runs ORDER BY ended_wall_ns DESC"
    start = median([once([sys.executable, "-c", "import sqlite3"]) for _ in range(5)])
    for name, words, limit in (("neap history, the newest", [], 25), (f"neap history, all {runs}", ["--limit", "0"], runs)):
        least = median([once([sys.executable, "-c", select, history(), f"{query} LIMIT {limit}"]) for _ in range(3)])
        ours = median([once([neap, "history", *words]) for _ in range(3)])
        report(name, ours, [max(a - b, 0.01) for a, b in zip(least, start)], "SELECT", 50)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder, NEAP_DEVICE="sim", LC_ALL="C.UTF-8",
                          NEAP_SIM_PATH=build + "/sim/driver")
        world = f"waits-{os.getpid()}"  # a series waits for a whole device that no other program uses
        os.environ.setdefault("NEAP_SIM", f"h100-80gb,world={world}")
        run_true()
        series(folder)
        list_history()
        for path in glob.glob(f"/dev/shm/*{world}*"):
            os.unlink(path)
    for program in ("bench_checkpoints", "bench_metrics"):
        subprocess.run([f"{build}/bench/{program}"], check=True)


main()
