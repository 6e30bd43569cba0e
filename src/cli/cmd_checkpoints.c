/* cli/cmd_checkpoints.c: `neap checkpoints`: plans every folder first, and carries the plans out only if all succeed.
 * A deleted checkpoint can be restored for a day, so the command asks only if it could not be. */
#include "base/array.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/checkpoints_report.h"
#include "cli/command.h"
#include "cli/print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define DAY_NS        (86400.0 * 1e9)
#define DAYS_MOST     100000.0
#define HINT_LOOKS    2000 /* folders that are read for the hint alone */
#define TRASH_MOST_NS (UINT64_C(3650) * 86400 * 1000000000)

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_checkpoints = {
	.name = "checkpoints",
	.usage = "DIR... [--dry-run] [--keep-best N] [--keep-last N] [--older-than-days D] [--max N] "
		 "[--max-total-size SIZE] ...",
	.summary = "keep the best and the newest checkpoints of a folder, delete old ones",
	.details = neap_help_checkpoints,
	.options =
		(const struct neap_option[]){
			{"dry-run", NULL, "only show what would be done"},
			{"keep-best", "N", "keep the best N by the metric (default 5; 0: none)"},
			{"keep-last", "N", "keep the newest N"},
			{"keep-every", "STEPS", "keep those whose step is a multiple of STEPS"},
			{"older-than-days", "D", "delete older ones (default 7; 0: any age)"},
			{"max", "N", "keep at most N, whatever their age: the newest, and the best"},
			{"max-total-size", "SIZE", "keep at most this much, likewise (20GiB)"},
			{"metric", "NAME", "best by this metric (val_loss)"},
			{"mode", "min|max", "whether a low or a high value is better"},
			{"pin", "PATTERN", "never delete these; may be given several times"},
			{"resume-from", "NAME", "the checkpoint to resume from: never deleted"},
			{"grace", "TIME", "leave checkpoints alone that changed within this time (default 10m)"},
			{"pattern", "PATTERN", "which names are checkpoints (default: the usual ones)"},
			{"trash-ttl", "TIME", "how long a deleted one can be restored (default 1d; 0: not at all)"},
			{"recursive", NULL, "the folders below DIR too, each judged by itself"},
			{"restore", "PATTERN", "bring back from the trash: '*' for all"},
			{"empty-trash", NULL, "delete the contents of the trash now"},
			{"yes", NULL, "do not ask"},
			{"json", NULL, "one JSON object"},
			{NULL, NULL, NULL},
		},
	.operands_min = 1,
	.operands_max = 1000,
	.run = run,
};

struct request {
	struct neap_retention_options rules;
	char **pins;
	const char *restore;
	bool empty_trash, dry_run, yes, json, recursive;
};

/* --- options --- */

static int read_count(const struct neap_arguments *arguments, const char *option, uint64_t *ret_count)
{
	const char *text = neap_argument(arguments, option);
	struct neap_error err = {0};

	if (text && neap_u64_parse(text, ret_count, &err) != NEAP_OK)
		return neap_misuse(arguments, "--%s: %s", option, err.message);
	return NEAP_EXIT_OK;
}

static int read_time(const struct neap_arguments *arguments, const char *option, uint64_t *ret_ns)
{
	const char *text = neap_argument(arguments, option);
	struct neap_error err = {0};

	if (text && neap_duration_parse(text, ret_ns, &err) != NEAP_OK)
		return neap_misuse(arguments, "--%s: %s", option, err.message);
	return NEAP_EXIT_OK;
}

static int read_days(const struct neap_arguments *arguments, struct neap_retention_options *rules)
{
	const char *text = neap_argument(arguments, "older-than-days");
	double days = 0;

	if (!text)
		return NEAP_EXIT_OK;
	if (neap_double_parse(text, &days, NULL) != NEAP_OK || days < 0 || days > DAYS_MOST)
		return neap_misuse(arguments, "--older-than-days %s: expected a number of days, 0 for any age", text);
	rules->older_than_ns = (uint64_t)(days * DAY_NS);
	rules->delete_rest = rules->older_than_ns == 0;
	return NEAP_EXIT_OK;
}

/* --max and --max-total-size: without --older-than-days they apply at any age, and without --keep-best the default
 * best 5 give way. */
