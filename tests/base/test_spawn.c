/* Children: what they inherit, how they end, what is read from them, and what the parent learns if something
 * fails. */
#include "base/process.h"
#include "base/spawn.h"

#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define SHELL(script)                                                                                                \
	(char *[]) { (char[]){"sh"}, (char[]){"-c"}, (char[]){script}, NULL }

static volatile sig_atomic_t caught;

static void note(int number)
{
	(void)number;
	caught++;
}

static void set_handler(int number, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler};
	assert_int_equal(sigaction(number, &action, NULL), 0);
}

/* Returns the exit code of a child, which must start and end. */
static int code_of(const struct neap_spawn *spawn)
{
	struct neap_error err = {0};
	int code = -2;
	if (neap_spawn_run(spawn, &code, &err))
		fail_msg("%s", err.message);
	return code;
}

static int code_of_shell(char *const *argv)
{
	return code_of(&(struct neap_spawn){.doing = "testing", .argv = argv});
}

static void expect_no_child(void) { assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); }

/* --- the start --- */

static int set_variable(void *context)
{
	setenv("NEAP_TEST_SPAWN", context, 1);
	return 0;
}

static void a_program_runs(void **unused)
{
	struct neap_buffer output = {0}, errors = {0};
	struct neap_error err = {0};
	char value[] = "set", *environment[] = {(char[]){"NEAP_TEST_SPAWN=given"}, NULL};
	struct neap_spawn spawn = {.doing = "testing",
				   .argv = SHELL("echo $NEAP_TEST_SPAWN; echo err >&2; cat; exit 3"),
				   .run = set_variable,
				   .context = value,
				   .fds = {NEAP_SPAWN_NULL},
				   .output = &output,
				   .errors = &errors};
	int code = -1;
	(void)unused;
	for (int round = 0; round < 2; round++) {
		neap_buffer_clear(&output);
		neap_buffer_clear(&errors);
		assert_int_equal(neap_spawn_run(&spawn, &code, &err), NEAP_OK);
		assert_int_equal(code, 3);
		assert_string_equal(neap_buffer_string(&output), round ? "given\n" : "set\n");
		assert_string_equal(neap_buffer_string(&errors), "err\n");
		spawn.environment = environment;
		spawn.program = "/bin/sh";
	}
	assert_null(getenv("NEAP_TEST_SPAWN"));
	neap_buffer_fini(&output);
	neap_buffer_fini(&errors);
	expect_no_child();
}

static int refuse(void *unused)
{
	(void)unused;
	return EXDEV;
}

static void expect_failure(struct neap_spawn spawn, int cause, const char *message)
{
	struct neap_error err = {0};
	pid_t child = -7;
	spawn.doing = "starting it";
	assert_true(neap_spawn(&spawn, &child, &err) != NEAP_OK);
	assert_int_equal(err.cause, cause);
	assert_string_equal(err.message, message);
	assert_int_equal(child, -7);
	expect_no_child();
}

static void a_failed_start_is_reported(void **unused)
{
	char *missing[] = {(char[]){"neap-test-no-such-program"}, NULL};
	(void)unused;
	expect_failure((struct neap_spawn){.argv = missing}, ENOENT, "starting it: No such file or directory");
	expect_failure((struct neap_spawn){.argv = missing, .program = "/"}, EACCES,
		       "starting it: Permission denied");
	expect_failure((struct neap_spawn){.argv = SHELL("exit 0"), .run = refuse}, EXDEV,
		       "starting it: Invalid cross-device link");
	expect_failure((struct neap_spawn){.argv = SHELL("exit 0"), .fds = {0, 1 << 20}}, EBADF,
		       "starting it: Bad file descriptor");
}

static int become_program(void *argv)
{
	return neap_spawn_become(&(struct neap_spawn){.argv = argv, .fds = {NEAP_SPAWN_NULL}});
}

static void a_process_becomes_a_program(void **unused)
{
	(void)unused;
	assert_int_equal(code_of(&(struct neap_spawn){.run = become_program, .context = SHELL("cat; exit 5")}), 5);
	assert_int_equal(code_of(&(struct neap_spawn){.run = become_program,
						      .context = (char *[]){(char[]){"neap-test-missing"}, NULL}}),
			 ENOENT);
}

static int report_place(void *unused)
{
	(void)unused;
	return (getpgrp() == getpid()) + 2 * (getsid(0) == getpid());
}

static void a_child_has_its_place(void **unused)
{
	(void)unused;
	assert_int_equal(code_of(&(struct neap_spawn){.run = report_place}), 0);
	assert_int_equal(code_of(&(struct neap_spawn){.run = report_place, .place = NEAP_SPAWN_OWN_GROUP}), 1);
	assert_int_equal(code_of(&(struct neap_spawn){.run = report_place, .place = NEAP_SPAWN_OWN_SESSION}), 3);
}

