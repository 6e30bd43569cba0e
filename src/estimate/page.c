/* estimate/page.c: draws the answer, the report, and the curve, without a script:
 *
 *   bytes |        ___ what a GPU leaves PyTorch, one dashed line for each
 *         |     o
 *         |  o     reserved, of every value that was run on the first architecture
 *         |o_______
 *              value
 */
#include "estimate/text.h"

#include "base/units.h"
#include "report/answer.h"
#include "report/markup.h"
#include "report/markup_report.h"

#include <inttypes.h>
#include <stdio.h>

#define SIZE(bytes) neap_size_format((bytes), (char[NEAP_UNITS_CAPACITY]){0})
#define WIDTH       900
#define HEIGHT      320
#define LEFT        90
#define BOTTOM      30
#define TOP         16
#define RIGHT       150
#define NAMED       3 /* GPUs in a sentence */

struct scale {
	uint64_t value, bytes; /* at the right end, at the top */
};

static double x_of(const struct scale *scale, uint64_t value)
{
	return LEFT + (double)(WIDTH - LEFT - RIGHT) * (double)value / (double)scale->value;
}

static double y_of(const struct scale *scale, uint64_t bytes)
{
	return HEIGHT - BOTTOM - (double)(HEIGHT - BOTTOM - TOP) * (double)bytes / (double)scale->bytes;
}

/* The memory that is left to PyTorch beside the largest context. */
static uint64_t headroom_of(const struct neap_estimate_report *report, size_t gpu)
{
	const struct neap_estimate_gpu *of = &report->plan->gpus[gpu];
	uint64_t taken = of->reserved_bytes + report->verdicts[gpu].context.high_bytes;
	return of->total_bytes > taken ? of->total_bytes - taken : 0;
}

static struct scale find_scale(const struct neap_estimate_report *report)
{
	struct scale scale = {1, 1};
	for (size_t i = 0; i < report->fit->count; i++) {
		const struct neap_estimate_point *point = &report->fit->points[i];
		if (point->run != 0 || point->failed)
			continue;
		scale.value = point->value > scale.value ? point->value : scale.value;
		scale.bytes = point->reserved_peak > scale.bytes ? point->reserved_peak : scale.bytes;
	}
	return scale;
}

static void put_text(struct neap_buffer *out, double x, double y, const char *anchor, const char *text)
{
	neap_buffer_format(out,
			   "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"currentColor\" font-size=\"12\">",
			   x, y, anchor);
	neap_markup_text(out, text);
	neap_buffer_text(out, "</text>\n");
}

static void put_axes(struct neap_buffer *out, const struct neap_estimate_report *report, const struct scale *scale)
{
	char text[96];
	neap_buffer_format(out, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"currentColor\"/>\n", LEFT, TOP,
			   HEIGHT - BOTTOM, WIDTH - RIGHT);
	for (int i = 0; i <= 4; i++) {
		uint64_t bytes = scale->bytes / 4 * (uint64_t)i;
		put_text(out, LEFT - 8, y_of(scale, bytes) + 4, "end", SIZE(bytes));
	}
	snprintf(text, sizeof text, "%" PRIu64, scale->value);
	put_text(out, x_of(scale, scale->value), HEIGHT - BOTTOM + 18, "middle", text);
	put_text(out, LEFT, HEIGHT - BOTTOM + 18, "middle", "0");
	put_text(out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 18, "middle", report->fit->name);
}

static void put_gpus(struct neap_buffer *out, const struct neap_estimate_report *report, const struct scale *scale)
{
	for (size_t i = 0; i < report->plan->count; i++) {
		uint64_t headroom = headroom_of(report, i);
		if (report->plan->gpus[i].run != 0 || !headroom || headroom > scale->bytes)
			continue;
		neap_buffer_format(
			out,
			"<path d=\"M%d %.1fH%d\" fill=\"none\" stroke=\"currentColor\" stroke-dasharray=\"6 4\"/>\n",
			LEFT, y_of(scale, headroom), WIDTH - RIGHT);
		put_text(out, WIDTH - RIGHT + 8, y_of(scale, headroom) + 4, "start", report->plan->gpus[i].name);
	}
}

static void put_points(struct neap_buffer *out, const struct neap_estimate_report *report, const struct scale *scale)
{
	for (size_t i = 0; i < report->fit->count; i++) {
		const struct neap_estimate_point *point = &report->fit->points[i];
		if (point->run != 0 || point->failed)
			continue;
		neap_buffer_format(out,
				   "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"currentColor\"><title>%" PRIu64
				   ": %s reserved, %s allocated</title></circle>\n",
				   x_of(scale, point->value), y_of(scale, point->reserved_peak), point->value,
				   SIZE(point->reserved_peak), SIZE(point->allocated_peak));
	}
}

static void put_curve(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	struct scale scale = find_scale(report);
	neap_buffer_text(out, "<div class=\"card\"><h3>Memory over ");
	neap_markup_text(out, report->fit->name);
	neap_buffer_text(out, " <span class=\"quiet\">reserved, on ");
	neap_markup_text(out, report->plan->gpus[report->plan->run_gpus[0]].profile->gpu_name);
	neap_buffer_format(out,
			   "; dashed: what a GPU leaves PyTorch</span></h3>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" "
			   "aria-label=\"memory that is reserved over the parameter\">\n",
			   WIDTH, HEIGHT);
	put_axes(out, report, &scale);
	put_gpus(out, report, &scale);
	put_points(out, report, &scale);
	neap_buffer_text(out, "</svg></div>\n");
}

