#!/usr/bin/env bash
# tools/python_env.sh [--oldest|--gpu-day]: makes the virtual environment that the Python tests use, outside the tree, once:
#
#   ${XDG_CACHE_HOME:-~/.cache}/neap/python-3.11/    complete-tools: type checker, ruff, pytest, meson-python
#                                                    complete-axe: axe-core, whose rules the pages keep (the wheel has
#                                                    its script alone, no browser)
#                                                    complete-torch: PyTorch, Lightning, transformers
#                                                    complete-triton: the Triton that this PyTorch asks for: torch.compile
#                                                    needs it (0.3 GB to download, 1 GB unpacked)
#                                                    begun-STAGE: its installation is under way, or was cut short: no test
#                                                    uses the folder, and the next call makes all of it again
#   ${XDG_CACHE_HOME:-~/.cache}/neap/python-3.11-oldest/
#                                                    with --oldest, instead: complete-oldest: the oldest PyTorch that neap
#                                                    supports (tools/python_versions_oldest.txt)
#   ${XDG_CACHE_HOME:-~/.cache}/neap/python-3.11-gpu_day/
#                                                    with --gpu-day, instead: complete-gpu_day: the PyTorch and the packages
#                                                    that a GPU day expects (tools/python_versions_gpu_day.txt)
#   ${XDG_CACHE_HOME:-~/.cache}/neap/lock            one at a time makes them
#   ${XDG_CACHE_HOME:-~/.cache}/neap/use             each test that runs there holds a share: they are not changed meanwhile
#   ${XDG_CACHE_HOME:-~/.cache}/neap/downloads/      what came so far, until all is there: with a slow index several calls
#                                                    complete the installation
#
# PyTorch is the ordinary CUDA build without the nvidia-* packages that it depends on: neap's stand-ins (sim/runtime) take
# their place. So it is a download of 0.6 GB, not of 3 GB. For this, packages are installed without their dependencies, which
# tools/python_versions.txt therefore lists in full; nothing newer than it says is installed.
#
# Prints what it did in one line. Without an index, disk space or time it says so and ends with 0: the tests that need it are
# then skipped. NEAP_TEST_TORCH=no leaves PyTorch out. NEAP_TEST_VENV_SECONDS bounds the whole (default 1200: enough for 0.5 MB
# a second).
set -u
. "$(dirname "$0")/pip_cause.sh"
case ${1-} in
--oldest) other=oldest ;;
--gpu-day) other=gpu_day ;;
*) other= ;; # the environment of most tests
esac
versions=$(cd "$(dirname "$0")" && pwd)/python_versions${other:+_$other}.txt
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 0
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
parent=${XDG_CACHE_HOME:-$home/.cache}/neap
folder=$parent/python-$version
folder=$folder${other:+-$other}
bound=${NEAP_TEST_VENV_SECONDS:-1200}
began=$(date +%s)
tools="pytest mypy ruff meson-python meson ninja"
all=$(sed -n 's/^\([A-Za-z0-9._-]*\) *[<=].*/\1/p' "$versions")
[ -n "$other" ] || all=$(printf '%s\n' "$all" | grep -vx triton) # a stage of its own
tools_bytes=400000000
torch_bytes=3000000000
triton_bytes=1500000000

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
		why="pip failed: $(pip_cause "$folder/log") (see $folder/log)"
		;;
	esac
	# As long as it only downloads, what was there is whole.
	[ "$(installed)" != "$before" ] || rm -f "$folder/begun-$name"
	flock -u 8
	return "$status"
}

# remove: all of it, so that it is made again.
remove() {
	flock -n 8 || skip "$busy, which is not whole"
	rm -rf "$folder"
	flock -u 8
}

# make_folder COMPLETE BYTES: an environment without packages, unless the stage COMPLETE is there and its interpreter works
# (which may be gone). It needs BYTES of disk space.
make_folder() {
	local half seconds
	# A killed installation leaves an unknown state.
	for half in "$folder"/begun-*; do
		[ ! -e "$half" ] || remove
	done
	if [ -e "$folder/complete-$1" ] && "$folder/bin/python" -c '' 2>/dev/null; then
		return
	fi
	remove
	mkdir -p "$folder" && touch "$folder/begun-venv" 2>/dev/null || skip "cannot write in $folder"
	has_space "$2" || skip "less than $(($2 / 1000000)) MB free for packages in $folder"
	seconds=$(left)
	{ [ "$seconds" -gt 0 ] && timeout -k 5 "$seconds" python3 -m venv "$folder" >"$folder/log" 2>&1; } ||
		skip "python3 -m venv fails or takes too long (see $folder/log)"
	rm -f "$folder/begun-venv"
}

mkdir -p "$parent" 2>/dev/null || skip "cannot make $parent"
{ : >>"$parent/lock" && : >>"$parent/use"; } 2>/dev/null || skip "cannot write in $parent"
exec 8>>"$parent/use" 9>>"$parent/lock"
flock -w "$bound" 9 || skip "another test run is making $folder"
if [ -n "$other" ]; then
	make_folder "$other" "$torch_bytes"
	# shellcheck disable=SC2086
	[ -e "$folder/complete-$other" ] || stage "$other" --no-compile --no-deps $all || skip "$why"
	rm -rf "$parent/downloads"
	say "with $folder"
	exit 0
fi
make_folder tools "$tools_bytes"
# shellcheck disable=SC2086
{ [ -e "$folder/complete-tools" ] && [ -x "$folder/bin/ruff" ]; } || stage tools $tools || skip "$why"
[ -e "$folder/complete-axe" ] || stage axe --no-deps axe-playwright-python ||
	say "with $folder, without axe-core: $why; the test of pages by its rules is skipped"
if [ ! -e "$folder/complete-torch" ] && [ "${NEAP_TEST_TORCH:-yes}" != no ]; then
	has_space "$torch_bytes" || {
		say "with $folder; less than $((torch_bytes / 1000000)) MB free for PyTorch there: its tests are skipped"
		exit 0
	}
	# shellcheck disable=SC2086
	stage torch --no-compile --no-deps $all || {
		say "with $folder, without PyTorch: $why; its tests are skipped"
		exit 0
	}
fi
if [ -e "$folder/complete-torch" ] && [ ! -e "$folder/complete-triton" ] && [ "${NEAP_TEST_TORCH:-yes}" != no ]; then
	triton=$(sed -n 's/^Requires-Dist: *\(triton[^;]*[^; ]\).*/\1/p' "$folder"/lib/python*/site-packages/torch-*.dist-info/METADATA)
	why="less than $((triton_bytes / 1000000)) MB free"
	{ has_space "$triton_bytes" && stage triton --no-compile --no-deps "${triton:-triton}"; } || {
		# Half a Triton must not cost PyTorch.
		[ ! -e "$folder/begun-triton" ] || ! "$folder/bin/python" -m pip uninstall --quiet --yes triton >>"$folder/log" 2>&1 ||
			rm -f "$folder/begun-triton"
		say "with $folder, without Triton: $why; the tests of torch.compile are skipped"
		exit 0
	}
fi
rm -rf "$parent/downloads"
say "with $folder"
