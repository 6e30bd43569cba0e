#!/usr/bin/env bats
# neap explain: topics with this machine's figures, a log's message, a recording.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir" HOME="$dir"
	export NEAP_SIM="mem=256MiB,context=8MiB,reserved=2MiB,world=explain-$$-$BATS_TEST_NUMBER"
	unset NEAP_ATTACH NEAP_RUN_DIR NEAP_RUN_ID NEAP_FRACTION NO_COLOR LD_LIBRARY_PATH
	cd "$dir"
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"explain-$$-$BATS_TEST_NUMBER"
}

message() {
	echo "Traceback (most recent call last):"
	echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 23.68 GiB of" \
		"which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the allocated" \
		"memory 20.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
}

@test "--from: the arithmetic, the cause, what to try" {
	message >log
	run "$NEAP" explain --from log
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "Line 2: CUDA out of memory, GPU 0 (worded as by PyTorch 2.1 or later)" ]
	[[ "$output" == *"  Cause: capacity: with everything cached in one piece, 2.50 GiB would still be missing (S - F - C):"* ]]
	[[ "$output" == *"live memory must fall by 12.5 %."* ]]
	[[ "$output" == *"2.00 GiB of this process is outside PyTorch"* ]]
}

@test "--from -: standard input, --json, ranks that say the same are counted" {
	run --separate-stderr bash -c '{ cat; } | "$NEAP" explain --from - --json' < <(message; message)
	[ "$status" -eq 0 ]
	[ "$(jq -r '.schema, (.messages | length), .repeated_or_left_out' <<<"$output")" = "$(printf '1\n1\n1')" ]
	[ "$(jq -r '.messages[0] | .cause, .line, .tried_bytes, .others_bytes' <<<"$output")" = \
		"$(printf 'capacity\n2\n4294967296\n193273528')" ]
	[ "$(jq -r '.messages[0].allowed_bytes' <<<"$output")" = null ]
}

@test "a log as an operand, and on standard input" {
	message >train.log
	run "$NEAP" explain train.log
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "Line 2: CUDA out of memory, GPU 0 (worded as by PyTorch 2.1 or later)" ]
	[ "$(message | "$NEAP" explain)" = "$output" ]
	[ "$(true | "$NEAP" explain)" = "$("$NEAP" explain </dev/null)" ]
	run "$NEAP" explain no-such-topic-nor-file
	[ "$status" -eq 64 ]
}

@test "a log of repeated messages takes no time that grows with their square" {
	message >one
	for _ in $(seq 17); do cat one one >two && mv two one; done # 131 072 messages
	timeout 60 "$NEAP" explain one >out
	[[ "$(cat out)" == *"131071 more messages in the log"* ]]
}

@test "--from: a log without one, an empty one, none at all" {
	echo "all is well" >log
	run --separate-stderr "$NEAP" explain --from log
	[ "$status" -eq 65 ]
	[[ "$stderr" == "neap explain: no out-of-memory message in log: looked for 'CUDA out of memory.'"* ]]
	: >log
	run "$NEAP" explain --from log
	[ "$status" -eq 65 ]
	run "$NEAP" explain --from missing
	[ "$status" -eq 66 ]
}

@test "the topics, each with this machine's figures" {
	run "$NEAP" explain
	[ "$status" -eq 0 ]
	topics=$("$NEAP" explain | sed -n 's/^  \([a-z-]*\)  .*/\1/p')
	[ "$(wc -w <<<"$topics")" -ge 7 ]
	for topic in $topics; do
		run "$NEAP" explain "$topic"
		[ "$status" -eq 0 ]
		[[ "${lines[0]}" == "$topic: "* ]]
		[[ "$output" == *"  What to do"*"  Here and now"*" "* ]]
	done
	run "$NEAP" explain limit
	[[ "$output" == "limit: out of memory with memory free: a limit on the process

  Causes
    1. torch.cuda.set_per_process_memory_fraction(), per_process_memory_fraction in the settings, or
       neap fraction limits how much may be reserved.
    2. MIG, "*".

  What to do
    1. neap fraction 1 --pid P lifts "*".

  Here and now
"* ]]
	run "$NEAP" explain oom
	[[ "$output" == *"    GPU 0: 254 MiB free of 256 MiB;"* ]]
	NEAP_DEVICE=cuda run "$NEAP" explain oom
	[ "$status" -eq 0 ]
	[[ "$output" == *"    no figures: "* ]]
}

@test "what an attached process caches is named, with what gives it back" {
	mkfifo in out
	"$TARGET" 4 8 <in >out 3>&- &
	target=$!
	exec 20>in
	read -r line <out
	[ "$line" = ready ]
	run "$NEAP" explain not-returned
	kill -9 "$target"
	echo "$output"
	[[ "$output" == *"    process $target caches "*"neap clear --pid $target"* ]]
}

@test "a recording: its last out of memory's card" {
	NEAP_SIM="mem=34MiB,context=8MiB,reserved=2MiB,world=explain-$$-$BATS_TEST_NUMBER" "$NEAP" run -- "$CHARLM" --steps 2 \
		--batch 128 --layers 1 >/dev/null 2>&1
	record=$(find "$dir/state" -name 'record.*' | head -1)
	[ -n "$record" ]
	run "$NEAP" explain --record "$record"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"  In $record"* ]]
	[[ "$output" == *"Out of device memory: "* ]]
	run "$NEAP" explain leak --record "$record"
	[ "$status" -eq 0 ]
	[[ "$output" == *"too few to tell a trend"* ]]
	echo junk >junk
	run "$NEAP" explain --record junk
	[ "$status" -eq 65 ]
}

@test "wrong usage: 64" {
	for wrong in "nonsense" "oom --from log" "oom --json" "--from log --record r" "oom leak"; do
		run $NEAP explain $wrong
		[ "$status" -eq 64 ]
	done
}
