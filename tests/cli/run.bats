#!/usr/bin/env bats
# neap run, end to end, over the simulator.

sim=mem=4GiB
load ../support/command.bash

# How much of its memory is taken when the supervisor takes a sample, and what the sample shows of a process that ends
# at once.
device_memory='device memory [12]\.\d+ GiB/device memory SIZE'
near_host_limit='(?:^2> .* Running short: host memory .*\n)?(^2> .* Ending the command: host)/\1'
device_seen='^(2>   device +GPU \d+ \(Simulated GPU \d+ MiB\)):.*/\1'

# Waits, inside a command, until these PIDs have called exec.
until_sleeps='until_sleeps() { for one; do until [ "$(cat /proc/$one/comm)" = sleep ]; do :; done; done; }'

@test "the command's own exit status is kept" {
	show "neap run --folder run -- sh -c 'echo out; exit 3'"
	show 'neap run --folder run2 -- true'
	show 'result "{schema, outcome, exit_status, backend}"'
	show 'result "{outcome, exit_status}" run2'
	expect exit_status
}

@test "a command that does not exist: 127; one that cannot be run: 126" {
	touch plain
	show 'neap run --folder run -- ./no-such-command'
	show 'neap run --folder run2 --quiet -- ./plain'
	show 'result .outcome run; result .outcome run2'
	expect not_found
}

@test "a signal: 128 + N" {
	show "neap run --folder run -- sh -c 'kill -SEGV \$\$'"
	show "neap run --folder run2 -- sh -c 'kill -KILL \$\$'"
	expect signal
}

@test "the child's environment has the three variables, and its arguments are kept as they are" {
	run neap run --quiet --folder run --run-id my-run -- \
		sh -c 'echo "$NEAP_ATTACH $NEAP_RUN_ID $NEAP_RUN_DIR [$1] [$2] {x}"' sh 'a  b' ''
	[ "$output" = "1 my-run $dir/run [a  b] [] {x}" ]
}

@test "stdin, stdout and stderr are the command's; --log puts the last two into the folder" {
	show 'echo hello | neap run --quiet --folder run -- sh -c "cat; echo oops >&2"'
	show 'neap run --quiet --log --folder run2 -- sh -c "echo one; echo two >&2"; tail run2/std*.log'
	expect streams
}

@test "--log does not follow a link that another user may have put there" {
	[ "$(id -u)" = 0 ] || skip "only root can make a folder of another user's"
	chmod 755 .
	echo keep >victim
	for name in stdout.log stderr.log lock; do
		mkdir "theirs-$name"
		ln -s "$dir/victim" "theirs-$name/$name"
		chown -h 65534 "theirs-$name" "theirs-$name/$name"
		show "neap run --log --folder theirs-$name -- sh -c 'echo x >ran; echo out; echo err >&2'"
	done
	mkdir theirs-pipe
	mkfifo theirs-pipe/stderr.log
	chown -R 65534 theirs-pipe
	show 'neap run --log --folder theirs-pipe -- touch ran'
	[ ! -e ran ]
	[ "$(cat victim)" = keep ]
	mkdir theirs # without such a file it may be used
	chown 65534 theirs
	show 'neap run --quiet --log --folder theirs -- echo out; cat theirs/stdout.log'
	mkdir run # and in a folder of our own a link is our own
	ln -s "$dir/elsewhere" run/stdout.log
	show 'neap run --quiet --log --folder run -- echo out; cat elsewhere'
	expect log_links
}

@test "SIGTERM is passed on, the outcome is canceled" {
	neap run --folder run -- sh -c 'trap "echo bye >bye; exit 5" TERM; echo >ready; while :; do sleep 0.02; done' &
	pid=$!
	until [ -s ready ]; do sleep 0.02; done
	kill -TERM $pid
	code=0; wait $pid || code=$?
	[ "$code" -eq 5 ]
	[ "$(cat bye)" = bye ]
	[ "$(result .outcome)" = canceled ]
}

