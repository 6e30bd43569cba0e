/* charlm/device.c: see the header. On a simulated device a kernel is a C function on host pointers that equal the
 * device addresses. It names the ranges that it reads and writes, so that the simulator can report a missing
 * order. */
#include "device.h"

#include "fail.h"

#include "neap/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Queued work: first in, first out. A later launch frees it after its function has run. Otherwise it is freed when
 * the device is closed, because work whose wait failed may never run. */
struct launch {
	struct launch *next;
	void (*function)(void *arguments);
	atomic_bool done; /* work runs in whatever thread waits for it */
	max_align_t arguments[];
};

struct gpu {
	struct neap_driver *driver;
	struct neap_device *device;
	struct neap_device_guard guard; /* the device is current as long as it is open */
	struct neap_alloc *alloc;
	const struct neap_sim_calls *sim;
	struct neap_error error; /* the first failure; none if its status is NEAP_OK */
	struct launch *first, **end;
};

/* The simulated device's speed. */
static const double OPERATIONS_PER_NS = 20000;
enum { LAUNCH_NS = 3000 };

enum neap_status gpu_open(struct gpu **ret_gpu, struct neap_error *err)
{
	/* An example may choose the simulator by itself; NEAP_DEVICE overrules it. */
	enum neap_backend backend = getenv("NEAP_DEVICE") ? NEAP_BACKEND_DEFAULT : NEAP_BACKEND_SIM;
	enum neap_status status;
	struct gpu *gpu = calloc(1, sizeof *gpu);

	if (!gpu)
		return fail(err, NEAP_ENOMEM, "the host is out of memory");
	gpu->end = &gpu->first;
	status = neap_driver_open(backend, &gpu->driver, err);
	if (!status && !(gpu->sim = neap_driver_sim(gpu->driver)))
		status =
			fail(err, NEAP_ENOTSUP,
			     "this example computes on the CPU over simulated device memory and needs the simulator: "
			     "set NEAP_DEVICE=sim");
	if (!status)
		status = neap_device_open(gpu->driver, 0, &gpu->device, err);
	if (!status)
		status = neap_device_enter(gpu->device, &gpu->guard, err);
	if (!status)
		status = neap_alloc_create(gpu->device, NULL, &gpu->alloc, err);
	if (!status)
		*ret_gpu = gpu;
	else
		gpu_close(gpu);
	return status;
}

/* Frees the launches at the head of the queue that have run, or all of them. */
static void free_launches(struct gpu *gpu, bool all)
{
	while (gpu->first && (all || atomic_load(&gpu->first->done))) {
		struct launch *launch = gpu->first;

		gpu->first = launch->next;
		free(launch);
	}
	if (!gpu->first)
		gpu->end = &gpu->first;
}

void gpu_close(struct gpu *gpu)
{
	if (!gpu)
		return;
	if (gpu->device)
		neap_device_synchronize(gpu->device, NULL, NULL);
	neap_alloc_destroy(gpu->alloc);
	neap_device_leave(&gpu->guard);
	neap_device_close(gpu->device);
	neap_driver_close(gpu->driver);
	free_launches(gpu, true);
	free(gpu);
}

struct neap_alloc *gpu_alloc(struct gpu *gpu) { return gpu->alloc; }

bool gpu_failed(const struct gpu *gpu) { return gpu->error.status != NEAP_OK; }

enum neap_status gpu_take_error(struct gpu *gpu, struct neap_error *ret_error)
{
	enum neap_status status = gpu->error.status;

	if (status && ret_error)
		*ret_error = gpu->error;
	gpu->error = (struct neap_error){0};
	return status;
}

void *gpu_new(struct gpu *gpu, const char *tag, size_t bytes)
{
	uint64_t address = 0;

	if (gpu_failed(gpu))
		return NULL;

	const char *before = neap_tag_set(tag);

	neap_malloc(gpu->alloc, bytes, NULL, &address, &gpu->error);
	neap_tag_set(before);
	return (void *)(uintptr_t)address;
}

