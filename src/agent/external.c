/* agent/external.c: passes one request at a time from the server's thread to the program, and its answer back.
 *
 *   idle --ask--> queued --next--> taken --begin--> begun --answer--> answered --ask returns--> idle
 *                    \______2 s_______/                \___20 s___ or closed, or interrupted: --> idle, its id void
 *
 * The lock guards the request. It comes after the agent's lock and is a leaf: under it no other lock is taken. The
 * agent's lock guards the slots of the page.
 */
#include "agent/external.h"

#include "agent/agent.h"
#include "base/clock.h"
#include "base/error.h"
#include "neap/attach.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const struct agent_external_bounds agent_external_bounds = {.begin_ms = 2000, .finish_ms = 20000};

enum phase { IDLE, QUEUED, TAKEN, BEGUN, ANSWERED };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool open, interrupted;
	char name[48];
	enum phase phase;
	struct neap_external_request request;
	struct agent_external_answer answer; /* written while begun, read while answered */
} external = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Guarded by the agent's lock. */
static struct neap_published *slots[NEAP_EXTERNAL_DEVICES];

enum neap_status neap_external_open(const char *name, struct neap_error *err)
{
	if (!name || !name[0])
		return neap_fail(err, NEAP_EINVAL, "an external allocator needs a name");
	pthread_mutex_lock(&external.lock);
	external.open = true;
	snprintf(external.name, sizeof external.name, "%s", name);
	pthread_mutex_unlock(&external.lock);
	return NEAP_OK;
}

void neap_external_close(void)
{
	pthread_mutex_lock(&external.lock);
	external.open = false;
	pthread_cond_broadcast(&external.changed);
	pthread_mutex_unlock(&external.lock);
}

void agent_external_interrupt(void)
{
	pthread_mutex_lock(&external.lock);
	external.interrupted = external.phase != IDLE;
	pthread_cond_broadcast(&external.changed);
	pthread_mutex_unlock(&external.lock);
}

enum neap_status neap_external_next(uint32_t timeout_ms, struct neap_external_request *ret_request,
				    struct neap_error *err)
{
	struct timespec until = neap_clock_after(timeout_ms * NEAP_NS_PER_MS);
	enum neap_status status = NEAP_OK;
	int waited = 0;
	pthread_mutex_lock(&external.lock);
	while (external.open && external.phase != QUEUED && waited == 0)
		waited = pthread_cond_clockwait(&external.changed, &external.lock, CLOCK_MONOTONIC, &until);
	if (!external.open) {
		status = neap_fail(err, NEAP_ECANCELED, "there is no external allocator any more");
	} else if (external.phase != QUEUED) {
		status = neap_fail(err, NEAP_ETIMEDOUT, "no request came within %u ms", timeout_ms);
	} else {
		external.phase = TAKEN;
		*ret_request = external.request;
	}
	pthread_mutex_unlock(&external.lock);
	return status;
}

/* Whether the request `id` is the current one, and taken or begun. The lock is held. */
static bool is_current(uint64_t id)
{
	return external.request.id == id && (external.phase == TAKEN || external.phase == BEGUN);
}

enum neap_status neap_external_begin(uint64_t id, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	pthread_mutex_lock(&external.lock);
	if (is_current(id) && external.phase == TAKEN) {
		external.phase = BEGUN;
		pthread_cond_broadcast(&external.changed);
	} else {
		status = neap_fail(err, NEAP_ESTATE, "the request was withdrawn");
	}
	pthread_mutex_unlock(&external.lock);
	return status;
}

enum neap_status neap_external_answer(uint64_t id, enum neap_status status, const char *text,
				      const struct neap_device_answer *devices, size_t count, struct neap_error *err)
{
	struct agent_external_answer *answer = &external.answer;
	if (count > NEAP_EXTERNAL_DEVICES)
		return neap_fail(err, NEAP_EINVAL, "an answer of %zu devices: at most %d", count,
				 NEAP_EXTERNAL_DEVICES);
	pthread_mutex_lock(&external.lock);
	bool current = is_current(id);
	if (current) {
		answer->status = status;
		answer->count = count;
		snprintf(answer->text, sizeof answer->text, "%s", text ? text : "");
		if (count)
			memcpy(answer->devices, devices, count * sizeof *devices);
		for (size_t i = 0; i < count; i++) {
			answer->devices[i].name[sizeof answer->devices[i].name - 1] = '\0';
			answer->devices[i].message[sizeof answer->devices[i].message - 1] = '\0';
			answer->devices[i].reserved_now = answer->devices[i].reserved;
		}
		external.phase = ANSWERED;
		pthread_cond_broadcast(&external.changed);
	}
	pthread_mutex_unlock(&external.lock);
	return current ? NEAP_OK : neap_fail(err, NEAP_ESTATE, "nobody waits for this answer any more");
}

/* Waits, at most `ms`, until the phase is past `last_pending`. The lock is held. */
static void await(enum phase last_pending, uint32_t ms)
{
	struct timespec until = neap_clock_after(ms * NEAP_NS_PER_MS);
	int waited = 0;
	while (external.open && !external.interrupted && external.phase <= last_pending && waited == 0)
		waited = pthread_cond_clockwait(&external.changed, &external.lock, CLOCK_MONOTONIC, &until);
}

