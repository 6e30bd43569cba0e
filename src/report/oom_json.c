/* report/oom_json.c: the card's fields, under the names of the text. */
#include "report/oom_json.h"

#include "store/json.h"

json_t *neap_oom_whatifs_json(const struct neap_whatifs *whatifs)
{
	json_t *list = json_array();
	for (size_t i = 0; i < whatifs->count; i++) {
		const struct neap_whatif *item = &whatifs->items[i];
		json_t *object = json_object();
		neap_json_set(object, "name", json_string(item->name));
		neap_json_set(object, "settings", item->settings ? json_string(item->settings) : json_null());
		neap_json_set(object, "alone", json_boolean(item->alone));
		neap_json_set(object, "as_it_was", json_boolean(item->own));
		neap_json_set(object, "active_already", json_boolean(item->active));
		neap_json_set(object, "tried", json_boolean(item->tried));
		if (!item->tried) {
			neap_json_add(list, object);
			continue;
		}
		neap_json_set(object, "fits", json_boolean(item->fits));
		neap_json_set(object, "first_oom_event", neap_json_known(item->first_oom_event));
		neap_json_set(object, "reserved_peak", neap_json_number(item->reserved_peak));
		neap_json_set(object, "driver_calls", neap_json_number(item->driver_calls));
		neap_json_set(object, "retries", neap_json_number(item->retries));
		neap_json_add(list, object);
	}
	return list;
}

static json_t *holders_json(const struct neap_oom_card *card)
{
	json_t *list = json_array();
	for (size_t i = 0; i < card->tag_count; i++) {
		const struct neap_oom_tag *tag = &card->tags[i];
		json_t *object = json_object();
		neap_json_set(object, "text", neap_json_text(tag->tag));
		neap_json_set(object, "live", neap_json_number(tag->live_bytes));
		neap_json_set(object, "peak", neap_json_known(tag->peak_bytes));
		neap_json_set(object, "blocks", neap_json_number(tag->live_blocks));
		neap_json_add(list, object);
	}
	return list;
}

static json_t *fixes_json(const struct neap_oom_card *card)
{
	json_t *list = json_array();
	for (size_t i = 0; i < card->fix_count; i++) {
		const struct neap_fix *fix = &card->fixes[i];
		json_t *object = json_object();
		neap_json_set(object, "kind", json_string(neap_fix_name(fix->kind)));
		neap_json_set(object, "text", neap_json_text(fix->text));
		neap_json_set(object, "how", neap_json_text(fix->how));
		neap_json_set(object, "replayed", json_boolean(fix->replayed));
		neap_json_set(object, "saving", fix->replayed ? json_null() : neap_json_number(fix->saving_bytes));
		neap_json_set(object, "uncertainty",
			      fix->replayed ? json_null() : neap_json_number(fix->uncertainty_bytes));
		neap_json_set(object, "sufficient", json_boolean(fix->sufficient));
		neap_json_set(object, "sufficient_for_step",
			      fix->step == NEAP_FIX_STEP_UNKNOWN ? json_null()
								 : json_boolean(fix->step == NEAP_FIX_STEP_ENOUGH));
		neap_json_set(object, "active_already", json_boolean(fix->active_already));
		neap_json_add(list, object);
	}
	return list;
}

static void put_failure(json_t *object, const struct neap_oom_card *card)
{
	const struct neap_fragments *pieces = &card->fragments;
	static const char *const pools[] = {NULL, "small", "large"};
	bool elsewhere = card->elsewhere_free_bytes > card->largest_free_bytes;

	neap_json_set(object, "event", neap_json_known(card->event));
	neap_json_set(object, "predicted", json_boolean(card->predicted));
	neap_json_set(object, "number", neap_json_number(card->number));
	neap_json_set(object, "count", neap_json_number(card->count));
	neap_json_set(object, "device", neap_json_number(card->device));
	neap_json_set(object, "step", neap_json_number_or_null(card->step, 0));
	neap_json_set(object, "asked", neap_json_number(card->block_bytes));
	neap_json_set(object, "by", card->tag[0] ? neap_json_text(card->tag) : json_null());
	neap_json_set(object, "cause", json_string(neap_oom_cause_name(card->cause)));
	neap_json_set(object, "missing", neap_json_number(card->shortfall_bytes));
	neap_json_set(object, "requested", neap_json_known(card->live_requested_bytes));
	neap_json_set(object, "allocated", neap_json_number(card->allocated_bytes));
	neap_json_set(object, "pending", neap_json_number(card->pending_bytes));
	neap_json_set(object, "cached", neap_json_number(card->cached_bytes));
	neap_json_set(object, "reserved", neap_json_number(card->reserved_bytes));
	neap_json_set(object, "others", neap_json_known(card->others_bytes));
	neap_json_set(object, "others_asked", neap_json_number(card->others_asked));
	neap_json_set(object, "others_gave_back", neap_json_number(card->others_freed_bytes));
	neap_json_set(object, "device_free", neap_json_number(card->device_free_bytes));
	neap_json_set(object, "device_total", neap_json_number_or_null(card->device_total_bytes, 0));
	neap_json_set(object, "limit", neap_json_known(card->limit_bytes));
	neap_json_set(object, "largest_free", neap_json_known(card->largest_free_bytes));
	neap_json_set(object, "largest_free_elsewhere",
		      elsewhere ? neap_json_number(card->elsewhere_free_bytes) : json_null());
	neap_json_set(object, "asked_pool", card->asked_pool ? json_string(pools[card->asked_pool]) : json_null());
	neap_json_set(object, "largest_free_elsewhere_pool",
		      elsewhere && card->elsewhere_pool ? json_string(pools[card->elsewhere_pool]) : json_null());
	neap_json_set(object, "room", neap_json_number(card->room_bytes));
	neap_json_set(object, "other_allocator", json_boolean(card->other_allocator));
	neap_json_set(object, "pinned", pieces->known ? neap_json_number(pieces->pinned) : json_null());
	neap_json_set(object, "unknown_purpose", neap_json_number(card->unknown_bytes));
	neap_json_set(object, "step_peak_before", neap_json_number_or_null(card->step_peak_bytes, 0));
}

json_t *neap_oom_card_json(const struct neap_oom_card *card)
{
	const struct neap_oom_replays *replays = &card->replays;
	json_t *object = json_object();

	put_failure(object, card);
	neap_json_set(object, "holders", holders_json(card));
	neap_json_set(object, "fixes", fixes_json(card));
	neap_json_set(object, "memory", neap_json_number_or_null(replays->memory_bytes, 0));
	neap_json_set(object, "settings", neap_oom_whatifs_json(&replays->whatifs));
	neap_json_set(object, "smallest_memory", neap_json_number_or_null(replays->smallest_bytes, 0));
	neap_json_set(object, "smallest_tried", json_boolean(replays->smallest_tried));
	neap_json_set(object, "smallest_is_lower_bound",
		      json_boolean(replays->smallest_bytes && !replays->smallest_whole));
	neap_json_set(object, "lost_events", neap_json_number(replays->lost_events));
	neap_json_set(object, "live_before_unknown", neap_json_number(replays->before_bytes));
	neap_json_set(object, "live_before", neap_json_number(replays->began_bytes));
	neap_json_set(object, "overwritten", json_boolean(replays->overwritten));
	neap_json_set(object, "not_recorded", json_boolean(replays->unrecorded));
	return object;
}
