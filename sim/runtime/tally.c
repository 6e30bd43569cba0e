/* Counts calls that are not modelled, by function, and writes the counts where `neap run` reads them.
 *
 *   NEAP_RUN_DIR/simulated.PID, one line for each: GAP LIBRARY FUNCTION COUNT LOW HIGH
 *
 * GAP is values, workspace, refused, transfer or kernel (services.h). The file is written whole, by a rename, when a
 * function is counted for the first time and when the process exits. Failures are ignored: they must not disturb a
 * training run.
 */
#include "sim/runtime/runtime.h"

#include "base/descriptor.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ENTRY_LIMIT 512

struct entry {
	enum runtime_gap gap;
	const char *library, *function;
	uint64_t count, low, high;
};

static struct {
	pthread_mutex_t lock;
	struct entry entries[ENTRY_LIMIT];
	size_t count;
} tally = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const gap_names[] = {
	[GAP_VALUES] = "values",     [GAP_WORKSPACE] = "workspace", [GAP_REFUSED] = "refused",
	[GAP_TRANSFER] = "transfer", [GAP_KERNEL] = "kernel",
};

/* Lock held. */
static void write_file(void)
{
	const char *folder = getenv("NEAP_RUN_DIR");
	char path[1024], part[1024];
	FILE *file;
	size_t i;
	int fd;

	if (!folder || !*folder || tally.count == 0)
		return;
	if ((size_t)snprintf(path, sizeof path, "%s/simulated.%d", folder, (int)getpid()) >= sizeof path ||
	    (size_t)snprintf(part, sizeof part, "%s.part", path) >= sizeof part)
		return;
	fd = neap_fd_above_standard(open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
	file = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (!file) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (i = 0; i < tally.count; i++) {
		const struct entry *entry = &tally.entries[i];

		fprintf(file, "%s %s %s %llu %llu %llu\n", gap_names[entry->gap], entry->library, entry->function,
			(unsigned long long)entry->count, (unsigned long long)entry->low,
			(unsigned long long)entry->high);
	}
	if (fclose(file) != 0 || rename(part, path) != 0)
		unlink(part);
}

/* Lock held. NULL: the table is full. */
static struct entry *find(enum runtime_gap gap, const char *function, bool *ret_new)
{
	size_t i;

	for (i = 0; i < tally.count; i++)
		if (tally.entries[i].gap == gap && strcmp(tally.entries[i].function, function) == 0)
			return &tally.entries[i];
	*ret_new = i < ENTRY_LIMIT;
	return *ret_new ? &tally.entries[tally.count++] : NULL;
}

void tally_count(enum runtime_gap gap, const char *library, const char *function, uint64_t low, uint64_t high)
{
	bool is_new = false;
	struct entry *entry;

	if ((gap == GAP_VALUES || gap == GAP_KERNEL) && values_blind())
		return; /* the host computes them (values.c), and names the ones that it cannot */
	pthread_mutex_lock(&tally.lock);
	entry = find(gap, function, &is_new);
	if (is_new)
		*entry = (struct entry){gap, library, function, 0, low, high};
	if (entry) {
		entry->count++;
		entry->low = low < entry->low ? low : entry->low;
		entry->high = high > entry->high ? high : entry->high;
	}
	if (is_new)
		write_file();
	pthread_mutex_unlock(&tally.lock);
}

int tally_refuse(const char *function)
{
	tally_count(GAP_REFUSED, "cudart", function, 0, 0);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Called in a forked child. It has a copy of the counts, and gets a new lock, because another thread may have held
 * the old one. */
static void forked(void)
{
	pthread_mutex_init(&tally.lock, NULL);
	tally.count = 0;
}

__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, forked); }

__attribute__((destructor)) static void write_at_exit(void)
{
	if (pthread_mutex_trylock(&tally.lock) != 0)
		return;
	write_file();
	pthread_mutex_unlock(&tally.lock);
}
