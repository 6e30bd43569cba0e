#!/usr/bin/env bats
# What a run leaves on the disk, and what its recording shows of processes that no sample of the supervisor included.

sim=mem=4GiB
load ../support/command.bash

kib=' +[\d.]+ KiB/ SIZE' # of a file system, whose block size varies

prepare() { folders="$XDG_STATE_HOME/neap/runs"; }

# the sizes of a folder's recordings, and how much of the disk they take
sizes() { stat -c %s "$1"/*record.[0-9]*; }
taken() { stat -c '%b %B' "$1"/*record.[0-9]* | awk '{ sum += $1 * $2 } END { print sum }'; }

is_cut() {
	for size in $(sizes "$1"); do [ "$size" -lt 40000 ] || return 1; done
	[ "$(taken "$1")" -lt 65536 ]
}

@test "after its run a recording takes only what it used, for each start, and reads as before" {
	neap run --quiet --folder run -- sh -c '"$1" 64M & "$1" 1M; wait' sh hold
	[ "$(sizes run | wc -l)" -eq 2 ]
	is_cut run
	for record in run/record.*; do neap explain --record "$record" --json >/dev/null; done
	neap run --folder run2 --param mib=8192 --on-oom 'halve mib' -- hold {mib}M 2>/dev/null
	[ "$(ls run2 | grep -c '^start-.*record')" -ge 1 ]
	is_cut run2
	show 'neap explain --record run2/start-1.record.* | grep "^Out of device memory"'
	expect cut
}

@test "a recording that another program has cut is reported as damaged" {
	neap run --quiet --folder run -- hold 1M
	truncate -s -64 run/record.*
	show 'neap explain --record run/record.*'
	expect damaged
}

@test "a command that finds the run of a dead supervisor cuts its recordings" {
	# lost: the command died with it
	neap run --quiet --run-id lost-1 -- hold --until never 1G 3>&- &
	pid=$!
	folder="$folders/lost-1"
	until_ready $pid 'neap sim inspect | grep -q "memory 1.00 GiB"'
	holder="$(echo "$folder"/record.*)" holder="${holder##*.}"
	neap history >/dev/null # the run continues: its recording is not cut
	[ "$(sizes "$folder")" -eq 5259264 ]
	kill -KILL $pid
	wait $pid || true
	while grep -qsE '^State:.[^ZX]' "/proc/$holder/status"; do sleep 0.02; done
	flock --timeout 60 "$folder/lock" true # its guard holds the lock until then
	neap history >/dev/null
	[ ! -e "$folder/result.json" ]
	is_cut "$folder"
	# ended: the command's end is on disk, but its memory has not drained
	NEAP_SIM="$NEAP_SIM,release_delay=60s" neap run --quiet --run-id ended-1 -- hold 1G 3>&- &
	pid=$!
	folder="$folders/ended-1"
	until [ -e "$folder/ended" ]; do kill -0 $pid; sleep 0.02; done
	kill -KILL $pid
	wait $pid || true
	[ "$(sizes "$folder")" -eq 5259264 ]
	neap history >/dev/null
	[ -e "$folder/result.json" ]
	is_cut "$folder"
}

@test "a process that attached and ended between two samples is found by its recording" {
	export NEAP_SIM="mem=96MiB,context=8MiB,reserved=2MiB,world=$world"
	show 'neap run --folder run -- hold --unseen 4M'
	show 'result "[.attached, .not_attached, .peak_device_bytes, .ranks[0].peak_reserved_bytes]"'
	expect unseen
}

@test "a series cuts the recordings of an attempt that it lost" {
	printf 'name: s\nexperiments:\n- {name: a, needs: none, command: [hold, --until, go, 1M]}\n' >s.yaml
	neap series s.yaml --folder s --quiet >/dev/null 2>&1 3>&- &
	until_ready $! 'neap sim inspect | grep -q "memory 2.00 MiB"' # its recording is whole, not just there
	kill -KILL "$(grep -o '^[0-9]*' s/runs/a-1/supervisor)"
	until_ready $! '[ -e s/runs/a-2/record.* ] && neap sim inspect | grep -q "memory 2.00 MiB"'
	is_cut s/runs/a-1
	[ "$(sizes s/runs/a-2)" -eq 5259264 ]
	touch go
	wait $!
	is_cut s/runs/a-2
}

@test "history --prune --folders: shows, asks, deletes the oldest, and keeps the history" {
	for id in one two three; do neap run --quiet --run-id "$id" -- hold 1M; done
	touch -d '3 days ago' "$folders/one/result.json"
	touch -d '2 days ago' "$folders/two/result.json"
	touch -d '1 day ago' "$folders/three/result.json"
	neap run --quiet --run-id going -- hold --until go 1M 3>&- &
	until [ -e "$folders/going/"record.* ]; do kill -0 $!; sleep 0.02; done
	show 'neap history --prune --folders --max 2 --dry-run'
	[ "$(ls "$folders" | wc -l)" -eq 4 ]
	show 'neap history --prune --folders --max 2 </dev/null'
	[ "$(ls "$folders" | wc -l)" -eq 4 ]
	show 'neap history --prune --folders --older-than 36h --keep-last 2 --yes'
	show 'ls $folders; neap history --json | jq -c "[.runs[].run_id]"'
	show 'neap history --prune --recordings --max-total-size 0 --yes'
	show 'cd $folders; ls */record.*; ls */result.json' # the recording of the run that continues stays
	touch go
	wait $!
	show 'result .outcome $folders/going'
	expect prune "$kib"
}

@test "history --prune: options that conflict" {
	for options in '--folders' '--recordings' '--prune --folders' '--prune --max 3' '--prune --keep-last 3' '--max 3' \
		'--prune --folders --recordings --max 3' '--prune --folders --max x' '--prune --recordings --max-total-size x'; do
		show "neap history $options --yes"
	done
	show 'neap history --prune --folders --max 3 --yes'
	expect options
}

@test "at the end of a run, the recordings of the oldest runs beyond the bound are deleted, and nothing else" {
	export NEAP_RECORDINGS_MAX=50KiB
	for id in one two; do neap run --quiet --run-id "$id" -- hold 1M; done
	touch -d '1 hour ago' "$folders/one/result.json"
	show 'neap run --run-id three -- hold 1M' # the newest run does not count itself
	show 'neap run --run-id elsewhere --folder elsewhere -- hold 1M'
	show 'neap run --run-id four -- hold 1M'
	show 'cd $folders; ls */record.*; ls */result.json'
	show 'neap run --quiet --run-id none -- sh -c exit; cd $folders; ls */record.* | wc -l' # it recorded nothing
	show 'neap run --quiet --folder $folders/five -- hold 1M; cd $folders; ls */record.*' # as those of the queue
	show 'NEAP_RECORDINGS_MAX=much neap run --quiet -- sh -c "exit 3"'
	expect bound "$kib"
	XDG_STATE_HOME="$dir/other" neap run --quiet --no-history --folder elsewhere2 -- true
	[ ! -e other ] # it has no business there
}

@test "a run that begins while its folder is pruned makes the folder again" {
	mkdir run
	exec 8>run/lock
	flock 8
	neap run --quiet --folder run -- touch ran 8>&- 3>&- &
	until readlink /proc/$!/fd/* 2>/dev/null | grep -q '/run/lock$' || ! kill -0 $! 2>/dev/null; do :; done
	rm -r run
	exec 8>&-
	wait $!
	[ -e ran ]
	[ "$(result .outcome)" = ok ]
}
