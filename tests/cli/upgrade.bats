#!/usr/bin/env bats
# Files that neap 0.1 wrote, read by this neap. upgrade/neap-0.1.tar.gz is a home folder as neap 0.1.0 left it on 24
# November 2026: three runs in its history (one ran out of memory and took a rung), a series whose neap was killed
# during its second experiment, a folder of checkpoints with two in the trash (kept until the year 2286), a text
# trace.

sim=mem=48MiB,context=8MiB,reserved=2MiB
load ../support/command.bash

prepare() { tar -xzf "$BATS_TEST_DIRNAME/upgrade/neap-0.1.tar.gz"; }

@test "its history is converted in place, and continues" {
	show "(trap '' XFSZ; ulimit -f 0; neap history --csv 2>&1) | cut -d, -f3"
	show 'neap history'
	show 'neap history --name smaller --json | jq -c ".runs[] | {outcome, peak_allocated_bytes, steps, rungs, samples: (.samples | length)}"'
	show 'neap run --quiet --name later -- true; neap history | grep -c ok'
	show 'ls state/neap/history.db*'
	expect history
}

@test "its recordings and results are read" {
	show 'neap explain smaller | sed -n "1,20p"'
	show 'neap analyze smaller | sed -n "1,13p"'
	show 'neap replay smaller --policy neap | head -5'
	show 'neap check steps.txt --max-peak 1MiB'
	expect recordings
}

@test "its series is resumed: finished experiments are not run again" {
	touch go
	show 'neap series series.yaml --folder series --resume 2>&1 | sed -nE "/^\[/p; s/^(first|second) +([a-z]+) .*/\1 \2/p"'
	expect series
}

@test "its trash is restored" {
	show 'neap checkpoints ck --restore "*"; ls ck'
	expect trash
}
