/* analyze/categories.c: the rules of the header, in its order. */
#include "analyze/categories.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct span {
	size_t from;     /* how many steps have ended when it begins */
	size_t crossed;  /* how many steps end between its begin and its end */
	bool unseen;     /* it began before the first event */
	bool before;     /* it began before the first step; false if training had begun before the trace */
	bool first;      /* it began in the first step */
	bool freed;      /* its free is in the trace */
	bool long_lived; /* lived "for long", as the header defines it */
};

static struct span span_of(const struct neap_steps *steps, uint64_t events, const struct neap_life *life)
{
	uint64_t begin = life->begin == NEAP_LIFE_BEFORE ? 0 : life->begin;
	uint64_t end = life->end == NEAP_LIFE_AFTER ? events : life->end;
	size_t from = life->begin == NEAP_LIFE_BEFORE ? 0 : neap_steps_before(steps, begin);
	size_t to = neap_steps_before(steps, end);
	uint64_t step_begin = from > 0 ? steps->ends[from - 1] : 0;
	uint64_t step_end = from < steps->count ? steps->ends[from] : events;
	bool known = steps->first_begin != UINT64_MAX;

	if (from == 0 && known && steps->first_begin > 0 && steps->first_begin <= begin)
		step_begin = steps->first_begin;
	return (struct span){
		.from = from,
		.crossed = to > from ? to - from : 0,
		.unseen = life->begin == NEAP_LIFE_BEFORE,
		.before =
			!steps->midway && (life->begin == NEAP_LIFE_BEFORE || (known && begin < steps->first_begin)),
		.first = known && !steps->midway && from == 0 && begin >= steps->first_begin &&
			 life->begin != NEAP_LIFE_BEFORE,
		.freed = life->end != NEAP_LIFE_AFTER,
		.long_lived = end - begin > 8 && (end - begin) * 40 >= step_end - step_begin,
	};
}

static enum neap_category by_tag(const char *tag)
{
	static const struct {
		const char *tag;
		enum neap_category category;
	} known[] = {{"parameters", NEAP_CATEGORY_PARAMETERS}, {"gradients", NEAP_CATEGORY_GRADIENTS},
		     {"optimizer", NEAP_CATEGORY_OPTIMIZER},   {"activations", NEAP_CATEGORY_ACTIVATIONS},
		     {"attention", NEAP_CATEGORY_ACTIVATIONS}, {"temporaries", NEAP_CATEGORY_TEMPORARIES},
		     {"workspace", NEAP_CATEGORY_WORKSPACES},  {"batch", NEAP_CATEGORY_INPUTS}};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strcmp(known[i].tag, tag) == 0)
			return known[i].category;
	return NEAP_CATEGORY_UNKNOWN;
}

static enum neap_category by_frames(const struct neap_sites *sites, const struct neap_steps *steps,
				    const struct span *span, const struct neap_life *life)
{
	enum neap_phase freed = (enum neap_phase)sites->phases[life->freed_stack];
	bool kept = life->freed == NEAP_LIFE_AFTER, over = steps->count > 0 ? span->crossed > 0 : kept;
	switch ((enum neap_phase)sites->phases[life->stack]) {
	case NEAP_PHASE_MODEL:
		return NEAP_CATEGORY_PARAMETERS;
	case NEAP_PHASE_OPTIMIZER:
		return over ? NEAP_CATEGORY_OPTIMIZER : NEAP_CATEGORY_TEMPORARIES;
	case NEAP_PHASE_BACKWARD:
		return over || freed == NEAP_PHASE_ZERO_GRAD || freed == NEAP_PHASE_OPTIMIZER
			       ? NEAP_CATEGORY_GRADIENTS
			       : NEAP_CATEGORY_TEMPORARIES;
	case NEAP_PHASE_FORWARD:
		if (span->crossed >= 2)
			return NEAP_CATEGORY_KEPT;
		if (steps->count == 0 && kept)
			return NEAP_CATEGORY_UNKNOWN;
		if (freed == NEAP_PHASE_FORWARD)
			return NEAP_CATEGORY_TEMPORARIES;
		return freed == NEAP_PHASE_BACKWARD || (steps->count > 0 && span->long_lived)
			       ? NEAP_CATEGORY_ACTIVATIONS
			       : NEAP_CATEGORY_TEMPORARIES;
	case NEAP_PHASE_WORKSPACE:
		return NEAP_CATEGORY_WORKSPACES;
	case NEAP_PHASE_COMPILING:
		return kept ? NEAP_CATEGORY_UNKNOWN : NEAP_CATEGORY_TEMPORARIES;
	case NEAP_PHASE_KEEPING:
	case NEAP_PHASE_CHOOSING:
		if (span->before || life->paired) /* blocks from before the steps, or with a size of the model's */
			return NEAP_CATEGORY_UNKNOWN;
		return span->crossed >= 2 || (kept && sites->phases[life->stack] == NEAP_PHASE_KEEPING)
			       ? NEAP_CATEGORY_KEPT
			       : NEAP_CATEGORY_UNKNOWN;
	default:
		return NEAP_CATEGORY_UNKNOWN;
	}
}

