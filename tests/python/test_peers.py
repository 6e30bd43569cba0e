"""Two PyTorch programs of one run share a GPU: before one runs out of memory, the other gives back what it only
caches."""

import unittest

from running import Case

# Caches memory and keeps some, then works in Python until its parent ends.
CHILD = """
import sys, threading, time, torch
kept = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
cached = torch.empty(1200 << 20, dtype=torch.uint8, device="cuda")
del cached
print("cached", flush=True)
ended = threading.Thread(target=sys.stdin.read, daemon=True)
ended.start()
while ended.is_alive():
    time.sleep(0.001)
"""

PARENT = """
import os, subprocess, sys, time, torch
peer = subprocess.Popen([sys.executable, "child.py"], env={**os.environ, "NEAP_ALLOCATOR": sys.argv[1]}, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, text=True)
assert peer.stdout.readline() == "cached\\n"
for left in reversed(range(100)):  # the page of PyTorch's own allocator follows it four times a second
    try:
        taken = torch.empty(1000 << 20, dtype=torch.uint8, device="cuda")
        break
    except RuntimeError:
        if left == 0 or os.environ.get("NEAP_PEERS"):
            raise
        time.sleep(0.1)
print("taken", flush=True)
try:
    torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
except RuntimeError as error:
    print(error, flush=True)
peer.stdin.close()
sys.exit(peer.wait())
"""


class Peers(Case):
    def test_the_other_gives_what_it_caches(self):
        (self.folder / "child.py").write_text(CHILD)
        for own, other in (("neap", "neap"), ("neap", "default"), ("plugin", "neap")):
            with self.subTest(own=own, other=other):
                done, _ = self.run_script(PARENT, "--allocator", own, arguments=[other])
                taken, *error = done.stdout.splitlines()
                self.assertEqual(taken, "taken")
                self.assertIn("neap asked 1 other process for memory that it only cached, of which ", error[0])
                self.assertTrue(error[0].startswith("CUDA out of memory. Tried to allocate 900.00 MiB."), error)

    def test_each_keeps_its_own_where_that_is_wanted(self):
        (self.folder / "child.py").write_text(CHILD)
        done, _ = self.run_script(PARENT, "--allocator", "neap", arguments=["neap"], check=False, NEAP_PEERS="off")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Tried to allocate 1000.00 MiB", done.stderr)
        self.assertNotIn("neap asked", done.stderr)


if __name__ == "__main__":
    unittest.main()
