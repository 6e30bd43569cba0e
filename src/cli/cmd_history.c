/* cli/cmd_history.c: `neap history`: lists, shows, compares, exports and prunes past runs. */
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/history_prune.h"
#include "cli/history_report.h"
#include "cli/print.h"
#include "run/recover.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIST_MOST    25
#define COMPARE_MOST 8

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_history = {
	.name = "history",
	.usage = "[RUN...] [--log] [--series S] [--name N] [--outcome O] [--since WHEN] [--limit N] [--json|--csv] | "
		 "--prune "
		 "...",
	.summary = "past runs: list, show, compare, export, prune",
	.details = neap_help_history,
	.options =
		(const struct neap_option[]){
			{"series", "S", "only runs of this series"},
			{"name", "N", "only runs of this name"},
			{"outcome", "O", "only those with this outcome: ok, oom, failed, ..."},
			{"since", "WHEN", "only those that ended since then"},
			{"older-than", "WHEN", "only those that ended before then"},
			{"limit", "N", "at most N, the newest (default 25 for people; 0: all)"},
			{"log", NULL, "the output of one RUN, from its folder"},
			{"json", NULL, "export as JSON"},
			{"csv", NULL, "export as CSV"},
			{"prune", NULL, "delete the runs that the filters find"},
			{"folders", NULL, "with --prune: delete the runs' folders, not their rows in the history"},
			{"recordings", NULL, "with --prune: delete only the recordings in the runs' folders"},
			{"max", "N", "with these two: keep at most N runs, the newest"},
			{"max-total-size", "SIZE", "with these two: keep at most this much, of the newest (1GiB)"},
			{"keep-last", "N", "with these two: keep the newest N, whatever their age and size"},
			{"dry-run", NULL, "with --prune: only show what would be deleted"},
			{"yes", NULL, "with --prune: do not ask"},
			{NULL, NULL, NULL},
		},
	.operands_min = 0,
	.operands_max = COMPARE_MOST + 1,
	.run = run,
};

struct request {
	struct neap_history_filter filter;
	char outcome[32];
	bool json, csv, prune, limited, log;
	size_t first; /* of the operands that name runs: `history show RUN` is `history RUN` */
	struct history_prune_request pruning;
};

/* --- options --- */

static bool read_outcome(const char *text, char outcome[32])
{
	snprintf(outcome, 32, "%s", text);
	for (char *c = outcome; *c; c++)
		if (*c == '-' || *c == '_')
			*c = ' ';
	enum neap_outcome known;
	return neap_outcome_named(outcome, &known);
}

static int misuse_outcome(const struct neap_arguments *arguments, const char *text)
{
	char list[256] = "";
	for (int i = 0; i < NEAP_OUTCOME_COUNT; i++)
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
			 neap_outcome_name((enum neap_outcome)i));
	return neap_misuse(arguments, "--outcome %s: expected one of %s", text, list);
}

static int read_request(const struct neap_arguments *arguments, struct request *request)
{
	const char *since = neap_argument(arguments, "since"), *older = neap_argument(arguments, "older-than");
	const char *outcome = neap_argument(arguments, "outcome"), *limit = neap_argument(arguments, "limit");
	struct neap_history_filter *filter = &request->filter;
	struct neap_error err = {0};
	filter->series = neap_argument(arguments, "series");
	filter->name = neap_argument(arguments, "name");
	request->json = neap_argument(arguments, "json");
	request->csv = neap_argument(arguments, "csv");
	request->prune = neap_argument(arguments, "prune");
	request->limited = limit;
	request->log = neap_argument(arguments, "log");
	size_t operands = neap_operand_count(arguments);
	request->first = operands > 1 && !strcmp(neap_operand(arguments, 0), "show");
	if (since && !neap_history_time_parse(since, neap_wall_ns(), &filter->since_wall_ns))
		return neap_misuse(arguments, "--since %s: expected a time such as 2d or 2026-11-20", since);
	if (older && !neap_history_time_parse(older, neap_wall_ns(), &filter->until_wall_ns))
		return neap_misuse(arguments, "--older-than %s: expected a time such as 90d or 2026-11-20", older);
	if (outcome && !read_outcome(outcome, request->outcome))
		return misuse_outcome(arguments, outcome);
	filter->outcome = outcome ? request->outcome : NULL;
	if (limit && neap_u64_parse(limit, &filter->limit, &err) != NEAP_OK)
		return neap_misuse(arguments, "--limit: %s", err.message);
	if (operands - request->first > COMPARE_MOST)
		return neap_misuse(arguments, "at most %d runs", COMPARE_MOST);
	if (request->log && (operands - request->first != 1 || request->json || request->csv))
		return neap_misuse(arguments, "--log shows what one RUN wrote, without --json and --csv");
	if (request->json && request->csv)
		return neap_misuse(arguments, "either --json or --csv");
	if (request->prune && (neap_operand_count(arguments) || limit || request->json || request->csv))
		return neap_misuse(arguments,
				   "--prune goes with --older-than, --since, --series, --name and --outcome "
				   "only, and with --folders or --recordings");
	return history_prune_parse(arguments, filter, &request->pruning);
}

static void report_lost(const char *folder, const struct neap_error *err)
{
	fprintf(stderr, "neap history: the run in %s is not in the history: %s\n", folder, err->message);
}

/* --- list and export --- */

