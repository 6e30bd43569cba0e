/* run/observe.c: see observe.h. We read pages of our own user only, but the driver lists every user's processes. A
 * listed process belongs to the run if it descends from the supervisor. In a container the driver may list host PIDs
 * that do not exist here. Then the run's bytes are the growth of the device's use since before the start.
 */
#include "run/observe.h"

#include "base/error.h"
#include "base/paths.h"
#include "base/process.h"
#include "base/units.h"
#include "device/ledger.h"
#include "run/outsider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH          64
#define OTHERS_AT_ONCE 4 /* devices read in one sample beside the watched one */

static void merge(struct neap_result_sample *into, const struct neap_result_sample *from)
{
	bool known = from->device_bytes != NEAP_BYTES_UNKNOWN;
	bool higher = known && (into->device_bytes == NEAP_BYTES_UNKNOWN || from->device_bytes > into->device_bytes);
	if (higher || (from->device_bytes == into->device_bytes && from->reserved_bytes >= into->reserved_bytes))
		*into = *from;
}

void neap_samples_add(struct neap_samples *samples, const struct neap_result_sample *sample)
{
	if (!samples->each)
		samples->each = 1;
	if (samples->count && samples->inside < samples->each) {
		merge(&samples->items[samples->count - 1], sample);
		samples->inside++;
		return;
	}
	if (samples->count == NEAP_CURVE_POINTS) {
		for (size_t i = 0; i < NEAP_CURVE_POINTS / 2; i++) {
			samples->items[i] = samples->items[2 * i];
			merge(&samples->items[i], &samples->items[2 * i + 1]);
		}
		samples->count /= 2;
		samples->each *= 2;
	}
	samples->items[samples->count++] = *sample;
	samples->inside = 1;
}

static enum neap_status find_device(struct neap_observe *observe, const char *text, struct neap_error *err)
{
	uint64_t index = 0;
	if (!neap_u64_parse(text, &index, NULL)) {
		if (index >= observe->device_count)
			return neap_fail(err, NEAP_ENODEVICE, "there is no device %s: the driver shows %zu", text,
					 observe->device_count);
		observe->watched = (size_t)index;
		return NEAP_OK;
	}
	for (size_t i = 0; *text && i < observe->device_count; i++) {
		if (!neap_monitor_read(observe->monitor, i, &observe->now, NULL) &&
		    !strncmp(observe->now.uuid_text, text, strlen(text))) {
			observe->watched = i;
			return NEAP_OK;
		}
	}
	return neap_fail(err, NEAP_ENODEVICE, "there is no device '%s' (give an index or a UUID)", text);
}

enum neap_status neap_observe_init(struct neap_observe *observe, struct neap_monitor *monitor, const char *device,
				   const char *visible, const char *run_id, struct neap_error *err)
{
	*observe = (struct neap_observe){.monitor = monitor, .supervisor = getpid(), .pinned = device != NULL};
	if (strlen(run_id) >= sizeof observe->run_id)
		return neap_fail(err, NEAP_EINVAL, "run id '%s' is longer than %zu bytes", run_id,
				 sizeof observe->run_id - 1);
	strcpy(observe->run_id, run_id);
	struct neap_error why = {0};
	if (neap_path_runtime_noted(observe->runtime, sizeof observe->runtime, observe->runtime_note, &why))
		snprintf(observe->runtime_note, sizeof observe->runtime_note, "no process can be attached: %s",
			 why.message); /* and `runtime` stays "" */
	observe->device_count = monitor ? neap_monitor_device_count(monitor) : 0;
	observe->before = calloc(observe->device_count + 1, sizeof *observe->before);
	observe->touched = calloc(observe->device_count + 1, sizeof *observe->touched);
	enum neap_status status = NEAP_OK;
	if (!observe->before || !observe->touched)
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while watching devices");
	if (!status && device)
		status = find_device(observe, device, err);
	if (!status && !device && visible) {
		/* "", "-1" and unknown names hide all devices, as in CUDA */
		char first[64];
		size_t length = strcspn(visible, ",");
		memcpy(first, visible, length < sizeof first ? length : sizeof first - 1);
		first[length < sizeof first ? length : sizeof first - 1] = '\0';
		if (find_device(observe, first, NULL))
			observe->watched = observe->device_count;
	}
	if (status)
		neap_observe_fini(observe);
	return status;
}

void neap_observe_fini(struct neap_observe *observe)
{
	if (!observe)
		return;
	free(observe->before);
	free(observe->touched);
	observe->before = NULL;
	observe->touched = NULL;
}

enum neap_status neap_observe_read(struct neap_observe *observe, struct neap_error *err)
{
	if (observe->watched >= observe->device_count)
		return neap_fail(err, NEAP_ENODEVICE, "no device is watched");
	return neap_monitor_read(observe->monitor, observe->watched, &observe->now, err);
}