enum neap_status agent_external_ask(const struct neap_external_request *request,
				    const struct agent_external_bounds *bounds,
				    const struct agent_external_answer **ret_answer, struct neap_error *err)
{
	static uint64_t last_id;
	enum neap_status status = NEAP_OK;
	pthread_mutex_lock(&external.lock);
	if (!external.open) {
		pthread_mutex_unlock(&external.lock);
		return NEAP_ENOENT;
	}
	external.interrupted = false;
	external.request = *request;
	external.request.id = ++last_id;
	external.phase = QUEUED;
	pthread_cond_broadcast(&external.changed);
	await(TAKEN, bounds->begin_ms);
	if (external.phase == BEGUN)
		await(BEGUN, bounds->finish_ms);
	if (external.phase == ANSWERED)
		*ret_answer = &external.answer;
	else if (external.phase == BEGUN)
		status = neap_fail(err, NEAP_EBUSY, "%s has begun and did not finish within %u s", external.name,
				   bounds->finish_ms / 1000);
	else
		status = neap_fail(
			err, NEAP_EBUSY,
			"%s is busy: the program did not come to it within %u s; nothing was done, try again",
			external.name, bounds->begin_ms / 1000);
	external.phase = IDLE;
	pthread_mutex_unlock(&external.lock);
	return status;
}

/* Forks. */

void agent_external_lock(void) { pthread_mutex_lock(&external.lock); }

void agent_external_unlock(void) { pthread_mutex_unlock(&external.lock); }

void agent_external_abandon(void)
{
	external.open = external.interrupted = false;
	external.phase = IDLE;
	pthread_cond_init(&external.changed, NULL); /* its waiters exist only in the parent */
	agent_external_page_gone();
	pthread_mutex_unlock(&external.lock);
}

/* The page. */

void agent_external_page_gone(void) { memset(slots, 0, sizeof slots); }

static void store(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

/* Writes as alloc/core/published.c does: odd sequence, the words, even sequence. */
static void write_slot(struct neap_published *slot, const struct neap_published *counters)
{
	const uint64_t *from = (const uint64_t *)counters;
	uint64_t *to = (uint64_t *)slot;
	uint64_t sequence = __atomic_load_n(to, __ATOMIC_RELAXED) | 1;
	store(to, sequence);
	for (size_t i = 1; i < sizeof *counters / sizeof(uint64_t); i++)
		store(to + i, from[i]);
	store(to, sequence + 1);
}

struct publication {
	const struct neap_published *counters;
	bool done;
};

static void publish(struct neap_page_owner *page, void *context)
{
	struct publication *publication = context;
	const struct neap_published *counters = publication->counters;
	for (size_t i = 0; i < NEAP_EXTERNAL_DEVICES && !publication->done; i++) {
		bool is_new = !slots[i];
		if (is_new && !(slots[i] = neap_page_slot(page)))
			return;
		if (!is_new &&
		    memcmp(slots[i]->device_uuid, counters->device_uuid, sizeof counters->device_uuid) != 0)
			continue;
		write_slot(slots[i], counters);
		if (is_new) {
			neap_page_show(page, slots[i]);
			agent_emit_page(agent_target(), slots[i]);
		}
		publication->done = true;
	}
}

enum neap_status neap_external_publish(const struct neap_published *counters, struct neap_error *err)
{
	static const unsigned char none[sizeof counters->device_uuid];
	struct publication publication = {.counters = counters};
	if (!memcmp(counters->device_uuid, none, sizeof none))
		return neap_fail(err, NEAP_EINVAL, "publishing for a device without a UUID");
	if (!agent_with_page(publish, &publication))
		return neap_fail(err, NEAP_ESTATE, "this process is not attached: it has no statistics page");
	return publication.done ? NEAP_OK
				: neap_fail(err, NEAP_ENOSPC, "the statistics page has no room for another device");
}

struct question {
	const unsigned char *uuid;
	bool caches;
};

static void look_for_cached(struct neap_page_owner *page, void *context)
{
	struct question *question = context;
	(void)page;
	for (size_t i = 0; i < NEAP_EXTERNAL_DEVICES && slots[i]; i++) {
		const struct neap_stat(*metric)[NEAP_CLASS_COUNT] = slots[i]->stats.metric;
		if (memcmp(slots[i]->device_uuid, question->uuid, sizeof slots[i]->device_uuid) == 0)
			question->caches =
				question->caches || metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current >
							    metric[NEAP_METRIC_ACTIVE_BYTES][NEAP_CLASS_ALL].current;
	}
}

bool agent_external_caches(const unsigned char uuid[16])
{
	struct question question = {.uuid = uuid};
	return agent_with_page(look_for_cached, &question) && question.caches;
}

/* Events. */

void neap_external_emit(const struct neap_event *event)
{
	const struct neap_observer *observer = neap_attach_observer();
	struct neap_event timed = *event;
	timed.time_ns = neap_clock_now(neap_clock_system());
	timed.sequence = 0;
	if (observer)
		observer->event(observer->context, &timed);
}

uint16_t neap_external_name(const char *text)
{
	const struct neap_observer *observer = neap_attach_observer();
	return observer ? observer->name(observer->context, text) : 0;
}
