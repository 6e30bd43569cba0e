/* run/supervise_begin.c: sets up what a run keeps to its end: its id, its folder with the lock, disk space for its
 * result, the watched devices.
 */
#include "run/supervise_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/owner.h"
#include "base/units.h"
#include "device/driver.h"
#include "device/visible.h"
#include "neap/trace.h"
#include "run/recordings.h"
#include "run/run_stage.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define FIRST_DEVICE_NS   (60 * NEAP_NS_PER_S) /* longest wait for the driver to name the first device */
#define RESULT_ROOM_BYTES (240 * 1024)         /* a memory curve of NEAP_CURVE_POINTS, and the texts */
#define END_ROOM_BYTES    (48 * 1024)          /* RUN/ended has no curve */
#define PRUNED_TRIES      5
#define LOCK_TRIES        500 /* of 1 ms: a process that checks whether a run is over holds its lock for a moment */

void neap_run_id_make(char text[NEAP_RUN_ID_CAPACITY])
{
	uint64_t now_ns = neap_wall_ns();
	time_t seconds = (time_t)(now_ns / NEAP_NS_PER_S);
	struct tm local = {0};
	localtime_r(&seconds, &local);
	size_t length = strftime(text, NEAP_RUN_ID_CAPACITY, "%Y%m%d-%H%M%S", &local);
	snprintf(text + length, NEAP_RUN_ID_CAPACITY - length, "-%d-%09" PRIu64, getpid(),
		 (uint64_t)(now_ns % NEAP_NS_PER_S));
}

static enum neap_status check_run_id(const char *text, struct neap_error *err)
{
	size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
	if (!length || text[length] || length >= NEAP_RUN_ID_CAPACITY)
		return neap_fail(err, NEAP_EINVAL,
				 "run id '%s': expected letters, digits, '.', '_' and '-', at most %d", text,
				 NEAP_RUN_ID_CAPACITY - 1);
	return NEAP_OK;
}

void neap_supervise_argv_free(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}

/* If the run has no parameters, braces are plain text. */
enum neap_status neap_supervise_argv(const struct neap_supervise *run, char ***ret_argv, struct neap_error *err)
{
	char *const *command = run->options.command;
	size_t count = 0;
	while (command[count])
		count++;
	char **argv = calloc(count + 1, sizeof *argv);
	enum neap_status status = argv ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "out of host memory");
	for (size_t i = 0; !status && i < count; i++) {
		struct neap_buffer word = {0};
		if (run->parameters.count && !run->asks)
			status = neap_parameters_expand(&run->parameters, command[i], &word, err);
		else
			neap_buffer_text(&word, command[i]);
		neap_buffer_text(&word, ""); /* an empty word is a word */
		if (!status)
			status = neap_buffer_status(&word, err);
		if (!status && !(argv[i] = strdup(neap_buffer_string(&word))))
			status = neap_fail(err, NEAP_ENOMEM, "out of host memory");
		neap_buffer_fini(&word);
	}
	if (status)
		neap_supervise_argv_free(argv);
	else
		*ret_argv = argv;
	return status;
}

/* Makes the folder and keeps its absolute path. */
static enum neap_status make_run_folder(struct neap_supervise *run, struct neap_error *err)
{
	char path[PATH_MAX];
	enum neap_status status = neap_make_folder(run->options.folder, 0755, err);
	if (status)
		return status;
	if (!realpath(run->options.folder, path))
		return neap_fail_errno(err, errno, "finding the folder %s", run->options.folder);
	if (strlen(path) + 300 > sizeof run->folder)
		return neap_fail(err, NEAP_EINVAL, "the path of the folder %s is too long", run->options.folder);
	strcpy(run->folder, path);
	return NEAP_OK;
}

/* Call under the lock: a run that is ending writes its result before it releases the lock. */
static enum neap_status check_unended(const struct neap_supervise *run, struct neap_error *err)
{
	char path[PATH_MAX];
	enum neap_status status = neap_path_join(path, sizeof path, run->folder, "result.json");
	if (!status && neap_run_stage_read(run->folder) == NEAP_STAGE_ENDED)
		neap_run_stage_recover(run->folder, NULL);
	if (!status && !access(path, F_OK))
		status = neap_fail(err, NEAP_EEXIST, "%s is there already: that run is over; give another --folder",
				   path);
	return status;
}

/* Whether series/prune_apply.c deleted the folder after we opened its lock and before we got it. */
static bool was_pruned(const struct neap_supervise *run)
{
	struct stat info;
	return !run->options.has_lock && !run->owned && !fstat(run->lock_fd, &info) && !info.st_nlink;
}

