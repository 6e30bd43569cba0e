/* Does a run fit on a GPU? The judge on small made-up runs: what contexts, workspaces and other processes leave of a
 * GPU, to the page. */
#include "judge_test.h"

#include <string.h>

/* The second block is not part of the first one's segment, which has to be released. */
static const char flushing[] = "a 1 20971520 0\nf 1\na 2 31457280 0\n";

static void a_page_decides(void **state)
{
	(void)state;
	const int64_t page = (int64_t)PAGE, code = (int64_t)CODE;
	struct world *world = make(plain);
	uint64_t low = BARE + REQUESTED, high = low + CODE;
	expect(world, high + PAGE, YES, page);
	expect(world, high, YES, 0);
	assert_int_equal(world->verdict.needed_bytes, REQUESTED);
	assert_int_equal(world->verdict.settings.count, 0);
	expect(world, high - 1, MAYBE, NEAP_ESTIMATE_CONTEXT, -1);
	expect(world, high - PAGE, MAYBE, NEAP_ESTIMATE_CONTEXT, -page);
	expect(world, low, MAYBE, NEAP_ESTIMATE_CONTEXT, -code);
	expect(world, low - PAGE, NO, -code - page);
	drop(world);
}

/* If the GPU does not even have the memory for a context, what is missing of that counts as missing, too. */
static void less_than_a_context(void **state)
{
	(void)state;
	struct world *world = make(plain);
	expect(world, 0, NO, -(int64_t)(BARE + CODE + REQUESTED));
	assert_int_equal(world->verdict.settings.count, 0);
	drop(world);
}

static void a_workspace_decides(void **state)
{
	(void)state;
	const int64_t page = (int64_t)PAGE, most = 8 * (int64_t)MIB;
	struct world *world = make(plain);
	uint64_t high = BARE + CODE + REQUESTED;
	add_gap(world, "cudnn", "cudnnConvolutionForward", 3, 2 * MIB, 6 * MIB);
	add_gap(world, "cublas", "cublasLtMatmul", 1, MIB, 9 * MIB); /* the largest, more than it takes here */
	assert_int_equal(neap_estimate_workspace(&world->run), most);
	expect(world, high + 8 * MIB, YES, 0);
	expect(world, high + 8 * MIB - PAGE, MAYBE, NEAP_ESTIMATE_WORKSPACE, -page);
	expect(world, high, MAYBE, NEAP_ESTIMATE_WORKSPACE, -most);
	expect(world, high - PAGE, MAYBE, NEAP_ESTIMATE_CONTEXT, -most - page);
	expect(world, BARE + REQUESTED - PAGE, NO, -most - page - (int64_t)CODE);
	drop(world);
}

/* A convolution's workspace of any size is not part of the sums. A program that fits without it is in doubt. */
static void a_workspace_without_a_bound(void **state)
{
	(void)state;
	struct world *world = make(plain);
	uint64_t high = BARE + CODE + 4 * MIB + REQUESTED;
	add_gap(world, "cudnn", "cudnnBackendExecute(attention)", 1, 0, 4 * MIB);
	assert_false(neap_estimate_is_unbounded(&world->run));
	add_gap(world, "cudnn", "cudnnBackendExecute(convolution)", 9, MIB, NEAP_SIMULATED_UNBOUNDED);
	assert_true(neap_estimate_is_unbounded(&world->run));
	assert_int_equal(neap_estimate_workspace(&world->run), 4 * MIB);
	expect(world, 80 * GIB, MAYBE, NEAP_ESTIMATE_UNBOUNDED, (int64_t)(80 * GIB - high));
	assert_int_equal(world->verdict.settings.count, 0);
	expect(world, high, MAYBE, NEAP_ESTIMATE_UNBOUNDED, 0);
	expect(world, high - PAGE, MAYBE, NEAP_ESTIMATE_WORKSPACE, -(int64_t)PAGE);
	judge(world, BARE + REQUESTED - PAGE);
	assert_int_equal(world->verdict.fits, NEAP_ESTIMATE_NO);
	drop(world);
}

static uint64_t pools(const struct neap_estimate_context *context)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < context->part_count; i++)
		bytes += context->parts[i].source == NEAP_ESTIMATE_DOCUMENTED ? context->parts[i].high_bytes : 0;
	return bytes;
}

