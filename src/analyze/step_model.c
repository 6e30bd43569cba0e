/* analyze/step_model.c: splits one step of a recording into its operations.
 *
 *   ring       | ... allocs and frees ... | alloc free alloc ... free | ... | frees at the end of the run |
 *                                         ^ STEP n-1                  ^ STEP n
 *                base: live at STEP n-1     the step
 *
 * A block that was allocated before the ring begins becomes known when it is freed, at the latest at the end of the
 * program. For blocks that are never freed only the sum is known, from the allocated bytes in each event. A block
 * counts as freed when its free has completed: only then can it be reused. */
#include "analyze/step_model.h"

#include "base/error.h"
#include "base/map.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

#define PASSES  3
#define STAYS   UINT32_MAX /* never freed */
#define LONGEST 65536      /* operations that the first steps may have */
#define FIRST   3          /* how many steps neap_step_model_first takes */
#define GONE    UINT64_MAX /* a live block that was allocated after the step began */

struct block {
	uint64_t address, requested, bytes;
	uint32_t stream;
	uint32_t slot;
	bool dead;
	size_t op;           /* of a block of the step: the index of its allocation */
	uint32_t born, gone; /* how many steps ended before its allocation, and before its free; or STAYS */
};

struct builder {
	const struct neap_record *record;
	const struct neap_last_settings *settings;
	uint64_t begin_ns, end_ns;
	uint64_t smaller_ns;  /* from this time on the step's micro-batches have one sample less */
	struct neap_map live; /* address -> index of its block, or GONE */
	/* The blocks of the base, then those of the step: one for each event, and one for the unknown bytes. */
	struct block *blocks;
	size_t block_count, base_count;
	struct neap_rerun_op *ops;
	struct neap_step_size *sizes;
	size_t op_count;
	bool opened, survived; /* the step freed a block of the base; a block of the step is live at its end */
};

static bool ours(const struct builder *builder, const struct neap_event *event)
{
	return event->device == builder->settings->device &&
	       (event->kind == NEAP_EVENT_ALLOC || event->kind == NEAP_EVENT_FREE_COMPLETED);
}

/* Returns the index of the first allocation after an instant. */
static size_t first_after(const struct neap_record *record, uint64_t time_ns)
{
	size_t low = 0, high = record->allocation_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (record->allocations[middle].time_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Whether the recording has all allocations of the step between these two events of the journal. If it keeps only the
 * net effect of some steps, the allocations of such a step do not come near its peak. */
static bool window_is_whole(const struct neap_record *record, const struct neap_event *begin,
			    const struct neap_event *end)
{
	uint64_t highest = 0;

	if (!record->allocation_count ||
	    (record->allocations_lost && record->allocations[0].time_ns > begin->time_ns))
		return false;
	for (size_t i = first_after(record, begin->time_ns);
	     record->thinned_steps && i < record->allocation_count && record->allocations[i].time_ns <= end->time_ns;
	     i++)
		if (record->allocations[i].device == end->device &&
		    record->allocations[i].held.allocated_bytes > highest)
			highest = record->allocations[i].held.allocated_bytes;
	return !record->thinned_steps || highest >= end->step.peak_bytes - end->step.peak_bytes / 10;
}

/* Chooses the step, as the indices of its first and last event in the journal. */
static bool find_step(const struct neap_record *record, const struct neap_last_settings *settings, size_t *ret_begin,
		      size_t *ret_end)
{
	size_t previous = SIZE_MAX;
	uint64_t highest = 0;
	bool found = false;

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->device != settings->device || event->time_ns < settings->since_ns ||
		    event->time_ns > settings->until_ns)
			continue;
		if (settings->from_change && event->time_ns == settings->since_ns &&
		    (event->kind == NEAP_EVENT_RUNG || event->kind == NEAP_EVENT_SPLIT))
			previous = i;
		if (event->kind == NEAP_EVENT_OOM)
			previous = SIZE_MAX; /* the next one is only the rest of a step */
		if (event->kind != NEAP_EVENT_STEP)
			continue;
		if (previous != SIZE_MAX && event->step.peak_bytes >= highest &&
		    window_is_whole(record, &record->journal[previous], event)) {
			highest = event->step.peak_bytes;
			*ret_begin = previous;
			*ret_end = i;
			found = true;
		}
		previous = i;
	}
	return found;
}

