#!/usr/bin/env bats
# neap series over the simulator: memory waited for and drained, the ladder, the history, the table and the page. Its
# journal and its exactly-once promise are tested in tests/series.

sim=mem=4GiB
load ../support/command.bash

# What the supervisor sees of a process that ends at once, or before all of its memory is allocated.
device_seen='^(2>   device +GPU \d+ \(Simulated GPU \d+ MiB\)):.*/\1'

result() { jq -rc "$2" "s/runs/$1/result.json"; }

@test "the table ranks the runs by their peak, and the last line is the report's path" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: small, command: "hold --looks 4 100M"}
		- {name: large, command: "hold --looks 4 1G"}
	EOF
	show 'neap series s.yaml --folder s'
	show 'neap series s.yaml --folder s --resume --quiet'
	grep -q '<html' s/report.html
	grep -q small s/report.html
	expect table
}

@test "the runs of a series have its name in the history, each series its own" {
	cat > s.yaml <<-'EOF'
		name: s
		defaults: {env: {NEAP_SERIES: "another"}}
		experiments:
		- {name: a, command: [sh, -c, 'echo "$NEAP_SERIES"'], needs: none}
		- {name: b, command: [sh, -c, 'echo "$NEAP_SERIES"'], needs: none}
	EOF
	for folder in s t; do neap series s.yaml --folder $folder --quiet; done
	grep -hE '^[0-9a-f]+-[0-9a-f]+$' s/runs/a-1/stdout.log > names
	diff names s/runs/b-1/stdout.log
	run ! diff names t/runs/a-1/stdout.log
}

@test "each run's memory is drained before the next starts" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: first, command: "hold --looks 4 --kill 9 1G"}
		- {name: second, command: "hold --looks 4 1G"}
	EOF
	NEAP_SIM="$NEAP_SIM,release_delay=5s" show 'neap series s.yaml --folder s --log-level info'
	# From the time at which the end was noticed, which may be after the driver's five seconds began.
	[ "$(result first-1 '.drained and .drain_ns >= 500000000')" = true ]
	[ "$(result first-1 '.ended_wall_ns - .started_wall_ns - .duration_ns | fabs < 10000')" = true ] # without the drain
	# From start to start: the first run, then its drain.
	[ $(($(result second-1 .started_wall_ns) - $(result first-1 .started_wall_ns))) -ge 500000000 ]
	expect drained
}

@test "the next run waits for the bytes it needs" {
	# Another process's memory, which is there until the second run is seen to wait for it.
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: first, command: "true", needs: none}
		- {name: second, command: "hold --looks 4 2G", needs: 3GiB}
	EOF
	hold --until go 2G 3>&- &
	holder=$!
	until_ready $holder 'neap sim inspect | grep -q "memory 2.00 GiB"'
	neap series s.yaml --folder s >out 2>err 3>&- &
	series=$!
	until_ready $series 'grep -q "Waiting for 3.00 GiB of .*: .* free" err'
	touch go
	wait "$holder"
	wait "$series"
	show 'cat err out; result second-1 "[.outcome, .waited_ns > 0]"'
	expect waits
}

@test "memory of a run that is not back within its drain limit is reported" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: first, command: "hold --looks 4 --kill 9 2G", drain_limit: 1ms}
		- {name: second, command: "true", needs: none}
	EOF
	NEAP_SIM="$NEAP_SIM,release_delay=60s" show 'neap series s.yaml --folder s'
	expect not_drained 'second .*ok .*/second ok'
}

@test "memory that does not become free in time: the run is not started, the series continues" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: never, command: touch ran, needs: 5GiB, wait_limit: 50ms}
		- {name: after, command: "hold --looks 4 100M"}
	EOF
	show 'neap series s.yaml --folder s'
	[ ! -e ran ]
	expect not_started
}

