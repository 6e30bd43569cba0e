/* estimate/read.c: reads the folder of a run: the files of each process (estimate.PID.json, snapshot.PID.pickle; see
 * python/neap/_estimate.py), and the trace of the process that reserved most. The program's processes may write
 * anything there: every length and count is capped, and a file that is not of the form is an error with its name. */
#include "estimate/estimate.h"

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "run/run_stage.h"
#include "store/json.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES (1u << 20)

static uint64_t get_number(const json_t *object, const char *key, uint64_t otherwise)
{
	neap_json_get_number(object, key, &otherwise);
	return otherwise;
}

static void get_text(const json_t *object, const char *key, char *ret_text, size_t capacity)
{
	snprintf(ret_text, capacity, "%s", neap_json_get_text(object, key));
}

/* The most critical first: a size, a branch, a value; then the most frequent. */
static int by_use(const void *a, const void *b)
{
	const struct neap_estimate_read *first = a, *second = b;
	int order = (second->use[0] == 's') - (first->use[0] == 's');
	if (!order)
		order = (second->use[0] == 'b') - (first->use[0] == 'b');
	if (!order)
		order = (second->count > first->count) - (second->count < first->count);
	return order;
}

static bool same_place(const struct neap_estimate_read *a, const struct neap_estimate_read *b)
{
	return a->line == b->line && !strcmp(a->file, b->file) && !strcmp(a->reader, b->reader);
}

/* Adds up the reads of each line: the ranks of a program run the same lines. */
static void add_reads(const json_t *about, struct neap_estimate_run *run)
{
	size_t index;
	json_t *item;
	run->reads_lost += get_number(about, "reads_lost", 0);
	json_array_foreach(json_object_get(about, "reads"), index, item)
	{
		struct neap_estimate_read read = {.line = get_number(item, "line", 0),
						  .count = get_number(item, "count", 0)};
		size_t at = 0;
		get_text(item, "file", read.file, sizeof read.file);
		get_text(item, "function", read.function, sizeof read.function);
		get_text(item, "reader", read.reader, sizeof read.reader);
		get_text(item, "use", read.use, sizeof read.use);
		while (at < run->read_count && !same_place(&run->reads[at], &read))
			at++;
		if (at < run->read_count)
			run->reads[at].count += read.count;
		else if (at < NEAP_ESTIMATE_READS)
			run->reads[run->read_count++] = read;
		else
			run->reads_lost++;
	}
}

/* Takes the figures of the device on which the process reserved most. */
static void take_device(const json_t *about, struct neap_estimate_process *process)
{
	size_t index;
	json_t *item;
	json_array_foreach(json_object_get(about, "devices"), index, item)
	{
		uint64_t reserved = get_number(item, "reserved_peak", 0);
		if (index > 0 && reserved <= process->reserved_peak)
			continue;
		process->device = index;
		process->reserved_peak = reserved;
		process->allocated_peak = get_number(item, "allocated_peak", 0);
		process->requested_peak = get_number(item, "requested_peak", 0);
		get_text(item, "uuid", process->device_uuid, sizeof process->device_uuid);
	}
}

/* Adds the names that are not in the list yet, as long as there is room. */
static void take_not_computed(const json_t *names, struct neap_estimate_run *run)
{
	size_t index, used = strlen(run->not_computed);
	json_t *item;
	json_array_foreach(names, index, item)
	{
		const char *name = json_string_value(item);
		if (name && !strstr(run->not_computed, name) && used + strlen(name) + 3 < sizeof run->not_computed)
			used += (size_t)sprintf(run->not_computed + used, "%s%s", used ? ", " : "", name);
	}
}

