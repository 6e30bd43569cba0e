#!/usr/bin/env bats
# The command from outside: usage, help, info, clear, reset, sim. Each test has its own world and its own folders.

bats_require_minimum_version 1.5.0

world=cli
load targets.bash

usage() { # usage EXPECTED ARGS...
	local expected=$1
	shift
	run --separate-stderr "$NEAP" "$@"
	echo "$stderr"
	[ "$status" -eq 64 ]
	[ "$stderr" = "$expected" ]
	[ -z "$output" ]
}

@test "wrong usage: one line, exit 64" {
	usage "neap: unknown command 'inof'; did you mean 'info'? (see 'neap help')" inof
	usage "neap: unknown command 'frobnicate' (see 'neap help')" frobnicate
	usage "neap info: unknown option '--jsn'; did you mean '--json'? (see 'neap help info')" info --jsn
	usage "neap info: unknown option '--frobnicate' (see 'neap help info')" info --frobnicate=3
	usage "neap info: unknown option '-x' (see 'neap help info')" info -x
	usage "neap info: option '--json' takes no value (see 'neap help info')" info --json=yes
	usage "neap info: option '--every' needs a value: S (see 'neap help info')" info --every
	usage "neap info: unexpected argument 'now' (see 'neap help info')" info now
	usage "neap info: unexpected argument '--json' (see 'neap help info')" info -- --json
	usage "neap info: only one of --json, --csv, --summary and --oneline (see 'neap help info')" info --json --csv
	usage "neap info: --every: at least 10ms (see 'neap help info')" info --every 0
	usage "neap info: --color is auto, always or never, not 'red' (see 'neap help info')" info --color red
	usage "neap info: --sort is memory, pid, time, user or name, not 'size' (see 'neap help info')" info --sort size
	usage "neap info: option '--device' needs a value: DEVICE (see 'neap help info')" info -i
	usage "neap info: --pid: 'x' is no process ID (see 'neap help info')" info --pid x
	usage "neap kill: say which: PID, --device or --mine (see 'neap help kill')" kill
	usage "neap kill: 'x1' is no process ID (see 'neap help kill')" kill x1
	usage "neap kill: say which: PID, --device or --mine (see 'neap help kill')" kill 1 --mine
	usage "neap clear: --pid: 'x1' is no process ID (see 'neap help clear')" clear --pid x1
	usage "neap clear: --pid: '0' is no process ID (see 'neap help clear')" clear --pid=0
	usage "neap clear: --pid or --all, not both (see 'neap help clear')" clear --pid 1 --all
	usage "neap sim: missing argument; usage: neap sim path|env|profiles|inspect [WORLD] (see 'neap help sim')" sim
	usage "neap sim: it is path, env, profiles or inspect, not 'paht' (see 'neap help sim')" sim paht
	usage "neap help: no command 'ifno'; did you mean 'info'? (see 'neap help help')" help ifno
	run --separate-stderr "$NEAP"
	[ "$status" -eq 64 ]
	[ -z "$output" ]
	[[ "$stderr" == *"Usage: neap COMMAND [OPTIONS]"* ]]
}

