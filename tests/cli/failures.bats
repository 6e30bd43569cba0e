#!/usr/bin/env bats
# Why a command failed: the end of its output is kept, wherever its stderr leads. Neither what the command sees nor
# its output suffers.

sim=mem=4GiB
load ../support/command.bash

samples='^samples +\d+/samples N' # how many samples the supervisor took
# Whether the supervisor took a sample while the command had its context; and whether that sample's list of processes,
# which comes after the device's use, still had the command.
sampled='^(?:(?:peak on device +64\.0 MiB\n)?headroom +3\.91|headroom +3\.97) GiB$/headroom         SEEN'

prepare() {
	export NEAP_ATTACH=0
	cat >bad.py <<-END
		print("step 1")
		raise ValueError("learning rate must be positive, not -1")
	END
	error="ValueError: learning rate must be positive, not -1"
}

@test "to a pipe: the output arrives in order, and its end is in the result" {
	neap run --quiet --folder run -- sh -c 'for i in 1 2 3 4 5; do echo "out $i"; echo "err $i" >&2; done; exit 4' 2>&1 |
		cat >seen
	printf 'out %s\nerr %s\n' 1 1 2 2 3 3 4 4 5 5 >expected
	diff expected seen
	[ "$(result .last_lines)" = "$(cat expected)" ]
	show 'result "{evidence, last_lines_of}"'
	show 'neap run --folder run2 -- python3 bad.py 2>&1 >out | cat'
	show 'cat out'
	show 'jq "{evidence, error_line, last_lines_of, last_lines, folder}" run2/result.json'
	expect pipe
}

@test "to a file: the file is the command's own; neap's own lines do not count as the command's" {
	echo "of an earlier run: FileError: no" >log
	show "neap run --folder run --param a=1 --log-level info -- sh -c 'test -f /proc/self/fd/2 && echo file >&2; exit 5' >>log 2>&1"
	show 'cat log; result "{last_lines, error_line}"'
	show "neap run --quiet --folder run2 -- sh -c 'kill -SEGV \$\$' 2>log2"
	show 'result "{last_lines, evidence}" run2'
	expect file
}

@test "to a terminal: the command has the terminal itself" {
	need_terminal
	python3 "$BATS_TEST_DIRNAME/pty.py" seen 80 neap run --quiet --folder run -- \
		sh -c 'readlink /proc/self/fd/2 >where; test -t 2 && echo "a terminal" >&2; exit 6' || [ $? -eq 6 ]
	grep -q "a terminal" seen
	[ "$(dirname "$(cat where)")" = /dev/pts ]
	show 'result "{last_lines_of, evidence}"'
	# What Python leaves in the folder (python/neap/hooks.py); the first of several is the cause.
	python3 "$BATS_TEST_DIRNAME/pty.py" seen 80 neap run --folder run2 -- sh -c '
		echo "ValueError: first" >"$NEAP_RUN_DIR/error.7"
		touch -d "1 hour ago" "$NEAP_RUN_DIR/error.7"
		printf "ChildFailedError: second\033\n" >"$NEAP_RUN_DIR/error.8"; exit 1' || [ $? -eq 1 ]
	show 'result .evidence run2'
	show 'tr -d "\r" <seen | grep "neap run: sh: failed"'
	expect terminal
}

@test "with --log: the report shows the end of the file" {
	show 'neap run --log --folder run -- python3 bad.py'
	[ "$(result .last_lines)" = "$(cat run/stderr.log)" ]
	show 'neap run --quiet --folder run2 -- python3 bad.py 2>/dev/null'
	show 'result .error_line run2'
	expect log
}

@test "a command that succeeded leaves no lines" {
	neap run --quiet --folder run -- sh -c 'echo a warning >&2' 2>&1 | cat
	[ "$(result .outcome)" = ok ]
	[ "$(result '.last_lines + .error_line + .last_lines_of')" = "" ]
}

