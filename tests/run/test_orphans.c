/* Processes a run left behind: found by their starting environment or their descent, and ended; other processes are
 * not. */
#include "run/orphans.h"

#include "support/test.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS 60000 /* never reached: these processes obey SIGTERM */

static char run_id[64];

static int setup(void **state)
{
	(void)state;
	snprintf(run_id, sizeof run_id, "test-orphans-%d", getpid());
	return prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Starts `script` with NEAP_RUN_ID=id (NULL: unset); returns when it has printed a line. */
static pid_t start(const char *id, const char *script)
{
	int ready[2];
	char variable[96], byte = 0;
	assert_int_equal(pipe(ready), 0);
	snprintf(variable, sizeof variable, "NEAP_RUN_ID=%s", id ? id : "");
	char *environment[] = {"PATH=/usr/bin:/bin", id ? variable : NULL, NULL};
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		dup2(ready[1], 1);
		close(ready[0]);
		close(ready[1]);
		execle("/bin/sh", "sh", "-c", script, NULL, environment);
		_exit(127);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static int ended_by(pid_t pid)
{
	int status = 0;
	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_match(void **state)
{
	(void)state;
	struct neap_process process = {.pid = 100, .parent = 1, .uid = 7, .state = 'S'};
	assert_true(neap_orphans_match(&process, "a", "a", false, 5, 7));
	assert_true(neap_orphans_match(&process, NULL, "a", true, 5, 7));
	assert_false(neap_orphans_match(&process, "ab", "a", false, 5, 7));
	assert_false(neap_orphans_match(&process, NULL, "a", false, 5, 7));
	assert_false(neap_orphans_match(&process, "", "", false, 5, 7));
	assert_false(neap_orphans_match(&process, "a", "a", true, 100, 7)); /* ourselves */
	assert_false(neap_orphans_match(&process, "a", "a", true, 5, 8));   /* another user's */
	process.state = 'Z';
	assert_false(neap_orphans_match(&process, "a", "a", true, 5, 7));
	process.state = 'S', process.pid = 1;
	assert_false(neap_orphans_match(&process, "a", "a", true, 5, 7));
}

static void test_by_environment(void **state)
{
	(void)state;
	struct neap_ended orphans[8];
	size_t count = 99;
	pid_t ours = start(run_id, "echo; exec sleep 1000");
	pid_t other = start("another-run", "echo; exec sleep 1000");
	pid_t none = start(NULL, "echo; exec sleep 1000");
	assert_int_equal(
		neap_orphans_end(&(struct neap_orphans_of){run_id, 0, {0}}, GRACE_MS, orphans, 8, &count, NULL),
		NEAP_OK);
	assert_int_equal(count, 1);
	assert_int_equal(orphans[0].process.pid, ours);
	assert_int_equal(orphans[0].ended_by, SIGTERM);
	assert_non_null(strstr(orphans[0].process.command, "sleep"));
	assert_int_equal(ended_by(ours), SIGTERM);
	assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
	assert_int_equal(waitpid(none, NULL, WNOHANG), 0);
	kill(other, SIGKILL);
	kill(none, SIGKILL);
	ended_by(other);
	ended_by(none);
	assert_int_equal(
		neap_orphans_end(&(struct neap_orphans_of){run_id, 0, {0}}, GRACE_MS, orphans, 8, &count, NULL),
		NEAP_OK);
	assert_int_equal(count, 0);
}

static void test_stubborn(void **state)
{
	(void)state;
	struct neap_ended orphans[8];
	size_t count = 0;
	pid_t ours = start(run_id, "trap '' TERM; echo; while :; do sleep 1000; done");
	assert_int_equal(neap_orphans_end(&(struct neap_orphans_of){run_id, 0, {0}}, 50, orphans, 8, &count, NULL),
			 NEAP_OK);
	assert_int_equal(ended_by(ours), SIGKILL);
	bool killed = false;
	for (size_t i = 0; i < count; i++)
		killed = killed || (orphans[i].process.pid == ours && orphans[i].ended_by == SIGKILL);
	assert_true(killed);
	while (waitpid(-1, NULL, 0) > 0) /* its sleep */
		;
}

/* Forked twice, with an empty environment and its own session: it still descends from us. */
static void test_by_descent(void **state)
{
	(void)state;
	struct neap_ended orphans[8];
	size_t count = 0;
	pid_t shell = start(NULL, "env -i setsid sleep 1000 >&- & echo; wait");
	assert_int_equal(kill(shell, SIGKILL), 0);
	ended_by(shell);
	assert_int_equal(neap_orphans_end(&(struct neap_orphans_of){run_id, getpid(), {0}}, GRACE_MS, orphans, 8,
					  &count, NULL),
			 NEAP_OK);
	assert_int_equal(count, 1);
	assert_int_equal(ended_by(orphans[0].process.pid), SIGTERM);
}

/* The supervisor is process 1 of a container and so an ancestor of all: only the environment or the group decides. */
static void test_first_process(void **state)
{
	(void)state;
	struct neap_process found[8];
	size_t count = 0;
	pid_t other = start(NULL, "echo; exec sleep 1000");
	pid_t ours = start(run_id, "echo; exec sleep 1000");
	assert_int_equal(neap_orphans_find(&(struct neap_orphans_of){run_id, 1, {0}}, found, 8, &count, NULL),
			 NEAP_OK);
	kill(other, SIGKILL);
	kill(ours, SIGKILL);
	ended_by(other);
	ended_by(ours);
	assert_int_equal(count, 1);
	assert_int_equal(found[0].pid, ours);
}

static void count_ended(void *context, const struct neap_ended *orphan)
{
	assert_int_not_equal(orphan->ended_by, 0); /* by SIGKILL if the grace is too short for so many */
	++*(size_t *)context;
}

/* More than fit into one batch. */
static void test_many(void **state)
{
	(void)state;
	size_t reported = 0, count = 0;
	pid_t shell = start(run_id, "for i in $(seq 150); do sleep 1000 & done; echo; exit 0");
	assert_int_equal(ended_by(shell), 0);
	assert_int_equal(
		neap_orphans_end_all(&(struct neap_orphans_of){run_id, 0, {0}}, count_ended, &reported, &count, NULL),
		NEAP_OK);
	assert_int_equal(reported, 150);
	assert_int_equal(count, 150);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_match),    cmocka_unit_test(test_by_environment),
		cmocka_unit_test(test_stubborn), cmocka_unit_test(test_by_descent),
		cmocka_unit_test(test_many),     cmocka_unit_test(test_first_process),
	};
	return cmocka_run_group_tests_name("orphans", tests, setup, NULL);
}
