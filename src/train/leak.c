/* train/leak.c: tests whether memory grows with the steps. Low-water marks are noisy: batches differ in shape, caches
 * fill, teeth rise and fall. Three tests examine them. Report a leak only if all three agree.
 *
 * How fast does it grow? Theil-Sen gives the median of the slopes of all pairs (Sen 1968), and their interval: the
 * slopes of rank (N - C) / 2 and (N + C) / 2 of N, where C is z times the deviation of Mann and Kendall's score
 * below. Bisection finds them without an array of pairs: the number of pairs with a slope below s is the number of
 * inversions of y - s x, which a merge sort counts.
 *
 * How sure is it? Mann-Kendall tests whether later values tend to be larger (Mann 1945). The score is corrected for
 * ties and continuity, and for neighbours that resemble each other: the steps of a slowly changing level are not
 * independent. (The variance is multiplied by (1+r)/(1-r), where r is the lag-1 correlation of the residuals; after
 * Yue & Wang 2004, doi:10.1023/B:WARM.0000043140.61082.60.)
 *
 * Does it still grow? The floor must keep rising to the end: the floor of each sixth of the run is not below the one
 * before, and in the last third it is higher by a part of the rise that the slope predicts. A plateau, a cache that
 * has filled, a tooth that falls back and a mere change of level fail this test.
 *
 * A warm-up that bends into a leak fails the second test: its residuals resemble each other too much. So the second
 * half of a run is tested again alone. Then the floor must rise like a straight line, so growth that levels off
 * fails.
 *
 * Nothing is allocated; the stack holds three arrays of 512 doubles at a time. */
#include "train/leak.h"

#include <math.h>
#include <string.h>

#define SAMPLES           512
#define STEPS_MIN         20
#define CONFIDENCE_MIN    0.999
#define SHORT             40     /* samples: so few hardly show how neighbours resemble each other, so demand more */
#define CONFIDENCE_MAX    0.9999 /* the normal approximation is not reliable beyond */
#define RISE_MIN          0.2    /* of the rise that the slope predicts, from window to window of the last third */
#define LATER_SAMPLES_MIN 60
#define STRAIGHT_MIN      0.7 /* likewise in each window, if only the second half is tested */
#define WARM_UP_JUMP      8.0 /* times the usual difference of a step's change from the median change */
#define STEEP             8.0 /* times the residuals' range: correlated neighbours do not explain such a rise */
#define BISECTIONS        64
#define CORRELATION_MAX   0.95
#define INTERVAL_Z        2.5758 /* 99 %, two-sided */

/* Merges two sorted runs, from[0..middle) and from[middle..end); returns how many pairs were in falling order. */
static uint64_t merge(const double *from, double *to, size_t middle, size_t end)
{
	uint64_t inversions = 0;
	size_t i = 0, j = middle;

	for (size_t k = 0; k < end; k++) {
		if (i < middle && (j >= end || from[i] <= from[j])) {
			to[k] = from[i++];
		} else {
			to[k] = from[j++];
			inversions += middle - i;
		}
	}
	return inversions;
}

/* Sorts `values` and returns how many pairs were in falling order. */
static uint64_t sort_counting(double *values, size_t count)
{
	double other[SAMPLES];
	uint64_t inversions = 0;

	for (size_t width = 1; width < count; width *= 2) {
		for (size_t left = 0; left < count; left += 2 * width) {
			size_t end = count - left < 2 * width ? count - left : 2 * width;
			inversions += merge(values + left, other + left, width < end ? width : end, end);
		}
		memcpy(values, other, count * sizeof *values);
	}
	return inversions;
}

