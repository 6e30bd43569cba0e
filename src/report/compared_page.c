/* report/compared_page.c: two traces side by side on one page: the answer, both curves on one scale, the report. */
#include "base/units.h"
#include "report/analysis.h"
#include "report/answer.h"
#include "report/coarse.h"
#include "report/compared.h"
#include "report/embedded.h"
#include "report/markup.h"
#include "report/markup_report.h"
#include "report/words.h"

#include <stdio.h>
#include <string.h>

/* Smaller changes count as none, as in the verdict on cleanups (verdict.c). */
#define LEAST 0.02
/* A step's time varies more: below this its change is not in the answer. */
#define SLOWER 0.10

static void put_title(struct neap_buffer *out, const struct neap_compared *compared)
{
	neap_markup_text(out, compared->before.path);
	neap_buffer_text(out, " and ");
	neap_markup_text(out, compared->after.path);
}

static void put_head(struct neap_buffer *out, const struct neap_compared *compared)
{
	neap_buffer_format(
		out,
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; "
		"form-action 'none'; style-src 'sha256-%s'\">\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		"<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
		neap_trace_page_css_sha256);
	put_title(out, compared);
	neap_buffer_text(out, " - neap compare</title>\n<style>");
	neap_buffer_append(out, neap_trace_page_css, neap_trace_page_css_length);
	neap_buffer_text(out, "</style>\n</head>\n<body>\n<header>\n<h1>");
	put_title(out, compared);
	neap_buffer_text(out, "</h1>\n<p class=\"quiet\">neap compare: A and B</p>\n</header>\n<main>\n");
}

/* The peak that is compared: reserved if both sides have it, else requested. */
static uint64_t peak_of(const struct neap_compared *compared, const struct neap_analysis *analysis)
{
	bool both =
		compared->before.analysis.timeline.reserved_known && compared->after.analysis.timeline.reserved_known;

	return both ? analysis->profile.reserved_peak.reserved : analysis->profile.requested_peak.requested;
}

/* Writes bad news about one trace that its peak does not show. `said`: the verdict has its failure. */
static bool put_news(struct neap_buffer *out, const char *name, const struct neap_analysis *analysis, bool said)
{
	const struct neap_leak *leak = &analysis->trends.leak;
	bool leaks = leak->verdict == NEAP_LEAK_FOUND && leak->bytes_per_step > 0;

	if (analysis->has_oom && !said)
		neap_buffer_format(out, "%s%s ran out of memory.", out->length ? " " : "", name);
	if (leaks)
		neap_buffer_format(out, "%s%s leaks %s a step.", out->length ? " " : "", name,
				   NEAP_SIZE(leak->bytes_per_step));
	return analysis->has_oom || leaks;
}

static bool put_slower(struct neap_buffer *out, uint64_t before_ns, uint64_t after_ns)
{
	double change = before_ns && after_ns ? (double)after_ns / (double)before_ns - 1 : 0;
	char from[NEAP_UNITS_CAPACITY], to[NEAP_UNITS_CAPACITY];

	if (change <= SLOWER)
		return false;
	neap_buffer_format(out, "Each step takes %s in B, %s in A (%+.0f %%).", neap_duration_format(after_ns, to),
			   neap_duration_format(before_ns, from), 100 * change);
	return true;
}