static int read_limits(const struct neap_arguments *arguments, struct neap_retention_options *rules)
{
	const char *max = neap_argument(arguments, "max"), *size = neap_argument(arguments, "max-total-size");
	struct neap_error err = {0};
	int code = read_count(arguments, "max", &rules->max_checkpoints);

	if (!code && size && neap_size_parse(size, &rules->max_total_bytes, &err) != NEAP_OK)
		code = neap_misuse(arguments, "--max-total-size: %s", err.message);
	if (!code && ((max && rules->max_checkpoints == 0) || (size && rules->max_total_bytes == 0)))
		code = neap_misuse(arguments,
				   "--%s: 0 is not a limit; --older-than-days 0 deletes all that no rule keeps",
				   max && rules->max_checkpoints == 0 ? "max" : "max-total-size");
	if (code || (!max && !size))
		return code;
	if (!neap_argument(arguments, "older-than-days"))
		rules->older_than_ns = 0;
	if (!neap_argument(arguments, "grace"))
		rules->grace_ns = 0;
	rules->best_yields = !neap_argument(arguments, "keep-best");
	if (max && rules->best_yields)
		rules->keep_best = rules->max_checkpoints;
	return NEAP_EXIT_OK;
}

/* --empty-trash without any rule empties the trash, and does nothing else. */
static void read_empty_trash(const struct neap_arguments *arguments, struct request *request)
{
	static const char *const given[] = {"keep-best", "keep-last",      "keep-every", "older-than-days",
					    "max",       "max-total-size", "trash-ttl"};

	request->empty_trash = neap_argument(arguments, "empty-trash");
	for (size_t i = 0; i < sizeof given / sizeof *given; i++)
		if (neap_argument(arguments, given[i]))
			return;
	if (!request->empty_trash)
		return;
	request->rules.keep_best = 0;
	request->rules.newest_for_best = false;
	request->rules.older_than_ns = 0;
}

static int read_mode(const struct neap_arguments *arguments, struct neap_retention_options *rules)
{
	const char *text = neap_argument(arguments, "mode");

	if (text && !strcmp(text, "min"))
		rules->mode = NEAP_METRIC_MIN;
	else if (text && !strcmp(text, "max"))
		rules->mode = NEAP_METRIC_MAX;
	else if (text)
		return neap_misuse(arguments, "--mode %s: expected min (a low value is better) or max", text);
	return NEAP_EXIT_OK;
}

static int read_pins(const struct neap_arguments *arguments, struct request *request)
{
	size_t count = 0;

	request->pins = neap_argument_list(arguments, "pin");
	if (!request->pins) {
		fputs("neap checkpoints: out of memory\n", stderr);
		return NEAP_EXIT_OS;
	}
	while (request->pins[count])
		count++;
	request->rules.pins = (const char *const *)request->pins;
	request->rules.pin_count = count;
	return NEAP_EXIT_OK;
}

static int read_request(const struct neap_arguments *arguments, struct request *request)
{
	struct neap_retention_options *rules = &request->rules;

	neap_retention_defaults(rules);
	rules->metric = neap_argument(arguments, "metric");
	rules->resume = neap_argument(arguments, "resume-from");
	rules->pattern = neap_argument(arguments, "pattern");
	/* If the user asks for the best, choose by the metric, or report why that fails. */
	rules->newest_for_best = !neap_argument(arguments, "keep-best") && !rules->metric;
	request->restore = neap_argument(arguments, "restore");
	request->dry_run = neap_argument(arguments, "dry-run");
	request->yes = neap_argument(arguments, "yes");
	request->recursive = neap_argument(arguments, "recursive");
	request->json = neap_argument(arguments, "json");
	int code = read_count(arguments, "keep-best", &rules->keep_best);
	if (!code)
		code = read_count(arguments, "keep-last", &rules->keep_last);
	if (!code)
		code = read_count(arguments, "keep-every", &rules->keep_every_steps);
	if (!code)
		code = read_time(arguments, "grace", &rules->grace_ns);
	if (!code)
		code = read_time(arguments, "trash-ttl", &rules->trash_ns);
	if (!code)
		code = read_days(arguments, rules);
	if (!code)
		code = read_mode(arguments, rules);
	read_empty_trash(arguments, request);
	if (!code)
		code = read_limits(arguments, rules);
	if (!code && rules->trash_ns > TRASH_MOST_NS)
		code = neap_misuse(arguments, "--trash-ttl: at most 3650d");
	if (!code && request->restore && (request->empty_trash || request->dry_run))
		code = neap_misuse(arguments, "--restore goes with neither --empty-trash nor --dry-run");
	if (!code)
		code = read_pins(arguments, request);
	return code;
}

