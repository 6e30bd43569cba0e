#!/usr/bin/env bats
# neap run, end to end, over the simulator. Each test has its own world and its own folders.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir"
	export NEAP_SIM="mem=4GiB,world=run-$$-$BATS_TEST_NUMBER"
	mkdir -m 700 "$dir/runtime"
	unset LD_LIBRARY_PATH # with the simulator's folder in it, it would be found as the real driver
	cd "$dir"
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"run-$$-$BATS_TEST_NUMBER"*
}

result() { jq -r "$1" "${2:-$dir/run}/result.json"; }

@test "the command's own exit status is kept" {
	run "$NEAP" run --folder run -- sh -c 'echo out; exit 3'
	[ "$status" -eq 3 ]
	[[ "$output" == *out* ]]
	[ "$(result .outcome)" = failed ]
	[ "$(result .exit_status)" = 3 ]
	[ "$(result .backend)" = sim ]
	[ "$(result .schema)" = 1 ]
	run "$NEAP" run --folder run2 -- true
	[ "$status" -eq 0 ]
	[ "$(result .outcome run2)" = ok ]
}

@test "a command that does not exist: 127; one that cannot be run: 126" {
	run -127 "$NEAP" run --folder run -- ./no-such-command
	[[ "$output" == *"./no-such-command"*"No such file"* ]]
	[ "$(result .outcome)" = "not found" ]
	touch plain
	run "$NEAP" run --folder run2 --quiet -- ./plain
	[ "$status" -eq 126 ]
	[[ "$output" == *"Permission denied"* ]]
	[ "$(result .outcome run2)" = "not found" ]
}

@test "a signal: 128 + N" {
	run "$NEAP" run --folder run -- sh -c 'kill -SEGV $$'
	[ "$status" -eq 139 ]
	[ "$(result .outcome)" = signaled ]
	run "$NEAP" run --folder run2 -- sh -c 'kill -KILL $$'
	[ "$status" -eq 137 ]
	[ "$(result .outcome run2)" = signaled ]
}

@test "the child's environment has the three variables, and its arguments are kept as they are" {
	run "$NEAP" run --quiet --folder run --run-id my-run -- \
		sh -c 'echo "$NEAP_ATTACH $NEAP_RUN_ID $NEAP_RUN_DIR [$1] [$2] {x}"' sh 'a  b' ''
	[ "$status" -eq 0 ]
	[ "$output" = "1 my-run $dir/run [a  b] [] {x}" ]
}

@test "stdin, stdout and stderr are the command's" {
	run sh -c 'echo hello | "$NEAP" run --quiet --folder run -- sh -c "cat; echo oops >&2" 2>err'
	[ "$output" = hello ]
	[ "$(cat err)" = oops ]
}

@test "--log puts them into the folder" {
	run "$NEAP" run --quiet --log --folder run -- sh -c 'echo one; echo two >&2'
	[ "$output" = "" ]
	[ "$(cat run/stdout.log)" = one ]
	[ "$(cat run/stderr.log)" = two ]
}

@test "--log follows no link that another user may have put there" {
	[ "$(id -u)" = 0 ] || skip "only root can make a folder of another user's"
	chmod 755 .
	echo keep >victim
	for name in stdout.log stderr.log lock; do
		mkdir "theirs-$name"
		ln -s "$dir/victim" "theirs-$name/$name"
		chown -h 65534 "theirs-$name" "theirs-$name/$name"
		run "$NEAP" run --log --folder "theirs-$name" -- sh -c 'echo x >ran; echo out; echo err >&2'
		echo "$output"
		[ "$status" -ne 0 ]
		[ ! -e ran ]
		[ "$(cat victim)" = keep ]
	done
	[[ "$output" == *"theirs-lock/lock"* ]]
	mkdir theirs-pipe
	mkfifo theirs-pipe/stderr.log
	chown -R 65534 theirs-pipe
	run "$NEAP" run --log --folder theirs-pipe -- touch ran
	[ "$status" -eq 77 ]
	[[ "$output" == *"$dir/theirs-pipe belongs to user 65534, and stderr.log in it is not our file: give another --folder"* ]]
	mkdir theirs # without such a file it may be used
	chown 65534 theirs
	run "$NEAP" run --quiet --log --folder theirs -- sh -c 'echo out'
	[ "$status" -eq 0 ]
	[ "$(cat theirs/stdout.log)" = out ]
	mkdir run # and in a folder of our own a link is our own
	ln -s "$dir/elsewhere" run/stdout.log
	run "$NEAP" run --quiet --log --folder run -- sh -c 'echo out'
	[ "$(cat elsewhere)" = out ]
}

@test "SIGTERM is passed on, the outcome is canceled" {
	"$NEAP" run --folder run -- sh -c 'trap "echo bye >bye; exit 5" TERM; echo >ready; while :; do sleep 0.02; done' &
	pid=$!
	until [ -s ready ]; do sleep 0.02; done
	kill -TERM $pid
	code=0; wait $pid || code=$?
	[ "$code" -eq 5 ]
	[ "$(cat bye)" = bye ]
	[ "$(result .outcome)" = canceled ]
}

