/* cli/series_slurm.c: see series_slurm.h. */
#include "cli/series_slurm.h"

#include "base/error.h"
#include "base/units.h"
#include "cli/print.h"
#include "slurm/task.h"

#include <inttypes.h>
#include <stdlib.h>

/* Prints "12,13": the jobs that have tasks under way, with `between` between them. */
static void print_jobs(const struct neap_slurm_summary *summary, const char *between)
{
	for (size_t i = 0; i < summary->job_count; i++)
		printf("%s%" PRIu32, i ? between : "", summary->jobs[i]);
	printf("\n");
}

char *series_continue_command(const struct neap_series_options *options, const char *more)
{
	struct neap_argv argv = {0};
	char *text = NULL;
	if (!neap_argv_add(&argv, options->file) && (!more || !neap_argv_add(&argv, more)) &&
	    !neap_argv_add(&argv, "--resume") &&
	    (!options->folder || (!neap_argv_add(&argv, "--folder") && !neap_argv_add(&argv, options->folder))))
		text = neap_argv_join(&argv);
	neap_argv_fini(&argv);
	return text;
}

static void print_unfinished(const struct neap_slurm_summary *summary, const struct neap_slurm_options *options)
{
	char *command = series_continue_command(&options->series, "--slurm");
	const char *rest = command ? command : "FILE --slurm --resume";
	if (summary->submitted && summary->job_count) {
		printf("follow   squeue --array --jobs=");
		print_jobs(summary, ",");
		printf("cancel   scancel ");
		print_jobs(summary, " ");
		printf("gather   neap series %s\n", NEAP_PRINTABLE(rest));
	} else {
		fprintf(stderr, "neap series: %zu experiment%s left: %zu running, %zu pending", summary->series.left,
			summary->series.left == 1 ? "" : "s", summary->running, summary->pending);
		if (summary->waiting)
			fprintf(stderr, ", %zu to be submitted again", summary->waiting);
		fprintf(stderr, "; continue with: neap series %s\n", NEAP_PRINTABLE(rest));
	}
	free(command);
}

int series_slurm_run(const struct neap_spec *spec, const struct neap_slurm_options *options,
		     struct neap_slurm_summary *summary, bool *ret_report)
{
	struct neap_error err = {0};
	*ret_report = false;
	if (neap_slurm_run(spec, options, summary, &err)) {
		err.line = 0; /* the message already has the place, with the file's name */
		int code = neap_complain("series", &err);
		if (summary->begun)
			print_unfinished(summary, options);
		return code;
	}
	if (*summary->series.report) {
		*ret_report = true;
		return summary->series.failed ? NEAP_EXIT_FAILED : NEAP_EXIT_OK;
	}
	print_unfinished(summary, options);
	/* The loop 'until neap series FILE --slurm --resume; do sleep 60; done' must not end before the series. */
	bool begun = summary->submitted && !options->series.resume && !options->wait;
	return begun ? NEAP_EXIT_OK : NEAP_EXIT_TRY_AGAIN;
}

static void print_submission(const struct neap_slurm_plan *plan, size_t i, const char *folder, bool in_turn,
			     const struct neap_buffer *script)
{
	printf("\nSubmission %zu of %zu, %zu task%s: %s/slurm/%zu.sh%s\n\n", i + 1, plan->count,
	       plan->batches[i].count, plan->batches[i].count == 1 ? "" : "s", NEAP_PRINTABLE(folder), i + 1,
	       i && in_turn ? ", after the one before" : "");
	print_safe_lines(stdout, neap_buffer_string(script));
}

int series_slurm_print_plan(const struct neap_spec *spec, const struct neap_slurm_options *options)
{
	struct neap_slurm_plan plan = {0};
	struct neap_error err = {0};
	char folder[4096];
	enum neap_status status = neap_slurm_plan_first(spec, options, &plan, folder, &err);
	for (size_t i = 0; i < plan.count && !status; i++) {
		struct neap_argv argv = {0};
		struct neap_buffer script = {0};
		uint32_t number = (uint32_t)i + 1;
		status = neap_slurm_argv(spec, &plan.batches[i], folder, number, 0, false, &argv, &err);
		if (!status)
			status = neap_slurm_script(spec, &argv, options->series.program, folder, number, &script,
						   &err);
		if (!status)
			print_submission(&plan, i, folder, spec->has_parallel, &script);
		neap_argv_fini(&argv);
		neap_buffer_fini(&script);
	}
	neap_slurm_plan_fini(&plan);
	return status ? neap_complain("series", &err) : NEAP_EXIT_OK;
}

static void report(const char *line) { fprintf(stderr, "neap series: %s\n", NEAP_PRINTABLE(line)); }

int series_slurm_task(const struct neap_arguments *arguments, const struct neap_spec *spec, const char *program)
{
	struct neap_error err = {0};
	uint64_t submission = 0;
	const char *folder = neap_argument(arguments, "folder"), *text = neap_argument(arguments, "slurm-task");
	if (neap_u64_parse(text, &submission, &err) || !submission || submission > UINT32_MAX || !folder)
		return neap_misuse(arguments, "--slurm-task is for the script that --slurm writes");
	if (neap_slurm_task_run(spec, folder, (uint32_t)submission, program, report, &err))
		return neap_complain("series", &err);
	return NEAP_EXIT_OK;
}
