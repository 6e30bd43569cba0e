/* Beginning anew in place: an exec of the same program, which gives back everything that leaked. */
#include "base/error.h"
#include "base/units.h"
#include "neap/attach.h"
#include "neap/train.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

#define COUNT_NAME "NEAP_RESTARTS="

/* "PID.COUNT": what a child inherits is not its own. */
unsigned neap_restarts(void)
{
	const char *text = getenv("NEAP_RESTARTS");
	char *dot;
	uint64_t count = 0;

	if (!text || strtol(text, &dot, 10) != getpid() || *dot != '.')
		return 0;
	return neap_u64_parse(dot + 1, &count, NULL) == NEAP_OK && count <= UINT32_MAX ? (unsigned)count : 0;
}

static size_t count_of(char *const *list)
{
	size_t count = 0;

	while (list[count])
		count++;
	return count;
}

/* The arguments, and the flag where it is not among them. The caller frees the list alone. */
static char **make_arguments(char *const *argv, const char *flag)
{
	size_t count = count_of(argv);
	char **arguments = calloc(count + 2, sizeof *arguments);

	if (!arguments)
		return NULL;
	memcpy(arguments, argv, count * sizeof *arguments);
	for (size_t i = 1; flag && i < count; i++)
		if (!strcmp(argv[i], flag))
			flag = NULL;
	arguments[count] = (char *)(uintptr_t)flag; /* execve writes to none of them */
	return arguments;
}

/* The environment with `entry` in place of the old count. Likewise. */
static char **make_environment(char *entry)
{
	size_t kept = 0, count = environ ? count_of(environ) : 0;
	char **environment = calloc(count + 2, sizeof *environment);

	if (!environment)
		return NULL;
	for (size_t i = 0; i < count; i++)
		if (strncmp(environ[i], COUNT_NAME, strlen(COUNT_NAME)) != 0)
			environment[kept++] = environ[i];
	environment[kept] = entry;
	return environment;
}

/* A driver's open file would keep the device's memory through the exec. NVIDIA's closes its own; this makes sure. */
static void close_devices_at_exec(void)
{
	DIR *folder = opendir("/proc/self/fd");

	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		char target[64];
		ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
		uint64_t fd = 0;
		if (length <= 0 || neap_u64_parse(entry->d_name, &fd, NULL) != NEAP_OK || fd > INT32_MAX)
			continue;
		target[length] = '\0';
		int flags = strncmp(target, "/dev/nvidia", 11) == 0 ? fcntl((int)fd, F_GETFD) : -1;
		if (flags >= 0)
			fcntl((int)fd, F_SETFD, flags | FD_CLOEXEC);
	}
	if (folder)
		closedir(folder);
}

enum neap_status neap_restart(char *const *argv, const char *flag, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	char entry[sizeof COUNT_NAME + 40];

	snprintf(entry, sizeof entry, COUNT_NAME "%d.%u", (int)getpid(), neap_restarts() + 1);
	char **arguments = make_arguments(argv, flag), **environment = make_environment(entry);
	if (!arguments || !environment) {
		status = neap_fail(err, NEAP_ENOMEM, "beginning anew: out of host memory");
		goto out;
	}
	neap_detach();
	close_devices_at_exec();
	execve("/proc/self/exe", arguments, environment);
	status = neap_fail_errno(err, errno, "beginning anew: starting %s again", argv[0]);
out:
	free(arguments);
	free(environment);
	return status;
}
