#!/usr/bin/env bats
# neap history over runs of the simulator.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir" TZ=UTC
	export NEAP_SIM="mem=4GiB,world=history-$$-$BATS_TEST_NUMBER"
	mkdir -m 700 "$dir/runtime"
	unset LD_LIBRARY_PATH NEAP_ATTACH NEAP_RUN_DIR NEAP_RUN_ID
	cd "$dir"
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"history-$$-$BATS_TEST_NUMBER"*
}

json() { jq -r "$1" <<<"$output"; }

# three runs: two of a series, one alone
three() {
	cat >s.yaml <<-EOF
		name: nightly
		experiments:
		- {name: small, needs: none, command: "$HOLD {size}", params: {size: 64M}}
		- {name: fails, needs: none, command: [sh, -c, 'exit 3']}
	EOF
	"$NEAP" series s.yaml --quiet >/dev/null 2>&1 || [ $? -eq 1 ]
	"$NEAP" run --quiet -- "$HOLD" 1G
}

@test "before the first run" {
	run "$NEAP" history
	[ "$status" -eq 0 ]
	[ "$output" = "No such run." ]
	run --separate-stderr "$NEAP" history --json
	[ "$(json '.schema, (.runs | length)')" = "$(printf '1\n0')" ]
	run "$NEAP" history 2026
	[ "$status" -eq 66 ]
	[ ! -e state/neap/history.db ]
}

@test "lists, filters, exports" {
	three
	run "$NEAP" history
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 4 ]
	[[ "${lines[0]}" == "RUN "*"ENDED"*"NAME"*"OUTCOME"*"PEAK"*"TIME"*"STEPS"*"RUNG" ]]
	[[ "${lines[1]}" == *"  hold "*" ok "*" 1."*" GiB "* ]]
	[[ "${lines[2]}" == *"nightly/fails "*" failed "* ]]
	[[ "${lines[3]}" == *"nightly/small "*" ok "* ]]
	run "$NEAP" history --limit 1
	[ "${#lines[@]}" -eq 2 ]
	for filter in '--series nightly:2' '--series n*:2' '--name small:1' '--outcome failed:1' '--outcome ok:2' \
		'--since 1h:3' '--since 2020-01-02:3' '--older-than 1h:0' '--older-than 2100-01-01T00:00:3' \
		'--since 2100-01-01:0' '--series nightly --outcome ok:1' '--outcome host-oom:0'; do
		run --separate-stderr "$NEAP" history --json ${filter%:*}
		echo "$filter"
		[ "$(json '.runs | length')" = "${filter##*:}" ]
	done
	run --separate-stderr "$NEAP" history --json --name hold
	[ "$(json '.runs[0] | .series, .outcome, .exit_status')" = "$(printf '\nok\n0')" ]
	[ "$(json '.runs[0] | .peak_reserved_bytes == 1073741824 and (.samples | length) > 0 and (.marks | type) == "array"')" = true ]
	run --separate-stderr "$NEAP" history --csv
	[ "$(head -1 <<<"$output" | cut -d, -f1-3)" = series,run_id,name ]
	[ "$(awk -F, 'NR > 1 { print NF }' <<<"$output" | sort -u)" = "$(head -1 <<<"$output" | awk -F, '{ print NF }')" ]
	[[ "$output" == *'"nightly"'*'"size=64M","ok"'* ]]
}

@test "--csv: what a spreadsheet would compute has an apostrophe before it" {
	for name in '=cmd|" /C calc"!A0' '+1' '-1' '@SUM(A1)' 'plain=1'; do
		"$NEAP" run --quiet --name "$name" --param "x==@y" -- true
	done
	"$NEAP" history --csv >runs.csv
	python3 - <<'PYTHON'
import csv
rows = list(csv.DictReader(open("runs.csv", newline="")))
names = sorted(row["name"] for row in rows)
assert names == sorted(["'=cmd|\" /C calc\"!A0", "'+1", "'-1", "'@SUM(A1)", "plain=1"]), names
for text in [text for row in rows for text in row.values()]:
    assert text[:1] not in ("=", "+", "@") and (text[:1] != "-" or float(text) < 0), text
PYTHON
}

@test "shows one and compares several" {
	three
	id=$("$NEAP" history --name hold --json | jq -r '.runs[0].run_id')
	run "$NEAP" history "$id"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "run              $id" ]
	[[ "$output" == *"name             hold"*"outcome          ok"*"exit status      0"*"peak reserved    1.00 GiB"* ]]
	run "$NEAP" history "${id:0:2}"
	[ "$status" -eq 64 ]
	[[ "$output" == *"3 runs begin with '${id:0:2}': say more of it"* ]]
	run "$NEAP" history small "$id"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == "  run "*"$id" ]]
	[[ "$output" == *"* name             small "*" hold"* ]]
	[[ "$output" == *"  outcome          ok  "*" ok"* ]]
	[[ "$output" == *"* peak reserved    64.0 MiB  "*"1.00 GiB (+1500.0 %)"* ]]
	run "$NEAP" history nobody
	[ "$status" -eq 66 ]
}