static bool add_block(struct builder *builder, const struct neap_event *event, uint32_t *ret_index)
{
	const struct neap_event_allocation *from = neap_event_as_allocation(event);
	struct block *block = &builder->blocks[builder->block_count];
	uint64_t former;

	/* The free of the earlier block was lost, but it happened, because its address is used again. */
	if (event->kind == NEAP_EVENT_ALLOC && neap_map_get(&builder->live, from->address, &former) && former != GONE)
		builder->blocks[former].dead = true;
	*block = (struct block){.address = from->address,
				.requested = from->requested_bytes,
				.bytes = from->bytes,
				.stream = from->stream,
				.gone = STAYS};
	*ret_index = (uint32_t)builder->block_count++;
	return event->kind != NEAP_EVENT_ALLOC || neap_map_put(&builder->live, from->address, *ret_index);
}

/* Finds the blocks that are live when the step begins. False: no host memory. */
static bool find_base(struct builder *builder)
{
	const struct neap_record *record = builder->record;
	bool good = true;
	uint64_t value;
	uint32_t index;

	for (size_t i = 0; good && i < record->allocation_count; i++) {
		const struct neap_event *event = &record->allocations[i];
		if (!ours(builder, event))
			continue;
		if (event->kind == NEAP_EVENT_ALLOC && event->time_ns <= builder->begin_ns)
			good = add_block(builder, event, &index);
		else if (event->kind == NEAP_EVENT_ALLOC)
			good = neap_map_put(&builder->live, event->allocation.address, GONE);
		else if (neap_map_remove(&builder->live, event->allocation.address, &value)) {
			if (value != GONE && event->time_ns <= builder->begin_ns)
				builder->blocks[value].dead = true;
		} else if (event->time_ns > builder->begin_ns) { /* it was allocated before the ring begins */
			good = add_block(builder, event, &index);
		}
	}
	return good;
}

static int by_address(const void *left, const void *right)
{
	uint64_t a = ((const struct block *)left)->address, b = ((const struct block *)right)->address;

	return a < b ? -1 : a > b;
}

/* Sorts the live blocks by address, and adds one block for the bytes that no event explains. False: the blocks
 * together have more bytes than were allocated. */
static bool settle_base(struct builder *builder, uint64_t level, uint64_t *ret_known)
{
	size_t kept = 0;
	uint64_t known = 0;

	for (size_t i = 0; i < builder->block_count; i++) {
		if (builder->blocks[i].dead)
			continue;
		builder->blocks[kept] = builder->blocks[i];
		if (__builtin_add_overflow(known, builder->blocks[kept++].bytes, &known))
			return false;
	}
	if (known > level)
		return false;
	qsort(builder->blocks, kept, sizeof *builder->blocks, by_address);
	if (level > known)
		builder->blocks[kept++] =
			(struct block){.requested = level - known, .bytes = level - known, .gone = STAYS};
	for (size_t i = 0; i < kept; i++) {
		builder->blocks[i].slot = (uint32_t)i;
		builder->ops[builder->op_count++] =
			(struct neap_rerun_op){(uint32_t)i, builder->blocks[i].stream, builder->blocks[i].requested};
	}
	builder->block_count = builder->base_count = kept;
	*ret_known = known;
	return true;
}

static bool never_scales(const char *tag)
{
	return !strcmp(tag, "parameters") || !strcmp(tag, "gradients") || !strcmp(tag, "optimizer") ||
	       !strcmp(tag, "workspace");
}

/* Returns when, between two instants, the micro-batches became smaller; UINT64_MAX: they did not. */
static uint64_t find_smaller(const struct neap_record *record, const struct neap_last_settings *settings,
			     uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t found = UINT64_MAX;

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->kind == NEAP_EVENT_SMALLER_PARTS && event->device == settings->device &&
		    event->time_ns > begin_ns && event->time_ns < end_ns)
			found = event->time_ns;
	}
	return found;
}

static bool is_smaller(const struct builder *builder, const struct neap_event *event)
{
	return event->time_ns > builder->smaller_ns && builder->settings->split.micro_batch > 1;
}

static struct neap_step_size guess(const struct builder *builder, const struct neap_event *event)
{
	bool smaller = is_smaller(builder, event);
	uint64_t samples = builder->settings->split.micro_batch - smaller;
	uint64_t bytes = event->allocation.requested_bytes;
	const struct neap_step_tags *tags = builder->settings->tags;
	bool stays = tags ? tags->of_optimizer(tags->context, event->allocation.tag)
			  : never_scales(neap_record_name(builder->record, event->allocation.tag));
	bool scratch = tags && !stays && bytes % samples && bytes >= NEAP_MIB;
	if (bytes % samples || stays)
		return (struct neap_step_size){
			.fixed = bytes, .scratch = scratch ? bytes / samples + 1 : 0, .smaller = smaller};
	return (struct neap_step_size){.sample = bytes / samples, .smaller = smaller};
}

