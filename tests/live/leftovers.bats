#!/usr/bin/env bats
# Processes that earlier runs left on the device are ended before a new run; those that neap did not start are named,
# and runs that continue are left alone.

sim=mem=96MiB,context=4MiB,reserved=0,release_delay=50ms
load ../support/command.bash

prepare() {
	export NEAP_LOG_LEVEL=info
	group=
}

eval "end_targets() $(declare -f teardown | tail -n +2)"
teardown() {
	local code=0
	end_targets || code=$?
	while [ -n "$group" ] && [ -d "$group" ] && ! rmdir "$group" 2>/dev/null; do sleep 0.02; done
	return $code
}

# The PIDs of the processes that hold device memory, once there are N of them and each has more than its context;
# gives up after 20 s.
holders() {
	local tries=0 found
	while [ $tries -lt 400 ]; do
		found=$(neap info --json 2>/dev/null | python3 -c \
			"import json,sys; p = json.load(sys.stdin)['processes']; print(*sorted(q['pid'] for q in p if q['bytes'] > 8 << 20), *['-' for q in p if q['bytes'] <= 8 << 20])")
		[[ "$found" != *-* && "$(wc -w <<<"$found")" -eq "$1" ]] && { echo "$found"; return 0; }
		tries=$((tries + 1))
		sleep 0.05
	done
	return 1
}

# Kills a supervisor, and first the guard that would end what is left: as a machine does when it runs out of memory.
kill_unseen() {
	local child guard=
	for child in $(cat "/proc/$1/task/$1/children"); do
		[ "$(cat "/proc/$child/comm")" != neap-guard ] || guard=$child
	done
	group="$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)$(sed -n 's/^0:://p' "/proc/$left/cgroup")"
	case $group in
	*/neap-*) ;; # only these two would have removed it
	*) group= ;; # an ordinary user cannot make one
	esac
	kill -STOP "$1" # it would record the guard's end, and end the command
	kill -KILL $guard "$1"
	wait "$1" || true
	while [ -n "$guard" ] && grep -q '^State:.[^ZX]' "/proc/$guard/status" 2>/dev/null; do sleep 0.01; done
}

# A run whose supervisor is killed: the process that its command had started continues and holds 40 MiB.
leave_behind() {
	neap run --quiet --no-history --folder lost -- \
		sh -c '"$0" --for 100000 40M & wait' hold >/dev/null 2>&1 3>&- &
	local supervisor=$!
	left=$(holders 1)
	targets+=("$left")
	kill_unseen "$supervisor"
	kill -0 "$left"
}

@test "a new run ends leftover processes, and waits for their memory" {
	leave_behind
	show 'neap run --folder run --no-history --clear-memory-on-start -- true'
	run grep -E '^State:.[^ZX]' "/proc/$left/status" # gone, or dead and not reaped yet
	[ "$status" -ne 0 ]
	[ -z "$(holders 0)" ]
	show 'neap run --folder run2 --no-history --clear-memory-on-start -- true'
	expect ended
}

@test "without the option nothing is ended" {
	leave_behind
	run neap run --no-history -- charlm --steps 1 --batch 8 --context 16 --width 32 --layers 1
	[ "$status" -eq 0 ]
	kill -0 "$left"
}

@test "a training session ends leftover processes, too" {
	leave_behind
	for attached in 0 1; do
		show "NEAP_ATTACH=$attached charlm --steps 1 --batch 8 --context 16 --width 32 --layers 1 --clear-memory-on-start >/dev/null"
	done
	expect session 'host memory: .*/host memory: SIZE'
	[ -z "$(holders 0)" ]
}

@test "a process that neap did not start is named; a run that continues is left alone" {
	hold --for 100000 8M >/dev/null 2>&1 3>&- &
	targets+=($!)
	local foreign=$!
	holders 1
	neap run --quiet --no-history -- hold --for 100000 8M >/dev/null 2>&1 3>&- &
	targets+=($!)
	local both
	both=$(holders 2)
	for pid in $both; do targets+=("$pid"); done
	show 'neap run --folder run --no-history --clear-memory-on-start -- true'
	expect left_alone
	[ "$(holders 2)" = "$both" ]
}

@test "a leftover that ignores SIGTERM, and a stopped one" {
	neap run --quiet --no-history --folder lost -- \
		sh -c 'trap "" TERM; "$0" --for 100000 10M & "$0" --for 100000 10M & wait' hold >/dev/null 2>&1 3>&- &
	local supervisor=$!
	left=$(holders 2)
	for pid in $left; do targets+=("$pid"); done
	local both=$left
	left=${both%% *}
	kill_unseen "$supervisor"
	kill -STOP "$left"
	show 'neap run --folder run --no-history --clear-memory-on-start -- true'
	expect killed
	[ -z "$(holders 0)" ]
}