struct listing {
	const struct request *request;
	size_t count;
	enum neap_status status;
	struct neap_error err;
};

static bool list_one(void *context, struct neap_history_run *run)
{
	struct listing *listing = context;
	if (listing->request->json)
		listing->status = history_print_json(listing->count, run, &listing->err);
	else if (listing->request->csv)
		history_print_csv(listing->count, run);
	else
		history_print_row(listing->count, run);
	listing->count++;
	return listing->status == NEAP_OK;
}

/* Explains that no run was found: because of the filters, or because no run has finished yet. */
static enum neap_status print_none(struct neap_history *history, const struct neap_run_unfinished *unfinished,
				   struct neap_error *err)
{
	const struct neap_history_filter every = {0};
	uint64_t count = 0;
	enum neap_status status = history ? neap_history_count(history, &every, &count, err) : NEAP_OK;
	if (status)
		return status;
	if (count > 0) {
		puts("No run matches.");
	} else if (unfinished->running || unfinished->draining) {
		fputs("No finished runs yet:", stdout);
		if (unfinished->running)
			printf(" %zu running%s", unfinished->running, unfinished->draining ? "," : "");
		if (unfinished->draining)
			printf(" %zu draining (command ended, device memory not free yet)", unfinished->draining);
		puts("");
	} else {
		puts("No runs yet: neap run -- COMMAND adds one when it ends.");
	}
	return NEAP_OK;
}

static int list(struct neap_history *history, struct request *request, const struct neap_run_unfinished *unfinished)
{
	struct listing listing = {.request = request};
	struct neap_error err = {0};
	uint64_t found = 0;
	bool newest = !request->json && !request->csv && !request->limited;
	enum neap_status status =
		history && newest ? neap_history_count(history, &request->filter, &found, &err) : NEAP_OK;
	if (newest)
		request->filter.limit = LIST_MOST;
	request->filter.depth = request->json  ? NEAP_HISTORY_WHOLE
				: request->csv ? NEAP_HISTORY_FIELDS
					       : NEAP_HISTORY_LISTED;
	if (!status && history)
		status = neap_history_find(history, &request->filter, list_one, &listing, &err);
	if (!status && !listing.count && !request->json && !request->csv)
		status = print_none(history, unfinished, &err);
	if (status || listing.status != NEAP_OK)
		return neap_complain("history", status != NEAP_OK ? &err : &listing.err);
	if (request->json)
		history_end_json(listing.count);
	else if (found > LIST_MOST)
		printf("%" PRIu64 " earlier run%s: --limit 0 shows all\n", found - LIST_MOST,
		       found == LIST_MOST + 1 ? "" : "s");
	return NEAP_EXIT_OK;
}

/* --- one run, or several --- */

static int show(struct neap_history *history, const struct neap_arguments *arguments, const struct request *request)
{
	struct neap_history_chosen chosen[COMPARE_MOST] = {0};
	struct neap_history_run runs[COMPARE_MOST];
	struct neap_error err = {0};
	size_t wanted = neap_operand_count(arguments) - request->first, count = 0;
	enum neap_status status = NEAP_OK;
	if (!history)
		status = neap_fail(&err, NEAP_ENOENT, "the history is empty");
	for (; !status && count < wanted; count += status == NEAP_OK)
		status = neap_history_choose(history, neap_operand(arguments, request->first + count), &chosen[count],
					     &err);
	for (size_t i = 0; i < count; i++)
		runs[i] = (struct neap_history_run){chosen[i].series, "", &chosen[i].result};
	for (size_t i = 0; !status && i < count; i++) {
		if (request->json)
			status = history_print_json(i, &runs[i], &err);
		else if (request->csv)
			history_print_csv(i, &runs[i]);
	}
	if (!status && request->json)
		history_end_json(count);
	else if (!status && request->log)
		history_print_log(&runs[0]);
	else if (!status && !request->csv && count == 1)
		history_print_run(&runs[0]);
	else if (!status && !request->csv)
		history_print_compared(runs, count);
	for (size_t i = 0; i < count; i++)
		neap_history_chosen_fini(&chosen[i]);
	return status == NEAP_OK ? NEAP_EXIT_OK : neap_complain("history", &err);
}

static int run(const struct neap_arguments *arguments)
{
	struct neap_history *history = NULL;
	struct neap_run_unfinished unfinished = {0};
	struct request request = {0};
	struct neap_error err = {0};
	char state[4096], path[4096], note[512] = "";
	int code = read_request(arguments, &request);
	if (code)
		return code;
	enum neap_status status = neap_path_state(state, sizeof state, &err);
	if (!status)
		status = neap_path_join(path, sizeof path, state, "history.db");
	if (!status && access(path, F_OK) == 0) /* a command that only reads does not create a history */
		status = neap_history_open(path, &history, note, &err);
	if (note[0])
		fprintf(stderr, "neap history: %s\n", NEAP_PRINTABLE(note));
	if (!status)
		neap_run_recover_all(state, path, &history, report_lost, &unfinished);
	if (status)
		code = neap_complain("history", &err);
	else if (request.prune)
		code = history_prune(history, state, &request.pruning);
	else if (neap_operand_count(arguments) > 0)
		code = show(history, arguments, &request);
	else
		code = list(history, &request, &unfinished);
	neap_history_close(history);
	return code;
}
