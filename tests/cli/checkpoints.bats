#!/usr/bin/env bats
# neap checkpoints, as people use it.
bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir" TZ=UTC
	mkdir -m 700 "$dir/runtime"
	mkdir "$dir/run"
	cd "$dir"
}

teardown() {
	cd /
	chmod -R u+w "$dir"
	rm -rf "$dir"
}

json() { jq -r "$1" <<<"$output"; }

# put NAME DAYS [BYTES]: a file that old
put() {
	head -c "${3:-1024}" /dev/zero >"$1"
	touch -d "$2 days ago" "$1"
}

# ten epochs, one a day, the youngest 3 days old; the loss is lowest in the middle
ten() {
	for i in 1 2 3 4 5 6 7 8 9; do put "run/epoch=$i-val_loss=0.$(((i - 5) * (i - 5) + 10)).ckpt" $((13 - i)) 1048576; done
	put run/epoch=10-val_loss=nan.ckpt 3 1048576
}

@test "the defaults: the best 5 and what is younger than 7 days stay; --dry-run does nothing" {
	ten
	run --separate-stderr "$NEAP" checkpoints run --dry-run
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$stderr" = "" ]
	# without the time
	diff -u - <<<"$(sed -E 's/before (20)[^,]*,/before \1,/' <<<"$output")" <(cat <<'END'
run: 10 checkpoints, 10.0 MiB; best by val_loss (lower is better): most of them tell it; --metric and --mode say otherwise
  KEEP     1.00 MiB  epoch=10-val_loss=nan.ckpt  newest
  KEEP     1.00 MiB  epoch=9-val_loss=0.26.ckpt  not due
  KEEP     1.00 MiB  epoch=8-val_loss=0.19.ckpt  not due
  KEEP     1.00 MiB  epoch=7-val_loss=0.14.ckpt  best 4: val_loss 0.14
  KEEP     1.00 MiB  epoch=6-val_loss=0.11.ckpt  best 2: val_loss 0.11
  KEEP     1.00 MiB  epoch=5-val_loss=0.10.ckpt  best 1: val_loss 0.1
  KEEP     1.00 MiB  epoch=4-val_loss=0.11.ckpt  best 3: val_loss 0.11
  KEEP     1.00 MiB  epoch=3-val_loss=0.14.ckpt  best 5: val_loss 0.14
  DELETE   1.00 MiB  epoch=2-val_loss=0.19.ckpt  older than 7 days: 11 days, val_loss 0.19
  DELETE   1.00 MiB  epoch=1-val_loss=0.26.ckpt  older than 7 days: 12 days, val_loss 0.26
Would move 2 checkpoints, 2.00 MiB, to run/.neap-trash: nothing becomes free before 20, then 2.00 MiB with the next cleanup
Checkpoint Summary: 10 files, 10.0 MB total
END
	)
	[ "$(ls run | wc -l)" -eq 10 ]
	[ ! -e run/.neap-trash ]
}

@test "what goes can be brought back; then the trash is emptied" {
	ten
	run --separate-stderr "$NEAP" checkpoints run
	[ "$status" -eq 0 ]
	[[ "$output" == *"Moved 2 checkpoints, 2.00 MiB, to run/.neap-trash; --restore brings them back until 20"* ]]
	[ "${lines[-1]}" = "Checkpoint Summary: 8 files, 8.0 MB total" ]
	[ "$(ls run/.neap-trash/until-*)" = "$(printf 'epoch=1-val_loss=0.26.ckpt\nepoch=2-val_loss=0.19.ckpt')" ]
	run "$NEAP" checkpoints run --dry-run
	[[ "$output" == *"in the trash: 2 checkpoints, 2.00 MiB; the first goes after 20"* ]]
	run "$NEAP" checkpoints run --restore 'epoch=1-*'
	[ "$status" -eq 0 ]
	[ -e run/epoch=1-val_loss=0.26.ckpt ]
	[ ! -e run/epoch=2-val_loss=0.19.ckpt ]
	run "$NEAP" checkpoints run --restore 'epoch=1-*'
	[ "$status" -eq 66 ]
	run "$NEAP" checkpoints run --empty-trash </dev/null
	[ "$status" -eq 64 ]
	[[ "$output" == *"there is no terminal to ask on: give --yes"* ]]
	[ -e run/.neap-trash ]
	run "$NEAP" checkpoints run --empty-trash --yes --pin 'epoch=1-*'
	[ "$status" -eq 0 ]
	[[ "$output" == *"Deleted 1 checkpoint for good: 1.00 MiB became free"* ]]
	[ ! -e run/.neap-trash ]
	[ -e run/epoch=1-val_loss=0.26.ckpt ]
}

