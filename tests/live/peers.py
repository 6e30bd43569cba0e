"""A process that is out of memory asks others for what they only cache: only those of its own run or series. Whatever
they do, its request ends.

    peers.py NEAP SUBJECT

SUBJECT is subject.c. A device has 238 MiB beside two contexts.
"""
import contextlib
import os
import socket
import struct
import sys
import threading

from place import Place, go_on, run_tests, stop, tell

NEAP, SUBJECT = map(os.path.abspath, sys.argv[1:3])
RELEASE = 6
FREED = 28
SAID = "(asked: gave back "


def reserved(place, pid):
    (process,) = [each for each in place.json("info")["processes"] if each["pid"] == pid]
    return process["allocated"] + process["cached"] >> 20


def attempt(first, second):
    """Two processes with these variables: the first caches 150 MiB, the second needs them. Returns what the second
    prints, and what the first has left."""
    with Place(NEAP, SUBJECT) as place:
        one = place.subject(**first)
        two = place.subject(**second)
        assert tell(one, "cache 150") == "taken"
        said = tell(two, "take 150")
        return said, reserved(place, one.pid)


def given(first, second):
    said, left = attempt(first, second)
    assert said == "taken" and left == 0, (said, left)


def refused(first, second):
    said, left = attempt(first, second)
    assert said.startswith("failed: CUDA out of memory.") and left == 150, (said, left)
    return said


def test_same_run():
    given({"NEAP_RUN_ID": "a"}, {"NEAP_RUN_ID": "a"})


def test_same_series():
    given({"NEAP_RUN_ID": "a", "NEAP_SERIES": "s"}, {"NEAP_RUN_ID": "b", "NEAP_SERIES": "s"})


def test_unrelated_processes_are_not_asked():
    for first, second in [({}, {}), ({"NEAP_RUN_ID": "a"}, {"NEAP_RUN_ID": "b"}), ({"NEAP_RUN_ID": "a"}, {}),
                          ({"NEAP_SERIES": "s", "NEAP_RUN_ID": "a"}, {"NEAP_SERIES": "t", "NEAP_RUN_ID": "b"})]:
        assert SAID not in refused(first, second)


def test_option():
    given({"NEAP_PEERS": "user"}, {"NEAP_PEERS": "user", "NEAP_RUN_ID": "b"})
    assert SAID + "0 B" in refused({"NEAP_RUN_ID": "a"}, {"NEAP_PEERS": "user"})  # only one of the two asks for it
    assert SAID not in refused({"NEAP_PEERS": "user"}, {"NEAP_RUN_ID": "b"})
    assert SAID + "0 B" in refused({"NEAP_RUN_ID": "a", "NEAP_PEERS": "off"}, {"NEAP_RUN_ID": "a"})
    assert SAID not in refused({"NEAP_RUN_ID": "a"}, {"NEAP_RUN_ID": "a", "NEAP_PEERS": "off"})
    with Place(NEAP, SUBJECT) as place:
        subject = place.subject(NEAP_PEERS="all")
        assert 'NEAP_PEERS is not followed: expected run, user or off, not "all"' in place.neap("info"), subject


def test_other_device():
    with Place(NEAP, SUBJECT) as place:
        place.environment["NEAP_SIM"] += ",gpus=2"
        one = place.subject(NEAP_RUN_ID="a")
        two = place.subject(NEAP_RUN_ID="a", CUDA_VISIBLE_DEVICES="1")
        assert tell(one, "cache 150") == "taken" and tell(two, "take 230") == "taken"
        assert SAID not in tell(two, "take 20")
        assert reserved(place, one.pid) == 150


def test_stopped_peer():
    with Place(NEAP, SUBJECT) as place:
        one, two = (place.subject(NEAP_RUN_ID="a") for _ in range(2))
        assert tell(one, "cache 150") == "taken"
        stop(one.pid)
        assert SAID + "0 B" in tell(two, "take 150")
        go_on(one.pid)
        assert tell(two, "take 150") == "taken"


def test_captures():
    with Place(NEAP, SUBJECT) as place:
        one, two = (place.subject(NEAP_RUN_ID="a") for _ in range(2))
        assert tell(one, "cache 150") == "taken" and tell(one, "capture") == "ok"
        assert SAID + "0 B" in tell(two, "take 150")  # the peer cannot give
        assert tell(one, "end") == "ok" and tell(two, "capture") == "ok"
        assert SAID not in tell(two, "take 150")  # this one does not ask
        assert tell(two, "end") == "ok"
        assert tell(two, "take 150") == "taken"