@test "help and version" {
	run "$NEAP" --version
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" =~ ^neap\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
	[[ "${lines[1]}" =~ ^Built\ with\ (gcc|clang)\ [0-9.]+,\ [a-z]+,\ for\ linux\ [a-z0-9_]+$ ]]
	[[ "${lines[2]}" == "Libraries: "*"sqlite3 "[0-9]* ]]
	[ "${lines[3]}" = "Formats: recording 1, statistics page 1, agent's protocol 1" ]
	run "$NEAP" help reset
	[ "$status" -eq 0 ]
	[ "$output" = "neap reset: clear, and reset the peak statistics

Usage: neap reset [--pid P|--all] [--json]

Clears as 'neap clear' does, then the peaks (max_allocated, max_reserved, ...) start from the
current values.

A process answers within 30 s; after that the exit code is 75, and the process drops a request that
it has not begun. A stopped process cannot answer: 75 at once, nothing changed.

Exit codes: 0 done; 64 usage; 66 no such process, or it ended before it answered; 69 not attached;
75 no answer in time, stopped, or capturing a graph just now; 76 a malformed answer; 77 another
user's. With several processes: the last failure's.

Options:
  --pid P                   this process; may be given several times
  --all                     every attached process
  --json                    the result as JSON, without log lines
  --color WHEN              auto (on a terminal, unless NO_COLOR is set), always or never
  --log-level LEVEL         log lines on stderr: debug, info, warning (default) or error; as
                            NEAP_LOG_LEVEL
  --help                    this help" ]
	by_name=$output
	run "$NEAP" reset --help
	[ "$status" -eq 0 ]
	[ "$output" = "$by_name" ]
	run "$NEAP" help
	[ "$status" -eq 0 ]
	for command in run series info clear reset fraction enable kill explain estimate checkpoints history analyze \
		compare replay sim help; do
		[[ "$output" == *"
  $command "* ]]
		run "$NEAP" help "$command"
		[ "$status" -eq 0 ]
		[ -z "$(awk 'length > 100' <<<"$output")" ]
		run "$NEAP" help
	done
}

@test "help: paragraphs are filled, examples and lines of their own are kept" {
	run "$NEAP" help sim
	[ "$status" -eq 0 ]
	[[ "$output" == *"
env: prints shell settings with which PyTorch programs run on the simulator without 'neap run': eval
\"\$(neap sim env)\".
profiles: lists the GPUs it can simulate.
"*"
  mem=SIZE            each device's whole memory
  reserved=SIZE       of it, the part that the driver keeps
"* ]]
	[[ "$output" != *\\* && "$output" != *@include* ]]
}

@test "help agent: the requests, from the protocol's table" {
	run "$NEAP" help agent
	[ "$status" -eq 0 ]
	[[ "$output" == *"   1  hello "*"   2  info "*"   3  clear "*"   4  reset_peak "* ]]
}

@test "output that cannot be written is a failure" {
	run bash -c '"$NEAP" help >/dev/full'
	[ "$status" -eq 74 ]
	[ "$output" = "neap: cannot write the output: No space left on device" ]
}

@test "no driver: one line that names NEAP_DEVICE=sim, exit 69" {
	ldconfig -p | grep -q libnvidia-ml.so.1 && skip "this machine has NVIDIA's driver"
	NEAP_DEVICE=cuda run --separate-stderr "$NEAP" info
	[ "$status" -eq 69 ]
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ "$stderr" == "neap info: "*"NEAP_DEVICE=sim"* ]]
	NEAP_DEVICE=gpu run --separate-stderr "$NEAP" info
	[ "$status" -eq 64 ]
}

@test "sim: its folder, its profiles, its worlds" {
	run "$NEAP" sim path
	[ "$status" -eq 0 ]
	[ "$output" = "$NEAP_SIM_PATH" ]
	[ -e "$output/libcuda.so.1" ]
	[ -e "$output/libnvidia-ml.so.1" ]
	run "$NEAP" sim profiles
	[ "$status" -eq 0 ]
	[[ "$output" == *h100-80gb* && "$output" == *rtx4090-24gb* ]]
	run "$NEAP" sim inspect
	[ "$status" -eq 0 ]
	[[ "$output" == "World cli-$$-$BATS_TEST_NUMBER: 1 device, "*"(no process is in it)"* ]]
	start 4 8
	run "$NEAP" sim inspect
	[ "$status" -eq 0 ]
	[[ "$output" == *"used 20.0 MiB (draining 0 B), free 234 MiB"* ]]
	[[ "$output" == *" $target "*"memory 12.0 MiB, context 8.00 MiB"* ]]
	by_environment=$output
	NEAP_SIM='' run "$NEAP" sim inspect "cli-$$-$BATS_TEST_NUMBER"
	[ "$output" = "$by_environment" ]
	NEAP_SIM='mem=lots' run "$NEAP" sim inspect
	[ "$status" -eq 64 ]
	[[ "$output" == "neap sim: NEAP_SIM=mem=lots: "*column* ]]
}

@test "info: an idle device, to the byte" {
	run --separate-stderr "$NEAP" info
	[ "$status" -eq 0 ]
	[ "$(sed 1d <<<"$output")" = "  driver reserved    2.00 MiB
  contexts                0 B
  allocated               0 B
  cached                  0 B
  not attached            0 B
  free                254 MiB
  total               256 MiB" ]
	[[ "${lines[0]}" =~ ^GPU\ 0:\ .*\ \(simulated\)\ \ GPU-[-0-9a-f]{36}$ ]]
	run "$NEAP" info --color always
	[[ "$output" == $'\033[1m'* ]]
}

@test "info: attached and not attached processes, every byte accounted for" {
	start 4 8
	attached=$target
	start --plain 16 2
	plain=$target
	run --separate-stderr "$NEAP" info --json
	[ "$status" -eq 0 ]
	[ "$(json 'j["schema"], j["backend"]')" = "(1, 'sim')" ]
	[ "$(json 'sorted(j["devices"][0]["ledger"])')" = "['allocated', 'cached', 'contexts', 'driver_reserved', 'free', 'not_attached', 'total', 'unexplained']" ]
	[ "$(json 'sum(v for k, v in j["devices"][0]["ledger"].items() if k != "total") - j["devices"][0]["ledger"]["total"]')" = 0 ]
	[ "$(json '[j["devices"][0]["ledger"][k] >> 20 for k in ("driver_reserved", "contexts", "allocated", "cached", "not_attached", "unexplained", "free", "total")]')" = "[2, 8, 4, 8, 26, 0, 208, 256]" ]
	[ "$(json '[(p["attached"], p["bytes"] >> 20, p["contexts"] >> 20, p["allocated"] >> 20, p["cached"] >> 20, p["not_attached"] >> 20, p["unexplained"]) for p in j["processes"] if p["pid"] == '"$attached"']')" = "[(True, 20, 8, 4, 8, 0, 0)]" ]
	[ "$(json '[(p["attached"], p["bytes"] >> 20, p["not_attached"] >> 20) for p in j["processes"] if p["pid"] == '"$plain"']')" = "[(False, 26, 26)]" ]
	run --separate-stderr "$NEAP" info
	[ "$status" -eq 0 ]
	[[ "$output" == *"  cached             8.00 MiB  (neap clear gives it back)"* ]]
	[[ "$output" == *" $attached  "*"20.0 MiB   8.00 MiB   4.00 MiB   8.00 MiB        0 B"* ]]
	[[ "$output" == *" $plain  "*"26.0 MiB not attached"* ]]
	run --separate-stderr "$NEAP" info --csv
	[ "${#lines[@]}" -eq 4 ]
	[ "$(awk -F, 'NF != 18' <<<"$output")" = "" ]
	run --separate-stderr "$NEAP" info --summary
	[ "$status" -eq 0 ]
	[[ "$output" == *"(PID $attached) CUDA memory summary, device ID 0"* ]]
	[[ "$output" == *"| Allocated memory      |   4096 KiB |  12288 KiB |  12288 KiB |   8192 KiB |"* ]]
	[ -z "$(awk 'length != 77' <<<"$output")" ]
	run bash -c '"$NEAP" info --json --every 20ms | head -n 2 | python3 -c "import json, sys; print([json.loads(l)[\"schema\"] for l in sys.stdin])"'
	[ "$output" = "[1, 1]" ]
}

@test "info: user, run time and the whole command of each process; which are shown, in which order" {
	export NEAP_SIM="mem=256MiB,gpus=2,context=8MiB,reserved=2MiB,world=$world-$$-$BATS_TEST_NUMBER"
	start 4 8
	first=$target
	start --plain 16 2
	second=$target
	user=$(id -un)
	run --separate-stderr "$NEAP" info
	[ "$status" -eq 0 ]
	[[ "$output" == *"
       PID  user $(printf '%*s' $((${#user} - 4)) '')  run time     in all    context  allocated     cached      other  process
"* ]]
	grep -qE "^ +$first  $user +[0-9]{2}:[0-9]{2}   20.0 MiB   8.00 MiB   4.00 MiB   8.00 MiB        0 B  target 4 8$" <<<"$output"
	grep -qE "^ +$second  $user +[0-9]{2}:[0-9]{2}   26.0 MiB not attached +target --plain 16 2$" <<<"$output"
	run --separate-stderr "$NEAP" info --json
	[ "$(json '[(p["user"], p["command"], p["run_time_ns"] >= 0) for p in j["processes"] if p["pid"] == '"$first"']')" = "[('$user', 'target 4 8', True)]" ]
	# Order.
	run --separate-stderr "$NEAP" info --json --sort memory
	[ "$(json '[p["pid"] for p in j["processes"]]')" = "[$second, $first]" ]
	run --separate-stderr "$NEAP" info --json --sort pid
	[ "$(json '[p["pid"] for p in j["processes"]] == sorted([p["pid"] for p in j["processes"]])')" = True ]
	# One process, and the devices it uses; one device.
	run --separate-stderr "$NEAP" info --json --pid "$second"
	[ "$(json '[d["index"] for d in j["devices"]], [p["pid"] for p in j["processes"]]')" = "([0], [$second])" ]
	run --separate-stderr "$NEAP" info -i 1
	[ "$status" -eq 0 ]
	[ "${lines[0]%%:*}" = "GPU 1" ]
	[ "${#lines[@]}" -eq 8 ]
	uuid=$(sed -n 's/.*  GPU-/GPU-/p' <<<"${lines[0]}")
	by_index=$output
	run --separate-stderr "$NEAP" info --device "$uuid"
	[ "$output" = "$by_index" ]
	run --separate-stderr "$NEAP" info -i 2
	[ "$status" -eq 66 ]
	[ "$stderr" = "neap info: no device '2'; there are 2, from 0 on" ]
	run --separate-stderr "$NEAP" info --pid 1
	[ "$status" -eq 66 ]
	[ "$stderr" = "neap info: process 1 uses no GPU that is shown" ]
	# A line for each device.
	run --separate-stderr "$NEAP" info --oneline --sort memory
	[ "$output" = "0  Simulated GPU 256 MiB  48.0 MiB of 256 MiB used, 208 MiB free  $user/target($second) 26.0 MiB, $user/target($first) 20.0 MiB
1  Simulated GPU 256 MiB  2.00 MiB of 256 MiB used, 254 MiB free" ]
}

@test "info: on a terminal --every shows each look in the place of the one before" {
	python3 -c 'import os; os.openpty()' 2>/dev/null || skip "needs a pseudo-terminal, which this machine does not give"
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
print(len(frames[0]), os.WTERMSIG(status))
print(frames[1].decode().replace("\r", ""))
END
	echo "$output"
	[ "${lines[0]}" = "0 2" ]
	[[ "${lines[1]}" =~ ^neap\ info\ at\ [0-9:]{8},\ again\ every\ 20\.0\ ms\ \(Ctrl-C\ ends\ it\)$ ]]
	[[ "$output" == *"  total               256 MiB"*" $target  "* ]]
	# Elsewhere there are no escape sequences.
	run bash -c '"$NEAP" info --every 20ms | head -n 20'
	[[ "$output" != *$'"'"'\033'"'"'* ]]
}

@test "kill: a PID is enough" {
	start 4 8
	run --separate-stderr "$NEAP" kill "$target" --dry-run
	[ "$status" -eq 0 ]
	[[ "$output" == *" $target  target 4 8 "* ]]
	# Enough to tell two runs apart: what is cut in the column is whole in a line of its own.
	start --plain 0000000000000000000000000000000000000000001 8
	run --separate-stderr "$NEAP" kill --dry-run "$target"
	[ "${lines[1]}" = "$(printf '%8d  %s' "$target" 'target --plain 000000000000000000...  GPU 0: 18.0 MiB')" ]
	[ "${lines[2]}" = "          target --plain 0000000000000000000000000000000000000000001 8" ]
	[ "${lines[3]}" = "1 process holding 18.0 MiB" ]
	run --separate-stderr "$NEAP" kill --yes "$target"
	[ "$status" -eq 0 ]
	[[ "$output" == *"Ended process $target "* ]]
}

@test "info: a process that was killed leaves no trace" {
	start 4 8
	[ -e "$dir/neap/$target.page" ]
	kill -9 "$target"
	wait "$target" || true
	run --separate-stderr "$NEAP" info --json
	[ "$status" -eq 0 ]
	[ "$(json 'j["processes"]')" = "[]" ]
	[ ! -e "$dir/neap/$target.page" ]
	[ ! -e "$dir/neap/$target.sock" ]
	[ -e "$dir/neap/$target.record" ]
}

# Answers for the target, and lets another process take 20 MiB before each answer of a cleanup arrives.
relay() {
	mv "$dir/neap/$target.sock" "$dir/neap/real"
	python3 - "$dir/neap" "$target" "$TARGET" <<-'END' 3>&- &
		import socket, struct, subprocess, sys
		folder, pid, taker = sys.argv[1:]
		server = socket.socket(socket.AF_UNIX)
		server.bind(f"{folder}/{pid}.sock")
		server.listen()
		open(f"{folder}/../relays", "w").close()
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
	until [ -e "$dir/relays" ]; do :; done
}

@test "clear: two figures of what is free that differ are explained" {
	start 4 8
	relay
	run --separate-stderr "$NEAP" clear --pid "$target" --log-level info
	echo "$output$stderr"
	wait "$relay"
	[ "$status" -eq 0 ]
	[ "${lines[4]}" = "  free          234 MiB before,    242 MiB after (+8.00 MiB)" ]
	[[ "$stderr" == *" INFO 42, 212" ]]
	[ "${lines[6]}" = "  30.0 MiB have been taken since, by this program or another" ] # with the other's context
}

@test "clear: before, after, given back, cost; and the log lines" {
	start 4 8
	run --separate-stderr "$NEAP" clear --stats-only
	[ "$status" -eq 0 ]
	[[ "$output" == *"cached       8.00 MiB"* ]]
	run --separate-stderr "$NEAP" clear --log-level info
	echo "$output$stderr"
	[ "$status" -eq 0 ]
	[ "${lines[0]%% (*}" = "Process $target" ]
	[ "${lines[2]}" = "  allocated    4.00 MiB before,   4.00 MiB after (0 B)" ]
	[ "${lines[3]}" = "  reserved     12.0 MiB before,   4.00 MiB after (-8.00 MiB)" ]
	[ "${lines[4]}" = "  free          234 MiB before,    242 MiB after (+8.00 MiB)" ]
	[[ "${lines[5]}" =~ ^\ \ gave\ back\ 8\.00\ MiB\ in\ [0-9.]+\ (ns|us|ms|s)$ ]]
	[ "$(sed 's/^.* neap INFO //' <<<"$stderr")" = "Cleaning up CUDA memory...
Clearing CUDA cache...
CUDA memory stats after cleanup: allocated=0.00GB, max_allocated=0.01GB, reserved=0.00GB, max_reserved=0.01GB
Asking the driver for GPU memory (as nvidia-smi reports it)...
NVIDIA-SMI report:
memory.used [MiB], memory.free [MiB]
12, 242" ]
	run --separate-stderr "$NEAP" clear --pid "$target" --json --force --log-level info
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	[ "$(json 'j["schema"], [(p["pid"], p["error"], p["callback_bytes"], [(d["freed"], d["reserved"], d["error"]) for d in p["devices"]]) for p in j["processes"]]')" = "(1, [($target, None, 0, [(0, 4194304, None)])])" ]
	run --separate-stderr "$NEAP" clear
	[[ "$output" == *"nothing to give back; looking took "* ]]
}

@test "log lines are for those who ask: by default neap prints what it found, once" {
	start 4 8
	run --separate-stderr "$NEAP" reset
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 7 ]
	[ -z "$stderr" ]
	run --separate-stderr "$NEAP" clear
	[ -z "$stderr" ]
	# A run: its report and nothing else. The level reaches the command, by the environment.
	run --separate-stderr "$NEAP" run --folder "$dir/quiet" -- sh -c 'echo "level $NEAP_LOG_LEVEL"'
	[ "$output" = "level " ]
	[[ "${stderr_lines[0]}" == "neap run: sh: ok, exit status 0, "* ]]
	# Its control group is named where one can be had.
	[ "$(tail -n +2 <<<"$stderr" | grep -v "^  contained by " | awk '{print $1}')" = "device
drain
result" ]
	run --separate-stderr "$NEAP" --log-level INFO run --folder "$dir/info" -- sh -c 'echo "level $NEAP_LOG_LEVEL"'
	[ "$output" = "level INFO" ]
	[[ "$stderr" == *" neap INFO Cleaning up CUDA memory..."* ]]
	NEAP_LOG_LEVEL=info run --separate-stderr "$NEAP" clear
	[[ "$stderr" == *" neap INFO Clearing CUDA cache..."* ]]
	# A warning is for everybody, but those who want errors alone.
	NEAP_ATTACH=1 run --separate-stderr "$NEAP" run --max-host 1KiB --folder "$dir/warn" -- sleep 60
	[[ "$stderr" == *" neap WARNING Ending the command: "* ]]
	run --separate-stderr "$NEAP" run --log-level error --max-host 1KiB --folder "$dir/error" -- sleep 60
	[[ "$stderr" != *WARNING* ]]
	usage "neap run: --log-level is debug, info, warning or error, not 'loud' (see 'neap help run')" run --log-level loud -- true
}

@test "reset: the peaks restart" {
	start 4 8
	run --separate-stderr "$NEAP" reset
	[ "$status" -eq 0 ]
	[[ "$output" == *"gave back 8.00 MiB in "*"the peak statistics restart"* ]]
	run --separate-stderr "$NEAP" clear --stats-only --json
	[ "$(json '[(d["max_allocated"] >> 20, d["max_reserved"] >> 20) for d in j["processes"][0]["devices"]]')" = "[(4, 4)]" ]
}

@test "clear: which process" {
	run --separate-stderr "$NEAP" clear
	[ "$status" -eq 69 ]
	[ "$stderr" = "neap: no process is attached; an allocator can only be reached inside its process: start it with 'neap run -- COMMAND'" ]
	start 4 8
	first=$target
	start 2 6
	run --separate-stderr "$NEAP" clear
	[ "$status" -eq 64 ]
	[[ "$stderr" == "neap: 2 processes are attached; say which with --pid, or --all:"*"$first"* ]]
	run --separate-stderr "$NEAP" clear --all --json
	[ "$status" -eq 0 ]
	[ "$(json 'sorted(p["devices"][0]["freed"] >> 20 for p in j["processes"])')" = "[6, 8]" ]
}

@test "clear: processes that are not attached, gone, or another user's" {
	start --plain 4 8
	run --separate-stderr "$NEAP" clear --pid "$target"
	[ "$status" -eq 69 ]
	[[ "$stderr" == "neap clear: process $target ("*") is not attached: its cache cannot be emptied, nor its memory limited, from outside; started with 'neap run -- COMMAND' it can" ]]
	true &
	gone=$!
	wait "$gone"
	run --separate-stderr "$NEAP" clear --pid "$gone"
	[ "$status" -eq 66 ]
	[ "$stderr" = "neap clear: there is no process $gone" ]
	if [ "$(id -u)" -eq 0 ]; then
		setpriv --reuid=65534 --clear-groups sleep 600 3>&- &
		other=$!
		targets+=("$other")
		until [ "$(stat -c %u "/proc/$other")" -eq 65534 ]; do :; done
	else
		other=1
	fi
	if [ "$(stat -c %u "/proc/$other")" != "$(id -u)" ]; then # in a container 1 may be ours
		run --separate-stderr "$NEAP" clear --pid "$other"
		[ "$status" -eq 77 ]
		[[ "$stderr" == "neap clear: process $other ("*") belongs to user "* ]]
	fi
	# One that fails does not keep the others from being cleared.
	start 4 8
	run --separate-stderr "$NEAP" clear --pid "$gone" --pid "$target" --json
	[ "$status" -eq 66 ]
	[ "$(json '[(p["error"] is None, "devices" in p) for p in j["processes"]]')" = "[(False, False), (True, True)]" ]
}

@test "a runtime folder that is not safely ours is refused" {
	mkdir -m 755 "$dir/neap"
	run --separate-stderr "$NEAP" info
	[ "$status" -eq 77 ]
	[[ "$stderr" == *"$dir/neap"*"chmod 700"* ]]
	rmdir "$dir/neap"
	ln -s /tmp "$dir/neap"
	run --separate-stderr "$NEAP" clear
	[ "$status" -eq 77 ]
}
