/* cli/cmd_kill.c: `neap kill`: look, decide (kill_plan.h), show, ask, end (kill_end.h), and see the memory fall.
 *
 * The driver may list PIDs of another namespace (in a container it lists the host's): a PID from its list counts only
 * if the process of that PID here has mapped the CUDA driver. A process that --pid names, or that is attached, needs
 * no such proof.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/kill_end.h"
#include "cli/kill_report.h"
#include "cli/print.h"
#include "cli/targets.h"
#include "run/drain.h"
#include "run/killed.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define GRACE_NS      (10 * NEAP_NS_PER_S)
#define GRACE_MOST_NS (24ull * 3600 * NEAP_NS_PER_S)
#define DRAIN_NS      (60 * NEAP_NS_PER_S)
#define SETTLE_NS     (40 * NEAP_NS_PER_S) /* after the grace: SIGKILL's 30 s, and the supervisor has to see it */
#define LOOK_NS       (50 * NEAP_NS_PER_MS)

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

/* Whether this process has mapped the CUDA driver; also when it may not be asked (then the plan refuses it anyway,
 * as another user's). */
static bool uses_cuda(pid_t pid)
{
	char path[64], *line = NULL;
	size_t room = 0;
	bool found = false;
	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		return true;
	while (!found && getline(&line, &room, maps) >= 0)
		found = strstr(line, "/libcuda.") != NULL;
	free(line);
	fclose(maps);
	return found;
}

/* Choices by --device and --mine: what the look lists. `ret_choices` has room for all of it. */
static size_t choose_listed(const struct look *look, size_t device, bool mine, struct kill_choice *ret_choices)
{
	size_t count = 0;
	for (size_t d = 0; d < look->device_count; d++) {
		if (!mine && d != device)
			continue;
		for (size_t p = 0; p < look->devices[d].process_count; p++) {
			const struct neap_ledger_process *account = &look->devices[d].processes[p].account;
			struct neap_process process;
			bool there = neap_process_read(account->pid, &process, NULL) == NEAP_OK;
			bool unseen = !account->attached && (!there || !uses_cuda(account->pid));
			if (mine && (unseen || !there || process.uid != getuid()))
				continue;
			ret_choices[count++] = (struct kill_choice){account->pid, unseen};
		}
	}
	return count;
}

static enum neap_status find_device(const struct look *look, const char *text, size_t *ret_index,
				    struct neap_error *err)
{
	uint64_t index = 0;
	if (neap_u64_parse(text, &index, NULL) == NEAP_OK && index < look->device_count) {
		*ret_index = (size_t)index;
		return NEAP_OK;
	}
	for (size_t i = 0; strncmp(text, "GPU-", 4) == 0 && i < look->device_count; i++) {
		if (strncmp(look->devices[i].reading.uuid_text, text, strlen(text)) == 0) {
			*ret_index = i;
			return NEAP_OK;
		}
	}
	return neap_fail(err, NEAP_ENOENT, "no device '%.60s': give an index below %zu, or a UUID", text,
			 look->device_count);
}

static enum neap_status make_plan(struct kill_work *work, const struct request *request, const pid_t *pids,
				  size_t pid_count, struct neap_error *err)
{
	size_t room = pid_count + 1, count = 0, device = 0;
	for (size_t i = 0; i < work->look.device_count; i++)
		room += work->look.devices[i].process_count;
	enum neap_status status = NEAP_OK;
	struct kill_choice *choices = calloc(room, sizeof *choices);
	if (!choices)
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	if (!status && request->device)
		status = find_device(&work->look, request->device, &device, err);
	if (!status && request->by_pid)
		for (; count < pid_count; count++)
			choices[count].pid = pids[count];
	else if (!status)
		count = choose_listed(&work->look, device, request->mine, choices);
	/* after the list: a process that ends in between is gone here, and a new one is not meant */
	if (!status)
		status = kill_plan_now(choices, count, &work->plan, err);
	free(choices);
	return status;
}

/* The driver's list before, completed from the targets' own pages: it tells memory that a target still holds
 * afterwards from memory that no process accounted for before. */
static void account_target(struct kill_device *device, pid_t pid, uint64_t bytes)
{
	struct neap_reading *before = &device->before;
	uint64_t listed = 0;
	for (size_t i = 0; i < before->process_count; i++) {
		if (before->processes[i].pid == pid) {
			before->processes[i].bytes = bytes;
			return;
		}
		if (before->processes[i].bytes != NEAP_BYTES_UNKNOWN)
			listed += before->processes[i].bytes;
	}
	bool hidden = before->used_bytes >= listed && before->used_bytes - listed >= bytes;
	if (hidden && before->process_count < NEAP_READING_PROCESSES) {
		before->processes_known = true;
		before->processes[before->process_count++] = (struct neap_reading_process){pid, bytes};
	}
}

static enum neap_status account_devices(struct kill_work *work, struct neap_error *err)
{
	free(work->devices);
	work->devices = calloc(work->look.device_count + 1, sizeof *work->devices);
	if (!work->devices)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (size_t d = 0; d < work->look.device_count; d++) {
		struct kill_device *device = &work->devices[d];
		device->before = device->after = work->look.devices[d].reading;
		for (size_t i = 0; i < work->plan.target_count; i++) {
			pid_t pid = work->plan.targets[i].process.pid;
			uint64_t bytes = kill_bytes(&work->look.devices[d], pid);
			device->touched = device->touched || bytes > 0;
			if (bytes == NEAP_BYTES_UNKNOWN)
				device->held_unknown = true;
			else if (bytes > 0)
				device->held_bytes += bytes;
			if (bytes > 0 && bytes != NEAP_BYTES_UNKNOWN)
				account_target(device, pid, bytes);
		}
		if (!device->before.processes_known)
			device->touched = device->held_unknown = work->plan.target_count > 0;
	}
	return NEAP_OK;
}

