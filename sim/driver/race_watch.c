/* sim/driver/race_watch.c: see the header; and the public calls of struct neap_sim_races. */
#include "sim/driver/race_watch.h"

#include "sim/driver/graph.h"
#include "sim/driver/races.h"

#include <stdlib.h>
#include <string.h>

struct race_recording {
	uint32_t references;
	struct neap_sim_uses *list; /* each with its own array of touches */
	size_t count, capacity;
};

static _Atomic(struct sim_races *) watched; /* NULL: not started yet. It stays until the process ends */

static struct sim_races *watching(void)
{
	return atomic_load(&sim.forked) ? NULL : atomic_load_explicit(&watched, memory_order_acquire);
}

/* State of each thread, in its static block: no allocation at the first use. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
	bool works;   /* it has submitted work, so it is a thread of the program, not a watchdog */
	bool asks;    /* the program itself queries events on it */
	bool freeing; /* it last reported a freed block: the next events are its allocator's */
} self;

static uint64_t key(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

/* Returns a stream's identity. The keys of null streams are no other stream's id: see
 * sim_cuStreamCreateWithPriority. */
static struct sim_race_stream identity_on(CUstream stream, uint32_t device)
{
	if (sim_null_stream(stream))
		return (struct sim_race_stream){.key = device + 1, .device = device, .null = true};
	return (struct sim_race_stream){.key = stream->id,
					.device = stream->context->device,
					.blocking = !(stream->flags & CU_STREAM_NON_BLOCKING)};
}

static struct sim_race_stream identity(CUstream stream)
{
	uint32_t device = 0;

	if (sim_null_stream(stream))
		(void)sim_current_device(&device);
	return identity_on(stream, device);
}

void race_watch_recorded(CUevent event, CUstream stream)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_record(races, key(event), identity(stream), self.freeing);
}

void race_watch_waited(CUstream stream, CUevent event)
{
	struct sim_races *races = watching();

	self.freeing = false;
	if (races)
		sim_races_wait(races, identity(stream), key(event));
}

void race_watch_host_event(CUevent event)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_host_event(races, key(event));
}

void race_watch_host_stream(CUstream stream)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_host_stream(races, identity(stream));
}

void race_watch_host_device(uint32_t device)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_host_device(races, device);
}

bool race_watch_asked(CUevent event)
{
	struct sim_races *races = watching();

	self.freeing = false;
	if (races && !sim_races_asked(races, key(event), self.works || self.asks ? key(&self) : 0))
		return false;
	if (self.asks)
		race_watch_host_event(event);
	return true;
}

bool race_watch_asked_stream(CUstream stream)
{
	struct sim_races *races = watching();

	return !races || sim_races_asked_stream(races, identity(stream));
}

void race_watch_settle(CUstream stream)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_settle(races, identity(stream));
}

void race_watch_settle_all(void)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_settle_all(races);
}

void race_watch_event_gone(CUevent event)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_forget_event(races, key(event));
}

void race_watch_stream_gone(CUstream stream)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_forget_stream(races, stream->id);
}

/* -- graphs ------------------------------------------------------------------------------------------------------ */

void race_watch_launch_begins(const void *executable, CUstream stream)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_wait(races, identity(stream), key(executable));
	race_watch_settle(stream);
}

void race_watch_replayed(const struct race_recording *recording, CUstream stream)
{
	struct sim_races *races = watching();

	for (size_t i = 0; races && recording && i < recording->count; i++)
		sim_races_replay(races, identity(stream), &recording->list[i]);
}

void race_watch_launch_ends(const void *executable, CUstream stream)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_record(races, key(executable), identity(stream), false);
}

void race_watch_executable_gone(const void *executable)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_forget_event(races, key(executable));
}

struct race_recording *race_recording_keep(struct race_recording *recording)
{
	if (recording)
		recording->references++;
	return recording;
}

void race_recording_release(struct race_recording *recording)
{
	if (!recording || --recording->references > 0)
		return;
	for (size_t i = 0; i < recording->count; i++)
		free((void *)(uintptr_t)recording->list[i].touches);
	free(recording->list);
	free(recording);
}

static bool recording_grow(struct race_recording *recording)
{
	size_t capacity = recording->capacity ? 2 * recording->capacity : 16;
	struct neap_sim_uses *list = realloc(recording->list, capacity * sizeof *list);

	if (!list)
		return false;
	recording->list = list;
	recording->capacity = capacity;
	return true;
}

