/* charlm/device.c: see the header. On a simulated device a kernel is a C function on host pointers that equal the
 * device addresses, with the ranges it reads and writes, so that the simulator can tell a missing order. */
#include "device.h"

#include "neap/alloc.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A launch on its way: lives until its function has run, or until the device is closed: a failed wait may leave work
 * that never runs. */
struct launch {
	struct gpu *gpu;
	struct launch *next, **link;
	void (*function)(void *arguments);
	max_align_t arguments[];
};

/* Where a read arrives. Of its own, not the caller's: after a failed wait it still may. */
struct landing {
	struct landing *next;
	max_align_t bytes[];
};

struct gpu {
	struct neap_driver *driver;
	struct neap_device *device;
	struct neap_device_guard guard; /* the device is the current one as long as it is open */
	struct neap_alloc *alloc;
	const struct neap_sim_calls *sim;
	struct neap_error error; /* the first failure; its status NEAP_OK: none */
	pthread_mutex_t lock;    /* of the launches: work runs in whatever thread waits for it */
	struct launch *launches;
	struct landing *astray; /* reads whose wait failed */
};

/* The simulated device's speed. */
static const double OPERATIONS_PER_NS = 20000;
enum { LAUNCH_NS = 3000 };

enum neap_status gpu_open(struct gpu **ret_gpu, struct neap_error *err)
{
	/* An example may choose the simulator by itself; NEAP_DEVICE overrules it. */
	enum neap_backend backend = getenv("NEAP_DEVICE") ? NEAP_BACKEND_DEFAULT : NEAP_BACKEND_SIM;
	enum neap_status status = NEAP_ENOMEM;
	struct gpu *gpu = calloc(1, sizeof(*gpu));

	if (!gpu) {
		*err = (struct neap_error){.status = NEAP_ENOMEM, .message = "the host is out of memory"};
		goto out;
	}
	pthread_mutex_init(&gpu->lock, NULL);
	status = neap_driver_open(backend, &gpu->driver, err);
	if (status != NEAP_OK)
		goto out;
	gpu->sim = neap_driver_sim(gpu->driver);
	if (!gpu->sim) {
		status = NEAP_ENOTSUP;
		*err = (struct neap_error){.status = status,
					   .message = "this example computes on the CPU over simulated device memory "
						      "and needs the simulator: set NEAP_DEVICE=sim"};
		goto out;
	}
	status = neap_device_open(gpu->driver, 0, &gpu->device, err);
	if (status != NEAP_OK)
		goto out;
	status = neap_device_enter(gpu->device, &gpu->guard, err);
	if (status != NEAP_OK)
		goto out;
	status = neap_alloc_create(gpu->device, NULL, &gpu->alloc, err);
	if (status != NEAP_OK)
		goto out;
	*ret_gpu = gpu;
	return NEAP_OK;
out:
	gpu_close(gpu);
	return status;
}

static void launch_free(struct launch *launch)
{
	pthread_mutex_lock(&launch->gpu->lock);
	*launch->link = launch->next;
	if (launch->next)
		launch->next->link = launch->link;
	pthread_mutex_unlock(&launch->gpu->lock);
	free(launch);
}

void gpu_close(struct gpu *gpu)
{
	if (!gpu)
		return;
	if (gpu->device)
		neap_device_synchronize(gpu->device, NULL, NULL);
	if (gpu->alloc)
		neap_alloc_destroy(gpu->alloc);
	neap_device_leave(&gpu->guard);
	if (gpu->device)
		neap_device_close(gpu->device);
	if (gpu->driver)
		neap_driver_close(gpu->driver);
	while (gpu->launches)
		launch_free(gpu->launches);
	while (gpu->astray) {
		struct landing *landing = gpu->astray;

		gpu->astray = landing->next;
		free(landing);
	}
	pthread_mutex_destroy(&gpu->lock);
	free(gpu);
}

struct neap_alloc *gpu_alloc(struct gpu *gpu) { return gpu->alloc; }

bool gpu_failed(const struct gpu *gpu) { return gpu->error.status != NEAP_OK; }

enum neap_status gpu_take_error(struct gpu *gpu, struct neap_error *ret_error)
{
	enum neap_status status = gpu->error.status;

	if (status != NEAP_OK && ret_error)
		*ret_error = gpu->error;
	gpu->error = (struct neap_error){0};
	return status;
}

