#!/usr/bin/env bats
# neap explain: topics with this machine's figures, a log's message, a recording.

sim=mem=256MiB,context=8MiB,reserved=2MiB
load ../support/command.bash

message() {
	echo "Traceback (most recent call last):"
	echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 23.68 GiB of" \
		"which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the allocated" \
		"memory 20.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
}

@test "--from: the arithmetic, the cause, what to try" {
	message >log
	show 'neap explain --from log'
	expect from
	[ "$(neap explain log)" = "$output" ]
	[ "$(message | neap explain)" = "$output" ]
}

@test "--from -: standard input, --json, ranks with the same message are counted" {
	{ message; message; } >log
	show 'neap explain --from - --json <log | jq "{schema, repeated_or_left_out, messages}"'
	expect from_json
}

@test "an empty standard input counts as none; a name that is neither a topic nor a file" {
	[ "$(true | neap explain)" = "$(neap explain </dev/null)" ]
	show 'neap explain no-such-topic-nor-file'
	expect neither
}

@test "the time for a log of repeated messages does not grow with their square" {
	message >one
	for _ in $(seq 17); do cat one one >two && mv two one; done # 131 072 messages
	show 'timeout 60 neap explain one | tail -n 2'
	expect repeated
}

@test "--from: a log without a message, an empty log, no log at all" {
	echo "all is well" >log
	: >empty
	show 'neap explain --from log'
	show 'neap explain --from empty'
	show 'neap explain --from missing'
	expect without
}

@test "a log of vLLM: what remains for its cache, by the figures before the message" {
	cat >log <<-'EOF'
		INFO worker.py:267] the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.90) = 21.22GiB
		INFO worker.py:267] model weights take 21.21GiB; non_torch_memory takes 0.20GiB; PyTorch activation peak memory takes 0.37GiB; the rest of the memory reserved for KV Cache is -0.56GiB.
		    raise ValueError("No available memory for the cache blocks. "
		ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.
	EOF
	show 'neap explain log'
	show 'sed "s/23.58/20.00/" log | neap explain | grep -A 3 "Cause:"'
	show 'neap explain log --json | jq -c ".messages[0] | [.backend, .cause, .weights_bytes, .utilization, .least_utilization]"'
	show 'tail -n 1 log | neap explain'
	show '(echo "Available KV cache memory: -0.3 GiB"; tail -n 1 log) | neap explain | grep -A 3 "Cause:"'
	expect vllm
}

@test "a log of Slurm: host memory, which step, and how much if it says so" {
	cat >log <<-'EOF'
		slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been OOM Killed.
		srun: error: node7: task 0: Out Of Memory
		slurmstepd: error: Detected 1 oom-kill event(s) in step 370626.batch cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.
		slurmstepd: error: Exceeded job memory limit at some point.
		slurmstepd: error: StepId=7.batch exceeded memory limit (734003200 > 52428800), being killed
	EOF
	show 'head -n 2 log | neap explain'
	show 'neap explain log | grep -A 3 -e "^Line" -e "Cause"'
	show 'neap explain log --json | jq -c ".messages[] | [.backend, .step, .cause, .process_bytes, .allowed_bytes]"'
	expect slurm
}

@test "the topics, each with this machine's figures" {
	show 'neap explain </dev/null'
	topics=$(sed -n 's/^  \([a-z-]*\)  .*/\1/p' <<<"$output")
	[ "$(wc -w <<<"$topics")" -ge 7 ]
	for topic in $topics; do show "neap explain $topic"; done
	show 'NEAP_DEVICE=cuda neap explain oom'
	expect topics
}

@test "cached memory of an attached process is named, with the command that frees it" {
	start 4 8
	show 'neap explain not-returned | sed -n "/Here and now/,\$p"'
	expect cached
}

@test "a recording: the card of its last out-of-memory error" {
	export NEAP_SIM="mem=34MiB,context=8MiB,reserved=2MiB,world=$world-small"
	neap run --folder run -- charlm --steps 2 --batch 128 --layers 1 >/dev/null 2>&1
	show 'neap explain --record run/record.*'
	show 'neap explain leak --record run/record.* | sed -n "/^  In /,\$p"'
	echo junk >junk
	show 'neap explain --record junk'
	expect record
}

@test "wrong usage: 64" {
	for wrong in "nonsense" "oom --from log" "oom --json" "--from log --record r" "oom leak"; do
		show "neap explain $wrong"
	done
	expect usage
}
