/* report/trace_page.c: see trace_page.h. The page's own JSON has only numbers and words of neap's; names from the
 * trace are in the packed data alone. */
#include "report/trace_page.h"

#include "base/error.h"
#include "base/units.h"
#include "report/analysis.h"
#include "report/answer.h"
#include "report/coarse.h"
#include "report/embedded.h"
#include "report/markup.h"
#include "report/markup_report.h"
#include "report/trace_data.h"
#include "report/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE(bytes) neap_size_format((bytes), (char[NEAP_UNITS_CAPACITY]){0})

struct page {
	struct neap_page_out out;
	struct neap_buffer *text; /* of out */
	const struct neap_trace_page_options *options;
	const struct neap_trace *trace;
};

/* In the order in which they run. */
static const struct {
	const char *text, *sha256;
	const size_t *length;
} scripts[] = {
#define SCRIPT(name)                                                                                                 \
	{                                                                                                            \
		name, name##_sha256, &name##_length                                                                  \
	}
	SCRIPT(neap_trace_data_js),  SCRIPT(neap_trace_draw_js),  SCRIPT(neap_trace_words_js),
	SCRIPT(neap_trace_lines_js), SCRIPT(neap_trace_flame_js), SCRIPT(neap_trace_panels_js),
	SCRIPT(neap_trace_view_js),
#undef SCRIPT
};
#define SCRIPTS (sizeof scripts / sizeof scripts[0])