@test "a run that is out of memory completes by its ladder" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- name: large
		  command: "hold --looks 4 {gib}G"
		  params: {gib: 8, parts: 1}
		  on_oom: halve gib, double parts
	EOF
	show 'neap series s.yaml --folder s'
	show 'result large-1 "{retries, rung, command}"' # the last command
	grep -q "hold --looks 4 2G" s/report.html
	expect ladder
}

@test "an experiment's needs are taken from the history" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: "hold --looks 4 1G"}
	EOF
	show 'neap series s.yaml'
	show 'neap series s.yaml'
	sed -i 's/1G/2G/' s.yaml # another command: the measurements do not hold for it
	show 'neap series s.yaml'
	expect needs 's-[0-9a-f]{8}\b/s-HASH'
}

@test "after a supervisor was killed, its command's processes are ended, and the next attempt is run" {
	cat > train <<-'EOF'
		#!/bin/sh
		[ -e child ] && exit 0
		sleep 300 &
		echo $! > child.new
		mv child.new child
		wait
	EOF
	chmod +x train
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: ./train, needs: none}
	EOF
	neap series s.yaml --folder s >out 2>err &
	series=$!
	until_ready $series '[ -e child ]'
	until [ "$(cat "/proc/$(cat child)/comm")" = sleep ]; do sleep 0.01; done # perhaps in the middle of its exec
	read -r supervisor _ < s/runs/e-1/supervisor
	# If the run has a control group, its guard would end the processes before the series can name them.
	guard=
	for one in $(cat "/proc/$supervisor/task/$supervisor/children"); do
		[ "$(cat "/proc/$one/comm")" != neap-guard ] || guard=$one
	done
	kill -STOP "$supervisor" # it would record the guard's end
	kill -9 $guard "$supervisor"
	wait "$series"
	grep -q "^process $(cat child) (sleep 300) was left behind, ended" err
	grep -q "e: attempt 1 is lost" err
	# Gone, or dead and not yet reaped.
	run grep -E '^State:.[^ZX]' "/proc/$(cat child)/status"
	[ "$status" -ne 0 ]
	[ "$(result e-2 .outcome)" = ok ]
}

@test "an experiment has its folder, its device and its limits" {
	mkdir "a folder"
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none}
		experiments:
		- {name: folder, command: "sh -c 'pwd > where; echo \$CUDA_VISIBLE_DEVICES > device'", directory: a folder, device: 1}
		- {name: nowhere, command: "true", directory: nowhere}
		- {name: limit, command: "hold --for 60000 2G", device: 1, max_device: 1GiB}
		- {name: fine, command: "hold --looks 4 10M"}
	EOF
	NEAP_SIM="$NEAP_SIM,gpus=2" show 'neap series s.yaml --folder s'
	for run in folder nowhere limit fine; do show "result $run-1 '[.outcome, .device_uuid, .evidence]'"; done
	show 'cat "a folder/where" "a folder/device"'
	expect settings "$device_seen" '\d\.\d\d GiB above/SIZE above' '^(limit  stopped early) .*/\1' '^2>   peak .*\n/' '(limit: stopped early in TIME), peak .*?, drained/\1, drained'
}

# spans FILE: the most experiments that were under way at once, by the "begin" and "end" lines of FILE in their order.
most_together() {
	awk '$1 == "begin" { if (++now > most) most = now } $1 == "end" { now-- } END { print most }' "$1"
}

@test "parallel experiments run at the same time" {
	cat > meet <<-'EOF'
		#!/bin/sh
		touch "here-$1"
		until [ -e here-1 ] && [ -e here-2 ] && [ -e here-3 ]; do sleep 0.02; done
	EOF
	chmod +x meet
	cat > s.yaml <<-EOF
		name: s
		parallel: 3
		defaults: {needs: none, time_limit: 60s}
		experiments:
		- {name: e, command: "./meet {i}", grid: {i: [1, 2, 3]}}
	EOF
	neap series s.yaml --folder s --quiet
	[ "$(jq -r .outcome s/runs/*/result.json | xargs)" = "ok ok ok" ]
}

