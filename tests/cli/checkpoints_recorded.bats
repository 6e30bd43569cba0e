#!/usr/bin/env bats
# neap checkpoints and what trainers wrote down themselves: which checkpoint is the best, and by which metric.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir" TZ=UTC
	trainers="$BATS_TEST_DIRNAME/../checkpoint/trainers.py"
	mkdir -m 700 "$dir/runtime"
	cd "$dir"
	rm -f /tmp/neap-pickle-was-executed
}

teardown() {
	[ ! -e /tmp/neap-pickle-was-executed ]
	cd /
	rm -rf "$dir"
}

json() { jq -r "$1" <<<"$output"; }

# old FOLDER: each of its checkpoints a month old, the last one of today
old() {
	find "$1" -mindepth 1 -exec touch -d '30 days ago' {} +
	local last
	last="$(ls "$1" | sort -V | tail -n 1)"
	find "$1/$last" -exec touch {} +
}

prune() { run --separate-stderr "$NEAP" checkpoints "$@"; }

@test "the best of Hugging Face's Trainer, by its own metric, stays by default" {
	# eval_loss, which was guessed before, falls all the time: by it the last five are the best
	python3 "$trainers" transformers run accuracy true checkpoint-20 10=0.5 20=0.9 30=0.7 40=0.6 50=0.55 60=0.54 70=0.53 80=0.52
	old run
	prune run --dry-run
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == "run: 8 checkpoints, "*"; best by eval_accuracy (higher is better): Hugging Face's Trainer recorded it in checkpoint-80/trainer_state.json" ]]
	[[ "${lines[7]}" == "  KEEP "*" checkpoint-20  best 1: eval_accuracy 0.9, its trainer's best" ]]
	prune run
	[ "$status" -eq 0 ]
	[ "$(cd run && echo *)" = "checkpoint-20 checkpoint-30 checkpoint-40 checkpoint-50 checkpoint-60 checkpoint-80" ]
}

@test "which end is better, as the training arguments say" {
	for greater in false none nofile; do
		rm -rf run
		# a Trainer that was told nothing takes the low end for what ends with "loss", the high one for the rest
		best=checkpoint-30 metric=distance
		[ "$greater" = none ] && metric=my_loss
		python3 "$trainers" transformers run "$metric" "$greater" "$best" 10=0.5 20=0.4 30=0.1 40=0.6 50=0.7
		old run
		prune run --keep-best 1
		echo "$greater: $output $stderr"
		[ "$status" -eq 0 ]
		[[ "${lines[0]}" == *"best by eval_$metric (lower is better): Hugging Face's Trainer recorded"* ]]
		[ "$(cd run && echo *)" = "checkpoint-30 checkpoint-50" ]
	done
}

@test "a record that its own values contradict: nothing goes without --metric" {
	python3 "$trainers" transformers run accuracy true checkpoint-20 10=0.5 20=0.9 30=0.95 40=0.6
	old run
	prune run
	echo "$stderr"
	[ "$status" -eq 64 ]
	[ "${stderr_lines[0]}" = "neap checkpoints: run: Hugging Face's Trainer recorded checkpoint-20 as the best, with eval_accuracy 0.9, but checkpoint-30 has 0.95: name the metric that counts" ]
	[ "${stderr_lines[1]}" = "neap checkpoints: --metric NAME, with --mode min or max, says what the best is" ]
	[ "$(ls run | wc -l)" -eq 4 ]
	prune run --metric eval_accuracy --keep-best 1
	[ "$status" -eq 0 ]
	[ "$(cd run && echo *)" = "checkpoint-30 checkpoint-40" ]
}

@test "a best that is gone is reported; its metric still counts" {
	python3 "$trainers" transformers run accuracy true checkpoint-20 10=0.5 20=0.9 30=0.7 40=0.6
	old run
	rm -r run/checkpoint-20
	prune run --keep-best 1
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == *"recorded it in checkpoint-40/trainer_state.json; its best, checkpoint-20, is not here" ]]
	[ "$(cd run && echo *)" = "checkpoint-30 checkpoint-40" ]
}

# epochs N...: files of Lightning's default names, but for the last
epochs() {
	mkdir -p "$1"
	for i in 0 1 2 3 4 5 6 7; do
		echo weights >"$1/epoch=$i-step=$((10 * i)).ckpt"
		touch -d "$((30 - i)) days ago" "$1/epoch=$i-step=$((10 * i)).ckpt"
	done
}

