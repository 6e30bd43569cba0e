/* Advice for a larger micro-batch, from recordings made by hand: all sizes are known, so the answer is too. */

#include "analyze/advice.h"
#include "recording.h"
#include "support/test.h"

#define PAGE_BYTES (2 * NEAP_MIB)

static const struct neap_leak clean = {.verdict = NEAP_LEAK_CLEAN};

/* A recording and its blocks: levels and addresses follow from what is allocated and freed. */
struct story {
	struct recording recording;
	uint64_t level, peak, lowest, next_address, step;
};

static struct story story_begin(uint64_t headroom_mib, uint64_t micro_batch, uint64_t accumulate)
{
	struct story story = {.recording = recording_begin(), .next_address = 1ull << 40};

	recording_split(&story.recording, micro_batch, accumulate);
	recording_add(&story.recording,
		      (struct neap_event){.kind = NEAP_EVENT_ROOM,
					  .room = {.room_bytes = headroom_mib * NEAP_MIB,
						   .device_total_bytes = (headroom_mib + 10) * NEAP_MIB,
						   .limit_bytes = UINT64_MAX,
						   .page_bytes = PAGE_BYTES}});
	return story;
}

static void story_add(struct story *story, enum neap_event_kind kind, const char *tag, uint64_t address,
		      uint64_t bytes)
{
	struct neap_event_allocation block = {.held = {story->level, story->level},
					      .tag = recording_name(&story->recording, tag),
					      .address = address,
					      .requested_bytes = bytes,
					      .bytes = bytes};

	recording_add(&story->recording, neap_event_of_allocation(kind, 0, block));
}

static uint64_t take(struct story *story, const char *tag, uint64_t bytes)
{
	uint64_t address = story->next_address;

	story->next_address += bytes;
	story->level += bytes;
	story->peak = story->level > story->peak ? story->level : story->peak;
	story_add(story, NEAP_EVENT_ALLOC, tag, address, bytes);
	return address;
}

static void give(struct story *story, const char *tag, uint64_t address, uint64_t bytes)
{
	story->level -= bytes;
	story_add(story, NEAP_EVENT_FREE_REQUESTED, tag, address, bytes);
	story_add(story, NEAP_EVENT_FREE_COMPLETED, tag, address, bytes);
}

static void end_step(struct story *story)
{
	recording_add(&story->recording, (struct neap_event){.kind = NEAP_EVENT_STEP,
							     .step = {.held = {story->level, story->peak},
								      .number = ++story->step,
								      .peak_bytes = story->peak,
								      .lowest_bytes = story->level,
								      .micro_batches = 1}});
	story->peak = story->level;
}

/* A step with 1 MiB of activations for each sample and, while they live, scratch memory. */
static void do_step(struct story *story, uint64_t micro_batch, const char *scratch_tag, uint64_t scratch_bytes)
{
	uint64_t activations = take(story, "activations", micro_batch * NEAP_MIB);

	if (scratch_bytes)
		give(story, scratch_tag, take(story, scratch_tag, scratch_bytes), scratch_bytes);
	give(story, "activations", activations, micro_batch * NEAP_MIB);
	end_step(story);
}

static struct neap_advice advise(const struct story *story)
{
	struct neap_advice advice;

	neap_advice(&story->recording.record, &clean, NULL, &advice);
	return advice;
}

