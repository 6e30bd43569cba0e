/* cli/explain_topics.c: the common memory troubles, one entry each. */
#include "cli/explain_topics.h"

#include "base/units.h"
#include "device/monitor.h"

#include <inttypes.h>

#define SIZE(bytes) neap_size_format((bytes), (char[NEAP_UNITS_ROOM]){0})
#define TEXTS(...)  ((const char *const[]){__VA_ARGS__, NULL})

static void each_device(struct neap_buffer *out, const struct look *look)
{
	for (size_t i = 0; i < look->device_count; i++) {
		const struct neap_ledger *ledger = &look->devices[i].ledger;
		neap_buffer_format(
			out,
			"    GPU %zu: %s free of %s; allocated %s and cached %s in attached processes, %s in "
			"others\n",
			i, SIZE(ledger->free), SIZE(ledger->total), SIZE(ledger->allocated), SIZE(ledger->cached),
			SIZE(ledger->not_attached));
	}
}

/* Cached memory: what a clear would give back, process by process. */
static void here_cached(struct neap_buffer *out, const struct look *look)
{
	bool any = false;
	each_device(out, look);
	for (size_t i = 0; i < look->device_count; i++)
		for (size_t p = 0; p < look->devices[i].process_count; p++) {
			const struct neap_ledger_process *account = &look->devices[i].processes[p].account;
			if (!account->attached || account->cached == 0)
				continue;
			any = true;
			neap_buffer_format(out, "    process %d caches %s beside %s allocated: neap clear --pid %d\n",
					   (int)account->pid, SIZE(account->cached), SIZE(account->allocated),
					   (int)account->pid);
		}
	if (!any)
		neap_buffer_text(out, "    no attached process caches anything here\n");
}

static void here_unlisted(struct neap_buffer *out, const struct look *look)
{
	for (size_t i = 0; i < look->device_count; i++) {
		const struct look_device *device = &look->devices[i];
		if (!device->reading.processes_known)
			neap_buffer_format(out, "    GPU %zu: this driver gives no list of processes here\n", i);
		if (device->ledger.unexplained > 0)
			neap_buffer_format(out, "    GPU %zu: %s is held by no process the driver lists\n", i,
					   SIZE((uint64_t)device->ledger.unexplained));
		else
			neap_buffer_format(out, "    GPU %zu: every byte in use (%s) has its process\n", i,
					   SIZE(device->reading.used_bytes));
	}
}

static void here_limits(struct neap_buffer *out, const struct look *look)
{
	bool any = false;
	for (size_t i = 0; i < look->attached_count; i++)
		for (size_t d = 0; d < look->attached[i].device_count; d++) {
			const struct neap_published *published = &look->attached[i].devices[d];
			if (published->limit_bytes == UINT64_MAX)
				continue;
			any = true;
			neap_buffer_format(
				out, "    process %d may reserve %s and has reserved %s\n",
				(int)look->attached[i].pid, SIZE(published->limit_bytes),
				SIZE((uint64_t)published->stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL]
					     .current));
		}
	if (!any)
		neap_buffer_text(out, "    no attached process has a limit\n");
}

/* What only ends with its process, and what no process accounts for. */
static void here_restart(struct neap_buffer *out, const struct look *look)
{
	for (size_t i = 0; i < look->device_count; i++) {
		const struct neap_ledger *ledger = &look->devices[i].ledger;
		neap_buffer_format(
			out,
			"    GPU %zu: neap clear gives %s back; %s of contexts and %s not attached end with "
			"their processes\n",
			i, SIZE(ledger->cached), SIZE(ledger->contexts), SIZE(ledger->not_attached));
		if (ledger->unexplained > 0)
			neap_buffer_format(
				out,
				"    GPU %zu: %s has no process; what stays so only a reset gives back (neap "
				"explain no-process)\n",
				i, SIZE((uint64_t)ledger->unexplained));
	}
}

