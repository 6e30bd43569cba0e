/* cli/history_prune.c: see history_prune.h. Shows what will be deleted, asks, and checks each again when it deletes
 * it. */
#include "cli/history_prune.h"

#include "base/units.h"
#include "cli/history_report.h"
#include "cli/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --- options --- */

static int read_bounds(const struct neap_arguments *arguments, struct neap_prune_rules *rules)
{
	const char *max = neap_argument(arguments, "max"), *size = neap_argument(arguments, "max-total-size");
	const char *keep = neap_argument(arguments, "keep-last");
	struct neap_error err = {0};
	if (max && neap_u64_parse(max, &rules->max, &err) != NEAP_OK)
		return neap_misuse(arguments, "--max: %s", err.message);
	if (size && neap_size_parse(size, &rules->max_bytes, &err) != NEAP_OK)
		return neap_misuse(arguments, "--max-total-size: %s", err.message);
	if (keep && neap_u64_parse(keep, &rules->keep_last, &err) != NEAP_OK)
		return neap_misuse(arguments, "--keep-last: %s", err.message);
	rules->has_max = max != NULL;
	rules->has_max_bytes = size != NULL;
	return NEAP_EXIT_OK;
}

int history_prune_parse(const struct neap_arguments *arguments, const struct neap_history_filter *filter,
			struct history_prune_request *request)
{
	bool folders = neap_argument(arguments, "folders"), recordings = neap_argument(arguments, "recordings");
	bool prune = neap_argument(arguments, "prune");
	*request = (struct history_prune_request){
		.filter = *filter,
		.rules = {.recordings = recordings,
			  .series = filter->series,
			  .name = filter->name,
			  .outcome = filter->outcome,
			  .since_wall_ns = filter->since_wall_ns,
			  .until_wall_ns = filter->until_wall_ns},
		.folders = folders || recordings,
		.dry_run = neap_argument(arguments, "dry-run"),
		.yes = neap_argument(arguments, "yes"),
	};
	int code = read_bounds(arguments, &request->rules);
	if (code)
		return code;
	bool bounded = neap_argument(arguments, "max") || neap_argument(arguments, "max-total-size") ||
		       neap_argument(arguments, "keep-last");
	if (!prune && (request->dry_run || request->yes))
		return neap_misuse(arguments, "--dry-run and --yes are for --prune");
	if (!prune && (request->folders || bounded))
		return neap_misuse(arguments,
				   "--folders, --recordings, --max, --max-total-size and --keep-last are for "
				   "--prune");
	if (folders && recordings)
		return neap_misuse(arguments, "either --folders or --recordings: a folder goes with its recordings");
	if (bounded && !request->folders)
		return neap_misuse(arguments,
				   "--max, --max-total-size and --keep-last need --folders or --recordings: "
				   "the history has no size to speak of");
	if (prune && !bounded && !filter->until_wall_ns && !filter->since_wall_ns && !filter->series &&
	    !filter->name && !filter->outcome)
		return neap_misuse(arguments, "--prune: say which runs, with --older-than 90d for example");
	return NEAP_EXIT_OK;
}

/* `what`: "3 runs from the history", or whose folders. */
static bool may_prune(const struct history_prune_request *request, const char *what, int *ret_code)
{
	char question[128];
	bool asked = false;
	snprintf(question, sizeof question, "Delete %s", what);
	if (request->yes || print_confirm(question, &asked))
		return true;
	fputs(asked ? "neap history: nothing was deleted\n"
		    : "neap history: no terminal to ask on: give --yes to delete them, --dry-run to only look\n",
	      stderr);
	*ret_code = asked ? NEAP_EXIT_FAILED : NEAP_EXIT_USAGE;
	return false;
}

/* --- rows --- */

