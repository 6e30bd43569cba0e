/* report/page.c: the page: one file, no reference to anything outside it.
 *
 *   head      style, dygraphs' style
 *   summary   runs, device; the answer: which runs failed, what stands out
 *   table     ranked by peak, a bar for its part of the device
 *   section   per run: curve (numbers as JSON), facts, OOM card
 *   scripts   dygraphs, then ours, which draws each curve from the JSON beside it
 *
 * Text from outside always goes through neap_markup_text, into element content or a quoted attribute. The JSON holds
 * numbers only, so nothing in it can end its script element. A content policy forbids the page to fetch anything.
 */
#include "base/units.h"
#include "report/cells.h"
#include "report/embedded.h"
#include "report/markup.h"
#include "report/markup_report.h"
#include "report/report.h"
#include "report/words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Points of one curve in the page; more are thinned out, extremes kept. */
#define CURVE_POINTS 4000
#define NAMED        4 /* runs in a sentence */

static const char *const tone_class[] = {
	[NEAP_TONE_PLAIN] = "", [NEAP_TONE_GOOD] = "good", [NEAP_TONE_WARN] = "warn", [NEAP_TONE_BAD] = "bad"};

static void put_head(struct neap_buffer *out, const char *title)
{
	neap_buffer_text(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
			      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
			      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
			      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
	neap_markup_text(out, title);
	neap_buffer_text(out, "</title>\n<style>\n");
	neap_buffer_append(out, neap_dygraphs_css, neap_dygraphs_css_length);
	neap_buffer_append(out, neap_page_css, neap_page_css_length);
	neap_buffer_text(out, "</style>\n</head>\n<body>\n<main>\n");
}

static void put_time(struct neap_buffer *out, uint64_t wall_ns)
{
	time_t seconds = (time_t)(wall_ns / 1000000000u);
	struct tm local;
	char text[64];

	if (wall_ns > 0 && localtime_r(&seconds, &local) && strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local) > 0)
		neap_buffer_format(out, ", %s", text);
}

static bool failed(const struct neap_result *result) { return result->outcome != NEAP_OUTCOME_OK; }
static bool leaks(const struct neap_result *result) { return strcmp(result->leak_verdict, "leak") == 0; }
static bool stepped(const struct neap_result *result) { return result->rungs > 0; }

static size_t count_of(const struct neap_result *results, size_t count, bool (*is)(const struct neap_result *))
{
	size_t found = 0;
	for (size_t i = 0; i < count; i++)
		found += is(&results[i]);
	return found;
}

/* ": a, b, c and 2 more" */
static void put_names(struct neap_buffer *out, const struct neap_result *results, size_t count,
		      bool (*is)(const struct neap_result *))
{
	size_t shown = 0, all = count_of(results, count, is);
	for (size_t i = 0; i < count && shown < NAMED; i++) {
		if (!is(&results[i]))
			continue;
		neap_buffer_text(out, shown++ ? ", " : ": ");
		neap_markup_text(out, results[i].name[0] ? results[i].name : "-");
		if (failed(&results[i]))
			neap_buffer_format(out, " (%s)", neap_outcome_name(results[i].outcome));
	}
	if (all > shown)
		neap_buffer_format(out, " and %zu more", all - shown);
}

static void put_answer(struct neap_buffer *out, const struct neap_result *results, size_t count)
{
	size_t bad = count_of(results, count, failed), leaking = count_of(results, count, leaks);
	size_t helped = count_of(results, count, stepped);

	neap_buffer_format(out, "<div class=\"answer %s\">\n<h2>", bad ? "bad" : leaking ? "warn" : "good");
	if (bad) {
		neap_buffer_format(out, "%zu of %zu run%s failed", bad, count, count == 1 ? "" : "s");
		put_names(out, results, count, failed);
	} else if (count == 1) {
		neap_buffer_text(out, "The run ended well");
	} else {
		neap_buffer_format(out, "All %zu runs ended well", count);
	}
	neap_buffer_text(out, "</h2>\n");
	if (leaking) {
		neap_buffer_format(out, "<p><span class=\"bad\">%zu leak%s memory</span>", leaking,
				   leaking == 1 ? "s" : "");
		put_names(out, results, count, leaks);
		neap_buffer_text(out, "</p>\n");
	}
	if (helped) {
		neap_buffer_format(out, "<p><span class=\"warn\">%zu went on with less memory</span>", helped);
		put_names(out, results, count, stepped);
		neap_buffer_text(out, "</p>\n");
	}
	neap_buffer_text(out, "</div>\n");
}