static enum neap_status lock_once(struct neap_supervise *run, struct neap_error *err)
{
	char path[PATH_MAX];
	enum neap_status status = neap_path_join(path, sizeof path, run->folder, "lock");
	if (status)
		return status;
	if (run->options.has_lock) {
		if (fcntl(run->options.lock_fd, F_SETFD, FD_CLOEXEC)) /* it must not outlive us in the command */
			return neap_fail_errno(err, errno, "using descriptor %d as the lock", run->options.lock_fd);
		run->lock_fd = run->options.lock_fd;
	} else {
		run->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (run->lock_fd < 0)
			return neap_fail_errno(err, errno, "creating %s", path);
	}
	int failed = 0; /* flock does nothing on an inherited lock that is already held */
	for (int tries = 0; (failed = flock(run->lock_fd, LOCK_EX | LOCK_NB)) &&
			    (errno == EWOULDBLOCK || errno == EINTR) && tries < LOCK_TRIES;
	     tries++)
		neap_clock_sleep(neap_clock_system(), NEAP_NS_PER_MS); /* perhaps held only for a check */
	if (failed && neap_owner_is_needed(errno)) {
		status = neap_owner_take(run->folder, err);
		run->owned = !status;
		return status;
	}
	if (failed)
		return errno == EWOULDBLOCK
			       ? neap_fail(err, NEAP_EBUSY, "%s is locked: that run is still running", path)
			       : neap_fail_errno(err, errno, "locking %s", path);
	return NEAP_OK;
}

static enum neap_status take_lock(struct neap_supervise *run, struct neap_error *err)
{
	enum neap_status status = lock_once(run, err);
	for (int tries = 0; !status && was_pruned(run) && tries < PRUNED_TRIES; tries++) {
		close(run->lock_fd);
		run->lock_fd = -1;
		status = make_run_folder(run, err);
		if (!status)
			status = lock_once(run, err);
	}
	return status;
}

static void release_disk(struct neap_supervise *run)
{
	if (run->room_fd >= 0)
		close(run->room_fd);
	run->room_fd = -1;
}

/* Reserves disk space for the result before the command starts: a run of hours whose result cannot be written would
 * have to be repeated. The file has no name, so it disappears however we end. */
static enum neap_status reserve_disk(struct neap_supervise *run, struct neap_error *err)
{
	char path[PATH_MAX];
	struct rlimit limit;
	enum neap_status status = neap_path_join(path, sizeof path, run->folder, "room.XXXXXX");
	if (status)
		return status;
	run->room_fd = mkostemp(path, O_CLOEXEC);
	if (run->room_fd < 0)
		return neap_fail_errno(err, errno, "creating %s", path);
	unlink(path);
	const off_t bytes = RESULT_ROOM_BYTES + END_ROOM_BYTES;
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < (rlim_t)bytes)
		return NEAP_OK;
	int cause;
	do
		cause = posix_fallocate(run->room_fd, 0, bytes);
	while (cause == EINTR);
	if (cause == ENOSPC || cause == EDQUOT) /* any other cause: the file system cannot reserve space */
		return neap_fail_errno(err, cause, "taking %d KiB in %s for the run's result", (int)(bytes / 1024),
				       run->folder);
	return NEAP_OK;
}

void neap_supervise_headroom_for_end(struct neap_supervise *run)
{
	struct stat info;
	if (run->room_fd >= 0 && !fstat(run->room_fd, &info) && info.st_size > RESULT_ROOM_BYTES &&
	    ftruncate(run->room_fd, RESULT_ROOM_BYTES))
		release_disk(run);
}

/* The supervisor warns, because the agent is silent inside the command: it just skips the recording if space is
 * short.
 */
static void warn_of_little_space(const struct neap_supervise *run)
{
	char left[NEAP_UNITS_CAPACITY], needed[NEAP_UNITS_CAPACITY];
	struct statvfs disk;
	if (statvfs(run->folder, &disk))
		return;
	uint64_t left_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
	if (left_bytes < NEAP_RECORD_BYTES)
		neap_log(run->options.log, NEAP_LOG_WARNING,
			 "Little space in %s: %s free, a recording takes %s: a command without one is not attached",
			 run->folder, neap_size_format(left_bytes, left),
			 neap_size_format(NEAP_RECORD_BYTES, needed));
}

/* The value of CUDA_VISIBLE_DEVICES that chooses the watched device. If there are several devices: the UUID of CUDA's
 * first one, since only the driver knows their order; "" if it cannot be named. */
static const char *visible_devices(struct neap_supervise *run, char uuid_text[48])
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	struct neap_error why = {0};
	bool several = run->monitor && neap_monitor_device_count(run->monitor) > 1;
	if (run->options.device || (!several && !neap_driver_names_mig(list)))
		return list;
	if (run->options.turn && run->options.turn->any_device)
		return ""; /* known once it may start */
	if (!neap_visible_first(NEAP_BACKEND_DEFAULT, FIRST_DEVICE_NS, uuid_text, &why))
		return uuid_text;
	snprintf(run->unwatched, sizeof run->unwatched, "%s", why.message);
	neap_log(run->options.log, NEAP_LOG_WARNING, "Device memory is not watched until a process is attached: %s",
		 why.message);
	return "";
}

