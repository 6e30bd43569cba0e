#!/usr/bin/env bats
# Why a command failed: the end of what it wrote is kept, wherever its stderr leads to, and nothing of that changes what
# the command sees or costs it its output.

bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir" NEAP_ATTACH=0
	export NEAP_SIM="mem=4GiB,world=failures-$$-$BATS_TEST_NUMBER"
	mkdir -m 700 "$dir/runtime"
	cd "$dir"
	cat >bad.py <<-END
		print("step 1")
		raise ValueError("learning rate must be positive, not -1")
	END
	error="ValueError: learning rate must be positive, not -1"
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"failures-$$-$BATS_TEST_NUMBER"*
}

result() { jq -r "$1" "${2:-$dir/run}/result.json"; }

@test "to a pipe: the output arrives in its order, and its end is in the result" {
	"$NEAP" run --quiet --folder run -- sh -c 'for i in 1 2 3 4 5; do echo "out $i"; echo "err $i" >&2; done; exit 4' 2>&1 |
		cat >seen
	printf 'out %s\nerr %s\n' 1 1 2 2 3 3 4 4 5 5 >expected
	diff expected seen
	[ "$(result .evidence)" = "exit status 4: err 5" ]
	[ "$(result .last_lines_of)" = "stdout and stderr" ]
	[ "$(result .last_lines)" = "$(cat expected)" ]
	{ "$NEAP" run --folder run2 -- python3 bad.py || echo $? >status; } 2>&1 >out | cat >err
	[ "$(cat status)" = 1 ]
	[ "$(cat out)" = "step 1" ]
	[ "$(result .error_line run2)" = "$error" ]
	[ "$(result .last_lines_of run2)" = stderr ]
	[[ "$(result .last_lines run2)" != *"step 1"* ]]
	[ "$(result .folder run2)" = "$dir/run2" ]
	grep -q "^$error$" err
	grep -qF "neap run: python3: failed ($error), exit status 1, " err
}

@test "to a file: the file is the command's own, and what neap writes there is not the command's" {
	echo "of an earlier run: FileError: no" >log
	"$NEAP" run --folder run --param a=1 --log-level info -- sh -c 'test -f /proc/self/fd/2 && echo file >&2; exit 5' >>log 2>&1 ||
		[ $? -eq 5 ]
	[ "$(result .last_lines)" = file ]
	[ "$(result .error_line)" = file ]
	[ "$(head -n 1 log)" = "of an earlier run: FileError: no" ]
	"$NEAP" run --quiet --folder run2 -- sh -c 'kill -SEGV $$' 2>log2 || [ $? -eq 139 ]
	[ "$(result .last_lines run2)" = "" ]
	[ "$(result .evidence run2)" = "ended by signal 11 (SIGSEGV)" ]
}