@test "parallel experiments are packed by the bytes they need" {
	cat > part <<-EOF
		#!/bin/sh
		echo begin >> log
		hold --for 300 --until met 1G & # at least until two have met
		until [ "\$(grep -c begin log)" -ge 2 ]; do sleep 0.02; done
		touch met
		wait \$!
		status=\$?
		echo end >> log
		exit \$status
	EOF
	chmod +x part
	cat > s.yaml <<-EOF
		name: s
		parallel: 4
		experiments:
		- {name: e, command: "./part {i}", needs: 1500MiB, grid: {i: [1, 2, 3, 4, 5]}}
		- {name: whole, command: ./part, needs: device}
	EOF
	run neap series s.yaml --folder s
	[ "$status" -eq 0 ]
	[ "$(most_together log)" = 2 ] # of 4 GiB
	[ "$(tail -n 2 log | xargs)" = "begin end" ] # the whole device, alone
}

@test "parallel experiments are given devices, by UUID" {
	cat > meet <<-EOF
		#!/bin/sh
		echo "\$CUDA_VISIBLE_DEVICES" > "on-\$1"
		until [ -s on-1 ] && [ -s on-2 ]; do sleep 0.02; done
		exec hold 3G
	EOF
	chmod +x meet
	cat > s.yaml <<-EOF
		name: s
		parallel: 2
		experiments:
		- {name: e, command: "./meet {i}", needs: 3200MiB, grid: {i: [1, 2]}}
	EOF
	export NEAP_SIM="$NEAP_SIM,gpus=2"
	neap series s.yaml --folder s --quiet
	[ "$(cat on-1 on-2 | sort)" = "$(neap info --json | jq -r '.devices[].uuid' | sort)" ]
	[ "$(result e-i=2-1 .device_uuid)" = "$(cat on-2)" ]
	# Only visible devices: here the second.
	second=$(neap info --json | jq -r '.devices[1].uuid')
	CUDA_VISIBLE_DEVICES=$second neap series s.yaml --folder t --quiet
	[ "$(jq -r .device_uuid t/runs/*/result.json | sort -u)" = "$second" ]
}

@test "interrupted, all parallel experiments end, and are run again" {
	cat > s.yaml <<-EOF
		name: s
		parallel: 2
		defaults: {needs: none}
		experiments:
		- {name: e, command: "sh -c 'test -e go || { touch begun-{i}; exec sleep 300; }'", grid: {i: [1, 2, 3]}}
	EOF
	neap series s.yaml --folder s >out 2>err &
	series=$!
	until_ready $series '[ -e begun-1 ] && [ -e begun-2 ]'
	kill -TERM "$series"
	status=0
	wait "$series" || status=$?
	[ "$status" -eq 143 ]
	grep -q "3 experiments left" err
	[ "$(result e-i=1-1 .outcome)" = canceled ]
	[ "$(result e-i=2-1 .outcome)" = canceled ]
	[ ! -e begun-3 ]
	touch go
	run neap series s.yaml --folder s --resume
	[ "$status" -eq 0 ]
	[ "$(result e-i=2-2 .outcome)" = ok ]
	[ "$(result e-i=3-1 .outcome)" = ok ]
}

@test "failed experiments are run again as often as retry_failed says; those out of memory are not" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none, retry_failed: 2}
		experiments:
		- {name: second, command: "sh -c 'test -e second || { touch second; exit 3; }'"}
		- {name: never, command: "sh -c 'kill -SEGV \$\$'"}
		- {name: memory, command: "hold 8G"}
		- {name: once, command: "false", retry_failed: 0}
	EOF
	show 'neap series s.yaml --folder s --sort file'
	show 'ls s/runs; for run in s/runs/*; do jq -r .outcome $run/result.json; done'
	show 'neap series s.yaml --folder s --resume --quiet --sort file' # journaled records can be read
	expect retry_failed "$device_seen" '^(memory  oom) .*/\1' '(memory: oom in TIME).*: recorded/\1: recorded'
}

