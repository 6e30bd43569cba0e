#!/bin/sh
# charlm from outside, on small simulated devices. Usage: charlm.sh CHARLM. Sizes are small, so that it also runs
# under sanitizers: one layer of width 32, on a text that the script makes. 64 samples at once need about 8 MiB, half
# of them 4.
set -eu
charlm=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -m 700 "$folder/runtime" "$folder/state"
export NEAP_DEVICE=sim NEAP_LOG_LEVEL=info XDG_RUNTIME_DIR="$folder/runtime" XDG_STATE_HOME="$folder/state"
cd "$folder"

awk 'BEGIN { for (i = 0; i < 600; i++) printf "the %d cats of step %d sat on mat %d.\n", i % 7, i, i * i % 11 }' > text
small="--text text --layers 1 --width 32 --heads 2 --log-every 0"

fail() {
	echo "FAILED: $*"
	for file in out err; do echo "--- $file"; cat $file; done
	exit 1
}

# world MEMORY: from now on, a fresh device of that size.
worlds=0
world() {
	worlds=$((worlds + 1))
	export NEAP_SIM="mem=$1,world=charlm-$$-$worlds"
}

# run EXPECTED_STATUS OPTION...
run() {
	expected=$1
	shift
	status=0
	"$charlm" "$@" > out 2> err || status=$?
	[ $status -eq $expected ] || fail "charlm $*: exit status $status, not $expected"
}

has() { grep -q -e "$2" "$1" || fail "no '$2' in $1"; }

# same FILE FILE LINES [WITHIN]: this many losses are equal, to a millionth or to WITHIN.
same() {
	paste "$1" "$2" | awk -v lines="$3" -v most="${4:-1e-6}" '{ d = $1 - $2; if (NF != 2 || d > most || d < -most) bad = 1 }
		END { exit bad || NR != lines }' || fail "$1 and $2 are not $3 equal losses"
}

# peak: the allocated peak of the last run, in MiB.
peak() { sed -n 's/.*peak \([0-9.]*\) MiB allocated.*/\1/p' err; }

# 1. It learns: below the text's unigram entropy, which it prints.
world 64MiB
run 0 $small --steps 40 --losses learn
entropy=$(sed -n 's/.*unigram entropy \([0-9.]*\) nats.*/\1/p' out)
awk -v entropy="$entropy" '{ last = $1 } NR == 1 { first = $1 }
	END { exit !(NR == 40 && first > entropy && last < entropy - 0.5) }' learn || fail "it does not learn: $(tail -1 learn)"

# 2. Any split gives the same losses, whether asked for or reached down the ladder, and a smaller peak.
run 0 $small --steps 12 --losses plain
run 0 $small --steps 12 --micro-batch 8 --losses split
same plain split 12
run 0 $small --steps 12 --micro-batch 19 --losses unequal
same plain unequal 12
world 10MiB
run 0 $small --steps 12 --losses ladder
has err 'micro-batch 64 -> 32'
has err '1 OOM, 1 rung '
same plain ladder 12
run 0 $small --steps 12 --batch 129 --micro-batch 43 --losses plain129
run 0 $small --steps 12 --batch 129 --losses ladder129
has err 'micro-batch 65 -> 33, accumulation 2 -> 4 (effective batch stays 129: 1 x 33 + 3 x 32)'
has err '2 OOMs, 2 rungs (now micro-batch 33 x accumulation 4)'
same plain129 ladder129 12

# 3. The end of the ladder: a clear last message, and failure. A leak reaches it on any device.
world 10MiB
run 1 $small --steps 12 --micro-batch 4 --leak-per-step 1MiB --losses leak
has err '^charlm: .*out of'
[ "$(wc -l < leak)" -lt 12 ] || fail "the leak did no harm"
has err 'micro-batch 2 -> 1'

