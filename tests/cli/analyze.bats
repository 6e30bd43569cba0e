#!/usr/bin/env bats
# neap analyze: a text trace, a snapshot made from it, and files that are none.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	unset NO_COLOR LD_LIBRARY_PATH
	cd "$dir"
	printf 'a 1 8388608 0\na 2 16777216 0\nf 2\na 3 4096 1\ns\n' >trace.txt
}

teardown() {
	cd /
	rm -rf "$dir"
}

@test "a text trace: its peaks, and unknown figures are reported as unknown" {
	run "$NEAP" analyze trace.txt
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "trace.txt: text trace, device 0 of 1, 2 streams" ]
	[ "${lines[1]}" = "  4 events: 3 allocations, 1 free" ]
	[ "${lines[2]}" = "  ends of steps: 1, from marks of steps" ]
	[[ "$output" == *"  requested      24.0 MiB  at event 1, in step 1"* ]]
	[[ "$output" == *"by size (the file does not say where)"* ]]
}

@test "--json: numbers, and nothing but JSON" {
	run --separate-stderr "$NEAP" analyze trace.txt --json
	[ "$status" -eq 0 ]
	[ "$(jq -r '.schema, .requested_peak, .at_requested_peak.event, .reserved_peak, .counts.alloc, .steps' <<<"$output")" = \
		"$(printf '1\n25165824\n1\nnull\n3\n1')" ]
	[ "$(jq -r '.holders | map(.bytes) | add' <<<"$output")" = 25165824 ]
	[ "$(jq -r '.categories | map(.bytes) | add' <<<"$output")" = 25165824 ]
}

@test "steps: a leak is found and its holders named; other settings are replayed" {
	for i in $(seq 40); do
		printf 'a %d 3145728 0\na x 67108864 0\nf x\ns\n' "$i"
	done | sed 's/ x/ 1000/' >leak.txt
	run "$NEAP" analyze leak.txt
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"  leak: +3.00 MiB per step"* ]]
	[[ "$output" == *"+3.00 MiB per step, 120 MiB at the end: blocks of 2.00 MiB to 4.00 MiB, no stack"* ]]
	[[ "$output" == *"  cause: once per step: forward and backward"* ]]
	run --separate-stderr "$NEAP" analyze leak.txt --json
	[ "$status" -eq 0 ]
	[ "$(jq -r '.steps_trends.leak | .verdict, .bytes_per_step' <<<"$output")" = "$(printf 'leak\n3145728')" ]
	[ "$(jq -r '.other_settings | map(select(.as_it_was)) | length' <<<"$output")" = 1 ]
	[ "$(jq -r '.oom, .fragmentation' <<<"$output")" = "$(printf 'null\nnull')" ]
}

@test "--from, --to, --top: a part of it" {
	run --separate-stderr "$NEAP" analyze trace.txt --from event:3 --top 1 --json
	[ "$status" -eq 0 ]
	[ "$(jq -r '.requested_peak, .from_event, .counts.alloc, (.holders | length), .holder_count' <<<"$output")" = \
		"$(printf '8392704\n3\n1\n1\n2')" ]
	for part in --from --to; do
		run "$NEAP" analyze trace.txt "$part" event:3 --write part.txt
		[ "$status" -eq 64 ]
		[[ "$output" == *"--write writes the whole trace: not together with --from or --to"* ]]
		[ ! -e part.txt ]
	done
	run "$NEAP" analyze trace.txt --from 10ms
	[ "$status" -eq 64 ]
	[[ "$output" == "neap analyze: --from: this trace has no times: give event:N or step:N"* ]]
	run "$NEAP" analyze trace.txt --to event:9
	[ "$status" -eq 64 ]
	run "$NEAP" analyze trace.txt --from soon
	[ "$status" -eq 64 ]
	run "$NEAP" analyze trace.txt --device 3
	[ "$status" -eq 64 ]
	run "$NEAP" analyze trace.txt --memory much
	[ "$status" -eq 64 ]
	run "$NEAP" analyze trace.txt --top 0
	[ "$status" -eq 64 ]
}

