/* The OOM card: each cause and each fix from its own figures; two failures make two cards. */
#include "analyze/oom.h"
#include "recording.h"
#include "support/test.h"

#include <stdio.h>

/* A device of 8000 MiB with 300 MiB of our context; model 2000, activations 5000, batch 100. */
static const struct recorded_oom capacity = {
	.tag = "activations",
	.request = 1000,
	.free = 500,
	.allocated = 7100,
	.reserved = 7100,
	.total = 8000,
	.largest = 0,
	.others = 400,
	.context = 300,
	.tags = {{"parameters", 1000}, {"optimizer", 1000}, {"activations", 5000}, {"batch", 100}},
};

static struct neap_oom_card card_of(struct recording *recording, size_t index)
{
	struct neap_oom_card card;
	struct neap_error err = {0};

	if (neap_oom_card(&recording->record, index, &card, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	for (size_t i = 0; i < card.fix_count; i++)
		print_message("  %s%-70s saves %6llu +- %5llu MiB\n      %s\n",
			      card.fixes[i].sufficient ? "* " : "  ", card.fixes[i].text,
			      (unsigned long long)(card.fixes[i].saving_bytes / NEAP_MIB),
			      (unsigned long long)(card.fixes[i].uncertainty_bytes / NEAP_MIB), card.fixes[i].how);
	return card;
}

static struct neap_oom_card card_for(const struct recorded_oom *oom)
{
	struct recording recording = recording_begin();

	recording_split(&recording, 64, 1);
	recording_oom(&recording, oom);
	struct neap_oom_card card = card_of(&recording, 0);
	recording_end(&recording);
	return card;
}

static const struct neap_fix *fix_in(const struct neap_oom_card *card, enum neap_fix_kind kind)
{
	for (size_t i = 0; i < card->fix_count; i++)
		if (card->fixes[i].kind == kind)
			return &card->fixes[i];
	return NULL;
}

static void test_capacity(void **state)
{
	struct neap_oom_card card = card_for(&capacity);

	(void)state;
	assert_int_equal(card.cause, NEAP_OOM_CAPACITY);
	assert_int_equal(card.shortfall_bytes, 500 * NEAP_MIB);
	assert_int_equal(card.requested_bytes, 1000 * NEAP_MIB - 100);
	assert_int_equal(card.block_bytes, 1000 * NEAP_MIB);
	assert_int_equal(card.device_total_bytes, 8000 * NEAP_MIB);
	assert_int_equal(card.context_bytes, 300 * NEAP_MIB);
	assert_string_equal(card.tag, "activations");
	assert_int_equal(card.step, 1);
	assert_int_equal(card.tag_count, 4);
	assert_string_equal(card.tags[0].tag, "activations");
	assert_int_equal(card.tags[0].live_bytes, 5000 * NEAP_MIB);
	assert_int_equal(card.tags[0].live_blocks, 3);
	assert_string_equal(card.tags[3].tag, "batch");
	assert_int_equal(card.rung_taken, NEAP_RUNG_NONE);

	/* Half of (5000 activations + 1000 of this request + 100 batch), and nothing unknown. */
	const struct neap_fix *first = &card.fixes[0];
	assert_int_equal(first->kind, NEAP_FIX_SMALLER_MICRO_BATCH);
	assert_int_equal(first->saving_bytes, 3050 * NEAP_MIB);
	assert_int_equal(first->uncertainty_bytes, 0);
	assert_null(strstr(first->how, "not known"));
	assert_true(first->sufficient);
	assert_string_equal(first->text, "micro-batch 64 -> 32, accumulation 1 -> 2 (effective batch stays 64)");
	const struct neap_fix *half = fix_in(&card, NEAP_FIX_MIXED_PRECISION);
	/* 1/4 to 1/2 of 6000, less up to half of the parameters' 1000. */
	assert_int_equal(half->saving_bytes, 2000 * NEAP_MIB);
	assert_int_equal(half->uncertainty_bytes, 1000 * NEAP_MIB);
	assert_non_null(fix_in(&card, NEAP_FIX_CHECKPOINTING));
	assert_null(fix_in(&card, NEAP_FIX_RAISE_LIMIT));
	assert_null(fix_in(&card, NEAP_FIX_FREE_NEIGHBOURS));
	assert_null(fix_in(&card, NEAP_FIX_EXPANDABLE_SEGMENTS));
	assert_null(fix_in(&card, NEAP_FIX_EFFICIENT_ATTENTION)); /* nothing was tagged so: no claim */
	assert_int_equal(card.fixes[card.fix_count - 1].kind, NEAP_FIX_SMALLER_MODEL);
}

/* The split is the first one down the ladder that is enough. */
static void test_deeper_split(void **state)
{
	struct recorded_oom oom = capacity;

	(void)state;
	oom.request = 5000; /* 11000 wanted by what scales and the rest: 4500 short, 11100 - 4500 left of 11100 */
	oom.tags[2].live = 1000;
	oom.allocated = oom.reserved = 3100;
	oom.others = 4400 - 500; /* all are still there, but other processes hold them: only the split is checked */
	struct neap_oom_card card = card_for(&oom);
	assert_int_equal(card.shortfall_bytes, 4500 * NEAP_MIB);
	const struct neap_fix *fix = fix_in(&card, NEAP_FIX_SMALLER_MICRO_BATCH);
	/* 6100 scale: half saves 3050, a quarter left saves 4575. */
	assert_string_equal(fix->text, "micro-batch 64 -> 16, accumulation 1 -> 4 (effective batch stays 64)");
	assert_int_equal(fix->saving_bytes, 4575 * NEAP_MIB);
	assert_true(fix->sufficient);
}

static void test_untagged_widens(void **state)
{
	struct recorded_oom oom = capacity;

	(void)state;
	oom.tags[2].tag = ""; /* the 5000 are of unknown use; 1100 scale for sure */
	struct neap_oom_card card = card_for(&oom);
	const struct neap_fix *fix = fix_in(&card, NEAP_FIX_SMALLER_MICRO_BATCH);
	/* Halved: 550 for sure, and 500 are short, so it is enough. The unknown bytes save between nothing and 2500
	 * more. */
	assert_string_equal(fix->text, "micro-batch 64 -> 32, accumulation 1 -> 2 (effective batch stays 64)");
	assert_int_equal(fix->saving_bytes, 1800 * NEAP_MIB);
	assert_int_equal(fix->uncertainty_bytes, 1250 * NEAP_MIB);
}

/* Nothing is tagged: no split is surely enough, so the first is named that is enough in the middle of its
 * interval. */
static void test_all_untagged(void **state)
{
	struct recorded_oom oom = capacity;

	(void)state;
	oom.tag = NULL;
	oom.request = 4000; /* 3500 are short of 11100 in all */
	for (size_t i = 0; i < 4; i++)
		oom.tags[i].tag = i ? NULL : "";
	oom.tags[0].live = 7100;
	struct neap_oom_card card = card_for(&oom);
	const struct neap_fix *fix = fix_in(&card, NEAP_FIX_SMALLER_MICRO_BATCH);
	/* A half of half of 11100 is 2775; three quarters of that half are 4162.5. */
	assert_string_equal(fix->text, "micro-batch 64 -> 16, accumulation 1 -> 4 (effective batch stays 64)");
	assert_true(fix->sufficient);
	assert_int_equal(fix->uncertainty_bytes, fix->saving_bytes);
}

static void test_limit(void **state)
{
	struct recorded_oom oom = capacity;

	(void)state;
	oom.limit = 4000;
	oom.allocated = oom.reserved = 3900;
	oom.tags[2].live = 1800;
	oom.free = 3700;
	struct neap_oom_card card = card_for(&oom);
	assert_int_equal(card.cause, NEAP_OOM_LIMIT);
	assert_int_equal(card.shortfall_bytes, 900 * NEAP_MIB);
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_RAISE_LIMIT);
	assert_int_equal(card.fixes[0].saving_bytes, 3600 * NEAP_MIB);
	assert_true(card.fixes[0].sufficient);
	assert_string_equal(card.fixes[0].text, "a lower bound: limit raised by at least 900 MiB to 4.79 GiB "
						"(fraction 0.62); the device had room for 7.42 GiB");
	/* In pieces the request would have fitted under the limit; the device had room for it whole. */
	oom.limit = 5000;
	oom.allocated = 3900;
	oom.reserved = 4900;
	oom.free = 2700;
	card = card_for(&oom);
	assert_int_equal(card.cause, NEAP_OOM_LIMIT);
	assert_true(card.shortfall_bytes > 0);
	/* A free piece that is large enough belongs to another stream or pool: something is still missing.
	 */
	oom.largest = 1000;
	card = card_for(&oom);
	assert_int_equal(card.cause, NEAP_OOM_LIMIT);
	assert_int_equal(card.shortfall_bytes, 900 * NEAP_MIB);
}

/* PyTorch has separate pools for small and large requests: a piece of the other pool is of no use, and the card names
 * it. */
static void test_pools(void **state)
{
	struct recording recording = recording_begin();
	struct recorded_oom oom = capacity;

	(void)state;
	oom.limit = 5000;
	oom.request = 2;
	oom.allocated = 4900;
	oom.reserved = 4999;
	oom.free = 2700;
	oom.largest = 16;
	recording_oom(&recording, &oom);
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_OOM_POOLS,
						      .oom_pools = {.small_failed = 1,
								    .small_largest_free_bytes = NEAP_MIB / 2,
								    .large_largest_free_bytes = 16 * NEAP_MIB}});
	struct neap_oom_card card = card_of(&recording, 0);
	assert_int_equal(card.cause, NEAP_OOM_LIMIT);
	assert_int_equal(card.asked_pool, NEAP_OOM_POOL_SMALL);
	assert_int_equal(card.largest_free_bytes, NEAP_MIB / 2);
	assert_int_equal(card.elsewhere_free_bytes, 16 * NEAP_MIB);
	assert_int_equal(card.elsewhere_pool, NEAP_OOM_POOL_LARGE);
	/* In the request's own pool, a piece that is large enough belongs to another stream. */
	recording_oom(&recording, &oom);
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_OOM_POOLS,
						      .oom_pools = {.small_failed = 1,
								    .small_largest_free_bytes = 2 * NEAP_MIB,
								    .large_largest_free_bytes = 16 * NEAP_MIB}});
	card = card_of(&recording, 1);
	assert_int_equal(card.elsewhere_free_bytes, 2 * NEAP_MIB);
	assert_int_equal(card.elsewhere_pool, NEAP_OOM_POOL_UNKNOWN);
	/* A large request. */
	recording_oom(&recording, &oom);
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_OOM_POOLS,
						      .oom_pools = {.small_largest_free_bytes = NEAP_MIB,
								    .large_largest_free_bytes = NEAP_MIB / 4}});
	card = card_of(&recording, 2);
	assert_int_equal(card.asked_pool, NEAP_OOM_POOL_LARGE);
	assert_int_equal(card.largest_free_bytes, NEAP_MIB / 4);
	assert_int_equal(card.elsewhere_pool, NEAP_OOM_POOL_SMALL);
	recording_end(&recording);
}

