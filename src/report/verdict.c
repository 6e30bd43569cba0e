/* report/verdict.c: a change below 2 % of the peak, or 5 % of the time or the calls, counts as none. */
#include "report/verdict.h"

#include "base/units.h"

#include <inttypes.h>

#define SIZE(bytes) neap_size_format((bytes), (char[NEAP_UNITS_CAPACITY]){0})
#define BYTES_SHARE 50 /* of the peak: a smaller change of bytes counts as none */
#define COSTS_SHARE 20 /* likewise of time and of driver calls */
#define MORE_OFTEN  2  /* a schedule empties the cache more than twice as often, and at least */
#define MORE_TIMES  3  /* so many times more: sessions clean up at their end */
#define UNKNOWN     UINT64_MAX

static bool more(uint64_t than, uint64_t this, uint64_t share)
{
	return than != UNKNOWN && this != UNKNOWN && this > than && this - than > than / share;
}

static bool cleans_up(const struct neap_verdict_side *with, const struct neap_verdict_side *without)
{
	return with->emptied >= without->emptied + MORE_TIMES && with->emptied > MORE_OFTEN * without->emptied;
}

static void put_peak(struct neap_buffer *out, const struct neap_verdict_side *with,
		     const struct neap_verdict_side *without)
{
	if (more(with->peak_bytes, without->peak_bytes, BYTES_SHARE))
		neap_buffer_format(out, "it helped: the reserved peak is %s lower",
				   SIZE(without->peak_bytes - with->peak_bytes));
	else if (more(without->peak_bytes, with->peak_bytes, BYTES_SHARE))
		neap_buffer_format(out, "it did not help: the reserved peak is %s higher",
				   SIZE(with->peak_bytes - without->peak_bytes));
	else
		neap_buffer_text(out, "it did not help: the reserved peak is about the same");
}

static void put_costs(struct neap_buffer *out, const struct neap_verdict_side *with,
		      const struct neap_verdict_side *without)
{
	bool slower = more(without->step_ns, with->step_ns, COSTS_SHARE);
	bool calls = more(without->driver_calls, with->driver_calls, COSTS_SHARE);

	if (slower)
		neap_buffer_format(out, "\nA step takes %s instead of %s",
				   neap_duration_format(with->step_ns, (char[NEAP_UNITS_CAPACITY]){0}),
				   neap_duration_format(without->step_ns, (char[NEAP_UNITS_CAPACITY]){0}));
	if (calls)
		neap_buffer_format(out, "%s %" PRIu64 " driver calls in 100 steps instead of %" PRIu64,
				   slower ? ", with" : "\nIt makes", with->driver_calls, without->driver_calls);
	if (slower || calls)
		neap_buffer_text(out, ".");
}

void neap_verdict_cleanups(struct neap_buffer *out, const struct neap_verdict_side *a,
			   const struct neap_verdict_side *b)
{
	bool later = cleans_up(b, a);
	const struct neap_verdict_side *with = later ? b : a, *without = later ? a : b;
	const char name = later ? 'B' : 'A', other = later ? 'A' : 'B';

	if ((!later && !cleans_up(a, b)) || with->peak_bytes == UNKNOWN || without->peak_bytes == UNKNOWN)
		return;
	neap_buffer_format(out, "Cleanups: %c emptied the cache %s%" PRIu64 " times (%c: %" PRIu64 "), and ", name,
			   with->thinned ? "at least " : "", with->emptied, other, without->emptied);
	put_peak(out, with, without);
	neap_buffer_text(out, ".");
	bool taken_again = with->swing_bytes != UNKNOWN && without->swing_bytes != UNKNOWN &&
			   with->swing_bytes > without->swing_bytes &&
			   with->swing_bytes - without->swing_bytes > with->peak_bytes / BYTES_SHARE;
	if (taken_again)
		neap_buffer_format(
			out, "\nWhat it gives back is taken again: reserved swings by %s within a step (%c: %s).",
			SIZE(with->swing_bytes), other, SIZE(without->swing_bytes));
	if (more(with->mean_bytes, without->mean_bytes, BYTES_SHARE))
		neap_buffer_format(out, "\nIn the mean %s less is reserved, which other processes could use.",
				   SIZE(without->mean_bytes - with->mean_bytes));
	put_costs(out, with, without);
	if (more(with->retries, without->retries, COSTS_SHARE) || more(without->retries, with->retries, COSTS_SHARE))
		neap_buffer_format(out, "\nRequests that found the device full: %" PRIu64 " instead of %" PRIu64 ".",
				   with->retries, without->retries);
}