/* Whether a block may be a parameter, by its lifetime; whether it may be the gradient or optimizer state of one. */
static bool like_parameter(const struct span *span) { return span->crossed >= 2 && (span->before || span->unseen); }
static bool like_companion(const struct span *span)
{
	return !span->before && !span->unseen &&
	       (span->crossed >= 2 ? span->first : span->crossed == 1 && span->freed);
}

/* Whether a line of Python requested it. */
static bool has_line(const struct neap_sites *sites, const struct neap_life *life)
{
	const struct neap_trace *trace = sites->trace;
	const char *file = neap_trace_text(trace, trace->frames[sites->frames[life->stack]].file);
	size_t length = strlen(file);
	return trace->torch && length > 3 && strcmp(file + length - 3, ".py") == 0;
}

static enum neap_category by_lifetime(const struct neap_sites *sites, const struct neap_steps *steps,
				      const struct span *span, const struct neap_life *life)
{
	if (steps->count < 2)
		return NEAP_CATEGORY_UNKNOWN;
	if (span->crossed > 0 && !life->paired)
		return NEAP_CATEGORY_UNKNOWN;
	if (span->crossed >= 2)
		return span->before  ? NEAP_CATEGORY_PARAMETERS
		       : span->first ? NEAP_CATEGORY_OPTIMIZER
				     : NEAP_CATEGORY_UNKNOWN;
	if (span->before || span->unseen)
		return NEAP_CATEGORY_UNKNOWN;
	if (span->crossed == 1 && span->freed)
		return has_line(sites, life) ? NEAP_CATEGORY_UNKNOWN : NEAP_CATEGORY_GRADIENTS;
	if (span->crossed == 1)
		return NEAP_CATEGORY_UNKNOWN;
	return span->long_lived ? NEAP_CATEGORY_ACTIVATIONS : NEAP_CATEGORY_TEMPORARIES;
}

static int by_size(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;
	return *a < *b ? -1 : *a > *b;
}

/* Whether a block of the other side has the same size, or half or twice that size, like a copy in 16 bits of one in
 * 32. */
static bool has_mate(uint64_t size, const uint64_t *sizes, size_t count)
{
	const uint64_t wanted[] = {size, 2 * size, size % 2 == 0 ? size / 2 : size};
	for (size_t i = 0; i < 3; i++)
		if (bsearch(&wanted[i], sizes, count, sizeof *sizes, by_size))
			return true;
	return false;
}

/* A recording of PyTorch's own allocator has no mark where the first step begins: its first forward counts as the
 * beginning. */
