#!/usr/bin/env bats
# neap series --slurm with a fake Slurm that gives the answers that a test sets: every way in which a task may end,
# nonsense, refusals. Tests run tasks by hand, as the array's script would. tests/slurm/slurm.py uses a real Slurm.

sim=mem=4GiB
load ../support/command.bash

prepare() {
	export FAKE="$dir/fake"
	mkdir "$FAKE"
	for name in sbatch squeue scontrol; do ln -s "$FAKE_SLURM" "bin/$name"; done
	unset ${!SLURM_@} ${!SBATCH_@}
}

outcome() { result .outcome "s/runs/$1"; }
slurm() { show "neap series s.yaml --slurm --folder s${*:+ $*}"; }
records() { sed 's/^[^ ]* //' s/journal | jq -c "select(.type == \"$1\")"; }

# series N: experiments e-i=1 to e-i=N, each with a command that leaves a line in `ran`.
series() {
	cat > s.yaml <<-END
		name: s
		experiments:
		- {name: e, command: "sh -c 'echo {i} >> ran'", needs: none, grid: {i: [$(seq -s ', ' "$1")]}}
	END
}

# task JOB TASK [RESTARTS]: runs the task as Slurm would, with its output.
task() {
	SLURM_ARRAY_JOB_ID=$1 SLURM_ARRAY_TASK_ID=$2 SLURM_RESTART_COUNT=${3-} SLURMD_NODENAME=n1 \
		"s/slurm/$(($1 - 100)).sh" >> "s/slurm/$1-$2.out" 2>&1
}

# begun TASK [REASON]: a task of job 101 that was killed before it had a result, with slurmstepd's reason.
begun() {
	mkdir -p "s/runs/e-i=$1-1"
	echo "job 101 task $1 restart 0 node n1 run r$1" > "s/runs/e-i=$1-1/claim"
	echo "neap series: task 101_$1 runs e-i=$1 in s/runs/e-i=$1-1" > "s/slurm/101-$1.out"
	[ -z "${2-}" ] || echo "slurmstepd-n1: error: $2" >> "s/slurm/101-$1.out"
}

@test "the report distinguishes every end of a task" {
	series 11
	slurm
	grep -qx -- --array=1-11 "$FAKE/words.101"
	task 101 1
	stopped="*** JOB 110 ON n1 CANCELLED AT 2026-11-21T07:58:54"
	begun 2 "$stopped DUE TO TIME LIMIT ***"
	begun 3 "Detected 1 oom_kill event in StepId=103.batch."
	begun 4
	begun 5 "$stopped DUE TO PREEMPTION ***"
	begun 6 "$stopped ***"
	begun 7 "$stopped DUE TO JOB REQUEUE ***" # it is in the queue and will come again
	begun 8
	echo "sh: 1: exec: neap: not found" > s/slurm/101-9.out
	printf '%s\n' 101_7 101_8 101_11 99_N/A > "$FAKE/squeue" # 9 has ended, 10 was cancelled in the queue
	slurm
	[ "$(outcome e-i=1-1)" = ok ]
	[ "$(outcome e-i=2-1)" = timeout ]
	show 'result "[.evidence, .run_id]" s/runs/e-i=2-1'
	[ "$(outcome e-i=3-1)" = "host oom" ]
	[ ! -e "$FAKE/words.102" ] # without --resume nothing is submitted
	[ "$(records lost | jq -s length)" = 1 ]
	[ "$(records unbegun | jq -s length)" = 1 ]
	[ "$(records cancel | jq -s length)" = 2 ]
	slurm --resume
	grep -qx -- --array=1-5 "$FAKE/words.102"
	for i in 1 2 3 4 5; do task 102 $i; done
	task 101 7 1
	task 101 11
	: > "$FAKE/squeue"
	slurm --resume
	task 103 1
	slurm --resume
	[ "$(sort -n ran | xargs)" = "1 4 5 6 7 8 9 10 11" ]
	[ "$(outcome e-i=9-1)" = ok ] # its attempt was never begun before
	[ "$(outcome e-i=10-1)" = ok ]
	[ "$(outcome e-i=8-2)" = ok ]
	[ "$(neap history --json | jq -r '.runs[].name' | sort -u | wc -l)" = 11 ]
	expect ends
}

