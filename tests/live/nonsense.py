"""Pretends to be an attached process and answers each request with something that is no answer.

    nonsense.py RUNTIME_FOLDER      says "ready" once it can be asked
"""
import os
import socket
import sys

ANSWERS = (
    b"HTTP/1.1 400 Bad Request\r\n\r\n",  # no frame
    b"NEAP\x09\x00" + bytes(14),  # another version
    b"NEAP\x01\x00\x03\x00" + b"\xff" * 12,  # a length beyond all limits
    b"NEAP\x01",  # half a header
    b"",
)
os.makedirs(sys.argv[1], 0o700)
server = socket.socket(socket.AF_UNIX)
server.bind(f"{sys.argv[1]}/{os.getpid()}.sock")
server.listen()
print("ready", flush=True)
for answer in ANSWERS:
    peer, _ = server.accept()
    with peer:
        peer.recv(1)
        peer.sendall(answer)
        peer.shutdown(socket.SHUT_WR)
        try:
            while peer.recv(4096):
                pass
        except ConnectionResetError:  # the client hung up before it read all the nonsense
            pass
