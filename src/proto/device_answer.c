/* proto/device_answer.c: see device_answer.h. An answer comes from a process that may be of another version, or no
 * agent: every field is checked. */
#include "proto/device_answer.h"

#include "proto/commands.h"

#include <stddef.h>
#include <string.h>

#define HELD    NEAP_SHOWN_HELD
#define CLEARED NEAP_SHOWN_CLEARED
#define LIMITED NEAP_SHOWN_LIMITED

#define FIGURE(member, FIELD, absent, shown)                                                                         \
	{                                                                                                            \
#member, NEAP_FIELD_##FIELD, offsetof(struct neap_device_answer, member), absent, shown              \
	}

const struct neap_device_figure neap_device_figures[] = {
	FIGURE(ordinal, ORDINAL, 0, HELD | CLEARED | LIMITED),
	FIGURE(total, TOTAL, 0, LIMITED),
	FIGURE(limit_before, LIMIT_BEFORE, UINT64_MAX, LIMITED),
	FIGURE(limit, LIMIT, UINT64_MAX, LIMITED),
	FIGURE(allocated_before, ALLOCATED_BEFORE, 0, CLEARED),
	FIGURE(allocated, ALLOCATED, 0, HELD | CLEARED | LIMITED),
	FIGURE(max_allocated, MAX_ALLOCATED, 0, HELD | CLEARED),
	FIGURE(reserved_before, RESERVED_BEFORE, 0, CLEARED | LIMITED),
	FIGURE(reserved, RESERVED, 0, HELD | CLEARED | LIMITED),
	FIGURE(reserved_now, RESERVED_NOW, 0, CLEARED | LIMITED),
	FIGURE(max_reserved, MAX_RESERVED, 0, HELD | CLEARED),
	FIGURE(free_before, FREE_BEFORE, UINT64_MAX, CLEARED | LIMITED),
	FIGURE(free, FREE, UINT64_MAX, CLEARED | LIMITED),
	FIGURE(emptied, EMPTIED, 0, LIMITED),
	FIGURE(freed, FREED, 0, CLEARED | LIMITED),
	FIGURE(nanoseconds, NANOSECONDS, 0, CLEARED | LIMITED),
};
const size_t neap_device_figure_count = sizeof neap_device_figures / sizeof *neap_device_figures;

static uint64_t *slot(struct neap_device_answer *device, const struct neap_device_figure *figure)
{
	return (uint64_t *)((char *)device + figure->offset);
}

void neap_device_answer_init(struct neap_device_answer *device)
{
	*device = (struct neap_device_answer){0};
	for (size_t i = 0; i < neap_device_figure_count; i++)
		*slot(device, &neap_device_figures[i]) = UINT64_MAX;
}

void neap_device_answer_write(struct neap_field_writer *writer, const struct neap_device_answer *device)
{
	size_t group = neap_write_group_begin(writer, NEAP_FIELD_DEVICE);
	neap_write_bytes(writer, NEAP_FIELD_UUID, device->uuid, sizeof device->uuid);
	neap_write_string(writer, NEAP_FIELD_NAME, device->name);
	for (size_t i = 0; i < neap_device_figure_count; i++) {
		uint64_t value = neap_device_figure(device, &neap_device_figures[i]);
		if (value != UINT64_MAX)
			neap_write_u64(writer, neap_device_figures[i].field, value);
	}
	if (device->status != NEAP_OK) {
		neap_write_u64(writer, NEAP_FIELD_STATUS, device->status);
		neap_write_string(writer, NEAP_FIELD_ERROR, device->message);
	}
	neap_write_group_end(writer, group);
}

enum neap_status neap_device_answer_read(const struct neap_fields *reply, size_t n, unsigned needed,
					 struct neap_device_answer *ret_device)
{
	struct neap_device_answer device = {0};
	struct neap_fields fields;
	const void *bytes;
	size_t length;
	if (!neap_fields_bytes(reply, NEAP_FIELD_DEVICE, n, &bytes, &length))
		return NEAP_ENOENT;
	if (neap_fields_open(bytes, length, &fields, NULL) != NEAP_OK)
		return NEAP_EPROTO;
	for (size_t i = 0; i < neap_device_figure_count; i++) {
		const struct neap_device_figure *figure = &neap_device_figures[i];
		uint64_t *value = slot(&device, figure);
		*value = figure->absent;
		if (!neap_fields_u64(&fields, figure->field, value) && figure->shown & needed &&
		    figure->absent != UINT64_MAX)
			return NEAP_EPROTO;
	}
	if (!neap_fields_bytes(&fields, NEAP_FIELD_UUID, 0, &bytes, &length) || length != sizeof device.uuid)
		return NEAP_EPROTO;
	memcpy(device.uuid, bytes, sizeof device.uuid);
	neap_fields_string(&fields, NEAP_FIELD_NAME, device.name, sizeof device.name);
	neap_fields_u64(&fields, NEAP_FIELD_STATUS, &device.status);
	neap_fields_string(&fields, NEAP_FIELD_ERROR, device.message, sizeof device.message);
	*ret_device = device;
	return NEAP_OK;
}