/* Other processes were asked before it failed: a figure of this failure, not of the next one. */
static void test_others_asked(void **state)
{
	struct recording recording = recording_begin();
	struct recorded_oom oom = capacity;

	(void)state;
	recording_oom(&recording, &oom);
	recording_add(&recording,
		      (struct neap_event){.kind = NEAP_EVENT_OOM_ASKED, .oom_asked = {2, 1, 96 * NEAP_MIB}});
	recording_oom(&recording, &oom);
	struct neap_oom_card card = card_of(&recording, 0);
	assert_true(card.others_asked == 2 && card.others_freed_bytes == 96 * NEAP_MIB);
	card = card_of(&recording, 1);
	assert_true(card.others_asked == 0 && card.others_freed_bytes == 0);
	recording_end(&recording);
}

/* Unknown facts about the free pieces do not become figures. */
static void test_unknown_piece(void **state)
{
	struct recording recording = recording_begin();
	struct recorded_oom oom = capacity;

	(void)state;
	oom.allocated = 5000;
	recording_oom(&recording, &oom);
	recording.record.journal[recording.record.journal_count - 1 - 4].oom_limits.largest_free_bytes = UINT64_MAX;
	struct neap_oom_card card = card_of(&recording, 0);
	assert_int_equal(card.cause, NEAP_OOM_FRAGMENTATION);
	assert_int_equal(card.largest_free_bytes, NEAP_OOM_UNKNOWN);
	assert_int_equal(card.elsewhere_free_bytes, 0);
	assert_int_equal(card.shortfall_bytes, 500 * NEAP_MIB);
	recording_end(&recording);
}

