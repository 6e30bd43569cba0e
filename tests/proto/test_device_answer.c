/* proto/device_answer.h: the reader reads each figure as it was written. */
#include "proto/commands.h"
#include "proto/device_answer.h"
#include "support/test.h"

#include <string.h>

static unsigned char data[4096];

static struct neap_fields written(const struct neap_device_answer *device)
{
	struct neap_field_writer writer = {.data = data, .capacity = sizeof data};
	struct neap_fields fields;
	neap_device_answer_write(&writer, device);
	assert_false(writer.overflow);
	assert_int_equal(neap_fields_open(data, writer.length, &fields, NULL), NEAP_OK);
	return fields;
}

/* Every figure differs from the others. */
static struct neap_device_answer an_answer(void)
{
	struct neap_device_answer device = {.uuid = "0123456789abcde", .name = "A device"};
	for (size_t i = 0; i < neap_device_figure_count; i++)
		memcpy((char *)&device + neap_device_figures[i].offset, &(uint64_t){1000 + i}, sizeof(uint64_t));
	return device;
}

static void test_round_trip(void **state)
{
	struct neap_device_answer device = an_answer(), read;
	(void)state;
	struct neap_fields fields = written(&device);
	assert_int_equal(neap_device_answer_read(&fields, 0, NEAP_SHOWN_LIMITED, &read), NEAP_OK);
	assert_memory_equal(&read, &device, sizeof device);
	assert_int_equal(neap_device_answer_read(&fields, 1, 0, &read), NEAP_ENOENT);

	device.status = NEAP_ESTATE;
	snprintf(device.message, sizeof device.message, "a graph is being captured");
	fields = written(&device);
	assert_int_equal(neap_device_answer_read(&fields, 0, 0, &read), NEAP_OK);
	assert_memory_equal(&read, &device, sizeof device);
}

/* Each figure left out: it reads as unknown or 0, or the answer is malformed. */
static void test_missing(void **state)
{
	(void)state;
	for (size_t i = 0; i < neap_device_figure_count; i++) {
		const struct neap_device_figure *figure = &neap_device_figures[i];
		struct neap_device_answer device = an_answer(), read = {0};
		memset((char *)&device + figure->offset, 0xff, sizeof(uint64_t));
		struct neap_fields fields = written(&device);
		assert_int_equal(neap_device_answer_read(&fields, 0, 0, &read), NEAP_OK);
		assert_true(neap_device_figure(&read, figure) == figure->absent);
		bool needed = figure->shown & NEAP_SHOWN_LIMITED && figure->absent == 0;
		assert_int_equal(neap_device_answer_read(&fields, 0, NEAP_SHOWN_LIMITED, &read),
				 needed ? NEAP_EPROTO : NEAP_OK);
	}
	struct neap_device_answer none;
	neap_device_answer_init(&none);
	struct neap_fields fields = written(&none), group;
	const void *bytes;
	size_t length;
	uint64_t value;
	assert_true(neap_fields_bytes(&fields, NEAP_FIELD_DEVICE, 0, &bytes, &length));
	assert_int_equal(neap_fields_open(bytes, length, &group, NULL), NEAP_OK);
	for (unsigned field = 0; field < 100; field++)
		assert_false(neap_fields_u64(&group, field, &value));
}

static void test_malformed(void **state)
{
	struct neap_field_writer writer = {.data = data, .capacity = sizeof data};
	struct neap_device_answer read;
	struct neap_fields fields;
	(void)state;
	neap_write_bytes(&writer, NEAP_FIELD_DEVICE, "no fields", 9);
	size_t group = neap_write_group_begin(&writer, NEAP_FIELD_DEVICE);
	neap_write_bytes(&writer, NEAP_FIELD_UUID, "short", 5);
	neap_write_group_end(&writer, group);
	assert_int_equal(neap_fields_open(data, writer.length, &fields, NULL), NEAP_OK);
	assert_int_equal(neap_device_answer_read(&fields, 0, 0, &read), NEAP_EPROTO);
	assert_int_equal(neap_device_answer_read(&fields, 1, 0, &read), NEAP_EPROTO);
	assert_int_equal(neap_device_answer_read(&fields, 2, 0, &read), NEAP_ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_malformed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