static void put_summary(struct neap_buffer *out, const char *title, const struct neap_result *results, size_t count)
{
	uint64_t first = 0;
	bool simulated = false;
	char size[NEAP_UNITS_CAPACITY];

	for (size_t i = 0; i < count; i++) {
		simulated |= strcmp(results[i].backend, "sim") == 0;
		if (results[i].started_wall_ns > 0 && (first == 0 || results[i].started_wall_ns < first))
			first = results[i].started_wall_ns;
	}
	neap_buffer_text(out, "<h1>");
	neap_markup_text(out, title);
	neap_buffer_format(out, "</h1>\n<p class=\"summary quiet\">%zu run%s", count, count == 1 ? "" : "s");
	put_time(out, first);
	if (count > 0 && results[0].device_name[0]) {
		neap_buffer_text(out, ", on ");
		neap_markup_text(out, results[0].device_name);
		if (results[0].device_total_bytes > 0)
			neap_buffer_format(out, " (%s)", neap_size_format(results[0].device_total_bytes, size));
	}
	if (simulated)
		neap_buffer_text(out, " <span class=\"simulated\">simulated device</span>");
	neap_buffer_text(out, "</p>\n");
	put_answer(out, results, count);
}

static void put_use_bar(struct neap_buffer *out, const struct neap_result *result)
{
	uint64_t peak = neap_report_peak(result);

	if (peak == 0 || result->device_total_bytes == 0)
		return;
	double percent = 100.0 * (double)peak / (double)result->device_total_bytes;
	neap_buffer_format(
		out, "<div class=\"use\" title=\"%d %% of the device\"><span style=\"width:%d%%\"></span></div>",
		(int)(percent + 0.5), percent > 100 ? 100 : (int)(percent + 0.5));
}

static void put_table(struct neap_buffer *out, const struct neap_result **ranked, size_t count)
{
	struct neap_report_cells cells;

	neap_buffer_text(out, "<div class=\"scroll\" tabindex=\"0\"><table class=\"runs\">\n<thead><tr>");
	for (int c = 0; c < NEAP_COLUMN_COUNT; c++) {
		neap_buffer_format(out, "<th scope=\"col\"%s>",
				   neap_report_headings[c].right ? " class=\"right\"" : "");
		neap_words_put(out, neap_report_headings[c].title);
		neap_buffer_text(out, "</th>");
	}
	neap_buffer_text(out, "</tr></thead>\n<tbody>\n");
	for (size_t i = 0; i < count; i++) {
		neap_report_cells(ranked[i], &cells);
		neap_buffer_text(out, "<tr>");
		for (int c = 0; c < NEAP_COLUMN_COUNT; c++) {
			neap_buffer_format(out, "<td class=\"%s %s%s\">", neap_report_headings[c].title,
					   neap_report_headings[c].right ? "right " : "", tone_class[cells.tone[c]]);
			neap_buffer_text(out, "<span class=\"label\">"); /* where the heads have no room */
			neap_words_put(out, neap_report_headings[c].title);
			neap_buffer_text(out, "</span>");
			if (c == NEAP_COLUMN_NAME)
				neap_buffer_format(out, "<a href=\"#run-%zu\">", i + 1);
			neap_markup_text(out, cells.text[c]);
			if (c == NEAP_COLUMN_NAME)
				neap_buffer_text(out, "</a>");
			if (c == NEAP_COLUMN_PEAK)
				put_use_bar(out, ranked[i]);
			neap_buffer_text(out, "</td>");
		}
		neap_buffer_text(out, "</tr>\n");
	}
	neap_buffer_text(out, "</tbody>\n</table></div>\n");
}

/* Chooses the samples for the page: all, or the lowest and the highest of each stretch. Returns how many.
 */
