/* series/slurm_text.h: what Slurm's commands print, read strictly: everything here is from outside. Pure.
 *
 *   sbatch --parsable                                  JOB[;CLUSTER]
 *   squeue --array --format=%F|%K|%T|%r|%N             JOB|TASK|STATE|REASON|NODES
 *   sacct --parsable2 --format=JobID,State,NodeList    JOB_TASK|STATE[ by UID]|NODES
 *   scontrol show config                               MaxArraySize = N, among much else
 *   the task's output                                  slurmstepd's own last words
 */
#ifndef NEAP_SERIES_SLURM_TEXT_H
#define NEAP_SERIES_SLURM_TEXT_H

#include "neap/status.h"

#include <stddef.h>
#include <stdint.h>

/* What Slurm's states come to for us. */
enum neap_slurm_state {
	NEAP_SLURM_GONE = 0, /* Slurm knows of no such task (any more) */
	NEAP_SLURM_PENDING,
	NEAP_SLURM_RUNNING, /* and everything else that is not over, names that we do not know included */
	NEAP_SLURM_COMPLETED,
	NEAP_SLURM_FAILED,
	NEAP_SLURM_TIMEOUT,
	NEAP_SLURM_OUT_OF_MEMORY, /* the host's: its control group's limit */
	NEAP_SLURM_CANCELLED,
	NEAP_SLURM_PREEMPTED,
	NEAP_SLURM_NODE_FAIL,
};

/* "pending", "out of memory", ...; never NULL. */
const char *neap_slurm_state_name(enum neap_slurm_state state);

#define NEAP_SLURM_WORD_ROOM 64

struct neap_slurm_seen {
	uint32_t job, task;
	enum neap_slurm_state state;
	char reason[NEAP_SLURM_WORD_ROOM], nodes[NEAP_SLURM_WORD_ROOM]; /* printable, cut; "" none */
};

/* One line without its end. Errors, with nothing filled in: NEAP_ENOENT for a job that is no task of an array,
 * NEAP_EPARSE for what the format does not allow. */
enum neap_status neap_slurm_squeue_line(const char *line, size_t length, struct neap_slurm_seen *ret_seen);
enum neap_status neap_slurm_sacct_line(const char *line, size_t length, struct neap_slurm_seen *ret_seen);

/* The job's number. Lines before the last one are passed over: sites print notices. Errors: NEAP_EPARSE. */
enum neap_status neap_slurm_sbatch_answer(const char *text, size_t length, uint32_t *ret_job, struct neap_error *err);

/* Errors: NEAP_EPARSE when it is not there. */
enum neap_status neap_slurm_max_array(const char *text, size_t length, uint32_t *ret_size);

/* Why slurmstepd says, at the end of a task's output, that it ended it; NEAP_SLURM_GONE: it does not say. */
enum neap_slurm_state neap_slurm_last_words(const char *text, size_t length);

#endif
