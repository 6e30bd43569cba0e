/* A recording of PyTorch's own allocator is analysed as a snapshot is: lines, purposes, replays under its own
 * settings. The card of its failure has both the events and the journal's figures of the device. */
#include "analyze/advice_torch.h"
#include "analyze/analysis.h"
#include "analyze/oom_internal.h"
#include "base/units.h"
#include "report/report.h"
#include "support/watched.h"

#include <stdlib.h>

static char folder[TEST_FOLDER_CAPACITY];

static int set_up(void **state)
{
	(void)state;
	return make_folder(folder, "watched");
}

static int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
}

static void analyze(const struct watched *watched, struct neap_trace **ret_trace, struct neap_analysis *ret_analysis)
{
	const struct neap_analysis_options options = {.device = SIZE_MAX};
	struct neap_error err = {0};

	if (neap_trace_read(watched->path, ret_trace, &err) || neap_analyze(*ret_trace, &options, ret_analysis, &err))
		fail_msg("%s", err.message);
}

static uint64_t of(const struct neap_analysis *analysis, enum neap_category category)
{
	uint64_t sum = 0;

	for (int how = 0; how < NEAP_HOWS; how++)
		sum += analysis->categories.bytes[category][how];
	return sum;
}

static void test_as_a_snapshot(void **state)
{
	static const char *const settings[] = {"", "expandable_segments:True", "max_split_size_mb:32"};

	(void)state;
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
		struct neap_analysis analysis = {0};
		struct neap_trace *trace = NULL;
		struct watched watched;
		watched_begin(&watched, folder, settings[i], 0, 0);
		for (int step = 0; step < 6; step++)
			assert_true(watched_step(&watched, 30));
		watched_end(&watched);
		analyze(&watched, &trace, &analysis);
		/* PyTorch's model chooses every block and segment as recorded, since its release and settings are
		 * known. */
		assert_int_equal(analysis.replay.version.to, 15);
		assert_true(neap_analysis_exact(&analysis));
		assert_int_equal(analysis.replay.settings.expandable_segments, i == 1);
		assert_int_equal(analysis.steps.count, 6);
		/* At the peak: the activations of all layers, the state, and a gradient. */
		assert_int_equal(of(&analysis, NEAP_CATEGORY_PARAMETERS), WATCHED_LAYERS * 4 * WATCHED_MIB);
		assert_int_equal(of(&analysis, NEAP_CATEGORY_OPTIMIZER), WATCHED_LAYERS * 8 * WATCHED_MIB);
		assert_true(of(&analysis, NEAP_CATEGORY_GRADIENTS) > 0);
		/* The last layer's is freed at once, and counts as a temporary. */
		assert_int_equal(of(&analysis, NEAP_CATEGORY_ACTIVATIONS), (WATCHED_LAYERS - 1) * 30 * WATCHED_MIB);
		char text[320];
		neap_holder_text(trace, &analysis.holders[0], text, sizeof text);
		assert_string_equal(text, "me/gpt.py:42 forward");
		neap_analysis_fini(&analysis);
		neap_trace_free(trace);
	}
}

/* Writes what the session or the hooks write after a failure. */
static void emit_limits(struct watched *watched, uint64_t device_bytes)
{
	watched_emit(watched,
		     neap_event_of_oom_limits(
			     0, (struct neap_event_oom_limits){.context_bytes = 500 * WATCHED_MIB,
							       .device_total_bytes = device_bytes + 505 * WATCHED_MIB,
							       .limit_bytes = UINT64_MAX,
							       .largest_free_bytes = UINT64_MAX,
							       .others_bytes = 505 * WATCHED_MIB}));
}

static void make_card(const struct watched *watched, struct neap_oom_card *ret_card, struct neap_buffer *text)
{
	const struct neap_trace_oom_options options = {0};
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};

	if (neap_trace_read(watched->path, &trace, &err) ||
	    neap_trace_oom_recorded(trace, 0, &options, ret_card, &err))
		fail_msg("%s", err.message);
	neap_trace_free(trace);
	neap_report_oom_card(text, ret_card);
}

