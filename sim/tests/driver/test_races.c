/* Orders and uses by hand, and random histories against a model that keeps every use and every clock whole. */
#include "sim/tests/driver/races_by_hand.h"

#include <stdlib.h>

static const struct sim_race_stream null_stream = {.key = 1, .null = true};

static void test_data(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	use(races, stream(0), 0, 100, NEAP_SIM_WRITES);
	use(races, stream(0), 50, 100, NEAP_SIM_READS);
	use(races, stream(1), 100, 50, NEAP_SIM_READS);
	assert_int_equal(found.count, 0); /* two reads, and bytes that nobody wrote */
	use(races, stream(1), 99, 1, NEAP_SIM_READS);
	assert_int_equal(found.count, 1);
	assert_int_equal(found.list[0].kind, NEAP_SIM_RACE_DATA);
	assert_int_equal(found.list[0].address, BASE + 99);
	assert_int_equal(found.list[0].bytes, 1);
	assert_int_equal(found.list[0].first.stream, 1);
	assert_int_equal(found.list[0].second.stream, 2);
	end(races, 1);
}

static void test_orders(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	use(races, stream(0), 0, 10, NEAP_SIM_WRITES);
	sim_races_record(races, 5, stream(0), false);
	use(races, stream(0), 20, 10, NEAP_SIM_WRITES); /* after the event */
	sim_races_wait(races, stream(1), 5);
	use(races, stream(1), 0, 10, NEAP_SIM_READS);
	assert_int_equal(found.count, 0);
	use(races, stream(1), 20, 10, NEAP_SIM_READS);
	assert_int_equal(found.count, 1);
	sim_races_wait(races, stream(2), 6); /* never recorded */
	use(races, stream(2), 0, 10, NEAP_SIM_WRITES);
	assert_int_equal(found.count, 3);   /* both with what 0 wrote and with what 1 read */
	(void)sim_races_asked(races, 5, 0); /* by chance */
	use(races, stream(3), 0, 1, NEAP_SIM_READS);
	assert_int_equal(found.count, 4);
	sim_races_host_stream(races, stream(2));
	use(races, stream(4), 0, 1, NEAP_SIM_READS);
	sim_races_host_device(races, 0);
	use(races, stream(5), 0, 30, NEAP_SIM_WRITES);
	end(races, 4);
}

/* Forgets what was reported. The limits that are still reached are reported again. */
static void again(struct sim_races *races)
{
	limits[0] = '\0';
	sim_races_again(races);
	use(races, stream(0), 1 << 22, 1, NEAP_SIM_WRITES);
}

/* Beyond its bounds the engine misses things. It reports this once for each test. */
static void test_limits(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	for (uint64_t i = 0; i < 63; i++)
		use(races, stream(i), 64 * i, 1, NEAP_SIM_WRITES);
	assert_string_equal(limits, "");
	use(races, stream(63), 4096, 1, NEAP_SIM_WRITES);
	use(races, stream(64), 4096, 1, NEAP_SIM_WRITES);
	use(races, stream(65), 4096, 1, NEAP_SIM_WRITES);
	assert_string_equal(limits, "races between streams that exist beside 63 others\n");
	for (uint64_t i = 0; i <= 1 << 18; i++)
		use(races, stream(0), 8192 + 2 * i, 1, NEAP_SIM_WRITES);
	assert_non_null(strstr(limits, "\nuses of memory beyond 262144 pieces that streams used apart\n"));
	again(races);
	assert_non_null(strstr(limits, "63 others\n"));
	assert_non_null(strstr(limits, "pieces"));
	sim_races_forget(races, BASE, 1 << 20);
	sim_races_host_device(races, 0);
	for (uint64_t i = 1; i < 66; i++)
		sim_races_forget_stream(races, stream(i).key);
	again(races);
	assert_string_equal(limits, "");
	end(races, 0);
}

/* Streams that are gone leave their place once the host has seen their work. */
static void test_streams_gone(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	use(races, stream(0), 0, 1, NEAP_SIM_WRITES);
	for (uint64_t i = 1; i < 1000; i++) {
		use(races, stream(i), 0, 1, NEAP_SIM_READS);
		sim_races_host_stream(races, stream(i));
		sim_races_forget_stream(races, stream(i).key);
	}
	assert_string_equal(limits, "");
	assert_int_equal(found.count, 64); /* as many as the list takes */
	found.count = 0;
	sim_races_again(races);
	use(races, stream(1), 0, 1, NEAP_SIM_READS);
	use(races, stream(2), 0, 1, NEAP_SIM_WRITES); /* next to the one before: its lane is another one */
	end(races, 3);
}

