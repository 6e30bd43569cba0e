/* The rules, over made-up facts; and random facts against the invariants. */
#include "neap/checkpoint.h"

#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY       (UINT64_C(86400) * 1000000000)
#define NOW       (1000 * DAY)
#define NONE      NEAP_STEP_UNKNOWN
#define NO_METRIC 1e300

struct given {
	const char *name;
	uint64_t age_days, step, bytes;
	double metric; /* NO_METRIC: none */
	uint32_t facts;
};

static struct neap_retention_plan plan_of(const struct given *given, size_t count, enum neap_metric_mode mode)
{
	struct neap_retention_plan plan = {.folder = strdup("ckpt"), .count = count, .mode = mode};

	strcpy(plan.metric, mode || given[0].metric != NO_METRIC ? "val_loss" : "");
	plan.entries = calloc(count, sizeof *plan.entries);
	assert_non_null(plan.entries);
	for (size_t i = 0; i < count; i++) {
		plan.entries[i] = (struct neap_retention_entry){.name = strdup(given[i].name),
								.bytes = given[i].bytes,
								.freed_bytes = given[i].bytes,
								.modified_ns = NOW - given[i].age_days * DAY,
								.step = given[i].step,
								.metric = (double)NAN,
								.facts = given[i].facts};
		if (given[i].metric != NO_METRIC) {
			plan.entries[i].metric = given[i].metric;
			plan.entries[i].facts |= NEAP_CHECKPOINT_MEASURED;
		}
	}
	return plan;
}

/* The names that the plan deletes, in its order, with a space after each. */
static void dropped(const struct neap_retention_plan *plan, char *text, size_t capacity)
{
	text[0] = '\0';
	for (size_t i = 0; i < plan->count; i++)
		if (plan->entries[i].drop)
			snprintf(text + strlen(text), capacity - strlen(text), "%s ", plan->entries[i].name);
}

