#!/usr/bin/env bats
# neap kill over the simulator: memory comes back 300 ms after a process has ended. Each test has its own world.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir"
	export NEAP_SIM="mem=4GiB,gpus=2,release_delay=300ms,world=kill-$$-$BATS_TEST_NUMBER"
	mkdir -m 700 "$dir/runtime"
	unset LD_LIBRARY_PATH NEAP_ATTACH NEAP_RUN_DIR NEAP_RUN_ID
	cd "$dir"
	targets=()
}

teardown() {
	for pid in "${targets[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
	cd /
	rm -rf "$dir" "/dev/shm/"*"kill-$$-$BATS_TEST_NUMBER"*
}

json() { jq -r "$1" <<<"$output"; }

# Returns when PID holds memory; fails when it ends before.
await() {
	until "$NEAP" info --json | jq -e ".processes[] | select(.pid == $1 and .bytes > 1073741824)" >/dev/null; do
		kill -0 "$1" || return 1
		sleep 0.02
	done
}

# start [COMMAND...]: a process in the background that becomes (or, for a command, starts) a holder; PID in $target
start() {
	"${@:-$HOLD}" --for 60000 1G 3>&- 4>&- >/dev/null 2>&1 &
	target=$!
	targets+=("$target")
	[ $# -gt 0 ] || await "$target"
}

gone() { # bats' shell has to reap it first
	wait "$1" 2>/dev/null || true
	[ ! -e "/proc/$1" ]
}

@test "a process ends by SIGTERM and its memory is seen to come back" {
	export NEAP_SIM="${NEAP_SIM/release_delay=300ms/release_delay=3s}"
	start
	run --separate-stderr "$NEAP" kill --pid "$target" --yes --json
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	gone "$target"
	[ "$(json '.schema, .dry_run, .processes[0].pid, .processes[0].ended_by, (.refused | length)')" = \
		"$(printf '1\nfalse\n%s\nSIGTERM\n0' "$target")" ]
	[ "$(json '.devices | length')" = 1 ]
	[ "$(json '.devices[0] | .device == 0 and .held_bytes > 1073741824 and .returned_bytes == .held_bytes and .left_bytes == 0')" = true ]
	[ "$(json '.devices[0] | .used_before_bytes - .used_after_bytes == .held_bytes')" = true ]
	[ "$(json '.drain_ns >= 200000000')" = true ] # the release was waited for
}

@test "for people: the preview, what ended, what came back" {
	start
	run "$NEAP" kill --pid "$target" --yes
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == *PID*process*"device memory" ]]
	[[ "${lines[1]}" == *"$target  "*"GPU 0: 1."*" GiB" ]]
	[[ "${lines[2]}" == "1 process holding 1."*" GiB" ]]
	[[ "${lines[3]}" == "Ended process $target (hold --for 60000 1G) with SIGTERM" ]]
	[[ "${lines[4]}" == "GPU 0: 1."*" GiB came back in "*"s; used 1."*" GiB -> "* ]]
}

@test "--dry-run shows the tree and does nothing" {
	start sh -c '"$HOLD" "$@" & echo $! >child; wait' sh
	until [ -s child ]; do sleep 0.02; done
	child=$(cat child)
	targets+=("$child")
	await "$child"
	run "$NEAP" kill --pid "$target" --dry-run
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[1]}" == *"$target  sh -c"*"  -" ]]
	[[ "${lines[2]}" == "          sh -c "*"; wait sh --for 60000 1G" ]] # whole, where the column cuts it
	[[ "${lines[3]}" == *"$child    hold --for"*"GPU 0: 1."*" GiB" ]]
	[[ "${lines[4]}" == "2 processes holding 1."*" GiB" ]]
	kill -0 "$target"
	kill -0 "$child"
	run --separate-stderr "$NEAP" kill --pid "$target" --yes --json
	[ "$status" -eq 0 ]
	[ "$(json '[.processes[] | .depth, .ended_by] | @csv')" = '0,"SIGTERM",1,"SIGTERM"' ]
	[ "$(json '.processes[1].devices[0].bytes == .devices[0].held_bytes')" = true ]
	[ ! -e "/proc/$child" ] || [ "$(cut -d' ' -f3 "/proc/$child/stat")" = Z ]
}

@test "a stopped process ends too" {
	start
	kill -STOP "$target"
	run --separate-stderr "$NEAP" kill --pid "$target" --yes --json
	[ "$status" -eq 0 ]
	[ "$(json '.processes[0].ended_by, .devices[0].left_bytes')" = "$(printf 'SIGTERM\n0')" ]
	gone "$target"
}

