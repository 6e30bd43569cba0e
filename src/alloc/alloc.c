/* alloc/alloc.c: creates and destroys allocators, and has the public calls without a file of their own. neap_malloc
 * and neap_free first try a lane, without the allocator's lock (front/front.h), then call request.c. */
#include "alloc/agent.h"
#include "alloc/front/front.h"
#include "alloc/plan/plan.h"
#include "alloc/request.h"
#include "base/error.h"
#include "base/wait.h"

#include <stdlib.h>

const struct neap_alloc_hook *neap_alloc_hook;

void neap_set_alloc_hook(const struct neap_alloc_hook *hook)
{
	__atomic_store_n(&neap_alloc_hook, hook, __ATOMIC_RELEASE);
}

bool neap_alloc_fork_begin(struct neap_alloc *alloc, const struct timespec *until)
{
	if (neap_lock_until(&alloc->lock, until) != 0)
		return false;
	bool frozen = neap_front_freeze(alloc, until);
	if (frozen)
		neap_front_part(alloc);
	else
		pthread_mutex_unlock(&alloc->lock);
	return frozen;
}

void neap_alloc_fork_end(struct neap_alloc *alloc) { neap_alloc_unlock(alloc); }

enum neap_status neap_alloc_create(struct neap_device *device, const struct neap_alloc_options *options,
				   struct neap_alloc **ret_alloc, struct neap_error *err)
{
	static const struct neap_alloc_options defaults;
	const struct neap_device_info *info = neap_device_info(device);
	if (!options)
		options = &defaults;
	if (!(options->fraction >= 0 && options->fraction <= 1))
		return neap_fail(err, NEAP_EINVAL, "the fraction must be above 0 and at most 1, not %g",
				 options->fraction);
	struct neap_alloc *alloc = calloc(1, sizeof *alloc);
	struct neap_plan *plan = alloc && !options->no_plan ? neap_plan_create(SMALL_LIMIT_BYTES + 1) : NULL;
	if (!alloc || (!options->no_plan && !plan) || pthread_mutex_init(&alloc->lock, NULL)) {
		neap_plan_destroy(plan);
		free(alloc);
		return neap_fail(err, NEAP_ENOMEM, "no host memory for an allocator");
	}
	alloc->device = device;
	alloc->plan = plan;
	alloc->cuda = neap_driver_cuda(neap_device_driver(device));
	alloc->plain = !info->page_bytes;
	alloc->page_bytes = alloc->plain ? PLAIN_PAGE_BYTES : info->page_bytes;
	alloc->shareable = options->shareable;
	alloc->fraction = options->fraction > 0 ? options->fraction : 1;
	alloc->limit_bytes =
		alloc->fraction < 1 ? (uint64_t)(alloc->fraction * (double)info->total_bytes) : UINT64_MAX;
	alloc->stats.max_split_size = -1;
	alloc->observer = options->observer;
	alloc->published = &alloc->own_published;
	neap_published_all(alloc);
	neap_published_close(alloc);
	if (options->published)
		neap_publish(alloc, options->published);
	const char other[] = "other";
	for (size_t i = 0; i < sizeof other; i++)
		alloc->tags[TAG_OTHER].text[i] = other[i];
	*ret_alloc = alloc;
	const struct neap_alloc_hook *hook = __atomic_load_n(&neap_alloc_hook, __ATOMIC_ACQUIRE);
	if (hook && hook->created)
		hook->created(alloc);
	return NEAP_OK;
}

void neap_alloc_destroy(struct neap_alloc *alloc)
{
	if (!alloc)
		return;
	const struct neap_alloc_hook *hook = __atomic_load_n(&neap_alloc_hook, __ATOMIC_ACQUIRE);
	if (hook && hook->destroying)
		hook->destroying(alloc);
	struct neap_device_guard guard = {0};
	bool entered = neap_device_enter(alloc->device, &guard, NULL) == NEAP_OK;
	/* Live blocks may have queued work too, so `dirty` does not matter. */
	if (entered && alloc->segments)
		alloc->cuda->cuCtxSynchronize();
	neap_pending_fini(alloc, entered);
	neap_segments_fini(alloc, entered);
	neap_arenas_fini(alloc, entered);
	if (entered)
		neap_device_leave(&guard);
	neap_blocks_fini(alloc);
	neap_index_fini(&alloc->live);
	neap_front_fini(alloc);
	neap_plan_destroy(alloc->plan);
	pthread_mutex_destroy(&alloc->lock);
	free(alloc);
}

struct neap_device *neap_alloc_device(struct neap_alloc *alloc) { return alloc->device; }

enum neap_status neap_malloc(struct neap_alloc *alloc, size_t bytes, void *stream, uint64_t *ret_address,
			     struct neap_error *err)
{
	if (!bytes) {
		*ret_address = 0;
		return NEAP_OK;
	}
	struct neap_request request = {.bytes = bytes, .stream = stream};
	/* No device has a quarter of the address space. Larger sizes are cut to it, so that later sums cannot
	 * overflow. */
	request.rounded = bytes > SIZE_MAX / 4 ? SIZE_MAX / 4 + 1 : round_up(bytes, BLOCK_ALIGNMENT);
	if (neap_front_take(alloc, &request, ret_address))
		return NEAP_OK;
	return neap_malloc_by_core(alloc, &request, ret_address, err);
}

