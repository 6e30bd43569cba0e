/* What is said of a trace, on traces small enough to be reckoned by hand. */

#include "../trace/made_trace.h"
#include "analyze/analysis.h"
#include "support/test.h"

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

static void analyze(const struct neap_trace *trace, struct neap_instant from, struct neap_instant to,
		    struct neap_analysis *analysis)
{
	struct neap_analysis_options options = {.device = SIZE_MAX, .from = from, .to = to};
	struct neap_error err;
	if (neap_analyze(trace, &options, analysis, &err) != NEAP_OK)
		fail_msg("%s", err.message);
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

/* A snapshot is built by hand. */

static uint32_t stack(struct maker *maker, const char *file, const char *name, uint32_t line)
{
	uint32_t frames[] = {frame(maker, "??", "torch::unwind::unwind()", 0),
			     frame(maker, "/venv/lib/python3.12/site-packages/torch/nn/functional.py", "linear", 9),
			     frame(maker, file, name, line), frame(maker, "/home/me/job/train.py", "<module>", 412)};
	return neap_build_stack(&maker->build, frames, 4);
}

static void event(struct maker *maker, enum neap_trace_kind kind, uint64_t address, uint64_t size, uint32_t where)
{
	put_event(maker, (struct neap_trace_event){.address = address,
						   .size = size,
						   .stack = where,
						   .kind = (uint8_t)kind,
						   .time_us = 1000 + 10 * maker->events});
}

static void release(struct maker *maker, uint64_t address, uint64_t size, uint32_t where)
{
	event(maker, NEAP_TRACE_FREE_REQUESTED, address, size, where);
	event(maker, NEAP_TRACE_FREE_COMPLETED, address, size, where);
}

static void range(struct maker *maker, enum neap_trace_mark_kind kind, const char *name)
{
	struct neap_trace_mark mark = {.event = maker->events,
				       .kind = (uint8_t)kind,
				       .name = neap_build_text(&maker->build, name, strlen(name))};
	neap_build_mark(&maker->build, &mark);
}

/* Parameters (made before the steps), then per step: an activation that backward frees, a gradient that lives into
 * the next step, a temporary of the optimizer, and in the first step the optimizer's state. */
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

/* The same without frames: lifetimes tell, and say that they did. */
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
	/* Where the first step began is not known: the first block may be a parameter or not. */
	assert_int_equal(categories->bytes[NEAP_CATEGORY_UNKNOWN][NEAP_HOW_NOTHING], 8 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_ACTIVATIONS][NEAP_HOW_LIFETIME], 16 * MIB);
	assert_int_equal(categories->bytes[NEAP_CATEGORY_TEMPORARIES][NEAP_HOW_LIFETIME], 4096);
	assert_int_equal(analysis.holders[0].kind, NEAP_HOLDER_SIZE);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* A block freed and never allocated was there before; one allocated twice has lost its free. */
static void lives_from_before(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_lives lives;
	begin(&maker);
	event(&maker, NEAP_TRACE_ALLOC, 0x2000, 10, 0);
	release(&maker, 0x1000, 700, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x2000, 20, 0);
	event(&maker, NEAP_TRACE_FREE_REQUESTED, 0x2000, 20, 0);
	struct neap_trace *trace = finish(&maker);
	assert_int_equal(neap_lives_find(trace, 0, &lives, NULL), NEAP_OK);
	assert_int_equal(lives.count, 3);
	assert_int_equal(lives.before, 1);
	assert_int_equal(lives.odd, 1);
	assert_int_equal(lives.items[0].size, 700);
	assert_int_equal(lives.items[0].freed, 1);
	assert_int_equal(lives.items[0].end, 2);
	assert_int_equal(lives.items[1].end, 3);
	assert_int_equal(lives.items[2].freed, 4);
	assert_true(lives.items[2].end == NEAP_LIFE_AFTER);
	assert_true(neap_life_at(&lives.items[0], NEAP_LIFE_BEFORE));
	assert_true(neap_life_at(&lives.items[0], 1));
	assert_false(neap_life_at(&lives.items[0], 2));
	neap_lives_fini(&lives);
	neap_trace_free(trace);
}

