#!/usr/bin/env bats
# neap check: of traces and commands; bounds, baselines, and what cannot be measured.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir" TMPDIR="$dir/tmp"
	export NEAP_SIM="mem=4GiB,world=check-$$-$BATS_TEST_NUMBER"
	unset NO_COLOR LD_LIBRARY_PATH
	mkdir -m 700 "$dir/runtime" "$dir/tmp"
	cd "$dir"
	printf 'a 1 8388608 0\na 2 16777216 0\nf 2\na 3 4096 1\ns\n' >trace.txt
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"check-$$-$BATS_TEST_NUMBER"*
}

# steps BYTES: 40 steps, each of which keeps so much.
steps() {
	for i in $(seq 40); do
		[ "$1" -eq 0 ] || echo "a $i $1 0"
		printf 'a 1000 67108864 0\nf 1000\ns\n'
	done
}

check() { run --separate-stderr "$NEAP" check "$@"; }

@test "the peak of a trace, within its bound and beyond it" {
	check trace.txt --max-peak 25MiB
	[ "$status" -eq 0 ]
	[ "$output" = "neap check: ok: peak 24.0 MiB, 1.00 MiB below the bound of 25.0 MiB (trace.txt)" ]
	check --max-peak 24MiB trace.txt
	[ "$status" -eq 0 ]
	[ "$output" = "neap check: ok: peak 24.0 MiB, as much as is allowed (trace.txt)" ]
	check --max-peak 20MiB trace.txt
	[ "$status" -eq 1 ]
	[ "$output" = "neap check: FAILED: peak 24.0 MiB, 4.00 MiB over the bound of 20.0 MiB (trace.txt)" ]
	[ -z "$stderr" ]
}

@test "growth over the steps, and too few steps to tell" {
	steps 0 >flat.txt
	steps 1048576 >leak.txt
	check flat.txt --max-growth 0
	[ "$status" -eq 0 ]
	[ "$output" = "neap check: ok: peak 64.0 MiB; growth per step 0 B, as much as is allowed (flat.txt)" ]
	check leak.txt --max-growth 0 --max-peak 1GiB
	[ "$status" -eq 1 ]
	[ "$output" = "neap check: FAILED: peak 104 MiB, 920 MiB below the bound of 1.00 GiB; growth per step 1.00 MiB, 1.00 MiB over the bound of 0 B (leak.txt)" ]
	check leak.txt --max-growth 2MiB
	[ "$status" -eq 0 ]
	check trace.txt --max-growth 0
	[ "$status" -eq 69 ]
	[ -z "$output" ]
	[ "$stderr" = "neap check: not checked: growth is not known after 1 step: it takes 20 after the warm-up" ]
}

@test "--json: numbers, and nothing but JSON" {
	steps 1048576 >leak.txt
	check leak.txt --max-growth 0 --json
	[ "$status" -eq 1 ]
	[ "$(jq -c '[.schema, .ok, .peak.measured, .peak.bound, .peak.ok, .growth.measured, .growth.bound, .growth.ok, .steps]' <<<"$output")" = \
		'[1,false,109051904,null,true,1048576,0,false,40]' ]
}

@test "a baseline: stored, kept, passed; the tolerance" {
	check trace.txt --save-baseline base.json
	[ "$status" -eq 0 ]
	[ "$(jq -c '[.schema, .allocated_peak, .bytes_per_step]' base.json)" = '[1,25165824,null]' ]
	check trace.txt --baseline base.json
	[ "$status" -eq 0 ]
	[ "$output" = "neap check: ok: peak 24.0 MiB, 246 KiB below the bound of 24.2 MiB; baseline 24.0 MiB (trace.txt)" ]
	sed 's/16777216/18874368/' trace.txt >more.txt
	check more.txt --baseline base.json --save-baseline base.json
	[ "$status" -eq 1 ]
	[ "$output" = "neap check: FAILED: peak 26.0 MiB, 1.76 MiB over the bound of 24.2 MiB; baseline 24.0 MiB (more.txt)" ]
	[ "$stderr" = "neap check: the baseline was measured elsewhere: trace.txt" ]
	[ "$(jq .allocated_peak base.json)" = 25165824 ] # what is beyond the bounds is not stored
	check more.txt --baseline base.json --tolerance 10
	[ "$status" -eq 0 ]
	check trace.txt --baseline missing.json
	[ "$status" -eq 66 ]
	check trace.txt --baseline trace.txt
	[ "$status" -eq 65 ]
}

