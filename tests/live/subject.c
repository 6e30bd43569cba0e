/* An attached process that obeys hostile.py and peers.py: one command a line on stdin, one line of answer.
 *
 *   take MIB        allocates and keeps: "taken", or "failed: " and the error
 *   cache MIB       allocates and frees: "taken", or the same failure
 *   capture, end    takes 1 MiB on a stream of its own, begins and ends the capture of a graph there: "ok"
 *   fork            a child that waits for a signal: its PID
 *   exec 0|1        restarts this program, with NEAP_ATTACH=0 or 1: "ready", from the new image
 *   halt            from now on is stopped (SIGSTOP) in the middle of a clear that is forced: "ok"
 *   die             from now on ends in the middle of a clear that is forced: "ok"
 */
#include "device/driver.h"
#include "neap/neap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct neap_driver *driver;
static struct neap_device *device;
static struct neap_alloc *alloc;

static void must(enum neap_status status, const struct neap_error *err)
{
	if (!status)
		return;
	fprintf(stderr, "subject: %s\n", err->message);
	exit(1);
}

static void take(const char *mib, int keep)
{
	struct neap_error err = {0};
	uint64_t address;
	if (neap_malloc(alloc, strtoull(mib, NULL, 10) << 20, NULL, &address, &err) != NEAP_OK) {
		printf("failed: %s\n", err.message);
		return;
	}
	if (!keep)
		neap_free(alloc, address);
	puts("taken");
}

static void capture(int begin)
{
	static CUstream stream;
	const struct neap_cuda *cuda = neap_driver_cuda(driver);
	struct neap_device_guard guard;
	struct neap_error err = {0};
	CUgraph graph;
	CUresult result;
	must(neap_device_enter(device, &guard, &err), &err);
	if (begin) {
		result = cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
		uint64_t block = 0;
		must(neap_malloc(alloc, 1 << 20, stream, &block, &err), &err);
		if (!result)
			result = cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
	} else {
		result = cuda->cuStreamEndCapture(stream, &graph);
		if (!result)
			cuda->cuGraphDestroy(graph);
	}
	neap_device_leave(&guard);
	puts(result ? "failed" : "ok");
}

static uint64_t die(void *context, bool force)
{
	(void)context;
	(void)force;
	_exit(3);
}

static uint64_t halt(void *context, bool force)
{
	(void)context;
	(void)force;
	raise(SIGSTOP); /* this very thread */
	return 0;
}

static void fork_child(void)
{
	pid_t child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	printf("%d\n", (int)child);
}

int main(int argc, char **argv)
{
	struct neap_error err = {0};
	char line[64];
	(void)argc;
	must(neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err), &err);
	must(neap_device_open(driver, 0, &device, &err), &err);
	must(neap_alloc_create(device, NULL, &alloc, &err), &err);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "take ", 5) == 0) {
			take(line + 5, 1);
		} else if (strncmp(line, "cache ", 6) == 0) {
			take(line + 6, 0);
		} else if (strcmp(line, "capture") == 0 || strcmp(line, "end") == 0) {
			capture(line[0] == 'c');
		} else if (strcmp(line, "fork") == 0) {
			fork_child();
		} else if (strncmp(line, "exec ", 5) == 0) {
			setenv("NEAP_ATTACH", line + 5, 1);
			execv("/proc/self/exe", argv);
			puts("failed");
		} else if (strcmp(line, "halt") == 0) {
			puts(neap_attach_on_clear(halt, NULL) == NEAP_OK ? "ok" : "failed");
		} else if (strcmp(line, "die") == 0) {
			puts(neap_attach_on_clear(die, NULL) == NEAP_OK ? "ok" : "failed");
		} else {
			puts("what?");
		}
		fflush(stdout);
	}
	neap_alloc_destroy(alloc);
	neap_device_close(device);
	neap_driver_close(driver);
	return 0;
}
