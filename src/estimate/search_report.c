/* estimate/search_report.c: writes what `neap estimate --plan` found for each GPU: first the ways that fit, then
 * those that do not. */
#include "estimate/text.h"

#include "base/units.h"
#include "report/markup.h"
#include "report/wrap.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SIZE(bytes) neap_size_format((bytes), (char[NEAP_UNITS_CAPACITY]){0})
#define NOT_SHOWN   3 /* ways that do not fit; if there are more, the nearest */

/* A way on a GPU: a row. */
struct row {
	const struct neap_estimate_trial *edge; /* NULL: it does not fit */
	const struct neap_estimate_trial *next; /* the smallest that does not; NULL: not known, or there is none */
	bool open;
	char changes[NEAP_ESTIMATE_CHANGES * 64];
};

static struct row row_of(const struct neap_estimate_report *report, size_t way, size_t gpu)
{
	const char *const *changes = report->search->ways[way].changes;
	struct row row = {0};
	row.edge = neap_estimate_search_edge(report->search, report->plan, way, gpu, &row.next, &row.open);
	snprintf(row.changes, sizeof row.changes, "%s", changes[0] ? "" : "no change");
	for (size_t i = 0; changes[i]; i++) {
		size_t length = strlen(row.changes);
		snprintf(row.changes + length, sizeof row.changes - length, "%s%s", i ? " " : "", changes[i]);
	}
	return row;
}

/* The headroom of the trial that is nearest to the edge. */
static const char *headroom_text(const struct row *row, size_t gpu, char text[NEAP_UNITS_CAPACITY])
{
	const struct neap_estimate_trial *trial = row->edge ? row->edge : row->next;
	if (!trial || trial->point.failed)
		return "-";
	neap_size_format_delta(trial->point.headroom[gpu], text);
	return text[0] == '+' ? text + 1 : text;
}

/* Writes the remark that follows the row's figures. */
static void remark(const struct row *row, size_t gpu, char text[NEAP_ESTIMATE_WHY + 64])
{
	const struct neap_estimate_point *next = row->next ? &row->next->point : NULL;
	char value[32];
	snprintf(value, sizeof value, "%" PRIu64, next ? next->value : 0);
	text[0] = '\0';
	if (row->open)
		snprintf(text, NEAP_ESTIMATE_WHY + 64, " (%s)",
			 row->edge ? "more may fit: not run" : "not run to the end");
	else if (!next && !row->edge)
		snprintf(text, NEAP_ESTIMATE_WHY + 64, " (not run)");
	else if (next && next->failed)
		snprintf(text, NEAP_ESTIMATE_WHY + 64, " (with %s it fails%s%s)", value, next->why[0] ? ": " : "",
			 next->why);
	else if (next && next->fits[gpu] == NEAP_ESTIMATE_UNSURE)
		snprintf(text, NEAP_ESTIMATE_WHY + 64, " (probably with %s: %s)", value,
			 neap_estimate_doubt_name(next->doubt[gpu]));
	else if (!row->edge)
		snprintf(text, NEAP_ESTIMATE_WHY + 64, " (not with %s)", value);
	else if (row->edge->point.fits[gpu] != NEAP_ESTIMATE_YES)
		snprintf(text, NEAP_ESTIMATE_WHY + 64, " (probably: %s)",
			 neap_estimate_doubt_name(row->edge->point.doubt[gpu]));
}

static void put_row(struct neap_buffer *out, const struct neap_estimate_search *search, const char *name,
		    const struct row *row, size_t gpu)
{
	const struct neap_estimate_trial *trial = row->edge ? row->edge : row->next;
	char headroom[NEAP_UNITS_CAPACITY], micro[24] = "-", times[24] = "-", first[96];
	if (row->edge) {
		uint64_t value = row->edge->point.value;
		snprintf(micro, sizeof micro, "%" PRIu64, value);
		snprintf(times, sizeof times, "%" PRIu64, neap_estimate_search_accumulation(search, value));
	}
	snprintf(first, sizeof first, "%-14.14s %11s %12s %10s %10s  ", name, micro, times,
		 trial && !trial->point.failed ? SIZE(trial->point.reserved_peak) : "-",
		 headroom_text(row, gpu, headroom));
	char changes[sizeof row->changes + NEAP_ESTIMATE_WHY + 64], why[NEAP_ESTIMATE_WHY + 64];
	remark(row, gpu, why);
	snprintf(changes, sizeof changes, "%s%s", row->changes, why);
	neap_report_wrap(out, first, changes);
}

