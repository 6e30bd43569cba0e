#!/usr/bin/env bash
# tools/gpu_day.sh: all that neap wants to know of a GPU, in the order of worth, in commands of ten minutes:
#
#   tools/gpu_day.sh --carry [DIR]             here: builds build-gpu, takes over the results in DIR, says what to copy along
#   tools/gpu_day.sh [--out DIR]               where the GPU is: runs what has no result yet, as long as --seconds (560) last
#   tools/gpu_day.sh --read DIR [--page FILE]  here: writes the section of docs/gpu-results.md
#   tools/gpu_day.sh --dry-run [--out DIR]     all of it without a GPU: PyTorch on the simulator of the build folder
#
# PYTHON=... names a Python that has PyTorch with CUDA; default: python3. Results are written as they come, into DIR, else $OUT,
# and are kept in build-gpu-day besides, where the next command continues. tools/gpu_day.py --help has the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1-}" = --carry ]; then
	tests/gpu.sh --prepare
fi
exec "${PYTHON:-python3}" tools/gpu_day.py "$@"
