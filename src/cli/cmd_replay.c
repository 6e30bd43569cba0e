/* cli/cmd_replay.c: `neap replay`: a trace through an allocator's policy, and what it would have cost. */
#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/json_print.h"
#include "cli/print.h"
#include "cli/run_folder.h"
#include "replay/replay.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA 1

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

static const char *const policy_names[] = {[NEAP_REPLAY_TORCH] = "torch",
					   [NEAP_REPLAY_TORCH_EXPANDABLE] = "torch-expandable",
					   [NEAP_REPLAY_NEAP] = "neap"};
#define POLICIES (sizeof policy_names / sizeof policy_names[0])

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

static uint64_t peak(const struct task *task, enum neap_metric metric)
{
	return (uint64_t)task->result.usage.stats.metric[metric][NEAP_CLASS_ALL].peak;
}

static double ns_per_event(const struct task *task)
{
	uint64_t events = task->result.events_applied;
	return events ? (double)task->result.elapsed_ns / (double)events : 0;
}

static json_t *settings_json(const struct neap_torch_settings *settings)
{
	json_t *divisions = json_array();
	for (size_t i = 0; i < NEAP_TORCH_DIVISIONS; i++)
		neap_json_add(divisions, json_integer(settings->divisions[i]));
	return JSON(BOOL("expandable_segments", settings->expandable_segments),
		    VALUE("max_split_size", settings->max_split_bytes == NEAP_TORCH_UNLIMITED
						    ? json_integer(-1)
						    : neap_json_number(settings->max_split_bytes)),
		    NUMBER("max_non_split_rounding", settings->max_non_split_rounding_bytes),
		    REAL("garbage_collection_threshold", settings->garbage_collection_threshold),
		    VALUE("roundup_power2_divisions", divisions), GIVEN("fraction", settings->fraction),
		    NUMBER("large_segment_size", settings->large_segment_bytes),
		    BOOL("throw_on_cudamalloc_oom", settings->throw_on_oom));
}

static const char *const version_reasons[] = {
	[NEAP_REPLAY_VERSION_NEWEST] = "newest",
	[NEAP_REPLAY_VERSION_ASKED] = "asked",
	[NEAP_REPLAY_VERSION_KEYS] = "keys",
	[NEAP_REPLAY_VERSION_CHOICES] = "choices",
};

static json_t *version_json(const struct neap_replay_version *version)
{
	char from[16], to[16];
	snprintf(from, sizeof from, "2.%u", version->from);
	snprintf(to, sizeof to, "2.%u", version->to);
	return JSON(TEXT("from", from), TEXT("to", to), TEXT("free_blocks_by", neap_torch_order_name(version->order)),
		    TEXT("told_by", version_reasons[version->why]));
}

static json_t *calls_json(const struct neap_policy_calls *calls)
{
	return JSON(NUMBER("cuMemAlloc", calls->allocs), NUMBER("cuMemAlloc_failed", calls->failed_allocs),
		    NUMBER("cuMemFree", calls->frees), NUMBER("cuMemCreate", calls->creates),
		    NUMBER("cuMemRelease", calls->releases), NUMBER("cuMemCreate_failed", calls->failed_creates),
		    NUMBER("cuMemMap", calls->maps), NUMBER("cuMemSetAccess", calls->accesses),
		    NUMBER("cuMemUnmap", calls->unmaps), NUMBER("cuMemAddressReserve", calls->reserves),
		    NUMBER("cuMemAddressFree", calls->address_frees));
}

static double calls_per_1000(const struct neap_replay_work *work)
{
	return work->events ? 1000.0 * (double)work->other_calls / (double)work->events : 0;
}

static json_t *work_json(const struct neap_replay_work *work)
{
	return JSON(NUMBER("events", work->events), NUMBER("growth_calls", work->growth_calls),
		    NUMBER("other_calls", work->other_calls),
		    REAL("other_calls_per_1000_events", calls_per_1000(work)),
		    NUMBER("synchronizations", work->synchronizations));
}

static json_t *segments_json(const struct neap_policy_usage *usage)
{
	return JSON(NUMBER("segment_alloc", usage->segment_allocs), NUMBER("segment_free", usage->segment_frees),
		    NUMBER("segment_map", usage->segment_maps), NUMBER("segment_unmap", usage->segment_unmaps),
		    NUMBER("segment_alloc_bytes", usage->segment_alloc_bytes),
		    NUMBER("segment_free_bytes", usage->segment_free_bytes),
		    NUMBER("segment_map_bytes", usage->segment_map_bytes),
		    NUMBER("segment_unmap_bytes", usage->segment_unmap_bytes));
}