static void put_head(struct page *page)
{
	struct neap_buffer *text = page->text;
	char gpu[NEAP_REPORT_ORIGIN];

	neap_buffer_format(text,
			   "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
			   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri "
			   "'none'; form-action 'none'; style-src 'sha256-%s'; script-src",
			   neap_trace_page_css_sha256);
	for (size_t i = 0; i < SCRIPTS; i++)
		neap_buffer_format(text, " 'sha256-%s'", scripts[i].sha256);
	neap_buffer_text(text, "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
			       "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
	neap_markup_text(text, page->options->path);
	neap_buffer_text(text, " - neap</title>\n<style>");
	neap_buffer_append(text, neap_trace_page_css, neap_trace_page_css_length);
	neap_buffer_text(text, "</style>\n</head>\n<body>\n<header>\n<h1>");
	neap_markup_text(text, page->options->path);
	neap_buffer_format(text, "</h1>\n<p class=\"quiet\">neap %s: %s, %zu device%s",
			   page->options->verb ? page->options->verb : "analyze",
			   neap_report_source_name(page->trace->source), page->trace->device_count,
			   page->trace->device_count == 1 ? "" : "s");
	if (neap_trace_origin_known(page->trace)) {
		neap_buffer_text(text, ", on ");
		neap_markup_text(text, neap_report_origin(page->trace, gpu));
	}
	neap_buffer_text(text, "</p>\n<label id=\"choose\" hidden>device <select id=\"device\"></select></label>\n"
			       "</header>\n<main>\n");
}

static void put_tile(struct page *page, const char *name, uint64_t bytes, uint64_t event, const char *more)
{
	neap_buffer_text(page->text, "<div><dt>");
	neap_words_put(page->text, name);
	neap_buffer_format(page->text, "</dt><dd>%s</dd><dd class=\"quiet\">", SIZE(bytes));
	if (more)
		neap_buffer_text(page->text, more);
	else if (event == NEAP_LIFE_BEFORE)
		neap_buffer_text(page->text, "before the first event");
	else
		neap_buffer_format(page->text, "at event %" PRIu64, event);
	neap_buffer_text(page->text, "</dd></div>\n");
}

static void put_tiles(struct page *page, const struct neap_analysis *analysis)
{
	const struct neap_profile *profile = &analysis->profile;
	bool whole = profile->from == 0 && profile->to == analysis->timeline.count;
	const struct neap_stats *replayed = &analysis->replay.usage.stats;

	if (neap_analysis_empty(analysis)) {
		neap_buffer_text(page->text, "<p>No allocation is in it. The report says what is.</p>\n");
		return;
	}
	neap_buffer_text(page->text, "<dl class=\"tiles\">\n");
	put_tile(page, "peak requested", profile->requested_peak.requested, profile->requested_peak.event, NULL);
	if (whole && neap_analysis_exact(analysis))
		put_tile(page, "peak allocated",
			 (uint64_t)replayed->metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak, 0,
			 "by replay, exact");
	else
		put_tile(page, "peak rounded", profile->rounded_peak.rounded, profile->rounded_peak.event, NULL);
	if (analysis->timeline.reserved_known) {
		put_tile(page, "peak reserved", profile->reserved_peak.reserved, profile->reserved_peak.event, NULL);
		neap_buffer_text(page->text, "<div><dt>");
		neap_words_put(page->text, "utilization");
		neap_buffer_format(page->text,
				   "</dt><dd>%.1f %%</dd><dd class=\"quiet\">of reserved, on average</dd></div>\n",
				   100 * profile->utilization);
	} else if (whole) {
		put_tile(page, "peak reserved",
			 (uint64_t)replayed->metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak, 0,
			 "predicted, PyTorch's defaults");
	}
	if (analysis->has_oom)
		put_tile(page, "out of memory", analysis->oom.block_bytes, analysis->oom.event, NULL);
	neap_buffer_text(page->text, "</dl>\n");
}

/* The curve that is shown before any script runs. */
static void put_curve(struct page *page, const struct neap_analysis *analysis)
{
	struct neap_error err;

	neap_buffer_text(page->text, "<div class=\"place\"><p class=\"state quiet\" role=\"status\"></p>");
	if (neap_coarse_put(page->text, analysis, 0, &err) != NEAP_OK)
		neap_page_out_fail(&page->out, err.status, &err);
	neap_buffer_text(page->text, "</div>\n<noscript><p class=\"quiet\">Single allocations need JavaScript.</p>"
				     "</noscript>\n");
}

static void put_report(struct page *page, const struct neap_analysis *analysis)
{
	struct neap_buffer report = {0};

	neap_report_analysis(&report, analysis, page->options->path, page->options->top);
	neap_buffer_text(page->text, "<details class=\"report\"><summary>Report</summary>\n");
	neap_markup_report(page->text, neap_buffer_string(&report));
	neap_buffer_text(page->text, "</details>\n");
	page->text->failed = page->text->failed || report.failed;
	neap_buffer_fini(&report);
}

static void put_peak(struct page *page, const char *name, uint64_t bytes, uint64_t event)
{
	neap_buffer_format(page->text, "\"%s\":[%" PRIu64 ",", name, bytes);
	if (event == NEAP_LIFE_BEFORE)
		neap_buffer_text(page->text, "-1],");
	else
		neap_buffer_format(page->text, "%" PRIu64 "],", event);
}

/* What distinguishes streams: the handle, and the private pool if any. */
static void put_streams(struct page *page)
{
	const struct neap_trace *trace = page->trace;

	neap_buffer_text(page->text, "\"streams\":[");
	for (size_t i = 0; i < trace->stream_count; i++) {
		const struct neap_trace_stream *stream = &trace->streams[i];
		neap_buffer_format(page->text, stream->handle > 0xffff ? "%s\"0x%" PRIx64 : "%s\"%" PRIu64,
				   i ? "," : "", stream->handle);
		if (stream->pool[0] || stream->pool[1])
			neap_buffer_format(page->text, ", pool %" PRIu64 ".%" PRIu64, stream->pool[0],
					   stream->pool[1]);
		neap_buffer_text(page->text, "\"");
	}
	neap_buffer_text(page->text, "]");
}

static void put_facts(struct page *page, const struct neap_analysis *analysis, const struct neap_pieces *pieces)
{
	const struct neap_profile *profile = &analysis->profile;
	uint64_t limit =
		analysis->has_oom ? analysis->oom.replays.memory_bytes : page->options->analysis->memory_bytes;

	neap_buffer_format(page->text,
			   "<script type=\"application/json\" id=\"facts-%zu\">{\"device\":%zu,\"from\":%" PRIu64
			   ",\"to\":%" PRIu64 ",\"events\":%" PRIu64 ",\"lives\":%" PRIu64 ",\"limit\":%" PRIu64 ",",
			   analysis->device, analysis->device, profile->from, profile->to, analysis->timeline.count,
			   neap_trace_data_lives(analysis), limit);
	put_peak(page, "requested", profile->requested_peak.requested, profile->requested_peak.event);
	put_peak(page, "rounded", profile->rounded_peak.rounded, profile->rounded_peak.event);
	put_peak(page, "reserved", profile->reserved_peak.reserved, profile->reserved_peak.event);
	put_peak(page, "failure", analysis->has_oom ? analysis->oom.block_bytes : 0,
		 analysis->has_oom ? analysis->oom.event : NEAP_LIFE_BEFORE);
	neap_buffer_format(page->text, "\"leftOut\":%" PRIu64 ",\"stepsBefore\":%zu}</script>\n", pieces->left_out,
			   profile->from > 0 ? neap_steps_before(&analysis->steps, profile->from - 1) : 0);
}

/* The parts that all devices share: words, and the scripts. */
static void put_scripts(struct page *page)
{
	struct neap_holder holder = {.kind = NEAP_HOLDER_SIZE};
	struct neap_buffer *text = page->text;
	char class[128];

	neap_buffer_format(text, "<script type=\"application/json\" id=\"words\">{\"source\":%d,",
			   (int)page->trace->source);
	put_streams(page);
	for (int i = 0; i < NEAP_CATEGORIES; i++)
		neap_buffer_format(text, "%s\"%s\"", i ? "," : ",\"categories\":[",
				   neap_category_name((enum neap_category)i));
	for (int i = 0; i < NEAP_HOWS; i++)
		neap_buffer_format(text, "%s\"%s\"", i ? "," : "],\"hows\":[",
				   neap_category_how_name((enum neap_category_how)i));
	for (holder.frame = 9; holder.frame < 63; holder.frame++) {
		neap_holder_text(page->trace, &holder, class, sizeof class);
		neap_buffer_format(text, "%s\"%s\"", holder.frame > 9 ? "," : "],\"classes\":[", class);
	}
	neap_buffer_text(text, "]}</script>\n");
	for (size_t i = 0; i < SCRIPTS; i++) {
		neap_buffer_text(text, "<script>");
		neap_buffer_append(text, scripts[i].text, *scripts[i].length);
		neap_buffer_text(text, "</script>\n");
	}
}

static void put_device(struct page *page, const struct neap_analysis *analysis, bool first)
{
	struct neap_pieces pieces = {0};
	struct neap_error err;

	enum neap_status status = neap_pieces_find(page->trace, analysis->device, &pieces, &err);
	if (status)
		neap_page_out_fail(&page->out, status, &err);
	neap_buffer_format(page->text, "<section class=\"device\" data-device=\"%zu\">\n", analysis->device);
	if (first && page->options->answer)
		neap_buffer_text(page->text, page->options->answer);
	else
		neap_answer_analysis(page->text, analysis);
	put_tiles(page, analysis);
	put_curve(page, analysis);
	if (first && page->options->below)
		neap_buffer_text(page->text, page->options->below);
	put_report(page, analysis);
	neap_buffer_text(page->text, "</section>\n");
	if (first)
		neap_buffer_append(page->text, neap_trace_page_html, neap_trace_page_html_length);
	put_facts(page, analysis, &pieces);
	if (first) {
		put_scripts(page);
		neap_page_out_flush(&page->out, true);
		neap_buffer_text(page->text, "<script type=\"application/octet-stream\" id=\"names\">");
		neap_trace_data_names(&page->out, page->trace, &analysis->sites);
		neap_buffer_text(page->text, "</script>\n");
	}
	neap_buffer_format(page->text, "<script type=\"application/octet-stream\" id=\"data-%zu\">",
			   analysis->device);
	neap_trace_data_device(&page->out, analysis, &pieces);
	neap_buffer_text(page->text, "</script>\n");
	neap_page_out_flush(&page->out, true);
	neap_pieces_fini(&pieces);
}

static void put_others(struct page *page, size_t shown)
{
	struct neap_analysis_options options = *page->options->analysis;

	if (options.device != SIZE_MAX || options.from.kind != NEAP_INSTANT_NONE ||
	    options.to.kind != NEAP_INSTANT_NONE)
		return;
	for (size_t i = 0; i < page->trace->device_count && page->out.status == NEAP_OK; i++) {
		const struct neap_trace_device *device = &page->trace->devices[i];
		struct neap_analysis analysis = {0};
		struct neap_error err;
		if (i == shown || (device->event_count == 0 && device->segment_count == 0))
			continue;
		options.device = i;
		enum neap_status status = neap_analyze(page->trace, &options, &analysis, &err);
		if (!status)
			put_device(page, &analysis, false);
		else
			neap_page_out_fail(&page->out, status, &err);
		neap_analysis_fini(&analysis);
	}
}

enum neap_status neap_trace_page_write(int fd, const struct neap_analysis *analysis,
				       const struct neap_trace_page_options *options, uint64_t *ret_bytes,
				       struct neap_error *err)
{
	struct page page = {.options = options, .trace = analysis->trace};

	neap_page_out_init(&page.out, fd);
	page.text = &page.out.buffer;
	page.out.progress = options->analysis->progress;
	page.out.context = options->analysis->context;
	put_head(&page);
	put_device(&page, analysis, true);
	put_others(&page, analysis->device);
	neap_words_explain(page.text);
	neap_buffer_text(page.text, "</main>\n</body>\n</html>\n");
	neap_page_out_flush(&page.out, true);
	enum neap_status status = page.out.status;
	if (!status)
		*ret_bytes = page.out.written;
	else if (err)
		*err = page.out.error;
	neap_page_out_fini(&page.out);
	return status;
}
