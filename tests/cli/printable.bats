#!/usr/bin/env bats
# Text from outside reaches a terminal filtered, whichever command prints it (base/printable.h says what is replaced).

sim=mem=4GiB
load ../support/command.bash

prepare() {
	# ESC [ 31 m, BEL, DEL, U+009B as UTF-8, a right-to-left override, a stray byte
	bad=$'x\e[31m\a\x7f\xc2\x9b32m\xe2\x80\xae\x9by'
}

# fine: whether neither $output nor $stderr holds anything that a terminal obeys
fine() {
	local bytes='[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!$)|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xd8\x9c'
	! printf '%s\n%s' "$output" "${stderr-}" | LC_ALL=C grep -qP "$bytes" || return 1
	printf '%s\n%s' "$output" "${stderr-}" | iconv -f UTF-8 -t UTF-8 >/dev/null
}

@test "error messages about arguments" {
	for words in "$bad" "info --$bad" "help $bad" "checkpoints $bad" "analyze $bad" "replay $bad" "explain $bad" \
		"compare $bad $bad" "series $bad" "history $bad" "kill --pid $bad" "clear --pid $bad" "reset $bad" \
		"fraction $bad" "run --host-warn $bad true" "checkpoints . --mode $bad" "checkpoints . --max-total-size $bad"; do
		run --separate-stderr neap $words
		printf '%q: %q %q\n' "$words" "$output" "$stderr"
		[ "$status" -ne 0 ]
		fine
	done
	NEAP_SIM=$bad run --separate-stderr neap sim
	fine
}

@test "names of checkpoints" {
	mkdir "$bad"
	echo 4 >"$bad/step=4-$bad.ckpt"
	echo 5 >"$bad/step=5.ckpt"
	touch -d '30 days ago' "$bad/step=4-$bad.ckpt" "$bad/step=5.ckpt"
	show 'neap checkpoints "$bad" --keep-best 0'
	fine
	show 'neap checkpoints "$bad" --restore "$bad"'
	fine
	expect checkpoints
}

# JSON keeps the original text, escaped (except bytes that are not UTF-8)
@test "names of checkpoints as JSON" {
	mkdir run
	name=$'step=4-\x7f\xc2\x9b32m\xe2\x80\xae.ckpt'
	touch "run/$name"
	run --separate-stderr neap checkpoints run --json
	[ "$status" -eq 0 ]
	fine
	[ "$(jq -r '.folders[0].plan.checkpoints[0].name' <<<"$output")" = "$name" ]
}

@test "a run, its history, a series" {
	name=$'\xc2\x9b32m\xe2\x80\xae'
	show 'neap run --name "$name" --folder "$name" -- sh -c "exit 3 # $name"'
	fine
	expect run
	for words in "" "--csv" "--json" "?32m?"; do
		run --separate-stderr neap history $words
		printf '%q\n' "$output"
		fine
	done
	run --separate-stderr neap history "$(neap history --json | jq -r '.runs[0].run_id')"
	[ "$status" -eq 0 ]
	fine
	printf 'name: "s\\u009b31m"\nexperiments:\n- {name: "e\\u202e", command: "echo \\u009b31m"}\n' >s.yaml
	for words in "--dry-run" "--quiet" ""; do
		run --separate-stderr neap series s.yaml $words
		printf '%q %q\n' "$output" "$stderr"
		fine
	done
}

@test "names of processes" {
	ln -s "$(readlink bin/hold)" "$bad"
	neap run --quiet -- "./$bad" --for 20000 64M 3>&- &
	supervisor=$!
	until neap info --json | grep -q '\[31m'; do kill -0 $supervisor; done
	for words in info "info --csv" "info --summary" "info --json" sim "kill --dry-run --all" "clear --all" "clear"; do
		run --separate-stderr neap $words
		printf '%q %q\n' "$output" "$stderr"
		fine
	done
	kill $supervisor
	wait $supervisor || true
}
