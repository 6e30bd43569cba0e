/* kill/work_json.c: see work.h. */
#include "kill/work.h"

#include "store/json_rows.h"

#include <signal.h>

#define SCHEMA 1

static json_t *target_json(const struct neap_kill_work *work, size_t index)
{
	const struct neap_kill_target *target = &work->plan.targets[index];
	json_t *devices = json_array();
	int number = work->ended ? work->ended[index].ended_by : 0;
	for (size_t i = 0; i < work->sample.device_count; i++) {
		uint64_t bytes = neap_kill_bytes(&work->sample.devices[i], target->process.pid);
		if (bytes == 0)
			continue;
		neap_json_add(devices, JSON(NUMBER("device", i), KNOWN("bytes", bytes)));
	}
	return JSON(INTEGER("pid", target->process.pid), INTEGER("parent", target->process.parent),
		    INTEGER("depth", target->depth), TEXT("name", target->process.command), VALUE("devices", devices),
		    ONLY(number, TEXT("ended_by", number == SIGKILL ? "SIGKILL" : "SIGTERM")));
}

static json_t *device_json(const struct neap_kill_work *work, size_t index)
{
	const struct neap_kill_device *device = &work->devices[index];
	return JSON(NUMBER("device", index), TEXT("uuid", work->sample.devices[index].reading.uuid_text),
		    ONLY(!device->held_unknown, KNOWN("held_bytes", device->held_bytes)),
		    KNOWN("used_before_bytes", device->before.used_bytes),
		    ONLY(work->ended, KNOWN("used_after_bytes", device->after.used_bytes)),
		    ONLY(work->ended && !device->held_unknown, KNOWN("returned_bytes", neap_kill_returned(device))),
		    ONLY(work->ended, KNOWN("left_bytes", device->left_bytes)));
}

static json_t *refused_json(const struct neap_kill_refused *refused)
{
	return JSON(INTEGER("pid", refused->process.pid), GIVEN("name", refused->process.command),
		    TEXT("why", neap_kill_refusal_name(refused->why)));
}

json_t *neap_kill_json(const struct neap_kill_work *work)
{
	json_t *targets = json_array(), *refused = json_array(), *devices = json_array();
	for (size_t i = 0; i < work->plan.target_count; i++)
		neap_json_add(targets, target_json(work, i));
	for (size_t i = 0; i < work->plan.refused_count; i++)
		neap_json_add(refused, refused_json(&work->plan.refused[i]));
	for (size_t i = 0; i < work->sample.device_count; i++)
		if (work->devices[i].touched)
			neap_json_add(devices, device_json(work, i));
	return JSON(INTEGER("schema", SCHEMA), BOOL("dry_run", work->dry_run), VALUE("processes", targets),
		    VALUE("refused", refused), VALUE("devices", devices),
		    ONLY(work->ended, NUMBER("drain_ns", work->drain_ns)));
}
