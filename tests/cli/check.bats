#!/usr/bin/env bats
# neap check: traces and commands; bounds, baselines, and what cannot be measured.

sim=mem=4GiB
load ../support/command.bash

prepare() {
	export TMPDIR="$dir/tmp"
	mkdir "$TMPDIR"
	printf 'a 1 8388608 0\na 2 16777216 0\nf 2\na 3 4096 1\ns\n' >trace.txt
}

# steps BYTES: 40 steps; each step keeps BYTES.
steps() {
	for i in $(seq 40); do
		[ "$1" -eq 0 ] || echo "a $i $1 0"
		printf 'a 1000 67108864 0\nf 1000\ns\n'
	done
}

@test "the peak of a trace, within its bound and beyond it" {
	show 'neap check trace.txt --max-peak 25MiB'
	show 'neap check --max-peak 24MiB trace.txt'
	show 'neap check --max-peak 20MiB trace.txt'
	expect peak
}

@test "growth over the steps, and too few steps to tell" {
	steps 0 >flat.txt
	steps 1048576 >leak.txt
	show 'neap check flat.txt --max-growth 0'
	show 'neap check leak.txt --max-growth 0 --max-peak 1GiB'
	show 'neap check leak.txt --max-growth 2MiB'
	show 'neap check trace.txt --max-growth 0'
	expect growth
}

@test "--json: numbers, and nothing but JSON" {
	steps 1048576 >leak.txt
	show 'neap check leak.txt --max-growth 0 --json'
	expect json
	jq -e . <<<"$output" >/dev/null
}

@test "a baseline: stored, kept, passed; the tolerance" {
	show 'neap check trace.txt --save-baseline base.json'
	show 'jq -c "[.schema, .allocated_peak, .bytes_per_step]" base.json'
	show 'neap check trace.txt --baseline base.json'
	sed 's/16777216/18874368/' trace.txt >more.txt
	show 'neap check more.txt --baseline base.json --save-baseline base.json'
	show 'jq .allocated_peak base.json' # figures beyond the bounds are not stored
	show 'neap check more.txt --baseline base.json --tolerance 10'
	show 'neap check trace.txt --baseline missing.json'
	show 'neap check trace.txt --baseline trace.txt'
	expect baseline
}

@test "a baseline bounds growth if it has it" {
	steps 0 >flat.txt
	steps 1048576 >leak.txt
	neap check flat.txt --save-baseline base.json
	show 'neap check leak.txt --baseline base.json --tolerance 1000'
	neap check leak.txt --save-baseline leaking.json
	show 'neap check leak.txt --baseline leaking.json'
	# Too few steps to know the growth: the peak is compared anyway.
	show 'neap check trace.txt --baseline base.json --json | jq -c "[.ok, .peak.ok, .growth.ok]"'
	show 'neap check trace.txt --baseline base.json --save-baseline never.json'
	[ ! -e never.json ]
	printf 'a 1 107374182 0\ns\n' >more.txt
	show 'neap check more.txt --baseline base.json'
	show 'neap check more.txt --baseline base.json --json | jq -c "[.ok, .peak.ok, .growth.ok]"'
	expect baseline_growth
}

@test "a command: what its allocator handed out; its folder is gone" {
	show 'neap check --max-peak 200MiB -- hold 100M'
	show 'neap check --max-peak 99MiB -- hold 100M'
	[ -z "$(ls tmp)" ]
	neap run --quiet --no-history --folder r -- hold 100M
	show 'neap check r --max-peak 100MiB'
	expect command
}

@test "the recording of a run that failed, or has no result" {
	neap run --quiet --no-history --folder r -- sh -c 'hold 100M; exit 3' || true
	show 'neap check r --max-peak 200MiB --save-baseline never.json'
	[ ! -e never.json ]
	show 'neap check r --max-peak 200MiB --json | jq -c "[.ok, .peak.ok, .peak.measured]"'
	show 'neap check r --max-peak 99MiB'
	rm r/result.json
	show 'neap check r --max-peak 200MiB'
	show 'neap explain leak --record r | grep peak'
	rm r/record.*
	show 'neap check r --max-peak 200MiB'
	expect recording
}

@test "--gpu: on the simulator, whatever GPU the machine has" {
	show "NEAP_DEVICE=cuda neap check --gpu t4-16gb --max-peak 1GiB -- sh -c 'echo \$NEAP_DEVICE \$NEAP_SIM >&2; exit 3'"
	expect gpu 'check-[\w.-]+/check-WORLD'
	[ ! -e /dev/nvidiactl ] || skip "this machine has a GPU"
	unset NEAP_DEVICE NEAP_SIM
	show "neap check --max-peak 1GiB -- sh -c 'echo \$NEAP_DEVICE \$NEAP_SIM >&2; exit 3'" # no driver here
	expect no_gpu 'check-[\w.-]+/check-WORLD'
}

@test "the devices that NEAP_SIM names, in a world of the check's own" {
	show "NEAP_SIM=2xt4-16gb,mem=2GiB,world=other neap check --streams -- sh -c 'echo \$NEAP_DEVICE \$NEAP_SIM >&2; neap info --json | jq -c \"[.devices[].name]\" >&2'"
	show 'NEAP_SIM=h101 neap check --streams -- true'
	expect named 'check-[\w.-]+/check-WORLD'
}

@test "a command that fails, uses no GPU, or does not exist" {
	show "neap check --max-peak 1GiB -- sh -c 'exit 7'"
	show 'neap check --max-peak 1GiB -- true'
	show 'neap check --max-peak 1GiB -- ./nowhere'
	expect failed
}

@test "options that make no sense" {
	for options in "trace.txt" "--max-peak 1GiB" "trace.txt --max-peak x" "trace.txt --max-peak 1GiB --tolerance 3" \
		"trace.txt --max-peak 1GiB --gpu t4-16gb" "trace.txt --max-peak 1GiB -- true" "--max-peak 1GiB --gpu h101 -- true" \
		"trace.txt trace.txt --max-peak 1GiB" "--steps 0 --max-peak 1GiB -- true"; do
		show "neap check $options"
	done
	show 'neap check missing.txt --max-peak 1GiB'
	expect usage
}