/* --- the folders --- */

struct folders {
	struct checkpoints_folder *at;
	size_t count;
};

static bool add(struct folders *folders, const char *name)
{
	char *copy = strdup(name);

	if (!copy || !neap_array_grow(&folders->at, folders->count, sizeof *folders->at)) {
		free(copy);
		return false;
	}
	folders->at[folders->count++] = (struct checkpoints_folder){.name = copy};
	return true;
}

static bool is_listed(const struct folders *folders, const char *name)
{
	for (size_t i = 0; i < folders->count; i++)
		if (!strcmp(folders->at[i].name, name))
			return true;
	return false;
}

/* Counts the folders below, for the hint. A folder that cannot be read gives none. */
static void count_below(struct checkpoints_folder *folder, const struct neap_retention_options *rules)
{
	struct neap_retention_folders below = {0};

	if (neap_retention_find_folders(folder->name, rules, HINT_LOOKS, &below, NULL) != NEAP_OK)
		return;
	for (size_t i = 0; i < below.count; i++) {
		folder->below_folders += below.at[i].count > 0;
		folder->below_checkpoints += below.at[i].count;
	}
	folder->below_incomplete = below.incomplete;
	neap_retention_folders_fini(&below);
}

/* Lists the folder itself in any case: its plan shows what it is. */
static int list_below(const char *name, const struct neap_retention_options *rules, struct folders *folders,
		      bool *fine)
{
	struct neap_retention_folders below = {0};
	struct neap_error err = {0};

	if (neap_retention_find_folders(name, rules, 0, &below, &err) != NEAP_OK)
		return neap_complain("checkpoints", &err);
	for (size_t i = 0; *fine && i < below.count; i++)
		*fine = is_listed(folders, below.at[i].path) || add(folders, below.at[i].path);
	if (below.incomplete)
		fprintf(stderr,
			"neap checkpoints: below %s not every folder was looked into: some lie too deep or cannot be "
			"read\n",
			NEAP_PRINTABLE(name));
	neap_retention_folders_fini(&below);
	return NEAP_EXIT_OK;
}

/* Lists the named folders, and with --recursive those below them. Returns the exit code; stderr has the failures. */
static int list_folders(const struct neap_arguments *arguments, const struct neap_retention_options *rules,
			bool recursive, struct folders *ret_folders)
{
	int code = NEAP_EXIT_OK;
	bool fine = true;

	for (size_t i = 0; fine && i < neap_operand_count(arguments); i++) {
		const char *name = neap_operand(arguments, i);

		if (is_listed(ret_folders, name))
			continue;
		fine = add(ret_folders, name);
		if (fine && recursive) {
			int one = list_below(name, rules, ret_folders, &fine);
			code = code ? code : one;
		} else if (fine) {
			count_below(&ret_folders->at[ret_folders->count - 1], rules);
		}
	}
	if (fine)
		return code;
	fputs("neap checkpoints: out of memory\n", stderr);
	return NEAP_EXIT_OS;
}

static void folders_fini(struct folders *folders)
{
	for (size_t i = 0; i < folders->count; i++) {
		neap_retention_plan_fini(&folders->at[i].plan);
		free(folders->at[i].name);
	}
	free(folders->at);
	*folders = (struct folders){0};
}

/* --- the trash --- */

/* Restores from each folder. It is no error if one of several has nothing that matches. */
static int restore(const struct request *request, struct folders *folders)
{
	int code = NEAP_EXIT_OK;
	size_t restored = 0;

	for (size_t i = 0; i < folders->count; i++) {
		struct checkpoints_folder *folder = &folders->at[i];
		struct neap_error err = {0};
		enum neap_status status =
			neap_retention_restore(folder->name, request->restore, &folder->result, &err);

		restored += folder->result.restored_count;
		if (!request->json)
			checkpoints_print_restored(folder->name, &folder->result);
		if (status && !(status == NEAP_ENOENT && request->recursive))
			code = neap_complain("checkpoints", &err);
	}
	if (!code && restored == 0) {
		fprintf(stderr, "neap checkpoints: nothing in the trash of these folders matches \"%s\"\n",
			NEAP_PRINTABLE(request->restore));
		code = NEAP_EXIT_NO_INPUT;
	}
	return code;
}

