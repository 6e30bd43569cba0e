/* agent/release.c: gives back memory cached on a device on which another process is out of memory.
 *
 * The other process waits for the answer, and this one may be asking it at the same moment. So this file waits
 * neither for an allocator's lock, which it only tries, nor for work of the device: it tries again while the peer's
 * time lasts. PyTorch's own allocator is asked as for `neap clear`: the program's main thread empties the cache, if
 * it can begin in that time.
 */
#include "agent/agent.h"
#include "agent/external.h"

#include "alloc/agent.h"
#include "base/clock.h"
#include "base/error.h"
#include "proto/commands.h"

#include <string.h>

#define MOST_MS    150
#define AGAIN_NS   NEAP_NS_PER_MS
#define BUSY_TRIES 10 /* if another thread holds the allocator's lock: most hold it for microseconds */

/* Gives back memory of one allocator. Returns the bytes; *err is the last failure, if any. */
static uint64_t release_one(struct neap_alloc *alloc, const struct neap_deadline *deadline, struct neap_error *err)
{
	uint64_t bytes = 0;
	for (unsigned busy = 0; busy < BUSY_TRIES;) {
		struct neap_given_back given = {0};
		enum neap_status status = neap_give_back(alloc, &given, err);
		bytes += given.bytes;
		busy += status == NEAP_EBUSY;
		bool again = status == NEAP_EBUSY || (!status && given.more);
		if (!again || neap_deadline_over(deadline))
			break;
		if (!given.bytes)
			neap_clock_sleep(neap_clock_system(), AGAIN_NS);
	}
	return bytes;
}

static uint64_t release_own(const void *uuid, const struct neap_deadline *deadline, struct neap_error *err)
{
	struct neap_alloc *allocators[AGENT_ALLOCATORS];
	size_t count = agent_pin(allocators);
	uint64_t bytes = 0;
	for (size_t i = 0; i < count; i++)
		if (memcmp(neap_device_info(neap_alloc_device(allocators[i]))->uuid, uuid, 16) == 0)
			bytes += release_one(allocators[i], deadline, err);
	agent_unpin(allocators, count);
	return bytes;
}

static uint64_t release_external(const void *uuid, const struct neap_deadline *deadline, struct neap_error *err)
{
	const struct neap_external_request request = {.kind = NEAP_EXTERNAL_RELEASE};
	const struct agent_external_answer *answer = NULL;
	uint32_t left_ms = (uint32_t)(neap_deadline_left_ns(deadline) / NEAP_NS_PER_MS);
	struct agent_external_bounds bounds = {left_ms / 2, left_ms / 2};
	uint64_t bytes = 0;
	if (!agent_external_caches(uuid) || agent_external_ask(&request, &bounds, &answer, err) != NEAP_OK)
		return 0;
	for (size_t i = 0; i < answer->count; i++)
		if (memcmp(answer->devices[i].uuid, uuid, 16) == 0)
			bytes += answer->devices[i].freed;
	return bytes;
}

enum neap_status agent_answer_release(const struct neap_fields *arguments, struct neap_field_writer *reply,
				      struct neap_error *err)
{
	struct agent_identity self;
	struct neap_error fault, failure = {0};
	char run_id[64] = "", series[64] = "";
	uint64_t wanted_ms = 0;
	const void *uuid;
	size_t length;
	if (!neap_fields_bytes(arguments, NEAP_FIELD_UUID, 0, &uuid, &length) || length != 16)
		return neap_fail(err, NEAP_EINVAL, "a release needs a device's UUID");
	neap_fields_string(arguments, NEAP_FIELD_RUN_ID, run_id, sizeof run_id);
	neap_fields_string(arguments, NEAP_FIELD_SERIES, series, sizeof series);
	neap_fields_u64(arguments, NEAP_FIELD_MILLISECONDS, &wanted_ms);
	agent_identify(&self, &fault);
	if (!agent_is_related(&self, run_id, series))
		return neap_fail(err, NEAP_EPERM,
				 "this process belongs to another run, and gives only its own run memory");
	struct neap_deadline deadline =
		neap_deadline_in_ms(neap_clock_system(), wanted_ms < MOST_MS ? wanted_ms : MOST_MS);
	uint64_t bytes = release_own(uuid, &deadline, &failure);
	bytes += release_external(uuid, &deadline, &failure);
	if (!bytes && failure.status == NEAP_EBUSY)
		return neap_fail(err, NEAP_EBUSY, "%s", failure.message);
	neap_write_u64(reply, NEAP_FIELD_FREED, bytes);
	return NEAP_OK;
}
