/* cli/cmd_kill.c: `neap kill`: takes a sample, decides (kill/plan.h), shows, asks, ends (kill/end.h), and watches the
 * memory fall. */
#include "base/clock.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/kill_report.h"
#include "cli/print.h"
#include "cli/targets.h"
#include "run/killed.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define GRACE_NS      (10 * NEAP_NS_PER_S)
#define GRACE_MOST_NS (24ull * 3600 * NEAP_NS_PER_S)
#define DRAIN_NS      (60 * NEAP_NS_PER_S)
#define SETTLE_NS     (40 * NEAP_NS_PER_S) /* after the grace: SIGKILL's 30 s, and the supervisor has to see it */

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_kill = {
	.name = "kill",
	.usage = "(PID...|--device DEVICE|--mine) [--dry-run] [--yes] [--grace TIME] [--drain-limit TIME] [--json]",
	.summary = "end GPU processes, and watch their memory come back",
	.details = neap_help_kill,
	.options =
		(const struct neap_option[]){
			{"pid", "P", "this process, as PID alone; may be given several times"},
			{"device", "DEVICE", "the processes on this device: index or UUID", 'i'},
			{"mine", NULL, "every GPU process of this user"},
			{"dry-run", NULL, "only show them"},
			{"yes", NULL, "do not ask"},
			{"grace", "TIME", "between SIGTERM and SIGKILL (500ms, 2m; default 10s)"},
			{"drain-limit", "TIME", "how long to wait for the memory to come back (default 60s)"},
			{"json", NULL, "one JSON object; needs --yes or --dry-run"},
			{NULL, NULL, NULL},
		},
	.operands_max = SIZE_MAX,
	.run = run,
};

struct request {
	const char *device;
	bool by_pid, mine, dry_run, yes, json;
	uint64_t grace_ns, drain_limit_ns;
};

/* Lets supervisors report that neap ended their command, however the command handles SIGTERM.
 */
static void report_runs(const struct neap_kill_work *work, uint64_t grace_ns)
{
	uint64_t until_wall_ns = neap_wall_ns() + grace_ns + SETTLE_NS;
	for (size_t i = 0; i < work->plan.target_count; i++) {
		struct neap_error err = {0};
		enum neap_status status = neap_killed_record(work->plan.targets[i].process.pid, until_wall_ns, &err);
		if (status && status != NEAP_ENOENT)
			fprintf(stderr, "neap kill: a run's result will not say who ended it: %s\n",
				NEAP_PRINTABLE(err.message));
	}
}

static enum neap_status end_targets(struct neap_kill_work *work, struct neap_monitor *monitor,
				    const struct request *request, struct neap_error *err)
{
	work->grace_ms = request->grace_ns / NEAP_NS_PER_MS;
	report_runs(work, request->grace_ns);
	return neap_kill_work_end(work, monitor, request->drain_limit_ns, err);
}

/* True when the user says yes. */
static bool ask(const struct neap_kill_work *work, bool *ret_asked)
{
	char size[KILL_HELD_CAPACITY], question[KILL_HELD_CAPACITY + 64];
	snprintf(question, sizeof question, "End %zu process%s holding %s", work->plan.target_count,
		 work->plan.target_count == 1 ? "" : "es", kill_held_text(work, size));
	return print_confirm(question, ret_asked);
}

/* --pid is all or nothing: a list with a mistake in it ends no process. */
static int complain_refused(const struct neap_kill_work *work)
{
	for (size_t i = 0; i < work->plan.refused_count; i++)
		fprintf(stderr, "neap kill: process %d%s%.40s%s: %s\n", (int)work->plan.refused[i].process.pid,
			work->plan.refused[i].process.command[0] ? " (" : "", work->plan.refused[i].process.command,
			work->plan.refused[i].process.command[0] ? ")" : "",
			neap_kill_refusal_text(work->plan.refused[i].why));
	fputs("neap kill: nothing was ended\n", stderr);
	return neap_kill_plan_forbidden(&work->plan) > 0 ? NEAP_EXIT_PERMISSION : NEAP_EXIT_NO_INPUT;
}

static bool choice_refused(const struct neap_kill_plan *plan)
{
	for (size_t i = 0; i < plan->refused_count; i++)
		if (plan->refused[i].chosen)
			return true;
	return false;
}