/* The card judges the raise that it names: this request's, and what the step takes after it. */
static void test_limit_of_a_step(void **state)
{
	static const struct {
		uint64_t peak_mib, raise_mib;
		enum neap_fix_step step;
	} cases[] = {{6000, 2000, NEAP_FIX_STEP_ENOUGH}, {8500, 3600, NEAP_FIX_STEP_NOT_ENOUGH}};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct recording recording = recording_begin();
		struct recorded_oom oom = capacity;
		char raise[NEAP_UNITS_CAPACITY], text[80];

		oom.limit = 4000;
		oom.allocated = oom.reserved = 3900;
		oom.tags[2].live = 1800;
		oom.free = 3700;
		recording_split(&recording, 64, 1);
		for (uint64_t step = 1; step <= 5; step++)
			recording_step(&recording, step, 1000 * NEAP_MIB, cases[i].peak_mib * NEAP_MIB, 1);
		recording_oom(&recording, &oom);
		struct neap_oom_card card = card_of(&recording, 0);
		const struct neap_fix *fix = &card.fixes[0];
		assert_int_equal(fix->kind, NEAP_FIX_RAISE_LIMIT);
		snprintf(text, sizeof text, "limit raised by %s to ",
			 neap_size_format(cases[i].raise_mib * NEAP_MIB, raise));
		assert_non_null(strstr(fix->text, text));
		assert_int_equal(fix->step, cases[i].step);
		recording_end(&recording);
	}
}

