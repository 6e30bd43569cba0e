/* See the header. */
#include "report/comparison.h"

#include "base/printable.h"
#include "base/units.h"
#include "report/cells.h"

#include <inttypes.h>
#include <math.h>

static void put_change(struct neap_buffer *out, const char *what, uint64_t from, uint64_t to, bool *first)
{
	if (from == to || !from || !to)
		return;
	neap_buffer_format(out, "%s%s %" PRIu64 " -> %" PRIu64, *first ? ": " : ", ", what, from, to);
	*first = false;
}

void neap_report_comparison_head(struct neap_buffer *out, const struct neap_comparison *comparison)
{
	const struct neap_train_settings *from = &comparison->base.settings, *to = &comparison->run.settings;
	char name[sizeof comparison->run.name], base[sizeof comparison->base.name];
	bool first = true;

	neap_printable(name, sizeof name, comparison->run.name);
	neap_printable(base, sizeof base, comparison->base.name);
	neap_buffer_format(out, "%s against %s", name, base);
	for (int rung = NEAP_RUNG_EFFICIENT_ATTENTION; rung < NEAP_RUNG_STOP; rung++)
		if ((from->rungs ^ to->rungs) & (1u << rung)) {
			neap_buffer_format(out, "%s%s%s", first ? ": " : ", ",
					   to->rungs & (1u << rung) ? "" : "without ",
					   neap_rung_name((enum neap_rung)rung));
			first = false;
		}
	put_change(out, "micro-batch", from->split.micro_batch, to->split.micro_batch, &first);
	put_change(out, "accumulation", from->split.accumulate, to->split.accumulate, &first);
}

static double ratio(uint64_t run_ns, uint64_t base_ns) { return (double)run_ns / (double)base_ns; }

/* Writes the ratio and its range, from each run's fastest tenth to its median; nothing if the ratio may be 1. */
static void put_steps(struct neap_buffer *out, const struct neap_compared *base, const struct neap_compared *run)
{
	char from[NEAP_UNITS_CAPACITY], to[NEAP_UNITS_CAPACITY];

	if (!base->step_ns || !run->step_ns)
		return;
	neap_buffer_format(out, "; a step %s -> %s", neap_duration_format(base->step_ns, from),
			   neap_duration_format(run->step_ns, to));
	if (!base->step_median_ns || !run->step_median_ns)
		return;
	double low = ratio(run->step_ns, base->step_median_ns), high = ratio(run->step_median_ns, base->step_ns);
	if (low > 1 || high < 1)
		neap_buffer_format(out, " (x %.2f, %.2f to %.2f)", ratio(run->step_ns, base->step_ns), low, high);
	else
		neap_buffer_text(out, " (no difference beyond their spread)");
}

void neap_report_comparison_figures(struct neap_buffer *out, const struct neap_comparison *comparison)
{
	const struct neap_compared *run = &comparison->run, *base = &comparison->base;
	char from[NEAP_UNITS_CAPACITY], to[NEAP_UNITS_CAPACITY];

	if (!base->peak_bytes || !run->peak_bytes) {
		neap_buffer_format(out, "no comparison: %s has no recorded peak",
				   base->peak_bytes ? "it" : "the other");
		return;
	}
	neap_buffer_format(out, "peak allocated %s -> %s (%+.0f %%)", neap_size_format(base->peak_bytes, from),
			   neap_size_format(run->peak_bytes, to),
			   ((double)run->peak_bytes / (double)base->peak_bytes - 1) * 100);
	if (comparison->predicted)
		neap_buffer_format(out, ", predicted %s \u00b1 %s",
				   neap_size_format(comparison->prediction.bytes, from),
				   neap_size_format(comparison->prediction.uncertainty_bytes, to));
	else
		neap_buffer_text(out, ", not predicted");
	put_steps(out, base, run);
}

void neap_report_comparisons(struct neap_buffer *out, const struct neap_comparison *comparisons, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		neap_buffer_text(out, i ? "" : "\n");
		neap_report_comparison_head(out, &comparisons[i]);
		neap_buffer_text(out, "\n  ");
		neap_report_comparison_figures(out, &comparisons[i]);
		neap_buffer_text(out, "\n");
	}
}