/* Memory that a library allocates itself is part of the context, once for each call of one process. */
static void pools_are_beside(void **state)
{
	(void)state;
	struct neap_estimate_context context;
	struct world *world = make(plain);
	add_gap(world, "cuBLAS", "cublasCreate_v2", 2, 0, 8 * MIB);
	add_gap(world, "NCCL", "ncclCommInitRank", 1, 0, 40 * MIB);
	world->run.gaps.gaps[world->run.gaps.gap_count++] =
		(struct neap_simulated_gap){.kind = NEAP_GAP_REFUSED, .calls = 9, .high_bytes = 99 * MIB};
	assert_int_equal(neap_estimate_workspace(&world->run), 0);
	expect(world, BARE + CODE + 56 * MIB + REQUESTED, YES, 0);
	assert_int_equal(pools(&world->verdict.context), 56 * MIB);
	expect(world, BARE + CODE + 56 * MIB + REQUESTED - PAGE, MAYBE, NEAP_ESTIMATE_CONTEXT, -(int64_t)PAGE);

	world->run.process_count = 2; /* three calls of two processes: up to two of one */
	world->run.gaps.gaps[0].calls = 3;
	context = neap_estimate_context(&world->plan, 0, &world->run);
	assert_int_equal(pools(&context), 56 * MIB);
	world->run.gaps.gaps[0].calls = 5;
	context = neap_estimate_context(&world->plan, 0, &world->run);
	assert_int_equal(pools(&context), 64 * MIB);
	drop(world);
}

static const struct neap_estimate_part *part(const struct neap_estimate_context *context, const char *name)
{
	for (size_t i = 0; i < context->part_count; i++)
		if (strcmp(context->parts[i].name, name) == 0)
			return &context->parts[i];
	return NULL;
}

/* If the process's own code is known, it replaces the assumption for all code. */
static void known_code_is_counted(void **state)
{
	(void)state;
	struct world *world = make(plain);
	struct neap_estimate_context context;
	uint64_t stacks = (uint64_t)1536 * 10 * (2048 - 1024); /* of 10 multiprocessors of sm_86 */
	char text[256];
	profile.multiprocessors = 10;
	world->run.code = (struct neap_code){.known = true,
					     .kernels = 3,
					     .modules = 1,
					     .low_bytes = 5 * MIB,
					     .high_bytes = 9 * MIB,
					     .stack_bytes = 1024};
	context = neap_estimate_context(&world->plan, 0, &world->run);
	assert_int_equal(context.low_bytes, BARE + 5 * MIB);
	assert_int_equal(context.high_bytes, BARE + VERSIONS + 9 * MIB);
	assert_int_equal(context.part_count, 3);
	neap_estimate_part_text(&world->plan, 0, &world->run, part(&context, "code"), text, sizeof text);
	assert_string_equal(text, "computed: 3 kernels, or all of the 1 module that they are in, of ");

	world->run.code.stack_bytes = 1600;
	world->run.code.own_bytes = 7 * MIB;
	strcpy(world->run.code.beside, "cudnn");
	context = neap_estimate_context(&world->plan, 0, &world->run);
	assert_int_equal(part(&context, "stack")->high_bytes, stacks);
	assert_int_equal(part(&context, "library code")->high_bytes, LIBRARIES);
	assert_int_equal(part(&context, "library code")->source, NEAP_ESTIMATE_ASSUMED);
	assert_int_equal(context.low_bytes, BARE + 5 * MIB);
	assert_int_equal(context.high_bytes, BARE + VERSIONS + 16 * MIB + stacks + LIBRARIES);

	world->run.code.cublas = true; /* the code of CUDA 13 is known, for sm_86 */
	context = neap_estimate_context(&world->plan, 0, &world->run);
	assert_int_equal(part(&context, "cuBLAS code")->high_bytes, 384 * MIB);
	assert_int_equal(part(&context, "cuBLAS code")->source, NEAP_ESTIMATE_ASSUMED);
	strcpy(world->run.cuda, "13.2");
	context = neap_estimate_context(&world->plan, 0, &world->run);
	assert_int_equal(part(&context, "cuBLAS code")->high_bytes, 138 * MIB);
	assert_int_equal(part(&context, "cuBLAS code")->source, NEAP_ESTIMATE_COMPUTED);
	world->run.code.cublas = false;

	profile.context_seen_mib = BARE / MIB + 50;
	profile.context_seen = "by others";
	context = neap_estimate_context(&world->plan, 0, &world->run);
	assert_int_equal(part(&context, "driver")->low_bytes, BARE);
	assert_int_equal(part(&context, "driver")->high_bytes, BARE + 50 * MIB);
	assert_int_equal(context.high_bytes, BARE + VERSIONS + 16 * MIB + stacks + LIBRARIES); /* as before */
	neap_estimate_part_text(&world->plan, 0, &world->run, part(&context, "driver"), text, sizeof text);
	assert_string_equal(text, "published: the driver's context on this GPU (profile made; by others)");
	profile.context_seen_mib = BARE / MIB - 30;
	context = neap_estimate_context(&world->plan, 0, &world->run);
	assert_int_equal(part(&context, "driver")->low_bytes, BARE - 30 * MIB);
	assert_int_equal(context.high_bytes, BARE + VERSIONS + 16 * MIB + stacks + LIBRARIES);
	profile.context_seen_mib = 0;
	profile.context_seen = NULL;

	world->run.code.unread = 1; /* the code of one kernel is unknown: the assumption for all code */
	context = neap_estimate_context(&world->plan, 0, &world->run);
	assert_int_equal(part(&context, "library code")->high_bytes, CODE);
	profile.multiprocessors = 0;
	drop(world);
}

