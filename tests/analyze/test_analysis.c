/* The analysis of traces that are small enough to work out by hand. */

#include "analysis_test.h"
#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct neap_trace *read_text(const char *text)
{
	char path[] = "/tmp/neap-analysis-XXXXXX";
	struct neap_trace *trace = NULL;
	struct neap_error err;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	enum neap_status status = neap_trace_read(path, &trace, &err);
	unlink(path);
	if (status)
		fail_msg("%s", err.message);
	return trace;
}

/* Requested after each event: 1000, 3000, 7000, 6000, 6100. Rounded: 1024, 3072, 7168, 6144, 6656. */
static void peaks_of_a_text_trace(void **state)
{
	(void)state;
	struct neap_trace *trace = read_text("a 1 1000 0\na 2 2000 0\na 3 4000 1\nf 1\na 4 100 0\n");
	struct neap_analysis analysis = {0};
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_int_equal(analysis.profile.requested_peak.requested, 7000);
	assert_int_equal(analysis.profile.requested_peak.event, 2);
	assert_int_equal(analysis.profile.rounded_peak.rounded, 7168);
	assert_int_equal(analysis.profile.end.requested, 6100);
	assert_int_equal(analysis.profile.end.rounded, 6656);
	assert_int_equal(analysis.profile.kinds[NEAP_TRACE_ALLOC], 4);
	assert_int_equal(analysis.streams, 2);
	assert_false(analysis.timeline.reserved_known);
	neap_analysis_fini(&analysis);

	analyze(trace, (struct neap_instant){NEAP_INSTANT_EVENT, 3}, (struct neap_instant){NEAP_INSTANT_EVENT, 5},
		&analysis);
	assert_int_equal(analysis.profile.start.requested, 7000);
	assert_int_equal(analysis.profile.requested_peak.requested, 7000);
	assert_int_equal(analysis.profile.kinds[NEAP_TRACE_ALLOC], 1);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

static void instants_that_are_not_there(void **state)
{
	(void)state;
	struct neap_trace *trace = read_text("a 1 1000 0\ns\nf 1\n");
	static const struct neap_instant bad[] = {
		{NEAP_INSTANT_EVENT, 3}, {NEAP_INSTANT_STEP, 0}, {NEAP_INSTANT_STEP, 3}, {NEAP_INSTANT_TIME, 0}};
	struct neap_analysis analysis = {0};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct neap_analysis_options options = {.device = SIZE_MAX, .from = bad[i]};
		assert_int_equal(neap_analyze(trace, &options, &analysis, NULL), NEAP_EINVAL);
		neap_analysis_fini(&analysis);
	}
	struct neap_analysis_options options = {.device = 1};
	assert_int_equal(neap_analyze(trace, &options, &analysis, NULL), NEAP_EINVAL);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* Parameters, made before the steps. In each step: an activation that backward frees, a gradient that lives into the
 * next step, a temporary of the optimizer; in the first step also the optimizer's state. */
static struct neap_trace *training(size_t steps)
{
	struct maker maker;
	begin(&maker);
	uint32_t made = stack(&maker, "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", "_apply", 7);
	uint32_t forward = stack(&maker, "/home/me/job/model.py", "forward", 20);
	uint32_t backward = stack(&maker, "/home/me/job/train.py", "backward", 30);
	uint32_t optimizer = stack(&maker, "/venv/lib/python3.12/site-packages/torch/optim/adam.py", "step", 40);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x10000000, 64 * MIB, made);
	event(&maker, NEAP_TRACE_ALLOC, 0x10000000, 8 * MIB, made);
	for (size_t i = 0; i < steps; i++) {
		char name[32];
		snprintf(name, sizeof name, "step %zu", i);
		range(&maker, NEAP_TRACE_BEGIN, name);
		event(&maker, NEAP_TRACE_ALLOC, 0x11000000, 20 * MIB, forward);
		if (i > 0)
			release(&maker, 0x12800000, 8 * MIB,
				stack(&maker, "/x/torch/optim/optimizer.py", "zero_grad", 1));
		event(&maker, NEAP_TRACE_ALLOC, 0x12800000, 8 * MIB, backward);
		release(&maker, 0x11000000, 20 * MIB, backward);
		if (i == 0)
			event(&maker, NEAP_TRACE_ALLOC, 0x13000000, 16 * MIB, optimizer);
		event(&maker, NEAP_TRACE_ALLOC, 0x10800000, MIB, optimizer);
		release(&maker, 0x10800000, MIB, optimizer);
		range(&maker, NEAP_TRACE_END, name);
	}
	return finish(&maker);
}

