/* alloc/front/lane_lock.c: a lane's lock, and its owner. See front.h. */
#include "alloc/front/front.h"

#include "base/wait.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS  100
#define YIELDS 1000 /* then it sleeps: a real-time thread never yields to the thread that it waits for */
#define STREAK 256  /* this many exchanges cost as much as taking the lane from its owner */

_Thread_local __attribute__((tls_model("initial-exec"))) char neap_lane_self;

bool neap_lanes_may_be_owned(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0) == 0;
}

/* Makes every processor that runs a thread of this process execute a full barrier. */
static void barrier(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0)
		return;
	/* The call worked at registration, so a filter of system calls was added later. After 10 ms every store is
	 * visible. */
	struct timespec time = {.tv_nsec = 10000000};
	nanosleep(&time, NULL);
}

static void let_others_run(unsigned *yields)
{
	const struct timespec time = {.tv_nsec = 100000};
	if (++*yields < YIELDS)
		sched_yield();
	else
		nanosleep(&time, NULL);
}

/* Whether the time is over; never if `until` is NULL. */
static bool is_over(const struct timespec *until) { return until && neap_is_past(until); }

/* Waits until no owner works in the lane. False: the time is over. */
static bool wait_for_owner(const struct neap_lane *lane, const struct timespec *until)
{
	unsigned yields = 0;
	for (size_t i = 0; i < LANE_SEATS; i++) {
		while (__atomic_load_n(&lane->seats[i].busy, __ATOMIC_ACQUIRE)) {
			if (is_over(until))
				return false;
			let_others_run(&yields);
		}
	}
	return true;
}

/* Locks the lane. Only the core, or a thread that is not running, holds a lane for long; so a caller without the
 * mutex waits on the mutex, too. False: the time is over. */
static bool lock(struct neap_alloc *core, struct neap_lane *lane, const struct timespec *until)
{
	unsigned spins = 0, yields = 0;
	while (__atomic_exchange_n(&lane->locked, 1, __ATOMIC_ACQUIRE)) {
		while (__atomic_load_n(&lane->locked, __ATOMIC_RELAXED)) {
			if (++spins % SPINS)
				continue;
			if (core) {
				pthread_mutex_lock(&core->lock);
				pthread_mutex_unlock(&core->lock);
			}
			if (is_over(until))
				return false;
			let_others_run(&yields);
		}
	}
	return true;
}

/* Called with the lane locked: takes it from another owner. Returns whether an earlier owner may still work in it. */
static bool disown(struct neap_lane *lane)
{
	if (lane->last != &neap_lane_self)
		lane->streak = 0;
	lane->last = &neap_lane_self;
	if (lane->owner && lane->owner->thread != &neap_lane_self) {
		__atomic_store_n(&lane->owner, NULL, __ATOMIC_RELAXED);
		lane->left = true;
	}
	return lane->left;
}

/* Called with the lane locked: makes this thread its owner, if it has a seat or gets one. */
static void own(struct neap_lane *lane)
{
	for (size_t i = 0; i < LANE_SEATS; i++) {
		struct neap_seat *seat = &lane->seats[i];
		if (seat->thread && seat->thread != &neap_lane_self)
			continue;
		if (!seat->thread)
			seat->thread = &neap_lane_self;
		__atomic_store_n(&lane->owner, seat, __ATOMIC_RELEASE);
		return;
	}
}

void neap_lane_lock(struct neap_alloc *core, struct neap_lane *lane)
{
	lock(core, lane, NULL);
	if (disown(lane)) {
		barrier();
		lane->left = !wait_for_owner(lane, NULL);
	}
	if (++lane->streak >= STREAK && lane->alloc->front.owned)
		own(lane);
}

/* Whether this thread, now in a signal handler, was interrupted in the lane as its owner. */
static bool is_inside(const struct neap_lane *lane)
{
	for (size_t i = 0; i < LANE_SEATS; i++)
		if (lane->seats[i].thread == &neap_lane_self &&
		    __atomic_load_n(&lane->seats[i].busy, __ATOMIC_RELAXED))
			return true;
	return false;
}

/* Locks all lanes, as neap_front_freeze describes. */
static bool lock_all(struct neap_alloc *alloc, const struct timespec *until)
{
	bool disowned = false, locked = true;
	uint32_t count = 0;
	for (; locked && count < alloc->front.count; count += locked) {
		struct neap_lane *lane = alloc->front.lanes[count];
		locked = lock(NULL, lane, until);
		if (locked && until && is_inside(lane)) {
			lane_unlock(lane, NULL);
			locked = false;
		}
		if (locked)
			disowned = disown(lane) || disowned;
	}
	if (locked && disowned)
		barrier();
	for (uint32_t i = 0; locked && disowned && i < count; i++) {
		locked = wait_for_owner(alloc->front.lanes[i], until);
		if (locked)
			alloc->front.lanes[i]->left = false;
	}
	for (uint32_t i = 0; !locked && i < count; i++)
		lane_unlock(alloc->front.lanes[i], NULL);
	return locked;
}

bool neap_front_freeze(struct neap_alloc *alloc, const struct timespec *until)
{
	/* Lock all lanes before adding up any: a running lane reads the allocator's counters for its events. */
	if (!lock_all(alloc, until))
		return false;
	neap_front_fold(alloc);
	return true;
}
