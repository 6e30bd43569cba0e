#!/usr/bin/env bash
# packaging/debian.sh FOLDER: builds the Debian packages libneap0, libneap-dev, neap and python3-neap from this tree (its files
# that git knows; all of it where there is no git) into FOLDER. Needs what packaging/debian/control lists as Build-Depends,
# debhelper and dpkg-dev.
set -euo pipefail
[ $# -eq 1 ] || {
	echo "usage: packaging/debian.sh FOLDER" >&2
	exit 64
}
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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