static void test_largest_that_fits(void **state)
{
	struct story story = story_begin(101, 8, 4);
	char text[512];

	(void)state;
	take(&story, "parameters", 20 * NEAP_MIB);
	for (int i = 0; i < 3; i++)
		do_step(&story, 8, "workspace", 8 * NEAP_MIB);
	struct neap_advice advice = advise(&story);
	/* 50 pages: 10 of parameters, 4 of scratch, 36 for 72 samples */
	assert_true(advice.given);
	assert_true(advice.replayed);
	assert_false(advice.two_splits);
	assert_int_equal(advice.micro_batch, 72);
	assert_int_equal(advice.room_bytes, 101 * NEAP_MIB);
	assert_int_equal(advice.headroom_bytes, 1 * NEAP_MIB); /* half a page is of no use */
	assert_int_equal(advice.uncertainty_bytes, 0);
	assert_int_equal(advice.fixed_bytes, 20 * NEAP_MIB);
	assert_int_equal(advice.kept_micro_batch, 32);
	assert_int_equal(advice.kept_accumulate, 1);
	assert_int_equal(advice.kept_headroom_bytes, 41 * NEAP_MIB);
	neap_advice_text(&advice, text, sizeof text);
	assert_string_equal(
		text,
		"micro-batch 72 is the largest predicted to fit (now 8): it would reserve 100 MiB of the 101 MiB "
		"that this process can have, headroom 1.00 MiB; the effective batch of 32 is kept by 32 x "
		"accumulation 1, headroom 41.0 MiB");
	recording_end(&story.recording);

	/* The tag says that the scratch memory grows: 10 pages stay as they are, the rest is for 2 MiB a sample.
	 */
	story = story_begin(100, 8, 9);
	take(&story, "parameters", 20 * NEAP_MIB);
	for (int i = 0; i < 3; i++)
		do_step(&story, 8, "temporaries", 8 * NEAP_MIB);
	advice = advise(&story);
	assert_int_equal(advice.micro_batch, 40);
	assert_int_equal(advice.sample_bytes, 2 * NEAP_MIB);
	assert_int_equal(advice.kept_micro_batch, 36);
	assert_int_equal(advice.kept_accumulate, 2);
	recording_end(&story.recording);
}

static void test_least_room_counts(void **state)
{
	struct story story = story_begin(100, 8, 1);
	char text[512];

	(void)state;
	do_step(&story, 8, "", 0);
	do_step(&story, 8, "", 0);
	recording_add(&story.recording,
		      (struct neap_event){.kind = NEAP_EVENT_ROOM,
					  .room = {.room_bytes = 50 * NEAP_MIB, /* a neighbour has come */
						   .page_bytes = PAGE_BYTES}});
	struct neap_advice advice = advise(&story);
	assert_int_equal(advice.micro_batch, 50);
	assert_int_equal(advice.headroom_bytes, 0);
	assert_int_equal(advice.kept_micro_batch, 8);
	neap_advice_text(&advice, text, sizeof text);
	assert_non_null(strstr(text,
			       "micro-batch 50 is the largest predicted to fit (now 8): it would reserve all of the "
			       "50.0 MiB that this process can have; "));
	recording_add(&story.recording,
		      (struct neap_event){.kind = NEAP_EVENT_ROOM,
					  .room = {.room_bytes = 6 * NEAP_MIB, .page_bytes = PAGE_BYTES}});
	advice = advise(&story);
	assert_false(advice.given);
	assert_non_null(strstr(advice.why, "not even the micro-batch in force fits"));
	recording_end(&story.recording);
}

