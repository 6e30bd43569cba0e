"""tools/gpu_day.sh --dry-run: a whole GPU day on the simulator, with the PyTorch of such a day. For NEAP_LONG=1 alone."""

import os
import pathlib
import sys
import tempfile

if not os.environ.get("NEAP_LONG"):
    print("skipped: is for NEAP_LONG=1")
    sys.exit(77)
source = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ["PYTHON"] = sys.executable
with tempfile.TemporaryDirectory(prefix="gpu-day-") as folder:
    sys.exit(os.waitstatus_to_exitcode(os.system(f"'{source}/tools/gpu_day.sh' --dry-run --out '{folder}' --build '{os.environ['NEAP_BUILD']}'")))
