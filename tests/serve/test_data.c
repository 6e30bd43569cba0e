/* The points of `neap serve`, from made-up samples: a device that can no longer be read. */
#include "base/error.h"
#include "machine/sample.h"
#include "serve/data.h"

#include "support/test.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 2

static size_t found;   /* devices in the next sample */
static bool fails;     /* it */
static uint64_t bytes; /* allocated on each device */

size_t __wrap_neap_monitor_device_count(const struct neap_monitor *monitor);
size_t __wrap_neap_monitor_device_count(const struct neap_monitor *monitor)
{
	(void)monitor;
	return DEVICES;
}

enum neap_status neap_sample_take(struct neap_monitor *monitor, const char *folder, struct neap_sample *ret_sample,
				  struct neap_error *err)
{
	(void)monitor, (void)folder;
	if (fails)
		return neap_fail(err, NEAP_EIO, "a device is lost");
	*ret_sample = (struct neap_sample){.devices = calloc(DEVICES, sizeof(struct neap_sample_device)),
					   .device_count = found};
	assert_non_null(ret_sample->devices);
	for (size_t d = 0; d < found; d++)
		ret_sample->devices[d].ledger.allocated = bytes;
	return NEAP_OK;
}

void neap_sample_who(struct neap_sample *sample) { (void)sample; }

json_t *neap_sample_json(const struct neap_sample *sample, uint64_t wall_ns)
{
	(void)sample, (void)wall_ns;
	return json_object();
}

void neap_sample_fini(struct neap_sample *sample)
{
	free(sample->devices);
	*sample = (struct neap_sample){0};
}

static void look_times(struct neap_serve_data *data, size_t times)
{
	for (size_t i = 0; i < times; i++)
		(void)neap_serve_data_sample(data, NULL);
}

/* How many points of the device have this much allocated. */
static size_t points_of(struct neap_serve_data *data, size_t device, const char *allocated)
{
	struct neap_serve_reply reply;
	char head[64], part[64];
	size_t count = 0;
	neap_serve_data_answer(data, "/api/history", &reply);
	assert_non_null(reply.text);
	assert_null(strstr(reply.text, "[,"));
	assert_null(strstr(reply.text, ",]"));
	snprintf(head, sizeof head, "{\"index\":%zu,", device);
	snprintf(part, sizeof part, ",0,0,%s,0,", allocated);
	char *from = strstr(reply.text, head), *end = from ? strstr(from, "]}") : NULL;
	assert_non_null(end);
	*end = '\0';
	for (; (from = strstr(from, part)); from++)
		count++;
	free(reply.text);
	return count;
}

static void points_of_a_device_that_is_gone(void **state)
{
	struct neap_serve_data *data = NULL;
	struct neap_error err;
	(void)state;
	assert_int_equal(neap_serve_data_create(NULL, "", 1000000, &data, &err), NEAP_OK);
	found = DEVICES;
	bytes = 7;
	look_times(data, NEAP_SERVE_POINTS + 10);
	assert_int_equal(points_of(data, 1, "7"), NEAP_SERVE_POINTS);
	/* One device is gone, the other is not. */
	found = 1;
	bytes = 8;
	look_times(data, 1);
	assert_int_equal(points_of(data, 0, "7"), NEAP_SERVE_POINTS - 1);
	assert_int_equal(points_of(data, 0, "8"), 1);
	assert_int_equal(points_of(data, 1, "7"), NEAP_SERVE_POINTS - 1);
	look_times(data, NEAP_SERVE_POINTS - 1);
	assert_int_equal(points_of(data, 0, "8"), NEAP_SERVE_POINTS);
	assert_int_equal(points_of(data, 1, "7"), 0);
	/* None can be read. */
	fails = true;
	look_times(data, NEAP_SERVE_POINTS - 1);
	assert_int_equal(points_of(data, 0, "8"), 1);
	look_times(data, 1);
	assert_int_equal(points_of(data, 0, "8"), 0);
	fails = false;
	found = DEVICES;
	look_times(data, 1);
	assert_int_equal(points_of(data, 1, "8"), 1);
	neap_serve_data_destroy(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(points_of_a_device_that_is_gone)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
