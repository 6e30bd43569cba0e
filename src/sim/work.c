/* Work on streams: kernels, copies, sets.
 *
 *   addresses --(mappings)--> (handle, offset) accesses --> engine: order, races, time
 *       |                                                     |
 *       +--> flights: what is under way over which addresses <+ completion
 *
 * A range is judged when its work is submitted. Flights exist because two addresses may name the same bytes: the
 * engine knows bytes, but taking an address away while work uses *it* is the error to detect, whatever else still
 * maps them.
 *
 * Copies from and to ordinary (pageable) host memory behave as the driver documents: the source is taken at the call,
 * and a copy to it has happened when the call returns.
 */
#include "sim/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CUresult sim_result_of(enum sim_order order)
{
	char text[400];

	switch (order) {
	case SIM_ORDER_OK:
		return CUDA_SUCCESS;
	case SIM_ORDER_NOT_READY:
		return CUDA_ERROR_NOT_READY;
	case SIM_ORDER_BAD_HANDLE:
		return CUDA_ERROR_INVALID_HANDLE;
	case SIM_ORDER_NO_MEMORY:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case SIM_ORDER_RACE:
		break;
	}
	sim_engine_fault_text(sim.engine, text, sizeof(text));
	pthread_mutex_lock(&sim.lock);
	sim.report.races++;
	sim_detect_locked("%s", text);
	sim.report.illegal_addresses--; /* it is a race, counted as such */
	pthread_mutex_unlock(&sim.lock);
	return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* -- flights ---------------------------------------------------------------------------------------------------- */

static void flight_unlink(struct sim_flight *flight)
{
	if (flight->previous)
		flight->previous->next = flight->next;
	else
		sim.flights = flight->next;
	if (flight->next)
		flight->next->previous = flight->previous;
}

static void flight_free(struct sim_flight *flight)
{
	free(flight->staged);
	free(flight);
}

/* Runs at the work's end, without any lock. */
static void land(void *argument)
{
	struct sim_flight *flight = argument;
	void (*function)(void *);

	pthread_mutex_lock(&sim.lock);
	function = flight->function;
	pthread_mutex_unlock(&sim.lock);
	if (function)
		function(flight->argument);
	pthread_mutex_lock(&sim.lock);
	flight_unlink(flight);
	pthread_mutex_unlock(&sim.lock);
	flight_free(flight);
}

void sim_flight_cancel(uint64_t id)
{
	struct sim_flight *flight;

	pthread_mutex_lock(&sim.lock);
	for (flight = sim.flights; flight && flight->id != id; flight = flight->next)
		;
	if (flight)
		flight->function = NULL;
	pthread_mutex_unlock(&sim.lock);
}

void sim_flights_drop(void)
{
	while (sim.flights) {
		struct sim_flight *flight = sim.flights;

		flight_unlink(flight);
		flight_free(flight);
	}
}

const struct sim_flight *sim_flight_over(uint64_t start, uint64_t bytes)
{
	const struct sim_flight *flight;
	size_t i;

	for (flight = sim.flights; flight; flight = flight->next)
		for (i = 0; i < flight->range_count; i++)
			if (flight->ranges[i].address < start + bytes &&
			    start < flight->ranges[i].address + flight->ranges[i].bytes)
				return flight;
	return NULL;
}

bool sim_flight_clear(const char *what, uint64_t start, uint64_t bytes)
{
	const struct sim_flight *flight = sim_flight_over(start, bytes);

	if (flight)
		sim_detect_locked(
			"%s of %#llx, %llu bytes, while '%s' uses it and is not finished: synchronise first", what,
			(unsigned long long)start, (unsigned long long)bytes, flight->name);
	return !flight;
}

static struct sim_flight *flight_create(const struct sim_task *task)
{
	struct sim_flight *flight = malloc(sizeof(*flight) + task->range_count * sizeof(flight->ranges[0]));

	if (!flight)
		return NULL;
	*flight = (struct sim_flight){.name = task->name,
				      .function = task->function,
				      .argument = task->argument,
				      .staged = task->staged,
				      .range_count = task->range_count};
	if (task->range_count)
		memcpy(flight->ranges, task->ranges, task->range_count * sizeof(flight->ranges[0]));
	return flight;
}

/* -- addresses to bytes ----------------------------------------------------------------------------------------- */

struct accesses {
	struct sim_access *list;
	size_t count, room;
	struct sim_access few[8];
};

static bool accesses_add(struct accesses *accesses, struct sim_access access)
{
	if (accesses->count == accesses->room) {
		size_t room = accesses->room * 2;
		struct sim_access *list = malloc(room * sizeof(*list));

		if (!list)
			return false;
		memcpy(list, accesses->list, accesses->count * sizeof(*list));
		if (accesses->list != accesses->few)
			free(accesses->list);
		accesses->list = list;
		accesses->room = room;
	}
	accesses->list[accesses->count++] = access;
	return true;
}

/* What is wrong with touching this address, in words; NULL: nothing. */
static const char *objection(const struct sim_mapping *mapping, uint64_t address, bool write)
{
	uint64_t within;

	if (!mapping)
		return "is not mapped";
	within = address - mapping->range.start;
	if (mapping->reservation->pool_free)
		return "was freed";
	if (within >= mapping->valid_bytes)
		return "is beyond the end of its allocation";
	if ((mapping->access & CU_MEM_ACCESS_FLAGS_PROT_READ) == 0)
		return "is mapped without access (cuMemSetAccess)";
	if (write && mapping->access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return "is mapped for reading only";
	return NULL;
}

/* One range. Lock held. */
static CUresult translate(const struct sim_task *task, const struct neap_sim_range *range, struct accesses *accesses)
{
	uint64_t at = range->address, end = range->address + range->bytes;
	struct sim_host *pinned = (struct sim_host *)sim_ranges_find(&sim.hosts, at, 1);

	if (range->bytes == 0)
		return CUDA_SUCCESS;
	if (end < at)
		return CUDA_ERROR_INVALID_VALUE;
	if (pinned && end <= pinned->range.start + pinned->range.bytes)
		return accesses_add(accesses, (struct sim_access){pinned->space, at - pinned->range.start,
								  range->bytes, range->write != 0})
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_OUT_OF_MEMORY;
	while (at < end) {
		struct sim_mapping *mapping = sim_mapping_at(at);
		const char *wrong = objection(mapping, at, range->write != 0);
		uint64_t stop;

		if (wrong && !mapping && !task->strict)
			return CUDA_ERROR_INVALID_VALUE;
		if (wrong)
			return sim_detect_locked("'%s' %s %llu bytes at %#llx, but address %#llx %s", task->name,
						 range->write ? "writes" : "reads", (unsigned long long)range->bytes,
						 (unsigned long long)range->address, (unsigned long long)at, wrong);
		stop = mapping->range.start + mapping->valid_bytes;
		if (stop > end)
			stop = end;
		if (!accesses_add(accesses, (struct sim_access){mapping->handle->id, at - mapping->range.start,
								stop - at, range->write != 0}))
			return CUDA_ERROR_OUT_OF_MEMORY;
		at = stop;
	}
	return CUDA_SUCCESS;
}

CUresult sim_submit(CUstream stream, const struct sim_task *task, uint64_t *ret_id)
{
	struct accesses accesses = {.room = sizeof(accesses.few) / sizeof(accesses.few[0])};
	struct sim_flight *flight = flight_create(task);
	struct sim_work work = {.name = task->name, .duration_ns = task->duration_ns, .function = land};
	CUresult result;
	uint32_t number;
	bool captured;
	size_t i;

	accesses.list = accesses.few;
	if (!flight) {
		free(task->staged);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = sim_stream_number(stream, &number);
	pthread_mutex_lock(&sim.lock);
	for (i = 0; result == CUDA_SUCCESS && i < task->range_count; i++)
		result = translate(task, &task->ranges[i], &accesses);
	captured = result == CUDA_SUCCESS && sim_stream_capturing(stream);
	if (captured)
		sim.capture.nodes++;
	if (result == CUDA_SUCCESS && !captured) {
		flight->id = ++sim.next_id;
		flight->next = sim.flights;
		if (sim.flights)
			sim.flights->previous = flight;
		sim.flights = flight;
		if (ret_id)
			*ret_id = flight->id;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS || captured) {
		flight_free(flight);
		goto out;
	}
	work.accesses = accesses.list;
	work.access_count = accesses.count;
	work.argument = flight;
	result = sim_result_of(sim_stream_submit(sim.engine, number, &work));
	if (result != CUDA_SUCCESS) { /* not queued: it is ours again */
		pthread_mutex_lock(&sim.lock);
		flight_unlink(flight);
		pthread_mutex_unlock(&sim.lock);
		flight_free(flight);
	}
out:
	if (accesses.list != accesses.few)
		free(accesses.list);
	return result;
}

/* -- copies and sets -------------------------------------------------------------------------------------------- */

#define COPY_START_NS 2000
#define HOST_PER_NS   25   /* bytes: PCIe 4, 25 GB/s */
#define DEVICE_PER_NS 1000 /* bytes: about 1 TB/s */

struct copy {
	void *to;
	const void *from;
	size_t bytes;
	unsigned char staged[]; /* a pageable source's bytes */
};

static void do_copy(void *argument)
{
	const struct copy *copy = argument;

	memmove(copy->to, copy->from, copy->bytes);
}

static void *host(CUdeviceptr address) { return (void *)(uintptr_t)address; }

enum side { HOST, DEVICE };

static bool pinned(const void *pointer)
{
	bool found;

	pthread_mutex_lock(&sim.lock);
	found = sim_ranges_find(&sim.hosts, (uint64_t)(uintptr_t)pointer, 1) != NULL;
	pthread_mutex_unlock(&sim.lock);
	return found;
}

struct transfer {
	const char *name;
	void *to;
	const void *from;
	size_t bytes;
	enum side to_side, from_side;
	CUstream stream;
	bool wait; /* a synchronous copy */
};

static CUresult transfer(const struct transfer *asked)
{
	bool stage = asked->from_side == HOST && !pinned(asked->from);
	bool wait = asked->wait || (asked->to_side == HOST && !pinned(asked->to));
	struct neap_sim_range ranges[2];
	struct sim_task task = {.name = asked->name, .ranges = ranges, .function = do_copy};
	struct copy *copy;
	CUresult result;
	uint64_t id = 0;

	if (asked->bytes == 0)
		return CUDA_SUCCESS;
	if (!asked->to || !asked->from)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim.spec.no_backing)
		return CUDA_ERROR_NOT_SUPPORTED; /* there are no bytes */
	copy = malloc(sizeof(*copy) + (stage ? asked->bytes : 0));
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*copy = (struct copy){asked->to, stage ? copy->staged : asked->from, asked->bytes};
	if (stage)
		memcpy(copy->staged, asked->from, asked->bytes);
	if (asked->to_side == DEVICE || !wait)
		ranges[task.range_count++] = (struct neap_sim_range){(uint64_t)(uintptr_t)asked->to, asked->bytes, 1};
	if (asked->from_side == DEVICE || !stage)
		ranges[task.range_count++] =
			(struct neap_sim_range){(uint64_t)(uintptr_t)asked->from, asked->bytes, 0};
	task.argument = task.staged = copy;
	task.duration_ns =
		COPY_START_NS + asked->bytes / (asked->to_side == asked->from_side ? DEVICE_PER_NS : HOST_PER_NS);
	result = sim_submit(asked->stream, &task, &id);
	if (result == CUDA_SUCCESS && wait && id != 0) {
		result = sim_cuStreamSynchronize(asked->stream);
		if (result != CUDA_SUCCESS)
			sim_flight_cancel(id); /* the caller's memory may be gone by then */
	}
	return result;
}

CUresult sim_cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
	return transfer(&(struct transfer){"cuMemcpyHtoD", host(to), from, bytes, DEVICE, HOST, NULL, true});
}

CUresult sim_cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
	return transfer(&(struct transfer){"cuMemcpyDtoH", to, host(from), bytes, HOST, DEVICE, NULL, true});
}

