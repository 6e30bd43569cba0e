/* Processes are ended by SIGTERM, even stopped ones; stubborn ones by SIGKILL. A process with another start time is
 * not ended. */
#include "base/ending.h"

#include "support/test.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS 60000 /* never reached: processes that get this grace obey SIGTERM */

/* A child that waits for signals; it ignores SIGTERM if `stubborn`. It is ready when this returns. */
static struct neap_ended start(bool stubborn)
{
	struct neap_ended child = {.ended_by = -1};
	int ready[2];
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGTERM, stubborn ? SIG_IGN : SIG_DFL);
		if (write(ready[1], "x", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	assert_int_equal(neap_process_read(pid, &child.process, NULL), NEAP_OK);
	return child;
}

static int reap(const struct neap_ended *child)
{
	int status = 0;
	assert_int_equal(waitpid(child->process.pid, &status, 0), child->process.pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void each_is_ended_by_what_it_takes(void **unused)
{
	(void)unused;
	struct neap_ended children[2] = {start(false), start(false)}, stubborn = start(true);
	int status;
	kill(children[1].process.pid, SIGSTOP);
	assert_int_equal(waitpid(children[1].process.pid, &status, WUNTRACED), children[1].process.pid);
	assert_true(WIFSTOPPED(status));
	neap_process_end(children, 2, GRACE_MS);
	neap_process_end(&stubborn, 1, 100);
	assert_int_equal(children[0].ended_by, SIGTERM);
	assert_int_equal(children[1].ended_by, SIGTERM);
	assert_int_equal(stubborn.ended_by, SIGKILL);
	assert_int_equal(reap(&children[0]), SIGTERM);
	assert_int_equal(reap(&children[1]), SIGTERM);
	assert_int_equal(reap(&stubborn), SIGKILL);
}

static void a_reused_pid_is_left_alone(void **unused)
{
	(void)unused;
	struct neap_ended child = start(false), earlier = child;
	earlier.process.start_ticks--; /* the process that had this PID before */
	neap_process_end(&earlier, 1, 100);
	assert_int_equal(earlier.ended_by, SIGTERM);
	assert_int_equal(waitpid(child.process.pid, NULL, WNOHANG), 0);
	assert_true(neap_process_alive(child.process.pid, child.process.start_ticks));
	neap_process_end(&child, 1, GRACE_MS);
	assert_int_equal(reap(&child), SIGTERM);
}

static void more_than_a_batch(void **unused)
{
	(void)unused;
	struct neap_ended children[NEAP_ENDING_BATCH + 1];
	for (size_t i = 0; i < NEAP_ENDING_BATCH + 1; i++)
		children[i] = start(false);
	neap_process_end(children, NEAP_ENDING_BATCH + 1, GRACE_MS);
	for (size_t i = 0; i < NEAP_ENDING_BATCH + 1; i++) {
		assert_int_equal(children[i].ended_by, SIGTERM);
		assert_int_equal(reap(&children[i]), SIGTERM);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_is_ended_by_what_it_takes),
		cmocka_unit_test(a_reused_pid_is_left_alone),
		cmocka_unit_test(more_than_a_batch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
