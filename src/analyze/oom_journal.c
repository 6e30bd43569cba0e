/* analyze/oom_journal.c: reads a failure from a recording's journal: the device, the limit, the tags, what was in
 * force, the steps before, and what the process did afterwards. */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A recording with more is corrupt, and its divisors would take long to find. */
#define MICRO_BATCH_MAX (1ull << 32)

static bool is_oom(const struct neap_record *record, size_t i, size_t device)
{
	const struct neap_event *event = &record->journal[i];
	return event->kind == NEAP_EVENT_OOM && (device == NEAP_OOM_ANY_DEVICE || event->device == device);
}

size_t neap_oom_count_before(const struct neap_record *record, size_t device, size_t end)
{
	size_t count = 0;

	for (size_t i = 0; i < end; i++)
		count += is_oom(record, i, device);
	return count;
}

size_t neap_oom_find(const struct neap_record *record, size_t device, size_t index)
{
	size_t i = 0;

	while (i < record->journal_count && !(is_oom(record, i, device) && index-- == 0))
		i++;
	return i;
}

size_t neap_oom_count(const struct neap_record *record)
{
	return neap_oom_count_before(record, NEAP_OOM_ANY_DEVICE, record->journal_count);
}

static int by_live_bytes(const void *left, const void *right)
{
	uint64_t a = ((const struct neap_oom_tag *)left)->live_bytes,
		 b = ((const struct neap_oom_tag *)right)->live_bytes;

	return a > b ? -1 : a < b;
}

void neap_oom_sort_tags(struct neap_oom_tag *tags, size_t count) { qsort(tags, count, sizeof *tags, by_live_bytes); }

static void add_tag(struct neap_oom_card *card, const struct neap_record *record,
		    const struct neap_event_tag_bytes *counted)
{
	if (card->tag_count == NEAP_OOM_TAGS)
		return;
	struct neap_oom_tag *tag = &card->tags[card->tag_count++];
	snprintf(tag->tag, sizeof tag->tag, "%s", neap_record_name(record, counted->tag));
	tag->live_bytes = counted->live_bytes;
	tag->peak_bytes = counted->peak_bytes;
	tag->live_blocks = counted->live_blocks;
}

static void read_limits(struct neap_oom_card *card, const struct neap_event_oom_limits *limits)
{
	card->limit_bytes = limits->limit_bytes;
	card->device_total_bytes = limits->device_total_bytes;
	card->largest_free_bytes = limits->largest_free_bytes;
	card->others_bytes = limits->others_bytes;
	card->pending_bytes = limits->pending_bytes;
	card->context_bytes = limits->context_bytes;
}

static void read_pools(struct neap_oom_card *card, const struct neap_event_oom_pools *pools)
{
	bool small = pools->small_failed;
	uint64_t own = small ? pools->small_largest_free_bytes : pools->large_largest_free_bytes;
	uint64_t other = small ? pools->large_largest_free_bytes : pools->small_largest_free_bytes;

	card->asked_pool = small ? NEAP_OOM_POOL_SMALL : NEAP_OOM_POOL_LARGE;
	card->largest_free_bytes = own;
	card->elsewhere_free_bytes = other;
	if (other > 0)
		card->elsewhere_pool = small ? NEAP_OOM_POOL_LARGE : NEAP_OOM_POOL_SMALL;
}

static void read_rung(struct neap_oom_card *card, const struct neap_event *event)
{
	const struct neap_event_rung *rung = neap_event_as_rung(event);

	card->rung_taken = rung->rung <= NEAP_RUNG_STOP ? (enum neap_rung)rung->rung : NEAP_RUNG_NONE;
	card->split_after = neap_record_split(event, card->split.ranks);
	if (!card->split.micro_batch) /* the journal has lost the beginning */
		card->split = (struct neap_split){
			.micro_batch = rung->micro_batch_before, .accumulate = rung->accumulate_before, .ranks = 1};
}