/* A rung was taken: the search solves for what scales, whatever the tag says. */
static void test_two_splits(void **state)
{
	struct story story = story_begin(40, 32, 1);

	(void)state;
	take(&story, "parameters", 10 * NEAP_MIB);
	for (int i = 0; i < 2; i++) { /* 32: four tensors and scratch, then no memory for the fifth */
		uint64_t blocks[5];
		uint64_t micro_batch = i == 0 ? 32 : 16;
		for (int k = 0; k < 4; k++)
			blocks[k] = take(&story, "activations", micro_batch * 128 * NEAP_KIB);
		blocks[4] = take(&story, "temporaries", 4 * NEAP_MIB);
		if (i == 0)
			recording_add(&story.recording, (struct neap_event){.kind = NEAP_EVENT_OOM,
									    .oom = {.requested_bytes = NEAP_MIB}});
		give(&story, "temporaries", blocks[4], 4 * NEAP_MIB);
		for (int k = 0; k < 4; k++)
			give(&story, "activations", blocks[k], micro_batch * 128 * NEAP_KIB);
		if (i == 0)
			recording_add(&story.recording,
				      (struct neap_event){.kind = NEAP_EVENT_RUNG,
							  .rung = {.settings = {.micro_batch = 16, .accumulate = 2},
								   .rung = NEAP_RUNG_SPLIT,
								   .micro_batch_before = 32,
								   .accumulate_before = 1}});
	}
	end_step(&story);
	for (int i = 0; i < 2; i++) {
		uint64_t blocks[5];
		for (int k = 0; k < 4; k++)
			blocks[k] = take(&story, "activations", 16 * 128 * NEAP_KIB);
		blocks[4] = take(&story, "temporaries", 4 * NEAP_MIB);
		give(&story, "temporaries", blocks[4], 4 * NEAP_MIB);
		for (int k = 0; k < 4; k++)
			give(&story, "activations", blocks[k], 16 * 128 * NEAP_KIB);
		end_step(&story);
	}
	struct neap_advice advice = advise(&story);
	assert_true(advice.given);
	assert_true(advice.two_splits);
	/* 20 pages: 5 of parameters, 2 of scratch, 26 MiB at half a MiB a sample; by one split it would be 40 */
	assert_int_equal(advice.micro_batch, 52);
	assert_int_equal(advice.split.micro_batch, 16);
	assert_int_equal(advice.kept_micro_batch, 32);
	recording_end(&story.recording);
}

/* 41 samples in 21 + 20, with 1 MiB a sample: the smaller part scales like the larger one, and the batch is kept in
 * unequal parts. */
static void test_unequal_parts(void **state)
{
	struct story story = story_begin(64, 21, 2);
	char text[512];

	(void)state;
	story.recording.record.journal[0].split.settings.smaller_parts = 1;
	take(&story, "parameters", 20 * NEAP_MIB);
	for (int i = 0; i < 3; i++) {
		give(&story, "activations", take(&story, "activations", 21 * NEAP_MIB), 21 * NEAP_MIB);
		recording_add(&story.recording,
			      (struct neap_event){.kind = NEAP_EVENT_SMALLER_PARTS, .smaller_parts = {.count = 1}});
		/* Before a part gives anything back it holds 8 MiB of its own: the step's highest level is there. */
		uint64_t scratch = take(&story, "workspace", 8 * NEAP_MIB);
		give(&story, "activations", take(&story, "activations", 20 * NEAP_MIB), 20 * NEAP_MIB);
		give(&story, "workspace", scratch, 8 * NEAP_MIB);
		end_step(&story);
	}
	struct neap_advice advice = advise(&story);
	assert_true(advice.given);
	assert_int_equal(neap_split_batch(&advice.split), 41);
	assert_int_equal(advice.uncertainty_bytes, 0); /* the model explains the step to the byte */
	assert_int_equal(advice.micro_batch, 36);      /* 64 - 20 - 8 */
	assert_int_equal(advice.headroom_bytes, 0);
	assert_int_equal(advice.kept_micro_batch, 21);
	assert_int_equal(advice.kept_accumulate, 2);
	neap_advice_text(&advice, text, sizeof text);
	assert_non_null(strstr(
		text, "; the effective batch of 41 is kept by 21 x accumulation 2 (1 x 21 + 1 x 20), headroom "));
	recording_end(&story.recording);

	/* From equal parts: 100 samples fit in 34 + 33 + 33. */
	story = story_begin(60, 25, 4);
	take(&story, "parameters", 20 * NEAP_MIB);
	for (int i = 0; i < 3; i++)
		do_step(&story, 25, "", 0);
	advice = advise(&story);
	assert_int_equal(advice.micro_batch, 40);
	assert_int_equal(advice.kept_micro_batch, 34);
	assert_int_equal(advice.kept_accumulate, 3);
	assert_int_equal(advice.kept_headroom_bytes, 6 * NEAP_MIB);
	recording_end(&story.recording);
}

