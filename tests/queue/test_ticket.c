/* Tickets are read as they were written; whatever another user may write is no ticket, or harmless. */
#include "queue/ticket.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct neap_ticket example = {
	.order = 17,
	.pid = 4711,
	.start_ticks = 99,
	.holds = true,
	.added = true,
	.lost = 2,
	.tries = 3,
	.needs = {NEAP_NEEDS_BYTES, 4ull << 30},
	.gpus = 2,
	.devices = {"GPU-a", "GPU-b"},
	.device_count = 2,
	.since_wall_ns = 5,
	.run_id = "20261124-1",
	.folder = "/home/ann/a folder",
	.command = "python train.py --batch 8",
};

static void test_round(void **state)
{
	(void)state;
	char bytes[NEAP_TICKET_BYTES], again[NEAP_TICKET_BYTES];
	struct neap_ticket ticket = {0};
	assert_int_equal(neap_ticket_write(&example, bytes, NULL), NEAP_OK);
	assert_int_equal(neap_ticket_read(bytes, &ticket, NULL), NEAP_OK);
	assert_int_equal(ticket.order, 17);
	assert_true(ticket.lost == 2 && ticket.tries == 3 && ticket.gpus == 2);
	assert_int_equal(ticket.needs.bytes, 4ull << 30);
	assert_true(ticket.holds && ticket.added && !ticket.paused && !ticket.dropped);
	assert_string_equal(ticket.devices[1], "GPU-b");
	assert_string_equal(ticket.folder, example.folder);
	assert_string_equal(ticket.command, example.command);
	assert_int_equal(neap_ticket_write(&ticket, again, NULL), NEAP_OK);
	assert_memory_equal(bytes, again, sizeof bytes);
}

/* A machine takes minutes to start, and so does its driver. */
static void test_pauses(void **state)
{
	(void)state;
	assert_int_equal(neap_ticket_pause_ns(1), 1000000000);
	assert_int_equal(neap_ticket_pause_ns(2), 10000000000);
	assert_int_equal(neap_ticket_pause_ns(NEAP_QUEUE_TRIES - 1), 1000000000000);
	assert_int_equal(neap_ticket_pause_ns(UINT32_MAX), 10000000000000);
}

/* A command of several lines stays one line; a folder that does not fit is an error. */
static void test_texts(void **state)
{
	(void)state;
	char bytes[NEAP_TICKET_BYTES];
	struct neap_ticket ticket = example;
	strcpy(ticket.command, "sh -c 'true\nholds 0\nend \n\033[2J'");
	assert_int_equal(neap_ticket_write(&ticket, bytes, NULL), NEAP_OK);
	assert_int_equal(neap_ticket_read(bytes, &ticket, NULL), NEAP_OK);
	assert_true(ticket.holds);
	assert_string_equal(ticket.command, "sh -c 'true?holds 0?end ??[2J'");
	strcpy(ticket.folder, "/tmp/a\nb");
	assert_int_equal(neap_ticket_write(&ticket, bytes, NULL), NEAP_EINVAL);
}

static void test_hostile(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"",
		"neap ticket 2\nend \n",
		"neap ticket 1\nend \n",
		"neap ticket 1",
		"neap ticket 1\nneeds device\ngpus 1\ndevice GPU-a\n",
		"neap ticket 1\nneeds none\ngpus 1\ndevice GPU-a\nend \n",
		"neap ticket 1\nneeds 0\ngpus 1\ndevice GPU-a\nend \n",
		"neap ticket 1\nneeds -5\ngpus 1\ndevice GPU-a\nend \n",
		"neap ticket 1\nneeds 99999999999999999999\ngpus 1\ndevice GPU-a\nend \n",
		"neap ticket 1\nneeds device\ngpus 0\ndevice GPU-a\nend \n",
		"neap ticket 1\nneeds device\ngpus 2\ndevice GPU-a\nend \n",
		"neap ticket 1\nneeds device\ngpus 4294967297\ndevice GPU-a\nend \n",
		"neap ticket 1\nneeds device\ngpus 1\nholds 1\ndevice GPU-a\ndevice GPU-b\nend \n",
		"neap ticket 1\nneeds device\ngpus 1\nholds yes\ndevice GPU-a\nend \n",
		"neap ticket 1\nneeds device\ngpus 1\npid 4294967296\ndevice GPU-a\nend \n",
		"neap ticket 1\nneeds device\ngpus 1\ndevice \nend \n",
		"neap ticket 1\nneeds device\ngpus 1\ndevice\nend \n",
		"neap ticket 1\nneeds device\ngpus 1\n"
		"device GPU-0000000000000000000000000000000000000000000000000000000\nend \n",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		char bytes[NEAP_TICKET_BYTES] = "";
		struct neap_ticket ticket = {.order = 3};
		memcpy(bytes, texts[i], strlen(texts[i]));
		if (neap_ticket_read(bytes, &ticket, NULL) != NEAP_EPARSE)
			fail_msg("read %zu as a ticket", i);
		assert_int_equal(ticket.order, 3);
	}
}

/* Every byte of a ticket replaced, and the ticket cut off there. */
static void test_damaged(void **state)
{
	(void)state;
	char bytes[NEAP_TICKET_BYTES], damaged[NEAP_TICKET_BYTES];
	struct neap_ticket ticket;
	unsigned seed = 20261124;
	assert_int_equal(neap_ticket_write(&example, bytes, NULL), NEAP_OK);
	for (int round = 0; round < 20000; round++) {
		memcpy(damaged, bytes, sizeof bytes);
		for (int i = rand_r(&seed) % 4; i >= 0; i--)
			damaged[rand_r(&seed) % 320] = (char)rand_r(&seed);
		if (round % 3 == 0)
			memset(damaged + rand_r(&seed) % 320, round & 1 ? 'x' : 0, 3000);
		if (neap_ticket_read(damaged, &ticket, NULL))
			continue;
		assert_true(ticket.gpus && ticket.gpus <= ticket.device_count && ticket.device_count <= NEAP_GPUS);
		assert_true(ticket.needs.kind == NEAP_NEEDS_DEVICE || ticket.needs.bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_round), cmocka_unit_test(test_pauses),
					   cmocka_unit_test(test_texts), cmocka_unit_test(test_hostile),
					   cmocka_unit_test(test_damaged)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
