/* Bounded locks and joins use the monotonic clock, which nobody sets. */
#include "base/clock.h"
#include "base/wait.h"
#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t waiter;

static void *take(void *bound_s)
{
	struct timespec until = neap_clock_after((uint64_t)(uintptr_t)bound_s * NEAP_NS_PER_S);
	__atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
	int result = neap_lock_until(&lock, &until);
	if (result == 0)
		pthread_mutex_unlock(&lock);
	__atomic_store_n(&waiter, -1, __ATOMIC_RELEASE);
	return (void *)(intptr_t)result;
}

/* Whether the thread sleeps or has ended. */
static bool is_waiting(void)
{
	char path[64], state = '?';
	pid_t thread = __atomic_load_n(&waiter, __ATOMIC_ACQUIRE);
	if (thread <= 0)
		return thread < 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
	FILE *file = fopen(path, "r");
	if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = '?';
	if (file)
		fclose(file);
	return state == 'S';
}

static void a_lock_is_waited_for(void **unused)
{
	pthread_t thread;
	void *result = NULL;
	struct timespec over = neap_clock_after(0), later = neap_clock_after(600 * NEAP_NS_PER_S);
	(void)unused;
	assert_true(neap_is_past(&over));
	assert_false(neap_is_past(&later));
	assert_int_equal(pthread_mutex_lock(&lock), 0);
	assert_int_equal(pthread_create(&thread, NULL, take, (void *)0), 0);
	assert_int_equal(neap_join_until(thread, &later), 0); /* it gives up */
	assert_int_equal(__atomic_exchange_n(&waiter, 0, __ATOMIC_ACQUIRE), -1);
	assert_int_equal(pthread_create(&thread, NULL, take, (void *)600), 0);
	while (!is_waiting())
		sched_yield();
	assert_int_equal(neap_join_until(thread, &over), ETIMEDOUT); /* it does not */
	pthread_mutex_unlock(&lock);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_lock_is_waited_for)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
