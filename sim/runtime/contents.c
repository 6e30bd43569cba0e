/* The known bytes of device memory.
 *
 *   device memory  |........|aaaa|..........|bb|cccc|....|     '.' reads as zero: nothing stored it
 *   pieces                   [a ]            [b][c  ]          a sorted set of disjoint ranges, each with its bytes
 *
 * No kernel runs, so a program reads back the bytes that it copied or set itself, those that a collective brought,
 * and zeros elsewhere. The bytes are in ordinary host memory, so the cost is the uploaded bytes, not the size of the
 * device. With backing=none only writes of at most SMALL_BYTES are stored: programs compare shapes and flags that
 * they sent themselves, and large data costs nothing.
 *
 * Shared memory is different: its bytes are in the simulated memory itself, which all the processes map. A range can
 * contain both kinds, so each operation works on *runs*: bytes of one kind.
 *
 * Invariants: pieces are disjoint and not empty, and a stored piece is not all zeros. Shared runs have no pieces,
 * except between the moment when memory becomes shared and the next operation on it.
 *
 * Lock: contents.lock is taken before the simulator's.
 */
#include "sim/runtime/runtime.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL_BYTES 65536

struct piece {
	uint64_t start, bytes;
	unsigned char *data; /* malloc'ed */
};

static struct {
	pthread_mutex_t lock;
	void *root;  /* the root of a tree of struct piece, for tsearch */
	bool shared; /* memory of this process was shared, so it may hold bytes that are in no piece */
} contents = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Overlapping pieces are "equal": the tree finds any piece that overlaps a range. */
static int compare(const void *left, const void *right)
{
	const struct piece *a = left, *b = right;

	if (a->start + a->bytes <= b->start)
		return -1;
	return b->start + b->bytes <= a->start;
}

static struct piece *find(uint64_t start, uint64_t bytes)
{
	struct piece wanted = {.start = start, .bytes = bytes};
	void *node = bytes ? tfind(&wanted, &contents.root, compare) : NULL;

	return node ? *(struct piece **)node : NULL;
}

/* Returns the lowest piece that overlaps the range. */
static struct piece *find_first(uint64_t start, uint64_t bytes)
{
	struct piece *piece = find(start, bytes), *earlier;

	while (piece && piece->start > start && (earlier = find(start, piece->start - start)) != NULL)
		piece = earlier;
	return piece;
}

/* Makes a piece with a copy of `data`, which is not in the tree yet. NULL: host out of memory. */
static struct piece *piece_create(uint64_t start, const void *data, uint64_t bytes)
{
	struct piece *piece = malloc(sizeof *piece);

	if (!piece)
		return NULL;
	*piece = (struct piece){start, bytes, malloc(bytes)};
	if (!piece->data) {
		free(piece);
		return NULL;
	}
	memcpy(piece->data, data, bytes);
	return piece;
}

static void piece_destroy(struct piece *piece)
{
	if (piece)
		free(piece->data);
	free(piece);
}

static bool enter(struct piece *piece)
{
	void *node = tsearch(piece, &contents.root, compare);

	if (node && *(struct piece **)node == piece) {
		runtime_keep(KEPT_CONTENTS, true);
		return true;
	}
	piece_destroy(piece);
	return false;
}

/* Lock held. Cuts the range out of every piece over it. If the host has no memory for the rest of a piece, that rest
 * reads as zeros. */
static void cut(uint64_t start, uint64_t bytes)
{
	uint64_t end = start + bytes;
	struct piece *piece;

	while ((piece = find(start, bytes)) != NULL) {
		uint64_t piece_end = piece->start + piece->bytes;
		struct piece *before = NULL, *after = NULL;

		if (piece->start < start)
			before = piece_create(piece->start, piece->data, start - piece->start);
		if (piece_end > end)
			after = piece_create(end, piece->data + (end - piece->start), piece_end - end);
		(void)tdelete(piece, &contents.root, compare);
		piece_destroy(piece);
		if (before)
			enter(before);
		if (after)
			enter(after);
		runtime_keep(KEPT_CONTENTS, contents.root || contents.shared);
	}
}

