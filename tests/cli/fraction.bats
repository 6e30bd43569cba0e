#!/usr/bin/env bats
# neap fraction on running processes, neap run --fraction, neap enable. Each test has its own world and its own folders.

bats_require_minimum_version 1.5.0

world=fraction
load targets.bash

@test "fraction: what is not a fraction is wrong usage" {
	start 4 8
	for wrong in 0 -0.5 1.01 nan inf half 0.5x ''; do
		run --separate-stderr "$NEAP" fraction -- "$wrong"
		[ "$status" -eq 64 ]
		[ "$stderr" = "neap fraction: a fraction is a number above 0 and at most 1, not '$wrong' (see 'neap help fraction')" ]
		run --separate-stderr "$NEAP" run --fraction="$wrong" -- true
		[ "$status" -eq 64 ]
	done
	run "$NEAP" fraction
	[ "$status" -eq 64 ]
	run "$NEAP" fraction 0.5 --pid "$target" --all
	[ "$status" -eq 64 ]
}

@test "fraction: before, after, the emptied cache, and what is beside it" {
	start 4 8
	run --separate-stderr "$NEAP" fraction 0.5
	echo "$output$stderr"
	[ "$status" -eq 0 ]
	[ "${lines[0]%% (*}" = "Process $target" ]
	[ "${lines[2]}" = "  limit            none before,    127 MiB after (0.5 of 254 MiB)" ]
	[ "${lines[3]}" = "  reserved     12.0 MiB before,   12.0 MiB after (0 B)" ]
	[[ "${lines[5]}" == "  the cache stays: "* ]]
	[ "${lines[6]}" = "  it may reserve 115 MiB more" ]
	[ "${lines[7]}" = "  beside it    8.00 MiB context, 0 B of the process's other memory: the limit is not for these" ]
	run --separate-stderr "$NEAP" fraction 0.02 --pid "$target"
	[ "$status" -eq 0 ]
	[ "${lines[3]}" = "  reserved     12.0 MiB before,   4.00 MiB after (-8.00 MiB)" ]
	[ "${lines[4]}" = "  free          234 MiB before,    242 MiB after (+8.00 MiB)" ]
	[[ "${lines[5]}" == "  emptied the cache: gave back 8.00 MiB in "* ]]
	run --separate-stderr "$NEAP" fraction 0.01
	[ "$status" -eq 0 ]
	[[ "$output" == *"  live bytes are 4.00 MiB, above the limit: further growth will fail"* ]]
	run --separate-stderr "$NEAP" fraction 1 --all --json
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	[ "$(json 'j["schema"], j["fraction"], [(p["pid"], p["error"], [(d["limit_before"] >> 20, d["limit"], d["reserved"] >> 20, d["emptied"], d["context"] >> 20, d["other"], d["error"]) for d in p["devices"]]) for p in j["processes"]]')" = "(1, 1.0, [($target, None, [(2, None, 4, False, 8, 0, None)])])" ]
}

@test "fraction: processes that are not attached, or gone" {
	run --separate-stderr "$NEAP" fraction 0.5
	[ "$status" -eq 69 ]
	start --plain 4 8
	run --separate-stderr "$NEAP" fraction 0.5 --pid "$target"
	[ "$status" -eq 69 ]
	[[ "$stderr" == "neap fraction: process $target ("*") is not attached: "* ]]
	true &
	gone=$!
	wait "$gone"
	run --separate-stderr "$NEAP" fraction 0.5 --pid "$gone"
	[ "$status" -eq 66 ]
	[ "$stderr" = "neap fraction: there is no process $gone" ]
}

@test "fraction: with a stopped process it is left, and in force when it goes on" {
	start 4 8
	kill -STOP "$target"
	until grep -q '^State:.T' "/proc/$target/status"; do :; done
	run --separate-stderr timeout 60 "$NEAP" fraction 0.02 --pid "$target"
	echo "$output$stderr"
	[ "$status" -eq 0 ]
	[ "${lines[0]%% (*}" = "Process $target" ]
	[[ "${lines[0]}" == *" is stopped" ]]
	[ "${lines[1]}" = "  the limit (0.02 of each device) was left with it: it takes effect as soon as the process continues (kill -CONT $target)" ]
	run --separate-stderr timeout 60 "$NEAP" clear --pid "$target"
	[ "$status" -eq 75 ]
	[[ "$stderr" == "neap clear: process $target ("*") is stopped and cannot answer; nothing was changed."* ]]
	kill -CONT "$target"
	run --separate-stderr "$NEAP" fraction 1 --json
	[ "$(json '[(d["limit_before"] >> 20, d["reserved_before"] >> 20) for d in j["processes"][0]["devices"]]')" = "[(5, 4)]" ]
}

