/* replay/neap_policy.c: implements a policy with calls of neap's allocator. A block's handle is its address. */
#include "replay/neap_policy.h"
#include "base/error.h"
#include "neap/alloc.h"
#include "replay/paper.h"

#include <stdlib.h>

#define UNBOUNDED  (1ull << 41) /* more than any device has, since there is no bound. Each page costs time */
#define PAGE_BYTES (2ull << 20)
/* Held frees wait on streams of their own. Events of one stream complete in order, and those of a recording may not;
 * with several streams, few frees wait longer than they must. */
#define HOLDING_STREAMS 16

struct own {
	struct neap_policy policy; /* must be first */
	struct neap_paper paper;
	struct neap_alloc *alloc;
	uint64_t holds;
};

/* Returns a stream's handle, which is only a name here: aligned, and NULL only for the default stream. */
static void *stream_of(uint64_t number) { return (void *)(uintptr_t)(number * 16); }

static void own_at(struct neap_policy *policy, uint64_t event) { ((struct own *)policy)->paper.now = event; }

static void own_step(struct neap_policy *policy)
{
	neap_emit_step(((struct own *)policy)->alloc, (struct neap_event_step){0});
}

static enum neap_status own_alloc(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t pool,
				  void **ret_block, struct neap_error *err)
{
	uint64_t address = 0;
	(void)pool;
	enum neap_status status = neap_malloc(((struct own *)policy)->alloc, bytes, stream_of(stream), &address, err);
	if (!status)
		*ret_block = (void *)(uintptr_t)address;
	return status;
}

static enum neap_status own_free(struct neap_policy *policy, void *block, struct neap_error *err)
{
	enum neap_status status = neap_free(((struct own *)policy)->alloc, (uint64_t)(uintptr_t)block);
	if (status)
		return neap_fail(err, status, "a block that is not live was freed");
	return NEAP_OK;
}

static enum neap_status own_free_held(struct neap_policy *policy, void *block, uint64_t token, struct neap_error *err)
{
	struct own *own = (struct own *)policy;
	void *stream = (void *)(UINTPTR_MAX - 15 - 16 * (own->holds++ % HOLDING_STREAMS));
	enum neap_status status = neap_record_stream(own->alloc, (uint64_t)(uintptr_t)block, stream);
	if (!status && !neap_map_put(&own->paper.held, token, 1))
		status = NEAP_ENOMEM;
	if (status)
		return neap_fail(err, status, "holding a freed block");
	own->paper.holding = true;
	own->paper.token = token;
	status = own_free(policy, block, err);
	own->paper.holding = false;
	return status;
}

static void own_complete(struct neap_policy *policy, uint64_t token)
{
	neap_map_remove(&((struct own *)policy)->paper.held, token, NULL);
}

static enum neap_status own_record_stream(struct neap_policy *policy, void *block, uint64_t stream,
					  struct neap_error *err)
{
	enum neap_status status =
		neap_record_stream(((struct own *)policy)->alloc, (uint64_t)(uintptr_t)block, stream_of(stream));
	if (status)
		return neap_fail(err, status, "recording a stream");
	return NEAP_OK;
}

static enum neap_status own_empty_cache(struct neap_policy *policy, struct neap_error *err)
{
	uint64_t freed_bytes = 0;
	return neap_empty_cache(((struct own *)policy)->alloc, &freed_bytes, err);
}

static void own_usage(struct neap_policy *policy, struct neap_policy_usage *ret_usage)
{
	struct own *own = (struct own *)policy;
	*ret_usage = (struct neap_policy_usage){.calls = own->paper.calls,
						.synchronizations = own->paper.synchronizations,
						/* Ranges of addresses are as large as the device, so the outcome is
						 * known for its size only. */
						.same_from_bytes = own->paper.room_bytes,
						.same_below_bytes = own->paper.room_bytes + 1,
						.events_recorded = own->paper.events_recorded};
	neap_get_stats(own->alloc, &ret_usage->stats);
}

static void own_totals(struct neap_policy *policy, struct neap_policy_totals *ret_totals)
{
	const struct neap_paper *paper = &((struct own *)policy)->paper;
	ret_totals->calls = neap_policy_driver_calls(&paper->calls);
	ret_totals->taking = neap_policy_taking_calls(&paper->calls);
	ret_totals->synchronizations = paper->synchronizations;
	ret_totals->peak_bytes = paper->peak_bytes;
}

static enum neap_status own_check(struct neap_policy *policy, struct neap_error *err)
{
	return neap_alloc_check(((struct own *)policy)->alloc, err);
}

static void own_destroy(struct neap_policy *policy)
{
	struct own *own = (struct own *)policy;
	if (!own)
		return;
	neap_alloc_destroy(own->alloc);
	neap_paper_close(&own->paper);
	free(own);
}

enum neap_status neap_policy_create(const struct neap_policy_options *options, struct neap_policy **ret_policy,
				    struct neap_error *err)
{
	struct own *own = calloc(1, sizeof *own);
	struct neap_alloc_options own_options = {.fraction = options->fraction, .no_plan = options->no_plan};
	if (!own)
		return neap_fail(err, NEAP_ENOMEM,
				 "a replay through neap's allocator: this machine is out of memory");
	own->policy = (struct neap_policy){.at = own_at,
					   .step = own_step,
					   .alloc = own_alloc,
					   .free = own_free,
					   .free_held = own_free_held,
					   .complete = own_complete,
					   .record_stream = own_record_stream,
					   .empty_cache = own_empty_cache,
					   .usage = own_usage,
					   .totals = own_totals,
					   .check = own_check,
					   .destroy = own_destroy};
	enum neap_status status = neap_paper_open(
		&own->paper, options->memory_bytes ? options->memory_bytes : UNBOUNDED, PAGE_BYTES, err);
	if (!status) {
		own->paper.event_delay = options->event_delay;
		status = neap_alloc_create(own->paper.device, &own_options, &own->alloc, err);
	}
	if (status) {
		own_destroy(&own->policy);
		return status;
	}
	*ret_policy = &own->policy;
	return NEAP_OK;
}
