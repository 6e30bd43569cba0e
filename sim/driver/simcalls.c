/* The public calls of neap/sim.h. */
#include "sim/driver/race_watch.h"
#include "sim/driver/share.h"

#include <string.h>
#include <sys/stat.h>

static bool usable(void) { return atomic_load(&sim.initialized) && !atomic_load(&sim.forked); }

static CUresult queue(CUstream stream, const struct neap_sim_kernel *kernel)
{
	struct sim_task task = {.strict = true};

	if (!kernel || (kernel->range_count > 0 && !kernel->ranges))
		return CUDA_ERROR_INVALID_VALUE;
	if (kernel->range_count == 0 && !kernel->function)
		return sim_launch(stream, kernel->name ? kernel->name : "kernel", kernel->duration_ns);
	if (kernel->function && sim.spec.no_backing)
		return CUDA_ERROR_NOT_SUPPORTED; /* with backing=none there are no bytes for it */
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
	if (atomic_load(&sim.forked)) { /* another thread may have held the lock at the fork */
		memset(ret_report, 0, sizeof *ret_report);
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
	memset(&sim.report, 0, sizeof sim.report);
	atomic_store(&sim.sticky, CUDA_SUCCESS);
	pthread_mutex_unlock(&sim.lock);
}

static int keeps_bytes(void) { return !sim.spec.no_backing; }

static uint64_t resident(void)
{
	struct stat info;

	return sim.file >= 0 && fstat(sim.file, &info) == 0 ? (uint64_t)info.st_blocks * 512 : 0;
}

static int keep_values(void)
{
	if (!usable() || sim.spec.no_values || sim.spec.no_backing)
		return 0;
	pthread_mutex_lock(&sim.lock);
	sim.values = true;
	pthread_mutex_unlock(&sim.lock);
	return 1;
}

static int shared(uint64_t address, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_bytes)
{
	bool found;

	if (!usable())
		return 0;
	pthread_mutex_lock(&sim.lock);
	found = (sim.shares || sim.values) && sim_share_find(address, bytes, ret_start, ret_bytes);
	pthread_mutex_unlock(&sim.lock);
	return found;
}

static void watch_shares(void (*function)(const char *call, int opened)) { atomic_store(&sim.share_watch, function); }

static void watch_launches(sim_launch_watch function) { atomic_store(&sim.launch_watch, function); }

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
	.keep_values = keep_values,
	.resident = resident,
	.shared = shared,
	.watch_shares = watch_shares,
	.races = &race_watch_calls,
	.watch_launches = watch_launches,
};

NEAP_API const struct neap_sim_calls *neap_sim_get_calls(void);
const struct neap_sim_calls *neap_sim_get_calls(void) { return &public_calls; }

/* Counts the launches so far of kernels that the process loaded itself (cuModuleLoad, cuLibraryLoad), such as
 * torch.compile's and Triton's. For python/neap/_estimate.py. */
NEAP_API uint64_t neap_sim_get_loaded_launches(void);
uint64_t neap_sim_get_loaded_launches(void) { return sim_loaded_launches(); }
