/* Who may start: a table; and random histories of arrivals, ends and kills with the invariants: never more is
 * promised than there is, a bounded number overtakes a waiting run, and all are served in the end. */
#include "queue/decide.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#define BYTES(n)      ((struct neap_needs){NEAP_NEEDS_BYTES, n})
#define WHOLE         ((struct neap_needs){NEAP_NEEDS_DEVICE, 0})
#define DEVICE(total) ((struct neap_queue_device){total, total, true})

static struct neap_queue_entry waits(uint64_t order, struct neap_needs needs, uint32_t gpus, uint32_t devices)
{
	return (struct neap_queue_entry){.order = order, .needs = needs, .gpus = gpus, .devices = devices};
}

static struct neap_queue_entry holds(uint64_t order, struct neap_needs needs, uint32_t devices, uint64_t used)
{
	struct neap_queue_entry entry = waits(order, needs, (uint32_t)__builtin_popcount(devices), devices);
	entry.holds = true;
	for (size_t i = 0; i < NEAP_GPUS; i++)
		entry.used_bytes[i] = devices >> i & 1 ? used : 0;
	return entry;
}

static struct neap_queue_answer last_of(const struct neap_queue_device *devices, size_t device_count,
					const struct neap_queue_entry *entries, size_t count)
{
	struct neap_queue_answer answers[16];
	neap_queue_decide(devices, device_count, entries, count, answers);
	return answers[count - 1];
}

static void expect(struct neap_queue_answer answer, enum neap_queue_verdict verdict, uint32_t devices, size_t behind)
{
	assert_int_equal(answer.verdict, verdict);
	assert_int_equal(answer.devices, devices);
	assert_int_equal(answer.behind, behind);
}

/* Promised memory that is not used yet is not free. */
static void test_promises(void **state)
{
	(void)state;
	struct neap_queue_device device = {100, 40, false}; /* the holder uses 60 */
	struct neap_queue_entry entries[2] = {holds(1, BYTES(90), 1, 60), waits(2, BYTES(10), 1, 1)};
	expect(last_of(&device, 1, entries, 2), NEAP_QUEUE_START, 1, 2);
	entries[1].needs = BYTES(11);
	expect(last_of(&device, 1, entries, 2), NEAP_QUEUE_LEASED, 0, 0);
	device.free_bytes = 100; /* it has not begun, and its readings mean nothing */
	entries[0].used_bytes[0] = 0;
	expect(last_of(&device, 1, entries, 2), NEAP_QUEUE_LEASED, 0, 0);
	entries[0].used_bytes[0] = 90; /* a wrong reading: leases still add up to no more than there is */
	expect(last_of(&device, 1, entries, 2), NEAP_QUEUE_LEASED, 0, 0);
	entries[1].needs = BYTES(10);
	expect(last_of(&device, 1, entries, 2), NEAP_QUEUE_START, 1, 2);
	device.free_bytes = 9; /* others use the rest */
	expect(last_of(&device, 1, entries, 2), NEAP_QUEUE_LEASED, 0, 0);
	expect(last_of(&device, 1, entries + 1, 1), NEAP_QUEUE_USED, 0, 1);
	entries[1].needs = BYTES(101);
	expect(last_of(&device, 1, entries, 2), NEAP_QUEUE_NEVER, 0, 2);
}

/* The waiting run names the largest lease, not the last one, whose end may not be enough. */
static void test_largest(void **state)
{
	(void)state;
	const struct neap_queue_device device = DEVICE(100);
	const struct neap_queue_entry entries[3] = {holds(1, BYTES(60), 1, 0), holds(2, BYTES(20), 1, 0),
						    waits(3, BYTES(50), 1, 1)};
	expect(last_of(&device, 1, entries, 3), NEAP_QUEUE_LEASED, 0, 0);
}

static void test_whole(void **state)
{
	(void)state;
	const struct neap_queue_device devices[2] = {DEVICE(100), DEVICE(100)};
	struct neap_queue_entry entries[3] = {holds(1, WHOLE, 1, 0), waits(2, BYTES(1), 1, 1), waits(3, WHOLE, 1, 3)};
	expect(last_of(devices, 2, entries, 2), NEAP_QUEUE_LEASED, 0, 0);
	expect(last_of(devices, 2, entries, 3), NEAP_QUEUE_START, 2, 3);
	entries[0] = holds(1, BYTES(1), 3, 0);
	expect(last_of(devices, 2, entries, 3), NEAP_QUEUE_LEASED, 0, 1); /* the second starts on the first device */
	const struct neap_queue_device used = {100, 99, false};
	expect(last_of(&used, 1, entries + 2, 1), NEAP_QUEUE_USED, 0, 1);
}

