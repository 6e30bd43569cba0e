/* The stand-ins' report on a run: merged over processes, written as one line, whatever the files contain. */
#include "run/simulated.h"

#include "base/file.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void add(struct neap_simulated *simulated, const char *text)
{
	neap_simulated_add(simulated, text, strlen(text));
}

static void says(const struct neap_simulated *simulated, const char *expected)
{
	struct neap_buffer text = {0};
	neap_simulated_text(simulated, &text);
	assert_string_equal(neap_buffer_string(&text), expected);
	neap_buffer_fini(&text);
}

static void test_line(void **state)
{
	struct neap_simulated simulated = {0};
	(void)state;
	says(&simulated, "");
	add(&simulated, "");
	says(&simulated, "no kernel ran");
	add(&simulated, "values cuBLAS cublasSgemm_v2 1 0 0\n");
	says(&simulated, "no kernel ran; 1 result of library calls reads as zeros");
	add(&simulated, "transfer NCCL ncclReduce 2 0 0\nrefused cuBLAS cublasXt 1 0 0\n"
			"workspace cuDNN forward 3 1024 2048\nvalues cuBLAS cublasSgemm_v2 4 0 0\n");
	says(&simulated, "no kernel ran; workspaces not modelled: cuDNN forward (3 calls, 1.00 KiB to 2.00 KiB "
			 "each); refused: cuBLAS cublasXt (1 call); not moved between ranks: NCCL ncclReduce (2 "
			 "calls); 5 results of library calls read as zeros");
	assert_int_equal(simulated.processes, 3);

	simulated = (struct neap_simulated){0};
	add(&simulated, "workspace cuDNN forward 2 1024 2048\nworkspace cuDNN forward 1 2048 18446744073709551615\n");
	assert_true(simulated.gaps[0].high_bytes == NEAP_SIMULATED_UNBOUNDED);
	says(&simulated,
	     "no kernel ran; workspaces not modelled: cuDNN forward (3 calls, usually 1.00 KiB or more each, "
	     "no bound is known)");
}

static void test_merged_over_processes(void **state)
{
	struct neap_simulated simulated = {0};
	(void)state;
	add(&simulated, "workspace cuDNN b 3 1024 2048\nrefused x b 2 0 0\nrefused x c 2 0 0\n");
	add(&simulated,
	    "workspace cuDNN b 4 512 1048576\nworkspace cuDNN a 7 0 1\nrefused x e 9 0 0\nrefused x d 2 0 0\n");
	says(&simulated,
	     "no kernel ran; workspaces not modelled: cuDNN a (7 calls, 0 B to 1 B each), cuDNN b (7 "
	     "calls, 512 B to 1.00 MiB each); refused: x e (9 calls), x b (2 calls), x c (2 calls), 2 calls "
	     "of others");
}

static void test_hostile_lines(void **state)
{
	static const char *const lines[] = {
		"values\n",
		"values a b\n",
		"values a b 1 0\n",
		"values a b 1 0 0 0\n",
		"values a b 1 0 0", /* no newline: the writer may not have finished */
		"nothing a b 1 0 0\n",
		"values  b 1 0 0\n",
		"values a\tc b 1 0 0\n",
		"values a \x1b[31m 1 0 0\n",
		"values a \xc3\xa9 1 0 0\n",
		"values a b 0 0 0\n",
		"values a b -1 0 0\n",
		"values a b 1e9 0 0\n",
		"values a b 99999999999999999999 0 0\n",
		"workspace a b 1 2 1\n",
		"values 12345678901234567890123456789012 b 1 0 0\n",
		"\n\n\r\n",
	};
	struct neap_simulated simulated = {0};
	char text[600];
	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		add(&simulated, lines[i]);
	snprintf(text, sizeof text, "values a %0500d 1 0 0\n", 7);
	add(&simulated, text);
	neap_simulated_add(&simulated, "values a b\0 1 0 0\n", 18);
	says(&simulated, "no kernel ran");
	add(&simulated, "broken\nvalues a b 18446744073709551615 0 0\nvalues a b 18446744073709551615 0 0\n");
	says(&simulated, "no kernel ran; 18446744073709551615 results of library calls read as zeros");
}

static void test_more_than_are_told_apart(void **state)
{
	struct neap_simulated simulated = {0};
	char line[64];
	(void)state;
	for (int i = 0; i < 100; i++) {
		snprintf(line, sizeof line, "refused x f%03d 1 0 0\n", i);
		add(&simulated, line);
	}
	assert_int_equal(simulated.gap_count, NEAP_SIMULATED_GAPS);
	says(&simulated, "no kernel ran; refused: x f000 (1 call), x f001 (1 call), x f002 (1 call), 97 calls of "
			 "others");
}

static void test_a_folder(void **state)
{
	static const char tally[] = "refused x f 2 0 0\n";
	char folder[] = "/tmp/neap-test-simulated-XXXXXX", path[256];
	struct neap_simulated simulated = {0};
	struct neap_buffer large = {0};
	(void)state;
	assert_non_null(mkdtemp(folder));
	neap_simulated_read("/nowhere/at/all", &simulated);
	assert_false(neap_simulated_is_used(folder));
	static const char *const names[] = {"simulated.x", "simulated.", "simulated.12.tmp", "start-1.simulated.12"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		assert_int_equal(neap_file_write(path, tally, sizeof tally - 1, NULL), NEAP_OK);
	}
	assert_false(neap_simulated_is_used(folder));
	for (int i = 0; i < 5000; i++)
		neap_buffer_text(&large, tally); /* 90 kB: only 64 KiB are read */
	snprintf(path, sizeof path, "%s/simulated.7", folder);
	assert_int_equal(neap_file_write(path, large.data, large.length, NULL), NEAP_OK);
	snprintf(path, sizeof path, "%s/simulated.8", folder);
	assert_int_equal(mkfifo(path, 0600), 0); /* opening it must not wait for a writer */
	snprintf(path, sizeof path, "%s/simulated.9", folder);
	assert_int_equal(symlink("/proc/self/environ", path), 0);
	assert_true(neap_simulated_is_used(folder));
	neap_simulated_read(folder, &simulated);
	assert_int_equal(simulated.processes, 3);
	assert_int_equal(simulated.calls[NEAP_GAP_REFUSED], 2 * (65536 / (sizeof tally - 1)));
	neap_buffer_fini(&large);
	snprintf(path, sizeof path, "rm -r %s", folder);
	assert_int_equal(system(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line),          cmocka_unit_test(test_merged_over_processes),
		cmocka_unit_test(test_hostile_lines), cmocka_unit_test(test_more_than_are_told_apart),
		cmocka_unit_test(test_a_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