/* Finds gradients, so that they do not scale. In PyTorch's own allocator they have no tag. A block that outlives its
 * step counts as a gradient if it is as large as a parameter or its state: a block that was there before the last
 * step and stays. Neither kind scales. False: no host memory. */
static bool keep_gradients(struct builder *builder, uint32_t last)
{
	struct neap_map sizes = {0};
	uint64_t value;
	bool ok = true;

	for (size_t i = 0; ok && i < builder->block_count; i++)
		if (builder->blocks[i].gone == STAYS && builder->blocks[i].born < last)
			ok = neap_map_put(&sizes, builder->blocks[i].requested, 1);
	for (size_t i = builder->base_count; ok && i < builder->block_count; i++) {
		const struct block *block = &builder->blocks[i];
		if (block->gone > block->born && neap_map_get(&sizes, block->requested, &value))
			builder->sizes[block->op] = (struct neap_step_size){.fixed = block->requested};
	}
	neap_map_fini(&sizes);
	return ok;
}

/* Finds the end of the device's first step after an event of the journal; NULL: there is none. */
static const struct neap_event *next_step(const struct builder *builder, size_t *index)
{
	const struct neap_record *record = builder->record;

	for (; *index < record->journal_count; (*index)++) {
		const struct neap_event *event = &record->journal[*index];
		if (event->kind == NEAP_EVENT_STEP && event->device == builder->settings->device &&
		    event->time_ns >= builder->begin_ns)
			return &record->journal[(*index)++];
	}
	return NULL;
}

/* Adds the operations of the step. False: no host memory. */
static bool take_step(struct builder *builder)
{
	const struct neap_record *record = builder->record;
	size_t next = 0;
	const struct neap_event *end = next_step(builder, &next);
	uint32_t index = 0, steps = 0;
	uint64_t value;

	neap_map_fini(&builder->live);
	for (size_t i = 0; i < builder->base_count; i++)
		if (builder->blocks[i].address &&
		    !neap_map_put(&builder->live, builder->blocks[i].address, builder->blocks[i].slot))
			return false;
	for (size_t i = 0; i < record->allocation_count; i++) {
		const struct neap_event *event = &record->allocations[i];
		if (!ours(builder, event) || event->time_ns <= builder->begin_ns || event->time_ns > builder->end_ns)
			continue;
		for (; end && end->time_ns < event->time_ns; end = next_step(builder, &next))
			steps++;
		struct neap_rerun_op *op = &builder->ops[builder->op_count];
		if (event->kind == NEAP_EVENT_ALLOC) {
			const struct neap_event_allocation *block = neap_event_as_allocation(event);
			if (!block->requested_bytes)
				continue;
			if (!add_block(builder, event, &index))
				return false;
			*op = (struct neap_rerun_op){index, block->stream, block->requested_bytes};
			builder->blocks[index].op = builder->op_count;
			builder->blocks[index].born = steps;
			builder->sizes[builder->op_count++] = guess(builder, event);
		} else if (neap_map_remove(&builder->live, event->allocation.address, &value)) {
			builder->opened |= value < builder->base_count;
			builder->blocks[value].gone = steps;
			*op = (struct neap_rerun_op){.slot = (uint32_t)value};
			builder->sizes[builder->op_count++] = (struct neap_step_size){0};
		}
	}
	size_t cursor = 0;
	for (const struct neap_map_slot *slot; (slot = neap_map_next(&builder->live, &cursor));)
		builder->survived |= slot->value >= builder->base_count;
	return !builder->settings->tags || keep_gradients(builder, steps);
}

/* From two splits. */

/* Finds how an allocation's size depends on the micro-batch, from its sizes with two splits. False: not by whole
 * bytes per sample.
 */
static bool solve(uint64_t more, uint64_t size_more, uint64_t less, uint64_t size_less,
		  struct neap_step_size *ret_size)
{
	if (size_more < size_less || (size_more - size_less) % (more - less))
		return false;
	uint64_t sample = (size_more - size_less) / (more - less);
	if (sample > size_less / less)
		return false;
	*ret_size = (struct neap_step_size){size_less - sample * less, sample};
	return true;
}

struct pair_search {
	const struct neap_record *record;
	const struct neap_last_settings *settings;
	/* Allocations in order: `earlier` under the previous split, `later` in the step. The step's smaller
	 * micro-batches come last, and later_count does not include them. */
	const struct neap_event_allocation **earlier, **later;
	size_t earlier_count, later_count;
};