@test "fraction: a running training runs into the limit, and its ladder takes a rung" {
	for ((i = 0; i < 600; i++)); do echo "the $((i % 7)) cats of step $i sat on mat $((i * i % 11))."; done >"$dir/text"
	mkfifo "$dir/losses"
	"$NEAP" run --folder "$dir/run" -- "$CHARLM" --text "$dir/text" --layers 1 --width 32 --heads 2 --log-every 0 \
		--steps 5000 --losses "$dir/losses" >"$dir/out" 2>"$dir/err" 3>&- &
	supervisor=$!
	exec 19<"$dir/losses"
	read -r loss <&19
	pids=("$dir"/neap/*.page)
	pid=$(basename "${pids[0]}" .page)
	run --separate-stderr "$NEAP" fraction 0.025 --pid "$pid" # 6.3 MiB; the whole batch needs about 8
	echo "$output$stderr"
	[ "$status" -eq 0 ]
	[[ "$output" == *"emptied the cache: gave back "* ]]
	until grep -q 'micro-batch 64 -> 32' "$dir/err"; do
		kill -0 "$pid"
		read -r loss <&19
	done
	for _ in 1 2 3; do read -r loss <&19; done # it goes on
	kill -INT "$pid"
	cat <&19 >/dev/null
	wait "$supervisor" || [ $? -eq 130 ]
	[ "$(jq .rungs "$dir/run/result.json")" -ge 1 ]
	grep -q 'limit set on this process  *6.35 MiB' "$dir/err"
	[[ "$(jq -r .oom_card "$dir/run/result.json")" == *"Cause: the limit. "* ]]
}

@test "run --fraction: the next run is limited; an invalid value in the environment is reported" {
	run --separate-stderr "$NEAP" run --quiet --fraction 0.25 --folder "$dir/run" -- sh -c 'echo "$NEAP_FRACTION"'
	[ "$output" = 0.25 ]
	NEAP_FRACTION=0.01 run --separate-stderr "$NEAP" run --quiet --folder "$dir/run2" -- "$TARGET" 4 8 </dev/null
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"target: CUDA out of memory. Tried to allocate 4.00 MiB. "*"limit 2.54 MiB"* ]]
	NEAP_FRACTION=0.01 run --separate-stderr "$NEAP" run --quiet --fraction 1 --folder "$dir/run3" -- "$TARGET" 4 8 </dev/null
	[ "$status" -eq 0 ]
	export NEAP_FRACTION=lots
	start 4 8
	unset NEAP_FRACTION
	run --separate-stderr "$NEAP" info
	[[ "$output" == *"Process $target: NEAP_FRACTION is not followed: a fraction is a number above 0 and at most 1, not 'lots'"* ]]
	run --separate-stderr "$NEAP" info --json
	[[ "$(json 'j["processes"][0]["note"]')" == "NEAP_FRACTION is not followed: "* ]]
	run --separate-stderr "$NEAP" clear
	[ "$status" -eq 0 ]
}

@test "enable: eval takes it over, whatever was set" {
	run --separate-stderr "$NEAP" enable
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	[ "$(grep -v '^#' <<<"$output")" = "export PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True'" ]
	[[ "$output" == *"# "*"IPC"*"RDMA"*"attention is not a setting"* ]]
	export PYTORCH_CUDA_ALLOC_CONF="a:it's,b:[1,\$(touch $dir/hacked)],c:\\x\"!" PYTORCH_ALLOC_CONF=max_split_size_mb:64
	for shell in sh bash; do
		run --separate-stderr "$shell" -c 'eval "$("$NEAP" enable)"; printf "%s\n" "$PYTORCH_CUDA_ALLOC_CONF" "$PYTORCH_ALLOC_CONF"'
		[ "$status" -eq 0 ]
		[ -z "$stderr" ]
		[ "${lines[0]}" = "expandable_segments:True,$PYTORCH_CUDA_ALLOC_CONF" ]
		[ "${lines[1]}" = "expandable_segments:True,max_split_size_mb:64" ]
	done
	[ ! -e "$dir/hacked" ]
	run "$NEAP" enable
	[[ "$output" == *"# max_split_size_mb is set as well"* ]]
	PYTORCH_CUDA_ALLOC_CONF='a\b'\''!' run "$NEAP" enable --shell fish
	[[ "$output" == *"set -gx PYTORCH_CUDA_ALLOC_CONF 'expandable_segments:True,a\\\\b\\'!'"* ]]
	PYTORCH_CUDA_ALLOC_CONF='a\b'\''!' run "$NEAP" enable --shell csh
	[[ "$output" == *"setenv PYTORCH_CUDA_ALLOC_CONF 'expandable_segments:True,a\\b'\\''\\!';"* ]]
	[ -z "$(grep -v ';$' <<<"$output")" ]
	run "$NEAP" enable --shell zsh
	[ "$status" -eq 64 ]
}

@test "run --enable: the same in the child's environment alone" {
	PYTORCH_CUDA_ALLOC_CONF=a:1 run --separate-stderr "$NEAP" run --quiet --enable --fraction 0.5 --folder "$dir/run" -- env
	[ "$status" -eq 0 ]
	[ "$(grep -c '^PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,a:1$' <<<"$output")" -eq 1 ]
	[ "$(grep -c '^PYTORCH_CUDA_ALLOC_CONF=' <<<"$output")" -eq 1 ]
	[ "$(grep -c '^PYTORCH_ALLOC_CONF=' <<<"$output")" -eq 0 ]
	[ "$(grep -c '^NEAP_FRACTION=0.5$' <<<"$output")" -eq 1 ]
	[ "$(grep -c '^NEAP_ATTACH=1$' <<<"$output")" -eq 1 ]
}

@test "run --allocator: passed on, and nothing but the two names" {
	NEAP_ALLOCATOR=neap run --separate-stderr "$NEAP" run --quiet --allocator default --folder "$dir/run" -- env
	[ "$(grep -c '^NEAP_ALLOCATOR=default$' <<<"$output")" -eq 1 ]
	run --separate-stderr "$NEAP" run --quiet --allocator neap --folder "$dir/run2" -- env
	[ "$(grep -c '^NEAP_ALLOCATOR=neap$' <<<"$output")" -eq 1 ]
	run "$NEAP" run --allocator best -- true
	[ "$status" -eq 64 ]
	[[ "$output" == *"--allocator: expected neap or default, not 'best'"* ]]
}

@test "fraction and clear: a device has the number that info shows, not the process's own" {
	export NEAP_SIM="mem=256MiB,gpus=2,order=reversed,context=8MiB,world=fraction-$$-$BATS_TEST_NUMBER"
	start 4 8
	run --separate-stderr "$NEAP" fraction 0.5
	[[ "${lines[1]}" == "GPU 1: Simulated GPU 256 MiB" ]]
	run --separate-stderr "$NEAP" clear
	[[ "$output" == *"GPU 1: Simulated GPU 256 MiB"* ]]
	run --separate-stderr "$NEAP" clear --json
	[ "$(json "[(d['ordinal'], d['index']) for d in j['processes'][0]['devices']]")" = "[(0, 1)]" ]
	run --separate-stderr "$NEAP" fraction 1 --json
	[ "$(json "[(d['ordinal'], d['index']) for d in j['processes'][0]['devices']]")" = "[(0, 1)]" ]
	run "$NEAP" info --json
	[ "$(json "[p['device'] for p in j['processes'] if p['attached']]")" = "[1]" ]
}

@test "info: memory on a device that NVML does not list is reported, and in no account" {
	start 4 8
	export NEAP_SIM="mem=256MiB,world=fraction-$$-$BATS_TEST_NUMBER-other"
	run "$NEAP" info
	[[ "$output" == *"Process $target: has 12.0 MiB reserved on a device that NVML does not list, such as a MIG instance: it is in no account above"* ]]
	run "$NEAP" info --json
	[ "$(json "[(p['pid'], p['reserved']) for p in j['unlisted']]")" = "[($target, 12582912)]" ]
	[ "$(json "j['processes']")" = "[]" ]
	rm -f "/dev/shm/"*"fraction-$$-$BATS_TEST_NUMBER-other"
}