static int pause_for_ever(void *unused)
{
	(void)unused;
	while (pause())
		;
	return 0;
}

/* Starts a child that ends together with this process, which then ends. */
static int leave_child(void *unused)
{
	pid_t child;
	(void)unused;
	return neap_spawn(&(struct neap_spawn){.run = pause_for_ever, .death_signal = SIGTERM}, &child, NULL) ? 1 : 0;
}

static void a_child_ends_with_its_parent(void **unused)
{
	int ends[2];
	char byte;
	(void)unused;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(code_of(&(struct neap_spawn){.run = leave_child}), 0);
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 0); /* no process has the pipe any more */
	close(ends[0]);
}

/* --- signals --- */

static int raise_signal(void *number)
{
	raise((int)(intptr_t)number);
	return 4;
}

static void signals_are_as_usual(void **unused)
{
	sigset_t usr2, before, after;
	(void)unused;
	set_handler(SIGUSR1, note);
	set_handler(SIGPIPE, SIG_IGN);
	set_handler(SIGHUP, SIG_IGN);
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, &before);
	const struct neap_spawn usr1 = {.run = raise_signal, .context = (void *)(intptr_t)SIGUSR1};
	struct neap_spawn blocked = usr1;
	blocked.blocked = true;
	assert_int_equal(code_of(&usr1), 128 + SIGUSR1);
	assert_int_equal(code_of(&blocked), 4);
	assert_int_equal(code_of_shell(SHELL("kill -USR2 $$; exit 4")), 128 + SIGUSR2);
	assert_int_equal(code_of_shell(SHELL("kill -PIPE $$; exit 4")), 128 + SIGPIPE);
	assert_int_equal(code_of_shell(SHELL("kill -HUP $$; exit 4")), 4);
	assert_int_equal(caught, 0);
	sigprocmask(SIG_SETMASK, &before, &after);
	assert_true(sigismember(&after, SIGUSR2));
	assert_false(sigismember(&after, SIGTERM));
	set_handler(SIGPIPE, SIG_DFL);
	set_handler(SIGHUP, SIG_DFL);
	set_handler(SIGUSR1, SIG_DFL);
}

/* A timer interrupts each waiting call. */
static void interrupted_calls_go_on(void **unused)
{
	const struct itimerval often = {{0, 1000}, {0, 1000}}, never = {0};
	struct neap_buffer output = {0};
	int code = -1, ended = -1;
	pid_t child;
	(void)unused;
	set_handler(SIGALRM, note);
	caught = 0;
	setitimer(ITIMER_REAL, &often, NULL);
	enum neap_status status = neap_spawn_run(&(struct neap_spawn){.doing = "testing",
								      .argv = SHELL("sleep 0.1; echo slept; exit 6"),
								      .output = &output},
						 &code, NULL);
	if (!neap_spawn(&(struct neap_spawn){.doing = "testing", .argv = SHELL("sleep 0.1; exit 7")}, &child, NULL))
		ended = neap_spawn_end(child);
	setitimer(ITIMER_REAL, &never, NULL);
	set_handler(SIGALRM, SIG_DFL);
	assert_int_equal(status, NEAP_OK);
	assert_int_equal(code, 6);
	assert_int_equal(ended, 7);
	assert_string_equal(neap_buffer_string(&output), "slept\n");
	assert_true(caught > 0);
	neap_buffer_fini(&output);
}

/* --- the end --- */

static void a_wait_has_a_deadline(void **unused)
{
	const struct neap_deadline past = neap_deadline_in(neap_clock_system(), 0);
	pid_t child = -1;
	int code = -2;
	(void)unused;
	assert_int_equal(neap_spawn(&(struct neap_spawn){.run = pause_for_ever}, &child, NULL), NEAP_OK);
	assert_false(neap_spawn_wait(child, past, &code));
	assert_false(neap_spawn_wait(child, neap_deadline_in_ms(neap_clock_system(), 20), &code));
	assert_int_equal(code, -2);
	kill(child, SIGKILL);
	assert_true(neap_spawn_wait(child, neap_deadline_in_ms(neap_clock_system(), 600000), &code));
	assert_int_equal(code, 128 + SIGKILL);
	set_handler(SIGCHLD, SIG_IGN); /* the kernel reaps it */
	assert_int_equal(code_of_shell(SHELL("exit 3")), -1);
	set_handler(SIGCHLD, SIG_DFL);
	expect_no_child();
}

static bool stop(void *calls) { return ++*(int *)calls < 3; }

static void expect_stop(struct neap_spawn spawn, enum neap_status status, const char *message)
{
	struct neap_error err = {0};
	struct neap_buffer output = {0};
	int code = -2;
	spawn.doing = "testing";
	spawn.output = &output;
	assert_int_equal(neap_spawn_run(&spawn, &code, &err), status);
	assert_string_equal(err.message, message);
	assert_int_equal(code, -2);
	neap_buffer_fini(&output);
	expect_no_child();
}

