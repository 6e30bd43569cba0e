/* See the header. The bytes by tag are recorded at the session's end, not at the peak. So the allocations and frees
 * since the peak are undone, starting from the end.
 *
 *   allocations   ... ALLOC  ALLOC  FREE  FREE ...   |  mark END, TAG_BYTES
 *                            ^ highest      <----------- live bytes by tag
 */
#include "analyze/predict.h"
#include "analyze/saturate.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

void neap_demand_add(struct neap_demand *demand, const char *tag, uint64_t bytes)
{
	const struct {
		const char *tag;
		uint64_t *field;
	} kinds[] = {
		{"activations", &demand->activations}, {"attention", &demand->attention},
		{"temporaries", &demand->temporaries}, {"batch", &demand->inputs},
		{"parameters", &demand->parameters},   {"gradients", &demand->model},
		{"optimizer", &demand->model},         {"workspace", &demand->model},
	};
	uint64_t *field = &demand->unknown;

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(tag, kinds[i].tag))
			field = kinds[i].field;
	*field = neap_plus(*field, bytes);
}

/* Marks bytes as leaked, when the leak's tag is not known. Kinds that scale are reduced first, so that the predicted
 * saving is not too large. */
void neap_demand_leak(struct neap_demand *demand, uint64_t bytes)
{
	uint64_t *fields[] = {&demand->activations, &demand->attention, &demand->temporaries, &demand->inputs,
			      &demand->unknown};

	bytes = neap_less(bytes, demand->leaked);
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		uint64_t part = bytes < *fields[i] ? bytes : *fields[i];
		*fields[i] -= part;
		demand->leaked = neap_plus(demand->leaked, part);
		bytes -= part;
	}
}

uint64_t neap_demand_total(const struct neap_demand *demand)
{
	const uint64_t kinds[] = {demand->activations, demand->attention, demand->temporaries, demand->inputs,
				  demand->parameters,  demand->model,     demand->unknown,     demand->leaked};
	uint64_t total = 0;

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		total = neap_plus(total, kinds[i]);
	return total;
}

/* Live bytes by tag, at the instant that the walk has reached. */
struct walk {
	uint64_t live[NEAP_RECORD_NAMES];
	uint64_t end_ns, settings_ns; /* the session's end; when its settings last changed */
	uint32_t device;
	uint64_t step_peak_bytes; /* since the settings last changed */
};

/* Reads the end of the last session. False: there is none. */
static bool read_end(const struct neap_record *record, struct walk *walk)
{
	size_t at = record->journal_count;

	while (at > 0 && !(record->journal[at - 1].kind == NEAP_EVENT_MARK &&
			   record->journal[at - 1].mark.mark == NEAP_MARK_END))
		at--;
	if (at == 0)
		return false;
	walk->end_ns = record->journal[at - 1].time_ns;
	walk->device = record->journal[at - 1].device;
	for (size_t i = 0; i < at; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->device != walk->device)
			continue;
		if (event->kind == NEAP_EVENT_SPLIT || event->kind == NEAP_EVENT_RUNG) {
			walk->settings_ns = event->time_ns;
			walk->step_peak_bytes = 0;
		} else if (event->kind == NEAP_EVENT_STEP && event->step.peak_bytes > walk->step_peak_bytes) {
			walk->step_peak_bytes = event->step.peak_bytes;
		}
	}
	bool found = false;
	for (size_t i = at; i < record->journal_count && record->journal[i].kind == NEAP_EVENT_TAG_BYTES; i++) {
		const struct neap_event_tag_bytes *tag = &record->journal[i].tag_bytes;
		if (record->journal[i].device != walk->device)
			continue;
		walk->live[tag->tag % NEAP_RECORD_NAMES] = tag->live_bytes;
		found = true;
	}
	return found;
}

/* Undoes one event. False: fewer than 0 bytes would have been live before it. */
static bool step_back(struct walk *walk, const struct neap_event *event)
{
	const struct neap_event_allocation *block = neap_event_as_allocation(event);

	if (!block)
		return true;
	uint64_t *live = &walk->live[block->tag % NEAP_RECORD_NAMES];
	if (event->kind == NEAP_EVENT_FREE_REQUESTED)
		*live = neap_plus(*live, block->bytes);
	if (event->kind != NEAP_EVENT_ALLOC)
		return true;
	if (*live < block->bytes)
		return false;
	*live -= block->bytes;
	return true;
}

static bool of_walk(const struct walk *walk, const struct neap_event *event)
{
	return event->device == walk->device && event->time_ns <= walk->end_ns && event->time_ns >= walk->settings_ns;
}

bool neap_demand_at_peak(const struct neap_record *record, struct neap_demand *ret_demand)
{
	struct neap_demand demand = {0};
	struct walk walk = {0};
	size_t peak = SIZE_MAX;
	uint64_t peak_bytes = 0;

	if (!read_end(record, &walk))
		return false;
	for (size_t i = 0; i < record->allocation_count; i++)
		if (of_walk(&walk, &record->allocations[i]) && record->allocations[i].kind == NEAP_EVENT_ALLOC &&
		    (peak == SIZE_MAX || record->allocations[i].held.allocated_bytes > peak_bytes)) {
			peak = i;
			peak_bytes = record->allocations[i].held.allocated_bytes;
		}
	if (peak == SIZE_MAX)
		return false;
	for (size_t i = record->allocation_count; i-- > peak + 1;)
		if (of_walk(&walk, &record->allocations[i]) && !step_back(&walk, &record->allocations[i]))
			return false;
	for (uint16_t tag = 0; tag < NEAP_RECORD_NAMES; tag++)
		if (walk.live[tag])
			neap_demand_add(&demand, neap_record_name(record, tag), walk.live[tag]);
	if (neap_demand_total(&demand) != peak_bytes)
		return false;
	if (walk.step_peak_bytes > peak_bytes)
		demand.unknown = neap_plus(demand.unknown, walk.step_peak_bytes - peak_bytes);
	*ret_demand = demand;
	return true;
}

