#!/usr/bin/env python3
"""Checks `neap replay` against what PyTorch's real allocator did.

usage: replay_truth.py [--neap PATH] [--only TEXT] FOLDER

FOLDER holds what a run of PyTorch's allocator left behind:

  truth.json       {"runs": [{trace, settings, device_bytes, memory_fraction, on_oom, memory_stats, whole_run, ...}]}
  snapshots.json   {"replays_without_snapshot": [as above], "snapshots": [as above, and {pickle, window, final}]}
  traces/NAME      the traces they name, or traces/NAME.zst
  NAME.pickle      the snapshots

Every figure must be equal to the byte: all keys of torch.cuda.memory_stats(), segment events and their bytes, driver
calls, the events at which memory ran out. For a snapshot, every chosen block and every segment event as well. Prints
one line per case that differs, and a summary; exits 1 if one does.
"""
import argparse
import json
import os
import subprocess
import sys


def flatten(stats, prefix=""):
    flat = {}
    for key, value in stats.items():
        if isinstance(value, dict):
            flat.update(flatten(value, prefix + key + "."))
        else:
            flat[prefix + key] = value
    return flat


class Checker:
    def __init__(self, neap, folder, only):
        self.neap = neap
        self.folder = folder
        self.only = only
        self.exact = self.total = 0

    def replay(self, path, run, delay):
        expandable = "expandable_segments:True" in run["settings"]
        command = [self.neap, "replay", path, "--json", "--memory", str(run["device_bytes"]), "--on-oom", run["on_oom"],
                   "--policy", "torch-expandable" if expandable else "torch"]
        if run["settings"]:
            command += ["--settings", run["settings"]]
        if run["memory_fraction"] is not None:
            command += ["--fraction", repr(run["memory_fraction"])]
        if delay:
            command += ["--event-delay", str(delay)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return None, f"exit {done.returncode}: {done.stderr.strip()}"
        return json.loads(done.stdout), None

    def report(self, name, differences):
        self.total += 1
        if not differences:
            self.exact += 1
            return
        print(f"{name}: {len(differences)} differ")
        for what, wanted, got in differences[:6]:
            print(f"    {what}: PyTorch {wanted}, replay {got}")

    def compare(self, pairs):
        return [(what, wanted, got) for what, wanted, got in pairs if wanted != got]

    def whole(self, run, got):
        """Checks a replay from the first event to the last."""
        stats = flatten(run["memory_stats"])
        pairs = [(key, value, got["memory_stats"].get(key)) for key, value in stats.items()]
        counts = run["whole_run"]["counts"]
        sums = run["whole_run"]["bytes"]
        driver = run["driver"]
        for kind in ("segment_alloc", "segment_free", "segment_map", "segment_unmap"):
            pairs.append((kind, counts[kind], got["segment_events"][kind]))
            pairs.append((kind + "_bytes", sums[kind], got["segment_events"][kind + "_bytes"]))
        for theirs, ours in (("cudaMalloc_ok", "cuMemAlloc"), ("cudaMalloc_failed", "cuMemAlloc_failed"),
                             ("cudaFree", "cuMemFree"), ("cuMemCreate_ok", "cuMemCreate"),
                             ("cuMemCreate_failed", "cuMemCreate_failed"), ("cuMemMap", "cuMemMap"),
                             ("cuMemUnmap", "cuMemUnmap"), ("cuMemAddressReserve", "cuMemAddressReserve")):
            pairs.append((theirs, driver[theirs], got["calls"][ours]))
        for key in ("requested_peak", "allocated_peak", "active_peak", "reserved_peak", "events_applied",
                    "first_oom_event"):
            pairs.append((key, run[key], got[key]))
        wanted = [(oom["event"], oom["requested_bytes"], oom["allocated"], oom["reserved"]) for oom in run["ooms"]]
        ours = [(oom["event"], oom["requested"], oom["allocated"], oom["reserved"]) for oom in got["oom_list"]]
        pairs.append(("ooms", wanted, ours))
        return self.compare(pairs)

    def trace(self, run, delay):
        name = f"{run['trace']} {run['label']}" + (f" delay {delay}" if delay else "")
        if self.only not in name:
            return
        path = os.path.join(self.folder, "traces", run["trace"])
        if not os.path.exists(path):
            path += ".zst"
        got, error = self.replay(path, run, delay)
        self.report(name, [("command", "exit 0", error)] if error else self.whole(run, got))

    def snapshot(self, run):
        if self.only not in run["pickle"]:
            return
        got, error = self.replay(os.path.join(self.folder, run["pickle"]), run, 0)
        if error:
            self.report(run["pickle"], [("command", "exit 0", error)])
            return
        window = run["window"]
        final = run["final"]
        stats = got["memory_stats"]
        pairs = [(key, window[key], got[key])
                 for key in ("requested_peak", "allocated_peak", "active_peak", "reserved_peak")]
        for key in ("allocated", "active", "reserved", "requested"):
            pairs.append(("final " + key, final[key], stats[f"{key}_bytes.all.current"]))
        pairs.append(("ooms", window["counts"]["oom"], got["ooms"]))
        match = got["recording"] or {}
        pairs.append(("same block", window["counts"]["alloc"], match.get("same_block")))
        segments = sum(window["counts"][kind]
                       for kind in ("segment_alloc", "segment_free", "segment_map", "segment_unmap"))
        pairs.append(("same segment events", segments, match.get("same_segment_events")))
        pairs.append(("first difference", None, match.get("first_difference", "not compared")))
        self.report(run["pickle"], self.compare(pairs))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][len("usage: "):])
    parser.add_argument("--neap", default="neap")
    parser.add_argument("--only", default="")
    parser.add_argument("folder")
    options = parser.parse_args()
    checker = Checker(options.neap, options.folder, options.only)
    found = False
    for name in ("truth.json", "snapshots.json"):
        path = os.path.join(options.folder, name)
        if not os.path.exists(path):
            continue
        found = True
        with open(path, encoding="utf-8") as file:
            truth = json.load(file)
        for run in truth.get("runs", []):
            checker.trace(run, 0)
        for run in truth.get("replays_without_snapshot", []):
            checker.trace(run, run["event_delay_trace_events"])
        for run in truth.get("snapshots", []):
            checker.snapshot(run)
    if not found:
        sys.exit(f"replay_truth.py: no truth.json nor snapshots.json in {options.folder}")
    print(f"{checker.exact} of {checker.total} cases are exact")
    sys.exit(checker.exact != checker.total)


if __name__ == "__main__":
    main()