@test "from a pipe: a trace, a recording, standard input; gzip is refused with a hint; a signal ends the wait" {
	"$NEAP" analyze trace.txt --write trace.record --top 1 >/dev/null
	for file in trace.txt trace.record; do
		"$NEAP" analyze "$file" | tail -n +2 >file.out
		"$NEAP" analyze <(cat "$file") | tail -n +2 >pipe.out
		cmp file.out pipe.out
		cat "$file" | "$NEAP" analyze - | tail -n +2 >pipe.out
		cmp file.out pipe.out
		"$NEAP" analyze - <"$file" | tail -n +2 >pipe.out
		cmp file.out pipe.out
		"$NEAP" compare <(cat "$file") "$file" | grep -qx "  none"
		"$NEAP" replay - --json <"$file" | jq -e '.events > 0' >/dev/null
	done
	run "$NEAP" analyze <(cat trace.record trace.txt)
	[ "$status" -eq 65 ]
	[[ "$output" == *"its size is not what its header says"* ]]
	run "$NEAP" analyze <(head -c 16500 trace.record)
	[ "$status" -eq 65 ]
	gzip trace.txt
	run "$NEAP" analyze trace.txt.gz
	[ "$status" -eq 65 ]
	[[ "$output" == *"compressed by gzip; decompress it on the way: neap analyze <(zcat FILE)" ]]
	# Nobody writes: it waits, as everything does, and a signal ends it.
	mkfifo never
	for command in analyze replay; do
		"$NEAP" "$command" never 3>&- &
		while kill -0 $! && ! grep -q neap "/proc/$!/comm"; do :; done
		kill -TERM $!
		code=0
		wait $! || code=$?
		[ "$code" -eq 143 ]
	done
}

@test "how often the cache was emptied: its period, also where nothing else has one" {
	for every in 10 1; do
		awk -v every=$every 'BEGIN { print "a 1 8388608 0"
			for (s = 1; s <= 40; s++) { print "a 2 16777216 0\nf 2"; if (s % every == 0) print "e"; print "s" } }' >every$every
	done
	run "$NEAP" analyze every10
	[[ "$output" == *"  the cache was emptied 4 times, every 10 steps"* ]]
	[[ "$("$NEAP" analyze every1)" == *"  the cache was emptied 40 times, every 1 step"* ]]
	run "$NEAP" compare every10 every1
	[[ "$output" == *"  emptied every, steps           10            1  -90.0 %"* ]]
	[ "$("$NEAP" compare every10 trace.txt --json | jq -c '.cache_emptied_every_steps, .period_steps')" = \
		"$(printf '{"a":10,"b":null}\n{"a":null,"b":null}')" ]
	# Once now and once then is not a period.
	printf 'a 1 100 0\ne\ns\ne\ns\ns\ns\ne\ns\ns\ne\ns\n' >odd
	[ "$("$NEAP" analyze odd --json | jq -c '.steps_trends | [.cache_emptied, .cache_emptied_every_steps]')" = "[4,null]" ]
}

@test "files that are none: where in them, and the exit code" {
	printf 'a 1 100 0\nf 2\n' >bad.txt
	run "$NEAP" analyze bad.txt
	echo "$output"
	[ "$status" -eq 65 ]
	[ "$output" = "neap analyze: reading bad.txt: line 2, column 3: no block with this id is live" ]
	printf '\x80\x04}\x94(' >cut.pickle
	run "$NEAP" analyze cut.pickle
	echo "$output"
	[ "$status" -eq 65 ]
	[[ "$output" == *": at byte "* ]]
	[[ "$output" != *"at byte "*"at byte "* ]]
	run "$NEAP" analyze missing
	[ "$status" -eq 66 ]
	: >empty
	run "$NEAP" analyze empty
	echo "$output"
	[ "$status" -eq 65 ]
	[ "$output" = "neap analyze: reading empty: it is empty" ]
}

