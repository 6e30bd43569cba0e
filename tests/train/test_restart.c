/* Restarting in place: the same process three times over, each reporting in its exit status what it sees. */
#include "neap/attach.h"
#include "neap/train.h"
#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The first image has "begin FD PID", the second and third have "--resume" too, once. */
static int image(int argc, char **argv)
{
	unsigned restarts = neap_restarts();
	struct neap_error err = {0};
	int kept = atoi(argv[2]);

	if (getpid() != atoi(argv[3]) && restarts > 0)
		return 10; /* another process */
	if (argc != (restarts ? 5 : 4) || (restarts && strcmp(argv[4], "--resume") != 0))
		return 11;
	if (strcmp(getenv("KEPT"), "yes") != 0 || fcntl(kept, F_GETFD) < 0)
		return 12; /* descriptors that are not the driver's stay open */
	if (restarts == 2)
		return 42;
	char pid[16];
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	argv[3] = pid;
	neap_restart(argv, "--resume", NULL, &err);
	return 13;
}

static int run(const char *self, const char *restarts)
{
	int kept = open("/dev/null", O_RDONLY), status = 0;
	char number[16];
	pid_t pid = fork();

	if (pid == 0) {
		snprintf(number, sizeof number, "%d", kept);
		setenv("KEPT", "yes", 1);
		setenv("NEAP_RESTARTS", restarts, 1);
		execl(self, self, "begin", number, "0", (char *)NULL);
		_exit(14);
	}
	close(kept);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_restarts(void **state)
{
	char self[4096] = "";

	(void)state;
	assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
	assert_int_equal(run(self, ""), 42);
	assert_int_equal(run(self, "1.7"), 42); /* another process's count: inherited, but not ours */
	assert_int_equal(run(self, "nonsense"), 42);
}

static void test_count(void **state)
{
	static const struct {
		const char *format;
		unsigned expected;
	} cases[] = {{"%d.3", 3},         {"%d.0", 0},           {"%d", 0},
		     {"%d.", 0},          {"%d.-1", 0},          {"%d.99999999999", 0},
		     {"%d.x", 0},         {" %d.4x", 0},         {"%d.3.16.2.1.0.32", 3},
		     {"%d.3.16", 0},      {"%d.3.16.2.1.0", 0},  {"%d.3.16.2.1.0.32.9", 0},
		     {"%d.3.16.2.1.", 0}, {"%d.3.16.2.1.-1", 0}, {"%d.3.16.2.1.99999999999999999999999999", 0}};

	(void)state;
	unsetenv("NEAP_RESTARTS");
	assert_int_equal(neap_restarts(), 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char value[64];
		int pid = (int)getpid();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(value, sizeof value, cases[i].format, pid);
#pragma GCC diagnostic pop
		setenv("NEAP_RESTARTS", value, 1);
		assert_int_equal(neap_restarts(), cases[i].expected);
	}
	unsetenv("NEAP_RESTARTS");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_restarts), cmocka_unit_test(test_count)};

	return argc > 1 ? image(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
