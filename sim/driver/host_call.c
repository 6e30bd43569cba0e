/* sim/driver/host_call.c: functions of the host that streams call: cuLaunchHostFunc, cuStreamAddCallback.
 *
 * The virtual clock moves by driver calls. A program may wait for such a function without one, at a condition
 * variable of its own. A GPU goes on meanwhile: here a thread does, for a function that no driver call has run after
 * GO_ON_MS.
 */
#include "base/clock.h"
#include "sim/driver/graph.h"
#include "sim/driver/race_watch.h"

#include <stdlib.h>
#include <time.h>

#define GO_ON_MS 100

struct call {
	CUhostFn function;
	CUstreamCallback callback; /* used where `function` is NULL */
	CUstream stream;
	void *data;
};

static void call(void *argument)
{
	const struct call *called = argument;

	race_watch_host_called(called);
	if (called->function)
		called->function(called->data);
	else
		called->callback(called->stream, CUDA_SUCCESS, called->data);
}

struct late {
	uint64_t flight;
	uint32_t stream; /* the engine's number */
};

/* Lock held. */
static bool is_pending(uint64_t id)
{
	const struct sim_flight *flight = sim.flights;

	while (flight && flight->id != id)
		flight = flight->next;
	return flight && flight->function;
}

static void *go_on(void *argument)
{
	struct late late = *(struct late *)argument;
	bool pending = true;

	free(argument);
	while (pending) {
		nanosleep(&(struct timespec){.tv_nsec = GO_ON_MS * NEAP_NS_PER_MS}, NULL);
		pthread_mutex_lock(&sim.lock);
		pending = atomic_load(&sim.initialized) && is_pending(late.flight);
		pthread_mutex_unlock(&sim.lock);
		if (pending)
			(void)sim_stream_go_on(sim.engine, late.stream);
	}
	return NULL;
}

/* Without the thread the function waits for a driver call. */
static void go_on_later(uint64_t flight, uint32_t stream)
{
	struct late *late = malloc(sizeof *late);
	pthread_attr_t attributes;
	pthread_t thread;

	if (!late)
		return;
	*late = (struct late){flight, stream};
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, go_on, late) != 0)
		free(late);
	pthread_attr_destroy(&attributes);
}

static CUresult submit(const char *name, uint32_t number, const struct call *asked)
{
	struct call *called = malloc(sizeof *called);
	struct sim_task task = {.name = name, .function = call, .argument = called, .staged = called};
	CUresult result;
	uint64_t flight;

	if (!called)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*called = *asked;
	race_watch_host_call(called, asked->stream);
	result = sim_submit(asked->stream, &task, &flight);
	if (result == CUDA_SUCCESS)
		go_on_later(flight, number);
	return result;
}

CUresult sim_cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
	struct sim_task node = {
		.name = "cuLaunchHostFunc", .type = CU_GRAPH_NODE_TYPE_HOST, .function = function, .argument = data};
	CUresult result;
	uint32_t number;
	bool capturing;

	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = sim_stream_enter(stream, &number, &capturing);
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS || capturing)
		return capturing ? sim_submit(stream, &node, NULL) : result;
	return submit(node.name, number, &(struct call){.function = function, .stream = stream, .data = data});
}

/* Unlike cuLaunchHostFunc, it cannot be captured, as documented. */
CUresult sim_cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *data, unsigned int flags)
{
	CUresult result;
	uint32_t number;

	if (!function || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_stream_enter_query(stream, &number);
	if (result != CUDA_SUCCESS)
		return result;
	return submit("cuStreamAddCallback", number,
		      &(struct call){.callback = function, .stream = stream, .data = data});
}