static void test_several(void **state)
{
	(void)state;
	const struct neap_queue_device devices[3] = {DEVICE(100), DEVICE(80), DEVICE(60)};
	struct neap_queue_entry entries[2] = {holds(1, BYTES(50), 1, 0), waits(2, BYTES(60), 2, 7)};
	expect(last_of(devices, 3, entries, 2), NEAP_QUEUE_START, 6, 2);
	entries[1].needs = BYTES(61); /* the third is too small, the first is taken */
	expect(last_of(devices, 3, entries, 2), NEAP_QUEUE_LEASED, 0, 0);
	entries[1].needs = BYTES(81); /* only one device has that much */
	expect(last_of(devices, 3, entries, 2), NEAP_QUEUE_NEVER, 0, 2);
	entries[1] = waits(2, BYTES(20), 1, 7); /* the most memory */
	expect(last_of(devices, 3, entries, 2), NEAP_QUEUE_START, 2, 2);
}

/* The ninth small run after a large one waits for it, on the large one's devices only. A ticket that was set aside
 * blocks nobody. */
static void test_passing(void **state)
{
	(void)state;
	const struct neap_queue_device devices[2] = {DEVICE(100), DEVICE(100)};
	struct neap_queue_entry entries[3] = {holds(1, BYTES(50), 1, 0), waits(10, BYTES(90), 1, 1),
					      waits(10 + NEAP_QUEUE_PASSES, BYTES(10), 1, 1)};
	expect(last_of(devices, 2, entries, 3), NEAP_QUEUE_START, 1, 3);
	entries[2].order++;
	expect(last_of(devices, 2, entries, 3), NEAP_QUEUE_BEHIND, 0, 1);
	entries[2].devices = 3;
	expect(last_of(devices, 2, entries, 3), NEAP_QUEUE_START, 2, 3);
	entries[2].devices = 1;
	entries[1].aside = true;
	expect(last_of(devices, 2, entries, 3), NEAP_QUEUE_START, 1, 3);
	entries[1].aside = false;
	entries[1].needs = BYTES(101); /* it will never start */
	expect(last_of(devices, 2, entries, 3), NEAP_QUEUE_START, 1, 3);
}

/* --- random histories --- */

#define ENTRIES 60

struct history {
	unsigned seed;
	struct neap_queue_entry entries[ENTRIES];
	size_t count, arrived, served;
	uint64_t next_order;
	uint64_t passed[ENTRIES], waited[ENTRIES]; /* beside `entries` */
	struct neap_queue_device devices[3];
	uint64_t others[3]; /* bytes of programs outside the queue */
};

static unsigned pick(struct history *history, unsigned below) { return (unsigned)rand_r(&history->seed) % below; }

static void arrive(struct history *history)
{
	struct neap_needs needs = pick(history, 6) ? BYTES(1 + pick(history, 100)) : WHOLE;
	uint32_t set = 1 + pick(history, 7);
	uint32_t gpus = 1 + pick(history, (unsigned)__builtin_popcount(set));
	if (history->count == ENTRIES)
		return;
	history->next_order += 1 + pick(history, 2);
	history->passed[history->count] = history->waited[history->count] = 0;
	history->entries[history->count++] = waits(history->next_order, needs, gpus, set);
	history->arrived++;
}

static void leave(struct history *history, size_t at)
{
	history->count--;
	for (size_t i = at; i < history->count; i++) {
		history->entries[i] = history->entries[i + 1];
		history->passed[i] = history->passed[i + 1];
		history->waited[i] = history->waited[i + 1];
	}
}

/* What the driver shows: the holders use some of their promised bytes, sometimes more than was measured. */
static void read_devices(struct history *history)
{
	for (size_t d = 0; d < 3; d++) {
		struct neap_queue_device *device = &history->devices[d];
		uint64_t used = history->others[d];
		for (size_t i = 0; i < history->count; i++) {
			struct neap_queue_entry *entry = &history->entries[i];
			bool here = entry->holds && entry->devices >> d & 1;
			uint64_t most =
				entry->needs.kind == NEAP_NEEDS_DEVICE ? device->total_bytes : entry->needs.bytes;
			uint64_t now = here ? pick(history, (unsigned)most + 1) : 0;
			used += now;
			entry->used_bytes[d] = now && pick(history, 4) ? now : 0;
		}
		device->free_bytes = used < device->total_bytes ? device->total_bytes - used : 0;
		device->empty = !used;
	}
}

