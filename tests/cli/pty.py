#!/usr/bin/env python3
"""Runs a command with stderr on its own terminal, COLUMNS wide, and stdout unchanged. Writes the terminal's output to
FILE. Exits as the command does.

usage: pty.py FILE COLUMNS COMMAND...
"""

import fcntl
import os
import struct
import sys
import termios

path = sys.argv[1]
columns = int(sys.argv[2])
command = sys.argv[3:]
master, slave = os.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)  # of a session of its own, in its foreground
    os.dup2(slave, 2)
    os.close(master)
    os.execvp(command[0], command)
os.close(slave)
with open(path, "wb", buffering=0) as file:
    while True:
        try:
            got = os.read(master, 65536)
        except OSError:  # the last process that had it open is gone
            break
        if not got:
            break
        file.write(got)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
