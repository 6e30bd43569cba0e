#!/usr/bin/env bats
# neap series over the simulator: memory waited for and drained, the ladder, the history, the table and the page. Its
# journal and its exactly-once promise are tested in tests/series.

bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir"
	export NEAP_SIM="mem=4GiB,world=series-$$-$BATS_TEST_NUMBER"
	mkdir -m 700 "$dir/runtime"
	cd "$dir"
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"series-$$-$BATS_TEST_NUMBER"*
}

result() { jq -r "$2" "$dir/s/runs/$1/result.json"; }

@test "the table ranks the runs by their peak, and the last line is the report's path" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: small, command: "$HOLD 100M"}
		- {name: large, command: "$HOLD 1G"}
	EOF
	run "$NEAP" series s.yaml --folder s --quiet 2>/dev/null
	[ "$status" -eq 0 ]
	[[ "$output" == *large*small* ]]
	[ "${lines[-1]}" = s/report.html ]
	grep -q '<html' s/report.html
	grep -q small s/report.html
}

@test "each run's memory is drained before the next starts" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: first, command: "$HOLD --looks 4 --kill 9 1G"}
		- {name: second, command: "$HOLD 1G"}
	EOF
	NEAP_SIM="$NEAP_SIM,release_delay=5s" run "$NEAP" series s.yaml --folder s --log-level info
	[ "$status" -eq 1 ]
	[ "$(result first-1 .outcome)" = signaled ]
	[ "$(result second-1 .outcome)" = ok ]
	# From when the end was noticed, which may come after the driver's five seconds have begun.
	[ "$(result first-1 '.drained and .drain_ns >= 500000000')" = true ]
	[ "$(result first-1 '.ended_wall_ns - .started_wall_ns - .duration_ns | fabs < 10000')" = true ] # without the drain
	# From start to start: the first run, and then its drain.
	first="$(result first-1 .started_wall_ns)"
	second="$(result second-1 .started_wall_ns)"
	[ $((second - first)) -ge 500000000 ]
	[[ "$output" == *"first: signaled in "*", drained in "*"s"* ]]
	[[ "$output" == *"Cleaning up CUDA memory..."*"NVIDIA-SMI report:"*"0, 4064"* ]]
}

@test "the next run waits for the bytes it needs" {
	# Somebody else's memory, which is there until the second is seen to wait for it.
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: first, command: "true", needs: none}
		- {name: second, command: "$HOLD 2G", needs: 3GiB}
	EOF
	"$HOLD" --until go 2G 3>&- &
	holder=$!
	until "$NEAP" sim inspect | grep -q "memory 2.00 GiB"; do kill -0 "$holder"; sleep 0.02; done
	"$NEAP" series s.yaml --folder s >out 2>err 3>&- &
	series=$!
	until grep -q "Waiting for 3.00 GiB of .*: .* free" err; do kill -0 "$series"; sleep 0.02; done
	touch go
	wait "$holder"
	wait "$series"
	[ "$(result second-1 .outcome)" = ok ]
	[ "$(result second-1 '.waited_ns > 0')" = true ]
}

@test "memory of a run that is not back within its drain limit is reported" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: first, command: "$HOLD --looks 4 --kill 9 2G", drain_limit: 1ms}
		- {name: second, command: "true", needs: none}
	EOF
	NEAP_SIM="$NEAP_SIM,release_delay=60s" run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 1 ]
	[ "$(result first-1 .drained)" = false ]
	[[ "$output" == *"first: signaled in "*", not drained: 2."*"GiB still held after "* ]]
	[ "$(result second-1 .outcome)" = ok ]
}

@test "memory that does not become free in time: the run is not started, the series goes on" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: never, command: touch ran, needs: 5GiB, wait_limit: 50ms}
		- {name: after, command: "$HOLD 100M"}
	EOF
	run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 1 ]
	[ "$(result never-1 .outcome)" = "no memory" ]
	[ "$(result after-1 .outcome)" = ok ]
	[ ! -e ran ]
}

