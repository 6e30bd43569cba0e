#!/usr/bin/env bash
# bench/pickle.sh [MEGABYTES] [none|python|all...]: reads a snapshot made by Python's pickler with neap's reader and with
# Python's pickle.load, each in a process of its own, and prints time and peak memory of both. Target: memory at most a
# quarter of the file and 64 MiB, and at least 5 times as fast. And the whole of `neap analyze`, which also replays the trace
# under several settings: target the same memory, and 3 times as fast. BUILD says where neap is built (build). A snapshot of
# 1000 MB takes Python some 8 GB of memory, to make as to load.
set -euo pipefail
cd "$(dirname "$0")/.."
megabytes=${1:-100}
shift || true
[ $# -gt 0 ] || set -- none python all
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

printf '%-8s %9s %10s | %8s %9s %12s | %8s %9s | %7s %s\n' stacks 'file MB' events 'neap s' 'neap MB' 'of its limit' \
	'load s' 'load MB' faster target
for kind in "$@"; do
	file=$folder/$kind.pickle
	python3 bench/make_snapshot.py "$file" "$megabytes" "$kind"
	read -r ours_s ours_bytes events < <("${BUILD:-build}/bench/read_trace" "$file")
	read -r theirs_s theirs_bytes < <(python3 - "$file" <<'PYTHON'
import pickle, resource, sys, time
begin = time.monotonic()
with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
print("%.3f %d" % (time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024), flush=True)
import os
os._exit(0)
PYTHON
	)
	read -r whole_s whole_bytes < <(python3 - "${BUILD:-build}/src/neap" analyze "$file" <<'PYTHON'
import resource, subprocess, sys, time
begin = time.monotonic()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print("%.3f %d" % (time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
PYTHON
	)
	python3 - "$kind" "$(stat -c %s "$file")" "$events" "$theirs_s" "$theirs_bytes" "$ours_s" "$ours_bytes" "$whole_s" "$whole_bytes" <<'PYTHON'
import sys
kind, *numbers = sys.argv[1:]
size, events, theirs_s, theirs, ours_s, ours, whole_s, whole = map(float, numbers)
limit = size / 4 + 64 * 2**20
for name, s, most, times in ((kind, ours_s, ours, 5), ("analyze", whole_s, whole, 3)):
    met = most <= limit and theirs_s >= times * s
    print("%-8s %9.0f %10d | %8.2f %9.0f %11.0f%% | %8.2f %9.0f | %6.1fx %s" % (
        name, size / 1e6, events, s, most / 1e6, 100 * most / limit, theirs_s, theirs / 1e6, theirs_s / s,
        "met" if met else "missed"))
PYTHON
	rm -f "$file"
done
