#!/usr/bin/env bats
# What a person does with a running training: every byte of the device is accounted for, the cache is emptied while it
# continues with the same losses, and its memory is back before the next run starts.
#
# NEAP and CHARLM are the programs; python3 reads the JSON.

setup() {
	export NEAP_DEVICE=sim
	export NEAP_SIM="mem=96MiB,context=8MiB,reserved=2MiB,release_delay=${DELAY:-0}ms,world=live-$$-$BATS_TEST_NUMBER"
	export XDG_RUNTIME_DIR=$BATS_TEST_TMPDIR/runtime XDG_STATE_HOME=$BATS_TEST_TMPDIR/state
	mkdir -p -m 700 "$XDG_RUNTIME_DIR"
	mkdir -p "$XDG_STATE_HOME"
	charlm=("$CHARLM" --batch 64 --micro-batch 32 --steps "${STEPS:-40}")
}

teardown() {
	[ -z "${run_pid-}" ] || kill "$run_pid" 2>/dev/null || true
	wait
}

json() { python3 -c "import json,sys; d=json.load(sys.stdin); print($1)"; }

# The PID of the attached charlm, once it holds memory; gives up after 30 s.
attached_pid() {
	local tries=0 pid
	while [ $tries -lt 600 ]; do
		pid=$("$NEAP" info --json 2>/dev/null |
			json "next((p['pid'] for p in d['processes'] if p['attached'] and p['allocated']), '')")
		[ -n "$pid" ] && { echo "$pid"; return 0; }
		tries=$((tries + 1))
		sleep 0.05
	done
	return 1
}

@test "info accounts for every byte of the device while a run goes on" {
	STEPS=100000
	setup
	"$NEAP" run --quiet -- "${charlm[@]}" >/dev/null 2>&1 &
	run_pid=$!
	attached_pid
	for _ in 1 2 3 4 5; do
		"$NEAP" info --json >"$BATS_TEST_TMPDIR/info.json"
		python3 - "$BATS_TEST_TMPDIR/info.json" <<-'PYTHON'
			import json, sys
			data = json.load(open(sys.argv[1]))
			assert data["backend"] == "sim", data["backend"]
			(device,) = data["devices"]
			ledger = device["ledger"]
			parts = ["driver_reserved", "contexts", "allocated", "cached", "not_attached", "unexplained", "free"]
			assert sum(ledger[part] for part in parts) == ledger["total"] == 96 << 20, ledger
			assert ledger["unexplained"] == 0, ledger
			assert ledger["driver_reserved"] == 2 << 20 and ledger["contexts"] == 8 << 20, ledger
			assert ledger["allocated"] > 0, ledger
			(process,) = data["processes"]
			assert process["attached"] and process["allocated"] == ledger["allocated"], process
		PYTHON
	done
	kill -TERM "$run_pid"
	wait "$run_pid" || true
	run_pid=
}

@test "clear makes reserved bytes fall and the losses stay the same" {
	"${charlm[@]}" --losses "$BATS_TEST_TMPDIR/plain" >/dev/null
	"$NEAP" run --quiet -- "${charlm[@]}" --losses "$BATS_TEST_TMPDIR/cleared" >/dev/null 2>&1 &
	run_pid=$!
	pid=$(attached_pid)
	fell=no
	while kill -0 "$run_pid" 2>/dev/null; do
		if "$NEAP" clear --pid "$pid" --json >"$BATS_TEST_TMPDIR/clear.json" 2>/dev/null; then
			python3 - "$BATS_TEST_TMPDIR/clear.json" <<-'PYTHON' && fell=yes && break
				import json, sys
				(process,) = json.load(open(sys.argv[1]))["processes"]
				(device,) = process["devices"]
				sys.exit(0 if device["reserved"] < device["reserved_before"] else 1)
			PYTHON
		fi
	done
	wait "$run_pid"
	run_pid=
	[ "$fell" = yes ]
	cmp "$BATS_TEST_TMPDIR/plain" "$BATS_TEST_TMPDIR/cleared"
}
