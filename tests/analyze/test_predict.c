/* Predictions: each kind of bytes has its own rule, and the bounds enclose the middle. The bytes by tag at a
 * recording's peak are reconstructed backward from its end. */
#include "analyze/predict.h"
#include "recording.h"
#include "support/test.h"

#include <stdio.h>

static const struct neap_demand demand = {.activations = 4000 * NEAP_MIB,
					  .attention = 800 * NEAP_MIB,
					  .temporaries = 400 * NEAP_MIB,
					  .inputs = 100 * NEAP_MIB,
					  .parameters = 1000 * NEAP_MIB,
					  .model = 3000 * NEAP_MIB};

static void expect(uint64_t micro_batch, uint32_t rungs, uint32_t layers, uint64_t low_mib, uint64_t high_mib)
{
	const struct neap_train_settings from = {{.micro_batch = 8}, 0}, to = {{.micro_batch = micro_batch}, rungs};
	struct neap_prediction prediction = {0};

	assert_true(neap_predict(&demand, &from, &to, layers, &prediction));
	print_message("micro-batch %llu, rungs 0x%x, %u layers: %llu +- %llu MiB\n", (unsigned long long)micro_batch,
		      rungs, layers, (unsigned long long)(prediction.bytes / NEAP_MIB),
		      (unsigned long long)(prediction.uncertainty_bytes / NEAP_MIB));
	assert_in_range(prediction.bytes - prediction.uncertainty_bytes, low_mib * NEAP_MIB - 4,
			low_mib * NEAP_MIB + 4);
	assert_in_range(prediction.bytes + prediction.uncertainty_bytes, high_mib * NEAP_MIB - 4,
			high_mib * NEAP_MIB + 4);
}

enum {
	EFFICIENT = 1u << NEAP_RUNG_EFFICIENT_ATTENTION,
	MIXED = 1u << NEAP_RUNG_MIXED_PRECISION,
	CHECKPOINTING = 1u << NEAP_RUNG_CHECKPOINTING
};

static void test_each_rung(void **state)
{
	(void)state;
	expect(8, 0, 0, 9300, 9300);
	expect(4, 0, 0, 4000 + 5300 / 2, 4000 + 5300 / 2);
	expect(16, 0, 0, 4000 + 5300 * 2, 4000 + 5300 * 2);
	expect(8, EFFICIENT, 0, 9300 - 800, 9300 - 700);
	expect(8, MIXED, 0, 4100 + 2600, 4100 + 500 + 3900);
	expect(8, CHECKPOINTING, 0, 4500 + 480, 4500 + 2400);
	expect(8, CHECKPOINTING, 4, 4500 + 1200 + 72, 4500 + 1200 + 432); /* 4800: a quarter, 3/4 of 2 to 12 % */
	expect(8, CHECKPOINTING, 1, 9300, 9300);
	expect(8, MIXED | CHECKPOINTING, 0, 4100 + 200 + 240, 4100 + 500 + 300 + 1800);
}

static void test_no_telling(void **state)
{
	const struct neap_train_settings plain = {{.micro_batch = 8}, 0}, mixed = {{.micro_batch = 8}, MIXED},
					 none = {0};
	struct neap_prediction prediction = {.bytes = 77};

	(void)state;
	assert_false(neap_predict(&demand, &mixed, &plain, 0, &prediction));
	assert_false(neap_predict(&demand, &none, &plain, 0, &prediction));
	assert_false(neap_predict(&demand, &plain, &none, 0, &prediction));
	assert_int_equal(prediction.bytes, 77);
	assert_true(neap_predict(&demand, &mixed, &mixed, 0, &prediction)); /* already in force: nothing changes */
	assert_int_equal(prediction.bytes, neap_demand_total(&demand));
	/* Unknown bytes may scale or not; huge ones stay bytes. */
	const struct neap_demand unknown = {.unknown = 1000}, huge = {.activations = UINT64_MAX, .model = UINT64_MAX};
	const struct neap_train_settings half = {{.micro_batch = 4}, 0}, twice = {{.micro_batch = 16}, 0};
	assert_true(neap_predict(&unknown, &plain, &half, 0, &prediction));
	assert_int_equal(prediction.bytes, 750);
	assert_int_equal(prediction.uncertainty_bytes, 250);
	assert_true(neap_predict(&unknown, &plain, &twice, 0, &prediction));
	assert_int_equal(prediction.bytes, 1500);
	assert_int_equal(prediction.uncertainty_bytes, 500);
	assert_true(neap_predict(&huge, &plain, &twice, 0, &prediction));
	assert_int_equal(prediction.bytes, UINT64_MAX);
	assert_int_equal(neap_demand_total(&huge), UINT64_MAX);
}

