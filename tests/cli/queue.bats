#!/usr/bin/env bats
# Runs that take turns, and neap queue, on two simulated GPUs.

sim=mem=4GiB,gpus=2
load ../support/command.bash

# holding SIZE [OPTIONS...]: a background run that needs SIZE, has started, and ends when the file `go` exists
holding() {
	local size=$1
	shift
	neap run --quiet --needs "$size" "$@" -- sh -c 'until [ -e go ]; do sleep 0.02; done' 3>&- 2>/dev/null &
	target=$!
	targets+=("$target")
	until_ready "$target" "queued '.pid == $target and .state == \"runs\"'"
}

# waiting SIZE: a background run that waits
waiting() {
	neap run --quiet --needs "$1" -- touch "ran-$1" 3>&- 2>/dev/null &
	target=$!
	targets+=("$target")
	until_ready "$target" "queued '.pid == $target'"
}

queued() { neap queue --json | jq -e ".tickets[] | select($1)" >/dev/null; }
empty() { [ "$(neap queue --json | jq '.tickets | length')" -eq 0 ]; }

@test "two runs that need the same memory: the second starts when the first is over" {
	holding 3G --device 0
	neap run --needs 2G --device 0 -- sh -c '[ -e go ]' >out 2>&1 3>&- &
	second=$!
	until_ready $second 'grep -q Waiting out'
	show 'neap queue'
	touch go
	wait "$second"
	show 'head -n 1 out'
	until empty; do sleep 0.02; done
	show 'neap queue'
	expect two 'is empty .*\)/is empty (FOLDER)' '(?m)^( *\d+  )\S+ +/\1USER       '
}

@test "a run that needs memory sees the GPU that it got; with --gpus 2 both, each of them whole" {
	show "neap run --quiet --needs 1G -- sh -c 'echo \$CUDA_VISIBLE_DEVICES \$NEAP_LEASE'"
	show "neap run --quiet --gpus 2 -- sh -c 'echo \$CUDA_VISIBLE_DEVICES; neap queue --json' >both; head -n 1 both"
	show "tail -n +2 both | jq -c '.tickets[] | [.state, .needs, .gpus]'"
	show 'neap run --quiet --gpus 3 -- touch ran'
	[ ! -e ran ]
	expect devices
}

@test "a run inside another one that holds a lease takes no lease" {
	show 'neap run --quiet --needs device -- neap run --quiet --needs 1G -- neap run --quiet --needs 3G -- echo inside'
	expect inside
}

@test "added commands: their output, their order, paused, moved, ended" {
	touch go
	show 'neap queue add --needs 1G --name first -- sh -c "echo hello; pwd"'
	until empty; do sleep 0.02; done
	show 'cat state/neap/runs/*/stdout.log'
	rm go
	holding device --device 0
	holding device --device 1
	for name in a b c d; do neap queue add --needs 3G --device 0 -- sh -c "echo $name >>order" >/dev/null; done
	until [ "$(neap queue --json | jq '[.tickets[] | select(.state == "waits")] | length')" -eq 4 ]; do sleep 0.02; done
	show 'neap queue pause; neap queue pause 5; neap queue move 7 2; neap queue move 4 last; neap queue move 6 first; neap queue end 6'
	show "neap queue --json | jq -c '.tickets[] | [.id, .state, .needs, .place]'"
	touch go
	until [ "$(neap queue --json | jq '.tickets | length')" -eq 3 ]; do sleep 0.02; done
	[ ! -e order ]
	rm go
	holding device --device 0
	show 'neap queue resume'
	until [ "$(neap queue --json | jq '[.tickets[] | select(.state == "waits")] | length')" -eq 3 ]; do sleep 0.02; done
	touch go
	until empty; do sleep 0.02; done
	show 'cat order; find state -name queued' # an environment may contain secrets
	expect added 'goes to .*/goes to RUN'
}

@test "an added command keeps its empty arguments" {
	neap queue add --needs 1G -- sh -c 'printf "[%s]" "$@" >words' sh --tag "" --lr 3e-4 ""
	until empty; do sleep 0.02; done
	[ "$(cat words)" = "[--tag][][--lr][3e-4][]" ]
}

