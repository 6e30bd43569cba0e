/* The plan by itself: when it learns, which steps it finds with and without marks, what it expects, when it gives up.
 * The test makes up programs: they allocate and free as a program would, and memory is tight when the test says
 * so. */
#include "alloc/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define LEAST  1000
#define BLOCKS 4000

struct block {
	uint64_t bytes, serial, offset;
	bool planned;
};

struct program {
	struct neap_plan *plan;
	uint64_t serial, watched, starts, stops, region;
	uint64_t moved; /* bytes, for each request; 0: memory is plentiful */
	bool starting;  /* a start is allowed */
	struct block live[BLOCKS];
	size_t count;
	uint64_t bytes, lowest; /* live: now, and the lowest since the test set it */
	uint64_t level_at_start;
	uint64_t asked, served; /* since the test set them to 0 */
	uint64_t random;
};

static uint64_t draw(struct program *program, uint64_t below)
{
	program->random = program->random * 6364136223846793005u + 1442695040888963407u;
	return (program->random >> 33) % below;
}

static struct program *program_new(void)
{
	struct program *program = calloc(1, sizeof *program);
	assert_non_null(program);
	program->plan = neap_plan_create(LEAST);
	assert_non_null(program->plan);
	program->moved = 100000;
	program->starting = true;
	program->random = 1;
	return program;
}

static void program_free(struct program *program)
{
	neap_plan_destroy(program->plan);
	free(program);
}

static void advise(struct program *program)
{
	uint64_t bytes = 0;
	enum neap_plan_advice advice = neap_plan_advise(program->plan, &bytes);
	if (advice == NEAP_PLAN_START && program->starting) {
		neap_plan_start(program->plan);
		program->starts++;
		program->region = bytes;
		program->level_at_start = program->bytes;
	} else if (advice != NEAP_PLAN_GO_ON) {
		program->stops += advice == NEAP_PLAN_STOP;
		neap_plan_stop(program->plan);
	}
}

/* No two live blocks placed by the plan may overlap, and all lie in the region. */
static void assert_apart(const struct program *program, const struct block *block)
{
	assert_true(block->offset + block->bytes <= program->region);
	for (size_t i = 0; i < program->count; i++) {
		const struct block *other = &program->live[i];
		assert_true(!other->planned || other->offset + other->bytes <= block->offset ||
			    block->offset + block->bytes <= other->offset);
	}
}

/* Returns the number to free it by. */
static uint64_t ask(struct program *program, uint64_t bytes, uint32_t stream)
{
	advise(program);
	struct neap_plan_request request = {bytes, stream, ++program->serial};
	struct block block = {bytes, program->serial, 0, false};
	program->watched += neap_plan_watches(program->plan);
	block.planned = neap_plan_expects(program->plan, &request, &block.offset);
	if (block.planned)
		assert_apart(program, &block);
	if (program->moved)
		neap_plan_strain(program->plan, program->moved, program->serial);
	if (neap_plan_watches(program->plan))
		neap_plan_note(program->plan, &request);
	assert_true(program->count < BLOCKS);
	program->live[program->count++] = block;
	program->bytes += bytes;
	program->asked++;
	program->served += block.planned;
	return program->serial;
}

static void release(struct program *program, uint64_t serial)
{
	size_t i = 0;
	while (i < program->count && program->live[i].serial != serial)
		i++;
	assert_true(i < program->count);
	program->bytes -= program->live[i].bytes;
	program->lowest = program->bytes < program->lowest ? program->bytes : program->lowest;
	neap_plan_note_free(program->plan, program->live[i].bytes, serial);
	program->live[i] = program->live[--program->count];
}

static void mark(struct program *program)
{
	neap_plan_step(program->plan);
	advise(program);
}

/* A marked step of four blocks: two that live at the same time, one that outlives the step, and a small one. */
static void four_blocks(struct program *program, uint64_t middle)
{
	uint64_t first = ask(program, 4000, 0), second = ask(program, middle, 1);
	release(program, first);
	ask(program, 2000, 0);
	uint64_t small = ask(program, 500, 0);
	release(program, second);
	release(program, small);
	mark(program);
}

static struct program *learned(void)
{
	struct program *program = program_new();
	four_blocks(program, 3000);
	four_blocks(program, 3001);
	assert_int_equal(program->starts, 0);
	four_blocks(program, 3001);
	assert_int_equal(program->starts, 1);
	assert_int_equal(program->region, 7001);
	four_blocks(program, 3001);
	program->served = 0;
	return program;
}

