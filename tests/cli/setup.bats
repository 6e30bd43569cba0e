#!/usr/bin/env bats
# The output of ./run and ./test during setup: tools/setup.sh and tools/python_env.sh, with stand-ins for ninja and
# pip.

bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	mkdir "$dir/bin"
	export dir HOME="$dir" XDG_CACHE_HOME="$dir/cache" PATH="$dir/bin:$PATH" SOURCE=${SOURCE:-$BATS_TEST_DIRNAME/../..}
	unset NEAP_TEST_TORCH NEAP_TEST_VENV_SECONDS
}

teardown() { rm -rf "$dir"; }

# program NAME: makes a stand-in of that name from stdin
program() {
	{
		echo '#!/bin/bash'
		cat
	} >"$dir/bin/$1"
	chmod +x "$dir/bin/$1"
}

build() { bash -euo pipefail -c '. "$SOURCE/tools/setup.sh"; build some-folder && say done'; }

@test "a build shows its progress in ten lines at most, and no compiler output" {
	program ninja <<-'END'
		[ "$*" = "-C some-folder" ] || exit 9
		for n in $(seq 200); do echo "[$n/200] Compiling C object $n.o"; done
	END
	run --separate-stderr build
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	[ "$stderr" = "Building (some-folder/), which takes minutes the first time
  10 % built (20 of 200 steps)
  20 % built (40 of 200 steps)
  30 % built (60 of 200 steps)
  40 % built (80 of 200 steps)
  50 % built (100 of 200 steps)
  60 % built (120 of 200 steps)
  70 % built (140 of 200 steps)
  80 % built (160 of 200 steps)
  90 % built (180 of 200 steps)
 100 % built (200 of 200 steps)
done" ]
	# Nothing to do, and a few steps.
	program ninja <<-'END'
		echo "ninja: Entering directory 'some-folder'"
		echo "ninja: no work to do."
	END
	run --separate-stderr build
	[ "$stderr" = "Building (some-folder/), which takes minutes the first time
done" ]
}

@test "on a terminal one line is written over" {
	python3 -c 'import os; os.openpty()' 2>/dev/null || skip "needs a pseudo-terminal, which this machine does not give"
	program ninja <<-'END'
		for n in 1 2 3; do echo "[$n/3] Compiling C object $n.o"; done
	END
	TERM=xterm python3 "$BATS_TEST_DIRNAME/pty.py" "$dir/screen" 80 \
		bash -euo pipefail -c '. "$SOURCE/tools/setup.sh"; build some-folder && say done'
	[ "$(tr -d '\n' <"$dir/screen" | sed 's/\x1b\[K//g' | tr '\r' '|')" = \
		"Building (some-folder/), which takes minutes the first time||  33 % built (1 of 3 steps)|  66 % built (2 of 3 steps)| 100 % built (3 of 3 steps)|done|" ]
}

@test "a build that fails shows the compiler's words, and fails" {
	program ninja <<-'END'
		echo "[1/2] Compiling C object one.o"
		echo "FAILED: one.o"
		echo "gcc -c one.c"
		echo "one.c:3:1: error: unknown type name 'voit'"
		echo "ninja: build stopped: subcommand failed."
		exit 1
	END
	run --separate-stderr build
	[ "$status" -eq 1 ]
	[ "$stderr" = "Building (some-folder/), which takes minutes the first time
  50 % built (1 of 2 steps)
FAILED: one.o
gcc -c one.c
one.c:3:1: error: unknown type name 'voit'
ninja: build stopped: subcommand failed." ]
}

@test "a long silent command: the time so far, on a terminal in one line; its status and output are unchanged" {
	long() { # ends once two lines are shown
		until [ "$(tr '\r' '\n' <"$dir/said" | grep -c 'Building it')" -ge 2 ]; do sleep 0.02; done
		echo output
		return 3
	}
	export -f long
	: >"$dir/said"
	status=0
	output=$(bash -euo pipefail -c '. "$SOURCE/tools/setup.sh"; report_every=0.1; report "Building it" long' 2>"$dir/said") ||
		status=$?
	[ "$status" -eq 3 ]
	[ "$output" = output ]
	[ "$(sed -E 's/[0-9]+ s$/N s/' "$dir/said" | sort -u)" = "Building it: N s" ]
	python3 -c 'import os; os.openpty()' 2>/dev/null || skip "needs a pseudo-terminal, which this machine does not give"
	: >"$dir/said"
	status=0
	TERM=xterm python3 "$BATS_TEST_DIRNAME/pty.py" "$dir/said" 80 \
		bash -euo pipefail -c '. "$SOURCE/tools/setup.sh"; report "Building it" long' >"$dir/out" || status=$?
	[ "$status" -eq 3 ]
	[ "$(cat "$dir/out")" = output ]
	[ "$(sed -E 's/\x1b\[K//g; s/[0-9]+ s/N s/g; s/(\rBuilding it: N s)+/SHOWN/' "$dir/said")" = $'SHOWN\r' ]
}

# pip_says TEXT...: a python3 whose environments have a pip that prints TEXT and fails; shows the first line of
# tools/python_env.sh
pip_says() {
	printf '%s\n' "$@" >"$dir/said"
	real=$(PATH=${PATH#*:} command -v python3)
	program python3 <<-END
		[ "\$1 \$2" = "-m venv" ] || exec "$real" "\$@"
		mkdir -p "\$3/bin" "\$3/lib/python3/site-packages"
		printf '#!/bin/sh\n[ "\$1" != -c ] || exit 0\ncat "$dir/said"\nexit 1\n' >"\$3/bin/python"
		chmod +x "\$3/bin/python"
	END
	"$SOURCE/tools/python_env.sh" | sed "s|$dir|DIR|g; s|python-[0-9.]*|python-V|g"
}

@test "if pip fails its first cause is shown, not the last consequence" {
	[ "$(df --output=avail -B1 "$dir" | tail -1)" -gt 400000000 ] || skip "needs 400 MB free in $dir"
	local none=("ERROR: Could not find a version that satisfies the requirement pytest (from versions: none)"
		"ERROR: No matching distribution found for pytest")
	local retry="WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by"
	local object="<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection"
	local before="Python tests: pip failed: " after=" (see DIR/cache/neap/python-V/log); those that need packages are skipped"
	expect() { # expect CAUSE TEXT...
		local cause=$1
		shift
		run pip_says "$@"
		echo "$output"
		[ "$output" = "$before$cause$after" ]
	}
	expect "the certificate of the package index is not trusted (certificate verify failed: self-signed certificate); PIP_CERT=FILE names the certificates to trust" \
		"$retry 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)'))': /simple/pytest/" "${none[@]}"
	expect "the proxy gives no connection to the package index ([Errno 111] Connection refused); see https_proxy" \
		"$retry 'ProxyError('Cannot connect to proxy.', NewConnectionError('$object: [Errno 111] Connection refused'))': /simple/pytest/" "${none[@]}"
	expect "the proxy gives no connection to the package index (Tunnel connection failed: 403 Forbidden); see https_proxy" \
		"$retry 'ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 Forbidden'))': /simple/pytest/" "${none[@]}"
	expect "no connection to the package index ([Errno -2] Name or service not known); PIP_INDEX_URL names another, https_proxy a proxy" \
		"$retry 'NewConnectionError('$object: [Errno -2] Name or service not known')': /simple/pytest/" "${none[@]}"
	expect "the package index has no pytest; PIP_INDEX_URL names another index" "${none[@]}"
	expect "the package index has not all the versions asked for (of pytest); PIP_INDEX_URL names another index" \
		"ERROR: Cannot install pytest because these package versions have conflicting dependencies." \
		"ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/dependency-resolution/#dealing-with-dependency-conflicts"
	expect "the disk is full (No space left on device)" \
		"ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
	expect "Something that nobody foresaw" "WARNING: one" "ERROR: Something that nobody foresaw" "ERROR: and so"
}

@test "Triton is the one that PyTorch asks for; without it the environment keeps PyTorch" {
	[ "$(df --output=avail -B1 "$dir" | tail -1)" -gt 1500000000 ] || skip "needs 1.5 GB free in $dir"
	local folder
	folder="$dir/cache/neap/python-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
	mkdir -p "$folder/bin" "$folder/lib/python3/site-packages/torch-2.15.0.dist-info"
	echo 'Requires-Dist: triton~=3.9.0; platform_system == "Linux"' >"$folder/lib/python3/site-packages/torch-2.15.0.dist-info/METADATA"
	touch "$folder/complete-tools" "$folder/complete-axe" "$folder/complete-torch"
	printf '#!/bin/sh\n[ "$1" != -c ] || exit 0\necho "$@" >"%s/asked"\necho "ERROR: no"\nexit $(cat "%s/status")\n' "$dir" "$dir" >"$folder/bin/python"
	cp "$folder/bin/python" "$folder/bin/ruff"
	chmod +x "$folder/bin/python" "$folder/bin/ruff"
	echo 1 >"$dir/status"
	run "$SOURCE/tools/python_env.sh"
	[ "$output" = "Python tests: with $folder, without Triton: pip failed: no (see $folder/log); the tests of torch.compile are skipped" ]
	[ -e "$folder/complete-torch" ] && [ ! -e "$folder/complete-triton" ] && [ ! -e "$folder/begun-triton" ]
	echo 0 >"$dir/status"
	run "$SOURCE/tools/python_env.sh"
	[ "$output" = "Python tests: with $folder" ]
	[ -e "$folder/complete-triton" ]
	[[ "$(cat "$dir/asked")" = *" triton~=3.9.0" ]]
}
