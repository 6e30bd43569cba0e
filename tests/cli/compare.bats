#!/usr/bin/env bats
# compare_to in a series: what each rung saved and cost, measured, beside what was predicted from the other run alone;
# and the OOM card of a run in which rungs are in force.

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir"
	mkdir -m 700 "$dir/runtime"
	cd "$dir"
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"compare-$$-$BATS_TEST_NUMBER"*
}

world() { export NEAP_SIM="mem=$1,world=compare-$$-$BATS_TEST_NUMBER-$1"; }

# The figures of each comparison: measured before and after, predicted and its uncertainty, in bytes.
figures() {
	grep '^  peak allocated' | sed 's/(.*), predicted/ /; s/->//; s/±//; s/;.*//' | awk '
		function bytes(number, unit) { return number * (unit == "MiB" ? 1048576 : unit == "KiB" ? 1024 : 1) }
		{ print bytes($3, $4), bytes($5, $6), bytes($7, $8), bytes($9, $10) }'
}

@test "what each rung saves lies within what was predicted" {
	world 64MiB
	cat > s.yaml <<-EOF
		name: s
		defaults:
		  command: $CHARLM --layers 4 --width 32 --heads 8 --batch 16 --context 64 --steps 4 --efficient-attention {e} --mixed-precision {m} --checkpointing {c}
		  params: {e: off, m: off, c: off}
		experiments:
		- {name: plain}
		- {name: efficient, params: {e: on}, compare_to: plain}
		- {name: mixed, params: {m: on}, compare_to: plain}
		- {name: checkpointed, params: {c: on}, compare_to: plain}
		- {name: all, params: {e: on, m: on, c: on}, compare_to: plain}
		- {name: back, compare_to: all}
		- {name: other, command: "true", compare_to: plain}
	EOF
	"$NEAP" series s.yaml --folder s --quiet > out 2> err
	cat out
	[[ "$(cat out)" == *$'\nefficient against plain: memory-efficient attention\n  peak allocated '* ]]
	[[ "$(cat out)" == *$'\nall against plain: memory-efficient attention, mixed precision, gradient checkpointing\n  peak allocated '* ]]
	[[ "$(cat out)" == *$'\nback against all: without memory-efficient attention, without mixed precision, without gradient checkpointing\n'* ]]
	[ "$(grep -c ' predicted ' out)" -eq 4 ]
	[ "$(grep -c ', not predicted; a step ' out)" -eq 1 ]
	[[ "$(cat out)" == *$'\nother against plain\n  no comparison: it has no recorded peak\n'* ]]
	grep ', predicted' out | figures > figures
	[ "$(wc -l < figures)" -eq 4 ]
	# Rounded to three digits in the text, hence a hundredth more.
	awk '{ d = $2 - $3; if (d < 0) d = -d; if (d > $4 + 0.01 * $3 || $2 >= $1) { print "outside:", $0; bad = 1 } }
		END { exit bad }' figures
	grep -q 'all against plain: memory-efficient attention, mixed precision' s/report.html
	[[ "$(jq -r .savings s/runs/plain-1/result.json)" =~ ^memory-efficient\ attention\ .*,\ mixed\ precision\ .*,\ gradient\ checkpointing\ .*\ of\ the\ peak\ of\ 17 ]]
	[ "$(jq -r .savings s/runs/all-1/result.json)" = "" ]
	# What the user set is told from what a run had to take.
	[ "$(jq -r .rung s/runs/mixed-1/result.json)" = "set: mixed precision" ]
	[ "$(jq -r .rung s/runs/plain-1/result.json)" = "" ]
	# Made again from the folders, it is the same.
	"$NEAP" series s.yaml --folder s --resume --quiet > again 2> err
	[ "$(grep -A1 against again)" = "$(grep -A1 against out)" ]
}

@test "the OOM card names the rungs in force and strikes them out" {
	world 10MiB
	run "$NEAP" run --folder run -- "$CHARLM" --layers 6 --width 32 --heads 4 --context 384 --batch 1 --steps 1 --checkpointing on
	[ "$status" -eq 0 ]
	[[ "$output" == *"In force: gradient checkpointing"* ]]
	[[ "$output" == *"charlm: going on with memory-efficient attention"* ]]
	# The one that is kept knows what became of it; the one on the terminal may have been there before.
	[[ "$(jq -r .oom_card run/result.json)" == *"Taken: the process continued with memory-efficient attention"* ]]
	[[ "$output" == *"-  gradient checkpointing: activations are computed again, not kept (on already"* ]]
	[[ "$output" == *"1 rung: memory-efficient attention, set: gradient checkpointing"* ]]
}
