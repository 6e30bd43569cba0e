/* run/supervise_limits.c: takes the readings that limits.h decides on, and acts on its decisions.
 *
 * Host memory is the sum over the run's processes. Resident bytes are cheap to read but count a page that is
 * shared by ten workers ten times; each page's share (Pss) is exact but costs a walk over the pages. So neap reads
 * resident bytes, and the shares only if these come near the limit; the sum of shares never exceeds that of resident
 * bytes. Reading takes at most a twentieth of the time.
 */
#include "run/supervise_internal.h"

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/units.h"
#include "run/orphans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define HOST_LOOK_NS   (200 * NEAP_NS_PER_MS)
#define HOST_PROCESSES 1024

/* The process's share of its pages; if that cannot be read, its resident bytes now. 0 for a process that has just
 * ended: workers that end together must not each count all the pages they shared. */
static uint64_t share_bytes(const struct neap_process *process)
{
	struct neap_buffer text = {0};
	struct neap_process again = {0};
	const char *line = NULL;
	char path[64];
	uint64_t bytes = 0;
	snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)process->pid);
	if (!neap_file_read(path, 1u << 16, &text, NULL))
		line = strstr(neap_buffer_string(&text), "\nPss:");
	if (line)
		bytes = strtoull(line + strlen("\nPss:"), NULL, 10) * NEAP_KIB;
	else if (!neap_process_read(process->pid, &again, NULL) && again.start_ticks == process->start_ticks)
		bytes = again.rss_bytes;
	neap_buffer_fini(&text);
	return bytes;
}

static uint64_t read_host(struct neap_supervise *run)
{
	uint64_t at = run->options.limits.at[NEAP_LIMIT_HOST], resident_bytes = 0, shared_bytes = 0;
	struct neap_process *processes = calloc(HOST_PROCESSES, sizeof *processes);
	size_t count = 0;
	const struct neap_orphans_of of = neap_supervise_processes(run);
	if (!processes || neap_orphans_find(&of, processes, HOST_PROCESSES, &count, NULL)) {
		free(processes);
		return NEAP_READING_UNKNOWN;
	}
	for (size_t i = 0; i < count; i++)
		resident_bytes += processes[i].rss_bytes;
	bool close_to = resident_bytes / 9 * 10 >= at;
	for (size_t i = 0; close_to && i < count; i++)
		shared_bytes += share_bytes(&processes[i]);
	free(processes);
	return close_to ? shared_bytes : resident_bytes;
}

static uint64_t read_disk(const struct neap_supervise *run)
{
	struct statvfs disk;
	return statvfs(run->folder, &disk) ? NEAP_READING_UNKNOWN : (uint64_t)disk.f_bavail * disk.f_frsize;
}

enum neap_status neap_supervise_limits_check(const struct neap_supervise *run, struct neap_error *err)
{
	const struct neap_limits *limits = &run->options.limits;
	uint64_t free_bytes = limits->at[NEAP_LIMIT_DISK] ? read_disk(run) : NEAP_READING_UNKNOWN;
	char text[160];
	if (free_bytes >= limits->at[NEAP_LIMIT_DISK])
		return NEAP_OK;
	neap_limits_text(limits, NEAP_LIMIT_DISK, free_bytes, text, sizeof text);
	return neap_fail(err, NEAP_ENOSPC, "%s where %.120s is: not started; make room", text, run->folder);
}

/* Returns the time after reading: reading the host's memory may take long. */
static uint64_t read_all(struct neap_supervise *run, uint64_t now_ns, uint64_t readings[NEAP_LIMITS])
{
	const uint64_t *at = run->options.limits.at;
	readings[NEAP_LIMIT_TIME] = now_ns - run->started_ns;
	readings[NEAP_LIMIT_DEVICE] = run->observe.run_bytes;
	readings[NEAP_LIMIT_DISK] = at[NEAP_LIMIT_DISK] ? read_disk(run) : NEAP_READING_UNKNOWN;
	readings[NEAP_LIMIT_HOST] = NEAP_READING_UNKNOWN;
	if (!at[NEAP_LIMIT_HOST] || now_ns < run->host_poll_ns || run->limits.asked)
		return now_ns;
	readings[NEAP_LIMIT_HOST] = read_host(run);
	uint64_t done_ns = neap_supervise_now(run), cost_ns = 20 * (done_ns - now_ns);
	run->host_poll_ns = done_ns + (cost_ns > HOST_LOOK_NS ? cost_ns : HOST_LOOK_NS);
	return done_ns;
}

uint64_t neap_supervise_limits_poll(struct neap_supervise *run, uint64_t now_ns)
{
	const struct neap_limits *limits = &run->options.limits;
	uint64_t readings[NEAP_LIMITS], done_ns;
	enum neap_limits_action action;
	enum neap_limit limit;
	char text[160], grace[NEAP_UNITS_CAPACITY];
	done_ns = read_all(run, now_ns, readings);
	while (!run->child.ended &&
	       (action = neap_limits_next(limits, &run->limits, readings, now_ns, &limit)) != NEAP_LIMITS_NOTHING) {
		neap_limits_text(limits, limit, readings[limit], text, sizeof text);
		if (action == NEAP_LIMITS_WARN) {
			neap_log(run->options.log, NEAP_LOG_WARNING, "Running short: %s", text);
		} else if (action == NEAP_LIMITS_ASK) {
			neap_log(run->options.log, NEAP_LOG_WARNING, "Ending the command: %s", text);
			neap_child_signal(run, SIGTERM);
			neap_child_signal(run, SIGCONT);
		} else {
			neap_log(run->options.log, NEAP_LOG_WARNING, "It did not end within %s: SIGKILL",
				 neap_duration_format(limits->grace_ns, grace));
			neap_child_signal(run, SIGKILL);
		}
	}
	return done_ns;
}

void neap_supervise_limits_evidence(const struct neap_supervise *run, struct neap_evidence *evidence)
{
	evidence->timed_out = run->limits.asked && run->limits.crossed == NEAP_LIMIT_TIME;
	if (run->limits.asked && !evidence->timed_out)
		neap_limits_text(&run->options.limits, run->limits.crossed, run->limits.reading, evidence->limit_text,
				 sizeof evidence->limit_text);
}
