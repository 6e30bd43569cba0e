/* Leftovers of earlier runs: see the header. neap_leftover_decide decides; the rest collects facts and acts. */
#include "device/leftovers.h"

#include "base/clock.h"
#include "base/ending.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRACE_MS 2000
#define DRAIN_MS 10000
#define POLL_NS  (10 * NEAP_NS_PER_MS)
#define DEPTH    64
/* The driver's bookkeeping changes by a few MiB with every context. */
#define SLACK_BYTES (8ull << 20)

enum neap_leftover neap_leftover_decide(const struct neap_leftover_facts *facts, uid_t own_uid,
					const char *own_run_id)
{
	if (!facts->seen)
		return NEAP_LEFTOVER_COUNTED;
	if (facts->related)
		return NEAP_LEFTOVER_NONE;
	if (facts->uid != own_uid)
		return NEAP_LEFTOVER_COUNTED;
	if (facts->run_id && own_run_id && own_run_id[0] && !strcmp(facts->run_id, own_run_id))
		return NEAP_LEFTOVER_NONE;
	if (!facts->run_id || facts->run == NEAP_RUN_UNKNOWN)
		return NEAP_LEFTOVER_NAMED;
	return facts->run == NEAP_RUN_OVER ? NEAP_LEFTOVER_ENDED : NEAP_LEFTOVER_NONE;
}

/* A process that holds device memory. */
struct holder {
	struct neap_ended ended; /* its process */
	uint64_t bytes;          /* on all searched devices; NEAP_BYTES_UNKNOWN */
	char run_id[64];         /* "" none */
	enum neap_leftover what;
};

struct search {
	struct neap_monitor *monitor;
	const struct neap_leftovers_options *options;
	struct holder *holders;
	size_t count, capacity;
	uint64_t used_bytes; /* of the searched devices */
	bool still_there;    /* the driver still lists an ended process */
};

/* Whether a process holds the lock of the run's folder: tries a shared lock, and releases it at once. */
static enum neap_run_state inspect_run(const char *folder)
{
	enum neap_run_state state = NEAP_RUN_UNKNOWN;
	struct stat file;
	char path[4200];

	if (neap_path_join(path, sizeof path, folder, "lock") != NEAP_OK)
		return state;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return state;
	if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode)) {
		if (flock(fd, LOCK_SH | LOCK_NB) == 0)
			state = NEAP_RUN_OVER;
		else if (errno == EWOULDBLOCK)
			state = NEAP_RUN_GOES_ON;
	}
	close(fd);
	return state;
}

static bool descends_from(const struct neap_process *process, pid_t ancestor)
{
	struct neap_process at = *process;

	for (int depth = 0; depth < DEPTH && at.pid > 1; depth++) {
		if (at.pid == ancestor)
			return true;
		if (neap_process_read(at.parent, &at, NULL) != NEAP_OK)
			return false;
	}
	return false;
}

static bool is_related(const struct neap_process *process)
{
	struct neap_process self;

	return descends_from(process, getpid()) ||
	       (neap_process_read(getpid(), &self, NULL) == NEAP_OK && descends_from(&self, process->pid));
}

static void judge(struct holder *holder, const char *own_run_id)
{
	struct neap_process *process = &holder->ended.process;
	struct neap_leftover_facts facts = {0};
	char folder[4096];
	pid_t pid = process->pid;

	facts.seen = neap_process_read(pid, process, NULL) == NEAP_OK;
	if (facts.seen) {
		facts.uid = process->uid;
		facts.related = is_related(process);
	}
	if (facts.seen && facts.uid == getuid() &&
	    neap_process_environment(pid, "NEAP_RUN_ID", holder->run_id, sizeof holder->run_id) == NEAP_OK &&
	    holder->run_id[0]) {
		facts.run_id = holder->run_id;
		if (neap_process_environment(pid, "NEAP_RUN_DIR", folder, sizeof folder) == NEAP_OK)
			facts.run = inspect_run(folder);
	}
	process->pid = pid;
	holder->what = neap_leftover_decide(&facts, getuid(), own_run_id);
	neap_printable(process->command, sizeof process->command, process->command); /* it goes into a line of text */
}