static void begin_steps(const struct neap_lives *lives, const struct neap_sites *sites, struct neap_steps *steps)
{
	if (steps->first_begin != UINT64_MAX || steps->midway || steps->count == 0)
		return;
	struct neap_life_cursor cursor = neap_lives_begin(lives, lives->before);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life) && life.begin < steps->ends[0])
		if (sites->phases[life.stack] == NEAP_PHASE_FORWARD) {
			steps->first_begin = life.begin;
			return;
		}
}

/* The sizes of blocks that may be parameters (PARAMETERS); of those that may be their gradients or optimizer state
 * (COMPANIONS); and of the latter, those that no line of the program itself requested (SURE). */
enum side { PARAMETERS, COMPANIONS, SURE, SIDES };

struct sizes {
	uint64_t *of[SIDES];
	size_t count[SIDES];
};

static void add_sizes(const struct neap_lives *lives, const struct neap_sites *sites, const struct neap_steps *steps,
		      uint64_t events, struct sizes *sizes)
{
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life)) {
		struct span span = span_of(steps, events, &life);
		enum neap_phase phase = (enum neap_phase)sites->phases[life.stack];
		bool own = has_line(sites, &life) && phase != NEAP_PHASE_BACKWARD;
		if (like_parameter(&span) || phase == NEAP_PHASE_MODEL)
			sizes->of[PARAMETERS][sizes->count[PARAMETERS]++] = life.size;
		/* A batch that the program loads in each step does not go with data that it loaded before the
		 * steps. */
		else if (like_companion(&span) && (span.crossed >= 2 || !own))
			sizes->of[COMPANIONS][sizes->count[COMPANIONS]++] = life.size;
		if (like_companion(&span) && (!own || phase == NEAP_PHASE_OPTIMIZER))
			sizes->of[SURE][sizes->count[SURE]++] = life.size;
	}
	for (int side = 0; side < SIDES; side++)
		qsort(sizes->of[side], sizes->count[side], sizeof *sizes->of[side], by_size);
}

static bool has_mate_in(const struct sizes *sizes, enum side side, const struct neap_life *life)
{
	return has_mate(life->size, sizes->of[side], sizes->count[side]);
}

#define REPEATS 3 /* a line that keeps blocks from this many steps makes no part of the model, whatever their sizes */

/* By stack: in how many steps after the first it made blocks that were kept over 2 step ends, and the newest of these
 * steps. */
struct kept_steps {
	size_t count, newest;
};

/* Whether the block's lifetime may show that its line keeps the blocks that it makes. */
static bool may_show_keeping(const struct neap_sites *sites, const struct span *span, const struct neap_life *life)
{
	return span->from > 0 && span->crossed >= 2 && sites->phases[life->stack] == NEAP_PHASE_UNKNOWN &&
	       has_line(sites, life);
}

static void count_kept_steps(const struct neap_lives *lives, const struct neap_sites *sites,
			     const struct neap_steps *steps, uint64_t events, struct kept_steps *kept)
{
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life)) {
		struct span span = span_of(steps, events, &life);
		struct kept_steps *of_stack = &kept[life.stack];
		if (!may_show_keeping(sites, &span, &life) || of_stack->newest == span.from)
			continue;
		of_stack->newest = span.from;
		of_stack->count++;
	}
}

/* Whether the block's lifetime shows that its line keeps the blocks that it makes. */
static bool shows_keeping(const struct neap_sites *sites, const struct span *span, const struct neap_life *life,
			  const struct sizes *sizes, const struct kept_steps *kept)
{
	return may_show_keeping(sites, span, life) &&
	       (kept[life->stack].count >= REPEATS ||
		(!has_mate_in(sizes, PARAMETERS, life) && !has_mate_in(sizes, SURE, life)));
}

/* Finds the lines that also made blocks which were freed before two steps had ended. A free in the last step, which
 * did not end, shows nothing: a program that fails frees all of its blocks. */
static void find_choosing(const struct neap_lives *lives, struct neap_sites *sites, const struct neap_steps *steps,
			  uint64_t events)
{
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life)) {
		struct span span = span_of(steps, events, &life);
		if (sites->phases[life.stack] == NEAP_PHASE_KEEPING && span.crossed < 2 &&
		    span.from + span.crossed < steps->count)
			sites->phases[life.stack] = NEAP_PHASE_CHOOSING;
	}
}

