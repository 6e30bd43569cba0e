/* series/series_compare.c: compares experiments as the file asks, by their recordings. If a run attached several
 * processes, the one with the highest peak counts. Like the rest of the report, a comparison needs only the folders,
 * so it can be made again. */
#include "series/series_internal.h"

#include "analyze/lanes.h"
#include "analyze/run.h"
#include "base/error.h"
#include "base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One side of a comparison, from its run's recording. */
struct side {
	struct neap_compared compared;
	struct neap_demand demand;
	bool demand_known;
	uint32_t layers;
};

static int by_value(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

/* The time of a step since the settings last changed, from the fastest tenth of the steps, so that other work on the
 * host matters little. Skips the first step, which includes warming up. Returns 0 if there is no other step. */
static uint64_t step_ns(const struct neap_record *record, uint64_t *ret_median_ns)
{
	uint64_t *steps = calloc(record->journal_count + 1, sizeof *steps), before_ns = 0, found = 0;
	struct neap_lanes lanes = {0};
	bool known = steps && neap_lanes_find(record, &lanes, NULL) == NEAP_OK && lanes.count > 0;
	size_t count = 0;

	for (size_t i = 0; known && i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->device == lanes.items[lanes.main].device &&
		    (event->kind == NEAP_EVENT_SPLIT || event->kind == NEAP_EVENT_RUNG))
			before_ns = count = 0;
		if (lanes.of[i] != lanes.main)
			continue;
		if (before_ns && event->time_ns > before_ns)
			steps[count++] = event->time_ns - before_ns;
		before_ns = event->time_ns;
	}
	if (count) {
		qsort(steps, count, sizeof *steps, by_value);
		found = steps[count / 10];
		*ret_median_ns = steps[count / 2];
	}
	neap_lanes_fini(&lanes);
	free(steps);
	return found;
}

static void fill_side(const struct neap_record *record, struct side *side)
{
	struct neap_run_facts facts;

	neap_run_facts(record, 0, &facts);
	if (facts.peak_allocated_bytes <= side->compared.peak_bytes)
		return;
	side->compared.peak_bytes = facts.peak_allocated_bytes;
	side->compared.settings = (struct neap_train_settings){facts.last_split, facts.last_rungs};
	side->compared.step_median_ns = 0;
	side->compared.step_ns = step_ns(record, &side->compared.step_median_ns);
	side->layers = facts.layers;
	side->demand_known = neap_demand_at_peak(record, &side->demand);
}

/* Reads an experiment's last attempt. Without a recording, reads only the name. */
static void read_side(const struct neap_series *series, size_t at, struct side *side)
{
	const char *name = series->spec->experiments[at].name;
	char folder[4096], path[4400];

	*side = (struct side){0};
	snprintf(side->compared.name, sizeof side->compared.name, "%s", name);
	snprintf(folder, sizeof folder, "%.3800s/runs/%s-%u", series->summary->folder, name,
		 series->state.experiments[at].attempts);
	DIR *entries = opendir(folder);
	for (struct dirent *entry; entries && (entry = readdir(entries));) {
		struct neap_record record = {0};
		if (strncmp(entry->d_name, "record.", 7) != 0 ||
		    neap_path_join(path, sizeof path, folder, entry->d_name))
			continue;
		if (neap_record_read(path, &record, NULL) == NEAP_OK)
			fill_side(&record, side);
		neap_record_fini(&record);
	}
	if (entries)
		closedir(entries);
}

enum neap_status neap_series_compare(struct neap_series *series, struct neap_error *err)
{
	const struct neap_spec *spec = series->spec;
	struct neap_series_summary *summary = series->summary;

	summary->comparisons = calloc(spec->count, sizeof *summary->comparisons);
	if (!summary->comparisons)
		return neap_fail(err, NEAP_ENOMEM, "comparing a series' experiments: out of memory");
	size_t read = spec->count; /* the experiment that `other` has: many may be compared to the same one */
	struct side run, other = {0};
	for (size_t i = 0; i < spec->count; i++) {
		const char *to = spec->experiments[i].compare_to;
		size_t base = to ? neap_spec_find(spec, to) : spec->count;
		struct neap_comparison *comparison = &summary->comparisons[summary->comparison_count];
		if (base == spec->count)
			continue;
		read_side(series, i, &run);
		if (base != read)
			read_side(series, base, &other);
		read = base;
		comparison->run = run.compared;
		comparison->base = other.compared;
		comparison->predicted = other.demand_known &&
					neap_predict(&other.demand, &other.compared.settings, &run.compared.settings,
						     other.layers, &comparison->prediction);
		summary->comparison_count++;
	}
	return NEAP_OK;
}