static void a_child_is_stopped_at_its_limits(void **unused)
{
	char *endless[] = {(char[]){"yes"}, NULL};
	int calls = 0;
	(void)unused;
	expect_stop((struct neap_spawn){.argv = endless, .limit_bytes = 100000}, NEAP_EPROTO,
		    "testing: it wrote more than 100000 bytes");
	expect_stop((struct neap_spawn){.argv = SHELL("exec sleep 600"), .limit_ns = NEAP_NS_PER_S / 20},
		    NEAP_ETIMEDOUT, "testing: it did not end within 0.05 s");
	expect_stop((struct neap_spawn){.argv = SHELL("exec sleep 600"), .go_on = stop, .context = &calls},
		    NEAP_ECANCELED, "testing: stopped");
	assert_int_equal(calls, 3);
}

static void output_up_to_the_limit_is_whole(void **unused)
{
	struct neap_buffer output = {0};
	int code = -1;
	(void)unused;
	assert_int_equal(neap_spawn_run(&(struct neap_spawn){.doing = "testing",
							     .argv = SHELL("head -c 1000000 /dev/zero"),
							     .output = &output,
							     .limit_bytes = 1000000},
					&code, NULL),
			 NEAP_OK);
	assert_int_equal(output.length, 1000000);
	neap_buffer_fini(&output);
}

/* Its own child keeps its output open. */
static void a_grandchild_is_not_waited_for(void **unused)
{
	struct neap_buffer output = {0};
	struct neap_process process;
	int code = -1;
	(void)unused;
	assert_int_equal(neap_spawn_run(&(struct neap_spawn){.doing = "testing",
							     .argv = SHELL("sleep 30 & echo $!"),
							     .output = &output},
					&code, NULL),
			 NEAP_OK);
	pid_t grandchild = (pid_t)strtol(neap_buffer_string(&output), NULL, 10);
	assert_int_equal(neap_process_read(grandchild, &process, NULL), NEAP_OK);
	assert_int_not_equal(process.state, 'Z');
	assert_int_equal(kill(grandchild, SIGKILL), 0);
	neap_buffer_fini(&output);
}

/* --- descriptors --- */

/* Returns 0, or the line of the failed check: an assertion in here would not be noticed. */
static int run_without_standard(void *unused)
{
	struct neap_buffer output = {0}, errors = {0};
	int code = -1;
	(void)unused;
	for (int fd = 0; fd <= 2; fd++)
		close(fd);
	if (neap_spawn_run(&(struct neap_spawn){.doing = "testing",
						.argv = SHELL("cat; echo out; echo err >&2; exit 9"),
						.fds = {NEAP_SPAWN_NULL},
						.output = &output,
						.errors = &errors},
			   &code, NULL))
		return 1;
	bool whole = code == 9 && !strcmp(neap_buffer_string(&output), "out\n") &&
		     !strcmp(neap_buffer_string(&errors), "err\n");
	neap_buffer_fini(&output);
	neap_buffer_fini(&errors);
	return !whole ? 2 : fcntl(0, F_GETFD) >= 0 || fcntl(1, F_GETFD) >= 0 || fcntl(2, F_GETFD) >= 0 ? 3 : 0;
}

static void the_host_may_have_closed_the_standard_ones(void **unused)
{
	(void)unused;
	assert_int_equal(code_of(&(struct neap_spawn){.run = run_without_standard}), 0);
}

static int close_others(void *fds)
{
	const int *of = fds, kept[] = {of[3], -1, of[1]};
	if (!neap_spawn_close_others(kept, 3))
		return 100;
	int open = 0;
	for (int i = 0; i < 4; i++)
		open |= (fcntl(of[i], F_GETFD) >= 0) << i;
	return open | (fcntl(2, F_GETFD) >= 0) << 4;
}

static void others_are_closed(void **unused)
{
	int fds[4];
	(void)unused;
	for (int i = 0; i < 4; i++)
		fds[i] = dup(1);
	assert_int_equal(code_of(&(struct neap_spawn){.run = close_others, .context = fds}), 2 | 8 | 16);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_runs),
		cmocka_unit_test(a_failed_start_is_reported),
		cmocka_unit_test(a_process_becomes_a_program),
		cmocka_unit_test(a_child_has_its_place),
		cmocka_unit_test(a_child_ends_with_its_parent),
		cmocka_unit_test(signals_are_as_usual),
		cmocka_unit_test(interrupted_calls_go_on),
		cmocka_unit_test(a_wait_has_a_deadline),
		cmocka_unit_test(a_child_is_stopped_at_its_limits),
		cmocka_unit_test(output_up_to_the_limit_is_whole),
		cmocka_unit_test(a_grandchild_is_not_waited_for),
		cmocka_unit_test(the_host_may_have_closed_the_standard_ones),
		cmocka_unit_test(others_are_closed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
