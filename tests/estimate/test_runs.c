/* Runs side by side. neap_estimate_jobs_run starts /proc/self/exe: so this program also plays `neap run`. */
#include "base/file.h"
#include "base/hostmem.h"
#include "estimate/runs.h"

#include "support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 20000

static char folder[] = "/tmp/neap-runs-XXXXXX";

static size_t count_files(const char *path)
{
	DIR *entries = opendir(path);
	size_t count = 0;
	for (struct dirent *entry; entries && (entry = readdir(entries));)
		count += entry->d_name[0] != '.';
	if (entries)
		closedir(entries);
	return count;
}

/* Like `neap run --param folder=FOLDER --param others=N`: leaves a file in FOLDER, and waits until there are N. */
static int stand_in(char **argv)
{
	const char *begun = "", *others = "";
	char path[256];
	for (; *argv; argv++) {
		begun = strncmp(*argv, "folder=", 7) == 0 ? *argv + 7 : begun;
		others = strncmp(*argv, "others=", 7) == 0 ? *argv + 7 : others;
	}
	snprintf(path, sizeof path, "%s/%d", begun, (int)getpid());
	close(open(path, O_CREAT | O_WRONLY, 0600));
	for (int i = 0; i < WAIT_MS; i++) {
		if (count_files(begun) >= (size_t)atoi(others))
			return 0;
		usleep(1000);
	}
	return 1;
}

static bool go_on(void *context, const char *what, uint64_t elapsed_ns)
{
	(void)context;
	(void)what;
	(void)elapsed_ns;
	return true;
}

static void run_jobs(struct neap_estimate_job *jobs, size_t count, size_t at_once, const char *others)
{
	char begun[300];
	snprintf(begun, sizeof begun, "folder=%s/begun", folder);
	assert_int_equal(mkdir(begun + 7, 0700), 0);
	char *argv[] = {(char *)(uintptr_t) "true", NULL};
	char *parameters[] = {begun, (char *)(uintptr_t)others, NULL};
	struct neap_estimate_isolation isolation = {.in_place = true};
	struct neap_estimate_command command = {.argv = argv,
						.parameters = parameters,
						.time_limit = "1min",
						.isolation = &isolation,
						.watch = {.go_on = go_on}};
	struct neap_error err;
	for (size_t i = 0; i < count; i++)
		snprintf(jobs[i].folder, sizeof jobs[i].folder, "%s/run%zu", folder, i);
	if (neap_estimate_jobs_run(&command, jobs, count, at_once, &err))
		fail_msg("%s", err.message);
	for (size_t i = 0; i < count; i++)
		assert_true(jobs[i].over && !jobs[i].again && !jobs[i].pid);
}

static int begin(void **state)
{
	(void)state;
	strcpy(strrchr(folder, '-'), "-XXXXXX");
	return mkdtemp(folder) ? 0 : 1;
}

static int end(void **state)
{
	(void)state;
	neap_estimate_remove(folder);
	return 0;
}

/* Nothing is known about them yet, and there is memory for two. */
static void the_first_runs_go_side_by_side(void **state)
{
	struct neap_estimate_job jobs[2] = {0};
	struct neap_host_memory memory;
	struct timespec before, after;
	(void)state;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || neap_host_memory_read("", &memory, NULL) ||
	    memory.available_bytes < 12ull << 30)
		skip();
	clock_gettime(CLOCK_MONOTONIC, &before);
	run_jobs(jobs, 2, 0, "others=2");
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_true((after.tv_sec - before.tv_sec) * 1000 < WAIT_MS); /* neither waited in vain for the other */
}

/* Memory was short: the run was asked to end, and its folder is removed. */
static void a_run_that_was_put_off_starts_again(void **state)
{
	struct neap_estimate_job jobs[2] = {{.again = true}};
	char path[300];
	(void)state;
	run_jobs(jobs, 2, 1, "others=1");
	snprintf(path, sizeof path, "%s/begun", folder);
	assert_int_equal(count_files(path), 3);
}

static void write_file(const char *path, const char *name, const char *text)
{
	char whole[600];
	snprintf(whole, sizeof whole, "%s/%s", path, name);
	assert_int_equal(neap_file_write(whole, text, strlen(text), NULL), NEAP_OK);
}

/* Folders as the first run's process leaves them. One of two runs may have ended well and left `findings`; with
 * `full` it has filled its view, with `link` its folder is a link. */
static void take_others(bool full, const char *findings, bool link, struct neap_estimate_job others[2])
{
	struct neap_view_facts facts = {.kind = NEAP_VIEW_MOUNTS, .files = 1, .full = full};
	struct neap_estimate_job first = {.others = others, .other_count = 2};
	char made[NEAP_ESTIMATE_CAPACITY + 16], outside[NEAP_ESTIMATE_CAPACITY];
	snprintf(outside, sizeof outside, "%s/outside", folder);
	snprintf(first.folder, sizeof first.folder, "%s/first", folder);
	snprintf(others[0].folder, sizeof others[0].folder, "%s/none", folder);
	snprintf(others[1].folder, sizeof others[1].folder, "%s/whole", folder);
	snprintf(made, sizeof made, "%s/other.1", first.folder);
	assert_int_equal(neap_make_folder(link ? outside : made, 0700, NULL), NEAP_OK);
	assert_int_equal(neap_make_folder(first.folder, 0700, NULL), NEAP_OK);
	assert_int_equal(link ? symlink(outside, made) : 0, 0);
	write_file(made, findings, "{}");
	write_file(first.folder, "result.json", "{}");
	assert_int_equal(neap_view_facts_write(made, &facts, NULL), NEAP_OK);
	neap_estimate_job_take_others(&first);
	assert_int_equal(access(made, F_OK), -1);
	assert_true(!link || count_files(outside) == 2); /* its own, and view.json */
}

static void runs_that_the_first_one_forked_are_taken(void **state)
{
	struct neap_estimate_job others[2] = {0};
	(void)state;
	take_others(false, "estimate.7.json", false, others);
	assert_false(others[0].over);
	assert_true(others[1].over);
	assert_int_equal(count_files(others[1].folder), 3); /* its own, result.json and view.json */
}

static void none_is_taken_whose_view_was_full(void **state)
{
	struct neap_estimate_job others[2] = {0};
	(void)state;
	take_others(true, "estimate.7.json", false, others);
	assert_false(others[1].over);
}

/* Its process was never continued, or was killed while it wrote. */
static void none_is_taken_without_findings(void **state)
{
	struct neap_estimate_job others[2] = {0};
	(void)state;
	take_others(false, "estimate.7.json.part", false, others);
	assert_false(others[1].over);
}

/* A link that the program made leads out of its view. */
static void none_is_taken_through_a_link(void **state)
{
	struct neap_estimate_job others[2] = {0};
	(void)state;
	take_others(false, "estimate.7.json", true, others);
	assert_false(others[1].over);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_first_runs_go_side_by_side, begin, end),
		cmocka_unit_test_setup_teardown(a_run_that_was_put_off_starts_again, begin, end),
		cmocka_unit_test_setup_teardown(runs_that_the_first_one_forked_are_taken, begin, end),
		cmocka_unit_test_setup_teardown(none_is_taken_whose_view_was_full, begin, end),
		cmocka_unit_test_setup_teardown(none_is_taken_without_findings, begin, end),
		cmocka_unit_test_setup_teardown(none_is_taken_through_a_link, begin, end),
	};
	if (argc > 1 && strcmp(argv[1], "run") == 0)
		return stand_in(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