enum neap_status neap_free(struct neap_alloc *alloc, uint64_t address)
{
	if (!address || neap_front_give(alloc, address))
		return NEAP_OK;
	return neap_free_by_core(alloc, address);
}

void neap_set_oom_callback(struct neap_alloc *alloc, neap_oom_callback callback, void *context)
{
	neap_alloc_lock(alloc);
	alloc->oom_callback = callback;
	alloc->oom_context = context;
	neap_alloc_unlock(alloc);
}

void neap_last_asked(struct neap_alloc *alloc, struct neap_asked *ret_asked)
{
	neap_alloc_lock(alloc);
	*ret_asked = alloc->asked;
	neap_alloc_unlock(alloc);
}

void neap_get_stats(struct neap_alloc *alloc, struct neap_stats *ret_stats)
{
	neap_alloc_lock(alloc);
	*ret_stats = alloc->stats;
	neap_alloc_unlock(alloc);
}

void neap_reset_peak_stats(struct neap_alloc *alloc)
{
	neap_alloc_lock(alloc);
	neap_stats_peaks_reset(alloc);
	neap_alloc_unlock(alloc);
}

void neap_reset_accumulated_stats(struct neap_alloc *alloc)
{
	neap_alloc_lock(alloc);
	neap_stats_sums_reset(alloc);
	neap_alloc_unlock(alloc);
}

void neap_publish(struct neap_alloc *alloc, struct neap_published *published)
{
	neap_alloc_lock(alloc);
	neap_published_close(alloc);
	alloc->published = published ? published : &alloc->own_published;
	alloc->published_sequence = __atomic_load_n(&alloc->published->sequence, __ATOMIC_RELAXED);
	neap_published_all(alloc);
	neap_alloc_unlock(alloc);
}

void neap_observe(struct neap_alloc *alloc, const struct neap_observer *observer)
{
	neap_alloc_lock(alloc);
	neap_front_part(alloc);
	alloc->observer = observer;
	neap_tags_renumber(alloc);
	neap_alloc_unlock(alloc);
}

bool neap_observe_if_none(struct neap_alloc *alloc, const struct neap_observer *observer)
{
	neap_alloc_lock(alloc);
	bool none = !alloc->observer;
	neap_front_part(alloc);
	if (none)
		alloc->observer = observer;
	/* The same observer may have restarted: the agent's does when the agent attaches again. */
	if (alloc->observer == observer)
		neap_tags_renumber(alloc);
	neap_alloc_unlock(alloc);
	return none;
}

static void step(struct neap_alloc *alloc)
{
	if (!alloc->plan)
		return;
	neap_plan_step(alloc->plan);
	neap_plan_follow(alloc);
}

void neap_emit(struct neap_alloc *alloc, struct neap_event event)
{
	neap_alloc_lock(alloc);
	const struct neap_event_held *held = neap_event_as_held(&event);
	if (held && !held->allocated_bytes && !held->reserved_bytes)
		event.held = neap_event_held_now(alloc);
	neap_event_send(alloc, &event);
	if (event.kind == NEAP_EVENT_STEP)
		step(alloc);
	neap_alloc_unlock(alloc);
}

uint16_t neap_emit_name(struct neap_alloc *alloc, const char *text)
{
	neap_alloc_lock(alloc);
	const struct neap_observer *observer = alloc->observer;
	uint16_t number = observer && observer->name ? observer->name(observer->context, text) : 0;
	neap_alloc_unlock(alloc);
	return number;
}

uint64_t neap_alloc_serial(struct neap_alloc *alloc)
{
	neap_alloc_lock(alloc);
	uint64_t serial = alloc->serial;
	neap_alloc_unlock(alloc);
	return serial;
}

void neap_take_extremes(struct neap_alloc *alloc, uint64_t *ret_lowest, uint64_t *ret_highest)
{
	neap_alloc_lock(alloc);
	*ret_lowest = alloc->lowest_allocated;
	*ret_highest = alloc->highest_allocated;
	alloc->lowest_allocated = alloc->highest_allocated = metric_now(alloc, NEAP_METRIC_ALLOCATED_BYTES);
	neap_alloc_unlock(alloc);
}

size_t neap_tag_stats(struct neap_alloc *alloc, struct neap_tag_bytes *ret_tags, size_t capacity)
{
	size_t count = 0;
	neap_alloc_lock(alloc);
	for (size_t i = 0; i < sizeof alloc->tags / sizeof alloc->tags[0]; i++) {
		const struct neap_tag *tag = &alloc->tags[i];
		if (!tag->peak_bytes)
			continue;
		if (count < capacity)
			ret_tags[count] = (struct neap_tag_bytes){tag->text, tag->live_bytes, tag->peak_bytes,
								  tag->live_blocks};
		count++;
	}
	neap_alloc_unlock(alloc);
	return count;
}
