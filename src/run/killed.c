/* run/killed.c: see killed.h. The folder's name comes from the target's environment, so the target can choose it:
 * neap writes only to this one name, and only in a run's folder that our user owns. */
#include "run/killed.h"

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum neap_status open_run(pid_t target, int *ret_fd, struct neap_error *err)
{
	char folder[4096];
	struct stat info;
	enum neap_status status = neap_process_environment(target, "NEAP_RUN_DIR", folder, sizeof folder);
	if (status || folder[0] != '/')
		return neap_fail(err, NEAP_ENOENT, "process %d belongs to no run", (int)target);
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening the run's folder %s", folder);
	if (fstat(fd, &info) || info.st_uid != geteuid() || faccessat(fd, "lock", F_OK, AT_SYMLINK_NOFOLLOW)) {
		close(fd);
		return neap_fail(err, NEAP_EPERM, "%s is not the folder of a run of this user", folder);
	}
	*ret_fd = fd;
	return NEAP_OK;
}

enum neap_status neap_killed_record(pid_t target, uint64_t until_wall_ns, struct neap_error *err)
{
	char line[64];
	int folder_fd = -1;
	enum neap_status status = open_run(target, &folder_fd, err);
	if (status)
		return status;
	/* Every line has the same length and one write replaces it, so processes that kill the same run at the same
	 * time leave a whole line. */
	int length = snprintf(line, sizeof line, "%11d %20" PRIu64 "\n", (int)getpid(), until_wall_ns);
	int fd = openat(folder_fd, "killed", O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
	if (fd < 0)
		status = neap_fail_errno(err, errno, "writing into the folder of process %d's run", (int)target);
	else
		status = neap_fd_write(fd, line, (size_t)length, err);
	if (fd >= 0)
		close(fd);
	close(folder_fd);
	return status;
}

pid_t neap_killed_by(const char *folder, uint64_t ended_wall_ns)
{
	char path[4200], line[64];
	int pid = 0;
	uint64_t until_wall_ns = 0;
	if (neap_path_join(path, sizeof path, folder, "killed"))
		return 0;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t length = read(fd, line, sizeof line - 1);
	close(fd);
	line[length > 0 ? length : 0] = '\0';
	bool complete = sscanf(line, "%d %" SCNu64, &pid, &until_wall_ns) == 2 && pid > 0;
	return complete && ended_wall_ns <= until_wall_ns ? pid : 0;
}

void neap_killed_forget(const char *folder)
{
	char path[4200];
	if (!neap_path_join(path, sizeof path, folder, "killed"))
		unlink(path);
}