static void test_card_of_capacity(void **state)
{
	const uint64_t device_bytes = 400 * WATCHED_MIB;
	struct neap_buffer text = {0};
	struct neap_oom_card card;
	struct watched watched;

	(void)state;
	watched_begin(&watched, folder, "", device_bytes, 0);
	for (int step = 0; step < 3; step++)
		assert_true(watched_step(&watched, 20));
	assert_false(watched_step(&watched, 60));
	emit_limits(&watched, device_bytes);
	watched_end(&watched);
	make_card(&watched, &card, &text);
	/* The cached and free bytes together are as many as were requested, but no setting would have joined them. */
	assert_true(card.cached_bytes + card.device_free_bytes >= card.block_bytes);
	assert_int_equal(card.cause, NEAP_OOM_CAPACITY);
	assert_true(card.other_allocator);
	assert_int_equal(card.step, 4);
	/* The line that made the request never requested more than 20 MiB. */
	assert_true(card.larger == 3);
	/* The journal's figures of the device, and the events' figures of who holds it. */
	assert_int_equal(card.device_total_bytes, device_bytes + 505 * WATCHED_MIB);
	assert_int_equal(card.context_bytes, 500 * WATCHED_MIB);
	assert_string_equal(card.tag, "me/gpt.py:42 forward");
	assert_string_equal(card.tags[0].tag, "me/gpt.py:42 forward");
	assert_string_equal(card.tags[1].tag, "me/gpt.py:61 <module>");
	assert_int_equal(card.tags[1].live_bytes, WATCHED_LAYERS * 8 * WATCHED_MIB);
	assert_int_equal(card.unknown_bytes, 0);
	assert_true(card.replays.done);
	assert_false(card.replays.unrecorded);
	assert_null(strstr(neap_buffer_string(&text), "nothing tells"));
	assert_non_null(strstr(neap_buffer_string(&text), "replayed on a device of 400 MiB"));
	neap_buffer_fini(&text);
}

/* Writes what the process reports about its model. */
static void emit_model(struct watched *watched, uint64_t parameters, uint64_t optimizer, uint64_t update,
		       enum neap_oom_phase phase, uint32_t permille)
{
	watched_emit(watched, neap_event_of_oom_model(
				      0, (struct neap_event_oom_model){.parameter_bytes = parameters * WATCHED_MIB,
								       .gradient_bytes = parameters * WATCHED_MIB,
								       .optimizer_bytes = optimizer * WATCHED_MIB,
								       .update_bytes = update * WATCHED_MIB,
								       .phase = phase,
								       .forward_permille = permille}));
}

static const struct neap_fix *fix_of(const struct neap_oom_card *card, enum neap_fix_kind kind)
{
	for (size_t i = 0; i < card->fix_count; i++)
		if (card->fixes[i].kind == kind)
			return &card->fixes[i];
	return NULL;
}

/* In the first step: half of the model's modules are done, and there is no optimizer state yet. */
static void test_card_of_a_first_step(void **state)
{
	struct neap_buffer text = {0};
	struct neap_oom_card card;
	struct watched watched;

	(void)state;
	watched_begin(&watched, folder, "", 1000 * WATCHED_MIB, 0);
	for (int i = 0; i < 4; i++)
		assert_non_null(watched_alloc(&watched, 200 * WATCHED_MIB, WATCHED_FORWARD));
	assert_null(watched_alloc(&watched, 200 * WATCHED_MIB, WATCHED_FORWARD));
	emit_limits(&watched, 1000 * WATCHED_MIB);
	emit_model(&watched, WATCHED_LAYERS * 4, 2 * WATCHED_LAYERS * 4, 0, NEAP_OOM_PHASE_FORWARD, 500);
	watched_end(&watched);
	make_card(&watched, &card, &text);
	/* 1000 MiB of activations, twice as many in the whole step, and a quarter more. */
	assert_true(card.need.known && card.need.sure && !card.model_alone);
	assert_int_equal(card.need.scaled_bytes, 2500 * WATCHED_MIB);
	assert_int_equal(card.need.model_bytes, 4 * WATCHED_LAYERS * 4 * WATCHED_MIB);
	/* An eighth: 128 + 313, and room for a later step twice as large; with a quarter it would be 128 + 1250. */
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_SMALLER_MICRO_BATCH);
	assert_true(card.fixes[0].amount == 8 && card.fixes[0].step == NEAP_FIX_STEP_ENOUGH);
	assert_true(card.fixes[0].perhaps); /* later steps are unknown */
	assert_non_null(strstr(neap_buffer_string(&text), "The whole step is predicted to take 2.57 GiB"));
	/* (128 + 313 * 2.4) * 17 / 16 + 40 < 1000, but not with 2.5. */
	assert_int_equal(card.fixes[0].later_tenths, 24);
	assert_non_null(strstr(neap_buffer_string(&text), "enough for this step, and for"));
	neap_buffer_fini(&text);
}

