#!/usr/bin/env bats
# The OOM card against reality: a test causes a failure, applies its card's first fix, and runs it again.

load ../support/command.bash

device() { # MEM
	export NEAP_SIM="mem=$1,context=8MiB,reserved=2MiB,world=$world"
}

# FOLDER ARGUMENT...: a training, recorded; its first card as JSON in FOLDER.json
train() {
	local folder="$1"
	shift
	neap run --quiet --folder "$folder" "${limits[@]}" -- charlm --log-every 0 "$@" >/dev/null 2>&1 || true
	neap explain --record "$folder"/record.* --json >"$folder.json" --number 1 2>/dev/null ||
		neap explain --record "$folder"/record.* --json >"$folder.json"
}

card() { # FILE FILTER
	jq -r ".oom | $2" "$1.json"
}

# Checks that run B, made with the first fix of A's card, shows what the card says of that fix.
assert_held() { # A B
	echo "$1: $(jq -c '.oom | [.cause, .event, .fixes[0]]' "$1.json") then $(jq -c '[.ooms, .oom.event]' "$2.json")"
	[ "$(card "$1" '.fixes[0].sufficient')" = true ]
	if [ "$(card "$1" '.fixes[0].sufficient_for_step')" = true ]; then
		[ "$(jq .ooms "$2.json")" = 0 ]
	else # only this request is promised: if something fails next, it is a later one
		[ "$(jq --argjson was "$(card "$1" .event)" '.ooms == 0 or .oom.event > $was' "$2.json")" = true ]
	fi
}

@test "capacity: the micro-batch it names fits" {
	device 48MiB
	train a --steps 1 --batch 128
	[ "$(jq .ooms a.json)" = 1 ]
	[ "$(card a .cause)" = capacity ]
	[ "$(card a '.fixes[0].kind')" = "smaller micro-batch" ]
	[ "$(card a '.settings | map(select(.name == "PyTorch with its defaults")) | length')" = 1 ]
	[ "$(card a '.settings[0] | .as_it_was, .fits')" = "$(printf 'true\nfalse')" ]
	train b --steps 1 --batch 128 --micro-batch "$(card a '.fixes[0].text' | sed 's/.*-> \([0-9]*\),.*/\1/')"
	assert_held a b
	[ "$(jq .ooms b.json)" = 0 ]
	# A device of the size that the card names is enough, besides what others and contexts held.
	[ "$(card a .smallest_is_lower_bound)" = false ]
	device "$(($(card a '.smallest_memory + .others') / 1024 + 2048))KiB"
	train c --steps 1 --batch 128
	[ "$(jq .ooms c.json)" = 0 ]
}

@test "the limit of a fraction: the fraction it names lets the request pass" {
	device 96MiB
	limits=(--fraction 0.2)
	train a --steps 1 --layers 1 --batch 128
	[ "$(card a .cause)" = limit ]
	[ "$(card a '.fixes[0].kind')" = "higher limit" ]
	limits=(--fraction "$(card a '.fixes[0].text' | sed 's/.*(fraction \([0-9.]*\)).*/\1/')")
	train b --steps 1 --layers 1 --batch 128
	assert_held a b
}

fraction_named() { # FILE
	card "$1" '.fixes[] | select(.kind == "higher limit") | .text' | sed 's/.*(fraction \([0-9.]*\)).*/\1/'
}

# Runs these arguments, in a folder and a world of their own, at each of the fractions; the fraction is raised once,
# as the card says.
one_raise() { # NUMBER ARGUMENT...
	local world="$world-$1" fraction
	mkdir "$1"
	cd "$1"
	shift
	device 96MiB
	for fraction in 0.12 0.15 0.2; do
		rm -rf a b
		limits=(--fraction "$fraction")
		train a "$@"
		echo "$* at $fraction: $(card a '.fixes[0].text')"
		[ "$(card a '.smallest_is_lower_bound, (.fixes[0] | .kind, .sufficient_for_step)')" = "$(printf 'false\nhigher limit\ntrue')" ]
		limits=(--fraction "$(fraction_named a)")
		train b "$@"
		[ "$(jq .ooms b.json)" = 0 ]
	done
}

@test "the limit: one raise is enough if whole steps are recorded, whatever the batch" {
	local one raises=()
	one_raise 1 --steps 3 &
	raises+=($!)
	one_raise 2 --steps 2 --batch 96 &
	raises+=($!)
	one_raise 3 --steps 1 --layers 1 --batch 128 &
	raises+=($!)
	one_raise 4 --steps 2 --batch 60 --width 96 &
	raises+=($!)
	for one in "${raises[@]}"; do wait "$one"; done
}