/* The ways of a GPU in order, all that fit, and as many others as there is room for. */
static size_t shown_rows(const struct neap_estimate_report *report, size_t gpu, size_t most,
			 struct row rows[NEAP_ESTIMATE_WAYS])
{
	size_t order[NEAP_ESTIMATE_WAYS], count = 0, not = 0;
	neap_estimate_search_order(report->search, report->plan, gpu, order);
	for (size_t i = 0; i < report->search->way_count; i++) {
		rows[count] = row_of(report, order[i], gpu);
		if (rows[count].edge || not ++ < most)
			count++;
	}
	return count;
}

static void put_head(struct neap_buffer *out, const struct neap_estimate_search *search)
{
	neap_buffer_format(out, "Ways to train with %" PRIu64 " sample%s an update", search->samples,
			   search->samples == 1 ? "" : "s");
	if (search->processes > 1)
		neap_buffer_format(out, ", on %" PRIu64 " processes", search->processes);
	neap_buffer_format(out, ": %zu run%s", search->count, search->count == 1 ? "" : "s");
}

static void put_notes(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	const struct neap_estimate_search *search = report->search;
	char text[300];
	snprintf(
		text, sizeof text,
		"micro-batch: the largest %.40s that divides the samples%s, was run, and fits. Unless the line says "
		"otherwise, the next larger one was run, too, and does not fit. accumulation: so many make an update",
		search->name, search->processes > 1 ? " of a process" : "");
	neap_report_wrap(out, "  ", text);
	if (search->accumulates && search->samples / search->processes > 2)
		neap_report_wrap(out, "  ",
				 "an update of more than two micro-batches was run as one of two: each after the "
				 "first finds the same gradients there");
	if (!search->accumulates)
		neap_report_wrap(out, "  ",
				 "run without accumulation, whose gradients stay from one micro-batch to the next: "
				 "name it with --param accumulation=N, and {accumulation} in the command");
	if (search->cut_short) {
		snprintf(text, sizeof text, "%d runs are the most: name fewer GPUs or changes for the rest",
			 NEAP_ESTIMATE_TRIALS);
		neap_report_wrap(out, "  ", text);
	}
}

/* Writes the nearest way, if it is known not to fit. */
static void put_nearest(struct neap_buffer *out, const struct row *row, size_t gpu)
{
	const struct neap_estimate_point *next = row->next ? &row->next->point : NULL;
	if (next && !next->failed && next->fits[gpu] == NEAP_ESTIMATE_NO)
		neap_report_wrap(out, "  ", "nothing fits there: the first comes nearest");
}

void neap_estimate_search_text(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	struct row rows[NEAP_ESTIMATE_WAYS];
	neap_buffer_text(out, "\n");
	put_head(out, report->search);
	neap_buffer_format(out, "\n%-14s %11s %12s %10s %10s  changes\n", "GPU", "micro-batch", "accumulation",
			   "reserved", "headroom");
	for (size_t gpu = 0; gpu < report->plan->count; gpu++) {
		const char *name = report->plan->gpus[gpu].name;
		if (report->search->unsupported[gpu]) {
			neap_buffer_format(out, "%-14s this PyTorch has no kernels for it\n", name);
			continue;
		}
		size_t count = shown_rows(report, gpu, NOT_SHOWN, rows);
		for (size_t i = 0; i < count; i++)
			put_row(out, report->search, i ? "" : name, &rows[i], gpu);
		if (count < report->search->way_count)
			neap_buffer_format(out, "%-14s and %zu more that do not fit\n", "",
					   report->search->way_count - count);
		if (!rows[0].edge)
			put_nearest(out, &rows[0], gpu);
	}
	put_notes(out, report);
}

static void put_cell(struct neap_buffer *out, const char *class, const char *text)
{
	neap_buffer_format(out, "<td%s>", class);
	neap_markup_text(out, text);
	neap_buffer_text(out, "</td>");
}

