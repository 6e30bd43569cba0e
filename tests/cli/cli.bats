#!/usr/bin/env bats
# The command from outside: usage, help, info, clear, reset, sim.

sim=mem=256MiB,context=8MiB,reserved=2MiB
load ../support/command.bash

two_devices() { export NEAP_SIM="mem=256MiB,gpus=2,context=8MiB,reserved=2MiB,world=$world"; }

@test "wrong usage: one line, exit 64" {
	local line
	for line in inof frobnicate 'info --jsn' 'info --frobnicate=3' 'info -x' 'info --json=yes' 'info --every' 'info now' \
		'info -- --json' 'info --json --csv' 'info --every 0' 'info --color red' 'info --sort size' 'info -i' \
		'info --pid x' kill 'kill x1' 'kill 1 --mine' 'clear --pid x1' 'clear --pid=0' 'clear --pid 1 --all' sim \
		'sim paht' 'help ifno' 'run --log-level loud -- true'; do
		show "neap $line"
		[ "$status" -eq 64 ]
		[ -z "$output" ]
	done
	show 'neap 2>&1 | diff - <(neap help)'
	expect usage
}

@test "help and version" {
	show 'neap --version'
	show 'neap help'
	show 'neap help reset'
	show 'neap reset --help | diff - <(neap help reset)'
	show 'neap help sim'
	show 'neap help agent'
	show 'neap help >/dev/full'
	expect help 'Built with (gcc|clang) [\d.]+, [a-z]+, for linux [a-z0-9_]+$/Built with COMPILER' '^Libraries: .*sqlite3 [\d.]+.*/Libraries: VERSIONS'
	for command in $(neap help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
		[ -z "$(neap help "$command" | grep -E '.{101}|@include')" ]
	done
}

@test "no driver: one line that names NEAP_DEVICE=sim, exit 69" {
	ldconfig -p | grep -q libnvidia-ml.so.1 && skip "this machine has NVIDIA's driver"
	show 'NEAP_DEVICE=cuda neap info'
	show 'NEAP_DEVICE=gpu neap info'
	expect no_driver
}

@test "sim: its folder, its profiles, its worlds" {
	show 'neap sim path; cd $(neap sim path) && ls libcuda.so.1 libnvidia-ml.so.1'
	show 'neap sim profiles'
	show 'neap sim inspect'
	start 4 8
	show 'neap sim inspect'
	show 'NEAP_SIM= neap sim inspect $world | diff - <(neap sim inspect)'
	show 'NEAP_SIM=mem=lots neap sim inspect'
	expect sim
}

@test "info: an idle device, to the byte" {
	show 'neap info'
	show 'neap info --color always | cat -v'
	expect info_idle
}

@test "info: attached and not attached processes, every byte accounted for" {
	start 4 8
	start --plain 16 2
	show 'neap info --json --sort pid | jq -S .'
	[ "$(jq '.devices[].ledger | [.[]] | add == 2 * 268435456' <<<"$output")" = true ]
	show 'neap info --sort pid'
	show 'neap info --csv --sort pid'
	show 'neap info --summary --sort pid'
	show 'neap info --json --every 20ms | head -n 2 | jq .schema'
	expect info ',\d{6,},"target/,NS,"target' '^\| +(.* \(PID PID\d\) .*?) +\|$/| \1 |'
}

@test "info: the second of two devices: which are shown, and in which order" {
	two_devices
	CUDA_VISIBLE_DEVICES=1 start 4 8
	first=$target
	CUDA_VISIBLE_DEVICES=1 start --plain 16 2
	second=$target
	show 'neap info --sort memory'
	[ "$(neap info --json --sort pid | jq '[.processes[].pid] | . == sort')" = true ]
	show 'neap info --json --pid $second | jq -c "[.devices[].index, .processes[].device]"'
	show 'neap info -i 1 --sort memory'
	show 'neap info --device $(neap info --json | jq -r .devices[1].uuid) --oneline --sort memory'
	show 'neap info -i 2'
	show 'neap info --pid 1'
	show 'neap info --oneline --sort memory'
	expect info_two_devices
}

@test "info: on a terminal --every shows each sample in the place of the one before" {
	need_terminal
	start 4 8
	TERM=xterm run timeout 60 python3 - "$NEAP" info --every 20ms <<'END'
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    import fcntl, struct, termios
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
while seen.count(b"\x1b[H\x1b[J") < 3:
    seen += os.read(fd, 4096)
os.write(fd, b"\x03")
_, status = os.waitpid(pid, 0)
frames = seen.split(b"\x1b[H\x1b[J")
open("frame", "w").write(frames[1].decode().replace("\r", ""))
print(len(frames[0]), os.WTERMSIG(status))
END
	[ "$output" = "0 2" ]
	show 'cat frame'
	expect info_every 'at \d\d:\d\d:\d\d/at hh:mm:ss'
	# In other places there are no escape sequences.
	! neap info --every 20ms | head -n 20 | grep $'\033'
}

@test "kill: a PID is enough" {
	start 4 8
	first=$target
	# Enough to tell two runs apart: what the column cuts is complete in a line of its own.
	start --plain 0000000000000000000000000000000000000000001 8
	show 'neap kill $first --dry-run'
	show 'neap kill --dry-run $target'
	show 'neap kill --yes $target'
	expect kill_pid
}

@test "info: a process that was killed leaves no trace" {
	start 4 8
	[ -e "runtime/neap/$target.page" ]
	kill -9 "$target"
	wait "$target" || true
	show 'neap info --json | jq .processes'
	show 'ls runtime/neap | sed s/^$target/PID/'
	expect info_killed
}

# Answers for the target, and lets another process take 20 MiB before each answer to a cleanup arrives.
relay() {
	mv "runtime/neap/$target.sock" runtime/neap/real
	python3 - runtime/neap "$target" "$TARGET" <<-'END' 3>&- &
		import socket, struct, subprocess, sys
		folder, pid, taker = sys.argv[1:]
		server = socket.socket(socket.AF_UNIX)
		server.bind(f"{folder}/{pid}.sock")
		server.listen()
		open("relays", "w").close()
		def frame(peer):
		    data = b""
		    while len(data) < 20 or len(data) < 20 + struct.unpack_from("<I", data, 16)[0]:
		        piece = peer.recv(65536)
		        if not piece:
		            return b""
		        data += piece
		    return data
		peer, _ = server.accept()
		own = socket.socket(socket.AF_UNIX)
		own.connect(f"{folder}/real")
		other = None
		while asked := frame(peer):
		    own.sendall(asked)
		    answer = frame(own)
		    if struct.unpack_from("<H", asked, 6)[0] == 3 and not other:  # clear
		        other = subprocess.Popen([taker, "20", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
		        other.stdout.readline()
		    peer.sendall(answer)
		if other:
		    other.kill()
	END
	relay=$!
	until [ -e relays ]; do :; done
}

@test "clear: two different figures of free memory are explained" {
	start 4 8
	relay
	show 'neap clear --pid $target --log-level info' # 30 MiB: with the other's context
	wait "$relay"
	expect clear_taken_since
}

@test "clear: before, after, given back, cost; and the log lines" {
	start 4 8
	show 'neap clear --stats-only'
	show 'neap clear --log-level info'
	show 'neap clear --pid $target --json --force --log-level info | jq -S .'
	show 'neap clear'
	expect clear
}

@test "clear, reset: the second of two devices" {
	two_devices
	CUDA_VISIBLE_DEVICES=1 start 4 8
	show 'neap clear --stats-only'
	show 'neap clear'
	show 'neap reset --json | jq -c ".processes[].devices[] | [.index, .max_reserved, .reserved]"'
	expect clear_two_devices
}

@test "fraction: the second of two devices" {
	two_devices
	CUDA_VISIBLE_DEVICES=1 start 4 8
	show 'neap fraction 0.02'
	show 'neap fraction 1 --json | jq -c ".processes[].devices[] | [.ordinal, .index, .limit_before, .limit]"'
	expect fraction_two_devices
}

@test "explain, analyze: a recording of a run on the second of two devices" {
	two_devices
	start 16 8 # on the first: its figures differ
	CUDA_VISIBLE_DEVICES=1 neap run --quiet --folder run -- hold --looks 8 300M 3>&- || [ $? -eq 9 ]
	mv run/record.* recording
	show 'neap explain --record recording'
	show 'neap explain run | sed -n "/^Out of/,/asked for/p"'
	show 'neap analyze recording'
	expect explain_two_devices
}

@test "log lines only when asked for: by default neap prints what it found, once" {
	start 4 8
	show 'neap reset'
	show 'neap clear'
	# A run: its report and nothing else. The command gets the level from the environment.
	show 'neap run --folder quiet -- sh -c "echo level \$NEAP_LOG_LEVEL"'
	show 'neap --log-level INFO run --folder info -- sh -c "echo level \$NEAP_LOG_LEVEL"'
	show 'NEAP_LOG_LEVEL=info neap clear'
	# A warning is shown to everybody except those who want errors only.
	show 'neap run --max-host 1KiB --folder warn -- sleep 60'
	show 'neap run --log-level error --max-host 1KiB --folder error -- sleep 60'
	expect log_lines 'host memory [\d.]+ [KM]iB/host memory SIZE'
}

@test "reset: the peaks restart" {
	start 4 8
	show 'neap reset'
	show 'neap clear --stats-only --json | jq -c ".processes[].devices[] | [.max_allocated, .max_reserved]"'
	expect reset
}

@test "clear: chooses the process" {
	show 'neap clear'
	start 4 8
	start 2 6
	show 'neap clear'
	show 'neap clear --all --json | jq -c "[.processes[].devices[].freed] | sort"'
	expect clear_which
}

@test "clear: processes that are not attached, gone, or another user's" {
	start --plain 4 8
	plain=$target
	true &
	gone=$!
	wait "$gone"
	targets+=("$gone")
	start 4 8
	show 'neap clear --pid $plain'
	show 'neap clear --pid $gone'
	show 'neap clear --pid $gone --pid $target --json | jq -S .' # the others are cleared
	[ "$status" -eq 66 ]
	expect clear_others
	if [ "$(id -u)" -eq 0 ]; then
		setpriv --reuid=65534 --clear-groups sleep 600 3>&- &
		other=$!
		targets+=("$other")
		until [ "$(tr '\0' ' ' <"/proc/$other/cmdline")" = "sleep 600 " ]; do :; done
		show 'neap clear --pid $other'
		expect clear_other_users
	fi
}

@test "a runtime folder that is not safely ours is refused" {
	chmod 755 runtime/neap 2>/dev/null || mkdir -m 755 runtime/neap
	show 'neap info'
	rmdir runtime/neap
	ln -s /tmp runtime/neap
	show 'neap clear'
	expect runtime_folder
}
