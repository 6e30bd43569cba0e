#!/usr/bin/env bats
# neap top on a real terminal (tmux) and as text. Screens are compared with tests/cli/top/*.txt; what differs from run to
# run (the time, PIDs, run times, the host's memory) is masked by letters in the same columns.
# NEAP_TOP_WRITE=20 writes the files again: look at each of them then.

sim=mem=256MiB,context=8MiB,reserved=2MiB
load ../support/command.bash
screens="$BATS_TEST_DIRNAME/top"

# json EXPRESSION: evaluates a Python expression over the JSON `j` in $output
json() { python3 -c 'import json, sys; j = json.loads(sys.argv[1]); print(eval(sys.argv[2]))' "$output" "$1"; }

# begin WIDTH HEIGHT ARGS...: neap top on its own terminal, in a shell that stays; its PID in $pid
begin() {
	command -v tmux >/dev/null || skip "needs tmux"
	begun=$((${begun:-0} + 1)) self=$BASHPID
	socket="$dir/tmux-$begun"
	export LC_ALL=C.UTF-8 SHELL=/bin/sh # tmux starts our shell in it
	tmux -S "$socket" -u -f /dev/null new-session -d -x "$1" -y "$2" sh 3>&- 4>&-
	shift 2
	local top="sh -c 'echo \$\$ >$dir/pid; exec \"\$0\" \"\$@\"' '$NEAP' top $*"
	tmux -S "$socket" send-keys "clear; stty -a >$dir/before; $top ; echo left with \$?; stty -a >$dir/after" Enter
	shows '^neap top  '
	pid=$(<"$dir/pid")
	tops+=("$pid")
}

end() {
	[ -z "${socket:-}" ] || tmux -S "$socket" kill-server 2>/dev/null || true
}

eval "end_targets() $(declare -f teardown | tail -n +2)"
teardown() {
	end # also when the test failed before it
	local pid
	for pid in ${tops[@]+"${tops[@]}"}; do # a sanitizer may hang at the exit of a process that has lost its terminal
		[ ! "/proc/$pid/exe" -ef "$NEAP" ] || kill -KILL "$pid" || true
	done
	end_targets
}

keys() { tmux -S "$socket" send-keys "$@"; }