enum neap_status neap_categories_pair(struct neap_lives *lives, struct neap_sites *sites, struct neap_steps *steps,
				      uint64_t events, struct neap_error *err)
{
	struct sizes sizes = {0};
	struct kept_steps *kept = calloc((size_t)sites->trace->call_count + 1, sizeof *kept);
	enum neap_status status = kept ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "no memory for the lines of a trace");
	bool keeps = false;

	for (int side = 0; side < SIDES; side++) {
		sizes.of[side] = calloc(lives->count + 1, sizeof *sizes.of[side]);
		if (!sizes.of[side])
			status = neap_fail(err, NEAP_ENOMEM, "no memory for the sizes of a trace's blocks");
	}
	if (status)
		goto out;
	begin_steps(lives, sites, steps);
	add_sizes(lives, sites, steps, events, &sizes);
	count_kept_steps(lives, sites, steps, events, kept);
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life)) {
		struct span span = span_of(steps, events, &life);
		bool parameter = like_parameter(&span);
		if ((parameter || like_companion(&span)) &&
		    has_mate_in(&sizes, parameter ? COMPANIONS : PARAMETERS, &life))
			neap_lives_pair(lives, cursor.next - 1);
		if (shows_keeping(sites, &span, &life, &sizes, kept)) {
			sites->phases[life.stack] = NEAP_PHASE_KEEPING;
			keeps = true;
		}
	}
	if (keeps)
		find_choosing(lives, sites, steps, events);
out:
	for (int side = 0; side < SIDES; side++)
		free(sizes.of[side]);
	free(kept);
	return status;
}

enum neap_category neap_category_of(const struct neap_sites *sites, const struct neap_steps *steps, uint64_t events,
				    const struct neap_life *life, enum neap_category_how *ret_how)
{
	const struct neap_trace *trace = sites->trace;
	struct span span = span_of(steps, events, life);
	enum neap_category found = NEAP_CATEGORY_UNKNOWN;

	if (neap_trace_of_neap(trace) && life->stack) {
		*ret_how = NEAP_HOW_TAG;
		found = by_tag(neap_trace_text(trace, trace->frames[sites->frames[life->stack]].name));
		if (found != NEAP_CATEGORY_UNKNOWN)
			return found;
	}
	*ret_how = NEAP_HOW_FRAMES;
	found = by_frames(sites, steps, &span, life);
	if (found != NEAP_CATEGORY_UNKNOWN)
		return found;
	*ret_how = NEAP_HOW_LIFETIME;
	found = by_lifetime(sites, steps, &span, life);
	if (found == NEAP_CATEGORY_UNKNOWN)
		*ret_how = NEAP_HOW_NOTHING;
	return found;
}

void neap_categories_at(const struct neap_lives *lives, const struct neap_sites *sites,
			const struct neap_steps *steps, uint64_t events, uint64_t event,
			struct neap_categories *ret_categories)
{
	struct neap_categories categories = {0};
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life)) {
		enum neap_category_how how = NEAP_HOW_NOTHING;
		if (!neap_life_at(&life, event))
			continue;
		enum neap_category category = neap_category_of(sites, steps, events, &life, &how);
		categories.bytes[category][how] += life.size;
		categories.blocks[category][how]++;
	}
	*ret_categories = categories;
}

const char *neap_category_name(enum neap_category category)
{
	static const char *const names[NEAP_CATEGORIES] = {"parameters",  "gradients",       "optimizer state",
							   "activations", "temporaries",     "workspaces",
							   "inputs",      "kept over steps", "unknown"};
	return names[category];
}

const char *neap_category_how_name(enum neap_category_how how)
{
	static const char *const names[NEAP_HOWS] = {"tag", "frames", "lifetime", "no evidence"};
	return names[how];
}