/* The fourth block fits into the second segment and into the rest of the first. Only in the second it leaves room for
 * the fifth block in the first. */
static const char tied[] = "a 1 62914560 0\na 2 41943040 0\nf 1\na 3 20971520 0\nf 2\na 4 41943040 0\nf 3\n"
			   "a 5 62914560 0\n";

/* Up to 2.11 PyTorch takes the lower of the two: reserved is an interval, and "yes" holds in every order. */
static void addresses_decide(void **state)
{
	(void)state;
	const int64_t page = (int64_t)PAGE, less = 20 * (int64_t)MIB;
	const uint64_t most = BARE + CODE + 120 * MIB; /* the second segment can be given back */
	struct world *world = make(tied);
	world->run.reserved_peak = 160 * MIB;
	strcpy(world->run.torch, "2.12.0");
	assert_int_equal(neap_estimate_find_orders(&world->run, NULL), NEAP_OK);
	assert_int_equal(world->run.reserved_low, 160 * MIB);
	strcpy(world->run.torch, "2.11.0+cu130");
	assert_int_equal(neap_estimate_find_orders(&world->run, NULL), NEAP_OK);
	assert_int_equal(world->run.reserved_low, 100 * MIB);
	assert_int_equal(world->run.reserved_high, 160 * MIB);
	expect(world, most, YES, 0);
	expect(world, most - PAGE, MAYBE, NEAP_ESTIMATE_ADDRESSES, -page);
	expect(world, most - 20 * MIB - PAGE, MAYBE, NEAP_ESTIMATE_CONTEXT, -less - page);
	expect(world, BARE + 100 * MIB - PAGE, NO, -less - page - (int64_t)CODE);
	drop(world);
}

/* Each rank on the GPU has a context, a workspace and what it reserves; a rank on another GPU does not count. */
static void ranks_share_a_gpu(void **state)
{
	(void)state;
	struct world *world = make(plain);
	struct neap_estimate_process *others = world->run.processes + 1;
	uint64_t low, high, alone = BARE + CODE + 4 * MIB;
	world->run.process_count = 4;
	world->run.reserved_low = world->run.reserved_high = REQUESTED;
	others[0] = (struct neap_estimate_process){.reserved_peak = 16 * MIB, .device_uuid = "GPU-0"};
	others[1] = (struct neap_estimate_process){.reserved_peak = 18 * MIB, .device_uuid = "GPU-1"};
	others[2] = (struct neap_estimate_process){.reserved_peak = 6 * MIB, .device_uuid = "GPU-0"};
	add_gap(world, "cudnn", "cudnnConvolutionForward", 1, 0, 4 * MIB);
	uint64_t all = 3 * alone + 22 * MIB + REQUESTED;
	expect(world, all, YES, 0);
	expect(world, all - PAGE, MAYBE, NEAP_ESTIMATE_WORKSPACE, -(int64_t)PAGE);
	expect(world, all - 12 * MIB - PAGE, MAYBE, NEAP_ESTIMATE_CONTEXT, -12 * (int64_t)MIB - (int64_t)PAGE);
	expect(world, 3 * BARE + 22 * MIB + REQUESTED, MAYBE, NEAP_ESTIMATE_CONTEXT,
	       -3 * (int64_t)CODE - 12 * (int64_t)MIB);
	judge(world, 3 * BARE + 22 * MIB + REQUESTED - PAGE);
	assert_int_equal(world->verdict.fits, NEAP_ESTIMATE_NO);
	neap_estimate_device(&world->run, &world->verdict.context, &low, &high);
	assert_int_equal(low, 3 * BARE + 22 * MIB + REQUESTED);
	assert_int_equal(high, all);

	world->run.processes[0].device_uuid[0] = '\0'; /* unknown: no rank shares it */
	expect(world, alone + REQUESTED, YES, 0);
	drop(world);
}

