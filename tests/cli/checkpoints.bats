#!/usr/bin/env bats
# neap checkpoints as people use it.

load ../support/command.bash

prepare() { mkdir run; }

# put NAME DAYS [BYTES]: a file that is DAYS old
put() {
	head -c "${3:-1024}" /dev/zero >"$1"
	touch -d "$2 days ago" "$1"
}

# ten epochs, one a day, the newest 3 days old; the loss is lowest in the middle
ten() {
	for i in 1 2 3 4 5 6 7 8 9; do put "run/epoch=$i-val_loss=0.$(((i - 5) * (i - 5) + 10)).ckpt" $((13 - i)) 1048576; done
	put run/epoch=10-val_loss=nan.ckpt 3 1048576
}

# steps of the checkpoints that a JSON report keeps
kept='[.folders[].plan.checkpoints[] | select(.verdict == "keep").step]'

@test "the defaults: the best 5 and those younger than 7 days stay; --dry-run changes nothing" {
	ten
	show 'neap checkpoints run --dry-run'
	show 'ls -A run | wc -l'
	expect defaults
}

@test "deleted checkpoints can be restored; then the trash is emptied" {
	ten
	show 'neap checkpoints run'
	show 'neap checkpoints run --dry-run'
	show "neap checkpoints run --restore 'epoch=1-*'"
	show "neap checkpoints run --restore 'epoch=1-*'"
	show 'neap checkpoints run --empty-trash </dev/null'
	show 'ls run/.neap-trash/*'
	show "neap checkpoints run --empty-trash --yes --pin 'epoch=1-*'"
	show 'ls -A run'
	expect trash
}

@test "several folders, each on its own; after one mistake none is touched" {
	ten
	mkdir other
	put other/step_1.pt 30 524288
	put other/step_2.pt 20 524288
	show 'neap checkpoints run other nowhere'
	[ "$(ls run | wc -l)" -eq 10 ]
	show 'neap checkpoints run other'
	expect several
}

@test "rules that compose, for good, as JSON" {
	ten
	show "neap checkpoints run --keep-best 1 --keep-last 2 --keep-every 4 --pin 'epoch=1-*' \\
	--older-than-days 0 --trash-ttl 0 --yes --json | jq -S ."
	show 'ls -A run'
	expect rules '"trash_until_s": \d+/"trash_until_s": S'
}

@test "--max-total-size takes the oldest, never the best" {
	ten
	show "neap checkpoints run --keep-best 1 --older-than-days 99 --max-total-size 3MiB --json | jq -c '$kept'"
	show 'neap checkpoints run --keep-best 5 --max-total-size 1MiB'
	expect total_size
}

@test "--max: keeps the newest and the best, even if all are young, and no more" {
	for i in $(seq 78); do put run/step=$i-val_loss=0.$((1000 + (i - 40) * (i - 40))).pt 0 512; done
	show 'neap checkpoints run --max 5 | grep -v DELETE'
	show 'neap checkpoints run --max 5'
	show 'neap checkpoints run --max 2 --keep-best 3 --dry-run' # another rule keeps more than the limit
	show "neap checkpoints run --max 2 --pin 'step=39*'"
	show 'neap checkpoints run --max 1 --grace 10m'
	expect max
}

@test "--max without a metric: the newest; --max-total-size likewise" {
	for i in 1 2 3 4 5 6 7 8; do put run/step_$i.pt $((40 - i)) 1048576; done
	show 'neap checkpoints run --max 3'
	show 'neap checkpoints run --restore "*"'
	show 'neap checkpoints run --max-total-size 6MiB'
	show 'neap checkpoints run --max-total-size 2MiB'
	ten
	show 'neap checkpoints run --metric val_loss --max-total-size 3MiB'
	show 'ls run'
	expect max_without_metric
}