static void test_neighbours(void **state)
{
	struct recorded_oom oom = capacity;

	(void)state;
	oom.allocated = oom.reserved = 3100;
	oom.tags[2].live = 1000;
	oom.others = 4400;
	struct neap_oom_card card = card_for(&oom);
	assert_int_equal(card.cause, NEAP_OOM_NEIGHBOURS);
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_FREE_NEIGHBOURS);
	assert_int_equal(card.fixes[0].saving_bytes, (4400 - 300 - 160) * NEAP_MIB); /* context; 1/50 of the device */
	assert_true(card.fixes[0].sufficient);
	/* The same bytes are missing, but they are our own context: no neighbour is blamed. */
	oom.context = 4400;
	card = card_for(&oom);
	assert_int_equal(card.cause, NEAP_OOM_CAPACITY);
}

static void test_fragmentation(void **state)
{
	struct recorded_oom oom = capacity;

	(void)state;
	oom.allocated = 5500;
	oom.tags[2].live = 3400;
	oom.largest = 600;
	struct neap_oom_card card = card_for(&oom);
	assert_int_equal(card.cause, NEAP_OOM_FRAGMENTATION);
	assert_int_equal(card.cached_bytes, 1600 * NEAP_MIB);
	assert_int_equal(card.shortfall_bytes, 400 * NEAP_MIB); /* to the largest piece */
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_EXPANDABLE_SEGMENTS);
	assert_false(card.fixes[0].active_already);

	/* If pages are mapped already, the advice is not tried. */
	struct recording recording = recording_begin();
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_SEGMENT_MAP});
	recording_oom(&recording, &oom);
	card = card_of(&recording, 0);
	recording_end(&recording);
	assert_true(card.fixes[card.fix_count - 1].active_already);
	assert_int_equal(card.fixes[card.fix_count - 1].kind, NEAP_FIX_EXPANDABLE_SEGMENTS);
	assert_false(card.fixes[card.fix_count - 1].sufficient);
	assert_non_null(
		strstr(fix_in(&card, NEAP_FIX_SMALLER_MICRO_BATCH)->text, "divided by 2")); /* split unknown */
}

