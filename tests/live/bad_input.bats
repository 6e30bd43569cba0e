#!/usr/bin/env bats
# Wrong input as a person types it, and a broken environment: each gives a clear message (what was attempted, on what,
# what to do), a documented exit code, and loses nothing.
#
# KILLER makes a journal's disk full (tests/series/killer.c).

sim=mem=96MiB,context=8MiB,reserved=2MiB
load ../support/command.bash

prepare() { mkdir "$XDG_STATE_HOME"; }

# says CODE MESSAGE NEAP-ARGUMENTS...: checks this exit code, exactly MESSAGE on stderr, and nothing on stdout.
says() {
	local code=$1 message=$2
	shift 2
	run --separate-stderr "-$code" neap "$@"
	printf 'neap %s:\n%s\n' "$*" "$stderr"
	[ "$stderr" = "$message" ]
	[ -z "$output" ]
}

# within COMMAND...: it must succeed within 30 s.
within() {
	for _ in $(seq 600); do
		"$@" && return 0
		sleep 0.05
	done
	echo "in vain: $*"
	return 1
}

# Its command line is there; its name follows a moment later.
is_sleep() { [ "$(tr '\0' ' ' <"/proc/$started/cmdline")" = "sleep 300 " ]; }

# three FILE: a series of three experiments, each of which adds its name to the file `ran`.
three() {
	cat >"$1" <<-EOF
		name: three
		defaults: {needs: none, command: "sh -c 'echo {e} >> $dir/ran'"}
		experiments:
		- {name: a, params: {e: a}}
		- {name: b, params: {e: b}}
		- {name: c, params: {e: c}}
	EOF
}

# Each of the three has ended once and was run once.
each_once() { # FOLDER
	[ "$(cat "$dir/ran")" = $'a\nb\nc' ]
	[ "$(grep -o '"type":"end","experiment":"."' "$1/journal" | sort | uniq -c | awk '{ print $1 }')" = $'1\n1\n1' ]
	grep -q '"type":"finish"' "$1/journal"
	[ -s "$1/report.html" ]
	rm "$dir/ran"
}

# --- typing errors

@test "an unknown verb or option: 64" {
	says 64 "neap: unknown command 'frobnicate' (see 'neap help')" frobnicate
	says 64 "neap: unknown command 'clera'; did you mean 'clear'? (see 'neap help')" clera
	says 64 "neap: unknown option '--frobnicate' (see 'neap help')" --frobnicate
	for verb in run series info clear reset sim help; do
		says 64 "neap $verb: unknown option '--frobnicate' (see 'neap help $verb')" "$verb" --frobnicate
	done
	says 64 "neap clear: unknown option '--forse'; did you mean '--force'? (see 'neap help clear')" clear --forse
}

@test "a size that does not parse: 64, and nothing is run" {
	local text="neap run: --needs: expected a size, 'device' or 'none'"
	says 64 "$text: expected a size such as 512MiB or 1.5GiB, not \"lots\" (see 'neap help run')" \
		run --needs lots -- touch ran
	says 64 "$text: unknown unit \"QiB\" in \"12QiB\": expected a size such as 512MiB or 1.5GiB (see 'neap help run')" \
		run --needs 12QiB -- touch ran
	says 64 "$text: expected a size such as 512MiB or 1.5GiB, not \"-5\" (see 'neap help run')" \
		run --needs -5 -- touch ran
	[ ! -e ran ]
	[ ! -e "$XDG_STATE_HOME/neap/runs" ]
}

@test "a malformed series file: 65, with the file, the line, the column and what was expected" {
	printf 'name: x\nexperiments:\n  - {name: a, command: [true}\n' >s.yaml
	says 65 "neap series: s.yaml:3:29: not YAML: mismatched flow mapping end" series s.yaml
	printf 'name: x\n\texperiments: 3\n' >s.yaml
	says 65 "neap series: s.yaml:1:7: not YAML: invalid multiline plain key" series s.yaml
	printf 'name: x\nexperiments:\n  - {name: a, comand: "true"}\n' >s.yaml
	says 65 "neap series: s.yaml:3:15: experiments: unknown key 'comand'; did you mean 'command'?" series s.yaml
	printf 'name: x\nexperiments:\n  - {name: a, command: "true", needs: lots}\n' >s.yaml
	says 65 "neap series: s.yaml:3:39: needs: expected a size such as 20GiB, device or none, not 'lots'" series s.yaml
	: >s.yaml
	says 65 "neap series: s.yaml:1:1: expected a mapping with the keys name, defaults and experiments" series s.yaml
	printf '\xff\xfe\x00' >s.yaml
	says 65 "neap series: s.yaml:1:1: expected text in UTF-8, not byte 0xff" series s.yaml
	says 66 "neap series: opening gone.yaml: No such file or directory" series gone.yaml
	[ ! -e "$XDG_STATE_HOME/neap" ]
}

