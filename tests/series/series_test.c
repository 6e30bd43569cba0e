/* series_test.c: see series_test.h. */
#include "series_test.h"

#include "base/file.h"
#include "series/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *neap, *killer;
static char folder[64];

int series_arguments(int argc, char **argv)
{
	/* The tests change their folder. */
	neap = argc == 3 ? realpath(argv[1], NULL) : NULL;
	killer = argc == 3 ? realpath(argv[2], NULL) : NULL;
	return !neap || !killer;
}

const char *series_killer(void) { return killer; }

int series_setup(void **state)
{
	char runtime[96];
	(void)state;
	strcpy(folder, "/tmp/neap-test-series-XXXXXX");
	if (!mkdtemp(folder) || chdir(folder))
		return -1;
	snprintf(runtime, sizeof runtime, "%s/runtime", folder);
	if (mkdir(runtime, 0700))
		return -1;
	setenv("HOME", folder, 1);
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	setenv("XDG_STATE_HOME", folder, 1);
	/* No device: these tests are about the journal, and a run without a device takes milliseconds. */
	unsetenv("NEAP_DEVICE");
	unsetenv("NEAP_KILLER");
	return 0;
}

int series_teardown(void **state)
{
	char command[96];
	(void)state;
	snprintf(command, sizeof command, "rm -rf '%s'", folder);
	return chdir("/") || system(command);
}

void series_write(const char *name, const char *text)
{
	assert_int_equal(neap_file_write(name, text, strlen(text), NULL), NEAP_OK);
}

char *series_read(const char *name)
{
	struct neap_buffer text = {0};
	neap_file_read(name, 1 << 20, &text, NULL);
	char *copy = strdup(neap_buffer_string(&text));
	neap_buffer_fini(&text);
	assert_non_null(copy);
	return copy;
}

unsigned series_lines(const char *name)
{
	unsigned lines = 0;
	char *text = series_read(name);
	for (const char *c = text; *c; c++)
		lines += *c == '\n';
	free(text);
	return lines;
}

pid_t series_spawn(const char *order, const char *const *args)
{
	const char *argv[16] = {"neap", "series"};
	for (int i = 0; args[i] && i < 13; i++)
		argv[i + 2] = args[i];
	pid_t pid = fork();
	assert_int_not_equal(pid, -1);
	if (pid)
		return pid;
	int out = open("out", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int err = open("err", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (dup2(out, 1) < 0 || dup2(err, 2) < 0)
		_exit(99);
	if (order) {
		setenv("LD_PRELOAD", killer, 1);
		setenv("NEAP_KILLER", order, 1);
	}
	execv(neap, (char *const *)argv);
	_exit(98);
}

int series_wait(pid_t pid)
{
	int status = -1;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int series_run(const char *order, const char *const *args) { return series_wait(series_spawn(order, args)); }

void series_await(const char *name)
{
	struct stat found;
	for (int i = 0; i < 120000; i++) {
		if (!stat(name, &found) && found.st_size > 0)
			return;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	fail_msg("%s did not come", name);
}

json_t *series_records(const char *path)
{
	struct neap_journal *journal = NULL;
	struct neap_error err = {0};
	if (neap_journal_open(path, &journal, &err))
		fail_msg("%s", err.message);
	json_t *records = json_deep_copy(neap_journal_records(journal));
	neap_journal_close(journal);
	assert_non_null(records);
	return records;
}

unsigned series_count(const json_t *records, const char *type, const char *experiment)
{
	unsigned found = 0;
	size_t index;
	json_t *record;
	json_array_foreach(records, index, record)
	{
		const char *name = json_string_value(json_object_get(record, "experiment"));
		found += !strcmp(json_string_value(json_object_get(record, "type")), type) && name &&
			 !strcmp(name, experiment);
	}
	return found;
}