@test "a baseline bounds growth, where it knows it" {
	steps 0 >flat.txt
	steps 1048576 >leak.txt
	check flat.txt --save-baseline base.json
	check leak.txt --baseline base.json --tolerance 1000
	[ "$status" -eq 1 ]
	[[ "$output" == *"growth per step 1.00 MiB, 1.00 MiB over the bound of 0 B"* ]]
	check leak.txt --save-baseline leaking.json
	check leak.txt --baseline leaking.json
	[ "$status" -eq 0 ]
}

@test "a command: what its allocator handed out; its folder is gone" {
	check --max-peak 200MiB -- "$HOLD" 100M
	[ "$status" -eq 0 ]
	[[ "$output" == "neap check: ok: peak 100 MiB, 100 MiB below the bound of 200 MiB ("*", simulated)" ]]
	check --max-peak 99MiB -- "$HOLD" 100M
	[ "$status" -eq 1 ]
	[[ "$output" == "neap check: FAILED: peak 100 MiB, 1.00 MiB over the bound of 99.0 MiB ("* ]]
	[ -z "$(ls tmp)" ]
	"$NEAP" run --quiet --no-history --folder r -- "$HOLD" 100M
	check r --max-peak 100MiB
	[ "$status" -eq 0 ]
	[[ "$output" == "neap check: ok: peak 100 MiB, as much as is allowed ("* ]]
}

@test "--gpu: on the simulator, whatever there is" {
	NEAP_DEVICE=cuda check --gpu t4-16gb --max-peak 1GiB -- sh -c 'echo $NEAP_DEVICE $NEAP_SIM >&2; exit 3'
	[ "$status" -eq 3 ]
	[[ "$stderr" == "sim t4-16gb,backing=none,world=check-"* ]]
	unset NEAP_DEVICE NEAP_SIM
	check --max-peak 1GiB -- sh -c 'echo $NEAP_DEVICE $NEAP_SIM >&2; exit 3' # no driver here
	[[ "$stderr" == "sim h100-80gb,backing=none,world=check-"* || -e /dev/nvidiactl ]]
}

@test "a command that fails, uses no GPU, or is not there" {
	check --max-peak 1GiB -- sh -c 'exit 7'
	[ "$status" -eq 7 ]
	[ "$stderr" = "neap check: not checked: the command failed, exit status 7" ]
	check --max-peak 1GiB -- true
	[ "$status" -eq 69 ]
	[ "$stderr" = "neap check: no process of it used a GPU through PyTorch or neap, so its memory is not known" ]
	run -127 --separate-stderr "$NEAP" check --max-peak 1GiB -- ./nowhere
	[ "$status" -eq 127 ]
}

@test "options that make no sense" {
	for options in "trace.txt" "--max-peak 1GiB" "trace.txt --max-peak x" "trace.txt --max-peak 1GiB --tolerance 3" \
		"trace.txt --max-peak 1GiB --gpu t4-16gb" "trace.txt --max-peak 1GiB -- true" "--max-peak 1GiB --gpu h101 -- true" \
		"trace.txt trace.txt --max-peak 1GiB" "--steps 0 --max-peak 1GiB -- true"; do
		check $options
		[ "$status" -eq 64 ]
	done
	check missing.txt --max-peak 1GiB
	[ "$status" -eq 66 ]
}
