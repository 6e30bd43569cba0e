/* series/prune.c: lists runs and decides; see prune.h. Takes the time when result.json was written as the run's end:
 * reading thousands of results would take a second. */
#include "series/prune.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "run/recordings.h"
#include "run/run_stage.h"
#include "series/journal.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Runs that never started are kept for this long: they may be about to start. */
#define UNBEGUN_NS (3600 * NEAP_NS_PER_S)

static uint64_t ns_of(const struct timespec *time)
{
	return time->tv_sec < 0 ? 0 : (uint64_t)time->tv_sec * NEAP_NS_PER_S + (uint64_t)time->tv_nsec;
}

/* When the file `name` in the folder was written; 0: it does not exist. */
static uint64_t written_ns(const char *folder, const char *name)
{
	char path[4200];
	struct stat info;
	if (neap_path_join(path, sizeof path, folder, name) || lstat(path, &info) || !S_ISREG(info.st_mode))
		return 0;
	return ns_of(&info.st_mtim);
}

/* Finds when the run ended. False: keep all of it. */
static bool read_end(const char *folder, uint64_t now_ns, uint64_t *ret_ended_ns)
{
	switch (neap_run_stage_read(folder)) {
	case NEAP_STAGE_OVER:
		*ret_ended_ns = written_ns(folder, "result.json");
		return *ret_ended_ns > 0;
	case NEAP_STAGE_BEGAN:
		*ret_ended_ns = written_ns(folder, "began");
		return *ret_ended_ns > 0;
	case NEAP_STAGE_UNBEGUN:
		*ret_ended_ns = written_ns(folder, "lock");
		return *ret_ended_ns > 0 && *ret_ended_ns < now_ns && now_ns - *ret_ended_ns > UNBEGUN_NS;
	case NEAP_STAGE_ENDED:
		break;
	}
	return false; /* its result can still be made */
}

static bool is_locked(const char *folder)
{
	char path[4200];
	if (neap_path_join(path, sizeof path, folder, "lock"))
		return true;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0;
	close(fd);
	return locked;
}

static bool measure(const char *path, struct neap_prune_run *run)
{
	struct stat info;
	DIR *entries = opendir(path);
	if (!entries)
		return false;
	for (struct dirent *entry; (entry = readdir(entries));) {
		if (fstatat(dirfd(entries), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode))
			continue;
		uint64_t bytes = (uint64_t)info.st_blocks * 512;
		run->bytes += bytes;
		run->recording_bytes += neap_recording_is_part(entry->d_name) ? bytes : 0;
	}
	closedir(entries);
	return true;
}

static bool read_facts(const char *folder, struct neap_prune_run *run)
{
	char path[4200];
	struct neap_result result = {0};
	if (neap_run_stage_read(folder) != NEAP_STAGE_OVER)
		run->outcome = strdup(neap_outcome_name(NEAP_OUTCOME_LOST));
	else if (!neap_path_join(path, sizeof path, folder, "result.json") &&
		 !neap_result_read(path, &result, NULL)) {
		run->name = strdup(result.name);
		run->outcome = strdup(neap_outcome_name(result.outcome));
		neap_result_fini(&result);
		return run->name && run->outcome;
	}
	return true;
}

static void run_fini(struct neap_prune_run *run)
{
	free(run->folder);
	free(run->series);
	free(run->name);
	free(run->outcome);
}