@test "a run that is out of memory comes through by its ladder" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- name: large
		  command: "$HOLD {gib}G"
		  params: {gib: 8, parts: 1}
		  on_oom: halve gib, double parts
	EOF
	run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 0 ]
	[ "$(result large-1 .retries)" = 2 ]
	[ "$(result large-1 .rung)" = "gib 8 -> 2, parts 1 -> 4" ]
	[ "$(result large-1 .command)" = "$HOLD 2G" ] # what was run last
	grep -q "$HOLD 2G" s/report.html
	[[ "$output" == *"gib 8 -> 2"* ]]
}

@test "what an experiment needs is taken from the history" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: "$HOLD 1G"}
	EOF
	run "$NEAP" series s.yaml
	[ "$status" -eq 0 ]
	[[ "$output" == *"e: attempt 1, needs the whole device"* ]]
	run "$NEAP" series s.yaml
	[ "$status" -eq 0 ]
	[[ "$output" == *"e: attempt 1, needs 1."*"GiB, as measured before"* ]]
	sed -i 's/1G/2G/' s.yaml # another command: what was measured does not hold for it
	run "$NEAP" series s.yaml
	[ "$status" -eq 0 ]
	[[ "$output" == *"e: attempt 1, needs the whole device"* ]]
}

@test "a supervisor that is killed: what its command left behind is ended, and the next attempt is run" {
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
	"$NEAP" series s.yaml --folder s >out 2>err &
	series=$!
	until [ -e child ]; do kill -0 "$series"; sleep 0.01; done
	until [ "$(cat "/proc/$(cat child)/comm")" = sleep ]; do sleep 0.01; done # perhaps in the middle of its exec
	read -r supervisor _ < s/runs/e-1/supervisor
	# Where the run has a control group, its guard would end what is left before the series can name it.
	guard=
	for one in $(cat "/proc/$supervisor/task/$supervisor/children"); do
		[ "$(cat "/proc/$one/comm")" != neap-guard ] || guard=$one
	done
	kill -9 $guard "$supervisor"
	wait "$series"
	grep -q "^process $(cat child) (sleep 300) was left behind, ended" err
	grep -q "e: attempt 1 is lost" err
	# Gone, or dead and not reaped yet.
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
		- {name: limit, command: "$HOLD --for 60000 2G", device: 1, max_device: 1GiB}
		- {name: fine, command: "$HOLD 10M"}
	EOF
	NEAP_SIM="$NEAP_SIM,gpus=2" run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 1 ]
	[ "$(cat "a folder/where")" = "$dir/a folder" ]
	uuid="$(result folder-1 .device_uuid)"
	[[ "$uuid" == GPU-* ]]
	[ "$(cat "a folder/device")" = "$uuid" ]
	[ "$(result fine-1 .device_uuid)" != "$uuid" ]
	[ "$(result nowhere-1 .outcome)" = "not found" ]
	[[ "$(result nowhere-1 .evidence)" == *"'nowhere': No such file"* ]]
	[ "$(result limit-1 .outcome)" = "stopped early" ]
	[ "$(result limit-1 .device_uuid)" = "$uuid" ]
	[[ "$(result limit-1 .evidence)" == "device memory "[12].*" GiB above 1.00 GiB" ]] # a look may come before all of it is taken
	[ "$(result fine-1 .outcome)" = ok ]
}

# spans FILE: how many of its lines "begin" and "end", in their order, were at most under way together.
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
	run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 0 ]
	[ "$(cat s/runs/*/result.json | jq -r .outcome | sort | uniq -c | xargs)" = "3 ok" ]
}

@test "parallel experiments are packed by the bytes they need" {
	cat > part <<-EOF
		#!/bin/sh
		echo begin >> log
		"$HOLD" --for 300 --until met 1G & # no shorter than until two have met
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
	run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 0 ]
	[ "$(most_together log)" = 2 ] # of 4 GiB
	[ "$(tail -n 2 log | xargs)" = "begin end" ] # the whole device, alone
}

