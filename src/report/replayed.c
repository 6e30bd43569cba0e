/* report/replayed.c: see the header. */
#include "report/replayed.h"

#include "base/printable.h"
#include "base/units.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <stdio.h>

#define SCHEMA 1

const char *const neap_replay_policy_names[NEAP_REPLAY_POLICIES] = {
	[NEAP_REPLAY_TORCH] = "torch",
	[NEAP_REPLAY_TORCH_EXPANDABLE] = "torch-expandable",
	[NEAP_REPLAY_NEAP] = "neap",
};

static uint64_t peak(const struct neap_replayed *replayed, enum neap_metric metric)
{
	return (uint64_t)replayed->result->usage.stats.metric[metric][NEAP_CLASS_ALL].peak;
}

static double ns_per_event(const struct neap_replayed *replayed)
{
	uint64_t events = replayed->result->events_applied;
	return events ? (double)replayed->result->elapsed_ns / (double)events : 0;
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

json_t *neap_replayed_json(const struct neap_replayed *replayed)
{
	const struct neap_replay_options *options = replayed->options;
	const struct neap_replay_result *result = replayed->result;
	const struct neap_policy_usage *usage = &result->usage;
	bool torch = options->policy != NEAP_REPLAY_NEAP;
	json_t *root = json_object(), *stats = json_object();
	JSON_PUT(root, INTEGER("schema", SCHEMA), TEXT("trace", replayed->path),
		 TEXT("policy", neap_replay_policy_names[options->policy]),
		 VALUE("settings", torch ? settings_json(&result->settings) : json_null()),
		 VALUE("torch", torch ? version_json(&result->version) : json_null()),
		 GIVEN("memory", options->memory_bytes), NUMBER("device", options->device),
		 NUMBER("events", result->events), NUMBER("events_applied", result->events_applied),
		 NUMBER("events_ignored", result->ignored),
		 NUMBER("requested_peak", peak(replayed, NEAP_METRIC_REQUESTED_BYTES)),
		 NUMBER("allocated_peak", peak(replayed, NEAP_METRIC_ALLOCATED_BYTES)),
		 NUMBER("active_peak", peak(replayed, NEAP_METRIC_ACTIVE_BYTES)),
		 NUMBER("reserved_peak", peak(replayed, NEAP_METRIC_RESERVED_BYTES)),
		 NUMBER("driver_calls", neap_policy_driver_calls(&usage->calls)),
		 NUMBER("synchronizations", usage->synchronizations),
		 INTEGER("retries", usage->stats.num_alloc_retries), INTEGER("ooms", usage->stats.num_ooms),
		 NUMBER("oom_rejections", usage->rejections), KNOWN("first_oom_event", result->first_oom_event),
		 VALUE("oom_list", ooms_json(result)), REAL("ns_per_event", ns_per_event(replayed)),
		 GIVEN("smallest_memory", replayed->smallest_bytes), VALUE("calls", calls_json(&usage->calls)),
		 VALUE("first_quarter", work_json(&result->warm_up)),
		 VALUE("after_first_quarter", work_json(&result->warm)),
		 VALUE("segment_events", torch ? segments_json(usage) : json_null()),
		 VALUE("recording", result->match.compared ? match_json(&result->match) : json_null()));
	neap_stats_each(&usage->stats, add_stat, stats);
	for (size_t i = 0; i < result->pool_count; i++)
		add_pool(&result->pools[i], stats);
	neap_json_set(root, "memory_stats", stats);
	return root;
}

static void put_size(struct neap_buffer *out, const char *name, uint64_t bytes, uint64_t base)
{
	char text[NEAP_UNITS_CAPACITY];
	neap_buffer_format(out, "  %-18s %12s", name, neap_size_format(bytes, text));
	if (base && bytes >= base)
		neap_buffer_format(out, "  %+.2f %% over requested", 100.0 * (double)(bytes - base) / (double)base);
	neap_buffer_text(out, "\n");
}

static void put_match(struct neap_buffer *out, const struct neap_replay_match *match)
{
	if (match->first_difference == UINT64_MAX) {
		neap_buffer_format(out,
				   "As recorded: all %" PRIu64 " blocks and %" PRIu64
				   " segment events are the recorded ones.\n",
				   match->allocs, match->segments);
		return;
	}
	neap_buffer_format(out,
			   "Not as recorded: from event %" PRIu64 " on; %" PRIu64 " of %" PRIu64
			   " blocks and %" PRIu64 " of %" PRIu64 " segment events are the recorded ones.\n",
			   match->first_difference, match->same_allocs, match->allocs, match->same_segments,
			   match->segments);
	neap_buffer_text(
		out,
		"Give --memory and --fraction where the device was full or a fraction was set: a snapshot does not "
		"say.\n");
}

/* Writes the release of PyTorch whose rules the replay followed, and the reason for that choice. */
static void put_version(struct neap_buffer *out, const struct neap_replay_version *version)
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
	neap_buffer_format(out, "  %-18s %12s  %s; of free blocks alike the first by %s\n", "PyTorch", release,
			   reasons[version->why], neap_torch_order_name(version->order));
}