static size_t choose_samples(const struct neap_result *result, size_t *chosen)
{
	const struct neap_result_sample *samples = result->samples;
	size_t buckets = CURVE_POINTS / 2, count = 0;

	if (result->sample_count <= CURVE_POINTS) {
		for (; count < result->sample_count; count++)
			chosen[count] = count;
		return count;
	}
	for (size_t b = 0; b < buckets; b++) {
		size_t from = result->sample_count * b / buckets, to = result->sample_count * (b + 1) / buckets;
		size_t low = from, high = from;
		for (size_t i = from; i < to; i++) {
			if (samples[i].allocated_bytes < samples[low].allocated_bytes)
				low = i;
			if (samples[i].allocated_bytes > samples[high].allocated_bytes ||
			    (samples[i].allocated_bytes == samples[high].allocated_bytes &&
			     samples[i].reserved_bytes > samples[high].reserved_bytes))
				high = i;
		}
		chosen[count++] = low < high ? low : high;
		if (low != high)
			chosen[count++] = low < high ? high : low;
	}
	return count;
}

enum curve { CURVE_TIME, CURVE_ALLOCATED, CURVE_RESERVED, CURVE_DRIVER };

static void put_numbers(struct neap_buffer *out, const struct neap_result *result, const size_t *chosen, size_t count,
			enum curve which)
{
	neap_buffer_text(out, "[");
	for (size_t i = 0; i < count; i++) {
		const struct neap_result_sample *sample = &result->samples[chosen[i]];
		uint64_t value = which == CURVE_TIME        ? sample->time_ns / 1000
				 : which == CURVE_ALLOCATED ? sample->allocated_bytes
				 : which == CURVE_RESERVED  ? sample->reserved_bytes
							    : sample->device_bytes;
		bool known = which == CURVE_TIME || (which == CURVE_DRIVER ? value != UINT64_MAX : result->attached);
		if (known)
			neap_buffer_format(out, "%s%" PRIu64, i ? "," : "", value);
		else
			neap_buffer_text(out, i ? ",null" : "null");
	}
	neap_buffer_text(out, "]");
}

static void put_curve(struct neap_buffer *out, const struct neap_result *result)
{
	size_t *chosen = calloc(CURVE_POINTS + 2, sizeof *chosen);

	if (!chosen) {
		out->failed = true;
		return;
	}
	size_t count = choose_samples(result, chosen);
	if (count < 2) {
		neap_buffer_text(
			out, "<p class=\"quiet\">No memory curve: the run was too short, or its device could not be "
			     "read.</p>\n");
		free(chosen);
		return;
	}
	neap_buffer_text(out, "<div class=\"curve\">\n<div class=\"tools\"><div class=\"legend\"></div>"
			      "<button type=\"button\"></button></div>\n<div class=\"plot\"></div>\n"
			      "<noscript><p class=\"quiet\">The curve needs JavaScript.</p></noscript>\n"
			      "<script type=\"application/json\">{\"total\":");
	if (result->device_total_bytes > 0)
		neap_buffer_format(out, "%" PRIu64, result->device_total_bytes);
	else
		neap_buffer_text(out, "null");
	neap_buffer_text(out, ",\"time_us\":");
	put_numbers(out, result, chosen, count, CURVE_TIME);
	neap_buffer_text(out, ",\"allocated\":");
	put_numbers(out, result, chosen, count, CURVE_ALLOCATED);
	neap_buffer_text(out, ",\"reserved\":");
	put_numbers(out, result, chosen, count, CURVE_RESERVED);
	neap_buffer_text(out, ",\"driver\":");
	put_numbers(out, result, chosen, count, CURVE_DRIVER);
	neap_buffer_text(out, "}</script>\n</div>\n");
	free(chosen);
}

/* Writes one line of facts; nothing if there is nothing to say. */
static void put_fact(struct neap_buffer *out, const char *label, const char *text, enum neap_report_tone tone)
{
	if (!text[0])
		return;
	neap_buffer_format(out, "<dt>%s</dt><dd class=\"%s\">", label, tone_class[tone]);
	neap_markup_text(out, text);
	neap_buffer_text(out, "</dd>\n");
}

