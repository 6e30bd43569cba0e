/* kill/work.c: see work.h.
 *
 * The driver may list PIDs of another namespace (in a container it lists the host's). So a PID from its list counts
 * only if the process with that PID here has mapped the CUDA driver. A process that the user chose by its PID, or
 * that is attached, needs no such proof.
 */
#include "kill/work.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "device/drain.h"
#include "kill/end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_NS (50 * NEAP_NS_PER_MS)

uint64_t neap_kill_bytes(const struct neap_sample_device *device, pid_t pid)
{
	for (size_t i = 0; i < device->process_count; i++) {
		const struct neap_ledger_process *account = &device->processes[i].account;
		if (account->pid != pid)
			continue;
		if (account->bytes == NEAP_BYTES_UNKNOWN && account->attached)
			return account->context + account->allocated + account->cached;
		return account->bytes;
	}
	return 0;
}

uint64_t neap_kill_held(const struct neap_kill_work *work)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < work->sample.device_count; i++)
		sum += work->devices[i].held_bytes;
	return sum;
}

uint64_t neap_kill_left(const struct neap_kill_work *work)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < work->sample.device_count; i++)
		sum += work->devices[i].left_bytes;
	return sum;
}

uint64_t neap_kill_returned(const struct neap_kill_device *device)
{
	return device->held_bytes > device->left_bytes ? device->held_bytes - device->left_bytes : 0;
}

size_t neap_kill_alive(const struct neap_kill_work *work)
{
	size_t count = 0;
	for (size_t i = 0; work->ended && i < work->plan.target_count; i++)
		count += work->ended[i].ended_by == 0;
	return count;
}

/* Whether this process has mapped the CUDA driver. True also if its maps cannot be read: the plan refuses it anyway,
 * as another user's. */
static bool uses_cuda(pid_t pid)
{
	char path[64], *line = NULL;
	size_t capacity = 0;
	bool found = false;
	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		return true;
	while (!found && getline(&line, &capacity, maps) >= 0)
		found = strstr(line, "/libcuda.") != NULL;
	free(line);
	fclose(maps);
	return found;
}

/* Makes the choices of --device and --mine: the processes that the sample lists. `ret_choices` has room for all. */
static size_t choose_listed(const struct neap_sample *sample, size_t device, bool mine,
			    struct neap_kill_choice *ret_choices)
{
	size_t count = 0;
	for (size_t d = 0; d < sample->device_count; d++) {
		if (!mine && d != device)
			continue;
		for (size_t p = 0; p < sample->devices[d].process_count; p++) {
			const struct neap_ledger_process *account = &sample->devices[d].processes[p].account;
			struct neap_process process;
			bool there = neap_process_read(account->pid, &process, NULL) == NEAP_OK;
			bool unseen = !account->attached && (!there || !uses_cuda(account->pid));
			if (mine && (unseen || !there || process.uid != getuid()))
				continue;
			ret_choices[count++] = (struct neap_kill_choice){account->pid, unseen};
		}
	}
	return count;
}

static enum neap_status find_device(const struct neap_sample *sample, const char *text, size_t *ret_index,
				    struct neap_error *err)
{
	uint64_t index = 0;
	if (neap_u64_parse(text, &index, NULL) == NEAP_OK && index < sample->device_count) {
		*ret_index = (size_t)index;
		return NEAP_OK;
	}
	for (size_t i = 0; strncmp(text, "GPU-", 4) == 0 && i < sample->device_count; i++) {
		if (strncmp(sample->devices[i].reading.uuid_text, text, strlen(text)) == 0) {
			*ret_index = i;
			return NEAP_OK;
		}
	}
	return neap_fail(err, NEAP_ENOENT, "no device '%.60s': give an index below %zu, or a UUID", text,
			 sample->device_count);
}

enum neap_status neap_kill_work_plan(struct neap_kill_work *work, const struct neap_kill_wanted *wanted,
				     struct neap_error *err)
{
	size_t capacity = wanted->pid_count + 1, count = 0, device = 0;
	for (size_t i = 0; i < work->sample.device_count; i++)
		capacity += work->sample.devices[i].process_count;
	enum neap_status status = NEAP_OK;
	if (!wanted->pids + !wanted->device + !wanted->mine != 2)
		return neap_fail(err, NEAP_EINVAL, "name processes, or a device, or all of this user's: one of them");
	struct neap_kill_choice *choices = calloc(capacity, sizeof *choices);
	if (!choices)
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	if (!status && wanted->device)
		status = find_device(&work->sample, wanted->device, &device, err);
	if (!status && wanted->pids)
		for (; count < wanted->pid_count; count++)
			choices[count].pid = wanted->pids[count];
	else if (!status)
		count = choose_listed(&work->sample, device, wanted->mine, choices);
	/* read after the list: a process that ended in between is refused as gone, and a new one is not chosen */
	if (!status)
		status = neap_kill_plan_now(choices, count, &work->plan, err);
	free(choices);
	return status;
}

