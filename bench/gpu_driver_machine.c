/* bench/gpu_driver_machine.c: reports the machine, the cost of a context, and NVML's view of processes. */
#include "gpu_driver.h"

#include <dirent.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
	const char *name;
	CUdevice_attribute attribute;
} attributes[] = {
	{"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
	{"threads_of_a_multiprocessor", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
	{"virtual_memory", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
	{"exportable_as_descriptor", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
	{"memory_pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
	{"compute_major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
	{"compute_minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
};

static const struct {
	const char *name;
	CUlimit limit;
} limits[] = {{"stack_limit_bytes", CU_LIMIT_STACK_SIZE},
	      {"printf_limit_bytes", CU_LIMIT_PRINTF_FIFO_SIZE},
	      {"malloc_heap_limit_bytes", CU_LIMIT_MALLOC_HEAP_SIZE}};

/* The first line of a file of the system that begins with `start`, up to the first of the characters in `stop`. */
static void report_line(FILE *out, const char *key, const char *path, const char *start, const char *stop)
{
	char line[TEXT_CAPACITY];
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, start, strlen(start)) != 0)
			continue;
		line[strlen(start) + strcspn(line + strlen(start), stop)] = '\0';
		report_text(out, key, line + strlen(start));
		break;
	}
	if (file)
		fclose(file);
}

/* Reports whether this is a virtual machine, by the processor's flags; their line is longer than any buffer. */
static void report_virtual(FILE *out)
{
	FILE *file = fopen("/proc/cpuinfo", "r");
	char word[TEXT_CAPACITY];
	bool virtual = false;

	while (file && !virtual && fscanf(file, "%255s", word) == 1)
		virtual = strcmp(word, "hypervisor") == 0;
	if (file)
		fclose(file);
	report_text(out, "virtual_machine", virtual ? "yes" : "no");
}

static void report_device_files(FILE *out)
{
	DIR *folder = opendir("/dev");

	report_list(out, "device_files");
	for (struct dirent *entry; folder && (entry = readdir(folder));)
		if (strncmp(entry->d_name, "nvidia", 6) == 0)
			report_text(out, NULL, entry->d_name);
	report_close(out);
	if (folder)
		closedir(folder);
}

static void report_reading(struct bench *bench)
{
	struct neap_reading reading;

	if (!bench->monitor || neap_monitor_read(bench->monitor, bench->index, &reading, NULL))
		return report_text(bench->out, "nvml", "not available");
	report_object(bench->out, "nvml");
	report_count(bench->out, "total_bytes", reading.total_bytes);
	report_count(bench->out, "used_bytes", reading.used_bytes);
	report_count(bench->out, "free_bytes", reading.free_bytes);
	report_count(bench->out, "reserved_bytes", reading.reserved_bytes);
	report_text(bench->out, "reserved_known", reading.reserved_known ? "yes" : "no");
	report_text(bench->out, "processes_known", reading.processes_known ? "yes" : "no");
	report_list(bench->out, "processes");
	for (size_t i = 0; i < reading.process_count; i++) {
		report_object(bench->out, NULL);
		report_signed(bench->out, "pid", reading.processes[i].pid);
		report_signed(bench->out, "bytes",
			      reading.processes[i].bytes == NEAP_BYTES_UNKNOWN ? -1
									       : (int64_t)reading.processes[i].bytes);
		report_close(bench->out);
	}
	report_close(bench->out);
	report_close(bench->out);
}

void part_machine(struct bench *bench)
{
	size_t least = 0, recommended = 0, value = 0, total = 0, bytes = 0;
	const struct neap_cuda *cuda;
	char name[TEXT_CAPACITY] = "";
	int number = 0;

	/* Facts that decide limits, but none that identify the machine. */
	report_line(bench->out, "linux", "/proc/sys/kernel/osrelease", "", "-\n");
	report_line(bench->out, "nvidia_module", "/proc/driver/nvidia/version", "NVRM version: ", "\n");
	report_virtual(bench->out);
	report_line(bench->out, "host_memory", "/proc/meminfo", "MemTotal:       ", "\n");
	report_line(bench->out, "max_map_count", "/proc/sys/vm/max_map_count", "", "\n");
	report_line(bench->out, "pids_by_namespace", "/proc/self/status", "NSpid:\t", "\n");
	report_device_files(bench->out);
	if (!bench_open(bench))
		return;
	cuda = bench->cuda;
	if (ok(bench, cuda->cuDriverGetVersion(&number), "cuDriverGetVersion"))
		report_signed(bench->out, "cuda_of_the_driver", number);
	if (ok(bench, cuda->cuDeviceGetName(name, sizeof name, bench->device), "cuDeviceGetName"))
		report_text(bench->out, "name", name);
	if (ok(bench, cuda->cuMemGetInfo(&bytes, &total), "cuMemGetInfo")) {
		report_count(bench->out, "free_bytes", bytes);
		report_count(bench->out, "total_bytes", total);
	}
	for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
		if (!cuda->cuDeviceGetAttribute(&number, attributes[i].attribute, bench->device))
			report_signed(bench->out, attributes[i].name, number);
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
		if (cuda->cuCtxGetLimit && !cuda->cuCtxGetLimit(&value, limits[i].limit))
			report_count(bench->out, limits[i].name, value);
	const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = bench->device}};
	if (cuda->cuMemGetAllocationGranularity &&
	    !cuda->cuMemGetAllocationGranularity(&least, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM) &&
	    !cuda->cuMemGetAllocationGranularity(&recommended, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
		report_count(bench->out, "page_bytes", least);
		report_count(bench->out, "page_recommended_bytes", recommended);
	}
	if (cuda->cuModuleGetLoadingMode && !cuda->cuModuleGetLoadingMode(&number))
		report_text(bench->out, "module_loading", number == CU_MODULE_LAZY_LOADING ? "lazy" : "eager");
	report_reading(bench);
}

/* How much time and memory the start takes; until there is a context, only NVML shows the memory. */
void part_start(struct bench *bench)
{
	struct neap_error err = {0};
	struct neap_monitor *monitor =
		NULL; /* device 0's; if there are several, CUDA_VISIBLE_DEVICES should name NVML's first */
	struct neap_reading before = {0}, after = {0};
	CUcontext context = NULL;
	CUdeviceptr at = 0;

	if (neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, &err) || neap_monitor_memory(monitor, 0, &before, &err))
		report_text(bench->out, "nvml", err.message);
	uint64_t began = now_ns();
	if (neap_driver_open(NEAP_BACKEND_DEFAULT, &bench->driver, &err)) {
		snprintf(bench->failed, sizeof bench->failed, "%.250s", err.message);
		return;
	}
	report_number(bench->out, "cuInit_ms", (double)(now_ns() - began) / 1e6);
	bench->cuda = neap_driver_cuda(bench->driver);
	if (!ok(bench, bench->cuda->cuDeviceGet(&bench->device, 0), "cuDeviceGet"))
		return;
	began = now_ns();
	if (!ok(bench, bench->cuda->cuDevicePrimaryCtxRetain(&context, bench->device), "cuDevicePrimaryCtxRetain") ||
	    !ok(bench, bench->cuda->cuCtxSetCurrent(context), "cuCtxSetCurrent"))
		return;
	report_number(bench->out, "context_ms", (double)(now_ns() - began) / 1e6);
	if (monitor && !neap_monitor_memory(monitor, 0, &after, NULL))
		report_signed(bench->out, "context_bytes", (int64_t)(after.used_bytes - before.used_bytes));
	began = now_ns();
	if (!ok(bench, bench->cuda->cuMemAlloc(&at, 2 * MIB), "cuMemAlloc"))
		return;
	report_number(bench->out, "first_cuMemAlloc_us", (double)(now_ns() - began) / 1e3);
	CUfunction kernel = spinning_kernel(bench);
	began = now_ns();
	if (!kernel || !spin(bench, kernel, NULL, 0) ||
	    !ok(bench, bench->cuda->cuCtxSynchronize(), "cuCtxSynchronize"))
		return;
	report_number(bench->out, "first_kernel_ms", (double)(now_ns() - began) / 1e6);
	if (monitor && !neap_monitor_memory(monitor, 0, &after, NULL))
		report_signed(bench->out, "after_first_kernel_bytes",
			      (int64_t)(after.used_bytes - before.used_bytes - 2 * MIB));
	bench->monitor = monitor;
	report_reading(bench);
}

/* Two processes with a context each: which PIDs NVML names, and whether with bytes. */
void part_processes(struct bench *bench)
{
	int ready[2] = {-1, -1}, done[2] = {-1, -1};
	char c = 'r';

	if (pipe(ready) || pipe(done))
		return;
	pid_t child = fork();
	if (child == 0) {
		close(ready[0]);
		close(done[1]);
		CUdeviceptr at = 0;
		if (bench_open(bench) && ok(bench, bench->cuda->cuMemAlloc(&at, 256 * MIB), "cuMemAlloc") &&
		    write(ready[1], &c, 1) == 1)
			c = read(done[0], &c, 1) == 1 ? c : 'e'; /* until the parent has looked */
		_exit(0);
	}
	close(ready[1]);
	close(done[0]);
	report_signed(bench->out, "own_pid", getpid());
	report_signed(bench->out, "child_pid", child);
	if (read(ready[0], &c, 1) != 1)
		snprintf(bench->failed, sizeof bench->failed, "the other process could not take memory");
	else if (bench_open(bench))
		report_reading(bench);
	close(done[1]);
	if (child > 0)
		waitpid(child, NULL, 0);
}