@test "several folders, each by itself; one mistake and none is touched" {
	ten
	mkdir other
	put other/step_1.pt 30 524288
	put other/step_2.pt 20 524288
	run "$NEAP" checkpoints run other nowhere
	[ "$status" -eq 66 ]
	[[ "$output" == *"nowhere"*"nothing was changed in any folder"* ]]
	[ "$(ls run | wc -l)" -eq 10 ]
	run "$NEAP" checkpoints run other
	[ "$status" -eq 0 ]
	[[ "$output" == *"other: 2 checkpoints, 1.00 MiB; no metric was found: the newest stand for the best"* ]]
	[ "${lines[-1]}" = "Checkpoint Summary: 10 files, 9.0 MB total" ]
}

@test "rules that compose, for good, as JSON" {
	ten
	run --separate-stderr "$NEAP" checkpoints run --keep-best 1 --keep-last 2 --keep-every 4 --pin 'epoch=1-*' \
		--older-than-days 0 --trash-ttl 0 --yes --json
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(json '.schema, .dry_run, .summary.count, .summary.bytes')" = "$(printf '1\nfalse\n6\n6291456')" ]
	[ "$(json '[.folders[0].plan.checkpoints[] | select(.verdict == "keep") | .step | tostring] | join(" ")')" = \
		"10 9 8 5 4 1" ]
	[ "$(json '.folders[0].plan.checkpoints[] | select(.step == 8) | .reasons | join(" ")')" = "every rest" ]
	[ "$(json '.folders[0].plan.checkpoints[] | select(.step == 10) | .measured, .metric')" = "$(printf 'true\nnull')" ]
	[ "$(json '.folders[0].plan.checkpoints[] | select(.step == 7) | .done')" = moved ]
	[ "$(json '.folders[0].result | .moved_count, .deleted_count')" = "$(printf '4\n4')" ]
	[ "$(ls -A run | wc -l)" -eq 6 ]
}

@test "--max-total-size takes the oldest, never the best" {
	ten
	run --separate-stderr "$NEAP" checkpoints run --keep-best 1 --older-than-days 99 --max-total-size 3MiB --json
	[ "$status" -eq 0 ]
	[ "$(json '[.folders[0].plan.checkpoints[] | select(.verdict == "keep") | .step | tostring] | join(" ")')" = "10 9 5" ]
	run "$NEAP" checkpoints run --keep-best 5 --max-total-size 1MiB
	[[ "$output" == *"what must stay is 2.00 MiB more than --max-total-size"* ]]
}

# names: of what lies in run, sorted by their numbers
names() { (cd run && ls | sort -V | tr '\n' ' '); }

