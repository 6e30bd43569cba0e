/* train/cleanup.c: gives the cache back to the driver, and logs the change by neap's counters and by the driver's.
 *
 * The lines never change: people and scripts search for them. "GB" in them is 2^30, as is customary there. */
#include "train/cleanup.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "device/driver.h"

static double gb(uint64_t bytes) { return (double)bytes / (double)NEAP_GIB; }

static uint64_t positive(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

void neap_memory_read(struct neap_alloc *alloc, struct neap_memory *ret_memory)
{
	struct neap_stats stats;

	neap_get_stats(alloc, &stats);
	const struct neap_stat *allocated = &stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL];
	const struct neap_stat *reserved = &stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL];
	*ret_memory = (struct neap_memory){positive(allocated->current), positive(allocated->peak),
					   positive(reserved->current), positive(reserved->peak)};
}

static void log_report(struct neap_alloc *alloc, const struct neap_log_sink *log)
{
	struct neap_memory memory;
	struct neap_device *device = neap_alloc_device(alloc);
	struct neap_error err = {0}, why = {0};
	uint64_t used_bytes = 0, free_bytes = 0, total_bytes = 0;

	neap_memory_read(alloc, &memory);
	neap_log(log, NEAP_LOG_INFO,
		 "CUDA memory stats after cleanup: allocated=%.2fGB, max_allocated=%.2fGB, reserved=%.2fGB, "
		 "max_reserved=%.2fGB",
		 gb(memory.allocated_bytes), gb(memory.peak_allocated_bytes), gb(memory.reserved_bytes),
		 gb(memory.peak_reserved_bytes));
	neap_log(log, NEAP_LOG_INFO, "Asking the driver for GPU memory (as nvidia-smi reports it)...");
	if (neap_device_smi_memory(device, &used_bytes, &free_bytes, &why) != NEAP_OK) {
		/* CUDA may give another number: no API reports what the driver reserves for itself. */
		if (neap_device_memory(device, &free_bytes, &total_bytes, &err) != NEAP_OK) {
			neap_log(log, NEAP_LOG_WARNING, "The driver would not say: %s; %s", why.message, err.message);
			return;
		}
		used_bytes = total_bytes - free_bytes;
		neap_log(log, NEAP_LOG_WARNING, "As CUDA reports it, for NVML cannot be asked: %s", why.message);
	}
	neap_log(log, NEAP_LOG_INFO, "NVIDIA-SMI report:");
	neap_log(log, NEAP_LOG_INFO, "memory.used [MiB], memory.free [MiB]");
	neap_log(log, NEAP_LOG_INFO, "%llu, %llu", (unsigned long long)(used_bytes / NEAP_MIB),
		 (unsigned long long)(free_bytes / NEAP_MIB));
}

enum neap_status neap_cleanup_run(struct neap_alloc *alloc, const struct neap_log_sink *log,
				  enum neap_cleanup_reason reason, struct neap_cleanup *ret_cleanup,
				  struct neap_error *err)
{
	const struct neap_clock *clock = neap_clock_system();
	struct neap_cleanup cleanup = {0};
	struct neap_error failure = {0};
	char size[NEAP_UNITS_CAPACITY], time[NEAP_UNITS_CAPACITY];

	neap_log(log, NEAP_LOG_INFO, "Cleaning up CUDA memory...");
	neap_log(log, NEAP_LOG_INFO, "Clearing CUDA cache...");
	uint64_t began_ns = neap_clock_now(clock);
	enum neap_status status = neap_empty_cache(alloc, &cleanup.freed_bytes, &failure);
	cleanup.ns = neap_clock_now(clock) - began_ns;
	if (status) {
		neap_log(log, NEAP_LOG_WARNING, "The cache was not emptied: %s", failure.message);
		if (err)
			*err = failure;
		return status;
	}
	log_report(alloc, log);
	neap_log(log, NEAP_LOG_INFO, "Cleanup gave back %s in %s", neap_size_format(cleanup.freed_bytes, size),
		 neap_duration_format(cleanup.ns, time));
	neap_emit_cleanup(alloc, (struct neap_event_cleanup){.ns = cleanup.ns,
							     .freed_bytes = cleanup.freed_bytes,
							     .reason = (uint64_t)reason});
	*ret_cleanup = cleanup;
	return NEAP_OK;
}

enum neap_status neap_clear(struct neap_alloc *alloc, const struct neap_log_sink *log, uint64_t *ret_freed_bytes,
			    struct neap_error *err)
{
	struct neap_cleanup cleanup;
	enum neap_status status = neap_cleanup_run(alloc, log, NEAP_CLEANUP_REQUEST, &cleanup, err);

	if (!status && ret_freed_bytes)
		*ret_freed_bytes = cleanup.freed_bytes;
	return status;
}