static void expect(const struct given *given, size_t count, enum neap_metric_mode mode,
		   const struct neap_retention_options *options, const char *names)
{
	struct neap_retention_plan plan = plan_of(given, count, mode);
	struct neap_error err = {0};
	char text[256];

	if (neap_retention_decide(&plan, options, NOW, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	dropped(&plan, text, sizeof text);
	assert_string_equal(text, names);
	neap_retention_plan_fini(&plan);
}

static void expect_refused(const struct given *given, size_t count, enum neap_metric_mode mode,
			   const struct neap_retention_options *options, const char *message)
{
	struct neap_retention_plan plan = plan_of(given, count, mode);
	struct neap_error err = {0};

	assert_int_equal(neap_retention_decide(&plan, options, NOW, &err), NEAP_EINVAL);
	if (!strstr(err.message, message))
		fail_msg("%s", err.message);
	for (size_t i = 0; i < count; i++)
		assert_false(plan.entries[i].drop);
	neap_retention_plan_fini(&plan);
}

#define SIX(facts_of_f)                                                                                              \
	{                                                                                                            \
		{"a", 1, 60, 10, 0.6, 0}, {"b", 9, 50, 10, 0.5, 0}, {"c", 10, 40, 10, 0.1, 0},                       \
			{"d", 11, 30, 10, 0.9, 0}, {"e", 12, 20, 10, 0.2, 0},                                        \
		{                                                                                                    \
			"f", 13, 10, 10, 0.8, facts_of_f                                                             \
		}                                                                                                    \
	}

static void test_rules(void **state)
{
	static const struct given six[] = SIX(0);
	struct neap_retention_options options;

	static const struct given unmeasured[] = {{"a", 1, 40, 10, NO_METRIC, 0},
						  {"b", 2, 30, 10, NO_METRIC, 0},
						  {"c", 3, 20, 10, NO_METRIC, 0},
						  {"d", 4, 10, 10, NO_METRIC, 0}};
	(void)state;
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){0}, ""); /* no rule, nothing goes */
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.keep_best = 1}, "");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.delete_rest = true}, "b c d e f ");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.older_than_ns = 10 * DAY}, "d e f ");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.keep_best = 2, .older_than_ns = 7 * DAY},
	       "b d f ");
	expect(six, 6, NEAP_METRIC_MAX, &(struct neap_retention_options){.keep_best = 2, .older_than_ns = 7 * DAY},
	       "b c e ");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.keep_last = 3, .delete_rest = true},
	       "d e f ");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.keep_every_steps = 30, .delete_rest = true},
	       "b c e f ");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.grace_ns = 10 * DAY, .delete_rest = true},
	       "c d e f ");
	/* the oldest go until the rest fits, but the best stays */
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.max_total_bytes = 35}, "d e f ");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.max_total_bytes = 30, .keep_best = 2},
	       "b d f ");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.max_checkpoints = 4}, "e f ");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.max_checkpoints = 6}, "");
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.max_checkpoints = 3, .keep_best = 1},
	       "d e f ");
	/* the best stay, or go from the worst up; the very best and the newest always stay */
	expect(six, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.max_checkpoints = 2, .keep_best = 3},
	       "d f ");
	expect(six, 6, NEAP_METRIC_MIN,
	       &(struct neap_retention_options){.max_checkpoints = 3, .keep_best = 3, .best_yields = true}, "b d f ");
	expect(six, 6, NEAP_METRIC_MIN,
	       &(struct neap_retention_options){.max_checkpoints = 1, .keep_best = 3, .best_yields = true},
	       "b d e f ");
	expect(six, 6, NEAP_METRIC_MIN,
	       &(struct neap_retention_options){.max_total_bytes = 30, .keep_best = 3, .best_yields = true},
	       "b d f ");
	expect(six, 6, NEAP_METRIC_MIN,
	       &(struct neap_retention_options){
		       .max_checkpoints = 2, .keep_best = 3, .keep_last = 2, .best_yields = true},
	       "d e f ");
	/* without a metric the newest go as well, the oldest of them first */
	expect(unmeasured, 4, NEAP_METRIC_MODE_UNKNOWN,
	       &(struct neap_retention_options){
		       .max_checkpoints = 2, .keep_best = 3, .newest_for_best = true, .best_yields = true},
	       "c d ");
	/* what goes by age makes room */
	expect(six, 6, NEAP_METRIC_MIN,
	       &(struct neap_retention_options){.max_total_bytes = 40, .older_than_ns = 11 * DAY}, "e f ");
	neap_retention_defaults(&options);
	expect(six, 6, NEAP_METRIC_MIN, &options, "d ");
	options.older_than_ns = 12 * DAY;
	expect(six, 6, NEAP_METRIC_MIN, &options, "");
}

static void test_facts(void **state)
{
	static const uint32_t holding[] = {NEAP_CHECKPOINT_PINNED,     NEAP_CHECKPOINT_RESUME,
					   NEAP_CHECKPOINT_NAMED,      NEAP_CHECKPOINT_OPEN,
					   NEAP_CHECKPOINT_UNREADABLE, NEAP_CHECKPOINT_ELSEWHERE,
					   NEAP_CHECKPOINT_UNNUMBERED};
	const struct neap_retention_options rest = {.delete_rest = true};

	(void)state;
	for (size_t i = 0; i < sizeof holding / sizeof *holding; i++)
		expect((struct given[])SIX(holding[i]), 6, NEAP_METRIC_MIN, &rest, "b c d e ");
	expect((struct given[])SIX(NEAP_CHECKPOINT_FOLDER), 6, NEAP_METRIC_MIN, &rest, "b c d e f ");
	/* without a rule no rest of a killed save goes either; a young one may still be under way */
	expect((struct given[])SIX(NEAP_CHECKPOINT_UNFINISHED), 6, NEAP_METRIC_MIN, &rest, "b c d e f ");
	expect((struct given[])SIX(NEAP_CHECKPOINT_UNFINISHED), 6, NEAP_METRIC_MIN,
	       &(struct neap_retention_options){0}, "");
	static const struct given young[] = {{"a", 1, NONE, 1, NO_METRIC, 0},
					     {"b", 0, NONE, 1, NO_METRIC, NEAP_CHECKPOINT_UNFINISHED}};
	expect(young, 2, NEAP_METRIC_MODE_UNKNOWN, &rest, ""); /* and it is not "the newest" */
}

