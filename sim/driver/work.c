/* Work on streams.
 *
 *   addresses --(mappings)--> (handle, offset) accesses --> engine: order, races, time
 *       |                                                     |
 *       +--> flights: unfinished work, by address            <+ completion
 *
 * A range is checked when its work is submitted. Two addresses can name the same bytes, and the engine knows only
 * bytes. But it is an error to unmap an address that work in flight uses, even if another address still maps the
 * bytes. Flights, which are found by address, detect it.
 *
 * In a capturing stream, work becomes a node of the graph and runs when the graph is launched.
 */
#include "sim/driver/graph.h"
#include "sim/driver/race_watch.h"

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
	sim_engine_fault_text(sim.engine, text, sizeof text);
	pthread_mutex_lock(&sim.lock);
	sim.report.races++;
	sim_detect_locked("%s", text);
	sim.report.illegal_addresses--; /* counted as a race, not as an illegal address */
	pthread_mutex_unlock(&sim.lock);
	return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* -- flights ----------------------------------------------------------------------------------------------------- */

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
	sim_operation_release(flight->operation);
	free(flight);
}

/* Called when the work ends, without any lock. */
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
	struct sim_flight *flight = malloc(sizeof *flight + task->range_count * sizeof flight->ranges[0]);

	if (!flight)
		return NULL;
	*flight = (struct sim_flight){.name = task->name,
				      .function = task->function,
				      .argument = task->argument,
				      .staged = task->staged,
				      .operation = task->operation,
				      .range_count = task->range_count};
	if (task->operation)
		atomic_fetch_add(&task->operation->references, 1);
	if (task->range_count)
		memcpy(flight->ranges, task->ranges, task->range_count * sizeof flight->ranges[0]);
	return flight;
}

/* -- addresses to bytes ------------------------------------------------------------------------------------------ */

struct accesses {
	struct sim_access *list;
	size_t count, capacity;
	struct sim_access few[8];
};

static bool accesses_add(struct accesses *accesses, struct sim_access access)
{
	if (accesses->count == accesses->capacity) {
		size_t capacity = accesses->capacity * 2;
		struct sim_access *list = malloc(capacity * sizeof *list);

		if (!list)
			return false;
		memcpy(list, accesses->list, accesses->count * sizeof *list);
		if (accesses->list != accesses->few)
			free(accesses->list);
		accesses->list = list;
		accesses->capacity = capacity;
	}
	accesses->list[accesses->count++] = access;
	return true;
}

/* Describes the error of touching this address; NULL: none. */
static const char *objection(const struct sim_mapping *mapping, uint64_t address, bool write, uint32_t device,
			     bool strict)
{
	CUmemAccess_flags access;
	uint64_t within;

	if (!mapping)
		return "is not mapped";
	within = address - mapping->range.start;
	if (mapping->reservation->pool_free)
		return "was freed";
	if (within >= mapping->valid_bytes)
		return "is beyond the end of its allocation";
	access = sim_access_of(mapping, device);
	if (!strict) /* a copy can go through the device that has the memory */
		access |= sim_access_of(mapping, mapping->handle->device);
	if ((access & CU_MEM_ACCESS_FLAGS_PROT_READ) == 0)
		return device == mapping->handle->device
			       ? "is mapped without access (cuMemSetAccess)"
			       : "is another device's, to which there is no peer access (cuCtxEnablePeerAccess, "
				 "cuMemSetAccess)";
	if (write && access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return "is mapped for reading only";
	return NULL;
}

/* One range. Lock held. */
static CUresult translate(const struct sim_task *task, const struct neap_sim_range *range, uint32_t device,
			  struct accesses *accesses)
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
		const char *wrong = objection(mapping, at, range->write != 0, device, task->strict);
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
		if (!accesses_add(accesses, (struct sim_access){mapping->handle->space, at - mapping->range.start,
								stop - at, range->write != 0}))
			return CUDA_ERROR_OUT_OF_MEMORY;
		at = stop;
	}
	return CUDA_SUCCESS;
}

/* Adds a node that does this work at each launch of the graph. Lock held. */
static CUresult capture(CUstream stream, const struct sim_task *task)
{
	struct sim_operation *operation = sim_operation_create(task);

	if (!operation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return sim_capture_add(stream, task->type, operation, NULL);
}

/* Lock held. Adds it to the flights. */
static void take_off(struct sim_flight *flight)
{
	flight->id = ++sim.next_id;
	flight->next = sim.flights;
	if (sim.flights)
		sim.flights->previous = flight;
	sim.flights = flight;
}

CUresult sim_submit(CUstream stream, const struct sim_task *task, uint64_t *ret_id)
{
	struct accesses accesses = {.capacity = sizeof accesses.few / sizeof accesses.few[0]};
	struct sim_work work = {.name = task->name, .duration_ns = task->duration_ns, .function = land};
	struct sim_flight *flight = NULL;
	bool capturing = false;
	CUresult result;
	uint32_t number, device = 0;
	size_t i;

	accesses.list = accesses.few;
	pthread_mutex_lock(&sim.lock);
	result = sim_stream_enter(stream, &number, &capturing);
	if (result == CUDA_SUCCESS)
		result = sim_stream_device(stream, &device);
	for (i = 0; result == CUDA_SUCCESS && i < task->range_count; i++)
		result = translate(task, &task->ranges[i], device, &accesses);
	if (result == CUDA_SUCCESS && capturing) {
		result = capture(stream, task);
		goto unlock;
	}
	if (result == CUDA_SUCCESS) {
		flight = flight_create(task);
		result = flight ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (flight)
		take_off(flight);
	else
		free(task->staged);
	if (flight && ret_id)
		*ret_id = flight->id;
unlock:
	pthread_mutex_unlock(&sim.lock);
	if (!flight)
		goto out;
	if (task->function) /* the function may read bytes that late work has yet to write */
		race_watch_settle(stream);
	work.accesses = accesses.list;
	work.access_count = accesses.count;
	work.argument = flight;
	result = sim_result_of(sim_stream_submit(sim.engine, number, &work));
	if (result != CUDA_SUCCESS) { /* the engine did not queue it: free it here */
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

/* The task has no `staged`: the operation keeps the staged bytes for its next launch. */
CUresult sim_submit_operation(CUstream stream, struct sim_operation *operation)
{
	struct sim_task task = {.name = operation->label,
				.duration_ns = operation->duration_ns,
				.ranges = operation->ranges,
				.range_count = operation->range_count,
				.function = operation->function,
				.argument = operation->argument,
				.strict = operation->strict,
				.operation = operation};

	return sim_submit(stream, &task, NULL);
}
