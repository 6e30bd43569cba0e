/* analyze/oom_cause.c: why a request failed: arithmetic over what was measured at the failure, whatever the source.
 *
 *   most   = reserved + device free           what this process could have had without a limit
 *   room   = min(most, max(limit, reserved))  what it could have had
 *   held   = live + pending                   memory outside of the cache
 *
 *   pool   = cached in the request's own pool; the other cached bytes are not to be had for it. Known of an
 *            allocator with pools whose events were recorded: if pool < need, no other layout of the cache would
 *            have served the request, and held = reserved
 *
 *   held + need <= room               the bytes are there, not in one piece:   fragmentation; a limit where only that
 *                                     kept the process from growing past its fragments
 *   live + need <= room               there once queued work is done:          pending
 *   live + need <= most               there without the limit:                 limit
 *   live + need <= most + neighbours  there without other processes, and within
 *                                     the limit:                                 neighbours
 *   else                                                                       capacity
 */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"

/* The driver itself may hold this share of a device's unaccounted bytes: they do not belong to a neighbour. */
#define DRIVER_SHARE 50
#define DRIVER_MAX   (1ull << 30)

uint64_t neap_oom_driver_share(const struct neap_oom_card *card)
{
	uint64_t share = card->device_total_bytes / DRIVER_SHARE;
	return share < DRIVER_MAX ? share : DRIVER_MAX;
}

uint64_t neap_oom_neighbours_unsure(const struct neap_oom_card *card)
{
	return neap_oom_driver_share(card) * (card->context_bytes ? 1 : 2);
}

/* Bytes that other processes hold: all that is neither free, nor ours, nor our context's, nor likely the driver's
 * own. 0 if the driver, and a context of unknown size, might hold all of it. */
uint64_t neap_oom_neighbours(const struct neap_oom_card *card)
{
	if (card->others_bytes == NEAP_OOM_UNKNOWN)
		return 0;
	uint64_t bytes = neap_less(card->others_bytes, neap_plus(card->context_bytes, neap_oom_driver_share(card)));
	return bytes > neap_oom_neighbours_unsure(card) ? bytes : 0;
}

/* How much the largest usable piece is too small, if the bytes are free but in pieces. */
static uint64_t missing_from_piece(const struct neap_oom_card *card, uint64_t grow_bytes, uint64_t segment_bytes)
{
	uint64_t need = card->block_bytes, piece = grow_bytes;

	if (card->largest_free_bytes != NEAP_OOM_UNKNOWN && card->largest_free_bytes > piece)
		piece = card->largest_free_bytes;
	if (piece >= need) /* the request failed: a cached piece that large belongs to another stream or pool */
		piece = grow_bytes;
	return piece < need ? need - piece : neap_less(segment_bytes, grow_bytes);
}

void neap_oom_find_cause(struct neap_oom_card *card, const struct neap_oom_inputs *inputs)
{
	uint64_t most = neap_plus(card->reserved_bytes, card->device_free_bytes);
	uint64_t limit = inputs->hidden_limit ? card->reserved_bytes : card->limit_bytes;
	uint64_t pending = card->pending_bytes < card->cached_bytes ? card->pending_bytes : card->cached_bytes;
	bool crumbs = inputs->pool_bytes < card->block_bytes && pending == 0;
	uint64_t asked = inputs->segment_bytes > card->block_bytes ? inputs->segment_bytes : card->block_bytes;
	uint64_t needed =
		crumbs ? neap_plus(card->reserved_bytes, asked) : neap_plus(inputs->live_bytes, card->block_bytes);

	if (inputs->memory_bytes > 0 && inputs->memory_bytes < most)
		most = inputs->memory_bytes;
	if (limit < card->reserved_bytes)
		limit = card->reserved_bytes;
	card->room_bytes = limit < most ? limit : most;
	uint64_t grow = neap_less(card->room_bytes, card->reserved_bytes);
	bool limited = inputs->hidden_limit ||
		       (grow < inputs->segment_bytes && inputs->segment_bytes <= card->device_free_bytes);
	bool in_pieces = neap_plus(needed, pending) <= card->room_bytes;
	if (in_pieces)
		card->cause = limited ? NEAP_OOM_LIMIT : NEAP_OOM_FRAGMENTATION;
	else if (needed <= card->room_bytes)
		card->cause = NEAP_OOM_PENDING;
	else if (needed <= most || inputs->hidden_limit)
		card->cause = NEAP_OOM_LIMIT;
	else if (needed <= limit && needed <= neap_plus(most, neap_oom_neighbours(card)))
		card->cause = NEAP_OOM_NEIGHBOURS;
	else
		card->cause = NEAP_OOM_CAPACITY;
	card->shortfall_bytes = in_pieces ? missing_from_piece(card, grow, inputs->segment_bytes)
					  : neap_plus(needed, pending) - card->room_bytes;
}

const char *neap_oom_cause_name(enum neap_oom_cause cause)
{
	static const char *const names[] = {"capacity", "limit", "neighbours", "fragmentation", "pending"};
	return names[cause];
}