static json_t *ooms_json(const struct neap_replay_result *result)
{
	json_t *list = json_array();
	for (size_t i = 0; i < result->oom_count; i++)
		neap_json_add(list, JSON(NUMBER("event", result->ooms[i].event),
					 NUMBER("requested", result->ooms[i].requested),
					 NUMBER("allocated", result->ooms[i].allocated),
					 NUMBER("reserved", result->ooms[i].reserved)));
	return list;
}

static json_t *match_json(const struct neap_replay_match *match)
{
	return JSON(NUMBER("allocs", match->allocs), NUMBER("same_block", match->same_allocs),
		    NUMBER("segment_events", match->segments), NUMBER("same_segment_events", match->same_segments),
		    KNOWN("first_difference", match->first_difference));
}

static void add_stat(void *context, const char *key, int64_t value)
{
	neap_json_set(context, key, json_integer(value));
}

static void add_pool(const struct neap_replay_pool *pool, json_t *stats)
{
	static const char *const classes[NEAP_CLASS_COUNT] = {"all", "large_pool", "small_pool"};
	for (int i = 0; i < NEAP_CLASS_COUNT; i++) {
		const struct neap_stat *stat = &pool->reserved[i];
		const struct {
			const char *name;
			int64_t value;
		} rows[] = {{"current", stat->current},
			    {"peak", stat->peak},
			    {"allocated", stat->allocated},
			    {"freed", stat->freed}};
		for (size_t j = 0; j < sizeof rows / sizeof rows[0]; j++) {
			char key[128];
			snprintf(key, sizeof key, "reserved_bytes_by_private_pools.%" PRIu64 "_%" PRIu64 ".%s.%s",
				 pool->id[0], pool->id[1], classes[i], rows[j].name);
			add_stat(stats, key, rows[j].value);
		}
	}
}

static int print_json(const struct task *task)
{
	const struct neap_replay_options *options = &task->options;
	const struct neap_replay_result *result = &task->result;
	const struct neap_policy_usage *usage = &result->usage;
	bool torch = options->policy != NEAP_REPLAY_NEAP;
	json_t *root = json_object(), *stats = json_object();
	JSON_PUT(root, INTEGER("schema", SCHEMA), TEXT("trace", task->path),
		 TEXT("policy", policy_names[options->policy]),
		 VALUE("settings", torch ? settings_json(&result->settings) : json_null()),
		 VALUE("torch", torch ? version_json(&result->version) : json_null()),
		 GIVEN("memory", options->memory_bytes), NUMBER("device", options->device),
		 NUMBER("events", result->events), NUMBER("events_applied", result->events_applied),
		 NUMBER("events_ignored", result->ignored),
		 NUMBER("requested_peak", peak(task, NEAP_METRIC_REQUESTED_BYTES)),
		 NUMBER("allocated_peak", peak(task, NEAP_METRIC_ALLOCATED_BYTES)),
		 NUMBER("active_peak", peak(task, NEAP_METRIC_ACTIVE_BYTES)),
		 NUMBER("reserved_peak", peak(task, NEAP_METRIC_RESERVED_BYTES)),
		 NUMBER("driver_calls", neap_policy_driver_calls(&usage->calls)),
		 NUMBER("synchronizations", usage->synchronizations),
		 INTEGER("retries", usage->stats.num_alloc_retries), INTEGER("ooms", usage->stats.num_ooms),
		 NUMBER("oom_rejections", usage->rejections), KNOWN("first_oom_event", result->first_oom_event),
		 VALUE("oom_list", ooms_json(result)), REAL("ns_per_event", ns_per_event(task)),
		 GIVEN("smallest_memory", task->smallest_bytes), VALUE("calls", calls_json(&usage->calls)),
		 VALUE("first_quarter", work_json(&result->warm_up)),
		 VALUE("after_first_quarter", work_json(&result->warm)),
		 VALUE("segment_events", torch ? segments_json(usage) : json_null()),
		 VALUE("recording", result->match.compared ? match_json(&result->match) : json_null()));
	neap_stats_each(&usage->stats, add_stat, stats);
	for (size_t i = 0; i < result->pool_count; i++)
		add_pool(&result->pools[i], stats);
	neap_json_set(root, "memory_stats", stats);
	return json_print("replay", root, JSON_INDENT(2));
}

static void print_size(const char *name, uint64_t bytes, uint64_t base)
{
	char text[NEAP_UNITS_CAPACITY];
	printf("  %-18s %12s", name, neap_size_format(bytes, text));
	if (base && bytes >= base)
		printf("  %+.2f %% over requested", 100.0 * (double)(bytes - base) / (double)base);
	putchar('\n');
}