static enum neap_status add(struct neap_prune *prune, const char *folder, const char *series, bool facts,
			    struct neap_error *err)
{
	struct neap_prune_run run = {0};
	struct stat info;
	if (lstat(folder, &info) || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
		return NEAP_OK;
	if (is_locked(folder)) {
		prune->busy++;
		return NEAP_OK;
	}
	if (!read_end(folder, prune->now_wall_ns, &run.ended_wall_ns) || !measure(folder, &run))
		return NEAP_OK;
	bool fits = neap_array_grow(&prune->runs, prune->count, sizeof run);
	run.folder = strdup(folder);
	run.series = strdup(series);
	bool read = fits && run.folder && run.series && (!facts || read_facts(folder, &run));
	if (read && !run.name)
		read = (run.name = strdup("")) != NULL;
	if (read && !run.outcome)
		read = (run.outcome = strdup("")) != NULL;
	if (!read) {
		run_fini(&run);
		return neap_fail(err, NEAP_ENOMEM, "out of host memory while looking at the runs");
	}
	prune->runs[prune->count++] = run;
	return NEAP_OK;
}

/* Adds each folder of `path`/runs. */
static enum neap_status scan_runs(struct neap_prune *prune, const char *path, const char *series, bool facts,
				  struct neap_error *err)
{
	char runs[4200], folder[4600];
	enum neap_status status = NEAP_OK;
	DIR *entries = neap_path_join(runs, sizeof runs, path, "runs") ? NULL : opendir(runs);
	for (struct dirent *entry; !status && entries && (entry = readdir(entries));)
		if (entry->d_name[0] != '.' && !neap_path_join(folder, sizeof folder, runs, entry->d_name))
			status = add(prune, folder, series, facts, err);
	if (entries)
		closedir(entries);
	return status;
}

/* Whether the series in the folder is finished and no process holds it. */
static bool is_finished(const char *folder)
{
	struct neap_journal *journal = NULL;
	if (!written_ns(folder, "journal") || neap_journal_open(folder, &journal, NULL))
		return false;
	bool finished = neap_journal_is_finished(journal);
	neap_journal_close(journal);
	return finished;
}

/* The series' name in its file: "nightly" for the folders "nightly-0123abcd" and "nightly-0123abcd-2". */
static void series_name(const char *folder_name, char name[256])
{
	snprintf(name, 256, "%s", folder_name);
	for (int tries = 0; tries < 2; tries++) {
		char *dash = strrchr(name, '-');
		size_t digits = dash ? strspn(dash + 1, "0123456789abcdef") : 0;
		if (!dash || dash[1 + digits])
			return;
		*dash = '\0';
		if (digits == 8)
			return;
	}
}

static enum neap_status scan_series(struct neap_prune *prune, const char *state, bool facts, struct neap_error *err)
{
	char path[4096], folder[4096], name[256];
	enum neap_status status = NEAP_OK;
	DIR *entries = neap_path_join(path, sizeof path, state, "series") ? NULL : opendir(path);
	for (struct dirent *entry; !status && entries && (entry = readdir(entries));) {
		struct stat info;
		if (entry->d_name[0] == '.' || neap_path_join(folder, sizeof folder, path, entry->d_name) ||
		    lstat(folder, &info) || !S_ISDIR(info.st_mode) || !written_ns(folder, "journal"))
			continue;
		series_name(entry->d_name, name);
		if (is_finished(folder))
			status = scan_runs(prune, folder, name, facts, err);
		else
			prune->busy++;
	}
	if (entries)
		closedir(entries);
	return status;
}

static int newest_first(const void *left, const void *right)
{
	const struct neap_prune_run *a = left, *b = right;
	if (a->ended_wall_ns != b->ended_wall_ns)
		return a->ended_wall_ns > b->ended_wall_ns ? -1 : 1;
	return strcmp(b->folder, a->folder);
}

enum neap_status neap_prune_scan(const char *state_folder, bool series, bool facts, struct neap_prune *prune,
				 struct neap_error *err)
{
	if (!prune->now_wall_ns)
		prune->now_wall_ns = neap_wall_ns();
	enum neap_status status = scan_runs(prune, state_folder, "", facts, err);
	if (!status && series)
		status = scan_series(prune, state_folder, facts, err);
	if (prune->count > 1)
		qsort(prune->runs, prune->count, sizeof *prune->runs, newest_first);
	return status;
}

void neap_prune_fini(struct neap_prune *prune)
{
	if (!prune)
		return;
	for (size_t i = 0; i < prune->count; i++)
		run_fini(&prune->runs[i]);
	free(prune->runs);
	*prune = (struct neap_prune){0};
}

static bool passes(const struct neap_prune_run *run, const struct neap_prune_rules *rules)
{
	return (!rules->series || !fnmatch(rules->series, run->series, 0)) &&
	       (!rules->name || !fnmatch(rules->name, run->name, 0)) &&
	       (!rules->outcome || !strcmp(rules->outcome, run->outcome)) &&
	       run->ended_wall_ns >= rules->since_wall_ns;
}

void neap_prune_plan(struct neap_prune *prune, const struct neap_prune_rules *rules)
{
	bool bounded = rules->until_wall_ns || rules->has_max || rules->has_max_bytes;
	uint64_t number = 0, sum = 0;
	for (size_t i = 0; i < prune->count; i++) {
		struct neap_prune_run *run = &prune->runs[i];
		uint64_t bytes = rules->recordings ? run->recording_bytes : run->bytes;
		run->goes = false;
		if (!passes(run, rules) || (rules->recordings && !bytes))
			continue;
		number++;
		sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
		if (number <= rules->keep_last)
			continue;
		run->goes = !bounded || (rules->until_wall_ns && run->ended_wall_ns < rules->until_wall_ns) ||
			    (rules->has_max && number > rules->max) ||
			    (rules->has_max_bytes && sum > rules->max_bytes);
	}
}

/* Whether the run's folder lies in STATE/runs, even if its path leads there by links. */
static bool is_in_state(const char *run_folder, const char *state_folder)
{
	char parent[4200], runs[4200];
	struct stat above, of_state;
	return !neap_path_join(parent, sizeof parent, run_folder, "..") &&
	       !neap_path_join(runs, sizeof runs, state_folder, "runs") && !stat(parent, &above) &&
	       !stat(runs, &of_state) && above.st_dev == of_state.st_dev && above.st_ino == of_state.st_ino;
}

enum neap_status neap_prune_default(const char *state_folder, const char *run_folder, bool recorded,
				    struct neap_prune_done *ret_done, struct neap_error *err)
{
	struct neap_prune_rules rules = {
		.recordings = true, .has_max_bytes = true, .max_bytes = NEAP_PRUNE_DEFAULT_BYTES};
	struct neap_prune prune = {0};
	const char *text = getenv(NEAP_PRUNE_VARIABLE);
	*ret_done = (struct neap_prune_done){0};
	if ((text && !strcmp(text, "unlimited")) || !is_in_state(run_folder, state_folder))
		return NEAP_OK;
	enum neap_status status = text && *text ? neap_size_parse(text, &rules.max_bytes, err) : NEAP_OK;
	if (status)
		return neap_fail(err, NEAP_EPARSE,
				 NEAP_PRUNE_VARIABLE ": expected a size such as 512MiB, or 'unlimited', not '%.60s'",
				 text);
	if (!recorded)
		return NEAP_OK;
	status = neap_prune_scan(state_folder, false, false, &prune, err);
	if (!status) {
		neap_prune_plan(&prune, &rules);
		neap_prune_apply(&prune, true, ret_done);
	}
	neap_prune_fini(&prune);
	return status;
}
