/* analyze/step_headroom.c: finds steps that can stand in for the one that failed:
 *
 *   SPLIT ... STEP STEP STEP | OOM  RUNG split  STEP STEP  RUNG split  STEP  RUNG other
 *            same settings   |                 other micro-batches           no more
 *            the best        |                 the nearest first
 */
#include "analyze/oom_internal.h"

#include "analyze/saturate.h"
#include "analyze/step_model.h"
#include "base/error.h"
#include "base/units.h"

#include <stdlib.h>

#define PLAIN_PAGE_BYTES (2 * NEAP_MIB)
#define ROOM_MAX         (1ull << 45) /* a recording with a larger figure is wrong */

static bool of_device(const struct neap_record *record, size_t i, uint16_t kind, uint16_t device)
{
	return record->journal[i].kind == kind && record->journal[i].device == device;
}

static uint64_t page_of(const struct neap_record *record, uint16_t device)
{
	uint64_t page_bytes = PLAIN_PAGE_BYTES;

	for (size_t i = 0; i < record->journal_count; i++)
		if (of_device(record, i, NEAP_EVENT_ROOM, device))
			page_bytes = record->journal[i].room.page_bytes;
	return page_bytes <= (1ull << 30) && !(page_bytes & (page_bytes - 1)) ? page_bytes : PLAIN_PAGE_BYTES;
}

/* Finds the settings in force at the failure. False: the recording has no training session. */
static bool settings_at(const struct neap_record *record, size_t oom, struct neap_last_settings *settings)
{
	const uint16_t device = record->journal[oom].device;

	*settings = (struct neap_last_settings){
		.device = device, .until_ns = record->journal[oom].time_ns, .from_change = true};
	for (size_t i = 0; i < oom; i++) {
		const struct neap_event *event = &record->journal[i];
		bool rung = of_device(record, i, NEAP_EVENT_RUNG, device) && event->rung.rung != NEAP_RUNG_STOP;
		if (!rung && !of_device(record, i, NEAP_EVENT_SPLIT, device))
			continue;
		settings->split = neap_record_split(event, 1);
		settings->since_ns = event->time_ns;
	}
	return settings->split.micro_batch > 0 && settings->split.micro_batch < 1ull << 32;
}

/* Finds the next stretch after `from` whose settings differ only in the split. False: there is none. */
static bool next_stretch(const struct neap_record *record, size_t *from, struct neap_last_settings *settings)
{
	size_t i = *from + 1;

	for (; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (of_device(record, i, NEAP_EVENT_SPLIT, settings->device))
			return false;
		if (of_device(record, i, NEAP_EVENT_RUNG, settings->device))
			break;
		if (event->kind == NEAP_EVENT_RESTART)
			return false;
	}
	const struct neap_event_rung *rung =
		i < record->journal_count ? neap_event_as_rung(&record->journal[i]) : NULL;
	if (!rung || rung->rung != NEAP_RUNG_SPLIT || rung->settings.micro_batch == 0 ||
	    rung->settings.micro_batch >= settings->split.micro_batch)
		return false;
	settings->before = settings->split;
	settings->before_since_ns = settings->since_ns;
	settings->split = neap_record_split(&record->journal[i], 1);
	settings->since_ns = record->journal[i].time_ns;
	settings->until_ns = UINT64_MAX;
	*from = i;
	for (size_t next = i + 1; next < record->journal_count; next++)
		if (of_device(record, next, NEAP_EVENT_RUNG, settings->device) ||
		    of_device(record, next, NEAP_EVENT_SPLIT, settings->device)) {
			settings->until_ns = record->journal[next].time_ns;
			break;
		}
	return true;
}

struct search {
	struct neap_rerun rerun;
	struct neap_error *err;
};

static enum neap_status try(const struct search *search, uint64_t room_bytes, struct neap_rerun_result *ret_result)
{
	struct neap_rerun rerun = search->rerun;

	rerun.room_bytes = room_bytes;
	return neap_rerun(&rerun, ret_result, search->err);
}

/* Bisects over pages, below the bytes that the step reserves on a device with plenty. */
static enum neap_status find_smallest(const struct search *search, uint64_t *ret_bytes)
{
	uint64_t page = search->rerun.page_bytes ? search->rerun.page_bytes : PLAIN_PAGE_BYTES;
	struct neap_rerun_result result = {0};
	enum neap_status status = try(search, ROOM_MAX, &result);

	if (status)
		return status;
	if (!result.fits)
		return neap_fail(search->err, NEAP_ENOENT, "a step of the recording fits no device");
	uint64_t low = result.peak_allocated_bytes / page, high = (result.peak_reserved_bytes + page - 1) / page;
	if (low > 0)
		low--;
	while (high - low > 1 && high > low) {
		uint64_t middle = low + (high - low) / 2;
		status = try(search, middle * page, &result);
		if (status)
			return status;
		*(result.fits ? &high : &low) = middle;
	}
	*ret_bytes = high * page;
	return NEAP_OK;
}

static enum neap_status measure(const struct neap_record *record, const struct neap_last_settings *settings,
				const struct neap_step_model *model, uint64_t micro_batch,
				struct neap_step_headroom *ret_room, struct neap_error *err)
{
	struct neap_rerun_op *ops = calloc(model->step_count + 1, sizeof *ops);
	struct search search = {.rerun = neap_step_rerun(model, ops), .err = err};
	struct neap_rerun_result as_it_was = {0};
	uint64_t bytes = 0;

	if (!ops)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for a step of a recording");
	search.rerun.page_bytes = page_of(record, settings->device);
	neap_step_ops(model, settings->split.micro_batch, true, ops);
	enum neap_status status = try(&search, ROOM_MAX, &as_it_was);
	neap_step_ops(model, micro_batch, false, ops);
	if (!status)
		status = find_smallest(&search, &bytes);
	free(ops);
	if (status)
		return status;
	/* Only the sum of blocks without an event is known: add pages for them, and the part of the peak that the
	 * model misses. */
	uint64_t page = search.rerun.page_bytes ? search.rerun.page_bytes : PLAIN_PAGE_BYTES;
	uint64_t unexplained = neap_apart(as_it_was.peak_allocated_bytes, model->peak_allocated_bytes);
	uint64_t margin = neap_plus(unexplained, model->unknown_bytes ? 2 * page : 0);
	*ret_room = (struct neap_step_headroom){.bytes = neap_plus(bytes, (margin + page - 1) / page * page),
						.micro_batch = settings->split.micro_batch,
						.scaled = settings->split.micro_batch != micro_batch};
	return NEAP_OK;
}

enum neap_status neap_step_headroom(const struct neap_record *record, size_t oom, struct neap_step_headroom *ret_room,
				    struct neap_error *err)
{
	struct neap_step_model model = {0};
	struct neap_last_settings settings;

	if (!settings_at(record, oom, &settings))
		return neap_fail(err, NEAP_ENOENT, "no session reported its micro-batch");
	uint64_t micro_batch = settings.split.micro_batch;
	size_t from = oom;
	enum neap_status status = NEAP_OK;
	do {
		status = neap_step_model_make(record, &settings, &model, err);
		if (!status)
			status = measure(record, &settings, &model, micro_batch, ret_room, err);
		neap_step_model_fini(&model);
	} while (status && status != NEAP_ENOMEM && next_stretch(record, &from, &settings));
	return status;
}
