#!/usr/bin/env bats
# neap replay: traces that can be worked out by hand, through each policy.

load ../support/command.bash

measured='ns per event +\d+/ns per event N'

prepare() {
	# 12, 40, 30 MiB; on a device of 76 MiB the third request needs what the first gave back
	cat >small.txt <<-END
		# one step
		a 1 $((12 << 20)) 0
		a 2 $((40 << 20)) 0
		f 1
		a 3 $((30 << 20)) 0
		s
		f 2
		a 4 1000 0
	END
}

# keys of the JSON output, as "a b c"
figures() {
	python3 -c 'import json, sys
data = json.load(sys.stdin)
print(*(data[key] for key in sys.argv[1:]))' "$@" <<<"$output"
}

@test "for people" {
	show 'neap replay small.txt'
	show 'neap replay small.txt --memory 60MiB'
	show 'neap replay small.txt --memory 76MiB'
	expect people "$measured"
}

@test "JSON has every key, and the figures are those worked out by hand" {
	run neap replay small.txt --json
	[ "$status" -eq 0 ]
	[ "$(figures schema events events_applied retries ooms driver_calls synchronizations)" = "1 6 6 0 0 4 0" ]
	[ "$(figures requested_peak allocated_peak reserved_peak)" = "$((70 << 20)) $((70 << 20)) $((84 << 20))" ]
	[ "$(figures smallest_memory memory first_oom_event)" = "None None None" ]
	[ "$(figures ns_per_event)" != "0" ]
	python3 -c 'import json, sys; assert len(json.load(sys.stdin)["memory_stats"]) == 122' <<<"$output"
}

@test "the smallest device: as much as is requested; expandable segments need whole pages of 20 MiB" {
	run neap replay small.txt --json --smallest
	[ "$(figures smallest_memory)" = "$((70 << 20))" ]
	run neap replay small.txt --json --smallest --policy neap
	[ "$status" -eq 0 ]
	[ "$(figures smallest_memory requested_peak)" = "$((70 << 20)) $((70 << 20))" ]
	run neap replay small.txt --json --smallest --policy torch-expandable
	[ "$(figures smallest_memory)" = "$((100 << 20))" ]
}

@test "a full device: one retry, then out of memory; stop or continue" {
	run neap replay small.txt --json --memory 76MiB
	[ "$(figures retries ooms reserved_peak synchronizations)" = "1 0 $((72 << 20)) 1" ]
	run neap replay small.txt --json --memory 60MiB
	[ "$status" -eq 0 ]
	[ "$(figures retries ooms first_oom_event events_applied)" = "1 1 3 4" ]
	run neap replay small.txt --json --memory 60MiB --on-oom continue
	[ "$(figures retries ooms first_oom_event events_applied)" = "1 1 3 6" ]
	run neap replay small.txt --json --memory 120MiB --fraction 0.5
	[ "$(figures ooms first_oom_event)" = "1 3" ]
	run neap replay small.txt --json --memory 60MiB --policy neap
	[ "$(figures ooms first_oom_event)" = "1 3" ]
}

