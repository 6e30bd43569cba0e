/* The experiments of each array, the resources asked of Slurm, and the exact script. */
#include "slurm/plan.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_spec read_spec(const char *text)
{
	struct neap_spec spec = {0};
	struct neap_error err = {0};
	if (neap_spec_parse(text, strlen(text), &spec, &err))
		fail_msg("%s", err.message);
	return spec;
}

/* The plan for all but experiment `without`, each array's words on one line of `ret_text`. */
static void plan_text(const struct neap_spec *spec, uint32_t max_array, size_t without, struct neap_buffer *ret_text)
{
	struct neap_slurm_plan plan = {0};
	bool *wanted = calloc(spec->count, sizeof *wanted);
	assert_non_null(wanted);
	for (size_t i = 0; i < spec->count; i++)
		wanted[i] = i != without;
	assert_int_equal(neap_slurm_plan_make(spec, wanted, max_array, &plan, NULL), NEAP_OK);
	for (size_t i = 0; i < plan.count; i++) {
		struct neap_argv argv = {0};
		struct neap_error err = {0};
		if (neap_slurm_argv(spec, &plan.batches[i], "/s", (uint32_t)i + 1, i ? 41 : 0, false, &argv, &err))
			fail_msg("%s", err.message);
		char *line = neap_argv_join(&argv);
		assert_non_null(line);
		neap_buffer_format(ret_text, "%s\n", line);
		free(line);
		neap_argv_fini(&argv);
	}
	neap_slurm_plan_fini(&plan);
	free(wanted);
}

static void check(const char *yaml, uint32_t max_array, size_t without, const char *expected)
{
	struct neap_spec spec = read_spec(yaml);
	struct neap_buffer text = {0};
	plan_text(&spec, max_array, without, &text);
	assert_string_equal(neap_buffer_string(&text), expected);
	neap_buffer_fini(&text);
	neap_spec_fini(&spec);
}

#define WORDS "sbatch --parsable --open-mode=append --job-name=n "
#define GRID  "name: n\nexperiments:\n- {name: e, command: x, grid: {i: [1, 2, 3, 4, 5, 6, 7]}}\n"
#define NONE  ((size_t)-1)

static void test_arrays(void **state)
{
	(void)state;
	check(GRID, 1001, NONE, WORDS "--array=1-7 --output=/s/slurm/%A-%a.out --gres=gpu:1 /s/slurm/1.sh\n");
	check(GRID, 1001, 2, WORDS "--array=1-6 --output=/s/slurm/%A-%a.out --gres=gpu:1 /s/slurm/1.sh\n");
	check("parallel: 3\n" GRID, 1001, 5,
	      WORDS "--array=1-6%3 --output=/s/slurm/%A-%a.out --gres=gpu:1 /s/slurm/1.sh\n");
	/* more than an array may have; with a limit, each array waits for the one before */
	check(GRID, 5, NONE,
	      WORDS "--array=1-4 --output=/s/slurm/%A-%a.out --gres=gpu:1 /s/slurm/1.sh\n" WORDS
		    "--array=1-3 --output=/s/slurm/%A-%a.out --gres=gpu:1 --dependency=afterany:41 /s/slurm/2.sh\n");
	/* sorted by kind: no array has a gap */
	check("name: n\nexperiments:\n- {name: a, command: x, needs: none, grid: {i: [1, 2, 3]}}\n"
	      "- {name: b, command: x, grid: {i: [1, 2, 3]}}\n",
	      3, 4,
	      WORDS "--array=1-2 --output=/s/slurm/%A-%a.out --gres=gpu:1 /s/slurm/1.sh\n" WORDS
		    "--array=1-2 --output=/s/slurm/%A-%a.out --dependency=afterany:41 /s/slurm/2.sh\n" WORDS
		    "--array=1 --output=/s/slurm/%A-%a.out --dependency=afterany:41 /s/slurm/3.sh\n");
	check(GRID, 2, 0,
	      WORDS
	      "--array=1 --output=/s/slurm/%A-%a.out --gres=gpu:1 /s/slurm/1.sh\n" WORDS
	      "--array=1 --output=/s/slurm/%A-%a.out --gres=gpu:1 --dependency=afterany:41 /s/slurm/2.sh\n" WORDS
	      "--array=1 --output=/s/slurm/%A-%a.out --gres=gpu:1 --dependency=afterany:41 /s/slurm/3.sh\n" WORDS
	      "--array=1 --output=/s/slurm/%A-%a.out --gres=gpu:1 --dependency=afterany:41 /s/slurm/4.sh\n" WORDS
	      "--array=1 --output=/s/slurm/%A-%a.out --gres=gpu:1 --dependency=afterany:41 /s/slurm/5.sh\n" WORDS
	      "--array=1 --output=/s/slurm/%A-%a.out --gres=gpu:1 --dependency=afterany:41 /s/slurm/6.sh\n");
}