/* Reads the details of the failure, and what the process did afterwards, up to the device's next OOM. */
static void read_after(struct neap_oom_card *card, const struct neap_record *record, size_t at)
{
	const struct neap_event *oom = &record->journal[at];
	bool limits_seen = false, marked = false;

	for (size_t i = at + 1; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->device != oom->device)
			continue;
		if (event->kind == NEAP_EVENT_OOM)
			break;
		if (event->kind == NEAP_EVENT_OOM_LIMITS && !limits_seen) {
			limits_seen = true;
			read_limits(card, &event->oom_limits);
		} else if (event->kind == NEAP_EVENT_OOM_POOLS && card->asked_pool == NEAP_OOM_POOL_UNKNOWN) {
			read_pools(card, &event->oom_pools);
		} else if (event->kind == NEAP_EVENT_OOM_ASKED) {
			card->others_asked = event->oom_asked.processes;
			card->others_freed_bytes = event->oom_asked.freed_bytes;
		} else if (event->kind == NEAP_EVENT_OOM_MODEL && card->model.parameter_bytes == 0) {
			card->model = event->oom_model;
		} else if (event->kind == NEAP_EVENT_MARK) {
			marked |= event->mark.mark == NEAP_MARK_END; /* tags that follow are those of the run's end */
		} else if (event->kind == NEAP_EVENT_TAG_BYTES && !marked) {
			add_tag(card, record, &event->tag_bytes);
		} else if (event->kind == NEAP_EVENT_RUNG && card->rung_taken == NEAP_RUNG_NONE) {
			read_rung(card, event);
		}
	}
	if (card->largest_free_bytes != NEAP_OOM_UNKNOWN && card->largest_free_bytes >= card->block_bytes) {
		card->elsewhere_free_bytes = card->largest_free_bytes; /* it failed: another stream's or pool's */
		card->elsewhere_pool = NEAP_OOM_POOL_UNKNOWN;
	}
	neap_oom_sort_tags(card->tags, card->tag_count);
}

/* Reads what was in force at the failure, and the steps before it. */
static void read_before(struct neap_oom_card *card, const struct neap_record *record, size_t at,
			struct neap_oom_inputs *inputs)
{
	for (size_t i = 0; i < at; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->device != record->journal[at].device)
			continue;
		if (event->kind == NEAP_EVENT_SPLIT) {
			card->split = neap_record_split(event, 1);
			card->rungs_active = event->split.settings.rungs & NEAP_RUNGS_SWITCHED;
			card->layers = event->split.layers;
			card->step = 1;
		} else if (event->kind == NEAP_EVENT_RUNG) {
			card->rungs_active = event->rung.settings.rungs & NEAP_RUNGS_SWITCHED;
			card->split = neap_record_split(event, card->split.ranks);
		} else if (event->kind == NEAP_EVENT_STEP) {
			const struct neap_event_step *step = &event->step;
			inputs->settings += step->number == 1; /* another training */
			card->step = step->number < UINT64_MAX ? step->number + 1 : card->step;
			inputs->steps[inputs->step_count++] =
				(struct neap_oom_step){step->lowest_bytes, step->peak_bytes,
						       step->held.reserved_bytes, step->number, inputs->settings};
		}
		inputs->settings += event->kind == NEAP_EVENT_SPLIT || event->kind == NEAP_EVENT_RUNG;
	}
}

static struct neap_demand find_demand(const struct neap_oom_card *card)
{
	struct neap_demand demand = {0};
	uint64_t tagged = 0;

	for (size_t i = 0; i < card->tag_count; i++) {
		neap_demand_add(&demand, card->tags[i].tag, card->tags[i].live_bytes);
		tagged = neap_plus(tagged, card->tags[i].live_bytes);
	}
	demand.unknown =
		neap_plus(demand.unknown, neap_less(card->allocated_bytes, tagged)); /* tags that were not recorded */
	return demand;
}

