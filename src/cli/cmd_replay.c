/* cli/cmd_replay.c: `neap replay`: replays a trace with an allocator's policy, and reports the cost. */
#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/run_folder.h"
#include "report/replayed.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_replay = {
	.name = "replay",
	.usage = "TRACE [--policy torch|torch-expandable|neap] [--settings TEXT] [--memory SIZE] [--smallest] "
		 "[--json]",
	.summary = "the cost of a trace under another allocator, other settings or on another device",
	.details = neap_help_replay,
	.options =
		(const struct neap_option[]){
			{"policy", "POLICY",
			 "torch (default), torch-expandable (with expandable_segments:True), neap"},
			{"settings", "TEXT", "as in PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb:128,..."},
			{"torch", "RELEASE",
			 "PyTorch's release: 2.4 to 2.15; default: the snapshot's, else the newest"},
			{"memory", "SIZE",
			 "what the driver may hand out, without its own and the context's; default no limit"},
			{"fraction", "F", "the per-process fraction of it"},
			{"on-oom", "WHAT", "stop (the default), or continue without the block that did not fit"},
			{"event-delay", "N",
			 "in a text trace a stream's use ends N events after the free; default 0"},
			{"device", "N", "a device of the trace; default: the one with the most events"},
			{"no-plan", NULL, "with --policy neap: never plan steps that repeat"},
			{"smallest", NULL,
			 "also find the smallest device that completes, confirmed at 8 larger sizes"},
			{"json", NULL, "every figure, as JSON"},
			{NULL, NULL, NULL},
		},
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};

/* The request and its result. */
struct task {
	const char *path;
	struct neap_replay_options options;
	char chosen[NEAP_RUN_FOLDER_PATH]; /* the file that `path` means: itself, or a run folder's trace */
	bool json, find_smallest;
	struct neap_trace *trace;
	struct neap_replay_result result;
	uint64_t smallest_bytes; /* 0: not asked for */
	bool shown;              /* a line of progress stands on the terminal */
};

static volatile sig_atomic_t interrupted_by;
static void on_signal(int number) { interrupted_by = number; }

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static bool progress(void *context, uint64_t done, uint64_t total)
{
	struct task *task = context;
	if (interrupted_by)
		return false;
	if (total > 1000000 && done % (1 << 18) == 0 && isatty(STDERR_FILENO)) {
		fprintf(stderr, "\rreplaying: %3d %%", (int)(done * 100 / total));
		fflush(stderr);
		task->shown = true;
	}
	return true;
}

static void end_progress(struct task *task)
{
	if (task->shown)
		fputs("\r                 \r", stderr);
	task->shown = false;
}

static int print_people(const struct neap_replayed *replayed)
{
	struct neap_buffer out = {0};
	struct neap_error err;
	int code = NEAP_EXIT_OK;
	neap_report_replayed(&out, replayed);
	if (neap_buffer_status(&out, &err))
		code = neap_complain("replay", &err);
	else
		print_safe_lines(stdout, neap_buffer_string(&out));
	neap_buffer_fini(&out);
	return code;
}

/* The device of the trace with the most events. */
static size_t busiest_device(const struct neap_trace *trace)
{
	size_t best = 0;
	for (size_t i = 1; i < trace->device_count; i++)
		if (trace->devices[i].event_count > trace->devices[best].event_count)
			best = i;
	return best;
}

static enum neap_status replay(struct task *task, bool device_given, struct neap_error *err)
{
	enum neap_status status = run_folder_trace("replay", task->path, task->chosen, err);
	if (!status) {
		task->path = task->chosen;
		status = neap_trace_read(task->path, &task->trace, err);
	}
	catch_signals(); /* reading may wait for a pipe, until a signal ends it */
	if (!status && !device_given)
		task->options.device = busiest_device(task->trace);
	task->options.clock = neap_clock_system();
	if (!status)
		status = neap_replay(task->trace, &task->options, &task->result, err);
	if (!status && task->find_smallest)
		status = neap_replay_smallest(task->trace, &task->options, &task->smallest_bytes, err);
	end_progress(task);
	return status;
}