/* last.ckpt is the youngest and best.ckpt a copy of the best: they do not count. */
static void test_copies(void **state)
{
	static const struct given copies[] = {{"best", 1, NONE, 1, 0.1, NEAP_CHECKPOINT_NAMED},
					      {"last", 0, NONE, 1, 0.1, NEAP_CHECKPOINT_NAMED},
					      {"other", 0, NONE, 1, NO_METRIC, NEAP_CHECKPOINT_UNNUMBERED},
					      {"a", 4, NONE, 1, 0.3, 0},
					      {"b", 5, NONE, 1, 0.1, 0},
					      {"c", 6, NONE, 1, 0.2, 0}};

	(void)state;
	expect(copies, 6, NEAP_METRIC_MIN, &(struct neap_retention_options){.keep_best = 1, .delete_rest = true},
	       "c ");
}

/* Step and time disagree: the newest by either stays. */
static void test_newest(void **state)
{
	static const struct given copied[] = {{"old-step", 1, 10, 1, NO_METRIC, 0},
					      {"middle", 5, 20, 1, NO_METRIC, 0},
					      {"new-step", 9, 30, 1, NO_METRIC, 0}};
	struct neap_retention_plan plan = plan_of(copied, 3, NEAP_METRIC_MODE_UNKNOWN);
	char text[256];

	(void)state;
	assert_int_equal(
		neap_retention_decide(&plan, &(struct neap_retention_options){.delete_rest = true}, NOW, NULL),
		NEAP_OK);
	assert_true(plan.order_disagrees);
	dropped(&plan, text, sizeof text);
	assert_string_equal(text, "middle ");
	assert_int_equal(plan.keep_count, 2);
	assert_int_equal(plan.drop_count, 1);
	neap_retention_plan_fini(&plan);
	/* the future is not an age */
	static const struct given ahead[] = {{"a", 0, 1, 1, NO_METRIC, 0}, {"b", 0, 2, 1, NO_METRIC, 0}};
	plan = plan_of(ahead, 2, NEAP_METRIC_MODE_UNKNOWN);
	plan.entries[0].modified_ns = NOW + 5 * DAY;
	assert_int_equal(
		neap_retention_decide(&plan, &(struct neap_retention_options){.older_than_ns = 1}, NOW, NULL),
		NEAP_OK);
	assert_int_equal(plan.drop_count, 0);
	neap_retention_plan_fini(&plan);
	/* a file of the future is not old enough to go either, even if it is not the newest */
	static const struct given later[] = {
		{"a", 0, 3, 1, NO_METRIC, 0}, {"b", 0, 2, 1, NO_METRIC, 0}, {"c", 1, 1, 1, NO_METRIC, 0}};
	plan = plan_of(later, 3, NEAP_METRIC_MODE_UNKNOWN);
	plan.entries[0].modified_ns = NOW + 6 * DAY;
	plan.entries[1].modified_ns = NOW + 5 * DAY;
	assert_int_equal(
		neap_retention_decide(&plan, &(struct neap_retention_options){.delete_rest = true}, NOW, NULL),
		NEAP_OK);
	dropped(&plan, text, sizeof text);
	assert_string_equal(text, "c ");
	neap_retention_plan_fini(&plan);
}

static void test_not_a_number(void **state)
{
	const double nan = (double)NAN, inf = (double)INFINITY;
	const struct given mixed[] = {
		{"a", 1, 4, 1, nan, 0}, {"b", 2, 3, 1, 0.5, 0}, {"c", 3, 2, 1, -inf, 0}, {"d", 4, 1, 1, nan, 0}};
	const struct given only[] = {{"a", 1, 4, 1, nan, 0}, {"b", 2, 3, 1, inf, 0}};
	const struct given none[] = {{"a", 1, 4, 1, NO_METRIC, 0}, {"b", 2, 3, 1, NO_METRIC, 0}};
	struct neap_retention_options options = {.keep_best = 3, .delete_rest = true};

	(void)state;
	expect(mixed, 4, NEAP_METRIC_MIN, &options, "c d ");
	expect_refused(only, 2, NEAP_METRIC_MIN, &options, "is NaN or infinite");
	expect_refused(mixed, 4, NEAP_METRIC_MODE_UNKNOWN, &options, "say min or max");
	expect_refused(none, 2, NEAP_METRIC_MIN, &options, "no checkpoint in ckpt has the metric val_loss");
	expect_refused(none, 2, NEAP_METRIC_MODE_UNKNOWN, &options, "name the metric");
	options.newest_for_best = true;
	options.keep_best = 1;
	expect(none, 2, NEAP_METRIC_MODE_UNKNOWN, &options, "b ");
	options.keep_best = 2;
	expect(none, 2, NEAP_METRIC_MODE_UNKNOWN, &options, "");
	expect(NULL, 0, NEAP_METRIC_MIN, &options, "");
}

