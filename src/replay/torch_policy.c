/* replay/torch_policy.c: the path of a request through PyTorch's allocator, frees, statistics.
 *
 *   request → complete events → round → free set ─────────────────────────────→ split → block
 *                                        └ miss → collect garbage → segment ──┘
 *                                                   └ fails → free oversize blocks, segment again ─┘
 *                                                               └ fails → wait, free all, segment again ─┘
 *                                                                           └ fails → out of memory
 */
#include "base/error.h"
#include "base/units.h"
#include "replay/torch_internal.h"

#include <stdlib.h>
#include <string.h>

uint64_t neap_policy_driver_calls(const struct neap_policy_calls *calls)
{
	return calls->allocs + calls->failed_allocs + calls->frees + calls->creates + calls->failed_creates +
	       calls->releases + calls->maps + calls->accesses + calls->unmaps + calls->reserves +
	       calls->address_frees;
}

uint64_t neap_policy_taking_calls(const struct neap_policy_calls *calls)
{
	return calls->allocs + calls->creates + calls->maps + calls->accesses + calls->reserves;
}

enum neap_status torch_starved(struct torch *torch, struct neap_error *err)
{
	torch->starved = false;
	return neap_fail(err, NEAP_ENOMEM, "replaying PyTorch's policy: this machine is out of memory");
}

void stat_add(struct neap_stat *stat, uint64_t amount)
{
	stat->current += (int64_t)amount;
	stat->allocated += (int64_t)amount;
	if (stat->current > stat->peak)
		stat->peak = stat->current;
}

void stat_take(struct neap_stat *stat, uint64_t amount)
{
	stat->current -= (int64_t)amount;
	stat->freed += (int64_t)amount;
}

void metric_add(struct torch *torch, enum neap_metric metric, const struct pool *pool, uint64_t amount)
{
	stat_add(&torch->usage.stats.metric[metric][NEAP_CLASS_ALL], amount);
	stat_add(&torch->usage.stats.metric[metric][pool->small ? NEAP_CLASS_SMALL : NEAP_CLASS_LARGE], amount);
}

void metric_take(struct torch *torch, enum neap_metric metric, const struct pool *pool, uint64_t amount)
{
	stat_take(&torch->usage.stats.metric[metric][NEAP_CLASS_ALL], amount);
	stat_take(&torch->usage.stats.metric[metric][pool->small ? NEAP_CLASS_SMALL : NEAP_CLASS_LARGE], amount);
}

void reserved_add(struct torch *torch, struct pool *pool, uint64_t bytes)
{
	metric_add(torch, NEAP_METRIC_RESERVED_BYTES, pool, bytes);
	stat_add(&pool->reserved, bytes);
	stat_add(&pool->large->reserved_all, bytes);
}

void reserved_take(struct torch *torch, struct pool *pool, uint64_t bytes)
{
	metric_take(torch, NEAP_METRIC_RESERVED_BYTES, pool, bytes);
	stat_take(&pool->reserved, bytes);
	stat_take(&pool->large->reserved_all, bytes);
}

/* Changes a metric by a signed amount; 0 leaves it as it is. */
static void metric_change(struct torch *torch, enum neap_metric metric, const struct pool *pool, int64_t amount)
{
	if (amount > 0)
		metric_add(torch, metric, pool, (uint64_t)amount);
	else if (amount < 0)
		metric_take(torch, metric, pool, (uint64_t)-amount);
}

void emit(struct torch *torch, enum neap_torch_action action, uint64_t address, uint64_t size, uint64_t stream)
{
	struct neap_policy_usage *usage = &torch->usage;
	switch (action) {
	case NEAP_TORCH_SEGMENT_ALLOC:
		usage->segment_allocs++;
		usage->segment_alloc_bytes += size;
		break;
	case NEAP_TORCH_SEGMENT_FREE:
		usage->segment_frees++;
		usage->segment_free_bytes += size;
		break;
	case NEAP_TORCH_SEGMENT_MAP:
		usage->segment_maps++;
		usage->segment_map_bytes += size;
		break;
	case NEAP_TORCH_SEGMENT_UNMAP:
		usage->segment_unmaps++;
		usage->segment_unmap_bytes += size;
		break;
	default:
		break;
	}
	if (torch->options.observe)
		torch->options.observe(torch->options.context, action, address, size, stream);
}

