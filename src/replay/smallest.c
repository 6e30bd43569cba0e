/* replay/smallest.c: the smallest device on which a trace completes. */
#include "base/error.h"
#include "replay/replay.h"

#define CONFIRMED_PAGES 8
#define PLENTY_BYTES    (1ull << 44)

struct search {
	const struct neap_trace *trace;
	struct neap_replay_options options;
	uint64_t low, high; /* pages: fails, fits */
};

static enum neap_status try(struct search *search, uint64_t pages, bool *ret_fits, struct neap_error *err)
{
	struct neap_replay_result result;
	search->options.memory_bytes = pages * NEAP_REPLAY_PAGE_BYTES;
	enum neap_status status = neap_replay(search->trace, &search->options, &result, err);
	if (status == NEAP_OK)
		*ret_fits = result.first_oom_event == UINT64_MAX;
	return status;
}

static enum neap_status bisect(struct search *search, struct neap_error *err)
{
	while (search->high - search->low > 1) {
		uint64_t middle = search->low + (search->high - search->low) / 2;
		bool fits = false;
		enum neap_status status = try(search, middle, &fits, err);
		if (status != NEAP_OK)
			return status;
		*(fits ? &search->high : &search->low) = middle;
	}
	return NEAP_OK;
}

/* Doubles `high` until it fits. */
static enum neap_status raise(struct search *search, struct neap_error *err)
{
	for (int doublings = 0; doublings < 24; doublings++) {
		bool fits = false;
		enum neap_status status = try(search, search->high, &fits, err);
		if (status != NEAP_OK || fits)
			return status;
		search->low = search->high;
		search->high *= 2;
	}
	return neap_fail(err, NEAP_EOOM, "no device was found to be large enough");
}

/* A first `high`: what is reserved without a bound. */
static enum neap_status begin(struct search *search, struct neap_error *err)
{
	struct neap_replay_result result;
	enum neap_status status = neap_replay(search->trace, &search->options, &result, err);
	if (status == NEAP_OK && result.first_oom_event != UINT64_MAX) {
		/* A recorded failure fails again where the device is not known: is it enough if there were plenty? */
		search->options.memory_bytes = PLENTY_BYTES;
		status = neap_replay(search->trace, &search->options, &result, err);
	}
	if (status != NEAP_OK)
		return status;
	if (result.first_oom_event != UINT64_MAX)
		return neap_fail(err, NEAP_EOOM, "no device is large enough: event %llu asks for too much",
				 (unsigned long long)result.first_oom_event);
	uint64_t bytes = (uint64_t)result.usage.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak;
	search->high = bytes / NEAP_REPLAY_PAGE_BYTES + 1;
	return raise(search, err);
}

/* Tries the pages right above `high`. One that fails is the new `low`: the policy is not monotonic, and the search
 * goes on above it, below `top`, which fits. */
static enum neap_status confirm(struct search *search, uint64_t top, bool *ret_confirmed, struct neap_error *err)
{
	uint64_t found = search->high;
	for (uint64_t pages = found + 1; pages <= found + CONFIRMED_PAGES; pages++) {
		bool fits = false;
		enum neap_status status = try(search, pages, &fits, err);
		if (status != NEAP_OK)
			return status;
		if (fits)
			continue;
		search->low = pages;
		search->high = top > pages ? top : 2 * pages;
		*ret_confirmed = false;
		return top > pages ? NEAP_OK : raise(search, err);
	}
	*ret_confirmed = true;
	return NEAP_OK;
}

enum neap_status neap_replay_smallest(const struct neap_trace *trace, const struct neap_replay_options *options,
				      uint64_t *ret_bytes, struct neap_error *err)
{
	struct search search = {.trace = trace, .options = *options};
	search.options.memory_bytes = 0;
	search.options.go_on = false;
	enum neap_status status = begin(&search, err);
	for (bool confirmed = false; status == NEAP_OK && !confirmed;) {
		uint64_t top = search.high;
		status = bisect(&search, err);
		if (status == NEAP_OK)
			status = confirm(&search, top, &confirmed, err);
	}
	if (status == NEAP_OK)
		*ret_bytes = search.high * NEAP_REPLAY_PAGE_BYTES;
	return status;
}
