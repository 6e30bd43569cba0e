/* top/sample.c: see sample.h. */
#include "top/sample.h"

#include "base/clock.h"

#include <stdlib.h>

#define GROWTH_LEAST_NS (2 * NEAP_NS_PER_S)
#define MINUTE_NS       (60 * NEAP_NS_PER_S)

void neap_top_sample_fini(struct neap_top_sample *sample)
{
	if (!sample)
		return;
	free(sample->devices);
	free(sample->processes);
	*sample = (struct neap_top_sample){0};
}

void neap_top_history_take(struct neap_top_history *history, struct neap_top_sample *sample)
{
	if (history->count > 0)
		history->newest = (history->newest + 1) % NEAP_TOP_HISTORY;
	if (history->count == NEAP_TOP_HISTORY)
		neap_top_sample_fini(&history->samples[history->newest]);
	else
		history->count++;
	history->taken++;
	history->samples[history->newest] = *sample;
	*sample = (struct neap_top_sample){0};
}

void neap_top_history_fini(struct neap_top_history *history)
{
	if (!history)
		return;
	for (size_t i = 0; i < NEAP_TOP_HISTORY; i++)
		neap_top_sample_fini(&history->samples[i]);
	history->newest = history->count = 0;
	history->taken = 0;
}

const struct neap_top_sample *neap_top_history_at(const struct neap_top_history *history, size_t age)
{
	if (age >= history->count)
		return NULL;
	return &history->samples[(history->newest + NEAP_TOP_HISTORY - age) % NEAP_TOP_HISTORY];
}

const struct neap_top_process *neap_top_find(const struct neap_top_sample *sample, pid_t pid, uint64_t start_ticks)
{
	for (size_t i = 0; i < sample->process_count; i++)
		if (sample->processes[i].pid == pid && sample->processes[i].start_ticks == start_ticks)
			return &sample->processes[i];
	return NULL;
}

uint64_t neap_top_held(const struct neap_top_process *process)
{
	uint64_t own = process->context + process->allocated + process->cached;
	return process->bytes_known ? process->bytes : own;
}

int neap_top_cpu_percent(const struct neap_top_history *history, const struct neap_top_process *process)
{
	const struct neap_top_sample *now = neap_top_history_at(history, 0), *then = neap_top_history_at(history, 1);
	const struct neap_top_process *before =
		now && then ? neap_top_find(then, process->pid, process->start_ticks) : NULL;

	if (!before || now->time_ns <= then->time_ns || process->cpu_ns < before->cpu_ns)
		return -1;
	return (int)(100.0 * (double)(process->cpu_ns - before->cpu_ns) / (double)(now->time_ns - then->time_ns) +
		     0.5);
}

bool neap_top_growth(const struct neap_top_history *history, const struct neap_top_process *process,
		     int64_t *ret_bytes_per_minute)
{
	const struct neap_top_sample *now = neap_top_history_at(history, 0), *then;
	const struct neap_top_process *before = NULL;
	uint64_t span_ns = 0;
	for (size_t age = 1; now && (then = neap_top_history_at(history, age)); age++) {
		const struct neap_top_process *found = neap_top_find(then, process->pid, process->start_ticks);
		if (!found || now->time_ns - then->time_ns > MINUTE_NS)
			break;
		before = found;
		span_ns = now->time_ns - then->time_ns;
	}
	if (!before || span_ns < GROWTH_LEAST_NS)
		return false;
	double change = (double)neap_top_held(process) - (double)neap_top_held(before);
	*ret_bytes_per_minute = (int64_t)(change * (double)MINUTE_NS / (double)span_ns);
	return true;
}