/* Makes the block free: joins it with its neighbours and puts it into the set. */
void free_block(struct torch *torch, struct block *block)
{
	struct pool *pool = block->pool;
	uint64_t size = block->size, requested = block->requested;
	int64_t splits = 0, split_bytes = 0;
	emit(torch, NEAP_TORCH_FREE_COMPLETED, block->address, requested, block->stream);
	struct block *neighbours[2] = {block->prev, block->next};
	for (size_t i = 0; i < 2; i++) {
		uint64_t bytes = block_merge(torch, block, neighbours[i]);
		splits -= bytes > 0;
		split_bytes -= (int64_t)bytes;
	}
	block_index(block);
	if (block_is_split(block)) {
		splits++;
		split_bytes += (int64_t)block->size;
	}
	if (!block->segment->expandable) {
		metric_change(torch, NEAP_METRIC_INACTIVE_SPLIT, pool, splits);
		metric_change(torch, NEAP_METRIC_INACTIVE_SPLIT_BYTES, pool, split_bytes);
	}
	metric_take(torch, NEAP_METRIC_ACTIVE, pool, 1);
	metric_take(torch, NEAP_METRIC_ACTIVE_BYTES, pool, size);
	metric_take(torch, NEAP_METRIC_REQUESTED_BYTES, pool, requested);
}

void neap_torch_refuse(struct neap_policy *policy, unsigned count) { torch_of(policy)->refusals = count; }
void neap_torch_capture(struct neap_policy *policy) { torch_of(policy)->capturing = true; }

static uint64_t expandable_size(const struct block *block)
{
	return block->size + (block->next && !block->next->mapped ? block->next->size : 0);
}

/* Finds the best fit if blocks of an expandable segment can grow: the bytes by which they can grow count. */
static struct block *fit_to_grow(const struct set *set, struct block *block)
{
	struct block *next = block;
	while (block->segment->expandable && (next = set_after(set, block)) && next->stream == block->stream &&
	       expandable_size(next) < expandable_size(block))
		block = next;
	return block;
}

struct block *choose_free(const struct torch *torch, const struct request *request)
{
	const struct neap_torch_settings *settings = &torch->options.settings;
	const struct set *set = &request->pool->free;
	struct block *block = set_at_least(set, request->stream, request->size);
	if (!block || block->stream != request->stream)
		return NULL;
	if (request->expandable)
		block = fit_to_grow(set, block);
	/* Skips blocks of expandable segments that were made before the program turned these off. */
	while (!request->expandable && block && block->stream == request->stream && block->segment->expandable)
		block = set_after(set, block);
	if (!block || block->stream != request->stream)
		return NULL;
	uint64_t limit = settings->max_split_bytes;
	if (request->size < limit && block->size >= limit)
		return NULL;
	if (request->size >= limit && block->size - request->size >= settings->max_non_split_rounding_bytes)
		return NULL;
	return block;
}

static bool find_free(struct torch *torch, struct request *request)
{
	if (torch->limited && torch->options.settings.garbage_collection_threshold > 0)
		request->pool->free_calls++;
	struct block *block = choose_free(torch, request);
	if (!block)
		return false;
	block_unindex(block);
	request->block = block;
	return true;
}

uint64_t neap_torch_cached(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t pool)
{
	struct torch *torch = torch_of(policy);
	if (bytes >= LARGEST_REQUEST)
		return 0;
	struct request request = request_make(torch, bytes, stream, pool);
	struct block *block = request.pool ? choose_free(torch, &request) : NULL;
	return block ? block->size : 0;
}

