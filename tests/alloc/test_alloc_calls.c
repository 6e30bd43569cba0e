/* No write of the published counters may be open while the driver is called: a call may take long, and readers must
 * see the counters meanwhile. The test wraps the driver's table; each memory call of the allocator checks the page.
 */
#include "harness.h"

static const struct neap_cuda *real;
static struct neap_published page;
static unsigned calls, open_calls;

static void look(void)
{
	calls++;
	open_calls += __atomic_load_n(&page.sequence, __ATOMIC_ACQUIRE) % 2;
}

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t bytes,
			       const CUmemAllocationProp *properties, unsigned long long flags)
{
	look();
	return real->cuMemCreate(handle, bytes, properties, flags);
}

static CUresult CUDAAPI release(CUmemGenericAllocationHandle handle)
{
	look();
	return real->cuMemRelease(handle);
}

static CUresult CUDAAPI map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
			    unsigned long long flags)
{
	look();
	return real->cuMemMap(address, bytes, offset, handle, flags);
}

static CUresult CUDAAPI unmap(CUdeviceptr address, size_t bytes)
{
	look();
	return real->cuMemUnmap(address, bytes);
}

static CUresult CUDAAPI set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	look();
	return real->cuMemSetAccess(address, bytes, access, count);
}

static CUresult CUDAAPI capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	look();
	return real->cuStreamIsCapturing(stream, status);
}

static CUresult CUDAAPI synchronize(void)
{
	look();
	return real->cuCtxSynchronize();
}

static CUresult CUDAAPI record(CUevent event, CUstream stream)
{
	look();
	return real->cuEventRecord(event, stream);
}

static CUresult CUDAAPI query(CUevent event)
{
	look();
	return real->cuEventQuery(event);
}

static CUresult CUDAAPI await(CUevent event)
{
	look();
	return real->cuEventSynchronize(event);
}

static void test_no_write_open(void **state)
{
	struct world world;
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL;
	struct neap_alloc *alloc = NULL;
	struct neap_alloc_options options = {.published = &page};
	uint64_t at[3] = {0}, freed = 0;
	(void)state;
	world_open(&world, "mem=64MiB,reserved=0,context=8MiB");
	real = world.cuda;
	struct neap_cuda wrapped = *real;
	wrapped.cuMemCreate = create;
	wrapped.cuMemRelease = release;
	wrapped.cuMemMap = map;
	wrapped.cuMemUnmap = unmap;
	wrapped.cuMemSetAccess = set_access;
	wrapped.cuStreamIsCapturing = capturing;
	wrapped.cuCtxSynchronize = synchronize;
	wrapped.cuEventRecord = record;
	wrapped.cuEventQuery = query;
	wrapped.cuEventSynchronize = await;
	assert_int_equal(neap_driver_wrap(&wrapped, NULL, &driver, NULL), NEAP_OK);
	assert_int_equal(neap_device_open(driver, 0, &device, NULL), NEAP_OK);
	assert_int_equal(neap_alloc_create(device, &options, &alloc, NULL), NEAP_OK);
	void *one = stream_new(&world), *two = stream_new(&world);
	assert_int_equal(neap_malloc(alloc, 1000, one, &at[0], NULL), NEAP_OK);
	assert_int_equal(neap_malloc(alloc, 20 * MIB, one, &at[1], NULL), NEAP_OK);
	neap_free(alloc, at[1]);
	/* Takes pages from the cache of the other stream. */
	assert_int_equal(neap_malloc(alloc, 40 * MIB, two, &at[2], NULL), NEAP_OK);
	assert_int_equal(neap_record_stream(alloc, at[2], one), NEAP_OK);
	neap_free(alloc, at[2]);
	assert_int_equal(neap_empty_cache(alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 54 * MIB); /* all but the page of the small block */
	assert_true(calls > 50);
	assert_int_equal(open_calls, 0);
	neap_alloc_destroy(alloc);
	neap_device_close(device);
	neap_driver_close(driver);
	world_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_write_open)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