# PIDs become A, B, ... in the order of the targets; PIDs that the test did not start become Z.
mask() {
	local pid n=0 words=()
	for pid in "${targets[@]}" "${self:-$BASHPID}"; do
		local letter="\\x$((41 + n))"
		[ "$n" -lt ${#targets[@]} ] || letter=Z
		words+=(-e "s/^ *$pid /      $letter /; s/\b$pid\b/$letter/g")
		n=$((n + 1))
	done
	sed -E "${words[@]}" -e 's/[0-9]{2}:[0-9]{2}:[0-9]{2}/HH:MM:SS/; s/ [0-9]{2}:[0-9]{2} / MM:SS /' \
		-e 's/ +(host|cgroup): .* left.*/   host: H left/; s/ +(host|cgroup): [0-9.]+ [A-Za-z]+$//' -e 's/the last [0-9.]+ [num]?s:/the last T:/;' \
		-e "s/ $(printf '%-8.8s' "$(id -un)")/ me      /; s/^(      Z .*MM:SS {29}).*/\1LAUNCHER/; s/^ Z: .*/ Z: LAUNCHER/" \
		-e 's/ +(-|[0-9]+) +(-|[0-9]+) +[0-9.]+[KMG] (target )/   SM   CPU   HOST \3/' \
		-e 's/ in [0-9.]+ [num]?s/ in T/; s/looking took [0-9.]+ [num]?s/looking took T/; s/ +$//'
}

# shows PATTERN: waits until a line of the terminal matches
shows() {
	local tries
	for tries in $(seq 200); do
		screen="$(tmux -S "$socket" capture-pane -p)"
		grep -Eq -- "$1" <<<"$screen" && return 0
		sleep 0.05
	done
	echo "no '$1' on:"
	echo "$screen"
	return 1
}

# screen NAME: waits until the terminal shows what NAME.txt has
screen() {
	local tries
	for tries in $(seq "${NEAP_TOP_WRITE:-100}"); do
		tmux -S "$socket" capture-pane -p | mask >"$dir/screen"
		cmp -s "$dir/screen" "$screens/$1.txt" && return 0
		sleep 0.05
	done
	[ -z "${NEAP_TOP_WRITE:-}" ] || cp "$dir/screen" "$screens/$1.txt"
	[ -n "${NEAP_TOP_WRITE:-}" ] || diff "$screens/$1.txt" "$dir/screen"
}

@test "80 x 24, in UTF-8 and ASCII; keys move, sort and filter" {
	start 64 32
	start 16 16
	begin 80 24 --every 1h
	screen utf8
	keys Down
	screen selected
	keys s r
	screen sorted
	keys '&' t Space 64
	shows 'Only processes with: t 64_'
	keys Enter
	screen filtered
	keys '?'
	screen keys
	keys x q
	shows 'left with 0'
	end
	begin 80 24 --every 1h --ascii --color never
	screen ascii
	run tmux -S "$socket" capture-pane -p -e
	[[ "$output" != *$'\033[32m'* ]]
	end
	begin 80 24 --every 1h
	run tmux -S "$socket" capture-pane -p -e
	[[ "$output" == *$'\033[32m'* ]] # allocated is green
	end
}

@test "120 x 40, narrow, and many devices" {
	export NEAP_SIM="$NEAP_SIM,gpus=8"
	start 64 32
	begin 120 40 --every 1h
	screen large
	keys Tab Tab
	shows '^>2 '
	tmux -S "$socket" resize-window -x 44 -y 14
	screen narrow
	end
}

@test "no process, and no driver" {
	begin 80 24 --every 1h
	screen empty
	end
	NEAP_DEVICE=cuda run "$NEAP" top --once
	[ "$status" -eq 69 ]
	[[ "$output" == *"neap top: "*"NEAP_DEVICE=sim"* ]]
}

@test "a process that ends while it is selected, and while its end is being confirmed" {
	start 64 32
	start --plain 16 16
	begin 80 24 --every 100ms
	shows "${targets[0]} .*target 64 32"
	keys Down
	shows " ${targets[0]}: target 64 32"
	keys k
	shows 'End these processes\? \[y/N\]'
	kill -9 "${targets[0]}"
	shows "process ${targets[0]} \(target 64 32\) is gone: nothing was done"
	shows ', 1 process( |$)'
	keys Down
	shows "${targets[1]} \(not attached\): target --plain"
	kill -9 "${targets[1]}"
	shows "process ${targets[1]} \(target --plain 16 16\) is gone"
	shows "no process uses a GPU"
	end
}

@test "clear, fraction and kill ask, act, and show the result" {
	start 64 32
	begin 80 24 --every 1h
	keys c
	shows 'Empty the cache of process .* \(target 64 32\)\? \[y/N\]'
	keys n
	shows 'nothing was done'
	run -0 "$NEAP" info --json
	[ "$(json 'j["processes"][0]["cached"]')" = $((32 << 20)) ]
	keys c y
	screen cleared
	run -0 "$NEAP" info --json
	[ "$(json 'j["processes"][0]["cached"]')" = 0 ]
	keys x f 0 . 5 Enter
	shows 'Limit process .* to 0.5 of each GPU .*\? \[y/N\]'
	keys y
	shows 'limit .* none before, .* 127 MiB after'
	keys x k
	shows 'End these processes'
	screen preview
	keys y
	shows 'came back'
	wait "${targets[0]}" 2>/dev/null || true
	[ ! -e "/proc/${targets[0]}" ]
	end
}

@test "a verb's refusal is shown, and nothing is done" {
	start --plain 64 32
	begin 80 24 --every 1h
	keys c
	shows "process ${targets[0]} is not attached: neap can only end it"
	end
}

@test "Ctrl-C, SIGTERM and a closed terminal leave nothing behind" {
	begin 80 24
	keys C-c
	shows 'left with 0'
	cmp "$dir/before" "$dir/after"
	[ "$(tmux -S "$socket" display -p '#{cursor_flag} #{alternate_on}')" = "1 0" ]
	end
	begin 80 24
	kill -TERM "$pid"
	shows 'left with 143'
	cmp "$dir/before" "$dir/after"
	[ "$(tmux -S "$socket" display -p '#{cursor_flag} #{alternate_on}')" = "1 0" ]
	end
	# The leak sanitizer may hang at the exit of a process that has lost its terminal. The two cases above looked
	# for leaks.
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
	begin 80 24
	end
	for _ in $(seq 200); do
		[ -e "/proc/$pid" ] || break
		sleep 0.05
	done
	[ ! -e "/proc/$pid" ]
}

@test "--once: a frame as text, without a terminal" {
	start 64 32
	run -0 "$NEAP" top --once --ascii
	mask <<<"$output" >"$dir/once"
	[ -z "${NEAP_TOP_WRITE:-}" ] || cp "$dir/once" "$screens/once.txt"
	diff "$screens/once.txt" "$dir/once"
	run -0 "$NEAP" watch --once --width 60 --ascii
	[ "$(awk '{ if (length($0) > 60) print }' <<<"$output")" = "" ]
	run -0 "$NEAP" top --once --color always
	[[ "$output" == *$'\033[0;32m'* ]]
	NO_COLOR=1 run -0 "$NEAP" top --once
	[[ "$output" != *$'\033'* ]]
}

@test "a GPU that uses the host's memory" {
	start 64 32
	NEAP_SIM_NVML=unified run -0 "$NEAP" top --once --ascii --width 120
	[[ "$output" == *" (unified memory, shared with the host)"* ]]
	[[ "$output" == *"? unexplained 0 "* ]]
	NEAP_SIM_NVML=unified run -0 "$NEAP" info --json
	[ "$(json 'j["devices"][0]["unified_memory"]')" = True ]
	[ "$(json 'j["devices"][0]["ledger"]["total"]')" = "$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))" ]
	[ "$(json 'sum(v for k, v in j["devices"][0]["ledger"].items() if k != "total") == j["devices"][0]["ledger"]["total"]')" = True ]
	[ "$(json 'j["devices"][0]["ledger"]["allocated"]')" = $((64 << 20)) ]
}

@test "a terminal of any size: at most 1000 columns are drawn" {
	start 64 32
	python3 "$BATS_TEST_DIRNAME/wide.py" "$NEAP"
}

@test "wrong arguments" {
	for words in "" "--once --every 1" "--once --width 10" "--width 80" "--once --sort colour" "--every 1ms" "--every x"; do
		run "$NEAP" top $words </dev/null
		echo "$words: $output"
		[ "$status" -eq 64 ]
	done
	run "$NEAP" watc
	[[ "$output" == *"did you mean 'watch'?"* ]]
}
