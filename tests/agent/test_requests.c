/* What an attached process answers to clear, reset and fraction, also while it works. */
#include "agent_test.h"

#include "device/driver.h"
#include "neap/train.h"

#include <pthread.h>
#include <string.h>

static void clear_gives_memory_back(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	struct neap_event event = {0};
	attach();
	struct neap_alloc *alloc = make_alloc();
	uint64_t live = take(alloc, 2 * MIB), cached = take(alloc, 8 * MIB);
	memset((void *)live, 0x5a, 2 * MIB); /* the simulator's addresses are the host's */
	neap_free(alloc, cached);
	assert_true(page_reserved() >= (int64_t)(10 * MIB));
	open_client(&client);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	uint64_t freed = number_of(&reply, 0, NEAP_FIELD_FREED);
	assert_true(freed >= 8 * MIB);
	assert_true(number_of(&reply, 0, NEAP_FIELD_RESERVED_BEFORE) ==
		    number_of(&reply, 0, NEAP_FIELD_RESERVED) + freed);
	assert_true(number_of(&reply, 0, NEAP_FIELD_FREE) == number_of(&reply, 0, NEAP_FIELD_FREE_BEFORE) + freed);
	assert_true(number_of(&reply, 0, NEAP_FIELD_NANOSECONDS) > 0);
	assert_true((uint64_t)page_reserved() == number_of(&reply, 0, NEAP_FIELD_RESERVED));
	assert_int_equal(recorded(NEAP_EVENT_CLEANUP, &event), 1);
	assert_int_equal(event.cleanup.reason, NEAP_CLEANUP_REQUEST);
	assert_true(event.cleanup.freed_bytes == freed);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_FREED), 0);
	for (size_t i = 0; i < 2 * MIB; i++)
		assert_int_equal(((unsigned char *)live)[i], 0x5a);
	neap_client_close(&client);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* A limit below the reserved bytes empties the cache. Below the live bytes, growth fails with an error that names the
 * limit. */
static void fraction_limits(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	struct neap_error err = {0};
	struct neap_event event = {0};
	uint64_t total = neap_device_info(device)->total_bytes, block = 0;
	char limit[64];
	attach();
	struct neap_alloc *alloc = make_alloc();
	uint64_t live = take(alloc, 4 * MIB);
	neap_free(alloc, take(alloc, 8 * MIB));
	open_client(&client);
	must(ask_fraction(&client, 0.5, &reply, &err), &err);
	assert_false(has_number(&reply, 0, NEAP_FIELD_LIMIT_BEFORE, &block)); /* there was no limit */
	assert_true(number_of(&reply, 0, NEAP_FIELD_LIMIT) == total / 2);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_EMPTIED), 0);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_FREED), 0);
	assert_int_equal(recorded(NEAP_EVENT_CLEANUP, &event), 0);
	double small = (double)(6 * MIB) / (double)total;
	must(ask_fraction(&client, small, &reply, &err), &err);
	uint64_t freed = number_of(&reply, 0, NEAP_FIELD_FREED);
	assert_true(freed >= 8 * MIB);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_EMPTIED), 1);
	assert_true(number_of(&reply, 0, NEAP_FIELD_LIMIT_BEFORE) == total / 2);
	assert_true(number_of(&reply, 0, NEAP_FIELD_RESERVED_BEFORE) ==
		    number_of(&reply, 0, NEAP_FIELD_RESERVED) + freed);
	assert_true(number_of(&reply, 0, NEAP_FIELD_FREE) == number_of(&reply, 0, NEAP_FIELD_FREE_BEFORE) + freed);
	assert_true(number_of(&reply, 0, NEAP_FIELD_NANOSECONDS) > 0);
	assert_int_equal(recorded(NEAP_EVENT_CLEANUP, &event), 1);
	assert_true(event.cleanup.freed_bytes == freed && event.cleanup.reason == NEAP_CLEANUP_REQUEST);
	assert_int_equal(neap_malloc(alloc, 8 * MIB, NULL, &block, &err), NEAP_EOOM);
	snprintf(limit, sizeof limit, "limit %.2f MiB", (double)(uint64_t)(small * (double)total) / (double)MIB);
	if (!strstr(err.message, limit))
		fail_msg("'%s' does not say '%s'", err.message, limit);
	/* Any other number is no fraction; the limit in force stays. */
	static const double wrong[] = {0, -0.5, 1.0001, 0.0 / 0.0, 1.0 / 0.0};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(ask_fraction(&client, wrong[i], &reply, &err), NEAP_EINVAL);
	assert_int_equal(neap_client_call(&client, NEAP_REQUEST_FRACTION, NULL, 0, &reply, &err), NEAP_EINVAL);
	assert_true(neap_get_fraction(alloc) == small);
	must(ask_fraction(&client, 1, &reply, &err), &err);
	assert_false(has_number(&reply, 0, NEAP_FIELD_LIMIT, &block));
	neap_free(alloc, take(alloc, 8 * MIB));
	neap_free(alloc, live);
	neap_client_close(&client);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* Nothing may be given back during a graph capture: the request is refused for that device, with the reason, and
 * nothing changes. */
