/* support/closed.c: a user's program that has closed standard descriptors, as a daemon does, and uses libneap.
 *
 *   closed NUMBERS [--connected] WORDS...
 *
 * Closes the descriptors in NUMBERS ("12": stdout and stderr), takes device memory, writes to both outputs, and ends
 * with 0 only if no file took a closed descriptor's place. With --connected, also while a client is connected to its
 * agent.
 */
#include "neap/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const char *closed;
static int trouble = -1; /* where it reports */

static void fail(const char *what, const char *why)
{
	dprintf(trouble, "closed %s: %s: %s\n", closed, what, why);
	_exit(9);
}

static void check(const char *when)
{
	for (const char *number = closed; *number; number++) {
		char path[64], target[256];
		snprintf(path, sizeof path, "/proc/self/fd/%c", *number);
		ssize_t length = readlink(path, target, sizeof target - 1);
		if (length < 0)
			continue;
		target[length] = '\0';
		fail(when, target);
	}
}

static unsigned open_sockets(void)
{
	unsigned count = 0;
	DIR *folder = opendir("/proc/self/fd");
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		char target[64] = "";
		count += readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) > 0 &&
			 !strncmp(target, "socket:", 7);
	}
	if (folder)
		closedir(folder);
	return count;
}

/* Connects to our own agent, and waits until it has accepted. */
static void connect_and_check(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	unsigned before = open_sockets();
	int low = socket(AF_UNIX, SOCK_STREAM, 0), fd = fcntl(low, F_DUPFD, 100);
	close(low);
	snprintf(address.sun_path, sizeof address.sun_path, "%.60s/neap/%d.sock", getenv("XDG_RUNTIME_DIR"),
		 (int)getpid());
	if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address))
		fail("connecting", strerror(errno));
	while (open_sockets() < before + 2) /* our end and the agent's */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	check("while a client is connected");
}

/* If `fd` is closed no write succeeds, and dprintf(3) would leak its buffer. */
static void print(const char *line, int fd)
{
	for (int i = 0; i < 100; i++)
		if (write(fd, line, strlen(line)) < 0 && errno != EBADF)
			fail("output", strerror(errno));
}

int main(int argc, char **argv)
{
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL;
	struct neap_alloc *alloc = NULL;
	struct neap_error err = {0};
	uint64_t address = 0;
	if (argc < 2)
		return 64;
	closed = argv[1];
	trouble = fcntl(STDERR_FILENO, F_DUPFD, 200);
	for (const char *number = closed; *number; number++)
		close(*number - '0');
	if (neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err) || neap_device_open(driver, 0, &device, &err))
		fail("device", err.message);
	check("with a device");
	if (neap_alloc_create(device, NULL, &alloc, &err) || neap_malloc(alloc, 1 << 20, NULL, &address, &err))
		fail("memory", err.message);
	check("with memory");
	if (argc > 2 && !strcmp(argv[2], "--connected"))
		connect_and_check();
	print("output output output output output output output output\n", STDOUT_FILENO);
	print("errors errors errors errors errors errors errors errors\n", STDERR_FILENO);
	if (neap_malloc(alloc, 1 << 20, NULL, &address, &err))
		fail("memory after its output", err.message);
	check("at the end");
	return 0;
}