@test "one that ignores SIGTERM: SIGKILL after the grace" {
	start sh -c 'trap "" TERM; exec "$HOLD" "$@"' sh
	await "$target"
	run "$NEAP" kill --pid "$target" --yes --grace 100ms
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"Ended process $target ("*") with SIGKILL: it was not gone 100 ms after SIGTERM"* ]]
	[[ "$output" == *"came back in"* ]]
	gone "$target"
}

@test "one that ignores SIGTERM and goes on forking: nothing of it is left" {
	setsid sh -c 'trap "" TERM; echo $$ >pid
		while :; do sleep 98765 & setsid sleep 98765 & (sleep 98765 &) & echo >>forks; sleep 0.02; done' 3>&- 4>&- >/dev/null 2>&1 &
	targets+=("$!")
	until [ -s forks ]; do sleep 0.02; done
	run "$NEAP" kill --pid "$(cat pid)" --yes --grace 300ms
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
		run "$NEAP" kill --pid "$pid" --yes --dry-run
		echo "$output"
		[ "$status" -eq 77 ]
		[[ "$output" == *"process $pid ("*"): it is a thread of the kernel"*"nothing was ended"* ]]
	done
}

@test "a process without device memory is reported before it is ended" {
	sleep 600 3>&- &
	targets+=($!)
	run "$NEAP" kill --pid $! --dry-run
	[ "$status" -eq 0 ]
	[[ "${lines[2]}" == "1 process holding 0 B" ]]
	[[ "${lines[3]}" == "It holds no device memory that the driver or neap knows of: ending it gives none back." ]]
	run --separate-stderr "$NEAP" kill --pid $! --yes --json
	[ "$status" -eq 0 ]
	[ "$stderr" = "neap kill: it holds no device memory that the driver or neap knows of: ending it gives none back" ]
	[ "$(json '.processes[0].ended_by')" = SIGTERM ]
	start
	run "$NEAP" kill --pid "$target" --dry-run
	[[ "$output" != *"gives none back"* ]]
}

@test "no terminal to ask on: --yes is demanded, nothing is done" {
	start
	for more in '' --json; do
		run "$NEAP" kill --pid "$target" $more </dev/null
		[ "$status" -eq 64 ]
		[[ "$output" == *"give --yes to end them"* ]]
	done
	kill -0 "$target"
}

@test "on a terminal it asks, and takes only yes for yes" {
	python3 -c 'import os; os.openpty()' 2>/dev/null || skip "needs a pseudo-terminal, which this machine does not give"
	cat >terminal.py <<'END'
import os, pty, sys
answer, argv = sys.argv[1], sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.execv(argv[0], argv)
seen = b""
while b"[y/N] " not in seen:
    seen += os.read(fd, 4096)
os.write(fd, answer.encode() + b"\n")
try:
    while (more := os.read(fd, 4096)):
        seen += more
except OSError:
    pass
print(seen.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
	start
	run timeout 120 python3 terminal.py '' "$NEAP" kill --pid "$target"
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"End 1 process holding 1."*" GiB? [y/N]"*"nothing was ended"* ]]
	kill -0 "$target"
	run timeout 120 python3 terminal.py y "$NEAP" kill --pid "$target"
	[ "$status" -eq 0 ]
	[[ "$output" == *"with SIGTERM"*"came back"* ]]
	gone "$target"
}

@test "a PID that is gone: 66, and the others in the list live" {
	start
	sh -c 'exit 0' 3>&- &
	gone $!
	run "$NEAP" kill --pid "$target" --pid $! --yes
	echo "$output"
	[ "$status" -eq 66 ]
	[[ "$output" == *"process $!: it has ended, or never was"*"nothing was ended"* ]]
	kill -0 "$target"
	run "$NEAP" kill --device 7 --yes
	[ "$status" -eq 66 ]
}

@test "PID 1 and what the command was started from: 77" {
	run "$NEAP" kill --pid $$ --yes
	[ "$status" -eq 77 ]
	[[ "$output" == *"process $$ ("*"this command was started from it"*"nothing was ended"* ]]
	run "$NEAP" kill --pid 1 --yes
	[ "$status" -eq 77 ]
	[[ "$output" == *"process 1"*"PID 1 is never ended"* ]]
}

@test "another user's: named and refused, 77; on a device the own ones are ended" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to be somebody else"
	command -v setpriv >/dev/null || skip "needs setpriv"
	setpriv --reuid=65534 --clear-groups sleep 600 3>&- &
	other=$!
	targets+=("$other")
	until [ "$(tr '\0' ' ' <"/proc/$other/cmdline")" = "sleep 600 " ]; do sleep 0.02; done
	start
	run "$NEAP" kill --pid "$target" --pid "$other" --yes
	echo "$output"
	[ "$status" -eq 77 ]
	[[ "$output" == *"process $other (sleep 600): it is another user's"*"nothing was ended"* ]]
	kill -0 "$target"
	kill -0 "$other"
}