@test "if its supervisor is killed, an added command runs again; after three times it gives up" {
	neap queue add --needs 1G -- sh -c 'echo start >>starts; sleep 60'
	for n in 1 2 3; do
		until [ "$(wc -l <starts)" = "$n" ] 2>/dev/null; do sleep 0.02; done
		kill -9 "$(neap queue --json | jq '.tickets[0].pid')"
	done
	until queued '.state == "given up"'; do sleep 0.02; done
	show "neap queue --json | jq -c '.tickets[] | [.id, .state, .lost]'; wc -l <starts"
	show 'neap queue end 1'
	empty
	expect given_up
}

# changed WORD TEXT: adds a command while no runner can start, with WORD for TEXT in what its `neap run` will get
changed() {
	local where
	where=$(echo state/neap/queue/*)
	flock -o "$where/runner.$(id -u)" neap queue add --needs 1G --name "$1" -- touch "ran-$1" >/dev/null
	grep -lz -- "^--name=$1\$" state/neap/runs/*/queued | xargs sed -i -z "$2"
}

# reports N: whether `neap run` has written N reports
reports() { grep -hc "neap run:" state/neap/runs/*/neap.log 2>/dev/null | grep -qx "$1"; }

# end_pauses: an hour passes
end_pauses() { touch -c -d '1 hour ago' state/neap/queue/*/[0-9]* state/neap/runs/*/neap.log; }

# tried TICKET N: the command was started N times without getting into the queue
tried() { grep -qx "tries $2" state/neap/queue/*/"$1"; }

@test "an added command waits for what comes later: its folder, the driver" {
	neap queue >/dev/null
	changed driver 's|^NEAP_SIM_PATH=.*|NEAP_SIM_PATH=/none|'
	changed fine ''
	mv state/neap/runs runs
	neap queue >/dev/null
	until tried 1 1 && tried 2 1; do sleep 0.02; done
	mv runs state/neap/runs
	neap queue resume >/dev/null # now, not after the pause
	until [ -e ran-fine ]; do sleep 0.02; done
	local driver
	driver=$(dirname "$(grep -lz -- '^--name=driver$' state/neap/runs/*/queued)")
	until grep -qs "neap run:" "$driver/neap.log"; do sleep 0.02; done
	queued '.id == 1 and .state != "given up"'
	sed -i -z "s|^NEAP_SIM_PATH=.*|NEAP_SIM_PATH=$NEAP_SIM_PATH|" "$driver/queued"
	end_pauses
	until [ -e ran-driver ] && empty; do sleep 0.02; done
}

@test "an added command whose neap run cannot begin gives up, and is not tried for ever" {
	neap queue >/dev/null
	changed usage 's/^--name=.*/--name=\n/'
	changed driver 's|^NEAP_SIM_PATH=.*|NEAP_SIM_PATH=/none|'
	changed option 's/^--name=/--no-such-option=/'
	changed folder ''
	mkdir "$(dirname "$(grep -lz -- '^--name=folder$' state/neap/runs/*/queued)")/lock" # a stand-in for a full disk
	neap queue >/dev/null
	until reports 1; do sleep 0.02; done
	local first=${EPOCHREALTIME/./}
	until reports 2; do sleep 0.02; done
	((${EPOCHREALTIME/./} - first > 800000)) # a second, counted from the first report
	until [ "$(neap queue --json | jq '[.tickets[] | select(.state == "given up")] | length')" -eq 4 ]; do
		end_pauses
		sleep 0.02
	done
	show 'grep -hc "neap run:" state/neap/runs/*/neap.log | sort'
	! compgen -G 'ran-*'
	expect cannot_begin
}

@test "a disk that is full when its turn comes: it tries again, and runs once when there is room" {
	unshare --mount true 2>/dev/null || skip "needs a small disk of its own: root"
	mkdir state
	cat >inside <<-'EOF'
		set -e
		ticket() { grep -qx "$1" state/neap/queue/*/1; }
		mount -t tmpfs -o size=8m tmpfs state
		hold --for 60000 3G & # outside the queue, so that its end makes no room for a ticket
		until [ "$(neap info --json | jq '.processes | length')" = 1 ]; do sleep 0.02; done
		neap queue add --needs 3G --device 0 -- sh -c 'echo ran >>ran' >/dev/null
		until ticket "tries 0" && ! ticket "pid 0"; do sleep 0.02; done
		cat /dev/zero >state/full 2>/dev/null || : # until it is
		kill $!
		until ticket "tries 1"; do
			ticket "lost 0"
			sleep 0.02
		done
		[ ! -e ran ]
		rm state/full
		until [ -e ran ] && ! [ -e state/neap/queue/*/1 ]; do
			touch -c -d '1 hour ago' state/neap/queue/*/1 state/neap/runs/*/neap.log
			sleep 0.02
		done
		cat ran
		jq -r .outcome state/neap/runs/*/result.json
	EOF
	show 'unshare --mount bash inside'
	expect full_later
}

@test "if the Nth write to the disk fails, for each N, an added command still runs once and has its result" {
	local count=40 n
	for n in $(seq "$count"); do
		LD_PRELOAD="$FAILS_ONCE" NEAP_TEST_FAILS_ONCE="$n:$dir/failed-$n" ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS-} \
			neap queue add --needs 1M --name "job-$n" -- sh -c "echo $n >>ran" >/dev/null
	done
	until empty; do
		if queued '.state == "given up"'; then return 1; fi
		end_pauses
		sleep 0.02
	done
	[ "$(sort -n ran)" = "$(seq "$count")" ]
	[ "$(jq -r .outcome state/neap/runs/*/result.json | sort | uniq -c | xargs)" = "$count ok" ]
	[ "$(ls failed-* | wc -l)" -gt 20 ]
}

@test "an added command is not run again if neap can write neither its end nor its result" {
	LD_PRELOAD="$FAILS_ONCE" NEAP_TEST_FAILS_ONCE="0:$dir/full" ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS-} \
		neap queue add --needs 1M -- sh -c 'echo ran >>ran; touch full' >/dev/null
	until [ -e full ] && grep -qx 'pid 0' state/neap/queue/*/1; do sleep 0.02; done
	rm full
	until queued '.state == "given up"'; do
		[ "$(cat ran)" = ran ]
		end_pauses
		sleep 0.02
	done
	! compgen -G 'state/neap/runs/*/result.json'
	neap queue resume 1 >/dev/null # the user may run it again
	until [ "$(wc -l <ran)" = 2 ]; do sleep 0.02; done
}

