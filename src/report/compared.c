/* report/compared.c: see the header. One table of figures serves text and JSON. */
#include "report/compared.h"

#include "analyze/run.h"
#include "base/units.h"
#include "report/analysis.h"
#include "report/cells.h"
#include "report/verdict.h"
#include "report/wrap.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA 1
#define TOP    10
#define NONE   UINT64_MAX

enum unit { UNIT_BYTES, UNIT_COUNT, UNIT_NS };

static uint64_t known_or_none(uint64_t value) { return value ? value : NONE; }

enum neap_status neap_compared_load(const char *path, struct neap_compared_side *side, struct neap_error *err)
{
	struct neap_analysis_options options = {0};
	struct neap_run_facts facts;

	*side = (struct neap_compared_side){.path = path,
					    .cleanups = NONE,
					    .cleanup_ns = NONE,
					    .cleanup_freed = NONE,
					    .allocated_peak = NONE,
					    .counted_reserved_peak = NONE};
	enum neap_status status = neap_trace_read(path, &side->trace, err);
	if (!status) {
		/* The busiest device, not the one that ran out of memory: the other trace may have no such device. */
		options.device = neap_analysis_busiest(side->trace);
		status = neap_analyze(side->trace, &options, &side->analysis, err);
	}
	if (!status && neap_analysis_exact(&side->analysis))
		side->allocated_peak = (uint64_t)side->analysis.replay.usage.stats
					       .metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL]
					       .peak;
	if (status || side->trace->source != NEAP_TRACE_RECORDING)
		return status;
	neap_run_facts(side->trace->record, 0, &facts);
	side->cleanups = facts.cleanups;
	side->cleanup_ns = facts.cleanup_ns;
	side->cleanup_freed = facts.cleanup_freed_bytes;
	side->unrecorded = neap_analysis_empty(&side->analysis);
	side->allocated_peak = known_or_none(facts.peak_allocated_bytes);
	side->counted_reserved_peak = known_or_none(facts.peak_reserved_bytes);
	return NEAP_OK;
}

static void unload(struct neap_compared_side *side)
{
	neap_analysis_fini(&side->analysis);
	neap_trace_free(side->trace);
}

enum neap_status neap_compared_find(struct neap_compared *compared, struct neap_error *err)
{
	return neap_changes_find(&compared->before.analysis, &compared->after.analysis, &compared->changes,
				 &compared->change_count, err);
}

void neap_compared_fini(struct neap_compared *compared)
{
	free(compared->changes);
	unload(&compared->before);
	unload(&compared->after);
	*compared = (struct neap_compared){0};
}

#define FIGURES 20
struct figure {
	const char *name, *key;
	enum unit unit;
	uint64_t before, after; /* NONE: not known */
};

static uint64_t slope(const struct neap_compared_side *side)
{
	const struct neap_leak *leak = &side->analysis.trends.leak;
	return side->analysis.trends.steps == 0 || leak->verdict == NEAP_LEAK_TOO_SHORT ? NONE
	       : leak->verdict == NEAP_LEAK_FOUND ? (uint64_t)fmax(leak->bytes_per_step, 0)
						  : 0;
}

/* The driver calls in 100 updates, so that runs of different lengths compare. */
static uint64_t driver_calls(const struct neap_course *course)
{
	return course->updates ? (uint64_t)llround(100.0 * (double)course->driver_calls / (double)course->updates)
			       : NONE;
}

