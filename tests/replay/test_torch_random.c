/* The model keeps its invariants after every operation of any workload, under any settings, and agrees with a
 * separate ledger.
 */

#include "base/units.h"
#include "replay/torch_policy.h"
#include "support/test.h"
#include "workload.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const settings[] = {
	"",
	"expandable_segments:True",
	"max_split_size_mb:32",
	"max_split_size_mb:24,expandable_segments:True",
	"roundup_power2_divisions:[1:8,4:4,>:2]",
	"garbage_collection_threshold:0.5,per_process_memory_fraction:0.75",
	"garbage_collection_threshold:0.3,per_process_memory_fraction:0.9,max_split_size_mb:21",
	"expandable_segments:True,per_process_memory_fraction:0.5",
};

/* What the test itself knows. */
struct ledger {
	uint64_t requested, driver; /* bytes live; bytes of segments */
	uint64_t live;
};

static void observe(void *context, enum neap_torch_action action, uint64_t address, uint64_t size, uint64_t stream)
{
	struct ledger *ledger = context;
	(void)address;
	(void)stream;
	if (action == NEAP_TORCH_SEGMENT_ALLOC || action == NEAP_TORCH_SEGMENT_MAP)
		ledger->driver += size;
	if (action == NEAP_TORCH_SEGMENT_FREE || action == NEAP_TORCH_SEGMENT_UNMAP)
		ledger->driver -= size;
	if (action == NEAP_TORCH_ALLOC) {
		ledger->requested += size;
		ledger->live++;
	}
	if (action == NEAP_TORCH_FREE_COMPLETED) {
		ledger->requested -= size;
		ledger->live--;
	}
}

static void check(struct neap_policy *policy, const struct ledger *ledger, const char *what, size_t at)
{
	struct neap_error err = {0};
	struct neap_policy_usage usage;
	policy->usage(policy, &usage);
	const struct neap_stats *stats = &usage.stats;
	if (policy->check(policy, &err) != NEAP_OK)
		fail_msg("%s, operation %zu: %s", what, at, err.message);
	assert_int_equal(stats->metric[NEAP_METRIC_RESERVED_BYTES][0].current, ledger->driver);
	assert_int_equal(stats->metric[NEAP_METRIC_REQUESTED_BYTES][0].current, ledger->requested);
	assert_int_equal(stats->metric[NEAP_METRIC_ACTIVE][0].current, ledger->live);
}

static void play(enum workload_kind kind, uint64_t seed, const char *text, uint64_t device_bytes)
{
	struct workload work = workload_make(kind, seed, 700);
	void **blocks = calloc(work.ids + 1, sizeof *blocks);
	struct ledger ledger = {0};
	struct neap_torch_options options = {
		.device_bytes = device_bytes, .event_delay = seed % 40, .observe = observe, .context = &ledger};
	struct neap_policy *policy = NULL;
	struct neap_policy_usage usage;
	char what[128];
	snprintf(what, sizeof what, "kind %d, seed %llu, '%s'", (int)kind, (unsigned long long)seed, text);
	neap_torch_settings_default(&options.settings);
	assert_int_equal(neap_torch_settings_parse(text, &options.settings, NULL), NEAP_OK);
	assert_int_equal(neap_torch_create(&options, &policy, NULL), NEAP_OK);
	for (size_t i = 0; i < work.count; i++) {
		const struct workload_op *op = &work.ops[i];
		void **block = &blocks[op->id];
		policy->at(policy, i);
		if (op->verb == 'a') {
			enum neap_status status = policy->alloc(policy, op->size, op->stream, 0, block, NULL);
			assert_true(!status || status == NEAP_EOOM);
			assert_true((status == NEAP_OK) == (*block != NULL));
		} else if (op->verb == 'e') {
			assert_int_equal(policy->empty_cache(policy, NULL), NEAP_OK);
		} else if (*block && op->verb == 'r') {
			assert_int_equal(policy->record_stream(policy, *block, op->stream, NULL), NEAP_OK);
		} else if (*block) {
			assert_int_equal(policy->free(policy, *block, NULL), NEAP_OK);
			*block = NULL;
		}
		check(policy, &ledger, what, i);
	}
	for (size_t i = 0; i < work.ids; i++)
		if (blocks[i])
			assert_int_equal(policy->free(policy, blocks[i], NULL), NEAP_OK);
	assert_int_equal(policy->empty_cache(policy, NULL), NEAP_OK);
	check(policy, &ledger, what, work.count);
	policy->usage(policy, &usage);
	assert_int_equal(ledger.driver, 0);        /* everything goes back */
	if (!options.settings.expandable_segments) /* otherwise pages go in other portions than they came */
		assert_int_equal(usage.stats.num_device_alloc, usage.stats.num_device_free);
	if (device_bytes < 200 * NEAP_MIB)
		assert_true(usage.stats.num_ooms > 0 && usage.stats.num_alloc_retries > 0);
	policy->destroy(policy);
	free(blocks);
	free(work.ops);
}

static void test_invariants(void **state)
{
	const char *seed_text = getenv("NEAP_SEED");
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 1;
	(void)state;
	printf("NEAP_SEED=%llu\n", (unsigned long long)seed);
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
		for (int kind = 0; kind < WORKLOAD_KINDS; kind++) {
			play((enum workload_kind)kind, seed + i, settings[i], 160 * NEAP_MIB);
			play((enum workload_kind)kind, seed + i, settings[i], 3 * NEAP_GIB);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_invariants)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