static void test_event_forgotten(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	use(races, stream(0), 0, 10, NEAP_SIM_WRITES);
	sim_races_record(races, 5, stream(0), false);
	sim_races_forget_event(races, 5);
	sim_races_host_event(races, 5);
	host(races, 0, 1, NEAP_SIM_READS);
	end(races, 1);
}

static void test_null_stream(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	struct sim_race_stream blocking = stream(0);
	blocking.blocking = true;
	use(races, blocking, 0, 10, NEAP_SIM_WRITES);
	use(races, null_stream, 0, 10, NEAP_SIM_WRITES);
	use(races, blocking, 0, 10, NEAP_SIM_WRITES);
	assert_int_equal(found.count, 0);
	use(races, stream(1), 0, 10, NEAP_SIM_WRITES); /* one that does not block */
	end(races, 1);
}

static void test_lifetime(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	sim_races_allocated(races, BASE, 64, stream(0), 11, false);
	use(races, stream(0), 0, 64, NEAP_SIM_WRITES);
	sim_races_record(races, 1, stream(0), false);
	sim_races_wait(races, stream(1), 1);
	use(races, stream(1), 0, 64, NEAP_SIM_READS);
	sim_races_freed(races, BASE, 12, false);
	sim_races_reusable(races, BASE);
	sim_races_allocated(races, BASE + 16, 16, stream(0), 13, false);
	use(races, stream(0), 16, 16, NEAP_SIM_UNKNOWN);
	assert_int_equal(found.count, 1);
	assert_int_equal(found.list[0].kind, NEAP_SIM_RACE_LIFETIME);
	assert_int_equal(found.list[0].block.bytes, 64);
	assert_int_equal(found.list[0].block.allocated, 11);
	assert_int_equal(found.list[0].block.freed, 12);
	end(races, 1);
}

/* record_stream: the allocator waits for an event of the other stream before it gives the block out again. */
static void test_lifetime_waited(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	sim_races_allocated(races, BASE, 64, stream(0), 11, false);
	use(races, stream(1), 0, 64, NEAP_SIM_READS);
	sim_races_freed(races, BASE, 12, false);
	sim_races_record(races, 1, stream(1), false);
	use(races, stream(2), 0, 1, NEAP_SIM_READS); /* nobody waits for it: used after it was freed */
	assert_int_equal(found.count, 1);
	assert_int_equal(found.list[0].kind, NEAP_SIM_RACE_FREED);
	(void)sim_races_asked(races, 1, 0);
	sim_races_reusable(races, BASE);
	sim_races_allocated(races, BASE, 64, stream(0), 13, false);
	use(races, stream(0), 1, 63, NEAP_SIM_WRITES);
	assert_int_equal(found.count, 1);
	use(races, stream(0), 0, 1, NEAP_SIM_WRITES); /* nothing waited for stream 2 */
	assert_int_equal(found.count, 2);
	assert_int_equal(found.list[1].kind, NEAP_SIM_RACE_LIFETIME);
	end(races, 2);
}

static void test_unmapped(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	use(races, stream(0), 0, 64, NEAP_SIM_READS);
	use(races, stream(1), 64, 64, NEAP_SIM_READS);
	sim_races_host_stream(races, stream(0));
	sim_races_unmapped(races, BASE, 64, 1);
	assert_int_equal(found.count, 0);
	sim_races_unmapped(races, BASE + 64, 64, 2);
	assert_int_equal(found.count, 1);
	assert_int_equal(found.list[0].kind, NEAP_SIM_RACE_UNMAPPED);
	use(races, stream(2), 0, 128, NEAP_SIM_WRITES); /* new memory */
	end(races, 1);
}

static void test_host(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	use(races, stream(0), 0, 64, NEAP_SIM_WRITES);
	sim_races_record(races, 1, stream(0), false);
	host(races, 0, 1, NEAP_SIM_READS);
	assert_int_equal(found.count, 1);
	assert_int_equal(found.list[0].kind, NEAP_SIM_RACE_HOST);
	assert_int_equal(found.list[0].second.stream, UINT32_MAX);
	sim_races_host_event(races, 1);
	host(races, 0, 64, NEAP_SIM_WRITES);
	use(races, stream(0), 100, 8, NEAP_SIM_READS);
	host(races, 100, 8, NEAP_SIM_READS);
	assert_int_equal(found.count, 1);
	host(races, 100, 8, NEAP_SIM_WRITES);
	assert_int_equal(found.count, 2);
	sim_races_forget(races, BASE + 100, 8);
	host(races, 100, 8, NEAP_SIM_WRITES);
	end(races, 2);
}