static void print_match(const struct neap_replay_match *match)
{
	if (match->first_difference == UINT64_MAX) {
		printf("As recorded: all %" PRIu64 " blocks and %" PRIu64 " segment events are the recorded ones.\n",
		       match->allocs, match->segments);
		return;
	}
	printf("Not as recorded: from event %" PRIu64 " on; %" PRIu64 " of %" PRIu64 " blocks and %" PRIu64
	       " of %" PRIu64 " segment events are the recorded ones.\n",
	       match->first_difference, match->same_allocs, match->allocs, match->same_segments, match->segments);
	puts("Give --memory and --fraction where the device was full or a fraction was set: a snapshot does not "
	     "say.");
}

/* As which release of PyTorch, and why. */
static void print_version(const struct neap_replay_version *version)
{
	static const char *const reasons[] = {
		[NEAP_REPLAY_VERSION_NEWEST] = "the trace does not say",
		[NEAP_REPLAY_VERSION_ASKED] = "by --torch",
		[NEAP_REPLAY_VERSION_KEYS] = "by the snapshot's keys",
		[NEAP_REPLAY_VERSION_CHOICES] = "by the snapshot's keys and the blocks that it chose",
	};
	char release[32];
	snprintf(release, sizeof release, version->from < version->to ? "2.%u to 2.%u" : "2.%u", version->from,
		 version->to);
	printf("  %-18s %12s  %s; of free blocks alike the first by %s\n", "PyTorch", release, reasons[version->why],
	       neap_torch_order_name(version->order));
}

static void print_people(const struct task *task)
{
	const struct neap_replay_options *options = &task->options;
	const struct neap_replay_result *result = &task->result;
	const struct neap_policy_usage *usage = &result->usage;
	uint64_t requested = peak(task, NEAP_METRIC_REQUESTED_BYTES);
	char memory[NEAP_UNITS_CAPACITY];
	printf("%s under %s", NEAP_PRINTABLE(task->path),
	       options->policy == NEAP_REPLAY_NEAP    ? "neap's allocator"
	       : result->settings.expandable_segments ? "PyTorch's policy with expandable segments"
						      : "PyTorch's policy");
	if (options->memory_bytes)
		printf(", on a device of %s\n", neap_size_format(options->memory_bytes, memory));
	else
		puts(", on a device without bound");
	printf("  %-18s %12" PRIu64, "events", result->events_applied);
	if (result->events_applied < result->events)
		printf("  of %" PRIu64, result->events);
	if (result->ignored)
		printf("  (%" PRIu64 " about blocks that are not known were passed over)", result->ignored);
	putchar('\n');
	if (options->policy != NEAP_REPLAY_NEAP)
		print_version(&result->version);
	print_size("requested peak", requested, 0);
	print_size("allocated peak", peak(task, NEAP_METRIC_ALLOCATED_BYTES), requested);
	print_size("reserved peak", peak(task, NEAP_METRIC_RESERVED_BYTES), requested);
	printf("  %-18s %12" PRIu64 "  %" PRIu64 " to grow; after the first quarter %.2f others per 1000 events\n",
	       "driver calls", neap_policy_driver_calls(&usage->calls),
	       result->warm_up.growth_calls + result->warm.growth_calls, calls_per_1000(&result->warm));
	printf("  %-18s %12" PRIu64 "\n", "synchronizations", usage->synchronizations);
	printf("  %-18s %12" PRId64 "\n", "retries", usage->stats.num_alloc_retries);
	printf("  %-18s %12" PRId64 "\n", "out of memory", usage->stats.num_ooms);
	if (usage->rejections)
		printf("  %-18s %12" PRIu64 "\n", "rejected", usage->rejections);
	printf("  %-18s %12.0f\n", "ns per event", ns_per_event(task));
	if (task->smallest_bytes)
		print_size("smallest device", task->smallest_bytes, requested);
	for (size_t i = 0; i < result->oom_count; i++) {
		char wanted[NEAP_UNITS_CAPACITY], held[NEAP_UNITS_CAPACITY], used[NEAP_UNITS_CAPACITY];
		printf("Out of memory at event %" PRIu64 ": %s wanted, %s allocated, %s reserved.\n",
		       result->ooms[i].event, neap_size_format(result->ooms[i].requested, wanted),
		       neap_size_format(result->ooms[i].allocated, used),
		       neap_size_format(result->ooms[i].reserved, held));
	}
	if (result->first_oom_event == 0 && !result->events_applied && result->events)
		puts("The device is too small for what was there before the recording began.");
	if (result->match.compared)
		print_match(&result->match);
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
	catch_signals(); /* a pipe may be waited for, until a signal ends it */
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
	while (policy && index < POLICIES && strcmp(policy, policy_names[index]) != 0)
		index++;
	if (index == POLICIES)
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
	} else if (task.json) {
		code = print_json(&task);
	} else {
		print_people(&task);
	}
	neap_trace_free(task.trace);
	return code;
}