@test "a signal ends a stopped command too" {
	neap run --folder run -- sh -c 'echo $$ >pid; exec sleep 1000' &
	pid=$!
	until [ -s pid ]; do sleep 0.02; done
	kill -STOP "$(cat pid)"
	kill -TERM $pid
	code=0; wait $pid || code=$?
	[ "$code" -eq 143 ]
}

@test "SIGINT ends it with 130; a second one sends SIGKILL" {
	# a background job of a script ignores SIGINT: restore it
	python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])' \
		neap run --folder run -- sh -c 'echo >ready; exec sleep 1000' &
	pid=$!
	until [ -s ready ]; do sleep 0.02; done
	kill -INT $pid
	code=0; wait $pid || code=$?
	[ "$code" -eq 130 ]
	[ "$(result .outcome)" = canceled ]
	rm ready
	neap run --folder run2 -- sh -c 'trap "echo >got" TERM; echo >ready; while :; do sleep 0.02; done' &
	pid=$!
	until [ -s ready ]; do sleep 0.02; done
	kill -TERM $pid
	until [ -s got ]; do sleep 0.02; done
	kill -TERM $pid
	code=0; wait $pid || code=$?
	[ "$code" -eq 137 ]
	[ "$(result .outcome run2)" = canceled ]
}

# Programs save on SIGUSR1, SIGUSR2 or SIGXCPU. Their senders know the supervisor's PID alone, so it passes these on.
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
		os.execvp(sys.argv[1], sys.argv[1:])
	END
	NEAP_ATTACH=0 python3 begin neap run --folder run -- python3 catch 3>&- &
	pid=$!
	until_ready $pid '[ -s numbers ]'
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

@test "a command has a result if such a signal ends it, and if it had ended before" {
	for number in USR1 USR2 XCPU ALRM VTALRM PROF RTMIN; do
		NEAP_ATTACH=0 neap run --quiet --folder "$number" -- sh -c "echo >$number.ready; exec sleep 1000" 3>&- &
		pid=$!
		until_ready $pid "[ -s $number.ready ]"
		kill -"$number" $pid
		code=0; wait $pid || code=$?
		[ "$code" -eq $((128 + $(kill -l "$number"))) ]
		[ "$(result .outcome "$number")" = signaled ]
	done
	NEAP_SIM="$NEAP_SIM,release_delay=2s" neap run --log-level info --folder drains -- hold --looks 4 1G >out 2>&1 3>&- &
	pid=$!
	until_ready $pid 'grep -q "Clearing CUDA cache" out'
	kill -USR1 $pid
	kill -PROF $pid
	wait $pid
	[ "$(result '[.outcome, .drained]' drains)" = '["ok",true]' ]
}

@test "at a terminal stdin is the command's, and Ctrl-C reaches it" {
	need_terminal
	cat >terminal.py <<'END'
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
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
	timeout 120 python3 terminal.py neap run --folder run -- sh -c \
		'trap "echo >>ints" INT; echo ready; read x; echo "read $x"; while [ ! -s ints ]; do sleep 0.02; done; exit 6' || code=$?
	[ "$code" -eq 6 ]
	[ "$(result .outcome)" = canceled ]
}

@test "the time limit ends it" {
	show 'neap run --folder run --time-limit 100ms -- sleep 1000'
	expect time_limit
}

@test "a limit on device memory, host memory or disk space ends it, and the result says which" {
	show 'NEAP_ATTACH=0 neap run --folder device --max-device 1GiB -- hold --for 60000 2G'
	# Two processes: neither alone is above it.
	cat >take <<-'END'
		import os, time
		os.fork()
		held = bytearray(os.urandom(1 << 20)) * 60
		time.sleep(60)
	END
	show 'NEAP_ATTACH=0 neap run --folder host --max-host 100MiB -- python3 take'
	show 'result "{outcome, evidence}" device; result "{outcome, evidence}" host'
	# The supervisor may take its sample when the two have allocated nearly all of their memory.
	expect limits "$device_memory" 'host memory 1\d\d MiB/host memory SIZE' "$near_host_limit" "$device_seen"
	# 32 MiB more than the limit, since others may write or free as much meanwhile; then the command writes 64
	# MiB.
	shm="$(mktemp -d "/dev/shm/neap-test-XXXXXX-$world")"
	free_kib="$(df --output=avail "$shm" | tail -1)"
	[ "$free_kib" -ge 262144 ] || skip "too little room in /dev/shm" # simulated devices of other tests are there too
	run neap run --folder "$shm/run" --min-disk $((free_kib - 32768))KiB -- \
		sh -c "head -c 64M /dev/zero >'$shm/data'; exec sleep 60"
	[ "$status" -eq 143 ]
	[[ "$(result '[.outcome, .evidence]' "$shm/run")" == '["stopped early","disk space '*' below '* ]]
}