void neap_observe_start(struct neap_observe *observe, uint64_t now_ns)
{
	for (size_t i = 0; i < observe->device_count; i++) {
		observe->touched[i] = false;
		if (neap_monitor_read(observe->monitor, i, &observe->before[i], NULL))
			observe->before[i].total_bytes = 0;
	}
	if (observe->watched < observe->device_count && observe->before[observe->watched].total_bytes)
		observe->now = observe->before[observe->watched];
	observe->started_ns = now_ns;
	observe->samples.count = observe->samples.each = observe->samples.inside = 0;
	observe->attached_count = observe->pid_count = observe->outsider_count = 0;
	observe->peak_allocated_bytes = observe->peak_reserved_bytes = observe->peak_device_bytes = 0;
	observe->highest_used_bytes = 0;
	observe->run_bytes = NEAP_BYTES_UNKNOWN;
}

static bool is_run_process(const struct neap_observe *observe, pid_t pid)
{
	struct neap_process process = {0};
	for (int depth = 0; depth < DEPTH && pid > 1; depth++) {
		if (pid == observe->supervisor)
			return depth > 0;
		if (neap_process_read(pid, &process, NULL))
			return false;
		pid = process.parent;
	}
	return false;
}

static bool seen(const struct neap_observe *observe, pid_t pid)
{
	for (size_t i = 0; i < observe->pid_count; i++)
		if (observe->pids[i] == pid)
			return true;
	return false;
}

static void note_pid(struct neap_observe *observe, pid_t pid)
{
	if (!seen(observe, pid) && observe->pid_count < NEAP_OBSERVED_PROCESSES)
		observe->pids[observe->pid_count++] = pid;
}

/* Notes the reason when the process is first seen, since it may exit. Most processes are attached a moment later. */
static void note_outsider(struct neap_observe *observe, pid_t pid)
{
	size_t at = observe->outsider_count;
	if (seen(observe, pid) || at == NEAP_OBSERVED_OUTSIDERS)
		return;
	const char *no_runtime = observe->runtime[0] ? NULL : observe->runtime_note;
	if (neap_outsider_describe(pid, no_runtime, observe->outsiders[at].text,
				   sizeof observe->outsiders[at].text)) {
		observe->outsiders[at].pid = pid;
		observe->outsider_count++;
	}
}

/* NULL: there is no free slot. */
static struct neap_observed *observed(struct neap_observe *observe, pid_t pid, uint64_t start_ticks,
				      const char *record_path)
{
	for (size_t i = 0; i < observe->attached_count; i++)
		if (observe->attached[i].pid == pid && observe->attached[i].start_ticks == start_ticks)
			return &observe->attached[i];
	if (observe->attached_count == NEAP_OBSERVED_PROCESSES)
		return NULL;
	struct neap_observed *slot = &observe->attached[observe->attached_count++];
	*slot = (struct neap_observed){.pid = pid, .start_ticks = start_ticks};
	snprintf(slot->record_path, sizeof slot->record_path, "%s", record_path);
	note_pid(observe, pid);
	return slot;
}

static void raise_to(uint64_t *peak, uint64_t value)
{
	if (value != NEAP_BYTES_UNKNOWN && value > *peak)
		*peak = value;
}

static uint64_t positive(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

/* Devices beyond the 64th are ignored: no machine has them. */
static uint64_t device_bit(size_t index) { return index < 64 ? 1ull << index : 0; }

/* An attached process uses this device: watch it from now on, unless the user named one. */
static void take_use(struct neap_observe *observe, struct neap_observed *slot, size_t index, uint64_t context_bytes)
{
	observe->touched[index] = true;
	slot->uses |= device_bit(index);
	if (context_bytes > slot->context_bytes)
		slot->context_bytes = context_bytes;
	if (!observe->pinned) {
		observe->watched = index;
		observe->pinned = true;
	}
}

/* Adds a page's figures to the sample if they are of the watched device (or if no device is known). */
static void take_published(struct neap_observe *observe, const struct neap_published *published,
			   struct neap_observed *slot, struct neap_result_sample *sample)
{
	const struct neap_stat *allocated = &published->stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL];
	const struct neap_stat *reserved = &published->stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL];
	size_t index = observe->device_count;
	slot->ooms += positive(published->stats.num_ooms);
	if (observe->monitor && !neap_monitor_find(observe->monitor, published->device_uuid, &index, NULL))
		take_use(observe, slot, index, published->context_bytes);
	if (index != observe->watched)
		return;
	sample->allocated_bytes += positive(allocated->current);
	sample->reserved_bytes += positive(reserved->current);
	if (positive(allocated->peak) > slot->peak_allocated_bytes)
		slot->peak_allocated_bytes = positive(allocated->peak);
	if (positive(reserved->peak) > slot->peak_reserved_bytes)
		slot->peak_reserved_bytes = positive(reserved->peak);
}

