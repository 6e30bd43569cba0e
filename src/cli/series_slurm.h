/* cli/series_slurm.h: the part of `neap series` that only --slurm needs. */
#ifndef NEAP_CLI_SERIES_SLURM_H
#define NEAP_CLI_SERIES_SLURM_H

#include "cli/command.h"
#include "slurm/slurm.h"

/* The command that continues a series, after "neap series", as it can be pasted into a shell, with the option `more`
 * (NULL: none). malloc, or NULL. */
char *series_continue_command(const struct neap_series_options *options, const char *more);

/* Submits, checks or gathers. Returns the exit code; `*ret_report`: there is one, and the summary has it. */
int series_slurm_run(const struct neap_spec *spec, const struct neap_slurm_options *options,
		     struct neap_slurm_summary *summary, bool *ret_report);

/* Prints the job arrays, the argv of sbatch and its script, after the plan that any series prints. */
int series_slurm_print_plan(const struct neap_spec *spec, const struct neap_slurm_options *options);

/* Runs as a task of a job array: becomes `neap run`. */
int series_slurm_task(const struct neap_arguments *arguments, const struct neap_spec *spec, const char *program);

#endif
