/* slurm/task.h: one task of a job array, on the machine that Slurm chose.
 *
 *   FOLDER/slurm/series.yaml   the series file as it was when the series began
 *   FOLDER/slurm/N.json        {"schema":2,"spec_hash":H,"experiments":[{"name":E,"attempt":A,"needs":B},...]}: what
 *                              the tasks of submission N run; written whole before it, never changed
 *
 * Task K begins at the K-th experiment and goes round the list: it claims the first attempt that no other task has
 * claimed (slurm/claim.h), and becomes `neap run`. It writes into the attempt's folder only: the journal and
 * the history belong to the machine that submits. A task that Slurm requeued finds the attempt that it had claimed
 * itself, and goes on with the attempt after it.
 */
#ifndef NEAP_SLURM_TASK_H
#define NEAP_SLURM_TASK_H

#include "base/units.h"
#include "series/spec.h"

/* What is to be run. */
struct neap_slurm_work {
	size_t experiment; /* of the spec */
	uint32_t attempt;  /* the first that no task of an earlier submission may have begun */
	char needs[NEAP_UNITS_ROOM];
};

/* Errors: NEAP_ENOMEM, and of writing a file. */
enum neap_status neap_slurm_work_write(const char *path, const struct neap_spec *spec,
				       const struct neap_slurm_work *work, size_t count, struct neap_error *err);

/* *ret_work: the caller's to free. Errors: NEAP_ENOENT; NEAP_EPARSE, also for another spec; NEAP_ENOMEM. */
enum neap_status neap_slurm_work_read(const char *path, const struct neap_spec *spec,
				      struct neap_slurm_work **ret_work, size_t *ret_count, struct neap_error *err);

/* Runs the task that SLURM_ARRAY_TASK_ID names: on success this process has become the supervisor and does not
 * return. NEAP_OK: nothing is left to run. `say` prints a line on the task's output, after "neap series: ". Errors:
 * NEAP_EINVAL outside of a job array. */
enum neap_status neap_slurm_task_run(const struct neap_spec *spec, const char *folder, uint32_t submission,
				     const char *program, void (*say)(const char *line), struct neap_error *err);

#endif
