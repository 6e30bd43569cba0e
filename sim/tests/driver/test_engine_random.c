/* The simulator's engine against an oracle: every action is a node of a graph, with the set of all nodes it comes
 * after. A race must be reported exactly when an earlier conflicting work is not in that set, functions must run only
 * after those of all works in it, and `pending` must agree with the work that has run. NEAP_TEST_SEED repeats a
 * run. */
#include "sim/driver/engine.h"

#include "support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 400, NODES = 256, STREAMS = 6, EVENTS = 4, SPACES = 2, ACCESSES = 2 };

struct oracle;

struct node {
	struct oracle *oracle;
	bool after[NODES]; /* the nodes this one comes after */
	bool is_work, ran;
	size_t access_count;
	struct sim_access accesses[ACCESSES];
	char name[16];
};

struct slot {
	uint32_t stream;
	bool non_blocking;
	int last; /* node, -1: none */
};

struct oracle {
	struct sim_engine *engine;
	struct node nodes[NODES];
	int count, host;
	struct slot slots[STREAMS]; /* slot 0 is stream 0 */
	int departed[NODES], departed_count;
	uint32_t events[EVENTS];
	int recorded[EVENTS];
	unsigned races, accepted, drained, held_back;
};

static uint64_t random_state;

static uint32_t pick(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 33) % below;
}

static void come_after(struct node *node, const struct oracle *oracle, int other)
{
	if (other < 0)
		return;
	for (int i = 0; i < oracle->count; i++)
		node->after[i] |= oracle->nodes[other].after[i];
	node->after[other] = true;
}

/* A node for an action on a slot's stream; not in the graph until `keep`. */
static struct node *begin(struct oracle *oracle, int at)
{
	struct node *node = &oracle->nodes[oracle->count];
	const struct slot *slot = &oracle->slots[at];

	memset(node, 0, sizeof *node);
	node->oracle = oracle;
	come_after(node, oracle, oracle->host);
	come_after(node, oracle, slot->last);
	if (!slot->non_blocking && at != 0)
		come_after(node, oracle, oracle->slots[0].last);
	for (int i = 0; at == 0 && i < STREAMS; i++)
		if (!oracle->slots[i].non_blocking)
			come_after(node, oracle, oracle->slots[i].last);
	for (int i = 0; at == 0 && i < oracle->departed_count; i++)
		come_after(node, oracle, oracle->departed[i]);
	return node;
}

static int keep(struct oracle *oracle) { return oracle->count++; }

