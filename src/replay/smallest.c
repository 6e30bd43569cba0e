/* replay/smallest.c: finds the smallest device on which a trace completes.
 *
 * It uses bisection: a whole replay for each size. Some outcomes are known without a replay:
 *
 *   fewer bytes than were requested at once, where nothing waits for streams    fails
 *   the interval of sizes on which a replay went in the very same way (neap_policy_usage)    ends as that one did
 *
 * The sizes that it needs next in any case (those right above, the middles of both halves) are replayed side by side,
 * one thread each. The answer does not depend on the number of processors.
 */
#include "base/error.h"
#include "replay/replay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define CONFIRMED_PAGES 8
#define PLENTY_BYTES    (1ull << 44)
#define THREADS_MAX     8

/* The outcome on devices with [from, below) bytes. */
struct outcome {
	uint64_t from, below;
	bool fits;
};

#define OUTCOMES 128
struct search {
	const struct neap_trace *trace;
	struct neap_replay_options options;
	uint64_t low, high; /* pages: too few, and enough */
	struct outcome outcomes[OUTCOMES];
	size_t outcome_count; /* a new outcome replaces the oldest */
	unsigned threads;
	atomic_bool stopped;
};

/* One of several replays side by side. */
struct attempt {
	struct search *search;
	struct neap_replay_options options;
	bool first; /* it runs in the caller's thread */
	pthread_t thread;
	enum neap_status status;
	struct neap_replay_result result;
	struct neap_error err;
};

static uint64_t requested_peak(const struct neap_replay_result *result)
{
	return (uint64_t)result->usage.stats.metric[NEAP_METRIC_REQUESTED_BYTES][NEAP_CLASS_ALL].peak;
}

static uint64_t reserved_peak(const struct neap_replay_result *result)
{
	return (uint64_t)result->usage.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak;
}

static void note(struct search *search, uint64_t from, uint64_t below, bool fits)
{
	search->outcomes[search->outcome_count++ % OUTCOMES] = (struct outcome){from, below, fits};
}

static void note_result(struct search *search, uint64_t bytes, const struct neap_replay_result *result)
{
	const struct neap_policy_usage *usage = &result->usage;
	bool fits = result->first_oom_event == UINT64_MAX;
	/* The meaning of a snapshot's own events depends on the device's size, so the outcome holds only for this
	 * size. */
	if (search->trace->torch || bytes < usage->same_from_bytes || bytes >= usage->same_below_bytes)
		note(search, bytes, bytes + 1, fits);
	else
		note(search, usage->same_from_bytes, usage->same_below_bytes, fits);
}

static bool known(const struct search *search, uint64_t pages, bool *ret_fits)
{
	uint64_t bytes = pages * NEAP_REPLAY_PAGE_BYTES;
	size_t count = search->outcome_count < OUTCOMES ? search->outcome_count : OUTCOMES;
	for (size_t i = 0; i < count; i++) {
		const struct outcome *outcome = &search->outcomes[i];
		if (bytes < outcome->from || bytes >= outcome->below)
			continue;
		*ret_fits = outcome->fits;
		return true;
	}
	return false;
}

static bool report_progress(void *context, uint64_t done, uint64_t total)
{
	struct attempt *attempt = context;
	const struct neap_replay_options *options = &attempt->search->options;
	if (attempt->first && options->progress && !options->progress(options->context, done, total))
		atomic_store(&attempt->search->stopped, true);
	return !atomic_load(&attempt->search->stopped);
}

static void *run_attempt(void *argument)
{
	struct attempt *attempt = argument;
	attempt->status = neap_replay(attempt->search->trace, &attempt->options, &attempt->result, &attempt->err);
	return NULL;
}

/* Replays at these sizes, at most THREADS_MAX, side by side. */
static enum neap_status replay_all(struct search *search, const uint64_t *pages, size_t count, struct neap_error *err)
{
	struct attempt attempts[THREADS_MAX] = {0};
	bool started[THREADS_MAX] = {false};
	for (size_t i = 0; i < count; i++) {
		struct attempt *attempt = &attempts[i];
		*attempt = (struct attempt){.search = search, .options = search->options, .first = i == 0};
		attempt->options.memory_bytes = pages[i] * NEAP_REPLAY_PAGE_BYTES;
		attempt->options.progress = report_progress;
		attempt->options.context = attempt;
		if (i > 0)
			started[i] = pthread_create(&attempt->thread, NULL, run_attempt, attempt) == 0;
	}
	run_attempt(&attempts[0]);
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; i < count; i++) {
		if (started[i])
			pthread_join(attempts[i].thread, NULL);
		else if (i > 0) /* its thread could not be started: a later try may succeed */
			continue;
		if (attempts[i].status == NEAP_OK)
			note_result(search, pages[i] * NEAP_REPLAY_PAGE_BYTES, &attempts[i].result);
		else if (!status || i == 0)
			status = neap_fail(err, attempts[i].status, "%s", attempts[i].err.message);
	}
	return status;
}

