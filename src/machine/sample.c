/* machine/sample.c: combines NVML's readings and the statistics pages of attached processes. */
#include "machine/sample.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/process.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 8
/* The pause between tries; it doubles each time, up to PAUSE_MOST_NS. A process in the middle of an operation needs a
 * processor to finish it. */
#define PAUSE_NS      NEAP_NS_PER_MS
#define PAUSE_MOST_NS (16 * NEAP_NS_PER_MS)

void neap_sample_name(pid_t pid, char ret_name[64])
{
	struct neap_process process;
	ret_name[0] = '\0';
	if (!neap_process_read(pid, &process, NULL))
		neap_printable(ret_name, 64, process.command);
}

const char *neap_sample_backend_name(enum neap_backend backend)
{
	return backend == NEAP_BACKEND_SIM ? "sim" : "cuda";
}

static uint64_t magnitude(int64_t value) { return value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value; }

static bool uses(const struct neap_attached *attached, const unsigned char uuid[16])
{
	for (size_t i = 0; i < attached->device_count; i++)
		if (memcmp(attached->devices[i].device_uuid, uuid, 16) == 0)
			return true;
	return false;
}

/* Reads one device, and computes its account from this reading and the pages, which were read a moment ago. */
static enum neap_status account(struct neap_monitor *monitor, size_t index, const struct neap_attached *attached,
				size_t attached_count, struct neap_sample_device *ret_device, struct neap_error *err)
{
	struct neap_sample_device device = {0};
	struct neap_ledger_attached *publishers = NULL;
	struct neap_ledger_process *accounts = NULL;
	size_t publisher_count = 0, users = 0;
	enum neap_status status = neap_monitor_read(monitor, index, &device.reading, err);
	if (status)
		return status;
	for (size_t i = 0; i < attached_count; i++)
		users += uses(&attached[i], device.reading.uuid);
	size_t capacity = device.reading.process_count + users + 1;
	publishers = calloc(users + 1, sizeof *publishers); /* large ones */
	accounts = calloc(capacity, sizeof *accounts);
	device.processes = calloc(capacity, sizeof *device.processes);
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

/* Marks a process as stray if it holds only a context on this device and has an allocator on another. */
static void find_stray(struct neap_sample *sample, struct neap_sample_process *process)
{
	for (size_t i = 0; i < sample->attached_count && !process->account.attached; i++) {
		struct neap_published published;
		if (sample->attached[i].pid != process->account.pid)
			continue;
		for (size_t d = 0; d < sample->device_count && !process->stray; d++) {
			if (!neap_attached_device(&sample->attached[i], sample->devices[d].reading.uuid, &published))
				continue;
			process->stray = neap_ledger_context_sized(process->account.bytes, published.context_bytes);
			process->stray_from = d;
		}
	}
}

static enum neap_status sample_once(struct neap_monitor *monitor, const char *runtime_folder,
				    struct neap_sample *ret_sample, struct neap_error *err)
{
	struct neap_sample sample = {.backend = neap_monitor_backend(monitor)};
	size_t count = neap_monitor_device_count(monitor);
	enum neap_status status = neap_page_list(runtime_folder, &sample.attached, &sample.attached_count, err);
	if (!status && !(sample.devices = calloc(count + 1, sizeof *sample.devices)))
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (; !status && sample.device_count < count; sample.device_count++) {
		struct neap_sample_device *device = &sample.devices[sample.device_count];
		status = account(monitor, sample.device_count, sample.attached, sample.attached_count, device, err);
		if (status)
			break;
	}
	for (size_t d = 0; !status && d < sample.device_count; d++)
		for (size_t p = 0; p < sample.devices[d].process_count; p++)
			find_stray(&sample, &sample.devices[d].processes[p]);
	*ret_sample = sample;
	return status;
}

int64_t neap_sample_other(const struct neap_sample_device *device)
{
	int64_t other = 0;
	for (size_t i = 0; i < device->process_count; i++)
		other += device->processes[i].account.other;
	return other;
}

static uint64_t unexplained(const struct neap_sample *sample)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < sample->device_count; i++)
		sum += magnitude(sample->devices[i].ledger.unexplained - neap_sample_other(&sample->devices[i]));
	return sum;
}

