/* base/nearest.c: see the header. */
#include "base/nearest.h"

#include <string.h>

/* Returns Levenshtein's distance between names of at most 31 characters; a longer name is far from every other. */
static size_t edit_distance(const char *a, size_t a_length, const char *b)
{
	size_t row[32];
	size_t b_length = strlen(b);
	if (a_length > 31 || b_length > 31)
		return 32;
	for (size_t j = 0; j <= b_length; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
			size_t moved = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
			diagonal = row[j];
			row[j] = replaced < moved ? replaced : moved;
		}
	}
	return row[b_length];
}

void neap_nearest_consider(struct neap_nearest *nearest, const char *typed, size_t typed_length, const char *name)
{
	size_t distance = edit_distance(typed, typed_length, name);
	size_t bound = strlen(name) / 3 + 1;
	if (distance <= bound && (!nearest->name || distance < nearest->distance)) {
		nearest->name = name;
		nearest->distance = distance;
	}
}
