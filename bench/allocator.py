#!/usr/bin/env python3
"""allocator.py NEAP TRACE... [--policy POLICY...] [--room TIMES] [--no-smallest] [--json]: how tightly and how calmly allocators
serve traces.

TRACE is a text trace or snapshot, or a folder of them (bench/make_traces.py writes one). For each trace and policy (neap's
allocator, and the models of PyTorch's, default and with expandable segments), with the command NEAP:

    requested     the most bytes that the program had asked for at once
    smallest      by how much the smallest device on which the trace completes exceeds that
  and, on a device of 1.05 times the requested peak, or of TIMES:
    growth        calls of the driver that raised the reserved bytes to a new peak, per 1000 events of the whole trace
    others        all other calls of the driver after the first quarter of the trace, per 1000 events of that part
    syncs         synchronisations after the first quarter
    ns            nanoseconds of processor time per event of that replay, with the reading of the trace: the best of three
    OOM           where it ran out of memory there: the event

The last lines are the worst of each policy.
"""
import argparse
import json
import pathlib
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass

POLICIES = ("neap", "torch", "torch-expandable")
NO_PLAN = "neap-no-plan"  # neap, without a plan of steps that repeat
PAGE = 2 << 20


@dataclass
class Row:
    trace: str
    policy: str
    events: int
    requested_peak: int
    smallest_memory: int | None = None
    smallest_over_percent: float | None = None
    growth_per_1000: float = 0
    others_per_1000: float = 0
    synchronizations: int = 0
    ns_per_event: float = 0
    oom_event: int | None = None


def replay(command: str, path: pathlib.Path, policy: str, *options: str) -> dict:
    allocator = ["neap", "--no-plan"] if policy == NO_PLAN else [policy]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = subprocess.run([command, "replay", str(path), "--policy", *allocator, "--json", *options], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(output)
    result["processor_s"] = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return result


def measure(command: str, path: pathlib.Path, policy: str, times: float, smallest: bool) -> Row:
    free = replay(command, path, policy, *(["--smallest"] if smallest else []))
    peak = free["requested_peak"]
    room = int(times * peak) // PAGE * PAGE
    rounds = [replay(command, path, policy, "--memory", str(room)) for _ in range(3)]
    tight = rounds[0]
    row = Row(path.name, policy, free["events"], peak, oom_event=tight["first_oom_event"])
    if smallest:
        row.smallest_memory = free["smallest_memory"]
        row.smallest_over_percent = 100.0 * (free["smallest_memory"] / peak - 1)
    first = tight["first_quarter"]
    rest = tight["after_first_quarter"]
    row.growth_per_1000 = 1000.0 * (first["growth_calls"] + rest["growth_calls"]) / max(1, tight["events_applied"])
    row.others_per_1000 = rest["other_calls_per_1000_events"]
    row.synchronizations = rest["synchronizations"]
    row.ns_per_event = 1e9 * min(result["processor_s"] for result in rounds) / max(1, tight["events"])
    return row


def print_row(row: Row) -> None:
    smallest = "" if row.smallest_over_percent is None else f"{row.smallest_over_percent:+.3f}%"
    oom = "" if row.oom_event is None else f"OOM at {row.oom_event}"
    print(f"{row.trace:<26} {row.policy:<17} {row.events:>8} {row.requested_peak / (1 << 30):>9.3f} {smallest:>9} "
          f"{row.growth_per_1000:>9.2f} {row.others_per_1000:>9.2f} {row.synchronizations:>7} {row.ns_per_event:>6.0f} {oom}", flush=True)


def print_worst(rows: list[Row], policy: str) -> None:
    own = [row for row in rows if row.policy == policy]
    over = [row.smallest_over_percent for row in own if row.smallest_over_percent is not None]
    smallest = f"{max(over):+.3f}%" if over else ""
    failed = sum(row.oom_event is not None for row in own)
    served = [row for row in own if row.oom_event is None]
    print(f"{'the worst':<26} {policy:<17} {'':>8} {'':>9} {smallest:>9} "
          f"{max((row.growth_per_1000 for row in served), default=0):>9.2f} "
          f"{max((row.others_per_1000 for row in served), default=0):>9.2f} "
          f"{max((row.synchronizations for row in served), default=0):>7} {failed} of {len(own)} out of memory")


def main() -> int:
    parser = argparse.ArgumentParser(description="How tightly and how calmly allocators serve traces.")
    parser.add_argument("command")
    parser.add_argument("traces", nargs="+", type=pathlib.Path)
    parser.add_argument("--policy", action="append", choices=(*POLICIES, NO_PLAN), help="only this policy; may be given several times")
    parser.add_argument("--room", type=float, default=1.05, metavar="TIMES", help="the device, in requested peaks (1.05)")
    parser.add_argument("--no-smallest", action="store_true", help="leave out the search for the smallest device")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    paths: list[pathlib.Path] = []
    for path in arguments.traces:
        paths += sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
    policies = arguments.policy or POLICIES
    rows = []
    if not arguments.json:
        print(f"{'trace':<26} {'policy':<17} {'events':>8} {'peak GiB':>9} {'smallest':>9} {'growth':>9} {'others':>9} "
              f"{'syncs':>7} {'ns':>6}")
    for path in paths:
        for policy in policies:
            rows.append(measure(arguments.command, path, policy, arguments.room, not arguments.no_smallest))
            if not arguments.json:
                print_row(rows[-1])
    if arguments.json:
        json.dump({"schema": 1, "results": [asdict(row) for row in rows]}, sys.stdout, indent=1)
        print()
    else:
        for policy in policies:
            print_worst(rows, policy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
