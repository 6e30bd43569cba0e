/* machine/look_json.c: see look_json.h. */
#include "machine/look_json.h"

#include "store/json.h"

#define SCHEMA 1

static json_t *ledger_json(const struct neap_ledger *ledger)
{
	json_t *object = json_object();
	neap_json_set(object, "driver_reserved", neap_json_known(ledger->driver_reserved));
	neap_json_set(object, "contexts", neap_json_known(ledger->contexts));
	neap_json_set(object, "allocated", neap_json_known(ledger->allocated));
	neap_json_set(object, "cached", neap_json_known(ledger->cached));
	neap_json_set(object, "not_attached", neap_json_known(ledger->not_attached));
	neap_json_set(object, "unexplained", json_integer(ledger->unexplained));
	neap_json_set(object, "free", neap_json_known(ledger->free));
	neap_json_set(object, "total", neap_json_known(ledger->total));
	return object;
}

/* The note of an attached process about its settings; "": none. */
static const char *note_of(const struct neap_look *look, pid_t pid)
{
	for (size_t i = 0; i < look->attached_count; i++)
		if (look->attached[i].pid == pid)
			return look->attached[i].note;
	return "";
}

static json_t *process_json(const struct neap_look_process *process, size_t device, const char *note)
{
	const struct neap_ledger_process *account = &process->account;
	json_t *object = json_object();
	neap_json_set(object, "pid", json_integer(account->pid));
	neap_json_set(object, "device", neap_json_known(device));
	neap_json_set(object, "name", process->who.name[0] ? neap_json_text(process->who.name) : json_null());
	neap_json_set(object, "user", process->who.user[0] ? neap_json_text(process->who.user) : json_null());
	neap_json_set(object, "run_time_ns", neap_json_known(process->who.run_ns));
	neap_json_set(object, "command",
		      process->who.command[0] ? neap_json_text(process->who.command) : json_null());
	neap_json_set(object, "attached", json_boolean(account->attached));
	neap_json_set(object, "bytes", neap_json_known(account->bytes));
	neap_json_set(object, "contexts", neap_json_known(account->context));
	neap_json_set(object, "allocated", neap_json_known(account->allocated));
	neap_json_set(object, "cached", neap_json_known(account->cached));
	neap_json_set(object, "not_attached", neap_json_known(neap_look_not_attached(account)));
	neap_json_set(object, "unexplained", json_integer(account->other));
	neap_json_set(object, "stray_context", json_boolean(process->stray));
	neap_json_set(object, "note", note[0] ? neap_json_text(note) : json_null());
	return object;
}

static json_t *device_json(const struct neap_look_device *device, size_t index)
{
	const struct neap_reading *reading = &device->reading;
	json_t *object = json_object();
	neap_json_set(object, "index", neap_json_known(index));
	neap_json_set(object, "uuid", neap_json_text(reading->uuid_text));
	neap_json_set(object, "name", neap_json_text(reading->name));
	neap_json_set(object, "pci_bus_id", neap_json_text(reading->pci_bus_id));
	neap_json_set(object, "utilization_percent",
		      reading->utilization_percent < 0 ? json_null() : json_integer(reading->utilization_percent));
	neap_json_set(object, "processes_known",
		      json_boolean(reading->processes_known && !reading->processes_truncated));
	neap_json_set(object, "unified_memory", json_boolean(reading->unified));
	neap_json_set(object, "ledger", ledger_json(&device->ledger));
	return object;
}

json_t *neap_look_json(const struct neap_look *look, uint64_t wall_ns)
{
	json_t *root = json_object(), *devices = json_array(), *processes = json_array(), *unlisted = json_array();
	for (size_t i = 0; i < look->device_count; i++) {
		const struct neap_look_device *device = &look->devices[i];
		if (device->left_out)
			continue;
		neap_json_add(devices, device_json(device, i));
		for (size_t p = 0; p < device->process_count; p++)
			neap_json_add(processes, process_json(&device->processes[p], i,
							      note_of(look, device->processes[p].account.pid)));
	}
	for (size_t i = 0; i < look->attached_count; i++) {
		const struct neap_published *published;
		for (size_t cursor = 0; (published = neap_look_next_unlisted(look, &look->attached[i], &cursor));) {
			json_t *one = json_object();
			neap_json_set(one, "pid", json_integer(look->attached[i].pid));
			neap_json_set(one, "reserved", neap_json_known(neap_look_reserved(published)));
			neap_json_add(unlisted, one);
		}
	}
	neap_json_set(root, "schema", json_integer(SCHEMA));
	neap_json_set(root, "time_ns", neap_json_known(wall_ns));
	neap_json_set(root, "backend", json_string(neap_look_backend_name(look->backend)));
	neap_json_set(root, "devices", devices);
	neap_json_set(root, "processes", processes);
	neap_json_set(root, "unlisted", unlisted);
	return root;
}