# 4. Every rung. A long context: 40 MiB for two samples, 22 for one, then 8, 6 and 4 with one rung more each, in pages.
long="--text text --layers 6 --width 32 --heads 4 --context 384 --batch 2 --steps 2 --log-every 0"
world 256MiB
run 0 $long --losses plain
before=$(peak) asked=
for on in --efficient-attention --mixed-precision --checkpointing; do
	asked="$asked $on on"
	run 0 $long $asked --losses asked
	has err '0 OOMs, 0 rungs'
	awk -v before="$before" -v now="$(peak)" 'BEGIN { exit !(now < 0.8 * before) }' || fail "$asked: peak $(peak) MiB"
	before=$(peak)
	same plain asked 2 "$(case $asked in *mixed*) echo 0.01 ;; *) echo 1e-6 ;; esac)"
done
rungs=1
for rung in 'micro-batch 2 -> 1' 'memory-efficient attention' 'mixed precision: this changes' 'gradient checkpointing'; do
	case $rungs in 1) world 32MiB ;; 2) world 12MiB ;; 3) world 10MiB ;; 4) world 8MiB ;; esac
	run 0 $long --mixed-precision allow --losses ladder
	has err "going on with $rung"
	[ "$rungs" -eq 1 ] && has err '1 OOM, 1 rung ' || has err "$rungs OOMs, $rungs rungs "
	same plain ladder 2 "$([ $rungs -lt 3 ] && echo 1e-6 || echo 0.01)"
	rungs=$((rungs + 1))
done
world 6MiB
run 1 $long --mixed-precision allow
has err '^charlm: .*micro-batch 1 x accumulation 2, memory-efficient attention, mixed precision, gradient checkpointing: the'
run 1 $long --checkpointing off
has err '^charlm: .*accumulation 2, memory-efficient attention: .*(not offered: mixed precision, gradient checkpointing)'

# The same rungs, one after another, whenever a step leaves less than it should, without ever running out of memory.
world 64MiB
run 1 $small --steps 1 --device-warn 1KiB --device-stop 2KiB # to stop before it warns
run 0 $small --batch 2 --steps 40 --mixed-precision allow --device-degrade 1GiB --losses low
awk '/going on with/ { sub(/.*going on with /, ""); print $1 }' err > taken
printf '%s\n' micro-batch memory-efficient mixed gradient | cmp - taken || fail "at the threshold: $(cat taken)"
has err 'no rung of the ladder is left'
has err '0 OOMs, 4 rungs'
run 0 $small --batch 2 --steps 40 --losses plain
same plain low 40 0.05

# A run on any rung can continue what a run on any other saved: the state is complete in all of them.
world 10MiB
run 1 $small --steps 12 --leak-per-step 768KiB --checkpoint worn.bin --checkpoint-every 1 --mixed-precision allow
has err 'going on with gradient checkpointing'
has err 'giving up'
world 64MiB
run 0 $small --steps 12 --losses plain
run 0 $small --steps 12 --checkpoint worn.bin --resume --losses after
has out '^resumed after step [1-9]'
lines=$(wc -l < after)
tail -n "$lines" plain > rest
same rest after "$lines" 0.05

# 5. A stopped run continues as if it had not been stopped. The losses go through a pipe, so that the moment is known.
world 64MiB
for signal in INT TERM; do
	mkfifo pipe
	"$charlm" $small --steps 12 --checkpoint state.bin --losses pipe > out 2> err &
	pid=$!
	exec 3< pipe
	: > before
	for _ in 1 2 3; do
		read -r loss <&3 && echo "$loss" >> before
	done
	kill -$signal $pid
	cat <&3 >> before
	exec 3<&-
	status=0
	wait $pid || status=$?
	[ $status -eq $([ $signal = INT ] && echo 130 || echo 143) ] || fail "$signal: exit status $status"
	lines=$(wc -l < before)
	has err "^charlm: stopped after step $lines\$"
	run 0 $small --steps 12 --checkpoint state.bin --resume --losses after
	has out "^resumed after step $lines\$"
	cat before after | cmp - plain || fail "$signal: the resumed run is not the same"
	mv state.bin whole.bin
	rm pipe
