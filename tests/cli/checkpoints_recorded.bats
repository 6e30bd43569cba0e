#!/usr/bin/env bats
# neap checkpoints and what trainers recorded themselves: which checkpoint is the best, and by which metric.

load ../support/command.bash

prepare() {
	trainers="$BATS_TEST_DIRNAME/../checkpoint/trainers.py"
	rm -f /tmp/neap-pickle-was-executed
}

# old FOLDER: makes each of its checkpoints a month old, the last one of today
old() {
	find "$1" -mindepth 1 -exec touch -d '30 days ago' {} +
	local last
	last="$(ls "$1" | sort -V | tail -n 1)"
	find "$1/$last" -exec touch {} +
}

# epochs FOLDER: files of Lightning's default names, but for the last
epochs() {
	mkdir -p "$1"
	for i in 0 1 2 3 4 5 6 7; do
		echo weights >"$1/epoch=$i-step=$((10 * i)).ckpt"
		touch -d "$((30 - i)) days ago" "$1/epoch=$i-step=$((10 * i)).ckpt"
	done
}

@test "the best of Hugging Face's Trainer, by its own metric, stays by default" {
	# eval_loss, which was guessed before, falls all the time: it would name the last five as the best
	python3 "$trainers" transformers run accuracy true checkpoint-20 10=0.5 20=0.9 30=0.7 40=0.6 50=0.55 60=0.54 70=0.53 80=0.52
	old run
	show 'neap checkpoints run'
	expect trainer
}

@test "the training arguments say which end is better" {
	for greater in false none nofile; do
		rm -rf run
		# a Trainer without a mode takes the lowest of a metric that ends with "loss", the highest of any
		# other
		metric=distance
		[ "$greater" = none ] && metric=my_loss
		python3 "$trainers" transformers run "$metric" "$greater" checkpoint-30 10=0.5 20=0.4 30=0.1 40=0.6 50=0.7
		old run
		show "neap checkpoints run --keep-best 1 # $greater"
	done
	expect mode
}

@test "a record that contradicts its own values: nothing goes without --metric" {
	python3 "$trainers" transformers run accuracy true checkpoint-20 10=0.5 20=0.9 30=0.95 40=0.6
	old run
	show 'neap checkpoints run'
	show 'ls -A run'
	show 'neap checkpoints run --metric eval_accuracy --keep-best 1'
	expect contradiction
}

@test "a best checkpoint that is gone is reported; its metric still counts" {
	python3 "$trainers" transformers run accuracy true checkpoint-20 10=0.5 20=0.9 30=0.7 40=0.6
	old run
	rm -r run/checkpoint-20
	show 'neap checkpoints run --keep-best 1'
	expect best_gone
}

@test "the best of Lightning's ModelCheckpoint, read from a checkpoint that is not executed" {
	epochs ck
	at=/home/me/run/ck
	python3 "$trainers" lightning "ck/epoch=8-step=80.ckpt" val_distance:min "$at/epoch=1-step=10.ckpt" \
		"$at/epoch=1-step=10.ckpt=0.125" "$at/epoch=3-step=30.ckpt=0.25" "$at/epoch=8-step=80.ckpt=0.5"
	show 'neap checkpoints ck --dry-run --json | jq -c ".folders[].plan | .metric, .mode, .source"'
	show 'neap checkpoints ck --keep-best 2'
	expect lightning
	[ ! -e /tmp/neap-pickle-was-executed ]
}

@test "two callbacks that disagree in one folder: nothing goes without --metric" {
	epochs ck
	python3 "$trainers" lightning "ck/epoch=8-step=80.ckpt" val_acc:max /r/ck/epoch=1-step=10.ckpt /r/ck/epoch=1-step=10.ckpt=0.9 \
		and val_loss:min /r/ck/epoch=2-step=20.ckpt /r/ck/epoch=2-step=20.ckpt=0.1
	show 'neap checkpoints ck'
	show 'ls -A ck | wc -l'
	# what the other callback keeps elsewhere does not matter here, even under the same names
	python3 "$trainers" lightning "ck/epoch=8-step=80.ckpt" val_acc:max /r/other/epoch=1-step=10.ckpt /r/other/epoch=1-step=10.ckpt=0.9 \
		and val_loss:min /r/ck/epoch=2-step=20.ckpt /r/ck/epoch=2-step=20.ckpt=0.1
	show 'neap checkpoints ck --keep-best 1'
	expect two_callbacks
}

@test "a damaged checkpoint of Lightning is no record, and does no harm" {
	epochs ck
	python3 "$trainers" lightning "ck/epoch=8-step=80.ckpt" val_acc:max /r/ck/epoch=1-step=10.ckpt /r/ck/epoch=1-step=10.ckpt=0.9
	size=$(stat -c %s ck/epoch=8-step=80.ckpt)
	for at in 40 100 $((size / 3)) $((size - 30)); do
		cp ck/epoch=8-step=80.ckpt spare
		printf '\xff\xff\xff\xff' | dd of=ck/epoch=8-step=80.ckpt bs=1 seek="$at" conv=notrunc status=none
		show "neap checkpoints ck --dry-run | grep -e best -e step=80 # damaged at $at"
		mv spare ck/epoch=8-step=80.ckpt
	done
	[ ! -e /tmp/neap-pickle-was-executed ]
	expect damaged
}

@test "Orbax: the folders give the steps, and the metric is the one that its manager chooses by" {
	for step in 100 200 300 400 500 600 700; do python3 "$trainers" orbax run $step loss=0.$((step / 100)); done
	old run
	python3 "$trainers" orbax run 800 loss=0.9
	mkdir run/900.orbax-checkpoint-tmp-5 run/2024 # one that is still being written, and a folder that is no checkpoint
	show 'neap checkpoints run --keep-best 1'
	show 'ls run'
	expect orbax
}

@test "Orbax does not record by which of two metrics it chooses, nor which end is better" {
	python3 "$trainers" orbax run 100 loss=0.1 beauty=0.9
	python3 "$trainers" orbax run 200 loss=0.2 beauty=0.1
	old run
	show 'neap checkpoints run'
	rm -r run
	python3 "$trainers" orbax run 100 beauty=0.9
	python3 "$trainers" orbax run 200 beauty=0.1
	python3 "$trainers" orbax run 300 beauty=0.2
	old run
	show 'neap checkpoints run'
	show 'neap checkpoints run --mode max --keep-best 1'
	expect orbax_metrics
}

@test "a name that contains the word best" {
	mkdir run
	for i in 1 2 3 4 5 6 7 8 9; do echo w >run/run_epoch_$i.pth; touch -d "$((30 - i)) days ago" run/run_epoch_$i.pth; done
	for i in 2 3; do echo w >run/best_bleu_epoch_$i.pth; touch -d "$((30 - i)) days ago" run/best_bleu_epoch_$i.pth; done
	show 'neap checkpoints run --dry-run'
	expect named_best
}