@test "a signal ends a stopped command too" {
	"$NEAP" run --folder run -- sh -c 'echo $$ >pid; exec sleep 1000' &
	pid=$!
	until [ -s pid ]; do sleep 0.02; done
	kill -STOP "$(cat pid)"
	kill -TERM $pid
	code=0; wait $pid || code=$?
	[ "$code" -eq 143 ]
}

@test "SIGINT ends it with 130; a second signal is SIGKILL" {
	# a background job of a script ignores SIGINT: restore it
	python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' \
		"$NEAP" run --folder run -- sh -c 'echo >ready; exec sleep 1000' &
	pid=$!
	until [ -s ready ]; do sleep 0.02; done
	kill -INT $pid
	code=0; wait $pid || code=$?
	[ "$code" -eq 130 ]
	[ "$(result .outcome)" = canceled ]
	rm ready
	"$NEAP" run --folder run2 -- sh -c 'trap "echo >got" TERM; echo >ready; while :; do sleep 0.02; done' &
	pid=$!
	until [ -s ready ]; do sleep 0.02; done
	kill -TERM $pid
	until [ -s got ]; do sleep 0.02; done
	kill -TERM $pid
	code=0; wait $pid || code=$?
	[ "$code" -eq 137 ]
	[ "$(result .outcome run2)" = canceled ]
}

