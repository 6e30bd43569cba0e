"""Shared by the tests of races between streams: a small program with and without its race, the command and pytest on one."""

import sys

from running import NEAP, Case

# $SAFE stands for the missing order.
_TEXT = """
import torch
side = torch.cuda.Stream()
x = torch.ones(1 << 20, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x * 2
$SAFE
del x
z = torch.zeros(1 << 20, device="cuda")
torch.cuda.synchronize()
"""
CORRECT = _TEXT.replace("$SAFE", "x.record_stream(side)")
RACE = _TEXT.replace("$SAFE", "pass")


def function(name, text):
    """A function of that name that does the same."""
    return f"def {name}():" + text.replace("\n", "\n    ").rstrip() + "\n"


class StreamsCase(Case):
    def program(self, text):
        path = self.folder / "program.py"
        path.write_text(text)
        return path

    def check(self, text, *words, **more):
        return self.execute(NEAP, "check", "--streams", *words, "--", sys.executable, self.program(text), **more)

    def pytest(self, text, **more):
        (self.folder / "test_marked.py").write_text(text)
        words = ["-m", "pytest", "-p", "neap.pytest_plugin", "--neap-gpu=h100-80gb,mem=2GiB", "-q"]
        # -rN: no summary. If CI is set, pytest repeats each failure in it at full length.
        return self.execute(sys.executable, *words, "-rN", "test_marked.py", **more)
