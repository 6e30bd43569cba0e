#!/usr/bin/env bats
# neap series --slurm where Slurm says what the test wants: every way in which a task may end, answers that make no sense,
# refusals. Tasks are run by hand, as the array's script would. tests/slurm/slurm.py has a real Slurm.

setup() {
	dir="$(mktemp -d)"
	export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir/runtime" HOME="$dir" FAKE="$dir/fake"
	export NEAP_SIM="mem=4GiB,world=fake-$$-$BATS_TEST_NUMBER"
	mkdir -m 700 "$dir/runtime"
	cd "$dir"
	mkdir "$FAKE" bin
	for name in sbatch squeue sacct scontrol; do ln -s "$FAKE_SLURM" "bin/$name"; done
	PATH="$dir/bin:$PATH"
	unset ${!SLURM_@} ${!SBATCH_@}
}

teardown() {
	cd /
	rm -rf "$dir" "/dev/shm/"*"fake-$$-$BATS_TEST_NUMBER"*
}

result() { jq -r "$2" "$dir/s/runs/$1/result.json"; }
slurm() { run "$NEAP" series s.yaml --slurm --folder s "$@"; }
records() { sed 's/^[^ ]* //' s/journal | jq -c "select(.type == \"$1\")"; }

# series N: experiments e-i=1 to e-i=N, each with a command that leaves a line in `ran`.
series() {
	cat > s.yaml <<-END
		name: s
		experiments:
		- {name: e, command: "sh -c 'echo {i} >> ran'", needs: none, grid: {i: [$(seq -s ', ' "$1")]}}
	END
}

# task JOB TASK [RESTARTS]: what Slurm would start.
task() {
	SLURM_ARRAY_JOB_ID=$1 SLURM_ARRAY_TASK_ID=$2 SLURM_RESTART_COUNT=${3-} SLURMD_NODENAME=n1 \
		"s/slurm/$(($1 - 100)).sh"
}

# begun TASK: a task of job 101 that was killed before it had a result.
begun() {
	mkdir -p "s/runs/e-i=$1-1"
	echo "job 101 task $1 restart 0 node n1" > "s/runs/e-i=$1-1/claim"
}

@test "however a task ends, the report tells it apart" {
	series 10
	slurm
	[ "$status" -eq 0 ]
	grep -qx -- --array=1-10 "$FAKE/words.101"
	task 101 1
	for i in 2 3 4 5 6 8 9 10; do begun $i; done
	cat > "$FAKE/squeue" <<-END
		101|1|COMPLETED|None|n1
		101|2|TIMEOUT|TimeLimit|n1
		101|3|OUT_OF_MEMORY|OutOfMemory|n1
		101|4|NODE_FAIL|None|n1
		101|5|PREEMPTED|None|n1
		101|6|CANCELLED|None|n1
		101|7|FAILED|NonZeroExitCode|n1
		101|10|RUNNING|None|n1
		99|N/A|RUNNING|None|n2
	END
	echo "slurmstepd-n1: error: *** JOB 110 ON n1 CANCELLED AT 2026-11-21T07:58:54 DUE TO TIME LIMIT ***" > s/slurm/1-8.out
	echo "101_9|OUT_OF_MEMORY|n1" > "$FAKE/sacct"
	echo "sh: 1: exec: neap: not found" > s/slurm/1-7.out
	slurm
	[ "$status" -eq 75 ]
	[ "$(result e-i=1-1 .outcome)" = ok ]
	for i in 2 8; do
		[ "$(result e-i=$i-1 .outcome)" = timeout ]
		[ "$(result e-i=$i-1 .evidence)" = "Slurm ended it at the job's time limit (task 101_$i on n1)" ]
	done
	for i in 3 9; do [ "$(result e-i=$i-1 .outcome)" = "host oom" ]; done
	[[ "$output" == *"e-i=4: attempt 1: is lost: its node failed"* ]]
	[[ "$output" == *"e-i=5: attempt 1: its task was preempted"* ]]
	[[ "$output" == *"e-i=6: attempt 1: its task was cancelled (scancel)"* ]]
	[[ "$output" == *"e-i=7: attempt 1: is lost: its task ended before it had begun: sh: 1: exec: neap: not found"* ]]
	[[ "$output" == *"e-i=10: running on n1, task 101_10"* ]]
	[[ "$output" == *"5 experiments left: 1 running, 0 pending, 4 to be submitted again; go on with: neap series s.yaml --slurm --resume --folder s"* ]]
	[ ! -e "$FAKE/words.102" ] # without --resume nothing is submitted
	[ "$(records lost | jq -s length)" = 2 ]
	[ "$(records cancel | jq -s length)" = 2 ]
	slurm --resume
	[ "$status" -eq 75 ]
	grep -qx -- --array=4-7 "$FAKE/words.102"
	for i in 4 5 6 7; do task 102 $i; done
	echo "101|10|COMPLETED|None|n1" > "$FAKE/squeue"
	mkdir -p "s/runs/e-i=10-1" && cp "s/runs/e-i=1-1/result.json" "s/runs/e-i=10-1/"
	slurm --resume
	[ "$status" -eq 1 ] # four have not ended well
	[ "${lines[-1]}" = s/report.html ]
	[ "$(sort -n ran | xargs)" = "1 4 5 6 7" ]
	[ "$(result e-i=7-2 .outcome)" = ok ]
}