static void take_figures(const struct neap_compared_side *side, bool after, struct figure figures[FIGURES])
{
	const struct neap_analysis *analysis = &side->analysis;
	const struct neap_profile *profile = &analysis->profile;
	bool recorded = !side->unrecorded;
	const struct neap_course *course = &analysis->trends.course;
	bool stepped = course->whole > 0, segments = analysis->timeline.reserved_known;
	uint64_t reserved = segments ? profile->reserved_peak.reserved : NONE;
	const struct {
		const char *name, *key;
		enum unit unit;
		uint64_t value;
	} rows[FIGURES] = {
		{"requested peak", "requested_peak", UNIT_BYTES, recorded ? profile->requested_peak.requested : NONE},
		{"rounded peak", "rounded_peak", UNIT_BYTES, recorded ? profile->rounded_peak.rounded : NONE},
		{"allocated peak", "allocated_peak", UNIT_BYTES, side->allocated_peak},
		{"reserved peak", "reserved_peak", UNIT_BYTES, recorded ? reserved : side->counted_reserved_peak},
		{"swing within a step", "amplitude", UNIT_BYTES,
		 analysis->trends.steps ? analysis->trends.amplitude_bytes : NONE},
		{"allocated swing", "allocated_swing", UNIT_BYTES, stepped ? course->allocated.swing_bytes : NONE},
		{"allocated mean", "allocated_mean", UNIT_BYTES, stepped ? course->allocated.mean_bytes : NONE},
		{"reserved swing", "reserved_swing", UNIT_BYTES,
		 stepped && segments ? course->reserved.swing_bytes : NONE},
		{"reserved mean", "reserved_mean", UNIT_BYTES,
		 stepped && segments ? course->reserved.mean_bytes : NONE},
		{"time a step", "step_ns", UNIT_NS, known_or_none(course->step_ns)},
		{"driver calls, 100 steps", "driver_calls_per_100_steps", UNIT_COUNT,
		 segments ? driver_calls(course) : NONE},
		{"retries", "retries", UNIT_COUNT, segments ? analysis->trends.retries : NONE},
		{"swing repeats, steps", "period_steps", UNIT_COUNT, known_or_none(analysis->trends.period)},
		{"leak per step", "leak_bytes_per_step", UNIT_BYTES, slope(side)},
		{"allocations", "allocations", UNIT_COUNT,
		 recorded && !analysis->trace->partial ? profile->kinds[NEAP_TRACE_ALLOC] : NONE},
		{"cache emptied", "cache_emptied", UNIT_COUNT, analysis->trends.emptied},
		{"emptied every, steps", "cache_emptied_every_steps", UNIT_COUNT,
		 known_or_none(analysis->trends.emptied_period)},
		{"cleanups", "cleanups", UNIT_COUNT, side->cleanups},
		{"time in cleanups", "cleanup_ns", UNIT_NS, side->cleanup_ns},
		{"given back by them", "cleanup_freed", UNIT_BYTES, side->cleanup_freed},
	};
	for (size_t i = 0; i < FIGURES; i++) {
		figures[i].name = rows[i].name;
		figures[i].key = rows[i].key;
		figures[i].unit = rows[i].unit;
		*(after ? &figures[i].after : &figures[i].before) = rows[i].value;
	}
}

static const char *show(enum unit unit, uint64_t value, char text[NEAP_UNITS_CAPACITY])
{
	if (value == NONE)
		return "-";
	if (unit == UNIT_BYTES)
		return neap_size_format(value, text);
	if (unit == UNIT_NS)
		return neap_duration_format(value, text);
	snprintf(text, NEAP_UNITS_CAPACITY, "%" PRIu64, value);
	return text;
}

/* "+384 MiB (+10.7 %)"; "": no change, or not known. Returns text. */
static const char *show_change(enum unit unit, uint64_t before, uint64_t after, char text[64])
{
	char size[NEAP_UNITS_CAPACITY];
	int length = 0;
	text[0] = '\0';
	if (before == NONE || after == NONE || before == after)
		return text;
	length = snprintf(text, 64, "%c%s", after > before ? '+' : '-',
			  show(unit, after > before ? after - before : before - after, size));
	if (before > 0)
		snprintf(text + length, 64 - (size_t)length, " (%+.1f %%)",
			 100.0 * ((double)after - (double)before) / (double)before);
	return text;
}

static void put_heads(struct neap_buffer *out, const char *title)
{
	neap_buffer_format(out, "  %-23s %12s %12s  %s\n", title, "A", "B", "change");
}

