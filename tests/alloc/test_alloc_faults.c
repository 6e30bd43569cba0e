/* Makes everything fail that can fail, one call at a time: the Nth driver call and the Nth host allocation of a
 * scenario, for N = 1, 2, ... until the scenario completes without a failure. After each one the invariants hold, the
 * status is correct, the scenario succeeds when repeated, and nothing of it is left on the device.
 *
 * Usage: test_alloc_faults [SPEC]
 */
#include "alloc/core/core.h"
#include "harness.h"
#include "support/host_fails.h"

static const char *spec = "mem=64MiB,reserved=0,context=8MiB";

struct scene {
	struct world world;
	void *one, *two;
	enum neap_status (*scenario)(struct scene *scene);
	bool plan, planned; /* a plan is wanted; a plan has served a request */
};

static enum neap_status keep(enum neap_status first, enum neap_status next) { return first ? first : next; }

static bool only(void *context, void *stream) { return stream == context; }

/* Takes every path once: growth in both classes, several pages, two streams, pending frees, a miss that brings memory
 * from one stream to the other, an OOM, a private pool, a release from the middle. Frees everything it got. */
static enum neap_status scenario(struct scene *scene)
{
	struct neap_alloc *alloc = scene->world.alloc;
	uint64_t at[8] = {0}, freed = 0, none = 0;
	enum neap_status status = NEAP_OK;
	status = keep(status, neap_malloc(alloc, 1000, scene->one, &at[0], NULL));
	status = keep(status, neap_malloc(alloc, 3 * MIB, scene->one, &at[1], NULL));
	status = keep(status, neap_malloc(alloc, 9 * MIB, scene->one, &at[2], NULL));
	status = keep(status, neap_malloc(alloc, 3 * MIB, scene->one, &at[3], NULL));
	if (at[1])
		status = keep(status, neap_record_stream(alloc, at[1], scene->two));
	neap_free(alloc, at[1]);
	neap_free(alloc, at[2]);
	status = keep(status, neap_malloc(alloc, 40 * MIB, scene->two, &at[4], NULL));
	enum neap_status oom = neap_malloc(alloc, 60 * MIB, scene->two, &none, NULL);
	assert_int_not_equal(oom, NEAP_OK);
	if (oom != NEAP_EOOM)
		status = keep(status, oom);
	neap_free(alloc, at[4]);
	status = keep(status, neap_empty_cache(alloc, &freed, NULL));
	enum neap_status began = neap_pool_begin(alloc, 0, 1, only, scene->two, NULL);
	status = keep(status, began);
	enum neap_status pooled = neap_malloc(alloc, 2 * MIB, scene->two, &at[5], NULL);
	/* While a pool is open the cache cannot be returned, so a request for more than is free runs out of memory
	 * here. */
	status = keep(status, pooled == NEAP_ESTATE ? NEAP_EOOM : pooled);
	if (!began) {
		neap_pool_end(alloc, 0, 1);
		neap_pool_release(alloc, 0, 1);
	}
	neap_free(alloc, at[5]);
	status = keep(status, neap_set_fraction(alloc, 0.25, NULL));
	status = keep(status, neap_malloc(alloc, 4 * MIB, scene->one, &at[6], NULL));
	status = keep(status, neap_set_fraction(alloc, 1, NULL));
	neap_free(alloc, at[0]);
	neap_free(alloc, at[3]);
	neap_free(alloc, at[6]);
	return keep(status, neap_empty_cache(alloc, &freed, NULL));
}

/* Two streams take turns with most of the device: pages move, then the streams share the arena, then a request is too
 * large.
 */
static enum neap_status turns(struct scene *scene)
{
	struct neap_alloc *alloc = scene->world.alloc;
	uint64_t kept[2] = {0}, large = 0, freed = 0, none = 0;
	void *streams[2] = {scene->one, scene->two};
	enum neap_status status = NEAP_OK;
	for (int i = 0; i < 2; i++)
		status = keep(status, neap_malloc(alloc, 700000, streams[i], &kept[i], NULL));
	for (int turn = 0; turn < 6; turn++) {
		large = 0;
		status = keep(status, neap_malloc(alloc, 40 * MIB, streams[turn % 2], &large, NULL));
		struct neap_sim_range range = {large, 40 * MIB, 1};
		struct neap_sim_kernel kernel = {
			.name = "turn", .duration_ns = 1000000, .ranges = &range, .range_count = 1};
		if (large) /* this may be the call that failed: then there is no work to wait for */
			scene->world.sim->launch(streams[turn % 2], &kernel);
		neap_free(alloc, large);
	}
	enum neap_status oom = neap_malloc(alloc, 60 * MIB, scene->two, &none, NULL);
	assert_int_not_equal(oom, NEAP_OK);
	if (oom != NEAP_EOOM)
		status = keep(status, oom);
	for (int i = 0; i < 2; i++)
		neap_free(alloc, kept[i]);
	return keep(status, neap_empty_cache(alloc, &freed, NULL));
}