@test "if there is less disk space than its limit at the start, it is not started" {
	show 'neap run --folder run --min-disk 1000000TiB -- touch ran'
	cat > s.yaml <<-EOF
		name: s
		experiments: [{name: e, command: touch ran, needs: none, min_disk: 1000000TiB}]
	EOF
	show 'neap series s.yaml --folder s'
	[ ! -e ran ]
	[ ! -e run/result.json ]
	expect disk_limit_at_start 'disk space \S+ [KMGT]iB/disk space SIZE'
}

@test "near a limit there is one warning, and the command continues" {
	neap run --folder run --max-device 2200MiB -- hold --until warned --looks 8 2G 2>err 3>&- &
	pid=$!
	until_ready $pid 'grep -q "Running short" err'
	touch warned
	wait "$pid"
	show 'grep "Running short" err; result .outcome'
	expect near_limit "$device_memory"
}

@test "pages that processes share count once" {
	cat >share <<-'END'
		import os, time
		held = bytearray(os.urandom(1 << 20)) * 60
		for i in range(3):
		    if os.fork() == 0: break
		time.sleep(0.6)
	END
	neap run --quiet --folder run --max-host 200MiB -- python3 share
	[ "$(result .outcome)" = ok ]
}

@test "a command that ignores SIGTERM is killed at the end of the grace period" {
	show "neap run --folder run --max-device 1GiB --grace 100ms -- sh -c 'trap \"\" TERM; exec hold --for 60000 2G'"
	# However early the limit is reached: the command ignores SIGTERM from the start.
	ignore='import os, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])'
	show 'python3 -c "$ignore" neap run --folder run2 --time-limit 100ms --grace 100ms -- sleep 1000'
	expect grace "$device_memory" "$device_seen"
}

@test "the command dies with its supervisor, and the lock is then free" {
	neap run --folder run -- sh -c 'echo $$ >pid; exec sleep 1000' &
	pid=$!
	until [ -s pid ]; do sleep 0.02; done
	run flock --nonblock run/lock true
	[ "$status" -ne 0 ]
	kill -KILL $pid
	wait $pid || true
	while grep -qsE '^State:.[^ZX]' "/proc/$(cat pid)/status"; do sleep 0.02; done # its new parent may not reap it
	flock --timeout 60 run/lock true # its guard holds the lock until then
	[ ! -e run/result.json ]
}

@test "a supervisor that is killed after its command has ended loses nothing: the history has the run" {
	NEAP_SIM="$NEAP_SIM,release_delay=60s" neap run --name kept --log --run-id kept-1 -- hold --looks 8 --exit 3 1G 3>&- >out 2>&1 &
	pid=$!
	folder="$XDG_STATE_HOME/neap/runs/kept-1"
	until_ready $pid '[ -e "$folder/ended" ]'
	[ ! -e "$folder/result.json" ]
	show 'neap history' # the run is not over: its memory has not drained
	kill -KILL $pid
	wait $pid || true
	show 'neap history'
	show 'result "{outcome, exit_status, drained, drain_note, attached, peak_allocated_bytes}" $folder; ls $folder'
	expect supervisor_killed
}

@test "a folder whose run has ended is not used again, whichever process made its result" {
	NEAP_SIM="$NEAP_SIM,release_delay=60s" neap run --folder run -- hold --looks 4 1G 3>&- >out 2>&1 &
	pid=$!
	until_ready $pid '[ -e run/ended ]'
	kill -KILL $pid
	wait $pid || true
	show 'neap run --folder run -- touch ran; result .outcome'
	[ ! -e ran ]
	expect folder_ended
}

