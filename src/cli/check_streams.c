/* cli/check_streams.c: see check_streams.h. */
#include "cli/check_streams.h"

#include "base/file.h"
#include "base/printable.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "estimate/measure.h"
#include "report/races.h"
#include "store/json_rows.h"
#include "store/result.h"

#include <stdio.h>

#define SCHEMA 1

/* How the run ended. Races in the part that it did not reach are unknown. */
enum end {
	END_UNKNOWN, /* it has no result: it still runs, or its supervisor was killed */
	END_GOOD,    /* by itself, or at the requested step */
	END_LATE,    /* its time limit passed */
	END_STOPPED, /* the user interrupted it */
	END_FAILED,
};

struct findings {
	struct neap_races races;
	struct neap_error err;
	enum neap_status status;
	enum end end;
	int exit_status; /* of the run */
};

static enum end end_of(enum neap_outcome outcome)
{
	return outcome == NEAP_OUTCOME_OK || outcome == NEAP_OUTCOME_STOPPED ? END_GOOD
	       : outcome == NEAP_OUTCOME_TIMEOUT                             ? END_LATE
	       : outcome == NEAP_OUTCOME_CANCELED                            ? END_STOPPED
									     : END_FAILED;
}

static void read_findings(void *context, const char *folder)
{
	struct findings *findings = context;
	struct neap_result result = {0};
	char path[4096];
	findings->status = neap_races_read(folder, &findings->races, &findings->err);
	if (neap_path_join(path, sizeof path, folder, "result.json") || neap_result_read(path, &result, NULL))
		return;
	findings->end = end_of(result.outcome);
	findings->exit_status = result.exit_status;
	neap_result_fini(&result);
}

static int run_command(const struct neap_arguments *arguments, struct findings *findings)
{
	struct neap_error err = {0};
	struct neap_check_figures figures = {0};
	struct estimate_progress progress = {0};
	const struct neap_check_command command = {.argv = neap_rest(arguments),
						   .steps = neap_argument(arguments, "steps"),
						   .time_limit = neap_argument(arguments, "time-limit"),
						   .gpu = neap_argument(arguments, "gpu"),
						   .apart = neap_argument(arguments, "json"),
						   .streams = neap_argument(arguments, "streams"),
						   .visit = read_findings,
						   .visit_context = findings,
						   .watch = {estimate_progress_go_on, &progress}};
	estimate_catch_signals();
	enum neap_status status = neap_check_measure_command(&command, &figures, &err);
	if (status == NEAP_ECANCELED)
		return 128 + estimate_interrupted();
	if (status && !(status == NEAP_ESTATE && !findings->races.watched))
		return neap_complain("check", &err);
	if (figures.exit_status)
		fprintf(stderr, "neap check: the command failed, exit status %d: this is what it did until then\n",
			figures.exit_status);
	return figures.exit_status;
}

/* Whether the list has all races. */
static bool is_whole(const struct findings *findings)
{
	return findings->end == END_GOOD && !neap_races_are_partial(&findings->races);
}

static int print_json(const struct findings *findings)
{
	const struct neap_races *races = &findings->races;
	size_t open = neap_races_open(races);
	return json_print("check",
			  JSON(INTEGER("schema", SCHEMA),
			       ONLY(races->watched && (open || is_whole(findings)), BOOL("ok", open == 0)),
			       VALUE("races", neap_races_json(races)),
			       VALUE("not_seen", neap_race_names_json(&races->not_seen)),
			       VALUE("limits", neap_race_names_json(&races->limits)), NUMBER("lost", races->lost)),
			  JSON_INDENT(2));
}

static void put_end(struct neap_buffer *out, const struct findings *findings)
{
	if (findings->end == END_UNKNOWN)
		neap_buffer_text(out, "; the run has no result");
	else if (findings->end == END_LATE)
		neap_buffer_text(out, "; the run's time limit passed");
	else if (findings->end == END_STOPPED)
		neap_buffer_text(out, "; the run was interrupted");
	else if (findings->end == END_FAILED)
		neap_buffer_format(out, "; the run failed with exit status %d", findings->exit_status);
}

static int print_text(const struct findings *findings)
{
	const struct neap_races *races = &findings->races;
	struct neap_buffer out = {0};
	struct neap_error err = {0};
	int code = 0;
	neap_races_text(&out, races);
	neap_buffer_format(&out, "neap check: %s: ",
			   neap_races_open(races) ? "FAILED"
			   : is_whole(findings)   ? "ok"
						  : "incomplete");
	neap_races_summary(&out, races);
	put_end(&out, findings);
	neap_buffer_text(&out, "\n");
	if (neap_buffer_status(&out, &err))
		code = neap_complain("check", &err);
	else
		fputs(neap_buffer_string(&out), stdout);
	neap_buffer_fini(&out);
	return code;
}

static int judge(const struct neap_arguments *arguments, struct findings *findings, int failed)
{
	struct neap_error err = {0};
	const char *accepted = neap_argument(arguments, "accept");
	if (findings->status)
		return neap_complain("check", &findings->err);
	if (accepted && neap_races_accept(&findings->races, accepted, &err))
		return neap_complain("check", &err);
	if (!findings->races.watched && neap_operand_count(arguments))
		failed = NEAP_EXIT_UNAVAILABLE;
	else if (!is_whole(findings) && !failed)
		failed = findings->exit_status ? findings->exit_status : NEAP_EXIT_UNAVAILABLE;
	if (!findings->races.watched && neap_operand_count(arguments))
		fputs("neap check: nothing was seen: 'neap run --streams' makes such a folder, of a program that "
		      "uses "
		      "a GPU through PyTorch on the simulator\n",
		      stderr);
	else if (!findings->races.watched && !neap_argument(arguments, "json"))
		fputs("neap check: no process used a GPU through PyTorch on the simulator: nothing was seen\n",
		      stderr);
	if (!findings->races.watched && !neap_argument(arguments, "json"))
		return failed ? failed : NEAP_EXIT_UNAVAILABLE;
	int code = neap_argument(arguments, "json") ? print_json(findings) : print_text(findings);
	if (code)
		return code;
	return neap_races_open(&findings->races) ? NEAP_EXIT_FAILED
	       : failed                          ? failed
	       : findings->races.watched         ? 0
						 : NEAP_EXIT_UNAVAILABLE;
}

int check_streams(const struct neap_arguments *arguments)
{
	static const char *const others[] = {"max-peak", "max-growth", "baseline", "tolerance", "save-baseline"};
	struct findings findings = {0};
	int failed = 0;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (neap_argument(arguments, others[i]))
			return neap_misuse(arguments, "--streams looks for races alone: leave out --%s", others[i]);
	/* A file that cannot be read is reported before the command runs. */
	if (neap_argument(arguments, "accept") &&
	    neap_races_accept(&findings.races, neap_argument(arguments, "accept"), &findings.err))
		return neap_complain("check", &findings.err);
	if (neap_operand_count(arguments))
		read_findings(&findings, neap_operand(arguments, 0));
	else
		failed = run_command(arguments, &findings);
	/* If the command was stopped, or could not be started, report only that. */
	int code =
		failed >= NEAP_EXIT_USAGE && !findings.races.watched ? failed : judge(arguments, &findings, failed);
	neap_races_fini(&findings.races);
	if (estimate_interrupted())
		code = 128 + estimate_interrupted();
	return code;
}
