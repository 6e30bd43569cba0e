/* analyze/steps.c: two ranges have the same name if their names are equal once numbers are replaced. */
#include "analyze/steps.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES 64 /* how many different names are counted */

/* "epoch 3 step 17" -> "epoch # step #" */
static void stem_of(const char *name, char ret_stem[64])
{
	size_t length = 0;
	for (bool digits = false; *name && length < 63; name++) {
		bool digit = *name >= '0' && *name <= '9';
		if (!digit || !digits)
			ret_stem[length++] = digit ? '#' : *name;
		digits = digit;
	}
	while (length > 0 && ((unsigned char)ret_stem[length - 1] & 0x80) && length == 63)
		length--;
	ret_stem[length] = '\0';
}

/* Whether the name is about steps. Such names come first: layers end more often than steps. */
static bool speaks_of_steps(const char *stem)
{
	return strstr(stem, "step") || strstr(stem, "Step") || strstr(stem, "iter") || strstr(stem, "Iter");
}

/* Finds the stem with the most ends of ranges; "" if none has two. */
static void find_stem(const struct neap_trace *trace, const struct neap_trace_device *device, char ret_stem[64])
{
	char stems[NAMES][64], stem[64];
	size_t counts[NAMES] = {0}, used = 0, best = 0;

	for (size_t i = 0; i < device->mark_count; i++) {
		const struct neap_trace_mark *mark = &trace->marks[device->first_mark + i];
		size_t n = 0;
		if (mark->kind != NEAP_TRACE_END)
			continue;
		stem_of(neap_trace_text(trace, mark->name), stem);
		while (n < used && strcmp(stems[n], stem) != 0)
			n++;
		if (n == NAMES)
			continue;
		if (n == used)
			memcpy(stems[used++], stem, sizeof stem);
		counts[n]++;
	}
	for (size_t n = 1; n < used; n++) {
		bool steps = counts[n] >= 2 && speaks_of_steps(stems[n]), best_steps = speaks_of_steps(stems[best]);
		if (steps != best_steps ? steps : counts[n] > counts[best])
			best = n;
	}
	ret_stem[0] = '\0';
	if (used > 0 && counts[best] >= 2)
		memcpy(ret_stem, stems[best], sizeof stems[best]);
}

static bool is_of(const struct neap_trace *trace, const struct neap_trace_mark *mark, const char *stem)
{
	char other[64];
	stem_of(neap_trace_text(trace, mark->name), other);
	return strcmp(other, stem) == 0;
}

uint64_t neap_steps_first_kept(const struct neap_trace *trace, size_t device)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event event;
	uint64_t index = 0;

	if (!trace->devices[device].lost)
		return 0;
	while (neap_trace_next(&cursor, &event) && event.kind >= NEAP_TRACE_OOM) /* the journal's kinds */
		index++;
	return index;
}

enum neap_status neap_steps_find(const struct neap_trace *trace, size_t device, struct neap_steps *ret_steps,
				 struct neap_error *err)
{
	const struct neap_trace_device *info = &trace->devices[device];
	const struct neap_trace_mark *marks = trace->marks + info->first_mark;
	struct neap_steps steps = {.first_begin = UINT64_MAX, .midway = info->lost > 0};
	uint64_t first = neap_steps_first_kept(trace, device);
	char stem[64] = "";
	uint8_t wanted = NEAP_TRACE_END;

	for (size_t i = 0; i < info->mark_count; i++)
		if (marks[i].kind == NEAP_TRACE_STEP)
			wanted = NEAP_TRACE_STEP;
	if (wanted == NEAP_TRACE_END)
		find_stem(trace, info, stem);
	steps.ends = malloc(3 * (info->mark_count + 1) * sizeof *steps.ends);
	if (!steps.ends)
		return neap_fail(err, NEAP_ENOMEM, "no memory for the steps of a trace");
	steps.numbers = steps.ends + info->mark_count + 1;
	steps.times_us = steps.numbers + info->mark_count + 1;
	for (size_t i = 0; i < info->mark_count; i++) {
		bool named = wanted == NEAP_TRACE_STEP || (stem[0] && is_of(trace, &marks[i], stem));
		if (named && marks[i].kind == NEAP_TRACE_BEGIN && steps.first_begin == UINT64_MAX && steps.count == 0)
			steps.first_begin = marks[i].event;
		bool ends = named && marks[i].kind == wanted;
		if (ends && marks[i].event > first) {
			steps.numbers[steps.count] = marks[i].number ? marks[i].number : steps.count + 1;
			steps.times_us[steps.count] = marks[i].time_us;
			steps.ends[steps.count++] = marks[i].event;
		} else if (ends) {
			steps.midway = true;
			steps.first_begin = UINT64_MAX;
		}
	}
	if (wanted == NEAP_TRACE_STEP && steps.count > 0)
		snprintf(steps.how, sizeof steps.how, "marks of steps");
	else if (steps.count > 0)
		snprintf(steps.how, sizeof steps.how, "ranges named '%s'", stem);
	*ret_steps = steps;
	return NEAP_OK;
}

void neap_steps_fini(struct neap_steps *steps)
{
	free(steps->ends);
	*steps = (struct neap_steps){0};
}

uint64_t neap_steps_updates(const struct neap_steps *steps, size_t i)
{
	if (i == 0)
		return steps->midway ? 0 : steps->numbers[0];
	if (steps->numbers[i] > steps->numbers[i - 1])
		return steps->numbers[i] - steps->numbers[i - 1];
	return steps->numbers[i] == 1; /* it is the first step of another training */
}

size_t neap_steps_before(const struct neap_steps *steps, uint64_t event)
{
	size_t low = 0, high = steps->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (steps->ends[middle] <= event)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns the end of the training that begins with this step: the next training counts its steps from 1 again. */
static size_t training_end(const struct neap_steps *steps, size_t begin)
{
	size_t end = begin + 1;
	while (end < steps->count && steps->numbers[end] != 1)
		end++;
	return end;
}

static struct neap_steps part_of(const struct neap_steps *steps, size_t begin, size_t end)
{
	struct neap_steps part = *steps;
	part.ends += begin;
	part.numbers += begin;
	part.times_us += begin;
	part.count = end - begin;
	return part;
}

struct neap_steps neap_steps_longest(const struct neap_steps *steps)
{
	size_t longest = 0, longest_end = 0;
	for (size_t begin = 0, end; begin < steps->count; begin = end) {
		end = training_end(steps, begin);
		if (end - begin >= longest_end - longest) {
			longest = begin;
			longest_end = end;
		}
	}
	return part_of(steps, longest, longest_end);
}

struct neap_steps neap_steps_last(const struct neap_steps *steps, uint64_t event)
{
	size_t ended = neap_steps_before(steps, event), begin = 0;
	for (size_t next = 0; next < ended; next = training_end(steps, next))
		begin = next;
	return part_of(steps, begin, ended);
}
