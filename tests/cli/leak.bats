#!/usr/bin/env bats
# What neap reports about a leaking run: warnings while it runs, `neap run`'s report, and `neap explain leak`.

sim=mem=64MiB,context=8MiB,reserved=2MiB
load ../support/command.bash

leaking='charlm --steps 150 --batch 8 --layers 1 --width 32 --context 16'
verdict='result "[.leak_verdict, .leak_bytes_per_step, .leak_confidence > 0.999]"'

@test "a run that a leak has killed is reported as leaking" {
	show "neap run --folder run -- $leaking --leak-per-step 512KiB 2>&1 >/dev/null | sed -n '/^neap run:/,\$p'"
	show "$verdict"
	expect killed
}

@test "a steep leak is warned of before it kills" {
	show "neap run --folder run -- $leaking --leak-per-step 1MiB 2>&1 >/dev/null | grep 'memory grows'"
	show "$verdict"
	expect steep
}

@test "a leak that is cleared by force is a leak" {
	show "neap run --folder run -- $leaking --leak-per-step 512KiB --on-leak clear >/dev/null"
	show "$verdict"
	expect cleared
}

@test "explain leak: how many steps are left, if the device's size is known" {
	neap run --quiet --folder run -- $leaking --leak-per-step 128KiB >/dev/null
	show 'neap explain leak --record run/record.* | sed -n "/^  In /,\$p"'
	expect explain
}
