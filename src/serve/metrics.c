/* serve/metrics.c: see metrics.h. Each metric is a row of one of three tables: metrics of devices, of processes on a
 * device, and of runs on a device. A value that is not known (NAN) is left out. */
#include "serve/metrics.h"

#include "base/clock.h"
#include "base/printable.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double bytes_of(uint64_t bytes) { return bytes == NEAP_BYTES_UNKNOWN ? (double)NAN : (double)bytes; }

/* X(name without "neap_", help, value of `d`) */
#define DEVICE_METRICS(X)                                                                                            \
	X(fb_total_bytes, "Memory of the device.", bytes_of(d->ledger.total))                                        \
	X(fb_used_bytes, "Memory in use, the driver's own part included: total less free.",                          \
	  bytes_of(d->ledger.total - d->ledger.free))                                                                \
	X(fb_free_bytes, "Memory that the driver has left.", bytes_of(d->ledger.free))                               \
	X(fb_reserved_bytes, "Memory that the driver keeps for itself.", bytes_of(d->ledger.driver_reserved))        \
	X(fb_context_bytes, "Contexts of attached processes.", bytes_of(d->ledger.contexts))                         \
	X(fb_allocated_bytes, "Memory that attached processes have allocated.", bytes_of(d->ledger.allocated))       \
	X(fb_cached_bytes, "Memory that attached processes reserved and do not use; neap clear returns it.",         \
	  bytes_of(d->ledger.cached))                                                                                \
	X(fb_not_attached_bytes, "Memory of processes that are not attached, as the driver reports it.",             \
	  bytes_of(d->ledger.not_attached))                                                                          \
	X(fb_unexplained_bytes, "Memory in use that no process accounts for.", (double)d->ledger.unexplained)        \
	X(fb_gone_bytes, "Memory that the driver counts for PIDs that are no living process here.",                  \
	  bytes_of(d->gone_bytes))                                                                                   \
	X(gpu_utilization_ratio, "Share of the time in which the device computed anything.",                         \
	  d->utilization_percent < 0 ? (double)NAN : d->utilization_percent / 100.0)

/* The metrics of a process `p` on a device; its account is `a`. */
#define PROCESS_METRICS(X)                                                                                           \
	X(process_used_bytes, "What a process holds on a device, as the driver reports it.", bytes_of(a->bytes))     \
	X(process_context_bytes, "The context of an attached process.",                                              \
	  a->attached ? bytes_of(a->context) : (double)NAN)                                                          \
	X(process_allocated_bytes, "What an attached process has allocated.",                                        \
	  a->attached ? bytes_of(a->allocated) : (double)NAN)                                                        \
	X(process_cached_bytes, "What an attached process reserved and does not use.",                               \
	  a->attached ? bytes_of(a->cached) : (double)NAN)                                                           \
	X(process_other_bytes, "What an attached process holds beside its context and its allocators.",              \
	  a->attached ? (double)a->other : (double)NAN)                                                              \
	X(process_run_seconds, "Time since the process was started.",                                                \
	  p->run_ns == UINT64_MAX ? (double)NAN : (double)p->run_ns / (double)NEAP_NS_PER_S)

#define X(key, help, value)                                                                                          \
	static double device_##key(const struct neap_metrics_device *d) { return value; }
DEVICE_METRICS(X)
#undef X

#define X(key, help, value)                                                                                          \
	static double key(const struct neap_metrics_process *p)                                                      \
	{                                                                                                            \
		const struct neap_ledger_process *a = &p->account;                                                   \
		(void)a;                                                                                             \
		return value;                                                                                        \
	}
PROCESS_METRICS(X)
#undef X

static const struct {
	const char *name, *help;
	double (*value)(const struct neap_metrics_device *device);
} device_metrics[] = {
#define X(key, help, value) {"neap_" #key, help, device_##key},
	DEVICE_METRICS(X)
#undef X
};

static const struct {
	const char *name, *help;
	double (*value)(const struct neap_metrics_process *process);
} process_metrics[] = {
#define X(key, help, value) {"neap_" #key, help, key},
	PROCESS_METRICS(X)
#undef X
};