static bool maps_pages(const struct neap_oom_card *card, const struct neap_record *record,
		       const struct neap_event_oom *oom)
{
	if (card->other_allocator)
		return oom->flags & NEAP_OOM_GROWS;
	for (size_t i = 0; i < record->allocation_count; i++)
		if (record->allocations[i].device == card->device &&
		    record->allocations[i].kind == NEAP_EVENT_SEGMENT_MAP)
			return true;
	return false;
}

static void fill_inputs(struct neap_oom_card *card, const struct neap_record *record, size_t at,
			struct neap_oom_inputs *inputs)
{
	inputs->live_bytes = neap_less(card->reserved_bytes, card->cached_bytes);
	inputs->segment_bytes = card->block_bytes;
	inputs->pages_mapped = maps_pages(card, record, &record->journal[at].oom);
	inputs->demand = find_demand(card);
	card->unknown_bytes = inputs->demand.unknown;
	neap_demand_add(&inputs->demand, card->tag, card->block_bytes);
	/* Nothing is known of a first request without a name. */
	inputs->training = inputs->demand.unknown < neap_demand_total(&inputs->demand) || card->allocated_bytes > 0;
}

static void read_failure(struct neap_oom_card *card, const struct neap_record *record, size_t at)
{
	const struct neap_event_oom *oom = &record->journal[at].oom;
	uint16_t device = record->journal[at].device;

	*card = (struct neap_oom_card){
		.source = NEAP_TRACE_RECORDING,
		.event = NEAP_OOM_UNKNOWN,
		.live_requested_bytes = NEAP_OOM_UNKNOWN,
		.time_ns = record->journal[at].time_ns,
		.device = device,
		.other_allocator = oom->flags & NEAP_OOM_OTHER,
		.requested_bytes = oom->requested_bytes,
		.block_bytes = oom->bytes > oom->requested_bytes ? oom->bytes : oom->requested_bytes,
		.device_free_bytes = oom->device_free_bytes,
		.allocated_bytes = oom->held.allocated_bytes,
		.reserved_bytes = oom->held.reserved_bytes,
		.cached_bytes = neap_less(oom->held.reserved_bytes, oom->held.allocated_bytes),
		.limit_bytes = UINT64_MAX,
	};
	snprintf(card->tag, sizeof card->tag, "%s", neap_record_name(record, oom->tag));
	card->count = neap_oom_count_before(record, device, record->journal_count);
	card->number = neap_oom_count_before(record, device, at + 1);
}

enum neap_status neap_oom_read_journal(const struct neap_record *record, size_t at, struct neap_oom_card *ret_card,
				       struct neap_oom_inputs *ret_inputs, struct neap_error *err)
{
	struct neap_oom_inputs inputs = {.steps = calloc(at + 1, sizeof *inputs.steps), .pool_bytes = UINT64_MAX};
	struct neap_oom_card *card = ret_card;

	if (!inputs.steps)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for the steps before an out-of-memory");
	read_failure(card, record, at);
	read_before(card, record, at, &inputs);
	read_after(card, record, at);
	if (card->split.micro_batch > MICRO_BATCH_MAX)
		card->split = (struct neap_split){0};
	fill_inputs(card, record, at, &inputs);
	*ret_inputs = inputs;
	return NEAP_OK;
}

enum neap_status neap_oom_card(const struct neap_record *record, size_t index, struct neap_oom_card *ret_card,
			       struct neap_error *err)
{
	size_t at = neap_oom_find(record, NEAP_OOM_ANY_DEVICE, index);
	struct neap_oom_inputs inputs = {0};
	struct neap_oom_card card;

	if (at == record->journal_count)
		return neap_fail(err, NEAP_ENOENT, "the recording has no out-of-memory number %zu", index + 1);
	enum neap_status status = neap_oom_read_journal(record, at, &card, &inputs, err);
	if (!status)
		status = neap_oom_conclude(&card, &inputs, err);
	neap_oom_inputs_fini(&inputs);
	if (!status)
		*ret_card = card;
	return status;
}