static struct holder *find(struct search *search, pid_t pid)
{
	for (size_t i = 0; i < search->count; i++)
		if (search->holders[i].ended.process.pid == pid)
			return &search->holders[i];
	if (search->count == search->capacity)
		return NULL;
	struct holder *holder = &search->holders[search->count++];
	*holder = (struct holder){.ended.process.pid = pid};
	return holder;
}

/* Calls `visit` for each searched device. */
static enum neap_status each_device(struct search *search,
				    void (*visit)(struct search *search, const struct neap_reading *reading),
				    struct neap_error *err)
{
	size_t count = neap_monitor_device_count(search->monitor), only = count;
	enum neap_status status = NEAP_OK;
	struct neap_reading reading;

	if (search->options->uuid)
		status = neap_monitor_find(search->monitor, search->options->uuid, &only, err);
	for (size_t i = 0; !status && i < count; i++) {
		if (only < count && i != only)
			continue;
		status = neap_monitor_read(search->monitor, i, &reading, err);
		if (!status)
			visit(search, &reading);
	}
	return status;
}

static void add_holders(struct search *search, const struct neap_reading *reading)
{
	search->used_bytes += reading->used_bytes;
	for (size_t i = 0; reading->processes_known && i < reading->process_count; i++) {
		struct holder *holder = find(search, reading->processes[i].pid);
		uint64_t bytes = reading->processes[i].bytes;
		if (holder && bytes == NEAP_BYTES_UNKNOWN)
			holder->bytes = NEAP_BYTES_UNKNOWN;
		else if (holder && holder->bytes != NEAP_BYTES_UNKNOWN)
			holder->bytes += bytes;
	}
}

static void mark_present(struct search *search, const struct neap_reading *reading)
{
	search->used_bytes += reading->used_bytes;
	for (size_t i = 0; reading->processes_known && i < reading->process_count; i++)
		for (size_t h = 0; h < search->count; h++)
			if (search->holders[h].ended.ended_by &&
			    search->holders[h].ended.process.pid == reading->processes[i].pid)
				search->still_there = true;
}

static const char *size_of(uint64_t bytes, char text[NEAP_UNITS_CAPACITY])
{
	if (bytes == NEAP_BYTES_UNKNOWN)
		strcpy(text, "memory");
	else
		neap_size_format(bytes, text);
	return text;
}

static void add_bytes(uint64_t *sum, uint64_t bytes)
{
	if (bytes != NEAP_BYTES_UNKNOWN)
		*sum += bytes;
}

static void report_end(const struct neap_log_sink *log, const struct holder *holder)
{
	const struct neap_process *process = &holder->ended.process;
	char size[NEAP_UNITS_CAPACITY];

	if (holder->ended.ended_by)
		neap_log(log, NEAP_LOG_WARNING, "Ended process %d (%s), left behind by run %s, which held %s (SIG%s)",
			 (int)process->pid, process->command, holder->run_id, size_of(holder->bytes, size),
			 holder->ended.ended_by == SIGKILL ? "KILL" : "TERM");
	else
		neap_log(log, NEAP_LOG_ERROR, "Process %d (%s), left behind by run %s, cannot be ended: it holds %s",
			 (int)process->pid, process->command, holder->run_id, size_of(holder->bytes, size));
}

static void end_them(struct search *search, struct neap_leftovers *result)
{
	struct neap_ended list[NEAP_ENDING_BATCH];
	struct holder *of[NEAP_ENDING_BATCH];
	uint64_t grace_ms = search->options->grace_ms ? search->options->grace_ms : GRACE_MS;
	size_t count = 0;

	for (size_t i = 0; i < search->count && count < NEAP_ENDING_BATCH; i++) {
		if (search->holders[i].what != NEAP_LEFTOVER_ENDED)
			continue;
		of[count] = &search->holders[i];
		list[count++] = search->holders[i].ended;
	}
	if (count)
		neap_process_end(list, count, grace_ms);
	for (size_t i = 0; i < count; i++) {
		of[i]->ended.ended_by = list[i].ended_by;
		report_end(search->options->log, of[i]);
		if (list[i].ended_by) {
			result->ended++;
			add_bytes(&result->ended_bytes, of[i]->bytes);
		} else {
			result->not_ended++;
		}
	}
}