/* At the second step's forward: 8 parameters + 16 state + 8 gradients + 20 activations. */
static void what_a_training_step_holds(void **state)
{
	(void)state;
	struct neap_trace *trace = training(4);
	struct neap_analysis analysis = {0};
	char text[320];
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	const struct neap_categories *categories = &analysis.categories;
	assert_int_equal(analysis.steps.count, 4);
	assert_string_equal(analysis.steps.how, "ranges named 'step #'");
	assert_int_equal(analysis.profile.requested_peak.requested, 52 * MIB);
	assert_int_equal(neap_steps_before(&analysis.steps, analysis.profile.requested_peak.event), 1);
	assert_int_equal(analysis.profile.reserved_peak.reserved, 64 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_PARAMETERS][NEAP_HOW_FRAMES], 8 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_OPTIMIZER][NEAP_HOW_FRAMES], 16 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_GRADIENTS][NEAP_HOW_FRAMES], 8 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_ACTIVATIONS][NEAP_HOW_FRAMES], 20 * MIB);
	assert_int_equal(analysis.holder_count, 3); /* model.py, train.py: two lines of it */
	neap_holder_text(trace, &analysis.holders[0], text, sizeof text);
	assert_string_equal(text, "job/train.py:412 <module>");
	assert_int_equal(analysis.holders[0].bytes, 24 * MIB);
	neap_holder_text(trace, &analysis.holders[1], text, sizeof text);
	assert_string_equal(text, "job/model.py:20 forward");
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* 8 for the model, 32 while a graph is compiled, a constant of 1 that stays, 20 by the compiled code, and beside it
 * 16 to choose a kernel. */
static void what_compiling_takes(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	begin(&maker);
	uint32_t made = stack(&maker, "/v/torch/nn/modules/module.py", "_apply", 7);
	uint32_t compiler = stack(&maker, "/v/torch/_dynamo/convert_frame.py", "__call__", 1);
	uint32_t constant = stack(&maker, "/v/torch/_dynamo/convert_frame.py", "__call__", 2);
	uint32_t compiled = stack(&maker, "/v/torch/_inductor/compile_fx.py", "run", 3);
	uint32_t tuner =
		stack(&maker, "/v/torch/_inductor/runtime/triton_heuristics.py", "autotune_to_one_config", 4);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x10000000, 64 * MIB, made);
	event(&maker, NEAP_TRACE_ALLOC, 0x10000000, 8 * MIB, made);
	event(&maker, NEAP_TRACE_ALLOC, 0x11000000, 32 * MIB, compiler);
	event(&maker, NEAP_TRACE_ALLOC, 0x10900000, MIB, constant);
	release(&maker, 0x11000000, 32 * MIB, compiler);
	event(&maker, NEAP_TRACE_ALLOC, 0x11000000, 20 * MIB, compiled);
	event(&maker, NEAP_TRACE_ALLOC, 0x12800000, 16 * MIB, tuner);
	release(&maker, 0x12800000, 16 * MIB, tuner);
	release(&maker, 0x11000000, 20 * MIB, compiled);
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_int_equal(analysis.profile.requested_peak.requested, 45 * MIB);
	assert_true(analysis.compiled.known);
	assert_int_equal(analysis.compiled.requested_peak, 29 * MIB);
	assert_int_equal(analysis.compiled.allocated_peak, 29 * MIB);
	assert_int_equal(analysis.compiled.reserved_peak, (20 + 2 + 20) * MIB);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);

	begin(&maker); /* the program itself takes as much later */
	made = stack(&maker, "/home/me/job/model.py", "forward", 20);
	compiler = stack(&maker, "/v/torch/_dynamo/convert_frame.py", "__call__", 1);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x10000000, 20 * MIB, compiler);
	event(&maker, NEAP_TRACE_ALLOC, 0x10000000, 20 * MIB, compiler);
	release(&maker, 0x10000000, 20 * MIB, compiler);
	event(&maker, NEAP_TRACE_ALLOC, 0x10000000, 20 * MIB, made);
	trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_int_equal(analysis.compiled.reserved_peak, 20 * MIB);
	assert_false(analysis.compiled.known);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* The same without frames: the purposes come from lifetimes, and the analysis says so. */