@test "what Slurm cannot be asked about is not over" {
	series 2
	slurm
	begun 1
	before="$(cat s/journal)"
	echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" > "$FAKE/squeue-fails"
	slurm --resume
	[ "$status" -eq 75 ]
	[[ "$output" == *"squeue cannot say what runs: "*"Unable to contact slurm controller"* ]]
	rm "$FAKE/squeue-fails"
	printf '101|1|TIMEOUT|None|n1\n101|\033[2Jx|RUNNING|None|n1\n' > "$FAKE/squeue"
	slurm --resume
	[ "$status" -eq 75 ]
	[[ "$output" == *"squeue printed a line that cannot be read: '101|?[2Jx|RUNNING|None|n1'"* ]]
	[ "$(cat s/journal)" = "$before" ]
	rm "$FAKE/squeue"
	run env PATH=/nowhere "$NEAP" series s.yaml --slurm --folder s --resume
	[ "$status" -eq 69 ]
	[[ "$output" == *"squeue is not on PATH: --slurm works on a machine with Slurm's commands (Debian: slurm-client)"* ]]
	[ "$(cat s/journal)" = "$before" ]
}

@test "the same attempt is never run twice, whoever comes" {
	series 2
	slurm
	task 101 1
	run task 101 1
	[ "$status" -eq 0 ]
	[[ "$output" == *"attempt 1 of e-i=1 has a result: nothing to do"* ]]
	begun 2
	run task 101 2
	[[ "$output" == *"attempt 1 of e-i=2 was begun by task 101_2 on n1: nothing to do"* ]]
	[ "$(cat ran)" = 1 ]
	task 101 2 1 # Slurm has requeued it
	[ "$(xargs < ran)" = "1 2" ]
	[ "$(result e-i=2-2 .outcome)" = ok ]
	run task 101 2 2
	[[ "$output" == *"attempt 2 of e-i=2 has a result: nothing to do"* ]]
	printf '101|1|COMPLETED||\n101|2|COMPLETED||\n' > "$FAKE/squeue"
	slurm --resume
	[ "$status" -eq 0 ]
	[[ "$output" == *"e-i=2: attempt 1: Slurm requeued its task"* ]]
	[ "$(records start | jq -s -c 'map([.experiment, .attempt, .submission])')" = '[["e-i=1",1,1],["e-i=2",1,1],["e-i=2",2,1]]' ]
	[ "$(xargs < ran)" = "1 2" ]
}

@test "what is lost three times is given up" {
	series 1
	slurm
	for i in 1 2 3; do
		echo "10$i|1|FAILED|NonZeroExitCode|n1" > "$FAKE/squeue"
		slurm --resume
	done
	[ "$status" -eq 1 ]
	[[ "$output" == *"e-i=1: given up after 3 lost attempts"* ]]
	[[ "$output" == *"e-i=1 "*lost* ]]
	[ ! -e "$FAKE/words.104" ]
	run task 103 1 # it comes after all
	[[ "$output" == *"attempt 3 of e-i=1 was withdrawn: nothing to do"* ]]
	[ ! -e ran ]
}

@test "a task whose device was lost is submitted again, three times in all" {
	cat > s.yaml <<-'END'
		name: s
		experiments:
		- name: back
		  command: "sh -c 'test -e second || { touch second; echo CUDA error: uncorrectable ECC error encountered >&2; exit 1; }'"
		  needs: none
		- {name: gone, command: "sh -c 'echo CUDA error: uncorrectable ECC error encountered >&2; exit 1'", needs: none}
	END
	slurm
	run task 101 1
	[ "$status" -eq 1 ]
	run task 101 2
	printf '101|1|FAILED||n1\n101|2|FAILED||n1\n' > "$FAKE/squeue"
	slurm
	[ "$status" -eq 75 ]
	[[ "$output" == *"back: its device was lost: another attempt (1 of 2)"* ]]
	[[ "$output" == *"2 to be submitted again"* ]]
	[ ! -e "$FAKE/words.102" ]
	slurm --resume
	[ "$status" -eq 75 ]
	grep -qx -- --array=1-2 "$FAKE/words.102"
	task 102 1
	run task 102 2
	printf '102|1|COMPLETED||n1\n102|2|FAILED||n1\n' > "$FAKE/squeue"
	slurm --resume
	[ "$status" -eq 75 ]
	[[ "$output" == *"gone: its device was lost: another attempt (2 of 2)"* ]]
	run task 103 2
	echo '103|2|FAILED||n1' > "$FAKE/squeue"
	slurm --resume
	[ "$status" -eq 1 ]
	[ "$(result back-2 .outcome)" = ok ]
	[ "$(result gone-3 .outcome)" = "device lost" ]
	[ "$(records device_lost | jq -s -c 'map(.experiment) | sort')" = '["back","gone","gone"]' ]
	[ "$(records end | jq -s -c 'map([.experiment, .outcome]) | sort')" = '[["back","ok"],["gone","device lost"]]' ]
	[ ! -e "$FAKE/words.104" ]
}

