#!/usr/bin/env bash
# packaging/debian.sh FOLDER: builds the Debian packages libneap0, libneap-dev, neap and python3-neap from this tree (its files
# that git knows; all of it where there is no git) into FOLDER. Needs what packaging/debian/control lists as Build-Depends,
# debhelper and dpkg-dev.
set -euo pipefail
. "$(dirname "$0")/common.bash"
output_folder "$@"
cd "$(dirname "$0")/.."
sources "$work/neap"
cp -r "$work/neap/packaging/debian" "$work/neap/debian"
cd "$work/neap"
report "Building the Debian packages" logged dpkg-buildpackage -b -us -uc "${DEB_BUILD_FLAGS:--j2}"
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out"
ls "$out"/*.deb