/* The ring has wrapped: parameters show only when they are freed at the end, or never. */
static void test_wrapped(void **state)
{
	(void)state;
	for (int tidy = 0; tidy < 2; tidy++) {
		struct story story = story_begin(100, 8, 1);
		struct neap_record *record = &story.recording.record;
		uint64_t parameters = take(&story, "parameters", 20 * NEAP_MIB);
		for (int i = 0; i < 3; i++)
			do_step(&story, 8, "workspace", 8 * NEAP_MIB);
		if (tidy)
			give(&story, "parameters", parameters, 20 * NEAP_MIB);
		memmove(record->allocations, record->allocations + 1,
			--record->allocation_count * sizeof *record->allocations);
		record->allocations_lost = 1;
		struct neap_advice advice = advise(&story);
		assert_true(advice.given);
		assert_true(advice.replayed);
		assert_int_equal(advice.fixed_bytes, 20 * NEAP_MIB);
		assert_int_equal(advice.uncertainty_bytes, tidy ? 0 : 4 * NEAP_MIB);
		assert_int_equal(advice.micro_batch, tidy ? 72 : 68);
		recording_end(&story.recording);
	}
}

static void test_no_whole_step(void **state)
{
	struct story story = story_begin(100, 8, 1);
	char text[512];

	(void)state;
	take(&story, "parameters", 20 * NEAP_MIB);
	for (int i = 0; i < 3; i++)
		do_step(&story, 8, "", 0);
	story.recording.record.allocations_lost = 1000000;
	story.recording.record.allocation_count = 0;
	struct neap_advice advice = advise(&story);
	assert_true(advice.given);
	assert_false(advice.replayed);
	assert_int_equal(advice.sample_bytes, NEAP_MIB);
	assert_int_equal(advice.fixed_bytes, 20 * NEAP_MIB);
	assert_int_equal(advice.micro_batch, 76); /* two pages are reserved */
	assert_int_equal(advice.headroom_bytes, 4 * NEAP_MIB);
	assert_int_equal(advice.uncertainty_bytes, 4 * NEAP_MIB);
	neap_advice_text(&advice, text, sizeof text);
	assert_non_null(strstr(advice.why, "a straight line"));
	assert_non_null(strstr(text, "headroom 4.00 MiB \u00b1 4.00 MiB"));
	recording_end(&story.recording);

	/* At micro-batch 1 each of many small blocks takes a page: the line says nothing about what 50 would take. */
	story = story_begin(100, 1, 64);
	for (int i = 0; i < 3; i++) {
		give(&story, "activations", take(&story, "activations", NEAP_MIB), NEAP_MIB);
		recording_add(&story.recording, (struct neap_event){.kind = NEAP_EVENT_STEP,
								    .step = {.held = {.reserved_bytes = 3 * NEAP_MIB},
									     .number = (uint64_t)i + 1,
									     .peak_bytes = NEAP_MIB,
									     .micro_batches = 64}});
	}
	story.recording.record.allocations_lost = 1000000;
	story.recording.record.allocation_count = 0;
	advice = advise(&story);
	assert_false(advice.given);
	neap_advice_text(&advice, text, sizeof text);
	assert_non_null(strstr(text, "none: no whole step was left in the recording"));
	recording_end(&story.recording);
}

static void test_no_advice(void **state)
{
	const struct neap_leak leak = {.verdict = NEAP_LEAK_FOUND};
	struct story story = story_begin(100, 8, 1);
	struct neap_advice advice;
	char text[512];

	(void)state;
	assert_false(advise(&story).given); /* no step */
	do_step(&story, 8, "", 0);
	do_step(&story, 8, "", 0);
	assert_true(advise(&story).given);
	neap_advice(&story.recording.record, &leak, NULL, &advice);
	assert_false(advice.given);
	neap_advice_text(&advice, text, sizeof text);
	assert_string_equal(text,
			    "none: memory grows with the steps: what fits today does not fit later; mend the leak "
			    "first");
	recording_end(&story.recording);

	struct recording nothing = recording_begin();
	neap_advice(&nothing.record, &clean, NULL, &advice);
	assert_string_equal(advice.why, "no training session reported its micro-batch");
	recording_split(&nothing, 8, 1);
	neap_advice(&nothing.record, &clean, NULL, &advice);
	assert_string_equal(advice.why, "the recording does not say how much memory the process could have");
	recording_end(&nothing);

	story = story_begin(100, 7, 1); /* nothing that 7 divides */
	for (int i = 0; i < 2; i++) {
		give(&story, "activations", take(&story, "activations", NEAP_MIB), NEAP_MIB);
		end_step(&story);
	}
	advice = advise(&story);
	assert_false(advice.given);
	assert_non_null(strstr(advice.why, "nothing that a step allocates"));
	recording_end(&story.recording);
}