/* Before the first signal, adds the figures of a target's own page to the driver's list. So memory that a target
 * still holds later differs from memory that no process accounted for. */
static void account_target(struct neap_kill_device *device, pid_t pid, uint64_t bytes)
{
	struct neap_reading *before = &device->before;
	uint64_t listed = 0;
	for (size_t i = 0; i < before->process_count; i++) {
		if (before->processes[i].pid == pid) {
			before->processes[i].bytes = bytes;
			return;
		}
		if (before->processes[i].bytes != NEAP_BYTES_UNKNOWN)
			listed += before->processes[i].bytes;
	}
	bool hidden = before->used_bytes >= listed && before->used_bytes - listed >= bytes;
	if (hidden && before->process_count < NEAP_READING_PROCESSES) {
		before->processes_known = true;
		before->processes[before->process_count++] = (struct neap_reading_process){pid, bytes};
	}
}

enum neap_status neap_kill_work_account(struct neap_kill_work *work, struct neap_error *err)
{
	free(work->devices);
	work->devices = calloc(work->sample.device_count + 1, sizeof *work->devices);
	if (!work->devices)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (size_t d = 0; d < work->sample.device_count; d++) {
		struct neap_kill_device *device = &work->devices[d];
		device->before = device->after = work->sample.devices[d].reading;
		for (size_t i = 0; i < work->plan.target_count; i++) {
			pid_t pid = work->plan.targets[i].process.pid;
			uint64_t bytes = neap_kill_bytes(&work->sample.devices[d], pid);
			device->touched = device->touched || bytes > 0;
			if (bytes == NEAP_BYTES_UNKNOWN)
				device->held_unknown = true;
			else if (bytes > 0)
				device->held_bytes += bytes;
			if (bytes > 0 && bytes != NEAP_BYTES_UNKNOWN)
				account_target(device, pid, bytes);
		}
		if (!device->before.processes_known)
			device->touched = device->held_unknown = work->plan.target_count > 0;
	}
	return NEAP_OK;
}

/* Reads the devices until all memory is back or the time is over. */
static enum neap_status watch_memory(struct neap_kill_work *work, struct neap_monitor *monitor, const pid_t *pids,
				     uint64_t limit_ns, struct neap_error *err)
{
	const struct neap_clock *clock = neap_clock_system();
	uint64_t start_ns = neap_clock_now(clock);
	for (;;) {
		for (size_t i = 0; i < work->sample.device_count; i++) {
			struct neap_kill_device *device = &work->devices[i];
			if (!device->touched)
				continue;
			enum neap_status status = neap_monitor_read(monitor, i, &device->after, err);
			if (status)
				return status;
			device->left_bytes =
				neap_drain_left(&device->before, &device->after, pids, work->plan.target_count);
		}
		work->drain_ns = neap_clock_now(clock) - start_ns;
		if (neap_kill_left(work) == 0 || work->drain_ns >= limit_ns)
			return NEAP_OK;
		uint64_t rest_ns = limit_ns - work->drain_ns;
		neap_clock_sleep(clock, rest_ns < POLL_NS ? rest_ns : POLL_NS);
	}
}

enum neap_status neap_kill_work_end(struct neap_kill_work *work, struct neap_monitor *monitor,
				    uint64_t drain_limit_ns, struct neap_error *err)
{
	pid_t *pids = NULL;
	enum neap_status status = neap_kill_end(work, err);
	if (status && !work->ended)
		return status;
	if (!status && !(pids = calloc(work->plan.target_count + 1, sizeof *pids)))
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (size_t i = 0; !status && i < work->plan.target_count; i++)
		pids[i] = work->ended[i].process.pid;
	if (!status)
		status = watch_memory(work, monitor, pids, drain_limit_ns, err);
	if (status)
		neap_error_prefix(err, "the processes were signalled; whether the memory is back is not known");
	free(pids);
	return status;
}

void neap_kill_work_fini(struct neap_kill_work *work)
{
	neap_kill_plan_fini(&work->plan);
	neap_sample_fini(&work->sample);
	free(work->devices);
	free(work->ended);
	*work = (struct neap_kill_work){0};
}
