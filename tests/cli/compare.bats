#!/usr/bin/env bats
# compare_to in a series: what each rung saved and cost, as measured, beside what was predicted from the other run
# alone; and the OOM card of a run with rungs in force.

sim=mem=64MiB
load ../support/command.bash

# The figures of each comparison in bytes: measured before and after, predicted, and its uncertainty.
figures() {
	grep '^  peak allocated' | sed 's/(.*), predicted/ /; s/->//; s/±//; s/;.*//' | awk '
		function bytes(number, unit) { return number * (unit == "MiB" ? 1048576 : unit == "KiB" ? 1024 : 1) }
		{ print bytes($3, $4), bytes($5, $6), bytes($7, $8), bytes($9, $10) }'
}

@test "what each rung saves lies within what was predicted" {
	cat > s.yaml <<-EOF
		name: s
		defaults:
		  command: charlm --layers 4 --width 32 --heads 8 --batch 16 --context 64 --steps 4 --efficient-attention {e} --mixed-precision {m} --checkpointing {c}
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
	neap series s.yaml --folder s --quiet >out 2>err
	show 'cat out'
	show 'result .savings s/runs/plain-1; result .savings s/runs/all-1'
	# "set:" marks what the user set; a run may have had to take it.
	show 'result .rung s/runs/mixed-1; result .rung s/runs/plain-1'
	show 'grep -o "<dt>[a-z]* against [^<]*" s/report.html'
	show 'neap compare s/runs/plain-1 s/runs/all-1 | grep "^[AB]: \|Times" | sed "s/record.[0-9]*/record.PID/"'
	show 'neap compare s/runs/plain-1 s/runs/all-1 --json | jq -c "[.gpu, .simulated]"'
	show 'neap analyze s/runs/plain-1 | grep "^  on"'
	show 'neap analyze s/runs/plain-1 --html - | grep -o "<p class=.quiet.>neap analyze[^<]*"'
	expect series 'a step [\d.]+ \w+ -> [\d.]+ \w+ \([^)]*\)/a step TIME -> TIME'
	# Standard input is of no run, even where a run's folder is the working directory.
	[ "$(cd s/runs/plain-1 && cat record.* | neap analyze --json - | jq -c '[.gpu, .simulated]')" = '[null,null]' ]
	grep ', predicted' out | figures > figures
	[ "$(wc -l < figures)" -eq 4 ]
	# Rounded to three digits in the text: so a hundredth more is allowed.
	awk '{ d = $2 - $3; if (d < 0) d = -d; if (d > $4 + 0.01 * $3 || $2 >= $1) { print "outside:", $0; bad = 1 } }
		END { exit bad }' figures
	# Made again from the folders, the comparison is the same.
	neap series s.yaml --folder s --resume --quiet > again 2> err
	[ "$(grep -A1 against again)" = "$(grep -A1 against out)" ]
}

@test "the OOM card names the rungs in force and strikes them out" {
	export NEAP_SIM="mem=10MiB,world=$world-small"
	show 'neap run --folder run -- charlm --layers 6 --width 32 --heads 4 --context 384 --batch 1 --steps 1 --checkpointing on 2>&1 >/dev/null | grep -v Taken:'
	# The card in the result names the rung that was taken; the terminal's card may have been printed before.
	show 'result .oom_card'
	expect card
}