static void test_text(void **state)
{
	static const struct given six[] = SIX(0);
	struct neap_retention_options options;
	struct neap_retention_plan plan = plan_of(six, 6, NEAP_METRIC_MIN);
	char text[128], small[8];

	(void)state;
	neap_retention_defaults(&options);
	options.keep_best = 1;
	options.max_total_bytes = 25;
	assert_int_equal(neap_retention_decide(&plan, &options, NOW, NULL), NEAP_OK);
	assert_string_equal(neap_retention_reason_text(&plan, &options, 0, text, sizeof text), "newest");
	assert_string_equal(neap_retention_reason_text(&plan, &options, 1, text, sizeof text),
			    "older than 7 days: 9 days, val_loss 0.5");
	assert_string_equal(neap_retention_reason_text(&plan, &options, 2, text, sizeof text),
			    "best 1: val_loss 0.1");
	assert_string_equal(neap_retention_reason_text(&plan, &options, 1, small, sizeof small), "older t");
	assert_int_equal(plan.drop_bytes, 40);
	assert_int_equal(plan.over_bytes, 0);
	neap_retention_plan_fini(&plan);
}

enum { MOST = 24, ROUNDS = 3000 };

static uint64_t below(unsigned limit) { return (uint64_t)rand() % limit; }

static struct neap_retention_options random_rules(void)
{
	return (struct neap_retention_options){.keep_best = below(4),
					       .keep_last = below(4),
					       .newest_for_best = true,
					       .keep_every_steps = below(5),
					       .grace_ns = below(3) * DAY,
					       .older_than_ns = below(10) * DAY,
					       .max_checkpoints = below(2) ? below(12) : 0,
					       .max_total_bytes = below(2) ? below(100) : 0,
					       .best_yields = below(2),
					       .delete_rest = below(4) == 0};
}

static struct neap_retention_plan random_plan(void)
{
	struct given given[MOST];
	char names[MOST][8];
	size_t count = 1 + below(MOST);

	for (size_t i = 0; i < count; i++) {
		snprintf(names[i], sizeof names[i], "n%zu", i);
		given[i] = (struct given){.name = names[i],
					  .age_days = below(20),
					  .step = below(5) ? below(30) : NONE,
					  .bytes = below(10),
					  .metric = below(5) ? (double)below(10) / 10 : NO_METRIC,
					  .facts = below(8) ? 0 : 1u << below(13)};
	}
	given[0].metric = 0.5;
	given[0].facts = 0;
	return plan_of(given, count, NEAP_METRIC_MIN);
}

/* A checkpoint may go only if it was due, nothing held it, and enough of the others are as good. */
static void check_dropped(const struct neap_retention_plan *plan, const struct neap_retention_options *options,
			  const struct neap_retention_entry *entry)
{
	uint64_t age_ns = NOW - entry->modified_ns;
	size_t as_good = 0;

	if (entry->facts & NEAP_CHECKPOINT_TORN)
		return;
	assert_int_equal(entry->facts & ~(NEAP_CHECKPOINT_FOLDER | NEAP_CHECKPOINT_MEASURED |
					  (options->keep_best ? 0u : (unsigned)NEAP_CHECKPOINT_RECORDED)),
			 0);
	assert_true(options->delete_rest || options->max_total_bytes || options->max_checkpoints ||
		    (options->older_than_ns && age_ns > options->older_than_ns));
	assert_true(age_ns >= options->grace_ns);
	assert_false(options->keep_every_steps && entry->step != NONE &&
		     entry->step % options->keep_every_steps == 0);
	for (size_t i = 0; i < plan->count; i++) {
		const struct neap_retention_entry *other = &plan->entries[i];

		as_good += !(other->facts & (NEAP_CHECKPOINT_UNFINISHED | NEAP_CHECKPOINT_TORN)) &&
			   isfinite(other->metric) && other != entry && other->metric <= entry->metric;
	}
	bool yielded = entry->reasons & (NEAP_DROP_COUNT | NEAP_DROP_SIZE) && options->best_yields;
	if (isfinite(entry->metric) && options->keep_best)
		assert_true(as_good >= (yielded ? 1 : options->keep_best));
}