/* In the second step the model holds its optimizer's state too. With the sizes of the step before, the rest of the
 * step is known and not guessed by the modules that are done. */
static void test_card_of_a_step_that_repeats(void **state)
{
	static const uint64_t sizes[] = {20, 18};

	(void)state;
	for (size_t n = 0; n < 2; n++) {
		const uint64_t device_bytes = 240 * WATCHED_MIB;
		struct neap_buffer text = {0};
		struct neap_oom_card card;
		struct watched watched;
		watched_begin(&watched, folder, "", device_bytes, 0);
		assert_true(watched_step(&watched, 20));
		assert_false(watched_step(&watched, sizes[n]));
		emit_limits(&watched, device_bytes);
		emit_model(&watched, WATCHED_LAYERS * 4, 2 * WATCHED_LAYERS * 4, 0, NEAP_OOM_PHASE_FORWARD, 500);
		watched_end(&watched);
		make_card(&watched, &card, &text);
		assert_int_equal(card.step, 2);
		assert_int_equal(card.need.repeats, n == 0);
		/* All activations, and the last one's scratch. */
		if (n == 0)
			assert_int_equal(card.need.scaled_bytes, (WATCHED_LAYERS * 20 + 3) * WATCHED_MIB);
		neap_buffer_fini(&text);
	}
}

/* In the first step no lifetime shows what a block is for. What a loss makes is of the forward; what the process has
 * counted of its model and its batch is not unknown, also where the events do not tell which blocks these are. */
static void test_card_of_a_first_step_names_purposes(void **state)
{
	struct neap_buffer text = {0};
	struct neap_oom_card card;
	struct watched watched;

	(void)state;
	watched_begin(&watched, folder, "", 300 * WATCHED_MIB, 0);
	assert_non_null(watched_alloc(&watched, 40 * WATCHED_MIB, WATCHED_LEAK)); /* 8 of it are parameters */
	assert_non_null(watched_alloc(&watched, 100 * WATCHED_MIB, WATCHED_LOSS));
	assert_null(watched_alloc(&watched, 200 * WATCHED_MIB, WATCHED_FORWARD));
	emit_limits(&watched, 300 * WATCHED_MIB);
	watched_emit(&watched,
		     neap_event_of_tag_bytes(
			     0, (struct neap_event_tag_bytes){
					.tag = watched.observer->name(watched.observer->context, "parameters"),
					.live_blocks = WATCHED_LAYERS + 1,
					.live_bytes = (WATCHED_LAYERS * 4 + 8) * WATCHED_MIB}));
	watched_emit(&watched, neap_event_of_tag_bytes(
				       0, (struct neap_event_tag_bytes){
						  .tag = watched.observer->name(watched.observer->context, "batch"),
						  .live_blocks = 1,
						  .live_bytes = 30 * WATCHED_MIB}));
	watched_end(&watched);
	make_card(&watched, &card, &text);
	assert_int_equal(card.unknown_bytes, 2 * WATCHED_MIB);
	assert_int_equal(card.purpose_count, 4);
	assert_string_equal(card.purposes[0].tag, "activations");
	assert_int_equal(card.purposes[0].live_bytes, 100 * WATCHED_MIB);
	assert_string_equal(card.purposes[1].tag, "parameters");
	assert_string_equal(card.purposes[2].tag, "inputs");
	assert_int_equal(card.purposes[2].live_bytes, 30 * WATCHED_MIB);
	assert_string_equal(card.purposes[3].tag, "unknown");
	assert_int_equal(card.purposes[3].live_bytes, 2 * WATCHED_MIB);
	neap_buffer_fini(&text);
}

/* Whole steps come first. Then an evaluation builds a graph that no backward uses, and a training runs in evaluation
 * mode. */