@test "a device that is gone is waited for" {
	NEAP_DEVICE=cuda LD_LIBRARY_PATH= neap info >/dev/null 2>&1 && skip "there is a driver"
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: 100M, wait_limit: 60s, env: {NEAP_DEVICE: cuda, LD_LIBRARY_PATH: "$dir/driver"}}
		experiments:
		- {name: e, command: "hold 10M"}
	EOF
	neap series s.yaml --folder s >out 2>err &
	series=$!
	until_ready $series 'grep -q "e: there is no device: trying again for 1 m" err'
	ln -s "$NEAP_SIM_PATH" driver
	wait "$series"
	[ "$(cat s/runs/e-*/result.json | jq -r .outcome)" = ok ]
	rm driver
	sed 's/60s/0s/' s.yaml > t.yaml
	run neap series t.yaml --folder t
	[ "$status" -eq 69 ]
	[[ "$output" == *"1 experiment left; continue with: "* ]]
}

@test "a device that is lost while an experiment runs is waited for, and the experiment repeated" {
	cat > train <<-EOF
		#!/bin/sh
		[ -e second ] && exec hold 10M
		hold 10M
		touch second "$dir/lost"
		exec hold 10M
	EOF
	chmod +x train
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: ./train, needs: 100M}
		- {name: after, command: "hold --looks 4 10M", needs: 100M}
	EOF
	NEAP_SIM_LOST="$dir/lost" neap series s.yaml --folder s >out 2>err &
	series=$!
	until_ready $series 'grep -q "e: its device was lost: another attempt (1 of 2) when it is back, within 10 m" err'
	show 'result e-1 "{outcome, evidence, drained}"'
	rm lost
	wait "$series"
	grep -q "e: the device is back after" err
	[ "$(result e-2 .outcome)$(result after-1 .outcome)" = okok ]
	expect device_lost
}

@test "a lost device that does not come back stops the series, which can be resumed" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {wait_limit: 0s}
		experiments:
		- {name: e, command: "sh -c 'test -e second || { touch second lost; exit 1; }'", needs: none}
	EOF
	NEAP_SIM_LOST="$dir/lost" show 'neap series s.yaml --folder s'
	rm lost
	show 'neap series s.yaml --folder s --resume'
	expect device_not_back
}

@test "an experiment that keeps losing its device comes to an end; retry_failed does not apply to it" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none, retry_failed: 5}
		experiments:
		- {name: e, command: "sh -c 'echo CUDA error: uncorrectable ECC error encountered >&2; exit 1'"}
		- {name: after, command: "true"}
	EOF
	show 'neap series s.yaml --folder s'
	show 'neap series s.yaml --folder s --resume --quiet' # journaled records can be read
	expect device_lost_again
}

@test "a missing device is refused before anything starts, unless the series may wait for it" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: fine, command: touch ran, needs: none}
		- {name: e, command: touch ran, needs: none, device: 7}
	EOF
	export NEAP_SIM="$NEAP_SIM,gpus=2"
	show 'neap series s.yaml --folder s'
	sed 's/device: 7/device: GPU-nonsense/' s.yaml > t.yaml
	show 'neap series t.yaml --folder t'
	[ ! -e ran ]
	sed 's/device: 7/device: 7, wait_limit: 0s/' s.yaml > u.yaml
	show 'neap series u.yaml --folder u'
	[ -e ran ]
	sed 's/device: 7/device: 1/' s.yaml > v.yaml
	show 'neap series v.yaml --folder v'
	[ "$(jq -r .device_uuid v/runs/e-1/result.json)" = "$(neap info --json | jq -r '.devices[1].uuid')" ]
	expect no_such_device
}

