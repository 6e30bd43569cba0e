"""Sends wrong frames to an attached process while it trains: each must be answered with an error or dropped, and the
training must not notice.

    frames.py PID SOCKET PIPE LOSSES NEAP

PIPE is where the process writes its losses, one a line. It is made so small that the process cannot end before it is
read to its end here: whatever is sent is sent to a process in the middle of its training. What is read goes to LOSSES.
"""
import fcntl
import json
import os
import random
import socket
import struct
import subprocess
import sys

pid, path, pipe, losses, neap = sys.argv[1:]
EPROTO = 12
F_SETPIPE_SZ = 1031
BOUND_S = 60


def header(magic=b"NEAP", version=1, command=2, request=7, status=0, length=0):
    return struct.pack("<4sHHIII", magic, version, command, request, status, length)


def connect():
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(BOUND_S)
    peer.connect(path)
    return peer


def answer(data, end=True):
    """The answer's status and payload, or None if the connection was dropped. Silence fails."""
    with connect() as peer:
        got = b""
        try:
            peer.sendall(data)
            if end:
                peer.shutdown(socket.SHUT_WR)
            while len(got) < 20 or len(got) < 20 + struct.unpack_from("<I", got, 16)[0]:
                piece = peer.recv(65536)
                if not piece:
                    break
                got += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
    if not got:
        return None
    assert got[:4] == b"NEAP" and len(got) >= 20, got
    return struct.unpack_from("<I", got, 12)[0], got[20:]


def refused(data, words, end=True):
    status, payload = answer(data, end)
    assert status == EPROTO, (data[:32], status, payload)
    assert words in payload, (data[:32], payload)


def run_goes_on():
    with open(f"/proc/{pid}/stat") as stat:
        assert stat.read().rsplit(")", 1)[1].split()[0] != "Z", "the process has ended"
    info = json.loads(subprocess.run([neap, "info", "--json"], check=True, capture_output=True, timeout=60).stdout)
    (process,) = [each for each in info["processes"] if each["pid"] == int(pid)]
    assert process["attached"] and process["allocated"] > 0, process
    assert answer(header())[0] == 0, "an honest question is not answered"


with open(pipe, "rb", buffering=0) as stream, open(losses, "wb") as kept:
    fcntl.fcntl(stream, F_SETPIPE_SZ, 4096)
    kept.write(stream.read(64))
    run_goes_on()

    refused(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"no frame begins here")
    refused(header(version=99), b"version")
    refused(header(length=0xFFFFFFFF), b"longer than the limit", end=False)
    refused(header(length=(1 << 20) + 1), b"longer than the limit", end=False)
    refused(header(length=65537), b"longer than the limit", end=False)
    assert answer(header(command=999))[0] != 0
    assert answer(header(command=3, length=8) + b"\xff" * 8)[0] == EPROTO  # a field longer than its payload
    assert answer(header()[:9]) is None  # half a header, then the end
    assert answer(header(length=100) + b"x" * 50) is None  # half a payload
    assert answer(b"") is None
    run_goes_on()

    # Half a frame and then nothing, from as many peers as the server takes at once: it must not wait for them for
    # ever.
    silent = [connect() for _ in range(8)]
    for peer in silent:
        peer.sendall(header()[:11])
    run_goes_on()
    for peer in silent:
        peer.close()

    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    print("SEED", seed)
    chance = random.Random(seed)
    for _ in range(300):
        data = bytearray(header(command=chance.randrange(6), length=chance.choice([0, 8, 24, 200])))
        data += chance.randbytes(chance.choice([0, 8, 24, 200]))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        answer(bytes(data))
    run_goes_on()
    while piece := stream.read(65536):
        kept.write(piece)