@test "a task does not count as over while squeue fails" {
	series 2
	slurm
	begun 1
	before="$(cat s/journal)"
	echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" > "$FAKE/squeue-fails"
	slurm --resume
	rm "$FAKE/squeue-fails"
	printf '101_2\n101_\033[2Jx\n' > "$FAKE/squeue"
	slurm --resume
	[ "$(cat s/journal)" = "$before" ]
	rm "$FAKE/squeue"
	show 'env PATH=/nowhere $NEAP series s.yaml --slurm --folder s --resume'
	[ "$status" -eq 69 ]
	[ "$(cat s/journal)" = "$before" ]
	expect squeue
}

@test "tasks claim the remaining experiments in any order, none twice" {
	series 3
	slurm
	task 101 1
	task 101 1 # by hand, or from an array that was submitted twice: it takes the next one
	[ "$(xargs < ran)" = "1 2" ]
	begun 3
	task 101 2
	grep -q "other tasks have begun every experiment of this array: nothing to do" s/slurm/101-2.out
	[ "$(xargs < ran)" = "1 2" ]
	task 101 3 1 # Slurm has requeued it
	[ "$(xargs < ran)" = "1 2 3" ]
	[ "$(outcome e-i=3-2)" = ok ]
	task 101 3 2
	[ "$(xargs < ran)" = "1 2 3" ]
	slurm --resume
	[ "$(records start | jq -s -c 'map([.experiment, .attempt])')" = '[["e-i=1",1],["e-i=2",1],["e-i=3",1],["e-i=3",2]]' ]
	[ "$(xargs < ran)" = "1 2 3" ]
	expect claims
}

@test "a late task retries an experiment that has failed meanwhile" {
	cat > s.yaml <<-'END'
		name: s
		experiments:
		- name: e
		  command: "sh -c 'echo {i} >> ran; test {i} != 1 || test -e second || { touch second; exit 3; }'"
		  needs: none
		  retry_failed: 1
		  grid: {i: [1, 2, 3]}
	END
	slurm
	run task 101 1
	[ "$status" -eq 3 ]
	printf '101_2\n101_3\n' > "$FAKE/squeue"
	slurm
	task 101 2
	task 101 2 # like another task: it claims e-i=3 next, and then the failed experiment
	task 101 3
	[ "$(xargs < ran)" = "1 2 3 1" ]
	: > "$FAKE/squeue"
	slurm --resume
	[ ! -e "$FAKE/words.102" ]
	[ "$(outcome e-i=1-2)" = ok ]
	expect retry
}

@test "many tasks at once claim each experiment once" {
	series 12
	slurm
	for i in $(seq 12) $(seq 12); do task 101 $i & done
	wait
	[ "$(sort -n ran | xargs)" = "1 2 3 4 5 6 7 8 9 10 11 12" ]
	slurm --resume
	expect many
}

@test "a killed task loses its attempt and no other" {
	cat > s.yaml <<-'END'
		name: s
		experiments:
		- {name: held, command: "sh -c 'echo held >> ran; test -e go || exec sleep 300'", needs: none}
		- {name: other, command: "sh -c 'echo other >> ran'", needs: none}
	END
	slurm
	task 101 1 &
	killed=$!
	until [ -s s/runs/held-1/began ] && [ -s ran ]; do kill -0 "$killed"; sleep 0.02; done
	printf '101_1\n101_2\n' > "$FAKE/squeue"
	slurm --resume
	[ ! -e "$FAKE/words.102" ]
	: > "$FAKE/squeue" # its node does not answer, but its supervisor lives, as the lock shows
	slurm
	[ -z "$(records lost)" ]
	read -r supervisor < "/proc/$killed/task/$killed/children" || [ -n "$supervisor" ] # it has no newline
	kill -KILL "$supervisor"
	wait "$killed" || true
	task 101 2
	slurm --resume
	[ "$(records lost | jq -r .experiment)" = held ]
	touch go
	task 102 1
	slurm --resume
	[ "$(xargs < ran)" = "held other held" ]
	[ "$(outcome held-2)" = ok ]
	expect killed
}