@test "--max: the newest and the best, however young, and no more" {
	for i in $(seq 78); do put run/step=$i-val_loss=0.$((1000 + (i - 40) * (i - 40))).pt 0 512; done
	run --separate-stderr "$NEAP" checkpoints run --max 5
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(names)" = "step=39-val_loss=0.1001.pt step=40-val_loss=0.1000.pt step=41-val_loss=0.1001.pt step=42-val_loss=0.1004.pt step=78-val_loss=0.2444.pt " ]
	[[ "$output" == *"DELETE      512 B  step=77-val_loss=0.2369.pt  more than 5, val_loss 0.2369"* ]]
	run --separate-stderr "$NEAP" checkpoints run --max 5
	[[ "$output" == *"5 checkpoints, 2.50 KiB"* ]]
	[ "$(ls run | wc -l)" -eq 5 ]
	# what is asked for stays, also beyond the limit
	run --separate-stderr "$NEAP" checkpoints run --max 2 --keep-best 3 --dry-run
	[[ "$output" == *"  what must stay is 2 more than --max 2"* ]]
	run --separate-stderr "$NEAP" checkpoints run --max 2 --pin 'step=39*'
	[ "$(names)" = "step=39-val_loss=0.1001.pt step=40-val_loss=0.1000.pt step=78-val_loss=0.2444.pt " ]
	run --separate-stderr "$NEAP" checkpoints run --max 1 --grace 10m
	[ "$(ls run | wc -l)" -eq 3 ]
}

@test "--max without a metric: the newest; --max-total-size likewise" {
	for i in 1 2 3 4 5 6 7 8; do put run/step_$i.pt $((40 - i)) 1048576; done
	run --separate-stderr "$NEAP" checkpoints run --max 3
	[ "$status" -eq 0 ]
	[ "$(names)" = "step_6.pt step_7.pt step_8.pt " ]
	run --separate-stderr "$NEAP" checkpoints run --restore '*'
	run --separate-stderr "$NEAP" checkpoints run --max-total-size 6MiB
	[ "$(names)" = "step_3.pt step_4.pt step_5.pt step_6.pt step_7.pt step_8.pt " ]
	run --separate-stderr "$NEAP" checkpoints run --max-total-size 2MiB
	[ "$(names)" = "step_7.pt step_8.pt " ]
	ten
	run --separate-stderr "$NEAP" checkpoints run --metric val_loss --max-total-size 3MiB
	[ "$status" -eq 0 ]
	[ "$(names)" = "epoch=5-val_loss=0.10.ckpt epoch=6-val_loss=0.11.ckpt epoch=10-val_loss=nan.ckpt " ]
}

@test "the best is never guessed" {
	put run/step_1-beauty=3.pt 30
	put run/step_2-beauty=9.pt 20
	put run/step_3-beauty=5.pt 10
	run "$NEAP" checkpoints run --keep-best 1
	[ "$status" -eq 64 ]
	[[ "$output" == *"name the metric"* ]]
	run "$NEAP" checkpoints run --metric beauty
	[ "$status" -eq 64 ]
	[[ "$output" == *"say min or max"* ]]
	[ "$(ls -A run | wc -l)" -eq 3 ]
	run "$NEAP" checkpoints run --metric beauty --mode max --keep-best 1
	[ "$status" -eq 0 ]
	[ "$(echo run/*)" = "run/step_2-beauty=9.pt run/step_3-beauty=5.pt" ]
	rm -r run
	mkdir run
	put run/step_1-loss=nan.pt 30
	run "$NEAP" checkpoints run --metric loss
	[ "$status" -eq 64 ]
	[[ "$output" == *"every loss in run is NaN or infinite"* ]]
}

@test "sharded folders, what is open, what a link names" {
	for i in 100 200 300 400; do
		mkdir "run/checkpoint-$i"
		put "run/checkpoint-$i/model-00001.safetensors" $((50 - i / 100))
		put "run/checkpoint-$i/model-00002.safetensors" $((50 - i / 100))
	done
	ln -s checkpoint-200 run/latest
	exec 9<run/checkpoint-100/model-00002.safetensors
	run "$NEAP" checkpoints run --keep-best 0
	exec 9<&-
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"KEEP"*"checkpoint-100  open in a process"* ]]
	[[ "$output" == *"KEEP"*"checkpoint-200  resumed from"* ]]
	[[ "$output" == *"DELETE"*"checkpoint-300  older than 7 days"* ]]
	[ "$(ls run | tr '\n' ' ')" = "checkpoint-100 checkpoint-200 checkpoint-400 latest " ]
	[ "$(cat run/.neap-trash/*/checkpoint-300/* | wc -c)" -eq 2048 ]
}

