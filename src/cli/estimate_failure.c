/* cli/estimate_failure.c: see estimate_failure.h. */
#include "cli/estimate_failure.h"

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/run_folder.h"
#include "estimate/runs.h"
#include "run/folder_text.h"
#include "run/run_stage.h"

#include <inttypes.h>
#include <string.h>

#define LAST_LINES 12

/* Prints how the program failed, and the end of its output. A launcher's summary hides the error of its rank. */
static void print_failure(const struct neap_result *result, const char *folder)
{
	struct neap_buffer text = {0};
	neap_run_folder_last_lines(&text, folder, LAST_LINES);
	bool shown = strstr(neap_buffer_string(&text), result->error_line) != NULL;
	if (result->outcome != NEAP_OUTCOME_TIMEOUT)
		fprintf(stderr, "neap estimate: the program failed (%s, exit status %d)%s%s. The last it wrote:\n",
			neap_outcome_name(result->outcome), result->exit_status, shown ? "" : ": ",
			shown ? "" : NEAP_PRINTABLE(result->error_line));
	print_safe_lines(stderr, neap_buffer_string(&text));
	neap_buffer_fini(&text);
}

/* Whether a program of several ranks found only one GPU on the simulated machine. */
static bool asks_for_more_gpus(const char *folder)
{
	struct neap_buffer text = {0};
	char path[NEAP_ESTIMATE_CAPACITY];
	bool asks = neap_path_join(path, sizeof path, folder, "stderr.log") == NEAP_OK &&
		    neap_file_read(path, 64u << 20, &text, NULL) == NEAP_OK &&
		    strstr(neap_buffer_string(&text), "invalid device ordinal");
	neap_buffer_fini(&text);
	return asks;
}

/* Prints the file that the program could not write, if there is one. */
static void print_refusal(const struct neap_view_facts *view)
{
	if (view->full)
		fprintf(stderr,
			"neap estimate: what the program writes is bounded at %s, half of the free host memory: "
			"--in-place lets it write to its disk\n",
			NEAP_SIZE(view->limit_bytes));
	else if (*view->refused)
		fprintf(stderr,
			"neap estimate: %s was not written (%s): an estimate changes none of your files; "
			"--in-place lets it\n",
			NEAP_PRINTABLE(view->refused), view->reason);
}

/* Prints a value that the program read and nobody computed: the program may have failed by it. */
static void print_unknown_read(const struct neap_estimate_run *run)
{
	const struct neap_estimate_read *read = &run->reads[0];
	if (!run->computed || !run->read_count)
		return;
	fprintf(stderr,
		"neap estimate: the program read a value that was not computed here, only a likely one: %s:%" PRIu64
		" %s: %s. --values full computes all of them\n",
		NEAP_PRINTABLE(read->file), read->line, NEAP_PRINTABLE(read->function), NEAP_PRINTABLE(read->reader));
}

int estimate_explain_failure(const struct neap_estimate_run *run, const char *folder, const char *gpu,
			     enum neap_status status, const struct neap_error *err)
{
	const struct neap_result *result = &run->result;
	bool failed = result->outcome != NEAP_OUTCOME_OK && result->outcome != NEAP_OUTCOME_STOPPED;
	if (!result->name && run->view.kind == NEAP_VIEW_UNKNOWN) {
		fputs("neap estimate: the process that isolates the run was killed\n", stderr);
		return NEAP_EXIT_OS;
	}
	if (!result->name && neap_run_stage_resolve(folder) == NEAP_STAGE_BEGAN) {
		run_folder_print_lost("estimate", stderr);
		return NEAP_EXIT_FAILED;
	}
	if (!result->name) /* `neap run` failed, and has printed why */
		return neap_complain("estimate", err);
	if (result->outcome == NEAP_OUTCOME_NOT_FOUND) {
		fprintf(stderr, "neap estimate: %s\n", NEAP_PRINTABLE(result->evidence));
		return result->exit_status;
	}
	print_unknown_read(run);
	if (result->outcome == NEAP_OUTCOME_TIMEOUT)
		fprintf(stderr, "neap estimate: the time limit ended the program before it used the GPU, or it did "
				"not end when it was asked to: --time-limit\n");
	else if (!failed && status == NEAP_ENOENT)
		fprintf(stderr, "neap estimate: the program ended without using the GPU through PyTorch\n");
	else if (!failed)
		neap_complain("estimate", err);
	if (failed)
		print_failure(result, folder);
	print_refusal(&run->view);
	if (asks_for_more_gpus(folder))
		fprintf(stderr,
			"neap estimate: the program used a GPU that is not there: name as many as it uses, as in "
			"--gpu 8x%s\n",
			gpu);
	if (result->not_attached[0])
		fprintf(stderr, "neap estimate: not attached: %s\n", NEAP_PRINTABLE(result->not_attached));
	run_folder_print_notes(folder, stderr);
	return NEAP_EXIT_FAILED;
}
