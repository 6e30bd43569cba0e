/* run/supervise_curve.c: makes a run's memory curve and marks from its main recording and the supervisor's samples.
 */
#include "run/supervise_internal.h"

#include "analyze/run.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

/* How many points of the curve come from our samples and from the recording. */
#define SAMPLED_POINTS  500u
#define RECORDED_POINTS (NEAP_CURVE_POINTS - SAMPLED_POINTS)

/* Reads the recording's points, with times since the start of the command. Returns 0 if there is no usable curve. */
static size_t read_curve(const struct neap_supervise *run, const struct neap_record *record,
			 struct neap_curve_point *points)
{
	if (!record)
		return 0;
	size_t count = neap_run_curve(record, points, RECORDED_POINTS);
	uint64_t zero_ns = record->journal_count ? record->journal[0].time_ns : UINT64_MAX;
	if (record->allocation_count && record->allocations[0].time_ns < zero_ns)
		zero_ns = record->allocations[0].time_ns;
	uint64_t offset_ns = zero_ns > run->started_ns ? zero_ns - run->started_ns : 0;
	for (size_t i = 0; i < count; i++) {
		points[i].time_ns += offset_ns;
		if (i && points[i].time_ns < points[i - 1].time_ns) /* a damaged recording */
			points[i].time_ns = points[i - 1].time_ns;
	}
	return count;
}

/* Thins our samples to at most SAMPLED_POINTS: of each group it keeps the sample with the most device bytes. */
static size_t thin_samples(const struct neap_samples *samples, struct neap_result_sample *points)
{
	size_t each = (samples->count + SAMPLED_POINTS - 1) / SAMPLED_POINTS, count = 0;
	for (size_t i = 0; i < samples->count; i += each) {
		const struct neap_result_sample *best = &samples->items[i];
		for (size_t k = i; k < i + each && k < samples->count; k++)
			if (samples->items[k].device_bytes != NEAP_BYTES_UNKNOWN &&
			    (best->device_bytes == NEAP_BYTES_UNKNOWN ||
			     samples->items[k].device_bytes > best->device_bytes))
				best = &samples->items[k];
		points[count++] = *best;
	}
	return count;
}

/* Merges the recording's points, which are dense and exact, with our samples, which add the driver's figure. */
enum neap_status neap_facts_curve(const struct neap_supervise *run, const struct neap_record *record,
				  struct neap_result *result, struct neap_error *err)
{
	struct neap_curve_point *recorded = calloc(RECORDED_POINTS, sizeof *recorded);
	struct neap_result_sample *sampled = calloc(NEAP_CURVE_POINTS, sizeof *sampled);
	struct neap_result_sample *curve = calloc(NEAP_CURVE_POINTS, sizeof *curve);
	enum neap_status status = NEAP_OK;
	size_t count = 0, r = 0, s = 0;
	uint64_t device_bytes = NEAP_BYTES_UNKNOWN;
	if (!recorded || !sampled || !curve) {
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while drawing a run's memory curve");
		goto out;
	}
	size_t recorded_count = read_curve(run, record, recorded);
	size_t sampled_count = thin_samples(&run->observe.samples, sampled);
	while (r < recorded_count || s < sampled_count) {
		if (s < sampled_count && (r == recorded_count || sampled[s].time_ns <= recorded[r].time_ns)) {
			device_bytes = sampled[s].device_bytes;
			curve[count++] = sampled[s++];
		} else {
			curve[count++] = (struct neap_result_sample){recorded[r].time_ns, recorded[r].allocated_bytes,
								     recorded[r].reserved_bytes, device_bytes};
			r++;
		}
	}
	free(result->samples); /* a result that was read back has samples already */
	result->samples = curve;
	result->sample_count = count;
	curve = NULL;
out:
	free(curve);
	free(sampled);
	free(recorded);
	return status;
}

/* Copies the recording's marks. If there are too many: the first half and the last half of NEAP_RESULT_MARKS. */
enum neap_status neap_facts_marks(const struct neap_supervise *run, const struct neap_record *record,
				  struct neap_result *result, struct neap_error *err)
{
	size_t all = 0, seen = 0;
	const size_t half = NEAP_RESULT_MARKS / 2;
	for (size_t i = 0; i < record->journal_count; i++)
		all += record->journal[i].kind == NEAP_EVENT_MARK;
	struct neap_result_mark *marks = calloc(NEAP_RESULT_MARKS, sizeof *marks);
	if (!marks)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory while noting a run's marks");
	result->mark_count = 0;
	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->kind != NEAP_EVENT_MARK)
			continue;
		seen++;
		if (all > NEAP_RESULT_MARKS && seen > half && seen <= all - half)
			continue;
		struct neap_result_mark *mark = &marks[result->mark_count++];
		mark->time_ns = event->time_ns > run->started_ns ? event->time_ns - run->started_ns : 0;
		mark->value = event->mark.value > INT64_MAX ? INT64_MAX : event->mark.value;
		snprintf(mark->name, sizeof mark->name, "%s", neap_record_name(record, event->mark.name));
	}
	free(result->marks);
	result->marks = marks;
	return NEAP_OK;
}