static void check_promises(const struct history *history)
{
	for (size_t d = 0; d < 3; d++) {
		uint64_t promised = 0;
		size_t holders = 0, wholes = 0;
		for (size_t i = 0; i < history->count; i++) {
			const struct neap_queue_entry *entry = &history->entries[i];
			if (!entry->holds || !(entry->devices >> d & 1))
				continue;
			holders++;
			wholes += entry->needs.kind == NEAP_NEEDS_DEVICE;
			promised += entry->needs.kind == NEAP_NEEDS_BYTES ? entry->needs.bytes : 0;
		}
		assert_true(promised <= history->devices[d].total_bytes);
		assert_true(!wholes || holders == 1);
	}
}

/* Starts the runs that may start, as the processes do: each for itself, in any order. */
static void start_some(struct history *history, bool all)
{
	struct neap_queue_answer answers[ENTRIES];
	neap_queue_decide(history->devices, 3, history->entries, history->count, answers);
	for (size_t i = 0; i < history->count; i++) {
		if (answers[i].verdict == NEAP_QUEUE_NEVER && all) {
			history->served++;
			leave(history, i);
			return;
		}
		if (answers[i].verdict != NEAP_QUEUE_START || (!all && pick(history, 2)))
			continue;
		assert_int_equal(__builtin_popcount(answers[i].devices), history->entries[i].gpus);
		assert_int_equal(answers[i].devices & ~history->entries[i].devices, 0);
		for (size_t j = 0; j < i; j++)
			history->passed[j] += !history->entries[j].holds && !history->entries[j].aside &&
					      answers[j].verdict != NEAP_QUEUE_START &&
					      answers[j].verdict != NEAP_QUEUE_NEVER &&
					      history->entries[j].devices & answers[i].devices;
		history->entries[i].holds = true;
		history->entries[i].devices = answers[i].devices;
		for (size_t d = 0; d < 3; d++)
			history->entries[i].used_bytes[d] = 0;
		return; /* the next one reads again */
	}
}

static void end_one(struct history *history)
{
	size_t first = history->count ? pick(history, (unsigned)history->count) : 0;
	for (size_t i = first; i < history->count; i++)
		if (history->entries[i].holds) {
			history->served++;
			leave(history, i);
			return;
		}
}

static void play(unsigned seed)
{
	static struct history history;
	history = (struct history){.seed = seed, .devices = {DEVICE(100), DEVICE(80), DEVICE(60)}};
	for (int step = 0; step < 600; step++) {
		unsigned what = pick(&history, 10);
		if (what < 3 && step < 400)
			arrive(&history);
		else if (what == 3 && history.count && step < 400)
			history.entries[pick(&history, (unsigned)history.count)].aside ^= true;
		else if (what == 4 && step < 400)
			history.others[pick(&history, 3)] = pick(&history, 3) ? 0 : pick(&history, 60);
		else if (what < 7)
			end_one(&history);
		read_devices(&history);
		start_some(&history, false);
		check_promises(&history);
		for (size_t i = 0; i < history.count; i++)
			assert_true(history.passed[i] <= NEAP_QUEUE_PASSES);
	}
	/* the remaining runs are served: nobody starves */
	for (size_t d = 0; d < 3; d++)
		history.others[d] = 0;
	for (size_t i = 0; i < history.count; i++)
		history.entries[i].aside = false;
	for (int step = 0; history.count && step < 5000; step++) {
		read_devices(&history);
		start_some(&history, true);
		check_promises(&history);
		if (step % 3 == 2)
			end_one(&history);
	}
	assert_int_equal(history.count, 0);
	assert_int_equal(history.served, history.arrived);
}

static void test_random(void **state)
{
	(void)state;
	const char *is_long = getenv("NEAP_LONG");
	unsigned count = is_long && *is_long ? 5000 : 200;
	for (unsigned seed = 1; seed <= count; seed++) {
		printf("seed %u\n", seed);
		play(seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_promises), cmocka_unit_test(test_largest),
					   cmocka_unit_test(test_whole),    cmocka_unit_test(test_several),
					   cmocka_unit_test(test_passing),  cmocka_unit_test(test_random)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
