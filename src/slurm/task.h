/* slurm/task.h: runs one task of a job array, on the machine that Slurm chose.
 *
 * It reads FOLDER/slurm/series.yaml, the series file as it was when the array was submitted. From the journal it
 * reads the array's experiments, which of them have not ended, and how many attempts each has had. Task K begins at
 * the K-th experiment and goes round the list: of the experiments' next attempts it claims the first that no other
 * task has claimed (slurm/claim.h), and becomes `neap run`. A task that Slurm requeued finds the attempt that it had
 * claimed and continues with the attempt after it.
 *
 * It writes only into the attempt's folder: the journal and the history belong to the machine that submits.
 */
#ifndef NEAP_SLURM_TASK_H
#define NEAP_SLURM_TASK_H

#include "series/spec.h"

/* Runs the task that SLURM_ARRAY_TASK_ID names: on success this process has become the supervisor and does not
 * return. NEAP_OK: nothing is left to run. `say` prints a line on the task's output, after "neap series: ". Errors:
 * NEAP_EINVAL outside a job array. */
enum neap_status neap_slurm_task_run(const struct neap_spec *spec, const char *folder, uint32_t submission,
				     const char *program, void (*say)(const char *line), struct neap_error *err);

#endif