@test "files that are one checkpoint: shown, moved and brought back together" {
	for i in 1 2; do
		for role in model optimizer scheduler; do put "run/${role}_epoch_$i.pt" $((20 - i)); done
	done
	for i in 1 2; do put "run/sft_epoch_0-0000$i-of-00002.bin" 30 512; done
	put run/sft_epoch_0.bin.index.json 30 1024
	for i in 1 2; do put "run/base_epoch_0-0000$i-of-00003.bin" 40 512; done
	run --separate-stderr "$NEAP" checkpoints run --keep-best 0 --dry-run
	echo "$output"
	[ "$status" -eq 0 ]
	diff -u <(head -n 12 <<<"$output") - <<'END'
run: 4 checkpoints, 9.00 KiB
  KEEP     3.00 KiB  model_epoch_2.pt                 newest
                   + optimizer_epoch_2.pt
                   + scheduler_epoch_2.pt
  DELETE   3.00 KiB  model_epoch_1.pt                 older than 7 days: 19 days
                   + optimizer_epoch_1.pt
                   + scheduler_epoch_1.pt
  DELETE   2.00 KiB  sft_epoch_0-00001-of-00002.bin   older than 7 days: 30 days
                   + sft_epoch_0-00002-of-00002.bin
                   + sft_epoch_0.bin.index.json
  DELETE   1.00 KiB  base_epoch_0-00001-of-00003.bin  torn: not all of its parts are there
                   + base_epoch_0-00002-of-00003.bin
END
	run "$NEAP" checkpoints run --keep-best 0
	[ "$status" -eq 0 ]
	[ "$(cd run && echo *)" = "model_epoch_2.pt optimizer_epoch_2.pt scheduler_epoch_2.pt" ]
	run "$NEAP" checkpoints run --restore 'scheduler_epoch_1.pt'
	[ "$status" -eq 0 ]
	[ "$(cd run && echo *_1.pt)" = "model_epoch_1.pt optimizer_epoch_1.pt scheduler_epoch_1.pt" ]
	run "$NEAP" checkpoints run --restore '*'
	[[ "$output" == *"Restored 2 checkpoints"* ]]
	[ ! -e run/.neap-trash ]
}

@test "many shards: a few are shown" {
	for i in 1 2 3 4 5 6 7 8 9; do put "run/x_epoch_1-0000$i-of-00009.bin" 30 512; done
	run --separate-stderr "$NEAP" checkpoints run --dry-run
	[ "$(sed -n 6,7p <<<"$output")" = "$(printf '%21s%s\n' '+ ' x_epoch_1-00005-of-00009.bin '+ ' '4 more')" ]
	run --separate-stderr "$NEAP" checkpoints run --dry-run --json
	[ "$(json '.folders[0].plan.checkpoints[0] | .parts[8], (.parts | length), .torn')" = \
		"$(printf 'x_epoch_1-00009-of-00009.bin\n9\nnull')" ]
}