static bool all_zero(const unsigned char *bytes, size_t count)
{
	return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* Lock held. */
static bool store(uint64_t address, const void *from, size_t bytes)
{
	struct piece *piece = NULL;
	bool kept = runtime_keeps_bytes() || bytes <= SMALL_BYTES;

	if (bytes == 0)
		return true;
	if (kept && !all_zero(from, bytes)) {
		piece = piece_create(address, from, bytes);
		if (!piece)
			return false;
	}
	cut(address, bytes);
	return !piece || enter(piece);
}

/* Lock held. */
static void load(uint64_t address, unsigned char *to, size_t bytes)
{
	uint64_t at = address, end = address + bytes;
	struct piece *piece;

	memset(to, 0, bytes);
	while (at < end && (piece = find_first(at, end - at)) != NULL) {
		uint64_t from = piece->start > at ? piece->start : at;
		uint64_t stop = piece->start + piece->bytes < end ? piece->start + piece->bytes : end;

		memcpy(to + (from - address), piece->data + (from - piece->start), stop - from);
		at = stop;
	}
}

/* -- shared memory ----------------------------------------------------------------------------------------------- */

static unsigned char *memory_at(uint64_t address) { return (unsigned char *)(uintptr_t)address; }

/* Lock held. Moves the pieces over a shared range into the memory itself. */
static void bring(uint64_t address, uint64_t bytes)
{
	if (!find(address, bytes))
		return;
	load(address, memory_at(address), bytes);
	cut(address, bytes);
}

/* Lock held. Returns the length of the run at `address`. True: the run is shared; then no piece is left over it. */
static bool run_at(uint64_t address, uint64_t bytes, uint64_t *ret_bytes)
{
	uint64_t start, length;

	*ret_bytes = bytes;
	if (!runtime_shared(address, bytes, &start, &length))
		return false;
	*ret_bytes = start > address ? start - address : length;
	if (start > address)
		return false;
	bring(address, length);
	return true;
}

/* Zeroes shared memory. Returns whole pages to the host. */
static void zero_shared(uint64_t address, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end = address + bytes;
	uint64_t first = (address + page - 1) / page * page, last = end / page * page;

	if (first >= last || madvise(memory_at(first), last - first, MADV_REMOVE) != 0) {
		memset(memory_at(address), 0, bytes);
		return;
	}
	memset(memory_at(address), 0, first - address);
	memset(memory_at(last), 0, end - last);
}

/* -- operations, by runs; lock held ------------------------------------------------------------------------------ */

static void read_runs(uint64_t address, unsigned char *to, uint64_t bytes)
{
	uint64_t run;

	for (uint64_t done = 0; done < bytes; done += run) {
		if (run_at(address + done, bytes - done, &run))
			memcpy(to + done, memory_at(address + done), run);
		else
			load(address + done, to + done, run);
	}
}

static bool write_runs(uint64_t address, const unsigned char *from, uint64_t bytes)
{
	bool stored = true;
	uint64_t run;

	for (uint64_t done = 0; done < bytes && stored; done += run) {
		if (run_at(address + done, bytes - done, &run))
			memcpy(memory_at(address + done), from + done, run);
		else
			stored = store(address + done, from + done, run);
	}
	return stored;
}

static void forget_runs(uint64_t address, uint64_t bytes)
{
	uint64_t run;

	for (uint64_t done = 0; done < bytes; done += run) {
		if (run_at(address + done, bytes - done, &run))
			zero_shared(address + done, run);
		else if (contents.root)
			cut(address + done, run);
	}
}

/* -- the operations ---------------------------------------------------------------------------------------------- */

void contents_read(uint64_t address, void *to, size_t bytes)
{
	gate_open_range(address, bytes);
	pthread_mutex_lock(&contents.lock);
	read_runs(address, to, bytes);
	pthread_mutex_unlock(&contents.lock);
}

bool contents_write(uint64_t address, const void *from, size_t bytes)
{
	bool stored;

	pthread_mutex_lock(&contents.lock);
	stored = write_runs(address, from, bytes);
	pthread_mutex_unlock(&contents.lock);
	return stored;
}

void contents_forget(uint64_t address, size_t bytes)
{
	pthread_mutex_lock(&contents.lock);
	forget_runs(address, bytes);
	pthread_mutex_unlock(&contents.lock);
}

void contents_release(uint64_t address, size_t bytes)
{
	pthread_mutex_lock(&contents.lock);
	if (contents.root)
		cut(address, bytes);
	pthread_mutex_unlock(&contents.lock);
}

void contents_share(void)
{
	uint64_t at = 0, run;
	const struct piece *piece;

	pthread_mutex_lock(&contents.lock);
	contents.shared = true;
	runtime_keep(KEPT_CONTENTS, true);
	for (; (piece = find_first(at, UINT64_MAX - at)) != NULL; at += run) {
		if (piece->start > at)
			at = piece->start;
		(void)run_at(at, piece->start + piece->bytes - at, &run);
	}
	pthread_mutex_unlock(&contents.lock);
}

/* Shared memory counts as stored: another process may have written it. */
bool contents_hold(uint64_t address, size_t bytes)
{
	uint64_t start, length;
	bool found;

	gate_open_range(address, bytes);
	pthread_mutex_lock(&contents.lock);
	found = find(address, bytes) != NULL || runtime_shared(address, bytes, &start, &length);
	pthread_mutex_unlock(&contents.lock);
	return found;
}

void contents_set(uint64_t address, int value, size_t bytes)
{
	unsigned char *filled =
		(unsigned char)value && (runtime_keeps_bytes() || bytes <= SMALL_BYTES) ? malloc(bytes) : NULL;

	if (filled)
		memset(filled, value, bytes);
	if (!filled || !contents_write(address, filled, bytes))
		contents_forget(address, bytes);
	free(filled);
}

bool contents_move(uint64_t to, uint64_t from, size_t bytes)
{
	unsigned char *copy;
	bool stored = true;

	if (!contents_hold(from, bytes)) {
		contents_forget(to, bytes);
		return true;
	}
	copy = malloc(bytes);
	if (!copy)
		return false;
	pthread_mutex_lock(&contents.lock);
	read_runs(from, copy, bytes);
	stored = write_runs(to, copy, bytes);
	pthread_mutex_unlock(&contents.lock);
	free(copy);
	return stored;
}

/* Called in a forked child, where another thread's lock would stay held. The child cannot use CUDA, but may query
 * contents. */
static void forked(void) { pthread_mutex_init(&contents.lock, NULL); }
__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, forked); }