@test "a name is one line of text" {
	for name in "" $'two\nlines' $'a\e[31m'; do
		show 'neap run --name "$name" -- true'
	done
	neap run --quiet --name "Größe 1" -- true
	expect name
}

@test "processes that the command leaves running are named and ended" {
	cat >leave <<-END
		$until_sleeps
		sleep 1000 &
		one=\$!
		setsid sleep 1000 &
		until_sleeps \$one \$!
		echo \$one \$! >left
	END
	show 'neap run --folder run -- sh leave'
	for pid in $(cat left); do [ ! -e "/proc/$pid" ]; done
	expect left_running
}

# A control group is available here, or the test is skipped with the reason.
need_group() {
	neap run --quiet --no-history --folder probe -- true
	[[ "$(result .containment probe)" == "control group "* ]] || skip "no control group: $(result .containment probe)"
}

# Waits until none of the processes whose PIDs are in these files exists.
all_gone() {
	for file; do
		while grep -qsE '^State:.[^ZX]' "/proc/$(cat "$file")/status"; do sleep 0.02; done
	done
}

@test "a supervisor that is killed leaves nothing running, even if it left the session and the environment" {
	need_group
	neap run --folder run -- sh -c 'env -i setsid sh -c "echo \$\$ >daemon; exec sleep 1000" &
		sh -c "echo \$\$ >child; exec sleep 1000" & echo $$ >pid; wait' 3>&- &
	pid=$!
	until_ready $pid '[ -s daemon ] && [ -s child ] && [ -s pid ]'
	group="$(grep -o '^0::.*' "/proc/$(cat daemon)/cgroup")"
	[ "$group" = "$(grep -o '^0::.*' "/proc/$(cat pid)/cgroup")" ]
	kill -KILL $pid
	wait $pid || true
	all_gone pid child daemon
	mount="$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)"
	while [ -e "$mount${group#0::}" ]; do sleep 0.02; done # and its group is removed
}

@test "a daemon without an environment is found and ended when its command has ended" {
	cat >leave <<-END
		$until_sleeps
		env -i setsid sleep 1000 >/dev/null 2>&1 &
		until_sleeps \$!
		echo \$! >daemon
	END
	show 'neap run --folder run -- sh leave'
	all_gone daemon
	[[ "$stderr" == *"  contained by $(result .containment)"* ]]
	expect daemon
}

@test "a series finds a daemon without an environment after its supervisor and its guard are gone" {
	need_group
	cat >s.yaml <<-'EOF'
		name: s
		experiments:
		- {name: e, needs: none, command: [sh, -c, '[ -s daemon ] && exit 0; env -i setsid sh -c "echo \$\$ >daemon; exec sleep 1000" >/dev/null 2>&1 & exec sleep 1000']}
	EOF
	neap series s.yaml --folder s >out 2>&1 3>&- &
	pid=$!
	until_ready $pid '[ -s daemon ]'
	supervisor="$(cut -d' ' -f1 s/runs/e-1/supervisor)"
	for child in $(cat "/proc/$supervisor/task/$supervisor/children"); do
		[ "$(cat "/proc/$child/comm")" != neap-guard ] || guard=$child
	done
	# It is stopped first: a supervisor that saw the guard's end would record that the command was ended.
	kill -STOP "$supervisor"
	kill -KILL "$guard" "$supervisor"
	wait $pid
	grep -q "process $(cat daemon) (sleep 1000) was left behind, ended" out
	all_gone daemon
	[ ! -e "$(sed 's/^control group //' <<<"$(result .containment probe | sed "s/neap-.*//")")neap-$(jq -r .run_id s/runs/e-1/spec.json)" ]
}