static void put_leak_fact(struct neap_buffer *out, const struct neap_result *result)
{
	char delta[NEAP_UNITS_CAPACITY], text[256];

	if (strcmp(result->leak_verdict, "leak") != 0) {
		put_fact(out, "leak", result->leak_verdict,
			 strcmp(result->leak_verdict, "clean") == 0 ? NEAP_TONE_GOOD : NEAP_TONE_PLAIN);
		return;
	}
	/* Rounded up to 100 %, the figure would claim too much for a statistic. */
	double percent = 100 * result->leak_confidence;
	bool above = percent > 99.9;
	snprintf(text, sizeof text, "memory grows by %s with each step (confidence %s%.1f %%)",
		 neap_size_format_delta((int64_t)result->leak_bytes_per_step, delta), above ? "above " : "",
		 above ? 99.9 : percent);
	put_fact(out, "leak", text, NEAP_TONE_BAD);
}

/* Writes at which step the session forecast the end of memory, and how often the process restarted. */
static void put_forecast_fact(struct neap_buffer *out, const struct neap_result *result)
{
	unsigned long long low = result->memory_ends_low_step, high = result->memory_ends_high_step;
	char text[256];

	if (result->memory_ends_step && high == UINT64_MAX)
		snprintf(text, sizeof text, "memory ends at step %llu, %llu at the earliest (99 %%)",
			 (unsigned long long)result->memory_ends_step, low);
	else if (low == high)
		snprintf(text, sizeof text, "memory ends at step %llu", low);
	else
		snprintf(text, sizeof text, "memory ends at step %llu, between %llu and %llu (99 %%)",
			 (unsigned long long)result->memory_ends_step, low, high);
	if (result->memory_ends_step)
		put_fact(out, "forecast", text, NEAP_TONE_WARN);
	snprintf(text, sizeof text, "%u in place, before a leak had used up the memory", result->restarts);
	if (result->restarts)
		put_fact(out, "restarts", text, NEAP_TONE_WARN);
}

static void put_memory_fact(struct neap_buffer *out, const struct neap_result *result)
{
	char allocated[NEAP_UNITS_CAPACITY], reserved[NEAP_UNITS_CAPACITY], device[NEAP_UNITS_CAPACITY], text[256];
	size_t used = 0;

	text[0] = '\0';
	if (result->attached)
		used = (size_t)snprintf(text, sizeof text, "%s allocated, %s reserved",
					neap_size_format(result->peak_allocated_bytes, allocated),
					neap_size_format(result->peak_reserved_bytes, reserved));
	if (result->peak_device_bytes > 0)
		snprintf(text + used, sizeof text - used, "%s%s by the driver's account", used ? "; " : "",
			 neap_size_format(result->peak_device_bytes, device));
	put_fact(out, "peak", text, NEAP_TONE_PLAIN);
}

static void put_facts(struct neap_buffer *out, const struct neap_result *result)
{
	char time[NEAP_UNITS_CAPACITY], text[256];

	neap_buffer_text(out, "<dl>\n");
	put_fact(out, "evidence", result->evidence, NEAP_TONE_BAD);
	put_memory_fact(out, result);
	put_fact(out, "rung taken", result->rung, NEAP_TONE_WARN);
	put_fact(out, "fluctuation", result->fluctuation, NEAP_TONE_PLAIN);
	put_leak_fact(out, result);
	put_forecast_fact(out, result);
	put_fact(out, "largest micro-batch", result->advice, NEAP_TONE_PLAIN);
	put_fact(out, "stray context", result->stray_contexts, NEAP_TONE_WARN);
	put_fact(out, "would save", result->savings, NEAP_TONE_PLAIN);
	put_fact(out, "cleanup", result->cleanup, NEAP_TONE_PLAIN);
	if (result->waited_ns > 0) {
		snprintf(text, sizeof text, "%s for the bytes it needs",
			 neap_duration_format(result->waited_ns, time));
		put_fact(out, "waited", text, NEAP_TONE_PLAIN);
	}
	if (!result->drained)
		put_fact(out, "drain", result->drain_note, NEAP_TONE_BAD);
	if (result->steps > 0) {
		if (isfinite(result->last_loss))
			snprintf(text, sizeof text, "%" PRIu64 ", last loss %.4f", result->steps, result->last_loss);
		else
			snprintf(text, sizeof text, "%" PRIu64, result->steps);
		put_fact(out, "steps", text, NEAP_TONE_PLAIN);
	}
	if (result->ooms > 0 || result->retries > 0) {
		snprintf(text, sizeof text,
			 "%" PRIu32 " out of memory, %" PRIu32 " rung%s taken, %" PRIu32 " restart%s", result->ooms,
			 result->rungs, result->rungs == 1 ? "" : "s", result->retries,
			 result->retries == 1 ? "" : "s");
		put_fact(out, "trouble", text, NEAP_TONE_PLAIN);
	}
	put_fact(out, "parameters", result->parameters, NEAP_TONE_PLAIN);
	put_fact(out, "run", result->run_id, NEAP_TONE_PLAIN);
	put_fact(out, "folder", result->folder, NEAP_TONE_PLAIN);
	neap_buffer_text(out, "</dl>\n");
}