static void what_lifetimes_tell(void **state)
{
	(void)state;
	struct neap_trace *trace =
		read_text("a 1 8388608 0\nm x\n"
			  "a 2 16777216 0\na 3 4096 0\nf 3\na 9 99 0\nf 9\na 9 99 0\nf 9\na 9 99 0\nf 9\nf 2\n"
			  "a 5 8388608 0\ns\nf 5\na 2 16777216 0\na 3 4096 0\nf 3\nf 2\na 5 8388608 0\ns\n"
			  "f 5\ns\n");
	struct neap_analysis analysis = {0};
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_string_equal(analysis.steps.how, "marks of steps");
	assert_int_equal(analysis.steps.count, 3);
	const struct neap_categories *categories = &analysis.categories;
	/* Nothing marks where the first step begins, so the first block may be a parameter or not. */
	assert_int_equal(categories->bytes[NEAP_CATEGORY_UNKNOWN][NEAP_HOW_NOTHING], 8 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_ACTIVATIONS][NEAP_HOW_LIFETIME], 16 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_TEMPORARIES][NEAP_HOW_LIFETIME], 4096);
	assert_int_equal(analysis.holders[0].kind, NEAP_HOLDER_SIZE);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* Data that is loaded once lives as long as parameters do, and a batch from step to step as gradients do. A block
 * without a companion of its size is neither, nor is a block that a line of the program loads in each step. */
static void data_is_no_part_of_the_model(void **state)
{
	(void)state;
	struct neap_analysis analysis = {0};
	struct maker maker;
	begin(&maker);
	uint32_t program = stack(&maker, "/home/me/job/train.py", "<module>", 4);
	uint32_t made =
		stack(&maker, "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", "__init__", 109);
	event(&maker, NEAP_TRACE_ALLOC, 0x10000000, 40 * MIB, program); /* data, loaded once */
	event(&maker, NEAP_TRACE_ALLOC, 0x20000000, 8 * MIB, program);  /* a parameter, by its size */
	event(&maker, NEAP_TRACE_ALLOC, 0x30000000, 4 * MIB, program);  /* its copy in 16 bits */
	event(&maker, NEAP_TRACE_ALLOC, 0x40000000, 2 * MIB, made);     /* one of a module made on the device */
	for (size_t step = 0; step < 4; step++) {
		char name[32];
		snprintf(name, sizeof name, "step %zu", step);
		range(&maker, NEAP_TRACE_BEGIN, name);
		if (step > 0) {
			release(&maker, 0x50000000, 24 * MIB, 0);
			release(&maker, 0x60000000, 8 * MIB, 0);
			release(&maker, 0x70000000, 40 * MIB, 0);
		}
		event(&maker, NEAP_TRACE_ALLOC, 0x50000000, 24 * MIB, program); /* a batch */
		event(&maker, NEAP_TRACE_ALLOC, 0x70000000, 40 * MIB, program); /* one as large as the data */
		event(&maker, NEAP_TRACE_ALLOC, 0x60000000, 8 * MIB, 0);        /* a gradient: of autograd's thread */
		range(&maker, NEAP_TRACE_END, name);
	}
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	const struct neap_categories *categories = &analysis.categories;
	assert_int_equal(categories->bytes[NEAP_CATEGORY_PARAMETERS][NEAP_HOW_LIFETIME], 12 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_PARAMETERS][NEAP_HOW_FRAMES], 2 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_GRADIENTS][NEAP_HOW_LIFETIME], 8 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_UNKNOWN][NEAP_HOW_NOTHING], (40 + 24 + 40) * MIB);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* What forward or a line of the program makes in the steps and keeps is not part of the model: it is a leak or a
 * history. A second model that the program makes in a step is one, since its gradients have its size. */
