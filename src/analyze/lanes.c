/* Events do not name their session. A step is assigned to the session of its device whose step numbers it continues:
 * of several, the one with the highest number, and among equals the one that has waited longest. A session is over if
 * it has had no step since a newer one began to have steps, even if no mark shows its end. A step that continues no
 * session begins another: a program without sessions trains again. */
#include "analyze/lanes.h"

#include "base/error.h"

#include <stdlib.h>

#define SESSIONS_MOST 8 /* sessions of a device that may run at once */

struct session {
	uint16_t device;
	uint32_t lane;
	uint64_t last_step, count; /* count: its recorded events; `steps` also counts steps without one */
	uint64_t steps;
	uint64_t first_ns, last_ns; /* of its steps */
};

struct finder {
	const struct neap_record *record;
	struct session *sessions;
	size_t count;
	uint32_t *of; /* by event: first its session, in the end its lane */
};

static struct session *begin_session(struct finder *finder, uint16_t device)
{
	struct session *session = &finder->sessions[finder->count++];

	*session = (struct session){.device = device, .lane = NEAP_LANE_NONE};
	return session;
}

/* Whether `newest` has replaced the session. */
static bool is_over(const struct session *session, const struct session *newest)
{
	return session != newest && newest->count > 1 && session->last_ns < newest->first_ns;
}

/* Whether the step more likely continues session `a` than `b`. */
static bool continues_better(const struct session *a, const struct session *b)
{
	return a->last_step != b->last_step ? a->last_step > b->last_step : a->last_ns < b->last_ns;
}

static struct session *session_of(struct finder *finder, uint16_t device, uint64_t number)
{
	struct session *newest = NULL, *best = NULL;
	int tried = 0;

	for (size_t i = finder->count; i-- > 0 && tried < SESSIONS_MOST;) {
		struct session *session = &finder->sessions[i];
		if (session->device != device)
			continue;
		tried++;
		newest = newest ? newest : session;
		if (session->last_step < number && !is_over(session, newest) &&
		    (!best || !continues_better(best, session)))
			best = session;
	}
	if (!newest || (!best && newest->count > 0))
		newest = best = begin_session(finder, device);
	/* A session that has just begun may start at any step. */
	if (best && best != newest && newest->count == 0 && best->last_step + 1 != number)
		best = newest;
	return best ? best : newest;
}

static void assign_sessions(struct finder *finder)
{
	for (size_t i = 0; i < finder->record->journal_count; i++) {
		const struct neap_event *event = &finder->record->journal[i];
		finder->of[i] = NEAP_LANE_NONE;
		if (event->kind == NEAP_EVENT_SPLIT)
			begin_session(finder, event->device);
		if (event->kind != NEAP_EVENT_STEP)
			continue;
		uint64_t number = event->step.number;
		struct session *session = session_of(finder, event->device, number);
		bool gap = session->count && number > session->last_step;
		session->steps += gap ? number - session->last_step : 1;
		if (session->count++ == 0)
			session->first_ns = event->time_ns;
		session->last_ns = event->time_ns;
		session->last_step = number;
		finder->of[i] = (uint32_t)(session - finder->sessions);
	}
}

/* Puts each session into the first lane of its device that is free when the session starts. */
static void pack(struct finder *finder, struct neap_lanes *lanes)
{
	for (size_t i = 0; i < finder->count; i++) {
		struct session *session = &finder->sessions[i];
		size_t lane = 0;
		if (session->count == 0)
			continue;
		while (lane < lanes->count && (lanes->items[lane].device != session->device ||
					       lanes->items[lane].last_ns >= session->first_ns))
			lane++;
		if (lane == lanes->count)
			lanes->items[lanes->count++] = (struct neap_lane){.device = session->device};
		lanes->items[lane].last_ns = session->last_ns;
		lanes->items[lane].steps += session->steps;
		session->lane = (uint32_t)lane;
		if (lanes->items[lane].steps > lanes->items[lanes->main].steps)
			lanes->main = lane;
	}
	for (size_t i = 0; i < finder->record->journal_count; i++)
		if (finder->of[i] != NEAP_LANE_NONE)
			finder->of[i] = finder->sessions[finder->of[i]].lane;
}

enum neap_status neap_lanes_find(const struct neap_record *record, struct neap_lanes *ret_lanes,
				 struct neap_error *err)
{
	size_t capacity = record->journal_count + 1; /* an event begins at most one session */
	struct finder finder = {.record = record};
	struct neap_lanes lanes = {0};

	finder.sessions = calloc(capacity, sizeof *finder.sessions);
	finder.of = calloc(capacity, sizeof *finder.of);
	lanes.items = calloc(capacity, sizeof *lanes.items);
	if (!finder.sessions || !finder.of || !lanes.items) {
		free(finder.sessions);
		free(finder.of);
		free(lanes.items);
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for the steps of a recording");
	}
	assign_sessions(&finder);
	pack(&finder, &lanes);
	free(finder.sessions);
	lanes.of = finder.of;
	*ret_lanes = lanes;
	return NEAP_OK;
}

void neap_lanes_fini(struct neap_lanes *lanes)
{
	free(lanes->of);
	free(lanes->items);
	*lanes = (struct neap_lanes){0};
}
