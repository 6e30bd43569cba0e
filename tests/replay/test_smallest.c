/* The search for the smallest device replays fewer sizes than plain bisection, and must find the same: on made-up
 * training, from a seed that is printed. */

#include "replay/replay.h"
#include "support/test.h"
#include "workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PAGE   NEAP_REPLAY_PAGE_BYTES
#define EVENTS 500

static struct neap_trace *trace_of(enum workload_kind kind, uint64_t seed)
{
	struct workload work = workload_make(kind, seed, EVENTS);
	char path[] = "/tmp/neap-smallest-XXXXXX";
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};
	int fd = mkstemp(path);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	assert_non_null(file);
	for (size_t i = 0; i < work.count; i++) {
		const struct workload_op *op = &work.ops[i];
		if (op->verb == 'a')
			fprintf(file, "a %u %llu %u\n", op->id, (unsigned long long)op->size, op->stream);
		else if (op->verb == 'r')
			fprintf(file, "r %u %u\n", op->id, op->stream);
		else if (op->verb == 'f')
			fprintf(file, "f %u\n", op->id);
		else
			fprintf(file, "e\n");
	}
	free(work.ops);
	assert_int_equal(fclose(file), 0);
	if (neap_trace_read(path, &trace, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	unlink(path);
	return trace;
}

static struct neap_replay_result replay_on(const struct neap_trace *trace, struct neap_replay_options options,
					   uint64_t bytes)
{
	struct neap_replay_result result;
	struct neap_error err = {0};

	options.memory_bytes = bytes;
	if (neap_replay(trace, &options, &result, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return result;
}

static bool fits(const struct neap_trace *trace, const struct neap_replay_options *options, uint64_t pages)
{
	return replay_on(trace, *options, pages * PAGE).first_oom_event == UINT64_MAX;
}

/* Every size replayed. */
static uint64_t search_plainly(const struct neap_trace *trace, const struct neap_replay_options *options)
{
	struct neap_replay_result all = replay_on(trace, *options, 0);
	uint64_t low = 0, high, found;

	high = (uint64_t)all.usage.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak / PAGE + 1;
	for (; !fits(trace, options, high); high *= 2)
		low = high;
	for (uint64_t top = high;; top = high) {
		while (high - low > 1) {
			uint64_t middle = low + (high - low) / 2;
			*(fits(trace, options, middle) ? &high : &low) = middle;
		}
		found = high;
		uint64_t above = found + 1;
		while (above <= found + 8 && fits(trace, options, above))
			above++;
		if (above > found + 8)
			return found * PAGE;
		low = above;
		high = top > above ? top : 2 * above;
		for (; !fits(trace, options, high); high *= 2)
			low = high;
	}
}

static const struct neap_replay_options policies[] = {
	{.policy = NEAP_REPLAY_TORCH},
	{.policy = NEAP_REPLAY_TORCH, .settings = "max_split_size_mb:32"},
	{.policy = NEAP_REPLAY_TORCH, .fraction = 0.9},
	{.policy = NEAP_REPLAY_TORCH_EXPANDABLE},
	{.policy = NEAP_REPLAY_NEAP},
};
#define POLICIES (sizeof policies / sizeof policies[0])

static void as_plain_bisection(void **state)
{
	uint64_t seed = test_seed();
	(void)state;
	for (int kind = 0; kind < WORKLOAD_KINDS; kind++) {
		struct neap_trace *trace = trace_of((enum workload_kind)kind, seed);
		for (size_t i = 0; i < POLICIES; i++) {
			struct neap_error err = {0};
			uint64_t smallest = 0;
			assert_int_equal(neap_replay_smallest(trace, &policies[i], &smallest, &err), NEAP_OK);
			assert_int_equal(smallest, search_plainly(trace, &policies[i]));
		}
		neap_trace_free(trace);
	}
}

/* A replay names an interval of sizes: at both ends the result is the same. */
static void the_same_on_an_interval(void **state)
{
	uint64_t seed = test_seed(), wider = 0;
	(void)state;
	for (int kind = 0; kind < WORKLOAD_KINDS; kind++) {
		struct neap_trace *trace = trace_of((enum workload_kind)kind, seed);
		for (size_t i = 0; i < POLICIES; i++) {
			uint64_t reserved = (uint64_t)replay_on(trace, policies[i], 0)
						    .usage.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL]
						    .peak;
			for (uint64_t part = 60; part <= 105; part += 3) {
				uint64_t bytes = reserved / 100 * part;
				struct neap_replay_result at = replay_on(trace, policies[i], bytes);
				const struct neap_policy_usage *usage = &at.usage;
				assert_in_range(bytes, usage->same_from_bytes, usage->same_below_bytes - 1);
				wider += usage->same_below_bytes - usage->same_from_bytes > 1;
				uint64_t ends[] = {usage->same_from_bytes, usage->same_below_bytes == UINT64_MAX
										   ? bytes + reserved
										   : usage->same_below_bytes - 1};
				for (int end = 0; end < 2; end++) {
					if (!ends[end])
						continue;
					struct neap_replay_result other = replay_on(trace, policies[i], ends[end]);
					assert_int_equal(other.first_oom_event, at.first_oom_event);
					assert_int_equal(neap_policy_driver_calls(&other.usage.calls),
							 neap_policy_driver_calls(&usage->calls));
					assert_memory_equal(&other.usage.stats, &usage->stats, sizeof usage->stats);
				}
			}
		}
		neap_trace_free(trace);
	}
	assert_true(wider > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_plain_bisection),
		cmocka_unit_test(the_same_on_an_interval),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