static void take_pages(struct neap_observe *observe, struct neap_result_sample *sample)
{
	struct neap_attached *pages = NULL;
	size_t count = 0;
	for (size_t i = 0; i < observe->attached_count; i++)
		observe->attached[i].ooms_rose = false;
	if (!observe->runtime[0] || neap_page_list(observe->runtime, &pages, &count, NULL))
		return;
	for (size_t i = 0; i < count; i++) {
		struct neap_observed *slot = NULL;
		if (strncmp(pages[i].run_id, observe->run_id, sizeof pages[i].run_id) != 0)
			continue;
		slot = observed(observe, pages[i].pid, pages[i].start_ticks, pages[i].record_path);
		if (!slot)
			continue;
		uint64_t ooms = slot->ooms;
		slot->ooms = 0;
		for (size_t d = 0; d < pages[i].device_count && d < NEAP_PAGE_DEVICES; d++)
			take_published(observe, &pages[i].devices[d], slot, sample);
		if (slot->ooms < ooms) /* the process has destroyed a device's allocator */
			slot->ooms = ooms;
		slot->ooms_rose = slot->ooms > ooms;
	}
	free(pages);
}

/* The driver lists the process on a device: notes it if the process does not use that device. */
static void note_stray(struct neap_observe *observe, size_t index, const struct neap_reading_process *process)
{
	for (size_t i = 0; i < observe->attached_count; i++) {
		struct neap_observed *slot = &observe->attached[i];
		if (slot->pid != process->pid || !slot->uses || slot->uses & device_bit(index) ||
		    !neap_ledger_context_sized(process->bytes, slot->context_bytes))
			continue;
		slot->strays |= device_bit(index);
		slot->stray_bytes = process->bytes;
	}
}

/* Returns the run's bytes on a device: the sum of the driver's figures for its processes; else how much the device's
 * use has grown since before the start; else NEAP_BYTES_UNKNOWN. */
static uint64_t run_bytes(struct neap_observe *observe, size_t index, const struct neap_reading *reading)
{
	uint64_t bytes = 0;
	bool usable = reading->processes_known;
	for (size_t i = 0; reading->processes_known && i < reading->process_count; i++) {
		const struct neap_reading_process *process = &reading->processes[i];
		if (!seen(observe, process->pid) && !is_run_process(observe, process->pid))
			continue;
		note_outsider(observe, process->pid);
		note_pid(observe, process->pid);
		note_stray(observe, index, process);
		observe->touched[index] = true;
		if (process->bytes == NEAP_BYTES_UNKNOWN)
			usable = false;
		else
			bytes += process->bytes;
	}
	if (usable && (bytes || !observe->attached_count))
		return bytes;
	const struct neap_reading *before = &observe->before[index];
	if (!before->total_bytes)
		return NEAP_BYTES_UNKNOWN;
	return reading->used_bytes > before->used_bytes ? reading->used_bytes - before->used_bytes : 0;
}

static void take_other_devices(struct neap_observe *observe)
{
	struct neap_reading other;
	for (size_t i = 0; i < OTHERS_AT_ONCE && i + 1 < observe->device_count; i++) {
		observe->turn = (observe->turn + 1) % observe->device_count;
		if (observe->turn != observe->watched &&
		    !neap_monitor_read(observe->monitor, observe->turn, &other, NULL))
			run_bytes(observe, observe->turn, &other);
	}
}

void neap_observe_take(struct neap_observe *observe, uint64_t now_ns)
{
	struct neap_result_sample sample = {.time_ns = now_ns - observe->started_ns,
					    .device_bytes = NEAP_BYTES_UNKNOWN};
	take_pages(observe, &sample);
	if (!neap_observe_read(observe, NULL)) {
		sample.device_bytes = run_bytes(observe, observe->watched, &observe->now);
		raise_to(&observe->highest_used_bytes, observe->now.used_bytes);
	}
	observe->run_bytes = sample.device_bytes;
	if (observe->run_bytes == NEAP_BYTES_UNKNOWN && sample.reserved_bytes)
		observe->run_bytes = sample.reserved_bytes;
	take_other_devices(observe);
	raise_to(&observe->peak_allocated_bytes, sample.allocated_bytes);
	raise_to(&observe->peak_reserved_bytes, sample.reserved_bytes);
	raise_to(&observe->peak_device_bytes, sample.device_bytes);
	neap_samples_add(&observe->samples, &sample);
}

