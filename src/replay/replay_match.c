/* replay/replay_match.c: compares a replay with its recording, action by action. */
#include "base/units.h"
#include "replay/replay_internal.h"

/* Finds the next recorded segment event. */
static bool next_segment(struct neap_trace_cursor *cursor, struct neap_trace_event *ret_event)
{
	return neap_trace_find(cursor, NEAP_TRACE_GROWTHS | NEAP_TRACE_RELEASES, ret_event);
}

void replay_differs(struct replay *replay)
{
	struct neap_replay_match *match = &replay->result.match;
	if (match->first_difference != UINT64_MAX)
		return;
	match->first_difference = replay->result.events_applied;
	if (replay->same && replay->pool_count)
		replay->wrong_pool = replay->pool_of[replay->event.stream];
}

/* Notes that the model chose a block which the recorded allocator did not choose, so the block must have been
 * smaller. */
static void note_wrong(struct replay *replay, uint64_t address)
{
	uint64_t size = neap_torch_round(&replay->result.settings, replay->event.size);
	if (replay->result.match.first_difference != UINT64_MAX || replay->found_bytes < size)
		return;
	replay->wrong_address = address;
	replay->wrong_bytes = replay->found_bytes - size + 512;
}

/* Compares an action of the model with the recording. */
void replay_observe(void *context, enum neap_torch_action action, uint64_t address, uint64_t size, uint64_t stream)
{
	static const uint8_t kinds[NEAP_TORCH_ACTIONS] = {
		[NEAP_TORCH_SEGMENT_ALLOC] = NEAP_TRACE_SEGMENT_ALLOC,
		[NEAP_TORCH_SEGMENT_FREE] = NEAP_TRACE_SEGMENT_FREE,
		[NEAP_TORCH_SEGMENT_MAP] = NEAP_TRACE_SEGMENT_MAP,
		[NEAP_TORCH_SEGMENT_UNMAP] = NEAP_TRACE_SEGMENT_UNMAP,
	};
	struct replay *replay = context;
	struct neap_replay_match *match = &replay->result.match;
	struct neap_trace_event event;
	(void)stream;
	if (action == NEAP_TORCH_ALLOC && replay->event.kind == NEAP_TRACE_ALLOC) {
		if (address == replay->event.address) {
			match->same_allocs++;
		} else {
			note_wrong(replay, address);
			replay_differs(replay);
		}
	}
	if (!kinds[action])
		return;
	if (next_segment(&replay->segments, &event) && event.kind == kinds[action] && event.size == size &&
	    event.address == address)
		match->same_segments++;
	else
		replay_differs(replay);
}

/* Returns the address of the recording's next segment. The addresses of an expandable one are reserved before its
 * memory, so its event may come only with a later request. */
uint64_t replay_place(void *context, uint64_t size, uint64_t stream, uint32_t pool, uint64_t page)
{
	struct replay *replay = context;
	struct neap_trace_cursor cursor = replay->segments;
	struct neap_trace_event event;
	if (replay->result.match.first_difference != UINT64_MAX)
		return 0;
	while (next_segment(&cursor, &event)) {
		bool ours = replay->trace->streams[event.stream].handle == stream &&
			    replay->pool_of[event.stream] == pool;
		if (!page)
			return ours && event.kind == NEAP_TRACE_SEGMENT_ALLOC && event.size == size ? event.address
												    : 0;
		/* Small segments grow by single pages of 2 MiB. A range that exists already grows in place. The size
		 * of a range is known if the device's size is. */
		if (ours && event.kind == NEAP_TRACE_SEGMENT_MAP &&
		    (event.size == NEAP_REPLAY_PAGE_BYTES) == (page == NEAP_REPLAY_PAGE_BYTES) &&
		    (!replay->options->memory_bytes || !neap_torch_covers(replay->policy, event.address)))
			return event.address;
	}
	return 0;
}

static bool correct_start(const struct replay *replay, struct neap_map *extra)
{
	for (size_t i = 0; i < replay->start.segment_count && replay->wrong_bytes; i++) {
		const struct neap_torch_segment *segment = &replay->start.segments[i];
		uint64_t address = segment->address, before = 0;
		for (size_t j = 0; j < segment->piece_count; j++) {
			const struct neap_torch_piece *piece = j ? &segment->pieces[j - 1] : NULL;
			if (address == replay->wrong_address && piece && piece->guessed) {
				uint64_t bytes = 0;
				neap_map_get(extra, before, &bytes);
				bytes += replay->wrong_bytes;
				return bytes <= NEAP_MIB && neap_map_put(extra, before, bytes);
			}
			before = address;
			address += segment->pieces[j].size;
		}
	}
	return false;
}

/* Called if the request was of a private pool. Assumes, once for each pool, that its blocks are not split. */
static bool correct_pool(const struct replay *replay, struct replay_guesses *guesses)
{
	uint32_t pool = replay->wrong_pool;
	return pool && !replay->traits[pool].whole && !neap_map_get(&guesses->whole, pool, NULL) &&
	       neap_map_put(&guesses->whole, pool, 1);
}

bool replay_correct_guess(const struct replay *replay, struct replay_guesses *guesses)
{
	return correct_start(replay, &guesses->extra) || correct_pool(replay, guesses);
}
