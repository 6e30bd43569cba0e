"""Programs in separate processes that begin with PyTorch imported, because an import takes two seconds of a
processor.

A server imports nothing: it is forked from a test that has imported torch and has not used CUDA. Each program is a
fork of the server. Variables that torch or neap read at their import come too late (NEAP_ATTACH, or backend: of
PyTorch's settings): such a program needs an interpreter of its own.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback


class Forks:
    def __init__(self):
        self.channel, theirs = socket.socketpair()
        if os.fork() == 0:
            self.channel.close()
            _serve(theirs)
        theirs.close()
        self.answers = self.channel.makefile("r")

    def run(self, code, **environment):
        """The program's result, as subprocess.run would give it; with the caller's variables and these."""
        with tempfile.TemporaryDirectory() as folder:
            request = {"code": code, "environment": {**os.environ, **environment}, "folder": folder}
            self.channel.sendall(json.dumps(request).encode() + b"\n")
            status = json.loads(self.answers.readline())
            texts = []
            for name in ("out", "err"):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    texts.append(file.read())
        return subprocess.CompletedProcess(code, os.waitstatus_to_exitcode(status), *texts)


def _serve(channel):
    """Serves until the test ends. Never returns: the frames below on the stack belong to the test."""
    try:
        for line in channel.makefile("r"):
            child = os.fork()
            if child == 0:
                _become(**json.loads(line))
            channel.sendall(json.dumps(os.waitpid(child, 0)[1]).encode() + b"\n")
    finally:
        os._exit(0)


def _become(code, environment, folder):
    status = 1
    try:
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(file, number)
        os.environ.clear()
        os.environ.update(environment)
        exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:  # as an interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