static void what_is_kept_over_steps(void **state)
{
	enum { STEPS = 6 };
	(void)state;
	struct neap_analysis analysis = {0};
	struct maker maker;
	begin(&maker);
	uint32_t leaks = stack(&maker, "/home/me/job/train.py", "<module>", 4);
	uint32_t model = stack(&maker, "/home/me/job/train.py", "make", 8);
	uint32_t chooses = stack(&maker, "/home/me/job/train.py", "best", 12);
	uint32_t loads = stack(&maker, "/home/me/job/train.py", "load", 16);
	uint32_t forward = stack(&maker, "/home/me/job/model.py", "forward", 20);
	uint32_t buckets = stack(&maker, "/x/torch/nn/parallel/distributed.py", "_pre_forward", 24);
	event(&maker, NEAP_TRACE_ALLOC, 0x10000000, 8 * MIB, model); /* a parameter, by its gradients */
	event(&maker, NEAP_TRACE_ALLOC, 0x20000000, 17 * MIB, leaks);
	for (size_t step = 0; step < STEPS; step++) {
		char name[32];
		snprintf(name, sizeof name, "step %zu", step);
		range(&maker, NEAP_TRACE_BEGIN, name);
		event(&maker, NEAP_TRACE_ALLOC, 0x100000000 + step * 0x10000000, 5 * MIB, leaks);
		event(&maker, NEAP_TRACE_ALLOC, 0x200000000 + step * 0x10000000, 3 * MIB, forward);
		event(&maker, NEAP_TRACE_ALLOC, 0x300000000 + step * 0x10000000, 7 * MIB, chooses);
		if (step > 0 && step != 2) /* the block of step 1 stays */
			release(&maker, 0x300000000 + (step - 1) * 0x10000000, 7 * MIB, 0);
		if (step > 0)
			release(&maker, 0x50000000, 8 * MIB, 0);
		if (step > 0)
			release(&maker, 0x60000000, 24 * MIB, 0);
		event(&maker, NEAP_TRACE_ALLOC, 0x50000000, 8 * MIB, 0);
		event(&maker, NEAP_TRACE_ALLOC, 0x60000000, 24 * MIB, loads);
		if (step == 0) /* a workspace of the leak's size */
			event(&maker, NEAP_TRACE_ALLOC, 0xa0000000, 5 * MIB, 0);
		if (step == 1)
			event(&maker, NEAP_TRACE_ALLOC, 0x90000000, 13 * MIB, buckets);
		if (step == 3)
			event(&maker, NEAP_TRACE_ALLOC, 0x70000000, 11 * MIB, model);
		if (step > 4)
			release(&maker, 0x80000000, 11 * MIB, 0);
		if (step >= 4)
			event(&maker, NEAP_TRACE_ALLOC, 0x80000000, 11 * MIB, 0);
		range(&maker, NEAP_TRACE_END, name);
	}
	event(&maker, NEAP_TRACE_ALLOC, 0x180000000, 5 * MIB, leaks); /* the newest, in a step that has not ended */
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	struct neap_categories at_end, *categories = &at_end;
	neap_categories_at(&analysis.lives, &analysis.sites, &analysis.steps, analysis.timeline.count,
			   analysis.timeline.count - 1, categories);
	assert_int_equal(analysis.steps.count, STEPS);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_KEPT][NEAP_HOW_FRAMES],
			 (STEPS + 1) * 5 * MIB + (STEPS - 1) * 3 * MIB + 7 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_KEPT][NEAP_HOW_LIFETIME], 0);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_PARAMETERS][NEAP_HOW_LIFETIME], 8 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_GRADIENTS][NEAP_HOW_FRAMES], 13 * MIB); /* DDP's */
	/* The second model, the batch, the newest block that may be either, the last gradients, not freed yet, what
	 * the leaking line made before the first step, and the workspace. */
	assert_int_equal(categories->bytes[NEAP_CATEGORY_UNKNOWN][NEAP_HOW_NOTHING],
			 (11 + 24 + 7 + 8 + 11 + 17 + 5) * MIB);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* A block that was there before the first event and outlives two steps is a parameter only if no step had ended by
 * then: optimizer state would look the same. */