static void test_resources(void **state)
{
	(void)state;
#define TWO(slurm, first, second)                                                                                    \
	"name: n\n" slurm "experiments:\n- {name: a, command: x" first "}\n- {name: b, command: x" second "}\n"
#define HEAD WORDS "--array=1-2 --output=/s/slurm/%A-%a.out "
	check(TWO("", ", needs: none", ""), 1001, NONE,
	      WORDS "--array=1 --output=/s/slurm/%A-%a.out --gres=gpu:1 /s/slurm/1.sh\n" WORDS
		    "--array=1 --output=/s/slurm/%A-%a.out --dependency=afterany:41 /s/slurm/2.sh\n");
	check(TWO("slurm: {gres: none}\n", ", needs: none", ", needs: 1GiB"), 1001, NONE, HEAD "/s/slurm/1.sh\n");
	check(TWO("slurm: {gres: 'gpu:a100:2'}\n", ", needs: 1GiB", ""), 1001, NONE,
	      HEAD "--gres=gpu:a100:2 /s/slurm/1.sh\n");
	/* 10 minutes for memory, 2 hours, 10 s grace, 60 s drain; twice the time with a ladder */
	check(TWO("", ", time_limit: 1h", ", time_limit: 2h"), 1001, NONE,
	      HEAD "--gres=gpu:1 --time=132 /s/slurm/1.sh\n");
	check(TWO("", ", time_limit: 1h, on_oom: halve a, params: {a: 2}", ", time_limit: 90m"), 1001, NONE,
	      HEAD "--gres=gpu:1 --time=132 /s/slurm/1.sh\n");
	check(TWO("", ", time_limit: 30s, wait_limit: 0s, drain_limit: 0s, grace: 1s",
		  ", time_limit: 1s, wait_limit: 0s"),
	      1001, NONE, HEAD "--gres=gpu:1 --time=2 /s/slurm/1.sh\n");
	/* one experiment without a limit: the partition's limit applies */
	check(TWO("", ", time_limit: 1h", ""), 1001, NONE, HEAD "--gres=gpu:1 /s/slurm/1.sh\n");
	check(TWO("", ", max_host: 1GiB", ", max_host: 2GiB"), 1001, NONE,
	      HEAD "--gres=gpu:1 --mem=2113M /s/slurm/1.sh\n");
	check(TWO("", ", max_host: 1GiB", ""), 1001, NONE, HEAD "--gres=gpu:1 /s/slurm/1.sh\n");
	check(TWO("slurm: {partition: p, account: a, qos: q, time: 90s, mem: 1500K, cpus: 4, sbatch: [--nice=1, "
		  "'--comment=a b']}\n",
		  ", max_host: 1GiB", ", time_limit: 1h"),
	      1001, NONE,
	      HEAD "--gres=gpu:1 --cpus-per-task=4 --partition=p --account=a --qos=q --time=2 --mem=2M --nice=1 "
		   "'--comment=a b' /s/slurm/1.sh\n");
}