@test "run folders: a hint, and --recursive" {
	mkdir -p run/a run/b/version_0/checkpoints run/c
	for i in 1 2 3; do
		put run/a/step_$i.pt $((30 - i))
		put run/b/version_0/checkpoints/epoch=$i.ckpt $((30 - i))
		put run/c/step_$i-val_loss=nan.pt $((30 - i)) # the best cannot be told
	done
	run --separate-stderr "$NEAP" checkpoints run
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "run: 0 checkpoints, 0 B" ]
	[ "${lines[1]}" = "  left alone: 9 checkpoints in 3 folders below; --recursive takes them too" ]
	run --separate-stderr "$NEAP" checkpoints run --recursive --keep-best 1 --metric val_loss --dry-run
	[ "$status" -eq 64 ]
	run --separate-stderr "$NEAP" checkpoints run --recursive --max 1
	echo "$output" "$stderr"
	[ "$status" -eq 64 ]
	[[ "${stderr_lines[0]}" == *"every val_loss in run/c is NaN or infinite"* ]]
	[ "${stderr_lines[-1]}" = "neap checkpoints: such a folder is left alone" ]
	[ "${lines[0]}" = "run/a: 3 checkpoints, 3.00 KiB; no metric was found: the newest stand for the best" ]
	[ "$(cd run && find . -name '*t' -type f -not -path '*trash*' | sort | tr '\n' ' ')" = "./a/step_3.pt ./b/version_0/checkpoints/epoch=3.ckpt ./c/step_1-val_loss=nan.pt ./c/step_2-val_loss=nan.pt ./c/step_3-val_loss=nan.pt " ]
	run --separate-stderr "$NEAP" checkpoints run --recursive --restore 'epoch=1*'
	[ "$status" -eq 0 ]
	[ -e run/b/version_0/checkpoints/epoch=1.ckpt ]
	run --separate-stderr "$NEAP" checkpoints run --recursive --restore 'epoch=1*'
	[ "$status" -eq 66 ]
	run --separate-stderr "$NEAP" checkpoints run/a run --recursive --restore '*'
	[ "$status" -eq 0 ]
	[ "$(find run/a run/b -type f | wc -l)" -eq 6 ]
}

@test "a torn checkpoint is not the newest, and no reason for a whole one to go" {
	put run/step_1.pt 30
	put run/step_2.pt 20
	printf 'PK\003\004 and then the disk was full' >run/step_3.pt
	touch -d '10 days ago' run/step_3.pt
	run --separate-stderr "$NEAP" checkpoints run --keep-best 1
	[ "$status" -eq 64 ]
	run --separate-stderr "$NEAP" checkpoints run --keep-best 0
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"DELETE       31 B  step_3.pt  torn: its zip archive has no end"* ]]
	[[ "$output" == *"KEEP     1.00 KiB  step_2.pt  newest"* ]]
	[[ "$output" == *"DELETE   1.00 KiB  step_1.pt  older than 7 days: 30 days"* ]]
	[ "$(cd run && echo *)" = step_2.pt ]
}

