/* run/pending_compile.c: see the header. */
#include "run/pending_compile.h"

#include "base/spawn.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARGUMENTS     8
#define FILE_CAPACITY (4 * PATH_MAX)

struct job {
	char text[FILE_CAPACITY]; /* the arguments, with a NUL after each */
	size_t length;
};

static bool find_path(char path[PATH_MAX])
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int length = cache && cache[0] ? snprintf(path, PATH_MAX, "%s/neap/compile", cache)
		     : home && home[0] ? snprintf(path, PATH_MAX, "%s/.cache/neap/compile", home)
				       : PATH_MAX;
	return length < PATH_MAX;
}

/* Reads the file, if only this user can write it. False: there is no such file. */
static bool take_file(const char *path, struct job *ret_job)
{
	struct stat about;
	ssize_t length = -1;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (!fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_uid == geteuid() && !(about.st_mode & 022))
		length = read(fd, ret_job->text, FILE_CAPACITY);
	close(fd);
	if (length <= 0 || ret_job->text[length - 1] != '\0' || unlink(path))
		return false;
	ret_job->length = (size_t)length;
	return true;
}

/* Called in a child that ends at once. So the program becomes an orphan, and init waits for it. */
static int start_program(void *context)
{
	struct job *job = context;
	char *argv[ARGUMENTS + 1] = {0};
	size_t count = 0;
	pid_t program;

	for (char *c = job->text; c < job->text + job->length && count < ARGUMENTS; c += strlen(c) + 1)
		argv[count++] = c;
	const struct neap_spawn spawn = {
		.doing = "compiling",
		.argv = argv,
		.program = argv[0],
		.fds = {NEAP_SPAWN_NULL, NEAP_SPAWN_NULL, NEAP_SPAWN_NULL},
		.place = NEAP_SPAWN_OWN_SESSION,
	};
	neap_spawn_close_others(NULL, 0);
	if (nice(19) < 0 || unsetenv("NEAP_RUN_ID"))
		return 1;
	return neap_spawn(&spawn, &program, NULL) ? 1 : 0;
}

void neap_pending_compile_start(void)
{
	struct job job;
	const struct neap_spawn spawn = {.doing = "compiling", .run = start_program, .context = &job};
	char path[PATH_MAX];
	pid_t child;

	if (find_path(path) && take_file(path, &job) && !neap_spawn(&spawn, &child, NULL))
		neap_spawn_end(child);
}