static void check_plan(const struct neap_retention_plan *plan, const struct neap_retention_options *options)
{
	const uint32_t unranked = NEAP_CHECKPOINT_NAMED | NEAP_CHECKPOINT_UNNUMBERED | NEAP_CHECKPOINT_UNREADABLE |
				  NEAP_CHECKPOINT_HALF | NEAP_CHECKPOINT_TORN;
	uint64_t youngest = 0, step = 0, kept = 0, gone = 0, ranked = 0;
	bool newest_by_time = false, newest_by_step = false;

	for (size_t i = 0; i < plan->count; i++) {
		const struct neap_retention_entry *entry = &plan->entries[i];

		gone += entry->drop ? entry->bytes : 0;
		if (entry->facts & NEAP_CHECKPOINT_UNFINISHED)
			continue;
		kept += entry->drop ? 0 : entry->bytes;
		if (entry->facts & unranked)
			continue;
		ranked += !entry->drop;
		youngest = entry->modified_ns > youngest ? entry->modified_ns : youngest;
		step = entry->step != NONE && entry->step > step ? entry->step : step;
	}
	for (size_t i = 0; i < plan->count; i++) {
		const struct neap_retention_entry *entry = &plan->entries[i];

		if (entry->facts & NEAP_CHECKPOINT_UNFINISHED)
			continue;
		newest_by_time = newest_by_time || (!entry->drop && entry->modified_ns == youngest);
		newest_by_step = newest_by_step || (!entry->drop && entry->step == step);
		if (entry->drop)
			check_dropped(plan, options, entry);
	}
	assert_true(newest_by_time && (newest_by_step || step == 0));
	if (options->max_checkpoints)
		assert_true(ranked <= options->max_checkpoints + plan->over_count);
	if (options->max_checkpoints && plan->over_count)
		assert_int_equal(ranked, options->max_checkpoints + plan->over_count);
	assert_int_equal(plan->keep_bytes, kept);
	assert_int_equal(plan->drop_bytes, gone);
}

static void shuffle(struct neap_retention_plan *plan)
{
	for (size_t i = plan->count; i-- > 1;) {
		size_t j = below((unsigned)i + 1);
		struct neap_retention_entry swap = plan->entries[i];

		plan->entries[i] = plan->entries[j];
		plan->entries[j] = swap;
	}
}

/* Whatever the facts and rules: the best N, the newest and all held ones stay; what goes was due; the sums agree; and
 * the order in which the folder was read changes nothing. */
static void test_random(void **state)
{
	const char *seed_text = getenv("NEAP_TEST_SEED");
	unsigned seed = seed_text ? (unsigned)strtoul(seed_text, NULL, 10) : 1;

	(void)state;
	printf("seed %u, %d folders\n", seed, ROUNDS);
	srand(seed);
	for (int round = 0; round < ROUNDS; round++) {
		const struct neap_retention_options options = random_rules();
		struct neap_retention_plan plan = random_plan();
		char first[256], second[256];

		assert_int_equal(neap_retention_decide(&plan, &options, NOW, NULL), NEAP_OK);
		check_plan(&plan, &options);
		dropped(&plan, first, sizeof first);
		shuffle(&plan);
		assert_int_equal(neap_retention_decide(&plan, &options, NOW, NULL), NEAP_OK);
		dropped(&plan, second, sizeof second);
		assert_string_equal(first, second);
		neap_retention_plan_fini(&plan);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),  cmocka_unit_test(test_facts),        cmocka_unit_test(test_newest),
		cmocka_unit_test(test_copies), cmocka_unit_test(test_not_a_number), cmocka_unit_test(test_text),
		cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
