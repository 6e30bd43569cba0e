#include "harness.h"

#include "alloc/front/front.h"
#include "base/clock.h"

static void on_event(void *context, const struct neap_event *event)
{
	struct events *events = context;
	if (events->count < EVENTS_KEPT)
		events->list[events->count++] = *event;
}

static uint16_t on_name(void *context, const char *text)
{
	struct events *events = context;
	for (uint16_t i = 0; i < events->name_count; i++)
		if (strcmp(events->names[i], text) == 0)
			return i;
	if (events->name_count == 64)
		return 0;
	snprintf(events->names[events->name_count], sizeof events->names[0], "%s", text);
	return events->name_count++;
}

void world_open(struct world *world, const char *spec)
{
	struct neap_error err = {0};
	char text[256];
	memset(world, 0, sizeof *world);
	world->events.name_count = 1;
	world->observer = (struct neap_observer){on_event, on_name, &world->events,
						 .concurrent = getenv("TEST_CONCURRENT") != NULL};
	const char *shared = getenv("TEST_WORLD"); /* set when processes share one world */
	if (shared)
		snprintf(text, sizeof text, "%s,world=%s", spec, shared);
	else
		snprintf(text, sizeof text, "%s,world=alloc-%d", spec, (int)getpid());
	setenv("NEAP_SIM", text, 1);
	if (neap_driver_open(NEAP_BACKEND_SIM, &world->driver, &err) ||
	    neap_device_open(world->driver, 0, &world->device, &err))
		fail_msg("%s", err.message);
	world->sim = neap_driver_sim(world->driver);
	assert_non_null(world->sim);
	world->cuda = neap_driver_cuda(world->driver);
	assert_int_equal(neap_device_enter(world->device, &world->guard, &err), NEAP_OK);
}

void world_close(struct world *world)
{
	struct neap_sim_fault_report report;
	neap_alloc_destroy(world->alloc);
	world->sim->report(&report);
	assert_string_equal(report.text, "");
	neap_device_leave(&world->guard);
	neap_device_close(world->device);
	neap_driver_close(world->driver);
}

void world_alloc(struct world *world, double fraction)
{
	struct neap_error err = {0};
	struct neap_alloc_options options = {.fraction = fraction, .observer = &world->observer};
	if (neap_alloc_create(world->device, &options, &world->alloc, &err))
		fail_msg("%s", err.message);
}

void world_look(struct world *world)
{
	struct neap_error err = {0};
	struct neap_sim_fault_report report;
	if (neap_alloc_check(world->alloc, &err))
		fail_msg("%s", err.message);
	world->sim->report(&report);
	assert_string_equal(report.text, "");
}

void world_check(struct world *world)
{
	world_look(world);
	neap_alloc_lock(world->alloc);
	neap_front_flush(world->alloc);
	neap_alloc_unlock(world->alloc);
	world_look(world);
}

uint64_t take(struct world *world, size_t bytes, void *stream)
{
	struct neap_error err = {0};
	uint64_t address = 0;
	if (neap_malloc(world->alloc, bytes, stream, &address, &err))
		fail_msg("%s", err.message);
	assert_int_equal(address % 512, 0);
	return address;
}

void give(struct world *world, uint64_t address) { assert_int_equal(neap_free(world->alloc, address), NEAP_OK); }

void *stream_new(struct world *world)
{
	CUstream stream = NULL;
	assert_int_equal(world->cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	return stream;
}

void touch(struct world *world, void *stream, uint64_t address, uint64_t bytes, int write, uint64_t duration_ns)
{
	struct neap_sim_range range = {address, bytes, write};
	struct neap_sim_kernel kernel = {
		.name = "touch", .duration_ns = duration_ns, .ranges = &range, .range_count = 1};
	int result = world->sim->launch(stream, &kernel);
	if (result) {
		struct neap_sim_fault_report report;
		world->sim->report(&report);
		fail_msg("launch: %d: %s", result, report.text);
	}
}

int64_t metric(struct world *world, enum neap_metric which)
{
	struct neap_stats stats;
	neap_get_stats(world->alloc, &stats);
	return stats.metric[which][NEAP_CLASS_ALL].current;
}

const struct neap_event *event_find(const struct events *events, enum neap_event_kind kind, size_t skip)
{
	for (size_t i = 0; i < events->count; i++)
		if (events->list[i].kind == kind && skip-- == 0)
			return &events->list[i];
	return NULL;
}

uint64_t random_next(uint64_t *state)
{
	uint64_t x = (*state += 0x9e3779b97f4a7c15ull);
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

int world_setup(void **state)
{
	struct world *world = calloc(1, sizeof *world);
	world_open(world, "mem=256MiB,reserved=0,context=16MiB");
	world_alloc(world, 0);
	*state = world;
	return 0;
}

int world_teardown(void **state)
{
	world_close(*state);
	free(*state);
	return 0;
}
