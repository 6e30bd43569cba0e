/* train/restart.c: restarts the program in place, by exec, which frees everything that leaked. */
#include "base/error.h"
#include "base/units.h"
#include "neap/attach.h"
#include "train/session_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

#define COUNT_NAME "NEAP_RESTARTS="

/* Left by the image before this one: "PID.COUNT", and with settings ".MICRO_BATCH.ACCUMULATE.RANKS.RUNGS.BATCH". */
enum { PID, COUNT, MICRO_BATCH, ACCUMULATE, RANKS, RUNGS, BATCH, NUMBERS };

/* Returns how many numbers there are; 0 if another process wrote the entry: a child inherits its parent's. */
static size_t read_entry(uint64_t ret_numbers[NUMBERS])
{
	const char *text = getenv("NEAP_RESTARTS");
	size_t count = 0;

	for (bool more = text != NULL; more && count < NUMBERS; count++) {
		size_t length = strcspn(text, ".");
		char number[24];
		if (length >= sizeof number)
			return 0;
		memcpy(number, text, length);
		number[length] = '\0';
		if (neap_u64_parse(number, &ret_numbers[count], NULL) != NEAP_OK)
			return 0;
		more = text[length] == '.';
		text += length + more;
	}
	bool whole = (count == COUNT + 1 || count == NUMBERS) && !*text;
	return whole && ret_numbers[PID] == (uint64_t)getpid() && ret_numbers[COUNT] <= UINT32_MAX ? count : 0;
}

unsigned neap_restarts(void)
{
	uint64_t numbers[NUMBERS] = {0};

	return read_entry(numbers) ? (unsigned)numbers[COUNT] : 0;
}

bool neap_session_settings_left(struct neap_train_settings *ret_settings)
{
	uint64_t numbers[NUMBERS] = {0};

	if (read_entry(numbers) != NUMBERS || numbers[COUNT] == 0 || numbers[RUNGS] & ~(uint64_t)NEAP_RUNGS_SWITCHED)
		return false;
	*ret_settings = (struct neap_train_settings){{.micro_batch = numbers[MICRO_BATCH],
						      .accumulate = numbers[ACCUMULATE],
						      .ranks = numbers[RANKS],
						      .batch = numbers[BATCH]},
						     (uint32_t)numbers[RUNGS]};
	return true;
}

static void write_entry(const struct neap_train_settings *settings, char *text, size_t capacity)
{
	int length = snprintf(text, capacity, COUNT_NAME "%d.%u", (int)getpid(), neap_restarts() + 1);

	if (settings)
		snprintf(text + length, capacity - (size_t)length, ".%llu.%llu.%llu.%u.%llu",
			 (unsigned long long)settings->split.micro_batch,
			 (unsigned long long)settings->split.accumulate, (unsigned long long)settings->split.ranks,
			 (unsigned)settings->rungs, (unsigned long long)neap_split_batch(&settings->split));
}

static size_t count_of(char *const *list)
{
	size_t count = 0;

	while (list[count])
		count++;
	return count;
}

/* A list of the arguments, with the flag added if it is missing. The caller frees the list, not the strings. */
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
	arguments[count] = (char *)(uintptr_t)flag; /* execve does not write to its arguments */
	return arguments;
}

/* A list of the environment, with `entry` in place of the old one. The caller frees it likewise. */
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

/* A driver's file that stays open through the exec would keep the device's memory. NVIDIA's driver closes its files;
 * this makes sure. */
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

enum neap_status neap_restart(char *const *argv, const char *flag, const struct neap_train_settings *settings,
			      struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	char entry[sizeof COUNT_NAME + NUMBERS * 21];

	write_entry(settings, entry, sizeof entry);
	char **arguments = make_arguments(argv, flag), **environment = make_environment(entry);
	if (!arguments || !environment) {
		status = neap_fail(err, NEAP_ENOMEM, "restarting: out of host memory");
		goto out;
	}
	neap_detach();
	close_devices_at_exec();
	execve("/proc/self/exe", arguments, environment);
	status = neap_fail_errno(err, errno, "restarting: starting %s again", argv[0]);
out:
	free(arguments);
	free(environment);
	return status;
}