@test "--mine and --device: those that use a GPU, by index and by UUID" {
	start
	first=$target
	start
	sleep 600 3>&- &
	bystander=$!
	targets+=("$bystander")
	run --separate-stderr "$NEAP" kill --mine --dry-run --json
	[ "$status" -eq 0 ]
	[ "$(json '[.processes[].pid] | sort | join(" ")')" = "$(printf '%s\n' "$first" "$target" | sort -n | paste -sd' ')" ]
	run "$NEAP" kill --device 1 --yes
	[ "$status" -eq 0 ]
	[[ "$output" == "Nothing to end." ]]
	uuid=$("$NEAP" info --json | jq -r '.devices[0].uuid')
	run --separate-stderr "$NEAP" kill --device "$uuid" --yes --json
	[ "$status" -eq 0 ]
	[ "$(json '.processes | length')" = 2 ]
	[ "$(json '.devices[0] | .held_bytes > 2147483648 and .left_bytes == 0')" = true ]
	gone "$first"
	gone "$target"
	kill -0 "$bystander"
	run "$NEAP" kill --mine --yes
	[ "$status" -eq 0 ]
	[[ "$output" == "No process of yours uses a GPU." ]]
}

@test "memory that does not come back in time: 75, and a report" {
	export NEAP_SIM="${NEAP_SIM/300ms/60s}"
	start
	run "$NEAP" kill --pid "$target" --yes --drain-limit 100ms
	echo "$output"
	[ "$status" -eq 75 ]
	[[ "$output" == *"GPU 0: 0 B of 1."*" GiB came back in "* ]]
	[[ "$output" == *"GiB: the driver lists no process for it; it may still be freeing it"* ]]
}

@test "where the driver does not tell a process's bytes" {
	start
	export NEAP_SIM_NVML=no-process-bytes
	run "$NEAP" kill --pid "$target" --yes
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"GPU 0: ?"*"the driver does not tell what they held"* ]]
}

@test "the supervisor of a run notices, and its page shows the bytes" {
	"$NEAP" run --folder run -- sh -c 'echo $$ >pid; exec "$HOLD" --for 60000 1G' 3>&- >/dev/null 2>&1 &
	supervisor=$!
	until [ -s pid ]; do sleep 0.02; done
	target=$(cat pid)
	targets+=("$target")
	await "$target"
	NEAP_SIM_NVML=no-process-bytes run --separate-stderr "$NEAP" kill --pid "$target" --yes --json
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(json '.devices[0] | .held_bytes > 1073741824 and .left_bytes == 0')" = true ]
	[ "$(json '.drain_ns > 0')" = true ] # not for how long: the supervisor may have seen the end before
	code=0; wait "$supervisor" || code=$?
	[ "$code" -eq 143 ]
	[ "$(jq -r .outcome run/result.json)" = killed ]
	[[ "$(jq -r .evidence run/result.json)" =~ ^by\ neap\ kill,\ process\ [0-9]+$ ]]
	[ "$(jq -r .drained run/result.json)" = true ]
}

@test "a run whose command handles SIGTERM itself: killed, with its own status; later ends are not" {
	"$NEAP" run --folder run -- sh -c 'trap "exit 7" TERM; echo $$ >pid; while :; do sleep 0.05; done' 3>&- 2>err &
	supervisor=$!
	until [ -s pid ]; do sleep 0.02; done
	targets+=("$(cat pid)")
	run "$NEAP" kill --pid "$(cat pid)" --yes
	[ "$status" -eq 0 ]
	code=0; wait "$supervisor" || code=$?
	[ "$code" -eq 7 ]
	[ "$(jq -r .outcome run/result.json)" = killed ]
	grep -q "^neap run: sh: killed (by neap kill, process [0-9]*), exit status 7, " err
	# word that is out of date, or no word, says nothing
	for word in "4 5" "" "what"; do
		run "$NEAP" run --folder run2 -- sh -c 'echo "$0" >"$NEAP_RUN_DIR/killed"; exit 7' "$word"
		[ "$status" -eq 7 ]
		[ "$(jq -r .outcome run2/result.json)" = failed ]
		rm -r run2
	done
	mkdir run2 && echo "4 99999999999999999999" >run2/killed # of an earlier start
	run "$NEAP" run --folder run2 -- sh -c 'exit 7'
	[ "$(jq -r .outcome run2/result.json)" = failed ]
}

@test "wrong usage: 64" {
	for options in '' '--pid 1 --mine' '--mine --device 0' '--pid x' '--mine --grace soon' '--mine --grace 25h' \
		'--mine --drain-limit soon'; do
		run "$NEAP" kill $options --yes
		echo "$options: $output"
		[ "$status" -eq 64 ]
	done
}
