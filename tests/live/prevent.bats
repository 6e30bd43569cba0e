#!/usr/bin/env bats
# Runs that would have ended for want of memory, and do not: a leak met with a restart in place or by force; memory that
# runs short, and a stop with a checkpoint before it is gone. On a device on which the leak alone ends the run.

setup() {
	export NEAP_LOG_LEVEL=info
	export NEAP_DEVICE=sim NEAP_SIM="mem=64MiB,world=prevent-$$-$BATS_TEST_NUMBER"
	export XDG_RUNTIME_DIR=$BATS_TEST_TMPDIR/runtime XDG_STATE_HOME=$BATS_TEST_TMPDIR/home
	mkdir -p -m 700 "$XDG_RUNTIME_DIR"
	mkdir -p "$XDG_STATE_HOME"
	cd "$BATS_TEST_TMPDIR"
	charlm=("$CHARLM" --steps 150 --batch 8 --layers 1 --width 32 --context 16 --log-every 0)
	leaking=("${charlm[@]}" --leak-per-step 512KiB)
}

result() { python3 -c "import json; d=json.load(open('$1/result.json')); print(($2))"; }

@test "a leaking run that ends out of memory" {
	run "$NEAP" run --quiet --no-history --folder run -- "${leaking[@]}"
	[ "$status" -eq 1 ]
	[ "$(result run "d['outcome'], d['restarts']")" = "('oom', 0)" ]
	# Where memory was said to end, it ended: after the last step that was done.
	run result run "d['memory_ends_low_step'] <= d['steps'] <= d['memory_ends_high_step'] < 150"
	[ "$output" = True ]
}

@test "... finishes because it restarts itself in time, with the weights and losses of an undisturbed run" {
	"${charlm[@]}" --checkpoint plain --losses plain.losses >/dev/null 2>&1
	run "$NEAP" run --folder run -- "${leaking[@]}" --on-leak restart --checkpoint state --losses losses
	[ "$status" -eq 0 ]
	[[ $output == *"memory leaks and will end at step "*": asking the loop to save a checkpoint and restart"* ]]
	[[ $output == *"resumed after step "* ]]
	[[ $output == *"  restarts  1 in place, before a leak had used up the memory"* ]]
	cmp plain state
	cmp plain.losses losses
	# Both parts are in the one recording.
	[ "$(result run "d['outcome'], d['restarts'], d['steps'], d['ooms'], d['leak_verdict']")" = \
		"('ok', 1, 150, 0, 'leak')" ]
	[ "$(ls run/record.* | wc -l)" -eq 1 ]
	# ... as which it can be done again: what the first part held is not held for ever.
	[ "$("$NEAP" replay --json run/record.* | python3 -c \
		"import json,sys; print(50 << 20 < json.load(sys.stdin)['requested_peak'] < 60 << 20)")" = True ]
	# Nothing of it is left on the device.
	[ "$("$NEAP" info --json | python3 -c "import json,sys; print(json.load(sys.stdin)['processes'])")" = "[]" ]
}

@test "... does not run out again of what it had run out of before it restarted" {
	export NEAP_SIM="mem=10MiB,world=prevent-$$-$BATS_TEST_NUMBER"
	run "$NEAP" run --no-history --folder run -- "$CHARLM" --steps 80 --batch 32 --layers 1 --width 16 --context 64 \
		--log-every 0 --leak-per-step 48KiB --on-leak restart --checkpoint state
	[ "$status" -eq 0 ]
	[[ $output == *"going on with what was in force before the restart: micro-batch 16 x accumulation 2"* ]]
	[ "$(result run "d['outcome'], d['restarts'], d['ooms'], d['rungs'], d['rung'], d['micro_batch']")" = \
		"('ok', 1, 1, 1, 'micro_batch 32 -> 16, accumulate 1 -> 2', 16)" ]
}