# A login session's group belongs to root, and systemd's user manager gives a scope: a script takes its place here.
@test "in a login session the run lives in a scope of systemd's" {
	[ "$(id -u)" = 0 ] || skip "only root can make a login session"
	need_group
	setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$NEAP" || skip "another user cannot reach $NEAP"
	mount="$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)"
	slice="$mount/user.slice/user-65534.slice"
	[ ! -e "$mount/user.slice" ] || skip "there are login sessions here"
	mkdir -p "$slice/session-1.scope"
	cat >bin/busctl <<-END
		#!/bin/sh
		[ "\$1 \$7 \$9" = "--user StartTransientUnit neap-mine.scope" ] || exit 1
		echo "\${15}" >$dir/asked.tmp && mv $dir/asked.tmp $dir/asked
		until [ -e $dir/answered ]; do sleep 0.01; done
	END
	chmod 755 bin bin/busctl
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
		exec setpriv --reuid 65534 --regid 65534 --clear-groups env -u NEAP_DEVICE XDG_STATE_HOME=$dir/mine \
			"\$NEAP" run --no-history --run-id mine --folder $dir/run -- \
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

@test "without a control group a run says so, and still ends what is left" {
	[ "$(id -u)" = 0 ] || skip "only root may hide the groups"
	printf '%s\nsleep 1000 &\nuntil_sleeps $!\nexit 3\n' "$until_sleeps" >leave
	show "unshare -m sh -c 'umount -l -R /sys/fs/cgroup && exec neap run --folder run -- sh leave'"
	[ "$(result .containment)" = "descent and NEAP_RUN_ID alone (no cgroup v2 is mounted)" ]
	expect no_control_group
}

@test "a runtime folder that another user made first: reported with the remedy, and another one is used" {
	[ "$(id -u)" = 0 ] || skip "only root can be two users"
	setpriv --reuid 54321 --regid 54321 --clear-groups test -x "$NEAP" || skip "another user cannot reach $NEAP"
	[ ! -e /tmp/neap-54321 ] || skip "/tmp/neap-54321 is there"
	chmod 777 .
	chmod 755 bin
	as_user() { setpriv --reuid 54321 --regid 54321 --clear-groups env -u XDG_RUNTIME_DIR XDG_STATE_HOME="$dir/mine" "$@"; }
	mkdir -m 755 /tmp/neap-54321
	show 'as_user neap run --folder run -- hold --looks 4 1G'
	as_user neap info >info 2>&1 || true
	rmdir /tmp/neap-54321
	[ "$(result .attached)" = true ]
	[ -d mine/neap/runtime ]
	! grep runtime info
	expect runtime_folder
}

@test "without a runtime folder nothing is attached, and a message says so" {
	show 'XDG_RUNTIME_DIR=$dir/none neap run --folder run -- true'
	show 'XDG_RUNTIME_DIR=$dir/none neap run --folder run2 -- hold --looks 8 1G; result .not_attached run2'
	expect no_runtime_folder
}

@test "a folder is used once, and by one run at a time" {
	neap run --quiet --folder run -- true
	show 'neap run --folder run -- touch ran'
	mkdir run2
	show 'flock run2/lock neap run --folder run2 -- touch ran'
	[ ! -e ran ]
	expect folder_used_once
}

@test "a result that appears while a run of the same folder waits for its lock stays" {
	mkdir run
	exec 8>run/lock
	flock 8
	neap run --folder run -- touch ran >out 2>&1 8>&- &
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
	neap run --folder run --lock-fd 7 -- sh -c '[ ! -e /proc/self/fd/7 ]'
	exec 7>&-
}

@test "wrong options: 64, and nothing is run" {
	for options in '--needs lots' '--time-limit soon' '--param 9=1' '--param a=1 --param a=2' '--retries 3' \
		'--on-oom halve' '--max-host much' '--min-disk 0' '--grace soon' '--param a=1 --on-oom "halve b"' '--run-id a/b' \
		'--lock-fd 3' '--retries x' '--frobnicate'; do
		show "neap run $options -- touch ran"
		[ "$status" -eq 64 ]
	done
	show "neap run --param a=1 -- touch 'ran{b}'"
	show 'neap run'
	[ ! -e ran ]
	expect usage
}

@test "after an OOM the run walks down the ladder and keeps the effective batch" {
	cat >train <<'END'
#!/bin/sh
echo "batch $1 accumulate $2"
[ "$1" -le 8 ] && exit 0
echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2
exit 1
END
	chmod +x train
	show "neap run --folder run --param micro_batch=32 --param accumulate=1 \\
	--on-oom 'halve micro_batch, double accumulate' -- ./train {micro_batch} {accumulate}"
	show 'result "{outcome, retries, parameters, rung}"'
	expect ladder
}

@test "--on-oom auto: a command that names its batch needs no rules" {
	cat >train <<'END'
#!/bin/sh
echo "$@" | tee tried
case "$*" in *"batch_size 8 "*) exit 0 ;; esac
echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2
exit 1
END
	chmod +x train
	neap run --quiet --folder run --on-oom auto -- ./train --per_device_train_batch_size 16 '{model}'
	[ "$(cat tried)" = "--per_device_train_batch_size 8 {model} --gradient_accumulation_steps=2" ]
	[ "$(result .rung)" = "per_device_train_batch_size 16 -> 8, gradient_accumulation_steps 1 -> 2" ]
	# A program that names its batch when asked, as python/neap/_divide.py does; and one that does not.
	cat >train <<'END'
#!/bin/sh
echo "$NEAP_BATCH_PARTS $*" >>parts
printf 'b=12\na=1\nb=%d\na=%d\n' $((12 / NEAP_BATCH_PARTS)) "$NEAP_BATCH_PARTS" >"$NEAP_RUN_DIR/batch.$$"
[ ! -e silent ] || rm "$NEAP_RUN_DIR/batch.$$"
echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2
exit 1
END
	show "neap run --folder told --on-oom auto -- ./train '{model}' 2>&1 | grep WARNING | cut -d ' ' -f 3-"
	show 'cat parts; jq -r .rung told/result.json; ls told | sed "s/batch.*/batch.PID/"'
	# Neither does one that continues as before.
	sed 's/NEAP_BATCH_PARTS))/1))/; s/"$NEAP_BATCH_PARTS" >/1 >/' train >stays && chmod +x stays
	show "neap run --folder same --on-oom auto -- ./stays 2>&1 | grep WARNING | cut -d ' ' -f 3-"
	touch silent
	show "neap run --folder untold --on-oom auto -- ./train 2>&1 | grep WARNING | cut -d ' ' -f 3-"
	show "neap run --param x=1 --on-oom auto -- ./train"
	expect auto
	# In a series, which checks it before it starts anything.
	printf 'name: s\nexperiments:\n- {name: a, command: ./train --data.batch_size=16, on_oom: auto}\n' >s.yaml
	neap series s.yaml --dry-run >/dev/null
	sed -i s/=16/=x/ s.yaml
	run neap series s.yaml --dry-run
	[ "$status" -eq 65 ]
	[[ "$output" == *"on_oom: halve data.batch_size: its value must be a whole number from 1, not 'x'"* ]]
}

