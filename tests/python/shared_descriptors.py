"""A program for test_allocator.py: shares tensors under neap's allocator, then forks, closes the descriptors on which
neap listens, and has receivers that stall. Prints the results as JSON."""

import contextlib
import json
import os
import pathlib
import socket

import neap
import torch
import torch.multiprocessing

neap.install_allocator()  # in both processes: the child imports this file, too

BOUND = 120
STALLED = 5


def answer(tensors, answers):
    """The child: reports how many bytes each tensor has, and the last byte."""
    while (tensor := tensors.get(timeout=BOUND)) is not None:
        answers.put([len(tensor), int(tensor[-1].item())])
        del tensor


def listener():
    """The name and the inode of the socket through which this process shares."""
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines():
        fields = line.split()  # number, references, protocol, flags, type, state, inode, name
        if fields[-1].startswith(f"@neap-share-{os.getpid()}-") and fields[5] == "01":  # it listens
            return fields[-1][1:], fields[6]
    return None, None


def descriptors(inode):
    """This process's descriptors of that socket."""
    found = []
    for path in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(path) == f"socket:[{inode}]":
                found.append(int(path.name))
    return found


def in_fork(inode):
    """How many of them a forked child has."""
    pid = os.fork()
    if pid == 0:
        os._exit(len(descriptors(inode)))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main():
    context = torch.multiprocessing.get_context("spawn")
    tensors = context.Queue()
    answers = context.Queue()
    child = context.Process(target=answer, args=(tensors, answers))
    child.start()

    def share(value):
        sent = torch.full((3_000_000,), 0, dtype=torch.uint8, device="cuda")
        sent.copy_(torch.full((3_000_000,), value, dtype=torch.uint8))
        tensors.put(sent)
        return answers.get(timeout=BOUND)

    found = {"first": share(1)}
    name, inode = listener()
    (own,) = descriptors(inode)
    found["in the fork"] = in_fork(inode)

    stalled = [socket.socket(socket.AF_UNIX) for _ in range(STALLED)]
    for peer in stalled:
        peer.connect("\0" + name)
    found["beside stalled receivers"] = share(2)
    for peer in stalled:
        peer.close()

    # The program closes descriptors that it does not know, and opens its own listener under the same number.
    other = socket.socket(socket.AF_UNIX)
    other.bind("\0neap-test-" + name)
    other.listen()
    os.dup2(other.fileno(), own, inheritable=False)
    client = socket.socket(socket.AF_UNIX)
    client.connect("\0neap-test-" + name)
    found["after its listener was closed"] = share(3)
    other.settimeout(BOUND)
    found["its own connection"] = other.accept()[0] is not None
    found["the name"] = listener()[0] == name

    tensors.put(None)
    child.join(BOUND)
    found["child"] = child.exitcode
    torch.cuda.ipc_collect()  # PyTorch crashes in its own exit handlers, with any allocator, if tensors still wait to be collected
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
