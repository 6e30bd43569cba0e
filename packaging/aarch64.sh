#!/usr/bin/env bash
# packaging/aarch64.sh FOLDER: builds what a wheel has (the Python package, the command, libneap, the simulator and the stand-ins)
# for aarch64 into FOLDER, by Debian's cross compiler: gcc-aarch64-linux-gnu, and the libraries of tools/setup.sh as PACKAGE:arm64
# (dpkg --add-architecture arm64). Where qemu-aarch64-static is, the command is tried.
set -euo pipefail
. "$(dirname "$0")/common.bash"
output_folder "$@"
cd "$(dirname "$0")/.."
report "Configuring for aarch64" logged meson setup "$work/build" --cross-file packaging/aarch64.txt -Dwheel=true \
	-Dcommand=enabled -Dwerror=false -Dbuildtype=release
report "Building for aarch64" logged ninja -C "$work/build"
logged meson install -C "$work/build" --no-rebuild --destdir "$out" --tags wheel
command=$(find "$out" -name neap -type f)
! command -v qemu-aarch64-static >/dev/null || qemu-aarch64-static -L / "$command" --version