@test "parallel experiments are given devices, by UUID" {
	cat > meet <<-EOF
		#!/bin/sh
		echo "\$CUDA_VISIBLE_DEVICES" > "on-\$1"
		until [ -s on-1 ] && [ -s on-2 ]; do sleep 0.02; done
		exec "$HOLD" 3G
	EOF
	chmod +x meet
	cat > s.yaml <<-EOF
		name: s
		parallel: 2
		experiments:
		- {name: e, command: "./meet {i}", needs: 3200MiB, grid: {i: [1, 2]}}
	EOF
	NEAP_SIM="$NEAP_SIM,gpus=2" run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 0 ]
	[[ "$(cat on-1)" == GPU-* && "$(cat on-2)" == GPU-* ]]
	[ "$(cat on-1)" != "$(cat on-2)" ]
	[ "$(result e-i=2-1 .device_uuid)" = "$(cat on-2)" ]
	# Only those that may be seen.
	NEAP_SIM="$NEAP_SIM,gpus=2" CUDA_VISIBLE_DEVICES="$(cat on-2)" run "$NEAP" series s.yaml --folder t
	[ "$status" -eq 0 ]
	[ "$(jq -r .device_uuid t/runs/*/result.json | sort -u)" = "$(cat on-2)" ]
}

@test "interrupted, all parallel experiments end, and are run again" {
	cat > s.yaml <<-EOF
		name: s
		parallel: 2
		defaults: {needs: none}
		experiments:
		- {name: e, command: "sh -c 'test -e go || { touch begun-{i}; exec sleep 300; }'", grid: {i: [1, 2, 3]}}
	EOF
	"$NEAP" series s.yaml --folder s >out 2>err &
	series=$!
	until [ -e begun-1 ] && [ -e begun-2 ]; do kill -0 "$series"; sleep 0.01; done
	kill -TERM "$series"
	status=0
	wait "$series" || status=$?
	[ "$status" -eq 143 ]
	grep -q "3 experiments left" err
	[ "$(result e-i=1-1 .outcome)" = canceled ]
	[ "$(result e-i=2-1 .outcome)" = canceled ]
	[ ! -e begun-3 ]
	touch go
	run "$NEAP" series s.yaml --folder s --resume
	[ "$status" -eq 0 ]
	[ "$(result e-i=2-2 .outcome)" = ok ]
	[ "$(result e-i=3-1 .outcome)" = ok ]
}

@test "what failed is run again as often as retry_failed says; what ran out of memory is not" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none, retry_failed: 2}
		experiments:
		- {name: second, command: "sh -c 'test -e second || { touch second; exit 3; }'"}
		- {name: never, command: "sh -c 'kill -SEGV \$\$'"}
		- {name: memory, command: "$HOLD 8G"}
		- {name: once, command: "false", retry_failed: 0}
	EOF
	run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 1 ]
	[ "$(result second-1 .outcome)" = failed ]
	[ "$(result second-2 .outcome)" = ok ]
	[[ "$output" == *"second: failed, another attempt (1 of 2)"* ]]
	[ "$(result never-3 .outcome)" = signaled ]
	[ ! -e s/runs/never-4 ]
	[ "$(result memory-1 .outcome)" = oom ]
	[ ! -e s/runs/memory-2 ]
	[ ! -e s/runs/once-2 ]
	run "$NEAP" series s.yaml --folder s --resume # what is journaled can be read
	[ "$status" -eq 1 ]
}

@test "a device that is gone is waited for" {
	NEAP_DEVICE=cuda LD_LIBRARY_PATH= "$NEAP" info >/dev/null 2>&1 && skip "there is a driver"
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: 100M, wait_limit: 60s, env: {NEAP_DEVICE: cuda, LD_LIBRARY_PATH: "$dir/driver"}}
		experiments:
		- {name: e, command: "$HOLD 10M"}
	EOF
	"$NEAP" series s.yaml --folder s >out 2>err &
	series=$!
	until grep -q "e: there is no device: trying again for 1 m" err; do kill -0 "$series"; sleep 0.02; done
	ln -s "$NEAP_SIM_PATH" driver
	wait "$series"
	[ "$(cat s/runs/e-*/result.json | jq -r .outcome)" = ok ]
	rm driver
	sed 's/60s/0s/' s.yaml > t.yaml
	run "$NEAP" series t.yaml --folder t
	[ "$status" -eq 69 ]
	[[ "$output" == *"1 experiment left; go on with: "* ]]
}

