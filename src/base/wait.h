/* base/wait.h: locks and joins with a timeout on CLOCK_MONOTONIC: setting the machine's clock neither shortens nor
 * prolongs them. `until` comes from neap_clock_after. Any thread. */
#ifndef NEAP_BASE_WAIT_H
#define NEAP_BASE_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

bool neap_is_past(const struct timespec *until);

/* 0, or what pthread_mutex_timedlock and pthread_timedjoin_np return. */
int neap_lock_until(pthread_mutex_t *mutex, const struct timespec *until);
int neap_join_until(pthread_t thread, const struct timespec *until);

#endif
