#!/usr/bin/env bats
# Runs that would have run out of memory, and do not: neap meets a leak by a restart in place or by force, and a
# shortage of memory by a stop with a checkpoint. On a device on which the leak alone ends the run.

sim=mem=64MiB
load ../support/command.bash

host='host memory: .*/host memory: SIZE'
seen='max_allocated=[\d.]+GB(.*)max_reserved=.*/max_allocated=SIZE\1max_reserved=SIZE' # by the supervisor's last sample

prepare() {
	export NEAP_LOG_LEVEL=info
	charlm='charlm --steps 150 --batch 8 --layers 1 --width 32 --context 16 --log-every 0'
	leaking="$charlm --leak-per-step 512KiB"
}

fact() { python3 -c "import json; d=json.load(open('$1/result.json')); print(($2))"; }

@test "a leaking run that ends out of memory" {
	run neap run --quiet --no-history --folder run -- $leaking
	[ "$status" -eq 1 ]
	[ "$(fact run "d['outcome'], d['restarts']")" = "('oom', 0)" ]
	# Memory ended where it was predicted to end: after the last step that was done.
	run fact run "d['memory_ends_low_step'] <= d['steps'] <= d['memory_ends_high_step'] < 150"
	[ "$output" = True ]
}

@test "... finishes because it restarts itself in time, with the weights and losses of an undisturbed run" {
	$charlm --checkpoint plain --losses plain.losses >/dev/null 2>&1
	show "neap run --folder run -- $leaking --on-leak restart --checkpoint saved --losses losses | grep -v characters"
	expect restart "$host" "$seen"
	cmp plain saved
	cmp plain.losses losses
	# One recording has both parts.
	[ "$(fact run "d['outcome'], d['restarts'], d['steps'], d['ooms'], d['leak_verdict']")" = \
		"('ok', 1, 150, 0, 'leak')" ]
	[ "$(ls run/record.* | wc -l)" -eq 1 ]
	# ... and it can be started again from it: what the first part held is free.
	[ "$(neap replay --json run/record.* | python3 -c \
		"import json,sys; print(50 << 20 < json.load(sys.stdin)['requested_peak'] < 60 << 20)")" = True ]
	# Nothing of it is left on the device.
	[ "$(neap info --json | python3 -c "import json,sys; print(json.load(sys.stdin)['processes'])")" = "[]" ]
}

@test "... does not run out again of the memory that it lacked before it restarted" {
	export NEAP_SIM="mem=10MiB,world=$world"
	show 'neap run --no-history --folder run -- charlm --steps 80 --batch 32 --layers 1 --width 16 --context 64 --log-every 0 --leak-per-step 48KiB --on-leak restart --checkpoint saved 2>&1 | grep "going on with"'
	expect kept_rung
	[ "$(fact run "d['outcome'], d['restarts'], d['ooms'], d['rungs'], d['rung'], d['micro_batch']")" = \
		"('ok', 1, 1, 1, 'micro_batch 32 -> 16, accumulate 1 -> 2', 16)" ]
}

@test "... finishes because it clears by force as often as needed" {
	show "neap run --no-history --folder run -- $leaking --steps 300 --on-leak clear 2>&1 | grep WARNING"
	expect cleared
	[ "$(fact run "d['outcome'], d['steps'], d['ooms']")" = "('ok', 300, 0)" ]
}

@test "... stops early with a checkpoint at a threshold, and can be continued from it" {
	$charlm --checkpoint plain >/dev/null 2>&1
	show "neap run --folder run -- $leaking --device-warn 20MiB --device-stop 8MiB --checkpoint saved | grep -v characters"
	show "neap history --json | jq -r .runs[].outcome"
	expect stopped "$host" "$seen"
	[ "$(fact run "d['outcome'], d['ooms']")" = "('stopped early', 0)" ]
	$charlm --checkpoint saved --resume >/dev/null 2>&1
	cmp plain saved
}

@test "host memory, and a threshold that takes rungs" {
	show "$charlm --steps 30 --host-stop 1TiB 2>&1 | grep -v characters"
	show "$charlm --steps 30 --host-degrade 1TiB 2>&1 | grep WARNING"
	expect host "$host" '[\d.]+ [GT]iB left/SIZE left'
}

@test "cleanup points, each with its cost and yield; a point that frees nothing is reported" {
	for points in start end saved epoch step; do
		run $charlm --cleanup $points --checkpoint saved --checkpoint-every 50 --steps 150
		[ "$status" -eq 0 ]
		case $points in
		start | end) count=1 ;;
		saved) count=3 ;;
		epoch) count=0 ;; # 150 steps of 8 times 16 characters do not go through the text
		step) count=150 ;;
		esac
		[ "$(grep -c "Cleanup gave back .* in " <<<"$output")" -eq $count ]
		rm saved
	done
	run $charlm --cleanup none --batch 256 --cleanup-every-epochs 1 --steps 20
	[ "$(grep -c "Cleanup gave back .* in " <<<"$output")" -eq 2 ]
	run $charlm --cleanup none --micro-batch 4 --cleanup-every-ticks 30
	[ "$(grep -c "Cleanup gave back .* in " <<<"$output")" -eq 10 ]
	run $charlm --cleanup none --cleanup-every-steps 30
	[ "$(grep -c "Cleanup gave back .* in " <<<"$output")" -eq 5 ]
	run $charlm --cleanup failure,end --leak-per-step 1MiB
	[ "$status" -eq 1 ]
	grep -q "Cleanup gave back .* in " <<<"$output"
	show "$charlm --cleanup wherever"
	show "$charlm --on-leak restart"
	expect usage
}