static void test_card_of_an_evaluation(void **state)
{
	static const enum watched_line lines[] = {WATCHED_EVALUATION, WATCHED_FORWARD};

	(void)state;
	for (size_t n = 0; n < 2; n++) {
		struct neap_event_oom_model model = {.parameter_bytes = 32 * WATCHED_MIB,
						     .gradient_bytes = 32 * WATCHED_MIB,
						     .optimizer_bytes = 64 * WATCHED_MIB,
						     .phase = NEAP_OOM_PHASE_FORWARD,
						     .forward_permille = 500,
						     .evaluates = 1,
						     .graph = 1};
		struct neap_buffer text = {0};
		struct neap_oom_card card;
		struct watched watched;
		watched_begin(&watched, folder, "", 1000 * WATCHED_MIB, 0);
		for (int step = 0; step < 3; step++)
			assert_true(watched_step(&watched, 30));
		while (watched_alloc(&watched, 60 * WATCHED_MIB, lines[n]))
			;
		emit_limits(&watched, 1000 * WATCHED_MIB);
		watched_emit(&watched, neap_event_of_oom_model(0, model));
		watched_end(&watched);
		make_card(&watched, &card, &text);
		assert_int_equal(card.evaluates, n == 0);
		assert_int_equal(card.graph_bytes, n == 0 ? 14 * 60 * WATCHED_MIB : 0);
		/* Two blocks instead of 15, or even four, are enough. A smaller batch may not be enough for later
		 * blocks. */
		assert_int_equal(card.fixes[0].kind, n == 0 ? NEAP_FIX_NO_GRAD : NEAP_FIX_SMALLER_MICRO_BATCH);
		assert_int_equal(card.fixes[0].step, NEAP_FIX_STEP_ENOUGH);
		assert_int_equal(card.fixes[0].perhaps, n == 1);
		assert_true(!strstr(neap_buffer_string(&text), "evaluation's batch divided by") == (n == 1));
		neap_buffer_fini(&text);
	}
}

/* A line that made blocks of 30 MiB in training asks for 120 in an evaluation: blocks to come will be larger, too. */
static void test_card_of_a_larger_evaluation(void **state)
{
	struct neap_event_oom_model model = {.phase = NEAP_OOM_PHASE_FORWARD, .evaluates = 1, .graph = 1};
	struct neap_buffer text = {0};
	struct neap_oom_card card;
	struct watched watched;

	(void)state;
	watched_begin(&watched, folder, "", 1000 * WATCHED_MIB, 0);
	assert_true(watched_step(&watched, 30));
	for (int i = 0; i < 14; i++)
		assert_non_null(watched_alloc(&watched, 60 * WATCHED_MIB, WATCHED_EVALUATION));
	assert_null(watched_alloc(&watched, 120 * WATCHED_MIB, WATCHED_FORWARD));
	emit_limits(&watched, 1000 * WATCHED_MIB);
	watched_emit(&watched, neap_event_of_oom_model(0, model));
	watched_end(&watched);
	make_card(&watched, &card, &text);
	assert_true(card.larger == 4);
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_NO_GRAD);
	assert_int_equal(card.fixes[0].saving_bytes, (14 * 60 - 120) * WATCHED_MIB);
	neap_buffer_fini(&text);
}

