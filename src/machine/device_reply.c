/* machine/device_reply.c: see device_reply.h. */
#include "machine/device_reply.h"

#include "proto/commands.h"
#include "store/json.h"

enum neap_status neap_device_reply_read(const struct neap_fields *reply, size_t n, unsigned needed,
					struct neap_monitor *monitor, struct neap_device_reply *ret_device)
{
	struct neap_device_reply device = {.free_now = NEAP_BYTES_UNKNOWN};
	enum neap_status status = neap_device_answer_read(reply, n, needed, &device.answer);
	if (status)
		return status;
	device.index_known =
		monitor && neap_monitor_find(monitor, device.answer.uuid, &device.index, NULL) == NEAP_OK;
	*ret_device = device;
	return NEAP_OK;
}

json_t *neap_device_reply_json(const struct neap_device_reply *device, unsigned shown)
{
	json_t *object = json_object();
	neap_json_set(object, "index", device->index_known ? neap_json_number(device->index) : json_null());
	neap_json_set(object, "name", neap_json_text(device->answer.name));
	for (size_t i = 0; i < neap_device_figure_count; i++) {
		const struct neap_device_figure *figure = &neap_device_figures[i];
		uint64_t value = neap_device_figure(&device->answer, figure);
		if (!(figure->shown & shown))
			continue;
		neap_json_set(object, figure->name,
			      figure->field == NEAP_FIELD_EMPTIED ? json_boolean(value) : neap_json_known(value));
	}
	return object;
}