# --- processes

@test "a PID that is gone: 66" {
	true &
	wait $!
	says 66 "neap clear: there is no process $!" clear --pid $!
	says 66 "neap reset: there is no process $!" reset --pid $!
	says 64 "neap clear: --pid: '99999999999' is not a process ID (see 'neap help clear')" clear --pid 99999999999
}

@test "a process of another user: 77" {
	[ "$(id -u)" = 0 ] || skip "only root can start one"
	setpriv --reuid=65534 --clear-groups sleep 300 3>&- &
	started=$!
	targets+=("$started")
	within is_sleep
	for verb in clear reset; do
		says 77 "neap $verb: process $started (sleep 300) belongs to user 65534: only that user can ask it" \
			$verb --pid "$started"
	done
	kill -0 "$started"
}

@test "a process that is not attached: 69, and how to start it so that it is" {
	sleep 300 3>&- &
	started=$!
	targets+=("$started")
	within is_sleep
	says 69 "neap clear: process $started (sleep 300) is not attached: its cache cannot be emptied, nor its memory limited, from outside; started with 'neap run -- COMMAND' it can" \
		clear --pid "$started"
	says 69 "neap: no process is attached; an allocator can only be reached inside its process: start it with 'neap run -- COMMAND'" \
		clear
}

@test "a process that answers nonsense: 76; one that hangs up: 74" {
	python3 "$BATS_TEST_DIRNAME/nonsense.py" "$XDG_RUNTIME_DIR/neap" 3>&- >ready &
	started=$!
	targets+=("$started")
	within grep -q ready ready
	for _ in 1 2 3 4 5; do show "neap clear --pid $started >/dev/null"; done
	expect nonsense
}

