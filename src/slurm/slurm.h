/* slurm/slurm.h: runs a series as Slurm job arrays: submits them, gathers results, submits again.
 *
 *   SERIES/                    as for a series on one machine: lock, journal, runs/EXPERIMENT-N/, report.html
 *     slurm/series.yaml        copy of the file, made at submission; tasks read it
 *     slurm/N.sh               the script of submission N, one job array
 *     slurm/JOB-TASK.out       which attempt a task runs, and why Slurm ended it
 *     runs/EXPERIMENT-N/claim  the task that runs attempt N (slurm/claim.h); the run's output is beside it
 *
 * Each task claims the next experiment of its array that no other task has claimed, runs it and leaves a result.
 * Claim, result and queue show where an experiment is: a task in the queue may still claim or end. Only the process
 * that submits and gathers writes the journal and the history. It writes in this order, so that a kill at any instant
 * loses nothing and runs nothing twice:
 *
 *   experiments of the array -> journal
 *   sbatch
 *   number of the job -> journal              killed before it: the array runs, and its unclaimed experiments are
 *                                             submitted again; the tasks of both claim each once
 *   ... tasks claim, run and leave results, on their own ...
 *   result -> history, start, end -> journal  killed in between: taken again, the history replaces its row
 *
 * slurm/decide.h decides about each attempt.
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
	bool begun;       /* there is a series to resume */
	size_t submitted; /* tasks that this call submitted */
	size_t running, pending;
	size_t waiting;                       /* experiments that must be submitted again by a later call */
	uint32_t jobs[NEAP_SLURM_JOBS_SHOWN]; /* jobs with tasks that have not ended */
	size_t job_count;
};

/* Without an unfinished series: starts one and submits it. With one: gathers ended attempts; with `resume` or `wait`
 * resubmits lost, cancelled and retried ones. When all has ended it makes the report, as neap_series_run does. Fills
 * *ret_summary in any case (free it with neap_slurm_summary_fini). NEAP_OK with series.report "" : the series is not
 * finished.
 *
 * Errors: of neap_series_run, and NEAP_ENOTSUP without Slurm's commands, NEAP_ESTATE with sbatch's own error when it
 * refuses; NEAP_ECANCELED when interrupted while waiting (the jobs continue). */
enum neap_status neap_slurm_run(const struct neap_spec *spec, const struct neap_slurm_options *options,
				struct neap_slurm_summary *ret_summary, struct neap_error *err);
void neap_slurm_summary_fini(struct neap_slurm_summary *summary);

/* Makes the plan of a first submission, as --dry-run shows it, and the folder's name. Writes nothing to disk. Asks
 * the cluster, if there is one, for MaxArraySize. */
enum neap_status neap_slurm_plan_first(const struct neap_spec *spec, const struct neap_slurm_options *options,
				       struct neap_slurm_plan *ret_plan, char folder[4096], struct neap_error *err);

#endif