static void report_rest(struct search *search, struct neap_leftovers *result)
{
	const struct neap_log_sink *log = search->options->log;
	char size[NEAP_UNITS_CAPACITY];

	for (size_t i = 0; i < search->count; i++) {
		const struct holder *holder = &search->holders[i];
		const struct neap_process *process = &holder->ended.process;
		if (holder->what == NEAP_LEFTOVER_NAMED) {
			result->named++;
			add_bytes(&result->named_bytes, holder->bytes);
			neap_log(log, NEAP_LOG_WARNING,
				 "Process %d (%s) holds %s; neap did not start it, or cannot tell: left alone ('neap "
				 "kill --pid %d' ends it)",
				 (int)process->pid, process->command, size_of(holder->bytes, size),
				 (int)process->pid);
		} else if (holder->what == NEAP_LEFTOVER_COUNTED) {
			result->counted++;
			add_bytes(&result->counted_bytes, holder->bytes);
		}
	}
	if (result->counted)
		neap_log(log, NEAP_LOG_INFO, "%zu process%s of other users, or not visible from here, hold%s %s",
			 result->counted, result->counted == 1 ? "" : "es", result->counted == 1 ? "s" : "",
			 neap_size_format(result->counted_bytes, size));
	if (!result->ended && !result->not_ended && !result->named)
		neap_log(log, NEAP_LOG_INFO, "No leftovers of earlier runs were found");
}

/* Waits until the driver no longer lists the ended processes and used memory has fallen by their bytes. */
static void drain(struct search *search, struct neap_leftovers *result)
{
	const struct neap_clock *clock = neap_clock_system();
	uint64_t begun_ns = neap_clock_now(clock), before_bytes = search->used_bytes;
	uint64_t limit_ns = (search->options->drain_ms ? search->options->drain_ms : DRAIN_MS) * NEAP_NS_PER_MS;
	uint64_t gone_bytes = result->ended_bytes > SLACK_BYTES ? result->ended_bytes - SLACK_BYTES : 0;
	char time[NEAP_UNITS_CAPACITY], size[NEAP_UNITS_CAPACITY];

	for (;;) {
		search->still_there = false;
		search->used_bytes = 0;
		enum neap_status status = each_device(search, mark_present, NULL);
		result->drain_ns = neap_clock_now(clock) - begun_ns;
		result->drained = !status && !search->still_there && search->used_bytes + gone_bytes <= before_bytes;
		if (result->drained || result->drain_ns >= limit_ns)
			break;
		neap_clock_sleep(clock, POLL_NS);
	}
	neap_duration_format(result->drain_ns, time);
	neap_size_format(result->ended_bytes, size);
	if (result->drained)
		neap_log(search->options->log, NEAP_LOG_INFO, "The %s that they held are free again after %s", size,
			 time);
	else
		neap_log(search->options->log, NEAP_LOG_WARNING, "The %s that they held are not free after %s", size,
			 time);
}

enum neap_status neap_leftovers_clear(struct neap_monitor *monitor, const struct neap_leftovers_options *options,
				      struct neap_leftovers *ret_leftovers, struct neap_error *err)
{
	struct search search = {.monitor = monitor, .options = options, .capacity = NEAP_READING_PROCESSES};
	struct neap_leftovers result = {.drained = true};

	search.holders = calloc(search.capacity, sizeof *search.holders);
	if (!search.holders)
		return neap_fail(err, NEAP_ENOMEM, "looking for leftovers: out of host memory");
	enum neap_status status = each_device(&search, add_holders, err);
	if (!status) {
		for (size_t i = 0; i < search.count; i++)
			judge(&search.holders[i], options->run_id);
		end_them(&search, &result);
		report_rest(&search, &result);
		if (result.ended)
			drain(&search, &result);
		*ret_leftovers = result;
	}
	free(search.holders);
	return status;
}
