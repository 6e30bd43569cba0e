/* Another allocator in the process, played by the main thread. A second thread is its peer: a client on the agent's
 * own socket. */
#include "neap/neap.h"
#include "proto/client.h"
#include "proto/page.h"
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[64], runtime[80];

struct peer {
	enum neap_request request;
	double fraction; /* 0: not sent */
	bool force;
	pthread_t thread;
	enum neap_status status;
	struct neap_error err;
	struct neap_client client;
	struct neap_fields reply;
};

static void *ask(void *argument)
{
	struct peer *peer = argument;
	unsigned char data[64];
	struct neap_field_writer writer = {.data = data, .capacity = sizeof data};
	neap_write_u64(&writer, NEAP_FIELD_FORCE, peer->force);
	if (peer->fraction > 0)
		neap_write_f64(&writer, NEAP_FIELD_FRACTION, peer->fraction);
	struct neap_deadline deadline = neap_deadline_in(neap_clock_system(), 30 * NEAP_NS_PER_S);
	peer->status = neap_client_open(runtime, getpid(), deadline, &peer->client, &peer->err);
	if (peer->status == NEAP_OK)
		peer->status =
			neap_client_call(&peer->client, peer->request, data, writer.length, &peer->reply, &peer->err);
	return NULL;
}

static void peer_begin(struct peer *peer) { assert_int_equal(pthread_create(&peer->thread, NULL, ask, peer), 0); }

static void peer_end(struct peer *peer)
{
	pthread_join(peer->thread, NULL);
	neap_client_close(&peer->client);
}

/* CLOCK_REALTIME while somebody sets the machine's clock: it is this much ahead. */
static int64_t ahead_s;
int __real_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time)
{
	int result = __real_clock_gettime(id, time);
	if (id == CLOCK_REALTIME)
		time->tv_sec += __atomic_load_n(&ahead_s, __ATOMIC_RELAXED);
	return result;
}

static int attach(void **state)
{
	struct neap_error err = {0};
	(void)state;
	strcpy(folder, "/tmp/neap-external-XXXXXX");
	assert_non_null(mkdtemp(folder));
	setenv("XDG_RUNTIME_DIR", folder, 1);
	snprintf(runtime, sizeof runtime, "%s/neap", folder);
	assert_int_equal(neap_attach(&err), NEAP_OK);
	return 0;
}

static int detach(void **state)
{
	char command[128];
	(void)state;
	neap_external_close();
	neap_detach();
	snprintf(command, sizeof command, "rm -rf %s", folder);
	return system(command);
}

static struct neap_device_answer a_device(void)
{
	struct neap_device_answer device = {.uuid = {1, 2, 3},
					    .ordinal = 1,
					    .total = 1000,
					    .allocated = 100,
					    .reserved = 150,
					    .max_allocated = 400,
					    .max_reserved = 500,
					    .allocated_before = 120,
					    .reserved_before = 450,
					    .free_before = UINT64_MAX,
					    .free = 700,
					    .limit_before = UINT64_MAX,
					    .limit = 800,
					    .freed = 300,
					    .nanoseconds = 5,
					    .name = "A device"};
	return device;
}

