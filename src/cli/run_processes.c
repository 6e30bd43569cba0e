/* cli/run_processes.c: see run_processes.h. A rank is what a mark "rank N" of the recording says. */
#include "cli/run_processes.h"

#include "analyze/run.h"
#include "base/file.h"
#include "base/units.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES 64u
#define NO_RANK   UINT64_MAX

struct process {
	uint64_t pid, rank;
	struct neap_run_facts facts;
};

static uint64_t rank_of(const struct neap_record *record)
{
	uint64_t rank;
	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		const char *name = event->kind == NEAP_EVENT_MARK ? neap_record_name(record, event->tag) : "";
		if (!strncmp(name, "rank ", 5) && neap_u64_parse(name + 5, &rank, NULL) == NEAP_OK)
			return rank;
	}
	return NO_RANK;
}

static int by_rank(const void *a, const void *b)
{
	const struct process *one = a, *other = b;
	if (one->rank != other->rank)
		return one->rank < other->rank ? -1 : 1;
	return one->pid < other->pid ? -1 : one->pid > other->pid;
}

static size_t read_all(const char *folder, struct process processes[PROCESSES])
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	size_t count = 0;
	while (entries && count < PROCESSES && (entry = readdir(entries))) {
		struct neap_record record = {0};
		char path[PATH_MAX];
		uint64_t pid;
		if (strncmp(entry->d_name, "record.", 7) != 0 ||
		    neap_u64_parse(entry->d_name + 7, &pid, NULL) != NEAP_OK ||
		    neap_path_join(path, sizeof(path), folder, entry->d_name) != NEAP_OK ||
		    neap_record_read(path, &record, NULL) != NEAP_OK)
			continue;
		processes[count].pid = pid;
		processes[count].rank = rank_of(&record);
		neap_run_facts(&record, 0, &processes[count].facts);
		count++;
		neap_record_fini(&record);
	}
	if (entries)
		closedir(entries);
	return count;
}

void run_processes_print(const char *folder, FILE *out)
{
	struct process *processes = calloc(PROCESSES, sizeof(*processes));
	size_t count = processes ? read_all(folder, processes) : 0;
	if (count > 1)
		qsort(processes, count, sizeof(*processes), by_rank);
	for (size_t i = 0; count > 1 && i < count; i++) {
		const struct process *process = &processes[i];
		char allocated[NEAP_UNITS_ROOM], reserved[NEAP_UNITS_ROOM], rank[32] = "process";
		if (process->rank != NO_RANK)
			snprintf(rank, sizeof(rank), "rank %" PRIu64, process->rank);
		fprintf(out,
			"  %-9s %" PRIu64 ": peak %s allocated, %s reserved; %" PRIu64 " steps, ran out %" PRIu64
			" time%s\n",
			rank, process->pid, neap_size_format(process->facts.peak_allocated_bytes, allocated),
			neap_size_format(process->facts.peak_reserved_bytes, reserved), process->facts.steps,
			process->facts.ooms, process->facts.ooms == 1 ? "" : "s");
	}
	free(processes);
}