static void put_markup_row(struct neap_buffer *out, const struct neap_estimate_report *report, const struct row *row,
			   size_t gpu)
{
	const struct neap_estimate_trial *trial = row->edge ? row->edge : row->next;
	bool known = trial && !trial->point.failed;
	uint64_t value = row->edge ? row->edge->point.value : 0;
	char text[NEAP_UNITS_CAPACITY], why[NEAP_ESTIMATE_WHY + 64];
	char changes[sizeof row->changes + sizeof why];
	neap_buffer_text(out, "<tr>");
	put_cell(out, "", report->plan->gpus[gpu].name);
	neap_buffer_format(out, "<td class=\"right\">%" PRIu64 "</td><td class=\"right\">%" PRIu64 "</td>", value,
			   value ? neap_estimate_search_accumulation(report->search, value) : 0);
	neap_buffer_format(out, "<td class=\"right\" data-value=\"%" PRIu64 "\">%s</td>",
			   known ? trial->point.reserved_peak : 0, known ? SIZE(trial->point.reserved_peak) : "-");
	neap_buffer_format(out, "<td class=\"right\" data-value=\"%" PRId64 "\">%s</td>",
			   known ? trial->point.headroom[gpu] : INT64_MIN, headroom_text(row, gpu, text));
	remark(row, gpu, why);
	snprintf(changes, sizeof changes, "%s%s", row->changes, why);
	put_cell(out, "", changes);
	neap_buffer_text(out, "</tr>\n");
}

void neap_estimate_search_markup(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	static const char *const heads[] = {"GPU", "micro-batch", "accumulation", "reserved", "headroom", "changes"};
	struct row rows[NEAP_ESTIMATE_WAYS];
	neap_buffer_text(out, "<div class=\"card\"><h3>");
	put_head(out, report->search);
	neap_buffer_text(out, "</h3>\n<table class=\"sorts\"><thead><tr>");
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		neap_buffer_format(out, "<th scope=\"col\"%s>%s</th>", i > 0 && i < 5 ? " class=\"right\"" : "",
				   heads[i]);
	neap_buffer_text(out, "</tr></thead><tbody>\n");
	for (size_t gpu = 0; gpu < report->plan->count; gpu++) {
		size_t count =
			report->search->unsupported[gpu] ? 0 : shown_rows(report, gpu, NEAP_ESTIMATE_WAYS, rows);
		for (size_t i = 0; i < count; i++)
			put_markup_row(out, report, &rows[i], gpu);
	}
	neap_buffer_text(out, "</tbody></table></div>\n");
}

static json_t *trial_json(const struct neap_estimate_search *search, const struct neap_estimate_trial *trial,
			  size_t gpu)
{
	if (!trial)
		return json_null();
	const struct neap_estimate_point *point = &trial->point;
	return JSON(NUMBER("value", point->value),
		    NUMBER("accumulation", neap_estimate_search_accumulation(search, point->value)),
		    NUMBER("accumulation_run",
			   search->accumulates ? neap_estimate_search_accumulated(search, point->value) : 1),
		    BOOL("failed", point->failed), TEXT("why", point->why),
		    TEXT("fits", point->failed                              ? "no"
				 : point->fits[gpu] == NEAP_ESTIMATE_YES    ? "yes"
				 : point->fits[gpu] == NEAP_ESTIMATE_UNSURE ? "probably"
									    : "no"),
		    ONLY(!point->failed, NUMBER("requested_peak", point->requested_peak)),
		    ONLY(!point->failed, NUMBER("allocated_peak", point->allocated_peak)),
		    ONLY(!point->failed, NUMBER("reserved_peak", point->reserved_peak)),
		    ONLY(!point->failed, INTEGER("headroom", point->headroom[gpu])));
}

static json_t *way_json(const struct neap_estimate_report *report, size_t way, size_t gpu)
{
	const struct neap_estimate_search *search = report->search;
	const struct row row = row_of(report, way, gpu);
	json_t *changes = json_array();
	for (size_t i = 0; search->ways[way].changes[i]; i++)
		neap_json_add(changes, neap_json_text(search->ways[way].changes[i]));
	return JSON(VALUE("changes", changes), VALUE("largest", trial_json(search, row.edge, gpu)),
		    VALUE("next", trial_json(search, row.next, gpu)), BOOL("open", row.open));
}

json_t *neap_estimate_search_json(const struct neap_estimate_report *report)
{
	const struct neap_estimate_search *search = report->search;
	json_t *gpus = json_array();
	if (!search)
		return json_null();
	for (size_t gpu = 0; gpu < report->plan->count; gpu++) {
		size_t order[NEAP_ESTIMATE_WAYS];
		json_t *ways = json_array();
		neap_estimate_search_order(search, report->plan, gpu, order);
		for (size_t i = 0; i < search->way_count && !search->unsupported[gpu]; i++)
			neap_json_add(ways, way_json(report, order[i], gpu));
		neap_json_add(gpus, JSON(TEXT("name", report->plan->gpus[gpu].name), VALUE("ways", ways)));
	}
	return JSON(TEXT("parameter", search->name), NUMBER("samples", search->samples),
		    NUMBER("processes", search->processes), NUMBER("runs", search->count),
		    BOOL("cut_short", search->cut_short), VALUE("gpus", gpus));
}
