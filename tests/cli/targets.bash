# What the tests of the command on running processes share: each test has its own world, its own folders, and targets that
# end when it does. A file sets `world` to a name of its own before it loads this.

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir" HOME="$dir"
	export NEAP_SIM="mem=256MiB,context=8MiB,reserved=2MiB,world=$world-$$-$BATS_TEST_NUMBER"
	unset NEAP_ATTACH NEAP_RUN_DIR NEAP_RUN_ID NEAP_FRACTION NO_COLOR PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
	unset LD_LIBRARY_PATH # where a test runner puts the simulator: "no driver" must find none
	targets=()
}

teardown() {
	for pid in "${targets[@]}"; do
		kill -9 "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	rm -rf "$dir" "/dev/shm/"*"$world-$$-$BATS_TEST_NUMBER"
}

# start ARGS...: a target that is ready; its PID in $target. It ends when the test does.
start() {
	local n=${#targets[@]} line
	mkfifo "$dir/in$n" "$dir/out$n"
	"$TARGET" "$@" <"$dir/in$n" >"$dir/out$n" 3>&- &
	target=$!
	targets+=("$target")
	eval "exec $((20 + n))>\"$dir/in$n\""
	read -r line <"$dir/out$n"
	[ "$line" = ready ]
}

# json EXPRESSION: evaluates a Python expression over the JSON `j` in $output
json() { python3 -c 'import json, sys; j = json.loads(sys.argv[1]); print(eval(sys.argv[2]))' "$output" "$1"; }