static void test_serves(void **state)
{
	struct program *program = learned();
	(void)state;
	for (uint64_t i = 1; i <= 3; i++) {
		/* The third block outlives the step, the last one is small. */
		four_blocks(program, 3001);
		assert_int_equal(program->served, 2 * i);
	}
	program_free(program);
	/* A plan that fails at its first step was no plan. */
	program = learned();
	neap_plan_stop(program->plan);
	while (program->starts == 1)
		four_blocks(program, 3001);
	four_blocks(program, 9000);
	assert_int_equal(program->stops, 1);
	program_free(program);
}

static void test_surprise(void **state)
{
	struct program *program = learned();
	uint64_t offset;
	(void)state;
	four_blocks(program, 3002);
	assert_int_equal(program->served, 1);
	four_blocks(program, 3001);
	assert_int_equal(program->served, 3);
	/* More requests than expected, fewer, another stream. */
	four_blocks(program, 3001);
	assert_true(neap_plan_expects(program->plan, &(struct neap_plan_request){4000, 0, 0}, &offset));
	assert_false(neap_plan_lost(program->plan));
	mark(program);
	assert_false(neap_plan_expects(program->plan, &(struct neap_plan_request){4000, 1, 0}, &offset));
	assert_true(neap_plan_lost(program->plan));
	assert_false(neap_plan_expects(program->plan, &(struct neap_plan_request){4000, 0, 0}, &offset));
	mark(program);
	four_blocks(program, 3001);
	assert_false(neap_plan_expects(program->plan, &(struct neap_plan_request){1, 0, 0}, &offset));
	mark(program);
	assert_int_equal(program->stops, 0);
	program_free(program);
}

static void test_gives_up(void **state)
{
	struct program *program = learned();
	(void)state;
	for (int i = 0; i < 7; i++)
		four_blocks(program, 9000);
	assert_int_equal(program->stops, 0);
	four_blocks(program, 9000);
	assert_int_equal(program->stops, 1);
	/* The plan rests for as long as it watched; the next rest is twice as long. */
	program->starting = false;
	uint64_t rested[3] = {0};
	for (int i = 0; i < 3; i++) {
		for (; !neap_plan_watches(program->plan); rested[i]++)
			four_blocks(program, 9000);
		while (neap_plan_watches(program->plan))
			four_blocks(program, 9000);
	}
	assert_in_range(rested[0], 8, 12);
	assert_true(rested[1] > 0 && rested[2] > rested[1]);
	program_free(program);
}

/* The same requests, freed in another order: a block is planned to live until the later of its two ends. */
static void test_other_lives(void **state)
{
	struct program *program = program_new();
	(void)state;
	for (int i = 0; i < 6; i++) {
		uint64_t one = ask(program, 2000, 0), two = ask(program, 2000, 0);
		release(program, i == 1 ? two : one);
		uint64_t three = ask(program, 2000, 0);
		release(program, i == 1 ? one : two);
		release(program, three);
		mark(program);
	}
	assert_int_equal(program->starts, 1);
	/* Two would be enough if all blocks lived within one step. */
	assert_int_equal(program->region, 3 * 2000);
	program_free(program);
	/* Steps without a request do not count, and without a block to plan there is no plan. */
	program = program_new();
	for (int i = 0; i < 3; i++)
		mark(program);
	for (int i = 0; i < 3; i++) {
		ask(program, 2000, 0);
		mark(program);
	}
	assert_int_equal(program->starts, 0);
	program_free(program);
	neap_plan_destroy(NULL);
}

/* A plan gains nothing while no page has to move, and watching costs speed. */
static void test_rests(void **state)
{
	struct program *program = program_new();
	(void)state;
	program->moved = 0;
	for (int i = 0; i < 10; i++)
		four_blocks(program, 3000);
	assert_int_equal(program->watched, 0);
	/* Once is not enough to plan for: it learns that the steps repeat, and makes no plan. */
	program->moved = 100000;
	ask(program, 77, 0);
	program->moved = 0;
	for (int i = 0; i < 10; i++)
		four_blocks(program, 3000);
	assert_int_equal(program->starts, 0);
	assert_in_range(program->watched, 8, 20);
	/* A region of 7000 bytes is not worth it either if a step hardly moves any. */
	program->moved = 10;
	for (int i = 0; i < 100; i++)
		four_blocks(program, 3000);
	assert_int_equal(program->starts, 0);
	program->moved = 1000;
	for (int i = 0; i < 100; i++)
		four_blocks(program, 3000);
	assert_int_equal(program->starts, 1);
	program_free(program);
}

/* Forward and back through layers that are all alike except one in the middle, then an optimizer: loops within the
 * step. */
