#!/usr/bin/env python3
"""How neap's cost grows with the size of a trace.

    scale.py NEAP [EVENTS...]

Makes a text trace of each size (100000, 1000000 and 10000000 events: steps whose batches have different lengths,
which keep nothing) and has `neap analyze` read it, with replays under other settings. Prints processor seconds and
the highest memory, and the exponent of each: 1 if twice the events cost twice as much, 0 if they cost the same.
"""
import math
import os
import random
import sys
import tempfile


def write_trace(path, events):
    random.seed(11)
    number = written = 0
    with open(path, "w", encoding="ascii", buffering=1 << 20) as file:
        while written < events:
            tokens = random.randrange(128, 1024) * 8
            first = number + 1
            for place in range(96):
                number += 1
                file.write(f"a {number} {tokens * (1536 if place % 3 else 6144)} 0\n")
            for block in range(number, first - 1, -1):
                file.write(f"f {block}\n")
            file.write("s\n")
            written += 192


def cost(command):
    """Seconds of a processor, and the highest memory in bytes."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(command[0], command)
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{' '.join(command)}: status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def exponent(now, before):
    return math.log(now[1] / before[1]) / math.log(now[0] / before[0])


def main():
    neap = os.path.realpath(sys.argv[1])
    sizes = [int(float(size)) for size in sys.argv[2:]] or [10**5, 10**6, 10**7]
    before = None
    print(f"{'events':>12} {'file MB':>8} {'processor s':>12} {'exponent':>9} {'memory MB':>10} {'exponent':>9} {'bytes an event':>15}")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/trace.txt"
            write_trace(path, size)
            seconds, memory = cost([neap, "analyze", path])
            row = [f"{size:12d} {os.path.getsize(path) / 1e6:8.1f} {seconds:12.2f}", f"{memory / 1e6:10.1f}"]
        grown = [exponent((size, now), (before[0], then)) for now, then in ((seconds, before[1]), (memory, before[2]))] if before else []
        shown = [f"{value:9.2f}" for value in grown] or [f"{'':9}"] * 2
        print(f"{row[0]} {shown[0]} {row[1]} {shown[1]} {memory / size:15.1f}", flush=True)
        before = (size, seconds, memory)


main()