static bool should_split(const struct torch *torch, const struct request *request)
{
	uint64_t rest = request->block->size - request->size;
	bool fine = request->expandable ||
		    (torch->options.rules.splits_alike && torch->options.settings.expandable_segments);
	if (request->pool->whole)
		return false;
	if (request->pool->small || fine)
		return rest >= SMALLEST_BLOCK;
	return request->size < torch->options.settings.max_split_bytes && rest > SMALL_REQUEST;
}

/* Cuts the found block to size if it should be split, and takes the front part. NULL: starved. */
static struct block *cut(struct torch *torch, struct request *request)
{
	struct block *block = request->block;
	const struct pool *pool = request->pool;
	bool was_split = block_is_split(block), counted = !block->segment->expandable;
	if (!should_split(torch, request)) {
		if (was_split && counted) {
			metric_take(torch, NEAP_METRIC_INACTIVE_SPLIT_BYTES, pool, block->size);
			metric_take(torch, NEAP_METRIC_INACTIVE_SPLIT, pool, 1);
		}
		return block;
	}
	struct block *rest = block;
	block = block_new(torch, rest->segment, rest->pool, rest->stream, rest->address, request->size);
	if (!block) {
		block_index(rest);
		return NULL;
	}
	block_link(block, rest->prev, rest);
	rest->address += request->size;
	rest->size -= request->size;
	block_index(rest);
	if (!counted)
		return block;
	if (was_split) {
		metric_take(torch, NEAP_METRIC_INACTIVE_SPLIT_BYTES, pool, block->size);
	} else {
		metric_add(torch, NEAP_METRIC_INACTIVE_SPLIT_BYTES, pool, rest->size);
		metric_add(torch, NEAP_METRIC_INACTIVE_SPLIT, pool, 1);
	}
	return block;
}

/* Finds a block for the request, and takes it out of its set. */
static bool find_block(struct torch *torch, struct request *request)
{
	if (find_free(torch, request))
		return true;
	if (torch->limited && torch->options.settings.garbage_collection_threshold > 0)
		garbage_collect(torch);
	if (segment_alloc(torch, request, false))
		return true;
	if (request->rejected || torch->capturing)
		return false;
	if (release_oversize(torch, request) && segment_alloc(torch, request, false))
		return true;
	release_all(torch);
	return segment_alloc(torch, request, true);
}

static enum neap_status out_of_memory(struct torch *torch, const struct request *request, struct neap_error *err)
{
	char wanted[NEAP_UNITS_CAPACITY], held[NEAP_UNITS_CAPACITY], device[NEAP_UNITS_CAPACITY];
	if (request->rejected) {
		torch->usage.rejections++;
	} else {
		torch->usage.stats.num_ooms++;
		emit(torch, NEAP_TORCH_OOM, torch->device_bytes - torch->reserved, request->size, request->stream);
	}
	return neap_fail(err, NEAP_EOOM, "out of memory: %s wanted, %s reserved of %s",
			 neap_size_format(request->bytes, wanted), neap_size_format(torch->reserved, held),
			 neap_size_format(torch->limited ? torch->allowed_bytes : torch->device_bytes, device));
}

uint64_t segment_bytes(const struct torch *torch, uint64_t size)
{
	if (size <= SMALL_REQUEST)
		return SMALL_SEGMENT;
	if (size < MEDIUM_REQUEST)
		return torch->options.settings.large_segment_bytes;
	return (size + LARGE_ROUNDING - 1) / LARGE_ROUNDING * LARGE_ROUNDING;
}

struct request request_make(struct torch *torch, uint64_t bytes, uint64_t stream, uint32_t number)
{
	struct request request = {.bytes = bytes, .stream = stream};
	request.size = neap_torch_round(&torch->options.settings, bytes);
	request.segment_size = segment_bytes(torch, request.size);
	request.pool = pool_find(torch, number, request.size <= SMALL_REQUEST);
	if (request.pool && request.size > request.pool->largest)
		request.pool->largest = request.size;
	request.expandable = request.pool && torch->options.settings.expandable_segments && !request.pool->plain;
	return request;
}