@test "the marks of a session, and how much of the card" {
	export NEAP_SIM="mem=10MiB,world=history-$$-$BATS_TEST_NUMBER"
	awk 'BEGIN { for (i = 0; i < 600; i++) printf "the %d cats of step %d sat on mat %d.\n", i % 7, i, i * i % 11 }' >text
	"$NEAP" run --quiet -- "$CHARLM" --text text --layers 1 --width 32 --heads 2 --steps 4 --log-every 0 --checkpoint c \
		--efficient-attention off --mixed-precision off --checkpointing off
	run "$NEAP" history charlm
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"rung             micro_batch 64 -> 32, accumulate 1 -> 2"* ]]
	[[ "$output" == *"steps            4"* ]]
	[[ "$output" == *"Marks"*" start"*" model on device"*" saved 4"* ]]
	[[ "$output" == *"The last OOM"*"Out of device memory: "* ]]
}

@test "prune deletes what the filters find, and nothing else" {
	three
	run "$NEAP" history --prune </dev/null
	[ "$status" -eq 64 ]
	run "$NEAP" history --prune --series nightly --dry-run
	[ "$output" = "Would delete 2 runs" ]
	run "$NEAP" history --prune --series nightly </dev/null
	[ "$status" -eq 64 ]
	[[ "$output" == *"give --yes"* ]]
	run "$NEAP" history --prune --older-than 1h --yes
	[ "$output" = "Deleted 0 runs" ]
	run "$NEAP" history --prune --series nightly --yes
	[ "$output" = "Deleted 2 runs from the history; their folders stay" ]
	[ "$("$NEAP" history --json | jq '.runs | length')" = 1 ]
}

@test "readable while a series runs; several writers" {
	cat >s.yaml <<-EOF
		name: s
		experiments:
		- {name: first, needs: none, command: [sh, -c, 'exit 0']}
		- {name: waits, needs: none, command: [sh, -c, 'while [ ! -e go ]; do sleep 0.02; done']}
	EOF
	"$NEAP" series s.yaml --quiet >/dev/null 2>&1 3>&- &
	series=$!
	until [ "$("$NEAP" history --json | jq '.runs | length')" = 1 ]; do kill -0 "$series"; sleep 0.02; done
	for i in 1 2 3 4; do "$NEAP" run --quiet -- sh -c 'exit 0' 3>&- & writers+=($!); done
	wait "${writers[@]}"
	[ "$("$NEAP" history --json | jq '.runs | length')" = 5 ]
	touch go
	wait "$series"
	[ "$("$NEAP" history --series s --json | jq -r '[.runs[].name] | join(" ")')" = "waits first" ]
}

@test "a damaged file is reported, set aside, not overwritten" {
	mkdir -p state/neap
	printf 'this is no database at all, whatever its name says' >state/neap/history.db
	run "$NEAP" history
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"was damaged: set aside as "*"history.db.damaged-"* ]]
	grep -q 'no database' state/neap/history.db.damaged-*
	sqlite=$(printf 'PRAGMA user_version = 99;')
	python3 - "$sqlite" <<-END
		import sqlite3, sys
		sqlite3.connect("state/neap/history.db").execute(sys.argv[1])
	END
	run "$NEAP" history
	[ "$status" -eq 69 ]
	[[ "$output" == *"use a newer neap"* ]]
}

@test "on a full disk it can be read, and a run that is not kept is reported" {
	three
	before="$("$NEAP" history --json | jq '.runs | length')"
	[ "$before" = 3 ]
	[ ! -s "$XDG_STATE_HOME/neap/history.db-wal" ]
	# As with a full disk no file can grow, not even by the index of SQLite's log.
	run bash -c "trap '' XFSZ; ulimit -f 0; { \"\$NEAP\" history --csv 2>&1; } | cat"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 5 ] # the note, the columns' names, and three runs
	[[ "${lines[0]}" == "neap history: for reading only: opening the history "* ]]
	run bash -c "trap '' XFSZ; ulimit -f 0; \"\$NEAP\" history --prune --name small --yes 2>&1 | cat"
	[[ "$output" == *"readonly database"* ]]
	[ "$("$NEAP" history --json | jq '.runs | length')" = 3 ]
}

@test "wrong usage: 64" {
	for options in '--since soon' '--outcome great' '--limit x' '--json --csv' '--dry-run' '--prune --json --name a' \
		'--prune run' '--older-than never'; do
		run "$NEAP" history $options
		echo "$options: $output"
		[ "$status" -eq 64 ]
	done
}
