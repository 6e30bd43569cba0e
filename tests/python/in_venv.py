"""Runs a test with the interpreter of the virtual environment that tools/python_env.sh makes: in_venv.py STAGE FILE...

Without it, or without its stage (tools, axe, torch), says so and ends with 77, which is a skip. The stages `oldest`
and `gpu_day` are other environments, with the oldest PyTorch that neap supports and with the PyTorch of a GPU day;
`oldest` runs for NEAP_LONG=1 alone, as `./test --long` sets it.
"""

import fcntl
import glob
import hashlib
import os
import subprocess
import sys

if not os.environ.get("HOME"):
    os.environ.pop("HOME", None)  # the user's own, as tools/python_env.sh does
cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "neap")
folder = os.path.join(cache, "python-%d.%d" % sys.version_info[:2])
stage = sys.argv[1]
maker = "tools/python_env.sh"
if stage in ("oldest", "gpu_day"):
    folder = f"{folder}-{stage}"
    maker = f"{maker} --{stage.replace('_', '-')}"


def skip(why):
    print(f"skipped: {folder} {why}")
    sys.exit(77)


if stage == "oldest" and not os.environ.get("NEAP_LONG"):
    skip("is for NEAP_LONG=1")
recorded = glob.glob(os.path.join(glob.escape(os.path.dirname(os.path.abspath(__file__))), "gpu_truth", "*.json"))
if stage == "gpu_day" and not os.environ.get("NEAP_LONG") and not recorded:
    skip("is for NEAP_LONG=1, or for a recording of a GPU")
try:  # no other process may change the environment while the test runs
    use = os.open(os.path.join(cache, "use"), os.O_RDONLY | os.O_CREAT, 0o666)
    fcntl.flock(use, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.set_inheritable(use, True)
except BlockingIOError:
    skip("is being made")
except OSError:  # a user without write permission cannot change it either
    pass
if not os.path.exists(os.path.join(folder, f"complete-{stage}")):
    skip(f"has no {({'tools': 'test tools', 'axe': 'axe-core'}).get(stage, 'PyTorch')}: {maker} makes it")
if glob.glob(os.path.join(glob.escape(folder), "begun-*")):
    skip(f"is not whole: {maker} makes it again")


def compile_objects(python):
    """Compiles, once, the recorder of PyTorch's allocations and the code that computes its values, so that no test
    waits for a compiler. If that fails, the tests report it."""
    digest = hashlib.sha256(os.environ["PYTHONPATH"].encode())
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for path in sorted(p for kind in ("src/torch/[rvw]*", "include/neap/*.h") for p in glob.glob(f"{source}/{kind}")):
        with open(path, "rb") as file:
            digest.update(file.read())
    stamp = os.path.join(cache, "watch", f"ready-{stage}-{digest.hexdigest()[:24]}")
    if not os.path.exists(stamp):
        code = (
            "import torch; from neap import _compiled, _values, _watch\n"
            "for unit in (_watch.UNIT, _values.UNIT): _compiled.compiled(torch, unit)"
        )
        done = subprocess.run([python, "-W", "ignore", "-c", code], env={**os.environ, "NEAP_DEVICE": "sim"})
        if done.returncode == 0:
            open(stamp, "w").close()


os.environ.pop("LD_LIBRARY_PATH", None)  # if it had the simulator's folder, PyTorch would take that for the driver
python = os.path.join(folder, "bin", "python")
if stage != "tools" and "NEAP_SIM_RUNTIME" in os.environ:
    compile_objects(python)
os.execv(python, [python, *sys.argv[2:]])