static void test_pending(void **state)
{
	struct recorded_oom oom = capacity;

	(void)state;
	oom.allocated = 5500;
	oom.tags[2].live = 3400;
	oom.pending = 1500;
	struct neap_oom_card card = card_for(&oom);
	assert_int_equal(card.cause, NEAP_OOM_PENDING);
	assert_int_equal(card.shortfall_bytes, 400 * NEAP_MIB); /* 500 free, 100 reusable */
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_WAIT);
	assert_true(card.fixes[0].sufficient);
}

static void test_leak_comes_first(void **state)
{
	struct recording recording = recording_begin();
	struct recorded_oom oom = capacity;

	(void)state;
	oom.tags[0].live = oom.tags[1].live = 505; /* half of them serves the request, but not another step */
	oom.tags[2].live = 5990;
	recording_split(&recording, 64, 1);
	for (uint64_t step = 1; step <= 60; step++)
		recording_step(&recording, step, (1000 + 20 * step) * NEAP_MIB, 7000 * NEAP_MIB, 1);
	recording_oom(&recording, &oom);
	struct neap_oom_card card = card_of(&recording, 0);
	assert_int_equal(card.step, 61);
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_LEAK);
	assert_true(card.fixes[0].saving_bytes >= 1179 * NEAP_MIB && card.fixes[0].saving_bytes <= 1201 * NEAP_MIB);
	assert_true(card.fixes[0].sufficient);
	assert_int_equal(card.growth_bytes, 20 * NEAP_MIB);
	assert_int_equal(card.leak.since_step, 1);
	assert_int_equal(card.leak.bytes, 1200 * NEAP_MIB);
	/* A step takes at most 7000 of 7500 MiB; then its floor rises. */
	assert_int_equal(card.leak.ends_step, 60 + (card.room_bytes / NEAP_MIB - 7000) / 20);
	assert_null(fix_in(&card, NEAP_FIX_SMALLER_MODEL));
	assert_non_null(fix_in(&card, NEAP_FIX_SMALLER_MICRO_BATCH));
	recording_end(&recording);

	recording = recording_begin();
	for (uint64_t step = 1; step <= 60; step++)
		recording_step(&recording, step, 1000 * NEAP_MIB, 7000 * NEAP_MIB, 1);
	recording_oom(&recording, &oom);
	card = card_of(&recording, 0);
	assert_null(fix_in(&card, NEAP_FIX_LEAK));
	assert_non_null(fix_in(&card, NEAP_FIX_SMALLER_MODEL));
	recording_end(&recording);
}