/* Where frees have their allocations' stacks, they say nothing of the free, but where an early block came from. */
/* A block from before the first event that outlives two steps is a parameter only if no step had ended by then: the
 * optimizer's state would look the same. */
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
		neap_analysis_fini(&analysis);
		neap_trace_free(trace);
	}
}

static void frees_with_the_stacks_of_allocations(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_lives lives;
	begin(&maker);
	uint32_t one = stack(&maker, "/home/me/job/model.py", "forward", 20);
	uint32_t other = stack(&maker, "/home/me/job/model.py", "forward", 21);
	release(&maker, 0x1000, 700, other);
	event(&maker, NEAP_TRACE_ALLOC, 0x2000, 10, one);
	release(&maker, 0x2000, 10, one);
	struct neap_trace *trace = finish(&maker);
	assert_int_equal(neap_lives_find(trace, 0, &lives, NULL), NEAP_OK);
	assert_int_equal(lives.items[0].stack, other);
	assert_int_equal(lives.items[0].freed_stack, 0);
	assert_int_equal(lives.items[1].freed_stack, 0);
	neap_lives_fini(&lives);
	neap_trace_free(trace);
}

/* 40 steps; in each 3 MiB are kept by one line, and 64 MiB come and go. */
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

/* Without growth: `high` MiB at its highest in every step, in `teeth` teeth; every `period`th step twice that. */
static void swing_of(size_t teeth, size_t period, struct neap_trends *ret_trends)
{
	struct neap_analysis analysis = {0};
	char text[16384] = "a 1 1048576 0\n";
	for (size_t step = 0, length = strlen(text); step < 24; step++) {
		for (size_t tooth = 0; tooth < teeth; tooth++)
			length += (size_t)snprintf(text + length, sizeof text - length, "a 2 %d 0\nf 2\n",
						   period && step % period == 0 ? 32 << 20 : 16 << 20);
		length += (size_t)snprintf(text + length, sizeof text - length, "s\n");
	}
	struct neap_trace *trace = read_text(text);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	*ret_trends = analysis.trends;
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
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

/* 70 steps of 16 MiB, or of 8 to 24 where `varies`; before each seventh `evaluation` MiB more, with a mark; with
 * `kept` each step keeps 4 MiB, and each tenth gives them back. */
static enum neap_swing swing_by(bool varies, int evaluation, bool kept, size_t *ret_period)
{
	struct neap_analysis analysis = {0};
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
	struct neap_trace *trace = read_text(text);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	enum neap_swing swing = analysis.trends.swing;
	*ret_period = analysis.trends.period;
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
	return swing;
}

static void why_steps_differ(void **state)
{
	(void)state;
	size_t period = 0;
	assert_int_equal(swing_by(false, 64, false, &period), NEAP_SWING_EVALUATION);
	assert_int_equal(period, 7);
	assert_int_equal(swing_by(true, 64, false, &period), NEAP_SWING_EVALUATION);
	/* It is marked, but takes little: lengths are why. */
	assert_int_equal(swing_by(true, 1, false, &period), NEAP_SWING_VARIABLE);
	assert_int_equal(period, 0);
	assert_int_equal(swing_by(false, 0, true, &period), NEAP_SWING_CLEANUP);
	assert_int_equal(period, 10);
	assert_int_equal(swing_by(false, 1, true, &period), NEAP_SWING_CLEANUP);
	assert_int_equal(swing_by(false, 0, false, &period), NEAP_SWING_STEP);
}

static const struct neap_whatif *whatif(const struct neap_whatifs *whatifs, const char *name)
{
	for (size_t i = 0; i < whatifs->count; i++)
		if (strcmp(whatifs->items[i].name, name) == 0)
			return &whatifs->items[i];
	fail_msg("no row '%s'", name);
	return NULL;
}

/* max_split_size_mb:32 keeps a cached block of 64 MiB from serving 40 MiB, which takes a segment of its own: without
 * the setting 64 MiB would have been enough. With expandable segments beside it likewise. */
static void settings_that_are_better_left_out(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	begin(&maker);
	uint32_t where = stack(&maker, "/home/me/job/model.py", "forward", 20);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x40000000, 64 * MIB, where);
	event(&maker, NEAP_TRACE_ALLOC, 0x40000000, 64 * MIB, where);
	release(&maker, 0x40000000, 64 * MIB, where);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x80000000, 40 * MIB, where);
	event(&maker, NEAP_TRACE_ALLOC, 0x80000000, 40 * MIB, where);
	maker.build.trace->settings =
		(struct neap_trace_settings){.known = true, .max_split_size = (int64_t)(32 * MIB)};
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	const struct neap_whatifs *whatifs = &analysis.whatifs;
	assert_true(whatifs->own_set);
	assert_true(whatifs->items[0].own);
	assert_int_equal(whatifs->items[0].reserved_peak, 104 * MIB);
	const struct neap_whatif *defaults = whatif(whatifs, "PyTorch with its defaults");
	assert_true(defaults->alone && defaults->tried && !defaults->active);
	assert_string_equal(defaults->settings, "");
	assert_int_equal(defaults->reserved_peak, 64 * MIB);
	assert_int_equal(whatif(whatifs, "only expandable_segments:True")->reserved_peak, 80 * MIB);
	assert_int_equal(whatif(whatifs, "with roundup_power2_divisions:8")->reserved_peak, 104 * MIB);
	neap_analysis_fini(&analysis);

	/* What was set is struck out; what would not change anything has no row. */
	trace->settings =
		(struct neap_trace_settings){.known = true, .max_split_size = -1, .expandable_segments = true};
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_true(whatif(&analysis.whatifs, "expandable_segments:True")->active);
	assert_int_equal(whatif(&analysis.whatifs, "PyTorch with its defaults")->reserved_peak, 64 * MIB);
	for (size_t i = 0; i < analysis.whatifs.count; i++)
		assert_string_not_equal(analysis.whatifs.items[i].name, "only expandable_segments:True");
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* A device of 100 MiB, full: 60 live and 40 free in two pieces that live blocks keep apart; 30 are asked for. */
static void a_failure_by_fragmentation(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	begin(&maker);
	uint32_t where = stack(&maker, "/home/me/job/model.py", "forward", 20);
	for (uint64_t i = 0; i < 5; i++) {
		event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x40000000 + i * 20 * MIB, 20 * MIB, where);
		event(&maker, NEAP_TRACE_ALLOC, 0x40000000 + i * 20 * MIB, 9 * MIB, where);
		if (i < 3)
			event(&maker, NEAP_TRACE_ALLOC, 0x40000000 + i * 20 * MIB + 9 * MIB, 9 * MIB, where);
		struct neap_trace_segment segment = {.address = 0x40000000 + i * 20 * MIB,
						     .size = 20 * MIB,
						     .large = true,
						     .first_block = (size_t)maker.build.trace->block_count,
						     .block_count = i < 3 ? 3 : 2};
		struct neap_trace_block live = {.address = segment.address,
						.size = 9 * MIB,
						.requested = 9 * MIB,
						.stack = where,
						.state = NEAP_TRACE_BLOCK_LIVE};
		struct neap_trace_block rest = {.address = segment.address + (i < 3 ? 18 : 9) * MIB,
						.size = (i < 3 ? 2 : 11) * MIB,
						.state = NEAP_TRACE_BLOCK_FREE};
		neap_build_segment(&maker.build, &segment);
		neap_build_block(&maker.build, &live);
		live.address += 9 * MIB;
		if (i < 3)
			neap_build_block(&maker.build, &live);
		neap_build_block(&maker.build, &rest);
	}
	event(&maker, NEAP_TRACE_OOM, MIB, 24 * MIB, where); /* address: 1 MiB free on the device */
	maker.build.trace->devices[0].segment_count = 5;
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);

	const struct neap_fragments *fragments = &analysis.fragments;
	assert_int_equal(fragments->reserved, 100 * MIB);
	assert_int_equal(fragments->live, 72 * MIB);
	assert_int_equal(fragments->pinned, 28 * MIB);
	assert_int_equal(fragments->releasable, 0);
	assert_int_equal(fragments->largest_free, 11 * MIB);
	assert_int_equal(fragments->worst[0].pinned, 11 * MIB);
	assert_int_equal(fragments->worst[0].pins[0].bytes, 9 * MIB);

	const struct neap_oom_card *oom = &analysis.oom;
	assert_true(analysis.has_oom);
	assert_int_equal(oom->source, NEAP_TRACE_SNAPSHOT);
	assert_int_equal(oom->cause, NEAP_OOM_FRAGMENTATION);
	assert_int_equal(oom->block_bytes, 24 * MIB);
	assert_int_equal(oom->largest_free_bytes, 11 * MIB);
	assert_int_equal(oom->fragments.pinned, 28 * MIB);
	assert_string_equal(oom->pins[0], "job/model.py:20 forward");
	assert_int_equal(oom->shortfall_bytes, 13 * MIB);
	assert_int_equal(oom->replays.memory_bytes, 101 * MIB);
	const struct neap_whatifs *whatifs = &oom->replays.whatifs;
	assert_true(whatifs->items[0].own);
	assert_false(whatifs->items[0].fits);
	assert_true(whatifs->items[1].fits);
	assert_string_equal(whatifs->items[1].name, "expandable_segments:True");
	/* PyTorch puts two blocks of 9 MiB into each segment of 20 MiB: four of them, and 24 MiB. */
	assert_int_equal(oom->replays.smallest_bytes, 104 * MIB);
	assert_int_equal(oom->fixes[0].kind, NEAP_FIX_SETTING);
	assert_true(oom->fixes[0].replayed && oom->fixes[0].sufficient);
	assert_string_equal(oom->fixes[0].text, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
	/* Nothing tells what most of it is for: no change of training is predicted. */
	assert_int_equal(oom->unknown_bytes, 72 * MIB);
	for (size_t i = 0; i < oom->fix_count; i++)
		assert_int_equal(oom->fixes[i].kind, NEAP_FIX_SETTING);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* A segment without a live block goes back whole; of an expandable one the pages of 20 MiB that are free as a whole.
 */
static void what_emptying_the_cache_returns(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	struct neap_trace_segment segment = {
		.address = 0x40000000, .size = 20 * MIB, .large = true, .block_count = 1};
	struct neap_trace_block block = {.address = 0x40000000, .size = 20 * MIB, .state = NEAP_TRACE_BLOCK_FREE};
	begin(&maker);
	neap_build_segment(&maker.build, &segment);
	neap_build_block(&maker.build, &block);
	segment = (struct neap_trace_segment){.address = 0x80000000,
					      .size = 60 * MIB,
					      .large = true,
					      .expandable = true,
					      .first_block = 1,
					      .block_count = 2};
	neap_build_segment(&maker.build, &segment);
	block = (struct neap_trace_block){.address = 0x80000000, .size = 5 * MIB, .state = NEAP_TRACE_BLOCK_LIVE};
	neap_build_block(&maker.build, &block);
	block = (struct neap_trace_block){
		.address = 0x80000000 + 5 * MIB, .size = 55 * MIB, .state = NEAP_TRACE_BLOCK_FREE};
	neap_build_block(&maker.build, &block);
	maker.build.trace->devices[0].segment_count = 2;
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_int_equal(analysis.fragments.releasable, 60 * MIB);
	assert_int_equal(analysis.fragments.pinned, 15 * MIB);
	assert_int_equal(analysis.fragments.pinned_segments, 1);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* Two plain segments and an expandable one, of which the end has only one plain one: before, all were there. */
static void the_state_at_an_instant(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	struct neap_fragments found;
	struct neap_error err = {0};
	begin(&maker);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x40000000, 20 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x40000000, 5 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x50000000, 20 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x50000000 + 8 * MIB, 4 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_MAP, 0x60000000, 20 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_MAP, 0x60000000 + 20 * MIB, 40 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x60000000 + 19 * MIB, 2 * MIB, 0); /* 6: the instant */
	event(&maker, NEAP_TRACE_FREE_REQUESTED, 0x50000000 + 8 * MIB, 4 * MIB, 0);
	event(&maker, NEAP_TRACE_FREE_COMPLETED, 0x50000000 + 8 * MIB, 4 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_FREE, 0x50000000, 20 * MIB, 0);
	event(&maker, NEAP_TRACE_FREE_REQUESTED, 0x60000000 + 19 * MIB, 2 * MIB, 0);
	event(&maker, NEAP_TRACE_FREE_COMPLETED, 0x60000000 + 19 * MIB, 2 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_UNMAP, 0x60000000, 40 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_UNMAP, 0x60000000 + 40 * MIB, 20 * MIB, 0);
	struct neap_trace_segment segment = {
		.address = 0x40000000, .size = 20 * MIB, .large = true, .first_block = 0, .block_count = 2};
	struct neap_trace_block live = {
		.address = 0x40000000, .size = 5 * MIB, .requested = 5 * MIB, .state = NEAP_TRACE_BLOCK_LIVE};
	struct neap_trace_block rest = {
		.address = 0x40000000 + 5 * MIB, .size = 15 * MIB, .state = NEAP_TRACE_BLOCK_FREE};
	neap_build_segment(&maker.build, &segment);
	neap_build_block(&maker.build, &live);
	neap_build_block(&maker.build, &rest);
	maker.build.trace->devices[0].segment_count = 1;
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_int_equal(neap_fragments_find(trace, 0, &analysis.lives, &analysis.sites, 6, NULL, &found, &err),
			 NEAP_OK);
	assert_true(found.known);
	assert_int_equal(found.segments, 3);
	assert_int_equal(found.reserved, 100 * MIB);
	assert_int_equal(found.live, 11 * MIB);
	/* 15 + 16, and of the expandable one what is free in the two pages that the block is in. */
	assert_int_equal(found.pinned, (15 + 16 + 38) * MIB);
	assert_int_equal(found.releasable, 20 * MIB);
	assert_int_equal(found.largest_free, 39 * MIB);
	/* The peak is that very instant; the end is the file's own. */
	assert_int_equal(analysis.fragments_at_peak.reserved, 100 * MIB);
	assert_int_equal(analysis.fragments.reserved, 20 * MIB);
	assert_int_equal(neap_fragments_find(trace, 0, &analysis.lives, &analysis.sites, 9, NULL, &found, &err),
			 NEAP_OK);
	assert_int_equal(found.reserved, 80 * MIB);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peaks_of_a_text_trace),
		cmocka_unit_test(instants_that_are_not_there),
		cmocka_unit_test(what_a_training_step_holds),
		cmocka_unit_test(what_lifetimes_tell),
		cmocka_unit_test(lives_from_before),
		cmocka_unit_test(recordings_that_begin_midway),
		cmocka_unit_test(a_leak_has_a_line),
		cmocka_unit_test(what_emptying_the_cache_returns),
		cmocka_unit_test(frees_with_the_stacks_of_allocations),
		cmocka_unit_test(swings_and_their_causes),
		cmocka_unit_test(why_steps_differ),
		cmocka_unit_test(settings_that_are_better_left_out),
		cmocka_unit_test(a_failure_by_fragmentation),
		cmocka_unit_test(the_state_at_an_instant),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