/* Unknown work is no data race; each pair of places is reported once. */
static void test_silence(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	struct neap_sim_touch touch = {BASE + 500, 8, NEAP_SIM_WRITES};
	struct neap_sim_uses first = uses_of(&touch, 1), second = uses_of(&touch, 2);
	use(races, stream(0), 0, 64, NEAP_SIM_WRITES | NEAP_SIM_SPARSE);
	use(races, stream(1), 0, 64, NEAP_SIM_WRITES);
	use(races, stream(0), 100, 64, NEAP_SIM_UNKNOWN);
	use(races, stream(1), 100, 64, NEAP_SIM_WRITES);
	assert_int_equal(found.count, 0);
	for (int i = 0; i < 3; i++) {
		sim_races_work(races, stream(2), &first);
		sim_races_work(races, stream(3), &second);
		sim_races_host_device(races, 0);
	}
	end(races, 1);
}

/* A graph keeps the memory of its capture, though the blocks are free. */
static void test_replay(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	struct neap_sim_touch touch = {BASE, 8, NEAP_SIM_WRITES};
	struct neap_sim_uses uses = uses_of(&touch, 1);
	sim_races_allocated(races, BASE, 64, stream(0), 1, false);
	sim_races_freed(races, BASE, 2, false);
	sim_races_reusable(races, BASE);
	sim_races_replay(races, stream(0), &uses);
	assert_int_equal(found.count, 0);
	use(races, stream(1), 0, 8, NEAP_SIM_READS);
	assert_int_equal(found.count, 2); /* used after it was freed, and at the same time as the graph */
	sim_races_allocated(races, BASE + 64, 64, stream(0), 1, true);
	sim_races_freed(races, BASE + 64, 2, false);
	sim_races_reusable(races, BASE + 64);
	use(races, stream(0), 64, 8, NEAP_SIM_READS); /* a result of the graph */
	end(races, 2);
}

/* -- random histories
 * ---------------------------------------------------------------------------------------------- */

enum { STREAMS = 4, EVENTS = 4, BYTES = 48, USES = 400 };

struct model {
	uint64_t clock[STREAMS][STREAMS], event[EVENTS][STREAMS], host[STREAMS];
	struct {
		uint64_t begin, end, count;
		uint32_t stream, how, life;
	} uses[USES];
	size_t count;
	uint32_t life[BYTES]; /* for each byte; blocks are those of 16 bytes */
};

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

static void join(uint64_t *into, const uint64_t *from)
{
	for (int i = 0; i < STREAMS; i++)
		into[i] = from[i] > into[i] ? from[i] : into[i];
}

/* Returns whether it races with any earlier use. */
static bool model_use(struct model *model, uint32_t on, uint64_t begin_at, uint64_t end_at, uint32_t how)
{
	uint32_t life = model->life[begin_at];
	bool races = false;

	join(model->clock[on], model->host);
	model->clock[on][on]++;
	for (size_t i = 0; i < model->count; i++) {
		uint32_t both = model->uses[i].how | how;
		bool unordered = model->uses[i].count > model->clock[on][model->uses[i].stream];
		bool other_life = model->uses[i].life != life && model->uses[i].life && life;
		bool bad = other_life ? both & (NEAP_SIM_WRITES | NEAP_SIM_UNKNOWN)
				      : (both & NEAP_SIM_WRITES) && !(both & (NEAP_SIM_UNKNOWN | NEAP_SIM_SPARSE));

		races |= unordered && bad && model->uses[i].begin < end_at && begin_at < model->uses[i].end;
	}
	model->uses[model->count].begin = begin_at;
	model->uses[model->count].end = end_at;
	model->uses[model->count].count = model->clock[on][on];
	model->uses[model->count].stream = on;
	model->uses[model->count].how = how;
	model->uses[model->count++].life = life;
	return races;
}

/* `plain`: only whole reads and writes. */
static bool step_use(struct sim_races *races, struct model *model, bool plain)
{
	static const uint32_t ways[] = {NEAP_SIM_READS,
					NEAP_SIM_READS,
					NEAP_SIM_WRITES,
					NEAP_SIM_UNKNOWN,
					NEAP_SIM_WRITES | NEAP_SIM_SPARSE,
					NEAP_SIM_READS | NEAP_SIM_SPARSE};
	uint32_t on = draw(STREAMS), block = draw(BYTES / 16), how = ways[draw(plain ? 3 : 6)], at = draw(16),
		 size = 1 + draw(16 - at);

	use(races, stream(on), block * 16 + at, size, how);
	bool expected = model_use(model, on, block * 16 + at, block * 16 + at + size, how);
	assert_int_equal(found.count > 0, expected);
	return expected;
}

