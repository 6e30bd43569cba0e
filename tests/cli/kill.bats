#!/usr/bin/env bats
# neap kill on the simulator: memory comes back 300 ms after a process has ended. The tests use GPU 1.

sim=mem=4GiB,gpus=2,release_delay=300ms
load ../support/command.bash

# Returns when PID holds memory; fails if it ends before that.
await() {
	until_ready "$1" 'neap info --json | jq -e ".processes[] | select(.pid == '"$1"' and .bytes > 1073741824)" >/dev/null'
}

# hold_on DEVICE [COMMAND...]: a process in the background that becomes (or, for a command, starts) a holder on a device;
# its PID in $target
hold_on() {
	local device=$1
	shift
	CUDA_VISIBLE_DEVICES=$device "${@:-hold}" --for 60000 1G 3>&- 4>&- >/dev/null 2>&1 &
	target=$!
	targets+=("$target")
	[ $# -gt 0 ] || await "$target"
}

gone() { # the shell of bats has to reap it first
	wait "$1" 2>/dev/null || true
	[ ! -e "/proc/$1" ]
}

@test "for people: the preview, what ended, what came back" {
	export NEAP_SIM="${NEAP_SIM/release_delay=300ms/release_delay=3s}"
	hold_on 1
	show 'neap kill --pid $target --yes'
	gone "$target"
	expect kill
}

@test "as JSON: waits until its memory has come back" {
	hold_on 1
	show 'neap kill --pid $target --yes --json | jq -S .'
	gone "$target"
	expect json
}

@test "--dry-run shows the tree and ends nothing" {
	hold_on 1 sh -c 'hold "$@" & echo $! >child; wait' sh
	until_ready "$target" '[ -s child ]'
	child=$(cat child)
	targets+=("$child")
	await "$child"
	show 'neap kill --pid $target --dry-run'
	kill -0 "$target"
	kill -0 "$child"
	show 'neap kill --pid $target --yes'
	[ ! -e "/proc/$child" ] || [ "$(cut -d' ' -f3 "/proc/$child/stat")" = Z ]
	expect tree
}

@test "a stopped process ends too" {
	hold_on 0
	kill -STOP "$target"
	show 'neap kill --pid $target --yes'
	gone "$target"
	expect stopped
}

@test "a process that ignores SIGTERM: SIGKILL after the grace" {
	hold_on 0 sh -c 'trap "" TERM; exec hold "$@"' sh
	await "$target"
	show 'neap kill --pid $target --yes --grace 100ms'
	gone "$target"
	expect sigkill
}

@test "a process that ignores SIGTERM and keeps forking: none of its children is left" {
	setsid sh -c 'trap "" TERM; echo $$ >pid
		while :; do sleep 98765 & setsid sleep 98765 & (sleep 98765 &) & echo >>forks; sleep 0.02; done' 3>&- 4>&- >/dev/null 2>&1 &
	targets+=("$!")
	until [ -s forks ]; do sleep 0.02; done
	run neap kill --pid "$(cat pid)" --yes --grace 300ms
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(wc -l <forks)" -gt 3 ]
	[[ "$output" == *"Ended process "*" (sleep 98765) with SIGKILL; it came meanwhile"* ]]
	for process in /proc/[0-9]*; do
		[ "$(readlink "$process/cwd" 2>/dev/null)" != "$dir" ] || [ "$process" = "/proc/$$" ] ||
			[ "$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)" != "sleep 98765 " ]
	done
}

@test "a thread of the kernel: refused, 77" {
	[ "$(id -u)" -eq 0 ] || skip "another user's is refused as that"
	kernel=$(awk '$4 == 2 { print $1; exit }' /proc/[0-9]*/stat 2>/dev/null)
	[ -n "$kernel" ] || skip "no thread of the kernel is to be seen"
	for pid in 2 "$kernel"; do
		show 'neap kill --pid $pid --yes --dry-run'
	done
	expect kernel_thread '(PID1) \(.*?\):/\1 (THREAD):'
}

@test "a process without device memory is named before it is ended" {
	sleep 600 3>&- &
	targets+=($!)
	sleeper=$!
	show 'neap kill --pid $sleeper --dry-run'
	show 'neap kill --pid $sleeper --yes --json | jq -c ".processes[].ended_by"'
	expect no_device_memory
}

@test "without a terminal to ask on: requires --yes, and does nothing" {
	hold_on 0
	show 'neap kill --pid $target </dev/null'
	show 'neap kill --pid $target --json </dev/null'
	kill -0 "$target"
	expect no_terminal
}

@test "on a terminal it asks, and accepts only yes" {
	need_terminal
	cat >terminal.py <<'END'
import os, pty, sys
answer, argv = sys.argv[1], sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.execvp(argv[0], argv)
seen = b""
while b"[y/N] " not in seen:
    seen += os.read(fd, 4096)
os.write(fd, answer.encode() + b"\n")
try:
    while (more := os.read(fd, 4096)):
        seen += more
except OSError:
    pass
print(seen.decode().replace("\r", ""), end="")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
	hold_on 0
	show "timeout 120 python3 terminal.py '' neap kill --pid \$target"
	kill -0 "$target"
	show 'timeout 120 python3 terminal.py y neap kill --pid $target'
	gone "$target"
	expect asks
}

@test "a PID that is gone: 66, and the others in the list are not ended" {
	hold_on 0
	sh -c 'exit 0' 3>&- &
	ended=$!
	gone "$ended"
	show 'neap kill --pid $target --pid $ended --yes'
	kill -0 "$target"
	show 'neap kill --device 7 --yes'
	expect pid_gone
}

@test "PID 1 and the command's own ancestors: 77" {
	show 'neap kill --pid $$ --yes'
	show 'neap kill --pid 1 --yes'
	expect own_parents '(process PID\d) \(.*?\):/\1 (BATS):' 'process 1 \(.*?\):/process 1 (INIT):'
}

@test "another user's process: named and refused, 77; on a device only one's own are ended" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to be somebody else"
	command -v setpriv >/dev/null || skip "needs setpriv"
	setpriv --reuid=65534 --clear-groups sleep 600 3>&- &
	other=$!
	targets+=("$other")
	until [ "$(tr '\0' ' ' <"/proc/$other/cmdline")" = "sleep 600 " ]; do sleep 0.02; done
	hold_on 0
	show 'neap kill --pid $target --pid $other --yes'
	kill -0 "$target"
	kill -0 "$other"
	expect other_users
}

