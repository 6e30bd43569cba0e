#!/usr/bin/env bats
# neap history over runs of the simulator.

sim=mem=4GiB
load ../support/command.bash

# three runs: two in a series, one alone
three() {
	cat >s.yaml <<-EOF
		name: nightly
		experiments:
		- {name: small, needs: none, command: "hold {size}", params: {size: 64M}}
		- {name: fails, needs: none, command: [sh, -c, 'exit 3']}
	EOF
	neap series s.yaml --quiet >/dev/null 2>&1 || [ $? -eq 1 ]
	neap run --quiet -- hold 1G
}

runs() { neap history --json | jq '.runs | length'; }

@test "before the first run" {
	show 'neap history'
	show 'neap history --json'
	show 'neap history 2026'
	[ ! -e state/neap/history.db ]
	show 'neap run --quiet -- neap history'
	show 'neap history --name none'
	expect empty
}

@test "lists, filters, exports" {
	three
	show 'neap history'
	show 'neap history --limit 1'
	for filter in '--series nightly' '--series n*' '--name small' '--outcome failed' '--outcome ok' \
		'--since 1h' '--since 2020-01-02' '--older-than 1h' '--older-than 2100-01-01T00:00' \
		'--since 2100-01-01' '--series nightly --outcome ok' '--outcome host-oom'; do
		show "neap history --json $filter | jq -c '[.runs[].name]'"
	done
	show 'neap history --json --name hold | jq -S ".runs[] | .samples |= length > 0"'
	show 'neap history --csv | cut -d, -f1-11'
	expect lists
}

@test "--csv: cells that a spreadsheet would compute begin with an apostrophe" {
	for name in '=cmd|" /C calc"!A0' '+1' '-1' '@SUM(A1)' 'plain=1'; do
		neap run --quiet --name "$name" --param "x==@y" -- true
	done
	neap history --csv >runs.csv
	python3 - <<'PYTHON'
import csv
rows = list(csv.DictReader(open("runs.csv", newline="")))
names = sorted(row["name"] for row in rows)
assert names == sorted(["'=cmd|\" /C calc\"!A0", "'+1", "'-1", "'@SUM(A1)", "plain=1"]), names
for text in [text for row in rows for text in row.values()]:
    assert text[:1] not in ("=", "+", "@") and (text[:1] != "-" or float(text) < 0), text
PYTHON
}

@test "shows one run, and compares several" {
	three
	id=$(neap history --name hold --json | jq -r '.runs[0].run_id')
	show 'neap history $id'
	show 'neap history ${id:0:2}'
	show 'neap history small $id'
	show 'neap history nobody'
	expect shows 'samples +\d+/samples N' '^. (started|ended|took|drain) .*/  \1 TIME' 'nightly-[0-9a-f]{8}/nightly-HASH' '^. contained by .*\n( +control group .*\n)?/  contained by\n'
}

@test "the marks of a session, and how much of the card is shown" {
	export NEAP_SIM="mem=10MiB,world=$world"
	awk 'BEGIN { for (i = 0; i < 600; i++) printf "the %d cats of step %d sat on mat %d.\n", i % 7, i, i * i % 11 }' >text
	neap run --quiet -- charlm --text text --layers 1 --width 32 --heads 2 --steps 4 --log-every 0 --checkpoint c \
		--efficient-attention off --mixed-precision off --checkpointing off
	show 'neap history charlm'
	expect marks 'samples +\d+/samples N' 'last loss +[\d.]+/last loss LOSS'
}

@test "the second of two devices is named" {
	export NEAP_SIM="mem=4GiB,gpus=2,world=$world"
	CUDA_VISIBLE_DEVICES=1 neap run --quiet -- hold 1G
	[ "$(neap history --json | jq -r '.runs[].device_uuid')" = "$(neap info --json | jq -r '.devices[1].uuid')" ]
}

@test "prune deletes what the filters find, and nothing else" {
	three
	for options in '</dev/null' '--series nightly --dry-run' '--series nightly </dev/null' '--older-than 1h --yes' \
		'--series nightly --yes'; do
		show "neap history --prune $options"
	done
	[ "$(runs)" = 1 ]
	expect prune
}

@test "readable while a series runs; several writers" {
	cat >s.yaml <<-EOF
		name: s
		experiments:
		- {name: first, needs: none, command: [sh, -c, 'exit 0']}
		- {name: waits, needs: none, command: [sh, -c, 'while [ ! -e go ]; do sleep 0.02; done']}
	EOF
	neap series s.yaml --quiet >/dev/null 2>&1 3>&- &
	series=$!
	until_ready $series '[ "$(runs)" = 1 ]'
	for i in 1 2 3 4; do neap run --quiet -- sh -c 'exit 0' 3>&- & writers+=($!); done
	wait "${writers[@]}"
	[ "$(runs)" = 5 ]
	touch go
	wait "$series"
	[ "$(neap history --series s --json | jq -r '[.runs[].name] | join(" ")')" = "waits first" ]
}

@test "a damaged file is reported, set aside, not overwritten" {
	mkdir -p state/neap
	printf 'this is not a database at all, whatever its name says' >state/neap/history.db
	show 'neap history'
	show 'cat state/neap/history.db.damaged-*'
	python3 -c 'import sqlite3; sqlite3.connect("state/neap/history.db").execute("PRAGMA user_version = 99")'
	show 'neap history'
	expect damaged 'damaged-[^\s,]+/damaged-TIME'
}

@test "on a full disk it can be read, and a run that cannot be stored is reported" {
	three
	[ "$(runs)" = 3 ]
	[ ! -s "$XDG_STATE_HOME/neap/history.db-wal" ]
	# As on a full disk, no file can grow, not even by the index of SQLite's log.
	show "(trap '' XFSZ; ulimit -f 0; neap history --csv 2>&1) | cut -d, -f1,3"
	show "(trap '' XFSZ; ulimit -f 0; neap history --prune --name small --yes 2>&1) | cat"
	[ "$(runs)" = 3 ]
	expect full_disk
}

@test "wrong usage: 64" {
	for options in '--since soon' '--outcome great' '--limit x' '--json --csv' '--dry-run' '--prune --json --name a' \
		'--prune run' '--older-than never'; do
		show "neap history $options"
		[ "$status" -eq 64 ]
	done
	expect usage
}