void neap_report_replayed(struct neap_buffer *out, const struct neap_replayed *replayed)
{
	const struct neap_replay_options *options = replayed->options;
	const struct neap_replay_result *result = replayed->result;
	const struct neap_policy_usage *usage = &result->usage;
	uint64_t requested = peak(replayed, NEAP_METRIC_REQUESTED_BYTES);
	char memory[NEAP_UNITS_CAPACITY];
	neap_buffer_format(out, "%s under %s", NEAP_PRINTABLE(replayed->path),
			   options->policy == NEAP_REPLAY_NEAP    ? "neap's allocator"
			   : result->settings.expandable_segments ? "PyTorch's policy with expandable segments"
								  : "PyTorch's policy");
	if (options->memory_bytes)
		neap_buffer_format(out, ", on a device of %s\n", neap_size_format(options->memory_bytes, memory));
	else
		neap_buffer_text(out, ", on a device without bound\n");
	neap_buffer_format(out, "  %-18s %12" PRIu64, "events", result->events_applied);
	if (result->events_applied < result->events)
		neap_buffer_format(out, "  of %" PRIu64, result->events);
	if (result->ignored)
		neap_buffer_format(out, "  (%" PRIu64 " about blocks that are not known were passed over)",
				   result->ignored);
	neap_buffer_text(out, "\n");
	if (options->policy != NEAP_REPLAY_NEAP)
		put_version(out, &result->version);
	put_size(out, "requested peak", requested, 0);
	put_size(out, "allocated peak", peak(replayed, NEAP_METRIC_ALLOCATED_BYTES), requested);
	put_size(out, "reserved peak", peak(replayed, NEAP_METRIC_RESERVED_BYTES), requested);
	neap_buffer_format(out,
			   "  %-18s %12" PRIu64 "  %" PRIu64
			   " to grow; after the first quarter %.2f others per 1000 events\n",
			   "driver calls", neap_policy_driver_calls(&usage->calls),
			   result->warm_up.growth_calls + result->warm.growth_calls, calls_per_1000(&result->warm));
	neap_buffer_format(out, "  %-18s %12" PRIu64 "\n", "synchronizations", usage->synchronizations);
	neap_buffer_format(out, "  %-18s %12" PRId64 "\n", "retries", usage->stats.num_alloc_retries);
	neap_buffer_format(out, "  %-18s %12" PRId64 "\n", "out of memory", usage->stats.num_ooms);
	if (usage->rejections)
		neap_buffer_format(out, "  %-18s %12" PRIu64 "\n", "rejected", usage->rejections);
	neap_buffer_format(out, "  %-18s %12.0f\n", "ns per event", ns_per_event(replayed));
	if (replayed->smallest_bytes)
		put_size(out, "smallest device", replayed->smallest_bytes, requested);
	for (size_t i = 0; i < result->oom_count; i++) {
		char wanted[NEAP_UNITS_CAPACITY], held[NEAP_UNITS_CAPACITY], used[NEAP_UNITS_CAPACITY];
		neap_buffer_format(out, "Out of memory at event %" PRIu64 ": %s wanted, %s allocated, %s reserved.\n",
				   result->ooms[i].event, neap_size_format(result->ooms[i].requested, wanted),
				   neap_size_format(result->ooms[i].allocated, used),
				   neap_size_format(result->ooms[i].reserved, held));
	}
	if (result->first_oom_event == 0 && !result->events_applied && result->events)
		neap_buffer_text(out, "The device is too small for what was there before the recording began.\n");
	if (result->match.compared)
		put_match(out, &result->match);
}