static void put_run(struct neap_buffer *out, const struct neap_result *result, size_t number)
{
	struct neap_report_cells cells;

	neap_report_cells(result, &cells);
	neap_buffer_format(out, "<section id=\"run-%zu\">\n<div class=\"head\"><h2>", number);
	neap_markup_text(out, result->name[0] ? result->name : "-");
	neap_buffer_format(out, "</h2><span class=\"%s\">%s</span><span class=\"quiet\">",
			   tone_class[cells.tone[NEAP_COLUMN_OUTCOME]], cells.text[NEAP_COLUMN_OUTCOME]);
	if (result->outcome != NEAP_OUTCOME_OK)
		neap_buffer_format(out, "exit %d, ", result->exit_status);
	neap_buffer_format(out, "%s</span></div>\n<code class=\"command\">", cells.text[NEAP_COLUMN_TIME]);
	neap_markup_text(out, result->command);
	neap_buffer_text(out, "</code>\n");
	put_curve(out, result);
	put_facts(out, result);
	if (result->last_lines[0]) {
		neap_buffer_text(out, "<p class=\"quiet\">The last lines of its ");
		neap_markup_text(out, result->last_lines_of);
		neap_buffer_text(out, "</p>\n<pre tabindex=\"0\">");
		neap_markup_text(out, result->last_lines);
		neap_buffer_text(out, "</pre>\n");
	}
	if (result->oom_card[0]) {
		neap_buffer_text(
			out, "<details class=\"report\"><summary>Out of memory: cause, holders, fixes</summary>\n");
		neap_markup_report(out, result->oom_card);
		neap_buffer_text(out, "</details>\n");
	}
	neap_buffer_text(out, "</section>\n");
}

static void put_comparisons(struct neap_buffer *out, const struct neap_comparison *comparisons, size_t count)
{
	struct neap_buffer text = {0};

	if (count == 0)
		return;
	neap_buffer_text(out, "<section id=\"comparisons\">\n<h2>Measured against another run</h2>\n<dl>\n");
	for (size_t i = 0; i < count; i++) {
		neap_buffer_clear(&text);
		neap_report_comparison_head(&text, &comparisons[i]);
		neap_buffer_text(out, "<dt>");
		neap_markup_text(out, neap_buffer_string(&text));
		neap_buffer_clear(&text);
		neap_report_comparison_figures(&text, &comparisons[i]);
		neap_buffer_text(out, "</dt><dd>");
		neap_markup_text(out, neap_buffer_string(&text));
		neap_buffer_text(out, "</dd>\n");
	}
	neap_buffer_text(out, "</dl>\n</section>\n");
	out->failed = out->failed || text.failed;
	neap_buffer_fini(&text);
}

void neap_report_page(struct neap_buffer *out, const char *title, const struct neap_result *results, size_t count,
		      const struct neap_comparison *comparisons, size_t comparison_count)
{
	const struct neap_result **ranked = neap_report_rank(results, count);

	if (!ranked) {
		out->failed = true;
		return;
	}
	put_head(out, title);
	put_summary(out, title, results, count);
	put_table(out, ranked, count);
	put_comparisons(out, comparisons, comparison_count);
	for (size_t i = 0; i < count; i++)
		put_run(out, ranked[i], i + 1);
	neap_words_explain(out);
	neap_buffer_text(out, "</main>\n<script>\n");
	neap_buffer_append(out, neap_dygraphs_js, neap_dygraphs_js_length);
	neap_buffer_text(out, "</script>\n<script>\n");
	neap_buffer_append(out, neap_page_js, neap_page_js_length);
	neap_buffer_text(out, "</script>\n</body>\n</html>\n");
	free(ranked);
}
