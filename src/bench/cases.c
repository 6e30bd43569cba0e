#include "bench/cases.h"
#include "base/clock.h"
#include "base/error.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define RUNS         7
#define RUN_NS       (20 * NEAP_NS_PER_MS)
#define BATCH        64
#define WARM_UP      5          /* replacements of each live block: from then on sizes come and go in balance */
#define SIZES        (1u << 16) /* drawn beforehand, so that no random number is made while the clock runs */
#define SHAPES       48
#define LARGEST      (1u << 20)
#define SINGLE_PAIRS 100000
#define RING         1024

/* Blocks on their way from one thread to another. */
struct ring {
	_Alignas(64) uint64_t taken; /* how many were put in so far */
	_Alignas(64) uint64_t given; /* how many were taken out so far */
	_Alignas(64) uint64_t slots[RING];
};

/* Aligned, so that no two threads write to the same cache line. */
struct worker {
	_Alignas(128) struct neap_bench_heap *heap;
	const struct neap_bench_plan *plan;
	unsigned stream;
	bool giver; /* CROSS only: frees the blocks that the other thread allocated */
	bool failed;
	size_t pairs;              /* of the run */
	size_t at;                 /* pairs done so far */
	uint64_t start_ns, end_ns; /* on the wall's clock */
	uint64_t used_ns;          /* processor time */
	uint64_t *blocks;          /* live ones */
	size_t live;
	uint32_t *sizes; /* SIZES of them, and as many slots in `chosen` */
	uint32_t *chosen;
	uint64_t sink; /* the sum of every address, so that the calls' results are used */
	struct ring *ring;
	pthread_barrier_t *barrier;
	pthread_t thread;
};

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = (*state += 0x9e3779b97f4a7c15ull);
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint32_t random_size(uint64_t *random)
{
	double part = (double)(next_random(random) >> 11) / (double)(1ull << 53);
	return (uint32_t)exp2(9 + part * 11);
}

static void take_and_give(struct worker *worker, size_t bytes)
{
	uint64_t address = worker->heap->take(worker->heap, bytes, worker->stream);
	worker->sink ^= address;
	if (!address)
		worker->failed = true;
	else
		worker->heap->give(worker->heap, address);
}

static void run_hit(struct worker *worker, size_t pairs)
{
	for (size_t i = 0; i < pairs; i++)
		take_and_give(worker, worker->plan->bytes);
}

static void run_sizes(struct worker *worker, size_t pairs)
{
	for (size_t i = 0; i < pairs; i++)
		take_and_give(worker, worker->sizes[worker->at++ % SIZES]);
}

static void run_batch(struct worker *worker, size_t pairs)
{
	uint64_t addresses[BATCH];
	for (size_t done = 0; done < pairs; done += BATCH) {
		for (size_t i = 0; i < BATCH; i++) {
			addresses[i] = worker->heap->take(worker->heap, worker->plan->bytes, worker->stream);
			worker->failed = worker->failed || !addresses[i];
		}
		for (size_t i = 0; i < BATCH; i++) {
			worker->sink ^= addresses[i];
			worker->heap->give(worker->heap, addresses[i]);
		}
	}
}

static void run_replacement(struct worker *worker, size_t pairs)
{
	for (size_t i = 0; i < pairs; i++, worker->at++) {
		uint64_t *slot = &worker->blocks[worker->chosen[worker->at % SIZES]];
		worker->heap->give(worker->heap, *slot);
		*slot = worker->heap->take(worker->heap, worker->sizes[(worker->at * 7) % SIZES], worker->stream);
		worker->sink ^= *slot;
		worker->failed = worker->failed || !*slot;
	}
}

static void run_cross(struct worker *worker, size_t pairs)
{
	struct ring *ring = worker->ring;
	for (size_t i = 0; i < pairs; i++, worker->at++) {
		if (worker->giver) {
			while (__atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE) == worker->at)
				sched_yield();
			uint64_t address = ring->slots[worker->at % RING];
			__atomic_store_n(&ring->given, worker->at + 1, __ATOMIC_RELEASE);
			worker->sink ^= address;
			worker->heap->give(worker->heap, address);
		} else {
			uint64_t address = worker->heap->take(worker->heap, worker->plan->bytes, worker->stream);
			worker->failed = worker->failed || !address;
			while (worker->at - __atomic_load_n(&ring->given, __ATOMIC_ACQUIRE) >= RING)
				sched_yield();
			ring->slots[worker->at % RING] = address;
			__atomic_store_n(&ring->taken, worker->at + 1, __ATOMIC_RELEASE);
		}
	}
}