static void recordings_that_begin_midway(void **state)
{
	(void)state;
	for (int midway = 0; midway < 2; midway++) {
		struct neap_analysis analysis = {0};
		struct maker maker;
		begin(&maker);
		if (midway)
			range(&maker, NEAP_TRACE_END, "iter 0");
		for (size_t step = 1; step < 5; step++) {
			char name[32];
			snprintf(name, sizeof name, "iter %zu", step);
			range(&maker, NEAP_TRACE_BEGIN, name);
			event(&maker, NEAP_TRACE_ALLOC, 0x1000, 3 * MIB, 0);
			release(&maker, 0x1000, 3 * MIB, 0);
			if (step > 1) /* a gradient, from step to step */
				release(&maker, 0x5000, 5 * MIB, 0);
			event(&maker, NEAP_TRACE_ALLOC, 0x5000, 5 * MIB, 0);
			range(&maker, NEAP_TRACE_END, name);
		}
		release(&maker, 0x9000, 5 * MIB, 0);
		struct neap_trace *trace = finish(&maker);
		analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
		assert_int_equal(analysis.steps.count, 4);
		assert_int_equal(analysis.steps.midway, midway);
		assert_int_equal(analysis.categories.bytes[NEAP_CATEGORY_PARAMETERS][NEAP_HOW_LIFETIME],
				 midway ? 0 : 5 * MIB);
		assert_int_equal(analysis.categories.bytes[NEAP_CATEGORY_UNKNOWN][NEAP_HOW_NOTHING],
				 midway ? 5 * MIB : 0);
		assert_int_equal(analysis.categories.bytes[NEAP_CATEGORY_GRADIENTS][NEAP_HOW_LIFETIME], 5 * MIB);
		neap_analysis_fini(&analysis);
		neap_trace_free(trace);
	}
}

/* 40 steps: in each, one line keeps 3 MiB, and 64 MiB come and go. */
static void a_leak_has_a_line(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	char text[320], name[32];
	begin(&maker);
	uint32_t forward = stack(&maker, "/home/me/job/model.py", "forward", 20);
	uint32_t kept = stack(&maker, "/home/me/job/log.py", "remember", 5);
	for (size_t i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "iter %zu", i);
		range(&maker, NEAP_TRACE_BEGIN, name);
		event(&maker, NEAP_TRACE_ALLOC, 0x1000, 64 * MIB, forward);
		event(&maker, NEAP_TRACE_ALLOC, 0x100000000 + i * 4 * MIB, 3 * MIB, kept);
		release(&maker, 0x1000, 64 * MIB, forward);
		range(&maker, NEAP_TRACE_END, name);
	}
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	const struct neap_trends *trends = &analysis.trends;
	assert_int_equal(trends->leak.verdict, NEAP_LEAK_FOUND);
	assert_int_equal((uint64_t)trends->leak.bytes_per_step, 3 * MIB);
	assert_int_equal(trends->growing_count, 1);
	assert_int_equal(trends->growing[0].holder.bytes, 120 * MIB);
	neap_holder_text(trace, &trends->growing[0].holder, text, sizeof text);
	assert_string_equal(text, "job/log.py:5 remember");
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

static struct neap_trends trends_of(const char *text, bool partial)
{
	struct neap_analysis analysis = {0};
	struct neap_trace *trace = read_text(text);
	trace->partial = partial;
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	struct neap_trends trends = analysis.trends;
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
	return trends;
}

/* Without growth: each step reaches `high` MiB in `teeth` teeth; every `period`th step reaches twice that. */
static void swing_of(size_t teeth, size_t period, struct neap_trends *ret_trends)
{
	char text[16384] = "a 1 1048576 0\n";
	for (size_t step = 0, length = strlen(text); step < 24; step++) {
		for (size_t tooth = 0; tooth < teeth; tooth++)
			length += (size_t)snprintf(text + length, sizeof text - length, "a 2 %d 0\nf 2\n",
						   period && step % period == 0 ? 32 << 20 : 16 << 20);
		length += (size_t)snprintf(text + length, sizeof text - length, "s\n");
	}
	*ret_trends = trends_of(text, false);
}

static void swings_and_their_causes(void **state)
{
	(void)state;
	struct neap_trends trends;
	swing_of(1, 0, &trends);
	assert_int_equal(trends.swing, NEAP_SWING_STEP);
	assert_int_equal(trends.amplitude_bytes, 16 * MIB);
	assert_int_equal(trends.leak.verdict, NEAP_LEAK_CLEAN);
	swing_of(4, 0, &trends);
	assert_int_equal(trends.swing, NEAP_SWING_ACCUMULATION);
	assert_true(trends.teeth_per_step > 3.5 && trends.teeth_per_step <= 4.0);
	swing_of(1, 5, &trends);
	assert_int_equal(trends.swing, NEAP_SWING_PERIODIC);
	assert_int_equal(trends.period, 5);
}