static double median_of(double *values, size_t count)
{
	sort_counting(values, count);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double pairs_of(size_t count) { return (double)count * (double)(count - 1) / 2; }

/* The slope per sample below which `rank` pairs' slopes lie. If that is half of the pairs, Theil-Sen's median. */
static double slope_at(const double *y, size_t count, double rank)
{
	double low = 0, high = 0, shifted[SAMPLES];

	for (size_t i = 1; i < count; i++) { /* every pair's slope lies between those of neighbours */
		double change = y[i] - y[i - 1];
		low = i == 1 || change < low ? change : low;
		high = i == 1 || change > high ? change : high;
	}
	for (int round = 0; round < BISECTIONS && high > low; round++) {
		double slope = low + (high - low) / 2;
		for (size_t i = 0; i < count; i++)
			shifted[i] = y[i] - slope * (double)i;
		if ((double)sort_counting(shifted, count) > rank)
			high = slope;
		else
			low = slope;
	}
	return low + (high - low) / 2;
}

/* The factor (1+r)/(1-r) of the residuals, at least 1, by which correlated neighbours raise the variance. */
static double correlation_factor(const double *y, size_t count, double slope)
{
	double mean = 0, products = 0, squares = 0, previous = 0, lowest = INFINITY, highest = -INFINITY;

	for (size_t i = 0; i < count; i++)
		mean += (y[i] - slope * (double)i) / (double)count;
	for (size_t i = 0; i < count; i++) {
		double residual = y[i] - slope * (double)i - mean;
		squares += residual * residual;
		lowest = fmin(lowest, residual);
		highest = fmax(highest, residual);
		if (i > 0)
			products += residual * previous;
		previous = residual;
	}
	/* Residuals below a byte are rounding errors; a level that wanders so little does not rise so far. */
	if (squares < (double)count || products <= 0 || fabs(slope) * (double)count >= STEEP * (highest - lowest))
		return 1;
	double r = products / squares;
	if (r > CORRELATION_MAX)
		r = CORRELATION_MAX;
	return (1 + r) / (1 - r);
}

/* The variance of Mann and Kendall's score without a trend; 0 if all values are the same. */
static double score_variance(const double *y, size_t count, double slope)
{
	double n = (double)count, ties = 0, sorted[SAMPLES];

	memcpy(sorted, y, count * sizeof *sorted);
	sort_counting(sorted, count);
	for (size_t i = 0, first = 0; i < count; i++) {
		if (i + 1 < count && sorted[i + 1] == sorted[first])
			continue;
		double t = (double)(i + 1 - first);
		ties += t * (t - 1) * (2 * t + 5);
		first = i + 1;
	}
	double variance = (n * (n - 1) * (2 * n + 5) - ties) / 18;
	return variance > 0 ? variance * correlation_factor(y, count, slope) : 0;
}

/* The confidence that there is an upward trend: one-sided, normal approximation (good from 10 values on). */
static double mann_kendall(const double *y, size_t count, double variance)
{
	int64_t score = 0;

	for (size_t i = 0; i < count; i++)
		for (size_t j = i + 1; j < count; j++)
			score += (y[j] > y[i]) - (y[j] < y[i]);
	if (variance <= 0 || score == 0)
		return 0;
	double z = (double)(score > 0 ? score - 1 : score + 1) / sqrt(variance);
	return fmin(0.5 * erfc(-z / sqrt(2.0)), CONFIDENCE_MAX);
}

/* The floor of samples [first, end): the lowest of them, after each was moved to the middle along the slope, so that
 * the place of the lowest in the window does not matter. */
static double floor_of(const double *y, size_t first, size_t end, double slope)
{
	double middle = (double)(first + end - 1) / 2, floor = INFINITY;

	for (size_t i = first; i < end; i++)
		floor = fmin(floor, y[i] - slope * ((double)i - middle));
	return floor;
}

/* Whether the floor keeps rising. `straight`: in every window, and as evenly as a straight line. */
static bool floor_keeps_rising(const double *y, size_t count, double slope, bool straight)
{
	size_t windows = count >= 36 ? 6 : 4;
	double previous = 0;

	for (size_t w = 0; w < windows; w++) {
		size_t first = w * count / windows, end = (w + 1) * count / windows;
		double now = floor_of(y, first, end, slope);
		double promised = slope * (double)count / (double)windows;
		double wanted = straight ? STRAIGHT_MIN * promised : 3 * w >= 2 * windows ? RISE_MIN * promised : 0;
		double most = straight ? promised / STRAIGHT_MIN : INFINITY;
		if (w > 0 && (now - previous < wanted || now - previous > most))
			return false;
		previous = now;
	}
	return true;
}

/* How many samples to leave out: up to the last jump within the first third that is far above a usual change. (A
 * leak's change is usual, so the jumps that a warm-up adds stand out.) */
static size_t find_warm_up(const double *y, size_t count)
{
	double changes[SAMPLES];
	size_t warm_up = 0;

	if (count < 3)
		return 0;
	for (size_t i = 1; i < count; i++)
		changes[i - 1] = y[i] - y[i - 1];
	double usual = fmax(median_of(changes, count - 1), 0);
	for (size_t i = 1; i < count; i++)
		changes[i - 1] = fabs(y[i] - y[i - 1] - usual);
	double deviation = median_of(changes, count - 1);
	for (size_t i = 1; i < count / 3; i++)
		if (y[i] - y[i - 1] - usual > WARM_UP_JUMP * deviation)
			warm_up = i;
	return warm_up;
}

/* Takes at most SAMPLES values: the marks themselves, or the lowest mark of each of SAMPLES equal stretches. They are
 * relative to the first, so that doubles keep every byte. Returns how many. */
static size_t take_samples(const uint64_t *low_bytes, size_t steps, double *y)
{
	size_t count = steps < SAMPLES ? steps : SAMPLES;

	for (size_t i = 0; i < count; i++) {
		size_t first = (size_t)((double)steps / (double)count * (double)i);
		size_t end = i + 1 == count ? steps : (size_t)((double)steps / (double)count * (double)(i + 1));
		uint64_t low = low_bytes[first];
		for (size_t k = first + 1; k < end; k++)
			if (low_bytes[k] < low)
				low = low_bytes[k];
		y[i] = low >= low_bytes[0] ? (double)(low - low_bytes[0]) : -(double)(low_bytes[0] - low);
	}
	return count;
}

/* `free_bytes` UINT64_MAX: not known. */
static uint64_t steps_left(uint64_t free_bytes, double bytes_per_step)
{
	double left = bytes_per_step > 0 && free_bytes != UINT64_MAX ? (double)free_bytes / bytes_per_step : INFINITY;

	return left < 9e18 ? (uint64_t)left : UINT64_MAX;
}

/* The interval of the slope, per step. Takes two more bisections, so it is computed only for a leak. */
static void put_interval(struct neap_leak *leak, const double *y, size_t count, double variance, double stride)
{
	double pairs = pairs_of(count), around = INTERVAL_Z * sqrt(variance), slope = leak->bytes_per_step;

	leak->low_bytes_per_step = fmin(slope, slope_at(y, count, fmax((pairs - around) / 2, 0)) / stride);
	leak->high_bytes_per_step = fmax(slope, slope_at(y, count, fmin((pairs + around) / 2, pairs - 1)) / stride);
}

/* Runs the three tests on the samples from `first` on. `straight`: as in floor_keeps_rising. */
static struct neap_leak ask(const double *samples, size_t count, size_t first, size_t steps, bool straight)
{
	double stride = (double)steps / (double)count;
	struct neap_leak leak = {.verdict = NEAP_LEAK_TOO_SHORT, .warm_up_steps = (size_t)(stride * (double)first)};
	const double *y = samples + first;

	leak.steps = steps - leak.warm_up_steps;
	count -= first;
	if (leak.steps < STEPS_MIN)
		return leak;
	double slope = slope_at(y, count, floor(pairs_of(count) / 2));
	double variance = score_variance(y, count, slope);
	leak.verdict = NEAP_LEAK_CLEAN;
	leak.bytes_per_step = leak.low_bytes_per_step = leak.high_bytes_per_step = slope / stride;
	leak.confidence = mann_kendall(y, count, variance);
	if (slope > 0 && leak.confidence >= (count < SHORT ? CONFIDENCE_MAX : CONFIDENCE_MIN) &&
	    floor_keeps_rising(y, count, slope, straight)) {
		leak.verdict = NEAP_LEAK_FOUND;
		put_interval(&leak, y, count, variance, stride);
	}
	return leak;
}

static void put_end(struct neap_leak *leak, uint64_t free_bytes)
{
	bool known = leak->verdict != NEAP_LEAK_TOO_SHORT;

	leak->steps_until_full = known ? steps_left(free_bytes, leak->bytes_per_step) : UINT64_MAX;
	leak->low_steps_until_full = known ? steps_left(free_bytes, leak->high_bytes_per_step) : UINT64_MAX;
	leak->high_steps_until_full = known ? steps_left(free_bytes, leak->low_bytes_per_step) : UINT64_MAX;
}

void neap_leak_test(const uint64_t *low_bytes, size_t steps, uint64_t free_bytes, struct neap_leak *ret_leak)
{
	struct neap_leak leak = {.verdict = NEAP_LEAK_TOO_SHORT, .steps = steps}, later;
	double samples[SAMPLES];

	if (steps >= STEPS_MIN) {
		size_t count = take_samples(low_bytes, steps, samples);
		leak = ask(samples, count, find_warm_up(samples, count), steps, false);
		/* A bending warm-up can hide the straight line after it. */
		if (leak.verdict != NEAP_LEAK_FOUND && count >= LATER_SAMPLES_MIN) {
			later = ask(samples, count, count / 2, steps, true);
			leak = later.verdict == NEAP_LEAK_FOUND ? later : leak;
		}
	}
	put_end(&leak, free_bytes);
	*ret_leak = leak;
}

/* The index before which most steps are unknown; 0: each is known, or the numbers do not rise. */
static size_t find_widest_gap(const uint64_t *numbers, size_t count)
{
	size_t widest = 0;

	for (size_t i = 1; i < count; i++) {
		if (numbers[i] <= numbers[i - 1])
			return 0;
		if (numbers[i] - numbers[i - 1] > (widest ? numbers[widest] - numbers[widest - 1] : 1))
			widest = i;
	}
	return widest;
}

/* Replaces the levels by those of every `stride`th step from the first on; returns how many. With a stride of the
 * widest gap, the step of index j is known at index j or after it, so none is overwritten that is still needed. */
static size_t take_every(uint64_t *low_bytes, const uint64_t *numbers, size_t count, uint64_t stride)
{
	size_t taken = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t low = low_bytes[i], left = (numbers[i] - numbers[0]) % stride;
		if ((numbers[i] - numbers[0]) / stride < taken)
			continue; /* the next one is later */
		if (left > 0) {
			double share = (double)left / (double)(numbers[i] - numbers[i - 1]);
			low = (uint64_t)((double)low + ((double)low_bytes[i - 1] - (double)low) * share + 0.5);
		}
		low_bytes[taken++] = low;
	}
	return taken;
}