static void (*const loops[NEAP_BENCH_KINDS])(struct worker *worker, size_t pairs) = {
	[NEAP_BENCH_HIT] = run_hit,
	[NEAP_BENCH_BATCH] = run_batch,
	[NEAP_BENCH_REPLACEMENT] = run_replacement,
	[NEAP_BENCH_SHAPES] = run_replacement,
	[NEAP_BENCH_POPULATED] = run_sizes,
	[NEAP_BENCH_MISS] = run_sizes,
	[NEAP_BENCH_CROSS] = run_cross,
};

/* Draws the sizes that the worker will request. */
static void draw(struct worker *worker)
{
	uint64_t random = 1 + worker->stream;
	uint32_t shapes[SHAPES];
	for (size_t i = 0; i < SHAPES; i++)
		shapes[i] = random_size(&random);
	for (size_t i = 0; i < SIZES; i++) {
		worker->chosen[i] = (uint32_t)(next_random(&random) % (worker->plan->live ? worker->plan->live : 1));
		worker->sizes[i] = worker->plan->kind == NEAP_BENCH_SHAPES ? shapes[next_random(&random) % SHAPES]
									   : random_size(&random);
	}
	/* Each multiple of 512 up to 32 MiB once, in an order that does not follow the size. */
	for (size_t i = 0; worker->plan->kind == NEAP_BENCH_MISS && i < SIZES; i++)
		worker->sizes[i] = (uint32_t)((i * 40503 % SIZES + 1) * 512);
}

/* Allocates the live blocks. For POPULATED, also allocates and frees as many others, each between two live ones. */
static enum neap_status populate(struct worker *worker, struct neap_error *err)
{
	const struct neap_bench_plan *plan = worker->plan;
	struct neap_bench_heap *heap = worker->heap;
	size_t count = plan->kind == NEAP_BENCH_POPULATED ? 2 * plan->live : plan->live;
	worker->blocks = calloc(count + 1, sizeof *worker->blocks);
	worker->sizes = calloc(SIZES, sizeof *worker->sizes);
	worker->chosen = calloc(SIZES, sizeof *worker->chosen);
	if (!worker->blocks || !worker->sizes || !worker->chosen)
		return neap_fail(err, NEAP_ENOMEM, "no memory for a thread's blocks");
	draw(worker);
	for (; worker->live < count; worker->live++) {
		size_t bytes = plan->bytes ? plan->bytes : worker->sizes[worker->live % SIZES];
		worker->blocks[worker->live] = heap->take(heap, bytes, worker->stream);
		if (!worker->blocks[worker->live])
			return neap_fail(err, NEAP_EOOM, "the heap has no more than %zu blocks", worker->live);
	}
	for (size_t i = 0; plan->kind == NEAP_BENCH_POPULATED && i < count; i += 2) {
		heap->give(heap, worker->blocks[i]);
		worker->blocks[i] = 0;
	}
	return NEAP_OK;
}

static uint64_t now(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * NEAP_NS_PER_S + (uint64_t)time.tv_nsec;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	pthread_barrier_wait(worker->barrier);
	worker->start_ns = now(CLOCK_MONOTONIC);
	uint64_t used = now(CLOCK_THREAD_CPUTIME_ID);
	loops[worker->plan->kind](worker, worker->pairs);
	worker->used_ns = now(CLOCK_THREAD_CPUTIME_ID) - used;
	worker->end_ns = now(CLOCK_MONOTONIC);
	return NULL;
}

/* Nanoseconds per pair. */
struct time {
	double used;    /* of the thread that used most */
	double elapsed; /* from the first one's start to the last one's end */
};

/* One run of all threads. */
static enum neap_status run_all(struct worker *workers, unsigned count, size_t pairs, struct time *ret_time,
				struct neap_error *err)
{
	pthread_barrier_t barrier;
	uint64_t start = UINT64_MAX, end = 0, used = 0;
	unsigned started = 1;
	if (pthread_barrier_init(&barrier, NULL, count))
		return neap_fail(err, NEAP_ENOMEM, "no memory for a barrier of threads");
	for (unsigned i = 0; i < count; i++) {
		workers[i].pairs = pairs;
		workers[i].barrier = &barrier;
	}
	for (; started < count; started++)
		if (pthread_create(&workers[started].thread, NULL, work, &workers[started]))
			return neap_fail(err, NEAP_ENOMEM, "thread %u cannot be started", started);
	work(&workers[0]);
	for (unsigned i = 1; i < count; i++)
		pthread_join(workers[i].thread, NULL);
	pthread_barrier_destroy(&barrier);
	for (unsigned i = 0; i < count; i++) {
		start = workers[i].start_ns < start ? workers[i].start_ns : start;
		end = workers[i].end_ns > end ? workers[i].end_ns : end;
		used = workers[i].used_ns > used ? workers[i].used_ns : used;
		if (workers[i].failed)
			return neap_fail(err, NEAP_EOOM, "the heap refused a request");
	}
	*ret_time = (struct time){(double)used / (double)pairs, (double)(end - start) / (double)pairs};
	return NEAP_OK;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return a < b ? -1 : a > b;
}