static void add_batch(struct story *story, uint16_t device, struct neap_event_batch batch)
{
	recording_add(&story->recording, neap_event_of_batch(device, batch));
}

/* Without a session: what neap found out about the program, if its sources agree. */
static void test_found(void **state)
{
	struct story story = story_begin(101, 8, 4);
	struct neap_record *record = &story.recording.record;
	char text[512];

	(void)state;
	take(&story, "parameters", 20 * NEAP_MIB);
	for (int i = 0; i < 3; i++)
		do_step(&story, 8, "workspace", 8 * NEAP_MIB);
	memmove(record->journal, record->journal + 1, --record->journal_count * sizeof *record->journal); /* SPLIT */
	add_batch(&story, 0, (struct neap_event_batch){8, 4, NEAP_BATCH_LOADER, 1, 0, 0});
	struct neap_advice advice = advise(&story);
	assert_true(advice.given);
	assert_int_equal(advice.micro_batch, 72);
	assert_int_equal(advice.kept_micro_batch, 32);
	neap_advice_text(&advice, text, sizeof text);
	assert_non_null(strstr(text, "micro-batch 72 is the largest predicted to fit (now 8, the DataLoader's "
				     "batch_size): it would reserve 100 MiB"));
	assert_non_null(strstr(text, "; the effective batch of 32 is kept by 32 x accumulation 1"));
	/* Without the accumulation there is no statement about the effective batch. */
	record->journal[record->journal_count - 1].batch.accumulate = 0;
	record->journal[record->journal_count - 1].batch.source = NEAP_BATCH_NAMED;
	advice = advise(&story);
	assert_int_equal(advice.micro_batch, 72);
	neap_advice_text(&advice, text, sizeof text);
	assert_non_null(strstr(text, "(now 8, NEAP_MICRO_BATCH)"));
	assert_null(strstr(text, "effective batch"));
	/* The advice is unsure, and says how to name the batch. */
	record->journal[record->journal_count - 1].batch =
		(struct neap_event_batch){8, 4, NEAP_BATCH_LOADER, 1, NEAP_BATCH_INPUTS, 16};
	advice = advise(&story);
	assert_false(advice.given);
	assert_string_equal(advice.why,
			    "is the micro-batch 8 (the DataLoader's batch_size) or 16 (the first dimension of the "
			    "model's inputs)? NEAP_MICRO_BATCH=N neap run ... names it");
	record->journal[record->journal_count - 1].batch = (struct neap_event_batch){0};
	advice = advise(&story);
	assert_string_equal(advice.why,
			    "neap did not find the program's micro-batch: NEAP_MICRO_BATCH=N neap run ... names it");
	record->journal[record->journal_count - 1].batch = (struct neap_event_batch){UINT64_MAX, 4, 99, 1, 0, 0};
	assert_string_equal(advise(&story).why, "the recording's micro-batch makes no sense");
	recording_end(&story.recording);
}

/* Adds the events of a recording as those of another device. */
static void add_device(struct recording *recording, const struct neap_record *from, uint16_t device,
		       uint64_t headroom_mib)
{
	struct neap_record *to = &recording->record;

	for (size_t i = 0; i < from->allocation_count; i++) {
		to->allocations[to->allocation_count] = from->allocations[i];
		to->allocations[to->allocation_count++].device = device;
	}
	for (size_t i = 0; i < from->journal_count; i++) {
		struct neap_event event = from->journal[i];
		event.device = device;
		if (event.kind == NEAP_EVENT_ROOM && headroom_mib)
			event.room.room_bytes = headroom_mib * NEAP_MIB;
		if (event.kind != NEAP_EVENT_SPLIT)
			to->journal[to->journal_count++] = event;
	}
}

