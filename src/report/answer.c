/* report/answer.c: writes one verdict, and at most two sentences below it. */
#include "report/answer.h"

#include "base/units.h"
#include "report/analysis.h"
#include "report/markup.h"
#include "report/markup_report.h"
#include "report/report.h"

#include <stdio.h>

void neap_answer_begin(struct neap_buffer *out, enum neap_report_tone tone, const char *verdict)
{
	static const char *const classes[] = {[NEAP_TONE_PLAIN] = "plain",
					      [NEAP_TONE_GOOD] = "good",
					      [NEAP_TONE_WARN] = "warn",
					      [NEAP_TONE_BAD] = "bad"};
	neap_buffer_format(out, "<section class=\"answer %s\">\n<h2>", classes[tone]);
	neap_markup_text(out, verdict);
	neap_buffer_text(out, "</h2>\n");
}

void neap_answer_end(struct neap_buffer *out) { neap_buffer_text(out, "</section>\n"); }

static void put_fix_text(struct neap_buffer *out, const struct neap_oom_card *card, size_t index)
{
	struct neap_buffer text = {0};

	neap_report_oom_fix(&text, card, index);
	neap_markup_text(out, neap_buffer_string(&text));
	out->failed |= text.failed;
	neap_buffer_fini(&text);
}

/* Writes the first fix, and the others folded. Fixes in force already come last. */
static void put_fixes(struct neap_buffer *out, const struct neap_oom_card *card)
{
	size_t count = 0;

	while (count < card->fix_count && count < NEAP_OOM_FIXES && !card->fixes[count].active_already)
		count++;
	if (count == 0)
		return;
	neap_buffer_text(out, "<p><b>First fix:</b> ");
	put_fix_text(out, card, 0);
	neap_buffer_text(out, ".</p>\n");
	if (count == 1)
		return;
	neap_buffer_format(out, "<details><summary>%zu more fix%s</summary><ol start=\"2\">\n", count - 1,
			   count == 2 ? "" : "es");
	for (size_t i = 1; i < count; i++) {
		neap_buffer_text(out, "<li>");
		put_fix_text(out, card, i);
		neap_buffer_text(out, ".</li>\n");
	}
	neap_buffer_text(out, "</ol></details>\n");
}

/* The cause and the fixes are the card's own words. */
static void put_failure(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_oom_card *card = &analysis->oom;
	const struct neap_leak *leak = &analysis->trends.leak;
	struct neap_buffer text = {0};
	char verdict[160];

	snprintf(verdict, sizeof verdict, "%s out of memory: %s asked for, %s missing",
		 card->predicted ? "It would run" : "It ran",
		 NEAP_SIZE(card->block_bytes ? card->block_bytes : card->requested_bytes),
		 NEAP_SIZE(card->shortfall_bytes));
	neap_answer_begin(out, NEAP_TONE_BAD, verdict);
	neap_report_oom_cause(&text, card);
	neap_markup_report(out, neap_buffer_string(&text));
	if (leak->verdict == NEAP_LEAK_FOUND)
		neap_buffer_format(out, "<p>It leaks: memory grows by %s with each step.</p>\n",
				   NEAP_SIZE(leak->bytes_per_step));
	put_fixes(out, card);
	neap_answer_end(out);
	out->failed |= text.failed;
	neap_buffer_fini(&text);
}

static void put_leak(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_trends *trends = &analysis->trends;
	char verdict[160], name[320];

	snprintf(verdict, sizeof verdict, "It leaks: memory grows by %s with each step",
		 NEAP_SIZE(trends->leak.bytes_per_step));
	neap_answer_begin(out, NEAP_TONE_BAD, verdict);
	if (trends->growing_count > 0) {
		neap_holder_text(analysis->trace, &trends->growing[0].holder, name, sizeof name);
		neap_buffer_text(out, "<p>The largest part at ");
		neap_markup_text(out, name);
		neap_buffer_format(out, ": %s with each step.</p>\n",
				   NEAP_SIZE(trends->growing[0].leak.bytes_per_step));
	}
	if (analysis->fit.memory_bytes) {
		neap_buffer_text(out, "<p>");
		neap_report_fit(out, analysis);
		neap_buffer_text(out, ". ");
		neap_report_fit_leak(out, analysis);
		neap_buffer_text(out, "</p>\n");
	}
	neap_answer_end(out);
}

/* The best setting: the least reserved comes first in the list, after the trace's own setting. */
static const struct neap_whatif *best(const struct neap_whatifs *whatifs)
{
	for (size_t i = 1; i < whatifs->count; i++) {
		const struct neap_whatif *item = &whatifs->items[i];
		uint64_t own = whatifs->items[0].reserved_peak;
		if (item->tried && !item->active && item->reserved_peak < own &&
		    own - item->reserved_peak > NEAP_WASTE_MIN * (double)own)
			return item;
	}
	return NULL;
}

/* Writes whether a trace that does not leak fits. */
static void put_fit(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	struct neap_buffer verdict = {0};

	neap_report_fit(&verdict, analysis);
	neap_answer_begin(out, NEAP_TONE_GOOD, neap_buffer_string(&verdict));
	neap_answer_end(out);
	out->failed |= verdict.failed;
	neap_buffer_fini(&verdict);
}

static void put_saving(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_whatif *item = best(&analysis->whatifs);
	bool known = analysis->timeline.reserved_known;
	char text[200];

	snprintf(text, sizeof text, "Nothing failed: at most %s were %s",
		 NEAP_SIZE(known ? analysis->profile.reserved_peak.reserved
				 : analysis->profile.requested_peak.requested),
		 known ? "reserved" : "requested");
	neap_answer_begin(out, NEAP_TONE_GOOD, text);
	neap_buffer_text(out, "<p>");
	if (item)
		neap_buffer_format(out, "Replayed with %s it reserves %s at most, as it was %s.", item->name,
				   NEAP_SIZE(item->reserved_peak),
				   NEAP_SIZE(analysis->whatifs.items[0].reserved_peak));
	else
		neap_buffer_text(out, "No other setting of the allocator would reserve at least 2 % less.");
	neap_buffer_text(out, " Add --memory SIZE to see whether it fits a device of that size.</p>\n");
	neap_answer_end(out);
}

void neap_answer_analysis(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	if (neap_analysis_empty(analysis))
		return;
	if (analysis->has_oom)
		put_failure(out, analysis);
	else if (analysis->trends.leak.verdict == NEAP_LEAK_FOUND)
		put_leak(out, analysis);
	else if (analysis->fit.memory_bytes)
		put_fit(out, analysis);
	else
		put_saving(out, analysis);
}