void neap_leak_test_numbered(uint64_t *low_bytes, const uint64_t *numbers, size_t count, uint64_t free_bytes,
			     struct neap_leak *ret_leak)
{
	size_t widest = find_widest_gap(numbers, count);
	uint64_t gap = 1, span = count;
	struct neap_leak leak;

	while (widest) {
		gap = numbers[widest] - numbers[widest - 1];
		span = numbers[count - 1] - numbers[0];
		if (span / gap + 1 >= STEPS_MIN || count < STEPS_MIN)
			break;
		size_t first = widest >= count - widest ? 0 : widest; /* of the longer part */
		count = first ? count - widest : widest;
		low_bytes += first;
		numbers += first;
		widest = find_widest_gap(numbers, count);
		gap = 1;
	}
	if (gap > 1)
		count = take_every(low_bytes, numbers, count, gap);
	neap_leak_test(low_bytes, count, free_bytes, &leak);
	if (gap > 1) {
		leak.bytes_per_step /= (double)gap;
		leak.low_bytes_per_step /= (double)gap;
		leak.high_bytes_per_step /= (double)gap;
		leak.warm_up_steps *= (size_t)gap;
		leak.steps = leak.warm_up_steps <= span ? (size_t)span + 1 - leak.warm_up_steps : 0;
		put_end(&leak, free_bytes);
	}
	*ret_leak = leak;
}
