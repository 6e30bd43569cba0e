/* slurm/slurm.h: a series as Slurm job arrays: submitted, gathered, submitted again.
 *
 *   SERIES/                    as of a series on one machine: lock, journal, runs/EXPERIMENT-N/, report.html
 *     slurm/series.yaml        the file as it was when the array was submitted: what tasks read
 *     slurm/N.sh               the script of submission N, one job array
 *     slurm/JOB-TASK.out       which attempt a task runs, and why Slurm ended it
 *     runs/EXPERIMENT-N/claim  the task that runs attempt N (slurm/claim.h); the run's output is beside it
 *
 * Tasks pull: each claims the next experiment of its array that no other task has claimed, and leaves a result. Where
 * an experiment is follows from its claim and its result, and from the queue: a task that is in it may still claim or
 * end. Only the process that submits and gathers writes the journal and the history. What is written when, so that a
 * kill at any instant loses nothing and runs nothing twice:
 *
 *   experiments of the array -> journal
 *   sbatch
 *   number of the job -> journal              killed before it: the array runs, and what its tasks have not claimed
 *                                             is submitted again; the tasks of both claim it, once
 *   ... tasks claim, run and leave results, on their own ...
 *   result -> history, start, end -> journal  killed in between: taken again, the history replaces its row
 *
 * slurm/decide.h decides what becomes of an attempt.
 */
#ifndef NEAP_SLURM_SLURM_H
#define NEAP_SLURM_SLURM_H

#include "series/series.h"
#include "slurm/plan.h"

struct neap_slurm_options {
	struct neap_series_options series; /* `program`: an absolute path that the nodes have too */
	bool wait;                         /* stay until all has ended */
};

#define NEAP_SLURM_JOBS_SHOWN 64

struct neap_slurm_summary {
	struct neap_series_summary series;
	bool begun;       /* there is a series to go on with */
	size_t submitted; /* tasks, by this call */
	size_t running, pending;
	size_t waiting; /* experiments that are to be submitted again, which this call was not to do */
	uint32_t jobs[NEAP_SLURM_JOBS_SHOWN]; /* with tasks that have not ended */
	size_t job_count;
};

/* Without a series that is unfinished: begins one, and submits it. With one: gathers what has ended; with `resume` or
 * `wait` submits what was lost, cancelled or is to be retried again. When all has ended it makes the report, as
 * neap_series_run does. Fills *ret_summary in any case (free it with neap_slurm_summary_fini). NEAP_OK with
 * series.report "" : there is more to come.
 *
 * Errors: of neap_series_run, and NEAP_ENOTSUP without Slurm's commands, NEAP_ESTATE with sbatch's own words when it
 * refuses; NEAP_ECANCELED when interrupted while waiting (the jobs go on). */
enum neap_status neap_slurm_run(const struct neap_spec *spec, const struct neap_slurm_options *options,
				struct neap_slurm_summary *ret_summary, struct neap_error *err);
void neap_slurm_summary_fini(struct neap_slurm_summary *summary);

/* The plan of a first submission, as --dry-run shows it, and where it would be kept: nothing is written. MaxArraySize
 * is asked of the cluster where there is one. */
enum neap_status neap_slurm_plan_first(const struct neap_spec *spec, const struct neap_slurm_options *options,
				       struct neap_slurm_plan *ret_plan, char folder[4096], struct neap_error *err);

#endif
