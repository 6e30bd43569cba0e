#!/usr/bin/env bash
# packaging/debian.sh FOLDER: builds the Debian packages libneap0, libneap-dev, neap and python3-neap from this tree (its files
# that git knows; all of it where there is no git) into FOLDER. Needs what packaging/debian/control lists as Build-Depends,
# debhelper and dpkg-dev.
set -euo pipefail
. "$(dirname "$0")/common.bash"
output_folder "$@"
cd "$(dirname "$0")/.."
mkdir "$work/neap"
if git ls-files >"$work/files" 2>/dev/null; then
	tar -c --ignore-failed-read -T "$work/files" | tar -x -C "$work/neap"
else
	tar -c --exclude='./build*' . | tar -x -C "$work/neap"
fi
cp -r "$work/neap/packaging/debian" "$work/neap/debian"
cd "$work/neap"
dpkg-buildpackage -b -us -uc "${DEB_BUILD_FLAGS:--j2}"
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out"