static void capture_refuses_its_part(void **state)
{
	(void)state;
	const struct neap_cuda *cuda = neap_driver_cuda(driver);
	struct neap_client client;
	struct neap_fields reply;
	struct neap_device_guard guard;
	CUstream stream;
	CUgraph graph;
	uint64_t block;
	attach();
	struct neap_alloc *alloc = make_alloc();
	neap_free(alloc, take(alloc, 8 * MIB));
	must(neap_device_enter(device, &guard, NULL), &(struct neap_error){0});
	assert_int_equal(cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(neap_malloc(alloc, MIB, stream, &block, NULL), NEAP_OK);
	assert_int_equal(cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	open_client(&client);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_STATUS), NEAP_ESTATE);
	assert_true(number_of(&reply, 0, NEAP_FIELD_RESERVED) >= 9 * MIB);
	/* A limit still takes effect. */
	must(ask_fraction(&client, 0.01, &reply, &(struct neap_error){0}), &(struct neap_error){0});
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_STATUS), NEAP_ESTATE);
	assert_true(number_of(&reply, 0, NEAP_FIELD_LIMIT) < 9 * MIB);
	assert_true(neap_get_fraction(alloc) == 0.01);
	assert_int_equal(neap_set_fraction(alloc, 1, NULL), NEAP_OK);
	assert_int_equal(cuda->cuStreamEndCapture(stream, &graph), 0);
	cuda->cuGraphDestroy(graph);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	assert_true(number_of(&reply, 0, NEAP_FIELD_FREED) >= 8 * MIB);
	neap_client_close(&client);
	neap_free(alloc, block);
	assert_int_equal(cuda->cuStreamDestroy(stream), 0);
	neap_device_leave(&guard);
	neap_alloc_destroy(alloc);
	neap_detach();
}

static void peaks_are_reset(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	attach();
	struct neap_alloc *alloc = make_alloc();
	neap_free(alloc, take(alloc, 8 * MIB));
	open_client(&client);
	ask(&client, NEAP_REQUEST_RESET_PEAK, 0, &reply);
	assert_true(number_of(&reply, 0, NEAP_FIELD_MAX_ALLOCATED) >= 8 * MIB);
	ask(&client, NEAP_REQUEST_INFO, 0, &reply);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_MAX_ALLOCATED), 0);
	neap_client_close(&client);
	neap_alloc_destroy(alloc);
	neap_detach();
}

static uint64_t release(void *context, bool force)
{
	*(int *)context += force ? 1 : 100;
	return 1000;
}

static void force_calls_the_program(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	static int calls;
	uint64_t bytes = 0;
	attach();
	assert_int_equal(neap_attach_on_clear(NULL, NULL), NEAP_EINVAL);
	for (int i = 0; i < 8; i++)
		assert_int_equal(neap_attach_on_clear(release, &calls), NEAP_OK);
	assert_int_equal(neap_attach_on_clear(release, &calls), NEAP_ENOSPC);
	open_client(&client);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	assert_false(neap_fields_u64(&reply, NEAP_FIELD_CALLBACK_BYTES, &bytes));
	assert_int_equal(calls, 0);
	ask(&client, NEAP_REQUEST_CLEAR, 1, &reply);
	assert_true(neap_fields_u64(&reply, NEAP_FIELD_CALLBACK_BYTES, &bytes) && bytes == 8000);
	assert_int_equal(calls, 8);
	neap_client_close(&client);
	neap_detach();
}

struct worker {
	pthread_t thread;
	int stop;
};

/* Allocators are created, work and are destroyed while requests arrive. */
static void *work(void *argument)
{
	struct worker *worker = argument;
	struct neap_alloc *steady = make_alloc();
	for (int i = 0; !__atomic_load_n(&worker->stop, __ATOMIC_ACQUIRE); i++) {
		uint64_t block = take(steady, 3 * MIB);
		neap_free(steady, block);
		if (i % 8 == 0) {
			struct neap_alloc *brief = make_alloc();
			neap_free(brief, take(brief, MIB));
			neap_alloc_destroy(brief);
		}
	}
	neap_alloc_destroy(steady);
	return NULL;
}

static void asked_while_working(void **state)
{
	(void)state;
	struct worker worker = {0};
	struct neap_client client;
	struct neap_fields reply;
	attach();
	assert_int_equal(pthread_create(&worker.thread, NULL, work, &worker), 0);
	open_client(&client);
	for (int i = 0; i < 40; i++) {
		static const enum neap_request requests[] = {NEAP_REQUEST_CLEAR, NEAP_REQUEST_INFO,
							     NEAP_REQUEST_RESET_PEAK};
		ask(&client, requests[i % 3], 0, &reply);
	}
	neap_client_close(&client);
	neap_detach(); /* in the middle of it */
	attach();
	__atomic_store_n(&worker.stop, 1, __ATOMIC_RELEASE);
	pthread_join(worker.thread, NULL);
	neap_detach();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clear_gives_memory_back),  cmocka_unit_test(fraction_limits),
		cmocka_unit_test(capture_refuses_its_part), cmocka_unit_test(peaks_are_reset),
		cmocka_unit_test(force_calls_the_program),  cmocka_unit_test(asked_while_working),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