done
# A step that takes hours is not waited for: nothing of it is kept.
mkfifo pipe
"$charlm" $small --steps 2 --batch 65536 --micro-batch 1 --checkpoint long.bin > out 2> pipe &
pid=$!
exec 3< pipe
while read -r line <&3 && ! echo "$line" | grep -q 'optimizer created'; do :; done
kill -TERM $pid
cat <&3 > err
exec 3<&-
status=0
wait $pid || status=$?
[ $status -eq 143 ] || fail "stopped within a step: exit status $status"
has err '^charlm: stopped after step 0$'
[ ! -e long.bin ] || fail "a checkpoint of a step that was not done"
rm pipe
run 0 $small --steps 12 --checkpoint fresh.bin --checkpoint-every 5 --resume --losses after
has out 'no checkpoint yet'
cmp fresh.bin whole.bin || fail "stopping and resuming ends in another state"
has err 'saved 10'

# 6. A checkpoint that is damaged, or another run's, is refused.
head -c 5000 whole.bin > short.bin
run 1 $small --steps 12 --checkpoint short.bin --resume
has err 'short.bin: it ends too early'
{ head -c 5000 whole.bin; printf x; tail -c +5002 whole.bin; } > damaged.bin
run 1 $small --steps 12 --checkpoint damaged.bin --resume
has err 'damaged.bin: its check sum is wrong'
run 1 $small --steps 13 --checkpoint whole.bin --resume
has err 'belongs to a run with another'
run 1 $small --steps 12 --checkpoint text --resume
has err 'not a checkpoint of charlm'

# 7. Trials in one process: each returns to the baseline, and leaks are named. A trial that runs out of memory does
# not stop the others.
run 0 $small --steps 3 --batch 8 --rates 0.01,0.003
[ "$(grep -c 'trial rate=0.0[013]*: back to the baseline: 0 B allocated, 0 B reserved$' err)" -eq 2 ] || fail "the baseline"
run 0 $small --steps 2 --batch 8 --rates 0.01 --leak-per-step 96KiB
has err 'trial rate=0.01: 2 allocations survive, 192 KiB: 192 KiB activations$'
has err 'trial rate=0.01:   96.0 KiB activations at 0x[0-9a-f]*, stream 0x0, allocation [0-9]* of [0-9]*$'
world 6MiB
run 1 $small --steps 2 --batch 1 --layers 64 --rates 0.01,0.02
[ "$(grep -c 'back to the baseline' err)" -eq 2 ] || fail "a failed trial leaves something, or ends it all"
has err 'trial rate=0.02: back'
world 64MiB

# 8. Wrong use.
run 64 --rates 0.1,,0.2
run 64 --rates 0.1,2
has err 'expected up to 16 numbers'
run 64 --rates 0.1 --losses file
has err 'overwrite'
run 64 --stepz 3
has err 'unknown option --stepz'
run 64 --steps
has err 'needs a value'
run 64 --steps 12x
has err 'expected a whole number'
run 64 --leak-per-step 12QiB
has err 'expected a size'
run 64 --rate 2
run 64 --mixed-precision yes
has err 'expected on, allow or off'
run 64 --batch 10 --micro-batch 11
has err 'is more than --batch 10'
run 64 --width 30 --heads 4
run 64 --resume
run 64 --keep-best 2
has err '--keep-best needs --checkpoint'
has err 'needs --checkpoint'
run 0 --help
has out '--leak-per-step SIZE'
run 64 --host-limit 1GiB
has err '--host-limit needs --host-warn'
run 66 --text nowhere
has err 'nowhere'
run 66 --text out --context 4096
run 1 $small --steps 1 --losses /dev/full
has err 'writing losses'
run 1 $small --steps 1 --checkpoint nowhere/file
NEAP_DEVICE=sum run 69 $small --steps 1

echo "all is well"