/* 70 steps of 16 MiB, or of 8 to 24 with `varies`; before each seventh an evaluation of `evaluation` MiB more, with a
 * mark. With `kept` each step keeps 4 MiB, and each tenth frees them. */
static enum neap_swing swing_by(bool varies, int evaluation, bool kept, size_t *ret_period)
{
	char text[16384] = "a 1 16777216 0\n";
	size_t length = strlen(text);
	uint32_t chance = 1;
	for (int step = 0; step < 70; step++) {
		chance = chance * 1664525 + 1013904223;
		if (evaluation && step % 7 == 6)
			length += (size_t)snprintf(text + length, sizeof text - length,
						   "m evaluation\na 3 %d 0\nf 3\n", evaluation << 20);
		if (kept)
			length += (size_t)snprintf(text + length, sizeof text - length, "a %d 4194304 0\n",
						   100 + step % 10);
		length += (size_t)snprintf(text + length, sizeof text - length, "a 2 %u 0\nf 2\n",
					   varies ? (8 + chance / 65536 % 16) << 20 : 16u << 20);
		for (int i = 0; kept && step % 10 == 9 && i < 10; i++)
			length += (size_t)snprintf(text + length, sizeof text - length, "f %d\n", 100 + i);
		length += (size_t)snprintf(text + length, sizeof text - length, "s\n");
	}
	struct neap_trends trends = trends_of(text, false);
	*ret_period = trends.period;
	return trends.swing;
}

static void why_steps_differ(void **state)
{
	(void)state;
	size_t period = 0;
	assert_int_equal(swing_by(false, 64, false, &period), NEAP_SWING_EVALUATION);
	assert_int_equal(period, 7);
	assert_int_equal(swing_by(true, 64, false, &period), NEAP_SWING_EVALUATION);
	/* It is marked but takes little: the different lengths are the reason. */
	assert_int_equal(swing_by(true, 1, false, &period), NEAP_SWING_VARIABLE);
	assert_int_equal(period, 0);
	assert_int_equal(swing_by(false, 0, true, &period), NEAP_SWING_CLEANUP);
	assert_int_equal(period, 10);
	assert_int_equal(swing_by(false, 1, true, &period), NEAP_SWING_CLEANUP);
	assert_int_equal(swing_by(false, 0, false, &period), NEAP_SWING_STEP);
}

/* 12 steps of a model whose gradients are far larger than its activations, so that the levels alone show one rise a
 * step. Each step has `micro_batches`, then an optimizer that is not fused; `samples` gives the sizes of the
 * activations. Before each fourth step `evaluated` batches run forward only. Of `thinned` steps only the end is
 * recorded. */
static void accumulate(size_t micro_batches, size_t samples, size_t evaluated, bool varies, size_t thinned,
		       struct neap_trends *ret_trends)
{
	struct neap_buffer text = {0};
	size_t layers = 6, id = 100;
	uint32_t chance = 1;

	neap_buffer_text(&text, "a 1 104857600 0\n");
	for (size_t step = 0; step < 12; step++) {
		if (step >= 3 && step < 3 + thinned) {
			neap_buffer_text(&text, "s\n");
			continue;
		}
		for (size_t i = 0; step > 0 && i < layers; i++)
			neap_buffer_format(&text, "f %zu\n", 10 + i);
		size_t forwards = step % 4 == 3 ? evaluated : 0;
		for (size_t batch = 0; batch < forwards + micro_batches; batch++) {
			bool backward = batch >= forwards;
			chance = chance * 1664525 + 1013904223;
			size_t bytes = samples * (varies ? 2000 + chance / 65536 % 2000 : 20480);
			neap_buffer_format(&text, "a %zu %zu 0\n", id, bytes / 16);
			for (size_t i = 1; i <= layers;
			     i++) { /* all layers alike, with scratch memory that goes at once */
				neap_buffer_format(&text, "a 2 %zu 0\na %zu %zu 0\nf 2\n", bytes / 4, id + i, bytes);
				if (!backward && i > 1)
					neap_buffer_format(&text, "f %zu\n", id + i - 1);
			}
			for (size_t i = layers; backward && i > 0; i--) {
				bool first = batch == forwards;
				neap_buffer_format(&text, "a %zu 41943040 0\n", first ? 9 + i : 3);
				neap_buffer_format(&text, "%sf %zu\n", first ? "" : "f 3\n", id + i);
			}
			neap_buffer_format(&text, "f %zu\n%s", id, backward ? "" : "f 106\n");
		}
		for (size_t i = 0; i < 3 * layers; i++)
			neap_buffer_text(&text, "a 4 41943040 0\nf 4\n");
		neap_buffer_text(&text, "s\n");
	}
	*ret_trends = trends_of(neap_buffer_string(&text), thinned > 0);
	neap_buffer_fini(&text);
}