static void test_clear(void **state)
{
	struct peer peer = {.request = NEAP_REQUEST_CLEAR, .force = true};
	struct neap_external_request request;
	struct neap_device_answer device = a_device();
	struct neap_error err = {0};
	struct neap_fields group;
	const void *bytes;
	size_t length;
	uint64_t value = 0;
	(void)state;
	assert_int_equal(neap_external_open("", &err), NEAP_EINVAL);
	assert_int_equal(neap_external_open("PyTorch", &err), NEAP_OK);
	assert_int_equal(neap_external_next(0, &request, &err), NEAP_ETIMEDOUT);
	peer_begin(&peer);
	assert_int_equal(neap_external_next(20000, &request, &err), NEAP_OK);
	assert_int_equal(request.kind, NEAP_EXTERNAL_CLEAR);
	assert_int_equal(request.force, 1);
	assert_int_equal(neap_external_begin(request.id + 1, &err), NEAP_ESTATE);
	assert_int_equal(neap_external_begin(request.id, &err), NEAP_OK);
	assert_int_equal(neap_external_begin(request.id, &err), NEAP_ESTATE);
	assert_int_equal(neap_external_answer(request.id, NEAP_OK, NULL, &device, 17, &err), NEAP_EINVAL);
	assert_int_equal(neap_external_answer(request.id, NEAP_OK, "one\n\ntwo", &device, 1, &err), NEAP_OK);
	assert_int_equal(neap_external_answer(request.id, NEAP_OK, NULL, &device, 1, &err), NEAP_ESTATE);
	pthread_join(peer.thread, NULL);
	assert_int_equal(peer.status, NEAP_OK);
	assert_true(neap_fields_bytes(&peer.reply, NEAP_FIELD_LINE, 1, &bytes, &length));
	assert_int_equal(length, 3);
	assert_memory_equal(bytes, "two", 3);
	assert_false(neap_fields_bytes(&peer.reply, NEAP_FIELD_LINE, 2, &bytes, &length));
	assert_true(neap_fields_bytes(&peer.reply, NEAP_FIELD_DEVICE, 0, &bytes, &length));
	assert_int_equal(neap_fields_open(bytes, length, &group, &err), NEAP_OK);
	assert_true(neap_fields_u64(&group, NEAP_FIELD_FREED, &value));
	assert_int_equal(value, 300);
	assert_true(neap_fields_u64(&group, NEAP_FIELD_RESERVED_BEFORE, &value));
	assert_int_equal(value, 450);
	assert_false(neap_fields_u64(&group, NEAP_FIELD_FREE_BEFORE, &value)); /* not known */
	neap_client_close(&peer.client);
}

static void test_fraction_refused(void **state)
{
	struct peer peer = {.request = NEAP_REQUEST_FRACTION, .fraction = 0.25};
	struct neap_external_request request;
	struct neap_error err = {0};
	(void)state;
	assert_int_equal(neap_external_open("PyTorch", &err), NEAP_OK);
	peer_begin(&peer);
	assert_int_equal(neap_external_next(20000, &request, &err), NEAP_OK);
	assert_true(request.kind == NEAP_EXTERNAL_FRACTION && request.fraction == 0.25);
	assert_int_equal(neap_external_answer(request.id, NEAP_ESTATE, "a graph is being captured", NULL, 0, &err),
			 NEAP_OK);
	peer_end(&peer);
	assert_int_equal(peer.status, NEAP_ESTATE);
	assert_non_null(strstr(peer.err.message, "a graph is being captured"));
}

/* If the clock is set back after a deadline was computed, no wait ends early and none gets longer. */
static void test_clock_is_set(void **state)
{
	struct peer peer = {.request = NEAP_REQUEST_RESET_PEAK};
	struct neap_external_request request;
	struct neap_error err = {0};
	(void)state;
	assert_int_equal(neap_external_open("PyTorch", &err), NEAP_OK);
	__atomic_store_n(&ahead_s, -3600, __ATOMIC_RELAXED);
	peer_begin(&peer);
	assert_int_equal(neap_external_next(20000, &request, &err), NEAP_OK);
	assert_int_equal(neap_external_begin(request.id, &err), NEAP_OK);
	assert_int_equal(neap_external_answer(request.id, NEAP_OK, NULL, NULL, 0, &err), NEAP_OK);
	peer_end(&peer);
	assert_int_equal(peer.status, NEAP_OK);
	__atomic_store_n(&ahead_s, 3600, __ATOMIC_RELAXED);
	assert_int_equal(neap_external_next(1, &request, &err), NEAP_ETIMEDOUT); /* not an hour later */
	__atomic_store_n(&ahead_s, 0, __ATOMIC_RELAXED);
}

/* A request that was taken but not begun when the program closes is withdrawn; the peer reads "busy". Without an
 * allocator the agent answers as if there had never been one.
 */