CUresult sim_cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	/* As documented, asynchronous to the host though not named so. */
	return transfer(&(struct transfer){"cuMemcpyDtoD", host(to), host(from), bytes, DEVICE, DEVICE, NULL, false});
}

CUresult sim_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	return transfer(&(struct transfer){"cuMemcpyHtoDAsync", host(to), from, bytes, DEVICE, HOST, stream, false});
}

CUresult sim_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return transfer(&(struct transfer){"cuMemcpyDtoHAsync", to, host(from), bytes, HOST, DEVICE, stream, false});
}

CUresult sim_cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return transfer(
		&(struct transfer){"cuMemcpyDtoDAsync", host(to), host(from), bytes, DEVICE, DEVICE, stream, false});
}

struct set {
	void *to;
	size_t count;
	unsigned int value;
	unsigned int width; /* bytes: 1 or 4 */
};

static void do_set(void *argument)
{
	const struct set *set = argument;
	uint32_t *words = set->to;
	size_t i;

	if (set->width == 1)
		memset(set->to, (int)set->value, set->count);
	else
		for (i = 0; i < set->count; i++)
			words[i] = set->value;
}

static CUresult set_memory(const char *name, CUdeviceptr to, unsigned int value, unsigned int width, size_t count,
			   CUstream stream)
{
	struct neap_sim_range range = {to, count * width, 1};
	struct sim_task task = {.name = name, .ranges = &range, .range_count = 1, .function = do_set};
	struct set *set;

	if (count == 0)
		return CUDA_SUCCESS;
	if (to == 0 || to % width != 0 || count > SIM_MEMORY_LIMIT)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim.spec.no_backing)
		return CUDA_ERROR_NOT_SUPPORTED;
	set = malloc(sizeof(*set));
	if (!set)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*set = (struct set){host(to), count, value, width};
	task.argument = task.staged = set;
	task.duration_ns = COPY_START_NS + range.bytes / DEVICE_PER_NS;
	return sim_submit(stream, &task, NULL);
}

CUresult sim_cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count)
{
	return set_memory("cuMemsetD8", to, value, 1, count, NULL);
}

CUresult sim_cuMemsetD32(CUdeviceptr to, unsigned int value, size_t count)
{
	return set_memory("cuMemsetD32", to, value, 4, count, NULL);
}

CUresult sim_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
	return set_memory("cuMemsetD8Async", to, value, 1, count, stream);
}

CUresult sim_cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream)
{
	return set_memory("cuMemsetD32Async", to, value, 4, count, stream);
}