/* No batch is small enough, so no fix changes the batch. An optimizer with less state is a fix. */
static void test_card_of_a_model_alone(void **state)
{
	struct neap_buffer text = {0};
	struct neap_oom_card card;
	struct watched watched;
	void *state_block;

	(void)state;
	watched_begin(&watched, folder, "", 980 * WATCHED_MIB, 0);
	assert_non_null(watched_alloc(&watched, 268 * WATCHED_MIB, WATCHED_MODEL));
	assert_non_null(watched_alloc(&watched, 300 * WATCHED_MIB, WATCHED_BACKWARD));
	assert_non_null(state_block = watched_alloc(&watched, 300 * WATCHED_MIB, WATCHED_OPTIMIZER));
	assert_null(watched_alloc(&watched, 300 * WATCHED_MIB, WATCHED_OPTIMIZER));
	emit_limits(&watched, 980 * WATCHED_MIB);
	emit_model(&watched, 300, 600, 300, NEAP_OOM_PHASE_UPDATE, 0);
	watched_free(&watched, state_block); /* freed on the way out, but it was state */
	watched_end(&watched);
	make_card(&watched, &card, &text);
	assert_true(card.model_alone && card.need.sure && !card.need.repeats);
	assert_int_equal(card.need.model_bytes, 1200 * WATCHED_MIB);
	assert_int_equal(card.need.scaled_bytes, 0);
	assert_null(fix_of(&card, NEAP_FIX_SMALLER_MICRO_BATCH));
	assert_null(fix_of(&card, NEAP_FIX_CHECKPOINTING));
	assert_null(fix_of(&card, NEAP_FIX_MIXED_PRECISION));
	/* 600 and a copy are 900, and pieces; half a copy is enough. */
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_OPTIMIZER);
	assert_true(card.fixes[0].amount == 0.5 && card.fixes[0].step == NEAP_FIX_STEP_ENOUGH);
	assert_true(fix_of(&card, NEAP_FIX_SHARDING)->perhaps);
	assert_non_null(
		strstr(neap_buffer_string(&text), "parameters 300 MiB, gradients 300 MiB and optimizer state"));
	neap_buffer_fini(&text);
}

/* The model fits, but the temporaries of its whole update do not. */
static void test_card_of_an_update(void **state)
{
	struct neap_buffer text = {0};
	struct neap_oom_card card;
	struct watched watched;

	(void)state;
	watched_begin(&watched, folder, "", 1000 * WATCHED_MIB, 0);
	assert_non_null(watched_alloc(&watched, 168 * WATCHED_MIB, WATCHED_MODEL));
	for (int i = 0; i < 3; i++)
		assert_non_null(watched_alloc(&watched, 200 * WATCHED_MIB, WATCHED_OPTIMIZER));
	assert_null(watched_alloc(&watched, 220 * WATCHED_MIB, WATCHED_OPTIMIZER));
	emit_limits(&watched, 1000 * WATCHED_MIB);
	emit_model(&watched, 200, 400, 200, NEAP_OOM_PHASE_UPDATE, 0);
	watched_end(&watched);
	make_card(&watched, &card, &text);
	assert_false(card.model_alone);
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_UPDATE);
	assert_int_equal(card.fixes[0].step, NEAP_FIX_STEP_ENOUGH);
	assert_non_null(strstr(neap_buffer_string(&text), "1. foreach=False in the optimizer"));
	neap_buffer_fini(&text);
}

/* The cache is in pieces: in the replay, the trace continues with expandable segments. Cached bytes would have served
 * the smaller request, but only a part of the larger one, so that one is not fragmentation. */
static void test_card_of_fragments(void **state)
{
	static const struct {
		uint64_t mib;
		enum neap_oom_cause cause;
	} requests[] = {{60, NEAP_OOM_FRAGMENTATION}, {100, NEAP_OOM_CAPACITY}};
	const uint64_t device_bytes = 256 * WATCHED_MIB;

	(void)state;
	for (size_t r = 0; r < sizeof requests / sizeof requests[0]; r++) {
		void *blocks[8] = {0};
		struct neap_buffer text = {0};
		struct neap_oom_card card;
		struct watched watched;
		watched_begin(&watched, folder, "", device_bytes, 0);
		for (size_t i = 0; i < 8; i++) {
			blocks[i] = watched_alloc(&watched, 20 * WATCHED_MIB, WATCHED_FORWARD);
			watched_free(&watched, blocks[i]);
			blocks[i] =
				watched_alloc(&watched, 12 * WATCHED_MIB, WATCHED_FORWARD); /* in the same segment */
		}
		assert_null(watched_alloc(&watched, requests[r].mib * WATCHED_MIB, WATCHED_LEAK));
		emit_limits(&watched, device_bytes);
		watched_end(&watched);
		make_card(&watched, &card, &text);
		assert_int_equal(card.cause, requests[r].cause);
		assert_int_equal(card.cached_bytes, 72 * WATCHED_MIB);
		assert_string_equal(card.tag, "me/gpt.py:70 log_loss");
		assert_true(card.fragments.known);
		assert_true(card.largest_free_bytes < requests[r].mib * WATCHED_MIB);
		assert_int_equal(card.fixes[0].kind, NEAP_FIX_SETTING);
		assert_true(card.fixes[0].sufficient && card.fixes[0].replayed && card.fixes[0].perhaps);
		assert_non_null(strstr(card.fixes[0].text, "expandable_segments:True"));
		neap_buffer_fini(&text);
	}
}

