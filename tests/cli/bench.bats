#!/usr/bin/env bats
# neap bench alloc: its figures exist and have the right type. No test checks how large they are.

check() {
	python3 -c 'import json, sys
data = json.load(sys.stdin)
rows = data["results"]
assert data["schema"] == 1 and data["loop_ns"] > 0, data
assert [row["case"] for row in rows] == sys.argv[1].split(","), rows
for row in rows:
    assert row["ns_low"] <= row["ns_per_pair"] <= row["ns_high"] and row["ns_per_pair"] > data["loop_ns"] / 2, row
    assert row["glibc_ns_per_pair"] > 0, row
    assert (row["p999_ns"] is None) == (row["case"] == "cross"), row' "$1" <<<"$output"
}

@test "each case on its own, as JSON" {
	run "$NEAP" bench alloc --case recorder --case cross --case threads --case batch --size 64KiB --json
	echo "$output"
	[ "$status" -eq 0 ]
	check recorder,cross,threads,threads,batch
}

@test "for people: one line per case" {
	run "$NEAP" bench alloc --case threads --threads 3 --size 64KiB
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^  threads .* 64.0 KiB ' <<<"$output")" -eq 3 ]
}

@test "senseless arguments are refused" {
	for wrong in "nothing" "alloc --case none" "alloc --size 0" "alloc --threads 0" "alloc --threads 17"; do
		run "$NEAP" bench $wrong
		[ "$status" -eq 64 ]
	done
}
