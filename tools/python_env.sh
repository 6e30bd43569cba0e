#!/usr/bin/env bash
# tools/python_env.sh: makes the virtual environment that the Python tests use, outside the tree, once:
#
#   ${XDG_CACHE_HOME:-~/.cache}/neap/python-3.11/    complete-tools: type checker, pytest, meson-python
#                                                    complete-torch: PyTorch (several GB), Lightning, transformers
#
# Prints what it did in one line. Without an index, disk space or time it says so and ends with 0: the tests that need it
# are then skipped. NEAP_TEST_TORCH=no leaves PyTorch out. NEAP_TEST_VENV_SECONDS bounds the whole (default 300).
set -u
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/neap/python-$version
bound=${NEAP_TEST_VENV_SECONDS:-300}
began=$(date +%s)
tools="pytest mypy meson-python meson ninja"
torch="torch numpy lightning transformers accelerate"
torch_bytes=12000000000

say() { printf 'Python tests: %s\n' "$*"; }
left() { echo $((bound - $(date +%s) + began)); }
install() {
	local seconds
	seconds=$(left)
	[ "$seconds" -gt 5 ] || return 1
	PIP_DEFAULT_TIMEOUT=15 timeout "$seconds" "$folder/bin/python" -m pip install --quiet --no-input --no-cache-dir \
		--disable-pip-version-check --retries 1 "$@" >"$folder/log" 2>&1
}

mkdir -p "$folder" 2>/dev/null || { say "cannot make $folder; those that need packages are skipped"; exit 0; }
exec 9>"$folder/lock"
flock -w "$bound" 9 || { say "another test run is making $folder; skipped"; exit 0; }
if [ ! -e "$folder/complete-tools" ]; then
	python3 -m venv "$folder" >"$folder/log" 2>&1 || { say "python3 -m venv fails; those that need packages are skipped"; exit 0; }
	# shellcheck disable=SC2086
	install $tools || { say "no package index, or too slow; those that need packages are skipped"; exit 0; }
	touch "$folder/complete-tools"
fi
if [ ! -e "$folder/complete-torch" ] && [ "${NEAP_TEST_TORCH:-yes}" != no ]; then
	free=$(df --output=avail -B1 "$folder" | tail -1)
	if [ "$free" -lt "$torch_bytes" ]; then
		say "less than 12 GB free for PyTorch in $folder; its tests are skipped"
		exit 0
	fi
	# shellcheck disable=SC2086
	install --no-compile $torch || { say "PyTorch could not be installed within ${bound} s (see $folder/log); its tests are skipped"; exit 0; }
	touch "$folder/complete-torch"
fi
say "with $folder"