@test "the best is never guessed" {
	put run/step_1-beauty=3.pt 30
	put run/step_2-beauty=9.pt 20
	put run/step_3-beauty=5.pt 10
	show 'neap checkpoints run --keep-best 1'
	show 'neap checkpoints run --metric beauty'
	[ "$(ls -A run | wc -l)" -eq 3 ]
	show 'neap checkpoints run --metric beauty --mode max --keep-best 1'
	rm -r run
	mkdir run
	put run/step_1-loss=nan.pt 30
	show 'neap checkpoints run --metric loss'
	expect best_not_guessed
}

@test "sharded folders, open files, targets of links" {
	for i in 100 200 300 400; do
		mkdir "run/checkpoint-$i"
		put "run/checkpoint-$i/model-00001.safetensors" $((50 - i / 100))
		put "run/checkpoint-$i/model-00002.safetensors" $((50 - i / 100))
	done
	ln -s checkpoint-200 run/latest
	exec 9<run/checkpoint-100/model-00002.safetensors
	show 'neap checkpoints run --keep-best 0'
	exec 9<&-
	show 'ls run'
	show 'cat run/.neap-trash/*/checkpoint-300/* | wc -c'
	expect open_and_linked
}

@test "files that are one checkpoint: shown, moved and brought back together" {
	for i in 1 2; do
		for role in model optimizer scheduler; do put "run/${role}_epoch_$i.pt" $((20 - i)); done
	done
	for i in 1 2; do put "run/sft_epoch_0-0000$i-of-00002.bin" 30 512; done
	put run/sft_epoch_0.bin.index.json 30 1024
	for i in 1 2; do put "run/base_epoch_0-0000$i-of-00003.bin" 40 512; done
	show 'neap checkpoints run --keep-best 0 --dry-run'
	show 'neap checkpoints run --keep-best 0 | tail -n 2'
	show 'neap checkpoints run --restore scheduler_epoch_1.pt'
	show 'ls run'
	show 'neap checkpoints run --restore "*"'
	[ ! -e run/.neap-trash ]
	expect parts
}

@test "many shards: a few are shown" {
	for i in 1 2 3 4 5 6 7 8 9; do put "run/x_epoch_1-0000$i-of-00009.bin" 30 512; done
	show 'neap checkpoints run --dry-run'
	show 'neap checkpoints run --dry-run --json | jq -c ".folders[0].plan.checkpoints[] | .parts, .torn"'
	expect many_shards
}

@test "run folders: a hint, and --recursive" {
	mkdir -p run/a run/b/version_0/checkpoints run/c
	for i in 1 2 3; do
		put run/a/step_$i.pt $((30 - i))
		put run/b/version_0/checkpoints/epoch=$i.ckpt $((30 - i))
		put run/c/step_$i-val_loss=nan.pt $((30 - i)) # the best is unknown
	done
	show 'neap checkpoints run'
	show 'neap checkpoints run --recursive --keep-best 1 --metric val_loss --dry-run'
	show 'neap checkpoints run --recursive --max 1'
	show "neap checkpoints run --recursive --restore 'epoch=1*'"
	show "neap checkpoints run --recursive --restore 'epoch=1*'"
	show "neap checkpoints run/a run --recursive --restore '*'"
	[ "$(find run/a run/b -type f | wc -l)" -eq 6 ]
	expect recursive
}

@test "a torn checkpoint does not count as the newest, and is no reason to delete a whole one" {
	put run/step_1.pt 30
	put run/step_2.pt 20
	printf 'PK\003\004 and then the disk was full' >run/step_3.pt
	touch -d '10 days ago' run/step_3.pt
	show 'neap checkpoints run --keep-best 1'
	show 'neap checkpoints run --keep-best 0'
	expect torn
}

