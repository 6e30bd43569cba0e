/* top/take.c: see sample.h. */
#include "top/sample.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "base/printable.h"
#include "base/process.h"
#include "machine/sample.h"

#include <stdlib.h>
#include <string.h>

#define ANCESTORS 32 /* how many ancestors of a process are searched */

/* The sample under construction, and the parents that were read for it: each process is read once. */
struct work {
	struct neap_top_sample *sample;
	size_t capacity;
	struct parent {
		pid_t pid, parent; /* parent 0: it cannot be read */
		uint64_t start_ticks;
	} * parents;
	size_t parent_count, parent_capacity;
};

static struct neap_top_process *row_of(struct work *work, pid_t pid)
{
	struct neap_top_sample *sample = work->sample;
	for (size_t i = 0; i < sample->process_count; i++)
		if (sample->processes[i].pid == pid)
			return &sample->processes[i];
	if (sample->process_count == work->capacity)
		return NULL;
	struct neap_top_process *row = &sample->processes[sample->process_count++];
	*row = (struct neap_top_process){.pid = pid, .run_ns = NEAP_WHO_UNKNOWN, .busy_percent = -1};
	return row;
}

static void describe(struct neap_top_process *row, const struct neap_who *who)
{
	row->run_ns = who->run_ns;
	row->host_bytes = who->rss_bytes;
	row->cpu_ns = who->cpu_ns;
	neap_who_time_format(who->run_ns, row->run_time);
	neap_printable(row->user, sizeof row->user, who->user);
	neap_printable(row->command, sizeof row->command, who->command);
}

static void add_process(struct work *work, const struct neap_sample_process *process, size_t device)
{
	const struct neap_ledger_process *account = &process->account;
	struct neap_top_process *row = row_of(work, account->pid);
	if (!row)
		return;
	bool fresh = row->devices == 0 && row->stray == 0;
	uint64_t bit = device < NEAP_TOP_DEVICES ? 1ull << device : 0;
	row->bytes_known = (fresh || row->bytes_known) && account->bytes != NEAP_BYTES_UNKNOWN;
	row->devices |= bit;
	row->stray |= process->stray ? bit : 0;
	row->attached |= account->attached;
	row->bytes += account->bytes == NEAP_BYTES_UNKNOWN ? 0 : account->bytes;
	row->context += account->context;
	row->allocated += account->allocated;
	row->cached += account->cached;
	row->other += account->other;
}

static void add_pages(struct work *work, const struct neap_sample *taken)
{
	for (size_t i = 0; i < taken->attached_count; i++) {
		const struct neap_attached *attached = &taken->attached[i];
		const struct neap_published *published;
		bool unlisted = false;
		for (size_t cursor = 0; (published = neap_sample_next_unlisted(taken, attached, &cursor));
		     unlisted = true)
			work->sample->unlisted_bytes += neap_sample_reserved(published);
		work->sample->unlisted += unlisted;
		for (size_t p = 0; p < work->sample->process_count; p++) {
			struct neap_top_process *row = &work->sample->processes[p];
			if (row->pid != attached->pid)
				continue;
			neap_printable(row->run_id, sizeof row->run_id, attached->run_id);
			neap_printable(row->note, sizeof row->note, attached->note);
		}
	}
}

static struct parent read_parent(struct work *work, pid_t pid)
{
	struct neap_process process;
	for (size_t i = 0; i < work->parent_count; i++)
		if (work->parents[i].pid == pid)
			return work->parents[i];
	struct parent parent = {.pid = pid};
	if (neap_process_read(pid, &process, NULL) == NEAP_OK)
		parent = (struct parent){pid, process.parent, process.start_ticks};
	if (work->parent_count < work->parent_capacity)
		work->parents[work->parent_count++] = parent;
	return parent;
}

static pid_t parent_of(struct work *work, pid_t pid) { return read_parent(work, pid).parent; }

static bool is_shown(const struct neap_top_sample *sample, pid_t pid)
{
	for (size_t i = 0; i < sample->process_count; i++)
		if (sample->processes[i].pid == pid)
			return true;
	return false;
}

/* Adds each parent of two or more shown processes, if it uses no GPU itself. */
static void add_launchers(struct work *work)
{
	size_t count = work->sample->process_count;
	for (size_t i = 0; i < count; i++) {
		pid_t parent = parent_of(work, work->sample->processes[i].pid);
		size_t children = 0;
		for (size_t p = i; p < count; p++)
			children += parent_of(work, work->sample->processes[p].pid) == parent;
		if (parent <= 1 || children < 2 || is_shown(work->sample, parent))
			continue;
		struct neap_top_process *row = row_of(work, parent);
		struct neap_who who;
		neap_who_read(parent, NULL, &who);
		if (!row)
			return;
		row->launcher = true;
		describe(row, &who);
	}
}