/* Nothing is cached. The device has more free than was requested, but less than a segment. */
static void test_card_of_a_segment(void **state)
{
	struct neap_buffer text = {0};
	struct neap_oom_card card;
	struct watched watched;

	(void)state;
	watched_begin(&watched, folder, "", 50 * WATCHED_MIB, 0); /* two segments; the model fills 32 MiB of them */
	assert_non_null(watched_alloc(&watched, 4 * WATCHED_MIB, WATCHED_FORWARD));
	assert_non_null(watched_alloc(&watched, 4 * WATCHED_MIB, WATCHED_FORWARD));
	assert_null(watched_alloc(&watched, 8 * WATCHED_MIB, WATCHED_FORWARD));
	emit_limits(&watched, 50 * WATCHED_MIB);
	watched_end(&watched);
	make_card(&watched, &card, &text);
	assert_int_equal(card.cached_bytes, 0);
	assert_int_equal(card.device_free_bytes, 10 * WATCHED_MIB);
	assert_int_equal(card.cause, NEAP_OOM_CAPACITY);
	assert_int_equal(card.shortfall_bytes, 10 * WATCHED_MIB);
	neap_buffer_fini(&text);
}

/* The memory was cached when it ran out again: on a larger device it would have served the request. */
static void test_smallest_after_two_failures(void **state)
{
	void *blocks[20] = {0};
	struct neap_buffer text = {0};
	struct neap_oom_card card;
	struct watched watched;

	(void)state;
	watched_begin(&watched, folder, "", 200 * WATCHED_MIB, 0);
	for (int failures = 0; failures < 2; failures++) {
		size_t count = 0;
		while ((blocks[count] = watched_alloc(&watched, 20 * WATCHED_MIB, WATCHED_FORWARD)))
			count++;
		emit_limits(&watched, 200 * WATCHED_MIB);
		while (!failures && count)
			watched_free(&watched, blocks[--count]);
	}
	watched_end(&watched);
	make_card(&watched, &card, &text);
	assert_true(card.replays.smallest_bytes > 200 * WATCHED_MIB);
	assert_true(card.replays.smallest_bytes <= 240 * WATCHED_MIB);
	neap_buffer_fini(&text);
}

/* The ring has lost the beginning: the card says how many live bytes are unknown. */
static void test_card_in_part(void **state)
{
	struct neap_buffer text = {0};
	struct neap_oom_card card;
	struct watched watched;

	(void)state;
	watched_begin(&watched, folder, "", 400 * WATCHED_MIB, 96);
	for (int step = 0; step < 3; step++)
		assert_true(watched_step(&watched, 20));
	assert_false(watched_step(&watched, 60));
	emit_limits(&watched, 400 * WATCHED_MIB);
	watched_end(&watched);
	make_card(&watched, &card, &text);
	/* The model and the optimizer's state existed before. */
	assert_in_range(card.unknown_bytes, 90 * WATCHED_MIB, 110 * WATCHED_MIB);
	assert_true(card.replays.lost_events > 0);
	assert_non_null(strstr(neap_buffer_string(&text), "live nothing tells what"));
	neap_buffer_fini(&text);
}

/* Six steps with micro-batches of this many MiB on a device. False: memory ran out. */
static bool train(struct watched *watched, uint64_t device_bytes, uint64_t mib)
{
	bool ok = true;

	watched_begin(watched, folder, "", device_bytes, 0);
	for (int step = 0; ok && step < 6; step++)
		ok = watched_step(watched, mib);
	return ok;
}

/* A program with 1 MiB a sample: the advised micro-batch fits on the device in no more than was predicted, and a
 * tenth more does not fit. Sizes that do not scale, but that the micro-batch divides or that may be scratch, cost
 * some of it.
 */