@test "a device that is lost while an experiment runs is waited for, and the experiment made again" {
	cat > train <<-EOF
		#!/bin/sh
		[ -e second ] && exec "$HOLD" 10M
		"$HOLD" 10M
		touch second "$dir/lost"
		exec "$HOLD" 10M
	EOF
	chmod +x train
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: ./train, needs: 100M}
		- {name: after, command: "$HOLD 10M", needs: 100M}
	EOF
	NEAP_SIM_LOST="$dir/lost" "$NEAP" series s.yaml --folder s >out 2>err &
	series=$!
	until grep -q "e: its device was lost: another attempt (1 of 2) when it is back, within 10 m" err; do
		kill -0 "$series"
		sleep 0.02
	done
	[ "$(result e-1 .outcome)" = "device lost" ]
	[[ "$(result e-1 .evidence)" == *"NVML error 15: GPU is lost" ]]
	[ "$(result e-1 .drained)" = false ]
	rm lost
	wait "$series"
	grep -q "e: the device is back after" err
	[ "$(result e-2 .outcome)" = ok ]
	[ "$(result after-1 .outcome)" = ok ]
}

@test "a lost device that does not come back stops the series, which goes on later" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {wait_limit: 0s}
		experiments:
		- {name: e, command: "sh -c 'test -e second || { touch second lost; exit 1; }'", needs: none}
	EOF
	NEAP_SIM_LOST="$dir/lost" run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 69 ]
	[[ "$output" == *"the device GPU-"*", which 'e' lost, did not come back within 0"* ]]
	[[ "$output" == *"1 experiment left; go on with: neap series s.yaml --resume"* ]]
	rm lost
	run "$NEAP" series s.yaml --folder s --resume
	[ "$status" -eq 0 ]
	[ "$(result e-2 .outcome)" = ok ]
}

@test "an experiment that keeps losing its device comes to an end; retry_failed is not about it" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none, retry_failed: 5}
		experiments:
		- {name: e, command: "sh -c 'echo CUDA error: uncorrectable ECC error encountered >&2; exit 1'"}
		- {name: after, command: "true"}
	EOF
	run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 1 ]
	[ "$(result e-3 .outcome)" = "device lost" ]
	[ "$(result e-3 .evidence)" = "stderr: CUDA error: uncorrectable ECC error encountered" ]
	[ ! -e s/runs/e-4 ]
	[ "$(result after-1 .outcome)" = ok ]
	run "$NEAP" series s.yaml --folder s --resume # what is journaled can be read
	[ "$status" -eq 1 ]
}

@test "a device that is not there is refused before anything starts, unless it is to be waited for" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: fine, command: touch ran, needs: none}
		- {name: e, command: touch ran, needs: none, device: 7}
	EOF
	NEAP_SIM="$NEAP_SIM,gpus=2" run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 69 ]
	[[ "$output" == *"experiment 'e' (line 4): there is no device '7'; there are: 0 (GPU-"*"), 1 (GPU-"*"). With a wait_limit it is waited for"* ]]
	[[ "$output" != *"go on with"* ]]
	[ ! -e ran ]
	sed 's/device: 7/device: GPU-nonsense/' s.yaml > t.yaml
	run "$NEAP" series t.yaml --folder t
	[ "$status" -eq 69 ]
	sed 's/device: 7/device: 7, wait_limit: 0s/' s.yaml > u.yaml
	run "$NEAP" series u.yaml --folder u
	[ "$status" -eq 69 ]
	[ -e ran ]
	sed 's/device: 7/device: 1/' s.yaml > v.yaml
	NEAP_SIM="$NEAP_SIM,gpus=2" run "$NEAP" series v.yaml --folder v
	[ "$status" -eq 0 ]
}

@test "after a runner's crash, what still runs counts with what it needs" {
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
	"$NEAP" series s.yaml --folder s >out 2>err &
	series=$!
	until grep -qs "begin first" log && grep -qs "begin gate" log; do kill -0 "$series"; sleep 0.01; done
	kill -KILL "$series"
	wait "$series" || true
	touch open
	until [ -e s/runs/gate-1/result.json ]; do sleep 0.01; done
	run "$NEAP" series s.yaml --folder s --resume
	[ "$status" -eq 0 ]
	[ "$(grep -n -e "end first" log | cut -d: -f1)" -lt "$(grep -n -e "begin large" log | cut -d: -f1)" ]
	[ "$(grep -n -e "begin fits" log | cut -d: -f1)" -lt "$(grep -n -e "end first" log | cut -d: -f1)" ]
}