@test "after a runner's crash, experiments that still run count with what they need" {
	cat > part <<-EOF
		#!/bin/sh
		echo "begin \$1" >> log
		case \$1 in
		first) until [ -e go ]; do sleep 0.02; done; sleep 0.3 ;; # longer than it takes to overlook it
		gate) until [ -e open ]; do sleep 0.02; done ;;
		fits) touch go ;;
		esac
		echo "end \$1" >> log
	EOF
	chmod +x part
	cat > s.yaml <<-EOF
		name: s
		parallel: 2
		defaults: {time_limit: 120s}
		experiments:
		- {name: first, command: ./part first, needs: 2500MiB}
		- {name: gate, command: ./part gate, needs: 1GiB}
		- {name: fits, command: ./part fits, needs: 1GiB}
		- {name: large, command: ./part large, needs: 2500MiB}
	EOF
	neap series s.yaml --folder s >out 2>err &
	series=$!
	until_ready $series 'grep -qs "begin first" log && grep -qs "begin gate" log'
	kill -KILL "$series"
	wait "$series" || true
	touch open
	until [ -e s/runs/gate-1/result.json ]; do sleep 0.01; done
	run neap series s.yaml --folder s --resume
	[ "$status" -eq 0 ]
	[ "$(grep -n -e "end first" log | cut -d: -f1)" -lt "$(grep -n -e "begin large" log | cut -d: -f1)" ]
	[ "$(grep -n -e "begin fits" log | cut -d: -f1)" -lt "$(grep -n -e "end first" log | cut -d: -f1)" ]
}

@test "memory that is not given back: the process that has the device's file open is named" {
	mkdir files
	export NEAP_SIM_FILES="$dir/files"
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: "sh -c 'touch begun; until [ -e go ]; do sleep 0.02; done'", needs: none, drain_limit: 100ms}
	EOF
	neap series s.yaml --folder s >out 2>err &
	series=$!
	until_ready $series '[ -e begun ]'
	# Not the run's process, and not listed by the driver: such as a loader's worker whose parent is gone.
	NEAP_SIM_HIDDEN=1 hold --for 60000 1G &
	holder=$!
	until_ready $holder 'neap sim inspect | grep -q "memory 1.00 GiB"'
	touch go
	wait "$series"
	kill "$holder"
	[ "$(result e-1 .drained)" = false ]
	[[ "$(result e-1 .drain_note)" == *"; process $holder (hold --for 60000 1G) has $dir/files/nvidia0 open"* ]]
}

@test "processes that an experiment leaves with the device's file open are named and ended, and its memory comes back" {
	mkdir files
	export NEAP_SIM_FILES="$dir/files"
	cat > train <<-EOF
		#!/bin/sh
		NEAP_SIM_HIDDEN=1 setsid hold --for 60000 1G &
		until neap sim inspect | grep -q "memory 1.00 GiB"; do sleep 0.02; done
	EOF
	chmod +x train
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: ./train, needs: none}
	EOF
	show 'neap series s.yaml --folder s'
	[ "$(result e-1 .drained)" = true ]
	expect left_behind "$device_seen" '(\[1/1\] e: ok) .*/\1' '^e .*/e'
}