/* The time of the 999th of 1000 single pairs, without the time that the clock takes. NAN for CROSS, where each of two
 * threads does half of a pair. */
static double measure_single(struct worker *worker, double *times)
{
	const struct neap_clock *clock = neap_clock_system();
	size_t step = worker->plan->kind == NEAP_BENCH_BATCH ? BATCH : 1;
	if (worker->plan->kind == NEAP_BENCH_CROSS || !times)
		return NAN;
	for (size_t i = 0; i < SINGLE_PAIRS; i++) {
		uint64_t before = neap_clock_now(clock);
		times[i] = (double)(neap_clock_now(clock) - before);
	}
	qsort(times, SINGLE_PAIRS, sizeof *times, compare);
	double reading = times[SINGLE_PAIRS / 2];
	size_t count = SINGLE_PAIRS / step;
	for (size_t i = 0; i < count; i++) {
		uint64_t before = neap_clock_now(clock);
		loops[worker->plan->kind](worker, step);
		times[i] = ((double)(neap_clock_now(clock) - before) - reading) / (double)step;
	}
	qsort(times, count, sizeof *times, compare);
	return times[count * 999 / 1000];
}

static enum neap_status measure(struct worker *workers, const struct neap_bench_plan *plan,
				struct neap_bench_figures *ret_figures, struct neap_error *err)
{
	double runs[RUNS], elapsed[RUNS];
	struct time time = {0};
	size_t pairs = 4096;
	bool replaces = plan->kind == NEAP_BENCH_REPLACEMENT || plan->kind == NEAP_BENCH_SHAPES;
	size_t first = replaces ? WARM_UP * plan->live : pairs;
	enum neap_status status = run_all(workers, plan->threads, first, &time, err);
	if (!status) { /* the second one is warm */
		status = run_all(workers, plan->threads, pairs, &time, err);
		double guess = time.used;
		pairs = guess * 1000 < (double)RUN_NS ? (size_t)((double)RUN_NS / (guess > 0.1 ? guess : 0.1)) : 1000;
		pairs = (pairs + BATCH - 1) / BATCH * BATCH;
	}
	for (size_t i = 0; !status && i < RUNS; i++) {
		status = run_all(workers, plan->threads, pairs, &time, err);
		runs[i] = time.used;
		elapsed[i] = time.elapsed;
	}
	if (status)
		return status;
	qsort(runs, RUNS, sizeof *runs, compare);
	qsort(elapsed, RUNS, sizeof *elapsed, compare);
	*ret_figures = (struct neap_bench_figures){
		.ns = runs[RUNS / 2], .low = runs[0], .high = runs[RUNS - 1], .elapsed = elapsed[RUNS / 2]};
	double *times = calloc(SINGLE_PAIRS, sizeof *times);
	ret_figures->p999 = measure_single(&workers[0], times);
	free(times);
	return NEAP_OK;
}

enum neap_status neap_bench_run(struct neap_bench_heap *heap, const struct neap_bench_plan *plan,
				struct neap_bench_figures *ret_figures, struct neap_error *err)
{
	struct worker *workers = aligned_alloc(_Alignof(struct worker), plan->threads * sizeof *workers);
	struct ring *ring = aligned_alloc(64, sizeof *ring);
	enum neap_status status = NEAP_OK;
	if (!workers || !ring) {
		free(workers);
		free(ring);
		return neap_fail(err, NEAP_ENOMEM, "no memory for %u threads", plan->threads);
	}
	*ring = (struct ring){0};
	for (unsigned i = 0; i < plan->threads; i++) {
		workers[i] = (struct worker){.heap = heap, .plan = plan, .stream = i, .ring = ring};
		workers[i].giver = plan->kind == NEAP_BENCH_CROSS && i == 1;
	}
	for (unsigned i = 0; !status && i < plan->threads; i++)
		status = populate(&workers[i], err);
	if (!status)
		status = measure(workers, plan, ret_figures, err);
	for (unsigned i = 0; i < plan->threads; i++) {
		for (size_t j = 0; j < workers[i].live; j++)
			if (workers[i].blocks[j])
				heap->give(heap, workers[i].blocks[j]);
		free(workers[i].blocks);
		free(workers[i].sizes);
		free(workers[i].chosen);
	}
	free(workers);
	free(ring);
	return status;
}
