/* cli/look.c: readings of NVML and pages of attached processes, brought together. */
#include "cli/look.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/process.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 8
/* Between tries, doubled each time up to the second: a process in the middle of an operation needs a processor to end
 * it. */
#define PAUSE_NS      NEAP_NS_PER_MS
#define PAUSE_MOST_NS (16 * NEAP_NS_PER_MS)

void look_name(pid_t pid, char ret_name[64])
{
	struct neap_process process;
	ret_name[0] = '\0';
	if (!neap_process_read(pid, &process, NULL))
		neap_printable(ret_name, 64, process.command);
}

const char *look_backend_name(enum neap_backend backend) { return backend == NEAP_BACKEND_SIM ? "sim" : "cuda"; }

static uint64_t magnitude(int64_t value) { return value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value; }

static bool uses(const struct neap_attached *attached, const unsigned char uuid[16])
{
	for (size_t i = 0; i < attached->device_count; i++)
		if (memcmp(attached->devices[i].device_uuid, uuid, 16) == 0)
			return true;
	return false;
}

/* The account of one device, from a reading made now and the pages as they were a moment ago. */
static enum neap_status account(struct neap_monitor *monitor, size_t index, const struct neap_attached *attached,
				size_t attached_count, struct look_device *ret_device, struct neap_error *err)
{
	struct look_device device = {0};
	struct neap_ledger_attached *publishers = NULL;
	struct neap_ledger_process *accounts = NULL;
	size_t publisher_count = 0, users = 0;
	enum neap_status status = neap_monitor_read(monitor, index, &device.reading, err);
	if (status)
		return status;
	for (size_t i = 0; i < attached_count; i++)
		users += uses(&attached[i], device.reading.uuid);
	size_t room = device.reading.process_count + users + 1;
	publishers = calloc(users + 1, sizeof *publishers); /* large ones */
	accounts = calloc(room, sizeof *accounts);
	device.processes = calloc(room, sizeof *device.processes);
	if (!publishers || !accounts || !device.processes) {
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
		goto out;
	}
	for (size_t i = 0; i < attached_count && publisher_count < users; i++) {
		struct neap_ledger_attached *publisher = &publishers[publisher_count];
		publisher->pid = attached[i].pid;
		publisher_count += neap_attached_device(&attached[i], device.reading.uuid, &publisher->published);
	}
	neap_ledger_compute(&device.reading, publishers, publisher_count, &device.ledger, accounts,
			    &device.process_count);
	for (size_t i = 0; i < device.process_count; i++)
		device.processes[i].account = accounts[i];
	*ret_device = device;
	device.processes = NULL;
out:
	free(device.processes);
	free(publishers);
	free(accounts);
	return status;
}

/* Processes that hold a context where they have nothing, while they work elsewhere. */
static void find_stray(struct look *look, struct look_process *process)
{
	for (size_t i = 0; i < look->attached_count && !process->account.attached; i++) {
		struct neap_published published;
		if (look->attached[i].pid != process->account.pid)
			continue;
		for (size_t d = 0; d < look->device_count && !process->stray; d++) {
			if (!neap_attached_device(&look->attached[i], look->devices[d].reading.uuid, &published))
				continue;
			process->stray = neap_ledger_context_sized(process->account.bytes, published.context_bytes);
			process->stray_from = d;
		}
	}
}

static enum neap_status look_once(struct neap_monitor *monitor, const char *runtime_folder, struct look *ret_look,
				  struct neap_error *err)
{
	struct look look = {.backend = neap_monitor_backend(monitor)};
	size_t count = neap_monitor_device_count(monitor);
	enum neap_status status = neap_page_list(runtime_folder, &look.attached, &look.attached_count, err);
	if (!status && !(look.devices = calloc(count + 1, sizeof *look.devices)))
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (; !status && look.device_count < count; look.device_count++) {
		struct look_device *device = &look.devices[look.device_count];
		status = account(monitor, look.device_count, look.attached, look.attached_count, device, err);
		if (status)
			break;
	}
	for (size_t d = 0; !status && d < look.device_count; d++)
		for (size_t p = 0; p < look.devices[d].process_count; p++)
			find_stray(&look, &look.devices[d].processes[p]);
	*ret_look = look;
	return status;
}

int64_t look_other(const struct look_device *device)
{
	int64_t other = 0;
	for (size_t i = 0; i < device->process_count; i++)
		other += device->processes[i].account.other;
	return other;
}

static uint64_t unexplained(const struct look *look)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < look->device_count; i++)
		sum += magnitude(look->devices[i].ledger.unexplained - look_other(&look->devices[i]));
	return sum;
}

enum neap_status look_take(struct neap_monitor *monitor, const char *runtime_folder, struct look *ret_look,
			   struct neap_error *err)
{
	enum neap_status status = look_once(monitor, runtime_folder, ret_look, err);
	uint64_t pause_ns = PAUSE_NS;
	for (int tries = 1; !status && tries < TRIES && unexplained(ret_look) != 0; tries++) {
		struct look again;
		neap_clock_sleep(neap_clock_system(), pause_ns);
		pause_ns = pause_ns < PAUSE_MOST_NS ? 2 * pause_ns : PAUSE_MOST_NS;
		status = look_once(monitor, runtime_folder, &again, err);
		if (!status && unexplained(&again) < unexplained(ret_look)) {
			struct look worse = *ret_look;
			*ret_look = again;
			again = worse;
		}
		look_fini(&again);
	}
	return status;
}

/* What was read of the process on an earlier device. */
static const struct who *who_before(const struct look *look, size_t device, pid_t pid)
{
	for (size_t d = 0; d < device; d++)
		for (size_t p = 0; p < look->devices[d].process_count && !look->devices[d].left_out; p++)
			if (look->devices[d].processes[p].account.pid == pid)
				return &look->devices[d].processes[p].who;
	return NULL;
}

void look_who(struct look *look)
{
	const struct who *last = NULL;
	for (size_t d = 0; d < look->device_count; d++) {
		for (size_t p = 0; p < look->devices[d].process_count && !look->devices[d].left_out; p++) {
			struct look_process *process = &look->devices[d].processes[p];
			const struct who *before = who_before(look, d, process->account.pid);
			if (before)
				process->who = *before;
			else
				who_read(process->account.pid, last, &process->who);
			last = &process->who;
		}
	}
}

void look_fini(struct look *look)
{
	for (size_t i = 0; i < look->device_count; i++)
		free(look->devices[i].processes);
	free(look->devices);
	free(look->attached);
	*look = (struct look){0};
}