@test "the ladder ends: at its last rung, at --retries; and another failure does not start it" {
	cat >train <<'END'
#!/bin/sh
echo $1
[ -e fails ] || echo "CUDA out of memory" >&2
exit 1
END
	chmod +x train
	show "neap run --folder run --param b=4 --on-oom 'halve b' -- ./train {b}"
	show "neap run --quiet --folder run2 --param b=64 --on-oom 'halve b' --retries 1 -- ./train {b}"
	touch fails
	show "neap run --quiet --folder run3 --param b=64 --on-oom 'halve b' -- ./train {b}"
	show 'result "{outcome, evidence}"; result "{outcome, evidence}" run3'
	expect ladder_end
}

@test "--on-oom if nothing shows that memory ran out: a message" {
	need_terminal
	NEAP_ATTACH=0 python3 "$BATS_TEST_DIRNAME/pty.py" seen 80 neap run --folder run --param b=64 --on-oom 'halve b' -- true
	[[ "$(head -n 1 seen)" == "neap run: NEAP_ATTACH=0 is set, and stderr is a terminal: without --log nothing will tell that memory ran out, and --on-oom changes nothing"* ]]
	NEAP_ATTACH=0 run neap run --folder piped --param b=4 --on-oom 'halve b' -- \
		sh -c 'echo {b} >>tried; echo "CUDA out of memory" >&2; exit 1'
	[[ "$output" != *NEAP_ATTACH* ]]
	[ "$(cat tried)" = "$(printf '4\n2\n1')" ]
	NEAP_ATTACH=0 run neap run --folder run2 --log --param b=64 --on-oom 'halve b' -- true
	[[ "$output" != *NEAP_ATTACH* ]]
}

