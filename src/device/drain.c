/* device/drain.c: adds up the bytes that the driver lists for a run, each once, and waits until none are left. See
 * the headers. */
#include "device/drain.h"

#include "base/clock.h"
#include "base/error.h"
#include "neap/drain.h"

#include <stdlib.h>
#include <string.h>

#define POLL_NS (50 * NEAP_NS_PER_MS)

static bool among(pid_t pid, const pid_t *pids, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/* Returns the used bytes that the driver lists for no process other than the run's. *ret_run_bytes: those that it
 * lists for the run. */
static uint64_t unlisted(const struct neap_reading *reading, const pid_t *pids, size_t count, uint64_t *ret_run_bytes)
{
	uint64_t others_bytes = 0, run_bytes = 0;
	for (size_t i = 0; reading->processes_known && i < reading->process_count; i++) {
		const struct neap_reading_process *process = &reading->processes[i];
		bool ours = among(process->pid, pids, count);
		uint64_t bytes =
			process->bytes == NEAP_BYTES_UNKNOWN ? (ours ? NEAP_DRAIN_SLACK + 1 : 0) : process->bytes;
		*(ours ? &run_bytes : &others_bytes) += bytes;
	}
	*ret_run_bytes = run_bytes;
	return reading->used_bytes > others_bytes ? reading->used_bytes - others_bytes : 0;
}

uint64_t neap_drain_left(const struct neap_reading *before, const struct neap_reading *now, const pid_t *pids,
			 size_t pid_count)
{
	uint64_t run_before = 0, run_now = 0;
	uint64_t unlisted_before = unlisted(before, NULL, 0, &run_before);
	uint64_t unlisted_now = unlisted(now, pids, pid_count, &run_now);
	/* unlisted_now includes the run's listed bytes: they are part of `used` and belong to no other process */
	uint64_t left = unlisted_now > unlisted_before ? unlisted_now - unlisted_before : 0;
	if (left < run_now)
		left = run_now;
	return left <= NEAP_DRAIN_SLACK ? 0 : left;
}

struct neap_drain {
	struct neap_monitor *monitor;
	size_t device_count;
	struct neap_reading now;
	struct neap_reading before[];
};

enum neap_status neap_drain_begin(struct neap_drain **ret_drain, struct neap_error *err)
{
	struct neap_monitor *monitor = NULL;
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, err);
	if (status)
		return status;
	size_t count = neap_monitor_device_count(monitor);
	struct neap_drain *drain = calloc(1, sizeof *drain + count * sizeof drain->before[0]);
	if (!drain) {
		neap_monitor_close(monitor);
		return neap_fail(err, NEAP_ENOMEM, "no memory for the readings of %zu devices", count);
	}
	drain->monitor = monitor;
	drain->device_count = count;
	for (size_t i = 0; i < count && !status; i++)
		status = neap_monitor_read(monitor, i, &drain->before[i], err);
	if (status) {
		neap_drain_end(&drain);
		return status;
	}
	*ret_drain = drain;
	return NEAP_OK;
}

static bool was_used(const struct neap_drain_ended *ended, const unsigned char uuid[16])
{
	if (!ended->uuids)
		return true;
	for (size_t i = 0; i < ended->uuid_count; i++)
		if (!memcmp(ended->uuids + 16 * i, uuid, 16))
			return true;
	return false;
}

static enum neap_status read_left(struct neap_drain *drain, const struct neap_drain_ended *ended, uint64_t *ret_left,
				  struct neap_error *err)
{
	uint64_t left = 0;
	for (size_t i = 0; i < drain->device_count; i++) {
		if (!was_used(ended, drain->before[i].uuid))
			continue;
		enum neap_status status = neap_monitor_read(drain->monitor, i, &drain->now, err);
		if (status)
			return status;
		left += neap_drain_left(&drain->before[i], &drain->now, ended->pids, ended->pid_count);
	}
	*ret_left = left;
	return NEAP_OK;
}

enum neap_status neap_drain_wait(struct neap_drain *drain, const struct neap_drain_ended *ended,
				 uint64_t *ret_left_bytes, struct neap_error *err)
{
	const struct neap_deadline end = neap_deadline_in_ms(neap_clock_system(), ended->limit_ms);
	uint64_t pause_ns = NEAP_NS_PER_MS, left = 0;
	for (;;) {
		enum neap_status status = read_left(drain, ended, &left, err);
		if (status)
			return status;
		if (!left || neap_deadline_over(&end))
			break;
		neap_clock_sleep(end.clock, pause_ns);
		pause_ns = pause_ns * 2 < POLL_NS ? pause_ns * 2 : POLL_NS;
	}
	*ret_left_bytes = left;
	return NEAP_OK;
}

enum neap_status neap_drain_read(struct neap_drain *drain, struct neap_drain_memory *ret_memory, size_t capacity,
				 size_t *ret_count, struct neap_error *err)
{
	size_t count = drain->device_count < capacity ? drain->device_count : capacity;
	for (size_t i = 0; i < count; i++) {
		enum neap_status status = neap_monitor_memory(drain->monitor, i, &drain->now, err);
		if (status)
			return status;
		ret_memory[i] = (struct neap_drain_memory){drain->now.used_bytes, drain->now.free_bytes};
	}
	*ret_count = count;
	return NEAP_OK;
}

void neap_drain_end(struct neap_drain **drain)
{
	if (!drain || !*drain)
		return;
	neap_monitor_close((*drain)->monitor);
	free(*drain);
	*drain = NULL;
}