/* The same, step by step, until a plan has laid out their memory. */
static enum neap_status steps(struct scene *scene)
{
	struct neap_alloc *alloc = scene->world.alloc;
	const size_t bytes[3] = {12 * MIB, 28 * MIB, 34 * MIB};
	enum neap_status status = NEAP_OK;
	uint64_t at[3], freed = 0;
	for (int step = 0; step < 8; step++) {
		for (int i = 0; i < 3; i++) {
			at[i] = 0;
			status = keep(status,
				      neap_malloc(alloc, bytes[i], i == 2 ? scene->two : scene->one, &at[i], NULL));
			if (i == 1) {
				neap_free(alloc, at[0]);
				neap_free(alloc, at[1]);
			}
		}
		scene->planned = scene->planned || alloc->region;
		neap_free(alloc, at[2]);
		neap_emit_step(alloc, (struct neap_event_step){0});
	}
	return keep(status, neap_empty_cache(alloc, &freed, NULL));
}

/* The device is full, with free ends of pages: views are made, kept, changed and dropped. Without virtual memory
 * there are no views. */
static enum neap_status ends(struct scene *scene)
{
	struct neap_alloc *alloc = scene->world.alloc;
	uint64_t at[18] = {0}, rest = 0, small = 0, wide = 0, freed = 0;
	void *streams[2] = {scene->two, scene->one};
	if (!neap_device_info(scene->world.device)->page_bytes)
		return NEAP_OK;
	/* After a fault pages may lie elsewhere: then the ends are not where this test needs them. */
	enum neap_status status = neap_empty_cache(alloc, &freed, NULL);
	for (int i = 0; i < 18; i++)
		status = keep(status, neap_malloc(alloc, 3 * MIB, scene->one, &at[i], NULL));
	status = keep(status, neap_malloc(alloc, 2 * MIB, scene->one, &rest, NULL));
	neap_free(alloc, at[1]);
	neap_free(alloc, at[4]);
	for (int turn = 0; turn < 4; turn++) {
		wide = 0;
		if (turn == 2) /* a page leaves the view */
			status = keep(status, neap_malloc(alloc, 700000, scene->two, &small, NULL));
		uint64_t bytes = turn < 2 ? 6 * MIB : 4 * MIB;
		status = keep(status, neap_malloc(alloc, bytes, streams[turn % 2], &wide, NULL));
		struct neap_sim_range range = {wide, bytes, 1};
		struct neap_sim_kernel kernel = {
			.name = "turn", .duration_ns = 1000000, .ranges = &range, .range_count = 1};
		if (wide) /* this may be the call that failed: then there is no work to wait for */
			scene->world.sim->launch(streams[turn % 2], &kernel);
		neap_free(alloc, wide);
	}
	at[1] = at[4] = 0;
	for (int i = 0; i < 18; i++)
		neap_free(alloc, at[i]);
	neap_free(alloc, rest);
	neap_free(alloc, small);
	return keep(status, neap_empty_cache(alloc, &freed, NULL));
}

static void scene_open(struct scene *scene)
{
	struct neap_alloc_options options = {.no_plan = !scene->plan};
	assert_int_equal(neap_alloc_create(scene->world.device, &options, &scene->world.alloc, NULL), NEAP_OK);
}

/* Without the fault everything works, and nothing was lost. */
static void scene_close(struct scene *scene, uint64_t free_before, long n)
{
	struct neap_error err = {0};
	uint64_t free_after = 0;
	world_check(&scene->world);
	enum neap_status status = scene->scenario(scene);
	if (status)
		fail_msg("after fault %ld: the repeated scenario says %s", n, neap_status_name(status));
	if (neap_alloc_check(scene->world.alloc, &err))
		fail_msg("after fault %ld: %s", n, err.message);
	assert_int_equal(metric(&scene->world, NEAP_METRIC_RESERVED_BYTES), 0);
	neap_alloc_destroy(scene->world.alloc);
	scene->world.alloc = NULL;
	assert_int_equal(neap_device_memory(scene->world.device, &free_after, &(uint64_t){0}, NULL), NEAP_OK);
	if (free_after != free_before)
		fail_msg("after fault %ld: %lld bytes of the device are lost", n,
			 (long long)(free_before - free_after));
}