@test "attached: peaks, device, headroom, curve" {
	show 'neap run --log-level info --folder run -- hold --looks 8 1G'
	show 'result "del(.samples)" | jq -S .'
	[ "$(result '[.samples[][3]] | max >= 1073741824')" = true ]
	[ "$(result '.headroom_bytes + .peak_device_bytes <= .device_total_bytes')" = true ]
	expect attached
}

@test "the run waits for the drain and measures it" {
	NEAP_SIM="$NEAP_SIM,release_delay=5s" show 'neap run --folder run -- hold --looks 4 --kill 9 1G'
	# From the time at which the end was noticed, which may be after the driver's five seconds began.
	show 'result "[.outcome, .drained, .drain_ns >= 500000000]"'
	show 'neap info --json | jq -c .devices[0].ledger'
	expect drain
}

@test "a drain that takes too long is reported" {
	NEAP_SIM="$NEAP_SIM,release_delay=30s" show 'neap run --drain-limit 100ms --folder run -- hold --looks 4 1G'
	show 'result "{drained, drain_note}"'
	expect drain_too_long
}

@test "a device OOM is found in its recording, with a card" {
	show 'neap run --folder run -- hold 6G'
	show 'result "{outcome, evidence, ooms}"'
	[ "$(result '.oom_card | length > 0')" = true ]
	show "neap run --folder run2 --param size=6 --on-oom 'halve size' -- hold --looks 4 '{size}G'"
	show 'result "{outcome, retries, rung}" run2'
	ls run2/start-1.record.*
	expect oom "$device_seen"
}

@test "an OOM that the process survived is not a failure" {
	show 'neap run --folder run -- hold --recover --looks 4 6G'
	show 'result "{outcome, ooms, rungs, steps, last_loss, rung}"'
	show 'neap run --quiet --folder run2 -- hold --recover --exit 4 6G; result .outcome run2'
	# its card may be made while it still runs, before its first step is complete
	expect oom_survived '(the smallest device that fits): .*(\n2> {30,}.*)*/\1'
}

@test "the start waits for the bytes it needs" {
	hold --for 60000 2G 3>&- &
	holder=$!
	targets+=("$holder")
	until neap run --quiet --folder "probe-$RANDOM$RANDOM" --needs 3GiB --wait-limit 0 -- true >/dev/null 2>&1; [ $? -eq 75 ]; do sleep 0.01; done
	neap run --folder run --needs 3GiB -- true >out 2>&1 3>&- &
	waiting=$!
	until_ready $waiting 'grep -q "Waiting for 3.00 GiB.*holds" out'
	kill -9 "$holder"
	wait "$holder" || true
	wait "$waiting"
	show 'cat out; result ".waited_ns > 0"'
	show 'neap run --folder run2 --needs 5GiB -- touch ran'
	show 'result .outcome run2'
	[ ! -e ran ]
	show 'neap run --quiet --folder run3 --needs device -- true'
	expect waits
}

@test "a run that waits for a device which cannot be read says so at once" {
	CUDA_VISIBLE_DEVICES=5 neap run --folder run --needs device -- true 2>err 3>&- &
	pid=$!
	until_ready $pid 'grep -q "Waiting for the whole of the device, which cannot be read: " err'
	kill -TERM $pid
	wait $pid || true
	show 'head -n 1 err; result .outcome'
	expect waits_unreadable
}

