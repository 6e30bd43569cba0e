/* See the header. */
#include "retention_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char folder[TEST_FOLDER_CAPACITY];

int set_up(void **state)
{
	(void)state;
	return make_folder(folder, "retention") || chdir(folder) ? -1 : 0;
}

/* A tmpfs, on most machines: it takes any time. */
int set_up_in_memory(void **state)
{
	strcpy(folder, "/dev/shm/neap-retention-XXXXXX");
	return mkdtemp(folder) && chdir(folder) == 0 ? 0 : set_up(state);
}

int tear_down(void **state)
{
	(void)state;
	return chdir("/") ? -1 : remove_folder(folder);
}

void put(const char *name, const char *content, int age_days)
{
	const struct timespec when = {.tv_sec = time(NULL) - (time_t)age_days * 86400};
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	assert_int_equal(futimens(fd, (struct timespec[]){when, when}), 0);
	close(fd);
}

struct neap_retention_plan plan(const struct neap_retention_options *options)
{
	struct neap_retention_plan made = {0};
	struct neap_error err = {0};

	if (neap_retention_plan_make(folder, options, 0, &made, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return made;
}

const struct neap_retention_entry *entry(const struct neap_retention_plan *made, const char *name)
{
	for (size_t i = 0; i < made->count; i++)
		if (!strcmp(made->entries[i].name, name))
			return &made->entries[i];
	fail_msg("%s is not a checkpoint", name);
	return NULL;
}

const struct neap_retention_options all_old = {.older_than_ns = DAY_NS, .trash_ns = DAY_NS};
