"""Runs a test with the interpreter of the virtual environment that tools/python_env.sh makes: in_venv.py STAGE FILE...

Without it, or without its stage (tools, torch), says so and ends with 77, which is a skip.
"""

import os
import pathlib
import sys

cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
folder = pathlib.Path(cache, "neap", "python-%d.%d" % sys.version_info[:2])
stage = sys.argv[1]
if not (folder / f"complete-{stage}").exists():
    print(f"skipped: {folder} has no {'PyTorch' if stage == 'torch' else 'test tools'}: tools/python_env.sh makes it")
    sys.exit(77)
os.environ.pop("LD_LIBRARY_PATH", None)  # with the simulator's folder in it, PyTorch would take it for the driver
python = str(folder / "bin" / "python")
os.execv(python, [python, *sys.argv[2:]])