static void put_row(struct neap_buffer *out, const char *name, enum unit unit, uint64_t before, uint64_t after)
{
	char left[NEAP_UNITS_CAPACITY], right[NEAP_UNITS_CAPACITY], change[64];
	if (before == NONE && after == NONE)
		return;
	show_change(unit, before, after, change);
	neap_buffer_format(out, "  %-23s %12s %12s%s%s\n", name, show(unit, before, left), show(unit, after, right),
			   change[0] ? "  " : "", change);
}

static void put_unrecorded(struct neap_buffer *out, const char *name, const struct neap_compared_side *side)
{
	char text[160];
	if (!side->unrecorded)
		return;
	snprintf(text, sizeof text,
		 "%s has no allocation, only what its process counted: 'neap analyze' says how to "
		 "record them",
		 name);
	neap_report_wrap(out, "  ", text);
}

/* Writes the changes by purpose, and by holder. */
static void put_holders(struct neap_buffer *out, const struct neap_compared *compared)
{
	const struct neap_change *changes = compared->changes;
	size_t count = compared->change_count;
	char first[64], delta[NEAP_UNITS_CAPACITY], bytes[NEAP_UNITS_CAPACITY], now[NEAP_UNITS_CAPACITY];

	neap_buffer_text(out, "\n");
	put_heads(out, "requested peak, for");
	for (int category = 0; category < NEAP_CATEGORIES; category++) {
		uint64_t was = neap_category_bytes(&compared->before.analysis, (enum neap_category)category);
		uint64_t is = neap_category_bytes(&compared->after.analysis, (enum neap_category)category);
		if (was || is)
			put_row(out, neap_category_name((enum neap_category)category), UNIT_BYTES, was, is);
	}
	neap_buffer_text(out, "\nAt the requested peak, by who holds it: the largest changes\n");
	for (size_t i = 0; i < count && i < TOP && neap_change_bytes(&changes[i]); i++) {
		snprintf(first, sizeof first, "  %11s  %10s -> %-10s  ",
			 neap_size_format_delta(neap_change_bytes(&changes[i]), delta),
			 neap_size_format(changes[i].before_bytes, bytes),
			 neap_size_format(changes[i].after_bytes, now));
		neap_report_wrap(out, first, changes[i].name);
	}
	if (count == 0 || !neap_change_bytes(&changes[0]))
		neap_buffer_text(out, "  none\n");
}

static struct neap_verdict_side side_of(const struct neap_compared *compared, const struct figure *figures,
					bool after)
{
	struct neap_verdict_side side = {.thinned = (after ? compared->after : compared->before).trace->partial};
	bool simulated = neap_compared_simulated(compared);
	side.step_ns = NONE; /* stays so if it is simulated */
	const struct {
		const char *key;
		uint64_t *field;
	} fields[] = {
		{"cache_emptied", &side.emptied},    {"reserved_peak", &side.peak_bytes},
		{"reserved_mean", &side.mean_bytes}, {"reserved_swing", &side.swing_bytes},
		{"step_ns", &side.step_ns},          {"driver_calls_per_100_steps", &side.driver_calls},
		{"retries", &side.retries},
	};
	for (size_t i = 0; i < FIGURES; i++)
		for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
			if (!strcmp(figures[i].key, fields[k].key) && !(simulated && figures[i].unit == UNIT_NS))
				*fields[k].field = after ? figures[i].after : figures[i].before;
	return side;
}

static char *make_verdict(const struct neap_compared *compared, const struct figure *figures)
{
	struct neap_verdict_side before = side_of(compared, figures, false), after = side_of(compared, figures, true);
	struct neap_buffer text = {0};

	neap_verdict_cleanups(&text, &before, &after);
	return neap_buffer_detach(&text);
}

static void put_verdict(struct neap_buffer *out, const struct neap_compared *compared, const struct figure *figures)
{
	char *text = make_verdict(compared, figures), *rest = NULL;

	for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
		neap_buffer_text(out, line == text ? "\n" : "");
		neap_report_wrap(out, line == text ? "  " : "    ", line);
	}
	free(text);
}

