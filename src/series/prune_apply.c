/* series/prune_apply.c: deletes by the plan; see prune.h.
 *
 * A starting run takes the lock of its folder first. We hold that lock while we delete: either the run got it before,
 * and we leave it alone, or it finds the lock file deleted and makes the folder again (supervise_begin.c). We remove
 * names one by one and never follow a link, so its target stays. The result goes last, so that an interrupted
 * deletion can be continued. */
#include "series/prune.h"

#include "base/error.h"
#include "base/file.h"
#include "base/owner.h"
#include "run/recordings.h"
#include "run/run_stage.h"
#include "series/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a name's rest is empty, or is the suffix of a file that is still being written. */
static bool is_end(const char *rest) { return !*rest || !strncmp(rest, ".tmp-", 5) || !strcmp(rest, ".part"); }

/* Whether a name is the prefix, a number and `ending`. If `ending` is NULL: the prefix and the six letters of
 * mkstemp. */
static bool has_suffix(const char *name, const char *prefix, const char *ending)
{
	size_t length = strlen(prefix);
	if (strncmp(name, prefix, length) != 0)
		return false;
	size_t suffix = ending ? strspn(name + length, "0123456789") : strcspn(name + length, ".");
	const char *rest = name + length + suffix;
	if (!ending)
		return suffix == 6 && is_end(rest);
	return suffix > 0 && !strncmp(rest, ending, strlen(ending)) && is_end(rest + strlen(ending));
}

/* The same list is in ARCHITECTURE.md: a test compares them. */
bool neap_prune_is_ours(const char *name)
{
	static const char *const names[] = {"lock",      "owner",  "spec.json",  "result.json", "began",
					    "ended",     "killed", "stdout.log", "stderr.log",  "claim",
					    "view.json", "queued", "revive",     "neap.log"};
	static const char *const numbered[][2] = {
		{"record.", ""},    {"oom.", ""},           {"error.", ""},           {"note.", ""},
		{"simulated.", ""}, {"estimate.", ".json"}, {"snapshot.", ".pickle"}, {"stacks.", ""},
		{"history.", ""},   {"kept.", ""},          {"batch.", ""},           {"driver.", ""},
		{"code.", ""},      {"steps.", ""},         {"races.", ""},           {"places.", ""}};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strncmp(name, names[i], strlen(names[i])) && is_end(name + strlen(names[i])))
			return true;
	if (has_suffix(name, "room.", NULL) || has_suffix(name, "owner.", NULL))
		return true;
	if (!strncmp(name, "start-", 6)) { /* start-N.record.PID */
		size_t digits = strspn(name + 6, "0123456789");
		if (!digits || name[6 + digits] != '.')
			return false;
		name += 6 + digits + 1;
	}
	for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++)
		if (has_suffix(name, numbered[i][0], numbered[i][1]))
			return true;
	return false;
}

/* The descriptors held while a run is deleted. */
struct hold {
	const char *folder;
	int folder_fd, lock_fd;
	bool owned;
};