void gpu_free(struct gpu *gpu, void *memory) { neap_free(gpu->alloc, (uintptr_t)memory); }

static void run(void *argument)
{
	struct launch *launch = argument;

	launch->function(launch->arguments);
	atomic_store(&launch->done, true);
}

static void launch_failed(struct gpu *gpu, const char *name, int result)
{
	enum { CUDA_OUT_OF_MEMORY = 2 }; /* a launch can run out of memory too */
	struct neap_sim_fault_report report;

	if (result == CUDA_OUT_OF_MEMORY) {
		fail(&gpu->error, NEAP_EOOM, "queuing \"%s\": out of memory (CUDA error %d)", name, result);
	} else {
		gpu->sim->report(&report);
		fail(&gpu->error, NEAP_EDRIVER, "queuing \"%s\": CUDA error %d%s%s", name, result,
		     report.text[0] ? ": " : "", report.text);
	}
	gpu->error.cause = result;
}

/* Queues the work with `capacity` bytes after its arguments. Returns NULL after a failure. */
static struct launch *queue(struct gpu *gpu, const struct gpu_work *work, const void *more, size_t capacity)
{
	if (gpu_failed(gpu))
		return NULL;
	free_launches(gpu, false);

	struct launch *launch = malloc(sizeof *launch + work->argument_bytes + capacity);
	const struct neap_sim_kernel kernel = {.name = work->name,
					       .duration_ns =
						       LAUNCH_NS + (uint64_t)(work->operations / OPERATIONS_PER_NS),
					       .ranges = work->ranges,
					       .range_count = work->range_count,
					       .function = run,
					       .argument = launch};

	if (!launch) {
		fail(&gpu->error, NEAP_ENOMEM, "queuing \"%s\": the host is out of memory", work->name);
		return NULL;
	}
	*launch = (struct launch){.function = work->function};
	memcpy(launch->arguments, work->arguments, work->argument_bytes);
	if (more)
		memcpy((char *)launch->arguments + work->argument_bytes, more, capacity);
	*gpu->end = launch;
	gpu->end = &launch->next;

	int result = gpu->sim->launch(NULL, &kernel);

	if (!result)
		return launch;
	atomic_store(&launch->done, true);
	launch_failed(gpu, work->name, result);
	return NULL;
}

void gpu_launch(struct gpu *gpu, const struct gpu_work *work) { queue(gpu, work, NULL, 0); }

/* A copy to the device or to the host, followed by the host's bytes. These are not the caller's own, because a copy
 * whose wait failed may still run. */
struct copy {
	void *device;
	size_t bytes;
	bool to_device;
	_Alignas(max_align_t) char host[];
};

static void run_copy(void *arguments)
{
	struct copy *copy = arguments;

	memcpy(copy->to_device ? copy->device : copy->host, copy->to_device ? copy->host : copy->device, copy->bytes);
}

static struct launch *queue_copy(struct gpu *gpu, const struct copy *copy, const void *host)
{
	struct gpu_work work = {.name = copy->to_device ? "copy to device" : "copy to host",
				.function = run_copy,
				.arguments = copy,
				.argument_bytes = sizeof *copy,
				.ranges = {{(uintptr_t)copy->device, copy->bytes, copy->to_device}},
				.range_count = 1};

	return queue(gpu, &work, host, copy->bytes);
}

void gpu_write(struct gpu *gpu, void *memory, const void *host, size_t bytes)
{
	queue_copy(gpu, &(struct copy){memory, bytes, true}, host);
}

void gpu_read(struct gpu *gpu, void *host, const void *memory, size_t bytes)
{
	struct launch *launch = queue_copy(gpu, &(struct copy){(void *)memory, bytes, false}, NULL);

	const struct copy *copy = launch ? (void *)launch->arguments : NULL;

	if (copy && neap_device_synchronize(gpu->device, NULL, &gpu->error) == NEAP_OK)
		memcpy(host, copy->host, bytes);
}