@test "growth apart from the other calls, and the first quarter apart from the rest" {
	part() { python3 -c 'import json, sys
part = json.load(sys.stdin)[sys.argv[1]]
print(part["events"], part["growth_calls"], part["other_calls"], part["synchronizations"])' "$1" <<<"$output"; }
	# the third request is refused, returns 12 MiB (which waits for the device), and takes the 30 that are the new peak
	run neap replay small.txt --json --memory 76MiB
	[ "$(part first_quarter)" = "1 1 0 0" ]
	[ "$(part after_first_quarter)" = "5 3 2 1" ]
	# memory that is returned and allocated again up to an old peak is not growth
	printf 'a 1 %d 0\nf 1\ne\na 2 %d 0\n' $((40 << 20)) $((40 << 20)) >again.txt
	run neap replay again.txt --json
	[ "$(part first_quarter)" = "1 1 0 0" ]
	[ "$(part after_first_quarter)" = "3 0 2 1" ]
	run neap replay again.txt --json --policy neap
	[ "$(part first_quarter | cut -d' ' -f1,3)" = "1 0" ]
	[ "$(part after_first_quarter | cut -d' ' -f1,2)" = "3 0" ]
	[ "$(part after_first_quarter | cut -d' ' -f3)" -gt 40 ]
}

@test "a plan of steps that repeat" {
	# two streams take turns with 54 MiB: the first steps need blocks that are stitched together, until a region is made for
	# 52 MiB; without a plan the stitched blocks stay mapped
	for step in $(seq 1000 4200); do
		printf 'a %d1 %d 0\na %d2 %d 0\nf %d1\nf %d2\na %d3 %d 1\nf %d3\ns\n' "$step" $((12 << 20)) "$step" $((40 << 20)) \
			"$step" "$step" "$step" $((30 << 20)) "$step"
	done >steps.txt
	calls() { python3 -c 'import json, sys
data = json.load(sys.stdin)
print(data["ooms"], data["after_first_quarter"]["other_calls"] > 1000, data["after_first_quarter"]["other_calls"] == 0)' <<<"$output"; }
	run neap replay steps.txt --json --policy neap --memory 54MiB --no-plan
	[ "$(calls)" = "0 False True" ]
	without=$(figures driver_calls)
	run neap replay steps.txt --json --policy neap --memory 54MiB
	[ "$(calls)" = "0 False True" ]
	[ "$(figures driver_calls)" != "$without" ]
	# without marks the steps are found
	sed '/^s$/d' steps.txt >unmarked.txt
	run neap replay unmarked.txt --json --policy neap --memory 54MiB
	[ "$(calls)" = "0 False True" ]
	# without equal steps there is no plan
	awk '$1 == "a" && $3 > 41000000 { $3 -= 65536 * (NR % 97 * 31 % 97) } { print }' steps.txt >differ.txt
	run neap replay differ.txt --json --policy neap --memory 54MiB
	[ "$(calls)" = "0 True False" ]
	# also no plan if memory is plentiful
	run neap replay steps.txt --json --policy neap --no-plan
	without=$(figures driver_calls reserved_peak synchronizations)
	run neap replay steps.txt --json --policy neap
	[ "$(figures driver_calls reserved_peak synchronizations)" = "$without" ]
}

@test "settings: rounding, expandable segments, max_split_size" {
	run neap replay small.txt --json --settings roundup_power2_divisions:1
	[ "$(figures allocated_peak)" = "$((70 << 20))" ]
	run neap replay small.txt --json --settings roundup_power2_divisions:2
	[ "$(figures allocated_peak)" = "$((80 << 20))" ] # 48 and 32; of 12 nothing is rounded
	run neap replay small.txt --json --settings expandable_segments:True
	[ "$(figures reserved_peak)" = "$((102 << 20))" ]
	run neap replay small.txt --json --settings max_split_size_mb:32
	[ "$(figures memory_stats | tr , '\n' | grep oversize_allocations.peak)" = " 'oversize_allocations.peak': 1" ]
}

@test "the release of PyTorch: from the keys of a snapshot, from --torch, and what it changes" {
	# two segments alike, addresses falling: 2.15 takes the one made first, up to 2.11 the lower was taken
	python3 - <<-END
		import pickle
		base = 2**40
		def event(action, at, size):
		    return dict(action=action, addr=base - at * 2**24, size=size * 2**20, stream=0, time_us=1, compile_context="N/A",
		                user_metadata="", pool_id=(0, 0))
		events = [event(*e) for e in (("segment_alloc", 0, 12), ("alloc", 0, 12), ("segment_alloc", 1, 12), ("alloc", 1, 12),
		          ("free_requested", 0, 12), ("free_completed", 0, 12), ("free_requested", 1, 12), ("free_completed", 1, 12),
		          ("alloc", 0, 12), ("alloc", 1, 12))]
		segments = [dict(device=0, address=base - at * 2**24, total_size=12 * 2**20, stream=0, segment_type="large",
		                 segment_pool_id=(0, 0), is_expandable=False,
		                 blocks=[dict(address=base - at * 2**24, size=12 * 2**20, requested_size=12 * 2**20,
		                              state="active_allocated")]) for at in (1, 0)]
		settings = dict(PYTORCH_CUDA_ALLOC_CONF="of_2_99:7,large_segment_size_mb:64", max_split_size=-1,
		                garbage_collection_threshold=0.0, expandable_segments=False, max_round_threshold=-1,
		                graph_capture_record_stream_reuse=False)
		pickle.dump(dict(segments=segments, device_traces=[events], allocator_settings=settings, external_annotations=[],
		                 host_segments=[], host_traces=[]), open("ties.pickle", "wb"))
	END
	run neap replay ties.pickle --json
	[ "$status" -eq 0 ]
	echo "$output"
	[ "$(figures torch)" = "{'from': '2.14', 'to': '2.15', 'free_blocks_by': 'age of the segment', 'told_by': 'keys'}" ]
	python3 -c 'import json, sys
data = json.load(sys.stdin)
assert data["recording"]["first_difference"] is None
assert data["settings"]["large_segment_size"] == 64 * 2**20' <<<"$output"
	show 'neap replay ties.pickle'
	show 'neap replay ties.pickle --torch 2.6'
	show 'neap replay small.txt --torch 3.1'
	show 'neap replay small.txt --torch 2.99'
	show 'neap replay small.txt --settings of_2_99:7'
	expect release "$measured"
	run neap replay small.txt --settings throw_on_cudamalloc_oom:True --memory 76MiB --on-oom continue --json
	[ "$(figures ooms oom_rejections retries)" = "0 1 0" ]
}

@test "a use on another stream ends --event-delay events after the free" {
	printf 'a 1 %d 0\nr 1 1\nf 1\na 2 %d 0\na 3 %d 0\n' $((20 << 20)) $((20 << 20)) $((20 << 20)) >streams.txt
	for policy in torch neap; do
		run neap replay streams.txt --json --policy $policy
		[ "$(figures reserved_peak)" = "$((40 << 20))" ]
		run neap replay streams.txt --json --policy $policy --event-delay 1
		[ "$(figures reserved_peak)" = "$((40 << 20))" ]
		run neap replay streams.txt --json --policy $policy --event-delay 3
		[ "$(figures reserved_peak)" = "$((60 << 20))" ]
	done
}

@test "from a pipe; unknown lines are counted" {
	run bash -c 'neap replay /dev/stdin --json <small.txt'
	[ "$(figures events reserved_peak)" = "6 $((84 << 20))" ]
	printf 'a 1 512 0\nf 1\n' >short.txt
	run neap replay short.txt --json --memory 1MiB --on-oom continue
	[ "$(figures ooms events_applied events_ignored)" = "1 2 1" ]
}

@test "Ctrl-C ends it at once, with the signal's status and without a partial answer" {
	awk 'BEGIN { for (i = 1; i <= 300000; i++) printf "a %d %d 0\n", i, 1000 + i % 7 * 100000
		for (i = 1; i <= 300000; i++) printf "f %d\n", i }' >long.txt
	neap replay long.txt --json --smallest >out 2>err &
	pid=$!
	until [ "/proc/$pid/exe" -ef "$NEAP" ]; do kill -0 "$pid"; done # until its exec a shell catches the signal as well
	until grep -q '^SigCgt:.*[2367abef]$' "/proc/$pid/status"; do kill -0 "$pid"; done
	kill -INT "$pid"
	status=0
	wait "$pid" || status=$?
	cat err
	[ "$status" -eq 130 ]
	[ ! -s out ]
	[ "$(cat err)" = "neap replay: stopped" ]
}

@test "errors are reported with their place" {
	show 'neap replay none.txt'
	echo "a 1 x 0" >bad.txt
	show 'neap replay bad.txt'
	show 'neap replay small.txt --settings max_split_size_mb:3'
	for wrong in "--policy best" "--memory 0" "--memory much" "--fraction 2" "--on-oom panic" "--event-delay -1" \
		"--device x" "--no-plan" "--policy neap --settings max_split_size_mb:32" "--device 1"; do
		show "neap replay small.txt $wrong"
	done
	show 'neap replay </dev/null'
	expect errors
}
