/* cli/device_reply.c: an agent may be of another version, or be no agent: every field is checked. */
#include "cli/device_reply.h"
#include "cli/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool has_needed(const struct neap_fields *fields, const unsigned *needed, size_t count)
{
	uint64_t value;
	for (size_t i = 0; i < count; i++)
		if (!neap_fields_u64(fields, needed[i], &value))
			return false;
	return true;
}

static void read_numbers(const struct neap_fields *fields, struct device_reply *device)
{
	const struct {
		unsigned number;
		uint64_t *value;
	} numbers[] = {
		{NEAP_FIELD_ORDINAL, &device->ordinal},
		{NEAP_FIELD_TOTAL, &device->total},
		{NEAP_FIELD_LIMIT_BEFORE, &device->limit_before},
		{NEAP_FIELD_LIMIT, &device->limit},
		{NEAP_FIELD_ALLOCATED, &device->allocated},
		{NEAP_FIELD_RESERVED, &device->reserved},
		{NEAP_FIELD_MAX_ALLOCATED, &device->max_allocated},
		{NEAP_FIELD_MAX_RESERVED, &device->max_reserved},
		{NEAP_FIELD_ALLOCATED_BEFORE, &device->allocated_before},
		{NEAP_FIELD_RESERVED_BEFORE, &device->reserved_before},
		{NEAP_FIELD_RESERVED_NOW, &device->reserved_now},
		{NEAP_FIELD_EMPTIED, &device->emptied},
		{NEAP_FIELD_FREED, &device->freed},
		{NEAP_FIELD_NANOSECONDS, &device->nanoseconds},
		{NEAP_FIELD_FREE_BEFORE, &device->free_before},
		{NEAP_FIELD_FREE, &device->free},
		{NEAP_FIELD_STATUS, &device->status},
	};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		neap_fields_u64(fields, numbers[i].number, numbers[i].value);
}

enum neap_status device_reply_read(const struct neap_fields *reply, size_t n, const unsigned *needed,
				   size_t needed_count, struct neap_monitor *monitor, struct device_reply *ret_device)
{
	struct device_reply device = {
		.free_before = NEAP_BYTES_UNKNOWN, .free = NEAP_BYTES_UNKNOWN, .free_now = NEAP_BYTES_UNKNOWN};
	struct neap_fields fields;
	const void *bytes;
	size_t length;
	if (!neap_fields_bytes(reply, NEAP_FIELD_DEVICE, n, &bytes, &length))
		return NEAP_ENOENT;
	if (neap_fields_open(bytes, length, &fields, NULL) != NEAP_OK || !has_needed(&fields, needed, needed_count))
		return NEAP_EPROTO;
	read_numbers(&fields, &device);
	if (!neap_fields_bytes(&fields, NEAP_FIELD_UUID, 0, &bytes, &length) || length != sizeof device.uuid)
		return NEAP_EPROTO;
	memcpy(device.uuid, bytes, sizeof device.uuid);
	neap_fields_string(&fields, NEAP_FIELD_NAME, device.name, sizeof device.name);
	neap_fields_string(&fields, NEAP_FIELD_ERROR, device.error, sizeof device.error);
	device.index_known = monitor && neap_monitor_find(monitor, device.uuid, &device.index, NULL) == NEAP_OK;
	*ret_device = device;
	return NEAP_OK;
}

bool device_reply_line(const struct neap_fields *reply, size_t n, char ret_line[DEVICE_REPLY_LINE])
{
	const void *bytes;
	size_t length;
	if (!neap_fields_bytes(reply, NEAP_FIELD_LINE, n, &bytes, &length))
		return false;
	snprintf(ret_line, DEVICE_REPLY_LINE, "%.*s",
		 (int)(length < DEVICE_REPLY_LINE ? length : DEVICE_REPLY_LINE - 1), (const char *)bytes);
	return true;
}

void device_reply_print_title(const struct device_reply *device)
{
	if (device->index_known)
		printf("GPU %zu: %s\n", device->index, NEAP_PRINTABLE(device->name));
	else
		printf("CUDA device %" PRIu64 ": %s\n", device->ordinal, NEAP_PRINTABLE(device->name));
}
