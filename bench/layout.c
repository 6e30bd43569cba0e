/* bench/layout.c: measures how close layouts of blocks known in advance come to their bound, and how long the search
 * takes.
 *
 * usage: bench_layout [--work N] [TRACE...]
 *
 * Without a trace, made-up instances of the sizes of published ones: MiniMalloc's eleven hard ones have some 150 to
 * 450 buffers in 1 MiB, and those of training that it gives up on have some 7000.
 *
 *   tiles      a full rectangle of 1 MiB and as many events as blocks, cut into blocks at random: some layout meets
 *              the bound, with no room to spare
 *   sparse     the same without every tenth block
 *   training   layers whose blocks end in reverse order, each with temporary blocks, forward and back
 *
 * For five seeds of each, the median and the worst. With traces: for each step, the blocks allocated in it; without
 * marks, for parts of 4000 events. A trace's line is about its step that is furthest above the bound; of equal ones
 * the slowest. Milliseconds are processor time.
 */
#include "alloc/plan/plan.h"
#include "base/map.h"
#include "base/units.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEEDS       5
#define TILES_BYTES (1ull << 20)
#define PART_EVENTS 4000
#define ALIGNMENT   512

struct blocks {
	struct neap_layout_block *items;
	size_t count;
};

struct outcome {
	struct neap_layout layout;
	size_t count;
	double ms;
};

static uint64_t work = 100000000;
static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % below;
}

static double percent_over(const struct neap_layout *layout)
{
	return layout->bound_bytes ? 100.0 * ((double)layout->total_bytes / (double)layout->bound_bytes - 1) : 0;
}

static double processor_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static bool lay_out(struct blocks *blocks, struct outcome *ret_outcome)
{
	struct neap_error err;
	double start = processor_ms();
	enum neap_status status = neap_layout_make(blocks->items, blocks->count, work, &ret_outcome->layout, &err);
	ret_outcome->ms = processor_ms() - start;
	ret_outcome->count = blocks->count;
	if (status)
		fprintf(stderr, "bench_layout: %s\n", err.message);
	return status == NEAP_OK;
}

static void print_row(const char *name, const char *about, const struct outcome *outcome)
{
	char bound[NEAP_UNITS_CAPACITY], total[NEAP_UNITS_CAPACITY];
	printf("%-20s %-18s %7zu %11s %11s %8.3f %9.1f\n", name, about, outcome->count,
	       neap_size_format(outcome->layout.bound_bytes, bound),
	       neap_size_format(outcome->layout.total_bytes, total), percent_over(&outcome->layout), outcome->ms);
}

/* Cuts the tile in two across a random side, and returns the other half. */
static struct neap_layout_block cut(struct neap_layout_block *tile)
{
	struct neap_layout_block other = *tile;
	uint64_t life = tile->to - tile->from;
	if (life > 1 && (tile->bytes < 16 || draw(2))) {
		other.from = tile->to = tile->from + 1 + draw(life - 1);
	} else {
		tile->bytes = 8 + draw(tile->bytes - 15);
		other.bytes -= tile->bytes;
	}
	return other;
}

static void make_tiles(struct blocks *blocks, size_t count, bool sparse)
{
	size_t made = 1;
	blocks->items[0] = (struct neap_layout_block){TILES_BYTES, 0, count, 0};
	while (made < count) {
		/* Cuts the largest of a few, so that the tiles stay alike in size. */
		size_t best = draw(made);
		for (int i = 0; i < 8; i++) {
			size_t other = draw(made);
			const struct neap_layout_block *a = &blocks->items[best], *b = &blocks->items[other];
			if ((b->to - b->from) * b->bytes > (a->to - a->from) * a->bytes)
				best = other;
		}
		if (blocks->items[best].bytes >= 16 || blocks->items[best].to - blocks->items[best].from > 1) {
			blocks->items[made] = cut(&blocks->items[best]);
			made++;
		}
	}
	blocks->count = 0;
	for (size_t i = 0; i < made; i++)
		if (!sparse || draw(10))
			blocks->items[blocks->count++] = blocks->items[i];
}

static void make_training(struct blocks *blocks, size_t count)
{
	size_t layers = count / 7;
	uint64_t last = 8 * layers;
	blocks->count = 0;
	for (size_t layer = 0; layer < layers; layer++) {
		uint64_t width = ALIGNMENT * (1 + draw(4096)), begin = 4 * layer, end = last - 4 * layer;
		for (uint64_t i = 0; i < 3; i++) {
			blocks->items[blocks->count++] =
				(struct neap_layout_block){width * (1 + draw(4)), begin + i, end - i, 0};
			blocks->items[blocks->count++] =
				(struct neap_layout_block){width * (1 + draw(4)), end - 4 + i, end - 2 + i, 0};
		}
		blocks->items[blocks->count++] = (struct neap_layout_block){width, begin + draw(4), begin + 4, 0};
	}
}