@test "compare: figures, purposes and holders of two traces" {
	printf 'a 1 8388608 0\na 2 4194304 0\nf 2\na 3 4096 1\ns\n' >less.txt
	run "$NEAP" compare trace.txt less.txt
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"  requested peak           24.0 MiB     12.0 MiB  -50.0 %"* ]]
	[[ "$output" == *"   -16.0 MiB    16.0 MiB -> 0 B         blocks of 16.0 MiB to 32.0 MiB, no stack"* ]]
	run --separate-stderr "$NEAP" compare trace.txt less.txt --json
	[ "$(jq -r '.schema, .requested_peak.a, .requested_peak.b, .reserved_peak.a, .cleanups.a' <<<"$output")" = \
		"$(printf '1\n25165824\n12582912\nnull\nnull')" ]
	run "$NEAP" compare trace.txt trace.txt
	[ "$status" -eq 0 ]
	[[ "$output" == *"  none" ]]
	run "$NEAP" compare trace.txt missing
	[ "$status" -eq 66 ]
	run "$NEAP" compare trace.txt
	[ "$status" -eq 64 ]
}

@test "--html: one page beside the report, with nothing to fetch; names in it stay text" {
	printf 'm <b>x</b>\n' >>trace.txt
	mv trace.txt 'a<b>"&.txt'
	run "$NEAP" analyze 'a<b>"&.txt' --html page.html
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = 'a<b>"&.txt: text trace, device 0 of 1, 2 streams' ]
	[[ "${lines[-1]}" == "Page: page.html, "*" KiB" ]]
	[ "$(head -c 15 page.html)" = "<!DOCTYPE html>" ]
	[ "$(tail -n 1 page.html)" = "</html>" ]
	grep -q "<h1>a&lt;b&gt;&quot;&amp;.txt</h1>" page.html
	run grep -E 'https?://|src=|<b>x|<link|url\(' page.html
	[ "$status" -eq 1 ]
	"$NEAP" analyze 'a<b>"&.txt' >report
	python3 - <<'PYTHON'
import html, re
page = open("page.html", encoding="utf-8").read()
assert html.unescape(re.search("<pre>(.*?)</pre>", page, re.S)[1]) == open("report").read()
PYTHON
}

@test "--html: standard output, with --json, with --from" {
	"$NEAP" analyze trace.txt --html - >page.html
	[ "$(head -c 15 page.html)" = "<!DOCTYPE html>" ]
	[ "$(tail -n 1 page.html)" = "</html>" ]
	run --separate-stderr "$NEAP" analyze trace.txt --html other.html --json --from event:1
	[ "$status" -eq 0 ]
	[ "$(jq -r .from_event <<<"$output")" = 1 ]
	grep -q '"from":1,"to":4,"events":4,"lives":3' other.html
	run "$NEAP" analyze trace.txt --html - --json
	[ "$status" -eq 64 ]
}

@test "--html: where it cannot be written nothing is lost" {
	run "$NEAP" analyze trace.txt --html ./trace.txt
	echo "$output"
	[ "$status" -eq 64 ]
	[[ "$output" == *"is the trace itself"* ]]
	[ "$(head -n 1 trace.txt)" = "a 1 8388608 0" ]
	run "$NEAP" analyze trace.txt --html .
	[ "$status" -eq 64 ]
	run "$NEAP" analyze trace.txt --html missing/page.html
	echo "$output"
	[ "$status" -eq 73 ]
	run "$NEAP" analyze trace.txt --html /dev/full
	echo "$output"
	[ "$status" -eq 74 ]
	[ -c /dev/full ]
	echo old >page.html
	printf 'a 1 100 0\nf 2\n' >bad.txt
	run "$NEAP" analyze bad.txt --html page.html
	[ "$status" -eq 65 ]
	[ "$(cat page.html)" = old ]
	(ulimit -f 8; trap '' XFSZ; run "$NEAP" analyze trace.txt --html page.html; [ "$status" -eq 74 ])
	[ "$(cat page.html)" = old ]
	[ "$(ls | wc -l)" -eq 3 ]
}