/* "fits on h100-80gb and t4-16gb", at most three by name. */
static void name_fitting(const struct neap_estimate_report *report, enum neap_estimate_fits fits, size_t count,
			 struct neap_buffer *out)
{
	size_t shown = 0;
	for (size_t i = 0; i < report->plan->count && shown < NAMED; i++) {
		if (report->verdicts[i].unsupported || report->verdicts[i].fits != fits)
			continue;
		neap_buffer_text(out, shown == 0 ? " " : shown + 1 == count ? " and " : ", ");
		neap_buffer_text(out, report->plan->gpus[i].name);
		shown++;
	}
	if (count > shown)
		neap_buffer_format(out, " and %zu more", count - shown);
}

static enum neap_report_tone put_verdict(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	size_t yes = 0, probably = 0;
	for (size_t i = 0; i < report->plan->count; i++) {
		const struct neap_estimate_verdict *verdict = &report->verdicts[i];
		yes += !verdict->unsupported && verdict->fits == NEAP_ESTIMATE_YES;
		probably += !verdict->unsupported && verdict->fits == NEAP_ESTIMATE_UNSURE;
	}
	if (yes) {
		neap_buffer_text(out, "Fits on");
		name_fitting(report, NEAP_ESTIMATE_YES, yes, out);
	}
	if (probably) {
		neap_buffer_text(out, yes ? ", probably on" : "Fits probably on");
		name_fitting(report, NEAP_ESTIMATE_UNSURE, probably, out);
	}
	if (!yes && !probably)
		neap_buffer_text(out, report->plan->count == 1 ? "Does not fit" : "Fits on none of these GPUs");
	return yes ? NEAP_TONE_GOOD : probably ? NEAP_TONE_WARN : NEAP_TONE_BAD;
}

/* Writes the process's figures: the least and the most of all the GPUs. */
static void put_process(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	uint64_t low = UINT64_MAX, high = 0, least = UINT64_MAX, reserved = 0;
	for (size_t i = 0; i < report->plan->count; i++) {
		const struct neap_estimate_run *run = &report->runs[report->plan->gpus[i].run];
		uint64_t from, to;
		if (report->verdicts[i].unsupported)
			continue;
		neap_estimate_process_bytes(run, &report->verdicts[i].context, &from, &to);
		low = from < low ? from : low;
		high = to > high ? to : high;
		least = run->reserved_high < least ? run->reserved_high : least;
		reserved = run->reserved_high > reserved ? run->reserved_high : reserved;
	}
	if (low > high)
		return;
	neap_buffer_format(out, "<p>At its peak nvidia-smi would show %s", SIZE(low));
	if (high > low)
		neap_buffer_format(out, " to %s", SIZE(high));
	neap_buffer_format(out, " for the process; of it PyTorch reserves %s%s.</p>\n",
			   least < reserved ? "up to " : "", SIZE(reserved));
}

/* Writes how the first GPU's headroom comes about. */
static void put_headroom(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	size_t i = 0;
	while (i < report->plan->count && report->verdicts[i].unsupported)
		i++;
	if (i == report->plan->count)
		return;
	const struct neap_estimate_verdict *verdict = &report->verdicts[i];
	const struct neap_estimate_gpu *gpu = &report->plan->gpus[i];
	uint64_t beside = gpu->total_bytes - verdict->needed_bytes - (uint64_t)verdict->headroom_bytes;
	int64_t left = verdict->headroom_bytes;
	neap_buffer_text(out, "<p>Of the memory of ");
	neap_markup_text(out, gpu->name);
	neap_buffer_format(out,
			   ", %s, the driver, the context and libraries take up to %s, and PyTorch needs %s: %s is "
			   "%s.</p>\n",
			   SIZE(gpu->total_bytes), SIZE(beside), SIZE(verdict->needed_bytes),
			   SIZE((uint64_t)(left < 0 ? -left : left)), left < 0 ? "missing" : "left");
}

void neap_estimate_answer(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	struct neap_buffer verdict = {0}, gpus = {0};
	enum neap_report_tone tone = put_verdict(&verdict, report);
	neap_estimate_gpus_text(&gpus, report);
	neap_answer_begin(out, tone, neap_buffer_string(&verdict));
	put_process(out, report);
	neap_markup_report(out, neap_buffer_string(&gpus));
	put_headroom(out, report);
	neap_answer_end(out);
	if (report->fit)
		put_curve(out, report);
	if (report->search)
		neap_estimate_search_markup(out, report);
	out->failed |= verdict.failed || gpus.failed;
	neap_buffer_fini(&verdict);
	neap_buffer_fini(&gpus);
}

void neap_estimate_markup(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	struct neap_buffer text = {0};
	neap_estimate_text(&text, report);
	neap_buffer_text(out, "<details class=\"report\"><summary>Estimate</summary>\n");
	neap_markup_report(out, neap_buffer_string(&text));
	neap_buffer_text(out, "</details>\n");
	out->failed |= text.failed;
	neap_buffer_fini(&text);
}
