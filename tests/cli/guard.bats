#!/usr/bin/env bats
# A supervisor or its guard is killed, and the report still says how the command ended. The tests stop the supervisor
# while the command ends, so that it has not seen the end when it is killed.

sim=mem=1GiB
load ../support/command.bash

# Starts a run of shell text that may wait for the file "go". Returns when the file "began" is there.
begin() {
	neap run --name e --run-id e-1 "${options[@]}" -- sh -c "$1" >out 2>"${errors:-err}" 3>&- 9>&- &
	supervisor=$!
	targets+=($supervisor)
	folder="$XDG_STATE_HOME/neap/runs/e-1"
	until [ -s began ]; do kill -0 $supervisor; sleep 0.01; done
	command=$(cat began)
}

state_of() { sed -n 's/^State:.\(.\).*/\1/p' "/proc/$1/status"; }

# Stops the supervisor, lets the command end, and kills the supervisor.
end_unseen() {
	kill -STOP $supervisor
	until [ "$(state_of $supervisor)" = T ]; do sleep 0.01; done
	touch go
	until [ "$(state_of $command)" = Z ]; do sleep 0.01; done
	[ ! -e "$folder/ended" ]
	kill -KILL $supervisor
	wait $supervisor || true
	flock --timeout 60 "$folder/lock" true
}

waits='echo $$ >began; while [ ! -e go ]; do sleep 0.01; done'

@test "an end that the supervisor did not live to see is in the history as it was" {
	begin "$waits; exit 3"
	end_unseen
	show 'neap history'
	show 'result "{outcome, exit_status, drain_note}" $folder'
	expect unseen
}

@test "a success as well, with --log and --retries, with a rung of the ladder left" {
	options=(--log --param n=4 --on-oom 'halve n')
	begin "$waits; echo n is {n}"
	end_unseen
	neap history >/dev/null
	[ "$(result .outcome "$folder")" = ok ]
	[ "$(cat "$folder/stdout.log")" = "n is 4" ]
}

@test "an out-of-memory message that was written through a pipe is found" {
	exec 9> >(cat >piped)
	errors=/dev/fd/9
	begin "$waits; echo torch.OutOfMemoryError: CUDA out of memory. >&2; exit 1"
	end_unseen
	exec 9>&-
	neap history >/dev/null
	[ "$(result .outcome "$folder")" = oom ]
}

@test "a run that was asked to end is canceled, even if its supervisor is killed before it sees the end" {
	begin "trap 'touch asked' TERM; $waits"
	kill -TERM $supervisor
	until [ -e asked ]; do sleep 0.01; done
	end_unseen
	neap history >/dev/null
	[ "$(result .outcome "$folder")" = canceled ]
}

@test "a command that had not ended is killed with its supervisor, and the run is lost" {
	begin "$waits"
	kill -KILL $supervisor
	wait $supervisor || true
	flock --timeout 60 "$folder/lock" true
	[ -e "$folder/began" ]
	[ ! -e "$folder/ended" ]
	[[ "$(state_of $command)" = [ZX] ]] || [ ! -e "/proc/$command" ]
	neap history
	[ ! -e "$folder/result.json" ]
}

@test "a supervisor that is killed while it waits for its device leaves no control group" {
	hold --for 60000 600M 3>&- &
	targets+=($!)
	until neap run --quiet --needs 900M --wait-limit 0 -- true >/dev/null 2>&1; [ $? -eq 75 ]; do sleep 0.01; done
	neap run --run-id "$world" --needs 900M -- true 2>err 3>&- &
	supervisor=$!
	targets+=($supervisor)
	until grep -q "Waiting for" err; do kill -0 $supervisor; sleep 0.01; done
	own=$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)$(sed -n 's/^0:://p' /proc/self/cgroup)
	[ ! -e "$own/neap-$world" ]
	kill -KILL $supervisor
	wait $supervisor || true
	flock --timeout 60 "$XDG_STATE_HOME/neap/runs/$world/lock" true
	[ ! -e "$own/neap-$world" ]
}

@test "if the guard is killed the command ends with it, and the run says so" {
	begin "$waits"
	guard=$(awk '/^PPid/ { print $2 }' "/proc/$command/status")
	[ "$(cat "/proc/$guard/comm")" = neap-guard ]
	kill -KILL "$guard"
	wait $supervisor || code=$?
	[ "$code" -eq 137 ]
	grep -q "The guard of this run, process $guard (neap-guard), was killed: the command ends with it" err
	[ "$(result .outcome "$folder")" = signaled ]
}

@test "the command has the group, session and stops that it would have without a guard" {
	begin "$waits"
	read -r _ _ _ parent group session _ <"/proc/$command/stat"
	[ "$group" = "$command" ]
	[ "$session" = "$(awk '{ print $6 }' "/proc/$supervisor/stat")" ]
	kill -TSTP $supervisor
	until [ "$(state_of $command)" = T ] && [ "$(state_of $supervisor)" = T ]; do sleep 0.01; done
	kill -CONT $supervisor
	touch go
	wait $supervisor
}

@test "an estimate or a check whose program kills its supervisor says so, and names no missing file" {
	kills='kill -KILL "$(sed -n "s/^PPid:.//p" /proc/$PPID/status)"; exec sleep 100'
	show 'neap estimate --gpu t4-16gb -- sh -c "$kills"'
	show 'neap check --max-peak 1GiB -- sh -c "$kills"'
	expect killed
}

@test "an estimate survives a program that kills its supervisor in its last moment" {
	cat >last <<-'EOF'
		supervisor=$(sed -n "s/^PPid:.//p" /proc/$PPID/status)
		setsid sh -c "until grep -qs '^State:.Z' /proc/$$/status || [ ! -e /proc/$$ ]; do :; done; kill -KILL $supervisor" &
		kill -STOP $supervisor
		exit 0
	EOF
	run --separate-stderr neap estimate --gpu t4-16gb -- sh last
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"the program ended without using the GPU through PyTorch"* ]]
}