/* The first part of both kinds of free. */
static void request_free(struct torch *torch, struct block *block)
{
	block->allocated = false;
	metric_take(torch, NEAP_METRIC_ALLOCATION, block->pool, 1);
	metric_take(torch, NEAP_METRIC_ALLOCATED_BYTES, block->pool, block->size);
	emit(torch, NEAP_TORCH_FREE_REQUESTED, block->address, block->requested, block->stream);
	if (block->size >= torch->options.settings.max_split_bytes)
		stat_take(&torch->usage.stats.oversize_allocations, 1);
}

static void forget_uses(struct block *block)
{
	while (block->uses) {
		struct use *next = block->uses->next;
		free(block->uses);
		block->uses = next;
	}
}

static enum neap_status torch_free(struct neap_policy *policy, void *handle, struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	struct block *block = handle;
	request_free(torch, block);
	for (struct use *use = block->uses; use; use = use->next)
		event_add(torch, block, queue_find(torch, use->stream));
	forget_uses(block);
	if (!block->events)
		free_block(torch, block);
	return torch->starved ? torch_starved(torch, err) : NEAP_OK;
}

static enum neap_status torch_alloc(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t number,
				    void **ret_block, struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	struct request request = {.bytes = bytes, .size = bytes, .stream = stream};
	poll_events(torch);
	if (bytes >= LARGEST_REQUEST)
		return out_of_memory(torch, &request, err);
	request = request_make(torch, bytes, stream, number);
	if (!request.pool)
		return torch_starved(torch, err);
	bool found = find_block(torch, &request);
	torch->refusals = 0;
	torch->capturing = false;
	if (!found)
		return torch->starved ? torch_starved(torch, err) : out_of_memory(torch, &request, err);
	struct block *block = cut(torch, &request);
	if (!block)
		return torch_starved(torch, err);
	block->allocated = true;
	block->requested = bytes;
	emit(torch, NEAP_TORCH_ALLOC, block->address, bytes, stream);
	metric_add(torch, NEAP_METRIC_ALLOCATION, request.pool, 1);
	metric_add(torch, NEAP_METRIC_ALLOCATED_BYTES, request.pool, block->size);
	metric_add(torch, NEAP_METRIC_ACTIVE, request.pool, 1);
	metric_add(torch, NEAP_METRIC_ACTIVE_BYTES, request.pool, block->size);
	metric_add(torch, NEAP_METRIC_REQUESTED_BYTES, request.pool, bytes);
	if (block->size >= torch->options.settings.max_split_bytes)
		stat_add(&torch->usage.stats.oversize_allocations, 1);
	if (torch->starved) /* some memory could not be given back, unlike in PyTorch */
		return torch_free(policy, block, err);
	*ret_block = block;
	return NEAP_OK;
}

void neap_torch_fail(struct neap_policy *policy, uint64_t bytes, uint64_t stream)
{
	struct torch *torch = torch_of(policy);
	struct request request = {.bytes = bytes, .stream = stream};
	request.size = bytes < LARGEST_REQUEST ? neap_torch_round(&torch->options.settings, bytes) : bytes;
	out_of_memory(torch, &request, NULL);
}

static enum neap_status torch_free_held(struct neap_policy *policy, void *handle, uint64_t token,
					struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	struct block *block = handle;
	request_free(torch, block);
	forget_uses(block);
	if (!block_hold(torch, block, token)) {
		free_block(torch, block);
		return torch_starved(torch, err);
	}
	return NEAP_OK;
}

