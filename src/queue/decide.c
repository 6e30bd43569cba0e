/* queue/decide.c: see decide.h. */
#include "queue/decide.h"

/* The memory of a device that is left after the entries served so far. */
struct left {
	uint64_t available_bytes, leased_bytes;
	bool leased, whole; /* by any entry; by one that has all of it */
	size_t holder;      /* the entry with the largest lease of it */
	uint64_t largest_bytes;
};

static uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static bool has(uint32_t set, size_t device) { return set >> device & 1; }

/* Takes the entry's lease off a device. The entry already uses `used_bytes` of the bytes that the lease promises. */
static void lease(struct left *left, const struct neap_queue_entry *entry, size_t index, uint64_t used_bytes)
{
	bool whole = entry->needs.kind == NEAP_NEEDS_DEVICE;
	uint64_t bytes = whole ? UINT64_MAX : entry->needs.bytes;
	left->leased_bytes = sum(left->leased_bytes, bytes);
	left->available_bytes = whole ? 0 : less(left->available_bytes, less(entry->needs.bytes, used_bytes));
	left->whole = left->whole || whole;
	if (bytes >= left->largest_bytes) {
		left->holder = index;
		left->largest_bytes = bytes;
	}
	left->leased = true;
}

static bool could_fit(const struct neap_queue_entry *entry, const struct neap_queue_device *device)
{
	return entry->needs.kind == NEAP_NEEDS_DEVICE || entry->needs.bytes <= device->total_bytes;
}

static bool fits(const struct neap_queue_entry *entry, const struct neap_queue_device *device,
		 const struct left *left)
{
	if (entry->needs.kind == NEAP_NEEDS_DEVICE)
		return device->empty && !left->leased;
	return !left->whole && entry->needs.bytes <= left->available_bytes &&
	       sum(left->leased_bytes, entry->needs.bytes) <= device->total_bytes;
}

struct state {
	const struct neap_queue_device *devices;
	size_t device_count;
	const struct neap_queue_entry *entries;
	struct neap_queue_answer *answers;
	size_t count;
	struct left left[NEAP_GPUS];
};

static bool blocks(const struct state *state, size_t at)
{
	enum neap_queue_verdict verdict = state->answers[at].verdict;
	return verdict == NEAP_QUEUE_LEASED || verdict == NEAP_QUEUE_BEHIND || verdict == NEAP_QUEUE_USED;
}

/* Returns the devices that are closed to this entry: earlier entries that it may not pass wait for them. *ret_first:
 * the first of those entries. */
static uint32_t closed_to(const struct state *state, size_t at, size_t *ret_first)
{
	uint32_t closed = 0;
	for (size_t i = 0; i < at; i++) {
		const struct neap_queue_entry *before = &state->entries[i];
		if (!blocks(state, i) || state->entries[at].order - before->order <= NEAP_QUEUE_PASSES ||
		    !(before->devices & state->entries[at].devices))
			continue;
		if (!closed)
			*ret_first = i;
		closed |= before->devices;
	}
	return closed;
}

/* The best `gpus` of the open devices, those with the most memory available. Fewer if fewer fit. */
static uint32_t choose(const struct state *state, const struct neap_queue_entry *entry, uint32_t open)
{
	uint32_t chosen = 0;
	for (uint32_t n = 0; n < entry->gpus; n++) {
		size_t best = state->device_count;
		for (size_t i = 0; i < state->device_count; i++)
			if (has(open & ~chosen, i) && fits(entry, &state->devices[i], &state->left[i]) &&
			    (best == state->device_count ||
			     state->left[i].available_bytes > state->left[best].available_bytes))
				best = i;
		if (best == state->device_count)
			break;
		chosen |= 1u << best;
	}
	return chosen;
}

static uint32_t count_of(uint32_t set) { return (uint32_t)__builtin_popcount(set); }

/* Says why an entry that does not fit waits. */
static void explain(const struct state *state, const struct neap_queue_entry *entry, struct neap_queue_answer *answer)
{
	answer->verdict = NEAP_QUEUE_USED;
	for (size_t i = 0; i < state->device_count; i++)
		if (has(entry->devices, i) && state->left[i].leased) {
			answer->verdict = NEAP_QUEUE_LEASED;
			answer->behind = state->left[i].holder;
			return;
		}
}

static size_t position(const struct state *state, size_t at)
{
	size_t before = 0;
	for (size_t i = 0; i < at; i++)
		before += (blocks(state, i) || state->answers[i].verdict == NEAP_QUEUE_START) &&
			  state->entries[i].devices & state->entries[at].devices;
	return before + 1;
}

static void decide(struct state *state, size_t at)
{
	const struct neap_queue_entry *entry = &state->entries[at];
	struct neap_queue_answer *answer = &state->answers[at];
	uint32_t possible = 0;
	*answer = (struct neap_queue_answer){.behind = state->count, .position = position(state, at)};
	for (size_t i = 0; i < state->device_count; i++)
		possible |= has(entry->devices, i) && could_fit(entry, &state->devices[i]) ? 1u << i : 0;
	if (count_of(possible) < entry->gpus) {
		answer->verdict = NEAP_QUEUE_NEVER;
		return;
	}
	if (entry->aside) {
		answer->verdict = NEAP_QUEUE_ASIDE;
		return;
	}
	size_t first = state->count;
	uint32_t closed = closed_to(state, at, &first), chosen = choose(state, entry, possible & ~closed);
	if (count_of(chosen) == entry->gpus) {
		answer->verdict = NEAP_QUEUE_START;
		answer->devices = chosen;
		for (size_t i = 0; i < state->device_count; i++)
			if (has(chosen, i))
				lease(&state->left[i], entry, at, 0);
	} else if (closed && count_of(choose(state, entry, possible)) == entry->gpus) {
		answer->verdict = NEAP_QUEUE_BEHIND;
		answer->behind = first;
	} else {
		explain(state, entry, answer);
	}
}

void neap_queue_decide(const struct neap_queue_device *devices, size_t device_count,
		       const struct neap_queue_entry *entries, size_t count, struct neap_queue_answer *ret_answers)
{
	struct state state = {.devices = devices,
			      .device_count = device_count < NEAP_GPUS ? device_count : NEAP_GPUS,
			      .entries = entries,
			      .answers = ret_answers,
			      .count = count};
	for (size_t i = 0; i < state.device_count; i++)
		state.left[i].available_bytes = devices[i].free_bytes;
	for (size_t at = 0; at < count; at++) {
		ret_answers[at] = (struct neap_queue_answer){NEAP_QUEUE_HOLDS, 0, count, 0};
		for (size_t i = 0; entries[at].holds && i < state.device_count; i++)
			if (has(entries[at].devices, i))
				lease(&state.left[i], &entries[at], at, entries[at].used_bytes[i]);
	}
	for (size_t at = 0; at < count; at++)
		if (!entries[at].holds)
			decide(&state, at);
}