static void test_rungs(void **state)
{
	struct recording recording = recording_begin();
	struct neap_error err = {0};
	struct neap_oom_card card;

	(void)state;
	recording_split(&recording, 64, 1);
	recording_oom(&recording, &capacity);
	recording_add(&recording,
		      (struct neap_event){.kind = NEAP_EVENT_OOM, .device = 1, .oom = {.requested_bytes = 5}});
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_RUNG,
						      .rung = {.settings = {.micro_batch = 32, .accumulate = 2},
							       .rung = NEAP_RUNG_SPLIT,
							       .micro_batch_before = 64,
							       .accumulate_before = 1}});
	recording_step(&recording, 1, 100, 200, 2);
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_RUNG,
						      .rung = {.settings = {.rungs = 1u << NEAP_RUNG_CHECKPOINTING,
									    .micro_batch = 32,
									    .accumulate = 2},
							       .rung = NEAP_RUNG_CHECKPOINTING,
							       .micro_batch_before = 32,
							       .accumulate_before = 2}});
	recording_oom(&recording, &capacity);
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_MARK, .mark = {.mark = NEAP_MARK_END}});
	recording_add(&recording,
		      (struct neap_event){.kind = NEAP_EVENT_TAG_BYTES,
					  .tag_bytes = {.live_bytes = 1, .peak_bytes = 2, .live_blocks = 1}});
	assert_int_equal(neap_oom_count(&recording.record), 3);
	card = card_of(&recording, 0);
	assert_int_equal(card.rungs_active, 0);
	assert_int_equal(card.split.micro_batch, 64);
	assert_int_equal(card.rung_taken, NEAP_RUNG_SPLIT);
	assert_int_equal(card.split_after.micro_batch, 32);
	assert_int_equal(card.split_after.accumulate, 2);
	assert_int_equal(card.split_after.ranks, 1);
	assert_int_equal(card.tag_count, 4);
	card = card_of(&recording, 2);
	assert_int_equal(card.split.micro_batch, 32);
	assert_int_equal(card.split.accumulate, 2);
	assert_int_equal(card.step, 2);
	assert_int_equal(card.rung_taken, NEAP_RUNG_NONE);
	assert_int_equal(card.rungs_active, 1u << NEAP_RUNG_CHECKPOINTING);
	assert_int_equal(card.tag_count, 4); /* the tags at the end of the run are not this card's */
	assert_true(fix_in(&card, NEAP_FIX_CHECKPOINTING)->active_already);
	assert_string_equal(fix_in(&card, NEAP_FIX_SMALLER_MICRO_BATCH)->text,
			    "micro-batch 32 -> 16, accumulation 2 -> 4 (effective batch stays 64)");
	card = card_of(&recording, 1);
	assert_int_equal(card.device, 1);
	assert_int_equal(card.tag_count, 0);               /* the tags of the other device are not taken */
	assert_int_equal(card.rung_taken, NEAP_RUNG_NONE); /* nor its rung */
	assert_int_equal(neap_oom_card(&recording.record, 3, &card, &err), NEAP_ENOENT);
	recording_end(&recording);
}

/* The peaks are those of steps with the settings in force. If there are too few steps after a rung, a leak shows in
 * the steps before it, and the rung's own fall in memory does not count. */
static void test_steps_before_a_rung(void **state)
{
	struct recording recording = recording_begin();

	(void)state;
	recording_split(&recording, 32, 1);
	for (uint64_t step = 1; step <= 60; step++)
		recording_step(&recording, step, 4000 * NEAP_MIB, 7500 * NEAP_MIB, 1);
	recording_split(&recording, 64, 1);
	for (uint64_t step = 1; step <= 60; step++)
		recording_step(&recording, step, (1000 + 20 * step) * NEAP_MIB, 7000 * NEAP_MIB, 1);
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_RUNG,
						      .rung = {.settings = {.micro_batch = 32, .accumulate = 2},
							       .rung = NEAP_RUNG_SPLIT,
							       .micro_batch_before = 64,
							       .accumulate_before = 1}});
	recording_step(&recording, 61, 900 * NEAP_MIB, 6000 * NEAP_MIB, 1);
	recording_oom(&recording, &capacity);
	struct neap_oom_card card = card_of(&recording, 0);
	assert_int_equal(card.step_peak_bytes, 6000 * NEAP_MIB);
	assert_int_equal(card.step_reserved_bytes, 6000 * NEAP_MIB);
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_LEAK);
	assert_true(card.growth_bytes > 19 * NEAP_MIB && card.growth_bytes <= 20 * NEAP_MIB);
	recording_end(&recording);
}

/* Steps of variable length mean that a later one may take more. The first step and a few percent do not mean that. */
static void test_steps_that_vary(void **state)
{
	static const struct {
		uint64_t first, second, third; /* MiB */
		bool vary;
	} cases[] = {{3000, 6000, 6000, false}, {6000, 6000, 5800, false}, {6000, 6000, 5000, true}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct recording recording = recording_begin();
		recording_split(&recording, 32, 1);
		recording_step(&recording, 1, 1000 * NEAP_MIB, cases[i].first * NEAP_MIB, 1);
		recording_step(&recording, 2, 1000 * NEAP_MIB, cases[i].second * NEAP_MIB, 1);
		recording_step(&recording, 3, 1000 * NEAP_MIB, cases[i].third * NEAP_MIB, 1);
		recording_oom(&recording, &capacity);
		struct neap_oom_card card = card_of(&recording, 0);
		assert_int_equal(card.steps_vary, cases[i].vary);
		recording_end(&recording);
	}
}

