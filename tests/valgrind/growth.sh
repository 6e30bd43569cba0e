#!/bin/bash
# growth.sh SANITIZER NEAP: `neap analyze` executes about twice as many instructions for a trace with twice as many
# streams, private pools, sizes or devices. Instructions are counted, not time. 77 (skipped) if valgrind is missing or
# cannot be used.
set -euo pipefail
[ "$1" = none ] || {
	echo "skipped: the sanitizer of this build ($1) and valgrind cannot watch the same program"
	exit 77
}
command -v valgrind >/dev/null || {
	echo "skipped: valgrind is not installed"
	exit 77
}
neap=$2
unset MALLOC_PERTURB_ # filling memory also takes instructions
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# make SHAPE N: a trace with N of them
make() { # a block of 1 MiB leaves half of its page free in its stream's caches
	python3 - "$1" "$2" <<-'PYTHON'
		import pickle, sys
		shape, n = sys.argv[1], int(sys.argv[2])
		if shape == "streams":
		    sys.stdout.write("".join(f"a {i + 1} 1048576 {i}\n" for i in range(n)))
		elif shape == "streams_freed":  # two steps, so that each finds the blocks that the first left
		    for _ in range(2):
		        sys.stdout.write("".join(f"a {i + 1} 3000000 {i}\n" for i in range(n)))
		        sys.stdout.write("".join(f"f {i + 1}\n" for i in range(n)) + "s\n")
		elif shape == "sizes":
		    sys.stdout.write("".join(f"a {i + 1} {1000000 + 512 * i} 0\n" for i in range(n)))
		    sys.stdout.write("".join(f"f {i + 1}\n" for i in range(n)))
		else:  # private pools, each with a segment
		    mib, events, segments = 1 << 20, [], []
		    for i in range(n):
		        at = {"addr": 0x7F0000000000 + 2 * mib * i, "stream": 0, "frames": [], "segment_pool_id": (0, i + 1)}
		        events += [at | {"action": "segment_alloc", "size": 2 * mib, "time_us": 2 * i},
		                   at | {"action": "alloc", "size": mib // 2, "time_us": 2 * i + 1}]
		        live = {"address": at["addr"], "size": mib // 2, "requested_size": mib // 2, "state": "active_allocated", "frames": []}
		        free = {"address": at["addr"] + mib // 2, "size": mib + mib // 2, "requested_size": 0, "state": "inactive", "frames": []}
		        segments.append({"device": 0, "address": at["addr"], "total_size": 2 * mib, "allocated_size": mib // 2,
		                         "active_size": mib // 2, "requested_size": mib // 2, "stream": 0, "segment_type": "small",
		                         "segment_pool_id": (0, i + 1), "is_expandable": False, "frames": [], "blocks": [live, free]})
		    pickle.dump({"segments": segments, "device_traces": [events], "allocator_settings": {}}, sys.stdout.buffer)
	PYTHON
}

count() {
	make "$1" "$2" >trace
	valgrind --tool=callgrind --callgrind-out-file=/dev/null "$neap" analyze trace 2>&1 >/dev/null |
		sed -n 's/.*Collected : //p'
}

code=0
for shape in streams streams_freed sizes pools; do
	once=$(count $shape 1500)
	twice=$(count $shape 3000)
	echo "$shape: $once instructions for 1500, $twice for 3000"
	[ $((twice * 10)) -lt $((once * 25)) ] || code=1
done
exit $code