/* Opens the folder and takes the run's lock. NEAP_EBUSY: the run is running, or has changed since the scan. */
static enum neap_status take(const char *folder, struct hold *hold, struct neap_error *err)
{
	struct stat info;
	*hold = (struct hold){.folder = folder, .lock_fd = -1};
	hold->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (hold->folder_fd < 0)
		return neap_fail_errno(err, errno, "opening %.300s", folder);
	if (fstat(hold->folder_fd, &info) || info.st_uid != geteuid())
		return neap_fail(err, NEAP_EPERM, "%.300s is another user's", folder);
	hold->lock_fd = openat(hold->folder_fd, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (hold->lock_fd < 0)
		return neap_fail_errno(err, errno, "opening %.300s/lock", folder);
	int failed = flock(hold->lock_fd, LOCK_EX | LOCK_NB) ? errno : 0;
	if (failed && !neap_owner_is_needed(failed))
		return neap_fail(err, NEAP_EBUSY, "%.300s is locked: that run is still running", folder);
	if (failed) {
		enum neap_status status = neap_owner_take(folder, err);
		hold->owned = !status;
		return status;
	}
	if (neap_run_stage_read(folder) == NEAP_STAGE_ENDED)
		return neap_fail(err, NEAP_EBUSY, "the result of %.300s is still to be made", folder);
	return NEAP_OK;
}

static void leave(struct hold *hold)
{
	if (hold->owned)
		neap_owner_leave(hold->folder);
	if (hold->lock_fd >= 0)
		close(hold->lock_fd);
	if (hold->folder_fd >= 0)
		close(hold->folder_fd);
}

/* Calls `visit` for each name but "." and "..", until it returns false. */
static bool each_name(int folder_fd, bool (*visit)(int folder_fd, const char *name, void *context), void *context)
{
	bool going = true;
	int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	if (!entries) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	for (struct dirent *entry; going && (entry = readdir(entries));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			going = visit(folder_fd, entry->d_name, context);
	closedir(entries);
	return going;
}

struct removal {
	bool recordings;
	const char *folder;
	struct neap_prune_done *done;
	uint64_t bytes;
	int error_number;
};

static bool check(int folder_fd, const char *name, void *context)
{
	struct removal *removal = context;
	struct stat info;
	if (neap_prune_is_ours(name) && !fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) &&
	    !S_ISDIR(info.st_mode))
		return true;
	if (!removal->done->foreign_path[0])
		snprintf(removal->done->foreign_path, sizeof removal->done->foreign_path, "%.250s/%.250s",
			 removal->folder, name);
	return false;
}

static bool remove_name(int folder_fd, const char *name, struct removal *removal)
{
	struct stat info;
	if (fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT;
	if (unlinkat(folder_fd, name, 0)) {
		removal->error_number = errno;
		return false;
	}
	removal->bytes += info.st_nlink == 1 ? (uint64_t)info.st_blocks * 512 : 0;
	return true;
}

/* Removes a file, except result.json and lock: they identify the run and go last. */
static bool remove_one(int folder_fd, const char *name, void *context)
{
	struct removal *removal = context;
	bool goes = removal->recordings ? neap_recording_is_part(name)
					: strcmp(name, "result.json") != 0 && strcmp(name, "lock") != 0;
	return !goes || remove_name(folder_fd, name, removal);
}

static enum neap_status remove_held(struct hold *hold, struct removal *removal, struct neap_error *err)
{
	if (!removal->recordings && !each_name(hold->folder_fd, check, removal))
		return NEAP_EEXIST;
	bool removed = each_name(hold->folder_fd, remove_one, removal);
	if (removed && !removal->recordings)
		removed = remove_name(hold->folder_fd, "result.json", removal) &&
			  remove_name(hold->folder_fd, "lock", removal);
	if (removed && !removal->recordings && rmdir(hold->folder)) {
		removal->error_number = errno;
		removed = false;
	}
	return removed ? NEAP_OK : neap_fail_errno(err, removal->error_number, "deleting in %.300s", hold->folder);
}

static void remove_run(const struct neap_prune_run *run, bool recordings, struct neap_prune_done *done)
{
	struct removal removal = {.recordings = recordings, .folder = run->folder, .done = done, .error_number = EIO};
	struct neap_error err = {0};
	struct hold hold;
	enum neap_status status = take(run->folder, &hold, &err);
	if (!status)
		status = remove_held(&hold, &removal, &err);
	leave(&hold);
	done->bytes += removal.bytes;
	if (!status)
		done->runs++;
	else if (status == NEAP_EBUSY)
		done->busy++;
	else if (status == NEAP_EEXIST)
		done->foreign++;
	else if (!done->failed++)
		done->error = err;
}

/* The series of an attempt's folder, SERIES/runs/EXPERIMENT-N. We hold its journal, so that no process resumes it. */
struct held_series {
	char folder[4096];
	struct neap_journal *journal; /* NULL: unfinished, or held by another process */
};

static bool hold_series(struct held_series *held, const char *run_folder)
{
	char folder[4096];
	snprintf(folder, sizeof folder, "%s", run_folder);
	for (int up = 0; up < 2; up++)
		*strrchr(folder, '/') = '\0';
	if (!strcmp(folder, held->folder))
		return held->journal != NULL;
	neap_journal_close(held->journal);
	held->journal = NULL;
	strcpy(held->folder, folder);
	if (neap_journal_open(folder, &held->journal, NULL))
		held->journal = NULL;
	else if (!neap_journal_is_finished(held->journal)) {
		neap_journal_close(held->journal);
		held->journal = NULL;
	}
	return held->journal != NULL;
}

void neap_prune_apply(const struct neap_prune *prune, bool recordings, struct neap_prune_done *ret_done)
{
	struct held_series held = {0};
	struct neap_prune_done done = {0};
	for (size_t i = prune->count; i-- > 0;) { /* oldest first: if it is interrupted, the newest remain */
		const struct neap_prune_run *run = &prune->runs[i];
		if (!run->goes)
			continue;
		if (run->series[0] && !hold_series(&held, run->folder))
			done.busy++;
		else
			remove_run(run, recordings || run->series[0], &done);
	}
	neap_journal_close(held.journal);
	*ret_done = done;
}