static void test_tightest_device(void **state)
{
	struct story story = story_begin(101, 8, 1), other = story_begin(90, 8, 1);
	struct recording all = recording_begin();
	struct neap_record *record = &all.record;
	struct neap_advice advice;
	char text[512];

	(void)state;
	take(&story, "parameters", 20 * NEAP_MIB);
	for (int i = 0; i < 3; i++) {
		do_step(&story, 8, "workspace", 8 * NEAP_MIB);
		give(&other, "workspace", take(&other, "workspace", NEAP_MIB + 4), NEAP_MIB + 4);
		end_step(&other);
	}
	add_batch(&story, 0, (struct neap_event_batch){8, 1, NEAP_BATCH_LOADER, 1, 0, 0});
	add_batch(&other, 0, (struct neap_event_batch){8, 1, NEAP_BATCH_LOADER, 1, 0, 0});
	memcpy(record->names, story.recording.record.names, sizeof record->names);
	record->names_used = story.recording.record.names_used;
	add_device(&all, &story.recording.record, 0, 0);
	add_device(&all, &story.recording.record, 1, 61);
	add_device(&all, &other.recording.record, 2, 0); /* nothing there grows with the micro-batch */
	neap_advice(record, &clean, NULL, &advice);
	assert_true(advice.given);
	assert_int_equal(advice.micro_batch, 32);
	neap_advice_place(&advice, "rank 3", 4);
	neap_advice_text(&advice, text, sizeof text);
	assert_non_null(strstr(text,
			       "micro-batch 32 is the largest predicted to fit on rank 3, the tightest of 4, "
			       "there on CUDA device 1, the tightest of 3 (now 8, the DataLoader's batch_size)"));
	/* If nothing is known about a device, it gets no advice. */
	record->journal[record->journal_count - 1].batch.micro_batch = 0;
	neap_advice(record, &clean, NULL, &advice);
	assert_false(advice.given);
	assert_string_equal(advice.why,
			    "CUDA device 2: neap did not find the program's micro-batch: NEAP_MICRO_BATCH=N "
			    "neap run ... names it");
	recording_end(&all);
	recording_end(&story.recording);
	recording_end(&other.recording);
}

/* Senseless numbers, and events in a random order: advice or none, but no harm. */
static void test_hostile(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		struct recording recording = recording_begin();
		for (int i = 0; i < 60; i++) {
			static const uint16_t kinds[] = {1, 1, 3, 3, 2, 25, 25, 26, 28, 33, 21, 35, 48};
			uint64_t words[8];
			for (size_t w = 0; w < 8; w++) {
				seed = seed * 6364136223846793005ull + 1442695040888963407ull;
				uint64_t value = seed >> 16;
				words[w] = value % 4 == 0   ? value % 9
					   : value % 4 == 1 ? (value % 64) * 512
					   : value % 4 == 2 ? (uint64_t)1 << (value >> 8) % 64
							    : UINT64_MAX - value % 3;
			}
			struct neap_event event = {.kind = kinds[(seed >> 33) % 13],
						   .device = (uint16_t)(words[0] % 8 == 7)};
			memcpy(event.payload, words + 1, sizeof event.payload);
			recording_add(&recording, event);
		}
		struct neap_advice advice;
		char text[512];
		neap_advice(&recording.record, &clean, NULL, &advice);
		neap_advice_text(&advice, text, sizeof text);
		assert_true(text[0]);
		recording_end(&recording);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_largest_that_fits), cmocka_unit_test(test_least_room_counts),
		cmocka_unit_test(test_two_splits),        cmocka_unit_test(test_wrapped),
		cmocka_unit_test(test_unequal_parts),     cmocka_unit_test(test_no_whole_step),
		cmocka_unit_test(test_no_advice),         cmocka_unit_test(test_found),
		cmocka_unit_test(test_tightest_device),   cmocka_unit_test(test_hostile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
