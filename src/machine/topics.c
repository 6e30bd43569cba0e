/* machine/topics.c: see topics.h. */
#include "machine/topics.h"

#include "base/units.h"
#include "device/monitor.h"

#include <string.h>

static void each_device(struct neap_buffer *out, const struct neap_sample *sample)
{
	for (size_t i = 0; i < sample->device_count; i++) {
		const struct neap_ledger *ledger = &sample->devices[i].ledger;
		neap_buffer_format(
			out,
			"    GPU %zu: %s free of %s; allocated %s and cached %s in attached processes, %s in "
			"others\n",
			i, NEAP_SIZE(ledger->free), NEAP_SIZE(ledger->total), NEAP_SIZE(ledger->allocated),
			NEAP_SIZE(ledger->cached), NEAP_SIZE(ledger->not_attached));
	}
}

/* Writes how much `neap clear` would give back, process by process. */
static void here_cached(struct neap_buffer *out, const struct neap_sample *sample)
{
	bool any = false;
	each_device(out, sample);
	for (size_t i = 0; i < sample->device_count; i++)
		for (size_t p = 0; p < sample->devices[i].process_count; p++) {
			const struct neap_ledger_process *account = &sample->devices[i].processes[p].account;
			if (!account->attached || account->cached == 0)
				continue;
			any = true;
			neap_buffer_format(out, "    process %d caches %s beside %s allocated: neap clear --pid %d\n",
					   (int)account->pid, NEAP_SIZE(account->cached),
					   NEAP_SIZE(account->allocated), (int)account->pid);
		}
	if (!any)
		neap_buffer_text(out, "    no attached process caches anything here\n");
}

static void here_unlisted(struct neap_buffer *out, const struct neap_sample *sample)
{
	for (size_t i = 0; i < sample->device_count; i++) {
		const struct neap_sample_device *device = &sample->devices[i];
		if (!device->reading.processes_known)
			neap_buffer_format(out, "    GPU %zu: this driver gives no list of processes here\n", i);
		if (device->ledger.unexplained > 0)
			neap_buffer_format(out, "    GPU %zu: %s is held by no process the driver lists\n", i,
					   NEAP_SIZE((uint64_t)device->ledger.unexplained));
		else
			neap_buffer_format(out, "    GPU %zu: every byte in use (%s) has its process\n", i,
					   NEAP_SIZE(device->reading.used_bytes));
	}
}

static void here_limits(struct neap_buffer *out, const struct neap_sample *sample)
{
	bool any = false;
	for (size_t i = 0; i < sample->attached_count; i++)
		for (size_t d = 0; d < sample->attached[i].device_count; d++) {
			const struct neap_published *published = &sample->attached[i].devices[d];
			if (published->limit_bytes == UINT64_MAX)
				continue;
			any = true;
			neap_buffer_format(out, "    process %d may reserve %s and has reserved %s\n",
					   (int)sample->attached[i].pid, NEAP_SIZE(published->limit_bytes),
					   NEAP_SIZE((uint64_t)published->stats
							     .metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL]
							     .current));
		}
	if (!any)
		neap_buffer_text(out, "    no attached process has a limit\n");
}

/* Writes the memory that only the end of its process gives back, and the memory that no process accounts for. */
static void here_restart(struct neap_buffer *out, const struct neap_sample *sample)
{
	for (size_t i = 0; i < sample->device_count; i++) {
		const struct neap_ledger *ledger = &sample->devices[i].ledger;
		neap_buffer_format(
			out,
			"    GPU %zu: neap clear gives %s back; %s of contexts and %s not attached end with "
			"their processes\n",
			i, NEAP_SIZE(ledger->cached), NEAP_SIZE(ledger->contexts), NEAP_SIZE(ledger->not_attached));
		if (ledger->unexplained > 0)
			neap_buffer_format(
				out,
				"    GPU %zu: %s has no process; what stays so only a reset gives back (neap "
				"explain no-process)\n",
				i, NEAP_SIZE((uint64_t)ledger->unexplained));
	}
}

void neap_topic_figures(struct neap_buffer *out, const char *topic, const struct neap_sample *sample)
{
	static const struct {
		const char *topic;
		void (*put)(struct neap_buffer *, const struct neap_sample *);
	} figures[] = {
		{"oom", each_device},          {"fragmentation", here_cached}, {"leak", here_cached},
		{"no-process", here_unlisted}, {"not-returned", here_cached},  {"limit", here_limits},
		{"restart", here_restart},
	};
	for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
		if (!strcmp(figures[i].topic, topic))
			figures[i].put(out, sample);
}