@test "an experiment lost three times is given up" {
	series 1
	slurm
	for i in 1 2 3; do
		echo "srun: error: no such file" > s/slurm/10$i-1.out
		slurm --resume
	done
	[ ! -e "$FAKE/words.104" ]
	task 103 1 # the late task runs after all
	grep -q "nothing to do" s/slurm/103-1.out
	[ ! -e ran ]
	expect given_up
}

@test "a series that Slurm is running is not run here as well" {
	series 2
	echo "sbatch: error: the controller is gone" > "$FAKE/refuse-late" # whether it submitted is unknown
	slurm
	show 'neap series s.yaml --folder s --resume'
	[ "$status" -eq 75 ]
	[ ! -e ran ]
	expect beside
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
	slurm
	[ ! -e "$FAKE/words.102" ]
	slurm --resume
	grep -qx -- --array=1-2 "$FAKE/words.102"
	task 102 1
	run task 102 2
	slurm --resume
	run task 103 1
	slurm --resume
	[ "$(outcome back-2)" = ok ]
	[ "$(outcome gone-3)" = "device lost" ]
	[ "$(records device_lost | jq -s -c 'map(.experiment) | sort')" = '["back","gone","gone"]' ]
	[ "$(records end | jq -s -c 'map([.experiment, .outcome]) | sort')" = '[["back","ok"],["gone","device lost"]]' ]
	[ ! -e "$FAKE/words.104" ]
	expect device_lost
}

@test "a refusal is reported in sbatch's words, and the series can be submitted later" {
	series 2
	echo "sbatch: error: Batch job submission failed: Invalid qos specification" > "$FAKE/refuse"
	slurm
	[ ! -s s/journal ]
	mv "$FAKE/refuse" "$FAKE/refuse-late" # the controller stops in between: whether it submitted is unknown
	slurm
	mv "$FAKE/refuse-late" "$FAKE/x"
	printf 'Submitted, trust me\n' > "$FAKE/answer"
	slurm --resume
	rm "$FAKE/answer"
	SLURM_ARRAY_JOB_ID=102 SLURM_ARRAY_TASK_ID=1 s/slurm/2.sh # it was a job after all
	slurm --resume
	grep -qx -- --array=1 "$FAKE/words.102"
	SLURM_ARRAY_JOB_ID=102 SLURM_ARRAY_TASK_ID=1 s/slurm/3.sh
	SLURM_ARRAY_JOB_ID=101 SLURM_ARRAY_TASK_ID=2 s/slurm/1.sh
	slurm --resume
	[ "$(sort ran | xargs)" = "1 2" ]
	[ "$(outcome e-i=2-1)" = ok ]
	expect refused
}

@test "a changed file does not count as the one that was submitted" {
	series 2
	slurm
	sed -i 's/>> ran/>> elsewhere/' s.yaml
	slurm --resume
	task 101 1 # tasks read the file as it was
	[ "$(cat ran)" = 1 ]
	expect changed
}

@test "a dry run needs no Slurm and writes nothing; a device in the file is refused" {
	series 3
	sed -i 's/^name: s/name: s\nparallel: 2\nslurm: {partition: gpu, gres: none, time: 90s}/' s.yaml
	rm bin/s*
	slurm --dry-run
	[ ! -e s ]
	[ ! -e "$XDG_STATE_HOME/neap/series" ]
	sed -i 's/needs: none/needs: none, device: 0/' s.yaml
	slurm --dry-run
	show 'neap series s.yaml --slurm-task 1'
	show 'neap series s.yaml --slurm-task 1 --folder s'
	[ ! -e s ]
	expect dry_run "$(readlink -f "$NEAP")/NEAP"
}

@test "interrupted while it waits: the jobs continue, and it says how to resume" {
	series 1
	echo 101_1 > "$FAKE/squeue"
	neap series s.yaml --slurm --folder s --wait >out 2>err &
	series=$!
	until grep -q "submitted 1 task" err; do kill -0 "$series"; sleep 0.02; done
	kill -INT "$series"
	status=0
	wait "$series" || status=$?
	[ "$status" -eq 130 ]
	show 'cat out err'
	task 101 1
	: > "$FAKE/squeue"
	slurm --resume
	expect interrupted
}
