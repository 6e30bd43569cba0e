/* Processes with a device's file open: finds real processes, with our own files in place of the device's. */
#include "run/holders.h"

#include "support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/neap-holders-XXXXXX";

/* Starts a process of another program and returns once it has folder/NAME open. */
static pid_t hold(const char *name)
{
	char path[64], command[160], ready = 0;
	int fds[2];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	snprintf(command, sizeof command, "exec 9>'%s'; echo; exec sleep 60", path);
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	assert_int_not_equal(pid, -1);
	if (!pid) {
		if (dup2(fds[1], 1) < 0)
			_exit(99);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(98);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &ready, 1), 1);
	close(fds[0]);
	return pid;
}

static void let_go(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_found_and_named(void **state)
{
	(void)state;
	char prefix[64], expected[64];
	struct neap_holders found;
	struct neap_buffer text = {0};
	snprintf(prefix, sizeof prefix, "%s/gpu", folder);
	pid_t holder = hold("gpu0"), other = hold("gpuctl"), third = hold("gpu");
	assert_int_equal(neap_holders_find(prefix, &found, NULL), NEAP_OK);
	assert_int_equal(found.count, 1);
	assert_int_equal(found.items[0].process.pid, holder);
	neap_holders_text(&found, &text);
	snprintf(expected, sizeof expected, "process %d (", (int)holder);
	assert_non_null(strstr(neap_buffer_string(&text), expected));
	snprintf(expected, sizeof expected, ") has %s0 open", prefix);
	assert_non_null(strstr(neap_buffer_string(&text), expected));
	neap_buffer_clear(&text);
	let_go(holder);
	assert_int_equal(neap_holders_find(prefix, &found, NULL), NEAP_OK);
	assert_int_equal(found.count, 0);
	neap_holders_text(&found, &text);
	assert_non_null(strstr(neap_buffer_string(&text), "no visible process has"));
	neap_buffer_fini(&text);
	let_go(other);
	let_go(third);
}

static void test_we_are_left_out(void **state)
{
	(void)state;
	char prefix[64], path[80];
	struct neap_holders found;
	snprintf(prefix, sizeof prefix, "%s/gpu", folder);
	snprintf(path, sizeof path, "%s7", prefix);
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(neap_holders_find(prefix, &found, NULL), NEAP_OK);
	assert_int_equal(found.count, 0);
	close(fd);
}

static void test_words(void **state)
{
	(void)state;
	struct neap_holders many = {.count = NEAP_HOLDERS + 2, .unseen = 1};
	struct neap_buffer text = {0};
	for (int i = 0; i < NEAP_HOLDERS; i++) {
		many.items[i].process.pid = i + 1;
		strcpy(many.items[i].process.command, "p");
		strcpy(many.items[i].path, "/dev/nvidia0");
	}
	neap_holders_text(&many, &text);
	assert_non_null(strstr(neap_buffer_string(&text),
			       "process 8 (p) has /dev/nvidia0 open and 2 more; 1 process of other users cannot be "
			       "inspected (root can)"));
	neap_buffer_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_found_and_named),
		cmocka_unit_test(test_we_are_left_out),
		cmocka_unit_test(test_words),
	};
	if (!mkdtemp(folder))
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	char command[64];
	snprintf(command, sizeof command, "rm -rf %s", folder);
	return system(command) ? 1 : failed;
}
