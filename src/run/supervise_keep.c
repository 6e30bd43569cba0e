/* run/supervise_keep.c: keeps the history of the run's processes with PyTorch's own allocator (run/keep.h). */
#include "run/keep.h"
#include "run/supervise_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PROCESSES 12u /* how many processes have a kept history at once: each takes 2 MiB and more */
/* An event is stored a moment after its time stamp was read. */
#define STORED_NS (5 * NEAP_NS_PER_MS)

struct neap_keeps {
	size_t count;
	struct {
		pid_t pid;
		uint64_t start_ticks;
		struct neap_keep keep;
	} items[PROCESSES];
};

static bool is_attached(const struct neap_supervise *run, pid_t pid, uint64_t start_ticks)
{
	for (size_t i = 0; i < run->observe.attached_count; i++)
		if (run->observe.attached[i].pid == pid && run->observe.attached[i].start_ticks == start_ticks)
			return true;
	return false;
}

/* Returns a free place, or the place of a process that has ended; PROCESSES: there is none. */
static size_t find_place(struct neap_supervise *run)
{
	struct neap_keeps *keeps = run->keeps;

	if (keeps->count < PROCESSES)
		return keeps->count++;
	for (size_t i = 0; i < PROCESSES; i++)
		if (!is_attached(run, keeps->items[i].pid, keeps->items[i].start_ticks)) {
			neap_keep_end(&keeps->items[i].keep);
			return i;
		}
	return PROCESSES;
}

/* Begins to keep the history of a process whose stacks are in the folder: it records PyTorch's own allocator. NULL:
 * it does not, or all places are taken. */
static struct neap_keep *begin(struct neap_supervise *run, const struct neap_observed *process)
{
	const struct neap_keep_options options = {0};
	char recording[NEAP_RECORD_PATH], stacks[NEAP_RECORD_PATH], name[32];
	struct neap_error err = {0};

	snprintf(name, sizeof name, "record.%d", (int)process->pid);
	if (neap_path_join(recording, sizeof recording, run->folder, name) ||
	    !neap_record_beside(recording, "stacks.", stacks) || access(stacks, F_OK))
		return NULL;
	if (!run->keeps)
		run->keeps = calloc(1, sizeof *run->keeps);
	size_t at = run->keeps ? find_place(run) : PROCESSES;
	if (at == PROCESSES)
		return NULL;
	run->keeps->items[at].pid = process->pid;
	run->keeps->items[at].start_ticks = process->start_ticks;
	if (!neap_keep_begin(&run->keeps->items[at].keep, recording, &options, &err))
		return &run->keeps->items[at].keep;
	neap_log(run->options.log, NEAP_LOG_WARNING, "The history of process %d is not kept: %s", (int)process->pid,
		 err.message);
	neap_keep_end(&run->keeps->items[at].keep);
	return NULL;
}

static struct neap_keep *find(struct neap_supervise *run, const struct neap_observed *process)
{
	for (size_t i = 0; run->keeps && i < run->keeps->count; i++)
		if (run->keeps->items[i].pid == process->pid &&
		    run->keeps->items[i].start_ticks == process->start_ticks)
			return &run->keeps->items[i].keep;
	return begin(run, process);
}

void neap_supervise_keep_poll(struct neap_supervise *run)
{
	uint64_t now_ns = neap_supervise_now(run), until_ns = now_ns > STORED_NS ? now_ns - STORED_NS : 0;

	for (size_t i = 0; i < run->observe.attached_count; i++) {
		const struct neap_observed *process = &run->observe.attached[i];
		struct neap_keep *keep = find(run, process);
		struct neap_error err = {0};
		if (keep && neap_keep_poll(keep, until_ns, &err))
			neap_log(run->options.log, NEAP_LOG_WARNING,
				 "The history of process %d is kept no longer: %s", (int)process->pid, err.message);
	}
}

void neap_supervise_keep_end(struct neap_supervise *run)
{
	for (size_t i = 0; run->keeps && i < run->keeps->count; i++)
		neap_keep_end(&run->keeps->items[i].keep);
	free(run->keeps);
	run->keeps = NULL;
}
