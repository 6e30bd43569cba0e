/* machine/sample_json.c: see sample.h. */
#include "machine/sample.h"

#include "store/json_rows.h"

#define SCHEMA 1

static json_t *ledger_json(const struct neap_ledger *ledger)
{
	return JSON(KNOWN("driver_reserved", ledger->driver_reserved), KNOWN("contexts", ledger->contexts),
		    KNOWN("allocated", ledger->allocated), KNOWN("cached", ledger->cached),
		    KNOWN("not_attached", ledger->not_attached), INTEGER("unexplained", ledger->unexplained),
		    KNOWN("free", ledger->free), KNOWN("total", ledger->total));
}

/* The note of an attached process about its settings; "": none. */
static const char *note_of(const struct neap_sample *sample, pid_t pid)
{
	for (size_t i = 0; i < sample->attached_count; i++)
		if (sample->attached[i].pid == pid)
			return sample->attached[i].note;
	return "";
}

static json_t *process_json(const struct neap_sample_process *process, size_t device, const char *note)
{
	const struct neap_ledger_process *account = &process->account;
	return JSON(INTEGER("pid", account->pid), KNOWN("device", device), GIVEN("name", process->who.name),
		    GIVEN("user", process->who.user), KNOWN("run_time_ns", process->who.run_ns),
		    GIVEN("command", process->who.command), BOOL("attached", account->attached),
		    KNOWN("bytes", account->bytes), KNOWN("contexts", account->context),
		    KNOWN("allocated", account->allocated), KNOWN("cached", account->cached),
		    KNOWN("not_attached", neap_sample_not_attached(account)), INTEGER("unexplained", account->other),
		    BOOL("stray_context", process->stray), GIVEN("note", note));
}

static json_t *device_json(const struct neap_sample_device *device, size_t index)
{
	const struct neap_reading *reading = &device->reading;
	return JSON(KNOWN("index", index), TEXT("uuid", reading->uuid_text), TEXT("name", reading->name),
		    TEXT("pci_bus_id", reading->pci_bus_id),
		    KNOWN("utilization_percent", reading->utilization_percent),
		    BOOL("processes_known", reading->processes_known && !reading->processes_truncated),
		    BOOL("unified_memory", reading->unified), VALUE("ledger", ledger_json(&device->ledger)));
}

json_t *neap_sample_json(const struct neap_sample *sample, uint64_t wall_ns)
{
	json_t *devices = json_array(), *processes = json_array(), *unlisted = json_array();
	for (size_t i = 0; i < sample->device_count; i++) {
		const struct neap_sample_device *device = &sample->devices[i];
		if (device->left_out)
			continue;
		neap_json_add(devices, device_json(device, i));
		for (size_t p = 0; p < device->process_count; p++)
			neap_json_add(processes, process_json(&device->processes[p], i,
							      note_of(sample, device->processes[p].account.pid)));
	}
	for (size_t i = 0; i < sample->attached_count; i++) {
		const struct neap_published *published;
		for (size_t cursor = 0;
		     (published = neap_sample_next_unlisted(sample, &sample->attached[i], &cursor));)
			neap_json_add(unlisted, JSON(INTEGER("pid", sample->attached[i].pid),
						     KNOWN("reserved", neap_sample_reserved(published))));
	}
	return JSON(INTEGER("schema", SCHEMA), KNOWN("time_ns", wall_ns),
		    TEXT("backend", neap_sample_backend_name(sample->backend)), VALUE("devices", devices),
		    VALUE("processes", processes), VALUE("unlisted", unlisted));
}
