# tests/support/command.bash: shared by the tests of the command. Each test has its own folder, world of simulated
# devices and targets. The command's output is compared, whole and exactly, with a file.
#
#   sim=mem=4GiB                     the simulated devices, set before `load ../support/command.bash`
#
#   @test "..." {
#       show 'neap run --folder run -- sh -c "exit 3"'
#       show 'result "{outcome, exit_status}"'
#       expect exit_status           compares with expected/FILE/exit_status.txt, beside the .bats file
#   }
#
# The expected file is what a terminal would show: "$ " and the line, its output, its stderr with "2> " before each
# line, and "[exit status 3]" when it is not 0. Names replace everything that differs from one run to the next:
# expect.py says what. A test says what differs in it alone, as Python's re.sub takes it: expect NAME
# 'PATTERN/REPLACEMENT'...
#
# tests/update_expected.sh writes the files again. A file that no test expects is a failure, and so is a test that
# shows something but expects nothing.

bats_require_minimum_version 1.5.0

expected="$BATS_TEST_DIRNAME/expected/$(basename "$BATS_TEST_FILENAME" .bats)"

# The tests' folders are in memory, if programs may run there and a gigabyte is free. On a busy disk each run of neap
# waits for its eleven fsyncs.
test_folders() {
	local memory=/dev/shm
	[ -w "$memory" ] && [ "$(df --output=avail -BM "$memory" 2>/dev/null | tr -dc 0-9)" -ge 1024 ] &&
		[[ "$(findmnt -no OPTIONS -T "$memory")" != *noexec* ]] || memory=${TMPDIR:-/tmp}
	echo "$memory"
}

setup_file() {
	local file name
	export NEAP_TEST_FOLDERS=$(test_folders)
	for file in "$expected"/*.txt; do
		name=$(basename "$file" .txt)
		[ "$name" != '*' ] || continue
		grep -qE "expect $name( |$)" "$BATS_TEST_FILENAME" && continue
		if [ -n "$NEAP_UPDATE_EXPECTED" ]; then
			rm "$file"
		else
			echo "$file: no test expects it; tests/update_expected.sh removes it" >&2
			return 1
		fi
	done
}

setup() {
	local program
	dir="$(mktemp -d -p "$NEAP_TEST_FOLDERS" neap-test-XXXXXX)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir" TZ=UTC LC_ALL=C.UTF-8
	world="bats-$$-$BATS_TEST_NUMBER"
	[ -z "$sim" ] || export NEAP_SIM="$sim,world=$world"
	unset NEAP_ATTACH NEAP_RUN_DIR NEAP_RUN_ID NEAP_FRACTION NO_COLOR PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
	unset LD_LIBRARY_PATH # a test runner puts the simulator there: "no driver" must find none
	mkdir -m 700 "$dir/runtime" "$dir/bin"
	for program in "$NEAP" "$HOLD" "$TARGET" "$CHARLM"; do
		[ -z "$program" ] || ln -s "$program" "$dir/bin/"
	done
	PATH="$dir/bin:$PATH"
	targets=()
	cd "$dir"
	[ "$(type -t prepare)" != function ] || prepare # shared by the tests of one file
}

teardown() {
	for pid in "${targets[@]}"; do
		kill -9 "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	cd /
	[ "$(id -u)" -eq 0 ] || chmod -R u+w "$dir"
	rm -rf "$dir" /dev/shm/*"$world"*
	if [ -e "$BATS_TEST_TMPDIR/shown" ]; then
		echo "this test ended before 'expect', or has none; it had shown:"
		cat "$BATS_TEST_TMPDIR/shown"
		return 1
	fi
}

# show LINE: runs a line of shell and keeps its output for `expect`; also in $output and $stderr, its status in
# $status.
show() {
	status=0
	(set -o pipefail && eval "$1") >"$BATS_TEST_TMPDIR/stdout" 2>"$BATS_TEST_TMPDIR/stderr" 3>&- || status=$?
	output=$(cat "$BATS_TEST_TMPDIR/stdout")
	stderr=$(cat "$BATS_TEST_TMPDIR/stderr")
	{
		printf '$ %s\n' "$1"
		[ -z "$output" ] || printf '%s\n' "$output"
		[ -z "$stderr" ] || sed 's/^/2> /' <<<"$stderr"
		[ "$status" -eq 0 ] || echo "[exit status $status]"
	} >>"$BATS_TEST_TMPDIR/shown"
}

# expect NAME [PATTERN/REPLACEMENT...]: compares everything that was shown since the last `expect`.
expect() {
	local name=$1
	shift
	mv "$BATS_TEST_TMPDIR/shown" "$BATS_TEST_TMPDIR/$name"
	python3 "$BATS_TEST_DIRNAME/../support/expect.py" "$BATS_TEST_TMPDIR/$name" "$expected/$name.txt" \
		"$dir" "$world" "${targets[*]}" "$@"
}

# result FILTER [FOLDER]: jq's answer about a run's result.
result() { jq -rc "$1" "${2:-run}/result.json"; }

# start ARGS...: a target (tests/cli/target.c) that is ready; its PID in $target. It ends when the test does.
start() {
	local n=${#targets[@]} line
	mkfifo "$dir/in$n" "$dir/out$n"
	target "$@" <"$dir/in$n" >"$dir/out$n" 3>&- &
	target=$!
	targets+=("$target")
	eval "exec $((20 + n))>\"$dir/in$n\""
	read -r line <"$dir/out$n"
	[ "$line" = ready ]
}

# until_ready PID CONDITION...: waits for a condition; fails if the process ends before that.
until_ready() {
	local pid=$1
	shift
	until eval "$*"; do
		kill -0 "$pid" || return 1
		sleep 0.02
	done
}

# need_terminal: skips the test if there are no pseudo-terminals.
need_terminal() {
	python3 -c 'import os; os.openpty()' 2>/dev/null || skip "needs a pseudo-terminal, which this machine does not give"
}