def header(command=RELEASE, status=0, length=0, request=1, magic=b"NEAP"):
    return struct.pack("<4sHHIII", magic, 1, command, request, status, length)


def answer(freed):
    field = struct.pack("<HBBIQ", FREED, 1, 0, 8, freed)
    return header(length=len(field)) + field


def silent(peer):
    peer.recv(1)


def flood(peer):
    while True:
        peer.sendall(b"x" * 65536)


def flood_of_headers(peer):
    while True:
        peer.sendall(header(length=400) + b"\0" * 400)


def drip(peer):
    peer.recv(4096)
    for byte in answer(1) * 1000:
        peer.sendall(bytes([byte]))
        threading.Event().wait(0.02)


HOSTILE = {
    "closes at once": lambda peer: None,
    "never answers": silent,
    "garbage": lambda peer: peer.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10),
    "huge length": lambda peer: (peer.sendall(header(length=0xFFFFFFFF)), silent(peer)),
    "longer than an answer": lambda peer: (peer.sendall(header(length=1 << 20) + b"\0" * 4096), silent(peer)),
    "half an answer": lambda peer: (peer.sendall(answer(1)[:25]), silent(peer)),
    "answer to another request": lambda peer: peer.sendall(header(request=2) + b""),
    "answer of another kind": lambda peer: peer.sendall(header(command=3)),
    "fields that are none": lambda peer: peer.sendall(header(length=8) + b"\xff" * 8),
    "more than there is": lambda peer: peer.sendall(answer(0xFFFFFFFFFFFFFFFF)),
    "floods": flood,
    "floods with answers": flood_of_headers,
    "one byte at a time": drip,
}


@contextlib.contextmanager
def pretender(place, model, behave, accept=True):
    """This process has a page like that of `model` and a socket, and treats each peer with `behave`. Yields what
    came."""
    page = bytearray(open(f"{place.runtime}/{model.pid}.page", "rb").read())
    struct.pack_into("<Q", page, 16, os.getpid())
    with open(f"{place.runtime}/{os.getpid()}.page", "wb") as file:
        file.write(page)
    came = []

    def serve(peer):
        with contextlib.suppress(OSError), peer:
            came.append(peer.recv(20))
            behave(peer)

    def listen():
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[peer], daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place.runtime}/{os.getpid()}.sock")
        listener.listen(8 if accept else 0)
        thread = threading.Thread(target=listen if accept else lambda: None, daemon=True)
        thread.start()
        yield came
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    os.unlink(f"{place.runtime}/{os.getpid()}.sock")
    os.unlink(f"{place.runtime}/{os.getpid()}.page")


def test_hostile_peers():
    with Place(NEAP, SUBJECT) as place:
        one, two = (place.subject(NEAP_RUN_ID="a") for _ in range(2))
        assert tell(one, "take 120") == "taken"
        for name, behave in HOSTILE.items():
            with pretender(place, one, behave) as came:
                said = tell(two, "take 150")
                assert came and came[0][:4] == b"NEAP", (name, came)
                assert said.startswith("failed: CUDA out of memory") and SAID in said, (name, said)
                assert name != "more than there is" or SAID + "254 MiB" in said, said
        # An honest peer next to it still gives its memory.
        assert tell(one, "cache 100") == "taken"
        with pretender(place, one, flood):
            assert tell(two, "take 60") == "taken"


def test_peer_whose_queue_is_full():
    with Place(NEAP, SUBJECT) as place:
        one, two = (place.subject(NEAP_RUN_ID="a") for _ in range(2))
        assert tell(one, "cache 150") == "taken"
        with pretender(place, one, silent, accept=False):
            waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
            for peer in waiting:
                peer.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    peer.connect(f"{place.runtime}/{os.getpid()}.sock")
            assert tell(two, "take 150") == "taken"  # the honest peer is asked as well
            for peer in waiting:
                peer.close()


def test_socket_of_another_process():
    """A page whose socket another process serves: the process is not asked."""
    with Place(NEAP, SUBJECT) as place:
        one, two = (place.subject(NEAP_RUN_ID="a") for _ in range(2))
        assert tell(one, "cache 150") == "taken"
        os.unlink(f"{place.runtime}/{one.pid}.sock")
        came = []
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{place.runtime}/{one.pid}.sock")
            listener.listen(8)
            listener.settimeout(60)
            thread = threading.Thread(target=lambda: came.append(listener.accept()[0].recv(20)))
            thread.start()
            said = tell(two, "take 150")
            thread.join()
        assert "out of memory" in said and SAID not in said, said
        assert came == [b""], came


run_tests(globals(), sys.argv[3:])