@test "the limit: the raise is no more than a hundredth or two above what is needed" {
	device 96MiB
	limits=(--fraction 0.15)
	train a --steps 3
	limits=(--fraction "$(jq -n "$(fraction_named a) - 0.02")")
	train b --steps 3
	[ "$(jq '.ooms > 0' b.json)" = true ]
}

@test "the limit: without a whole step it is a lower bound in its first words, and raised again until it holds" {
	device 96MiB
	local fraction=0.15 tries=0
	while :; do
		rm -rf a
		limits=(--fraction "$fraction")
		train a --steps 1 --batch 7 --micro-batch 1 --width 192 --layers 4 --efficient-attention off --checkpointing off
		[ "$(jq .ooms a.json)" != 0 ] || break
		[[ "$(card a '.fixes[] | select(.kind == "higher limit") | .text')" == "a lower bound: limit raised by at least "* ]]
		[ "$(card a '.fixes[] | select(.kind == "higher limit") | .sufficient_for_step')" = null ]
		[ "$(card a .smallest_is_lower_bound)" = true ]
		neap explain --record a/record.* >text
		grep -q "the smallest device that fits: a lower bound, " text
		[ "$(fraction_named a)" != "$fraction" ]
		fraction="$(fraction_named a)"
		tries=$((tries + 1))
	done
	[ "$tries" -ge 1 ]
}

@test "every fix that is named as enough lets the request pass, and the steps if they repeat" {
	device 96MiB
	local kind text more first tries
	limits=(--fraction 0.2)
	train first --steps 1 --efficient-attention off --checkpointing off
	while IFS=$'\t' read -r kind text; do
		more=() limits=(--fraction 0.2) tries=0
		cp first.json b.json
		until [ "$(jq .ooms b.json)" = 0 ]; do
			case "$kind" in
			"higher limit") limits=(--fraction "$(fraction_named b)") ;;
			"smaller micro-batch")
				more=(--micro-batch "$(card b '.fixes[] | select(.kind == "smaller micro-batch") | .text' |
					sed 's/.*-> \([0-9]*\),.*/\1/')") ;;
			"memory-efficient attention") more=(--efficient-attention on --checkpointing off) ;;
			"gradient checkpointing") more=(--checkpointing on --efficient-attention off) ;;
			"mixed precision") more=(--mixed-precision on --checkpointing off --efficient-attention off) ;;
			"smaller model") more=(--width 44 --checkpointing off --efficient-attention off) ;; # 64 / sqrt 2
			*) echo "no way to apply: $kind" && false ;;
			esac
			rm -rf b
			was="$(card b .event)"
			train b --steps 1 "${more[@]}"
			echo "$kind ($text): $(jq -c '[.ooms, .oom.event, .oom.fixes[0].kind]' b.json)"
			[ "$(jq --argjson was "$was" '.ooms == 0 or .oom.event > $was' b.json)" = true ]
			tries=$((tries + 1))
			# If a fix promised only this request, a later one may fail: its card then names the next fix.
			case "$kind" in "higher limit" | "smaller micro-batch") ;; *) break ;; esac
		done
		[ "$kind" != "higher limit" ] || [ "$tries" = 1 ]
	done < <(card first '.fixes[] | select(.sufficient and (.active_already | not)) | "\(.kind)\t\(.text)"')
}

@test "neighbours: without them the run completes" {
	device 96MiB
	start 40 1
	train a --steps 1 --batch 128
	[ "$(card a .cause)" = neighbours ]
	[ "$(card a '.fixes[0].kind')" = "end other processes" ]
	kill -9 "$target"
	wait "$target" || true
	train b --steps 1 --batch 128
	assert_held a b
	[ "$(jq .ooms b.json)" = 0 ]
}

@test "a leak: mended, the steps fit" {
	device 32MiB
	train a --steps 60 --layers 1 --batch 8 --width 32 --context 16 --leak-per-step 512KiB
	[ "$(card a '.fixes[0].kind')" = "mend the leak" ]
	# The leaked memory has the tag of activations, but does not shrink with the micro-batch: that is no fix.
	[ "$(card a '[.fixes[].kind] | index("smaller micro-batch")')" = null ]
	train b --steps 60 --layers 1 --batch 8 --width 32 --context 16
	assert_held a b
	[ "$(jq .ooms b.json)" = 0 ]
}

