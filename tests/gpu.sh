#!/usr/bin/env bash
# tests/gpu.sh: the tests that need a real GPU. Builds libneap and the Python package with gcc, meson and ninja alone (and
# the command, where its libraries are there), and runs tests/python/test_gpu.py with a Python that has PyTorch:
#
#   PYTHON=/path/to/python tests/gpu.sh >results.txt        default: python3
#
# Exit status: 0 all passed, 1 one failed, 69 there is no GPU, or no PyTorch, here. What it prints belongs into
# docs/gpu-results.md.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 70
python=${PYTHON:-python3}
folder=build-gpu

"$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || {
	echo "tests/gpu.sh: $python has no PyTorch that sees a CUDA device (PYTHON=... names another)" >&2
	exit 69
}
if [ ! -f "$folder/build.ninja" ]; then
	meson setup "$folder" -Dwerror=false >/dev/null 2>&1 ||
		{ rm -rf "$folder" && meson setup "$folder" -Dwerror=false -Dcommand=disabled >&2; } || exit 70
fi
ninja -C "$folder" >&2 || exit 70
[ -x "$folder/src/neap" ] && export NEAP=$PWD/$folder/src/neap
export PYTHONPATH=$PWD/$folder/python NEAP_SOURCE=$PWD
unset NEAP_DEVICE LD_LIBRARY_PATH
exec "$python" tests/python/test_gpu.py