/* The steps of another device do not count for this one. */
static void test_two_devices(void **state)
{
	struct recording recording = recording_begin();

	(void)state;
	recording_split(&recording, 64, 1);
	recording_split(&recording, 16, 1);
	recording_on(&recording, 1);
	for (uint64_t step = 1; step <= 60; step++) {
		recording_step(&recording, step, 1000 * NEAP_MIB, 5000 * NEAP_MIB, 1);
		recording_step(&recording, 100 + step, (1000 + 20 * step) * NEAP_MIB, 20480 * NEAP_MIB, 1);
		recording_on(&recording, 1);
	}
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_RUNG,
						      .rung = {.settings = {.rungs = 1u << NEAP_RUNG_CHECKPOINTING,
									    .micro_batch = 16,
									    .accumulate = 1},
							       .rung = NEAP_RUNG_CHECKPOINTING}});
	recording_on(&recording, 1);
	recording_oom(&recording, &capacity);
	struct neap_oom_card card = card_of(&recording, 0);
	assert_int_equal(card.step_peak_bytes, 5000 * NEAP_MIB);
	assert_int_equal(card.step, 61);
	assert_int_equal(card.split.micro_batch, 64);
	assert_int_equal(card.rungs_active, 0);
	assert_null(fix_in(&card, NEAP_FIX_LEAK)); /* the other one leaks */
	recording_end(&recording);
}

/* Senseless recordings: no crash, and figures that are consistent. */
static void test_nonsense(void **state)
{
	static const uint64_t values[] = {0, 1, 7, 1 << 20, 1ull << 40, 1ull << 63, UINT64_MAX};
	uint64_t seed = 0x6f6f6d;

	(void)state;
	for (int round = 0; round < 300; round++) {
		struct recording recording = recording_begin();
		for (int i = 0; i < 60; i++) {
			uint64_t random[8];
			for (int k = 0; k < 8; k++) {
				seed ^= seed << 13;
				seed ^= seed >> 7;
				seed ^= seed << 17;
				random[k] = values[seed % 7] ^ (seed >> 40 & 3);
			}
			struct neap_event event = {.kind = (uint16_t)(20 + seed % 14)};
			memcpy(event.payload, random, sizeof event.payload);
			recording_add(&recording, event);
		}
		for (size_t i = 0; i < neap_oom_count(&recording.record); i++) {
			struct neap_oom_card card;
			assert_int_equal(neap_oom_card(&recording.record, i, &card, NULL), NEAP_OK);
			assert_true(card.fix_count <= NEAP_OOM_FIXES && card.tag_count <= NEAP_OOM_TAGS);
			for (size_t f = 0; f < card.fix_count; f++)
				assert_true(!card.fixes[f].sufficient ||
					    card.fixes[f].saving_bytes >= card.shortfall_bytes);
		}
		recording_end(&recording);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_capacity),
		cmocka_unit_test(test_deeper_split),
		cmocka_unit_test(test_untagged_widens),
		cmocka_unit_test(test_all_untagged),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_pools),
		cmocka_unit_test(test_others_asked),
		cmocka_unit_test(test_unknown_piece),
		cmocka_unit_test(test_limit_of_a_step),
		cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_fragmentation),
		cmocka_unit_test(test_pending),
		cmocka_unit_test(test_leak_comes_first),
		cmocka_unit_test(test_rungs),
		cmocka_unit_test(test_steps_that_vary),
		cmocka_unit_test(test_two_devices),
		cmocka_unit_test(test_steps_before_a_rung),
		cmocka_unit_test(test_nonsense),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