NEAP_PRINTF(4, 5)
static void fail(struct gpu *gpu, enum neap_status status, int cause, const char *format, ...)
{
	va_list arguments;

	gpu->error = (struct neap_error){.status = status, .cause = cause};
	va_start(arguments, format);
	vsnprintf(gpu->error.message, sizeof(gpu->error.message), format, arguments);
	va_end(arguments);
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
	launch_free(launch);
}

/* As CUDA says it: a launch can run out of memory too. */
enum { CUDA_OUT_OF_MEMORY = 2 };

static void launch_failed(struct gpu *gpu, struct launch *launch, const char *name, int result)
{
	struct neap_sim_fault_report report;

	launch_free(launch);
	if (result == CUDA_OUT_OF_MEMORY) {
		fail(gpu, NEAP_EOOM, result, "queuing \"%s\": out of memory (CUDA error %d)", name, result);
		return;
	}
	gpu->sim->report(&report);
	fail(gpu, NEAP_EDRIVER, result, "queuing \"%s\": CUDA error %d%s%s", name, result, report.text[0] ? ": " : "",
	     report.text);
}

void gpu_launch(struct gpu *gpu, const struct gpu_work *work)
{
	struct launch *launch;
	int result;

	if (gpu_failed(gpu))
		return;
	launch = malloc(sizeof(*launch) + work->argument_bytes);
	if (!launch) {
		fail(gpu, NEAP_ENOMEM, 0, "queuing work: the host is out of memory");
		return;
	}
	launch->gpu = gpu;
	launch->function = work->function;
	pthread_mutex_lock(&gpu->lock);
	launch->next = gpu->launches;
	launch->link = &gpu->launches;
	if (launch->next)
		launch->next->link = &launch->next;
	gpu->launches = launch;
	pthread_mutex_unlock(&gpu->lock);
	memcpy(launch->arguments, work->arguments, work->argument_bytes);

	struct neap_sim_kernel kernel = {.name = work->name,
					 .duration_ns = LAUNCH_NS + (uint64_t)(work->operations / OPERATIONS_PER_NS),
					 .ranges = work->ranges,
					 .range_count = work->range_count,
					 .function = run,
					 .argument = launch};

	result = gpu->sim->launch(NULL, &kernel);
	if (result)
		launch_failed(gpu, launch, work->name, result);
}

struct copy {
	void *to;
	const void *from;
	size_t bytes;
};

static void run_copy(void *arguments)
{
	const struct copy *copy = arguments;

	memcpy(copy->to, copy->from, copy->bytes);
}

struct upload {
	void *to;
	size_t bytes;
	char from[];
};

static void run_upload(void *arguments)
{
	const struct upload *upload = arguments;

	memcpy(upload->to, upload->from, upload->bytes);
}

void gpu_write(struct gpu *gpu, void *memory, const void *host, size_t bytes)
{
	struct upload *upload;

	if (gpu_failed(gpu))
		return;
	upload = malloc(sizeof(*upload) + bytes);
	if (!upload) {
		fail(gpu, NEAP_ENOMEM, 0, "copying to the device: the host is out of memory");
		return;
	}
	*upload = (struct upload){.to = memory, .bytes = bytes};
	memcpy(upload->from, host, bytes);

	struct gpu_work work = {.name = "copy to device",
				.function = run_upload,
				.arguments = upload,
				.argument_bytes = sizeof(*upload) + bytes,
				.ranges = {{(uintptr_t)memory, bytes, 1}},
				.range_count = 1};

	gpu_launch(gpu, &work);
	free(upload);
}

void gpu_read(struct gpu *gpu, void *host, const void *memory, size_t bytes)
{
	struct landing *landing;

	if (gpu_failed(gpu))
		return;
	landing = malloc(sizeof(*landing) + bytes);
	if (!landing) {
		fail(gpu, NEAP_ENOMEM, 0, "copying to the host: the host is out of memory");
		return;
	}

	struct copy copy = {landing->bytes, memory, bytes};
	struct gpu_work work = {.name = "copy to host",
				.function = run_copy,
				.arguments = &copy,
				.argument_bytes = sizeof(copy),
				.ranges = {{(uintptr_t)memory, bytes, 0}},
				.range_count = 1};

	gpu_launch(gpu, &work);
	if (!gpu_failed(gpu) && neap_device_synchronize(gpu->device, NULL, &gpu->error) != NEAP_OK) {
		landing->next = gpu->astray;
		gpu->astray = landing;
		return;
	}
	if (!gpu_failed(gpu))
		memcpy(host, landing->bytes, bytes);
	free(landing);
}
