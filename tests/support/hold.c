/* support/hold.c: a stand-in for a training process: takes device memory through libneap, holds it, and ends as its
 * options say.
 *
 *   hold [--for MS] [--until FILE] [--looks N] [--exit N | --kill SIGNAL] [--recover] [--stray] [--unseen] SIZE
 *
 * Takes SIZE bytes (a number with an optional K, M or G). Holds them for MS milliseconds, until FILE exists, and
 * until its supervisor, which sleeps between its samples, has slept N more times; by default not at all. Then it ends
 * without giving them back: with status N (default 0) or by SIGNAL. If there is not enough memory, it says so on
 * stderr and ends with 9; with --recover it takes half as much, again and again, and marks each step that it then
 * makes. With --stray it also makes a context on the second device and does not use it. With --unseen its supervisor
 * sees nothing of it but its context: it is stopped while this process attaches, takes memory and ends.
 */
#include "neap/alloc.h"
#include "neap/train.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t size_of(const char *text)
{
	char *end = NULL;
	uint64_t bytes = strtoull(text, &end, 10);
	return *end == 'G' ? bytes << 30 : *end == 'M' ? bytes << 20 : *end == 'K' ? bytes << 10 : bytes;
}

static void hold_for(unsigned long ms)
{
	struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

/* The supervisor: our parent, or the parent of our guard. */
static pid_t supervisor(void)
{
	char path[64], name[32] = "";
	pid_t parent = getppid(), above = parent;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)parent);
	FILE *file = fopen(path, "r");
	if (file && fscanf(file, "%*d (%31[^)]) %*c %d", name, &above) != 2)
		above = parent;
	if (file)
		fclose(file);
	return strcmp(name, "neap-guard") ? parent : above;
}

/* How often it has gone to sleep; 0 if that cannot be read. */
static unsigned long supervisors_sleeps(void)
{
	char path[64], line[256];
	unsigned long sleeps = 0;
	snprintf(path, sizeof path, "/proc/%d/status", (int)supervisor());
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof line, file) && !sscanf(line, "voluntary_ctxt_switches: %lu", &sleeps))
		;
	if (file)
		fclose(file);
	return sleeps;
}

static void hold_while_looked_at(unsigned long looks)
{
	unsigned long enough = supervisors_sleeps() + looks;
	while (supervisors_sleeps() < enough)
		hold_for(5);
}

static bool supervisor_is_stopped(void)
{
	char path[64], line[256], state = '?';
	snprintf(path, sizeof path, "/proc/%d/status", (int)supervisor());
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof line, file) && !sscanf(line, "State: %c", &state))
		;
	if (file)
		fclose(file);
	return state == 'T';
}

/* Forks a process that continues the supervisor when this process has ended. Called before there is a device, so it
 * has none. */
static void have_supervisor_continued(void)
{
	int ends[2];
	char byte;
	pid_t stopped = supervisor();
	if (pipe(ends))
		exit(70);
	pid_t helper = fork();
	if (helper < 0)
		exit(70);
	close(ends[helper ? 0 : 1]);
	if (helper)
		return;
	while (read(ends[0], &byte, 1) != 0)
		;
	kill(stopped, SIGCONT);
	_exit(0);
}

static void stop_supervisor(void)
{
	kill(supervisor(), SIGSTOP);
	while (!supervisor_is_stopped())
		hold_for(1);
}

static void say(const char *what, const struct neap_error *err)
{
	fprintf(stderr, "hold: %s: %s\n", what, err->message);
	exit(9);
}

static bool take(struct neap_alloc *alloc, uint64_t bytes, bool recover)
{
	struct neap_train_options options = {.split = {.micro_batch = 64}};
	struct neap_train *train = NULL;
	struct neap_error err = {0};
	uint64_t address = 0;
	neap_tag_set("held");
	if (!recover) {
		if (neap_malloc(alloc, bytes, NULL, &address, &err))
			say("out of device memory", &err);
		return true;
	}
	if (neap_train_begin(alloc, &options, &train, &err))
		say("session", &err);
	while (neap_malloc(alloc, bytes, NULL, &address, &err)) {
		if (neap_train_recover(train, &err))
			say("out of device memory", &err);
		bytes /= 2;
	}
	neap_train_tick(train);
	neap_train_step(train, 1.5);
	neap_train_end(train, NULL);
	return true;
}

int main(int argc, char **argv)
{
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL, *unused = NULL;
	struct neap_alloc *alloc = NULL;
	struct neap_error err = {0};
	unsigned long hold_ms = 0, looks = 0;
	const char *until = NULL;
	int status = 0, number = 0, at = 1;
	bool recover = false, stray = false, unseen = false;
	for (; at < argc && argv[at][0] == '-'; at++) {
		if (!strcmp(argv[at], "--recover"))
			recover = true;
		else if (!strcmp(argv[at], "--stray"))
			stray = true;
		else if (!strcmp(argv[at], "--unseen"))
			unseen = true;
		else if (at + 1 < argc && !strcmp(argv[at], "--for"))
			hold_ms = strtoul(argv[++at], NULL, 10);
		else if (at + 1 < argc && !strcmp(argv[at], "--until"))
			until = argv[++at];
		else if (at + 1 < argc && !strcmp(argv[at], "--looks"))
			looks = strtoul(argv[++at], NULL, 10);
		else if (at + 1 < argc && !strcmp(argv[at], "--exit"))
			status = atoi(argv[++at]);
		else if (at + 1 < argc && !strcmp(argv[at], "--kill"))
			number = atoi(argv[++at]);
	}
	if (at + 1 != argc) {
		fprintf(stderr,
			"usage: hold [--for MS] [--until FILE] [--looks N] [--exit N | --kill SIGNAL] [--recover] "
			"[--stray] [--unseen] SIZE\n");
		return 64;
	}
	if (unseen)
		have_supervisor_continued();
	if (neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err) || neap_device_open(driver, 0, &device, &err))
		say("device", &err);
	if (unseen) {
		hold_while_looked_at(4);
		stop_supervisor();
	}
	if (neap_alloc_create(device, NULL, &alloc, &err) || (stray && neap_device_open(driver, 1, &unused, &err)))
		say("device", &err);
	take(alloc, size_of(argv[at]), recover);
	hold_for(hold_ms);
	while (until && access(until, F_OK))
		hold_for(5);
	if (looks)
		hold_while_looked_at(looks);
	if (number)
		raise(number);
	_exit(status);
}
