#!/usr/bin/env bash
# tools/python_env.sh: makes the virtual environment that the Python tests use, outside the tree, once:
#
#   ${XDG_CACHE_HOME:-~/.cache}/neap/python-3.11/    complete-tools: type checker, pytest, meson-python
#                                                    complete-torch: PyTorch (several GB), Lightning, transformers
#                                                    begun-STAGE: it is being installed, or that was cut short: nobody uses
#                                                    it, and the next time all is made anew
#   ${XDG_CACHE_HOME:-~/.cache}/neap/lock            one at a time makes it
#   ${XDG_CACHE_HOME:-~/.cache}/neap/use             each test that runs there holds a share: it is not changed meanwhile
#   ${XDG_CACHE_HOME:-~/.cache}/neap/downloads/      what came so far, until all is there: a slow index gets there in the end
#
# Nothing is installed that is newer than tools/python_versions.txt says.
# Prints what it did in one line. Without an index, disk space or time it says so and ends with 0: the tests that need it
# are then skipped. NEAP_TEST_TORCH=no leaves PyTorch out. NEAP_TEST_VENV_SECONDS bounds the whole (default 300).
set -u
versions=$(cd "$(dirname "$0")" && pwd)/python_versions.txt
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 0
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
parent=${XDG_CACHE_HOME:-$home/.cache}/neap
folder=$parent/python-$version
bound=${NEAP_TEST_VENV_SECONDS:-300}
began=$(date +%s)
tools="pytest mypy meson-python meson ninja"
torch="torch numpy lightning transformers accelerate"
tools_bytes=400000000
torch_bytes=12000000000

say() { printf 'Python tests: %s\n' "$*"; }
skip() {
	say "$*; those that need packages are skipped"
	exit 0
}
left() { echo $((bound - $(date +%s) + began)); }
has_space() { [ "$(df --output=avail -B1 "$folder" 2>/dev/null | tail -1)" -ge "$1" ] 2>/dev/null; }

installed() { ls -A "$folder"/lib/python*/site-packages; }
busy="tests of another run are under way in $folder"

# stage NAME PIP_ARG...: installs once. False: why says why not.
stage() {
	local name=$1 seconds status before
	shift
	seconds=$(left)
	why="no time left of $bound s (NEAP_TEST_VENV_SECONDS)"
	[ "$seconds" -gt 5 ] || return 1
	why=$busy
	flock -n 8 || return 1
	why="$folder cannot be written"
	touch "$folder/begun-$name" 2>/dev/null || return 1
	before=$(installed)
	PIP_DEFAULT_TIMEOUT=15 timeout -k 5 "$seconds" "$folder/bin/python" -m pip install --quiet --no-input \
		--cache-dir "$parent/downloads" --disable-pip-version-check --retries 1 --constraint "$versions" "$@" >"$folder/log" 2>&1
	status=$?
	case $status in
	0) mv "$folder/begun-$name" "$folder/complete-$name" ;;
	124 | 137) why="not installed within $bound s (NEAP_TEST_VENV_SECONDS)" ;;
	*)
		why=$(grep -m1 -oE 'NewConnectionError.*|No matching distribution.*|No space left.*' "$folder/log" ||
			grep -v '^WARNING' "$folder/log" | tail -1)
		why="pip failed: $(printf '%s' "$why" | cut -c1-200) (see $folder/log)"
		;;
	esac
	# As long as it only downloads, what was there is whole.
	[ "$(installed)" != "$before" ] || rm -f "$folder/begun-$name"
	flock -u 8
	return "$status"
}

# remove: all of it, so that it is made anew.
remove() {
	flock -n 8 || skip "$busy, which is not whole"
	rm -rf "$folder"
	flock -u 8
}

mkdir -p "$parent" 2>/dev/null || skip "cannot make $parent"
{ : >>"$parent/lock" && : >>"$parent/use"; } 2>/dev/null || skip "cannot write in $parent"
exec 8>>"$parent/use" 9>>"$parent/lock"
flock -w "$bound" 9 || skip "another test run is making $folder"
# Where an installation was killed nobody knows what is whole.
for half in "$folder"/begun-*; do
	[ ! -e "$half" ] || remove
done
# The interpreter that it was made with may be gone.
if [ ! -e "$folder/complete-tools" ] || ! "$folder/bin/python" -c '' 2>/dev/null; then
	remove
	mkdir -p "$folder" && touch "$folder/begun-venv" 2>/dev/null || skip "cannot write in $folder"
	has_space "$tools_bytes" || skip "less than 400 MB free for packages in $folder"
	seconds=$(left)
	{ [ "$seconds" -gt 0 ] && timeout -k 5 "$seconds" python3 -m venv "$folder" >"$folder/log" 2>&1; } ||
		skip "python3 -m venv fails or takes too long (see $folder/log)"
	rm -f "$folder/begun-venv"
	# shellcheck disable=SC2086
	stage tools $tools || skip "$why"
fi
if [ ! -e "$folder/complete-torch" ] && [ "${NEAP_TEST_TORCH:-yes}" != no ]; then
	has_space "$torch_bytes" || {
		say "with $folder; less than 12 GB free for PyTorch there: its tests are skipped"
		exit 0
	}
	# shellcheck disable=SC2086
	stage torch --no-compile $torch || {
		say "with $folder, without PyTorch: $why; its tests are skipped"
		exit 0
	}
fi
rm -rf "$parent/downloads"
say "with $folder"
