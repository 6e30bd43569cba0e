/* cli/run_compile.c: see run_compile.h. */
#include "cli/run_compile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS 8
#define FILE_ROOM (4 * PATH_MAX)

static bool find_path(char path[PATH_MAX])
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int length = cache && cache[0] ? snprintf(path, PATH_MAX, "%s/neap/compile", cache)
		     : home && home[0] ? snprintf(path, PATH_MAX, "%s/.cache/neap/compile", home)
				       : PATH_MAX;
	return length < PATH_MAX;
}

/* Reads the file, if it is ours alone. False: there is none. */
static bool take_file(const char *path, char text[FILE_ROOM], size_t *ret_length)
{
	struct stat about;
	ssize_t length = -1;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (!fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_uid == geteuid() && !(about.st_mode & 022))
		length = read(fd, text, FILE_ROOM);
	close(fd);
	if (length <= 0 || text[length - 1] != '\0' || unlink(path))
		return false;
	*ret_length = (size_t)length;
	return true;
}

/* In a process of its own; returns only where it fails. */
static void execute(char *text, size_t length)
{
	char *argv[ARGUMENTS + 1] = {0};
	size_t count = 0;
	for (char *c = text; c < text + length && count < ARGUMENTS; c += strlen(c) + 1)
		argv[count++] = c;
	int null = open("/dev/null", O_RDWR);
	if (null < 0 || setsid() < 0)
		return;
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	close_range(STDERR_FILENO + 1, UINT_MAX, 0);
	if (nice(19) < 0 || unsetenv("NEAP_RUN_ID"))
		return;
	execv(argv[0], argv);
}

void run_compile_start(void)
{
	char text[FILE_ROOM], path[PATH_MAX];
	size_t length;
	if (!find_path(path) || !take_file(path, text, &length))
		return;
	pid_t child = fork();
	if (child == 0) {
		if (fork() == 0)
			execute(text, length);
		_exit(0);
	}
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		continue;
}
