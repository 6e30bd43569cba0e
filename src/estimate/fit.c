/* estimate/fit.c: see fit.h. */
#include "estimate/fit.h"

#include <math.h>

#define STRAIGHT 8u /* guesses along the line; later ones are the middle */

struct bounds {
	const struct neap_estimate_point *low, *high; /* NULL: none */
	const struct neap_estimate_point *below;      /* the next lower value below `low`, else NULL */
};

static struct bounds find_bounds(const struct neap_estimate_fit *fit, size_t run, size_t gpu)
{
	struct bounds bounds = {0};
	for (size_t i = 0; i < fit->count; i++) {
		const struct neap_estimate_point *point = &fit->points[i];
		if (point->run == run && !neap_estimate_point_fits(point, gpu) &&
		    (!bounds.high || point->value < bounds.high->value))
			bounds.high = point;
	}
	for (size_t i = 0; i < fit->count; i++) {
		const struct neap_estimate_point *point = &fit->points[i];
		if (point->run != run || !neap_estimate_point_fits(point, gpu) ||
		    (bounds.high && point->value > bounds.high->value))
			continue;
		if (!bounds.low || point->value > bounds.low->value) {
			bounds.below = bounds.low;
			bounds.low = point;
		} else if (!bounds.below || point->value > bounds.below->value) {
			bounds.below = point;
		}
	}
	return bounds;
}

/* Returns the value at which the line through both points has no headroom left. NAN: no larger value has that. */
static double meets(const struct neap_estimate_point *a, const struct neap_estimate_point *b, size_t gpu)
{
	double values = (double)b->value - (double)a->value;
	double drop = (double)a->headroom[gpu] - (double)b->headroom[gpu];
	return drop > 0 && values > 0 ? (double)a->value + values * (double)a->headroom[gpu] / drop : NAN;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Returns the next value while all known ones fit: further along the line, but at most eight times the highest. */
static uint64_t above(const struct neap_estimate_fit *fit, const struct bounds *bounds, size_t gpu)
{
	uint64_t low = bounds->low->value, most = least(8 * low, NEAP_ESTIMATE_MOST);
	double straight = bounds->below ? meets(bounds->below, bounds->low, gpu) : NAN;
	if (low >= NEAP_ESTIMATE_MOST)
		return 0;
	if (isnan(straight) || fit->tries[gpu] > STRAIGHT)
		return least(2 * low, most);
	return straight >= (double)most ? most : straight > (double)low + 1 ? (uint64_t)straight : low + 1;
}

uint64_t neap_estimate_fit_next(const struct neap_estimate_fit *fit, const struct neap_estimate_plan *plan,
				size_t gpu)
{
	struct bounds bounds = find_bounds(fit, plan->gpus[gpu].run, gpu);
	if (!bounds.low && !bounds.high)
		return 1;
	if (!bounds.high)
		return above(fit, &bounds, gpu);
	uint64_t low = bounds.low ? bounds.low->value : 0, high = bounds.high->value, middle = low + (high - low) / 2;
	uint64_t step = 1ull << (fit->tries[gpu] < 20 ? fit->tries[gpu] : 20);
	if (high - low <= 1 + low / NEAP_ESTIMATE_SHARE)
		return 0;
	if (!bounds.low || bounds.high->failed || fit->tries[gpu] > STRAIGHT)
		return middle;
	double straight = meets(bounds.low, bounds.high, gpu);
	/* If the line points beyond an end, the value is near that end: a few steps from there enclose it. */
	if (!(straight >= (double)low + 1))
		return least(low + step, middle);
	if (straight >= (double)(high - 1))
		return high - least(step, high - middle);
	return (uint64_t)straight;
}

uint64_t neap_estimate_fit_value(const struct neap_estimate_fit *fit, const struct neap_estimate_plan *plan,
				 size_t gpu, bool *ret_open)
{
	struct bounds bounds = find_bounds(fit, plan->gpus[gpu].run, gpu);
	*ret_open = bounds.low && !bounds.high;
	return bounds.low ? bounds.low->value : 0;
}