struct interval {
	double low, high;
};

static void multiply(struct interval *interval, double low, double high)
{
	interval->low *= low;
	interval->high *= high;
}

bool neap_predict(const struct neap_demand *demand, const struct neap_train_settings *from,
		  const struct neap_train_settings *to, uint32_t layers, struct neap_prediction *ret_prediction)
{
	struct interval activations = {1, 1}, attention = {1, 1}, temporaries = {1, 1}, parameters = {1, 1};
	uint32_t taken = to->rungs & ~from->rungs;
	double low = 0, high = 0;

	if (from->rungs & ~to->rungs || !from->split.micro_batch || !to->split.micro_batch)
		return false;
	double scale = (double)to->split.micro_batch / (double)from->split.micro_batch;
	if (taken & 1u << NEAP_RUNG_EFFICIENT_ATTENTION)
		multiply(&attention, 0, 0.125);
	if (taken & 1u << NEAP_RUNG_MIXED_PRECISION) {
		multiply(&activations, 0.5, 0.75);
		multiply(&attention, 0.5, 0.75);
		multiply(&temporaries, 0.5, 0.75);
		multiply(&parameters, 1, 1.5);
	}
	if (taken & 1u << NEAP_RUNG_CHECKPOINTING) {
		double one = layers ? 1 / (double)layers : 0;
		struct interval kept = {layers ? one + (1 - one) * 0.02 : 0.1, layers ? one + (1 - one) * 0.12 : 0.5};
		multiply(&activations, kept.low, kept.high);
		multiply(&attention, kept.low, kept.high);
	}
	const struct {
		uint64_t bytes;
		double low, high;
	} kinds[] = {
		{demand->activations, activations.low * scale, activations.high * scale},
		{demand->attention, attention.low * scale, attention.high * scale},
		{demand->temporaries, temporaries.low * scale, temporaries.high * scale},
		{demand->inputs, scale, scale},
		{demand->parameters, parameters.low, parameters.high},
		{demand->model, 1, 1},
		{demand->unknown, scale < 1 ? scale : 1, scale < 1 ? 1 : scale},
		{demand->leaked, 1, 1},
	};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		low += (double)kinds[i].bytes * kinds[i].low;
		high += (double)kinds[i].bytes * kinds[i].high;
	}
	*ret_prediction = (struct neap_prediction){.bytes = neap_to_bytes((low + high) / 2),
						   .uncertainty_bytes = neap_to_bytes((high - low) / 2)};
	return true;
}

size_t neap_predict_savings(const struct neap_demand *demand, uint32_t active, uint32_t layers,
			    struct neap_saving ret_savings[NEAP_SAVINGS])
{
	const struct neap_train_settings now = {{.micro_batch = 1}, active};
	uint64_t kept = neap_plus(demand->activations, demand->attention), total = neap_demand_total(demand);
	const struct {
		enum neap_rung rung;
		bool acts;
	} rungs[NEAP_SAVINGS] = {
		{NEAP_RUNG_EFFICIENT_ATTENTION, demand->attention > 0},
		{NEAP_RUNG_MIXED_PRECISION, neap_plus(kept, demand->temporaries) > 0},
		{NEAP_RUNG_CHECKPOINTING, kept > 0 && layers != 1}, /* checkpointing a single layer saves nothing */
	};
	size_t count = 0;

	for (size_t i = 0; i < NEAP_SAVINGS; i++) {
		struct neap_train_settings next = {now.split, active | 1u << rungs[i].rung};
		struct neap_prediction prediction;
		if (!rungs[i].acts || active & 1u << rungs[i].rung ||
		    !neap_predict(demand, &now, &next, layers, &prediction))
			continue;
		ret_savings[count++] =
			(struct neap_saving){rungs[i].rung, total > prediction.bytes ? total - prediction.bytes : 0,
					     prediction.uncertainty_bytes};
	}
	return count;
}

void neap_savings_text(const struct neap_saving *savings, size_t count, uint64_t peak_bytes, char *ret_text,
		       size_t capacity)
{
	char size[NEAP_UNITS_CAPACITY], not_sure[NEAP_UNITS_CAPACITY];
	size_t used = 0;

	ret_text[0] = '\0';
	for (size_t i = 0; i < count && used < capacity; i++)
		used += (size_t)snprintf(ret_text + used, capacity - used, "%s%s %s \u00b1 %s", i ? ", " : "",
					 neap_rung_name(savings[i].rung), neap_size_format(savings[i].bytes, size),
					 neap_size_format(savings[i].uncertainty_bytes, not_sure));
	if (count && used < capacity)
		snprintf(ret_text + used, capacity - used, " of the peak of %s (predicted, each alone)",
			 neap_size_format(peak_bytes, size));
}
