/* analyze/step_settings.c: finds which split was in force, and since when. */
#include "analyze/step_model.h"

/* Returns the device of the last session: the sessions of other devices do not count. */
static uint16_t last_device(const struct neap_record *record)
{
	for (size_t i = record->journal_count; i-- > 0;)
		if (record->journal[i].kind == NEAP_EVENT_SPLIT)
			return record->journal[i].device;
	for (size_t i = record->journal_count; i-- > 0;)
		if (record->journal[i].kind == NEAP_EVENT_RUNG)
			return record->journal[i].device;
	return 0;
}

/* Takes the settings that neap found in a program without a session. A change counts from its event on. */
static void take_found(const struct neap_record *record, uint16_t only, struct neap_last_settings *settings)
{
	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		const struct neap_event_batch *batch = neap_event_as_batch(event);
		if (!batch || (only != UINT16_MAX && event->device != only))
			continue;
		settings->many_devices |= settings->found && event->device != settings->device;
		/* The first event makes the settings known, but changes none. */
		bool changed = settings->batch.micro_batch && batch->micro_batch != settings->batch.micro_batch;
		if (settings->found && event->device != settings->device)
			continue;
		settings->found = true;
		settings->device = event->device;
		settings->batch = *batch;
		settings->since_ns = changed ? event->time_ns : settings->since_ns;
		settings->split = (struct neap_split){.micro_batch = batch->micro_batch,
						      .accumulate = batch->accumulate ? batch->accumulate : 1,
						      .ranks = batch->ranks ? batch->ranks : 1};
		if (__builtin_mul_overflow(settings->split.micro_batch, settings->split.accumulate,
					   &settings->split.batch))
			settings->split.micro_batch = UINT64_MAX; /* no sensible number: the advice reports that */
	}
}

bool neap_last_settings(const struct neap_record *record, struct neap_last_settings *ret_settings)
{
	struct neap_last_settings settings = {.until_ns = UINT64_MAX, .device = last_device(record)};

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->device != settings.device)
			continue;
		if (event->kind != NEAP_EVENT_SPLIT &&
		    (event->kind != NEAP_EVENT_RUNG || event->rung.rung == NEAP_RUNG_STOP))
			continue;
		struct neap_split next = neap_record_split(event, settings.split.ranks);
		/* Only a rung that changed nothing but the split shows how sizes depend on it. */
		bool same_program = event->kind == NEAP_EVENT_RUNG && event->rung.rung == NEAP_RUNG_SPLIT;
		settings.before = same_program ? settings.split : (struct neap_split){0};
		settings.before_since_ns = settings.since_ns;
		settings.split = next;
		settings.since_ns = event->time_ns;
	}
	if (settings.split.micro_batch == 0)
		take_found(record, UINT16_MAX, &settings);
	*ret_settings = settings;
	return settings.split.micro_batch > 0 || settings.found;
}

bool neap_found_settings(const struct neap_record *record, uint16_t device, struct neap_last_settings *ret_settings)
{
	struct neap_last_settings settings = {.until_ns = UINT64_MAX};

	take_found(record, device, &settings);
	*ret_settings = settings;
	return settings.found;
}
