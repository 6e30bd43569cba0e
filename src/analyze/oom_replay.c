/* analyze/oom_replay.c: replays the trace on a device like the one that failed: which settings complete it, and the
 * smallest device that does. */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"

#define MEMORY_MAX (1ull << 45) /* of a device; a file with more is corrupt, and each page costs time */

static enum neap_status run_replays(const struct neap_trace *trace, const struct neap_trace_oom_options *options,
				    struct neap_oom_card *card, struct neap_error *err)
{
	struct neap_oom_replays *replays = &card->replays;
	struct neap_replay_options asked = {.device = card->device,
					    .memory_bytes = replays->memory_bytes,
					    .fraction = card->fraction > 0, /* memory_bytes is what the fraction
									       left */
					    .progress = options->progress,
					    .context = options->context};
	struct neap_patience patience = {.deadline = options->deadline, .asked = &asked};

	bool nothing = replays->memory_bytes == 0; /* the process could have nothing: no setting would have
						      mattered */
	if ((nothing && card->cause != NEAP_OOM_LIMIT) || replays->memory_bytes > MEMORY_MAX) /* a hostile file */
		return NEAP_OK;
	enum neap_status status =
		nothing ? NEAP_OK : neap_whatifs_find(trace, &asked, NULL, options->deadline, &replays->whatifs, err);
	if (status)
		return status;
	struct neap_replay_options replay = neap_patience_options(&patience);
	replay.policy = neap_trace_of_neap(trace) ? NEAP_REPLAY_NEAP : NEAP_REPLAY_TORCH;
	status = neap_replay_smallest(trace, &replay, &replays->smallest_bytes, err);
	replays->smallest_tried = !status || status == NEAP_EOOM;
	replays->done = !nothing;
	return replays->smallest_tried || neap_patience_ended(&patience, status) ? NEAP_OK : status;
}

/* The trace may end before the failed step does: then a whole step shows how much memory the rest takes. */
static enum neap_status add_step(const struct neap_trace *trace, struct neap_oom_card *card, struct neap_error *err)
{
	struct neap_oom_replays *replays = &card->replays;
	struct neap_step_headroom headroom = {0};

	if (!replays->smallest_bytes || card->growth_bytes > 0)
		return NEAP_OK;
	/* True if the trace itself has whole steps that were higher than this one. */
	replays->smallest_whole = card->predicted || neap_oom_step_need(card) > 0;
	if (!trace->record || card->predicted || card->other_allocator)
		return NEAP_OK;
	enum neap_status status = neap_step_headroom(
		trace->record, neap_oom_find(trace->record, card->device, card->number - 1), &headroom, err);
	if (status == NEAP_ENOMEM)
		return status;
	if (status)
		return NEAP_OK;
	replays->smallest_whole = true;
	replays->step_bytes = headroom.bytes;
	replays->step_micro_batch = headroom.micro_batch;
	if (headroom.bytes > replays->smallest_bytes)
		replays->smallest_bytes = headroom.bytes;
	return NEAP_OK;
}

/* The cached bytes of the request's own pool would not have served it, but all cached bytes would have. If another
 * setting completes the trace, the request failed because of the pieces. */
static void judge_pieces(struct neap_oom_card *card)
{
	const struct neap_whatifs *whatifs = &card->replays.whatifs;
	uint64_t needed = neap_plus(neap_plus(card->allocated_bytes, card->pending_bytes), card->block_bytes);

	if (!neap_oom_has_events(card) || card->cached_bytes < card->block_bytes || needed > card->room_bytes ||
	    card->limit_bytes <= card->room_bytes || whatifs->count == 0 || !whatifs->items[0].tried ||
	    whatifs->items[0].fits)
		return;
	for (size_t i = 1; i < whatifs->count; i++)
		if (whatifs->items[i].tried && whatifs->items[i].fits && whatifs->items[i].settings)
			card->cause = NEAP_OOM_FRAGMENTATION;
}

enum neap_status neap_oom_replay(const struct neap_trace *trace, const struct neap_trace_oom_options *options,
				 struct neap_oom_card *card, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;

	if (!card->replays.unrecorded)
		status = run_replays(trace, options, card, err);
	if (!status)
		status = add_step(trace, card, err);
	if (!status) {
		judge_pieces(card);
		neap_oom_replay_fixes(card);
	}
	return status;
}