static void test_savings(void **state)
{
	struct neap_saving savings[NEAP_SAVINGS];
	struct neap_demand only = {.parameters = 1000, .model = 3000, .unknown = 500};
	char text[512], cut[20];

	(void)state;
	assert_int_equal(neap_predict_savings(&demand, 0, 4, savings), 3);
	assert_int_equal(savings[0].rung, NEAP_RUNG_EFFICIENT_ATTENTION);
	assert_int_equal(savings[0].bytes, 750 * NEAP_MIB);
	assert_int_equal(savings[0].uncertainty_bytes, 50 * NEAP_MIB);
	assert_int_equal(savings[1].rung, NEAP_RUNG_MIXED_PRECISION);
	assert_int_equal(savings[1].bytes, (1950 - 250) * NEAP_MIB);
	assert_int_equal(savings[1].uncertainty_bytes, (650 + 250) * NEAP_MIB);
	assert_int_equal(savings[2].rung, NEAP_RUNG_CHECKPOINTING);
	neap_savings_text(savings, 2, 9300 * NEAP_MIB, text, sizeof text);
	assert_string_equal(text,
			    "memory-efficient attention 750 MiB \u00b1 50.0 MiB, mixed precision 1.66 GiB \u00b1 900 "
			    "MiB of the peak of 9.08 GiB (predicted, each alone)");
	neap_savings_text(savings, 2, 9300 * NEAP_MIB, cut, sizeof cut);
	assert_string_equal(cut, "memory-efficient at");
	/* Already in force, or nothing to act on: it saves nothing. */
	assert_int_equal(neap_predict_savings(&demand, MIXED | CHECKPOINTING, 4, savings), 1);
	assert_int_equal(neap_predict_savings(&demand, 0, 1, savings), 2);
	assert_int_equal(neap_predict_savings(&only, 0, 4, savings), 0);
	neap_savings_text(savings, 0, 1, text, sizeof text);
	assert_string_equal(text, "");
}

/* An allocation (negative: a free) of so many bytes for `tag`, after which `*allocated` are live. */
static void add(struct recording *recording, uint64_t *allocated, const char *tag, int64_t bytes)
{
	*allocated += (uint64_t)bytes;
	struct neap_event_allocation block = {.held = {*allocated, *allocated},
					      .tag = recording_name(recording, tag),
					      .bytes = (uint64_t)(bytes > 0 ? bytes : -bytes)};
	recording_add(recording,
		      neap_event_of_allocation(bytes > 0 ? NEAP_EVENT_ALLOC : NEAP_EVENT_FREE_REQUESTED, 0, block));
}

static struct recording recorded_run(bool torn)
{
	struct recording recording = recording_begin();
	uint64_t allocated = 0;

	recording_split(&recording, 16, 1);
	add(&recording, &allocated, "activations", 9000); /* with other settings */
	add(&recording, &allocated, "activations", -9000);
	recording_split(&recording, 8, 2);
	add(&recording, &allocated, "parameters", 1000);
	for (int step = 1; step <= 3; step++) {
		add(&recording, &allocated, "activations", 3000);
		add(&recording, &allocated, "attention", 500);
		add(&recording, &allocated, "", 70);
		add(&recording, &allocated, "temporaries", 20);
		if (!torn)
			add(&recording, &allocated, "attention", -500);
		add(&recording, &allocated, "temporaries", 200);
		add(&recording, &allocated, "temporaries", -220);
		add(&recording, &allocated, "", -70);
		add(&recording, &allocated, "activations", -3000);
		recording_step(&recording, (uint64_t)step, 1000, step == 2 ? 4600 : 4590, 1);
	}
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_MARK, .mark = {.mark = NEAP_MARK_END}});
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_TAG_BYTES,
						      .tag_bytes = {.tag = recording_name(&recording, "parameters"),
								    .live_bytes = 1000,
								    .peak_bytes = 1000,
								    .live_blocks = 1}});
	add(&recording, &allocated, "parameters", -1000); /* after the session's end */
	return recording;
}

static void test_demand_at_peak(void **state)
{
	struct recording recording = recorded_run(false);
	struct neap_demand found = {0};

	(void)state;
	assert_true(neap_demand_at_peak(&recording.record, &found));
	assert_int_equal(found.activations, 3000);
	assert_int_equal(found.attention, 500);
	assert_int_equal(found.temporaries, 20);
	assert_int_equal(found.parameters, 1000);
	assert_int_equal(found.unknown, 70 + 10); /* the untagged bytes, and the 10 of the second step's peak */
	assert_int_equal(neap_demand_total(&found), 4600);
	recording_end(&recording);

	recording = recorded_run(true); /* a free is missing, so the sums do not agree */
	found.model = 77;
	assert_false(neap_demand_at_peak(&recording.record, &found));
	assert_int_equal(found.model, 77);
	recording_end(&recording);

	/* The last settings of another device's session do not apply here. */
	recording = recorded_run(false);
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_TAG_BYTES,
						      .tag_bytes = {.tag = recording_name(&recording, "activations"),
								    .live_bytes = 1ull << 40}});
	recording_on(&recording, 1);
	assert_true(neap_demand_at_peak(&recording.record, &found));
	recording_end(&recording);

	recording = recording_begin();
	assert_false(neap_demand_at_peak(&recording.record, &found));
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_MARK, .mark = {.mark = NEAP_MARK_END}});
	assert_false(neap_demand_at_peak(&recording.record, &found));
	recording_end(&recording);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_rung),
		cmocka_unit_test(test_no_telling),
		cmocka_unit_test(test_savings),
		cmocka_unit_test(test_demand_at_peak),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