static int compare_outcomes(const void *left, const void *right)
{
	double a = percent_over(&((const struct outcome *)left)->layout);
	double b = percent_over(&((const struct outcome *)right)->layout);
	double slower = ((const struct outcome *)left)->ms - ((const struct outcome *)right)->ms;
	return a != b ? (a > b) - (a < b) : (slower > 0) - (slower < 0);
}

static bool print_made_up(const char *name, size_t count)
{
	struct outcome outcomes[SEEDS];
	struct blocks blocks = {.items = calloc(count + 7, sizeof *blocks.items)};
	bool good = blocks.items;
	for (uint64_t seed = 0; good && seed < SEEDS; seed++) {
		random_state = 1 + seed;
		if (name[1] == 'r')
			make_training(&blocks, count);
		else
			make_tiles(&blocks, count, name[0] == 's');
		good = lay_out(&blocks, &outcomes[seed]);
	}
	free(blocks.items);
	if (!good)
		return false;
	qsort(outcomes, SEEDS, sizeof outcomes[0], compare_outcomes);
	print_row(name, "median of 5", &outcomes[SEEDS / 2]);
	print_row(name, "worst of 5", &outcomes[SEEDS - 1]);
	return true;
}

/* Takes the blocks allocated in events [first, end) of the device: a block that outlives these events ends at
 * `end`. */
static bool cut_step(const struct neap_trace *trace, size_t device, uint64_t first, uint64_t end,
		     struct blocks *blocks)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, first);
	struct neap_trace_event event;
	struct neap_map live = {0};
	bool good = true;
	blocks->count = 0;
	for (uint64_t at = first; good && at < end && neap_trace_next(&cursor, &event); at++) {
		uint64_t index = 0;
		if (event.kind == NEAP_TRACE_ALLOC && event.size) {
			good = neap_map_put(&live, event.address, blocks->count);
			blocks->items[blocks->count++] = (struct neap_layout_block){
				(event.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, at, end, 0};
		} else if (event.kind == NEAP_TRACE_FREE_REQUESTED && neap_map_remove(&live, event.address, &index)) {
			blocks->items[index].to = at;
		}
	}
	neap_map_fini(&live);
	return good;
}

/* The event at which the step that begins at event `first` ends. */
static uint64_t step_end(const struct neap_trace *trace, const struct neap_trace_device *device, uint64_t first)
{
	bool marked = false;
	for (size_t i = device->first_mark; i < device->first_mark + device->mark_count; i++) {
		marked |= trace->marks[i].kind == NEAP_TRACE_STEP;
		if (trace->marks[i].kind == NEAP_TRACE_STEP && trace->marks[i].event > first)
			return trace->marks[i].event;
	}
	uint64_t end = marked ? device->event_count : first + PART_EVENTS;
	return end < device->event_count ? end : device->event_count;
}

static bool print_trace(const char *path, const struct neap_trace *trace)
{
	const struct neap_trace_device *device = &trace->devices[0];
	struct blocks blocks = {.items = calloc(device->event_count + 1, sizeof *blocks.items)};
	struct outcome worst = {0}, outcome;
	unsigned steps = 0, at_bound = 0;
	bool good = blocks.items;
	for (uint64_t first = 0, end; good && first < device->event_count; first = end) {
		end = step_end(trace, device, first);
		good = cut_step(trace, 0, first, end, &blocks) && lay_out(&blocks, &outcome);
		steps++;
		at_bound += good && outcome.layout.total_bytes == outcome.layout.bound_bytes;
		if (good && (!worst.count || compare_outcomes(&outcome, &worst) > 0))
			worst = outcome;
	}
	free(blocks.items);
	if (!good)
		return false;
	char about[32];
	const char *slash = strrchr(path, '/');
	snprintf(about, sizeof about, "%u of %u met", at_bound, steps);
	print_row(slash ? slash + 1 : path, about, &worst);
	return true;
}

int main(int argc, char **argv)
{
	int first = 1;
	if (argc > 2 && strcmp(argv[1], "--work") == 0) {
		work = strtoull(argv[2], NULL, 10);
		first = 3;
	}
	printf("%-20s %-18s %7s %11s %11s %8s %9s\n", "instance", first < argc ? "bounds" : "", "blocks", "bound",
	       "total", "over %", "ms");
	if (first == argc) {
		static const size_t tiles[] = {150, 300, 450, 7000};
		for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
			if (!print_made_up("tiles", tiles[i]) || !print_made_up("sparse", tiles[i]))
				return 1;
		return !print_made_up("training", 450) || !print_made_up("training", 7000);
	}
	for (; first < argc; first++) {
		struct neap_trace *trace = NULL;
		struct neap_error err = {0};
		if (neap_trace_read(argv[first], &trace, &err) != NEAP_OK) {
			fprintf(stderr, "bench_layout: %s\n", err.message);
			return 1;
		}
		bool good = print_trace(argv[first], trace);
		neap_trace_free(trace);
		if (!good)
			return 1;
	}
	return 0;
}
