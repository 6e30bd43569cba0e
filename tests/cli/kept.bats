#!/usr/bin/env bats
# The history of a long run with PyTorch's own allocator: it is longer than the recording's ring, and each command
# uses it.

sim=mem=4GiB
load ../support/command.bash

steps=3000 # some 170 000 events: the ring holds 65536

# the lines of analyze about the steps of a recording, or of a run's folder
steps_of() { neap analyze "$1" --json | jq .steps; }

# starts a run that has made its steps and waits
run_until_ready() {
	neap run --quiet --folder run "$@" >out 2>err 3>&- &
	pid=$!
	targets+=("$pid")
	until grep -q ready out; do kill -0 "$pid"; sleep 0.02; done
	sleep 0.2 # a look or two
}

@test "the whole history is read while the run goes on, and is one recording when it is over" {
	run_until_ready -- trainee "$steps"
	[ -e run/kept.* ] && [ -e run/stacks.* ]
	[ "$(steps_of run)" -eq "$steps" ]
	touch go
	wait "$pid"
	[ ! -e run/kept.* ]
	[ "$(stat -c %s run/record.*)" -lt 3000000 ]
	neap analyze run --json >analysis
	[ "$(jq .steps analysis)" -eq "$steps" ]
	jq -r '.holders[].text' analysis | grep -q '^me/gpt.py:42 forward$'
	[ "$(neap replay run --json | jq .events)" -eq "$(jq .events analysis)" ]
	neap compare run run | grep -q 'activations  *140 MiB'
	# The steps that were kept whole show the swing. The others, kept as their net effect, do not.
	[ "$(neap compare run run --json | jq '.allocated_swing.a > 100000000 and .step_ns.a > 0')" = true ]
	neap explain run >/dev/null
	neap check run --max-peak 4GiB
}

@test "the card of a run that was out of memory says who holds it" {
	touch go
	neap run --folder run -- trainee "$steps" 400 2>err || [ $? -eq 1 ]
	grep -q 'me/gpt.py:42 forward' err
	grep -q 'replayed on a device of 400 MiB' err
	[ -z "$(grep 'nothing tells' err)" ]
	neap explain run | grep -q 'me/gpt.py:61 <module>'
}

@test "what a killed supervisor has kept is found, and becomes one recording" {
	run_until_ready -- trainee "$steps"
	holder="$(echo run/record.*)" holder="${holder##*.}"
	kill -KILL "$pid"
	wait "$pid" || true
	while grep -qsE '^State:.[^ZX]' "/proc/$holder/status"; do sleep 0.02; done
	[ "$(steps_of run)" -eq "$steps" ]
	flock --timeout 60 run/lock true
	neap analyze run/record.* >/dev/null
}

@test "each start keeps its own history" {
	touch go
	neap run --quiet --folder run --param mib=400 --on-oom 'halve mib' -- trainee 100 {mib} 2>/dev/null || true
	[ -e run/start-1.record.* ] && [ -e run/start-1.stacks.* ] && [ ! -e run/start-1.kept.* ]
	neap analyze run/start-1.record.* | grep -q 'me/gpt.py:42 forward'
}