static void faults_of_driver(struct scene *scene, const char *name, int code, uint64_t count)
{
	uint64_t free_before = 0;
	assert_int_equal(neap_device_memory(scene->world.device, &free_before, &(uint64_t){0}, NULL), NEAP_OK);
	for (long n = 0;; n++) {
		struct neap_sim_fault_report report;
		scene_open(scene);
		scene->world.sim->report(&report);
		uint64_t injected = report.injected;
		scene->world.sim->fault(name, (uint64_t)n, count, code);
		enum neap_status status = scene->scenario(scene);
		scene->world.sim->fault(NULL, 0, 0, 0);
		scene->world.sim->report(&report);
		if (status && status != NEAP_EDRIVER && status != NEAP_EOOM)
			fail_msg("fault %ld of %s, code %d: %s", n, name, code, neap_status_name(status));
		bool happened = report.injected > injected;
		if (!happened)
			assert_int_equal(status, NEAP_OK);
		scene_close(scene, free_before, n);
		if (!happened)
			break;
		assert_true(n < 2000);
	}
}

static void test_driver_call_fails(void **state) { faults_of_driver(*state, "*", CUDA_ERROR_UNKNOWN, 1); }
static void test_driver_call_oom(void **state) { faults_of_driver(*state, "*", CUDA_ERROR_OUT_OF_MEMORY, 1); }
/* From some call on the driver fails for good: not even a rollback works. */
static void test_driver_breaks(void **state) { faults_of_driver(*state, "*", CUDA_ERROR_UNKNOWN, 0); }
static void test_unmap_breaks(void **state) { faults_of_driver(*state, "cuMemUnmap", CUDA_ERROR_UNKNOWN, 0); }
static void test_release_breaks(void **state) { faults_of_driver(*state, "cuMemRelease", CUDA_ERROR_UNKNOWN, 0); }

static void test_host_allocation_fails(void **state)
{
	struct scene *scene = *state;
	uint64_t free_before = 0;
	assert_int_equal(neap_device_memory(scene->world.device, &free_before, &(uint64_t){0}, NULL), NEAP_OK);
	for (long n = 0;; n++) {
		struct neap_alloc_options options = {.no_plan = !scene->plan};
		struct neap_error err = {0};
		enum neap_status status;
		host_countdown = n;
		while ((status = neap_alloc_create(scene->world.device, &options, &scene->world.alloc, &err)))
			assert_int_equal(status, NEAP_ENOMEM);
		status = scene->scenario(scene);
		bool happened = host_countdown < 0;
		host_countdown = -1;
		if (status && status != NEAP_ENOMEM && status != NEAP_EOOM)
			fail_msg("host allocation %ld: %s", n, neap_status_name(status));
		if (!happened)
			assert_int_equal(status, NEAP_OK);
		scene_close(scene, free_before, n);
		if (!happened)
			break;
		assert_true(n < 2000);
	}
}

static int setup(void **state)
{
	struct scene *scene = calloc(1, sizeof *scene);
	world_open(&scene->world, spec);
	scene->one = stream_new(&scene->world);
	scene->two = stream_new(&scene->world);
	scene->scenario = scenario;
	*state = scene;
	return 0;
}

static int setup_turns(void **state)
{
	setup(state);
	((struct scene *)*state)->scenario = turns;
	return 0;
}

static int setup_steps(void **state)
{
	struct scene *scene;
	setup(state);
	scene = *state;
	scene->scenario = steps;
	scene->plan = true;
	return 0;
}

static int setup_ends(void **state)
{
	setup(state);
	((struct scene *)*state)->scenario = ends;
	return 0;
}

static int teardown(void **state)
{
	struct scene *scene = *state;
	assert_true(scene->planned == scene->plan);
	world_close(&scene->world);
	free(scene);
	return 0;
}

#define TEST(name)       cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_TURNS(name) cmocka_unit_test_setup_teardown(name, setup_turns, teardown)
#define TEST_ENDS(name)  cmocka_unit_test_setup_teardown(name, setup_ends, teardown)
#define TEST_STEPS(name) cmocka_unit_test_setup_teardown(name, setup_steps, teardown)

int main(int argc, char **argv)
{
	if (argc > 1)
		spec = argv[1];
	const struct CMUnitTest tests[] = {
		TEST(test_driver_call_fails),
		TEST(test_driver_call_oom),
		TEST(test_driver_breaks),
		TEST(test_unmap_breaks),
		TEST(test_release_breaks),
		TEST(test_host_allocation_fails),
		TEST_TURNS(test_driver_call_fails),
		TEST_TURNS(test_driver_call_oom),
		TEST_TURNS(test_driver_breaks),
		TEST_TURNS(test_host_allocation_fails),
		TEST_STEPS(test_driver_call_fails),
		TEST_STEPS(test_driver_call_oom),
		TEST_STEPS(test_driver_breaks),
		TEST_STEPS(test_unmap_breaks),
		TEST_STEPS(test_release_breaks),
		TEST_STEPS(test_host_allocation_fails),
		TEST_ENDS(test_driver_call_fails),
		TEST_ENDS(test_driver_call_oom),
		TEST_ENDS(test_driver_breaks),
		TEST_ENDS(test_unmap_breaks),
		TEST_ENDS(test_host_allocation_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