@test "without a driver the command runs, without samples" {
	show "NEAP_DEVICE=cuda neap run --folder run -- sh -c 'exit 4'"
	if [ "$(result .backend)" = cuda ]; then
		rm "$BATS_TEST_TMPDIR/shown"
		skip "there is a driver here: $(result .device_name)"
	fi
	expect no_driver
}

# A limit on file size stands in for a full disk: spec.json (short) fits, result.json does not.
@test "a result that cannot be written: 74, with the command's status reported" {
	mkdir run
	show "(ulimit -f 1; trap '' XFSZ; exec neap run --no-history --folder run -- sh -c 'exit 3' 2>&1) | cat"
	show 'ls run'
	expect result_not_written 'writing \d+ bytes/writing N bytes'
}

@test "a disk that is full from the start: 74, nothing is run" {
	show "(ulimit -f 0; trap '' XFSZ; exec neap run --no-history --folder run -- touch ran 2>&1) | cat"
	[ ! -e ran ]
	expect disk_full 'writing \d+ bytes/writing N bytes'
}

@test "runs are in the history; with --no-history they are not" {
	neap run --quiet --no-history --folder run -- true
	[ ! -e "$dir/state/neap/history.db" ]
	neap run --quiet --name first --folder run2 -- true
	[ -s "$dir/state/neap/history.db" ]
}

@test "a reader of its messages that exits does not cost the result" {
	{ neap run --folder gone -- sh -c 'sleep 0.1; kill -PIPE $$' || echo $? > status; } 2>&1 | true
	[ "$(cat status)" = 141 ]
	[ "$(result .outcome gone)" = signaled ]
}

@test "of several devices, the watched one is CUDA's first: by UUID, whatever NVML's order" {
	export NEAP_SIM="mem=1GiB,gpus=2,world=$world"
	mapfile -t uuids < <(neap info --json | jq -r '.devices[].uuid')
	for order in pci reversed; do
		export NEAP_SIM="mem=1GiB,gpus=2,order=$order,world=$world"
		first=$([ $order = pci ] && echo 0 || echo 1)
		neap run --quiet --folder "$order" -- true
		[ "$(result .device_uuid $order)" = "${uuids[$first]}" ]
		CUDA_VISIBLE_DEVICES=1 neap run --quiet --folder "$order-1" -- true
		[ "$(result .device_uuid "$order-1")" = "${uuids[$((1 - first))]}" ]
		CUDA_VISIBLE_DEVICES="${uuids[1]:0:14}" neap run --quiet --folder "$order-uuid" -- true
		[ "$(result .device_uuid "$order-uuid")" = "${uuids[1]}" ]
	done
	show 'CUDA_VISIBLE_DEVICES=MIG-1234 neap run --folder mig -- true'
	expect device_order
}

@test "the second of two devices: its peak, its OOM and its drain are the run's" {
	export NEAP_SIM="mem=4GiB,gpus=2,release_delay=1s,world=$world"
	show 'CUDA_VISIBLE_DEVICES=1 neap run --folder run -- hold --looks 8 1G'
	show 'CUDA_VISIBLE_DEVICES=1 neap run --folder run2 -- hold 6G'
	[ "$(result .device_uuid)" = "$(neap info --json | jq -r '.devices[1].uuid')" ]
	expect second_device "$device_seen"
}

@test "a context on a device that its process does not use is named, by info and at the end of the run" {
	export NEAP_SIM="mem=1GiB,gpus=2,context=8MiB,order=reversed,world=$world"
	neap run --folder stray -- hold --stray --until seen --looks 8 4M >out 2>&1 3>&- &
	supervisor=$!
	until_ready $supervisor 'neap info --json >info.json && jq -e "any(.processes[]; .stray_context)" info.json >/dev/null'
	# CUDA's first device is NVML's second here: the process works there, and the other is the stray one
	targets+=("$(jq '[.processes[] | select(.stray_context)][0].pid' info.json)")
	show 'neap info'
	touch seen
	wait $supervisor
	show 'grep stray out; result .stray_contexts stray'
	show 'neap run --folder tidy -- hold --looks 8 4M'
	expect stray_context
}
