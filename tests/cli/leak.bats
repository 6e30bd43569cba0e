#!/usr/bin/env bats
# What a leaking run is told: when, by `neap run`'s report, and by `neap explain leak`.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir" HOME="$dir"
	export NEAP_SIM="mem=64MiB,context=8MiB,reserved=2MiB,world=leak-$$-$BATS_TEST_NUMBER"
	unset NEAP_ATTACH NEAP_RUN_DIR NEAP_RUN_ID NEAP_FRACTION NO_COLOR LD_LIBRARY_PATH
	cd "$dir"
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"leak-$$-$BATS_TEST_NUMBER"
}

leaking() {
	run "$NEAP" run --folder run -- "$CHARLM" --steps 150 --batch 8 --layers 1 --width 32 --context 16 "$@"
	echo "$output"
}

verdict() { jq -r '.leak_verdict, .leak_bytes_per_step, (.leak_confidence > 0.999)' run/result.json; }

@test "a run that a leak has killed is reported as leaking" {
	leaking --leak-per-step 512KiB
	[ "$status" -eq 1 ]
	[ "$(verdict)" = "$(printf 'leak\n524288\ntrue')" ]
}

@test "a steep leak is warned of before it kills" {
	leaking --leak-per-step 1MiB
	[[ "$output" == *"memory grows by 1.00 MiB per step"*"memory will end at step 53 of 150"* ]]
	[ "$(verdict)" = "$(printf 'leak\n1048576\ntrue')" ]
}

@test "a leak that is cleared by force is a leak" {
	leaking --leak-per-step 512KiB --on-leak clear
	[ "$status" -eq 0 ]
	[ "$(verdict)" = "$(printf 'leak\n524288\ntrue')" ]
	[[ "$output" == *"advice    none: memory grows with the steps"* ]]
}

@test "explain leak: how many steps are left, where the device's size is known" {
	leaking --leak-per-step 128KiB
	[ "$status" -eq 0 ]
	run "$NEAP" explain leak --record run/record.*
	echo "$output"
	[[ "$output" =~ "memory ends "([0-9]+)" steps after the last one" ]]
	[ "${BASH_REMATCH[1]}" -lt 512 ]
}