/* Called once the plan was made and shown. */
static int carry_out(struct neap_kill_work *work, struct neap_monitor *monitor, const char *folder,
		     const struct request *request)
{
	struct neap_error err = {0};
	enum neap_status status = NEAP_OK;
	if (!request->yes) {
		bool asked = false;
		if (request->json || !ask(work, &asked)) {
			fputs(asked ? "neap kill: nothing was ended\n"
				    : "neap kill: no terminal to ask on: give --yes to end them, --dry-run to only "
				      "look\n",
			      stderr);
			return asked ? NEAP_EXIT_FAILED : NEAP_EXIT_USAGE;
		}
		/* the user took time to answer: measure again how much memory must come back */
		neap_sample_fini(&work->sample);
		status = neap_sample_take(monitor, folder, &work->sample, &err);
		if (!status)
			status = neap_kill_work_account(work, &err);
	}
	if (!status)
		status = end_targets(work, monitor, request, &err);
	if (status && !work->ended)
		return neap_complain("kill", &err);
	if (!request->json)
		kill_print_result(work);
	if (status)
		return neap_complain("kill", &err);
	return neap_kill_alive(work) > 0 || neap_kill_left(work) > 0 ? NEAP_EXIT_TRY_AGAIN : NEAP_EXIT_OK;
}

static int plan_and_do(struct neap_kill_work *work, struct neap_monitor *monitor, const char *folder,
		       const struct request *request, const pid_t *pids, size_t pid_count)
{
	struct neap_error err = {0};
	const struct neap_kill_wanted wanted = {request->by_pid ? pids : NULL, pid_count, request->device,
						request->mine};
	enum neap_status status = neap_sample_take(monitor, folder, &work->sample, &err);
	if (!status)
		status = neap_kill_work_plan(work, &wanted, &err);
	if (!status)
		status = neap_kill_work_account(work, &err);
	if (status)
		return neap_complain("kill", &err);
	int code = NEAP_EXIT_OK;
	if (request->by_pid && choice_refused(&work->plan)) {
		code = complain_refused(work);
	} else {
		if (!request->json)
			kill_print_preview(work);
		else if (*kill_holds_nothing(work) && !request->dry_run)
			fprintf(stderr, "neap kill: %s\n", kill_holds_nothing(work));
		if (work->plan.target_count > 0 && !request->dry_run)
			code = carry_out(work, monitor, folder, request);
		else if (work->plan.target_count == 0 && !request->json)
			puts(request->mine ? "No process of yours uses a GPU." : "Nothing to end.");
		if (code == NEAP_EXIT_OK && neap_kill_plan_forbidden(&work->plan) > 0)
			code = NEAP_EXIT_PERMISSION;
	}
	int printed = request->json && code != NEAP_EXIT_USAGE ? kill_print_json(work) : NEAP_EXIT_OK;
	return printed != NEAP_EXIT_OK ? printed : code;
}

static int read_request(const struct neap_arguments *arguments, struct request *ret_request)
{
	struct request request = {.device = neap_argument(arguments, "device"),
				  .by_pid = neap_argument(arguments, "pid") || neap_operand_count(arguments) > 0,
				  .mine = neap_argument(arguments, "mine"),
				  .dry_run = neap_argument(arguments, "dry-run"),
				  .yes = neap_argument(arguments, "yes"),
				  .json = neap_argument(arguments, "json"),
				  .grace_ns = GRACE_NS,
				  .drain_limit_ns = DRAIN_NS};
	const char *grace = neap_argument(arguments, "grace"), *limit = neap_argument(arguments, "drain-limit");
	struct neap_error err = {0};
	if (request.by_pid + request.mine + (request.device != NULL) != 1)
		return neap_misuse(arguments, "say which: PID, --device or --mine");
	if (grace && neap_duration_parse(grace, &request.grace_ns, &err) != NEAP_OK)
		return neap_misuse(arguments, "--grace: %s", err.message);
	if (request.grace_ns > GRACE_MOST_NS)
		return neap_misuse(arguments, "--grace: at most 24h");
	if (limit && neap_duration_parse(limit, &request.drain_limit_ns, &err) != NEAP_OK)
		return neap_misuse(arguments, "--drain-limit: %s", err.message);
	*ret_request = request;
	return NEAP_EXIT_OK;
}

static int run(const struct neap_arguments *arguments)
{
	struct request request = {0};
	struct neap_kill_work work = {0};
	struct neap_monitor *monitor = NULL;
	struct neap_error err = {0};
	char folder[4096];
	pid_t *pids = NULL;
	size_t pid_count = 0;
	int code = read_request(arguments, &request);
	if (code == NEAP_EXIT_OK && request.by_pid)
		code = targets_given(arguments, true, &pids, &pid_count);
	if (code != NEAP_EXIT_OK)
		return code;
	work.dry_run = request.dry_run;
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, &err);
	if (!status)
		status = neap_path_runtime(folder, sizeof folder, &err);
	code = status == NEAP_OK ? plan_and_do(&work, monitor, folder, &request, pids, pid_count)
				 : neap_complain("kill", &err);
	neap_monitor_close(monitor);
	neap_kill_work_fini(&work);
	free(pids);
	return code;
}