static int prune_rows(struct neap_history *history, const struct history_prune_request *request)
{
	struct neap_error err = {0};
	uint64_t found = 0, deleted = 0;
	char what[64];
	int code = NEAP_EXIT_OK;
	if (history && neap_history_count(history, &request->filter, &found, &err) != NEAP_OK)
		return neap_complain("history", &err);
	if (found == 0 || request->dry_run) {
		printf("%s %" PRIu64 " run%s\n", request->dry_run ? "Would delete" : "Deleted", found,
		       found == 1 ? "" : "s");
		return NEAP_EXIT_OK;
	}
	snprintf(what, sizeof what, "%" PRIu64 " run%s from the history", found, found == 1 ? "" : "s");
	if (!may_prune(request, what, &code))
		return code;
	if (neap_history_prune(history, &request->filter, &deleted, &err) != NEAP_OK)
		code = neap_complain("history", &err);
	if (!code || deleted) /* the rows are deleted even if their space could not be given back */
		printf("Deleted %" PRIu64 " run%s from the history; their folders stay\n", deleted,
		       deleted == 1 ? "" : "s");
	return code;
}

/* --- folders --- */

/* "the folders of 3 runs" */
static void put_what(char what[96], size_t count, bool recordings)
{
	const char *plural = count == 1 ? "" : "s";
	if (recordings)
		snprintf(what, 96, "the recordings of %zu run%s", count, plural);
	else
		snprintf(what, 96, "the folder%s of %zu run%s", plural, count, plural);
}

static void print_plan(const struct neap_prune *prune, bool recordings, size_t *ret_count, uint64_t *ret_bytes)
{
	char time[32], size[NEAP_UNITS_CAPACITY];
	for (size_t i = prune->count; i-- > 0;) {
		const struct neap_prune_run *run = &prune->runs[i];
		uint64_t bytes = recordings ? run->recording_bytes : run->bytes;
		if (!run->goes)
			continue;
		++*ret_count;
		*ret_bytes += bytes;
		history_time(run->ended_wall_ns, time);
		printf("  %s  %10s  %s\n", time, neap_size_format(bytes, size), NEAP_PRINTABLE(run->folder));
	}
}

static int print_done(const struct neap_prune_done *done, bool recordings)
{
	char what[96], size[NEAP_UNITS_CAPACITY];
	put_what(what, done->runs, recordings);
	printf("Deleted %s: %s are free now. The history keeps what is known of them.\n", what,
	       neap_size_format(done->bytes, size));
	if (done->busy)
		printf("%zu run%s begun meanwhile: left alone\n", done->busy, done->busy == 1 ? " was" : "s were");
	if (done->foreign)
		printf("%zu folder%s neap did not make all of: left alone (%s)\n", done->foreign,
		       done->foreign == 1 ? "" : "s", NEAP_PRINTABLE(done->foreign_path));
	return done->failed ? neap_complain("history", &done->error) : NEAP_EXIT_OK;
}

static int prune_folders(const char *state_folder, const struct history_prune_request *request)
{
	const struct neap_prune_rules *rules = &request->rules;
	struct neap_prune prune = {0};
	struct neap_prune_done done = {0};
	struct neap_error err = {0};
	char what[96], size[NEAP_UNITS_CAPACITY];
	size_t count = 0;
	uint64_t bytes = 0;
	int code = NEAP_EXIT_OK;
	if (neap_prune_scan(state_folder, rules->recordings, rules->name || rules->outcome, &prune, &err)) {
		code = neap_complain("history", &err);
		goto out;
	}
	neap_prune_plan(&prune, rules);
	print_plan(&prune, rules->recordings, &count, &bytes);
	put_what(what, count, rules->recordings);
	if (prune.busy)
		printf("%zu under way, or of a series that is not finished: left alone\n", prune.busy);
	if (request->dry_run || !count) {
		printf("%s %s, %s\n", request->dry_run ? "Would delete" : "Deleted", what,
		       neap_size_format(bytes, size));
		goto out;
	}
	if (!may_prune(request, what, &code))
		goto out;
	neap_prune_apply(&prune, rules->recordings, &done);
	code = print_done(&done, rules->recordings);
out:
	neap_prune_fini(&prune);
	return code;
}

int history_prune(struct neap_history *history, const char *state_folder, const struct history_prune_request *request)
{
	return request->folders ? prune_folders(state_folder, request) : prune_rows(history, request);
}