#define LAYERS 24
static void layers(struct program *program, uint64_t width, size_t odd)
{
	uint64_t saved[LAYERS][3], data = ask(program, 3 * width, 1), gradients[LAYERS];
	for (size_t i = 0; i < LAYERS; i++) {
		saved[i][0] = ask(program, i == LAYERS / 2 ? 7 * width : 4 * width, 0);
		saved[i][1] = ask(program, width, 0);
		release(program, ask(program, 2 * width, 0));
		saved[i][2] = ask(program, i == odd ? 12345 + program->asked : 600, 0);
	}
	uint64_t loss = ask(program, 20 * width, 0);
	for (size_t i = LAYERS; i-- > 0;) {
		uint64_t wide = ask(program, 4 * width, 0);
		gradients[i] = ask(program, 5000, 0);
		release(program, wide);
		for (size_t j = 0; j < 3; j++)
			release(program, saved[i][j]);
	}
	release(program, loss);
	for (size_t i = 0; i < 300; i++)
		release(program, ask(program, 5000, 0));
	for (size_t i = 0; i < LAYERS; i++)
		release(program, gradients[i]);
	release(program, data);
}

#define LAYERS_REQUESTS (1 + 4 * LAYERS + 1 + 2 * LAYERS + 300)
/* Right after the loss; the optimizer needs less. */
#define LAYERS_PEAK(width) ((3 + 5 * LAYERS + 3 + 20 + 4) * (width) + 5000ull + 600ull * LAYERS)

static void test_finds_step(void **state)
{
	(void)state;
	for (uint64_t late = 0; late < 400; late += 57) {
		struct program *program = program_new();
		ask(program, 100000, 0);
		for (uint64_t i = 0; i < late; i++)
			release(program, ask(program, 1500 + i, 0));
		program->lowest = program->bytes;
		for (int i = 0; i < NEAP_PERIOD_SURE / LAYERS_REQUESTS + 3; i++)
			layers(program, 9000, LAYERS);
		assert_int_equal(program->starts, 1);
		assert_int_equal(program->stops, 0);
		/* The step begins where least is live; the region holds the whole step except the small blocks. */
		assert_int_equal(program->level_at_start, program->lowest);
		assert_in_range(program->region, LAYERS_PEAK(9000) - 600 * LAYERS, LAYERS_PEAK(9000));
		program->asked = program->served = 0;
		layers(program, 9000, LAYERS);
		assert_int_equal(program->served, program->asked - LAYERS); /* of 600 bytes */
		program_free(program);
	}
}

/* A loop in the step that repeats more often than two steps would need to be recognised. */
static void test_long_loop(void **state)
{
	struct program *program = program_new();
	(void)state;
	for (int i = 0; i < 5; i++) {
		layers(program, 9000, LAYERS);
		for (int j = 0; j < 2 * NEAP_PERIOD_SURE; j++)
			release(program, ask(program, 4000, 0));
	}
	assert_int_equal(program->starts, 1);
	assert_in_range(program->region, LAYERS_PEAK(9000) - 600 * LAYERS, LAYERS_PEAK(9000));
	program_free(program);
}

static void test_noise(void **state)
{
	struct program *program = program_new();
	(void)state;
	/* In every seventh step one layer differs, then every step has a difference. */
	for (size_t i = 0; i < 21; i++)
		layers(program, 9000, i % 7 ? LAYERS : i);
	assert_int_equal(program->starts, 1);
	program->asked = program->served = 0;
	for (size_t i = 0; i < 20; i++)
		layers(program, 9000, i);
	assert_int_equal(program->stops, 0);
	assert_true(program->served > program->asked / 2);
	/* An evaluation: for several steps' time the program makes other requests. */
	for (int i = 0; i < 3 * LAYERS_REQUESTS; i++)
		release(program, ask(program, 3000 + draw(program, 50) * 500, 0));
	assert_true(neap_plan_lost(program->plan));
	layers(program, 9000, LAYERS);
	assert_false(neap_plan_lost(program->plan));
	program->asked = program->served = 0;
	layers(program, 9000, LAYERS);
	assert_int_equal(program->served, program->asked - LAYERS);
	/* The steps change for good. */
	for (int i = 0; i < 12 && !program->stops; i++)
		layers(program, 8000, LAYERS);
	assert_int_equal(program->stops, 1);
	for (int i = 0; i < 30; i++)
		layers(program, 8000, LAYERS);
	assert_int_equal(program->starts, 2);
	program_free(program);
}

