/* run/orphans.c: finds and ends processes in rounds: if a process forks while neap ends it, the next round finds the
 * child. */
#include "run/orphans.h"

#include "base/error.h"
#include "base/map.h"
#include "run/group.h"

#include <string.h>
#include <unistd.h>

#define ROUNDS   3
#define GRACE_MS 3000
#define FLIGHTS  256 /* rounds of ending a batch, at most: then it gives up on a fork bomb */
#define DEPTH    64

struct search {
	const struct neap_orphans_of *of;
	struct neap_process *found;
	size_t capacity, count;
	struct neap_map parents; /* a PID -> its parent's PID, for the processes that this search has read */
	uint64_t since_ticks;    /* when the supervisor started; 0: it has exited */
};

static pid_t parent_of(struct search *search, pid_t pid)
{
	uint64_t parent = 0;
	struct neap_process process;
	if (!neap_map_get(&search->parents, (uint64_t)pid, &parent) && !neap_process_read_stat(pid, &process, NULL))
		neap_map_put(&search->parents, (uint64_t)pid, parent = (uint64_t)process.parent);
	return (pid_t)parent;
}

/* Never true for process 1, which adopts any process: a supervisor may be the first process of a container. */
static bool descends_from(struct search *search, pid_t pid, pid_t ancestor)
{
	for (int depth = 0; ancestor > 1 && depth < DEPTH && pid > 1; depth++)
		if ((pid = parent_of(search, pid)) == ancestor)
			return true;
	return false;
}

bool neap_orphans_match(const struct neap_process *process, const char *process_run_id, const char *run_id,
			bool descends, pid_t self, uid_t uid)
{
	if (process->pid == self || process->pid <= 1 || process->uid != uid || process->state == 'Z' ||
	    process->state == 'X')
		return false;
	return descends || (run_id[0] && process_run_id && !strcmp(process_run_id, run_id));
}

/* Reads the process again: during an exec it had no command line yet. */
static void take(struct search *search, const struct neap_process *process)
{
	struct neap_process *found = &search->found[search->count++];
	if (neap_process_read(process->pid, found, NULL) || found->start_ticks != process->start_ticks)
		*found = *process;
}

static bool visit(void *context, const struct neap_process *process)
{
	struct search *search = context;
	const struct neap_orphans_of *of = search->of;
	char value[128], group[4200];
	neap_map_put(&search->parents, (uint64_t)process->pid, (uint64_t)process->parent);
	if (process->kernel || process->uid != getuid() || process->start_ticks < search->since_ticks ||
	    process->pid == of->except[0] || process->pid == of->except[1])
		return true;
	bool ours = descends_from(search, process->pid, of->ancestor) ||
		    neap_group_find(process->pid, of->run_id, group, sizeof group);
	bool known = !ours && !neap_process_environment(process->pid, "NEAP_RUN_ID", value, sizeof value);
	if (neap_orphans_match(process, known ? value : NULL, of->run_id, ours, getpid(), getuid()))
		take(search, process);
	return search->count < search->capacity;
}

enum neap_status neap_orphans_find(const struct neap_orphans_of *of, struct neap_process *ret_processes,
				   size_t capacity, size_t *ret_count, struct neap_error *err)
{
	struct search search = {.of = of, .found = ret_processes, .capacity = capacity};
	struct neap_process supervisor;
	if (of->ancestor && !neap_process_read_stat(of->ancestor, &supervisor, NULL))
		search.since_ticks = supervisor.start_ticks;
	enum neap_status status = capacity ? neap_process_each(visit, &search, err) : NEAP_OK;
	neap_map_fini(&search.parents);
	if (!status)
		*ret_count = search.count;
	return status;
}

enum neap_status neap_orphans_end(const struct neap_orphans_of *of, int grace_ms, struct neap_ended *ret_orphans,
				  size_t capacity, size_t *ret_count, struct neap_error *err)
{
	size_t total = 0;
	for (int round = 0; round < ROUNDS && total < capacity; round++) {
		struct neap_process found[NEAP_ENDING_BATCH];
		size_t wanted = capacity - total < NEAP_ENDING_BATCH ? capacity - total : NEAP_ENDING_BATCH,
		       count = 0;
		enum neap_status status = neap_orphans_find(of, found, wanted, &count, err);
		if (status)
			return status;
		if (!count)
			break;
		for (size_t i = 0; i < count; i++)
			ret_orphans[total + i] = (struct neap_ended){.process = found[i]};
		neap_process_end(ret_orphans + total, count, (uint64_t)grace_ms);
		size_t ended = 0;
		for (size_t i = 0; i < count; i++)
			ended += ret_orphans[total + i].ended_by != 0;
		total += count;
		if (!ended) /* processes that cannot be ended would be found again */
			break;
	}
	*ret_count = total;
	return NEAP_OK;
}

/* Ends the whole group at once: a process may fork faster than rounds find it. Without a supervisor nothing else
 * removes the group.
 */
static void end_group(const struct neap_orphans_of *of)
{
	struct neap_process left;
	size_t count = 0;
	char group[4200];
	if (!neap_orphans_find(of, &left, 1, &count, NULL) && count &&
	    neap_group_find(left.pid, of->run_id, group, sizeof group))
		neap_group_kill(group);
	if (!of->ancestor)
		neap_group_end(of->run_id);
}

enum neap_status neap_orphans_end_all(const struct neap_orphans_of *of,
				      void (*report)(void *context, const struct neap_ended *orphan), void *context,
				      size_t *ret_count, struct neap_error *err)
{
	size_t total = 0;
	for (int flight = 0; flight < FLIGHTS; flight++) {
		struct neap_ended orphans[NEAP_ENDING_BATCH];
		size_t count = 0, ended = 0;
		enum neap_status status = neap_orphans_end(of, GRACE_MS, orphans, NEAP_ENDING_BATCH, &count, err);
		if (status)
			return status;
		for (size_t i = 0; i < count; i++) {
			report(context, &orphans[i]);
			ended += orphans[i].ended_by != 0;
		}
		total += count;
		if (count < NEAP_ENDING_BATCH || !ended) /* processes that cannot be ended are found again */
			break;
	}
	end_group(of);
	*ret_count = total;
	return NEAP_OK;
}
