/* neap series from outside: exclusion, survival of kills, messages and exit status. */
#include "series_test.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "name: t\ndefaults: {needs: none}\nexperiments:\n"

static void check_said(const char *text)
{
	char *said = series_read("err");
	if (!strstr(said, text))
		fail_msg("expected: %s\nsaid: %s", text, said);
	free(said);
}

/* The experiment waits until the test opens the pipe "go" for writing. */
static void write_waiting(void)
{
	series_write("s.yaml",
		     HEAD "- {name: w, command: [sh, -c, 'echo x >> ran; read line < go; echo y >> done']}\n"
			  "- {name: after, command: [sh, -c, 'echo x >> ran2']}\n");
	assert_int_equal(mkfifo("go", 0600), 0);
}

static void let_go(void)
{
	int fd = open("go", O_WRONLY);
	assert_int_not_equal(fd, -1);
	assert_int_equal(write(fd, "\n", 1), 1);
	close(fd);
}

/* Killed while the experiment runs: it keeps running; a resume waits for it and takes its result. */
static void test_adopt(void **state)
{
	(void)state;
	write_waiting();
	pid_t first = series_spawn(NULL, (const char *const[]){"s.yaml", "--folder", "f", NULL});
	series_await("ran");
	assert_int_equal(kill(first, SIGKILL), 0);
	assert_int_equal(series_wait(first), 128 + SIGKILL);
	assert_int_not_equal(access("done", F_OK), 0);
	unlink("err");
	pid_t second = series_spawn(NULL, (const char *const[]){"s.yaml", "--folder", "f", "--resume", NULL});
	series_await("err");
	let_go();
	assert_int_equal(series_wait(second), 0);
	check_said("[1/2] w: attempt 1 is still running, waiting for it");
	assert_int_equal(series_lines("ran"), 1);
	assert_int_equal(series_lines("done"), 1);
	assert_int_equal(series_lines("ran2"), 1);
	json_t *records = series_records("f");
	assert_int_equal(series_count(records, "start", "w"), 1);
	assert_int_equal(series_count(records, "end", "w"), 1);
	json_decref(records);
}

/* Killed, and the experiment ended before the resume: its result is there. */
static void test_take(void **state)
{
	(void)state;
	write_waiting();
	pid_t first = series_spawn(NULL, (const char *const[]){"s.yaml", "--folder", "f", NULL});
	series_await("ran");
	assert_int_equal(kill(first, SIGKILL), 0);
	assert_int_equal(series_wait(first), 128 + SIGKILL);
	let_go();
	series_await("f/runs/w-1/result.json");
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f", "--resume"), 0);
	assert_int_equal(series_lines("ran"), 1);
	assert_int_equal(series_lines("ran2"), 1);
}

/* The supervisor itself is killed: that attempt is lost and reported, and another one is made. */
static void test_lost(void **state)
{
	(void)state;
	write_waiting();
	pid_t series = series_spawn(NULL, (const char *const[]){"s.yaml", "--folder", "f", NULL});
	series_await("ran");
	char *text = series_read("f/runs/w-1/supervisor");
	pid_t supervisor = (pid_t)strtol(text, NULL, 10);
	free(text);
	assert_true(supervisor > 1);
	assert_int_equal(kill(supervisor, SIGKILL), 0);
	series_await("f/runs/w-2/supervisor");
	let_go();
	assert_int_equal(series_wait(series), 0);
	check_said("[1/2] w: attempt 1 is lost: its supervisor is gone without a result");
	json_t *records = series_records("f");
	assert_int_equal(series_count(records, "start", "w"), 2);
	assert_int_equal(series_count(records, "lost", "w"), 1);
	assert_int_equal(series_count(records, "end", "w"), 1);
	json_decref(records);
}

static pid_t supervisor_of(const char *path)
{
	char *text = series_read(path);
	pid_t supervisor = (pid_t)strtol(text, NULL, 10);
	free(text);
	assert_true(supervisor > 1);
	return supervisor;
}