@test "on a terminal the last line shows what runs; elsewhere, and on a dumb terminal, there are only plain lines" {
	need_terminal
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none}
		experiments:
		- {name: quick, command: "true"}
		- {name: steps, command: "sh -c 'hold --recover --for 120000 1G & until [ -e go ]; do sleep 0.02; done; kill \$!'"}
	EOF
	export TERM=xterm NEAP_SIM="$NEAP_SIM,context=512MiB" # that is a part of the device's memory
	python3 "$BATS_TEST_DIRNAME/pty.py" screen 60 neap series s.yaml --folder s --quiet >out &
	series=$!
	until grep -aq "\[2/2\] steps: .* s, step 1, loss 1.5, 1.50 GiB of 3.97.." screen; do
		kill -0 "$series"
		sleep 0.05
	done
	touch go
	wait "$series"
	# The line of progress is cut to the terminal's width; lines about events are not.
	[ "$(tr '\r' '\n' < screen | sed 's/\x1b\[K//g' | grep -av -e ": attempt " -e ": ok in " | grep -acE '.{60}')" = 0 ]
	# The screen at the end: the plain lines, each whole, and no remainder of the line of progress.
	sed 's/.*\r\x1b\[K//; s/\r$//' screen > lines
	[ "$(grep -ac "^\[1/2\] quick: " lines)" = 2 ]
	[ "$(grep -ac "^\[2/2\] steps: " lines)" = 2 ]
	grep -aq "^\[2/2\] steps: ok in " lines
	TERM=dumb python3 "$BATS_TEST_DIRNAME/pty.py" dumb 60 neap series s.yaml --folder t --quiet >out
	[ "$(grep -ac $'\x1b' dumb)" = 0 ]
	neap series s.yaml --folder u --quiet >out 2>err
	[ "$(grep -c $'\x1b' err)" = 0 ]
}

@test "a damaged result is a lost attempt, and reported so" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none}
		experiments:
		- {name: e, command: "sh -c 'test -e go || { touch begun; sleep 300; }'"}
	EOF
	neap series s.yaml --folder s >out 2>err &
	series=$!
	until_ready $series '[ -e begun ]'
	kill -KILL "$series"
	wait "$series" || true
	read -r supervisor _ < s/runs/e-1/supervisor
	kill -TERM "$supervisor"
	until [ -e s/runs/e-1/result.json ]; do sleep 0.01; done
	until flock --nonblock s/runs/e-1/lock true; do sleep 0.01; done
	echo '{"schema": 1, "na' > s/runs/e-1/result.json
	touch go
	run neap series s.yaml --folder s --resume
	[ "$status" -eq 0 ]
	[[ "$output" == *"e: attempt 1 is lost: its result is damaged: "* ]]
	[ "$(result e-2 .outcome)" = ok ]
}

@test "a dry run notices a command that is not there" {
	mkdir sub
	printf '#!/bin/sh\n' >sub/here && chmod +x sub/here
	cat >s.yaml <<-END
		name: s
		experiments:
		- {name: fine, command: "true"}
		- {name: beside, command: ./here, directory: sub}
		- {name: misspelt, command: no-such-trainer --steps 3}
		- {name: elsewhere, command: ./here}
	END
	show 'neap series s.yaml --dry-run'
	sed -i -e /misspelt/d -e /elsewhere/d s.yaml
	neap series s.yaml --dry-run
	expect dry_run
}

@test "the plan shows every setting, and starts nothing" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: touch ran, needs: 2GiB, directory: /, max_host: 3GiB, retry_failed: 1, env: {A: b c}}
	EOF
	show 'neap series s.yaml --dry-run'
	[ ! -e ran ]
	[ ! -e "$XDG_STATE_HOME/neap/series" ]
	expect plan
}

@test "a stopped series says how to continue it, and that works" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: "sh -c 'test -e done || { touch begun; exec sleep 300; }'", needs: none}
	EOF
	neap series s.yaml --folder "$dir/a series" >out 2>err &
	series=$!
	until_ready $series '[ -e begun ]'
	kill -TERM "$series"
	status=0
	wait "$series" || status=$?
	[ "$status" -eq 143 ]
	touch done
	rest="$(sed -n "s/.*; continue with: neap //p" err)"
	[ "$rest" = "series s.yaml --resume --folder '$dir/a series'" ]
	eval "neap $rest"
	[ -e "$dir/a series/report.html" ]
}

@test "a command of a series gets its signals as they are at a shell" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: pipe, command: "sh -c 'kill -PIPE \$\$'", needs: none}
		- {name: size, command: "sh -c 'kill -XFSZ \$\$'", needs: none}
	EOF
	run neap series s.yaml --folder s --quiet
	[ "$(result pipe-1 .exit_status)" = 141 ]
	[ "$(result size-1 .exit_status)" = 153 ]
}