static bool pair_fits(const struct pair_search *search, size_t earlier, size_t later, struct neap_step_size *ret_size)
{
	const struct neap_event_allocation *a = search->earlier[earlier], *b = search->later[later];

	return a->tag == b->tag && a->stream == b->stream &&
	       solve(search->settings->before.micro_batch, a->requested_bytes, search->settings->split.micro_batch,
		     b->requested_bytes, ret_size);
}

/* Returns how many allocations from `offset` on match those of the step. */
static size_t run_length(const struct pair_search *search, size_t offset)
{
	struct neap_step_size size;
	size_t length = 0;

	while (offset + length < search->earlier_count && length < search->later_count &&
	       pair_fits(search, offset + length, length, &size))
		length++;
	return length;
}

/* Learns sizes: a size that both splits have under one tag is known, unless two pairs disagree about it. */
static bool learn(const struct pair_search *search, struct neap_step_model *model)
{
	size_t best = 0, longest = 0;
	bool learned = false;

	for (size_t offset = 0; offset < search->earlier_count && search->earlier_count - offset > longest;
	     offset++) {
		size_t length = run_length(search, offset);
		if (length > longest) {
			longest = length;
			best = offset;
		}
	}
	if (longest < 4) /* fewer could match by chance */
		return false;
	for (size_t i = 0, alloc = 0; i < model->step_count; i++) {
		const struct neap_rerun_op *op = &model->ops[model->base_count + i];
		if (!op->bytes)
			continue;
		const struct neap_event_allocation *block = search->later[alloc++];
		struct neap_step_size size = {0}, other;
		bool smaller = model->sizes[i].smaller;
		unsigned seen = 0;
		for (size_t k = 0; k < longest && seen < 2; k++) {
			if (search->later[k]->tag != block->tag || !pair_fits(search, best + k, k, &other))
				continue;
			other.smaller = smaller;
			if (neap_step_bytes(&other, search->settings->split.micro_batch, true) !=
			    block->requested_bytes)
				continue;
			if (!seen || other.fixed != size.fixed || other.sample != size.sample) {
				seen++;
				size = other;
			}
		}
		if (seen == 1) {
			model->sizes[i] = size;
			learned = true;
		}
	}
	return learned;
}

/* Learns from the last allocations with the split before, up to that split's failure or end. */
static bool learn_from_before(const struct builder *builder, struct neap_step_model *model)
{
	const struct neap_record *record = builder->record;
	const struct neap_last_settings *settings = builder->settings;
	struct pair_search search = {.record = record, .settings = settings};
	uint64_t begin_ns = settings->before_since_ns;
	size_t later_count = 0;
	bool learned = false;

	if (settings->before.micro_batch <= settings->split.micro_batch)
		return false;
	for (size_t i = 0; i < record->journal_count; i++)
		if (record->journal[i].kind == NEAP_EVENT_STEP && record->journal[i].device == settings->device &&
		    record->journal[i].time_ns < settings->since_ns && record->journal[i].time_ns > begin_ns)
			begin_ns = record->journal[i].time_ns;
	uint64_t until_ns = find_smaller(record, settings, begin_ns, settings->since_ns);
	until_ns = until_ns < settings->since_ns ? until_ns : settings->since_ns;
	search.earlier = calloc(record->allocation_count + 1, sizeof *search.earlier);
	search.later = calloc(record->allocation_count + 1, sizeof *search.later);
	for (size_t i = 0; search.earlier && search.later && i < record->allocation_count; i++) {
		const struct neap_event *event = &record->allocations[i];
		if (!ours(builder, event) || event->kind != NEAP_EVENT_ALLOC || !event->allocation.requested_bytes)
			continue;
		if (event->time_ns > begin_ns && event->time_ns < until_ns)
			search.earlier[search.earlier_count++] = &event->allocation;
		if (event->time_ns <= builder->begin_ns || event->time_ns > builder->end_ns)
			continue;
		search.later[later_count++] = &event->allocation;
		search.later_count += !is_smaller(builder, event);
	}
	if (search.earlier && search.later)
		learned = learn(&search, model);
	free(search.earlier);
	free(search.later);
	return learned;
}

/* Returns the allocated bytes when the step begins, which not every event of the journal has. */
static uint64_t level_at(const struct builder *builder, size_t begin)
{
	const struct neap_record *record = builder->record;
	uint64_t level = 0;

	if (record->journal[begin].kind == NEAP_EVENT_STEP)
		return record->journal[begin].held.allocated_bytes;
	for (size_t i = 0; i < record->allocation_count && record->allocations[i].time_ns <= builder->begin_ns; i++)
		if (ours(builder, &record->allocations[i]))
			level = record->allocations[i].held.allocated_bytes;
	return level;
}