/* Looks until everything is back or the time is over. */
static enum neap_status watch_memory(struct kill_work *work, struct neap_monitor *monitor, const pid_t *pids,
				     uint64_t limit_ns, struct neap_error *err)
{
	const struct neap_clock *clock = neap_clock_system();
	uint64_t start_ns = neap_clock_now(clock);
	for (;;) {
		for (size_t i = 0; i < work->look.device_count; i++) {
			struct kill_device *device = &work->devices[i];
			if (!device->touched)
				continue;
			enum neap_status status = neap_monitor_read(monitor, i, &device->after, err);
			if (status)
				return status;
			device->left_bytes =
				neap_drain_left(&device->before, &device->after, pids, work->plan.target_count);
		}
		work->drain_ns = neap_clock_now(clock) - start_ns;
		if (kill_left(work) == 0 || work->drain_ns >= limit_ns)
			return NEAP_OK;
		uint64_t rest_ns = limit_ns - work->drain_ns;
		neap_clock_sleep(clock, rest_ns < LOOK_NS ? rest_ns : LOOK_NS);
	}
}

/* A supervisor that sees its command end can then report that neap ended it, whatever the command makes of SIGTERM.
 */
static void tell_runs(const struct kill_work *work, uint64_t grace_ns)
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

static enum neap_status end_targets(struct kill_work *work, struct neap_monitor *monitor,
				    const struct request *request, struct neap_error *err)
{
	pid_t *pids = NULL;
	work->grace_ms = request->grace_ns / NEAP_NS_PER_MS;
	tell_runs(work, request->grace_ns);
	enum neap_status status = kill_end(work, err);
	if (status && !work->ended)
		return status;
	if (!status && !(pids = calloc(work->plan.target_count + 1, sizeof *pids)))
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (size_t i = 0; !status && i < work->plan.target_count; i++)
		pids[i] = work->ended[i].process.pid;
	if (!status)
		status = watch_memory(work, monitor, pids, request->drain_limit_ns, err);
	if (status)
		neap_error_prefix(err, "the processes were signalled; whether the memory is back is not known");
	free(pids);
	return status;
}

/* True when the user says yes. */
static bool ask(const struct kill_work *work)
{
	char size[KILL_HELD_ROOM], answer[16];
	fflush(stdout);
	fprintf(stderr, "End %zu process%s holding %s? [y/N] ", work->plan.target_count,
		work->plan.target_count == 1 ? "" : "es", kill_held_text(work, size));
	fflush(stderr);
	if (!fgets(answer, sizeof answer, stdin))
		return false;
	answer[strcspn(answer, "\n")] = '\0';
	return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}

/* --pid is all or nothing: a list with a mistake in it ends no process. */
static int complain_refused(const struct kill_work *work)
{
	for (size_t i = 0; i < work->plan.refused_count; i++)
		fprintf(stderr, "neap kill: process %d%s%.40s%s: %s\n", (int)work->plan.refused[i].process.pid,
			work->plan.refused[i].process.command[0] ? " (" : "", work->plan.refused[i].process.command,
			work->plan.refused[i].process.command[0] ? ")" : "",
			kill_refusal_text(work->plan.refused[i].why));
	fputs("neap kill: nothing was ended\n", stderr);
	return kill_plan_forbidden(&work->plan) > 0 ? NEAP_EXIT_PERMISSION : NEAP_EXIT_NO_INPUT;
}

static bool choice_refused(const struct kill_plan *plan)
{
	for (size_t i = 0; i < plan->refused_count; i++)
		if (plan->refused[i].chosen)
			return true;
	return false;
}

/* With the plan made and shown. */
static int carry_out(struct kill_work *work, struct neap_monitor *monitor, const char *folder,
		     const struct request *request)
{
	struct neap_error err = {0};
	enum neap_status status = NEAP_OK;
	if (!request->yes) {
		if (request->json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
			fputs("neap kill: no terminal to ask on: give --yes to end them, --dry-run to only look\n",
			      stderr);
			return NEAP_EXIT_USAGE;
		}
		if (!ask(work)) {
			fputs("neap kill: nothing was ended\n", stderr);
			return NEAP_EXIT_FAILED;
		}
		/* the answer took its time: what they hold now is what has to come back */
		look_fini(&work->look);
		status = look_take(monitor, folder, &work->look, &err);
		if (!status)
			status = account_devices(work, &err);
	}
	if (!status)
		status = end_targets(work, monitor, request, &err);
	if (status && !work->ended)
		return neap_complain("kill", &err);
	if (!request->json)
		kill_print_result(work);
	if (status)
		return neap_complain("kill", &err);
	return kill_alive(work) > 0 || kill_left(work) > 0 ? NEAP_EXIT_TRY_AGAIN : NEAP_EXIT_OK;
}

static int plan_and_do(struct kill_work *work, struct neap_monitor *monitor, const char *folder,
		       const struct request *request, const pid_t *pids, size_t pid_count)
{
	struct neap_error err = {0};
	enum neap_status status = look_take(monitor, folder, &work->look, &err);
	if (!status)
		status = make_plan(work, request, pids, pid_count, &err);
	if (!status)
		status = account_devices(work, &err);
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
		if (code == NEAP_EXIT_OK && kill_plan_forbidden(&work->plan) > 0)
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
	struct kill_work work = {0};
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
	kill_plan_fini(&work.plan);
	look_fini(&work.look);
	free(work.devices);
	free(work.ended);
	free(pids);
	return code;
}
