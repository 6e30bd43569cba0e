/* Why a process is not attached: the table, and a real process. */
#include "run/outsider.h"

#include "support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH "/x/python/launch:/y"

static void test_table(void **state)
{
	(void)state;
	static const struct {
		const char *words[8], *attach, *python_path, *why, *no_runtime;
	} rows[] = {
		{{"train"}, NULL, PATH, "emptied"},
		{{"python3", "a.py"}, NULL, NULL, "emptied"},
		{{"train"}, "0", PATH, "NEAP_ATTACH=0"},
		{{"train"}, "1", PATH, "does not use libneap"},
		{{"pythonic"}, "1", PATH, "does not use libneap"},
		{{NULL}, "1", PATH, "does not use libneap"},
		{{"/usr/bin/python3.11", "-I", "a.py"}, "1", PATH, "python -I"},
		{{"python", "-uE", "a.py"}, "1", PATH, "python -E"},
		{{"python3.13t", "-W", "-I", "-S", "a.py"}, "1", PATH, "python -S"},
		{{"python3", "-Werror", "-X", "-I", "a.py"}, "1", PATH, "when it uses PyTorch"},
		{{"python3", "a.py", "-I"}, "1", PATH, "when it uses PyTorch"},
		{{"python3", "-m", "a", "-I"}, "1", PATH, "when it uses PyTorch"},
		{{"python3", "-c", "-I"}, "1", PATH, "when it uses PyTorch"},
		{{"python3", "-", "-I"}, "1", PATH, "when it uses PyTorch"},
		{{"python3", "-X"}, "1", PATH, "when it uses PyTorch"},
		{{"python3", "a.py"}, "1", NULL, "sudo -E neap run"},
		{{"python3", "a.py"}, "1", "/y", "PYTHONPATH=.:$PYTHONPATH"},
		{{"python3", "a.py"}, "1", "/home/u/launcher/src:/neap/launchpad", "PYTHONPATH=.:$PYTHONPATH"},
		{{"python3", "a.py"}, "1", "/venv/lib/python3.11/site-packages/neap/launch", "when it uses PyTorch"},
		{{"train"}, "1", PATH, "no folder", "no folder"},
		{{"python3", "a.py"}, "1", PATH, "no folder", "no folder"},
		{{"train"}, "0", PATH, "NEAP_ATTACH=0", "no folder"},
		{{"train"}, NULL, PATH, "emptied", "no folder"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *why = neap_outsider_why(&(struct neap_outsider){rows[i].words, rows[i].attach,
									    rows[i].python_path, rows[i].no_runtime});
		if (!strstr(why, rows[i].why))
			fail_msg("row %zu: %s, not %s", i, why, rows[i].why);
	}
}

static void test_a_real_one(void **state)
{
	char text[200], small[16];
	int ready[2];
	(void)state;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		char *const words[] = {"python9 \n", "-c", "echo; exec sleep 100", NULL};
		dup2(ready[1], 1);
		setenv("NEAP_ATTACH", "1", 1);
		execv("/bin/sh", words);
		_exit(127);
	}
	assert_int_equal(read(ready[0], text, 1), 1); /* it has called exec */
	assert_true(neap_outsider_describe(pid, NULL, text, sizeof text));
	assert_non_null(strstr(text, "): "));
	assert_non_null(strstr(text, "does not use libneap"));
	assert_true(neap_outsider_describe(pid, NULL, small, sizeof small));
	assert_int_equal(strlen(small), sizeof small - 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_false(neap_outsider_describe(pid, NULL, text, sizeof text));
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_a_real_one),
	};
	return cmocka_run_group_tests_name("outsider", tests, NULL, NULL);
}
