/* report/oom_json.c: the card's fields, under the names of the text. */
#include "report/report.h"

#include "store/json_rows.h"

json_t *neap_oom_whatifs_json(const struct neap_whatifs *whatifs)
{
	json_t *list = json_array();
	for (size_t i = 0; i < whatifs->count; i++) {
		const struct neap_whatif *item = &whatifs->items[i];
		json_t *object =
			JSON(TEXT("name", item->name), ONLY(item->settings, TEXT("settings", item->settings)),
			     BOOL("alone", item->alone), BOOL("as_it_was", item->own),
			     BOOL("active_already", item->active), BOOL("tried", item->tried));
		if (!item->tried) {
			neap_json_add(list, object);
			continue;
		}
		JSON_PUT(object, BOOL("fits", item->fits), KNOWN("first_oom_event", item->first_oom_event),
			 NUMBER("reserved_peak", item->reserved_peak), NUMBER("driver_calls", item->driver_calls),
			 NUMBER("retries", item->retries));
		neap_json_add(list, object);
	}
	return list;
}

static json_t *tags_json(const struct neap_oom_tag *tags, size_t count)
{
	json_t *list = json_array();
	for (size_t i = 0; i < count; i++) {
		const struct neap_oom_tag *tag = &tags[i];
		neap_json_add(list, JSON(TEXT("text", tag->tag), NUMBER("live", tag->live_bytes),
					 KNOWN("peak", tag->peak_bytes), NUMBER("blocks", tag->live_blocks)));
	}
	return list;
}

/* What a program has to do to apply the fix; null: only the text says it. */
static json_t *apply_json(const struct neap_oom_card *card, const struct neap_fix *fix)
{
	static const struct {
		enum neap_fix_kind kind;
		const char *key;
	} keys[] = {
		{NEAP_FIX_SMALLER_MICRO_BATCH, "divide_micro_batch"},
		{NEAP_FIX_RAISE_LIMIT, "fraction"},
		{NEAP_FIX_SMALLER_MODEL, "share_of_parameters"},
		{NEAP_FIX_OPTIMIZER, "state_per_parameter"},
		{NEAP_FIX_SHARDING, "devices"},
	};

	if (fix->kind == NEAP_FIX_NO_GRAD)
		return JSON(BOOL("no_grad", true));
	if (fix->kind == NEAP_FIX_SMALLER_MICRO_BATCH && card->evaluates)
		return JSON(REAL("divide_evaluation_batch", fix->amount));
	if (fix->setting)
		return JSON(TEXT("PYTORCH_CUDA_ALLOC_CONF", fix->setting));
	if (fix->kind == NEAP_FIX_SETTING)
		return JSON(TEXT("allocator", "neap"));
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (fix->kind == keys[i].kind && (fix->amount > 0 || fix->kind == NEAP_FIX_OPTIMIZER))
			return JSON(REAL(keys[i].key, fix->amount));
	return json_null();
}

static json_t *fixes_json(const struct neap_oom_card *card)
{
	json_t *list = json_array();
	for (size_t i = 0; i < card->fix_count; i++) {
		const struct neap_fix *fix = &card->fixes[i];
		neap_json_add(list, JSON(TEXT("kind", neap_fix_name(fix->kind)), TEXT("text", fix->text),
					 TEXT("how", fix->how), BOOL("replayed", fix->replayed),
					 ONLY(!fix->replayed, NUMBER("saving", fix->saving_bytes)),
					 ONLY(!fix->replayed, NUMBER("uncertainty", fix->uncertainty_bytes)),
					 BOOL("sufficient", fix->sufficient), BOOL("perhaps", fix->perhaps),
					 ONLY(fix->later_tenths, REAL("later_steps", fix->later_tenths / 10.0)),
					 VALUE("apply", apply_json(card, fix)),
					 ONLY(fix->step != NEAP_FIX_STEP_UNKNOWN,
					      BOOL("sufficient_for_step", fix->step == NEAP_FIX_STEP_ENOUGH)),
					 BOOL("active_already", fix->active_already)));
	}
	return list;
}

static json_t *model_json(const struct neap_oom_card *card)
{
	const struct neap_event_oom_model *model = &card->model;
	if (model->parameter_bytes == 0)
		return json_null();
	return JSON(NUMBER("parameters", model->parameter_bytes), NUMBER("gradients", model->gradient_bytes),
		    KNOWN("optimizer", model->optimizer_bytes), NUMBER("update", model->update_bytes),
		    BOOL("too_large_alone", card->model_alone));
}