/* True when the user says yes; else `ret_code` says how it ends. */
static bool may_delete(const struct request *request, size_t count, int *ret_code)
{
	char question[64];
	bool asked = false;

	snprintf(question, sizeof question, "Delete %zu checkpoint%s for good", count, count == 1 ? "" : "s");
	if (request->yes || count == 0 || (!request->json && print_confirm(question, &asked)))
		return true;
	fputs(asked ? "neap checkpoints: nothing was deleted\n"
		    : "neap checkpoints: this cannot be restored, and there is no terminal to ask on: give --yes, or "
		      "--dry-run to only look\n",
	      stderr);
	*ret_code = asked ? NEAP_EXIT_FAILED : NEAP_EXIT_USAGE;
	return false;
}

/* --- plan, then apply --- */

/* With --recursive, a folder that cannot be judged is skipped. */
static int make_plans(const struct request *request, struct folders *folders)
{
	int code = NEAP_EXIT_OK;
	bool ask = false;

	for (size_t i = 0; i < folders->count; i++) {
		struct checkpoints_folder *folder = &folders->at[i];
		struct neap_error err = {0};
		enum neap_status status =
			neap_retention_plan_make(folder->name, &request->rules, 0, &folder->plan, &err);

		folder->planned = status == NEAP_OK;
		if (status)
			code = neap_complain("checkpoints", &err);
		ask |= status == NEAP_EINVAL;
	}
	if (ask)
		fputs("neap checkpoints: --metric NAME, with --mode min or max, says which is the best\n", stderr);
	if (code && folders->count > 1)
		fputs(request->recursive ? "neap checkpoints: these folders are left alone\n"
					 : "neap checkpoints: nothing was changed in any folder\n",
		      stderr);
	return code;
}

static int apply(const struct request *request, struct checkpoints_folder *folder)
{
	struct neap_retention_result emptied = {0};
	struct neap_error err = {0}, first = {0};
	int code = NEAP_EXIT_OK;

	folder->applied = true;
	if (request->empty_trash) {
		if (neap_retention_empty_trash(folder->name, true, &emptied, &first) != NEAP_OK)
			code = neap_complain("checkpoints", &first);
	}
	/* This also deletes from the trash, and fails on the same file: report that once. */
	if (neap_retention_apply(&folder->plan, &request->rules, &folder->result, &err) != NEAP_OK)
		code = strcmp(err.message, first.message) ? neap_complain("checkpoints", &err)
							  : neap_exit_of(err.status);
	folder->result.deleted_count += emptied.deleted_count;
	folder->result.deleted_bytes += emptied.deleted_bytes;
	return code;
}

/* Hides folders without checkpoints: those below, and the one above them. */
static bool is_shown(const struct request *request, const struct folders *folders, size_t index)
{
	const struct checkpoints_folder *folder = &folders->at[index];

	return folder->planned &&
	       (!request->recursive || folders->count == 1 || folder->plan.count > 0 || folder->plan.trash_count > 0);
}

static int prune(const struct request *request, struct folders *folders)
{
	size_t for_good = 0;
	int code = make_plans(request, folders);

	if (code && !request->recursive)
		return code;
	for (size_t i = 0; i < folders->count; i++) {
		struct checkpoints_folder *folder = &folders->at[i];

		for_good += request->rules.trash_ns == 0 ? folder->plan.drop_count : 0;
		for_good += request->empty_trash ? folder->plan.trash_count : 0;
		if (!request->json && is_shown(request, folders, i))
			checkpoints_print_plan(folder, &request->rules, request->dry_run);
	}
	if (!request->dry_run && may_delete(request, for_good, &code)) {
		for (size_t i = 0; i < folders->count; i++) {
			int one = folders->at[i].planned ? apply(request, &folders->at[i]) : NEAP_EXIT_OK;
			code = one ? one : code;
			if (!request->json)
				checkpoints_print_applied(&folders->at[i]);
		}
	}
	if (!request->json)
		checkpoints_print_summary(folders->at, folders->count);
	return code;
}

static int run(const struct neap_arguments *arguments)
{
	struct request request = {0};
	struct folders folders = {0};
	int code = read_request(arguments, &request);

	if (!code)
		code = list_folders(arguments, &request.rules, request.recursive, &folders);
	if (code)
		goto out;
	code = request.restore ? restore(&request, &folders) : prune(&request, &folders);
	if (request.json && code != NEAP_EXIT_USAGE) {
		int printed = checkpoints_print_json(folders.at, folders.count, &request.rules, request.dry_run);
		code = printed ? printed : code;
	}
out:
	folders_fini(&folders);
	free(request.pins);
	return code;
}
