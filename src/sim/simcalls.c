/* The public calls of neap/sim.h, and the names of errors. */
#include "sim/state.h"

#include <string.h>

struct constant {
	const char *type, *name;
	int value;
};

static const struct constant constants[] = {
#define X(type, name, value) {#type, #name, value},
#include "device/cuda_constants.h"
#undef X
};

/* NULL: unknown. */
static const char *find_name(CUresult result)
{
	size_t i;

	for (i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
		if (constants[i].value == result && strcmp(constants[i].type, "CUresult") == 0)
			return constants[i].name;
	return NULL;
}

const char *sim_error_name(CUresult result)
{
	const char *name = find_name(result);

	return name ? name : "CUDA_ERROR_OTHER";
}

CUresult sim_cuGetErrorName(CUresult error, const char **name)
{
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = find_name(error);
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static const struct {
	CUresult result;
	const char *text;
} texts[] = {
	{CUDA_SUCCESS, "no error"},
	{CUDA_ERROR_INVALID_VALUE, "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
	{CUDA_ERROR_DEINITIALIZED, "driver shutting down"},
	{CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"},
	{CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"},
	{CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
	{CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
	{CUDA_ERROR_ALREADY_MAPPED, "already mapped"},
	{CUDA_ERROR_NOT_MAPPED, "not mapped"},
	{CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"},
	{CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution"},
	{CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
	{CUDA_ERROR_NOT_FOUND, "named symbol not found"},
	{CUDA_ERROR_NOT_READY, "device not ready"},
	{CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
	{CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
	{CUDA_ERROR_NOT_PERMITTED, "operation not permitted"},
	{CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
	{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
	{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
	{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"},
	{CUDA_ERROR_UNKNOWN, "unknown error"},
};

/* Of a failed cuInit it says what is wrong with the simulator's settings or world. */
CUresult sim_cuGetErrorString(CUresult error, const char **text)
{
	size_t i;

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = NULL;
	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].result == error)
			*text = texts[i].text;
	if (!atomic_load(&sim.initialized) && sim.message[0] && error != CUDA_SUCCESS && error == sim.init_result)
		*text = sim.message;
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool usable(void) { return atomic_load(&sim.initialized) && !atomic_load(&sim.forked); }

static CUresult queue(CUstream stream, const struct neap_sim_kernel *kernel)
{
	struct sim_task task = {.strict = true};

	if (!kernel || (kernel->range_count > 0 && !kernel->ranges))
		return CUDA_ERROR_INVALID_VALUE;
	if (kernel->range_count == 0 && !kernel->function)
		return sim_launch(stream, kernel->name ? kernel->name : "kernel", kernel->duration_ns);
	if (kernel->function && sim.spec.no_backing)
		return CUDA_ERROR_NOT_SUPPORTED; /* there are no bytes to work on */
	task.name = kernel->name ? kernel->name : "kernel";
	task.duration_ns = kernel->duration_ns;
	task.ranges = kernel->ranges;
	task.range_count = kernel->range_count;
	task.function = kernel->function;
	task.argument = kernel->argument;
	return sim_submit(stream, &task, NULL);
}

static int launch(void *stream, const struct neap_sim_kernel *kernel)
{
	CUresult result = sim_call_enter(SIM_CALL_cuLaunchKernel);

	if (result == CUDA_SUCCESS)
		result = queue(stream, kernel);
	return sim_call_leave(SIM_CALL_cuLaunchKernel, result);
}

static uint64_t now_ns(void) { return usable() ? sim_engine_now(sim.engine) : 0; }

static void hold(int held)
{
	if (usable())
		sim_engine_hold(sim.engine, held != 0);
}

static void step(uint64_t ns)
{
	if (usable())
		sim_engine_step(sim.engine, ns);
}

static void latency(const char *name, uint64_t ns)
{
	if (name)
		(void)sim_latency_set(name, ns);
}

static void report(struct neap_sim_fault_report *ret_report)
{
	if (atomic_load(&sim.forked)) { /* the lock may have been taken at the fork */
		memset(ret_report, 0, sizeof(*ret_report));
		return;
	}
	pthread_mutex_lock(&sim.lock);
	*ret_report = sim.report;
	pthread_mutex_unlock(&sim.lock);
}

static void forgive(void)
{
	if (atomic_load(&sim.forked))
		return;
	pthread_mutex_lock(&sim.lock);
	memset(&sim.report, 0, sizeof(sim.report));
	atomic_store(&sim.sticky, CUDA_SUCCESS);
	pthread_mutex_unlock(&sim.lock);
}

static int keeps_bytes(void) { return !sim.spec.no_backing; }

static const struct neap_sim_calls public_calls = {
	.version = 1,
	.launch = launch,
	.now_ns = now_ns,
	.hold = hold,
	.step = step,
	.fault = sim_fault_add,
	.latency = latency,
	.calls = sim_call_total,
	.report = report,
	.forgive = forgive,
	.keeps_bytes = keeps_bytes,
};

NEAP_API const struct neap_sim_calls *neap_sim_get_calls(void);
const struct neap_sim_calls *neap_sim_get_calls(void) { return &public_calls; }
