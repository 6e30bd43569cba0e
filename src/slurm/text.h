/* slurm/text.h: parses the output of Slurm's commands. Strict, since it comes from outside. Pure.
 *
 *   sbatch --parsable         JOB[;CLUSTER]
 *   squeue --format=%F_%K     JOB_TASK
 *   scontrol show config      MaxArraySize = N, among much else
 *   a task's output           why slurmstepd ended it
 */
#ifndef NEAP_SLURM_TEXT_H
#define NEAP_SLURM_TEXT_H

#include "neap/status.h"

#include <stddef.h>
#include <stdint.h>

/* Reads the job's number. Skips lines before the last one: sites print notices. Errors: NEAP_EPROTO. */
enum neap_status neap_slurm_sbatch_answer(const char *text, size_t length, uint32_t *ret_job, struct neap_error *err);

/* Reads one line, given without its newline. Errors: NEAP_ENOENT for a job that is not a task of an array;
 * NEAP_EPARSE.
 */
enum neap_status neap_slurm_squeue_line(const char *line, size_t length, uint32_t *ret_job, uint32_t *ret_task);

/* Reads MaxArraySize. Errors: NEAP_EPARSE when it is not there. */
enum neap_status neap_slurm_max_array(const char *text, size_t length, uint32_t *ret_size);

/* Why Slurm ended a task. */
enum neap_slurm_cause {
	NEAP_SLURM_UNTOLD = 0, /* slurmstepd wrote nothing: the task ended by itself, or its node was lost */
	NEAP_SLURM_TIMEOUT,
	NEAP_SLURM_OUT_OF_MEMORY, /* it reached its control group's limit of host memory */
	NEAP_SLURM_CANCELLED,     /* by scancel */
	NEAP_SLURM_TAKEN_BACK,    /* preempted, requeued, or the node failed */
};

/* A task prints "neap series: task 12_3 runs ..." before it runs an attempt. */
#define NEAP_SLURM_BEGINS "task"

/* Finds the last cause in a task's output since the task last began an attempt. */
enum neap_slurm_cause neap_slurm_last_cause(const char *text, size_t length);

#endif
