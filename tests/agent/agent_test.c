/* See agent_test.h. */
#include "agent_test.h"

#include "proto/page.h"
#include "trace/record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char base[64], folder[80];
struct neap_driver *driver;
struct neap_device *device;

void path_in(char text[128], const char *suffix) { snprintf(text, 128, "%s/%d%s", folder, (int)getpid(), suffix); }

bool exists(const char *suffix)
{
	char path[128];
	path_in(path, suffix);
	return access(path, F_OK) == 0;
}

void must(enum neap_status status, const struct neap_error *err)
{
	if (status)
		fail_msg("%s: %s", neap_status_name(status), err->message);
}

struct neap_alloc *make_alloc(void)
{
	struct neap_alloc *alloc = NULL;
	struct neap_error err = {0};
	must(neap_alloc_create(device, NULL, &alloc, &err), &err);
	return alloc;
}

uint64_t take(struct neap_alloc *alloc, size_t bytes)
{
	uint64_t address = 0;
	struct neap_error err = {0};
	must(neap_malloc(alloc, bytes, NULL, &address, &err), &err);
	return address;
}

void attach(void)
{
	struct neap_error err = {0};
	must(neap_attach(&err), &err);
	assert_int_equal(neap_attach_state(&err), NEAP_OK);
}

void ask(struct neap_client *client, enum neap_request request, uint64_t force, struct neap_fields *ret_reply)
{
	unsigned char data[32];
	struct neap_field_writer writer = {.data = data, .capacity = sizeof data};
	struct neap_error err = {0};
	neap_write_u64(&writer, NEAP_FIELD_FORCE, force);
	must(neap_client_call(client, request, data, writer.length, ret_reply, &err), &err);
}

enum neap_status ask_fraction(struct neap_client *client, double fraction, struct neap_fields *ret_reply,
			      struct neap_error *err)
{
	unsigned char data[32];
	struct neap_field_writer writer = {.data = data, .capacity = sizeof data};
	neap_write_f64(&writer, NEAP_FIELD_FRACTION, fraction);
	return neap_client_call(client, NEAP_REQUEST_FRACTION, data, writer.length, ret_reply, err);
}

void open_client(struct neap_client *client)
{
	struct neap_error err = {0};
	struct neap_deadline deadline = neap_deadline_in(neap_clock_system(), 60 * NEAP_NS_PER_S);
	must(neap_client_open(folder, getpid(), deadline, client, &err), &err);
}

bool has_number(const struct neap_fields *reply, size_t device_index, unsigned field, uint64_t *ret_value)
{
	const void *bytes;
	size_t length;
	struct neap_fields group;
	assert_true(neap_fields_bytes(reply, NEAP_FIELD_DEVICE, device_index, &bytes, &length));
	assert_int_equal(neap_fields_open(bytes, length, &group, NULL), NEAP_OK);
	return neap_fields_u64(&group, field, ret_value);
}

uint64_t number_of(const struct neap_fields *reply, size_t device_index, unsigned field)
{
	uint64_t value = 0;
	if (!has_number(reply, device_index, field, &value))
		fail_msg("field %u is missing", field);
	return value;
}

int64_t page_reserved(void)
{
	static struct neap_attached attached;
	struct neap_published published;
	struct neap_error err = {0};
	must(neap_page_read(folder, getpid(), &attached, &err), &err);
	if (!neap_attached_device(&attached, neap_device_info(device)->uuid, &published))
		return -1;
	return published.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current;
}

size_t recorded(uint16_t kind, struct neap_event *ret_event)
{
	static struct neap_record record;
	char path[128];
	struct neap_error err = {0};
	size_t count = 0;
	path_in(path, ".record");
	must(neap_record_read(path, &record, &err), &err);
	for (size_t i = 0; i < record.journal_count; i++) {
		if (record.journal[i].kind != kind)
			continue;
		*ret_event = record.journal[i];
		count++;
	}
	neap_record_fini(&record);
	return count;
}

int set_up(void **state)
{
	(void)state;
	char world[128];
	strcpy(base, "/tmp/neap-test-attach-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	snprintf(folder, sizeof folder, "%s/neap", base);
	setenv("XDG_RUNTIME_DIR", base, 1);
	snprintf(world, sizeof world, "mem=256MiB,world=attach-%d", (int)getpid());
	setenv("NEAP_SIM", world, 1);
	setenv("NEAP_DEVICE", "sim", 1);
	unsetenv("NEAP_ATTACH");
	unsetenv("NEAP_RUN_DIR");
	unsetenv("NEAP_RUN_ID");
	struct neap_error err = {0};
	if (neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err) != NEAP_OK ||
	    neap_device_open(driver, 0, &device, &err) != NEAP_OK) {
		print_error("%s\n", err.message);
		return -1;
	}
	return 0;
}

int tear_down(void **state)
{
	(void)state;
	char path[128];
	neap_device_close(device);
	neap_driver_close(driver);
	path_in(path, ".record");
	unlink(path);
	rmdir(folder);
	return rmdir(base);
}