@test "to a terminal: the command has the terminal itself" {
	python3 -c 'import os; os.openpty()' 2>/dev/null || skip "needs a pseudo-terminal, which this machine does not give"
	python3 "$BATS_TEST_DIRNAME/pty.py" seen 80 "$NEAP" run --quiet --folder run -- \
		sh -c 'readlink /proc/self/fd/2 >where; test -t 2 && echo "a terminal" >&2; exit 6' || [ $? -eq 6 ]
	grep -q "a terminal" seen
	[[ "$(cat where)" == /dev/pts/* ]]
	[ "$(result .last_lines_of)" = "" ]
	[ "$(result .evidence)" = "exit status 6" ]
	# What Python leaves in the folder (python/neap/hooks.py); the first of several is the cause.
	python3 "$BATS_TEST_DIRNAME/pty.py" seen 80 "$NEAP" run --folder run2 -- sh -c '
		echo "ValueError: first" >"$NEAP_RUN_DIR/error.7"
		touch -d "1 hour ago" "$NEAP_RUN_DIR/error.7"
		printf "ChildFailedError: second\033\n" >"$NEAP_RUN_DIR/error.8"; exit 1' || [ $? -eq 1 ]
	[ "$(result .evidence run2)" = "exit status 1: ValueError: first" ]
	grep -q "neap run: sh: failed (ValueError: first), exit status 1, " seen
}

@test "with --log: the report shows what went into the file" {
	run "$NEAP" run --log --folder run -- python3 bad.py
	[ "$status" -eq 1 ]
	[[ "$output" == *"neap run: python3: failed ($error), exit status 1, "* ]]
	[[ "$output" == *"last lines of its stderr:"*"    | Traceback (most recent call last):"*"    | $error"* ]]
	[ "$(result .last_lines)" = "$(cat run/stderr.log)" ]
	run "$NEAP" run --quiet --folder run2 -- python3 bad.py 2>/dev/null
	[ "$(result .error_line run2)" = "$error" ]
}

@test "what ended well keeps no lines" {
	"$NEAP" run --quiet --folder run -- sh -c 'echo a warning >&2' 2>&1 | cat
	[ "$(result .outcome)" = ok ]
	[ "$(result '.last_lines + .error_line + .last_lines_of')" = "" ]
}

@test "nothing of it reaches a terminal unfiltered, and of much the last lines are kept" {
	"$NEAP" run --quiet --folder run -- \
		sh -c 'seq 100000; printf "\033[31mred\033[0m\n\302\233 \001\n" ; exit 1' 2>&1 | tail -n 1 >seen
	[ "$(result .last_lines | grep -c .)" = 16 ]
	[ "$(result .last_lines | grep . | tail -n 3)" = "$(printf '100000\nred\n? ?')" ]
	[ "$(od -An -c <seen | xargs)" = "$(printf '\302\233 \001\n' | od -An -c | xargs)" ] # passed on as it is
}

@test "a series says it in its line, below its table and on its page; the history keeps it" {
	cat >s.yaml <<-END
		name: s
		defaults: {needs: none}
		experiments:
		- {name: good, command: "true"}
		- {name: bad, command: python3 bad.py}
	END
	run --separate-stderr "$NEAP" series s.yaml --folder s
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"[2/2] bad: failed in "*": exit status 1: $error"* ]]
	[[ "$output" == *"bad: failed: exit status 1: $error"*"  in $dir/s/runs/bad-1"* ]]
	[[ "$output" != *"good: "* ]]
	grep -qF "$dir/s/runs/bad-1" s/report.html
	grep -q "^ValueError: learning rate must be positive, not -1" s/report.html
	[ "$(jq -r .last_lines s/runs/bad-1/result.json)" = "$(cat s/runs/bad-1/stderr.log)" ]
	run "$NEAP" history bad
	[[ "$output" == *"error            $error"*"folder           $dir/s/runs/bad-1"* ]]
	[[ "$output" == *"The last lines of its stderr"*"  Traceback (most recent call last):"*"  $error"* ]]
	run "$NEAP" history bad --json
	[ "$(jq -r '.runs[0].error_line' <<<"$output")" = "$error" ]
	[ "$(jq -r '.runs[0].folder' <<<"$output")" = "$dir/s/runs/bad-1" ]
}

# tee_of SUPERVISOR: the process that passes on.
tee_of() {
	for one in $(cat "/proc/$1/task/$1/children"); do
		[ "$(cat "/proc/$one/comm" 2>/dev/null)" != neap-tee ] || echo "$one"
	done
}

@test "a supervisor that is stopped holds nothing up" {
	mkfifo output
	cat output >seen &
	reader=$!
	"$NEAP" run --quiet --folder run -- \
		sh -c 'echo >ready; while [ -e ready ] && [ ! -e go ]; do sleep 0.02; done; seq 100000 >&2; echo done >done; exit 3' 2>output 3>&- &
	pid=$!
	until [ -e ready ]; do kill -0 $pid; sleep 0.02; done
	kill -STOP $pid
	touch go
	until [ -s done ]; do kill -0 $pid; sleep 0.02; done # more than a pipe holds
	kill -CONT $pid
	code=0; wait $pid || code=$?
	wait $reader
	[ "$code" -eq 3 ]
	seq 100000 | cmp - seen
	[ "$(result .error_line)" = 100000 ]
}

@test "a killed process that passes on is replaced; the command goes on" {
	mkfifo output
	cat output >seen &
	reader=$!
	"$NEAP" run --quiet --folder run -- \
		sh -c 'echo >ready; while [ -e ready ] && [ ! -e go ]; do sleep 0.02; done; seq 100000 >&2; exit 3' 2>output 3>&- &
	pid=$!
	until [ -e ready ]; do kill -0 $pid; sleep 0.02; done
	old="$(tee_of $pid)"
	[ -n "$old" ]
	kill -9 "$old"
	until [ -n "$(tee_of $pid)" ] && [ "$(tee_of $pid)" != "$old" ]; do kill -0 $pid; sleep 0.02; done
	touch go
	code=0; wait $pid || code=$?
	wait $reader
	[ "$code" -eq 3 ]
	seq 100000 | cmp - seen
}

@test "a reader that goes away: the command gets its SIGPIPE" {
	"$NEAP" run --quiet --folder run -- sh -c 'yes >&2; echo $? >status; exit 0' 2>&1 >/dev/null | head -n 1 >/dev/null
	until [ -s status ]; do sleep 0.02; done
	[ "$(cat status)" = 141 ]
}


@test "explain, analyze and history --log find what is in a run's folder" {
	unset NEAP_ATTACH
	"$NEAP" run --folder attached -- "$HOLD" 8G 2>/dev/null || true
	run "$NEAP" explain attached
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == "hold: oom: recorded: process "*" asked for 8.00 GiB"* ]]
	[[ "$output" == *"  folder     attached"*"The last lines of its "*"    | hold: out of device memory: "*"In attached/record."*"Out of device memory: 8.00 GiB for "*"Cause: "* ]]
	[ "$("$NEAP" explain attached --json | jq -r '.outcome, .recording.ooms, .exit_status' | xargs)" = "oom 1 $(result .exit_status attached)" ]
	run "$NEAP" analyze attached
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == "attached/record."*": recording, device 0 of 1, "* ]]
	NEAP_ATTACH=0 "$NEAP" run --log --quiet --folder plain -- python3 bad.py || true
	run "$NEAP" explain plain
	[[ "$output" == "python3: failed: exit status 1: $error"*"    | $error"*"No process of it was attached"* ]]
	run "$NEAP" analyze plain
	[ "$status" -eq 66 ]
	[[ "$output" == "neap analyze: no recording (record.PID) in plain: no process of that run was attached" ]]
	NEAP_ATTACH=0 "$NEAP" run --log --quiet --folder text -- \
		sh -c 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4.00 GiB of which 1.00 GiB is free." >&2; exit 1' || true
	run "$NEAP" explain text
	[[ "$output" == "sh: oom: stderr: torch.OutOfMemoryError: "*"2.00 GiB"* ]]
	[ "$(grep -c "No process of it was attached" <<<"$output")" = 0 ]
	mkdir empty series
	touch series/journal
	run "$NEAP" explain empty
	[ "$status" -eq 66 ]
	run "$NEAP" explain series
	[[ "$output" == *"series is the folder of a series: give one of its runs, in series/runs" ]]
	echo '{' >empty/result.json # damaged
	run "$NEAP" explain empty
	[ "$status" -eq 65 ]
	for words in "python3 --log" "show python3 --log"; do
		run "$NEAP" history $words
		[ "$status" -eq 0 ]
		[[ "$output" == "$dir/plain/stdout.log"*"step 1"*"$dir/plain/stderr.log"*"Traceback (most recent call last):"*"$error" ]]
	done
	run "$NEAP" history show hold
	[[ "${lines[0]}" == "run  "* ]]
	run "$NEAP" history hold --log
	[[ "${lines[0]}" == "No log in $dir/attached: the run was without --log." ]]
	[[ "$output" == *"The last lines of its "*"hold: out of device memory"* ]]
	rm -r attached
	run "$NEAP" history hold --log
	[[ "${lines[0]}" == "$dir/attached is gone." ]]
	run "$NEAP" history hold python3 --log
	[ "$status" -eq 64 ]
}
