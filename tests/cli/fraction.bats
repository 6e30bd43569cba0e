#!/usr/bin/env bats
# neap fraction on running processes, neap run --fraction, neap enable.

sim=mem=256MiB,context=8MiB,reserved=2MiB
load ../support/command.bash

@test "fraction: a value that is no fraction is wrong usage" {
	start 4 8
	for wrong in 0 -0.5 1.01 nan inf half 0.5x "''"; do
		show "neap fraction -- $wrong"
		show "neap run --fraction=$wrong -- true"
	done
	show 'neap fraction'
	show "neap fraction 0.5 --pid $target --all"
	show 'neap fraction 1 --json | jq -c ".processes[].devices[] | {limit_before}"' # none was set
	expect usage
}

@test "fraction: before, after, the emptied cache, and memory outside the limit" {
	start 4 8
	show 'neap fraction 0.5'
	show "neap fraction 0.02 --pid $target"
	show 'neap fraction 0.01'
	show 'neap fraction 1 --all --json'
	expect before_after
}

@test "fraction: processes that are not attached, or gone" {
	show 'neap fraction 0.5'
	start --plain 4 8
	show "neap fraction 0.5 --pid $target"
	true &
	gone=$!
	targets+=("$gone")
	wait "$gone"
	show "neap fraction 0.5 --pid $gone"
	expect not_attached
}

@test "fraction: the request to a stopped process stays, and takes effect when it continues" {
	start 4 8
	kill -STOP "$target"
	until grep -q '^State:.T' "/proc/$target/status"; do :; done
	show "timeout 60 neap fraction 0.02 --pid $target"
	show "timeout 60 neap clear --pid $target"
	kill -CONT "$target"
	show 'neap fraction 1 --json | jq -c ".processes[0].devices[] | [.limit_before, .reserved_before]"'
	expect stopped
}

@test "fraction: a running training reaches the limit, and its ladder takes a rung" {
	for ((i = 0; i < 600; i++)); do echo "the $((i % 7)) cats of step $i sat on mat $((i * i % 11))."; done >text
	mkfifo losses
	neap run --folder run -- charlm --text text --layers 1 --width 32 --heads 2 --log-every 0 \
		--steps 5000 --losses losses >out 2>err 3>&- &
	supervisor=$!
	exec 19<losses
	read -r loss <&19
	pids=(runtime/neap/*.page)
	pid=$(basename "${pids[0]}" .page)
	targets+=("$pid")
	show "neap fraction 0.025 --pid $pid --json | jq -c '.processes[0].devices[] | [.limit_before, .limit, .emptied]'" # 6.3 MiB; the whole batch needs about 8
	until grep -q 'micro-batch 64 -> 32' err; do
		kill -0 "$pid"
		read -r loss <&19
	done
	for _ in 1 2 3; do read -r loss <&19; done # it goes on
	kill -INT "$pid"
	cat <&19 >/dev/null
	wait "$supervisor" || [ $? -eq 130 ]
	show 'result .oom_card | grep -e "limit set" -e Cause: -e Taken:'
	[ "$(result .rungs)" -ge 1 ]
	expect ladder
}

@test "run --fraction: the next run is limited; an invalid value in the environment is reported" {
	show "neap run --quiet --fraction 0.25 --folder run -- sh -c 'echo \$NEAP_FRACTION'"
	show 'NEAP_FRACTION=0.01 neap run --quiet --folder run2 -- target 4 8 </dev/null'
	show 'NEAP_FRACTION=0.01 neap run --quiet --fraction 1 --folder run3 -- target 4 8 </dev/null'
	NEAP_FRACTION=lots start 4 8
	show 'neap info'
	show 'neap info --json | jq -r ".processes[0].note"'
	show 'neap clear'
	expect run
}

@test "enable: eval applies it, whatever was set" {
	show 'neap enable'
	export PYTORCH_CUDA_ALLOC_CONF="a:it's,b:[1,\$(touch $dir/hacked)],c:\\x\"!" PYTORCH_ALLOC_CONF=max_split_size_mb:64
	for shell in sh bash; do
		show "$shell -c 'eval \"\$(neap enable)\"; printf \"%s\n\" \"\$PYTORCH_CUDA_ALLOC_CONF\" \"\$PYTORCH_ALLOC_CONF\"'"
		[ "$output" = "expandable_segments:True,$PYTORCH_CUDA_ALLOC_CONF
expandable_segments:True,max_split_size_mb:64" ]
	done
	[ ! -e "$dir/hacked" ]
	show 'neap enable'
	export PYTORCH_CUDA_ALLOC_CONF='a\b'\''!'
	show 'neap enable --shell fish'
	show 'neap enable --shell csh'
	show 'neap enable --shell zsh'
	expect enable
}

@test "run --enable: the same in the child's environment alone" {
	export PYTORCH_CUDA_ALLOC_CONF=a:1
	show 'neap run --quiet --enable --fraction 0.5 --folder run -- env | grep -E "^(PYTORCH_|NEAP_(FRACTION|ATTACH)=)" | sort'
	show 'echo $PYTORCH_CUDA_ALLOC_CONF'
	expect run_enable
}

@test "run --allocator: passed on, and nothing but the two names" {
	show 'NEAP_ALLOCATOR=neap neap run --quiet --allocator default --folder run -- env | grep ^NEAP_ALLOCATOR='
	show 'neap run --quiet --allocator neap --folder run2 -- env | grep ^NEAP_ALLOCATOR='
	show 'neap run --allocator best -- true'
	expect allocator
}

@test "fraction and clear: a device has the number that info shows, not the process's own" {
	export NEAP_SIM="mem=256MiB,gpus=2,order=reversed,context=8MiB,world=$world"
	start 4 8
	show 'neap fraction 0.5'
	show 'neap clear'
	show 'neap clear --json | jq -c ".processes[0].devices[] | {ordinal, index}"'
	show 'neap fraction 1 --json | jq -c ".processes[0].devices[] | {ordinal, index}"'
	show 'neap info --json | jq -c "[.processes[] | select(.attached) | .device]"'
	expect device_number
}

@test "info: memory on a device that NVML does not list is reported, but not accounted for" {
	start 4 8
	export NEAP_SIM="mem=256MiB,world=$world-other"
	show 'neap info'
	show 'neap info --json | jq "{unlisted, processes}"'
	expect unlisted
}