static void check_counts(const char *experiment, unsigned starts, unsigned ends, unsigned lost, unsigned canceled)
{
	json_t *records = series_records("f");
	assert_int_equal(series_count(records, "start", experiment), starts);
	assert_int_equal(series_count(records, "end", experiment), ends);
	assert_int_equal(series_count(records, "lost", experiment), lost);
	assert_int_equal(series_count(records, "cancel", experiment), canceled);
	json_decref(records);
}

/* Three attempts whose supervisors died while their command ran: given up, reported as lost, and the next experiment
 * runs. */
static void test_give_up(void **state)
{
	(void)state;
	series_write("s.yaml", HEAD "- {name: e, command: [sh, -c, 'echo x >> ran; exec tail -f /dev/null']}\n"
				    "- {name: f, command: [sh, -c, 'echo x >> ran2']}\n");
	pid_t series = series_spawn(NULL, (const char *const[]){"s.yaml", "--folder", "f", NULL});
	for (unsigned i = 1; i <= 3; i++) {
		char name[64];
		snprintf(name, sizeof name, "f/runs/e-%u/supervisor", i);
		series_await(name);
		while (series_lines("ran") < i)
			usleep(1000);
		assert_int_equal(kill(supervisor_of(name), SIGKILL), 0);
	}
	assert_int_equal(series_wait(series), 1);
	check_said("[1/2] e: given up after 3 lost attempts");
	assert_int_equal(series_lines("ran"), 3);
	assert_int_equal(series_lines("ran2"), 1);
	check_counts("e", 3, 0, 3, 0);
	check_counts("f", 1, 1, 0, 0);
}

/* Starts that were journaled but never happened: only a started attempt can be lost. */
static void test_never_began(void **state)
{
	(void)state;
	series_write("s.yaml", HEAD "- {name: e, command: [sh, -c, 'echo x >> ran']}\n");
	/* Writes: series and start first, then cancel and start each time. */
	for (int i = 0; i < 4; i++)
		assert_int_equal(SERIES("synced:2:0", "s.yaml", "--folder", "f", "--resume"), 128 + SIGKILL);
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f", "--resume"), 0);
	check_said("[1/1] e: attempt 1 never began");
	assert_int_equal(series_lines("ran"), 1);
	check_counts("e", 5, 1, 0, 4);
}

/* Supervisors that die before they start their command stop the series: else it would retry for ever. */
static void test_none_begins(void **state)
{
	char text[512];
	(void)state;
	snprintf(text, sizeof text,
		 HEAD "- {name: e, command: [sh, -c, 'echo x >> ran'], env: {LD_PRELOAD: \"%s\", NEAP_KILLER: "
		      "\"abort:0:0\"}}\n",
		 series_killer());
	series_write("s.yaml", text);
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f"), 70);
	check_said("3 supervisors in a row were ended before they began their command");
	assert_int_equal(series_lines("ran"), 0);
	check_counts("e", 3, 0, 0, 3);
	series_write("begin", "");
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f", "--resume"), 0);
	assert_int_equal(series_lines("ran"), 1);
}

/* A series whose supervisors die between their command's end and its result. */
static int end_in_between(const char *command_end)
{
	char text[1024];
	snprintf(text, sizeof text,
		 HEAD "- {name: e, command: [sh, -c, 'echo x >> ran; tail -f /dev/null 2>/dev/null & echo $! >left; "
		      "%s']%s, "
		      "env: {LD_PRELOAD: \"%s\", NEAP_KILLER: \"ended:0:0\"}}\n",
		 command_end, strstr(command_end, "{b}") ? ", params: {b: 4}, on_oom: halve b" : "", series_killer());
	series_write("s.yaml", text);
	return SERIES(NULL, "s.yaml", "--folder", "f");
}