static uint64_t reserved_peak(const struct builder *builder)
{
	uint64_t peak = 0;

	for (size_t i = 0; i < builder->record->allocation_count; i++) {
		const struct neap_event *event = &builder->record->allocations[i];
		if (event->device == builder->settings->device && event->time_ns > builder->begin_ns &&
		    event->time_ns <= builder->end_ns && event->held.reserved_bytes > peak)
			peak = event->held.reserved_bytes;
	}
	return peak;
}

enum neap_status neap_step_model_make(const struct neap_record *record, const struct neap_last_settings *settings,
				      struct neap_step_model *ret_model, struct neap_error *err)
{
	size_t begin, end, capacity = record->allocation_count + 2;
	struct builder builder = {.record = record, .settings = settings};
	struct neap_step_model model = {0};
	enum neap_status status = NEAP_OK;
	uint64_t known = 0;

	if (!find_step(record, settings, &begin, &end))
		return neap_fail(err, NEAP_ENOENT, "no whole step with these settings is in the recording");
	builder.begin_ns = record->journal[begin].time_ns;
	builder.end_ns = record->journal[end].time_ns;
	builder.smaller_ns = find_smaller(record, settings, builder.begin_ns, builder.end_ns);
	builder.blocks = calloc(capacity, sizeof *builder.blocks);
	builder.ops = calloc(2 * capacity, sizeof *builder.ops);
	builder.sizes = calloc(2 * capacity, sizeof *builder.sizes);
	if (!builder.blocks || !builder.ops || !builder.sizes || !find_base(&builder)) {
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while looking at a step");
		goto out;
	}
	uint64_t level = level_at(&builder, begin);
	if (!settle_base(&builder, level, &known)) {
		status = neap_fail(err, NEAP_EPARSE, "more blocks are live than the allocator counted");
		goto out;
	}
	if (!take_step(&builder)) {
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while looking at a step");
		goto out;
	}
	memmove(builder.sizes, builder.sizes + builder.base_count,
		(builder.op_count - builder.base_count) * sizeof *builder.sizes);
	model = (struct neap_step_model){
		.ops = builder.ops,
		.sizes = builder.sizes,
		.base_count = builder.base_count,
		.step_count = builder.op_count - builder.base_count,
		.slot_count = builder.block_count,
		.base_bytes = level,
		.unknown_bytes = level - known,
		.peak_allocated_bytes = record->journal[end].step.peak_bytes,
		.peak_reserved_bytes = reserved_peak(&builder),
		.closed = !builder.opened && !builder.survived,
	};
	builder.ops = NULL;
	builder.sizes = NULL;
	model.two_splits = learn_from_before(&builder, &model);
	*ret_model = model;
out:
	neap_map_fini(&builder.live);
	free(builder.blocks);
	free(builder.ops);
	free(builder.sizes);
	return status;
}

enum neap_status neap_step_model_first(const struct neap_record *record, const struct neap_last_settings *settings,
				       struct neap_step_model *ret_model, struct neap_error *err)
{
	struct builder builder = {.record = record, .settings = settings, .smaller_ns = UINT64_MAX};
	enum neap_status status = NEAP_OK;
	const struct neap_event *end = NULL;
	size_t capacity = record->allocation_count + 2, next = 0;

	for (const struct neap_event *step = next_step(&builder, &next); step && step->step.number <= FIRST;
	     step = next_step(&builder, &next))
		end = step;
	if (record->allocations_lost || settings->since_ns || !end)
		return neap_fail(err, NEAP_ENOENT, "the program's beginning is not in the recording");
	builder.end_ns = end->time_ns;
	builder.blocks = calloc(capacity, sizeof *builder.blocks);
	builder.ops = calloc(2 * capacity, sizeof *builder.ops);
	builder.sizes = calloc(2 * capacity, sizeof *builder.sizes);
	if (!builder.blocks || !builder.ops || !builder.sizes || !take_step(&builder))
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while looking at the first steps");
	else if (builder.op_count > LONGEST)
		status = neap_fail(err, NEAP_ENOENT, "the first steps are too long to be done again");
	if (!status) {
		*ret_model = (struct neap_step_model){.ops = builder.ops,
						      .sizes = builder.sizes,
						      .step_count = builder.op_count,
						      .slot_count = builder.block_count};
		builder.ops = NULL;
		builder.sizes = NULL;
	}
	neap_map_fini(&builder.live);
	free(builder.blocks);
	free(builder.ops);
	free(builder.sizes);
	return status;
}

void neap_step_model_fini(struct neap_step_model *model)
{
	free(model->ops);
	free(model->sizes);
	*model = (struct neap_step_model){0};
}