static void kernels_for_the_architecture(void **state)
{
	static const struct {
		const char *has;
		bool unsupported;
	} cases[] = {{"", false},
		     {"sm_80 sm_90 ", false},
		     {"sm_86 ", false},
		     {"sm_75 sm_90 ", true},
		     {"sm_89 ", true}, /* later than it, of the same generation */
		     {"sm_50 sm_60 sm_120 ", true}};
	(void)state;
	struct world *world = make(plain);
	for (size_t i = 0; i < COUNT(cases); i++) {
		snprintf(world->run.architectures, sizeof world->run.architectures, "%s", cases[i].has);
		judge(world, GIB);
		if (world->verdict.unsupported != cases[i].unsupported)
			fail_msg("PyTorch with kernels for '%s'", cases[i].has);
		assert_int_equal(world->verdict.fits, NEAP_ESTIMATE_YES); /* as far as memory goes */
	}
	drop(world);
}

static void emptied_caches_are_counted(void **state)
{
	(void)state;
	struct world *world = make(flushing);
	expect(world, BARE + CODE + 50 * MIB, YES, 20 * (int64_t)MIB);
	assert_int_equal(world->verdict.retries, 0);
	expect(world, BARE + CODE + 30 * MIB, YES, 0);
	assert_int_equal(world->verdict.retries, 1);
	drop(world);
}

/* If the time limit comes before the second update (or forward pass), "yes" becomes open, and "no" stays. */
static void a_run_that_was_cut_short(void **state)
{
	static const struct {
		enum neap_outcome outcome;
		uint64_t steps, forwards;
		bool cut_short;
	} cases[] = {{NEAP_OUTCOME_TIMEOUT, 0, 0, true},  {NEAP_OUTCOME_TIMEOUT, 1, 0, true},
		     {NEAP_OUTCOME_TIMEOUT, 2, 0, false}, {NEAP_OUTCOME_TIMEOUT, 0, 1, true},
		     {NEAP_OUTCOME_TIMEOUT, 0, 2, false}, {NEAP_OUTCOME_STOPPED, 1, 0, false},
		     {NEAP_OUTCOME_OK, 0, 0, false}};
	(void)state;
	struct world *world = make(plain);
	uint64_t high = BARE + CODE + REQUESTED;
	for (size_t i = 0; i < COUNT(cases); i++) {
		bool cut_short = cases[i].cut_short;
		world->run.result.outcome = cases[i].outcome;
		world->run.processes[0].steps = cases[i].steps;
		world->run.processes[0].forwards = cases[i].forwards;
		assert_int_equal(neap_estimate_is_cut_short(&world->run), cut_short);
		expect(world, high, cut_short ? MAYBE : NEAP_ESTIMATE_YES,
		       cut_short ? NEAP_ESTIMATE_CUT_SHORT : NEAP_ESTIMATE_SURE, 0);
		expect(world, high - PAGE, MAYBE, NEAP_ESTIMATE_CONTEXT, -(int64_t)PAGE);
		assert_int_equal(world->verdict.settings.count > 0, !cut_short); /* fixes are open too */
		expect(world, BARE, NO, -(int64_t)(CODE + REQUESTED));
	}
	drop(world);
}

/* While each update takes more than the earlier ones, "yes" becomes open, but "no" does not. */
static void a_run_that_still_grows(void **state)
{
	static const struct {
		enum neap_outcome outcome;
		uint64_t steps, grew_at;
		bool growing;
	} cases[] = {{NEAP_OUTCOME_STOPPED, 50, 50, true},  {NEAP_OUTCOME_STOPPED, 50, 48, true},
		     {NEAP_OUTCOME_STOPPED, 50, 47, false}, {NEAP_OUTCOME_STOPPED, 9, 8, false},
		     {NEAP_OUTCOME_TIMEOUT, 9, 7, true},    {NEAP_OUTCOME_STOPPED, 3, 3, true},
		     {NEAP_OUTCOME_STOPPED, 2, 2, false},   {NEAP_OUTCOME_TIMEOUT, 9, 9, true},
		     {NEAP_OUTCOME_OK, 50, 50, false}};
	(void)state;
	struct world *world = make(plain);
	uint64_t high = BARE + CODE + REQUESTED;
	for (size_t i = 0; i < COUNT(cases); i++) {
		bool growing = cases[i].growing;
		world->run.result.outcome = cases[i].outcome;
		world->run.processes[0].steps = cases[i].steps;
		world->run.processes[0].grew_at = cases[i].grew_at;
		expect(world, high, growing ? MAYBE : NEAP_ESTIMATE_YES,
		       growing ? NEAP_ESTIMATE_GROWING : NEAP_ESTIMATE_SURE, 0);
		expect(world, high - PAGE, MAYBE, NEAP_ESTIMATE_CONTEXT, -(int64_t)PAGE);
		assert_true(world->verdict.settings.count > 0);
		expect(world, BARE, NO, -(int64_t)(CODE + REQUESTED));
	}
	drop(world);
}