@test "the best of Lightning's ModelCheckpoint, read from a checkpoint that is not executed" {
	epochs ck
	at=/home/me/run/ck
	python3 "$trainers" lightning "ck/epoch=8-step=80.ckpt" val_distance:min "$at/epoch=1-step=10.ckpt" \
		"$at/epoch=1-step=10.ckpt=0.125" "$at/epoch=3-step=30.ckpt=0.25" "$at/epoch=8-step=80.ckpt=0.5"
	prune ck --dry-run --json
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(json '.folders[0].plan | .metric, .mode, .source')" = \
		"$(printf 'val_distance\nmin\nLightning recorded it in epoch=8-step=80.ckpt')" ]
	[ "$(json '.folders[0].plan.checkpoints[] | select(.step == 30) | .metric')" = 0.25 ]
	prune ck --keep-best 2
	[ "$status" -eq 0 ]
	[ "$(cd ck && echo *)" = "epoch=1-step=10.ckpt epoch=3-step=30.ckpt epoch=8-step=80.ckpt" ]
}

@test "two callbacks that disagree in one folder: nothing goes without --metric" {
	epochs ck
	python3 "$trainers" lightning "ck/epoch=8-step=80.ckpt" val_acc:max /r/ck/epoch=1-step=10.ckpt /r/ck/epoch=1-step=10.ckpt=0.9 \
		and val_loss:min /r/ck/epoch=2-step=20.ckpt /r/ck/epoch=2-step=20.ckpt=0.1
	prune ck
	echo "$stderr"
	[ "$status" -eq 64 ]
	[[ "$stderr" == *"two records of the best disagree: epoch=1-step=10.ckpt by val_acc (Lightning), epoch=2-step=20.ckpt by val_loss (Lightning): name the metric that counts"* ]]
	[ "$(ls -A ck | wc -l)" -eq 9 ]
	# of what the other callback keeps elsewhere nothing is asked here, be its names the same
	python3 "$trainers" lightning "ck/epoch=8-step=80.ckpt" val_acc:max /r/other/epoch=1-step=10.ckpt /r/other/epoch=1-step=10.ckpt=0.9 \
		and val_loss:min /r/ck/epoch=2-step=20.ckpt /r/ck/epoch=2-step=20.ckpt=0.1
	prune ck --keep-best 1
	[ "$status" -eq 0 ]
	[ "$(cd ck && echo *)" = "epoch=2-step=20.ckpt epoch=8-step=80.ckpt" ]
}

@test "a damaged checkpoint of Lightning is no record, and costs nothing" {
	epochs ck
	python3 "$trainers" lightning "ck/epoch=8-step=80.ckpt" val_acc:max /r/ck/epoch=1-step=10.ckpt /r/ck/epoch=1-step=10.ckpt=0.9
	size=$(stat -c %s ck/epoch=8-step=80.ckpt)
	for at in 40 100 $((size / 3)) $((size - 30)); do
		cp ck/epoch=8-step=80.ckpt spare
		printf '\xff\xff\xff\xff' | dd of=ck/epoch=8-step=80.ckpt bs=1 seek="$at" conv=notrunc status=none
		prune ck --dry-run
		echo "$at: $output"
		[ "$status" -eq 0 ]
		mv spare ck/epoch=8-step=80.ckpt
	done
}

@test "Orbax: steps by their folders, the metric that its manager chooses by" {
	for step in 100 200 300 400 500 600 700; do python3 "$trainers" orbax run $step loss=0.$((step / 100)); done
	old run
	python3 "$trainers" orbax run 800 loss=0.9
	mkdir run/900.orbax-checkpoint-tmp-5 run/2024 # one under way, and what is none
	prune run --keep-best 1
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == *"best by loss (lower is better): Orbax recorded its values in 800/metrics/metrics" ]]
	[ "$(cd run && echo *)" = "100 2024 700 800 900.orbax-checkpoint-tmp-5" ]
}

@test "Orbax does not say which of two metrics it goes by, nor which end is better" {
	python3 "$trainers" orbax run 100 loss=0.1 beauty=0.9
	python3 "$trainers" orbax run 200 loss=0.2 beauty=0.1
	old run
	prune run
	echo "$stderr"
	[ "$status" -eq 64 ]
	[[ "$stderr" == *"Orbax recorded several metrics (loss, beauty), and not which of them tells the best: name the metric that counts"* ]]
	rm -r run
	python3 "$trainers" orbax run 100 beauty=0.9
	python3 "$trainers" orbax run 200 beauty=0.1
	python3 "$trainers" orbax run 300 beauty=0.2
	old run
	prune run
	[ "$status" -eq 64 ]
	[[ "$stderr" == *"whether a low or a high beauty is better is not known: say min or max"* ]]
	prune run --mode max --keep-best 1
	[ "$status" -eq 0 ]
	[ "$(cd run && echo *)" = "100 300" ]
}

@test "a name that says best" {
	for i in 1 2 3 4 5 6 7 8 9; do echo w >run_epoch_$i.pth; touch -d "$((30 - i)) days ago" run_epoch_$i.pth; done
	for i in 2 3; do echo w >best_bleu_epoch_$i.pth; touch -d "$((30 - i)) days ago" best_bleu_epoch_$i.pth; done
	prune . --dry-run
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"KEEP          2 B  best_bleu_epoch_3.pth  its trainer's best"* ]]
	[[ "$output" == *"DELETE        2 B  best_bleu_epoch_2.pth"* ]]
}
