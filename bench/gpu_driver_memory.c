/* bench/gpu_driver_memory.c: addresses, how long memory takes to come back from a process that was killed, and
 * limits. */
#include "gpu_driver.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- addresses -------------------------------------------------------------------------------------------------- */

static const size_t place_mib[] = {2, 20, 2, 40, 20, 2, 188, 2, 1024, 20, 2, 64, 512, 2, 26, 6};
#define PLACES (sizeof place_mib / sizeof place_mib[0])

static bool place_all(struct bench *bench, const char *key, CUdeviceptr addresses[PLACES])
{
	report_list(bench->out, key);
	for (size_t i = 0; i < PLACES; i++) {
		if (!ok(bench, bench->cuda->cuMemAlloc(&addresses[i], place_mib[i] * MIB), "cuMemAlloc"))
			return false;
		report_hex(bench->out, NULL, addresses[i]);
	}
	report_close(bench->out);
	return true;
}

/* Reservations as PyTorch's expandable segments make them: 1.125 times the device; and one at a requested address. */
static bool place_reservations(struct bench *bench)
{
	size_t bytes = 0, total = 0;
	CUdeviceptr at[4] = {0}, wanted = 0;

	if (!ok(bench, bench->cuda->cuMemGetInfo(&bytes, &total), "cuMemGetInfo"))
		return false;
	size_t size = (total / 8 * 9 + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
	report_count(bench->out, "reservation_bytes", size);
	report_list(bench->out, "reservations");
	for (size_t i = 0; i < 4; i++) {
		if (!ok(bench, bench->cuda->cuMemAddressReserve(&at[i], size, 0, 0, 0), "cuMemAddressReserve"))
			return false;
		report_hex(bench->out, NULL, at[i]);
	}
	report_close(bench->out);
	if (!ok(bench, bench->cuda->cuMemAddressFree(at[1], size), "cuMemAddressFree") ||
	    !ok(bench, bench->cuda->cuMemAddressReserve(&wanted, size, 0, at[1], 0),
		"cuMemAddressReserve, at an address"))
		return false;
	report_text(bench->out, "reservation_at_an_address", wanted == at[1] ? "given" : "another");
	at[1] = wanted;
	for (size_t i = 0; i < 4; i++)
		if (!ok(bench, bench->cuda->cuMemAddressFree(at[i], size), "cuMemAddressFree"))
			return false;
	return true;
}

/* Places blocks in order; frees them in order and places them again; then every second one; then reservations. */
void part_places(struct bench *bench)
{
	CUdeviceptr addresses[PLACES] = {0}, ignored[PLACES] = {0};

	if (!bench_open(bench))
		return;
	report_list(bench->out, "mib");
	for (size_t i = 0; i < PLACES; i++)
		report_count(bench->out, NULL, place_mib[i]);
	report_close(bench->out);
	if (!place_all(bench, "first", addresses))
		return;
	for (size_t i = 0; i < PLACES; i++)
		ok(bench, bench->cuda->cuMemFree(addresses[i]), "cuMemFree");
	if (!place_all(bench, "again", addresses))
		return;
	for (size_t i = 0; i < PLACES; i += 2)
		ok(bench, bench->cuda->cuMemFree(addresses[i]), "cuMemFree");
	report_list(bench->out, "every_second_again");
	for (size_t i = 0; i < PLACES; i += 2) {
		if (!ok(bench, bench->cuda->cuMemAlloc(&ignored[i], place_mib[i] * MIB), "cuMemAlloc"))
			return;
		report_hex(bench->out, NULL, ignored[i]);
	}
	report_close(bench->out);
	/* Small blocks share a page of the driver: how far apart they are, and how much they take. */
	uint64_t before = free_bytes(bench);
	report_list(bench->out, "of_512_bytes");
	for (size_t i = 0; i < 6; i++) {
		CUdeviceptr at = 0;
		if (!ok(bench, bench->cuda->cuMemAlloc(&at, 512), "cuMemAlloc"))
			return;
		report_hex(bench->out, NULL, at);
	}
	report_close(bench->out);
	report_signed(bench->out, "of_512_bytes_took", (int64_t)(before - free_bytes(bench)));
	if (neap_driver_capabilities(bench->driver)->virtual_memory)
		place_reservations(bench);
}

/* -- drain ------------------------------------------------------------------------------------------------------ */

#define DRAIN_SECONDS 6

/* Takes the memory, writes to it, reports by the pipe, waits to be killed. */
static void hold(uint64_t bytes, bool handles, int ready)
{
	struct bench bench = {0};
	CUdeviceptr at = 0;
	char yes = 'y';
	bool good = bench_open(&bench);

	const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = bench.device}};
	const CUmemAccessDesc access = {wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	if (good && handles) {
		good = ok(&bench, bench.cuda->cuMemAddressReserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
		for (uint64_t i = 0; i < bytes && good; i += 2 * MIB) {
			CUmemGenericAllocationHandle handle = 0;
			good = ok(&bench, bench.cuda->cuMemCreate(&handle, 2 * MIB, &wanted, 0), "cuMemCreate") &&
			       ok(&bench, bench.cuda->cuMemMap(at + i, 2 * MIB, 0, handle, 0), "cuMemMap");
		}
		good = good && ok(&bench, bench.cuda->cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess");
	} else if (good) {
		good = ok(&bench, bench.cuda->cuMemAlloc(&at, bytes), "cuMemAlloc");
	}
	if (good && !bench.dry)
		good = ok(&bench, bench.cuda->cuMemsetD8(at, 1, bytes), "cuMemsetD8") &&
		       ok(&bench, bench.cuda->cuCtxSynchronize(), "cuCtxSynchronize");
	if (!good)
		_exit(1);
	if (write(ready, &yes, 1) == 1)
		pause();
	_exit(0);
}

/* The child is started before this process opens the driver, which does not survive a fork. It holds its memory
 * once `go` tells it to, and tells when it does. */
struct holder {
	pid_t pid;
	int go, ready;
};

static bool holder_start(struct holder *holder, uint64_t bytes, bool handles)
{
	int go[2], ready[2];
	char c;

	if (pipe(go) || pipe(ready))
		return false;
	holder->pid = fork();
	if (holder->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		close(ready[0]);
		if (read(go[0], &c, 1) == 1)
			hold(bytes, handles, ready[1]);
		_exit(0);
	}
	close(go[0]);
	close(ready[1]);
	holder->go = go[1];
	holder->ready = ready[0];
	return holder->pid > 0;
}

static bool holder_take(const struct holder *holder)
{
	char c = 'g';

	return write(holder->go, &c, 1) == 1 && read(holder->ready, &c, 1) == 1;
}

static uint64_t used_by_nvml(struct bench *bench)
{
	struct neap_reading reading;

	return bench->monitor && !neap_monitor_memory(bench->monitor, bench->index, &reading, NULL)
		       ? reading.used_bytes
		       : 0;
}

static const struct {
	uint64_t mib;
	bool handles;
} drains[] = {{16, false}, {1024, false}, {1024, true}, {8192, false}, {8192, true}, {32768, false}, {65536, false}};
#define DRAINS (sizeof drains / sizeof drains[0])

static void drain_one(struct bench *bench, size_t i, struct holder *holder)
{
	uint64_t bytes = drains[i].mib * MIB, before = free_bytes(bench), used_before = used_by_nvml(bench),
		 free_ns = 0, nvml_ns = 0;

	report_object(bench->out, NULL);
	report_count(bench->out, "mib", drains[i].mib);
	report_text(bench->out, "by", drains[i].handles ? "handles of 2 MiB" : "cuMemAlloc");
	if (before < bytes + 2048 * MIB || !holder_take(holder)) {
		report_text(bench->out, "left_out", "the device has too little, or the process could not take it");
		kill(holder->pid, SIGKILL);
		waitpid(holder->pid, NULL, 0);
		report_close(bench->out);
		return;
	}
	uint64_t held = before - free_bytes(bench);
	report_count(bench->out, "held_bytes", held);
	report_signed(bench->out, "beside_its_memory_bytes", (int64_t)(held - bytes));
	uint64_t began = now_ns();
	kill(holder->pid, SIGKILL);
	waitpid(holder->pid, NULL, 0);
	report_number(bench->out, "reaped_ms", (double)(now_ns() - began) / 1e6);
	report_count(bench->out, "still_held_bytes_then", before - free_bytes(bench));
	while ((!free_ns || (bench->monitor && !nvml_ns)) && now_ns() - began < DRAIN_SECONDS * 1000000000ull) {
		if (!free_ns && free_bytes(bench) + MIB >= before)
			free_ns = now_ns() - began;
		if (bench->monitor && !nvml_ns && used_by_nvml(bench) <= used_before + MIB)
			nvml_ns = now_ns() - began;
		usleep(200);
	}
	if (free_ns)
		report_number(bench->out, "free_again_ms", (double)free_ns / 1e6);
	if (nvml_ns)
		report_number(bench->out, "free_again_by_nvml_ms", (double)nvml_ns / 1e6);
	report_close(bench->out);
}

void part_drain(struct bench *bench)
{
	struct holder holders[DRAINS] = {{0}};
	bool good = true;

	for (size_t i = 0; i < DRAINS && good; i++)
		good = holder_start(&holders[i], drains[i].mib * MIB, drains[i].handles);
	if (good && bench_open(bench)) {
		report_list(bench->out, "sizes");
		for (size_t i = 0; i < DRAINS; i++)
			drain_one(bench, i, &holders[i]);
		report_close(bench->out);
	}
	for (size_t i = 0; i < DRAINS; i++)
		if (holders[i].pid > 0)
			kill(holders[i].pid, SIGKILL);
}

/* -- limits ----------------------------------------------------------------------------------------------------- */

static void report_limit(struct bench *bench, const char *key, int resource)
{
	struct rlimit limit = {0};

	if (getrlimit(resource, &limit) == 0)
		report_signed(bench->out, key, limit.rlim_cur == RLIM_INFINITY ? -1 : (int64_t)limit.rlim_cur);
}

/* Reports a call whose result matters, even a failure: the part continues. */
static void report_result(struct bench *bench, const char *key, CUresult result)
{
	const char *name = NULL;

	if (bench->cuda->cuGetErrorName(result, &name) || !name)
		name = "unknown";
	report_text(bench->out, key, result == CUDA_SUCCESS ? "works" : name);
}

static void limit_reservation(struct bench *bench)
{
	uint64_t size = 1ull << 36;
	CUdeviceptr at = 0;

	while (size < 1ull << 48 && bench->cuda->cuMemAddressReserve(&at, size, 0, 0, 0) == CUDA_SUCCESS) {
		bench->cuda->cuMemAddressFree(at, size);
		size *= 2;
	}
	report_count(bench->out, "largest_reservation_bytes_below", size);
}

/* How many handles of 2 MiB one process maps: nearly the whole device, or until a call fails. Compares the cost of
 * the last thousand with that of the first. */
static void limit_handles(struct bench *bench)
{
	const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = bench->device}};
	const CUmemAccessDesc access = {wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	uint64_t most = (free_bytes(bench) - 2048 * MIB) / (2 * MIB), began = now_ns(), count = 0;
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr at = 0;

	if (bench->cuda->cuMemAddressReserve(&at, most * 2 * MIB, 0, 0, 0))
		return;
	for (; count < most; count++) {
		CUmemGenericAllocationHandle handle = 0;
		if (count == 1000)
			report_number(bench->out, "first_1000_handles_ms", (double)(now_ns() - began) / 1e6);
		if (count + 1000 == most)
			began = now_ns();
		if ((result = bench->cuda->cuMemCreate(&handle, 2 * MIB, &wanted, 0)) ||
		    (result = bench->cuda->cuMemMap(at + count * 2 * MIB, 2 * MIB, 0, handle, 0)) ||
		    (result = bench->cuda->cuMemSetAccess(at + count * 2 * MIB, 2 * MIB, &access, 1)))
			break;
	}
	if (count == most)
		report_number(bench->out, "last_1000_handles_ms", (double)(now_ns() - began) / 1e6);
	report_count(bench->out, "handles_mapped", count);
	report_count(bench->out, "handles_wanted", most);
	report_result(bench, "mapping_many_handles", result);
}

static void limit_sharing(struct bench *bench)
{
	const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = bench->device}};
	CUmemGenericAllocationHandle handle = 0;
	CUresult result = bench->cuda->cuMemCreate(&handle, 2 * MIB, &wanted, 0);
	CUipcMemHandle shared;
	CUdeviceptr at = 0;
	int descriptor = -1;

	report_result(bench, "exportable_handle", result);
	if (!result && bench->cuda->cuMemExportToShareableHandle) {
		result = bench->cuda->cuMemExportToShareableHandle(&descriptor, handle,
								   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		report_result(bench, "export_as_descriptor", result);
		if (!result)
			close(descriptor);
	}
	if (!bench->cuda->cuMemAlloc(&at, 2 * MIB) && bench->cuda->cuIpcGetMemHandle) {
		report_result(bench, "cuIpcGetMemHandle", bench->cuda->cuIpcGetMemHandle(&shared, at));
		bench->cuda->cuMemFree(at);
	}
}