static bool is_attached(const struct neap_observe *observe, pid_t pid)
{
	for (size_t i = 0; i < observe->attached_count; i++)
		if (observe->attached[i].pid == pid)
			return true;
	return false;
}

bool neap_observe_met(const struct neap_observe *observe, pid_t pid)
{
	for (size_t i = 0; i < observe->attached_count; i++)
		if (observe->attached[i].pid == pid && observe->attached[i].uses)
			return true;
	return false;
}

static size_t find_read(const struct neap_observe *observe, const char *uuid_text)
{
	size_t index = 0;
	while (index < observe->device_count &&
	       (!observe->before[index].total_bytes || strcmp(observe->before[index].uuid_text, uuid_text) != 0))
		index++;
	return index;
}

void neap_observe_recorded(struct neap_observe *observe, const struct neap_record *record, const char *path)
{
	struct neap_observed *slot = observed(observe, (pid_t)record->pid, record->start_ticks, path);
	if (!slot)
		return;
	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event_page *page = neap_event_as_page(&record->journal[i]);
		if (!page)
			continue;
		size_t index = find_read(observe, neap_record_name(record, page->device_uuid));
		if (index < observe->device_count)
			take_use(observe, slot, index, page->context_bytes);
		if (index != observe->watched)
			continue;
		raise_to(&slot->peak_allocated_bytes, page->peak_allocated_bytes);
		raise_to(&slot->peak_reserved_bytes, page->peak_reserved_bytes);
	}
	if (observe->monitor) /* another device may be watched now */
		neap_observe_read(observe, NULL);
}

uint64_t neap_observe_left(struct neap_observe *observe)
{
	uint64_t left = 0;
	for (size_t i = 0; i < observe->device_count; i++) {
		struct neap_reading reading;
		if ((i != observe->watched && !observe->touched[i]) || !observe->before[i].total_bytes ||
		    neap_monitor_read(observe->monitor, i, &reading, NULL))
			continue;
		left += neap_drain_left(&observe->before[i], &reading, observe->pids, observe->pid_count);
		if (i == observe->watched)
			observe->now = reading;
	}
	return left;
}

void neap_observe_peaks(const struct neap_observe *observe, uint64_t *ret_allocated_bytes,
			uint64_t *ret_reserved_bytes)
{
	uint64_t allocated_bytes = observe->peak_allocated_bytes, reserved_bytes = observe->peak_reserved_bytes;
	for (size_t i = 0; i < observe->attached_count; i++) {
		raise_to(&allocated_bytes, observe->attached[i].peak_allocated_bytes);
		raise_to(&reserved_bytes, observe->attached[i].peak_reserved_bytes);
	}
	*ret_allocated_bytes = allocated_bytes;
	*ret_reserved_bytes = reserved_bytes;
}

uint64_t neap_observe_peak_device(const struct neap_observe *observe, uint64_t peak_reserved_bytes)
{
	uint64_t peak_bytes = observe->peak_device_bytes, context_bytes = UINT64_MAX;
	if (observe->watched >= observe->device_count || !observe->attached_count || !peak_reserved_bytes)
		return peak_bytes;
	for (size_t i = 0; i < observe->attached_count; i++)
		if (observe->attached[i].context_bytes < context_bytes)
			context_bytes = observe->attached[i].context_bytes;
	if (context_bytes > observe->now.total_bytes)
		context_bytes = 0;
	raise_to(&peak_bytes, peak_reserved_bytes + context_bytes);
	return peak_bytes;
}

void neap_observe_strays(const struct neap_observe *observe, struct neap_buffer *out)
{
	char size[NEAP_UNITS_CAPACITY];
	for (size_t i = 0; i < observe->attached_count; i++) {
		const struct neap_observed *slot = &observe->attached[i];
		for (size_t d = 0; d < observe->device_count; d++) {
			if (!(slot->strays & ~slot->uses & device_bit(d)))
				continue;
			bool known = slot->stray_bytes != NEAP_BYTES_UNKNOWN;
			neap_buffer_format(
				out, "%sprocess %d held a context%s%s on GPU %zu (%s) and allocated nothing there",
				out->length ? "; " : "", (int)slot->pid, known ? " of " : "",
				known ? neap_size_format(slot->stray_bytes, size) : "", d,
				observe->before[d].uuid_text);
		}
	}
}

void neap_observe_outsiders(const struct neap_observe *observe, struct neap_buffer *out)
{
	for (size_t i = 0; i < observe->outsider_count; i++)
		if (!is_attached(observe, observe->outsiders[i].pid))
			neap_buffer_format(out, "%s%s", out->length ? "; " : "", observe->outsiders[i].text);
}

bool neap_observe_used(const struct neap_observe *observe) { return observe->pid_count > 0; }