@test "what becomes free, and when; on a full disk, what frees it now" {
	unshare -m true 2>/dev/null || skip "mounting takes root"
	for i in 1 2 3; do put run/step_$i.pt $((30 - i)) 400000; done
	ln run/step_1.pt linked
	run "$NEAP" checkpoints run --keep-best 0 --dry-run
	[[ "${lines[-2]}" == "Would move 2 checkpoints, 781 KiB, to run/.neap-trash: nothing becomes free before 20"*", then 391 KiB with the next cleanup" ]]
	run "$NEAP" checkpoints run --keep-best 0 --dry-run --trash-ttl 0
	[ "${lines[-2]}" = "Would delete 2 checkpoints, 781 KiB, for good: 391 KiB become free at once" ]
	run "$NEAP" checkpoints run --dry-run --older-than-days 99
	[ "${lines[-2]}" = "Nothing would go" ]
	# a disk with no room for one more, nor for the trash
	truncate -s 4M disk
	mkfs.ext4 -q -m 0 -b 1024 disk || skip "no mkfs.ext4"
	mkdir mounted
	run unshare -m bash -ec 'mount -o loop disk mounted || exit 99
		mkdir mounted/run
		for i in 1 2 3 4; do head -c 400000 /dev/zero >mounted/run/step_$i.pt; done
		echo "{\"loss\": 1}" >mounted/run/step_1.json
		touch -d "30 days ago" mounted/run/*
		touch mounted/run/step_4.pt
		"$NEAP" checkpoints mounted/run --keep-best 0
		"$NEAP" checkpoints mounted/run --restore "*" >restored
		for i in 1 2 3; do dd if=/dev/zero of=mounted/fill$i bs=1k status=none 2>/dev/null || true; sync; done
		! mkdir mounted/more 2>/dev/null || exit 98
		"$NEAP" checkpoints mounted/run --keep-best 0 --dry-run
		! "$NEAP" checkpoints mounted/run --keep-best 0 >failed 2>&1
		"$NEAP" checkpoints mounted/run --keep-best 0 --trash-ttl 0 --yes
		ls -A mounted/run'
	echo "$output"
	[ "$status" -ne 99 ] && [ "$status" -ne 98 ] || skip "no loop device, or no full disk"
	[ "$status" -eq 0 ]
	[[ "$output" == *"The disk has "*" left: with --trash-ttl 0 --yes the same command frees 1.14 MiB now"* ]]
	[ "$(grep -c "No space left on device" failed)" -eq 4 ]
	[[ "$output" == *"Deleted 3 checkpoints for good: 1.14 MiB became free"* ]]
	[ "${lines[-1]}" = step_4.pt ]
	[[ "${lines[-2]}" == "Checkpoint Summary: 1 files"* ]]
}

@test "--empty-trash alone empties it, and applies no rule" {
	ten
	run "$NEAP" checkpoints run --keep-best 1
	[ -d run/.neap-trash ]
	left="$(ls run)"
	run "$NEAP" checkpoints run --empty-trash --yes
	echo "$output"
	[ "$status" -eq 0 ]
	[ ! -e run/.neap-trash ]
	[ "$(ls run)" = "$left" ]
}

@test "a folder that may not be written: 77, a message, nothing lost" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to be somebody else"
	command -v setpriv >/dev/null || skip "needs setpriv"
	ten
	chmod 755 "$dir" run
	cp "$NEAP" "$dir/neap"
	run setpriv --reuid=65534 --clear-groups "$dir/neap" checkpoints "$dir/run"
	echo "$output"
	[ "$status" -eq 77 ]
	[[ "$output" == *"making the folder .neap-trash"* ]]
	[[ "$output" == *"not moved: epoch=1-val_loss=0.26.ckpt"* ]]
	[ "$(ls -A run | wc -l)" -eq 10 ]
}

@test "a mount inside is left alone" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to mount"
	mkdir run/checkpoint-1 run/checkpoint-2
	put run/checkpoint-2/model.bin 20
	unshare -m true 2>/dev/null || skip "needs a mount namespace"
	unshare -m mount -t tmpfs none run/checkpoint-1 2>/dev/null || skip "may not mount"
	run unshare -m sh -ec 'mount -t tmpfs none run/checkpoint-1; head -c 9 /dev/zero >run/checkpoint-1/model.bin
		touch -d "30 days ago" run/checkpoint-1/model.bin; "$NEAP" checkpoints run --keep-best 0'
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"KEEP"*"9 B  checkpoint-1  on another file system"* ]]
}

@test "what is mounted in a checkpoint stays, also from the same file system, and in the trash" {
	unshare -m true 2>/dev/null || skip "mounting takes root"
	mkdir data run/checkpoint-{1,2,3}{,/data}
	echo precious >data/set
	touch run/checkpoint-{1,2,3}/w
	run unshare -m sh -ec '
		mount --bind data run/checkpoint-1/data
		"$NEAP" checkpoints run --keep-best 0 --keep-last 1 --older-than-days 0 --grace 0
		mount --bind data run/.neap-trash/*/checkpoint-2/data
		! "$NEAP" checkpoints run --empty-trash --yes'
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"KEEP"*"checkpoint-1  on another file system"* ]]
	[[ "$output" == *"Moved 1 checkpoint,"* ]]
	[ -e run/checkpoint-1 ]
	[ "$(cat data/set)" = precious ]
}

@test "wrong usage: 64" {
	for options in '--keep-best x' '--keep-last -1' '--older-than-days soon' '--older-than-days -1' '--mode low' \
		'--max-total-size 0' '--max-total-size big' '--max 0' '--max few' '--grace soon' '--trash-ttl 9999d' '--restore x --dry-run'; do
		run "$NEAP" checkpoints run $options
		echo "$options: $output"
		[ "$status" -eq 64 ]
	done
	run "$NEAP" checkpoints
	[ "$status" -eq 64 ]
}