static enum neap_status torch_record_stream(struct neap_policy *policy, void *handle, uint64_t stream,
					    struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	struct block *block = handle;
	struct use **link = &block->uses;
	if (stream == block->stream)
		return NEAP_OK;
	while (*link && (*link)->stream != stream)
		link = &(*link)->next;
	if (*link)
		return NEAP_OK;
	*link = malloc(sizeof **link);
	if (!*link)
		return torch_starved(torch, err);
	**link = (struct use){.stream = stream};
	return NEAP_OK;
}

static enum neap_status torch_empty_cache(struct neap_policy *policy, struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	release_all(torch);
	return torch->starved ? torch_starved(torch, err) : NEAP_OK;
}

static void torch_at(struct neap_policy *policy, uint64_t event) { torch_of(policy)->event = event; }

static void torch_usage(struct neap_policy *policy, struct neap_policy_usage *ret_usage)
{
	const struct torch *torch = torch_of(policy);
	*ret_usage = torch->usage;
	for (size_t i = 0; i < torch->pool_count; i++)
		if (torch->pools[i]->largest > ret_usage->largest_bytes)
			ret_usage->largest_bytes = torch->pools[i]->largest;
	/* With these settings, the fraction or the ranges depend on the device's size. */
	if (torch->limited || torch->options.settings.expandable_segments) {
		ret_usage->same_from_bytes = torch->device_bytes;
		ret_usage->same_below_bytes = torch->device_bytes + 1;
	}
}

static void torch_totals(struct neap_policy *policy, struct neap_policy_totals *ret_totals)
{
	const struct neap_policy_usage *usage = &torch_of(policy)->usage;
	ret_totals->calls = neap_policy_driver_calls(&usage->calls);
	ret_totals->taking = neap_policy_taking_calls(&usage->calls);
	ret_totals->synchronizations = usage->synchronizations;
	ret_totals->peak_bytes = (uint64_t)usage->stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak;
}

static void torch_destroy(struct neap_policy *policy)
{
	struct torch *torch = torch_of(policy);
	if (!policy)
		return;
	while (torch->first_segment) {
		for (struct block *block = torch->first_segment->first; block; block = block->next)
			forget_uses(block);
		segment_drop(torch, torch->first_segment);
	}
	events_fini(torch);
	pools_fini(torch);
	blocks_fini(torch);
	free(torch);
}

enum neap_status neap_torch_create(const struct neap_torch_options *options, struct neap_policy **ret_policy,
				   struct neap_error *err)
{
	struct torch *torch = calloc(1, sizeof *torch);
	if (!torch)
		return neap_fail(err, NEAP_ENOMEM, "a model of PyTorch's policy: this machine is out of memory");
	const struct neap_torch_settings *settings = &options->settings;
	torch->policy = (struct neap_policy){.at = torch_at,
					     .alloc = torch_alloc,
					     .free = torch_free,
					     .free_held = torch_free_held,
					     .complete = torch_complete,
					     .record_stream = torch_record_stream,
					     .empty_cache = torch_empty_cache,
					     .usage = torch_usage,
					     .totals = torch_totals,
					     .check = torch_check,
					     .destroy = torch_destroy};
	torch->options = *options;
	torch->device_bytes = options->device_bytes ? options->device_bytes : UNBOUNDED;
	double allowed = settings->fraction * (double)torch->device_bytes;
	torch->limited = settings->fraction > 0 && (settings->fraction < 1 || !options->rules.fraction_1_is_none);
	torch->usage.same_below_bytes = UINT64_MAX;
	torch->allowed_bytes = (uint64_t)(options->rules.fraction_rounds ? allowed + 0.5 : allowed);
	torch->usage.stats.max_split_size =
		settings->max_split_bytes == NEAP_TORCH_UNLIMITED ? -1 : (int64_t)settings->max_split_bytes;
	if (!pool_find(torch, 0, false)) {
		torch_destroy(&torch->policy);
		return neap_fail(err, NEAP_ENOMEM, "a model of PyTorch's policy: this machine is out of memory");
	}
	*ret_policy = &torch->policy;
	return NEAP_OK;
}
