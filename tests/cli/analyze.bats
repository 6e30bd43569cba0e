#!/usr/bin/env bats
# neap analyze and neap compare: a text trace, a snapshot made from it, and files that are no traces.

load ../support/command.bash

prepare() { printf 'a 1 8388608 0\na 2 16777216 0\nf 2\na 3 4096 1\ns\n' >trace.txt; }

# The page names this build's version and size.
page_size='^(Page: .*), [\d.]+ KiB/\1, SIZE'

@test "a text trace: its peaks, and unknown figures are reported as unknown" {
	show 'neap analyze trace.txt'
	expect text
}

@test "--json: numbers, and nothing but JSON" {
	show 'neap analyze trace.txt --json'
	expect json
	[ "$(jq -r '.holders | map(.bytes) | add' <<<"$output")" = 25165824 ]
	[ "$(jq -r '.categories | map(.bytes) | add' <<<"$output")" = 25165824 ]
}

@test "steps: a leak is found and its holders named; other settings are replayed" {
	for i in $(seq 40); do
		printf 'a %d 3145728 0\na x 67108864 0\nf x\ns\n' "$i"
	done | sed 's/ x/ 1000/' >leak.txt
	show 'neap analyze leak.txt'
	show 'neap analyze leak.txt --json | jq -c "{leak: .steps_trends.leak, as_it_was: .other_settings | map(select(.as_it_was)), oom, fragmentation}"'
	show 'neap analyze leak.txt --memory 1GiB | grep -A 2 "^Fits"'
	show 'neap analyze leak.txt --memory 1GiB --json | jq -c .fit'
	show 'neap analyze leak.txt --memory 1GiB --html - | grep -o "<p>Fits.*</p>"'
	show 'neap analyze trace.txt --memory 1GiB --html - | grep "<h2>"'
	expect leak
}

@test "--from, --to, --top: a part of it" {
	show 'neap analyze trace.txt --from event:3 --top 1 --json | jq -c "[.requested_peak, .from_event, .counts.alloc, (.holders | length), .holder_count]"'
	for part in --from --to; do
		show "neap analyze trace.txt $part event:3 --write part.txt"
		[ ! -e part.txt ]
	done
	show 'neap analyze trace.txt --from 10ms'
	show 'neap analyze trace.txt --to event:9'
	show 'neap analyze trace.txt --from soon'
	show 'neap analyze trace.txt --device 3'
	show 'neap analyze trace.txt --memory much'
	show 'neap analyze trace.txt --top 0'
	expect part
}

@test "from a pipe: a trace, a recording, standard input; gzip is refused with a hint; a signal ends the wait" {
	neap analyze trace.txt --write trace.record --top 1 >/dev/null
	for file in trace.txt trace.record; do
		neap analyze "$file" | tail -n +2 >file.out
		neap analyze <(cat "$file") | tail -n +2 >pipe.out
		cmp file.out pipe.out
		cat "$file" | neap analyze - | tail -n +2 >pipe.out
		cmp file.out pipe.out
		neap analyze - <"$file" | tail -n +2 >pipe.out
		cmp file.out pipe.out
		show "neap compare <(cat $file) $file"
		show "neap replay - --json <$file | jq .events"
	done
	show 'neap analyze <(cat trace.record trace.txt)'
	show 'neap analyze <(head -c 16500 trace.record)'
	gzip trace.txt
	show 'neap analyze trace.txt.gz'
	expect pipe '(/dev|/proc/self)/fd/\d+/PIPE'
	# Nobody writes to the pipe: the command waits, and a signal ends it.
	mkfifo never
	for command in analyze replay; do
		neap "$command" never 3>&- &
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
	# Two times at different distances are not a period.
	printf 'a 1 100 0\ne\ns\ne\ns\ns\ns\ne\ns\ns\ne\ns\n' >odd
	show 'neap analyze every10 | grep emptied'
	show 'neap analyze every1 | grep emptied'
	show 'neap compare every10 every1'
	show 'neap compare every10 trace.txt --json | jq -c "[.cache_emptied_every_steps, .period_steps]"'
	show 'neap analyze odd --json | jq -c ".steps_trends | [.cache_emptied, .cache_emptied_every_steps]"'
	expect emptied
}

@test "files that are no traces: the place of the error, and the exit code" {
	printf 'a 1 100 0\nf 2\n' >bad.txt
	printf '\x80\x04}\x94(' >cut.pickle
	: >empty
	show 'neap analyze bad.txt'
	show 'neap analyze cut.pickle'
	show 'neap analyze missing'
	show 'neap analyze empty'
	expect no_trace
}

@test "compare: figures, purposes and holders of two traces" {
	printf 'a 1 8388608 0\na 2 4194304 0\nf 2\na 3 4096 1\ns\n' >less.txt
	show 'neap compare trace.txt less.txt'
	show 'neap compare trace.txt less.txt --json | jq -c "[.schema, .requested_peak, .reserved_peak, .cleanups]"'
	show 'neap compare trace.txt trace.txt'
	show 'neap compare trace.txt missing'
	show 'neap compare trace.txt'
	expect compare
}