static void check_result(const char *outcome, int exit_status)
{
	json_t *result = json_load_file("f/runs/e-1/result.json", 0, NULL);
	assert_non_null(result);
	assert_string_equal(json_string_value(json_object_get(result, "outcome")), outcome);
	assert_int_equal(json_integer_value(json_object_get(result, "exit_status")), exit_status);
	assert_string_equal(json_string_value(json_object_get(result, "name")), "e");
	assert_true(json_integer_value(json_object_get(result, "duration_ns")) > 0);
	assert_string_equal(json_string_value(json_object_get(result, "drain_note")),
			    "not waited for: the supervisor was ended first");
	json_decref(result);
	assert_int_not_equal(access("f/runs/e-1/ended", F_OK), 0);
}

/* Killed after the command has ended: the file `ended` is enough. */
static void test_ended(void **state)
{
	(void)state;
	assert_int_equal(end_in_between("exit 0"), 0);
	assert_int_equal(series_lines("ran"), 1);
	check_counts("e", 1, 1, 0, 0);
	check_result("ok", 0);
	char *text = series_read("left"), path[64], now = 'R';
	snprintf(path, sizeof path, "/proc/%ld/stat", strtol(text, NULL, 10));
	free(text);
	for (int looks = 0; now != 'Z' && !access(path, F_OK) && looks < 10000; looks++, usleep(1000)) {
		char *stat = series_read(path);
		if (strrchr(stat, ')'))
			now = strrchr(stat, ')')[2];
		free(stat);
	}
	assert_true(now == 'Z' || access(path, F_OK)); /* the command's leftover was ended */
}

static void test_ended_badly(void **state)
{
	(void)state;
	assert_int_equal(end_in_between("echo CUDA out of memory >&2; exit 3"), 1);
	assert_int_equal(series_lines("ran"), 1);
	check_counts("e", 1, 1, 0, 0);
	check_result("oom", 3);
}

/* A run that was due to restart with less memory has not ended: that attempt is lost. */
static void test_ended_with_a_rung_left(void **state)
{
	(void)state;
	assert_int_equal(
		end_in_between("[ {b} -ge 4 ] && [ ! -e again ] || exit 0; : >again; echo CUDA out of memory "
			       ">&2; exit 3"),
		0);
	check_counts("e", 2, 1, 1, 0);
}

/* One supervisor cannot start, and the other has not got that far: the series ends when both have ended, and nothing
 * is lost.
 */
static void test_reaped(void **state)
{
	char text[1024];
	(void)state;
	snprintf(text, sizeof text,
		 "name: t\nparallel: 2\ndefaults: {needs: none}\nexperiments:\n"
		 "- {name: lingers, command: [sh, -c, 'echo x >> ran'], env: {LD_PRELOAD: \"%s\", NEAP_KILLER: "
		 "\"linger:0:0\"}}\n"
		 "- {name: full, command: \"true\", min_disk: 1000000TiB}\n",
		 series_killer());
	series_write("s.yaml", text);
	pid_t series = series_spawn(NULL, (const char *const[]){"s.yaml", "--folder", "f", NULL});
	series_await("lingers");
	pid_t lingering = supervisor_of("f/runs/lingers-1/supervisor");
	for (bool said = false; !said; usleep(1000)) {
		char *err = series_read("err");
		said = strstr(err, "waiting for 1 experiment that still runs") != NULL;
		free(err);
	}
	assert_int_equal(kill(lingering, SIGTERM), 0);
	assert_int_equal(series_wait(series), 74);
	assert_int_equal(kill(lingering, 0), -1); /* reaped */
	check_counts("lingers", 1, 0, 0, 1);
	check_counts("full", 1, 0, 0, 1);
}

