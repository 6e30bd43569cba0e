/* Several threads in the driver at once: each on its own stream and memory, all on the same tables. */
#include "sim_test.h"

#include <pthread.h>
#include <stdio.h>

#define THREADS 4
#define ROUNDS  60

struct worker {
	pthread_t thread;
	uint64_t sum; /* sum of its kernels' results */
	const char *failed;
};

struct job {
	volatile uint64_t *cell;
	uint64_t value;
};

static void add(void *argument)
{
	struct job *job = argument;

	*job->cell += job->value;
}

#define EXPECT(call, code)                                                                                           \
	do {                                                                                                         \
		if ((call) != (code)) {                                                                              \
			worker->failed = #call;                                                                      \
			return NULL;                                                                                 \
		}                                                                                                    \
	} while (0)

/* One handle mapped at two places, written through one and read through the other, then taken apart. */
static void *work(void *argument)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	struct worker *worker = argument;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr range, plain;
	CUstream stream;
	CUevent event;
	size_t free_bytes;
	int i;

	EXPECT(t.cuda.cuCtxSetCurrent(t.context), 0);
	EXPECT(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	EXPECT(t.cuda.cuEventCreate(&event, 0), 0);
	EXPECT(t.cuda.cuMemAddressReserve(&range, 2 * PAGE, 0, 0, 0), 0);
	for (i = 0; i < ROUNDS; i++) {
		struct job job = {.value = (uint64_t)i};
		struct neap_sim_range touched = {range, 8, 1};
		struct neap_sim_kernel kernel = {.name = "add",
						 .duration_ns = 3000,
						 .ranges = &touched,
						 .range_count = 1,
						 .function = add,
						 .argument = &job};

		EXPECT(t.cuda.cuMemCreate(&handle, PAGE, &prop, 0), 0);
		EXPECT(t.cuda.cuMemMap(range, PAGE, 0, handle, 0), 0);
		EXPECT(t.cuda.cuMemMap(range + PAGE, PAGE, 0, handle, 0), 0);
		EXPECT(t.cuda.cuMemSetAccess(range, 2 * PAGE, &access, 1), 0);
		job.cell = (volatile uint64_t *)(uintptr_t)range;
		EXPECT(t.sim->launch(stream, &kernel), 0);
		EXPECT(t.cuda.cuEventRecord(event, stream), 0);
		EXPECT(t.cuda.cuEventSynchronize(event), 0);
		worker->sum += *(volatile uint64_t *)(uintptr_t)(range + PAGE);
		EXPECT(t.cuda.cuMemGetInfo(&free_bytes, NULL), 0);
		EXPECT(t.cuda.cuMemUnmap(range, 2 * PAGE), 0);
		EXPECT(t.cuda.cuMemRelease(handle), 0);
		EXPECT(t.cuda.cuMemAllocAsync(&plain, 100, stream), 0);
		EXPECT(t.cuda.cuMemsetD8Async(plain, 1, 100, stream), 0);
		EXPECT(t.cuda.cuMemFreeAsync(plain, stream), 0);
		EXPECT(t.cuda.cuMemAlloc(&plain, 100), 0);
		EXPECT(t.cuda.cuMemFree(plain), 0);
	}
	EXPECT(t.cuda.cuStreamSynchronize(stream), 0);
	EXPECT(t.cuda.cuMemAddressFree(range, 2 * PAGE), 0);
	EXPECT(t.cuda.cuEventDestroy(event), 0);
	EXPECT(t.cuda.cuStreamDestroy(stream), 0);
	return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
	struct worker workers[THREADS] = {0};
	struct neap_sim_fault_report report;
	int i;

	(void)state;
	sim_begin("threads", "mem=256MiB");
	uint64_t before = sim_free_bytes();
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	t.sim->report(&report);
	for (i = 0; i < THREADS; i++) {
		if (workers[i].failed)
			fail_msg("%s; %s", workers[i].failed, report.text);
		assert_int_equal(workers[i].sum, ROUNDS * (ROUNDS - 1) / 2);
	}
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_int_equal(sim_free_bytes(), before);
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_do_not_disturb_each_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