@test "no output reaches a terminal unfiltered, and only the last of many lines are kept" {
	neap run --quiet --folder run -- \
		sh -c 'seq 100000; printf "\033[31mred\033[0m\n\302\233 \001\n" ; exit 1' 2>&1 | tail -n 1 >seen
	[ "$(result .last_lines | grep -c .)" = 16 ]
	[ "$(result .last_lines | grep . | tail -n 3)" = "$(printf '100000\nred\n? ?')" ]
	[ "$(od -An -c <seen | xargs)" = "$(printf '\302\233 \001\n' | od -An -c | xargs)" ] # passed on as it is
}

@test "a series shows it in its line, below its table and on its page; the history keeps it" {
	cat >s.yaml <<-END
		name: s
		defaults: {needs: none}
		experiments:
		- {name: good, command: "true"}
		- {name: bad, command: python3 bad.py}
	END
	show 'neap series s.yaml --folder s'
	show 'neap history bad'
	show 'neap history bad --json | jq -c ".runs[] | [.error_line, .folder]"'
	show 'grep -e "$dir/s/runs/bad-1" -e "^ValueError: learning rate must be positive, not -1" s/report.html'
	expect series "$samples"
	[ "$(result .last_lines s/runs/bad-1)" = "$(cat s/runs/bad-1/stderr.log)" ]
}

# tee_of SUPERVISOR: the process that passes on.
tee_of() {
	for one in $(cat "/proc/$1/task/$1/children"); do
		[ "$(cat "/proc/$one/comm" 2>/dev/null)" != neap-tee ] || echo "$one"
	done
}

@test "a stopped supervisor does not hold up the output" {
	mkfifo output
	cat output >seen &
	reader=$!
	neap run --quiet --folder run -- \
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

@test "a killed output process is replaced; the command continues" {
	mkfifo output
	cat output >seen &
	reader=$!
	neap run --quiet --folder run -- \
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

@test "if the reader exits the command gets its SIGPIPE" {
	neap run --quiet --folder run -- sh -c 'yes >&2; echo $? >status; exit 0' 2>&1 >/dev/null | head -n 1 >/dev/null
	until [ -s status ]; do sleep 0.02; done
	[ "$(cat status)" = 141 ]
}

@test "explain, analyze and history --log find what is in a run's folder" {
	unset NEAP_ATTACH
	neap run --folder attached -- hold 8G 2>/dev/null || true
	show 'neap explain attached'
	show 'neap explain attached --json | jq -c "[.outcome, .recording.ooms, .exit_status]"'
	show 'neap analyze attached | head -n 3'
	show 'neap history show hold'
	show 'neap history hold --log'
	rm -r attached
	show 'neap history hold --log'
	show 'neap history hold python3 --log'
	expect attached "$samples" "$sampled"
}

@test "... of a run that was not attached" {
	neap run --log --quiet --folder plain -- python3 bad.py || true
	show 'neap explain plain'
	show 'neap analyze plain'
	show 'neap history python3 --log'
	show 'neap history show python3 --log'
	neap run --log --quiet --folder text -- \
		sh -c 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4.00 GiB of which 1.00 GiB is free." >&2; exit 1' || true
	show 'neap explain text'
	expect plain
}

@test "... of a run that ran out of memory and was retried: the card of the start that failed" {
	unset NEAP_ATTACH
	neap run --quiet --folder retried --param mib=16384 --on-oom 'halve mib' -- hold {mib}M 2>/dev/null
	show 'neap explain retried | grep -v "PyTorch"'
	show 'neap explain retried --json | jq -c "[.ooms, .restarts, .rung, .recording.ooms, .failed_recording.ooms, .failed_recording.oom != null]"'
	show 'neap explain retried --number 2'
	rm retried/start-*
	show 'neap explain retried | sed -n "1,/^Out of/p"' # by the card that the result keeps
	expect retried
}

@test "... and say so if there is none" {
	mkdir empty series
	touch series/journal
	show 'neap explain empty'
	show 'neap explain series'
	echo '{' >empty/result.json # damaged
	show 'neap explain empty'
	expect none
}
