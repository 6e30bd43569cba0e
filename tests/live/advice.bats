#!/usr/bin/env bats
# Upward advice, checked by following it: a run with the largest advised micro-batch completes, one sample more runs out
# of memory; and the predicted headroom is the measured one.
#
# NEAP and CHARLM are the programs; jq reads the JSON.

setup() {
	export NEAP_DEVICE=sim XDG_RUNTIME_DIR=$BATS_TEST_TMPDIR/runtime XDG_STATE_HOME=$BATS_TEST_TMPDIR/state
	mkdir -p -m 700 "$XDG_RUNTIME_DIR"
	mkdir -p "$XDG_STATE_HOME"
}

# world SIZE_MIB
world() {
	mib=$1
	export NEAP_SIM="mem=${mib}MiB,context=8MiB,reserved=2MiB,world=advice-$$-$BATS_TEST_NUMBER-$mib"
}

# train NAME MICRO ACCUMULATE [OPTION...]: leaves the result in $BATS_TEST_TMPDIR/NAME
train() {
	local name=$1 micro=$2 accumulate=$3
	shift 3
	"$NEAP" run --no-history --quiet ${FRACTION:+--fraction "$FRACTION"} --folder "$BATS_TEST_TMPDIR/$name" -- \
		"$CHARLM" --log-every 0 --steps 2 --batch $((micro * accumulate)) --micro-batch "$micro" "$@" \
		>"$BATS_TEST_TMPDIR/out" 2>&1 || { cat "$BATS_TEST_TMPDIR/out"; return 1; }
}

field() { jq -r ".$2" "$BATS_TEST_TMPDIR/$1/result.json"; }

# Follows the advice of run NAME: runs at it, and one above. LIMIT: bytes the process may reserve, if not all of the
# device.
check() {
	local name=$1
	shift
	local advised accumulate headroom uncertainty
	advised=$(field "$name" advised_micro_batch)
	accumulate=$(field "$name" accumulate)
	headroom=$(field "$name" advised_headroom_bytes)
	uncertainty=$(field "$name" advised_uncertainty_bytes)
	echo "$mib MiB: $(field "$name" advice)"
	[ "$advised" -gt 0 ]
	[ "$uncertainty" -eq 0 ] # a page is 2 MiB: to the byte
	train "$name-at" "$advised" "$accumulate" "$@"
	[ "$(field "$name-at" ooms)" -eq 0 ]
	[ "$(field "$name-at" rungs)" -eq 0 ]
	local room=${LIMIT:-$(((mib - 10) << 20))}
	[ "$headroom" -eq $((room - $(field "$name-at" peak_reserved_bytes))) ]
	[ "$(field "$name-at" advised_micro_batch)" -eq "$advised" ] # and it says so itself
	train "$name-above" $((advised + 1)) "$accumulate" "$@"
	[ "$(field "$name-above" ooms)" -ge 1 ]
}

@test "three sizes: the advice fits, one above does not" {
	world 20
	train small 4 1
	check small
	world 28
	train middle 16 2
	[ "$(field middle kept_micro_batch)" -eq 32 ]
	[ "$(field middle kept_accumulate)" -eq 1 ]
	check middle
	world 44
	train large 7 1
	check large
}

# advised_batch NAME BATCH: runs the micro-batch that keeps the batch of NAME, in parts that may be unequal.
check_kept() {
	local name=$1 batch=$2
	local kept parts headroom
	kept=$(field "$name" kept_micro_batch)
	parts=$(field "$name" kept_accumulate)
	headroom=$(field "$name" kept_headroom_bytes)
	echo "$mib MiB: $(field "$name" advice)"
	"$NEAP" run --no-history --quiet --folder "$BATS_TEST_TMPDIR/$name-kept" -- \
		"$CHARLM" --log-every 0 --steps 2 --batch "$batch" --micro-batch "$kept" >"$BATS_TEST_TMPDIR/out" 2>&1
	[ "$(field "$name-kept" ooms)" -eq 0 ]
	[ "$(field "$name-kept" micro_batch)" -eq "$kept" ]
	[ "$(field "$name-kept" accumulate)" -eq "$parts" ]
	[ "$(field "$name-kept" batch)" -eq "$batch" ]
	[ "$headroom" -eq $((((mib - 10) << 20) - $(field "$name-kept" peak_reserved_bytes))) ]
}

@test "unequal parts: learned from them, and advised" {
	world 20
	for batch in 37 66; do # the ladder makes 19 + 18 of one, 17 + 17 + 16 + 16 of the other
		"$NEAP" run --no-history --quiet --folder "$BATS_TEST_TMPDIR/$batch" -- "$CHARLM" --log-every 0 --steps 3 \
			--batch "$batch" --micro-batch $((batch > 40 ? batch / 2 : batch)) >"$BATS_TEST_TMPDIR/out" 2>&1
		[ "$(field "$batch" rung)" = "$([ "$batch" = 37 ] && echo "micro_batch 37 -> 19, accumulate 1 -> 2" ||
			echo "micro_batch 33 -> 17, accumulate 2 -> 4")" ]
		check "$batch"
		check_kept "$batch" "$batch"
	done
	world 28
	train whole 30 1 # 30 + 30 + 29 + 29 ... of 355
	"$NEAP" run --no-history --quiet --folder "$BATS_TEST_TMPDIR/many" -- "$CHARLM" --log-every 0 --steps 2 \
		--batch 355 --micro-batch 30 >"$BATS_TEST_TMPDIR/out" 2>&1
	check many
	check_kept many 355
}

@test "with other settings, and another model" {
	world 18
	train attention 4 1 --efficient-attention on
	check attention --efficient-attention on
	world 16
	train checkpointing 4 1 --checkpointing on --mixed-precision on
	check checkpointing --checkpointing on --mixed-precision on
	train deep 3 2 --layers 3 --width 48 --context 24
	check deep --layers 3 --width 48 --context 24
}

@test "what was learned from running out: a rung was taken, and more than half fits" {
	world 20
	train rung 32 1 --steps 3
	[ "$(field rung rungs)" -eq 1 ]
	[ "$(field rung micro_batch)" -eq 16 ]
	[ "$(field rung advised_micro_batch)" -gt 16 ]
	[ "$(field rung advised_micro_batch)" -lt 32 ]
	check rung
}

@test "within a limit" {
	world 40
	export FRACTION=0.5
	train limited 8 1
	LIMIT=$((19 << 20)) check limited # half of the 38 MiB that CUDA reports; there are no half pages of 2 MiB
}

@test "no session, or a leak: no advice, and why" {
	world 48
	"$NEAP" run --no-history --quiet --folder "$BATS_TEST_TMPDIR/plain" -- true
	[ "$(field plain advised_micro_batch)" -eq 0 ]
	[ "$(field plain advice)" = "" ]
	"$NEAP" run --no-history --folder "$BATS_TEST_TMPDIR/leaky" -- "$CHARLM" --steps 40 --batch 2 --log-every 0 \
		--leak-per-step 128KiB >"$BATS_TEST_TMPDIR/out" 2>&1
	[ "$(field leaky leak_verdict)" = leak ]
	[ "$(field leaky advised_micro_batch)" -eq 0 ]
	[ "$(field leaky advice)" = "none: memory grows with the steps: what fits today does not fit later; mend the leak first" ]
	grep -qxF "  advice    $(field leaky advice)" "$BATS_TEST_TMPDIR/out"
}