static void test_largest_micro_batch(void **state)
{
	const uint64_t room_bytes = 700 * WATCHED_MIB;
	const struct neap_leak clean = {.verdict = NEAP_LEAK_CLEAN};

	(void)state;
	for (uint64_t micro_batch = 15; micro_batch <= 16; micro_batch++) {
		struct neap_advice_torch torch;
		struct neap_advice advice;
		struct neap_record record;
		struct watched watched;
		assert_true(train(&watched, 0, micro_batch));
		watched_emit(&watched, neap_event_of_batch(0, (struct neap_event_batch){micro_batch, 1,
											NEAP_BATCH_INPUTS, 1, 0, 0}));
		watched_emit(&watched, neap_event_of_room(0, (struct neap_event_room){.room_bytes = room_bytes}));
		watched_end(&watched);
		assert_int_equal(neap_record_read(watched.path, &record, NULL), NEAP_OK);
		assert_true(neap_advice_torch_read(watched.path, &torch));
		neap_advice(&record, &clean, &torch.way, &advice);
		neap_advice_torch_fini(&torch);
		neap_record_fini(&record);
		assert_true(advice.given);
		assert_non_null(strstr(advice.why, "the model of PyTorch's allocator"));
		assert_int_equal(advice.micro_batch, micro_batch == 15 ? 62 : 64);
		assert_true(train(&watched, room_bytes, advice.micro_batch));
		assert_true(watched.reserved <= room_bytes - advice.headroom_bytes);
		watched_end(&watched);
		assert_false(train(&watched, room_bytes, advice.micro_batch * 11 / 10));
		watched_end(&watched);
	}
}

/* 1000 MiB are needed, and PyTorch's cache may leave up to 28 % of that in pieces. */
static void test_tight_limit(void **state)
{
	const struct neap_oom_card card = {.room_bytes = 800 * WATCHED_MIB,
					   .need = {.known = true,
						    .sure = true,
						    .alike = true,
						    .fixed_bytes = 500 * WATCHED_MIB,
						    .scaled_bytes = 500 * WATCHED_MIB}};

	(void)state;
	for (int tight = 0; tight < 2; tight++) {
		struct neap_fix fix = {.kind = NEAP_FIX_RAISE_LIMIT,
				       .saving_bytes = (tight ? 330 : 500) * WATCHED_MIB};
		neap_fix_judge_by_need(&card, &fix);
		assert_true(fix.sufficient);
		assert_int_equal(fix.perhaps, tight);
	}
}

/* If steps differ, a fix that is enough for a step like the earlier ones may not be enough for the next one. A leak
 * has its own line. */
static void test_steps_that_vary(void **state)
{
	struct neap_oom_card card = {.room_bytes = 800 * WATCHED_MIB,
				     .steps_vary = true,
				     .need = {.known = true,
					      .sure = true,
					      .alike = true,
					      .fixed_bytes = 300 * WATCHED_MIB,
					      .scaled_bytes = 600 * WATCHED_MIB}};

	(void)state;
	for (int leaks = 0; leaks < 2; leaks++) {
		struct neap_fix fix = {.kind = NEAP_FIX_SMALLER_MICRO_BATCH, .amount = 2};
		card.growth_bytes = leaks ? WATCHED_MIB : 0;
		neap_fix_judge_by_need(&card, &fix);
		assert_true(fix.sufficient);
		assert_int_equal(fix.step, NEAP_FIX_STEP_ENOUGH);
		assert_int_equal(fix.perhaps, !leaks);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_a_snapshot),
		cmocka_unit_test(test_card_of_capacity),
		cmocka_unit_test(test_card_of_fragments),
		cmocka_unit_test(test_card_of_a_segment),
		cmocka_unit_test(test_card_in_part),
		cmocka_unit_test(test_card_of_an_evaluation),
		cmocka_unit_test(test_card_of_a_larger_evaluation),
		cmocka_unit_test(test_card_of_a_first_step),
		cmocka_unit_test(test_card_of_a_first_step_names_purposes),
		cmocka_unit_test(test_card_of_a_step_that_repeats),
		cmocka_unit_test(test_card_of_a_model_alone),
		cmocka_unit_test(test_card_of_an_update),
		cmocka_unit_test(test_largest_micro_batch),
		cmocka_unit_test(test_smallest_after_two_failures),
		cmocka_unit_test(test_tight_limit),
		cmocka_unit_test(test_steps_that_vary),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