static void accumulation_by_its_rhythm(void **state)
{
	(void)state;
	struct neap_trends trends;
	accumulate(2, 48, 0, false, 0, &trends);
	assert_int_equal(trends.course.micro_batches, 2);
	assert_int_equal(trends.swing, NEAP_SWING_ACCUMULATION);
	assert_true(trends.teeth_per_step < 1.5);
	accumulate(6, 16, 0, false, 0, &trends);
	assert_int_equal(trends.course.micro_batches, 6);
	assert_int_equal(trends.swing, NEAP_SWING_ACCUMULATION);
	/* Thinned steps tell nothing. */
	uint64_t swing_bytes = trends.course.allocated.swing_bytes;
	accumulate(6, 16, 0, false, 7, &trends);
	assert_int_equal(trends.course.whole, 4);
	assert_int_equal(trends.course.micro_batches, 6);
	assert_int_equal(trends.course.allocated.swing_bytes, swing_bytes);
	/* With an evaluation in between. Neither layers nor the optimizer count as micro-batches. */
	accumulate(2, 48, 5, false, 0, &trends);
	assert_int_equal(trends.course.micro_batches, 2);
	accumulate(1, 96, 0, false, 0, &trends);
	assert_int_equal(trends.course.micro_batches, 1);
	accumulate(1, 96, 5, false, 0, &trends);
	assert_int_equal(trends.course.micro_batches, 1);
	/* Changing lengths have no such rhythm. */
	accumulate(2, 48, 0, true, 0, &trends);
	assert_int_equal(trends.course.micro_batches, 1);
	/* Neither have layers that are all alike and keep what they allocate until all of it goes. */
	char text[4096] = "a 100 1048576 0\n";
	for (size_t step = 0, length = strlen(text); step < 8; step++) {
		for (size_t i = 0; i < 16; i++)
			length += (size_t)snprintf(text + length, sizeof text - length, "a %zu 4194304 0\n", i);
		for (size_t i = 0; i < 16; i++)
			length += (size_t)snprintf(text + length, sizeof text - length, "f %zu\n", i);
		length += (size_t)snprintf(text + length, sizeof text - length, "s\n");
	}
	assert_int_equal(trends_of(text, false).course.micro_batches, 1);
}

/* The shape of 10 steps that each rise and fall by 10 MiB once. */
static void course_of_the_steps(void **state)
{
	struct neap_analysis analysis = {0};

	(void)state;
	char text[2048] = "a 1 8388608 0\n";
	for (size_t step = 0; step < 10; step++)
		strcat(text, "a 2 10485760 0\nf 2\ns\n");
	struct neap_trace *trace = read_text(text);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	const struct neap_course *course = &analysis.trends.course;
	assert_int_equal(course->whole, 9); /* the first warms up */
	assert_int_equal(course->updates, 9);
	assert_int_equal(course->allocated.swing_bytes, 10 * MIB);
	assert_int_equal(course->allocated.mean_bytes, 13 * MIB); /* over events */
	assert_int_equal(course->reserved.mean_bytes, 0);
	assert_int_equal(course->step_ns, 0);
	assert_int_equal(course->micro_batches, 1);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peaks_of_a_text_trace),      cmocka_unit_test(instants_that_are_not_there),
		cmocka_unit_test(what_a_training_step_holds), cmocka_unit_test(what_compiling_takes),
		cmocka_unit_test(what_lifetimes_tell),        cmocka_unit_test(data_is_no_part_of_the_model),
		cmocka_unit_test(what_is_kept_over_steps),    cmocka_unit_test(recordings_that_begin_midway),
		cmocka_unit_test(a_leak_has_a_line),          cmocka_unit_test(swings_and_their_causes),
		cmocka_unit_test(why_steps_differ),           cmocka_unit_test(accumulation_by_its_rhythm),
		cmocka_unit_test(course_of_the_steps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