static bool overlap(const struct sim_access *a, const struct sim_access *b)
{
	return a->space == b->space && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool conflict(const struct node *a, const struct node *b)
{
	for (size_t i = 0; i < a->access_count; i++)
		for (size_t k = 0; k < b->access_count; k++)
			if ((a->accesses[i].write || b->accesses[k].write) &&
			    overlap(&a->accesses[i], &b->accesses[k]))
				return true;
	return false;
}

static void run_node(void *argument)
{
	struct node *node = argument;

	assert_false(node->ran);
	for (int i = 0; i < node->oracle->count; i++)
		if (node->after[i] && node->oracle->nodes[i].is_work)
			assert_true(node->oracle->nodes[i].ran);
	node->ran = true;
}

static void submit(struct oracle *oracle, int at)
{
	struct node *node = begin(oracle, at);
	bool race = false;

	node->is_work = true;
	node->access_count = pick(ACCESSES + 1);
	snprintf(node->name, sizeof node->name, "work-%d-", oracle->count);
	for (size_t i = 0; i < node->access_count; i++)
		node->accesses[i] =
			(struct sim_access){pick(SPACES), pick(24), 1 + pick(pick(2) ? 3 : 12), pick(3) == 0};
	for (int i = 0; i < oracle->count; i++)
		race |= oracle->nodes[i].is_work && !node->after[i] && conflict(node, &oracle->nodes[i]);

	struct sim_work work = {.name = node->name,
				.duration_ns = pick(5) * 10,
				.accesses = node->accesses,
				.access_count = node->access_count,
				.function = run_node,
				.argument = node};
	enum sim_order order = sim_stream_submit(oracle->engine, oracle->slots[at].stream, &work);

	assert_int_equal(order, race ? SIM_ORDER_RACE : SIM_ORDER_OK);
	if (!race) {
		oracle->slots[at].last = keep(oracle);
		oracle->accepted++;
		return;
	}
	/* The named other work really exists. */
	bool named = false;
	char text[512];

	sim_engine_fault_text(oracle->engine, text, sizeof text);
	assert_non_null(strstr(text, node->name));
	for (int i = 0; i < oracle->count; i++)
		if (oracle->nodes[i].is_work && strstr(text, oracle->nodes[i].name))
			named |= !node->after[i] && conflict(node, &oracle->nodes[i]);
	assert_true(named);
	oracle->races++;
}

/* Checks the result of a query or a synchronisation: if OK, all earlier work has run and the host comes after it. */
static void saw(struct oracle *oracle, const struct node *node, enum sim_order order, bool may_wait)
{
	bool all_ran = true;

	for (int i = 0; i < oracle->count; i++)
		all_ran &= !node->after[i] || !oracle->nodes[i].is_work || oracle->nodes[i].ran;
	assert_int_equal(order, all_ran ? SIM_ORDER_OK : SIM_ORDER_NOT_READY);
	if (may_wait)
		assert_int_equal(order, SIM_ORDER_OK);
	if (order == SIM_ORDER_OK) {
		oracle->host = keep(oracle);
		oracle->drained++;
	} else {
		oracle->held_back++;
	}
}

static void observe_event(struct oracle *oracle, int event, bool wait, bool held)
{
	struct node *node = &oracle->nodes[oracle->count];

	memset(node, 0, sizeof *node);
	come_after(node, oracle, oracle->host);
	come_after(node, oracle, oracle->recorded[event]);
	saw(oracle, node,
	    wait ? sim_event_synchronize(oracle->engine, oracle->events[event])
		 : sim_event_query(oracle->engine, oracle->events[event]),
	    wait && !held);
}

static void replace_stream(struct oracle *oracle, int at)
{
	struct slot *slot = &oracle->slots[at];

	if (!slot->non_blocking && slot->last >= 0)
		oracle->departed[oracle->departed_count++] = slot->last;
	assert_int_equal(sim_stream_destroy(oracle->engine, slot->stream), SIM_ORDER_OK);
	*slot = (struct slot){.non_blocking = pick(2), .last = -1};
	assert_int_equal(sim_stream_create(oracle->engine, slot->non_blocking, &slot->stream), SIM_ORDER_OK);
}

static void step(struct oracle *oracle, bool held)
{
	int at = (int)pick(STREAMS), event = (int)pick(EVENTS);
	uint32_t stream = oracle->slots[at].stream, what = pick(100);

	if (what < 55) {
		submit(oracle, at);
	} else if (what < 67) {
		begin(oracle, at);
		assert_int_equal(sim_event_record(oracle->engine, oracle->events[event], stream), SIM_ORDER_OK);
		oracle->recorded[event] = oracle->slots[at].last = keep(oracle);
	} else if (what < 79) {
		come_after(begin(oracle, at), oracle, oracle->recorded[event]);
		assert_int_equal(sim_stream_wait_event(oracle->engine, stream, oracle->events[event]), SIM_ORDER_OK);
		oracle->slots[at].last = keep(oracle);
	} else if (what < 83) {
		bool wait = pick(3) == 0;
		struct node *node = begin(oracle, at);

		saw(oracle, node,
		    wait ? sim_stream_synchronize(oracle->engine, stream) : sim_stream_query(oracle->engine, stream),
		    wait && !held);
	} else if (what < 87) {
		observe_event(oracle, event, pick(3) == 0, held);
	} else if (what < 90 && at != 0) {
		replace_stream(oracle, at);
	} else if (what < 93) {
		begin(oracle, at); /* no work, but an action like any other */
		assert_int_equal(sim_stream_pass(oracle->engine, stream, 0), SIM_ORDER_OK);
		oracle->slots[at].last = keep(oracle);
	} else if (what < 97) {
		sim_engine_step(oracle->engine, pick(30));
	}
}

static void engine_agrees_with_the_graph(void **state)
{
	static struct oracle oracle;
	const char *given = getenv("NEAP_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	unsigned races = 0, accepted = 0, drained = 0, held_back = 0;

	(void)state;
	print_message("seed %" PRIu64 "\n", seed);
	random_state = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
	for (int round = 0; round < ROUNDS; round++) {
		bool held = pick(2);

		memset(&oracle, 0, sizeof oracle);
		oracle.engine = sim_engine_create();
		assert_non_null(oracle.engine);
		oracle.host = -1;
		sim_engine_hold(oracle.engine, held);
		for (int i = 0; i < STREAMS; i++) {
			oracle.slots[i] = (struct slot){.non_blocking = i > 0 && pick(2), .last = -1};
			if (i > 0)
				assert_int_equal(sim_stream_create(oracle.engine, oracle.slots[i].non_blocking,
								   &oracle.slots[i].stream),
						 SIM_ORDER_OK);
		}
		for (int i = 0; i < EVENTS; i++) {
			oracle.recorded[i] = -1;
			assert_int_equal(sim_event_create(oracle.engine, &oracle.events[i]), SIM_ORDER_OK);
		}
		for (int i = 0; i < 2 * NODES && oracle.count < NODES - 1; i++)
			step(&oracle, held);
		sim_engine_hold(oracle.engine, false);
		assert_int_equal(sim_engine_synchronize(oracle.engine), SIM_ORDER_OK);
		for (int i = 0; i < oracle.count; i++)
			assert_true(!oracle.nodes[i].is_work || oracle.nodes[i].ran);
		sim_engine_destroy(oracle.engine);
		races += oracle.races;
		accepted += oracle.accepted;
		drained += oracle.drained;
		held_back += oracle.held_back;
	}
	print_message("%u works accepted, %u races, %u seen by the host, %u not ready\n", accepted, races, drained,
		      held_back);
	/* The mix is useful only if all of these happen. */
	assert_true(races > ROUNDS && accepted > 10 * ROUNDS && drained > ROUNDS && held_back > ROUNDS / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(engine_agrees_with_the_graph)};

	return cmocka_run_group_tests_name("engine_random", tests, NULL, NULL);
}