/* If host memory is short, launches of the graph report no uses. Lock held. */
static void record(CUgraph graph, const struct neap_sim_uses *uses)
{
	size_t bytes = uses->count * sizeof *uses->touches;
	struct neap_sim_touch *touches = malloc(bytes ? bytes : 1);

	if (!graph->uses && (graph->uses = calloc(1, sizeof *graph->uses)) != NULL)
		graph->uses->references = 1;
	if (!touches || !graph->uses ||
	    (graph->uses->count == graph->uses->capacity && !recording_grow(graph->uses))) {
		free(touches);
		return;
	}
	if (bytes)
		memcpy(touches, uses->touches, bytes);
	graph->uses->list[graph->uses->count] = *uses;
	graph->uses->list[graph->uses->count++].touches = touches;
}

/* Whether the stream is captured. If so, adds `uses` to its graph; NULL: adds none. */
static bool is_captured(CUstream stream, const struct neap_sim_uses *uses)
{
	bool capturing;

	if (sim_null_stream(stream) || atomic_load(&sim.capture_count) == 0)
		return false;
	pthread_mutex_lock(&sim.lock);
	capturing = sim_stream_known(stream) && stream->capture;
	if (capturing && uses)
		record(stream->capture->graph, uses);
	pthread_mutex_unlock(&sim.lock);
	return capturing;
}

/* -- the public calls -------------------------------------------------------------------------------------------- */

static int start(void (*report)(const struct neap_sim_race *race), void (*limited)(const char *what))
{
	struct sim_races *races = watching();

	if (!races && (races = sim_races_create(report, limited)) != NULL)
		atomic_store_explicit(&watched, races, memory_order_release);
	return races != NULL;
}

static void work(void *handle, const struct neap_sim_uses *uses)
{
	struct sim_races *races = watching();
	CUstream stream = handle;

	self.works = true;
	self.freeing = false;
	if (races && !is_captured(stream, uses))
		sim_races_work(races, identity(stream), uses);
}

static void host(const struct neap_sim_uses *uses)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_host(races, uses);
}

static void allocated(uint64_t address, uint64_t bytes, void *stream, uint32_t device, uint32_t stack, int kept)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_allocated(races, address, bytes, identity_on(stream, device), stack,
				    kept || is_captured(stream, NULL));
}

static void freed(uint64_t address, uint32_t stack)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_freed(races, address, stack, !self.works);
	self.freeing = true;
}

static void reusable(uint64_t address)
{
	struct sim_races *races = watching();

	self.freeing = false;
	if (races)
		sim_races_reusable(races, address);
}

static void unmapped(uint64_t address, uint64_t bytes, uint32_t stack, int waited)
{
	struct sim_races *races = watching();

	if (races && waited)
		sim_races_forget(races, address, bytes);
	if (races)
		sim_races_unmapped(races, address, bytes, stack);
}

static void forget(uint64_t address, uint64_t bytes)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_forget(races, address, bytes);
}

static void asks(int own) { self.asks = own; }
static void saw_stream(void *stream) { race_watch_host_stream(stream); }

static void again(void)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_again(races);
}

static int delay(uint64_t seed)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_delay(races, seed);
	return races != NULL;
}

static int delays(void)
{
	struct sim_races *races = watching();

	return races && sim_races_delays(races);
}

static void later(void *stream, void (*function)(void *argument), void *argument)
{
	struct sim_races *races = watching();

	if (races)
		sim_races_later(races, identity(stream), function, argument);
	else
		function(argument);
}

static void settle(void *stream) { race_watch_settle(stream); }

static void fail(void)
{
	int none = CUDA_SUCCESS;

	atomic_compare_exchange_strong(&sim.sticky, &none, CUDA_ERROR_ASSERT);
}

static int is_pinned(uint64_t address)
{
	bool found;

	pthread_mutex_lock(&sim.lock);
	found = sim_host_at(address) != NULL;
	pthread_mutex_unlock(&sim.lock);
	return found;
}

const struct neap_sim_races race_watch_calls = {
	.version = 3,
	.start = start,
	.work = work,
	.host = host,
	.allocated = allocated,
	.freed = freed,
	.reusable = reusable,
	.unmapped = unmapped,
	.forget = forget,
	.asks = asks,
	.saw_stream = saw_stream,
	.is_pinned = is_pinned,
	.again = again,
	.delay = delay,
	.delays = delays,
	.later = later,
	.settle = settle,
	.fail = fail,
};