static void take_version(const json_t *about, struct neap_estimate_run *run)
{
	size_t index, used = 0;
	json_t *item;
	get_text(about, "torch", run->torch, sizeof run->torch);
	get_text(about, "cuda", run->cuda, sizeof run->cuda);
	run->compiled |= json_is_true(json_object_get(about, "compiled"));
	run->has_triton |= json_is_true(json_object_get(about, "triton"));
	run->computed |= json_is_true(json_object_get(about, "computed"));
	take_not_computed(json_object_get(about, "not_computed"), run);
	run->reads_hidden |= json_is_true(json_object_get(about, "reads_hidden"));
	run->architectures[0] = '\0';
	json_array_foreach(json_object_get(about, "architectures"), index, item)
	{
		const char *name = json_string_value(item);
		if (name && used + strlen(name) + 2 < sizeof run->architectures)
			used += (size_t)sprintf(run->architectures + used, "%s ", name);
	}
}

static void take_waited(const json_t *about, struct neap_estimate_read *ret_waited)
{
	const json_t *waited = json_object_get(about, "waited");
	*ret_waited = (struct neap_estimate_read){.line = get_number(waited, "line", 0)};
	get_text(waited, "file", ret_waited->file, sizeof ret_waited->file);
	get_text(waited, "function", ret_waited->function, sizeof ret_waited->function);
}

static void take_compiled(const json_t *about, struct neap_estimate_process *process)
{
	size_t index;
	json_t *item;
	json_array_foreach(json_object_get(about, "compiled_updates"), index, item)
	{
		if (index >= NEAP_ESTIMATE_COMPILED)
			process->compiled_more++;
		else if (json_integer_value(item) > 0)
			process->compiled[index] = (uint64_t)json_integer_value(item);
	}
}

static enum neap_status join(const char *folder, const char *name, char path[4096], struct neap_error *err)
{
	enum neap_status status = neap_path_join(path, 4096, folder, name);
	return status ? neap_fail(err, status, "%.100s...: the path of this folder is too long", folder) : NEAP_OK;
}

static enum neap_status read_process(const char *folder, uint64_t pid, struct neap_estimate_run *run,
				     struct neap_error *err)
{
	struct neap_estimate_process process = {.pid = pid};
	struct neap_buffer text = {0};
	char path[4096], name[64];
	json_t *about = NULL;
	enum neap_status status = NEAP_OK;
	snprintf(name, sizeof name, "estimate.%" PRIu64 ".json", pid);
	if (run->process_count == NEAP_ESTIMATE_PROCESSES)
		return neap_fail(err, NEAP_EINVAL, "more than %d processes use the GPU", NEAP_ESTIMATE_PROCESSES);
	if ((status = join(folder, name, path, err)) != NEAP_OK ||
	    (status = neap_file_read(path, FILE_BYTES, &text, err)) != NEAP_OK)
		goto out;
	status = neap_json_parse(path, neap_buffer_string(&text), text.length, &about, err);
	if (status == NEAP_ENOMEM)
		goto out;
	if (!json_is_object(about)) {
		status = neap_fail(err, NEAP_EPARSE, "%s: not what a process of an estimate writes", path);
		goto out;
	}
	process.rank = get_number(about, "rank", UINT64_MAX);
	process.steps = get_number(about, "steps", 0);
	process.forwards = get_number(about, "forwards", 0);
	process.grew_at = get_number(about, "grew_at", 0);
	process.grew_requested = get_number(about, "grew_requested", 0);
	process.grew_reserved = get_number(about, "grew_reserved", 0);
	process.optimizer = json_is_true(json_object_get(about, "optimizer"));
	process.shared = json_is_true(json_object_get(about, "shared"));
	take_waited(about, &process.waited);
	take_compiled(about, &process);
	take_device(about, &process);
	snprintf(name, sizeof name, "snapshot.%" PRIu64 ".pickle", pid);
	status = join(folder, name, process.snapshot, err);
	if (status || !process.reserved_peak) /* the process looked at CUDA, and allocated nothing */
		goto out;
	take_version(about, run);
	add_reads(about, run);
	run->processes[run->process_count++] = process;
out:
	json_decref(about);
	neap_buffer_fini(&text);
	return status;
}

