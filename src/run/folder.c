/* run/folder.c: see folder.h. */
#include "run/folder.h"

#include "analyze/oom.h"
#include "analyze/run.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "run/simulated.h"
#include "store/result.h"
#include "trace/record.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool neap_run_folder_is(const char *path)
{
	struct stat info;
	return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Whether a file's name is a recording's. *ret_start: 1 for "start-1.record.4711", 0 (the last start) for
 * "record.4711".
 */
static bool is_recording(const char *name, uint64_t *ret_start)
{
	uint64_t start = 0, pid;
	char number[24];
	if (strncmp(name, "start-", 6) == 0) {
		size_t digits = strspn(name + 6, "0123456789");
		if (digits >= sizeof number || name[6 + digits] != '.')
			return false;
		memcpy(number, name + 6, digits);
		number[digits] = '\0';
		if (neap_u64_parse(number, &start, NULL) != NEAP_OK || start == 0)
			return false;
		name += 6 + digits + 1;
	}
	if (strncmp(name, "record.", 7) != 0 || neap_u64_parse(name + 7, &pid, NULL) != NEAP_OK)
		return false;
	*ret_start = start;
	return true;
}

struct candidate {
	uint64_t start; /* 0: the last start */
	uint64_t peak_bytes;
	bool failed; /* memory ran out in it */
};

/* False: the recording cannot be read. */
static bool read_candidate(const char *path, struct candidate *candidate, struct neap_error *err)
{
	struct neap_record record = {0};
	struct neap_run_facts facts;
	if (neap_record_read(path, &record, err) != NEAP_OK)
		return false;
	neap_run_facts(&record, 0, &facts);
	candidate->peak_bytes = facts.peak_reserved_bytes > facts.peak_allocated_bytes ? facts.peak_reserved_bytes
										       : facts.peak_allocated_bytes;
	candidate->failed = neap_oom_count(&record) > 0;
	neap_record_fini(&record);
	return true;
}

/* Whether a candidate is better than the one found so far. Compares the start (newer wins; 0 is the newest), then the
 * peak (higher wins), then the name, so that the order of files in the folder does not matter. */
static bool better(const struct candidate *one, const char *path, const struct candidate *found,
		   const char *found_path)
{
	if (!found_path[0])
		return true;
	if (one->start != found->start)
		return one->start == 0 || (found->start != 0 && one->start > found->start);
	if (one->peak_bytes != found->peak_bytes)
		return one->peak_bytes > found->peak_bytes;
	return strcmp(path, found_path) < 0;
}

static enum neap_status complain_of_none(const char *folder, struct neap_error *err)
{
	char journal[NEAP_RUN_FOLDER_PATH];
	if (neap_path_join(journal, sizeof journal, folder, "journal") == NEAP_OK && access(journal, F_OK) == 0)
		return neap_fail(err, NEAP_ENOENT,
				 "%.200s is the folder of a series: give one of its runs, in %.200s/runs", folder,
				 folder);
	return neap_fail(err, NEAP_ENOENT, "no recording (record.PID) in %.200s: no process of that run was attached",
			 folder);
}

/* The best recordings so far. `count` and `unread`: recordings of the last start that could and could not be read. */
struct search {
	struct candidate chosen, failed;
	size_t count, unread;
};

static void consider(struct search *search, const char *path, const struct candidate *candidate,
		     struct neap_run_recordings *found)
{
	search->count += candidate->start == 0;
	if (candidate->start == 0 && better(candidate, path, &search->chosen, found->path)) {
		search->chosen = *candidate;
		strcpy(found->path, path);
	}
	if (candidate->failed && better(candidate, path, &search->failed, found->failed)) {
		search->failed = *candidate;
		strcpy(found->failed, path);
	}
}

enum neap_status neap_run_folder_recordings(const char *folder, struct neap_run_recordings *ret_found,
					    struct neap_error *err)
{
	struct neap_run_recordings found = {0};
	struct search search = {0};
	DIR *entries = opendir(folder);

	if (!entries)
		return neap_fail_errno(err, errno, "reading %.200s", folder);
	for (struct dirent *entry; (entry = readdir(entries));) {
		char path[NEAP_RUN_FOLDER_PATH];
		struct candidate candidate = {0};
		if (!is_recording(entry->d_name, &candidate.start) ||
		    neap_path_join(path, sizeof path, folder, entry->d_name) != NEAP_OK)
			continue;
		if (read_candidate(path, &candidate, candidate.start ? NULL : err))
			consider(&search, path, &candidate, &found);
		else
			search.unread += candidate.start == 0;
	}
	closedir(entries);
	if (!found.path[0])
		return search.unread && err ? err->status : complain_of_none(folder, err);
	if (search.chosen.failed)
		strcpy(found.failed, found.path);
	found.others = search.count + search.unread - 1;
	*ret_found = found;
	return NEAP_OK;
}

/* "FOLDER/record.4711" -> "FOLDER/snapshot.4711.pickle". False: there is none. */
static bool find_snapshot(const char *recording, char ret_path[NEAP_RUN_FOLDER_PATH])
{
	static const char end[] = "/record.";
	char path[NEAP_RUN_FOLDER_PATH];
	const char *name = strrchr(recording, '/');
	if (!name || strncmp(name, end, sizeof end - 1) != 0)
		return false;
	int length = snprintf(path, sizeof path, "%.*s/snapshot.%s.pickle", (int)(name - recording), recording,
			      name + sizeof end - 1);
	if (length < 0 || (size_t)length >= sizeof path || access(path, R_OK) != 0)
		return false;
	strcpy(ret_path, path);
	return true;
}

enum neap_status neap_run_folder_trace(const char *path, struct neap_run_trace *ret_trace, struct neap_error *err)
{
	struct neap_run_recordings found;
	struct neap_run_trace trace = {0};
	if (!neap_run_folder_is(path)) {
		if (strlen(path) >= sizeof trace.path)
			return neap_fail(err, NEAP_EINVAL, "a path of more than %d bytes", NEAP_RUN_FOLDER_PATH - 1);
		strcpy(trace.path, path);
		*ret_trace = trace;
		return NEAP_OK;
	}
	enum neap_status status = neap_run_folder_recordings(path, &found, err);
	if (status)
		return status;
	if (!find_snapshot(found.path, trace.path))
		strcpy(trace.path, found.path);
	trace.others = found.others;
	*ret_trace = trace;
	return NEAP_OK;
}

struct neap_trace_origin neap_run_folder_origin(const char *path)
{
	struct neap_trace_origin origin = {0};
	const char *name = strrchr(path, '/');
	struct neap_result result;
	char folder[NEAP_RUN_FOLDER_PATH] = ".", file[NEAP_RUN_FOLDER_PATH];

	if (strcmp(path, "-") == 0 || (name && (size_t)(name - path) + 2 > sizeof folder)) /* "-": standard input */
		return origin;
	if (name)
		snprintf(folder, sizeof folder, "%.*s", name > path ? (int)(name - path) : 1, path);
	if (neap_path_join(file, sizeof file, folder, "result.json") != NEAP_OK)
		return origin;
	origin.simulated = neap_simulated_is_used(folder);
	if (neap_result_read(file, &result, NULL) != NEAP_OK)
		return origin;
	snprintf(origin.gpu, sizeof origin.gpu, "%s", result.device_name);
	origin.simulated |= strcmp(result.backend, "sim") == 0;
	neap_result_fini(&result);
	return origin;
}