@test "memory that is not given back: who has the device's file open is named" {
	mkdir files
	export NEAP_SIM_FILES="$dir/files"
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: "sh -c 'touch begun; until [ -e go ]; do sleep 0.02; done'", needs: none, drain_limit: 100ms}
	EOF
	"$NEAP" series s.yaml --folder s >out 2>err &
	series=$!
	until [ -e begun ]; do kill -0 "$series"; sleep 0.01; done
	# Not the run's, and not listed by the driver: as the worker of a loader whose parent is gone.
	NEAP_SIM_HIDDEN=1 "$HOLD" --for 60000 1G &
	holder=$!
	until "$NEAP" sim inspect | grep -q "memory 1.00 GiB"; do kill -0 "$holder"; sleep 0.02; done
	touch go
	wait "$series"
	kill "$holder"
	[ "$(result e-1 .drained)" = false ]
	[[ "$(result e-1 .drain_note)" == *"; process $holder (hold --for 60000 1G) has $dir/files/nvidia0 open"* ]]
}

@test "what an experiment leaves behind with the device's file open is named and ended, and its memory comes back" {
	mkdir files
	export NEAP_SIM_FILES="$dir/files"
	cat > train <<-EOF
		#!/bin/sh
		NEAP_SIM_HIDDEN=1 setsid "$HOLD" --for 60000 1G &
		until "$NEAP" sim inspect | grep -q "memory 1.00 GiB"; do sleep 0.02; done
	EOF
	chmod +x train
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: ./train, needs: none}
	EOF
	run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 0 ]
	[[ "$output" == *"Ended process "*" (hold --for 60000 1G), which the command left running with $dir/files/nvidia0 open"* ]]
	[ "$(result e-1 .drained)" = true ]
}

@test "on a terminal the last line shows what runs; elsewhere, and on a dumb terminal, there are plain lines only" {
	python3 -c 'import os; os.openpty()' 2>/dev/null || skip "needs a pseudo-terminal, which this machine does not give"
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none}
		experiments:
		- {name: quick, command: "true"}
		- {name: steps, command: "sh -c '$HOLD --recover --for 120000 1G & until [ -e go ]; do sleep 0.02; done; kill \$!'"}
	EOF
	export TERM=xterm NEAP_SIM="$NEAP_SIM,context=512MiB" # which is of what the device has
	python3 "$BATS_TEST_DIRNAME/pty.py" screen 60 "$NEAP" series s.yaml --folder s --quiet >out &
	series=$!
	until grep -aq "\[2/2\] steps: .* s, step 1, loss 1.5, 1.50 GiB of 3.97.." screen; do
		kill -0 "$series"
		sleep 0.05
	done
	touch go
	wait "$series"
	# What runs is cut to the terminal's width; what happened is not.
	[ "$(tr '\r' '\n' < screen | sed 's/\x1b\[K//g' | grep -av -e ": attempt " -e ": ok in " | grep -acE '.{60}')" = 0 ]
	# What the screen shows in the end: the plain lines, each whole, and no rest of the other.
	sed 's/.*\r\x1b\[K//; s/\r$//' screen > lines
	[ "$(grep -ac "^\[1/2\] quick: " lines)" = 2 ]
	[ "$(grep -ac "^\[2/2\] steps: " lines)" = 2 ]
	grep -aq "^\[2/2\] steps: ok in " lines
	TERM=dumb python3 "$BATS_TEST_DIRNAME/pty.py" dumb 60 "$NEAP" series s.yaml --folder t --quiet >out
	[ "$(grep -ac $'\x1b' dumb)" = 0 ]
	"$NEAP" series s.yaml --folder u --quiet >out 2>err
	[ "$(grep -c $'\x1b' err)" = 0 ]
}