@test "compare --html: both on one page, and neither is replaced" {
	printf 'a 1 8388608 0\na 2 4194304 0\nf 2\na 3 4096 1\ns\n' >less.txt
	show 'neap compare trace.txt less.txt --html page.html | tail -n 1'
	show 'neap compare trace.txt less.txt --html less.txt'
	show 'neap compare trace.txt less.txt --html - --json'
	expect compare_html
	neap compare trace.txt less.txt >report
	[ "$(neap compare trace.txt less.txt --html - | head -c 15)" = "<!DOCTYPE html>" ]
	python3 - <<'PYTHON'
import html, re
page = open("page.html", encoding="utf-8").read()
report = re.search('<div class="report">(.*?)<div popover', page, re.S)[1]
assert html.unescape(re.sub("<[^>]*>", " ", report)).split() == open("report").read().split("\n\n", 1)[1].split()
assert page.count('class="coarse"') == 2 and "<script" not in page
PYTHON
	for n in $(seq 90); do echo "a $n 8388608 0"; done >rising.txt
	neap compare rising.txt rising.txt --html rising.html >/dev/null
	! grep -q V100.0H rising.html # each event has its place in the curve
}

@test "--html: one page besides the report that fetches nothing; names in it stay text" {
	printf 'm <b>x</b>\n' >>trace.txt
	mv trace.txt 'a<b>"&.txt'
	show "neap analyze 'a<b>\"&.txt' --html page.html"
	expect html "$page_size"
	[ "$(head -c 15 page.html)" = "<!DOCTYPE html>" ]
	[ "$(tail -n 1 page.html)" = "</html>" ]
	grep -q "<h1>a&lt;b&gt;&quot;&amp;.txt</h1>" page.html
	run grep -E 'https?://|src=|<b>x|<link|url\(' page.html
	[ "$status" -eq 1 ]
	neap analyze 'a<b>"&.txt' >report
	python3 - <<'PYTHON'
import html, re
page = open("page.html", encoding="utf-8").read()
report = re.search("<summary>Report</summary>(.*?)</details>", page, re.S)[1]
words = html.unescape(re.sub("<[^>]*>", " ", report)).split()
assert words == open("report").read().split(), words
answer = re.search('<section class="answer good">\\n<h2>Nothing failed.*?</section>', page, re.S)
assert answer.end() < page.index('class="tiles"') < page.index('class="coarse"') < page.index("<summary>Report")
PYTHON
}

@test "--html: standard output, with --json, with --from" {
	neap analyze trace.txt --html - >page.html
	[ "$(head -c 15 page.html)" = "<!DOCTYPE html>" ]
	[ "$(tail -n 1 page.html)" = "</html>" ]
	show 'neap analyze trace.txt --html other.html --json --from event:1 | jq .from_event'
	show 'neap analyze trace.txt --html - --json'
	expect html_json
	grep -q '"from":1,"to":4,"events":4,"lives":3' other.html
}

@test "--html: a page that cannot be written does not cost the report" {
	show 'neap analyze trace.txt --html ./trace.txt'
	show 'head -n 1 trace.txt'
	show 'neap analyze trace.txt --html .'
	show 'neap analyze trace.txt --html missing/page.html'
	show 'neap analyze trace.txt --html /dev/full'
	[ -c /dev/full ]
	echo old >page.html
	printf 'a 1 100 0\nf 2\n' >bad.txt
	show 'neap analyze bad.txt --html page.html'
	show "(ulimit -f 8; trap '' XFSZ; neap analyze trace.txt --html page.html)"
	show 'cat page.html; ls'
	expect html_failed 'writing \d+ bytes/writing N bytes'
}

# The recording of a process whose own allocator neap does not see: it has the steps, but no allocations.
unrecorded() {
	mkdir "$1"
	neap analyze trace.txt --write "$1/it.record" >/dev/null
	mv "$1/it.record" "$1/record.$2"
	printf '%08d' 0 | tr 0 '\0' | dd of="$1/record.$2" bs=1 seek=64 conv=notrunc status=none # allocation_written
}

@test "a run's folder without allocations: what is missing, and how to record it" {
	unrecorded run 11
	show 'neap analyze run --html page.html'
	show 'neap analyze run --json | jq -c "[.requested_peak, .counted_without_allocations]"'
	show 'grep -c "No allocation is in it" page.html'
	# As neap estimate leaves it: the process's snapshot has what its recording lacks.
	neap analyze trace.txt --write run/snapshot.11.pickle >/dev/null
	show 'neap analyze run | head -n 2'
	# And if neither records allocations.
	printf 's\n' >steps.txt
	show 'neap analyze steps.txt'
	expect unrecorded "$page_size"
}

@test "compare takes run folders; a figure that neither has is not compared" {
	unrecorded one 11
	unrecorded two 12
	mkdir three
	neap analyze trace.txt --write three/it.record >/dev/null
	mv three/it.record three/record.13
	cp one/record.11 three/record.14
	show 'neap compare one two'
	show 'neap compare one three'
	show 'neap compare one three --json | jq -c "[.requested_peak, .allocated_peak, .categories.unknown, .holders]"'
	mkdir empty series
	touch series/journal
	show 'neap compare one empty'
	show 'neap compare series one'
	expect folders
}