/* A file system without locks makes no difference. */
static void test_without_locks(void **state)
{
	(void)state;
	char holds[96];
	write_waiting();
	pid_t first = series_spawn("nolocks:0:0", (const char *const[]){"s.yaml", "--folder", "f", NULL});
	series_await("ran");
	assert_int_equal(access("f/owner", F_OK), 0);
	assert_int_equal(SERIES("nolocks:0:0", "s.yaml", "--folder", "f", "--resume"), 75);
	snprintf(holds, sizeof holds, "f: process %ld on ", (long)first);
	check_said(holds);
	check_said("has it (this file system has no locks): if that is gone, remove the file owner in it");
	assert_int_equal(kill(first, SIGKILL), 0);
	assert_int_equal(series_wait(first), 128 + SIGKILL);
	unlink("err");
	pid_t second =
		series_spawn("nolocks:0:0", (const char *const[]){"s.yaml", "--folder", "f", "--resume", NULL});
	series_await("err"); /* it is adopted */
	check_said("[1/2] w: attempt 1 is still running, waiting for it");
	pid_t supervisor = supervisor_of("f/runs/w-1/supervisor");
	assert_int_equal(kill(supervisor, SIGKILL), 0);
	series_await("f/runs/w-2/supervisor"); /* and the supervisor is seen to be gone */
	let_go();
	assert_int_equal(series_wait(second), 0);
	assert_int_equal(series_lines("ran"), 2);
	assert_int_equal(series_lines("ran2"), 1);
	check_counts("w", 2, 1, 1, 0);
	check_counts("after", 1, 1, 0, 0);
	assert_int_not_equal(access("f/owner", F_OK), 0);
	assert_int_not_equal(access("f/runs/w-2/owner", F_OK), 0);
}

/* Two processes, one series. */
static void test_excluded(void **state)
{
	(void)state;
	char holds[96];
	write_waiting();
	pid_t first = series_spawn(NULL, (const char *const[]){"s.yaml", "--folder", "f", NULL});
	series_await("ran");
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f", "--resume"), 75);
	snprintf(holds, sizeof holds, "f: another series process holds it: %ld", (long)first);
	check_said(holds);
	let_go();
	assert_int_equal(series_wait(first), 0);
	assert_int_equal(series_lines("ran"), 1);
}

/* Ctrl-C ends the running experiment; after a resume it runs again, and only it. */
static void test_interrupted(void **state)
{
	(void)state;
	series_write(
		"s.yaml", HEAD
		"- {name: a, command: [sh, -c, 'echo x >> ran0']}\n"
		"- {name: w, command: [sh, -c, 'test -e ran && exit 0; echo x >> ran; exec tail -f /dev/null']}\n"
		"- {name: after, command: [sh, -c, 'echo x >> ran2']}\n");
	pid_t series = series_spawn(NULL, (const char *const[]){"s.yaml", NULL});
	series_await("ran");
	assert_int_equal(kill(series, SIGINT), 0);
	assert_int_equal(series_wait(series), 130);
	check_said("neap series: 2 experiments left; continue with: neap series s.yaml --resume");
	assert_int_equal(series_lines("ran2"), 0);
	assert_int_equal(SERIES(NULL, "s.yaml"), 75);
	check_said("holds an unfinished series: continue with --resume");
	assert_int_equal(SERIES(NULL, "s.yaml", "--resume"), 0);
	assert_int_equal(series_lines("ran0"), 1);
	assert_int_equal(series_lines("ran2"), 1);
}

/* As early as possible: the supervisor is asked to end before it listens for signals. Nothing is lost. */
static void test_interrupted_early(void **state)
{
	char text[512];
	(void)state;
	snprintf(text, sizeof text,
		 HEAD "- {name: e, command: [sh, -c, 'echo x >> ran'], env: {LD_PRELOAD: \"%s\", NEAP_KILLER: "
		      "\"linger:0:0\"}}\n",
		 series_killer());
	series_write("s.yaml", text);
	pid_t series = series_spawn(NULL, (const char *const[]){"s.yaml", "--folder", "f", NULL});
	series_await("lingers");
	assert_int_equal(kill(series, SIGTERM), 0);
	assert_int_equal(series_wait(series), 128 + SIGTERM);
	check_said("[1/1] e: attempt 1 was ended before it began");
	json_t *records = series_records("f");
	assert_int_equal(series_count(records, "cancel", "e"), 1);
	assert_int_equal(series_count(records, "lost", "e"), 0);
	json_decref(records);
	series_write("begin", "");
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f", "--resume"), 0);
	assert_int_equal(series_lines("ran"), 1);
}