@test "what sbatch refuses is said in its words, and can be submitted later" {
	series 2
	echo "sbatch: error: Batch job submission failed: Invalid qos specification" > "$FAKE/refuse"
	slurm
	[ "$status" -eq 69 ]
	[ "$output" = "neap series: sbatch refused: Batch job submission failed: Invalid qos specification; nothing was submitted" ]
	[ ! -s s/journal ]
	mv "$FAKE/refuse" "$FAKE/refuse-late" # the controller is gone in between: nobody knows what it did
	slurm
	[ "$status" -eq 69 ]
	[[ "$output" == *"sbatch refused: Batch job"* ]]
	mv "$FAKE/refuse-late" "$FAKE/x"
	printf 'Submitted, trust me\n' > "$FAKE/answer"
	slurm --resume
	[ "$status" -eq 76 ]
	[[ "$output" == *"sbatch answered 'Submitted, trust me', expected the number of a job"* ]]
	rm "$FAKE/answer"
	run env SLURM_ARRAY_JOB_ID=101 SLURM_ARRAY_TASK_ID=1 s/slurm/2.sh # it was a job nevertheless
	[[ "$output" == *"attempt 2 of e-i=1 was withdrawn: nothing to do"* ]]
	slurm --resume
	[ "$status" -eq 75 ]
	export SLURM_ARRAY_JOB_ID=102
	SLURM_ARRAY_TASK_ID=1 s/slurm/3.sh
	SLURM_ARRAY_TASK_ID=2 s/slurm/3.sh
	slurm --resume
	[ "$status" -eq 0 ]
	[ "$(sort ran | xargs)" = "1 2" ]
	[ "$(result e-i=1-3 .outcome)" = ok ]
}

@test "the journal's words are not taken for the file's when that has changed" {
	series 2
	slurm
	sed -i 's/>> ran/>> elsewhere/' s.yaml
	slurm --resume
	[ "$status" -eq 65 ]
	[[ "$output" == *"the series file has changed since"* ]]
	task 101 1 # tasks read the file as it was
	[ "$(cat ran)" = 1 ]
}

@test "a dry run needs no Slurm and writes nothing; a device in the file is refused" {
	series 3
	sed -i 's/^name: s/name: s\nparallel: 2\nslurm: {partition: gpu, gres: none, time: 90s}/' s.yaml
	rm bin/*
	slurm --dry-run
	[ "$status" -eq 0 ]
	[[ "$output" == *"sbatch --parsable --open-mode=append --job-name=s --array=1-3%2 --output=$dir/s/slurm/1-%a.out --partition=gpu --time=2 $dir/s/slurm/1.sh"* ]]
	[ ! -e s ]
	[ ! -e "$XDG_STATE_HOME/neap/series" ]
	sed -i 's/needs: none/needs: none, device: 0/' s.yaml
	slurm --dry-run
	[ "$status" -eq 65 ]
	[[ "$output" == "neap series: s.yaml:5: experiment 'e-i=1': 'device' cannot be chosen with --slurm"* ]]
	run "$NEAP" series s.yaml --slurm-task 1
	[ "$status" -eq 64 ]
	run "$NEAP" series s.yaml --slurm-task 1 --folder s
	[ "$status" -eq 64 ]
	[[ "$output" == *"SLURM_ARRAY_TASK_ID are not set"* ]]
	[ ! -e s ]
}

@test "interrupted while it waits: the jobs go on, and it says how to go on" {
	series 1
	echo "101|1|PENDING|Resources|" > "$FAKE/squeue"
	"$NEAP" series s.yaml --slurm --folder s --wait >out 2>err &
	series=$!
	until grep -q "submitted 1 task" err; do kill -0 "$series"; sleep 0.02; done
	kill -INT "$series"
	status=0
	wait "$series" || status=$?
	[ "$status" -eq 130 ]
	grep -q "interrupted: the jobs go on in Slurm" err
	grep -q "^gather   neap series s.yaml --slurm --resume --folder s" out
	task 101 1
	slurm --resume
	[ "$status" -eq 0 ]
}
