/* What `neap info` prints for people, from made-up samples: a GPU's use, users, run times, names that do not fit. */
#include "cli/info_report.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#define S 1000000000ull

static struct neap_sample_process processes[2][3];
static struct neap_sample_device devices[2];
static struct neap_sample sample;

static struct neap_sample_process process(pid_t pid, const char *user, uint64_t run_ns, const char *command,
					  uint64_t bytes)
{
	struct neap_sample_process made = {.account = {.pid = pid, .bytes = bytes}, .who = {.run_ns = run_ns}};
	strcpy(made.who.user, user);
	strcpy(made.who.command, command);
	return made;
}

static int make(void **state)
{
	(void)state;
	memset(devices, 0, sizeof devices);
	for (size_t i = 0; i < 2; i++) {
		strcpy(devices[i].reading.name, "Big GPU");
		strcpy(devices[i].reading.uuid_text, i ? "GPU-1" : "GPU-0");
		devices[i].reading.utilization_percent = i ? -1 : 37;
		devices[i].reading.processes_known = devices[i].reading.reserved_known = true;
		devices[i].ledger.total = 100 * MIB;
		devices[i].ledger.free = i ? 100 * MIB : 40 * MIB;
		devices[i].ledger.not_attached = i ? 0 : 60 * MIB;
		devices[i].processes = processes[i];
	}
	processes[0][0] = process(30, "alice", 3 * S, "python train.py --lr 0.1 --name first-of-two-runs", 10 * MIB);
	processes[0][1] = process(20, "bob", 90061 * S, "serve", 50 * MIB);
	processes[0][2] = process(10, "a-very-long-name", NEAP_WHO_UNKNOWN, "", NEAP_BYTES_UNKNOWN);
	devices[0].process_count = 3;
	sample = (struct neap_sample){.backend = NEAP_BACKEND_CUDA, .devices = devices, .device_count = 2};
	return 0;
}

static void expect(void (*print)(FILE *, const struct neap_sample *, const struct info_style *), size_t columns,
		   const char *expected)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	assert_non_null(out);
	print(out, &sample, &(struct info_style){.columns = columns});
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

static void test_account(void **state)
{
	(void)state;
	devices[1].left_out = true;
	expect(info_print_account, 0,
	       "GPU 0: Big GPU  GPU-0  37 % busy\n"
	       "  driver reserved         0 B\n"
	       "  contexts                0 B\n"
	       "  allocated               0 B\n"
	       "  cached                  0 B\n"
	       "  not attached       60.0 MiB\n"
	       "  free               40.0 MiB\n"
	       "  total               100 MiB\n"
	       "       PID  user               run time     in all    context  allocated     cached      other  "
	       "process\n"
	       "        30  alice                 00:03   10.0 MiB not attached                               "
	       "  python train.py --lr 0.1 --name first-of-two-runs\n"
	       "        20  bob              1-01:01:01   50.0 MiB not attached                                 "
	       "serve\n"
	       "        10  a-very-long-name          ?          ? not attached                                 "
	       "?\n");
}

static void test_cut(void **state)
{
	(void)state;
	char text[64];
	assert_string_equal(neap_who_cut("train", 5, text, sizeof text), "train");
	assert_string_equal(neap_who_cut("trains", 5, text, sizeof text), "tr...");
	assert_string_equal(neap_who_cut("trains", 0, text, sizeof text), "trains");
	assert_string_equal(neap_who_cut("tr\xc3\xa4gt \xc3\xbc"
					 "ber",
					 7, text, sizeof text),
			    "tr\xc3\xa4g...");
	assert_string_equal(neap_who_cut("twelve bytes", 0, text, 10), "twelve...");
	/* What is left of 130 columns is 34. */
	char *printed = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&printed, &length);
	info_print_account(out, &sample, &(struct info_style){.columns = 130});
	fclose(out);
	assert_non_null(strstr(printed, "  python train.py --lr 0.1 --name...\n"));
	free(printed);
}

static void test_oneline(void **state)
{
	(void)state;
	const char *whole =
		"0  Big GPU  60.0 MiB of 100 MiB used, 40.0 MiB free, 37 % busy  alice/python train.py(30) 10.0 MiB, "
		"bob/serve(20) 50.0 MiB, a-very-long-name/?(10) ?\n"
		"1  Big GPU  0 B of 100 MiB used, 100 MiB free\n";
	expect(info_print_oneline, 0, whole);
	expect(info_print_oneline, 40,
	       "0  Big GPU  60.0 MiB of 100 MiB used,...\n"
	       "1  Big GPU  0 B of 100 MiB used, 100 ...\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_account, make),
		cmocka_unit_test_setup(test_cut, make),
		cmocka_unit_test_setup(test_oneline, make),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
