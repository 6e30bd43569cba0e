/* The card of a recording with its replays: the journal's figures, the outcomes of the replays, events that the ring
 * has lost, and replays that there was no time for. */

#include "analyze/oom.h"
#include "base/units.h"
#include "neap/trace.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An allocator's recording made by hand: blocks one after another in one mapped range that grows by pages. */
struct maker {
	char path[64];
	struct neap_recorder *recorder;
	const struct neap_observer *observer;
	uint64_t now_ns, allocated, reserved;
};

static void begin(struct maker *maker, uint64_t allocation_events)
{
	struct neap_error err = {0};
	*maker = (struct maker){.path = "/tmp/neap-oom-XXXXXX"};
	int fd = mkstemp(maker->path);
	assert_true(fd >= 0);
	close(fd);
	if (neap_recorder_create(maker->path, 256, allocation_events, &maker->recorder, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	maker->observer = neap_recorder_observer(maker->recorder);
}

static void tell(struct maker *maker, struct neap_event event)
{
	event.time_ns = ++maker->now_ns * 1000;
	maker->observer->event(maker->observer->context, &event);
}

static void take(struct maker *maker, uint64_t address, uint64_t bytes, const char *tag)
{
	if (address + bytes > maker->reserved) {
		uint64_t more = (address + bytes - maker->reserved + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
		maker->reserved += more;
		tell(maker, (struct neap_event){.kind = NEAP_EVENT_SEGMENT_MAP,
						.segment = {.held = {maker->allocated, maker->reserved},
							    .address = (1ull << 40) + maker->reserved - more,
							    .bytes = more}});
	}
	maker->allocated += bytes;
	tell(maker, (struct neap_event){.kind = NEAP_EVENT_ALLOC,
					.allocation = {.held = {maker->allocated, maker->reserved},
						       .tag = maker->observer->name(maker->observer->context, tag),
						       .address = (1ull << 40) + address,
						       .requested_bytes = bytes,
						       .bytes = bytes}});
}

static void give(struct maker *maker, uint64_t address, uint64_t bytes)
{
	maker->allocated -= bytes;
	struct neap_event_allocation block = {.held = {maker->allocated, maker->reserved},
					      .address = (1ull << 40) + address,
					      .requested_bytes = bytes,
					      .bytes = bytes};
	tell(maker, neap_event_of_allocation(NEAP_EVENT_FREE_REQUESTED, 0, block));
	tell(maker, neap_event_of_allocation(NEAP_EVENT_FREE_COMPLETED, 0, block));
}

/* Out of memory on a device that has `free` bytes left. */
static void run_out(struct maker *maker, uint64_t bytes, uint64_t free)
{
	tell(maker, (struct neap_event){.kind = NEAP_EVENT_OOM,
					.oom = {.held = {maker->allocated, maker->reserved},
						.requested_bytes = bytes,
						.bytes = bytes,
						.device_free_bytes = free}});
	tell(maker, (struct neap_event){.kind = NEAP_EVENT_OOM_LIMITS,
					.oom_limits = {.limit_bytes = UINT64_MAX,
						       .device_total_bytes = maker->reserved + free + 10 * MIB,
						       .others_bytes = 10 * MIB,
						       .context_bytes = 8 * NEAP_MIB}});
	/* Meanwhile another thread's figures are recorded. */
	tell(maker, (struct neap_event){.kind = NEAP_EVENT_MARK, .mark = {.mark = NEAP_MARK_USER}});
	tell(maker,
	     (struct neap_event){.kind = NEAP_EVENT_TAG_BYTES,
				 .tag_bytes = {.tag = maker->observer->name(maker->observer->context, "activations"),
					       .live_bytes = maker->allocated,
					       .peak_bytes = maker->allocated,
					       .live_blocks = 1}});
}

static struct neap_trace *end(struct maker *maker)
{
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};
	neap_recorder_destroy(maker->recorder);
	if (neap_trace_read(maker->path, &trace, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	unlink(maker->path);
	assert_non_null(trace->record);
	return trace;
}

static struct neap_oom_card card_of(const struct neap_trace *trace, size_t index,
				    struct neap_trace_oom_options options)
{
	struct neap_oom_card card;
	struct neap_error err = {0};
	if (neap_trace_oom_recorded(trace, index, &options, &card, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return card;
}

static const struct neap_whatif *row(const struct neap_oom_card *card, const char *name)
{
	for (size_t i = 0; i < card->replays.whatifs.count; i++)
		if (strcmp(card->replays.whatifs.items[i].name, name) == 0)
			return &card->replays.whatifs.items[i];
	fail_msg("no row '%s'", name);
	return NULL;
}

/* 30 MiB of 32 are live and 4 are requested: 2 are missing, whichever the allocator. */
static void capacity_replayed(void **state)
{
	(void)state;
	struct maker maker;
	begin(&maker, 0);
	for (uint64_t i = 0; i < 15; i++)
		take(&maker, i * 2 * MIB, 2 * MIB, "activations");
	run_out(&maker, 4 * MIB, 2 * MIB);
	struct neap_trace *trace = end(&maker);
	struct neap_oom_card card = card_of(trace, 0, (struct neap_trace_oom_options){0});
	assert_int_equal(card.tag_count, 1);
	assert_int_equal(card.source, NEAP_TRACE_RECORDING);
	assert_int_equal(card.cause, NEAP_OOM_CAPACITY);
	assert_int_equal(card.shortfall_bytes, 2 * MIB);
	assert_int_equal(card.live_requested_bytes, 30 * MIB);
	assert_int_equal(card.unknown_bytes, 0);
	assert_int_equal(card.event, 30);
	assert_true(card.fragments.known);
	assert_int_equal(card.fragments.reserved, 30 * MIB);
	assert_int_equal(card.fragments.live, 30 * MIB);
	assert_int_equal(card.replays.memory_bytes, 32 * MIB);
	assert_true(card.replays.done && card.replays.smallest_tried);
	assert_int_equal(card.replays.smallest_bytes, 34 * MIB);
	assert_int_equal(card.replays.lost_events, 0);
	assert_true(card.replays.whatifs.items[0].own && !card.replays.whatifs.items[0].fits);
	assert_int_equal(card.replays.whatifs.items[0].first_oom_event, 30);
	/* PyTorch's setting, which this allocator does not have: reported, but not as a fix. */
	assert_false(row(&card, "PyTorch with its defaults")->fits);
	assert_true(row(&card, "neap's allocator")->active);
	for (size_t i = 0; i < card.fix_count; i++)
		assert_int_not_equal(card.fixes[i].kind, NEAP_FIX_SETTING);
	neap_trace_free(trace);
}

static uint64_t at_seven(void *context)
{
	(void)context;
	return 7;
}

/* No time: every setting is named, nothing is claimed. */
static void no_patience(void **state)
{
	const struct neap_clock stopped = {.now = at_seven};

	(void)state;
	struct maker maker;
	begin(&maker, 0);
	for (uint64_t i = 0; i < 15; i++)
		take(&maker, i * 2 * MIB, 2 * MIB, "activations");
	run_out(&maker, 4 * MIB, 2 * MIB);
	struct neap_trace *trace = end(&maker);
	struct neap_oom_card card = card_of(trace, 0, (struct neap_trace_oom_options){.deadline = {&stopped, 7}});
	assert_int_equal(card.cause, NEAP_OOM_CAPACITY);
	assert_true(card.fix_count > 0);
	assert_true(card.replays.whatifs.count > 3);
	for (size_t i = 0; i < card.replays.whatifs.count; i++)
		assert_false(card.replays.whatifs.items[i].tried);
	assert_true(card.replays.done);
	assert_false(card.replays.smallest_tried);
	assert_int_equal(card.replays.smallest_bytes, 0);
	/* One nanosecond more is enough: the clock stands still. */
	card = card_of(trace, 0, (struct neap_trace_oom_options){.deadline = {&stopped, 8}});
	assert_true(card.replays.smallest_tried);
	neap_trace_free(trace);
}

/* 20 MiB that stay, allocated before the ring's first event; then 64 pairs overwrite that event. */
static void a_beginning_that_is_lost(void **state)
{
	(void)state;
	struct maker maker;
	begin(&maker, 65);
	take(&maker, 0, 20 * MIB, "parameters");
	take(&maker, 20 * MIB, 6 * MIB, "activations"); /* freed within the ring: the free shows it */
	for (uint64_t i = 0; i < 64; i++) {
		take(&maker, 26 * MIB, MIB, "activations");
		if (i == 60)
			give(&maker, 20 * MIB, 6 * MIB);
		give(&maker, 26 * MIB, MIB);
	}
	run_out(&maker, 14 * MIB, 4 * MIB);
	struct neap_trace *trace = end(&maker);
	assert_true(trace->devices[0].lost > 0);
	assert_int_equal(trace->devices[0].before_bytes > 26 * MIB, true);
	struct neap_oom_card card = card_of(trace, 0, (struct neap_trace_oom_options){0});
	assert_true(card.replays.lost_events > 0);
	assert_int_equal(card.replays.before_bytes, 20 * MIB);
	assert_true(trace->devices[0].before_stack > 0);
	assert_int_equal(card.live_requested_bytes, 20 * MIB);
	assert_false(card.fragments.known); /* segments from before have no event */
	assert_int_equal(card.replays.memory_bytes, 32 * MIB);
	assert_false(card.replays.whatifs.items[0].fits);
	assert_int_equal(card.replays.smallest_bytes, 34 * MIB);
	neap_trace_free(trace);
}

/* A failure that is older than every kept allocation: only the journal has it. The steps that ended before those
 * allocations are not the trace's either. */
static void a_failure_that_is_overwritten(void **state)
{
	(void)state;
	struct maker maker;
	begin(&maker, 64);
	take(&maker, 0, 20 * MIB, "activations");
	run_out(&maker, 14 * MIB, 4 * MIB);
	tell(&maker, (struct neap_event){.kind = NEAP_EVENT_EMPTY_CACHE, .empty_cache = {.freed_bytes = MIB}});
	for (uint64_t i = 0; i < 100; i++) {
		take(&maker, 20 * MIB, MIB, "activations");
		give(&maker, 20 * MIB, MIB);
		tell(&maker, (struct neap_event){.kind = NEAP_EVENT_STEP, .step = {.number = i + 1}});
	}
	struct neap_trace *trace = end(&maker);
	assert_true(trace->devices[0].lost > 0);
	struct neap_oom_card card = card_of(trace, 0, (struct neap_trace_oom_options){0});
	assert_true(card.replays.overwritten);
	assert_false(card.replays.done);
	assert_false(card.fragments.known);
	assert_int_equal(card.block_bytes, 14 * MIB);
	assert_int_equal(card.allocated_bytes, 20 * MIB);
	struct neap_steps steps = {0};
	struct neap_error err = {0};
	assert_int_equal(neap_steps_find(trace, 0, &steps, &err), NEAP_OK);
	assert_true(steps.count > 10 && steps.count < 25); /* of 64 events, three in a step */
	assert_true(steps.ends[0] > neap_steps_first_kept(trace, 0));
	neap_steps_fini(&steps);
	neap_trace_free(trace);
}

/* Two devices: the numbers are those of the journal, and each has its own trace. */
static void which_of_several(void **state)
{
	(void)state;
	struct maker maker;
	begin(&maker, 0);
	take(&maker, 0, 2 * MIB, "activations");
	run_out(&maker, 8 * MIB, 0);
	tell(&maker, (struct neap_event){.kind = NEAP_EVENT_OOM,
					 .device = 1,
					 .oom = {.requested_bytes = 5 * MIB, .bytes = 5 * MIB}});
	take(&maker, 2 * MIB, 2 * MIB, "activations");
	run_out(&maker, 16 * MIB, 0);
	struct neap_trace *trace = end(&maker);
	struct neap_oom_card card = card_of(trace, 0, (struct neap_trace_oom_options){0});
	assert_int_equal(card.device, 0);
	assert_int_equal(card.number, 1);
	assert_int_equal(card.count, 2);
	assert_int_equal(card.block_bytes, 8 * MIB);
	card = card_of(trace, 1, (struct neap_trace_oom_options){0});
	assert_int_equal(card.device, 1);
	assert_int_equal(card.block_bytes, 5 * MIB);
	assert_false(card.replays.done); /* that device's size is not known */
	card = card_of(trace, 2, (struct neap_trace_oom_options){0});
	assert_int_equal(card.device, 0);
	assert_int_equal(card.number, 2);
	assert_int_equal(card.block_bytes, 16 * MIB);
	assert_int_equal(card.allocated_bytes, 4 * MIB);
	struct neap_trace_oom_options none = {0};
	struct neap_error err = {0};
	assert_int_equal(neap_trace_oom_recorded(trace, 3, &none, &card, &err), NEAP_ENOENT);
	neap_trace_free(trace);
}

/* A file that claims a device that there is not: no replay on it, and the rest remains. */
static void a_device_that_cannot_be(void **state)
{
	(void)state;
	struct maker maker;
	begin(&maker, 0);
	take(&maker, 0, 2 * MIB, "activations");
	run_out(&maker, 1ull << 60, 1ull << 59);
	struct neap_trace *trace = end(&maker);
	struct neap_oom_card card = card_of(trace, 0, (struct neap_trace_oom_options){0});
	assert_false(card.replays.done);
	assert_int_equal(card.block_bytes, 1ull << 60);
	neap_trace_free(trace);
}

/* Another allocator's failure has no allocations in the recording: there is nothing to replay, and the card says so.
 */
static void nothing_recorded(void **state)
{
	(void)state;
	struct maker maker;
	begin(&maker, 0);
	maker.allocated = 20 * MIB;
	maker.reserved = 24 * MIB;
	run_out(&maker, 14 * MIB, 4 * MIB);
	struct neap_trace *trace = end(&maker);
	struct neap_oom_card card = card_of(trace, 0, (struct neap_trace_oom_options){0});
	assert_int_equal(card.cause, NEAP_OOM_CAPACITY);
	assert_true(card.replays.unrecorded);
	assert_false(card.replays.done);
	assert_int_equal(card.replays.whatifs.count, 0);
	assert_true(card.fix_count > 0);
	neap_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(capacity_replayed),        cmocka_unit_test(no_patience),
		cmocka_unit_test(a_beginning_that_is_lost), cmocka_unit_test(a_failure_that_is_overwritten),
		cmocka_unit_test(which_of_several),         cmocka_unit_test(nothing_recorded),
		cmocka_unit_test(a_device_that_cannot_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