/* Finds whether it fits at pages[0]. The search will probably ask for the other sizes next, so they are replayed on
 * free processors. */
static enum neap_status try(struct search *search, const uint64_t *pages, size_t count, bool *ret_fits,
			    struct neap_error *err)
{
	uint64_t unknown[THREADS_MAX];
	bool fits = false;
	size_t unknown_count = 0;
	if (known(search, pages[0], ret_fits))
		return NEAP_OK;
	for (size_t i = 0; i < count && unknown_count < search->threads; i++)
		if (!known(search, pages[i], &fits))
			unknown[unknown_count++] = pages[i];
	enum neap_status status = replay_all(search, unknown, unknown_count, err);
	if (!status && !known(search, pages[0], ret_fits))
		return neap_fail(err, NEAP_EINTERNAL, "a replay was not noted");
	return status;
}

static uint64_t between(uint64_t low, uint64_t high) { return low + (high - low) / 2; }

static enum neap_status bisect(struct search *search, struct neap_error *err)
{
	while (search->high - search->low > 1) {
		uint64_t middle = between(search->low, search->high);
		/* For three more processors: the next size for either answer, and the likelier size after that. */
		uint64_t upper = between(middle, search->high), lower = between(search->low, middle);
		uint64_t pages[] = {middle, upper, lower, between(upper, search->high)};
		bool fits = false;
		enum neap_status status =
			try(search, pages, search->threads > 2 ? sizeof pages / sizeof pages[0] : 1, &fits, err);
		if (status)
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
		enum neap_status status = try(search, &search->high, 1, &fits, err);
		if (status || fits)
			return status;
		search->low = search->high;
		search->high *= 2;
	}
	return neap_fail(err, NEAP_EOOM, "no device was found to be large enough");
}

/* Finds a first `high`: the bytes that are reserved without a bound. */
static enum neap_status begin(struct search *search, struct neap_error *err)
{
	struct neap_replay_options options = search->options;
	struct neap_replay_result result;
	enum neap_status status = neap_replay(search->trace, &options, &result, err);
	if (!status && options.policy != NEAP_REPLAY_NEAP) /* the release does not depend on the device's size */
		options.torch = search->options.torch = result.version.to;
	if (!status && result.first_oom_event != UINT64_MAX) {
		/* If the device is not known, a recorded failure fails again: find whether plenty of memory would be
		 * enough. */
		options.memory_bytes = PLENTY_BYTES;
		status = neap_replay(search->trace, &options, &result, err);
	}
	if (status)
		return status;
	if (result.first_oom_event != UINT64_MAX)
		return neap_fail(err, NEAP_EOOM, "no device is large enough: event %llu asks for too much",
				 (unsigned long long)result.first_oom_event);
	/* Blocks that wait for another stream count as requested, except on a full device. */
	if (search->trace->source == NEAP_TRACE_TEXT && result.usage.events_recorded == 0)
		note(search, 0, requested_peak(&result), false);
	search->high = reserved_peak(&result) / NEAP_REPLAY_PAGE_BYTES + 1;
	return raise(search, err);
}

/* Tries the pages right above `high`. If one fails, it is the new `low`, because the policy is not monotonic. Then
 * the search continues above it, and below `top`, which fits. */
static enum neap_status confirm(struct search *search, uint64_t top, bool *ret_confirmed, struct neap_error *err)
{
	uint64_t found = search->high, above[CONFIRMED_PAGES];
	for (uint64_t i = 0; i < CONFIRMED_PAGES; i++)
		above[i] = found + 1 + i;
	for (uint64_t i = 0; i < CONFIRMED_PAGES; i++) {
		uint64_t pages = above[i];
		bool fits = false;
		enum neap_status status = try(search, &above[i], CONFIRMED_PAGES - i, &fits, err);
		if (status)
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

static unsigned processors(void)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN);
	return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : (unsigned)count;
}

enum neap_status neap_replay_smallest(const struct neap_trace *trace, const struct neap_replay_options *options,
				      uint64_t *ret_bytes, struct neap_error *err)
{
	struct search search = {.trace = trace, .options = *options, .threads = processors()};
	search.options.memory_bytes = 0;
	search.options.go_on = false;
	enum neap_status status = begin(&search, err);
	for (bool confirmed = false; !status && !confirmed;) {
		uint64_t top = search.high;
		status = bisect(&search, err);
		if (!status)
			status = confirm(&search, top, &confirmed, err);
	}
	if (!status)
		*ret_bytes = search.high * NEAP_REPLAY_PAGE_BYTES;
	return status;
}