@test "... finishes because it clears by force, as often as needed" {
	run "$NEAP" run --no-history --folder run -- "${leaking[@]}" --steps 300 --on-leak clear
	[ "$status" -eq 0 ]
	[ "$(grep -c ": clearing by force" <<<"$output")" -ge 2 ]
	[[ $output == *"the program says that it released "*" MiB less are allocated: room for "*" more steps"* ]]
	[ "$(result run "d['outcome'], d['steps'], d['ooms']")" = "('ok', 300, 0)" ]
}

@test "... stops early with a checkpoint at a threshold, and can be gone on with" {
	"${charlm[@]}" --checkpoint plain >/dev/null 2>&1
	run "$NEAP" run --folder run -- "${leaking[@]}" --device-warn 20MiB --device-stop 8MiB --checkpoint state
	[ "$status" -eq 75 ]
	[[ $output == *"WARNING charlm: device memory below 20.0 MiB ("* ]]
	[[ $output == *"charlm: stopped early after step "*": device memory below 8.00 MiB ("* ]]
	[[ $output == *"neap run: charlm: stopped early (device memory below 8.00 MiB: 7."*" MiB were left), exit status 75"* ]]
	[ "$(result run "d['outcome'], d['ooms']")" = "('stopped early', 0)" ]
	"${charlm[@]}" --checkpoint state --resume >/dev/null 2>&1
	cmp plain state
	# The history and a series know the outcome.
	"$NEAP" history 2>/dev/null | grep -q "stopped early" || [ "$status" -ne 0 ]
}

@test "host memory, and a threshold that takes rungs" {
	run "${charlm[@]}" --steps 30 --host-stop 1TiB
	[ "$status" -eq 75 ]
	[[ $output == *"charlm: stopped early after step 2: host memory below 1.00 TiB ("*"; nothing is saved (no --checkpoint)"* ]]
	run "${charlm[@]}" --steps 30 --host-degrade 1TiB
	[ "$status" -eq 0 ]
	[[ $output == *"host memory below 1.00 TiB ("*" left at the end of step 2): cleaning up"* ]]
	[ "$(grep -c "going on with micro-batch" <<<"$output")" -eq 3 ]
}

@test "cleanup points, each with its cost and yield; what gives nothing is told" {
	for points in start end saved epoch step; do
		run "${charlm[@]}" --cleanup $points --checkpoint state --checkpoint-every 50 --steps 150
		[ "$status" -eq 0 ]
		case $points in
		start | end) expected=1 ;;
		saved) expected=3 ;;
		epoch) expected=0 ;; # 150 steps of 8 times 16 characters do not go through the text
		step) expected=150 ;;
		esac
		[ "$(grep -c "Cleanup gave back .* in " <<<"$output")" -eq $expected ]
		rm state
	done
	run "${charlm[@]}" --cleanup none --batch 256 --cleanup-every-epochs 1 --steps 20
	[ "$(grep -c "Cleanup gave back .* in " <<<"$output")" -eq 2 ]
	run "${charlm[@]}" --cleanup none --micro-batch 4 --cleanup-every-ticks 30
	[ "$(grep -c "Cleanup gave back .* in " <<<"$output")" -eq 10 ]
	run "${charlm[@]}" --cleanup none --cleanup-every-steps 30
	[ "$(grep -c "Cleanup gave back .* in " <<<"$output")" -eq 5 ]
	run "${charlm[@]}" --cleanup failure,end --leak-per-step 1MiB
	[ "$status" -eq 1 ]
	[[ $output == *"Cleanup gave back "* ]]
	run "${charlm[@]}" --cleanup wherever
	[ "$status" -eq 64 ]
	[[ $output == *"--cleanup wherever: expected start, end, failure, saved, epoch, step, with commas, or none"* ]]
	run "${charlm[@]}" --on-leak restart
	[ "$status" -eq 64 ]
	[[ $output == *"--on-leak restart needs --checkpoint FILE"* ]]
}
