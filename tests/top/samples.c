/* See samples.h. */
#include "samples.h"

#include "support/test.h"

#include <string.h>

struct neap_top_sample make_sample(size_t devices, uint64_t seconds)
{
	struct neap_top_sample sample = {.time_ns = seconds * S, .device_count = devices};
	sample.devices = calloc(devices + 1, sizeof *sample.devices);
	sample.processes = calloc(64, sizeof *sample.processes);
	assert_non_null(sample.devices);
	assert_non_null(sample.processes);
	for (size_t i = 0; i < devices; i++) {
		struct neap_top_device *device = &sample.devices[i];
		strcpy(device->name, "NVIDIA H100 80GB HBM3");
		snprintf(device->uuid, sizeof device->uuid, "GPU-%zu", i);
		device->utilization_percent = device->temperature_celsius = -1;
		device->power_watts = device->power_limit_watts = device->clock_mhz = -1;
		device->processes_known = true;
		device->ledger.total = 80 * GIB;
		device->ledger.driver_reserved = 2 * GIB;
	}
	return sample;
}

static struct neap_top_process *add(struct neap_top_sample *sample, pid_t pid, uint64_t devices)
{
	struct neap_top_process *process = &sample->processes[sample->process_count++];
	assert_in_range(sample->process_count, 1, 64);
	process->pid = pid;
	process->start_ticks = (uint64_t)pid;
	process->devices = devices;
	process->run_ns = (uint64_t)pid * S;
	process->busy_percent = -1;
	strcpy(process->user, "alice");
	strcpy(process->run_time, "12:34");
	snprintf(process->command, sizeof process->command, "python train.py --seed %d", (int)pid);
	return process;
}

struct neap_top_process *add_attached(struct neap_top_sample *sample, pid_t pid, uint64_t devices, uint64_t allocated)
{
	struct neap_top_process *process = add(sample, pid, devices);
	process->attached = process->bytes_known = true;
	process->context = 512 * MIB;
	process->allocated = process->cached = allocated;
	process->bytes = 2 * allocated + 512 * MIB;
	return process;
}

struct neap_top_process *add_other(struct neap_top_sample *sample, pid_t pid, uint64_t devices, uint64_t bytes)
{
	struct neap_top_process *process = add(sample, pid, devices);
	process->bytes_known = true;
	process->bytes = bytes;
	return process;
}

struct neap_top_process *add_launcher(struct neap_top_sample *sample, pid_t pid)
{
	struct neap_top_process *process = add(sample, pid, 0);
	process->launcher = true;
	strcpy(process->command, "torchrun train.py");
	return process;
}

void sum_up(struct neap_top_sample *sample)
{
	for (size_t d = 0; d < sample->device_count; d++) {
		struct neap_ledger *ledger = &sample->devices[d].ledger;
		uint64_t used = ledger->driver_reserved + (uint64_t)ledger->unexplained;
		for (size_t p = 0; p < sample->process_count; p++) {
			const struct neap_top_process *process = &sample->processes[p];
			if (!process->devices || (size_t)__builtin_ctzll(process->devices) != d)
				continue;
			ledger->contexts += process->context;
			ledger->allocated += process->allocated;
			ledger->cached += process->cached;
			ledger->not_attached += process->attached ? 0 : process->bytes;
			used += process->bytes;
		}
		ledger->free = ledger->total - used;
	}
}
