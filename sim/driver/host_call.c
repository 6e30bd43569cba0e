/* sim/driver/host_call.c: functions of the host that streams call: cuLaunchHostFunc, cuStreamAddCallback.
 *
 * Driver calls move the virtual clock. But a program may wait for such a function without a driver call, at a
 * condition variable of its own. A GPU runs it meanwhile. Here a thread moves the clock, if no driver call has run
 * the function after GO_ON_MS.
 */
#include "base/clock.h"
#include "sim/driver/graph.h"
#include "sim/driver/race_watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define GO_ON_MS 100

struct call {
	CUhostFn function;
	CUstreamCallback callback; /* used where `function` is NULL */
	CUstream stream;
	uint32_t number; /* the engine's number of the stream */
	void *data;
};

/* For races.c, a call is an event that is recorded at its place in the stream. When the function runs, the host
 * counts as having waited for that event, because nobody knows what the function reports to the program's threads. */
static CUevent as_event(const struct call *called) { return (CUevent)(uintptr_t)called; }

static void call(void *argument)
{
	const struct call *called = argument;

	race_watch_host_event(as_event(called));
	race_watch_event_gone(as_event(called));
	if (called->function)
		called->function(called->data);
	else
		called->callback(called->stream, CUDA_SUCCESS, called->data);
}

/* Returns the oldest call that has not run; NULL: there is none. Lock held. */
static const struct call *oldest(void)
{
	const struct call *found = NULL;

	for (const struct sim_flight *flight = sim.flights; flight; flight = flight->next)
		if (flight->function == call)
			found = flight->argument;
	return found;
}

static struct {
	bool runs;         /* the thread exists */
	bool is_in_engine; /* the thread is inside the engine */
	pthread_cond_t left;
} late = {.left = PTHREAD_COND_INITIALIZER}; /* sim.lock guards it */

static void *go_on(void *unused)
{
	const struct call *waits;

	(void)unused;
	do {
		nanosleep(&(struct timespec){.tv_nsec = GO_ON_MS * NEAP_NS_PER_MS}, NULL);
		pthread_mutex_lock(&sim.lock);
		waits = atomic_load(&sim.initialized) && !atomic_load(&sim.ended) ? oldest() : NULL;
		late.runs = late.is_in_engine = waits != NULL;
		uint32_t stream = waits ? waits->number : 0;
		pthread_mutex_unlock(&sim.lock);
		if (!waits)
			break;
		if (!sim_stream_go_on(sim.engine, stream)) /* the stream was destroyed, or the clock is held */
			sim_engine_advance(sim.engine, GO_ON_MS * NEAP_NS_PER_MS);
		pthread_mutex_lock(&sim.lock);
		late.is_in_engine = false;
		pthread_cond_broadcast(&late.left);
		pthread_mutex_unlock(&sim.lock);
	} while (true);
	return NULL;
}

/* Starts the thread. If that fails, the function waits for the next driver call. */
static void go_on_later(void)
{
	pthread_attr_t attributes;
	sigset_t all, old;
	pthread_t thread;

	pthread_mutex_lock(&sim.lock);
	if (!late.runs) {
		pthread_attr_init(&attributes);
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
		sigfillset(&all); /* signals are for the program's own threads */
		pthread_sigmask(SIG_SETMASK, &all, &old);
		late.runs = pthread_create(&thread, &attributes, go_on, NULL) == 0;
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		pthread_attr_destroy(&attributes);
	}
	pthread_mutex_unlock(&sim.lock);
}

void sim_host_calls_leave(void)
{
	while (late.is_in_engine && !atomic_load(&sim.forked)) /* a forked child does not have the thread */
		pthread_cond_wait(&late.left, &sim.lock);
}

static CUresult submit(const char *name, const struct call *asked)
{
	struct call *called = malloc(sizeof *called);
	struct sim_task task = {.name = name, .function = call, .argument = called, .staged = called};
	CUresult result;

	if (!called)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*called = *asked;
	race_watch_recorded(as_event(called), asked->stream);
	result = sim_submit(asked->stream, &task, NULL);
	if (result == CUDA_SUCCESS)
		go_on_later();
	else
		race_watch_event_gone(as_event(called));
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
	return submit(node.name,
		      &(struct call){.function = function, .stream = stream, .number = number, .data = data});
}

/* Unlike cuLaunchHostFunc, this call cannot be captured, as documented. */
CUresult sim_cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *data, unsigned int flags)
{
	CUresult result;
	uint32_t number;

	if (!function || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_stream_enter_query(stream, &number);
	if (result != CUDA_SUCCESS)
		return result;
	return submit("cuStreamAddCallback",
		      &(struct call){.callback = function, .stream = stream, .number = number, .data = data});
}
