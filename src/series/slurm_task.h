/* series/slurm_task.h: one task of a job array, on the machine that Slurm chose.
 *
 *   FOLDER/slurm/series.yaml   the series file as it was when the series began
 *   FOLDER/slurm/N.json        {"schema":1,"spec_hash":H,"tasks":[{"task":1,"experiment":E,"attempt":A,"run_id":ID,
 *                              "needs":B},...]}: written whole before submission N, never changed
 *
 * The task claims its attempt (series/slurm_claim.h) and becomes `neap run`. It writes nothing but into the attempt's
 * folder: journal and history are the submitting machine's. A task that Slurm requeued finds its attempt claimed by
 * itself and takes the next number.
 */
#ifndef NEAP_SERIES_SLURM_TASK_H
#define NEAP_SERIES_SLURM_TASK_H

#include "base/units.h"
#include "series/spec.h"
#include "series/supervise.h"

struct neap_slurm_task {
	uint32_t task;
	size_t experiment; /* of the spec */
	uint32_t attempt;  /* the first; requeued ones count on */
	char run_id[NEAP_RUN_ID_ROOM];
	char needs[NEAP_UNITS_ROOM];
};

/* Errors: NEAP_ENOMEM, and of writing a file. */
enum neap_status neap_slurm_tasks_write(const char *path, const struct neap_spec *spec,
					const struct neap_slurm_task *tasks, size_t count, struct neap_error *err);

/* The one with this number. Errors: NEAP_ENOENT, also when there is none; NEAP_EPARSE, also for another spec. */
enum neap_status neap_slurm_tasks_read(const char *path, const struct neap_spec *spec, uint32_t number,
				       struct neap_slurm_task *ret_task, struct neap_error *err);

/* The id of a run that Slurm has requeued. */
void neap_slurm_run_id(const char *first, uint32_t restarts, char run_id[NEAP_RUN_ID_ROOM]);

/* Runs the task that SLURM_ARRAY_TASK_ID names: on success this process has become the supervisor and does not
 * return. NEAP_OK: there is nothing to do, and `note` (room for 256) says why. Errors: NEAP_EINVAL outside of a job
 * array. */
enum neap_status neap_slurm_task_run(const struct neap_spec *spec, const char *folder, uint32_t submission,
				     const char *program, char *note, struct neap_error *err);

#endif