# Programs save on SIGUSR1, SIGUSR2 or SIGXCPU: what sends them sends them to the supervisor.
@test "every signal that can be passed on reaches the command, and the result is written" {
	cat >catch <<-'END'
		import os, signal, sys, time
		leave = {"KILL", "STOP", "CHLD", "TSTP", "TTIN", "TTOU", "SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS"}
		def note(number, frame):
		    with open("got", "a") as file:
		        file.write(f"{number}\n")
		numbers = [n for n in signal.valid_signals() if n not in {getattr(signal, "SIG" + name) for name in leave}]
		for number in numbers:
		    signal.signal(number, note)
		with open("numbers.tmp", "w") as file:
		    file.write("\n".join(str(n) for n in numbers if n not in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
		os.rename("numbers.tmp", "numbers")
		while not os.path.exists("leave"):
		    time.sleep(0.01)
		sys.exit(7)
	END
	# a background job of a script ignores some: restore them
	cat >begin <<-'END'
		import os, signal, sys
		for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
		    signal.signal(number, signal.SIG_DFL)
		os.execv(sys.argv[1], sys.argv[1:])
	END
	NEAP_ATTACH=0 python3 begin "$NEAP" run --folder run -- python3 catch 3>&- &
	pid=$!
	until [ -s numbers ]; do kill -0 $pid; sleep 0.02; done
	touch got
	count=0
	for number in $(cat numbers); do
		kill -"$number" $pid
		until grep -qx "$number" got; do kill -0 $pid; sleep 0.01; done
		count=$((count + 1))
	done
	[ "$count" -gt 40 ]
	touch leave
	code=0; wait $pid || code=$?
	[ "$code" -eq 7 ]
	[ "$(result .outcome)" = failed ]
	[ "$(sort got | uniq -d)" = "" ] # each once
}

@test "a command that such a signal ends has a result, and so has one that it finds ended" {
	for number in USR1 USR2 XCPU ALRM VTALRM PROF RTMIN; do
		NEAP_ATTACH=0 "$NEAP" run --quiet --folder "$number" -- sh -c "echo >$number.ready; exec sleep 1000" 3>&- &
		pid=$!
		until [ -s $number.ready ]; do kill -0 $pid; sleep 0.02; done
		kill -"$number" $pid
		code=0; wait $pid || code=$?
		[ "$code" -eq $((128 + $(kill -l "$number"))) ]
		[ "$(result .outcome "$number")" = signaled ]
	done
	NEAP_SIM="$NEAP_SIM,release_delay=2s" "$NEAP" run --log-level info --folder drains -- "$HOLD" --looks 4 1G >out 2>&1 3>&- &
	pid=$!
	until grep -q "Clearing CUDA cache" out; do kill -0 $pid; sleep 0.02; done
	kill -USR1 $pid
	kill -PROF $pid
	wait $pid
	[ "$(result '.outcome, .drained' drains)" = "$(printf 'ok\ntrue')" ]
}

@test "at a terminal stdin is the command's, and Ctrl-C reaches it" {
	python3 -c 'import os; os.openpty()' 2>/dev/null || skip "needs a pseudo-terminal, which this machine does not give"
	cat >terminal.py <<'END'
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
def until(text):
    global seen
    while text not in seen:
        seen += os.read(fd, 4096)
until(b"ready")
os.write(fd, b"typed\n")
until(b"read typed")
os.write(fd, b"\x03")
try:
    while os.read(fd, 4096):
        pass
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
	code=0
	timeout 120 python3 terminal.py "$NEAP" run --folder run -- sh -c \
		'trap "echo >>ints" INT; echo ready; read x; echo "read $x"; while [ ! -s ints ]; do sleep 0.02; done; exit 6' || code=$?
	[ "$code" -eq 6 ]
	[ "$(result .outcome)" = canceled ]
}

@test "the time limit ends it" {
	run "$NEAP" run --folder run --time-limit 100ms -- sleep 1000
	[ "$status" -eq 143 ]
	[ "$(result .outcome)" = timeout ]
}

@test "a limit on device memory, host memory or disk space ends it, and the result says which" {
	NEAP_ATTACH=0 run "$NEAP" run --folder device --max-device 1GiB -- "$HOLD" --for 60000 2G
	[ "$status" -eq 143 ]
	[ "$(result .outcome device)" = "stopped early" ]
	evidence=$(result .evidence device)
	[[ "$evidence" == "device memory "[12].*" GiB above 1.00 GiB" ]] # a look may come before all of it is taken
	[[ "$output" == *"Ending the command: $evidence"* ]]
	[[ "$output" == *": stopped early ($evidence)"* ]]
	# Two processes: neither alone is above it.
	cat >take <<-'END'
		import os, time
		os.fork()
		held = bytearray(os.urandom(1 << 20)) * 60
		time.sleep(60)
	END
	run "$NEAP" run --folder host --max-host 100MiB -- python3 take
	[ "$status" -eq 143 ]
	[ "$(result .outcome host)" = "stopped early" ]
	[[ "$(result .evidence host)" == "host memory 1"*" MiB above 100 MiB" ]]
	# 32 MiB more than the limit, which others may take or give back meanwhile, and then 64 MiB are written.
	shm="$(mktemp -d /dev/shm/neap-test-XXXXXX)"
	free_kib="$(df --output=avail "$shm" | tail -1)"
	if [ "$free_kib" -lt 262144 ]; then # the simulated devices of other tests are there too
		rm -rf "$shm"
		skip "too little room in /dev/shm"
	fi
	run "$NEAP" run --folder "$shm/run" --min-disk $((free_kib - 32768))KiB -- \
		sh -c "head -c 64M /dev/zero >'$shm/data'; exec sleep 60"
	cp "$shm/run/result.json" disk.json
	rm -rf "$shm"
	[ "$status" -eq 143 ]
	[ "$(jq -r .outcome disk.json)" = "stopped early" ]
	[[ "$(jq -r .evidence disk.json)" == "disk space "*" below "* ]]
}

@test "with less disk space than its limit at the start it is not started" {
	run "$NEAP" run --folder run --min-disk 1000000TiB -- touch ran
	[ "$status" -eq 74 ]
	[[ "$output" == *"neap run: disk space "*" below "*" where $dir/run is: not started; make room"* ]]
	[ ! -e ran ]
	[ ! -e run/result.json ]
	cat > s.yaml <<-EOF
		name: s
		experiments: [{name: e, command: touch ran, needs: none, min_disk: 1000000TiB}]
	EOF
	run "$NEAP" series s.yaml --folder s
	[ "$status" -eq 74 ]
	[[ "$output" == *": not started; make room"*"1 experiment left; make room on the disk and go on with: neap series s.yaml --resume --folder s"* ]]
	[ ! -e ran ]
}

@test "near a limit it is warned of, once, and goes on" {
	"$NEAP" run --folder run --max-device 2200MiB -- "$HOLD" --until warned --looks 8 2G 2>err 3>&- &
	pid=$!
	until grep -q "Running short: device memory [12].* GiB near 2.15 GiB" err; do kill -0 "$pid"; sleep 0.02; done
	touch warned
	wait "$pid"
	[ "$(result .outcome)" = ok ]
	[ "$(grep -c "Running short" err)" -eq 1 ]
}

@test "pages that processes share count once" {
	cat >share <<-'END'
		import os, time
		held = bytearray(os.urandom(1 << 20)) * 60
		for i in range(3):
		    if os.fork() == 0: break
		time.sleep(0.6)
	END
	run "$NEAP" run --folder run --max-host 200MiB -- python3 share
	[ "$status" -eq 0 ]
	[ "$(result .outcome)" = ok ]
}

@test "a command that does not heed SIGTERM is killed when the grace has passed" {
	run "$NEAP" run --folder run --max-device 1GiB --grace 100ms -- \
		sh -c 'trap "" TERM; exec "$HOLD" --for 60000 2G'
	[ "$status" -eq 137 ]
	[[ "$output" == *"Ending the command"*"It did not end within 100 ms: SIGKILL"* ]]
	[ "$(result .outcome)" = "stopped early" ]
	# However early the limit comes: it is ignored from the start.
	run python3 -c 'import os, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])' \
		"$NEAP" run --folder run2 --time-limit 100ms --grace 100ms -- sleep 1000
	[ "$status" -eq 137 ]
	[ "$(result .outcome run2)" = timeout ]
}

@test "the command dies with its supervisor, and the lock is free then" {
	"$NEAP" run --folder run -- sh -c 'echo $$ >pid; exec sleep 1000' &
	pid=$!
	until [ -s pid ]; do sleep 0.02; done
	run flock --nonblock run/lock true
	[ "$status" -ne 0 ]
	kill -KILL $pid
	wait $pid || true
	while grep -qsE '^State:.[^ZX]' "/proc/$(cat pid)/status"; do sleep 0.02; done # whoever it was left to may not reap it
	flock --nonblock run/lock true
	[ ! -e run/result.json ]
}

@test "a supervisor that is killed after its command has ended costs nothing: the history has the run" {
	NEAP_SIM="$NEAP_SIM,release_delay=60s" "$NEAP" run --name kept --log --run-id kept-1 -- "$HOLD" --looks 8 --exit 3 1G 3>&- >out 2>&1 &
	pid=$!
	folder="$XDG_STATE_HOME/neap/runs/kept-1"
	until [ -e "$folder/ended" ]; do kill -0 $pid; sleep 0.02; done
	[ ! -e "$folder/result.json" ]
	run "$NEAP" history # it goes on: its memory has not drained
	[[ "$output" != *kept* ]]
	kill -KILL $pid
	wait $pid || true
	run "$NEAP" history
	[ "$status" -eq 0 ]
	[[ "$output" == *"kept-1 "*" kept "*" failed "* ]]
	[ "$(result '.outcome, .exit_status, .drained, .attached' "$folder")" = "$(printf 'failed\n3\nfalse\ntrue')" ]
	[ "$(result '.peak_allocated_bytes >= 1073741824' "$folder")" = true ]
	[ "$(result .drain_note "$folder")" = "not waited for: the supervisor was ended first" ]
	[ "$(ls "$folder" | grep -c '^began$\|^ended$')" = 0 ]
	[ "$("$NEAP" history --json | jq '.runs | length')" = 1 ]
}

@test "a folder whose run has ended is not used for another, whichever process made its result" {
	NEAP_SIM="$NEAP_SIM,release_delay=60s" "$NEAP" run --folder run -- "$HOLD" --looks 4 1G 3>&- >out 2>&1 &
	pid=$!
	until [ -e run/ended ]; do kill -0 $pid; sleep 0.02; done
	kill -KILL $pid
	wait $pid || true
	run "$NEAP" run --folder run -- touch ran
	[ "$status" -eq 73 ]
	[ ! -e ran ]
	[ "$(result .outcome)" = ok ]
}

@test "a name is one line of text" {
	for name in "" $'two\nlines' $'a\e[31m'; do
		run "$NEAP" run --name "$name" -- true
		[ "$status" -eq 64 ]
		[[ $output == *"--name: expected a text of one line"* ]]
	done
	"$NEAP" run --quiet --name "Größe 1" -- true
}

@test "what the command leaves running is named and ended" {
	run "$NEAP" run --folder run -- sh -c 'sleep 1000 & echo $! >one; setsid sleep 1000 & echo $! >two; exit 0'
	[ "$status" -eq 0 ]
	[[ "$output" == *"Ended process"*"sleep"* ]]
	[ ! -e "/proc/$(cat one)" ]
	[ ! -e "/proc/$(cat two)" ]
}

# A control group can be had here, or the test is skipped with the reason.
need_group() {
	"$NEAP" run --quiet --no-history --folder probe -- true
	[[ "$(result .containment probe)" == "control group "* ]] || skip "no control group: $(result .containment probe)"
}

# Waits until no process of these files' PIDs is there.
all_gone() {
	for file; do
		while grep -qsE '^State:.[^ZX]' "/proc/$(cat "$file")/status"; do sleep 0.02; done
	done
}

@test "a supervisor that is killed leaves nothing running, not even what has left its session and its environment" {
	need_group
	"$NEAP" run --folder run -- sh -c 'env -i setsid sh -c "echo \$\$ >daemon; exec sleep 1000" &
		sh -c "echo \$\$ >child; exec sleep 1000" & echo $$ >pid; wait' 3>&- &
	pid=$!
	until [ -s daemon ] && [ -s child ] && [ -s pid ]; do kill -0 $pid; sleep 0.02; done
	group="$(grep -o '^0::.*' "/proc/$(cat daemon)/cgroup")"
	[ "$group" = "$(grep -o '^0::.*' "/proc/$(cat pid)/cgroup")" ]
	kill -KILL $pid
	wait $pid || true
	all_gone pid child daemon
	mount="$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)"
	while [ -e "$mount${group#0::}" ]; do sleep 0.02; done # and its group is removed
}

@test "a daemon without an environment is found and ended when its command has ended" {
	run "$NEAP" run --folder run -- sh -c 'env -i setsid sh -c "echo \$\$ >daemon; exec sleep 1000" >/dev/null 2>&1 &
		until [ -s daemon ]; do sleep 0.01; done'
	[ "$status" -eq 0 ]
	[[ "$output" == *"Ended process $(cat daemon) (sleep 1000), which the command left running"* ]]
	all_gone daemon
	[[ "$output" == *"  contained by $(result .containment)"* ]]
}

@test "a series finds a daemon without an environment after its supervisor and its guard are gone" {
	need_group
	cat >s.yaml <<-'EOF'
		name: s
		experiments:
		- {name: e, needs: none, command: [sh, -c, '[ -s daemon ] && exit 0; env -i setsid sh -c "echo \$\$ >daemon; exec sleep 1000" >/dev/null 2>&1 & exec sleep 1000']}
	EOF
	"$NEAP" series s.yaml --folder s >out 2>&1 3>&- &
	pid=$!
	until [ -s daemon ]; do kill -0 $pid; sleep 0.02; done
	supervisor="$(cut -d' ' -f1 s/runs/e-1/supervisor)"
	for child in $(cat "/proc/$supervisor/task/$supervisor/children"); do
		[ "$(cat "/proc/$child/comm")" != neap-guard ] || guard=$child
	done
	kill -KILL "$guard" "$supervisor"
	wait $pid
	grep -q "process $(cat daemon) (sleep 1000) was left behind, ended" out
	all_gone daemon
	[ ! -e "$(sed 's/^control group //' <<<"$(result .containment probe | sed "s/neap-.*//")")neap-$(jq -r .run_id s/runs/e-1/spec.json)" ]
}

# A login session's group is root's, and systemd's user manager gives a scope: here a script in its place.
@test "in a login session the run lives in a scope of systemd's" {
	[ "$(id -u)" = 0 ] || skip "only root can make a login session"
	need_group
	setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$NEAP" || skip "another user cannot reach $NEAP"
	mount="$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)"
	slice="$mount/user.slice/user-65534.slice"
	[ ! -e "$mount/user.slice" ] || skip "there are login sessions here"
	mkdir -p "$slice/session-1.scope" bin
	cat >bin/busctl <<-END
		#!/bin/sh
		[ "\$1 \$7 \$9" = "--user StartTransientUnit neap-mine.scope" ] || exit 1
		echo "\${15}" >$dir/asked.tmp && mv $dir/asked.tmp $dir/asked
		until [ -e $dir/answered ]; do sleep 0.01; done
	END
	chmod 755 bin/busctl
	chmod 777 . runtime
	{
		until [ -s asked ] || [ -e over ]; do sleep 0.01; done
		mkdir "$slice/neap-mine.scope"
		chown -R 65534 "$slice/neap-mine.scope"
		cat asked >"$slice/neap-mine.scope/cgroup.procs"
		touch answered
	} 3>&- &
	cat >session <<-END
		echo \$\$ >$slice/session-1.scope/cgroup.procs
		exec setpriv --reuid 65534 --regid 65534 --clear-groups env -u NEAP_DEVICE PATH=$dir/bin:$PATH \
			XDG_STATE_HOME=$dir/mine "\$NEAP" run --no-history --run-id mine --folder $dir/run -- \
			sh -c 'sed -n s/^0:://p /proc/self/cgroup >group; sleep 1000 & echo \$! >left; exit 3'
	END
	run sh session
	touch over
	wait
	rmdir "$slice/neap-mine.scope" "$slice/session-1.scope" "$slice" "$mount/user.slice" || true
	[ "$status" -eq 3 ]
	[ "$(cat group)" = /user.slice/user-65534.slice/neap-mine.scope ]
	[ "$(result .containment)" = "control group $slice/neap-mine.scope" ]
	all_gone left
}

@test "without a control group a run says so, and goes on as ever" {
	[ "$(id -u)" = 0 ] || skip "only root may hide the groups"
	run unshare -m sh -c 'umount -l -R /sys/fs/cgroup && exec "$NEAP" run --folder run -- sh -c "sleep 1000 & exit 3"'
	[ "$status" -eq 3 ]
	[[ "$output" == *"Ended process"*"sleep"* ]]
	[ "$(result .containment)" = "descent and NEAP_RUN_ID alone (no cgroup v2 is mounted)" ]
}

@test "a runtime folder that another user made first: reported with the remedy, and another one is used" {
	[ "$(id -u)" = 0 ] || skip "only root can be two users"
	setpriv --reuid 54321 --regid 54321 --clear-groups test -x "$NEAP" || skip "another user cannot reach $NEAP"
	[ ! -e /tmp/neap-54321 ] || skip "/tmp/neap-54321 is there"
	chmod 777 .
	as_user() { setpriv --reuid 54321 --regid 54321 --clear-groups env -u XDG_RUNTIME_DIR XDG_STATE_HOME="$dir/mine" "$@"; }
	mkdir -m 755 /tmp/neap-54321
	run as_user "$NEAP" run --folder run -- "$HOLD" --looks 4 1G
	as_user "$NEAP" info >info 2>&1 || true
	rmdir /tmp/neap-54321
	[ "$status" -eq 0 ]
	[[ "$output" == *"WARNING The runtime folder /tmp/neap-54321 belongs to user 0: $dir/mine/neap/runtime is used instead; have it removed, or set XDG_RUNTIME_DIR"* ]]
	[ "$(result .attached)" = true ]
	[ -d mine/neap/runtime ]
	! grep runtime info
}

@test "without a runtime folder nothing is attached, and a message says so" {
	XDG_RUNTIME_DIR="$dir/none" run "$NEAP" run --folder run -- true
	[ "$status" -eq 0 ]
	[[ "$output" == *"WARNING No process can be attached: making the runtime folder $dir/none/neap: No such file or directory"* ]]
}

@test "a folder is used once, and by one run at a time" {
	run "$NEAP" run --folder run -- true
	[ "$status" -eq 0 ]
	run "$NEAP" run --folder run -- touch ran
	[ "$status" -eq 73 ]
	[ ! -e ran ]
	[[ "$output" == *"result.json is there already"* ]]
	mkdir run2
	flock run2/lock "$NEAP" run --folder run2 -- touch ran >out 2>&1 || code=$?
	[ "$code" -eq 75 ]
	[ ! -e ran ]
}

@test "a result that is left while a run of the same folder waits for its lock stays" {
	mkdir run
	exec 8>run/lock
	flock 8
	"$NEAP" run --folder run -- touch ran >out 2>&1 8>&- &
	until readlink /proc/$!/fd/* 2>/dev/null | grep -q '/run/lock$' || ! kill -0 $! 2>/dev/null; do :; done
	echo left >run/result.json
	flock -u 8
	code=0
	wait $! || code=$?
	[ "$code" -eq 73 ] || [ "$code" -eq 75 ]
	[ ! -e ran ]
	[ "$(cat run/result.json)" = left ]
}

@test "an inherited lock is taken over" {
	mkdir run
	exec 7>run/lock
	flock 7
	run "$NEAP" run --folder run --lock-fd 7 -- sh -c '[ ! -e /proc/self/fd/7 ]'
	[ "$status" -eq 0 ]
	exec 7>&-
}

@test "wrong options: 64, and nothing is run" {
	for options in '--needs lots' '--time-limit soon' '--param 9=1' '--param a=1 --param a=2' '--retries 3' \
		'--on-oom halve' '--max-host much' '--min-disk 0' '--grace soon' '--param a=1 --on-oom "halve b"' '--run-id a/b' '--lock-fd 3' '--retries x' '--frobnicate'; do
		eval "run \"\$NEAP\" run $options -- touch ran"
		echo "$options: $status: $output"
		[ "$status" -eq 64 ]
		[ ! -e ran ]
	done
	run "$NEAP" run --param a=1 -- touch 'ran{b}'
	[ "$status" -eq 64 ]
	[[ "$output" == *"no parameter 'b'"* ]]
	run "$NEAP" run
	[ "$status" -eq 64 ]
}

@test "after an OOM the ladder is walked down, the effective batch kept" {
	cat >train <<'END'
#!/bin/sh
echo "batch $1 accumulate $2"
[ "$1" -le 8 ] && exit 0
echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2
exit 1
END
	chmod +x train
	run "$NEAP" run --folder run --log --param micro_batch=32 --param accumulate=1 \
		--on-oom 'halve micro_batch, double accumulate' -- ./train {micro_batch} {accumulate}
	[ "$status" -eq 0 ]
	[ "$(cat run/stdout.log)" = "$(printf 'batch 32 accumulate 1\nbatch 16 accumulate 2\nbatch 8 accumulate 4')" ]
	[ "$(result .outcome)" = ok ]
	[ "$(result .retries)" = 2 ]
	[ "$(result .parameters)" = "micro_batch=8 accumulate=4" ]
	[ "$(result .rung)" = "micro_batch 32 -> 8, accumulate 1 -> 4" ]
}

@test "the ladder ends: at its end, at --retries, and another failure does not start it" {
	oom='echo "CUDA out of memory" >&2; exit 1'
	run "$NEAP" run --folder run --log --param b=4 --on-oom 'halve b' -- sh -c "echo {b}; $oom"
	[ "$status" -eq 1 ]
	[ "$(cat run/stdout.log)" = "$(printf '4\n2\n1')" ]
	[ "$(result .outcome)" = oom ]
	[[ "$(result .evidence)" == *"CUDA out of memory"* ]]
	run "$NEAP" run --folder run2 --log --param b=64 --on-oom 'halve b' --retries 1 -- sh -c "echo {b}; $oom"
	[ "$(cat run2/stdout.log)" = "$(printf '64\n32')" ]
	run "$NEAP" run --folder run3 --log --param b=64 --on-oom 'halve b' -- sh -c "echo {b}; exit 1"
	[ "$(cat run3/stdout.log)" = 64 ]
	[ "$(result .outcome run3)" = failed ]
}

@test "--on-oom where nothing shows that memory ran out: a message" {
	python3 -c 'import os; os.openpty()' 2>/dev/null || skip "needs a pseudo-terminal, which this machine does not give"
	NEAP_ATTACH=0 python3 "$BATS_TEST_DIRNAME/pty.py" seen 80 "$NEAP" run --folder run --param b=64 --on-oom 'halve b' -- true
	[[ "$(head -n 1 seen)" == "neap run: NEAP_ATTACH=0 is set, and stderr is a terminal: without --log nothing will tell that memory ran out, and --on-oom changes nothing"* ]]
	NEAP_ATTACH=0 run "$NEAP" run --folder piped --param b=4 --on-oom 'halve b' -- \
		sh -c 'echo {b} >>tried; echo "CUDA out of memory" >&2; exit 1'
	[[ "$output" != *NEAP_ATTACH* ]]
	[ "$(cat tried)" = "$(printf '4\n2\n1')" ]
	NEAP_ATTACH=0 run "$NEAP" run --folder run2 --log --param b=64 --on-oom 'halve b' -- true
	[[ "$output" != *NEAP_ATTACH* ]]
	run "$NEAP" run --folder run3 --param b=64 --on-oom 'halve b' -- true
	[[ "$output" != *NEAP_ATTACH* ]]
}

@test "attached: peaks, device, headroom, curve" {
	run "$NEAP" run --log-level info --folder run -- "$HOLD" --looks 8 1G
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(result .outcome)" = ok ]
	[ "$(result .attached)" = true ]
	[ "$(result '.peak_allocated_bytes >= 1073741824')" = true ]
	[ "$(result '.peak_reserved_bytes >= .peak_allocated_bytes')" = true ]
	[ "$(result '.peak_device_bytes >= .peak_reserved_bytes')" = true ]
	[ "$(result .device_total_bytes)" = 4294967296 ]
	[ "$(result '.headroom_bytes + .peak_device_bytes <= 4294967296')" = true ]
	[ "$(result '.headroom_bytes > 2147483648')" = true ]
	[ "$(result .drained)" = true ]
	[ "$(result '.samples | length > 1')" = true ]
	[ "$(result '[.samples[][3]] | max >= 1073741824')" = true ]
	[[ "$output" == *"after cleanup: allocated=0.00GB, max_allocated=1.00GB, reserved=0.00GB, max_reserved=1.00GB"* ]]
	[[ "$output" == *"Cleaning up CUDA memory..."*"NVIDIA-SMI report:"*"memory.used [MiB], memory.free [MiB]"* ]]
}

@test "the drain is waited for and measured" {
	NEAP_SIM="$NEAP_SIM,release_delay=5s" run "$NEAP" run --folder run -- "$HOLD" --looks 4 --kill 9 1G
	[ "$status" -eq 137 ]
	[ "$(result .outcome)" = signaled ]
	[ "$(result .drained)" = true ]
	# From when the end was noticed, which may come after the driver's five seconds have begun.
	[ "$(result '.drain_ns >= 500000000')" = true ]
	[ "$("$NEAP" info --json | jq '.devices[0].ledger | .free + .driver_reserved == .total')" = true ]
}

@test "a drain that takes too long is reported" {
	NEAP_SIM="$NEAP_SIM,release_delay=30s" run "$NEAP" run --drain-limit 100ms --folder run -- "$HOLD" 1G
	[ "$status" -eq 0 ]
	[ "$(result .drained)" = false ]
	[[ "$(result .drain_note)" == *"GiB still held after"* ]]
}

@test "a device OOM is found in its recording, with a card" {
	run "$NEAP" run --folder run -- "$HOLD" 6G
	echo "$output"
	[ "$status" -eq 9 ]
	[ "$(result .outcome)" = oom ]
	[[ "$(result .evidence)" == "recorded: "*"6.00 GiB"* ]]
	[ "$(result .ooms)" = 1 ]
	[ "$(result '.oom_card | length > 0')" = true ]
	run "$NEAP" run --folder run2 --param size=6 --on-oom 'halve size' -- "$HOLD" '{size}G'
	[ "$status" -eq 0 ]
	[ "$(result .retries run2)" = 1 ]
	[ "$(result .rung run2)" = "size 6 -> 3" ]
	ls run2/start-1.record.*
}

@test "an OOM that the process came through is no failure" {
	run "$NEAP" run --folder run -- "$HOLD" --recover 6G
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(result .outcome)" = ok ]
	[ "$(result .ooms)" = 1 ]
	[ "$(result .rungs)" = 1 ]
	[ "$(result .steps)" = 1 ]
	[ "$(result .last_loss)" = 1.5 ]
	[ "$(result .rung)" = "micro_batch 64 -> 32, accumulate 1 -> 2" ]
	run "$NEAP" run --folder run2 -- "$HOLD" --recover --exit 4 6G
	[ "$status" -eq 4 ]
	[ "$(result .outcome run2)" = failed ]
}

@test "the start waits for the bytes it needs" {
	"$HOLD" --for 60000 2G 3>&- &
	holder=$!
	until "$NEAP" run --quiet --folder "probe-$RANDOM$RANDOM" --needs 3GiB --wait-limit 0 -- true >/dev/null 2>&1; [ $? -eq 75 ]; do sleep 0.01; done
	"$NEAP" run --folder run --needs 3GiB -- true >out 2>&1 3>&- &
	waiting=$!
	until grep -q "Waiting for 3.00 GiB.*holds" out; do
		kill -0 "$waiting"
		sleep 0.01
	done
	kill -9 "$holder"
	wait "$holder" || true
	wait "$waiting" # it ends well, or the test fails
	[ "$(result '.waited_ns > 0')" = true ]
	run "$NEAP" run --folder run2 --needs 5GiB -- touch ran
	[ "$status" -eq 75 ]
	[ "$(result .outcome run2)" = "no memory" ]
	[[ "$output" == *"more than"*"has"* ]]
	[ ! -e ran ]
	run "$NEAP" run --folder run3 --needs device -- true
	[ "$status" -eq 0 ]
}

@test "a run that waits for a device which cannot be read says so at once" {
	CUDA_VISIBLE_DEVICES=5 "$NEAP" run --folder run --needs device -- true 2>err 3>&- &
	pid=$!
	until grep -q "Waiting for the whole of the device, which cannot be read: " err; do kill -0 $pid; sleep 0.02; done
	kill -TERM $pid
	wait $pid || true
	[ "$(result .outcome)" = canceled ]
}

@test "without a driver the command runs, unwatched" {
	NEAP_DEVICE=cuda run "$NEAP" run --folder run -- sh -c 'exit 4'
	if [ "$(result .backend)" = cuda ]; then skip "there is a driver here: $(result .device_name)"; fi
	[ "$status" -eq 4 ]
	[ "$(result .backend)" = none ]
	[[ "$output" == *"not watched"* ]]
}

# A limit on file size stands in for a full disk: spec.json (short) fits, result.json does not.
@test "a result that cannot be written: 74, with the command's status reported" {
	mkdir run
	run sh -c 'ulimit -f 1; trap "" XFSZ; exec "$NEAP" run --no-history --folder run -- sh -c "exit 3"'
	echo "$output"
	[ "$status" -eq 74 ]
	[[ "$output" == *"own exit status was 3"* ]]
	[[ "$output" == *"result.json"* ]]
	[[ "$output" == *"The command's end is not on disk yet"* ]]
	[ "$(ls run)" = "$(printf 'began\nlock\nspec.json')" ]
}

@test "a disk that is full from the start: 74, nothing is run" {
	run sh -c 'ulimit -f 0; trap "" XFSZ; exec "$NEAP" run --no-history --folder run -- touch ran'
	[ "$status" -eq 74 ]
	[[ "$output" == *"spec.json"* ]]
	[ ! -e ran ]
}

@test "runs are in the history; with --no-history they are not" {
	"$NEAP" run --quiet --no-history --folder run -- true
	[ ! -e "$dir/state/neap/history.db" ]
	"$NEAP" run --quiet --name first --folder run2 -- true
	[ -s "$dir/state/neap/history.db" ]
}

@test "a reader of its messages that goes away does not cost the result" {
	{ "$NEAP" run --folder "$dir/gone" -- sh -c 'sleep 0.1; kill -PIPE $$' || echo $? > "$dir/status"; } 2>&1 | true
	[ "$(cat "$dir/status")" = 141 ]
	[ "$(jq -r .outcome "$dir/gone/result.json")" = signaled ]
}

@test "a run too short to be seen on the device is not reported as using nothing" {
	run "$NEAP" run --folder run -- true
	[[ "$output" == *"  device    "*" of 4.00 GiB left"* ]]
	[[ "$output" != *"0 B taken"* ]]
}

@test "of several devices, the watched one is CUDA's first: by UUID, whatever NVML's order" {
	export NEAP_SIM="mem=1GiB,gpus=2,world=run-$$-$BATS_TEST_NUMBER"
	mapfile -t uuids < <("$NEAP" info --json | jq -r '.devices[].uuid')
	for order in pci reversed; do
		export NEAP_SIM="mem=1GiB,gpus=2,order=$order,world=run-$$-$BATS_TEST_NUMBER"
		first=$([ $order = pci ] && echo 0 || echo 1)
		"$NEAP" run --quiet --folder "$order" -- true
		[ "$(result .device_uuid $order)" = "${uuids[$first]}" ]
		CUDA_VISIBLE_DEVICES=1 "$NEAP" run --quiet --folder "$order-1" -- true
		[ "$(result .device_uuid "$order-1")" = "${uuids[$((1 - first))]}" ]
		CUDA_VISIBLE_DEVICES="${uuids[1]:0:14}" "$NEAP" run --quiet --folder "$order-uuid" -- true
		[ "$(result .device_uuid "$order-uuid")" = "${uuids[1]}" ]
	done
	CUDA_VISIBLE_DEVICES=MIG-1234 run "$NEAP" run --folder mig -- true
	[ "$status" -eq 0 ]
	[[ "$output" == *"memory was not watched: CUDA_VISIBLE_DEVICES names a MIG instance: neap accounts for whole devices only"* ]]
}

@test "a context on a device that its process does not use is named, by info and at the end of the run" {
	export NEAP_SIM="mem=1GiB,gpus=2,context=8MiB,order=reversed,world=run-$$-$BATS_TEST_NUMBER"
	"$NEAP" run --folder stray -- "$HOLD" --stray --until seen --looks 8 4M >out 2>&1 3>&- &
	until "$NEAP" info --json >info.json && jq -e 'any(.processes[]; .stray_context)' info.json >/dev/null; do
		kill -0 $!
		sleep 0.02
	done
	run "$NEAP" info
	[[ "$output" == *"8.00 MiB a stray context: it has no allocation here, it works on GPU 1"* ]]
	# CUDA's first device is NVML's second here: the process works there, and the other is the stray one
	[ "$(jq -c '[.processes[] | select(.attached) | [.device, .stray_context]]' info.json)" = '[[1,false]]' ]
	[ "$(jq -c '[.processes[] | select(.stray_context) | [.device, .bytes]]' info.json)" = '[[0,8388608]]' ]
	touch seen
	wait $!
	pid=$(jq '[.processes[] | select(.stray_context)][0].pid' info.json)
	uuid=$(jq -r '.devices[0].uuid' info.json)
	[ "$(result .stray_contexts stray)" = \
		"process $pid held a context of 8.00 MiB on GPU 0 ($uuid) and allocated nothing there" ]
	grep -q "^  stray     process $pid held a context of 8.00 MiB on GPU 0" out
	run "$NEAP" run --folder tidy -- "$HOLD" --looks 8 4M
	[ "$(result .stray_contexts tidy)" = "" ]
	[[ "$output" != *stray* ]]
}