/* The predicted need of the whole step. */
static json_t *need_json(const struct neap_oom_card *card)
{
	const struct neap_oom_need *need = &card->need;
	if (!need->known)
		return json_null();
	return JSON(BOOL("sure", need->sure), NUMBER("model", need->model_bytes), NUMBER("fixed", need->fixed_bytes),
		    NUMBER("scaled", need->scaled_bytes), NUMBER("highest", neap_oom_needed(need, 1)));
}

static json_t *failure_json(const struct neap_oom_card *card)
{
	const struct neap_fragments *pieces = &card->fragments;
	static const char *const pools[] = {NULL, "small", "large"};
	bool elsewhere = card->elsewhere_free_bytes > card->largest_free_bytes;

	return JSON(KNOWN("event", card->event), BOOL("predicted", card->predicted), NUMBER("number", card->number),
		    NUMBER("count", card->count), NUMBER("device", card->device), GIVEN("step", card->step),
		    NUMBER("asked", card->block_bytes), GIVEN("by", card->tag),
		    TEXT("cause", neap_oom_cause_name(card->cause)), NUMBER("missing", card->shortfall_bytes),
		    KNOWN("requested", card->live_requested_bytes), NUMBER("allocated", card->allocated_bytes),
		    NUMBER("pending", card->pending_bytes), NUMBER("cached", card->cached_bytes),
		    NUMBER("reserved", card->reserved_bytes), KNOWN("others", card->others_bytes),
		    NUMBER("others_asked", card->others_asked), NUMBER("others_gave_back", card->others_freed_bytes),
		    NUMBER("device_free", card->device_free_bytes), GIVEN("device_total", card->device_total_bytes),
		    KNOWN("limit", card->limit_bytes), KNOWN("largest_free", card->largest_free_bytes),
		    ONLY(elsewhere, NUMBER("largest_free_elsewhere", card->elsewhere_free_bytes)),
		    GIVEN("asked_pool", pools[card->asked_pool]),
		    ONLY(elsewhere && card->elsewhere_pool,
			 TEXT("largest_free_elsewhere_pool", pools[card->elsewhere_pool])),
		    NUMBER("room", card->room_bytes), BOOL("other_allocator", card->other_allocator),
		    ONLY(pieces->known, NUMBER("pinned", pieces->pinned)),
		    ONLY(card->left_bytes > 0, NUMBER("left_by_failure", card->left_bytes)),
		    NUMBER("unknown_purpose", card->unknown_bytes), GIVEN("step_peak_before", card->step_peak_bytes),
		    BOOL("evaluates", card->evaluates),
		    ONLY(card->larger > 0, REAL("times_larger_than_before", card->larger)));
}

static json_t *leak_json(const struct neap_oom_card *card)
{
	const struct neap_oom_leak *leak = &card->leak;
	return JSON(NUMBER("bytes_per_step", card->growth_bytes), NUMBER("since_step", leak->since_step),
		    NUMBER("bytes", leak->bytes), NUMBER("ends_step", leak->ends_step + 1), GIVEN("by", leak->holder),
		    GIVEN("by_bytes_per_step", leak->holder_bytes));
}

json_t *neap_oom_card_json(const struct neap_oom_card *card)
{
	const struct neap_oom_replays *replays = &card->replays;
	return JSON_PUT(
		failure_json(card), VALUE("purposes", tags_json(card->purposes, card->purpose_count)),
		VALUE("holders", tags_json(card->tags, card->tag_count)), VALUE("fixes", fixes_json(card)),
		ONLY(card->growth_bytes, VALUE("leak", leak_json(card))), VALUE("model", model_json(card)),
		VALUE("whole_step", need_json(card)), GIVEN("memory", replays->memory_bytes),
		VALUE("settings", neap_oom_whatifs_json(&replays->whatifs)),
		GIVEN("smallest_memory", replays->smallest_bytes), BOOL("smallest_tried", replays->smallest_tried),
		BOOL("smallest_is_lower_bound", replays->smallest_bytes && !replays->smallest_whole),
		NUMBER("lost_events", replays->lost_events), NUMBER("live_before_unknown", replays->before_bytes),
		NUMBER("live_before", replays->began_bytes), BOOL("overwritten", replays->overwritten),
		BOOL("not_recorded", replays->unrecorded));
}
