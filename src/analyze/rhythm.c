/* analyze/rhythm.c: searches for the beginning of the second micro-batch: each place where the first sizes of the
 * step repeat is tried, the nearest first. */
#include "analyze/rhythm.h"

#include "analyze/saturate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define HEAD       8   /* allocations that a micro-batch begins with, in this order */
#define CANDIDATES 256 /* places that are tried */
/* Micro-batches differ in length by at most an eighth, since the first one makes the gradients. */
#define SLACK 8
#define TOOTH 16 /* a micro-batch takes at least a sixteenth of the step's swing, else it does not count */

struct step {
	const struct neap_beat *beats;
	size_t count;
	uint64_t end_bytes, swing_bytes;
	uint64_t *left, *right; /* arrays for the sizes of a micro-batch */
};

static bool begins_at(const struct step *step, size_t place, size_t head)
{
	for (size_t i = 0; i < head; i++)
		if (place + i >= step->count || step->beats[place + i].bytes != step->beats[i].bytes)
			return false;
	return true;
}

static int by_value(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;
	return (*a > *b) - (*a < *b);
}

/* Whether the first `length` allocations and the next ones have nine tenths of their sizes in common, in any order.
 */
static bool are_alike(const struct step *step, size_t length)
{
	size_t common = 0;

	for (size_t i = 0; i < length; i++) {
		step->left[i] = step->beats[i].bytes;
		step->right[i] = step->beats[length + i].bytes;
	}
	qsort(step->left, length, sizeof *step->left, by_value);
	qsort(step->right, length, sizeof *step->right, by_value);
	for (size_t i = 0, j = 0; i < length && j < length;) {
		common += step->left[i] == step->right[j];
		bool left = step->left[i] <= step->right[j], right = step->right[j] <= step->left[i];
		i += left;
		j += right;
	}
	return common * 10 >= length * 9;
}

static uint64_t level_at(const struct step *step, size_t place)
{
	return place < step->count ? step->beats[place].before : step->end_bytes;
}

static uint64_t highest_in(const struct step *step, size_t from, size_t to)
{
	uint64_t high = 0;

	for (size_t i = from; i < to; i++) {
		uint64_t after = neap_plus(step->beats[i].before, step->beats[i].bytes);
		high = after > high ? after : high;
	}
	return high;
}

/* Returns the bytes that were freed within the first micro-batch. */
static uint64_t freed_in_first(const struct step *step, size_t length)
{
	uint64_t taken = level_at(step, 0);

	for (size_t i = 0; i < length; i++)
		taken = neap_plus(taken, step->beats[i].bytes);
	return neap_less(taken, level_at(step, length));
}

/* Whether the second micro-batch gives back most of what it took. The first one gives back as much, but its level
 * need not fall: it leaves the gradients. */
static bool falls_back(const struct step *step, size_t length)
{
	size_t slack = length / SLACK, end = 2 * length;
	uint64_t begin = level_at(step, length), high = highest_in(step, length, end), low = UINT64_MAX;

	for (size_t place = end - slack; place <= end + slack && place <= step->count; place++)
		low = level_at(step, place) < low ? level_at(step, place) : low;
	uint64_t rise = neap_less(high, begin), fall = neap_less(high, low);
	uint64_t largest = 0;
	for (size_t i = length; i < end; i++)
		largest = step->beats[i].bytes > largest ? step->beats[i].bytes : largest;
	/* A gradient, which is temporary only in the second micro-batch, may be the largest part of its rise. */
	bool freed = freed_in_first(step, length) >= (rise - (largest < rise ? largest : rise)) / 2;
	return rise > 0 && freed && fall >= rise - rise / 2 && rise >= step->swing_bytes / TOOTH;
}

/* Returns how many micro-batches of about this length follow one another; 1: they are less than half of the step. */
static size_t count_micro_batches(const struct step *step, size_t length, size_t head)
{
	size_t slack = length / SLACK, last = length, found = 2;

	for (bool more = true; more;) {
		size_t from = last + length - slack, to = last + length + slack;
		more = false;
		for (size_t place = from; !more && place <= to; place++)
			if (begins_at(step, place, head) && step->count - place >= length - slack) {
				last = place;
				found++;
				more = true;
			}
	}
	return 2 * (last + length) >= step->count ? found : 1;
}

size_t neap_rhythm_find(const struct neap_beat *beats, size_t count, uint64_t end_bytes)
{
	struct step step = {.beats = beats, .count = count, .end_bytes = end_bytes};
	size_t found = 1, tried = 0;
	uint64_t lowest = end_bytes;

	if (count < 2 || count > NEAP_RHYTHM_BEATS)
		return 1;
	for (size_t i = 0; i < count; i++)
		lowest = beats[i].before < lowest ? beats[i].before : lowest;
	step.swing_bytes = neap_less(highest_in(&step, 0, count), lowest);
	step.left = malloc(count * sizeof *step.left);
	step.right = malloc(count * sizeof *step.right);
	for (size_t length = 1; step.left && step.right && found == 1 && 2 * length <= count && tried < CANDIDATES;
	     length++) {
		size_t head = length < HEAD ? length : HEAD;
		if (!begins_at(&step, length, head))
			continue;
		tried++;
		if (falls_back(&step, length) && are_alike(&step, length))
			found = count_micro_batches(&step, length, head);
	}
	free(step.left);
	free(step.right);
	return found;
}
