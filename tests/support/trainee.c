/* support/trainee.c: a stand-in for a training with PyTorch's own allocator, attached and recorded:
 *
 *   trainee STEPS [MIB]
 *
 * Makes STEPS steps (support/watched.h), 5000 a second at most, writes "ready" to its stdout, and waits until a file
 * "go" exists. With MIB, the device's size, it then makes a step that is too large for it, if none was, writes
 * PyTorch's message and ends with 1.
 */
#include "neap/attach.h"
#include "support/watched.h"

#include <stdlib.h>
#include <time.h>

static void pause_ns(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

int main(int count, char **words)
{
	const char *folder = getenv("NEAP_RUN_DIR");
	unsigned long steps = count > 1 ? strtoul(words[1], NULL, 10) : 0;
	uint64_t mib = count > 2 ? strtoul(words[2], NULL, 10) : 0;
	struct neap_error err = {0};
	static struct watched watched; /* its blocks stay: their frees would be recorded */

	if (!folder || neap_attach(&err)) {
		fprintf(stderr, "trainee: %s\n", folder ? err.message : "it is not run by neap run");
		return 2;
	}
	watched_open(&watched, folder, "", mib * WATCHED_MIB, 0, neap_attach_observer());
	bool went_on = true;
	for (unsigned long i = 0; went_on && i < steps; i++) {
		went_on = watched_step(&watched, 20);
		pause_ns(200000);
	}
	printf("ready\n");
	fflush(stdout);
	while (access("go", F_OK))
		pause_ns(10000000);
	if (!mib)
		return 0;
	if (went_on && watched_step(&watched, mib))
		return 3;
	watched_emit(&watched, neap_event_of_oom_limits(
				       0, (struct neap_event_oom_limits){.device_total_bytes = mib * WATCHED_MIB,
									 .limit_bytes = UINT64_MAX,
									 .largest_free_bytes = UINT64_MAX}));
	fprintf(stderr, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %lu.00 MiB.\n", mib);
	return 1;
}