static void step_order(struct sim_races *races, struct model *model)
{
	uint32_t on = draw(STREAMS), event = draw(EVENTS);

	switch (draw(8)) {
	case 0:
	case 1:
	case 2:
		join(model->clock[on], model->host);
		memcpy(model->event[event], model->clock[on], sizeof model->event[event]);
		sim_races_record(races, event + 1, stream(on), false);
		break;
	case 3:
	case 4:
	case 5:
		join(model->clock[on], model->event[event]);
		sim_races_wait(races, stream(on), event + 1);
		break;
	case 6:
		join(model->host, model->event[event]);
		sim_races_host_event(races, event + 1);
		break;
	default:
		join(model->host, model->clock[on]);
		sim_races_host_stream(races, stream(on));
	}
}

static void step_block(struct sim_races *races, struct model *model, uint32_t *lives)
{
	uint32_t block = draw(BYTES / 16);
	uint64_t address = BASE + 16 * block;

	sim_races_freed(races, address, 0, false);
	sim_races_reusable(races, address);
	sim_races_allocated(races, address, 16, stream(0), 0, false);
	++*lives;
	for (uint32_t i = 0; i < 16; i++)
		model->life[16 * block + i] = *lives;
}

/* Compares up to the first race, since after a race the kept data differs. Blocks get new lives in every other
 * history; that one has no uses of unknown kind and no sparse ones: a write hides the uses of earlier lives from
 * those. */
static size_t run_history(uint64_t seed)
{
	struct model *model = calloc(1, sizeof *model);
	struct sim_races *races = begin();
	uint32_t lives = 0;
	size_t steps = 0;
	bool raced = false;

	random_state = seed;
	for (; steps < USES && !raced; steps++) {
		uint32_t what = draw(20);

		if (what < 8)
			raced = step_use(races, model, seed & 1);
		else if (what < 19 || !(seed & 1))
			step_order(races, model);
		else
			step_block(races, model, &lives);
	}
	sim_races_destroy(races);
	free(model);
	return steps;
}

static void test_random(void **state)
{
	(void)state;
	size_t steps = 0;

	for (uint64_t seed = 1; seed <= 3000; seed++)
		steps += run_history(seed * 0x9e3779b97f4a7c15u);
	assert_true(steps > 3000 * 10); /* the histories are long enough */
}

static char ran[64];

static void run_letter(void *letter) { strncat(ran, letter, 1); }

static void later(struct sim_races *races, struct sim_race_stream on, const char *letter)
{
	sim_races_later(races, on, run_letter, (void *)(uintptr_t)letter);
}

static void assert_ran(const char *letters)
{
	assert_string_equal(ran, letters);
	ran[0] = '\0';
}

/* Work runs as late as the orders allow: when something waits for it, and for the work before it. The rest stays
 * queued. */
static void test_late(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	struct sim_race_stream main = {.key = 1, .null = true}, s = stream(1), t = stream(2);

	sim_races_work(races, main, &(struct neap_sim_uses){.name = ""}); /* the default stream is the first */
	sim_races_delay(races, 0);
	later(races, s, "a");
	later(races, main, "b");
	assert_ran("b"); /* nothing orders it after a */
	sim_races_record(races, 5, s, false);
	later(races, s, "c");
	later(races, t, "d");
	sim_races_wait(races, main, 5);
	later(races, main, "e");
	assert_ran(""); /* it waits for a, which is late */
	assert_false(sim_races_asked(races, 5, 1));
	sim_races_host_stream(races, main);
	assert_ran("ae");
	assert_true(sim_races_asked(races, 5, 1));
	sim_races_settle(races, t);
	assert_ran("d");
	assert_false(sim_races_asked_stream(races, s));
	assert_false(sim_races_asked_stream(races, s));
	assert_true(sim_races_asked_stream(races, s)); /* the program would wait for ever */
	assert_ran("c");
	later(races, s, "f");
	sim_races_settle_all(races);
	assert_ran("f");
	sim_races_delay(races, 1); /* the default stream alone */
	later(races, main, "g");
	later(races, s, "h");
	sim_races_host_device(races, 0);
	assert_ran("hg");
	end(races, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_data),         cmocka_unit_test(test_orders),
		cmocka_unit_test(test_null_stream),  cmocka_unit_test(test_event_forgotten),
		cmocka_unit_test(test_lifetime),     cmocka_unit_test(test_lifetime_waited),
		cmocka_unit_test(test_unmapped),     cmocka_unit_test(test_host),
		cmocka_unit_test(test_silence),      cmocka_unit_test(test_replay),
		cmocka_unit_test(test_random),       cmocka_unit_test(test_limits),
		cmocka_unit_test(test_streams_gone), cmocka_unit_test(test_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