const struct explain_topic explain_topics[] = {
	{
		.name = "oom",
		.summary = "out of memory: capacity, fragmentation, neighbours or a limit",
		.causes = TEXTS("Live tensors and the request need more than the device has (capacity).",
				"The bytes are cached, but in pieces that live blocks pin (fragmentation).",
				"Other processes hold the difference (neighbours).",
				"A limit on the process refused, with memory free (fraction)."),
		.fixes = TEXTS(
			"neap explain --from LOG does the arithmetic on the message you have.",
			"neap run -- COMMAND records the run; its OOM card names the cause and predicts what each "
			"fix "
			"saves in that run.",
			"Recover outside the except block: the traceback keeps the failed step's tensors alive."),
		.here = each_device,
	},
	{
		.name = "fragmentation",
		.summary = "gigabytes reserved, and still out of memory",
		.causes = TEXTS(
			"A block goes back to the segment it was cut from; a live neighbour keeps the segment from "
			"being returned or joined with another.",
			"Sizes that change from step to step leave gaps that the next size does not fit."),
		.fixes = TEXTS(
			"expandable_segments:True (neap run --enable -- COMMAND): segments grow in place, pages are "
			"returned one by one.",
			"Pad to a few lengths, run the largest batch first, and allocate what lives long before what "
			"lives short.",
			"Emptying the cache every step does not help: it returns whole segments only, and slows "
			"training."),
		.here = here_cached,
	},
	{
		.name = "leak",
		.summary = "memory grows with every step",
		.causes = TEXTS(
			"Something keeps a reference: a loss summed without .item(), outputs kept in a list, a hook, "
			"a traceback, a graph kept by retain_graph.",
			"Growth that levels off is none: warm-up, a cache that fills, longer inputs."),
		.fixes = TEXTS(
			"neap run -- COMMAND tests each step's lowest mark for a trend, and says the slope, the "
			"confidence and the step at which memory ends.",
			"Sum losses as numbers; detach what is kept; leave the except block before going on."),
		.here = here_cached,
	},
	{
		.name = "no-process",
		.summary = "memory is in use, but nvidia-smi lists no process",
		.causes = TEXTS(
			"A process that no list shows holds the device: a worker whose parent died, a process in "
			"another container or of another user.",
			"The driver is still freeing what a process that has just ended held."),
		.fixes = TEXTS(
			"neap kill --mine --dry-run shows your own processes that use a device, with their trees.",
			"As root, what has /dev/nvidia* open: fuser -v /dev/nvidia*.",
			"Wait some seconds and look again: neap info --every 1."),
		.here = here_unlisted,
	},
	{
		.name = "not-returned",
		.summary = "tensors are deleted, the memory does not come back",
		.causes = TEXTS(
			"PyTorch caches freed blocks; only torch.cuda.empty_cache() inside that process returns "
			"them. "
			"A script that empties its own cache does nothing for another process.",
			"A reference is left (see leak), or the context itself, which stays until the process ends."),
		.fixes = TEXTS("neap clear --pid P empties the cache inside the running process.",
			       "The context's few hundred MiB come back only when the process ends."),
		.here = here_cached,
	},
	{
		.name = "limit",
		.summary = "out of memory with memory free: a limit on the process",
		.causes = TEXTS("torch.cuda.set_per_process_memory_fraction(), per_process_memory_fraction in the "
				"settings, or "
				"neap fraction bound what may be reserved.",
				"MIG, a vGPU profile or a container's quota make the device smaller than it looks."),
		.fixes = TEXTS("neap fraction 1 --pid P lifts the limit on the running process."),
		.here = here_limits,
	},
	{
		.name = "restart",
		.summary = "what a new process mends, and what only the machine's",
		.causes = TEXTS(
			"A process must be restarted after an illegal address, a device-side assert, a launch "
			"failure: "
			"its context is lost, every later call fails.",
			"Out of memory needs no restart: what the failed step held can be freed and the step run "
			"again.",
			"The machine (or the device, by nvidia-smi --gpu-reset) after: fallen off the bus (Xid 79), "
			"uncorrectable ECC errors, a driver that does not fit its library after an update."),
		.fixes = TEXTS("neap kill --pid P ends the process and watches its memory come back.",
			       "dmesg shows Xid lines; nvidia-smi -q -d ECC the errors."),
		.here = here_restart,
	},
	{NULL, NULL, NULL, NULL, NULL},
};
