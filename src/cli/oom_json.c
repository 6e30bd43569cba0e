/* cli/oom_json.c: the card's fields, under the names of the text. */
#include "cli/oom_json.h"

#include "cli/json_parts.h"
#include "cli/look.h"

static json_t *known(uint64_t value) { return number_or_null(value, NEAP_OOM_UNKNOWN); }

json_t *oom_whatifs_json(const struct neap_whatifs *whatifs, bool *ret_failed)
{
	json_t *list = json_array();
	for (size_t i = 0; i < whatifs->count; i++) {
		const struct neap_whatif *item = &whatifs->items[i];
		json_t *object = json_object();
		set(object, "name", json_string(item->name), ret_failed);
		set(object, "settings", item->settings ? json_string(item->settings) : json_null(), ret_failed);
		set(object, "alone", json_boolean(item->alone), ret_failed);
		set(object, "as_it_was", json_boolean(item->own), ret_failed);
		set(object, "active_already", json_boolean(item->active), ret_failed);
		set(object, "tried", json_boolean(item->tried), ret_failed);
		if (!item->tried) {
			add(list, object, ret_failed);
			continue;
		}
		set(object, "fits", json_boolean(item->fits), ret_failed);
		set(object, "first_oom_event", number_or_null(item->first_oom_event, UINT64_MAX), ret_failed);
		set(object, "reserved_peak", number(item->reserved_peak), ret_failed);
		set(object, "driver_calls", number(item->driver_calls), ret_failed);
		set(object, "retries", number(item->retries), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

static json_t *holders_json(const struct neap_oom_card *card, bool *ret_failed)
{
	json_t *list = json_array();
	for (size_t i = 0; i < card->tag_count; i++) {
		const struct neap_oom_tag *tag = &card->tags[i];
		json_t *object = json_object();
		set(object, "text", look_json_text(tag->tag), ret_failed);
		set(object, "live", number(tag->live_bytes), ret_failed);
		set(object, "peak", known(tag->peak_bytes), ret_failed);
		set(object, "blocks", number(tag->live_blocks), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

static json_t *fixes_json(const struct neap_oom_card *card, bool *ret_failed)
{
	json_t *list = json_array();
	for (size_t i = 0; i < card->fix_count; i++) {
		const struct neap_fix *fix = &card->fixes[i];
		json_t *object = json_object();
		set(object, "kind", json_string(neap_fix_name(fix->kind)), ret_failed);
		set(object, "text", look_json_text(fix->text), ret_failed);
		set(object, "how", look_json_text(fix->how), ret_failed);
		set(object, "replayed", json_boolean(fix->replayed), ret_failed);
		set(object, "saving", fix->replayed ? json_null() : number(fix->saving_bytes), ret_failed);
		set(object, "uncertainty", fix->replayed ? json_null() : number(fix->uncertainty_bytes), ret_failed);
		set(object, "sufficient", json_boolean(fix->sufficient), ret_failed);
		set(object, "sufficient_for_step",
		    fix->step == NEAP_FIX_STEP_UNKNOWN ? json_null()
						       : json_boolean(fix->step == NEAP_FIX_STEP_ENOUGH),
		    ret_failed);
		set(object, "active_already", json_boolean(fix->active_already), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

static void put_failure(json_t *object, const struct neap_oom_card *card, bool *ret_failed)
{
	const struct neap_fragments *pieces = &card->fragments;
	static const char *const pools[] = {NULL, "small", "large"};
	bool elsewhere = card->elsewhere_free_bytes > card->largest_free_bytes;

	set(object, "event", known(card->event), ret_failed);
	set(object, "predicted", json_boolean(card->predicted), ret_failed);
	set(object, "number", number(card->number), ret_failed);
	set(object, "count", number(card->count), ret_failed);
	set(object, "device", number(card->device), ret_failed);
	set(object, "step", number_or_null(card->step, 0), ret_failed);
	set(object, "asked", number(card->block_bytes), ret_failed);
	set(object, "by", card->tag[0] ? look_json_text(card->tag) : json_null(), ret_failed);
	set(object, "cause", json_string(neap_oom_cause_name(card->cause)), ret_failed);
	set(object, "missing", number(card->shortfall_bytes), ret_failed);
	set(object, "requested", known(card->live_requested_bytes), ret_failed);
	set(object, "allocated", number(card->allocated_bytes), ret_failed);
	set(object, "pending", number(card->pending_bytes), ret_failed);
	set(object, "cached", number(card->cached_bytes), ret_failed);
	set(object, "reserved", number(card->reserved_bytes), ret_failed);
	set(object, "others", known(card->others_bytes), ret_failed);
	set(object, "device_free", number(card->device_free_bytes), ret_failed);
	set(object, "device_total", number_or_null(card->device_total_bytes, 0), ret_failed);
	set(object, "limit", number_or_null(card->limit_bytes, UINT64_MAX), ret_failed);
	set(object, "largest_free", known(card->largest_free_bytes), ret_failed);
	set(object, "largest_free_elsewhere", elsewhere ? number(card->elsewhere_free_bytes) : json_null(),
	    ret_failed);
	set(object, "asked_pool", card->asked_pool ? json_string(pools[card->asked_pool]) : json_null(), ret_failed);
	set(object, "largest_free_elsewhere_pool",
	    elsewhere && card->elsewhere_pool ? json_string(pools[card->elsewhere_pool]) : json_null(), ret_failed);
	set(object, "room", number(card->room_bytes), ret_failed);
	set(object, "other_allocator", json_boolean(card->other_allocator), ret_failed);
	set(object, "pinned", pieces->known ? number(pieces->pinned) : json_null(), ret_failed);
	set(object, "unknown_purpose", number(card->unknown_bytes), ret_failed);
	set(object, "step_peak_before", number_or_null(card->step_peak_bytes, 0), ret_failed);
}

json_t *oom_card_json(const struct neap_oom_card *card, bool *ret_failed)
{
	const struct neap_oom_replays *replays = &card->replays;
	json_t *object = json_object();

	put_failure(object, card, ret_failed);
	set(object, "holders", holders_json(card, ret_failed), ret_failed);
	set(object, "fixes", fixes_json(card, ret_failed), ret_failed);
	set(object, "memory", number_or_null(replays->memory_bytes, 0), ret_failed);
	set(object, "settings", oom_whatifs_json(&replays->whatifs, ret_failed), ret_failed);
	set(object, "smallest_memory", number_or_null(replays->smallest_bytes, 0), ret_failed);
	set(object, "smallest_tried", json_boolean(replays->smallest_tried), ret_failed);
	set(object, "smallest_is_lower_bound", json_boolean(replays->smallest_bytes && !replays->smallest_whole),
	    ret_failed);
	set(object, "lost_events", number(replays->lost_events), ret_failed);
	set(object, "live_before_unknown", number(replays->before_bytes), ret_failed);
	set(object, "live_before", number(replays->began_bytes), ret_failed);
	set(object, "overwritten", json_boolean(replays->overwritten), ret_failed);
	set(object, "not_recorded", json_boolean(replays->unrecorded), ret_failed);
	return object;
}