five() {
	cat > s.yaml <<-EOF2
		name: s
		defaults: {needs: none}
		experiments:
		- {name: good, command: "sh -c 'echo good >> ran'"}
		- {name: other, command: "sh -c 'echo other >> ran'"}
		- {name: bad, command: "sh -c 'echo bad >> ran; test -e fixed'"}
		- {name: old, command: "sh -c 'echo old >> ran'"}
		- {name: worse, command: "sh -c 'echo worse >> ran; exit 4'"}
	EOF2
}

@test "an edited file: successes stay; failed, changed and new experiments run, and are listed first" {
	five
	show 'neap series s.yaml --folder s --resume --dry-run'
	[ ! -e s ]
	show 'neap series s.yaml --folder s --quiet'
	touch fixed
	sed -i -e '/name: old/d' -e 's/echo other/echo changed/' s.yaml
	echo "- {name: new, command: \"sh -c 'echo new >> ran'\"}" >> s.yaml
	show 'neap series s.yaml --folder s --quiet' # without --resume it is a finished series, as before
	: > ran
	show 'neap series s.yaml --folder s --resume --dry-run; cat ran'
	show 'neap series s.yaml --folder s --resume --quiet; xargs <ran'
	: > ran
	show 'neap series s.yaml --folder s --resume; cat ran' # the file is unchanged: the report again
	expect edited
}

@test "--only-failed runs what failed and starts nothing else" {
	five
	show 'neap series s.yaml --folder s --only-failed'
	neap series s.yaml --folder s --quiet || true
	touch fixed
	: > ran
	show 'neap series s.yaml --folder s --only-failed --quiet; xargs <ran'
	# New experiments are left out, and run once they are wanted.
	echo "- {name: new, command: \"sh -c 'echo new >> ran'\"}" >> s.yaml
	sed -i 's/; exit 4//' s.yaml
	: > ran
	show 'neap series s.yaml --folder s --only-failed --quiet; xargs <ran'
	: > ran
	show 'neap series s.yaml --folder s --resume --quiet; xargs <ran'
	show 'neap series s.yaml --folder s --only-failed --slurm'
	expect only_failed
}

@test "an edited file while the old one's experiment still runs: refused until it has ended" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none}
		experiments:
		- {name: e, command: "sh -c 'echo >ready; while [ -e ready ] && [ ! -e go ]; do sleep 0.02; done'"}
	EOF
	neap series s.yaml --folder s >out 2>err 3>&- &
	series=$!
	until_ready $series '[ -s ready ]'
	kill -9 "$series"
	wait "$series" || true
	cp s.yaml before.yaml
	sed -i 's/e, command/f, command/' s.yaml
	run neap series s.yaml --folder s --resume
	[ "$status" -eq 75 ]
	[[ "$output" == *"'e' still runs as the series file was before it was edited: wait for its end, or end it ('neap kill'), and resume then"* ]]
	touch go
	cp before.yaml s.yaml
	run neap series s.yaml --folder s --resume
	[ "$status" -eq 0 ]
	[ "$(result e-1 .outcome)" = ok ]
}

@test "the table in the file's order, with chosen columns" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none, params: {batch: 8}}
		experiments:
		- {name: e, command: "hold --looks 4 {mib}M", grid: {mib: [100, 1500, 700]}}
		- {name: f, command: "hold --looks 4 2500M"}
	EOF
	show 'neap series s.yaml --folder s --columns name,los'
	show 'neap series s.yaml --folder s --sort size'
	[ ! -e s ]
	show 'neap series s.yaml --folder s --quiet --sort file --columns name,outcome,params,batch,loss'
	show 'neap series s.yaml --folder s --resume --columns name'
	expect columns
}
