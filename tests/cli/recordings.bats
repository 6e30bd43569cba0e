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

@test "a recording that another program cut is reported as damaged" {
	"$NEAP" run --quiet --folder run -- "$HOLD" 1M
	record="$(echo run/record.*)"
	size=$(sizes run)
	truncate -s -64 "$record"
	run "$NEAP" explain --record "$record"
	echo "$output"
	[ "$status" -eq 65 ]
	[[ "$output" == *"recording $record is damaged: it was cut short: $((size - 64)) bytes are there, its header says $size (at byte $((size - 64)))" ]]
}

@test "a command that finds the run of a dead supervisor cuts its recordings" {
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

@test "a process that attached and ended between two looks is found by its recording" {
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

@test "a series cuts the recordings of an attempt that it lost" {
	printf 'name: s\nexperiments:\n- {name: a, needs: none, command: [%s, --until, go, 1M]}\n' "$HOLD" >s.yaml
	"$NEAP" series s.yaml --folder s --quiet >/dev/null 2>&1 3>&- &
	until [ -e s/runs/a-1/record.* ]; do kill -0 $!; sleep 0.02; done
	kill -KILL "$(grep -o '^[0-9]*' s/runs/a-1/supervisor)"
	until [ -e s/runs/a-2/record.* ]; do kill -0 $!; sleep 0.02; done
	is_cut s/runs/a-1
	[ "$(sizes s/runs/a-2)" -eq 5259264 ]
	touch go
	wait $!
	is_cut s/runs/a-2
}

# the folders of runs, oldest first
runs() { ls -tr "$XDG_STATE_HOME/neap/runs"; }

@test "history --prune --folders: shows, asks, deletes the oldest, and keeps the history" {
	for id in one two three; do "$NEAP" run --quiet --run-id "$id" -- "$HOLD" 1M; done
	touch -d '3 days ago' "$XDG_STATE_HOME/neap/runs/one/result.json"
	touch -d '2 days ago' "$XDG_STATE_HOME/neap/runs/two/result.json"
	touch -d '1 day ago' "$XDG_STATE_HOME/neap/runs/three/result.json"
	"$NEAP" run --quiet --run-id going -- "$HOLD" --until go 1M 3>&- &
	until [ -e "$XDG_STATE_HOME/neap/runs/going/"record.* ]; do kill -0 $!; sleep 0.02; done
	run "$NEAP" history --prune --folders --max 2 --dry-run
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 3 ]
	[[ "${lines[0]}" == *" KiB  $XDG_STATE_HOME/neap/runs/one" ]]
	[ "${lines[1]}" = "1 under way, or of a series that is not finished: left alone" ]
	[[ "${lines[2]}" == "Would delete the folder of 1 run, "*" KiB" ]]
	[ "$(runs | wc -l)" -eq 4 ]
	run "$NEAP" history --prune --folders --max 2 </dev/null
	[ "$status" -eq 64 ]
	[[ "$output" == *"give --yes"* ]]
	[ "$(runs | wc -l)" -eq 4 ]
	run "$NEAP" history --prune --folders --older-than 36h --keep-last 2 --yes
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"Deleted the folder of 1 run: "*" KiB are free now. The history keeps what is known of them." ]]
	[ "$(ls "$XDG_STATE_HOME/neap/runs" | tr '\n' ' ')" = "going three two " ]
	[ "$("$NEAP" history --json | jq '.runs | length')" = 3 ]
	run "$NEAP" history --prune --recordings --max-total-size 0 --yes
	[ "$status" -eq 0 ]
	[ "$(ls -d "$XDG_STATE_HOME"/neap/runs/*/record.* | wc -l)" -eq 1 ] # of the one that goes on
	[ "$(ls -d "$XDG_STATE_HOME"/neap/runs/*/result.json | wc -l)" -eq 2 ]
	touch go
	wait $!
	[ "$(result_of going .outcome)" = ok ]
}

result_of() { jq -r "$2" "$XDG_STATE_HOME/neap/runs/$1/result.json"; }

@test "history --prune: options that do not go together" {
	for options in '--folders' '--recordings' '--prune --folders' '--prune --max 3' '--prune --keep-last 3' '--max 3' \
		'--prune --folders --recordings --max 3' '--prune --folders --max x' '--prune --recordings --max-total-size x'; do
		run "$NEAP" history $options --yes
		echo "$options: $output"
		[ "$status" -eq 64 ]
	done
	run "$NEAP" history --prune --folders --max 3 --yes
	[ "$output" = "Deleted the folders of 0 runs, 0 B" ]
}

@test "beyond their bound the recordings of the oldest runs go at the end of a run, and nothing else" {
	export NEAP_RECORDINGS_MAX=50KiB
	for id in one two; do "$NEAP" run --quiet --run-id "$id" -- "$HOLD" 1M; done
	touch -d '1 hour ago' "$XDG_STATE_HOME/neap/runs/one/result.json"
	run "$NEAP" run --run-id three -- "$HOLD" 1M # not counted itself: it is the newest
	echo "$output"
	[[ "$output" != *"deleted the recordings"* ]]
	run "$NEAP" run --run-id elsewhere --folder elsewhere -- "$HOLD" 1M
	[[ "$output" != *"deleted the recordings"* ]]
	run "$NEAP" run --run-id four -- "$HOLD" 1M
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"neap run: deleted the recordings of the 1 oldest run, "*" KiB: all together had passed their bound (1 GiB, or NEAP_RECORDINGS_MAX); results stay"* ]]
	[ ! -e "$XDG_STATE_HOME/neap/runs/one/"record.* ]
	[ "$(result_of one .outcome)" = ok ]
	for id in two three four; do [ -e "$XDG_STATE_HOME/neap/runs/$id/"record.* ]; done
	NEAP_RECORDINGS_MAX=much run "$NEAP" run --quiet -- sh -c 'exit 3'
	echo "$output"
	[ "$status" -eq 3 ]
	[[ "$output" == *"neap run: old recordings were not looked for: NEAP_RECORDINGS_MAX=much (expected a size, or 'unlimited')"* ]]
}

@test "a run that begins while its folder is pruned makes the folder again" {
	mkdir run
	exec 8>run/lock
	flock 8
	"$NEAP" run --quiet --folder run -- touch ran 8>&- 3>&- &
	until readlink /proc/$!/fd/* 2>/dev/null | grep -q '/run/lock$' || ! kill -0 $! 2>/dev/null; do :; done
	rm -r run
	exec 8>&-
	wait $!
	[ -e ran ]
	[ "$(jq -r .outcome run/result.json)" = ok ]
}
