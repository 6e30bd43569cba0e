#!/usr/bin/env bats
# What earlier runs left on the device is ended before a new one; what neap did not start is named, what goes on is left
# alone.
#
# NEAP, CHARLM and HOLD are the programs.

setup() {
	export NEAP_LOG_LEVEL=info
	export NEAP_DEVICE=sim NEAP_SIM="mem=96MiB,context=4MiB,reserved=0,release_delay=50ms,world=left-$$-$BATS_TEST_NUMBER"
	export XDG_RUNTIME_DIR=$BATS_TEST_TMPDIR/runtime XDG_STATE_HOME=$BATS_TEST_TMPDIR/home
	mkdir -p -m 700 "$XDG_RUNTIME_DIR"
	mkdir -p "$XDG_STATE_HOME"
	cd "$BATS_TEST_TMPDIR"
	pids=() group=
}

teardown() {
	for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
	wait 2>/dev/null || true
	while [ -n "$group" ] && [ -d "$group" ] && ! rmdir "$group" 2>/dev/null; do sleep 0.02; done
	rm -f "/dev/shm/"*"left-$$-$BATS_TEST_NUMBER"
}

# The PIDs of the processes that hold device memory, once there are N of them and each has more than its context; gives up
# after 20 s.
holders() {
	local tries=0 found
	while [ $tries -lt 400 ]; do
		found=$("$NEAP" info --json 2>/dev/null | python3 -c \
			"import json,sys; p = json.load(sys.stdin)['processes']; print(*sorted(q['pid'] for q in p if q['bytes'] > 8 << 20), *['-' for q in p if q['bytes'] <= 8 << 20])")
		[[ "$found" != *-* && "$(wc -w <<<"$found")" -eq "$1" ]] && { echo "$found"; return 0; }
		tries=$((tries + 1))
		sleep 0.05
	done
	return 1
}

# Kills a supervisor and, first, the guard that would end what is left: as a machine does that runs out of memory.
kill_unseen() {
	local child guard=
	for child in $(cat "/proc/$1/task/$1/children"); do
		[ "$(cat "/proc/$child/comm")" != neap-guard ] || guard=$child
	done
	if [ -n "$guard" ]; then # the two are all that would have removed it
		group="$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)$(sed -n 's/^0:://p' "/proc/$left/cgroup")"
	fi
	kill -KILL $guard "$1"
	wait "$1" || true
}

# A run whose supervisor is killed; what its command had started goes on, holding 40 MiB.
leave_behind() {
	"$NEAP" run --quiet --no-history --folder lost -- \
		sh -c '"$0" --for 100000 40M & wait' "$HOLD" >/dev/null 2>&1 3>&- &
	local supervisor=$!
	left=$(holders 1)
	pids+=("$left")
	kill_unseen "$supervisor"
	kill -0 "$left"
}

@test "a new run ends them, and waits for their memory" {
	leave_behind
	run "$NEAP" run --no-history --clear-memory-on-start -- true
	[ "$status" -eq 0 ]
	[[ $output == *"WARNING Ended process $left ($(basename "$HOLD") "*"), left behind by run "*", which held 44.0 MiB (SIGTERM)"* ]]
	[[ $output == *"The 44.0 MiB that they held are free again after "* ]]
	[[ $output == *"NVIDIA-SMI report:"* ]]
	run grep -E '^State:.[^ZX]' "/proc/$left/status" # gone, or dead and not reaped yet
	[ "$status" -ne 0 ]
	[ -z "$(holders 0)" ]
	run "$NEAP" run --no-history --clear-memory-on-start -- true
	[[ $output == *"No leftovers of earlier runs were found"* ]]
}

@test "without being asked to, nothing is ended" {
	leave_behind
	run "$NEAP" run --no-history -- "$CHARLM" --steps 1 --batch 8 --context 16 --width 32 --layers 1
	[ "$status" -eq 0 ]
	kill -0 "$left"
}

@test "a training session ends them, too" {
	leave_behind
	for attached in 0 1; do
		run env NEAP_LOG_LEVEL=info NEAP_ATTACH=$attached "$CHARLM" --steps 1 --batch 8 --context 16 --width 32 --layers 1 \
			--clear-memory-on-start
		[ "$status" -eq 0 ]
		if [ $attached -eq 0 ]; then
			[[ $output == *"WARNING Ended process $left "*"which held 44.0 MiB"* ]]
		else
			[[ $output == *"No leftovers of earlier runs were found"* ]]
		fi
		[[ $output == *"Cleaning up CUDA memory..."* ]]
	done
	[ -z "$(holders 0)" ]
}

@test "a process that neap did not start is named; a run that goes on is left alone" {
	"$HOLD" --for 100000 8M >/dev/null 2>&1 3>&- &
	pids+=($!)
	local foreign=$!
	holders 1
	"$NEAP" run --quiet --no-history -- "$HOLD" --for 100000 8M >/dev/null 2>&1 3>&- &
	pids+=($!)
	local both
	both=$(holders 2)
	for pid in $both; do pids+=("$pid"); done
	run "$NEAP" run --no-history --clear-memory-on-start -- true
	[ "$status" -eq 0 ]
	[[ $output == *"WARNING Process $foreign ("*") holds 12.0 MiB; neap did not start it, or cannot tell: left alone ('neap kill --pid $foreign' ends it)"* ]]
	[[ $output != *"Ended process"* ]]
	[ "$(grep -c "holds 12.0 MiB" <<<"$output")" -eq 1 ]
	[ "$(holders 2)" = "$both" ]
}

@test "one that ignores SIGTERM, and one that is stopped" {
	"$NEAP" run --quiet --no-history --folder lost -- \
		sh -c 'trap "" TERM; "$0" --for 100000 10M & "$0" --for 100000 10M & wait' "$HOLD" >/dev/null 2>&1 3>&- &
	local supervisor=$!
	left=$(holders 2)
	for pid in $left; do pids+=("$pid"); done
	local both=$left
	left=${both%% *}
	kill_unseen "$supervisor"
	kill -STOP "$left"
	run "$NEAP" run --no-history --clear-memory-on-start -- true
	[ "$status" -eq 0 ]
	[ "$(grep -c "which held 14.0 MiB (SIGKILL)" <<<"$output")" -eq 2 ]
	[ -z "$(holders 0)" ]
}