static void test_no_arrays(void **state)
{
	(void)state;
	struct neap_spec spec = read_spec(GRID);
	struct neap_slurm_plan plan = {0};
	struct neap_error err = {0};
	bool wanted[7] = {true};
	assert_int_equal(neap_slurm_plan_make(&spec, wanted, 1, &plan, &err), NEAP_ENOTSUP);
	assert_string_equal(err.message, "this cluster allows no job arrays (MaxArraySize is 1)");
	neap_spec_fini(&spec);
}

static void test_device(void **state)
{
	(void)state;
	struct neap_spec spec =
		read_spec("name: n\nexperiments:\n- {name: a, command: x}\n- {name: b, command: x, device: 0}\n");
	struct neap_error err = {0};
	assert_int_equal(neap_slurm_check(&spec, "f.yaml", &err), NEAP_EPARSE);
	assert_string_equal(err.message,
			    "f.yaml:4: experiment 'b': 'device' cannot be chosen with --slurm, Slurm gives "
			    "each task its own: remove it (slurm: {gres: ...} says which kind)");
	neap_spec_fini(&spec);
}

/* A folder's name is never a pattern of Slurm's or a word of a shell. */
static void test_script(void **state)
{
	(void)state;
	struct neap_spec spec = read_spec(GRID);
	struct neap_slurm_plan plan = {0};
	struct neap_argv argv = {0}, refused = {0};
	struct neap_buffer script = {0};
	struct neap_error err = {0};
	bool wanted[7] = {true, true};
	static const char folder[] = "/a folder/50%/$(x)'s";
	assert_int_equal(neap_slurm_plan_make(&spec, wanted, 1001, &plan, NULL), NEAP_OK);
	assert_int_equal(neap_slurm_argv(&spec, plan.batches, folder, 1, 0, true, &argv, NULL), NEAP_OK);
	assert_string_equal(argv.items[2], "--test-only");
	assert_string_equal(argv.items[6], "--output=/a folder/50%%/$(x)'s/slurm/%A-%a.out");
	neap_argv_fini(&argv);
	assert_int_equal(neap_slurm_argv(&spec, plan.batches, folder, 1, 0, false, &argv, NULL), NEAP_OK);
	assert_int_equal(neap_slurm_script(&spec, &argv, "/usr/bin/neap", folder, 1, &script, NULL), NEAP_OK);
	assert_string_equal(neap_buffer_string(&script),
			    "#!/bin/sh\n"
			    "# A task of the series n: one experiment under 'neap run'. Submitted with\n"
			    "#   sbatch --parsable --open-mode=append --job-name=n --array=1-2 "
			    "'--output=/a folder/50%%/$(x)'\\''s/slurm/%A-%a.out' --gres=gpu:1 '/a "
			    "folder/50%/$(x)'\\''s/slurm/1.sh'\n"
			    "exec /usr/bin/neap series '/a folder/50%/$(x)'\\''s/slurm/series.yaml' --folder "
			    "'/a folder/50%/$(x)'\\''s' --slurm-task 1\n");
	assert_int_equal(neap_slurm_argv(&spec, plan.batches, "/a\\b", 1, 0, false, &refused, &err), NEAP_EINVAL);
	assert_int_equal(neap_slurm_argv(&spec, plan.batches, "/a\nb", 1, 0, false, &refused, &err), NEAP_EINVAL);
	neap_argv_fini(&refused);
	neap_argv_fini(&argv);
	neap_buffer_fini(&script);
	neap_slurm_plan_fini(&plan);
	neap_spec_fini(&spec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_arrays), cmocka_unit_test(test_resources),
					   cmocka_unit_test(test_no_arrays), cmocka_unit_test(test_device),
					   cmocka_unit_test(test_script)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