@test "what becomes free, and when; on a full disk, how to free it now" {
	unshare -m true 2>/dev/null || skip "mounting takes root"
	for i in 1 2 3; do put run/step_$i.pt $((30 - i)) 400000; done
	ln run/step_1.pt linked
	show 'neap checkpoints run --keep-best 0 --dry-run'
	show 'neap checkpoints run --keep-best 0 --dry-run --trash-ttl 0'
	show 'neap checkpoints run --dry-run --older-than-days 99'
	expect becomes_free
	# a disk that has no room for another one, nor for the trash
	truncate -s 4M disk
	mkfs.ext4 -q -m 0 -b 1024 disk || skip "no mkfs.ext4"
	mkdir mounted
	cat >full <<-'END'
		mount -o loop disk mounted || exit 99
		mkdir mounted/run
		for i in 1 2 3 4; do head -c 400000 /dev/zero >mounted/run/step_$i.pt; done
		echo "{\"loss\": 1}" >mounted/run/step_1.json
		touch -d "30 days ago" mounted/run/*
		touch mounted/run/step_4.pt
		neap checkpoints mounted/run --keep-best 0 >moved
		neap checkpoints mounted/run --restore "*" >restored
		for i in 1 2 3; do dd if=/dev/zero of=mounted/fill$i bs=1k status=none 2>/dev/null || true; sync; done
		! mkdir mounted/more 2>/dev/null || exit 98
		neap checkpoints mounted/run --keep-best 0 --dry-run
		! neap checkpoints mounted/run --keep-best 0
		neap checkpoints mounted/run --keep-best 0 --trash-ttl 0 --yes
		ls -A mounted/run
	END
	show 'unshare -m bash -e full'
	if [ "$status" -eq 99 ] || [ "$status" -eq 98 ]; then
		rm "$BATS_TEST_TMPDIR/shown"
		skip "no loop device, or no full disk"
	fi
	expect full_disk 'has .* left/has SIZE left'
}

@test "--empty-trash alone empties it, and applies no rule" {
	ten
	neap checkpoints run --keep-best 1 >moved
	left="$(ls run)"
	show 'neap checkpoints run --empty-trash --yes'
	[ "$(ls -A run)" = "$left" ]
	expect empty_trash
}

@test "a folder without write permission: 77, a message, nothing lost" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to be somebody else"
	command -v setpriv >/dev/null || skip "needs setpriv"
	ten
	chmod 755 "$dir" run
	cp "$NEAP" "$dir/neap"
	show 'setpriv --reuid=65534 --clear-groups ./neap checkpoints run'
	[ "$(ls -A run | wc -l)" -eq 10 ]
	expect not_writable
}

@test "a mount inside is not touched" {
	unshare -m true 2>/dev/null || skip "mounting takes root"
	mkdir run/checkpoint-1 run/checkpoint-2
	put run/checkpoint-2/model.bin 20
	unshare -m mount -t tmpfs none run/checkpoint-1 2>/dev/null || skip "may not mount"
	cat >mounts <<-'END'
		mount -t tmpfs none run/checkpoint-1
		head -c 9 /dev/zero >run/checkpoint-1/model.bin
		touch -d "30 days ago" run/checkpoint-1/model.bin
		neap checkpoints run --keep-best 0
	END
	show 'unshare -m sh -e mounts'
	expect mount
}

@test "a mount inside a checkpoint stays, even of the same file system, and in the trash" {
	unshare -m true 2>/dev/null || skip "mounting takes root"
	mkdir data run/checkpoint-{1,2,3}{,/data}
	echo precious >data/set
	touch run/checkpoint-{1,2,3}/w
	cat >mounts <<-'END'
		mount --bind data run/checkpoint-1/data
		neap checkpoints run --keep-best 0 --keep-last 1 --older-than-days 0 --grace 0
		mount --bind data run/.neap-trash/*/checkpoint-2/data
		! neap checkpoints run --empty-trash --yes
	END
	show 'unshare -m sh -e mounts'
	show 'ls -A run; cat data/set'
	expect mount_in_checkpoint
}

@test "wrong usage: 64" {
	for options in '--keep-best x' '--keep-last -1' '--older-than-days soon' '--older-than-days -1' '--mode low' \
		'--max-total-size 0' '--max-total-size big' '--max 0' '--max few' '--grace soon' '--trash-ttl 9999d' \
		'--restore x --dry-run'; do
		show "neap checkpoints run $options"
		[ "$status" -eq 64 ]
	done
	show 'neap checkpoints'
	expect usage
}
