/* train/levels.c: thresholds on the memory left. Measures it when a step ends, lets thresholds.c decide, and acts. */
#include "train/session_internal.h"

#include "base/hostmem.h"
#include "base/log.h"
#include "base/process.h"
#include "base/units.h"

#include <stdio.h>
#include <unistd.h>

static bool any(const struct neap_levels *levels)
{
	return levels->warn_bytes || levels->degrade_bytes || levels->stop_bytes;
}

uint64_t neap_session_headroom(struct neap_train *train, uint64_t peak_bytes)
{
	uint64_t free_bytes = 0, total_bytes = 0;
	struct neap_memory memory;

	if (neap_device_memory(neap_alloc_device(train->alloc), &free_bytes, &total_bytes, NULL) != NEAP_OK)
		return NEAP_LEFT_UNKNOWN;
	neap_memory_read(train->alloc, &memory);
	uint64_t most = free_bytes + memory.reserved_bytes;
	double fraction = neap_get_fraction(train->alloc);
	if (fraction > 0 && fraction < 1 && fraction * (double)total_bytes < (double)most)
		most = (uint64_t)(fraction * (double)total_bytes);
	return most > peak_bytes ? most - peak_bytes : 0;
}

static uint64_t host_left(const struct neap_train *train)
{
	uint64_t limit = train->options.host_limit_bytes, left = NEAP_LEFT_UNKNOWN;
	struct neap_host_memory host;
	struct neap_process self;

	if (neap_host_memory_read("", &host, NULL) == NEAP_OK)
		left = host.available_bytes;
	if (limit && neap_process_read(getpid(), &self, NULL) == NEAP_OK) {
		uint64_t below = limit > self.rss_bytes ? limit - self.rss_bytes : 0;
		left = below < left ? below : left;
	}
	return left;
}

static uint64_t left_of(struct neap_train *train, enum neap_level_kind kind, uint64_t peak_bytes)
{
	return kind == NEAP_LEVEL_DEVICE ? neap_session_headroom(train, peak_bytes) : host_left(train);
}

static const char *const names[] = {[NEAP_LEVEL_DEVICE] = "device memory", [NEAP_LEVEL_HOST] = "host memory"};

/* "device memory below 1.00 GiB (312 MiB left at the peak of step 7)" */
static void describe(const struct neap_train *train, enum neap_level_kind kind, uint64_t below_bytes,
		     uint64_t left_bytes, char text[NEAP_REASON_CAPACITY])
{
	char below[NEAP_UNITS_CAPACITY], left[NEAP_UNITS_CAPACITY];

	snprintf(text, NEAP_REASON_CAPACITY, "%s below %s (%s left at the %s of step %llu)", names[kind],
		 neap_size_format(below_bytes, below), neap_size_format(left_bytes, left),
		 kind == NEAP_LEVEL_DEVICE ? "peak" : "end", (unsigned long long)train->steps);
}

static void emit_level(struct neap_train *train, enum neap_level_kind kind, enum neap_threshold_act act,
		       uint64_t below_bytes, uint64_t left_bytes)
{
	neap_emit_level(train->alloc, (struct neap_event_level){.name = neap_emit_name(train->alloc, names[kind]),
								.act = (uint32_t)act,
								.threshold_bytes = below_bytes,
								.left_bytes = left_bytes});
}

static void degrade(struct neap_train *train, enum neap_level_kind kind, const struct neap_levels *levels,
		    const char *reason, uint64_t peak_bytes)
{
	neap_log(train->options.log, NEAP_LOG_WARNING, "%s: %s: cleaning up", train->name, reason);
	neap_session_cleanup(train, NEAP_CLEANUP_LOW);
	uint64_t left_bytes = left_of(train, kind, peak_bytes);
	if (left_bytes != NEAP_LEFT_UNKNOWN && left_bytes >= levels->degrade_bytes)
		neap_log(train->options.log, NEAP_LOG_INFO, "%s: the cleanup was enough: no rung is taken",
			 train->name);
	else
		neap_session_degrade(train);
}

static void watch(struct neap_train *train, enum neap_level_kind kind, uint64_t peak_bytes)
{
	const struct neap_levels *levels = kind == NEAP_LEVEL_DEVICE ? &train->options.device : &train->options.host;
	uint64_t left_bytes = left_of(train, kind, peak_bytes), below_bytes = 0;
	struct neap_train_settings next;
	bool rung_left = !train->options.no_ladder &&
			 neap_ladder_next(&train->now, train->options.rungs_offered, &next) != NEAP_RUNG_STOP;
	enum neap_threshold_act act =
		neap_threshold_decide(&train->thresholds[kind], levels, left_bytes, rung_left, train->steps);
	char reason[NEAP_REASON_CAPACITY];

	bool at_end = !rung_left && left_bytes != NEAP_LEFT_UNKNOWN && left_bytes < levels->degrade_bytes;
	bool warned = train->warned_no_rung[kind];
	train->warned_no_rung[kind] |= at_end;
	if (act == NEAP_THRESHOLD_NOTHING && (warned || !at_end))
		return;
	if (act == NEAP_THRESHOLD_NOTHING)
		act = NEAP_THRESHOLD_WARN; /* it warned of this before, when rungs were left */
	below_bytes = act == NEAP_THRESHOLD_STOP      ? levels->stop_bytes
		      : act == NEAP_THRESHOLD_DEGRADE ? levels->degrade_bytes
						      : neap_threshold_warns_below(levels, rung_left);
	describe(train, kind, below_bytes, left_bytes, reason);
	emit_level(train, kind, act, below_bytes, left_bytes);
	if (act == NEAP_THRESHOLD_DEGRADE)
		degrade(train, kind, levels, reason, peak_bytes);
	else if (act == NEAP_THRESHOLD_STOP)
		neap_session_request(train, names[kind], reason,
				     (struct neap_event_request){.request = NEAP_TRAIN_STOP,
								 .left_bytes = left_bytes,
								 .threshold_bytes = below_bytes});
	else
		neap_log(train->options.log, NEAP_LOG_WARNING, "%s: %s%s", train->name, reason,
			 at_end && !warned ? ": no rung of the ladder is left" : "");
}

void neap_session_watch_levels(struct neap_train *train, uint64_t peak_bytes)
{
	if (any(&train->options.device) && train->request == NEAP_TRAIN_GO_ON)
		watch(train, NEAP_LEVEL_DEVICE, peak_bytes);
	if (any(&train->options.host) && train->request == NEAP_TRAIN_GO_ON)
		watch(train, NEAP_LEVEL_HOST, peak_bytes);
}