@test "--mine and --device: processes that use a GPU, by index and by UUID" {
	hold_on 0
	first=$target
	hold_on 1
	second=$target
	hold_on 1
	sleep 600 3>&- &
	bystander=$!
	targets+=("$bystander")
	[ "$(neap kill --mine --dry-run --json | jq -c '[.processes[].pid] | sort')" = "$(printf '%s\n' "$first" "$second" "$target" | sort -n | jq -sc .)" ]
	show 'neap kill --device $(neap info --json | jq -r .devices[1].uuid) --yes --json | jq -S .devices'
	gone "$second"
	gone "$target"
	show 'neap kill --device 1 --yes'
	show 'neap kill --mine --yes'
	gone "$first"
	kill -0 "$bystander"
	show 'neap kill --mine --yes'
	expect by_device
}

@test "memory that does not come back in time: 75, and a report" {
	export NEAP_SIM="${NEAP_SIM/300ms/60s}"
	hold_on 1
	show 'neap kill --pid $target --yes --drain-limit 100ms'
	expect not_back
}

@test "if the driver does not report a process's bytes" {
	hold_on 1
	show 'NEAP_SIM_NVML=no-process-bytes neap kill --pid $target --yes'
	expect no_process_bytes '-> .*B$/-> SIZE'
}

@test "the supervisor of a run notices, and its page shows the bytes" {
	CUDA_VISIBLE_DEVICES=1 neap run --folder run -- sh -c 'echo $$ >pid; exec hold --for 60000 1G' 3>&- >/dev/null 2>&1 &
	supervisor=$!
	until_ready "$supervisor" '[ -s pid ]'
	target=$(cat pid)
	targets+=("$target")
	await "$target"
	show 'NEAP_SIM_NVML=no-process-bytes neap kill --pid $target --yes --json | jq -S .devices'
	code=0; wait "$supervisor" || code=$?
	[ "$code" -eq 143 ]
	show 'result "{outcome, evidence, drained, device_uuid}"'
	expect supervised
}

@test "a run whose command handles SIGTERM itself: killed, with its own status; later ends are not" {
	neap run --folder run -- sh -c 'trap "exit 7" TERM; echo $$ >pid; while :; do sleep 0.05; done' 3>&- 2>err &
	supervisor=$!
	until_ready "$supervisor" '[ -s pid ]'
	targets+=("$(cat pid)")
	neap kill --pid "$(cat pid)" --yes
	code=0; wait "$supervisor" || code=$?
	[ "$code" -eq 7 ]
	show 'grep ^neap err | head -n 1; result .outcome'
	# an outdated file, or one without a number, means nothing
	for word in "4 5" "" "what"; do
		show "neap run --quiet --folder run2 -- sh -c 'echo \"\$0\" >\"\$NEAP_RUN_DIR/killed\"; exit 7' '$word'; result .outcome run2"
		rm -r run2
	done
	mkdir run2 && echo "4 99999999999999999999" >run2/killed # of an earlier start
	show 'neap run --quiet --folder run2 -- sh -c "exit 7"; result .outcome run2'
	expect handles_sigterm
}

@test "wrong usage: 64" {
	for options in '' '--pid 1 --mine' '--mine --device 0' '--pid x' '--mine --grace soon' '--mine --grace 25h' \
		'--mine --drain-limit soon'; do
		show "neap kill $options --yes"
		[ "$status" -eq 64 ]
	done
	expect usage
}