static void limit_host(struct bench *bench)
{
	uint64_t size = 64 * MIB;
	void *pointer = NULL;

	report_list(bench->out, "pinned");
	for (; size <= (bench->dry ? 64 : 8192) * MIB; size *= 8) {
		uint64_t began = now_ns();
		CUresult result = bench->cuda->cuMemHostAlloc(&pointer, size, 0);
		report_object(bench->out, NULL);
		report_count(bench->out, "bytes", size);
		report_number(bench->out, "ms", (double)(now_ns() - began) / 1e6);
		report_result(bench, "result", result);
		if (!result) {
			began = now_ns();
			bench->cuda->cuMemFreeHost(pointer);
			report_number(bench->out, "free_ms", (double)(now_ns() - began) / 1e6);
		}
		report_close(bench->out);
		if (result)
			break;
	}
	report_close(bench->out);
}

void part_limits(struct bench *bench)
{
	if (!bench_open(bench))
		return;
	report_limit(bench, "memlock_limit_bytes", RLIMIT_MEMLOCK);
	report_limit(bench, "open_files_limit", RLIMIT_NOFILE);
	report_limit(bench, "address_space_limit_bytes", RLIMIT_AS);
	limit_host(bench);
	limit_sharing(bench);
	if (!neap_driver_capabilities(bench->driver)->virtual_memory)
		return;
	limit_reservation(bench);
	limit_handles(bench);
}
