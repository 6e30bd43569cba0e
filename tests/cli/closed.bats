#!/usr/bin/env bats
# Closed standard descriptors: no file of neap's takes their place, so that no output goes into one.

sim=mem=1GiB
load ../support/command.bash

prepare() {
	combinations=('' '0' '1' '2' '01' '02' '12' '012')
	cat >s.yaml <<-'EOF'
		name: s
		experiments:
		- {name: a, needs: none, command: [sh, -c, 'echo x >>ran-a; echo out; echo err >&2; closed ""']}
		- {name: b, needs: none, command: [sh, -c, 'echo x >>ran-b; echo out; echo err >&2; closed ""']}
	EOF
}

# Runs a command with the descriptors in $1 closed; a command that hangs fails after a minute.
without() {
	local numbers=$1
	shift
	(
		[[ $numbers != *0* ]] || exec <&-
		[[ $numbers != *1* ]] || exec >&-
		[[ $numbers != *2* ]] || exec 2>&-
		exec timeout 60 "$@" 3>&-
	)
}

# The world has not changed: the output did not go there.
world_is_whole() { neap sim inspect | grep -q "1.00 GiB"; }

@test "a run with any standard descriptors closed ends as with all open" {
	for numbers in "${combinations[@]}"; do
		without "$numbers" neap run --folder "run-$numbers" -- closed '' || { echo "closed: '$numbers'"; return 1; }
		[ "$(jq -r .outcome "run-$numbers/result.json")" = ok ]
		world_is_whole
	done
}

@test "a series with any standard descriptors closed runs each experiment once, and is resumed" {
	for numbers in "${combinations[@]}"; do
		rm -f ran-*
		without "$numbers" neap series s.yaml --folder "s-$numbers" || { echo "closed: '$numbers'"; return 1; }
		without "$numbers" neap series s.yaml --folder "s-$numbers" --resume ||
			{ echo "resumed, closed: '$numbers'"; cat "s-$numbers/journal"; return 1; }
		cat ran-a ran-b
		[ "$(cat ran-a ran-b)" = $'x\nx' ]
		[ "$(cut -c10- "s-$numbers/journal" | jq -r .type | grep -c '^end$')" -eq 2 ]
	done
}

@test "an estimate, and commands that list, with any standard descriptors closed" {
	for numbers in "${combinations[@]}"; do
		code=0
		without "$numbers" neap estimate --gpu t4-16gb -- closed '' >"out-$numbers" 2>"err-$numbers" || code=$?
		echo "closed: '$numbers': $code"
		[ $code -eq 0 ]
		[[ $numbers == *1* ]] || grep -q "^Without PyTorch: what the program took from the simulated driver" "out-$numbers"
		without "$numbers" neap info
		world_is_whole
	done
}

@test "a program that closed its own descriptors: libneap and the simulator keep no file there" {
	export NEAP_SIM_LOG="$dir/calls" NEAP_SIM_FILES="$dir"
	for numbers in "${combinations[@]}"; do
		NEAP_ATTACH=1 NEAP_RUN_DIR="$dir" timeout 60 closed "$numbers" --connected >out 2>err || { cat err; return 1; }
		! grep -q output "$dir"/calls "$dir"/record.*
	done
	world_is_whole
}