static void put_answer(struct neap_buffer *out, const struct neap_compared *compared)
{
	const struct neap_analysis *a = &compared->before.analysis, *b = &compared->after.analysis;
	uint64_t before = peak_of(compared, a), after = peak_of(compared, b);
	double change = before ? ((double)after - (double)before) / (double)before : 0;
	enum neap_report_tone tone = change < -LEAST  ? NEAP_TONE_GOOD
				     : change > LEAST ? NEAP_TONE_BAD
						      : NEAP_TONE_PLAIN;
	const char *figure = a->timeline.reserved_known && b->timeline.reserved_known ? "reserved" : "requested";
	struct neap_buffer news = {0};
	bool fails = b->has_oom && !a->has_oom;
	const char *first = fails ? "B ran out of memory. " : "";
	char verdict[160];

	if (compared->before.unrecorded || compared->after.unrecorded || neap_analysis_empty(a) ||
	    neap_analysis_empty(b)) {
		snprintf(verdict, sizeof verdict, "%sOne of them has no allocation: there is no peak to compare",
			 first);
		tone = NEAP_TONE_WARN;
	} else if (tone == NEAP_TONE_PLAIN) {
		snprintf(verdict, sizeof verdict, "%sB peaks about as high as A: %s and %s %s", first,
			 NEAP_SIZE(after), NEAP_SIZE(before), figure);
	} else {
		snprintf(verdict, sizeof verdict, "%sB peaks %s %s than A: %s instead of %s %s", first,
			 NEAP_SIZE(after > before ? after - before : before - after),
			 after > before ? "higher" : "lower", NEAP_SIZE(after), NEAP_SIZE(before), figure);
	}
	bool slower = !neap_compared_simulated(compared) &&
		      put_slower(&news, a->trends.course.step_ns, b->trends.course.step_ns);
	bool of_a = put_news(&news, "A", a, false), of_b = put_news(&news, "B", b, fails);
	if ((tone == NEAP_TONE_BAD && of_a) || (tone != NEAP_TONE_BAD && (slower || of_a || of_b)))
		tone = NEAP_TONE_WARN;
	if (fails)
		tone = NEAP_TONE_BAD;
	neap_answer_begin(out, tone, verdict);
	if (news.length)
		neap_buffer_format(out, "<p>%s</p>\n", neap_buffer_string(&news));
	neap_answer_end(out);
	out->failed |= news.failed;
	neap_buffer_fini(&news);
}

static enum neap_status put_side(struct neap_buffer *out, const char *name, const struct neap_compared_side *side,
				 uint64_t top, struct neap_error *err)
{
	char gpu[NEAP_REPORT_ORIGIN];

	neap_buffer_format(out, "<div class=\"card\"><h3>%s: at most %s <span class=\"quiet\">", name,
			   NEAP_SIZE(neap_coarse_top(&side->analysis)));
	neap_markup_text(out, side->path);
	if (neap_trace_origin_known(side->trace)) {
		neap_buffer_text(out, ", on ");
		neap_markup_text(out, neap_report_origin(side->trace, gpu));
	}
	neap_buffer_text(out, "</span></h3>\n");
	enum neap_status status = neap_coarse_put(out, &side->analysis, top, err);
	neap_buffer_text(out, "</div>\n");
	return status;
}

enum neap_status neap_compared_page(struct neap_buffer *out, const struct neap_compared *compared,
				    struct neap_error *err)
{
	uint64_t before = neap_coarse_top(&compared->before.analysis),
		 after = neap_coarse_top(&compared->after.analysis);
	uint64_t top = before > after ? before : after;
	struct neap_buffer text = {0};

	put_head(out, compared);
	put_answer(out, compared);
	neap_buffer_text(out, "<div class=\"columns\">\n");
	enum neap_status status = put_side(out, "A", &compared->before, top, err);
	if (!status)
		status = put_side(out, "B", &compared->after, top, err);
	neap_buffer_text(
		out, "</div>\n<p class=\"quiet\">Filled: requested; line: reserved. Both have the same scale.</p>\n"
		     "<div class=\"report\">\n");
	neap_report_compared(&text, compared);
	const char *figures = strstr(neap_buffer_string(&text), "\n\n"); /* the names stand above */
	neap_markup_report(out, figures ? figures : "");
	neap_buffer_text(out, "</div>\n");
	neap_words_explain(out);
	neap_buffer_text(out, "</main>\n</body>\n</html>\n");
	out->failed |= text.failed;
	neap_buffer_fini(&text);
	return status ? status : neap_buffer_status(out, err);
}