@test "a damaged result is a lost attempt, and reported so" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none}
		experiments:
		- {name: e, command: "sh -c 'test -e go || { touch begun; sleep 300; }'"}
	EOF
	"$NEAP" series s.yaml --folder s >out 2>err &
	series=$!
	until [ -e begun ]; do kill -0 "$series"; sleep 0.01; done
	kill -KILL "$series"
	wait "$series" || true
	read -r supervisor _ < s/runs/e-1/supervisor
	kill -TERM "$supervisor"
	until [ -e s/runs/e-1/result.json ]; do sleep 0.01; done
	until flock --nonblock s/runs/e-1/lock true; do sleep 0.01; done
	echo '{"schema": 1, "na' > s/runs/e-1/result.json
	touch go
	run "$NEAP" series s.yaml --folder s --resume
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
	run bash -c "\"$NEAP\" series s.yaml --dry-run 2>err"
	cat err
	[ "$status" -eq 66 ]
	[ "$(cat err)" = "neap series: misspelt: there is no command 'no-such-trainer' on PATH
neap series: elsewhere: there is no command './here'" ]
	[[ "$output" == *"4. elsewhere"* ]]
	sed -i /misspelt/d s.yaml
	sed -i /elsewhere/d s.yaml
	"$NEAP" series s.yaml --dry-run
}

@test "the plan shows every setting, and starts nothing" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: touch ran, needs: 2GiB, directory: /, max_host: 3GiB, retry_failed: 1, env: {A: b c}}
	EOF
	run "$NEAP" series s.yaml --dry-run
	[ "$status" -eq 0 ]
	for line in 'needs    2GiB' 'directory /' 'max_host 3GiB' 'retry_failed 1' 'env      A=b c'; do
		[[ "$output" == *"     $line"* ]]
	done
	[ ! -e ran ]
	[ ! -e "$XDG_STATE_HOME/neap/series" ]
}

@test "a series that is stopped says how to go on with it, and that works" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: e, command: "sh -c 'test -e done || { touch begun; exec sleep 300; }'", needs: none}
	EOF
	"$NEAP" series s.yaml --folder "$dir/a series" >out 2>err &
	series=$!
	until [ -e begun ]; do kill -0 "$series"; sleep 0.01; done
	kill -TERM "$series"
	status=0
	wait "$series" || status=$?
	[ "$status" -eq 143 ]
	touch done
	go_on="$(sed -n "s/.*; go on with: neap //p" err)"
	[ "$go_on" = "series s.yaml --resume --folder '$dir/a series'" ]
	eval "\"$NEAP\" $go_on"
	[ -e "$dir/a series/report.html" ]
}