/* Watching costs speed: a program that never repeats is left alone, for longer each time. */
static void test_never_repeats(void **state)
{
	struct program *program = program_new();
	(void)state;
	for (uint64_t i = 0; i < 2000000; i++)
		release(program, ask(program, 2000 + draw(program, 1000000), (uint32_t)draw(program, 3)));
	assert_int_equal(program->starts, 0);
	assert_in_range(program->watched, NEAP_PLAN_REQUESTS_MAX, 5 * NEAP_PLAN_REQUESTS_MAX);
	program_free(program);
	program = program_new();
	for (uint64_t i = 0; i < 1000; i++)
		four_blocks(program, 3000 + i % 2);
	assert_int_equal(program->starts, 0);
	assert_in_range(program->watched, 32, 400);
	program_free(program);
}

/* Each step is almost like the one before: every proposed plan breaks. */
static void test_near_repeats(void **state)
{
	struct program *program = program_new();
	(void)state;
	for (size_t i = 0; i < 500; i++)
		layers(program, 9000, i % LAYERS);
	assert_int_equal(program->starts, 0);
	program_free(program);
	/* Two sizes at random, and one size alone: loops, but no step of more than the loop itself. */
	program = program_new();
	for (size_t i = 0; i < 300000; i++)
		release(program, ask(program, 2000 + 100 * draw(program, 2), 0));
	assert_int_equal(program->starts, 0);
	program_free(program);
}

/* A step is longer than half of what a plan can learn from: the plan rests, and its memory stays bounded. */
static void test_too_long(void **state)
{
	struct program *program = program_new();
	(void)state;
	for (int step = 0; step < 6; step++) {
		program->random = 7;
		for (uint64_t i = 0; i < NEAP_PLAN_REQUESTS_MAX / 2 + 100; i++)
			release(program, ask(program, 2000 + draw(program, 1000000), 0));
	}
	assert_int_equal(program->starts, 0);
	assert_in_range(program->watched, NEAP_PLAN_REQUESTS_MAX, 2 * NEAP_PLAN_REQUESTS_MAX);
	program_free(program);
}

/* The same requests again and again, without marks. Each time one more block stays live, or one more block from
 * before is freed: no step returns to the level at which it began. */
static void drifting_steps(struct program *program, int drift)
{
	enum { HELD = 20, STEPS = 12 };
	uint64_t before[STEPS], held[HELD] = {0};
	program->moved = 0;
	for (size_t i = 0; i < STEPS; i++)
		before[i] = ask(program, 500000, 0);
	program->moved = 100000;
	for (size_t step = 0; step < STEPS; step++) {
		program->random = 7;
		uint64_t extra = ask(program, 500000, 0);
		for (size_t i = 0; i < 5000; i++) {
			if (held[i % HELD])
				release(program, held[i % HELD]);
			held[i % HELD] = ask(program, 2000 + draw(program, 1000000), 0);
		}
		if (drift <= 0)
			release(program, extra);
		if (drift < 0)
			release(program, before[step]);
	}
}

static void test_drift(void **state)
{
	(void)state;
	for (int drift = -1; drift <= 1; drift++) {
		struct program *program = program_new();
		drifting_steps(program, drift);
		assert_int_equal(program->starts, drift == 0);
		program_free(program);
	}
}

/* A step that repeats without moving pages is not worth a plan, and no reason to rest: the plan learns when pages
 * move again. */
static void test_no_strain(void **state)
{
	struct program *program = program_new();
	(void)state;
	for (int i = 0; i < 2; i++) {
		four_blocks(program, 3001);
		program->moved = 0;
	}
	assert_int_equal(program->starts, 0);
	assert_false(neap_plan_watches(program->plan));
	program->moved = 100000;
	ask(program, 4000, 0);
	assert_true(neap_plan_watches(program->plan));
	program_free(program);
}

/* A request number that the plan has not seen (the allocator served it in another way): the plan learns from the
 * beginning. */
static void test_gap(void **state)
{
	struct program *program = program_new();
	(void)state;
	four_blocks(program, 3001);
	program->serial += 5;
	four_blocks(program, 3001);
	assert_int_equal(program->starts, 0);
	four_blocks(program, 3001);
	assert_int_equal(program->starts, 1);
	program_free(program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_serves),        cmocka_unit_test(test_surprise),
		cmocka_unit_test(test_gives_up),      cmocka_unit_test(test_other_lives),
		cmocka_unit_test(test_rests),         cmocka_unit_test(test_finds_step),
		cmocka_unit_test(test_long_loop),     cmocka_unit_test(test_noise),
		cmocka_unit_test(test_never_repeats), cmocka_unit_test(test_near_repeats),
		cmocka_unit_test(test_too_long),      cmocka_unit_test(test_gap),
		cmocka_unit_test(test_drift),         cmocka_unit_test(test_no_strain),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