static enum neap_status open_devices(struct neap_supervise *run, struct neap_error *err)
{
	char uuid_text[48];
	struct neap_error why = {0};
	if (neap_monitor_open(NEAP_BACKEND_DEFAULT, &run->monitor, &why)) {
		run->monitor = NULL;
		/* Without a driver, fail if the run's options need a device, or if the options were wrong. */
		if (why.status == NEAP_EINVAL || run->options.only_device ||
		    run->options.needs.kind != NEAP_NEEDS_NONE || run->options.limits.at[NEAP_LIMIT_DEVICE]) {
			if (err)
				*err = why;
			return why.status;
		}
		neap_log(run->options.log, NEAP_LOG_WARNING, "Device memory is not watched: %s", why.message);
	}
	enum neap_status status = neap_observe_init(&run->observe, run->monitor, run->options.device,
						    visible_devices(run, uuid_text), run->run_id, err);
	if (!status && run->observe.runtime_note[0])
		neap_log(run->options.log, NEAP_LOG_WARNING, "%c%s", toupper(run->observe.runtime_note[0]),
			 run->observe.runtime_note + 1);
	/* No process can use a device that cannot be read now. A caller that waits for it retries with a newly opened
	 * driver. */
	bool needed = run->options.only_device || run->options.needs.kind != NEAP_NEEDS_NONE;
	if (!status && needed && run->observe.watched < run->observe.device_count)
		status = neap_observe_read(&run->observe, err);
	if (!status && run->options.only_device)
		snprintf(run->visible, sizeof run->visible, "%s", run->observe.now.uuid_text);
	return status;
}

struct neap_orphans_of neap_supervise_processes(const struct neap_supervise *run)
{
	return (struct neap_orphans_of){run->run_id, getpid(), {run->guard.pid, run->tee.pid}};
}

enum neap_status neap_supervise_begin(const struct neap_supervise_options *options,
				      struct neap_supervise **ret_supervise, struct neap_error *err)
{
	struct neap_supervise *run =
		mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char **argv = NULL;
	if (run == MAP_FAILED)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	run->options = *options;
	run->parameters = options->parameters;
	run->ladder = options->ladder;
	run->asks = options->automatic && !options->ladder.count;
	run->batch_parts = 1;
	run->lock_fd = run->signal_fd = run->room_fd = -1;
	if (options->run_id)
		snprintf(run->run_id, sizeof run->run_id, "%s", options->run_id);
	else
		neap_run_id_make(run->run_id);
	enum neap_status status = check_run_id(options->run_id ? options->run_id : run->run_id, err);
	if (!status)
		status = neap_supervise_argv(run, &argv, err);
	neap_supervise_argv_free(argv);
	if (!status)
		status = make_run_folder(run, err);
	if (!status)
		status = take_lock(run, err);
	if (!status)
		status = check_unended(run, err);
	if (!status)
		status = neap_supervise_limits_check(run, err);
	if (!status)
		status = neap_child_logs_check(run, err);
	if (!status && !run->options.log_files)
		neap_tee_start(&run->tee); /* before devices are opened, so that it inherits none */
	if (!status)
		status = neap_child_signals_begin(run, err);
	if (!status)
		status = open_devices(run, err);
	if (!status)
		status = neap_supervise_spec_write(run, err);
	if (!status)
		status = reserve_disk(run, err);
	if (status) {
		neap_supervise_end(run);
		return status;
	}
	warn_of_little_space(run);
	*ret_supervise = run;
	return NEAP_OK;
}

enum neap_status neap_supervise_publish(struct neap_supervise *run, const struct neap_result *result,
					struct neap_error *err)
{
	char path[PATH_MAX];
	release_disk(run);
	enum neap_status status = neap_path_join(path, sizeof path, run->folder, "result.json");
	if (!status)
		status = neap_result_write(path, result, err);
	if (!status)
		neap_recordings_cut(run->folder);
	return status;
}

const char *neap_supervise_folder(const struct neap_supervise *run) { return run->folder; }

bool neap_supervise_device(const struct neap_supervise *run, size_t *ret_index, size_t *ret_count)
{
	if (run->observe.watched >= run->observe.device_count)
		return false;
	*ret_index = run->observe.watched;
	*ret_count = run->observe.device_count;
	return true;
}

void neap_supervise_end(struct neap_supervise *run)
{
	if (!run)
		return;
	neap_group_remove(&run->group);
	neap_child_guard_end(run); /* first: the guard may still use what is freed below */
	neap_supervise_keep_end(run);
	neap_observe_fini(&run->observe);
	neap_monitor_close(run->monitor);
	neap_tee_end(&run->tee);
	neap_child_signals_end(run);
	neap_buffer_fini(&run->last_card);
	release_disk(run);
	if (run->owned)
		neap_owner_leave(run->folder);
	if (run->lock_fd >= 0)
		close(run->lock_fd);
	munmap(run, sizeof *run);
}