@test "while the result of an added command is being made, others do not wait and leave it alone" {
	local made
	neap queue >/dev/null
	changed made ''
	made=$(dirname state/neap/runs/*/queued)
	touch "$made/lock"
	mkfifo "$made/ended" # its reader waits
	echo 1 1 - - elsewhere >"$made/owner"
	export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS-} LD_PRELOAD="$NO_LOCKS" NEAP_TEST_NO_LOCKS="$dir/state/neap/runs/"
	neap queue >/dev/null
	sleep 0.5 # it takes a sample every 200 ms
	tried 1 0
	queued '.state != "given up"'
	rm "$made/owner"
	until [ -e "$made/owner" ]; do sleep 0.02; done
	neap run --quiet --gpus 2 --folder out --wait-limit 2s -- touch ran
	[ -e ran ]
	: >"$made/ended" # no record of the command's end
	until queued '.state == "given up"'; do sleep 0.02; done
}

@test "an added command waits without limit for memory outside the queue, unless it has a limit" {
	hold --for 60000 3G 3>&- &
	targets+=("$!")
	until [ "$(neap info --json | jq '.processes | length')" = 1 ]; do sleep 0.02; done
	neap queue add --needs 3G --device 0 --wait-limit 100ms --name limited -- touch ran >/dev/null
	neap queue add --needs 3G --device 0 --name patient -- touch ran >/dev/null
	until queued '.id == 2 and .pid'; do sleep 0.02; done
	until ! queued '.id == 1'; do sleep 0.02; done
	show 'result "[.name, .outcome]" state/neap/runs/*'
	queued '.id == 2 and .state == "waits"'
	neap queue end 2
	[ ! -e ran ]
	expect limit
}

@test "a command that is added inside a run is no leftover of it: it starts after that run" {
	neap run --folder out -- neap run --quiet -- sh -c 'neap queue add --needs 1G -- touch ran; sleep 0.6; ! ls ran' 2>err
	until [ -e ran ]; do sleep 0.02; done
	until empty; do sleep 0.02; done
	[ ! -e out/revive ]
	! grep cleanup err
}

@test "a removed lock keeps nobody out, and two processes never have it" {
	local where
	holding device --device 0
	holding device --device 1
	where=$(echo state/neap/queue/*)
	waiting 3G
	rm "$where/lock"
	neap queue >/dev/null
	flock -o "$where/lock" sh -c 'touch go; sleep 0.6; ! ls ran-3G'
	wait "$target"
	[ -e ran-3G ]
}

# copies FROM COUNT UID: adds COUNT paused tickets of user UID
copies() {
	python3 - "$@" <<-EOF
		import os, sys
		name, count, uid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
		with open(name, "rb") as file:
		    text = file.read().replace(b"\nadded 0", b"\nadded 1").replace(b"\npaused 0", b"\npaused 1").replace(b"\nholds 1", b"\nholds 0")
		for number in range(5000, 5000 + count):
		    path = f"{os.path.dirname(name)}/{number}"
		    with open(f"{path}.new", "wb") as file:
		        file.write(text)
		    os.chown(f"{path}.new", uid, -1)
		    os.rename(f"{path}.new", path) # an empty ticket is removed
	EOF
}

@test "a waiting run continues while the queue cannot be read for a moment" {
	local where
	holding device --device 0
	holding device --device 1
	where=$(echo state/neap/queue/*)
	neap run --quiet --needs 3G -- touch ran 3>&- &
	mine=$!
	targets+=("$mine")
	until_ready "$mine" "queued '.pid == $mine'"
	copies "$where/3" 1100 "$(id -u)"
	show 'neap queue'
	sleep 0.5 # it asks every 100 ms or more often
	kill -0 "$mine"
	rm "$where"/5???
	touch go
	wait "$mine"
	[ -e ran ]
	expect unread 'state.neap.queue\S+/QUEUE'
}

# locking: a process that holds the queue's lock as neap does, and sleeps
locking() {
	python3 - state/neap/queue/*/lock 3>&- <<-EOF &
		import fcntl, os, sys, time
		with open(sys.argv[1], "r+b", buffering=0) as file:
		    fcntl.flock(file, fcntl.LOCK_EX)
		    file.write(b"%020d %010d" % (0, os.getpid()))
		    time.sleep(60)
	EOF
	locker=$!
	targets+=("$locker")
	until grep -q " 0*$locker$" state/neap/queue/*/lock; do sleep 0.02; done
}

@test "the process that holds the queue's lock is named, with advice if it is stopped" {
	neap queue >/dev/null
	locking
	neap run --needs 1G -- true 2>err 3>&- &
	mine=$!
	targets+=("$mine")
	until_ready "$mine" "grep -q 'by process $locker$' err"
	kill -STOP "$locker"
	neap run --needs 1G -- true 2>err2 3>&- &
	targets+=("$!")
	until_ready "$!" "grep -q 'by process $locker: it is stopped, continue or end it$' err2"
	kill -KILL "$locker"
	wait "$mine"
}

@test "a series takes turns with other runs" {
	export NEAP_SIM=${NEAP_SIM/gpus=2/gpus=1}
	holding 3G
	printf 'name: s\nexperiments:\n- {name: e, command: hold 3G, needs: 3200MiB}\n' >s.yaml
	neap series s.yaml --folder s >out 2>&1 3>&- &
	series=$!
	until_ready $series 'grep -q Waiting out'
	show "neap queue --json | jq -c '.tickets[] | [.state, .needs]'"
	touch go
	wait "$series"
	show 'result .outcome s/runs/e-1'
	expect series
}

# stop PID: stops it while it does not have the queue's lock, which would hold up everyone
stop() {
	until kill -STOP "$1" && sleep 0.02 && flock -n state/neap/queue/*/lock true; do
		kill -CONT "$1"
		sleep 0.03
	done
}

@test "a stopped run that waits is overtaken; one that holds a lease keeps it" {
	holding device --device 0
	holder=$target
	holding device --device 1
	waiting 3G
	stopped=$target
	waiting 1G
	stop "$stopped"
	stop "$holder"
	show "neap queue --json | jq -c '.tickets[] | [.state, .needs]'"
	touch go # the second holder ends, and the run that is not stopped gets its GPU
	wait "$target"
	[ -e ran-1G ]
	show "neap queue --json | jq -c '.tickets[] | [.state, .needs]'"
	kill -CONT "$stopped" "$holder"
	wait "$stopped" "$holder"
	[ -e ran-3G ]
	expect stopped
}

@test "a killed supervisor: its lease ends with its command" {
	holding device --device 0
	kill -9 "$target"
	until empty; do sleep 0.02; done
	show 'neap run --quiet --needs device --device 0 -- echo next'
	expect killed
}

@test "wrong usage: 64; no such ticket: 66; nothing is run" {
	for arguments in 'add' 'pause x' 'pause 0' 'move 1' 'move 1 up' 'end' 'dance' 'add --needs none -- true' \
		'add --gpus 0 -- true' 'add --gpus 3 -- true' 'add --needs 9G -- true' 'add --gpus 2 --device 0 -- true' '-- true'; do
		show "neap queue $arguments"
	done
	for arguments in "--name ''" '--param a' '--on-oom nonsense' '--retries 3' '--time-limit soon' '--wait-limit soon'; do
		show "neap queue add $arguments -- true"
	done
	empty
	show 'neap run --gpus 2 --device 0 -- touch ran'
	show 'neap run --gpus none -- touch ran'
	show 'neap run --gpus 1 --needs none -- touch ran'
	show 'neap queue end 7'
	show 'neap queue move 7 first'
	[ ! -e ran ]
	expect usage
}

# A limit on file size stands in for a full disk: everything that is written before a ticket is short.
@test "without a driver: nothing is added, 69, and the queue is shown" {
	! NEAP_DEVICE=cuda neap info >/dev/null 2>&1 || skip "there is a driver here"
	show 'NEAP_DEVICE=cuda neap queue add --device 0 -- true'
	show 'NEAP_DEVICE=cuda neap queue'
	expect no_driver 'is empty .*\)/is empty (FOLDER)' ': .*NVIDIA driver.*/: NO DRIVER'
}

@test "a full disk: 74, and nothing is run" {
	neap queue >/dev/null
	show "(ulimit -f 1; trap '' XFSZ; exec neap run --quiet --no-history --needs 1G -- touch ran 2>&1) | cat"
	[ ! -e ran ]
	empty
	rm -r state/neap/runs
	show "(ulimit -f 1; trap '' XFSZ; exec neap queue add --needs 1G -- touch ran 2>&1) | cat; ls -A state/neap/runs"
	expect full 'writing \d+/writing N'
}

@test "a folder in which others can change tickets, or that may not be written: 77" {
	mkdir -m 777 open
	show 'NEAP_QUEUE=$PWD/open neap run --quiet --needs 1G -- touch ran'
	show 'NEAP_QUEUE=$PWD/open neap queue'
	show 'NEAP_QUEUE=$PWD/missing neap queue'
	[ ! -e ran ]
	expect folders
	[ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || skip "the rest needs root to be somebody else"
	mkdir -m 755 closed
	chmod 755 "$dir"
	mkdir -m 777 "$dir/other"
	mkdir -m 700 "$dir/other/runtime"
	chown 65534 "$dir/other/runtime"
	export NEAP_QUEUE=$PWD/closed XDG_STATE_HOME=$dir/other XDG_RUNTIME_DIR=$dir/other/runtime
	show 'setpriv --reuid=65534 --clear-groups neap run --quiet --needs 1G -- touch other/ran'
	[ ! -e other/ran ]
	expect closed
}

@test "files that are no tickets do no harm" {
	neap queue >/dev/null
	where=$(echo state/neap/queue/*)
	ln -s /dev/zero "$where/1"
	mkfifo "$where/2"
	mkdir "$where/3"
	head -c 4096 /dev/urandom >"$where/4"
	printf 'neap ticket 1\n' >"$where/5"
	truncate -s 1T "$where/6"
	printf 'order 9 9 9 9\n' >"$where/lock"
	touch "$where/00007" "$where/99999999999999999999" "$where/-8"
	show "timeout 60 neap run --quiet --needs 1G -- sh -c 'echo \$NEAP_LEASE'"
	show "neap queue --json | jq '.tickets | length'"
	expect hostile
}

@test "two users, one folder: neither gets or changes what the other was promised" {
	[ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || skip "needs root to be somebody else"
	chmod 755 "$dir"
	mkdir -m 1777 shared
	mkdir -m 700 other other/runtime
	chown -R 65534 other
	export NEAP_QUEUE=$dir/shared
	cat >as-other <<-EOF
		#!/bin/sh
		export XDG_STATE_HOME=$dir/other XDG_RUNTIME_DIR=$dir/other/runtime HOME=$dir/other
		exec setpriv --reuid=65534 --regid=65534 --clear-groups "\$@"
	EOF
	chmod 755 as-other
	# each user has their own simulated GPUs: the other's ticket gets the name of ours
	(umask 077; exec ./as-other neap run --quiet --needs 3G --device 0 -- sh -c 'until [ -e go ]; do sleep 0.02; done') 3>&- 2>err &
	other=$!
	targets+=("$other")
	until_ready $other "queued '.state == \"runs\"'"
	python3 - shared/1 "$(neap info --json | jq -r '.devices[0].uuid')" <<-EOF
		import re, sys
		with open(sys.argv[1], "r+b") as file:
		    bytes = re.sub(rb"device GPU-[0-9a-f-]+", b"device " + sys.argv[2].encode(), file.read())
		    file.seek(0)
		    file.write(bytes)
	EOF
	neap run --quiet --needs 2G --device 0 -- touch ran 3>&- 2>/dev/null &
	mine=$!
	targets+=("$mine")
	until_ready $mine "queued '.state == \"waits\"'"
	show "neap queue --json | jq -c '.tickets[] | [.id, .state, .needs, .waits_for]'"
	show "./as-other neap queue end 2"
	show "./as-other neap queue pause 2; ./as-other neap queue move 2 first; ./as-other neap queue pause"
	kill -STOP "$mine"; show 'neap queue end 1'; kill -CONT "$mine" # root ends all
	[ ! -e ran ]
	wait "$mine"
	[ -e ran ]
	until empty; do sleep 0.02; done
	NEAP_RUN_DIR=$dir/other ./as-other neap queue add --needs 1G -- touch other/ran # no runner starts
	copies shared/3 255 65534
	show './as-other neap queue add --needs 1G -- touch other/ran'
	show 'ls other/neap/runs | wc -l'
	show 'neap run --quiet --needs 1G -- echo mine'
	expect users
}

@test "if the state folder has no locks the queue is in the runtime folder, and works" {
	export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS-} LD_PRELOAD="$NO_LOCKS" NEAP_TEST_NO_LOCKS="$dir/state/"
	neap run --quiet --needs 3G --folder run -- sh -c 'neap queue --json >seen; neap queue add --needs 3G -- touch ran >/dev/null'
	show 'jq -c "[.folder, (.tickets[] | .state)]" seen'
	until [ -e ran ] && empty; do sleep 0.02; done
	[ ! -e state/neap/queue/*/1 ]
	NEAP_TEST_NO_LOCKS=/neap/ show 'neap queue'
	expect no_locks
}

@test "unit: the file with which systemd starts the queue at boot" {
	export XDG_STATE_HOME="$dir/a state%"
	show 'neap queue unit | sed "s|$(realpath "$NEAP")|/usr/bin/neap|; s|queue/$(uname -n)|queue/HOST|"'
	expect unit
}