static void relate(struct work *work)
{
	for (size_t i = 0; i < work->sample->process_count; i++) {
		struct neap_top_process *row = &work->sample->processes[i];
		struct parent own = read_parent(work, row->pid);
		pid_t at = own.parent;
		row->start_ticks = own.start_ticks;
		for (int steps = 0; at > 1 && steps < ANCESTORS && !row->parent; steps++) {
			row->parent = is_shown(work->sample, at) ? at : 0;
			at = parent_of(work, at);
		}
	}
}

static void add_device(struct neap_top_device *to, const struct neap_sample_device *from)
{
	neap_printable(to->name, sizeof to->name, from->reading.name);
	memcpy(to->uuid, from->reading.uuid_text, sizeof to->uuid);
	to->kind = from->reading.unified ? NEAP_TOP_UNIFIED : NEAP_TOP_GPU;
	to->ledger = from->ledger;
	to->utilization_percent = from->reading.utilization_percent;
	to->processes_known = from->reading.processes_known;
	to->processes_truncated = from->reading.processes_truncated;
}

/* Adds the condition of a device: also for processes that hold no memory there, which are not shown. */
static void add_condition(struct work *work, struct neap_monitor *monitor, size_t index)
{
	struct neap_top_device *device = &work->sample->devices[index];
	struct neap_condition condition;

	neap_monitor_condition(monitor, index, &condition);
	device->temperature_celsius = condition.temperature_celsius;
	device->power_watts = condition.power_watts;
	device->power_limit_watts = condition.power_limit_watts;
	device->clock_mhz = condition.clock_mhz;
	for (size_t i = 0; i < condition.busy_count; i++)
		for (size_t p = 0; p < work->sample->process_count; p++) {
			struct neap_top_process *row = &work->sample->processes[p];
			if (row->pid == condition.busy[i].pid && condition.busy[i].percent > row->busy_percent)
				row->busy_percent = condition.busy[i].percent;
		}
}

static void fill(struct work *work, struct neap_monitor *monitor, const struct neap_sample *taken)
{
	struct neap_top_sample *sample = work->sample;
	for (size_t d = 0; d < taken->device_count; d++) {
		const struct neap_sample_device *device = &taken->devices[d];
		add_device(&sample->devices[d], device);
		for (size_t p = 0; p < device->process_count; p++)
			add_process(work, &device->processes[p], d);
		add_condition(work, monitor, d);
	}
	struct neap_who who = {0};
	for (size_t i = 0; i < sample->process_count; i++) {
		struct neap_who last = who;
		neap_who_read(sample->processes[i].pid, &last, &who);
		describe(&sample->processes[i], &who);
		work->parents[work->parent_count++] =
			(struct parent){sample->processes[i].pid, who.parent, who.start_ticks};
	}
	add_pages(work, taken);
	add_launchers(work);
	relate(work);
	struct neap_host_memory host;
	sample->host_known = neap_host_memory_read("", &host, NULL) == NEAP_OK;
	sample->host_available_bytes = sample->host_known ? host.available_bytes : 0;
	sample->host_by_group = sample->host_known && host.by_group;
}

enum neap_status neap_top_take(struct neap_monitor *monitor, const char *runtime_folder,
			       struct neap_top_sample *ret_sample, struct neap_error *err)
{
	struct neap_sample taken = {0};
	enum neap_status status = neap_sample_take(monitor, runtime_folder, &taken, err);
	struct neap_top_sample sample = {.time_ns = neap_clock_now(neap_clock_system()),
					 .device_count = taken.device_count,
					 .simulated = taken.backend == NEAP_BACKEND_SIM};
	struct work work = {.sample = &sample};
	for (size_t d = 0; d < taken.device_count; d++)
		work.capacity += 2 * taken.devices[d].process_count; /* each process may add a launcher */
	work.parent_capacity = work.capacity * ANCESTORS;
	sample.devices = calloc(taken.device_count + 1, sizeof *sample.devices);
	sample.processes = calloc(work.capacity + 1, sizeof *sample.processes);
	work.parents = calloc(work.parent_capacity + 1, sizeof *work.parents);
	if (!status && (!sample.devices || !sample.processes || !work.parents))
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	if (!status) {
		fill(&work, monitor, &taken);
		*ret_sample = sample;
		sample = (struct neap_top_sample){0};
	}
	neap_top_sample_fini(&sample);
	free(work.parents);
	neap_sample_fini(&taken);
	return status;
}
