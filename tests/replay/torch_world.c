/* See the header. */
#include "torch_world.h"

#include "replay/torch_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void observe(void *context, enum neap_torch_action action, uint64_t address, uint64_t size, uint64_t stream)
{
	static const char *const words[NEAP_TORCH_ACTIONS] = {[NEAP_TORCH_SEGMENT_ALLOC] = "+",
							      [NEAP_TORCH_SEGMENT_FREE] = "-",
							      [NEAP_TORCH_SEGMENT_MAP] = "m+",
							      [NEAP_TORCH_SEGMENT_UNMAP] = "m-",
							      [NEAP_TORCH_OOM] = "oom "};
	struct world *world = context;
	size_t used = strlen(world->log);
	(void)address;
	(void)stream;
	if (words[action])
		snprintf(world->log + used, sizeof world->log - used, "%s%s%lluM", used ? " " : "", words[action],
			 (unsigned long long)(size / MIB));
}

/* The driver's next segment lies below the last. */
static uint64_t place_below(void *context, uint64_t size, uint64_t stream, uint32_t pool, uint64_t page_bytes)
{
	struct world *world = context;
	(void)stream;
	(void)pool;
	(void)page_bytes;
	return world->falling ? (world->falling -= size) : 0;
}

void open_as(struct world *world, unsigned minor, const char *settings, uint64_t device_mib, bool falling)
{
	unsigned from, to;
	struct neap_torch_options options = {.device_bytes = device_mib * MIB,
					     .rules = neap_torch_rules(minor, &from, &to),
					     .first_address = BASE,
					     .observe = observe,
					     .place = place_below,
					     .context = world};
	*world = (struct world){.falling = falling ? BASE + 1024 * MIB : 0};
	neap_torch_settings_default(&options.settings);
	assert_int_equal(neap_torch_settings_parse(settings, &options.settings, NULL), NEAP_OK);
	options.event_delay = 10;
	assert_int_equal(neap_torch_create(&options, &world->policy, NULL), NEAP_OK);
}

void open_world(struct world *world, const char *settings, uint64_t device_mib)
{
	open_as(world, 6, settings, device_mib, false);
}

void close_world(struct world *world)
{
	struct neap_error err = {0};
	if (world->policy->check(world->policy, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	world->policy->destroy(world->policy);
}

void *take_on(struct world *world, uint64_t bytes, uint64_t stream)
{
	struct neap_error err = {0};
	void *block = NULL;
	if (world->policy->alloc(world->policy, bytes, stream, 0, &block, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return block;
}

void *take(struct world *world, uint64_t bytes) { return take_on(world, bytes, 0); }

void give(struct world *world, void *block)
{
	assert_int_equal(world->policy->free(world->policy, block, NULL), NEAP_OK);
}

void refuse(struct world *world, uint64_t bytes)
{
	void *block = NULL;
	assert_int_equal(world->policy->alloc(world->policy, bytes, 0, 0, &block, NULL), NEAP_EOOM);
	assert_null(block);
}

void expect_log(struct world *world, const char *wanted)
{
	assert_string_equal(world->log, wanted);
	world->log[0] = '\0';
}

uint64_t at(const void *block) { return ((const struct block *)block)->address - BASE; }

struct neap_policy_usage usage(struct world *world)
{
	struct neap_policy_usage usage;
	world->policy->usage(world->policy, &usage);
	return usage;
}