/* Killed between a start and its end, then edited: the attempt belonged to another command, and is repeated with the
 * new file, even after a kill in the middle of the edit. */
static void test_changed(void **state)
{
	(void)state;
	series_write("s.yaml", HEAD "- {name: e, command: \"true\"}\n");
	assert_int_equal(SERIES("before:3:0", "s.yaml", "--folder", "f"), 128 + SIGKILL);
	series_write("s.yaml", HEAD "- {name: e, command: \"false\"}\n");
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f", "--resume"), 1);
	check_said("the series in f, whose file has changed since:");
	series_write("s.yaml", HEAD "- {name: e, command: \"true\"}\n");
	for (int bytes = 0; bytes < 3; bytes++) {
		const char *const orders[] = {"before:1:0", "torn:1:20", "written:1:0"};
		assert_int_equal(SERIES(orders[bytes], "s.yaml", "--folder", "f", "--resume"), 128 + SIGKILL);
		check_said("  1 failed and is run again: e");
	}
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f", "--resume"), 0);
	check_said("[1/1] e: attempt 3,");
}

/* A journal damaged in its middle is refused with the place. */
static void test_damaged(void **state)
{
	(void)state;
	series_write("s.yaml", HEAD "- {name: e, command: \"true\"}\n");
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f"), 0);
	char *journal = series_read("f/journal");
	journal[20] ^= 1;
	series_write("f/journal", journal);
	free(journal);
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f", "--resume"), 65);
	check_said("f/journal is damaged at byte 0");
}

/* A finished series: shown again on request, otherwise the next number starts. */
static void test_finished(void **state)
{
	(void)state;
	series_write("s.yaml", HEAD "- {name: e, command: [sh, -c, 'echo x >> ran']}\n");
	assert_int_equal(SERIES(NULL, "s.yaml"), 0);
	char *first = series_read("out");
	assert_int_equal(SERIES(NULL, "s.yaml", "--resume"), 0);
	assert_int_equal(series_lines("ran"), 1);
	char *again = series_read("out");
	assert_string_equal(again, first);
	assert_int_equal(SERIES(NULL, "s.yaml"), 0);
	assert_int_equal(series_lines("ran"), 2);
	char *second = series_read("out");
	assert_non_null(strstr(second, "-2/report.html\n"));
	assert_null(strstr(first, "-2/report.html\n"));
	free(first);
	free(again);
	free(second);
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f"), 0);
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f"), 73);
	assert_int_equal(series_lines("ran"), 3);
}

/* A failing experiment does not affect the others, only the status. */
static void test_failures(void **state)
{
	(void)state;
	series_write("s.yaml",
		     HEAD "- {name: bad, command: [sh, -c, 'exit 3']}\n"
			  "- {name: none, command: ./no-such-program}\n"
			  "- {name: signal, command: [sh, -c, 'kill -9 $$']}\n"
			  "- {name: good, command: [sh, -c, 'echo $A {b} >> ran'], env: {A: 7}, params: {b: x y}}\n");
	assert_int_equal(SERIES(NULL, "s.yaml", "--folder", "f"), 1);
	json_t *records = series_records("f");
	const struct {
		const char *name, *outcome;
		int exit_status;
	} rows[] = {{"bad", "failed", 3}, {"none", "not found", 127}, {"signal", "signaled", 137}, {"good", "ok", 0}};
	for (size_t i = 0; i < 4; i++) {
		json_t *record = json_array_get(records, 2 * i + 2);
		assert_string_equal(json_string_value(json_object_get(record, "type")), "end");
		assert_string_equal(json_string_value(json_object_get(record, "experiment")), rows[i].name);
		assert_string_equal(json_string_value(json_object_get(record, "outcome")), rows[i].outcome);
		assert_int_equal(json_integer_value(json_object_get(record, "exit_status")), rows[i].exit_status);
	}
	json_decref(records);
	char *ran = series_read("ran");
	assert_string_equal(ran, "7 x y\n");
	free(ran);
}