static json_t *verdict_json(const struct neap_compared *compared, const struct figure *figures)
{
	char *text = make_verdict(compared, figures), *rest = NULL;
	json_t *lines = json_array();

	for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest))
		neap_json_add(lines, neap_json_text(line));
	free(text);
	return lines;
}

bool neap_compared_simulated(const struct neap_compared *compared)
{
	return compared->before.trace->origin.simulated || compared->after.trace->origin.simulated;
}

static void put_path(struct neap_buffer *out, const char *first, const struct neap_compared_side *side)
{
	struct neap_buffer text = {0};
	char gpu[NEAP_REPORT_ORIGIN];

	neap_buffer_text(&text, side->path);
	if (neap_trace_origin_known(side->trace))
		neap_buffer_format(&text, ", on %s", neap_report_origin(side->trace, gpu));
	neap_report_wrap(out, first, neap_buffer_string(&text));
	out->failed |= text.failed;
	neap_buffer_fini(&text);
}

void neap_report_compared(struct neap_buffer *out, const struct neap_compared *compared)
{
	const struct neap_compared_side *before = &compared->before, *after = &compared->after;
	struct figure figures[FIGURES];

	take_figures(before, false, figures);
	take_figures(after, true, figures);
	put_path(out, "A: ", before);
	put_path(out, "B: ", after);
	neap_buffer_text(out, "\n");
	put_heads(out, "");
	for (size_t i = 0; i < FIGURES; i++)
		put_row(out, figures[i].name, figures[i].unit, figures[i].before, figures[i].after);
	if (neap_compared_simulated(compared))
		neap_buffer_text(out, "  Times are the simulator's: they do not tell how fast a GPU is.\n");
	put_verdict(out, compared, figures);
	put_unrecorded(out, "A", before);
	put_unrecorded(out, "B", after);
	if (!before->unrecorded && !after->unrecorded)
		put_holders(out, compared);
}

static json_t *pair(uint64_t before, uint64_t after) { return JSON(KNOWN("a", before), KNOWN("b", after)); }

static struct neap_json_row simulated_row(const char *key, const struct neap_trace *trace)
{
	return ONLY(neap_trace_origin_known(trace), BOOL(key, trace->origin.simulated));
}

static uint64_t category_bytes(const struct neap_compared_side *side, enum neap_category category)
{
	return side->unrecorded ? NONE : neap_category_bytes(&side->analysis, category);
}

json_t *neap_compared_json(const struct neap_compared *compared)
{
	const struct neap_compared_side *before = &compared->before, *after = &compared->after;
	json_t *root = json_object(), *categories = json_object(), *holders = json_array();
	struct figure figures[FIGURES];

	take_figures(before, false, figures);
	take_figures(after, true, figures);
	JSON_PUT(root, INTEGER("schema", SCHEMA), TEXT("a", before->path), TEXT("b", after->path));
	neap_json_set(root, "gpu", JSON(GIVEN("a", before->trace->origin.gpu), GIVEN("b", after->trace->origin.gpu)));
	neap_json_set(root, "simulated", JSON(simulated_row("a", before->trace), simulated_row("b", after->trace)));
	for (size_t i = 0; i < FIGURES; i++)
		neap_json_set(root, figures[i].key, pair(figures[i].before, figures[i].after));
	for (int category = 0; category < NEAP_CATEGORIES; category++)
		neap_json_set(categories, neap_category_name((enum neap_category)category),
			      pair(category_bytes(before, (enum neap_category)category),
				   category_bytes(after, (enum neap_category)category)));
	neap_json_set(root, "categories", categories);
	for (size_t i = 0; i < compared->change_count && !before->unrecorded && !after->unrecorded; i++) {
		json_t *holder = pair(compared->changes[i].before_bytes, compared->changes[i].after_bytes);
		neap_json_set(holder, "text", neap_json_text(compared->changes[i].name));
		neap_json_add(holders, holder);
	}
	neap_json_set(root, "holders", holders);
	neap_json_set(root, "cleanups_verdict", verdict_json(compared, figures));
	return root;
}