static double one(const struct neap_metrics_process *process)
{
	(void)process;
	return 1;
}

/* Sums over the processes of a run on a device. */
static const struct {
	const char *name, *help;
	double (*value)(const struct neap_metrics_process *process);
} run_metrics[] = {
	{"neap_run_used_bytes", "What the processes of a run hold on a device, as the driver reports it.",
	 process_used_bytes},
	{"neap_run_allocated_bytes", "What the processes of a run have allocated.", process_allocated_bytes},
	{"neap_run_cached_bytes", "What the processes of a run reserved and do not use.", process_cached_bytes},
	{"neap_run_processes", "Processes of a run on a device.", one},
};

#define COUNT(array) (sizeof array / sizeof *(array))

static void put_head(struct neap_buffer *out, const char *name, const char *help)
{
	neap_buffer_format(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
}

static void put_label(struct neap_buffer *out, const char *name, const char *value)
{
	neap_buffer_format(out, "%s=\"", name);
	for (size_t left = strlen(value); left > 0;) {
		uint32_t character;
		size_t bytes = neap_utf8_next(value, left, &character);
		if (character == '"' || character == '\\')
			neap_buffer_format(out, "\\%c", (char)character);
		else if (neap_printable_is(character))
			neap_buffer_append(out, value, bytes);
		else
			neap_buffer_text(out, "?");
		value += bytes;
		left -= bytes;
	}
	neap_buffer_text(out, "\"");
}

static void put_device_labels(struct neap_buffer *out, const struct neap_metrics *metrics, size_t device)
{
	neap_buffer_format(out, "gpu=\"%zu\",", device);
	put_label(out, "UUID", metrics->devices[device].uuid);
}

/* Writes fifteen digits: bytes are exact up to 900 TiB. Writes a whole number as one, which takes a third of the
 * time. */
static void put_value(struct neap_buffer *out, double value)
{
	if (fabs(value) < 1e15 && trunc(value) == value)
		neap_buffer_format(out, "} %" PRId64 "\n", (int64_t)value);
	else
		neap_buffer_format(out, "} %.15g\n", value);
}

static void write_devices(struct neap_buffer *out, const struct neap_metrics *metrics)
{
	put_head(out, "neap_gpu_info", "Which device an index is; always 1.");
	for (size_t i = 0; i < metrics->device_count; i++) {
		neap_buffer_text(out, "neap_gpu_info{");
		put_device_labels(out, metrics, i);
		neap_buffer_text(out, ",");
		put_label(out, "model", metrics->devices[i].name);
		put_value(out, 1);
	}
	for (size_t m = 0; m < COUNT(device_metrics); m++) {
		put_head(out, device_metrics[m].name, device_metrics[m].help);
		for (size_t i = 0; i < metrics->device_count; i++) {
			double value = device_metrics[m].value(&metrics->devices[i]);
			if (isnan(value))
				continue;
			neap_buffer_format(out, "%s{", device_metrics[m].name);
			put_device_labels(out, metrics, i);
			put_value(out, value);
		}
	}
}

static void put_process_labels(struct neap_buffer *out, const struct neap_metrics *metrics,
			       const struct neap_metrics_process *process)
{
	put_device_labels(out, metrics, process->device);
	neap_buffer_format(out, ",pid=\"%d\",", (int)process->account.pid);
	put_label(out, "user", process->user);
	neap_buffer_text(out, ",");
	put_label(out, "name", process->name);
	neap_buffer_text(out, ",");
	put_label(out, "run", process->run);
}

/* The labels of each process are made once and copied for each metric. */
static void write_processes(struct neap_buffer *out, const struct neap_metrics *metrics)
{
	struct neap_buffer labels = {0};
	size_t *ends = calloc(metrics->process_count + 1, sizeof *ends);
	for (size_t i = 0; ends && i < metrics->process_count; i++) {
		put_process_labels(&labels, metrics, &metrics->processes[i]);
		ends[i + 1] = labels.length;
	}
	out->failed = out->failed || !ends || labels.failed;
	for (size_t m = 0; !out->failed && m < COUNT(process_metrics); m++) {
		put_head(out, process_metrics[m].name, process_metrics[m].help);
		for (size_t i = 0; i < metrics->process_count; i++) {
			double value = process_metrics[m].value(&metrics->processes[i]);
			if (isnan(value))
				continue;
			neap_buffer_text(out, process_metrics[m].name);
			neap_buffer_text(out, "{");
			neap_buffer_append(out, labels.data + ends[i], ends[i + 1] - ends[i]);
			put_value(out, value);
		}
	}
	neap_buffer_fini(&labels);
	free(ends);
}

/* A process's place among the processes of its run on its device. */
struct member {
	const struct neap_metrics_process *process;
	const struct neap_metrics_process *first; /* of its run there */
};

static int by_run(const void *left, const void *right)
{
	const struct neap_metrics_process *a = ((const struct member *)left)->process;
	const struct neap_metrics_process *b = ((const struct member *)right)->process;
	int order = (a->device > b->device) - (a->device < b->device);
	if (!order)
		order = strcmp(a->run, b->run);
	return order ? order : (a > b) - (a < b);
}

static int by_first(const void *left, const void *right)
{
	const struct member *a = left, *b = right;
	int order = (a->first > b->first) - (a->first < b->first);
	return order ? order : (a->process > b->process) - (a->process < b->process);
}

/* Sorts the processes that belong to runs: run by run, in the order of each run's first process. Returns their
 * number. */
static size_t sort_runs(const struct neap_metrics *metrics, struct member *members)
{
	size_t count = 0;
	for (size_t i = 0; i < metrics->process_count; i++)
		if (metrics->processes[i].run[0])
			members[count++].process = &metrics->processes[i];
	qsort(members, count, sizeof *members, by_run);
	for (size_t i = 0; i < count; i++) {
		const struct neap_metrics_process *process = members[i].process;
		bool same = i > 0 && members[i - 1].process->device == process->device &&
			    !strcmp(members[i - 1].process->run, process->run);
		members[i].first = same ? members[i - 1].first : process;
	}
	qsort(members, count, sizeof *members, by_first);
	return count;
}

static void write_runs(struct neap_buffer *out, const struct neap_metrics *metrics)
{
	struct member *members = calloc(metrics->process_count + 1, sizeof *members);
	size_t count = members ? sort_runs(metrics, members) : 0;
	out->failed = out->failed || !members;
	for (size_t m = 0; !out->failed && m < COUNT(run_metrics); m++) {
		put_head(out, run_metrics[m].name, run_metrics[m].help);
		for (size_t i = 0; i < count;) {
			const struct neap_metrics_process *first = members[i].first;
			double sum = 0;
			for (; i < count && members[i].first == first; i++) {
				double value = run_metrics[m].value(members[i].process);
				sum += isnan(value) ? 0 : value;
			}
			neap_buffer_format(out, "%s{", run_metrics[m].name);
			put_device_labels(out, metrics, first->device);
			neap_buffer_text(out, ",");
			put_label(out, "run", first->run);
			put_value(out, sum);
		}
	}
	free(members);
}

void neap_metrics_write(struct neap_buffer *out, const struct neap_metrics *metrics)
{
	put_head(out, "neap_up", "Whether the devices could be read at the last look.");
	neap_buffer_format(out, "neap_up %d\n", metrics->up);
	put_head(out, "neap_build_info", "Which neap this is; always 1.");
	neap_buffer_text(out, "neap_build_info{");
	put_label(out, "version", metrics->version);
	put_value(out, 1);
	put_head(out, "neap_look_seconds", "What the last look at devices and processes took.");
	neap_buffer_format(out, "neap_look_seconds %.6g\n", (double)metrics->poll_ns / (double)NEAP_NS_PER_S);
	if (!metrics->up)
		return;
	write_devices(out, metrics);
	write_processes(out, metrics);
	write_runs(out, metrics);
}
