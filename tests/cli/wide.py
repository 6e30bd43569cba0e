#!/usr/bin/env python3
"""neap top on terminals of any size: it draws at most 1000 columns and rows, follows a change of size, and ends with 0.

    wide.py NEAP
"""
import fcntl
import os
import re
import select
import struct
import sys
import termios
import time


def resize(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def start(neap, rows, columns):
    terminal, inside = os.openpty()
    resize(inside, rows, columns)
    child = os.fork()
    if child == 0:
        os.setsid()
        fcntl.ioctl(inside, termios.TIOCSCTTY, 0)
        for number in range(3):
            os.dup2(inside, number)
        os.execv(neap, [neap, "top", "--every", "100ms", "--ascii"])
    os.close(inside)
    return child, terminal


def columns_of(drawn):
    """The highest column that the cursor moves to after the screen was cleared."""
    cleared = drawn.rpartition(b"\x1b[2J")
    return max([int(column) for column in re.findall(rb"\x1b\[\d+;(\d+)H", cleared[2])], default=0) if cleared[1] else 0


def read_until(terminal, good):
    """The terminal's output, up to where it is as wanted; if it never is, all output until the end or for 60 s."""
    drawn = b""
    end = time.monotonic() + 60
    while not good(drawn) and time.monotonic() < end:
        try:
            if select.select([terminal], [], [], 0.1)[0]:
                drawn += os.read(terminal, 65536)
        except OSError:
            break
    return drawn


def watch(neap, *sizes):
    """Each size, one after the other; then q."""
    child, terminal = start(neap, *sizes[0])
    for number, (rows, columns) in enumerate(sizes):
        if number > 0:
            resize(terminal, rows, columns)
        wide = min(columns, 1000) if rows > 1 else 0
        # The clock in the first line ends in its last columns: the cursor comes close to them, but never beyond.
        drawn = read_until(terminal, lambda drawn, wide=wide: columns_of(drawn) > wide - 20)
        if not wide - 20 < columns_of(drawn) <= max(wide, 80):
            sys.exit(f"wide.py: {rows} x {columns} of {sizes}: columns up to {columns_of(drawn)}: {drawn[-300:]!r}")
    os.write(terminal, b"q")
    read_until(terminal, lambda _: False)
    status = os.waitpid(child, 0)[1]
    if status:
        sys.exit(f"wide.py: {sizes}: it ended with {status}")


def main():
    neap = sys.argv[1]
    os.environ["TERM"] = "xterm"
    for sizes in ([(24, 80)], [(24, 1000)], [(24, 1001)], [(24, 32767)], [(24, 32768)], [(24, 65535)], [(65535, 100)],
                  [(24, 80), (24, 40000), (24, 100), (40, 1001)], [(65535, 65535), (24, 80)]):
        watch(neap, *sizes)


if __name__ == "__main__":
    main()