static void test_withdrawn(void **state)
{
	struct peer peer = {.request = NEAP_REQUEST_RESET_PEAK}, after = {.request = NEAP_REQUEST_RESET_PEAK};
	struct neap_external_request request;
	struct neap_error err = {0};
	(void)state;
	assert_int_equal(neap_external_open("PyTorch", &err), NEAP_OK);
	peer_begin(&peer);
	assert_int_equal(neap_external_next(20000, &request, &err), NEAP_OK);
	neap_external_close();
	peer_end(&peer);
	assert_int_equal(peer.status, NEAP_EBUSY);
	assert_non_null(strstr(peer.err.message, "PyTorch is busy"));
	assert_int_equal(neap_external_begin(request.id, &err), NEAP_ESTATE);
	assert_int_equal(neap_external_next(20000, &request, &err), NEAP_ECANCELED);
	peer_begin(&after);
	peer_end(&after);
	assert_int_equal(after.status, NEAP_OK);
}

/* A detach does not wait for a request that stays unanswered. */
static void test_detach_withdraws(void **state)
{
	struct peer peer = {.request = NEAP_REQUEST_CLEAR};
	struct neap_external_request request;
	struct neap_error err = {0};
	(void)state;
	assert_int_equal(neap_external_open("PyTorch", &err), NEAP_OK);
	peer_begin(&peer);
	assert_int_equal(neap_external_next(20000, &request, &err), NEAP_OK);
	assert_int_equal(neap_external_begin(request.id, &err), NEAP_OK);
	neap_detach();
	peer_end(&peer);
	assert_int_not_equal(peer.status, NEAP_OK);
	assert_int_equal(neap_external_answer(request.id, NEAP_OK, NULL, NULL, 0, &err), NEAP_ESTATE);
}

static void test_publish(void **state)
{
	struct neap_published counters = {.limit_bytes = UINT64_MAX};
	struct neap_attached attached;
	struct neap_error err = {0};
	(void)state;
	assert_int_equal(neap_external_publish(&counters, &err), NEAP_EINVAL);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned device = 1; device <= 2; device++) {
			counters.device_uuid[0] = (unsigned char)device;
			counters.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current =
				100 * device + round;
			assert_int_equal(neap_external_publish(&counters, &err), NEAP_OK);
		}
	}
	neap_attach_note("a note");
	assert_int_equal(neap_page_read(runtime, getpid(), &attached, &err), NEAP_OK);
	assert_int_equal(attached.device_count, 2);
	assert_int_equal(attached.devices[1].stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current, 201);
	assert_string_equal(attached.note, "a note");
	neap_detach();
	assert_int_equal(neap_external_publish(&counters, &err), NEAP_ESTATE);
}

/* A child has neither the page nor the external allocator of its parent, but may register its own. */
static void test_fork(void **state)
{
	struct neap_external_request request;
	struct neap_published counters = {.device_uuid = {1}};
	struct neap_error err = {0};
	int status = -1;
	(void)state;
	assert_int_equal(neap_external_open("PyTorch", &err), NEAP_OK);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool closed = neap_external_next(0, &request, &err) == NEAP_ECANCELED;
		bool unattached = neap_external_publish(&counters, &err) == NEAP_ESTATE;
		bool own = neap_external_open("PyTorch", &err) == NEAP_OK;
#ifndef __SANITIZE_THREAD__ /* the thread sanitizer lets no forked child start a thread */
		own = own && neap_attach(&err) == NEAP_OK && neap_external_publish(&counters, &err) == NEAP_OK;
#endif
		neap_detach();
		_exit(closed && unattached && own ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(neap_external_next(0, &request, &err), NEAP_ETIMEDOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_clear, attach, detach),
		cmocka_unit_test_setup_teardown(test_fraction_refused, attach, detach),
		cmocka_unit_test_setup_teardown(test_clock_is_set, attach, detach),
		cmocka_unit_test_setup_teardown(test_withdrawn, attach, detach),
		cmocka_unit_test_setup_teardown(test_detach_withdraws, attach, detach),
		cmocka_unit_test_setup_teardown(test_publish, attach, detach),
		cmocka_unit_test_setup_teardown(test_fork, attach, detach),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