static int by_rank(const void *a, const void *b)
{
	const struct neap_estimate_process *first = a, *second = b;
	if (first->rank != second->rank)
		return first->rank < second->rank ? -1 : 1;
	return first->pid < second->pid ? -1 : first->pid > second->pid;
}

static enum neap_status read_processes(const char *folder, struct neap_estimate_run *run, struct neap_error *err)
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	enum neap_status status = NEAP_OK;
	if (!entries)
		return neap_fail(err, NEAP_EIO, "%s: cannot be read", folder);
	while (!status && (entry = readdir(entries))) {
		char digits[32], *dot;
		uint64_t pid;
		if (strncmp(entry->d_name, "estimate.", 9) != 0)
			continue;
		snprintf(digits, sizeof digits, "%s", entry->d_name + 9);
		dot = strchr(digits, '.');
		if (!dot || strcmp(dot, ".json") != 0)
			continue;
		*dot = '\0';
		if (neap_u64_parse(digits, &pid, NULL) == NEAP_OK)
			status = read_process(folder, pid, run, err);
	}
	closedir(entries);
	qsort(run->processes, run->process_count, sizeof *run->processes, by_rank);
	qsort(run->reads, run->read_count, sizeof *run->reads, by_use);
	for (size_t i = 0; i < run->process_count; i++)
		if (run->processes[i].reserved_peak > run->processes[run->worst].reserved_peak)
			run->worst = i;
	if (!status && run->process_count == 0)
		return neap_fail(err, NEAP_ENOENT, "no process of it allocated GPU memory through PyTorch");
	return status;
}

/* Takes the peaks from the trace: a program may reset PyTorch's statistics. */
static enum neap_status analyze(struct neap_estimate_run *run, struct neap_error *err)
{
	struct neap_estimate_process *process = &run->processes[run->worst];
	struct neap_analysis_options options = {.device = process->device};
	enum neap_status status = neap_trace_read(process->snapshot, &run->trace, err);
	if (!status)
		status = neap_analyze(run->trace, &options, &run->analysis, err);
	if (status)
		return status;
	const struct neap_profile *profile = &run->analysis.profile;
	const struct neap_stats *stats = &run->analysis.replay.usage.stats;
	run->requested_peak = profile->requested_peak.requested;
	run->reserved_peak = profile->reserved_peak.reserved;
	run->allocated_peak = neap_analysis_exact(&run->analysis)
				      ? (uint64_t)stats->metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak
				      : process->allocated_peak;
	return neap_estimate_find_orders(run, err);
}

enum neap_status neap_estimate_read(const char *folder, struct neap_estimate_run *run, struct neap_error *err)
{
	char path[4096];
	enum neap_status status = join(folder, "result.json", path, err);
	neap_run_stage_resolve(folder);
	neap_view_facts_read(folder, &run->view);
	if (!status)
		status = neap_result_read(path, &run->result, err);
	if (!status)
		status = read_processes(folder, run, err);
	if (!status)
		status = analyze(run, err);
	neap_simulated_read(folder, &run->gaps);
	if (!status && neap_estimate_is_unbounded(run))
		status = neap_estimate_find_convolution(run, err);
	neap_code_read(folder, run->processes[run->worst].pid, &run->code);
	return status;
}

size_t neap_estimate_count_own(const struct neap_estimate_plan *plan, const struct neap_estimate_run *runs)
{
	size_t count = 0;
	for (size_t i = 0; i < plan->run_count; i++)
		count += !runs[i].processes[runs[i].worst].shared;
	return count;
}

void neap_estimate_run_fini(struct neap_estimate_run *run)
{
	neap_result_fini(&run->result);
	neap_analysis_fini(&run->analysis);
	neap_trace_free(run->trace);
	run->trace = NULL;
}