@test "a command of a series gets its signals as they are at a shell" {
	cat > s.yaml <<-EOF
		name: s
		experiments:
		- {name: pipe, command: "sh -c 'kill -PIPE \$\$'", needs: none}
		- {name: size, command: "sh -c 'kill -XFSZ \$\$'", needs: none}
	EOF
	run "$NEAP" series s.yaml --folder s --quiet
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

@test "an edited file: successes are kept; failed, changed and new experiments run, and are listed first" {
	five
	run --separate-stderr "$NEAP" series s.yaml --folder s --resume --dry-run
	[ "$status" -eq 0 ]
	[ "$stderr" = "nothing of this series has been run yet" ]
	[ ! -e s ]
	run "$NEAP" series s.yaml --folder s --quiet
	[ "$status" -eq 1 ]
	touch fixed
	sed -i -e '/name: old/d' -e 's/echo other/echo changed/' s.yaml
	echo "- {name: new, command: \"sh -c 'echo new >> ran'\"}" >> s.yaml
	run "$NEAP" series s.yaml --folder s --quiet
	[ "$status" -eq 73 ] # without --resume it is a finished series, as ever
	: > ran
	run --separate-stderr "$NEAP" series s.yaml --folder s --resume --dry-run
	[ "$status" -eq 0 ]
	[ ! -s ran ]
	[[ "$stderr" == "$(printf '%s\n' "the series in s, whose file has changed since:" \
		"  1 ended and is kept: good" "  2 failed and are run again: bad, worse" \
		"  1 has another command, params or env and is run again: other" "  1 is new: new" \
		"  1 is no longer in the file: old")" ]]
	plan="$stderr"
	run --separate-stderr "$NEAP" series s.yaml --folder s --resume --quiet
	[ "$status" -eq 1 ]
	[[ "$stderr" == "$plan"$'\n'"["*"bad: attempt 2, "* ]]
	[ "$(xargs < ran)" = "changed bad worse new" ]
	[ "$(result bad-2 .outcome)" = ok ]
	[[ "$output" == *"worse: failed: exit status 4"* && "$output" != *"old "* ]]
	: > ran
	run --separate-stderr "$NEAP" series s.yaml --folder s --resume # the file is as it was: the report again
	[ "$status" -eq 1 ]
	[ ! -s ran ]
	[ "$stderr" = "" ]
}

@test "--only-failed runs what failed and begins nothing else" {
	five
	run "$NEAP" series s.yaml --folder s --only-failed
	[ "$status" -eq 66 ]
	[[ "$output" == *"nothing of this series has been run yet: begin it without --only-failed"* ]]
	run "$NEAP" series s.yaml --folder s --quiet
	[ "$status" -eq 1 ]
	touch fixed
	: > ran
	run --separate-stderr "$NEAP" series s.yaml --folder s --only-failed --quiet
	[ "$status" -eq 1 ]
	[[ "$stderr" == "the series in s:"*"  3 ended and are kept: good, other, old"*"  2 failed and are run again: bad, worse"* ]]
	[ "$(xargs < ran)" = "bad worse" ]
	# What is new is left out, and run once it is wanted.
	echo "- {name: new, command: \"sh -c 'echo new >> ran'\"}" >> s.yaml
	sed -i 's/; exit 4//' s.yaml
	: > ran
	run --separate-stderr "$NEAP" series s.yaml --folder s --only-failed --quiet
	[ "$status" -eq 0 ]
	[[ "$stderr" == *"  1 is new once it is resumed without --only-failed: new"* ]]
	[ "$(xargs < ran)" = worse ]
	[[ "$output" == *"new: canceled: not run: --only-failed left it out"* ]]
	: > ran
	run "$NEAP" series s.yaml --folder s --resume --quiet
	[ "$status" -eq 0 ]
	[ "$(xargs < ran)" = new ]
	run "$NEAP" series s.yaml --folder s --only-failed --slurm
	[ "$status" -eq 64 ]
}

@test "an edited file while the old one's experiment still runs: refused until it has ended" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none}
		experiments:
		- {name: e, command: "sh -c 'echo >ready; while [ -e ready ] && [ ! -e go ]; do sleep 0.02; done'"}
	EOF
	"$NEAP" series s.yaml --folder s >out 2>err 3>&- &
	series=$!
	until [ -s ready ]; do kill -0 "$series"; sleep 0.02; done
	kill -9 "$series"
	wait "$series" || true
	cp s.yaml before.yaml
	sed -i 's/e, command/f, command/' s.yaml
	run "$NEAP" series s.yaml --folder s --resume
	[ "$status" -eq 75 ]
	[[ "$output" == *"'e' still runs as the series file was before it was edited: wait for its end, or end it ('neap kill'), and resume then"* ]]
	touch go
	cp before.yaml s.yaml
	run "$NEAP" series s.yaml --folder s --resume
	[ "$status" -eq 0 ]
	[ "$(result e-1 .outcome)" = ok ]
}

@test "the table in the file's order, with chosen columns" {
	cat > s.yaml <<-EOF
		name: s
		defaults: {needs: none, params: {batch: 8}}
		experiments:
		- {name: e, command: "$HOLD {mib}M", grid: {mib: [100, 1500, 700]}}
		- {name: f, command: "$HOLD 2500M"}
	EOF
	run "$NEAP" series s.yaml --folder s --columns name,los
	[ "$status" -eq 64 ]
	[[ "$output" == *"--columns: no column 'los': name, outcome, peak, "*"loss, steps, params or a parameter's name"* ]]
	run "$NEAP" series s.yaml --folder s --sort size
	[ "$status" -eq 64 ]
	[ ! -e s ]
	run --separate-stderr "$NEAP" series s.yaml --folder s --quiet --sort file --columns name,outcome,params,batch,loss
	[ "$status" -eq 0 ]
	[ "$(head -n 5 <<<"$output")" = "$(printf '%s\n' 'NAME        OUTCOME  MIB   BATCH  LOSS' \
		'e-mib=100   ok       100   8         -' 'e-mib=1500  ok       1500  8         -' \
		'e-mib=700   ok       700   8         -' 'f           ok       -     8         -')" ]
	run --separate-stderr "$NEAP" series s.yaml --folder s --resume --columns name
	[ "$(head -n 5 <<<"$output" | xargs)" = "NAME f e-mib=1500 e-mib=700 e-mib=100" ]
}