# A text trace on a device of SIZE: a replay with each setting shows what the card says of it.
assert_replays() { # TRACE SIZE
	neap analyze "$1" --memory "$2" --json >"$1.json"
	jq -c '.oom | [.cause, .missing, (.fixes | map(.text))]' "$1.json"
	[ "$(card "$1" .predicted)" = true ]
	local settings fits
	while read -r settings fits; do
		run --separate-stderr neap replay "$1" --memory "$2" --settings "$settings" --json
		[ "$(jq '.ooms == 0' <<<"$output")" = "$fits" ]
	done < <(card "$1" '.settings[] | select(.settings) | "\(.settings) \(.fits)"')
	run --separate-stderr neap replay "$1" --memory "$2" --policy neap --json
	[ "$(jq '.ooms == 0' <<<"$output")" = "$(card "$1" '.settings[] | select(.name == "neap'"'"'s allocator") | .fits')" ]
	# Fixes that are enough come before fixes that are not.
	[ "$(card "$1" '[.fixes[] | select(.active_already | not) | .sufficient] | . == (sort | reverse)')" = true ]
	run --separate-stderr neap replay "$1" --memory "$(card "$1" .smallest_memory)" --json
	[ "$(jq .ooms <<<"$output")" = 0 ]
	run --separate-stderr neap replay "$1" --memory "$(($(card "$1" .smallest_memory) - 2097152))" --json
	[ "$(jq '.ooms > 0' <<<"$output")" = true ]
}

@test "fragmentation by odd sizes: with the setting that it names the trace completes" {
	{ for i in $(seq 8); do echo "a $i 9437184 0"; done; echo "a 9 25165824 0"; } >odd
	assert_replays odd 101MiB
	[ "$(card odd .cause)" = fragmentation ]
	[ "$(card odd '.fixes[0] | .text, .sufficient, .replayed')" = \
		"$(printf 'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\ntrue\ntrue')" ]
}

@test "memory stranded on other streams: no setting of PyTorch's helps, and the card names neap's allocator" {
	for stream in 1 2 3 4; do
		printf 'a %d 9437184 %d\na %d 9437184 %d\nf %d\n' "1$stream" "$stream" "2$stream" "$stream" "2$stream"
	done >stranded
	echo "a 99 18874368 0" >>stranded
	assert_replays stranded 81MiB
	[ "$(card stranded .cause)" = fragmentation ]
	[ "$(card stranded '.fixes[] | select(.sufficient) | .apply | tojson')" = '{"allocator":"neap"}' ]
	[ "$(card stranded '.settings[] | select(.name == "neap'"'"'s allocator") | .fits')" = true ]
}

@test "one request that is larger than the device: capacity, and a device that would be enough" {
	printf 'a 1 10485760 0\na 2 524288000 0\n' >giant
	assert_replays giant 100MiB
	[ "$(card giant .cause)" = capacity ]
	[ "$(card giant '[.fixes[] | select(.sufficient)] | length')" = 0 ]
	[ "$(card giant .smallest_memory)" = $((510 << 20)) ]
}

@test "a device that is large enough: no card" {
	printf 'a 1 10485760 0\n' >small
	run --separate-stderr neap analyze small --memory 100MiB --json
	[ "$(jq .oom <<<"$output")" = null ]
}

@test "live: who holds the memory of a running process, then the card of its failure" {
	device 34MiB
	NEAP_ATTACH=1 start 4 8
	show "neap explain --pid $target"
	show "neap explain --pid $target --json | jq -c '[.running, .ooms, .oom]'"
	kill -0 "$target"
	show "neap explain --pid $$"
	show 'neap explain --pid x'
	expect live
}

@test "a recording whose ring has lost its beginning: the card says so, and counts what was live before" {
	# A step leaks more than the replay may save by packing tighter than the process did.
	device 448MiB
	train a --steps 2200 --layers 1 --batch 8 --width 32 --context 16 --leak-per-step 256KiB
	[ "$(card a '.lost_events > 40000 and .lost_events < 70000')" = true ]
	# Memory that leaked before the ring's first event has no event: the replay includes it and fails again.
	[ "$(card a '.live_before_unknown > 1048576')" = true ]
	[ "$(card a '.settings[0] | .as_it_was, .fits')" = "$(printf 'true\nfalse')" ]
	show 'neap explain --record a/record.* | tr -s " \n" " " | grep -o "The recording.s ring.* seems\."'
	expect ring '\d+ older events/N older events' '[\d.]+ MiB of it/SIZE of it'
}