static int read_numbers(const struct neap_arguments *arguments, struct task *task)
{
	struct neap_error err;
	const char *memory = neap_argument(arguments, "memory"), *fraction = neap_argument(arguments, "fraction"),
		   *delay = neap_argument(arguments, "event-delay"), *device = neap_argument(arguments, "device"),
		   *torch = neap_argument(arguments, "torch");
	uint64_t index = 0;
	if (torch && neap_torch_version_parse(torch, &task->options.torch, &err) != NEAP_OK)
		return neap_misuse(arguments, "--torch: %s", err.message);
	if (memory && (neap_size_parse(memory, &task->options.memory_bytes, &err) != NEAP_OK ||
		       !task->options.memory_bytes || task->options.memory_bytes > 1ull << 50))
		return neap_misuse(arguments,
				   "--memory: expected a size from 1 B to 1024 TiB such as 24GiB, not '%s'", memory);
	if (fraction && neap_fraction_parse(fraction, &task->options.fraction, &err) != NEAP_OK)
		return neap_misuse(arguments, "--fraction: expected a number above 0 and at most 1, not '%s'",
				   fraction);
	if (delay && (neap_u64_parse(delay, &task->options.event_delay, &err) != NEAP_OK ||
		      task->options.event_delay > UINT64_MAX / 2))
		return neap_misuse(arguments, "--event-delay: expected a number of trace events, not '%s'", delay);
	if (device && neap_u64_parse(device, &index, &err) != NEAP_OK)
		return neap_misuse(arguments, "--device: expected a number from 0, not '%s'", device);
	task->options.device = (size_t)index;
	return NEAP_EXIT_OK;
}

static int read_words(const struct neap_arguments *arguments, struct task *task)
{
	const char *policy = neap_argument(arguments, "policy"), *on_oom = neap_argument(arguments, "on-oom");
	struct neap_torch_settings settings;
	struct neap_error err;
	size_t index = 0;
	while (policy && index < NEAP_REPLAY_POLICIES && strcmp(policy, neap_replay_policy_names[index]) != 0)
		index++;
	if (index == NEAP_REPLAY_POLICIES)
		return neap_misuse(arguments, "--policy: expected torch, torch-expandable or neap, not '%s'", policy);
	task->options.policy = (enum neap_replay_policy)index;
	task->options.settings = neap_argument(arguments, "settings");
	if (on_oom && strcmp(on_oom, "stop") != 0 && strcmp(on_oom, "continue") != 0)
		return neap_misuse(arguments, "--on-oom: expected stop or continue, not '%s'", on_oom);
	task->options.no_plan = neap_argument(arguments, "no-plan");
	if (task->options.no_plan && task->options.policy != NEAP_REPLAY_NEAP)
		return neap_misuse(arguments, "--no-plan: it belongs to --policy neap");
	task->options.go_on = on_oom && on_oom[0] == 'c';
	if (task->options.settings && task->options.policy == NEAP_REPLAY_NEAP)
		return neap_misuse(arguments, "--settings are PyTorch's: they belong to --policy torch");
	neap_torch_settings_default(&settings);
	if (neap_torch_settings_parse(task->options.settings, &settings, &err) == NEAP_OK)
		return NEAP_EXIT_OK;
	return neap_misuse(arguments, "--settings: %s (column %u)", err.message, err.column);
}

static int run(const struct neap_arguments *arguments)
{
	struct neap_error err = {0};
	struct task task = {.path = neap_operand(arguments, 0),
			    .json = neap_argument(arguments, "json"),
			    .find_smallest = neap_argument(arguments, "smallest"),
			    .options = {.progress = progress}};
	task.options.context = &task;
	int code = read_numbers(arguments, &task);
	if (code == NEAP_EXIT_OK)
		code = read_words(arguments, &task);
	if (code != NEAP_EXIT_OK)
		return code;
	enum neap_status status = replay(&task, neap_argument(arguments, "device"), &err);
	if (status == NEAP_ECANCELED && interrupted_by) {
		fputs("neap replay: stopped\n", stderr);
		code = 128 + interrupted_by;
	} else if (status) {
		code = neap_complain("replay", &err);
	} else {
		const struct neap_replayed replayed = {task.path, &task.options, &task.result, task.smallest_bytes};
		code = task.json ? json_print("replay", neap_replayed_json(&replayed), JSON_INDENT(2))
				 : print_people(&replayed);
	}
	neap_trace_free(task.trace);
	return code;
}