@test "wrong frames on the socket of a run: answered or dropped, the run goes on with the same losses" {
	local small=(--layers 1 --width 32 --heads 2 --log-every 0 --batch 8 --micro-batch 4 --steps 600)
	charlm "${small[@]}" --losses plain >/dev/null 2>&1
	mkfifo pipe
	neap run --quiet --folder run -- charlm "${small[@]}" --losses pipe >out 2>&1 3>&- &
	started=$!
	targets+=("$started")
	is_attached() { ls "$XDG_RUNTIME_DIR"/neap/*.page >/dev/null 2>&1; } # the socket listens before it is there
	within is_attached
	socket=$(echo "$XDG_RUNTIME_DIR"/neap/*.sock)
	python3 "$BATS_TEST_DIRNAME/frames.py" "$(basename "$socket" .sock)" "$socket" pipe attacked "$NEAP"
	wait "$started"
	cmp plain attacked
	[ "$(wc -l <attacked)" = 600 ]
}

# --- commands

@test "a command that does not exist: 127, and in a series the others still run" {
	says 127 "neap run: nosuch: not found (cannot run 'nosuch': No such file or directory), exit status 127, 0 ns" \
		run --quiet -- nosuch --option
	three s.yaml
	sed -i "s/name: b,/name: b, command: 'nosuch --option {e}',/" s.yaml
	show 'neap series s.yaml --folder s'
	show 'cat ran'
	expect not_found
}

# --- the disk

# full KIB SCRIPT: runs the script with $disk, a file system with KIB of space; `grow` makes more. Skips the test if
# we may not mount one.
full() {
	local names=(unshare -m)
	[ "$(id -u)" = 0 ] || names=(unshare -r -m)
	mkdir -p disk
	"${names[@]}" mount -t tmpfs disk "$dir/disk" 2>/dev/null || skip "no file system can be mounted here"
	"${names[@]}" bash -c "disk=$dir/disk; mount -t tmpfs -o size=16384k,mode=700 disk \$disk || exit 99
		fallocate -l $((16384 - $1))KiB \$disk/.fill || exit 99
		grow() { rm \$disk/.fill; }
		$2"
}

@test "a full disk under a series: 74, and --resume completes it, without losing or repeating anything" {
	three s.yaml
	local seen=
	# From no space at all, through space for a journal but no run, one run but no second, all runs but no report,
	# to space for all.
	for kib in 4 12 200 260 264 268 272 276 280 284 288 292 300 1024; do
		full $kib '
			neap series s.yaml --folder $disk/s --quiet >out 2>err; echo $? >code
			grow
			neap series s.yaml --folder $disk/s --quiet --resume >out2 2>err2; echo $? >code2
			cp -r $disk/s kept'
		echo "$kib KiB: $(cat code) $(cat code2) $(cat err err2)"
		[ "$(cat code2)" = 0 ]
		each_once kept
		rm -r kept
		if [ "$(cat code)" = 74 ]; then
			grep -q "No space left on device\|is the disk full?" err
			grep -q "^neap series: . experiments\? left; make room on the disk and continue with: neap series s.yaml --resume --folder $dir/disk/s$" err
		fi
		seen+="$(cat code) "
	done
	echo "$seen"
	[[ "$seen" == "74 74 74 "*" 0 " ]]
	# However often it is tried on the full disk: no attempt was lost, so none is given up.
	full 200 '
		neap series s.yaml --folder $disk/s --quiet >out 2>err; echo $? >code
		for n in 1 2 3 4; do neap series s.yaml --folder $disk/s --quiet --resume >out 2>err; echo $? >>code; done
		grow
		neap series s.yaml --folder $disk/s --quiet --resume >out2 2>err2; echo $? >>code
		cp -r $disk/s kept'
	cat code err err2
	[ "$(cat code)" = $'74\n74\n74\n74\n74\n0' ]
	each_once kept
}

@test "a full disk under the journal alone, at each of its writes" {
	export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0"
	three s.yaml
	for write in 1 2 3 4 5 6 7 8; do
		show "NEAP_KILLER=full:$write:$((write * 9)) LD_PRELOAD=\$KILLER neap series s.yaml --folder s$write --quiet"
		show "neap series s.yaml --folder s$write --quiet --resume"
		each_once "s$write"
	done
	expect full_journal 'writing \d+ bytes/writing N bytes'
}

@test "a full disk under a run: 74 before the command is started, not after hours of work" {
	full 64 '
		neap run --quiet --folder $disk/run -- touch ran >out 2>&1; echo $? >code
		ls $disk/run >left'
	show 'cat code out'
	expect full_disk
	[ ! -e ran ]
	full 300 '
		neap run --quiet --folder $disk/run -- sh -c "cat /dev/zero >$disk/fill; exit 3" >out 2>&1; echo $? >code
		cp $disk/run/result.json .'
	cat out
	[ "$(cat code)" = 3 ]
	[ "$(jq -r '.outcome, .exit_status' result.json)" = $'failed\n3' ]
}

@test "a file system without locks: one run in a folder all the same" {
	export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0"
	export NEAP_KILLER=nolocks:0:0 LD_PRELOAD=$KILLER
	neap run --quiet --folder run -- sh -c 'echo $$ >pid; exec sleep 1000' 3>&- &
	supervisor=$!
	until [ -s pid ]; do kill -0 $supervisor; sleep 0.02; done
	targets+=("$supervisor")
	show 'neap run --folder run -- touch ran'
	[ ! -e ran ]
	kill -KILL $supervisor
	wait $supervisor || true
	while grep -qsE '^State:.[^ZX]' "/proc/$(cat pid)/status"; do sleep 0.02; done
	run neap run --quiet --folder run -- touch ran # its owner is gone
	[ "$status" -eq 0 ]
	[ -e ran ]
	[ ! -e run/owner ]
	mkdir theirs # an owner on another machine may live
	echo "1 1 pid:[1] 0-0 elsewhere" >theirs/owner
	show 'neap run --folder theirs -- touch ran2'
	[ ! -e ran2 ]
	expect no_locks "$(hostname)/HOST"
	rm theirs/owner
	neap run --quiet --folder theirs -- touch ran2
	[ -e ran2 ]
}

@test "no room for a recording: a warning, and the training continues" {
	local small="--layers 1 --width 32 --heads 2 --log-every 0 --batch 8 --steps 10"
	charlm $small --losses plain >/dev/null 2>&1
	full 1024 'neap run --folder $disk/run -- charlm '"$small"' --losses losses >out 2>&1; echo $? >code'
	cat out
	[ "$(cat code)" = 0 ]
	cmp plain losses
	grep -q "Little space in $dir/disk/run: .* free, a recording takes .*: a command without one is not attached" out
}

@test "a damaged history is set aside, unchanged, and a new one started" {
	mkdir "$XDG_STATE_HOME/neap"
	for n in 1 2; do
		echo "this is not a database $n" >"$XDG_STATE_HOME/neap/history.db"
		run --separate-stderr neap run --quiet -- true
		echo "$stderr"
		[ "$status" -eq 0 ]
		[[ "$stderr" =~ ^"neap run: the history $XDG_STATE_HOME/neap/history.db was damaged: set aside as "([^,]+)", and a new one started"$ ]]
		[ "$(cat "${BASH_REMATCH[1]}")" = "this is not a database $n" ]
	done
	[ "$(cat "$XDG_STATE_HOME"/neap/history.db.damaged-* | sort)" = $'this is not a database 1\nthis is not a database 2' ]
	neap run --quiet -- true # and the new history is usable
}

@test "a journal damaged in its middle: 65, with the byte; nothing is run, nothing changed" {
	three s.yaml
	neap series s.yaml --folder s --quiet >/dev/null 2>&1
	sed -i '3s/"end"/"enD"/' s/journal
	cp s/journal before
	says 65 "neap series: s/journal is damaged at byte $(head -2 before | wc -c): its record does not match its checksum, though good ones follow; restore the file or begin a new series with --folder DIR" \
		series s.yaml --folder s --resume
	cmp before s/journal
	[ "$(cat ran)" = $'a\nb\nc' ]
}

# --- the device

@test "no driver: 69, in one line that names NEAP_DEVICE=sim" {
	ldconfig -p | grep -q libnvidia-ml.so.1 && skip "this machine has NVIDIA's driver"
	export NEAP_DEVICE=cuda
	local text='no NVIDIA driver (libnvidia-ml.so.1: cannot open shared object file: No such file or directory); NEAP_DEVICE=sim uses neap'"'"'s simulator'
	says 69 "neap info: $text" info
	says 69 "neap run: $text" run --needs 1GiB -- touch ran
	three s.yaml
	sed -i 's/needs: none/needs: device/' s.yaml
	show 'neap series s.yaml --folder s'
	expect no_driver
	[ ! -e ran ]
	NEAP_DEVICE=sim neap series s.yaml --folder s --resume --quiet >/dev/null 2>&1
	each_once s
}

@test "an unknown NEAP_DEVICE, a malformed NEAP_SIM: 64, and nothing is run" {
	NEAP_DEVICE=gpu says 64 'neap info: NEAP_DEVICE is "gpu": expected "cuda" or "sim"' info
	NEAP_DEVICE=gpu says 64 "neap run: NEAP_DEVICE is \"gpu\": expected \"cuda\" or \"sim\" (see 'neap help run')" run -- touch ran
	NEAP_SIM=mem=lots says 64 "neap info: NEAP_SIM: 'mem=lots': expected a size such as 6GiB, at most 16 TiB" info
	NEAP_SIM=mem=lots says 64 "neap run: NEAP_SIM: 'mem=lots': expected a size such as 6GiB, at most 16 TiB (see 'neap help run')" run -- touch ran
	NEAP_SIM=2xfoo says 64 "neap info: NEAP_SIM: '2xfoo' is neither a profile (see \`neap sim profiles\`) nor key=value" info
	NEAP_SIM=world=a/b says 64 "neap info: NEAP_SIM: 'world=a/b': a world's name is 1 to 63 of A-Z a-z 0-9 . _ -, no '.' first" info
	[ ! -e ran ]
}

@test "the exit codes are documented" {
	run neap help
	[ "$status" -eq 0 ]
	for code in '0 fine' '1 what was run failed' '64 usage' '65 malformed input' '66 no such file or process' \
		'69 no driver or not attached' '74 input or output' '76 protocol' '77 permission' '126, 127, 128+N'; do
		[[ "${output//$'\n'/ }" == *"$code"* ]]
	done
}
