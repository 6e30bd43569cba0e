#!/usr/bin/env bats
# What a run leaves on the disk, and what its recording tells of processes that no look of the supervisor met.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir"
	export NEAP_SIM="mem=4GiB,world=recordings-$$-$BATS_TEST_NUMBER"
	mkdir -m 700 "$dir/runtime"
	unset LD_LIBRARY_PATH NEAP_ATTACH NEAP_RUN_DIR NEAP_RUN_ID
	cd "$dir"
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"recordings-$$-$BATS_TEST_NUMBER"*
}

# the sizes of a folder's recordings, and what they take of the disk
sizes() { stat -c %s "$1"/*record.[0-9]*; }
taken() { stat -c '%b %B' "$1"/*record.[0-9]* | awk '{ sum += $1 * $2 } END { print sum }'; }

is_cut() {
	for size in $(sizes "$1"); do [ "$size" -lt 40000 ] || return 1; done
	[ "$(taken "$1")" -lt 65536 ]
}

@test "a recording takes what it used once its run is over, each start's, and reads as before" {
	"$NEAP" run --quiet --folder run -- sh -c '"$1" 64M & "$1" 1M; wait' sh "$HOLD"
	[ "$(sizes run | wc -l)" -eq 2 ]
	is_cut run
	for record in run/record.*; do "$NEAP" explain --record "$record" --json >/dev/null; done
	run "$NEAP" run --folder run2 --param mib=8192 --on-oom 'halve mib' -- "$HOLD" {mib}M
	[ "$status" -eq 0 ]
	[ "$(ls run2 | grep -c '^start-.*record')" -ge 1 ]
	is_cut run2
	record="$(echo run2/start-1.record.*)"
	run "$NEAP" explain --record "$record"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"8.00 GiB"* ]]
}

@test "a recording that somebody else cut is said to be damaged" {
	"$NEAP" run --quiet --folder run -- "$HOLD" 1M
	record="$(echo run/record.*)"
	size=$(sizes run)
	truncate -s -64 "$record"
	run "$NEAP" explain --record "$record"
	echo "$output"
	[ "$status" -eq 65 ]
	[[ "$output" == *"recording $record is damaged: it was cut short: $((size - 64)) bytes are there, its header says $size (at byte $((size - 64)))" ]]
}

@test "whoever finds the run of a dead supervisor cuts its recordings" {
	# lost: the command died with it
	"$NEAP" run --quiet --run-id lost-1 -- "$HOLD" --until never 1G 3>&- &
	pid=$!
	folder="$XDG_STATE_HOME/neap/runs/lost-1"
	until [ -e "$folder"/record.* ]; do kill -0 $pid; sleep 0.02; done
	holder="$(echo "$folder"/record.*)" holder="${holder##*.}"
	"$NEAP" history >/dev/null # the run goes on: not cut under it
	[ "$(sizes "$folder")" -eq 5259264 ]
	kill -KILL $pid
	wait $pid || true
	while grep -qsE '^State:.[^ZX]' "/proc/$holder/status"; do sleep 0.02; done
	"$NEAP" history >/dev/null
	[ ! -e "$folder/result.json" ]
	is_cut "$folder"
	# ended: the command's end is on disk, its memory has not drained
	NEAP_SIM="$NEAP_SIM,release_delay=60s" "$NEAP" run --quiet --run-id ended-1 -- "$HOLD" 1G 3>&- &
	pid=$!
	folder="$XDG_STATE_HOME/neap/runs/ended-1"
	until [ -e "$folder/ended" ]; do kill -0 $pid; sleep 0.02; done
	kill -KILL $pid
	wait $pid || true
	[ "$(sizes "$folder")" -eq 5259264 ]
	"$NEAP" history >/dev/null
	[ -e "$folder/result.json" ]
	is_cut "$folder"
}

@test "a process that attached and ended between two looks is told from its recording" {
	export NEAP_SIM="mem=96MiB,context=8MiB,reserved=2MiB,world=recordings-$$-$BATS_TEST_NUMBER"
	run "$NEAP" run --folder run -- "$HOLD" --unseen 4M
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" != *"not attached"* ]]
	[[ "$output" == *"peak      4.00 MiB allocated, 4.00 MiB reserved"* ]]
	[[ "$output" == *"12.0 MiB taken at most, contexts included, 82.0 MiB of 96.0 MiB left"* ]]
	[ "$(jq -r '.attached, .not_attached, .peak_device_bytes, .ranks[0].peak_reserved_bytes' run/result.json)" = \
		"$(printf 'true\n\n12582912\n4194304')" ]
}