/* A run's files may contain anything: the judge never takes that for less than nothing. */
static void figures_beyond_all_memory(void **state)
{
	(void)state;
	static const uint64_t huge[] = {UINT64_MAX - 1, UINT64_MAX - GIB, UINT64_MAX / 2 + 1, 1ull << 60};
	for (size_t i = 0; i < COUNT(huge); i++) {
		struct world *workspace = make(plain), *pool = make(plain), *shared = make(plain);
		add_gap(workspace, "cudnn", "cudnnConvolutionForward", 1, 0, huge[i]);
		assert_int_equal(judge(workspace, 80 * GIB)->doubt, NEAP_ESTIMATE_WORKSPACE);
		add_gap(pool, "NCCL", "ncclCommInitRank", 16, 0, huge[i]);
		assert_int_equal(judge(pool, 80 * GIB)->doubt, NEAP_ESTIMATE_CONTEXT);
		shared->run.process_count = NEAP_ESTIMATE_PROCESSES;
		for (size_t at = 1; at < NEAP_ESTIMATE_PROCESSES; at++)
			shared->run.processes[at] =
				(struct neap_estimate_process){.reserved_peak = huge[i], .device_uuid = "GPU-0"};
		assert_int_equal(judge(shared, 80 * GIB)->fits, NEAP_ESTIMATE_NO);
		assert_true(workspace->verdict.headroom_bytes < 0 && pool->verdict.headroom_bytes < 0 &&
			    shared->verdict.headroom_bytes < 0);
		drop(workspace);
		drop(pool);
		drop(shared);
	}
}

static bool refuse(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	(void)done;
	(void)total;
	return false;
}

static void can_be_stopped(void **state)
{
	(void)state;
	struct world *world = make(plain);
	struct neap_error err = {0};
	world->plan.gpus[0].total_bytes = GIB;
	world->verdict.retries = 77;
	assert_int_equal(neap_estimate_judge(&world->plan, 0, &world->run, refuse, NULL, &world->verdict, &err),
			 NEAP_ECANCELED);
	assert_int_equal(world->verdict.retries, 77);
	drop(world);
}

static void a_run_takes_the_callers_bound_on_values(void **state)
{
	(void)state;
	struct neap_estimate_plan plan = {0};
	struct neap_error err = {0};
	char spec[256];
	assert_int_equal(neap_estimate_plan("h100-80gb", 0, NULL, &plan, &err), NEAP_OK);
	assert_int_equal(neap_estimate_bound_values(&plan, "mem=six", &err), NEAP_OK); /* left for others to refuse */
	neap_estimate_spec(&plan, 0, 0, "w", spec, sizeof spec);
	assert_null(strstr(spec, "values_memory"));
	assert_int_equal(neap_estimate_bound_values(&plan, "mem=6GiB,values_memory=lots", &err), NEAP_EPARSE);
	assert_int_equal(neap_estimate_bound_values(&plan, "mem=6GiB,values_memory=1KiB", &err), NEAP_OK);
	neap_estimate_spec(&plan, 0, 0, "w", spec, sizeof spec);
	assert_non_null(strstr(spec, ",values=auto,world=w,values_memory=1024"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_decides),
		cmocka_unit_test(less_than_a_context),
		cmocka_unit_test(a_workspace_decides),
		cmocka_unit_test(a_workspace_without_a_bound),
		cmocka_unit_test(pools_are_beside),
		cmocka_unit_test(known_code_is_counted),
		cmocka_unit_test(addresses_decide),
		cmocka_unit_test(ranks_share_a_gpu),
		cmocka_unit_test(kernels_for_the_architecture),
		cmocka_unit_test(emptied_caches_are_counted),
		cmocka_unit_test(a_run_that_was_cut_short),
		cmocka_unit_test(a_run_that_still_grows),
		cmocka_unit_test(figures_beyond_all_memory),
		cmocka_unit_test(can_be_stopped),
		cmocka_unit_test(a_run_takes_the_callers_bound_on_values),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