enum neap_status neap_sample_take(struct neap_monitor *monitor, const char *runtime_folder,
				  struct neap_sample *ret_sample, struct neap_error *err)
{
	enum neap_status status = sample_once(monitor, runtime_folder, ret_sample, err);
	uint64_t pause_ns = PAUSE_NS;
	for (int tries = 1; !status && tries < TRIES && unexplained(ret_sample) != 0; tries++) {
		struct neap_sample again;
		neap_clock_sleep(neap_clock_system(), pause_ns);
		pause_ns = pause_ns < PAUSE_MOST_NS ? 2 * pause_ns : PAUSE_MOST_NS;
		status = sample_once(monitor, runtime_folder, &again, err);
		if (!status && unexplained(&again) < unexplained(ret_sample)) {
			struct neap_sample worse = *ret_sample;
			*ret_sample = again;
			again = worse;
		}
		neap_sample_fini(&again);
	}
	return status;
}

/* The process's `who`, if it was read for an earlier device, else NULL. */
static const struct neap_who *who_before(const struct neap_sample *sample, size_t device, pid_t pid)
{
	for (size_t d = 0; d < device; d++)
		for (size_t p = 0; p < sample->devices[d].process_count && !sample->devices[d].left_out; p++)
			if (sample->devices[d].processes[p].account.pid == pid)
				return &sample->devices[d].processes[p].who;
	return NULL;
}

void neap_sample_who(struct neap_sample *sample)
{
	const struct neap_who *last = NULL;
	for (size_t d = 0; d < sample->device_count; d++) {
		for (size_t p = 0; p < sample->devices[d].process_count && !sample->devices[d].left_out; p++) {
			struct neap_sample_process *process = &sample->devices[d].processes[p];
			const struct neap_who *before = who_before(sample, d, process->account.pid);
			if (before)
				process->who = *before;
			else
				neap_who_read(process->account.pid, last, &process->who);
			last = &process->who;
		}
	}
}

const struct neap_published *neap_sample_next_unlisted(const struct neap_sample *sample,
						       const struct neap_attached *attached, size_t *cursor)
{
	while (*cursor < attached->device_count) {
		const struct neap_published *published = &attached->devices[(*cursor)++];
		bool listed = false;
		for (size_t d = 0; d < sample->device_count; d++)
			listed |= memcmp(sample->devices[d].reading.uuid, published->device_uuid, 16) == 0;
		if (!listed)
			return published;
	}
	return NULL;
}

uint64_t neap_sample_reserved(const struct neap_published *published)
{
	int64_t bytes = published->stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current;
	return bytes > 0 ? (uint64_t)bytes : 0;
}

uint64_t neap_sample_not_attached(const struct neap_ledger_process *account)
{
	return account->attached || account->bytes == NEAP_BYTES_UNKNOWN ? 0 : account->bytes;
}

const char *neap_sample_command(const struct neap_sample_process *process)
{
	return process->who.command[0] ? process->who.command : "?";
}

static int by_number(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

/* Unknown values come last. */
static uint64_t rank(uint64_t value) { return value == UINT64_MAX ? 0 : value; }

static int by_memory(const void *a, const void *b)
{
	const struct neap_sample_process *one = a, *other = b;
	return by_number(rank(other->account.bytes), rank(one->account.bytes));
}

static int by_pid(const void *a, const void *b)
{
	const struct neap_sample_process *one = a, *other = b;
	return by_number((uint64_t)one->account.pid, (uint64_t)other->account.pid);
}

static int by_time(const void *a, const void *b)
{
	const struct neap_sample_process *one = a, *other = b;
	return by_number(rank(other->who.run_ns), rank(one->who.run_ns));
}

static int by_user(const void *a, const void *b)
{
	const struct neap_sample_process *one = a, *other = b;
	int order = strcmp(one->who.user, other->who.user);
	return order ? order : by_memory(a, b);
}

static int by_name(const void *a, const void *b)
{
	const struct neap_sample_process *one = a, *other = b;
	int order = strcmp(neap_sample_command(one), neap_sample_command(other));
	return order ? order : by_pid(a, b);
}

bool neap_sample_sort(struct neap_sample *sample, const char *key)
{
	static const struct {
		const char *key;
		int (*compare)(const void *, const void *);
	} orders[] = {
		{"memory", by_memory}, {"pid", by_pid}, {"time", by_time}, {"user", by_user}, {"name", by_name}};
	for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
		if (strcmp(orders[i].key, key) != 0)
			continue;
		for (size_t d = 0; d < sample->device_count; d++)
			qsort(sample->devices[d].processes, sample->devices[d].process_count,
			      sizeof *sample->devices[d].processes, orders[i].compare);
		return true;
	}
	return false;
}

void neap_sample_fini(struct neap_sample *sample)
{
	for (size_t i = 0; i < sample->device_count; i++)
		free(sample->devices[i].processes);
	free(sample->devices);
	free(sample->attached);
	*sample = (struct neap_sample){0};
}
