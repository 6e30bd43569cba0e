#!/usr/bin/env bash
# packaging/test_wheel.sh: builds the wheel and installs it into a bare virtual environment, by the first step of packaging/action,
# and uses what it put there. Takes tools from PyPI. Prints what it tried; exits 1 at the first thing that fails, 77 where PyPI cannot
# be reached.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build | head -1)
work=$(mktemp -d "${TMPDIR:-/tmp}/neap-wheel-XXXXXX")
world=wheel-$$
trap 'rm -rf "$work"; rm -f /dev/shm/neap-sim-*-"$world"' EXIT

. packaging/common.bash
# there COMMAND...: in an environment without anything of this checkout
bare=(env -i PATH="$work/venv/bin:/usr/bin:/bin" HOME="$work" NEAP_DEVICE=sim NEAP_SIM="mem=1GiB,world=$world")
there() { (cd "$work" && "${bare[@]}" "$@"); }
# The first step of packaging/action, as a workflow runs it where neap is not installed.
first_step() {
	sed -n '/- name: Install neap$/,/- name: Show/{/run: |$/,/- name/{/run: |$/d;/- name/d;p}}' packaging/action/action.yml
}
installed_alone() {
	local found
	found=$("$work/venv/bin/pip" list --format=freeze | sed 's/=.*//' | sort | tr '\n' ' ')
	[ "$found" = "neap pip setuptools " ] || {
		echo "installed: $found"
		return 1
	}
}
# Whatever the command and the libraries need is in the wheel, or is the C library's.
needs_nothing() {
	local found
	found=$(find "$work/venv/lib" -path '*neap*' -type f -exec sh -c 'ldd "$1" 2>/dev/null' - {} \; |
		grep -v "$work" | grep -oE 'lib[^ ]*\.so[^ ]*' | sed 's#.*/##' | sort -u |
		grep -vE '^(libc|libm|libdl|libpthread|librt)\.so\.[0-9]+$|^libz\.so\.1$|^libgcc_s\.so\.1$|^ld-linux.*')
	[ -z "$found" ] || {
		echo "needed from the system: $found"
		return 1
	}
}

python3 -m venv "$work/probe" && "$work/probe/bin/pip" -q download --no-deps -d "$work" wheel >/dev/null 2>&1 || {
	echo "skipped: PyPI cannot be reached"
	exit 77
}
tried "a bare environment" python3 -m venv "$work/venv"
tried "the action's first step builds the wheel and installs it" env PATH="$work/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin" \
	RUNNER_TEMP="$work" GITHUB_ACTION_PATH="$PWD/packaging/action" bash -eo pipefail -c "$(first_step)"
tried "it is for every Python 3" sh -c 'ls "$1"/neap/neap-"$2"-py3-none-manylinux_2_*.whl' - "$work" "$version"
tried "pip installed nothing else" installed_alone
tried "it needs nothing of the system but the C library and zlib" needs_nothing
tried "neap --version" says "neap $version" neap --version
tried "neap info, on the simulator" says "Simulated GPU 1024 MiB" neap info
tried "neap run" says "exit status 0" neap run -- sleep 0.1
tried "neap history" says "sleep" neap history
tried "neap top --once" says "Simulated GPU 1024 MiB" neap top --once
# Ends by Ctrl-C, with 0; the page is asked for meanwhile.
serves() {
	local address
	(cd "$work" && exec "${bare[@]}" \
		python -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); os.execvp(sys.argv[1], sys.argv[1:])' \
		neap serve --listen 127.0.0.1:0) >"$work/serving" 2>&1 &
	for _ in $(seq 100); do
		address=$(grep -oE 'http://127.0.0.1:[0-9]+/' "$work/serving") && break
		sleep 0.1
	done
	python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1] + "metrics").read().decode())' "$address" >"$work/metrics"
	kill -INT $! && wait $!
	grep -q '^DCGM_FI_DEV_FB_USED\|^neap_' "$work/metrics"
}
tried "neap serve" serves
# PyTorch is not in this environment: that of the tests, where there is one, is lent to it.
torch=$(ls -d "${XDG_CACHE_HOME:-$HOME/.cache}"/neap/python-3.*[0-9]/lib/python3.*/site-packages 2>/dev/null | head -1)
if [ -n "$torch" ]; then
	cp examples/train_torch.py "$work"
	tried "neap estimate" says "h100-80gb" env PYTHONPATH="$torch" neap estimate --gpu h100-80gb -- python train_torch.py
fi
tried "neap sim env" says "neap/sim/runtime" neap sim env
tried "the Python package" says "$version" python -c 'import neap; print(neap.version())'
tried "a Python program under neap run" says "ran" sh -c "neap run -- python -c 'import neap' 2>&1 | grep 'not attached' || echo ran"