/* Errors in the file are reported before anything starts. */
static void test_refused(void **state)
{
	(void)state;
	static const struct {
		const char *text, *said;
	} rows[] = {
		{"name: t\nexperiment: []\n", "neap series: s.yaml:2:1: series: unknown key 'experiment', expected "
					      "one of: name, parallel, slurm, defaults, experiments\n"},
		{HEAD "- {name: ok, command: [sh, -c, 'echo > ran']}\n"
		      "- {name: e, command: 'x {lr} {batch}', params: {batch: 1}}\n",
		 "s.yaml:5: experiment 'e': command: "},
		{HEAD "- {name: e, command: x, on_oom: shrink batch, params: {batch: 1}}\n",
		 "s.yaml:4: experiment 'e': on_oom, column 1: "},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		series_write("s.yaml", rows[i].text);
		assert_int_equal(SERIES(NULL, "s.yaml"), 65);
		check_said(rows[i].said);
	}
	assert_int_not_equal(access("ran", F_OK), 0);
	char *long_text = malloc((2u << 20) + 1);
	assert_non_null(long_text);
	memset(long_text, '#', 2u << 20);
	long_text[2u << 20] = '\0';
	series_write("s.yaml", long_text);
	free(long_text);
	assert_int_equal(SERIES(NULL, "s.yaml"), 65);
	check_said("s.yaml is longer than the 1048576 bytes allowed");
	assert_int_equal(SERIES(NULL, "missing.yaml"), 66);
	assert_int_equal(SERIES(NULL, "--resume"), 64);
	assert_int_equal(SERIES(NULL, "s.yaml", "--wait"), 64); /* without --slurm */
}

static void test_dry_run(void **state)
{
	(void)state;
	series_write("s.yaml", HEAD "- {name: e, command: [sh, -c, 'echo x > ran{v}'], grid: {v: [1, 2]}}\n");
	assert_int_equal(SERIES(NULL, "s.yaml", "--dry-run"), 0);
	char *out = series_read("out");
	assert_string_equal(out, "t: 2 experiments\n"
				 "1. e-v=1\n"
				 "     command  sh -c 'echo x > ran{v}'\n"
				 "     params   v=1\n"
				 "     needs    none\n"
				 "2. e-v=2\n"
				 "     command  sh -c 'echo x > ran{v}'\n"
				 "     params   v=2\n"
				 "     needs    none\n");
	free(out);
	assert_int_not_equal(access("ran1", F_OK), 0);
	assert_int_not_equal(access("neap/series", F_OK), 0);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, series_setup, series_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_adopt),
		TEST(test_take),
		TEST(test_lost),
		TEST(test_give_up),
		TEST(test_never_began),
		TEST(test_none_begins),
		TEST(test_ended),
		TEST(test_ended_badly),
		TEST(test_ended_with_a_rung_left),
		TEST(test_reaped),
		TEST(test_without_locks),
		TEST(test_excluded),
		TEST(test_interrupted),
		TEST(test_interrupted_early),
		TEST(test_changed),
		TEST(test_damaged),
		TEST(test_finished),
		TEST(test_failures),
		TEST(test_refused),
		TEST(test_dry_run),
	};
	if (series_arguments(argc, argv))
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
